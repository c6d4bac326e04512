"""
Loop over the slabs of a local array, reading ahead, and reading shared elements once.

Problem: a rank computes on a local array that does not fit in its memory, slab by slab, each with a halo
of neighbouring elements, while the next slab is read. The program should not depend on the placement.
Approach: a slab is a range of the local array along one axis. A placement maps it, halo included, to a
section of its own index space, and that space is an array for the executor of schedules: a loop is a
schedule with one load per step. Rows that a slab shares with the previous one are copied from it, not
read.
Invariants: at most two slabs exist at a time, both counted in the memory budget. A slab is valid until
the caller requests the next one. The own elements of slabs tile the local array.

Reference: PASSION report, sections 4.5.2 (prefetching) and 4.5.3 (data reuse), Figure 14; the in-core
local array (ICLA) of section 4.1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import (
    AsyncArray,
    Block,
    Buffer,
    Load,
    Reuse,
    Schedule,
    ScheduleRun,
    ScheduleStep,
)
from outcore.arrays.schedule.memory import Pages
from outcore.base.distribution import Key
from outcore.errors import UsageError

__all__ = ["Slab", "SlabWindow", "check_rows", "choose_rows", "loop", "yield_only_slab"]

#: Number of slabs in memory: one in use by the caller, one being read.
COPIES = 2
# Larger slabs are not read faster, and a slab should still be in the processor's cache when it is used.
_LARGEST = 16 * 2**20


@dataclass(frozen=True, slots=True)
class SlabWindow:
    """Section that one step of a loop reads, with its halo, and the position of the own elements."""

    section: Key
    inner: Key

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the section."""
        return tuple(part.stop - part.start for part in self.section)


@dataclass(frozen=True, slots=True)
class Slab:
    """
    Piece of a rank's local array, in memory.

    Parameters
    ----------
    number
        Number of the slab in the loop, from 0.
    data
        Elements, halo included. Valid until the next iteration.
    inner
        Key of the own elements in `data`.
    pieces
        Own elements as sections of the whole array, each with its position in ``data[inner]``.
    local
        Section of the own elements in the local array without its overlap area; None under partitioned
        placement, where slabs have no such section.
    """

    number: int
    data: NDArray[Any]
    inner: Key
    pieces: list[tuple[Key, Key]] = field(repr=False)
    local: Key | None = None

    @property
    def own(self) -> NDArray[Any]:
        """
        Own elements: the view ``data[inner]``.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.mpi.Distribution((4, 3), ["block", "*"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", rows, "f8", placement="global", ghosts=[1, 0])
        >>> [slab.own.shape for slab in a.slabs(rows=3)]
        [(3, 3), (1, 3)]
        """
        return self.data[self.inner]

    @property
    def indices(self) -> tuple[NDArray[np.int64], ...]:
        """
        Indices of the own elements in the whole array: one int64 array per axis.

        They broadcast to the shape of `own`, as those of `numpy.ogrid` do.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> turns = outcore.mpi.Distribution(5, ["cyclic"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", turns, "f8", placement="global")
        >>> [slab.indices[0].tolist() for slab in a.slabs(rows=3)]
        [[0, 1, 2], [3, 4]]
        """
        shape = self.own.shape
        found = [np.zeros(n, np.int64) for n in shape]
        for section, place in self.pieces:
            for axis, (part, here) in enumerate(zip(section, place, strict=True)):
                found[axis][here] = np.arange(part.start, part.stop, part.step or 1)
        return tuple(np.ix_(*found)) if found else ()


def choose_rows(room: int, other: int, halo: int) -> int:
    """
    Return the number of rows of `other` bytes that a slab has if `room` bytes hold all slabs of a loop.

    `halo` is the number of halo rows, on both sides together; they are not counted in the result.

    Examples
    --------
    >>> choose_rows(4096, 64, 2), choose_rows(64, 64, 2)
    (30, 1)
    """
    each = min(room // COPIES, _LARGEST)
    return max(each // max(other, 1) - halo, 1)


def check_rows(rows: int | None) -> int:
    """
    Return the requested number of rows of a slab, or 0 if the loop chooses it.

    Examples
    --------
    >>> check_rows(None), check_rows(7)
    (0, 7)
    """
    if rows is None:
        return 0
    if rows < 1:
        raise UsageError(f"slabs: rows={rows} is not positive; pass 1 or more", code="bad-blocks")
    return int(rows)


def yield_only_slab(disk: DiskArray) -> Iterator[Slab]:
    """Yield the only slab of an array without axes."""
    yield Slab(0, np.asarray(disk.read()), (), [((), ())], ())


def loop(
    name: str,
    array: AsyncArray,
    windows: list[SlabWindow],
    axis: int,
    order: str,
    made: Callable[[int, NDArray[Any]], Slab],
    take: Callable[[Schedule], Pages] = Pages,
) -> Iterator[Slab]:
    """
    Yield the slabs of some windows, reading ahead.

    A window may begin within the previous one, along `axis`. `array` is the index space of the
    placement, and `take` allocates the memory of all blocks when the loop begins.
    """
    if not windows:
        return
    largest = max(math.prod(window.shape) for window in windows)
    buffer = Buffer(largest, array.dtype, "F" if order == "F" else "C", copies=COPIES)
    schedule = Schedule(
        "slabs", (name,), (buffer,), len(windows), lambda k: _make_step(windows, axis, k)
    )
    with ScheduleRun(schedule, (array,), memory=take(schedule)) as run:
        number = 0
        while (blocks := run.load()) is not None:
            yield made(number, blocks.pop())
            run.store()
            number += 1


def _make_step(windows: list[SlabWindow], axis: int, number: int) -> ScheduleStep:
    window = windows[number]
    block = (Block(0, window.shape),)
    key = window.section
    before = windows[number - 1].section if number else key
    shared = (
        before[axis].stop - key[axis].start if number and _is_continued(before, key, axis) else 0
    )
    if shared <= 0:
        return ScheduleStep(block, (Load(0, key, 0),))
    shared = min(shared, window.shape[axis])
    there, here, place, rest = (
        [slice(0, n) for n in window.shape],
        [slice(0, n) for n in window.shape],
        [slice(0, n) for n in window.shape],
        list(key),
    )
    first = key[axis].start - before[axis].start
    there[axis] = slice(first, first + shared)
    here[axis] = slice(0, shared)
    place[axis] = slice(shared, window.shape[axis])
    rest[axis] = slice(key[axis].start + shared, key[axis].stop)
    reuse = (Reuse(0, tuple(here), 0, tuple(there)),)
    # Load even an empty section: in a collective read, every rank must make each call.
    return ScheduleStep(block, (Load(0, tuple(rest), 0, tuple(place)),), reuses=reuse)


def _is_continued(before: Key, key: Key, axis: int) -> bool:
    """Return whether a section begins within the previous one and is the same along all other axes."""
    others = all(a == b for d, (a, b) in enumerate(zip(before, key, strict=True)) if d != axis)
    return others and before[axis].start <= key[axis].start < before[axis].stop
