"""
Files that an HDF5 file names: targets of external links, sources of virtual datasets, raw files.

Problem: the library opens any file that another one names. Opening a pipe waits for a writer that may
never come, and opening a device may have any effect. The library follows some names as soon as a link
is inspected, or the shape of a dataset is requested.
Approach: before the library gets a name, all paths that it may try are checked. If one leads to
anything but a regular file or a folder, the name is not followed, and an error names the path.
Invariants: only regular files are opened here, and only for reading.

References: HDF5 2.0, ``H5F_prefix_open_file`` and ``H5L__extern_traverse``; HDF5 Reference Manual,
H5Pset_virtual, H5Pset_elink_prefix.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from outcore.errors import FormatError
from outcore.formats import durable
from outcore.formats.hdf5.library import h5py

__all__ = ["check_sources", "find_special", "find_special_source", "list_candidates"]

#: Maximal number of links that are followed one after another, as in the library.
_MAX_LINKS = 16
_LINK_PREFIX, _VIRTUAL_PREFIX = "HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX"


def list_candidates(path: str, file: str, prefix: str = _VIRTUAL_PREFIX) -> list[str]:
    """
    Return the paths where the library searches for a file that `path` names, in this order.

    An absolute name is used as it is. A relative name, and the last part of an absolute one, is
    searched in the folders of the environment variable `prefix`, next to `path`, and from the working
    directory.
    """
    tried = []
    if os.path.isabs(file):
        tried, file = [file], os.path.basename(file)
    here = os.path.dirname(path)
    for folder in os.environ.get(prefix, "").split(":"):
        if folder:
            tried.append(os.path.join(folder.replace("${ORIGIN}", here), file))
    real = os.path.dirname(os.path.realpath(path))
    return [*tried, os.path.join(here, file), os.path.abspath(file), os.path.join(real, file)]


def find_special(top: Any, name: str, depth: int = 0) -> str | None:
    """
    Return the special file that the library would open on its way to an object; None if there is none.

    `name` starts at the open group `top`, or at the root. `depth` counts the links followed so far.
    """
    links, above = top.id.links, "/" if name.startswith("/") else ""
    parts = [part for part in name.split("/") if part]
    for number, part in enumerate(parts):
        here, rest = os.fsencode(above + part), parts[number + 1 :]
        try:
            kind = links.get_info(here).type
            value = None if kind == h5py.h5l.TYPE_HARD else links.get_val(here)
        except (KeyError, OSError, RuntimeError, ValueError):
            return None  # there is no such object
        if value is None:
            above = f"{above}{part}/"
        elif depth >= _MAX_LINKS:
            return None  # the limit of the library, too
        elif kind == h5py.h5l.TYPE_SOFT:
            target = os.fsdecode(value)
            start = "" if target.startswith("/") else above
            return find_special(top, "/".join([start + target, *rest]), depth + 1)
        else:
            return _follow_external(top, value, rest, depth + 1)
    return None


def _follow_external(
    top: Any, link: tuple[bytes, bytes], rest: list[str], depth: int
) -> str | None:
    """Return the special file behind an external link; None if there is none."""
    file, inner = map(os.fsdecode, link)
    path = os.fsdecode(h5py.h5f.get_name(top.id))
    for found in list_candidates(path, file, _LINK_PREFIX):
        if durable.is_special(found):
            return found
        if not os.path.isfile(found):
            continue
        with contextlib.suppress(OSError):  # the library reports this error later
            other = h5py.File(h5py.h5f.open(os.fsencode(found), h5py.h5f.ACC_RDONLY))
            try:
                return find_special(other, "/".join([inner, *rest]), depth)
            finally:
                other.close()
    return None


def find_special_source(dset: Any) -> str | None:
    """Return the special file where the library would search for elements; None if there is none."""
    h5d, plist, tried = h5py.h5d, dset.id.get_create_plist(), []
    if plist.get_layout() == h5d.VIRTUAL:
        path = os.fsdecode(h5py.h5f.get_name(dset.id))
        for number in range(plist.get_virtual_count()):
            file = plist.get_virtual_filename(number)
            for found in list_candidates(path, file):
                tried += _list_numbered(found) if "%" in file else [found]
    elif plist.get_layout() == h5d.CONTIGUOUS:
        for number in range(plist.get_external_count()):
            tried.append(os.path.abspath(os.fsdecode(plist.get_external(number)[0])))
    return next(filter(durable.is_special, dict.fromkeys(tried)), None)


def check_sources(dset: Any) -> None:
    """
    Raise `FormatError` if elements of a dataset would be read from a special file.

    Call this before asking for the shape of a virtual dataset: the library opens the sources for it.
    """
    if special := find_special_source(dset):
        path = os.fsdecode(h5py.h5f.get_name(dset.id))
        raise FormatError(
            f"{path!r}: dataset {dset.name!r} has its elements in {special!r}, which is a pipe, a "
            "device or a socket; replace it with a regular file",
            code="not-regular",
            path=path,
        )


def _list_numbered(path: str) -> list[str]:
    """Return all existing files whose name has a number for ``%b``; ``%%`` is a percent sign."""
    folder, name = os.path.split(path)
    parts = (re.escape(part).replace("%b", "[0-9]+") for part in name.split("%%"))
    pattern = re.compile("%".join(parts))
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    return [os.path.join(folder, one) for one in names if one == name or pattern.fullmatch(one)]
