"""
The doors: `open`, `open_many` and `create`.

Problem. A new array replaces what is there, and may be filled from the very thing that it replaces.
Idea. The format opens or makes the file; `create` first refuses whatever could fail later for a reason
that is known now (data that does not fit, a source that would be gone).

Invariants. What `create` refuses it refuses before anything on disk has changed.
"""

from __future__ import annotations

import functools
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

import outcore
from outcore import _core, formats
from outcore.disk import DiskArray, Mode
from outcore.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    PathTypeError,
    UnsupportedError,
    UsageError,
)
from outcore.formats.layout import ArrayInfo, Codec, is_text
from outcore.formats.paths import path_names
from outcore.formats.spec import as_dtype
from outcore.hints import Hints

if TYPE_CHECKING:
    from outcore.layouts import ResidentLayout

__all__ = ["create", "open", "open_many"]

Path = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@overload
def open(
    path: Path,
    mode: Mode = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: None = None,
    **options: Any,
) -> DiskArray: ...
@overload
def open(
    path: Path,
    mode: Mode = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.Communicator | outcore.Transport,
    **options: Any,
) -> outcore.CollectiveArray: ...
def open(
    path: Path,
    mode: Mode = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.Communicator | outcore.Transport | None = None,
    **options: Any,
) -> DiskArray:
    """
    Open an array on disk.

    Parameters
    ----------
    path
        A file, ``file.h5::/group/name``, or a Zarr folder.
    mode
        ``"r"`` reads, ``"r+"`` reads and writes, ``"w"`` creates or replaces, ``"x"`` creates and
        refuses to replace. The last two need ``shape=`` and ``dtype=``; see `create`. ``"a"`` opens for
        reading and writing what is there, and creates what is not if it is told how: ``shape=`` and
        ``dtype=`` (``data=``, ``like=``) have to be those of the array that is there, other words for
        `create` count only where it makes one. Of several processes that do so at once one creates it.
    hints
        Hints; they never change results.
    comm
        A communicator of mpi4py, or a transport: all its ranks open the array together, and get a
        `CollectiveArray`. Collective: all return, or all raise `CollectiveError`, also if they name
        different files, modes, shapes or other options. With ``"w"``, ``"x"`` and ``"a"`` the lowest
        rank creates the file.
    options
        For the format: ``format=`` by name; ``dtype``, ``shape``, ``offset``, ``order`` for raw
        files.

    Returns
    -------
    DiskArray
        With `comm`, a `CollectiveArray`. Of text of variable length a `StringArray`, which is only read.

    Raises
    ------
    FormatError
        The file is damaged or of no known format.
    StorageError
        The file cannot be opened: `NotFoundError`, `PermissionDeniedError`, ..., which are a
        `FileNotFoundError` and a `PermissionError` as well.
    UsageError
        Unknown mode, hint or option; ``other-array``: with ``"a"``, what is there has another shape or
        dtype.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or called something else (``mismatched-call``).
        ``__cause__`` is the failure, also on ranks that did not fail themselves.

    Notes
    -----
    The HDF5 library loops for ever or crashes on some damaged HDF5 and NetCDF4 files, about one in
    400 of those that were damaged on purpose. For files whose source you do not trust, set the
    environment variable ``OUTCORE_HDF5_GUARD`` to a number of seconds: another process visits the file
    first, and if it dies or takes longer, `FormatError` (``hdf5-refused``) is raised. Off by default:
    it costs the start of a process for each dataset.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("field.npy", np.arange(6).reshape(2, 3))
    >>> with outcore.open("field.npy") as a:
    ...     a[:, 1]
    array([1, 4])
    >>> with outcore.open("log.zarr", "a", shape=(0, 3), dtype="f8") as a:  # the first time it is made
    ...     a.append([1, 2, 3])
    """
    if comm is not None:
        from outcore.transport import transport

        return _open_together(transport(comm), path, mode, hints, options)
    if mode in ("w", "x"):
        return create(path, exclusive=mode == "x", hints=hints, **options)
    if mode == "a":
        return _open_or_create(path, hints, options)
    _check_mode(mode)
    resolved = Hints.of(hints)
    info = formats.open_info(path, writable=mode == "r+", **options)
    return _opened(info, mode, resolved, options)


