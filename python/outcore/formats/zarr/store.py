"""
Zarr on the file system: metadata documents, folders that appear at once.

Problem. A reader must never meet new metadata over old chunks, a half written document, or a document
made to hurt (`documents`).
Idea. Documents are replaced by rename. A new folder is built in a hidden folder beside its place and
renamed into it; a folder that is replaced changes places with the new one in one step (``renameat2``
with ``RENAME_EXCHANGE``).
Invariants. The hidden folder itself holds no metadata, so no library takes what a crash leaves behind
for a member of a group.
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
    callers_line,
)
from outcore.formats import durable, locks
from outcore.formats.documents import Document

# Where it is longer than `float`.
_LONG = () if np.dtype(np.longdouble).itemsize == 8 else (np.dtype(np.longdouble),)
_SHELTER = re.compile(durable.BEGUN)


def write_document(path: str, document: Mapping[str, Any]) -> None:
    """Replace the file `path` by `document`, durably; not through a link out of its folder."""
    if os.path.islink(path) and not _lies_in(os.path.dirname(path), path):
        raise leads_out(path)
    text = dump(document, path)

    durable.create_file(path, lambda fd: durable.write_all(fd, text, 0), exclusive=False)


def leads_out(path: str) -> StorageError:
    """The error for a change that would go through a symbolic link out of the array's folder."""
    return StorageError(
        f"{path!r} is not changed: a symbolic link on the way to it leads out of the array's folder; "
        "put the files themselves there, or mount the other folder in place of the link",
        code="link-leads-out",
        path=path,
    )


def _lies_in(folder: str, path: str) -> bool:
    """Whether `path`, links followed, lies in `folder` or is it."""
    folder, path = os.path.realpath(folder), os.path.realpath(path)
    return path == folder or path.startswith(os.path.join(folder, ""))


def refuse_outside(folder: str, path: str) -> None:
    """Refuse to change what lies at `path` if that is not in `folder`, links followed."""
    if not _lies_in(folder, path):
        raise leads_out(path)


def dump(document: Mapping[str, Any], path: str) -> bytes:
    """
    `document` as UTF-8 JSON. Attributes that are not JSON are a `UsageError`.

    NaN and infinity stay what they are: of a document of others they were there before (zarr writes
    them, though JSON has no word for them), of ours they are none (`changed_attributes`).
    """
    try:
        # The round trip turns NumPy's values into JSON's before anything is encoded.
        plain = json.loads(json.dumps(document, default=_plain))
        return json.dumps(plain, indent=2, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_json(path, str(error)) from error


def _no_json(path: str, why: str) -> UsageError:
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
    Attributes after a change, as they will be read again; `drop` as in `formats.set_attrs`.

    NaN and infinity in new ones become text, which is told; in those that stay they are not touched.
    """
    kept = {} if drop is None else {name: old[name] for name in old if name not in drop}
    if any(_has_other_keys(value) for value in attrs.values()):
        raise _no_json(path, "a name in a dictionary is no text")
    said = json.loads(dump(attrs, path))
    new: Document = _finite(said)
    odd = [repr(name) for name in new if new[name] != said[name]]
    if odd:
        warnings.warn(
            f"{path!r}: JSON has no word for NaN and infinity; in {', '.join(odd)} they are kept as "
            "text: 'NaN', 'Infinity', '-Infinity'",
            stacklevel=callers_line(),
        )
    return {**kept, **new}


def _has_other_keys(value: Any) -> bool:
    """Whether there are names in it that are no text, which JSON would make text, perhaps the same."""
    if isinstance(value, Mapping):
        return not all(isinstance(key, str) for key in value) or any(
            map(_has_other_keys, value.values())
        )
    return isinstance(value, list | tuple) and any(map(_has_other_keys, value))


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays, which attributes often hold, as Python's own."""
    convert = getattr(value, "tolist", None)
    dtype = getattr(value, "dtype", None)
    # Of times only the number would be left, of a structure not the names, of others not all digits.
    if convert is None or getattr(dtype, "kind", "i") in "cmMSV" or dtype in _LONG:
        raise TypeError(f"{type(value).__name__ if dtype is None else dtype} is not JSON")
    return convert()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become the strings that Zarr uses for fill values."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@contextlib.contextmanager
def locked(file: str) -> Iterator[None]:
    """
    Keep others from changing the document `file`, and from storing chunks of its array.

    The core locks one byte of the same file for each chunk that it stores (`FileSource.lock`); this
    waits for all of them. Without it, one writer could hold the old file and one the new.
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
    `locked`, for who puts another file in the place of the array's own document `file`.

    Who appends holds a lock on that file as well, which would be gone with it.
    """
    with contextlib.ExitStack() as held:
        if not locks.grown_by_me(file):
            held.enter_context(locks.growing(file))
        held.enter_context(locked(file))
        yield


def check_writable(folder: str) -> None:
    """Raise `StorageError` if this process may not write into `folder`."""
    if not os.access(folder, os.W_OK | os.X_OK):
        with durable.os_errors("opening for writing", folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def publish(target: str, build: Callable[[str], None], *, exclusive: bool) -> None:
    """
    Make the folder `target` whole: `build` fills a new folder, which then takes the place of `target`.

    Parameters
    ----------
    target
        If it exists it is replaced, in one step where the system can; its old content is removed.
    build
        Gets the path of an empty folder.
    exclusive
        Raise `StorageError` (``already-exists``) if `target` exists, even if it appears meanwhile.
    """
    parent = os.path.dirname(target)
    with durable.os_errors("creating", target):
        if exclusive and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        _sweep_shelters(parent)
        shelter = durable.begun_name(target)
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
            # The shelter is nobody's business, and is about to go.
            error.speak_of(target, instead_of=fresh)
            error.path = target
            raise
        finally:
            shutil.rmtree(shelter, ignore_errors=True)
            if held >= 0:
                os.close(held)


def _sweep_shelters(folder: str) -> None:
    """Remove what killed processes left of the folders that they were about to publish here."""
    with contextlib.suppress(OSError):
        with os.scandir(folder or ".") as entries:
            found = [e.path for e in entries if _SHELTER.fullmatch(e.name)]
        for shelter in found:
            _core.remove_orphan(shelter)
