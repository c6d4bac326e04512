"""
Groups of HDF5 and NetCDF4 files.

Problem: a group may have thousands of members, links may be broken or point outside the file, and not
every name is an array or a group.
Approach: h5py lists and creates groups. The library opens members to determine their kinds, in one
visit of the file; their headers are not interpreted, and no chunk is read.
Invariants: datasets that are being filled, dimensions of NetCDF4 without a variable, named types and
broken links are not members. Each change is complete or absent (`open_for_changes`). New groups of
NetCDF4 record the order of creation: its library changes no others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from outcore.errors import FormatError, OutcoreError, StorageError, UsageError
from outcore.formats import durable
from outcore.formats.format import HasGroups
from outcore.formats.hdf5 import access, describe, links, netcdf_names
from outcore.formats.hdf5.attrs import (
    LazyAttributes,
    describe_axes,
    find_scale,
    is_bare_dimension,
    is_scale,
    read_attrs,
    write_attrs,
)
from outcore.formats.hdf5.create import check_name, to_final_name
from outcore.formats.hdf5.elsewhere import find_special_source
from outcore.formats.hdf5.guard import rehearse
from outcore.formats.hdf5.heaps import check_attributes
from outcore.formats.hdf5.library import check_library, h5py
from outcore.formats.hdf5.origin import get_address
from outcore.formats.members import Kind, Member, Members, no_group_error

# A NetCDF file, whatever its suffix, has this attribute at its root.
_NETCDF = b"_NCProperties"
_NETCDF_FORMAT = "netcdf4"


class GroupsOfFile(HasGroups):
    """Groups of an HDF5 file, as methods of its formats."""

    #: Name of the format.
    name: ClassVar[str]
    #: Whether names, dimensions and attributes follow the conventions of NetCDF4.
    is_netcdf: ClassVar[bool] = False

    def check_library(self, path: str) -> None:
        """Raise an error if a file needs a library that is missing."""
        check_library(path)

    def mark_root(self, file: Any) -> None:
        """Write the marks of the format into a new file."""

    def find_kind(self, path: str, inner: str | None) -> Kind | None:
        """Return whether a name leads to an array or a group; None: to neither."""
        self.check_library(path)
        if inner is None:
            with access.open_session(path, "r"):
                return "group"
        rehearse(path, inner, "open")
        with access.open_session(path, "r") as file:
            name = netcdf_names.find_dataset_name(file, inner) if self.is_netcdf else inner
            return _classify(_find_item(file, name), netcdf=self.is_netcdf)

    def list_members(self, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
        """
        Return names and kinds of the members of a group, in the order of names.

        With `deep`, each object is listed once, by its first name, and soft links are not followed. So
        there is no circle.
        """
        self.check_library(path)
        netcdf = self.is_netcdf
        rehearse(path, inner, "ls")
        found: list[tuple[str, Kind]] = []
        shown = netcdf_names.to_variable_name if netcdf else str
        with access.open_session(path, "r") as file:
            top = _find_group(file, path, inner)
            if not deep:
                listed = _list_members(top, netcdf=netcdf)
                return sorted((shown(name), kind) for name, _, kind in listed if kind)

            def visit(name: str, item: Any) -> None:
                kind = None if to_final_name(name) else _classify(item, netcdf=netcdf)
                if kind is not None:
                    found.append((shown(name), kind))

            describe.visit_objects(top, visit)
        return sorted(found) if netcdf else found

    def list_broken_links(self, path: str, inner: str | None) -> list[tuple[str, OutcoreError]]:
        """Return the paths of links below a group that lead nowhere, and why."""
        self.check_library(path)
        with access.open_session(path, "r") as file:
            found = list(links.find_broken(_find_group(file, path, inner)))
        top = (inner or "").strip("/")
        wheres = [f"{path}::/{posixpath.join(top, name)}" for name, _ in found]
        return [
            (name, FormatError(f"it is {why}", code="no-such-array", path=where))
            for (name, why), where in zip(found, wheres, strict=True)
        ]

    def list_aliases(self, path: str, inner: str | None) -> list[tuple[str, str]]:
        """Return further paths of members, and of members in other files, with the kind of link."""
        self.check_library(path)
        netcdf = self.is_netcdf
        known = {name for name, _ in self.list_members(path, inner, True)}
        with access.open_session(path, "r") as file:
            top = _find_group(file, path, inner)
            known |= (
                {netcdf_names.find_dataset_name(top, name) for name in known} if netcdf else set()
            )
            found = links.find_aliases(top, known)
            return [(name, how) for name, how, item in found if _classify(item, netcdf=netcdf)]

    def describe_group(self, path: str, inner: str, drop: Collection[str]) -> Members:
        """Describe a group and the arrays directly in it; or an array as the only one of a group."""
        self.check_library(path)
        format = self.name
        rehearse(path, None if inner == "/" else inner, "ls")
        with access.open_session(path, "r") as file:
            if h5py.h5a.exists(file.id, _NETCDF):
                format = _NETCDF_FORMAT
            top = links.follow(file, inner)
            if top is None:
                raise no_group_error(path, inner, "there is nothing of that name")
            with describe.Visit(format, path) as visit:
                if isinstance(top, h5py.Dataset):
                    name = posixpath.basename(inner)
                    return Members(
                        path, inner, format, arrays={name: _describe_member(visit, inner, top)}
                    )
                arrays: dict[str, Member] = {}
                groups: list[str] = []
                unlimited: set[str] = set()
                for name, item, kind in _list_members(top, netcdf=True):
                    if isinstance(item, h5py.Dataset) and is_scale(item):
                        endless = not find_special_source(item) and item.maxshape[:1] == (None,)
                        unlimited |= {name} if endless else set()
                    variable = (
                        netcdf_names.to_variable_name(name) if format == _NETCDF_FORMAT else name
                    )
                    if kind == "group":
                        groups.append(name)
                    elif kind == "array" and variable not in drop:
                        arrays[variable] = _describe_member(
                            visit, posixpath.join(inner, name), item
                        )
                identity = (access.get_path(top), get_address(top))
                attrs = _read_attributes(identity[0], top)
        return Members(
            path, inner, format, attrs, arrays, tuple(groups), frozenset(unlimited), identity
        )

    def read_group_attrs(self, path: str, inner: str | None) -> Mapping[str, Any]:
        """Return the attributes of a group, which are read on first use."""
        return LazyAttributes(os.path.abspath(path), inner or "/", netcdf=self.is_netcdf)

    def check_group_writable(self, path: str, inner: str | None) -> None:
        """Raise `StorageError` if the file cannot be written."""
        with durable.os_errors("opening for writing", path):
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def set_group_attrs(
        self,
        path: str,
        inner: str | None,
        attrs: Mapping[str, Any],
        drop: Collection[str] | None,
    ) -> Mapping[str, Any]:
        """Set attributes of a group and remove others (None: all)."""
        self.check_library(path)
        with access.open_for_changes(path, inner or "/") as file:
            group = _find_group(file, path, inner)
            write_attrs(group, attrs, path, netcdf=self.is_netcdf, drop=drop)
        return self.read_group_attrs(path, inner)

    def create_group(
        self, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
    ) -> None:
        """Create a group, with the file and the groups above it that are missing."""
        self.check_library(path)
        netcdf = self.is_netcdf
        check_name(path, inner or "/")

        def make(file: Any) -> None:
            group = make_groups(file, path, inner or "/", netcdf=netcdf)
            write_attrs(group, attrs, path, netcdf=netcdf, drop=())

        if os.path.lexists(path) and not replace:
            with access.open_for_changes(path, inner or "/") as file:
                make(file)
            return
        order = {"track_order": True} if netcdf else {}
        with (
            durable.os_errors("creating", path),
            durable.replace_by_library(path, exclusive=not replace) as temporary,
            access.open_session(temporary, "w", **order) as file,
        ):
            self.mark_root(file)
            make(file)

    def complete(self, path: str) -> None:
        """Attach the scales of axes, after all arrays of a new file were created."""
        if not self.is_netcdf:
            attach_scales(path)


def _find_item(top: Any, name: str) -> Any:
    """Return the object with a name; None if there is none, or it is being filled."""
    if to_final_name(name):
        return None
    return links.follow(top, name)


def _classify(item: Any, *, netcdf: bool) -> Kind | None:
    if isinstance(item, h5py.Group):
        return "group"
    if isinstance(item, h5py.Dataset) and not (netcdf and is_bare_dimension(item)):
        return "array"
    return None


def _list_members(top: Any, *, netcdf: bool) -> Iterator[tuple[str, Any, Kind | None]]:
    """Yield names in a group, in the order of the file, with objects and kinds (None: not a member)."""
    for name in top:
        item = _find_item(top, name)
        yield name, item, _classify(item, netcdf=netcdf)


def _describe_member(visit: describe.Visit, name: str, dset: Any) -> Member:
    """Return the description of a dataset, whether it can be read or not."""
    path, info, refused = visit.format_path(name), None, None
    try:
        with access.translate_errors(visit.path_given):
            info = describe.describe(visit, name, dset, False)
    except (FormatError, StorageError) as error:  # `StorageError`: external files
        refused = error
    # An external link may have led to another file.
    attrs = _read_attributes(access.get_path(dset), dset)
    fill = None
    if h5py.h5a.exists(dset.id, b"_FillValue"):
        found = np.asarray(dset.attrs["_FillValue"]).reshape(-1)
        fill = found[0] if found.size else None
    if info is not None:
        return Member(path, info.shape, info.dims, attrs, fill, info)
    if refused is not None and refused.code == "not-regular":
        # The library might open a pipe for the shape.
        return Member(
            path, (), None, attrs, fill, None, refused, describe.get_or_none(dset, "dtype")
        )
    shape = () if dset.shape is None else tuple(dset.shape)
    kind = describe.get_or_none(dset, "dtype")
    return Member(
        path,
        shape,
        describe_axes(dset, visit.open_home(dset).scales),
        attrs,
        fill,
        None,
        refused,
        kind,
    )


def _read_attributes(path: str, item: Any) -> dict[str, Any]:
    """Return attributes as NetCDF has them: an array of one value becomes that value."""
    check_attributes(path, str(item.name))
    return read_attrs(item, netcdf=True)


def _find_group(file: Any, path: str, inner: str | None) -> Any:
    name = inner or "/"
    item = links.follow(file, name)
    if isinstance(item, h5py.Group):
        return item
    raise FormatError(
        f"'{path}::{name}' is not a group; `outcore ls` lists the contents",
        code="not-a-group",
        path=f"{path}::{name}",
    )


def make_groups(file: Any, path: str, name: str, *, netcdf: bool) -> Any:
    """Return the group with a name; create it, and the groups above it, if missing."""
    at = file["/"]
    for part in filter(None, name.split("/")):
        if part not in at:
            at = at.create_group(part, track_order=True if netcdf else None)
            continue
        at = at[part]
        if not isinstance(at, h5py.Group):
            raise UsageError(
                f"{path!r}: {at.name!r} is not a group and cannot contain {name!r}; choose another name",
                code="bad-name",
                path=path,
            )
    return at


def attach_scales(path: str) -> None:
    """
    Make dimension scales of the coordinates of a new file, according to its labels.

    A coordinate is a dataset with one axis that has the name of the dataset. It becomes the scale of
    axes with its name and length, in its group and in the groups below, for datasets all of whose axes
    have a scale (h5netcdf reads no others). Scales that are attached already remain.
    """
    check_library(path)
    with access.open_for_changes(path, None) as file:
        names: list[str] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None:
                names.append(str(item.name))

        describe.visit_objects(file, visit)
        for name in names:
            dset, leaf = file[name], posixpath.basename(name)
            if dset.ndim == 1 and dset.dims[0].label == leaf and not is_scale(dset):
                dset.make_scale(leaf)
        for name in names:
            dset, group = file[name], posixpath.dirname(name)
            if is_scale(dset):
                continue  # the scale of its own axis
            found = [
                find_scale(file, group, dim.label) if dim.label and not len(dim) else None
                for dim in dset.dims
            ]
            if all(
                scale is not None and scale.shape == (length,)
                for scale, length in zip(found, dset.shape, strict=True)
            ):
                for dim, scale in zip(dset.dims, found, strict=True):
                    dim.attach_scale(scale)
