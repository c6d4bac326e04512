"""
`create`: new arrays.

Problem: a new array may replace an old one, and may be filled from the array that it replaces.
Approach: an existing array is replaced only if the caller asks for it. `create` first checks everything
that would fail later for a reason known now (data that does not fit, a source that would be removed).

Invariants: if `create` rejects a call, nothing on disk has changed. When a new array with elements
replaces an old array, the old one stays until the new one is complete (`formats.replacing`).
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

import outcore
from outcore import formats
from outcore.arrays.disk import DiskArray, Mode
from outcore.base.hints import Hints
from outcore.errors import OutcoreError, UsageError
from outcore.formats.layout import ArrayInfo
from outcore.formats.paths import path_names
from outcore.formats.spec import as_dtype

if TYPE_CHECKING:
    from outcore.arrays.layouts import ResidentLayout
    from outcore.formats.replacing import Replacement

__all__ = ["create", "get_creation_options"]

Path = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@overload
def create(
    path: Path,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    data: Any = None,
    like: Any = None,
    typical_sections: Any = None,
    overwrite: bool = False,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: None = None,
    **options: Any,
) -> DiskArray: ...
@overload
def create(
    path: Path,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    data: Any = None,
    like: Any = None,
    typical_sections: Any = None,
    overwrite: bool = False,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport,
    **options: Any,
) -> outcore.mpi.CollectiveArray: ...
def create(
    path: Path,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    data: Any = None,
    like: Any = None,
    typical_sections: Any = None,
    overwrite: bool = False,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
    **options: Any,
) -> DiskArray:
    """
    Create an array on disk. An existing array is replaced only with ``overwrite=True``.

    Collective with `comm`.

    Parameters
    ----------
    path
        Path of the array; its suffix determines the format (``.npy``, ``.h5``, ``.nc``, ``.zarr``,
        ``.raw``, ...).
    shape, dtype
        As for `numpy.empty`; by default those of `data`. A dtype without fixed size (``object``,
        ``StringDType``) raises an error.
    data
        Elements to store: anything that NumPy can convert to an array, or a `DiskArray`, which is
        copied block by block. An `xarray.DataArray` also provides names of axes, names of coordinates
        and attributes.
    like
        Array that provides the shape, dtype, order, chunks, shards, codecs, fill value, names of axes,
        attributes (and the format, if the suffix does not determine it) unless they are given, but no
        elements, as in `numpy.empty_like`. An array of outcore, h5py or zarr; an `xarray.DataArray`,
        which provides shape, dtype, names of axes, names of coordinates and attributes; or an array of
        NumPy or another library, which provides shape, dtype and order. Properties that the format
        cannot store are omitted, with a warning unless they concern only the layout.
    typical_sections
        For ``chunks="auto"``: sections that will be read and written, as for `disk_array`.
    overwrite
        Replace an existing array or file of that name. With `data`, the old array stays until the new
        one is complete and durable: after an error, a full disk or a crash, either the old or the new
        array exists. (A raw array in several files is replaced file by file.)
    hints
        Hints; they never change results.
    comm
        Communicator of mpi4py, or a transport: all its ranks make the same call. The first rank creates
        the array, with its `data`, and all ranks open it.
    options
        ``format`` (name, overrides the suffix); ``order`` (``"C"`` or ``"F"``); ``chunks`` and
        ``shards`` (one integer per axis, -1 or None for the whole axis, or one integer for all axes),
        or ``chunks="auto"`` (see Notes); ``compression`` (``"zstd"``, ``"zstd:3"`` with a level, a
        `Codec`, a sequence of these in the order of encoding, or None; by default that of new arrays in
        the library of the format: zstd in Zarr, none in the others); ``fill_value`` (one element;
        NetCDF4 and Zarr version 2 declare it as the value for missing data); ``dims`` (a name or None
        per axis); ``attrs`` (a mapping); and options of the format: ``files``, ``offset`` (raw),
        ``resizable``, ``maxshape`` (HDF5), ``unlimited`` (NetCDF4), ``separator`` (Zarr).

    Returns
    -------
    DiskArray
        Array open for reading and writing; with `comm` a `CollectiveArray`. Elements that were never
        written read as the fill value (zero, without `like`).

    Raises
    ------
    UsageError
        An argument is missing, `data` does not fit, or `path` is the array to copy.
    StorageError
        An operating system call failed. `AlreadyExistsError` (also a `FileExistsError`): the array
        exists and `overwrite` is not set.
    UnsupportedError
        The format does not support a requested property.
    CollectiveError
        With `comm`, on all ranks: a rank failed, with its failure as the cause, or the ranks made
        different calls.

    Notes
    -----
    ``chunks="auto"`` selects the chunks for which the typical sections have the lowest cost, from the
    measured parameters of this disk and the memory budget, among all chunks that the format supports,
    including none. ``print(a.layout)`` shows the comparison. Without `typical_sections`, the sections
    are planes across each axis (rows and columns), or the whole of a vector; chunks with a codec, which
    are read whole, are then roughly cubes of 1 MiB.

    The cost model is that of disk resident arrays: Nieplocha, Foster, *Disk Resident Arrays*, section
    4.

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
            "create() always creates a new array and has no option 'mode'; pass overwrite=True for "
            "'w', or call open(path, mode, ...)",
            code="unknown-option",
        )
    if "exclusive" in options:
        raise UsageError(
            "create() has no option 'exclusive'; it replaces an array only with overwrite=True",
            code="unknown-option",
        )
    if comm is not None:
        said = {
            "shape": shape,
            "dtype": dtype,
            "data": data,
            "like": like,
            "typical_sections": typical_sections,
        }
        options |= {name: value for name, value in said.items() if value is not None}
        mode_of_ranks: Mode = "w" if overwrite else "x"
        return outcore.open(path, mode_of_ranks, hints=hints, comm=comm, **options)
    words = get_creation_options(like)
    model = data if like is None else like
    named = getattr(model, "path", type(model).__name__)
    if words and options.get("format") is None and not _has_format(path_names(path)[0]):
        options["format"] = words.get("format")
    if data is not None:
        # Raise all foreseeable errors before anything is replaced.
        if isinstance(data, DiskArray):
            _check_not_source(data, path)
        else:
            words = words or _get_labels(data)
            data = np.asarray(data, None if dtype is None else as_dtype(dtype, str(path)))
        dtype = data.dtype if dtype is None else dtype
        if shape is None:
            shape = data.shape
        elif as_dtype(dtype, str(path)).subdtype is None:
            _check_fits(data, shape)
    shape = words.get("shape") if shape is None else shape
    dtype = words.get("dtype") if dtype is None else dtype
    if shape is None or dtype is None:
        raise UsageError(
            "cannot create an array without shape and dtype; pass shape= and dtype=, data=, or like=",
            code="missing-argument",
        )
    resolved = Hints.of(hints)
    mode: Mode = "w" if overwrite else "x"

    def make(path: Path, exclusive: bool, options: Mapping[str, Any]) -> DiskArray:
        info, layout, lost, kept = _create_file(
            path, shape, dtype, exclusive, words, typical_sections, options
        )
        # Only the options that are needed to reopen the array.
        array = DiskArray(info, mode, resolved, {"format": info.format})
        array.handle.layout_choice = layout
        if lost:
            from outcore.arrays.likeness import warn_lost

            name = path_names(path)[0]
            warn_lost(array, lost, kept, name, named)
        return array

    if data is None:
        return make(path, not overwrite, options)
    if overwrite and (fresh := _get_staging(path, options)) is not None:
        return _replace(fresh, path, options, make, data)
    array = make(path, not overwrite, options)
    try:
        array.write(..., data)
    except BaseException:
        array.close()
        _remove_files(path)
        raise
    return array


