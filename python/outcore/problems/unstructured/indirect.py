"""
Gather and scatter rows of an array by index, and access an array through indices on disk.

Problem: a partition needs rows from anywhere in a file, but the executor of schedules handles only
sections.
Approach: row `i` of an `Indirect` is row ``index[i]`` of its base, where `index` is a table. A section
of it is read by a gather and written by a scatter, in the background like any other section. So a loop
over partitions is a schedule of sections, and the existing executor runs it.
Invariants: a gather reads in the order of the file, whatever the order of the indices. A scatter writes
only the rows that it names; a row that is named twice gets the later value.

Reference: PASSION report, Table 5 (`oc_get_partition`, `oc_gather`, `oc_scatter`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore.arrays.schedule import Section
from outcore.base.requests import IORequest, start
from outcore.compute.jobs import InMemory
from outcore.errors import FormatError
from outcore.problems.unstructured.tables import Table

__all__ = ["THREADS", "Indirect", "gather", "get_scratch_bytes", "scatter", "split_rows"]

#: Maximum number of concurrent gathers and scatters: threads of `outcore.base.requests`.
THREADS = 4
#: Bytes per index during a gather or scatter: the index here, and addresses in the core.
_EACH, _IN_CORE = 8, 48


def get_scratch_bytes() -> int:
    """Return the bytes of the indices of a piece; the core counts its own memory."""
    return int(outcore.memory()) // 64


def split_rows(rows: int, each: int = 0) -> Iterator[slice]:
    """Return slices of `rows` rows that are gathered at a time, with `each` additional bytes per row."""
    piece = max(get_scratch_bytes() // (_EACH + _IN_CORE + each), 64)
    return (slice(low, min(low + piece, rows)) for low in range(0, rows, piece))


def gather(array: Table, indices: NDArray[Any], out: NDArray[Any]) -> None:
    """Read rows: ``out[...] = array[indices]``; indices are in range, in any order."""
    if isinstance(array, InMemory):
        out[...] = array.data[indices]
    else:
        array.read(indices, out=out)


def scatter(array: Table, indices: NDArray[Any], values: NDArray[Any]) -> None:
    """Write rows: ``array[indices] = values``; indices are in range, in any order."""
    if isinstance(array, InMemory):
        array.data[indices] = values
    else:
        array[indices] = values


class Indirect:
    """
    Array whose row `i` is row ``index[i]`` of another array.

    It has the interface that a schedule needs of an array (`outcore.arrays.schedule.AsyncArray`):
    sections are read and written in the background. The caller of the schedule reserves `scratch` for
    each of the `THREADS` threads. If each request reserved its own memory, it could fail while others
    wait for memory.
    """

    info = None

    def __init__(self, base: Table, index: Table) -> None:
        self._base, self._index = base, index

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape with one row for each index."""
        return (int(self._index.shape[0]), *self._base.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the base."""
        found: np.dtype[Any] = self._base.dtype
        return found

    @property
    def path(self) -> str:
        """Path of the base."""
        return str(self._base.path)

    def iread(self, key: Section, *, out: NDArray[Any]) -> IORequest[Any]:
        """Start to gather a section."""
        self._check(key)

        def work() -> None:
            for some in split_rows(len(out)):
                gather(self._base, self._read_row_numbers(key[0], some), out[some])

        return start(work, f"gather from {self.path!r}", reads=True)

    def iwrite(self, key: Section, value: NDArray[Any]) -> IORequest[None]:
        """Start to scatter a section."""
        self._check(key)

        def work() -> None:
            for some in split_rows(len(value)):
                scatter(self._base, self._read_row_numbers(key[0], some), value[some])

        return start(work, f"scatter to {self.path!r}")

    def _check(self, key: Section) -> None:
        whole = zip(key[1:], self._base.shape[1:], strict=True)
        assert all(part == slice(0, n) for part, n in whole), "sections have whole rows"

    def _read_row_numbers(self, section: slice, some: slice) -> NDArray[Any]:
        """Return the rows of the base for some rows of a section."""
        first = section.start + some.start
        found: NDArray[Any] = self._index[first : section.start + some.stop]
        rows = self._base.shape[0]
        # NumPy would count negative numbers from the end.
        if found.size and not (int(found.min()) >= 0 and int(found.max()) < rows):
            raise FormatError(
                f"{self._index.path!r} refers to rows {int(found.min())} to {int(found.max())} at "
                f"{first}..{first + found.size - 1}, but {self.path!r} has {rows} rows; the schedule is "
                "damaged, make it again",
                code="bad-metadata",
                path=self._index.path,
            )
        return found
