"""
Plan of the different elements of an array.

Problem. The number of different elements, and so the lengths of the results, are known only when
all have been compared. The inverse (for each element, which of the different ones it is) is found
in sorted order, but needed in the order of the array.
Idea. The array is sorted into a temporary array, and its indices into another one if index or
inverse is asked for. One pass over the sorted elements counts in each block the elements that
differ from the one before. Then the lengths of the results are known, and the place of each block's
part in them. A second pass stores that part. It also combines index and number of each element into
words, sorts these by index, block by block, and stores them as runs, whose merge is the inverse.

The inverse by a merge moves three times its own bytes in addition to the indices: runs written and
read, the result written. The alternative is to scatter as many elements at a time as fit in memory,
and to read indices and sorted elements once for each such part: cheaper for one or two parts, but
an array of which a half fits is not what is computed on disk. Elements stored at their places, one
by one, would be requests of 8 bytes.

Invariants. Storing cuts the same blocks as counting. An element is new if it differs from the one
before, which each block loads as well, so blocks are independent.

Reference: Knuth, volume 3, section 6.5, on sorting to find what is equal; section 5.2, exercise 10,
on permutations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Tiling
from outcore.compute.jobs import (
    Bound,
    DeferredPhase,
    InsufficientBuffersError,
    Phase,
    Program,
    Result,
    Terms,
)
from outcore.compute.sort.runs import Runs, WordLayout, choose_fan_in
from outcore.compute.sort.sorting import SortPlan, plan_sort

__all__ = ["DistinctPlan", "UniqueOptions", "plan_distinct", "renumber"]

Shape = tuple[int, ...]
_PLACE = np.dtype(np.int64)
# Elements that are compared together, and additional bytes for each of them.
_PIECE, _BESIDE = 2048, 96
# Elements of the smallest blocks, and bytes that are kept for each block after counting.
_LEAST, _KEPT = 1024, 48


@dataclass(frozen=True, slots=True)
class UniqueOptions:
    """Results that `unique` returns in addition to the different elements, with NumPy's meaning."""

    index: bool
    inverse: bool
    counts: bool
    equal_nan: bool

    @property
    def places(self) -> bool:
        """Whether indices in sorted order are needed."""
        return self.index or self.inverse


def plan_distinct(
    shape: Shape, dtype: np.dtype[Any], asked: UniqueOptions
) -> Callable[[Terms], Program]:
    """
    Return the planner of the different elements.

    The results, as far as asked for: elements, index, inverse (of the array's shape), counts.
    """
    ordered = plan_sort("unique", shape, dtype, None, places=False)
    order = plan_sort("unique", shape, dtype, None, places=True) if asked.places else None

    def plan(terms: Terms) -> Program:
        alone = replace(terms, infos=(terms.infos[0], None))
        of = _ElementPlan(shape, dtype, asked, terms)
        of.ordered, of.order = ordered(alone), None if order is None else order(alone)
        return of.make_program()

    return plan


