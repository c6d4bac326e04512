"""
Data types and fill values between Zarr's JSON and NumPy.

Problem: Zarr v2 names types as NumPy does (``"<f8"``, lists for structures). Zarr v3 has its own names,
a byte order that is part of a codec, and extension types that zarr-python writes. Fill values have six
forms: numbers, ``"NaN"``, bit patterns in hexadecimal, pairs, base64, lists of bytes.
Approach: one function for each direction and version for types; one pair of functions for fill values.
Invariants: strings from a file never reach ``np.dtype`` unchecked. An item is at most 1 MiB, so no
header makes outcore allocate more. A fill value keeps its bits (payloads of NaN included).
"""

from __future__ import annotations

import base64
import re
import reprlib
from typing import Any

import numpy as np

from outcore.errors import UnsupportedError
from outcore.formats.documents import Document, Judge

DType = np.dtype[Any]

MAX_ITEM = 1 << 20
_DEPTH = 16
_FIELDS = 4096

_NAMES = {
    "bool": "b1",
    **{f"{sign}int{8 * n}": f"{sign or 'i'}{n}" for sign in ("", "u") for n in (1, 2, 4, 8)},
    **{f"float{8 * n}": f"f{n}" for n in (2, 4, 8)},
    **{f"complex{8 * n}": f"c{n}" for n in (8, 16)},
}
_UNITS = (
    "generic",
    "Y",
    "M",
    "W",
    "D",
    "h",
    "m",
    "s",
    "ms",
    "us",
    "μs",
    "ns",
    "ps",
    "fs",
    "as",
)
_STRUCTURES = ("structured", "struct")
_V2 = re.compile(r"([<>|=]?)([a-zA-Z?])([0-9]{0,9})(?:\[([0-9]{0,10})([a-zμ]{1,7}|[YMWD])\])?")
_V2_SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8),
    "c": (8, 16),
}
_SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def from_v3(value: Any, judge: Judge, depth: int = 0) -> DType:
    """Return the little-endian dtype of a v3 ``data_type``; the ``bytes`` codec may change that."""
    name, options = judge.parse_name(value, "data_type")
    if name in _NAMES:
        return np.dtype("<" + _NAMES[name])
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        return _parse_time(name[6], options.get("scale_factor", 1), options.get("unit"), judge)
    if name == "fixed_length_utf32":
        size = _check_item_size(options.get("length_bytes"), judge)
        if size % 4:
            raise judge.bad(f"length_bytes {size} of {name} is not a multiple of 4")
        return np.dtype(f"<U{size // 4}")
    if name == "null_terminated_bytes":
        return np.dtype(f"S{_check_item_size(options.get('length_bytes'), judge)}")
    if name == "raw_bytes":
        return np.dtype(f"V{_check_item_size(options.get('length_bytes'), judge)}")
    if re.fullmatch(r"r[0-9]{1,9}", name):
        bits = int(name[1:])
        if bits % 8:
            raise judge.bad(f"data_type {name} is not a whole number of bytes")
        return np.dtype(f"V{_check_item_size(bits // 8, judge)}")
    if name in _STRUCTURES:
        return _parse_structure_v3(options, judge, depth)
    raise judge.make_unsupported_error(f"data_type {reprlib.repr(name)}")


def _parse_structure_v3(options: Document, judge: Judge, depth: int) -> DType:
    """Return a structured dtype; fields are pairs (zarr-python 3.0, 3.1) or objects (``struct``)."""
    fields = []
    for entry in judge.sequence(options.get("fields"), "fields", _FIELDS):
        if isinstance(entry, dict):
            entry = [entry.get("name"), entry.get("data_type")]
        if len(judge.sequence(entry, "field", 2)) != 2:
            raise judge.bad(f"field {reprlib.repr(entry)} is not a name and a type")
        fields.append((judge.text(entry[0], "field name"), entry[1]))
    if depth >= _DEPTH:
        raise judge.bad(f"structures are nested more than {_DEPTH} deep")
    return _make_structure([(n, from_v3(t, judge, depth + 1), ()) for n, t in fields], judge)


