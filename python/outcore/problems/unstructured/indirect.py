"""
Rows of an array by their indices: gather, scatter, and an array seen through indices on disk.

Problem. A partition wants rows that lie anywhere in a file, and an executor of schedules knows sections.
Idea. Row `i` of an `Indirect` is row ``index[i]`` of its base, and `index` is a table. A section of it
is read by a gather and written by a scatter, in the background like any other; so a loop over partitions
is a schedule of sections, and the executor that there is runs it.

Invariants. A gather reads in the order of the file, whatever the order of the indices. A scatter writes
the rows that it names and touches no others; a row that is named twice gets the later value.

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

__all__ = ["THREADS", "Indirect", "gather", "in_pieces", "scatter", "scratch"]

#: Gathers and scatters that are done at once, at most: threads of `outcore.base.requests`.
THREADS = 4
#: Bytes that an index takes while rows are gathered or scattered: itself here, addresses in the core.
_EACH, _IN_CORE = 8, 48


def scratch() -> int:
    """Bytes of the indices of a piece; what the core takes beside them it counts itself."""
    return int(outcore.memory()) // 64


def in_pieces(rows: int, each: int = 0) -> Iterator[slice]:
    """So many rows cut into pieces that are gathered at a time, with `each` more bytes of a row."""
    piece = max(scratch() // (_EACH + _IN_CORE + each), 64)
    return (slice(low, min(low + piece, rows)) for low in range(0, rows, piece))


def gather(array: Table, indices: NDArray[Any], out: NDArray[Any]) -> None:
    """
    Read rows: ``out[...] = array[indices]``.

    Parameters
    ----------
    array
        A `DiskArray` or `InMemory`.
    indices
        Of shape (r,), in range, in any order.
    out
        Of shape (r, ...), of the dtype of `array`.
    """
    if isinstance(array, InMemory):
        out[...] = array.data[indices]
    else:
        array.read(indices, out=out)


def scatter(array: Table, indices: NDArray[Any], values: NDArray[Any]) -> None:
    """
    Write rows: ``array[indices] = values``.

    Parameters
    ----------
    array
        A `DiskArray` or `InMemory`.
    indices
        Of shape (r,), in range, in any order.
    values
        Of shape (r, ...).
    """
    if isinstance(array, InMemory):
        array.data[indices] = values
    else:
        array[indices] = values


class Indirect:
    """
    An array whose row `i` is row ``index[i]`` of another one.

    Parameters
    ----------
    base
        A `DiskArray` or `InMemory`.
    index
        A table of integers; only the parts of it that are asked for are read.

    Notes
    -----
    What a schedule needs of an array (`outcore.arrays.schedule.OnDisk`): sections are read and written
    in the background. Whoever runs it reserves `scratch` for each of the threads that do it (`THREADS`):
    a request that asked for it by itself could be refused while others wait for memory.
    """

    info = None

    def __init__(self, base: Table, index: Table) -> None:
        self._base, self._index = base, index

    @property
    def shape(self) -> tuple[int, ...]:
        """As many rows as there are indices."""
        return (int(self._index.shape[0]), *self._base.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the base."""
        found: np.dtype[Any] = self._base.dtype
        return found

    @property
    def path(self) -> str:
        """That of the base."""
        return str(self._base.path)

    def iread(self, key: Section, *, out: NDArray[Any]) -> IORequest[Any]:
        """Start to gather a section."""
        self._check(key)

        def work() -> None:
            for some in in_pieces(len(out)):
                gather(self._base, self._rows(key[0], some), out[some])

        return start(work, f"gather from {self.path!r}", reads=True)

    def iwrite(self, key: Section, value: NDArray[Any]) -> IORequest[None]:
        """Start to scatter a section."""
        self._check(key)

        def work() -> None:
            for some in in_pieces(len(value)):
                scatter(self._base, self._rows(key[0], some), value[some])

        return start(work, f"scatter to {self.path!r}")

    def _check(self, key: Section) -> None:
        whole = zip(key[1:], self._base.shape[1:], strict=True)
        assert all(part == slice(0, n) for part, n in whole), "sections have whole rows"

    def _rows(self, section: slice, some: slice) -> NDArray[Any]:
        """Which rows of the base some rows of a section are."""
        first = section.start + some.start
        found: NDArray[Any] = self._index[first : section.start + some.stop]
        rows = self._base.shape[0]
        # Negative numbers would be taken for others, counted from the end.
        if found.size and not (int(found.min()) >= 0 and int(found.max()) < rows):
            raise FormatError(
                f"{self._index.path!r} names rows {int(found.min())} to {int(found.max())} at "
                f"{first}..{first + found.size - 1}, of {rows} that {self.path!r} has; it was damaged, "
                "make the schedule again",
                code="bad-metadata",
                path=self._index.path,
            )
        return found
