"""Values that a caller gives for elements, as NumPy's assignment takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_values"]


def as_values(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """
    Convert values to an array that can be cast to a dtype.

    An array keeps its own dtype: whoever copies it casts it. Python's numbers, and lists of them, get
    this dtype here. Without it they would become numbers of 64 bits, and casting those wraps.

    Raises
    ------
    OverflowError
        A Python integer does not fit `dtype`.
    TypeError, ValueError
        Something cannot be cast to `dtype`.

    Examples
    --------
    >>> import numpy as np
    >>> as_values([1, 2.5], np.dtype("i1"))
    array([1, 2], dtype=int8)
    >>> as_values(300, np.dtype("i1"))
    Traceback (most recent call last):
        ...
    OverflowError: Python integer 300 out of bounds for int8
    """
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    if isinstance(values, np.generic):
        # NumPy's scalars keep their own rules: asarray would cast a date to a number.
        one = np.empty((), dtype)
        one[...] = values
        return one
    return np.asarray(values, dtype)
