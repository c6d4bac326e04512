"""
Schedule of a copy: tile by tile, with axes permuted and elements cast in memory.

Problem. Few pieces suit the layouts of both arrays.
Idea. `outcore.arrays.tiling` cuts the array into the tiles with the smallest predicted time. The
core permutes axes while it reads, so a tile is in memory once; a cast needs a second buffer and a
kernel. One tile is read while another is written, unless tiles of twice the size are faster. A
section is copied like an array whose tiles suit the chunks that it touches.

Reference: PASSION, section 4.1 (slabs), and the transpose of section 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays import tiling
from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Schedule,
    ScheduleStep,
    Section,
    Store,
    get_shape,
)
from outcore.arrays.tiling import Side, Tiling
from outcore.base.report import format_count
from outcore.base.sections import Selection
from outcore.compute.jobs import SMALLEST, Bound, InsufficientBuffersError, Program, Terms

__all__ = ["plan_copy"]

# Tiles that are read at the same time, from files that need no decoding.
_READS = 2
# Copying without overlap must be this much faster by prediction, which is rough.
_CLEARLY = 0.95


def plan_copy(
    name: str,
    shape: tuple[int, ...],
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    axes: Sequence[int] | None = None,
    section: Selection | None = None,
) -> Callable[[Terms], Program]:
    """
    Return the planner of a copy.

    `dtypes` are those of source and target. Axis `n` of the target is axis ``axes[n]`` of the
    source; None: the same order. With `section`, only that section of the source is copied, `shape`
    is its shape, and there are no `axes`.
    """
    permutation = tuple(range(len(shape))) if axes is None else tuple(axes)

    def plan(terms: Terms) -> Program:
        source = terms.side(0) or Side(dtypes[0].itemsize, "C")
        if section is not None:
            source = section.side(source)
        target = (terms.target(1) or Side(dtypes[1].itemsize, "C")).permute(permutation)
        same = dtypes[0] == dtypes[1]
        per_element = dtypes[0].itemsize + dtypes[1].itemsize
        size = math.prod(shape)
        # With a smaller budget the copy would be extremely slow.
        least = min(size, SMALLEST // max(per_element, 1)) * per_element
        terms.require(least)

        def cut(most: int, *, ahead: bool) -> tuple[Tiling | int, float]:
            found = tiling.choose(
                shape, source, target, most, disk=terms.disk, ahead=ahead, ranks=terms.ranks
            )
            if not isinstance(found, Tiling):
                return found, math.inf
            took = tiling.estimate_seconds(
                found, source, target, terms.disk, ahead=ahead, ranks=terms.ranks
            )
            return found, took

        # One tile is read while another is written: two buffers, whether elements are cast or not.
        tiles, took = cut(terms.room // per_element, ahead=True)
        alone = False
        # Writes that bypass the page cache share the disk with reads. Overlapping them gains little, and
        # tiles that are twice as large have longer runs.
        if same and target.pages is not None and not (source.whole or target.whole):
            larger, takes = cut(terms.room // dtypes[0].itemsize, ahead=False)
            if takes < _CLEARLY * took:
                tiles, alone = larger, True
        if not isinstance(tiles, Tiling):
            raise InsufficientBuffersError(tiles * per_element)
        most = max(math.prod(tiles.tile), 1)
        # Reads that decode share the processor, not an idle disk: one is enough for them.
        reads = 1 if source.whole or alone else min(_READS, max(len(tiles), 1))
        if reads > 1 and most * (per_element + dtypes[0].itemsize) > 2 * terms.room // 3:
            reads = 1
        order = terms.order(1)
        copies = reads + (same and not alone)
        buffers: tuple[Buffer, ...] = (Buffer(most, dtypes[0], order, copies=copies),)
        if not same:
            buffers += (Buffer(most, dtypes[1], order),)
        schedule = _make_schedule(name, tiles, buffers, permutation, reads, section)
        runs = " x ".join(map(str, tiles.tile)) or "one element"
        return Program(
            (schedule,),
            f"{format_count(len(tiles), 'tile')} of {runs}, chosen for the layouts of source and target",
            Bound.of(
                {n: size * one.itemsize for n, one in enumerate(dtypes)}, "input and result once"
            ),
        )

    return plan


def _make_schedule(
    name: str,
    tiles: Tiling,
    buffers: tuple[Buffer, ...],
    axes: tuple[int, ...],
    reads: int,
    selected: Selection | None,
) -> Schedule:
    plain = axes == tuple(range(len(axes)))

    def load(section: Section) -> Load:
        if selected is None:
            return Load(0, section, 0, axes=None if plain else axes)
        there = selected.make_array_slices(section)
        return Load(0, there, 0, shape=None if selected.keeps_axes else get_shape(there))

    def step(number: int) -> ScheduleStep:
        section = tiles.key(number)
        there = tuple(section[axis] for axis in axes)
        shape = tuple(part.stop - part.start for part in there)
        return ScheduleStep(
            blocks=tuple(Block(n, shape) for n in range(len(buffers))),
            loads=(load(section),),
            stores=(Store(1, there, len(buffers) - 1),),
            kernel=0 if len(buffers) > 1 else None,
        )

    return Schedule(
        name=name,
        arrays=("source", "target"),
        buffers=buffers,
        steps=len(tiles),
        make=step,
        kernels=(_cast,),
        reading=reads,
    )


def _cast(blocks: Sequence[NDArray[Any]]) -> None:
    source, target = blocks
    np.copyto(target, source, casting="unsafe")
