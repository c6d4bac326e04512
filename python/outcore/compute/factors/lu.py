"""
LU factorisation with partial pivoting of a matrix on disk.

Problem. Each column depends on all columns before it, and later columns interchange their rows.
Interchanging the stored rows would read and write everything again for each panel.
Idea. Left-looking: a panel of columns stays in memory while the columns before it are streamed.
These remain stored in the row order in which they were factored. The rows of the panel are
interchanged as the factors are streamed, group after group, so they always have the order of the
next group. After the last pivot, a last phase brings the rows below the diagonal into their final
order, once.

Invariants. The rows of U, and of L in the group of a pivot, are final when they are stored. If
columns of the result are contiguous, they are stored there, and only the rows below them go through
a temporary array. Pivots are an array on disk, so an interrupted job continues with the incomplete
panel.

Reference: Toledo and Gustavson 1996 (SOLAR); PASSION, which has LU decomposition among its
applications.
Bound: Kwasniewski et al., "On the parallel I/O optimality of linear algebra kernels" (2021).
"""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, load_routines
from outcore.compute.factors.panels import (
    NOTHING,
    PIVOT,
    Columns,
    ProgramMatrix,
    Span,
    choose_bound,
    estimate_panels,
    find_multiple,
    is_by_columns,
    list_divisions,
    make_slice,
)
from outcore.compute.jobs import (
    SMALLEST,
    Bound,
    InsufficientBuffersError,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    collective,
    complete,
    find_largest,
    open_inputs,
)
from outcore.compute.rates import count_operations, measure_product_rate

__all__ = ["Factoring", "choose_lu_bound", "lu_factor"]

_MATRIX = ProgramMatrix(0)


@collective
def lu_factor(a: Source, *, out: Any = None, **how: Any) -> tuple[DiskArray, NDArray[np.int32]]:
    """
    Compute the LU factors of a matrix, with partial pivoting.

    Parameters
    ----------
    a
        Matrix, of shape ``(m, n)``.
    out
        Destination of the factors, as in `outcore.compute.jobs.complete`, or a tuple of this and
        the destination of the pivots. Default: a temporary array on disk, and a NumPy array.
        Columns of the factors are contiguous if the format allows it.
    how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    lu : DiskArray
        Factors, of shape ``(m, n)``: U in the upper triangle, and below it L without its unit
        diagonal. Their dtype is float32, float64, complex64 or complex128, as in `numpy.linalg`.
    piv : numpy.ndarray
        Pivots, of shape ``(min(m, n),)`` and dtype int32: row ``i`` was interchanged with row
        ``piv[i]``, one after the other. `outcore.linalg.lu_solve` and `scipy.linalg.lu_solve` take both
        results.

    Raises
    ------
    LinAlgError
        ``not-finite``: the matrix contains NaN or infinity. ``bad-shape``: `a` is not a matrix.
    UsageError, UnsupportedError, BudgetError
        See `outcore.compute.jobs.complete`. The budget must hold two columns.

    Warns
    -----
    RuntimeWarning
        A pivot is zero: the matrix is singular. The factors are still correct, as those of SciPy
        are.

    Notes
    -----
    Memory: at least two columns; less memory means more reads. ``explain=True`` reports the bytes
    moved and the lower bound. Collective with ``comm=``: a panel depends on the ones before it, so
    one rank at a time has work.

    Left-looking panels: Toledo, Gustavson, "The design and implementation of SOLAR, a portable
    library for scalable out-of-core linear algebra computations" (1996).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> lu, piv = outcore.linalg.lu_factor("a.npy", out="lu.npy")
    >>> lu[...], piv
    (array([[4.  , 4.  ],
           [0.25, 1.  ]]), array([1, 1], dtype=int32))
    """
    with open_inputs(a) as (matrix,):
        m, n = matrices.check_matrix("lu_factor", matrix)
        dtype = matrices.choose_dtype("lu_factor", matrix)
        results = (
            Result((m, n), dtype, kept={"order": "F"}, source=matrix.path),
            Result((min(m, n),), PIVOT, source=matrix.path, small=True),
        )
        plan = _LuPlan(m, n, matrix.dtype, load_routines(dtype, "lu_factor"))
        operation = Operation("lu_factor", (matrix,), results, plan)
        outs = out if out is None or isinstance(out, tuple) else (out, None)
        return complete(operation, outs, how)  # type: ignore[no-any-return]


