"""
The files of an array in parts, changed so that a crash leaves the old array or the new one.

Problem. Parts lie in several folders, and no two of them appear, or go, in one step; and parts that a
crash left behind are named by nobody.
Idea. Parts never change their names, which hold a number made by chance (the *id* of the manifest), and
the manifest that names them takes its name by one rename. Before parts are made, or may have to go, a
*note* beside the manifest says which (``.NAME.ID.outcore-parts``). At the end of a change, or at the
beginning of the next one after a crash, each note is looked at: if the manifest has its id, its parts
are those of the array, and only the note goes; if not, nobody names them, and they go with it.

Invariants.
- A note, and its name, are on the disk before the first part of it is made, and before a manifest that
  does not name its parts is. The manifest names parts that are on the disk.
- One at a time changes an array, its length too: he holds the lock (``flock``) on
  ``.NAME.lock.outcore-parts``. Notes are judged by him alone, by a manifest that is on the disk. A
  thread that wants the lock which it has is refused: it would wait for itself.
- Only files with the name of a part of that id are removed, in the folder of the manifest, and where
  parts of that id were made (`homes`). A note that names others, or that is not to be believed
  (`side_files`), is told and left alone.
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
from outcore.errors import FormatError, OutcoreError, StorageError, callers_line
from outcore.formats import durable, homes, locks
from outcore.formats.documents import MAX_DOCUMENT, Document, Judge, document_of
from outcore.formats.parts.manifest import is_part, manifest_of
from outcore.formats.side_files import UNTRUSTED, create_side_file, distrusted, open_side_file

_ENDING = ".outcore-parts"


class Change:
    """
    A change of which parts a manifest names.

    Parameters
    ----------
    place
        The manifest; links followed.
    path
        As the user gave it, for messages.
    """

    def __init__(self, place: str, path: str) -> None:
        self._place, self._path = place, path
        self._folder, self._name = os.path.split(place)
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(locks.once(self._place, self._path, "its files are being changed"))
            with durable.os_errors("looking at the folder of", self._path):
                held.callback(self._release, self._locked())
                self._settle()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._held, contextlib.suppress(OSError, OutcoreError):
            # What cannot be settled now is by the next change: its note stays.
            self._settle()

    def _locked(self) -> int:
        """A descriptor of the lock, which nobody else has now."""
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
                pass  # who had it has removed it
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _release(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._beside("lock"))
        # Closing would not do: a child that was forked meanwhile has the description, too.
        with contextlib.suppress(OSError):
            locks.lock_file(fd, fcntl.LOCK_UN)
        os.close(fd)

    def refuse_existing(self, *, exclusive: bool) -> None:
        """Refuse to replace anything, if that is meant, and to replace a folder."""
        with durable.os_errors("creating", self._path):
            if exclusive and os.path.lexists(self._place):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path)
            if os.path.isdir(self._place):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)

    def note(self, array_id: str, parts: Sequence[str]) -> None:
        """From now on these parts go, unless the manifest has this id."""
        said = {"id": array_id, "parts": list(parts)}
        text = json.dumps({**said, "check": _check(said)}).encode()
        with durable.os_errors("noting the parts of", self._path):
            # At its place: one that is cut off says that nothing was made, or removed, yet.
            fd = create_side_file(self._beside(array_id), self._data())
            try:
                durable.write_all(fd, text, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            _core.fsync_folder(self._place)

    def publish(self, document: Document, *, exclusive: bool) -> None:
        """Put a manifest, all of whose parts are on the disk, in the place of the one that is there."""
        self._note_old(document["id"])
        rewrite(self._place, document, exclusive=exclusive)

    def take(self, fresh: str, *, exclusive: bool) -> None:
        """Put the manifest in the file `fresh`, which is on the disk, in the place of what is there."""
        self._note_old()
        with durable.os_errors("renaming to", self._path):
            durable.move_into_place(fresh, self._place, exclusive=exclusive)

    def withdraw(self) -> None:
        """Remove the manifest; its parts go at the end."""
        self._note_old()
        with durable.os_errors("removing", self._path):
            os.unlink(self._place)
            _core.fsync_folder(self._place)

    def _note_old(self, fresh: str = "") -> None:
        """The parts of the manifest that is there may have to go, unless the `fresh` one has its id."""
        old = self._named()
        if old is not None and old[0] != fresh:
            self.note(*old)

    def _named(self) -> tuple[str, list[str]] | None:
        """Id and parts of the manifest that is there; None if it is none."""
        if not os.path.lexists(self._place):
            return None
        try:
            return told(self._place)
        except FormatError:
            return None  # something else has the name, whose files nobody knows

    def _beside(self, mark: str) -> str:
        return durable.neighbour(self._place, f".{mark}{_ENDING}", before=".")

    def _settle(self) -> None:
        """Judge all notes by the manifest that is on the disk."""
        mark = "0" * 16
        form = re.escape(os.path.basename(self._beside(mark))).replace(mark, "([0-9a-f]{16})")
        found = [re.fullmatch(form, name) for name in os.listdir(self._folder)]
        ids = [one[1] for one in found if one]
        if not ids:
            return
        _core.fsync_folder(self._place)
        try:
            named = told(self._place)[0] if os.path.lexists(self._place) else None
        except FormatError:
            return  # perhaps it is damaged, and names some of them
        for array_id in ids:
            parts = self._noted(array_id)
            if parts is None:
                continue
            if named != array_id:
                self._remove_parts(array_id, parts)
            os.unlink(self._beside(array_id))

    def _noted(self, array_id: str) -> list[str] | None:
        """The parts of a note; None if it is not to be believed, which is told."""
        note = self._beside(array_id)
        try:
            fd = open_side_file(note, self._data())
            if fd is None:
                return None
            try:
                raw = durable.read_at(fd, min(os.fstat(fd).st_size, MAX_DOCUMENT), 0)
            finally:
                os.close(fd)
            parts = _parts_of(raw, Judge(note, "outcore", "the array"))
            # Parts that are gone harm nobody, and the mark of their folder goes after them.
            parts = [
                part
                for part in parts
                if os.path.lexists(part) or homes.outside([part], array_id, self._folder) is None
            ]
            odd = homes.outside(parts, array_id, self._folder)
            if odd is not None or not all(is_part(part, array_id) for part in parts):
                raise distrusted(
                    note, f"it names {odd or parts!r:.300}, which is not of this array"
                )
        except StorageError as error:
            if error.code == UNTRUSTED:
                warnings.warn(str(error), stacklevel=callers_line())
                return None
            raise
        return parts

    def _data(self) -> os.stat_result | None:
        """The manifest, whose owner may have made notes."""
        try:
            return os.stat(self._place)
        except FileNotFoundError:
            return None

    def _remove_parts(self, array_id: str, parts: list[str]) -> None:
        """Remove the parts of a note, before that is removed."""
        for part in parts:
            durable.remove_begun(part)
            with contextlib.suppress(FileNotFoundError):
                durable.unlink_in_background(part)
                _core.fsync_folder(part)
        homes.withdraw(parts, array_id)


def _check(said: Document) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _parts_of(raw: bytes, judge: Judge) -> list[str]:
    """What a note says; nothing, of one that is cut off."""
    try:
        said = document_of(raw, judge)
        check = said.pop("check", None)
        if check == _check(said) and all(isinstance(part, str) for part in said["parts"]):
            return list(said["parts"])
    except (FormatError, KeyError, TypeError):
        pass
    return []


def told(place: str) -> tuple[str, list[str]]:
    """Id and parts (absolute) that a manifest names; `FormatError` if it makes no sense."""
    manifest = manifest_of(place)
    return manifest.id, list(manifest.parts)


def remove(path: str) -> None:
    """Remove an array: its manifest in one step, then its parts."""
    place = os.path.realpath(path)
    told(place)  # nothing is removed whose parts nobody knows
    with Change(place, path) as change:
        change.withdraw()


def take_place(fresh: str, target: str, exclusive: bool) -> None:
    """Give a complete array the name of another one in the same folder, which is removed."""
    place = os.path.realpath(target)
    with Change(place, target) as change:
        change.take(fresh, exclusive=exclusive)


def rewrite(place: str, document: Document, *, exclusive: bool = False) -> None:
    """Put a manifest in the place of one with the same parts, or of none: one durable step."""
    text = (json.dumps(document, ensure_ascii=False) + "\n").encode(errors="surrogateescape")
    durable.create_file(place, lambda fd: durable.write_all(fd, text, 0), exclusive=exclusive)
