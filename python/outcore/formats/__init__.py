"""
Formats: from a path to an `ArrayInfo`, which says where the elements live.

Problem. Eight file formats, each with a library that owns it, and one core that only knows bytes.
Idea. A format is a module with a handful of functions (template: `raw`); this file chooses the module
by options, by the marks in the file, then by the suffix, and hands over.
Invariants. Formats read and write metadata and never elements. Anything wrong with the file is a
`FormatError`, with the system a `StorageError`, with the call a `UsageError`.

The libraries of formats, and what knows them, take longer to import than all else: a module is imported
when a path of its format is opened or created. What tells formats apart is said here, therefore.

To add a format: write the module, add it to `ALL`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outcore.errors import (
    FormatError,
    OutcoreError,
    StorageError,
    UnsupportedError,
    UsageError,
)
from outcore.formats import durable, locks
from outcore.formats.growing import Growing, by_metadata
from outcore.formats.layout import ArrayInfo, Codec
from outcore.formats.paths import one_name, path_names
from outcore.formats.spec import Entry, Format, check_shape, make_spec

__all__ = [
    "ALL",
    "Entry",
    "Growing",
    "check_new",
    "check_place",
    "create_info",
    "discard",
    "format_of",
    "growing",
    "ls",
    "module_of",
    "open_info",
    "open_infos",
    "prepare",
    "publish",
    "reserve",
    "resize",
    "set_attrs",
    "split_path",
    "staged",
]


class _Module:
    """
    The module of a format, imported when something of it is asked for that is not said here.

    Parameters
    ----------
    name
        Of the module.
    NAME, SUFFIXES
        As the module has them.
    is_folder
        Whether it stores arrays in folders, and not in files.
    checks_marks
        Whether `open` reads marks and metadata in one visit of the file, and raises ``bad-magic`` where
        the marks of another format are.
    """

    def __init__(
        self,
        name: str,
        NAME: str,
        SUFFIXES: tuple[str, ...],
        *,
        is_folder: bool = False,
        checks_marks: bool = False,
    ) -> None:
        self._name = f"{__name__}.{name}"
        self.NAME = NAME
        self.SUFFIXES = SUFFIXES
        self.is_folder = is_folder
        self.checks_marks = checks_marks
        self._module: types.ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        return getattr(self._module, name)


_RAW = _Module("raw", "raw", (".bin", ".raw", ".dat"))
#: Every format, in the order in which files are probed.
ALL = (
    _Module("npy", "npy", (".npy",), checks_marks=True),
    _Module("netcdf4", "netcdf4", (".nc", ".nc4", ".cdf")),
    _Module("hdf5", "hdf5", (".h5", ".hdf5", ".he5", ".hdf")),
    _Module("zarr3", "zarr", (".zarr", ".zarr3"), is_folder=True),
    _Module("zarr2", "zarr2", (".zarr2",), is_folder=True),
    _Module("parts", "parts", (".parts",)),
    _Module("zarr_zip", "zarrzip", (".zip",)),
    _RAW,
)
_OF_SUFFIX = {suffix: module for module in ALL for suffix in module.SUFFIXES}

PathArgument = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def split_path(path: str) -> tuple[str, str | None]:
    """
    Divide ``file::/group/name`` into the file and the path inside it.

    A path that exists as it stands is not divided. Into a zip file it may go on as into a folder:
    ``store.zip/group/name``.

    >>> split_path("file.h5::/a/b")
    ('file.h5', '/a/b')
    >>> split_path("file.npy")
    ('file.npy', None)
    """
    if "::" not in path or os.path.lexists(path):
        at = path.lower().find(".zip/") + 4
        if at > 3 and os.path.isfile(path[:at]):
            return path[:at], "/" + path[at:].strip("/")
        return path, None
    outer, _, inner = path.partition("::")
    return outer, "/" + inner.strip("/")


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
        info = _open_likely(outer, writable)
        if info is not None:
            return info
    module = _by_name(format) if format is not None else _find(outer, is_folder, options)
    if options:
        from outcore.formats.known_options import check_options

        check_options(module, "open", options)
    return module.open(outer, inner, writable, **options)


def module_of(outer: str, format: str | None = None) -> Format:
    """The module of the format of what is there, as `open_info` finds it."""
    is_folder = durable.refuse_special(outer)
    return _by_name(format) if format is not None else _find(outer, is_folder, {})


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
            likely = _open_likely(outer, writable)
            if likely is not None:
                found[outer, None] = likely
                continue
        module = module_of(outer, format)
        each = getattr(module, "open_each", None)
        if each is None:
            infos = [module.open(outer, inner, writable) for inner in inners]
        else:
            infos = each(outer, inners, writable)
        found.update(zip(((outer, inner) for inner in inners), infos, strict=True))
    return [found[place] for place in places]


#: What new arrays of a format have unless something else is said, as those of its own library do.
NEW_CODECS = {"zarr": Codec("zstd", {"level": 0}), "zarr2": Codec("zstd", {"level": 0})}


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
    module = _maker(text, format, options)
    if isinstance(compression, str) and compression == "auto":
        compression = NEW_CODECS.get(module.NAME)
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

        check_options(module, "create", options)
    return module.create(outer, inner, spec, **options)


def takes(format: str, codec: Codec, dtype: np.dtype[Any]) -> bool | None:
    """Whether a new array of a format can have a codec; None if the format has none."""
    ask = getattr(_by_name(format), "takes", None)
    return None if ask is None else bool(ask(codec, dtype))


def needs_plugin(format: str, codec: Codec) -> bool:
    """Whether the library of a format reads a codec only with a plug-in that users may not have."""
    ask = getattr(_by_name(format), "needs_plugin", None)
    return ask is not None and bool(ask(codec))


def substitute(format: str) -> Codec:
    """Return the codec that a format has for arrays whose own it cannot keep."""
    return NEW_CODECS.get(format) or Codec("deflate", {"level": 4})


def check_new(path: PathArgument, format: str | None, options: Mapping[str, Any]) -> None:
    """Refuse a name that does not tell the format of a new array."""
    text, options = _path_argument(path, dict(options))
    if format is not None:
        _by_name(format)
    else:
        _maker(text, None, options)


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
    if format is None and inner is None and _is_plain_folder(outer):
        return _in_folder(outer)
    return module_of(outer, format).ls(outer, inner)


def _is_plain_folder(path: str) -> bool:
    """Whether it is a folder that is no array or group, and has no suffix of such a folder."""
    likely = _OF_SUFFIX.get(_suffix_of(path))
    is_store = likely is not None and likely.is_folder
    return os.path.isdir(path) and not is_store and _marked(path, True) is None


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
        module, likely = _marked(path, is_folder), _OF_SUFFIX.get(_suffix_of(path))
        if module is None and likely is not None and likely.is_folder == is_folder:
            module = likely  # which says what is wrong with the file
        if module is None or module is _RAW:
            continue
        try:
            found += module.ls(path, None)
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
    step = _ability(info, "resize")
    stale = getattr(_by_name(info.format), "stale", None)
    if stale is not None and fill is not None and len(full) == len(info.shape):
        # Never smaller than it is, so that what is visible until then stays as it is.
        longer = tuple(map(max, info.shape, full))
        if longer != info.shape:
            sections = stale(info, longer)
            info = reserve(info, longer)
            fill(info, sections)
    return step(info, full)  # type: ignore[no-any-return]


def is_resizable(info: ArrayInfo) -> bool:
    """Whether the format of an array can change the length of an axis, of some arrays at least."""
    return hasattr(_by_name(info.format), "resize")


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
    _ability(info, "resize")
    module = _by_name(info.format)
    own = getattr(module, "growing", None)
    return own(info) if own is not None else by_metadata(module, info)


def reserve(info: ArrayInfo, shape: int | Sequence[int]) -> ArrayInfo:
    """
    Make room for a longer array without telling so in the metadata, where the format can.

    The crash-safe way to append: `reserve`, write, fsync, `resize`, all of it inside `growing`. A format
    that cannot do so resizes at once.
    """
    full = check_shape(shape, info.dtype.itemsize, info.path, stored=False)
    module = _by_name(info.format)
    step = getattr(module, "reserve", None) or _ability(info, "resize")
    return step(info, full)  # type: ignore[no-any-return]


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
    step = _ability(info, "set_attrs")
    return step(info, dict(attrs), drop)  # type: ignore[no-any-return]


def staged(path: str, format: str | None = None) -> str | None:
    """
    Where an array of an existing file or store grows until it is whole and gets its name by `publish`.

    None if `path` is no array inside another file, or one of a format that makes it at its place.
    """
    outer, inner = split_path(path)
    if inner is None or not os.path.lexists(outer):
        return None
    step = getattr(_maker(path, format), "staged", None)
    return None if step is None else step(outer, inner)


def check_place(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """Refuse what `publish` would refuse, where the format can say so before."""
    outer, inner = split_path(path)
    step = getattr(_maker(path, format), "check_place", None)
    if step is not None:
        step(outer, inner, exclusive)


def prepare(path: str, *, format: str | None = None) -> None:
    """Before an array is created where `staged` says."""
    outer, inner = split_path(path)
    step = getattr(_maker(path, format), "prepare", None)
    if step is not None:
        step(outer, inner)


def publish(path: str, *, format: str | None = None, exclusive: bool = False) -> None:
    """
    Give an array that was made where `staged` said its name, in place of an older one.

    Nothing happens if it is not there any more: whoever was killed then has done so.
    """
    outer, inner = split_path(path)
    _maker(path, format).publish(outer, inner, exclusive)  # type: ignore[attr-defined]


def discard(path: str, *, format: str | None = None) -> None:
    """Remove what was made where `staged` said, if it is there."""
    outer, inner = split_path(path)
    maker = _maker(outer, format)
    if hasattr(maker, "discard"):
        maker.discard(outer, inner)


def take_place(fresh: str, target: str, *, format: str | None = None, exclusive: bool) -> None:
    """Give a complete array, a file or folder `fresh`, durably the name `target` of what goes."""
    step = getattr(_maker(target, format), "take_place", None)
    if step is not None:
        step(fresh, target, exclusive)
        return
    with durable.os_errors("renaming to", target):
        durable.move_into_place(fresh, target, exclusive=exclusive)


def marked(path: str) -> Format | None:
    """The format whose marks a file or folder bears; of a damaged manifest that of its name."""
    found = _marked(path, os.path.isdir(path))
    likely = _OF_SUFFIX.get(_suffix_of(path))
    return likely if found is None and hasattr(likely, "files") else found


def remove(path: str) -> None:
    """Remove an array that is a file or folder of its own, with all that it is made of."""
    step = getattr(marked(path), "remove", None)
    with durable.os_errors("removing", path):
        if step is not None:
            step(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)


def format_of_new(path: str, format: str | None = None) -> str:
    """The name of the format that a new array at `path` would have."""
    return _maker(path, format).NAME


def is_folder_format(outer: str, format: str | None = None) -> bool:
    """Whether a new file of many arrays, or array, at `outer` would be a folder."""
    return bool(getattr(_maker(outer, format), "is_folder", False))


def format_of(outer: str, format: str | None = None) -> str:
    """The name of the format of what is at `outer`; of `format`, if the caller knows it."""
    is_folder = durable.refuse_special(outer)
    return _by_name(format).NAME if format is not None else _find(outer, is_folder, {}).NAME


def _maker(path: str, format: str | None, options: Mapping[str, Any] | None = None) -> Format:
    """The format of a new array: what is said, that of the Zarr group it is in, or the suffix's."""
    if format is not None:
        return _by_name(format)
    outer, inner = split_path(path)
    likely = None if inner is not None else _OF_SUFFIX.get(_suffix_of(outer))
    if not options and (likely is None or likely.NAME in _ZARR):
        group = outer if inner is not None else os.path.dirname(outer.rstrip("/"))
        # Looked for here: modules of formats are imported only where one of them is meant.
        there = any(os.path.lexists(os.path.join(group, mark)) for mark in _ZARR_GROUPS)
        found = _marked(group, True) if there else None
        if found is not None and found.NAME in _ZARR:
            return found
    return _by_suffix(outer, options or {})


