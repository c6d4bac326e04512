"""
Quantiles, percentiles and medians, exactly.

Problem. A quantile is an element with a certain rank, or lies between two. What is to be ordered may not
fit memory.
Idea. Where the reduced axes of some outputs fit, NumPy's quantiles are taken tile by tile. Where they do
not, the elements with these ranks are found by counting (`outcore.ooc.reduce.selection`).

Invariants. The elements with these ranks are found exactly.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.errors import UsageError
from outcore.jobs import (
    SMALLEST,
    Bound,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    TooLittle,
    collective,
    complete,
    opened,
)
from outcore.ooc.reduce import chains
from outcore.ooc.reduce.reducing import constant
from outcore.ooc.reduce.selection import selecting
from outcore.ooc.reduce.tiles import Grid
from outcore.schedule import Block, Buffer, Load, Schedule, Step, Store
from outcore.tiling import Side

__all__ = ["median", "percentile", "quantile"]

Axis = int | tuple[int, ...] | None
_F8 = np.dtype("f8")
# Ways between two elements.
_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")
# Tiles that NumPy makes of one whose quantiles it takes, about.
_COPIES = 4


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
    Quantiles of elements over axes, exactly.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    q
        One quantile or several, from 0 to 1.
    axis
        One axis or several; None: all of them.
    out
        A path, an open array or a NumPy array that takes the result; by default it is a NumPy array, or
        a scalar.
    method
        ``"linear"``, ``"lower"``, ``"higher"``, ``"nearest"`` or ``"midpoint"``, as `numpy.quantile` has
        them.
    keepdims
        Reduced axes stay, with length 1.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and wishes for a new array; see
        `outcore.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `q`, then that of `a` without the reduced axes. NaN where there is one.

    Raises
    ------
    UsageError
        ``bad-axis``, ``bad-option``: no such axis, quantile or method. ``empty-reduction``: there are no
        elements.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget, or what is counted does not fit.

    Notes
    -----
    Memory: as much as there is; at least some MiB where the reduced axes do not fit. Each element is
    read once where they do; else mostly twice, and again while more elements than fit have their
    leading bits in common, or for budgets of a few MiB. ``explain=True`` tells the most that can be.
    Only counts are written. Collective with ``comm=``: ranks share the lines if these fit, else each
    pass.

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
    return _quantile("quantile", a, q, 1, axis, out, method, keepdims, how)


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
    Percentiles of elements over axes, exactly: quantiles times 100.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    q
        One percentile or several, from 0 to 100.
    axis, out, method, keepdims, how
        As of `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `q`, then that of `a` without the reduced axes. NaN where there is one.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As `outcore.quantile`.

    Notes
    -----
    Memory, passes and source: as of `outcore.quantile`. Collective with ``comm=``, as that is.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(101.0))
    >>> float(outcore.percentile("row.npy", 95))
    95.0
    """
    return _quantile("percentile", a, q, 100, axis, out, method, keepdims, how)


