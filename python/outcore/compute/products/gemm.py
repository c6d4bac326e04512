"""
Products that are added in place, ``c += a @ b``, by the BLAS that SciPy installs.

Problem. `numpy.matmul` can store a product in an array but not add it, so a sum over blocks would
need memory for a second result, and a pass over both of them for each block. `scipy.linalg.blas`
adds, but holds the interpreter's lock: large blocks stop all other threads for seconds.
Idea. SciPy exports the addresses of BLAS functions for compiled code (`scipy.linalg.cython_blas`).
They are called here through `ctypes`, which releases the lock.

Invariants. Shapes, dtypes and strides are checked before each call; no copies are made.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.needs import read_capsule

__all__ = ["can_add", "multiply"]

_NAMES = {"f": "sgemm", "d": "dgemm", "F": "cgemm", "D": "zgemm"}
# Lengths are 32-bit integers.
_LONGEST = 2**30


def can_add(dtype: np.dtype[Any]) -> bool:
    """Return whether `multiply` supports a dtype: BLAS has it, and SciPy is installed."""
    return dtype.isnative and dtype.char in _NAMES and _find_function(dtype.char) is not None


def multiply(c: NDArray[Any], a: NDArray[Any], b: NDArray[Any], *, add: bool) -> None:
    """
    Store or add the product of two matrices: ``c = a @ b`` or ``c += a @ b``.

    Shapes are ``(m, n)``, ``(m, k)`` and ``(k, n)``, with one dtype for which `can_add` is true. In
    each matrix, elements are contiguous along one of the two axes. Without `add`, the contents of
    `c` are not read.
    """
    (m, n), k = c.shape, a.shape[1]
    if a.shape != (m, k) or b.shape != (k, n) or not a.dtype == b.dtype == c.dtype:
        raise ValueError(
            f"{a.shape} {a.dtype} @ {b.shape} {b.dtype} does not fit into {c.shape} {c.dtype}"
        )
    if not k and not add:
        c[...] = 0
    if not (m and n and k):
        return
    if max(m, n, k) > _LONGEST:
        _multiply_halves(c, a, b, add=add)
        return
    item = c.itemsize
    if c.strides[0] != item or (m > 1 and c.strides[1] == item):
        # BLAS stores by columns: the transpose of c is the product of the transposes.
        c, a, b = c.T, b.T, a.T
        m, n = n, m
    (of_c, ld_c), (of_a, ld_a), (of_b, ld_b) = _find_order(c), _find_order(a), _find_order(b)
    function = _find_function(c.dtype.char)
    if of_c != b"N" or not c.flags.writeable or function is None:
        raise ValueError(f"cannot add a product to an array of strides {c.strides}")
    one, old = np.ones(1, c.dtype), np.full(1, add, c.dtype)
    integers = [ctypes.byref(ctypes.c_int(value)) for value in (m, n, k, ld_a, ld_b, ld_c)]
    function(
        of_a, of_b, *integers[:3], one.ctypes.data, a.ctypes.data, integers[3], b.ctypes.data,
        integers[4], old.ctypes.data, c.ctypes.data, integers[5],
    )  # fmt: skip


def _multiply_halves(c: NDArray[Any], a: NDArray[Any], b: NDArray[Any], *, add: bool) -> None:
    (m, n), k = c.shape, a.shape[1]
    if k == max(m, n, k):
        for part in (slice(0, k // 2), slice(k // 2, k)):
            multiply(c, a[:, part], b[part], add=add or part.start > 0)
    elif m >= n:
        for part in (slice(0, m // 2), slice(m // 2, m)):
            multiply(c[part], a[part], b, add=add)
    else:
        for part in (slice(0, n // 2), slice(n // 2, n)):
            multiply(c[:, part], a, b[:, part], add=add)


def _find_order(matrix: NDArray[Any]) -> tuple[bytes, int]:
    """Return the order of a matrix as BLAS needs it, and the distance of its columns (or rows)."""
    item, (rows, columns), (down, across) = matrix.itemsize, matrix.shape, matrix.strides
    if (down == item or rows == 1) and (across >= rows * item or columns == 1):
        return b"N", max(across // item, rows) if columns > 1 else rows
    if (across == item or columns == 1) and (down >= columns * item or rows == 1):
        return b"T", max(down // item, columns) if rows > 1 else columns
    raise ValueError(
        f"a matrix of strides {matrix.strides} is contiguous neither by columns nor by rows"
    )


@functools.cache
def _find_function(char: str) -> Callable[..., None] | None:
    """Return the BLAS function of a type code; None if there is none that can be called."""
    try:
        table = importlib.import_module("scipy.linalg.cython_blas").__pyx_capi__
    except (ImportError, AttributeError):
        return None
    capsule = table.get(_NAMES[char])
    if capsule is None:
        return None
    # The type differs for longer integers.
    kind, address = read_capsule(capsule)
    words = [word.strip() for word in kind.partition(b"(")[2].rstrip(b")").split(b",")]
    if [n for n, word in enumerate(words) if word == b"int *"] != [2, 3, 4, 7, 9, 12]:
        return None
    chars, others = [ctypes.c_char_p] * 2, [ctypes.c_void_p] * 11
    return ctypes.CFUNCTYPE(None, *chars, *others)(address)
