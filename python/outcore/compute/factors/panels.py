"""
Matrices by panels of columns: panel widths, loads and stores.

Problem. A factorisation computes with a panel of columns that stays in memory, while the panels
before it are streamed. The division of memory between the panel and the streamed columns determines
how often everything is read, how fast products are, and how long the processor waits between two
panels.
Idea. A panel consists of groups of columns with a separate buffer each: while the last groups of a
panel are computed, the first groups of the next panel are loaded into memory that is already free.
Columns are streamed in units. All divisions that fit are compared by their estimated time.

Invariants. Columns of a group, and of a unit, are found by arithmetic. The division follows from
shapes, layouts, memory and the measured speed of the disk, not from a clock.

Reference: Toledo and Gustavson, "The design and implementation of SOLAR, a portable library for
scalable out-of-core linear algebra computations" (1996), for left-looking panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcore.arrays.schedule import Block, Buffer, Load, Section, Store
from outcore.base import assumed_costs
from outcore.compute.jobs import Bound, Program, Terms
from outcore.compute.rates import count_operations

__all__ = [
    "NOTHING",
    "PIVOT",
    "Columns",
    "ProgramMatrix",
    "choose_bound",
    "estimate_panels",
    "find_multiple",
    "is_by_columns",
    "list_divisions",
    "make_slice",
]

Span = tuple[int, int]

#: Program for matrices without elements.
NOTHING = Program((), "there is nothing to compute", Bound(0, "nothing"))

#: Dtype of the pivots, as in SciPy.
PIVOT = np.dtype(np.int32)


def make_slice(start: int, stop: int) -> slice:
    """Return the slice from `start` to `stop`, as sections have it."""
    return slice(start, max(start, stop))


@dataclass(frozen=True, slots=True)
class ProgramMatrix:
    """Matrix among the arrays of a program, whose transpose is stored if it is `turned`."""

    number: int
    turned: bool = False

    def _section(self, rows: Span, columns: Span) -> Section:
        return (
            (make_slice(*columns), make_slice(*rows))
            if self.turned
            else (make_slice(*rows), make_slice(*columns))
        )

    def load(self, rows: Span, columns: Span, block: int, at: Section | None = None) -> Load:
        """Load rows and columns of the matrix into a block or a part of it."""
        return Load(self.number, self._section(rows, columns), block, at, self._axes)

    def store(self, rows: Span, columns: Span, block: int, at: Section | None = None) -> Store:
        """Store rows and columns of the matrix from a block or a part of it."""
        return Store(self.number, self._section(rows, columns), block, at, self._axes)

    @property
    def across(self) -> ProgramMatrix:
        """The transposed matrix."""
        return ProgramMatrix(self.number, not self.turned)

    @property
    def _axes(self) -> tuple[int, int] | None:
        return (1, 0) if self.turned else None


def is_by_columns(terms: Terms, face: ProgramMatrix) -> bool:
    """Return whether columns of a matrix are contiguous, so that reading one again is cheap."""
    side = terms.side(face.number)
    if side is None:
        return True
    return side.chunks is None and side.order == ("C" if face.turned else "F")


def find_multiple(terms: Terms, face: ProgramMatrix) -> int:
    """Return the number of columns that share chunks of a matrix."""
    side = terms.side(face.number)
    if side is None or side.chunks is None:
        return 1
    return max(side.chunks[0 if face.turned else 1], 1)


@dataclass(frozen=True, slots=True)
class Columns:
    """Division of columns into panels of groups, and into units."""

    #: Number of columns.
    count: int
    #: Columns of a group.
    group: int
    #: Groups of a panel.
    groups: int
    #: Columns that are streamed together. A group has a whole number of units; the last unit may
    #: be narrower.
    unit: int
    #: Number of units in memory at the same time.
    copies: int = 2

    @property
    def width(self) -> int:
        """Number of columns of a panel."""
        return self.group * self.groups

    @property
    def panels(self) -> int:
        """Number of panels."""
        return -(-self.count // self.width)

    def panel(self, number: int) -> Span:
        """Return the columns of a panel."""
        return number * self.width, min((number + 1) * self.width, self.count)

    def groups_of(self, panel: int) -> int:
        """Count the groups of a panel."""
        start, stop = self.panel(panel)
        return -(-(stop - start) // self.group)

    def of_group(self, number: int) -> Span:
        """Return the columns of a group, counted over all panels."""
        return number * self.group, min((number + 1) * self.group, self.count)

    def spans(self, panel: int, first: int = 0) -> list[Span]:
        """Return the columns of the groups of a panel, from its group `first` on."""
        start = panel * self.groups
        return [self.of_group(start + s) for s in range(first, self.groups_of(panel))]

    def list_blocks(self, height: int, first: int, stop: int) -> tuple[Block, ...]:
        """Return the blocks of some groups of a panel with that many rows."""
        return tuple(Block(s, (height, self.group)) for s in range(first, stop))

    def list_buffers(self, height: int, dtype: np.dtype[Any]) -> list[Buffer]:
        """Return the buffers of the groups of a panel, and of streamed columns."""
        group = Buffer(height * self.group, dtype, "F", kept=True)
        return [group] * self.groups + [Buffer(height * self.unit, dtype, "F", copies=self.copies)]

    def units_in(self, columns: int) -> int:
        """Count the units in the first columns, if these are whole groups or all columns."""
        whole, rest = divmod(columns, self.group)
        return whole * -(-self.group // self.unit) + -(-rest // self.unit)

    def of_unit(self, number: int) -> tuple[int, Span]:
        """Return the group of a unit, and its columns."""
        group, within = divmod(number, -(-self.group // self.unit))
        start, stop = self.of_group(group)
        first = start + within * self.unit
        return group, (first, min(first + self.unit, stop))


_GROUPS = (1, 2, 3, 4, 6, 8, 12, 16)
_UNITS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024)


def list_divisions(
    count: int, most: Callable[[int, int, int], int], of: int = 1
) -> Iterator[Columns]:
    """
    Yield possible divisions of columns.

    `most` returns the maximum number of columns of a panel for the columns of a unit, the number of
    its copies and the groups of a panel. Group widths are multiples of `of`, if possible.
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


