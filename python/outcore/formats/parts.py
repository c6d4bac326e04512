"""
Parts: one array in several files and folders, which a small manifest names.

Problem. An array is to lie on several disks, or in a folder for each rank, and stay one thing for all
who use it; and whoever has nothing but NumPy should be able to read each file.
Idea. Each part is an ordinary ``.npy`` file. The rows of the array (indices of its slowest axis) go to
the parts in *stripes*, in turns: stripe ``k`` is in part ``k % parts``, behind those that went there
before. With stripes as long as a part that is a block for each part. To the core it is one array that
lies in pieces of files (`Strided`), so nothing above knows of it. ``NAME.parts`` is the manifest::

    {"format": "outcore parts", "version": 1, "id": "53f0c2a9d1e84b70",
     "shape": [1000, 3000], "dtype": "<f8", "order": "C", "stripe": 250,
     "parts": ["field-53f0c2a9d1e84b70-0.npy", "/disk2/field-53f0c2a9d1e84b70-1.npy"]}

Paths are relative to the folder of the manifest, or absolute. `part_files` makes, replaces and removes
parts and manifest, so that a crash leaves the old array or the new one.

Invariants. Every part is looked at when the array is opened: one that is missing, too short, or not of
this array (another shape, dtype or order) is named in the error.
"""

from __future__ import annotations

import builtins
import errno
import json
import math
import operator
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from outcore import _core
from outcore.errors import FormatError, OutcoreError, StorageError, UsageError
from outcore.formats import durable, npy, part_files, raw
from outcore.formats.documents import Document, Judge, dtype_of, read_document
from outcore.formats.layout import ArrayInfo, Part, Strided
from outcore.formats.paths import path_names
from outcore.formats.spec import Entry, Spec, byte_strides, check_dtype, check_shape

NAME = "parts"
SUFFIXES: tuple[str, ...] = (".parts",)

