"""
The best tiles for copying an array from one layout to another within a budget.

Problem: a copy needs pieces that fit in memory. A piece that suits the source (its rows, its chunks)
may not suit the target (its columns, other chunks): then one side is read or written in tiny runs, or
the same chunk is decoded or encoded many times. The same applies to a loop over one array, which is a
copy whose target has the layout of its source.
Approach: a tile consists of whole units of both sides, if the budget allows: the least common multiple
of the chunks that must be handled whole, with edges at edges of both sides. If the two have no edge in
common, or their multiple does not fit, the tile consists of whole units of the target, and grows where
that saves most decoding of the source. Starting from this tile, all shapes that divide the axes about
evenly are compared, on a coarse grid, by the disk accesses on both sides (`Side.cost`) and the
parameters of the disk. A transposition ends with tiles that have long runs on both sides, or with whole
rows of one side; a plain copy ends with slabs. If one tile is read while another is written, the first
read and the last write overlap with nothing, so tiles are no larger than necessary. If the page cache
is too small for short writes to wait in it for their neighbours, edges are placed between pages of the
target if possible.

Invariants: tiles are disjoint except for the requested overlap, cover the array, form a regular grid,
and have at most `most` elements. Whole units of the target are cut only if the caller allows it and
nothing else fits, so no chunk is written twice. Pure: equal input gives equal tiles, so an interrupted
copy can resume.

Reference: the choice of tile shapes follows Thakur, Choudhary, Bordawekar et al. (PASSION), who store
and fetch slabs so that neither array of a transposition is accessed against its storage order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.tiling.sides import ASSUMED, DiskSpeed, Edges, Shape, Side, order_axes
from outcore.arrays.tiling.tiles import Tiling, count_passes
from outcore.base import assumed_costs

__all__ = ["choose", "estimate_seconds", "find_smallest"]

# Number of compared tile shapes; fewer if the chunks that each tile touches must be counted.
_POINTS, _CODED_POINTS = 4096, 512
# Up to this number of parts of an axis, every number is tried; beyond it, each candidate is larger by
# this factor.
_PARTS, _APART = 8, 2**0.25
# If a chunk must be cut, number of candidates among which a divisor of its length is searched.
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
    disk: DiskSpeed = ASSUMED,
    ahead: bool = True,
    ranks: int = 1,
) -> Tiling | int:
    """
    Return the best tiles of at most `most` elements; if none fits, the smallest tile's elements.

    Elements are copied from `source` to `target`. `axis` is the only axis to cut across (default:
    any); neighbours share `overlap` elements along it. With `cut`, units of the target are cut,
    too, if nothing else fits. With `ahead`, a tile is read while another one is written. `ranks`
    share the tiles.

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
    return choice.choose_at_most(most, cut)


def estimate_seconds(
    tiles: Tiling,
    source: Side,
    target: Side,
    disk: DiskSpeed,
    *,
    ahead: bool = True,
    ranks: int = 1,
) -> float:
    """Return the time of a copy with these tiles, without decoding, as compared by `choose`."""
    choice = _Choice(tiles.shape, source, target, None, 0, disk, ahead, ranks)
    return (
        float(choice.estimate_all_seconds(np.array([tiles.tile], np.int64))[0])
        if len(tiles)
        else 0.0
    )


def find_smallest(
    shape: Shape, source: Side, target: Side, *, axis: int | None = None, overlap: int = 0
) -> int:
    """
    Return the elements of the smallest tiles with which each unit of both sides is handled once.

    Examples
    --------
    >>> rows, columns = Side(8, "C", (1, 100), whole=True), Side(8, "C", (50, 10), whole=True)
    >>> find_smallest((100, 100), rows, columns)
    5000
    """
    choice = _Choice(shape, source, target, axis, overlap)
    return choice.compute_volume(choice.find_whole_unit())


