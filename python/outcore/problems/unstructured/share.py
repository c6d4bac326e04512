"""
Share the inspection of an unstructured problem among ranks.

Problem: coordinates and edges are read several times before anything is computed. If one rank reads them
while the others wait, the other ranks save no time, and all of them need the results.
Approach: each rank reads its own consecutive rows. Counts are summed over the ranks; entries with a
position after all earlier ones start after those of lower ranks, so rows get the positions that a single
process would give them. Tables that all ranks fill are files that all ranks open.
Invariants: sums are of integers, so they do not depend on the number of ranks. All ranks make the same
calls. One rank writes each entry of a table, and others read it after a `barrier` of all. If a rank
fails between two of these calls, the others fail at the next one (`outcore.ranks.agreement`).

Reference: PASSION report, section 4.4.2 (pre-processing by all processors); R. Das et al. (1994), on
distributed translation tables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore.arrays.opening import create, open
from outcore.errors import UsageError
from outcore.formats.defaults import PLAIN_SUFFIX
from outcore.formats.scratch import forget_termination, remove_at_termination, scratch_folder
from outcore.problems.unstructured.tables import Table, make_table
from outcore.ranks.ranks import Ranks

__all__ = ["Share", "make_scratch_name"]

#: Number of values that a rank sends at a time; each rank receives that many from every rank.
_MESSAGE = 1 << 14


class Share:
    """
    Ranks of one inspection, which make the same calls.

    `budget` is the smallest memory budget of any process with some of the ranks. Temporary tables are
    created next to the first path in `near` whose folder is writable.
    """

    def __init__(self, ranks: Ranks, budget: int, near: Sequence[str] = ()) -> None:
        self.ranks, self.near = ranks, list(near)
        #: Bytes for the buffers of a rank, equal on all ranks, so that all cut the work in the same way.
        self.room = budget // 2 // self._count_ranks_per_process()
        self._folder: str | None = None
        self._tables: list[Table] = []

    @classmethod
    def alone(cls, near: Sequence[str] = ()) -> Self:
        """Return a share of one process."""
        return cls(Ranks.of(None, ""), int(outcore.memory()), near)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.ranks.size

    def _count_ranks_per_process(self) -> int:
        """Return the largest number of ranks that are threads of one process and share its budget."""
        if self.size == 1:
            return 1
        mine = [self.ranks.node, os.getpid()]
        found = self.ranks.allgather(np.array(mine, np.int64))
        return int(np.unique(found, axis=0, return_counts=True)[1].max())

    def rows(self, count: int) -> tuple[int, int]:
        """Return the first of `count` rows that this rank reads, and the end of its rows."""
        rank, size = self.ranks.rank, self.size
        return count * rank // size, count * (rank + 1) // size

    def needs(self, out: Any, what: str) -> None:
        """Raise `UsageError` if several ranks would make a result that only one could find."""
        if self.size > 1 and out is None:
            raise UsageError(
                f"{self.size} ranks make {what} together, which must be saved where all of them see it; "
                "pass out=, a folder",
                code="missing-argument",
            )

    # Communication

    def sums(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sums over lower ranks, and over all ranks, in the shape of `values`."""
        flat = values.reshape(-1)
        if self.size == 1:
            return np.zeros_like(values), values
        before, total = np.empty_like(flat), np.empty_like(flat)
        for low in range(0, flat.size, _MESSAGE):
            some = slice(low, min(low + _MESSAGE, flat.size))
            found = self.ranks.allgather(np.ascontiguousarray(flat[some]))
            before[some] = found[: self.ranks.rank].sum(axis=0)
            total[some] = found.sum(axis=0)
        return before.reshape(values.shape), total.reshape(values.shape)

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums over all ranks."""
        return self.sums(values)[1]

    def box(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest `low` and the largest `high` of all ranks, element by element."""
        if self.size == 1:
            return low, high
        mine = np.stack([low, -high]).reshape(-1)
        found = np.empty_like(mine)
        for begin in range(0, mine.size, _MESSAGE):
            some = slice(begin, min(begin + _MESSAGE, mine.size))
            found[some] = self.ranks.allgather(mine[some].view(np.int64)).view(np.float64).min(0)
        least, most = found.reshape(2, *low.shape)
        return least, -most

    def largest(self, value: Any) -> Any:
        """Return the largest number of any rank."""
        if self.size == 1:
            return value
        # `repr` of a floating-point number reads back exactly, and integers may have any size.
        said = self.ranks.gather_bytes(repr(value).encode())
        kind = float if isinstance(value, float) else int
        return max(kind(one) for one in said)

    def gather(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return arrays of equally many 64-bit numbers, concatenated over all ranks in order."""
        if self.size == 1:
            return list(columns)
        length = columns[0].size
        (counts,) = self.ranks.allgather(np.array([length], np.int64)).T
        begins = np.r_[0, counts.cumsum()]
        found = [np.empty(int(begins[-1]), one.dtype) for one in columns]
        for low in range(0, int(counts.max(initial=0)), _MESSAGE):
            for one, all_of_it in zip(columns, found, strict=True):
                piece = np.zeros(_MESSAGE, np.int64)
                mine = one[low : low + _MESSAGE].view(np.int64)
                piece[: mine.size] = mine
                pieces = self.ranks.allgather(piece).view(one.dtype)
                for rank, count in enumerate(counts.tolist()):
                    taken = min(max(count - low, 0), _MESSAGE)
                    at = int(begins[rank]) + low
                    all_of_it[at : at + taken] = pieces[rank, :taken]
        return found

    def barrier(self) -> None:
        """Wait for all ranks; after this, data written by any rank may be read."""
        if self.size > 1:
            self.ranks.barrier()

    # Tables

    def table(
        self, shape: tuple[int, ...], dtype: Any, path: str | None = None, *, counted: bool = False
    ) -> Table:
        """
        Make a table of zeros that all ranks read and write. Collective.

        With several ranks, it is a file. A table without `path` is deleted with the share.
        """
        if self.size == 1:
            return make_table(shape, dtype, self.near, path, counted=counted)
        if path is None:
            path = os.path.join(self._make_scratch(), f"{len(self._tables)}{PLAIN_SUFFIX}")
        where = path
        self.ranks.run_on_first(lambda: create(where, shape, dtype, overwrite=True).close())
        array = self.ranks.run_on_all(lambda: open(where, "r+"))
        self._tables.append(array)
        return array

    def _make_scratch(self) -> str:
        """Return the folder of temporary tables, which the first rank makes and removes."""
        if self._folder is None:

            def make() -> str:
                self._folder = make_scratch_name(self.near)
                os.makedirs(self._folder)
                remove_at_termination(partial(shutil.rmtree, self._folder, True), self._folder)
                return self._folder

            self._folder = str(self.ranks.broadcast_from_first(make))
        return self._folder

    def close(self) -> None:
        """Close and delete temporary tables. Not collective: files disappear with their last handle."""
        for table in self._tables:
            table.close()
        self._tables.clear()
        if self._folder is not None and self.ranks.is_first:
            shutil.rmtree(self._folder, ignore_errors=True)
            forget_termination(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.close()


def make_scratch_name(near: Sequence[str]) -> str:
    """Return the name of a folder that all ranks see, recognisable after its process has ended."""
    name = f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}.loop"
    return os.path.join(scratch_folder(near), name)
