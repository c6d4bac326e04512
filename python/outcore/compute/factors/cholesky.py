"""
Cholesky factorisation of a matrix on disk.

Problem. Column `k` of the factor depends on all columns before it, and the matrix does not fit in
memory.
Idea. Left-looking: a panel of columns stays in memory while the columns before it are streamed
once; then it is factored and stored. Each element is read once and written once, and stored
elements are read once more for each later panel. If a panel of full height would be too narrow,
square tiles replace it, and rows of two panels are streamed for each tile.

Invariants. Only one triangle is read. A panel depends only on stored columns, so an interrupted job
continues with the incomplete panel. The factor of the upper triangle is the transpose of the other
one: the matrix is its own conjugate transpose.

Reference: Toledo and Gustavson 1996 (SOLAR). Bound: Beaumont, Eyraud-Dubois, Verite, Langou,
"I/O-optimal algorithms for symmetric linear algebra kernels" (2022).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, load_routines
from outcore.compute.factors.panels import (
    NOTHING,
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
from outcore.errors import LinAlgError

__all__ = ["cholesky"]

_BOUND = "n^3 / (3 sqrt(2 M)) - 2 M elements, Beaumont et al. 2022"


@collective
def cholesky(a: Source, *, upper: bool = False, out: Any = None, **how: Any) -> DiskArray:
    """
    Compute the Cholesky factor of a positive definite matrix.

    Parameters
    ----------
    a
        Symmetric matrix, or Hermitian if complex, of shape ``(n, n)``. Only its lower triangle is
        used, or its upper one with `upper`.
    upper
        Return U with ``a = U^H U`` instead of L with ``a = L L^H``.
    out, how
        See `outcore.compute.jobs.complete`. Columns of L (rows of U) are contiguous if the format
        allows it.

    Returns
    -------
    DiskArray
        L or U, of shape ``(n, n)``, with zeros in the other triangle. Its dtype is float32,
        float64, complex64 or complex128, as in `numpy.linalg.cholesky`.

    Raises
    ------
    LinAlgError
        ``not-positive-definite``: the matrix is not positive definite, or contains NaN.
        ``not-square``, ``bad-shape``: `a` is not a square matrix.
    UsageError, UnsupportedError, BudgetError
        See `outcore.compute.jobs.complete`.

    Notes
    -----
    Memory: any amount; less memory means more reads. ``explain=True`` reports the bytes moved and
    the lower bound. Collective with ``comm=``: a panel depends on the ones before it; ranks share
    its blocks of rows, if it has several.

    Left-looking panels: Toledo, Gustavson, "The design and implementation of SOLAR, a portable
    library for scalable out-of-core linear algebra computations" (1996).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> outcore.linalg.cholesky("a.npy", out="l.npy")[...]
    array([[2., 0.],
           [1., 2.]])
    """
    with open_inputs(a) as (matrix,):
        dtype = matrices.check_square("cholesky", matrix)
        blas = load_routines(dtype, "cholesky")
        n = matrix.shape[0]
        order = "C" if upper else "F"
        result = Result((n, n), dtype, kept={"order": order}, source=matrix.path)
        plan = _CholeskyPlan(n, matrix.dtype, blas, bool(upper))
        operation = Operation("cholesky", (matrix,), (result,), plan, {"upper": bool(upper)})
        return complete(operation, out, how)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _CholeskyPlan:
    """Planner: arrays are the matrix, the factor, and a copy of it if needed."""

    n: int
    given: np.dtype[Any]
    blas: Routines
    upper: bool

    def __call__(self, terms: Terms) -> Program:
        if not self.n:
            return NOTHING
        factor = ProgramMatrix(1, self.upper)
        again = factor if is_by_columns(terms, factor) else ProgramMatrix(2)
        cut, tiles = self._cut(terms, again, find_multiple(terms, factor))
        work = _CholeskySteps(
            self.n, cut, tiles, self.blas, self.given, ProgramMatrix(0, self.upper), factor, again
        )
        n, size = self.n, self.blas.dtype.itemsize
        words = terms.room / size
        once = {0: n * (n + 1) // 2 * self.given.itemsize, 1: n * n * size}
        moved = n**3 / (3 * math.sqrt(2 * words)) - 2 * words
        bound = choose_bound(terms, once, size, moved, _BOUND)
        shape = "tiles of" if tiles else "panels of"
        method = (
            f"left-looking by {shape} {cut.width} columns in {cut.groups} groups, earlier columns come "
            f"by {cut.unit} at a time"
        )
        temporaries: tuple[Result, ...] = ()
        if again is not factor:
            method += (
                "; they are kept in a temporary array, as the files of the result would be slow"
            )
            temporaries = (Result((n, n), self.blas.dtype, {"order": "F"}),)
        return Program((work.schedule(),), method, bound, temporaries)

    def _cut(self, terms: Terms, again: ProgramMatrix, of: int) -> tuple[Columns, bool]:
        n, size = self.n, self.blas.dtype.itemsize
        raw = 0 if matrices.is_same_dtype(self.given, self.blas.dtype) else self.given.itemsize
        room = terms.room

        def panel(unit: int, copies: int, groups: int) -> int:
            left = room // n - copies * unit * size
            width = left // (size + -(-raw // groups)) if left > 0 else 0
            while width > 0 and width * size + -(-width // groups) * raw > left:
                width -= 1
            return width

        def tile(unit: int, copies: int, groups: int) -> int:
            def count_bytes(t: int) -> int:
                group = -(-t // groups)
                columns = t * size + group * raw + 3 * copies * unit * size
                return t * columns + copies * n * size

            return find_largest(math.isqrt(room // size), lambda t: count_bytes(t) <= room)

        narrow = min(_NARROW, max(n // 8, 1))
        found = [
            (cut, tiles)
            for tiles, most in ((False, panel), (True, tile))
            for cut in list_divisions(n, most, of)
            if not tiles or cut.width >= narrow
        ]
        if not found:
            by_tiles = narrow * (narrow * (size + raw) + 3 * size) + n * size
            raise InsufficientBuffersError(min(by_tiles, n * (2 * size + raw)))
        return min(found, key=lambda one: self._seconds(terms, one[0], one[1], again))

    def _seconds(self, terms: Terms, cut: Columns, tiles: bool, again: ProgramMatrix) -> float:
        n, size, width = self.n, self.blas.dtype.itemsize, cut.width
        starts = np.arange(0, n, width, dtype=float)
        below = n - starts
        if tiles:
            count = np.ceil(below / width)
            words = float((starts * (2 * below - np.minimum(width, below))).sum())
            units = float((starts / cut.unit * (2 * count - 1) + count * width / cut.unit).sum())
            pieces = units * cut.unit
        else:
            words = float((starts * below).sum())
            units = float((starts / cut.unit).sum())
            pieces = float(starts.sum())
        slow = terms.order(0) != ("C" if self.upper else "F")
        targets = float(np.ceil(below / width).sum()) if tiles else len(starts)
        loads = (n * len(starts) * cut.groups / 2) if slow else n
        once = n * n / 2 * self.given.itemsize + n * n * size * (1 if again.number == 1 else 1.5)
        work = n**3 / 6 + n * n * min(cut.group, _RECURSIVE) / 2
        first = min(width, n) * (min(width, n) if tiles else n) * self.given.itemsize / 2
        return estimate_panels(
            terms,
            self.blas.dtype,
            work,
            cut,
            (pieces, words * size),
            (loads + n, once),
            (loads / targets, first),
            int(units + targets * 2 * cut.groups),
        )


# Tiles with fewer columns need too many steps to be worth estimating, unless the matrix has few
# columns.
_NARROW = 32
# Number of columns whose recursive factorisation consists mostly of products.
_RECURSIVE = 512


@dataclass(frozen=True, slots=True)
class _TargetPart:
    """Part of the factor that stays in memory while earlier columns are streamed."""

    panel: int
    #: Computed rows. The first row in memory may be above them, where zeros are stored.
    rows: Span
    first: int
    diagonal: bool
    #: Number of its first step.
    begin: int


class _CholeskySteps:
    """
    Steps of the factorisation.

    Buffers: the groups of a panel, streamed rows, streamed rows of the panel itself for a tile
    below it, zeros, and elements of another dtype.
    """

    def __init__(
        self,
        n: int,
        cut: Columns,
        tiles: bool,
        blas: Routines,
        given: np.dtype[Any],
        matrix: ProgramMatrix,
        factor: ProgramMatrix,
        again: ProgramMatrix,
    ) -> None:
        self.n, self.cut, self.tiles, self.blas, self.given = n, cut, tiles, blas, given
        self.matrix, self.factor, self.again = matrix, factor, again
        self.height = cut.width if tiles else n
        self.cast = not matrices.is_same_dtype(given, blas.dtype)
        #: Number of the first step of each panel, and the number of all steps.
        self.begins = [0]
        for panel in range(cut.panels):
            below = -(-(n - cut.panel(panel)[1]) // cut.width) if tiles else 0
            count = self.diagonal_steps(panel) + below * self.steps_below(panel)
            self.begins.append(self.begins[-1] + count)

    def diagonal_steps(self, panel: int) -> int:
        return 2 * self.cut.groups_of(panel) + self.units_before(panel)

    def steps_below(self, panel: int) -> int:
        own = self.units_before(panel + 1) - self.units_before(panel)
        return self.cut.groups_of(panel) + self.units_before(panel) + own

    def units_before(self, panel: int) -> int:
        return self.cut.units_in(min(panel * self.cut.width, self.n))

    def target(self, step: int) -> _TargetPart:
        panel = bisect.bisect_right(self.begins, step) - 1
        start, stop = self.cut.panel(panel)
        begin = self.begins[panel]
        within = step - begin - self.diagonal_steps(panel)
        if within < 0:
            rows = (start, stop) if self.tiles else (start, self.n)
            return _TargetPart(panel, rows, start if self.tiles else 0, True, begin)
        number = within // self.steps_below(panel)
        first = start + (number + 1) * self.cut.width
        rows = (first, min(first + self.cut.width, self.n))
        begin += self.diagonal_steps(panel) + number * self.steps_below(panel)
        return _TargetPart(panel, rows, first, False, begin)

    def schedule(self) -> Schedule:
        cut, dtype, height = self.cut, self.blas.dtype, self.height
        buffers = cut.list_buffers(height, dtype)
        if self.tiles:
            buffers.append(buffers[-1])
            buffers.append(Buffer(height * cut.unit + self.n, dtype, "F", copies=cut.copies))
        if self.cast:
            buffers.append(Buffer(height * cut.group, self.given.newbyteorder("="), "F"))
        return Schedule(
            name="cholesky",
            arrays=("matrix", "factor", "columns")[: 2 + (self.again.number == 2)],
            buffers=tuple(buffers),
            steps=self.begins[-1],
            make=self.step,
            kernels=(self.begin, self.update, self.factorise, self.update_below, self.solve_below),
            reading=min(cut.groups + 2, 8),
            writing=2,
            rate=measure_product_rate(dtype.char),
        )

    @property
    def stream(self) -> int:
        """Number of the buffer for streamed rows."""
        return self.cut.groups

    def step(self, number: int) -> ScheduleStep:
        target = self.target(number)
        groups, before = self.cut.groups_of(target.panel), self.units_before(target.panel)
        k = number - target.begin
        if k < groups:
            return self.load(target, k)
        if k < groups + before:
            return self.come_by(target, k - groups)
        if target.diagonal:
            return self.finish(target, k - groups - before)
        return self.finish_below(target, k - groups - before)

    def load(self, target: _TargetPart, group: int) -> ScheduleStep:
        columns = self.cut.spans(target.panel)[group]
        rows = (max(target.rows[0], columns[0]), target.rows[1])
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        at = (make_slice(rows[0] - target.first, rows[1] - target.first), make_slice(0, width))
        block = self.cut.list_blocks(self.height, group, group + 1)
        if self.cast:
            raw = Block(self.stream + (3 if self.tiles else 1), (height, width))
            load = self.matrix.load(rows, columns, 1)
            arguments = (rows[0] - target.first,)
            return ScheduleStep((*block, raw), (load,), (), 0, arguments, continues=group > 0)
        load = self.matrix.load(rows, columns, 0, at)
        return ScheduleStep(block, (load,), continues=group > 0)

    def stored_before(self, target: _TargetPart, group: int) -> int:
        """Count the steps that must be stored before columns of an earlier group can be read."""
        panel = group // self.cut.groups
        if self.tiles or panel < target.panel - 1:
            return self.begins[panel + 1]
        count = self.diagonal_steps(panel) - self.cut.groups_of(panel)
        return self.begins[panel] + count + group % self.cut.groups + 1

    def come_by(self, target: _TargetPart, unit: int) -> ScheduleStep:
        group, columns = self.cut.of_unit(unit)
        width = columns[1] - columns[0]
        spans = self.cut.spans(target.panel)
        kept = self.cut.list_blocks(self.height, 0, len(spans))
        height = target.rows[1] - target.rows[0]
        blocks = (*kept, Block(self.stream, (height, width)))
        loads: tuple[Load, ...] = (self.again.load(target.rows, columns, len(kept)),)
        panel = self.cut.panel(target.panel)
        wide = panel[1] - panel[0]
        stores: tuple[Store, ...] = ()
        if not target.diagonal:
            blocks += (Block(self.stream + 1, (wide, width)),)
            loads += (self.again.load(panel, columns, len(kept) + 1),)
        elif self.tiles:
            zeros = self.above(target, unit)
            blocks += (Block(self.stream + 2, (panel[0], zeros[1] - zeros[0])),)
            stores = (self.factor.store((0, panel[0]), zeros, len(kept) + 1),)
        multiplications = height * wide * width
        if target.diagonal:
            multiplications -= wide * (wide - 1) // 2 * width
        return ScheduleStep(
            blocks,
            loads,
            stores,
            1 if target.diagonal else 3,
            (spans, target.first, target.rows),
            after=self.stored_before(target, group),
            continues=True,
            work=count_operations(multiplications, self.blas.dtype),
        )

    def finish(self, target: _TargetPart, group: int) -> ScheduleStep:
        spans = self.cut.spans(target.panel, group)
        columns = spans[0]
        width, bottom = columns[1] - columns[0], target.rows[1]
        at = (make_slice(0, bottom - target.first), make_slice(0, width))
        stores = tuple(
            face.store((target.first, bottom), columns, 0, at)
            for face in dict.fromkeys((self.factor, self.again))
        )
        multiplications = width**3 // 6 + (bottom - columns[1]) * width * width // 2
        for start, stop in spans[1:]:
            wide = stop - start
            multiplications += ((bottom - start) * wide - wide * (wide - 1) // 2) * width
        return ScheduleStep(
            self.cut.list_blocks(self.height, group, group + len(spans)),
            (),
            stores,
            2,
            (spans, target.first, bottom),
            continues=True,
            work=count_operations(multiplications, self.blas.dtype),
        )

    def finish_below(self, target: _TargetPart, unit: int) -> ScheduleStep:
        whole, columns = self.cut.of_unit(self.units_before(target.panel) + unit)
        group = whole - target.panel * self.cut.groups
        spans = self.cut.spans(target.panel, group)
        panel = self.cut.panel(target.panel)
        kept = self.cut.list_blocks(self.height, group, group + len(spans))
        height, width = target.rows[1] - target.rows[0], columns[1] - columns[0]
        blocks = (*kept, Block(self.stream + 1, (panel[1] - columns[0], width)))
        loads = (self.again.load((columns[0], panel[1]), columns, len(kept)),)
        stores: tuple[Store, ...] = ()
        if columns[1] == spans[0][1]:
            at = (make_slice(0, height), make_slice(0, columns[1] - spans[0][0]))
            stores = tuple(
                face.store(target.rows, spans[0], 0, at)
                for face in dict.fromkeys((self.factor, self.again))
            )
        return ScheduleStep(
            blocks,
            loads,
            stores,
            4,
            (spans, columns, height),
            after=self.begins[target.panel] + self.diagonal_steps(target.panel),
            continues=True,
            work=count_operations(height * width * (panel[1] - columns[0]), self.blas.dtype),
        )

    def above(self, target: _TargetPart, unit: int) -> Span:
        """Return the columns of a panel that are zero above its tiles, stored after a unit was read."""
        start, stop = self.cut.panel(target.panel)
        width = -(-(stop - start) // self.units_before(target.panel))
        return min(start + unit * width, stop), min(start + (unit + 1) * width, stop)

    # Kernels: blocks of groups are the first arguments; `spans` are their columns.

    def begin(self, blocks: Sequence[NDArray[Any]], first: int) -> None:
        kept, raw = blocks
        rows, columns = raw.shape
        np.copyto(kept[first : first + rows, :columns], raw, casting="unsafe")

    def update(
        self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], first: int, rows: Span
    ) -> None:
        """Subtract the contribution of the streamed columns."""
        came = blocks[len(spans)]
        for kept, columns in zip(blocks, spans, strict=False):
            self._subtract(kept, columns, came[columns[0] - rows[0] :], first, rows[1])
        for zeros in blocks[len(spans) + 1 :]:
            zeros[...] = 0

    def _subtract(
        self, kept: NDArray[Any], columns: Span, came: NDArray[Any], first: int, bottom: int
    ) -> None:
        start, stop = columns
        width = stop - start
        self.blas.herk(kept[start - first : stop - first, :width], came[:width])
        below = kept[stop - first : bottom - first, :width]
        self.blas.gemm(below, came[width:], came[:width], tb="C")

    def factorise(
        self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], first: int, bottom: int
    ) -> None:
        """Factor a group, and subtract its contribution from the later ones."""
        kept, (start, stop) = blocks[0], spans[0]
        width = stop - start
        diagonal = kept[start - first : stop - first, :width]
        minor = self.blas.potrf(diagonal)
        # Some LAPACK libraries do not stop at NaN. A NaN always reaches the diagonal of its row.
        wrong = np.flatnonzero(~np.isfinite(diagonal.diagonal()))
        if minor or wrong.size:
            minor = minor or 1 + int(wrong[0])
            raise LinAlgError(
                f"cholesky: the leading minor of order {start + minor} of {self.n} is not positive, "
                "or the matrix contains NaN; for matrices that are not positive definite, use "
                "outcore.linalg.lu_factor",
                code="not-positive-definite",
            )
        below = kept[stop - first : bottom - first, :width]
        self.blas.trsm(diagonal, below, side="R", trans="C")
        for other, columns in zip(blocks[1:], spans[1:], strict=True):
            came = kept[columns[0] - first : bottom - first, :width]
            self._subtract(other, columns, came, first, bottom)
        # Rows that are stored above the diagonal.
        kept[: start - first, :width] = 0
        for column in range(1, width):
            diagonal[:column, column] = 0

    def update_below(
        self, blocks: Sequence[NDArray[Any]], spans: Sequence[Span], first: int, rows: Span
    ) -> None:
        came, across = blocks[-2:]
        start, height = spans[0][0], rows[1] - rows[0]
        for kept, columns in zip(blocks[:-2], spans, strict=True):
            width = columns[1] - columns[0]
            factor = across[columns[0] - start : columns[1] - start]
            self.blas.gemm(kept[:height, :width], came, factor, tb="C")

    def solve_below(
        self,
        blocks: Sequence[NDArray[Any]],
        spans: Sequence[Span],
        columns: Span,
        height: int,
    ) -> None:
        """Solve for columns of a tile below the diagonal; subtract their contribution to later ones."""
        across, (start, stop) = blocks[-1], columns
        width, left = stop - start, spans[0][0]
        solved = blocks[0][:height, start - left : stop - left]
        self.blas.trsm(across[:width], solved, side="R", trans="C")
        for kept, (begin, end) in zip(blocks[:-1], spans, strict=True):
            low = max(begin, stop)
            if low < end:
                rest = kept[:height, low - begin : end - begin]
                self.blas.gemm(rest, solved, across[low - start : end - start], tb="C")