def choose_lu_bound(terms: Terms, n: int, itemsize: int, arrays: Mapping[int, int]) -> Bound:
    """Return the bound for factoring a matrix of order `n`; `arrays` are as for `choose_bound`."""
    memory = terms.room / itemsize
    again = 2 * n**3 / (3 * math.sqrt(memory)) - 2 * memory
    name = "2 n^3 / (3 sqrt(M)) - 2 M elements, Kwasniewski et al. 2021"
    return choose_bound(terms, arrays, itemsize, again, name)


@dataclass(frozen=True, slots=True)
class _LuPlan:
    """Planner: arrays are the matrix, factors, pivots; columns and pivots between phases."""

    m: int
    n: int
    given: np.dtype[Any]
    blas: Routines

    def __call__(self, terms: Terms) -> Program:
        m, n, size = self.m, self.n, self.blas.dtype.itemsize
        if not m or not n:
            return NOTHING
        result = ProgramMatrix(1)
        # Parts of short columns would be written together with everything between them.
        long = terms.infos[1] is None or m * size > 2 * terms.disk.gap
        apart = is_by_columns(terms, result) and long
        upper, lower = (result, ProgramMatrix(3)) if apart else (ProgramMatrix(3), ProgramMatrix(3))
        names = ("matrix", "factors", "pivots", "columns", "their pivots")
        work = Factoring("lu_factor", terms, (m, n), self.blas, self.given, upper, lower, 4, names)
        last = _LastPhase(work, terms.room, result, find_multiple(terms, result))
        once = {0: m * n * self.given.itemsize, 1: m * n * size}
        bound = choose_lu_bound(terms, work.least, size, once)
        method = f"{work.method}; rows of L go into their final order in the end" + (
            "" if apart else ", with all of U, as parts of columns would be slow to write"
        )
        return Program((work.schedule(), last.schedule()), method, bound, work.temporaries)


