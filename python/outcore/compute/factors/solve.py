"""
Systems of linear equations: solved with a matrix, or with its factors.

Problem. The equations are as large as the disk.
Idea. A left-looking LU writes into temporary arrays; then both triangles are streamed once for each
panel of right-hand sides. L keeps the row order in which it was factored. The rows of the
right-hand sides are interchanged as L is streamed, so no phase needs to bring it into its final
order.

Reference: as `outcore.compute.factors.lu` and `outcore.compute.factors.triangular`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, load_routines
from outcore.compute.factors.lu import Factoring, choose_lu_bound
from outcore.compute.factors.panels import NOTHING, PIVOT, ProgramMatrix, choose_bound
from outcore.compute.factors.triangular import RowInterchanges, Solving, Sweep
from outcore.compute.jobs import (
    Operation,
    Program,
    Result,
    Source,
    Terms,
    collective,
    complete,
    open_inputs,
)
from outcore.errors import LinAlgError, UsageError

__all__ = ["cho_solve", "lu_solve", "solve"]

_ARRAYS = ("matrix", "right-hand sides", "solution", "factors", "pivots")


@collective
def solve(a: Source, b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Solve a system of linear equations.

    Parameters
    ----------
    a
        Matrix, of shape ``(n, n)``.
    b
        Right-hand sides, of shape ``(n,)`` or ``(n, k)``.
    out, how
        See `outcore.compute.jobs.complete`; without `out`, the solution is a NumPy array if `b` has
        one axis.

    Returns
    -------
    DiskArray or numpy.ndarray
        Solution ``x`` of ``a x = b``, with the shape of `b` and the dtype of `numpy.linalg.solve`.

    Raises
    ------
    LinAlgError
        ``singular-matrix``, ``not-square``: the matrix is. ``not-finite``: an operand contains NaN
        or infinity. ``bad-shape``: `a` is not a matrix, or `b` does not fit it.
    UsageError, UnsupportedError, BudgetError
        See `outcore.compute.jobs.complete`. The budget must hold two columns.

    Notes
    -----
    Memory: at least two columns. Temporary arrays on disk are as large as `a`. Collective with
    ``comm=``: a panel depends on the ones before it, so one rank at a time has work.

    Gaussian elimination with partial pivoting, left-looking: Toledo, Gustavson 1996 (see
    `outcore.linalg.lu_factor`).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> outcore.linalg.solve("a.npy", np.array([5.0, 12.0]))
    array([1., 2.])
    """
    with open_inputs(a, b) as (matrix, sides):
        matrices.check_square("solve", matrix)
        dtype = matrices.choose_dtype("solve", matrix, sides)
        matrices.check_sides("solve", matrix.shape[0], sides)
        result = _compute_solution(sides, dtype)
        plan = _SolvePlan(matrix.shape[0], sides.shape, (matrix.dtype, sides.dtype),
                     load_routines(dtype, "solve"))  # fmt: skip
        return complete(Operation("solve", (matrix, sides), (result,), plan), out, how)


def _compute_solution(sides: Any, dtype: np.dtype[Any]) -> Result:
    return Result(
        tuple(sides.shape),
        dtype,
        kept={"order": sides.order} if sides.ndim == 2 else {},
        source=sides.path,
        small=sides.ndim == 1,
    )


@dataclass(frozen=True, slots=True)
class _SolvePlan:
    """Planner: arrays are the matrix, right-hand sides, solution; factors and pivots between phases."""

    n: int
    sides: tuple[int, ...]
    given: tuple[np.dtype[Any], np.dtype[Any]]
    blas: Routines

    def __call__(self, terms: Terms) -> Program:
        n, dtype = self.n, self.blas.dtype
        columns = self.sides[1] if len(self.sides) > 1 else 1
        if not n or not columns:
            return NOTHING
        factors = ProgramMatrix(3)
        work = Factoring(
            "solve", terms, (n, n), self.blas, self.given[0], factors, factors, 4, _ARRAYS, True
        )
        sweeps = (Sweep(factors, True, unit=True, group=work.cut.group), Sweep(factors, False))
        solving = Solving(
            "solve",
            n,
            self.sides,
            self.blas,
            (self.given[1], dtype, dtype),
            1,
            2,
            sweeps,
            RowInterchanges(4),
            _ARRAYS,
            known=True,
        )
        once = {
            0: n * n * self.given[0].itemsize,
            1: n * columns * self.given[1].itemsize,
            2: n * columns * dtype.itemsize,
        }
        bound = choose_lu_bound(terms, n, dtype.itemsize, once)
        method = f"{work.method}; then both triangles come by the right-hand sides"
        phases = (work.schedule(), solving.schedule(terms))
        return Program(phases, method, bound, work.temporaries)


