"""
Quantiles, percentiles and medians, exactly.

Problem. A quantile is an element with a certain rank (or lies between two), and ranks are known only
when all elements have been seen. What is to be ordered may not fit memory; sorting it on disk would move
it several times.
Idea. Where the reduced axes of some outputs fit, NumPy's quantiles are taken tile by tile. Where they do
not, elements are read as integers in the same order, and a pass counts them by their leading bits. The
counts tell in which bin each wanted rank is; the next pass counts what is in these bins by the bits that
follow, or, as soon as that fits, collects it. The elements in the bins are sorted, and the ranks taken.

Invariants. The elements with these ranks are found exactly. Nothing is written.

Reference: J. I. Munro, M. S. Paterson, "Selection and sorting with limited storage", 1980, for selection
in passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.errors import BudgetError, UsageError
from outcore.hints import memory as promise
from outcore.hints import nbytes
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
from outcore.ooc.reduce.counting import AT_ONCE, counting
from outcore.ooc.reduce.tiles import Grid
from outcore.schedule import Block, Buffer, Load, Schedule, Section, Step, Store
from outcore.tiling import Side

__all__ = ["median", "percentile", "quantile"]

Axis = int | tuple[int, ...] | None
_F8 = np.dtype("f8")
# Ways between two elements.
_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")
# Tiles that NumPy makes of one whose quantiles it takes, about.
_COPIES = 4
# Most bits that are told apart in a pass.
_BITS = 20


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
        A path, an open array or a NumPy array that takes the result, if the reduced axes fit memory; by
        default it is a NumPy array, or a scalar.
    method
        ``"linear"``, ``"lower"``, ``"higher"``, ``"nearest"`` or ``"midpoint"``, as `numpy.quantile` has
        them.
    keepdims
        Reduced axes stay, with length 1.
    how
        ``memory``, ``progress`` and ``explain``; see `outcore.jobs.complete`. What is explained of
        several passes is the first.

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
    read once where they do, else two or three times (more for budgets of a few MiB), and nothing is
    written. Collective with ``comm=``: ranks share the lines, if these fit; else one rank counts.

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
        if not math.prod(shape):
            raise UsageError(
                f"{name} of no elements: there is no such rank", code="empty-reduction"
            )
        kept = tuple(
            1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
        )
        sample = np.zeros(1, dtype if dtype.kind != "b" else np.dtype("u1"))
        to = _function(name)(sample, given, method).dtype
        result = Result((*wanted.shape, *kept), to, source=source.path, small=True)
        plan = _by_tiles(name, shape, dtype, axes, (given, method, to), keepdims=keepdims)
        arguments = _repeating(
            name, axis if axis is None else axes, given, method, keepdims=keepdims
        )
        operation = Operation(name, (source,), (result,), plan, arguments)
        budget = min(nbytes(how["memory"]), int(promise())) if how.get("memory") else int(promise())
        need = math.prod(shape[k] for k in axes) * dtype.itemsize * _COPIES
        if out is not None or need <= budget // 2:
            # What several passes find is in memory, so `out` is for axes that fit.
            done = complete(operation, out, how)
            return done[()] if isinstance(done, np.ndarray) and not done.ndim else done
        passes = _Passes(name, source, dtype, axes, budget, how)
        found = passes.ranks(_ranks(math.prod(shape[k] for k in axes), wanted.reshape(-1), method))
        if not isinstance(found, np.ndarray):
            return found
        values = _between(found, math.prod(shape[k] for k in axes), wanted.reshape(-1), method, to)
        done = values.reshape((*wanted.shape, *kept))
        return done[()]


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


class _Passes:
    """Selection by counting: elements with given ranks of each output."""

    def __init__(
        self,
        name: str,
        source: Any,
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        budget: int,
        how: dict[str, Any],
    ) -> None:
        self.name, self.source, self.dtype, self.axes, self.how = name, source, dtype, axes, how
        self.shape = tuple(source.shape)
        self.kept = [k for k in range(len(self.shape)) if k not in axes]
        self.outputs = math.prod(self.shape[k] for k in self.kept)
        self.room = budget // 16
        self.bits = 8 * dtype.itemsize

    def ranks(self, ranks: NDArray[np.int64]) -> Any:
        """Elements by rank and output, ranks first; `Planned` if that is asked for."""
        shape = (self.outputs, len(ranks))
        left = np.broadcast_to(ranks, shape).astype(np.int64).copy()
        prefixes = np.zeros(shape, np.uint64)
        known = 0
        while known < self.bits:
            targets, which = self._targets(prefixes, known)
            width = min(
                max(int(self.room / 8 / max(len(targets), 1)).bit_length() - 1, 0),
                _BITS,
                self.bits - known,
            )
            if width < min(4, self.bits - known):
                raise BudgetError(
                    f"{self.name}: {len(targets)} ranges of elements cannot be counted within "
                    f"{16 * self.room} bytes; raise memory= (and outcore.memory), or reduce fewer axes",
                    code="budget-too-small",
                    needed=16 * 8 * 16 * len(targets),
                )
            counts = self._count(targets, known, width)
            if not isinstance(counts, np.ndarray):
                return counts
            inside = np.zeros(len(targets), np.int64)
            wanted: set[tuple[int, int]] = set()
            for place, target in np.ndenumerate(which):
                ends = np.cumsum(counts[target])
                bin_ = int(np.searchsorted(ends, left[place], "right"))
                left[place] -= ends[bin_ - 1] if bin_ else 0
                prefixes[place] = (int(prefixes[place]) << width) | bin_
                if (int(target), bin_) not in wanted:
                    wanted.add((int(target), bin_))
                    inside[target] += counts[target][bin_]
            known += width
            if known < self.bits and int(inside.sum()) * 8 <= self.room:
                return self._collected(prefixes, known, left, int(inside.sum()))
        return self._value(prefixes).T.reshape(len(ranks), *(self.shape[k] for k in self.kept))

    def _targets(
        self, prefixes: NDArray[np.uint64], known: int
    ) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
        """Different pairs of output and prefix, and which of them each rank is in."""
        targets: dict[tuple[int, int], int] = {}
        which = np.zeros(prefixes.shape, np.int64)
        for (output, n), prefix in np.ndenumerate(prefixes):
            which[output, n] = targets.setdefault((output, int(prefix)), len(targets))
        return list(targets), which

    def _keys(self, part: NDArray[Any]) -> NDArray[np.uint64]:
        """Integers in the order of the elements; NaN above all."""
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        if self.dtype.kind in "bu":
            return part.view(unsigned).astype(np.uint64)
        top = np.uint64(1 << (self.bits - 1))
        if self.dtype.kind == "i":
            return part.view(unsigned).astype(np.uint64) ^ top
        # Both zeros as one.
        bits = (part + part.dtype.type(0)).view(unsigned).astype(np.uint64)
        every = np.uint64(2**self.bits - 1)
        keys = np.where(bits & top, ~bits & every, bits | top)
        return np.where(np.isnan(part), every, keys)

    def _value(self, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Elements of keys."""
        unsigned = np.dtype(f"u{self.dtype.itemsize}")
        top = np.uint64(1 << (self.bits - 1))
        if self.dtype.kind in "bu":
            values = keys.astype(unsigned).view("u1" if self.dtype.kind == "b" else self.dtype)
        elif self.dtype.kind == "i":
            values = (keys ^ top).astype(unsigned).view(self.dtype)
        else:
            every = np.uint64(2**self.bits - 1)
            bits = np.where(keys & top, keys & ~top, ~keys & every).astype(unsigned)
            values = np.where(keys == every, np.nan, bits.view(self.dtype)).astype(self.dtype)
        return values

    def _each(self, tile: NDArray[Any], section: Section) -> Sequence[tuple[int, NDArray[Any]]]:
        """Outputs that a tile has elements of, and these elements, some at a time."""
        starts = [section[k].start for k in self.kept]
        sizes = [self.shape[k] for k in self.kept]
        turned = tile.transpose(*self.kept, *self.axes) if tile.ndim else tile
        lengths = turned.shape[: len(self.kept)]
        found = []
        for place in np.ndindex(*lengths):
            output = 0
            for start, k, size in zip(starts, place, sizes, strict=True):
                output = output * size + start + k
            one = turned[place]
            found.append((output, one))
        return found

    def _slices(self, one: NDArray[Any]) -> Any:
        """An output's elements of a tile, so many at a time, flat."""
        for part in np.nditer(
            one, ["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=AT_ONCE
        ):
            yield np.asarray(part)

    def _count(self, targets: list[tuple[int, int]], known: int, width: int) -> Any:
        """How many elements of each target have which bits next."""
        low = np.uint64(self.bits - known - width)
        mask = np.uint64((1 << width) - 1)
        of = self._of(targets)
        size = 1 << width

        def count(tile: NDArray[Any], section: Section, kept: NDArray[Any]) -> None:
            counts = kept.reshape(len(targets), size)
            for output, one in self._each(tile, section):
                for part in self._slices(one):
                    keys = self._keys(part)
                    for number, prefix in of.get(output, ()):
                        mine = keys[self._has(keys, prefix, known)] if known else keys
                        np.add.at(counts[number], ((mine >> low) & mask).astype(np.int64), 1)

        found = self._run((len(targets) * size, np.dtype("i8")), count)
        return found.reshape(len(targets), size) if isinstance(found, np.ndarray) else found

    def _collected(
        self, prefixes: NDArray[np.uint64], known: int, left: NDArray[np.int64], size: int
    ) -> NDArray[Any]:
        """The elements in the bins, sorted, and those with the ranks that are left."""
        targets, which = self._targets(prefixes, known)
        of = self._of(targets)
        found: list[list[NDArray[np.uint64]]] = [[] for _ in targets]

        def collect(tile: NDArray[Any], section: Section, kept: NDArray[Any]) -> None:
            for output, one in self._each(tile, section):
                for part in self._slices(one):
                    keys = self._keys(part)
                    for number, prefix in of.get(output, ()):
                        mine = keys[self._has(keys, prefix, known)]
                        if mine.size:
                            found[number].append(mine)
            kept[0] = sum(len(part) for parts in found for part in parts)

        self._run((1, np.dtype("i8")), collect, 4 * 8 * size)
        ordered = [np.sort(np.concatenate(one)) for one in found]
        values = np.zeros(which.shape, np.uint64)
        for place, target in np.ndenumerate(which):
            values[place] = ordered[target][left[place]]
        return self._value(values).T.reshape(-1, *(self.shape[k] for k in self.kept))

    def _of(self, targets: list[tuple[int, int]]) -> dict[int, list[tuple[int, np.uint64]]]:
        of: dict[int, list[tuple[int, np.uint64]]] = {}
        for number, (output, prefix) in enumerate(targets):
            of.setdefault(output, []).append((number, np.uint64(prefix)))
        return of

    def _has(self, keys: NDArray[np.uint64], prefix: np.uint64, known: int) -> Any:
        return (keys >> np.uint64(self.bits - known)) == prefix

    def _run(self, kept: tuple[int, np.dtype[Any]], count: Any, beside: int = 0) -> Any:
        plan = counting(self.name, self.shape, self.dtype, kept, count, beside)
        result = Result((kept[0],), kept[1], source=self.source.path, small=True)
        return complete(Operation(self.name, (self.source,), (result,), plan), None, self.how)
