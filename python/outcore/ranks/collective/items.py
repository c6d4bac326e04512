"""
Contributions of one rank to a collective call: arrays on disk, their sections, arrays in memory.

An `Item` is one section and the memory that it is read into or written from. The planner walks all
sections in ascending order, along the axes of the array on disk. `Item.memory` is a view of the caller's
array in the same order, for any steps, integers and new axes in the key.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core, formats
from outcore.arrays.disk import DiskArray
from outcore.base.casting import broadcast_values, convert_values
from outcore.base.requests import StartedRequests
from outcore.errors import UnsupportedError, UsageError
from outcore.formats.layout import ArrayInfo, Chunked, TableSource
from outcore.formats.paths import path_names
from outcore.ranks.agreement import hash_text

__all__ = [
    "Item",
    "Ranges",
    "check_not_virtual",
    "decode_ranges",
    "exclude_overwritten",
    "get_array_and_file_ids",
    "get_array_id",
    "get_array_ids",
    "hash_elements",
    "hash_path",
    "make_key",
    "prepare_read",
    "prepare_report",
    "prepare_write",
]


#: Start, count and step of each axis.
Ranges = list[tuple[int, int, int]]


@dataclass
class Item:
    """
    One section of one array, and its memory.

    `section` is the key as words: start, count and step of each axis. `given` is the caller's array, or
    a new one, with the axes of the key. `axes` has, for each axis of `given`, the axis of the array on
    disk and whether it is reversed; None for a new axis.
    """

    array: DiskArray
    key: Any
    section: list[int]
    given: NDArray[Any]
    axes: Sequence[tuple[int, bool] | None]
    scalar: bool = False

    @cached_property
    def memory(self) -> NDArray[Any]:
        """View of `given` in ascending order along the axes of the array on disk."""
        return _view_ascending(self.given, self.axes, len(self.section) // 3)

    @property
    def result(self) -> Any:
        """Result of a read for the caller."""
        return self.given[()] if self.scalar else self.given

    @property
    def core(self) -> _core.Array:
        """Array of the core, for moving data."""
        return self.array.handle.core

    @property
    def nbytes(self) -> int:
        """Bytes of the section."""
        return self.given.nbytes

    def has_one_writer(self) -> bool:
        """Return whether the format lets only one process at a time change chunks (HDF5)."""
        return _has_one_writer(self.array)


def _has_one_writer(array: DiskArray) -> bool:
    layout = array.handle.info.layout
    return isinstance(layout, Chunked) and isinstance(layout.source, TableSource)


# Names need system calls, so each is computed once, and again when the array changes its shape. Keyed by
# an object that belongs to the array: weak references to arrays are equal if their elements are, so
# comparing them would read elements.
_names: weakref.WeakKeyDictionary[StartedRequests, tuple[ArrayInfo, tuple[int, int]]] = (
    weakref.WeakKeyDictionary()
)


def get_array_ids(items: Sequence[Item]) -> list[int]:
    """Return numbers that identify the arrays of items, the same on all ranks."""
    return [name for name, _ in get_array_and_file_ids(items)]


def get_array_and_file_ids(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Return also numbers that identify their files: odd if one process at a time may write the file."""
    # Each folder is resolved once for all arrays of a call.
    true_folder = functools.cache(os.path.realpath)
    return [_look_up_ids(item.array, true_folder) for item in items]


def get_array_id(array: DiskArray) -> int:
    """Return the number that identifies an array: the name of an item of it."""
    return _look_up_ids(array, os.path.realpath)[0]


def _look_up_ids(array: DiskArray, true_folder: Callable[[str], str]) -> tuple[int, int]:
    known = _names.get(array.handle.requests)
    if known is None or known[0] is not array.handle.info:
        known = array.handle.info, _compute_ids(array, true_folder)
        _names[array.handle.requests] = known
    return known[1]


def _resolve_path(path: str, true_folder: Callable[[str], str]) -> str:
    """Return `os.path.realpath`; the folder is resolved only once."""
    folder, slash, last = path.rpartition("/")
    if last in ("", os.curdir, os.pardir) or os.path.islink(path):
        return os.path.realpath(path)
    return f"{true_folder(folder or slash).rstrip('/')}/{last}"


def hash_path(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, resolved: bool = False
) -> int:
    """
    Return a number that identifies a path, existing or not; the same on all ranks.

    Without `resolved`, which needs a system call for each part of the path, one file may have different
    numbers.
    """
    parts = []
    for name in path_names(path):
        text, inner = name, ""
        if resolved:
            outer, within = formats.split_path(text)
            text, inner = os.path.realpath(outer), within or ""
        elif not text.startswith("/"):
            text = os.path.join(os.getcwd(), text)
        parts += [text, inner]
    return hash_text("\0".join(parts))


def _compute_ids(array: DiskArray, true_folder: Callable[[str], str]) -> tuple[int, int]:
    info = array.info
    outer, inner = formats.split_path(array.handle.location)
    file = _resolve_path(outer, true_folder)
    text = "\0".join((file, inner or "", info.format, repr(info.shape), info.dtype.str))
    text += repr((info.order, info.extra.get("offset"), array.handle.files))
    # A Zarr store is a folder: each of its arrays has separate files.
    of = f"{file}\0{inner}" if os.path.isdir(file) else file
    return hash_text(text), hash_text(of) & ~1 | _has_one_writer(array)


