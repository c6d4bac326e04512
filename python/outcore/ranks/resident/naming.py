"""
Rename and remove disk resident arrays.

Problem. An array that several ranks have open is renamed or removed. Any rank may fail, and then all
must have the array unchanged. Approach. All ranks close it, the first one renames it and informs the
others, and all open it under the name that it has then.

Invariants. The new name never shows an incomplete array. A file that also holds other arrays is not
changed.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open
from outcore.errors import UnsupportedError, UsageError
from outcore.formats import durable, whole
from outcore.formats.format import HasFiles
from outcore.formats.paths import one_name
from outcore.ranks.collective.array import CollectiveArray
from outcore.ranks.collective.items import get_array_id, hash_path
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport

__all__ = ["remove_array", "rename_array", "resolve_new_name"]


def resolve_new_name(group: Transport, array: DiskArray, name: Any, *, overwrite: bool) -> str:
    """
    Return the file for `name`, for an array that keeps its format. Collective.

    Errors are ``closed``, ``bad-suffix`` and ``cannot-change``. With several ranks, these are causes of
    `CollectiveError`, which is also raised if ranks give different names.
    """
    return Ranks.of_call(group, "DiskResidentArray.rename").run_on_all(
        lambda: _resolve_name(array, name),
        lambda: f"rename({os.fspath(name)!r}, overwrite={overwrite}) of {array.path!r}",
        meaning=lambda new: (new, overwrite, get_array_id(array)),
    )


def _resolve_name(array: DiskArray, name: Any) -> str:
    """Return the file that this rank names."""
    array.handle.check_open("rename")
    old, inner = formats.split_path(array.handle.location)
    outer, within = formats.split_path(one_name(name))
    suffix = os.path.splitext(old)[1]
    if not os.path.splitext(outer)[1]:
        outer += suffix
    if os.path.splitext(outer)[1].lower() != suffix.lower():
        raise UsageError(
            f"{name!r} does not have the suffix of {array.path!r}, {suffix!r}, and rename keeps "
            "the format; use outcore.convert to change it",
            code="bad-suffix",
            path=array.path,
        )
    if within not in (None, inner):
        raise UnsupportedError(
            f"{name!r} names another array in the file; rename the file, or use outcore.convert "
            "for the array",
            code="cannot-change",
            path=array.path,
        )
    return os.path.abspath(outer)


def rename_array(
    group: Transport, array: DiskArray, new: str, *, overwrite: bool
) -> tuple[DiskArray, BaseException | None]:
    """
    Rename an array to `new`, durably, and return it, opened again. Collective.

    Its data has been flushed before. If renaming failed, the array is opened under its old name, and
    the reason is returned, too.
    """
    old, inner = formats.split_path(array.handle.location)
    mode, hints, options = array.mode, array.hints, array.handle.reopen_options()
    options.pop("files", None)  # old names of raw files
    array.close()

    def move() -> None:
        _check_sole_array(array, old, inner)
        if isinstance(formats.get_format(array.format), HasFiles):
            whole.move(old, new, overwrite=overwrite)
            return
        with durable.os_errors("renaming", old):
            durable.move_into_place(old, new, exclusive=not overwrite)

    failure: BaseException | None = None
    ranks = Ranks.of_call(group, "DiskResidentArray.rename")
    try:
        ranks.run_on_all(lambda: None)  # all ranks have closed it
        ranks.run_on_first(move)
    except BaseException as error:
        failure = error
    # It may have its new name although a sync failed.
    if failure is not None and ranks.broadcast_from_first(lambda: os.path.lexists(old)):
        new = old
    where = new + (f"::{inner}" if inner is not None else "")
    comm = group if isinstance(array, CollectiveArray) else None
    again: DiskArray = open(where, "r" if mode == "r" else "r+", comm=comm, hints=hints, **options)
    return again, failure


def remove_array(group: Transport, array: DiskArray) -> None:
    """Remove an array that this rank has closed. Collective."""
    old, inner = formats.split_path(array.handle.location)
    path = array.path

    def remove() -> None:
        _check_sole_array(array, old, inner)
        if isinstance(formats.get_format(array.format), HasFiles):
            whole.remove(old)
            return
        with durable.os_errors("removing", old):
            if os.path.isdir(old):
                shutil.rmtree(old)
            else:
                durable.unlink_in_background(old)

    ranks = Ranks.of_call(group, "DiskResidentArray.delete")
    # All ranks have closed it and name the same array.
    ranks.run_on_all(lambda: None, lambda: f"delete of {path!r}", meaning=lambda _: hash_path(old))
    ranks.run_on_first(remove)


def _check_sole_array(array: DiskArray, outer: str, inner: str | None) -> None:
    """Raise if a file also holds other arrays, and so must not be moved or removed."""
    number = 1 if inner is None else sum(one.kind == "array" for one in formats.ls(outer))
    if number > 1:
        raise UnsupportedError(
            f"{outer!r} has {number} arrays; rename or delete the file yourself, or convert the "
            "array to a separate file with outcore.convert",
            code="cannot-change",
            path=array.path,
        )
