"""
Attributes and axis names of HDF5 datasets, as plain Python and NumPy values.

Problem: HDF5 and NetCDF4 mix their own attributes (dimension scales, identifiers, references) with the
user's. Text has three encodings, and single values are stored as arrays.
Approach: attributes with reserved names are ignored. All others become `str`, NumPy scalars, arrays,
or lists of `str`, and are written from the same types.
Invariants: `write_attrs` after `read_attrs` changes nothing.

References: HDF5 dimension scales specification; NetCDF4's appendix "File Format".
"""

from __future__ import annotations

import contextlib
import posixpath
import reprlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from outcore.errors import UsageError
from outcore.formats.hdf5 import access, origin
from outcore.formats.hdf5.damage import make_damage_error
from outcore.formats.hdf5.heaps import AttributeChecker, check_attributes, is_readable
from outcore.formats.hdf5.library import h5py
from outcore.formats.missing_values import ATTRIBUTE as MISSING
from outcore.formats.missing_values import parse_attribute

#: Mark of the NetCDF library for a dimension without a variable.
BARE_DIMENSION = "This is a netCDF dimension but not a netCDF variable."

#: Types of numbers that NetCDF has.
NETCDF_NUMBERS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"}

_OWN = {
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
    "_nc3_strict",
    MISSING,
}
# These two belong to the dimension scale only if the dataset is one.
_SCALE = {"CLASS", "NAME"}
# Maximal bytes of a CLASS attribute: the expected value has 16.
_LONGEST_CLASS = 64


class LazyAttributes(Mapping[str, Any]):
    """
    The user attributes of a dataset, which are read on first use.

    Reading a section needs none of them. A climate file has dozens, and in a damaged file they are the
    most likely cause of a crash in the HDF5 library.
    """

    def __init__(self, path: str, name: str, *, netcdf: bool) -> None:
        self._location = path, name
        self._netcdf = netcdf
        self._values: dict[str, Any] | None = None
        self._declared: Any = None

    def read_missing_value(self, dtype: np.dtype[Any]) -> Any:
        """Return the value that ``_FillValue`` declares for elements of a dtype, or None."""
        self._read()
        return None if self._declared is None else parse_attribute(self._declared, dtype)

    def _read(self) -> dict[str, Any]:
        values = self._values
        if values is None:
            path, name = self._location
            # The check opens the file separately: while it is open here, no other process changes it.
            with access.open_session(path, "r") as file:
                check_attributes(path, name)
                item = file[name]
                values = read_attrs(item, netcdf=self._netcdf)
                if MISSING in item.attrs and is_readable(path, item, MISSING):
                    self._declared = item.attrs[MISSING]
            self._values = values
        return values

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


def read_attrs(dset: Any, *, netcdf: bool) -> dict[str, Any]:
    """Return the user attributes that have a plain value (not references, not empty)."""
    result: dict[str, Any] = {}
    own = _list_reserved(dset)
    for name in dset.attrs:
        if name in own or not is_readable(dset.file.filename, dset, name):
            continue
        try:
            value = dset.attrs[name]
        except (OSError, TypeError, ValueError):  # h5py has no Python value for this type
            continue
        plain = _to_plain(value, squeeze=netcdf)
        if plain is not None:
            result[name] = plain
    return result


def write_attrs(
    dset: Any,
    attrs: Mapping[str, Any],
    path: str,
    *,
    netcdf: bool,
    drop: Collection[str] | None = None,
) -> None:
    """Set user attributes of a dataset and remove those in `drop`; None: all others."""
    own = _list_reserved(dset)
    for name in attrs:
        if name in own or not isinstance(name, str) or not name:
            raise UsageError(
                f"{path!r}: attribute name {name!r} is reserved by the format; use dims= or "
                "fill_value=, or choose another name",
                code="bad-attribute",
                path=path,
            )
        if "\0" in name:  # the library ends the name here, and may find another attribute
            raise UsageError(
                f"{path!r}: {name!r} is not an attribute name: names in HDF5 cannot contain a zero "
                "byte; choose another name",
                code="bad-attribute",
                path=path,
            )
    values = {name: to_storable(name, value, path, netcdf) for name, value in attrs.items()}
    for name, value in values.items():
        try:
            dset.attrs[name] = value
        except (TypeError, ValueError) as error:
            raise _make_error(path, name, value, str(error)) from error
        except (OSError, RuntimeError) as error:
            if "too large" not in str(error):
                raise
            why = "an attribute in HDF5 has at most 64 KiB; store a large array as a dataset"
            raise _make_error(path, name, value, why) from error
    for name in [n for n in dset.attrs if n not in own and n not in values]:
        if drop is None or name in drop:
            del dset.attrs[name]


