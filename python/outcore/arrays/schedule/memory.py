"""
Where the blocks of a run are in memory.

Problem. A direct read ends where it is wanted, and a direct write begins there, only if memory lies in
its pages as the file does; else all of it is copied. And small pages cost a fault each, and the disk an
entry each.
Idea. A copy of a buffer has a page more than its blocks: a block begins at the byte of a page at which
what is loaded into it does in the file, or else what is stored. Large copies are in huge pages.

Invariants. All bytes are reserved before any is taken, and go back to the system at the end. Blocks
begin at multiples of 16 bytes, and of their elements.

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

__all__ = ["Pages", "lead"]

_PAGE = 4096
_HUGE = 2 * 2**20
# Copies below that have no page more: the core reads shorter runs by another way.
_LED = 2**18
# Blocks begin at multiples of so many bytes: elements of all types may.
_ALIGN = 16


class Pages:
    """
    The copies of all buffers of a schedule.

    Outside the heap, so that they go back to the system at once; in huge pages if the system has them,
    which direct reads and writes are several times faster with.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._buffers = buffers = schedule.buffers
        more = sum(b.copies * _PAGE for b in buffers if _is_led(b))
        self._reserved = _core.Reservation(schedule.name, schedule.held + more)
        self._free = [deque(range(b.copies)) for b in buffers]
        # An array over a mapping keeps it open, one that `numpy.ndarray` makes of it would not.
        self._bytes = [
            [_pages(_each(b) + _PAGE * _is_led(b)) for _ in range(b.copies)] for b in buffers
        ]

    def has(self, buffer: int, copies: int = 1) -> bool:
        """Whether so many copies of a buffer are free."""
        return len(self._free[buffer]) >= copies

    def take(self, buffer: int, lead: int = 0) -> tuple[int, int]:
        """A free copy: its number, and where its block begins."""
        if self._buffers[buffer].kept:
            return 0, 0
        return self._free[buffer].popleft(), lead if _is_led(self._buffers[buffer]) else 0

    def give(self, buffer: int, copy: tuple[int, int]) -> None:
        """A copy is free again."""
        if not self._buffers[buffer].kept:
            self._free[buffer].append(copy[0])

    def view(self, block: Block, copy: tuple[int, int]) -> NDArray[Any]:
        """A block in a copy."""
        buffer, (number, begin) = self._buffers[block.buffer], copy
        order: Literal["C", "F"] = "F" if buffer.order == "F" else "C"
        if not math.prod(block.shape):
            return np.empty(block.shape, buffer.dtype, order)
        memory = self._bytes[block.buffer][number]
        return np.ndarray(block.shape, buffer.dtype, memory, begin, order=order)

    def close(self) -> None:
        """Release it. What somebody still looks at, in a traceback say, goes with the view."""
        self._bytes.clear()
        self._reserved.release()


def lead(load: Load, block: Block, buffer: Buffer, array: Any) -> int:
    """
    Where in a page a block should begin, so that what is loaded (or stored) lies there as in the file.

    Parameters
    ----------
    load
        The load, or the store.
    block, buffer
        Its block, and the buffer of that.
    array
        What it reads, or writes.
    """
    there = _begin(array, load.section)
    if there is None or not _is_led(buffer):
        return 0
    here = 0
    if load.at is not None:
        step, last = buffer.dtype.itemsize, reversed(list(zip(load.at, block.shape, strict=True)))
        for part, n in zip(load.at, block.shape, strict=True) if buffer.order == "F" else last:
            here, step = here + (part.start or 0) * step, step * n
    begin = (there - here) % _PAGE
    return begin if begin % max(_ALIGN, buffer.dtype.alignment) == 0 else 0


def _begin(array: Any, section: Section) -> int | None:
    """Byte of its file at which a section begins, if that is found by arithmetic."""
    layout = getattr(getattr(array, "info", None), "layout", None)
    if not isinstance(layout, Strided) or len(layout.parts) != 1:
        return None
    begin = layout.parts[0].offset
    for part, stride in zip(section, layout.strides, strict=True):
        begin += (part.start or 0) * stride
    return begin


def _each(buffer: Buffer) -> int:
    return buffer.nbytes // max(buffer.copies, 1)


def _is_led(buffer: Buffer) -> bool:
    return not buffer.kept and _each(buffer) >= _LED


def _pages(nbytes: int) -> NDArray[np.uint8]:
    # Private: memory that forked processes share, Python's default, has no huge pages.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if nbytes < _HUGE:
        return np.frombuffer(mmap.mmap(-1, max(nbytes, 1), flags=flags), np.uint8)
    # A huge page begins at a multiple of its size. What is before the first is never touched, and the
    # last bytes are in small pages, so that no more is taken than was reserved.
    memory = mmap.mmap(-1, nbytes + _HUGE, flags=flags)
    whole = np.frombuffer(memory, np.uint8)
    skipped = -whole.ctypes.data % _HUGE
    with contextlib.suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE, skipped, nbytes // _HUGE * _HUGE)
    return whole[skipped:][:nbytes]
