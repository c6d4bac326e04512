"""Operands of linear algebra: which shapes and dtypes there are, and what is said of others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import LinAlgError, UsageError
from outcore.ooc.factors.blas import working_dtype

__all__ = ["computed", "finite", "matrix", "same", "square"]


def same(given: np.dtype[Any], used: np.dtype[Any]) -> bool:
    """Whether elements can be loaded as they are, but for the order of their bytes."""
    return given.newbyteorder("=") == used


def computed(name: str, *arrays: Any) -> np.dtype[Any]:
    """
    The dtype that an operation computes in.

    Parameters
    ----------
    name
        Of the operation.
    arrays
        Its operands.
    """
    dtype = working_dtype(*(one.dtype for one in arrays))
    if dtype is None:
        told = ", ".join(str(one.dtype) for one in arrays)
        raise UsageError(
            f"{name} of {told}: linear algebra is done in float32, float64, complex64 and complex128; "
            "convert the array (outcore.convert) first",
            code="bad-dtype",
        )
    return dtype


def finite(name: str, r: NDArray[Any]) -> None:
    """Refuse what came of NaN and infinity: a small matrix that stands for the one on disk."""
    if not np.isfinite(r).all():
        raise LinAlgError(
            f"{name}: an operand holds NaN or infinity, or elements so large that their squares "
            "overflow. Replace or scale these elements first",
            code="not-finite",
        )


def matrix(name: str, array: Any) -> tuple[int, int]:
    """The shape of an operand that has to be a matrix."""
    if array.ndim != 2:
        raise UsageError(
            f"{name}: {array.path!r} has {array.ndim} axes, a matrix has 2; stacks are done one by one",
            code="bad-shape",
            path=array.path,
        )
    rows, columns = array.shape
    return int(rows), int(columns)


def square(name: str, array: Any) -> np.dtype[Any]:
    """The dtype that an operation on a square matrix computes in."""
    rows, columns = matrix(name, array)
    if rows != columns:
        raise LinAlgError(
            f"{name}: {array.path!r} has {rows} rows and {columns} columns; the matrix must be square",
            code="not-square",
            path=array.path,
        )
    return computed(name, array)
