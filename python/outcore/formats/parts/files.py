"""
The files of an array in parts, changed so that a crash leaves the old array or the new one.

Problem: parts are in several folders, and no two of them appear, or are removed, in one step. Nothing
names the parts that a crash left.
Approach: parts never change their names, which contain a random number (the *id* of the manifest), and
the manifest that names them gets its name by one rename. Before parts are created, or may have to be
removed, a *note* next to the manifest lists them (``.NAME.ID.outcore-parts``). At the end of a change,
or at the beginning of the next one after a crash, each note is checked: if the manifest has its id, its
parts belong to the array, and only the note is removed; otherwise nothing names the parts, and they are
removed with it.

Invariants:
- A note, and its name, are durable before its first part is created, and before a manifest that does
  not name its parts is. The manifest names parts that are durable.
- Only one thread at a time changes an array or its length: it holds the lock (``flock``) on
  ``.NAME.lock.outcore-parts``. Only that thread checks notes, against a manifest that is durable. If a
  thread requests the lock that it holds, an error is raised, because it would wait for itself.
- Only files with the name of a part of that id are removed, in the folder of the manifest, and where
  parts of that id were created (`homes`). A note that names other files, or that cannot be trusted
  (`side_files`), is reported and left in place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from typing import Self

from outcore import _core
from outcore.errors import FormatError, OutcoreError, StorageError, find_stack_level
from outcore.formats import durable, homes, locks
from outcore.formats.documents import MAX_DOCUMENT, Document, Judge, parse_document
from outcore.formats.parts.manifest import KIND, is_part, read_manifest
from outcore.formats.side_files import UNTRUSTED, create_side_file, open_side_file, untrusted_error

_ENDING = ".outcore-parts"


class ManifestChange:
    """
    A change of the parts that a manifest names.

    `place` is the manifest, links followed; `path` is the user's path, for messages.
    """

    def __init__(self, place: str, path: str) -> None:
        self._place, self._path = place, path
        self._folder, self._name = os.path.split(place)
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(
                locks.forbid_nesting(self._place, self._path, "its files are being changed")
            )
            with durable.os_errors("inspecting the folder of", self._path):
                held.callback(self._release, self._lock())
                self._settle()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._held, contextlib.suppress(OSError, OutcoreError):
            # On failure the note stays, and the next change tries again.
            self._settle()

    def _lock(self) -> int:
        """Return a descriptor with the exclusive lock."""
        file = self._beside("lock")
        while True:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                with contextlib.suppress(OSError):  # a file system without locks
                    locks.lock_file(fd, wait=True)
                mine, there = os.fstat(fd), os.stat(file)
                if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
                    return fd
            except FileNotFoundError:
                pass  # its last holder has removed it
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _release(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._beside("lock"))
        # Closing is not enough: a child that was forked in the meantime shares the description.
        with contextlib.suppress(OSError):
            locks.lock_file(fd, fcntl.LOCK_UN)
        os.close(fd)

    def refuse_existing(self, *, exclusive: bool) -> None:
        """Raise if `exclusive` and something exists, or if a folder would be replaced."""
        with durable.os_errors("creating", self._path):
            if exclusive and os.path.lexists(self._place):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path)
            if os.path.isdir(self._place):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)

    def note(self, array_id: str, parts: Sequence[str]) -> None:
        """Write a note: these parts will be removed, unless the manifest has this id."""
        said = {"id": array_id, "parts": list(parts)}
        text = json.dumps({**said, "check": _compute_checksum(said)}).encode()
        with durable.os_errors("writing the note of parts of", self._path):
            # In place: an incomplete note means that nothing was created or removed yet.
            fd = create_side_file(self._beside(array_id), self._data())
            try:
                durable.write_all(fd, text, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            _core.fsync_folder(self._place)

    def publish(self, document: Document, *, exclusive: bool) -> None:
        """Replace the manifest by one whose parts are all durable."""
        self._note_old(document["id"])
        rewrite(self._place, document, exclusive=exclusive)

    def take(self, fresh: str, *, exclusive: bool) -> None:
        """Replace the manifest by the durable file `fresh`."""
        self._note_old()
        with durable.os_errors("renaming to", self._path):
            durable.move_into_place(fresh, self._place, exclusive=exclusive)

    def withdraw(self) -> None:
        """Remove the manifest; its parts are removed at the end."""
        self._note_old()
        with durable.os_errors("removing", self._path):
            os.unlink(self._place)
            _core.fsync_folder(self._place)

    def _note_old(self, fresh: str = "") -> None:
        """Write a note for the parts of the current manifest, unless it has the id `fresh`."""
        old = self._read_names()
        if old is not None and old[0] != fresh:
            self.note(*old)

    def _read_names(self) -> tuple[str, list[str]] | None:
        """Return id and parts of the current manifest; None if there is no valid one."""
        if not os.path.lexists(self._place):
            return None
        try:
            return read_named_parts(self._place)
        except FormatError:
            return None  # something else has the name, whose files are unknown

    def _beside(self, mark: str) -> str:
        return durable.make_sibling_path(self._place, f".{mark}{_ENDING}", before=".")

    def _settle(self) -> None:
        """Check all notes against the durable manifest."""
        mark = "0" * 16
        form = re.escape(os.path.basename(self._beside(mark))).replace(mark, "([0-9a-f]{16})")
        found = [re.fullmatch(form, name) for name in os.listdir(self._folder)]
        ids = [one[1] for one in found if one]
        if not ids:
            return
        _core.fsync_folder(self._place)
        try:
            named = read_named_parts(self._place)[0] if os.path.lexists(self._place) else None
        except FormatError:
            return  # it may be damaged, and name some of them
        for array_id in ids:
            parts = self._read_note(array_id)
            if parts is None:
                continue
            if named != array_id:
                self._remove_parts(array_id, parts)
            os.unlink(self._beside(array_id))

    def _read_note(self, array_id: str) -> list[str] | None:
        """Return the parts of a note; None, with a warning, if it cannot be trusted."""
        note = self._beside(array_id)
        try:
            fd = open_side_file(note, self._data())
            if fd is None:
                return None
            try:
                raw = durable.read_at(fd, min(os.fstat(fd).st_size, MAX_DOCUMENT), 0)
            finally:
                os.close(fd)
            parts = _parse_note(raw, Judge(note, "outcore", "the array"))
            # Ignore removed parts: the mark of their folder is removed after them.
            parts = [
                part
                for part in parts
                if os.path.lexists(part)
                or homes.find_outside([part], array_id, self._folder) is None
            ]
            odd = homes.find_outside(parts, array_id, self._folder)
            if odd is not None or not all(is_part(part, array_id) for part in parts):
                raise untrusted_error(
                    note, f"it names {odd or parts!r:.300}, which does not belong to this array"
                )
        except StorageError as error:
            if error.code == UNTRUSTED:
                warnings.warn(str(error), stacklevel=find_stack_level())
                return None
            raise
        return parts

    def _data(self) -> os.stat_result | None:
        """Return the status of the manifest, whose owner may have made notes."""
        try:
            return os.stat(self._place)
        except FileNotFoundError:
            return None

    def _remove_parts(self, array_id: str, parts: list[str]) -> None:
        """Remove the parts of a note, before the note is removed."""
        for part in parts:
            durable.remove_abandoned(part)
            with contextlib.suppress(FileNotFoundError):
                durable.unlink_in_background(part)
                _core.fsync_folder(part)
        homes.withdraw(parts, array_id)


def _compute_checksum(said: Document) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _parse_note(raw: bytes, judge: Judge) -> list[str]:
    """Return the parts in a note; none for a note that is incomplete."""
    try:
        said = parse_document(raw, judge)
        check = said.pop("check", None)
        if check == _compute_checksum(said) and all(
            isinstance(part, str) for part in said["parts"]
        ):
            return list(said["parts"])
    except (FormatError, KeyError, TypeError):
        pass
    return []


def read_named_parts(place: str) -> tuple[str, list[str]]:
    """Return id and parts (absolute) that a manifest names; `FormatError` if it is invalid."""
    manifest = read_manifest(place)
    return manifest.id, list(manifest.parts)


def remove(path: str) -> None:
    """Remove an array: its manifest in one step, then its parts."""
    place = os.path.realpath(path)
    read_named_parts(place)  # do not remove a manifest whose parts are unknown
    with ManifestChange(place, path) as change:
        change.withdraw()


def take_place(fresh: str, target: str, exclusive: bool) -> None:
    """Give a complete array the name of another one in the same folder, which is removed."""
    place = os.path.realpath(target)
    with ManifestChange(place, target) as change:
        change.take(fresh, exclusive=exclusive)


def rewrite(place: str, document: Document, *, exclusive: bool = False) -> None:
    """Write a manifest in one durable step, replacing one with the same parts if there is one."""
    KIND.write(place, document, exclusive=exclusive)
