"""
Formats: from a path to an `ArrayInfo`, which states where the elements are stored.

Problem: eight file formats, each with a library that owns it, and one core that only knows bytes.
Approach: a format is an object of a class `Format` (template: `npy`). The functions here find the
format of a path (`finding`) and call it; they ask for optional abilities by the classes in `format`.
Invariants: formats read and write metadata and never elements. Errors about the file are `FormatError`,
about the system `StorageError`, about the call `UsageError`.

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
from outcore.formats.defaults import CHUNKED
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
from outcore.formats.growing import Growing, grow_by_metadata
from outcore.formats.layout import ArrayInfo, Codec
from outcore.formats.paths import one_name, path_names
from outcore.formats.registry import (
    KnownFormat,
    find_by_name,
    find_by_suffix,
    list_formats,
    register,
)
from outcore.formats.spec import Entry, check_shape, make_spec

__all__ = [
    "Entry",
    "Format",
    "Growing",
    "begin_growing",
    "check_new",
    "check_place",
    "create_info",
    "discard",
    "find_format",
    "find_format_name",
    "find_staging_path",
    "get_format",
    "list_formats",
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
    Read the metadata of an array: a path, a pattern or a list of raw files, or
    ``file.h5::/group/name``.

    Without `format` the file is inspected. `options` go to the format (raw: ``shape``, ``dtype``, ...).
    With `writable`, raise if the array cannot be written.
    """
    text, options = _split_argument(path, options)
    outer, inner = split_path(text)
    is_folder = durable.check_not_special(outer)
    if writable:
        locks.warn_about_lacking_locks(outer)
    if format is None and inner is None and not options:
        info = finding.open_likely(outer, writable)
        if info is not None:
            return info
    known = find_by_name(format) if format is not None else finding.find(outer, is_folder, options)
    found = known.load()
    if options:
        from outcore.formats.known_options import check_options

        check_options(found, "open", options)
    _check_mode(found, outer, writable)
    return found.describe(outer, inner, writable, **options)


def _check_mode(found: Format, path: str, writable: bool) -> None:
    if writable and isinstance(found, ReadOnlyFormat):
        found.refuse_writing(path)


def find_format(outer: str, format: str | None = None) -> Format:
    """Return the format of a file or folder, as `open_info` finds it."""
    return _find_known(outer, format).load()


def get_format(name: str) -> Format:
    """Return the format with a name; its capabilities are classes of `outcore.formats.format`."""
    return find_by_name(name).load()


def get_new_suffix(format: str) -> str:
    """Return the suffix of names that outcore chooses for new arrays of a format."""
    found = get_format(format)
    return found.new_suffix or next(iter(found.suffixes), "")


def _find_known(outer: str, format: str | None) -> KnownFormat:
    is_folder = durable.check_not_special(outer)
    return find_by_name(format) if format is not None else finding.find(outer, is_folder, {})


