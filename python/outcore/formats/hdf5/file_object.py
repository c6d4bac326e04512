"""Base of the files that the HDF5 library reads, and writes, through Python."""

from __future__ import annotations

import io
import os
from typing import Any

from outcore.formats import durable


class FileObject(io.RawIOBase):
    """An open file with a position; derived classes define `readinto`."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._at = 0

    # Methods for the library
    # ruff: noqa: D102

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def _read_here(self, into: Any) -> tuple[memoryview, int]:
        """Read at the position; return the memory, with zeros past the end, and the bytes read."""
        view = memoryview(into).cast("B")
        count = durable.read_into(self._fd, view, self._at)
        view[count:] = bytes(len(view) - count)  # the library expects zeros past the end
        return view, count
