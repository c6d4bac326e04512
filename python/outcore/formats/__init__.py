"""
Formats: from a path to an `ArrayInfo`, which says where the elements live.

Problem. Eight file formats, each with a library that owns it, and one core that only knows bytes.
Idea. A format is an object of a class `Format` (template: `npy`). The functions here find the format
of a path (`finding`) and call it; they ask for optional abilities by the classes in `format`.
Invariants. Formats read and write metadata and never elements. Anything wrong with the file is a
`FormatError`, with the system a `StorageError`, with the call a `UsageError`.

To add a format, see docs/howto/add-a-format.md.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outcore.errors import FormatError, OutcoreError, UnsupportedError
from outcore.formats import durable, finding, locks
from outcore.formats.finding import split_path
from outcore.formats.format import (
    Format,
    GrowsItself,
    HasCodecs,
    HasFiles,
    KeepsAttributes,
    LeavesOldBytes,
    OpensMany,
    ReadOnlyFormat,
    Resizable,
    Stages,
)
from outcore.formats.growing import Growing, by_metadata
from outcore.formats.layout import ArrayInfo, Codec
from outcore.formats.paths import one_name, path_names
from outcore.formats.registry import Known, by_name, by_suffix, every, register
from outcore.formats.spec import Entry, check_shape, make_spec

__all__ = [
    "Entry",
    "Format",
    "Growing",
    "check_new",
    "check_place",
    "create_info",
    "discard",
    "every",
    "format_at",
    "format_of",
    "growing",
    "ls",
    "open_info",
    "open_infos",
    "prepare",
    "publish",
    "register",
    "reserve",
    "resize",
    "set_attrs",
    "split_path",
    "staged",
]


PathArgument = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open_info(
    path: PathArgument,
    *,
    writable: bool = False,
    format: str | None = None,
    **options: Any,
) -> ArrayInfo:
    """
    Read the metadata of an array.

    Parameters
    ----------
    path
        A file or folder, ``file.h5::/group/name``, a pattern or a list of raw files.
    writable
        Check that the array can be written as well.
    format
        Name of the format; default: found by looking at the file.
    options
        For the format, such as ``shape``, ``dtype``, ``offset``, ``order`` (raw).

    Raises
    ------
    FormatError
        No format fits, or the metadata is damaged.
    StorageError
        The file cannot be opened.
    """
    text, options = _path_argument(path, options)
    outer, inner = split_path(text)
    is_folder = durable.refuse_special(outer)
    if writable:
        locks.tell_what_lacks(outer)
    if format is None and inner is None and not options:
        info = finding.open_likely(outer, writable)
        if info is not None:
            return info
    known = by_name(format) if format is not None else finding.find(outer, is_folder, options)
    found = known.load()
    if options:
        from outcore.formats.known_options import check_options

        check_options(found, "open", options)
    _check_mode(found, outer, writable)
    return found.describe(outer, inner, writable, **options)


def _check_mode(found: Format, path: str, writable: bool) -> None:
    if writable and isinstance(found, ReadOnlyFormat):
        found.refuse_writing(path)


def format_at(outer: str, format: str | None = None) -> Format:
    """
    Return the format of a file or folder, as `open_info` finds it.

    Parameters
    ----------
    outer
        The file or folder.
    format
        Name of the format, if the caller knows it.
    """
    return _known_at(outer, format).load()


def _known_at(outer: str, format: str | None) -> Known:
    is_folder = durable.refuse_special(outer)
    return by_name(format) if format is not None else finding.find(outer, is_folder, {})


def open_infos(
    paths: Iterable[str | os.PathLike[str]],
    *,
    writable: bool = False,
    format: str | None = None,
) -> list[ArrayInfo]:
    """
    Read the metadata of several arrays: as `open_info` for each, in their order.

    A file that holds several is opened once for all of them, where its format can do so.
    """
    found: dict[tuple[str, str | None], ArrayInfo] = {}
    places = [split_path(one_name(path)) for path in paths]
    held: dict[str, list[str | None]] = {}
    for outer, inner in places:
        held.setdefault(outer, []).append(inner)
    for outer, inners in held.items():
        if format is None and set(inners) == {None}:
            durable.refuse_special(outer)
            likely = finding.open_likely(outer, writable)
            if likely is not None:
                found[outer, None] = likely
                continue
        kind = format_at(outer, format)
        _check_mode(kind, outer, writable)
        if isinstance(kind, OpensMany):
            infos = kind.describe_each(outer, inners, writable)
        else:
            infos = [kind.describe(outer, inner, writable) for inner in inners]
        found.update(zip(((outer, inner) for inner in inners), infos, strict=True))
    return [found[place] for place in places]


def create_info(
    path: PathArgument,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    *,
    format: str | None = None,
    exclusive: bool = False,
    order: str = "C",
    chunks: int | Sequence[int | None] | None = None,
    shards: int | Sequence[int | None] | None = None,
    compression: str | Codec | Sequence[str | Codec] | None = "auto",
    fill_value: Any = None,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    **options: Any,
) -> ArrayInfo:
    """
    Make a new array on disk and return where its elements live.

    The elements read as `fill_value` (zero bytes, if None). The array exists completely or not at all.
    An existing file is replaced; inside a container (``file.h5::/name``) only that array is.

    Parameters
    ----------
    format
        Name of the format; default: by the suffix.
    exclusive
        Refuse to replace anything (`StorageError`, ``already-exists``).
    chunks, shards, compression, fill_value, dims, attrs
        See `outcore.formats.spec.make_spec`. A format refuses what it cannot keep. The compression
        ``"auto"`` is that which the library of the format gives new arrays: zstd in Zarr, else none.
    options
        For the format.
    """
    text, options = _path_argument(path, options)
    outer, inner = split_path(text)
    durable.refuse_special(outer)
    found = finding.for_new(text, format, options).load()
    if isinstance(compression, str) and compression == "auto":
        compression = found.new_codec if isinstance(found, HasCodecs) else None
    locks.tell_what_lacks(outer)
    spec = make_spec(
        text,
        shape,
        dtype,
        exclusive=exclusive,
        order=order,
        chunks=chunks,
        shards=shards,
        compression=compression,
        fill_value=fill_value,
        dims=dims,
        attrs=attrs,
    )
    if options:
        from outcore.formats.known_options import check_options

        check_options(found, "create", options)
    return found.create(outer, inner, spec, **options)


def can_encode(format: str, codec: Codec, dtype: np.dtype[Any]) -> bool | None:
    """
    Return whether a new array of a format can have a codec; None if the format has none.

    Parameters
    ----------
    format
        Name of the format.
    codec
        The codec.
    dtype
        Type of the elements.
    """
    found = by_name(format).load()
    return found.can_encode(codec, dtype) if isinstance(found, HasCodecs) else None


def needs_plugin(format: str, codec: Codec) -> bool:
    """
    Return whether the library of a format reads a codec only with a plug-in.

    Parameters
    ----------
    format
        Name of the format.
    codec
        The codec.
    """
    found = by_name(format).load()
    return isinstance(found, HasCodecs) and found.needs_plugin(codec)


def substitute(format: str) -> Codec:
    """
    Return the codec that a format has for arrays whose own it cannot keep.

    Parameters
    ----------
    format
        Name of the format.
    """
    found = by_name(format).load()
    codec = found.new_codec if isinstance(found, HasCodecs) else None
    return codec or Codec("deflate", {"level": 4})


def check_new(path: PathArgument, format: str | None, options: Mapping[str, Any]) -> None:
    """Refuse a name that does not tell the format of a new array."""
    text, options = _path_argument(path, dict(options))
    if format is not None:
        by_name(format)
    else:
        finding.for_new(text, None, options)


def ls(path: str | os.PathLike[str], *, format: str | None = None) -> list[Entry]:
    """
    List arrays and groups inside a file or folder, depth first, in the order of their names.

    Parameters
    ----------
    path
        A file, or the folder of a Zarr store; ``"run.h5::/group"`` lists what is below a group. Of any
        other folder the files and stores directly in it are listed, each with what it holds.
    format
        What it is, if neither its name nor its first bytes tell.

    Returns
    -------
    list of Entry
        Of each: `path`, which `outcore.open` takes, `kind` (``"array"`` or ``"group"``), `shape` and
        `dtype` (None for groups), and a `note` that says why an array cannot be opened, or is empty.

    Raises
    ------
    StorageError, FormatError, UnsupportedError
        There is no such file, it is damaged, or a library that reads it is not installed.

    Examples
    --------
    >>> import outcore
    >>> a = outcore.create("field.npy", (3, 4), "f4")
    >>> outcore.ls("field.npy")
    [Entry(path='field.npy', kind='array', shape=(3, 4), dtype=dtype('float32'), note='')]
    """
    outer, inner = split_path(one_name(path))
    if format is None and inner is None and finding.is_plain_folder(outer):
        return _in_folder(outer)
    return format_at(outer, format).ls(outer, inner)


def _in_folder(folder: str) -> list[Entry]:
    """What the files and stores directly in a folder hold; names that begin with a dot are hidden."""
    found: list[Entry] = []
    with durable.os_errors("listing", folder):
        names = sorted(os.listdir(folder))
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(".") or not (os.path.isdir(path) or os.path.isfile(path)):
            continue
        is_folder = os.path.isdir(path)
        known, likely = finding.marked(path, is_folder), by_suffix(path)
        if known is None and likely is not None and likely.is_folder == is_folder:
            known = likely  # whose own error says what is wrong with the file
        if known is None or known is finding.RAW:
            continue
        try:
            found += known.load().ls(path, None)
        except OutcoreError as error:
            found.append(Entry(path, "array", note=error.message))
    if not found:
        raise FormatError(
            f"{folder!r} is a folder without any array that outcore knows by its first bytes or its "
            "suffix; name a file, or the folder of a Zarr store",
            code="unknown-format",
            path=folder,
        )
    return found


def resize(
    info: ArrayInfo,
    shape: int | Sequence[int],
    fill: Callable[[ArrayInfo, Iterator[tuple[slice, ...]]], None] | None = None,
) -> ArrayInfo:
    """
    Change the shape on disk; new elements read as the fill value, lost ones are gone.

    Parameters
    ----------
    info
        The array as it is, or what `reserve` returned.
    fill
        ``fill(longer, sections)`` sets sections of the longer array to the fill value, durably. It is
        called, before the metadata changes, where a format keeps old bytes beyond the shape (Zarr).
        Not needed after `reserve` if everything new has been written.
    """
    full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
    found = _resizable(info)
    if isinstance(found, LeavesOldBytes) and fill is not None and len(full) == len(info.shape):
        # Never smaller than it is, so that what is visible until then stays as it is.
        longer = tuple(map(max, info.shape, full))
        if longer != info.shape:
            sections = found.stale(info, longer)
            info = reserve(info, longer)
            fill(info, sections)
    return found.resize(info, full)


def is_resizable(info: ArrayInfo) -> bool:
    """
    Return whether the format of an array can change the length of an axis, of some arrays at least.

    Parameters
    ----------
    info
        The array.
    """
    return isinstance(by_name(info.format).load(), Resizable | GrowsItself)


def growing(info: ArrayInfo) -> contextlib.AbstractContextManager[Growing]:
    """
    Keep all others from changing the length of an array, in whatever process.

    The context gives the array as it is by then. What was reserved goes if it ends with an error.

    Parameters
    ----------
    info
        The array as the caller knows it.

    Raises
    ------
    FormatError
        ``file-changed``: another array has taken its place.
    UsageError
        ``nested-call``: this thread is at it already.
    """
    found = _resizable(info)
    return found.growing(info) if isinstance(found, GrowsItself) else by_metadata(found, info)


def reserve(info: ArrayInfo, shape: int | Sequence[int]) -> ArrayInfo:
    """
    Make room for a longer array without telling so in the metadata, where the format can.

    The crash-safe way to append: `reserve`, write, fsync, `resize`, all of it inside `growing`. A format
    that cannot do so resizes at once.
    """
    full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
    found = _resizable(info)
    return found.resize(info, full) if isinstance(found, GrowsItself) else found.reserve(info, full)


def set_attrs(
    info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
) -> ArrayInfo:
    """
    Set user attributes on disk, all in one step.

    Parameters
    ----------
    attrs
        Names and values.
    drop
        Names of attributes that go, if they are there; None: all others do. What is named neither here
        nor in `attrs` stays as the file has it.
    """
    found = by_name(info.format).load()
    if not isinstance(found, KeepsAttributes):
        raise _lacking(info, "keep attributes", KeepsAttributes)
    return found.set_attrs(info, dict(attrs), drop)


def _resizable(info: ArrayInfo) -> Resizable | GrowsItself:
    found = by_name(info.format).load()
    if not isinstance(found, Resizable | GrowsItself):
        raise _lacking(info, "be resized", Resizable, GrowsItself)
    return found


def _lacking(info: ArrayInfo, what: str, *abilities: type) -> UnsupportedError:
    able = [one.name for one in every() if isinstance(one.load(), abilities)]
    return UnsupportedError(
        f"{info.path!r}: {info.format} files cannot {what}; formats that can: {', '.join(able)} "
        "(outcore.convert makes one of the other)",
        code="cannot-change",
        path=info.path,
    )


def staged(path: str, format: str | None = None) -> str | None:
    """
    Where an array of an existing file or store grows until it is whole and gets its name by `publish`.

    None if `path` is no array inside another file, or one of a format that makes it at its place.
    """
    outer, inner = split_path(path)
    if inner is None or not os.path.lexists(outer):
        return None
    found = finding.for_new(path, format).load()
    return found.staged(outer, inner) if isinstance(found, Stages) else None


def check_place(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """Refuse what `publish` would refuse, where the format can say so before."""
    stages, outer, inner = _stages(path, format)
    if stages is not None:
        stages.check_place(outer, inner, exclusive)


def prepare(path: str, *, format: str | None = None) -> None:
    """Before an array is created where `staged` says."""
    stages, outer, inner = _stages(path, format)
    if stages is not None:
        stages.prepare(outer, inner)


def publish(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """
    Give an array that was made where `staged` said its name, in place of an older one.

    Nothing happens if it is not there any more: whoever was killed then has done so.
    """
    stages, outer, inner = _stages(path, format)
    if stages is not None:
        stages.publish(outer, inner, exclusive)


def discard(path: str, *, format: str | None = None) -> None:
    """Remove what was made where `staged` said, if it is there."""
    stages, outer, inner = _stages(path, format)
    if stages is not None:
        stages.discard(outer, inner)


def _stages(path: str, format: str | None) -> tuple[Stages | None, str, str]:
    """The format of a new array if it stages arrays; file and path inside it."""
    outer, inner = split_path(path)
    found = finding.for_new(path, format).load()
    return found if isinstance(found, Stages) else None, outer, inner or ""


def take_place(fresh: str, target: str, *, format: str | None = None, exclusive: bool) -> None:
    """Give a complete array, a file or folder `fresh`, durably the name `target` of what goes."""
    found = finding.for_new(target, format).load()
    if isinstance(found, HasFiles):
        found.take_place(fresh, target, exclusive)
        return
    with durable.os_errors("renaming to", target):
        durable.move_into_place(fresh, target, exclusive=exclusive)


def marked(path: str) -> Format | None:
    """
    Return the format whose marks a file or folder has; for a damaged manifest, that of its suffix.

    Parameters
    ----------
    path
        The file or folder.
    """
    found = finding.marked(path, os.path.isdir(path))
    if found is not None:
        return found.load()
    likely = by_suffix(path)
    damaged = None if likely is None else likely.load()
    return damaged if isinstance(damaged, HasFiles) else None


def remove(path: str) -> None:
    """Remove an array that is a file or folder of its own, with all that it is made of."""
    found = marked(path)
    with durable.os_errors("removing", path):
        if found is not None and isinstance(found, HasFiles):
            found.remove(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)


def format_of_new(path: str, format: str | None = None) -> str:
    """The name of the format that a new array at `path` would have."""
    return finding.for_new(path, format).name


def is_folder_format(outer: str, format: str | None = None) -> bool:
    """Whether a new file of many arrays, or array, at `outer` would be a folder."""
    return finding.for_new(outer, format).is_folder


def format_of(outer: str, format: str | None = None) -> str:
    """The name of the format of what is at `outer`; of `format`, if the caller knows it."""
    return _known_at(outer, format).name


def _path_argument(path: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    names = path_names(path)
    single = isinstance(path, str | os.PathLike)
    return names[0], options if single else {**options, "files": names}