def _opened(info: ArrayInfo, mode: Mode, hints: Hints, options: Mapping[str, Any]) -> DiskArray:
    """An array as its elements are: of a fixed size, or text."""
    if is_text(info):
        from outcore.strings import StringArray

        # It has the methods of reading, and says of all others that it has not.
        return StringArray(info, hints, options)  # type: ignore[return-value, arg-type]
    return DiskArray(info, mode, hints, options)


def _open_or_create(
    path: Path, hints: Hints | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> DiskArray:
    """Mode ``"a"``: what is there, or else a new array."""
    raw = _is_raw(path, options.get("format"))
    known = {k: v for k, v in options.items() if k == "format" or (raw and k in _RAW)}
    makes = ("data" in options or "like" in options) or {"shape", "dtype"} <= set(options)
    for last in (False, True):
        try:
            found: DiskArray = open(path, "r+", hints=hints, **known)
        except (NotFoundError, FormatError) as error:
            if isinstance(error, FormatError) and error.code not in _NO_ARRAY:
                raise
            missing = error
        else:
            try:
                _must_be(found, options)
            except BaseException:
                found.close()
                raise
            return found
        if not makes:
            raise NotFoundError(
                f"there is no array {_told(path)}, and mode 'a' makes one only if it is told how: give "
                "shape= and dtype=, data= or like=",
                code="not-found",
            ) from missing
        try:
            made = create(path, exclusive=True, hints=hints, **options)
        except AlreadyExistsError:
            # Somebody else was faster; or what is there is no array, which opening it has told.
            if last:
                raise missing from None
            continue
        made._mode = "r+"
        return made
    raise AssertionError("two attempts end in one of these ways")


# Codes of "there is a file, but no such array in it".
_NO_ARRAY = ("no-such-array", "not-an-array")


def _is_raw(path: Path, format: str | None) -> bool:
    """Whether a new array of this name is a raw file, which does not say what it holds."""
    if not isinstance(path, str | os.PathLike):
        return True
    if format is None:
        try:
            format = formats.format_of_new(formats.split_path(os.fspath(path))[0])
        except UsageError:
            return False
    return format == "raw"


def _must_be(found: DiskArray, options: Mapping[str, Any]) -> None:
    """Refuse an array that is there with another shape or dtype than was asked for."""
    words = _words_of(options.get("like"))
    data = options.get("data")
    if data is not None:
        data = data if hasattr(data, "dtype") else np.asarray(data)
        words = {"shape": data.shape, "dtype": data.dtype}
    words |= {k: options[k] for k in ("shape", "dtype") if options.get(k) is not None}
    kind, shape = words.get("dtype"), words.get("shape")
    below: tuple[int, ...] = ()
    if kind is not None:
        kind = as_dtype(kind, found.path)
        kind, below = kind.base, kind.shape
    if shape is not None:
        shape = (*(tuple(shape) if np.iterable(shape) else (shape,)), *below)
    same = shape is None or shape == found.shape
    if same and (kind is None or kind.newbyteorder("=") == found.dtype.newbyteorder("=")):
        return
    raise UsageError(
        f"{found.path!r} is there with shape {found.shape} and dtype {found.dtype}, not "
        f"{found.shape if shape is None else shape} and {kind or found.dtype}; open it with 'r+', or "
        "replace it with 'w'",
        code="other-array",
        path=found.path,
    )


@overload
def open_many(
    paths: Iterable[str | os.PathLike[str]],
    mode: Literal["r", "r+"] = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    format: str | None = None,
    comm: None = None,
) -> list[DiskArray]: ...
@overload
def open_many(
    paths: Iterable[str | os.PathLike[str]],
    mode: Literal["r", "r+"] = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    format: str | None = None,
    comm: outcore.Communicator | outcore.Transport,
) -> list[outcore.CollectiveArray]: ...
def open_many(
    paths: Iterable[str | os.PathLike[str]],
    mode: Literal["r", "r+"] = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    format: str | None = None,
    comm: outcore.Communicator | outcore.Transport | None = None,
) -> list[DiskArray] | list[outcore.CollectiveArray]:
    """
    Open several arrays: as `open` for each, and faster.

    The library of HDF5 and NetCDF4 opens each file once, and not for each of its datasets. Ranks
    synchronise once, and not for each array.

    Parameters
    ----------
    paths
        As `open` takes them, one for each array.
    mode
        ``"r"`` reads, ``"r+"`` reads and writes.
    hints
        Hints for all of them; they never change results.
    format
        Name of the format of all of them, if neither names nor first bytes tell.
    comm
        As for `open`: all ranks open the same arrays, in the same order. Collective: all return, or all
        raise `CollectiveError`.

    Returns
    -------
    list of DiskArray
        In the order of `paths`; with `comm`, `CollectiveArray`. An array holds no file open before it is
        used.

    Raises
    ------
    FormatError, StorageError, UsageError
        As `open` raises for one of them; none is open then.
    CollectiveError
        With `comm`, on all ranks: as `open` raises. If ranks meant different arrays, the first one that
        differs is named.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> for name in ("u", "v"):
    ...     outcore.create(f"wind.h5::/{name}", data=np.arange(3.0)).close()
    >>> u, v = outcore.open_many(["wind.h5::/u", "wind.h5::/v"])
    >>> u[:] + v[:]
    array([0., 2., 4.])

    By two ranks, of which each reads half of both in one call:

    >>> from outcore.testing.sim import SimWorld
    >>> def work(comm):
    ...     arrays = outcore.open_many(["wind.h5::/u", "wind.h5::/v"], comm=comm)
    ...     return outcore.read_all([(a, slice(comm.rank, None, 2)) for a in arrays])
    >>> SimWorld(2).run(work)[1]
    [array([1.]), array([1.])]
    """
    options = {} if format is None else {"format": format}

    def look() -> tuple[list[Path], list[ArrayInfo], dict[str, Any]]:
        _check_many(paths, mode)
        asked: list[Path] = list(paths)
        return asked, formats.open_infos(asked, writable=mode == "r+", **options), options  # type: ignore[arg-type]

    if comm is not None:
        from outcore.transport import transport

        return _join(transport(comm), "outcore.open_many", mode, hints, options, look)
    resolved = Hints.of(hints)
    return [_opened(info, mode, resolved, options) for info in look()[1]]


def _check_many(paths: Iterable[str | os.PathLike[str]], mode: str) -> None:
    if mode not in ("r", "r+"):
        raise UsageError(
            f"open_many() opens what is there, with mode 'r' or 'r+', not {mode!r}; create() makes a "
            "new array",
            code="bad-mode",
        )
    if isinstance(paths, str | os.PathLike):
        raise PathTypeError(
            f"open_many() takes a list of paths, not {paths!r} alone; call open() for one",
            code="bad-path",
        )


def _open_together(
    group: outcore.Transport,
    path: Path,
    mode: Mode,
    hints: Hints | Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> outcore.CollectiveArray:
    # Whoever opens an array alone needs none of these.
    from outcore.collective.agreement import together
    from outcore.collective.items import place_of

    made: _core.Records | None = None

    def tell() -> str:
        return f"open of {_told(path)} with mode {mode!r}, {_meant(options, None)}"

    def words(*, resolved: bool = False) -> list[int]:
        return [_MODES.index(mode), place_of(path, resolved=resolved), _digest(options)]

    if mode in ("w", "x", "a"):
        # Nothing is replaced before all ranks mean the same.
        again = functools.partial(words, resolved=True)
        together(group, "outcore.open", words, tell, same=3, again=again)

        def make() -> list[int]:
            if group.rank:
                return [0]
            with open(path, mode, hints=hints, **options) as array:
                return [_FORMATS.index(array.format)]

        made = together(group, "outcore.open", make, tell, same=0)

    def look() -> tuple[list[Path], list[ArrayInfo], dict[str, Any]]:
        _check_mode(mode)
        known = dict(options)
        if made is not None:
            name = _FORMATS[made.setting(0)[0]]
            # What it takes to open it again; the rest was only for creating it. A raw file does not
            # say what it holds.
            raw = name == "raw"
            known = {k: v for k, v in options.items() if raw and k in _RAW} | {"format": name}
        return [path], [formats.open_info(path, writable=mode != "r", **known)], known

    return _join(group, "outcore.open", mode, hints, options, look)[0]


def _join(
    group: outcore.Transport,
    call: str,
    mode: Mode,
    hints: Hints | Mapping[str, Any] | None,
    options: Mapping[str, Any],
    look: Callable[[], tuple[list[Path], list[ArrayInfo], dict[str, Any]]],
) -> list[outcore.CollectiveArray]:
    """
    Let each rank open the same arrays; all return them, or all raise. One synchronisation.

    `look` finds what this rank means: paths, what the formats say of the arrays, and what it takes to
    open them again.
    """
    from outcore.collective.agreement import together
    from outcore.collective.array import CollectiveArray
    from outcore.collective.items import elements_of, one_number, place_of

    asked: list[Path] = []
    found: list[CollectiveArray] = []

    def join() -> list[int]:
        # Ranks of one node share its processors.
        here = group.nodes.count(group.nodes[group.rank])
        fair = _with_threads(max(1, len(os.sched_getaffinity(0)) // here))
        settings = Hints.of(hints).over(fair)
        paths, infos, known = look()
        asked.extend(paths)
        for info in infos:
            if is_text(info):
                raise UnsupportedError(
                    f"{info.path!r} holds text of variable length, which ranks do not read together; "
                    "each opens it without comm= and reads its own",
                    code="text-elements",
                    path=info.path,
                )
            as_if: Mode = "r+" if mode == "a" else mode
            found.append(CollectiveArray(info, as_if, settings, known, group))
        return words()

    def words(*, resolved: bool = False) -> list[int]:
        for array, path in zip(found, asked, strict=True):
            array._place = place_of(path, resolved=resolved)
        places = one_number([array._place for array in found])
        return [_MODES.index(mode), places, one_number([elements_of(a.info) for a in found])]

    def tell() -> str:
        with_mode = f"with mode {mode!r}"
        if call == "outcore.open":
            return f"open of {_told(asked[0])} {with_mode}, {_meant(options, found[0].info)}"
        # The first one of which the ranks mean something else.
        mine = np.array([(a._place, elements_of(a.info)) for a in found], np.int64).reshape(-1, 2)
        rows = [np.frombuffer(said, np.int64) for said in group.allgather_bytes(mine.tobytes())]
        least = min(map(len, rows)) // 2
        both = np.array([row[: 2 * least] for row in rows]).reshape(len(rows), least, 2)
        differ = np.flatnonzero((both != both[0]).any(axis=(0, 2)))
        first = int(differ[0]) if differ.size else least
        if first >= len(found):
            return f"open_many of {len(found)} arrays {with_mode}"
        means = f"{_told(asked[first])}, {_meant(options, found[first].info)}"
        return f"open_many of {len(found)} arrays {with_mode}, of which paths[{first}] is {means}"

    try:
        again = functools.partial(words, resolved=True)
        together(group, call, join, tell, same=3, again=again)
    except BaseException:
        for array in found:
            array.close()
        raise
    return found


def _told(path: Path) -> str:
    names = path if isinstance(path, list | tuple) else [path]
    return ", ".join(repr(os.fspath(n) if isinstance(n, os.PathLike) else n) for n in names)


def _meant(options: Mapping[str, Any], info: ArrayInfo | None) -> str:
    """What a rank opened, in words; before that, what it was told."""
    if info is None:
        told = [f"{name}={reprlib.repr(options[name])}" for name in sorted(options)]
        return ", ".join(told) or "without options"
    start = f", from byte {info.extra['offset']}" if info.format == "raw" else ""
    return f"shape {info.shape}, dtype {info.dtype!s:.200}, order {info.order}{start}"


def _digest(options: Mapping[str, Any]) -> int:
    """A number of what is to be created, which all ranks compute alike."""
    from outcore.collective.items import number_of

    said = {"order": "C", "offset": 0, "fill_value": None, **options}
    # Of its elements those of the rank that creates the array count.
    said.pop("data", None)
    like = said.pop("like", None)
    if like is not None:
        said = {**_words_of(like), **{k: v for k, v in said.items() if v is not None}}
    if isinstance(said.get("shape"), SupportsIndex):
        said["shape"] = [said["shape"]]
    if said.get("dtype") is not None:
        said["dtype"] = repr(as_dtype(said["dtype"], "an array"))
    return number_of(_canonical({k: v for k, v in said.items() if v is not None}))


def _canonical(value: Any) -> str:
    """Text that is the same for what means the same; of what nobody knows, its type alone."""
    if isinstance(value, str | bytes | bool | None):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{sorted((str(k), _canonical(v)) for k, v in value.items())}}}"
    if isinstance(value, np.generic | np.ndarray):
        return _canonical(value.tolist())
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_canonical, value))}]"
    if isinstance(value, SupportsIndex):
        return repr(operator.index(value))
    if isinstance(value, Codec):
        return _canonical([value.name, value.options])
    return repr(value) if isinstance(value, float | complex) else type(value).__qualname__


