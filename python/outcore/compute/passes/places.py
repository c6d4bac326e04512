"""
Storage of the elements between two passes, and the loads and stores of a tile.

Problem. Each pass of a transform holds other axes whole, so the next pass reads in panels across
the slabs that one pass writes; in a file with rows or columns one of the two moves tiny runs.
Idea. A temporary array between passes has the panels of the reader, one after the other, and each
consists of the parts that the writer has at a time: the reader gets a panel with one request, and
each part of the writer is one run as well. Inputs and results are stored as their formats have
them, or are seen with a long axis divided in two. So is a line of any length: rows, and a last one
that is not whole.

Reference: PASSION, section 4.3: the out-of-core transpose between the two halves of a 2-D transform
is folded into these panels here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from outcore.arrays.schedule import Load, Section, Store
from outcore.arrays.tiling import Side

__all__ = [
    "DividedRows",
    "Ends",
    "GeneratedSource",
    "Panels",
    "PlainArray",
    "TileSource",
    "TileTarget",
]

Shape = tuple[int, ...]
# Large pieces of a tile are stored separately: the core then does not read the bytes between them. If
# there are more pieces, the operations would need too much memory.
_ALONE, _LARGE = 16, 1 << 15
#: First index, and one past the last, along each axis of a transform.
Ends = tuple[tuple[int, int], ...]


@dataclass
class PlainArray:
    """An array with rows, columns or chunks."""

    #: Number of the array in the program.
    number: int
    #: Lengths of the axes of the transform.
    lengths: Shape
    #: Axis `d` of the array is this axis of the transform.
    axes: Shape
    #: Axes of the transform, from the fastest in the file to the slowest.
    fast: Shape
    itemsize: int
    #: Lengths along the axes of the transform; None: contiguous.
    chunks: Shape | None = None
    #: Whether chunks pass through a codec.
    whole: bool = False

    @classmethod
    def of(
        cls, number: int, lengths: Shape, itemsize: int, side: Side | None, *, written: bool
    ) -> PlainArray:
        """Return an array with the axes of the transform; `side` is its storage on disk."""
        axes = tuple(range(len(lengths)))
        if side is None:
            return cls(number, lengths, axes, axes[::-1], itemsize)
        fast = axes if side.order == "F" else axes[::-1]
        grid = (side.shards if written else None) or side.chunks
        return cls(number, lengths, axes, fast, itemsize, grid, side.whole)

    def requests(self, tile: Sequence[int]) -> float:
        """Return the number of requests for all tiles of this shape."""
        run, full = 1, self.chunks or self.lengths
        for axis in self.fast:
            run *= max(min(tile[axis], full[axis]), 1)
            if tile[axis] < full[axis]:
                break
        return math.prod(self.lengths) / run

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Return the loads into block 0, which begins at `origin` and has these extents."""
        section = tuple(slice(*ends[axis]) for axis in self.axes)
        if any(low >= high for low, high in ends):
            return []
        return [Load(self.number, section, 0, _find_place(ends, origin, extents), self._order())]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Return the stores of a whole block."""
        section = tuple(slice(*ends[axis]) for axis in self.axes)
        return [Store(self.number, section, block, None, self._order())]

    def _order(self) -> Shape | None:
        order = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
        return None if order == tuple(range(len(order))) else order


@dataclass
class Panels:
    """A temporary array: tiles of its reader, one after the other, each in tiles of its writer."""

    #: Number of the array in the program.
    number: int
    #: Lengths of the axes of the transform.
    lengths: Shape
    #: Extents of a tile of the reader, and of the writer.
    reader: Shape
    writer: Shape
    #: Axes, from the fastest within a tile of both to the slowest.
    fast: Shape
    itemsize: int
    chunks: Shape | None = None
    whole: bool = False
    #: Extents of a tile of both; the axes with several tiles, panels first.
    unit: Shape = field(init=False)
    cut: Shape = field(init=False)

    def __post_init__(self) -> None:
        axes = range(len(self.lengths))
        apart = [self.reader[v] < self.lengths[v] for v in axes]
        self.unit = tuple(self.reader[v] if apart[v] else self.writer[v] for v in axes)
        within = (v for v in axes if not apart[v] and self.writer[v] < self.lengths[v])
        self.cut = (*(v for v in axes if apart[v]), *within)

    @property
    def shape(self) -> Shape:
        """Shape of the temporary array: the grid of tiles, then a tile."""
        grid = (-(-self.lengths[v] // self.unit[v]) for v in self.cut)
        return (*grid, *(self.unit[v] for v in self.inner))

    @property
    def inner(self) -> Shape:
        """The axes within a tile, in the order of the array."""
        return self.fast[::-1]

    def requests(self, tile: Sequence[int]) -> float:
        """Return the number of requests for all tiles of this shape."""
        run = (max(min(t, n), 1) for t, n in zip(tile, self.reader, strict=True))
        return math.prod(self.lengths) / math.prod(run)

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Return the loads into block 0, which begins at `origin` and has these extents."""
        return [
            Load(self.number, section, 0, _find_place(part, origin, extents), order, shape)
            for part, section, order, shape in self._parts(ends, alone=False)
        ]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Return the stores of a whole block."""
        origin, extents = [low for low, _ in ends], [high - low for low, high in ends]
        return [
            Store(self.number, section, block, _find_place(part, origin, extents), order, shape)
            for part, section, order, shape in self._parts(ends, alone=True)
        ]

    def _parts(self, ends: Ends, *, alone: bool) -> Iterator[tuple[Ends, Section, Shape, Shape]]:
        """Yield ends and section of each part, and the order and shape of its place in a block."""
        for parts in product(*(self._along(v, *ends[v], alone=alone) for v in range(len(ends)))):
            section = [slice(*parts[v][1]) for v in self.cut]
            section += [slice(*parts[v][2]) for v in self.inner]
            order: list[int] = []
            shape: list[int] = []
            for v, (_, grid, inside) in enumerate(parts):
                if v in self.cut:
                    order.append(self.cut.index(v))
                    shape.append(grid[1] - grid[0])
                order.append(len(self.cut) + self.inner.index(v))
                shape.append(inside[1] - inside[0])
            where = tuple(part[0] for part in parts)
            if math.prod(shape):
                yield where, tuple(section), tuple(order), tuple(shape)

    def _along(
        self, axis: int, low: int, high: int, *, alone: bool
    ) -> list[tuple[tuple[int, int], tuple[int, int], tuple[int, int]]]:
        """List the parts along an axis: indices, panels, and indices within each of these."""
        if axis not in self.cut:
            return [((low, high), (0, 1), (low, high))]
        size, parts = self.unit[axis], []
        while low < high:
            panel, begin = divmod(low, size)
            if begin == 0 and high - low >= size:
                count = (high - low) // size
                if alone and count <= _ALONE and math.prod(self.unit) * self.itemsize >= _LARGE:
                    count = 1
                end = low + count * size
                parts.append(((low, end), (panel, panel + count), (0, size)))
            else:
                end = min(high, (panel + 1) * size)
                parts.append(((low, end), (panel, panel + 1), (begin, begin + end - low)))
            low = end
        return parts


@dataclass
class DividedRows:
    """An array with an axis in rows, the last of which is not whole."""

    #: The array with that axis divided: its whole rows. None if there are none.
    body: PlainArray | None
    #: The array with one row that has the whole axis.
    line: PlainArray
    #: Lengths of the axes of the transform, with all rows.
    lengths: Shape
    #: The axis that counts rows; the next one counts within a row.
    axis: int
    chunks: Shape | None = None
    whole: bool = False

    @property
    def fast(self) -> Shape:
        """Axes of the transform, from the fastest in the file to the slowest."""
        return self.line.fast

    def requests(self, tile: Sequence[int]) -> float:
        """Return the number of requests for all tiles of this shape."""
        return (self.body or self.line).requests(tile)

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Return the loads into block 0, which begins at `origin` and has these extents."""
        parts = self._parts(ends, origin)
        return [load for one, part, begin in parts for load in one.load(part, begin, extents)]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Return the stores of the existing part of a block."""
        extents = [high - low for low, high in ends]
        return [
            Store(one.array, one.section, block, one.at, one.axes)
            for one in self.load(ends, [low for low, _ in ends], extents)
        ]

    def _parts(
        self, ends: Ends, origin: Sequence[int]
    ) -> Iterator[tuple[PlainArray, Ends, list[int]]]:
        """Yield for each array its part of the ends, and its index 0 as seen from the block."""
        rows, inside = self.axis, self.axis + 1
        (first, last), (low, high) = ends[rows], ends[inside]
        there = 0 if self.body is None else self.body.lengths[rows]
        if self.body is not None:
            part = list(ends)
            part[rows] = (first, min(last, there))
            yield self.body, tuple(part), list(origin)
        begin = there * self.lengths[inside]
        if first <= there < last:
            part = list(ends)
            part[rows] = (0, 1)
            part[inside] = (begin + low, min(begin + high, self.line.lengths[inside]))
            moved = list(origin)
            moved[rows] -= there
            moved[inside] += begin
            yield self.line, tuple(part), moved


@dataclass
class GeneratedSource:
    """Elements that the kernel makes: nothing is loaded."""

    lengths: Shape
    fast: Shape
    chunks: Shape | None = None
    whole: bool = False

    def requests(self, tile: Sequence[int]) -> float:
        """Return 0."""
        return 0.0

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Return no loads."""
        return []


TileSource = PlainArray | Panels | DividedRows | GeneratedSource
TileTarget = PlainArray | Panels | DividedRows


def _find_place(ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> Section | None:
    """Return the place of a section in a block; None if it is the whole block."""
    at = tuple(slice(low - o, high - o) for (low, high), o in zip(ends, origin, strict=True))
    whole = all(s.start == 0 and s.stop == n for s, n in zip(at, extents, strict=True))
    return None if whole else at
