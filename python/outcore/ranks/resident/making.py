"""
`disk_array`: make a disk resident array from hints, or open one.

Problem. Many ranks make one array: its layout follows from figures that ranks may know differently, its
name from its layout, and a crash of any of them at any time must leave no temporary one behind. Idea.
The first rank decides and tells the others, holding the lock of a temporary array before its first file
is there; the others take the lock while it is held. Then all open the array together.

Invariants. If one rank fails all raise, and a temporary array is gone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import DTypeLike

from outcore import _core, formats
from outcore.arrays import layouts
from outcore.arrays.disk import DiskArray, Mode
from outcore.arrays.layouts import ResidentLayout, Typical
from outcore.arrays.opening import open
from outcore.base.hints import Hints
from outcore.errors import AlreadyExistsError, NotFoundError, UnsupportedError, UsageError
from outcore.formats.known_options import refuse_unknown
from outcore.formats.paths import one_name, path_names
from outcore.formats.spec import as_dtype, check_shape
from outcore.ranks.agreement import together, told
from outcore.ranks.collective.items import number_of
from outcore.ranks.resident.array import DiskResidentArray
from outcore.ranks.resident.temporary import Hold
from outcore.ranks.transport import transport

__all__ = ["disk_array"]

_CALL = "disk_array"
# What a name without a suffix may have got.
_SUFFIXES = (".npy", ".zarr", ".parts")


def disk_array(
    name: str | os.PathLike[str],
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    typical: Typical | None = None,
    keep: bool = True,
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    mode: Mode | None = None,
    overwrite: bool = False,
    comm: Any = None,
    hints: Hints | Mapping[str, Any] | None = None,
    **options: Any,
) -> DiskResidentArray:
    """
    Make a disk resident array, or open one. Collective with `comm`.

    Parameters
    ----------
    name
        Its name, in the folder `where`. The suffix tells the format: ``.npy``, ``.zarr``,
        ``name.h5::/data``, ...; without one it is ``.npy`` if plain order is best, else ``.zarr``, and
        is added to the name (see `DiskResidentArray.path`).
    shape, dtype
        Of a new array, as for `outcore.create`. Without a shape an array that is there is opened.
    typical
        Shape of the sections that will be read and written (None or -1 along an axis: all of it); a
        sequence of such shapes; or a mapping of shapes to how often each comes. The layout follows from
        it.
    keep
        False: a temporary array, under a name of its own. It is gone when the last rank closes it or
        ends; after a crash of all of them, when the next temporary one is made in that folder.
    where
        A folder; or several, over which the array lies in the format ``parts``, a file in each, with its
        name in the first one: `name` has the suffix ``.parts`` or none then. By default the folder of
        `name`; of temporary arrays ``OUTCORE_SCRATCH``, if that is set.
    mode
        ``"x"`` makes the array and refuses to replace one, ``"w"`` replaces it; ``"r"`` and ``"r+"``
        open one. By default ``"x"`` (with `overwrite`, ``"w"``) if there is a shape, else ``"r+"``.
    overwrite
        Replace an existing array, or file, of that name: the same as mode ``"w"``.
    comm
        A communicator of mpi4py, or a transport: all its ranks call this.
    hints
        As for `outcore.open`; they never change results.
    options
        For `outcore.create`; ``chunks`` and ``order`` are not chosen then.

    Returns
    -------
    DiskResidentArray
        Its `layout` tells what was chosen, and why.

    Raises
    ------
    UsageError
        ``bad-typical``, ``missing-argument``, and what `outcore.create` raises.
    UnsupportedError
        ``one-folder``: `where` has several folders, and the array is temporary, or of another format
        than ``parts``.
    StorageError, FormatError
        As `outcore.open` and `outcore.create`.
    CollectiveError
        On all ranks, if any rank failed or called something else.

    Notes
    -----
    The layout (order, chunks) is the one of those the format offers whose typical sections cost least on
    this disk, by its figures (``outcore bench``, or what was learned) and the memory budget; a plain
    file is taken where it costs about the same. Persistent arrays are ordinary files, which the
    libraries of their formats read. Elements not written yet read as zeros.

    ``DRA_Create``, ``DRA_Open`` (Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library
    for Out-of-Core Computations*, sections 3 and 4).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> rows = outcore.disk_array("rows", (10000, 10000), "f8", typical=(64, None), keep=False)
    >>> rows.layout.order, rows.layout.chunks
    ('C', None)
    >>> both = outcore.disk_array(
    ...     "both", (10000, 10000), "f8", typical={(64, None): 1, (None, 64): 20}, keep=False
    ... )
    >>> [64 % edge == 0 or edge % 64 == 0 for edge in both.layout.chunks]
    [True, True]
    >>> both.close(), rows.close()
    (None, None)
    """
    group = transport(comm)
    if overwrite:
        if mode not in (None, "w"):
            raise UsageError(
                f"overwrite=True and mode={mode!r} contradict each other; leave mode= out",
                code="bad-mode",
            )
        mode = "w"
    words = _Words(name, shape, dtype, typical, keep, where, mode, options)
    hold: list[Hold] = []
    try:
        found = told(group, _CALL, lambda: words.decide(hold), _CALL)

        def join() -> list[int]:
            if found["lock"] is not None and group.rank:
                hold.append(Hold.join(found["lock"]))
            return [number_of(words.told)]

        if group.size > 1:
            together(group, _CALL, join, lambda: f"disk_array of {words.told}", same=1, named=_CALL)
        array: DiskArray = open(
            found["path"],
            found["mode"],
            comm=None if comm is None else group,
            hints=hints,
            **words.options_of(found),
        )
    except BaseException:
        for one in hold:
            one.release()
        raise
    return DiskResidentArray(
        array, group, _layout_of(found["layout"], array), hold[0] if hold else None
    )


class _Words:
    """What one rank said, and what follows from it."""

    def __init__(
        self,
        name: Any,
        shape: Any,
        dtype: Any,
        typical: Any,
        keep: bool,
        where: Any,
        mode: Any,
        options: Mapping[str, Any],
    ) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.typical, self.keep, self.where, self.mode = typical, keep, where, mode
        self.options = dict(options)

    @property
    def told(self) -> str:
        """In words, equal on all ranks that mean the same."""
        said = {k: v for k, v in self.options.items() if k != "data"}
        return (
            f"{os.fspath(self.name)!r}, shape {self.shape}, dtype {self.dtype}, typical {self.typical}, "
            f"keep {self.keep}, where {self.where}, mode {self.mode}, {sorted(said)}"
        )

    def decide(self, hold: list[Hold]) -> dict[str, Any]:
        """Where it lies, how, and under which lock: what JSON can say. Only the first rank does."""
        makes = self.mode in ("w", "x") or (self.mode is None and self.shape is not None)
        if "data" in self.options:
            raise UsageError(
                "disk_array() takes no data=; write() puts elements into it", code="unknown-option"
            )
        refuse_unknown(disk_array, "create" if makes else "open", self.options)
        path = self._path()
        if not makes:
            return self._opened(path)
        if self.shape is None or self.dtype is None:
            raise UsageError("a new array needs shape= and dtype=", code="missing-argument")
        dtype = as_dtype(self.dtype, path)
        shape = check_shape(self.shape, dtype.base.itemsize, path, stored=False) + dtype.shape
        typical = layouts.typical_of(self.typical, shape)
        folder = os.path.dirname(os.path.abspath(formats.split_path(path)[0]))
        if not os.path.isdir(folder):
            raise NotFoundError(
                f"there is no folder {folder!r}; make it, or give another one (where=)",
                code="not-found",
                path=path,
            )
        budget, options = _core.memory_limit(), {**self._over(), **self.options}
        said = layouts.choose(path, folder, shape, dtype.base.itemsize, typical, options, budget)
        if not self.keep:
            hold.append(Hold.new(folder))
            path = self._scratch(path, said["format"], hold[0])
        elif _bare(path):
            path = self._with_suffix(path, said["format"])
        lock = hold[0].lock if hold else None
        return {"path": path, "mode": self.mode or "x", "layout": said, "lock": lock}

    def options_of(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What `outcore.open` takes."""
        if found["mode"] not in ("w", "x"):
            return self.options
        said = found["layout"]
        chosen = {"shape": self.shape, "dtype": self.dtype, "format": said["format"]}
        chosen["compression"] = (
            "none"  # sections of chunks without codecs are read and written alone
        )
        if said.get("candidates"):
            chosen["order"] = said["order"]
            if said["chunks"] is not None:
                chosen["chunks"] = said["chunks"]
        said = {**chosen, **self._over(), **self.options}
        return {k: v for k, v in said.items() if v is not None}

    def _path(self) -> str:
        name = one_name(self.name)
        folders = [] if self.where is None else path_names(self.where)
        if folders:
            return os.path.join(folders[0], name)
        scratch = os.environ.get("OUTCORE_SCRATCH")
        if self.keep or os.path.dirname(formats.split_path(name)[0]):
            return name
        if scratch:
            return os.path.join(scratch, name)
        return name if os.access(".", os.W_OK) else os.path.join(tempfile.gettempdir(), name)

    def _over(self) -> dict[str, Any]:
        """Options of an array over several folders: its format has a file in each."""
        folders = [] if self.where is None else path_names(self.where)
        if len(folders) < 2:
            return {}
        if not self.keep:
            raise UnsupportedError(
                f"where= has {len(folders)} folders; a temporary array lies in one: give one folder",
                code="one-folder",
            )
        name, asked = one_name(self.name), self.options.get("format")
        if asked is not None or not _bare(name):
            asked = formats.format_of_new(name, asked)
        if asked not in (None, "parts"):
            raise UsageError(
                f"where= has {len(folders)} folders, over which only arrays of format parts lie; "
                f"{name!r} asks for {asked}: pass one folder, or a name with the suffix "
                ".parts or none",
                code="one-folder",
            )
        return {"format": "parts", "where": folders}

    def _opened(self, path: str) -> dict[str, Any]:
        if not self.keep:
            raise UsageError(
                "keep=False makes an array that is gone at its end, and without a shape one that is "
                "there is opened; give shape= and dtype=, or leave keep= out",
                code="missing-argument",
            )
        found = {"mode": self.mode or "r+", "layout": None, "lock": None}
        if not _bare(path) or os.path.lexists(path):
            return {"path": path, **found}
        there = [path + suffix for suffix in _SUFFIXES if os.path.lexists(path + suffix)]
        if len(there) == 1:
            return {"path": there[0], **found}
        if not there:
            raise NotFoundError(
                f"there is no array {path!r}, nor with a suffix ({', '.join(_SUFFIXES)}); give "
                "shape= and dtype= to make one",
                code="not-found",
                path=path,
            )
        raise UsageError(
            f"{path!r} may be {' or '.join(there)}; give the suffix", code="bad-name", path=path
        )

    def _with_suffix(self, path: str, format: str) -> str:
        suffix = {"npy": ".npy", "parts": ".parts"}.get(format, ".zarr")
        others = [path + s for s in _SUFFIXES if s != suffix and os.path.lexists(path + s)]
        if others:
            raise AlreadyExistsError(
                f"{others[0]!r} is there, and the new array would be {path + suffix!r}: its name alone "
                "would not tell which; delete the old one, or give a suffix",
                code="already-exists",
                path=path,
            )
        return path + suffix

    def _scratch(self, path: str, format: str, hold: Hold) -> str:
        outer, inner = formats.split_path(path)
        suffix = os.path.splitext(outer)[1]
        if _bare(path):
            suffix = {"npy": ".npy", "hdf5": ".h5", "netcdf4": ".nc"}.get(format, ".zarr")
        return hold.path(suffix) + (f"::{inner}" if inner is not None else "")


def _bare(path: str) -> bool:
    """Whether a name has no suffix."""
    return not os.path.splitext(formats.split_path(path)[0].rstrip("/"))[1]


def _layout_of(said: Mapping[str, Any] | None, array: DiskArray) -> ResidentLayout:
    if said is None:
        return ResidentLayout(
            array.format, array.order, array.chunks, "as it was when it was opened"
        )
    made = layouts.described(said)
    # What the format made of it.
    return replace(made, format=array.format, order=array.order, chunks=array.chunks)
