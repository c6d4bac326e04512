"""
Loops over the slabs of a local array: read ahead, with what neighbouring slabs share read once.

Problem. A rank computes on a local array that does not fit in its memory: slab by slab, each with a halo
of its neighbours, while the next one is read. The program should not know in which placement it lies.
Idea. A slab is a range of the local array along one axis. A placement says which section of its own
index space that is, halo included, and that space is an array for the executor of schedules: a loop is
a schedule of one load a step. Rows that a slab shares with the one before are taken from it, not read.

Invariants. At most three slabs exist at once, all counted in the memory budget. A slab is the caller's
until he asks for the next one. Own elements of slabs tile the local array.

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
from outcore.arrays.schedule import Block, Buffer, Load, OnDisk, Reuse, Run, Schedule, Step
from outcore.arrays.schedule.memory import Pages
from outcore.base.distribution import Key
from outcore.errors import UsageError

__all__ = ["Slab", "Window", "check_rows", "loop", "only_slab", "rows_of"]

#: Copies of a slab: one that the caller has, one that is read, one to come.
COPIES = 2
# A larger slab is read no faster, and should still be in the processor's cache when it is used.
_LARGEST = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Window:
    """
    What one step of a loop reads.

    Parameters
    ----------
    section
        Of the index space of the placement, halo included; slices of plain integers.
    inner
        Where the own elements are in it.
    """

    section: Key
    inner: Key

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is read."""
        return tuple(part.stop - part.start for part in self.section)


@dataclass(frozen=True, slots=True)
class Slab:
    """
    A piece of a rank's local array, in memory.

    Parameters
    ----------
    number
        Which of the loop it is, from 0.
    data
        Its elements, halo included. Valid until the loop goes on.
    inner
        Where the own elements are in `data`: a key.
    pieces
        The own elements as sections of the whole array, each with its place in ``data[inner]``.
    local
        The own elements in the local array, counted without its overlap area; None under partitioned
        placement, where slabs have no place in one.
    """

    number: int
    data: NDArray[Any]
    inner: Key
    pieces: list[tuple[Key, Key]] = field(repr=False)
    local: Key | None = None

    @property
    def own(self) -> NDArray[Any]:
        """
        The own elements: the view ``data[inner]``.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.Distribution((4, 3), ["block", "*"], 1)
        >>> a = outcore.create_placed("field.npy", rows, "f8", placement="global", ghosts=[1, 0])
        >>> [slab.own.shape for slab in a.slabs(rows=3)]
        [(3, 3), (1, 3)]
        """
        return self.data[self.inner]

    @property
    def indices(self) -> tuple[NDArray[np.int64], ...]:
        """
        Where the own elements lie in the whole array: an array of indices (int64) per axis.

        They broadcast to the shape of `own`, as those of `numpy.ogrid` do.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> turns = outcore.Distribution(5, ["cyclic"], 1)
        >>> a = outcore.create_placed("field.npy", turns, "f8", placement="global")
        >>> [slab.indices[0].tolist() for slab in a.slabs(rows=3)]
        [[0, 1, 2], [3, 4]]
        """
        shape = self.own.shape
        found = [np.zeros(n, np.int64) for n in shape]
        for section, place in self.pieces:
            for axis, (part, here) in enumerate(zip(section, place, strict=True)):
                found[axis][here] = np.arange(part.start, part.stop, part.step or 1)
        return tuple(np.ix_(*found)) if found else ()


def rows_of(room: int, other: int, halo: int) -> int:
    """
    How many rows a slab has: as many as `room` bytes hold, with the rows of its halo.

    Parameters
    ----------
    room
        Bytes for all slabs of the loop.
    other
        Bytes of one row.
    halo
        Rows of the halo, on both sides together.

    Examples
    --------
    >>> rows_of(4096, 64, 2), rows_of(64, 64, 2)
    (30, 1)
    """
    each = min(room // COPIES, _LARGEST)
    return max(each // max(other, 1) - halo, 1)


def check_rows(rows: int | None) -> int:
    """
    Return the rows of a slab that a caller asks for, or 0 if it leaves the choice to the loop.

    Parameters
    ----------
    rows
        Argument of `PlacedArray.slabs`.

    Raises
    ------
    UsageError
        ``bad-blocks``: less than one row.

    Examples
    --------
    >>> check_rows(None), check_rows(7)
    (0, 7)
    """
    if rows is None:
        return 0
    if rows < 1:
        raise UsageError(f"slabs: rows={rows}; give 1 or more", code="bad-blocks")
    return int(rows)


def only_slab(disk: DiskArray) -> Iterator[Slab]:
    """
    Iterate over the only slab of an array without axes.

    Parameters
    ----------
    disk
        The array.
    """
    yield Slab(0, np.asarray(disk.read()), (), [((), ())], ())


def loop(
    name: str,
    array: OnDisk,
    windows: list[Window],
    axis: int,
    order: str,
    made: Callable[[int, NDArray[Any]], Slab],
    take: Callable[[Schedule], Pages] = Pages,
) -> Iterator[Slab]:
    """
    Yield the slabs of some windows, reading ahead.

    Parameters
    ----------
    name
        Of the array, for people.
    array
        The index space of the placement.
    windows
        What each step reads. A window may begin within the one before, along `axis`.
    axis
        Along which windows follow each other.
    order
        Of the slabs in memory.
    made
        Makes a slab of its number and of what was read.
    take
        Takes the memory of all blocks, when the loop begins.
    """
    if not windows:
        return
    largest = max(math.prod(window.shape) for window in windows)
    buffer = Buffer(largest, array.dtype, "F" if order == "F" else "C", copies=COPIES)
    schedule = Schedule(
        "slabs", (name,), (buffer,), len(windows), lambda k: _step(windows, axis, k)
    )
    with Run(schedule, (array,), memory=take(schedule)) as run:
        number = 0
        while (blocks := run.load()) is not None:
            yield made(number, blocks.pop())
            run.store()
            number += 1


def _step(windows: list[Window], axis: int, number: int) -> Step:
    window = windows[number]
    block = (Block(0, window.shape),)
    key = window.section
    before = windows[number - 1].section if number else key
    shared = before[axis].stop - key[axis].start if number and _follows(before, key, axis) else 0
    if shared <= 0:
        return Step(block, (Load(0, key, 0),))
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
    # Also if nothing is left to load: of a collective read every rank makes each call.
    return Step(block, (Load(0, tuple(rest), 0, tuple(place)),), reuses=reuse)


def _follows(before: Key, key: Key, axis: int) -> bool:
    """Whether a section begins within the one before, and is the same along all other axes."""
    others = all(a == b for d, (a, b) in enumerate(zip(before, key, strict=True)) if d != axis)
    return others and before[axis].start <= key[axis].start < before[axis].stop
