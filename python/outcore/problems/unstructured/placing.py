"""
Compute the positions of entries that are grouped slab by slab.

Problem: a table that may be larger than memory should hold the entries of each group together, in their
order: edges by part, elements by part, points by set.
Approach: once the number of entries of each group is known, so is its position. Entries of a slab follow
those that came before: entries of earlier slabs, and of lower ranks, whose rows are earlier.
Invariants: within a group, entries keep their original order, so slabs and ranks change nothing. Each
position is used once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.share import Share

__all__ = ["Placing"]


class Placing:
    """Positions of all entries; `counts` is the number of entries of this rank in each group."""

    def __init__(self, counts: NDArray[np.int64], share: Share) -> None:
        before, total = share.sums(counts)
        #: Position at which each group begins, followed by the end of the last one.
        self.begins: NDArray[np.int64] = np.r_[0, total.cumsum()]
        self._filled = self.begins[:-1] + before

    def places(self, group: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """
        Return `order` and `place` of the next entries, for the group of each.

        Entry ``order[i]`` belongs at ``place[i]``; positions ascend.
        """
        # NumPy sorts 16-bit integers in linear time.
        few = group.astype(np.uint16) if self._filled.size <= 1 << 16 else group
        order = np.argsort(few, kind="stable")
        ordered = group[order]
        counts = np.bincount(ordered, minlength=self._filled.size)
        place = np.arange(group.size) + (self._filled - (counts.cumsum() - counts))[ordered]
        self._filled += counts
        return order, place