def _make_error(path: str, name: str, value: Any, why: str) -> UsageError:
    return UsageError(
        f"{path!r}: attribute {name!r} = {reprlib.repr(value)} cannot be stored: {why}",
        code="bad-attribute",
        path=path,
    )


class Scales:
    """
    Dimension scales of the datasets of one file.

    The library searches the whole file for the name of a scale, so each name is requested once.
    """

    def __init__(self, path: str) -> None:
        self._names: dict[int, str] = {}
        self._checker = AttributeChecker(path)
        self.close = self._checker.close

    def check(self, name: str) -> None:
        """Raise `FormatError` if a dataset's references to scales cannot be read."""
        self._checker.check(name, ["DIMENSION_LIST"])

    def find_name(self, scale: Any) -> str:
        """Return the path of a scale; an empty string if it has none."""
        at = origin.get_address(scale)
        if at not in self._names:
            self._names[at] = str(scale.name or "")
        return self._names[at]


def describe_axes(dset: Any, scales: Scales | None = None) -> tuple[str | None, ...] | None:
    """Return the names of the axes, from their dimension scales or else their labels."""
    if scales is None:
        with contextlib.closing(Scales(dset.file.filename)) as alone:
            return describe_axes(dset, alone)
    names: list[str | None] = []
    listed = _has_attribute(dset, b"DIMENSION_LIST")
    if listed:
        if dset.attrs.get_id("DIMENSION_LIST").shape != (dset.ndim,):
            raise make_damage_error(
                access.get_path(dset),
                f"DIMENSION_LIST of {dset.name!r} does not have one entry for each of {dset.ndim} axes",
            )
        scales.check(dset.name)
    if listed or _has_attribute(dset, b"DIMENSION_LABELS"):
        for dim in dset.dims:
            scale = scales.find_name(dim[0]) if len(dim) else None
            names.append(posixpath.basename(scale) if scale else dim.label or None)
    elif is_scale(dset) and dset.ndim == 1:
        names.append(posixpath.basename(dset.name))
    elif _has_attribute(dset, b"_Netcdf4Coordinates") and is_scale(dset):
        names += _find_axes_by_number(dset)
    return tuple(names) if any(names) else None


def _find_axes_by_number(dset: Any) -> list[str | None]:
    """
    Return names of the axes of a multidimensional NetCDF4 variable with the name of a dimension.

    The variable is the scale of that dimension, and a scale cannot have scales. It lists the numbers
    of its dimensions instead, which are defined in its group and in the groups above.
    """
    known: dict[int, str] = {}
    group = dset.parent
    while True:
        for name in group:
            item = group.get(name)
            if item is not None and is_scale(item) and _has_attribute(item, b"_Netcdf4Dimid"):
                number = int(np.asarray(item.attrs["_Netcdf4Dimid"]).flat[0])
                known.setdefault(number, str(name))
        if group.name == "/":
            break
        group = group.parent
    found = np.asarray(dset.attrs["_Netcdf4Coordinates"]).reshape(-1)
    return [known.get(int(number)) for number in found] if len(found) == dset.ndim else []


def _has_attribute(item: Any, name: bytes) -> bool:
    """Return whether an object has an attribute; faster than creating `item.attrs`."""
    return bool(h5py.h5a.exists(item.id, name))


