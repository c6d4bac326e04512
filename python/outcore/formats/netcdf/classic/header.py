"""
The header of a classic NetCDF file: dimensions, attributes, variables, and where their elements begin.

Problem. The header comes first in a file, in a binary form without checksums, and a file from elsewhere
may claim anything: billions of dimensions, negative counts, types that do not exist.
Idea. A `Header` is a value; `parse` makes it of bytes and `encode` makes bytes of it. `parse` gets more
of the file only where the bytes so far leave it no choice.
Invariants. A count is compared with the bytes that are left before anything is made of it. `encode` of
a parsed header gives the same bytes, except of sizes of variables, which readers must not rely on.

Reference: "The NetCDF Classic Format Specification", NetCDF User's Guide, appendix B; for CDF-5 "CDF-5
File Format Specification" of PnetCDF.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from outcore.errors import FormatError, UnsupportedError

__all__ = [
    "CHAR",
    "FILLS",
    "MOST_BYTES",
    "TYPES",
    "Attribute",
    "Dimension",
    "Header",
    "Variable",
    "encode",
    "parse",
    "round_up",
]

#: Number and NumPy type of each type; those from 7 on exist in CDF-5 only.
TYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(kind)
    for number, kind in enumerate(
        ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8"), start=1
    )
}
_LAST_TYPE = {1: 6, 2: 6, 5: 11}
CHAR = 2
#: Values with which the NetCDF library fills new elements (``NC_FILL_BYTE`` and so on).
FILLS: dict[int, Any] = {
    1: -127,
    CHAR: b"\0",
    3: -32767,
    4: -2147483647,
    5: 9.9692099683868690e36,
    6: 9.9692099683868690e36,
    7: 255,
    8: 65535,
    9: 4294967295,
    10: -9223372036854775806,
    11: 18446744073709551614,
}
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
#: A header with more bytes is taken for damage: it would describe a hundred thousand variables.
MOST_BYTES = 16 << 20
_LONGEST_NAME = 1 << 16
_MOST_AXES = 1024  # NC_MAX_VAR_DIMS
_UNKNOWN = {4: 2**32 - 1, 8: 2**64 - 1}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute: number of its type, and its values as they are stored."""

    name: str
    kind: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension; the record dimension has the length 0."""

    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: numbers of its dimensions, number of its type, and where its elements begin."""

    name: str
    dims: tuple[int, ...]
    attrs: tuple[Attribute, ...]
    kind: int
    begin: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, as they are stored."""
        return TYPES[self.kind]


@dataclass(frozen=True)
class Header:
    """
    A header. `version` is 1, 2 or 5; `records` is None if the writer did not count them (streaming).

    `size` is the number of bytes that it takes in the file it was read from, and `lists` the byte at
    which the list of variables begins there; both are 0 for a header that was not read.
    """

    version: int
    records: int | None
    dims: tuple[Dimension, ...] = ()
    attrs: tuple[Attribute, ...] = ()
    variables: tuple[Variable, ...] = ()
    size: int = 0
    lists: int = 0

    @property
    def record_dim(self) -> int | None:
        """Number of the record dimension; None if there is none."""
        return next((n for n, dim in enumerate(self.dims) if not dim.length), None)

    def is_record(self, variable: Variable) -> bool:
        """Return whether a variable has the record dimension."""
        return bool(variable.dims) and not self.dims[variable.dims[0]].length

    def find(self, name: str) -> Variable | None:
        """Return the variable of a name, or None."""
        return next((one for one in self.variables if one.name == name), None)

    def compute_bytes(self, variable: Variable) -> int:
        """Return the bytes of the elements of a variable; of a record variable, those of one record."""
        lengths = (self.dims[number].length or 1 for number in variable.dims)
        return math.prod(lengths) * variable.dtype.itemsize

    @functools.cached_property
    def record_bytes(self) -> int:
        """Distance in bytes from one record of a variable to its next one."""
        sizes = [self.compute_bytes(one) for one in self.variables if self.is_record(one)]
        return sizes[0] if len(sizes) == 1 else sum(map(round_up, sizes))

    def with_records(self, records: int | None) -> Header:
        """Return the header with another number of records."""
        return self if records == self.records else replace(self, records=records)


def round_up(number: int, unit: int = 4) -> int:
    """Round up to a multiple of a unit, by default that of the format."""
    return -(-number // unit) * unit


class _Reader:
    """Values of a header, one after the other; `more(n)` gives its first `n` bytes, or more."""

    def __init__(self, path: str, more: Callable[[int], bytes], size: int) -> None:
        self.path, self.size = path, size
        self._more, self.at = more, 0
        self._seen = more(4096)
        self.count_bytes = 4

    def make_error(self, what: str) -> FormatError:
        return FormatError(
            f"{self.path!r}: the NetCDF header is damaged near byte {self.at}: {what}; copy the file "
            "again",
            code="bad-header",
            path=self.path,
            offset=self.at,
        )

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._seen):
            if end > MOST_BYTES:
                raise self.make_error(f"it has more than {MOST_BYTES} bytes")
            if end <= self.size:
                self._seen = self._more(min(max(end, 2 * len(self._seen)), self.size, MOST_BYTES))
            if end > len(self._seen):
                raise FormatError(
                    f"{self.path!r}: the file ends within its NetCDF header, after {self.size} bytes; "
                    "it was cut off, copy it again",
                    code="file-too-short",
                    path=self.path,
                    offset=self.size,
                )
        found = self._seen[self.at : end]
        self.at = end
        return found

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def count(self, what: str, least: int = 1) -> int:
        """Return a non-negative number of items of at least `least` bytes each."""
        raw = self.take(self.count_bytes)
        number = int.from_bytes(raw, "big", signed=True)
        left = self.size - self.at
        if number < 0 or (least and number > left // least):
            raise self.make_error(f"{number} {what} with {left} bytes left")
        return number

    def name(self) -> str:
        length = self.count("characters of a name")
        if not 0 < length <= _LONGEST_NAME:
            raise self.make_error(f"a name of {length} bytes")
        raw = self.read_padded(length)
        if b"\0" in raw:
            raise self.make_error(f"the name {raw[:40]!r} has a zero byte")
        return raw.decode("utf-8", "surrogateescape")

    def read_padded(self, length: int) -> bytes:
        return self.take(round_up(length))[:length]

    def list_of(self, tag: int, what: str, least: int) -> int:
        """Return the number of entries of a list."""
        found = self.int32()
        number = self.count(what, least)
        if found not in (0, tag) or (not found and number):
            raise self.make_error(f"a list of {what} with the tag {found}")
        return number


def parse(path: str, more: Callable[[int], bytes], size: int) -> Header:
    """
    Read a header.

    `more(n)` returns the beginning of the file, at least `n` bytes if the file has them; `size` is the
    length of the file. Only what the header says by itself is checked; `places.check` does the rest.
    """
    read = _Reader(path, more, size)
    magic = read.take(min(4, size))
    if magic[:3] != b"CDF" or len(magic) < 4:
        raise FormatError(
            f"{path!r} is not a classic NetCDF file: it begins with {magic!r} instead of b'CDF'; check "
            "the file, or pass format=",
            code="bad-magic",
            path=path,
            offset=0,
        )
    version = magic[3]
    if version not in _LAST_TYPE:
        raise UnsupportedError(
            f"{path!r} is CDF-{version}, and outcore reads CDF-1, CDF-2 and CDF-5; use a newer outcore",
            code="netcdf-version",
            path=path,
        )
    read.count_bytes = width = 8 if version == 5 else 4
    records: int | None = int.from_bytes(read.take(width), "big")
    if records == _UNKNOWN[width]:
        records = None
    elif records is not None and records > 2**63 - 1:
        raise read.make_error(f"{records} records")
    dims = []
    for _ in range(read.list_of(_DIMENSIONS, "dimensions", 4 + 2 * width)):
        name = read.name()
        dims.append(Dimension(name, read.count("elements of a dimension", 0)))
    attrs = _attributes(read, version)
    lists = read.at
    many = range(read.list_of(_VARIABLES, "variables", 12 + 4 * width))
    variables = tuple(_variable(read, version, dims) for _ in many)
    if sum(not dim.length for dim in dims) > 1:
        raise read.make_error("there are several record dimensions")
    for what, names in (
        ("dimensions", [dim.name for dim in dims]),
        ("variables", [one.name for one in variables]),
    ):
        if len(set(names)) != len(names):
            raise read.make_error(f"two {what} have the same name")
    return Header(version, records, tuple(dims), attrs, variables, read.at, lists)


def _attributes(read: _Reader, version: int) -> tuple[Attribute, ...]:
    found = []
    for _ in range(read.list_of(_ATTRIBUTES, "attributes", 8 + 2 * read.count_bytes)):
        name, kind = read.name(), _kind(read, version)
        itemsize = TYPES[kind].itemsize
        number = read.count("values of an attribute", itemsize)
        found.append(Attribute(name, kind, read.read_padded(number * itemsize)))
    return tuple(found)


def _kind(read: _Reader, version: int) -> int:
    kind = read.int32()
    if not 1 <= kind <= _LAST_TYPE[version]:
        raise read.make_error(f"the type {kind} does not exist in CDF-{version}")
    return kind


def _variable(read: _Reader, version: int, dims: list[Dimension]) -> Variable:
    name = read.name()
    axes = read.count("axes of a variable", read.count_bytes)
    if axes > _MOST_AXES:
        raise read.make_error(f"a variable has {axes} axes")
    numbers = tuple(read.count("dimensions", 0) for _ in range(axes))
    if max(numbers, default=-1) >= len(dims):
        raise read.make_error(f"{name!r} has dimension {max(numbers)} of {len(dims)}")
    if any(not dims[number].length for number in numbers[1:]):
        raise read.make_error(f"{name!r} has the record dimension in another place than the first")
    attrs, kind = _attributes(read, version), _kind(read, version)
    read.take(read.count_bytes)  # its size, which follows from its shape
    begin = int.from_bytes(read.take(4 if version == 1 else 8), "big")
    if begin > 2**63 - 1:
        raise read.make_error(f"{name!r} begins at byte {begin}")
    return Variable(name, numbers, attrs, kind, begin)


def encode(header: Header, sizes: tuple[int, ...]) -> bytes:
    """Return the bytes of a header; `sizes` has the padded size of each variable (of a record)."""
    width = 8 if header.version == 5 else 4
    parts = [b"CDF", bytes([header.version])]

    def count(number: int) -> None:
        parts.append(number.to_bytes(width, "big"))

    def begin_list(tag: int, number: int) -> None:
        parts.append((tag if number else 0).to_bytes(4, "big"))
        count(number)

    def pad(raw: bytes) -> None:
        parts.append(raw.ljust(round_up(len(raw)), b"\0"))

    def name(text: str) -> None:
        raw = text.encode("utf-8", "surrogateescape")
        count(len(raw))
        pad(raw)

    def attributes(attrs: tuple[Attribute, ...]) -> None:
        begin_list(_ATTRIBUTES, len(attrs))
        for one in attrs:
            name(one.name)
            parts.append(one.kind.to_bytes(4, "big"))
            count(len(one.raw) // TYPES[one.kind].itemsize)
            pad(one.raw)

    count(_UNKNOWN[width] if header.records is None else header.records)
    begin_list(_DIMENSIONS, len(header.dims))
    for dim in header.dims:
        name(dim.name)
        count(dim.length)
    attributes(header.attrs)
    begin_list(_VARIABLES, len(header.variables))
    for one, size in zip(header.variables, sizes, strict=True):
        name(one.name)
        count(len(one.dims))
        for number in one.dims:
            count(number)
        attributes(one.attrs)
        parts.append(one.kind.to_bytes(4, "big"))
        count(min(size, _UNKNOWN[width]))
        parts.append(one.begin.to_bytes(4 if header.version == 1 else 8, "big"))
    return b"".join(parts)
