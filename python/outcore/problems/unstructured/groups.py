"""
Group edges by the part that processes them: one pass counts, another distributes.

Problem: edges are stored in any order, and a partition needs its own edges together, but neither the
edges nor the table of the owners of nodes fits in memory.
Approach: one pass over the edges counts those of each group, which determines the position of each group
in the result. A second pass writes the edges there, slab by slab; edges of a slab that belong to one
group are neighbours in the result. Ranks share both passes.
Invariants: within a group, edges are in the order of their numbers. The edges of a group depend on its
owners alone, not on budgets, slabs or ranks.

Reference: PASSION report, section 4.4.2 (an indirection array element is assigned to the partition that
has most of what it requires) and Table 5 (`oc_gen_pal`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.indirect import scatter
from outcore.problems.unstructured.placing import Placing
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import Table, check_indices, count_rows, read_slabs

__all__ = ["Groups", "choose_all_owners", "choose_most_owners"]

#: Function from the owners of each edge's elements, (r, k), to rows and the group of each, ascending by
#: row.
Choose = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]


def choose_most_owners(owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign each edge to the group that owns most of its elements; ties go to the lowest group."""
    times = np.zeros(owners.shape, np.int64)
    for column in range(owners.shape[1]):
        times += owners == owners[:, column, None]
    best = np.where(times == times.max(axis=1, initial=0)[:, None], owners, np.iinfo(np.int64).max)
    return np.arange(len(owners)), best.min(axis=1, initial=np.iinfo(np.int64).max)


def choose_all_owners(owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign each edge once to every group that owns one of its elements."""
    if owners.shape[1] == 1:
        return np.arange(len(owners)), owners[:, 0]
    if owners.shape[1] == 2:  # most meshes: no sort needed
        one, other = owners[:, 0], owners[:, 1]
        differ = one != other
        rows = np.repeat(np.arange(len(owners)), 1 + differ)
        group = one[rows]
        second = np.flatnonzero(rows[1:] == rows[:-1]) + 1
        group[second] = other[differ]
        return rows, group
    ordered = np.sort(owners, axis=1)
    first = np.ones(owners.shape, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rows, columns = np.nonzero(first)
    return rows, ordered[rows, columns]


class Groups:
    """
    Edges, integers of shape (m, k), by group.

    `values` converts a slab of edges to the values to store for its elements: their numbers or
    positions. `owner` returns the group of each of these values, and `choose` the groups that process an
    edge. The caller has reserved `Share.room` bytes; a slab and the results computed from it use half of
    them.
    """

    def __init__(
        self,
        edges: Table,
        elements: int,
        values: Callable[[NDArray[Any]], NDArray[np.int64]],
        owner: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        choose: Choose,
        share: Share,
    ) -> None:
        self._edges, self._elements = edges, elements
        self._values, self._owner, self._choose = values, owner, choose
        self._columns = int(edges.shape[1])
        self._slab = count_rows(share.room // 2, self._columns * 176 + 64, "edges")
        self._share = share
        self._begin, self._end = share.rows(int(edges.shape[0]))
        self._placing = Placing(np.zeros(0, np.int64), share)

    def count(self, groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Count the edges of each group, and their references to elements of other groups, over all ranks.

        This reads the edges once.
        """
        counts, others = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        for low, _, slab in read_slabs(self._edges, self._slab, self._begin, self._end):
            check_indices(slab, self._elements, low, "edges")
            owners = self._owner(self._values(slab))
            rows, group = self._choose(owners)
            counts += np.bincount(group, minlength=groups)
            foreign = (owners[rows] != group[:, None]).sum(axis=1)
            np.add.at(others, group, foreign)
        self._placing = Placing(counts, self._share)
        return np.diff(self.begins), self._share.total(others)

    @property
    def begins(self) -> NDArray[np.int64]:
        """Position at which each group begins, and the end of the last; valid after `count`."""
        return self._placing.begins

    def distribute(self, values: Table, numbers: Table) -> None:
        """Write values and numbers of the edges of each group together; this reads the edges once."""
        for low, _, slab in read_slabs(self._edges, self._slab, self._begin, self._end):
            kept = self._values(slab)
            rows, group = self._choose(self._owner(kept))
            order, place = self._placing.places(group)
            rows = rows[order]
            scatter(values, place, kept[rows])
            scatter(numbers, place, rows + low)
        self._share.barrier()

    def tables(self) -> tuple[Table, Table]:
        """Make the tables for `distribute`."""
        size = int(self.begins[-1])
        return (
            self._share.table((size, self._columns), np.int64),
            self._share.table((size,), np.int64),
        )
