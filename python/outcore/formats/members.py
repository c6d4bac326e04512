"""
What a group holds: the arrays directly in it, its groups, and the attributes of all of them.

Problem. Who opens all of a group at once (xarray, `outcore.xarray_engine`) needs shapes, dimensions and
attributes of every array in it, also of those that outcore cannot read; opening them one by one would
open the file as often.
Idea. One visit of the file describes the arrays by the same code as `outcore.formats.open_info`, and
notes for each that is refused why. Formats of one array are a group with that array in it.

Invariants. Only metadata are read. Of an array that is refused, what is told is what the library of the
format says. Nothing below the groups of the group is visited.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outcore import formats
from outcore.errors import FormatError, UsageError
from outcore.formats import durable, netcdf4, zarr2, zarr3
from outcore.formats import hdf5_access as access
from outcore.formats.hdf5_attrs import describe_axes, is_bare_dimension, is_scale, read_attrs
from outcore.formats.hdf5_create import final_name
from outcore.formats.hdf5_describe import Visit, describe
from outcore.formats.hdf5_guard import rehearse
from outcore.formats.hdf5_heaps import check_attributes
from outcore.formats.layout import ArrayInfo
from outcore.formats.paths import one_name
from outcore.formats.zarr_tree import Node, full_name, is_node, split_node

__all__ = ["Member", "Members", "members_of"]

# A NetCDF file, whatever its suffix, has this attribute at its root.
_NETCDF = b"_NCProperties"
# With this begins, in HDF5, the name of a variable that has the name of a dimension of others.
_NO_COORDINATE = "_nc4_non_coord_"
# Names of axes, in attributes of Zarr version 2.
_DIMS = "_ARRAY_DIMENSIONS"


@dataclass(frozen=True, slots=True)
class Member:
    """
    An array of a group.

    Parameters
    ----------
    path
        What `outcore.open` would take.
    shape, dims
        As in `ArrayInfo`.
    attrs
        User attributes.
    fill
        The attribute ``_FillValue`` of HDF5 and NetCDF4: which value means "missing". None if there is
        none; the value of elements that were never written is another thing (`ArrayInfo.fill_value`).
    info
        Where its elements are; None if outcore cannot read it.
    refused
        Why not.
    """

    path: str
    shape: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    attrs: Mapping[str, Any]
    fill: Any = None
    info: ArrayInfo | None = None
    refused: FormatError | None = None


@dataclass(frozen=True, slots=True)
class Members:
    """
    A group.

    Parameters
    ----------
    file, inner
        The file or folder, and the path of the group in it (``"/"``: the root).
    format
        Name of the format, as `outcore.open` takes it.
    attrs
        Attributes of the group.
    arrays
        By name, in the order of the file.
    groups
        Names of the groups in it.
    unlimited
        Names of its dimensions that can grow; not of those that it has from groups above.
    """

    file: str
    inner: str
    format: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Member] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    unlimited: frozenset[str] = frozenset()


def members_of(
    path: str | os.PathLike[str],
    group: str | None = None,
    *,
    format: str | None = None,
    drop: Collection[str] = (),
) -> Members:
    """
    Describe a group and the arrays directly in it.

    Parameters
    ----------
    path
        A file or folder, perhaps with the path of a group: ``file.h5::/group``.
    group
        Path of a group below that.
    format
        What it is, if neither its name nor its first bytes tell.
    drop
        Names of arrays to leave out: these are not looked at.

    Raises
    ------
    FormatError
        There is no such group (``no-such-group``), or the file is damaged.
    StorageError, UnsupportedError
        As for `outcore.open`.

    Examples
    --------
    >>> import outcore
    >>> outcore.create("run.h5::/wind/u", (3, 4), "f4", attrs={"units": "m/s"}).close()
    >>> found = members_of("run.h5", "wind")
    >>> list(found.arrays), found.arrays["u"].shape, dict(found.arrays["u"].attrs)
    (['u'], (3, 4), {'units': 'm/s'})
    """
    if not isinstance(group, str | None):
        raise UsageError(f"group={group!r}: pass text such as '/a/b'", code="bad-name")
    outer, inner = formats.split_path(one_name(path))
    names = [part for text in (inner, group) for part in (text or "").split("/") if part]
    where = "/" + "/".join(names)
    module = formats.module_of(outer, format)
    if module.NAME in ("hdf5", "netcdf4"):
        netcdf4.refuse_classic(outer)
        return _of_hdf5(module.NAME, outer, where, drop)
    if module.NAME in ("zarr", "zarr2"):
        return _of_zarr(zarr3 if module.NAME == "zarr" else zarr2, outer, where, drop)
    if names:
        raise _no_group(outer, where, f"{module.NAME} files hold one array and no groups")
    info = module.open(outer, None, False)
    return Members(outer, "/", module.NAME, arrays={_stem(outer): _known(info)})


def _stem(path: str) -> str:
    """What the only array of a file is called."""
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0] or "data"


def _no_group(path: str, inner: str, why: str) -> FormatError:
    return FormatError(
        f"{path!r} has no group {inner!r}: {why}; `outcore ls {path}` lists what there is",
        code="no-such-group",
        path=path,
    )


def _known(info: ArrayInfo) -> Member:
    return Member(info.path, info.shape, info.dims, dict(info.attrs), info=info)


# HDF5 and NetCDF4


def _of_hdf5(format: str, path: str, inner: str, drop: Collection[str]) -> Members:
    h5py = access.library(path)
    rehearse(path, None if inner == "/" else inner, "ls")
    with access.session(path, "r") as file:
        if h5py.h5a.exists(file.id, _NETCDF):
            format = netcdf4.NAME
        if inner not in file:
            raise _no_group(path, inner, "there is nothing of that name")
        top = file[inner]
        with Visit(h5py, format, path) as visit:
            if isinstance(top, h5py.Dataset):
                name = posixpath.basename(inner)
                return Members(path, inner, format, arrays={name: _described(visit, inner, top)})
            arrays: dict[str, Member] = {}
            groups: list[str] = []
            unlimited: set[str] = set()
            for name, item in _linked(top):
                where = posixpath.join(inner, name)
                if isinstance(item, h5py.Group):
                    groups.append(name)
                    continue
                if not isinstance(item, h5py.Dataset):
                    continue
                if is_scale(item) and item.maxshape[:1] == (None,):
                    unlimited.add(name)
                variable = name.removeprefix(_NO_COORDINATE) if format == netcdf4.NAME else name
                if not final_name(where) and variable not in drop and not is_bare_dimension(item):
                    arrays[variable] = _described(visit, where, item)
            attrs = _attributes(h5py, path, top)
    return Members(path, inner, format, attrs, arrays, tuple(groups), frozenset(unlimited))


def _linked(group: Any) -> Iterator[tuple[str, Any]]:
    """Names and objects of a group; links that lead nowhere are passed over."""
    for name in group:
        with contextlib.suppress(KeyError):
            yield name, group[name]


def _described(visit: Visit, name: str, dset: Any) -> Member:
    """A dataset, whether it can be read or not."""
    h5py, path = visit.h5py, f"{visit.named}::{name}"
    info, refused = None, None
    try:
        with access.translated(visit.named):
            info = describe(visit, name, dset, False)
    except FormatError as error:
        refused = error
    attrs = _attributes(h5py, visit.named, dset)
    fill = None
    if h5py.h5a.exists(dset.id, b"_FillValue"):
        found = np.asarray(dset.attrs["_FillValue"]).reshape(-1)
        fill = found[0] if found.size else None
    if info is not None:
        return Member(path, info.shape, info.dims, attrs, fill, info)
    shape = () if dset.shape is None else tuple(dset.shape)
    return Member(path, shape, describe_axes(dset), attrs, fill, None, refused)


def _attributes(h5py: Any, path: str, item: Any) -> dict[str, Any]:
    """As NetCDF has them: an array of one value is that value."""
    check_attributes(path, str(item.name))
    return read_attrs(h5py, item, netcdf=True)


# Zarr


def _of_zarr(module: Any, path: str, inner: str, drop: Collection[str]) -> Members:
    names = split_node(inner, path)
    folder = os.path.join(path, *names)
    found: Node | None = module.node(folder)
    if found is None:
        raise _no_group(path, inner, "there is no Zarr group of this version")
    if found.is_array:
        name = names[-1] if names else _stem(path)
        info = module.open(path, inner if names else None, False)
        return Members(path, inner, module.NAME, arrays={name: _known(info)})
    arrays: dict[str, Member] = {}
    groups: list[str] = []
    for name in _children(folder, found.told):
        if name in drop:
            continue
        below = (*names, name)
        try:
            node = module.node(os.path.join(folder, name))
        except FormatError as error:
            arrays[name] = Member(full_name(path, below), (), None, {}, refused=error)
            continue
        if node is not None and node.is_array:
            arrays[name] = _opened(module, path, below, node)
        elif node is not None:
            groups.append(name)
    # Without what NCZarr keeps there for itself.
    attrs = {key: one for key, one in found.attrs.items() if not key.lower().startswith("_nc")}
    return Members(path, inner, module.NAME, attrs, arrays, tuple(groups))


def _children(folder: str, told: Collection[str]) -> list[str]:
    """Names below a group: of folders, and those that its metadata tell."""
    found = {name for name in told if name.strip(".")}
    if os.path.isdir(folder):
        with durable.os_errors("listing", folder), os.scandir(folder) as entries:
            found.update(entry.name for entry in entries if is_node(entry.path))
    return sorted(found)


def _opened(module: Any, path: str, names: tuple[str, ...], node: Node) -> Member:
    """An array of a group, whether it can be read or not."""
    try:
        return _known(module.open(path, "/" + "/".join(names), False))
    except FormatError as error:
        refused = error
    told = node.attrs.get(_DIMS) if module is zarr2 else node.document.get("dimension_names")
    lengths = node.document.get("shape")
    shape = tuple(lengths) if isinstance(lengths, list) else ()
    dims = tuple(told) if isinstance(told, list) and len(told) == len(shape) else None
    attrs = {key: one for key, one in node.attrs.items() if key != _DIMS}
    return Member(full_name(path, names), shape, dims, attrs, refused=refused)