def hash_elements(info: ArrayInfo) -> int:
    """Return a number that identifies the elements of an array; the same on all ranks."""
    words = (info.format, info.shape, info.dtype, info.order, info.extra.get("offset"))
    return hash_text("\0".join(map(repr, words)))


def hash_numbers(numbers: Sequence[int]) -> int:
    """Return a hash of a list of numbers, the same on all ranks; a single number itself."""
    return numbers[0] if len(numbers) == 1 else hash_text(" ".join(map(str, numbers)))


def prepare_read(array: DiskArray, key: Any, out: NDArray[Any] | None = None) -> Item:
    """Prepare a section to be read into `out`, or into a new array."""
    check_not_virtual(array)
    section, axes, scalar = array.handle.core.section_of(key)
    shape = _compute_shape(section, axes)
    result = array.handle.core.empty(key) if out is None else _check_out(array, out, shape)
    return Item(array, key, section, result, axes, scalar)


def prepare_report(array: DiskArray, key: Any) -> Item:
    """Prepare a section for a report; no elements will be moved."""
    check_not_virtual(array)
    section, axes, scalar = array.handle.core.section_of(key)
    one = np.empty((), array.dtype)
    memory = np.broadcast_to(one, _compute_shape(section, axes))
    return Item(array, key, section, memory, axes, scalar)


def check_not_virtual(array: DiskArray) -> None:
    """Raise for a virtual dataset: elements must belong to the array (see `collective.virtual`)."""
    if array.handle.is_virtual:
        raise UnsupportedError(
            f"{array.path!r} is a virtual dataset, whose sections ranks read together only by "
            "read_all; make a copy with outcore.convert",
            code="hdf5-virtual",
            path=array.path,
        )


def prepare_write(array: DiskArray, key: Any, value: Any) -> Item:
    """Prepare a section to be written from `value`, broadcast and cast as NumPy does."""
    section, axes, _ = array.handle.core.section_of(key, write=True)
    shape = _compute_shape(section, axes)
    if isinstance(value, DiskArray):
        raise UsageError(
            "write_all cannot write from an array on disk; read that array first, or use write()",
            code="bad-value",
            path=array.path,
        )
    data = convert_values(value, array.handle.info.dtype)
    if data.dtype != array.handle.info.dtype:
        cast = np.empty(data.shape, array.handle.info.dtype)
        cast[...] = data
        data = cast
    given = broadcast_values(data, array.handle.info.dtype, shape, array.handle.info.path)
    return Item(array, key, section, given, axes)


def exclude_overwritten(items: list[Item], plan: _core.Collective, rank: int) -> list[Item]:
    """Return what a rank writes without elements that higher ranks write; `items` if none."""
    given = plan.given(rank)
    if given is None:
        return items
    return [_cut_item(items[number], ranges) for _, number, ranges in given]


def _cut_item(item: Item, ranges: Ranges) -> Item:
    place, section = [], []
    for (start, count, step), (low, _, stride) in zip(
        ranges, decode_ranges(item.section), strict=True
    ):
        first, every = (start - low) // stride, max(step // stride, 1)
        place.append(slice(first, first + (count - 1) * every + 1, every))
        section += [start, count, step]
    axes = [(axis, False) for axis in range(len(ranges))]
    # With ``...`` the result is a view also for arrays without axes.
    here: tuple[Any, ...] = (..., *place)
    return Item(item.array, make_key(ranges), section, item.memory[here], axes)


def make_key(ranges: Ranges) -> tuple[slice, ...]:
    """
    Return a section as a key for indexing.

    Examples
    --------
    >>> make_key([(1, 3, 2), (0, 0, 1)])
    (slice(1, 6, 2), slice(0, 0, None))
    """
    return tuple(slice(a, a + (n - 1) * s + 1, s) if n else slice(0, 0) for a, n, s in ranges)


def decode_ranges(words: list[int]) -> Ranges:
    """Return start, count and step of each axis from a section as words."""
    return list(zip(words[::3], words[1::3], words[2::3], strict=True))


def _compute_shape(section: list[int], axes: Sequence[tuple[int, bool] | None]) -> tuple[int, ...]:
    return tuple(1 if axis is None else section[3 * axis[0] + 1] for axis in axes)


def _view_ascending(
    array: NDArray[Any], axes: Sequence[tuple[int, bool] | None], ndim: int
) -> NDArray[Any]:
    """Return a view of an array with all axes of the array on disk, in ascending order."""
    # A copy of `outcore.arrays.pieces.view_upwards`, so that a call uses few modules.
    steps = tuple(0 if axis is None else slice(None, None, -1 if axis[1] else 1) for axis in axes)
    there = {axis[0] for axis in axes if axis is not None}
    whole = [slice(None) if axis in there else None for axis in range(ndim)]
    # With ``...`` the result is a view also for arrays without axes.
    first: tuple[Any, ...] = (..., *steps)
    then: tuple[Any, ...] = (..., *whole)
    seen: NDArray[Any] = array[first][then]
    return seen


def _check_out(array: DiskArray, out: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if (
        not isinstance(out, np.ndarray)
        or out.shape != shape
        or out.dtype != array.dtype
        or not out.flags.writeable
    ):
        have = (
            f"shape {out.shape} and dtype {out.dtype}" if isinstance(out, np.ndarray) else repr(out)
        )
        raise UsageError(
            f"out= for {array.path!r} has {have}; pass a writable numpy.ndarray of shape {shape} "
            f"and dtype {array.dtype}",
            code="out-mismatch",
            path=array.path,
        )
    return out
