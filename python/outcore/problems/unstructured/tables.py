"""
Tables with one entry for each element or edge, in memory or on disk, and passes over them.

Problem: partitions, translation tables and edges have an entry for each node or edge of a mesh, so they
may be larger than memory, and every preprocessing step reads them.
Approach: a table is an `outcore.compute.jobs.InMemory` if it fits an eighth of the memory budget,
otherwise a temporary array on disk; both are read and written by sections. A pass reads slabs, the next
one in the background.
Invariants: a pass holds two slabs. Slabs come in the order of the file, in native byte order. A saved
folder is complete if it has a manifest, which is written last.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import create, open
from outcore.compute.jobs import InMemory, Result
from outcore.compute.jobs.temporaries import create_temporary
from outcore.errors import BudgetError, FormatError, UsageError, budget_error
from outcore.formats import durable
from outcore.formats.defaults import PLAIN_SUFFIX
from outcore.formats.documents import Document, Judge
from outcore.formats.manifests import ManifestKind
from outcore.formats.paths import one_name
from outcore.formats.scratch import scratch_folder

__all__ = [
    "Table",
    "as_table",
    "check_dtype",
    "check_edges",
    "check_indices",
    "check_part",
    "count_rows",
    "describe",
    "forget_manifest",
    "get_room_bytes",
    "get_value",
    "make_budget_error",
    "make_native",
    "make_path",
    "make_table",
    "open_table",
    "read_manifest",
    "read_slabs",
]

#: `DiskArray` or `InMemory`; both have shape, dtype, path, iread, iwrite and close.
Table = Any

#: A table in memory that users keep may use the budget divided by this number, in addition to the
#: budget.
_IN_MEMORY = 8
#: Same for a table used only within an operation, counted in the budget; there may be three of them.
_COUNTED = 24
#: Slabs with fewer rows are not worth the overhead of a call.
_FEWEST = 64


def describe(table: Table) -> str:
    """Return a description that must be equal on all ranks that use a table."""
    place = os.path.realpath(table.path) if isinstance(table, DiskArray) else "in memory"
    return f"{place} {table.shape} {table.dtype}"


def get_room_bytes() -> int:
    """Return the bytes for the buffers of one operation: half of the budget; reads use the rest."""
    return int(outcore.memory()) // 2


def make_budget_error(what: str, needed: int, advice: str = "") -> BudgetError:
    """Return the error for work that needs this many bytes of buffers, which are half of the budget."""
    return budget_error(
        what,
        needed,
        f"at most half of the memory budget of {int(outcore.memory())} bytes is available for buffers",
        2 * needed,
        instead=advice,
    )


def count_rows(nbytes: int, each: int, what: str) -> int:
    """Return how many rows of `each` bytes fit; raise `BudgetError` if 64 do not."""
    rows = nbytes // max(each, 1)
    if rows < _FEWEST:
        raise make_budget_error(
            f"a slab of {_FEWEST} rows for {what}",
            get_room_bytes() * _FEWEST * each // max(nbytes, 1),
        )
    return rows


class _ReservedTable(InMemory):
    """Table used only within an operation, counted in the memory budget."""

    def __init__(self, data: NDArray[Any], held: _core.Reservation) -> None:
        super().__init__(data, "a table in memory")
        self._held = held

    def close(self) -> None:
        """Release its memory."""
        self.data = np.zeros(0, self.data.dtype)
        self._held.release()


def make_table(
    shape: tuple[int, ...],
    dtype: Any,
    near: Sequence[str] = (),
    path: str | None = None,
    *,
    counted: bool = False,
) -> Table:
    """
    Make a table of zeros: at `path`, or in memory if it fits an eighth of the budget, or temporary.

    A temporary array is created next to the first path in `near` whose folder is writable. `counted`:
    the table is used only within an operation; in memory it is then counted in the budget, and smaller.
    """
    dtype = np.dtype(dtype)
    if path is not None:
        return create(path, shape, dtype, overwrite=True)
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if counted and nbytes <= int(outcore.memory()) // _COUNTED:
        with contextlib.suppress(BudgetError):  # no memory is free: use the disk
            held = _core.Reservation("table", nbytes)
            return _ReservedTable(np.zeros(shape, dtype), held)
    elif not counted and nbytes <= int(outcore.memory()) // _IN_MEMORY:
        return InMemory(np.zeros(shape, dtype), "a table in memory")
    return create_temporary(Result(shape, dtype), scratch_folder(near))


def as_table(array: Any, name: str = "an array in memory") -> Table:
    """Return an array of either kind as a table."""
    return array if isinstance(array, DiskArray | InMemory) else InMemory(np.asarray(array), name)


def get_value(table: Table) -> Any:
    """Return the user's view of a table: a NumPy array or a `DiskArray`."""
    return table.data if isinstance(table, InMemory) else table


