"""
Find the format of a path, or the format of a new array at a path.

Options that only raw files take come first, then the marks of the file, then its suffix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from outcore.errors import FormatError, StorageError, UsageError
from outcore.formats import durable
from outcore.formats.layout import ArrayInfo
from outcore.formats.registry import (
    KnownFormat,
    find_by_name,
    find_by_suffix,
    get_suffix,
    list_formats,
)

__all__ = [
    "RAW",
    "find",
    "find_by_marks",
    "find_for_new",
    "is_plain_folder",
    "open_likely",
    "split_path",
]

RAW = find_by_name("raw")
# Versions of Zarr, and the documents that make a folder a group of it.
_ZARR = ("zarr", "zarr2")
_ZARR_GROUPS = ("zarr.json", ".zgroup", ".zmetadata")


def split_path(path: str) -> tuple[str, str | None]:
    """
    Split ``file::/group/name`` into the file and the path inside it.

    A path that exists is not split. A zip file can also be used like a folder:
    ``store.zip/group/name``.

    >>> split_path("file.h5::/a/b")
    ('file.h5', '/a/b')
    >>> split_path("file.npy")
    ('file.npy', None)
    """
    if "::" not in path or os.path.lexists(path):
        at = path.lower().find(".zip/") + 4
        if at > 3 and os.path.isfile(path[:at]):
            return path[:at], "/" + path[at:].strip("/")
        return path, None
    outer, _, inner = path.partition("::")
    return outer, "/" + inner.strip("/")


def find_by_marks(path: str, is_folder: bool, *, of_packages: bool = True) -> KnownFormat | None:
    """Return the format whose marks a file or folder has, or None."""
    # The format of the suffix first: it is usually right, and no other format has to read the file.
    likely = find_by_suffix(path, of_packages=False)
    if likely is not None and likely.is_folder == is_folder and likely.load().recognise(path):
        return likely
    for one in list_formats(of_packages=of_packages):
        if one is not likely and one.is_folder == is_folder and one.load().recognise(path):
            return one
    return None


def is_plain_folder(path: str) -> bool:
    """Return whether a path is a folder that is not an array or group, and has no suffix of one."""
    if not os.path.isdir(path):
        return False
    likely = find_by_suffix(path)
    return (likely is None or not likely.is_folder) and find_by_marks(path, True) is None


def find(path: str, is_folder: bool, options: Mapping[str, Any]) -> KnownFormat:
    """
    Return the format of an existing file or folder; `options` are those of `outcore.open`.

    Raise `StorageError`, `FormatError` or `UsageError` if the file does not exist or no format fits.
    """
    if "files" in options:
        return RAW
    if "dtype" in options:
        _check_unmarked(path, is_folder)
        return RAW
    found = find_by_marks(path, is_folder)
    if found is not None:
        return found
    likely = find_by_suffix(path)
    if not os.path.exists(path):
        import glob

        if glob.has_magic(path) and likely is RAW and glob.glob(path):
            return RAW  # its error names the missing options
        if glob.has_magic(path):
            raise StorageError(
                f"no file is named {path!r}, and open() accepts patterns only for raw files, with "
                f"dtype= and shape=; pass the names: outcore.open_many(sorted(glob.glob({path!r})))",
                code="not-found",
                path=path,
            )
        with durable.os_errors("opening", path):
            os.stat(path)  # missing or inaccessible
    if likely is not None:
        return likely  # its own error reports the problem
    with durable.os_errors("opening", path):
        if not os.path.isdir(path):
            os.close(os.open(path, os.O_RDONLY))
    if os.path.isdir(path):
        raise FormatError(
            f"{path!r} is a folder but not a Zarr store; pass a file or store in it (outcore.ls lists "
            "them)",
            code="unknown-format",
            path=path,
        )
    known = ", ".join(one.name for one in list_formats())
    raise FormatError(
        f"the format of {path!r} is not one of {known}; for bare elements pass dtype= and shape=",
        code="unknown-format",
        path=path,
    )


def _check_unmarked(path: str, is_folder: bool) -> None:
    """Raise if a file that would be read as bare elements has the marks of a format."""
    found = find_by_marks(path, is_folder, of_packages=False)
    if found is not None:
        raise UsageError(
            f"{path!r} is a {found.name} file, which specifies its own dtype; omit dtype=, or pass "
            "format='raw' to read its bare bytes",
            code="unknown-option",
            path=path,
        )


def find_for_new(
    path: str, format: str | None, options: Mapping[str, Any] | None = None
) -> KnownFormat:
    """
    Return the format of a new array; `options` are those of `outcore.create`.

    Without `format` it is the format of the Zarr group or NetCDF file around the array, or that of the
    suffix; raise `UsageError` ``unknown-format`` if there is none.
    """
    if format is not None:
        return find_by_name(format)
    outer, inner = split_path(path)
    likely = None if inner is not None else find_by_suffix(outer)
    if not options and (likely is None or likely.name in _ZARR):
        group = outer if inner is not None else os.path.dirname(outer.rstrip("/"))
        # Search here, because only a format that is used is imported.
        is_there = any(os.path.lexists(os.path.join(group, mark)) for mark in _ZARR_GROUPS)
        found = find_by_marks(group, True) if is_there else None
        if found is not None and found.name in _ZARR:
            return found
    if "files" in (options or {}):
        return RAW
    likely = find_by_suffix(outer)
    if likely is not None and likely.name == "netcdf4" and inner is not None:
        # An array of an existing file has the version of NetCDF of the file.
        found = find_by_marks(outer, False) if os.path.isfile(outer) else None
        return found if found is not None and found.name.startswith("netcdf") else likely
    if likely is not None:
        return likely
    suffix = get_suffix(outer)
    table = ", ".join(
        f"{one.name} ({' '.join(one.suffixes)})" for one in list_formats() if one.suffixes
    )
    why = f"from its suffix {suffix!r}" if suffix else "without a suffix"
    raise UsageError(
        f"cannot determine the format of {outer!r} {why}; pass format=, or use one of {table}",
        code="unknown-format",
        path=outer,
    )


def open_likely(path: str, writable: bool) -> ArrayInfo | None:
    """
    Describe the array of a file in the format of its suffix, if that format checks the marks itself.

    None if the file has other marks, or an operating system call failed: then all formats must be
    asked.
    """
    likely = find_by_suffix(path, of_packages=False)
    if likely is None or not likely.checks_marks:
        return None
    try:
        return likely.load().describe(path, None, writable)
    except FormatError as error:
        if error.code != "bad-magic":
            raise
    except StorageError:
        pass
    return None