@collective
def lu_solve(
    lu_and_piv: tuple[Source, Source], b: Source, trans: int = 0, *, out: Any = None, **how: Any
) -> Any:
    """
    Solve a system of linear equations with the LU factors of its matrix.

    Parameters
    ----------
    lu_and_piv
        Result of `outcore.linalg.lu_factor` or `scipy.linalg.lu_factor`: factors of shape ``(n, n)`` and
        pivots of shape ``(n,)``, each a path, an open array, or a NumPy array.
    b
        Right-hand sides, of shape ``(n,)`` or ``(n, k)``.
    trans
        0: solve ``a x = b``. 1: ``a^T x = b``. 2: ``a^H x = b``.
    out, how
        See `outcore.linalg.solve`.

    Returns
    -------
    DiskArray or numpy.ndarray
        Solution, with the shape of `b`.

    Raises
    ------
    LinAlgError
        As for `outcore.linalg.solve`.
    UsageError, UnsupportedError, BudgetError
        As for `outcore.linalg.solve`. ``bad-value``: pivots are not rows, or `trans` is unknown.

    Notes
    -----
    Memory: at least two columns. The factors are read once for each panel of right-hand sides that
    fits. Collective with ``comm=``: ranks share the panels of right-hand sides.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> factors = outcore.linalg.lu_factor(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> outcore.linalg.lu_solve(factors, np.array([5.0, 12.0]))
    array([1., 2.])
    """
    kind = operator.index(trans)
    if kind not in (0, 1, 2):
        raise UsageError(
            f"lu_solve: trans={trans!r} is unknown; use 0 (a x = b), 1 (transposed) or 2 (conjugate "
            "transposed)",
            code="bad-value",
        )
    lu, piv = lu_and_piv
    with open_inputs(lu, piv, b) as (matrix, pivots, sides):
        matrices.check_square("lu_solve", matrix)
        matrices.check_sides("lu_solve", matrix.shape[0], sides)
        n = matrix.shape[0]
        if tuple(pivots.shape) != (n,) or pivots.dtype.kind not in "iu":
            raise LinAlgError(
                f"lu_solve: pivots have shape {tuple(pivots.shape)} and dtype {pivots.dtype}; "
                f"factors of {n} rows need {n} integers",
                code="bad-shape",
                path=pivots.path,
            )
        order = np.asarray(pivots[...])
        if n and not (order.min() >= 0 and order.max() < n):
            raise UsageError(
                f"lu_solve: pivots from {order.min()} to {order.max()} do not fit {n} rows; pass "
                "those of lu_factor, which are counted from 0",
                code="bad-value",
                path=pivots.path,
            )
        with open_inputs(order.astype(PIVOT)) as (rows,):
            if kind == 0:
                sweeps = [(True, "N", True), (False, "N", False)]
            else:
                word = "T" if kind == 1 else "C"
                sweeps = [(False, word, False), (True, word, True)]
            return _solve_with_factors(
                "lu_solve", matrix, rows, sides, sweeps, {"trans": kind}, out, how
            )


@collective
def cho_solve(c_and_lower: tuple[Source, bool], b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Solve a system of linear equations with the Cholesky factor of its matrix.

    Parameters
    ----------
    c_and_lower
        Factor of shape ``(n, n)``, as from `outcore.linalg.cholesky`, and whether it is the lower one.
        The other triangle is not used.
    b
        Right-hand sides, of shape ``(n,)`` or ``(n, k)``.
    out, how
        See `outcore.linalg.solve`.

    Returns
    -------
    DiskArray or numpy.ndarray
        Solution, with the shape of `b`.

    Raises
    ------
    LinAlgError, UsageError, UnsupportedError, BudgetError
        As for `outcore.linalg.solve`.

    Notes
    -----
    Memory: at least two columns. The factor is read twice for each panel of right-hand sides that
    fits. Collective with ``comm=``: ranks share the panels of right-hand sides.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> factor = outcore.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> outcore.linalg.cho_solve((factor, True), np.array([8.0, 12.0]))
    array([1., 2.])
    """
    factor, lower = c_and_lower
    with open_inputs(factor, b) as (matrix, sides):
        matrices.check_square("cho_solve", matrix)
        matrices.check_sides("cho_solve", matrix.shape[0], sides)
        sweeps = [(True, "N", False), (True, "C", False)]
        if not lower:
            sweeps = [(False, "C", False), (False, "N", False)]
        return _solve_with_factors(
            "cho_solve", matrix, None, sides, sweeps, {"lower": bool(lower)}, out, how
        )


def _solve_with_factors(
    name: str,
    matrix: Any,
    pivots: Any,
    sides: Any,
    sweeps: list[tuple[bool, str, bool]],
    arguments: dict[str, Any],
    out: Any,
    how: dict[str, Any],
) -> Any:
    """Solve with triangles of one matrix, one after the other."""
    dtype = matrices.choose_dtype(name, matrix, sides)
    inputs = (matrix, sides) if pivots is None else (matrix, sides, pivots)
    result = _compute_solution(sides, dtype)
    n, target = matrix.shape[0], len(inputs)
    words = ("matrix", "right-hand sides", "pivots")[:target]
    before = sweeps[0][2]
    rows = None if pivots is None else RowInterchanges(2, before=before, after=not before)
    plan = _WithFactors(
        Solving(
            name,
            n,
            tuple(sides.shape),
            load_routines(dtype, name),
            (sides.dtype, *[matrix.dtype] * len(sweeps)),
            1,
            target,
            tuple(Sweep(ProgramMatrix(0), *one) for one in sweeps),
            rows,
            (*words, "solution"),
        ),
        matrix.dtype.itemsize,
    )
    operation = Operation(name, inputs, (result,), plan, arguments, repeatable=False)
    return complete(operation, out, how)


@dataclass(frozen=True, slots=True)
class _WithFactors:
    solving: Solving
    itemsize: int

    def __call__(self, terms: Terms) -> Program:
        solving = self.solving
        n, columns = solving.n, solving.columns
        if not n or not columns:
            return NOTHING
        parts = {
            0: n * (n + 1) // 2 * self.itemsize,
            1: n * columns * solving.given[0].itemsize,
            solving.target: n * columns * solving.blas.dtype.itemsize,
        }
        if solving.rows is not None:
            parts[0] = n * n * self.itemsize
        bound = choose_bound(terms, parts)
        # If the matrix is stored by rows, its transposed triangles are streamed.
        turned = terms.order(0) == "C"
        schedule = (solving.transpose() if turned else solving).schedule(terms)
        method = "triangles come by the right-hand sides" + (", by rows" if turned else "")
        return Program((schedule,), method, bound)
