"""
Sorted runs on disk, and their merge.

Problem. Lines that do not fit in memory are sorted in pieces, the runs, and merged. A merge that
follows its input (whichever run gives the next element is read on) reads at places that depend on the
elements: its requests cannot be foreseen, its steps cannot be counted, and who was killed starts again.
Idea. The result is cut into sections of equal length, and for each of these the positions in all runs
between which its elements lie are found exactly, with a few looks at the runs on disk (`cuts`). Then
step `k` loads the part of each run, merges in memory, and stores section `k`: like any other step,
ahead and behind.

Elements on disk are words whose order as unsigned integers is NumPy's order of the elements (`Words`);
a run is compared, cut and merged without knowing what it holds. The last pass turns words back.

Tried on paper and left out: distribution into buckets by sampled splitters (samplesort). It moves the
same four times the array, and saves the merge (a quarter of the time of the sort of the runs). But
buckets differ in length as their samples are wrong, equal elements can make one of any length, so that
the memory needed is not known beforehand, and what is stored before the restart cannot be told by
numbers.

Invariants. Cuts follow from the runs on disk alone: after a restart steps are the same. Equal elements
come in the order of their runs, so in that of the array.

References: Aggarwal, Vitter, The input/output complexity of sorting and related problems, 1988; Varman,
Scheufler, Iyer, Ricard, Merging multiple lists on hierarchical-memory multiprocessors, 1991.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.jobs import Disk, Later
from outcore.schedule import Block, Buffer, Load, Schedule, Step, Store
from outcore.tiling import Tiling

__all__ = ["Merge", "Words", "cuts", "fan_in", "places_of"]

# Looks at each run, in a round that narrows where a cut lies.
_LOOKS = 64
# Elements for each run that are read as they are, once it is known that the cut lies between them.
_WINDOW = 4096
# What an operation on an array needs at least, with the share of the budget that is for operations.
_OPERATION = 8 * 4096


@dataclass(frozen=True, slots=True)
class Words:
    """
    How elements are stored in runs.

    Parameters
    ----------
    dtype
        Of the array that holds the runs.
    kind
        NumPy's letter of what they are, or ``"w"``: words that are compared as they are.
    width
        Unsigned integers for an element.
    tail
        Axes that an element has in the array.
    """

    dtype: np.dtype[Any]
    kind: str
    width: int = 1
    tail: tuple[int, ...] = ()

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> Words | None:
        """For sorting elements of a dtype; None if it has no order of words."""
        native = dtype.newbyteorder("=")
        sizes = {"b": (1,), "i": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "M": (8,)}
        if native.itemsize not in sizes.get({"u": "i", "m": "M"}.get(native.kind, native.kind), ()):
            return None
        return cls(native, native.kind, 1 + (native.kind == "c"))

    @classmethod
    def with_places(cls, dtype: np.dtype[Any], length: int) -> Words | None:
        """For sorting places by their elements, along an axis of this length."""
        of = cls.of(dtype)
        if of is None:
            return None
        word = np.dtype(np.uint64)
        if of.dtype.itemsize <= 4 and length <= 1 << 32:
            return cls(word, "w")
        width = 3 if of.dtype.itemsize == 16 else 2
        return cls(word, "w", width, (width,))

    @property
    def nbytes(self) -> int:
        """Of an element."""
        return self.dtype.itemsize * math.prod(self.tail)

    def flat(self, block: NDArray[Any]) -> NDArray[Any]:
        """The unsigned integers of a block."""
        parts = 2 if self.kind == "c" else 1
        return block.reshape(-1).view(f"u{self.dtype.itemsize // parts}")


def cuts(
    array: Any, line: tuple[int, ...], runs: Sequence[int], ranks: Sequence[int], words: Words
) -> NDArray[np.int64]:
    """
    Where to cut the runs of a line so that exactly so many of their elements lie before the cuts.

    Parameters
    ----------
    array
        Its last axis (but for what an element has) holds the runs, one after the other.
    line
        Index along the other axes.
    runs
        Where each run begins, and where the last one ends.
    ranks
        How many elements lie before; in ascending order.

    Returns
    -------
    numpy.ndarray
        Of shape ``(len(ranks), len(runs) - 1)``: positions along the axis.
    """
    starts, ends = np.array(runs[:-1], np.int64), np.array(runs[1:], np.int64)
    found = np.empty((len(ranks), len(starts)), np.int64)
    least, before = starts, 0
    for n, rank in enumerate(ranks):
        most = np.minimum(ends, least + (rank - before))
        if rank == runs[-1] - runs[0]:
            least = ends
        else:
            least = _cut(array, line, starts, least, most, rank, words)
        found[n], before = least, rank
    return found


def _cut(
    array: Any,
    line: tuple[int, ...],
    starts: NDArray[np.int64],
    least: NDArray[np.int64],
    most: NDArray[np.int64],
    rank: int,
    words: Words,
) -> NDArray[np.int64]:
    front = tuple(slice(i, i + 1) for i in line)
    behind = tuple(slice(0, n) for n in words.tail)
    while True:
        left = int((most - least).sum())
        if not left:
            return least
        few = left <= _WINDOW * len(starts)
        distance = 1 if few else -(-left // (_LOOKS * len(starts)))
        requests = []
        with _core.Reservation("looks at sorted runs", 2 * (left // distance + 1) * words.nbytes):
            for low, high in zip(least, most, strict=True):
                first = int(low) + (distance - 1) // 2
                if first < high:
                    key = (*front, slice(first, int(high), distance), *behind)
                    requests.append(array.iread(key))
            seen = [words.flat(np.ascontiguousarray(request.wait())) for request in requests]
            ranges = list(zip((least - starts).tolist(), (most - starts).tolist(), strict=True))
            found = _core.narrow_cuts(
                ranges, rank, distance, np.concatenate(seen), words.width, words.kind
            )
        least, most = (np.array(one, np.int64) + starts for one in zip(*found, strict=True))


def fan_in(
    runs: int, elements: int, section: int, beside: int, nbytes: int, room: int, disk: Disk
) -> int:
    """
    How many runs to merge at a time.

    All of them, in one pass; or fewer, in several passes, if requests would become so short otherwise
    that it takes longer, or so many that their operations do not fit in memory.

    Parameters
    ----------
    runs
        Of a line.
    elements
        Of all lines together.
    section
        Elements of the result that a step makes.
    beside
        Lines that it makes them of.
    nbytes
        Of an element.
    room
        Bytes for buffers.
    disk
        What requests and bytes cost.
    """
    most = max(2, min(room // _OPERATION // beside, section // beside))

    def seconds(passes: int, many: int) -> float:
        return passes * disk.seconds(-(-elements // section) * many, 2 * elements * nbytes)

    best, found = math.inf, 2
    for passes in range(1, max(runs, 2).bit_length() + 1):
        many = max(2, _root(runs, passes))
        if many <= most and (price := seconds(passes, many)) < best:
            best, found = price, many
    return found


def _root(number: int, degree: int) -> int:
    """The smallest integer whose power is not below a number."""
    root = max(1, round(math.pow(number, 1 / degree)) - 1)
    while root**degree < number:
        root += 1
    return root


@dataclass(frozen=True, slots=True)
class Merge:
    """
    One pass: groups of runs become runs.

    Parameters
    ----------
    words
        How elements are stored.
    lines
        Tiles of lines that are merged together: the array without its last axis.
    runs
        Where runs begin along the last axis, and where the last one ends.
    many
        How many make one.
    source, target
        Numbers of the arrays.
    section
        Elements of the result that a step makes of each line.
    axes
        For `Store.axes`; None if the target has the axes of the source.
    places
        The target gets the places that are stored with the elements, and nothing else.
    last
        It gets elements, not words.
    scratch
        Words of memory for the merge.
    """

    words: Words
    lines: Tiling
    runs: tuple[int, ...]
    many: int
    source: int
    target: int
    section: int
    axes: tuple[int, ...] | None
    places: bool
    last: bool
    scratch: int

    @property
    def merged(self) -> tuple[int, ...]:
        """Where the runs begin that come of it, and where the last one ends."""
        return (*self.runs[:-1][:: self.many], self.runs[-1])

    @property
    def sections(self) -> list[tuple[int, int, int]]:
        """Of each step for a line: number of the group, first element and one past the last."""
        found = []
        for group, (begin, end) in enumerate(itertools.pairwise(self.merged)):
            found += [
                (group, low, min(low + self.section, end))
                for low in range(begin, end, self.section)
            ]
        return found

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Runs, what comes of them, scratch, and places."""
        words, steps = self.words, self.steps
        most = math.prod(self.lines.largest) * min(self.section, self.runs[-1])
        elements = most * math.prod(words.tail)
        twice = min(2, steps)
        found = (
            Buffer(elements, words.dtype, copies=twice),
            Buffer(elements, words.dtype, copies=1 if self.places else twice),
            Buffer(self.scratch * math.prod(words.tail), words.dtype),
        )
        return (*found, Buffer(most, np.dtype(np.int64), copies=twice)) if self.places else found

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.lines) * len(self.sections)

    def phase(self, name: str, arrays: tuple[str, ...]) -> Later:
        """As a phase of a program."""
        elements = math.prod(self.lines.shape) * self.runs[-1]
        width = np.dtype(np.int64).itemsize if self.places else self.words.nbytes
        loads = math.prod(self.lines.largest) * self.many
        return Later(
            name=name,
            steps=self.steps,
            held=sum(buffer.nbytes for buffer in self.buffers),
            loaded=elements * self.words.nbytes,
            stored=elements * width,
            at_once={self.source: loads, self.target: 1},
            make=lambda opened: self.schedule(name, arrays, opened[self.source]),
        )

    def schedule(self, name: str, arrays: tuple[str, ...], source: Any) -> Schedule:
        """The steps, from the runs as they are on disk."""
        sections = self.sections
        cut: dict[tuple[int, ...], list[tuple[Any, Any]]] = {}
        inside = [
            (group, list(ones)) for group, ones in itertools.groupby(sections, lambda s: s[0])
        ]
        for line in np.ndindex(self.lines.shape):
            rows = []
            for group, ones in inside:
                runs = self.runs[group * self.many : (group + 1) * self.many + 1]
                ranks = [end - runs[0] for _, _, end in ones]
                found = cuts(source, line, runs, ranks, self.words)
                rows += list(itertools.pairwise([np.array(runs[:-1]), *found]))
            cut[line] = rows
        return Schedule(
            name=name,
            arrays=arrays,
            buffers=self.buffers,
            steps=self.steps,
            make=_Steps(self, sections, cut),
            kernels=(_Kernel(self),),
        )


