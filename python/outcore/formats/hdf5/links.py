"""
Links of HDF5 files that lead nowhere.

Problem. A soft link may name what is not there, or itself, and an external link a file that is gone. The
library fails on some of them with errors of other kinds than on others, and on none of them may the
other members of a group be lost from sight.
Idea. Who follows a link asks here (`follow`); who tells of a file lists those that lead nowhere, with
the reason (`broken`); who copies each object once lists the names that it does not copy (`aliases`).
What leads to a pipe or a device leads nowhere (`hdf5_elsewhere`).
Invariants. If the disk fails, that is an error and no broken link. Hard links always lead somewhere:
what a damaged one says is an error.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import Any

from outcore.formats.hdf5 import access as access
from outcore.formats.hdf5.create import final_name
from outcore.formats.hdf5.elsewhere import find_special

__all__ = ["aliases", "broken", "follow", "reason"]

# What the library says of links that lead to each other in a circle.
_CIRCLE = "too many links"


def follow(top: Any, name: str) -> Any:
    """What a name in a group leads to; None, if that is nothing, or in a pipe or a device."""
    if find_special(access.library(""), top, name) is not None:
        return None
    try:
        return top[name]
    except (KeyError, OSError, RuntimeError) as error:
        # So says the library too if the disk fails, and then tells the number.
        if isinstance(error, KeyError) and "errno = " in str(error):
            raise
        if isinstance(error, RuntimeError) and _CIRCLE not in str(error):
            raise
        return None


def reason(h5py: Any, top: Any, name: str) -> str | None:
    """Why a link of that name leads nowhere; None if it leads somewhere, or there is none."""
    link = _link(h5py, top, name)
    return "".join(link) if link is not None and follow(top, name) is None else None


def _link(h5py: Any, top: Any, name: str) -> tuple[str, str] | None:
    """What a soft or external link names, and what is wrong if that is nothing; None of others."""
    links, raw = top.id.links, os.fsencode(name)
    try:
        kind = links.get_info(raw).type
    except (KeyError, OSError, RuntimeError):
        return None  # not even the group that would have it
    if kind == h5py.h5l.TYPE_SOFT:
        return f"a soft link to {os.fsdecode(links.get_val(raw))!r}", ", where nothing is"
    if kind == h5py.h5l.TYPE_EXTERNAL:
        file, inner = map(os.fsdecode, links.get_val(raw))
        wrong = ", which is not there or cannot be opened"
        if special := find_special(h5py, top, name):
            wrong = f", which leads to {special!r}: a pipe, a device or a socket"
        return f"an external link to {inner!r} in {file!r}", wrong
    return None


def broken(h5py: Any, top: Any) -> Iterator[tuple[str, str]]:
    """Paths of all links below a group that lead nowhere, and why."""
    for name in _names(top):
        why = reason(h5py, top, name)
        if why is not None:
            yield name, why


def aliases(h5py: Any, top: Any, known: Container[str]) -> Iterator[tuple[str, str, Any]]:
    """Paths below a group that are not known and lead somewhere: what link it is, and the object."""
    for name in _names(top):
        item = None if name in known else follow(top, name)
        if item is not None:
            link = _link(h5py, top, name)
            yield name, "another name of the same object" if link is None else link[0], item


def _names(top: Any) -> Iterator[str]:
    """Paths of all links below a group, but of what is being filled under a name of its own."""
    names: list[bytes] = []
    top.id.links.visit(names.append)
    return (name for name in map(os.fsdecode, names) if not final_name(name))
