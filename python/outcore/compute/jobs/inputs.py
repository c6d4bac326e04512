"""
Inputs of an operation: paths, open arrays, and arrays in memory.

Invariants. An array that the user has opened stays open, and its hints apply; arrays that are
opened here are closed here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from outcore.arrays.disk import DiskArray
from outcore.arrays.disk.described import ArrayOnDisk
from outcore.arrays.opening import open
from outcore.compute.jobs.memory import InMemory
from outcore.errors import UnsupportedError, UsageError
from outcore.formats.paths import one_name
from outcore.formats.texts import Texts

__all__ = ["Source", "open_inputs", "reopen"]

#: What an operation reads.
Source = str | os.PathLike[str] | DiskArray | ArrayLike


@contextlib.contextmanager
def open_inputs(*sources: Source) -> Iterator[tuple[Any, ...]]:
    """Open inputs as `DiskArray` and `InMemory`, each with its own handle, until the block ends."""
    with contextlib.ExitStack() as stack:
        found: list[Any] = []
        for source in sources:
            one = _open_input(source)
            stack.callback(one.close)
            found.append(one)
        yield tuple(found)


def reopen(array: Any) -> Any:
    """Return another handle on an input."""
    if isinstance(array, InMemory):
        return array
    return DiskArray(array.info, "r", array.hints, array.handle.options)


def _text_error(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path!r} holds text of variable length, which cannot be computed with or converted; read "
        "it and use NumPy",
        code="text-elements",
        path=path,
    )


def _open_input(source: Source) -> Any:
    if isinstance(source, DiskArray):
        source.handle.check_open()
        return reopen(source)
    if isinstance(source, ArrayOnDisk) and isinstance(source.info, Texts):
        raise _text_error(source.path)
    if isinstance(source, str | os.PathLike):
        found = open(one_name(source))
        if isinstance(found.info, Texts):
            found.close()
            raise _text_error(found.path)
        return found
    data = np.asarray(source)
    if data.dtype.hasobject:
        raise UsageError(
            f"an array of dtype {data.dtype} cannot be an input; give numbers, or the path of an array",
            code="bad-dtype",
        )
    return InMemory(data, f"an array of shape {data.shape} in memory")