@functools.lru_cache(maxsize=16)
def _with_threads(threads: int) -> Hints:
    return Hints(threads=threads)


_MODES = ("r", "r+", "w", "x", "a")
_FORMATS = [module.NAME for module in formats.ALL]


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise UsageError(
            f"mode {mode!r} is not known; modes: r, r+ (write as well), w (replace), x (create), a "
            "(r+, or create what is not there)",
            code="bad-mode",
        )


# What `open` has to be told of a raw file.
_RAW = ("dtype", "shape", "order", "offset")


def create(
    path: Path,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    data: Any = None,
    like: Any = None,
    typical: Any = None,
    exclusive: bool = False,
    hints: Hints | Mapping[str, Any] | None = None,
    **options: Any,
) -> DiskArray:
    """
    Create an array on disk, replacing what is there.

    Parameters
    ----------
    path
        Where; the suffix tells the format (``.npy``, ``.h5``, ``.nc``, ``.zarr``, ``.raw``, ...).
    shape, dtype
        As for `numpy.empty`; taken from `data` if left out. A dtype without fixed size (``object``,
        ``StringDType``) is refused.
    data
        Array to store: anything NumPy can make an array of, or another `DiskArray`, which is copied
        block by block.
    like
        Take from this array what is not said: shape, dtype, order, chunks, shards, codecs, fill value,
        names of axes, attributes (and the format, if the suffix tells none), but no elements, as
        `numpy.empty_like` does. An array of outcore, h5py or zarr, or of NumPy and others, of which
        shape, dtype and order are taken. What the format cannot keep is left out, with a warning unless
        it is only a matter of layout.
    typical
        For ``chunks="auto"``: the sections that will be read and written, as for `disk_array`.
    exclusive
        Refuse to replace anything.
    hints
        Hints; they never change results.
    options
        ``format`` (a name, instead of the suffix); ``order`` (``"C"`` or ``"F"``); ``chunks`` and
        ``shards`` (an integer per axis, -1 or None for the whole axis; one integer counts for all axes),
        or ``chunks="auto"`` (see below);
        ``compression`` (``"zstd"``, ``"zstd:3"`` with a level, a `Codec`, or a sequence of these in the
        order in which they encode); ``fill_value`` (one element; NetCDF4 and Zarr version 2 declare it
        as the value that means "missing"); ``dims`` (a name or None per axis);
        ``attrs`` (a mapping); and what the format offers: ``files``, ``offset`` (raw), ``resizable``,
        ``maxshape`` (HDF5), ``unlimited`` (NetCDF4), ``separator`` (Zarr).

    Returns
    -------
    DiskArray
        Open for reading and writing. Elements not written yet read as the fill value (zero, without
        `like`).

    Raises
    ------
    UsageError
        Something is missing, `data` does not fit, or `path` is the array that is copied.
    StorageError
        The system said no; `AlreadyExistsError`, a `FileExistsError`, with `exclusive`.
    UnsupportedError
        The format cannot keep what was asked.

    Notes
    -----
    ``chunks="auto"`` takes the chunks with which the typical sections cost least on this disk, by its
    figures and the memory budget, out of all that the format offers, no chunks included; what was
    compared, ``print(a.layout)`` tells. Without `typical` these are planes across each axis in turn
    (rows and columns), of a vector all of it; and chunks that pass a codec, which are read whole, are
    about cubes of 1 MiB then.

    The prices are those of disk resident arrays: Nieplocha, Foster, *Disk Resident Arrays*, section 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> with outcore.create("field.npy", (1000, 3000), "f4") as a:
    ...     a[0] = np.arange(3000)
    >>> b = outcore.create("same.zarr", like=outcore.open("field.npy"), chunks=100)
    >>> b.shape, b.dtype.name, b.chunks
    ((1000, 3000), 'float32', (100, 100))
    """
    if "mode" in options:
        raise UsageError(
            "create() always makes a new array and takes no mode=; pass exclusive=True for 'x', or call "
            "open(path, mode, ...)",
            code="unknown-option",
        )
    words = _words_of(like)
    if data is not None:
        # What can be refused is refused before anything is replaced.
        if isinstance(data, DiskArray):
            _refuse_to_replace(data, path)
        else:
            data = np.asarray(data, None if dtype is None else as_dtype(dtype, str(path)))
        dtype = data.dtype if dtype is None else dtype
        if shape is None:
            shape = data.shape
        elif as_dtype(dtype, str(path)).subdtype is None:
            _must_fit(data, shape)
    shape = words.get("shape") if shape is None else shape
    dtype = words.get("dtype") if dtype is None else dtype
    if shape is None or dtype is None:
        raise UsageError(
            "a new array needs shape= and dtype=, data=, or like=", code="missing-argument"
        )
    resolved = Hints.of(hints)
    info, layout, lost, kept = _made(path, shape, dtype, exclusive, words, typical, options)
    # What it takes to open it again; the rest was only for creating it.
    array = DiskArray(info, "x" if exclusive else "w", resolved, {"format": info.format})
    array._layout = layout
    if lost:
        from outcore.likeness import tell_lost

        tell_lost(array, lost, kept, info.path, getattr(like, "path", type(like).__name__))
    if data is not None:
        try:
            array.write(..., data)
        except BaseException:
            array.close()
            raise
    return array


