"""
Tiles of an array: the position of each, and the chunks that they touch.

Invariants: tiles are disjoint except for the requested overlap, cover the array, and form a regular
grid; intersections are counted by arithmetic, without a loop over tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.tiling.sides import Cells, Order, Shape, Side, order_axes

__all__ = ["Tiling", "count_passes", "count_tiles", "cut_slabs"]


@dataclass(frozen=True, slots=True)
class Tiling:
    """A regular grid of tiles over an array, numbered in the order of the target."""

    shape: Shape
    #: Distance from one tile to the next, and shape of a tile except for `first` and `overlap`.
    tile: Shape
    #: Order of the numbers: "C", "F", or the axes from the fastest to the slowest.
    order: Order
    #: Per axis, the offset of index 0 after the edge of a tile: the first tile is smaller by this
    #: length, or larger if it is negative. None: 0.
    first: Shape | None = None
    #: Per axis, number of elements that a tile shares with the previous one. None: 0.
    overlap: Shape | None = None

    @property
    def grid(self) -> Shape:
        """Number of tiles along each axis."""
        if self.first is None:
            return count_tiles(self.shape, self.tile)
        axes = zip(self.shape, self.tile, self.first, strict=True)
        return tuple(
            max(-(-(length + first) // size), min(length, 1)) for length, size, first in axes
        )

    @property
    def largest(self) -> Shape:
        """Shape that is large enough for any tile."""
        none = (0,) * len(self.shape)
        axes = zip(self.shape, self.tile, self.first or none, self.overlap or none, strict=True)
        return tuple(
            min(length, size + max(overlap, -first)) for length, size, first, overlap in axes
        )

    def __len__(self) -> int:
        return math.prod(self.grid)

    @property
    def _fastest_first(self) -> Sequence[int]:
        """Axes in the order in which tile numbers vary along them."""
        return order_axes(self.order, len(self.shape))

    def key(self, number: int) -> tuple[slice, ...]:
        """Return the position of tile `number`."""
        at, grid = [0] * len(self.shape), self.grid
        for axis in self._fastest_first:
            number, at[axis] = divmod(number, grid[axis])
        return tuple(slice(*self.ends(axis, k)) for axis, k in enumerate(at))

    def ends(self, axis: int, k: int) -> tuple[int, int]:
        """Return the first index, and one past the last, of tiles with number `k` along an axis."""
        size = self.tile[axis]
        edge = k * size - (self.first[axis] if self.first else 0)
        begin = edge - (self.overlap[axis] if self.overlap else 0) if k else 0
        return max(begin, 0), min(edge + size, self.shape[axis])

    def holding(self, unit: Shape, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Return the number of the tile in which each unit of another grid begins.

        `unit` is the shape of a unit; `places` are the numbers of units in C order.
        """
        numbers, step = np.zeros(len(places), np.int64), 1
        if not len(places) or not self.shape:
            return numbers
        cells = np.unravel_index(places, count_tiles(self.shape, unit))
        for axis in self._fastest_first:
            first = self.first[axis] if self.first else 0
            tiles = (cells[axis] * unit[axis] + first) // self.tile[axis]
            numbers += np.clip(tiles, 0, self.grid[axis] - 1) * step
            step *= self.grid[axis]
        return numbers

    def intersections(self, axis: int, cells: Cells, *, again: bool = True) -> int:
        """
        Count the pairs of a tile and a cell (such as a chunk) that intersect, along an axis.

        With `again`, also count elements that a tile shares with the previous one.

        Examples
        --------
        >>> [Tiling((100,), (size,), "C").intersections(0, (10, 0, 1)) for size in (30, 25)]
        [10, 12]
        """
        tiles, length = self.grid[axis], self.shape[axis]
        if tiles == 0:
            return 0
        size, (unit, start, step) = self.tile[axis], cells
        edge = size - (self.first[axis] if self.first else 0)  # start of the second tile
        shared = self.overlap[axis] if self.overlap and again else 0
        # Cells before the cell of the last index of each tile, minus those before the cell of its
        # first.
        last = _sum_floors(tiles - 1, size * step, (edge - 1) * step + start, unit)
        last += ((length - 1) * step + start) // unit
        # The second and later tiles that begin at index 0.
        cut = min(max(-(-(shared - edge) // size), 0), tiles - 1)
        begin = (edge + cut * size - shared) * step + start
        before = _sum_floors(tiles - 1 - cut, size * step, begin, unit)
        return last - before - (1 + cut) * (start // unit) + tiles


def _sum_floors(count: int, step: int, first: int, unit: int) -> int:
    """Return the sum of ``(k * step + first) // unit`` for all `k` below `count`, without a loop."""
    total = 0
    while count > 0:
        whole, step = divmod(step, unit)
        more, first = divmod(first, unit)
        total += whole * count * (count - 1) // 2 + more * count
        # The remaining sum counts points below a line: exchange its axes.
        end = step * count + first
        count, first, step, unit = end // unit, end % unit, unit, step
    return total


def count_tiles(shape: Sequence[int], tile: Sequence[int]) -> Shape:
    """Return the number of tiles along each axis."""
    return tuple(-(-length // size) for length, size in zip(shape, tile, strict=True))


def cut_slabs(shape: Shape, most: int, order: Order = "C") -> Tiling:
    """
    Return tiles that are runs of an array, of at most `most` elements: whole axes, fast ones first.

    A slab has at least one element. With the order ``"C"`` the elements of each are contiguous in C
    order.

    Examples
    --------
    >>> cut_slabs((5, 4, 3), 7).tile
    (1, 2, 3)
    >>> cut_slabs((5, 4, 3), 30, "F").tile
    (5, 4, 1)
    """
    axes = list(order_axes(order, len(shape)))
    return Tiling(shape, tuple(_core.slab_shape(shape, axes, most)), order)


def count_passes(tiles: Tiling, grid: Shape | None, side: Side) -> int:
    """
    Count how often units of `grid` (chunks or shards of `side`) are handled with tiles in order.

    Elements that a tile shares with the previous one along the fastest axis are not handled again.
    """
    ndim, many = len(tiles.shape), [n > 1 for n in tiles.grid]
    fast = order_axes(tiles.order, ndim)
    kept = next((axis for axis in fast if many[axis]), None)
    counts = (
        tiles.intersections(axis, cells, again=axis != kept)
        for axis, cells in enumerate(side.cells(grid, ndim))
    )
    return math.prod(counts)