class DistinctPlan:
    """Plan of the different items, which are elements or sub-arrays; `shape` is that of the inverse."""

    #: Axes of each sorted item where it is stored, and its dtype there.
    tail: Shape = ()
    stored: np.dtype[Any]
    #: Elements of an item.
    size = 1
    #: Additional bytes for each item that is compared, and for all of them.
    beside, scratch = _BESIDE, 0
    #: Items of the smallest blocks.
    least = _LEAST
    #: Indices are in a separate array.
    has_place_array = False

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], asked: UniqueOptions, terms: Terms
    ) -> None:
        self.shape, self.asked, self.terms = shape, asked, terms
        self.length, self.native = math.prod(shape), dtype.newbyteorder("=")
        self.stored = self.native
        self.results = ["elements"]
        self.results += ["index"] * asked.index + ["inverse"] * asked.inverse
        self.results += ["counts"] * asked.counts
        self.names = ["array", *self.results]
        self.temporaries: list[Result] = []
        word = np.dtype(np.uint64)
        self.words = (
            WordLayout(word, "w") if self.length <= 1 << 32 else WordLayout(word, "w", 2, (2,))
        )

    def plan_sorts(self, ordered: int) -> tuple[list[Phase], str, int]:
        """Return the phases that sort into an array, a description, and the array of indices or -1."""
        raise NotImplementedError

    def find_different(self, data: NDArray[Any], before: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which sorted items are not equal to those before."""
        raise NotImplementedError

    def take(self, data: NDArray[Any], which: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Store some sorted items in the form of the result."""
        raise NotImplementedError

    def read_places(self, data: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of sorted items, if these are not in a separate array."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.length * self.size * self.native.itemsize

    def find_target(self, name: str) -> int:
        """Return the number of the array that gets a result, block by block."""
        return self.names.index(name)

    def plan_later(self, marks: int) -> list[Phase]:
        """Return the phases after those that store blocks, from the counts of blocks."""
        return []

    def find_result(self, low: int, high: int) -> tuple[Section, Shape, Shape | None]:
        """Return, for some items of the result: section, shape of a block of them, `Store.axes`."""
        return _make_line_section(low, high)

    def make_program(self) -> Program:
        """Return the plan."""
        block = self.choose_block()
        number = -(-self.length // block)
        ordered_at = self.add_temporary("sorted elements", (self.length, *self.tail), self.stored)
        phases, sorted_how, order_at = self.plan_sorts(ordered_at)
        marks_at = self.add_temporary("counts of blocks", (number, 2), _PLACE)
        blocks = _SortedBlocks(self, block, number, ordered_at, order_at, marks_at)
        merges: list[Phase] = []
        if self.asked.inverse and self.length:
            merges = self.plan_merges(blocks)
        phases.append(blocks.plan_counting())
        known = len(phases)
        phases += [blocks.plan_storing(), *merges, *self.plan_later(marks_at)]
        method = f"{sorted_how}; {number} blocks of sorted elements are counted, then stored"
        if merges:
            method += "; the inverse is sorted back by place"
        once = {0: self.nbytes}
        if self.asked.inverse:
            once[1 + self.results.index("inverse")] = self.length * _PLACE.itemsize
        bound = Bound.of(once, "array and inverse once" if self.asked.inverse else "array once")
        return Program(
            tuple(self.set_names(phase) for phase in phases),
            method,
            bound,
            tuple(self.temporaries),
            known=known,
            shapes=lambda opened: self.compute_shapes(opened[marks_at]),
        )

    def compute_shapes(self, marks: Any) -> list[Shape]:
        """Return the shapes of the results."""
        count = int(np.asarray(marks[:, 0]).sum())
        shapes = {"inverse": self.shape, "elements": self.compute_result_shape(count)}
        return [shapes.get(name, (count,)) for name in self.results]

    def compute_result_shape(self, count: int) -> Shape:
        """Return the shape of the result with `count` items."""
        return (count,)

    def add_temporary(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> int:
        """Add a temporary array and return its number."""
        self.names.append(name)
        self.temporaries.append(Result(shape, dtype, {"order": "C"}))
        return len(self.names) - 1

    def embed(
        self, phases: Iterable[Phase], temporaries: Iterable[Result], result: int
    ) -> tuple[list[Phase], list[int]]:
        """Return phases with the numbers of their arrays in this program, and these numbers."""
        runs = (self.add_temporary("runs", one.shape, one.dtype) for one in temporaries)
        numbers = [0, result, *runs]
        return [renumber(phase, numbers) for phase in phases], numbers

    def set_names(self, phase: Phase) -> Phase:
        """Return a phase with the names of all arrays of the program."""
        names = tuple(self.names)
        if isinstance(phase, Schedule):
            return replace(phase, arrays=names)
        make = phase.make
        return replace(phase, make=lambda opened: replace(make(opened), arrays=names))

    def choose_block(self) -> int:
        """Return the number of elements that are counted and stored at a time."""
        room, each = self.terms.room, self.count_bytes(2) - self.count_bytes(1)
        least = max(min(self.length, self.least), 1)
        block = max(min((room - self.count_bytes(1)) // each, self.length), least)
        while True:
            kept = -(-self.length // block) * _KEPT
            held = self.count_bytes(block) + kept
            if held <= room:
                return block
            if kept > room // 4:
                raise InsufficientBuffersError(2 * room)
            if block == least:
                raise InsufficientBuffersError(held)
            block = max(block - -(-block // 32), least)

    def count_bytes(self, block: int) -> int:
        """Return the bytes for storing blocks of `block` elements; counting needs less."""
        return sum(buffer.nbytes for buffer in self.list_buffers(block, 1))

    def list_buffers(self, block: int, distance: int) -> list[Buffer]:
        """Return buffers: sorted elements, scratch; indices, results; words of the inverse, samples."""
        asked, piece = self.asked, min(_PIECE, max(self.length, 1))
        found = [
            Buffer((block + 1) * math.prod(self.tail), self.stored, copies=2),
            Buffer(piece * self.beside + self.scratch, np.dtype("u1")),
        ]
        if self.has_place_array:
            found.append(Buffer(block, _PLACE, copies=2))
        found.append(Buffer(block * self.size, self.native, copies=2))
        found += [Buffer(block, _PLACE, copies=2)] * (asked.index + asked.counts)
        if asked.inverse:
            tail = math.prod(self.words.tail)
            found.append(Buffer(block * tail, self.words.dtype, copies=2))
            found.append(Buffer(block // distance * tail, self.words.dtype, copies=2))
        return found

    def plan_merges(self, blocks: _SortedBlocks) -> list[Phase]:
        """Return the phases from runs of blocks to the inverse."""
        words, length = self.words, self.length
        begins = (*range(0, length, blocks.block), length)
        many, distance = choose_fan_in(blocks.number, length, words, self.terms)
        runs = Runs(2, 3, begins, distance)
        planning = SortPlan("unique", (length,), _PLACE, 0, words, True, self.terms)
        merges, temporaries = planning.plan_merges(Tiling((), (), "C"), runs, many, self.shape)
        phases, numbers = self.embed(merges, temporaries, self.names.index("inverse"))
        blocks.runs = replace(runs, array=numbers[2], samples=numbers[3])
        return phases


class _ElementPlan(DistinctPlan):
    """Plan for all elements, as one line."""

    ordered: Program
    order: Program | None

    @property
    def has_place_array(self) -> bool:  # type: ignore[override]
        """Whether the indices are sorted into a separate array."""
        return self.asked.places

    def plan_sorts(self, ordered: int) -> tuple[list[Phase], str, int]:
        phases, _ = self.embed(self.ordered.phases, self.ordered.temporaries, ordered)
        order_at = -1
        if self.order is not None:
            order_at = self.add_temporary("sorted places", (self.length,), _PLACE)
            phases += self.embed(self.order.phases, self.order.temporaries, order_at)[0]
        return phases, self.ordered.method, order_at

    def find_different(self, data: NDArray[Any], before: NDArray[Any]) -> NDArray[np.bool_]:
        return _find_different(data, before, equal_nan=self.asked.equal_nan)

    def take(self, data: NDArray[Any], which: NDArray[np.int64], out: NDArray[Any]) -> None:
        np.take(data, which, out=out, mode="clip")


def renumber(phase: Phase, numbers: Sequence[int]) -> Phase:
    """Return a phase whose arrays have other numbers."""
    if isinstance(phase, DeferredPhase):
        make = phase.make
        return replace(
            phase,
            at_once={numbers[n]: count for n, count in phase.at_once.items()},
            make=lambda opened: _renumber_schedule(make([opened[n] for n in numbers]), numbers),
        )
    return _renumber_schedule(phase, numbers)


def _renumber_schedule(schedule: Schedule, numbers: Sequence[int]) -> Schedule:
    make = schedule.make

    def step(number: int) -> ScheduleStep:
        one = make(number)
        loads = tuple(replace(load, array=numbers[load.array]) for load in one.loads)
        stores = tuple(replace(store, array=numbers[store.array]) for store in one.stores)
        return replace(one, loads=loads, stores=stores)

    return replace(schedule, make=step)


class _SortedBlocks:
    """
    Blocks of sorted elements: `number` blocks of `block` elements.

    `ordered`, `order` and `marks` are the numbers of the arrays of sorted items, of their indices
    (-1: none), and of the counts: for each block the new elements, and where the first of them is.
    """

    def __init__(
        self, plan: DistinctPlan, block: int, number: int, ordered: int, order: int, marks: int
    ) -> None:
        self.plan, self.block, self.number = plan, block, number
        self.ordered, self.order, self.marks = ordered, order, marks
        self.length = plan.length
        self.runs: Runs | None = None

    def find_range(self, number: int) -> slice:
        return slice(number * self.block, min((number + 1) * self.block, self.length))

    def load(self, number: int) -> tuple[Block, Load]:
        """Return a block with the element before it."""
        part = self.find_range(number)
        section = slice(max(part.start - 1, 0), part.stop)
        tail = self.plan.tail
        key = (section, *(slice(0, n) for n in tail))
        return Block(0, (section.stop - section.start, *tail)), Load(self.ordered, key, 0)

    def plan_counting(self) -> Schedule:
        """Return the schedule that counts the new elements of each block and finds the first one."""
        buffers = (*self.plan.list_buffers(self.block, 1)[:2], Buffer(2, _PLACE, copies=2))
        scratch = Block(1, (buffers[1].elements,))

        def step(number: int) -> ScheduleStep:
            block, load = self.load(number)
            row = (slice(number, number + 1), slice(0, 2))
            return ScheduleStep(
                blocks=(block, scratch, Block(2, (1, 2))),
                loads=(load,),
                stores=(Store(self.marks, row, 2),),
                kernel=0,
                arguments=(number,),
            )

        def kernel(blocks: Sequence[NDArray[Any]], number: int) -> None:
            base, count, first = number * self.block, 0, self.length
            for at, begins in self.find_new(blocks[0], number):
                if len(begins):
                    first = first if count else base + at + int(begins[0])
                    count += len(begins)
            blocks[2][0] = count, first

        return Schedule("unique: counts", (), buffers, self.number, step, (kernel,))

    def find_new(self, data: NDArray[Any], number: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield, piece by piece, where elements are that differ from the one before."""
        own = 0 if number == 0 else 1
        for begin in range(own, len(data), _PIECE):
            end = min(begin + _PIECE, len(data))
            first = int(begin == 0)
            new = np.ones(end - begin, bool)
            before = data[begin + first - 1 : end - 1]
            new[first:] = self.plan.find_different(data[begin + first : end], before)
            yield begin - own, np.flatnonzero(new)

    def plan_storing(self) -> DeferredPhase:
        """Return the phase that stores the results, and the inverse as runs."""
        plan, asked, length = self.plan, self.plan.asked, self.length
        width, item = plan.size * plan.native.itemsize, plan.stored.itemsize * math.prod(plan.tail)
        at_once = {self.ordered: 1, **dict.fromkeys(self.targets, 1)}
        loaded = (length + max(self.number - 1, 0)) * item
        stored = length * (width + 8 * (asked.index + asked.counts))
        distance = 1
        if plan.has_place_array:
            at_once[self.order] = 1
            loaded += 8 * length
        if self.runs is not None:
            distance = self.runs.distance
            at_once |= {self.runs.array: 1, self.runs.samples: 1}
            stored += (length + self.runs.sample_begins[-1]) * plan.words.nbytes
        buffers = tuple(plan.list_buffers(self.block, distance))
        return DeferredPhase(
            name="unique: results",
            steps=self.number,
            held=sum(buffer.nbytes for buffer in buffers) + self.number * _KEPT,
            loaded=loaded,
            stored=stored,
            at_once=at_once,
            make=lambda opened: _StoreSteps(self, buffers, opened[self.marks]).make_schedule(),
        )

    @property
    def targets(self) -> list[int]:
        """Numbers of the results that are stored block by block."""
        return [self.plan.find_target(one) for one in self.plan.results if one != "inverse"]


class _StoreSteps:
    """Schedule that stores, from the counts."""

    def __init__(self, blocks: _SortedBlocks, buffers: tuple[Buffer, ...], marks: Any) -> None:
        self.blocks, self.buffers = blocks, buffers
        self.reserved = _core.Reservation("counts of blocks", blocks.number * _KEPT)
        found = np.asarray(marks[...])
        #: Elements that begin before each block.
        self.before = np.concatenate([[0], np.cumsum(found[:, 0])])
        #: Position of the next new element after each block.
        self.following = np.full(blocks.number, blocks.length, np.int64)
        for n in range(blocks.number - 2, -1, -1):
            has = found[n + 1, 0] > 0
            self.following[n] = found[n + 1, 1] if has else self.following[n + 1]

    def make_schedule(self) -> Schedule:
        blocks = self.blocks
        return Schedule(
            "unique: results", (), self.buffers, blocks.number, self.step, (self.kernel,)
        )

    def step(self, number: int) -> ScheduleStep:
        blocks, plan = self.blocks, self.blocks.plan
        part, (block, load) = blocks.find_range(number), blocks.load(number)
        found, loads, stores = [block, Block(1, (self.buffers[1].elements,))], [load], []
        if plan.has_place_array:
            loads.append(Load(blocks.order, (part,), 2))
            found.append(Block(2, (part.stop - part.start,)))
        low, high = int(self.before[number]), int(self.before[number + 1])
        for n, target in enumerate(blocks.targets):
            section, shape, axes = (
                plan.find_result(low, high) if n == 0 else _make_line_section(low, high)
            )
            if math.prod(shape):
                stores.append(Store(target, section, len(found), axes=axes))
            found.append(Block(len(found), shape))
        runs, tail = blocks.runs, plan.words.tail
        if runs is not None:
            tail_key = tuple(slice(0, n) for n in tail)
            stores.append(Store(runs.array, (part, *tail_key), len(found)))
            found.append(Block(len(found), (part.stop - part.start, *tail)))
            samples = runs.find_samples(number, part.start, part.stop)
            if samples.stop > samples.start:
                stores.append(Store(runs.samples, (samples, *tail_key), len(found)))
            found.append(Block(len(found), (samples.stop - samples.start, *tail)))
        return ScheduleStep(
            tuple(found), tuple(loads), tuple(stores), kernel=0, arguments=(number,)
        )

    def kernel(self, blocks: Sequence[NDArray[Any]], number: int) -> None:
        """Take the new elements of a block."""
        plan, asked = self.blocks.plan, self.blocks.plan.asked
        data = blocks[0] if number == 0 else blocks[0][1:]
        rest = iter(blocks[2:])
        apart = next(rest) if plan.has_place_array else None
        elements = next(rest)
        index = next(rest) if asked.index else None
        counts = next(rest) if asked.counts else None
        words = next(rest) if asked.inverse else None
        base, reached = number * self.blocks.block, 0
        for at, begins in self.blocks.find_new(blocks[0], number):
            part, here = slice(reached, reached + len(begins)), slice(at, at + _PIECE)
            if asked.places:
                places = plan.read_places(data[here]) if apart is None else apart[here]
                if words is not None:
                    self.make_words(words[here], places, begins, number, reached)
                if index is not None:
                    np.take(places, begins, out=index[part], mode="clip")
            np.add(begins, at, out=begins)
            plan.take(data, begins, elements[part])
            if counts is not None:
                np.add(begins, base, out=counts[part])
            reached = part.stop
        if counts is not None and reached:
            for begin in range(0, reached - 1, _PIECE):
                end = min(begin + _PIECE, reached - 1)
                counts[begin:end] = counts[begin + 1 : end + 1] - counts[begin:end]
            counts[-1] = self.following[number] - counts[-1]
        if words is not None:
            self.sort(words, blocks[-1])

    def make_words(
        self,
        words: NDArray[Any],
        places: NDArray[Any],
        begins: NDArray[np.int64],
        number: int,
        reached: int,
    ) -> None:
        """Combine the index of each element and the number of its different element into words."""
        new = np.zeros(len(places), np.uint64)
        new[begins] = 1
        np.cumsum(new, out=new)
        new += np.uint64(int(self.before[number]) + reached - 1 & 2**64 - 1)
        if words.ndim == 1:
            np.left_shift(places.view(np.uint64), np.uint64(32), out=words)
            words |= new
        else:
            words[:, 0] = places
            words[:, 1] = new

    def sort(self, words: NDArray[Any], samples: NDArray[Any]) -> None:
        """Sort words by index, and take samples."""
        of, runs = self.blocks.plan.words, self.blocks.runs
        assert runs is not None
        _core.sort_lines(of.flatten(words), of.width, of.kind, len(words))
        np.copyto(samples, runs.take_samples(words, 0))


def _make_line_section(low: int, high: int) -> tuple[Section, Shape, Shape | None]:
    """Return a part of a result of one axis: section, shape of its block, and axes."""
    return (slice(low, high),), (high - low,), None


def _find_different(
    data: NDArray[Any], before: NDArray[Any], *, equal_nan: bool
) -> NDArray[np.bool_]:
    new = np.asarray(data != before)
    if equal_nan and data.dtype.kind in "fcmM":
        new &= ~(np.isnan(data) & np.isnan(before))
    return new
