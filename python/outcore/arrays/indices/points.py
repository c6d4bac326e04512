"""
Reads and writes of elements that are selected by arrays of indices.

Problem: `outcore.arrays.indices.keys` determines the elements of a key; the core reads and writes lists
of points. The conversions between the two need memory: lists of another type than int64, values of
another type than the array's, values and results whose axes cannot be viewed as one axis of points,
indices of a mask.
Approach: if nothing must be converted, the core gets the caller's own memory in one call. Otherwise the
access is cut into boxes of points in C order; for each box the lists and values are converted and
passed to the core. Before that, large masks are cut into windows of indices.

Invariants: converted data counts in the budget (`IndexWorkspace`); boxes are cut smaller if the core
cannot reserve memory in addition to it. Boxes are in the order of the points, so if an element occurs
several times, its last value wins. If there is more than one box, all indices are checked before the
first box is moved.

Source: Thakur et al., "PASSION Runtime Library for Parallel I/O", section 4.4 (irregular problems);
`crates/plan/src/points` describes one call of the core.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.handle import is_on_disk
from outcore.arrays.indices import sieved_masks
from outcore.arrays.indices.keys import Box, IndexPoints, Kind, parse
from outcore.arrays.indices.masks import INDEX, IndexWorkspace, make_conversion_error
from outcore.base.casting import convert_values
from outcore.base.report import Report
from outcore.errors import BudgetError, SectionError, UsageError
from outcore.formats.layout import share_bytes

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = [
    "check_out",
    "explain",
    "explain_key",
    "read",
    "read_key",
    "write",
    "write_key",
    "write_repeated",
]

# Number of indices that are checked in one step.
_CHECKED = 1 << 16
# Values of fewer bytes are cast before they are broadcast.
_SMALL = 4096


# Keys


def read_key(
    array: DiskArray,
    key: Any,
    out: NDArray[Any] | None,
    kind: Kind,
    refused: SectionError | None = None,
) -> Any:
    """Read a key with arrays; a key without arrays goes to the core, or raises `refused`."""
    with IndexWorkspace(array.handle.core, writes=False) as held:
        points = parse(key, array.shape, array.path, held, kind)
        if points is not None:
            return read(array, points, out, held)
    if refused is not None:
        raise refused
    return array.handle.core.read(key, out)


def write_key(
    array: DiskArray, key: Any, value: Any, kind: Kind, refused: SectionError | None = None
) -> None:
    """Write to a key with arrays; a key without arrays goes to `DiskArray.write`."""
    array.handle.check_writable("write to")
    with IndexWorkspace(array.handle.core, writes=True) as held:
        points = parse(key, array.shape, array.path, held, kind)
        if points is not None:
            write(array, points, value, held)
            return
    if refused is not None:
        raise refused
    array.write(key, value)


def explain_key(
    array: DiskArray, key: Any, writes: bool, refused: SectionError | None = None
) -> Report:
    """Report what an access by a key with arrays would do."""
    with IndexWorkspace(array.handle.core, writes) as held:
        points = parse(key, array.shape, array.path, held, "numpy")
        if points is not None:
            return explain(array, points, writes, held)
    if refused is not None:
        raise refused
    return Report(**array.handle.core.explain(key, writes))


# Accesses


def read(
    array: DiskArray, points: IndexPoints, out: NDArray[Any] | None, held: IndexWorkspace
) -> NDArray[Any]:
    """Read the elements of `points` into `out` (``points.result_shape``), or into new memory."""
    array.handle.check_open()
    if out is None:
        core = points.empty(array.dtype, array.order)
        result = points.to_result(core)
    else:
        check_out(array, out, points.result_shape)
        result, core = out, points.to_core(out)
    # If elements of almost every page are selected, all pages are read.
    blocks = sieved_masks.plan_blocks(array, points) if core.flags.c_contiguous else None
    if blocks is not None:
        sieved_masks.read(array, points, blocks, core)
        return result
    for place, part in _iterate_windows(points):
        _Access(array, part, held, writes=False).read(core if place is None else core[place])
    return result


def write(array: DiskArray, points: IndexPoints, value: Any, held: IndexWorkspace) -> None:
    """
    Write to the elements of `points`.

    Values are broadcast and cast as by NumPy; a `DiskArray` must have exactly the shape of the
    result. If an element occurs several times, its last value wins.
    """
    source = _open_value(array, points, value, held)
    for place, part in _iterate_windows(points):
        first = 0 if place is None else place.start
        _Access(array, part, held, writes=True).write(source.skip_to(part, first))


def write_repeated(
    array: DiskArray, points: IndexPoints, values: NDArray[Any], held: IndexWorkspace
) -> None:
    """Write at least one value to points selected by one list with one axis, repeating the values."""
    (indices,) = points.lists
    points.check(_CHECKED)
    each = values.itemsize + INDEX
    room = held.take(each * points.number, least=0) // each
    # A window ends with the last value, so that the next one begins with the first.
    times = max(room // values.size, 1) * values.size
    window = np.resize(values, points.number if room >= points.number else times)
    for low in range(0, points.number, window.size):
        part = indices[low : low + window.size]
        write(array, replace(points, lists=(part,), points=part.shape), window[: part.size], held)


def explain(array: DiskArray, points: IndexPoints, writes: bool, held: IndexWorkspace) -> Report:
    """Report what reading or writing `points` would do, summed over all calls of the core."""
    if writes:
        array.handle.check_writable("write to")
    array.handle.check_open()
    blocks = None if writes else sieved_masks.plan_blocks(array, points)
    if blocks is not None:
        told = sieved_masks.explain(array, points, blocks)
    else:
        accesses = (_Access(array, part, held, writes) for _, part in _iterate_windows(points))
        told = [one for access in accesses for one in access.explain()]
    if not told:
        return Report(**array.handle.core.explain((slice(0, 0),) * array.ndim, writes))
    total = dict(told[0])
    for name in _SUMMED:
        total[name] = sum(one[name] for one in told)
    total["peak_bytes"] = max(one["peak_bytes"] for one in told) + held.nbytes
    if len(told) > 1:
        total["why"] = f"{total['why']} (the first of {len(told)} calls)"
    return Report(**total)


_SUMMED = (
    *("reads", "read_bytes", "writes", "written_bytes", "mapped_bytes", "useful_bytes"),
    *("decodes", "encodes", "cached_chunks", "rounds"),
)


def _iterate_windows(points: IndexPoints) -> Iterator[tuple[slice | None, IndexPoints]]:
    """Yield the points, or those of each window of a mask, with their positions among all points."""
    if points.mask is None:
        yield None, points
        return
    flat = points.mask.list_indices()
    if flat is not None:
        yield None, points.replace_mask(flat)
        return
    at = 0
    for window in points.mask.windows():
        yield slice(at, at + window.size), points.replace_mask(window)
        at += window.size


def check_out(array: Any, out: Any, shape: tuple[int, ...]) -> None:
    """Raise if the elements of an array (with a path and a dtype) cannot be read into this memory."""
    path = array.path
    if not isinstance(out, np.ndarray):
        why = f"out= for '{path}' is not an array; pass a numpy.ndarray"
    elif out.shape != shape or out.dtype != array.dtype:
        why = (
            f"out= has shape {out.shape} and dtype {out.dtype}, but the elements of '{path}' have "
            f"shape {shape} and dtype {array.dtype}; make them equal"
        )
    elif not out.flags.writeable:
        why = f"out= for '{path}' is read-only; pass a writeable array"
    elif out.size and not _is_nested(out):
        why = (
            f"elements of out= for '{path}' share memory, or may do so: shape {out.shape}, byte strides "
            f"{out.strides}; pass an array whose elements share no memory (numpy.empty, or slices and "
            "transposes of one), or read without out= and assign the result."
        )
    else:
        return
    raise UsageError(why, code="out-mismatch", path=path)


def _is_nested(array: NDArray[Any]) -> bool:
    """Return whether the stride of each axis exceeds the extent of all axes with smaller strides."""
    reach = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for stride, length in sorted((abs(stride), n) for stride, n in axes if n > 1):
        if stride < reach:
            return False
        reach += stride * (length - 1)
    return True


def _merge_axes(core: NDArray[Any], number: int) -> NDArray[Any] | None:
    """Return an array in core order with its first `number` axes as one; None if it needs a copy."""
    axes = [(n, s) for n, s in zip(core.shape[:number], core.strides, strict=False) if n > 1]
    if any(outer[1] != inner[0] * inner[1] for outer, inner in itertools.pairwise(axes)):
        return None
    return core.reshape(math.prod(core.shape[:number]), *core.shape[number:])


# Values


@dataclass(frozen=True)
class _MemoryValue:
    """A broadcast value in memory, in core order."""

    core: NDArray[Any]
    first: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.core.dtype

    @property
    def nbytes(self) -> int:
        """Bytes per element that are read before the cast."""
        return 0

    def skip_to(self, points: IndexPoints, first: int) -> _MemoryValue:
        """Return the value for these points, which start at number `first`."""
        return _MemoryValue(self.core[first : first + points.number]) if first else self

    def of(self, box: Box) -> NDArray[Any]:
        """Return the value for a box."""
        part: NDArray[Any] = self.core[_get_key(box)]
        return part


@dataclass(frozen=True)
class _DiskValue:
    """A value on disk with the shape of the result."""

    array: DiskArray
    points: IndexPoints
    first: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize

    def skip_to(self, points: IndexPoints, first: int) -> _DiskValue:
        return _DiskValue(self.array, self.points, first) if first else self

    def of(self, box: Box) -> NDArray[Any]:
        if self.first:
            box = ((box[0][0] + self.first, box[0][1]), *box[1:])
        return self.points.to_core(self.array.read(self.points.make_result_key(box)))


def _open_value(
    array: DiskArray, points: IndexPoints, value: Any, held: IndexWorkspace
) -> _MemoryValue | _DiskValue:
    shape, path = points.result_shape, array.path
    if is_on_disk(value):
        if value.size == 1:
            value = np.asarray(value[...])
        elif value.shape != shape:
            raise UsageError(
                f"{value.path!r} has shape {value.shape}, but the elements of {path!r} have "
                f"{shape}; an array on disk is not broadcast: read it first (source[...]) if it "
                "fits in memory",
                code="broadcast",
                path=path,
            )
        elif not share_bytes(array.info, value.info):
            return _DiskValue(value, points)
        else:
            # As in NumPy, read everything before overwriting any of it.
            held.take(value.nbytes)
            value = value[...]
    value = convert_values(value, array.dtype)
    if value.dtype != array.dtype and value.size * array.dtype.itemsize <= _SMALL:
        value = _cast(value, array.dtype)
    spare = value.ndim - len(shape)
    if spare > 0 and all(n == 1 for n in value.shape[:spare]):
        value = value.reshape(value.shape[spare:])
    try:
        value = np.broadcast_to(value, shape)
    except ValueError:
        raise UsageError(
            f"a value of shape {value.shape} cannot be broadcast to the elements of shape {shape} of "
            f"'{path}'; make trailing axes equal or 1",
            code="broadcast",
            path=path,
        ) from None
    return _MemoryValue(points.to_core(value))


def _get_key(box: Box) -> tuple[Any, ...]:
    """Return the key of a box; without axes it gives a view, not a scalar."""
    return (*(slice(low, low + count) for low, count in box), ...)


def _cast(value: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast as in NumPy's assignment."""
    cast = np.empty(value.shape, dtype)
    cast[...] = value
    return cast


