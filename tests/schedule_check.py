"""
Checks of schedules in tests, step by step, before anything is read.

Problem: a schedule that reads elements before they are written, or stores a part of an array twice,
gives wrong elements without an error; one whose buffers are too small for its blocks exceeds its
memory.
Approach: everything that a run relies on is determined by the steps alone. The check visits the steps
once, in order, and records the stored part of each array as a list of boxes. It takes time quadratic in
the number of boxes, so only tests make it.

Invariants: a schedule that passes can be run by any executor that respects `ScheduleStep.after`,
however far it reads ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import (
    Block,
    InvalidScheduleError,
    Load,
    Schedule,
    ScheduleStep,
    Section,
    Store,
    get_shape,
)

Shape = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


def check_schedule(
    schedule: Schedule,
    shapes: Sequence[Shape],
    results: Iterable[int] = (),
    *,
    again: bool = False,
) -> None:
    """
    Visit all steps of a schedule; raise `InvalidScheduleError` if one breaks a rule.

    `shapes` are those of its arrays. `results` are the numbers of the arrays whose elements are
    undefined before the first step; each must be stored completely. `again`: a resumed run repeats
    finished steps, so a section that the schedule loads in its initial state must never be overwritten.
    """
    _Checker(schedule, shapes, set(results), again=again).all()


class _Boxes:
    """Numbered boxes of one array, compared with another box in one operation."""

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
        """Return for each box the number of elements that it shares with another box."""
        low, high = np.reshape(box, (-1, 2)).T
        lows, highs = self._ends[:, : self._count]
        along = np.maximum(np.minimum(highs, high) - np.maximum(lows, low), 0)
        found: NDArray[np.int64] = along.prod(axis=1)
        return found

    def numbers(self, chosen: NDArray[np.bool_]) -> list[int]:
        found: list[int] = self._numbers[: self._count][chosen].tolist()
        return found

    def take(self, chosen: NDArray[np.bool_]) -> list[tuple[Box, int]]:
        """Remove and return the selected boxes."""
        low, high = self._ends[:, : self._count][:, chosen].tolist()
        boxes = [tuple(zip(*ends, strict=True)) for ends in zip(low, high, strict=True)]
        taken = list(zip(boxes, self.numbers(chosen), strict=True))
        left = np.flatnonzero(~chosen)
        self._ends[:, : left.size] = self._ends[:, left]
        self._numbers[: left.size] = self._numbers[left]
        self._count = left.size
        return taken


class _Checker:
    def __init__(
        self, schedule: Schedule, shapes: Sequence[Shape], results: set[int], *, again: bool
    ) -> None:
        self.schedule, self.shapes, self.results, self.again = schedule, shapes, results, again
        #: For each array, sections that were loaded at least partly in their initial state.
        self.found = [_Boxes(len(shape)) for shape in shapes]
        #: For each array, sections that were stored, with the numbers of the last steps that stored
        #: them.
        self.stored = [_Boxes(len(shape)) for shape in shapes]
        self.kept: dict[int, Shape] = {}
        self.number = 0
        self.before: tuple[Block, ...] = ()

    def all(self) -> None:
        if len(self.shapes) != len(self.schedule.arrays):
            raise InvalidScheduleError(
                f"{len(self.shapes)} shapes for {len(self.schedule.arrays)} arrays"
            )
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
                raise InvalidScheduleError(
                    f"{missing} elements of {self.schedule.arrays[array]} are never stored"
                )

    def make_error(self, rule: str) -> InvalidScheduleError:
        return InvalidScheduleError(
            f"{self.schedule.name}, step {self.number} of {self.schedule.steps}: {rule}"
        )

    def step(self, step: ScheduleStep) -> None:
        if not 0 <= step.after <= self.number:
            raise self.make_error(f"it waits for steps below {step.after}")
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
                    raise self.make_error("what it stores overlaps")
        for store in step.stores:
            self.write(store.array, box_of(store.section), step)

    def restart(self, step: ScheduleStep, instead: tuple[ScheduleStep, ...]) -> None:
        """Check the steps by which an interrupted run continues at this one."""
        *lead, last = instead
        if last.stores != step.stores or any(one.stores for one in lead):
            raise self.make_error("who continues there stores something else")
        if instead[0].is_chained:
            raise self.make_error("who continues there needs what earlier steps have kept")
        kept, self.kept = self.kept, {}
        for one in instead:
            self.blocks(one)
            for load in one.loads:
                self.transfer(load, one)
        self.kept = kept

    def blocks(self, step: ScheduleStep) -> None:
        used: set[int] = set()
        if not step.continues:
            self.kept.clear()
        for block in step.blocks:
            buffer = self.schedule.buffers[block.buffer]
            if math.prod(block.shape) > buffer.elements:
                raise self.make_error(f"a block of {block.shape} is too large for its buffer")
            if block.buffer in used:
                raise self.make_error("it has two blocks in one buffer")
            used.add(block.buffer)
            if buffer.kept and self.kept.setdefault(block.buffer, block.shape) != block.shape:
                raise self.make_error("what is kept changes its shape")
            if buffer.kept and buffer.copies != 1:
                raise self.make_error("what is kept has more than one copy")
        if step.kernel is not None and not 0 <= step.kernel < len(self.schedule.kernels):
            raise self.make_error(f"there is no kernel {step.kernel}")

    def reuses(self, step: ScheduleStep) -> None:
        for reuse in step.reuses:
            here = 0 <= reuse.source < len(self.before) and (
                _lies_in(reuse.source_at, self.before[reuse.source].shape)
            )
            there = _lies_in(reuse.at, step.blocks[reuse.block].shape)
            if not here or not there or _size(reuse.at) != _size(reuse.source_at):
                raise self.make_error(
                    "what it takes of the step before is not there, or does not fit"
                )
        if step.reuses and step.after >= self.number:
            raise self.make_error("it waits for the step before and takes from it")
        before = {block.buffer for block in self.before}
        loaded = step.loaded if step.reuses else frozenset()
        for number in {step.blocks[n].buffer for n in loaded} & before:
            if self.schedule.buffers[number].copies < 2:
                raise self.make_error(
                    "it takes of the step before, and there is one copy of the buffer"
                )

    def transfer(self, load: Load, step: ScheduleStep) -> None:
        named = _lies_in if isinstance(load, Store) else _names
        if not named(load.section, self.shapes[load.array]):
            raise self.make_error(
                f"{load.section} is no section of {self.schedule.arrays[load.array]}"
            )
        block, size = step.blocks[load.block], get_shape(load.section)
        if load.axes is not None:
            if sorted(load.axes) != list(range(len(size))):
                raise self.make_error(f"{load.axes} permutes no {len(size)} axes")
            size = tuple(size[axis] for axis in load.axes)
        place, fits = block.shape, True
        if load.at is not None:
            place, fits = _size(load.at), _lies_in(load.at, block.shape)
        if load.shape is not None:
            if not _divides(place, load.shape):
                raise self.make_error(f"{load.shape} does not divide the axes of {place}")
            place = load.shape
        if not fits or size != place:
            raise self.make_error(f"a section of {size} does not fit its place in a block")

    def is_written(self, load: Load, step: ScheduleStep) -> None:
        """Check that the section of a load is stored, and does not change until it is read."""
        wanted, stored = box_of(load.section), self.stored[load.array]
        common = stored.common(wanted)
        for number in stored.numbers(common > 0):
            if number >= step.after:
                raise self.make_error(
                    f"it reads what step {number} stores and does not wait for it"
                )
        found = int(common.sum())
        if load.array in self.results and found < _volume(wanted):
            raise self.make_error(
                f"it reads what is not stored of {self.schedule.arrays[load.array]}"
            )
        if self.again and found < _volume(wanted):
            self.found[load.array].add(wanted, self.number)

    def write(self, array: int, box: Box, step: ScheduleStep) -> None:
        if self.found[array].common(box).any():
            raise self.make_error(
                f"it stores over what was loaded of {self.schedule.arrays[array]}, and so cannot be "
                "done again"
            )
        stored = self.stored[array]
        # Keep boxes disjoint: remove a section that is stored again from older boxes.
        for other, number in stored.take(stored.common(box) > 0):
            if number >= step.after:
                raise self.make_error(
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
    """Return whether all indices of a section, which may have steps, are valid for an array."""
    return len(section) == len(shape) and all(
        low == high or 0 <= low < high <= n
        for (low, high), n in zip(box_of(section), shape, strict=True)
    )


def _divides(shape: Shape, finer: Shape) -> bool:
    """Return whether each axis of `shape` divides into axes of `finer` in order, ignoring length 1."""
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
    """Return the ends of a section: its first index along each axis, and one past its last."""
    return tuple(
        (part.start, part.stop) if part.step is None else _ends(part, count)
        for part, count in zip(section, get_shape(section), strict=True)
    )


def _ends(part: slice, count: int) -> tuple[int, int]:
    last = part.start + (count - 1) * part.step
    return (min(part.start, last), max(part.start, last) + 1) if count else (part.start, part.start)


def meet(a: Box, b: Box) -> int:
    """Return the number of common elements of two boxes."""
    pairs = zip(a, b, strict=True)
    return math.prod(max(0, min(x[1], y[1]) - max(x[0], y[0])) for x, y in pairs)


def _volume(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def _without(box: Box, hole: Box) -> Iterable[Box]:
    """Return the rest of a box around an intersecting hole, as disjoint boxes."""
    rest = list(box)
    for axis, ((low, high), (start, stop)) in enumerate(zip(box, hole, strict=True)):
        if low < start:
            yield (*rest[:axis], (low, start), *rest[axis + 1 :])
        if stop < high:
            yield (*rest[:axis], (stop, high), *rest[axis + 1 :])
        rest[axis] = (max(low, start), min(high, stop))
