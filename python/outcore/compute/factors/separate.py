"""
LU factors of a matrix on disk as separate arrays.

Problem. `outcore.linalg.lu_factor` returns both factors in one array, and interchanges of rows, as
LAPACK does. Users who want L, U and the permutation would have to separate them, with rows in their
final order.
Idea. The columns are factored into a temporary array, where rows of L keep the order in which their
group was factored. A last phase reads each column once, brings its rows into their final order, and
stores the part above the diagonal in one array and the part below it in another.

Invariants. Pivots and the temporary array are durable before the last phase begins.

Reference: Golub, Van Loan, "Matrix Computations", 4th edition, section 3.4: P A = L U.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Store
from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, load_routines, real_dtype
from outcore.compute.factors.lu import Factoring, choose_lu_bound
from outcore.compute.factors.panels import NOTHING, PIVOT, ProgramMatrix, Span, make_slice
from outcore.compute.jobs import (
    InsufficientBuffersError,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    complete,
    open_inputs,
)
from outcore.errors import UsageError

__all__ = ["lu"]


def lu(
    a: Source, permute_l: bool = False, *, p_indices: bool = False, out: Any = None, **how: Any
) -> Any:
    """
    Compute the LU factors of a matrix with partial pivoting, as separate arrays.

    Parameters
    ----------
    a
        Matrix, of shape ``(m, n)``.
    permute_l
        Return ``p l`` instead of both: a matrix whose rows have the order of the rows of `a`.
    p_indices
        Return the permutation as indices of rows, with ``a = l[p] u``, instead of a matrix of ``m``
        rows and columns. `permute_l` takes precedence.
    out
        None, or a tuple with one destination or None for each result. Default: temporary arrays on
        disk, and a NumPy array for indices.
    how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    p : DiskArray or numpy.ndarray
        Permutation, ``a = p l u``: real, of shape ``(m, m)``, or indices of shape ``(m,)``. Not
        with `permute_l`.
    l : DiskArray
        Lower triangular matrix with a unit diagonal, of shape ``(m, min(m, n))``; its rows are
        permuted with `permute_l`.
    u : DiskArray
        Upper triangular matrix, of shape ``(min(m, n), n)``.

    Raises
    ------
    LinAlgError
        ``not-finite``: the matrix contains NaN or infinity. ``bad-shape``: `a` is not a matrix.
    UsageError, UnsupportedError, BudgetError
        See `outcore.compute.jobs.complete`. ``bad-out``: `out` does not have one destination for
        each result. The budget must hold three columns.

    Warns
    -----
    RuntimeWarning
        A pivot is zero: the matrix is singular. The factors are still correct, as those of SciPy
        are.

    Notes
    -----
    Memory: at least three columns. A temporary array on disk is as large as `a`. Serial.

    Left-looking panels: Toledo, Gustavson 1996 (see `outcore.linalg.lu_factor`).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> p, l, u = outcore.linalg.lu("a.npy", p_indices=True)
    >>> p, l[...], u[...]
    (array([1, 0], dtype=int32), array([[1.  , 0.  ],
           [0.25, 1.  ]]), array([[4., 4.],
           [0., 1.]]))
    """
    with open_inputs(a) as (matrix,):
        m, n = matrices.check_matrix("lu", matrix)
        dtype = matrices.choose_dtype("lu", matrix)
        k, columns = min(m, n), {"order": "F"}
        rows = m if k else 0  # as in SciPy: no rows were interchanged
        parts = (
            Result((m, k), dtype, kept=columns, source=matrix.path),
            Result((k, n), dtype, kept=columns, source=matrix.path),
        )
        results: tuple[Result, ...]
        if permute_l:
            results = parts
        elif p_indices:
            results = (Result((rows,), PIVOT, source=matrix.path, small=True), *parts)
        else:
            p = Result((rows, rows), real_dtype(dtype), kept=columns, source=matrix.path)
            results = (p, *parts)
        if out is not None and not (isinstance(out, tuple) and len(out) == len(results)):
            raise UsageError(
                f"lu: out={out!r} is not a tuple for {len(results)} arrays; pass a destination, or "
                "None, for each of them",
                code="bad-out",
            )
        plan = _LuPartsPlan(
            (m, n), matrix.dtype, load_routines(dtype, "lu"), tuple(r.shape for r in results)
        )
        arguments = {"permute_l": bool(permute_l), "p_indices": bool(p_indices)}
        return complete(Operation("lu", (matrix,), results, plan, arguments), out, how)


@dataclass(frozen=True, slots=True)
class _LuPartsPlan:
    """Planner: arrays are the matrix, the results; columns and pivots between the phases."""

    shape: tuple[int, int]
    given: np.dtype[Any]
    blas: Routines
    results: tuple[tuple[int, ...], ...]

    def __call__(self, terms: Terms) -> Program:
        (m, n), dtype, results = self.shape, self.blas.dtype, len(self.results)
        if not m or not n:
            return NOTHING
        between = ProgramMatrix(1 + results)
        arrays = ("matrix", *("p", "l", "u")[3 - results :], "columns", "pivots")
        work = Factoring(
            "lu", terms, (m, n), self.blas, self.given, between, between, 2 + results, arrays
        )
        method = f"{work.method}; in the end rows of L go into their order, and both factors apart"
        parts = _TriangleParts(self, work, terms.room)
        sizes = [int(np.prod(shape)) for shape in self.results]
        widths = [dtype.itemsize] * results
        if results == 3:
            widths[0] = parts.permutation.itemsize
        moved = {0: m * n * self.given.itemsize}
        moved |= {
            1 + i: size * width for i, (size, width) in enumerate(zip(sizes, widths, strict=True))
        }
        bound = choose_lu_bound(terms, work.least, dtype.itemsize, moved)
        return Program((work.schedule(), parts.schedule()), method, bound, work.temporaries)


class _TriangleParts:
    """
    Last phase: columns of L and U, with rows in their final order, and the permutation.

    Buffers: pivots, the order of rows, factored columns, and columns of each result.
    """

    def __init__(self, plan: _LuPartsPlan, work: Factoring, room: int) -> None:
        self.work, self.results = work, plan.results
        m, n = work.shape
        size, least = work.blas.dtype.itemsize, work.least
        self.permutes = len(plan.results) == 3
        self.matrix = self.permutes and len(plan.results[0]) == 2
        real = real_dtype(work.blas.dtype)
        self.permutation = real if self.matrix else PIVOT
        column = m * size + m * size + least * size + (m * real.itemsize if self.matrix else 0)
        once = (least + 3 * m) * PIVOT.itemsize
        self.copies = 2 if once + 2 * column <= room else 1
        if once + column > room:
            raise InsufficientBuffersError(once + column)
        self.all = max(n, m if self.matrix else 0)
        self.width = min((room - once) // (self.copies * column), self.all)

    def schedule(self) -> Schedule:
        m, width, least, copies = self.work.shape[0], self.width, self.work.least, self.copies
        dtype = self.work.blas.dtype
        # Pivots; the order of rows, and its inverse; the permutation as a result.
        buffers = [Buffer(least, PIVOT), Buffer(2 * m, PIVOT), Buffer(m, PIVOT)]
        buffers += [Buffer(rows * width, dtype, "F", copies=copies) for rows in (m, m, least)]
        if self.matrix:
            buffers.append(Buffer(m * width, self.permutation, "F", copies=copies))
        steps = -(-self.all // width)
        return Schedule(
            "lu", self.work.arrays, tuple(buffers), steps, self.step, (self.part,), reading=copies
        )

    def step(self, number: int) -> ScheduleStep:
        (m, n), least = self.work.shape, self.work.least
        results = len(self.results)
        start, stop = number * self.width, min((number + 1) * self.width, self.all)
        columns = min(start, n), min(stop, n)
        left = min(start, least), min(stop, least)
        wide, narrow = columns[1] - columns[0], left[1] - left[0]
        blocks = [Block(0, (least,)), Block(1, (2, m)), Block(3, (m, wide)), Block(4, (m, narrow)),
                  Block(5, (least, wide))]  # fmt: skip
        loads = [Load(self.work.pivots, (make_slice(0, least),), 0)]
        stores = []
        if wide:
            loads.append(self.work.lower.load((0, m), columns, 2))
            stores.append(ProgramMatrix(results).store((0, least), columns, 4))
        if narrow:
            stores.append(ProgramMatrix(results - 1).store((0, m), left, 3))
        permuted = min(start, m), min(stop, m)
        if self.matrix and permuted[0] < permuted[1]:
            blocks.append(Block(6, (m, permuted[1] - permuted[0])))
            stores.append(ProgramMatrix(1).store((0, m), permuted, 5))
        elif self.permutes and not self.matrix and number == 0:
            blocks.append(Block(2, (m,)))
            stores.append(Store(1, (make_slice(0, m),), 5))
        return ScheduleStep(tuple(blocks), tuple(loads), tuple(stores), 0, (columns, permuted))

    def part(self, blocks: Sequence[NDArray[Any]], columns: Span, permuted: Span) -> None:
        """Bring rows into their order; separate the parts above and below the diagonal."""
        pivots, (rows, places), came, low, up = blocks[:5]
        rows[:] = np.arange(rows.size)
        for i, other in enumerate(pivots.tolist()):
            if other != i:
                rows[i], rows[other] = rows[other], rows[i]
        places[rows] = np.arange(rows.size)
        self.work.reorder(came, pivots, columns)
        start, least = columns[0], pivots.size
        for j in range(came.shape[1]):
            above = min(start + j + 1, least)
            up[:above, j] = came[:above, j]
            up[above:, j] = 0
            if j < low.shape[1]:
                # The column becomes a column of L in place.
                came[: above - 1, j] = 0
                came[above - 1, j] = 1
                if self.permutes:
                    low[:, j] = came[:, j]
                else:
                    np.take(came[:, j], places, out=low[:, j], mode="clip")
        if len(blocks) > 5 and self.matrix:
            blocks[5][...] = 0
            blocks[5][rows[slice(*permuted)], np.arange(permuted[1] - permuted[0])] = 1
        elif len(blocks) > 5:
            blocks[5][...] = places
