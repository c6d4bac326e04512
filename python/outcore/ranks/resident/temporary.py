"""
Temporary disk resident arrays: gone with the last process that has one, also after a crash.

Problem. An array that several processes use belongs to none of them, any of them may be killed, and its
files must neither stay for ever nor go while somebody uses them.
Idea. Beside the array lies an empty file that every process with the array has locked. Who lets go
tries to have the lock alone: if that works, nobody else has the array, and its files are removed. A lock
ends with its process, however that ends; so whoever makes the next temporary array in that folder finds
the files of killed processes by locks that can be had (`sweep`).

Invariants. The lock is held before the first file of the array is made, and its file is the last that is
removed: no file is ever without a lock file. Names are random, and never used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator

from outcore.formats import durable, locks
from outcore.formats.scratch import at_termination, forget_termination

__all__ = ["Hold", "is_lock", "left_over", "remove_left", "sweep"]

_STEM = ".outcore-resident-"
_LOCK = re.compile(re.escape(_STEM) + r"[0-9a-f]{12}\.lock")


class Hold:
    """
    One process's hold on a temporary array.

    Parameters
    ----------
    lock
        Path of the lock file.
    fd
        It, open and locked.
    """

    def __init__(self, lock: str, fd: int) -> None:
        self.lock, self._fd, self._pid = lock, fd, os.getpid()
        # Of one process several ranks may have it, each with a hold of its own.
        self._key = f"{lock}:{fd}"
        at_termination(self.release, self._key)

    @classmethod
    def new(cls, folder: str) -> Hold:
        """Hold an array that is to be made in a folder; removes there what killed processes left."""
        sweep(folder)
        while True:
            lock = os.path.join(folder, f"{_STEM}{os.urandom(6).hex()}.lock")
            with durable.os_errors("creating", lock):
                fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _share(fd)
                found = os.fstat(fd)
            except BaseException:
                os.close(fd)
                raise
            if found.st_nlink:
                return cls(lock, fd)
            os.close(fd)  # swept before it was locked

    @classmethod
    def join(cls, lock: str) -> Hold:
        """Hold an array that another process holds meanwhile."""
        with durable.os_errors("opening", lock):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            _share(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(lock, fd)

    def path(self, suffix: str) -> str:
        """The name that the array has."""
        return self.lock.removesuffix(".lock") + suffix

    def keep(self) -> None:
        """The array has got a name of its own, which stays: let go, and remove the lock file alone."""
        self._end(stays=True)

    def release(self) -> None:
        """Let go; the last one removes the array. Twice does nothing, nor does a forked child."""
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
    """Remove the temporary arrays in a folder that nobody has any more; what cannot be stays."""
    for lock in _locks(folder):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            remove_left(lock)


def remove_left(lock: str) -> None:
    """Remove a temporary array, if nobody has it any more; while it is locked nobody else does so."""
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        if _is_last(fd):
            _remove(lock)
    finally:
        os.close(fd)


def left_over(folder: str) -> Iterator[str]:
    """Lock files in a folder of temporary arrays that nobody has any more."""
    for lock in _locks(folder):
        with contextlib.suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                free = _is_last(fd)
            finally:
                os.close(fd)
            if free:
                yield lock


def _locks(folder: str) -> list[str]:
    try:
        names = [name for name in os.listdir(folder or ".") if is_lock(name)]
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names]


def is_lock(path: str) -> bool:
    """Whether this is the name of the lock file of a temporary array."""
    return _LOCK.fullmatch(os.path.basename(path)) is not None


def _share(fd: int) -> None:
    # On a file system without locks arrays of killed processes stay.
    locks.lock_file(fd, fcntl.LOCK_SH, wait=True)


def _is_last(fd: int) -> bool:
    # What fails here lets its own lock go in any case: of two that try at once one is the last.
    try:
        return locks.lock_file(fd) is True
    except OSError:
        return False


def _remove(lock: str) -> None:
    """Remove the files of an array, those of which it was to be made, and then its lock file."""
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
