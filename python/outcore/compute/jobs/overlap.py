"""
Detection of arrays that have elements in common.

Problem. A result that is stored over an input is wrong, and so is that input then; and arrays that
have the same elements may look different: two names of one file, a NumPy array over a mapped file.
Idea. Arrays on disk are ranges of bytes in files, arrays in memory are ranges of addresses, and
mapped arrays (`numpy.memmap`) are both.

Invariants. The result is False only if no byte is shared, as far as NumPy knows the memory of an
array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute.jobs.memory import InMemory
from outcore.formats.layout import Strided, identify_file, share_bytes

__all__ = ["can_overlap"]

_Bytes = tuple[tuple[int, int] | str, int, int]


def can_overlap(a: Any, b: Any) -> bool:
    """Return whether two arrays, each on disk or in memory, may have elements in common."""
    if isinstance(a, DiskArray) and isinstance(b, DiskArray):
        return share_bytes(a.info, b.info)
    if isinstance(a, InMemory) and isinstance(b, InMemory) and np.may_share_memory(a.data, b.data):
        return True
    theirs = _list_byte_ranges(b)
    return any(
        file == other and first < end and begin < last
        for file, first, last in _list_byte_ranges(a)
        for other, begin, end in theirs
    )


def _list_byte_ranges(array: Any) -> list[_Bytes]:
    """List the files that hold an array, each with the first byte and the end of its range."""
    if isinstance(array, InMemory):
        return _list_mapped_ranges(array.data)
    if isinstance(array, DiskArray) and isinstance(array.info.layout, Strided):
        parts = array.info.layout.parts
        return [
            (identify_file(part.path), part.offset, part.offset + part.nbytes) for part in parts
        ]
    return []  # files of chunks are not mapped as arrays


def _list_mapped_ranges(data: NDArray[Any]) -> list[_Bytes]:
    first, last = byte_bounds(data)
    base: Any = data
    while base is not None:
        # Views have this class too, with the offset of the whole mapping.
        if isinstance(base, np.memmap) and not isinstance(base.base, np.memmap):
            if base.filename is None:
                return []
            start = byte_bounds(base)[0] - int(base.offset)
            return [(identify_file(str(base.filename)), first - start, last - start)]
        base = getattr(base, "base", None)
    return []