def estimate_panels(
    terms: Terms,
    dtype: np.dtype[Any],
    multiplications: float,
    cut: Columns,
    streamed: tuple[float, float],
    once: tuple[float, float],
    first: tuple[float, float],
    steps: int,
) -> float:
    """
    Estimate the seconds of a factorisation by panels.

    Groups of `cut` are the size of products, and units are subtracted in one product. One addition
    goes with each multiplication. `streamed` are the requests and bytes of earlier columns, `once`
    those of the matrix and the factors, and `first` those of the first panel or tile.
    """
    requests, nbytes = streamed[0] + once[0], streamed[1] + once[1]
    inner = min(cut.unit, cut.group)
    speed = assumed_costs.estimate_panel_rate(dtype, terms.cores, inner, cut.group)
    delay = assumed_costs.estimate_panel_delay(requests, nbytes)
    computing = count_operations(int(multiplications), dtype) / speed + delay
    moving = terms.disk.seconds(int(requests), int(nbytes))
    seconds = max(computing, moving) + steps * assumed_costs.FACTOR_STEP_SECONDS
    # Nothing can be computed while the first panel or tile is loaded. Between two of them, the last
    # group is stored and the next one loaded into its memory.
    seconds += terms.disk.seconds(int(first[0]), int(first[1]))
    return seconds + terms.disk.seconds(int(once[0] / cut.groups), int(once[1] / cut.groups))


def choose_bound(
    terms: Terms, arrays: Mapping[int, int], itemsize: int = 1, again: float = 0, name: str = ""
) -> Bound:
    """
    Return the larger bound: all arrays once, or the elements that this memory must move between.

    `arrays` has the bytes to move of each input and result; `again` are the elements of the other
    bound, if there is one, `name` its name.
    """
    on_disk = [n for n in arrays if terms.infos[n] is not None]
    least = sum(arrays[n] for n in on_disk)
    other = int(again * itemsize) if len(on_disk) == len(arrays) else 0
    if other <= least:
        return Bound(least, "inputs and results once", arrays)
    return Bound(other, name, arrays)