def _make_structure(fields: list[tuple[str, DType, tuple[int, ...]]], judge: Judge) -> DType:
    total = 0
    for name, kind, shape in fields:
        total += int(np.prod(shape, dtype=object)) * kind.itemsize
        if not name:
            raise judge.bad("a field has no name")
    _check_item_size(total, judge)
    if len({name for name, _, _ in fields}) != len(fields):
        raise judge.bad("two fields have the same name")
    try:
        return np.dtype(fields)
    except (TypeError, ValueError) as error:
        raise judge.bad(f"the fields make no NumPy dtype ({error})") from None


def _check_item_size(value: Any, judge: Judge) -> int:
    size = judge.integer(value, "item size")
    if size > MAX_ITEM:
        raise judge.make_unsupported_error(f"an item of {size} bytes, more than {MAX_ITEM}")
    if size == 0:
        raise judge.make_unsupported_error("items of 0 bytes")
    return size


def _parse_time(kind: str, scale: Any, unit: Any, judge: Judge) -> DType:
    scale = judge.integer(scale, "scale_factor", 1, 2**31 - 1)
    if unit not in _UNITS:
        raise judge.bad(f"time unit {reprlib.repr(unit)} is not one of {', '.join(_UNITS)}")
    letter = "M" if kind == "d" else "m"
    if unit == "generic":
        return np.dtype(f"<{letter}8")
    return np.dtype(f"<{letter}8[{scale}{'us' if unit == 'μs' else unit}]")


def with_endian(dtype: DType, endian: str | None) -> DType:
    """Return `dtype` in the byte order that the ``bytes`` codec names."""
    return dtype.newbyteorder(">" if endian == "big" else "<")


def from_v2(value: Any, judge: Judge, depth: int = 0) -> DType:
    """Return the dtype of a v2 ``dtype``."""
    if isinstance(value, list):
        return _parse_structure_v2(value, judge, depth)
    text = judge.text(value, "dtype")
    match = _V2.fullmatch(text)
    if match is None:
        raise judge.bad(f"dtype {reprlib.repr(text)} is not a NumPy type string")
    order, kind, digits, scale, unit = match.groups()
    order = "<" if order in ("", "=") else order
    size = int(digits or 0)
    if kind == "O":
        raise judge.make_unsupported_error("dtype '|O' (strings or objects of variable length)")
    if kind in "mM":
        if size != 8:
            raise judge.bad(f"dtype {text!r} is not a NumPy type string")
        plain = _parse_time("d" if kind == "M" else "t", int(scale or 1), unit or "generic", judge)
        return plain.newbyteorder(">") if order == ">" else plain
    if unit is not None:
        raise judge.bad(f"dtype {text!r} has a time unit but is not a time")
    if kind in "SUV":
        _check_item_size(size * (4 if kind == "U" else 1), judge)
    elif kind not in _V2_SIZES:
        raise judge.make_unsupported_error(f"dtype {text!r}")
    elif size not in _V2_SIZES[kind]:
        raise judge.make_unsupported_error(f"dtype {text!r}, which not every machine has")
    return np.dtype(f"{order}{kind}{size}")


def _parse_structure_v2(value: list[Any], judge: Judge, depth: int) -> DType:
    fields = []
    if depth >= _DEPTH:
        raise judge.bad(f"structures are nested more than {_DEPTH} deep")
    for entry in judge.sequence(value, "dtype", _FIELDS):
        if len(judge.sequence(entry, "field", 3)) < 2:
            raise judge.bad(f"field {reprlib.repr(entry)} is not a name and a type")
        name = judge.text(entry[0], "field name")
        shape = entry[2] if len(entry) == 3 else []
        if isinstance(shape, int):
            shape = [shape]
        fields.append(
            (
                name,
                from_v2(entry[1], judge, depth + 1),
                judge.lengths(shape, "field", 1),
            )
        )
    return _make_structure(fields, judge)


