"""
Cumulative sums and products along an axis.

Problem. Each element of the result depends on all elements before it along the axis, which may not
fit in memory.
Idea. Tiles are processed in the order of the axis, all tiles of one range of the other axes one
after another. The last result of a tile is kept as the first operand of the next one. Ranks share
the lines. They also share parts of lines of integers, whose totals are computed by a first pass;
then ranks read all elements twice. Parts of floating-point lines would be rounded differently from
NumPy, so these lines stay on one rank.

The nan variants do the same with blocks in which NaN is replaced.

Invariants. The result has the bits of `numpy.cumsum` and `numpy.cumprod`, for all tiles and ranks:
both add one element after the other. Products of complex numbers also have the same bits for all
tiles, but NumPy rounds them in more than one way. One process reads each element once and writes it
once.

Reference: G. E. Blelloch, "Prefix sums and their applications", 1990, for the scan of parts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core
from outcore.arrays import tiling
from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Side, Tiling
from outcore.base import assumed_costs
from outcore.base.report import format_count
from outcore.compute.jobs import (
    SMALLEST,
    Bound,
    InsufficientBuffersError,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    collective,
    complete,
    open_inputs,
)
from outcore.compute.reduce import chains
from outcore.compute.reduce.quantities import check_one_axis
from outcore.compute.reduce.tiles import Grid, compute_share, count_requests

__all__ = ["cumprod", "cumsum", "nancumprod", "nancumsum"]

Shape = tuple[int, ...]

# Length of rows from which NumPy adds rows faster than it runs along columns.
_ROW = 512
# Number of elements converted and added at a time.
_AT_ONCE = 2**15


@collective
def cumsum(
    a: Source,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the cumulative sum along an axis.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis of the scan. None: scan the elements of the flattened array, in C order.
    dtype
        Dtype of the computation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray, or `out`
        Array with the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: `axis` does not exist. Also if `out` does not fit, or is `a`.

    Notes
    -----
    Memory: at least one tile of `a` and of the result. Each element is read once and written once.
    Collective with ``comm=``: ranks share the lines. They also share parts of lines of integers,
    which are then read twice. The elements are combined one after the other, as in `numpy.cumsum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.ones((3, 4)))
    >>> outcore.cumsum("grid.npy", axis=0)[2]
    array([3., 3., 3., 3.])
    """
    return _compute_scan("cumsum", np.add, a, axis, dtype, out, how)  # type: ignore[no-any-return]


@collective
def cumprod(
    a: Source,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the cumulative product along an axis.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis of the scan. None: scan the elements of the flattened array, in C order.
    dtype
        Dtype of the computation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray, or `out`
        Array with the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: `axis` does not exist. Also if `out` does not fit, or is `a`.

    Notes
    -----
    Memory: at least one tile of `a` and of the result. Each element is read once and written once.
    Collective with ``comm=``: ranks share the lines. They also share parts of lines of integers,
    which are then read twice. The elements are combined one after the other, as in `numpy.cumprod`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(1.0, 5.0))
    >>> outcore.cumprod("row.npy")[...]
    array([ 1.,  2.,  6., 24.])
    """
    return _compute_scan("cumprod", np.multiply, a, axis, dtype, out, how)  # type: ignore[no-any-return]


@collective
def nancumsum(
    a: Source,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the cumulative sum along an axis, treating NaN as zero.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis of the scan. None: scan the elements of the flattened array, in C order.
    dtype
        Dtype of the computation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray, or `out`
        Array with the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: `axis` does not exist. Also if `out` does not fit, or is `a`.

    Notes
    -----
    Memory: at least one tile of `a` and of the result. Each element is read once and written once.
    Collective with ``comm=``: ranks share the lines. They also share parts of lines of integers,
    which are then read twice. The elements are combined one after the other, as in
    `numpy.nancumsum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.array([1.0, np.nan, 2.0]))
    >>> outcore.nancumsum("row.npy")[...]
    array([1., 1., 3.])
    """
    return _compute_scan("nancumsum", np.add, a, axis, dtype, out, how)  # type: ignore[no-any-return]


