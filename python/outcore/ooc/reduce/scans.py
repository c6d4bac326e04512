"""
Cumulative sums and products along an axis.

Problem. Each element of the result needs all that are before it along the axis, which may not fit.
Idea. Tiles come in the order of the axis, all of one range of the other axes after each other. What the
last one ended with is kept, and is the first operand of the next one.

Invariants. The result has the bits of `numpy.cumsum` and `numpy.cumprod`, whatever the tiles: both add
one element after the other. Each element is read once and written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import tiling
from outcore.disk import DiskArray
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
from outcore.ooc.reduce.tiles import Grid
from outcore.schedule import Block, Buffer, Load, Schedule, Section, Step, Store
from outcore.tiling import Side, Tiling

__all__ = ["cumprod", "cumsum"]

Shape = tuple[int, ...]

# Elements of a row from which on NumPy adds rows faster than it goes along columns.
_ROW = 512
# Elements that are converted and added at a time.
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
    Cumulative sum along an axis.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        The axis; None: the elements in the order of the flattened array, in C order.
    dtype
        In which it is added up, and of the result; by default that of `a`, int64 or uint64 for small
        integers.
    out
        Where the result goes: a path, an open array or a NumPy array. By default a temporary array on
        disk, which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and wishes for the new array;
        see `outcore.jobs.complete`.

    Returns
    -------
    DiskArray, or what `out` is
        Of the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis; or `out` does not fit, or is `a`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` and of the result. Each element is read once
    and written once. Collective with ``comm=``: ranks share the lines, if these do not all go through
    memory together. The elements are added one after the other, as `numpy.cumsum` does.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.ones((3, 4)))
    >>> outcore.cumsum("grid.npy", axis=0)[2]
    array([3., 3., 3., 3.])
    """
    return _scan("cumsum", np.add, a, axis, dtype, out, how)  # type: ignore[no-any-return]


