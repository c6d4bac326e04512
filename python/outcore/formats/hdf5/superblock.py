"""
The superblock of an HDF5 file, read without the library.

Reference: HDF5 File Format Specification 3.0, II "Disk Format: Level 0".
"""

from __future__ import annotations

import os

from outcore.formats import durable

__all__ = ["find_superblock", "read_widths"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Bytes of the longest superblock.
_LONGEST = 96


def find_superblock(fd: int) -> tuple[int, bytes] | None:
    """
    Return offset and bytes of the superblock of an open file; None if there is none.

    It is at byte 0, 512, 1024, 2048, ..., after a user block. At the end of the file the bytes are
    filled up with zeros.
    """
    at, size = 0, os.fstat(fd).st_size
    while at < size:
        block = durable.read_at(fd, _LONGEST, at)
        if block.startswith(_SIGNATURE):
            return at, block.ljust(_LONGEST, b"\0")
        at = max(512, 2 * at)
    return None


def read_widths(block: bytes) -> tuple[int, int]:
    """Return the bytes of an address and of a length in a file with this superblock."""
    at = 13 if block[8] < 2 else 9
    return block[at], block[at + 1]
