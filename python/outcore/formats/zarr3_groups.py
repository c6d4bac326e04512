"""
Groups of Zarr version 3: folders whose ``zarr.json`` says so.

Problem. The attributes of a group are in the same document as the consolidated metadata of all that is
below it, which others bring up to date at the same time; and groups above may tell of them, too.
Idea. The attributes in the document are changed under its lock, and nothing else; then the copies in the
groups above.
Invariants. As in `zarr3`. A group is never replaced, but a whole store is, if nothing else is in its
folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from outcore.errors import FormatError
from outcore.formats import zarr3
from outcore.formats.documents import Document, Judge, part_of, read_document
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

_FILE = "zarr.json"


def kind(format: str, path: str, inner: str | None) -> Kind | None:
    """What the metadata of a node say that it is."""
    found = zarr3.metadata_of(os.path.join(path, *split_node(inner, path)))
    if found is None:
        return None
    return "group" if found["node_type"] == "group" else "array"


def members(format: str, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
    """Names and kinds, in the order of names; what cannot be read is taken for an array."""
    folder = _group(path, inner)[0]
    found: list[tuple[str, Kind]] = []
    for names, document in zarr3.nodes_below(folder, deep=deep):
        is_group = isinstance(document, dict) and document.get("node_type") == "group"
        found.append(("/".join(names), "group" if is_group else "array"))
    return found


def _group(path: str, inner: str | None) -> tuple[str, Document]:
    """Folder and metadata of a group."""
    names = split_node(inner, path)
    folder = os.path.join(path, *names)
    document = zarr3.metadata_of(folder)
    if document is None or document["node_type"] != "group":
        name = full_name(path, names)
        raise FormatError(
            f"{name!r} is no group; `outcore ls` lists what is there",
            code="not-a-group",
            path=name,
        )
    return folder, document


def attrs(format: str, path: str, inner: str | None) -> Mapping[str, Any]:
    """Its attributes."""
    folder, document = _group(path, inner)
    judge = Judge(os.path.join(folder, _FILE), again="the group")
    return part_of(document, judge.mapping(document.get("attributes") or {}, "attributes"))


def check_writable(path: str, inner: str | None) -> None:
    """Raise `StorageError` if its folder cannot be written."""
    names = split_node(inner, path)
    folder = node_folder(path, names)
    if not os.path.lexists(os.path.join(folder, _FILE)):
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
    """Set attributes and drop others (None: all), there and in the groups above."""
    names = split_node(inner, path)
    folder, name = node_folder(path, names), full_name(path, names)
    file = os.path.join(folder, _FILE)
    with locked(file):
        document = read_document(file)
        if document is None or document.get("node_type") != "group":
            raise _only_told(name)
        old = document.get("attributes") or {}
        changed = changed_attributes(old, attrs, drop, name)
        write_document(file, {**document, "attributes": changed})
    told = {key: value for key, value in document.items() if key != "consolidated_metadata"}
    zarr3.tell_groups(folder, {**told, "attributes": changed}, only="attributes")
    return changed


def create(
    format: str, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
) -> None:
    """Make a group, and those above it if they are missing."""
    names = split_node(inner, path)
    given = changed_attributes({}, attrs, None, full_name(path, names))
    document = {**zarr3.new_group(), "attributes": given}
    target = node_folder(path, names)
    if replace and os.path.isdir(target):
        check_only_nodes(target)
        publish(
            target,
            lambda folder: write_document(os.path.join(folder, _FILE), document),
            exclusive=False,
        )
        return
    # A folder without anything in it may become a store.
    empty = is_empty(target)
    made = place(
        path, names, {_FILE: document}, {_FILE: zarr3.new_group()}, zarr3.is_group, not empty
    )
    for folder, files in made.nodes:
        zarr3.tell_groups(folder, files[_FILE])
