"""
Tiles: how to carry an array from one layout to another within a budget.

Problem. Copying needs pieces that fit in memory. A piece that is good for the source (its rows, its
chunks) may be bad for the target (its columns, other chunks): then one side is read or written in tiny
runs, or the same chunk is decoded or encoded many times. So it is with a loop over one array, which is
a copy whose target is as good as its source.
Idea. A tile is made of whole units of both sides, if the budget allows: the least common multiple of
the chunks that must be handled whole, with its edges where both sides have theirs. Where the two have
no edge in common, or their multiple does not fit, it is made of whole units of the target, and grows
where that saves most decoding of the source. From there it grows along the axis that lengthens the worse
of the two sides' runs, so that a transposition ends in tiles with long runs on both sides and a plain
copy in slabs. Runs that are read count for less than runs that are written: a short read is a short
request to the disk, while short writes wait in the page cache for their neighbours. It stops when both
runs are long and the tile is large enough: more would only delay the first write.
Where the page cache is too small to wait in, both count alike; edges lie between pages of the target if
they can, so that no page is written twice, and whole rows or columns are tried as well.

Invariants. Tiles are disjoint but for the overlap that was asked for, cover the array, lie on a regular
grid, and hold at most `most` elements. Whole units of the target are not cut unless the caller allows it
and nothing else fits, so no chunk is written twice. Pure: equal input, equal tiles, which is what lets
an interrupted copy go on.

Reference: the choice of tile shapes follows Thakur, Choudhary, Bordawekar et al. (PASSION), who store
and fetch slabs so that neither array of a transposition is accessed against its grain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outcore.formats.layout import ArrayInfo, Chunked, ShardSource

__all__ = ["Side", "Tiling", "choose", "grid_of", "passes", "smallest"]

Shape = tuple[int, ...]
Order = str | tuple[int, ...]
# Along one axis, edges at a regular distance: the distance, and how far behind an edge index 0 lies.
Edges = tuple[int, int]
# Along one axis, cells of equal length: the length, where in its cell index 0 lies, and the step from
# one index to the next.
Cells = tuple[int, int, int]

# Runs and tiles larger than this gain nothing: a request of 1 MiB is at the disk's full rate.
_LONG_RUN = 2**20
_LARGE_TILE = 16 * 2**20
# Runs that are read are so many times as long as those that are written, where both cannot be long.
# Measured at a budget of 256 MiB: 21 % less time than equal runs in smaller tiles
# (bench/figures/convert.md).
_READ_LENGTH = 4
# Where a chunk has to be cut, a divisor of its length is looked for among so many.
_TRIES = 64


@dataclass(frozen=True, slots=True)
class Side:
    """
    One end of a copy.

    Parameters
    ----------
    itemsize
        Bytes of an element there.
    order
        ``"C"``, ``"F"``, or the axes from the one that runs fastest to the slowest.
    chunks
        Chunk grid, or None.
    whole
        Chunks pass through a codec: any part of one costs all of it.
    shards
        Shape of a shard in elements, or None. Shards are written whole if that is possible.
    start, step
        Per axis, how far behind an edge of a chunk (or shard, if there are any) index 0 lies, and how
        far it is to the next index: what is copied may be a section. None: at an edge, and 1.
    pages
        What is written passes the page cache: bytes of a page, and how far behind the beginning of one
        element 0 lies. None: it waits there for its neighbours.
    """

    itemsize: int
    order: Order
    chunks: Shape | None = None
    whole: bool = False
    shards: Shape | None = None
    start: Shape | None = None
    step: Shape | None = None
    pages: tuple[int, int] | None = None

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

    def section(
        self, ranges: Sequence[tuple[int, int, int]], axes: Sequence[tuple[int, bool] | None]
    ) -> Side:
        """
        What a section of this side presents.

        Parameters
        ----------
        ranges
            Start, count and (positive) step of the section, per axis of the array.
        axes
            For each axis of the result that of the array, and whether it is walked downwards; None for
            a new axis.

        Examples
        --------
        >>> side = Side(8, "C", (10, 10), whole=True)
        >>> part = side.section([(3, 1, 1), (25, 50, 1)], [(1, False)])
        >>> part.chunks, part.start, part.step
        ((10,), (5,), (1,))
        """
        if self.chunks is None:
            return self
        cells = []
        for axis in axes:
            if axis is None:
                cells.append((1, 1, 0, 1))
                continue
            number, down = axis
            first, count, step = ranges[number]
            grid = (self.shards or self.chunks)[number]
            # Counted from the last index, if it is walked downwards.
            start = -1 - (first + (count - 1) * step) if down else first
            cells.append((self.chunks[number], grid, start % grid, step))
        chunks, shards, starts, steps = zip(*cells, strict=True) if cells else ((), (), (), ())
        return replace(self, chunks=chunks, shards=self.shards and shards, start=starts, step=steps)

    def cells(self, grid: Shape | None, ndim: int) -> list[Cells]:
        """Cells of `grid` (chunks, or shards) along each axis; each index by itself if it is None."""
        none, ones = (0,) * ndim, (1,) * ndim
        axes = zip(grid or ones, self.start or none, self.step or ones, strict=True)
        # Each index has a cell of its own if the step leaps over cells.
        return [(n, start % n, step) if step < n else (1, 0, 1) for n, start, step in axes]

    def edges(self, grid: Shape | None, ndim: int) -> list[Edges]:
        """Edges of these cells, at a regular distance: all of them unless there is a step."""
        cells = self.cells(grid, ndim)
        apart = [(n // math.gcd(n, step), start // step) for n, start, step in cells]
        return [(n, start % n) for n, start in apart]

    def permuted(self, axes: Sequence[int]) -> Side:
        """
        The same side, for whoever counts axes otherwise: axis `n` of it is their axis ``axes[n]``.

        Examples
        --------
        >>> side = Side(8, "C", (10, 20)).permuted((1, 0))
        >>> side.order, side.chunks
        ((0, 1), (20, 10))
        """
        ndim = len(axes)
        back = sorted(range(ndim), key=axes.__getitem__)

        def theirs(lengths: Shape | None) -> Shape | None:
            return lengths and tuple(lengths[n] for n in back)

        order = tuple(axes[n] for n in _fastest_first(self.order, ndim))
        chunks, shards, start, step = map(theirs, (self.chunks, self.shards, self.start, self.step))
        return replace(self, order=order, chunks=chunks, shards=shards, start=start, step=step)

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
        for axis in _fastest_first(self.order, len(shape)):
            length *= min(tile[axis], full[axis])
            if tile[axis] < full[axis]:
                break
        return length


@dataclass(frozen=True, slots=True)
class Tiling:
    """
    A regular grid of tiles over an array; tile `k` counts in the order of the target.

    Parameters
    ----------
    shape
        Of the array.
    tile
        Distance from one tile to the next, and their shape but for what follows.
    order
        Of their numbers: ``"C"``, ``"F"``, or the axes from the one that runs fastest to the slowest.
    first
        Per axis, how far behind the edge of a tile index 0 lies: the first tile is so much smaller, or
        larger if it is negative. None: 0.
    overlap
        Per axis, elements that a tile shares with the one before it. None: 0.
    """

    shape: Shape
    tile: Shape
    order: Order
    first: Shape | None = None
    overlap: Shape | None = None

    @property
    def grid(self) -> Shape:
        """Tiles along each axis."""
        if self.first is None:
            return grid_of(self.shape, self.tile)
        axes = zip(self.shape, self.tile, self.first, strict=True)
        return tuple(
            max(-(-(length + first) // size), min(length, 1)) for length, size, first in axes
        )

    @property
    def largest(self) -> Shape:
        """Shape that holds any tile."""
        none = (0,) * len(self.shape)
        axes = zip(self.shape, self.tile, self.first or none, self.overlap or none, strict=True)
        return tuple(
            min(length, size + max(overlap, -first)) for length, size, first, overlap in axes
        )

    def __len__(self) -> int:
        return math.prod(self.grid)

    @property
    def _fastest_first(self) -> Sequence[int]:
        """The axes, in the order in which tiles count along them."""
        return _fastest_first(self.order, len(self.shape))

    def key(self, number: int) -> tuple[slice, ...]:
        """Where tile `number` lies."""
        at = [0] * len(self.shape)
        for axis in self._fastest_first:
            number, at[axis] = divmod(number, self.grid[axis])
        return tuple(slice(*self.ends(axis, k)) for axis, k in enumerate(at))

    def ends(self, axis: int, k: int) -> tuple[int, int]:
        """First index, and one past the last, of the tiles that are number `k` along an axis."""
        size = self.tile[axis]
        edge = k * size - (self.first[axis] if self.first else 0)
        begin = edge - (self.overlap[axis] if self.overlap else 0) if k else 0
        return max(begin, 0), min(edge + size, self.shape[axis])

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
            first = self.first[axis] if self.first else 0
            tiles = (cells[axis] * unit[axis] + first) // self.tile[axis]
            numbers += np.clip(tiles, 0, self.grid[axis] - 1) * step
            step *= self.grid[axis]
        return numbers

    def meetings(self, axis: int, cells: Cells, *, again: bool = True) -> int:
        """
        Pairs of a tile and a cell that have an index in common, along an axis.

        Parameters
        ----------
        axis
            Of the array.
        cells
            Such as chunks.
        again
            What a tile shares with the one before counts, too.

        Examples
        --------
        >>> [Tiling((100,), (size,), "C").meetings(0, (10, 0, 1)) for size in (30, 25)]
        [10, 12]
        """
        tiles, length = self.grid[axis], self.shape[axis]
        if tiles == 0:
            return 0
        size, (unit, start, step) = self.tile[axis], cells
        edge = size - (self.first[axis] if self.first else 0)  # where the second tile begins
        shared = self.overlap[axis] if self.overlap and again else 0
        # Cells before that of the last index of each tile, less those before that of its first one.
        last = _floors(tiles - 1, size * step, (edge - 1) * step + start, unit)
        last += ((length - 1) * step + start) // unit
        # The second tile and those after it that begin at index 0.
        cut = min(max(-(-(shared - edge) // size), 0), tiles - 1)
        begin = (edge + cut * size - shared) * step + start
        before = _floors(tiles - 1 - cut, size * step, begin, unit)
        return last - before - (1 + cut) * (start // unit) + tiles


def _floors(count: int, step: int, first: int, unit: int) -> int:
    """The sum of ``(k * step + first) // unit`` for all `k` below `count`, without a loop over them."""
    total = 0
    while count > 0:
        whole, step = divmod(step, unit)
        more, first = divmod(first, unit)
        total += whole * count * (count - 1) // 2 + more * count
        # What is left counts points below a line: turn it on its side.
        end = step * count + first
        count, first, step, unit = end // unit, end % unit, unit, step
    return total


