"""
Members of HDF5 files that are stored in several files.

Problem: the drivers ``family``, ``split`` and ``multi`` of the HDF5 library cut a file into members. A
member alone looks like a truncated file, or not like HDF5 at all.
Approach: the first member names the driver, in its superblock or next to it. A member without a
superblock has the same name as the first except for a number (family) or a letter (multi).
Invariants: only the beginning of files is read.

Reference: HDF5 File Format Specification 3.0, II.B "Driver Information" and IV.A.2.u.
"""

from __future__ import annotations

import contextlib
import os
import re

from outcore.errors import UnsupportedError
from outcore.formats import durable
from outcore.formats.hdf5.superblock import find_superblock, read_widths

__all__ = ["find_member_error"]

_NAMES = {b"NCSAfami": "family", b"NCSAmult": "multi"}
# Members with metadata, with elements, and others of the driver multi.
_LETTERS = re.compile(r"-[msbrglo]\.(?=[^.]*$)")


def find_member_error(path: str) -> UnsupportedError | None:
    """Return the error for a member of a file that is stored in several files; None for all others."""
    firsts = _list_first_members(path)
    driver = _read_driver(path) or next((d for p, d in firsts if _read_driver(p) == d), None)
    if driver is None:
        return None
    word, how = "multi or split", "opened with driver='split'"
    if driver == "family":
        word, how = "family", "opened by 'name-%d.h5' with driver='family' (or by h5repart)"
    return UnsupportedError(
        f"{path!r} is a member of an HDF5 file that the driver {word} stores in several files, which "
        f"outcore does not read; copy it into one file with h5py, {how}",
        code="hdf5-driver",
        path=path,
    )


def _read_driver(path: str) -> str | None:
    """Return the driver named in the superblock of a file; None if there is none."""
    with (
        contextlib.suppress(OSError),
        durable.open_fd(path, os.O_RDONLY | os.O_NONBLOCK) as fd,
    ):
        if found := find_superblock(fd):
            driver = _read_driver_block(fd, *found)
            return next((word for name, word in _NAMES.items() if name in driver), None)
    return None


def _read_driver_block(fd: int, base: int, block: bytes) -> bytes:
    """Return the bytes that name the driver: a separate block, or a message after the superblock."""
    old, width = block[8] < 2, read_widths(block)[0]
    first = {0: 24 + 3 * width, 1: 28 + 3 * width}.get(block[8], 12 + width)
    address = int.from_bytes(block[first : first + width], "little")
    if width not in (2, 4, 8) or address >= 1 << 62:
        return b""
    return durable.read_at(fd, 16 if old else 512, base + address)


def _list_first_members(path: str) -> list[tuple[str, str]]:
    """Return files that may name the driver of a file without a superblock, each with that driver."""
    folder, name = os.path.split(path)
    found = []
    for number in re.finditer("[0-9]+", name):
        start, end = number.span()
        for zero in {"0" * (end - start), "0"}:
            found.append((f"{name[:start]}{zero}{name[end:]}", "family"))
    found += [(_LETTERS.sub(f"-{letter}.", name), "multi") for letter in "ms"]
    return [(os.path.join(folder, one), driver) for one, driver in found if one != name]
