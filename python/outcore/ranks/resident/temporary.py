"""
Temporary disk resident arrays: removed with the last process that has one, also after a crash.

Problem. An array that several processes use belongs to none of them. Any of them may be killed. Its
files must neither remain forever nor be removed while a process uses them.
Approach. An empty file next to the array is locked (shared) by every process that has the array. A
process that releases the array tries to lock the file exclusively. If that succeeds, no other process
has the array, and its files are removed. A lock ends with its process, however that ends. The process
that makes the next temporary array in that folder therefore finds the files of killed processes: their
locks are free (`sweep`).

Invariants. The lock is held before the first file of the array is made, and the lock file is removed
last, so no file is ever without a lock file. Names are random, and never used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator

from outcore.formats import durable, locks
from outcore.formats.scratch import forget_termination, remove_at_termination

__all__ = ["TemporaryClaim", "find_left_over", "is_lock", "remove_left", "sweep"]

_STEM = ".outcore-resident-"
_LOCK = re.compile(re.escape(_STEM) + r"[0-9a-f]{12}\.lock")


class TemporaryClaim:
    """The claim of one process on a temporary array: its lock file, open and locked."""

    def __init__(self, lock: str, fd: int) -> None:
        self.lock, self._fd, self._pid = lock, fd, os.getpid()
        # Several ranks of one process may have the array, each with its own claim.
        self._key = f"{lock}:{fd}"
        remove_at_termination(self.release, self._key)

    @classmethod
    def make(cls, folder: str) -> TemporaryClaim:
        """Claim a new array in a folder, and remove the arrays that killed processes left there."""
        sweep(folder)
        while True:
            lock = os.path.join(folder, f"{_STEM}{os.urandom(6).hex()}.lock")
            with durable.os_errors("creating", lock):
                fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _lock_shared(fd)
                found = os.fstat(fd)
            except BaseException:
                os.close(fd)
                raise
            if found.st_nlink:
                return cls(lock, fd)
            os.close(fd)  # removed by `sweep` before it was locked

    @classmethod
    def join(cls, lock: str) -> TemporaryClaim:
        """Claim an array that another process holds during this call."""
        with durable.os_errors("opening", lock):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock_shared(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(lock, fd)

    def get_path(self, suffix: str) -> str:
        """Return the path of the array."""
        return self.lock.removesuffix(".lock") + suffix

    def keep(self) -> None:
        """Release the array, which now has a permanent name, and remove only the lock file."""
        self._end(stays=True)

    def release(self) -> None:
        """Release the array; the last process removes it. Does nothing in a forked child, or twice."""
        self._end(stays=False)

    def _end(self, *, stays: bool) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0 or os.getpid() != self._pid:
            return
        forget_termination(self._key)
        try:
            if stays or _is_last(fd):
                _remove(self.lock)
        finally:
            os.close(fd)


def sweep(folder: str) -> None:
    """Remove the temporary arrays in a folder that no process has; keep those that cannot be removed."""
    for lock in _list_locks(folder):
        with contextlib.suppress(OSError):  # already removed, or owned by another user
            remove_left(lock)


def remove_left(lock: str) -> None:
    """Remove a temporary array if no process has it, while holding its lock."""
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        if _is_last(fd):
            _remove(lock)
    finally:
        os.close(fd)


def find_left_over(folder: str) -> Iterator[str]:
    """Yield the lock files of temporary arrays in a folder that no process has."""
    for lock in _list_locks(folder):
        with contextlib.suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                free = _is_last(fd)
            finally:
                os.close(fd)
            if free:
                yield lock


def _list_locks(folder: str) -> list[str]:
    try:
        names = [name for name in os.listdir(folder or ".") if is_lock(name)]
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names]


def is_lock(path: str) -> bool:
    """Return whether a path has the name of the lock file of a temporary array."""
    return _LOCK.fullmatch(os.path.basename(path)) is not None


def _lock_shared(fd: int) -> None:
    # On a file system without locks, arrays of killed processes remain.
    locks.lock_file(fd, fcntl.LOCK_SH, wait=True)


def _is_last(fd: int) -> bool:
    # A process that fails here releases its own lock anyway: of two that try concurrently, one is the
    # last.
    try:
        return locks.lock_file(fd) is True
    except OSError:
        return False


def _remove(lock: str) -> None:
    """Remove the files of an array, including incomplete ones, and then its lock file."""
    folder, name = os.path.split(lock)
    stem = name.removesuffix(".lock")
    left = False
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return
    for found in names:
        if stem not in found or found == name:
            continue
        path = os.path.join(folder, found)
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                durable.unlink_in_background(path)
        except FileNotFoundError:
            pass
        except OSError:
            left = True
    if not left:
        with contextlib.suppress(OSError):
            os.unlink(lock)
