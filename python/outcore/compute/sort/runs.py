"""
Sorted runs on disk, and their merge.

Problem. Lines that do not fit in memory are sorted in pieces, the runs, and merged. A merge that
follows its input (continues reading the run that provides the next element) reads at places that
depend on the elements: its requests cannot be predicted, its steps cannot be counted, and a killed
job starts again.
Idea. The result is cut into sections of equal length. A pass that stores a run also stores each
`d`-th of its elements, the samples. These alone determine, for each border of a section, between
which positions of each run it is, to within `2 d k` elements of `k` runs together (`find_cuts`). Step
`k` loads the part of each run that may belong to section `k`, with a few elements more at both
ends, finds the exact borders in memory, merges, and stores section `k`: like any other step, ahead
and behind, and no run is searched on disk.

Elements on disk are words whose order as unsigned integers is NumPy's order of the elements
(`WordLayout`); a run is compared, cut and merged without knowing its dtype. The last pass converts words
back.

Tried and rejected: exact borders, searched in the runs on disk before the first step. That took two
thousand short reads for each border, half as many bytes again as the merge itself at small budgets,
and nothing was computed in the meantime. On paper: distribution into buckets by sampled splitters
(samplesort). It also moves four times the array, and saves the merge (a quarter of the time of the
sort of the runs). But bucket lengths vary with the error of the samples, and equal elements can
make a bucket of any length, so the memory needed is not known in advance, and what was stored
before a restart cannot be described by numbers.

Invariants. The samples on disk alone determine the cuts, so steps are the same after a restart.
Equal elements come in the order of their runs, and so in the order of the array. The amount that a
step loads is bounded in advance.

References: Aggarwal, Vitter, The input/output complexity of sorting and related problems, 1988;
Varman, Scheufler, Iyer, Ricard, Merging multiple lists on hierarchical-memory multiprocessors,
1991; Knuth, volume 3, section 5.4.9, on what a run reveals in advance (forecasting).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.arrays.tiling import Tiling, cut_slabs
from outcore.compute.jobs import DeferredPhase, InsufficientBuffersError, Terms
from outcore.compute.sort.records import cut_records, has_words, merge_records

__all__ = [
    "MergePass",
    "Runs",
    "WordLayout",
    "choose_fan_in",
    "cut_boxes",
    "find_cuts",
    "find_slab_ends",
    "take_places",
]

_PAGE = 4096
# From this number of bytes on, the disk reads parts directly into their places.
_LONG = 2**18
# Smallest memory of an operation on an array, with the share of the budget that is for operations.
_OPERATION = 8 * 4096


@dataclass(frozen=True, slots=True)
class WordLayout:
    """
    Storage of elements in runs, as unsigned integers.

    `dtype` is that of the array with the runs, `width` the number of integers for an element, and
    `tail` the axes that an element has in the array. `kind` is NumPy's letter of the elements,
    ``"w"`` for words that are compared as they are, or ``"S"`` for bytes that are compared as a
    string (`outcore.compute.sort.records`).
    """

    dtype: np.dtype[Any]
    kind: str
    width: int = 1
    tail: tuple[int, ...] = ()

    @classmethod
    def for_elements(cls, dtype: np.dtype[Any]) -> WordLayout | None:
        """Return the words for sorting elements of a dtype; None if it cannot be ordered as words."""
        native = dtype.newbyteorder("=")
        if not has_words(native):
            return None
        return cls(native, native.kind, 1 + (native.kind == "c"))

    @classmethod
    def for_places(cls, dtype: np.dtype[Any], length: int) -> WordLayout | None:
        """Return the words for sorting indices by their elements, along an axis of this length."""
        of = cls.for_elements(dtype)
        if of is None:
            return None
        word = np.dtype(np.uint64)
        if of.dtype.itemsize <= 4 and length <= 1 << 32:
            return cls(word, "w")
        width = 3 if of.dtype.itemsize == 16 else 2
        return cls(word, "w", width, (width,))

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize * math.prod(self.tail)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample; sorting records needs their number, their run, and a copy."""
        return self.nbytes + 24 * (self.kind == "S")

    def flatten(self, block: NDArray[Any]) -> NDArray[Any]:
        """Return the unsigned integers of a block."""
        parts = 2 if self.kind == "c" else 1
        return block.reshape(-1).view(f"u{self.dtype.itemsize // parts}")


