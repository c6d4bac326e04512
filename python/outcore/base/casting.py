"""Conversion of given values to elements, as in NumPy's assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError

__all__ = ["broadcast_values", "convert_values"]


def convert_values(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """
    Convert values to an array that can be cast to a dtype.

    An array keeps its own dtype; the code that copies it casts it. Python numbers, and lists of
    them, get this dtype here: otherwise they would become 64-bit numbers, which wrap when cast. A
    Python integer that does not fit raises `OverflowError`; another value that cannot be cast
    raises `TypeError` or `ValueError`.

    Examples
    --------
    >>> import numpy as np
    >>> convert_values([1, 2.5], np.dtype("i1"))
    array([1, 2], dtype=int8)
    >>> convert_values(300, np.dtype("i1"))
    Traceback (most recent call last):
        ...
    OverflowError: Python integer 300 out of bounds for int8
    """
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    if isinstance(values, np.generic):
        # NumPy's scalars follow their own casting rules: `asarray` would cast a date to a number.
        one = np.empty((), dtype)
        one[...] = values
        return one
    return np.asarray(values, dtype)


def broadcast_values(
    values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], path: str
) -> NDArray[Any]:
    """
    Broadcast values to the shape of a section of `path`; see `convert_values`.

    Raise `UsageError` (``broadcast``) if the shapes do not match.

    Examples
    --------
    >>> import numpy as np
    >>> broadcast_values([1, 2], np.dtype("i1"), (2, 2), "a.npy").tolist()
    [[1, 2], [1, 2]]
    """
    given = convert_values(values, dtype)
    spare = given.ndim - len(shape)
    if spare > 0 and all(n == 1 for n in given.shape[:spare]):
        given = given.reshape(given.shape[spare:])
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise UsageError(
            f"a value of shape {given.shape} cannot be broadcast to the section of shape {shape} of "
            f"{path!r}; make trailing axes equal or 1",
            code="broadcast",
            path=path,
        ) from None
