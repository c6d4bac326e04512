"""
Conversion from any format, chunking, order and dtype to any other, within the budget.

Problem. Few pieces suit the layouts of both arrays, the array does not fit in memory, the job takes
hours, and the machine may fail partway.
Idea. A conversion is a copy (`outcore.compute.copies.copying`): tiles that suit both sides, read
ahead and written behind. The target grows under a temporary name and takes its place when it is
complete and durable. A journal next to it records which tiles are durable (`outcore.compute.jobs`).

Invariants. The target's name always refers to the old array or to the complete new one (except
inside an existing Zarr group). Resuming never mixes two jobs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from outcore import formats
from outcore.arrays import layouts
from outcore.arrays.disk import DiskArray
from outcore.arrays.groups import Group
from outcore.arrays.layouts import ResidentLayout
from outcore.arrays.likeness import get_description, get_storage, select_size_independent
from outcore.arrays.opening import open
from outcore.base.report.progress import ProgressArgument
from outcore.base.sections import Selection
from outcore.compute.copies.convert_group import convert_group, is_group_source
from outcore.compute.copies.copying import plan_copy
from outcore.compute.jobs import Operation, Planned, Result, collective, complete, reopen
from outcore.compute.jobs.target import TargetPlace
from outcore.errors import OutcoreError, UsageError
from outcore.formats.known_options import check_known
from outcore.formats.paths import one_name, path_names
from outcore.formats.spec import as_dtype, order_fields
from outcore.ranks.ranks import Ranks

__all__ = ["convert"]

T = TypeVar("T")

Path = str | os.PathLike[str]

_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


@collective
def convert(
    src: Path | Sequence[Path] | DiskArray | Group,
    dst: Path,
    *,
    format: str | None = None,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    chunks: int | Sequence[int | None] | Literal["auto"] | None = None,
    shards: int | Sequence[int | None] | None = None,
    compression: Any = "auto",
    memory: int | str | None = None,
    progress: ProgressArgument = None,
    resume: bool = False,
    overwrite: bool = False,
    casting: Literal["no", "equiv", "safe", "same_kind", "unsafe"] = "same_kind",
    source: Mapping[str, Any] | None = None,
    section: Any = None,
    typical_sections: Any = None,
    comm: Any = None,
    explain: bool = False,
    whole: bool | None = None,
    skip: bool = False,
    **options: Any,
) -> Planned | None:
    """
    Copy an array, a section, a file or a group into another format, chunking, order or dtype.

    Parameters
    ----------
    src
        Source: a path (a list of paths for a raw array in pieces), or an open array. Or a group,
        which is converted with all its members: a `Group`, or the path of a group inside a file, or
        of a file or store that holds several arrays.
    dst
        Path to write. For a group: the new file or store, or a group in one.
    format
        Format of `dst`. Default: from its suffix.
    dtype, order
        Of the new array. Default: those of the source. `casting` is NumPy's rule for the cast.
    chunks, shards, compression
        As for `outcore.create`, including ``chunks="auto"``. ``compression=None`` means no
        compression. Default: those of the source, as far as the new format supports them; a warning
        names what it does not support, and another compression replaces an unsupported one. If the
        source has no chunks, the default compression is that of `outcore.create`.
    memory, comm
        See `outcore.compute.jobs.complete`.
    progress
        Function called as ``progress(done, total)`` with bytes of the source, in this thread. True:
        a progress bar.
    resume
        Continue an interrupted conversion; start at the beginning if there was none. Raises
        ``already-exists`` if `dst` exists, since it may not be the result of this call. Without
        `resume`, the conversion always starts at the beginning, and warns if that discards finished
        steps. The exception of an interrupted conversion has a note with what is finished
        (``__notes__``).
    overwrite
        Replace an existing `dst`. The old one stays complete until the new one is.
    casting
        ``"same_kind"`` allows float64 to float32, ``"unsafe"`` anything, ``"safe"`` no loss.
    source
        Options for opening `src`, such as ``{"dtype": "f4", "shape": (100, 100)}`` for raw files.
    section
        Copy only ``src[section]``: integers, slices with any step, ``...``, None. The next level of
        a pyramid is ``np.s_[::2, ::2]``. Chunks outside the section are not read.
    typical_sections
        For ``chunks="auto"``: the sections of `dst` that will be read, as for `outcore.create`.
    explain
        Return the plan instead of converting. One array only.
    whole
        True: `src` is a group, regardless of the number of its arrays. False: it is an array.
    skip
        For a group: omit, with a warning, arrays that cannot be read, or that `dst` cannot store.
        Default: nothing is made if any array cannot be read.
    options
        Further options for creating `dst`.

    Returns
    -------
    Planned or None
        The plan with `explain`; its ``run()`` converts.

    Raises
    ------
    BudgetError
        One chunk of each side does not fit. ``needed`` is a sufficient budget.
    UnsupportedError
        Arrays of a group cannot be read, and `skip` is not set; or `dst` cannot hold a group.
    UsageError
        The dtype cannot be cast, `dst` is `src`, or the journal belongs to another job (or to
        another `section` of `src`).
    SectionError
        `section` is not a basic index, or is out of range.
    StorageError
        ``already-exists``: `dst` exists and `overwrite` is not set. Otherwise an operating system
        call failed; finished steps are kept, and ``resume=True`` continues.

    Notes
    -----
    Collective with ``comm=``: ranks share the tiles.

    Attributes, names of axes, the fill value and the value that means "missing" (``_FillValue``)
    are copied; a warning names what the new format cannot store. Until the end the data is in
    ``<name>.outcore-partial<suffix>`` and the journal in ``<dst>.outcore-journal``, next to `dst`.
    An array inside an existing HDF5 or NetCDF4 file grows there as ``.<name>.outcore-partial``; one
    inside an existing Zarr group is written in place.

    For a group, attributes and nested groups are copied as well, and each array is converted as if
    it were alone, coordinates first. Chunks with one length per axis apply to arrays with that
    number of axes. Dimensions that can grow stay so in HDF5 and NetCDF4. A new file grows as
    ``<name>.outcore-whole<suffix>`` and takes its name when all arrays are in it. In an existing
    file, arrays get their names one by one, and arrays with other names stay. Soft and external
    links of HDF5 are not followed, and an array with several names is converted once; a warning
    reports both.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("rows.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.convert("rows.npy", "columns.npy", order="F")
    >>> np.load("columns.npy").flags.f_contiguous
    True
    >>> outcore.convert("rows.npy", "few.npy", section=np.s_[::2, 1:3])
    >>> np.load("few.npy")
    array([[ 1.,  2.],
           [ 9., 10.]])

    A file with all its members:

    >>> with outcore.open_group("run.h5", "w") as run:
    ...     for name in ("u", "grid/x"):
    ...         run.create(name, data=np.arange(6.0)).close()
    >>> outcore.convert("run.h5", "run.zarr", chunks=3, compression="zstd")
    >>> [entry.path for entry in outcore.ls("run.zarr")]
    ['run.zarr::/grid', 'run.zarr::/grid/x', 'run.zarr::/u']
    """
    if casting not in _CASTINGS:
        raise UsageError(
            f"unknown casting {casting!r}; use one of {', '.join(_CASTINGS)}",
            code="bad-casting",
        )
    if source is not None and not (
        isinstance(source, Mapping) and all(isinstance(name, str) for name in source)
    ):
        raise UsageError(
            f"source={source!r} is not a mapping; pass options for opening {src!r}, such as "
            "{'dtype': 'f4'}",
            code="bad-option",
        )
    new = {"order": order, "chunks": chunks, "shards": shards}
    if not (isinstance(compression, str) and compression == "auto"):
        new["compression"] = "none" if compression is None else compression
    how = {
        "memory": memory,
        "progress": progress,
        "resume": resume,
        "overwrite": overwrite,
        "comm": comm,
        "explain": explain,
    }
    check_known(convert, "create", options)
    formats.check_new(dst, format, options)
    ranks = Ranks.of(comm, "convert")
    if ranks.broadcast_from_first(lambda: is_group_source(src, dst, format, source or {}, whole)):
        single = {
            "dtype": dtype,
            "section": section,
            "typical_sections": typical_sections,
            "explain": explain or None,
        }
        for name, value in single.items():
            if value is not None:
                raise UsageError(
                    f"{name}= applies to one array, but {src!r} is a group; pass the path of an array",
                    code="unknown-option",
                )
        convert_group(
            src,
            one_name(dst),
            source or {},
            ranks,
            convert,
            format=format,
            memory=memory,
            progress=progress,
            resume=resume,
            overwrite=overwrite,
            skip=skip,
            options={**new, **options},
        )
        return None
    with _open(src, source or {}) as array:
        kind = order_fields(array.dtype) if dtype is None else _find_dtype(dtype)
        if not np.can_cast(array.dtype, kind, casting):
            raise UsageError(
                f"{array.path!r}: {array.dtype} cannot be cast to {kind} under "
                f"casting={casting!r}; pass casting='unsafe' to allow it",
                code="bad-cast",
                path=array.path,
            )
        selected = None if section is None else Selection.of_disk(array, section)
        shape = array.shape if selected is None else selected.shape
        kept = _list_kept_options(array, kind, selected, shape)
        layout = None
        if isinstance(chunks, str) or typical_sections is not None:
            words = {"format": format, "order": kept["order"], **_drop_unset(new), **options}
            layout = _choose_layout(
                dst, shape, kind, words, typical_sections, resume, Ranks.of(comm, "convert")
            )
            new["chunks"] = layout.chunks
            kept["chunks"] = kept["shards"] = None
            if "compression" not in new and not kept.get("compression"):
                kept["compression"] = ()  # the layout was chosen for chunks without compression
        result = Result(shape, kind, kept, array.path)
        plan = plan_copy("convert", shape, (array.dtype, kind), section=selected)
        arguments: dict[str, Any] = {"dtype": kind, "casting": casting}
        if selected is not None:
            arguments["section"] = selected.key
        operation = Operation("convert", (array,), (result,), plan, arguments, out_name="dst")
        done = complete(operation, dst, {**how, "format": format, **new, **options})
    if isinstance(done, Planned):
        if layout is not None:
            done.report.method += f"; {layout}"
        return done
    done.close()
    return None


def _list_kept_options(
    array: DiskArray, kind: np.dtype[Any], selected: Selection | None, shape: tuple[int, ...]
) -> dict[str, Any]:
    """Return the options of the new array that come from the source, or from its section."""
    lies = get_storage(array.info)
    chunks, shards = _select_axes(array.chunks, selected, 1), lies.get("shards")
    if selected is not None and chunks is not None:
        # A section may be shorter than a chunk.
        chunks = tuple(min(chunk, max(n, 1)) for chunk, n in zip(chunks, shape, strict=True))
    if shards is not None and chunks is not None:
        counts = tuple(s // n for s, n in zip(shards, array.chunks or (), strict=True))
        each = _select_axes(counts, selected, 1) or ()
        shards = tuple(n * count for n, count in zip(chunks, each, strict=True))
    compression = lies.get("compression")
    if compression is not None and kind != array.dtype:
        compression = select_size_independent(compression)
    return {
        **get_description(array.info, kind),
        "format": array.format,
        "dims": _select_axes(array.dims, selected, None),
        "chunks": chunks,
        "shards": shards,
        "compression": compression,
        "order": "F" if array.order == "F" else None,
    }


def _select_axes(
    each: Sequence[T] | None, section: Selection | None, new: T
) -> tuple[T, ...] | None:
    """Return a property of each axis of an array for the axes of a section; `new` for new axes."""
    if each is None or section is None:
        return None if each is None else tuple(each)
    return tuple(new if axis is None else each[axis[0]] for axis in section.axes)


def _drop_unset(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set; "none" as a compression is not."""
    return {
        k: v for k, v in words.items() if v is not None and not (isinstance(v, str) and v == "none")
    }


def _choose_layout(
    dst: Path,
    shape: tuple[int, ...],
    kind: np.dtype[Any],
    words: Mapping[str, Any],
    typical_sections: Any,
    resume: bool,
    ranks: Ranks,
) -> ResidentLayout:
    """Return the layout of ``chunks="auto"``; for an interrupted job, the one that it started with."""
    name = path_names(dst)[0]

    def choose() -> ResidentLayout:
        found = layouts.choose_automatic(name, shape, kind, words, typical_sections)
        if found is None:
            raise UsageError(
                f"invalid chunks={words.get('chunks')!r}; pass integers, or 'auto'",
                code="bad-chunks",
            )
        place = TargetPlace.of(name, [], True, words.get("format"))
        has_shape = not formats.get_format(found.format).unrecorded_options
        if resume and has_shape and os.path.lexists(place.journal):
            with (
                contextlib.suppress(OutcoreError),
                open(place.partial, format=found.format) as begun,
            ):
                return replace(found, chunks=begun.chunks, why="as in the interrupted job")
        return found

    # Ranks may have measured the disk differently.
    if ranks.size == 1:
        return choose()
    chunks = ranks.broadcast_from_first(lambda: choose().chunks)
    format, order = words.get("format") or "", words.get("order") or "C"
    return ResidentLayout(format, order, chunks and tuple(chunks), "as the first rank chose")


def _open(src: Any, options: Mapping[str, Any]) -> DiskArray:
    array: DiskArray = reopen(src) if isinstance(src, DiskArray) else open(src, **options)
    return array


def _find_dtype(wanted: DTypeLike) -> np.dtype[Any]:
    kind = as_dtype(wanted, "the new array")
    if kind.subdtype is not None:
        raise UsageError(
            f"dtype {kind} would add axes to the array; convert to {kind.base}", code="bad-dtype"
        )
    return kind