def _made(
    path: Path,
    shape: Any,
    dtype: Any,
    exclusive: bool,
    words: Mapping[str, Any],
    typical: Any,
    options: Mapping[str, Any],
) -> tuple[ArrayInfo, ResidentLayout | None, tuple[str, ...], Mapping[str, Any]]:
    """A new array on disk, its chosen layout; what is lost of another array, and what it should keep."""
    said, kept, layout = dict(options), {}, None
    # Most arrays are made without either, and need none of these modules.
    if words:
        from outcore import likeness

        name = path_names(path)[0]
        if said.get("format") is None and not _tells_format(name):
            said["format"] = words.get("format")
        asked = {"shape": shape, "dtype": as_dtype(dtype, name), **said}
        kept = likeness.adapted(words, asked)
        kept.pop("format", None)
        if formats.format_of_new(formats.split_path(name)[0], said.get("format")) != "hdf5":
            kept.pop("maxshape", None)
        said = {k: v for k, v in said.items() if v is not None or k not in kept}
    if typical is not None or isinstance(said.get("chunks"), str):
        from outcore import layouts

        layout = layouts.automatic(path_names(path)[0], shape, dtype, {**kept, **said}, typical)
        said["chunks"] = said["chunks"] if layout is None else layout.chunks

    def make(more: Mapping[str, Any]) -> ArrayInfo:
        return formats.create_info(path, shape, dtype, exclusive=exclusive, **{**more, **said})

    if not kept:
        return make({}), layout, (), kept
    info, lost = likeness.kept_by(make, kept)
    return info, layout, lost, kept


