"""
Plan of the different sub-arrays along an axis.

Problem. As for elements (`outcore.compute.sort.distinct`), but sub-arrays have any length, and may
be scattered over the file.
Idea. Blocks of sub-arrays become records (`outcore.compute.sort.records`), which are sorted in
memory and stored as runs, and merged like the runs of any sort, from exact cuts. Indices are part
of the records, so one sort is enough, whatever is asked for. Counting and storing are as for
elements: each record of a block of sorted records is compared with the one before; new ones are
converted back, and stored along the axis.

Everything is read once, and written as records twice (once if all sub-arrays fit in memory
together); sorted records are read twice, to count and to store. `outcore.compute.sort.columns` has
the plan for sub-arrays that are too long for this.

Invariants. The result does not depend on memory: equal records have equal bytes, or other indices.

Reference: Knuth, volume 3, section 5.4, for runs and merges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Tiling
from outcore.base.report import format_count
from outcore.compute.jobs import SMALLEST, InsufficientBuffersError, Phase, Program, Terms
from outcore.compute.sort.distinct import DistinctPlan, UniqueOptions
from outcore.compute.sort.records import SCRATCH, Records, sort_records
from outcore.compute.sort.runs import Runs, WordLayout, choose_fan_in
from outcore.compute.sort.sorting import SortPlan

__all__ = ["RecordPlan"]

Shape = tuple[int, ...]
_BYTE = np.dtype(np.uint8)
# Bytes of the smallest blocks of records, unless one is longer.
_LEAST = 2**16


class RecordPlan(DistinctPlan):
    """Plan that compares whole sub-arrays."""

    def __init__(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        axis: int,
        asked: UniqueOptions,
        terms: Terms,
        records: Records,
    ) -> None:
        super().__init__((shape[axis],), dtype, asked, terms)
        self.source, self.axis, self.records = shape, axis, records
        self.others = (*shape[:axis], *shape[axis + 1 :])
        self.size = records.elements
        self.stored, self.tail = _BYTE, (records.nbytes,)
        self.scratch = SCRATCH
        self.least = max(_LEAST // records.nbytes, 1)
        order = (axis, *range(axis), *range(axis + 1, len(shape)))
        self.axes = None if axis == 0 else order

    # The different sub-arrays.

    def find_different(self, data: NDArray[Any], before: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which records have another key than the one before, or a NaN."""
        return self.records.find_different(data, before)

    def take(self, data: NDArray[Any], which: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Convert some records back to sub-arrays."""
        self.records.decode(data, which, out)

    def read_places(self, data: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of records."""
        return self.records.read_places(data)

    def compute_result_shape(self, count: int) -> Shape:
        """Return the shape of the result with `count` sub-arrays along the axis."""
        return (*self.source[: self.axis], count, *self.source[self.axis + 1 :])

    def find_result(self, low: int, high: int) -> tuple[Section, Shape, Shape | None]:
        """Return the section of the result along the axis."""
        return self.find_section(low, high), (high - low, *self.others), self.axes

    def find_section(self, low: int, high: int, box: Section | None = None) -> Section:
        """Return the section of some sub-arrays, or of a part `box` of them, in source or result."""
        if box is None:
            box = tuple(slice(0, n) for n in self.others)
        return (*box[: self.axis], slice(low, high), *box[self.axis :])

    # The sort.

    def make_program(self) -> Program:
        """Return the plan; `InsufficientBuffersError` has a budget that may be enough for all of it."""
        try:
            return super().make_program()
        except InsufficientBuffersError as error:
            raise InsufficientBuffersError(self.find_needed_bytes(error.needed)) from None

    def find_needed_bytes(self, asked_bytes: int) -> int:
        """Return the bytes that may be enough if one part of the plan needs `asked_bytes`."""
        whole, room = self.schedule_runs(self.whole_run).held, self.terms.room
        # The merge of two runs, from samples in half of the room (`choose_fan_in`).
        merge = self.record_words.sample_bytes * math.isqrt(160 * self.length)
        least = max(min(whole, max(merge, SMALLEST)), self.count_bytes(1))
        return max(
            least,
            min(asked_bytes, max(whole, self.count_bytes(1))) if whole > room else asked_bytes,
        )

    @property
    def record_words(self) -> WordLayout:
        """Records as words."""
        return WordLayout(_BYTE, "S", self.records.nbytes, self.tail)

    @property
    def whole_run(self) -> Runs:
        """All sub-arrays as one run, which is the result of the sort."""
        return Runs(1, 1, (0, self.length), self.length + 1)

    def plan_sorts(self, ordered: int) -> tuple[list[Phase], str, int]:
        """Return the phases that sort records: all sub-arrays together, or pieces that are merged."""
        length, room = self.length, self.terms.room
        one = self.schedule_runs(self.whole_run)
        if not length or one.held <= room:
            phases, _ = self.embed([one], [], ordered)
            return phases, "all sub-arrays are sorted in memory", -1
        if room < SMALLEST:
            raise InsufficientBuffersError(min(SMALLEST, one.held))
        words = self.record_words
        runs, many = self.choose_runs(words)
        record = np.dtype(f"V{words.nbytes}")
        planning = SortPlan("unique", (length,), record, 0, words, False, self.terms)
        merges, temporaries = planning.plan_merges(Tiling((), (), "C"), runs, many)
        phases, _ = self.embed([self.schedule_runs(runs), *merges], temporaries, ordered)
        passes = format_count(len(merges), "pass")
        method = (
            f"{len(runs.begins) - 1} pieces of sub-arrays do not fit together: sorted one by one, as "
            f"records of {words.nbytes} bytes, and merged in {passes}"
        )
        return phases, method, -1

    def choose_runs(self, words: WordLayout) -> tuple[Runs, int]:
        """Return pieces that are sorted in memory, and how many of them are merged at a time."""
        nbytes, length, room = words.nbytes, self.length, self.terms.room
        each = 2 * self.size * self.native.itemsize + 2 * nbytes
        begins: tuple[int, ...] = ()
        # The number of runs determines the distance of samples, which determines their memory.
        distance = room
        for _ in range(2):
            piece = (room - SCRATCH - 3 * nbytes) * distance // (each * distance + 2 * nbytes)
            if piece < 1:
                raise InsufficientBuffersError(SCRATCH + 5 * nbytes + each)
            begins = self.cut_pieces(piece)
            many, least = choose_fan_in(len(begins) - 1, length, words, self.terms)
            distance = min(distance, least)
        return Runs(2, 3, begins, distance), many

    def cut_pieces(self, most: int) -> tuple[int, ...]:
        """Return the beginnings of the pieces and the end of the last one: whole chunks, if some fit."""
        side = self.terms.side(0)
        chunk = 1 if side is None or side.chunks is None else side.chunks[self.axis]
        if most > chunk:
            return (*range(0, self.length, most - most % chunk), self.length)
        count = -(-self.length // most)
        return (*range(0, self.length, -(-self.length // count)), self.length)

    def schedule_runs(self, runs: Runs) -> Schedule:
        """Return the schedule in which pieces become runs of records; a single piece has no samples."""
        begins, tail, size = runs.begins, self.tail, self.size
        steps = len(begins) - 1 if self.length else 0
        largest = max((b - a for a, b in itertools.pairwise(begins)), default=0)
        twice = min(2, max(steps, 1))
        buffers = (
            Buffer(largest * size, self.native, copies=twice),
            Buffer(largest * math.prod(tail), _BYTE, copies=twice),
            Buffer(largest // runs.distance * math.prod(tail), _BYTE, copies=twice),
            # NumPy's sort copies one record.
            Buffer(SCRATCH + self.records.nbytes, _BYTE),
        )
        tail_key = tuple(slice(0, n) for n in tail)

        def step(number: int) -> ScheduleStep:
            low, high = begins[number : number + 2]
            count, samples = high - low, runs.find_samples(number, low, high)
            blocks = (
                Block(0, (count, *self.others)),
                Block(1, (count, *tail)),
                Block(2, (samples.stop - samples.start, *tail)),
                Block(3, (buffers[3].elements,)),
            )
            loads = (Load(0, self.find_section(low, high), 0, axes=self.axes),) if size else ()
            stores = [Store(runs.array, (slice(low, high), *tail_key), 1)]
            if samples.stop > samples.start:
                stores.append(Store(runs.samples, (samples, *tail_key), 2))
            return ScheduleStep(blocks, loads, tuple(stores), kernel=0, arguments=(low,))

        def kernel(blocks: Sequence[NDArray[Any]], first: int) -> None:
            self.records.encode(blocks[0], first, blocks[1])
            sort_records(blocks[1], self.records.nbytes)
            np.copyto(blocks[2], runs.take_samples(blocks[1], 0))

        return Schedule("unique: runs", (), buffers, steps, step, (kernel,))
