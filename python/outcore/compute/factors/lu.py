"""
LU factorisation with partial pivoting of a matrix on disk.

Problem. Each column needs all columns before it, whose rows later columns interchange; to interchange
them where they are stored would read and write everything again for each panel.
Idea. Left-looking: a panel of columns stays in memory while those before it come by. These stay
stored in the order of rows that they had when they were factored: the rows of the panel are
interchanged as the factors come by, group after group, and so are always in the order of what comes
next. When all pivots are known, a last phase brings the rows below the diagonal into their final
order, once.

Invariants. The rows of U, and of L in the group of a pivot, are final when they are stored: if
columns of the result lie in one piece, they go there, and only what is below them goes through a
temporary array. Pivots are an array on disk: an interrupted job goes on with the panel that was under
way.

Reference: Toledo and Gustavson 1996 (SOLAR); PASSION, the LU decomposition among its applications.
Bound: Kwasniewski et al., "On the parallel I/O optimality of linear algebra kernels" (2021).
"""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, Step, Store
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, operations, rate, routines
from outcore.compute.factors.panels import (
    NOTHING,
    Columns,
    Face,
    Span,
    by_columns,
    candidates,
    larger,
    multiple,
    overlapped,
    span,
)
from outcore.compute.jobs import (
    SMALLEST,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    TooLittle,
    collective,
    complete,
    opened,
)
from outcore.errors import LinAlgError

__all__ = ["BOUND", "PIVOT", "Factoring", "elements_again", "lu_factor"]

#: Of the numbers of interchanged rows, as SciPy has them.
PIVOT = np.dtype(np.int32)

#: What `elements_again` counts.
BOUND = "2 n^3 / (3 sqrt(M)) - 2 M elements, Kwasniewski et al. 2021"


@collective
def lu_factor(a: Source, *, out: Any = None, **how: Any) -> tuple[DiskArray, NDArray[np.int32]]:
    """
    LU factors of a matrix, with partial pivoting.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(m, n)``.
    out
        Where the factors go: a path, or an open array; or a tuple of this and where the pivots go. By
        default a temporary array on disk, which goes away with its handle, and a NumPy array. Columns of
        the factors lie in one piece if the format has a choice.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    lu : DiskArray
        Of shape ``(m, n)``: U in the upper triangle, and below it L without the ones of its diagonal.
        float32, float64, complex64 or complex128, as `numpy.linalg` chooses it.
    piv : numpy.ndarray
        Of shape ``(min(m, n),)`` and dtype int32: row ``i`` was interchanged with row ``piv[i]``, one
        after the other. `outcore.lu_solve` takes both, as does `scipy.linalg.lu_solve`.

    Raises
    ------
    LinAlgError
        ``not-finite``: the matrix holds NaN or infinity. ``bad-shape``: it is no matrix.
    UsageError
        ``bad-dtype``: not a matrix that NumPy factors.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.
    BudgetError
        Not even two columns fit.

    Warns
    -----
    RuntimeWarning
        A pivot is zero: the matrix is singular. The factors are right, as those of SciPy are.

    Notes
    -----
    Memory: two columns at least; with little of it more is read. ``explain=True`` tells what is moved
    beside what has to be. Collective with ``comm=``: a panel needs those before it, so one rank at a
    time has work.

    Left-looking panels: Toledo, Gustavson, "The design and implementation of SOLAR, a portable library
    for scalable out-of-core linear algebra computations" (1996).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> lu, piv = outcore.lu_factor("a.npy", out="lu.npy")
    >>> lu[...], piv
    (array([[4.  , 4.  ],
           [0.25, 1.  ]]), array([1, 1], dtype=int32))
    """
    with opened(a) as (matrix,):
        m, n = matrices.matrix("lu_factor", matrix)
        dtype = matrices.computed("lu_factor", matrix)
        results = (
            Result((m, n), dtype, kept={"order": "F"}, source=matrix.path),
            Result((min(m, n),), PIVOT, source=matrix.path, small=True),
        )
        plan = _Plan(m, n, matrix.dtype, routines(dtype, "lu_factor"))
        operation = Operation("lu_factor", (matrix,), results, plan)
        outs = out if out is None or isinstance(out, tuple) else (out, None)
        return complete(operation, outs, how)  # type: ignore[no-any-return]


def elements_again(n: int, memory: float) -> float:
    """Elements that have to be moved to factor a matrix of order `n` with memory for so many."""
    return 2 * n**3 / (3 * math.sqrt(memory)) - 2 * memory


