"""
Zarr in a zip file: the format, with its groups.

Problem: a zip file has no folders, only names of members. A group may have no document of its own.
Approach: the directory of the file is read once for each call (`zip_tree`). A group exists if it has a
document, or if nodes exist below it.
Invariants: nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outcore.errors import FormatError
from outcore.formats.format import HasGroups, OpensMany, ReadOnlyFormat
from outcore.formats.layout import ArrayInfo
from outcore.formats.members import Kind, Member, Members, make_array_name, no_group_error
from outcore.formats.spec import Entry
from outcore.formats.zarr.tree import join_name, missing_node_error, not_a_group_error, split_node
from outcore.formats.zarr.zip_archive import Archive, begins_as_zip
from outcore.formats.zarr.zip_tree import ARRAY, MARKS, V3, Names, ZipStore


class ZarrZip(ReadOnlyFormat, OpensMany, HasGroups):
    """Zarr stores in zip files, of both versions."""

    name = "zarrzip"
    suffixes = (".zip",)
    instead = "unzip it and open the folder, or write a new store and zip that (zip -0 -r)"

    def recognise(self, path: str) -> bool:
        """Return whether a file is a zip file with Zarr metadata in it."""
        if not begins_as_zip(path):
            return False
        try:
            archive = Archive(path)
        except FormatError:
            return False
        return any(name.rpartition("/")[2] in MARKS for name in archive.members)

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Describe an array in a zip file; without `inner` the file must have only one array.

        `FormatError`: ``bad-zip``, ``bad-metadata``, ``not-an-array`` (the message lists the existing
        arrays). `UnsupportedError` ``zip-member``: its chunks are encrypted, compressed by another
        method than deflate, or in deflated shards.
        """
        return self.describe_many(path, [inner], writable)[0]

    def describe_many(
        self, path: str, inners: Sequence[str | None], writable: bool
    ) -> list[ArrayInfo]:
        """Describe several arrays of a file, whose directory is read once."""
        tree = ZipStore(path)
        return [tree.array(inner) for inner in inners]

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """List groups and arrays below a group, or the array itself."""
        tree = ZipStore(path)
        names = split_node(inner, path)
        if tree.document(names, V3, ARRAY) is None and not tree.below(names):
            raise missing_node_error(path, names, tree.arrays(tree.deepest(names)))
        return [tree.entry(node) for node in tree.below(names)]

    def find_kind(self, path: str, inner: str | None) -> Kind | None:
        """Return the kind of the node at a name, or None."""
        return ZipStore(path).kind(split_node(inner, path))

    def list_members(self, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
        """Return names and kinds, in the order of names; an unreadable node counts as an array."""
        tree, names = _open_group(path, inner)
        nodes = _list_nodes(tree, names)
        return [("/".join(one), nodes[one]) for one in sorted(nodes) if deep or len(one) == 1]

    def describe_group(self, path: str, inner: str, drop: Collection[str]) -> Members:
        """Describe a group and the arrays directly in it; or an array as the only one of a group."""
        tree, names = ZipStore(path), split_node(inner, path)
        what, version = tree.kind(names), tree.version(names)
        if what is None:
            raise no_group_error(path, inner, "there is nothing of that name")
        if what == "array":
            name = names[-1] if names else make_array_name(path)
            info = tree.array(inner if names else None)
            return Members(path, inner, version, arrays={name: Member.of(info)})
        nodes = {
            one[0]: kind for one, kind in sorted(_list_nodes(tree, names).items()) if len(one) == 1
        }
        arrays = {
            name: _describe_member(tree, (*names, name))
            for name, kind in nodes.items()
            if kind == "array" and name not in drop
        }
        groups = tuple(name for name, kind in nodes.items() if kind == "group")
        # Omit NCZarr's internal attributes.
        attrs = {k: one for k, one in tree.attrs(names).items() if not k.lower().startswith("_nc")}
        identity = (f"{os.path.realpath(path)}::/{'/'.join(names)}", 0)
        return Members(path, inner, version, attrs, arrays, groups, identity=identity)

    def read_group_attrs(self, path: str, inner: str | None) -> Mapping[str, Any]:
        """Return the attributes of a group."""
        tree, names = _open_group(path, inner)
        return tree.attrs(names)

    def check_group_writable(self, path: str, inner: str | None) -> None:
        """Raise `UnsupportedError`."""
        self.refuse_writing(path)

    def set_group_attrs(
        self,
        path: str,
        inner: str | None,
        attrs: Mapping[str, Any],
        drop: Collection[str] | None,
    ) -> Mapping[str, Any]:
        """Raise `UnsupportedError`."""
        self.refuse_writing(path)

    def create_group(
        self, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
    ) -> None:
        """Raise `UnsupportedError`."""
        self.refuse_writing(path)


def _open_group(path: str, inner: str | None) -> tuple[ZipStore, Names]:
    tree, names = ZipStore(path), split_node(inner, path)
    if tree.kind(names) != "group":
        raise not_a_group_error(join_name(path, names))
    return tree, names


def _list_nodes(tree: ZipStore, names: Names) -> dict[Names, Kind]:
    """Return the nodes below a group, by their relative paths."""
    found: dict[Names, Kind] = {}
    for node in tree.below(names):
        below = node[len(names) :]
        for depth in range(1, len(below)):
            found.setdefault(below[:depth], "group")
        if below:
            found[below] = tree.kind(node) or "array"
    return found


def _describe_member(tree: ZipStore, names: Names) -> Member:
    """Return an array of a group, readable or not."""
    where = join_name(tree.path, names)
    try:
        return Member.of(tree.array("/" + "/".join(names)))
    except FormatError as error:
        return Member(where, (), None, {}, refused=error)
