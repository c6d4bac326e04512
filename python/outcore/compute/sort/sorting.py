"""
Sorting along an axis that may be longer than memory.

Problem. A sort needs all elements before it knows the first one of the result.
Idea. If whole lines fit in memory, blocks of lines are sorted there in one pass. Longer lines are
cut into pieces that fit, which are sorted and stored one after the other (the runs), and then
merged (`outcore.compute.sort.runs`): two passes, or more if memory is so small that the runs would
be read in tiny requests.

Invariants. The result depends neither on memory nor on the number of threads. `sort` produces
NumPy's order; elements that NumPy finds equal but that differ in their bits (-0.0 and 0.0, NaNs)
come in the order of their bits, -0.0 first. `argsort` is stable.

References: Aggarwal, Vitter, The input/output complexity of sorting and related problems, 1988, for
the bound; Knuth, volume 3, section 5.4, for runs and merges.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays import tiling
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Tiling
from outcore.base.report import format_count
from outcore.compute.jobs import (
    SMALLEST,
    Bound,
    DeferredPhase,
    InsufficientBuffersError,
    Phase,
    Program,
    Result,
    Terms,
)
from outcore.compute.sort.runs import (
    MergePass,
    Runs,
    WordLayout,
    choose_fan_in,
    find_slab_ends,
    merge_begins,
    take_places,
)
from outcore.errors import UnsupportedError
from outcore.formats.layout import Strided

__all__ = ["SortPlan", "find_section", "plan_sort"]

Shape = tuple[int, ...]

# Arrays of a sort of lines that are scattered over the file.
_IN_SLABS = ("array", "result", "slabs", "sorted slabs")
# Elements of temporary arrays begin at a multiple of this number of bytes.
_PAGE = 4096
# Largest number of lines that are merged together, and of runs that this may add.
_BESIDE, _RUNS = 64, 64


def plan_sort(
    name: str,
    shape: Shape,
    dtype: np.dtype[Any],
    axis: int | None,
    *,
    places: bool,
) -> Callable[[Terms], Program]:
    """
    Return the planner of a sort along `axis` (None: all elements, as one line).

    The results are indices with `places`, otherwise elements.
    """
    length = math.prod(shape) if axis is None else shape[axis]
    of = WordLayout.for_places if places else lambda dtype, length: WordLayout.for_elements(dtype)
    words = of(dtype, length)
    if dtype.hasobject or (words is None and dtype.kind == "V" and dtype.names is None):
        raise UnsupportedError(
            f"{name}: elements of dtype {dtype} have no order; view them as numbers",
            code="bad-dtype",
        )

    def plan(terms: Terms) -> Program:
        return SortPlan(name, shape, dtype, axis, words, places, terms).make_program()

    return plan


class SortPlan:
    """Plan of a sort."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        dtype: np.dtype[Any],
        axis: int | None,
        words: WordLayout | None,
        places: bool,
        terms: Terms,
    ) -> None:
        self.name, self.shape, self.axis, self.words, self.terms = name, shape, axis, words, terms
        self.places = places
        self.native = dtype.newbyteorder("=")
        self.width = np.dtype(np.int64).itemsize if places else self.native.itemsize
        if axis is None:
            self.others: Shape = ()
            self.length = math.prod(shape)
            self.axes: Shape | None = None
        else:
            self.others = (*shape[:axis], *shape[axis + 1 :])
            self.length = shape[axis]
            order = (*range(axis), *range(axis + 1, len(shape)), axis)
            self.axes = None if order == tuple(range(len(shape))) else order
        self.lines = math.prod(self.others)
        #: Whether another block than the loaded one is sorted.
        self.moved = places or (axis is None and len(shape) != 1)

    def make_program(self) -> Program:
        """Return the plan: one pass if whole lines fit, otherwise runs that are merged."""
        if not self.length or not self.lines:
            empty = Schedule(self.name, ("array", "result"), (), 0, lambda number: ScheduleStep(()))
            return Program((empty,), "there is nothing to sort", Bound(0, "nothing"))
        whole = self.plan_whole_lines()
        if whole is None:
            return self.plan_runs()
        return self.plan_slabs(*whole) or Program((whole[0],), whole[1], self.make_simple_bound())

    # Lines that fit.

    def plan_whole_lines(self, slabs: Sequence[slice] = ()) -> tuple[Schedule, str] | None:
        """Return the schedule of one pass, from slabs if given, and its description, if lines fit."""
        many = self.lines
        choices: tuple[tuple[Shape, int], ...]
        choices = (((1, 1, 1), many), *((copies, 1) for copies in self.copy_counts))
        for copies, least in choices:
            most = self.terms.room // self.count_line_bytes(copies)
            if most >= least:
                return self.schedule_whole_lines(min(most, many), copies, slabs)
        return None

    @property
    def copy_counts(self) -> tuple[Shape, ...]:
        """Copies of loaded blocks, sorted blocks, and indices; least memory is last."""
        if self.moved:
            return ((2, 1, 2) if self.places else (2, 2, 0),)
        return (3, 0, 0), (2, 0, 0)

    def count_line_bytes(self, copies: Shape) -> int:
        """Return the bytes of a line in memory with these numbers of copies."""
        size = self.native.itemsize
        sorts = self.words.nbytes if self.words is not None and self.moved else size
        numpys = (size, size * 2)[self.places] if self.words is None else 0
        return self.length * (
            copies[0] * size
            + self.moved * copies[1] * sorts
            + self.places * copies[2] * self.width
            + numpys
        )

    def schedule_whole_lines(
        self, most: int, copies: Shape, slabs: Sequence[slice] = ()
    ) -> tuple[Schedule, str]:
        """Return the schedule for blocks of lines, or for arrays of slabs (see `plan_slabs`)."""
        lines = tiling.cut_slabs(self.others, most, self.terms.order(0))
        section = math.prod(lines.largest) * self.length
        steps = len(lines)
        buffers = [Buffer(section, self.native, copies=copies[0])]
        if self.moved and self.words is not None:
            elements = section * math.prod(self.words.tail)
            buffers.append(Buffer(elements, self.words.dtype, copies=copies[1]))
        elif self.moved and not self.places:
            buffers.append(Buffer(section, self.native, copies=copies[1]))
        if self.places:
            buffers.append(Buffer(section, np.dtype(np.int64), copies=copies[2]))

        def step(number: int) -> ScheduleStep:
            box = lines.key(number)
            key, size = self.find_key(box, slice(0, self.length))
            line = (*(p.stop - p.start for p in box), self.length)
            blocks, stored = [Block(0, size)], 0
            for n in range(1, len(buffers)):
                tail = self.words.tail if self.words is not None else ()
                is_places = self.places and n == len(buffers) - 1
                blocks.append(Block(n, line if is_places else (*line, *tail)))
                stored = n
            there = key if self.axis is not None else (slice(0, self.length),)
            loads = [Load(0, key, 0, axes=self.axes)]
            stores = [Store(1, there, stored, axes=self.axes)]
            if slabs:
                places = [self.find_in_slab(box, *one) for one in enumerate(slabs)]
                loads = [Load(2, there, 0, at, None, shape) for there, at, shape in places]
                stores = [Store(3, there, stored, at, None, shape) for there, at, shape in places]
            return ScheduleStep(tuple(blocks), tuple(loads), tuple(stores), kernel=0)

        arrays = _IN_SLABS if slabs else ("array", "result")
        schedule = Schedule(self.name, arrays, tuple(buffers), steps, step, (self.sort_lines,))
        what = "all elements" if self.axis is None else f"{math.prod(lines.largest)} whole lines"
        return schedule, f"{format_count(steps, 'block')} of {what}, sorted in memory"

    def find_key(self, box: Sequence[slice], part: slice) -> tuple[tuple[slice, ...], Shape]:
        """Return a section of the source, and the shape of its block."""
        if self.axis is None:
            key = find_section(self.shape, part.start, part.stop)
            return key, tuple(p.stop - p.start for p in key)
        size = (*(p.stop - p.start for p in box), part.stop - part.start)
        return (*box[: self.axis], part, *box[self.axis :]), size

    # Lines that fit, but are scattered over the file.

    def plan_slabs(self, lines: Schedule, method: str) -> Program | None:
        """
        Return a plan that moves slabs, or None if that is not faster.

        Lines read in place are many short runs; a page cache that is too small drops a page before
        its next run is read. Slabs of the array, which are contiguous, are copied to an array of
        slabs, in each of which the elements of a line are contiguous. Blocks of lines are read from
        it and stored into another one, which becomes the result, slab by slab. Everything is read
        three times and written three times, in long runs.
        """
        axis, room, size = self.axis, self.terms.room, max(self.native.itemsize, self.width)
        infos = self.terms.infos
        dense = all(info is not None and isinstance(info.layout, Strided) for info in infos)
        if axis is None or not (self.terms.page and dense and self.axes):
            return None
        if any(self.terms.order(n) != "C" for n in range(2)):
            return None
        front, back = self.shape[:axis], self.shape[axis + 1 :]
        row = math.prod(back)
        rows = min(room // (3 * row * size), self.length)
        # Concurrent requests, one for each slab, each with its memory.
        many = max(room // 2**14, 1)
        if not rows or -(-self.length // rows) > many:
            return None
        count = -(-self.length // rows)
        rows = -(-self.length // count)
        slabs = [slice(n, min(n + rows, self.length)) for n in range(0, self.length, rows)]
        tile = math.prod(
            lines.step(0).loads[0].section[d].stop for d in range(axis + 1, len(self.shape))
        )
        run, tiles = tile * size, lines.steps * len(slabs)
        if tile >= row:
            return None
        disk, page = self.terms.disk, self.terms.page
        bound = self.make_simple_bound().nbytes
        short = 2 * -(-bound // (2 * run))
        # A page at each end is read in addition, or is read and written twice.
        there = disk.seconds(short, bound + short // 2 * 3 * page)
        apart = disk.seconds(
            2 * tiles + 4 * len(slabs) * math.prod(front), 3 * bound + 2 * tiles * page
        )
        if there <= apart:
            return None
        wide, native = np.dtype(np.int64) if self.places else self.native, self.native

        def slab(number: int) -> tuple[Section, Section, Shape, Shape]:
            place, n = divmod(number, len(slabs))
            index = (int(i) for i in np.unravel_index(place, front))
            box = (*(slice(i, i + 1) for i in index), *(slice(0, m) for m in back))
            there, _, shape = self.find_in_slab(box, n, slabs[n])
            key, found = self.find_key(box, slabs[n])
            return key, there, found, shape

        def apart_step(number: int) -> ScheduleStep:
            key, there, size, shape = slab(number)
            load = Load(0, key, 0, axes=self.axes)
            return ScheduleStep((Block(0, size),), (load,), (Store(2, there, 0, shape=shape),))

        def joined_step(number: int) -> ScheduleStep:
            key, there, size, shape = slab(number)
            load = Load(3, there, 0, shape=shape)
            return ScheduleStep((Block(0, size),), (load,), (Store(1, key, 0, axes=self.axes),))

        steps = math.prod(front) * len(slabs)
        phases = [
            Schedule(
                f"{self.name}: {name}",
                _IN_SLABS,
                (Buffer(rows * row, dtype, copies=min(3, steps)),),
                steps,
                step,
            )
            for name, dtype, step in (
                ("slabs", native, apart_step),
                ("result", wide, joined_step),
            )
        ]
        sorts = self.plan_whole_lines(slabs)
        assert sorts is not None
        shape = (*front, len(slabs), *back, rows)
        return Program(
            (phases[0], sorts[0], phases[1]),
            f"{sorts[1]}; read from {format_count(len(slabs), 'slab')} of long runs, since the "
            f"runs of {run} bytes that lines are made of would be read and written in pages",
            self.make_simple_bound(),
            tuple(Result(shape, dtype, {"order": "C"}) for dtype in (native, wide)),
        )

    def find_in_slab(
        self, box: Section, number: int, rows: slice
    ) -> tuple[Section, Section, Shape]:
        """Return the section of the array of slabs, the part of a block of lines, and its shape."""
        assert self.axis is not None
        count = rows.stop - rows.start
        there = (*box[: self.axis], slice(number, number + 1), *box[self.axis :], slice(0, count))
        part = (*(slice(0, p.stop - p.start) for p in box), rows)
        return there, part, tuple(p.stop - p.start for p in there)

    # Lines that do not fit.

    def plan_runs(self) -> Program:
        """Return the plan that sorts pieces of lines and merges them."""
        if self.words is None:
            line = self.length * self.native.itemsize * (4 if self.places else 2)
            raise InsufficientBuffersError(line)
        words, room = self.words, self.terms.room
        size = self.native.itemsize
        each = 2 * size + 2 * words.nbytes if self.moved else 3 * size
        if room < SMALLEST:
            raise InsufficientBuffersError(
                min(SMALLEST, self.count_line_bytes(self.copy_counts[-1]))
            )
        lines = tiling.cut_slabs(
            self.others, self.count_lines_together(room // each), self.terms.order(0)
        )
        lines = replace(lines, order="C")
        tile_lines = math.prod(lines.largest)
        # The number of runs determines the distance of samples, which determines their memory.
        distance = room
        for _ in range(2):
            piece = (room // tile_lines - 2 * words.nbytes) * distance
            piece //= each * distance + 2 * words.nbytes
            pieces = self.cut_pieces(max(piece, 1))
            many, least = choose_fan_in(
                len(pieces) - 1,
                self.length,
                words,
                self.terms,
                lines=self.lines,
                tile_lines=tile_lines,
            )
            distance = min(distance, least)
        runs = Runs(2, 3, pieces, distance, self.find_lead())
        merges, temporaries = self.plan_merges(lines, runs, many)
        method = (
            f"{len(pieces) - 1} pieces of a line do not fit together: sorted one by one, and merged in "
            f"{format_count(len(merges), 'pass')}"
        )
        phases: tuple[Phase, ...] = (self.schedule_runs(lines, runs), *merges)
        return Program(phases, method, self.compute_bound(), tuple(temporaries))

    def plan_merges(
        self, lines: Tiling, runs: Runs, many: int, shape: Shape | None = None
    ) -> tuple[list[DeferredPhase], list[Result]]:
        """
        Return all passes, and the arrays between them: runs and samples, twice for several passes.

        A result of one line has other axes if `shape` is given.
        """
        phases: list[DeferredPhase] = []
        temporaries = [*self.make_run_arrays(runs)]
        arrays = ["array", "result", "runs", "samples"]
        distance = runs.distance
        while True:
            last = len(runs.begins) - 1 <= many
            target: int | Runs = 1
            if not last:
                target = Runs(6 - runs.array, 8 - runs.samples, merge_begins(runs, many), distance)
                if len(temporaries) == 2:
                    temporaries += self.make_run_arrays(target)
                    arrays += ["merged runs", "their samples"]
            merge = self.fit_merge(lines, runs, target, many)
            if last and shape is not None:
                # Few sections of the result begin inside of its rows.
                inner = 1
                for n in reversed(shape):
                    inner = inner * n if inner * n <= merge.section else inner
                section = merge.section // inner * inner
                merge = replace(merge, section=section, shape=shape)
            phases.append(merge.make_phase(f"{self.name}: merge", tuple(arrays)))
            if not isinstance(target, Runs):
                return phases, temporaries
            runs = target

    def find_lead(self) -> int:
        """Return `Runs.lead` for runs that are sorted in the loaded block: a single line of a file."""
        info = self.terms.infos[0]
        layout = None if info is None else info.layout
        if self.moved or self.lines > 1 or not isinstance(layout, Strided):
            return 0
        lead, rest = divmod(layout.parts[0].offset % _PAGE, self.native.itemsize)
        return 0 if rest else lead

    def make_run_arrays(self, runs: Runs) -> Iterator[Result]:
        """Yield temporary arrays for runs and their samples, large enough for merged runs, too."""
        assert self.words is not None
        for length in (runs.lead + self.length, max(self.length // runs.distance, 1)):
            shape = (*self.others, length, *self.words.tail)
            yield Result(shape, self.words.dtype, {"order": "C"})

    def fit_merge(self, lines: Tiling, runs: Runs, target: int | Runs, many: int) -> MergePass:
        """Return a pass that fits."""
        words, room = self.words, self.terms.room
        assert words is not None
        last = not isinstance(target, Runs)
        most = max(room // 4 // words.nbytes, 2 * many)
        merge = MergePass(
            words=words,
            lines=lines,
            runs=runs,
            many=many,
            target=target,
            section=max(room // (3 * words.nbytes) // math.prod(lines.largest), 1),
            axes=self.axes if last else None,
            places=self.places and last,
            scratch=min(_core.merge_scratch(many, words.nbytes), most),
        )
        while merge.held_bytes > room:
            section = merge.section - -(-merge.section // 32)
            if not section:
                raise InsufficientBuffersError(2 * room)
            merge = replace(merge, section=section)
        if isinstance(target, Runs):
            if merge.section < target.distance:
                raise InsufficientBuffersError(2 * room)
            merge = replace(merge, section=merge.section // target.distance * target.distance)
        elif merge.section > _PAGE:
            merge = replace(merge, section=merge.section // _PAGE * _PAGE)
        return merge

    def count_lines_together(self, most: int) -> int:
        """Return the number of lines that are sorted together, to read neighbours together."""
        info = self.terms.infos[0]
        if self.axis is None or info is None:
            return 1
        side = self.terms.side(0)
        if side is not None and side.chunks is not None:
            wanted = math.prod(n for d, n in enumerate(side.chunks) if d != self.axis)
        else:
            fast = self.shape[self.axis + 1 :] if self.terms.order(0) == "C" else None
            fast = self.shape[: self.axis] if fast is None else fast
            wanted = math.prod(fast)
            wanted = min(wanted, max(self.terms.disk.gap // self.native.itemsize, 1))
        few = max(most * _RUNS // self.length, 1)
        return max(min(wanted, few, _BESIDE, self.lines, max(self.terms.room >> 18, 1)), 1)

    def cut_pieces(self, most: int) -> tuple[int, ...]:
        """Return the beginnings of the pieces of a line, and the end of the last one."""
        if self.axis is not None or len(self.shape) == 1:
            count = -(-self.length // most)
            size = -(-self.length // count)
            # Whole pages: no page has elements of two runs.
            paged = -(-size // _PAGE) * _PAGE
            size = paged if size > _PAGE and paged <= most else size
            return (*range(0, self.length, size), self.length)
        return find_slab_ends(self.shape, most)

    def schedule_runs(self, lines: Tiling, runs: Runs) -> Schedule:
        """Return the first phase, in which each piece of a line becomes a run."""
        words, pieces = self.words, runs.begins
        assert words is not None
        largest = max(b - a for a, b in itertools.pairwise(pieces))
        tile_lines, tail = math.prod(lines.largest), math.prod(words.tail)
        steps = len(lines) * (len(pieces) - 1)
        elements = tile_lines * largest
        buffers = [Buffer(elements, self.native, copies=min(2 if self.moved else 3, steps))]
        if self.moved:
            buffers.append(Buffer(elements * tail, words.dtype, copies=min(2, steps)))
        samples = tile_lines * (largest // runs.distance) * tail
        buffers.append(Buffer(samples, words.dtype, copies=min(2, steps)))

        def step(number: int) -> ScheduleStep:
            tile, piece = divmod(number, len(pieces) - 1)
            box, there = lines.key(tile), slice(pieces[piece], pieces[piece + 1])
            key, size = self.find_key(box, there)
            count, part = (
                there.stop - there.start,
                runs.find_samples(piece, there.start, there.stop),
            )
            many = tuple(p.stop - p.start for p in box)
            blocks = [Block(0, size)]
            if self.moved:
                blocks.append(Block(1, (*many, count, *words.tail)))
            blocks.append(Block(len(buffers) - 1, (*many, part.stop - part.start, *words.tail)))
            tail_key = tuple(slice(0, n) for n in words.tail)
            stored = runs.find_range(there.start, there.stop)
            stores = [Store(runs.array, (*box, stored, *tail_key), len(blocks) - 2)]
            if part.stop > part.start:
                stores.append(Store(runs.samples, (*box, part, *tail_key), len(blocks) - 1))
            return ScheduleStep(
                blocks=tuple(blocks),
                loads=(Load(0, key, 0, axes=self.axes),),
                stores=tuple(stores),
                kernel=0,
                arguments=(there.start, count),
            )

        name, arrays = f"{self.name}: runs", ("array", "result", "runs", "samples")
        return Schedule(
            name, arrays, tuple(buffers), steps, step, (functools.partial(self.sort_piece, runs),)
        )

    def fill_words(
        self, words: WordLayout, blocks: Sequence[NDArray[Any]], first: int, count: int
    ) -> NDArray[Any]:
        """Return the words to be sorted: the loaded block, a copy of it, or keys with indices."""
        if not self.moved:
            return words.flatten(blocks[0])
        flat = words.flatten(blocks[1])
        if self.places:
            of = WordLayout.for_elements(self.native)
            assert of is not None
            _core.keys_with_places(of.flatten(blocks[0]), of.width, of.kind, (first, count), flat)
        else:
            np.copyto(flat, words.flatten(blocks[0]))
        return flat

    def sort_piece(
        self, runs: Runs, blocks: Sequence[NDArray[Any]], first: int, count: int
    ) -> None:
        """Sort a piece, in place or into another block, and take samples of it."""
        words = self.words
        assert words is not None
        flat = self.fill_words(words, blocks, first, count)
        _core.sort_lines(flat, words.width, words.kind, count)
        # Elements of one word are words now, whatever the dtype of the block.
        np.copyto(blocks[-1], runs.take_samples(blocks[-2], len(self.others)))

    def sort_lines(self, blocks: Sequence[NDArray[Any]]) -> None:
        """Sort whole lines; NumPy sorts elements that have no words."""
        words = self.words
        if words is not None:
            flat = self.fill_words(words, blocks, 0, self.length)
            _core.sort_lines(flat, words.width, words.kind, self.length)
            if self.places:
                take_places(words, blocks[1], blocks[-1])
            else:
                _core.decode_words(flat, words.kind)
            return
        lines = blocks[0].reshape(-1, self.length)
        target = blocks[-1].reshape(lines.shape)
        if self.places:
            for line, places in zip(lines, target, strict=True):
                places[...] = np.argsort(line, kind="stable")
        else:
            if self.moved:
                target[...] = lines
            target.sort(axis=-1)

    def make_simple_bound(self) -> Bound:
        """Return the bound "input and result once"."""
        size = self.lines * self.length
        return Bound.of(
            {0: size * self.native.itemsize, 1: size * self.width}, "input and result once"
        )

    def compute_bound(self) -> Bound:
        """Return the bound: input and result, or what comparisons need (Aggarwal, Vitter 1988)."""
        size = self.native.itemsize
        block = max(self.terms.disk.gap // size, 1)
        memory = max(self.terms.room // size, 2 * block)
        n = self.length
        if n <= memory:
            return self.make_simple_bound()
        arrangements = math.lgamma(n + 1) - n / block * math.lgamma(block + 1)
        choices = math.lgamma(memory + 1) - math.lgamma(block + 1) - math.lgamma(memory - block + 1)
        reads = int(block * arrangements / choices) * self.lines * size
        written = self.lines * n * self.width
        if reads + written <= self.make_simple_bound().nbytes:
            return self.make_simple_bound()
        name = "comparisons (Aggarwal, Vitter 1988)"
        return Bound(reads + written, name, self.make_simple_bound().once)


def find_section(shape: Shape, begin: int, end: int) -> tuple[slice, ...]:
    """Return a range of elements in C order as a section; the range must be one."""
    key = []
    size = math.prod(shape)
    for n in shape:
        size //= n
        first = begin // size
        last = max(-(-end // size), first + 1)
        key.append(slice(first, last))
        begin, end = begin - first * size, end - first * size
        if last - first > 1 or (begin == 0 and end == size):
            rest = shape[len(key) :]
            return (*key, *(slice(0, n) for n in rest))
    return tuple(key)