@dataclass(frozen=True)
class Factoring:
    """
    Steps of the factorisation.

    Buffers: the groups of a panel, streamed columns, their pivots, and elements of another dtype.
    """

    name: str
    terms: Terms
    shape: tuple[int, int]
    blas: Routines
    #: Dtype of the matrix on disk.
    given: np.dtype[Any]
    #: Destination of U, and of L in the groups of the diagonal.
    upper: ProgramMatrix
    #: Destination of L, with rows in the order in which the group was factored. If it is the
    #: same array as `upper`, the whole column is stored there.
    lower: ProgramMatrix
    #: Number of the array of pivots.
    pivots: int
    #: Names of all arrays, for messages.
    arrays: tuple[str, ...]
    #: Whether a zero pivot is an error.
    strict: bool = False

    @cached_property
    def cut(self) -> Columns:
        """Division of the columns into panels that suits the terms."""
        size, (m, n), room = self.blas.dtype.itemsize, self.shape, self.terms.room
        raw = self.given.itemsize if self.casts else 0

        def count_bytes(width: int, unit: int, copies: int, groups: int) -> int:
            group = -(-width // groups)
            columns = m * (group * groups * size + group * raw + copies * unit * size)
            return columns + (copies + 1) * group * PIVOT.itemsize

        def most(unit: int, copies: int, groups: int) -> int:
            return find_largest(
                max(room // (m * size), 0),
                lambda width: count_bytes(width, unit, copies, groups) <= room,
            )

        least = max(count_bytes(1, 1, 1, 1), min(SMALLEST, m * n * size))
        divisions = list_divisions(n, most, find_multiple(self.terms, _MATRIX))
        best = min(divisions, key=self.seconds, default=None) if room >= least else None
        if best is None:
            raise InsufficientBuffersError(least)
        return best

    @cached_property
    def begins(self) -> list[int]:
        """Number of the first step of each panel, and the number of all steps."""
        panels = range(self.cut.panels)
        counts = (2 * self.cut.groups_of(panel) + self.units_before(panel) for panel in panels)
        return list(itertools.accumulate(counts, initial=0))

    @property
    def casts(self) -> bool:
        """Whether the matrix has another dtype than the computation."""
        return not matrices.is_same_dtype(self.given, self.blas.dtype)

    @property
    def temporaries(self) -> tuple[Result, ...]:
        """Arrays of factored columns, and of their pivots."""
        return (
            Result(self.shape, self.blas.dtype, {"order": "F"}),
            Result((self.least,), PIVOT),
        )

    def seconds(self, cut: Columns) -> float:
        """Estimate the time for factoring with these panels."""
        (m, n), size, least = self.shape, self.blas.dtype.itemsize, self.least
        before = np.minimum(np.arange(0, n, cut.width, dtype=float), least)
        panels = len(before)
        words = float((m * before - before * before / 2).sum())
        units, pieces = float((before / cut.unit).sum()), float(before.sum())
        loads = n if self.terms.order(0) == "F" else m * panels * cut.groups
        once = m * n * self.given.itemsize + m * n * size * (1 if self.upper != self.lower else 2)
        work = m * n * least - (m + n) * least**2 / 2 + least**3 / 3
        # Factoring a group has three quarters of the speed of products.
        work += m * least * cut.group / 6
        first = m * min(cut.width, n) * self.given.itemsize
        return estimate_panels(
            self.terms,
            self.blas.dtype,
            work,
            cut,
            (pieces, words * size),
            (loads + n, once),
            (loads / panels, first),
            int(units + panels * 2 * cut.groups),
        )

    @property
    def method(self) -> str:
        """Human-readable method."""
        cut = self.cut
        return (
            f"left-looking by panels of {min(cut.width, cut.count)} columns in {cut.groups} groups, "
            f"earlier columns come by {cut.unit} at a time"
        )

    @property
    def least(self) -> int:
        """Number of pivots."""
        return min(self.shape)

    def units_before(self, panel: int) -> int:
        """Count the units of L before a panel."""
        m, group = self.shape[0], self.cut.group
        # Units that begin after the last row have no L.
        ending = min(panel * self.cut.width, self.cut.count, -(-m // group) * group)
        return self.cut.units_in(ending)

    def schedule(self) -> Schedule:
        """Make the schedule of all steps."""
        cut, dtype, m = self.cut, self.blas.dtype, self.shape[0]
        buffers = cut.list_buffers(m, dtype)
        buffers.append(Buffer(cut.group, PIVOT, copies=cut.copies))
        if self.casts:
            buffers.append(Buffer(m * cut.group, self.given.newbyteorder("="), "F"))
        return Schedule(
            name=self.name,
            arrays=self.arrays,
            buffers=tuple(buffers),
            steps=self.begins[-1],
            make=self.step,
            kernels=(self.check, self.begin, self.update, self.factorise),
            reading=min(cut.groups + 2, 8),
            writing=2,
            rate=measure_product_rate(dtype.char),
        )

    def step(self, number: int) -> ScheduleStep:
        """Return step `number` of all steps."""
        panel = bisect.bisect_right(self.begins, number) - 1
        k, groups = number - self.begins[panel], self.cut.groups_of(panel)
        if k < groups:
            return self._load(panel, k)
        if k < groups + self.units_before(panel):
            return self._come_by(panel, k - groups)
        return self._finish(panel, k - groups - self.units_before(panel))

    def _load(self, panel: int, group: int) -> ScheduleStep:
        columns, m = self.cut.spans(panel)[group], self.shape[0]
        width = columns[1] - columns[0]
        block = self.cut.list_blocks(m, group, group + 1)
        if self.casts:
            blocks = (*block, Block(self.cut.groups + 2, (m, width)))
            load = _MATRIX.load((0, m), columns, 1)
            return ScheduleStep(blocks, (load,), (), 1, (columns,), continues=group > 0)
        load = _MATRIX.load((0, m), columns, 0, (make_slice(0, m), make_slice(0, width)))
        return ScheduleStep(block, (load,), (), 0, (columns,), continues=group > 0)

    def _come_by(self, panel: int, unit: int) -> ScheduleStep:
        group, columns = self.cut.of_unit(unit)
        first, stop = self.cut.of_group(group)
        m, width = self.shape[0], columns[1] - columns[0]
        begins_group = columns[0] == first
        pivots = min(stop, m) - first if begins_group else 0
        spans = self.cut.spans(panel)
        blocks = (
            *self.cut.list_blocks(m, 0, len(spans)),
            Block(self.cut.groups, (max(m - columns[0], 0), width)),
        )
        loads: tuple[Load, ...] = (self.lower.load((min(columns[0], m), m), columns, len(spans)),)
        if begins_group:
            blocks += (Block(self.cut.groups + 1, (pivots,)),)
            loads += (Load(self.pivots, (make_slice(first, first + pivots),), len(spans) + 1),)
        before = group // self.cut.groups
        stored = self.begins[before + 1] - self.cut.groups_of(before) + group % self.cut.groups + 1
        wide = self.cut.panel(panel)[1] - self.cut.panel(panel)[0]
        eliminated = min(columns[1], m) - columns[0]
        work = (m - columns[0] - eliminated / 2) * eliminated * wide
        return ScheduleStep(
            blocks,
            loads,
            (),
            2,
            (spans, columns[0], first),
            after=stored,
            continues=True,
            work=count_operations(max(int(work), 0), self.blas.dtype),
        )

    def _finish(self, panel: int, group: int) -> ScheduleStep:
        spans, m = self.cut.spans(panel, group), self.shape[0]
        columns = spans[0]
        start, stop = columns
        pivots = max(min(stop, m) - start, 0)
        blocks = self.cut.list_blocks(m, group, group + len(spans))
        stores: list[Store] = []
        inside = make_slice(0, stop - start)
        if self.upper == self.lower:
            stores.append(self.upper.store((0, m), columns, 0, (make_slice(0, m), inside)))
        else:
            bottom = min(stop, m)
            stores.append(
                self.upper.store((0, bottom), columns, 0, (make_slice(0, bottom), inside))
            )
            if pivots:
                stores.append(
                    self.lower.store((start, m), columns, 0, (make_slice(start, m), inside))
                )
        if pivots:
            blocks += (Block(self.cut.groups + 1, (pivots,)),)
            at = (make_slice(start, start + pivots),)
            stores.append(Store(self.pivots, at, len(blocks) - 1))
        rest = spans[-1][1] - stop
        work = (m - start - pivots / 2) * pivots * (rest + pivots / 2)
        return ScheduleStep(
            blocks,
            (),
            tuple(stores),
            3,
            (spans, pivots),
            continues=True,
            work=count_operations(max(int(work), 0), self.blas.dtype),
        )

    # Kernels: blocks of groups are the first arguments; `spans` are their columns.

    def check(self, blocks: Sequence[NDArray[Any]], columns: Span) -> None:
        """Raise for NaN or infinity, which would spoil all rows."""
        kept = blocks[0][:, : columns[1] - columns[0]]
        matrices.check_finite_columns(self.name, "the matrix", kept, (0, columns[0]))

    def begin(self, blocks: Sequence[NDArray[Any]], columns: Span) -> None:
        """Cast the loaded columns."""
        kept, raw = blocks
        np.copyto(kept[:, : raw.shape[1]], raw, casting="unsafe")
        self.check(blocks, columns)

    def update(
        self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], first: int, group: int
    ) -> None:
        """Apply the row interchanges of the streamed group, and subtract its contribution."""
        came = blocks[len(spans)]
        for kept, (start, stop) in zip(blocks, spans, strict=False):
            columns = kept[:, : stop - start]
            if len(blocks) > len(spans) + 1:
                self.blas.laswp(columns[group:], blocks[-1] - PIVOT.type(group))
            self.blas.eliminate(columns[first:], came)

    def factorise(self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], pivots: int) -> None:
        """Factor a group, and subtract its contribution from the later ones."""
        if not pivots:
            return
        start, stop = spans[0]
        found = blocks[-1]
        below = blocks[0][start:, : stop - start]
        zero = self.blas.getrf(below, found)
        if zero:
            self.singular(start + zero - 1)
        for kept, columns in zip(blocks[1:], spans[1:], strict=False):
            other = kept[start:, : columns[1] - columns[0]]
            self.blas.laswp(other, found)
            self.blas.eliminate(other, below)
        found += PIVOT.type(start)

    def reorder(
        self, block: NDArray[Any], pivots: NDArray[Any], columns: Span, first: int = 0
    ) -> None:
        """Interchange rows from `first` on as the groups after that of each column did."""
        start, group = columns[0], self.cut.group
        while start < columns[1]:
            stop = min(start // group * group + group, columns[1])
            after = min(start // group * group + group, pivots.size)
            rows = block[after - first :, start - columns[0] : stop - columns[0]]
            self.blas.laswp(rows, pivots[after:] - PIVOT.type(after))
            start = stop

    def singular(self, column: int) -> None:
        """Handle a zero pivot: there is nothing to eliminate, and the factors are correct."""
        if not self.strict:
            warnings.warn(
                f"{self.name}: pivot {column} is exactly zero, the matrix is singular",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        raise matrices.singular_error(self.name, f"pivot {column}")


class _LastPhase:
    """Last phase: rows of L in their final order into the result, and U if it is not there yet."""

    def __init__(self, work: Factoring, room: int, result: ProgramMatrix, of: int) -> None:
        self.work, self.result = work, result
        self.apart = work.upper != work.lower
        m, n = work.shape
        size, pivots = work.blas.dtype.itemsize, work.least * PIVOT.itemsize
        group = work.cut.group
        self.width = group
        if not self.apart:
            most = max((room // 2 - pivots) // (m * size), 1)
            self.width = min(most // of * of or most, n)
        each = m * self.width * size + pivots
        self.copies = min(max(room // each, 1), 6)
        if each > room:
            raise InsufficientBuffersError(each)
        self.steps = -(-n // self.width)
        if self.apart:
            # Last group with rows below it.
            below = min(m - 1, n - 1) // group
            self.steps = below + (work.cut.of_group(below)[1] < m)

    def schedule(self) -> Schedule:
        work = self.work
        most = work.shape[0] * self.width
        buffers = (
            Buffer(most, work.blas.dtype, "F", copies=self.copies),
            Buffer(work.least, PIVOT, copies=self.copies),
        )
        # At least one step, which stores the pivots.
        steps = max(self.steps, 1)
        return Schedule(
            work.name,
            work.arrays,
            buffers,
            steps,
            self.step,
            (self.interchange,),
            reading=max(self.copies // 2, 1),
            writing=max(self.copies // 2, 1),
        )

    def step(self, number: int) -> ScheduleStep:
        work, (m, n) = self.work, self.work.shape
        least = work.least
        columns = number * self.width, min((number + 1) * self.width, n)
        first = min(columns[1], m) if self.apart else 0
        blocks: tuple[Block, ...] = (Block(1, (least,)),)
        loads: tuple[Load, ...] = (Load(work.pivots, (make_slice(0, least),), 0),)
        stores: tuple[Store, ...] = ()
        if number == 0:
            stores = (Store(2, (make_slice(0, least),), 0),)
        if number < self.steps:
            blocks += (Block(0, (m - first, columns[1] - columns[0])),)
            loads += (work.lower.load((first, m), columns, 1),)
            stores += (self.result.store((first, m), columns, 1),)
        return ScheduleStep(blocks, loads, stores, 0, (columns, first))

    def interchange(self, blocks: Sequence[NDArray[Any]], columns: Span, first: int) -> None:
        """Interchange rows as the groups after that of each column did."""
        if len(blocks) == 1:
            return
        self.work.reorder(blocks[1], blocks[0], columns, first)
