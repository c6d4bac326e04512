"""
Groups of Zarr version 2: folders with a ``.zgroup``, and their attributes in ``.zattrs``.

Problem. What a group says of itself may stand three times: in its folder, in its own consolidated
metadata, and in those of the groups above it.
Idea. Who changes attributes holds the lock of ``.zgroup``, which never changes; then come all copies.
Invariants. As in `zarr2`, and in `zarr3_groups`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from outcore.errors import FormatError
from outcore.formats import zarr2
from outcore.formats.documents import Document, read_document
from outcore.formats.groups import Kind, is_empty
from outcore.formats.zarr_store import (
    changed_attributes,
    locked,
    publish,
    write_document,
)
from outcore.formats.zarr_store import (
    check_writable as check_folder,
)
from outcore.formats.zarr_tree import (
    check_only_nodes,
    full_name,
    node_folder,
    place,
    split_node,
)

_GROUP, _ATTRS = ".zgroup", ".zattrs"


def kind(format: str, path: str, inner: str | None) -> Kind | None:
    """What the documents of a node say that it is."""
    return zarr2.kind_of(os.path.join(path, *split_node(inner, path)))


def members(format: str, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
    """Names and kinds, in the order of names."""
    found = zarr2.nodes_below(_group(path, inner), deep=deep)
    return [("/".join(names), "array" if is_array else "group") for names, is_array in found]


def _group(path: str, inner: str | None) -> str:
    """The folder of a group."""
    names = split_node(inner, path)
    folder = os.path.join(path, *names)
    if zarr2.kind_of(folder) != "group":
        name = full_name(path, names)
        raise FormatError(
            f"{name!r} is no group; `outcore ls` lists what is there",
            code="not-a-group",
            path=name,
        )
    return folder


def attrs(format: str, path: str, inner: str | None) -> Mapping[str, Any]:
    """Its attributes."""
    return zarr2.document_of(_group(path, inner), _ATTRS) or {}


def check_writable(path: str, inner: str | None) -> None:
    """Raise `StorageError` if its folder cannot be written."""
    names = split_node(inner, path)
    folder = node_folder(path, names)
    if not os.path.lexists(os.path.join(folder, _GROUP)):
        raise _only_told(full_name(path, names))
    check_folder(folder)


def _only_told(name: str) -> FormatError:
    return FormatError(
        f"{name!r} has no metadata of its own: only those of a group above tell of it, or it was "
        "removed; open it for reading, or create it",
        code="not-a-group",
        path=name,
    )


def set_attrs(
    format: str,
    path: str,
    inner: str | None,
    attrs: Mapping[str, Any],
    drop: Collection[str] | None,
) -> Mapping[str, Any]:
    """Set attributes and drop others (None: all), there, and wherever they are told."""
    names = split_node(inner, path)
    folder, name = node_folder(path, names), full_name(path, names)
    with locked(os.path.join(folder, _GROUP)):
        if not os.path.lexists(os.path.join(folder, _GROUP)):
            raise _only_told(name)
        old = read_document(os.path.join(folder, _ATTRS))
        if old is None:
            old = zarr2.document_of(folder, _ATTRS) or {}
        changed = changed_attributes(old, attrs, drop, name)
        write_document(os.path.join(folder, _ATTRS), changed)
    zarr2.tell_groups(folder, {_ATTRS: changed}, itself=True)
    return changed


def create(
    format: str, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
) -> None:
    """Make a group, and those above it if they are missing."""
    names = split_node(inner, path)
    given = changed_attributes({}, attrs, None, full_name(path, names))
    group: Mapping[str, Document] = {_GROUP: {"zarr_format": 2}}
    documents = {**group, **({_ATTRS: given} if given else {})}
    target = node_folder(path, names)
    if replace and os.path.isdir(target):
        check_only_nodes(target)

        def build(folder: str) -> None:
            for file, document in documents.items():
                write_document(os.path.join(folder, file), document)

        publish(target, build, exclusive=False)
        return
    # A folder without anything in it may become a store.
    empty = is_empty(target)
    made = place(path, names, documents, group, zarr2.is_group, not empty)
    for folder, files in made.nodes:
        zarr2.tell_groups(folder, files)
