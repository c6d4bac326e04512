"""
Memory of the blocks of a run.

Problem: a direct read ends at its destination, and a direct write starts there, only if the memory is
aligned with pages like the file; otherwise all of it is copied. In addition, small pages cost one fault
each, and one entry each in requests to the disk.
Approach: a copy of a buffer is one page longer than its blocks. A block begins at the same byte of a
page as the section that is loaded into it does in the file, or else the section that is stored. Large
copies use huge pages.

Invariants: all bytes are reserved before any is used, and are returned to the system at the end. Blocks
begin at multiples of 16 bytes, and of their element size.

Reference: docs/design/0017.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections import deque
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule.value import Block, Buffer, Load, Schedule, Section
from outcore.formats.layout import Strided

__all__ = ["Pages", "find_lead"]

_PAGE = 4096
_HUGE = 2 * 2**20
# Smaller copies have no additional page: the core reads shorter runs with another method.
_LED = 2**18
# Alignment of blocks in bytes, sufficient for elements of all types.
_ALIGN = 16


class Pages:
    """
    The copies of all buffers of a schedule.

    They are outside the heap, so that they return to the system immediately, and in huge pages if the
    system has them, which makes direct reads and writes several times faster.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._buffers = buffers = schedule.buffers
        more = sum(b.copies * _PAGE for b in buffers if _is_led(b))
        self._reserved = _core.Reservation(schedule.name, schedule.held + more)
        self._free = [deque(range(b.copies)) for b in buffers]
        # An array created over a mapping keeps it open; one created by `numpy.ndarray` would not.
        self._bytes = [
            [_allocate_pages(_count_bytes(b) + _PAGE * _is_led(b)) for _ in range(b.copies)]
            for b in buffers
        ]

    def has(self, buffer: int, copies: int = 1) -> bool:
        """Return whether this number of copies of a buffer is free."""
        return len(self._free[buffer]) >= copies

    def take(self, buffer: int, lead: int = 0) -> tuple[int, int]:
        """Return a free copy: its number, and the offset of its block."""
        if self._buffers[buffer].kept:
            return 0, 0
        return self._free[buffer].popleft(), lead if _is_led(self._buffers[buffer]) else 0

    def give(self, buffer: int, copy: tuple[int, int]) -> None:
        """Mark a copy as free."""
        if not self._buffers[buffer].kept:
            self._free[buffer].append(copy[0])

    def view(self, block: Block, copy: tuple[int, int]) -> NDArray[Any]:
        """Return a block in a copy."""
        buffer, (number, begin) = self._buffers[block.buffer], copy
        order: Literal["C", "F"] = "F" if buffer.order == "F" else "C"
        if not math.prod(block.shape):
            return np.empty(block.shape, buffer.dtype, order)
        memory = self._bytes[block.buffer][number]
        return np.ndarray(block.shape, buffer.dtype, memory, begin, order=order)

    def close(self) -> None:
        """Release the memory; parts that are still referenced (by a traceback, say) follow later."""
        self._bytes.clear()
        self._reserved.release()


def find_lead(load: Load, block: Block, buffer: Buffer, array: Any) -> int:
    """Return the byte of a page at which a block should begin, to match its section in the file."""
    there = _find_begin(array, load.section)
    if there is None or not _is_led(buffer):
        return 0
    here = 0
    if load.at is not None:
        step, last = buffer.dtype.itemsize, reversed(list(zip(load.at, block.shape, strict=True)))
        for part, n in zip(load.at, block.shape, strict=True) if buffer.order == "F" else last:
            here, step = here + (part.start or 0) * step, step * n
    begin = (there - here) % _PAGE
    return begin if begin % max(_ALIGN, buffer.dtype.alignment) == 0 else 0


def _find_begin(array: Any, section: Section) -> int | None:
    """Return the byte of the file at which a section begins, if arithmetic determines it."""
    layout = None if array.info is None else array.info.layout
    if not isinstance(layout, Strided) or len(layout.parts) != 1:
        return None
    begin = layout.parts[0].offset
    for part, stride in zip(section, layout.strides, strict=True):
        begin += (part.start or 0) * stride
    return begin


def _count_bytes(buffer: Buffer) -> int:
    return buffer.nbytes // max(buffer.copies, 1)


def _is_led(buffer: Buffer) -> bool:
    return not buffer.kept and _count_bytes(buffer) >= _LED


def _allocate_pages(nbytes: int) -> NDArray[np.uint8]:
    # Private: Python's default, memory shared with forked processes, has no huge pages.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if nbytes < _HUGE:
        return np.frombuffer(mmap.mmap(-1, max(nbytes, 1), flags=flags), np.uint8)
    # A huge page begins at a multiple of its size. Memory before the first one is never touched, and
    # the last bytes are in small pages, so that no more is used than was reserved.
    memory = mmap.mmap(-1, nbytes + _HUGE, flags=flags)
    whole = np.frombuffer(memory, np.uint8)
    skipped = -whole.ctypes.data % _HUGE
    with contextlib.suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE, skipped, nbytes // _HUGE * _HUGE)
    return whole[skipped:][:nbytes]
