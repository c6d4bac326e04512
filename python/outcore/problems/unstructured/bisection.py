"""
Recursive coordinate bisection of points, in memory or on disk.

Problem: a set of points is halved across its longest side, and each half again, for many levels; the
sets of the upper levels are larger than memory.
Approach: all sets of a level are halved together. The table of parts identifies the set of a point (by
the first part of the set), so a level needs a few passes over the file: counting finds the cuts, then
one pass moves the points and measures the boxes of their new sets. If sets fit in memory, one or several
at a time, and this needs fewer passes, all levels below are computed there.
Invariants: both ways give the same sets: sides are chosen by the same box, and cuts by the same rule
(`cuts`). Ties go by index. Equal input gives equal parts, for any budget and number of ranks.

Reference: PASSION report, section 4.4.1; Berger, Bokhari (1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.curves import make_ordered_keys
from outcore.problems.unstructured.cuts import (
    Equal,
    KeyCuts,
    KeyedElements,
    Ties,
    count_cuts_before,
    find_cuts,
)
from outcore.problems.unstructured.indirect import scatter, split_rows
from outcore.problems.unstructured.placing import Placing
from outcore.problems.unstructured.points import WeightedPoints
from outcore.problems.unstructured.tables import Table, make_budget_error, read_slabs

__all__ = ["bisect"]

#: Number of passes for a level of large sets: count twice, collect, move.
_PASSES = 4
#: Bytes per point during a sort in memory, in addition to the point.
_SORTED = 72


def bisect(points: WeightedPoints, parts: int, within: int, table: Table, memory: int) -> None:
    """
    Divide points into parts of equal weight, and store the part of each in `table` (int32 zeros).

    A set is first divided into sets of `within` parts, before any of these is divided; `within` divides
    `parts`, and 1 halves down to single parts. `memory` is the number of bytes for sets, counters and
    points in memory, in addition to the slabs of a pass.
    """
    # Sets and their halves, and one number for each part.
    held = 16 * (2 * points.axes + 8) * min(parts, points.count) + 8 * parts
    if held > memory // 2:
        raise make_budget_error(f"a partition into {parts} parts", 4 * held, "make fewer parts")
    sets = _Sets.make_whole(points, parts)
    while (active := sets.select_active()).first.size:
        memory_left = memory - held
        fits = memory_left // (points.each + _SORTED)
        if points.share.size > 1:
            if active.first.size >= points.share.size and int(active.number.max()) <= fits:
                _finish_together(points, active, within, table)
                return
            sets = _halve_level(points, active, within, table, memory_left)
            continue
        batches = _make_batches(active.number, fits)
        depth = math.ceil(math.log2(int(active.parts.max())))
        if batches is not None and len(batches) <= _PASSES * depth:
            for batch in batches:
                _finish(points, active.select(batch), within, table)
            return
        sets = _halve_level(points, active, within, table, memory_left)


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets of points, identified by their first part: number of parts, of points, weight, box."""

    first: NDArray[np.int64]
    parts: NDArray[np.int64]
    number: NDArray[np.int64]
    weight: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def make_whole(cls, points: WeightedPoints, parts: int) -> _Sets:
        """Return a single set with all points."""
        return cls(
            np.zeros(1, np.int64),
            np.array([parts]),
            np.array([points.count]),
            np.array([points.weight]),
            points.low[None],
            points.high[None],
        )

    def select(self, which: NDArray[np.int64]) -> _Sets:
        """Return some of the sets."""
        return _Sets(
            self.first[which],
            self.parts[which],
            self.number[which],
            self.weight[which],
            self.low[which],
            self.high[which],
        )

    def select_active(self) -> _Sets:
        """Return the sets that are not yet single parts."""
        return self.select(np.flatnonzero((self.parts > 1) & (self.number > 0)))


def _count_before(parts: int, within: int) -> int:
    """Return how many parts are before the cut."""
    return parts // within // 2 * within if parts > within else parts // 2


