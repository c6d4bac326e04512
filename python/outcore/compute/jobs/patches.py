"""
Prediction of what writes move in addition to the stored elements.

Problem. A write of short runs into data that is not in the page cache may use windows: they are
read, changed and written back, with the bytes between the runs. In a new file the first writes do
this, and later ones find in the page cache what these have read. A plan of each write as if it were
the first one is as wrong as a plan without any windows. A write of a part of a chunk that another
step has begun reads what is stored.
Idea. The core is asked about each write to a place where nothing was yet. The pages that it would
touch are remembered, in units of the file; for a later write some places are checked, as the core
does it.

Invariants. The predicted additional bytes of one array never exceed its size, since no part of it
enters the page cache twice; except parts of chunks, which are read each time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.tiling import Side
from outcore.formats.layout import Strided

__all__ = ["ExtraBytes", "PageCacheState"]

# Maximum number of units that a file is divided into, and minimum bytes of a unit.
_UNITS, _PAGE = 1 << 18, 4096
# Places of a section that are checked, and the cached share of them that counts as all.
_LOOKS, _CACHED = 64, 0.95
# Runs of at least this many bytes are written without the bytes between them.
_LONG = 64 << 10
# Maximum number of extents that are remembered individually.
_EXTENTS = 1 << 16
# Maximum number of chunks of a store that are remembered individually.
_CHUNKS = 1 << 12


@dataclass(frozen=True, slots=True)
class ExtraBytes:
    """Bytes that a write reads, and bytes that it writes in addition to the elements."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class _CachedUnits:
    """Units of one file that writes have brought into the page cache."""

    units: NDArray[np.bool_]
    unit: int
    total: int
    read: int = 0
    written: int = 0


