"""
`disk_array`: make a disk resident array from hints, or open one.

Problem. Many ranks make one array. Its layout depends on measured parameters that may differ between
ranks, its name depends on its layout, and a crash of any of them at any time must not leave a temporary
array behind. Approach. The first rank decides and informs the others. It locks a temporary array before
the first file exists; the others take the lock while it is held. Then all ranks open the array together.

Invariants. If one rank fails, all raise, and a temporary array is removed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import DTypeLike

from outcore import _core, formats
from outcore.arrays import layouts
from outcore.arrays.disk import DiskArray, Mode
from outcore.arrays.layouts import ResidentLayout, Typical
from outcore.arrays.opening import open
from outcore.base.hints import Hints
from outcore.errors import AlreadyExistsError, NotFoundError, UnsupportedError, UsageError
from outcore.formats.defaults import CHUNKED, DIVIDED, PLAIN
from outcore.formats.known_options import check_known
from outcore.formats.paths import one_name, path_names
from outcore.formats.spec import as_dtype, check_shape
from outcore.ranks.ranks import Ranks
from outcore.ranks.resident.array import DiskResidentArray
from outcore.ranks.resident.temporary import TemporaryClaim

__all__ = ["disk_array"]

# Formats whose suffix is added to a name without one, unless another format is requested.
_FORMATS = (PLAIN, CHUNKED, DIVIDED)


def disk_array(
    name: str | os.PathLike[str],
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    typical_sections: Typical | None = None,
    keep: bool = True,
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
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
        Name of the array, in the folder `folders`. Its suffix determines the format: ``.npy``,
        ``.zarr``, ``name.h5::/data``, ... A name without one gets the suffix of ``format=``. Without
        that it is ``.npy`` if plain order is best, otherwise ``.zarr`` (see `DiskResidentArray.path`).
    shape, dtype
        Shape and dtype of a new array, as for `outcore.create`. Without a shape, an existing array is
        opened.
    typical_sections
        Shape of the sections that will be read and written (None or -1 stands for a whole axis); a
        sequence of such shapes; or a mapping of shapes to their frequencies. It determines the layout.
    keep
        Whether to keep the array. False makes a temporary array with a unique name. It is removed when
        the last rank closes it or ends; if all ranks crash, when the next temporary array is made in
        that folder.
    folders
        Folder, or several folders. In several folders the array has format ``parts``, with a file in
        each folder and its name in the first one; `name` then has the suffix ``.parts`` or none. By
        default the folder of `name`, or for temporary arrays ``OUTCORE_SCRATCH`` if that is set.
    mode
        ``"x"`` makes the array and raises an error if it exists, ``"w"`` replaces it; ``"r"`` and
        ``"r+"`` open one. With a shape the default is ``"x"`` (with `overwrite`, ``"w"``), otherwise
        ``"r+"``.
    overwrite
        Whether to replace an existing array or file of that name; the same as mode ``"w"``.
    comm
        Communicator of mpi4py, or transport; all of its ranks call this.
    hints
        As for `outcore.open`; they never change results.
    options
        Options for `outcore.create`. Given ``chunks`` and ``order`` replace the automatic choice.

    Returns
    -------
    DiskResidentArray
        The array; its `layout` reports the choice and the reason.

    Raises
    ------
    UsageError
        ``bad-typical``, ``missing-argument``, and the errors of `outcore.create`.
    UnsupportedError
        ``one-folder``: `folders` has several folders, and the array is temporary or has another format
        than ``parts``.
    StorageError, FormatError
        As for `outcore.open` and `outcore.create`.
    CollectiveError
        On all ranks if any rank failed or made a different call.

    Notes
    -----
    The layout (order, chunks) is the one, among those of the format, whose typical sections cost least
    on this disk. The cost follows from the parameters of the disk (``outcore bench``, or learned) and
    the memory budget. A plain file is preferred if it costs about the same. Persistent arrays are
    ordinary files that the libraries of their formats can read. Elements that have not been written read
    as zeros.

    ``DRA_Create``, ``DRA_Open`` (Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library
    for Out-of-Core Computations*, sections 3 and 4).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> shape = (10000, 10000)
    >>> rows = outcore.mpi.disk_array("rows", shape, "f8", typical_sections=(64, None), keep=False)
    >>> rows.layout.order, rows.layout.chunks
    ('C', None)
    >>> both = outcore.mpi.disk_array(
    ...     "both", shape, "f8", typical_sections={(64, None): 1, (None, 64): 20}, keep=False
    ... )
    >>> [64 % edge == 0 or edge % 64 == 0 for edge in both.layout.chunks]
    [True, True]
    >>> both.close(), rows.close()
    (None, None)
    """
    ranks = Ranks.of_call(comm, "disk_array")
    if overwrite:
        if mode not in (None, "w"):
            raise UsageError(
                f"overwrite=True and mode={mode!r} contradict each other; omit mode=",
                code="bad-mode",
            )
        mode = "w"
    words = _ArrayOptions(name, shape, dtype, typical_sections, keep, folders, mode, options)
    hold: list[TemporaryClaim] = []
    try:
        found = ranks.broadcast_from_first(lambda: words.decide(hold))

        def join() -> str:
            if found["lock"] is not None and not ranks.is_first:
                hold.append(TemporaryClaim.join(found["lock"]))
            return words.description

        ranks.run_on_all(join, meaning="disk_array of {}".format)
        array: DiskArray = open(
            found["path"],
            found["mode"],
            comm=None if comm is None else ranks.group,
            hints=hints,
            **words.get_open_options(found),
        )
    except BaseException:
        for one in hold:
            one.release()
        raise
    return DiskResidentArray(
        array, ranks.group, _make_layout(found["layout"], array), hold[0] if hold else None
    )