@collective
def nancumprod(
    a: Source,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the cumulative product along an axis, treating NaN as one.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis of the scan. None: scan the elements of the flattened array, in C order.
    dtype
        Dtype of the computation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray, or `out`
        Array with the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: `axis` does not exist. Also if `out` does not fit, or is `a`.

    Notes
    -----
    Memory: at least one tile of `a` and of the result. Each element is read once and written once.
    Collective with ``comm=``: ranks share the lines. They also share parts of lines of integers,
    which are then read twice. The elements are combined one after the other, as in
    `numpy.nancumprod`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.array([2.0, np.nan, 3.0]))
    >>> outcore.nancumprod("row.npy")[...]
    array([2., 2., 6.])
    """
    return _compute_scan("nancumprod", np.multiply, a, axis, dtype, out, how)  # type: ignore[no-any-return]


def _compute_scan(
    name: str,
    operation: np.ufunc,
    a: Source,
    axis: Any,
    dtype: Any,
    out: Any,
    how: dict[str, Any],
) -> Any:
    with open_inputs(a) as (source,):
        given = chains.check_dtype(name, source.dtype)
        to = chains.choose_sum_dtype(given, dtype)
        shape = tuple(source.shape)
        check_one_axis(axis, name)
        flat = axis is None or chains.normalize_axes(name, axis, len(shape)) == ()
        axis = None if flat else axis
        if flat:
            result = Result((math.prod(shape),), to, source=source.path)
        else:
            (axis,) = chains.normalize_axes(name, axis, len(shape))
            result = Result.like(source, to)
        plan = _plan_scan(name, operation, shape, axis, (given, to))
        job = Operation(name, (source,), (result,), plan, {"axis": axis, "dtype": to.str})
        return complete(job, out, how)


@dataclass(frozen=True, slots=True)
class _ScanPlan:
    """Tile, number of parts in which its lines are scanned, and estimated seconds."""

    seconds: float
    tile: Shape
    parts: int = 1


def _plan_scan(
    name: str,
    operation: np.ufunc,
    shape: Shape,
    axis: int | None,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
) -> Callable[[Terms], Program]:
    along = range(len(shape)) if axis is None else (axis,)

    def plan(terms: Terms) -> Program:
        # One tile is read while another is written, and the last results of a tile are kept.
        per_element = 2 * dtypes[0].itemsize + 3 * dtypes[1].itemsize
        # A smaller budget would be accepted only to run extremely slowly.
        least = min(math.prod(shape), SMALLEST // per_element) * per_element
        terms.require(least)
        terms.require(per_element)
        order = "C" if axis is None else terms.order(1)
        ways = _list_plans(terms, shape, axis, dtypes, per_element)
        way = min(ways, key=lambda one: one.seconds)
        scan = _ScanPass(
            name, operation, shape, axis, dtypes, Grid(shape, way.tile, along, order), way
        )
        made = terms.infos[1]
        scanned = scan.scan(result_is_exact=made is not None and made.dtype == dtypes[1])
        phases = (scan.totals(), scanned) if way.parts > 1 else (scanned,)
        once = {n: math.prod(shape) * one.itemsize for n, one in enumerate(dtypes[:2])}
        runs = " x ".join(map(str, way.tile)) or "one element"
        parts = f", after the totals of {way.parts} parts" if way.parts > 1 else ""
        return Program(
            phases,
            f"one pass in {format_count(phases[-1].steps, 'tile')} of {runs}, in the order of the axis"
            f"{parts}",
            Bound.of(once, "input and result once"),
            (Result(scan.rows, dtypes[1]),) if way.parts > 1 else (),
        )

    return plan


def _list_plans(
    terms: Terms,
    shape: Shape,
    axis: int | None,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    per_element: int,
) -> list[_ScanPlan]:
    """List the plans: all lines together; with ranks, some lines each, or parts of integer lines."""
    source = terms.side(0) or Side(dtypes[0].itemsize, "C")
    target = terms.side(1) or Side(dtypes[1].itemsize, "C")
    whole, most = tuple(max(n, 1) for n in shape), terms.room // per_element

    def cut(lengths: Shape) -> Shape | int:
        if axis is None:
            return tiling.cut_slabs(lengths, few).tile
        found = tiling.choose(lengths, source, target, few, disk=terms.disk)
        if not isinstance(found, Tiling):
            found = tiling.choose(lengths, source, target, most, disk=terms.disk)
        return tuple(max(n, 1) for n in found.tile) if isinstance(found, Tiling) else found

    def seconds(tile: Shape, parts: int) -> float:
        counts = [-(-n // t) for n, t in zip(whole, tile, strict=True)]
        steps = math.prod(counts)
        read = terms.disk.seconds(*count_requests(whole, tile, source, terms.disk.gap, steps))
        written = math.prod(whole) * dtypes[1].itemsize
        if axis is None:
            write = terms.disk.seconds(steps, written)
        else:
            write = terms.disk.seconds(*count_requests(whole, tile, target, terms.disk.gap, steps))
        lines = 1 if axis is None else steps // counts[axis]
        taken = (read + write) * compute_share(lines * parts, terms.ranks)
        if parts > 1:
            ahead = compute_share(lines * (parts - 1), terms.ranks) * (parts - 1) / parts
            taken += read * ahead + assumed_costs.SYNCHRONISATION_SECONDS
        return taken

    # With ranks, make several tiles for each rank, so that the work can be divided.
    few = most if terms.ranks == 1 else min(most, max(math.prod(whole) // (4 * terms.ranks), 1))
    tile = cut(shape)
    if isinstance(tile, int):
        raise InsufficientBuffersError(tile * per_element)
    found = [_ScanPlan(seconds(tile, 1), tile)]
    if terms.ranks == 1 or not math.prod(shape):
        return found
    for k, n in enumerate(whole):
        if axis is None or k == axis:
            continue
        unit = math.lcm(*(side.chunks[k] for side in (source, target) if side.chunks))
        width = -(-n // terms.ranks // unit) * unit
        some = cut((*shape[:k], width, *shape[k + 1 :])) if width < n else 0
        if isinstance(some, tuple):
            found.append(_ScanPlan(seconds(some, 1), some))
    pieces = math.prod(
        -(-n // t) for k, (n, t) in enumerate(zip(whole, tile, strict=True)) if axis in (None, k)
    )
    parts = min(terms.ranks, pieces)
    ends = 1 if axis is None else math.prod(tile) // tile[axis]
    held = math.prod(tile) * (2 * dtypes[0].itemsize + 2 * dtypes[1].itemsize)
    exact = all(d.kind in "biu" for d in dtypes) and np.can_cast(*dtypes, "same_kind")
    if exact and parts > 1 and held + (parts + 2) * ends * dtypes[1].itemsize <= terms.room:
        found.append(_ScanPlan(seconds(tile, parts), tile, parts))
    return found


class _ScanPass:
    """Steps of the scan for a tile and a number of parts."""

    def __init__(
        self,
        name: str,
        operation: np.ufunc,
        shape: Shape,
        axis: int | None,
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        grid: Grid,
        way: _ScanPlan,
    ) -> None:
        self.name, self.operation, self.shape, self.axis = name, operation, shape, axis
        self.dtypes, self.grid, self.parts = dtypes, grid, way.parts
        self.size = max(math.prod(way.tile), 1)
        self.ends = 1 if axis is None else max(self.size // max(way.tile[axis], 1), 1)
        self.steps = grid.steps if math.prod(shape) else 0
        #: First tile of each part along the lines, then the number of tiles.
        self.begins = [grid.pieces * k // way.parts for k in range(way.parts + 1)]

    @property
    def rows(self) -> Shape:
        """Shape of the totals: all parts except the last one, and lines."""
        return (self.parts - 1, *self.lines(self.shape))

    def lines(self, of: Sequence[Any]) -> tuple[Any, ...]:
        """Return lengths, or a section, without the axis."""
        return () if self.axis is None else (*of[: self.axis], *of[self.axis + 1 :])

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("source", "target", *("totals",) * (self.parts > 1))

    def totals(self) -> Schedule:
        """Plan the pass that computes the totals of all parts except the last ones."""
        pieces = self.begins[-2]

        def step(number: int) -> ScheduleStep:
            group, piece = divmod(number, pieces)
            section = self.grid.tile(group * self.grid.pieces + piece)[0]
            part = bisect_right(self.begins, piece) - 1
            first, last = piece == self.begins[part], piece == self.begins[part + 1] - 1
            inner = tuple(one.stop - one.start for one in section)
            lines = self.lines(inner)
            blocks = [Block(0, inner), Block(1, (self.ends,)), Block(2, (self.ends,))]
            stores: tuple[Store, ...] = ()
            if last:
                blocks.append(Block(3, (1, *lines)))
                stores = (Store(2, (slice(part, part + 1), *self.lines(section)), 3),)
            return ScheduleStep(
                blocks=tuple(blocks),
                loads=(Load(0, section, 0),),
                stores=stores,
                kernel=0,
                arguments=(self.axis, first, last),
                continues=not first,
                work=math.prod(inner),
            )

        return Schedule(
            name=self.name,
            arrays=self.arrays,
            buffers=(
                Buffer(self.size, self.dtypes[0], self.grid.order, copies=2),
                Buffer(self.ends, self.dtypes[1], kept=True),
                Buffer(self.ends, self.dtypes[1], kept=True),
                Buffer(self.ends, self.dtypes[1]),
            ),
            steps=self.steps // self.grid.pieces * pieces,
            make=step,
            kernels=(_Totals(self.operation),),
        )

    def scan(self, *, result_is_exact: bool) -> Schedule:
        """
        Plan the scan.

        If the result holds all bits, a resumed run reads the last results of the previous tile from
        it.
        """

        def restart(number: int) -> tuple[ScheduleStep, ...]:
            tail = list(self.grid.tile(number - 1)[0])
            if self.axis is None:
                there = _flatten_section(tuple(tail), self.shape)
                there = (slice(there[0].stop - 1, there[0].stop),)
            else:
                tail[self.axis] = slice(tail[self.axis].stop - 1, tail[self.axis].stop)
                there = tuple(tail)
            lengths = tuple(one.stop - one.start for one in there)
            at, axes = (slice(0, math.prod(lengths)),), None
            if self.grid.order == "F":
                lengths, axes = lengths[::-1], tuple(reversed(range(len(lengths))))
            ends = Load(1, there, 2, at, axes, lengths)
            made = step(number)
            return (replace(made, loads=(*made.loads, ends), continues=False),)

        def step(number: int) -> ScheduleStep:
            section = self.grid.tile(number)[0]
            piece = number % self.grid.pieces
            part = bisect_right(self.begins, piece) - 1
            first = piece == self.begins[part]
            inner = tuple(one.stop - one.start for one in section)
            there = _flatten_section(section, self.shape) if self.axis is None else section
            blocks = [
                Block(0, inner),
                Block(1, tuple(one.stop - one.start for one in there)),
                Block(2, (self.ends,)),
            ]
            loads = [Load(0, section, 0)]
            if first and part:
                blocks.append(Block(3, (part, *self.lines(inner))))
                loads.append(Load(2, (slice(0, part), *self.lines(section)), 3))
            return ScheduleStep(
                blocks=tuple(blocks),
                loads=tuple(loads),
                stores=(Store(1, there, 1),),
                kernel=0,
                arguments=(self.axis, first),
                continues=not first,
                work=math.prod(inner),
            )

        before: tuple[Buffer, ...] = ()
        if self.parts > 1:
            before = (Buffer((self.parts - 1) * self.ends, self.dtypes[1]),)
        return Schedule(
            name=self.name,
            arrays=self.arrays,
            buffers=(
                Buffer(self.size, self.dtypes[0], self.grid.order, copies=2),
                Buffer(self.size, self.dtypes[1], self.grid.order, copies=2),
                Buffer(self.ends, self.dtypes[1], kept=True),
                *before,
            ),
            steps=self.steps,
            make=step,
            restart=restart if result_is_exact else None,
            kernels=(_Scan(self.operation, nan=self.name.startswith("nan")),),
        )


def _flatten_section(section: Section, shape: Shape) -> Section:
    """Return the section of the flattened array that holds the elements of such a tile."""
    first = 0
    for part, length in zip(section, shape, strict=True):
        first = first * length + part.start
    return (slice(first, first + math.prod(part.stop - part.start for part in section)),)


class _Totals:
    """Kernel of the first pass: the total of the elements of a part."""

    def __init__(self, operation: np.ufunc) -> None:
        self.operation = operation

    def __call__(
        self, blocks: Sequence[NDArray[Any]], axis: int | None, first: bool, last: bool
    ) -> None:
        source, kept, scratch, *out = blocks
        if axis is None:
            source, axis = source.reshape(-1), 0
        lines = (*source.shape[:axis], *source.shape[axis + 1 :])
        total, found = (one[: math.prod(lines)].reshape(lines) for one in (kept, scratch))
        self.operation.reduce(source, axis, total.dtype, total if first else found)
        if not first:
            self.operation(total, found, out=total)
        if last:
            out[0][0] = total


class _Scan:
    """Kernel of the scan: `ufunc.accumulate`, continued from the end of the previous tile."""

    def __init__(self, operation: np.ufunc, *, nan: bool = False) -> None:
        self.operation, self.nan = operation, nan

    def __call__(self, blocks: Sequence[NDArray[Any]], axis: int | None, first: bool) -> None:
        source, target, kept, *before = blocks
        if self.nan and source.dtype.kind in "fc":
            _replace_nan(source, self.operation.identity)
        if axis is None:
            source, axis = source.reshape(-1), 0
        ahead = (slice(None),) * axis
        head, tail = (*ahead, slice(0, 1)), (*ahead, slice(-1, None))
        # In the order of the blocks: the products of complex numbers are computed in memory order.
        order: Any = "C" if target.flags.c_contiguous else "F"
        ends = kept[: target[head].size].reshape(target[head].shape, order=order)
        if self.operation is np.multiply and target.dtype.kind == "c":
            np.copyto(target, source, casting="unsafe")
            _multiply(target, axis, None if first else ends)
            np.copyto(ends, target[tail])
            return
        with np.errstate(all="ignore"):
            if before:
                self.operation.reduce(before[0], 0, target.dtype, ends.squeeze(axis))
            if before or not first:
                # In the dtype of the result.
                self.operation(
                    ends, source[head], out=target[head], dtype=target.dtype, casting="unsafe"
                )
            else:
                np.copyto(target[head], source[head], casting="unsafe")
            np.copyto(ends, target[head])
            self._continue(source, target, axis)
        np.copyto(ends, target[tail])

    def _continue(self, source: NDArray[Any], target: NDArray[Any], axis: int) -> None:
        """Compute everything after the first index, whose results exist already."""
        x, y = np.moveaxis(source, axis, 0), np.moveaxis(target, axis, 0)
        if x[0].size >= _ROW:
            for k in range(1, len(y)):
                self.operation(y[k - 1], x[k], out=y[k], dtype=y.dtype, casting="unsafe")
            return
        if source.dtype == target.dtype:
            np.copyto(x[:1], y[:1])
            self.operation.accumulate(x, 0, out=y)
            return
        # Convert in place in the target, and then a few at a time: NumPy makes a copy of them.
        np.copyto(y[1:], x[1:], casting="unsafe")
        length = max(_AT_ONCE // max(y[0].size, 1), 2)
        for low in range(0, len(y), length - 1):
            part = y[low : low + length]
            self.operation.accumulate(part, 0, out=part)


def _replace_nan(source: NDArray[Any], value: Any) -> None:
    """Replace each NaN of a block by a number, some elements at a time."""
    flat = source.ravel(order="K")  # a view: blocks are contiguous
    for low in range(0, flat.size, _AT_ONCE):
        part = flat[low : low + _AT_ONCE]
        np.copyto(part, value, where=np.isnan(part))


def _multiply(target: NDArray[Any], axis: int, before: NDArray[Any] | None) -> None:
    """
    Compute cumulative products of complex numbers in place, starting from `before`.

    NumPy rounds such a product differently in rows and in columns; this function has one way of
    rounding.
    """
    if not target.flags.c_contiguous:
        target, axis = target.T, target.ndim - 1 - axis
        before = None if before is None else before.T
    part = f"f{target.dtype.itemsize // 2}"
    parts = None if before is None else before[..., np.newaxis].view(part)
    _core.accumulate_products(target[..., np.newaxis].view(part), axis, parts)
