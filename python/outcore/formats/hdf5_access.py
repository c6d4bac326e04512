"""
The one door to h5py: import, opening with patience, and one kind of error.

Problem. h5py is optional; another process may hold the file for a moment; and a damaged file makes the
HDF5 library raise anything from `OSError` to `SystemError`.
Idea. A context manager that opens, waits for a lock as long as it is told, translates what goes wrong,
and always closes.
Invariants. No handle outlives a ``with`` block, and there is one at a time in a process, so other
processes can always get in between. Errors of outcore pass through unchanged; everything else becomes a
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
from collections.abc import Iterator
from typing import Any

from outcore.errors import FormatError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable, hdf5_redo

#: Seconds to wait for another process to close the file.
PATIENCE_TO_READ = 2.0
PATIENCE_TO_WRITE = 10.0

# HDF5 opens a file once in a process: while one thread reads, another cannot open it for writing. So
# threads take turns (the library would make them anyway). A forked child begins with a free turn.
_turn = threading.RLock()


def _new_turn() -> None:
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_new_turn)

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def turn() -> contextlib.AbstractContextManager[object]:
    """The turn of a thread at the library."""
    return _turn


def library(path: str) -> Any:
    """The module h5py, or an error that says how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise UnsupportedError(
            f"{path!r} is an HDF5 or NetCDF4 file, and h5py is not installed: "
            "pip install outcore[hdf5]",
            code="missing-library",
            path=path,
        ) from error
    return h5py


