"""
Variables of classic NetCDF files as arrays: `ArrayInfo`, and what a group of them is.

Problem. Records of several variables are interleaved, and another program may add records, or move all
variables, while an array is open.
Idea. A record variable is a strided array whose slowest stride is the size of a record; the core needs
no more. An open array compares the list of variables in the header with the one it was opened with; the
number of records is not part of that.
Invariants. The elements of an array are inside its file. Variables that are being filled under a name
of their own (`make_partial_name`) are not members.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from outcore.errors import FormatError, StorageError
from outcore.formats.layout import ArrayInfo, Origin, Part, Strided
from outcore.formats.members import Member
from outcore.formats.netcdf.classic import attributes, files, places
from outcore.formats.netcdf.classic.files import ClassicFile
from outcore.formats.netcdf.classic.header import Header, Variable
from outcore.formats.netcdf.classic.magic import NAMES
from outcore.formats.netcdf.classic.moving import find_data_end
from outcore.formats.spec import check_shape

__all__ = [
    "choose",
    "describe",
    "describe_member",
    "find",
    "is_partial",
    "list_variables",
    "make_partial_name",
]

# How the name of a variable begins while it is filled.
_PARTIAL = "_outcore_partial_"
# Seconds to wait while another process writes a header.
_PAUSE = 0.01


def make_partial_name(name: str) -> str:
    """
    Return the name of a variable until it is complete.

    >>> make_partial_name("t"), is_partial(make_partial_name("t")), is_partial("t")
    ('_outcore_partial_t', True, False)
    """
    return _PARTIAL + name


def is_partial(name: str) -> bool:
    """Return whether a variable is being filled under a name of its own."""
    return name.startswith(_PARTIAL)


def make_final_name(name: str) -> str:
    """
    Return the name that a variable will have.

    >>> make_final_name("_outcore_partial_t"), make_final_name("t")
    ('t', 't')
    """
    return name.removeprefix(_PARTIAL)


def list_variables(header: Header) -> list[Variable]:
    """Return the variables of a file that are complete, in its order."""
    return [one for one in header.variables if not is_partial(one.name)]


def find(header: Header, inner: str | None) -> Variable | None:
    """Return the variable that a path inside a file names, or None."""
    return header.find((inner or "").strip("/"))


def choose(file: ClassicFile, inner: str | None) -> Variable:
    """Return the variable that is meant; without a name the only one (coordinates do not count)."""
    header = file.header
    found = find(header, inner)
    if found is not None:
        return found
    all_of_them = list_variables(header)
    names = {dim.name for dim in header.dims}
    arrays = [one for one in all_of_them if one.name not in names] or all_of_them
    if len(arrays) == 1 and inner is None:
        return arrays[0]
    if inner is None or inner == "/":
        many = len(all_of_them)
        what = f"holds {many or 'no'} variable{'' if many == 1 else 's'}"
    else:
        what = f"has no variable {inner.strip('/')!r}"
    offered = ", ".join(f"{file.path}::/{one.name}" for one in all_of_them[:5])
    more = ", ..." if len(all_of_them) > 5 else ""
    raise FormatError(
        f"{file.path!r} {what}" + (f"; open one of {offered}{more}" if offered else ""),
        code="no-such-array",
        path=file.path,
    )


def describe(file: ClassicFile, variable: Variable) -> ArrayInfo:
    """Describe a variable."""
    header, where = file.header, f"{file.path}::/{variable.name}"
    is_record = header.is_record(variable)
    shape = places.compute_shape(header, variable, file.records)
    check_shape(shape, variable.dtype.itemsize, where, stored=True)
    nbytes, strides = (
        places.compute_bytes(header, variable),
        places.compute_strides(header, variable, shape),
    )
    if is_record:
        nbytes = (file.records - 1) * strides[0] + nbytes if file.records else 0
    if nbytes and variable.begin + nbytes > file.size:
        raise FormatError(
            f"{where!r} ends at byte {variable.begin + nbytes} and the file has {file.size}; it was "
            "cut off, copy it again",
            code="file-too-short",
            path=file.path,
            offset=file.size,
        )
    origin = Origin(file.id, file.mark, functools.partial(_reread_mark, file, variable))
    dims = tuple(header.dims[number].name for number in variable.dims)
    return ArrayInfo(
        path=where,
        format=NAMES[header.version],
        shape=shape,
        dtype=variable.dtype,
        layout=Strided((Part(file.path, variable.begin, nbytes, origin),), strides),
        fill_value=attributes.find_fill(variable),
        attrs=attributes.read(variable.attrs),
        declares=functools.partial(attributes.find_missing, variable),
        dims=dims or None,
        extra={
            "file": file.path,
            "dataset": f"/{variable.name}",
            "version": f"CDF-{header.version}",
            **({"record_bytes": strides[0], "unlimited": dims[:1]} if is_record else {}),
        },
    )


def get_meaning(header: Header, variable: Variable) -> tuple[Any, ...]:
    """Return all that says how bytes become elements, except the number of records."""
    lengths = places.compute_shape(header, variable, 0)
    return (
        variable.kind,
        lengths,
        variable.begin,
        places.compute_strides(header, variable, lengths)[:1],
    )


def _reread_mark(file: ClassicFile, variable: Variable) -> tuple[int, bytes]:
    """Return the mark of the header as it is now; raise if the variable is another one."""
    if files.is_changing(file.path):
        time.sleep(_PAUSE)
    return confirm(file, variable).mark


def confirm(file: ClassicFile, variable: Variable) -> ClassicFile:
    """Return the file as it is now; raise `StorageError` if the variable is another one."""
    try:
        now = files.read(file.path)
    except FormatError as error:
        raise make_changed_error(file.path) from error
    found = now.header.find(variable.name)
    is_same = found is not None and get_meaning(now.header, found) == get_meaning(
        file.header, variable
    )
    if not is_same or now.id != file.id:
        raise make_changed_error(file.path)
    return now


def make_changed_error(path: str) -> StorageError:
    """Return the error for an array that another one has replaced."""
    return StorageError(
        f"{path!r} was replaced, or its variables moved, since it was opened; open it again",
        code="file-changed",
        path=path,
    )


def describe_member(file: ClassicFile, variable: Variable) -> Member:
    """Return a variable as a member of its file, whether it can be read or not."""
    where, info, refused = f"{file.path}::/{variable.name}", None, None
    try:
        info = describe(file, variable)
    except FormatError as error:
        refused = error
    dims = tuple(file.header.dims[number].name for number in variable.dims)
    return Member(
        where,
        places.compute_shape(file.header, variable, file.records),
        dims or None,
        attributes.read(variable.attrs),
        attributes.find_declared(variable),
        info,
        refused,
        variable.dtype,
    )


def check_whole(file: ClassicFile) -> None:
    """Raise `FormatError` if elements are missing at the end of a file."""
    end = find_data_end(file.header, file.records)
    if end > file.size:
        raise FormatError(
            f"{file.path!r} has {file.size} bytes and its header describes {end}; it was cut off, copy "
            "it again",
            code="file-too-short",
            path=file.path,
            offset=file.size,
        )
