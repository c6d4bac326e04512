"""
The two ends of a copy, and what tiles make of each: requests and bytes.

Problem. Whoever cuts an array into tiles has to know, for thousands of shapes of them, what each would
have the disk do on either side, before anything is opened.
Idea. Of a dense array that is arithmetic: where a tile ends within an axis, runs end; holes that are
cheaper to read than to skip join them; what passes the page cache costs the pages at the ends of runs
once more. It is counted for many tiles at once.

Invariants. Pure: equal sides, equal counts. They are of the whole array, and of the worst that may
happen to pages at the ends of runs: each is written for both runs that share it, and read between that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outcore.base import assumed_costs
from outcore.formats.layout import ArrayInfo, Chunked, FileSource, ShardSource

__all__ = [
    "ASSUMED",
    "Cells",
    "Disk",
    "DiskCost",
    "Edges",
    "Order",
    "Shape",
    "Side",
    "fastest_first",
]

Shape = tuple[int, ...]
Order = str | tuple[int, ...]
# Along one axis, edges at a regular distance: the distance, and how far behind an edge index 0 lies.
Edges = tuple[int, int]
# Along one axis, cells of equal length: the length, where in its cell index 0 lies, and the step from
# one index to the next.
Cells = tuple[int, int, int]
Numbers = NDArray[np.float64]

# The core's largest request, and the block of disks: what a run that is read ends in is read whole.
_REQUEST, _BLOCK = 2**20, 512
# Runs of so many pages pass the page cache where it is too small; shorter ones are written through it.
_PAST = 3


@dataclass(frozen=True, slots=True)
class Disk:
    """
    Figures of the disk that an array lies on; see `outcore.arrays.measured`.

    Parameters
    ----------
    gap
        Bytes that are cheaper to read than to skip.
    latency
        Seconds that one more request costs, with others under way.
    rate
        Bytes per second of large requests.
    """

    gap: int
    latency: float
    rate: float

    def seconds(self, requests: int, nbytes: int) -> float:
        """What requests of so many bytes together take."""
        return requests * self.latency + nbytes / self.rate


#: Of arrays that are on no disk.
ASSUMED = Disk(assumed_costs.DISK[0], assumed_costs.DISK[1] / 1e9, float(assumed_costs.DISK[2]))


@dataclass(frozen=True, slots=True)
class DiskCost:
    """
    What reading or writing all of an array, tile by tile, makes one side do; for each of many tiles.

    Parameters
    ----------
    requests, nbytes
        Of the disk.
    again
        Of these bytes, those that are read because pages are written in part.
    cached
        Runs that are written into the page cache, and wait there.
    """

    requests: Numbers
    nbytes: Numbers
    again: Numbers
    cached: Numbers

    def seconds(self, disk: Disk) -> Numbers:
        """What that takes."""
        took: Numbers = self.requests * disk.latency + self.nbytes / disk.rate
        return took + self.cached * assumed_costs.CACHED_RUN_SECONDS


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
        element 0 lies, of the array or of each chunk. None: it waits there for its neighbours.
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
    def of(cls, info: ArrayInfo, page: int = 0) -> Side:
        """The side that an array on disk presents; `page` bytes if writes pass the page cache."""
        layout = info.layout
        if not isinstance(layout, Chunked):
            pages = (page, layout.parts[0].offset % page) if page else None
            return cls(info.dtype.itemsize, info.order, pages=pages)
        shards = None
        if isinstance(layout.source, ShardSource):
            pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
            shards = tuple(chunk * count for chunk, count in pairs)
        whole = bool(layout.codecs) or shards is not None
        # A chunk in a file of its own begins with a page.
        own = page and not whole and isinstance(layout.source, FileSource)
        pages = (page, 0) if own else None
        return cls(info.dtype.itemsize, info.order, layout.chunks, whole, shards, pages=pages)

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

        order = tuple(axes[n] for n in fastest_first(self.order, ndim))
        chunks, shards, start, step = map(theirs, (self.chunks, self.shards, self.start, self.step))
        return replace(self, order=order, chunks=chunks, shards=shards, start=start, step=step)

    def page_units(self, shape: Shape) -> Shape | None:
        """
        Lengths that parts of chunks must be multiples of, so that they end where pages do.

        None if there are no pages, or no whole chunks that are files of their own.

        Examples
        --------
        >>> Side(4, "C", (32768, 128), pages=(4096, 0)).page_units((32768, 32768))
        (8, 128)
        >>> Side(4, "C", (128, 32768), pages=(4096, 0)).page_units((32768, 32768))
        (1, 1024)
        """
        if self.pages is None or self.chunks is None or self.start or self.step:
            return None
        page, units, inner = self.pages[0], [1] * len(shape), self.itemsize
        for axis in fastest_first(self.order, len(shape)):
            need, chunk = page // math.gcd(inner, page), self.chunks[axis]
            # Where parts of whole pages would not fill a chunk, and others follow, it is not divided.
            fills = chunk % need == 0 or chunk >= shape[axis]
            units[axis] = min(need, chunk) if fills else chunk
            inner *= chunk
        return tuple(units)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk that has to be held whole; 0 if there is none."""
        return math.prod(self.chunks) * self.itemsize if self.chunks and self.whole else 0

    def cost(self, shape: Shape, tiles: NDArray[np.int64], gap: int, *, write: bool) -> DiskCost:
        """
        What tiles of some shapes make of an array of this side, if no chunk has to be handled whole.

        Parameters
        ----------
        shape
            Of the array.
        tiles
            Lengths of a tile along each axis, in a row for each.
        gap
            Holes of fewer bytes are read along.
        write
            The tiles are written.

        Examples
        --------
        >>> tiles = np.array([[64, 1024], [1024, 64]])
        >>> Side(8, "C").cost((1024, 1024), tiles, 0, write=False).requests.tolist()
        [16.0, 16384.0]
        """
        runs, length, useful = self._extents(shape, tiles, 1 if write else max(gap, 1))
        total = math.prod(shape) * self.itemsize
        requests = runs * np.ceil(length / _REQUEST)
        none = np.zeros(len(tiles))
        if not write:
            return DiskCost(requests, total * (length / useful) + runs * _BLOCK, none, none)
        if self.pages is None:
            # They become long requests there.
            return DiskCost(none + -(-total // _REQUEST), none + total, none, runs)
        page, _ = self.pages
        ends = self._ends(shape, tiles, runs)
        past = length >= _PAST * page
        # An end that another run shares is one more write where the page cache is passed; and the page
        # is read before the second of both.
        requests = np.where(past, requests + ends, runs) + ends / 2
        return DiskCost(requests, total + ends * page, ends * page / 2, np.where(past, 0, runs))

    def _extents(
        self, shape: Shape, tiles: NDArray[np.int64], gap: int
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Of each tile: extents in all of the array, bytes of one, and those of them that are wanted."""
        full = self.chunks or shape
        count, stride = np.ones(len(tiles)), float(self.itemsize)
        length = np.full(len(tiles), stride)
        useful, inside = length.copy(), np.ones(len(tiles), bool)
        for axis in fastest_first(self.order, len(shape)):
            size = np.minimum(tiles[:, axis], max(full[axis], 1))
            inside &= stride - length < gap
            length = np.where(inside, (size - 1) * stride + length, length)
            useful = np.where(inside, useful * size, useful)
            count *= np.where(inside, -(-shape[axis] // np.maximum(size, 1)), shape[axis])
            stride *= full[axis]
        return count, length, useful

    def _ends(self, shape: Shape, tiles: NDArray[np.int64], runs: Numbers) -> Numbers:
        """How many ends of runs lie within pages."""
        if self.pages is None:
            return np.zeros(len(tiles))
        page, lead = self.pages
        if (units := self.page_units(shape)) is not None:
            axes = zip(units, shape, strict=True)
            apart = [tiles[:, d] % unit * (tiles[:, d] < n) for d, (unit, n) in enumerate(axes)]
            return np.where(np.any(apart, axis=0), 2 * runs, 0.0)
        if self.chunks is not None or not shape:
            return 2 * runs
        fast, ndim = fastest_first(self.order, len(shape))[0], len(shape)
        row = shape[fast] * self.itemsize
        rows = math.prod(shape) / max(shape[fast], 1)
        whole = tiles[:, fast] >= shape[fast]
        between = whole | (tiles[:, fast] * self.itemsize % page == 0)
        if ndim > 1 and row % page:
            return 2 * runs
        if lead:
            # Rows begin and end within a page, wherever tiles have their other edges.
            return np.where(between, 2 * np.minimum(runs, rows), 2 * runs)
        return np.where(between, 0.0, 2 * runs)

    def _chunks_met(self, section: Sequence[slice]) -> int:
        """How many chunks hold a part of a section."""
        axes = zip(section, self.chunks or (), strict=True)
        return math.prod(max(-(-part.stop // n) - part.start // n, 0) for part, n in axes)

    def shared_ends(self, shape: Shape, section: Sequence[slice]) -> int:
        """
        How many ends of the runs of a section lie within pages, if it is written past the page cache.

        Examples
        --------
        >>> side = Side(8, "C", pages=(4096, 0))
        >>> section = slice(0, 10), slice(512, 700)
        >>> side.shared_ends((10, 1024), section), side.shared_ends((10, 1000), section)
        (10, 20)
        """
        if self.pages is None:
            return 0
        page, lead = self.pages
        if (units := self.page_units(shape)) is not None:
            axes = zip(section, units, shape, strict=True)
            if not any(
                part.start % n or (part.stop % n and part.stop < end) for part, n, end in axes
            ):
                return 0
            return 2 * self._chunks_met(section)
        first, runs, length, stride, apart = lead, 1, self.itemsize, self.itemsize, 0
        for axis in fastest_first(self.order, len(shape)):
            size = section[axis].stop - section[axis].start
            first += section[axis].start * stride
            if length == stride and runs == 1:
                length *= size
            else:
                runs *= size
                apart |= stride if size > 1 else 0
            stride *= shape[axis]
        if apart % page:
            return 2 * runs
        return runs * ((first % page > 0) + ((first + length) % page > 0))


def fastest_first(order: Order, ndim: int) -> Sequence[int]:
    """The axes of an array, from the one that runs fastest to the slowest."""
    if isinstance(order, tuple):
        return order
    return range(ndim) if order == "F" else range(ndim - 1, -1, -1)
