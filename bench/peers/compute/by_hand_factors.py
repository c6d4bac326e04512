"""Factorisations blocked by hand: left-looking panels of columns, as in SOLAR and the textbooks."""

from __future__ import annotations

import numpy as np


def _widths(n: int, item: int, memory: int) -> tuple[int, int]:
    """Columns of the panel that is computed (half of the memory), and of those that pass by."""
    wide = max(memory // 2 // (n * item), 1)
    return min(wide, n), min(max(wide // 2, 1), n)


def cholesky(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """The lower factor."""
    from by_hand import cut, made
    from scipy.linalg import solve_triangular
    from scipy.linalg.blas import dgemm
    from scipy.linalg.lapack import dpotrf

    a = np.load(inputs[0], mmap_mode="r")
    n = len(a)
    factor = made(out, a.shape, a.dtype)
    wide, narrow = _widths(n, a.itemsize, memory)
    for j in cut(n, wide):
        panel = np.array(a[j.start :, j], order="F")
        for k in cut(j.start, narrow):
            before = np.array(factor[j.start :, k])
            top = before[: j.stop - j.start]
            # panel -= before @ top.T, in place.
            done = dgemm(-1.0, before.T, top.T, beta=1.0, c=panel, trans_a=True, overwrite_c=True)
            assert np.shares_memory(done, panel)
            del before, top
        corner, failed = dpotrf(panel[: j.stop - j.start], lower=True, clean=True)
        if failed:
            raise np.linalg.LinAlgError(f"not positive definite at {failed}")
        factor[j, j] = corner
        if j.stop < n:
            below = panel[j.stop - j.start :]
            below = solve_triangular(corner, below.T, lower=True, check_finite=False).T
            factor[j.stop :, j] = below
        factor.flush()


def lu(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """Packed factors as LAPACK has them, and ``OUT.permutation.npy``: row i is row p[i] of the matrix.

    Rows of panels that are written are not swapped on disk until the end: each knows its own order.
    """
    from by_hand import cut, made
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dgetrf

    a = np.load(inputs[0], mmap_mode="r")
    n = len(a)
    packed = made(out, a.shape, a.dtype)
    wide, narrow = _widths(n, a.itemsize, memory)
    order = np.arange(n)  # row i of what is being computed is row order[i] of the matrix
    orders: list[np.ndarray] = []  # how rows stood when a panel was written
    panels = list(cut(n, wide))
    for number, j in enumerate(panels):
        panel = np.asfortranarray(a[:, j][order])
        for old, k in enumerate(panels[:number]):
            now = _places(orders[old], order)
            for q in cut(k.stop - k.start, narrow):
                q = slice(k.start + q.start, k.start + q.stop)
                lower = packed[:, q][now]
                unit = lower[q]
                panel[q] = solve_triangular(
                    unit, panel[q], lower=True, unit_diagonal=True, check_finite=False
                )
                panel[q.stop :] -= lower[q.stop :] @ panel[q]
                del lower, unit
        done, pivots, _ = dgetrf(panel[j.start :], overwrite_a=True)
        panel[j.start :] = done
        for i, pivot in enumerate(pivots):
            one, two = j.start + i, j.start + int(pivot)
            order[[one, two]] = order[[two, one]]
        packed[:, j] = panel
        packed.flush()
        orders.append(order.copy())
    for k, then in zip(panels[:-1], orders[:-1], strict=True):
        now = _places(then, order)
        for q in cut(k.stop - k.start, narrow):
            q = slice(k.start + q.start, k.start + q.stop)
            packed[:, q] = packed[:, q][now]
    packed.flush()
    np.save(f"{out}.permutation.npy", order)


def _places(then: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Where the rows of the order `now` stood in the order `then`."""
    place = np.empty(len(then), np.int64)
    place[then] = np.arange(len(then))
    return place[now]
