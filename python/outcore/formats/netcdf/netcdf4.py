"""
NetCDF4: HDF5 files that follow the conventions of the NetCDF library.

Problem: NetCDF4 readers (netCDF4-python, xarray, ncdump) find axes through *dimension scales*: small
datasets with the length and the name of an axis, attached to the variables that use them.
Approach: HDF5 code stores the data (`hdf5`); this file adds the scales, the identifiers and the root
properties, and rejects dtypes that NetCDF lacks.
Invariants: every axis of a variable that outcore creates has a scale of its length in the variable's
group or above; identifiers of dimensions are unique in the file.

Reference: NetCDF User's Guide, appendix B, "NetCDF-4 Format"; HDF5 dimension scales specification.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outcore.errors import UnsupportedError, UsageError
from outcore.formats.hdf5 import access, netcdf_names
from outcore.formats.hdf5.attrs import (
    BARE_DIMENSION,
    NETCDF_NUMBERS,
    find_scale,
    is_bare_dimension,
    is_scale,
    to_storable,
)
from outcore.formats.hdf5.create import check_removable, to_final_name
from outcore.formats.hdf5.describe import visit_objects
from outcore.formats.hdf5.format import Hdf5
from outcore.formats.hdf5.netcdf_lengths import DimensionLengths, fit_scales
from outcore.formats.layout import ArrayInfo, Chunked, Strided
from outcore.formats.netcdf.classic.magic import refuse_classic
from outcore.formats.spec import Spec


class NetCDF4(Hdf5):
    """NetCDF4 files."""

    name = "netcdf4"
    suffixes = (".nc", ".nc4", ".cdf")
    is_netcdf = True

    def recognise(self, path: str) -> bool:
        """Return whether a file has HDF5's signature and a suffix of NetCDF4."""
        return path.lower().endswith(self.suffixes) and access.has_signature(path)

    def check_library(self, path: str) -> None:
        """Return h5py for a file; raise if it is missing, or the file is classic NetCDF."""
        refuse_classic(path)
        super().check_library(path)

    def mark_root(self, file: Any) -> None:
        """Write the attribute by which the NetCDF library recognises a new file."""
        import h5py

        text = f"version=2,outcore=1,hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        file.attrs.create("_NCProperties", np.bytes_(text.encode()))

    def create(  # type: ignore[override]  # dimensions grow, not axes
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        *,
        unlimited: bool | str | Sequence[str] = (),
    ) -> ArrayInfo:
        """
        Create a variable with its dimensions.

        An axis with the name of the variable makes it a coordinate variable. Without dims, axes are
        called ``<name>_dim0``, ``<name>_dim1``, ... `unlimited` names the axes that may grow later: one
        name, several, or True for all. Unlimited dimensions of the file stay unlimited and become as
        long as the new variable; a shorter variable is rejected.
        """
        if inner:
            refuse_classic(path)
        if spec.dtype.str[1:] not in {*NETCDF_NUMBERS, "S1"}:
            raise UnsupportedError(
                f"{path!r}: NetCDF4 has no type for dtype {spec.dtype}; use integers, float32, float64 "
                "or S1, or format='hdf5'",
                code="bad-dtype",
                path=path,
            )
        full = (inner or "/data").rstrip("/")
        final = to_final_name(full)
        group, variable = posixpath.split(final or full)
        dims = tuple(
            name or f"{variable}_dim{k}"
            for k, name in enumerate(spec.dims or (None,) * len(spec.shape))
        )
        endless = _list_unlimited(unlimited, dims)
        if len(set(dims)) != len(dims) or endless is None:
            raise UsageError(
                f"{path!r}: dims {dims} and unlimited {unlimited!r} are invalid; give different names, "
                "and unlimited ones among them (True: all)",
                code="bad-dims",
                path=path,
            )
        growing = {*endless, *_unlimited_in(path, group or "/", dims if inner else ())}
        limits = tuple(None if d in growing else n for d, n in zip(dims, spec.shape, strict=True))
        attrs = {k: to_storable(k, v, path, netcdf=True) for k, v in spec.attrs.items()}
        hidden = _name_for(path, posixpath.join(group, variable), dims, new=not inner)
        if inner and not final:
            inner = hidden
        missing = spec.find_missing_value(habit=True)
        spec = replace(spec, dims=dims, attrs=attrs, missing=missing, by_habit=False)

        def stage(file: Any, dset: Any, name: str) -> None:
            # Raise now what would be raised at the end.
            _scales(
                file, path, netcdf_names.choose_dataset_name(file, name, dims), dims, spec.shape
            )
            for axis, dim in enumerate(dims):
                dset.dims[axis].label = dim

        def finish(file: Any, dset: Any, name: str) -> None:
            _attach(file, path, dset, name, dims)

        return self.create_dataset(
            path,
            inner,
            spec,
            limits if growing else None,
            finish,
            stage=stage,
            track_order=True,
        )

    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """Give a staged variable its name and its dimensions."""

        def finish(file: Any, dset: Any, name: str) -> None:
            dims = [dim.label for dim in dset.dims]
            if dims:
                del dset.attrs["DIMENSION_LABELS"]
            _attach(file, path, dset, name, dims)

        def name_of(file: Any, dset: Any) -> str:
            return netcdf_names.choose_dataset_name(file, inner, [dim.label for dim in dset.dims])

        self.publish_dataset(path, inner, exclusive, finish, name_of)

    def adapt_limits(self, info: ArrayInfo) -> dict[str, Any]:
        """Return the dimensions of an array that can grow."""
        endless = info.extra.get("unlimited", ())
        if endless and isinstance(info.layout, Strided):  # classic NetCDF
            return {"unlimited": list(endless)}
        most = info.extra.get("maxshape")
        if not isinstance(info.layout, Chunked) or most is None:
            return {}
        names = zip(info.dims or (), most, strict=False)
        endless = [name for name, length in names if length is None and name is not None]
        return {"unlimited": endless} if endless else {}

    def is_user_array(self, dset: Any) -> bool:
        """Return whether a dataset is a variable, and not a dimension without one."""
        return not is_bare_dimension(dset)

    def make_resizer(self, info: ArrayInfo, shape: tuple[int, ...]) -> Callable[[Any], None]:
        """Return a function that changes the shape of an open variable, and lengths of dimensions."""
        path = info.extra["file"]

        def change(dset: Any) -> None:
            lengths = DimensionLengths(path)
            for axis, scale in lengths.find_unlimited(dset, check=False):
                others = lengths.measure(scale, without=dset.name)
                if shape[axis] < min(others, info.shape[axis]):
                    raise UnsupportedError(
                        f"{info.path!r} cannot change from {info.shape} to {shape}: other variables use "
                        f"the dimension {scale.name!r} and have {others} along it; make those shorter "
                        "first",
                        code="cannot-resize",
                        path=info.path,
                    )
            dset.resize(shape)
            fit_scales(path, dset)

        return change


