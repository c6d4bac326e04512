"""
Exact quantiles, percentiles and medians.

Problem. A quantile is an element with a certain rank, or a value between two elements. The elements
to be ordered may not fit in memory.
Idea. If the reduced axes of some outputs fit, lines are sorted tile by tile. Otherwise the elements
with these ranks are found by counting (`outcore.compute.reduce.selection`). Values between two
elements are computed by the same arithmetic in both cases (`outcore.compute.reduce.between`).

Invariants. The elements with these ranks are found exactly, so the result has the same bits for
every budget.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.arrays.tiling import Side
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
    to_scalar,
)
from outcore.compute.reduce import chains
from outcore.compute.reduce.between import ELEMENTS, METHODS, find_ranks, interpolate
from outcore.compute.reduce.reducing import plan_constant
from outcore.compute.reduce.selection import plan_selection
from outcore.compute.reduce.tiles import Grid
from outcore.errors import UnsupportedError, UsageError

__all__ = ["compute_quantiles", "median", "percentile", "quantile"]

Axis = int | tuple[int, ...] | None
_F8 = np.dtype("f8")
# Approximate number of copies of a tile that are made while its quantiles are computed.
_COPIES = 4
# Number of elements sorted at a time, if lines are not longer.
_AT_ONCE = 2**15


@collective
def quantile(
    a: Source,
    q: ArrayLike,
    axis: Axis = None,
    out: Any = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    **how: Any,
) -> Any:
    """
    Compute exact quantiles of elements over axes.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    q
        One quantile or several, from 0 to 1.
    method
        Method of `numpy.quantile`, such as ``"linear"``, ``"lower"`` or ``"hazen"``.
    axis, out, keepdims, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array whose shape is that of `q`, then that of `a` without the reduced axes. NaN where an
        element is NaN.

    Raises
    ------
    UsageError
        ``bad-option``: there is no such quantile or method. ``empty-reduction``: there are no
        elements.
    UnsupportedError
        ``bad-dtype``: elements of another dtype, or boolean elements with a method that
        interpolates.
    BudgetError
        As in `outcore.compute.jobs.complete`; also if the counts do not fit.

    Notes
    -----
    Memory: at least some MiB if the reduced axes do not fit in memory. If they fit, each element is
    read once. Otherwise elements are mostly read twice; more passes follow while more elements than
    fit have their leading bits in common, or with budgets of a few MiB. ``explain=True`` counts the
    usual passes and states the maximum. Only counts are written. Collective with ``comm=``: ranks
    share the lines if these fit, otherwise each pass.

    Positions between elements are computed in float64, also for float32 elements.

    J. I. Munro, M. S. Paterson, "Selection and sorting with limited storage", 1980.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.array([3.0, 1.0, 4.0, 1.5]))
    >>> float(outcore.quantile("row.npy", 0.5))
    2.25
    >>> outcore.quantile("row.npy", [0, 1])
    array([1., 4.])
    """
    return compute_quantiles("quantile", a, q, 1, axis, out, method, keepdims, how)


@collective
def percentile(
    a: Source,
    q: ArrayLike,
    axis: Axis = None,
    out: Any = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    **how: Any,
) -> Any:
    """
    Compute exact percentiles of elements over axes: quantiles times 100.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    q
        One percentile or several, from 0 to 100.
    axis, out, method, keepdims, how
        See `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array whose shape is that of `q`, then that of `a` without the reduced axes. NaN where an
        element is NaN.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.quantile`.

    Notes
    -----
    Memory, passes, source and the use of ranks are those of `outcore.quantile`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(101.0))
    >>> float(outcore.percentile("row.npy", 95))
    95.0
    """
    return compute_quantiles("percentile", a, q, 100, axis, out, method, keepdims, how)


@collective
def median(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Compute the exact median of elements over axes.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    axis, out, keepdims, how
        See `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array with the shape of `a` without the reduced axes. NaN where an element is NaN.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.quantile`.

    Notes
    -----
    Memory, passes, source and the use of ranks are those of `outcore.quantile`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.array([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]]))
    >>> outcore.median("grid.npy", axis=1)
    array([2., 8.])
    """
    return compute_quantiles("median", a, 0.5, 1, axis, out, "median", keepdims, how)


