"""
Check the arrays of an edge loop: those that the kernel reads, and those that it adds to.

Problem: a loop accepts paths, open arrays and arrays in memory, and updates some of them in place. If an
array is read and updated, or updated twice, the result would depend on how the loop is cut.
Approach: each array is opened, named, and compared with the others before any data is transferred.
Invariants: an updated array is writable, and has no other use. Handles opened here are closed with the
stack of the call.

Reference: PASSION report, section 4.4.3, Figure 7.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import outcore
from outcore.arrays.disk import DiskArray
from outcore.arrays.tiling import Side
from outcore.compute.jobs import InMemory, Source, open_inputs
from outcore.errors import UsageError, suggest_name
from outcore.formats.layout import Strided
from outcore.formats.paths import one_name
from outcore.problems.unstructured.localize import COMBINE
from outcore.problems.unstructured.tables import Table, make_native

__all__ = ["LoopArray", "check_not_shared", "get_neutral", "open_to_read", "open_to_update"]

#: Maximum number of steps for deciding whether two arrays in memory share an element.
_WORK = 10**6


@dataclass(frozen=True)
class LoopArray:
    """One array of a loop."""

    name: str
    table: Table
    combine: str | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of its rows in memory."""
        return make_native(self.table.dtype)

    @property
    def tail(self) -> tuple[int, ...]:
        """Shape of a row."""
        return tuple(self.table.shape[1:])

    @property
    def row(self) -> int:
        """Number of elements of a row."""
        return int(np.prod(self.tail, dtype=np.int64))

    @property
    def in_memory(self) -> bool:
        """Whether it is an array of this process."""
        return isinstance(self.table, InMemory)

    def is_shared(self, ranks: int, blocks: int) -> bool:
        """
        Return whether parts that are stored whole have rows of several ranks or several blocks.

        A chunk with codecs would be decoded and encoded for each block that has one of its nodes.
        """
        if self.in_memory:
            return False
        info = self.table.info
        if ranks > 1:
            return not isinstance(info.layout, Strided)
        return blocks > 1 and Side.of(info).whole


def open_to_read(stack: contextlib.ExitStack, arrays: Mapping[str, Source]) -> list[LoopArray]:
    """Open the arrays that the kernel reads."""
    tables = stack.enter_context(open_inputs(*arrays.values()))
    return [LoopArray(name, table) for name, table in zip(arrays, tables, strict=True)]


def open_to_update(stack: contextlib.ExitStack, name: str, what: Any) -> LoopArray:
    """Open an array that the kernel updates, with its way to combine."""
    array, combine = what if isinstance(what, tuple) else (what, "add")
    if combine not in COMBINE:
        raise UsageError(
            f"updates[{name!r}]: combining by {combine!r} is not "
            f"possible{suggest_name(combine, COMBINE)} Known: {', '.join(COMBINE)}",
            code="bad-option",
        )
    if isinstance(array, str | os.PathLike):
        array = stack.enter_context(outcore.open(one_name(array), "r+"))
    elif isinstance(array, np.ndarray):
        if not array.flags.writeable:
            raise UsageError(
                f"updates[{name!r}] is read-only; pass a writable array", code="bad-out"
            )
        array = InMemory(array, f"updates[{name!r}]")
    elif not isinstance(array, DiskArray):
        raise UsageError(
            f"updates[{name!r}] is a {type(array).__name__}; pass a path, a DiskArray or a NumPy array, "
            "which is changed in place",
            code="bad-out",
        )
    elif not array.writable:
        raise UsageError(
            f"updates[{name!r}], {array.path!r}, was opened for reading; open it with mode 'r+'",
            code="bad-out",
            path=array.path,
        )
    if array.dtype.kind not in ("iufc" if combine == "add" else "iuf"):
        raise UsageError(
            f"updates[{name!r}] has dtype {array.dtype}, which cannot be combined by {combine!r}; use "
            "integers or floating-point numbers",
            code="bad-dtype",
        )
    return LoopArray(name, array, combine)


def get_neutral(one: LoopArray) -> Any:
    """Return the value that changes nothing when it is combined."""
    if one.combine == "add":
        return 0
    if one.dtype.kind == "f":
        return np.inf if one.combine == "min" else -np.inf
    limits = np.iinfo(one.dtype)
    return limits.max if one.combine == "min" else limits.min


def check_not_shared(updates: Sequence[LoopArray], others: Sequence[LoopArray]) -> None:
    """Raise `UsageError` if an updated array has another use: a kernel would see old or new values."""
    for n, one in enumerate(updates):
        for other in [*updates[:n], *others]:
            if _is_same(one.table, other.table):
                raise UsageError(
                    f"{one.name!r} and {other.name!r} are the same array; an updated array can have no "
                    "other use, so update a copy",
                    code="bad-out",
                )


def _is_same(a: Table, b: Table) -> bool:
    if isinstance(a, InMemory) and isinstance(b, InMemory):
        work: Any = _WORK  # NumPy's type stubs do not accept a number
        try:
            return bool(np.shares_memory(a.data, b.data, max_work=work))
        except np.exceptions.TooHardError:
            return True  # undecided: assume that they do
    if isinstance(a, InMemory) or isinstance(b, InMemory):
        return False
    return bool(os.path.realpath(a.path) == os.path.realpath(b.path))
