"""
The two sides of a copy, and the requests and bytes of each with given tiles.

Problem: dividing an array into tiles requires the disk accesses on either side, for thousands of tile
shapes, before any file is opened.
Approach: for a dense array these follow by arithmetic. Runs end where a tile ends within an axis; gaps
that are cheaper to read than to skip join runs; writes that bypass the page cache access the pages at
the ends of runs once more. All counts are computed for many tiles at once.

Invariants: pure, so equal sides give equal counts. The counts are for the whole array, and for the
worst case of pages at the ends of runs: each is written for both runs that share it, and read in
between.
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
    "DiskCost",
    "DiskSpeed",
    "Edges",
    "Order",
    "Shape",
    "Side",
    "order_axes",
]

Shape = tuple[int, ...]
Order = str | tuple[int, ...]
# Along one axis, edges at a regular distance: the distance, and the offset of index 0 after an edge.
Edges = tuple[int, int]
# Along one axis, cells of equal length: the length, the offset of index 0 in its cell, and the step
# from one index to the next.
Cells = tuple[int, int, int]
Numbers = NDArray[np.float64]

# The core's largest request, and the block of disks: a read always ends with a whole block.
_REQUEST, _BLOCK = 2**20, 512
# Runs of this many pages bypass a page cache that is too small; shorter ones are written through it.
_PAST = 3


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Parameters of the disk of an array; see `outcore.arrays.measured`."""

    #: Largest gap in bytes that is cheaper to read than to skip.
    gap: int
    #: Seconds of one additional request while others are in flight.
    latency: float
    #: Bytes per second of large requests.
    rate: float

    def seconds(self, requests: int, nbytes: int) -> float:
        """Return the time of a number of requests with a total number of bytes."""
        return requests * self.latency + nbytes / self.rate


#: Parameters for arrays in memory.
ASSUMED = DiskSpeed(
    assumed_costs.DISK[0], assumed_costs.DISK[1] / 1e9, float(assumed_costs.DISK[2])
)


