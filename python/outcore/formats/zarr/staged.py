"""
Arrays that grow for hours beside the nodes of a Zarr store, and take their place when they are whole.

Problem. An array of a store is a folder, which every library lists as soon as it has metadata: half
made, it looks like an array of zeros, and what it replaces would be gone from the beginning.
Idea. It grows in a hidden folder of the store's root that has no metadata of its own and is named
after the way to the array; below it that way begins, groups included. At the end the first folder on
the way that the store lacks is renamed, or the array changes places with an older one. No library
takes the hidden folder, or what is in it, for a member of a group.
Invariants. The name of the hidden folder follows from the way to the array alone: whoever looks for
what a killed process left finds it. Nothing else is removed. All is durable in the order in which it
is done.
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
    depth_of_groups,
    full_name,
    node_folder,
    split_node,
)

_PARTIAL = ".outcore-partial"

IsGroup = Callable[[str], bool]


def staged(path: str, inner: str) -> str | None:
    """Where an array grows that gets its place when it is whole; None for the root of the tree."""
    names = split_node(inner, path)
    if not names:
        return None
    return full_name(os.path.join(_shelter(path, names), names[0]), names[1:])


def _shelter(path: str, names: Sequence[str]) -> str:
    return durable.neighbour(os.path.join(path, ".".join(names)), _PARTIAL, before=".")


def prepare(path: str, inner: str) -> None:
    """Make what `staged` names ready to be created: nothing is left of an earlier attempt."""
    discard(path, inner)
    shelter = _shelter(path, split_node(inner, path))
    with durable.os_errors("creating", full_name(path, split_node(inner, path))):
        os.mkdir(shelter)
        _core.fsync_folder(shelter)


def discard(path: str, inner: str) -> None:
    """Remove what was made at `staged`, if it is there."""
    names = split_node(inner, path)
    shelter = _shelter(path, names)
    if not names or not os.path.lexists(shelter):
        return
    with durable.os_errors("removing", shelter):
        shutil.rmtree(shelter)


def check_place(path: str, inner: str, is_group: IsGroup, exclusive: bool) -> None:
    """Refuse what `take_place` would refuse, hours before."""
    names = split_node(inner, path)
    depth = depth_of_groups(path, names, is_group)
    if depth < len(names):
        return
    target = node_folder(path, names)
    if exclusive and os.path.lexists(target):
        raise StorageError(
            f"{full_name(path, names)!r} exists already; pass overwrite=True to replace it",
            code="already-exists",
            path=full_name(path, names),
            errno=errno.EEXIST,
        )
    check_replaceable(target)


def take_place(path: str, inner: str, is_group: IsGroup, exclusive: bool) -> Iterator[str]:
    """
    Move a whole array to its place, with the groups above it that are missing.

    Whoever was killed in the midst calls it again: what is done already is passed over.

    Yields
    ------
    str
        Folders of the nodes on the way to it, from the top, once the array is there.
    """
    names = split_node(inner, path)
    shelter = _shelter(path, names)
    if os.path.lexists(os.path.join(shelter, *names)):
        check_place(path, inner, is_group, exclusive)
        depth = depth_of_groups(path, names, is_group)
        fresh, target = os.path.join(shelter, *names[:depth]), node_folder(path, names[:depth])
        with durable.os_errors("renaming to", full_name(path, names)):
            aside = os.path.join(shelter, f"{names[0]}.old")
            _core.move_into_place(fresh, target, aside, exclusive or depth < len(names))
    for level in range(1, len(names) + 1):
        yield node_folder(path, names[:level])
    discard(path, inner)
