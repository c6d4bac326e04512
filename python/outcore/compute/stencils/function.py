"""
Many steps of a function of neighbours in one pass: the counterpart of `_core.StencilPass` for
functions.

Problem. A step may be any NumPy computation with a block and the elements around it.
Idea. As in the core: positions count the rows of level 0 along the slowest axis, level `t` lags `t`
times the halo behind, and each level keeps the rows that the next one still needs. A function gets all
available rows, and only whole rows.

Invariants. Each element of each level is computed once. Elements outside the array are filled in before
the function is called.

Reference: Wonnacott, "Using time skewing to eliminate idle time", IPDPS 2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError

__all__ = ["FunctionPass", "find_sources"]

Function = Callable[[NDArray[Any]], Any]


def find_sources(boundary: str, first: int, last: int, n: int) -> NDArray[np.int64]:
    """
    Return the elements of an axis of length `n` that replace the indices from `first` to `last`.

    -1 stands for a constant.

    >>> find_sources("reflect", -2, 4, 3)
    array([1, 0, 0, 1, 2, 2])
    """
    index = np.arange(first, last)
    if boundary in ("constant", "untouched"):
        return np.where((index >= 0) & (index < n), index, -1)
    if boundary == "nearest":
        return np.clip(index, 0, n - 1)
    if boundary == "wrap":
        return index % n
    if boundary == "reflect":
        at = index % (2 * n)
        return np.minimum(at, 2 * n - 1 - at)
    at = index % max(2 * n - 2, 1)  # mirror
    return np.minimum(at, 2 * n - 2 - at)


@dataclass(frozen=True, slots=True)
class FunctionPass:
    """Many steps of a function in one pass over an array, the slowest axis first."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    #: Function from a block with its halo to new elements: of the block's shape, or without the
    #: halo.
    function: Function
    #: Number of neighbours that it needs, along each axis.
    halo: tuple[int, ...]
    #: Extension beyond the ends of each axis, with `cval`.
    boundary: tuple[str, ...]
    cval: Any
    #: Number of steps of the pass.
    levels: int
    #: Whether the function gets axes in the opposite order.
    backwards: bool
    rows: int
    #: Columns (of the second axis) whose largest change is measured.
    measured: tuple[int, int] | None

    @property
    def is_ring(self) -> bool:
        """Whether the slowest axis has no first row."""
        return self.boundary[0] == "wrap" and self.halo[0] > 0

    @property
    def positions(self) -> int:
        """Number of positions of the whole pass."""
        return self.shape[0] + (2 if self.is_ring else 1) * self.levels * self.halo[0]

    def _domain(self, level: int) -> tuple[int, int]:
        first = level * self.halo[0] if self.is_ring else 0
        return first, first + self.shape[0]

    def _compute_reach(self, level: int, position: int) -> int:
        first, last = self._domain(level)
        return min(max(position - level * self.halo[0], first), last)

    def ready(self, start: int, stop: int) -> tuple[int, int]:
        """Return the rows of the last level that positions complete; a ring continues past its end."""
        return self._compute_reach(self.levels, start), self._compute_reach(self.levels, stop)

    @property
    def kept(self) -> int:
        """Number of elements kept from call to call."""
        rows = (4 if self.is_ring else 2) * self.halo[0]
        return self.levels * rows * math.prod(self.shape[1:])

    @property
    def scratch(self) -> int:
        """Number of elements of two levels of a call: rows with all their neighbours, and new rows."""
        around = [n + 2 * h for n, h in zip(self.shape[1:], self.halo[1:], strict=True)]
        rows = self.rows + 2 * self.halo[0]
        return rows * (2 * math.prod(self.shape[1:]) + math.prod(around))

    def run(
        self,
        new: NDArray[Any],
        out: NDArray[Any],
        kept: NDArray[Any],
        scratch: NDArray[Any],
        changes: NDArray[np.float64],
        start: int,
        stop: int,
    ) -> None:
        """Advance all levels by the positions from `start` to `stop`."""
        inner, halo, count = self.shape[1:], self.halo[0], stop - start
        size = math.prod(inner)
        twice = 2 * halo
        rows = twice + count
        levels = [
            scratch[k * (self.rows + twice) * size :][: rows * size].reshape(rows, *inner)
            for k in range(2)
        ]
        held = (4 if self.is_ring else 2) * halo
        kept = kept[: self.kept].reshape(self.levels, held, *inner)
        around = scratch[2 * (self.rows + twice) * size :]
        here = levels[0]
        here[twice : twice + len(new)] = new
        for level in range(self.levels):
            last, head = kept[level, :twice], kept[level, twice:]
            # First row of this level in `here`.
            corner = start - level * halo - twice
            here[:twice] = last
            last[...] = here[count : count + twice]
            first, end = self._domain(level)
            if self.is_ring:
                for g in range(
                    self._compute_reach(level, start),
                    min(self._compute_reach(level, stop), first + twice),
                ):
                    head[g - first] = here[g - corner]
                for g in range(max(end, corner), min(corner + rows, end + twice)):
                    here[g - corner] = head[(g - first) % self.shape[0]]
            low, high = self._compute_reach(level + 1, start), self._compute_reach(level + 1, stop)
            there = levels[(level + 1) % 2]
            if low < high:
                result = (
                    out
                    if level == self.levels - 1
                    else there[low - (start - (level + 1) * halo - twice) :][: high - low]
                )
                change = self._advance(here, corner, low, high, around, result)
                if self.measured is not None:
                    changes[level] = np.maximum(changes[level], change)
            here = there

    def _order_axes(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return axes in the order of the function."""
        return axes[::-1] if self.backwards else axes

    def _advance(
        self,
        here: NDArray[Any],
        corner: int,
        low: int,
        high: int,
        around: NDArray[Any],
        result: NDArray[Any],
    ) -> float:
        """Compute rows `low` to `high` of the next level; return their largest change."""
        halo = self.halo
        if self.is_ring:
            rows = np.arange(low - halo[0], high + halo[0])
        else:
            rows = find_sources(self.boundary[0], low - halo[0], high + halo[0], self.shape[0])
        index = [np.where(rows >= 0, rows - corner, -1) if not self.is_ring else rows - corner]
        for axis in range(1, len(self.shape)):
            n = self.shape[axis]
            index.append(find_sources(self.boundary[axis], -halo[axis], n + halo[axis], n))
        shape = tuple(map(len, index))
        block = around[: math.prod(shape)].reshape(shape)
        if len(shape) == 1:
            np.take(here, index[0], out=block, mode="wrap")
            block[index[0] < 0] = self.cval
        else:
            # Row by row: an index of all axes would make another block.
            for n, row in enumerate(index[0]):
                block[n] = (
                    self.cval if row < 0 else _add_neighbours(here[row], index[1:], self.cval)
                )
        given = block.T if self.backwards else block
        made = np.asarray(self.function(given))
        if made.shape == given.shape:
            made = made[
                tuple(
                    slice(h, n - h) for h, n in zip(self._order_axes(halo), made.shape, strict=True)
                )
            ]
        old = block[tuple(slice(h, n - h) for h, n in zip(halo, shape, strict=True))]
        if made.shape != self._order_axes(old.shape) or not np.can_cast(
            made.dtype, self.dtype, "same_kind"
        ):
            raise UsageError(
                f"stencil: the function returned an array of shape {made.shape} and dtype "
                f"{made.dtype} for a block of shape {given.shape}; return that shape, or "
                f"{self._order_axes(old.shape)} without the halo, and a dtype that can be cast to "
                f"{self.dtype} (or pass dtype=)",
                code="bad-function",
            )
        made = made.T if self.backwards else made
        np.copyto(result, made, casting="same_kind")
        for axis, boundary in enumerate(self.boundary):
            if boundary == "untouched" and halo[axis]:
                first = low if axis == 0 else 0
                at = np.arange(first, first + result.shape[axis])
                stays = (at < halo[axis]) | (at >= self.shape[axis] - halo[axis])
                result[(slice(None),) * axis + (stays,)] = old[(slice(None),) * axis + (stays,)]
        if self.measured is None or not result.size:
            return 0.0
        columns = (slice(None), slice(*self.measured)) if result.ndim > 1 else (slice(None),)
        change = np.abs(np.subtract(result[columns], old[columns]))
        return float(change.max(initial=0.0))


def _add_neighbours(
    row: NDArray[Any], index: Sequence[NDArray[np.int64]], cval: Any
) -> NDArray[Any]:
    """Return a hyper-row with its neighbours along the other axes."""
    for axis, wanted in enumerate(index):
        row = np.take(row, wanted, axis)
        missing = wanted < 0
        if missing.any():
            row[(slice(None),) * axis + (missing,)] = cval
    return row