@dataclass(frozen=True, slots=True)
class DiskCost:
    """Disk accesses of one side for reading or writing a whole array tile by tile, for many tiles."""

    requests: Numbers
    nbytes: Numbers
    #: Part of `nbytes` that is read because pages are written partially.
    again: Numbers
    #: Number of runs that are written into the page cache and wait there.
    cached: Numbers

    def seconds(self, disk: DiskSpeed) -> Numbers:
        """Return the time of these accesses."""
        took: Numbers = self.requests * disk.latency + self.nbytes / disk.rate
        return took + self.cached * assumed_costs.CACHED_RUN_SECONDS


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a copy."""

    itemsize: int
    #: "C", "F", or the axes from the fastest to the slowest.
    order: Order
    chunks: Shape | None = None
    #: True if chunks pass through a codec: accessing any part costs the whole chunk.
    whole: bool = False
    #: Shape of a shard in elements, or None. Shards are written whole if possible.
    shards: Shape | None = None
    #: Per axis, the offset of index 0 after an edge of a chunk (or shard, if there are any), for
    #: copying a section. None: 0.
    start: Shape | None = None
    #: Per axis, the distance to the next index, for copying a section. None: 1.
    step: Shape | None = None
    #: For writes that bypass the page cache: bytes of a page, and the offset of element 0 in its
    #: page, for the array or for each chunk. None: writes wait in the page cache for their
    #: neighbours.
    pages: tuple[int, int] | None = None

    @classmethod
    def of(cls, info: ArrayInfo, page: int = 0) -> Side:
        """Return the side of an array on disk; `page` is the page size if writes bypass the cache."""
        layout = info.layout
        if not isinstance(layout, Chunked):
            pages = (page, layout.parts[0].offset % page) if page else None
            return cls(info.dtype.itemsize, info.order, pages=pages)
        shards = None
        if isinstance(layout.source, ShardSource):
            pairs = zip(layout.chunks, layout.source.per_shard, strict=True)
            shards = tuple(chunk * count for chunk, count in pairs)
        whole = bool(layout.codecs) or shards is not None
        # A chunk in a separate file begins with a page.
        own = page and not whole and isinstance(layout.source, FileSource)
        pages = (page, 0) if own else None
        return cls(info.dtype.itemsize, info.order, layout.chunks, whole, shards, pages=pages)

    def section(
        self, ranges: Sequence[tuple[int, int, int]], axes: Sequence[tuple[int, bool] | None]
    ) -> Side:
        """
        Return the side of a section of this side; arguments as the fields of `Selection`.

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
            # Count from the last index if the axis is reversed.
            start = -1 - (first + (count - 1) * step) if down else first
            cells.append((self.chunks[number], grid, start % grid, step))
        chunks, shards, starts, steps = zip(*cells, strict=True) if cells else ((), (), (), ())
        return replace(self, chunks=chunks, shards=self.shards and shards, start=starts, step=steps)

    def cells(self, grid: Shape | None, ndim: int) -> list[Cells]:
        """Return the cells of `grid` (chunks or shards) along each axis; single indices for None."""
        none, ones = (0,) * ndim, (1,) * ndim
        axes = zip(grid or ones, self.start or none, self.step or ones, strict=True)
        # Each index is in a separate cell if the step skips cells.
        return [(n, start % n, step) if step < n else (1, 0, 1) for n, start, step in axes]

    def edges(self, grid: Shape | None, ndim: int) -> list[Edges]:
        """Return edges of these cells at a regular distance: all edges unless there is a step."""
        cells = self.cells(grid, ndim)
        apart = [(n // math.gcd(n, step), start // step) for n, start, step in cells]
        return [(n, start % n) for n, start in apart]

    def permute(self, axes: Sequence[int]) -> Side:
        """
        Return the same side with axis `n` renamed to ``axes[n]``.

        Examples
        --------
        >>> side = Side(8, "C", (10, 20)).permute((1, 0))
        >>> side.order, side.chunks
        ((0, 1), (20, 10))
        """
        ndim = len(axes)
        back = sorted(range(ndim), key=axes.__getitem__)

        def theirs(lengths: Shape | None) -> Shape | None:
            return lengths and tuple(lengths[n] for n in back)

        order = tuple(axes[n] for n in order_axes(self.order, ndim))
        chunks, shards, start, step = map(theirs, (self.chunks, self.shards, self.start, self.step))
        return replace(self, order=order, chunks=chunks, shards=shards, start=start, step=step)

    def find_page_units(self, shape: Shape) -> Shape | None:
        """
        Return lengths of which parts of chunks must be multiples in order to end at pages.

        None if there are no pages, or no whole chunks in separate files.

        Examples
        --------
        >>> Side(4, "C", (32768, 128), pages=(4096, 0)).find_page_units((32768, 32768))
        (8, 128)
        >>> Side(4, "C", (128, 32768), pages=(4096, 0)).find_page_units((32768, 32768))
        (1, 1024)
        """
        if self.pages is None or self.chunks is None or self.start or self.step:
            return None
        page, units, inner = self.pages[0], [1] * len(shape), self.itemsize
        for axis in order_axes(self.order, len(shape)):
            need, chunk = page // math.gcd(inner, page), self.chunks[axis]
            # A chunk that parts of whole pages would not fill is not divided if others follow.
            fills = chunk % need == 0 or chunk >= shape[axis]
            units[axis] = min(need, chunk) if fills else chunk
            inner *= chunk
        return tuple(units)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk that must be in memory whole; 0 if there is none."""
        return math.prod(self.chunks) * self.itemsize if self.chunks and self.whole else 0

    def cost(self, shape: Shape, tiles: NDArray[np.int64], gap: int, *, write: bool) -> DiskCost:
        """
        Return the disk accesses of this side with tiles of some shapes.

        `tiles` has the lengths of a tile along each axis, one tile per row. Gaps of fewer than
        `gap` bytes are read. The result holds if no chunk is handled whole.

        Examples
        --------
        >>> tiles = np.array([[64, 1024], [1024, 64]])
        >>> Side(8, "C").cost((1024, 1024), tiles, 0, write=False).requests.tolist()
        [16.0, 16384.0]
        """
        runs, length, useful = self._count_extents(shape, tiles, 1 if write else max(gap, 1))
        total = math.prod(shape) * self.itemsize
        requests = runs * np.ceil(length / _REQUEST)
        none = np.zeros(len(tiles))
        if not write:
            return DiskCost(requests, total * (length / useful) + runs * _BLOCK, none, none)
        if self.pages is None:
            # The page cache merges them into long requests.
            return DiskCost(none + -(-total // _REQUEST), none + total, none, runs)
        page, _ = self.pages
        ends = self._count_ends(shape, tiles, runs)
        past = length >= _PAST * page
        # If the page cache is bypassed, an end shared with another run costs one more write, and the
        # page is read before the second write.
        requests = np.where(past, requests + ends, runs) + ends / 2
        return DiskCost(requests, total + ends * page, ends * page / 2, np.where(past, 0, runs))

    def _count_extents(
        self, shape: Shape, tiles: NDArray[np.int64], gap: int
    ) -> tuple[Numbers, Numbers, Numbers]:
        """For each tile, return the number of extents, and the bytes and requested bytes of one."""
        full = self.chunks or shape
        count, stride = np.ones(len(tiles)), float(self.itemsize)
        length = np.full(len(tiles), stride)
        useful, inside = length.copy(), np.ones(len(tiles), bool)
        for axis in order_axes(self.order, len(shape)):
            size = np.minimum(tiles[:, axis], max(full[axis], 1))
            inside &= stride - length < gap
            length = np.where(inside, (size - 1) * stride + length, length)
            useful = np.where(inside, useful * size, useful)
            count *= np.where(inside, -(-shape[axis] // np.maximum(size, 1)), shape[axis])
            stride *= full[axis]
        return count, length, useful

    def _count_ends(self, shape: Shape, tiles: NDArray[np.int64], runs: Numbers) -> Numbers:
        """Return the number of ends of runs that are inside pages."""
        if self.pages is None:
            return np.zeros(len(tiles))
        page, lead = self.pages
        if (units := self.find_page_units(shape)) is not None:
            axes = zip(units, shape, strict=True)
            apart = [tiles[:, d] % unit * (tiles[:, d] < n) for d, (unit, n) in enumerate(axes)]
            return np.where(np.any(apart, axis=0), 2 * runs, 0.0)
        if self.chunks is not None or not shape:
            return 2 * runs
        fast, ndim = order_axes(self.order, len(shape))[0], len(shape)
        row = shape[fast] * self.itemsize
        rows = math.prod(shape) / max(shape[fast], 1)
        whole = tiles[:, fast] >= shape[fast]
        between = whole | (tiles[:, fast] * self.itemsize % page == 0)
        if ndim > 1 and row % page:
            return 2 * runs
        if lead:
            # Rows begin and end inside a page, wherever the other edges of tiles are.
            return np.where(between, 2 * np.minimum(runs, rows), 2 * runs)
        return np.where(between, 0.0, 2 * runs)

    def _count_chunks(self, section: Sequence[slice]) -> int:
        """Return the number of chunks that a section touches."""
        axes = zip(section, self.chunks or (), strict=True)
        return math.prod(max(-(-part.stop // n) - part.start // n, 0) for part, n in axes)

    def count_shared_ends(self, shape: Shape, section: Sequence[slice]) -> int:
        """
        Return the number of run ends of a section inside pages, for writes bypassing the page cache.

        Examples
        --------
        >>> side = Side(8, "C", pages=(4096, 0))
        >>> section = slice(0, 10), slice(512, 700)
        >>> side.count_shared_ends((10, 1024), section), side.count_shared_ends((10, 1000), section)
        (10, 20)
        """
        if self.pages is None:
            return 0
        page, lead = self.pages
        if (units := self.find_page_units(shape)) is not None:
            axes = zip(section, units, shape, strict=True)
            if not any(
                part.start % n or (part.stop % n and part.stop < end) for part, n, end in axes
            ):
                return 0
            return 2 * self._count_chunks(section)
        first, runs, length, stride, apart = lead, 1, self.itemsize, self.itemsize, 0
        for axis in order_axes(self.order, len(shape)):
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


def order_axes(order: Order, ndim: int) -> Sequence[int]:
    """Return the axes of an array from the fastest to the slowest."""
    if isinstance(order, tuple):
        return order
    return range(ndim) if order == "F" else range(ndim - 1, -1, -1)