def _find_longest(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the longest side of each box, or the first of several."""
    # Halve first: the difference could be infinite.
    found: NDArray[np.int64] = np.argmax(high / 2 - low / 2, axis=-1)
    return found


# Passes over the file


def _halve_level(
    points: WeightedPoints, sets: _Sets, within: int, table: Table, memory: int
) -> _Sets:
    """Halve each of some sets, and return the halves."""
    count = sets.first.size
    axis = _find_longest(sets.low, sets.high)
    rows = np.arange(count)
    left = np.array([_count_before(int(parts), within) for parts in sets.parts])
    shares = zip(sets.weight, left, sets.parts, strict=True)
    twice = np.array([2 * int(w) * int(k) // int(of) for w, k, of in shares], np.int64)

    def compute_keys(one: _SlabOfSets) -> KeyedElements:
        return KeyedElements(
            one.node, make_ordered_keys(one.x[one.which, axis[one.node]]), one.weight
        )

    def passes() -> Iterator[KeyedElements]:
        return (compute_keys(one) for one in _walk(points, sets, table))

    def equal() -> Equal:
        for some in passes():
            tied = np.flatnonzero(some.key == cuts.key[some.node])
            yield some.node[tied], None if some.weight is None else some.weight[tied]

    cuts = find_cuts(
        passes,
        rows,
        twice,
        make_ordered_keys(sets.low[rows, axis]),
        make_ordered_keys(sets.high[rows, axis]),
        sets.weight,
        memory,
        points.share,
        weighted=points.weighted,
    )
    ties = Ties(cuts.below, equal, points.share)
    halves = _Sets(
        np.stack([sets.first, sets.first + left], axis=1).ravel(),
        np.stack([left, sets.parts - left], axis=1).ravel(),
        np.zeros(2 * count, np.int64),
        np.zeros(2 * count, np.int64),
        np.full((2 * count, points.axes), np.inf),
        np.full((2 * count, points.axes), -np.inf),
    )
    for one in _walk(points, sets, table):
        half = 2 * one.node + _is_behind(compute_keys(one), cuts, ties)
        moved = one.part.copy()
        moved[one.which] = halves.first[half]
        table[one.low : one.low + moved.size] = moved
        np.add.at(halves.number, half, 1)
        np.add.at(halves.weight, half, 1 if one.weight is None else one.weight)
        for a in range(points.axes):
            own = one.x[one.which, a]
            np.minimum.at(halves.low[:, a], half, own)
            np.maximum.at(halves.high[:, a], half, own)
    low, high = points.share.box(halves.low, halves.high)
    number, weight = (points.share.total(one) for one in (halves.number, halves.weight))
    return _Sets(halves.first, halves.parts, number, weight, low, high)


@dataclass(frozen=True, slots=True)
class _SlabOfSets:
    """
    Slab of points: first index, parts, positions of points in a set, their sets and weights,
    coordinates.
    """

    low: int
    part: NDArray[np.int32]
    which: NDArray[np.int64]
    node: NDArray[np.int64]
    weight: NDArray[np.int64] | None
    x: NDArray[np.float64]


def _walk(points: WeightedPoints, sets: _Sets, table: Table) -> Iterator[_SlabOfSets]:
    """Yield the points of this rank that are in some sets, slab by slab."""
    number_of = np.full(int((sets.first + sets.parts).max()), -1, np.int64)
    number_of[sets.first] = np.arange(sets.first.size)
    owners = read_slabs(table, points.rows, points.begin, points.end)
    for low, _, x, weight in points.slabs():
        part = next(owners)[2]
        known = part < number_of.size
        node = np.where(known, number_of[np.where(known, part, 0)], -1)
        which = np.flatnonzero(node >= 0)
        yield _SlabOfSets(
            low, part, which, node[which], None if weight is None else weight[which], x
        )


def _is_behind(some: KeyedElements, cuts: KeyCuts, ties: Ties) -> NDArray[np.bool_]:
    cut = cuts.key[some.node]
    found = some.key > cut
    tied = np.flatnonzero(some.key == cut)
    weight = None if some.weight is None else some.weight[tied]
    node = some.node[tied]
    found[tied] = ties.middles(node, weight) > cuts.twice[node]
    return found


# In memory


def _make_batches(numbers: NDArray[np.int64], room: int) -> list[NDArray[np.int64]] | None:
    """Group sets that are in memory together; return None if one does not fit."""
    if int(numbers.max()) > room:
        return None
    found: list[list[int]] = [[]]
    held = 0
    for n, number in enumerate(numbers):
        if held + int(number) > room:
            found.append([])
            held = 0
        found[-1].append(n)
        held += int(number)
    return [np.array(batch, np.int64) for batch in found]


def _finish(points: WeightedPoints, sets: _Sets, within: int, table: Table) -> None:
    """Divide some sets completely, loaded into memory together."""
    total = int(sets.number.sum())
    which = np.empty(total, np.int64)
    node = np.empty(total, np.int32)
    x = np.empty((total, points.axes))
    weights = np.empty(total, np.int64) if points.weighted else None
    filled = 0
    for one in _walk(points, sets, table):
        to = slice(filled, filled + one.which.size)
        which[to], node[to], x[to] = one.which + one.low, one.node, one.x[one.which]
        if weights is not None and one.weight is not None:
            weights[to] = one.weight
        filled = to.stop
    order = np.argsort(node, kind="stable")
    begins = np.searchsorted(node[order], np.arange(sets.first.size + 1))
    part = node  # reuses the memory: each set reads only its own entries
    for n in range(sets.first.size):
        mine = order[begins[n] : begins[n + 1]]
        _divide(x, weights, mine, int(sets.first[n]), int(sets.parts[n]), within, part)
    for low in range(0, points.count, points.rows):
        begin, end = np.searchsorted(which, (low, low + points.rows))
        if begin < end:
            slab = np.array(table[low : min(low + points.rows, points.count)])
            slab[which[begin:end] - low] = part[begin:end]
            table[low : low + slab.size] = slab


def _finish_together(points: WeightedPoints, sets: _Sets, within: int, table: Table) -> None:
    """Divide some sets completely; each rank gets consecutive whole sets of similar total size."""
    share, count = points.share, sets.first.size
    mine = np.zeros(count, np.int64)
    for one in _walk(points, sets, table):
        mine += np.bincount(one.node, minlength=count)
    placing = Placing(mine, share)
    begins, total = placing.begins, int(placing.begins[-1])
    index, at = share.table((total,), np.int64), share.table((total, points.axes), np.float64)
    heavy = share.table((total,), np.int64) if points.weighted else None
    for one in _walk(points, sets, table):
        order, place = placing.places(one.node)
        for some in split_rows(place.size, 16 * points.axes + 32):
            rows = order[some]
            scatter(index, place[some], one.which[rows] + one.low)
            scatter(at, place[some], one.x[one.which[rows]])
            if heavy is not None and one.weight is not None:
                scatter(heavy, place[some], one.weight[rows])
    share.barrier()
    owner = (begins[:-1] + begins[1:]) * share.size // max(2 * total, 1)
    for n in np.flatnonzero(owner == share.ranks.rank):
        some = slice(int(begins[n]), int(begins[n + 1]))
        part = np.empty(some.stop - some.start, np.int32)
        weights, which = None if heavy is None else heavy[some], index[some]
        whole = np.arange(part.size)
        _divide(at[some], weights, whole, int(sets.first[n]), int(sets.parts[n]), within, part)
        for piece in split_rows(part.size):
            scatter(table, which[piece], part[piece])


def _divide(
    x: NDArray[np.float64],
    weights: NDArray[np.int64] | None,
    mine: NDArray[np.int64],
    first: int,
    parts: int,
    within: int,
    part: NDArray[np.int32],
) -> None:
    """Divide points given in the order of their indices."""
    todo = [(mine, first, parts)]
    while todo:
        mine, first, parts = todo.pop()
        if parts == 1 or not mine.size:
            part[mine] = first
            continue
        box = x[mine]
        along = box[:, _find_longest(box.min(axis=0), box.max(axis=0))] + 0.0
        left = _count_before(parts, within)
        is_behind = _find_upper_half(along, None if weights is None else weights[mine], left, parts)
        todo.append((mine[~is_behind], first, left))
        todo.append((mine[is_behind], first + left, parts - left))


def _find_upper_half(
    along: NDArray[np.float64], weight: NDArray[np.int64] | None, left: int, parts: int
) -> NDArray[np.bool_]:
    """Return which points, in the order of their indices, are after the cut."""
    if weight is None:
        # Middles are 1, 3, 5, ...; this many are at most 2 T.
        before = (2 * along.size * left // parts + 1) // 2
        if before == 0:
            return np.ones(along.size, bool)
        value = np.partition(along, before - 1)[before - 1]
        found: NDArray[np.bool_] = along > value
        tied = np.flatnonzero(along == value)
        found[tied[before - int(np.count_nonzero(along < value)) :]] = True
        return found
    order = np.argsort(along, kind="stable")
    twice = np.array([2 * int(weight.sum()) * left // parts], np.int64)
    found = np.empty(along.size, bool)
    found[order] = count_cuts_before(weight[order], along.size, twice) > 0
    return found
