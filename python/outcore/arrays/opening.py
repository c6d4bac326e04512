"""
Open arrays: `open` and `open_many`.

The format of a file describes its array; `create` (`outcore.arrays.creating`) makes new arrays. Calls
with ``comm=`` are passed to the package of the ranks (`outcore.base.ranked`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

import outcore
from outcore import formats
from outcore.arrays.creating import create, get_creation_options
from outcore.arrays.disk import DiskArray, Mode
from outcore.base.hints import Hints
from outcore.base.ranked import get_service
from outcore.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    PathTypeError,
    UsageError,
)
from outcore.formats.layout import ArrayInfo
from outcore.formats.spec import as_dtype
from outcore.formats.texts import Texts

__all__ = [
    "MODES",
    "check_many",
    "check_mode",
    "create",
    "describe_paths",
    "get_new_options",
    "open",
    "open_many",
]

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
    comm: outcore.mpi.Communicator | outcore.mpi.Transport,
    **options: Any,
) -> outcore.mpi.CollectiveArray: ...
def open(
    path: Path,
    mode: Mode = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
    **options: Any,
) -> DiskArray:
    """
    Open an array on disk.

    Parameters
    ----------
    path
        Path of a file, ``file.h5::/group/name``, or a Zarr folder.
    mode
        ``"r"`` reads, ``"r+"`` reads and writes, ``"w"`` creates or replaces, ``"x"`` creates and
        raises an error if the array exists. ``"w"`` and ``"x"`` need ``shape=`` and ``dtype=``; see
        `create`. ``"a"`` opens an existing array for reading and writing, and creates a missing one if
        ``shape=`` and ``dtype=`` (``data=``, ``like=``) are given. These must match an existing array;
        the other options of `create` apply only to a new one. If several processes use ``"a"``
        concurrently, exactly one creates the array.
    hints
        Hints; they never change results.
    comm
        Communicator of mpi4py, or a transport: all its ranks open the array together and get a
        `CollectiveArray`. Collective: all ranks return, or all raise `CollectiveError`, also if they
        pass different files, modes, shapes or other options. With ``"w"``, ``"x"`` and ``"a"`` the
        lowest rank creates the file.
    options
        Options of the format: ``format=`` (its name); ``dtype``, ``shape``, ``offset``, ``order`` for
        raw files.

    Returns
    -------
    DiskArray
        With `comm`, a `CollectiveArray`. For text of variable length, a read-only `StringArray`.

    Raises
    ------
    FormatError
        The file is damaged, or its format is unknown.
    StorageError
        The file cannot be opened: `NotFoundError` (also a `FileNotFoundError`), `PermissionDeniedError`
        (also a `PermissionError`), ...
    UsageError
        A mode, hint or option is unknown; ``other-array``: with ``"a"``, the existing array has another
        shape or dtype.
    CollectiveError
        With `comm`, on all ranks: a rank failed or made a different call (``mismatched-call``).
        ``__cause__`` is the failure, also on ranks that did not fail themselves.

    Notes
    -----
    On some damaged HDF5 and NetCDF4 files the HDF5 library loops forever or crashes: about one in 400
    of the files that were damaged on purpose. For files from untrusted sources, set the environment
    variable ``OUTCORE_HDF5_GUARD`` to a number of seconds. A separate process then visits the file
    first; if it dies or takes longer, `FormatError` (``hdf5-refused``) is raised. The guard is off by
    default because it starts a process for each dataset.

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
        return get_service().open(comm, path, mode, hints, options)
    if mode in ("w", "x"):
        return _create_by_mode(path, mode, hints, options)
    if mode == "a":
        return _open_or_create(path, hints, options)
    check_mode(mode)
    resolved = Hints.of(hints)
    info = formats.open_info(path, writable=mode == "r+", **options)
    return _create_handle(info, mode, resolved, options)


def _create_handle(
    info: ArrayInfo, mode: Mode, hints: Hints, options: Mapping[str, Any]
) -> DiskArray:
    """Return a `StringArray` for text of variable length, else a `DiskArray`."""
    if isinstance(info, Texts):
        from outcore.arrays.strings import StringArray

        # It has the methods that read; all others raise an error.
        return StringArray(info, hints, options)  # type: ignore[return-value]
    return DiskArray(info, mode, hints, options)