_ZARR = ("zarr", "zarr2")
# Documents that make a folder a group of Zarr.
_ZARR_GROUPS = ("zarr.json", ".zgroup", ".zmetadata")


# What a format cannot do if it lacks the function.
_ABILITIES = {"set_attrs": "keep attributes", "resize": "be resized"}


def _ability(info: ArrayInfo, name: str) -> Any:
    found = getattr(_by_name(info.format), name, None)
    if found is None:
        can = [m.NAME for m in ALL if hasattr(m, name)]
        raise UnsupportedError(
            f"{info.path!r}: {info.format} files cannot {_ABILITIES[name]}; formats that can: "
            f"{', '.join(can)} (outcore.convert makes one of the other)",
            code="cannot-change",
            path=info.path,
        )
    return found


def _path_argument(path: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    names = path_names(path)
    single = isinstance(path, str | os.PathLike)
    return names[0], options if single else {**options, "files": names}


def _by_name(name: str) -> Format:
    for module in ALL:
        if name == module.NAME:
            return module
    known = ", ".join(m.NAME for m in ALL)
    raise UsageError(f"format {name!r} is not known; formats: {known}", code="unknown-format")


def _suffix_of(path: str) -> str:
    return os.path.splitext(path.rstrip("/"))[1].lower()


def _by_suffix(path: str, options: Mapping[str, Any]) -> Format:
    if "files" in options:
        return _RAW
    suffix = _suffix_of(path)
    if suffix in _OF_SUFFIX:
        return _OF_SUFFIX[suffix]
    table = ", ".join(f"{m.NAME} ({' '.join(m.SUFFIXES)})" for m in ALL if m.SUFFIXES)
    name = f"the suffix {suffix!r}" if suffix else "a name without a suffix"
    raise UsageError(
        f"{path!r}: {name} tells no format; pass format=, or use one of {table}",
        code="unknown-format",
        path=path,
    )


def _open_likely(path: str, writable: bool) -> ArrayInfo | None:
    """
    The array of a file as the format of its suffix reads it, where that checks the marks itself.

    None if there are other marks or the system refuses it: then all formats have to look.
    """
    likely = _OF_SUFFIX.get(_suffix_of(path))
    if likely is None or not likely.checks_marks:
        return None
    try:
        return likely.open(path, None, writable)  # type: ignore[no-any-return]
    except FormatError as error:
        if error.code != "bad-magic":
            raise
    except StorageError:
        pass
    return None


def _find(path: str, is_folder: bool, options: Mapping[str, Any]) -> Format:
    """The format of an existing file: options that only raw files need, marks, then the suffix."""
    if "files" in options:
        return _RAW
    if "dtype" in options:
        _refuse_marked(path, is_folder)
        return _RAW
    marked = _marked(path, is_folder)
    if marked is not None:
        return marked
    if not os.path.exists(path):
        import glob

        if glob.has_magic(path) and _OF_SUFFIX.get(_suffix_of(path)) is _RAW and glob.glob(path):
            return _RAW  # which says what it needs
        if glob.has_magic(path):
            raise StorageError(
                f"there is no file {path!r}, and open() takes a pattern of raw files alone, with dtype= "
                f"and shape=; pass the names: outcore.open_many(sorted(glob.glob({path!r})))",
                code="not-found",
                path=path,
            )
        with durable.os_errors("opening", path):
            os.stat(path)  # missing, or out of reach
    likely = _OF_SUFFIX.get(_suffix_of(path))
    if likely is not None:
        return likely  # its own error says what is wrong with the file
    with durable.os_errors("opening", path):
        if not os.path.isdir(path):
            os.close(os.open(path, os.O_RDONLY))
    if os.path.isdir(path):
        raise FormatError(
            f"{path!r} is a folder and no Zarr store; name a file in it, or a store (outcore.ls lists "
            "them)",
            code="unknown-format",
            path=path,
        )
    raise FormatError(
        f"{path!r} is of no known format ({', '.join(m.NAME for m in ALL)}); for bare elements pass "
        "dtype= and shape=",
        code="unknown-format",
        path=path,
    )


def _marked(path: str, is_folder: bool) -> Format | None:
    """The format whose marks a file or folder bears."""
    # First the one that the suffix tells: mostly it is, and no other has to look.
    likely = _OF_SUFFIX.get(_suffix_of(path))
    if likely is not None and likely.is_folder == is_folder and likely.probe(path):
        return likely
    others = (m for m in ALL if m is not likely and m.is_folder == is_folder)
    return next((m for m in others if m.probe(path)), None)


def _refuse_marked(path: str, is_folder: bool) -> None:
    """A file that says what it holds is not read as bare elements, header and all, by accident."""
    marked = _marked(path, is_folder)
    if marked is not None:
        raise UsageError(
            f"{path!r} is a {marked.NAME} file and says itself what it holds; leave dtype= out, or "
            "pass format='raw' to read its bare bytes",
            code="unknown-option",
            path=path,
        )
