"""
One read of an array whose elements only have to be counted, in any order.

Idea. Tiles are those that suit the file; what is counted is kept from the first step to the last one,
which stores it. Parts of a tile are counted one after the other, so that what NumPy makes on the way is
small and known.

Invariants. Counts do not depend on tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import tiling
from outcore.jobs import SMALLEST, Bound, Program, Terms, TooLittle
from outcore.schedule import Block, Buffer, Load, Schedule, Section, Step, Store
from outcore.tiling import Side, Tiling

__all__ = ["AT_ONCE", "counting", "parts"]

#: Elements that are counted at a time.
AT_ONCE = 2**13
# Bytes that NumPy takes on the way, for each of them.
_EACH = 80
_READS = 2

#: From a tile, its section and what was kept before to what is kept.
Count = Callable[[NDArray[Any], Section, NDArray[Any]], None]


def parts(tile: NDArray[Any], length: int = AT_ONCE) -> Sequence[NDArray[Any]]:
    """The elements of a tile, so many at a time."""
    flat = tile.ravel(order="K")
    return [flat[low : low + length] for low in range(0, flat.size, length)]


def counting(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    kept: tuple[int, np.dtype[Any]],
    count: Count,
    beside: int = 0,
) -> Callable[[Terms], Program]:
    """
    How to plan it.

    Parameters
    ----------
    name
        Of the operation.
    shape, dtype
        Of the input.
    kept
        Elements and dtype of what is kept, which is the result. It begins with zeros.
    count
        What is done with a tile.
    beside
        Bytes that it takes besides.
    """
    native = dtype.newbyteorder("=")
    size, kind = kept

    def plan(terms: Terms) -> Program:
        side = terms.side(0) or Side(native.itemsize, "C")
        reads = 1 if side.whole else _READS
        held = 2 * size * kind.itemsize + AT_ONCE * _EACH + beside
        each = native.itemsize * (reads + 1)
        least = held + min(math.prod(shape) * each, SMALLEST // 8)
        if terms.room < least:
            # A budget for less would be no favour: it would take for ever.
            raise TooLittle(least)
        tiles = tiling.choose(shape, side, side, (terms.room - held) // each)
        if not isinstance(tiles, Tiling):
            raise TooLittle(held + tiles * each)
        steps = len(tiles) if math.prod(shape) else 0

        def step(number: int) -> Step:
            last = number == max(steps, 1) - 1
            blocks = [Block(0, (size,)), Block(1, (held - 2 * size * kind.itemsize,))]
            if last:
                blocks.append(Block(2, (size,)))
            stores = (Store(1, (slice(0, size),), 2),) if last else ()
            if not steps:
                return Step(tuple(blocks), (), stores, 0, ((), True, last))
            section = tiles.key(number)
            inner = tuple(part.stop - part.start for part in section)
            blocks.append(Block(3, inner))
            return Step(
                tuple(blocks),
                (Load(0, section, len(blocks) - 1),),
                stores,
                0,
                (section, number == 0, last),
                continues=number > 0,
                work=math.prod(inner),
            )

        def kernel(
            blocks: Sequence[NDArray[Any]], section: Section, first: bool, last: bool
        ) -> None:
            if first:
                blocks[0][...] = 0
            if steps:
                count(blocks[-1], section, blocks[0])
            if last:
                blocks[2][...] = blocks[0]

        schedule = Schedule(
            name=name,
            arrays=("input", "result"),
            buffers=(
                Buffer(size, kind, kept=True),
                Buffer(held - 2 * size * kind.itemsize, np.dtype(np.uint8), kept=True),
                Buffer(size, kind),
                Buffer(max(math.prod(tiles.tile), 1), native, terms.order(0), copies=reads + 1),
            ),
            steps=max(steps, 1),
            make=step,
            kernels=(kernel,),
            reading=reads,
        )
        runs = " x ".join(map(str, tiles.tile)) or "one element"
        nbytes = math.prod(shape) * native.itemsize
        return Program(
            (schedule,),
            f"one pass in {schedule.steps} tiles of {runs}",
            Bound(nbytes, "input once"),
        )

    return plan
