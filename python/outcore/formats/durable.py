"""
Files that appear completely or not at all.

Problem: a file that is created in place can be seen, or left after a crash, half written. A full disk
is noticed hours later, in the middle of the writes.
Approach: the core creates a temporary file next to the final one, allocates its blocks and, when it is
complete, gives it its name (see ``outcore_io::durable``). This module adds the messages of errors,
names next to a file, and files that a library creates by name (`replace_by_library`).
Invariants: no process sees the final name before the bytes are durable. A failure removes the temporary
file. Files and folders left by a killed process are removed by the rule of ``outcore_io::temporary``.
``exclusive`` never replaces anything, not even in a race. Names next to a long one are cut to what a
folder allows, and still differ if the long names do. Errors name the final path.
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
    "disk-failure": "the disk or its connection has failed; check the system log",
    "disk-full": "free space or choose another disk",
    "is-a-directory": "give the path of a file",
    "too-many-open-files": "close files, or raise the limit of open files (RLIMIT_NOFILE, ulimit -n)",
}
# For errors that share the code io-failure.
_NEXT_OF = {
    errno.ENAMETOOLONG: "choose a shorter name",
}


def find_code(number: int | None) -> str:
    """Return the stable code for an errno."""
    return _CODES.get(number or 0, "io-failure")


class os_errors:
    """
    Turn an `OSError` of the block into a `StorageError` that states the operation and the path.

    A class, because entering and leaving a generator takes more than twice as long, and this happens
    once or more for each file that is opened.
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
        code = find_code(error.errno)
        step = _NEXT.get(code) or _NEXT_OF.get(error.errno or 0)
        hint = f"; {step}" if step else ""
        reason = error.strerror or str(error)
        raise StorageError(
            f"{self._doing} {self._path!r}: {reason}{hint}",
            code=code,
            path=self._path,
            errno=error.errno,
        ) from error


