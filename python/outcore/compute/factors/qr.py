"""
QR, least squares and singular values of tall matrices on disk.

Problem. The data has few columns and more rows than fit in memory: regressions, principal
components.
Idea. All three use the tree of `outcore.compute.factors.tall` with different roots: R itself; the
least squares problem of R and the right-hand sides, which are additional columns; or the singular
values of R.

Reference: as `outcore.compute.factors.tall`; Golub, Van Loan, "Matrix Computations", 4th edition,
sections 5.3 and 8.6.3 (singular values by R).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.factors import matrices
from outcore.compute.factors.blas import Routines, load_routines, real_dtype
from outcore.compute.factors.panels import NOTHING, ProgramMatrix, choose_bound
from outcore.compute.factors.tall import Root, Tall, TallPart
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
from outcore.errors import UsageError

__all__ = ["lstsq", "qr", "svd"]


@collective
def qr(a: Source, mode: str = "reduced", *, out: Any = None, **how: Any) -> Any:
    """
    Compute the QR factors of a tall matrix.

    Parameters
    ----------
    a
        Matrix, of shape ``(m, n)``. It must fit in memory if it has more than half as many columns
        as rows.
    mode
        ``"reduced"``: Q and R, with ``k = min(m, n)`` columns and rows. ``"r"``: only R.
    out
        Destination of Q, as in `outcore.compute.jobs.complete`, or a tuple of this and the
        destination of R. With mode ``"r"``, destination of R. Default: a temporary array on disk,
        and a NumPy array.
    how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    Q : DiskArray
        Matrix of shape ``(m, k)`` with orthonormal columns. Not with mode ``"r"``.
    R : numpy.ndarray
        Upper triangular matrix of shape ``(k, n)``. Its dtype is float32, float64, complex64 or
        complex128, as in `numpy.linalg.qr`. The signs of its rows depend on the tree, and thus on
        the memory.

    Raises
    ------
    LinAlgError
        ``not-finite``: the matrix contains NaN or infinity. ``bad-shape``: `a` is not a matrix.
    UsageError
        ``bad-option``: the mode is unknown. Others, and UnsupportedError: see
        `outcore.compute.jobs.complete`.
    BudgetError
        Blocks with twice as many rows as columns do not fit.

    Notes
    -----
    Memory: about ten times the size of R. The rows are read once for R and once more for Q.
    Collective with ``comm=``: ranks share the blocks of rows.

    A tree of blocks: Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and
    sequential QR and LU factorizations" (2012).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[3.0], [0.0], [4.0]]))
    >>> q, r = outcore.linalg.qr("a.npy")
    >>> np.abs(r)
    array([[5.]])
    >>> (q[...] @ r).round(6).ravel().tolist() == [3, 0, 4]
    True
    """
    if mode not in ("reduced", "r"):
        raise UsageError(
            f"qr: mode={mode!r} is not supported; use 'reduced' (Q and R) or 'r': all of Q "
            "('complete') would have as many columns as rows",
            code="bad-option",
        )
    with open_inputs(a) as (matrix,):
        m, n = matrices.check_matrix("qr", matrix)
        dtype = matrices.choose_dtype("qr", matrix)
        k = min(m, n)
        small = Result((k, n), dtype, source=matrix.path, small=True)
        large = Result((m, k), dtype, source=matrix.path)
        both = mode == "reduced"
        plan = _QrPlan("qr", (m, n), (matrix.dtype,), load_routines(dtype, "qr"), both)
        results = (large, small) if both else (small,)
        operation = Operation("qr", (matrix,), results, plan, {"mode": mode})
        outs = (out, None) if both and out is not None and not isinstance(out, tuple) else out
        return complete(operation, outs, how)


@collective
def svd(
    a: Source,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Compute the singular values, and vectors, of a tall or a wide matrix.

    Parameters
    ----------
    a
        Matrix, of shape ``(m, n)``. It must fit in memory if the shorter side is longer than half
        of the other one.
    full_matrices
        Must be False: ``min(m, n)`` vectors on each side.
    compute_uv
        Whether to compute vectors.
    out
        Destination of the vectors of the longer side, as in `outcore.compute.jobs.complete`, or a
        tuple for u, s and vh. Without vectors, destination of s. Default: temporary arrays on disk,
        and NumPy arrays for small results.
    how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    u : DiskArray or numpy.ndarray
        Matrix of shape ``(m, k)`` with ``k = min(m, n)``; a NumPy array if `a` is wide.
    s : numpy.ndarray
        Singular values, of shape ``(k,)``, descending.
    vh : numpy.ndarray or DiskArray
        Matrix of shape ``(k, n)``; on disk if `a` is wide.

    Raises
    ------
    LinAlgError
        ``not-finite``: the matrix contains NaN or infinity. ``bad-shape``: `a` is not a matrix.
    UsageError
        ``bad-option``: ``full_matrices=True``. Others, and UnsupportedError: see
        `outcore.compute.jobs.complete`.
    BudgetError
        Blocks with twice as many rows as columns do not fit.

    Notes
    -----
    Memory: about sixteen times the size of vh. The rows are read once for s and vh, and once more
    for u. Collective with ``comm=``: ranks share the blocks of rows.

    Singular values by R: Golub, Van Loan, "Matrix Computations", 4th edition, section 8.6.3; the
    tree of blocks as in `outcore.linalg.qr`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[3.0, 0.0], [0.0, 2.0], [4.0, 0.0]]))
    >>> u, s, vh = outcore.linalg.svd("a.npy")
    >>> s.round(6)
    array([5., 2.])
    >>> u.shape, vh.shape
    ((3, 2), (2, 2))
    """
    if full_matrices:
        raise UsageError(
            "svd: full_matrices=True would make a square matrix of the longer side; pass False",
            code="bad-option",
        )
    with open_inputs(a) as (matrix,):
        m, n = matrices.check_matrix("svd", matrix)
        dtype = matrices.choose_dtype("svd", matrix)
        k = min(m, n)
        wide = m < n
        results: tuple[Result, ...] = (
            Result((m, k), dtype, source=matrix.path, small=wide),
            Result((k,), real_dtype(dtype), source=matrix.path, small=True),
            Result((k, n), dtype, source=matrix.path, small=not wide),
        )
        if not compute_uv:
            results = results[1:2]
        plan = _QrPlan(
            "svd", (m, n), (matrix.dtype,), load_routines(dtype, "svd"), bool(compute_uv)
        )
        arguments = {"full_matrices": False, "compute_uv": bool(compute_uv)}
        operation = Operation("svd", (matrix,), results, plan, arguments)
        if compute_uv and out is not None and not isinstance(out, tuple):
            out = (None, None, out) if wide else (out, None, None)
        return complete(operation, out, how)


