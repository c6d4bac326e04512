"""
Tiles of a pass over an array that is reduced along some axes: their order, and the fastest shapes.

Problem. Steps that need the state of others must follow them. Reading columns of a file that stores
rows causes tiny requests.
Idea. Tiles of one chain follow each other: all along the reduced axes, or all of one segment of the
first of these. Shapes of tiles are compared by the estimated time to read them, by the measured
speed of the disk.

Invariants. Each element is in one tile. A tile is a pure function of its number.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence

from outcore.arrays.schedule import Section
from outcore.arrays.tiling import Side
from outcore.base import assumed_costs
from outcore.compute.jobs import DiskSpeed

__all__ = ["Grid", "compute_share", "count_requests", "list_tile_costs"]

Shape = tuple[int, ...]

# Maximum number of tile shapes that are compared.
_SHAPES = 500
# Buffers consist of pages: a smaller tile saves nothing.
_PAGE = 4096


class Grid:
    """
    Tiles of an array in processing order: tiles along `axes` follow each other, the last axis
    fastest.

    `order` is that of the outer loops over the other axes, ``"C"`` or ``"F"``. A new chain begins
    after `segment` indices along the first of `axes`, unless it is 0.
    """

    def __init__(
        self,
        shape: Shape,
        tile: Shape,
        axes: Sequence[int],
        order: str,
        *,
        keepdims: bool = False,
        segment: int = 0,
    ) -> None:
        self.shape, self.tile_shape, self.axes, self.keepdims = shape, tile, axes, keepdims
        self.order = order
        kept = [k for k in range(len(shape)) if k not in axes]
        if order == "F":
            kept.reverse()
        # Axes from the outermost loop to the innermost.
        self.loops = [*kept, *axes]
        self.counts = [-(-shape[k] // tile[k]) for k in self.loops]
        #: Number of indices in a segment, and for each segment the number of tiles along the axis
        #: before it.
        self.segment, self.before = segment, [0]
        if segment:
            n, step = shape[axes[0]], tile[axes[0]]
            for low in range(0, n, segment):
                high = min(low + segment, n)
                self.before.append(self.before[-1] - (-high // step) - low // step)
            self.counts[len(kept)] = self.before[-1]
        self.steps = math.prod(self.counts)
        #: Number of tiles of one index of the first axis, and number of all tiles.
        self.each = math.prod(self.counts[len(kept) + 1 :])
        self.pieces = math.prod(self.counts[len(kept) :])

    def tile(self, number: int) -> tuple[Section, bool, bool]:
        """Return a tile, and whether it is the first and the last of its chain."""
        section = [slice(0)] * len(self.shape)
        piece, rest = number % self.pieces, number
        first, last = piece == 0, piece == self.pieces - 1
        for axis, count in zip(reversed(self.loops), reversed(self.counts), strict=True):
            rest, k = divmod(rest, count)
            step, low, high = self.tile_shape[axis], 0, self.shape[axis]
            if self.segment and axis == self.axes[0]:
                # Edges are at multiples of the tile's length, as in the file, and at the ends of
                # segments.
                n = bisect_right(self.before, k) - 1
                low, high = n * self.segment, min((n + 1) * self.segment, high)
                first = piece == self.before[n] * self.each
                last = piece == self.before[n + 1] * self.each - 1
                k += low // step - self.before[n]
            section[axis] = slice(max(low, k * step), min((k + 1) * step, high))
        return tuple(section), first, last

    def result(self, section: Section) -> Section:
        """Return the section of the results that belongs to a tile."""
        if self.keepdims:
            return tuple(slice(0, 1) if k in self.axes else p for k, p in enumerate(section))
        return tuple(part for k, part in enumerate(section) if k not in self.axes)


def compute_share(chains: int, ranks: int) -> float:
    """Compute the fraction of equal chains that the rank with the most of them has."""
    return -(-chains // ranks) / chains


def list_tile_costs(
    shape: Shape, sides: Sequence[Side], disk: DiskSpeed, most: Shape | None = None
) -> list[tuple[float, Shape]]:
    """
    List seconds and shapes of tiles: fastest first, and the smaller first of equally fast ones.

    `most` limits the length of a tile along each axis.
    """
    most = shape if most is None else most
    units = [
        max((side.chunks[k] for side in sides if side.chunks), default=1) for k in range(len(shape))
    ]
    factor = 2
    while True:
        lengths = [_lengths(n, unit, factor) for n, unit in zip(most, units, strict=True)]
        if math.prod(map(len, lengths)) <= _SHAPES or factor > 2**32:
            break
        factor *= factor
    item = sum(side.itemsize for side in sides)

    def price(tile: Shape) -> float:
        steps = math.prod(-(-n // t) for n, t in zip(shape, tile, strict=True))
        seconds = steps * assumed_costs.STEP_SECONDS + math.prod(tile) * item / disk.rate
        for side in sides:
            seconds += disk.seconds(*count_requests(shape, tile, side, disk.gap, steps))
        return seconds

    least = min(_PAGE // item, math.prod(most))
    tiles = [t for t in itertools.product(*lengths) if math.prod(t) >= least]
    return sorted(((price(t), t) for t in tiles), key=lambda one: (one[0], math.prod(one[1])))


def _lengths(length: int, unit: int, factor: int) -> list[int]:
    """List tile lengths along an axis: the axis, chunks times powers of the factor, parts of a chunk."""
    found = {length}
    n = min(unit, length)
    while n < length:
        found.add(n)
        n *= factor
    n = min(unit, length) // factor
    while n > 1:
        found.add(n)
        n //= factor
    if length > 1:
        found.add(1)
    return sorted(found)


def count_requests(shape: Shape, tile: Shape, side: Side, gap: int, steps: int) -> tuple[int, int]:
    """Count requests, and bytes, of reading all tiles."""
    if side.chunks is not None:
        touched = 1
        for n, t, c in zip(shape, tile, side.chunks, strict=True):
            edges = -(-n // t) - 1
            touched *= -(-n // c) + edges - edges * t // math.lcm(t, c)
        chunk = math.prod(side.chunks) * side.itemsize
        if side.whole:
            return touched, touched * chunk
        return touched, math.prod(shape) * side.itemsize
    run, requests, nbytes = side.itemsize, 1, side.itemsize
    inside, broken = side.itemsize, False
    pairs = list(zip(shape, tile, strict=True))
    for n, t in pairs if side.order == "F" else reversed(pairs):
        if broken and (inside - run) > gap:
            requests, nbytes = requests * t, nbytes * t
        else:
            # One request reads across the gaps.
            nbytes = nbytes * t if not broken else inside * (t - 1) + nbytes
            run = nbytes
        broken = broken or t < n
        inside *= n
    return steps * requests, steps * nbytes
