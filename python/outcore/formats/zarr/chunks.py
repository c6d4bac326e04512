"""
The files of chunks (or shards) of a Zarr array: listing them, and removing those outside the shape.

Problem: an array may have a grid of 10^15 chunks and store three. A user may have replaced folders by
symbolic links.
Approach: folders are listed, and coordinates read from names. Removal proceeds from one open folder to
the next.
Invariants: only names that are chunk keys are touched. Listing takes time proportional to what is
stored. Removal never follows a symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence

from outcore import _core
from outcore.formats import durable
from outcore.formats.zarr.store import leads_out

COORDINATE = re.compile(r"0|[1-9][0-9]{0,18}")


def chunk_path(root: str, prefix: str, separator: str, at: Sequence[int]) -> str:
    """Return the file of the chunk (or shard) at grid coordinates `at`."""
    if not at:
        return os.path.join(root, prefix[:-1] if prefix else "0")
    return os.path.join(root, prefix + separator.join(map(str, at)))


# Maximum number of names that are tested one by one; above that, the folder is listed.
_FEW = 1 << 10


def stored_chunks(
    root: str, prefix: str, separator: str, box: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, ...]]:
    """
    Yield the grid coordinates of the chunks that are stored in a box.

    `box` has the first coordinate and one past the last for each axis. The time is proportional to the
    stored chunks, or to the box if that is smaller.
    """
    if math.prod(max(b - a, 0) for a, b in box) <= _FEW:
        for at in itertools.product(*(range(a, b) for a, b in box)):
            if os.path.lexists(chunk_path(root, prefix, separator, at)):
                yield at
    elif separator == "/":
        yield from _find_stored_below(os.path.join(root, prefix), box)
    else:
        for name in _list_names(root):
            fields = name.removeprefix(prefix).split(separator)
            if name.startswith(prefix) and len(fields) == len(box):
                found = [
                    _parse_inside(field, ends) for field, ends in zip(fields, box, strict=True)
                ]
                inside = tuple(k for k in found if k is not None)
                if len(inside) == len(box):
                    yield inside


def _find_stored_below(folder: str, box: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    (first, end), inner = box[0], box[1:]
    names = map(str, range(first, end)) if end - first <= _FEW else _list_names(folder)
    for name in names:
        k, place = _parse_inside(name, (first, end)), os.path.join(folder, name)
        if k is None:
            continue
        if inner:
            for at in _find_stored_below(place, inner):
                yield (k, *at)
        elif os.path.lexists(place):
            yield (k,)


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _parse_inside(name: str, ends: tuple[int, int]) -> int | None:
    """Return the coordinate in a name, if it is within a range."""
    if not COORDINATE.fullmatch(name):
        return None
    return int(name) if ends[0] <= int(name) < ends[1] else None


def remove_outside(
    root: str,
    prefix: str,
    separator: str,
    limits: Sequence[int | None],
    *,
    look: bool = False,
) -> None:
    """
    Remove the chunk files with a coordinate at or beyond its limit; None means no limit.

    Only names that are chunk keys are removed, and with `look` none. A folder that is a symbolic link
    is not entered: `StorageError` ``link-leads-out``.
    """
    if all(limit is None for limit in limits):
        return
    with durable.os_errors("removing chunks of", root), _open_folder(root) as top:
        if top is None:
            return
        if separator == "/":
            while limits[-1] is None:  # no need to look deeper
                limits = limits[:-1]
            if prefix:
                with _open_folder(prefix.rstrip("/"), top, root) as folder:
                    if folder is not None:
                        _remove_tree(os.path.join(root, prefix), folder, limits, look)
            else:
                _remove_tree(root, top, limits, look)
        else:
            _remove_flat(top, prefix, separator, limits, look)


@contextlib.contextmanager
def _open_folder(name: str, above: int | None = None, place: str = "") -> Iterator[int | None]:
    """
    Open a folder, None if there is none: at the path `name`, or in the open folder `above`.

    In `above`, whose path is `place`, symbolic links are not followed.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags | (0 if above is None else os.O_NOFOLLOW), dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        if error.errno != errno.ENOENT and above is not None:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise leads_out(os.path.join(place, name)) from None
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _remove_tree(place: str, folder: int, limits: Sequence[int | None], look: bool) -> None:
    found = os.listdir(folder)
    if not look:
        _remove_left_behind(folder, found)
    for name in filter(COORDINATE.fullmatch, found):
        if limits[0] is not None and int(name) >= limits[0]:
            if not look:
                _remove(name, folder)
        elif len(limits) > 1:
            with _open_folder(name, folder, place) as below:
                if below is not None:
                    _remove_tree(os.path.join(place, name), below, limits[1:], look)


def _remove_flat(
    folder: int, prefix: str, separator: str, limits: Sequence[int | None], look: bool
) -> None:
    if look:
        return  # links to files are removed, not followed
    found = os.listdir(folder)
    _remove_left_behind(folder, found)
    for name in found:
        if not name.startswith(prefix):
            continue
        fields = name[len(prefix) :].split(separator)
        if len(fields) != len(limits) or not all(map(COORDINATE.fullmatch, fields)):
            continue
        if any(m is not None and int(f) >= m for f, m in zip(fields, limits, strict=True)):
            _remove(name, folder)


def _remove_left_behind(folder: int, names: list[str]) -> None:
    """Remove temporary files of killed writers from a folder that was listed anyway."""
    for name in names:
        if name.startswith(".") and name.endswith(".outcore-tmp"):
            _core.remove_orphan(name, folder)


def _remove(name: str, folder: int) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
