"""
Loop collectively over partitions of an array that fit the memories of all ranks together.

Problem: under partitioned placement the array is stored in one file, and a computation on a part of it
should need no I/O: the part is divided over the memories of all ranks.
Approach: the array is cut into partitions along one axis. If that axis is not divided, a rank has the
elements of each partition that the distribution assigns to it. If it is divided, the rows of a partition
are divided into blocks over the coordinates of the grid. In both cases a rank needs one range along that
axis, with its halo, and its pieces along the others. All ranks read them in one collective call, which
reads the next partition while they compute.
Invariants: all ranks make the same number of steps, with one collective call in each; the rank with the
least memory determines the size of partitions. The own elements of all slabs of all ranks tile the
array.

Reference: PASSION report, section 4.1.2 (Partitioned-Incore Model), Figure 4 (III).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.pieces import intersect_pieces
from outcore.arrays.schedule import Schedule
from outcore.arrays.schedule.memory import Pages
from outcore.base.distribution import Distribution, Key, parse_widths
from outcore.problems.placement.part import LocalPart
from outcore.problems.placement.placed import get_step_bytes
from outcore.problems.placement.slabs import (
    Slab,
    SlabWindow,
    check_rows,
    choose_rows,
    loop,
    yield_only_slab,
)
from outcore.ranks.collective.call import CollectiveCall
from outcore.ranks.collective.request import CollectiveRequest, start

if TYPE_CHECKING:
    from outcore.problems.placement.placed import PlacementState

__all__ = ["iterate_partitions"]


class _CollectivePart:
    """Part of this rank, read collectively, with the interface that a loop needs of an array."""

    info = None

    def __init__(self, array: PlacementState, part: LocalPart) -> None:
        self._array, self._part = array, part

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._part.dtype

    def iread(self, key: Key, *, out: NDArray[Any]) -> CollectiveRequest[Any]:
        array = self._array
        disk, group = array.disk, array.group

        def call() -> Any:
            def bring() -> list[Any]:
                return self._part.prepare_readings(key, out)

            CollectiveCall(
                group,
                "PlacedArray.slabs",
                bring,
                "auto",
                lambda: disk.hints,
                meaning=lambda: array.path,
                describe=lambda: f"PlacedArray.slabs of {array.path!r}",
            ).run()

        return start(group, disk, call, writes=False)

    def iwrite(self, key: Key, value: NDArray[Any]) -> CollectiveRequest[None]:
        raise NotImplementedError("slabs are written by write_slab")


@dataclass(frozen=True)
class _PartitionPlan:
    """
    Division of an array into partitions, which follow each other along `axis`.

    In `whole` every rank has all of that axis, so that a halo there is just a longer range. `part` is
    this rank's part of `whole`, with the halo `others` along the other axes.
    """

    axis: int
    halo: list[tuple[int, int]]
    whole: Distribution
    others: list[tuple[int, int]]
    part: LocalPart

    @classmethod
    def of(cls, array: PlacementState, halo: Any, axis: int | None) -> _PartitionPlan:
        """Return the division for the arguments of `slabs`; raise `UsageError` if they are invalid."""
        ndim, along = len(array.shape), array.distribution.arguments.axes
        chosen = array.choose_slab_axis(axis) if axis is not None else _choose_axis(array, along)
        asked = list(array.ghosts) if halo is None else parse_widths(halo, ndim) or [(0, 0)] * ndim
        whole = _undivide_axis(array.distribution, chosen)
        others = [(0, 0) if d == chosen else pair for d, pair in enumerate(asked)]
        part = LocalPart(array.disk, whole, array.group.rank, others)
        return cls(chosen, asked, whole, others, part)


def iterate_partitions(
    array: PlacementState, halo: Any, axis: int | None, rows: int | None
) -> Iterator[Slab]:
    """Iterate over the partitions of an array; see `PlacedArray.slabs`. Collective."""
    if not array.shape:
        return yield_only_slab(array.disk)
    found: list[_PartitionPlan] = []

    def work() -> list[int]:
        cut = _PartitionPlan.of(array, halo, axis)
        found.append(cut)
        other = math.prod(n for d, n in enumerate(cut.part.shape) if d != cut.axis)
        before, behind = cut.halo[cut.axis]
        most = choose_rows(get_step_bytes(), other * array.dtype.itemsize, before + behind)
        return [cut.axis, check_rows(rows), before, behind, most]

    told = array.agree("slabs", work, f"halo={halo}, axis={axis}, rows={rows}", equal=4)
    cut, rank = found[0], array.group.rank
    chosen, part, length = cut.axis, cut.part, array.shape[cut.axis]
    grid_axis, grid = array.distribution.arguments.axes[chosen], array.distribution.grid
    divided = 1 if grid_axis is None else grid.shape[grid_axis]
    coordinate = 0 if grid_axis is None else grid.coordinates(rank)[grid_axis]
    step = told.setting(1)[0] or min(told.setting(4)) * divided
    core = cut.whole.core
    _, places = core.pieces(rank, cut.others, False)
    lead = places[:, :, 0].min(axis=0).tolist() if len(places) else [0] * len(array.shape)
    inner, owned = core.local_shape(rank, []), core.pieces(rank, [], False)
    windows, boxes = [], []
    for low in range(0, length, step):
        share = -(-min(step, length - low) // divided)
        first = min(low + coordinate * share, min(low + step, length))
        last = min(first + share, low + step, length)
        box, window = _make_window(first, last, chosen, inner, lead, part.shape, cut.halo)
        boxes.append(box)
        windows.append(window)

    def make_slab(number: int, data: NDArray[Any]) -> Slab:
        pieces = list(intersect_pieces(*owned, boxes[number]))
        return Slab(number, data, windows[number].inner, pieces)

    order = array.disk.order
    take = partial(_allocate_blocks, array)
    return loop(array.path, _CollectivePart(array, part), windows, chosen, order, make_slab, take)


def _allocate_blocks(array: PlacementState, schedule: Schedule) -> Pages:
    """Allocate memory for the blocks of a loop on all ranks, or raise on all. Collective."""
    taken: list[Pages] = []

    def allocate() -> None:
        taken.append(Pages(schedule))

    try:
        array.agree("slabs", allocate)
    except BaseException:
        for one in taken:
            one.close()
        raise
    return taken[0]


def _make_window(
    first: int,
    last: int,
    axis: int,
    inner: list[int],
    lead: list[int],
    whole: tuple[int, ...],
    asked: list[tuple[int, int]],
) -> tuple[Key, SlabWindow]:
    """Return the own elements of a partition, and the window that is read for them."""
    box: list[slice] = []
    section: list[slice] = []
    within: list[slice] = []
    for d, n in enumerate(inner):
        if d == axis:
            before, behind = asked[d]
            low, high = max(first - before, 0), min(last + behind, n)
            if first >= last:
                low = high = first
            box.append(slice(first, last))
            section.append(slice(low, high))
            within.append(slice(first - low, last - low))
        else:
            box.append(slice(0, n))
            section.append(slice(0, whole[d]))
            within.append(slice(lead[d], lead[d] + n))
    return tuple(box), SlabWindow(tuple(section), tuple(within))


def _choose_axis(array: PlacementState, along: tuple[int | None, ...]) -> int:
    """Return the slowest axis that is not divided; if there is none, the slowest axis."""
    ndim = len(array.shape)
    axes = range(ndim) if array.disk.order == "C" else range(ndim - 1, -1, -1)
    return next((d for d in axes if along[d] is None), axes[0])


def _undivide_axis(distribution: Distribution, axis: int) -> Distribution:
    """Return the same distribution, except that every rank has all of one axis."""
    shape, formats, grid, align, along = distribution.arguments
    if along[axis] is None and formats[axis] == "*":
        return distribution
    kinds = tuple("*" if d == axis else one for d, one in enumerate(formats))
    axes = tuple(None if d == axis else one for d, one in enumerate(along))
    aligned = tuple(None if d == axis else one for d, one in enumerate(align))
    return Distribution(shape, kinds, grid, align=aligned, axes=axes)
