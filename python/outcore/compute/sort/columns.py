"""
Plan of the different sub-arrays for sub-arrays of which few, or none, fit in memory.

Problem. Records of whole sub-arrays (`outcore.compute.sort.rows`) are sorted and merged in memory,
with samples of them. There is not enough memory for samples of long sub-arrays.
Idea. As many elements of every sub-array as fit are compared at a time: each sub-array gets a
number, in ascending order, equal ones the same. The numbers of all these parts, one after the
other, order sub-arrays as their elements do, and are few: records of them are sorted in memory.
These records do not contain the different sub-arrays but their first positions, from which they are
copied.

The array is read once, and the different sub-arrays once more. No part depends on another, so ranks
share them. This plan is not used if records of whole sub-arrays fit, since parts of many short ones
are read in short runs.

Invariants. Parts are sections of the other axes, in C order. A number is twice the rank of a part,
plus one if it contains NaN, so sub-arrays that compare equal but differ because of NaN are known to
the end. The result has the same bits as with records.

Reference: Karp, Miller, Rosenberg, Rapid identification of repeated patterns in strings, trees and
arrays, 1972, for names that stand for parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.compute.jobs import DeferredPhase, InsufficientBuffersError, Phase, Program, Terms
from outcore.compute.sort.distinct import UniqueOptions, renumber
from outcore.compute.sort.records import LONGEST, PIECE, SCRATCH, Records, has_words, sort_records
from outcore.compute.sort.rows import RecordPlan
from outcore.compute.sort.runs import find_slab_ends
from outcore.compute.sort.sorting import find_section
from outcore.errors import UnsupportedError

__all__ = ["plan_distinct_rows"]

Shape = tuple[int, ...]
_NUMBER, _BYTE = np.dtype(np.uint64), np.dtype(np.uint8)
# Bytes for each sub-array, in addition to its record, while numbers are assigned.
_NUMBERED = 64


def plan_distinct_rows(
    shape: Shape, dtype: np.dtype[Any], axis: int, asked: UniqueOptions
) -> Callable[[Terms], Program]:
    """
    Return the planner of the different sub-arrays, compared as a whole or in parts.

    The results, as far as asked for: the different sub-arrays, along the axis; index and inverse
    (one axis each); counts.
    """
    native = dtype.newbyteorder("=")
    if native.kind not in "SU" and not has_words(native):
        raise UnsupportedError(
            f"unique: sub-arrays of dtype {dtype} have no order as bytes; omit axis=, or open one "
            "field, or a copy of another dtype",
            code="bad-dtype",
        )
    elements = math.prod(shape[:axis]) * math.prod(shape[axis + 1 :])
    # If equal ones differ in the signs of zeros, the first one is returned.
    places = asked.places or native.kind in "fc"
    records = Records(native, elements, shape[axis] if places else None)

    def plan(terms: Terms) -> Program:
        needed = []
        if records.nbytes <= LONGEST:
            try:
                return RecordPlan(shape, native, axis, asked, terms, records).make_program()
            except InsufficientBuffersError as error:
                if not elements:
                    raise  # nothing to divide into parts
                needed.append(error.needed)
        try:
            return _PartPlan(shape, native, axis, asked, terms).make_program()
        except InsufficientBuffersError as error:
            raise InsufficientBuffersError(min([*needed, error.needed])) from None

    return plan


class _PartPlan(RecordPlan):
    """Plan that compares sub-arrays in parts."""

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], axis: int, asked: UniqueOptions, terms: Terms
    ) -> None:
        others = (*shape[:axis], *shape[axis + 1 :])
        self.begins = find_slab_ends(others, self.fit_part(shape[axis], others, dtype, terms.room))
        parts = len(self.begins) - 1
        records = Records(_NUMBER, parts, shape[axis], nans=True)
        super().__init__(shape, dtype, axis, asked, terms, records)
        self.of_source = dtype
        #: Records for each length of a part.
        self.of_part = {
            count: Records(dtype, count, shape[axis])
            for count in {b - a for a, b in itertools.pairwise(self.begins)}
        }
        # Sorted records yield the positions of sub-arrays.
        self.native, self.size = np.dtype(np.int64), 1
        self.firsts = -1

    @staticmethod
    def fit_part(length: int, others: Shape, dtype: np.dtype[Any], room: int) -> int:
        """Return the elements of a part: those of all sub-arrays fit, loaded twice, with records."""
        fixed = SCRATCH + length * _NUMBERED
        each = length * (3 * dtype.itemsize + 1) + 1
        if (found := (room - 2 * fixed) // each) < 1:
            raise InsufficientBuffersError(2 * fixed + 8 * each)
        return min(found, math.prod(others))

    def find_needed_bytes(self, asked_bytes: int) -> int:
        """Return the same number: no part of this plan knows of a smaller budget."""
        return asked_bytes

    def plan_sorts(self, ordered: int) -> tuple[list[Phase], str, int]:
        """Return the phases that number all parts and sort records of the numbers."""
        parts = len(self.begins) - 1
        numbers = self.add_temporary("numbers of parts", (parts, self.length), _NUMBER)
        self.firsts = self.add_temporary("places of what differs", (self.length,), self.native)
        last = self.schedule_join()
        if last.held > self.terms.room:
            # With twice the memory there are half as many parts.
            raise InsufficientBuffersError(min(2 * self.terms.room, last.held))
        phases = [renumber(one, [0, ordered, numbers]) for one in (self.schedule_numbers(), last)]
        return list(phases), f"sub-arrays are too long: compared in {parts} parts", -1

    def schedule_numbers(self) -> Schedule:
        """Return the schedule that numbers each part of all sub-arrays."""
        length, begins = self.length, self.begins
        most = max(b - a for a, b in itertools.pairwise(begins))
        steps = len(begins) - 1
        twice = min(2, steps)
        buffers = (
            Buffer(length * most, self.of_source, copies=twice),
            Buffer(length * self.of_part[most].nbytes, _BYTE),
            Buffer(length, _NUMBER, copies=twice),
            Buffer(SCRATCH + length * _NUMBERED // 2, _BYTE),
        )

        def step(number: int) -> ScheduleStep:
            low, high = begins[number : number + 2]
            box = find_section(self.others, low, high)
            blocks = (
                Block(0, (length, *(p.stop - p.start for p in box))),
                Block(1, (length, self.of_part[high - low].nbytes)),
                Block(2, (1, length)),
                Block(3, (buffers[3].elements,)),
            )
            load = Load(0, self.find_section(0, length, box), 0, axes=self.axes)
            store = Store(2, (slice(number, number + 1), slice(0, length)), 2)
            return ScheduleStep(blocks, (load,), (store,), kernel=0, arguments=(high - low,))

        def kernel(blocks: Sequence[NDArray[Any]], count: int) -> None:
            records = self.of_part[count]
            records.encode(blocks[0], 0, blocks[1])
            sort_records(blocks[1], records.nbytes)
            new = np.zeros(length, np.uint64)
            new[1:] = records.find_different(blocks[1][1:], blocks[1][:-1], nans=False)
            np.cumsum(new, out=new)
            new *= np.uint64(2)
            if records.nans:
                new += records.view_records(blocks[1])["nan"]
            blocks[2][0, records.read_places(blocks[1])] = new

        return Schedule("unique: parts", (), buffers, steps, step, (kernel,))

    def schedule_join(self) -> Schedule:
        """Return the schedule with one step that sorts records of the numbers."""
        length, parts, nbytes = self.length, len(self.begins) - 1, self.records.nbytes
        buffers = (
            Buffer(length * parts, _NUMBER),
            Buffer(length * nbytes, _BYTE),
            Buffer(SCRATCH + nbytes + length * _NUMBERED, _BYTE),
        )

        def step(number: int) -> ScheduleStep:
            every = slice(0, length)
            blocks = (
                Block(0, (length, parts)),
                Block(1, (length, nbytes)),
                Block(2, (buffers[2].elements,)),
            )
            load = Load(2, (slice(0, parts), every), 0, axes=(1, 0))
            return ScheduleStep(
                blocks, (load,), (Store(1, (every, slice(0, nbytes)), 1),), kernel=0
            )

        def kernel(blocks: Sequence[NDArray[Any]]) -> None:
            nan = np.zeros(length, np.uint64)
            for part in range(parts):
                nan |= blocks[0][:, part] & np.uint64(1)
            self.records.encode(blocks[0], 0, blocks[1])
            self.records.view_records(blocks[1])["nan"] = nan
            sort_records(blocks[1], nbytes)

        return Schedule("unique: whole", (), buffers, 1, step, (kernel,))

    # The different sub-arrays.

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.length * math.prod(self.others) * self.of_source.itemsize

    def take(self, data: NDArray[Any], which: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Store the positions of the sub-arrays."""
        out[...] = self.records.view_records(data)["place"][which]

    def find_result(self, low: int, high: int) -> tuple[Section, Shape, Shape | None]:
        """Return the section of the array of positions."""
        return (slice(low, high),), (high - low,), None

    def find_target(self, name: str) -> int:
        """Return the array of positions instead of that of the sub-arrays, which are copied later."""
        return self.firsts if name == "elements" else super().find_target(name)

    def plan_later(self, marks: int) -> list[Phase]:
        """Return the phase that copies the different sub-arrays."""
        copies = _RowCopies(self)
        return [
            DeferredPhase(
                name="unique: copies",
                steps=copies.steps,
                held=sum(one.nbytes for one in copies.buffers) + copies.kept,
                loaded=self.nbytes,
                stored=self.nbytes,
                at_once={0: 1, 1: 1},
                make=lambda opened: copies.make_schedule(opened[marks], opened[self.firsts]),
            )
        ]


