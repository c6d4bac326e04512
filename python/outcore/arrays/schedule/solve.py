"""
Tile shapes and loop orders of loop nests, by search.

Problem: a computation over arrays that do not fit in memory is a nest of loops over tiles. The length
of the tiles along each axis and the nesting of the loops determine how often an array is read, in which
runs, and which blocks stay in memory. Rules of thumb are wrong by a factor of ten if extents, chunks or
memory are unusual.
Approach: the memory, bytes and requests of a nest follow from its extents, its tile and its order by
arithmetic. All points of a coarse grid (tiles that divide an axis evenly, and end at edges of chunks)
are evaluated, and the best is improved along three axes at a time.

A block of an array is loaded again whenever a loop advances that is at or outside of the innermost loop
that indexes the array. If there are loops inside that one, the block is *kept* while they run, in one
copy, and nothing is computed while it changes. Otherwise it is *streamed*: the next block is loaded
while the kernel works on this one.

Invariants: pure, so equal nests give equal solutions and an interrupted job can resume. A solution uses
at most the given memory.

Reference: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel I/O",
sections 4.1 to 4.3 (slabs, reuse, prefetch), where tiles are slabs of fixed orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from outcore.base import assumed_costs

__all__ = ["Nest", "NestArray", "Solution", "Speed", "solve"]

# A run costs part of a page at each of its ends, because headers shift data off page boundaries.
_PAGE = 4096
# Number of points of the coarse grid for each order.
_POINTS = 4096
# Up to this length of an axis, every length of a tile is tried.
_SHORT = 24
# Ratio of successive candidates of an axis.
_APART = 2**0.25
# Number of axes that change together from a point, and the distances in candidates, up or down.
_TOGETHER, _NEAR = 3, (1, 2, 4, 8, 16)

_Points = NDArray[np.int64]
_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NestArray:
    """An array of a nest."""

    #: Loops that index it, in storage order: the last one varies fastest.
    axes: tuple[int, ...]
    #: Bytes of a stored element; 0 if the array is in memory.
    width: int
    #: Bytes of memory per element of a block, all copies together, if the next block is loaded (or
    #: the last one stored) while the kernel runs.
    streamed: int
    #: The same, if the block stays for several steps.
    kept: int
    #: True if the array is stored; it is also loaded again if a loop that does not index it is
    #: outside of one that does.
    result: bool = False
    #: Number of elements that a block has beyond its tile, for each of `axes`; () if there are
    #: none.
    halo: tuple[int, ...] = ()
    #: Lengths of its chunks, for each of `axes`; None if it is stored contiguously.
    chunks: tuple[int, ...] | None = None
    #: True if accessing any part of a chunk costs the whole chunk.
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops over all indices of axes of the lengths `extents`."""

    extents: tuple[int, ...]
    operands: tuple[NestArray, ...]
    #: Allowed orders of the loops, outermost first; () means all.
    orders: tuple[tuple[int, ...], ...] = ()
    #: Axes whose tile is the whole axis.
    uncut: tuple[int, ...] = ()
    #: Operations of the kernel for each combination of indices.
    operations: float = 0.0
    #: Maximum length of a tile along each axis; () means the extents. An uncut axis has no limit.
    most: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates for comparing tiles."""

    #: Seconds of one additional request to the disk.
    latency: float
    #: Bytes per second of the disk.
    rate: float
    #: Operations per second of the kernel on large blocks.
    operations: float = math.inf
    #: Bytes of blocks per second that a kernel passes through the caches.
    memory: float = math.inf


@dataclass(frozen=True, slots=True)
class Solution:
    """A tile and an order of loops."""

    tile: tuple[int, ...]
    #: Order of the loops, outermost first.
    order: tuple[int, ...]
    #: For each operand, whether its blocks stay in memory for several steps.
    kept: tuple[bool, ...]
    #: Bytes of all blocks.
    memory: int
    #: Bytes that are moved.
    nbytes: int
    requests: int
    #: Time at the speed for which it was solved.
    seconds: float


def solve(nest: Nest, room: int, speed: Speed) -> Solution | int:
    """
    Return the tile and the order with the least time for `room` bytes of blocks.

    All extents are at least 1. If there is no solution, return the bytes of memory with which there
    is one.

    Examples
    --------
    >>> a, b = NestArray((0, 2), 8, 16, 8), NestArray((2, 1), 8, 16, 8)
    >>> c = NestArray((0, 1), 8, 16, 8, result=True)
    >>> nest = Nest((50_000, 50_000, 50_000), (a, b, c), orders=((0, 1, 2), (1, 0, 2)))
    >>> solution = solve(nest, 2**30, Speed(1e-5, 2e9))
    >>> solution.memory <= 2**30, solution.kept
    (True, (False, False, True))
    """
    lists = [_list_candidates(nest, axis) for axis in range(len(nest.extents))]
    coarse = _multiply(_thin(lists))
    best: Solution | None = None
    needed = math.inf
    for order in nest.orders or tuple(permutations(range(len(nest.extents)))):
        search = _TileSearch(nest, order, room, speed)
        seconds, memory = search.look(coarse)
        needed = min(needed, float(memory.min()))
        at = int(seconds.argmin())
        if not math.isfinite(seconds[at]):
            continue
        found = search.improve(coarse[at], lists)
        if best is None or found.seconds < best.seconds:
            best = found
    return int(needed) if best is None else best


class _TileSearch:
    """Search over the points of one order."""

    def __init__(self, nest: Nest, order: tuple[int, ...], room: int, speed: Speed) -> None:
        self.nest, self.order, self.room, self.speed = nest, order, room, speed

    def look(self, points: _Points) -> tuple[_Numbers, _Numbers]:
        """Return seconds (infinite where memory is too small) and memory of each point."""
        figures = _PointCosts(self.nest, self.order, self.speed, points)
        return np.where(figures.memory <= self.room, figures.seconds, np.inf), figures.memory

    def improve(self, point: _Points, lists: Sequence[list[int]]) -> Solution:
        """Improve a point that fits until no change along a few axes makes it better."""
        point, best = point.copy(), float(self.look(point[None])[0][0])
        cut = [axis for axis, one in enumerate(lists) if len(one) > 1]
        moves = list(combinations(cut, min(len(cut), _TOGETHER))) if cut else []
        better = True
        while better:
            better = False
            for axes in moves:
                near = [_pick_near(lists[axis], int(point[axis])) for axis in axes]
                points = np.repeat(point[None], math.prod(map(len, near)), axis=0)
                points[:, axes] = _multiply(near)
                seconds, _ = self.look(points)
                at = int(seconds.argmin())
                if seconds[at] < best:
                    better, best, point = True, float(seconds[at]), points[at]
        return self.solution(point)

    def solution(self, point: _Points) -> Solution:
        figures = _PointCosts(self.nest, self.order, self.speed, point[None])
        return Solution(
            tile=tuple(int(n) for n in point),
            order=self.order,
            kept=tuple(bool(one[0]) for one in figures.kept),
            memory=int(figures.memory[0]),
            nbytes=int(figures.nbytes[0]),
            requests=int(figures.requests[0]),
            seconds=float(figures.seconds[0]),
        )


class _PointCosts:
    """Costs of points, by arithmetic."""

    def __init__(self, nest: Nest, order: tuple[int, ...], speed: Speed, points: _Points) -> None:
        self.nest, self.order, self.speed = nest, order, speed
        self.tiles = [points[:, n].astype(np.float64) for n in range(points.shape[1])]
        pairs = zip(nest.extents, self.tiles, strict=True)
        self.counts = [np.ceil(extent / tile) for extent, tile in pairs]
        self.count = len(points)
        nothing = np.zeros(self.count)
        self.memory, self.nbytes, self.requests = nothing.copy(), nothing.copy(), nothing.copy()
        self.kept: list[NDArray[np.bool_]] = []
        self.steps = math.prod(self.counts, start=nothing + 1)
        self.beside, self.alone, passed = nothing.copy(), nothing.copy(), nothing.copy()
        for operand in nest.operands:
            passed += self.add_operand(operand) * self.steps
        computing = self.steps * assumed_costs.STEP_SECONDS + passed / speed.memory
        computing += nest.operations * math.prod(map(float, nest.extents)) / speed.operations
        computing += self.requests * assumed_costs.REQUEST_DELAY
        longer, shorter = np.maximum(computing, self.beside), np.minimum(computing, self.beside)
        self.seconds = longer + assumed_costs.SHARED_TIME * shorter + self.alone

    def add_operand(self, one: NestArray) -> _Numbers:
        """Add the costs of one array; return the bytes of its blocks that a step touches."""
        trips, kept = self.count_trips(one)
        halo = one.halo or (0,) * len(one.axes)
        block = self.make_ones()
        for axis, more in zip(one.axes, halo, strict=True):
            block = block * np.minimum(self.tiles[axis] + more, self.nest.extents[axis])
        few = kept | (self.steps <= 1)
        self.kept.append(kept)
        self.memory += block * np.where(few, one.kept, one.streamed)
        distinct = math.prod((self.counts[axis] for axis in one.axes), start=self.make_ones())
        nbytes, requests = self.count_sweep(one, halo)
        # An incomplete result is loaded before it is stored.
        sweeps = 2 * trips / distinct - 1 if one.result else trips / distinct
        nbytes, requests = nbytes * sweeps, requests * sweeps
        self.nbytes += nbytes
        self.requests += requests
        seconds = nbytes / self.speed.rate + requests * self.speed.latency
        # Nothing runs while a kept block changes, while the first block is loaded, and while the last
        # is stored.
        self.alone += np.where(few, seconds, seconds / trips)
        self.beside += np.where(few, 0.0, seconds - seconds / trips)
        return block * max(one.width, 1)

    def count_trips(self, one: NestArray) -> tuple[_Numbers, NDArray[np.bool_]]:
        """Return how often a block is loaded or stored, and whether it is kept for several steps."""
        trips, seen = self.make_ones(), self.make_ones() < 0
        kept = seen.copy()
        for axis in reversed(self.order):
            several = self.counts[axis] > 1
            if axis in one.axes:
                seen |= several
            else:
                kept |= several & ~seen
            trips *= np.where(seen, self.counts[axis], 1.0)
        return trips, kept

    def count_sweep(self, one: NestArray, halo: Sequence[int]) -> tuple[_Numbers, _Numbers]:
        """Return bytes and requests of all blocks once."""
        if not one.width:
            return 0 * self.make_ones(), 0 * self.make_ones()
        if one.whole and one.chunks is not None:
            return self.count_chunk_sweep(one, one.chunks, halo)
        elements, run = self.make_ones(), self.make_ones()
        whole = self.make_ones() > 0
        # Runs extend over axes that are whole, starting with the fastest.
        for n in reversed(range(len(one.axes))):
            axis = one.axes[n]
            extent = self.nest.extents[axis]
            full = extent if one.chunks is None else min(one.chunks[n], extent)
            tile = np.minimum(self.tiles[axis] + halo[n], extent)
            elements = elements * (extent + (self.counts[axis] - 1) * halo[n])
            run = run * np.where(whole, np.minimum(tile, full), 1.0)
            whole &= tile >= full
        runs = elements / run
        # Count whole pages where runs are cut.
        length = run * one.width
        # Requests are for whole pages; the pages at both ends of a stored run are loaded and stored.
        more = 4 * _PAGE if one.result else _PAGE
        cut = np.where(whole, length, length + more)
        listed = runs * cut / self.speed.rate + runs * self.speed.latency
        # Or everything between the first and the last run of a row of blocks.
        spanned = self.compute_span_factor(one) * elements * one.width
        sieved = (spanned / self.speed.rate < listed) & (not one.result)
        return np.where(sieved, spanned, runs * cut), np.where(sieved, spanned / 2**20 + 1, runs)

    def compute_span_factor(self, one: NestArray) -> _Numbers:
        """Return the factor by which reads grow if the gaps between runs are read."""
        factor, whole = self.make_ones(), self.make_ones() > 0
        for n in reversed(range(len(one.axes))):
            extent = self.nest.extents[one.axes[n]]
            full = extent if one.chunks is None else min(one.chunks[n], extent)
            factor = np.where(whole, np.maximum(full / self.tiles[one.axes[n]], 1.0), factor)
            whole &= self.tiles[one.axes[n]] >= full
        return factor

    def count_chunk_sweep(
        self, one: NestArray, chunks: Sequence[int], halo: Sequence[int]
    ) -> tuple[_Numbers, _Numbers]:
        touched, elements, cut = self.make_ones(), self.make_ones(), self.make_ones() < 0
        for axis, chunk, more in zip(one.axes, chunks, halo, strict=True):
            extent, tile, count = self.nest.extents[axis], self.tiles[axis], self.counts[axis]
            both = np.lcm(tile.astype(np.int64), chunk)
            # Each edge of a tile that is not an edge of a chunk cuts a chunk in two.
            here = math.ceil(extent / chunk) + (count - 1) - (extent - 1) // both
            here = here + (count - 1) * (math.ceil(more / chunk) + 1 if more else 0)
            touched = touched * here
            elements = elements * np.minimum(here * chunk, extent + (here - 1) * chunk)
            cut |= count - 1 > (extent - 1) // both
        # A part of a chunk is stored by loading, changing and storing the chunk.
        twice = np.where(cut & one.result, 2.0, 1.0)
        return twice * elements * one.width, twice * touched

    def make_ones(self) -> _Numbers:
        return np.ones(self.count)


def _list_candidates(nest: Nest, axis: int) -> list[int]:
    """Return lengths of tiles along an axis that divide it evenly, or end at edges of chunks."""
    extent = nest.extents[axis]
    if axis in nest.uncut:
        return [extent]
    longest = nest.most[axis] if nest.most else extent
    if extent <= _SHORT:
        return list(range(1, longest + 1))
    grains = sorted(set(_list_grains(nest, axis)))
    both = math.lcm(*grains)
    if len(grains) > 1 and both < extent:
        grains = sorted({*grains, both})
    found = {1, extent}
    finest = min(grains, default=extent)
    for grain in (1, *grains):
        most = finest if grain == 1 else extent
        units = math.ceil(most / grain)
        count = 1.0
        while count <= units:
            found.add(min(math.ceil(units / round(count)) * grain, extent))
            count = count + 1 if count < 8 else count * _APART
    return sorted({min(length, longest) for length in found})


def _list_grains(nest: Nest, axis: int) -> list[int]:
    """Return the distances of preferred edges of tiles."""
    extent, found = nest.extents[axis], []
    for one in nest.operands:
        if axis not in one.axes or not one.width:
            continue
        at = one.axes.index(axis)
        if one.chunks is not None:
            found.append(one.chunks[at])
    return [grain for grain in found if 1 < grain < extent]


def _thin(lists: Sequence[list[int]]) -> list[list[int]]:
    """Reduce each list, evenly spread, so that their product is at most `_POINTS`."""
    most = max(map(len, lists), default=1)
    while math.prod(min(len(one), most) for one in lists) > _POINTS and most > 2:
        most -= 1
    return [_pick_spread(one, most) for one in lists]


def _pick_spread(values: list[int], most: int) -> list[int]:
    if len(values) <= most:
        return values
    return [values[k * (len(values) - 1) // (most - 1)] for k in range(most)]


def _pick_near(values: list[int], value: int) -> list[int]:
    """Return a value of a list, its neighbours, and the ends."""
    at = values.index(value)
    places = {at, *(at + step for step in _NEAR), *(at - step for step in _NEAR)}
    return [values[n] for n in sorted(places | {0, len(values) - 1}) if 0 <= n < len(values)]


def _multiply(lists: Sequence[Sequence[int]]) -> _Points:
    grids = np.meshgrid(*[np.array(one, np.int64) for one in lists], indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=-1)
