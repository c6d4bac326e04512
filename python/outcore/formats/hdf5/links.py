"""
Broken links of HDF5 files.

Problem: a soft link may name a missing object, or itself, and an external link a file that was
removed. The library raises different errors for them, and none of them may hide the other members of a
group.
Approach: `follow` follows a link, `find_broken` lists broken links with the reason, and `find_aliases`
lists further names, for a copy that contains each object once. A link to a pipe or a device
counts as broken (`elsewhere`).
Invariants: a failing disk is an error, not a broken link. Hard links are never broken: a damaged one
is an error.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import Any

from outcore.formats.hdf5.create import to_final_name
from outcore.formats.hdf5.elsewhere import find_special
from outcore.formats.hdf5.library import h5py

__all__ = ["explain_broken", "find_aliases", "find_broken", "follow"]

# Part of the library's error for links in a circle.
_CIRCLE = "too many links"


def follow(top: Any, name: str) -> Any:
    """Return the object with a name in a group; None if it is missing, or in a pipe or a device."""
    if find_special(top, name) is not None:
        return None
    try:
        return top[name]
    except (KeyError, OSError, RuntimeError) as error:
        # The library raises the same error if the disk fails, with the number in its text.
        if isinstance(error, KeyError) and "errno = " in str(error):
            raise
        if isinstance(error, RuntimeError) and _CIRCLE not in str(error):
            raise
        return None


def explain_broken(top: Any, name: str) -> str | None:
    """Return why the link with a name is broken; None if it is not, or there is none."""
    link = _describe_link(top, name)
    return "".join(link) if link is not None and follow(top, name) is None else None


def _describe_link(top: Any, name: str) -> tuple[str, str] | None:
    """Return the target of a soft or external link, and the problem if it is missing; else None."""
    links, raw = top.id.links, os.fsencode(name)
    try:
        kind = links.get_info(raw).type
    except (KeyError, OSError, RuntimeError):
        return None  # the group above it is missing, too
    if kind == h5py.h5l.TYPE_SOFT:
        return f"a soft link to {os.fsdecode(links.get_val(raw))!r}", ", which does not exist"
    if kind == h5py.h5l.TYPE_EXTERNAL:
        file, inner = map(os.fsdecode, links.get_val(raw))
        wrong = ", which does not exist or cannot be opened"
        if special := find_special(top, name):
            wrong = f", which leads to {special!r}: a pipe, a device or a socket"
        return f"an external link to {inner!r} in {file!r}", wrong
    return None


def find_broken(top: Any) -> Iterator[tuple[str, str]]:
    """Yield paths of all broken links below a group, and why."""
    for name in _list_names(top):
        why = explain_broken(top, name)
        if why is not None:
            yield name, why


def find_aliases(top: Any, known: Container[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield paths below a group that are not in `known`, with the kind of link and the object."""
    for name in _list_names(top):
        item = None if name in known else follow(top, name)
        if item is not None:
            link = _describe_link(top, name)
            yield name, "another name of the same object" if link is None else link[0], item


def _list_names(top: Any) -> Iterator[str]:
    """Return paths of all links below a group, except for datasets that are being filled."""
    names: list[bytes] = []
    top.id.links.visit(names.append)
    return (name for name in map(os.fsdecode, names) if not to_final_name(name))
