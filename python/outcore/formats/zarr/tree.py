"""
The tree of Zarr nodes: finding, listing and placing arrays and groups.

Problem. A path leads through folders that are groups of one version or the other, or no Zarr at all; a
new array may need the groups above it, and may stand where something else stands already.
Idea. Both versions of the format share this module; they differ in the names of the documents and in
who is a group, which they pass in.
Invariants. Only an array, an empty group or an empty folder is ever replaced. New groups appear together
with the array in them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from outcore.errors import FormatError, UsageError
from outcore.formats import durable
from outcore.formats.documents import Document, Stamp, read_document, stamp_of
from outcore.formats.zarr.store import publish, refuse_outside, write_document

_MARKS = ("zarr.json", ".zarray", ".zgroup")


class Node(NamedTuple):
    """
    An array or a group, as its own metadata or consolidated ones tell.

    `document` are the metadata of an array (of a group of version 2: empty), `told` the names of nodes
    in a group that its consolidated metadata know; they need not have folders.
    """

    is_array: bool
    document: Document
    attrs: Document
    told: frozenset[str]


def split_node(inner: str | None, path: str) -> tuple[str, ...]:
    """The names on the way from the root of the tree to a node."""
    names = tuple(name for name in (inner or "").split("/") if name)
    for name in names:
        if set(name) == {"."} or "\0" in name:
            raise UsageError(
                f"{path!r}: {inner!r} is not a path inside a Zarr group; names of only dots are "
                "not allowed",
                code="bad-node",
                path=path,
            )
    return names


def full_name(path: str, names: Sequence[str]) -> str:
    """What the user would pass to `outcore.open` for the node `names` of the tree at `path`."""
    return f"{path}::/{'/'.join(names)}" if names else path


def node_folder(path: str, names: Sequence[str]) -> str:
    """The folder of a node that is to be changed, symbolic links followed; none leads out of `path`."""
    folder = os.path.join(path, *names)
    if names:
        refuse_outside(path, folder)
    return os.path.realpath(folder)


def is_node(folder: str) -> bool:
    """Whether a folder is an array or a group, of either version."""
    return any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS)


def deepest_node(path: str, names: Sequence[str]) -> str:
    """How far the way to a node exists: a folder that shows what there is instead."""
    for name in names:
        below = os.path.join(path, name)
        if not is_node(below):
            break
        path = below
    return path


def group_folders(folder: str) -> Iterator[tuple[str, str]]:
    """
    Nodes above `folder`, innermost first, each with the path of `folder` relative to it.

    Folders that do not exist are passed over: only consolidated metadata may know them.
    """
    above, relative = os.path.realpath(folder), ""
    while True:
        above, name = os.path.split(above)
        if not name or (os.path.lexists(above) and not is_node(above)):
            return
        relative = f"{name}/{relative}" if relative else name
        if os.path.lexists(above):
            yield above, relative


def walk(
    folder: str,
    is_group: Callable[[str], bool | None],
    *,
    deep: bool = True,
    drop: Collection[str] = (),
) -> Iterator[tuple[tuple[str, ...], str]]:
    """
    The nodes below the group in `folder`, depth first, by name: (names, folder).

    `is_group` says True for a group, False for an array, None for any other folder. A group that has no
    folder, but is told of, has no folders below it. Folders that are reached twice through symbolic
    links are listed once. Not `deep`: only those in the group itself, by all names but those in `drop`.
    """
    seen: set[tuple[int, int]] = set()
    pending: list[tuple[tuple[str, ...], str]] = [((), folder)]
    while pending:
        names, place = pending.pop()
        there = bool(names) or os.path.isdir(place)
        if deep and there:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
        below = is_group(place)
        if names and below is not None:
            yield names, place
        if below and there and (deep or not names):
            with os.scandir(place) as entries:
                found = sorted((e.name for e in entries if _leads_to_folder(e)), reverse=True)
            pending += [
                ((*names, name), os.path.join(place, name))
                for name in found
                if deep or name not in drop
            ]


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        # A link to itself leads nowhere, as one to what is not there.
        if error.errno == errno.ELOOP:
            return False
        raise


def missing_node(path: str, names: Sequence[str], arrays: Sequence[str]) -> FormatError:
    """The error for a path that leads to no array; it names the arrays there are."""
    shown = ", ".join(repr(name) for name in arrays[:10]) or "none"
    more = f" and {len(arrays) - 10} more" if len(arrays) > 10 else ""
    there = full_name(path, names)
    example = f"; name one as '{os.path.basename(path)}::/name'" if arrays else ""
    return FormatError(
        f"{there!r} is not a Zarr array; arrays here: {shown}{more}{example}",
        code="not-an-array",
        path=there,
    )


class Placed(NamedTuple):
    """A new array: folder and documents of each new node, from the top; what the array is known by."""

    nodes: list[tuple[str, Mapping[str, Document]]]
    folder: tuple[int, int]
    document: Stamp


def place(
    path: str,
    names: Sequence[str],
    array: Mapping[str, Document],
    group: Mapping[str, Document],
    is_group: Callable[[str], bool],
    exclusive: bool,
) -> Placed:
    """
    Put a new array into the tree, with the groups above it that are missing.

    Parameters
    ----------
    path, names
        The root, and the way from it to the array.
    array, group
        Documents of the array and of a new group: file name to content. The array's first is what it is
        known by.
    is_group
        Whether a folder is a group of the same version of the format.
    exclusive
        Refuse to replace anything.

    Returns
    -------
    Placed
    """
    target = node_folder(path, names)
    depth = depth_of_groups(path, names, is_group)
    if depth == len(names) and not exclusive:  # otherwise `publish` says what is to be said
        check_replaceable(target)

    def build(folder: str) -> None:
        os.makedirs(os.path.join(folder, *names[depth:]), exist_ok=True)
        for level in range(depth, len(names)):
            _write_all(os.path.join(folder, *names[depth:level]), group)
        deepest = os.path.join(folder, *names[depth:])
        _write_all(deepest, array)
        # They keep these when the folder above gets its name.
        found = os.stat(deepest)
        made.append((found.st_dev, found.st_ino))
        seen.append(stamp_of(os.stat(os.path.join(deepest, next(iter(array))))))

    made: list[tuple[int, int]] = []
    seen: list[Stamp] = []
    first = node_folder(path, names[:depth])
    publish(first, build, exclusive=exclusive or depth < len(names))
    above = [node_folder(path, names[:level]) for level in range(depth, len(names))]
    nodes = [*((folder, group) for folder in above), (target, array)]
    return Placed(nodes, made[-1], seen[-1])


def _write_all(folder: str, documents: Mapping[str, Document]) -> None:
    for name, document in documents.items():
        write_document(os.path.join(folder, name), document)


def depth_of_groups(path: str, names: Sequence[str], is_group: Callable[[str], bool]) -> int:
    """How many of the nodes from the root downward to the array exist already as groups."""
    for depth in range(len(names)):
        folder = node_folder(path, names[:depth])
        if is_group(folder):
            continue
        if not os.path.lexists(folder):
            return depth
        if os.path.isdir(folder) and not os.listdir(folder):
            with durable.os_errors("creating", folder):
                os.rmdir(folder)
            return depth
        raise UsageError(
            f"{full_name(path, names)!r}: {folder!r} exists and is not a Zarr group of the same "
            "version; choose another place",
            code="not-a-group",
            path=folder,
        )
    return len(names)


def check_only_nodes(target: str) -> None:
    """A store is replaced, with all that is in it, only if all that is Zarr's; an array always."""
    if _is_array(target):
        return
    with durable.os_errors("replacing", target), os.scandir(target) as entries:
        others = [
            e.name
            for e in entries
            if not e.name.startswith(".z")
            and e.name != "zarr.json"
            and not durable.is_begun(e.name)
            and not is_node(e.path)
        ]
    if others:
        raise UsageError(
            f"{target!r} holds {others[0]!r}, which is no part of a Zarr store, and is not replaced; "
            "move it away, or choose another name",
            code="not-a-group",
            path=target,
        )


def check_replaceable(target: str) -> None:
    """Only an array, an empty group or an empty folder may be replaced by an array."""
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise UsageError(
            f"{target!r} is a file, not a Zarr array; remove it first, or choose another name",
            code="not-an-array",
            path=target,
        )
    with durable.os_errors("replacing", target):
        content = os.listdir(target)
    if not _is_array(target) and not set(content) <= {
        "zarr.json",
        ".zgroup",
        ".zattrs",
        ".zmetadata",
    }:
        raise UsageError(
            f"{target!r} is a folder with other things in it, not a Zarr array; remove it first, or "
            f"name an array inside the group ({target}::/name)",
            code="not-an-array",
            path=target,
        )


def _is_array(folder: str) -> bool:
    document = read_document(os.path.join(folder, "zarr.json"))
    return os.path.lexists(os.path.join(folder, ".zarray")) or (
        document is not None and document.get("node_type") == "array"
    )