def _remove_files(path: Path) -> None:
    """Remove a new array that was not filled; an array inside a file or store with others stays."""
    for name in path_names(path):
        if formats.split_path(name)[1] is None:
            with contextlib.suppress(OutcoreError):  # report the first error
                formats.remove(name)


def _get_staging(path: Path, options: Mapping[str, Any]) -> Replacement | None:
    """Return the staging location of an array that replaces another one; None if none is replaced."""
    # Most arrays replace nothing and do not need these modules.
    from outcore.formats import replacing

    return replacing.begin(path, options.get("format"), options)


def _replace(
    fresh: Replacement,
    path: Path,
    options: Mapping[str, Any],
    make: Callable[..., DiskArray],
    data: Any,
) -> DiskArray:
    """Create an array with its elements in place of an older one."""
    words = {k: v for k, v in options.items() if k != "files"}
    with fresh:
        several = len(fresh.paths) > 1 or not isinstance(path, str | os.PathLike)
        array = make(
            fresh.paths if several else fresh.paths[0],
            False,
            words | {"format": fresh.format},
        )
        try:
            fresh.mark_created()
            array.write(..., data)
            array.flush()
        finally:
            array.close()
        fresh.publish()
    info, known = array.info, dict[str, Any](format=array.format)
    known |= formats.get_format(info.format).get_unrecorded_options(info)
    known.pop("files", None)  # temporary names
    named = options.get("files") or path
    again = DiskArray(
        formats.open_info(named, writable=True, **known),
        "w",
        array.hints,
        {"format": info.format},
    )
    again.handle.layout_choice = array.handle.layout_choice
    return again


