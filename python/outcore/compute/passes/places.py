"""
Where the elements between two passes are, and how a tile reaches them.

Problem. Each pass of a transform holds other axes whole, so what one pass writes in slabs the next one
reads in panels across them; in a file with rows or columns one of the two moves tiny runs.
Idea. A temporary array between passes has the panels of the reader, one after the other, and each is
made of what the writer has of it at a time: the reader gets a panel with one request, and what the
writer has of it is one run as well. Inputs and results are as their formats have them, or seen with a
long axis divided in two. A line of any length is seen so, too: rows, and a last one that is not whole.

Reference: PASSION, section 4.3: the out-of-core transpose between the two halves of a 2-D transform is
folded into these panels here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from outcore.arrays.schedule import Load, Section, Store

__all__ = ["Ends", "Made", "Panels", "Place", "Plain", "Rows", "Source"]

Shape = tuple[int, ...]
# Large pieces of a tile are stored one by one, which the core does without reading what is between them;
# if there are more, operations would take more memory than that is worth.
_ALONE, _LARGE = 16, 1 << 15
#: First index, and one past the last, along each axis of a transform.
Ends = tuple[tuple[int, int], ...]


@dataclass
class Plain:
    """
    An array with rows, columns or chunks.

    Parameters
    ----------
    number
        In the program.
    lengths
        Of the axes of the transform there.
    axes
        Axis `d` of the array is this axis of the transform.
    fast
        The axes of the transform, from the one that runs fastest in the file to the slowest.
    itemsize
        Bytes of an element.
    chunks
        Along each axis of the transform; None: stored as one.
    whole
        Chunks pass through a codec.
    """

    number: int
    lengths: Shape
    axes: Shape
    fast: Shape
    itemsize: int
    chunks: Shape | None = None
    whole: bool = False

    def requests(self, tile: Sequence[int]) -> float:
        """Requests that all tiles of this shape take together."""
        run, full = 1, self.chunks or self.lengths
        for axis in self.fast:
            run *= max(min(tile[axis], full[axis]), 1)
            if tile[axis] < full[axis]:
                break
        return math.prod(self.lengths) / run

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Loads into block 0, which begins at `origin` and has these extents."""
        section = tuple(slice(*ends[axis]) for axis in self.axes)
        if any(low >= high for low, high in ends):
            return []
        return [Load(self.number, section, 0, _at(ends, origin, extents), self._order())]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Stores of all of a block."""
        section = tuple(slice(*ends[axis]) for axis in self.axes)
        return [Store(self.number, section, block, None, self._order())]

    def _order(self) -> Shape | None:
        order = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
        return None if order == tuple(range(len(order))) else order


@dataclass
class Panels:
    """
    A temporary array with the tiles of its reader, one after the other, each in tiles of its writer.

    Parameters
    ----------
    number
        In the program.
    lengths
        Of the axes of the transform.
    reader, writer
        Extents of their tiles along each axis.
    fast
        The axes, from the one that runs fastest within a tile of both to the slowest.
    itemsize
        Bytes of an element.
    """

    number: int
    lengths: Shape
    reader: Shape
    writer: Shape
    fast: Shape
    itemsize: int
    chunks: Shape | None = None
    whole: bool = False
    #: Extents of a tile of both; the axes along which there are several, panels first.
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
        """Of the temporary array: the grid of tiles, then a tile."""
        grid = (-(-self.lengths[v] // self.unit[v]) for v in self.cut)
        return (*grid, *(self.unit[v] for v in self.inner))

    @property
    def inner(self) -> Shape:
        """The axes within a tile, in the order of the array."""
        return self.fast[::-1]

    def requests(self, tile: Sequence[int]) -> float:
        """Requests that all tiles of this shape take together."""
        run = (max(min(t, n), 1) for t, n in zip(tile, self.reader, strict=True))
        return math.prod(self.lengths) / math.prod(run)

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Loads into block 0, which begins at `origin` and has these extents."""
        return [
            Load(self.number, section, 0, _at(part, origin, extents), order, shape)
            for part, section, order, shape in self._parts(ends, alone=False)
        ]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Stores of all of a block."""
        origin, extents = [low for low, _ in ends], [high - low for low, high in ends]
        return [
            Store(self.number, section, block, _at(part, origin, extents), order, shape)
            for part, section, order, shape in self._parts(ends, alone=True)
        ]

    def _parts(self, ends: Ends, *, alone: bool) -> Iterator[tuple[Ends, Section, Shape, Shape]]:
        """Of each part: where it is, its section of the array, and how to see its place in a block."""
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
        """Parts along an axis: indices, panels, and indices within each of these."""
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
class Rows:
    """
    An array with an axis in rows, the last of which is not whole.

    Parameters
    ----------
    body
        The array with that axis divided: its whole rows. None if there are none.
    line
        The array with one row that has all of the axis.
    lengths
        Of the axes of the transform, with all rows that it has.
    axis
        The axis that counts rows; the next one counts within a row.
    """

    body: Plain | None
    line: Plain
    lengths: Shape
    axis: int
    chunks: Shape | None = None
    whole: bool = False

    @property
    def fast(self) -> Shape:
        """The axes of the transform, from the one that runs fastest in the file to the slowest."""
        return self.line.fast

    def requests(self, tile: Sequence[int]) -> float:
        """Requests that all tiles of this shape take together."""
        return (self.body or self.line).requests(tile)

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """Loads into block 0, which begins at `origin` and has these extents."""
        parts = self._parts(ends, origin)
        return [load for one, part, begin in parts for load in one.load(part, begin, extents)]

    def stores(self, ends: Ends, block: int) -> list[Store]:
        """Stores of what there is of a block."""
        extents = [high - low for low, high in ends]
        return [
            Store(one.array, one.section, block, one.at, one.axes)
            for one in self.load(ends, [low for low, _ in ends], extents)
        ]

    def _parts(self, ends: Ends, origin: Sequence[int]) -> Iterator[tuple[Plain, Ends, list[int]]]:
        """Of each array: what there is of it, and where its index 0 would be seen from the block."""
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
class Made:
    """
    Nothing is loaded: the kernel makes all elements.

    Parameters
    ----------
    lengths, fast
        As of the place that they go to.
    """

    lengths: Shape
    fast: Shape
    chunks: Shape | None = None
    whole: bool = False

    def requests(self, tile: Sequence[int]) -> float:
        """None."""
        return 0.0

    def load(self, ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> list[Load]:
        """None."""
        return []


Source = Plain | Panels | Rows | Made
Place = Plain | Panels | Rows


def _at(ends: Ends, origin: Sequence[int], extents: Sequence[int]) -> Section | None:
    """The place of a section in a block; None if it is all of it."""
    at = tuple(slice(low - o, high - o) for (low, high), o in zip(ends, origin, strict=True))
    whole = all(s.start == 0 and s.stop == n for s, n in zip(at, extents, strict=True))
    return None if whole else at
