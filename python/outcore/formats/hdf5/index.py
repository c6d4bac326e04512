"""
The extensible array of an HDF5 dataset, checked before the HDF5 library walks through it.

Problem: a dataset that can grow along one axis stores its chunks in an extensible array, if a newer
version of the library wrote it. Whenever chunks are requested, the library (2.0) walks from the first
entry to the last that was ever set, according to the array's header. With a damaged number there, the
walk takes thousands of years, and no signal interrupts it.
Approach: entries are stored in blocks whose size grows as the square root of their number, and each
block is stored completely. So the size of a file limits the number of entries of its array, even if
nearly all of them are empty.
Invariants: every valid file is accepted. Only the object header and the array's header are read.

Reference: HDF5 File Format Specification 3.0, IV.A.1.b, IV.A.2.i and VII.D "Extensible Array".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from outcore.errors import UnsupportedError
from outcore.formats import durable
from outcore.formats.hdf5 import origin
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.library import h5py

#: ``read(offset, length)``: bytes of a file, fewer at its end.
Read = Callable[[int, int], bytes]

# Types of messages in an object header: place of the elements; continuation of the header.
_LAYOUT, _MORE = 8, 16
_COMPACT, _CHUNKED, _EXTENSIBLE = 0, 2, 4
# A flag of the first (in version 4): partial chunks at the edges are not filtered.
_PLAIN_EDGES = 1
# Maximal number of pieces of an object header, and of bytes in each.
_PIECES, _LONGEST = 64, 1 << 20


def check_index(path: str, dset: Any) -> tuple[bytes, tuple[int, int]]:
    """
    Raise `FormatError` if the index of a dataset's chunks claims an impossible number of entries.

    Raise `UnsupportedError` if chunks at the edges have no filters. Return the result of `find_layout`.
    """
    with durable.open_fd(path) as fd:
        body, widths = find_layout(dset, make_reader(fd))
        check_edges(path, dset, body)
        at = _find_extensible(body, widths[0])
        if at is not None:
            head = durable.read_at(fd, 128, origin.get_userblock(dset) + at)
            _check_header(path, dset.name, head, widths[1], os.fstat(fd).st_size)
        return body, widths


def make_reader(fd: int) -> Read:
    """Return a function that reads bytes of an open file."""
    return lambda offset, length: durable.read_at(fd, length, offset)


def find_layout(dset: Any, read: Read) -> tuple[bytes, tuple[int, int]]:
    """
    Return the message with the address of a dataset's index; empty if there is none.

    Also return the bytes of an address and of a length in this file.
    """
    widths = get_widths(dset)
    found = (body for kind, _, body in _walk_messages(dset, read) if kind == _LAYOUT)
    return next(found, b""), widths


def get_widths(dset: Any) -> tuple[int, int]:
    """Return the bytes of an address and of a length in the file of a dataset."""
    widths: tuple[int, int] = h5py.h5i.get_file_id(dset.id).get_create_plist().get_sizes()
    return widths


def find_compact_data(dset: Any, read: Read) -> tuple[int, int, int] | None:
    """
    Find the elements of a compact dataset, which are in its object header.

    Return the offset in the file of the message that has them, their own offset, and their bytes.
    """
    for kind, at, body in _walk_messages(dset, read):
        if kind != _LAYOUT or len(body) < 4:
            continue
        # Older versions have the shape first, and a wider field for the number of bytes.
        old = body[0] < 3
        size, room = (8 + 4 * body[1], 4) if old else (2, 2)
        if body[2 if old else 1] != _COMPACT:
            return None
        first = size + room
        nbytes = int.from_bytes(body[size:first], "little")
        return (at - 4, at + first, nbytes) if first + nbytes <= len(body) else None
    return None


def check_edges(path: str, dset: Any, body: bytes) -> None:
    """Raise `UnsupportedError` if chunks partly outside the dataset are stored without filters."""
    chunked = len(body) > 2 and body[0] >= 4 and body[1] == _CHUNKED
    # Only this flag shows it: in the masks of such chunks all filters were applied.
    if chunked and body[2] & _PLAIN_EDGES and dset.id.get_create_plist().get_nfilters():
        raise UnsupportedError(
            f"{path!r}, dataset {dset.name!r}: chunks at its edges are stored without its filters "
            "(H5Pset_chunk_opts), which outcore does not read; repack the file: h5repack -f GZIP=4",
            code="hdf5-filter",
            path=path,
        )


def _walk_messages(dset: Any, read: Read) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, offset in the file and bytes of the messages of the object header of a dataset."""
    width, length = get_widths(dset)
    base = origin.get_userblock(dset)
    start = base + origin.get_address(dset)
    head = read(start, 64)
    newer = head.startswith(b"OHDR\x02")
    if newer:
        flags = head[5]
        at = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        many = 1 << (flags & 3)
        pieces = [(start + at + many, int.from_bytes(head[at : at + many], "little"))]
        prefix, around = (6 if flags & 4 else 4), 4
    elif head.startswith(b"\x01\0") and len(head) > 16:
        pieces = [(start + 16, int.from_bytes(head[8:12], "little"))]
        prefix, around = 8, 0
    else:
        return
    for _ in range(_PIECES):
        if not pieces:
            return
        where, count = pieces.pop(0)
        data = read(where, min(count, _LONGEST))
        at = 0
        while at + prefix <= len(data):
            kind = data[at] if newer else int.from_bytes(data[at : at + 2], "little")
            size = at + (1 if newer else 2)
            count = int.from_bytes(data[size : size + 2], "little")
            body, there = data[at + prefix : at + prefix + count], where + at + prefix
            at += prefix + count
            if kind == _MORE and len(body) >= width + length:
                more = base + int.from_bytes(body[:width], "little")
                count = int.from_bytes(body[width : width + length], "little")
                if more < 1 << 62:  # newer ones are between a signature and a checksum
                    pieces.append((more + around, max(count - 2 * around, 0)))
            else:
                yield kind, there, body


def _find_extensible(body: bytes, width: int) -> int | None:
    """Return the address of the extensible array in a layout message; None if there is none."""
    if len(body) < 5 or body[0] < 4 or body[1] != _CHUNKED:
        return None
    at = 5 + body[3] * body[4]
    if len(body) < at + 6 + width or body[at] != _EXTENSIBLE:
        return None
    address = int.from_bytes(body[at + 6 : at + 6 + width], "little")
    return address if address < 1 << 62 else None


def _check_header(path: str, name: str, head: bytes, length: int, size: int) -> None:
    start = 12 + 4 * length
    if not head.startswith(b"EAHD") or len(head) < start + length:
        return  # the library reports this
    entry, bits, first, least = head[6], head[7], head[8], head[9]
    claimed = int.from_bytes(head[start : start + length], "little")
    # The block with entry n has `least * 2**k` entries, where n is less than `least * 2**(2 * k + 1)`.
    blocks = 1 + size // max(entry * least, 1)
    most = min(first + 2 * least * blocks**2, 1 << min(bits, 63))
    if claimed > most:
        raise make_damage_error(
            path,
            f"the index of the chunks of dataset {name!r} claims {claimed} entries, but a file of "
            f"{size} bytes has at most {most}",
            "chunk-table-damaged",
        )
