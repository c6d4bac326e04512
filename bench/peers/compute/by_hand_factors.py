"""
Factorisations blocked by hand: left-looking panels of columns.

The matrix lies in C order, the factors are stored in Fortran order, so that what is read most, columns
that are computed, is read in long runs: `.T` is that array in C order.
"""

from __future__ import annotations

import numpy as np


def _made(out: str, a: np.ndarray) -> np.ndarray:
    """The transpose of a new array in Fortran order."""
    return np.lib.format.open_memmap(out, "w+", a.dtype, a.shape, fortran_order=True).T


def _widths(n: int, item: int, memory: int) -> tuple[int, int]:
    """Columns of the panel that is computed (two fifths of the memory), and of those that pass by."""
    wide = max(memory * 2 // 5 // (n * item), 1)
    return min(wide, n), min(max(wide // 3, 1), n)


def cholesky(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """The lower factor. Of the matrix, which is symmetric, rows are read for columns."""
    from by_hand import cut, read_part, write_part
    from scipy.linalg.blas import dgemm, dtrsm
    from scipy.linalg.lapack import dpotrf

    a = np.load(inputs[0], mmap_mode="r")
    n = len(a)
    factor = _made(out, a)
    wide, narrow = _widths(n, a.itemsize, memory)
    for j in cut(n, wide):
        below, size = slice(j.start, n), j.stop - j.start
        panel = read_part(a, j, below).T
        for k in cut(j.start, narrow):
            before = read_part(factor, k, below)
            # panel -= before.T @ top, in place.
            done = dgemm(
                -1.0, before.T, before[:, :size].T, 1.0, panel, trans_b=True, overwrite_c=True
            )
            assert np.shares_memory(done, panel)
            del before
        corner, failed = dpotrf(panel[:size], lower=True, clean=True)
        if failed:
            raise np.linalg.LinAlgError(f"not positive definite at {failed}")
        panel[:size] = corner
        if size < len(panel):
            panel[size:] = dtrsm(1.0, corner, panel[size:], side=1, lower=True, trans_a=True)
        write_part(factor, j, below, panel.T)


def lu(inputs: list[str], out: str, memory: int, cores: int) -> None:
    """Packed factors as LAPACK has them, and ``OUT.permutation.npy``: row i is row p[i] of the matrix.

    Rows of panels that are written are not swapped on disk until the end: each knows its own order.
    """
    from by_hand import cut, read_part, read_rows, write_rows
    from scipy.linalg.blas import dtrsm
    from scipy.linalg.lapack import dgetrf

    a = np.load(inputs[0], mmap_mode="r")
    n = len(a)
    packed = _made(out, a)
    wide, narrow = _widths(n, a.itemsize, memory)
    order = np.arange(n)  # row i of what is being computed is row order[i] of the matrix
    orders: list[np.ndarray] = []  # how rows stood when a panel was written
    panels = list(cut(n, wide))

    def columns(part: slice, now: np.ndarray) -> np.ndarray:
        """Columns that were computed, their rows as they stand now."""
        found = read_rows(packed, part, np.empty((part.stop - part.start, n)))
        for column in found:
            column[:] = column[now]
        return found.T

    for number, j in enumerate(panels):
        panel = np.asfortranarray(read_part(a, slice(0, n), j))
        for column in panel.T:
            column[:] = column[order]
        for old, k in enumerate(panels[:number]):
            now = _places(orders[old], order)
            for some in cut(k.stop - k.start, narrow):
                q = slice(k.start + some.start, k.start + some.stop)
                lower = columns(q, now)
                panel[q] = dtrsm(1.0, lower[q], panel[q], lower=True, diag=True)
                # By parts, for a product is as large as what it is taken from.
                for part in cut(panel.shape[1], narrow):
                    panel[q.stop :, part] -= lower[q.stop :] @ panel[q, part]
                del lower
        done, pivots, _ = dgetrf(panel[j.start :])
        panel[j.start :] = done
        del done
        for i, pivot in enumerate(pivots):
            one, two = j.start + i, j.start + int(pivot)
            order[[one, two]] = order[[two, one]]
        write_rows(packed, j, panel.T)
        del panel
        orders.append(order.copy())
    for k, then in zip(panels[:-1], orders[:-1], strict=True):
        now = _places(then, order)
        for some in cut(k.stop - k.start, narrow):
            q = slice(k.start + some.start, k.start + some.stop)
            write_rows(packed, q, columns(q, now).T)
    np.save(f"{out}.permutation.npy", order)


def _places(then: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Where the rows of the order `now` stood in the order `then`."""
    place = np.empty(len(then), np.int64)
    place[then] = np.arange(len(then))
    return place[now]