class _Steps:
    """Step `k` makes a section of some lines."""

    def __init__(self, merge: Merge, sections: Any, cut: Any) -> None:
        self.merge, self.sections, self.cut = merge, sections, cut

    def __call__(self, number: int) -> Step:
        merge = self.merge
        tile, at = divmod(number, len(self.sections))
        box = merge.lines.key(tile)
        _, low, high = self.sections[at]
        behind = tuple(slice(0, n) for n in merge.words.tail)
        loads, lens = [], []
        for place in np.ndindex(*(part.stop - part.start for part in box)):
            line = tuple(part.start + i for part, i in zip(box, place, strict=True))
            front = tuple(slice(i, i + 1) for i in line)
            here = tuple(slice(i, i + 1) for i in place)
            begin, end = self.cut[line][at]
            lens.append(tuple((end - begin).tolist()))
            reached = 0
            for first, last in zip(begin.tolist(), end.tolist(), strict=True):
                if last > first:
                    there = slice(reached, reached + last - first)
                    section = (*front, slice(first, last), *behind)
                    loads.append(Load(merge.source, section, 0, (*here, there, *behind)))
                    reached = there.stop
        size = (*(part.stop - part.start for part in box), high - low)
        words = (*size, *merge.words.tail)
        scratch = (merge.scratch * math.prod(merge.words.tail),)
        blocks = [Block(0, words), Block(1, words), Block(2, scratch)]
        if merge.places:
            blocks.append(Block(3, size))
        key = (*box, slice(low, high))
        if merge.axes is not None:
            key = tuple(key[axis] for axis in np.argsort(merge.axes))
        elif not merge.last:
            key = (*key, *behind)
        stored = Store(merge.target, key, 3 if merge.places else 1, axes=merge.axes)
        return Step(
            blocks=tuple(blocks),
            loads=tuple(loads),
            stores=(stored,),
            kernel=0,
            arguments=(tuple(lens),),
        )


class _Kernel:
    """Merges the runs of each line."""

    def __init__(self, merge: Merge) -> None:
        self.merge = merge

    def __call__(self, blocks: Sequence[NDArray[Any]], lens: Sequence[Sequence[int]]) -> None:
        merge, words = self.merge, self.merge.words
        runs, merged = words.flat(blocks[0]), words.flat(blocks[1])
        scratch = words.flat(blocks[2])
        each = len(runs) // max(len(lens), 1)
        for n, one in enumerate(lens):
            part = slice(n * each, (n + 1) * each)
            _core.merge_runs(
                runs[part],
                [size for size in one if size] or [0],
                merged[part],
                scratch,
                words.width,
                words.kind,
                merge.last and not merge.places,
            )
        if merge.places:
            places_of(words, blocks[1], blocks[3])


def places_of(words: Words, block: NDArray[Any], out: NDArray[Any]) -> None:
    """The places that are stored with elements."""
    if words.width == 1:
        np.bitwise_and(block.view(np.int64), np.int64(0xFFFFFFFF), out=out)
    else:
        np.copyto(out, block[..., -1].view(np.int64))
