"""
Triangular systems on disk, one after another, for many right-hand sides.

Problem. A solution needs every column of each triangle once, and the triangle does not fit in
memory.
Idea. As many columns of right-hand sides as fit stay in memory. The columns of a triangle are
streamed, downwards or upwards, and each unit of them eliminates some unknowns. Several triangles
(L, then U) follow each other while the solution stays in memory.

Invariants. Each triangle is read once for each panel of right-hand sides. Panels are independent.

Reference: Golub, Van Loan, "Matrix Computations", 4th edition, section 3.1: column and row
versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.base import assumed_costs
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines
from outcore.compute.factors.panels import PIVOT, Columns, ProgramMatrix, Span, make_slice
from outcore.compute.jobs import InsufficientBuffersError, Terms, find_largest
from outcore.compute.rates import count_operations, measure_product_rate

__all__ = ["RowInterchanges", "Solving", "Sweep"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Solution with one triangle."""

    face: ProgramMatrix
    #: Whether it is the lower triangle.
    lower: bool
    #: ``"N"``, ``"T"`` (transposed) or ``"C"`` (conjugate transposed).
    trans: str = "N"
    #: Whether the diagonal is one, regardless of its stored values.
    unit: bool = False
    #: Number of columns after which rows of the right-hand sides are interchanged by their
    #: pivots. 0: no interchanges.
    group: int = 0
    #: Whether the matrix is conjugated.
    conjugate: bool = False

    def transpose(self) -> Sweep:
        """Return the same equations with the transposed matrix."""
        return replace(
            self,
            face=self.face.across,
            lower=not self.lower,
            trans={"N": "T", "T": "N", "C": "N"}[self.trans],
            conjugate=self.trans == "C",
        )

    @property
    def upwards(self) -> bool:
        """Whether the last unknowns are solved first."""
        return self.lower != (self.trans == "N")


@dataclass(frozen=True, slots=True)
class RowInterchanges:
    """Interchanges of rows by an array of pivots."""

    pivots: int
    #: Whether all are applied before the first triangle.
    before: bool = False
    #: Whether all are undone after the last triangle.
    after: bool = False


