"""
The other folders that files of an array may be in.

Problem: a manifest names files that are read, written and removed. A manifest that was received from
elsewhere could name any file of the user.
Approach: files are in the folder of their manifest, its *home*, or below it. Creating an array with
files in other folders leaves a mark in each of them: an empty side file whose name has the *id* of the
array and a hash of its home. So a manifest is trusted where its array was created; a copy of it is
trusted only for its own folder, and for folders that the user passes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence

from outcore import _core
from outcore.errors import StorageError
from outcore.formats.side_files import open_side_file

__all__ = ["admit", "find_outside", "withdraw"]

_STEM = ".outcore-home-"


def admit(files: Iterable[str], array_id: str, home: str) -> None:
    """Durably let an array whose manifest is in the folder `home` have files in other folders."""
    home = os.path.realpath(home)
    for folder in {_find_folder(file) for file in files}:
        if not _is_below(folder, home):
            mark = _make_mark_path(folder, array_id, home)
            fd = open_side_file(mark, make=True)
            if fd is not None:
                os.close(fd)
            _core.fsync_folder(mark)


def withdraw(files: Iterable[str], array_id: str) -> None:
    """Remove the marks of a removed array from the folders of its files."""
    for folder in {_find_folder(file) for file in files}:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith(f"{_STEM}{array_id}-"):
                    os.unlink(os.path.join(folder, name))


def find_outside(
    files: Iterable[str], array_id: str, home: str, folders: Sequence[str] = ()
) -> str | None:
    """
    Return the first file that is in a folder where the array may not have files, or None.

    `files` are paths; symbolic links are followed. `home` is the folder of the manifest, and `folders`
    are further folders that the user allows.
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
        fd = open_side_file(_make_mark_path(folder, array_id, home), data)
    except (StorageError, OSError):
        return False
    if fd is not None:
        os.close(fd)
    return fd is not None


def _make_mark_path(folder: str, array_id: str, home: str) -> str:
    digest = hashlib.blake2b(os.fsencode(home), digest_size=8).hexdigest()
    return os.path.join(folder, f"{_STEM}{array_id}-{digest}")


def _find_folder(file: str) -> str:
    return os.path.realpath(os.path.dirname(file) or ".")


def _is_below(folder: str, home: str) -> bool:
    return folder == home or folder.startswith(os.path.join(home, ""))