def make_native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """
    Return a dtype in native byte order; for numbers, the same object that NumPy uses.

    `numpy.add.at` is twenty times slower if operands have equal dtypes that are different objects, as
    `numpy.dtype.newbyteorder` makes them.
    """
    found = dtype.newbyteorder("=")
    return np.dtype(found.str) if found.kind in "biufc" else found


def read_slabs(table: Table, rows: int, begin: int = 0, end: int | None = None) -> Iterator[Any]:
    """Yield first row, end and rows of some rows of a table, slab by slab; two slabs are in memory."""
    end = table.shape[0] if end is None else end
    dtype = make_native(table.dtype)
    if isinstance(table, InMemory):  # a view, because slabs are never changed
        for low in range(begin, end, rows):
            high = min(low + rows, end)
            yield low, high, table.data[low:high].astype(dtype, copy=False)
        return
    tail = tuple(slice(0, n) for n in table.shape[1:])
    following = None
    try:
        for low in range(begin, end, rows):
            high = min(low + rows, end)
            request = following or table.iread((slice(low, high), *tail))
            data = request.wait()
            following = None
            if high < end:
                following = table.iread((slice(high, min(high + rows, end)), *tail))
            yield low, high, np.asarray(data).astype(dtype, copy=False)
    finally:
        if following is not None:
            following.cancel()
            following.finish(unwanted=True)


def check_indices(indices: NDArray[Any], length: int, first: int, name: str) -> None:
    """
    Raise `SectionError` unless all indices are in ``0..length-1``.

    The message gives the position in the array `name`, in which this slab begins at row `first`.
    """
    if not indices.size or (int(indices.min()) >= 0 and int(indices.max()) < length):
        return
    where = np.argwhere((indices < 0) | (indices >= length))[0]
    value = indices[tuple(where)]
    place = ", ".join(str(int(n) + (first if axis == 0 else 0)) for axis, n in enumerate(where))
    raise outcore.errors.SectionError(
        f"{name}{f'[{place}]' if place else ''} is {int(value)}, which is out of range; use "
        f"0..{length - 1} (negative indices do not count from the end here)",
        code="index-out-of-bounds",
    )


def check_part(part: SupportsIndex, parts: int) -> int:
    """Return a valid part number as an integer; raise `SectionError` if the part does not exist."""
    number = operator.index(part)
    check_indices(np.array(number), parts, 0, "the part number")
    return number


# Folders


def make_path(folder: str | os.PathLike[str], name: str) -> str:
    """Return the path of an array in a folder, which is created if needed."""
    with durable.os_errors("creating", one_name(folder)):
        os.makedirs(one_name(folder), exist_ok=True)
    return os.path.join(one_name(folder), name + PLAIN_SUFFIX)


def forget_manifest(folder: str | os.PathLike[str], name: str) -> None:
    """Remove the manifest, if there is one, before arrays of the folder change."""
    path = os.path.join(one_name(folder), name)
    with durable.os_errors("removing", path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def read_manifest(
    folder: str | os.PathLike[str], name: str, kind: ManifestKind
) -> tuple[Document, Judge]:
    """Return the manifest of a folder, and the judge of its fields; `NotFoundError`: there is none."""
    path = os.path.join(one_name(folder), name)
    document = kind.read(path)
    if document is None:
        raise outcore.errors.NotFoundError(
            f"{one_name(folder)!r} has no {name!r}, so {kind.contents} is missing or incomplete; create "
            "it again",
            code="not-found",
            path=path,
        )
    return document, kind.make_judge(path)


def open_table(folder: str | os.PathLike[str], name: str, shape: tuple[int, ...]) -> Table:
    """Open a saved table; raise `FormatError` unless it has this shape and signed integers."""
    array = open(os.path.join(one_name(folder), name + PLAIN_SUFFIX))
    if array.shape != shape or array.dtype.kind != "i":
        array.close()
        raise FormatError(
            f"{array.path!r} has shape {array.shape} and dtype {array.dtype}, but its manifest "
            f"specifies {shape} and integers; the folder was changed, make it again",
            code="bad-metadata",
            path=array.path,
        )
    if array.nbytes <= int(outcore.memory()) // _IN_MEMORY:
        data = array[...]
        path = array.path
        array.close()
        return InMemory(data, path)
    return array


def check_dtype(array: Table, kinds: str, name: str, wanted: str) -> None:
    """Raise `UsageError` unless the dtype of an array has one of these `kinds`."""
    if array.dtype.kind not in kinds:
        raise UsageError(
            f"{name} has dtype {array.dtype}; {wanted}", code="bad-dtype", path=_get_path(array)
        )


def check_edges(edges: Table) -> None:
    """Raise `UsageError` unless `edges` is a table of integers with one row for each edge."""
    if edges.ndim != 2 or not edges.shape[1]:
        raise UsageError(
            f"edges have shape {edges.shape}; pass (m, k): a row of k elements for each edge",
            code="bad-shape",
        )
    check_dtype(edges, "iu", "edges", "use integers: the elements that each edge joins")


def _get_path(array: Table) -> str | None:
    return array.path if isinstance(array, DiskArray) else None