@collective
def lstsq(a: Source, b: Source, rcond: float | None = None, *, out: Any = None, **how: Any) -> Any:
    """
    Compute the least squares solution of a tall system of linear equations.

    Parameters
    ----------
    a
        Matrix, of shape ``(m, n)``. It must fit in memory if it has more than half as many columns
        as rows.
    b
        Right-hand sides, of shape ``(m,)`` or ``(m, p)`` with a small `p`.
    rcond
        Singular values less than this times the largest one count as zero. Default: the precision
        of the dtype times ``max(m, n)``. -1: the precision.
    out, how
        See `outcore.compute.jobs.complete`; without `out`, the solution is a NumPy array. Of the
        options only ``memory``, ``progress``, ``explain`` and ``comm``.

    Returns
    -------
    x : numpy.ndarray
        Solution, of shape ``(n,)`` or ``(n, p)``: the shortest one of all that minimise ``|b - a
        x|``.
    residuals : numpy.ndarray
        Squares of these minima, of shape ``(p,)`` or ``(1,)``. The shape is ``(0,)`` if the rank is
        less than `n`, or if there are no more rows than columns.
    rank : int
        Rank of `a`.
    s : numpy.ndarray
        Singular values of `a`, of shape ``(min(m, n),)``.

    Raises
    ------
    LinAlgError
        ``not-finite``: an operand contains NaN or infinity. ``bad-shape``: `a` is not a matrix, or
        `b` does not fit it.
    UsageError, UnsupportedError
        See `outcore.compute.jobs.complete`.
    BudgetError
        Blocks with twice as many rows as `a` and `b` have columns do not fit.

    Notes
    -----
    Memory: about ten times the square of the number of columns. The rows are read once. Collective
    with ``comm=``: ranks share the blocks of rows. With ``explain=True``, `Planned.run` returns
    arrays of fixed shapes: `rank` of shape ``(1,)``, and always `residuals`.

    Least squares by R: Golub, Van Loan, "Matrix Computations", 4th edition, section 5.3; the tree
    of blocks as in `outcore.linalg.qr`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
    >>> x, residuals, rank, s = outcore.linalg.lstsq("a.npy", np.array([1.0, 3.0, 5.0]))
    >>> x.round(6), rank
    (array([1., 2.]), 2)
    """
    with open_inputs(a, b) as (matrix, sides):
        m, n = matrices.check_matrix("lstsq", matrix)
        dtype = matrices.choose_dtype("lstsq", matrix, sides)
        matrices.check_sides("lstsq", m, sides)
        p = sides.shape[1] if sides.ndim == 2 else 1
        real = real_dtype(dtype)
        cut = float(np.finfo(real).eps) * max(m, n) if rcond is None else float(rcond)
        results = (
            Result((n, *sides.shape[1:]), dtype, source=matrix.path, small=True),
            Result((p,), real, source=matrix.path, small=True),
            Result((1,), np.dtype(np.int64), source=matrix.path, small=True),
            Result((min(m, n),), real, source=matrix.path, small=True),
        )
        plan = _LeastSquares(
            (m, n, p),
            sides.ndim == 1,
            (matrix.dtype, sides.dtype),
            load_routines(dtype, "lstsq"),
            cut,
        )
        arguments = {"rcond": rcond}
        operation = Operation("lstsq", (matrix, sides), results, plan, arguments)
        if out is not None and not isinstance(out, tuple):
            out = (out, None, None, None)

        def of_rank(found: Any) -> tuple[Any, Any, int, Any]:
            x, residuals, rank, s = found
            count = int(rank[0])
            return x, residuals if count == n < m else residuals[:0], count, s

        return complete(operation, out, how, of_rank)