class _RowCopies:
    """Copies of the first ones of equal sub-arrays, in parts, with a step for each that may differ."""

    def __init__(self, plan: _PartPlan) -> None:
        self.plan = plan
        most = max(plan.terms.room // 4 // plan.of_source.itemsize, 1)
        self.begins = find_slab_ends(plan.others, most)
        largest = max(b - a for a, b in itertools.pairwise(self.begins))
        self.buffers = (Buffer(largest, plan.of_source, copies=2), Buffer(SCRATCH, _BYTE))
        self.parts = len(self.begins) - 1
        self.steps = plan.length * self.parts
        #: Bytes of places.
        self.kept = plan.native.itemsize * plan.length
        self.floats = plan.of_source.kind in "fc"

    def make_schedule(self, marks: Any, firsts: Any) -> Schedule:
        """Return the steps, from the counts and the first positions."""
        plan, count = self.plan, int(np.asarray(marks[:, 0]).sum())
        found = np.asarray(firsts[0:count])
        self.reserved = _core.Reservation("places of sub-arrays", self.kept)

        def step(number: int) -> ScheduleStep:
            row, part = divmod(number, self.parts)
            if row >= count:
                return ScheduleStep(())
            box, first = find_section(plan.others, *self.begins[part : part + 2]), int(found[row])
            block = Block(0, (1, *(p.stop - p.start for p in box)))
            load = Load(0, plan.find_section(first, first + 1, box), 0, axes=plan.axes)
            store = Store(1, plan.find_section(row, row + 1, box), 0, axes=plan.axes)
            kernel = 0 if self.floats else None
            return ScheduleStep((block, Block(1, (SCRATCH,))), (load,), (store,), kernel=kernel)

        kernels = (self.reduce_nans,) if self.floats else ()
        return Schedule("unique: copies", (), self.buffers, self.steps, step, kernels)

    def reduce_nans(self, blocks: Sequence[NDArray[Any]]) -> None:
        """Reduce NaNs to their sign, as in records, so that memory does not change the result."""
        flat = blocks[0].reshape(-1)
        flat = flat.view(flat.real.dtype)
        for begin in range(0, len(flat), PIECE):
            part = flat[begin : begin + PIECE]
            np.copysign(np.nan, part, out=part, where=np.isnan(part))
