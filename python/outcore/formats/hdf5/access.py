"""
The only entry point to h5py: import, opening with a timeout, and translation of errors.

Problem: h5py is optional; another process may lock the file temporarily; and for a damaged file the
HDF5 library raises anything from `OSError` to `SystemError`.
Approach: a context manager opens the file, waits for a lock up to a time limit, translates errors, and
always closes the file.
Invariants: no handle outlives a ``with`` block, and a process has one at a time, so other processes
can always open the file in between. Errors of outcore pass through unchanged; all others become a
`FormatError` or a `StorageError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from outcore import _core
from outcore.errors import FormatError, OutcoreError, StorageError, UsageError
from outcore.formats import durable, locks
from outcore.formats.hdf5 import redo
from outcore.formats.hdf5.drivers import find_member_error
from outcore.formats.hdf5.elsewhere import find_special
from outcore.formats.hdf5.end import check_end
from outcore.formats.hdf5.library import check_library, h5py
from outcore.formats.hdf5.superblock import find_superblock
from outcore.formats.layout import TableGuard

#: Seconds to wait for another process to close the file.
READ_TIMEOUT = 2.0
WRITE_TIMEOUT = 10.0
#: The same for an access of outcore, which ends without outside help.
OUTCORE_TIMEOUT = 60.0

# HDF5 opens a file once in a process: while one thread reads, another cannot open it for writing. So
# threads take turns (the library would force them to anyway). A forked child begins with a free turn.
_turn = threading.RLock()


def _reset_after_fork() -> None:
    global _turn, _write_locks_guard
    _turn, _write_locks_guard = threading.RLock(), threading.RLock()
    _write_locks.clear()
    _changing_threads.clear()


os.register_at_fork(after_in_child=_reset_after_fork)

# Files (device, inode) that are being changed, and the thread that changes each. A signal handler in
# this thread also holds its turn and its lock, and must not interfere.
_changing_threads: dict[tuple[int, int], int] = {}


def take_turn() -> contextlib.AbstractContextManager[object]:
    """Return the lock that lets one thread at a time use the library."""
    return _turn


#: Bytes of the shortest superblock; elements are stored after it, and after the user block.
SUPERBLOCK = 32


def has_signature(path: str) -> bool:
    """Return whether HDF5's signature is at byte 0, 512, 1024, 2048, ... (after a user block)."""
    with contextlib.suppress(OSError), durable.open_fd(path) as fd:
        return find_superblock(fd) is not None
    return False


@contextlib.contextmanager
def open_session(path: str, mode: str, *, locked: bool = False, **settings: Any) -> Iterator[Any]:
    """
    Open an `h5py.File` for the length of the block, in mode ``"r"``, ``"r+"`` or ``"w"``.

    With `locked` the caller holds the lock for reading, so the session does not wait for a writer that
    waits for this lock. `settings` go to `h5py.File`.
    """
    check_library(path)
    if mode != "w":
        _wait_for_writers(path, mode, wait=mode == "r" and not locked)
    with _turn:
        if mode != "w":
            if _changing_threads and os.path.exists(path):
                _check_not_changing(path, os.stat(path))
            redo.recover(path)
        handle = _open_file(path, mode, settings)
        try:
            with translate_errors(path):
                yield handle
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is raised
                handle.close()
            raise
        with translate_errors(path):
            handle.close()


@contextlib.contextmanager
def open_for_changes(path: str, name: str | None, *, sync: bool = True) -> Iterator[Any]:
    """
    Open an `h5py.File` for changes that happen completely or not at all (`redo`).

    `name` is the object that changes, or None. If an external link leads to it, its file changes
    without this guarantee. `sync` waits for the disk, so that the guarantee covers a power cut too.
    """
    check_library(path)
    with contextlib.ExitStack() as stack:
        if name is not None:
            with open_session(path, "r") as file:
                elsewhere = is_external(file, name)
                special = find_special(file, name) if elsewhere else None
            if special is not None:
                raise FormatError(
                    f"'{path}::{name}' leads to {special!r}, which is a pipe, a device or a socket; "
                    "replace it with a regular file, or choose another name",
                    code="not-regular",
                    path=path,
                )
            if elsewhere:
                yield stack.enter_context(open_session(path, "r+"))
                return
        fd = stack.enter_context(lock_for_writing(path))
        stack.enter_context(_turn)
        stack.enter_context(_core.Call())
        change = stack.enter_context(FileChange(path, fd, sync=sync))
        with translate_errors(path):
            yield change.file


