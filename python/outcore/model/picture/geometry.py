"""
Positions of elements, in the file and on the page.

Problem: a section may have millions of pieces, but a picture has only hundreds of pixels.
Approach: pieces of a file are enumerated axis by axis. Once there are more than can be visible, the
inner ones become one partly filled stretch, whose *density* is drawn as a lighter colour. A pattern in
the plane is thinned out instead: one of many periods is drawn, as wide as all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["File", "FilePieces", "PixelScale", "find_hull", "find_period", "make_intervals"]

IndexRange = tuple[int, int, int]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FilePieces:
    """
    Stretches of a file: ascending, disjoint, each filled to the same fraction (`density`).

    Positions are in elements; for a chunked array, in elements of whole chunks.
    """

    starts: Floats
    lengths: Floats
    density: float = 1.0

    def cover(self, edges: Floats) -> Floats:
        """Return the filled fraction of each bin between the edges."""
        if not len(self.starts):
            return np.zeros(len(edges) - 1)
        before = np.concatenate([[0.0], np.cumsum(self.lengths)])
        at = np.searchsorted(self.starts, edges, "right")
        last = np.maximum(at - 1, 0)
        inside = np.minimum(np.maximum(edges - self.starts[last], 0), self.lengths[last])
        filled = np.where(at > 0, before[last] + inside, 0.0)
        covered: Floats = np.diff(filled) / np.diff(edges) * self.density
        return covered


class File:
    """
    Order of an array's elements in its file.

    The descriptor is the record of the array: ``item, encoded, ndim``, then order, shape and grain of
    each axis.
    """

    def __init__(self, descriptor: Sequence[int]) -> None:
        n = descriptor[2]
        self.item = descriptor[0]
        self.order = list(descriptor[3 : 3 + n])
        shape, grain = descriptor[3 + n : 3 + 2 * n], descriptor[3 + 2 * n : 3 + 3 * n]
        self.chunked = any(g > 1 for g in grain)
        # Cells along each axis: elements, or chunks.
        self.grain = [max(g, 1) for g in grain]
        self.cells = [-(-length // g) for length, g in zip(shape, self.grain, strict=True)]
        self.cell = int(np.prod(self.grain, dtype=np.int64)) if n else 1

    @property
    def length(self) -> int:
        """Number of elements in the file; of whole chunks, if it is chunked."""
        return self.cell * int(np.prod(self.cells, dtype=np.int64))

    def count(self, section: Sequence[IndexRange]) -> int:
        """
        Return the exact number of pieces of a section in the file.

        Examples
        --------
        >>> File([8, 0, 2, 0, 1, 10, 20, 1, 1]).count([(0, 10, 1), (5, 5, 1)])
        10
        """
        pieces, whole = 1, True
        for axis in reversed(self.order):
            start, n, step = self._find_cells(section[axis], axis)
            if n == 0:
                return 0
            if not whole:
                pieces *= n
            elif not (step == 1 and start == 0 and n == self.cells[axis]):
                pieces, whole = (1 if step == 1 else n), False
        return pieces

    def pieces(self, section: Sequence[IndexRange], most: int) -> FilePieces:
        """Return the pieces of a section; coarser ones if there are more than `most`."""
        starts, lengths, density = np.zeros(1), np.ones(1), 1.0
        inner = 1
        for axis in reversed(self.order):
            start, n, step = self._find_cells(section[axis], axis)
            if n == 0:
                return FilePieces(np.zeros(0), np.zeros(0))
            solid = len(starts) == 1 and lengths[0] == inner
            if solid and step == 1:
                starts, lengths = np.array([float(start * inner)]), np.array([float(n * inner)])
            else:
                if n * len(starts) > most:
                    starts, lengths, density = _make_stretch(starts, lengths, density)
                if n * len(starts) > most:
                    span = (n - 1) * step + 1
                    density *= float(lengths[0]) / inner * n / span
                    starts = np.array([float(start * inner)])
                    lengths = np.array([float(span * inner)])
                else:
                    rows = (start + step * np.arange(n, dtype=np.float64)) * inner
                    starts = (rows[:, None] + starts[None]).ravel()
                    lengths = np.tile(lengths, n)
            inner *= self.cells[axis]
        return FilePieces(starts * self.cell, lengths * self.cell, density)

    def first(self, section: Sequence[IndexRange], number: int) -> list[IndexRange]:
        """Return the first pieces of a section: about `number` indices along each axis that matters."""
        found = list(section)
        left = number * number
        for axis in reversed(self.order):
            start, n, step = section[axis]
            if axis == self.order[-1] and step == 1:
                continue
            n = min(n, max(min(number, left), 2) * self.grain[axis])
            found[axis] = (start, n, step)
            left = max(left // max(n, 1), 1)
        return found

    def _find_cells(self, axis_range: IndexRange, axis: int) -> IndexRange:
        start, n, step = axis_range
        grain = self.grain[axis]
        if grain == 1 or n == 0:
            return axis_range
        first, last = start // grain, (start + (n - 1) * step) // grain
        if step > grain and step % grain == 0:
            return first, n, step // grain
        return first, last - first + 1, 1


def _make_stretch(starts: Floats, lengths: Floats, density: float) -> tuple[Floats, Floats, float]:
    """Return one partly filled stretch from the first piece to the last."""
    span = starts[-1] + lengths[-1] - starts[0]
    return starts[:1], np.array([span]), density * float(lengths.sum() / span)


@dataclass(frozen=True)
class PixelScale:
    """Range of indices, or of a file, drawn from `at` on with length `size`."""

    low: float
    high: float
    at: float
    size: float

    def __call__(self, index: float) -> float:
        """Return the position of an index."""
        return self.at + (index - self.low) * self.scale

    @property
    def scale(self) -> float:
        """Pixels per index."""
        return self.size / max(self.high - self.low, 1e-9)


def find_hull(ranges: Sequence[IndexRange]) -> tuple[int, int] | None:
    """
    Return the first index of ranges and the end of the last; None if all are empty.

    Examples
    --------
    >>> find_hull([(4, 3, 2), (0, 0, 1)])
    (4, 9)
    """
    ends = [(a, a + (n - 1) * s + 1) for a, n, s in ranges if n]
    return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else None


def find_period(ranges: Sequence[IndexRange]) -> int:
    """Return the largest step of ranges that have more than one index."""
    return max((s for _, n, s in ranges if n > 1), default=1)


def make_intervals(axis_range: IndexRange, low: int, merged: int) -> list[tuple[float, float]]:
    """
    Return the intervals of indices to draw for a range (start, count, step).

    Periods begin at `low`, which is the same for all ranges of the picture. `merged` periods are drawn
    as one, which is wider by the same factor.

    Examples
    --------
    >>> make_intervals((1, 3, 4), 0, 1)
    [(1, 2), (5, 6), (9, 10)]
    >>> make_intervals((1, 64, 4), 0, 32)
    [(32, 64), (160, 192)]
    >>> make_intervals((5, 10, 1), 0, 32)
    [(5, 15)]
    """
    start, n, step = axis_range
    if n == 0:
        return []
    if step == 1 or n == 1:
        return [(start, start + n)]
    if merged == 1:
        return [(start + k * step, start + k * step + 1) for k in range(n)]
    end = start + (n - 1) * step + 1
    wide = merged * step
    first = (start - low) // wide
    phase = (start - low) % step
    found: list[tuple[float, float]] = []
    group = first
    while low + group * wide < end:
        a = low + group * wide + phase * merged
        a, b = max(a, start if group == first else a), min(a + merged, max(end, a + 1))
        if a < end:
            found.append((a, b))
        group += 1
    return found or [(start, end)]
