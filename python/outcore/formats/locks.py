"""
Locks on files, and on byte ranges of them as ``outcore_io::lock`` has them; who changes a length.

Problem. An array that two append to gets each other's place, unless one waits for the other before he
asks how long it is. Record locks of POSIX do not help inside a process.
Idea. Locks of open file descriptions (Linux): two threads exclude each other like two processes. Who
changes the length of an array holds one byte, far behind every file, of the file that tells the length.
Invariants. The lock is on the file that has the name by then. A thread that holds it and wants it once
more is refused: it would wait for itself. A forked child does not keep its parent's lock. Where a file
system lacks a kind of lock another kind is taken, if there is one, and one warning says what is not
guaranteed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import warnings
from collections.abc import Iterator

from outcore import _core
from outcore.errors import callers_line

#: First byte and length, as in `outcore_io::lock::Range`. Who accesses chunks locks the first. Who wants
#: HDF5's lock for writing, or has it, stands at the second. Who changes the length of an array holds
#: the third, and he alone.
CONTENT, TURNSTILE, GROWTH = (0, 1 << 62), (1 << 62, 1), ((1 << 62) + 1, 1)

#: What stands for `flock` where there is none.
_WHOLE = ((1 << 62) + 2, 1)
#: How systems say that a file system lacks a kind of lock.
LACKING = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_LOCK = struct.Struct("hhqqi4x")
_KNOWN = hasattr(fcntl, "F_OFD_SETLKW")


def lock_range(fd: int, kind: int, place: tuple[int, int], *, wait: bool = False) -> None:
    """
    Lock a range of an open file for itself, or release it (`fcntl.F_UNLCK`).

    Elsewhere than on Linux the whole file is locked. `OSError` if somebody is in the way, unless `wait`;
    and where files cannot be locked.
    """
    if _KNOWN:
        order = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        fcntl.fcntl(fd, order, _LOCK.pack(kind, os.SEEK_SET, *place, 0))
        return
    how = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX}.get(kind, fcntl.LOCK_UN)
    fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)


def lock_file(fd: int, kind: int = fcntl.LOCK_EX, *, wait: bool = False) -> bool | None:
    """
    Lock an open file or folder as a whole, as `flock` does, or release it (`fcntl.LOCK_UN`).

    Returns
    -------
    bool or None
        True: it is locked (released). False: somebody else holds it. None: the file system has no lock
        that this descriptor could have.
    """
    try:
        fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in LACKING:
            raise
    if not _KNOWN:
        return None
    kinds = {fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_EX: fcntl.F_WRLCK}
    try:
        lock_range(fd, kinds.get(kind, fcntl.F_UNLCK), _WHOLE, wait=wait)
        return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        # A descriptor that cannot write cannot have a lock of a range alone.
        if error.errno not in (*LACKING, errno.EBADF):
            raise
    return None


# Folders whose file systems were looked at, and these file systems by the numbers of their devices.
_folders: set[str] = set()
_devices: set[int] = set()


def tell_what_lacks(path: str) -> None:
    """Warn once if the file system on which `path` is, or will be, lacks locks."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder in _folders:
        return
    with contextlib.suppress(OSError):
        device = os.stat(folder).st_dev
        if device not in _devices:
            lacks = _lacking_locks(folder)
            _devices.add(device)
            if lacks:
                warnings.warn(
                    f"the file system of {folder!r} lacks {' and '.join(lacks)}: several programs that "
                    "write the same array at the same time are not kept apart; let one program at a "
                    "time write it (see docs/status/platforms.md)",
                    stacklevel=callers_line(),
                )
        _folders.add(folder)


def _lacking_locks(folder: str) -> list[str]:
    """Kinds of locks that a file system lacks, as a folder of it tells."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lacks = []
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in LACKING:
                lacks.append("flock")
        try:
            lock_range(fd, fcntl.F_RDLCK, _WHOLE)
        except OSError as error:
            if error.errno in LACKING:
                lacks.append("locks of byte ranges")
        return lacks
    finally:
        os.close(fd)


def in_the_way(fd: int, kind: int, place: tuple[int, int]) -> int | None:
    """The kind of a lock that does not admit another of `kind`; None, too, where nobody can tell."""
    with contextlib.suppress(OSError, AttributeError):
        lock = _LOCK.pack(kind, os.SEEK_SET, *place, 0)
        found = int(_LOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, lock))[0])
        return None if found == fcntl.F_UNLCK else found
    return None


def lock_by_name(path: str, place: tuple[int, int]) -> int | None:
    """
    A descriptor of the file with that name, locked alone; waits for others.

    None if it cannot be opened for writing, which what follows says.
    """
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            try:
                lock_range(fd, fcntl.F_WRLCK, place, wait=True)
            except OSError as error:
                if place == GROWTH and error.errno in LACKING:
                    os.close(fd)
                    return _lock_folder(path)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # replaced while we waited: lock the new one


class _Mine(threading.local):
    """What this thread is changing the length of."""

    def __init__(self) -> None:
        self.changes: set[str] = set()


_mine = _Mine()


@contextlib.contextmanager
def growing(path: str) -> Iterator[None]:
    """
    Keep all others from changing the length that the file `path` tells.

    Raises
    ------
    UsageError
        This thread is in the middle of such a change, and was interrupted by a signal.
    """
    with once(os.path.realpath(path), path):
        fd = lock_by_name(path, GROWTH) if _KNOWN else _lock_folder(path)
        try:
            yield
        finally:
            if fd is not None:
                # By name: a child that was forked meanwhile has the description, too.
                with contextlib.suppress(OSError):
                    lock_range(fd, fcntl.F_UNLCK, GROWTH)
                os.close(fd)


def _lock_folder(path: str) -> int | None:
    """Where there is no lock of a range: others of ours want that of the file during a change."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        return fd
    return None


@contextlib.contextmanager
def once(what: str, path: str, doing: str = "its length is being changed") -> Iterator[None]:
    """Refuse a change of `what` (mostly of a length) inside the same one by the same thread."""
    if what in _mine.changes:
        _core.refuse_nested(path, doing)
    _mine.changes.add(what)
    try:
        yield
    finally:
        _mine.changes.discard(what)


def grown_by_me(path: str) -> bool:
    """Whether this thread is inside `growing` of that file."""
    return os.path.realpath(path) in _mine.changes


def is_growing(path: str) -> bool:
    """Whether somebody changes the length of the file now."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return in_the_way(fd, fcntl.F_RDLCK, GROWTH) is not None
        finally:
            os.close(fd)
    return False