def _create_file(
    path: Path,
    shape: Any,
    dtype: Any,
    exclusive: bool,
    words: Mapping[str, Any],
    typical_sections: Any,
    options: Mapping[str, Any],
) -> tuple[ArrayInfo, ResidentLayout | None, tuple[str, ...], Mapping[str, Any]]:
    """
    Create an array on disk.

    Returns its description, its chosen layout, the lost properties of `like`, and the properties to
    keep.
    """
    said, kept, layout = dict(options), {}, None
    # Most arrays are created without either and do not need these modules.
    if words:
        from outcore.arrays import likeness
        from outcore.formats.known_options import has_option

        name = path_names(path)[0]
        asked = {"shape": shape, "dtype": as_dtype(dtype, name), **said}
        kept = likeness.adapt_options(words, asked)
        kept.pop("format", None)
        format = formats.choose_format_name(name, said.get("format"))
        if not has_option(formats.get_format(format), "create", "maxshape"):
            kept.pop("maxshape", None)
        kept, _ = likeness.fit_layout(
            {**kept, "format": words.get("format")}, format, asked["dtype"]
        )
        said = {k: v for k, v in said.items() if v is not None or k not in kept}
    if typical_sections is not None or isinstance(said.get("chunks"), str):
        from outcore.arrays import layouts

        layout = layouts.choose_automatic(
            path_names(path)[0], shape, dtype, {**kept, **said}, typical_sections
        )
        said["chunks"] = said["chunks"] if layout is None else layout.chunks
        if layout is not None and "compression" not in kept:
            said.setdefault("compression", None)  # the layout assumes no compression

    def make(more: Mapping[str, Any]) -> ArrayInfo:
        return formats.create_info(path, shape, dtype, exclusive=exclusive, **{**more, **said})

    if not kept:
        return make({}), layout, (), kept
    info, lost = likeness.create_with_most(make, kept)
    return info, layout, lost, kept


def get_creation_options(like: Any) -> dict[str, Any]:
    """Return the creation options of an array; none for None."""
    if like is None:
        return {}
    from outcore.arrays import likeness

    return likeness.get_options(like)


def _get_labels(data: Any) -> dict[str, Any]:
    """Return the labels of an array in memory (names of axes, attributes); most arrays have none."""
    if isinstance(data, np.ndarray) or not hasattr(data, "dims"):
        return {}
    from outcore.arrays import likeness

    found = likeness.get_labels(data)
    return {"shape": data.shape, "dtype": data.dtype, **found} if found else {}


def _has_format(name: str) -> bool:
    try:
        formats.check_new(name, None, {})
    except UsageError:
        return False
    return True


def _check_not_source(source: DiskArray, path: Path) -> None:
    """Raise if creating the array at `path` would remove the array to copy."""
    reading = {_get_identity(source.handle.location), *map(os.path.realpath, source.handle.files)}
    for name in path_names(path):
        place = _get_identity(name)
        if any(read == place or read.startswith(place + os.sep) for read in reading):
            raise UsageError(
                f"{name!r} is the array to copy, and would be replaced before it is read; create "
                "the new array under another name, then rename it",
                code="same-file",
                path=source.path,
            )


def _get_identity(path: str) -> str:
    """Return a unique name for a file, or for an array inside it."""
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (inner or "")


def _check_fits(data: DiskArray | NDArray[Any], shape: int | Sequence[int]) -> None:
    """Raise if `data` cannot be assigned to an array of this `shape`."""
    try:
        full = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError:
        return  # not a shape; the format raises the error
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
            f"data of shape {data.shape} does not fit a new array of shape {full}; omit shape=, "
            "or pass data that can be broadcast to it",
            code="broadcast",
        )