def has_signature(path: str) -> bool:
    """Whether HDF5's signature is at byte 0, 512, 1024, 2048, ... (after a user block)."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            at = 0
            while at + len(_SIGNATURE) <= size:
                file.seek(at)
                if file.read(len(_SIGNATURE)) == _SIGNATURE:
                    return True
                at = max(512, 2 * at)
    except OSError:
        pass
    return False


@contextlib.contextmanager
def session(path: str, mode: str, **settings: Any) -> Iterator[Any]:
    """
    An open `h5py.File` for the length of the block.

    Parameters
    ----------
    path
        The file.
    mode
        ``"r"`` or ``"w"``.
    settings
        For `h5py.File`.
    """
    h5py = library(path)
    with _turn:
        if mode != "w":
            hdf5_redo.recover(path)
        handle = _open(h5py, path, mode, settings)
        try:
            with _translated(path):
                yield handle
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to tell
                handle.close()
            raise
        with _translated(path):
            handle.close()


@contextlib.contextmanager
def changing(path: str, name: str | None, *, sync: bool = True) -> Iterator[Any]:
    """
    An `h5py.File` open for changes that happen whole or not at all (`hdf5_redo`).

    Parameters
    ----------
    path
        The file.
    name
        The object that is changed. If an external link leads to it, its file is changed without that
        promise. None: there is none.
    sync
        Wait for the disk, so that the promise holds for a power cut too.
    """
    h5py = library(path)
    with _turn, contextlib.ExitStack() as stack:
        hdf5_redo.recover(path)
        if name is not None:
            with session(path, "r") as file:
                elsewhere = _leads_elsewhere(h5py, file, name)
            if elsewhere:
                yield stack.enter_context(session(path, "r+"))
                return
        fd = _locked(path)
        stack.callback(os.close, fd)
        overlay = stack.enter_context(hdf5_redo.Overlay(path, fd))
        with _translated(path):
            handle = h5py.File(overlay, "r+")
        _names[handle.filename] = path
        stack.callback(_names.pop, handle.filename, None)
        try:
            with _translated(path):
                yield handle
                handle.close()
        except BaseException as error:
            with contextlib.suppress(Exception):
                handle.close()
            overlay.discard()
            if overlay.failure is not None and isinstance(error, Exception):
                with durable.os_errors("changing", path):
                    raise overlay.failure from error
            raise
        with durable.os_errors("changing", path):
            if overlay.failure is not None:
                overlay.discard()
                raise overlay.failure
            try:
                overlay.commit(sync=sync)
            except BaseException:
                overlay.discard()
                raise


# Files that are open through an overlay: the library knows them by the name of an object.
_names: dict[str, str] = {}


def filename(file: Any) -> str:
    """Path of an open `h5py.File`."""
    return _names.get(file.filename, str(file.filename))


def _held_by_a_library(fd: int) -> bool:
    """
    Whether an HDF5 library in this process (h5py's, netCDF4's) has this file open.

    They are recognised by descriptors that a new program would inherit, which neither Python's nor ours
    are. The library is not asked: it crashes over files that it could not close.
    """
    this = os.fstat(fd)
    for name in os.listdir("/dev/fd"):
        other = int(name)
        with contextlib.suppress(OSError):
            inherited = not fcntl.fcntl(other, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
            if other > 2 and inherited and os.path.samestat(this, os.fstat(other)):
                return True
    return False


def _locked(path: str) -> int:
    """A descriptor of the file with the lock that HDF5 takes for writing."""
    with durable.os_errors("opening", path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if _held_by_a_library(fd):
            raise UsageError(
                f"{path!r} is open in this process in another mode; close that h5py or netCDF4 "
                "handle first",
                code="file-in-use",
                path=path,
            )
        if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
            return fd
        give_up = time.monotonic() + PATIENCE_TO_WRITE
        pause = 0.001
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except OSError as error:
                if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
                    return fd
                if time.monotonic() + pause > give_up:
                    raise _from_os_error(
                        path, OSError(errno.EAGAIN, "unable to lock file")
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
    except BaseException:
        os.close(fd)
        raise


def _leads_elsewhere(h5py: Any, file: Any, name: str, depth: int = 0) -> bool:
    """Whether a part of a path is an external link, directly or through soft links."""
    at = file
    for part in name.split("/"):
        if not part:
            continue
        link = at.get(part, getlink=True) if isinstance(at, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            return True
        if isinstance(link, h5py.SoftLink):
            start = "/" if link.path.startswith("/") else f"{at.name}/"
            if depth > 16 or _leads_elsewhere(h5py, file, start + link.path, depth + 1):
                return True
        at = at.get(part) if link is not None else None
        if at is None:
            return False
    return False


def _open(h5py: Any, path: str, mode: str, settings: dict[str, Any]) -> Any:
    with durable.os_errors("opening", path):
        if mode != "w":
            os.close(os.open(path, (os.O_RDONLY if mode == "r" else os.O_RDWR) | os.O_CLOEXEC))
    patience = PATIENCE_TO_READ if mode == "r" else PATIENCE_TO_WRITE
    give_up = time.monotonic() + patience
    pause = 0.001
    while True:
        try:
            with _translated(path):
                return h5py.File(path, mode, **settings)
        except StorageError as error:
            if error.code != "locked" or time.monotonic() + pause > give_up:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OutcoreError:
        raise
    except OSError as error:
        raise _from_os_error(path, error) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except Exception as error:
        if system := re.search(r"errno = ([0-9]+), error message = '([^']*)'", str(error)):
            number = int(system[1])
            raise StorageError(
                f"{path!r}: {system[2]} (HDF5: {error})",
                code=durable.code_of(number),
                path=path,
                errno=number,
            ) from error
        raise FormatError(
            f"{path!r}: the HDF5 library refused: {error}; check the file with h5dump -H or h5check",
            code="hdf5-refused",
            path=path,
        ) from error


def _from_os_error(path: str, error: OSError) -> OutcoreError:
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
        code = durable.code_of(error.errno)
        return StorageError(f"{path!r}: {text}", code=code, path=path, errno=error.errno)
    return FormatError(
        f"{path!r}: the HDF5 library cannot read it: {text}; the file is damaged or was cut off, copy "
        "it again",
        code="hdf5-refused",
        path=path,
    )
