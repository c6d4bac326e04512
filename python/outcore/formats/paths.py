"""
Valid paths: text, `os.PathLike`, or a list of these.

Problem: an open file, bytes or a number passed as a path fails deep inside, with a message of another
library.
Approach: all public calls check paths here first; anything else is a `PathTypeError` that states what
to pass.
Invariants: a name returned by this file is text without a zero byte; ``~`` is the home of the user, and
an address ``file:///a/b`` is the path ``/a/b``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from outcore.errors import PathTypeError, UsageError

__all__ = ["is_remote", "one_name", "path_names"]

# A scheme of two or more letters: one letter may be a drive.
_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_KINDS = "a path must be str, os.PathLike or a list of these"


def path_names(path: Any) -> list[str]:
    """Return the names in a path, or in a list of paths."""
    if isinstance(path, str | os.PathLike):
        return [one_name(path)]
    if not _is_list(path):
        raise PathTypeError(f"{_KINDS}, not {path!r}{_advice(path)}", code="bad-path")
    names = [one_name(name) for name in path]
    if not names:
        raise UsageError("the list of files is empty; pass at least one file", code="bad-files")
    return names


def one_name(path: Any) -> str:
    """Return the name in a path that is not a list."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        kinds = f"{_KINDS}, and this call takes one file" if _is_list(path) else _KINDS
        raise PathTypeError(f"{kinds}, not {path!r}{_advice(path)}", code="bad-path")
    if "\0" in name:
        raise UsageError(f"the path {name!r} contains a zero byte; remove it", code="bad-name")
    return _local(name)


def is_remote(name: str) -> bool:
    """Return whether a name is an address outside of the file system, such as ``s3://...``."""
    found = _ADDRESS.match(name)
    return found is not None and found[1].lower() != "file" and not os.path.lexists(name)


def _local(name: str) -> str:
    """Return the path that a name stands for."""
    if name.startswith("~"):
        return os.path.expanduser(name)
    found = _ADDRESS.match(name)
    if found is None or os.path.lexists(name):
        return name
    if found[1].lower() != "file":
        raise UsageError(
            f"{name!r} is a remote address, but outcore only reads mounted file systems; copy it to a "
            "disk first, mount it, or open it with xarray or zarr (fsspec)",
            code="remote-path",
            path=name,
        )
    from urllib.parse import unquote

    host, slash, path = name[found.end() :].partition("/")
    if host not in ("", "localhost") or not slash:
        raise UsageError(
            f"{name!r} names the machine {host!r}; use file:///folder/name for a file of this machine",
            code="remote-path",
            path=name,
        )
    return f"/{unquote(path)}"


def _is_list(path: Any) -> bool:
    """Return whether a value may hold paths in an order; an open file would yield its lines."""
    text = str | bytes | bytearray | memoryview
    return isinstance(path, Sequence | np.ndarray) and not isinstance(path, text)


def _advice(path: Any) -> str:
    if isinstance(path, bytes):
        return "; convert it with os.fsdecode()"
    if hasattr(path, "read"):
        name = getattr(path, "name", None)
        return f"; pass the name of the file{f', {name!r}' if isinstance(name, str) else ''}"
    return ""