class FileChange:
    """
    A file that is open for changes, which happen completely when the context ends, or not at all.

    The caller holds the lock for writing (`lock_for_writing`), and its turn while it works.
    """

    def __init__(self, path: str, fd: int, *, sync: bool = True) -> None:
        self.path = path
        self._sync = sync
        self._stack = contextlib.ExitStack()
        with self._stack as stack, _turn:
            key = _check_not_changing(path, os.fstat(fd))
            _changing_threads[key] = threading.get_ident()
            stack.callback(_changing_threads.pop, key, None)
            own = os.dup(fd)
            stack.callback(os.close, own)
            self.overlay = stack.enter_context(redo.Overlay(path, own))
            try:
                with translate_errors(path):
                    self.file = h5py.File(self.overlay, "r+")
            except Exception as error:
                self._raise_disk_error(error)
                raise
            try:
                with translate_errors(path):
                    check_end(path, own, self.file)
            except BaseException as error:
                self._abandon(error)
                raise
            _overlay_paths[self.file.filename] = path
            stack.callback(_overlay_paths.pop, self.file.filename, None)
            self._stack = stack.pop_all()

    def __enter__(self) -> FileChange:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _turn, self._stack:
            if error is not None:
                self._abandon(error)
                return
            try:
                with translate_errors(self.path):
                    self.file.close()
            except BaseException as failure:
                self._abandon(failure)
                raise
            with durable.os_errors("changing", self.path):
                if self.overlay.failure is not None:
                    self.overlay.discard()
                    raise self.overlay.failure
                try:
                    self.overlay.commit(sync=self._sync)
                except BaseException:
                    self.overlay.discard()
                    raise

    def _abandon(self, error: BaseException) -> None:
        """Restore the state of the file before the change."""
        with contextlib.suppress(Exception):
            self.file.close()
        self.overlay.discard()
        self._raise_disk_error(error)

    def _raise_disk_error(self, error: BaseException) -> None:
        """Raise the error of the disk if that is why the library failed."""
        if self.overlay.failure is not None and isinstance(error, Exception):
            with durable.os_errors("changing", self.path):
                raise self.overlay.failure from error


def _check_not_changing(path: str, found: os.stat_result) -> tuple[int, int]:
    """Raise an error if this thread is changing the file; return device and inode."""
    key = (found.st_dev, found.st_ino)
    if _changing_threads.get(key) == threading.get_ident():
        _core.refuse_nested(path, "the file is being changed")
    return key


# Files that are open through an overlay: in the library they have the name of a Python object.
_overlay_paths: dict[str, str] = {}


def get_path(item: Any) -> str:
    """
    Return the path of an open `h5py.File`, or of the file of an object.

    This asks the library directly: creating `item.file` takes as long as opening the object.
    """
    name = os.fsdecode(h5py.h5f.get_name(item.id))
    return _overlay_paths.get(name, name)


