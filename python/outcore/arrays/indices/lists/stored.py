"""
Index lists larger than memory: stored in a file, and divided into ranges of elements.

Problem: a list of indices does not fit memory, and neither do the data derived from it for reading or
writing in the order of the file. If the list were cut in its own order, each part would touch the whole
file: each page, or chunk, would be read, decoded and encoded once per part.

Approach: the list is stored in a scratch file (`StoredList`). Elements are counted in C order along the
indexed axes, and cut into bins that begin at chunks or shards. The number of indices in each bin
(`find_cuts`) determines how many bins form a *range* whose indices fit memory (`cut_ranges`). One pass
over the list collects the indices of each range (`Division`), each with its position in the list. A
range is then a separate access to a part of the file that no other range touches. ::

    list        7 0 7 3 9 1 7 ...            in any order
    bins        0..3 | 4..7 | 8..11          borders of chunks
    ranges      0..7: (7,0) (0,1) (7,2) (3,3) (1,5) (7,6)      8..11: (9,4)      (element, position)

A bin with more indices than fit memory (perhaps all of them for one element) is a range of several
*steps*, in the order of the list; a bin that is too wide to stay in memory for that is first cut into
narrower ones. With several ranks, the cuts depend on the counts of all ranks, so that all of them find
the same ranges, and a step takes the indices of the ranks one after another.

Invariants: an element is in exactly one range. Within a range, indices keep the order of the list, and
with several ranks the order of the ranks; steps follow that order. Therefore the last value, and each
floating-point sum, is that of the whole list, wherever it was cut. Owners' shares end at borders of
chunks: no chunk has two owners.

Source: out-of-core distribution of No and Choudhary, "Techniques to provide run-time support for
solving irregular problems", section 3.1.1 (indices reordered by destination), with data on disk as in
Thakur et al., "PASSION Runtime Library for Parallel I/O", section 4.4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.masks import INDEX
from outcore.formats.layout import Chunked, ShardSource, Strided
from outcore.formats.scratch import ScratchFile

__all__ = [
    "DIVIDED",
    "PAIR",
    "BinCounts",
    "Division",
    "ElementBins",
    "ListLimits",
    "Range",
    "StoredList",
    "count_slab",
    "cut_ranges",
    "find_cuts",
    "find_unit",
    "iterate_slabs",
]

List = NDArray[np.int64]

#: Bytes of an index and its position.
PAIR = 2 * INDEX
# Bytes of an index while a slab is counted and divided: the index, its range, the order, the pair.
DIVIDED = 64
# Maximum number of bins.
_BINS = 1 << 16
# Number of parts of a bin that is cut further.
_FINER = 64


def iterate_slabs(points: IndexPoints, most: int) -> Iterator[List]:
    """
    Yield numbers of the selected elements along the indexed axes, at most `most` at a time.

    They count in C order, are in the order of the points, and none is out of range
    (`SectionError`).
    """
    if points.mask is not None:
        flat = points.mask.list_indices()
        windows = iter((flat,)) if flat is not None else points.mask.windows()
        for window in windows:
            for low in range(0, window.size, most):
                yield window[low : low + most]
        return
    points.check(1 << 16)
    for box in points.boxes(tuple((0, n) for n in points.points), most):
        yield points.flat(points.get_lists(box))


class StoredList:
    """
    Numbers of elements (all smaller than `elements`) in the order of a list, in a scratch file.

    `near` is the path of the array: see `outcore.formats.scratch.scratch_folder`.
    """

    def __init__(self, near: str, number: int, elements: int) -> None:
        self.number, self.elements = number, elements
        self._near = near
        self._file = ScratchFile([near])
        self._at = self._file.take(number * INDEX)
        self._filled = 0

    @property
    def nbytes(self) -> int:
        """Bytes of disk space that the list uses."""
        return self._file.nbytes

    def fill(self, slabs: Iterator[List]) -> None:
        """
        Write the list.

        Raise `ValueError` if there are more or fewer indices than declared, or if one is out of
        range, because the source has changed in the meantime.
        """
        for slab in slabs:
            end = self._filled + slab.size
            if end > self.number or not _is_inside(slab, self.elements):
                break
            self._file.write(np.ascontiguousarray(slab), self._at + self._filled * INDEX)
            self._filled = end
        else:
            if self._filled == self.number:
                return
        raise ValueError(
            f"a list of {self.number} indices changed while it was read, after {self._filled} of them"
        )

    def slabs(self, most: int) -> Iterator[tuple[int, List]]:
        """Yield parts of at most `most` indices: the position of the first one, and the numbers."""
        for low in range(0, self.number, most):
            slab = np.empty(min(most, self.number - low), np.int64)
            self._file.read(slab, self._at + low * INDEX)
            yield low, slab

    def count(self, bins: ElementBins, room: int) -> List:
        """Return the number of indices in each bin, using at most `room` bytes of memory."""
        counts = np.zeros(bins.number, np.int64)
        for _, slab in self.slabs(count_slab(room)):
            counts += bins.count(slab)
        return counts

    def beside(self) -> ScratchFile:
        """Create another scratch file in the same folder."""
        return ScratchFile([self._near])


def count_slab(room: int) -> int:
    """Return the number of indices that can be divided at once with `room` bytes of memory."""
    return max(room // DIVIDED, 1)


def _is_inside(slab: List, elements: int) -> bool:
    return not slab.size or (int(slab.min()) >= 0 and int(slab.max()) < elements)


# Cuts


def find_unit(points: IndexPoints, layout: Chunked | Strided) -> int:
    """
    Return the number of elements along the indexed axes after which a chunk, or a shard, ends.

    Ranges and file domains begin at multiples, so that no chunk has two owners.
    """
    if not isinstance(layout, Chunked):
        return 1
    along = points.axes[0]
    thick = layout.chunks[along]
    if isinstance(layout.source, ShardSource):
        thick *= layout.source.per_shard[along]
    return max(thick * math.prod(points.shape[d] for d in points.axes[1:]), 1)


@dataclass(frozen=True)
class ElementBins:
    """Adjacent stretches of elements."""

    #: First element of each bin, and the end of the last.
    edges: List
    #: Number of elements of each bin, if all but the last are equal; else 0.
    width: int = 0

    @property
    def number(self) -> int:
        """Number of bins."""
        return self.edges.size - 1

    def count(self, flat: List) -> List:
        """Return the number of these elements in each bin."""
        if self.width:
            return _core.count_bins(flat, self.width, self.number)
        places = np.searchsorted(self.edges, flat, side="right") - 1
        return np.bincount(places, minlength=self.number).astype(np.int64, copy=False)

    @classmethod
    def equal(cls, elements: int, unit: int, most: int) -> ElementBins:
        """Return at most `most` bins of equal width that begin at multiples of `unit`."""
        units = max(-(-elements // unit), 1)
        width = unit * -(-units // most)
        number = max(-(-elements // width), 1)
        edges = np.arange(number + 1, dtype=np.int64) * width
        edges[-1] = max(elements, 0)
        return cls(edges, width)

    def finer(self, which: NDArray[np.bool], unit: int, widest: int) -> ElementBins:
        """Return bins with some of them cut: to `widest` elements, or to as few as can be counted."""
        edges: list[int] = []
        for k, (low, high) in enumerate(itertools.pairwise(self.edges.tolist())):
            step = max(widest, -(-(high - low) // _FINER))
            step = step // unit * unit or step
            edges.extend(range(low, high, step) if which[k] else (low,))
        return ElementBins(np.array([*edges, int(self.edges[-1])], np.int64))


@dataclass(frozen=True)
class ListLimits:
    """Amounts that fit memory at once."""

    #: For each rank, the number of indices that it may have for one owner.
    each: NDArray[np.int64]
    #: Number of indices of all ranks that an owner accepts.
    owner: int
    #: Number of elements that an owner can keep in memory while their indices arrive in steps.
    widest: int

    @classmethod
    def of(cls, most: Sequence[int], owners: int, widest: int) -> ListLimits:
        """Return the limits for the number of indices that fit each rank, and a number of owners."""
        room = np.array(most, np.int64)
        return cls(np.maximum(room // owners, 1), max(int(room.min()), 1), max(widest, 1))

    def within(self, others: ListLimits, worth: int = 8) -> bool:
        """Return whether these limits are within the others without being much smaller."""
        smaller = bool((self.each <= others.each).all()) and self.owner <= others.owner
        return smaller and self.widest <= others.widest and worth * self.owner >= others.owner

    def refuse(self, counts: NDArray[np.int64]) -> NDArray[np.bool]:
        """Return which bins have too many indices, for `counts` of shape (ranks, bins)."""
        too_many = np.vstack([counts > self.each[:, None], counts.sum(axis=0) > self.owner])
        found: NDArray[np.bool] = np.logical_or.reduce(too_many, axis=0)
        return found


@dataclass(frozen=True)
class BinCounts:
    """Bins, and the number of indices of each rank in each: (ranks, bins)."""

    bins: ElementBins
    counts: NDArray[np.int64]
    #: Number of elements after which a chunk, or a shard, ends.
    unit: int


def find_cuts(
    elements: int,
    unit: int,
    limits: ListLimits,
    bins: int,
    count: Callable[[ElementBins], NDArray[np.int64]],
) -> BinCounts:
    """
    Count indices in bins, using narrow bins where there are more indices than fit memory.

    The first count has at most `bins` bins; `unit` is the number of elements after which a chunk
    ends. `count` returns the indices of each rank in bins, (ranks, bins), and is collective with
    several ranks.
    """
    found = ElementBins.equal(elements, unit, max(min(bins, _BINS), 1))
    while True:
        counts = count(found)
        heavy = limits.refuse(counts) & (np.diff(found.edges) > limits.widest)
        if not heavy.any():
            return BinCounts(found, counts, unit)
        found = found.finer(heavy, unit, limits.widest)


@dataclass(frozen=True)
class Range:
    """Elements that are read or written by one access."""

    low: int
    high: int
    #: For each step and each rank, the start and end of its indices in this range: (steps, ranks,
    #: 2).
    steps: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of indices of each rank in this range."""
        found: NDArray[np.int64] = self.steps[-1, :, 1]
        return found