def _name_for(path: str, name: str, dims: Sequence[str], *, new: bool) -> str:
    """Return the name of the dataset of a new variable; the file may exist."""
    if new or not os.path.exists(path):
        return netcdf_names.choose_dataset_name(None, name, dims)
    with access.open_session(path, "r") as file:
        return netcdf_names.choose_dataset_name(file, name, dims)


def _list_unlimited(unlimited: Any, dims: tuple[str, ...]) -> set[str] | None:
    """Return the dimensions that `unlimited` names; None if it is invalid."""
    if isinstance(unlimited, bool | None):
        return set(dims) if unlimited else set()
    names = [unlimited] if isinstance(unlimited, str) else unlimited
    if not isinstance(names, Collection) or not all(name in dims for name in names):
        return None
    return set(names)


def _unlimited_in(path: str, group: str, dims: Sequence[str]) -> list[str]:
    """Return those of the dimensions that are unlimited in an existing file."""
    if not dims or not os.path.exists(path):
        return []
    with access.open_session(path, "r") as file:
        scales = {dim: find_scale(file, group, dim) for dim in dims}
        return [d for d, scale in scales.items() if scale is not None and _is_unlimited(scale)]


def _is_unlimited(scale: Any) -> bool:
    return bool(scale.maxshape) and scale.maxshape[0] is None


