"""
Attributes and names of classic NetCDF files, as Python and NumPy values.

Problem. The types of attributes are few: text is characters without an encoding, a single number is a
list of one, and CDF-1 and CDF-2 have neither 64-bit nor unsigned integers, which Python's own integers
become.
Idea. Values are read as the NetCDF4 format of outcore returns them. Integers are stored in the smallest
type of the version that has the same value; what no type holds is refused.
Invariants. A value that was stored reads as an equal one.
"""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from outcore.errors import OutcoreError, UsageError
from outcore.formats.hdf5.attrs import to_storable
from outcore.formats.missing_values import ATTRIBUTE as MISSING
from outcore.formats.missing_values import parse_attribute
from outcore.formats.netcdf.classic.header import CHAR, FILLS, TYPES, Attribute, Variable

__all__ = [
    "change",
    "check_name",
    "find_declared",
    "find_fill",
    "find_kind",
    "find_missing",
    "make_fill_attribute",
    "read",
    "store",
]

_KINDS = {dtype.str[1:]: number for number, dtype in TYPES.items()}
_LONGEST_NAME = 256  # NC_MAX_NAME


def find_kind(dtype: np.dtype[Any], version: int) -> int | None:
    """Return the number of the type of a dtype, or None if this version has none."""
    number = _KINDS.get(dtype.str[1:])
    return number if number is not None and (version == 5 or number < 7) else None


def read(attrs: Iterable[Attribute]) -> dict[str, Any]:
    """Return attributes of users as plain values."""
    return {one.name: _to_plain(one) for one in attrs if one.name != MISSING}


def _to_plain(one: Attribute) -> Any:
    if one.kind == CHAR:
        raw = one.raw.rstrip(b"\0")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw
    stored = TYPES[one.kind]
    values = np.frombuffer(one.raw, stored).astype(stored.newbyteorder("="))
    return values[0] if len(values) == 1 else values


def find_declared(variable: Variable) -> Any:
    """Return the value of the attribute ``_FillValue`` as the file has it, or None."""
    one = next((one for one in variable.attrs if one.name == MISSING), None)
    if one is None:
        return None
    if one.kind == CHAR:
        return np.bytes_(one.raw[:1])
    values = np.frombuffer(one.raw, TYPES[one.kind])
    return values[0] if len(values) else None


def find_missing(variable: Variable) -> Any:
    """Return the value that means "missing" for elements of a variable, or None."""
    value = find_declared(variable)
    return None if value is None else parse_attribute(value, variable.dtype)


def find_fill(variable: Variable) -> Any:
    """Return what new elements are filled with: the declared value, or the default of the type."""
    found = find_missing(variable)
    return variable.dtype.type(FILLS[variable.kind]) if found is None else found


def store(name: str, value: Any, version: int, path: str) -> Attribute:
    """Return an attribute; raise `UsageError` for a value that the version has no type for."""
    if name == MISSING:
        raise _make_error(
            path, name, value, "it belongs to the format; use fill_value=, or another name"
        )
    name = check_name(name, path, "an attribute", "bad-attribute")
    value = to_storable(name, value, path, netcdf=True)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value):
        if len(value) > 1:
            why = "classic NetCDF has no lists of text; join them, or use format='netcdf4'"
            raise _make_error(path, name, value, why)
        value = value[0]
    if isinstance(value, str):
        return Attribute(name, CHAR, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return Attribute(name, CHAR, bytes(value))
    return _encode_numbers(name, np.atleast_1d(np.asarray(value)), version, path)


def _encode_numbers(name: str, values: np.ndarray[Any, Any], version: int, path: str) -> Attribute:
    if values.dtype.kind in "SU":
        why = "classic NetCDF has no lists of text; join them, or use format='netcdf4'"
        raise _make_error(path, name, values.tolist(), why)
    kind = find_kind(values.dtype, version)
    if kind is None and values.dtype.kind in "iu":
        wanted = "i2" if values.dtype.itemsize == 1 else "i4"
        smaller = values.astype(wanted)
        if np.array_equal(smaller.astype(object), values.astype(object)):
            values, kind = smaller, _KINDS[wanted]
    if kind is None:
        why = (
            "CDF-1 and CDF-2 have integers of at most 32 bits; use a float, or "
            "format='netcdf3_64bit_data'"
        )
        raise _make_error(path, name, values, why)
    return Attribute(name, kind, values.astype(TYPES[kind]).tobytes())


def make_fill_attribute(value: Any, kind: int) -> Attribute:
    """Return the attribute that declares a value as "missing"."""
    return Attribute(MISSING, kind, np.asarray(value, TYPES[kind]).tobytes())


def change(
    old: tuple[Attribute, ...],
    attrs: Mapping[str, Any],
    drop: Collection[str] | None,
    version: int,
    path: str,
) -> tuple[Attribute, ...]:
    """Return attributes with some set and others removed (None: all others); ``_FillValue`` stays."""
    new = {one.name: one for one in (store(n, v, version, path) for n, v in attrs.items())}
    kept = [
        new.pop(one.name, one)
        for one in old
        if one.name in new or one.name == MISSING or (drop is not None and one.name not in drop)
    ]
    return (*kept, *new.values())


def check_name(name: Any, path: str, what: str, code: str) -> str:
    """Return a name in the form in which NetCDF stores it; raise `UsageError` for an invalid one."""
    text = unicodedata.normalize("NFC", name) if isinstance(name, str) else ""
    first, raw = text[:1], text.encode("utf-8", "surrogateescape")
    valid = (first.isalnum() or first == "_" or first > "\x7f") and len(raw) <= _LONGEST_NAME
    if not valid or text[-1:] == " " or any(c < " " or c in "/\x7f" for c in text):
        raise UsageError(
            f"{path!r}: {name!r} is not a valid name of {what} in classic NetCDF; begin it with a "
            f"letter, a digit or '_', use no '/' and at most {_LONGEST_NAME} bytes",
            code=code,
            path=path,
        )
    return text


def _make_error(path: str, name: str, value: Any, why: str) -> OutcoreError:
    return UsageError(
        f"{path!r}: attribute {name!r} = {reprlib.repr(value)} cannot be stored: {why}",
        code="bad-attribute",
        path=path,
    )
