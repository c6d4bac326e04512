"""
The folder of a checkpoint: generations of arrays, and a manifest that names the current one.

Problem. A checkpoint has several files and takes long to write. A crash at any moment must leave the old
or the new checkpoint, complete. Lustre, NFS and similar file systems cannot exchange two folders
atomically.
Approach. Each checkpoint is a *generation*: a separate folder below ``PATH`` (``arrays-7``) that never
changes once it is complete. The manifest ``checkpoint.json`` names the current generation. It is a small
file that gets its name by one rename, which is atomic on every file system::

    PATH/checkpoint.json     {"format": "outcore checkpoint", "version": 1, "generation": 7, ...}
    PATH/arrays-7/u.npy

Invariants.
- The manifest names a generation only after its files, and its name, are on the disk.
- A generation is removed only after a manifest that names another one is on the disk. A reader checks
  the manifest again after reading.
- The process that makes a generation holds a lock (``flock``) on its folder. A generation that is
  neither locked nor named by the manifest was left by a killed process; the next checkpoint removes it.
- The next checkpoint replaces a damaged manifest if the folder holds only generations besides; these
  remain until then.
- Nothing outside of ``PATH`` is opened, whatever the manifest names.

A single process does all of this: the first rank.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outcore import _core
from outcore.errors import FormatError, OutcoreError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.documents import read_document
from outcore.formats.manifests import ManifestKind

__all__ = ["CheckpointEntry", "CheckpointManifest", "Folder"]

MANIFEST = "checkpoint.json"
_CHECKPOINT = ManifestKind(
    "outcore checkpoint", 1, "outcore.mpi.checkpoint()", "the checkpoint", ending=""
)
#: Kind of an array: parts of ranks, an array that all ranks had, or a NumPy scalar.
KINDS = ("distributed", "array", "scalar")
_GENERATION = re.compile(r"arrays-([1-9][0-9]{0,17})")
_TEMPORARY = re.compile(durable.TEMPORARY + r"|\..+\.outcore-tmp")
# Number of attempts to find a generation number that no other process takes at the same time.
_TRIES = 100


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One array of a checkpoint: its file in the folder of the generation, its kind, shape and dtype."""

    file: str
    kind: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """Contents of a checkpoint: arrays by name, and all other values as in JSON."""

    generation: int
    arrays: Mapping[str, CheckpointEntry]
    values: Mapping[str, Any]
    #: Random identifier: the number of a removed generation may be used again.
    id: str = field(default_factory=lambda: os.urandom(8).hex())

    def is_same(self, other: CheckpointManifest) -> bool:
        """Return whether both are manifests of the same checkpoint."""
        return (self.generation, self.id) == (other.generation, other.id)

    def to_document(self) -> dict[str, Any]:
        """Return the manifest as a JSON document."""
        arrays = {
            name: {"file": e.file, "kind": e.kind, "shape": list(e.shape), "dtype": e.dtype}
            for name, e in self.arrays.items()
        }
        return {
            **_CHECKPOINT.header,
            "generation": self.generation,
            "id": self.id,
            "arrays": arrays,
            "values": dict(self.values),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> CheckpointManifest:
        """Return the manifest in a JSON document; raise `FormatError` if it is invalid."""
        judge = _CHECKPOINT.make_judge(path)
        arrays = {}
        for name, entry in judge.mapping(document.get("arrays"), "arrays").items():
            entry = judge.mapping(entry, f"the array {name!r:.100}")
            file = judge.text(entry.get("file"), f"the file of {name!r:.100}")
            if not _is_plain(file):
                raise judge.bad(
                    f"the file of {name!r:.100} is {file!r:.100}, which is not the name of a file"
                )
            kind = judge.text(entry.get("kind"), f"the kind of {name!r:.100}")
            if kind not in KINDS:
                raise judge.bad(f"the kind of {name!r:.100} is {kind!r:.100}, not one of {KINDS}")
            shape = judge.lengths(entry.get("shape"), f"the shape of {name!r:.100}", 0)
            dtype = judge.text(entry.get("dtype"), f"the dtype of {name!r:.100}")
            arrays[name] = CheckpointEntry(file, kind, shape, dtype)
        number = judge.integer(document.get("generation"), "generation", 1, 10**18 - 1)
        values = judge.mapping(document.get("values"), "values")
        return cls(number, arrays, values, judge.text(document.get("id", ""), "id"))


class Folder:
    """The folder of a checkpoint; a symbolic link is followed."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._held: int | None = None
        self._begun: int | None = None

    def find_manifest(self) -> CheckpointManifest | None:
        """Return the manifest; None if there is none."""
        file = os.path.join(self.path, MANIFEST)
        document = _CHECKPOINT.read(file)
        return None if document is None else CheckpointManifest.of(document, file)

    def read(self) -> CheckpointManifest:
        """Return the manifest; raise an error if there is no checkpoint."""
        with durable.os_errors("opening the checkpoint", self.path):
            os.stat(self.path)
        found = self.find_manifest()
        if found is None:
            raise FormatError(
                f"{self.path!r} is not a checkpoint, because it does not have a file {MANIFEST}; pass "
                "the folder that outcore.mpi.checkpoint() made",
                code="bad-checkpoint",
                path=self.path,
            )
        return found

    def get_path(self, generation: int, file: str = "") -> str:
        """Return the path of a file of a generation."""
        return os.path.join(self.path, f"arrays-{generation}", file)

    def begin(self) -> int:
        """Make and lock the folder of a new generation; remove those that killed processes left."""
        with durable.os_errors("making the checkpoint", self.path):
            self._make()
            try:
                named = self.find_manifest()
            except FormatError as error:
                # The current generation is unknown, so all remain until the new manifest exists.
                if isinstance(error, UnsupportedError) or not self._is_damaged():
                    raise
                named = None
            others = self._list_generations(None if named is None else named.generation)
            if named is None:
                self._check_no_others()
            # The manifest of the last checkpoint may have been renamed without a successful sync.
            _core.fsync_folder(os.path.join(self.path, MANIFEST))
            for number in others:
                self._remove_left(number)
            known = [*others, 0 if named is None else named.generation]
            return self._make_generation(max(known) + 1)

    def _make(self) -> None:
        try:
            os.mkdir(self.path)
        except FileExistsError:
            if not os.path.isdir(self.path):
                raise UsageError(
                    f"{self.path!r} is a file, and a checkpoint is a folder; choose another name, or "
                    "remove the file",
                    code="bad-checkpoint",
                    path=self.path,
                ) from None
            return
        _core.fsync_folder(self.path)

    def _is_damaged(self) -> bool:
        """Return whether an unreadable manifest belongs to a checkpoint, and is not some other file."""
        file = os.path.join(self.path, MANIFEST)
        if not os.path.isfile(file):
            return False
        try:
            document = read_document(file, _CHECKPOINT.make_judge(file))
        except FormatError:
            return os.path.getsize(file) == 0 or bool(self._list_generations(None))
        return document is not None and document.get("format") == _CHECKPOINT.name

    def _check_no_others(self) -> None:
        """Raise if the folder holds anything else, because then it is not the folder of a checkpoint."""
        found = [
            name
            for name in os.listdir(self.path)
            if name != MANIFEST
            and not _GENERATION.fullmatch(name)
            and not _TEMPORARY.fullmatch(name)
        ]
        if found:
            raise UsageError(
                f"{self.path!r} is a folder with other files ({sorted(found)[0]!r}), and not a "
                "checkpoint; choose another name",
                code="bad-checkpoint",
                path=self.path,
            )

    def _list_generations(self, but: int | None) -> list[int]:
        found = (_GENERATION.fullmatch(name) for name in os.listdir(self.path))
        return sorted(int(one[1]) for one in found if one and int(one[1]) != but)

    def _make_generation(self, first: int) -> int:
        for number in range(first, first + _TRIES):
            try:
                os.mkdir(self.get_path(number))
            except FileExistsError:
                continue
            held = durable.hold(self.get_path(number))
            if held is not None:
                self._held, self._begun = held, number
                _core.fsync_folder(self.get_path(number).rstrip("/"))
                return number
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.get_path(first))

    def publish(self, manifest: CheckpointManifest) -> None:
        """Make a complete and durable generation the current one; remove the previous one."""
        file = os.path.join(self.path, MANIFEST)
        with durable.os_errors("completing the checkpoint", self.path):
            # Sync the names of files, which their formats may not have done; the arrays are durable.
            _core.fsync_folder(self.get_path(manifest.generation, MANIFEST))
        _CHECKPOINT.write(file, manifest.to_document())
        self._begun = None
        with contextlib.suppress(OSError):
            for number in self._list_generations(manifest.generation):
                self._remove_left(number)

    def end(self) -> None:
        """Release the folder of the generation; remove it unless it is the current one."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # The manifest may already have its name, if only a sync failed after the rename.
            with contextlib.suppress(OSError, OutcoreError):
                named = self.find_manifest()
                if named is None or named.generation != begun:
                    _remove(self.get_path(begun))
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _remove_left(self, number: int) -> None:
        """Remove a generation that the manifest does not name, unless a process is making it."""
        with contextlib.suppress(OSError, OutcoreError):
            held = durable.hold(self.get_path(number), look=True)
            if held is not None:
                try:
                    # Check again: the process that made it may have made it current before this process
                    # had the lock.
                    named = self.find_manifest()
                    if named is None or named.generation != number:
                        _remove(self.get_path(number))
                finally:
                    os.close(held)


def _is_plain(name: str) -> bool:
    """Return whether a name is that of a file in a folder, without a path to another folder."""
    return bool(name) and not name.startswith(".") and not set(name) & {"/", "\0"}


def _remove(folder: str) -> None:
    for above, below, files in os.walk(folder, topdown=False):
        for name in files:
            durable.unlink_in_background(os.path.join(above, name))
        for name in below:
            place = os.path.join(above, name)
            os.unlink(place) if os.path.islink(place) else os.rmdir(place)
    os.rmdir(folder)
