"""
Which array a handle is of: the folder, and the metadata that were read from it.

Problem. Chunks are found by name, and names may lead to another array by the time of an access: one that
`create` or `convert` put there, or another program, with chunks of another shape, order or codec.
Idea. What was read is remembered: device and inode of the folder, and of the document with its size and
times. The core compares the document at each access (one call). Only if it is another file by then, for
an attribute that was set or a length that changed, it is read again, and what it says compared.
Invariants. `Identity.check` returns only if the folder is the one that was opened, or made, and its
metadata mean the same elements.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from outcore.errors import InternalError, StorageError
from outcore.formats import durable
from outcore.formats.documents import MAX_LENGTH, Stamp
from outcore.formats.layout import ArrayInfo, Chunked, FileSource, Identity, ShardSource

__all__ = ["confirm", "folder_of", "gone", "identified", "identity_of"]


def folder_of(root: str) -> tuple[int, int]:
    """Device and inode of a folder."""
    with durable.os_errors("looking at", root):
        found = os.stat(root)
    return found.st_dev, found.st_ino


def identity_of(info: ArrayInfo) -> Identity | None:
    """What is remembered of the array."""
    layout = info.layout
    if isinstance(layout, Chunked) and isinstance(layout.source, FileSource | ShardSource):
        return layout.source.identity
    return None


def confirm(info: ArrayInfo) -> None:
    """
    Whether the array that `info` describes is still where it was.

    Raises
    ------
    StorageError
        ``file-changed``: another array took its place; ``not-found``: it is gone.
    """
    identity = identity_of(info)
    if identity is not None:
        identity.check()


def identified(
    info: ArrayInfo,
    file: str,
    folder: tuple[int, int] | None,
    seen: Stamp | None,
    again: Callable[[], tuple[ArrayInfo, Stamp]],
) -> ArrayInfo:
    """
    Give an array of chunk files its identity.

    Parameters
    ----------
    info
        What the metadata said.
    file
        The document that holds them.
    folder, seen
        Of the array's folder and of the document, if known.
    again
        Reads the metadata once more.
    """
    layout = info.layout
    if not isinstance(layout, Chunked) or not isinstance(layout.source, FileSource | ShardSource):
        raise InternalError(
            f"{info.path!r} is not laid out as Zarr", code="internal", path=info.path
        )
    source = layout.source

    def check() -> tuple[Stamp, tuple[int, ...]]:
        found, stamp = again()
        if folder is not None and folder_of(source.root) != folder:
            raise _replaced(info.path, "another array took its place")
        if _elements(found) != _elements(info):
            raise _replaced(info.path, "its metadata describe other elements now")
        # Chunks that the array lost since then, through another handle.
        cut = zip(found.shape, info.shape, layout.chunks, strict=True)
        return stamp, tuple(-(-n // c) if n < known else MAX_LENGTH for n, known, c in cut)

    known = Identity(file, folder, seen, check)
    return replace(info, layout=replace(layout, source=replace(source, identity=known)))


def _elements(info: ArrayInfo) -> tuple[object, ...]:
    """All that says how chunks become elements: everything but lengths and attributes."""
    fill = info.fill_value
    value = None if fill is None else np.full((), fill, info.dtype).tobytes()
    return len(info.shape), info.dtype, info.layout, value


def gone(path: str) -> StorageError:
    """The error for an array whose metadata are not there any more."""
    return StorageError(
        f"{path!r} was removed since it was opened: its metadata are gone; open it again, or create it",
        code="not-found",
        path=path,
        errno=errno.ENOENT,
    )


def _replaced(path: str, why: str) -> StorageError:
    return StorageError(
        f"{path!r} is not the array that was opened: {why}; open it again",
        code="file-changed",
        path=path,
    )