@dataclass(frozen=True, slots=True)
class Runs:
    """
    Sorted runs of lines, and samples of them.

    `array` and `samples` are the numbers of the arrays that store them, along the last axis (before
    the axes of an element). `begins` has the beginning of each run and the end of the last one.
    Elements ``distance - 1``, ``2 * distance - 1``, ... of a run are its samples. The array has
    `lead` elements before the first run, so that runs have the same offsets in their pages as their
    source, and are stored from where they were loaded.
    """

    array: int
    samples: int
    begins: tuple[int, ...]
    distance: int
    lead: int = 0

    def find_range(self, low: int, high: int) -> slice:
        """Return the range of elements of runs in the array."""
        return slice(self.lead + low, self.lead + high)

    @property
    def sample_begins(self) -> tuple[int, ...]:
        """Beginnings of the samples of each run, and the end of the last ones."""
        lens = (b - a for a, b in itertools.pairwise(self.begins))
        return tuple(itertools.accumulate((n // self.distance for n in lens), initial=0))

    def find_samples(self, run: int, low: int, high: int) -> slice:
        """Return the range of the samples of a part of a run; it begins at a multiple of `distance`."""
        first, begin = self.sample_begins[run], self.begins[run]
        return slice(
            first + (low - begin) // self.distance, first + (high - begin) // self.distance
        )

    def take_samples(self, block: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return the samples of a part of a run in memory."""
        key = (slice(None),) * axis + (slice(self.distance - 1, None, self.distance),)
        return block[key]


def find_cuts(
    samples: NDArray[Any],
    lens: Sequence[int],
    distance: int,
    ranks: Sequence[int],
    words: WordLayout,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Return the positions between which runs are cut such that `rank` elements are before the cuts.

    `samples` are those of the runs, one after the other, as words; `lens` the lengths of the runs.
    The first rank is 0, the last one the number of all elements. The results have shape
    ``(len(ranks), len(lens))``: a cut is at or after the first, and at or before the second.
    Between two ranks there are at most `count_excess` elements more than their difference.
    """
    size, number = np.array(lens, np.int64), len(lens)
    of_run = [n // distance for n in lens]
    # Each sample stands for `distance` elements up to it, and each other run has up to `distance - 1`
    # more.
    surely = [max(rank - (distance - 1) * (number - 1), 0) // distance for rank in ranks]
    perhaps = [-(-rank // distance) for rank in ranks]
    least = np.empty((len(ranks), number), np.int64)
    most = np.empty((len(ranks), number), np.int64)
    for among, found in ((surely, least), (perhaps, most)):
        if words.kind == "S":
            cut_records(samples, of_run, among, found, words.nbytes)
        else:
            _core.cut_runs(samples, of_run, among, found, words.width, words.kind)
    least *= distance
    most *= distance
    most += distance - 1
    np.minimum(most, size, out=most)
    most[0], least[-1] = 0, size
    return least, most


def count_excess(distance: int, many: int) -> int:
    """Return the largest number of elements that a step loads in addition to its section."""
    return (distance - 1) * (2 * many + 1)


def choose_fan_in(
    runs: int, length: int, words: WordLayout, terms: Terms, *, lines: int = 1, tile_lines: int = 1
) -> tuple[int, int]:
    """
    Return how many runs to merge at a time, and the distance of their samples.

    All runs are merged in one pass, unless requests would be so short that several passes are faster,
    or so many that their operations do not fit in memory. A step merges `tile_lines` of `lines` lines of
    `length` elements, each with `runs` runs. Raises `InsufficientBuffersError` if the samples that fit
    are not enough.
    """
    room, nbytes, elements = terms.room, words.sample_bytes, lines * length
    section = max(room // (4 * words.nbytes), 1)
    most = max(2, min(room // _OPERATION // tile_lines, section // tile_lines))
    # Samples of a line fit in half of the memory; otherwise as many as cost what they save.
    least = -(-2 * length * nbytes // room)

    def cheapest(many: int) -> int:
        return max(math.isqrt(section // tile_lines // many), least, 1)

    def fitting(many: int) -> int:
        # If a step has few elements of many bytes, the distance is less than the cheapest one.
        return max(min(cheapest(many), section // tile_lines // 4 // (2 * many + 1) + 1), least)

    def seconds(passes: int, many: int, distance: int) -> float:
        steps = -(-elements // section)
        more = steps * tile_lines * count_excess(distance, many) + 2 * elements // distance
        return passes * terms.disk.seconds(
            steps * many * tile_lines, (2 * elements + more) * nbytes
        )

    for distance in (cheapest, fitting):
        best, found = math.inf, 0
        for passes in range(1, max(runs, 2).bit_length() + 1):
            many = max(2, _compute_root(runs, passes))
            fits = count_excess(distance(many), many) * tile_lines <= section // 4
            if many <= most and fits and (price := seconds(passes, many, distance(many))) < best:
                best, found = price, many
        if found:
            return found, distance(found)
    raise InsufficientBuffersError(2 * room)


def _compute_root(number: int, degree: int) -> int:
    """Return the smallest integer whose power is at least `number`."""
    root = max(1, round(math.pow(number, 1 / degree)) - 1)
    while root**degree < number:
        root += 1
    return root


@dataclass(frozen=True, slots=True)
class MergePass:
    """
    Pass in which groups of `many` runs become runs, or the result.

    `lines` are tiles of lines that are merged together (of the array without its last axis).
    `target` is the number of the result, or runs with samples; `axes` is for `Store.axes`. A step
    makes `section` elements of each line, with `scratch` words of memory. With `places`, the target
    gets only the indices stored with the elements. `shape` is for a target that has one line, all
    its elements in C order, and other axes than the source.
    """

    words: WordLayout
    lines: Tiling
    runs: Runs
    many: int
    target: int | Runs
    section: int
    axes: tuple[int, ...] | None
    places: bool
    scratch: int
    shape: tuple[int, ...] | None = None

    @property
    def is_last(self) -> bool:
        """Whether the target gets elements, not words."""
        return not isinstance(self.target, Runs)

    @property
    def sections(self) -> list[tuple[int, int, int]]:
        """For each step of a line: number of the group, first element, and one past the last."""
        found = []
        for group, (begin, end) in enumerate(
            itertools.pairwise(merge_begins(self.runs, self.many))
        ):
            found += [
                (group, low, min(low + self.section, end))
                for low in range(begin, end, self.section)
            ]
        return found

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers: runs, merged elements, scratch, and indices or samples."""
        words, steps = self.words, self.steps
        lines, tail = math.prod(self.lines.largest), math.prod(self.words.tail)
        most = min(self.section, self.runs.begins[-1])
        twice = min(2, steps)
        found = (
            Buffer(lines * self.loaded_length * tail, words.dtype, copies=twice),
            Buffer(lines * most * tail, words.dtype, copies=1 if self.places else twice),
            Buffer(self.scratch_length * tail, words.dtype),
        )
        if self.places:
            return (*found, Buffer(lines * most, np.dtype(np.int64), copies=twice))
        if isinstance(self.target, Runs):
            samples = lines * (most // self.target.distance) * tail
            return (*found, Buffer(samples, words.dtype, copies=twice))
        return found

    @property
    def loaded_length(self) -> int:
        """Largest number of elements of a line that a step loads."""
        length = self.runs.begins[-1]
        most = min(self.section, length) + count_excess(self.runs.distance, self.many)
        # Parts of runs begin at their offsets in pages.
        return min(most, length) + self.many * (self.page_length - 1)

    @property
    def scratch_length(self) -> int:
        """Words of memory in addition to the blocks."""
        # NumPy merges records, and allocates for half of them.
        return self.scratch if self.words.kind != "S" else self.loaded_length // 2 + 1

    @property
    def page_length(self) -> int:
        """Elements of a page, if parts of runs keep their offsets in pages of the file; otherwise 1."""
        nbytes = self.words.nbytes
        one = math.prod(self.lines.largest) == 1 and _PAGE % nbytes == 0
        one = one and self.words.kind != "S"  # whose runs are stored one after the other
        long = self.section * nbytes // self.many >= _LONG
        return _PAGE // nbytes if one and long else 1

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.lines) * len(self.sections)

    @property
    def table_bytes(self) -> int:
        """Bytes of the cuts of all lines."""
        groups = len(merge_begins(self.runs, self.many)) - 1
        rows = (len(self.sections) + groups) * math.prod(self.lines.shape)
        return 2 * rows * self.many * np.dtype(np.int64).itemsize

    @property
    def held_bytes(self) -> int:
        """Bytes of buffers and cuts."""
        return sum(buffer.nbytes for buffer in self.buffers) + self.table_bytes

    def make_phase(self, name: str, arrays: tuple[str, ...]) -> DeferredPhase:
        """Return the phase of a program."""
        lines = math.prod(self.lines.shape)
        length, distance = self.runs.begins[-1], self.runs.distance
        groups = len(merge_begins(self.runs, self.many)) - 1
        borders = len(self.sections) - groups
        more = borders * count_excess(distance, self.many)
        width = np.dtype(np.int64).itemsize if self.places else self.words.nbytes
        stored = lines * length * width
        at_once = {self.runs.array: math.prod(self.lines.largest) * self.many, self.runs.samples: 1}
        if isinstance(self.target, Runs):
            stored += lines * self.target.sample_begins[-1] * self.words.nbytes
            at_once |= {self.target.array: 1, self.target.samples: 1}
        else:
            at_once[self.target] = 1 if self.shape is None else max(2 * len(self.shape) - 1, 1)
        return DeferredPhase(
            name=name,
            steps=self.steps,
            held=self.held_bytes,
            loaded=lines * (length + more + self.runs.sample_begins[-1]) * self.words.nbytes,
            stored=stored,
            at_once=at_once,
            make=lambda opened: self.make_schedule(name, arrays, opened[self.runs.samples]),
        )

    def make_schedule(self, name: str, arrays: tuple[str, ...], samples: Any) -> Schedule:
        """Return the steps, from the samples on disk."""
        return Schedule(
            name=name,
            arrays=arrays,
            buffers=self.buffers,
            steps=self.steps,
            make=_MergeSteps(self, samples),
            kernels=(_MergeKernel(self),),
        )

    def cut(self, samples: Any) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
        """Yield each line with the `find_cuts` of each group of runs."""
        tail_key = tuple(slice(0, n) for n in self.words.tail)
        groups = [
            (group, [end for _, _, end in ones])
            for group, ones in itertools.groupby(self.sections, lambda one: one[0])
        ]
        for line in np.ndindex(self.lines.shape):
            front = tuple(slice(i, i + 1) for i in line)
            for group, ends in groups:
                first = group * self.many
                begins = self.runs.begins[first : first + self.many + 1]
                inside = self.runs.sample_begins[first : first + self.many + 1]
                lens = [b - a for a, b in itertools.pairwise(begins)]
                count = inside[-1] - inside[0]
                seen = np.empty((*(1 for _ in front), count, *self.words.tail), self.words.dtype)
                if count:
                    part = slice(inside[0], inside[-1])
                    samples.iread((*front, part, *tail_key), out=seen).wait()
                ranks = [0, *(end - begins[0] for end in ends)]
                words = self.words.flatten(seen)
                yield line, *find_cuts(words, lens, self.runs.distance, ranks, self.words)


def find_slab_ends(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """
    Return the beginnings of slabs of at most `most` elements, and the end of the last, in C order.

    Examples
    --------
    >>> find_slab_ends((2, 5, 3), 7)
    (0, 6, 12, 15, 21, 27, 30)
    """
    parts = cut_slabs(shape, most)
    sizes = (math.prod(p.stop - p.start for p in parts.key(k)) for k in range(len(parts)))
    return tuple(itertools.accumulate(sizes, initial=0))


def cut_boxes(
    shape: tuple[int, ...], low: int, high: int
) -> Iterator[tuple[tuple[slice, ...], slice, tuple[int, ...]]]:
    """
    Yield sections of an array that cover the range ``low:high`` of its elements in C order.

    Each comes with its part of the range (from 0) and its shape. The range is not empty. There are
    at most ``2 * len(shape) - 1`` sections.
    """
    at = low
    while at < high:
        # The largest section that begins here: some indices of an axis, and all following axes.
        axis, inner = len(shape) - 1, 1
        while axis > 0 and at % (inner * shape[axis]) == 0 and at + inner * shape[axis] <= high:
            inner *= shape[axis]
            axis -= 1
        index = np.unravel_index(at // inner, shape[: axis + 1]) if shape else ()
        front = [slice(int(n), int(n) + 1) for n in index]
        lengths = [*(1 for _ in front), *shape[axis + 1 :]]
        if front:
            first = front[-1].start
            lengths[axis] = min(shape[axis] - first, (high - at) // inner)
            front[-1] = slice(first, first + lengths[axis])
        box = (*front, *(slice(0, n) for n in shape[axis + 1 :]))
        end = at + math.prod(lengths)
        yield box, slice(at - low, end - low), tuple(lengths)
        at = end


def merge_begins(runs: Runs, many: int) -> tuple[int, ...]:
    """Return the beginnings of the runs after merging `many` at a time, and the end of the last one."""
    return (*runs.begins[:-1][::many], runs.begins[-1])


class _MergeSteps:
    """Steps: step `k` makes a section of some lines."""

    def __init__(self, merge: MergePass, samples: Any) -> None:
        self.merge, self.sections = merge, merge.sections
        #: For each line and section: parts of the runs that are loaded, and how many of their elements
        #: come before the section.
        self.parts: dict[tuple[int, ...], list[tuple[Any, Any, int]]] = {}
        self._reserved = _core.Reservation("cuts of sorted runs", merge.table_bytes)
        nbytes = merge.words.sample_bytes * merge.runs.sample_begins[-1]
        sections = [s - merge_begins(merge.runs, merge.many)[g] for g, s, _ in self.sections]
        with _core.Reservation("samples of sorted runs", nbytes):
            for line, least, most in merge.cut(samples):
                rows = self.parts.setdefault(line, [])
                for begin, end in zip(least[:-1], most[1:], strict=True):
                    rows.append((begin, end, sections[len(rows)] - int(begin.sum())))

    def __call__(self, number: int) -> ScheduleStep:
        merge, runs = self.merge, self.merge.runs
        tile, at = divmod(number, len(self.sections))
        box = merge.lines.key(tile)
        group, low, high = self.sections[at]
        begins = runs.begins[group * merge.many :]
        tail_key = tuple(slice(0, n) for n in merge.words.tail)
        loads, found, before, widest = [], [], [], 0
        for place in np.ndindex(*(part.stop - part.start for part in box)):
            line = tuple(part.start + i for part, i in zip(box, place, strict=True))
            front = tuple(slice(i, i + 1) for i in line)
            here = tuple(slice(i, i + 1) for i in place)
            least, most, skipped = self.parts[line][at]
            parts, reached = [], 0
            for run, first, last in zip(begins, least.tolist(), most.tolist(), strict=False):
                if last > first:
                    # The same offset in the page as in the file: the disk reads it without a copy.
                    reached += (runs.lead + run + first - reached) % merge.page_length
                    there = slice(reached, reached + last - first)
                    section = (*front, runs.find_range(run + first, run + last), *tail_key)
                    loads.append(Load(runs.array, section, 0, (*here, there, *tail_key)))
                    parts.append((reached, last - first))
                    reached = there.stop
            found.append(tuple(parts))
            before.append(skipped)
            widest = max(widest, reached)
        lines = tuple(part.stop - part.start for part in box)
        size, tail = (*lines, high - low), merge.words.tail
        scratch = (merge.scratch_length * math.prod(tail),)
        blocks = [Block(0, (*lines, widest, *tail)), Block(1, (*size, *tail)), Block(2, scratch)]
        key: tuple[slice, ...] = (*box, slice(low, high), *(() if merge.places else tail_key))
        stores = []
        if isinstance(merge.target, Runs):
            part = merge.target.find_samples(group, low, high)
            blocks.append(Block(3, (*lines, part.stop - part.start, *tail)))
            stores = [
                Store(merge.target.array, (*box, merge.target.find_range(low, high), *tail_key), 1)
            ]
            if part.stop > part.start:
                stores.append(Store(merge.target.samples, (*box, part, *tail_key), 3))
        else:
            if merge.places:
                blocks.append(Block(3, size))
            if merge.axes is not None:
                key = tuple(key[axis] for axis in np.argsort(merge.axes))
            block = 3 if merge.places else 1
            stores = [Store(merge.target, key, block, axes=merge.axes)]
            if merge.shape is not None:
                stores = [
                    Store(merge.target, box, block, (part,), None, lengths)
                    for box, part, lengths in cut_boxes(merge.shape, low, high)
                ]
        return ScheduleStep(
            blocks=tuple(blocks),
            loads=tuple(loads),
            stores=tuple(stores),
            kernel=0,
            arguments=(tuple(found), tuple(before)),
        )


@dataclass(frozen=True)
class _MergeKernel:
    """Kernel that merges the runs of each line."""

    merge: MergePass

    def __call__(
        self,
        blocks: Sequence[NDArray[Any]],
        parts: Sequence[Sequence[tuple[int, int]]],
        skipped: Sequence[int],
    ) -> None:
        merge, words = self.merge, self.merge.words
        runs, merged = words.flatten(blocks[0]), words.flatten(blocks[1])
        scratch = words.flatten(blocks[2])
        loaded, each = len(runs) // len(parts), len(merged) // len(parts)
        for n, one in enumerate(parts):
            if words.kind == "S":
                merge_records(runs, one, skipped[n], merged, words.nbytes)
                continue
            _core.merge_runs(
                runs[n * loaded : (n + 1) * loaded],
                one,
                skipped[n],
                merged[n * each : (n + 1) * each],
                scratch,
                words.width,
                words.kind,
                merge.is_last and not merge.places,
            )
        if merge.places:
            take_places(words, blocks[1], blocks[3])
        elif isinstance(merge.target, Runs):
            of_block = merge.target.take_samples(blocks[1], len(merge.lines.shape))
            np.copyto(blocks[3], of_block)


def take_places(words: WordLayout, block: NDArray[Any], out: NDArray[Any]) -> None:
    """Store the indices that are part of the words."""
    if words.width == 1:
        np.bitwise_and(block.view(np.int64), np.int64(0xFFFFFFFF), out=out)
    else:
        np.copyto(out, block[..., -1].view(np.int64))