def is_scale(item: Any) -> bool:
    """
    Return whether an object is a dimension scale.

    The result is that of the library's `H5DSis_scale`, which frees memory twice if a type is damaged.
    """
    if not _has_attribute(item, b"CLASS") or not hasattr(item, "dims"):
        return False
    found = item.attrs.get_id("CLASS")
    is_word = found.dtype.kind == "S" and found.dtype.itemsize <= _LONGEST_CLASS
    if not is_word or found.shape not in ((), (1,)):
        return False
    word = np.empty(found.shape, found.dtype)
    found.read(word)
    return bool(word.reshape(()) == b"DIMENSION_SCALE")


def find_scale(file: Any, group: str, dim: str) -> Any:
    """Return the scale with a name in a group or the nearest group above; None if there is none."""
    while True:
        where = posixpath.join(group, dim)
        if where in file and is_scale(file[where]):
            return file[where]
        if group == "/":
            return None
        group = posixpath.dirname(group)


def is_bare_dimension(item: Any) -> bool:
    """Return whether a dataset is a NetCDF4 dimension without a variable."""
    if not is_scale(item):
        return False
    name = item.attrs.get("NAME", b"")
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    return text.startswith(BARE_DIMENSION)


def _list_reserved(dset: Any) -> set[str]:
    return _OWN | _SCALE if is_scale(dset) else _OWN


def _to_plain(value: Any, *, squeeze: bool) -> Any:
    if isinstance(
        value, h5py.Empty
    ):  # NetCDF stores an empty list so, other programs an empty text
        return "" if value.dtype.kind in "SO" else np.zeros(0, value.dtype)
    if isinstance(value, (h5py.Reference, h5py.RegionReference)):
        return None
    if isinstance(value, bytes):
        return _decode_text(value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.hasobject or value.dtype.kind == "S":
        if not all(isinstance(v, (str, bytes)) for v in value.flat):
            return None
        listed = [v if isinstance(v, str) else _decode_text(v) for v in value.flat]
        if value.ndim > 1:
            table = np.empty(len(listed), object)
            table[:] = listed
            return table.reshape(value.shape).tolist()
        return listed[0] if squeeze and len(listed) == 1 else listed
    return value[0] if squeeze and value.shape == (1,) else value


def _decode_text(value: bytes) -> str | bytes:
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return bytes(value)


def to_storable(name: str, value: Any, path: str, netcdf: bool) -> Any:
    """Return the value to pass to h5py; raise an error if it would not read back as it was."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        value = value.tolist()
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value):
        return list(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return _to_bytes(name, value, path)
    try:
        plain = None if value is None or isinstance(value, Mapping) else np.asarray(value)
    except ValueError:  # lists of unequal lengths
        plain = None
    if plain is None or plain.dtype.hasobject:
        raise _make_error(path, name, value, "use text (such as JSON), numbers or arrays of these")
    if plain.dtype.kind == "f" and isinstance(value, (list, tuple)) and not _is_exact(value, plain):
        why = "some of its integers have more digits than a float64; pass an array with a dtype"
        raise _make_error(path, name, value, why)
    if not netcdf:
        return value
    if plain.dtype.kind == "b":  # NetCDF has no booleans: 0 or 1, as in its own tools
        return plain.astype("i1")[()]
    if plain.ndim > 1 or (
        plain.dtype.str[1:] not in NETCDF_NUMBERS and plain.dtype.kind not in "US"
    ):
        why = "NetCDF has text, integers, float32, float64 and lists of these; store it as text"
        raise _make_error(path, name, value, why)
    return value


def _to_bytes(name: str, value: bytes, path: str) -> Any:
    """Return bytes with a fixed size if they are not UTF-8: the library would convert others to text."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        if value.endswith(b"\0"):
            why = "HDF5 drops zeros at the end of text; use an array of the dtype u1"
            raise _make_error(path, name, value, why) from None
        return np.bytes_(value)
    return value


def _is_exact(value: Any, plain: Any) -> bool:
    """Return whether NumPy kept the value of each number of a list when it chose one dtype."""
    given, made = np.asarray(value, object), plain.astype(object)
    same = (given == made) | (made != made)
    return given.shape == made.shape and bool(same.all())