def _words_of(like: Any) -> dict[str, Any]:
    """What an array says of itself; nothing of None."""
    if like is None:
        return {}
    from outcore import likeness

    return likeness.words_of(like)


def _tells_format(name: str) -> bool:
    try:
        formats.check_new(name, None, {})
    except UsageError:
        return False
    return True


def _refuse_to_replace(source: DiskArray, path: Path) -> None:
    """An array that is copied must still be there when its copy has been created."""
    reading = {_place(source._where), *map(os.path.realpath, source._files)}
    for name in path_names(path):
        place = _place(name)
        if any(read == place or read.startswith(place + os.sep) for read in reading):
            raise UsageError(
                f"{name!r} holds the array that is copied and would be replaced before it "
                "is read; create it under another name, then rename",
                code="same-file",
                path=source.path,
            )


def _place(path: str) -> str:
    """One name for a file, or for an array inside it."""
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (inner or "")


def _must_fit(data: DiskArray | NDArray[Any], shape: int | Sequence[int]) -> None:
    """What assignment to an array of this `shape` would refuse."""
    try:
        full = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError:
        return  # no shape at all, which is for the format to say
    have = tuple(data.shape)
    while len(have) > len(full) and have[0] == 1:
        have = have[1:]
    near = zip(reversed(have), reversed(full), strict=False)
    if isinstance(data, DiskArray) and data.size != 1:
        fits = data.shape == full
    else:
        fits = len(have) <= len(full) and all(n in (1, want) for n, want in near)
    if not fits:
        raise UsageError(
            f"data of shape {data.shape} does not fit a new array of shape {full}; leave shape= out, "
            "or give data that can be broadcast to it",
            code="broadcast",
        )
