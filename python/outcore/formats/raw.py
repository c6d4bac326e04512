"""
Raw: bare elements without a header.

Problem: simulations write bare binary files, often one array in several files; only the user knows
shape, dtype, offset and order.
Approach: the metadata come from the caller and are checked against the sizes of the files.
Invariants: the array is inside the files as they are when it is described; no element is touched
(`Raw.create` allocates zero bytes).
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import math
import operator
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outcore import _core
from outcore.errors import FormatError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable, locks, unfinished
from outcore.formats.format import Format, Resizable
from outcore.formats.layout import ArrayInfo, Origin, Part, Strided
from outcore.formats.paths import path_names
from outcore.formats.spec import (
    MAX_BYTES,
    Entry,
    Spec,
    as_dtype,
    byte_strides,
    check_dtype,
    check_order,
    check_shape,
)


class Raw(Format, Resizable):
    """Bare elements in one or more files without a header."""

    name = "raw"
    suffixes = (".bin", ".raw", ".dat")
    unrecorded_options = ("dtype", "shape", "order", "offset", "files")

    def recognise(self, path: str) -> bool:
        """Return False: raw files have no marks, and are selected by name, suffix or options."""
        return False

    def get_log_path(self, path: str) -> str:
        """Return the record of an append."""
        return unfinished.make_record_path(path)

    def get_unrecorded_options(self, info: ArrayInfo) -> dict[str, Any]:
        """Return shape, dtype, order, offset, and the files, which a pattern may have named."""
        return {
            "dtype": info.dtype,
            "shape": info.shape,
            "order": info.order,
            "offset": info.extra["offset"],
            "files": list(info.extra["files"]),
        }

    def describe(
        self,
        path: str,
        inner: str | None,
        writable: bool,
        *,
        files: Sequence[str] | None = None,
        shape: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        offset: int = 0,
        order: str = "C",
    ) -> ArrayInfo:
        """
        Describe raw elements in one or more files; `dtype` is required.

        `path` is a file, or a pattern (``part*.bin``: the files in natural order, 2 before 10); `files`
        is a list of files in order instead. One length in `shape` may be -1 and follows from the size;
        without `shape` there is one axis. `offset` is the number of bytes to skip at the beginning of
        each file.
        """
        check_no_inner("a raw file", path, inner)
        if dtype is None:
            raise UsageError(
                f"{path!r}: a raw file does not specify its contents; pass dtype= and shape=",
                code="raw-needs-dtype",
                path=path,
            )
        kind = check_dtype(as_dtype(dtype, path), path, stored=False)
        names = _expand(path) if files is None else path_names(files)
        if writable:
            for name in names:
                unfinished.undo_if_abandoned(name)
        offset = _check_offset(path, offset)
        room = _measure_files(names, offset)
        full = _complete_shape(path, shape, kind.itemsize, sum(room))
        parts = _add_origins(
            _divide_bytes(path, names, room, offset, math.prod(full) * kind.itemsize)
        )
        return _make_info(path, full, kind, check_order(order), parts)

    def create(
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        *,
        files: Sequence[str] | None = None,
        offset: int = 0,
    ) -> ArrayInfo:
        """
        Allocate a raw file, or several `files` that share the slowest axis evenly.

        Each file is replaced atomically; a set of files is not (a crash can leave some of them).
        """
        check_no_inner("a raw file", path, inner)
        check_storable(self.name, path, spec, chunks=True, attrs=True, dims=True)
        offset = _check_offset(path, offset, spec.nbytes)
        names = [path] if files is None else path_names(files)
        if not names or len(set(map(os.path.realpath, names))) != len(names):
            raise UsageError(
                f"{path!r}: files must be a non-empty list of different paths",
                code="bad-files",
                path=path,
            )
        if files is None and glob.has_magic(path) and not os.path.exists(path):
            raise UsageError(
                f"{path!r} is a pattern; to create several files pass their paths as a list",
                code="bad-files",
                path=path,
            )
        made = [
            Part(name, offset, size, _allocate(name, offset + size, exclusive=spec.exclusive))
            for name, size in zip(names, _share(spec, len(names)), strict=True)
        ]
        parts = tuple(part for part in made if part.nbytes) or (made[0],)
        return _make_info(path, spec.shape, spec.dtype, spec.order, parts)

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """Return one array of unknown shape."""
        return [
            Entry(
                path,
                "array",
                note="raw: shape and dtype are not stored in the file; pass dtype= and shape=",
            )
        ]

    @contextlib.contextmanager
    def lock_length(self, info: ArrayInfo) -> Iterator[ArrayInfo]:
        """Keep others from changing the length; yield the array with its current length."""
        *head, last = _get_layout(info).parts
        axis = 0 if info.order == "C" else len(info.shape) - 1
        with locks.lock_length(last.path):
            unfinished.undo_unfinished_append(last.path)
            with durable.os_errors("opening", last.path):
                if last.origin and last.origin.file != _core.file_id(last.path):
                    raise StorageError(
                        f"{last.path!r} was replaced by another file since it was opened; open it again",
                        code="file-changed",
                        path=last.path,
                    )
                room = max(os.stat(last.path).st_size - last.offset, 0)
            step = math.prod(n for d, n in enumerate(info.shape) if d != axis) * info.dtype.itemsize
            if info.shape and step:
                length = (sum(p.nbytes for p in head) + room) // step
                shape = tuple(length if d == axis else n for d, n in enumerate(info.shape))
                yield _change_last(info, shape)
            else:
                yield info

    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Allocate space after the last file's end; others see the old length until `resize`.

        A record next to the file states the old length (`unfinished`).
        """
        last, longer = _get_last(info), _change_last(info, shape)
        end, new = last.offset + last.nbytes, last.offset + _get_last(longer).nbytes
        if new > end:
            with durable.os_errors("opening", last.path):
                size = os.stat(last.path).st_size
            if size > end:
                raise UsageError(
                    f"{last.path!r} continues after the array, which ends at byte {end}: {size - end} "
                    "bytes would be overwritten; check shape, dtype and offset, or cut the file there",
                    code="bad-shape",
                    path=info.path,
                )
            unfinished.begin(last.path, end, new)
        return longer

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """Grow (as prepared by `reserve`) or shrink along the slowest axis, at the last file's end."""
        shorter = _change_last(info, shape)
        last, nbytes = _get_last(info), _get_last(shorter).nbytes
        if nbytes < last.nbytes:
            durable.change_length(last.path, last.offset + last.nbytes, last.offset + nbytes)
            return shorter
        room = self.reserve(info, shape)
        if os.path.lexists(unfinished.make_record_path(last.path)):
            unfinished.end(last.path, last.offset + nbytes)
        return room

    def release(self, info: ArrayInfo) -> None:
        """Release the space that was reserved for an array that did not grow."""
        unfinished.undo_unfinished_append(_get_last(info).path)