def compute_quantiles(
    name: str,
    a: Source,
    q: ArrayLike,
    whole: int,
    axis: Any,
    out: Any,
    method: str,
    keepdims: bool,
    how: dict[str, Any],
) -> Any:
    """
    Compute quantiles, with `q` at most `whole`; skip NaN if `name` begins with ``nan``.

    Medians have a method ``"median"``.
    """
    given = np.asarray(q)
    wanted = given.astype(_F8) / whole
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise UsageError(
            f"{name}: q={q!r} is outside of the range from 0 to {whole}; pass numbers within it",
            code="bad-option",
        )
    if method not in METHODS and not name.endswith("median"):
        raise UsageError(
            f"{name}: method={method!r} is unknown; use one of {', '.join(METHODS)}",
            code="bad-option",
        )
    with open_inputs(a) as (source,):
        dtype = chains.check_dtype(name, source.dtype, "biuf")
        nan = name.startswith("nan") and dtype.kind == "f"
        shape = tuple(source.shape)
        axes = chains.normalize_axes(name, axis, len(shape))
        count = math.prod(shape[k] for k in axes)
        may_be_nan = name.endswith("median") or name.startswith("nan")
        if not count and not may_be_nan:
            raise UsageError(
                f"{name} of no elements is undefined; reduce axes that have elements",
                code="empty-reduction",
            )
        kept = tuple(
            1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
        )
        if dtype.kind == "b" and method not in ("median", *ELEMENTS):
            raise UnsupportedError(
                f"{name}: method={method!r} needs numbers between elements, which booleans do not "
                f"have; use one of {', '.join(ELEMENTS)}, or convert them to numbers "
                "(outcore.convert)",
                code="bad-dtype",
            )
        words = {} if name.endswith("median") else {"q": q, "method": method}
        to = np.asarray(getattr(np, name)(np.zeros(1, dtype), **words)).dtype
        if not count and to.kind != "f":
            to = _F8  # NaN for every dtype of the elements.
        result = Result((*wanted.shape, *kept), to, source=source.path, small=True)
        flat = wanted.reshape(-1)

        def ranks(counts: NDArray[np.int64]) -> NDArray[np.int64]:
            low, high, _ = find_ranks(counts, flat, method)
            # The last element of a line shows whether it contains NaN.
            ends = [] if nan else [counts[np.newaxis] - 1]
            return np.concatenate([low, high, *ends]).T

        def values(
            pick: Callable[[NDArray[np.int64]], NDArray[Any]],
            counts: NDArray[np.int64],
            ends: NDArray[Any] | None,
        ) -> NDArray[Any]:
            found = interpolate(pick, counts, flat, method, to)
            if nan and not counts.all():
                warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
            if ends is not None and ends.dtype.kind == "f":
                np.copyto(found, np.nan, where=np.isnan(ends), casting="unsafe")
            return found

        def finish(found: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
            low, _, _ = find_ranks(counts, flat, method)
            several = iter((found[: len(low)], found[len(low) : 2 * len(low)]))
            ends = None if nan else found[-1]
            return values(lambda _: next(several), counts, ends).reshape(result.shape)

        def of_lines(lines: NDArray[Any]) -> NDArray[Any]:
            counts = np.full(len(lines), count, np.int64)
            if nan:
                lines.sort(axis=1)
                counts -= np.isnan(lines).sum(axis=1)
            elif flat.size:
                lines.partition(np.unique(ranks(counts[:1])), axis=1)
            rows = np.arange(len(lines))
            return values(lambda rank: lines[rows, rank], counts, None if nan else lines[:, -1])

        tiles = _plan_by_tiles(name, shape, dtype, axes, (given, to), of_lines, keepdims=keepdims)
        each = 2 * flat.size + (not nan)
        passes = plan_selection(
            name, shape, dtype, axes, (each, ranks, finish), (result.shape, to), nan=nan
        )

        def plan(terms: Terms) -> Program:
            try:
                return tiles(terms)
            except InsufficientBuffersError as error:
                needed = error.needed
            try:
                return passes(terms)
            except InsufficientBuffersError as error:
                raise InsufficientBuffersError(min(needed, error.needed)) from None

        arguments = _list_keywords(
            name, axis if axis is None else axes, given, method, keepdims=keepdims
        )
        nothing = plan_constant(name, result.shape, 1, [to], lambda: [_choose_empty_value(name)])
        how_planned = plan if math.prod(shape) else nothing
        operation = Operation(name, (source,), (result,), how_planned, arguments)
        return complete(operation, out, how, lambda done: to_scalar(done, out))


def _choose_empty_value(name: str) -> float:
    """Return the median, or the NaN-skipping quantile, of no elements; other quantiles have none."""
    if name.endswith("median") or name.startswith("nan"):
        warnings.warn(f"{name} of no elements", RuntimeWarning, stacklevel=2)
    return math.nan


def _list_keywords(
    name: str, axes: Any, q: NDArray[Any], method: str, *, keepdims: bool
) -> dict[str, Any]:
    """Return keywords that repeat the call."""
    words = {"axis": axes, "keepdims": keepdims}
    return words if name.endswith("median") else {**words, "q": q.tolist(), "method": method}


def _plan_by_tiles(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    what: tuple[NDArray[Any], np.dtype[Any]],
    of_lines: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    keepdims: bool,
) -> Callable[[Terms], Program]:
    """Return the planner for reduced axes that fit: `of_lines` computes the quantiles of lines."""
    q, to = what
    kept = [k for k in range(len(shape)) if k not in axes]
    count = math.prod(shape[k] for k in axes)

    def plan(terms: Terms) -> Program:
        side = terms.side(0) or Side(dtype.itemsize, "C")
        each = dtype.itemsize * (2 + _COPIES)
        least = min(math.prod(shape) * each, SMALLEST)
        # A smaller budget would be accepted only to run extremely slowly.
        terms.require(least)
        tile = list(shape)
        loops = [k for k in range(len(shape)) if k not in axes]
        if side.order == "F":
            loops.reverse()
        outer = to.itemsize * max(q.size, 1)

        def count_bytes() -> int:
            return math.prod(tile) * each + math.prod(tile[k] for k in loops) * outer

        for k in loops:
            # The outermost axis is cut first, at whole chunks if that is enough.
            unit = side.chunks[k] if side.chunks else 1
            while count_bytes() > terms.room and tile[k] > 1:
                half = tile[k] // 2
                tile[k] = half - half % unit if half > unit else half
        terms.require(count_bytes())
        grid = Grid(shape, tuple(tile), axes, terms.order(0), keepdims=keepdims)
        most = math.prod(tile)
        outputs = math.prod(tile[k] for k in loops) * max(q.size, 1)

        def step(number: int) -> ScheduleStep:
            section = grid.tile(number)[0]
            inner = tuple(part.stop - part.start for part in section)
            there = (*(slice(0, n) for n in q.shape), *grid.result(section))
            size = tuple(part.stop - part.start for part in there)
            return ScheduleStep(
                (Block(0, inner), Block(1, (most * dtype.itemsize * _COPIES,)), Block(2, size)),
                (Load(0, section, 0),),
                (Store(1, there, 2),),
                0,
                work=math.prod(inner),
            )

        def kernel(blocks: Sequence[NDArray[Any]]) -> None:
            tile, _, result = blocks
            values = tile.view(np.uint8) if dtype.kind == "b" else tile
            lines = values.transpose(*kept, *axes) if values.ndim else values
            lines = lines.copy(order="C").reshape(-1, count)
            found = np.empty((q.size, len(lines)), to)
            some = max(_AT_ONCE // max(count, 2 * q.size), 1)
            for low in range(0, len(lines), some):
                found[:, low : low + some] = of_lines(lines[low : low + some])
            result[...] = found.reshape(result.shape)

        schedule = Schedule(
            name=name,
            arrays=("input", "result"),
            buffers=(
                Buffer(most, dtype, terms.order(0), copies=2),
                Buffer(most * dtype.itemsize * _COPIES, np.dtype(np.uint8), kept=True),
                Buffer(outputs, to),
            ),
            steps=grid.steps,
            make=step,
            kernels=(kernel,),
        )
        runs = " x ".join(map(str, tile)) or "one element"
        size = math.prod(shape) * dtype.itemsize
        return Program(
            (schedule,),
            f"{format_count(grid.steps, 'tile')} of {runs}, which hold the axes",
            Bound.of({0: size}, "input once"),
        )

    return plan
