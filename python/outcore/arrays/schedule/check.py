"""
Checks of a schedule, step by step, before anything is read.

Problem. A schedule that reads what is not yet written, or stores a part of an array twice, gives wrong
elements without a word; one whose buffers do not hold its blocks breaks its promise of memory.
Idea. Everything a run relies on is decided by the steps alone. They are walked once, in order, with what
is stored of each array as a list of boxes.

Invariants. What passes here can be run by any executor that keeps to `Step.after`, whatever it reads
ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule.value import Block, Load, Schedule, Section, Step, Store, lengths

__all__ = ["Broken", "check"]

Shape = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


class Broken(Exception):
    """A schedule that must not be run: a defect of whoever made it."""


def check(
    schedule: Schedule,
    shapes: Sequence[Shape],
    results: Iterable[int] = (),
    *,
    again: bool = False,
) -> None:
    """
    Walk over all steps of a schedule; raise if one breaks a rule.

    Parameters
    ----------
    schedule
        The schedule.
    shapes
        Of its arrays.
    results
        Numbers of the arrays whose elements are undefined before the first step; each of these must be
        stored whole.
    again
        Whoever goes on after a kill does steps again that were done, so nothing is stored over what the
        schedule finds at its beginning and loads.

    Raises
    ------
    Broken
        With the step and the rule.
    """
    _Walk(schedule, shapes, set(results), again=again).all()


class _Boxes:
    """Boxes of one array, each with a number; another one is compared with all of them at once."""

    def __init__(self, ndim: int) -> None:
        self._ends = np.empty((2, 8, ndim), np.int64)
        self._numbers = np.empty(8, np.int64)
        self._count = 0

    def add(self, box: Box, number: int) -> None:
        if self._count == len(self._numbers):
            self._ends = np.concatenate([self._ends, self._ends], axis=1)
            self._numbers = np.concatenate([self._numbers, self._numbers])
        self._ends[:, self._count] = np.reshape(box, (-1, 2)).T
        self._numbers[self._count] = number
        self._count += 1

    def volume(self) -> int:
        low, high = self._ends[:, : self._count]
        return int((high - low).prod(axis=1).sum())

    def common(self, box: Box) -> NDArray[np.int64]:
        """Of each, how many elements it has in common with another box."""
        low, high = np.reshape(box, (-1, 2)).T
        lows, highs = self._ends[:, : self._count]
        along = np.maximum(np.minimum(highs, high) - np.maximum(lows, low), 0)
        found: NDArray[np.int64] = along.prod(axis=1)
        return found

    def numbers(self, chosen: NDArray[np.bool_]) -> list[int]:
        found: list[int] = self._numbers[: self._count][chosen].tolist()
        return found

    def take(self, chosen: NDArray[np.bool_]) -> list[tuple[Box, int]]:
        """Those that are chosen, which go out."""
        low, high = self._ends[:, : self._count][:, chosen].tolist()
        boxes = [tuple(zip(*ends, strict=True)) for ends in zip(low, high, strict=True)]
        taken = list(zip(boxes, self.numbers(chosen), strict=True))
        left = np.flatnonzero(~chosen)
        self._ends[:, : left.size] = self._ends[:, left]
        self._numbers[: left.size] = self._numbers[left]
        self._count = left.size
        return taken


class _Walk:
    def __init__(
        self, schedule: Schedule, shapes: Sequence[Shape], results: set[int], *, again: bool
    ) -> None:
        self.schedule, self.shapes, self.results, self.again = schedule, shapes, results, again
        #: Of each array: sections that were loaded as they were at the beginning, in part at least.
        self.found = [_Boxes(len(shape)) for shape in shapes]
        #: Of each array: sections that were stored, with the numbers of the last steps that did.
        self.stored = [_Boxes(len(shape)) for shape in shapes]
        self.kept: dict[int, Shape] = {}
        self.number = 0
        self.before: tuple[Block, ...] = ()

    def all(self) -> None:
        if len(self.shapes) != len(self.schedule.arrays):
            raise Broken(f"{len(self.shapes)} shapes for {len(self.schedule.arrays)} arrays")
        for number in range(self.schedule.steps):
            self.number = number
            step = self.schedule.step(number)
            self.step(step)
            if self.schedule.restart is not None and step.is_chained:
                self.restart(step, self.schedule.restart(number))
        for array in self.results:
            whole = tuple((0, n) for n in self.shapes[array])
            missing = _volume(whole) - self.stored[array].volume()
            if missing > 0:
                raise Broken(
                    f"{missing} elements of {self.schedule.arrays[array]} are never stored"
                )

    def broken(self, rule: str) -> Broken:
        return Broken(f"{self.schedule.name}, step {self.number} of {self.schedule.steps}: {rule}")

    def step(self, step: Step) -> None:
        if not 0 <= step.after <= self.number:
            raise self.broken(f"it waits for steps below {step.after}")
        self.blocks(step)
        for load in step.loads:
            self.transfer(load, step)
            self.is_written(load, step)
        for store in step.stores:
            self.transfer(store, step)
        self.reuses(step)
        self.before = step.blocks
        for n, store in enumerate(step.stores):
            for other in step.stores[:n]:
                if store.array == other.array and meet(
                    box_of(store.section), box_of(other.section)
                ):
                    raise self.broken("what it stores overlaps")
        for store in step.stores:
            self.write(store.array, box_of(store.section), step)

    def restart(self, step: Step, instead: tuple[Step, ...]) -> None:
        """Check the steps by which an interrupted run continues at this one."""
        *lead, last = instead
        if last.stores != step.stores or any(one.stores for one in lead):
            raise self.broken("who continues there stores something else")
        if instead[0].is_chained:
            raise self.broken("who continues there needs what earlier steps have kept")
        kept, self.kept = self.kept, {}
        for one in instead:
            self.blocks(one)
            for load in one.loads:
                self.transfer(load, one)
        self.kept = kept

    def blocks(self, step: Step) -> None:
        used: set[int] = set()
        if not step.continues:
            self.kept.clear()
        for block in step.blocks:
            buffer = self.schedule.buffers[block.buffer]
            if math.prod(block.shape) > buffer.elements:
                raise self.broken(f"a block of {block.shape} is too large for its buffer")
            if block.buffer in used:
                raise self.broken("it has two blocks in one buffer")
            used.add(block.buffer)
            if buffer.kept and self.kept.setdefault(block.buffer, block.shape) != block.shape:
                raise self.broken("what is kept changes its shape")
            if buffer.kept and buffer.copies != 1:
                raise self.broken("what is kept has more than one copy")
        if step.kernel is not None and not 0 <= step.kernel < len(self.schedule.kernels):
            raise self.broken(f"there is no kernel {step.kernel}")

    def reuses(self, step: Step) -> None:
        for reuse in step.reuses:
            here = 0 <= reuse.source < len(self.before) and (
                _lies_in(reuse.source_at, self.before[reuse.source].shape)
            )
            there = _lies_in(reuse.at, step.blocks[reuse.block].shape)
            if not here or not there or _size(reuse.at) != _size(reuse.source_at):
                raise self.broken("what it takes of the step before is not there, or does not fit")
        if step.reuses and step.after >= self.number:
            raise self.broken("it waits for the step before and takes from it")
        before = {block.buffer for block in self.before}
        loaded = step.loaded if step.reuses else frozenset()
        for number in {step.blocks[n].buffer for n in loaded} & before:
            if self.schedule.buffers[number].copies < 2:
                raise self.broken(
                    "it takes of the step before, and there is one copy of the buffer"
                )

    def transfer(self, load: Load, step: Step) -> None:
        named = _lies_in if isinstance(load, Store) else _names
        if not named(load.section, self.shapes[load.array]):
            raise self.broken(f"{load.section} is no section of {self.schedule.arrays[load.array]}")
        block, size = step.blocks[load.block], lengths(load.section)
        if load.axes is not None:
            if sorted(load.axes) != list(range(len(size))):
                raise self.broken(f"{load.axes} permutes no {len(size)} axes")
            size = tuple(size[axis] for axis in load.axes)
        place, fits = block.shape, True
        if load.at is not None:
            place, fits = _size(load.at), _lies_in(load.at, block.shape)
        if load.shape is not None:
            if not _divides(place, load.shape):
                raise self.broken(f"{load.shape} does not divide the axes of {place}")
            place = load.shape
        if not fits or size != place:
            raise self.broken(f"a section of {size} does not fit its place in a block")

    def is_written(self, load: Load, step: Step) -> None:
        """What it reads is there, and stays as it is until it was read."""
        wanted, stored = box_of(load.section), self.stored[load.array]
        common = stored.common(wanted)
        for number in stored.numbers(common > 0):
            if number >= step.after:
                raise self.broken(f"it reads what step {number} stores and does not wait for it")
        found = int(common.sum())
        if load.array in self.results and found < _volume(wanted):
            raise self.broken(f"it reads what is not stored of {self.schedule.arrays[load.array]}")
        if self.again and found < _volume(wanted):
            self.found[load.array].add(wanted, self.number)

    def write(self, array: int, box: Box, step: Step) -> None:
        if self.found[array].common(box).any():
            raise self.broken(
                f"it stores over what was loaded of {self.schedule.arrays[array]}, and so cannot be "
                "done again"
            )
        stored = self.stored[array]
        # Kept disjoint: what is stored again goes out of the older boxes.
        for other, number in stored.take(stored.common(box) > 0):
            if number >= step.after:
                raise self.broken(
                    f"it stores over what step {number} does and does not wait for it"
                )
            for part in _without(other, box):
                stored.add(part, number)
        if _volume(box):
            stored.add(box, self.number)


def _size(section: Section) -> Shape:
    return tuple(part.stop - part.start for part in section)


def _lies_in(section: Section, shape: Shape) -> bool:
    return len(section) == len(shape) and all(
        part.step is None and 0 <= part.start <= part.stop <= n
        for part, n in zip(section, shape, strict=True)
    )


def _names(section: Section, shape: Shape) -> bool:
    """Whether all indices of a section, which may have steps, are those of an array."""
    return len(section) == len(shape) and all(
        low == high or 0 <= low < high <= n
        for (low, high), n in zip(box_of(section), shape, strict=True)
    )


def _divides(shape: Shape, finer: Shape) -> bool:
    """Whether each axis of `shape` is some axes of `finer` in a row, those of length 1 left out."""
    rest = list(finer)
    for n in shape:
        if n == 1:
            continue
        length = rest.pop(0) if rest else 0
        while length < n and rest:
            length *= rest.pop(0)
        if length != n:
            return False
    return all(n == 1 for n in rest)


def box_of(section: Section) -> Box:
    """The ends of a section, as a value: its first index along each axis, and the one past its last."""
    return tuple(
        (part.start, part.stop) if part.step is None else _ends(part, count)
        for part, count in zip(section, lengths(section), strict=True)
    )


def _ends(part: slice, count: int) -> tuple[int, int]:
    last = part.start + (count - 1) * part.step
    return (min(part.start, last), max(part.start, last) + 1) if count else (part.start, part.start)


def meet(a: Box, b: Box) -> int:
    """Elements that two boxes have in common."""
    pairs = zip(a, b, strict=True)
    return math.prod(max(0, min(x[1], y[1]) - max(x[0], y[0])) for x, y in pairs)


def _volume(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def _without(box: Box, hole: Box) -> Iterable[Box]:
    """The rest of a box around a hole that it meets, as disjoint boxes."""
    rest = list(box)
    for axis, ((low, high), (start, stop)) in enumerate(zip(box, hole, strict=True)):
        if low < start:
            yield (*rest[:axis], (low, start), *rest[axis + 1 :])
        if stop < high:
            yield (*rest[:axis], (stop, high), *rest[axis + 1 :])
        rest[axis] = (max(low, start), min(high, stop))
