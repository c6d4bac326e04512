"""
Memory that the ranks of one node map.

A segment is a file in memory with a random name, which all map and the maker then unlinks: nothing
stays behind when processes end, however they end. Space is allocated when the segment is made, so
that a full ``/dev/shm`` is an error then, and not a signal later.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np

from outcore import _core
from outcore.errors import StorageError
from outcore.transport.protocol import Bytes

__all__ = ["MappedMemory", "NodeMemory"]


class NodeMemory(Protocol):
    """Makes segments and maps them."""

    def make(self, nbytes: int) -> str:
        """Make a segment of zeros and tell its name; at most 64 characters."""
        ...

    def map(self, name: str, nbytes: int, offset: int, length: int) -> Bytes:
        """Map a segment, and allocate a part of it."""
        ...

    def unlink(self, name: str) -> None:
        """Take the name away; mappings stay."""
        ...


def _folder() -> Path:
    shm = Path("/dev/shm")
    return shm if shm.is_dir() and os.access(shm, os.W_OK) else Path(tempfile.gettempdir())


def identity() -> str:
    """Tell one node from another: who has this identity shares memory with us."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A number that the kernel gives to each mounted file system: containers of one machine
        # have a /dev/shm of their own, or share one.
        return f"{boot}:{_folder().stat().st_dev}"
    return f"{os.uname().nodename}:{_folder()}"


class MappedMemory:
    """Segments in ``/dev/shm``."""

    def make(self, nbytes: int) -> str:
        """Make the file; who maps a part allocates it."""
        name = f"outcore-{secrets.token_hex(12)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        with _refusals(nbytes):
            fd = os.open(_folder() / name, flags, 0o600)
            try:
                os.ftruncate(fd, nbytes)
            except OSError:
                self.unlink(name)
                raise
            finally:
                os.close(fd)
        return name

    def map(self, name: str, nbytes: int, offset: int, length: int) -> Bytes:
        """Map the whole, and allocate a part, by whom it will be used."""
        with _refusals(nbytes):
            fd = os.open(_folder() / name, os.O_RDWR | os.O_CLOEXEC)
            try:
                if length and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, offset, length)
                return np.frombuffer(_core.SharedMemory(nbytes, fd).bytes(), np.uint8)
            finally:
                os.close(fd)

    def unlink(self, name: str) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(_folder() / name)


@contextlib.contextmanager
def _refusals(nbytes: int):  # type: ignore[no-untyped-def]
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"no {nbytes} bytes of shared memory in {_folder()}: {error.strerror}. Make it larger"
            " (containers often have 64 MB: --shm-size), or give less memory to outcore",
            code="disk-full" if error.errno == 28 else "io-failure",
            path=str(_folder()),
            errno=error.errno,
        ) from error
