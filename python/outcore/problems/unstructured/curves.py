"""
Sort keys of elements: by a coordinate, and along Hilbert's curve.

Problem: a partition cuts elements in an order: by one coordinate, or along a curve that keeps nearby
points together. Cuts are found by counting, which needs integers.
Approach: the key of an element is a 64-bit integer, computed from its own coordinates and a box that is
the same for all, so slabs get the same keys as the whole array.
Invariants: keys of coordinates compare as the coordinates do; -0.0 equals 0.0. Along the curve,
neighbouring keys are neighbouring cells.

Reference: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004), for the
transform; PASSION report, section 4.4.1, for the purpose of partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outcore.problems.unstructured.cuts import KeyedElements, Ties, count_cuts_before, find_cuts
from outcore.problems.unstructured.points import WeightedPoints
from outcore.problems.unstructured.tables import Table, make_budget_error

__all__ = ["cut_along_curve", "make_hilbert_keys", "make_ordered_keys"]

_SIGN = np.uint64(1 << 63)
Places = NDArray[np.int64]


def make_ordered_keys(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return integers that compare as finite numbers do."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def make_hilbert_keys(
    points: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.uint64]:
    """
    Return the positions of points (n, d) along Hilbert's curve through a cube; d is at most 62.

    The cube begins at `low` and has the longest extent from `low` to `high`. Its grid has 2^(62/d) cells
    per side, rounded down, and at most 2^31.
    """
    axes = points.shape[1]
    if axes == 1:
        return make_ordered_keys(np.ascontiguousarray(points[:, 0]))
    bits = min(62 // axes, 31)
    extent = float((high / 2 - low / 2).max())  # halves: the difference could be infinite
    if not extent > 0:
        return np.zeros(len(points), np.uint64)
    side = (1 << bits) - 1
    # Axis by axis, so that each is contiguous.
    cells = [
        np.minimum((points[:, a] / 2 - low[a] / 2) / extent * side, side).astype(np.uint64)
        for a in range(axes)
    ]
    return _find_places(cells, bits)


def _find_places(x: list[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Return the positions of cells along the curve; changes `x`."""
    for bit in range(bits - 1, 0, -1):
        q, p = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in x:
            is_set = (axis & q) != 0
            exchanged = np.where(is_set, np.uint64(0), (x[0] ^ axis) & p)
            x[0] ^= np.where(is_set, p, exchanged)
            if axis is not x[0]:
                axis ^= exchanged
    for before, axis in itertools.pairwise(x):
        axis ^= before
    twist = np.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        twist ^= np.where(x[-1] & np.uint64(1 << bit), np.uint64((1 << bit) - 1), np.uint64(0))
    for axis in x:
        axis ^= twist
    key = np.zeros_like(x[0])
    for bit in range(bits - 1, -1, -1):
        for axis in x:
            key <<= np.uint64(1)
            key |= (axis >> np.uint64(bit)) & np.uint64(1)
    return key


def cut_along_curve(points: WeightedPoints, parts: int, table: Table, memory: int) -> None:
    """
    Cut points into parts of equal weight along Hilbert's curve, and store the parts in `table`.

    `memory` is the number of bytes for keys or counters, in addition to the slabs of a pass; equal on
    all ranks.
    """
    if parts == 1:
        return
    if parts * 64 > memory // 2:
        raise make_budget_error(f"a partition into {parts} parts", parts * 512, "make fewer parts")
    cuts = range(1, parts)
    twice = np.array([2 * points.weight * cut // parts for cut in cuts], np.int64)
    share = points.share
    if share.size == 1 and points.count * 72 <= memory:
        keys = np.empty(points.count, np.uint64)
        weights = np.empty(points.count, np.int64) if points.weighted else None
        for low, high, x, weight in points.slabs():
            keys[low:high] = make_hilbert_keys(x, points.low, points.high)
            if weights is not None and weight is not None:
                weights[low:high] = weight
        order = np.argsort(keys, kind="stable")
        part = np.empty(points.count, np.int32)
        part[order] = count_cuts_before(
            None if weights is None else weights[order], points.count, twice
        )
        table[:] = part
        return

    def passes() -> Iterator[KeyedElements]:
        for low, high, x, weight in points.slabs():
            key = make_hilbert_keys(x, points.low, points.high)
            yield KeyedElements(np.zeros(high - low, np.int64), key, weight)

    ends = make_hilbert_keys(np.stack([points.low, points.high]), points.low, points.high)
    if points.axes > 1:
        ends[:] = 0, 2**62 - 1
    whole = np.ones(twice.size, np.int64)
    found = find_cuts(
        passes,
        np.zeros(twice.size, np.int64),
        twice,
        ends[0] * whole.astype(np.uint64),
        ends[1] * whole.astype(np.uint64),
        points.weight * whole,
        memory // 2,
        share,
        weighted=points.weighted,
    )
    values, first = np.unique(found.key, return_index=True)

    def find_ties(some: KeyedElements) -> tuple[Places, Places, Places | None]:
        group = np.searchsorted(values, some.key)
        which = np.flatnonzero(values[np.minimum(group, values.size - 1)] == some.key)
        return which, group[which], None if some.weight is None else some.weight[which]

    ties = Ties(found.below[first], lambda: (find_ties(some)[1:] for some in passes()), share)
    begin = points.begin
    for some in passes():
        part = np.searchsorted(found.key, some.key, side="left").astype(np.int32)
        which, group, weight = find_ties(some)
        part[which] = np.searchsorted(twice, ties.middles(group, weight), side="left")
        table[begin : begin + part.size] = part
        begin += part.size