@dataclass
class _ArrayOptions:
    """Arguments of `disk_array` on one rank, and the decisions that follow from them."""

    name: Any
    shape: Any
    dtype: Any
    typical_sections: Any
    keep: bool
    folders: Any
    mode: Any
    options: dict[str, Any]

    @property
    def description(self) -> str:
        """Description of the arguments, equal on all ranks with the same arguments."""
        said = {k: v for k, v in self.options.items() if k != "data"}
        return (
            f"{os.fspath(self.name)!r}, shape {self.shape}, dtype {self.dtype}, "
            f"typical sections {self.typical_sections}, keep {self.keep}, "
            f"folders {self.folders}, mode {self.mode}, {sorted(said)}"
        )

    def decide(self, hold: list[TemporaryClaim]) -> dict[str, Any]:
        """Return path, mode, layout and lock of the array, as values for JSON. First rank only."""
        makes = self.mode in ("w", "x") or (self.mode is None and self.shape is not None)
        if "data" in self.options:
            raise UsageError(
                "disk_array() does not accept data=; write elements with write()",
                code="unknown-option",
            )
        check_known(disk_array, "create" if makes else "open", self.options)
        path = self._choose_path()
        if not makes:
            return self._find_existing(path)
        if self.shape is None or self.dtype is None:
            raise UsageError(
                "a new array needs a shape and a dtype; pass shape= and dtype=",
                code="missing-argument",
            )
        dtype = as_dtype(self.dtype, path)
        shape = check_shape(self.shape, dtype.base.itemsize, path, stored=False) + dtype.shape
        typical = layouts.parse_typical(self.typical_sections, shape)
        folder = os.path.dirname(os.path.abspath(formats.split_path(path)[0]))
        if not os.path.isdir(folder):
            raise NotFoundError(
                f"the folder {folder!r} does not exist; create it, or pass another one as folders=",
                code="not-found",
                path=path,
            )
        budget, options = _core.memory_limit(), {**self._get_folder_options(), **self.options}
        said = layouts.choose(path, folder, shape, dtype.base.itemsize, typical, options, budget)
        if not self.keep:
            hold.append(TemporaryClaim.make(folder))
            path = self._make_temporary_path(path, said["format"], hold[0])
        elif _has_no_suffix(path):
            path = self._add_suffix(path, said["format"])
        lock = hold[0].lock if hold else None
        return {"path": path, "mode": self.mode or "x", "layout": said, "lock": lock}

    def get_open_options(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for `outcore.open`."""
        if found["mode"] not in ("w", "x"):
            return self.options
        said = found["layout"]
        chosen = {"shape": self.shape, "dtype": self.dtype, "format": said["format"]}
        chosen["compression"] = "none"  # chunks without codecs allow access to parts of them
        if said.get("candidates"):
            chosen["order"] = said["order"]
            if said["chunks"] is not None:
                chosen["chunks"] = said["chunks"]
        said = {**chosen, **self._get_folder_options(), **self.options}
        return {k: v for k, v in said.items() if v is not None}

    def _choose_path(self) -> str:
        name = one_name(self.name)
        names = [] if self.folders is None else path_names(self.folders)
        if names:
            return os.path.join(names[0], name)
        scratch = os.environ.get("OUTCORE_SCRATCH")
        if self.keep or os.path.dirname(formats.split_path(name)[0]):
            return name
        if scratch:
            return os.path.join(scratch, name)
        return name if os.access(".", os.W_OK) else os.path.join(tempfile.gettempdir(), name)

    def _get_folder_options(self) -> dict[str, Any]:
        """Return options for an array over several folders, with a file in each."""
        names = [] if self.folders is None else path_names(self.folders)
        if len(names) < 2:
            return {}
        if not self.keep:
            raise UnsupportedError(
                f"folders= has {len(names)} folders, but a temporary array is stored in one; pass one "
                "folder",
                code="one-folder",
            )
        name, asked = one_name(self.name), self.options.get("format")
        if asked is not None or not _has_no_suffix(name):
            asked = formats.choose_format_name(name, asked)
        if asked not in (None, DIVIDED):
            raise UsageError(
                f"folders= has {len(names)} folders, over which only arrays of format parts can be "
                f"divided, but {name!r} asks for {asked}; pass one folder, or a name with the suffix "
                ".parts or none",
                code="one-folder",
            )
        return {"format": DIVIDED, "folders": names}

    def _find_existing(self, path: str) -> dict[str, Any]:
        if not self.keep:
            raise UsageError(
                "keep=False makes a temporary array, but without a shape an existing array is opened; "
                "pass shape= and dtype=, or omit keep=",
                code="missing-argument",
            )
        found = {"mode": self.mode or "r+", "layout": None, "lock": None}
        if not _has_no_suffix(path) or os.path.lexists(path):
            return {"path": path, **found}
        suffixes = self._list_suffixes()
        there = [path + suffix for suffix in suffixes if os.path.lexists(path + suffix)]
        if len(there) == 1:
            return {"path": there[0], **found}
        if not there:
            raise NotFoundError(
                f"{path!r} does not exist, with or without a suffix ({', '.join(suffixes)}); pass "
                "shape= and dtype= to create an array",
                code="not-found",
                path=path,
            )
        raise UsageError(
            f"{path!r} may be {' or '.join(there)}; pass the name with its suffix",
            code="bad-name",
            path=path,
        )

    def _list_suffixes(self) -> list[str]:
        """Return the suffixes that may have been added to a name without one."""
        asked = self.options.get("format")
        names = dict.fromkeys((*_FORMATS, *([asked] if asked is not None else [])))
        return [formats.get_new_suffix(name) for name in names]

    def _add_suffix(self, path: str, format: str) -> str:
        suffix = formats.get_new_suffix(format)
        suffixes = self._list_suffixes()
        others = [path + s for s in suffixes if s != suffix and os.path.lexists(path + s)]
        if others:
            raise AlreadyExistsError(
                f"{others[0]!r} exists and the new array would be {path + suffix!r}, so that the name "
                "would be ambiguous; delete the old array, or pass a suffix",
                code="already-exists",
                path=path,
            )
        return path + suffix

    def _make_temporary_path(self, path: str, format: str, hold: TemporaryClaim) -> str:
        outer, inner = formats.split_path(path)
        suffix = os.path.splitext(outer)[1]
        if _has_no_suffix(path):
            suffix = formats.get_new_suffix(format)
        return hold.get_path(suffix) + (f"::{inner}" if inner is not None else "")


def _has_no_suffix(path: str) -> bool:
    """Return whether a name has no suffix."""
    return not os.path.splitext(formats.split_path(path)[0].rstrip("/"))[1]


def _make_layout(said: Mapping[str, Any] | None, array: DiskArray) -> ResidentLayout:
    if said is None:
        return ResidentLayout(
            array.format, array.order, array.chunks, "as it was when it was opened"
        )
    made = layouts.restore_layout(said)
    # Values that the format chose.
    return replace(made, format=array.format, order=array.order, chunks=array.chunks)
