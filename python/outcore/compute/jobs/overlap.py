"""
Whether two arrays have elements in common.

Problem. A result that is stored over an input is wrong, and so is the input then; and arrays that have
the same elements may look different: two names of one file, a NumPy array over a mapped file.
Idea. Arrays on disk lie in bytes of files, arrays in memory in bytes of memory, and those that are
mapped (`numpy.memmap`) in both.

Invariants. False only if there is no byte in common, as far as NumPy says of what an array lies in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute.jobs.memory import InMemory
from outcore.formats.layout import Strided, file_of, share_bytes

__all__ = ["overlap"]

_Bytes = tuple[tuple[int, int] | str, int, int]


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays, each on disk or in memory, may have elements in common."""
    if isinstance(a, DiskArray) and isinstance(b, DiskArray):
        return share_bytes(a.info, b.info)
    if isinstance(a, InMemory) and isinstance(b, InMemory) and np.may_share_memory(a.data, b.data):
        return True
    theirs = _in_files(b)
    return any(
        file == other and first < end and begin < last
        for file, first, last in _in_files(a)
        for other, begin, end in theirs
    )


def _in_files(array: Any) -> list[_Bytes]:
    """Files in which it lies, the first byte there and the byte behind the last."""
    if isinstance(array, InMemory):
        return _mapped(array.data)
    if isinstance(array, DiskArray) and isinstance(array.info.layout, Strided):
        parts = array.info.layout.parts
        return [(file_of(part.path), part.offset, part.offset + part.nbytes) for part in parts]
    return []  # chunks are in files that nobody maps as an array


def _mapped(data: NDArray[Any]) -> list[_Bytes]:
    first, last = byte_bounds(data)
    base: Any = data
    while base is not None:
        # Views are of this class too, and say where the whole mapping begins.
        if isinstance(base, np.memmap) and not isinstance(base.base, np.memmap):
            if base.filename is None:
                return []
            start = byte_bounds(base)[0] - int(base.offset)
            return [(file_of(str(base.filename)), first - start, last - start)]
        base = getattr(base, "base", None)
    return []