@dataclass(frozen=True)
class Solving:
    """
    Steps of the solution.

    Buffers: right-hand sides, columns of triangles, pivots, elements of another dtype.
    """

    name: str
    #: Order of the triangles.
    n: int
    #: Shape of the right-hand sides: ``(n,)`` or ``(n, k)``.
    sides: tuple[int, ...]
    blas: Routines
    #: Dtypes on disk: of the right-hand sides, and of each sweep's matrix.
    given: tuple[np.dtype[Any], ...]
    #: Numbers of the arrays of right-hand sides and solution.
    source: int
    target: int
    sweeps: tuple[Sweep, ...]
    rows: RowInterchanges | None
    #: Names of all arrays, for messages.
    arrays: tuple[str, ...]
    #: Whether triangles are known to be free of NaN and infinity.
    known: bool = False

    @property
    def columns(self) -> int:
        """Number of right-hand sides."""
        return self.sides[1] if len(self.sides) > 1 else 1

    def transpose(self) -> Solving:
        """Return the same steps with the transposed matrices."""
        return replace(self, sweeps=tuple(sweep.transpose() for sweep in self.sweeps))

    def schedule(self, terms: Terms) -> Schedule:
        """Make the schedule for this memory."""
        return _SolvingSteps(self, *self._cut(terms)).schedule()

    def _cut(self, terms: Terms) -> tuple[int, int, int]:
        """Return the columns in memory: of right-hand sides, of streamed triangles, and their copies."""
        best: tuple[float, int, int, int] | None = None
        for unit in (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 1024):
            for copies in (2, 1):
                if unit > self.n or (copies == 1 and unit > 1):
                    continue
                fits = partial(self._fits, terms.room, unit, copies)
                width = find_largest(self.columns, fits)
                if width < 1:
                    continue
                panels = -(-self.columns // width)
                size = self.blas.dtype.itemsize
                words = panels * len(self.sweeps) * self.n * self.n / 2
                moving = terms.disk.seconds(int(panels * self.n), int(words * size))
                steps = panels * len(self.sweeps) * self.n / unit
                speed = assumed_costs.estimate_triangle_rate(terms.cores, unit)
                work = count_operations(self.n * self.n * self.columns, self.blas.dtype)
                waiting = steps * assumed_costs.TRIANGLE_STEP_SECONDS
                seconds = max(moving, work / speed) + waiting
                if best is None or seconds < best[0]:
                    best = seconds, width, unit, copies
        if best is None:
            raise InsufficientBuffersError(self._count_bytes(1, 1, 1))
        return best[1:]

    def _count_bytes(self, width: int, unit: int, copies: int) -> int:
        size, n = self.blas.dtype.itemsize, self.n
        raw = 0 if self.is_same(0) else self.given[0].itemsize
        others = [k for k in range(1, len(self.given)) if not self.is_same(k)]
        other = max((self.given[k].itemsize for k in others), default=0)
        pivots = PIVOT.itemsize * self.pivot_count
        come_by = n * unit * (copies * size + other)
        return n * width * (size + raw) + come_by + copies * pivots

    def _fits(self, room: int, unit: int, copies: int, width: int) -> bool:
        return self._count_bytes(width, unit, copies) <= room

    def is_same(self, k: int) -> bool:
        """Return whether array number `k` has the dtype of the computation."""
        return matrices.is_same_dtype(self.given[k], self.blas.dtype)

    @property
    def pivot_count(self) -> int:
        """Number of elements of the buffer of pivots."""
        if self.rows is None:
            return 0
        if self.rows.before or self.rows.after:
            return self.n
        return max(sweep.group for sweep in self.sweeps)


class _SolvingSteps:
    def __init__(self, of: Solving, width: int, unit: int, copies: int) -> None:
        self.of, self.width, self.unit, self.copies = of, width, unit, copies
        # Units of a sweep do not cross the boundaries of columns that were pivoted together.
        self.cuts = [Columns(of.n, sweep.group or of.n, 1, unit, copies) for sweep in of.sweeps]
        self.units = [cut.units_in(of.n) for cut in self.cuts]
        self.ends = np.cumsum([1, *self.units]).tolist()
        self.each = self.ends[-1] + 1

    def schedule(self) -> Schedule:
        of, n, dtype = self.of, self.of.n, self.of.blas.dtype
        buffers = [
            Buffer(n * self.width, dtype, "F", kept=True),
            Buffer(n * self.unit, dtype, "F", copies=self.copies),
            Buffer(of.pivot_count, PIVOT, copies=self.copies),
        ]
        self.raw: dict[int, int] = {}
        if not of.is_same(0):
            self.raw[0] = len(buffers)
            buffers.append(Buffer(n * self.width, of.given[0].newbyteorder("="), "F"))
        others = [k for k in range(1, len(of.given)) if not of.is_same(k)]
        if others:
            most = max(others, key=lambda k: of.given[k].itemsize)
            for k in others:
                self.raw[k] = len(buffers)
            buffers.append(Buffer(n * self.unit, of.given[most].newbyteorder("="), "F"))
        return Schedule(
            name=of.name,
            arrays=of.arrays,
            buffers=tuple(buffers),
            steps=self.each * -(-of.columns // self.width),
            make=self.step,
            kernels=(self.begin, self.eliminate, self.end),
            reading=2,
            rate=measure_product_rate(dtype.char),
        )

    def step(self, number: int) -> ScheduleStep:
        panel, k = divmod(number, self.each)
        columns = panel * self.width, min((panel + 1) * self.width, self.of.columns)
        if k == 0:
            return self._begin(columns)
        if k == self.each - 1:
            return self._end(columns)
        sweep = next(s for s, end in enumerate(self.ends[1:]) if k < end)
        return self._come_by(sweep, k - self.ends[sweep], columns)

    @property
    def kept(self) -> Block:
        n = self.of.n
        return Block(0, (n, self.width) if len(self.of.sides) > 1 else (n,))

    def _sides(self, columns: Span) -> tuple[Section, Section]:
        """Return the sections of right-hand sides in their array, and in memory."""
        rows = make_slice(0, self.of.n)
        if len(self.of.sides) == 1:
            return (rows,), (rows,)
        return (rows, make_slice(*columns)), (rows, make_slice(0, columns[1] - columns[0]))

    def _pivots(self, start: int, stop: int, block: int) -> tuple[Block, Load]:
        assert self.of.rows is not None
        load = Load(self.of.rows.pivots, (make_slice(start, stop),), block)
        return Block(2, (stop - start,)), load

    def _begin(self, columns: Span) -> ScheduleStep:
        section, at = self._sides(columns)
        blocks, loads = [self.kept], []
        if 0 in self.raw:
            shape = tuple(part.stop - part.start for part in at)
            blocks.append(Block(self.raw[0], shape))
            loads.append(Load(self.of.source, section, 1))
        else:
            loads.append(Load(self.of.source, section, 0, at))
        interchanged = self.of.rows is not None and self.of.rows.before
        if interchanged:
            block, load = self._pivots(0, self.of.n, len(blocks))
            blocks.append(block)
            loads.append(load)
        return ScheduleStep(tuple(blocks), tuple(loads), (), 0, (columns, interchanged))

    def _come_by(self, s: int, k: int, columns: Span) -> ScheduleStep:
        sweep, n = self.of.sweeps[s], self.of.n
        number = self.units[s] - 1 - k if sweep.upwards else k
        which, unit = self.cuts[s].of_unit(number)
        group = self.cuts[s].of_group(which)
        rows = (unit[0], n) if sweep.lower else (0, unit[1])
        shape = (rows[1] - rows[0], unit[1] - unit[0])
        blocks, loads = [self.kept, Block(1, shape)], []
        cast = s + 1 in self.raw
        if cast:
            blocks.append(Block(self.raw[s + 1], shape))
        loads.append(sweep.face.load(rows, unit, 2 if cast else 1))
        pivoted = bool(sweep.group) and unit[0] == group[0]
        if pivoted:
            block, load = self._pivots(*group, len(blocks))
            blocks.append(block)
            loads.append(load)
        width = columns[1] - columns[0]
        ends = (sweep.conjugate and k == 0, sweep.conjugate and k == self.units[s] - 1)
        return ScheduleStep(
            tuple(blocks),
            tuple(loads),
            (),
            1,
            (s, unit, columns, cast, pivoted, ends),
            continues=True,
            work=count_operations(shape[0] * shape[1] * width, self.of.blas.dtype),
        )

    def _end(self, columns: Span) -> ScheduleStep:
        section, at = self._sides(columns)
        stores = (Store(self.of.target, section, 0, at),)
        if self.of.rows is None or not self.of.rows.after:
            return ScheduleStep((self.kept,), (), stores, continues=True)
        block, load = self._pivots(0, self.of.n, 1)
        return ScheduleStep((self.kept, block), (load,), stores, 2, (columns,), continues=True)

    # Kernels

    def _matrix(self, kept: NDArray[Any], columns: Span) -> NDArray[Any]:
        return kept[:, None] if kept.ndim == 1 else kept[:, : columns[1] - columns[0]]

    def begin(self, blocks: Sequence[NDArray[Any]], columns: Span, interchanged: bool) -> None:
        sides = self._matrix(blocks[0], columns)
        if 0 in self.raw:
            raw = blocks[1]
            np.copyto(sides, raw[:, None] if raw.ndim == 1 else raw, casting="unsafe")
        matrices.check_finite_columns(self.of.name, "the right-hand sides", sides, (0, columns[0]))
        if interchanged:
            self.of.blas.laswp(sides, blocks[-1])

    def end(self, blocks: Sequence[NDArray[Any]], columns: Span) -> None:
        self.of.blas.laswp(self._matrix(blocks[0], columns), blocks[1], back=True)

    def eliminate(
        self,
        blocks: Sequence[NDArray[Any]],
        s: int,
        unit: Span,
        columns: Span,
        cast: bool,
        pivoted: bool,
        ends: tuple[bool, bool],
    ) -> None:
        sweep, blas = self.of.sweeps[s], self.of.blas
        sides, came = self._matrix(blocks[0], columns), blocks[1]
        if cast:
            np.copyto(came, blocks[2], casting="unsafe")
        start, stop = unit
        if pivoted:
            blas.laswp(sides[start:], blocks[-1] - PIVOT.type(start))
        width = stop - start
        diagonal = came[:width] if sweep.lower else came[start:]
        beside = came[width:] if sweep.lower else came[:start]
        others = sides[stop:] if sweep.lower else sides[:start]
        if not self.of.known:
            self._check(sweep, diagonal, beside, unit)
        if not sweep.unit:
            zero = np.flatnonzero(diagonal.diagonal() == 0)
            if zero.size:
                what = f"element {start + int(zero[0])} of the diagonal"
                raise matrices.singular_error(self.of.name, what)
        # Instead of the matrix, both sides are conjugated while its triangle is streamed.
        if ends[0]:
            np.conjugate(sides, out=sides)
        solved = sides[start:stop]
        triangle = {"uplo": "L" if sweep.lower else "U", "diag": "U" if sweep.unit else "N"}
        if sweep.trans == "N":
            blas.trsm(diagonal, solved, trans="N", **triangle)
            blas.gemm(others, beside, solved)
        else:
            blas.gemm(solved, beside, others, ta=sweep.trans)
            blas.trsm(diagonal, solved, trans=sweep.trans, **triangle)
        if ends[1]:
            np.conjugate(sides, out=sides)

    def _check(
        self, sweep: Sweep, diagonal: NDArray[Any], beside: NDArray[Any], unit: Span
    ) -> None:
        """Raise for NaN and infinity; of the diagonal, only the used triangle is checked."""
        start, stop = unit
        name, turned = self.of.name, sweep.face.turned
        place = stop if sweep.lower else 0, start
        matrices.check_finite_columns(name, "the factor", beside, place, turned=turned)
        for k in range(stop - start):
            first = k + sweep.unit if sweep.lower else 0
            last = None if sweep.lower else k + (not sweep.unit)
            column = diagonal[first:last, k : k + 1]
            place = start + first, start + k
            matrices.check_finite_columns(name, "the factor", column, place, turned=turned)
