"""
Where a partition cuts: found by counting, in passes over elements that do not fit in memory.

Problem. Recursive bisection needs medians, and a curve is cut at every k-th part of the weight; sorting
the elements for that would move several times their bytes, and what fits memory should not decide the
result.
Idea. An element has a node (the set it belongs to by now), a key and a weight. Keys of an interval are
counted in bins, a pass for all cuts together; the interval becomes the bin that has the cut, until so
few elements are left that they fit in memory, or until it is one key. Ranks that share the elements add
their counters up.

The rule. In a node of weight W, in the order of key, then of index, let P be the weight of all elements
before one of weight w. It lies behind the cut at weight T if P + w / 2 > T: if its middle does. Elements
of one weight are so divided that numbers differ by at most one.

Invariants. Weights are integers of which the sum is below 2^61, so that sums are exact and slabs,
budgets and ranks do not matter. `Cut.key` is the least key up to which, itself included, there is more
than T; smaller keys are before the cut, larger ones behind it, and of equal ones the rule decides
(`Ties`).

Reference: PASSION report, section 4.4.1; M. J. Berger, S. H. Bokhari, "A partitioning strategy for
nonuniform problems on multiprocessors", IEEE Transactions on Computers C-36 (1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import too_small

__all__ = ["NOWHERE", "Cuts", "Elements", "Pass", "Ties", "behind", "find_cuts"]

#: Key of the cut of a node without weight: all of it lies before.
NOWHERE = np.uint64(2**64 - 1)
#: Bins of an interval at most: that many counters stay in the processor's cache.
_MOST_BINS = 1 << 16
#: Bytes that an element takes which is collected: node, key, weight, order, and the copies of a sort.
_COLLECTED = 96


@dataclass(frozen=True, slots=True)
class Elements:
    """Some elements of a slab: nodes and keys, and weights if they are not all 1."""

    node: NDArray[np.int64]
    key: NDArray[np.uint64]
    weight: NDArray[np.int64] | None


#: Walks through all elements of this rank that belong to a node, in the order of their indices.
Pass = Callable[[], Iterator[Elements]]


@dataclass(slots=True)
class Cuts:
    """
    Cuts, in the order of their nodes, then of their weights.

    Parameters
    ----------
    node
        Number of the node that each cuts. Either each node has one cut, or there is one node.
    twice
        2 T of each, rounded down: the weight before it, twice.
    key
        Once found, the key at which it lies.
    below
        Weight of the node's elements of smaller keys.
    """

    node: NDArray[np.int64]
    twice: NDArray[np.int64]
    key: NDArray[np.uint64]
    below: NDArray[np.int64]


def find_cuts(
    passes: Pass,
    node: NDArray[np.int64],
    twice: NDArray[np.int64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    total: NDArray[np.int64],
    memory: int,
    share: Share,
    *,
    weighted: bool,
) -> Cuts:
    """
    Find cuts.

    Parameters
    ----------
    passes
        A pass over all elements.
    node, twice
        As of `Cuts`.
    low, high
        Of each cut, the least and greatest key of its node.
    total
        Of each cut, the weight of its node.
    memory
        Bytes for counters and collected elements; equal on all ranks.
    share
        The ranks that have the elements.
    weighted
        Weights are not all 1.

    Returns
    -------
    Cuts
        With their keys.
    """
    search = _Search(node, twice, low.copy(), high.copy(), memory, share, weighted)
    nothing = total <= 0
    search.low[nothing] = search.high[nothing] = NOWHERE
    left: int | None = None
    while search.begin():
        if left is not None and left * _COLLECTED * min(share.size, 2) <= memory:
            search.collect(passes())
            break
        left = search.count(passes())
    return Cuts(node, twice, search.low, search.below)


class _Search:
    """Intervals of keys in which cuts lie, and that shrink."""

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
        #: Number of the interval of a node, where each has one.
        self.of_node = np.full(nodes, -1, np.int64)

    def begin(self) -> bool:
        """Whether there is something left to do; equal intervals are counted once."""
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

    def inside(self, some: Elements) -> tuple[NDArray[np.int64], Elements]:
        """Elements that lie in an interval, and its number."""
        if self.alone:
            interval = np.searchsorted(self.lows, some.key, side="right") - 1
        else:
            interval = self.of_node[some.node]
        safe = np.maximum(interval, 0)
        found = (interval >= 0) & (some.key >= self.lows[safe]) & (some.key <= self.highs[safe])
        if found.all():
            return interval, some
        weight = None if some.weight is None else some.weight[found]
        return interval[found], Elements(some.node[found], some.key[found], weight)

    def count(self, slabs: Iterator[Elements]) -> int:
        """One pass: each interval becomes one of its bins. Number of elements in those."""
        intervals = self.lows.size
        tables = (3 if self.weighted else 2) + (2 if self.share.size > 1 else 0)  # sums over ranks
        bins = min(self.memory // (intervals * 8 * tables), _MOST_BINS)
        if bins < 2:
            raise too_small(
                f"counting for {intervals} cuts", intervals * 64, ", or make fewer parts"
            )
        width = (self.highs - self.lows) // np.uint64(bins) + np.uint64(1)
        weights = np.zeros(intervals * bins, np.int64)
        numbers = np.zeros(intervals * bins, np.int64) if self.weighted else weights
        for some in slabs:
            interval, some = self.inside(some)
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

    def collect(self, slabs: Iterator[Elements]) -> None:
        """One pass, and the cuts are found: what lies in the intervals is sorted in memory."""
        intervals: list[NDArray[np.int64]] = []
        keys: list[NDArray[np.uint64]] = []
        weights: list[NDArray[np.int64]] = []
        for some in slabs:
            interval, some = self.inside(some)
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
        interval, key, *heavy = self.share.gathered(columns)
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


#: Sets of some elements, and their weights; None: 1.
Equal = Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None]]


class Ties:
    """
    Middles of elements whose key is that of a cut, in the order of their indices.

    Parameters
    ----------
    below
        Of each set of equal elements, the weight of the node before it.
    equal
        Walks through the elements of this rank that have such a key, by their sets and weights.
    share
        The ranks that have the elements: those of lower ranks go before.
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
        """
        2 P + w of the next elements of this rank.

        Parameters
        ----------
        group
            To which set each belongs.
        weight
            Of each; None: 1.
        """
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


def behind(
    weight: NDArray[np.int64] | None, size: int, twice: NDArray[np.int64]
) -> NDArray[np.int64]:
    """
    How many cuts each of some elements lies behind; the elements are a whole node, in its order.

    Parameters
    ----------
    weight
        Of each; None: 1.
    size
        How many there are.
    twice
        2 T of the cuts, ascending.
    """
    if weight is None:
        middles = 2 * np.arange(size, dtype=np.int64) + 1
    else:
        middles = 2 * weight.cumsum() - weight
    return np.searchsorted(twice, middles, side="left")
