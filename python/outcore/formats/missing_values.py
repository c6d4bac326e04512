"""
Values that mean "missing": the value that a file declares, as opposed to the value of unwritten
elements.

Problem: two values have nearly the same name. Elements that were never written read as the fill value
that is stored with an array (HDF5's fill value, ``fill_value`` of Zarr), which is often only a default.
A value that means "missing" is declared: by the attribute ``_FillValue`` of NetCDF4, HDF5 and Zarr v3,
and by ``fill_value`` of Zarr v2 according to xarray. Copying one as the other masks every zero, or
turns missing values into numbers.
Approach: both values are passed together, as a `Fill`. A scalar instead of a `Fill` is a user's
``fill_value=``: formats that have one place for both (Zarr v2), or whose library writes both (NetCDF4),
then declare it.
Invariants: a copy declares a value exactly if the source does.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, NamedTuple

import numpy as np

from outcore.errors import UsageError
from outcore.formats import fill_values

__all__ = ["ATTRIBUTE", "Fill", "cast", "decode", "encode", "parse_attribute"]

#: The attribute that declares a value.
ATTRIBUTE = "_FillValue"


class Fill(NamedTuple):
    """
    Both values of an array, for ``fill_value=`` of a new one.

    `stored` is the value of elements that were never written (None: zero bytes), `missing` the value
    that means "missing" (None: no value does).
    """

    stored: Any = None
    missing: Any = None


def cast(fill: Fill, dtype: np.dtype[Any]) -> Fill:
    """
    Cast both values like the elements of the array.

    >>> cast(Fill(np.int16(0), np.int16(-1)), np.dtype("f4"))
    Fill(stored=np.float32(0.0), missing=np.float32(-1.0))
    """
    return Fill(*(fill_values.cast(value, dtype) for value in fill))


def parse_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """
    Return the value that an attribute ``_FillValue`` declares for elements of a dtype.

    None if no element can have it: libraries ignore such an attribute.

    >>> parse_attribute(np.array([-1.0]), np.dtype("i2")), parse_attribute(1.5, np.dtype("i2"))
    (np.int16(-1), None)
    """
    try:
        found = np.asarray(value).reshape(-1)
        one = found[0] if found.size else None
        if isinstance(one, str) and dtype.kind == "S":
            one = one.encode()
        return fill_values.check_fill_value(one, dtype, "")
    except (UsageError, ValueError, TypeError):
        return None


def encode(value: Any, dtype: np.dtype[Any]) -> Any:
    """
    Return the attribute ``_FillValue`` of Zarr v3 that xarray writes for a value.

    None if there is no form for the dtype.

    >>> encode(np.float32("nan"), np.dtype("f4")), encode(np.int16(-1), np.dtype("i2"))
    ('AAAAAAAA+H8=', -1)
    """
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)
    if dtype.kind == "f":
        return _encode_base64(struct.pack("<d", float(value)))
    if dtype.kind == "c":
        return [_encode_base64(struct.pack("<d", float(part))) for part in (value.real, value.imag)]
    return None  # xarray cannot open an array with an attribute of any other kind


def decode(value: Any, dtype: np.dtype[Any]) -> Any:
    """
    Return the value of an attribute ``_FillValue`` of Zarr v3: the inverse of `encode`.

    None if it declares no value that an element can have.
    """
    try:
        if dtype.kind == "f" and isinstance(value, str):
            value = _decode_double(value)
        elif dtype.kind == "c" and isinstance(value, list):
            value = complex(*map(_decode_double, value))
        elif dtype.kind == "S" and isinstance(value, str):
            value = base64.b64decode(value, validate=True)
    except (ValueError, TypeError, struct.error):
        return None
    return parse_attribute(value, dtype)


def _encode_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decode_double(text: str) -> float:
    return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
