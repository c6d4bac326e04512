"""
Groups of HDF5 and NetCDF4 files.

Problem. A group may have thousands of members, links to them may dangle or lead out of the file, and not
all that has a name is an array or a group.
Idea. h5py lists and makes groups. Members are opened in the library to see what they are, in one visit
of the file; their headers are not interpreted, and no chunk is looked at.
Invariants. What is being filled under a name of its own, dimensions of NetCDF4 without a variable, named
types and links that lead nowhere are no members. Each change is there whole or not at all
(`hdf5_access.changing`). New groups of NetCDF4 keep the order in which things were made in them: its
library changes no others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Mapping
from typing import Any

from outcore.errors import FormatError, UsageError
from outcore.formats import durable, netcdf4
from outcore.formats import hdf5_access as access
from outcore.formats.groups import Kind
from outcore.formats.hdf5_attrs import Attributes, is_bare_dimension, is_scale, write_attrs
from outcore.formats.hdf5_create import final_name
from outcore.formats.hdf5_describe import visit_objects
from outcore.formats.hdf5_guard import rehearse


def kind(format: str, path: str, inner: str | None) -> Kind | None:
    """Whether a name leads to a dataset or to a group."""
    h5py = _library(path)
    if inner is None:
        with access.session(path, "r"):
            return "group"
    rehearse(path, inner, "open")
    with access.session(path, "r") as file:
        return _kind(h5py, file, inner, netcdf=format == "netcdf4")


def _library(path: str) -> Any:
    netcdf4.refuse_classic(path)
    return access.library(path)


def _kind(h5py: Any, top: Any, name: str, *, netcdf: bool) -> Kind | None:
    if final_name(name):
        return None
    try:
        item = top[name]
    except (KeyError, OSError) as error:
        # A link that leads nowhere, or to a file that is not there. So says the library too if the disk
        # fails, and then tells the number.
        if isinstance(error, KeyError) and "errno = " in str(error):
            raise
        return None
    return _kind_of(h5py, item, netcdf=netcdf)


def _kind_of(h5py: Any, item: Any, *, netcdf: bool) -> Kind | None:
    if isinstance(item, h5py.Group):
        return "group"
    if isinstance(item, h5py.Dataset) and not (netcdf and is_bare_dimension(item)):
        return "array"
    return None


def members(format: str, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
    """
    Names and kinds, in the order of names.

    In depth each object is met once, by its first name, and links that are only names are not followed:
    there is no circle.
    """
    h5py, netcdf = _library(path), format == "netcdf4"
    rehearse(path, inner, "ls")
    found: list[tuple[str, Kind]] = []
    with access.session(path, "r") as file:
        top = _group(h5py, file, path, inner)
        if not deep:
            for name in sorted(top):
                what = _kind(h5py, top, name, netcdf=netcdf)
                if what is not None:
                    found.append((name, what))
            return found

        def visit(name: str, item: Any) -> None:
            what = None if final_name(name) else _kind_of(h5py, item, netcdf=netcdf)
            if what is not None:
                found.append((name, what))

        visit_objects(h5py, top, visit)
    return found


def _group(h5py: Any, file: Any, path: str, inner: str | None) -> Any:
    name = inner or "/"
    item = file.get(name)
    if isinstance(item, h5py.Group):
        return item
    raise FormatError(
        f"'{path}::{name}' is no group; `outcore ls` lists what is there",
        code="not-a-group",
        path=f"{path}::{name}",
    )


def attrs(format: str, path: str, inner: str | None) -> Mapping[str, Any]:
    """Its attributes, read when they are first asked for."""
    return Attributes(os.path.abspath(path), inner or "/", netcdf=format == "netcdf4")


def check_writable(path: str, inner: str | None) -> None:
    """Raise `StorageError` if the file cannot be written."""
    with durable.os_errors("opening for writing", path):
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))


def set_attrs(
    format: str,
    path: str,
    inner: str | None,
    attrs: Mapping[str, Any],
    drop: Collection[str] | None,
) -> Mapping[str, Any]:
    """Set attributes and drop others (None: all)."""
    h5py, netcdf = _library(path), format == "netcdf4"
    with access.changing(path, inner or "/") as file:
        group = _group(h5py, file, path, inner)
        write_attrs(group, attrs, path, netcdf=netcdf, drop=drop)
    return Attributes(os.path.abspath(path), inner or "/", netcdf=netcdf)


def create(
    format: str, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
) -> None:
    """Make a group, and those above it and the file if they are missing."""
    h5py, netcdf = _library(path), format == "netcdf4"

    def make(file: Any) -> None:
        group = make_groups(h5py, file, path, inner or "/", netcdf=netcdf)
        write_attrs(group, attrs, path, netcdf=netcdf, drop=())

    if os.path.lexists(path) and not replace:
        with access.changing(path, inner or "/") as file:
            make(file)
        return
    order = {"track_order": True} if netcdf else {}
    with (
        durable.os_errors("creating", path),
        durable.replacing(path, exclusive=not replace) as temporary,
        access.session(temporary, "w", **order) as file,
    ):
        if netcdf:
            netcdf4.mark_root(file)
        make(file)


def make_groups(h5py: Any, file: Any, path: str, name: str, *, netcdf: bool) -> Any:
    """The group of that name, made with all groups above it that are missing."""
    at = file["/"]
    for part in filter(None, name.split("/")):
        if part not in at:
            at = at.create_group(part, track_order=True if netcdf else None)
            continue
        at = at[part]
        if not isinstance(at, h5py.Group):
            raise UsageError(
                f"{path!r}: {at.name!r} is no group, it cannot contain {name!r}; choose another name",
                code="bad-name",
                path=path,
            )
    return at


def attach_scales(path: str) -> None:
    """
    Make dimension scales of the coordinates of a new file, as its labels name them.

    A coordinate is a dataset with one axis, which is called as the dataset is. It becomes the scale of
    axes with its name and length, in its group and in those below; of datasets all of whose axes have
    one, as h5netcdf takes no others. What is attached already stays.
    """
    h5py = access.library(path)
    with access.changing(path, None) as file:
        names: list[str] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None:
                names.append(str(item.name))

        visit_objects(h5py, file, visit)
        for name in names:
            dset, leaf = file[name], posixpath.basename(name)
            if dset.ndim == 1 and dset.dims[0].label == leaf and not is_scale(dset):
                dset.make_scale(leaf)
        for name in names:
            dset, group = file[name], posixpath.dirname(name)
            if is_scale(dset):
                continue  # of its own axis
            found = [
                netcdf4.find_scale(file, group, dim.label) if dim.label and not len(dim) else None
                for dim in dset.dims
            ]
            if all(
                scale is not None and scale.shape == (length,)
                for scale, length in zip(found, dset.shape, strict=True)
            ):
                for dim, scale in zip(dset.dims, found, strict=True):
                    dim.attach_scale(scale)
