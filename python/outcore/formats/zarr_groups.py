"""
Groups of Zarr, of both versions.

Problem. What a group says of itself may stand several times: in its folder, in its own consolidated
metadata, and in those of the groups above it, which others bring up to date at the same time.
Idea. Both versions share this module. They differ in their documents; how these are read, listed and
changed is said by `zarr2` and `zarr3`: ``GROUP`` (the document that makes a group of a folder),
`kind_of`, `node`, `nodes_below`, `is_group`, `group_documents`, `change_group` and `tell_groups`.
Invariants. As in `zarr2` and `zarr3`. Attributes are changed under the lock of the document that makes
the group, and nothing else in it; then come the copies. A group is never replaced, but a whole store is,
if nothing else is in its folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from outcore.errors import FormatError
from outcore.formats import zarr2, zarr3
from outcore.formats.documents import Document
from outcore.formats.groups import is_empty
from outcore.formats.members import Kind, Member, Members, no_group, stem
from outcore.formats.zarr_store import changed_attributes, publish, write_document
from outcore.formats.zarr_store import check_writable as check_folder
from outcore.formats.zarr_tree import (
    Node,
    check_only_nodes,
    full_name,
    node_folder,
    place,
    split_node,
)

# Names of axes, in attributes of version 2.
_DIMS = "_ARRAY_DIMENSIONS"


def _version(format: str) -> Any:
    return zarr3 if format == zarr3.NAME else zarr2


def kind(format: str, path: str, inner: str | None) -> Kind | None:
    """What the documents of a node say that it is."""
    found: Kind | None = _version(format).kind_of(os.path.join(path, *split_node(inner, path)))
    return found


def members(format: str, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
    """Names and kinds, in the order of names; what cannot be read is taken for an array."""
    names = split_node(inner, path)
    folder = os.path.join(path, *names)
    if kind(format, path, inner) != "group":
        raise _no_group(full_name(path, names))
    found = _version(format).nodes_below(folder, deep=deep)
    return [("/".join(names), "array" if is_array else "group") for names, is_array in found]


def _no_group(name: str) -> FormatError:
    return FormatError(
        f"{name!r} is no group; `outcore ls` lists what is there", code="not-a-group", path=name
    )


def describe(format: str, path: str, inner: str, drop: Collection[str]) -> Members:
    """The group, and the arrays directly in it; or an array, as if it were alone in a group."""
    version, names = _version(format), split_node(inner, path)
    folder = os.path.join(path, *names)
    found: Node | None = version.node(folder)
    if found is None:
        raise no_group(path, inner, "there is no Zarr group of this version")
    if found.is_array:
        info = version.open(path, inner if names else None, False)
        name = names[-1] if names else stem(path)
        return Members(path, inner, format, arrays={name: Member.of(info)})
    arrays: dict[str, Member] = {}
    groups: list[str] = []
    for (name,), is_array in version.nodes_below(folder, deep=False, drop=drop):
        if is_array:
            arrays[name] = _described(version, path, (*names, name))
        else:
            groups.append(name)
    # Without what NCZarr keeps there for itself.
    attrs = {key: one for key, one in found.attrs.items() if not key.lower().startswith("_nc")}
    identity = (os.path.realpath(folder), 0)
    return Members(path, inner, format, attrs, arrays, tuple(groups), identity=identity)


def _described(version: Any, path: str, names: tuple[str, ...]) -> Member:
    """An array of a group, whether it can be read or not."""
    try:
        return Member.of(version.open(path, "/" + "/".join(names), False))
    except FormatError as error:
        refused = error
    try:
        node: Node | None = version.node(os.path.join(path, *names))
    except FormatError:
        node = None
    document, attrs = ({}, {}) if node is None else (node.document, node.attrs)
    told = attrs.get(_DIMS) if version is zarr2 else document.get("dimension_names")
    lengths = document.get("shape")
    shape = tuple(lengths) if isinstance(lengths, list) else ()
    dims = tuple(told) if isinstance(told, list) and len(told) == len(shape) else None
    attrs = {key: one for key, one in attrs.items() if key != _DIMS}
    return Member(full_name(path, names), shape, dims, attrs, refused=refused)


def attrs(format: str, path: str, inner: str | None) -> Mapping[str, Any]:
    """Its attributes."""
    names = split_node(inner, path)
    found: Node | None = _version(format).node(os.path.join(path, *names))
    if found is None or found.is_array:
        raise _no_group(full_name(path, names))
    return found.attrs


def check_writable(format: str, path: str, inner: str | None) -> None:
    """Raise `StorageError` if its folder cannot be written."""
    names = split_node(inner, path)
    folder = node_folder(path, names)
    if not os.path.lexists(os.path.join(folder, _version(format).GROUP)):
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
    name = full_name(path, names)

    def edit(old: Document) -> Document:
        return changed_attributes(old, attrs, drop, name)

    changed: Document | None = _version(format).change_group(node_folder(path, names), edit)
    if changed is None:
        raise _only_told(name)
    return changed


def create(
    format: str, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
) -> None:
    """Make a group, and those above it if they are missing."""
    version, names = _version(format), split_node(inner, path)
    given = changed_attributes({}, attrs, None, full_name(path, names))
    documents = version.group_documents(given)
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
    made = place(path, names, documents, version.group_documents({}), version.is_group, not empty)
    for folder, files in made.nodes:
        version.tell_groups(folder, files)
