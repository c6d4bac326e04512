"""
Which other folders the files of an array may lie in.

Problem. A manifest names files that are read, written and removed, and may come from elsewhere: in a
received folder it could name any file of the user.
Idea. Files lie in the folder of their manifest, its *home*, or below it. An array that is made with
files in other folders leaves a mark in each of them: an empty side file whose name has the *id* of the
array and a hash of its home. So a manifest is believed where its array was made; one that was copied
elsewhere, only in its own folder, or in folders that the user passes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence

from outcore import _core
from outcore.errors import StorageError
from outcore.formats.side_files import open_side_file

__all__ = ["admit", "outside", "withdraw"]

_STEM = ".outcore-home-"


def admit(files: Iterable[str], array_id: str, home: str) -> None:
    """Let an array whose manifest is in the folder `home` have files elsewhere; durable."""
    home = os.path.realpath(home)
    for folder in {_folder(file) for file in files}:
        if not _is_below(folder, home):
            mark = _mark(folder, array_id, home)
            fd = open_side_file(mark, make=True)
            if fd is not None:
                os.close(fd)
            _core.fsync_folder(mark)


def withdraw(files: Iterable[str], array_id: str) -> None:
    """Remove the marks of an array that is gone, in the folders of its files."""
    for folder in {_folder(file) for file in files}:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith(f"{_STEM}{array_id}-"):
                    os.unlink(os.path.join(folder, name))


def outside(
    files: Iterable[str], array_id: str, home: str, folders: Sequence[str] = ()
) -> str | None:
    """
    Return the first file that is not one of the array, because of where it lies; None if there is none.

    Parameters
    ----------
    files
        Paths; symbolic links count as what they lead to.
    array_id
        Of the array.
    home
        The folder of its manifest.
    folders
        What the user allows besides.
    """
    home = os.path.realpath(home)
    allowed = [home, *map(os.path.realpath, folders)]
    for file in files:
        real = os.path.realpath(file)
        folder = os.path.dirname(real)
        if folder in allowed:
            continue
        if not _is_below(folder, home) and not _is_marked(folder, array_id, home, real):
            return file
    return None


def _is_marked(folder: str, array_id: str, home: str, file: str) -> bool:
    try:
        data = os.lstat(file)
    except OSError:
        data = None
    try:
        fd = open_side_file(_mark(folder, array_id, home), data)
    except (StorageError, OSError):
        return False
    if fd is not None:
        os.close(fd)
    return fd is not None


def _mark(folder: str, array_id: str, home: str) -> str:
    digest = hashlib.blake2b(os.fsencode(home), digest_size=8).hexdigest()
    return os.path.join(folder, f"{_STEM}{array_id}-{digest}")


def _folder(file: str) -> str:
    return os.path.realpath(os.path.dirname(file) or ".")


def _is_below(folder: str, home: str) -> bool:
    return folder == home or folder.startswith(os.path.join(home, ""))
