"""
Files of schedules: the indices, as runs if that is shorter, and their meaning.

Problem: a schedule is saved once and opened by other processes, and its lists may be larger than the
memory of either.
Approach: the file is NumPy's ``.npz``: a zip file of uncompressed ``.npy`` members. Members are written
and read one part at a time, so a list needs memory for a part only.

Invariants: a file is complete or does not exist (`durable.create_file`). Everything in a file is
validated before it is used: numbers of indices against the shape, runs against their number, indices
against the array.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import operator
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.keys import IndexPoints, ResultAxis
from outcore.arrays.indices.lists.kept import WORTH, Runs, find_runs
from outcore.arrays.indices.lists.parts import count_elements, replace_lists, store_list
from outcore.arrays.indices.lists.stored import StoredList
from outcore.arrays.indices.masks import INDEX, IndexWorkspace
from outcore.errors import FormatError, OutcoreError, SectionError, StorageError
from outcore.formats import durable
from outcore.formats.paths import one_name
from outcore.formats.zip_directory import read_directory

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = ["open_file", "write"]

List = NDArray[np.int64]

_VERSION = 1
# Two members for the list of each axis, and one for their meaning.
_MOST_MEMBERS = 2 * 64 + 1
# Number of indices that are checked, written or read in one step.
_STEP = 1 << 16
# Upper bound of lengths.
_MOST = 1 << 63
# Maximum bytes of a NumPy header, which NumPy parses for minutes if it is long; a list needs 118.
_LONGEST_HEADER = 256
# Errors raised by reading a damaged file.
_DAMAGED = (
    *(ValueError, LookupError, TypeError, ArithmeticError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
    # From the headers of members, which NumPy parses as text.
    *(tokenize.TokenError, SyntaxError, MemoryError),
)


def write(
    path: str | Path, points: IndexPoints, lists: tuple[List | Runs | StoredList, ...]
) -> None:
    """Create or atomically replace a file; `points` is the meaning of the lists of int64, or runs."""
    said = {
        "version": _VERSION,
        "shape": points.shape,
        "axes": points.axes,
        "mode": points.mode,
        "points": points.points,
        "rest": points.rest,
        "result": [list(axis) for axis in points.result],
    }
    meaning = np.frombuffer(json.dumps(said).encode(), np.uint8)

    def fill(descriptor: int) -> None:
        with (
            os.fdopen(os.dup(descriptor), "wb") as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive,
        ):
            for k, one in enumerate(lists):
                _write_list(archive, k, one)
            _write_member(archive, "schedule", meaning.size, iter((meaning,)), np.uint8)

    durable.create_file(one_name(path), fill, exclusive=False)


def _write_list(archive: zipfile.ZipFile, k: int, one: List | Runs | StoredList) -> None:
    if isinstance(one, tuple):
        for name, part in zip(("starts", "lengths"), one, strict=True):
            _write_member(archive, f"{name}{k}", part.size, iter((part,)))
        return

    def parts() -> Iterator[List]:
        if isinstance(one, StoredList):
            return (part for _, part in one.slabs(_STEP))
        return (one[low : low + _STEP] for low in range(0, one.size, _STEP))

    number = one.number if isinstance(one, StoredList) else one.size
    runs = sum(starts.size for starts, _ in iterate_runs(parts()))
    if WORTH * 2 * runs < number:
        _write_member(archive, f"starts{k}", runs, (run[0] for run in iterate_runs(parts())))
        _write_member(archive, f"lengths{k}", runs, (run[1] for run in iterate_runs(parts())))
    else:
        _write_member(archive, f"indices{k}", number, parts())


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    number: int,
    parts: Iterator[NDArray[Any]],
    dtype: Any = np.int64,
) -> None:
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    header = {"descr": descr, "fortran_order": False, "shape": (number,)}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in parts:
            member.write(np.ascontiguousarray(part).data)


def iterate_runs(parts: Iterator[List]) -> Iterator[tuple[List, List]]:
    """Yield the runs of a list given in parts, some at a time; a run may continue across parts."""
    first = length = 0
    for part in parts:
        starts, lengths = find_runs(part)
        if not starts.size:
            continue
        if length and int(starts[0]) == first + length:
            starts[0], lengths[0] = first, int(lengths[0]) + length
        elif length:
            starts = np.concatenate(([first], starts))
            lengths = np.concatenate(([length], lengths))
        first, length = int(starts[-1]), int(lengths[-1])
        yield starts[:-1], lengths[:-1]
    if length:
        yield np.array([first], np.int64), np.array([length], np.int64)


class ScheduleFile:
    """A file of a schedule, open for reading, for an array with the path `near`."""

    def __init__(self, archive: zipfile.ZipFile, near: str) -> None:
        self._archive, self._names = archive, set(archive.namelist())
        with self._open_member("schedule", np.uint8) as (stream, number):
            said = json.loads(stream.read(min(number, 1 << 20)))
        if said["version"] != _VERSION:
            raise ValueError(f"its version is {said['version']!r}, not {_VERSION}")
        named = (f"{word}{k}.npy" for k in range(64) for word in ("indices", "starts"))
        self._number = sum(name in self._names for name in named)
        #: Selected elements, without lists.
        self.points = _parse_points(said, near)
        lengths, points = [self._find_length(k) for k in range(self._number)], self.points
        outer = points.mode == "outer"
        if points.mode not in ("points", "outer", "flat") or (
            self._number != (1 if points.mode == "flat" else len(points.axes))
            or (math.prod(lengths) if outer else max(lengths, default=0)) != points.number
            or (not outer and len(set(lengths)) > 1)
        ):
            raise ValueError(f"lists of {lengths} indices for points of shape {points.points}")

    def in_memory(self) -> tuple[List, ...]:
        """Return all lists in memory, counted while they are read; `BudgetError` if they do not fit."""
        lengths, lists = [self._find_length(k) for k in range(self._number)], []
        with _core.Reservation("the indices of a schedule", 2 * INDEX * sum(lengths)):
            for k, length in enumerate(lengths):
                one, at = np.empty(length, np.int64), 0
                for part in self._iterate_parts(k, _STEP):
                    one[at : at + part.size] = part
                    at += part.size
                lists.append(one)
        return tuple(lists)

    def store_list(self, array: DiskArray, held: IndexWorkspace) -> StoredList:
        """Return the list as numbers of elements in a scratch file."""
        points = self.points
        if points.mode == "outer":
            return store_list(array, replace_lists(points, self.in_memory()), held)
        kept = StoredList(array.path, points.number, count_elements(points))
        each = 6 * INDEX * max(self._number, 1)
        most = max(held.take(_STEP * each, least=each) // each, 1)

        def slabs() -> Iterator[List]:
            every = [_regroup(self._iterate_parts(k, most), most) for k in range(self._number)]
            at = 0
            for lists in zip(*every, strict=True):
                some = replace(points, lists=lists, points=lists[0].shape)
                try:
                    some.check(_STEP, at)
                except SectionError:
                    self._check_sums()
                    raise
                at += lists[0].size
                yield points.flat(lists)

        kept.fill(slabs())
        return kept

    def _check_sums(self) -> None:
        """Raise if the checksums show a damaged file, whose contents may be anything."""
        damaged = self._archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} is damaged")

    def _find_length(self, k: int) -> int:
        """Return the number of indices of a list."""
        if f"indices{k}.npy" in self._names:
            with self._open_member(f"indices{k}") as (_, number):
                return number
        with self._open_member(f"lengths{k}") as (stream, number):
            total = 0
            # The indices of one run are distinct, and each element has two indices, one of them
            # negative.
            most = min(self.points.number, 2 * self.points.length(k))
            for part in _read_pieces(stream, number):
                if part.size and not 1 <= int(part.min()) <= int(part.max()) <= most:
                    raise ValueError("a run with no indices, or too many")
                total += int(part.sum())
            return total

    def _iterate_parts(self, k: int, most: int) -> Iterator[List]:
        """Yield the indices of a list, at most `most` at a time."""
        if f"indices{k}.npy" in self._names:
            with self._open_member(f"indices{k}") as (stream, number):
                for part in _read_pieces(stream, number):
                    for low in range(0, part.size, most):
                        yield part[low : low + most]
            return
        with (
            self._open_member(f"starts{k}") as (starts, number),
            self._open_member(f"lengths{k}") as (lengths, same),
        ):
            if number != same:
                raise ValueError(f"{number} runs have {same} lengths")
            for some in zip(
                _read_pieces(starts, number), _read_pieces(lengths, number), strict=True
            ):
                yield from _expand(*some, most)

    @contextlib.contextmanager
    def _open_member(self, name: str, dtype: Any = np.int64) -> Iterator[tuple[IO[bytes], int]]:
        """Open a member with one axis; yield the stream of its data, and its length."""
        with self._archive.open(f"{name}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            read: Callable[..., Any] = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, found = read(stream, max_header_size=_LONGEST_HEADER)
            if len(shape) != 1 or found != np.dtype(dtype):
                raise ValueError(f"{name} has shape {shape} and dtype {found}")
            yield stream, shape[0]


def _parse_points(said: Any, near: str) -> IndexPoints:
    """Return the selected elements of a file, without lists; raise if its values are inconsistent."""
    shape, axes, points = (
        tuple(map(operator.index, said[name])) for name in ("shape", "axes", "points")
    )
    rest = tuple(
        (operator.index(a), operator.index(b), operator.index(c)) for a, b, c in said["rest"]
    )
    result = tuple(
        ResultAxis(kind, operator.index(n), bool(down)) for kind, n, down in said["result"]
    )
    found = IndexPoints(near, shape, axes, (), said["mode"], points, rest, result)
    numbers = {
        kind: [axis.number for axis in result if axis.kind == kind]
        for kind in ("point", "array", "new")
    }
    if (
        not all(0 <= n < _MOST for n in (*shape, *points, *itertools.chain(*rest)))
        or sorted(set(axes) & set(range(len(shape)))) != list(axes)
        or len(rest) != len(shape)
        or sorted(numbers["point"]) != list(range(len(points)))
        or sorted(set(numbers["array"]) & set(found.others)) != sorted(numbers["array"])
        or sum(map(len, numbers.values())) != len(result)
    ):
        raise ValueError("its shape, axes and ranges contradict each other")
    for d in found.others:
        start, count, step = rest[d]
        inside = step >= 1 and (not count or start + (count - 1) * step < shape[d])
        if not inside or (count != 1 and d not in numbers["array"]):
            raise ValueError(f"its range of axis {d} is {rest[d]}")
    return found


def _read_pieces(stream: IO[bytes], number: int) -> Iterator[List]:
    """Yield the given number of integers, one part at a time."""
    while number:
        data = stream.read(min(number, _STEP) * INDEX)
        if len(data) != min(number, _STEP) * INDEX:
            raise ValueError(f"{number} numbers are missing")
        number -= len(data) // INDEX
        yield np.frombuffer(data, np.int64)


def _expand(starts: List, lengths: List, most: int) -> Iterator[List]:
    """Yield the indices of runs, at most `most` at a time."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    for low in range(0, int(ends[-1]) if ends.size else 0, most):
        high = min(low + most, int(ends[-1]))
        a, b = np.searchsorted(ends, low, "right"), np.searchsorted(begins, high, "left")
        inside = np.minimum(ends[a:b], high) - np.maximum(begins[a:b], low)
        yield np.arange(low, high) + np.repeat(starts[a:b] - begins[a:b], inside)