def open_infos(
    paths: Iterable[str | os.PathLike[str]],
    *,
    writable: bool = False,
    format: str | None = None,
) -> list[ArrayInfo]:
    """
    Read the metadata of several arrays, in order, as `open_info` does for each.

    A file that holds several arrays is opened once for all of them if its format can do so
    (`OpensMany`).
    """
    found: dict[tuple[str, str | None], ArrayInfo] = {}
    places = [split_path(one_name(path)) for path in paths]
    held: dict[str, list[str | None]] = {}
    for outer, inner in places:
        held.setdefault(outer, []).append(inner)
    for outer, inners in held.items():
        if format is None and set(inners) == {None}:
            durable.check_not_special(outer)
            likely = finding.open_likely(outer, writable)
            if likely is not None:
                found[outer, None] = likely
                continue
        kind = find_format(outer, format)
        _check_mode(kind, outer, writable)
        if isinstance(kind, OpensMany):
            infos = kind.describe_many(outer, inners, writable)
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
    Create an array on disk and return where its elements are stored.

    The elements read as `fill_value` (None: zero bytes). The array is created completely or not at all.
    An existing file is replaced, unless `exclusive`; in a container (``file.h5::/name``) only the array
    of that name is. The other arguments are those of `outcore.formats.spec.make_spec`; a format rejects
    what it cannot store. The compression ``"auto"`` is the default of the format's own library: zstd in
    Zarr, otherwise none.
    """
    text, options = _split_argument(path, options)
    outer, inner = split_path(text)
    durable.check_not_special(outer)
    found = finding.find_for_new(text, format, options).load()
    if isinstance(compression, str) and compression == "auto":
        compression = found.new_codec if isinstance(found, HasCodecs) else None
    locks.warn_about_lacking_locks(outer)
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
    """Return whether a new array of a format can have a codec; None if the format has no codecs."""
    found = find_by_name(format).load()
    return found.can_encode(codec, dtype) if isinstance(found, HasCodecs) else None


def needs_plugin(format: str, codec: Codec) -> bool:
    """Return whether the library of a format reads a codec only with a plug-in."""
    found = find_by_name(format).load()
    return isinstance(found, HasCodecs) and found.needs_plugin(codec)


def choose_codec(format: str) -> Codec:
    """Return the codec that a format uses for arrays whose own codec it cannot store."""
    found = find_by_name(format).load()
    codec = found.new_codec if isinstance(found, HasCodecs) else None
    return codec or Codec("deflate", {"level": 4})


def check_new(path: PathArgument, format: str | None, options: Mapping[str, Any]) -> None:
    """Raise if the format of a new array cannot be determined."""
    text, options = _split_argument(path, dict(options))
    if format is not None:
        find_by_name(format)
    else:
        finding.find_for_new(text, None, options)


def ls(path: str | os.PathLike[str], *, format: str | None = None) -> list[Entry]:
    """
    List arrays and groups inside a file or folder, depth first, in the order of their names.

    Parameters
    ----------
    path
        A file, or the folder of a Zarr store. ``"run.h5::/group"`` lists the contents of a group. For
        any other folder, the contents of the files and stores directly in it are listed.
    format
        Name of the format, if neither the name nor the first bytes of the file identify it.

    Returns
    -------
    list of Entry
        For each: `path`, which `outcore.open` takes, `kind` (``"array"`` or ``"group"``), `shape` and
        `dtype` (None for groups), and `note`, the reason why an array cannot be opened, or empty.

    Raises
    ------
    StorageError, FormatError, UnsupportedError
        The file does not exist, is damaged, or needs a library that is not installed.

    Examples
    --------
    >>> import outcore
    >>> a = outcore.create("field.npy", (3, 4), "f4")
    >>> outcore.ls("field.npy")
    [Entry(path='field.npy', kind='array', shape=(3, 4), dtype=dtype('float32'), note='')]
    """
    outer, inner = split_path(one_name(path))
    if format is None and inner is None and finding.is_plain_folder(outer):
        return _list_folder(outer)
    return find_format(outer, format).ls(outer, inner)


def _list_folder(folder: str) -> list[Entry]:
    """List the contents of the files and stores directly in a folder, without hidden ones."""
    found: list[Entry] = []
    with durable.os_errors("listing", folder):
        names = sorted(os.listdir(folder))
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(".") or not (os.path.isdir(path) or os.path.isfile(path)):
            continue
        is_folder = os.path.isdir(path)
        known, likely = finding.find_by_marks(path, is_folder), find_by_suffix(path)
        if known is None and likely is not None and likely.is_folder == is_folder:
            known = likely  # its own error reports the problem
        if known is None or known is finding.RAW:
            continue
        try:
            found += known.load().ls(path, None)
        except OutcoreError as error:
            found.append(Entry(path, "array", note=error.message))
    if not found:
        raise FormatError(
            f"the folder {folder!r} contains no array that outcore identifies by its first bytes or its "
            "suffix; pass a file, or the folder of a Zarr store",
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
    Change the shape on disk; new elements read as the fill value, elements outside are lost.

    `info` may also be the result of `reserve`. ``fill(longer, sections)`` durably sets sections of the
    longer array to the fill value. It is called before the metadata changes if the format keeps old
    bytes beyond the shape (Zarr). It is not needed after `reserve` if all new elements were written.
    """
    full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
    found = _find_resizable(info)
    if isinstance(found, LeavesOldBytes) and fill is not None and len(full) == len(info.shape):
        # Never smaller than the current shape, so that all visible elements stay visible.
        longer = tuple(map(max, info.shape, full))
        if longer != info.shape:
            sections = found.find_stale_sections(info, longer)
            info = reserve(info, longer)
            fill(info, sections)
    return found.resize(info, full)


def is_resizable(info: ArrayInfo) -> bool:
    """Return whether the format can change the length of an axis, at least for some arrays."""
    return isinstance(find_by_name(info.format).load(), Resizable | GrowsItself)


def begin_growing(info: ArrayInfo) -> contextlib.AbstractContextManager[Growing]:
    """
    Keep all other processes and threads from changing the length of an array.

    The context is the array with its current length. If it ends with an error, reserved space is
    released. `FormatError` ``file-changed``: another array has the name now. `UsageError`
    ``nested-call``: this thread is already changing the length.
    """
    found = _find_resizable(info)
    return (
        found.begin_growing(info)
        if isinstance(found, GrowsItself)
        else grow_by_metadata(found, info)
    )


def reserve(info: ArrayInfo, shape: int | Sequence[int]) -> ArrayInfo:
    """
    Reserve space for a longer array; where the format can do so, the metadata do not change yet.

    To append so that a crash leaves the old or the new array: `reserve`, write, fsync, `resize`, all
    within `begin_growing`. A format that cannot reserve resizes immediately.
    """
    full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
    found = _find_resizable(info)
    return found.resize(info, full) if isinstance(found, GrowsItself) else found.reserve(info, full)


