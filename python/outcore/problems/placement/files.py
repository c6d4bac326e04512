"""
Files of a local placement: one per rank, and a manifest that names them.

Problem: under local placement an array consists of one file per rank, possibly in folders on several
disks. The files are useless without the distribution of the elements.
Approach: each file is an ordinary ``.npy`` file of the rank's local array, overlap area included, so any
reader of NumPy files can open it. A small text file, the manifest, contains the shape, the dtype, the
distribution and the paths. It is written last, atomically, when all files exist.
Invariants: a folder without a manifest contains no array; a call that replaces an array first removes
its manifest. A manifest is checked before use: a file in its folder has the name of its rank; a file in
another folder also has the id of the array in its name, and is in the folder where the array was made
(`homes`) or in one that the user gives.

The manifest (JSON, ``placement.json`` in the folder that has the name of the array)::

    {"outcore-placement": 1, "id": "53f0c2a9d1e84b70", "shape": [8, 8], "dtype": "<f8", "order": "C",
     "formats": ["block", "*"], "grid": [4], "align": [[1, 0, null], [1, 0, null]], "axes": [0, null],
     "ghosts": [[1, 1], [0, 0]], "files": ["rank-0000.npy", ...]}

Reference: PASSION report, section 4.1.2 (Local Placement Model; local array files, logical disks).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outcore.base.distribution import Distribution, ProcessGrid
from outcore.errors import DistributionError, OutcoreError, UsageError
from outcore.formats import durable, homes
from outcore.formats.defaults import PLAIN_SUFFIX
from outcore.formats.manifests import ManifestKind
from outcore.formats.paths import one_name
from outcore.formats.spec import make_descr

__all__ = ["MANIFEST", "PlacementManifest", "disk_map", "is_local"]

MANIFEST = "placement.json"
_KIND = ManifestKind(
    None,
    1,
    "outcore.mpi.create_placed()",
    "the array",
    version_key="outcore-placement",
    is_ascii=True,
)


def disk_map(folders: Sequence[str | os.PathLike[str]], ranks: int) -> tuple[str, ...]:
    """
    Return the folder for each rank's file, assigning ranks to folders round-robin.

    Parameters
    ----------
    folders
        One or more folders; using a separate disk for each makes access faster.
    ranks
        Number of ranks.

    Returns
    -------
    tuple of str
        Folder of each rank, for ``folders=`` of `outcore.mpi.create_placed`.

    Raises
    ------
    UsageError
        ``bad-files``: there are no folders.

    Notes
    -----
    Not collective; `folders` should be the same on all ranks. This is ``PASSION_oc_disk_map`` of the
    PASSION report (section 4.2.1, Table 2).

    Examples
    --------
    >>> import outcore
    >>> outcore.mpi.disk_map(["/disk0", "/disk1"], 5)
    ('/disk0', '/disk1', '/disk0', '/disk1', '/disk0')
    """
    if isinstance(folders, str | os.PathLike) or not len(folders):
        raise UsageError(
            "disk_map needs a list of one or more folders; pass one folder for each disk",
            code="bad-files",
        )
    return tuple(one_name(folders[rank % len(folders)]) for rank in range(ranks))


def is_local(path: str | os.PathLike[str]) -> bool:
    """Return whether an array with local placement exists at `path`."""
    return os.path.isfile(os.path.join(path, MANIFEST))


@dataclass(frozen=True)
class PlacementManifest:
    """
    Manifest of the files of a local placement.

    `path` is the folder that has the name of the array. `ghosts` is a pair (before, behind) per axis.
    `files` lists the file of each rank, relative to `path` or absolute.
    """

    path: str
    distribution: Distribution
    ghosts: list[tuple[int, int]]
    dtype: np.dtype[Any]
    order: str
    files: tuple[str, ...]
    #: Id in the names of files in other folders, derived from the path at which the array was made.
    id: str

    def get_file(self, rank: int) -> str:
        """Return the path of a rank's file."""
        return os.path.join(self.path, self.files[rank])

    def write(self) -> None:
        """Write the manifest durably and atomically."""
        shape, formats, grid, align, axes = self.distribution.arguments
        document = {
            "id": self.id,
            "shape": shape,
            "dtype": make_descr(self.dtype, self.path),
            "order": self.order,
            "formats": formats,
            "grid": grid.shape,
            "align": [(one.stride, one.offset, one.extent) for one in align],
            "axes": axes,
            "ghosts": self.ghosts,
            "files": self.files,
        }
        _KIND.write(os.path.join(self.path, MANIFEST), document)

    def remove(self) -> None:
        """Remove the array: first the manifest, then the files."""
        with durable.os_errors("removing", self.path):
            os.unlink(os.path.join(self.path, MANIFEST))
            for rank in range(len(self.files)):
                if os.path.lexists(self.get_file(rank)):
                    os.unlink(self.get_file(rank))
            homes.withdraw(map(self.get_file, range(len(self.files))), self.id)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], folders: Sequence[str | os.PathLike[str]] = ()
    ) -> PlacementManifest:
        """
        Read and check the manifest of an array; `folders` lists other folders that it may name.

        `FormatError`: ``bad-metadata`` if the manifest is invalid, or a later version wrote it;
        ``names-outside`` if it names files in other folders.
        """
        folder = one_name(path)
        name = os.path.join(folder, MANIFEST)
        document, judge = _KIND.read_existing(name), _KIND.make_judge(name)
        try:
            grid = ProcessGrid(document["grid"])
            formats = [tuple(f) if isinstance(f, list) else f for f in document["formats"]]
            distribution = Distribution(
                document["shape"], formats, grid, align=document["align"], axes=document["axes"]
            )
            ghosts = [judge.pair(pair, "ghosts") for pair in document["ghosts"]]
            distribution.local_shape(0, ghosts)
            files = tuple(document["files"])
            dtype = judge.dtype(document["dtype"])
            order = document["order"]
            array_id = judge.text(document["id"], "id")
        except OutcoreError as error:
            if isinstance(error, DistributionError):
                raise judge.bad(str(error)) from error
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise judge.bad(f"{type(error).__name__}: {error}") from error
        if len(files) != grid.size or not all(
            isinstance(f, str) and f and "\0" not in f for f in files
        ):
            raise judge.bad(f"it lists {len(files)} files for {grid.size} ranks")
        if order not in ("C", "F") or dtype.hasobject or not dtype.itemsize:
            raise judge.bad(f"order {order!r} or dtype {dtype} is not possible")
        for rank, file in enumerate(files):
            if file != make_file_name(rank) and not _is_file_of(file, array_id, rank):
                raise judge.bad(f"{file!r:.200} is not a valid name for the file of rank {rank}")
        found = cls(folder, distribution, ghosts, dtype, order, files, array_id)
        every = map(found.get_file, range(grid.size))
        _KIND.check_folders(folder, every, array_id, folder, [os.fspath(one) for one in folders])
        return found


def make_file_name(rank: int) -> str:
    """Return the name of a rank's file in the folder of the array."""
    return f"rank-{rank:04d}{PLAIN_SUFFIX}"


def make_outside_name(base: str, array_id: str, rank: int) -> str:
    """Return the name of a rank's file in another folder."""
    return f"{base}-{array_id}.{make_file_name(rank)}"


def make_id(path: str) -> str:
    """Return the id of an array that is made at a path."""
    return hashlib.blake2b(os.fsencode(os.path.realpath(path)), digest_size=8).hexdigest()


def _is_file_of(file: str, array_id: str, rank: int) -> bool:
    return re.fullmatch("[0-9a-f]{16}", array_id) is not None and file.endswith(
        make_outside_name("", array_id, rank)
    )
