"""
Translation tables: where an element of a partitioned array is.

Problem. An element has a number in the whole problem; whoever has a partition wants its place in there.
The table that says so has an entry for each element, and may be larger than memory.
Idea. Elements are put in the order of their parts: first those of part 0, by their numbers, then those
of part 1. One number, the position in that order, then says both part and offset, as parts begin where
they begin. The inverse, the element at each position, is the list of members of all parts.

Invariants. Both tables are permutations, inverse to each other. They follow from the partition alone.

Reference: PASSION report, section 4.4.2 and Table 5 (`oc_dereference`); R. Das, M. Uysal, J. Saltz,
Y.-S. Hwang, "Communication optimizations for irregular scientific computations on distributed memory
architectures", Journal of Parallel and Distributed Computing 22 (1994), on translation tables.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.report import counted
from outcore.errors import UsageError
from outcore.problems.unstructured.indirect import gather, scatter
from outcore.problems.unstructured.partition import Partition
from outcore.problems.unstructured.placing import Placing
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import (
    Released,
    check_indices,
    part_number,
    room,
    rows_in,
    slabs,
)

__all__ = ["PartOrder", "TranslationTable"]

#: Bytes that an element takes in a pass: part, position, order, sorts.
_EACH = 96


class PartOrder(Released):
    """
    The order of elements by parts, then by their numbers: a permutation, and its inverse.

    Parameters
    ----------
    partition
        A `Partition`; it is read once here.
    share
        The ranks that make it together, for as long as their inspection lasts; by default it is this
        process's, for as long as it likes.
    """

    def __init__(self, partition: Partition, share: Share | None = None) -> None:
        part: Any = partition.table
        counted = share is not None
        if share is None:
            share = Share.alone([part.path] if isinstance(part, DiskArray) else [])
        size = partition.elements
        begin, end = share.rows(size)
        self._positions = share.table((size,), np.int64, counted=counted)
        self._order = share.table((size,), np.int64, counted=counted)
        with _core.Reservation("translation table", min(share.room, _EACH * (end - begin))):
            rows = rows_in(share.room, _EACH, "parts")
            mine = partition.counts
            if share.size > 1:
                mine[:] = 0
                for _, _, slab in slabs(part, rows, begin, end):
                    mine += np.bincount(slab, minlength=partition.parts)
            placing = Placing(mine, share)
            #: Position at which each part begins, and one past the last.
            self.begins = placing.begins
            for low, high, slab in slabs(part, rows, begin, end):
                order, position = placing.places(slab)
                by_index = np.empty(order.size, np.int64)
                by_index[order] = position
                self._positions[low:high] = by_index
                scatter(self._order, position, order + low)
        share.barrier()

    def positions(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Where elements stand; the caller has checked them, and counted what they take."""
        found = np.empty(indices.size, np.int64)
        gather(self._positions, indices.reshape(-1), found)
        shaped: NDArray[np.int64] = found.reshape(indices.shape)
        return shaped

    def at(self, begin: int, end: int) -> NDArray[np.int64]:
        """Elements at some neighbouring positions."""
        found: NDArray[np.int64] = self._order[begin:end]
        return found

    def elements_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Elements at any positions."""
        found = np.empty(positions.size, np.int64)
        gather(self._order, positions, found)
        return found

    def close(self) -> None:
        """Release the tables; those on disk go away."""
        self._positions.close()
        self._order.close()


class TranslationTable(Released):
    """
    Part and offset of each element of a partition.

    Parameters
    ----------
    partition
        A `Partition`; it is read once here, and not needed afterwards.

    Raises
    ------
    BudgetError
        A slab of 64 elements does not fit half of the memory budget.

    Notes
    -----
    Not collective: equal partitions give equal tables on any rank. It takes 16 bytes for each element,
    in memory as far as an eighth of the memory budget holds them (each of the two tables by itself),
    else in temporary arrays on disk, which go away with it.

    References
    ----------
    PASSION report, section 4.4.2, Table 5: `oc_dereference`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> table = outcore.TranslationTable(outcore.Partition(np.array([1, 0, 1, 1]), 2))
    >>> table.dereference([3, 1])
    (array([1, 0], dtype=int32), array([2, 0]))
    >>> table.members(1)
    array([0, 2, 3])
    """

    def __init__(self, partition: Partition) -> None:
        #: Elements in the order of their parts.
        self.order = PartOrder(partition)

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return int(self.order.begins.size) - 1

    @property
    def elements(self) -> int:
        """How many elements there are."""
        return int(self.order.begins[-1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many elements each part has: int64, shape (parts,)."""
        found: NDArray[np.int64] = np.diff(self.order.begins)
        return found

    def dereference(self, indices: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """
        Part and offset of some elements.

        Parameters
        ----------
        indices
            Integers of any shape, in any order; elements may be named several times.

        Returns
        -------
        part : numpy.ndarray
            int32, of the shape of `indices`.
        offset : numpy.ndarray
            int64: how many elements with lower numbers the part has. Both are the caller's memory.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: there is no such element; the message says which index at which
            place.
        UsageError
            ``bad-dtype``: indices that are no integers.

        Notes
        -----
        Not collective. A table on disk is looked up in the order of the file: as many indices at a time
        as fit half of the memory budget, and of those each part of the table is read once.

        Examples
        --------
        >>> import outcore
        >>> table = outcore.TranslationTable(outcore.Partition.blocks(6, 2))
        >>> table.dereference([[0, 4], [4, 5]])[1]
        array([[0, 1],
               [1, 2]])
        """
        wanted = np.asarray(indices)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise UsageError(f"indices have dtype {wanted.dtype}; give integers", code="bad-dtype")
        check_indices(wanted, self.elements, 0, "indices")
        flat = wanted.reshape(-1)
        part, offset = np.empty(flat.size, np.int32), np.empty(flat.size, np.int64)
        begins = self.order.begins
        with _core.Reservation("translation table", room()):
            rows = rows_in(room() // 2, _EACH, "indices")
            for low in range(0, flat.size, rows):
                some = slice(low, low + rows)
                position = self.order.positions(flat[some])
                part[some] = owner = np.searchsorted(begins[1:], position, side="right")
                offset[some] = position - begins[owner]
        return part.reshape(wanted.shape), offset.reshape(wanted.shape)

    def members(self, part: SupportsIndex) -> NDArray[np.int64]:
        """
        The elements of a part.

        Parameters
        ----------
        part
            Number of the part.

        Returns
        -------
        numpy.ndarray
            Their indices, ascending, which is by offset: int64. It is the caller's memory.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: there is no such part.

        Notes
        -----
        Not collective. Nothing but these is read.

        Examples
        --------
        >>> import outcore
        >>> outcore.TranslationTable(outcore.Partition.blocks(6, 2)).members(1)
        array([3, 4, 5])
        """
        number = part_number(part, self.parts)
        begins = self.order.begins
        return self.order.at(int(begins[number]), int(begins[number + 1]))

    def close(self) -> None:
        """
        Release the tables; those on disk go away. Closing twice does nothing.

        Examples
        --------
        >>> import outcore
        >>> outcore.TranslationTable(outcore.Partition.blocks(6, 2)).close()
        """
        self.order.close()

    def __repr__(self) -> str:
        elements, parts = counted(self.elements, "element"), counted(self.parts, "part")
        return f"<TranslationTable: {elements} in {parts}>"