def to_v3(dtype: DType, path: str) -> tuple[Any, DType]:
    """
    Return the v3 ``data_type`` of a dtype, and the dtype as it will be stored.

    The stored dtype has one byte order for all fields (big only if all of them are big) and no gaps
    between them, because v3 cannot express others.
    """
    if dtype.names is not None:
        return _structure_to_v3(dtype, path)
    if dtype.subdtype is not None:
        raise _no_v3_error(dtype, path, "fields that are arrays")
    size, kind = dtype.itemsize, dtype.kind
    for name, short in _NAMES.items():
        if f"{kind}{size}" == short:
            return name, dtype
    if kind in "mM":
        unit, scale = np.datetime_data(dtype)
        name = "numpy.datetime64" if kind == "M" else "numpy.timedelta64"
        return _make_v3(name, unit=unit, scale_factor=scale), dtype
    if kind == "U":
        return _make_v3("fixed_length_utf32", length_bytes=size), dtype
    if kind in "SV":
        return _make_v3(
            "null_terminated_bytes" if kind == "S" else "raw_bytes", length_bytes=size
        ), dtype
    raise _no_v3_error(dtype, path, "this type")


def _structure_to_v3(dtype: DType, path: str) -> tuple[Any, DType]:
    entries, fields = [], []
    for name in dtype.names or ():
        kind = dtype[name]
        value, stored = to_v3(kind, path)
        entries.append([name, value])
        fields.append((name, stored))
    packed = np.dtype(fields)
    big = packed == packed.newbyteorder(">") and packed != packed.newbyteorder("<")
    return _make_v3("structured", fields=entries), packed.newbyteorder(">" if big else "<")


def _make_v3(name: str, **options: Any) -> Document:
    return {"name": name, "configuration": options}


def _no_v3_error(dtype: DType, path: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path!r}: Zarr v3 has no data type for {dtype} ({what}); use a dtype of numbers, bool, "
        "S, U, V, datetime64, timedelta64, or a structure of these",
        code="unsupported-dtype",
        path=path,
    )


def to_v2(dtype: DType) -> tuple[Any, DType]:
    """Return the v2 ``dtype`` of a dtype, and the dtype as stored: without gaps between fields."""
    if dtype.names is None:
        return dtype.str, dtype
    entries: list[list[Any]] = []
    fields: list[tuple[str, DType, tuple[int, ...]]] = []
    for name in dtype.names:
        base, shape = dtype[name].subdtype or (dtype[name], ())
        value, stored = to_v2(base)
        entries.append([name, value, list(shape)] if shape else [name, value])
        fields.append((name, stored, shape))
    return entries, np.dtype(fields)


def number_of_text(value: Any, dtype: DType) -> Any:
    """
    Return the number in a text of a version 2 document: N5's own writes ``"0"``.

    >>> number_of_text("0", np.dtype("u1")), number_of_text("-1.5", np.dtype("f4"))
    (0, -1.5)
    """
    if isinstance(value, str) and dtype.kind in "biuf" and re.fullmatch(_NUMBER, value):
        return int(value) if re.fullmatch(r"[+-]?[0-9]+", value) else float(value)
    return value


_NUMBER = r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?"


def read_fill(value: Any, dtype: DType, judge: Judge) -> Any:
    """Return the scalar of a fill value in a document of either version; None stays None."""
    if value is None:
        return None
    try:
        return _parse_fill(value, dtype, judge).astype(dtype, copy=False)[()]
    except (TypeError, ValueError, OverflowError):
        raise judge.bad(f"fill_value {reprlib.repr(value)} does not fit dtype {dtype}") from None


