"""
Locks on files and on byte ranges of them (``outcore_io::lock``), and the lock for changing a length.

Problem: two processes that append to an array get the same place, unless one waits for the other before
it reads the length. Record locks of POSIX do not work inside a process.
Approach: locks of open file descriptions (Linux) exclude two threads like two processes. A thread that
changes the length of an array holds one byte, far past the end of any file, of the file that states the
length.
Invariants: the lock is on the file that currently has the name. If a thread that holds the lock
requests it again, an error is raised, because it would wait for itself. A forked child does not keep
its parent's lock. If a file system lacks a kind of lock, another kind is used where possible, and one
warning states what is not guaranteed.
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
from outcore.errors import find_stack_level

#: First byte and length, as in `outcore_io::lock::Range`. Accesses to chunks lock the first. A process
#: that waits for HDF5's lock for writing, or has it, locks the second. A change of the length of an
#: array locks the third, exclusively.
CONTENT, TURNSTILE, GROWTH = (0, 1 << 62), (1 << 62, 1), ((1 << 62) + 1, 1)

#: Range that is locked instead of `flock`, if the file system lacks it.
_WHOLE = ((1 << 62) + 2, 1)
#: Errors that mean that a file system lacks a kind of lock.
LACKING = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_LOCK = struct.Struct("hhqqi4x")
_KNOWN = hasattr(fcntl, "F_OFD_SETLKW")


def lock_range(fd: int, kind: int, place: tuple[int, int], *, wait: bool = False) -> None:
    """
    Lock a range of an open file description, or release it (`fcntl.F_UNLCK`).

    On other systems than Linux the whole file is locked. `OSError` if there is a conflicting lock and
    `wait` is false, or if files cannot be locked.
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

    True: it is locked (released). False: another process or thread holds it. None: the file system has
    no lock for this descriptor.
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
        # A descriptor that cannot write cannot have an exclusive lock of a range.
        if error.errno not in (*LACKING, errno.EBADF):
            raise
    return None


# Folders whose file systems were checked, and these file systems by their device numbers.
_folders: set[str] = set()
_devices: set[int] = set()


def warn_about_lacking_locks(path: str) -> None:
    """Warn once if the file system of `path` lacks locks; `path` need not exist."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder in _folders:
        return
    with contextlib.suppress(OSError):
        device = os.stat(folder).st_dev
        if device not in _devices:
            lacks = _find_lacking_locks(folder)
            _devices.add(device)
            if lacks:
                warnings.warn(
                    f"the file system of {folder!r} lacks {' and '.join(lacks)}, so several programs "
                    "cannot safely write the same array at the same time; let one program at a time "
                    "write it (see docs/status/platforms.md)",
                    stacklevel=find_stack_level(),
                )
        _folders.add(folder)


def _find_lacking_locks(folder: str) -> list[str]:
    """Return the kinds of locks that the file system of a folder lacks."""
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
                lacks.append("byte-range locks")
        return lacks
    finally:
        os.close(fd)


def find_conflicting_lock(fd: int, kind: int, place: tuple[int, int]) -> int | None:
    """
    Return the kind of a lock that conflicts with a new one of `kind`; None if there is none or on
    error.
    """
    with contextlib.suppress(OSError, AttributeError):
        lock = _LOCK.pack(kind, os.SEEK_SET, *place, 0)
        found = int(_LOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, lock))[0])
        return None if found == fcntl.F_UNLCK else found
    return None


def lock_by_name(path: str, place: tuple[int, int]) -> int | None:
    """
    Open the file with that name, lock it exclusively, and return the descriptor; wait for others.

    None if it cannot be opened for writing; the following operation reports why.
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
        os.close(fd)  # replaced during the wait: lock the new file


class _ThreadChanges(threading.local):
    """Files whose length this thread is changing."""

    def __init__(self) -> None:
        self.changes: set[str] = set()


_changes_of_thread = _ThreadChanges()


@contextlib.contextmanager
def lock_length(path: str) -> Iterator[None]:
    """
    Keep all others from changing the length that the file `path` states.

    `UsageError`: this thread is already changing it, and was interrupted by a signal.
    """
    with forbid_nesting(os.path.realpath(path), path):
        fd = lock_by_name(path, GROWTH) if _KNOWN else _lock_folder(path)
        try:
            yield
        finally:
            if fd is not None:
                # Explicitly: a child that was forked in the meantime shares the description.
                with contextlib.suppress(OSError):
                    lock_range(fd, fcntl.F_UNLCK, GROWTH)
                os.close(fd)


def _lock_folder(path: str) -> int | None:
    """Lock the folder instead of a range: a change needs the file for other locks."""
    folder = os.path.dirname(os.path.realpath(path))
    if folder in _changes_of_thread.changes:
        return None  # this thread has locked it to replace an array, and would wait for itself
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        return fd
    return None


@contextlib.contextmanager
def forbid_nesting(
    what: str, path: str, doing: str = "its length is being changed"
) -> Iterator[None]:
    """Raise if this thread is already changing `what` (usually a length)."""
    if what in _changes_of_thread.changes:
        _core.refuse_nested(path, doing)
    _changes_of_thread.changes.add(what)
    try:
        yield
    finally:
        _changes_of_thread.changes.discard(what)


def is_growing_in_this_thread(path: str) -> bool:
    """Return whether this thread is within `lock_length` of that file."""
    return os.path.realpath(path) in _changes_of_thread.changes


def is_growing(path: str) -> bool:
    """Return whether any process or thread is changing the length of the file."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return find_conflicting_lock(fd, fcntl.F_RDLCK, GROWTH) is not None
        finally:
            os.close(fd)
    return False