def _is_open_in_library(fd: int) -> bool:
    """
    Return whether an HDF5 library in this process (h5py's, netCDF4's) has this file open.

    Their descriptors are inherited by a new program; those of Python and of outcore are not. The
    library itself is not asked, because it crashes over files that it could not close.
    """
    this = os.fstat(fd)
    for name in os.listdir("/dev/fd"):
        other = int(name)
        with contextlib.suppress(OSError):
            inherited = not fcntl.fcntl(other, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
            if other > 2 and inherited and os.path.samestat(this, os.fstat(other)):
                return True
    return False


class _WriteLock:
    """The lock for writing, shared by users in this process, or owned by the one thread `only`."""

    def __init__(self, fd: int, only: int | None) -> None:
        self.fd = fd
        self.users = 1
        self.only = only

    def can_share(self, alone: bool) -> bool:
        """Return whether the calling thread may use the lock, too."""
        return not alone and self.only in (None, threading.get_ident())

    def close(self) -> None:
        """Release the lock. A second call, as a signal handler may make, does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


# By device and inode. A forked child has none of its parent's locks.
_write_locks: dict[tuple[int, int], _WriteLock] = {}
_write_locks_guard = threading.RLock()
# A process that wants the lock for writing, or has it, also locks `locks.TURNSTILE`, so that readers
# of outcore wait for it: otherwise they could delay it forever, and it needs little time.


@contextlib.contextmanager
def lock_for_writing(path: str, *, alone: bool = False) -> Iterator[int]:
    """
    Return a descriptor of the file with the lock that HDF5 takes for writing.

    Threads of this process share the lock and take turns at the library, unless one sets `alone`. The
    lock is taken before a turn: a reader that holds the lock for reading may want a turn before it
    releases the lock.
    """
    key, hold = _take_lock(path, alone)
    try:
        yield hold.fd
    finally:
        with _write_locks_guard:
            hold.users -= 1
            if not hold.users:
                if _write_locks.get(key) is hold:
                    del _write_locks[key]
                hold.close()


def _is_locked_here(path: str) -> bool:
    if not _write_locks:
        return False
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return (found.st_dev, found.st_ino) in _write_locks
    return False


def _take_lock(path: str, alone: bool) -> tuple[tuple[int, int], _WriteLock]:
    started, pause = time.monotonic(), 0.001
    with durable.os_errors("opening", path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        key = (found.st_dev, found.st_ino)
        first = False  # has the lock of the turnstile
        while True:
            with _turn:  # the library has no open file of outcore
                with _write_locks_guard:
                    ours = _write_locks.get(key)
                    if ours is not None and ours.can_share(alone):
                        ours.users += 1
                        os.close(fd)
                        return key, ours
                if _is_open_in_library(fd):
                    raise UsageError(
                        f"{path!r} is open in this process in another mode; close that h5py or "
                        "netCDF4 handle first",
                        code="file-in-use",
                        path=path,
                    )
                first = first or _try_turnstile(fd)
                if first and _try_lock(fd):
                    with _write_locks_guard:
                        only = threading.get_ident() if alone else None
                        _write_locks[key] = hold = _WriteLock(fd, only)
                    redo.recover(path, fd)
                    return key, hold
            if _core.reads_here(*key):
                _core.refuse_nested(path, "its chunks are being read")
            waited = time.monotonic() + pause - started
            among_us = not first or _has_outcore_reader(fd)
            if waited > (OUTCORE_TIMEOUT if among_us else WRITE_TIMEOUT):
                raise _translate_os_error(path, OSError(errno.EAGAIN, "unable to lock file"))
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
    except BaseException:
        with _write_locks_guard:
            if _write_locks.get(key) and _write_locks[key].fd == fd:
                del _write_locks[key]
        os.close(fd)
        raise


def _try_lock(fd: int) -> bool:
    """Take the lock if nobody else has it; where there is none, HDF5 has none either."""
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in locks.LACKING
    return True


def _try_turnstile(fd: int) -> bool:
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return True
    try:
        locks.lock_range(fd, fcntl.F_WRLCK, locks.TURNSTILE)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)  # a file system without locks
    return True


def _has_outcore_reader(fd: int) -> bool:
    return locks.find_conflicting_lock(fd, fcntl.F_WRLCK, locks.CONTENT) == fcntl.F_RDLCK


def _wait_for_writers(path: str, mode: str, *, wait: bool) -> None:
    """
    Raise the system's error if a file cannot be opened; with `wait`, then wait for a writer.

    The writer is an outcore program in another process. The wait does not block the library.
    """
    with durable.os_errors("opening", path):
        fd = os.open(path, (os.O_RDONLY if mode == "r" else os.O_RDWR) | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + OUTCORE_TIMEOUT
        pause = 0.001
        while wait and time.monotonic() < give_up and not _is_locked_here(path):
            if locks.find_conflicting_lock(fd, fcntl.F_RDLCK, locks.TURNSTILE) is None:
                return
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
    finally:
        os.close(fd)


def make_guard(path: str) -> TableGuard:
    """Return the object with which readers and writers of chunks lock the file."""

    def recover() -> None:
        with _turn:
            redo.recover(path)

    def hold() -> Callable[[], None]:
        held = contextlib.ExitStack()
        held.enter_context(lock_for_writing(path))
        return held.close

    return TableGuard(redo.make_log_path(path), recover, hold)


def is_external(file: Any, name: str, depth: int = 0) -> bool:
    """Return whether a part of a path is an external link, directly or through soft links."""
    at = file
    for part in name.split("/"):
        if part in ("", "."):  # the group
            continue
        link = at.get(part, getlink=True) if isinstance(at, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            return True
        if isinstance(link, h5py.SoftLink):
            start = "/" if link.path.startswith("/") else f"{at.name}/"
            if depth > 16 or is_external(file, start + link.path, depth + 1):
                return True
        at = at.get(part) if link is not None else None
        if at is None:
            return False
    return False


def _open_file(path: str, mode: str, settings: dict[str, Any]) -> Any:
    patience = READ_TIMEOUT if mode == "r" else WRITE_TIMEOUT
    give_up = time.monotonic() + patience
    pause = 0.001
    while True:
        try:
            # While another thread holds the lock, the library must not want it too.
            held = mode == "r" and _is_locked_here(path)
            unlocked = {"locking": False} if held or _is_without_locks(path) else {}
            with translate_errors(path):
                if mode == "r" and not unlocked and not settings:
                    # Like `File`, without the property lists that it creates first.
                    return h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY))
                return h5py.File(path, mode, **unlocked, **settings)
        except StorageError as error:
            if error.errno in locks.LACKING and "lock" in str(error) and not unlocked:
                # Neither this library nor another HDF5 library has any other lock there.
                with contextlib.suppress(OSError):
                    _without_locks.add(os.stat(path).st_dev)
                    continue
            if error.code != "locked" or time.monotonic() + pause > give_up:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


# Devices whose file systems lack the locks of the library.
_without_locks: set[int] = set()


def _is_without_locks(path: str) -> bool:
    if not _without_locks:
        return False
    with contextlib.suppress(OSError):
        return os.stat(path).st_dev in _without_locks
    return False


@contextlib.contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Translate errors of the library into errors of outcore."""
    try:
        yield
    except OutcoreError:
        raise
    except OSError as error:
        raise _translate_os_error(path, error) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except Exception as error:
        if system := re.search(r"errno = ([0-9]+), error message = '([^']*)'", str(error)):
            number = int(system[1])
            raise StorageError(
                f"{path!r}: {system[2]} (HDF5: {error})",
                code=durable.find_code(number),
                path=path,
                errno=number,
            ) from error
        raise FormatError(
            f"{path!r}: the HDF5 library failed: {error}; check the file with h5dump -H or h5check",
            code="hdf5-refused",
            path=path,
        ) from error


def _translate_os_error(path: str, error: OSError) -> OutcoreError:
    text = str(error)
    if error.errno in (errno.EAGAIN, errno.EACCES) and "lock" in text:
        return StorageError(
            f"{path!r} is locked by another process that has it open; close it there, or, if that "
            "process only reads, set HDF5_USE_FILE_LOCKING=FALSE for both",
            code="locked",
            path=path,
            errno=error.errno,
        )
    if "already open" in text:
        return UsageError(
            f"{path!r} is open in this process in another mode ({text}); close that h5py or netCDF4 "
            "handle first",
            code="file-in-use",
            path=path,
        )
    if error.errno is not None and "truncated" not in text and "signature" not in text:
        code = durable.find_code(error.errno)
        return StorageError(f"{path!r}: {text}", code=code, path=path, errno=error.errno)
    if member := find_member_error(path):
        return member
    return FormatError(
        f"{path!r}: the HDF5 library cannot read the file: {text}; it is damaged or truncated, "
        "copy it again",
        code="hdf5-refused",
        path=path,
    )
