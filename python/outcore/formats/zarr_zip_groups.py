"""
Groups of Zarr stores in zip files, of both versions, which are only read.

Problem. As for `zarr_groups`, without folders: a zip file has nothing but names of members.
Idea. The directory of the file is read once for each call; what it has of a group's nodes is told as of
folders. A group may have no document of its own: then the nodes below it tell that it is there.
Invariants. Nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from outcore.errors import FormatError
from outcore.formats.members import Kind, Member, Members, no_group, stem
from outcore.formats.zarr_tree import full_name, split_node
from outcore.formats.zarr_zip import Tree

_Names = tuple[str, ...]


def members(path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
    """Names and kinds, in the order of names; what cannot be read is taken for an array."""
    tree, names = _group(path, inner)
    nodes = _nodes(tree, names)
    return [("/".join(one), nodes[one]) for one in sorted(nodes) if deep or len(one) == 1]


def _group(path: str, inner: str | None) -> tuple[Tree, _Names]:
    tree, names = Tree(path), split_node(inner, path)
    if tree.kind(names) != "group":
        where = full_name(path, names)
        raise FormatError(
            f"{where!r} is no group; `outcore ls` lists what is there",
            code="not-a-group",
            path=where,
        )
    return tree, names


def _nodes(tree: Tree, names: _Names) -> dict[_Names, Kind]:
    """What is below a group, by its path from there."""
    found: dict[_Names, Kind] = {}
    for node in tree.below(names):
        below = node[len(names) :]
        for depth in range(1, len(below)):
            found.setdefault(below[:depth], "group")
        if below:
            found[below] = tree.kind(node) or "array"
    return found


def describe(path: str, inner: str, drop: Collection[str]) -> Members:
    """The group, and the arrays directly in it; or an array, as if it were alone in a group."""
    tree, names = Tree(path), split_node(inner, path)
    what, version = tree.kind(names), tree.version(names)
    if what is None:
        raise no_group(path, inner, "there is nothing of that name")
    if what == "array":
        name = names[-1] if names else stem(path)
        info = tree.array(inner if names else None)
        return Members(path, inner, version, arrays={name: Member.of(info)})
    nodes = {one[0]: kind for one, kind in sorted(_nodes(tree, names).items()) if len(one) == 1}
    arrays = {
        name: _described(tree, (*names, name))
        for name, kind in nodes.items()
        if kind == "array" and name not in drop
    }
    groups = tuple(name for name, kind in nodes.items() if kind == "group")
    # Without what NCZarr keeps there for itself.
    attrs = {k: one for k, one in tree.attrs(names).items() if not k.lower().startswith("_nc")}
    identity = (f"{os.path.realpath(path)}::/{'/'.join(names)}", 0)
    return Members(path, inner, version, attrs, arrays, groups, identity=identity)


def _described(tree: Tree, names: _Names) -> Member:
    """An array of a group, whether it can be read or not."""
    where = full_name(tree.path, names)
    try:
        return Member.of(tree.array("/" + "/".join(names)))
    except FormatError as error:
        return Member(where, (), None, {}, refused=error)


def attrs(path: str, inner: str | None) -> Mapping[str, Any]:
    """Its attributes."""
    tree, names = _group(path, inner)
    return tree.attrs(names)