@dataclass(slots=True)
class PageCacheState:
    """State of the page cache after the writes of a program so far, step by step."""

    files: dict[str, _CachedUnits] = field(default_factory=dict)
    chunks: dict[str, set[int]] = field(default_factory=dict)

    def write(self, array: DiskArray, section: Sequence[slice], times: int = 1) -> ExtraBytes:
        """Return what `times` equal writes move in addition to their elements."""
        if any(part.stop <= part.start for part in section):
            return ExtraBytes()
        side = Side.of(array.info)
        if side.chunks is None:
            return self._count_strided(array, section, times)
        return self._count_chunked(array, side, section)

    def _count_strided(self, array: DiskArray, section: Sequence[slice], times: int) -> ExtraBytes:
        layout = array.info.layout
        assert isinstance(layout, Strided)
        touched = self.files.get(array.path)
        if touched is None:
            total = max(sum(part.nbytes for part in layout.parts), 1)
            unit = max(_PAGE, -(-total // _UNITS))
            touched = _CachedUnits(np.zeros(-(-total // unit) + 1, np.bool_), unit, total)
            self.files[array.path] = touched
        axes = sorted(
            (abs(stride), part.stop - part.start)
            for stride, part in zip(layout.strides, section, strict=True)
            if part.stop - part.start > 1
        )
        base = sum(
            min(part.start * stride, (part.stop - 1) * stride)
            for stride, part in zip(layout.strides, section, strict=True)
        )
        if _estimate_cached_fraction(touched, base, axes) >= _CACHED:
            return ExtraBytes()
        counts = array.handle.core.counts(tuple(section), True)
        useful = math.prod(part.stop - part.start for part in section) * array.dtype.itemsize
        read, covered = counts[1], max(counts[3] + counts[4], useful)
        _touch(touched, base, axes, array.dtype.itemsize, max(covered, read))
        found = ExtraBytes(
            min(read * times, touched.total - touched.read),
            min((covered - useful) * times, touched.total - touched.written),
        )
        touched.read += found.read
        touched.written += found.written
        return found

    def _count_chunked(self, array: DiskArray, side: Side, section: Sequence[slice]) -> ExtraBytes:
        chunks = side.chunks or ()
        met = [range(p.start // c, -(-p.stop // c)) for p, c in zip(section, chunks, strict=True)]
        if math.prod(map(len, met)) > _CHUNKS:
            return ExtraBytes()
        seen = self.chunks.setdefault(array.path, set())
        grid = [-(-n // c) for n, c in zip(array.shape, chunks, strict=True)]
        gap, read = array.handle.core.disk()[0], 0
        for place in itertools.product(*met):
            parts, wanted = [], True
            for k, c, part, n in zip(place, chunks, section, array.shape, strict=True):
                low, high = max(part.start, k * c), min(part.stop, (k + 1) * c)
                parts.append(high - low)
                wanted &= high - low == min(c, n - k * c)
            number = 0
            for k, n in zip(place, grid, strict=True):
                number = number * n + k
            known = number in seen
            seen.add(number)
            if wanted:
                continue
            if side.whole:
                # At most the whole chunk is stored.
                read += side.chunk_bytes if known else 0
            else:
                read += _count_fetched_bytes(side, parts, gap)
        return ExtraBytes(read)


def _count_fetched_bytes(side: Side, parts: Sequence[int], gap: int) -> int:
    """Return the bytes of the pages that a write of a part of a chunk reads, cached or not."""
    chunks = side.chunks or ()
    order = range(len(chunks)) if side.order == "F" else range(len(chunks) - 1, -1, -1)
    axes, stride = [], side.itemsize
    for axis in order:
        if parts[axis] > 1:
            axes.append((stride, parts[axis]))
        stride *= chunks[axis]
    run, _ = _find_extents(axes, side.itemsize, 1)
    if run >= _LONG:
        return 0
    length, apart = _find_extents(axes, side.itemsize, gap)
    return length * math.prod(count for _, count in apart)


def _find_extents(
    axes: Sequence[tuple[int, int]], item: int, gap: int
) -> tuple[int, list[tuple[int, int]]]:
    """
    Return the bytes of an extent, and the axes along which there are several: strides and counts.

    >>> _find_extents([(8, 10), (800, 5), (80000, 3)], 8, 1024)
    (3280, [(80000, 3)])
    """
    length, left = item, list(axes)
    while left and left[0][0] - length < gap:
        stride, count = left.pop(0)
        length += (count - 1) * stride
    return length, left


def _estimate_cached_fraction(
    touched: _CachedUnits, base: int, axes: Sequence[tuple[int, int]]
) -> float:
    """Return the fraction of some places of a section that are in the page cache."""
    at = np.full(_LOOKS, base, np.int64)
    left = np.arange(_LOOKS, dtype=np.int64)
    for stride, count in reversed(axes):
        at += left * count // _LOOKS * stride
        left = left * count % _LOOKS
    return float(touched.units[np.minimum(at // touched.unit, len(touched.units) - 1)].mean())


def _touch(
    touched: _CachedUnits, base: int, axes: Sequence[tuple[int, int]], item: int, covered: int
) -> None:
    """Note that a write brings `covered` bytes into the page cache, in extents of equal length."""
    length, apart = _find_extents(axes, item, 1)
    while apart and length * math.prod(count for _, count in apart) < covered:
        stride, count = apart.pop(0)
        length += (count - 1) * stride
    number = math.prod(count for _, count in apart)
    if number > _EXTENTS:
        length += sum((count - 1) * stride for stride, count in apart)
        apart = []
    firsts = np.array([base], np.int64)
    for stride, count in apart:
        steps = np.arange(count, dtype=np.int64) * stride
        firsts = (firsts[:, None] + steps).ravel()
    unit, units = touched.unit, touched.units
    most = len(units) - 1
    low = np.minimum(firsts // unit, most)
    high = np.minimum((firsts + length - 1) // unit, most)
    edges = np.zeros(len(units) + 1, np.int32)
    np.add.at(edges, low, 1)
    np.add.at(edges, high + 1, -1)
    units |= np.cumsum(edges[:-1]) > 0