def set_attrs(
    info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
) -> ArrayInfo:
    """
    Set user attributes on disk and remove those in `drop` (None: all others), in one step.

    Attributes that neither argument names keep the value in the file.
    """
    found = find_by_name(info.format).load()
    if not isinstance(found, KeepsAttributes):
        raise _missing_ability_error(info, "store attributes", KeepsAttributes)
    return found.set_attrs(info, dict(attrs), drop)


def _find_resizable(info: ArrayInfo) -> Resizable | GrowsItself:
    found = find_by_name(info.format).load()
    if not isinstance(found, Resizable | GrowsItself):
        raise _missing_ability_error(info, "be resized", Resizable, GrowsItself)
    return found


def _missing_ability_error(info: ArrayInfo, what: str, *abilities: type) -> UnsupportedError:
    able = [one.name for one in list_formats() if isinstance(one.load(), abilities)]
    return UnsupportedError(
        f"{info.path!r}: {info.format} files cannot {what}; convert it with outcore.convert to a format "
        f"that can: {', '.join(able)}",
        code="cannot-change",
        path=info.path,
    )


def find_staging_path(path: str, format: str | None = None) -> str | None:
    """
    Return the path under which a new array of an existing file grows until `publish`.

    None if `path` is not an array inside another file, or the format creates the array in its final
    place.
    """
    outer, inner = split_path(path)
    if inner is None or not os.path.lexists(outer):
        return None
    found = finding.find_for_new(path, format).load()
    return found.find_staging_path(outer, inner) if isinstance(found, Stages) else None


def check_place(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """Raise what `publish` would raise, if the format can find out in advance."""
    stages, outer, inner = _find_stages(path, format)
    if stages is not None:
        stages.check_place(outer, inner, exclusive)


def prepare(path: str, *, format: str | None = None) -> None:
    """Prepare to create an array under the path that `find_staging_path` returned."""
    stages, outer, inner = _find_stages(path, format)
    if stages is not None:
        stages.prepare(outer, inner)


def publish(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """
    Give a staged array its final name, replacing an older array.

    If the staged array no longer exists, a process that was killed later has already done so.
    """
    stages, outer, inner = _find_stages(path, format)
    if stages is not None:
        stages.publish(outer, inner, exclusive)


def discard(path: str, *, format: str | None = None) -> None:
    """Remove a staged array, if it exists."""
    stages, outer, inner = _find_stages(path, format)
    if stages is not None:
        stages.discard(outer, inner)


def _find_stages(path: str, format: str | None) -> tuple[Stages | None, str, str]:
    """Return the format of a new array if it stages arrays, the file, and the path inside it."""
    outer, inner = split_path(path)
    found = finding.find_for_new(path, format).load()
    return found if isinstance(found, Stages) else None, outer, inner or ""


def check_replaceable(folder: str, *, whole: bool = False) -> None:
    """
    Raise if a new array must not replace a folder; with `whole`, a new store with its groups.

    A folder without marks is judged by the default format of folders.
    """
    known = finding.find_by_marks(folder, True) or find_by_name(CHUNKED)
    known.load().check_replaceable(folder, whole=whole)


def take_place(fresh: str, target: str, *, format: str | None = None, exclusive: bool) -> None:
    """Durably give a complete array, the file or folder `fresh`, the name of the one it replaces."""
    found = finding.find_for_new(target, format).load()
    if isinstance(found, HasFiles):
        found.take_place(fresh, target, exclusive)
        return
    with durable.os_errors("renaming to", target):
        durable.move_into_place(fresh, target, exclusive=exclusive)


def find_marked(path: str) -> Format | None:
    """Return the format whose marks a file or folder has; for a damaged manifest, that of its suffix."""
    found = finding.find_by_marks(path, os.path.isdir(path))
    if found is not None:
        return found.load()
    likely = find_by_suffix(path)
    damaged = None if likely is None else likely.load()
    return damaged if isinstance(damaged, HasFiles) else None


def remove(path: str) -> None:
    """Remove an array that is a file or folder, with all its files."""
    found = find_marked(path)
    with durable.os_errors("removing", path):
        if found is not None and isinstance(found, HasFiles):
            found.remove(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)


def choose_format(path: PathArgument, format: str | None = None) -> Format:
    """Return the format that a new array would have; `path` may be a list of files."""
    text, options = _split_argument(path, {})
    return finding.find_for_new(text, format, options).load()


def choose_format_name(path: str, format: str | None = None) -> str:
    """Return the name of the format that a new array at `path` would have."""
    return finding.find_for_new(path, format).name


def is_folder_format(outer: str, format: str | None = None) -> bool:
    """Return whether a new array or container at `outer` would be a folder."""
    return finding.find_for_new(outer, format).is_folder


def find_format_name(outer: str, format: str | None = None) -> str:
    """Return the name of the format of a file or folder; `format` itself if the caller knows it."""
    return _find_known(outer, format).name


def _split_argument(path: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    names = path_names(path)
    single = isinstance(path, str | os.PathLike)
    return names[0], options if single else {**options, "files": names}
