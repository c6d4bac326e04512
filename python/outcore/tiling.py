"""
Tiles: how to carry an array from one layout to another within a budget.

Problem. Copying needs pieces that fit in memory. A piece that is good for the source (its rows, its
chunks) may be bad for the target (its columns, other chunks): then one side is read or written in tiny
runs, or the same chunk is decoded or encoded many times.
Idea. A tile is made of whole units of both sides, if the budget allows: the least common multiple of
the chunks that must be handled whole. From there it grows along the axis that lengthens the worse of the
two sides' runs, so that a transposition ends in tiles with long runs on both sides and a plain copy in
slabs. Runs that are read count for less than runs that are written: a short read is a short request to
the disk, while short writes wait in the page cache for their neighbours. It stops when both runs are
long and the tile is large enough: more would only delay the first write.

Invariants. Tiles are disjoint, cover the array, lie on a regular grid, and hold at most `most`
elements. Whole units of the target are never cut, so no chunk is written twice. Pure: equal input,
equal tiles, which is what lets an interrupted copy go on.

Reference: the choice of tile shapes follows Thakur, Choudhary, Bordawekar et al. (PASSION), who store
and fetch slabs so that neither array of a transposition is accessed against its grain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore.formats.layout import ArrayInfo, Chunked, ShardSource

__all__ = ["Side", "Tiling", "choose", "grid_of"]

Shape = tuple[int, ...]

# Runs and tiles larger than this gain nothing: a request of 1 MiB is at the disk's full rate.
_LONG_RUN = 2**20
_LARGE_TILE = 16 * 2**20
# Runs that are read are so many times as long as those that are written, where both cannot be long.
# Measured at a budget of 256 MiB: 21 % less time than equal runs in smaller tiles
# (bench/figures/convert.md).
_READ_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Side:
    """
    One end of a copy.

    Parameters
    ----------
    itemsize
        Bytes of an element there.
    order
        ``"C"`` or ``"F"``.
    chunks
        Chunk grid, or None.
    whole
        Chunks pass through a codec: any part of one costs all of it.
    shards
        Shape of a shard in elements, or None. Shards are written whole if that is possible.
    """

    itemsize: int
    order: str
    chunks: Shape | None = None
    whole: bool = False
    shards: Shape | None = None

    @classmethod
    def of(cls, info: ArrayInfo) -> Side:
        """The side that an array on disk presents."""
        layout = info.layout
        if not isinstance(layout, Chunked):
            return cls(info.dtype.itemsize, info.order)
        shards = None
        if isinstance(layout.source, ShardSource):
            pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
            shards = tuple(chunk * count for chunk, count in pairs)
        whole = bool(layout.codecs) or shards is not None
        return cls(info.dtype.itemsize, info.order, layout.chunks, whole, shards)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk that has to be held whole; 0 if there is none."""
        return math.prod(self.chunks) * self.itemsize if self.chunks and self.whole else 0

    def run(self, tile: Sequence[int], shape: Sequence[int]) -> int:
        """Bytes that follow each other in the file when `tile` is read or written."""
        if self.whole:
            return max(self.chunk_bytes, _LONG_RUN)
        full = self.chunks or tuple(shape)
        length = self.itemsize
        axes = range(len(shape)) if self.order == "F" else reversed(range(len(shape)))
        for axis in axes:
            length *= min(tile[axis], full[axis])
            if tile[axis] < full[axis]:
                break
        return length


