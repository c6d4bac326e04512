"""
Checksums of HDF5 structures, found and repaired.

Newer structures of HDF5 (object headers of version 2, fractal heaps, all indices of chunks but the
oldest) end with a checksum, so random damage to them is refused at the door. A program that damages
files on purpose repairs the checksum, and the library reads what follows.

Reference: HDF5 File Format Specification 3.0; Bob Jenkins' lookup3 (``hashlittle``).
"""

from __future__ import annotations

import functools
import re

# Signatures of structures with a checksum at their end, and of the superblock that has one.
_MARKS = re.compile(
    rb"\x89HDF\r\n\x1a\n[\x02\x03]|OHDR|OCHK|FRHP|FHDB|FHIB|BTHD|BTIN|BTLF"
    rb"|EAHD|EAIB|EASB|EADB|FAHD|FADB|FSHD|FSSE|SMTB|SMLI"
)
# None that a test makes is longer.
_LONGEST = 1024
_MASK = 0xFFFFFFFF


def repaired(data: bytes, good: bytes) -> bytes:
    """`data`, with the checksums of structures that it has where `good` has them made right."""
    result = bytearray(data)
    for start, end in structures(good):
        if result[start:end] != good[start:end]:
            result[end : end + 4] = lookup3(bytes(result[start:end])).to_bytes(4, "little")
    return bytes(result)


@functools.cache
def structures(good: bytes) -> list[tuple[int, int]]:
    """Where structures with a checksum begin, and where their checksums are."""
    found = []
    for mark in _MARKS.finditer(good):
        start = mark.start()
        for end in range(start + 12, min(start + _LONGEST, len(good) - 4)):
            # Cheap enough: files of tests are small, and this is done once for each.
            if lookup3(good[start:end]) == int.from_bytes(good[end : end + 4], "little"):
                found.append((start, end))
                break
    return found


def lookup3(key: bytes) -> int:
    """The checksum of HDF5's metadata.

    >>> hex(lookup3(b"Four score and seven years ago"))
    '0x17770551'
    """
    a = b = c = (0xDEADBEEF + len(key)) & _MASK
    at, left = 0, len(key)
    while left > 12:
        a = (a + int.from_bytes(key[at : at + 4], "little")) & _MASK
        b = (b + int.from_bytes(key[at + 4 : at + 8], "little")) & _MASK
        c = (c + int.from_bytes(key[at + 8 : at + 12], "little")) & _MASK
        for turn in (4, 6, 8, 16, 19, 4):
            a = ((a - c) ^ _rotated(c, turn)) & _MASK
            c = (c + b) & _MASK
            a, b, c = b, c, a
        at, left = at + 12, left - 12
    if not left:
        return c
    tail = key[at:].ljust(12, b"\0")
    a = (a + int.from_bytes(tail[:4], "little")) & _MASK
    b = (b + int.from_bytes(tail[4:8], "little")) & _MASK
    c = (c + int.from_bytes(tail[8:], "little")) & _MASK
    for turn in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, turn)) & _MASK
        a, b, c = b, c, a
    return b


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