@dataclass(frozen=True, slots=True)
class _Plan:
    """From terms to a program: matrix, factors, pivots; columns and pivots between the phases."""

    m: int
    n: int
    given: np.dtype[Any]
    blas: Routines

    def __call__(self, terms: Terms) -> Program:
        m, n, size = self.m, self.n, self.blas.dtype.itemsize
        if not m or not n:
            return NOTHING
        result = Face(1)
        # Parts of short columns would be written with all that is between them.
        long = terms.infos[1] is None or m * size > 2 * terms.disk.gap
        apart = by_columns(terms, result) and long
        upper, lower = (result, Face(3)) if apart else (Face(3), Face(3))
        work = Factoring.planned(
            "lu_factor",
            terms,
            (m, n),
            self.blas,
            self.given,
            Face(0),
            upper,
            lower,
            4,
            ("matrix", "factors", "pivots", "columns", "their pivots"),
        )
        last = _LastPhase(work, terms.room, result, multiple(terms, result))
        words, least = terms.room / size, min(m, n)
        bound = larger(
            terms,
            {0: m * n * self.given.itemsize, 1: m * n * size},
            size,
            elements_again(least, words),
            BOUND,
        )
        method = f"{work.method}; rows of L go into their final order in the end" + (
            "" if apart else ", with all of U, as parts of columns would be slow to write"
        )
        temporaries = (
            Result((m, n), self.blas.dtype, {"order": "F"}),
            Result((min(m, n),), PIVOT),
        )
        return Program((work.schedule(), last.schedule()), method, bound, temporaries)