def _parse_fill(value: Any, dtype: DType, judge: Judge) -> np.ndarray[Any, Any]:
    """Return a 0-d array with the fill value; ValueError, TypeError, OverflowError otherwise."""
    kind = dtype.kind
    if kind == "b":
        if value not in (0, 1):
            raise ValueError
        return np.array(bool(value))
    if kind in "iu":
        if isinstance(value, bool) or int(value) != value:
            raise ValueError
        return np.array(int(value), dtype)
    if kind == "f":
        return _parse_float(value, dtype)
    if kind == "c":
        return _parse_complex(value, dtype)
    if kind in "mM":
        ticks = np.iinfo("i8").min if value == "NaT" else judge.integer(value, "time", -(2**63))
        return np.array(ticks, "i8").view(dtype.newbyteorder("="))
    if kind == "U":
        text = "" if value == 0 else judge.text(value, "fill_value")
        if len(text) > dtype.itemsize // 4:
            raise ValueError
        return np.array(text, dtype)
    return _parse_bytes(value, dtype, judge)


def _parse_float(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    if isinstance(value, str):
        if value in _SPECIAL:
            return np.array(_SPECIAL[value], dtype)
        if not re.fullmatch(rf"0x[0-9a-fA-F]{{{2 * dtype.itemsize}}}", value):
            raise ValueError
        return np.frombuffer(bytes.fromhex(value[2:]), f">f{dtype.itemsize}").reshape(())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    with np.errstate(over="ignore"):
        return np.array(float(value)).astype(dtype)


def _parse_complex(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    pair = value if isinstance(value, list) else [value, 0]
    if len(pair) != 2:
        raise ValueError
    part = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
    halves = b"".join(_parse_float(x, part).astype(part).tobytes() for x in pair)
    return np.frombuffer(halves, dtype).reshape(())


def _parse_bytes(value: Any, dtype: DType, judge: Judge) -> np.ndarray[Any, Any]:
    """Return bytes from base64, a list of numbers (v3 raw bits), a value for each field, or 0."""
    if isinstance(value, dict) and dtype.names is not None:
        if set(value) != set(dtype.names):
            raise ValueError
        filled = np.zeros((), dtype)
        for name, item in value.items():
            filled[name] = read_fill(item, dtype[name], judge)
        return filled
    if value == 0 and not isinstance(value, bool):
        return np.zeros((), dtype)
    if isinstance(value, list):
        raw = bytes(value)
    else:
        raw = base64.b64decode(judge.text(value, "fill_value"), validate=True)
    if dtype.kind == "S" or not raw:
        raw = raw.ljust(dtype.itemsize, b"\0")
    if len(raw) != dtype.itemsize:
        raise ValueError
    return np.frombuffer(raw, dtype).reshape(())


def write_fill(value: Any, dtype: DType, version: int) -> Any:
    """
    Return the JSON form of a fill value.

    None stands for zero bytes (version 3 requires a value). Version 2 has one NaN only.
    """
    if value is None and dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        return int(np.iinfo("i8").min)  # NaT, the only time of NumPy without a unit
    filled = np.zeros((), dtype) if value is None else np.asarray(value).astype(dtype)
    kind = dtype.kind
    if kind == "b":
        return bool(filled)
    if kind in "iu":
        return int(filled)
    if kind == "f":
        return _format_float(filled, version)
    if kind == "c":
        part = filled.reshape(1).view(f"{dtype.byteorder}f{dtype.itemsize // 2}")
        return [_format_float(part[k : k + 1].reshape(()), version) for k in (0, 1)]
    if kind in "mM":
        return int(filled.astype(dtype.newbyteorder("=")).view("i8"))
    if kind == "U":
        return str(filled)
    raw = bytes(filled[()]) if kind == "S" else filled.tobytes()
    return base64.b64encode(raw).decode("ascii")


def _format_float(filled: np.ndarray[Any, Any], version: int) -> float | str:
    if np.isnan(filled):
        plain = np.array(np.nan, filled.dtype)
        if filled.tobytes() == plain.tobytes() or version == 2:
            return "NaN"
        return "0x" + filled.astype(filled.dtype.newbyteorder(">")).tobytes().hex()
    if np.isinf(filled):
        return "Infinity" if filled > 0 else "-Infinity"
    return float(filled)
