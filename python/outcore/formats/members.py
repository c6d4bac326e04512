"""
Contents of a group, as values: the arrays directly in it, its groups, and all attributes.

Problem: a caller that opens a whole group needs more than names, also for arrays that outcore cannot
read.
Approach: one description for all formats, made by `outcore.formats.groups`.
Invariants: an array that outcore cannot read has the description of the format's library, and the
reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from outcore.errors import FormatError, StorageError
from outcore.formats.layout import ArrayInfo

__all__ = ["Kind", "Member", "Members", "make_array_name", "no_group_error"]

#: What a name leads to; None: nothing that can be opened.
Kind = Literal["array", "group"]


@dataclass(frozen=True, slots=True)
class Member:
    """
    An array of a group.

    `path` is a path for `outcore.open`; `shape` and `dims` are as in `ArrayInfo`. `fill` is the
    attribute ``_FillValue`` of HDF5 and NetCDF4, the value that means "missing", or None; elements that
    were never written may have another value (`ArrayInfo.fill_value`). `info` is None if outcore cannot
    read the array; then `refused` is the reason, and `dtype` the dtype according to the format's
    library, or None.
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
        """Return the member for an array that can be read."""
        return cls(info.path, info.shape, info.dims, dict(info.attrs), info=info)


@dataclass(frozen=True, slots=True)
class Members:
    """
    A group.

    `inner` is its path in `file` (``"/"``: the root). `arrays` and `groups` are those directly in it,
    in the order of the file. `unlimited` has the names of its own dimensions that can grow, without
    those of groups above. `identity` is equal for the same group under two names: a caller that walks
    into groups uses it to end a circle of links.
    """

    file: str
    inner: str
    format: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Member] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    unlimited: frozenset[str] = frozenset()
    identity: tuple[str, int] | None = None


def make_array_name(path: str) -> str:
    """Return the name of the only array of a file."""
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0] or "data"


def no_group_error(path: str, inner: str, why: str) -> FormatError:
    """Return the error for a path that is not a group."""
    return FormatError(
        f"{path!r} has no group {inner!r}: {why}; `outcore ls {path}` lists its contents",
        code="no-such-group",
        path=path,
    )
