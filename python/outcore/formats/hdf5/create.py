"""
New HDF5 datasets: all their space at once, or chunks to be stored later.

Problem: elements are written without HDF5, so their space must exist in advance and must read as the
fill value. HDF5 would write that value over the whole space first.
Approach: early allocation. HDF5 fills the space if the fill value is not zero. Otherwise outcore turns
filling off, provided that the space lies past the old end of the file, where it is a hole of zeros.
Invariants: a dataset gets its name when it is complete, and only then is an older dataset with that
name removed. A dataset whose filling takes hours (`to_partial_name`) does not belong to the file's
dimensions before.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outcore import _core
from outcore.errors import StorageError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.hdf5 import access, origin
from outcore.formats.hdf5.attrs import is_bare_dimension, write_attrs
from outcore.formats.hdf5.library import h5py
from outcore.formats.hdf5.types import add_filter, make_file_type, set_fill_value
from outcore.formats.missing_values import ATTRIBUTE as MISSING
from outcore.formats.spec import Spec, choose_default_chunks

# Up to this size HDF5 writes the zeros: cheaper than checking where the space is.
_SMALL = 1 << 20

# End of the last part of a path while the dataset is being filled; the part begins with a dot.
_PARTIAL = ".outcore-partial"

#: Maximal length of each axis; None: no limit.
Limits = tuple[int | None, ...]

#: Called with the open file, the new dataset and its later name, before it gets that name.
Finish = Callable[[Any, Any, str], None]


def add_dataset(
    file: Any,
    path: str,
    name: str,
    spec: Spec,
    limits: Limits | None,
    finish: Finish,
    stage: Finish,
) -> None:
    """
    Create the dataset under a temporary name, complete it, then give it its name.

    If the name comes from `to_partial_name`, `stage` is called, and `name_dataset` calls `finish` later.
    """
    if final := to_final_name(name):
        _is_taken(file, path, final, spec.exclusive)
        remove_partial(file, name)
        dset = _create(file, path, name, spec, limits)
        _write_metadata(dset, spec, path)
        stage(file, dset, final)
        return
    taken = _is_taken(file, path, name, spec.exclusive)
    trial = f"{name.rstrip('/')}.outcore-new"
    if trial in file:
        del file[trial]
    try:
        dset = _create(file, path, trial, spec, limits)
        _write_metadata(dset, spec, path)
        finish(file, dset, name)
        if taken:
            _remove(file, path, name)
    except BaseException:
        with contextlib.suppress(Exception):
            del file[trial]
        raise
    file.move(trial, name)


def _write_metadata(dset: Any, spec: Spec, path: str) -> None:
    """Write the attributes of a new dataset, and the value that means "missing"."""
    write_attrs(dset, spec.attrs, path, netcdf=False)
    missing = spec.find_missing_value(habit=False)
    if missing is not None:
        # The NetCDF library writes one value as an array, and characters as text.
        shape = () if spec.dtype.kind == "S" else (1,)
        dset.attrs[MISSING] = np.full(shape, missing, spec.dtype)


def check_name(path: str, name: str) -> None:
    """Raise `UsageError` if a part of a name is only dots: in the library ``.`` is the group itself."""
    whole = to_final_name(name) or name
    if any(part and not part.strip(".") for part in whole.split("/")):
        raise UsageError(
            f"{path!r}: {whole!r} is not a valid name for a new array or group: a part of it is only "
            "dots; omit that part, or choose another name",
            code="bad-name",
            path=path,
        )


def name_dataset(
    file: Any, path: str, names: tuple[str, str], exclusive: bool, finish: Finish
) -> None:
    """Complete a dataset that has the first name, and give it the second one."""
    partial, name = names
    taken = _is_taken(file, path, name, exclusive)
    finish(file, file[partial], name)
    if taken:
        _remove(file, path, name)
    file.move(partial, name)


def to_partial_name(name: str) -> str:
    """
    Return the name of a dataset while it is being filled.

    >>> to_partial_name("/g/v")
    '/g/.v.outcore-partial'
    """
    group, leaf = posixpath.split(name.rstrip("/"))
    return posixpath.join(group or "/", f".{leaf}{_PARTIAL}")


def to_final_name(name: str) -> str | None:
    """
    Return the name from which `to_partial_name` made a name; None for all other names.

    >>> to_final_name("/g/.v.outcore-partial")
    '/g/v'
    """
    group, leaf = posixpath.split(name)
    if not (leaf.startswith(".") and leaf.endswith(_PARTIAL) and len(leaf) > len(_PARTIAL) + 1):
        return None
    return posixpath.join(group or "/", leaf[1 : -len(_PARTIAL)])


def remove_partial(file: Any, partial: str) -> None:
    """Remove the dataset of an interrupted conversion."""
    if partial in file:
        del file[partial]


def _remove(file: Any, path: str, name: str) -> None:
    """Delete a dataset and the cross references of its dimension scales."""
    check_removable(file, path, name)
    old = file[name]
    if "DIMENSION_LIST" in old.attrs:
        for dim in old.dims:
            for scale in dim.values():
                dim.detach_scale(scale)
    origin.mark_replaced(file, name)
    del file[name]


def check_removable(file: Any, path: str, name: str) -> None:
    """Raise `UsageError` if a dataset is the dimension scale of others."""
    if "REFERENCE_LIST" in file[name].attrs:
        raise UsageError(
            f"{path!r}: {name!r} is the dimension scale of other datasets; choose another name",
            code="bad-name",
            path=path,
        )


def _is_taken(file: Any, path: str, name: str, exclusive: bool) -> bool:
    """Return whether a dataset with that name exists and may be replaced."""
    if name not in file:
        parent = name.strip("/").split("/")[:-1]
        for depth in range(1, len(parent) + 1):
            above = "/" + "/".join(parent[:depth])
            if above in file and not isinstance(file[above], h5py.Group):
                raise UsageError(
                    f"{path!r}: {above!r} is a dataset and cannot contain {name!r}; choose another name",
                    code="bad-name",
                    path=path,
                )
        return False
    if exclusive and not is_bare_dimension(file[name]):
        raise StorageError(
            f"{path!r} already contains {name!r}; pass overwrite=True to replace it, or open it with "
            "mode 'r+' to change it",
            code="already-exists",
            path=path,
            errno=errno.EEXIST,
        )
    if isinstance(file[name], h5py.Group):
        raise UsageError(
            f"{path!r}: {name!r} is a group; choose another name, or delete it with h5py",
            code="bad-name",
            path=path,
        )
    return True


def _create(file: Any, path: str, name: str, spec: Spec, limits: Limits | None) -> Any:
    """
    Create a dataset whose elements read as the fill value.

    Without filters, all space is allocated at once. HDF5 would write zeros into all of it. It does not
    where the space lies past the old end of the file, which reads as zeros anyway.
    """
    h5d = h5py.h5d
    old_end = file.id.get_filesize()
    chunks = _choose_chunks(spec, limits)
    if chunks is None and (spec.compression or spec.chunks or limits is not None):
        _check_axes(path, spec)
    if not spec.compression:
        _check_free_space(path, spec.nbytes)
    lazily = not spec.fill_is_zero() or limits is not None or spec.nbytes <= _SMALL
    fill_time = h5d.FILL_TIME_ALLOC if lazily else h5d.FILL_TIME_NEVER
    fill_time = h5d.FILL_TIME_IFSET if spec.compression else fill_time
    plist = _make_properties(path, spec, limits, chunks)
    kind, space = make_file_type(spec.dtype, path), _make_space(spec, limits)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)

    def create(fill_time: int) -> Any:
        plist.set_fill_time(fill_time)
        h5d.create(file.id, name.encode(), kind, space, plist, links)
        return file[name]

    dset = create(fill_time)
    if fill_time != h5d.FILL_TIME_NEVER:
        return dset
    extents = _list_extents(dset, chunks)
    if min((offset for offset, _ in extents), default=old_end) < old_end:
        del file[name]
        return create(h5d.FILL_TIME_ALLOC)
    file.flush()
    _allocate(access.get_path(file), extents)
    return dset


def _make_properties(
    path: str, spec: Spec, limits: Limits | None, chunks: tuple[int, ...] | None
) -> Any:
    """Return the list of properties of a new dataset, except the time of filling."""
    h5d, plist = h5py.h5d, h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks is None:
        plist.set_layout(h5d.CONTIGUOUS)
    else:
        plist.set_chunk(chunks)
        for codec in spec.compression:
            add_filter(plist, codec, spec.dtype.itemsize, path)
    plist.set_alloc_time(h5d.ALLOC_TIME_INCR if spec.compression else h5d.ALLOC_TIME_EARLY)
    if not spec.fill_is_zero():
        set_fill_value(plist, spec.fill_value, spec.dtype, path)
    elif limits is not None:
        # Set explicitly, because without a fill value the NetCDF library returns its own default for
        # elements of an unlimited dimension past the end of a variable.
        set_fill_value(plist, np.zeros((), spec.dtype), spec.dtype, path)
    return plist


def _make_space(spec: Spec, limits: Limits | None) -> Any:
    h5s = h5py.h5s
    if not spec.shape:
        return h5s.create(h5s.SCALAR)
    most = None if limits is None else tuple(h5s.UNLIMITED if n is None else n for n in limits)
    return h5s.create_simple(spec.shape, most)


def _choose_chunks(spec: Spec, limits: Limits | None) -> tuple[int, ...] | None:
    """Return a chunk shape that HDF5 accepts: no longer than fixed axes; None if an axis is empty."""
    wanted = spec.chunks
    if wanted is None and (spec.compression or limits is not None):
        wanted = choose_default_chunks(spec.shape, spec.dtype.itemsize)
    most = spec.shape if limits is None else limits
    if not wanted or any(n == 0 for n in most):
        return None
    return tuple(c if n is None else min(c, n) for c, n in zip(wanted, most, strict=True))


def _check_axes(path: str, spec: Spec) -> None:
    if spec.compression or spec.shape == ():
        raise UnsupportedError(
            f"{path!r}: HDF5 cannot chunk an array of shape {spec.shape}; omit chunks, compression and "
            "resizable, or give the empty axes a maxshape",
            code="cannot-keep",
            path=path,
        )


def _list_extents(dset: Any, chunks: tuple[int, ...] | None) -> list[tuple[int, int]]:
    if chunks is None:
        size = dset.id.get_storage_size()
        return [(dset.id.get_offset(), size)] if size else []
    extents: list[tuple[int, int]] = []

    def visit(info: Any) -> None:
        last = extents[-1] if extents else (0, -1)
        if sum(last) == info.byte_offset:
            extents[-1] = (last[0], last[1] + info.size)
        else:
            extents.append((info.byte_offset, info.size))

    dset.id.chunk_iter(visit)
    return extents


def _check_free_space(path: str, nbytes: int) -> None:
    """Raise `StorageError` for a full disk before HDF5 begins to change the file."""
    with durable.os_errors("creating a dataset in", path):
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
        if nbytes > disk.f_bavail * disk.f_frsize:
            raise OSError(
                errno.ENOSPC, f"{nbytes} bytes needed, {disk.f_bavail * disk.f_frsize} free"
            )


def _allocate(path: str, extents: list[tuple[int, int]]) -> None:
    """Allocate disk blocks for the new space, so that a full disk is detected now."""
    with durable.os_errors("allocating in", path), durable.open_fd(path, os.O_RDWR) as fd:
        for offset, size in extents:
            _core.allocate(fd, offset, offset + size)


def parse_limits(
    path: str, spec: Spec, resizable: bool, maxshape: bool | int | Sequence[int | None] | None
) -> Limits | None:
    """Return the requested maximal shape; None if the shape is fixed."""
    if maxshape is None or maxshape is False:
        return (None,) * len(spec.shape) if resizable and spec.shape else None
    limits = (None,) * len(spec.shape) if maxshape is True else _parse_lengths(maxshape)
    if len(limits) != len(spec.shape) or any(
        m is not None and m < n for m, n in zip(limits, spec.shape, strict=True)
    ):
        raise UsageError(
            f"{path!r}: maxshape {maxshape!r} does not fit shape {spec.shape}; pass for each axis "
            "None, or at least its length",
            code="bad-shape",
            path=path,
        )
    return limits


def _parse_lengths(maxshape: Any) -> Limits:
    """Convert to integers and None; an invalid length becomes -1, which fits no shape."""
    axes = maxshape if isinstance(maxshape, Sequence | np.ndarray) else (maxshape,)
    found: list[int | None] = []
    for length in axes:
        try:
            found.append(None if length is None else operator.index(length))
        except TypeError:
            found.append(-1)
    return tuple(found)
