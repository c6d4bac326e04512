"""
Files that appear completely or not at all.

Problem. A file that is created in place can be seen, or left behind by a crash, half made; and a disk
that is full is met hours later, in the middle of the writing.
Idea. The core makes a temporary file beside the final one, gives it its blocks and, when it is complete,
its name (``outcore_io::durable`` says how). Python's part of that is here: the words of errors, names
beside a file, and files that a library makes by their names (`replacing`).
Invariants. Nobody sees the final name before the bytes are safe; a failure removes the temporary file;
what a killed process left goes by the rule of ``outcore_io::temporary``, for files and folders;
``exclusive`` never replaces anything, not even in a race. Names beside a long one are cut to what a
folder allows, and still differ if the long ones do. Errors tell the final name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from outcore import _core
from outcore.errors import OutcoreError, StorageError, UsageError
from outcore.formats import locks

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
    "already-exists": "pass overwrite=True to replace it, or open it with mode 'r+' to change it",
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


def is_special(path: str) -> bool:
    """Whether a path leads to something that is neither a regular file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False  # missing or out of reach, which whoever opens it says
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
            _core.allocate(fd, old, new)
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
    refuse_special(path)
    with os_errors("creating", path):
        file = _core.TempFile(path, exclusive)
        try:
            fill(file.fileno())
            file.publish()
        finally:
            file.close()


# Of what is read at once where the system cannot copy by itself.
_BLOCK = 1 << 20


def copy_file(source: str, target: str, *, exclusive: bool) -> None:
    """
    Copy a file with its permissions: `target` appears whole and durable, as by `create_file`.

    Raises
    ------
    StorageError
        ``file-changed``: the file became shorter meanwhile, so nothing appears.
    """
    with os_errors("opening", source):
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def fill(made: int) -> None:
        length = os.fstat(fd).st_size
        copied = _copy_bytes(fd, made)
        # The head of an array may be copied by then which tells the old length.
        if min(copied, os.fstat(fd).st_size) < length:
            raise StorageError(
                f"{source!r} became shorter while it was copied; copy it again",
                code="file-changed",
                path=source,
            )
        os.fchmod(made, stat.S_IMODE(os.fstat(fd).st_mode))

    try:
        create_file(target, fill, exclusive=exclusive)
    finally:
        os.close(fd)


def _copy_bytes(source: int, target: int) -> int:
    """Copy to the end of the file as it is then; how many bytes that were."""
    with contextlib.suppress(OSError):  # another file system, or one that cannot
        while os.copy_file_range(source, target, 1 << 30):
            pass
    at = os.lseek(target, 0, os.SEEK_CUR)
    while block := os.pread(source, _BLOCK, at):
        write_all(target, block, at)
        at += len(block)
    return at


@contextlib.contextmanager
def replacing(path: str, *, exclusive: bool) -> Iterator[str]:
    """
    Yield the name of an empty file that a library is to fill; on success it becomes `path`, durably.

    The library opens it by that name (HDF5), and may lock it. Others use `create_file`.
    """
    refuse_special(path)
    file = _core.TempFile(path, exclusive, library=True)
    temporary = file.name
    try:
        yield temporary
        file.publish()
    except OutcoreError as error:
        error.speak_of(path, instead_of=temporary)
        raise
    finally:
        file.close()


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
    """A new name for what is to become the folder `final`: `remove_begun` finds it."""
    return _core.temporary_name(final, os.urandom(6).hex())


#: What all names are like under which the core, or Python, makes a file or folder.
BEGUN = r"\..+\.[0-9a-f]{8}(?:-[0-9a-f-]+)?\.outcore-tmp"


def is_begun(name: str) -> bool:
    """Whether a name is one under which something is, or was, being made."""
    return re.fullmatch(BEGUN, name) is not None


def hold(path: str, *, look: bool = False) -> int | None:
    """
    Lock a file or folder as one whose maker lives, until the descriptor is closed or the process ends.

    Parameters
    ----------
    path
        What is being made, or may be left of somebody who made it.
    look
        The caller wants to know whether that is left, and will remove it.

    Returns
    -------
    int or None
        A descriptor; None if somebody else holds it, or it is gone. Where nothing can be locked: one to
        its maker, None to who looks.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        locked = locks.lock_file(fd)
        if locked is None and not look:
            return fd
        mine, there = os.fstat(fd), os.stat(path)
        if locked and (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def remove_begun(path: str) -> None:
    """Remove what was to become `path`, and is nobody's. No other process may make it now."""
    _core.remove_left(os.path.realpath(path))


def move_into_place(fresh: str, target: str, *, exclusive: bool) -> None:
    """
    Give a complete, durable file or folder the name `target`, durably.

    What was there is removed, after it has been replaced in one step; if `exclusive`, a
    `FileExistsError` is raised instead.
    """
    aside = neighbour(target, f".{os.urandom(6).hex()}.old")
    left = _core.move_into_place(fresh, target, aside, exclusive)
    if left is None:
        return
    if os.path.isdir(left) and not os.path.islink(left):
        import shutil

        shutil.rmtree(left, ignore_errors=True)
    else:
        os.unlink(left)
    _core.fsync_folder(target)