@dataclass(frozen=True)
class Factoring:
    """
    The steps that factor. Buffers: the groups of a panel, columns that come by, their pivots, and
    elements of another dtype.

    Parameters
    ----------
    name
        Of the operation.
    shape
        Of the matrix.
    cut
        Its columns in panels.
    blas
        For its dtype.
    given
        The dtype that it has on disk.
    matrix
        What is factored.
    upper
        Where U goes, and L in the groups of the diagonal.
    lower
        Where L goes; its rows as they were when the group was factored. If it is the same array as
        `upper`, all of a column goes there.
    pivots
        Number of the array of pivots.
    arrays
        Names of all arrays, for people.
    strict
        A pivot that is zero is an error.
    """

    name: str
    shape: tuple[int, int]
    cut: Columns
    blas: Routines
    given: np.dtype[Any]
    matrix: Face
    upper: Face
    lower: Face
    pivots: int
    arrays: tuple[str, ...]
    strict: bool = False
    begins: tuple[int, ...] = ()

    @classmethod
    def planned(
        cls,
        name: str,
        terms: Terms,
        shape: tuple[int, int],
        blas: Routines,
        given: np.dtype[Any],
        matrix: Face,
        upper: Face,
        lower: Face,
        pivots: int,
        arrays: tuple[str, ...],
        *,
        strict: bool = False,
    ) -> Factoring:
        """With columns cut for these terms."""
        size, (m, n) = blas.dtype.itemsize, shape
        raw = 0 if matrices.same(given, blas.dtype) else given.itemsize

        def held(width: int, unit: int, copies: int, groups: int) -> int:
            group = -(-width // groups)
            columns = m * (group * groups * size + group * raw + copies * unit * size)
            return columns + (copies + 1) * group * PIVOT.itemsize

        def most(unit: int, copies: int, groups: int) -> int:
            low, high = 0, max(terms.room // (m * size), 0)
            while low < high:
                middle = (low + high + 1) // 2
                fits = held(middle, unit, copies, groups) <= terms.room
                low, high = (middle, high) if fits else (low, middle - 1)
            return low

        least = max(held(1, 1, 1, 1), min(SMALLEST, m * n * size))
        if terms.room < least:
            raise TooLittle(least)
        found: list[tuple[float, int, Columns]] = []
        for cut in candidates(n, most, multiple(terms, matrix)):
            seconds = _seconds(terms, shape, cut, blas.dtype, given.itemsize, apart=upper != lower)
            found.append((seconds, len(found), cut))
        if not found:
            raise TooLittle(least)
        cut = min(found, key=lambda one: one[:2])[2]
        work = cls(name, shape, cut, blas, given, matrix, upper, lower, pivots, arrays, strict)
        begins = [0]
        for panel in range(cut.panels):
            begins.append(begins[-1] + 2 * cut.groups_of(panel) + work.units_before(panel))
        object.__setattr__(work, "begins", tuple(begins))
        return work

    @property
    def method(self) -> str:
        """In words."""
        cut = self.cut
        return (
            f"left-looking by panels of {min(cut.width, cut.count)} columns in {cut.groups} groups, "
            f"earlier columns come by {cut.unit} at a time"
        )

    @property
    def least(self) -> int:
        """How many pivots there are."""
        return min(self.shape)

    def units_before(self, panel: int) -> int:
        """Units of L before a panel."""
        m, group = self.shape[0], self.cut.group
        # Units that begin below the last row have no L.
        ending = min(panel * self.cut.width, self.cut.count, -(-m // group) * group)
        return self.cut.units_in(ending)

    def schedule(self) -> Schedule:
        """All steps."""
        cut, dtype, m = self.cut, self.blas.dtype, self.shape[0]
        buffers = [Buffer(m * cut.group, dtype, "F", kept=True) for _ in range(cut.groups)]
        buffers.append(Buffer(m * cut.unit, dtype, "F", copies=cut.copies))
        buffers.append(Buffer(cut.group, PIVOT, copies=cut.copies))
        if not matrices.same(self.given, dtype):
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
            rate=rate(dtype.char),
        )

    def step(self, number: int) -> Step:
        """Step `number` of all."""
        panel = bisect.bisect_right(self.begins, number) - 1
        k, groups = number - self.begins[panel], self.cut.groups_of(panel)
        if k < groups:
            return self._load(panel, k)
        if k < groups + self.units_before(panel):
            return self._come_by(panel, k - groups)
        return self._finish(panel, k - groups - self.units_before(panel))

    def _spans(self, panel: int, first: int = 0) -> list[Span]:
        start = panel * self.cut.groups
        return [self.cut.of_group(start + s) for s in range(first, self.cut.groups_of(panel))]

    def _kept(self, first: int, stop: int) -> tuple[Block, ...]:
        return tuple(Block(s, (self.shape[0], self.cut.group)) for s in range(first, stop))

    def _load(self, panel: int, group: int) -> Step:
        columns, m = self._spans(panel)[group], self.shape[0]
        width = columns[1] - columns[0]
        block = self._kept(group, group + 1)
        if not matrices.same(self.given, self.blas.dtype):
            blocks = (*block, Block(self.cut.groups + 2, (m, width)))
            load = self.matrix.load((0, m), columns, 1)
            return Step(blocks, (load,), (), 1, (columns,), continues=group > 0)
        load = self.matrix.load((0, m), columns, 0, (span(0, m), span(0, width)))
        return Step(block, (load,), (), 0, (columns,), continues=group > 0)

    def _come_by(self, panel: int, unit: int) -> Step:
        group, columns = self.cut.of_unit(unit)
        first, stop = self.cut.of_group(group)
        m, width = self.shape[0], columns[1] - columns[0]
        begins_group = columns[0] == first
        pivots = min(stop, m) - first if begins_group else 0
        spans = self._spans(panel)
        blocks = (
            *self._kept(0, len(spans)),
            Block(self.cut.groups, (max(m - columns[0], 0), width)),
        )
        loads: tuple[Load, ...] = (self.lower.load((min(columns[0], m), m), columns, len(spans)),)
        if begins_group:
            blocks += (Block(self.cut.groups + 1, (pivots,)),)
            loads += (Load(self.pivots, (span(first, first + pivots),), len(spans) + 1),)
        before = group // self.cut.groups
        stored = self.begins[before + 1] - self.cut.groups_of(before) + group % self.cut.groups + 1
        wide = self.cut.panel(panel)[1] - self.cut.panel(panel)[0]
        eliminated = min(columns[1], m) - columns[0]
        work = (m - columns[0] - eliminated / 2) * eliminated * wide
        return Step(
            blocks,
            loads,
            (),
            2,
            (spans, columns[0], first),
            after=stored,
            continues=True,
            work=operations(max(int(work), 0), self.blas.dtype),
        )

    def _finish(self, panel: int, group: int) -> Step:
        spans, m = self._spans(panel, group), self.shape[0]
        columns = spans[0]
        start, stop = columns
        pivots = max(min(stop, m) - start, 0)
        blocks = self._kept(group, group + len(spans))
        stores: list[Store] = []
        inside = span(0, stop - start)
        if self.upper == self.lower:
            stores.append(self.upper.store((0, m), columns, 0, (span(0, m), inside)))
        else:
            bottom = min(stop, m)
            stores.append(self.upper.store((0, bottom), columns, 0, (span(0, bottom), inside)))
            if pivots:
                stores.append(self.lower.store((start, m), columns, 0, (span(start, m), inside)))
        if pivots:
            blocks += (Block(self.cut.groups + 1, (pivots,)),)
            at = (span(start, start + pivots),)
            stores.append(Store(self.pivots, at, len(blocks) - 1))
        rest = spans[-1][1] - stop
        work = (m - start - pivots / 2) * pivots * (rest + pivots / 2)
        return Step(
            blocks,
            (),
            tuple(stores),
            3,
            (spans, pivots),
            continues=True,
            work=operations(max(int(work), 0), self.blas.dtype),
        )

    # Kernels: blocks of groups first; `spans` are the columns of these.

    def check(self, blocks: Sequence[NDArray[Any]], columns: Span) -> None:
        """No NaN and no infinity may come in: all rows would be lost."""
        kept = blocks[0][:, : columns[1] - columns[0]]
        matrices.columns_finite(self.name, "the matrix", kept, (0, columns[0]))

    def begin(self, blocks: Sequence[NDArray[Any]], columns: Span) -> None:
        """Cast what was loaded."""
        kept, raw = blocks
        np.copyto(kept[:, : raw.shape[1]], raw, casting="unsafe")
        self.check(blocks, columns)

    def update(
        self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], first: int, group: int
    ) -> None:
        """Interchange rows as the group that comes by did, and take away what it adds."""
        came = blocks[len(spans)]
        for kept, (start, stop) in zip(blocks, spans, strict=False):
            columns = kept[:, : stop - start]
            if len(blocks) > len(spans) + 1:
                self.blas.laswp(columns[group:], blocks[-1] - PIVOT.type(group))
            self.blas.eliminate(columns[first:], came)

    def factorise(self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], pivots: int) -> None:
        """Factor a group, and take away what it adds to the later ones."""
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
        """A pivot is zero: nothing to eliminate with, and the factors are right."""
        if not self.strict:
            warnings.warn(
                f"{self.name}: pivot {column} is exactly zero, the matrix is singular",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        raise LinAlgError(
            f"{self.name}: pivot {column} is exactly zero, the matrix is singular; there is "
            "outcore.lstsq for a solution that is nearest",
            code="singular-matrix",
        )


def _seconds(
    terms: Terms,
    shape: tuple[int, int],
    cut: Columns,
    dtype: np.dtype[Any],
    given: int,
    *,
    apart: bool,
) -> float:
    """What factoring with these panels takes, roughly."""
    (m, n), size, least = shape, dtype.itemsize, min(shape)
    before = np.minimum(np.arange(0, n, cut.width, dtype=float), least)
    panels = len(before)
    words = float((m * before - before * before / 2).sum())
    units, pieces = float((before / cut.unit).sum()), float(before.sum())
    loads = n if terms.order(0) == "F" else m * panels * cut.groups
    once = m * n * given + m * n * size * (1 if apart else 2)
    work = m * n * least - (m + n) * least**2 / 2 + least**3 / 3
    # Groups are factored at three quarters of the speed of products.
    work += m * least * cut.group / 6
    steps = int(units + panels * 2 * cut.groups)
    seconds = overlapped(terms, dtype, work, cut, pieces + loads + n, words * size + once, steps)
    # The first panel is loaded while there is nothing to compute. Between two panels the last group is
    # stored, and the next one loaded into its memory.
    width = min(cut.width, n)
    seconds += terms.disk.seconds(loads // panels, m * width * given)
    return seconds + terms.disk.seconds(int((loads + n) / cut.groups), int(once / cut.groups))


class _LastPhase:
    """Rows of L in their final order, into the result; with them U, if it is not there."""

    def __init__(self, work: Factoring, room: int, result: Face, of: int) -> None:
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
            raise TooLittle(each)
        self.steps = -(-n // self.width)
        if self.apart:
            # The last group with rows below it.
            below = min(m - 1, n - 1) // group
            self.steps = below + (work.cut.of_group(below)[1] < m)

    def schedule(self) -> Schedule:
        work = self.work
        most = work.shape[0] * self.width
        buffers = (
            Buffer(most, work.blas.dtype, "F", copies=self.copies),
            Buffer(work.least, PIVOT, copies=self.copies),
        )
        # The pivots too, if nothing else is left.
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

    def step(self, number: int) -> Step:
        work, (m, n) = self.work, self.work.shape
        least = work.least
        columns = number * self.width, min((number + 1) * self.width, n)
        first = min(columns[1], m) if self.apart else 0
        blocks: tuple[Block, ...] = (Block(1, (least,)),)
        loads: tuple[Load, ...] = (Load(work.pivots, (span(0, least),), 0),)
        stores: tuple[Store, ...] = ()
        if number == 0:
            stores = (Store(2, (span(0, least),), 0),)
        if number < self.steps:
            blocks += (Block(0, (m - first, columns[1] - columns[0])),)
            loads += (work.lower.load((first, m), columns, 1),)
            stores += (self.result.store((first, m), columns, 1),)
        return Step(blocks, loads, stores, 0, (columns, first))

    def interchange(self, blocks: Sequence[NDArray[Any]], columns: Span, first: int) -> None:
        """As the groups after that of each column did."""
        if len(blocks) == 1:
            return
        self.work.reorder(blocks[1], blocks[0], columns, first)
