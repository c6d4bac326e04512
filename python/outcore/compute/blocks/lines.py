"""
Passes over whole lines along an axis, of which few fit in memory.

Problem. Lines along a slow axis are scattered over the array: a few whole lines are many short
runs, several to a page. Each page is read, or partly written, for several blocks; if the page cache
does not keep the array in the meantime, the disk moves the page each time.
Idea. Blocks of whole lines are moved directly between the arrays and memory if that makes long
runs. Otherwise one more pass copies the array, in tiles with long runs on both sides, into a
temporary array that stores the blocks one after the other (`Panels`); the same for the result. The
measured speed of the disk decides for each side whether the copy is worth its bytes.

Invariants. The result for a line does not depend on the other lines of its block.

Reference: PASSION, section 4.3: an access along the wrong axis is an out-of-core transposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from outcore.arrays.schedule import Block, Buffer, Schedule, ScheduleStep
from outcore.arrays.tiling import cut_slabs
from outcore.base import assumed_costs
from outcore.base.report import format_count
from outcore.compute.jobs import SMALLEST, Bound, InsufficientBuffersError, Program, Result, Terms
from outcore.compute.passes.places import Panels, PlainArray, TileTarget
from outcore.compute.passes.work import Pass, PassWork

__all__ = ["plan_lines"]

Shape = tuple[int, ...]
Ends = tuple[tuple[int, int], ...]


def plan_lines(
    name: str,
    shape: Shape,
    axis: int,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    made: Shape,
    kernel: Callable[..., None],
) -> Callable[[Terms], Program]:
    """
    Return the planner of a function of whole lines along `axis`.

    `dtypes` are those of the array and of the result. The function replaces the axis by axes of
    shape `made`. `kernel` is called as ``kernel(blocks)``, with a block of lines and a block of
    results.
    """

    def plan(terms: Terms) -> Program:
        native = dtypes[0].newbyteorder("=")
        lines = _LineBlocks(shape, axis, (native, dtypes[1]), made, terms)
        # With very little memory, concurrent operations on panels need more than the blocks do.
        sides = _SIDES if terms.room >= SMALLEST else _SIDES[:1]
        ways = [lines.plan_passes(*one) for one in sides]
        best = min((way for way in ways if way is not None), key=lambda way: way.seconds)
        phases, temporaries = best.make_phases(name, kernel, terms.cores)
        total = math.prod(shape[:axis] + shape[axis + 1 :])
        each = (shape[axis] * dtypes[0].itemsize, math.prod(made) * dtypes[1].itemsize)
        return Program(
            phases,
            f"{format_count(len(lines.tiles), 'block')} of at most {lines.most} whole "
            f"lines{best.description}",
            Bound.of({n: total * one for n, one in enumerate(each)}, "input and result once"),
            temporaries,
        )

    return plan


# Whether the array, and the result, are copied. The first of the cheapest is taken.
_SIDES = ((False, False), (True, False), (False, True), (True, True))


@dataclass
class _LinePasses:
    """Source and target of the blocks, the passes that copy, and the predicted time."""

    lines: _LineBlocks
    here: TileTarget
    there: TileTarget
    before: Pass | None
    after: Pass | None
    seconds: float

    @property
    def description(self) -> str:
        """Part of the method's description."""
        sides = [word for one, word in ((self.before, "out of"), (self.after, "into")) if one]
        if not sides:
            return ""
        return f", {' and '.join(sides)} panels, because their runs in the array would be short"

    def make_phases(
        self, name: str, kernel: Callable[..., None], cores: int
    ) -> tuple[tuple[Schedule, ...], tuple[Result, ...]]:
        """Return the schedules and the arrays between them."""
        lines, temporaries = self.lines, []
        copies = ((self.before, self.here, 0), (self.after, self.there, 1))
        for one, place, n in copies:
            if one is not None:
                assert isinstance(place, Panels)
                temporaries.append(Result(place.shape, lines.dtypes[n]))
                place.number = 1 + len(temporaries)
        arrays = ("array", "result", *(f"panels {n + 1}" for n in range(len(temporaries))))
        done = [lines.make_schedule(name, arrays, self.here, self.there, kernel)]
        if self.before is not None:
            done.insert(0, self.before.schedule(name, arrays, cores, 0.0))
        if self.after is not None:
            done.append(self.after.schedule(name, arrays, cores, 0.0))
        return tuple(done), tuple(temporaries)


