"""
Scratch files: bytes that do not fit memory, for as long as somebody in this process needs them.

Problem. What does not fit memory goes to a disk for a while, and must not stay there, whatever ends the
process. Idea. The file has no name: the system removes it when its last descriptor is closed, so also
after a kill. Where a file system has no files without a name, it gets one, which is removed at once.

Invariants. Blocks of the file are there before anything is written, so a full disk is met at the
beginning. Reads and writes say where (`pread`, `pwrite`): threads do not disturb each other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import StorageError
from outcore.formats import durable
from outcore.formats.finding import split_path

__all__ = ["ScratchFile", "at_termination", "forget_termination", "scratch_folder"]

Action = TypeVar("Action", bound=Callable[[], object])

# What removes temporary arrays, by their paths.
_at_termination: dict[str, Callable[[], object]] = {}

# What open() says where a file system has no files without a name.
_NAMELESS_REFUSED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def scratch_folder(near: Sequence[str]) -> str:
    """
    Where temporary arrays and files go.

    ``OUTCORE_SCRATCH``, else the folder of the first input that may be written to, else that of the
    system.
    """
    said = os.environ.get("OUTCORE_SCRATCH")
    if said:
        return said
    for path in near:
        folder = os.path.dirname(os.path.realpath(split_path(path)[0]))
        if os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()


def at_termination(action: Action, path: str) -> Action:
    """
    Have the temporary array at `path` removed by `action` if SIGTERM ends the process.

    The system ends a process without a word otherwise, as batch systems do when time is up. A handler
    of the program's own is left alone: it may end the program in the usual way, which removes them, too.
    """
    _at_termination[path] = action
    _install()
    return action


def forget_termination(path: str) -> None:
    """The temporary array at `path` is gone."""
    _at_termination.pop(path, None)


def _install() -> None:
    """Handle SIGTERM if there is something to remove, and nobody else handles it."""
    here = threading.current_thread() is threading.main_thread()
    if here and _at_termination and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _uninstall() -> None:
    """Before a fork: a child has nothing to remove, and Python forgets signals that it gets at once."""
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(
    before=_uninstall, after_in_parent=_install, after_in_child=_at_termination.clear
)


def _end(number: int, frame: object) -> None:
    """Remove temporary arrays, then end as the signal asks for."""
    for action in list(_at_termination.values()):
        with contextlib.suppress(Exception):
            action()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class ScratchFile:
    """
    A file without a name, which goes away with this object, or with the process.

    Parameters
    ----------
    near
        Paths of arrays: see `scratch_folder`.
    """

    def __init__(self, near: Sequence[str]) -> None:
        self._folder = scratch_folder(near)
        with durable.os_errors("making a temporary file in", self._folder):
            self._file = _nameless(self._folder)
        self._close = weakref.finalize(self, os.close, self._file)
        self._end = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the disk that it takes."""
        return self._end

    def take(self, nbytes: int) -> int:
        """So many bytes more; where they begin."""
        first, self._end = self._end, self._end + nbytes
        if nbytes:
            with self._errors("making room in"):
                _core.allocate(self._file, first, self._end)
        return first

    def write(self, data: NDArray[Any], at: int) -> None:
        """Write an array that is packed in C order."""
        with self._errors("writing"):
            durable.write_all(self._file, _bytes(data), at)

    def read(self, out: NDArray[Any], at: int) -> None:
        """Fill an array that is packed in C order with what was written."""
        with self._errors("reading"):
            got = durable.read_into(self._file, _bytes(out), at)
        if got != out.nbytes:
            raise StorageError(
                f"a temporary file in {self._folder!r} ends after {got} of {out.nbytes} bytes at {at}: "
                "somebody has shortened it. Make the schedule again",
                code="io-failure",
                path=self._folder,
            )

    def close(self) -> None:
        """Give the disk its bytes back. Closing twice does nothing."""
        self._close()
        self._end = 0

    def _errors(self, doing: str) -> durable.os_errors:
        return durable.os_errors(f"{doing} a temporary file in", self._folder)


def _bytes(data: NDArray[Any]) -> memoryview:
    return memoryview(data.reshape(-1).view(np.uint8).data)


def _nameless(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NAMELESS_REFUSED or not os.path.isdir(folder):
            raise
    #  A name that `outcore.jobs.unfinished` finds, should the process be killed between the next
    #  two lines.
    name = os.path.join(folder, f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}.lists")
    file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return file
