"""
What a group holds, as values: the arrays directly in it, its groups, and the attributes of all.

Problem. Who opens a whole group needs more than names, also of arrays that outcore refuses. Idea. One
description for all formats; `outcore.formats.groups` makes it. Invariants. Of an array that is refused,
what is told is what the library of the format says, and why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from outcore.errors import FormatError, StorageError
from outcore.formats.layout import ArrayInfo

__all__ = ["Kind", "Member", "Members", "no_group", "stem"]

#: What a name leads to; None: nothing that can be opened.
Kind = Literal["array", "group"]


@dataclass(frozen=True, slots=True)
class Member:
    """
    An array of a group.

    Parameters
    ----------
    path
        What `outcore.open` would take.
    shape, dims
        As in `ArrayInfo`.
    attrs
        User attributes.
    fill
        The attribute ``_FillValue`` of HDF5 and NetCDF4: which value means "missing". None if there is
        none; the value of elements that were never written is another thing (`ArrayInfo.fill_value`).
    info
        Where its elements are; None if outcore cannot read it.
    refused
        Why not.
    dtype
        What the library of the format takes its elements for, where outcore cannot read them; None if
        nobody knows.
    """

    path: str
    shape: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    attrs: Mapping[str, Any]
    fill: Any = None
    info: ArrayInfo | None = None
    refused: FormatError | StorageError | None = None
    dtype: np.dtype[Any] | None = None

    @classmethod
    def of(cls, info: ArrayInfo) -> Member:
        """An array that can be read."""
        return cls(info.path, info.shape, info.dims, dict(info.attrs), info=info)


@dataclass(frozen=True, slots=True)
class Members:
    """
    A group.

    Parameters
    ----------
    file, inner
        The file or folder, and the path of the group in it (``"/"``: the root).
    format
        Name of the format, as `outcore.open` takes it.
    attrs
        Attributes of the group.
    arrays
        By name, in the order of the file.
    groups
        Names of the groups in it.
    unlimited
        Names of its dimensions that can grow; not of those that it has from groups above.
    identity
        Equal for the same group under two names: who goes down into groups ends a circle of links by it.
    """

    file: str
    inner: str
    format: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Member] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    unlimited: frozenset[str] = frozenset()
    identity: tuple[str, int] | None = None


def stem(path: str) -> str:
    """What the only array of a file is called."""
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0] or "data"


def no_group(path: str, inner: str, why: str) -> FormatError:
    """The error for a path that leads to no group."""
    return FormatError(
        f"{path!r} has no group {inner!r}: {why}; `outcore ls {path}` lists what there is",
        code="no-such-group",
        path=path,
    )
