"""
Arrays that grow for hours next to the nodes of a Zarr store, and get their place when complete.

Problem: an array of a store is a folder, which every library lists as soon as it has metadata. An
incomplete one looks like an array of zeros, and an array that it replaces would be lost from the
beginning.
Approach: it grows in a hidden folder of the store's root that has no metadata of its own and is named
after the path of the array; below it are the folders of that path, groups included. At the end the
first folder of the path that the store lacks is renamed, or the array changes places with an older one.
No library takes the hidden folder or its contents for a member of a group.
Invariants: the name of the hidden folder depends only on the path of the array, so another process
finds it after a kill. Nothing else is removed. Each step is durable before the next one.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence

from outcore import _core
from outcore.errors import StorageError
from outcore.formats import durable
from outcore.formats.zarr.tree import (
    check_replaceable,
    count_groups,
    find_node_folder,
    join_name,
    split_node,
)

_PARTIAL = ".outcore-partial"

IsGroup = Callable[[str], bool]


def find_staging_path(path: str, inner: str) -> str | None:
    """Return the path under which an array grows until it is complete; None for the root of the tree."""
    names = split_node(inner, path)
    if not names:
        return None
    return join_name(os.path.join(_make_shelter_path(path, names), names[0]), names[1:])


def _make_shelter_path(path: str, names: Sequence[str]) -> str:
    return durable.make_sibling_path(os.path.join(path, ".".join(names)), _PARTIAL, before=".")


def prepare(path: str, inner: str) -> None:
    """Create the empty hidden folder of an array, removing the rest of an earlier attempt."""
    discard(path, inner)
    shelter = _make_shelter_path(path, split_node(inner, path))
    with durable.os_errors("creating", join_name(path, split_node(inner, path))):
        os.mkdir(shelter)
        _core.fsync_folder(shelter)


def discard(path: str, inner: str) -> None:
    """Remove a staged array, if it exists."""
    names = split_node(inner, path)
    shelter = _make_shelter_path(path, names)
    if not names or not os.path.lexists(shelter):
        return
    with durable.os_errors("removing", shelter):
        shutil.rmtree(shelter)


def check_place(path: str, inner: str, is_group: IsGroup, exclusive: bool) -> None:
    """Raise what `take_place` would raise, hours earlier."""
    names = split_node(inner, path)
    depth = count_groups(path, names, is_group)
    if depth < len(names):
        return
    target = find_node_folder(path, names)
    if exclusive and os.path.lexists(target):
        raise StorageError(
            f"{join_name(path, names)!r} already exists; pass overwrite=True to replace it",
            code="already-exists",
            path=join_name(path, names),
            errno=errno.EEXIST,
        )
    check_replaceable(target)


def take_place(path: str, inner: str, is_group: IsGroup, exclusive: bool) -> Iterator[str]:
    """
    Move a complete array to its place, with the groups above it that are missing.

    Yields the folders of the nodes on its path, from the top, once the array is in place. After a kill
    it can be called again: steps that are done already are skipped.
    """
    names = split_node(inner, path)
    shelter = _make_shelter_path(path, names)
    if os.path.lexists(os.path.join(shelter, *names)):
        check_place(path, inner, is_group, exclusive)
        depth = count_groups(path, names, is_group)
        fresh, target = os.path.join(shelter, *names[:depth]), find_node_folder(path, names[:depth])
        with durable.os_errors("renaming to", join_name(path, names)):
            aside = os.path.join(shelter, f"{names[0]}.old")
            _core.move_into_place(fresh, target, aside, exclusive or depth < len(names))
    for level in range(1, len(names) + 1):
        yield find_node_folder(path, names[:level])
    discard(path, inner)
