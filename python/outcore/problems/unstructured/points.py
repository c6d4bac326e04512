"""
Read the coordinates and weights of points to partition, slab by slab.

Problem: coordinates may be in memory or on disk, of any real dtype, and contain NaN; weights may be
floating-point numbers, whose sums would depend on slabs.
Approach: one object yields both, as float64 and as integers, for this rank's share of the points.
Weights that are not small integers are rounded once, to multiples of a fraction of the largest.
Invariants: all sums of weights are exact. The first pass checks all coordinates and weights.

Reference: PASSION report, section 4.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import Table, check_dtype, count_rows, read_slabs

__all__ = ["PointSlab", "WeightedPoints", "Weights"]

#: First element, end of the slab, coordinates (float64, (rows, axes)), weights or None.
PointSlab = tuple[int, int, NDArray[np.float64], NDArray[np.int64] | None]

#: The sum of weights is below 2^61, so twice the sum fits an int64.
_BITS = 60


class WeightedPoints:
    """
    Coordinates of shape (n, d) or (n,), and weights (None: all 1).

    `memory` is the number of bytes for the slabs of a pass and the results computed from them. Raises
    `UsageError` for wrong shapes or dtypes, coordinates that are not finite, negative weights, or
    weights whose sum is 0.
    """

    def __init__(
        self, coordinates: Table, weights: Table | None, memory: int, share: Share
    ) -> None:
        if coordinates.ndim not in (1, 2) or (coordinates.ndim == 2 and not coordinates.shape[1]):
            raise UsageError(
                f"coordinates have shape {coordinates.shape}; pass (n, d), one row for each point with "
                "d at least 1, or (n,)",
                code="bad-shape",
            )
        check_dtype(coordinates, "fiu", "coordinates", "use integers or floating-point numbers")
        self.count: int = coordinates.shape[0]
        self.axes: int = coordinates.shape[1] if coordinates.ndim == 2 else 1
        self._coordinates, self.share = coordinates, share
        #: First point of this rank, and the end of its points.
        self.begin, self.end = share.rows(self.count)
        each = self.axes * (3 * coordinates.dtype.itemsize + 16) + 120
        if weights is not None:
            each += 3 * weights.dtype.itemsize + 16
        self.rows = min(count_rows(memory, each, "coordinates"), max(self.count, 1))
        self.weights = None if weights is None else Weights(weights, self.count, self.rows, share)
        #: Sum of all weights.
        self.weight: int = self.count if self.weights is None else self.weights.total
        #: Smallest and largest coordinates.
        self.low, self.high = self._measure()

    @property
    def weighted(self) -> bool:
        """Whether weights are not all 1."""
        return self.weights is not None

    @property
    def each(self) -> int:
        """Bytes of a point in memory: index, coordinates, weight, part."""
        return 8 * self.axes + 28

    def slabs(self) -> Iterator[PointSlab]:
        """Yield all points of this rank, in the order of their indices."""
        weights = None if self.weights is None else self.weights.slabs()
        for low, high, data in read_slabs(self._coordinates, self.rows, self.begin, self.end):
            x = data.reshape(high - low, self.axes).astype(np.float64, copy=False)
            weight = None if weights is None else next(weights)
            yield low, high, x, weight

    def _measure(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lowest = np.full(self.axes, np.inf)
        highest = np.full(self.axes, -np.inf)
        for low, _, data in read_slabs(self._coordinates, self.rows, self.begin, self.end):
            x = data.reshape(-1, self.axes).astype(np.float64, copy=False)
            least, most = x.min(axis=0), x.max(axis=0)
            if not (np.isfinite(least).all() and np.isfinite(most).all()):
                row, axis = np.argwhere(~np.isfinite(x))[0]
                raise UsageError(
                    f"coordinates[{low + row}, {axis}] is {x[row, axis]}; coordinates must be finite, "
                    "so remove such points, or change their coordinates",
                    code="bad-coordinates",
                )
            np.minimum(lowest, least, out=lowest)
            np.maximum(highest, most, out=highest)
        return self.share.box(lowest, highest)


class Weights:
    """
    Weights as integers whose sum is below 2^61.

    Integers are kept unless n times the largest exceeds 2^60. Other weights become multiples of the
    largest weight divided by 2^60 / n, rounded to the nearest. They must be finite and at least 0.
    """

    def __init__(self, weights: Table, count: int, rows: int, share: Share) -> None:
        if weights.shape != (count,):
            raise UsageError(
                f"weights have shape {weights.shape}, but there are {count} elements; pass ({count},)",
                code="shape-mismatch",
            )
        check_dtype(weights, "fiu", "weights", "use integers or floating-point numbers")
        self._table, self._rows = weights, rows
        self._begin, self._end = share.rows(count)
        #: Largest weight, and the integer that it becomes; None if weights are used as they are.
        self._scale: tuple[float, float] | None = None
        largest = share.largest(self._find_largest())
        most = 1 << (_BITS - max(count, 1).bit_length())
        if count and largest == 0:
            raise UsageError(
                "all weights are 0, so they do not determine how to divide elements; omit weights=",
                code="bad-weights",
            )
        if count and (weights.dtype.kind == "f" or largest > most):
            self._scale = float(largest), float(most)
        #: Sum of the weights.
        mine = sum(int(slab.sum()) for slab in self.slabs())
        self.total = int(share.total(np.array([mine], np.int64))[0])

    def slabs(self) -> Iterator[NDArray[np.int64]]:
        """Yield the weights of this rank, in the order of elements."""
        for _, _, data in read_slabs(self._table, self._rows, self._begin, self._end):
            if self._scale is None:
                yield data.astype(np.int64)
            else:
                largest, becomes = self._scale
                # Divide first: the factor becomes / largest overflows for tiny weights.
                yield np.rint(data.astype(np.float64) / largest * becomes).astype(np.int64)

    def _find_largest(self) -> Any:
        largest: Any = 0.0 if self._table.dtype.kind == "f" else 0
        for low, _, data in read_slabs(self._table, self._rows, self._begin, self._end):
            wrong = ~np.isfinite(data) | (data < 0)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise UsageError(
                    f"weights[{low + row}] is {data[row]}; weights must be finite and at least 0",
                    code="bad-weights",
                )
            largest = max(largest, data.max().item())
        return largest
