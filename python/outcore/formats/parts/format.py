"""
Parts: one array in several files and folders, which a small manifest names.

Problem: an array should be distributed over several disks, or over a folder for each rank, and remain
one array for all users; and a program that only has NumPy should be able to read each file.
Approach: each part is an ordinary ``.npy`` file. The rows of the array (indices of its slowest axis)
are distributed over the parts round-robin in *stripes*: stripe ``k`` is in part ``k % parts``, after
the earlier stripes of that part. With stripes as long as a part, each part is one block. For the core
it is one array in pieces of files (`Strided`), so nothing above depends on parts. ``NAME.parts`` is the
manifest::

    {"format": "outcore parts", "version": 1, "id": "53f0c2a9d1e84b70",
     "shape": [1000, 3000], "dtype": "<f8", "order": "C", "stripe": 250,
     "parts": ["field-53f0c2a9d1e84b70-0.npy", "/disk2/field-53f0c2a9d1e84b70-1.npy"]}

Paths are relative to the folder of the manifest, or absolute. `parts.files` creates, replaces and
removes parts and manifest, so that a crash leaves the old array or the new one.

Appended rows go into further stripes, at the ends of the parts. A part may have more rows than the
manifest states; these do not belong to the array. So parts become longer before the manifest states a
greater length, and shorter after it has stated a smaller one: the rename of the manifest is the
decisive step.

Invariants: every part is checked when the array is opened: the error names a part that is missing, too
short, or from another array (another dtype, order, or length of an axis other than the slowest). Rows
after the end are cut off before new ones get their place.
"""

from __future__ import annotations

import contextlib
import errno
import math
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from outcore import _core
from outcore.errors import FormatError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable, homes, raw
from outcore.formats.format import Format, HasFiles, Resizable
from outcore.formats.layout import ArrayInfo, Part, Strided
from outcore.formats.npy import Npy
from outcore.formats.parts import files as part_files
from outcore.formats.parts.manifest import (
    MOST_PARTS,
    MOST_STRIPES,
    PartsManifest,
    make_part_name,
    read_manifest,
)
from outcore.formats.paths import path_names
from outcore.formats.spec import Spec, byte_strides

#: Approximate bytes of a stripe of an array without rows, whose parts have no length yet.
_STRIPE = 4 << 20
_PROBED = 256
# Number of attempts to open an array that is replaced at the same time.
_TRIES = 5
_NPY = Npy()


@dataclass(frozen=True, slots=True)
class PartsInfo(ArrayInfo):
    """An array with its current or future manifest, and its parts, which may have more rows."""

    manifest: PartsManifest | None = field(default=None, compare=False, repr=False)
    held: tuple[ArrayInfo, ...] = field(default=(), compare=False, repr=False)


