"""
The folder of a checkpoint: generations of arrays, and the manifest that names the one that counts.

Problem. A checkpoint is several files and takes long to write; a crash at any moment must leave the old
one or the new one, whole. Exchanging two folders would do, but Lustre, NFS and their like cannot.
Idea. Each checkpoint is a *generation*, a folder of its own below ``PATH`` (``arrays-7``), which never
changes once it is whole. The manifest ``checkpoint.json`` says which generation counts. It is a small
file and takes its name by one rename, which every file system does in one step::

    PATH/checkpoint.json     {"format": "outcore checkpoint", "version": 1, "generation": 7, ...}
    PATH/arrays-7/u.npy

Invariants.
- The manifest names a generation only when its files, and its name, are on the disk.
- A generation is removed only when a manifest that names another one is on the disk; whoever reads looks
  at the manifest again when he has read.
- Who makes a generation holds a lock (``flock``) on its folder; what nobody holds and the manifest does
  not name was left by a killed process, and goes with the next checkpoint.
- A damaged manifest is replaced by the next checkpoint, if nothing but generations is beside it, which
  stay until then.
- Nothing outside of ``PATH`` is opened, whatever the manifest says.

One process does all of this: of several ranks the first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outcore import _core
from outcore.errors import FormatError, OutcoreError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.documents import Judge, read_document

__all__ = ["Entry", "Folder", "Manifest"]

MANIFEST = "checkpoint.json"
FORMAT, VERSION = "outcore checkpoint", 1
#: How an array was brought: the parts of ranks, an array that all had, a NumPy scalar.
KINDS = ("distributed", "array", "scalar")
_GENERATION = re.compile(r"arrays-([1-9][0-9]{0,17})")
_TEMPORARY = re.compile(durable.BEGUN + r"|\..+\.outcore-tmp")
# So often a name that somebody else took meanwhile is counted on.
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One array of a checkpoint: its file in the folder of the generation, and what that holds."""

    file: str
    kind: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds: arrays by name, and what was no array, as JSON has it."""

    generation: int
    arrays: Mapping[str, Entry]
    values: Mapping[str, Any]
    #: Made by chance: the number of a generation that is gone may be used again.
    id: str = field(default_factory=lambda: os.urandom(8).hex())

    def is_same(self, other: Manifest) -> bool:
        """Return whether both are of one checkpoint."""
        return (self.generation, self.id) == (other.generation, other.id)

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        arrays = {
            name: {"file": e.file, "kind": e.kind, "shape": list(e.shape), "dtype": e.dtype}
            for name, e in self.arrays.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "generation": self.generation,
            "id": self.id,
            "arrays": arrays,
            "values": dict(self.values),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> Manifest:
        """What a document says; `FormatError` if it makes no sense."""
        judge = _judge(path)
        if document.get("format") != FORMAT:
            raise judge.bad(f"the format is {document.get('format')!r:.100}, not {FORMAT!r}")
        version = judge.integer(document.get("version"), "version", 1)
        if version != VERSION:
            raise judge.unsupported(f"checkpoints of version {version} (this is {VERSION})")
        arrays = {}
        for name, entry in judge.mapping(document.get("arrays"), "arrays").items():
            entry = judge.mapping(entry, f"the array {name!r:.100}")
            file = judge.text(entry.get("file"), f"the file of {name!r:.100}")
            if not _is_plain(file):
                raise judge.bad(f"the file of {name!r:.100} is {file!r:.100}, no name of a file")
            kind = judge.text(entry.get("kind"), f"the kind of {name!r:.100}")
            if kind not in KINDS:
                raise judge.bad(f"the kind of {name!r:.100} is {kind!r:.100}, not one of {KINDS}")
            shape = judge.lengths(entry.get("shape"), f"the shape of {name!r:.100}", 0)
            dtype = judge.text(entry.get("dtype"), f"the dtype of {name!r:.100}")
            arrays[name] = Entry(file, kind, shape, dtype)
        number = judge.integer(document.get("generation"), "generation", 1, 10**18 - 1)
        values = judge.mapping(document.get("values"), "values")
        return cls(number, arrays, values, judge.text(document.get("id", ""), "id"))


class Folder:
    """
    The folder of a checkpoint.

    Parameters
    ----------
    path
        As the user gave it; a link is followed.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._held: int | None = None
        self._begun: int | None = None

    def manifest(self) -> Manifest | None:
        """What it holds; None if there is no manifest."""
        file = os.path.join(self.path, MANIFEST)
        document = read_document(file, _judge(file))
        return None if document is None else Manifest.of(document, file)

    def read(self) -> Manifest:
        """What it holds; an error if there is no checkpoint."""
        with durable.os_errors("opening the checkpoint", self.path):
            os.stat(self.path)
        found = self.manifest()
        if found is None:
            raise FormatError(
                f"{self.path!r} is no checkpoint: there is no {MANIFEST} in it; name the folder that "
                "outcore.checkpoint() made",
                code="bad-checkpoint",
                path=self.path,
            )
        return found

    def file(self, generation: int, file: str = "") -> str:
        """Where a file of a generation is."""
        return os.path.join(self.path, f"arrays-{generation}", file)

    def begin(self) -> int:
        """Make the folder of a new generation, and hold it; remove what killed processes left."""
        with durable.os_errors("making the checkpoint", self.path):
            self._make()
            try:
                named = self.manifest()
            except FormatError as error:
                # Nothing tells which generation counts: all stay until the new manifest is there.
                if isinstance(error, UnsupportedError) or not self._is_damaged():
                    raise
                named = None
            others = self._generations(None if named is None else named.generation)
            if named is None:
                self._refuse_others()
            # Of the last one only a sync may have failed, after the rename of its manifest.
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
                    f"{self.path!r} is a file; a checkpoint is a folder: choose another name, or "
                    "remove the file",
                    code="bad-checkpoint",
                    path=self.path,
                ) from None
            return
        _core.fsync_folder(self.path)

    def _is_damaged(self) -> bool:
        """Whether a manifest that makes no sense was ours, and not a file of somebody else."""
        file = os.path.join(self.path, MANIFEST)
        if not os.path.isfile(file):
            return False
        try:
            document = read_document(file, _judge(file))
        except FormatError:
            return os.path.getsize(file) == 0 or bool(self._generations(None))
        return document is not None and document.get("format") == FORMAT

    def _refuse_others(self) -> None:
        """A folder with other things in it is somebody's, and no checkpoint."""
        found = [
            name
            for name in os.listdir(self.path)
            if name != MANIFEST
            and not _GENERATION.fullmatch(name)
            and not _TEMPORARY.fullmatch(name)
        ]
        if found:
            raise UsageError(
                f"{self.path!r} is a folder with other things in it ({sorted(found)[0]!r}), and no "
                "checkpoint; choose another name",
                code="bad-checkpoint",
                path=self.path,
            )

    def _generations(self, but: int | None) -> list[int]:
        found = (_GENERATION.fullmatch(name) for name in os.listdir(self.path))
        return sorted(int(one[1]) for one in found if one and int(one[1]) != but)

    def _make_generation(self, first: int) -> int:
        for number in range(first, first + _TRIES):
            try:
                os.mkdir(self.file(number))
            except FileExistsError:
                continue
            held = durable.hold(self.file(number))
            if held is not None:
                self._held, self._begun = held, number
                _core.fsync_folder(self.file(number).rstrip("/"))
                return number
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.file(first))

    def publish(self, manifest: Manifest) -> None:
        """Let a generation count that is complete and durable; what counted before is removed."""
        file = os.path.join(self.path, MANIFEST)
        with durable.os_errors("completing the checkpoint", self.path):
            # Names of files, which their formats may have left to be synced; the arrays are.
            _core.fsync_folder(self.file(manifest.generation, MANIFEST))
        text = json.dumps(manifest.document(), indent=1, ensure_ascii=False).encode()
        durable.create_file(file, lambda fd: durable.write_all(fd, text, 0), exclusive=False)
        self._begun = None
        with contextlib.suppress(OSError):
            for number in self._generations(manifest.generation):
                self._remove_left(number)

    def end(self) -> None:
        """Give back the folder of the generation; it goes, unless it counts."""
        begun, self._begun = self._begun, None
        if begun is not None:
            # Unless the manifest may have its name already, and only a sync failed after that.
            with contextlib.suppress(OSError, OutcoreError):
                named = self.manifest()
                if named is None or named.generation != begun:
                    _remove(self.file(begun))
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _remove_left(self, number: int) -> None:
        """Remove a generation that the manifest does not name, unless somebody makes it."""
        with contextlib.suppress(OSError, OutcoreError):
            held = durable.hold(self.file(number), look=True)
            if held is not None:
                try:
                    # Once more: whoever made it may have let it count before this process had the lock.
                    named = self.manifest()
                    if named is None or named.generation != number:
                        _remove(self.file(number))
                finally:
                    os.close(held)


def _judge(path: str) -> Judge:
    return Judge(path, "outcore.checkpoint()", "the checkpoint")


def _is_plain(name: str) -> bool:
    """Whether it is the name of a file in a folder, and leads nowhere else."""
    return bool(name) and not name.startswith(".") and not set(name) & {"/", "\0"}


def _remove(folder: str) -> None:
    for above, below, files in os.walk(folder, topdown=False):
        for name in files:
            durable.unlink_in_background(os.path.join(above, name))
        for name in below:
            place = os.path.join(above, name)
            os.unlink(place) if os.path.islink(place) else os.rmdir(place)
    os.rmdir(folder)
