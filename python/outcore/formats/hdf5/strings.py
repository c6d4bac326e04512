"""
Text of variable length in HDF5 and NetCDF4 files.

Problem: a dataset of such text has, for each element, its length and place: a *global heap collection*
and a number in it. The library returns all elements together, of any size.
Approach: the references are elements of 16 bytes, contiguous or in chunks, which the core reads like
any others. They give the memory for the text before it is read. Then each required collection is read
once, and its objects are extracted by their numbers.
Invariants: allocations do not exceed the file, whatever size a collection claims. An object that is
missing, or shorter than its reference claims, is a `FormatError`.

Reference: HDF5 File Format Specification 3.0, III.E "Global Heap" and IV.A.2.d, class 9.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import FormatError
from outcore.formats import durable
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.index import get_widths
from outcore.formats.hdf5.library import h5py

__all__ = ["REFERENCE", "Heap", "count_bytes", "get_encoding", "get_fill"]

#: A stored element: bytes of text, address of the collection, number of the object in it.
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
#: Reference of elements that were never written, if the file has a fill value for them.
_NEVER = np.array((0, (1 << 64) - 1, (1 << 32) - 1), REFERENCE)
_MARK = b"GCOL\x01"
# Bytes of the header of a collection, and of an object in it, whose lengths have 8 bytes.
_HEADER = 16


def get_encoding(dset: Any) -> str | None:
    """Return the encoding of a dataset of text of variable length; None for all others."""
    kind = dset.id.get_type()
    if not isinstance(kind, h5py.h5t.TypeStringID) or not kind.is_variable_str():
        return None
    # With addresses of another size, references have other sizes, too.
    if tuple(get_widths(dset)) != (8, 8):
        return None
    return "utf-8" if kind.get_cset() == h5py.h5t.CSET_UTF8 else "ascii"


def get_fill(dset: Any, plist: Any) -> tuple[Any, bytes]:
    """Return the reference that stands for elements never written, and its text."""
    if plist.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return np.zeros((), REFERENCE)[()], b""
    value = dset.fillvalue
    text = value.encode() if isinstance(value, str) else bytes(value or b"")
    return _NEVER[()], text


def count_bytes(references: NDArray[Any], missing: bytes) -> int:
    """Return the bytes of the text of some references."""
    never = references["address"] == _NEVER["address"]
    lengths = references["length"][~never]
    return int(lengths.sum(dtype=np.int64)) + int(never.sum()) * len(missing)


class Heap:
    """
    The global heap of a file, for the text of one dataset.

    `base` is the byte from which addresses count, and `missing` the text of elements never written.
    """

    def __init__(self, path: str, name: str, base: int, missing: bytes) -> None:
        self._path, self._name, self._base, self._missing = path, name, base, missing

    def read_elements(self, references: NDArray[Any]) -> Iterator[bytes]:
        """Return an iterator over the bytes of references, which have one axis and dtype `REFERENCE`."""
        found: list[bytes] = [self._missing] * len(references)
        address, index = references["address"], references["index"]
        wanted = (address != _NEVER["address"]) | (index != _NEVER["index"])
        # Null references are empty.
        null = wanted & ((address == 0) | (references["length"] == 0))
        for k in null.nonzero()[0].tolist():
            found[k] = b""
        (places,) = (wanted & ~null).nonzero()
        if not len(places):
            return iter(found)
        places = places[np.argsort(address[places], kind="stable")]
        with durable.os_errors("reading", self._path), durable.open_fd(self._path) as fd:
            starts = np.flatnonzero(np.diff(address[places], prepend=np.uint64(0))).tolist()
            for low, high in zip(starts, [*starts[1:], len(places)], strict=True):
                self._take(fd, references, places[low:high], found)
        return iter(found)

    def _take(
        self, fd: int, references: NDArray[Any], places: NDArray[np.intp], found: list[bytes]
    ) -> None:
        """Extract the objects of one collection."""
        size, address = os.fstat(fd).st_size, int(references["address"][places[0]])
        start = self._base + address
        head = durable.read_at(fd, _HEADER, start) if start + _HEADER <= size else b""
        length = int.from_bytes(head[8:16], "little")
        if not head.startswith(_MARK) or length < _HEADER or start + length > size:
            raise self._make_error(address, "which does not exist, or exceeds the file")
        with _core.Reservation("global heap collection", length):
            raw = durable.read_at(fd, length, start)
            objects = self._find_objects(raw, address)
            for k in places.tolist():
                at, has = objects.get(int(references["index"][k]), (0, -1))
                nbytes = int(references["length"][k])
                if nbytes > has:
                    index = references["index"][k]
                    raise self._make_error(
                        address, f"whose object {index} has {has} bytes, not {nbytes}"
                    )
                # Like the library, end text at the first NUL.
                found[k] = raw[at : at + nbytes].partition(b"\0")[0]

    def _find_objects(self, raw: bytes, address: int) -> dict[int, tuple[int, int]]:
        """Return the position and bytes of each object of a collection."""
        objects, at = {}, _HEADER
        while at + _HEADER <= len(raw):
            index = int.from_bytes(raw[at : at + 2], "little")
            nbytes = int.from_bytes(raw[at + 8 : at + 16], "little")
            if index == 0:  # free space, up to the end
                break
            if at + _HEADER + nbytes > len(raw):
                raise self._make_error(address, f"whose object {index} exceeds it")
            objects[index] = at + _HEADER, nbytes
            at += _HEADER + -(-nbytes // 8) * 8
        return objects

    def _make_error(self, address: int, why: str) -> FormatError:
        at = self._base + address
        problem = (
            f"text of dataset {self._name!r} is in the global heap collection at byte {at}, {why}"
        )
        return make_damage_error(self._path, problem, offset=at)