def _attach(file: Any, path: str, dset: Any, name: str, dims: Sequence[str]) -> None:
    """Attach a scale to every axis, creating missing scales."""
    # All checks come before all changes.
    scales = _scales(file, path, name, dims, dset.shape)
    group, variable = posixpath.split(name)
    first = int(list(dims[:1]) == [variable])
    if first:
        _become_coordinate(file, dset, posixpath.join(group, variable))
    for axis, (dim, scale) in list(enumerate(zip(dims, scales, strict=True)))[first:]:
        if scale is None:
            where = posixpath.join(group or "/", dim)
            scale = _new_dimension(file, where, dset.shape[axis], dset.maxshape[axis])
        if first:
            scales[axis] = scale
        else:
            dset.dims[axis].attach_scale(scale)
    if first and len(dims) > 1:
        # No scale can be attached to a scale: it lists the numbers of its dimensions instead.
        numbers = [_number(file, scale) for scale in (dset, *scales[1:])]
        dset.attrs["_Netcdf4Coordinates"] = np.array(numbers, np.int32)
    fit_scales(access.get_path(file), dset)


def _scales(
    file: Any, path: str, name: str, dims: Sequence[str], shape: Sequence[int]
) -> list[Any]:
    """Return the scales of a new variable, None for missing ones; raise for those that do not fit."""
    group, variable = posixpath.split(name)
    group = group or "/"
    scales = [find_scale(file, group, dim) for dim in dims]
    if list(dims[:1]) == [variable]:
        scales[0] = file.get(posixpath.join(group, variable))
    elif name in file:
        check_removable(file, path, name)
    for dim, length, scale in zip(dims, shape, scales, strict=True):
        _check_dimension(file, path, posixpath.join(group, dim), length, scale, name)
    return scales


def _check_dimension(file: Any, path: str, where: str, length: int, scale: Any, name: str) -> None:
    if scale is None and where in file:
        raise UsageError(
            f"{path!r}: {where!r} exists in the file and is not a dimension; choose another name for "
            "the axis",
            code="bad-dims",
            path=path,
        )
    if scale is None:
        return
    if _is_unlimited(scale):
        there = DimensionLengths(access.get_path(file)).measure(scale, without=name)
        fits = length >= there
    else:
        there = scale.shape[0] if scale.shape else scale.shape
        fits = scale.shape[:1] == (length,)
    if not fits:
        raise UsageError(
            f"{path!r}: dimension {where!r} has length {there} in the file, not {length}; "
            "choose another name or shape",
            code="bad-dims",
            path=path,
        )


def _new_dimension(file: Any, where: str, length: int, limit: int | None) -> Any:
    growing = {"maxshape": (None,), "chunks": (1024,)} if limit is None else {}
    scale = file.create_dataset(where, (length,), ">f4", track_order=True, **growing)
    scale.make_scale(f"{BARE_DIMENSION} {length:9d}")
    scale.attrs["_Netcdf4Dimid"] = np.int32(_next_id(file))
    return scale


def _number(file: Any, scale: Any) -> int:
    """Return the number of a dimension; assign one if it has none."""
    if "_Netcdf4Dimid" not in scale.attrs:
        scale.attrs["_Netcdf4Dimid"] = np.int32(_next_id(file))
    return int(np.asarray(scale.attrs["_Netcdf4Dimid"]).flat[0])


def _next_id(file: Any) -> int:
    used = [-1]

    def visit(_: str, item: Any) -> None:
        if is_scale(item) and "_Netcdf4Dimid" in item.attrs:
            used.append(int(np.asarray(item.attrs["_Netcdf4Dimid"]).flat[0]))

    visit_objects(file, visit)
    return max(used) + 1


def _become_coordinate(file: Any, dset: Any, where: str) -> None:
    """Make the new variable the scale of its own axis, replacing an existing bare dimension."""
    old = file.get(where)
    if old is None:
        number = _next_id(file)
        users = []
    else:
        number = int(np.asarray(old.attrs.get("_Netcdf4Dimid", _next_id(file))).flat[0])
        references = old.attrs.get("REFERENCE_LIST", ())
        users = [(file[row[0]], int(row[1])) for row in references]
    dset.make_scale(posixpath.basename(where))
    dset.attrs["_Netcdf4Dimid"] = np.int32(number)
    for user, axis in users:
        user.dims[axis].detach_scale(old)
        user.dims[axis].attach_scale(dset)
