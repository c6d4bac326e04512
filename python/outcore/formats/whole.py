"""
Arrays as units: copied, moved and removed with all their files.

Problem: an array is a file, a folder, or a manifest and parts in many folders; tools of the system only
handle files.
Approach: a format whose arrays are more than a file or a folder implements these operations
(`HasFiles`, see `parts`). For all others a file is copied under a temporary name, a folder (Zarr) in a
hidden folder, and each gets its name at the end.
Invariants: after a crash there is the old or the new state; after a move, the array exists under one
name or both. A target is replaced only if requested, and only by an array of its own format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

from outcore import _core, formats
from outcore.errors import AlreadyExistsError, StorageError, UsageError
from outcore.formats import durable, finding
from outcore.formats.format import Format, HasFiles
from outcore.formats.paths import one_name
from outcore.formats.zarr.store import publish

__all__ = ["chmod", "copy", "list_files", "move", "remove"]


def list_files(path: str) -> list[str]:
    """Return all files of an array, the one with its name first."""
    path = one_name(path)
    found_format = _find_format(path)
    if found_format is not None and isinstance(found_format, HasFiles):
        return list(found_format.files(path))
    if not os.path.isdir(path):
        return [path]
    found = []
    with durable.os_errors("listing", path):
        for folder, below, names in os.walk(path):
            below.sort()
            found += [os.path.join(folder, name) for name in sorted(names)]
    return found


def copy(
    source: str, target: str, *, overwrite: bool = False, folders: Sequence[str] | None = None
) -> str:
    """
    Copy an array as it is stored; return the path of the copy.

    If `target` is a folder that is not an array, the copy gets the name of the source in it.
    `overwrite` replaces an array of the same format. `folders` are folders for parts.
    """
    source, target = one_name(source), one_name(target)
    found, target = _find_both(source, target, overwrite)
    if folders is not None and not isinstance(found, HasFiles):
        raise UsageError(
            f"{source!r} is not an array in parts, so it cannot be divided over {', '.join(folders)}; "
            "convert it to NAME.parts",
            code="unknown-option",
        )
    if found is not None and isinstance(found, HasFiles):
        found.copy(source, target, exclusive=not overwrite, folders=folders)
    elif os.path.isdir(source):
        publish(target, lambda fresh: _copy_folder(source, fresh), exclusive=not overwrite)
    else:
        durable.copy_file(source, target, exclusive=not overwrite)
    return target


def move(source: str, target: str, *, overwrite: bool = False) -> str:
    """Rename an array, or copy it to another file system and remove it; return its new path."""
    source, target = one_name(source), one_name(target)
    found, target = _find_both(source, target, overwrite)
    try:
        if found is not None and isinstance(found, HasFiles):
            found.move(source, target, exclusive=not overwrite)
        else:
            with durable.os_errors("renaming to", target):
                durable.move_into_place(source, target, exclusive=not overwrite)
                _core.fsync_folder(os.path.abspath(source))
    except StorageError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(source, target, overwrite=overwrite)
        remove(source)
    return target


def remove(path: str) -> None:
    """Remove an array; if it has several files, its name first."""
    path = one_name(path)
    _find_format(path)
    formats.remove(path)
    with durable.os_errors("removing", path):
        _core.fsync_folder(os.path.abspath(path))


def chmod(path: str, mode: int) -> None:
    """Set the permissions of all files; read permission includes the search of folders."""
    path, search = one_name(path), (mode & 0o444) >> 2
    for name in list_files(path):
        with durable.os_errors("setting permissions of", name):
            os.chmod(name, mode)
    if os.path.isdir(path):
        for folder, _, _ in os.walk(path, topdown=False):
            with durable.os_errors("setting permissions of", folder):
                os.chmod(folder, mode | search)


def _find_format(path: str) -> Format | None:
    """Return the format of an existing array; None for a file without marks."""
    _, inner = formats.split_path(path)
    if inner is not None:
        raise UsageError(
            f"{path!r} is an array inside a file; pass the file, or copy the array with convert",
            code="not-a-file",
            path=path,
        )
    with durable.os_errors("inspecting", path):
        os.stat(path)
    is_folder = durable.check_not_special(path)
    found = formats.find_marked(path)
    if found is None and is_folder:
        raise UsageError(
            f"{path!r} is a folder but not an array; pass an array",
            code="not-an-array",
            path=path,
        )
    if not is_folder:
        # A file without marks has bare elements.
        log = (found or finding.RAW.load()).get_log_path(path)
        if log is not None and os.path.lexists(log):
            raise StorageError(
                f"{path!r}: a change was interrupted or is in progress ({log!r}); open it once with "
                "mode 'r+' to complete or undo it",
                code="half-changed",
                path=path,
            )
    return found


def _find_both(source: str, target: str, overwrite: bool) -> tuple[Format | None, str]:
    """Return the format of the source, and the final path of the target."""
    found = _find_format(source)
    if os.path.isdir(target) and formats.find_marked(target) is None:
        target = os.path.join(target, os.path.basename(os.path.normpath(source)))
    wanted = None
    with contextlib.suppress(UsageError):
        wanted = formats.choose_format_name(target)
    is_as = wanted if found is None else found.name
    # The documents of a Zarr store determine its version, not its suffix.
    same = wanted in (None, is_as) or {wanted, is_as} == {"zarr", "zarr2"}
    same = same or all((name or "").startswith("netcdf") for name in (wanted, is_as))
    if not same or (os.path.lexists(target) and formats.find_marked(target) != found):
        raise UsageError(
            f"{target!r} has another format than {source!r}, by its contents or its name; use convert, "
            "or another name",
            code="unknown-format",
            path=target,
        )
    if os.path.lexists(target):
        if os.path.samefile(source, target):
            raise UsageError(
                f"{source!r} and {target!r} are the same array; choose another name",
                code="same-file",
            )
        if not overwrite:
            raise AlreadyExistsError(
                f"{target!r} already exists; pass overwrite=True to replace it",
                code="already-exists",
                path=target,
                errno=errno.EEXIST,
            )
        if os.path.isdir(target):
            formats.check_replaceable(target)
    return found, target


def _copy_folder(source: str, target: str) -> None:
    """Copy all files below a folder durably, then sync their names."""
    with durable.os_errors("copying", source):
        for folder, _, names in os.walk(source):
            place = os.path.join(target, os.path.relpath(folder, source))
            os.makedirs(place, exist_ok=True)
            for name in names:
                durable.copy_file(
                    os.path.join(folder, name), os.path.join(place, name), exclusive=True
                )
            os.chmod(place, stat.S_IMODE(os.stat(folder).st_mode))
        for folder, _, _ in os.walk(target, topdown=False):
            _core.fsync_folder(os.path.join(os.path.normpath(folder), "."))
