"""Operands of linear algebra: valid shapes and dtypes, and errors for others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.factors.blas import working_dtype
from outcore.errors import LinAlgError, UsageError

__all__ = [
    "check_finite",
    "check_finite_columns",
    "check_matrix",
    "check_sides",
    "check_square",
    "choose_dtype",
    "is_same_dtype",
    "singular_error",
]


def is_same_dtype(given: np.dtype[Any], used: np.dtype[Any]) -> bool:
    """Return whether elements can be loaded unchanged, except for their byte order."""
    return given.newbyteorder("=") == used


def choose_dtype(name: str, *arrays: Any) -> np.dtype[Any]:
    """Return the dtype of the computation with these operands."""
    dtype = working_dtype(*(one.dtype for one in arrays))
    if dtype is None:
        dtypes = ", ".join(str(one.dtype) for one in arrays)
        raise UsageError(
            f"{name} does not support {dtypes}; convert the array (outcore.convert) to float32, "
            "float64, complex64 or complex128",
            code="bad-dtype",
        )
    return dtype


def check_finite(name: str, r: NDArray[Any]) -> None:
    """Raise if a small matrix, computed from the one on disk, contains NaN or infinity."""
    if not np.isfinite(r).all():
        raise LinAlgError(
            f"{name}: an operand contains NaN or infinity, or elements so large that their squares "
            "overflow; replace or scale these elements first",
            code="not-finite",
        )


def singular_error(name: str, what: str) -> LinAlgError:
    """Return the error for `what`, on the diagonal, that is zero."""
    return LinAlgError(
        f"{name}: {what} is exactly zero, the matrix is singular; for the nearest solution, use "
        "outcore.linalg.lstsq",
        code="singular-matrix",
    )


def check_matrix(name: str, array: Any) -> tuple[int, int]:
    """Return the shape of an operand; raise if it is not a matrix."""
    if array.ndim != 2:
        raise LinAlgError(
            f"{name}: {array.path!r} has {array.ndim} axes, but a matrix has 2; pass the matrices "
            "of a stack one at a time",
            code="bad-shape",
            path=array.path,
        )
    rows, columns = array.shape
    return int(rows), int(columns)


def check_finite_columns(
    name: str, what: str, block: NDArray[Any], first: tuple[int, int], *, turned: bool = False
) -> None:
    """
    Raise for NaN and infinity in some columns, without memory for a mask of all of them.

    `what` names the matrix, and `first` is the row and column of the first element of `block`. If
    the matrix is `turned`, these are columns of the transposed one.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(block.sum()):
            return
    for column in range(block.shape[1]):
        found = np.isfinite(block[:, column])
        if not found.all():
            row = int(np.argmin(found))
            place = first[0] + row, first[1] + column
            raise LinAlgError(
                f"{name}: element {(place[::-1] if turned else place)} of {what} is "
                f"{block[row, column]}; replace elements that are NaN or infinity first",
                code="not-finite",
            )


def check_sides(name: str, rows: int, sides: Any) -> None:
    """Raise unless right-hand sides fit a matrix with that many rows."""
    if sides.ndim not in (1, 2) or sides.shape[0] != rows:
        raise LinAlgError(
            f"{name}: right-hand sides of shape {tuple(sides.shape)} do not fit a matrix of {rows} "
            f"rows; pass shape ({rows},) or ({rows}, k)",
            code="bad-shape",
            path=sides.path,
        )


def check_square(name: str, array: Any) -> np.dtype[Any]:
    """Return the dtype of the computation for an operation on a square matrix."""
    rows, columns = check_matrix(name, array)
    if rows != columns:
        raise LinAlgError(
            f"{name}: {array.path!r} has {rows} rows and {columns} columns; pass a square matrix",
            code="not-square",
            path=array.path,
        )
    return choose_dtype(name, array)