class PartsFormat(Format, Resizable, HasFiles):
    """Arrays in several ``.npy`` files, which a manifest names."""

    name = "parts"
    suffixes = (".parts",)
    plain_orders = ("C", "F")
    part_format = _NPY.name
    file_options = ("folders", "parts", "stripe")

    def recognise(self, path: str) -> bool:
        """Return whether a file begins like a manifest."""
        beginning = durable.read_beginning(path, _PROBED)
        return beginning.lstrip().startswith(b'{"format": "outcore parts"')

    def describe(
        self,
        path: str,
        inner: str | None,
        writable: bool,
        *,
        folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    ) -> PartsInfo:
        """
        Read the manifest, and the header of each part.

        `folders` are folders of parts, for an array that was created with parts in other folders and
        moved or copied since. `FormatError` ``bad-part``: a part belongs to another array;
        ``file-too-short``, ``bad-header``: it is damaged. `StorageError` ``not-found``: a part is
        missing.
        """
        raw.check_no_inner("a manifest of parts", path, inner)
        allowed = [] if folders is None else path_names(folders)
        for _ in range(_TRIES):
            manifest = read_manifest(path, allowed)
            try:
                infos = [
                    _read_part(path, manifest, number, writable)
                    for number in range(len(manifest.parts))
                ]
            except OutcoreError:
                # Otherwise it has other parts by now, or fewer rows in them.
                if read_manifest(path, allowed) == manifest:
                    raise
            else:
                return _make_info(path, manifest, infos)
        raise StorageError(
            f"{path!r} was replaced repeatedly while it was being opened; open it again later",
            code="file-changed",
            path=path,
        )

    def create(
        self,
        path: str,
        inner: str | None,
        spec: Spec,
        *,
        folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        parts: int | None = None,
        stripe: int | None = None,
    ) -> ArrayInfo:
        """
        Create the parts, then the manifest.

        `folders` are existing folders, to which parts are assigned round-robin; default: that of the
        manifest. `parts` is the number of parts; default: one for each folder. `stripe` is the number
        of consecutive rows in one part; default: all rows of a part or, for an array without rows,
        which will grow, as many as 4 MiB hold.
        """
        raw.check_no_inner("a manifest of parts", path, inner)
        raw.check_storable(self.name, path, spec, chunks=True, attrs=True, dims=True)
        place = os.path.realpath(path)
        places = [os.path.dirname(place)] if folders is None else path_names(folders)
        count = _check_count("parts", len(places) if parts is None else parts, path)
        count = count if spec.shape else 1
        order = spec.order if len(spec.shape) > 1 else "C"
        rows = (spec.shape[0 if order == "C" else -1]) if spec.shape else 1
        row = max(_count_row_bytes(spec.shape, order, spec.dtype), 1)
        share = -(-rows // count) or max(_STRIPE // row, 1)
        turn = share if stripe is None else _check_count("stripe", stripe, path)
        if count > MOST_PARTS or -(-rows // turn) > MOST_STRIPES:
            raise UsageError(
                f"{path!r}: {count} parts with {-(-rows // turn)} stripes are more than the limits of "
                f"{MOST_PARTS} and {MOST_STRIPES}; pass a larger stripe=",
                code="bad-chunks",
                path=path,
            )
        for folder in places:
            with durable.os_errors("inspecting the folder of parts", folder):
                if not os.path.isdir(folder):
                    os.stat(folder)
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        name = os.urandom(8).hex()
        files = tuple(
            make_part_name(os.path.realpath(places[k % len(places)]), place, name, k)
            for k in range(count)
        )
        manifest = PartsManifest(place, name, spec.shape, spec.dtype, order, turn, files)
        document = manifest.document()
        infos = []
        with part_files.ManifestChange(place, path) as change:
            change.refuse_existing(exclusive=spec.exclusive)
            change.note(name, files)
            homes.admit(files, name, os.path.dirname(place))
            for number, file in enumerate(files):
                one = replace(spec, shape=manifest.shape_of(number), order=order, exclusive=True)
                infos.append(_NPY.create(file, None, one))
            change.publish(document, exclusive=spec.exclusive)
        return _make_info(path, manifest, infos)

    @contextlib.contextmanager
    def lock_length(self, info: ArrayInfo) -> Iterator[ArrayInfo]:
        """Keep others from changing the array and its length; yield it with its current manifest."""
        known = _get_manifest(info)
        with part_files.ManifestChange(known.path, info.path):
            now = self.describe(known.path, None, False, folders=known.folders or None)
            if _get_manifest(now).id != known.id:
                raise _changed_error(
                    info.path, "was replaced by another array since it was opened; open it"
                )
            yield replace(now, path=info.path)

    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Allocate space in the parts for a longer array; their headers and the manifest do not change.

        Rows that a killed change left after the old end are removed first.
        """
        raw.find_growth_axis(info, shape)
        new = _change_shape(_get_manifest(info), shape)
        held = [_NPY.reserve(one, new.shape_of(k)) for k, one in enumerate(_cut_parts(info))]
        return _make_info(info.path, new, held)

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the length of the slowest axis: one rename of the manifest.

        Parts become longer before it, each with its elements, and shorter after it.
        """
        raw.find_growth_axis(info, shape)
        told = read_manifest(_get_manifest(info).path, _get_manifest(info).folders)
        new = _change_shape(told, shape)
        try:
            room = self.reserve(info, shape) if new.rows > _get_manifest(info).rows else info
            held = _write_headers(_get_parts(room), told, new, operator.gt)
            part_files.rewrite(new.path, new.document())
            return _make_info(info.path, new, _write_headers(held, told, new, operator.lt))
        except BaseException:
            with contextlib.suppress(Exception):  # report the first error
                self.release(info)
            raise

    def release(self, info: ArrayInfo) -> None:
        """Release the space that was reserved for an array that did not grow."""
        known = _get_manifest(info)
        for one in _cut_parts(self.describe(known.path, None, True, folders=known.folders or None)):
            _NPY.release(one)

    def files(self, path: str) -> tuple[str, ...]:
        """Return the manifest, and the parts."""
        manifest = read_manifest(path)
        return (path, *manifest.parts)

    def copy(
        self, source: str, target: str, *, exclusive: bool, folders: Sequence[str] | None = None
    ) -> None:
        """
        Copy parts and manifest.

        Parts next to the manifest go next to the new one, others into their own folders; or all into
        `folders`, round-robin.
        """
        manifest = read_manifest(source)
        place = os.path.realpath(target)
        fresh = _name_parts_anew(manifest, place, folders)
        with part_files.ManifestChange(place, target) as change:
            change.refuse_existing(exclusive=exclusive)
            change.note(fresh.id, fresh.parts)
            homes.admit(fresh.parts, fresh.id, os.path.dirname(place))
            for old, new in zip(manifest.parts, fresh.parts, strict=True):
                durable.copy_file(old, new, exclusive=True)
            if read_manifest(source) != manifest:  # parts may have become shorter
                raise _changed_error(source, "was changed while it was copied; copy it")
            change.publish(fresh.document(), exclusive=exclusive)

    def move(self, source: str, target: str, *, exclusive: bool) -> None:
        """
        Rename the manifest; parts next to it move to its new folder, others stay.

        Each step leaves one array: under the old name, and then under the new one.
        """
        here, place = os.path.realpath(source), os.path.realpath(target)
        near = os.path.dirname(place) == os.path.dirname(here)
        with contextlib.ExitStack() as both:
            # This excludes appends. All processes lock two manifests in the same order.
            names = sorted([(here, source), (place, target)])
            held = {
                name: both.enter_context(part_files.ManifestChange(name, said))
                for name, said in names
            }
            manifest, change = read_manifest(source), held[place]
            if not near:
                # The manifest must name the same parts in the other folder.
                homes.admit(manifest.parts, manifest.id, os.path.dirname(place))
                held[here].publish(manifest.document(absolute=True), exclusive=False)
            change.refuse_existing(exclusive=exclusive)
            change.take(here, exclusive=exclusive)
            if near:
                return
            with durable.os_errors("renaming to", target):
                _core.fsync_folder(manifest.path)
                fresh = _name_parts_anew(manifest, place, None)
                change.note(fresh.id, fresh.parts)
                homes.admit(fresh.parts, fresh.id, os.path.dirname(place))
                for old, new in zip(manifest.parts, fresh.parts, strict=True):
                    os.link(old, new)
                    _core.fsync_folder(new)
            change.publish(fresh.document(), exclusive=False)

    def remove(self, path: str) -> None:
        """Remove the manifest, then the parts."""
        part_files.remove(path)

    def take_place(self, fresh: str, target: str, exclusive: bool) -> None:
        """Give a complete array the name of the one that it replaces."""
        part_files.take_place(fresh, target, exclusive)


def _read_part(path: str, manifest: PartsManifest, number: int, writable: bool) -> ArrayInfo:
    """Read the header of one part and check it."""
    file = manifest.parts[number]
    said = f"part {number} of {len(manifest.parts)} of {path!r}"
    try:
        if durable.is_special(file):
            raise FormatError(
                f"{file!r} is a pipe, a device or a socket; restore the original part",
                code="not-regular",
                path=file,
            )
        info = _NPY.describe(file, None, writable)
    except OutcoreError as error:
        error.message = f"{said}: {error.message}"
        raise
    shape, order = manifest.shape_of(number), manifest.order
    # For at most one element, both orders are the same.
    same = info.order == order or math.prod(info.shape) <= 1 or len(shape) <= 1
    if not _has_rows(info.shape, shape, manifest.axis) or info.dtype != manifest.dtype or not same:
        raise FormatError(
            f"{said}: {file!r} has shape {info.shape}, dtype {info.dtype} and order {info.order}, but "
            f"should have {shape}, {manifest.dtype} and {order}, so it belongs to another array; "
            "restore the original part",
            code="bad-part",
            path=file,
        )
    return info


def _has_rows(found: tuple[int, ...], shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a part has all rows of `shape`, and perhaps more."""
    across = found[:axis] + found[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    return across and len(found) == len(shape) and found[axis:] >= shape[axis:]


def _cut_parts(info: ArrayInfo) -> list[ArrayInfo]:
    """Cut each part to the length that the manifest states."""
    shapes = [_get_manifest(info).shape_of(k) for k in range(len(_get_parts(info)))]
    return [
        _NPY.resize(one, shape) if one.shape != shape else one
        for one, shape in zip(_get_parts(info), shapes, strict=True)
    ]


def _write_headers(
    held: list[ArrayInfo],
    told: PartsManifest,
    new: PartsManifest,
    which: Callable[[int, int], bool],
) -> list[ArrayInfo]:
    """Write the new number of rows into the headers for which `which` holds, compared with `told`."""
    return [
        _NPY.resize(one, new.shape_of(k)) if which(new.rows_of(k), told.rows_of(k)) else one
        for k, one in enumerate(held)
    ]


def _change_shape(manifest: PartsManifest, shape: tuple[int, ...]) -> PartsManifest:
    """Return the manifest for another shape."""
    new = replace(manifest, shape=shape)
    if new.stripes > MOST_STRIPES:
        raise UnsupportedError(
            f"{manifest.path!r}: shape {shape} needs {new.stripes} stripes of {new.stripe} rows, but at "
            f"most {MOST_STRIPES} are possible; convert the array to one with a larger stripe=",
            code="cannot-resize",
            path=manifest.path,
        )
    return new


def _get_manifest(info: ArrayInfo) -> PartsManifest:
    if not isinstance(info, PartsInfo) or info.manifest is None:
        raise UsageError(f"{info.path!r} is not in parts", code="bad-layout", path=info.path)
    return info.manifest


def _get_parts(info: ArrayInfo) -> list[ArrayInfo]:
    return list(info.held) if isinstance(info, PartsInfo) else []


def _changed_error(path: str, what: str) -> StorageError:
    return StorageError(f"{path!r} {what} again", code="file-changed", path=path)


def _name_parts_anew(
    manifest: PartsManifest, place: str, folders: Sequence[str] | None
) -> PartsManifest:
    """Return the manifest of the same array at `place`, with new names of parts."""
    here, there = os.path.dirname(manifest.path), os.path.dirname(place)
    array_id = os.urandom(8).hex()
    parts = []
    for number, part in enumerate(manifest.parts):
        folder = os.path.dirname(part)
        if folders is not None:
            folder = os.path.realpath(folders[number % len(folders)])
        elif folder == here:
            folder = there
        parts.append(make_part_name(folder, place, array_id, number))
    return replace(manifest, path=place, id=array_id, parts=tuple(parts))


def _count_row_bytes(shape: tuple[int, ...], order: str, dtype: np.dtype[Any]) -> int:
    """Return the bytes of one index of the slowest axis."""
    return math.prod(shape[1:] if order == "C" else shape[:-1]) * dtype.itemsize


def _make_info(path: str, manifest: PartsManifest, infos: Sequence[ArrayInfo]) -> PartsInfo:
    """Return the description of an array, whose pieces are stripes in the order of rows."""
    held: list[Part] = []
    for info in infos:
        if isinstance(info.layout, Strided):  # always: a .npy file
            held.append(info.layout.parts[0])
    row = _count_row_bytes(manifest.shape, manifest.order, manifest.dtype)
    count = len(held)
    turn = manifest.stripe if count > 1 else max(manifest.rows, 1)
    pieces: list[Part] = []
    for first in range(0, manifest.rows if row else 0, turn):
        part, rows = held[first // turn % count], min(turn, manifest.rows - first)
        behind = first // turn // count * turn
        pieces.append(Part(part.path, part.offset + behind * row, rows * row, part.origin))
    return PartsInfo(
        path=path,
        format=PartsFormat.name,
        shape=manifest.shape,
        dtype=manifest.dtype,
        layout=Strided(
            tuple(pieces) or (replace(held[0], nbytes=0),),
            byte_strides(manifest.shape, manifest.dtype.itemsize, manifest.order),
        ),
        order=manifest.order,
        extra={"parts": manifest.parts, "stripe": manifest.stripe, "id": manifest.id},
        manifest=manifest,
        held=tuple(infos),
    )


def _check_count(name: str, value: Any, path: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(
            f"{path!r}: {name}={value!r} is not a positive integer; pass 1 or more",
            code="bad-chunks",
            path=path,
        )
    return count
