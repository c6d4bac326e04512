"""
Find the cuts of a partition by counting, in passes over elements that do not fit in memory.

Problem: recursive bisection needs medians, and a curve is cut at every k-th part of the weight. Sorting
the elements would move several times their bytes, and the result must not depend on what fits in memory.
Approach: an element has a node (its current set), a key and a weight. A pass counts the keys of an
interval in bins, for all cuts together. The interval shrinks to the bin that contains the cut, until the
remaining elements fit in memory, or until it is one key. Ranks that share the elements sum their
counters.

Rule: in a node of weight W, in the order of key, then of index, let P be the weight of all elements
before one of weight w. It is after the cut at weight T if P + w / 2 > T, that is, if its middle is.
Elements of equal weight are thus divided so that numbers differ by at most one.

Invariants: weights are integers with a sum below 2^61, so sums are exact and do not depend on slabs,
budgets and ranks. `Cut.key` is the smallest key up to which, itself included, the weight exceeds T.
Smaller keys are before the cut and larger ones after it; the rule decides for equal keys (`Ties`).

Reference: PASSION report, section 4.4.1; M. J. Berger, S. H. Bokhari, "A partitioning strategy for
nonuniform problems on multiprocessors", IEEE Transactions on Computers C-36 (1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import make_budget_error

__all__ = [
    "NOWHERE",
    "ElementPass",
    "KeyCuts",
    "KeyedElements",
    "Ties",
    "count_cuts_before",
    "find_cuts",
]

#: Key of the cut of a node without weight: all elements are before it.
NOWHERE = np.uint64(2**64 - 1)
#: Maximum number of bins of an interval: that many counters stay in the processor's cache.
_MOST_BINS = 1 << 16
#: Bytes per collected element: node, key, weight, order, and the copies of a sort.
_COLLECTED = 96


@dataclass(frozen=True, slots=True)
class KeyedElements:
    """Elements of a slab: nodes and keys, and weights if they are not all 1."""

    node: NDArray[np.int64]
    key: NDArray[np.uint64]
    weight: NDArray[np.int64] | None


#: Function that yields all elements of this rank that belong to a node, in the order of their indices.
ElementPass = Callable[[], Iterator[KeyedElements]]


@dataclass(slots=True)
class KeyCuts:
    """
    Cuts, in the order of their nodes, then of their weights.

    Either each node has one cut, or there is only one node. `twice` is 2 T, rounded down: twice the
    weight before the cut. `below` is the weight of the node's elements with smaller keys than `key`.
    """

    node: NDArray[np.int64]
    twice: NDArray[np.int64]
    key: NDArray[np.uint64]
    below: NDArray[np.int64]


def find_cuts(
    passes: ElementPass,
    node: NDArray[np.int64],
    twice: NDArray[np.int64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    total: NDArray[np.int64],
    memory: int,
    share: Share,
    *,
    weighted: bool,
) -> KeyCuts:
    """
    Find the keys of cuts.

    `low`, `high` and `total` are the smallest key, the largest key and the weight of the node of each
    cut. `memory` is the number of bytes for counters and collected elements; equal on all ranks.
    """
    search = _CutSearch(node, twice, low.copy(), high.copy(), memory, share, weighted)
    nothing = total <= 0
    search.low[nothing] = search.high[nothing] = NOWHERE
    left: int | None = None
    while search.begin():
        if left is not None and left * _COLLECTED * min(share.size, 2) <= memory:
            search.collect(passes())
            break
        left = search.count(passes())
    return KeyCuts(node, twice, search.low, search.below)


class _CutSearch:
    """Shrinking intervals of keys that contain the cuts."""

    def __init__(
        self,
        node: NDArray[np.int64],
        twice: NDArray[np.int64],
        low: NDArray[np.uint64],
        high: NDArray[np.uint64],
        memory: int,
        share: Share,
        weighted: bool,
    ) -> None:
        self.node, self.twice, self.low, self.high = node, twice, low, high
        self.memory, self.share, self.weighted = memory, share, weighted
        self.below = np.zeros(len(node), np.int64)
        self.alone = len(node) > 0 and int(node[-1]) == 0
        nodes = int(node[-1]) + 1 if len(node) else 0
        #: Number of the interval of each node, if each node has one.
        self.of_node = np.full(nodes, -1, np.int64)

    def begin(self) -> bool:
        """Return whether intervals are left; equal intervals are counted once."""
        todo = np.flatnonzero(self.low < self.high)
        if not todo.size:
            return False
        first = np.ones(todo.size, bool)
        same_node = self.node[todo[1:]] == self.node[todo[:-1]]
        first[1:] = ~(same_node & (self.low[todo[1:]] == self.low[todo[:-1]]))
        self.todo, self.interval = todo, np.cumsum(first) - 1
        begins = todo[first]
        self.lows, self.highs = self.low[begins], self.high[begins]
        self.starts = self.below[begins]
        self.of_node[:] = -1
        self.of_node[self.node[begins]] = np.arange(begins.size)
        return True

    def find_inside(self, some: KeyedElements) -> tuple[NDArray[np.int64], KeyedElements]:
        """Return the elements in intervals, and the number of the interval of each."""
        if self.alone:
            interval = np.searchsorted(self.lows, some.key, side="right") - 1
        else:
            interval = self.of_node[some.node]
        safe = np.maximum(interval, 0)
        found = (interval >= 0) & (some.key >= self.lows[safe]) & (some.key <= self.highs[safe])
        if found.all():
            return interval, some
        weight = None if some.weight is None else some.weight[found]
        return interval[found], KeyedElements(some.node[found], some.key[found], weight)

    def count(self, slabs: Iterator[KeyedElements]) -> int:
        """Shrink each interval to one of its bins in one pass; return the number of elements left."""
        intervals = self.lows.size
        tables = (3 if self.weighted else 2) + (2 if self.share.size > 1 else 0)  # sums over ranks
        bins = min(self.memory // (intervals * 8 * tables), _MOST_BINS)
        if bins < 2:
            raise make_budget_error(
                f"counting for {intervals} cuts", intervals * 64, "make fewer parts"
            )
        width = (self.highs - self.lows) // np.uint64(bins) + np.uint64(1)
        weights = np.zeros(intervals * bins, np.int64)
        numbers = np.zeros(intervals * bins, np.int64) if self.weighted else weights
        for some in slabs:
            interval, some = self.find_inside(some)
            place = ((some.key - self.lows[interval]) // width[interval]).astype(np.int64)
            place += interval * bins
            if some.weight is None:
                np.add.at(weights, place, 1)
            else:
                np.add.at(weights, place, some.weight)
                np.add.at(numbers, place, 1)
        weights = self.share.total(weights)
        numbers = self.share.total(numbers) if self.weighted else weights
        upto = weights.reshape(intervals, bins).cumsum(axis=1)
        chosen = np.empty(self.todo.size, np.int64)
        for n, (cut, at) in enumerate(zip(self.todo, self.interval, strict=True)):
            wanted = self.twice[cut] // 2 - self.starts[at]
            chosen[n] = bin_ = int(np.searchsorted(upto[at], wanted, side="right"))
            if bin_:
                self.below[cut] = self.starts[at] + upto[at, bin_ - 1]
            self.low[cut] = self.lows[at] + width[at] * np.uint64(bin_)
            last = self.low[cut] + (width[at] - np.uint64(1))
            self.high[cut] = min(last, self.highs[at])
        places = np.unique(self.interval * bins + chosen)
        return int(numbers[places].sum())

    def collect(self, slabs: Iterator[KeyedElements]) -> None:
        """Find the cuts in one pass: sort the elements of the intervals in memory."""
        intervals: list[NDArray[np.int64]] = []
        keys: list[NDArray[np.uint64]] = []
        weights: list[NDArray[np.int64]] = []
        for some in slabs:
            interval, some = self.find_inside(some)
            intervals.append(interval)
            keys.append(some.key)
            if some.weight is not None:
                weights.append(some.weight)
        nothing = np.empty(0, np.int64)
        columns = [
            np.concatenate([nothing, *intervals]),
            np.concatenate([nothing.view("u8"), *keys]),
        ]
        if self.weighted:
            columns.append(np.concatenate([nothing, *weights]))
        interval, key, *heavy = self.share.gather(columns)
        order = np.lexsort((key, interval))
        interval, key = interval[order], key[order]
        weight = heavy[0][order] if heavy else np.ones(key.size, np.int64)
        upto = weight.cumsum()
        begins = np.searchsorted(interval, np.arange(self.lows.size + 1))
        for cut, at in zip(self.todo, self.interval, strict=True):
            begin, end = int(begins[at]), int(begins[at + 1])
            base = (int(upto[begin - 1]) if begin else 0) - int(self.starts[at])
            wanted = int(self.twice[cut]) // 2 + base
            found = begin + int(np.searchsorted(upto[begin:end], wanted, side="right"))
            self.low[cut] = self.high[cut] = key[found]
            first = begin + int(np.searchsorted(key[begin:end], key[found]))
            self.below[cut] = (int(upto[first - 1]) if first else 0) - base


#: Sets of some elements, and their weights; None for 1.
Equal = Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None]]


class Ties:
    """
    Middles of elements whose key equals the key of a cut, in the order of their indices.

    `below` is the weight of the node before each set of equal elements. `equal` yields the elements of
    this rank; elements of lower ranks come first.
    """

    def __init__(self, below: NDArray[np.int64], equal: Callable[[], Equal], share: Share) -> None:
        self._before = below.copy()
        if share.size > 1:
            mine = np.zeros(below.size, np.int64)
            for group, weight in equal():
                np.add.at(mine, group, 1 if weight is None else weight)
            self._before += share.sums(mine)[0]

    def middles(
        self, group: NDArray[np.int64], weight: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Return 2 P + w of the next elements of this rank; without weights, each w is 1."""
        heavy = np.ones(group.size, np.int64) if weight is None else weight
        order = np.argsort(group, kind="stable")
        sets, each = group[order], heavy[order]
        upto = each.cumsum()
        begins = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]]) if sets.size else sets
        sizes = np.diff(np.r_[begins, sets.size])
        base = np.repeat(upto[begins] - each[begins] - self._before[sets[begins]], sizes)
        found = np.empty(group.size, np.int64)
        found[order] = 2 * (upto - base) - each
        np.add.at(self._before, group, heavy)
        return found


def count_cuts_before(
    weight: NDArray[np.int64] | None, size: int, twice: NDArray[np.int64]
) -> NDArray[np.int64]:
    """
    Return the number of cuts before each element; the elements are a whole node, in its order.

    `twice` has 2 T of the cuts, ascending. Without weights, each is 1.
    """
    if weight is None:
        middles = 2 * np.arange(size, dtype=np.int64) + 1
    else:
        middles = 2 * weight.cumsum() - weight
    return np.searchsorted(twice, middles, side="left")