FORMAT, VERSION = "outcore parts", 1
#: More are no stripes but elements one by one; each takes memory in the layout.
MOST_STRIPES = 1 << 16
MOST_PARTS = 1 << 12
_PROBED = 256
_ID = re.compile(r"[0-9a-f]{16}")
# So often an array is opened anew because another took its place meanwhile.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says; `parts` are absolute paths."""

    path: str
    id: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str
    stripe: int
    parts: tuple[str, ...]

    @property
    def axis(self) -> int:
        """The slowest axis."""
        return 0 if self.order == "C" else len(self.shape) - 1

    @property
    def rows(self) -> int:
        """Indices of the slowest axis; an array without axes has one."""
        return self.shape[self.axis] if self.shape else 1

    @property
    def stripes(self) -> int:
        """How many stripes there are."""
        return -(-self.rows // self.stripe)

    def rows_of(self, part: int) -> int:
        """So many rows are in a part."""
        turns, rest = divmod(self.stripes, len(self.parts))
        mine = turns + (part < rest)
        last = self.stripes - 1
        short = self.stripes * self.stripe - self.rows
        return mine * self.stripe - (short if mine and last % len(self.parts) == part else 0)

    def shape_of(self, part: int) -> tuple[int, ...]:
        """The shape of the array in a part."""
        if not self.shape:
            return ()
        rows = self.rows_of(part)
        return tuple(rows if d == self.axis else n for d, n in enumerate(self.shape))

    def document(self, *, absolute: bool = False) -> Document:
        """It as JSON; parts below its folder by relative paths, unless `absolute`."""
        folder = os.path.dirname(self.path)
        names = [
            name if absolute or not name.startswith(os.path.join(folder, "")) else relative
            for name in self.parts
            for relative in [os.path.relpath(name, folder)]
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "shape": list(self.shape),
            "dtype": _descr(self.path, self.dtype),
            "order": self.order,
            "stripe": self.stripe,
            "parts": names,
        }


def probe(path: str) -> bool:
    """Whether a file begins as a manifest does."""
    try:
        with builtins.open(path, "rb") as file:
            return file.read(_PROBED).lstrip().startswith(b'{"format": "outcore parts"')
    except OSError:
        return False


def manifest_of(path: str) -> Manifest:
    """
    Read a manifest.

    Raises
    ------
    FormatError, UnsupportedError
        It makes no sense; it is of a later version.
    StorageError
        It cannot be read.
    """
    place = os.path.realpath(path)
    judge = Judge(path, "outcore", "the array")
    document = read_document(place, judge)
    if document is None:
        with durable.os_errors("opening", path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if document.get("format") != FORMAT:
        raise judge.bad(f"the format is {document.get('format')!r:.100}, not {FORMAT!r}")
    if judge.integer(document.get("version"), "version", 1) != VERSION:
        raise judge.unsupported(f"manifests of version {document['version']} (this is {VERSION})")
    name = judge.text(document.get("id"), "id")
    if not _ID.fullmatch(name):
        raise judge.bad(f"id is {name!r:.100}, not 16 digits of base 16")
    shape = judge.lengths(document.get("shape"), "shape", 0)
    order = judge.text(document.get("order"), "order")
    if order not in ("C", "F"):
        raise judge.bad(f"order is {order!r:.100}, not 'C' or 'F'")
    dtype = judge.dtype(document.get("dtype"))
    dtype = check_dtype(dtype, path, stored=True)
    shape = check_shape(shape, dtype.itemsize, path, stored=True)
    folder = os.path.dirname(place)
    parts = []
    for number, one in enumerate(judge.sequence(document.get("parts"), "parts", MOST_PARTS)):
        text = judge.text(one, f"part {number}")
        if "\0" in text or not part_files.is_part(text, name, number):
            raise judge.bad(
                f"part {number} is {text!r:.200}, whose name is not that of part {number}"
            )
        parts.append(os.path.normpath(os.path.join(folder, text)))
    if not parts or (not shape and len(parts) > 1):
        raise judge.bad(f"{len(parts)} parts of an array of shape {shape}")
    stripe = judge.integer(document.get("stripe"), "stripe", 1)
    found = Manifest(place, name, shape, dtype, order, stripe, tuple(parts))
    if found.stripes > MOST_STRIPES:
        raise judge.bad(f"{found.stripes} stripes are more than {MOST_STRIPES}")
    return found


def open(path: str, inner: str | None, writable: bool) -> ArrayInfo:
    """
    Read the manifest, and the header of each part.

    Raises
    ------
    FormatError
        ``bad-part``: a part is of another array; ``file-too-short``, ``bad-header``: it is damaged.
    StorageError
        ``not-found``: a part is missing.
    """
    _no_inner(path, inner)
    for _ in range(_TRIES):
        manifest = manifest_of(path)
        try:
            infos = [
                _part(path, manifest, number, writable) for number in range(len(manifest.parts))
            ]
        except OutcoreError:
            if manifest_of(path).id == manifest.id:
                raise
        else:
            return _info(path, manifest, infos)
    raise StorageError(
        f"{path!r} is replaced again and again; open it when that has ended",
        code="file-changed",
        path=path,
    )


def _part(path: str, manifest: Manifest, number: int, writable: bool) -> ArrayInfo:
    """One part, looked at."""
    file = manifest.parts[number]
    said = f"part {number} of {len(manifest.parts)} of {path!r}"
    try:
        info = npy.open(file, None, writable)
    except OutcoreError as error:
        error.message = f"{said}: {error.message}"
        raise
    shape, order = manifest.shape_of(number), manifest.order
    # Of one row, or none, both orders are the same.
    same = info.order == order or math.prod(shape) <= 1 or len(shape) <= 1
    if info.shape != shape or info.dtype != manifest.dtype or not same:
        raise FormatError(
            f"{said}: {file!r} has shape {info.shape}, dtype {info.dtype} and order {info.order}, but "
            f"should have {shape}, {manifest.dtype} and {order}: it is of another array; put the part "
            "back that was there",
            code="bad-part",
            path=file,
        )
    return info


def create(
    path: str,
    inner: str | None,
    spec: Spec,
    *,
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    parts: int | None = None,
    stripe: int | None = None,
) -> ArrayInfo:
    """
    Make the parts, then the manifest.

    Parameters
    ----------
    where
        Folders that exist, which take parts in turns; by default that of the manifest.
    parts
        How many there are: by default one for each folder.
    stripe
        Rows that lie in one part before it is the turn of the next: by default as many as a part has.
    """
    _no_inner(path, inner)
    raw.refuse(NAME, path, spec, chunks=True, attrs=True, dims=True)
    place = os.path.realpath(path)
    folders = [os.path.dirname(place)] if where is None else path_names(where)
    count = _count("parts", len(folders) if parts is None else parts, path)
    count = count if spec.shape else 1
    order = spec.order if len(spec.shape) > 1 else "C"
    rows = (spec.shape[0 if order == "C" else -1]) if spec.shape else 1
    share = max(-(-rows // count), 1)
    turn = share if stripe is None else _count("stripe", stripe, path)
    if count > MOST_PARTS or -(-rows // turn) > MOST_STRIPES:
        raise UsageError(
            f"{path!r}: {count} parts with {-(-rows // turn)} stripes; at most {MOST_PARTS} and "
            f"{MOST_STRIPES}: pass a larger stripe=",
            code="bad-chunks",
            path=path,
        )
    for folder in folders:
        with durable.os_errors("looking at the folder of parts,", folder):
            if not os.path.isdir(folder):
                os.stat(folder)
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    name = os.urandom(8).hex()
    files = tuple(
        part_files.part_name(os.path.realpath(folders[k % len(folders)]), place, name, k)
        for k in range(count)
    )
    manifest = Manifest(place, name, spec.shape, spec.dtype, order, turn, files)
    document = manifest.document()
    infos = []
    with part_files.Change(place, path) as change:
        change.refuse_existing(exclusive=spec.exclusive)
        change.note(name, files)
        for number, file in enumerate(files):
            one = replace(spec, shape=manifest.shape_of(number), order=order, exclusive=True)
            infos.append(npy.create(file, None, one))
        change.publish(document, exclusive=spec.exclusive)
    return _info(path, manifest, infos)


def ls(path: str, inner: str | None) -> list[Entry]:
    """One array, named by the manifest."""
    info = open(path, inner, False)
    return [Entry(path, "array", info.shape, info.dtype)]


remove = part_files.remove
take_place = part_files.take_place


def files(path: str) -> tuple[str, ...]:
    """The manifest, and the parts."""
    manifest = manifest_of(path)
    return (path, *manifest.parts)


def copy(source: str, target: str, *, exclusive: bool, where: Sequence[str] | None = None) -> None:
    """
    Copy parts and manifest.

    Parts beside the manifest go beside the new one, others into their folder; or all into `where`, in
    turns.
    """
    manifest = manifest_of(source)
    place = os.path.realpath(target)
    fresh = _elsewhere(manifest, place, where)
    with part_files.Change(place, target) as change:
        change.refuse_existing(exclusive=exclusive)
        change.note(fresh.id, fresh.parts)
        for old, new in zip(manifest.parts, fresh.parts, strict=True):
            durable.copy_file(old, new, exclusive=True)
        change.publish(fresh.document(), exclusive=exclusive)


def move(source: str, target: str, *, exclusive: bool) -> None:
    """
    Rename the manifest; parts that lie beside it come along into another folder, others stay.

    In steps of which each leaves one array: under the old name, and then under the new one.
    """
    manifest = manifest_of(source)
    place = os.path.realpath(target)
    with part_files.Change(manifest.path, source) as change:
        if os.path.dirname(place) != os.path.dirname(manifest.path):
            # It has to mean the same there.
            change.publish(manifest.document(absolute=True), exclusive=False)
    with part_files.Change(place, target) as change:
        change.refuse_existing(exclusive=exclusive)
        change.take(manifest.path, exclusive=exclusive)
        if os.path.dirname(place) == os.path.dirname(manifest.path):
            return
        with durable.os_errors("renaming to", target):
            _core.fsync_folder(manifest.path)
            fresh = _elsewhere(manifest, place, None)
            change.note(fresh.id, fresh.parts)
            for old, new in zip(manifest.parts, fresh.parts, strict=True):
                os.link(old, new)
                _core.fsync_folder(new)
        change.publish(fresh.document(), exclusive=False)


def _elsewhere(manifest: Manifest, place: str, where: Sequence[str] | None) -> Manifest:
    """The same array with a manifest at `place`, and parts of other names."""
    here, there, id = os.path.dirname(manifest.path), os.path.dirname(place), os.urandom(8).hex()
    parts = []
    for number, part in enumerate(manifest.parts):
        folder = os.path.dirname(part)
        if where is not None:
            folder = os.path.realpath(where[number % len(where)])
        elif folder == here:
            folder = there
        parts.append(part_files.part_name(folder, place, id, number))
    return replace(manifest, path=place, id=id, parts=tuple(parts))


def _info(path: str, manifest: Manifest, infos: Sequence[ArrayInfo]) -> ArrayInfo:
    """The array, whose pieces are stripes in the order of rows."""
    held: list[Part] = []
    for info in infos:
        if isinstance(info.layout, Strided):  # it is: a .npy file
            held.append(info.layout.parts[0])
    row = math.prod(n for d, n in enumerate(manifest.shape) if d != manifest.axis)
    row *= manifest.dtype.itemsize
    pieces: list[Part] = []
    count = len(held)
    for k in range(manifest.stripes if row else 0):
        part, first = held[k % count], k // count * manifest.stripe
        rows = min(manifest.stripe, manifest.rows - k * manifest.stripe)
        pieces.append(replace(part, offset=part.offset + first * row, nbytes=rows * row))
    if count == 1 or not pieces:
        pieces = held[:1]
    return ArrayInfo(
        path=path,
        format=NAME,
        shape=manifest.shape,
        dtype=manifest.dtype,
        layout=Strided(
            tuple(pieces), byte_strides(manifest.shape, manifest.dtype.itemsize, manifest.order)
        ),
        order=manifest.order,
        extra={"parts": manifest.parts, "stripe": manifest.stripe, "id": manifest.id},
    )


def _descr(path: str, dtype: np.dtype[Any]) -> Any:
    """A dtype as JSON can say it, and as it comes back."""
    descr = json.loads(json.dumps(npy_format.dtype_to_descr(dtype)))
    if dtype_of(descr) != dtype:
        raise UsageError(
            f"{path!r}: the manifest would not give dtype {dtype!r} back; save a view of a plain dtype",
            code="bad-dtype",
            path=path,
        )
    return descr


def _count(name: str, value: Any, path: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(
            f"{path!r}: {name}={value!r} is no number of at least 1", code="bad-chunks", path=path
        )
    return count


def _no_inner(path: str, inner: str | None) -> None:
    if inner is not None:
        raise UsageError(
            f"{path!r}: a manifest of parts names one array, there is no {inner!r} in it; drop the '::'",
            code="no-such-array",
            path=path,
        )
