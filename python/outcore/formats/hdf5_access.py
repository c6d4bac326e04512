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
import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

from outcore.errors import FormatError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable

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
        ``"r"``, ``"r+"`` or ``"w"``.
    settings
        For `h5py.File`.
    """
    h5py = library(path)
    with _turn:
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