def _create_by_mode(
    path: Path,
    mode: str,
    hints: Hints | Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> DiskArray:
    """Create an array for mode ``"w"`` or ``"x"``."""
    if "overwrite" in options:
        raise UsageError(
            "open() has no option 'overwrite'; use mode 'w' to replace an array, mode 'x' not to",
            code="unknown-option",
        )
    made: DiskArray = create(path, overwrite=mode == "w", hints=hints, **options)
    return made


def _open_or_create(
    path: Path, hints: Hints | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> DiskArray:
    """Open an existing array or create it, for mode ``"a"``."""
    unrecorded = _list_unrecorded(path, options.get("format"))
    known = {k: v for k, v in options.items() if k == "format" or k in unrecorded}
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
                _check_matches(found, options)
            except BaseException:
                found.close()
                raise
            return found
        if not makes:
            raise NotFoundError(
                f"there is no array {describe_paths(path)}, and mode 'a' needs a shape and a dtype to "
                "create one; pass shape= and dtype=, data= or like=",
                code="not-found",
            ) from missing
        try:
            made = _create_by_mode(path, "x", hints, options)
        except AlreadyExistsError:
            # Another process created it first; or the path is not an array, and `open` has raised.
            if last:
                raise missing from None
            continue
        made.handle.mode = "r+"
        return made
    raise AssertionError("two attempts end in one of these ways")


# Error codes for a file that exists but does not have the array.
_NO_ARRAY = ("no-such-array", "not-an-array")


def _list_unrecorded(path: Path, format: str | None) -> tuple[str, ...]:
    """Return the options that a new array of this name does not record, as a raw file its shape."""
    try:
        return formats.choose_format(path, format).unrecorded_options
    except UsageError:
        return ()


def get_new_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a new array, including those derived from ``data=`` or ``like=``."""
    words = get_creation_options(options.get("like"))
    data = options.get("data")
    if data is not None:
        data = data if hasattr(data, "dtype") else np.asarray(data)
        words |= {"shape": data.shape, "dtype": data.dtype}
    return words | {k: v for k, v in options.items() if v is not None}


def _check_matches(found: DiskArray, options: Mapping[str, Any]) -> None:
    """Raise if an existing array differs from the requested shape or dtype."""
    words = get_new_options(options)
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
        f"{found.path!r} already exists with shape {found.shape} and dtype {found.dtype}, not "
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
    comm: outcore.mpi.Communicator | outcore.mpi.Transport,
) -> list[outcore.mpi.CollectiveArray]: ...
def open_many(
    paths: Iterable[str | os.PathLike[str]],
    mode: Literal["r", "r+"] = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    format: str | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
) -> list[DiskArray] | list[outcore.mpi.CollectiveArray]:
    """
    Open several arrays, faster than one call of `open` for each.

    The library of HDF5 and NetCDF4 opens each file once instead of once per dataset. Ranks synchronise
    once instead of once per array.

    Parameters
    ----------
    paths
        Paths of the arrays, as for `open`.
    mode
        ``"r"`` reads, ``"r+"`` reads and writes.
    hints
        Hints for all arrays; they never change results.
    format
        Name of the format of all arrays, if neither names nor first bytes determine it.
    comm
        As for `open`; all ranks open the same arrays in the same order. Collective: all return, or all
        raise `CollectiveError`.

    Returns
    -------
    list of DiskArray
        Arrays in the order of `paths`; with `comm`, `CollectiveArray`. An array opens its file on first
        use.

    Raises
    ------
    FormatError, StorageError, UsageError
        As for `open`, for any of the arrays; no array stays open.
    CollectiveError
        With `comm`, on all ranks: as for `open`. If the arrays of the ranks differ, the message has the
        first difference.

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
    ...     return outcore.mpi.read_all([(a, slice(comm.rank, None, 2)) for a in arrays])
    >>> SimWorld(2).run(work)[1]
    [array([1.]), array([1.])]
    """
    options = {} if format is None else {"format": format}

    if comm is not None:
        return get_service().open_many(comm, paths, mode, hints, options)
    check_many(paths, mode)
    infos = formats.open_infos(paths, writable=mode == "r+", **options)
    resolved = Hints.of(hints)
    return [_create_handle(info, mode, resolved, options) for info in infos]


def check_many(paths: Iterable[str | os.PathLike[str]], mode: str) -> None:
    """Raise `UsageError` unless the arguments of `open_many` are a list of paths and a valid mode."""
    if mode not in ("r", "r+"):
        raise UsageError(
            f"open_many() has no mode {mode!r}: it opens existing arrays; use mode 'r' or 'r+', or "
            "create() for a new array",
            code="bad-mode",
        )
    if isinstance(paths, str | os.PathLike):
        raise PathTypeError(
            f"open_many() needs a list of paths, not {paths!r}; call open() for one path, and use "
            "sorted(glob.glob(...)) for a pattern",
            code="bad-path",
        )


def describe_paths(path: Path) -> str:
    """Return the path, or the paths of a list, for a message."""
    names = path if isinstance(path, list | tuple) else [path]
    return ", ".join(repr(os.fspath(n) if isinstance(n, os.PathLike) else n) for n in names)


MODES = ("r", "r+", "w", "x", "a")


def check_mode(mode: str) -> None:
    """Raise `UsageError` (``bad-mode``) for an unknown mode of `open`."""
    if mode not in MODES:
        raise UsageError(
            f"unknown mode {mode!r}; modes: r, r+ (write as well), w (replace), x (create), a "
            "(r+, or create what is not there)",
            code="bad-mode",
        )