def _fastest_first(order: Order, ndim: int) -> Sequence[int]:
    if isinstance(order, tuple):
        return order
    return range(ndim) if order == "F" else range(ndim - 1, -1, -1)


def grid_of(shape: Sequence[int], tile: Sequence[int]) -> Shape:
    """Number of tiles along each axis."""
    return tuple(-(-length // size) for length, size in zip(shape, tile, strict=True))


def passes(tiles: Tiling, grid: Shape | None, side: Side) -> int:
    """
    How often units of `grid` (chunks or shards of `side`) are handled, if each tile is, in its order.

    What a tile shares with the one before it along the fastest axis is not handled again.
    """
    ndim, many = len(tiles.shape), [n > 1 for n in tiles.grid]
    fast = _fastest_first(tiles.order, ndim)
    kept = next((axis for axis in fast if many[axis]), None)
    counts = (
        tiles.meetings(axis, cells, again=axis != kept)
        for axis, cells in enumerate(side.cells(grid, ndim))
    )
    return math.prod(counts)


def choose(
    shape: Shape,
    source: Side,
    target: Side,
    most: int,
    *,
    axis: int | None = None,
    overlap: int = 0,
    cut: bool = False,
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
    >>> chunks = Side(8, "C", (10, 10, 10), whole=True)
    >>> choose((100, 100, 100), chunks, chunks, 10_000).tile
    (10, 10, 100)
    """
    return _Choice(shape, source, target, axis, overlap).of_at_most(most, cut)


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
        self, shape: Shape, source: Side, target: Side, axis: int | None, overlap: int
    ) -> None:
        self.shape, self.source, self.target = shape, source, target
        self.axis, self.overlap = axis, overlap
        self.item = max(source.itemsize, target.itemsize)
        axes = range(len(shape))
        # Ties go to the axis that runs fastest in the target, so that writing is in order.
        self.fast_first = list(_fastest_first(target.order, len(axes)))
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
        unit: list[Edges] = []
        for unit in self.units():
            if self.volume(unit) <= most:
                found = list(self.candidates(unit, most))
                return self.tiling(min(found, key=self.requests) if len(found) > 1 else found[0])
        if cut and (thin := self.thinned(unit, most)) is not None:
            return self.tiling(thin)
        return self.volume(self.slab(None) if cut else unit)

    def candidates(self, unit: list[Edges], most: int) -> Iterator[list[Edges]]:
        """Tiles to choose from, the most wanted first."""
        yield self.grown(unit, most)
        if self.target.pages is None or not all(self.shape):
            return
        # Rows, or columns, as a whole: one long run instead of many that end within pages.
        for side in (self.target, self.source):
            for axis in _fastest_first(side.order, len(self.shape)):
                whole = self.replaced(unit, axis, (self.shape[axis], 0))
                if self.volume(whole) <= most:
                    yield self.grown(whole, most)
                break

    def requests(self, tile: list[Edges]) -> float:
        """Runs for an element, on both sides."""
        sizes = [size for size, _ in tile]
        sides = (self.source, self.target)
        return sum(side.itemsize / min(side.run(sizes, self.shape), _LONG_RUN) for side in sides)

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
        if target.pages is None or source.chunks or target.chunks or not ndim:
            return None
        (page, lead), item = target.pages, target.itemsize
        fast = next(iter(_fastest_first(target.order, ndim)))
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

    def slab(self, wish: list[Edges] | None) -> list[Edges]:
        """A unit with these edges (anywhere, if None) that is as long as it has to be, and no longer."""
        found = []
        for d, length in enumerate(self.shape):
            unit, start = (1, 0) if wish is None else wish[d]
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

    def work(self, tile: list[Edges]) -> int:
        """Elements of the units that are handled whole, each as often as it is."""
        if not self.handled:
            return 0
        tiles = self.tiling(tile)
        return sum(passes(tiles, grid, side) * size for side, grid, size in self.handled)

    def runs(self, tile: list[Edges]) -> tuple[int, int]:
        sizes = [size for size, _ in tile]
        here = min(self.source.run(sizes, self.shape), _LONG_RUN)
        there = min(self.target.run(sizes, self.shape), _LONG_RUN)
        there *= _READ_LENGTH if self.target.pages is None else 1
        return min(here, there), here + there

    def is_long(self, tile: list[Edges]) -> bool:
        sizes = [size for size, _ in tile]
        return min(s.run(sizes, self.shape) for s in (self.source, self.target)) >= _LONG_RUN

    # Larger and smaller

    def grown(self, unit: list[Edges], most: int) -> list[Edges]:
        tile, unit = list(unit), list(unit)
        while True:
            size, work = self.volume(tile), self.work(tile)
            if work == self.least_work and size * self.item >= _LARGE_TILE and self.is_long(tile):
                break
            better = self.with_less_work(tile, unit, most) if work > self.least_work else None
            if better is not None:
                axis, edges, unit[axis] = better
                tile[axis] = edges
                continue
            best: list[Edges] | None = None
            for axis in self.fast_first:
                larger = self.longer(tile, axis, unit[axis], most)
                if larger[axis][0] > tile[axis][0] and (
                    best is None or self.runs(larger) > self.runs(best)
                ):
                    best = larger
            if best is None:
                break
            tile = best
        return [_even(*one) for one in zip(self.shape, tile, unit, strict=True)]

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


def _even(length: int, tile: Edges, unit: Edges) -> Edges:
    """Tiles of about equal length instead of a small last one; never larger than `tile`."""
    size, start = tile
    if length <= size:
        return tile
    count = -(-(length + start) // size)
    fair = -(-(length + start) // count)
    return min(size, -(-fair // unit[0]) * unit[0]), start
