"""
One read of an array whose elements are only counted, in any order.

Idea. The tiles are those that suit the file. The counts are kept from the first step to the last
one, which stores them. Parts of a tile are counted one after another, so that NumPy's temporary
arrays are small and of known size. Each of several ranks counts a part of the tiles, into a row of
a temporary array, and a second pass adds the rows, unless the number of counts is so large that
this would take longer.

The tiles of weights are read with those of their elements.

Invariants. Counts do not depend on tiles or ranks. Sums of floating-point weights do, in their last
bits: they are added in the order of the tiles.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays import tiling
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Side, Tiling
from outcore.base import assumed_costs
from outcore.base.report import format_count
from outcore.compute.jobs import SMALLEST, Bound, InsufficientBuffersError, Program, Result, Terms

__all__ = ["AT_ONCE", "CountingRead", "plan_count", "plan_read", "split_tile"]

#: Number of elements counted at a time.
AT_ONCE = 2**13
# Bytes of NumPy's temporary arrays for each of these elements.
_EACH = 80
_READS = 2

#: Function that adds a tile to the counts: arguments are the tile, its section, the counts and the
#: number of the part (and the weights of the tile, if there are any).
Count = Callable[..., None]


def split_tile(tile: NDArray[Any], length: int = AT_ONCE) -> Sequence[NDArray[Any]]:
    """Split a tile into parts of `length` elements."""
    flat = tile.ravel(order="K")
    return [flat[low : low + length] for low in range(0, flat.size, length)]


@dataclass(frozen=True, slots=True)
class CountingRead:
    """Read of an array in parts, each of which is counted separately."""

    name: str
    tiles: Tiling
    #: Number of tiles; 0 if the array has no elements.
    steps: int
    #: Dtype of the array.
    native: np.dtype[Any]
    order: str
    #: Number of tiles that are read concurrently.
    reads: int
    #: Number of the first tile of each part, then the number of tiles.
    ends: Sequence[int]
    #: Dtype of a second array, whose tiles are read with those of the first.
    weights: np.dtype[Any] | None = None

    @property
    def rows(self) -> int:
        """Number of parts."""
        return len(self.ends) - 1

    @property
    def method(self) -> str:
        """Human-readable method."""
        runs = " x ".join(map(str, self.tiles.tile)) or "one element"
        return f"{format_count(max(self.steps, 1), 'tile')} of {runs}"

    def compute_bytes(self, kept: tuple[int, np.dtype[Any]], beside: int) -> int:
        """Compute the size of the buffers of `schedule` in bytes."""
        size, kind = kept
        tile = max(math.prod(self.tiles.tile), 1) * _item(self.native, self.weights)
        return 2 * size * kind.itemsize + AT_ONCE * _EACH + beside + tile * (self.reads + 1)

    def schedule(
        self,
        arrays: Sequence[str],
        target: int,
        kept: tuple[int, np.dtype[Any]],
        count: Count,
        beside: int = 0,
    ) -> Schedule:
        """
        Make the schedule.

        Array `target` takes the counts, which begin with zeros: a row for each part in a temporary
        array, all counts of the only part in the result. `kept` is their number and dtype, `count`
        adds a tile to them, and `beside` is the number of bytes that it needs in addition.
        """
        (size, kind), steps, ends = kept, self.steps, self.ends
        scratch = AT_ONCE * _EACH + beside
        in_rows, weighted = arrays[target] != "result", self.weights is not None

        def step(number: int) -> ScheduleStep:
            row = bisect_right(ends, number) - 1
            first, last = number == ends[row], number == ends[row + 1] - 1
            blocks = [Block(0, (size,)), Block(1, (scratch,))]
            stores: tuple[Store, ...] = ()
            if last and not in_rows:
                blocks.append(Block(2, (size,)))
                stores = (Store(target, (slice(0, size),), 2),)
            elif last:
                blocks.append(Block(2, (1, size)))
                stores = (Store(target, (slice(row, row + 1), slice(0, size)), 2),)
            if not steps:
                return ScheduleStep(tuple(blocks), (), stores, 0, ((), 0, True, last))
            section = self.tiles.key(number)
            inner = tuple(part.stop - part.start for part in section)
            loads = [Load(0, section, len(blocks))]
            blocks.append(Block(3, inner))
            if weighted:
                loads.append(Load(1, section, len(blocks)))
                blocks.append(Block(4, inner))
            return ScheduleStep(
                tuple(blocks),
                tuple(loads),
                stores,
                0,
                (section, row, first, last),
                continues=not first,
                work=math.prod(inner),
            )

        def kernel(
            blocks: Sequence[NDArray[Any]], section: Section, row: int, first: bool, last: bool
        ) -> None:
            if first:
                blocks[0][...] = 0
            if steps and weighted:
                count(blocks[-2], section, blocks[0], row, blocks[-1])
            elif steps:
                count(blocks[-1], section, blocks[0], row)
            if last:
                blocks[2][...] = blocks[0]

        tile = max(math.prod(self.tiles.tile), 1)
        read = [self.native] if self.weights is None else [self.native, self.weights]
        return Schedule(
            name=self.name,
            arrays=tuple(arrays),
            buffers=(
                Buffer(size, kind, kept=True),
                Buffer(scratch, np.dtype(np.uint8), kept=True),
                Buffer(size, kind),
                *(Buffer(tile, one, self.order, copies=self.reads + 1) for one in read),
            ),
            steps=max(steps, 1),
            make=step,
            kernels=(kernel,),
            reading=self.reads,
        )


def _item(native: np.dtype[Any], weights: np.dtype[Any] | None) -> int:
    return native.itemsize + (0 if weights is None else weights.itemsize)


def plan_read(
    name: str,
    terms: Terms,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    held: int,
    parts: Callable[[int], int],
    weights: np.dtype[Any] | None = None,
) -> CountingRead:
    """
    Choose tiles and parts of the read; raise `InsufficientBuffersError` if no tile fits.

    Everything else in memory takes `held` bytes. `parts` is a function of the number of tiles.
    """
    native = dtype.newbyteorder("=")
    weights = None if weights is None else weights.newbyteorder("=")
    side = terms.side(0) or Side(native.itemsize, "C")
    other = side if weights is None else terms.side(1) or Side(weights.itemsize, "C")
    reads = 1 if side.whole or other.whole else _READS
    held += AT_ONCE * _EACH
    each = _item(native, weights) * (reads + 1)
    least = held + min(math.prod(shape) * each, SMALLEST // 8)
    # A smaller budget would be accepted only to run extremely slowly.
    terms.require(least)
    most = (terms.room - held) // each
    tiles = tiling.choose(shape, side, other, most, disk=terms.disk)
    if not isinstance(tiles, Tiling):
        raise InsufficientBuffersError(held + tiles * each)
    steps = len(tiles) if math.prod(shape) else 0
    rows = max(parts(steps), 1)
    ends = [steps * k // rows for k in range(rows + 1)] if steps else [0, 1]
    return CountingRead(name, tiles, steps, native, terms.order(0), reads, ends, weights)


def plan_count(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    kept: tuple[int, np.dtype[Any]],
    count: Count,
    beside: int = 0,
    weights: np.dtype[Any] | None = None,
) -> Callable[[Terms], Program]:
    """
    Return the planner of a count.

    `kept` is the number and dtype of the counts, which begin with zeros and are the result. `count`
    adds a tile to them and needs `beside` bytes in addition. `weights` is the dtype of a second
    input of the same shape: the weight of each element.
    """
    size, kind = kept
    nbytes = math.prod(shape) * _item(dtype, weights)
    inputs = ("input",) if weights is None else ("input", "weights")

    def plan(terms: Terms) -> Program:
        counts = size * kind.itemsize
        read = plan_read(
            name,
            terms,
            shape,
            dtype,
            2 * counts + beside,
            lambda steps: _choose_parts(terms, steps, nbytes, counts),
            weights,
        )
        rows = read.rows
        each = (dtype.itemsize,) if weights is None else (dtype.itemsize, weights.itemsize)
        once = {n: math.prod(shape) * width for n, width in enumerate(each)}
        bound = Bound.of(once, "input once" if weights is None else "inputs once")
        arrays = (*inputs, "result", *("rows",) * (rows > 1))
        schedule = read.schedule(arrays, len(arrays) - 1, kept, count, beside)
        method = f"one pass in {read.method}"
        if rows == 1:
            return Program((schedule,), method, bound)
        return Program(
            (schedule, _plan_sum(name, arrays, (rows, size), kind, terms.room)),
            f"{method}, of whose {rows} parts the counts are added",
            bound,
            (Result((rows, size), kind),),
        )

    return plan


def _choose_parts(terms: Terms, steps: int, nbytes: int, counts: int) -> int:
    """Return the number of parts: the number of ranks if that saves time, otherwise one."""
    rows = min(terms.ranks, steps)
    if rows < 2:
        return 1
    saved = terms.disk.seconds(steps, nbytes) * (1 - 1 / rows)
    moved = terms.disk.seconds(2 * rows, 2 * rows * counts)
    return rows if assumed_costs.SYNCHRONISATION_SECONDS + moved < saved else 1


def _plan_sum(
    name: str, arrays: Sequence[str], shape: tuple[int, int], kind: np.dtype[Any], room: int
) -> Schedule:
    """Plan the second pass, which adds the rows, some columns at a time."""
    rows, size = shape
    last = len(arrays) - 1
    width = max(min(room // ((2 * rows + 1) * kind.itemsize), -(-size // rows)), 1)

    def step(number: int) -> ScheduleStep:
        part = slice(number * width, min((number + 1) * width, size))
        count = part.stop - part.start
        return ScheduleStep(
            (Block(0, (rows, count)), Block(1, (count,))),
            (Load(last, (slice(0, rows), part), 0),),
            (Store(last - 1, (part,), 1),),
            0,
            work=rows * count,
        )

    def kernel(blocks: Sequence[NDArray[Any]]) -> None:
        np.sum(blocks[0], axis=0, out=blocks[1])

    return Schedule(
        name=name,
        arrays=tuple(arrays),
        buffers=(Buffer(rows * width, kind, copies=2), Buffer(width, kind)),
        steps=-(-size // width),
        make=step,
        kernels=(kernel,),
    )