class _LineBlocks:
    """Blocks of whole lines."""

    def __init__(
        self,
        shape: Shape,
        axis: int,
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
        made: Shape,
        terms: Terms,
    ) -> None:
        self.shape, self.axis, self.dtypes, self.made = shape, axis, dtypes, made
        self.terms = terms
        line = 2 * (shape[axis] * dtypes[0].itemsize + max(math.prod(made) * dtypes[1].itemsize, 1))
        most = terms.room // line
        if most < 1:
            raise InsufficientBuffersError(line)
        others = (*shape[:axis], 1, *shape[axis + 1 :])
        self.tiles = cut_slabs(others, most, terms.order(0))
        self.most = math.prod(self.tiles.largest)

    @property
    def result(self) -> Shape:
        return (*self.shape[: self.axis], *self.made, *self.shape[self.axis + 1 :])

    def find_extents(self, tile: Sequence[int], side: int) -> Shape:
        """Return the shape of a block of lines (side 0) or of their results (side 1)."""
        whole = (self.shape[self.axis],) if side == 0 else self.made
        return (*tile[: self.axis], *whole, *tile[self.axis + 1 :])

    def plan_passes(self, before: bool, after: bool) -> _LinePasses | None:
        """Return the passes with or without copies before and after; None if these do not fit."""
        here: TileTarget = self.make_place(0, self.shape)
        there: TileTarget = self.make_place(1, self.result)
        seconds = len(self.tiles) * assumed_costs.KERNEL_STEP_SECONDS
        copies: list[Pass | None] = [None, None]
        for side, wanted in enumerate((before, after)):
            plain = self.make_place(side, (self.shape, self.result)[side])
            if not wanted:
                runs = plain.requests(self.find_extents(self.tiles.tile, side))
                seconds += self.terms.disk.seconds(int(runs), self.count_moved_bytes(side))
                continue
            found = self.plan_copy(plain, side) if math.prod(plain.lengths) else None
            if found is None:
                return None
            panels, copied = found
            seconds += copied.cost(self.terms)
            seconds += self.terms.disk.seconds(len(self.tiles), self.count_moved_bytes(side))
            copies[side] = copied
            here, there = (panels, there) if side == 0 else (here, panels)
        return _LinePasses(self, here, there, copies[0], copies[1], seconds)

    def count_moved_bytes(self, side: int) -> int:
        """Return the bytes moved for an array; chunks that several blocks decode count several times."""
        shape, presented = (self.shape, self.result)[side], self.terms.side(side)
        nbytes = math.prod(shape) * self.dtypes[side].itemsize
        chunks = None if presented is None else presented.chunks
        if presented is None or not presented.whole or chunks is None or not nbytes:
            return nbytes
        tile = self.find_extents(self.tiles.tile, side)
        again = (
            min(c, n) / t if t < min(c, n) else 1.0
            for c, n, t in zip(chunks, shape, tile, strict=True)
        )
        return int(nbytes * math.prod(again))

    def plan_copy(self, plain: PlainArray, side: int) -> tuple[Panels, Pass] | None:
        """Return panels with the blocks of a side, and the pass that fills or empties them, or None."""
        shape, work = plain.lengths, PassWork((self.dtypes[side],), ({},))
        block = self.find_extents(self.tiles.tile, side)
        itemsize = self.dtypes[side].itemsize
        reader, writer = (block, shape) if side == 0 else (shape, block)
        panels = Panels(-1, shape, reader, writer, plain.fast, itemsize)
        source, target = (plain, panels) if side == 0 else (panels, plain)
        done = Pass.fit(work, source, target, self.terms)
        if done is None:
            return None
        if side == 0:
            panels = replace(panels, writer=done.tile)
            return panels, replace(done, target=panels)
        panels = replace(panels, reader=done.tile)
        return panels, replace(done, source=panels)

    def make_place(self, side: int, lengths: Shape) -> PlainArray:
        """Return the array, or the result, as it is stored."""
        itemsize, presented = self.dtypes[side].itemsize, self.terms.side(side)
        return PlainArray.of(side, lengths, itemsize, presented, written=side == 1)

    def make_schedule(
        self,
        name: str,
        arrays: tuple[str, ...],
        here: TileTarget,
        there: TileTarget,
        kernel: Callable[..., None],
    ) -> Schedule:
        tiles, axis = self.tiles, self.axis
        orders = ("CF"[place.fast[:1] == (0,)] for place in (here, there))
        sizes = (self.shape[axis], math.prod(self.made))
        pairs = zip(sizes, self.dtypes, orders, strict=True)
        buffers = tuple(Buffer(self.most * n, kind, order, copies=2) for n, kind, order in pairs)

        def step(number: int) -> ScheduleStep:
            cut = [(part.start, part.stop) for part in tiles.key(number)]
            wanted = (*cut[:axis], (0, self.shape[axis]), *cut[axis + 1 :])
            stored = (*cut[:axis], *((0, n) for n in self.made), *cut[axis + 1 :])
            sizes = [tuple(high - low for low, high in ends) for ends in (wanted, stored)]
            return ScheduleStep(
                blocks=(Block(0, sizes[0]), Block(1, sizes[1])),
                loads=tuple(here.load(wanted, [low for low, _ in wanted], sizes[0])),
                stores=tuple(there.stores(stored, 1)),
                kernel=0,
            )

        return Schedule(name, arrays, buffers, len(tiles), step, (kernel,))
