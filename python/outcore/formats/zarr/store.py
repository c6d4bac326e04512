"""
Zarr on the file system: metadata documents, and folders that appear in one step.

Problem: a reader must never see new metadata with old chunks, a half written document, or a document
made to cause harm (`documents`).
Approach: documents are replaced by rename. A new folder is built in a hidden folder next to its place
and renamed into it; a folder that is replaced changes places with the new one in one step
(``renameat2`` with ``RENAME_EXCHANGE``).
Invariants: the hidden folder itself has no metadata, so no library takes the rest of a crash for a
member of a group.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from outcore import _core
from outcore.errors import (
    OutcoreError,
    StorageError,
    UsageError,
    find_stack_level,
)
from outcore.formats import durable, locks
from outcore.formats.documents import Document

# Only if it is longer than `float`.
_LONG = () if np.dtype(np.longdouble).itemsize == 8 else (np.dtype(np.longdouble),)
_SHELTER = re.compile(durable.TEMPORARY)


def write_document(path: str, document: Mapping[str, Any]) -> None:
    """Durably replace the file `path` by `document`; not through a link out of its folder."""
    if os.path.islink(path) and not _is_inside(os.path.dirname(path), path):
        raise leads_out(path)
    text = dump(document, path)

    durable.create_file(path, lambda fd: durable.write_all(fd, text, 0), exclusive=False)


def leads_out(path: str) -> StorageError:
    """Return the error for a change through a symbolic link out of the array's folder."""
    return StorageError(
        f"{path!r} cannot be changed: a symbolic link on the way to it points outside the array's "
        "folder; move the files into the folder, or mount the other folder in place of the link",
        code="link-leads-out",
        path=path,
    )


def _is_inside(folder: str, path: str) -> bool:
    """Return whether `path`, links followed, is in `folder` or is that folder."""
    folder, path = os.path.realpath(folder), os.path.realpath(path)
    return path == folder or path.startswith(os.path.join(folder, ""))


def refuse_outside(folder: str, path: str) -> None:
    """Raise if `path`, links followed, is not in `folder`."""
    if not _is_inside(folder, path):
        raise leads_out(path)


def dump(document: Mapping[str, Any], path: str) -> bytes:
    """
    Return `document` as UTF-8 JSON; attributes that are not JSON raise `UsageError`.

    NaN and infinity are preserved, because documents of other programs may have them (zarr writes them,
    though JSON does not define them). New attributes have none (`changed_attributes`).
    """
    try:
        # The round trip turns NumPy's values into JSON's before anything is encoded.
        plain = json.loads(json.dumps(document, default=_to_python))
        return json.dumps(plain, indent=2, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json_error(path, str(error)) from error


def _not_json_error(path: str, why: str) -> UsageError:
    return UsageError(
        f"{path!r}: the attributes cannot be written as JSON ({why}); use strings, numbers, lists and "
        "dictionaries",
        code="bad-attributes",
        path=path,
    )


def changed_attributes(
    old: Mapping[str, Any], attrs: Mapping[str, Any], drop: Collection[str] | None, path: str
) -> Document:
    """
    Return the attributes after a change, as they will be read; `drop` as in `formats.set_attrs`.

    NaN and infinity in new ones become text, with a warning; attributes that stay are not touched.
    """
    kept = {} if drop is None else {name: old[name] for name in old if name not in drop}
    if any(_has_other_keys(value) for value in attrs.values()):
        raise _not_json_error(path, "a key of a dictionary is not text")
    said = json.loads(dump(attrs, path))
    new: Document = _replace_nonfinite(said)
    odd = [repr(name) for name in new if new[name] != said[name]]
    if odd:
        warnings.warn(
            f"{path!r}: JSON cannot represent NaN and infinity; in {', '.join(odd)} they are stored as "
            "text: 'NaN', 'Infinity', '-Infinity'",
            stacklevel=find_stack_level(),
        )
    return {**kept, **new}


def _has_other_keys(value: Any) -> bool:
    """Return whether a value has keys that are not text; JSON would make text of them, perhaps equal."""
    if isinstance(value, Mapping):
        return not all(isinstance(key, str) for key in value) or any(
            map(_has_other_keys, value.values())
        )
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


def _to_python(value: Any) -> Any:
    """Return NumPy numbers and arrays, which attributes often contain, as Python's own."""
    convert = getattr(value, "tolist", None)
    dtype = getattr(value, "dtype", None)
    # A time would lose its unit, a structure its names, and other types some digits.
    if convert is None or getattr(dtype, "kind", "i") in "cmMSV" or dtype in _LONG:
        raise TypeError(f"{type(value).__name__ if dtype is None else dtype} is not JSON")
    return convert()


def _replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by the strings that Zarr uses for fill values."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@contextlib.contextmanager
def lock_document(file: str) -> Iterator[None]:
    """
    Keep others from changing the document `file`, and from storing chunks of its array.

    The core locks one byte of the same file for each chunk that it stores (`FileSource.lock`); this
    waits for all of them. Without it, one writer could lock the old file and one the new.
    """
    fd = locks.lock_by_name(file, locks.CONTENT)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


@contextlib.contextmanager
def editing(file: str) -> Iterator[None]:
    """
    Lock like `locked`, to replace the array's own document `file`.

    A process that appends holds another lock on that file, which the replacement would remove.
    """
    with contextlib.ExitStack() as held:
        if not locks.is_growing_in_this_thread(file):
            held.enter_context(locks.lock_length(file))
        held.enter_context(lock_document(file))
        yield


def check_writable(folder: str) -> None:
    """Raise `StorageError` if this process may not write into `folder`."""
    if not os.access(folder, os.W_OK | os.X_OK):
        with durable.os_errors("opening for writing", folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def publish(target: str, build: Callable[[str], None], *, exclusive: bool) -> None:
    """
    Create the folder `target` completely: `build` fills a new folder, which then replaces `target`.

    It replaces an existing folder in one step where the system supports that; the old content is
    removed. `exclusive`: raise `StorageError` (``already-exists``) if `target` exists, even if it
    appears in the meantime.
    """
    parent = os.path.dirname(target)
    with durable.os_errors("creating", target):
        if exclusive and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        _remove_stale_staging(parent)
        shelter = durable.make_temporary_name(target)
        fresh = os.path.join(shelter, "new")
        os.mkdir(shelter)
        held = -1
        try:
            held = os.open(shelter, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _core.hold_temporary(held)
            os.mkdir(fresh)
            build(fresh)
            _core.move_into_place(fresh, target, os.path.join(shelter, "old"), exclusive)
        except OutcoreError as error:
            # The hidden folder is an internal detail, and is about to be removed.
            error.speak_of(target, instead_of=fresh)
            error.path = target
            raise
        finally:
            shutil.rmtree(shelter, ignore_errors=True)
            if held >= 0:
                os.close(held)


def _remove_stale_staging(folder: str) -> None:
    """Remove hidden folders of killed processes that were about to be published here."""
    with contextlib.suppress(OSError):
        with os.scandir(folder or ".") as entries:
            found = [e.path for e in entries if _SHELTER.fullmatch(e.name)]
        for shelter in found:
            _core.remove_orphan(shelter)
