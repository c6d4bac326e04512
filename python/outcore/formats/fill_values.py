"""
Fill values: one element that represents all elements that were never written.

Problem: NumPy casts a scalar into a dtype whether it fits or not: 300 becomes 44 in a byte, 1.5 becomes
1, NaN some integer, and a text is cut. Each element that was never written would then read as a value
that the user never gave.
Approach: the value is cast, and the result compared with the value. The fill value of another array is
first cast as its elements are, by the code that copies them (`cast`).
Invariants: the stored value equals the given one; a floating point number may be rounded, but not to
infinity.
"""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from outcore.errors import UsageError

__all__ = ["cast", "check_fill_value"]

_REFUSALS = (TypeError, ValueError, OverflowError)


def check_fill_value(value: Any, dtype: np.dtype[Any], path: str) -> Any:
    """
    Return a fill value as a scalar of `dtype`; None stays None.

    The value is a single value of Python or NumPy, or an array without axes; `path` is for messages.
    `UsageError` ``bad-fill-value``: it is not a single value, or `dtype` cannot hold it.

    >>> import numpy as np
    >>> check_fill_value(np.int64(100), np.dtype("i1"), "x.zarr")
    np.int8(100)
    >>> check_fill_value(np.int64(300), np.dtype("i1"), "x.zarr")
    Traceback (most recent call last):
    ...
    outcore.errors.UsageError: 'x.zarr': fill_value np.int64(300) does not fit dtype int8: ...
    """
    if value is None:
        return None
    try:
        with np.errstate(all="ignore"):
            given = np.asarray(value)
            real = given.dtype.kind == "c" and dtype.kind != "c" and not given.imag.any()
            given = given.real if real else given
            if given.ndim:
                reason = "it is not a single value"
            elif given.dtype.kind == "c" and dtype.kind in "biuf":
                reason = "its imaginary part would be lost"
            else:
                filled = given.astype(dtype)
                # The bits of a NaN stay.
                if given.dtype == dtype or np.all(_is_same(filled, given)):
                    return filled[()]
                reason = f"it would be stored as {filled}"
    except _REFUSALS as error:
        reason = str(error)
    raise UsageError(
        f"{path!r}: fill_value {reprlib.repr(value)} does not fit dtype {dtype}: {reason}; give a "
        "fill_value that this dtype can hold, or another dtype",
        code="bad-fill-value",
        path=path,
    )


def cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """
    Cast a fill value like the elements of its array.

    A value that cannot be cast is returned unchanged, so that `check_fill_value` rejects it.

    >>> import numpy as np
    >>> cast(np.float64(1.5), np.dtype("i4"))
    np.int32(1)
    """
    if value is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(dtype, casting="unsafe")[()]
    except _REFUSALS:
        return value


def _is_same(filled: Any, given: Any) -> Any:
    """Return whether a value, or each field of it, is unchanged by a cast."""
    kind, before = filled.dtype.kind, given.dtype.kind
    if filled.dtype.names is not None:
        names = given.dtype.names or (...,) * len(filled.dtype.names)
        pairs = zip(filled.dtype.names, names, strict=True)
        return all(
            np.all(_is_same(np.asarray(filled[to]), np.asarray(given[of]))) for to, of in pairs
        )
    if kind in "SU":
        return given.astype(kind) == filled
    if kind == "V":
        return given.dtype.itemsize <= filled.dtype.itemsize
    if kind in "mM":
        return _is_same_time(filled, given)
    if before in "mMV":
        return False
    if kind in "fc":
        return _is_same_float(filled, given)
    # NumPy refuses the text of an integer that does not fit; any other text is true.
    return kind in "iu" if before in "SU" else _is_equal(filled, given)


def _is_same_float(filled: Any, given: Any) -> Any:
    if filled.dtype.kind == "c":
        given = given.astype(np.complex128) if given.dtype.kind in "SUO" else given
        return _is_same_float(filled.real, given.real) & _is_same_float(filled.imag, given.imag)
    given = given.astype(np.float64) if given.dtype.kind in "SU" else given
    return ~np.isinf(filled) | _is_equal(filled, given)


def _is_same_time(filled: Any, given: Any) -> Any:
    kind = filled.dtype.kind
    ticks = filled.astype(filled.dtype.newbyteorder("=")).view(np.int64)
    if given.dtype.kind in "biuf":
        return _is_equal(ticks, given)
    if given.dtype.kind in "SUO":
        given = given.astype(kind)  # in the unit in which it is written
    if given.dtype.kind != kind:
        return False
    if np.datetime_data(given.dtype)[0] == "generic":
        return _is_equal(ticks, given.astype(given.dtype.newbyteorder("=")).view(np.int64))
    missing = np.isnat(filled) & np.isnat(given)
    return missing | (filled.astype(given.dtype) == given)


def _is_equal(filled: Any, given: Any) -> Any:
    """Compare like Python: integers and floating point numbers without rounding."""
    return np.asarray(filled).astype(object) == np.asarray(given).astype(object)
