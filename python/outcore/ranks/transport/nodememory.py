"""
Memory that the ranks of one node map.

A segment is a file in memory with a random name. All ranks map it, and its maker then unlinks it, so
nothing remains when processes end. A maker that is killed before that leaves a file, which occupies
memory as long as the machine runs. The maker therefore holds a lock on the file, which ends with the
maker, and the first segment of another process removes files without a lock (`sweep`). Space is
allocated when the segment is made, so that a full ``/dev/shm`` is an error at that point, and not a
signal later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from outcore import _core
from outcore.errors import StorageError
from outcore.ranks.transport.protocol import Bytes

__all__ = ["MappedMemory", "NodeMemory", "sweep"]

_NAME = re.compile(r"outcore-[0-9a-f]{24}")


class NodeMemory(Protocol):
    """Interface: makes segments and maps them."""

    def make(self, nbytes: int) -> str:
        """Make a segment of zeros and return its name, of at most 64 characters."""

    def map(self, name: str, nbytes: int, offset: int, length: int) -> Bytes:
        """Map a segment, and allocate a part of it."""

    def unlink(self, name: str) -> None:
        """Remove the name; mappings remain."""


def _get_folder() -> Path:
    shm = Path("/dev/shm")
    return shm if shm.is_dir() and os.access(shm, os.W_OK) else Path(tempfile.gettempdir())


def get_node_id() -> str:
    """Return an identifier of this node: processes with the same identifier share memory."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Number of the mounted file system: containers of one machine may have separate instances of
        # /dev/shm, or share one.
        return f"{boot}:{_get_folder().stat().st_dev}"
    return f"{os.uname().nodename}:{_get_folder()}"


def sweep() -> None:
    """Remove segments whose makers were killed before unlinking them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(_get_folder()):
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):  # removed, of another user, or locked
                    _remove_left(_get_folder() / name)


def _remove_left(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(fd)


class MappedMemory:
    """Segments in ``/dev/shm``."""

    # Whether this process has already called `sweep`.
    _swept: ClassVar[bool] = False

    def __init__(self) -> None:
        # Descriptors that hold the locks of segments with a name.
        self._held: dict[str, int] = {}

    def make(self, nbytes: int) -> str:
        """Make the file; each rank allocates the part that it maps."""
        if not MappedMemory._swept:
            MappedMemory._swept = True
            sweep()
        with _convert_errors(nbytes):
            name, fd = self._make_locked_file()
            self._held[name] = fd
            try:
                os.ftruncate(fd, nbytes)
            except OSError:
                self.unlink(name)
                raise
        return name

    def _make_locked_file(self) -> tuple[str, int]:
        """Return the path and the locked descriptor of a new file."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        while True:
            name = f"outcore-{secrets.token_hex(12)}"
            fd = os.open(_get_folder() / name, flags, 0o600)
            try:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    return name, fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # removed by `sweep` before it was locked

    def map(self, name: str, nbytes: int, offset: int, length: int) -> Bytes:
        """Map the whole segment, and allocate the part that this process will use."""
        with _convert_errors(nbytes):
            fd = os.open(_get_folder() / name, os.O_RDWR | os.O_CLOEXEC)
            try:
                if length and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, offset, length)
                return np.frombuffer(_core.SharedMemory(nbytes, fd).bytes(), np.uint8)
            finally:
                os.close(fd)

    def unlink(self, name: str) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(_get_folder() / name)
        fd = self._held.pop(name, -1)
        if fd >= 0:
            os.close(fd)


@contextlib.contextmanager
def _convert_errors(nbytes: int):  # type: ignore[no-untyped-def]
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{nbytes} bytes of shared memory could not be allocated in {_get_folder()}: "
            f"{error.strerror}; enlarge it (containers often have 64 MB: --shm-size), or reduce "
            "the memory of outcore",
            code="disk-full" if error.errno == 28 else "io-failure",
            path=str(_get_folder()),
            errno=error.errno,
        ) from error