class _Choice:
    """Tiles for one copy. A candidate tile is a list of edges, whose distances are its lengths."""

    def __init__(
        self,
        shape: Shape,
        source: Side,
        target: Side,
        axis: int | None,
        overlap: int,
        disk: DiskSpeed = ASSUMED,
        ahead: bool = True,
        ranks: int = 1,
    ) -> None:
        self.shape, self.source, self.target = shape, source, target
        self.axis, self.overlap = axis, overlap
        self.disk, self.ahead, self.ranks = disk, ahead, ranks
        axes = range(len(shape))
        # In a tie, prefer the axis that varies fastest in the target, so that writing is in order.
        self.fast_first = list(order_axes(target.order, len(axes)))
        self.handled = [
            (side, grid, math.prod(grid))
            for side, grid in (
                (source, source.chunks if source.whole else None),
                (target, target.chunks if target.whole else None),
                (target, target.shards),
            )
            if grid is not None
        ]
        self.least_work = self.count_work([(max(n, 1), 0) for n in shape])

    def choose_at_most(self, most: int, cut: bool) -> Tiling | int:
        units = list(self.iterate_units())
        fitting = [unit for unit in units if self.compute_volume(unit) <= most]
        if fitting:
            # Units that leave some ranks without a tile are not acceptable.
            counts = [len(self.make_tiling(unit)) for unit in fitting]
            enough = min(self.ranks, counts[-1])
            good = [one for one, n in zip(fitting, counts, strict=True) if n >= enough]
            tile = self.grow(good[0], most)
            if self.target.chunks is not None and self.target.pages is not None and good[1:]:
                # Parts of chunks that consist of whole pages may be far too long for the source.
                tile = min(tile, self.grow(good[1], most), key=self.estimate_seconds)
            return self.make_tiling(tile)
        if cut and (thin := self.thin(units[-1], most)) is not None:
            return self.make_tiling(thin)
        return self.compute_volume(self.find_slab(None) if cut else units[-1])

    # Units of a tile

    def iterate_units(self) -> Iterator[list[Edges]]:
        """Yield units in order of preference; the last is the smallest acceptable one."""
        ndim, source, target = len(self.shape), self.source, self.target
        if (paged := self.align_to_pages()) is not None:
            yield self.find_slab(paged)
        must = target.edges(target.chunks if target.whole else None, ndim)
        shard = target.edges(target.shards, ndim) if target.shards else must
        loose = target.edges(target.shards or target.chunks, ndim)
        there = source.edges(source.chunks, ndim)
        yield self.find_slab(self.find_common_edges(there, loose))
        yield self.find_whole_unit()
        yield self.find_slab(shard)
        yield self.find_slab(must)

    def align_to_pages(self) -> list[Edges] | None:
        """Return edges between pages of the target, if all of its rows have the same positions."""
        ndim, source, target = len(self.shape), self.source, self.target
        if (units := target.find_page_units(self.shape)) is not None:
            return None if source.whole else [(unit, 0) for unit in units]
        if target.pages is None or source.chunks or not ndim:
            return None
        (page, lead), item = target.pages, target.itemsize
        fast = next(iter(order_axes(target.order, ndim)))
        if page % item or lead % item or (ndim > 1 and self.shape[fast] * item % page):
            return None
        edges = [(1, 0)] * ndim
        edges[fast] = page // item, lead // item
        return edges

    def find_whole_unit(self) -> list[Edges]:
        """Return the smallest unit that cuts nothing that must be handled whole."""
        ndim, source, target = len(self.shape), self.source, self.target
        coded = source.edges(source.chunks if source.whole else None, ndim)
        whole = target.edges(target.shards or (target.chunks if target.whole else None), ndim)
        return self.find_slab(self.find_common_edges(coded, whole))

    def find_common_edges(self, some: list[Edges], others: list[Edges]) -> list[Edges]:
        """Return the common edges of both; the ends of the axis where they have none in common."""
        axes = zip(some, others, self.shape, strict=True)
        return [_find_common(one, other) or (max(n, 1), 0) for one, other, n in axes]

    def find_slab(self, wanted: list[Edges] | None) -> list[Edges]:
        """Return the shortest unit with these edges (any edges, if None)."""
        found = []
        for d, length in enumerate(self.shape):
            unit, start = (1, 0) if wanted is None else wanted[d]
            if self.axis not in (None, d):
                unit, start = max(length, 1), 0
            elif d == self.axis and unit > 1 and self.overlap:
                # The first tile has no neighbour before it: it alone must contain the shared elements.
                unit *= -(-(self.overlap + 1) // unit)
            edge = unit - start
            if edge >= length:
                unit, start = max(length, 1), 0
            elif edge + unit >= length:
                # One edge only: the parts on both sides may be shorter than a unit.
                unit = max(edge, length - edge)
                start = unit - edge
            found.append((unit, start))
        return found

    # Cost of a tile

    def compute_volume(self, tile: list[Edges]) -> int:
        """Return the number of elements of the largest tile."""
        sizes = [size for size, _ in tile]
        if self.axis is not None and self.overlap:
            length = max(self.shape[self.axis], 1)
            sizes[self.axis] = min(sizes[self.axis] + self.overlap, length)
        return math.prod(sizes)

    def compute_volumes(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the elements of the largest tiles of these shapes, one per row; exact up to 2**53."""
        lengths = sizes.astype(np.float64)
        if self.axis is not None and self.overlap:
            length = max(self.shape[self.axis], 1)
            lengths[:, self.axis] = np.minimum(lengths[:, self.axis] + self.overlap, length)
        volumes: NDArray[np.float64] = lengths.prod(axis=1)
        return volumes

    def count_work(self, tile: list[Edges]) -> int:
        """Return the elements of units that are handled whole, counted once for each time."""
        if not self.handled:
            return 0
        tiles = self.make_tiling(tile)
        return sum(count_passes(tiles, grid, side) * size for side, grid, size in self.handled)

    def estimate_all_seconds(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the times of copies with tiles of these shapes, one per row, without decoding."""
        took = np.zeros(len(sizes))
        for side, write in ((self.source, False), (self.target, True)):
            if not side.whole:
                took += side.cost(self.shape, sizes, self.disk.gap, write=write).seconds(self.disk)
        tiles = self.count(sizes)
        if self.axis is not None and self.overlap:
            took *= 1 + self.overlap / sizes[:, self.axis]
        # The first read and the last write overlap with nothing, even if the others do.
        beside = 1 / tiles if self.ahead else 0.0
        return (took * (1 + beside) + tiles * assumed_costs.STEP_SECONDS) * self.find_largest_share(
            tiles
        )

    def estimate_seconds(self, tile: list[Edges]) -> float:
        """Return the time of a copy with this tile, without decoding."""
        return float(self.estimate_all_seconds(np.array([[size for size, _ in tile]], np.int64))[0])

    def find_largest_share(self, tiles: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of all tiles that the rank with the most tiles has."""
        share: NDArray[np.float64] = np.ceil(tiles / self.ranks) / tiles
        return share

    # Growing and shrinking

    def grow(self, unit: list[Edges], most: int) -> list[Edges]:
        tile, unit = list(unit), list(unit)
        while self.handled and self.count_work(tile) > self.least_work:
            better = self.find_less_work(tile, unit, most)
            if better is None:
                break
            axis, edges, wider = better
            larger = self.replace(tile, axis, edges)
            if len(self.make_tiling(larger)) < min(self.ranks, len(self.make_tiling(tile))):
                break
            tile, unit[axis] = larger, wider
        if not all(self.shape):
            return tile
        tile = self.search(tile, unit, most)
        return [_divide_evenly(*one) for one in zip(self.shape, tile, unit, strict=True)]

    def search(self, tile: list[Edges], unit: list[Edges], most: int) -> list[Edges]:
        """Return the best of the tiles that are not smaller, in whole units."""
        sizes = self.list_points(tile, unit, most)
        tiles = self.count(sizes)
        # First give each rank a tile; then minimise decoding and encoding; then the rest.
        idle = np.maximum(self.ranks - tiles, 0)
        work = np.zeros(len(sizes))
        if self.handled:
            work[:] = [self.count_work(self.make_edges(tile, unit, row)) for row in sizes]
        best = np.lexsort(
            (self.estimate_all_seconds(sizes), work * self.find_largest_share(tiles), idle)
        )[0]
        return self.make_edges(tile, unit, sizes[best])

    def count(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the number of tiles of each shape."""
        grid = -(-np.array(self.shape, np.int64) // sizes)
        tiles: NDArray[np.float64] = np.prod(grid, axis=1, dtype=np.float64)
        return tiles

    def make_edges(
        self, tile: list[Edges], unit: list[Edges], sizes: NDArray[np.int64]
    ) -> list[Edges]:
        """Return a tile of these lengths, with edges at edges of units."""
        for axis, size in enumerate(sizes.tolist()):
            if size > tile[axis][0]:
                tile = self.replace(tile, axis, (size, unit[axis][1]))
        return tile

    def list_points(self, tile: list[Edges], unit: list[Edges], most: int) -> NDArray[np.int64]:
        """Return lengths of tiles to compare, one per row, with at most `most` elements each."""
        ndim = len(self.shape)
        if not ndim:
            return np.zeros((1, 0), np.int64)
        lengths = [self.list_lengths(axis, tile, unit) for axis in range(ndim)]
        many = sum(len(some) > 1 for some in lengths)
        limit = (_CODED_POINTS if self.handled else _POINTS) ** (1 / max(many, 1))
        lengths = [_thin(some, max(int(limit), 2)) for some in lengths]
        rows = set(product(*lengths))
        # Along each axis, also the longest length that fits with the others.
        for axis in range(ndim):
            others = product(*(some for n, some in enumerate(lengths) if n != axis))
            rows.update(
                (*row[:axis], self.find_filling_length(axis, row, tile, unit, most), *row[axis:])
                for row in others
            )
        smallest = tuple(size for size, _ in tile)
        sizes = np.array([*(rows - {smallest}), smallest], np.int64).reshape(-1, ndim)
        fitting = self.compute_volumes(sizes) <= most
        fitting[-1] = True
        sizes = sizes[fitting]
        # Among equals, prefer tiles that are longest along the axes that vary fastest in the target.
        return sizes[np.lexsort([-sizes[:, axis] for axis in reversed(self.fast_first)])]

    def list_lengths(self, axis: int, tile: list[Edges], unit: list[Edges]) -> list[int]:
        """Return lengths of a tile along an axis, longest first, that divide the axis about evenly."""
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

    def find_filling_length(
        self, axis: int, others: tuple[int, ...], tile: list[Edges], unit: list[Edges], most: int
    ) -> int:
        """Return the longest even part of an axis that fits with these lengths of the others."""
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
        return max(_divide_evenly(length, (size, unit[axis][1]), unit[axis])[0], min(least, length))

    def lengthen(self, tile: list[Edges], axis: int, unit: Edges, most: int) -> list[Edges]:
        """Return a tile about twice as long along an axis, in whole units, if that fits."""
        now, length = tile[axis][0], self.shape[axis]
        shared = self.overlap if axis == self.axis else 0
        others = self.compute_volume(tile) // min(now + shared, max(length, 1))
        room = most // others - shared
        wanted = min(now * 2, length)
        if wanted > room:
            wanted = min(length, max(now, room // unit[0] * unit[0]))
        return self.replace(tile, axis, (wanted, unit[1]))

    def replace(self, tile: list[Edges], axis: int, edges: Edges) -> list[Edges]:
        larger = list(tile)
        whole = edges[0] >= self.shape[axis]
        larger[axis] = (max(self.shape[axis], 1), 0) if whole else edges
        return larger

    def find_less_work(
        self, tile: list[Edges], unit: list[Edges], most: int
    ) -> tuple[int, Edges, Edges] | None:
        """Return the axis, new edges and new unit that save most work relative to the growth."""
        ndim, now = len(self.shape), self.count_work(tile)
        coded = self.source.edges(self.source.chunks if self.source.whole else None, ndim)
        best, found = 0.0, None
        for axis in self.fast_first:
            both = _find_common(coded[axis], unit[axis])
            choices = [(self.lengthen(tile, axis, unit[axis], most)[axis], unit[axis])]
            choices += [(both, both)] if both else []
            choices.append(((self.shape[axis], 0), unit[axis]))
            for edges, units in choices:
                larger = self.replace(tile, axis, edges)
                if not self.compute_volume(tile) < self.compute_volume(larger) <= most:
                    continue
                saved = (now - self.count_work(larger)) / math.log(
                    self.compute_volume(larger) / self.compute_volume(tile)
                )
                if saved > best:
                    best, found = saved, (axis, larger[axis], units)
        return found

    def thin(self, unit: list[Edges], most: int) -> list[Edges] | None:
        """Return a part of a unit that fits, cut across its slow axes first, or None."""
        tile = list(unit)
        for axis in reversed(self.fast_first) if self.axis is None else [self.axis]:
            now = tile[axis][0]
            shared = self.overlap if axis == self.axis else 0
            others = self.compute_volume(tile) // min(now + shared, max(self.shape[axis], 1))
            room = most // others - shared
            if room >= now:
                break
            size = max(room, 1)
            cuts = {size, -(-now // -(-now // size)), _find_divisor(now, size)}
            # As long as possible, or such that some of its edges are edges of units.
            tries = [self.replace(tile, axis, (n, unit[axis][1] % n)) for n in sorted(cuts)]
            tile = min(reversed(tries), key=self.count_work)
        return tile if self.compute_volume(tile) <= most else None

    def make_tiling(self, tile: list[Edges]) -> Tiling:
        sizes = tuple(size for size, _ in tile)
        first = [start for _, start in tile]
        overlap = [0] * len(tile)
        if self.axis is not None and self.overlap and sizes[self.axis] < self.shape[self.axis]:
            overlap[self.axis] = self.overlap
            if not self.handled or sizes[self.axis] <= self.overlap:
                # The first tile contains all elements shared with the next one, and is as long as the
                # others.
                first[self.axis] = -self.overlap
        return Tiling(
            self.shape,
            sizes,
            self.target.order,
            tuple(first) if any(first) else None,
            tuple(overlap) if any(overlap) else None,
        )


def _find_common(one: Edges, other: Edges) -> Edges | None:
    """Return the common edges of both, or None."""
    (size, start), (size2, start2) = one, other
    same = math.gcd(size, size2)
    if (start2 - start) % same:
        return None
    # Chinese remainder theorem.
    rest = size2 // same
    times = (start2 - start) // same * pow(size // same, -1, rest) % rest
    whole = size * rest
    return whole, (start + size * times) % whole


def _find_divisor(length: int, most: int) -> int:
    """Return a large divisor of `length` up to `most`, if one is found quickly."""
    parts = -(-length // most)
    return next((length // n for n in range(parts, parts + _TRIES) if length % n == 0), most)


def _thin(lengths: list[int], most: int) -> list[int]:
    """Return at most `most` of the lengths, including the first and the last."""
    if len(lengths) <= most:
        return lengths
    return [lengths[k * (len(lengths) - 1) // (most - 1)] for k in range(most)]


def _divide_evenly(length: int, tile: Edges, unit: Edges) -> Edges:
    """Return tiles of about equal length instead of a small last one; never larger than `tile`."""
    size, start = tile
    if length <= size:
        return tile
    count = -(-(length + start) // size)
    fair = -(-(length + start) // count)
    return min(size, -(-fair // unit[0]) * unit[0]), start