def _regroup(parts: Iterator[List], length: int) -> Iterator[List]:
    """Yield the same indices in parts of equal length, except for the last."""
    kept: list[List] = []
    size = 0
    for part in parts:
        while size + part.size >= length:
            kept.append(part[: length - size])
            yield np.concatenate(kept)
            part, kept, size = part[length - size :], [], 0
        if part.size:
            kept.append(part)
            size += part.size
    if kept:
        yield np.concatenate(kept)


@contextlib.contextmanager
def open_file(path: str | Path, near: str) -> Iterator[ScheduleFile]:
    """
    Open a file of a schedule.

    Raise `FormatError` (``bad-schedule``) if it is not a schedule or is damaged, also while it is
    read, and `StorageError` if an operating system call fails.
    """
    name = one_name(path)
    try:
        with (
            durable.os_errors("reading the schedule", name),
            open(name, "rb") as stream,
        ):
            # `zipfile` uses memory for each member, outside of the budget.
            read_directory(stream.fileno(), os.fstat(stream.fileno()).st_size, _MOST_MEMBERS)
            with zipfile.ZipFile(stream) as archive:
                yield ScheduleFile(archive, near)
    except (*_DAMAGED, OutcoreError) as error:
        # A zip file with an invalid offset of a member.
        seeks = isinstance(error, StorageError) and error.errno == errno.EINVAL
        if isinstance(error, OutcoreError) and not seeks:
            raise
        raise FormatError(
            f"{name!r} is not a valid schedule of indices: {error}; create it again with "
            "schedule().save()",
            code="bad-schedule",
            path=name,
        ) from None
