"""
Places of entries that are brought together by groups, slab by slab.

Problem. Edges by part, elements by part, points by set: in a table that may be larger than memory, the
entries of each group are to stand together, in their order.
Idea. When it is known how many each group has, its place is. Entries of a slab go behind those that came
before: of earlier slabs, and of lower ranks, whose rows are earlier ones.

Invariants. Within a group entries stand in the order in which they came, so slabs and ranks change
nothing. Each place is given once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.share import Share

__all__ = ["Placing"]


class Placing:
    """
    The places of all entries.

    Parameters
    ----------
    counts
        How many entries of this rank each group will get.
    share
        The ranks that have entries.
    """

    def __init__(self, counts: NDArray[np.int64], share: Share) -> None:
        before, total = share.sums(counts)
        #: Where each group begins, and one past the last.
        self.begins: NDArray[np.int64] = np.r_[0, total.cumsum()]
        self._filled = self.begins[:-1] + before

    def places(self, group: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """
        Where the next entries go.

        Parameters
        ----------
        group
            Of each.

        Returns
        -------
        order, place : numpy.ndarray
            Entry ``order[i]`` goes to ``place[i]``; places ascend.
        """
        # Few groups are sorted in linear time.
        few = group.astype(np.uint16) if self._filled.size <= 1 << 16 else group
        order = np.argsort(few, kind="stable")
        ordered = group[order]
        counts = np.bincount(ordered, minlength=self._filled.size)
        place = np.arange(group.size) + (self._filled - (counts.cumsum() - counts))[ordered]
        self._filled += counts
        return order, place