def cut_ranges(cuts: BinCounts, limits: ListLimits, owners: int) -> list[list[Range]]:
    """
    Join bins into ranges: for each owner in ascending order, together all elements.

    `cuts` are identical on all ranks. Each owner gets a share with about equally many indices, or
    none.
    """
    edges, counts = cuts.bins.edges, cuts.counts
    sums = counts.sum(axis=0)
    # For each rank, and for all together: the number of indices before each bin, and the limit.
    below = np.zeros((len(counts) + 1, edges.size), np.int64)
    np.cumsum(np.vstack([counts, sums]), axis=1, out=below[:, 1:])
    most = [*limits.each.tolist(), limits.owner]
    shares: list[list[Range]] = []
    for begin, end in itertools.pairwise(_share_bins(cuts, sums, owners)):
        ranges: list[Range] = []
        k = begin
        while k < end:
            fits = min(
                int(np.searchsorted(one, one[k] + n, side="right")) - 1
                for one, n in zip(below, most, strict=True)
            )
            following = min(max(fits, k + 1), end)
            taken = below[:-1, following] - below[:-1, k]
            ranges.append(Range(int(edges[k]), int(edges[following]), _cut_steps(taken, limits)))
            k = following
        shares.append(ranges)
    return shares


def _share_bins(cuts: BinCounts, sums: NDArray[np.int64], owners: int) -> list[int]:
    """Return the first bin of each owner, and the end, at borders of chunks."""
    edges, number = cuts.bins.edges, cuts.bins.number
    borders = np.flatnonzero(edges[:-1] % cuts.unit == 0)
    below = np.concatenate(([0], np.cumsum(sums)))
    total = int(below[-1])
    found = [0]
    for owner in range(1, owners):
        # The border with the nearest number of indices before it.
        if total:
            far = np.abs(below[borders] - total * owner // owners)
        else:
            far = np.abs(borders - number * owner // owners)
        found.append(max(int(borders[far.argmin()]), found[-1]))
    return [*found, number]


def _cut_steps(counts: NDArray[np.int64], limits: ListLimits) -> NDArray[np.int64]:
    """Return intervals of the indices of all ranks, one rank after another, that fit all limits."""
    done, steps = np.zeros_like(counts), []
    while True:
        begin, room = done.copy(), limits.owner
        for rank, number in enumerate(counts.tolist()):
            more = min(number - int(done[rank]), int(limits.each[rank]), room)
            done[rank] += more
            room -= more
            if done[rank] < number:
                break  # indices of later ranks come later
        steps.append(np.stack([begin, done], axis=1))
        if (done == counts).all():
            return np.stack(steps)


class Division:
    """
    A list divided into ranges: their indices and positions, in a scratch file.

    `ranges` are ascending and together have all elements. `rank` is the one whose counts in them
    are those of the list. `room` is the memory for the division in bytes.
    """

    def __init__(self, stored: StoredList, ranges: Sequence[Range], rank: int, room: int) -> None:
        counts = np.array([one.counts[rank] for one in ranges], np.int64)
        self._lows = np.array([one.low for one in ranges], np.int64)
        self._first = np.concatenate(([0], np.cumsum(counts)))
        self._stored = stored
        self._file = stored.beside()
        self._at = self._file.take(stored.number * PAIR)

        def pairs(first: int, slab: List) -> NDArray[np.int64]:
            return np.stack([slab, np.arange(first, first + slab.size)], axis=1)

        self._divide(self._file, self._at, PAIR, count_slab(room), pairs)

    def _divide(
        self,
        file: ScratchFile,
        at: int,
        row: int,
        most: int,
        rows_of: Callable[[int, List], NDArray[Any]],
    ) -> None:
        """Collect the rows of each range; `rows_of` returns the rows of a part of the list."""
        word = np.uint16 if self._lows.size < 1 << 16 else np.uint32
        filled = self._first[:-1].copy()
        for first, slab in self._stored.slabs(most):
            part = (np.searchsorted(self._lows, slab, side="right") - 1).astype(word)
            rows = rows_of(first, slab)[np.argsort(part, kind="stable")]
            ends = np.cumsum(np.bincount(part, minlength=self._lows.size))
            for number in np.unique(part).tolist():
                begin = int(ends[number - 1]) if number else 0
                some = rows[begin : int(ends[number])]
                file.write(some, at + int(filled[number]) * row)
                filled[number] += len(some)
        assert (filled == self._first[1:]).all(), (
            "the indices of ranges are those that were counted"
        )

    def spread(
        self, row: int, most: int, rows_of: Callable[[int, int], NDArray[Any]]
    ) -> Callable[[int, int, int, NDArray[Any]], None]:
        """
        Collect values in the order of the indices, in a separate scratch file.

        `rows_of` returns the values of positions `begin` to `end`; `row` is the size of a value in
        bytes, and `most` of them are in memory at once. Return a function that reads the values of
        indices `begin` to `end` of a range into an array.
        """
        file = self._stored.beside()
        at = file.take(self._stored.number * row)
        self._divide(file, at, row, most, lambda first, slab: rows_of(first, first + slab.size))

        def read(number: int, begin: int, end: int, out: NDArray[Any]) -> None:
            assert len(out) == end - begin, "a row for each index"
            file.read(out, at + (int(self._first[number]) + begin) * row)

        return read

    @property
    def nbytes(self) -> int:
        """Bytes of disk space that the division uses."""
        return self._file.nbytes

    def read(self, number: int, begin: int, end: int) -> tuple[List, List]:
        """Return indices `begin` to `end` of a range, in list order, and their positions in the list."""
        pairs = np.empty((end - begin, 2), np.int64)
        self._file.read(pairs, self._at + (int(self._first[number]) + begin) * PAIR)
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
