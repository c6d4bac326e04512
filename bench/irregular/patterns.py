"""
Index lists, and what an array has at an index.

Problem: that a gather is right has to be seen without a second array, and that a scatter is right in an
array of 4 GiB without minutes of arithmetic.
Idea: element `i` is ``i`` with its last 20 bits replaced by an entry of a table: the same ones plus a
fraction of 16 hashed bits. All elements differ, so a wrong place shows; a slab of 2^20 elements is one
addition. The fraction keeps compressed chunks honest: they shrink to about two fifths.
Invariant: whatever is written besides is `values(i)` plus a multiple of 1/65536 below 1, hence exact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

SLAB = 1 << 20
ROW = 512
"""Elements of a row of 4 kB."""
# Indices at the size of the issue, for arrays of 2^29 (points), 2^27 (chunks) and 2^29 (rows) elements.
_POINTS, _POINTS_OF = 10_000_000, 1 << 29
_ROWS = 100_000
_NEIGHBOURS = 1000
KINDS = ("random", "sorted", "clustered", "mask 10 %", "rows of 4 kB")


@functools.cache
def _table() -> np.ndarray:
    low = np.arange(SLAB, dtype=np.uint64)
    hashed = ((low * np.uint64(2654435761)) >> np.uint64(7)) & np.uint64(0xFFFF)
    return low.astype(np.float64) + hashed.astype(np.float64) / 65536


def values(index: np.ndarray) -> np.ndarray:
    """What an array has at these indices (int64): float64 of the same shape."""
    found = np.empty(index.shape)
    for at in range(0, len(index), SLAB):
        some = index[at : at + SLAB]
        found[at : at + SLAB] = (some & ~(SLAB - 1)) + _table()[some & (SLAB - 1)]
    return found


def slabs(n: int) -> Iterator[tuple[int, np.ndarray]]:
    """First index and elements of each slab of an array of `n` elements; a slab is overwritten."""
    slab = np.empty(SLAB)
    for at in range(0, n, SLAB):
        np.add(_table(), float(at), out=slab)
        yield at, slab[: n - at]


@dataclass
class Pattern:
    """
    What is gathered or scattered.

    Attributes
    ----------
    kind
        One of `KINDS`.
    key
        int64 indices of elements or rows, or a boolean mask over the array.
    rows
        Whether the array has two axes, and `key` is of rows.
    """

    kind: str
    key: np.ndarray
    rows: bool = False

    @functools.cached_property
    def index(self) -> np.ndarray:
        """The indices that the key names, in its order."""
        return np.flatnonzero(self.key) if self.key.dtype == bool else self.key

    @functools.cached_property
    def where(self) -> np.ndarray:
        """The indices once each, ascending."""
        return self.index if self.key.dtype == bool else np.unique(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return 8 * len(self.index) * (ROW if self.rows else 1)

    def right(self, got: Any) -> bool:
        """Whether a gather gave what it should."""
        shape = (len(self.index), ROW) if self.rows else (len(self.index),)
        if not isinstance(got, np.ndarray) or got.shape != shape or got.dtype != np.float64:
            return False
        some, of = (max(SLAB // ROW, 1), row_values) if self.rows else (SLAB, values)
        return all(
            np.array_equal(got[at : at + some], of(self.index[at : at + some]))
            for at in range(0, len(got), some)
        )

    def value(self) -> np.ndarray:
        """What a scatter writes, before the fraction of its turn is added."""
        if not self.rows:
            return values(self.index)
        found = np.empty((len(self.index), ROW))
        some = max(SLAB // ROW, 1)
        for at in range(0, len(found), some):
            found[at : at + some] = row_values(self.index[at : at + some])
        return found


def row_values(rows: np.ndarray) -> np.ndarray:
    """Elements of some rows."""
    flat = rows[:, None] * ROW + np.arange(ROW, dtype=np.int64)
    return values(flat.reshape(-1)).reshape(flat.shape)


def points_of(n: int, most: int = _POINTS, of: int = _POINTS_OF) -> int:
    """How many of `n` elements are wanted: as many of them as `most` are of `of`, at least 1000."""
    return max(most * n // of, _NEIGHBOURS)


def pattern(kind: str, n: int, points: int) -> Pattern:
    """
    An index list.

    Parameters
    ----------
    kind
        One of `KINDS`.
    n
        Elements of the array.
    points
        How many are wanted; of rows a hundredth of it, of a mask a tenth of the array.
    """
    rng = np.random.default_rng(20)
    if kind in ("random", "sorted"):
        index = rng.integers(0, n, points)
        return Pattern(kind, np.sort(index) if kind == "sorted" else index)
    if kind == "clustered":
        first = rng.integers(0, n - _NEIGHBOURS, max(points // _NEIGHBOURS, 1))
        return Pattern(kind, (first[:, None] + np.arange(_NEIGHBOURS)).reshape(-1))
    if kind == "mask 10 %":
        mask = np.empty(n, bool)
        for at in range(0, n, SLAB):
            some = mask[at : at + SLAB]
            some[:] = rng.integers(0, 10, len(some), dtype=np.uint8) == 0
        return Pattern(kind, mask)
    return Pattern(kind, rng.integers(0, n // ROW, max(points * _ROWS // _POINTS, 10)), rows=True)
