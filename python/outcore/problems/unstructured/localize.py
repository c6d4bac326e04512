"""
Partition allocation lists, and the edges of one part in local numbers.

Problem: an edge joins elements by their numbers in the whole problem. A computation on one part needs
the edges of that part, with element numbers that refer to the part's own memory.
Approach: an edge belongs to the part that has most of its elements. The part's own elements have local
numbers 0 to m - 1, in the order of their offsets; after them come the elements of other parts that its
edges need, each once.
Invariants: every edge is in one part; ties go to the lowest part. Equal partitions give equal lists.

Reference: PASSION report, section 4.4.2 and Table 5 (`oc_gen_pal`, `oc_localize`, `oc_gather`,
`oc_scatter`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.closable import Closable
from outcore.compute.jobs import Source, open_inputs
from outcore.errors import UsageError, suggest_name
from outcore.problems.unstructured.groups import Groups, choose_most_owners
from outcore.problems.unstructured.indirect import gather, get_scratch_bytes, scatter, split_rows
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import (
    as_table,
    check_edges,
    check_part,
    get_room_bytes,
    make_budget_error,
    make_native,
)
from outcore.problems.unstructured.translation import TranslationTable

__all__ = ["COMBINE", "AllocationList", "Combine", "LocalEdges"]

Combine = Literal["add", "min", "max"]

#: Functions that combine contributions to one element.
COMBINE: dict[str, Any] = {"add": np.add, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True, eq=False)
class LocalEdges:
    """
    Edges of one part in local numbers; made by `AllocationList.localize`.

    Parameters
    ----------
    part
        Number of the part.
    edges
        Local numbers of the elements of each edge: int64, shape (e, k). Numbers below ``members.size``
        are the part's own elements, the others are the elements in `off`.
    numbers
        Number of each edge in the whole problem, ascending: shape (e,).
    members
        Elements of the part, ascending: shape (m,).
    off
        Elements of other parts that the edges need, ascending, each once: shape (f,).
    off_part, off_offset
        Part of each element in `off`, and its offset in that part.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
    >>> local = outcore.unstructured.AllocationList([[0, 1], [1, 2], [3, 2]], table).localize(0)
    >>> local.edges, local.off
    (array([[0, 1],
           [1, 2]]), array([2]))
    >>> local.gather(np.array([10.0, 11.0, 12.0, 13.0]))
    array([10., 11., 12.])
    """

    part: int
    edges: NDArray[np.int64]
    numbers: NDArray[np.int64]
    members: NDArray[np.int64]
    off: NDArray[np.int64]
    off_part: NDArray[np.int32]
    off_offset: NDArray[np.int64]

    def gather(self, array: Any) -> NDArray[Any]:
        """
        Read the rows of an array that the edges need: own elements, then elements of other parts.

        Parameters
        ----------
        array
            `DiskArray` or NumPy array with one row for each element of the problem.

        Returns
        -------
        numpy.ndarray
            New array of shape (m + f, ...).

        Raises
        ------
        UsageError
            ``shape-mismatch``: the array has too few rows.
        StorageError, BudgetError
            Reading the array raised it.

        Notes
        -----
        Not collective. Rows are read in the order of the file (`oc_get_partition` and `oc_gather`).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
        >>> outcore.unstructured.AllocationList([[3, 0]], table).localize(0).gather(np.arange(4) * 10)
        array([ 0, 10, 30])
        """
        table = as_table(array)
        self._check(table)
        found = np.empty((self.members.size + self.off.size, *table.shape[1:]), table.dtype)
        with _core.Reservation("gather", get_scratch_bytes()):
            for rows, to in self._pair_rows(found):
                for some in split_rows(rows.size):
                    gather(table, rows[some], to[some])
        return found.astype(make_native(found.dtype), copy=False)

    def scatter(self, array: Any, values: NDArray[Any], combine: Combine = "add") -> None:
        """
        Combine contributions of the edges with the rows of an array.

        Parameters
        ----------
        array
            `DiskArray` open for writing, or NumPy array, with one row for each element of the problem.
        values
            Contributions of shape (m + f, ...), in local numbers.
        combine
            How a contribution is combined with the stored value: ``"add"``, ``"min"`` or ``"max"``.

        Raises
        ------
        UsageError
            ``bad-option``, ``shape-mismatch``, ``read-only``.
        StorageError, BudgetError
            Reading or writing the array raised it.

        Notes
        -----
        Not collective, and not atomic: scatter from several parts one after another. Floating-point sums
        depend on that order; the sums of `outcore.unstructured.edge_loop` do not.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
        >>> x = np.zeros(4)
        >>> lists = outcore.unstructured.AllocationList([[3, 0]], table)
        >>> lists.localize(0).scatter(x, np.array([1.0, 2, 3]))
        >>> x
        array([1., 2., 0., 3.])
        """
        if combine not in COMBINE:
            raise UsageError(
                f"combine={combine!r} is not known{suggest_name(combine, COMBINE)} Known: "
                f"{', '.join(COMBINE)}",
                code="bad-option",
            )
        table = as_table(array)
        self._check(table)
        shape = (self.members.size + self.off.size, *table.shape[1:])
        if values.shape != shape:
            raise UsageError(
                f"values have shape {values.shape}; pass shape {shape}, for {self.members.size} own "
                f"elements and {self.off.size} of other parts",
                code="shape-mismatch",
            )
        row = 2 * values[:1].size * table.dtype.itemsize
        with _core.Reservation("scatter", 2 * get_scratch_bytes()):
            for rows, added in self._pair_rows(values):
                for some in split_rows(rows.size, row):
                    before = np.empty((some.stop - some.start, *shape[1:]), table.dtype)
                    gather(table, rows[some], before)
                    scatter(table, rows[some], COMBINE[combine](before, added[some]))

    def _pair_rows(
        self, values: NDArray[Any]
    ) -> tuple[tuple[NDArray[np.int64], NDArray[Any]], ...]:
        own = self.members.size
        return (self.members, values[:own]), (self.off, values[own:])

    def _check(self, table: Any) -> None:
        last = max((int(one[-1]) for one in (self.members, self.off) if one.size), default=-1)
        if table.ndim < 1 or table.shape[0] <= last:
            raise UsageError(
                f"an array of shape {table.shape} has no row for element {last}; pass one row for each "
                "element of the problem",
                code="shape-mismatch",
            )


class AllocationList(Closable):
    """
    Partition allocation list: the edges of each part.

    Parameters
    ----------
    edges
        Elements of each edge (k = 2) or cell: integers of shape (m, k), as a path, a `DiskArray` or an
        array in memory. They may be larger than memory.
    table
        Translation table of the elements.

    Raises
    ------
    UsageError
        ``bad-shape``, ``bad-dtype``: the edges are not a table of integers.
    SectionError
        ``index-out-of-bounds``: an edge names an element that does not exist; the message names the
        edge.
    BudgetError
        A slab of 64 edges does not fit half of the memory budget.

    Notes
    -----
    Not collective. An edge belongs to the part that has most of its elements; ties go to the lowest
    part. The edges are read twice, and 8 (k + 1) bytes are stored for each edge: in memory if they fit
    an eighth of the memory budget, otherwise in temporary arrays on disk, which are deleted with the
    list.

    References
    ----------
    PASSION report, section 4.4.2, Table 5: `oc_gen_pal`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
    >>> outcore.unstructured.AllocationList([[0, 1], [1, 2], [3, 2]], table).counts
    array([2, 1])
    """

    def __init__(self, edges: Source, table: TranslationTable) -> None:
        self._table = table
        with open_inputs(edges) as (found,), _core.Reservation("allocation list", get_room_bytes()):
            check_edges(found)
            share = Share.alone([found.path] if isinstance(found, DiskArray) else [])
            groups = Groups(
                found, table.elements, _keep_numbers, self._find_owners, choose_most_owners, share
            )
            groups.count(table.parts)
            self._begins = groups.begins
            self._edges, self._numbers = groups.tables()
            groups.distribute(self._edges, self._numbers)

    def _find_owners(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = self._table.order.positions(elements)
        found: NDArray[np.int64] = np.searchsorted(
            self._table.order.begins[1:], positions, side="right"
        )
        return found

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self._begins.size - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of edges of each part: int64, shape (parts,)."""
        return np.diff(self._begins)

    def edges(self, part: SupportsIndex) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return the edges of a part.

        Parameters
        ----------
        part
            Number of the part.

        Returns
        -------
        edges : numpy.ndarray
            Numbers of their elements in the whole problem: new int64 array of shape (counts[part], k).
        numbers : numpy.ndarray
            Number of each edge, ascending: new array.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: the part does not exist.

        Examples
        --------
        >>> import outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
        >>> outcore.unstructured.AllocationList([[0, 1], [3, 2]], table).edges(1)
        (array([[3, 2]]), array([1]))
        """
        number = check_part(part, self.parts)
        some = slice(int(self._begins[number]), int(self._begins[number + 1]))
        return self._edges[some], self._numbers[some]

    def localize(self, part: SupportsIndex) -> LocalEdges:
        """
        Return the edges of a part in local numbers, and the elements of other parts that they need.

        Parameters
        ----------
        part
            Number of the part.

        Returns
        -------
        LocalEdges
            Edges and elements as new NumPy arrays.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: the part does not exist.
        BudgetError
            The part's edges do not fit half of the memory budget: make more parts.

        Notes
        -----
        Not collective.

        Examples
        --------
        >>> import outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
        >>> local = outcore.unstructured.AllocationList([[0, 1], [1, 2], [3, 2]], table).localize(0)
        >>> local.off, local.off_part, local.off_offset
        (array([2]), array([1], dtype=int32), array([0]))
        """
        number = check_part(part, self.parts)
        edges, numbers = self.edges(number)
        needed = edges.size * 96
        if needed > get_room_bytes():
            what = f"localizing {len(edges)} edges of part {number}"
            raise make_budget_error(what, needed, "make more parts")
        begins = self._table.order.begins
        with _core.Reservation("localize", needed):
            elements, places = np.unique(edges, return_inverse=True)
            positions = self._table.order.positions(elements)
            own = (positions >= begins[number]) & (positions < begins[number + 1])
            members = self._table.members(number)
            local = np.where(own, positions - begins[number], members.size - 1 + (~own).cumsum())
            away = positions[~own]
            owner = np.searchsorted(begins[1:], away, side="right")
            return LocalEdges(
                number,
                local[places].reshape(edges.shape),
                numbers,
                members,
                elements[~own],
                owner.astype(np.int32),
                away - begins[owner],
            )

    def close(self) -> None:
        """
        Release the list and delete its arrays on disk. Closing twice does nothing.

        Examples
        --------
        >>> import outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(4, 2))
        >>> outcore.unstructured.AllocationList([[0, 1]], table).close()
        """
        self._edges.close()
        self._numbers.close()

    def __repr__(self) -> str:
        return f"<AllocationList: {int(self._begins[-1])} edges of {self.parts} parts>"


def _keep_numbers(slab: NDArray[Any]) -> NDArray[np.int64]:
    return slab.astype(np.int64, copy=False)