@dataclass(frozen=True, slots=True)
class Tiling:
    """A regular grid of tiles over an array; tile `k` counts in the order of the target."""

    shape: Shape
    tile: Shape
    order: str

    @property
    def grid(self) -> Shape:
        """Tiles along each axis."""
        return grid_of(self.shape, self.tile)

    def __len__(self) -> int:
        return math.prod(self.grid)

    @property
    def _fastest_first(self) -> range:
        """The axes, in the order in which tiles count along them."""
        ndim = len(self.shape)
        return range(ndim) if self.order == "F" else range(ndim - 1, -1, -1)

    def key(self, number: int) -> tuple[slice, ...]:
        """Where tile `number` lies."""
        at = [0] * len(self.shape)
        for axis in self._fastest_first:
            number, at[axis] = divmod(number, self.grid[axis])
        corners = zip(at, self.tile, self.shape, strict=True)
        return tuple(slice(i * n, min((i + 1) * n, length)) for i, n, length in corners)

    def holding(self, unit: Shape, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Of each unit of another grid, the number of the tile in which it begins.

        `unit` is the shape of one, `places` count them in C order.
        """
        numbers, step = np.zeros(len(places), np.int64), 1
        if not len(places) or not self.shape:
            return numbers
        cells = np.unravel_index(places, grid_of(self.shape, unit))
        for axis in self._fastest_first:
            numbers += cells[axis] * unit[axis] // self.tile[axis] * step
            step *= self.grid[axis]
        return numbers


def grid_of(shape: Sequence[int], tile: Sequence[int]) -> Shape:
    """Number of tiles along each axis."""
    return tuple(-(-length // size) for length, size in zip(shape, tile, strict=True))


def choose(shape: Shape, source: Side, target: Side, most: int) -> Tiling | int:
    """
    The best tiles of at most `most` elements.

    Returns
    -------
    Tiling or int
        The tiles; if not even the smallest fits, the number of elements that it holds.

    Examples
    --------
    >>> row, column = Side(8, "C"), Side(8, "F")
    >>> choose((4096, 4096), row, column, 1 << 20).tile
    (512, 2048)
    >>> choose((4096, 4096), row, row, 1 << 20).tile
    (256, 4096)
    """
    smallest = 0
    for unit in _units(shape, source, target):
        smallest = math.prod(unit)
        if smallest <= most:
            return Tiling(shape, _grow(shape, unit, source, target, most), target.order)
    return smallest


def _units(shape: Shape, source: Side, target: Side) -> Iterator[Shape]:
    """What a tile is made of, the most wanted first; the last is the least that will do."""
    ones = (1,) * len(shape)
    must = (target.chunks if target.whole else None) or ones
    shard = target.shards or must
    loose = target.chunks or ones
    there = source.chunks or ones
    for wish in (
        _lcm(there, target.shards or loose),
        _lcm(there if source.whole else ones, shard),
        shard,
        must,
    ):
        yield tuple(min(n, max(length, 1)) for n, length in zip(wish, shape, strict=True))


def _lcm(a: Shape, b: Shape) -> Shape:
    return tuple(math.lcm(m, n) for m, n in zip(a, b, strict=True))


def _grow(shape: Shape, unit: Shape, source: Side, target: Side, most: int) -> Shape:
    tile = list(unit)
    item = max(source.itemsize, target.itemsize)
    axes = range(len(shape))
    # Ties go to the axis that runs fastest in the target, so that writing is in order.
    preferred = list(axes) if target.order == "F" else list(reversed(axes))

    def runs(candidate: list[int]) -> tuple[int, int]:
        here = min(source.run(candidate, shape), _LONG_RUN)
        there = min(target.run(candidate, shape), _LONG_RUN)
        return min(here, there * _READ_LENGTH), here + there * _READ_LENGTH

    def long(candidate: list[int]) -> bool:
        return min(side.run(candidate, shape) for side in (source, target)) >= _LONG_RUN

    while True:
        size = math.prod(tile)
        if long(tile) and size * item >= _LARGE_TILE:
            break
        best: list[int] | None = None
        for axis in preferred:
            larger = list(tile)
            larger[axis] = _more(tile[axis], unit[axis], shape[axis], most // (size // tile[axis]))
            if larger[axis] > tile[axis] and (best is None or runs(larger) > runs(best)):
                best = larger
        if best is None:
            break
        tile = best
    return tuple(_even(length, size, n) for length, size, n in zip(shape, tile, unit, strict=True))


def _more(now: int, unit: int, length: int, most: int) -> int:
    """About twice as many elements along an axis, in whole units, at most `most`."""
    wanted = min(now * 2, length)
    if wanted <= most:
        return wanted
    return min(length, max(now, most // unit * unit))


def _even(length: int, size: int, unit: int) -> int:
    """Tiles of about equal length instead of a small last one; never larger than `size`."""
    if length <= size:
        return size
    count = -(-length // size)
    fair = -(-length // count)
    return min(size, -(-fair // unit) * unit)