@dataclass(frozen=True, slots=True)
class _QrPlan:
    """Planner of QR or singular values: arrays are the matrix and the results."""

    name: str
    shape: tuple[int, int]
    given: tuple[np.dtype[Any]]
    blas: Routines
    vectors: bool

    def __call__(self, terms: Terms) -> Program:
        m, n = self.shape
        if not m or not n:
            return NOTHING  # the results are empty
        # A wide matrix has the singular values of its transpose.
        turned = self.name == "svd" and m < n
        if turned:
            m, n = n, m
        blas, dtype, k = self.blas, self.blas.dtype, min(m, n)
        if self.name == "qr":
            root = Root(_copy, ((1 + self.vectors, (k, n), dtype),))
            q = ProgramMatrix(1) if self.vectors else None
        elif self.vectors:
            # u and vh are exchanged.
            last = (1 if turned else 3, (k, k), dtype)
            root = Root(_Singular(turned), ((2, (k,), real_dtype(dtype)), last), 8 * k * k)
            q = ProgramMatrix(3 if turned else 1, turned)
        else:
            root, q = Root(_singular_values, ((1, (k,), real_dtype(dtype)),), 4 * k * k), None
        names = ("matrix", *("Q", "R") * (self.name == "qr"), *("u", "s", "vh"))
        count = {"qr": 2 + self.vectors, "svd": 2 + 2 * self.vectors}[self.name]
        parts = (TallPart(ProgramMatrix(0, turned), self.given[0], (0, n)),)
        tall = Tall(self.name, names[:count], terms, (m, n), blas, parts, root, q)
        once = {0: m * n * self.given[0].itemsize}
        if q is not None:
            once[q.number] = m * k * dtype.itemsize
        bound = choose_bound(terms, once)
        return Program(tall.phases(), tall.method, bound, tall.temporaries)


@dataclass(frozen=True, slots=True)
class _LeastSquares:
    """Planner of least squares: arrays are the matrix, the right-hand sides, and four small results."""

    shape: tuple[int, int, int]
    vector: bool
    given: tuple[np.dtype[Any], np.dtype[Any]]
    blas: Routines
    rcond: float

    def __call__(self, terms: Terms) -> Program:
        m, n, p = self.shape
        if not m or not n + p:
            return NOTHING
        dtype = self.blas.dtype
        real = real_dtype(dtype)
        both = (
            TallPart(ProgramMatrix(0), self.given[0], (0, n)),
            TallPart(ProgramMatrix(1), self.given[1], (n, n + p), self.vector),
        )
        # Without columns to solve with, the residuals are those of the whole right-hand sides.
        parts = tuple(one for one in both if one.columns[0] < one.columns[1])
        root = Root(
            self.solve,
            (
                (2, (n,) if self.vector else (n, p), dtype),
                (3, (p,), real),
                (4, (1,), np.dtype(np.int64)),
                (5, (min(m, n),), real),
            ),
            8 * (n + p) * (n + p),
        )
        names = ("matrix", "right-hand sides", "solution", "residuals", "rank", "singular values")
        tall = Tall("lstsq", names, terms, (m, n + p), self.blas, parts, root, None)
        once = {0: m * n * self.given[0].itemsize, 1: m * p * self.given[1].itemsize}
        bound = choose_bound(terms, once)
        return Program(tall.phases(), tall.method, bound, tall.temporaries)

    def solve(self, r: NDArray[Any], small: list[NDArray[Any]], above: NDArray[Any] | None) -> None:
        """Solve the same problem with R as the matrix: lengths are unchanged."""
        x, residuals, rank, s = small
        matrices.check_finite("lstsq", r)
        _, n, p = self.shape
        found = np.linalg.lstsq(r[:n, :n], r[:n, n:], rcond=self.rcond)
        x[...] = found[0].reshape(x.shape)
        rank[0], s[...] = found[2], found[3]
        left = np.abs(r[n:, n:])
        residuals[...] = (left * left).sum(axis=0) if left.size else np.zeros(p)


def _copy(r: NDArray[Any], small: list[NDArray[Any]], above: NDArray[Any] | None) -> None:
    matrices.check_finite("qr", r)
    small[0][...] = r


def _singular_values(
    r: NDArray[Any], small: list[NDArray[Any]], above: NDArray[Any] | None
) -> None:
    matrices.check_finite("svd", r)
    small[0][...] = np.linalg.svd(r, compute_uv=False)


@dataclass(frozen=True, slots=True)
class _Singular:
    """Singular values of R; their left vectors multiply Q from the right."""

    turned: bool

    def __call__(
        self, r: NDArray[Any], small: list[NDArray[Any]], above: NDArray[Any] | None
    ) -> None:
        matrices.check_finite("svd", r)
        u, s, vh = np.linalg.svd(r, full_matrices=False)
        assert above is not None
        above[...] = u
        small[0][...] = s
        small[1][...] = vh.T if self.turned else vh
