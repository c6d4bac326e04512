"""
The tree of Zarr nodes: finding, listing and placing arrays and groups.

Problem: a path leads through folders that are groups of one version or the other, or not Zarr at all; a
new array may need the groups above it, and may be created where something else exists.
Approach: both versions of the format share this module; they differ in the names of the documents and
in the test for a group, which they pass in.
Invariants: only an array, an empty group or an empty folder is ever replaced. New groups appear
together with the array in them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from outcore.errors import FormatError, UsageError
from outcore.formats import durable
from outcore.formats.documents import Document, Stamp, make_stamp, read_document
from outcore.formats.zarr.store import publish, refuse_outside, write_document

_MARKS = ("zarr.json", ".zarray", ".zgroup")


class NodeDocument(NamedTuple):
    """A document of a node, the file that holds it, and the state of that file, if known."""

    document: Document
    file: str
    stamp: Stamp | None


class ZarrNode(NamedTuple):
    """
    An array or a group, according to its own metadata or to consolidated metadata.

    `document` has the metadata of an array (of a group of version 2: empty); `told` has the names of
    nodes in a group that only its consolidated metadata list; they need not have folders.
    """

    is_array: bool
    document: Document
    attrs: Document
    told: frozenset[str]


def split_node(inner: str | None, path: str) -> tuple[str, ...]:
    """Return the names on the way from the root of the tree to a node."""
    names = tuple(name for name in (inner or "").split("/") if name)
    for name in names:
        if set(name) == {"."} or "\0" in name:
            raise UsageError(
                f"{path!r}: {inner!r} is not a path inside a Zarr group; use names that do not only "
                "consist of dots",
                code="bad-node",
                path=path,
            )
    return names


def join_name(path: str, names: Sequence[str]) -> str:
    """Return the path that a user passes to `outcore.open` for a node of the tree at `path`."""
    return f"{path}::/{'/'.join(names)}" if names else path


def find_node_folder(path: str, names: Sequence[str]) -> str:
    """
    Return the folder of a node that will be changed, symbolic links followed; raise if it is not in
    `path`.
    """
    folder = os.path.join(path, *names)
    if names:
        refuse_outside(path, folder)
    return os.path.realpath(folder)


def is_node(folder: str) -> bool:
    """Return whether a folder is an array or a group, of either version."""
    return any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS)


def find_deepest_node(path: str, names: Sequence[str]) -> str:
    """Return the deepest existing folder on the way to a node, for messages."""
    for name in names:
        below = os.path.join(path, name)
        if not is_node(below):
            break
        path = below
    return path


def find_groups_above(folder: str) -> Iterator[tuple[str, str]]:
    """
    Yield the nodes above `folder`, innermost first, each with the path of `folder` relative to it.

    Folders that do not exist are skipped: only consolidated metadata may list them.
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
    Yield the nodes below the group in `folder` as (names, folder), depth first, in the order of names.

    `is_group` returns True for a group, False for an array, None for any other folder. A group that
    only exists in consolidated metadata has no folders below it. Folders that are reached twice through
    symbolic links are listed once. Not `deep`: only those directly in the group, except names in
    `drop`.
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
        # A link to itself is broken, like a link to a missing file.
        if error.errno == errno.ELOOP:
            return False
        raise


def missing_node_error(path: str, names: Sequence[str], arrays: Sequence[str]) -> FormatError:
    """Return the error for a path that is not an array; it lists the existing arrays."""
    shown = ", ".join(repr(name) for name in arrays[:10]) or "none"
    more = f" and {len(arrays) - 10} more" if len(arrays) > 10 else ""
    there = join_name(path, names)
    example = f"; name one as '{os.path.basename(path)}::/name'" if arrays else ""
    return FormatError(
        f"{there!r} is not a Zarr array; arrays here: {shown}{more}{example}",
        code="not-an-array",
        path=there,
    )


def not_a_group_error(name: str) -> FormatError:
    """Return the error for a path that is not a group."""
    return FormatError(
        f"{name!r} is not a group; `outcore ls` lists the contents", code="not-a-group", path=name
    )


class NewArray(NamedTuple):
    """A new array: folder and documents of each new node, from the top; its folder and state."""

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
) -> NewArray:
    """
    Create an array in the tree, with the groups above it that are missing.

    `array` and `group` are the documents of the array and of a new group, file name to content; the
    first of `array` identifies it. `is_group` returns whether a folder is a group of the same version.
    `exclusive`: raise if something exists.
    """
    target = find_node_folder(path, names)
    depth = count_groups(path, names, is_group)
    if depth == len(names) and not exclusive:  # otherwise `publish` raises
        check_replaceable(target)

    def build(folder: str) -> None:
        os.makedirs(os.path.join(folder, *names[depth:]), exist_ok=True)
        for level in range(depth, len(names)):
            _write_all(os.path.join(folder, *names[depth:level]), group)
        deepest = os.path.join(folder, *names[depth:])
        _write_all(deepest, array)
        # These stay the same when the folder above gets its name.
        found = os.stat(deepest)
        made.append((found.st_dev, found.st_ino))
        seen.append(make_stamp(os.stat(os.path.join(deepest, next(iter(array))))))

    made: list[tuple[int, int]] = []
    seen: list[Stamp] = []
    first = find_node_folder(path, names[:depth])
    publish(first, build, exclusive=exclusive or depth < len(names))
    above = [find_node_folder(path, names[:level]) for level in range(depth, len(names))]
    nodes = [*((folder, group) for folder in above), (target, array)]
    return NewArray(nodes, made[-1], seen[-1])


def _write_all(folder: str, documents: Mapping[str, Document]) -> None:
    for name, document in documents.items():
        write_document(os.path.join(folder, name), document)


def count_groups(path: str, names: Sequence[str], is_group: Callable[[str], bool]) -> int:
    """Return how many of the nodes from the root down to the array already exist as groups."""
    for depth in range(len(names)):
        folder = find_node_folder(path, names[:depth])
        if is_group(folder):
            continue
        if not os.path.lexists(folder):
            return depth
        if os.path.isdir(folder) and not os.listdir(folder):
            with durable.os_errors("creating", folder):
                os.rmdir(folder)
            return depth
        raise UsageError(
            f"{join_name(path, names)!r}: {folder!r} exists and is not a Zarr group of the same "
            "version; choose another place",
            code="not-a-group",
            path=folder,
        )
    return len(names)


def check_only_nodes(target: str) -> None:
    """Raise if a store that will be replaced holds anything but Zarr nodes; an array may be replaced."""
    if _is_array(target):
        return
    with durable.os_errors("replacing", target), os.scandir(target) as entries:
        others = [
            e.name
            for e in entries
            if not e.name.startswith(".z")
            and e.name != "zarr.json"
            and not durable.is_temporary_name(e.name)
            and not is_node(e.path)
        ]
    if others:
        raise UsageError(
            f"{target!r} cannot be replaced, because it holds {others[0]!r}, which is not part of a "
            "Zarr store; move it away, or choose another name",
            code="not-a-group",
            path=target,
        )


def check_replaceable(target: str) -> None:
    """Raise unless the folder is an array, an empty group or empty, and may be replaced by an array."""
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
            f"{target!r} is a folder with other contents, not a Zarr array; remove it first, or pass an "
            f"array inside the group ({target}::/name)",
            code="not-an-array",
            path=target,
        )


def _is_array(folder: str) -> bool:
    document = read_document(os.path.join(folder, "zarr.json"))
    return os.path.lexists(os.path.join(folder, ".zarray")) or (
        document is not None and document.get("node_type") == "array"
    )
