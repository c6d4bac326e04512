"""
Links of HDF5 files that lead nowhere.

Problem. A soft link may name what is not there, or itself, and an external link a file that is gone. The
library fails on some of them with errors of other kinds than on others, and on none of them may the
other members of a group be lost from sight.
Idea. Who follows a link asks here (`follow`); who tells of a file lists those that lead nowhere, with
the reason (`broken`).
Invariants. If the disk fails, that is an error and no broken link. Hard links always lead somewhere:
what a damaged one says is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from outcore.formats.hdf5_create import final_name

__all__ = ["broken", "follow", "reason"]

# What the library says of links that lead to each other in a circle.
_CIRCLE = "too many links"


def follow(top: Any, name: str) -> Any:
    """What a name in a group leads to; None, if that is nothing."""
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
    links, raw = top.id.links, os.fsencode(name)
    try:
        kind = links.get_info(raw).type
    except (KeyError, OSError, RuntimeError):
        return None  # not even the group that would have it
    if kind not in (h5py.h5l.TYPE_SOFT, h5py.h5l.TYPE_EXTERNAL) or follow(top, name) is not None:
        return None
    value = links.get_val(raw)
    if kind == h5py.h5l.TYPE_SOFT:
        return f"a soft link to {os.fsdecode(value)!r}, where nothing is"
    file, inner = map(os.fsdecode, value)
    return f"an external link to {inner!r} in {file!r}, which is not there or cannot be opened"


def broken(h5py: Any, top: Any) -> Iterator[tuple[str, str]]:
    """Paths of all links below a group that lead nowhere, and why."""
    names: list[bytes] = []
    top.id.links.visit(names.append)
    for raw in names:
        name = os.fsdecode(raw)
        why = None if final_name(name) else reason(h5py, top, name)
        if why is not None:
            yield name, why
