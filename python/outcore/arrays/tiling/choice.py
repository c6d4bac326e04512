"""
The best tiles to carry an array from one layout to another within a budget.

Problem. Copying needs pieces that fit in memory. A piece that is good for the source (its rows, its
chunks) may be bad for the target (its columns, other chunks): then one side is read or written in tiny
runs, or the same chunk is decoded or encoded many times. So it is with a loop over one array, which is
a copy whose target is as good as its source.
Idea. A tile is made of whole units of both sides, if the budget allows: the least common multiple of
the chunks that must be handled whole, with its edges where both sides have theirs. Where the two have
no edge in common, or their multiple does not fit, it is made of whole units of the target, and grows
where that saves most decoding of the source. From there on all shapes that divide the axes about evenly
are compared, coarsely, by what they have the disk do on both sides (`Side.cost`) and the figures of
that disk: a transposition ends in tiles with long runs on both sides, or in whole rows of one of them,
and a plain copy in slabs. Where one tile is read while another is written, the first read and the last
write have nothing beside them, so tiles are no larger than they have to be. Where the page cache is too
small for short writes to wait in it for their neighbours, edges lie between pages of the target if they
can.

Invariants. Tiles are disjoint but for the overlap that was asked for, cover the array, lie on a regular
grid, and hold at most `most` elements. Whole units of the target are not cut unless the caller allows it
and nothing else fits, so no chunk is written twice. Pure: equal input, equal tiles, which is what lets
an interrupted copy go on.

Reference: the choice of tile shapes follows Thakur, Choudhary, Bordawekar et al. (PASSION), who store
and fetch slabs so that neither array of a transposition is accessed against its grain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.tiling.sides import ASSUMED, Disk, Edges, Shape, Side, fastest_first
from outcore.arrays.tiling.tiles import Tiling, passes
from outcore.base import assumed_costs

__all__ = ["choose", "seconds", "smallest"]

# Shapes of tiles that are compared; fewer where each has to be asked how often it meets chunks.
_POINTS, _CODED_POINTS = 4096, 512
# Up to so many parts of an axis, every number of them is tried; from there on, every so manieth.
_PARTS, _APART = 8, 2**0.25
# Where a chunk has to be cut, a divisor of its length is looked for among so many.
_TRIES = 64


def choose(
    shape: Shape,
    source: Side,
    target: Side,
    most: int,
    *,
    axis: int | None = None,
    overlap: int = 0,
    cut: bool = False,
    disk: Disk = ASSUMED,
    ahead: bool = True,
    ranks: int = 1,
) -> Tiling | int:
    """
    The best tiles of at most `most` elements.

    Parameters
    ----------
    shape
        Of the array.
    source, target
        Where its elements are, and where they go.
    most
        Elements of a tile.
    axis
        Cut across this axis only.
    overlap
        Elements that neighbours share along `axis`.
    cut
        Cut units of the target, too, if nothing else fits.
    disk
        Its figures.
    ahead
        A tile is read while another one is written.
    ranks
        How many share the tiles.

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
    (158, 4096)
    >>> chunks = Side(8, "C", (10, 10, 10), whole=True)
    >>> choose((100, 100, 100), chunks, chunks, 10_000).tile
    (10, 10, 100)
    """
    choice = _Choice(shape, source, target, axis, overlap, disk, ahead, ranks)
    return choice.of_at_most(most, cut)


def seconds(
    tiles: Tiling, source: Side, target: Side, disk: Disk, *, ahead: bool = True, ranks: int = 1
) -> float:
    """What a copy with these tiles takes, beside decoding: what `choose` compares."""
    choice = _Choice(tiles.shape, source, target, None, 0, disk, ahead, ranks)
    return float(choice.seconds(np.array([tiles.tile], np.int64))[0]) if len(tiles) else 0.0


def smallest(
    shape: Shape, source: Side, target: Side, *, axis: int | None = None, overlap: int = 0
) -> int:
    """
    Elements of the smallest tiles with which each unit of both sides is handled once.

    Examples
    --------
    >>> rows, columns = Side(8, "C", (1, 100), whole=True), Side(8, "C", (50, 10), whole=True)
    >>> smallest((100, 100), rows, columns)
    5000
    """
    choice = _Choice(shape, source, target, axis, overlap)
    return choice.volume(choice.whole_unit())


class _Choice:
    """Tiles for one copy. A tile on its way is a list of edges, whose distance is its length."""

    def __init__(
        self,
        shape: Shape,
        source: Side,
        target: Side,
        axis: int | None,
        overlap: int,
        disk: Disk = ASSUMED,
        ahead: bool = True,
        ranks: int = 1,
    ) -> None:
        self.shape, self.source, self.target = shape, source, target
        self.axis, self.overlap = axis, overlap
        self.disk, self.ahead, self.ranks = disk, ahead, ranks
        axes = range(len(shape))
        # Ties go to the axis that runs fastest in the target, so that writing is in order.
        self.fast_first = list(fastest_first(target.order, len(axes)))
        self.handled = [
            (side, grid, math.prod(grid))
            for side, grid in (
                (source, source.chunks if source.whole else None),
                (target, target.chunks if target.whole else None),
                (target, target.shards),
            )
            if grid is not None
        ]
        self.least_work = self.work([(max(n, 1), 0) for n in shape])

    def of_at_most(self, most: int, cut: bool) -> Tiling | int:
        units = list(self.units())
        fitting = [unit for unit in units if self.volume(unit) <= most]
        if fitting:
            # Units that leave nothing to some ranks are no good.
            counts = [len(self.tiling(unit)) for unit in fitting]
            enough = min(self.ranks, counts[-1])
            good = [one for one, n in zip(fitting, counts, strict=True) if n >= enough]
            tile = self.grown(good[0], most)
            if self.target.chunks is not None and self.target.pages is not None and good[1:]:
                # Parts of chunks that are whole pages may be far too long for the source.
                tile = min(tile, self.grown(good[1], most), key=self.seconds_of)
            return self.tiling(tile)
        if cut and (thin := self.thinned(units[-1], most)) is not None:
            return self.tiling(thin)
        return self.volume(self.slab(None) if cut else units[-1])

    # What a tile is made of

    def units(self) -> Iterator[list[Edges]]:
        """The most wanted first; the last is the least that will do."""
        ndim, source, target = len(self.shape), self.source, self.target
        if (paged := self.paged()) is not None:
            yield self.slab(paged)
        must = target.edges(target.chunks if target.whole else None, ndim)
        shard = target.edges(target.shards, ndim) if target.shards else must
        loose = target.edges(target.shards or target.chunks, ndim)
        there = source.edges(source.chunks, ndim)
        yield self.slab(self.common(there, loose))
        yield self.whole_unit()
        yield self.slab(shard)
        yield self.slab(must)

    def paged(self) -> list[Edges] | None:
        """Edges between pages of the target, if all of its rows have them at the same places."""
        ndim, source, target = len(self.shape), self.source, self.target
        if (units := target.page_units(self.shape)) is not None:
            return None if source.whole else [(unit, 0) for unit in units]
        if target.pages is None or source.chunks or not ndim:
            return None
        (page, lead), item = target.pages, target.itemsize
        fast = next(iter(fastest_first(target.order, ndim)))
        if page % item or lead % item or (ndim > 1 and self.shape[fast] * item % page):
            return None
        edges = [(1, 0)] * ndim
        edges[fast] = page // item, lead // item
        return edges

    def whole_unit(self) -> list[Edges]:
        """The least that cuts nothing that is handled whole."""
        ndim, source, target = len(self.shape), self.source, self.target
        coded = source.edges(source.chunks if source.whole else None, ndim)
        whole = target.edges(target.shards or (target.chunks if target.whole else None), ndim)
        return self.slab(self.common(coded, whole))

    def common(self, some: list[Edges], others: list[Edges]) -> list[Edges]:
        """The edges that both have; the ends of the axis where they have none in common."""
        axes = zip(some, others, self.shape, strict=True)
        return [_common(one, other) or (max(n, 1), 0) for one, other, n in axes]

    def slab(self, wanted: list[Edges] | None) -> list[Edges]:
        """A unit with these edges (anywhere, if None) that is as long as it has to be, and no longer."""
        found = []
        for d, length in enumerate(self.shape):
            unit, start = (1, 0) if wanted is None else wanted[d]
            if self.axis not in (None, d):
                unit, start = max(length, 1), 0
            elif d == self.axis and unit > 1 and self.overlap:
                # The first tile has no neighbour before it: it alone holds what is shared.
                unit *= -(-(self.overlap + 1) // unit)
            edge = unit - start
            if edge >= length:
                unit, start = max(length, 1), 0
            elif edge + unit >= length:
                # One edge only: what lies on either side of it may be less than a unit.
                unit = max(edge, length - edge)
                start = unit - edge
            found.append((unit, start))
        return found

    # How good a tile is

    def volume(self, tile: list[Edges]) -> int:
        """Elements of the largest tile."""
        sizes = [size for size, _ in tile]
        if self.axis is not None and self.overlap:
            length = max(self.shape[self.axis], 1)
            sizes[self.axis] = min(sizes[self.axis] + self.overlap, length)
        return math.prod(sizes)

    def volumes(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Elements of the largest tiles of these shapes, a row for each; exact up to 2**53."""
        lengths = sizes.astype(np.float64)
        if self.axis is not None and self.overlap:
            length = max(self.shape[self.axis], 1)
            lengths[:, self.axis] = np.minimum(lengths[:, self.axis] + self.overlap, length)
        volumes: NDArray[np.float64] = lengths.prod(axis=1)
        return volumes

    def work(self, tile: list[Edges]) -> int:
        """Elements of the units that are handled whole, each as often as it is."""
        if not self.handled:
            return 0
        tiles = self.tiling(tile)
        return sum(passes(tiles, grid, side) * size for side, grid, size in self.handled)

    def seconds(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """What copies with tiles of these shapes take, a row for each, if nothing is decoded."""
        took = np.zeros(len(sizes))
        for side, write in ((self.source, False), (self.target, True)):
            if not side.whole:
                took += side.cost(self.shape, sizes, self.disk.gap, write=write).seconds(self.disk)
        tiles = self.count(sizes)
        if self.axis is not None and self.overlap:
            took *= 1 + self.overlap / sizes[:, self.axis]
        # The first read and the last write have nothing beside them, if others have.
        beside = 1 / tiles if self.ahead else 0.0
        return (took * (1 + beside) + tiles * assumed_costs.STEP_SECONDS) * self.longest(tiles)

    def seconds_of(self, tile: list[Edges]) -> float:
        """What a copy with this tile takes, if nothing is decoded."""
        return float(self.seconds(np.array([[size for size, _ in tile]], np.int64))[0])

    def longest(self, tiles: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the rank with the most of so many tiles has, as a share of all."""
        share: NDArray[np.float64] = np.ceil(tiles / self.ranks) / tiles
        return share

    # Larger and smaller

    def grown(self, unit: list[Edges], most: int) -> list[Edges]:
        tile, unit = list(unit), list(unit)
        while self.handled and self.work(tile) > self.least_work:
            better = self.with_less_work(tile, unit, most)
            if better is None:
                break
            axis, edges, wider = better
            larger = self.replaced(tile, axis, edges)
            if len(self.tiling(larger)) < min(self.ranks, len(self.tiling(tile))):
                break
            tile, unit[axis] = larger, wider
        if not all(self.shape):
            return tile
        tile = self.searched(tile, unit, most)
        return [_even(*one) for one in zip(self.shape, tile, unit, strict=True)]

    def searched(self, tile: list[Edges], unit: list[Edges], most: int) -> list[Edges]:
        """The best of tiles that are no smaller, in whole units."""
        sizes = self.points(tile, unit, most)
        tiles = self.count(sizes)
        # Each rank shall have a tile; then what is decoded or encoded counts, and then the rest.
        idle = np.maximum(self.ranks - tiles, 0)
        work = np.zeros(len(sizes))
        if self.handled:
            work[:] = [self.work(self.of_sizes(tile, unit, row)) for row in sizes]
        best = np.lexsort((self.seconds(sizes), work * self.longest(tiles), idle))[0]
        return self.of_sizes(tile, unit, sizes[best])

    def count(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many tiles there are of each shape."""
        grid = -(-np.array(self.shape, np.int64) // sizes)
        tiles: NDArray[np.float64] = np.prod(grid, axis=1, dtype=np.float64)
        return tiles

    def of_sizes(
        self, tile: list[Edges], unit: list[Edges], sizes: NDArray[np.int64]
    ) -> list[Edges]:
        """A tile of these lengths, with its edges where units have them."""
        for axis, size in enumerate(sizes.tolist()):
            if size > tile[axis][0]:
                tile = self.replaced(tile, axis, (size, unit[axis][1]))
        return tile

    def points(self, tile: list[Edges], unit: list[Edges], most: int) -> NDArray[np.int64]:
        """Lengths of tiles to compare, a row for each; all hold at most `most` elements."""
        ndim = len(self.shape)
        if not ndim:
            return np.zeros((1, 0), np.int64)
        lengths = [self.lengths(axis, tile, unit) for axis in range(ndim)]
        many = sum(len(some) > 1 for some in lengths)
        limit = (_CODED_POINTS if self.handled else _POINTS) ** (1 / max(many, 1))
        lengths = [_thinned(some, max(int(limit), 2)) for some in lengths]
        rows = set(product(*lengths))
        # Along each axis also as much as there is room for beside the others.
        for axis in range(ndim):
            others = product(*(some for n, some in enumerate(lengths) if n != axis))
            rows.update(
                (*row[:axis], self.filling(axis, row, tile, unit, most), *row[axis:])
                for row in others
            )
        smallest = tuple(size for size, _ in tile)
        sizes = np.array([*(rows - {smallest}), smallest], np.int64).reshape(-1, ndim)
        fitting = self.volumes(sizes) <= most
        fitting[-1] = True
        sizes = sizes[fitting]
        # Of equals the one whose tiles are longest along the axes that run fastest in the target.
        return sizes[np.lexsort([-sizes[:, axis] for axis in reversed(self.fast_first)])]

    def lengths(self, axis: int, tile: list[Edges], unit: list[Edges]) -> list[int]:
        """Of a tile along an axis, from all of it downwards: its parts are about equal."""
        length, least, step = self.shape[axis], tile[axis][0], unit[axis][0]
        found: list[int] = []
        parts = 1.0
        while length > least:
            size = -(-length // int(parts))
            size = min(-(-size // step) * step, length)
            if size <= least:
                break
            if not found or size < found[-1]:
                found.append(size)
            parts = parts + 1 if parts < _PARTS else parts * _APART
        return [*found, min(least, length)]

    def filling(
        self, axis: int, others: tuple[int, ...], tile: list[Edges], unit: list[Edges], most: int
    ) -> int:
        """The longest even part of an axis that fits beside these lengths of the others."""
        length, least = self.shape[axis], tile[axis][0]
        shared = self.overlap if axis == self.axis else 0
        beside = list(others)
        if self.axis is not None and self.overlap and axis != self.axis:
            number = self.axis - (self.axis > axis)
            beside[number] = min(beside[number] + self.overlap, self.shape[self.axis])
        room = most // max(math.prod(beside), 1) - shared
        if room >= length:
            return length
        size = max(room // unit[axis][0] * unit[axis][0], 1)
        return max(_even(length, (size, unit[axis][1]), unit[axis])[0], min(least, length))

    def longer(self, tile: list[Edges], axis: int, unit: Edges, most: int) -> list[Edges]:
        """About twice as long along an axis, in whole units, if that fits."""
        now, length = tile[axis][0], self.shape[axis]
        shared = self.overlap if axis == self.axis else 0
        others = self.volume(tile) // min(now + shared, max(length, 1))
        room = most // others - shared
        wanted = min(now * 2, length)
        if wanted > room:
            wanted = min(length, max(now, room // unit[0] * unit[0]))
        return self.replaced(tile, axis, (wanted, unit[1]))

    def replaced(self, tile: list[Edges], axis: int, edges: Edges) -> list[Edges]:
        larger = list(tile)
        whole = edges[0] >= self.shape[axis]
        larger[axis] = (max(self.shape[axis], 1), 0) if whole else edges
        return larger

    def with_less_work(
        self, tile: list[Edges], unit: list[Edges], most: int
    ) -> tuple[int, Edges, Edges] | None:
        """The axis, new edges and new unit that save most work for what they add to the tile."""
        ndim, now = len(self.shape), self.work(tile)
        coded = self.source.edges(self.source.chunks if self.source.whole else None, ndim)
        best, found = 0.0, None
        for axis in self.fast_first:
            both = _common(coded[axis], unit[axis])
            choices = [(self.longer(tile, axis, unit[axis], most)[axis], unit[axis])]
            choices += [(both, both)] if both else []
            choices.append(((self.shape[axis], 0), unit[axis]))
            for edges, units in choices:
                larger = self.replaced(tile, axis, edges)
                if not self.volume(tile) < self.volume(larger) <= most:
                    continue
                saved = (now - self.work(larger)) / math.log(
                    self.volume(larger) / self.volume(tile)
                )
                if saved > best:
                    best, found = saved, (axis, larger[axis], units)
        return found

    def thinned(self, unit: list[Edges], most: int) -> list[Edges] | None:
        """A part of a unit that fits, cut across its slow axes first; None if there is none."""
        tile = list(unit)
        for axis in reversed(self.fast_first) if self.axis is None else [self.axis]:
            now = tile[axis][0]
            shared = self.overlap if axis == self.axis else 0
            others = self.volume(tile) // min(now + shared, max(self.shape[axis], 1))
            room = most // others - shared
            if room >= now:
                break
            size = max(room, 1)
            cuts = {size, -(-now // -(-now // size)), _divisor(now, size)}
            # As long as it can be, or such that its edges are those of units now and then.
            tries = [self.replaced(tile, axis, (n, unit[axis][1] % n)) for n in sorted(cuts)]
            tile = min(reversed(tries), key=self.work)
        return tile if self.volume(tile) <= most else None

    def tiling(self, tile: list[Edges]) -> Tiling:
        sizes = tuple(size for size, _ in tile)
        first = [start for _, start in tile]
        overlap = [0] * len(tile)
        if self.axis is not None and self.overlap and sizes[self.axis] < self.shape[self.axis]:
            overlap[self.axis] = self.overlap
            if not self.handled or sizes[self.axis] <= self.overlap:
                # The first tile holds all that it shares with the next one, and is as long as others.
                first[self.axis] = -self.overlap
        return Tiling(
            self.shape,
            sizes,
            self.target.order,
            tuple(first) if any(first) else None,
            tuple(overlap) if any(overlap) else None,
        )


def _common(one: Edges, other: Edges) -> Edges | None:
    """The edges that both have, or None."""
    (size, start), (size2, start2) = one, other
    same = math.gcd(size, size2)
    if (start2 - start) % same:
        return None
    # Chinese remainder theorem.
    rest = size2 // same
    times = (start2 - start) // same * pow(size // same, -1, rest) % rest
    whole = size * rest
    return whole, (start + size * times) % whole


def _divisor(length: int, most: int) -> int:
    """A large divisor of `length` that is at most `most`, if one is found soon."""
    parts = -(-length // most)
    return next((length // n for n in range(parts, parts + _TRIES) if length % n == 0), most)


def _thinned(lengths: list[int], most: int) -> list[int]:
    """At most so many of them, the first and the last among them."""
    if len(lengths) <= most:
        return lengths
    return [lengths[k * (len(lengths) - 1) // (most - 1)] for k in range(most)]


def _even(length: int, tile: Edges, unit: Edges) -> Edges:
    """Tiles of about equal length instead of a small last one; never larger than `tile`."""
    size, start = tile
    if length <= size:
        return tile
    count = -(-(length + start) // size)
    fair = -(-(length + start) // count)
    return min(size, -(-fair // unit[0]) * unit[0]), start