@collective
def median(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Median of elements over axes, exactly.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    axis, out, keepdims, how
        As of `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `a` without the reduced axes. NaN where there is one.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As `outcore.quantile`.

    Notes
    -----
    Memory, passes and source: as of `outcore.quantile`. Collective with ``comm=``, as that is.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.array([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]]))
    >>> outcore.median("grid.npy", axis=1)
    array([2., 8.])
    """
    return _quantile("median", a, 0.5, 1, axis, out, "linear", keepdims, how)


def _quantile(
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
    given = np.asarray(q)
    wanted = given.astype(_F8) / whole
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise UsageError(f"{name}: q={q!r} is not from 0 to {whole}", code="bad-option")
    if method not in _METHODS:
        raise UsageError(
            f"{name}: method={method!r} is none of {', '.join(_METHODS)}", code="bad-option"
        )
    with opened(a) as (source,):
        dtype = chains.supported(name, source.dtype, "biuf")
        shape = tuple(source.shape)
        axes = chains.axes_of(name, axis, len(shape))
        count = math.prod(shape[k] for k in axes)
        if not count and name != "median":
            raise UsageError(
                f"{name} of no elements: there is no such rank", code="empty-reduction"
            )
        kept = tuple(
            1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
        )
        sample = np.zeros(1, dtype if dtype.kind != "b" else np.dtype("u1"))
        to = _function(name)(sample, given, method).dtype
        result = Result((*wanted.shape, *kept), to, source=source.path, small=True)
        tiles = _by_tiles(name, shape, dtype, axes, (given, method, to), keepdims=keepdims)
        flat = wanted.reshape(-1)

        def finish(found: NDArray[Any]) -> NDArray[Any]:
            values: NDArray[Any] = _between(found, count, flat, method, to)
            return values.reshape(result.shape)

        ranks = _ranks(count, flat, method)
        passes = selecting(name, shape, dtype, axes, ranks, finish, (result.shape, to))

        def plan(terms: Terms) -> Program:
            try:
                return tiles(terms)
            except TooLittle as error:
                needed = error.needed
            try:
                return passes(terms)
            except TooLittle as error:
                raise TooLittle(min(needed, error.needed)) from None

        arguments = _repeating(
            name, axis if axis is None else axes, given, method, keepdims=keepdims
        )
        nothing = constant(name, result.shape, 1, [to], lambda: [_of_nothing(name)])
        how_planned = plan if math.prod(shape) else nothing
        operation = Operation(name, (source,), (result,), how_planned, arguments)
        done = complete(operation, out, how)
        return done[()] if isinstance(done, np.ndarray) and not done.ndim else done


def _of_nothing(name: str) -> float:
    """The median of no elements; other quantiles are asked for only if there are no results."""
    if name == "median":
        warnings.warn("median of no elements", RuntimeWarning, stacklevel=2)
    return math.nan


def _repeating(
    name: str, axes: Any, q: NDArray[Any], method: str, *, keepdims: bool
) -> dict[str, Any]:
    """Keywords that repeat the call."""
    words = {"axis": axes, "keepdims": keepdims}
    return words if name == "median" else {**words, "q": q.tolist(), "method": method}


def _function(name: str) -> Callable[..., Any]:
    if name == "median":
        return lambda x, q, method, **words: np.asarray(np.median(x, **words))
    return lambda x, q, method, **words: np.asarray(
        getattr(np, name)(x, q if q.ndim else q.item(), method=method, **words)
    )


def _by_tiles(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    what: tuple[NDArray[Any], str, np.dtype[Any]],
    *,
    keepdims: bool,
) -> Callable[[Terms], Program]:
    """How to plan it where the reduced axes fit."""
    q, method, to = what

    def plan(terms: Terms) -> Program:
        side = terms.side(0) or Side(dtype.itemsize, "C")
        each = dtype.itemsize * (2 + _COPIES)
        least = min(math.prod(shape) * each, SMALLEST)
        if terms.room < least:
            # A budget for less would be no favour: it would take for ever.
            raise TooLittle(least)
        tile = list(shape)
        loops = [k for k in range(len(shape)) if k not in axes]
        if side.order == "F":
            loops.reverse()
        outer = to.itemsize * max(q.size, 1)

        def held() -> int:
            return math.prod(tile) * each + math.prod(tile[k] for k in loops) * outer

        for k in loops:
            # The outermost axis is cut first, to whole chunks if that does.
            unit = side.chunks[k] if side.chunks else 1
            while held() > terms.room and tile[k] > 1:
                half = tile[k] // 2
                tile[k] = half - half % unit if half > unit else half
        if held() > terms.room:
            raise TooLittle(held())
        grid = Grid(shape, tuple(tile), axes, terms.order(0), keepdims=keepdims)
        most = math.prod(tile)
        outputs = math.prod(tile[k] for k in loops) * max(q.size, 1)

        def step(number: int) -> Step:
            section = grid.tile(number)[0]
            inner = tuple(part.stop - part.start for part in section)
            there = (*(slice(0, n) for n in q.shape), *grid.result(section))
            size = tuple(part.stop - part.start for part in there)
            return Step(
                (Block(0, inner), Block(1, (most * dtype.itemsize * _COPIES,)), Block(2, size)),
                (Load(0, section, 0),),
                (Store(1, there, 2),),
                0,
                work=math.prod(inner),
            )

        def kernel(blocks: Sequence[NDArray[Any]]) -> None:
            tile, _, result = blocks
            values = tile.view(np.uint8) if dtype.kind == "b" else tile
            words: dict[str, Any] = (
                {"axis": axes or None, "keepdims": keepdims} if values.ndim else {}
            )
            if values.ndim and not axes:
                # Each element for itself.
                values, words = values[np.newaxis], {"axis": 0, "keepdims": False}
            result[...] = _function(name)(values, q, method, overwrite_input=True, **words)

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
            f"{grid.steps} tiles of {runs}, which hold the axes",
            Bound(size, "input once"),
        )

    return plan


def _ranks(count: int, q: NDArray[Any], method: str) -> NDArray[np.int64]:
    """Ranks of the two elements that each quantile lies between."""
    low = np.floor((count - 1) * q).astype(np.int64)
    # The last one tells whether there is NaN.
    return np.unique(np.concatenate([low, np.minimum(low + 1, count - 1), [count - 1]]))


def _between(
    found: NDArray[Any], count: int, q: NDArray[Any], method: str, to: np.dtype[Any]
) -> Any:
    """From elements by rank (the first axis) to quantiles."""
    ranks = _ranks(count, q, method)
    place = (count - 1) * q
    low = np.floor(place).astype(np.int64)
    part = place - low
    if method == "lower":
        part = np.zeros_like(part)
    elif method == "higher":
        part = np.ceil(part)
    elif method == "nearest":
        # Half way to the even rank.
        part = np.where((part > 0.5) | ((part == 0.5) & (low % 2 == 1)), 1.0, 0.0)
    elif method == "midpoint":
        part = np.where(part > 0, 0.5, 0.0)
    high = np.minimum(low + 1, count - 1)
    a, b = (found[np.searchsorted(ranks, k)] for k in (low, high))
    t = part.reshape(-1, *(1,) * (a.ndim - 1))
    if found.dtype.kind == "f":
        a, b = (np.where(np.isnan(found[-1]), np.nan, one) for one in (a, b))
    if method in ("lower", "higher", "nearest"):
        return np.where(t > 0, b, a).astype(to)
    a, b = a.astype(np.result_type(a, to)), b.astype(np.result_type(b, to))
    with np.errstate(invalid="ignore"):
        apart = b - a
        between = np.where(t >= 0.5, b - apart * (1 - t), a + apart * t)
    # An infinite neighbour counts only if it takes part.
    return np.where(t == 0, a, between).astype(to)
