"""
Groups: their contents, their attributes, and new groups.

Problem: a file of HDF5 or NetCDF4, and a store of Zarr, hold many arrays in groups with their own
attributes. Listing a thousand of them must not read a thousand headers.
Approach: as for arrays, a format with groups (`HasGroups`) does the work. A group is listed by the
names and kinds of its members alone (`list_members`). A caller that opens all of it (xarray) needs
shapes, dimensions and attributes of all its arrays, including those that outcore cannot read: `describe`
returns them from one visit of the file.
Invariants: as in `outcore.formats`, errors about the file are `FormatError`, about the system
`StorageError`, about the call `UsageError`. Only metadata are read, and nothing below the groups of a
group unless requested. A new group exists completely or not at all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outcore import formats
from outcore.errors import FormatError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.format import HasGroups
from outcore.formats.layout import ArrayInfo
from outcore.formats.members import Kind, Member, Members, make_array_name, no_group_error
from outcore.formats.paths import one_name
from outcore.formats.registry import find_by_name, list_formats

__all__ = [
    "GroupInfo",
    "Kind",
    "can_hold",
    "complete",
    "create",
    "describe",
    "describe_group",
    "expect",
    "is_empty",
    "list_aliases",
    "list_broken_links",
    "list_members",
    "set_attrs",
]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """
    The metadata of one group, as read by its format.

    Parameters
    ----------
    path
        Path for `outcore.open_group`.
    format
        Name of the format.
    attrs
        Its user attributes; some formats read them on first use.
    """

    path: str
    format: str
    attrs: Mapping[str, Any]


def can_hold(format: str) -> bool:
    """Return whether files of a format hold groups."""
    return isinstance(find_by_name(format).load(), HasGroups)


def _find_with_groups(name: str, path: str) -> HasGroups:
    found = find_by_name(name).load()
    if not isinstance(found, HasGroups):
        able = [one.name for one in list_formats() if isinstance(one.load(), HasGroups)]
        raise UnsupportedError(
            f"{path!r}: files of the format {name} hold one array and no groups; open it with "
            f"outcore.open(), or pass a file of the format {', '.join(able)}",
            code="not-a-group",
            path=path,
        )
    return found


def _locate(path: Any, format: str | None) -> tuple[str, str | None, str]:
    """Return the file, the path inside it, and its format."""
    outer, inner = formats.split_path(one_name(path))
    return outer, inner if inner != "/" else None, formats.find_format_name(outer, format)


def find_kind(path: str | os.PathLike[str], format: str | None = None) -> Kind | None:
    """
    Return the kind of the object at a path; None if the file has no such name.

    `StorageError`, `FormatError`: the file does not exist or is damaged.
    """
    outer, inner, name = _locate(path, format)
    if not can_hold(name):
        return "array" if inner is None else None
    return _find_with_groups(name, outer).find_kind(outer, inner)


def describe_group(
    path: str | os.PathLike[str], *, writable: bool = False, format: str | None = None
) -> GroupInfo:
    """
    Read the metadata of a group.

    `FormatError` ``not-a-group``: there is no group of that name. `StorageError`: the file does not
    exist, or cannot be written.
    """
    outer, inner, name = _locate(path, format)
    found, text = _find_with_groups(name, outer), one_name(path)
    kind = found.find_kind(outer, inner)
    if kind != "group":
        what = (
            "is an array, not a group; open it with outcore.open()"
            if kind
            else "is not a group; outcore.ls() lists the contents of the file"
        )
        raise FormatError(f"{text!r} {what}", code="not-a-group", path=text)
    if writable:
        found.check_group_writable(outer, inner)
    return GroupInfo(text, name, found.read_group_attrs(outer, inner))


def list_members(
    path: str | os.PathLike[str], *, format: str | None = None, deep: bool = False
) -> list[tuple[str, Kind]]:
    """
    Return names and kinds of the members of a group, in the order of names; no array is opened.

    `deep`: include the members of all groups below, each object once. Names are then paths, and a group
    comes before its members.
    """
    outer, inner, name = _locate(path, format)
    return _find_with_groups(name, outer).list_members(outer, inner, deep)


def list_broken_links(
    path: str | os.PathLike[str], *, format: str | None = None
) -> list[tuple[str, OutcoreError]]:
    """
    Return the broken links below a group (HDF5), each with the reason.

    They are not members (`list_members`); `outcore.formats.ls` lists them too.
    """
    outer, inner, name = _locate(path, format)
    return _find_with_groups(name, outer).list_broken_links(outer, inner)


def list_aliases(
    path: str | os.PathLike[str], *, format: str | None = None
) -> list[tuple[str, str]]:
    """
    Return further names below a group that `list_members` omits in depth, with the kind of link of each.

    These are soft and external links of HDF5, and further names of an object that has one.
    """
    outer, inner, name = _locate(path, format)
    return _find_with_groups(name, outer).list_aliases(outer, inner)


def describe(
    path: str | os.PathLike[str],
    group: str | None = None,
    *,
    format: str | None = None,
    drop: Collection[str] = (),
) -> Members:
    """
    Describe a group and the arrays directly in it, in the order of the file.

    `path` may contain the path of a group, ``file.h5::/group``, and `group` is a path below it. A file
    of one array is a group with that array. Arrays in `drop` are not read. `FormatError`
    ``no-such-group``: there is no such group; other errors as for `outcore.open`.

    >>> import outcore
    >>> outcore.create("run.h5::/wind/u", (3, 4), "f4", attrs={"units": "m/s"}).close()
    >>> found = describe("run.h5", "wind")
    >>> list(found.arrays), found.arrays["u"].shape, dict(found.arrays["u"].attrs)
    (['u'], (3, 4), {'units': 'm/s'})
    """
    if not isinstance(group, str | None):
        raise UsageError(
            f"group={group!r} is not text; pass a path such as '/a/b'", code="bad-name"
        )
    outer, inner = formats.split_path(one_name(path))
    where = "/" + "/".join(p for text in (inner, group) for p in (text or "").split("/") if p)
    kind = formats.find_format(outer, format)
    if isinstance(kind, HasGroups):
        return kind.describe_group(outer, where, drop)
    if where != "/":
        raise no_group_error(outer, where, f"{kind.name} files hold one array and no groups")
    info = kind.describe(outer, None, False)
    return Members(outer, "/", kind.name, arrays={make_array_name(outer): Member.of(info)})


def create(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> GroupInfo:
    """
    Create a group, with the file and the groups above it that are missing.

    Without `format`, it is that of an existing file, or that of the suffix. `replace`: replace the file
    or store with all its contents. `StorageError` ``already-exists``: something has that name.
    `UsageError`: an array has the name of a group above, or a group inside a file would be replaced.
    """
    text = one_name(path)
    outer, inner = formats.split_path(text)
    inner = inner if inner != "/" else None
    durable.check_not_special(outer)
    there = os.path.lexists(outer)
    if replace and inner is not None and there:
        raise UsageError(
            f"{text!r}: a group inside a file cannot be replaced; add to it with mode 'r+' or 'a', or "
            "replace the whole file",
            code="bad-mode",
            path=text,
        )
    if there and not replace:
        name = formats.find_format_name(outer, format) if not is_empty(outer) else None
    else:
        name = None
    name = name or formats.choose_format_name(outer, format)
    found = _find_with_groups(name, outer)
    if there and not replace and not is_empty(outer) and found.find_kind(outer, inner):
        raise StorageError(
            f"{text!r} already exists; open it with mode 'r+', or choose another name",
            code="already-exists",
            path=text,
            errno=errno.EEXIST,
        )
    found.create_group(outer, inner, dict(attrs or {}), replace)
    return GroupInfo(text, name, found.read_group_attrs(outer, inner))


def expect(path: str, format: str, arrays: Sequence[tuple[str, ArrayInfo]]) -> None:
    """Prepare a new file for arrays that will be created one by one; see `HasGroups.expect`."""
    _find_with_groups(format, path).expect(path, arrays)


def complete(path: str, format: str) -> None:
    """Complete a new file after all its arrays were created."""
    _find_with_groups(format, path).complete(path)


def is_empty(path: str) -> bool:
    """Return whether a path is an empty folder, which a new store may replace."""
    if not os.path.isdir(path):
        return False
    with durable.os_errors("listing", path), os.scandir(path) as entries:
        return next(iter(entries), None) is None


def set_attrs(
    found: GroupInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
) -> GroupInfo:
    """Set user attributes of a group on disk, in one step; see `outcore.formats.set_attrs`."""
    outer, inner, _ = _locate(found.path, found.format)
    kind = _find_with_groups(found.format, outer)
    changed = kind.set_group_attrs(outer, inner, dict(attrs), drop)
    return replace(found, attrs=changed)
