"""
Scratch files: bytes that do not fit memory, for as long as this process needs them.

Problem: data that does not fit memory goes to a disk temporarily. It must not stay there, however the
process ends.
Approach: the file has no name: the system removes it when its last descriptor is closed, also after a
kill. On a file system without unnamed files it gets a name, which is removed immediately.
Invariants: blocks of the file are allocated before anything is written, so a full disk is noticed at
the beginning. Reads and writes specify their position (`pread`, `pwrite`), so threads do not disturb
each other.
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

__all__ = ["ScratchFile", "forget_termination", "remove_at_termination", "scratch_folder"]

Action = TypeVar("Action", bound=Callable[[], object])

# Functions that remove temporary arrays, by their paths.
_at_termination: dict[str, Callable[[], object]] = {}

# Errors of open() on a file system without unnamed files.
_NAMELESS_REFUSED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def scratch_folder(near: Sequence[str]) -> str:
    """
    Return the folder for temporary arrays and files.

    It is ``OUTCORE_SCRATCH``, or else the folder of the first input that is writable, or else that of
    the system.
    """
    said = os.environ.get("OUTCORE_SCRATCH")
    if said:
        return said
    for path in near:
        folder = os.path.dirname(os.path.realpath(split_path(path)[0]))
        if os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()


def remove_at_termination(action: Action, path: str) -> Action:
    """
    Let `action` remove the temporary array at `path` if SIGTERM ends the process.

    Otherwise the system would end the process immediately, as batch systems do when time is up. A
    handler of the program is left in place: it may end the program in the usual way, which also removes
    the arrays.
    """
    _at_termination[path] = action
    _install()
    return action


def forget_termination(path: str) -> None:
    """Forget the temporary array at `path`, which was removed."""
    _at_termination.pop(path, None)


def _install() -> None:
    """Handle SIGTERM if there is something to remove and the program has no handler."""
    here = threading.current_thread() is threading.main_thread()
    if here and _at_termination and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _uninstall() -> None:
    """
    Restore SIGTERM before a fork.

    A child has nothing to remove, and Python loses signals that arrive immediately after the fork.
    """
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(
    before=_uninstall, after_in_parent=_install, after_in_child=_at_termination.clear
)


def _end(number: int, frame: object) -> None:
    """Remove temporary arrays, then end the process by the signal."""
    for action in list(_at_termination.values()):
        with contextlib.suppress(Exception):
            action()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class ScratchFile:
    """
    A file without a name, deleted together with this object, or at the end of the process.

    `near` are paths of arrays; see `scratch_folder`.
    """

    def __init__(self, near: Sequence[str]) -> None:
        self._folder = scratch_folder(near)
        with durable.os_errors("creating a temporary file in", self._folder):
            self._file = _open_unnamed(self._folder)
        self._close = weakref.finalize(self, os.close, self._file)
        self._end = 0

    @property
    def nbytes(self) -> int:
        """Bytes of disk space in use."""
        return self._end

    def take(self, nbytes: int) -> int:
        """Extend the file by `nbytes` bytes; return their position."""
        first, self._end = self._end, self._end + nbytes
        if nbytes:
            with self._errors("allocating space in"):
                _core.allocate(self._file, first, self._end)
        return first

    def write(self, data: NDArray[Any], at: int) -> None:
        """Write an array that is contiguous in C order."""
        with self._errors("writing"):
            durable.write_all(self._file, _view_bytes(data), at)

    def read(self, out: NDArray[Any], at: int) -> None:
        """Read written bytes into an array that is contiguous in C order."""
        with self._errors("reading"):
            got = durable.read_into(self._file, _view_bytes(out), at)
        if got != out.nbytes:
            raise StorageError(
                f"a temporary file in {self._folder!r} has only {got} of {out.nbytes} bytes at {at}, "
                "because another program has shortened it; create the schedule again",
                code="io-failure",
                path=self._folder,
            )

    def close(self) -> None:
        """Release the disk space. Closing twice does nothing."""
        self._close()
        self._end = 0

    def _errors(self, doing: str) -> durable.os_errors:
        return durable.os_errors(f"{doing} a temporary file in", self._folder)


def _view_bytes(data: NDArray[Any]) -> memoryview:
    return memoryview(data.reshape(-1).view(np.uint8).data)


def _open_unnamed(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NAMELESS_REFUSED or not os.path.isdir(folder):
            raise
    # `compute.jobs.unfinished` finds this name if the process is killed between the next two lines.
    name = os.path.join(folder, f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}.lists")
    file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return file
