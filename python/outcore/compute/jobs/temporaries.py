"""
Temporary arrays on disk: created for a computation, removed together with their handles.

Problem. A temporary array may be as large as the disk allows. It must not stay there when the
program closes it, loses it, or ends; and with several ranks it must stay until the last one has
closed it.
Idea. A finalizer of the array removes it from the disk. With several ranks, each handle holds a
shared lock on the file or folder, and the finalizer that gets the exclusive lock removes it.

Invariants. The name of a temporary array contains the id of the process that created it:
`outcore.jobs.clean` finds the arrays of processes that were killed. A forked child removes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import weakref
from collections.abc import Mapping
from typing import Any, TypeAlias

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import create
from outcore.base.hints import Hints
from outcore.compute.jobs.operation import Result
from outcore.formats import durable, locks
from outcore.formats.defaults import CHUNKED, PLAIN
from outcore.formats.format import HasGroups
from outcore.formats.scratch import forget_termination, remove_at_termination

__all__ = ["choose_suffix", "create_temporary", "remove_after_last_rank"]

_Finalizer: TypeAlias = "weakref.finalize[..., DiskArray]"


def create_temporary(
    result: Result, folder: str, options: Mapping[str, Any] | None = None
) -> DiskArray:
    """
    Create an array on disk that is removed with its handle, or when the process ends.

    `options` are those of `outcore.create`, and ``format``.
    """
    words = dict(options or {})
    kept = {k: v for k, v in result.kept.items() if k == "order" and v is not None}
    suffix, inner = choose_suffix(words)
    name = f".outcore-scratch-{os.getpid()}-{os.urandom(6).hex()}{suffix}"
    path = os.path.join(folder, name)
    hints = Hints.of(Hints(exclusive=True, missing="error"))  # it is read when it is complete
    # The array is removed soon: encoding that was not asked for would only take time.
    words = {"compression": None, **kept, **words}
    array: DiskArray = create(path + inner, result.shape, result.dtype, hints=hints, **words)
    remove: _Finalizer = weakref.finalize(array, _remove, path, os.getpid())
    array.handle.remove_when_closed(remove_at_termination(remove, path))
    return array


def choose_suffix(options: Mapping[str, Any]) -> tuple[str, str]:
    """Return the suffix of a temporary array, and its name in a container (``::/data``) or ``""``."""
    has_codecs = options.get("compression") not in (None, (), "none")
    is_chunked = has_codecs or "chunks" in options or "shards" in options
    format = options.get("format") or (CHUNKED if is_chunked else PLAIN)
    found = formats.get_format(format)
    is_container = isinstance(found, HasGroups) and not found.is_folder
    return formats.get_new_suffix(format), "::/data" if is_container else ""


def remove_after_last_rank(array: DiskArray) -> None:
    """
    Keep a temporary array until the last of several ranks has closed it.

    `array` is the handle of this rank. It holds a shared lock until it is closed.
    """
    path = formats.split_path(array.path)[0]
    access = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR
    lock = os.open(path, access | os.O_CLOEXEC)
    locks.lock_file(lock, fcntl.LOCK_SH, wait=True)
    remove: _Finalizer = weakref.finalize(array, _remove_if_last, path, lock, os.getpid())
    array.handle.remove_when_closed(remove_at_termination(remove, path))


def _remove_if_last(path: str, lock: int, owner: int) -> None:
    """Remove a temporary array, unless another rank holds a lock on it."""
    if os.getpid() != owner:
        return
    try:
        # Without locks no rank knows whether it is the last one: the array stays for `jobs.clean`.
        if locks.lock_file(lock):
            _remove(path, owner)
    finally:
        os.close(lock)


def _remove(path: str, owner: int) -> None:
    """Remove a temporary array, if this process is `owner`."""
    if os.getpid() != owner:
        return  # a child after a fork
    forget_termination(path)
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            durable.unlink_in_background(path)