@collective
def cumprod(
    a: Source,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Cumulative product along an axis.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer or floating dtype.
    axis
        The axis; None: the elements in the order of the flattened array, in C order.
    dtype
        In which it is multiplied, and of the result; by default that of `a`, int64 or uint64 for small
        integers.
    out
        Where the result goes: a path, an open array or a NumPy array. By default a temporary array on
        disk, which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and wishes for the new array;
        see `outcore.jobs.complete`.

    Returns
    -------
    DiskArray, or what `out` is
        Of the shape of `a`; flat if `axis` is None.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis; or `out` does not fit, or is `a`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` and of the result. Each element is read once
    and written once. Collective with ``comm=``: ranks share the lines, if these do not all go through
    memory together. The elements are multiplied one after the other, as `numpy.cumprod` does.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(1.0, 5.0))
    >>> outcore.cumprod("row.npy")[...]
    array([ 1.,  2.,  6., 24.])
    """
    return _scan("cumprod", np.multiply, a, axis, dtype, out, how)  # type: ignore[no-any-return]


def _scan(
    name: str,
    operation: np.ufunc,
    a: Source,
    axis: Any,
    dtype: Any,
    out: Any,
    how: dict[str, Any],
) -> Any:
    with opened(a) as (source,):
        # NumPy rounds products of complex numbers one way in rows and another way in columns.
        kinds = "biufc" if name == "cumsum" else "biuf"
        given = chains.supported(name, source.dtype, kinds)
        to = chains.supported(name, chains.accumulated(given, dtype), kinds)
        shape = tuple(source.shape)
        flat = axis is None
        words: dict[str, Any] = {}
        if not flat:
            (axis,) = chains.axes_of(name, axis, len(shape))
            words = {word: getattr(source, word, None) for word in ("chunks", "dims")}
            words["order"] = "F" if source.order == "F" else None
        result = Result((math.prod(shape),) if flat else shape, to, words, source.path)
        plan = _scanning(name, operation, shape, axis, (given, to))
        job = Operation(name, (source,), (result,), plan, {"axis": axis, "dtype": to.str})
        return complete(job, out, how)


def _scanning(
    name: str,
    operation: np.ufunc,
    shape: Shape,
    axis: int | None,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
) -> Callable[[Terms], Program]:
    def plan(terms: Terms) -> Program:
        source = terms.side(0) or Side(dtypes[0].itemsize, "C")
        target = terms.side(1) or Side(dtypes[1].itemsize, "C")
        # One tile is read while another is written, and what a tile ends with is kept.
        per_element = 2 * dtypes[0].itemsize + 3 * dtypes[1].itemsize
        # A budget for less would be no favour: it would take for ever.
        least = min(math.prod(shape), SMALLEST // per_element) * per_element
        if terms.room < least:
            raise TooLittle(least)
        most = terms.room // per_element
        if axis is None:
            tile = _rows(shape, most)
        else:
            tiles = tiling.choose(shape, source, target, most)
            if not isinstance(tiles, Tiling):
                raise TooLittle(tiles * per_element)
            tile = tiles.tile
        if most < 1:
            raise TooLittle(per_element)
        tile = tuple(max(n, 1) for n in tile)
        order = "C" if axis is None else terms.order(1)
        grid = Grid(shape, tile, range(len(shape)) if axis is None else (axis,), order)
        size = max(math.prod(tile), 1)
        ends = 1 if axis is None else max(size // max(tile[axis], 1), 1)

        def step(number: int) -> Step:
            section, first, _ = grid.tile(number)
            inner = tuple(part.stop - part.start for part in section)
            there = _flat(section, shape) if axis is None else section
            return Step(
                blocks=(
                    Block(0, inner),
                    Block(1, tuple(part.stop - part.start for part in there)),
                    Block(2, (ends,)),
                ),
                loads=(Load(0, section, 0),),
                stores=(Store(1, there, 1),),
                kernel=0,
                arguments=(axis, first),
                continues=not first,
                work=math.prod(inner),
            )

        schedule = Schedule(
            name=name,
            arrays=("source", "target"),
            buffers=(
                Buffer(size, dtypes[0], order, copies=2),
                Buffer(size, dtypes[1], order, copies=2),
                Buffer(ends, dtypes[1], kept=True),
            ),
            steps=grid.steps if math.prod(shape) else 0,
            make=step,
            kernels=(_Scan(operation),),
        )
        nbytes = math.prod(shape) * (dtypes[0].itemsize + dtypes[1].itemsize)
        runs = " x ".join(map(str, tile)) or "one element"
        return Program(
            (schedule,),
            f"one pass in {schedule.steps} tiles of {runs}, in the order of the axis",
            Bound(nbytes, "input and result once"),
        )

    return plan


def _rows(shape: Shape, most: int) -> Shape:
    """A tile whose elements follow each other in the flattened array."""
    tile = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        tile[axis] = max(min(shape[axis], most), 1)
        if tile[axis] < shape[axis]:
            break
        most //= tile[axis]
    return tuple(tile)


def _flat(section: Section, shape: Shape) -> Section:
    """Where the elements of such a tile are in the flattened array."""
    first = 0
    for part, length in zip(section, shape, strict=True):
        first = first * length + part.start
    return (slice(first, first + math.prod(part.stop - part.start for part in section)),)


class _Scan:
    """The kernel: `ufunc.accumulate`, going on from where the tile before ended."""

    def __init__(self, operation: np.ufunc) -> None:
        self.operation = operation

    def __call__(self, blocks: Sequence[NDArray[Any]], axis: int | None, first: bool) -> None:
        source, target, kept = blocks
        if axis is None:
            source, axis = source.reshape(-1), 0
        ahead = (slice(None),) * axis
        head, tail = (*ahead, slice(0, 1)), (*ahead, slice(-1, None))
        ends = kept[: target[head].size].reshape(target[head].shape)
        with np.errstate(all="ignore"):
            if not first:
                # In the dtype of the result.
                self.operation(
                    ends, source[head], out=target[head], dtype=target.dtype, casting="unsafe"
                )
            else:
                np.copyto(target[head], source[head], casting="unsafe")
            np.copyto(ends, target[head])
            self._go_on(source, target, axis)
        np.copyto(ends, target[tail])

    def _go_on(self, source: NDArray[Any], target: NDArray[Any], axis: int) -> None:
        """Everything behind the first index, whose results are there."""
        x, y = np.moveaxis(source, axis, 0), np.moveaxis(target, axis, 0)
        if x[0].size >= _ROW:
            for k in range(1, len(y)):
                self.operation(y[k - 1], x[k], out=y[k], dtype=y.dtype, casting="unsafe")
            return
        if source.dtype == target.dtype:
            np.copyto(x[:1], y[:1])
            self.operation.accumulate(x, 0, out=y)
            return
        # Converted where they will be, and then a few at a time: NumPy makes a copy of them.
        np.copyto(y[1:], x[1:], casting="unsafe")
        length = max(_AT_ONCE // max(y[0].size, 1), 2)
        for low in range(0, len(y), length - 1):
            part = y[low : low + length]
            self.operation.accumulate(part, 0, out=part)
