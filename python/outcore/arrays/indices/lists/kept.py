"""
The lists of schedules in memory, as indices or as runs.

Problem: a schedule needs its indices again: for arrays of other layouts, to combine values, for its
file. They may take as much memory as everything else that it stores.
Approach: indices of neighbours are stored as runs (first index and length) if that is shorter, and
expanded while they are in use.

Invariants: lists that nothing else references count in the budget, including expanded ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.masks import INDEX

__all__ = ["WORTH", "Runs", "ScheduleLists", "expand_runs", "find_runs"]

#: First index and length of each run of indices.
Runs = tuple[NDArray[np.int64], NDArray[np.int64]]
#: Runs replace indices if they take at most 1/WORTH of the memory.
WORTH = 2


class ScheduleLists:
    """
    The lists of a schedule, which other layouts, combining and files need again.

    Lists that nothing else references count in the budget; `compress` stores them as runs if that
    takes less memory. ``with`` returns them as lists, counted until it ends.
    """

    def __init__(self, points: IndexPoints, lists: tuple[NDArray[np.int64], ...]) -> None:
        self._lists: list[NDArray[np.int64] | Runs] = list(lists)
        # Lists that belong to the caller are not counted.
        self._own = [not any(_is_shared(one, given) for given in points.lists) for one in lists]
        self._expanded: list[tuple[_core.Reservation, tuple[NDArray[np.int64], ...]]] = []
        self._held = self._reserve()

    @property
    def nbytes(self) -> int:
        """Bytes of the budget that the lists use."""
        return sum(
            _count_bytes(one) for one, own in zip(self._lists, self._own, strict=True) if own
        )

    def _reserve(self) -> _core.Reservation:
        return _core.Reservation("the indices of a schedule", self.nbytes)

    def compress(self) -> None:
        """Store the lists that nothing else references as runs, if these are shorter."""
        for k, (one, own) in enumerate(zip(self._lists, self._own, strict=True)):
            if own and isinstance(one, np.ndarray):
                self._lists[k] = _shorten(one)
        del self._held  # release it before reserving less
        self._held = self._reserve()

    def shorter(self) -> Iterator[NDArray[np.int64] | Runs]:
        """Yield each list in its shorter form: the indices, or their runs."""
        for one in self._lists:
            yield _shorten(one) if isinstance(one, np.ndarray) else one

    def __enter__(self) -> tuple[NDArray[np.int64], ...]:
        runs = [one for one in self._lists if not isinstance(one, np.ndarray)]
        # The lists, and twice as much temporarily while they are created.
        need = sum(3 * INDEX * int(lengths.sum()) for _, lengths in runs)
        held = _core.Reservation("the indices of a schedule, one by one", need)
        lists = tuple(
            one if isinstance(one, np.ndarray) else expand_runs(*one) for one in self._lists
        )
        self._expanded.append((held, lists))
        return lists

    def __exit__(self, *_: object) -> None:
        self._expanded.pop()


def _count_bytes(one: NDArray[np.int64] | Runs) -> int:
    return one.nbytes if isinstance(one, np.ndarray) else sum(part.nbytes for part in one)


def _shorten(one: NDArray[np.int64]) -> NDArray[np.int64] | Runs:
    """Return a list, or its runs if they take at most 1/`WORTH` of its memory."""
    starts, lengths = find_runs(one)
    return (starts, lengths) if WORTH * 2 * starts.size < one.size else one


def _is_shared(one: NDArray[Any], other: Any) -> bool:
    """Return whether a list is the caller's list, perhaps with another shape."""
    return isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def find_runs(indices: NDArray[np.int64]) -> Runs:
    """Return the runs of indices: first index and length of each."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    bounds = np.concatenate(([0], breaks, [indices.size])).astype(np.int64)
    lengths = np.diff(bounds)[: max(len(bounds) - 1, 0)]
    keep = lengths > 0
    return indices[bounds[:-1][keep]] if indices.size else indices, lengths[keep]


def expand_runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of runs: the inverse of `find_runs`."""
    ends = np.cumsum(lengths)
    inside = np.arange(ends[-1] if ends.size else 0, dtype=np.int64)
    found: NDArray[np.int64] = inside + np.repeat(starts - (ends - lengths), lengths)
    return found
