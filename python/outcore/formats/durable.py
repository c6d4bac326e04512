"""
Files that appear completely or not at all.

Problem. A file that is created in place can be seen, or left behind by a crash, half made; and a disk
that is full is met hours later, in the middle of the writing.
Idea. Make a temporary file beside the final one, allocate all its blocks, fsync, rename, fsync the
folder. A rename within a folder is atomic.
Invariants. Nobody sees the final name before the bytes are safe; a failure removes the temporary file;
what a killed process left goes by the rule of ``outcore_io::temporary``, for files and folders;
``exclusive`` never replaces anything, not even in a race. Names beside a long one are cut to what a
folder allows, and still differ if the long ones do. Errors tell the final name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from outcore import _core
from outcore.errors import OutcoreError, StorageError, UsageError

_CODES = {
    errno.ENOENT: "not-found",
    errno.ENOTDIR: "not-found",
    errno.EEXIST: "already-exists",
    errno.EACCES: "permission-denied",
    errno.EPERM: "permission-denied",
    errno.EROFS: "read-only-file-system",
    errno.EIO: "disk-failure",
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "disk-full",
    errno.EFBIG: "disk-full",
    errno.EISDIR: "is-a-directory",
    errno.EMFILE: "too-many-open-files",
    errno.ENFILE: "too-many-open-files",
}
_NEXT = {
    "not-found": "check the path",
    "already-exists": "use mode 'w' to replace it or 'r+' to change it",
    "permission-denied": "check the owner and the mode of the file and of its folder",
    "read-only-file-system": "mount it for writing, or choose another place",
    "disk-failure": "the disk or its connection fails; look at the system log",
    "disk-full": "free space or choose another disk",
    "is-a-directory": "give the path of a file",
    "too-many-open-files": "close files, or raise the limit of open files (RLIMIT_NOFILE, ulimit -n)",
}
# Of those that share the code io-failure.
_NEXT_OF = {
    errno.ENAMETOOLONG: "choose a shorter name",
}
# What posix_fallocate says where a file system cannot allocate ahead.
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)


def code_of(number: int | None) -> str:
    """The stable code for an errno."""
    return _CODES.get(number or 0, "io-failure")


class os_errors:
    """
    Turn an `OSError` of the block into a `StorageError` that says what was being done.

    A class: a generator takes more than twice as long to enter and to leave, once or more for each file
    that is opened.
    """

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: str) -> None:
        self._doing, self._path = doing, path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, StorageError):
            return
        code = code_of(error.errno)
        step = _NEXT.get(code) or _NEXT_OF.get(error.errno or 0)
        hint = f"; {step}" if step else ""
        reason = error.strerror or str(error)
        raise StorageError(
            f"{self._doing} {self._path!r}: {reason}{hint}",
            code=code,
            path=self._path,
            errno=error.errno,
        ) from error


def refuse_special(path: str) -> bool:
    """
    Refuse pipes and devices, under whatever name: opening a pipe waits for ever, and an array that is
    created must not take the place of a device.

    Returns whether it is a folder.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # missing or out of reach, which whoever opens it says
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(
            f"{path!r} is a pipe, a device or a socket; an array needs a file of its own, so copy the "
            "bytes into one, or choose another name",
            code="not-a-file",
            path=path,
        )
    return stat.S_ISDIR(mode)


def allocate(fd: int, start: int, end: int) -> None:
    """
    Give the bytes from `start` to `end` of an open file their blocks; what is new reads as zeros.

    The file becomes at least `end` bytes long. A full disk is met here; on systems and file systems that
    cannot allocate ahead, by the writes that follow.
    """
    if end <= start:
        return
    if not hasattr(os, "posix_fallocate"):
        os.ftruncate(fd, max(end, os.fstat(fd).st_size))
        return
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        if error.errno not in _NO_ALLOCATION:
            raise
        os.ftruncate(fd, max(end, os.fstat(fd).st_size))


