"""
Translation tables: the part and the offset of each element of a partitioned array.

Problem: elements have numbers in the whole problem; with a partition, programs need their positions in
it. A table of these positions has an entry for each element, and may be larger than memory.
Approach: elements are ordered by part, then by number. The position of an element in that order
determines both its part and its offset, because the begin of each part is known. The inverse, the
element at each position, lists the members of all parts.
Invariants: both tables are permutations, inverse to each other. They depend on the partition alone.

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
from outcore.base.closable import Closable
from outcore.base.report import format_count
from outcore.errors import UsageError
from outcore.problems.unstructured.indirect import gather, scatter
from outcore.problems.unstructured.partition import Partition
from outcore.problems.unstructured.placing import Placing
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import (
    check_indices,
    check_part,
    count_rows,
    get_room_bytes,
    read_slabs,
)

__all__ = ["PartOrder", "TranslationTable"]

#: Bytes per element in a pass: part, position, order, sorts.
_EACH = 96


class PartOrder(Closable):
    """
    Order of elements by part, then by number: a permutation and its inverse.

    The partition is read once. The order lives as long as the inspection of `share`; without it, this
    process makes the order alone, without such a limit.
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
            rows = count_rows(share.room, _EACH, "parts")
            mine = partition.counts
            if share.size > 1:
                mine[:] = 0
                for _, _, slab in read_slabs(part, rows, begin, end):
                    mine += np.bincount(slab, minlength=partition.parts)
            placing = Placing(mine, share)
            #: Position at which each part begins, followed by the end of the last one.
            self.begins = placing.begins
            for low, high, slab in read_slabs(part, rows, begin, end):
                order, position = placing.places(slab)
                by_index = np.empty(order.size, np.int64)
                by_index[order] = position
                self._positions[low:high] = by_index
                scatter(self._order, position, order + low)
        share.barrier()

    def positions(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of elements; the caller has checked them and reserved the memory."""
        found = np.empty(indices.size, np.int64)
        gather(self._positions, indices.reshape(-1), found)
        shaped: NDArray[np.int64] = found.reshape(indices.shape)
        return shaped

    def at(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the elements at consecutive positions."""
        found: NDArray[np.int64] = self._order[begin:end]
        return found

    def find_elements(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements at any positions."""
        found = np.empty(positions.size, np.int64)
        gather(self._order, positions, found)
        return found

    def close(self) -> None:
        """Release the tables and delete those on disk."""
        self._positions.close()
        self._order.close()


class TranslationTable(Closable):
    """
    Part and offset of each element of a partition.

    Parameters
    ----------
    partition
        `Partition`, which is read once and not needed afterwards.

    Raises
    ------
    BudgetError
        A slab of 64 elements does not fit half of the memory budget.

    Notes
    -----
    Not collective: equal partitions give equal tables on any rank. The two tables use 16 bytes for each
    element. Each is in memory if it fits an eighth of the memory budget, otherwise in a temporary array
    on disk, which is deleted with the object.

    References
    ----------
    PASSION report, section 4.4.2, Table 5: `oc_dereference`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.unstructured import Partition, TranslationTable
    >>> table = TranslationTable(Partition(np.array([1, 0, 1, 1]), 2))
    >>> table.dereference([3, 1])
    (array([1, 0], dtype=int32), array([2, 0]))
    >>> table.members(1)
    array([0, 2, 3])
    """

    def __init__(self, partition: Partition) -> None:
        #: Order of elements by part.
        self.order = PartOrder(partition)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.order.begins.size) - 1

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(self.order.begins[-1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of elements of each part: int64, shape (parts,)."""
        found: NDArray[np.int64] = np.diff(self.order.begins)
        return found

    def dereference(self, indices: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """
        Return the part and the offset of elements.

        Parameters
        ----------
        indices
            Integers of any shape, in any order, with repetitions.

        Returns
        -------
        part : numpy.ndarray
            New int32 array with the shape of `indices`.
        offset : numpy.ndarray
            Number of elements with lower indices in the part: new int64 array with the shape of
            `indices`.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: an element does not exist; the message names the index and its
            position.
        UsageError
            ``bad-dtype``: the indices are not integers.

        Notes
        -----
        Not collective. A table on disk is read in the order of the file, with as many indices at a time
        as fit half of the memory budget; for these, each part of the table is read once.

        Examples
        --------
        >>> import outcore
        >>> table = outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(6, 2))
        >>> table.dereference([[0, 4], [4, 5]])[1]
        array([[0, 1],
               [1, 2]])
        """
        wanted = np.asarray(indices)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise UsageError(f"indices have dtype {wanted.dtype}; use integers", code="bad-dtype")
        check_indices(wanted, self.elements, 0, "indices")
        flat = wanted.reshape(-1)
        part, offset = np.empty(flat.size, np.int32), np.empty(flat.size, np.int64)
        begins = self.order.begins
        with _core.Reservation("translation table", get_room_bytes()):
            rows = count_rows(get_room_bytes() // 2, _EACH, "indices")
            for low in range(0, flat.size, rows):
                some = slice(low, low + rows)
                position = self.order.positions(flat[some])
                part[some] = owner = np.searchsorted(begins[1:], position, side="right")
                offset[some] = position - begins[owner]
        return part.reshape(wanted.shape), offset.reshape(wanted.shape)

    def members(self, part: SupportsIndex) -> NDArray[np.int64]:
        """
        Return the elements of a part.

        Parameters
        ----------
        part
            Number of the part.

        Returns
        -------
        numpy.ndarray
            New int64 array of their indices, ascending, which is the order of their offsets.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``: the part does not exist.

        Notes
        -----
        Not collective. Only these elements are read.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(6, 2)).members(1)
        array([3, 4, 5])
        """
        number = check_part(part, self.parts)
        begins = self.order.begins
        return self.order.at(int(begins[number]), int(begins[number + 1]))

    def close(self) -> None:
        """
        Release the tables and delete those on disk. Closing twice does nothing.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.TranslationTable(outcore.unstructured.Partition.blocks(6, 2)).close()
        """
        self.order.close()

    def __repr__(self) -> str:
        elements, parts = format_count(self.elements, "element"), format_count(self.parts, "part")
        return f"<TranslationTable: {elements} in {parts}>"
