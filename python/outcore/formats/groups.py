"""
Groups: what is in them, their attributes, and new ones.

Problem. A file of HDF5 or NetCDF4, and a store of Zarr, hold many arrays, in groups that have attributes
of their own; who lists a thousand of them does not want to wait for a thousand headers.
Idea. As for arrays: the module of a format says how, this one chooses it. A group is listed by the names
and kinds of its members alone (`members`). Who opens all of it at once (xarray) needs shapes, dimensions
and attributes of all arrays in it, also of those that outcore cannot read: `describe` tells them, by the
same walk through the group and in one visit of the file.
Invariants. As in `outcore.formats`: what is wrong with the file is a `FormatError`, with the system a
`StorageError`, with the call a `UsageError`. Only metadata are read, and nothing below the groups of a
group unless it is asked for. A new group is there whole, or not at all.

A module of groups has ``kind(format, path, inner)``, ``members(format, path, inner, deep)``,
``describe(format, path, inner, drop)``, ``attrs(format, path, inner)``, ``check_writable(format, path,
inner)``, ``set_attrs(format, path, inner, attrs, drop)`` and ``create(format, path, inner, attrs,
replace)``.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outcore import formats
from outcore.errors import FormatError, OutcoreError, StorageError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.members import Kind, Member, Members, no_group, stem
from outcore.formats.paths import one_name

__all__ = [
    "GroupInfo",
    "Kind",
    "aliases",
    "broken",
    "can_hold",
    "complete",
    "create",
    "describe",
    "info",
    "is_empty",
    "kind_of",
    "members",
    "set_attrs",
]

# Formats whose files hold groups, and the modules that know these.
_MODULES = {
    "hdf5": "hdf5_groups",
    "netcdf4": "hdf5_groups",
    "zarr": "zarr_groups",
    "zarr2": "zarr_groups",
    "zarrzip": "zarr_zip_groups",
}


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """
    What a format knows about one group.

    Parameters
    ----------
    path
        What `outcore.open_group` takes to open it.
    format
        Name of the format.
    attrs
        Its user attributes; some formats read them when they are first asked for.
    """

    path: str
    format: str
    attrs: Mapping[str, Any]


def can_hold(format: str) -> bool:
    """Whether files of a format hold groups."""
    return format in _MODULES


def _module(format: str, path: str) -> Any:
    name = _MODULES.get(format)
    if name is None:
        raise UnsupportedError(
            f"{path!r}: files of the format {format} hold one array and no groups; open it with "
            f"outcore.open(), or name a file of {', '.join(_MODULES)}",
            code="not-a-group",
            path=path,
        )
    return importlib.import_module(f"outcore.formats.{name}")


def _found(path: Any, format: str | None) -> tuple[str, str | None, str]:
    """The file, the path inside it, and its format."""
    outer, inner = formats.split_path(one_name(path))
    return outer, inner if inner != "/" else None, formats.format_of(outer, format)


def kind_of(path: str | os.PathLike[str], format: str | None = None) -> Kind | None:
    """
    What a path leads to; None if there is nothing inside the file by that name.

    Raises
    ------
    StorageError, FormatError
        There is no such file, or it is damaged.
    """
    outer, inner, name = _found(path, format)
    if name not in _MODULES:
        return "array" if inner is None else None
    found: Kind | None = _module(name, outer).kind(name, outer, inner)
    return found


def info(
    path: str | os.PathLike[str], *, writable: bool = False, format: str | None = None
) -> GroupInfo:
    """
    Look at a group.

    Raises
    ------
    FormatError
        ``not-a-group``: there is none by that name.
    StorageError
        There is no such file, or it cannot be written.
    """
    outer, inner, name = _found(path, format)
    module, text = _module(name, outer), one_name(path)
    kind = module.kind(name, outer, inner)
    if kind != "group":
        what = (
            "is an array; open it with outcore.open()" if kind else "is no group; see outcore.ls()"
        )
        raise FormatError(f"{text!r} {what}", code="not-a-group", path=text)
    if writable:
        module.check_writable(name, outer, inner)
    return GroupInfo(text, name, module.attrs(name, outer, inner))


def members(
    path: str | os.PathLike[str], *, format: str | None = None, deep: bool = False
) -> list[tuple[str, Kind]]:
    """
    Names and kinds of what is in a group, in the order of names; no array is opened.

    Parameters
    ----------
    path, format
        Of the group.
    deep
        Also what is in the groups in it, and so on, each thing once: names are paths then, and what is
        in a group comes after it.
    """
    outer, inner, name = _found(path, format)
    found: list[tuple[str, Kind]] = _module(name, outer).members(name, outer, inner, deep)
    return found


def broken(
    path: str | os.PathLike[str], *, format: str | None = None
) -> list[tuple[str, OutcoreError]]:
    """
    Names in a group, and in the groups in it, that lead nowhere, and why: broken links of HDF5.

    They are no members (`members`); `outcore.formats.ls` tells of them, too.
    """
    outer, inner, name = _found(path, format)
    find = getattr(_module(name, outer), "broken", None)
    return [] if find is None else list(find(name, outer, inner))


def aliases(path: str | os.PathLike[str], *, format: str | None = None) -> list[tuple[str, str]]:
    """
    Names below a group that `members` does not tell in depth, and by what link they lead to a member.

    These are soft and external links of HDF5, and further names of what has one.
    """
    outer, inner, name = _found(path, format)
    find = getattr(_module(name, outer), "aliases", None)
    return [] if find is None else list(find(name, outer, inner))


def describe(
    path: str | os.PathLike[str],
    group: str | None = None,
    *,
    format: str | None = None,
    drop: Collection[str] = (),
) -> Members:
    """
    Describe a group and the arrays directly in it, in the order of the file.

    Parameters
    ----------
    path
        A file or folder, perhaps with the path of a group: ``file.h5::/group``. A file of one array is a
        group with that array in it.
    group
        Path of a group below that.
    format
        What it is, if neither its name nor its first bytes tell.
    drop
        Names of arrays to leave out: these are not looked at.

    Raises
    ------
    FormatError
        There is no such group (``no-such-group``), or the file is damaged.
    StorageError, UnsupportedError
        As for `outcore.open`.

    Examples
    --------
    >>> import outcore
    >>> outcore.create("run.h5::/wind/u", (3, 4), "f4", attrs={"units": "m/s"}).close()
    >>> found = describe("run.h5", "wind")
    >>> list(found.arrays), found.arrays["u"].shape, dict(found.arrays["u"].attrs)
    (['u'], (3, 4), {'units': 'm/s'})
    """
    if not isinstance(group, str | None):
        raise UsageError(f"group={group!r}: pass text such as '/a/b'", code="bad-name")
    outer, inner = formats.split_path(one_name(path))
    where = "/" + "/".join(p for text in (inner, group) for p in (text or "").split("/") if p)
    module = formats.module_of(outer, format)
    if module.NAME in _MODULES:
        found: Members = _module(module.NAME, outer).describe(module.NAME, outer, where, drop)
        return found
    if where != "/":
        raise no_group(outer, where, f"{module.NAME} files hold one array and no groups")
    info = module.open(outer, None, False)
    return Members(outer, "/", module.NAME, arrays={stem(outer): Member.of(info)})


def create(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> GroupInfo:
    """
    Make a group, with the file and the groups above it that are missing.

    Parameters
    ----------
    path
        A file or store, or ``file.h5::/group``.
    format
        Name of the format; by default what is there, or the suffix, tells.
    attrs
        Attributes of the new group.
    replace
        Replace the file, or the store, with all that is in it.

    Raises
    ------
    StorageError
        ``already-exists``: something has that name.
    UsageError
        An array is in the way; or a group inside a file is to be replaced.
    """
    text = one_name(path)
    outer, inner = formats.split_path(text)
    inner = inner if inner != "/" else None
    durable.refuse_special(outer)
    there = os.path.lexists(outer)
    if replace and inner is not None and there:
        raise UsageError(
            f"{text!r}: a group inside a file is not replaced; add to it with mode 'r+' or 'a', or "
            "replace the whole file",
            code="bad-mode",
            path=text,
        )
    if there and not replace:
        name = formats.format_of(outer, format) if not is_empty(outer) else None
    else:
        name = None
    name = name or formats.format_of_new(outer, format)
    module = _module(name, outer)
    if there and not replace and not is_empty(outer) and module.kind(name, outer, inner):
        raise StorageError(
            f"{text!r} exists already; open it with mode 'r+', or choose another name",
            code="already-exists",
            path=text,
            errno=errno.EEXIST,
        )
    module.create(name, outer, inner, dict(attrs or {}), replace)
    return GroupInfo(text, name, module.attrs(name, outer, inner))


def complete(path: str, format: str) -> None:
    """When all arrays of a new file are there: what their names of axes mean together (HDF5)."""
    step = getattr(_module(format, path), "attach_scales", None)
    if step is not None and format == "hdf5":
        step(path)


def is_empty(path: str) -> bool:
    """Whether it is a folder without anything in it, which a new store may become."""
    if not os.path.isdir(path):
        return False
    with durable.os_errors("listing", path), os.scandir(path) as entries:
        return next(iter(entries), None) is None


def set_attrs(
    found: GroupInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
) -> GroupInfo:
    """
    Set user attributes of a group on disk, all in one step.

    Parameters
    ----------
    found
        The group.
    attrs, drop
        As in `outcore.formats.set_attrs`.
    """
    outer, inner, _ = _found(found.path, found.format)
    changed = _module(found.format, outer).set_attrs(found.format, outer, inner, dict(attrs), drop)
    return replace(found, attrs=changed)