def change_length(path: str, old: int, new: int) -> None:
    """
    Make a file that holds `old` bytes one of `new`; durable.

    What it gets reads as zeros, also where somebody left bytes behind the old end.
    """
    with os_errors("resizing", path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size > min(old, new):
                os.ftruncate(fd, min(old, new))
            allocate(fd, old, new)
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of it: a single call may take fewer bytes."""
    view = memoryview(data)
    while len(view):
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def read_at(fd: int, length: int, offset: int) -> bytes:
    """So many bytes, fewer only at the end of the file: a single call may give fewer anywhere."""
    found = os.pread(fd, length, offset)
    while found and len(found) < length:
        more = os.pread(fd, length - len(found), offset + len(found))
        if not more:
            break
        found += more
    return found


def read_into(fd: int, view: memoryview, offset: int) -> int:
    """The same, into memory; how many bytes it was."""
    done = 0
    while done < len(view) and (count := os.preadv(fd, [view[done:]], offset + done)):
        done += count
    return done


def fsync_folder(path: str) -> None:
    """Make the names in the folder of `path` durable."""
    fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# What a name in a folder may have, bytes (NAME_MAX of every file system that is common).
_LONGEST_NAME = 255


def short_name(name: str, most: int) -> str:
    """`name` if it has at most `most` bytes; else its beginning and a hash of it, within as many."""
    raw = os.fsencode(name)
    if len(raw) <= most:
        return name
    import hashlib  # long to import, and seldom needed

    mark = "~" + hashlib.blake2b(raw, digest_size=8).hexdigest()
    # Half a character is none: some file systems refuse it.
    return raw[: most - len(mark)].decode("utf-8", "ignore") + mark


def neighbour(path: str, ending: str, before: str = "") -> str:
    """A file beside `path`: named after it (cut if need be) with `before` in front, then `ending`."""
    folder, name = os.path.split(path)
    most = _LONGEST_NAME - len(os.fsencode(before + ending))
    return os.path.join(folder, before + short_name(name, most) + ending)


def create_file(path: str, fill: Callable[[int], None], *, exclusive: bool) -> None:
    """
    Make the file `path` whole: `fill` gets an open descriptor of an empty file and completes it.

    Parameters
    ----------
    path
        Replaced atomically if it exists (a symbolic link is followed, the file mode kept).
    fill
        Writes and allocates through the descriptor.
    exclusive
        Raise `StorageError` (``already-exists``) instead of replacing.
    """
    with os_errors("creating", path), replacing(path, exclusive=exclusive) as temporary:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            _core.hold_temporary(fd)
            fill(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def replacing(path: str, *, exclusive: bool) -> Iterator[str]:
    """
    Yield the name of a temporary file to be made; on success it becomes `path`, durably.

    Libraries that want to create files themselves (HDF5) use this; others use `create_file`.
    """
    refuse_special(path)
    final = os.path.realpath(path)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(final)
        if exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        mode = stat.S_IMODE(found.st_mode)
    _core.remove_left(final, young=False)
    temporary = begun_name(final)
    try:
        yield temporary
        fd = os.open(temporary, os.O_RDONLY)
        try:
            _core.hold_temporary(fd)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        if exclusive:
            _publish_new(temporary, final)
        else:
            os.rename(temporary, final)
        fsync_folder(final)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OutcoreError):
            error.speak_of(path, instead_of=temporary)
        raise


def unlink_in_background(path: str) -> None:
    """
    Remove a name now, and what it was the last name of in the background if that is large.

    A file system that tells the disk about every block that is free again (mounted with ``discard``)
    takes seconds for a gigabyte. The end of the process, however it comes, frees the blocks too.
    """
    fd: int | None = None
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.unlink(path)
    finally:
        if fd is not None:
            _close_in_background(fd)


# Bytes of files that are closed by a thread of their own if nobody has a name for them.
_LARGE = 64 * 2**20


def _close_in_background(fd: int) -> None:
    found = os.fstat(fd)
    if found.st_nlink == 0 and found.st_blocks * 512 >= _LARGE:
        with contextlib.suppress(RuntimeError):  # no thread can be started
            threading.Thread(target=os.close, args=(fd,), daemon=True).start()
            return
    os.close(fd)


def begun_name(final: str) -> str:
    """A new name for what is to become the file or folder `final`: `remove_begun` finds it."""
    return _core.temporary_name(final, os.urandom(6).hex())


#: What such names are like.
BEGUN = r"\..+\.[0-9a-f]{8}-[0-9a-f]{12}\.outcore-tmp"


def remove_begun(path: str) -> None:
    """Remove what was to become `path`, and is nobody's. No other process may make it now."""
    _core.remove_left(os.path.realpath(path), young=True)


def _publish_new(temporary: str, final: str) -> None:
    """Rename that fails if `final` exists: a hard link, or a placeholder where links are unknown."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            os.rename(temporary, final)
        except OSError:
            os.unlink(final)
            raise
    else:
        os.unlink(temporary)


# Flags and file descriptor of renameat2(2).
_NOREPLACE, _EXCHANGE, _HERE = 1, 2, -100


def rename_new(fresh: str, target: str) -> None:
    """Rename a file or folder; `FileExistsError` if `target` exists, even if it appears meanwhile."""
    if not _renameat2(fresh, target, _NOREPLACE):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        if os.path.isdir(fresh):
            os.rename(fresh, target)  # replaces an empty folder at most
        else:
            _publish_new(fresh, target)


def exchange(fresh: str, target: str, aside: str) -> None:
    """
    Let two files or folders change places at once.

    Where the system cannot, `target` is moved to `aside` and `fresh` takes its place.
    """
    if not _renameat2(fresh, target, _EXCHANGE):
        os.rename(target, aside)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(aside, target)
            raise


def move_into_place(fresh: str, target: str, *, exclusive: bool) -> None:
    """
    Give a complete, durable file or folder the name `target`, durably.

    What was there is removed, after it has been replaced in one step; if `exclusive`, a
    `FileExistsError` is raised instead.
    """
    if exclusive:
        rename_new(fresh, target)
    elif os.path.isdir(target) or os.path.isdir(fresh):
        aside = neighbour(target, f".{os.urandom(6).hex()}.old")
        if os.path.lexists(target):
            exchange(fresh, target, aside)
        else:
            os.rename(fresh, target)
        fsync_folder(target)
        import shutil

        for rest in (fresh, aside):
            if os.path.isdir(rest):
                shutil.rmtree(rest, ignore_errors=True)
            elif os.path.lexists(rest):
                os.unlink(rest)
    else:
        os.rename(fresh, target)
    fsync_folder(target)


@functools.cache
def _renameat2_function() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _renameat2(source: str, target: str, flag: int) -> bool:
    """Call ``renameat2``; False if the system or the file system does not have it."""
    function = _renameat2_function()
    if function is None:
        return False
    here = ctypes.c_int(_HERE)
    if function(here, os.fsencode(source), here, os.fsencode(target), ctypes.c_uint(flag)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), target)
