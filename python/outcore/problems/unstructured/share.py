"""
The ranks that inspect an unstructured problem together, and the part that each of them walks through.

Problem. Coordinates and edges are walked over several times before anything is computed. One rank that
does so while the others wait takes as long as if there were no others, and what it finds is needed by
all.
Idea. Each rank walks through neighbouring rows of its own. What is counted is added up over the ranks;
what has a place behind all that came before it begins behind that of lower ranks, so that rows have the
places that one process would give them. Tables that all of them fill are files that all have open.

Invariants. Sums are of integers: they do not depend on how many ranks there are. All ranks make the same
calls. Each entry of a table is written by one rank, and read by others behind a `barrier` of all.
Whoever fails between two of these calls has the others fail at the next one
(`outcore.ranks.agreement`).

Reference: PASSION report, section 4.4.2 (pre-processing by all processors); R. Das et al. (1994), on
translation tables that are distributed.
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
from outcore.formats.scratch import at_termination, forget_termination, scratch_folder
from outcore.problems.unstructured.tables import Table, new_table
from outcore.ranks.ranks import Ranks

__all__ = ["Share", "scratch_name"]

#: Numbers of a rank that travel at once: what arrives is as many times that as there are ranks.
_MESSAGE = 1 << 14


class Share:
    """
    The ranks of one inspection.

    Parameters
    ----------
    ranks
        The ranks, which make the same calls.
    budget
        The least memory budget of any process that has some of them.
    near
        Paths: temporary tables go beside the first whose folder may be written to.
    """

    def __init__(self, ranks: Ranks, budget: int, near: Sequence[str] = ()) -> None:
        self.ranks, self.near = ranks, list(near)
        #: Bytes that the buffers of any rank may take: what is cut by it is cut alike on all.
        self.room = budget // 2 // self._sharing_a_process()
        self._folder: str | None = None
        self._tables: list[Table] = []

    @classmethod
    def alone(cls, near: Sequence[str] = ()) -> Self:
        """One process."""
        return cls(Ranks.of(None, ""), int(outcore.memory()), near)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.ranks.size

    def _sharing_a_process(self) -> int:
        """How many ranks are threads of one process, and share its budget: at most, of any process."""
        if self.size == 1:
            return 1
        mine = [self.ranks.group.nodes[self.ranks.rank], os.getpid()]
        found = self.ranks.group.allgather(np.array(mine, np.int64))
        return int(np.unique(found, axis=0, return_counts=True)[1].max())

    def rows(self, count: int) -> tuple[int, int]:
        """The first of so many rows that this rank walks through, and one past the last."""
        rank, size = self.ranks.rank, self.size
        return count * rank // size, count * (rank + 1) // size

    def needs(self, out: Any, what: str) -> None:
        """Refuse to make what several ranks would not find."""
        if self.size > 1 and out is None:
            raise UsageError(
                f"{self.size} ranks make {what} together, which has to be where all of them see it; "
                "give out=, a folder",
                code="missing-argument",
            )

    # What ranks tell each other

    def sums(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sums over lower ranks, and over all; each of the shape of `values`."""
        flat = values.reshape(-1)
        if self.size == 1:
            return np.zeros_like(values), values
        before, total = np.empty_like(flat), np.empty_like(flat)
        for low in range(0, flat.size, _MESSAGE):
            some = slice(low, min(low + _MESSAGE, flat.size))
            found = self.ranks.group.allgather(np.ascontiguousarray(flat[some]))
            before[some] = found[: self.ranks.rank].sum(axis=0)
            total[some] = found.sum(axis=0)
        return before.reshape(values.shape), total.reshape(values.shape)

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums over all ranks."""
        return self.sums(values)[1]

    def box(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and greatest numbers of all ranks, element by element."""
        if self.size == 1:
            return low, high
        mine = np.stack([low, -high]).reshape(-1)
        found = np.empty_like(mine)
        for begin in range(0, mine.size, _MESSAGE):
            some = slice(begin, min(begin + _MESSAGE, mine.size))
            found[some] = (
                self.ranks.group.allgather(mine[some].view(np.int64)).view(np.float64).min(0)
            )
        least, most = found.reshape(2, *low.shape)
        return least, -most

    def largest(self, value: Any) -> Any:
        """The greatest number of any rank."""
        if self.size == 1:
            return value
        # Digits of a floating-point number that read back as the same; integers of any size.
        said = self.ranks.group.allgather_bytes(repr(value).encode())
        kind = float if isinstance(value, float) else int
        return max(kind(one) for one in said)

    def gathered(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Equally long arrays of 64-bit numbers: what all ranks have, in the order of ranks."""
        if self.size == 1:
            return list(columns)
        length = columns[0].size
        (counts,) = self.ranks.group.allgather(np.array([length], np.int64)).T
        begins = np.r_[0, counts.cumsum()]
        found = [np.empty(int(begins[-1]), one.dtype) for one in columns]
        for low in range(0, int(counts.max(initial=0)), _MESSAGE):
            for one, all_of_it in zip(columns, found, strict=True):
                piece = np.zeros(_MESSAGE, np.int64)
                mine = one[low : low + _MESSAGE].view(np.int64)
                piece[: mine.size] = mine
                pieces = self.ranks.group.allgather(piece).view(one.dtype)
                for rank, count in enumerate(counts.tolist()):
                    taken = min(max(count - low, 0), _MESSAGE)
                    at = int(begins[rank]) + low
                    all_of_it[at : at + taken] = pieces[rank, :taken]
        return found

    def barrier(self) -> None:
        """Wait until all ranks have come: what they have written may be read."""
        if self.size > 1:
            self.ranks.group.barrier()

    # Tables

    def table(
        self, shape: tuple[int, ...], dtype: Any, path: str | None = None, *, counted: bool = False
    ) -> Table:
        """
        A table of zeros that all ranks write to, and read. Collective.

        Parameters
        ----------
        shape, dtype, counted
            As of `new_table`; of several ranks it is a file.
        path
            Where it stays; by default it goes away with the share.
        """
        if self.size == 1:
            return new_table(shape, dtype, self.near, path, counted=counted)
        if path is None:
            path = os.path.join(self._scratch(), f"{len(self._tables)}.npy")
        where = path
        self.ranks.once(lambda: create(where, shape, dtype, overwrite=True).close())
        array = self.ranks.together(lambda: open(where, "r+"))
        self._tables.append(array)
        return array

    def _scratch(self) -> str:
        """The folder of temporary tables, which the first rank makes and removes."""
        if self._folder is None:

            def made() -> str:
                self._folder = scratch_name(self.near)
                os.makedirs(self._folder)
                at_termination(partial(shutil.rmtree, self._folder, True), self._folder)
                return self._folder

            self._folder = str(self.ranks.told(made))
        return self._folder

    def close(self) -> None:
        """Release what is temporary. Not collective: the files go away with the last handle."""
        for table in self._tables:
            table.close()
        self._tables.clear()
        if self._folder is not None and self.ranks.first:
            shutil.rmtree(self._folder, ignore_errors=True)
            forget_termination(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.close()


def scratch_name(near: Sequence[str]) -> str:
    """A folder that all ranks see; named so that it is found when its process is gone."""
    name = f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}.loop"
    return os.path.join(scratch_folder(near), name)
