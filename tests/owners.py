"""Who owns an element of a distributed array: a table, built element by element as HPF says it."""

from __future__ import annotations

import math

import numpy as np

from outcore.mpi import Distribution


def coordinate(form, cell, cells, over):
    """Who owns a cell of a template, as HPF says it."""
    kind, size = (form, None) if isinstance(form, str) else form
    if kind == "block":
        return cell // (size or max(1, math.ceil(cells / over)))
    if kind == "cyclic":
        return cell // (size or 1) % over
    return int(np.repeat(np.arange(over), size)[cell])


class Case:
    """Arguments of a distribution, and the table of its owners."""

    def __init__(self, shape, formats, grid, align, cells, axes):
        self.shape, self.formats, self.grid = shape, formats, grid
        self.align, self.cells, self.axes = align, cells, axes
        self.ranks = math.prod(grid)

    def make(self):
        return Distribution(self.shape, self.formats, self.grid, align=self.align, axes=self.axes)

    def coordinates(self, d):
        """Per index of an axis, the coordinate that owns it."""
        if self.axes[d] is None:
            return np.zeros(self.shape[d], np.int64)
        stride, offset, _ = self.align[d]
        over, form = self.grid[self.axes[d]], self.formats[d]
        cells = [stride * i + offset for i in range(self.shape[d])]
        return np.array([coordinate(form, c, self.cells[d], over) for c in cells], np.int64)

    def owners(self):
        """The lowest rank that has each element."""
        table = np.zeros(self.shape, np.int64)
        weight = np.cumprod([1, *self.grid[:0:-1]])[::-1]
        for d, axis in enumerate(self.axes):
            if axis is not None:
                along = self.coordinates(d) * weight[axis]
                table += along.reshape([-1 if e == d else 1 for e in range(len(self.shape))])
        return table

    def has(self, rank):
        """Indices along each axis that a rank has, in ascending order."""
        at = np.unravel_index(rank, self.grid)
        return [
            np.arange(n) if a is None else np.flatnonzero(self.coordinates(d) == at[a])
            for d, (n, a) in enumerate(zip(self.shape, self.axes, strict=True))
        ]

    def near(self, rank, widths):
        """The same with the ghosts; for axes that are cut in one piece for each coordinate."""
        return [
            np.array(
                [i for i in range(n) if ((axis - low <= i) & (i <= axis + high)).any()], np.int64
            )
            for n, axis, (low, high) in zip(self.shape, self.has(rank), widths, strict=True)
        ]

    def accumulated(self, parts, widths, combine):
        """
        The array after ghosts were combined with the elements of their owners, one by one.

        Parts, ghosts included, are those of all ranks. By coordinates along the grid axes that are not
        used: each copy of the array has its own ghosts.
        """
        copies = {}
        for rank, part in enumerate(parts):
            whole = copies.setdefault(self.copy(rank), np.zeros(self.shape, part.dtype))
            has = self.has(rank)
            places = map(np.searchsorted, self.near(rank, widths), has)
            whole[np.ix_(*has)] = part[np.ix_(*places)]
        for rank, part in enumerate(parts):
            whole, near, has = copies[self.copy(rank)], self.near(rank, widths), self.has(rank)
            for place in np.ndindex(part.shape):
                index = tuple(axis[k] for axis, k in zip(near, place, strict=True))
                if any(i not in axis for i, axis in zip(index, has, strict=True)):
                    whole[index] = combine(whole[index], part[place])
        return copies

    def copy(self, rank):
        """Coordinates of a rank along the grid axes that are not used."""
        at = np.unravel_index(rank, self.grid)
        return tuple(int(at[g]) for g in range(len(self.grid)) if g not in self.axes)

    def is_owner(self, rank):
        """Whether no lower rank has the same: along grid axes that are not used there are copies."""
        at = np.unravel_index(rank, self.grid)
        return all(at[g] == 0 for g in range(len(self.grid)) if g not in self.axes)
