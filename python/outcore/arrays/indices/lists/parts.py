"""
Accesses by index lists that do not fit memory: one range of elements after another.

Problem: a schedule of a list larger than memory cannot store addresses, and the values or the result
may not fit memory either: they may be arrays on disk.
Approach: `outcore.arrays.indices.lists.stored` collects the indices of a range of elements, with their
positions. A range is then one access of the core to a part of the file; values are taken from, and
stored at, the positions (`PointRows`), in memory or on disk.

Invariants: each `gather` or `scatter` reads and writes each element once, and so each chunk that no
range had to cut. If a range has more indices than fit, its elements stay in memory until all of its
indices are processed (`LoadedRange`). Values are combined in the order of the list. All memory in use is
counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.lists.stored import (
    DIVIDED,
    PAIR,
    Division,
    ListLimits,
    Range,
    StoredList,
    cut_ranges,
    find_cuts,
    find_unit,
    iterate_slabs,
)
from outcore.arrays.indices.masks import INDEX, IndexWorkspace
from outcore.errors import UsageError

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = [
    "CombinedPoints",
    "DividedList",
    "IndexedArray",
    "ListMemory",
    "LoadedRange",
    "PointRows",
    "check_disk_out",
    "count_elements",
    "get_values",
    "open_rows",
    "replace_lists",
    "stage_rows",
    "store_list",
]

# Parts of the available memory (1/n) for indices and values in transit, and for elements of a range
# that stay; the rest is for the accesses of the core.
_STREAM, _STAY = 2, 8
# The part of the memory for counts (1/_COUNTS), and bytes of a bin: a count, a sum and a border.
_COUNTS, _BIN = 16, 4 * INDEX
# Bytes of an index in transit: index and position, twice; those of the owner; positions while
# combining.
_SENT, _OWNED, _ORDERED = 3 * PAIR, 3 * INDEX, 12 * INDEX
# Values and results on disk are sorted first if they are read or written in more parts than this.
_FEW = 4
# Bytes of an element that stays: a number, a mark, and a copy while it is written.
_MARKED = 4 * INDEX


@dataclass(frozen=True)
class ListMemory:
    """Numbers of indices and elements that fit `nbytes` of memory."""

    nbytes: int
    #: Bytes of the elements selected by an index (a row).
    row: int

    @property
    def points(self) -> int:
        """Number of indices of a step, with their values, those of other ranks, and sorting memory."""
        each = _SENT + _OWNED + _ORDERED + 6 * self.row
        return max(self.nbytes // _STREAM // each, 1)

    @property
    def widest(self) -> int:
        """Number of elements that can stay in memory."""
        return max(self.nbytes // _STAY // (_MARKED + 2 * self.row), 1)

    @property
    def bins(self) -> int:
        """Number of bins that can be counted."""
        return max(self.nbytes // _COUNTS // _BIN, 64)

    @property
    def slab(self) -> int:
        """Bytes for a part of the list that is counted or divided."""
        return self.nbytes // _STREAM

    def compute_bytes(self, points: int, widest: int) -> int:
        """Return the bytes of steps and ranges of these sizes, without the core and combining."""
        return points * (_SENT + _OWNED + 4 * self.row) + widest * (_MARKED + 2 * self.row)


# Values and results


def check_disk_out(array: DiskArray, out: DiskArray, shape: tuple[int, ...]) -> None:
    """Raise if elements cannot be written to an array on disk."""
    out.handle.check_writable("write to")
    if out.shape != shape or out.dtype != array.dtype:
        raise UsageError(
            f"out={out.path!r} has shape {out.shape} and dtype {out.dtype}, but the "
            f"elements of {array.path!r} have shape {shape} and dtype {array.dtype}; make them equal",
            code="out-mismatch",
            path=out.path,
        )


class PointRows:
    """
    The rows of a result, or of values: one per point, with the elements that it selects.

    Rows of `take` and `put` have the shape (number, other axes of the array in core order).
    """

    dtype: np.dtype[Any]
    #: Core array of the array on disk with the rows.
    core: _core.Array | None = None

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of points at these positions in the list, packed."""
        raise NotImplementedError

    def put(self, positions: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Set the rows of points at these positions, which are all different."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the result after the last `put`."""


class _MemoryRows(PointRows):
    """Rows in memory, in core order; `take` returns them with `dtype`."""

    def __init__(self, points: IndexPoints, core: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self.dtype, self._core, self._shape = dtype, core, points.points
        self._one_axis = len(points.points) == 1

    def _make_key(self, positions: NDArray[np.int64]) -> Any:
        return positions if self._one_axis else np.unravel_index(positions, self._shape)

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return _pack(self._core[self._make_key(positions)], self.dtype)

    def put(self, positions: NDArray[np.int64], rows: NDArray[Any]) -> None:
        self._core[self._make_key(positions)] = rows


class _DiskRows(PointRows):
    """Rows of an array on disk that has the shape of the result; `take` returns them with `dtype`."""

    def __init__(self, points: IndexPoints, array: DiskArray, dtype: np.dtype[Any]) -> None:
        self.dtype, self._array, self.core = dtype, array, array.handle.core
        self._axes = tuple(k for k, axis in enumerate(points.result) if axis.kind == "point")
        self._rest = [word for n in array.shape for word in (0, n, 1)]
        others = [axis for axis in points.result if axis.kind != "point"]
        whole, kept = slice(None), {axis.number for axis in others if axis.kind == "array"}
        # From rows to rows of the result: integers have dropped axes, negative steps have reversed
        # axes, and None has added some.
        self._drop = (whole, *(whole if d in kept else 0 for d in points.others))
        turned = {True: slice(None, None, -1), False: whole}
        self._turn = (whole, *(None if a.kind == "new" else turned[a.reversed] for a in others))
        # The inverse.
        self._back = (whole, *(0 if a.kind == "new" else turned[a.reversed] for a in others))
        self._add = (whole, *(whole if d in kept else None for d in points.others))
        self._lengths = tuple(n for k, n in enumerate(array.shape) if k not in self._axes)

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        core = self._array.handle.core
        rows = np.empty((positions.size, *self._lengths), self._array.dtype)
        core.read_points(self._axes, (positions,), "flat", self._rest, rows)
        return _pack(rows[self._back][self._add], self.dtype)

    def put(self, positions: NDArray[np.int64], rows: NDArray[Any]) -> None:
        core = self._array.handle.core
        core.write_points(
            self._axes, (positions,), "flat", self._rest, rows[self._drop][self._turn]
        )


def _pack(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return rows of a dtype that are contiguous in memory: a copy if they are not."""
    if rows.dtype == dtype and rows.flags.c_contiguous:
        return rows
    cast = np.empty(rows.shape, dtype)
    cast[...] = rows
    return cast


class _StagedRows(PointRows):
    """
    Rows of an array on disk that arrive in another order, sorted in a scratch file.

    Each `put` would write single rows all over the result. Instead, rows are appended to their
    stretch of the result (at most `most` rows), in order of arrival; at the end each stretch is
    written in one operation. `kept` has as many indices as rows will be put.
    """

    def __init__(self, rows: PointRows, place: IndexedArray, kept: StoredList, most: int) -> None:
        self._rows, self._place, self._number = rows, place, kept.number
        self._edges = np.append(np.arange(0, kept.number, most), kept.number)
        self._filled = self._edges[:-1].copy()
        self._file = kept.beside()
        self._positions = self._file.take(kept.number * INDEX)
        self._data = self._file.take(kept.number * place.row)

    def put(self, positions: NDArray[np.int64], rows: NDArray[Any]) -> None:
        if positions.size > 1 and not bool((positions[1:] > positions[:-1]).all()):
            order = np.argsort(positions)
            positions, rows = positions[order], np.ascontiguousarray(rows[order])
        cuts = np.searchsorted(positions, self._edges)
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            begin, end = int(cuts[number]), int(cuts[number + 1])
            at = int(self._filled[number])
            self._file.write(positions[begin:end], self._positions + at * INDEX)
            self._file.write(rows[begin:end], self._data + at * self._place.row)
            self._filled[number] += end - begin

    def finish(self) -> None:
        assert (self._filled == self._edges[1:]).all(), "each row of the result was put once"
        for low, high in itertools.pairwise(self._edges.tolist()):
            positions, rows = np.empty(high - low, np.int64), self._place.new(high - low)
            self._file.read(positions, self._positions + low * INDEX)
            self._file.read(rows, self._data + low * self._place.row)
            ordered = self._place.new(high - low)
            ordered[positions - low] = rows
            self._rows.put(np.arange(low, high), ordered)
        self._file.close()


def stage_rows(
    rows: PointRows, place: IndexedArray, kept: StoredList, most: int, accesses: int
) -> PointRows:
    """
    Return the destination of rows: the result itself, or a sorted copy in a scratch file.

    The latter is for results on disk with more than a few `accesses`; `most` rows fit memory.
    """
    if rows.core is None or accesses <= _FEW or not place.row:
        return rows
    return _StagedRows(rows, place, kept, most)


def get_values(
    values: PointRows, place: IndexedArray, division: Division, most: int, accesses: int
) -> Callable[[int, int, int, NDArray[np.int64]], NDArray[Any]]:
    """
    Return a function that returns the values of some indices of a range.

    Its arguments are the number of the range, the start and end of the indices, and their
    positions. If values on disk are taken in many `accesses`, they are sorted first, `most` rows in
    memory.
    """
    if values.core is None or accesses <= _FEW or not place.row:
        return lambda number, begin, end, positions: values.take(positions)
    read = division.spread(place.row, most, lambda begin, end: values.take(np.arange(begin, end)))

    def take(number: int, begin: int, end: int, _: NDArray[np.int64]) -> NDArray[Any]:
        rows = place.new(end - begin)
        read(number, begin, end, rows)
        return rows

    return take


def open_rows(
    points: IndexPoints, data: NDArray[Any] | DiskArray, dtype: np.dtype[Any]
) -> PointRows:
    """Return the rows of a result, or of values (cast to `dtype`), in memory or on disk."""
    if isinstance(data, np.ndarray):
        return _MemoryRows(points, points.to_core(data), dtype)
    return _DiskRows(points, data, dtype)


# Elements


@dataclass(frozen=True)
class IndexedArray:
    """The elements of an array for numbers along the indexed axes of `points`."""

    array: DiskArray
    points: IndexPoints

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return self.points.core_shape[len(self.points.points) :]

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape) * self.array.dtype.itemsize

    @property
    def rest(self) -> list[int]:
        """Ranges of the other axes, as the core takes them."""
        return [word for words in self.points.rest for word in words]

    def new(self, number: int) -> NDArray[Any]:
        """Return memory for a number of rows."""
        return np.empty((number, *self.shape), self.array.dtype)

    def read(self, flat: NDArray[np.int64]) -> NDArray[Any]:
        """Read the rows with these numbers."""
        rows = self.new(flat.size)
        if rows.size:
            self.array.handle.core.read_points(self.points.axes, (flat,), "flat", self.rest, rows)
        return rows

    def write(self, flat: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Write rows; if a number occurs several times, its last row wins."""
        if rows.size:
            self.array.handle.core.write_points(self.points.axes, (flat,), "flat", self.rest, rows)

    def fill(self, low: int, high: int, told: NDArray[np.int64], value: Any, stretch: int) -> None:
        """
        Write a scalar to the rows from `low` to `high` whose numbers are not in `told`.

        `told` is ascending; numbers may be outside, and may occur several times. `stretch` rows are
        checked and written at a time.
        """
        one = np.empty((1,) * (1 + len(self.shape)), self.array.dtype)
        one[...] = value
        for first in range(low, high, stretch):
            end = min(first + stretch, high)
            free = np.ones(end - first, np.bool)
            inside = slice(*np.searchsorted(told, (first, end)).tolist())
            free[told[inside] - first] = False
            left = np.flatnonzero(free) + first
            self.write(left, np.broadcast_to(one, (left.size, *self.shape)))

    def fill_beside(self, low: int, high: int, value: Any, stretch: int) -> None:
        """Write a value to the elements of rows `low` to `high` outside the ranges of the other axes."""
        nothing = np.empty(0, np.int64)
        for points in _iterate_outside(self.points):
            IndexedArray(self.array, points).fill(low, high, nothing, value, stretch)

    def apply(self, flat: NDArray[np.int64], rows: NDArray[Any], function: np.ufunc | None) -> None:
        """Write rows, or combine the elements with them in order."""
        if function is None:
            self.write(flat, rows)
        elif rows.size:
            core, axes = self.array.handle.core, self.points.axes
            CombinedPoints(core, axes, flat, self.rest).apply(core, rows, function)


def _iterate_outside(points: IndexPoints) -> Iterator[IndexPoints]:
    """Yield boxes of the other axes that contain each element outside the ranges of `points` once."""
    rest = list(points.rest)
    for d in reversed(points.others):
        chosen = rest[d]
        for outside in _find_outside(chosen, points.shape[d]):
            rest[d] = outside
            yield replace(points, rest=(*points.rest[:d], *rest[d:]))
        rest[d] = (0, points.shape[d], 1)


def _find_outside(chosen: tuple[int, int, int], length: int) -> list[tuple[int, int, int]]:
    """
    Return the ranges of the indices of an axis that are not in a range.

    Examples
    --------
    >>> _find_outside((2, 3, 4), 12)  # 2, 6, 10
    [(0, 2, 1), (11, 1, 1), (3, 3, 1), (7, 3, 1)]
    >>> _find_outside((1, 4, 2), 8)  # 1, 3, 5, 7
    [(0, 1, 1), (2, 3, 2)]
    """
    first, count, step = chosen
    if not count:
        return [(0, length, 1)]
    end, gaps = first + (count - 1) * step + 1, count - 1
    found = [(0, first, 1), (end, length - end, 1)]
    if gaps < step:
        found += [(first + gap * step + 1, step - 1, 1) for gap in range(gaps)]
    else:
        found += [(first + index, gaps, step) for index in range(1, step)]
    return [one for one in found if one[1]]


class CombinedPoints:
    """
    Points with each element listed once, and the position of each value in that list.

    `flat` has the numbers of the elements along `axes`, in C order, in the order of the values.
    `core` is the array of the layout for which the points are created.
    """

    def __init__(
        self, core: _core.Array, axes: tuple[int, ...], flat: NDArray[np.int64], rest: list[int]
    ) -> None:
        self._held = _core.Reservation("combining elements", 4 * INDEX * flat.size)
        once, self._places = np.unique(flat, return_inverse=True)
        self._schedule = _core.IndexSchedule(core, axes, (once,), "flat", rest)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that the object uses."""
        return int(self._schedule.nbytes + self._places.nbytes)

    def serves(self, core: _core.Array) -> bool:
        """Return whether it can be used for this array."""
        return self._schedule.serves(core)

    def apply(self, core: _core.Array, values: NDArray[Any], function: np.ufunc) -> None:
        """Combine the elements with values, one row per point, and write them."""
        with self.room(values.dtype):
            elements = np.empty(self._schedule.shape, values.dtype)
            self._schedule.read(core, elements)
            function.at(elements, self._places, values)
            self._schedule.write(core, elements)

    def room(self, dtype: np.dtype[Any]) -> _core.Reservation:
        """Reserve memory for the elements of an array of this type."""
        nbytes = math.prod(self._schedule.shape) * dtype.itemsize
        return _core.Reservation("elements that are combined", nbytes)


class LoadedRange:
    """
    All elements of a range, in memory while their values arrive in steps.

    With `reads` they are read: for a `gather`, or to be combined with values.
    """

    def __init__(self, place: IndexedArray, low: int, high: int, *, reads: bool) -> None:
        self._place, self._low = place, low
        self._numbers = np.arange(low, high)
        self._elements = place.read(self._numbers) if reads else place.new(high - low)
        self._written = np.zeros(high - low, np.bool)

    def rows(self, flat: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows with these numbers."""
        found: NDArray[Any] = self._elements[flat - self._low]
        return found

    def apply(self, flat: NDArray[np.int64], rows: NDArray[Any], function: np.ufunc | None) -> None:
        """Set rows, or combine them with these values, in order."""
        places = flat - self._low
        if function is None:
            self._elements[places] = rows
        else:
            function.at(self._elements, places, rows)
        self._written[places] = True

    def fill(self, value: NDArray[Any]) -> None:
        """Set the rows that were not set."""
        self._elements[~self._written] = value
        self._written[:] = True

    def write(self) -> None:
        """Write the rows that were set, and no others."""
        if self._written.all():
            self._place.write(self._numbers, self._elements)
        else:
            self._place.write(self._numbers[self._written], self._elements[self._written])


# Lists of one process


def count_elements(points: IndexPoints) -> int:
    """Return the number of elements from which indices of these axes may select."""
    return math.prod(points.shape[d] for d in points.axes)


def replace_lists(points: IndexPoints, lists: tuple[NDArray[np.int64], ...]) -> IndexPoints:
    """Return the points with these lists (with one axis), in the same order; their axes may differ."""
    if points.mode != "outer":
        shape = points.points
        return replace(points, lists=tuple(one.reshape(shape) for one in lists), mask=None)
    number = len(lists)
    along = [tuple(-1 if i == k else 1 for i in range(number)) for k in range(number)]
    shaped = tuple(one.reshape(axes) for one, axes in zip(lists, along, strict=True))
    return replace(points, lists=shaped, points=tuple(one.size for one in lists))


def store_list(array: DiskArray, points: IndexPoints, held: IndexWorkspace) -> StoredList:
    """
    Return the list of a key in a scratch file.

    Raise `SectionError` if an index is out of range, `UsageError` (``bad-index``) if the list has
    changed in the meantime.
    """
    kept = StoredList(array.path, points.number, count_elements(points))
    each = 4 * INDEX * max(len(points.lists), 1)
    room = held.take(points.per_access + points.number * each, points.per_access + each)
    try:
        kept.fill(iterate_slabs(points, max((room - points.per_access) // each, 1)))
    except ValueError as error:
        raise UsageError(
            f"cannot prepare the indices for {array.path!r}: {error}; do not change them until the "
            "schedule has been created",
            code="bad-index",
            path=array.path,
        ) from None
    return kept


@dataclass(frozen=True)
class _ListPlan:
    """A division of a list for a row size, an amount of memory, and a chunk size."""

    unit: int
    limits: ListLimits
    ranges: list[Range]
    division: Division

    @property
    def most(self) -> int:
        """Number of indices of the largest step."""
        return max(int(np.diff(one.steps[:, 0]).max()) for one in self.ranges)

    @property
    def chosen(self) -> Iterator[tuple[int, Range]]:
        """Yield the ranges that have indices, with their numbers."""
        return ((n, one) for n, one in enumerate(self.ranges) if int(one.counts[0]))


class DividedList:
    """
    An index list that does not fit memory, prepared for reads and writes by one process.

    The lists of `points` are not used.
    """

    def __init__(self, points: IndexPoints, kept: StoredList) -> None:
        self.points, self.kept = points, kept
        self._plans: list[_ListPlan] = []

    @property
    def nbytes(self) -> int:
        """Bytes of disk space that the parts use."""
        return self.kept.nbytes + sum(plan.division.nbytes for plan in self._plans)

    def gather(self, array: DiskArray, out: PointRows) -> None:
        """Read the elements of all ranges, and store them at their positions."""
        place = IndexedArray(array, self.points)
        with IndexWorkspace(array.handle.core, writes=False, into=out.core) as held:
            plan = self._prepare(place, held)
            if plan is None:
                return
            target = stage_rows(out, place, self.kept, plan.most, len(plan.ranges))
            for number, one in plan.chosen:
                there = None
                if len(one.steps) > 1:
                    there = LoadedRange(place, one.low, one.high, reads=True)
                for begin, end in one.steps[:, 0].tolist():
                    flat, positions = plan.division.read(number, begin, end)
                    rows = there.rows(flat) if there is not None else place.read(flat)
                    target.put(positions, rows)
                    held.step()
            target.finish()

    def scatter(self, array: DiskArray, values: PointRows, function: np.ufunc | None) -> None:
        """Write values to the elements of all ranges, or combine them."""
        place, source = IndexedArray(array, self.points), values.core
        with IndexWorkspace(
            source or array.handle.core, writes=False, into=array.handle.core
        ) as held:
            plan = self._prepare(place, held)
            if plan is None:
                return
            take = get_values(values, place, plan.division, plan.most, len(plan.ranges))
            for number, one in plan.chosen:
                target: IndexedArray | LoadedRange = place
                if len(one.steps) > 1:
                    target = LoadedRange(place, one.low, one.high, reads=function is not None)
                for begin, end in one.steps[:, 0].tolist():
                    flat, positions = plan.division.read(number, begin, end)
                    target.apply(flat, take(number, begin, end, positions), function)
                    held.step()
                if isinstance(target, LoadedRange):
                    target.write()

    def _prepare(self, place: IndexedArray, held: IndexWorkspace) -> _ListPlan | None:
        """Return the division for an array and reserve memory for its ranges; None if it is empty."""
        if not place.row or not self.points.number:
            return None
        plan = self._plan(place, held)
        stays = any(len(one.steps) > 1 for one in plan.ranges)
        held.take(
            ListMemory(0, place.row).compute_bytes(plan.most, plan.limits.widest if stays else 0)
        )
        return plan

    def _plan(self, place: IndexedArray, held: IndexWorkspace) -> _ListPlan:
        """Return the division for an array, creating it if none exists for such rows and memory."""
        room = ListMemory(held.room(place.array.budget), place.row)
        unit = find_unit(self.points, place.array.info.layout)
        limits = ListLimits.of([room.points], 1, room.widest)
        for plan in self._plans:
            if unit == plan.unit and plan.limits.within(limits):
                return plan
        slab = held.take(min(room.slab, DIVIDED * self.kept.number + room.bins * _BIN), least=1)
        cuts = find_cuts(
            self.kept.elements,
            unit,
            limits,
            room.bins,
            lambda bins: self.kept.count(bins, slab)[None],
        )
        ranges = cut_ranges(cuts, limits, 1)[0]
        plan = _ListPlan(unit, limits, ranges, Division(self.kept, ranges, 0, slab))
        held.release()
        # A division for another amount of memory uses disk space and will not be needed again.
        self._plans = [one for one in self._plans if one.unit != unit]
        self._plans.append(plan)
        return plan
