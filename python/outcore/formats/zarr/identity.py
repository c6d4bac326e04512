"""
The identity of an array of chunk files: its folder, and the metadata that were read from it.

Problem: chunks are found by name, and by the time of an access the names may belong to another array:
one that `create` or `convert`, or another program, put there, with chunks of another shape, order or
codec.
Approach: device and inode of the folder are stored, and those of the document with its size and times.
The core compares the document at each access (one call). Only if it is another file, because an
attribute was set or a length changed, it is read again, and its contents are compared.
Invariants: `Identity.check` returns only if the folder is the one that was opened or created, and its
metadata describe the same elements.
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

__all__ = ["add_identity", "confirm", "folder_of", "identity_of", "make_gone_error"]


def folder_of(root: str) -> tuple[int, int]:
    """Return device and inode of a folder."""
    with durable.os_errors("inspecting", root):
        found = os.stat(root)
    return found.st_dev, found.st_ino


def identity_of(info: ArrayInfo) -> Identity | None:
    """Return the identity of an array, or None."""
    layout = info.layout
    if isinstance(layout, Chunked) and isinstance(layout.source, FileSource | ShardSource):
        return layout.source.identity
    return None


def confirm(info: ArrayInfo) -> None:
    """
    Check that the array that `info` describes still exists.

    `StorageError`: ``file-changed`` (another array replaced it), ``not-found`` (it was removed).
    """
    identity = identity_of(info)
    if identity is not None:
        identity.check()


def add_identity(
    info: ArrayInfo,
    file: str,
    folder: tuple[int, int] | None,
    seen: Stamp | None,
    again: Callable[[], tuple[ArrayInfo, Stamp]],
) -> ArrayInfo:
    """
    Add the identity to an array of chunk files.

    `file` is the document with its metadata; `folder` and `seen` are the states of the array's folder
    and of the document, if known; `again` reads the metadata again.
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
            raise _replaced_error(info.path, "another array has replaced it")
        if _describe_elements(found) != _describe_elements(info):
            raise _replaced_error(info.path, "its metadata describe other elements now")
        # Chunks that another handle has removed from the array since then.
        cut = zip(found.shape, info.shape, layout.chunks, strict=True)
        return stamp, tuple(-(-n // c) if n < known else MAX_LENGTH for n, known, c in cut)

    known = Identity(file, folder, seen, check)
    return replace(info, layout=replace(layout, source=replace(source, identity=known)))


def _describe_elements(info: ArrayInfo) -> tuple[object, ...]:
    """Return all properties that determine the elements, except lengths and attributes."""
    fill = info.fill_value
    value = None if fill is None else np.full((), fill, info.dtype).tobytes()
    return len(info.shape), info.dtype, info.layout, value


def make_gone_error(path: str) -> StorageError:
    """Return the error for an array whose metadata no longer exist."""
    return StorageError(
        f"{path!r} was removed since it was opened: it has no metadata; open it again, or create it",
        code="not-found",
        path=path,
        errno=errno.ENOENT,
    )


def _replaced_error(path: str, why: str) -> StorageError:
    return StorageError(
        f"{path!r} is not the array that was opened: {why}; open it again",
        code="file-changed",
        path=path,
    )
