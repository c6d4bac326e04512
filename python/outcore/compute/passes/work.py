"""
One pass over disk: some axes are held whole, the others are cut.

Problem. A pass reads and writes everything once. The tile determines how long the requests are on
both sides, and whether the disk works while the kernel does.
Idea. The work on a block (`PassWork`) determines its buffers, and the memory for an element of the axes
that are cut. The tile grows from one chunk, or one line, along the axis that makes the pass
cheapest according to the speed of the disk, while its copies fit: one that is loaded, one in use,
one that is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from outcore.arrays.schedule import Block, Buffer, Schedule, ScheduleStep
from outcore.arrays.tiling import Tiling
from outcore.base import assumed_costs
from outcore.compute.jobs import Terms
from outcore.compute.passes.places import Panels, TileSource, TileTarget

__all__ = ["Pass", "PassWork"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PassWork:
    """Work of a pass on each block, with any extents of the axes that are cut; here none."""

    #: Dtypes of the blocks: the first one is loaded, the last one is stored.
    dtypes: tuple[np.dtype, ...]
    #: For each block, the axes that are held whole, and their lengths.
    whole: tuple[dict[int, int], ...]
    #: Whether another block is loaded, with the first dtype and with other lines.
    beside: bool = field(default=False, kw_only=True)

    @property
    def kernels(self) -> tuple[Callable[..., None], ...]:
        """The kernel, if there is one."""
        return ()

    def arguments(self, origin: Shape, cores: int) -> tuple[Any, ...]:
        """Return the arguments of the kernel for a block that begins at `origin`."""
        return ()

    def scratch(self, most: int, cores: int) -> int:
        """Return the bytes that the kernel allocates for `most` elements of the axes that are cut."""
        return 0

    def operations(self, cut: int) -> int:
        """Return the floating-point operations for that many elements of the axes that are cut."""
        return 0

    def copies(self, *, busy: bool) -> Shape:
        """Return the number of copies of each block; if `busy`, transfers run while the kernel does."""
        if not busy:
            return (1,) * len(self.dtypes)
        if len(self.dtypes) == 1:
            return (3,)
        return (2, *(1,) * (len(self.dtypes) - 2), 2)

    def count_bytes(self, copies: Sequence[int]) -> int:
        """Return the bytes for an element of the axes that are cut."""
        blocks = [*zip(copies, self.dtypes, self.whole, strict=True)]
        blocks += blocks[: int(self.beside)]
        return sum(n * dtype.itemsize * _multiply_lengths(whole) for n, dtype, whole in blocks)

    def most(self, room: int, cores: int, *, busy: bool) -> int:
        """Return the number of elements of the axes that are cut that fit."""
        each = self.count_bytes(self.copies(busy=busy))
        found = max(room - self.scratch(room // each, cores), 0) // each
        if found == 0 and self.least(busy=busy, cores=cores) <= room:
            return 1
        return found

    def least(self, cores: int, *, busy: bool = False) -> int:
        """Return the bytes for one element of the axes that are cut."""
        return self.count_bytes(self.copies(busy=busy)) + self.scratch(1, cores)


@dataclass(frozen=True)
class Pass:
    """A pass with its tile."""

    work: PassWork
    source: TileSource
    target: TileTarget
    #: Extents of the tile; 1 for axes that are held whole.
    tile: Shape
    #: Number of copies of each block.
    copies: Shape
    #: Storage order of the blocks.
    order: str
    #: Bytes that the library allocates during a transform.
    spare: int
    #: Place of the other lines, if the work has a block of them: length 1 for axes that are not
    #: theirs.
    beside: Panels | None = None

    @classmethod
    def fit(
        cls, work: PassWork, source: TileSource, target: TileTarget, terms: Terms
    ) -> Pass | None:
        """Return the cheapest pass; None if the chunks of a side do not fit."""
        lengths = tuple(1 if v in work.whole[0] else n for v, n in enumerate(target.lengths))
        one = work.most(terms.room, terms.cores, busy=False)
        whole = math.prod(lengths)
        if whole <= one:
            tile = tuple(max(n, 1) for n in lengths)
            return cls._of(work, source, target, tile, (1,) * len(work.dtypes), terms)
        busy = work.most(terms.room, terms.cores, busy=True)
        sides = [side.chunks for side in (target, source) if side.whole and side.chunks]
        for most, copies in ((busy, work.copies(busy=True)), (one, work.copies(busy=False))):
            unit = [
                min(math.lcm(*(chunks[v] for chunks in sides)), n) for v, n in enumerate(lengths)
            ]
            if math.prod(unit) > most and len(sides) == 2:
                unit = [min(n, c) for n, c in zip(lengths, sides[0], strict=True)]
            if math.prod(unit) <= most and most:
                tile = _grow_tile(
                    lengths, unit, most, cls._cost(work, source, target, lengths, terms)
                )
                return cls._of(work, source, target, tile, copies, terms)
        return None

    @classmethod
    def _of(
        cls,
        work: PassWork,
        source: TileSource,
        target: TileTarget,
        tile: Shape,
        copies: Shape,
        terms: Terms,
    ) -> Pass:
        whole, ndim = work.whole[0], len(tile)
        extents = tuple(source.lengths[v] if v in whole else n for v, n in enumerate(tile))

        def turns(order: str) -> tuple[int, bool]:
            axes = range(ndim) if order == "F" else range(ndim - 1, -1, -1)

            def fastest(fast: Sequence[int]) -> int:
                return next((v for v in fast if extents[v] > 1), -1)

            here = fastest(tuple(axes))
            apart = (whole != {}) and here not in whole
            sides = (fastest(source.fast), fastest(target.fast))
            return sum(side != here for side in sides) + apart, apart

        order = min("CF", key=turns)
        spare = work.scratch(math.prod(tile), terms.cores)
        return cls(work, source, target, tile, copies, order, spare)

    @staticmethod
    def _cost(
        work: PassWork, source: TileSource, target: TileTarget, lengths: Shape, terms: Terms
    ) -> Callable[[Sequence[int]], float]:
        first, last = work.whole[0], work.whole[-1]
        sizes = [
            dtype.itemsize * _multiply_lengths(whole)
            for dtype, whole in ((work.dtypes[0], first), (work.dtypes[-1], last))
        ]

        def cost(tile: Sequence[int]) -> float:
            there = [min(first.get(v, n), source.lengths[v]) for v, n in enumerate(tile)]
            here = [target.lengths[v] if v in last else n for v, n in enumerate(tile)]
            requests = source.requests(there) + target.requests(here)
            nbytes = math.prod(lengths) * sum(sizes)
            # The kernel does not run while the first tile is read and the last one is written.
            alone = math.prod(tile) * sum(sizes)
            steps = math.prod(-(-n // t) for n, t in zip(lengths, tile, strict=True))
            return (
                terms.disk.seconds(0, alone)
                + terms.disk.seconds(int(requests), nbytes)
                + steps * assumed_costs.KERNEL_STEP_SECONDS
            )

        return cost

    def cost(self, terms: Terms) -> float:
        """Return the estimated time in seconds."""
        return self._cost(self.work, self.source, self.target, self.cut_lengths, terms)(self.tile)

    @property
    def cut_lengths(self) -> Shape:
        """Lengths of the axes that are cut; 1 for others."""
        whole = self.work.whole[0]
        return tuple(1 if v in whole else n for v, n in enumerate(self.target.lengths))

    @property
    def reader(self) -> Shape:
        """Extents of what the pass reads at a time."""
        return self._extents(self.source.lengths, self.work.whole[0])

    @property
    def writer(self) -> Shape:
        """Extents of what the pass writes at a time."""
        return self._extents(self.target.lengths, self.work.whole[-1])

    def _extents(self, lengths: Shape, whole: dict[int, int]) -> Shape:
        return tuple(
            k if v in whole else n for v, (k, n) in enumerate(zip(lengths, self.tile, strict=True))
        )

    def schedule(self, name: str, arrays: tuple[str, ...], cores: int, rate: float) -> Schedule:
        """Make the schedule of the pass."""
        work, source, target = self.work, self.source, self.target
        first, last = work.whole[0], work.whole[-1]
        tiles = Tiling(self.cut_lengths, self.tile, tuple(target.fast))
        largest = math.prod(tiles.largest)
        buffers = tuple(
            Buffer(largest * _multiply_lengths(whole), dtype, self.order, copies)
            for dtype, whole, copies in zip(work.dtypes, work.whole, self.copies, strict=True)
        )
        other = self.beside
        if other is not None:
            held = _multiply_lengths(first) * math.prod(
                n for n, length in zip(tiles.largest, other.lengths, strict=True) if length > 1
            )
            buffers += (Buffer(held, work.dtypes[0], self.order, self.copies[0]),)
        if self.spare:
            # Memory that the library allocates during a transform: only counted here.
            buffers += (Buffer(self.spare, np.dtype("u1")),)

        def step(number: int) -> ScheduleStep:
            ends = [(part.start, part.stop) for part in tiles.key(number)]
            blocks = tuple(
                Block(n, tuple(whole.get(v, high - low) for v, (low, high) in enumerate(ends)))
                for n, whole in enumerate(work.whole)
            )
            wanted = [(0, first[v]) if v in first else e for v, e in enumerate(ends)]
            origin = tuple(low for low, _ in wanted)
            # The kernel fills elements outside of the source.
            pairs = zip(wanted, source.lengths, strict=True)
            loaded = tuple((low, min(high, n)) for (low, high), n in pairs)
            loads = source.load(loaded, origin, blocks[0].shape)
            if other is not None:
                lines = [
                    (low, min(high, n)) if n > 1 else (0, 1)
                    for (low, high), n in zip(wanted, other.lengths, strict=True)
                ]
                there, extents = [low for low, _ in lines], [high - low for low, high in lines]
                loads += [
                    replace(one, block=len(blocks))
                    for one in other.load(tuple(lines), there, extents)
                ]
                blocks += (Block(len(blocks), tuple(extents)),)
            stored = tuple((0, last[v]) if v in last else e for v, e in enumerate(ends))
            cut = math.prod(high - low for low, high in ends)
            return ScheduleStep(
                blocks=blocks,
                loads=tuple(loads),
                stores=tuple(target.stores(stored, len(work.whole) - 1)),
                kernel=0 if work.kernels else None,
                arguments=work.arguments(origin, cores),
                work=work.operations(cut),
            )

        return Schedule(
            name=name,
            arrays=arrays,
            buffers=buffers,
            steps=len(tiles),
            make=step,
            kernels=work.kernels,
            rate=rate,
        )


def _grow_tile(
    lengths: Shape, unit: Sequence[int], most: int, cost: Callable[[Sequence[int]], float]
) -> Shape:
    """Return the cheapest of some fitting tiles of whole units, grown along one axis at a time."""
    least = [max(n, 1) for n in unit]

    def longest(tile: Sequence[int], axis: int) -> int:
        others = math.prod(tile) // tile[axis]
        return min(lengths[axis], max(most // others // least[axis], 1) * least[axis])

    def grow(tile: Sequence[int]) -> Shape:
        known = cost(tile)
        while True:
            tried = []
            for axis in range(len(lengths)):
                longer = min(longest(tile, axis), 2 * tile[axis])
                if longer > tile[axis]:
                    other = [*tile[:axis], longer, *tile[axis + 1 :]]
                    tried.append((cost(other), -axis, other))
            if not tried or min(tried)[0] >= known:
                break
            known, _, tile = min(tried)
        # Tiles of equal size, as far as possible.
        even = [math.ceil(n / max(math.ceil(n / t), 1)) for n, t in zip(lengths, tile, strict=True)]
        units = zip(even, tile, least, strict=True)
        return tuple(min(math.ceil(n / u) * u, t) or 1 for n, t, u in units)

    starts = [least]
    for axis, n in enumerate(lengths):
        if n > least[axis]:
            starts.append([*least[:axis], longest(least, axis), *least[axis + 1 :]])
    return min((grow(tile) for tile in starts), key=cost)


def _multiply_lengths(whole: dict[int, int]) -> int:
    return math.prod(whole.values())
