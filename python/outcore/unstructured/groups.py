"""
Edges grouped by the part that works on them: counted in one pass, distributed in another.

Problem. Edges are stored in any order, and a partition wants its own ones together, though neither edges
nor the table of where nodes live fits in memory.
Idea. One pass over the edges counts how many each group has, so that its place in the result is known.
The second pass writes them there, slab by slab: those of a slab that go to one group are neighbours
there.

Invariants. Within a group edges stand in the order of their numbers. A group's edges follow from its
owners alone, so budgets and slabs change nothing.

Reference: PASSION report, section 4.4.2 (an indirection array element is assigned to the partition that
has most of what it requires) and Table 5 (`oc_gen_pal`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.disk import DiskArray
from outcore.errors import UsageError
from outcore.unstructured.indirect import scatter
from outcore.unstructured.tables import (
    Table,
    check_indices,
    new_table,
    refuse_dtype,
    room,
    rows_in,
    slabs,
)

__all__ = ["Groups", "all_owners", "check_edges", "most_owners"]

#: From the owners of each edge's elements, (r, k), to rows and the group of each, ascending by row.
Choose = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]


def check_edges(edges: Table) -> None:
    """Raise `UsageError` unless this is a table of integers with a row for each edge."""
    if edges.ndim != 2 or not edges.shape[1]:
        raise UsageError(
            f"edges have shape {edges.shape}; give (m, k): a row of k elements for each edge",
            code="bad-shape",
        )
    refuse_dtype(edges, "iu", "edges", "give integers: the elements that each edge joins")


def most_owners(owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Each edge once: to the group that owns most of its elements, the lowest of several.

    Parameters
    ----------
    owners
        Of each element of some edges: (r, k).
    """
    times = np.zeros(owners.shape, np.int64)
    for column in range(owners.shape[1]):
        times += owners == owners[:, column, None]
    best = np.where(times == times.max(axis=1, initial=0)[:, None], owners, np.iinfo(np.int64).max)
    return np.arange(len(owners)), best.min(axis=1, initial=np.iinfo(np.int64).max)


def all_owners(owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Each edge once to every group that owns one of its elements.

    Parameters
    ----------
    owners
        Of each element of some edges: (r, k).
    """
    if owners.shape[1] == 1:
        return np.arange(len(owners)), owners[:, 0]
    if owners.shape[1] == 2:  # most meshes: no sort
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
    Edges by groups.

    Parameters
    ----------
    edges
        Integers of shape (m, k).
    elements
        How many elements there are; others are refused.
    values
        What is kept of elements: their numbers, or where they are. Applied to each slab.
    owner
        The group that owns each of these values.
    choose
        Which groups work on an edge.

    Notes
    -----
    The caller has reserved `room()` bytes, of which a slab and what is computed with it take half.
    """

    def __init__(
        self,
        edges: Table,
        elements: int,
        values: Callable[[NDArray[Any]], NDArray[np.int64]],
        owner: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        choose: Choose,
    ) -> None:
        self._edges, self._elements = edges, elements
        self._values, self._owner, self._choose = values, owner, choose
        self._columns = int(edges.shape[1])
        self._slab = rows_in(room() // 2, self._columns * 176 + 64, "edges")
        #: Where each group begins in the tables, and one past the last; set by `count`.
        self.begins = np.zeros(1, np.int64)

    def count(self, groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        One pass: how many edges each group has, and how many times these name elements of others.

        Parameters
        ----------
        groups
            How many groups there are.
        """
        counts, others = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        for low, _, slab in slabs(self._edges, self._slab):
            check_indices(slab, self._elements, low, "edges")
            owners = self._owner(self._values(slab))
            rows, group = self._choose(owners)
            counts += np.bincount(group, minlength=groups)
            foreign = (owners[rows] != group[:, None]).sum(axis=1)
            np.add.at(others, group, foreign)
        self.begins = np.r_[0, counts.cumsum()]
        return counts, others

    def distribute(self, values: Table, numbers: Table) -> None:
        """
        One pass: the edges of each group, together.

        Parameters
        ----------
        values
            Gets what is kept of each edge: shape (begins[-1], k).
        numbers
            Gets the number of each edge: shape (begins[-1],).
        """
        filled = self.begins[:-1].copy()
        for low, _, slab in slabs(self._edges, self._slab):
            kept = self._values(slab)
            rows, group = self._choose(self._owner(kept))
            # Few groups are sorted in linear time.
            few = group.astype(np.uint16) if filled.size <= 1 << 16 else group
            order = np.argsort(few, kind="stable")
            rows, group = rows[order], group[order]
            counts = np.bincount(group, minlength=filled.size)
            place = np.arange(group.size) + (filled - (counts.cumsum() - counts))[group]
            scatter(values, place, kept[rows])
            scatter(numbers, place, rows + low)
            filled += counts

    def tables(self, near: list[str]) -> tuple[Table, Table]:
        """Temporary tables for `distribute`."""
        size = int(self.begins[-1])
        return (
            new_table((size, self._columns), np.int64, near),
            new_table((size,), np.int64, near),
        )

    @property
    def near(self) -> list[str]:
        """Paths beside which temporary tables go."""
        return [self._edges.path] if isinstance(self._edges, DiskArray) else []
