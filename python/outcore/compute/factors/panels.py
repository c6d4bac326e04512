"""
Matrices by panels of columns: how wide, and how they are loaded and stored.

Problem. A factorisation computes with a panel of columns that stays in memory, while the panels before
it come by. How much memory is for the panel, and how much for what comes by, decides how often
everything is read, how fast products are, and how long the processor waits between two panels.
Idea. A panel is made of groups of columns, each a buffer of its own: while the last groups of a panel
are computed the first ones of the next panel are loaded, into memory that is free by then. What comes
by comes in units of columns. All that fit are compared by what they would take.

Invariants. Columns of a group, and of a unit, are found by arithmetic. The cut follows from shapes,
layouts, memory and the figures of the disk, not from a clock.

Reference: Toledo and Gustavson, "The design and implementation of SOLAR, a portable library for scalable
out-of-core linear algebra computations" (1996), for left-looking panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcore.arrays.schedule import Load, Section, Store
from outcore.base import assumed_costs
from outcore.compute.factors.blas import operations
from outcore.compute.jobs import Bound, Program, Terms

__all__ = [
    "NOTHING",
    "Columns",
    "Face",
    "by_columns",
    "candidates",
    "larger",
    "multiple",
    "overlapped",
    "span",
]

Span = tuple[int, int]

#: What is done with matrices that have no elements.
NOTHING = Program((), "there is nothing to compute", Bound(0, "nothing"))


def span(start: int, stop: int) -> slice:
    """Indices from `start` to `stop`, as sections have them."""
    return slice(start, max(start, stop))


@dataclass(frozen=True, slots=True)
class Face:
    """
    A matrix among the arrays of a program.

    Parameters
    ----------
    number
        Of the array.
    turned
        The array is the transposed matrix.
    """

    number: int
    turned: bool = False

    def _section(self, rows: Span, columns: Span) -> Section:
        return (span(*columns), span(*rows)) if self.turned else (span(*rows), span(*columns))

    def load(self, rows: Span, columns: Span, block: int, at: Section | None = None) -> Load:
        """Rows and columns of the matrix, into a block or a part of it."""
        return Load(self.number, self._section(rows, columns), block, at, self._axes)

    def store(self, rows: Span, columns: Span, block: int, at: Section | None = None) -> Store:
        """Rows and columns of the matrix, out of a block or a part of it."""
        return Store(self.number, self._section(rows, columns), block, at, self._axes)

    @property
    def across(self) -> Face:
        """The transposed matrix."""
        return Face(self.number, not self.turned)

    @property
    def _axes(self) -> tuple[int, int] | None:
        return (1, 0) if self.turned else None


def by_columns(terms: Terms, face: Face) -> bool:
    """Whether columns of a matrix lie in one piece, so that any of them can be read again cheaply."""
    side = terms.side(face.number)
    if side is None:
        return True
    return side.chunks is None and side.order == ("C" if face.turned else "F")


def multiple(terms: Terms, face: Face) -> int:
    """How many columns of a matrix belong together, as its chunks have them."""
    side = terms.side(face.number)
    if side is None or side.chunks is None:
        return 1
    return max(side.chunks[0 if face.turned else 1], 1)


@dataclass(frozen=True, slots=True)
class Columns:
    """
    Columns in panels of groups, and in units.

    Parameters
    ----------
    count
        How many columns there are.
    group
        Columns of a group.
    groups
        Groups of a panel.
    unit
        Columns that come by together; a group has a whole number of units, the last one narrower.
    copies
        Units in memory at once.
    """

    count: int
    group: int
    groups: int
    unit: int
    copies: int = 2

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.group * self.groups

    @property
    def panels(self) -> int:
        """How many panels there are."""
        return -(-self.count // self.width)

    def panel(self, number: int) -> Span:
        """Columns of a panel."""
        return number * self.width, min((number + 1) * self.width, self.count)

    def groups_of(self, panel: int) -> int:
        """How many groups a panel has."""
        start, stop = self.panel(panel)
        return -(-(stop - start) // self.group)

    def of_group(self, number: int) -> Span:
        """Columns of a group, counted over all panels."""
        return number * self.group, min((number + 1) * self.group, self.count)

    def units_in(self, columns: int) -> int:
        """How many units the first columns have, if these are whole groups or all."""
        whole, rest = divmod(columns, self.group)
        return whole * -(-self.group // self.unit) + -(-rest // self.unit)

    def of_unit(self, number: int) -> tuple[int, Span]:
        """The group of a unit, and its columns."""
        group, within = divmod(number, -(-self.group // self.unit))
        start, stop = self.of_group(group)
        first = start + within * self.unit
        return group, (first, min(first + self.unit, stop))


_GROUPS = (1, 2, 3, 4, 6, 8, 12, 16)
_UNITS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)


def candidates(count: int, most: Callable[[int, int, int], int], of: int = 1) -> Iterator[Columns]:
    """
    Ways to cut columns.

    Parameters
    ----------
    count
        How many columns there are.
    most
        How many columns a panel may have, if units have so many columns and so many copies, and the
        panel so many groups.
    of
        Groups have a multiple of so many columns, if they can.
    """
    for unit in _UNITS:
        for copies in (2, 1):
            if unit > max(count, 1) or (copies == 1 and unit > 1):
                continue
            for groups in _GROUPS:
                room = most(unit, copies, groups)
                if room >= count:
                    group = -(-count // groups)
                    if of < group and -(-group // of) * of * groups <= room:
                        group = -(-group // of) * of
                else:
                    group = room // groups
                    step = of if of <= group else unit
                    group = group // step * step if step <= group else group
                if group >= 1 and group * groups <= room:
                    yield Columns(count, group, groups, min(unit, group), copies)


def overlapped(
    terms: Terms,
    dtype: np.dtype[Any],
    multiplications: float,
    cut: Columns,
    requests: float,
    nbytes: float,
    steps: int,
) -> float:
    """
    Seconds of products and transfers that go on at the same time, roughly.

    Parameters
    ----------
    terms
        With the processors and the disk.
    dtype
        That is computed in.
    multiplications
        With an addition each.
    cut
        Groups are what products have, units what they take away at once.
    requests, nbytes
        Of the transfers.
    steps
        How many steps there are.
    """
    inner = min(cut.unit, cut.group)
    speed = assumed_costs.estimate_panel_rate(dtype, terms.cores, inner, cut.group)
    delay = assumed_costs.estimate_panel_delay(requests, nbytes)
    computing = operations(int(multiplications), dtype) / speed + delay
    moving = terms.disk.seconds(int(requests), int(nbytes))
    return max(computing, moving) + steps * assumed_costs.FACTOR_STEP_SECONDS


def _once(terms: Terms, arrays: Mapping[int, int]) -> tuple[int, bool]:
    """
    Bytes of arrays that are on disk, and whether all are.

    Parameters
    ----------
    terms
        With their layouts.
    arrays
        For each array what has to be moved of it.
    """
    on_disk = [n for n in arrays if terms.infos[n] is not None]
    return sum(arrays[n] for n in on_disk), len(on_disk) == len(arrays)


def larger(
    terms: Terms, arrays: Mapping[int, int], itemsize: int, again: float, name: str
) -> Bound:
    """
    The larger one of: all once, and what a memory of this size has to move of the elements between.

    Parameters
    ----------
    terms
        With the memory.
    arrays
        For each input and result what has to be moved of it.
    itemsize
        Bytes of an element that is computed with.
    again
        Elements of the other bound.
    name
        Of the other bound.
    """
    least, all_on_disk = _once(terms, arrays)
    other = int(again * itemsize) if all_on_disk else 0
    if other <= least:
        return Bound(least, "inputs and results once", arrays)
    return Bound(other, name, arrays)