def _allocate(name: str, end: int, *, exclusive: bool) -> Origin:
    """Create a file of `end` bytes that read as zeros."""
    made: list[tuple[int, int, int]] = []

    def fill(fd: int) -> None:
        _core.allocate(fd, 0, end)
        made.append(_core.file_id(fd))

    durable.create_file(name, fill, exclusive=exclusive)
    return Origin(made[0])


def _add_origins(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Add the identity of each existing file to its part."""
    known = []
    for part in parts:
        with durable.os_errors("opening", part.path):
            known.append(replace(part, origin=Origin(_core.file_id(part.path))))
    return tuple(known)


def _get_last(info: ArrayInfo) -> Part:
    return _get_layout(info).parts[-1]


def _change_last(info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
    """Return the array with another shape, for which its last file is longer or shorter."""
    find_growth_axis(info, shape)
    *head, last = _get_layout(info).parts
    nbytes = math.prod(shape) * info.dtype.itemsize - sum(p.nbytes for p in head)
    if nbytes < 0:
        raise UnsupportedError(
            f"{info.path!r}: shape {shape} would leave the last of {len(head) + 1} files empty; "
            "copy to a new array instead",
            code="cannot-resize",
            path=info.path,
        )
    parts = (*head, replace(last, nbytes=nbytes))
    return _make_info(info.path, shape, info.dtype, info.order, parts)


def find_growth_axis(info: ArrayInfo, shape: tuple[int, ...]) -> int:
    """Return the slowest axis, the only one that can grow in a dense file; raise for other changes."""
    axis = 0 if info.order == "C" else len(info.shape) - 1
    same = len(shape) == len(info.shape) and len(shape) > 0
    if not same or any(
        a != b for d, (a, b) in enumerate(zip(info.shape, shape, strict=True)) if d != axis
    ):
        where = f"axis {axis}" if info.shape else "no axis"
        raise UnsupportedError(
            f"{info.path!r}: a {info.format} file in order {info.order} can only change its length "
            f"along {where}, not from {info.shape} to {shape}; use chunks (Zarr, HDF5) or convert",
            code="cannot-resize",
            path=info.path,
        )
    return axis


def check_storable(
    name: str,
    path: str,
    spec: Spec,
    *,
    chunks: bool = False,
    attrs: bool = False,
    dims: bool = False,
) -> None:
    """Raise for options that a bare dense file cannot store, instead of losing them silently."""
    options = [
        ("chunks", chunks and spec.chunks is not None),
        ("shards", chunks and spec.shards is not None),
        ("compression", chunks and bool(spec.compression)),
        ("fill_value (other than zero)", not spec.fill_is_zero()),
        ("fill_value (of missing elements)", spec.find_missing_value(habit=False) is not None),
        ("attrs", attrs and bool(spec.attrs)),
        ("dims", dims and spec.dims is not None and any(spec.dims)),
    ]
    lost = [what for what, wanted in options if wanted]
    if lost:
        raise UnsupportedError(
            f"{path!r}: a {name} file cannot store {', '.join(lost)}; omit it, or use format 'zarr' or "
            "'hdf5'",
            code="cannot-keep",
            path=path,
        )


def _make_info(
    path: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    order: str,
    parts: tuple[Part, ...],
) -> ArrayInfo:
    return ArrayInfo(
        path=path,
        format=Raw.name,
        shape=shape,
        dtype=dtype,
        layout=Strided(parts, byte_strides(shape, dtype.itemsize, order)),
        order=order,
        extra={"files": tuple(p.path for p in parts), "offset": parts[0].offset},
    )


def _get_layout(info: ArrayInfo) -> Strided:
    if not isinstance(info.layout, Strided):
        raise UsageError(f"{info.path!r} is not a dense array", code="bad-layout", path=info.path)
    return info.layout


def check_no_inner(kind: str, path: str, inner: str | None) -> None:
    """Raise if a path inside a file is given, for a `kind` of file that holds one array."""
    if inner is not None:
        raise UsageError(
            f"{path!r}: {kind} holds one array without inner paths; omit {'::' + inner!r}",
            code="no-such-array",
            path=path,
        )


def _check_offset(path: str, offset: Any, nbytes: int = 0) -> int:
    try:
        first = operator.index(offset)
    except TypeError:
        first = -1
    if not 0 <= first <= MAX_BYTES - nbytes:
        is_negative = isinstance(offset, int) and offset < 0
        wrong = "is negative" if is_negative else "is not a position in a file"
        raise UsageError(
            f"{path!r}: offset {offset!r} {wrong}; give the byte of the first element",
            code="bad-offset",
            path=path,
        )
    return first


def _expand(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    names = sorted(glob.glob(path), key=_make_natural_key)
    if not names:
        with durable.os_errors("opening", path):
            raise FileNotFoundError(2, "no file matches the pattern", path)
    return names


def _make_natural_key(name: str) -> list[tuple[int, str]]:
    return [(int(t), "") if k % 2 else (0, t) for k, t in enumerate(re.split(r"([0-9]+)", name))]


def _measure_files(names: list[str], offset: int) -> list[int]:
    if not names:
        raise UsageError("the list of files is empty; pass at least one file", code="bad-files")
    room = []
    for name in names:
        durable.check_not_special(name)
        with durable.os_errors("opening", name):
            size = unfinished.read_size(name)
        if size < offset:
            raise FormatError(
                f"{name!r} has {size} bytes, fewer than the offset of {offset}; check offset=",
                code="file-too-short",
                path=name,
                offset=size,
            )
        room.append(size - offset)
    return room


def _complete_shape(
    path: str, shape: int | Sequence[int] | None, itemsize: int, room: int
) -> tuple[int, ...]:
    axes = [-1] if shape is None else list(shape) if isinstance(shape, Sequence) else [shape]
    if axes.count(-1) == 1:
        known = math.prod(n for n in axes if n != -1) * itemsize
        if known <= 0 or room % known:
            raise UsageError(
                f"{path!r}: {room} bytes are not a whole number of {known}-byte steps of shape "
                f"{tuple(axes)}; check shape, dtype and offset",
                code="bad-shape",
                path=path,
            )
        axes[axes.index(-1)] = room // known
    return check_shape(axes, itemsize, path, stored=False)


def _divide_bytes(
    path: str, names: list[str], room: list[int], offset: int, nbytes: int
) -> tuple[Part, ...]:
    """Divide `nbytes` over the files in order. Only the last file may be longer than needed."""
    if nbytes > sum(room):
        raise FormatError(
            f"{path!r} should hold {nbytes} bytes but has {sum(room)} from offset {offset} in "
            f"{len(names)} file(s); check shape and dtype, or the file was cut off",
            code="file-too-short",
            path=path,
            offset=offset,
        )
    parts: list[Part] = []
    left = nbytes
    for name, size in zip(names, room, strict=True):
        if left > 0 or not parts:
            parts.append(Part(name, offset, min(size, left)))
            left -= parts[-1].nbytes
        elif size:
            raise FormatError(
                f"{path!r}: the array ends before file {name!r}, which has {size} more bytes; "
                "check the shape and the list of files",
                code="too-many-files",
                path=name,
            )
    return tuple(p for p in parts if p.nbytes) or (parts[0],)


def _share(spec: Spec, count: int) -> list[int]:
    """Return the bytes of each file: whole steps of the slowest axis, as even as possible."""
    if count == 1:
        return [spec.nbytes]
    axis = 0 if spec.order == "C" else len(spec.shape) - 1
    length = spec.shape[axis] if spec.shape else 1
    step = spec.nbytes // length if length else 0
    cuts = [length * k // count for k in range(count + 1)]
    return [(b - a) * step for a, b in itertools.pairwise(cuts)]
