"""
The doors: `open` and `open_many`, beside `create`.

Problem. Ranks that open an array together must mean the same one, and all return or all raise.
Idea. The format opens the file; `create` (`outcore.creating`) makes new ones.
"""

from __future__ import annotations

import functools
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np

import outcore
from outcore import _core, formats
from outcore.creating import create, words_of
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
from outcore.formats.paths import one_name
from outcore.formats.spec import as_dtype
from outcore.hints import Hints

if TYPE_CHECKING:
    pass

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
        return _create_by_mode(path, mode, hints, options)
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


def _create_by_mode(
    path: Path,
    mode: str,
    hints: Hints | Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> DiskArray:
    """Modes ``"w"`` and ``"x"``."""
    if "overwrite" in options:
        raise UsageError(
            "open() takes no overwrite=; mode 'w' replaces an array, mode 'x' does not",
            code="unknown-option",
        )
    made: DiskArray = create(path, overwrite=mode == "w", hints=hints, **options)
    return made


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
            made = _create_by_mode(path, "x", hints, options)
        except AlreadyExistsError:
            # Somebody else was faster; or what is there is no array, which opening it has told.
            if last:
                raise missing from None
            continue
        made.handle.mode = "r+"
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
            format = formats.format_of_new(one_name(path))
        except UsageError:
            return False
    return format == "raw"


def _with_data(options: Mapping[str, Any]) -> dict[str, Any]:
    """What options say of a new array, and beside that what its data, or another array, says."""
    words = words_of(options.get("like"))
    data = options.get("data")
    if data is not None:
        data = data if hasattr(data, "dtype") else np.asarray(data)
        words |= {"shape": data.shape, "dtype": data.dtype}
    return words | {k: v for k, v in options.items() if v is not None}


def _must_be(found: DiskArray, options: Mapping[str, Any]) -> None:
    """Refuse an array that is there with another shape or dtype than was asked for."""
    words = _with_data(options)
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
            f"open_many() takes a list of paths, not {paths!r} alone; call open() for one, and "
            "sorted(glob.glob(...)) for the names of a pattern",
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
            said = _with_data(options) if name == "raw" else {}
            known = {k: v for k, v in said.items() if k in _RAW} | {"format": name}
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
            array.place = place_of(path, resolved=resolved)
        places = one_number([array.place for array in found])
        return [_MODES.index(mode), places, one_number([elements_of(a.info) for a in found])]

    def tell() -> str:
        with_mode = f"with mode {mode!r}"
        if call == "outcore.open":
            return f"open of {_told(asked[0])} {with_mode}, {_meant(options, found[0].info)}"
        # The first one of which the ranks mean something else.
        mine = np.array([(a.place, elements_of(a.info)) for a in found], np.int64).reshape(-1, 2)
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
        said = {**words_of(like), **{k: v for k, v in said.items() if v is not None}}
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
