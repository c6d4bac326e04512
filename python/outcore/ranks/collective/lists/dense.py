"""
File domains whose elements are mostly requested: owners access them as sections, block by block.

Problem. If a list touches all pages of a domain, finding out which ones takes longer than reading them;
for a permuted array, the domain of an owner is a contiguous range of the file. Approach. The range is
read block by block, one block ahead, as any section, at the speed of the disk or of a copy. Listed
elements are copied from a block while it is in the processor cache. If a list names every element of a
domain, values are put into blocks, which are written as a whole; nothing needs to be read.

Invariants. Elements that no rank names are not written. Of several values for one element, the last
value of the highest rank counts: for each block, elements are processed rank by rank, and for each rank
in the order of its list.

Reference: Thakur and others, "PASSION Runtime Library for Parallel I/O", section 4.2 (data sieving).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.formats.layout import Strided

__all__ = ["DenseRange", "is_dense"]

# Blocks use a pool of one thread, not `Background`: a new thread for each took a third more time.
# Approximate bytes of a block: it fits the second-level cache of a processor, and a disk reads it at
# full rate.
_BLOCK = 2 << 20
# A range is read as a whole if at least one of `_SPARSE` elements is requested. Elements larger than
# `_SMALL` bytes justify separate requests.
_SPARSE, _SMALL = 2, 512


def is_dense(number: int, elements: int, row: int) -> bool:
    """
    Return whether to read a whole range of `elements` of `row` bytes for a list of `number` of them.

    Examples
    --------
    >>> is_dense(60, 100, 8), is_dense(10, 100, 8), is_dense(60, 100, 1 << 20)
    (True, False, False)
    """
    return 0 < elements <= _SPARSE * number and 0 < row <= _SMALL


def _is_at_least(edge: int, element: np.int64) -> bool:
    return bool(element >= edge)


class DenseRange:
    """
    Listed elements of the range from `low` to `high` of the first axis.

    `flat` has their numbers, rank after rank, for each rank window by window of the file: `counts` of
    each rank, `window` elements per window, `row` bytes per element. `rest` has the start, count and
    step of every axis.
    """

    def __init__(
        self,
        flat: NDArray[np.int64],
        counts: NDArray[np.int64],
        low: int,
        high: int,
        window: int,
        row: int,
        rest: list[int],
    ) -> None:
        self._flat, self._low, self._high = flat, low, high
        # Whole windows, because the elements of a window are contiguous in the list of a rank.
        self._each = max(_BLOCK // max(window * row, 1), 1) * window
        # Elements of the largest block: the range may be shorter than a block.
        self._most, self._row = min(self._each, high - low), row
        self._first = low // window * window
        self._key = tuple(
            slice(start, start + (count - 1) * step + 1, step) if count else slice(0, 0)
            for start, count, step in zip(rest[3::3], rest[4::3], rest[5::3], strict=True)
        )
        # Start of the elements of each block, for each rank. Blocks ascend, so it is found by binary
        # search.
        edges = range(self._first + self._each, high, self._each)
        self._runs: list[list[int]] = []
        start = 0
        for count in counts.tolist():
            some = flat[start : start + count]
            inner = [
                start + bisect_left(some, True, key=partial(_is_at_least, edge)) for edge in edges
            ]
            start += count
            self._runs.append([start - count, *inner, start])
        self._covers: bool | None = None

    def is_suitable_for(self, array: outcore.DiskArray) -> bool:
        """
        Return whether rows of an array of the same shape are contiguous and its blocks fit the budget.

        If the blocks do not fit the memory budget well, elements are accessed one by one.
        """
        fits = self._most * (2 * self._row + 8) <= _core.memory_state()[1] // 4
        return fits and isinstance(array.info.layout, Strided) and array.order == "C"

    def _iterate_blocks(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Yield the bounds of each block, and the positions of the elements of each rank in the list."""
        for number, first in enumerate(range(self._first, self._high, self._each)):
            bounds = [(run[number], run[number + 1]) for run in self._runs]
            yield max(first, self._low), min(first + self._each, self._high), bounds

    @contextmanager
    def _reserve_buffers(self, shape: tuple[int, ...], dtype: Any) -> Iterator[list[NDArray[Any]]]:
        nbytes = self._most * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with _core.Reservation("blocks of a file domain", 2 * nbytes + 8 * self._most):
            yield [np.empty((self._most, *shape), dtype) for _ in range(2)]

    def read(self, core: _core.Array, out: NDArray[Any]) -> None:
        """Read the elements into `out`, a row for each."""
        blocks = list(self._iterate_blocks())
        with (
            self._reserve_buffers(out.shape[1:], out.dtype) as buffers,
            ThreadPoolExecutor(1, "outcore-domain") as ahead,
        ):

            def load(number: int) -> NDArray[Any]:
                low, high, _ = blocks[number]
                block = buffers[number % 2][: high - low]
                core.read((slice(low, high), *self._key), block)
                return block

            following = ahead.submit(load, 0)
            for number, (low, _, bounds) in enumerate(blocks):
                block = following.result()
                if number + 1 < len(blocks):
                    following = ahead.submit(load, number + 1)
                for begin, end in bounds:
                    if begin < end:
                        where = self._flat[begin:end] - low
                        np.take(block, where, axis=0, out=out[begin:end], mode="clip")

    def is_complete(self) -> bool:
        """Return whether each element of the range is listed."""
        if self._covers is None:
            covers = len(self._flat) >= self._high - self._low
            for low, high, bounds in self._iterate_blocks():
                if not covers:
                    break
                listed = np.zeros(high - low, np.bool)
                for begin, end in bounds:
                    listed[self._flat[begin:end] - low] = True
                covers = bool(listed.all())
            self._covers = covers
        return self._covers

    def write(self, core: _core.Array, values: NDArray[Any]) -> None:
        """Write a row for each element of the range, which must be complete (`is_complete`)."""
        with (
            self._reserve_buffers(values.shape[1:], values.dtype) as buffers,
            ThreadPoolExecutor(1, "outcore-domain") as behind,
        ):
            written: list[Any] = []
            for number, (low, high, bounds) in enumerate(self._iterate_blocks()):
                if number > 1:
                    written[number - 2].result()
                block = buffers[number % 2][: high - low]
                for begin, end in bounds:
                    if begin < end:
                        block[self._flat[begin:end] - low] = values[begin:end]
                key = (slice(low, high), *self._key)
                written.append(behind.submit(core.write, key, block))
            for each in written[-2:]:
                each.result()
