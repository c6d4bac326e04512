"""
The directory at the end of a zip file.

Problem: `zipfile` uses some 900 bytes for each member, and reads as much as the file requests.
Approach: the directory is read twice in pieces of at most 1 MiB: first to count its members, whose
memory is then reserved, and again to store their names and a row of numbers each.
Invariants: memory for names and rows is counted before any of it is used. The end record is the last
one whose comment ends at the end of the file. Every error in the directory is a ValueError.

Reference: APPNOTE.TXT, .ZIP File Format Specification 6.3, sections 4.3.12 to 4.3.16 and 4.5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.formats import durable

__all__ = ["BZIP2", "DEFLATED", "LZMA", "STORED", "Directory", "ZipMember", "read_directory"]

#: Methods of compression. `OTHER` also stands for encrypted members.
STORED, DEFLATED, BZIP2, LZMA, OTHER = 0, 8, 12, 14, 0xFFFF

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY_MARK = b"PK\x01\x02"
# Lengths of the end record, of the one of zip64, and of its locator.
_END_SIZE, _END64_SIZE, _LOCATOR_SIZE = 22, 56, 20
_HEADER_SIZE = 30
_LONGEST_COMMENT = (1 << 16) - 1
# Bytes at the end of the file that contain the end record.
_TAIL = _END_SIZE + _LONGEST_COMMENT
_ENTRY = struct.Struct("<4s4x2H4x3I3H8xI")
# Marks a number that is stored in an extra field.
_ELSEWHERE = 0xFFFFFFFF
_ZIP64 = 1
_ENCRYPTED, _IS_UTF8 = 1, 0x800
_PIECE = 1 << 20
# Memory for a member in addition to its name: the text object, its number, its place in a growing dict,
# and its row.
_EACH = 240
_ROW = np.dtype([("at", "<i8"), ("nbytes", "<i8"), ("size", "<i8"), ("crc", "<u4"), ("how", "<u2")])


class ZipMember(NamedTuple):
    """A member of a zip file."""

    #: Position of its header.
    at: int
    #: Stored bytes, and bytes after decoding.
    nbytes: int
    size: int
    crc: int
    #: The method of compression.
    method: int

    @property
    def stored(self) -> bool:
        """True if the stored bytes are the file itself."""
        return self.method == STORED

    @property
    def deflated(self) -> bool:
        """True if the stored bytes are deflated."""
        return self.method == DEFLATED


class Directory(Mapping[str, ZipMember]):
    """
    Members of a zip file by name, without folders; of several members of one name the last one counts.

    `numbers` has the row of each name; `rows` have position, stored bytes, bytes, CRC and method of
    each member; `held` is the counted memory of both.
    """

    def __init__(
        self, numbers: dict[str, int], rows: NDArray[np.void], held: _core.Reservation
    ) -> None:
        self._numbers, self._rows, self._held = numbers, rows, held

    def __getitem__(self, name: str) -> ZipMember:
        return ZipMember(*self._rows[self._numbers[name]].item())

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def shared_bytes(self) -> tuple[str, str] | None:
        """Return the names of two members whose headers, names or bytes overlap, or None."""
        names = list(self._numbers)
        rows = self._rows[[self._numbers[name] for name in names]]
        order = rows["at"].argsort(kind="stable")
        begins, sizes = rows["at"][order], rows["nbytes"][order]
        wrong = np.flatnonzero(begins[1:] < begins[:-1] + sizes[:-1] + _HEADER_SIZE)
        if not wrong.size:
            return None
        first, second = order[wrong[0]], order[wrong[0] + 1]
        return names[first], names[second]


class _End(NamedTuple):
    """Start and bytes of the directory, and the offset of all positions in the file."""

    begin: int
    nbytes: int
    moved: int


def read_directory(fd: int, size: int, most: int | None = None) -> Directory:
    """
    Read the directory of a zip file with at most `most` members.

    `fd` is the open file and `size` its bytes. ValueError: the directory is invalid, or has more
    members. BudgetError: it does not fit the memory budget.
    """
    with _core.Reservation("end of a zip file", 2 * _TAIL):
        end = _read_end(fd, size)
    with _core.Reservation("directory of a zip file", max(3 * min(end.nbytes, _PIECE), 1)):
        count = nbytes = 0
        for _, name, _ in _read_entries(fd, end):
            count, nbytes = count + 1, nbytes + _count_text_bytes(name)
        if most is not None and count > most:
            raise ValueError(f"it has {count} members, and may have {most}")
        held = _core.Reservation("directory of a zip file", max(_EACH * count + nbytes, 1))
        try:
            return Directory(*_read_rows(fd, size, end, count, nbytes), held)
        except BaseException:
            held.release()
            raise


def _count_text_bytes(name: bytes) -> int:
    """Return the most memory for a text in addition to an empty one: up to 4 bytes per character."""
    return len(name) if name.isascii() else 4 * len(name)


def _read_rows(
    fd: int, size: int, end: _End, count: int, room: int
) -> tuple[dict[str, int], NDArray[np.void]]:
    rows, numbers = np.zeros(count, _ROW), dict[str, int]()
    for number, (fields, raw, extra) in enumerate(_read_entries(fd, end)):
        flags, method, crc, nbytes, full, at = fields
        room -= _count_text_bytes(raw)
        if number >= count or room < 0:
            raise ValueError("the directory was changed while it was read")
        name = raw.decode("utf-8" if flags & _IS_UTF8 else "cp437").partition("\0")[0]
        full, nbytes, at = _apply_zip64([full, nbytes, at], extra)
        at += end.moved
        if not 0 <= at <= size or nbytes > size or full >= 1 << 63:
            raise ValueError(f"member {name!r} extends past the end of the file")
        rows[number] = at, nbytes, full, crc, OTHER if flags & _ENCRYPTED else method
        if not name.endswith("/"):
            numbers[name] = number
    return numbers, rows


def _read_entries(fd: int, end: _End) -> Iterator[tuple[tuple[int, ...], bytes, bytes]]:
    """Yield numbers, name and extra fields of each member, in the order of the directory."""
    at, left, piece, place = end.begin, end.nbytes, b"", 0
    while left:
        if len(piece) - place < min(left, 1 << 18):  # more than an entry can take
            piece = durable.read_at(fd, min(left, _PIECE), at)
            place = 0
        if len(piece) - place < _ENTRY.size:
            raise ValueError("the directory is cut off")
        mark, flags, method, crc, nbytes, size, name, extra, comment, where = _ENTRY.unpack_from(
            piece, place
        )
        if mark != _ENTRY_MARK:
            raise ValueError(f"the directory has no entry at byte {at}")
        begin = place + _ENTRY.size
        whole = _ENTRY.size + name + extra + comment
        if whole > left or len(piece) - place < whole:
            raise ValueError("the directory is cut off")
        yield (
            (flags, method, crc, nbytes, size, where),
            piece[begin : begin + name],
            piece[begin + name : begin + name + extra],
        )
        at, left, place = at + whole, left - whole, place + whole


def _apply_zip64(numbers: list[int], extra: bytes) -> list[int]:
    """Return the numbers of an entry; an extra field has those that exceed 32 bits, in this order."""
    while len(extra) >= 4:
        kind, nbytes = struct.unpack_from("<2H", extra)
        if nbytes + 4 > len(extra):
            raise ValueError("an extra field is cut off")
        field, extra = extra[4 : 4 + nbytes], extra[4 + nbytes :]
        if kind != _ZIP64:
            continue
        for place, number in enumerate(numbers):
            if number == _ELSEWHERE:
                if len(field) < 8:
                    raise ValueError("an extra field of zip64 is cut off")
                numbers[place], field = int.from_bytes(field[:8], "little"), field[8:]
    return numbers


def _read_end(fd: int, size: int) -> _End:
    """Return the contents of the end record, or of that of zip64."""
    low = max(size - _TAIL, 0)
    tail = durable.read_at(fd, size - low, low)
    at = _find_end_record(tail)
    if at is None:
        raise ValueError("there is no end record of a zip file")
    nbytes, begin = struct.unpack_from("<2I", tail, at + 12)
    at += low
    raw = durable.read_at(fd, _END64_SIZE + _LOCATOR_SIZE, max(at - _END64_SIZE - _LOCATOR_SIZE, 0))
    if raw.startswith(_END64) and raw[_END64_SIZE:].startswith(_LOCATOR):
        if len(raw) < _END64_SIZE + _LOCATOR_SIZE or raw[-4:] not in (b"\0\0\0\0", b"\1\0\0\0"):
            raise ValueError("the zip file is one of several parts")
        nbytes, begin = struct.unpack_from("<2Q", raw, 40)
        at -= _END64_SIZE + _LOCATOR_SIZE
    # Data in front of a zip file shifts all of it (a self-extracting program).
    moved = at - nbytes - begin
    if nbytes > at or moved < 0:
        raise ValueError("the end record points outside the file")
    return _End(begin + moved, nbytes, moved)


def _find_end_record(tail: bytes) -> int | None:
    """Return the position of the end record in the last bytes of a file."""
    other, at = None, len(tail)
    while (at := tail.rfind(_END, 0, at + len(_END) - 1)) >= 0:
        comment = tail[at + _END_SIZE - 2 : at + _END_SIZE]
        over = len(tail) - at - _END_SIZE - int.from_bytes(comment, "little")
        if len(comment) == 2 and over == 0:
            return at
        if len(comment) == 2 and over > 0 and other is None:
            other = at  # something follows the zip file
    return other