# Calls of the core


class _Access:
    """One access to points whose lists are known."""

    def __init__(
        self, array: DiskArray, points: IndexPoints, held: IndexWorkspace, writes: bool
    ) -> None:
        self._array, self._points, self._held, self._writes = array, points, held, writes
        self._whole = points.whole()
        self._size = math.prod(points.core_shape)
        self._item = array.dtype.itemsize

    def read(self, core: NDArray[Any]) -> None:
        """Read all points into memory in core order."""
        number = len(self._points.points)

        def work(box: Box) -> None:
            here = core[_get_key(box)]
            into = _merge_axes(here, number)
            if into is not None:
                self._read(box, into)
                return
            buffer = np.empty(here.shape, here.dtype)
            self._read(box, buffer.reshape(-1, *here.shape[number:]))
            here[...] = buffer

        self._each(work, 0 if _merge_axes(core, number) is not None else self._item)

    def write(self, source: _MemoryValue | _DiskValue) -> None:
        """Write all points from `source`."""
        number, dtype = len(self._points.points), self._array.dtype
        casts = source.dtype != dtype
        # Values read from disk may be in memory in another order than the points.
        copies = isinstance(source, _DiskValue) or _merge_axes(source.core, number) is None

        def work(box: Box) -> None:
            here = source.of(box)
            if casts:
                here = _cast(here, dtype)
            data = _merge_axes(here, number)
            if data is None:
                data = here.reshape(math.prod(here.shape[:number]), *here.shape[number:])
            self._write(box, data)

        self._each(work, source.nbytes + (self._item if casts or copies else 0))

    def explain(self) -> list[dict[str, Any]]:
        """Return the reports of the core's calls for all points."""
        told: list[dict[str, Any]] = []
        points = self._points

        def work(box: Box) -> None:
            if points.axes:
                lists, rest = points.get_lists(box), points.get_rest(box)
                axes, mode, core = points.axes, points.mode, self._array.handle.core
                told.append(core.explain_points(axes, lists, mode, rest, self._writes))
            else:
                told.append(self._array.handle.core.explain(self._make_section(box), self._writes))

        self._each(work, 0)
        return told

    def _read(self, box: Box, into: NDArray[Any]) -> None:
        points, core = self._points, self._array.handle.core
        if points.axes:
            lists, rest = points.get_lists(box), points.get_rest(box)
            core.read_points(points.axes, lists, points.mode, rest, into)
        else:
            core.read(self._make_section(box), into[0, ...])
            into[1:] = into[0]  # an array without axes has one element

    def _write(self, box: Box, data: NDArray[Any]) -> None:
        points, core = self._points, self._array.handle.core
        if points.axes:
            lists, rest = points.get_lists(box), points.get_rest(box)
            core.write_points(points.axes, lists, points.mode, rest, data)
        else:
            core.write(self._make_section(box), data[-1, ...])

    def _make_section(self, box: Box) -> tuple[slice, ...]:
        """Return the section of a box without lists: booleans without axes, arrays without axes."""
        words = self._points.get_rest(box)
        sections = zip(words[::3], words[1::3], words[2::3], strict=True)
        return tuple(slice(start, start + count * step, step) for start, count, step in sections)

    def _each(self, work: Callable[[Box], None], per_element: int) -> None:
        """
        Call `work` for boxes that cover all points, within the budget.

        `work` converts the lists and values of a box, and calls the core.
        """
        points = self._points
        if not points.number or not self._item:
            return
        self._held.take(points.per_access)
        if points.unsigned or points.beyond != "raise" or not points.axes:
            points.check(_CHECKED)
        if not self._size:
            points.check(_CHECKED)
            return
        cost = _Cost(points.per_point, per_element, self._size // points.number)
        most, checked = self._size, False
        if not cost.least:
            try:
                work(self._whole)
                return
            except BudgetError:
                if most == 1:
                    raise
                most = max(most // 4, 1)
        left: list[Iterator[Box]] = [iter((self._whole,))]
        while left:
            with IndexWorkspace(self._array.handle.core, self._writes) as held:
                room = held.take(cost.of(most), min(cost.least, cost.of(most)))
                most = min(most, cost.elements(room))
                if most < self._size and not checked:
                    points.check(_CHECKED)  # before any element is moved
                    checked = True
                refused = _run_boxes(work, points, left, most, held)
            if refused is not None:
                if most == 1:
                    if not room or refused.needed is None:
                        raise refused
                    needed = refused.needed + room
                    raise make_conversion_error(refused.path, room, needed, refused.code)
                most = max(most // 4, 1)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Bytes that are converted per point and per element, and elements of a point."""

    per_point: int
    per_element: int
    row: int

    @property
    def least(self) -> int:
        """Bytes of the smallest box, of one element."""
        return self.per_point + self.per_element

    def of(self, elements: int) -> int:
        """Return the bytes of a box with a number of elements."""
        return -(-elements // self.row) * self.per_point + elements * self.per_element

    def elements(self, room: int) -> int:
        """Return the number of elements of the largest box that takes at most `room` bytes."""
        point = self.of(self.row)
        if not point:
            return sys.maxsize
        if room >= point or not self.per_element:
            return max(room // point, 1) * self.row
        return max((room - self.per_point) // self.per_element, 1)


def _run_boxes(
    work: Callable[[Box], None],
    points: IndexPoints,
    left: list[Iterator[Box]],
    most: int,
    held: IndexWorkspace,
) -> BudgetError | None:
    """
    Call `work` for the boxes that are `left`, cut to at most `most` elements.

    Return the error of the first box that did not fit; this box and all later ones remain in
    `left`.
    """
    while left:
        box = next(left[-1], None)
        if box is None:
            left.pop()
        elif math.prod(count for _, count in box) > most:
            left.append(points.boxes(box, most))
        else:
            try:
                work(box)
            except BudgetError as error:
                left.append(iter((box,)))
                return error
            held.step()
    return None
