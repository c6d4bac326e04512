"""
Variables of a new file that are created one by one, with places for all of them from the start.

Problem. A variable that is added to existing records moves all of them, and so does a header that has
become too long. A conversion of a whole file, which creates its arrays one by one, would copy the file
many times.
Idea. The file first gets all variables under the names that they have until they are complete
(`describing.make_partial_name`), with their attributes and a mark. `create` finds such a variable of
its type and dimensions and takes its place: only the header changes.
Invariants. Marked variables are in no list. Those that nothing took are removed when the file is
complete.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

from outcore.errors import OutcoreError
from outcore.formats.layout import ArrayInfo
from outcore.formats.netcdf.classic import attributes, changes, files, places
from outcore.formats.netcdf.classic.changes import NewVariable
from outcore.formats.netcdf.classic.describing import make_partial_name
from outcore.formats.netcdf.classic.files import ClassicFile
from outcore.formats.netcdf.classic.header import Attribute, Header, Variable
from outcore.formats.spec import make_spec

__all__ = ["expect", "is_expected", "remove_expected", "take"]

_MARK = Attribute("_outcore_expected", 1, b"\1")


def is_expected(variable: Variable) -> bool:
    """Return whether a variable is a place for one that will be created."""
    return _MARK in variable.attrs


def expect(path: str, arrays: Sequence[tuple[str, ArrayInfo]]) -> None:
    """Give the arrays that a new file will have their places."""
    dim = _choose_record_dimension([info for _, info in arrays])
    with files.changing(path) as file:
        header = file.header
        for name, info in arrays:
            with contextlib.suppress(OutcoreError):  # creating it raises this error
                header = _add_place(path, header, name, info, dim)
        kept = {one.name: one.name for one in file.header.variables}
        zeros = {one.name: bytes(one.dtype.itemsize) for one in header.variables}
        changes.apply(file, header, kept, zeros)


def _add_place(path: str, header: Header, name: str, info: ArrayInfo, dim: str | None) -> Header:
    """Return a header with one more place."""
    spec = make_spec(path, info.shape, info.dtype, dims=info.dims)
    endless = dim if dim is not None and (info.dims or ("",))[0] == dim else ()
    wanted = NewVariable.of(path, make_partial_name(name), spec, endless)
    header, variable = changes.add_to_header(path, header, wanted)
    attrs = [_MARK]
    for key, value in info.attrs.items():
        with contextlib.suppress(OutcoreError):
            attrs.append(attributes.store(key, value, header.version, path))
    marked = replace(variable, attrs=tuple(attrs))
    return replace(header, variables=(*header.variables[:-1], marked))


def _choose_record_dimension(infos: Sequence[ArrayInfo]) -> str | None:
    """Return the unlimited dimension that classic NetCDF can keep and that most bytes have, or None."""
    sizes: dict[str, int] = {}
    lengths: dict[str, set[int]] = {}
    places_of: dict[str, set[int]] = {}
    unlimited = {name for info in infos for name in info.extra.get("unlimited", ())}
    for info in infos:
        for axis, dim in enumerate(info.dims or ()):
            if dim is not None and dim in unlimited:
                nbytes = math.prod(info.shape) * info.dtype.itemsize
                sizes[dim] = sizes.get(dim, 0) + nbytes
                lengths.setdefault(dim, set()).add(info.shape[axis])
                places_of.setdefault(dim, set()).add(axis)
    fit = [dim for dim in sizes if len(lengths[dim]) == 1 and places_of[dim] == {0}]
    return max(fit, key=lambda dim: sizes[dim], default=None)


def take(file: ClassicFile, wanted: NewVariable) -> bool:
    """Create a variable where one of its type and dimensions is expected; False if there is none."""
    header = file.header
    there = header.find(wanted.name)
    if there is None or not is_expected(there):
        return False
    dims = tuple(header.dims[number].name for number in there.dims)
    is_same = dims == wanted.dims and there.dtype == wanted.spec.dtype.newbyteorder(">")
    if not is_same or places.compute_shape(header, there, file.records) != wanted.spec.shape:
        return False
    variable = replace(wanted.variable(file.path, header), begin=there.begin)
    changes.refill(file, variable, wanted.element(variable))
    variables = tuple(variable if one is there else one for one in header.variables)
    changed = replace(header, variables=variables, records=file.records)
    changes.apply(file, changed, {one.name: one.name for one in variables}, {})
    return True


def remove_expected(path: str) -> None:
    """Remove the places that nothing took, and their bytes."""
    if any(map(is_expected, files.read(path).header.variables)):
        with files.changing(path) as file:
            left = tuple(one for one in file.header.variables if not is_expected(one))
            header = replace(file.header, variables=left, records=file.records)
            changes.rebuild(file, header, {one.name: one.name for one in left}, {})