class open_fd:
    """Open a file and yield its descriptor, which is closed at the end of the block."""

    __slots__ = ("_fd", "_flags", "_path")

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self._path, self._flags, self._fd = path, flags, -1

    def __enter__(self) -> int:
        self._fd = os.open(self._path, self._flags | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def is_special(path: str) -> bool:
    """Return whether a path leads to something that is neither a regular file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False  # missing or inaccessible: opening it reports that
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_not_special(path: str) -> bool:
    """
    Raise for pipes and devices, under any name; return whether the path is a folder.

    Opening a pipe would wait for ever, and a new array must not replace a device.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # missing or inaccessible: opening it reports that
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(
            f"{path!r} is a pipe, a device or a socket, not a regular file; copy the bytes into one, or "
            "choose another name",
            code="not-a-file",
            path=path,
        )
    return stat.S_ISDIR(mode)


def change_length(path: str, old: int, new: int) -> None:
    """
    Durably change the length of a file from `old` to `new` bytes.

    New bytes read as zeros, even if another program left bytes after the old end.
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
    """Write all bytes; a single call may write fewer."""
    view = memoryview(data)
    while len(view):
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


@contextlib.contextmanager
def open_if_exists(path: str) -> Iterator[int | None]:
    """Open a file for reading and yield its descriptor, or None if it does not exist."""
    with os_errors("reading", path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = None
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)


def read_beginning(path: str, length: int) -> bytes:
    """Read the first `length` bytes of a file, or fewer; none if it cannot be opened."""
    with contextlib.suppress(OSError), open_fd(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        return read_at(fd, length, 0)
    return b""


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read `length` bytes, or fewer at the end of the file; a single call may read fewer anywhere."""
    found = os.pread(fd, length, offset)
    while found and len(found) < length:
        more = os.pread(fd, length - len(found), offset + len(found))
        if not more:
            break
        found += more
    return found


def read_into(fd: int, view: memoryview, offset: int) -> int:
    """Fill a memory view from a file like `read_at`; return the number of bytes read."""
    done = 0
    while done < len(view) and (count := os.preadv(fd, [view[done:]], offset + done)):
        done += count
    return done


# Maximum bytes of a name in a folder (NAME_MAX of all common file systems).
_LONGEST_NAME = 255


def shorten_name(name: str, most: int) -> str:
    """Return `name` if it has at most `most` bytes, otherwise its beginning and a hash of it."""
    raw = os.fsencode(name)
    if len(raw) <= most:
        return name
    import hashlib  # slow to import, and rarely needed

    mark = "~" + hashlib.blake2b(raw, digest_size=8).hexdigest()
    # Omit half a character, which some file systems reject.
    return raw[: most - len(mark)].decode("utf-8", "ignore") + mark


def make_sibling_path(path: str, ending: str, before: str = "") -> str:
    """Return a path next to `path`: its name, cut if needed, between `before` and `ending`."""
    folder, name = os.path.split(path)
    most = _LONGEST_NAME - len(os.fsencode(before + ending))
    return os.path.join(folder, before + shorten_name(name, most) + ending)


def create_file(path: str, fill: Callable[[int], None], *, exclusive: bool) -> None:
    """
    Create the file `path` completely: `fill` gets an open descriptor of an empty file.

    An existing file is replaced atomically (a symbolic link is followed, the file mode kept).
    `exclusive`: raise `StorageError` (``already-exists``) instead.
    """
    check_not_special(path)
    with os_errors("creating", path):
        file = _core.TempFile(path, exclusive)
        try:
            fill(file.fileno())
            file.publish()
        finally:
            file.close()


# Bytes of one read if the kernel cannot copy the file.
_BLOCK = 1 << 20


def copy_file(source: str, target: str, *, exclusive: bool) -> None:
    """
    Copy a file with its permissions: `target` appears complete and durable, as with `create_file`.

    `StorageError` ``file-changed``: the source became shorter during the copy; no target appears.
    """
    with os_errors("opening", source):
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def fill(made: int) -> None:
        length = os.fstat(fd).st_size
        copied = _copy_bytes(fd, made)
        # The copied header of an array may state the old length.
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
    """Copy up to the current end of the file; return the number of bytes."""
    with contextlib.suppress(OSError):  # two file systems, or copying is not supported
        while os.copy_file_range(source, target, 1 << 30):
            pass
    at = os.lseek(target, 0, os.SEEK_CUR)
    while block := os.pread(source, _BLOCK, at):
        write_all(target, block, at)
        at += len(block)
    return at


@contextlib.contextmanager
def replace_by_library(path: str, *, exclusive: bool) -> Iterator[str]:
    """
    Yield the name of an empty file that a library fills; on success it durably becomes `path`.

    The library opens it by that name (HDF5), and may lock it. Other formats use `create_file`.
    """
    check_not_special(path)
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
    Remove a name now; if it was the last name of a large file, free the blocks in the background.

    On a file system that notifies the disk about each freed block (mounted with ``discard``), freeing a
    gigabyte takes seconds. The end of the process frees the blocks too.
    """
    fd: int | None = None
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.unlink(path)
    finally:
        if fd is not None:
            _close_in_background(fd)


# Bytes of a file without a name that is closed by a separate thread, at least.
_LARGE = 64 * 2**20


def _close_in_background(fd: int) -> None:
    found = os.fstat(fd)
    if found.st_nlink == 0 and found.st_blocks * 512 >= _LARGE:
        with contextlib.suppress(RuntimeError):  # no thread can be started
            threading.Thread(target=os.close, args=(fd,), daemon=True).start()
            return
    os.close(fd)


def make_temporary_name(final: str) -> str:
    """Return a new temporary name for the future folder `final`; `remove_abandoned` finds it."""
    return _core.temporary_name(final, os.urandom(6).hex())


#: Pattern of all temporary names that the core or Python gives to a file or folder.
TEMPORARY = r"\..+\.[0-9a-f]{8}(?:-[0-9a-f-]+)?\.outcore-tmp"


def is_temporary_name(name: str) -> bool:
    """Return whether a name is a temporary name."""
    return re.fullmatch(TEMPORARY, name) is not None


def hold(path: str, *, look: bool = False) -> int | None:
    """
    Lock a file or folder to mark that its creator is alive, until the descriptor is closed.

    With `look` the caller wants to find out whether the creator is gone, and will remove the file.
    Returns a descriptor; None if another process holds the lock or the file is gone. Where locks do not
    work: a descriptor for the creator, None with `look`.
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


def remove_abandoned(path: str) -> None:
    """Remove abandoned temporary files for `path`. No other process may create `path` now."""
    _core.remove_left(os.path.realpath(path))


def move_into_place(fresh: str, target: str, *, exclusive: bool) -> None:
    """
    Durably give a complete, durable file or folder the name `target`.

    An existing file or folder is replaced in one step and then removed; if `exclusive`, a
    `FileExistsError` is raised instead.
    """
    aside = make_sibling_path(target, f".{os.urandom(6).hex()}.old")
    left = _core.move_into_place(fresh, target, aside, exclusive)
    if left is None:
        return
    if os.path.isdir(left) and not os.path.islink(left):
        import shutil

        shutil.rmtree(left, ignore_errors=True)
    else:
        os.unlink(left)
    _core.fsync_folder(target)
