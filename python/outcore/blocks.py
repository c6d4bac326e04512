"""
Slabs: walk through an array that does not fit in memory.

Problem. An algorithm wants to see the whole array, a piece at a time, within the budget.
Idea. Blocks of equal shape in the order of the file. While the caller works on one, the next is read
in the background. What neighbouring blocks share is copied from the last block instead of being read
again (``read_with_reuse`` of the PASSION papers).

Invariants. At most three blocks exist at once (the one the caller may still hold, the one being
handed out, the one being read). A loop begins only with memory for these, and with enough left to read
them, whatever other loops do (``_core.Array.begin_loop``): so one that begins ends. A buffer is used
again only when nobody but us refers to it. The shared part is copied before the caller sees the block,
who may change it.

Reference: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel I/O".
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError

if TYPE_CHECKING:
    from outcore import _core
    from outcore.disk import DiskArray
    from outcore.requests import IORequest

__all__ = ["walk"]

Key = tuple[slice, ...]

_ALIVE = 3
# Larger blocks are no faster: what was just read should still be in the processor's cache.
_LARGEST = 16 * 2**20


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Shape of the blocks and the elements that neighbours share, per axis."""

    shape: tuple[int, ...]
    overlap: tuple[int, ...]

    def starts(self, axis: int, length: int) -> range:
        """First indices of the blocks along `axis` of an array of this `length`."""
        size, shared = self.shape[axis], self.overlap[axis]
        if length <= size:
            return range(0, min(length, 1))
        return range(0, length - shared, size - shared)

    def bytes_held(self, array: DiskArray) -> int:
        """Bytes of all blocks that exist at once."""
        blocks = math.prod(len(self.starts(d, n)) for d, n in enumerate(array.shape))
        return min(blocks, _ALIVE) * math.prod(self.shape) * array.dtype.itemsize


# Chooses blocks that take at most so many bytes together, or else as few as possible.
Choose = Callable[[int], BlockShape]


def walk(
    array: DiskArray,
    axis: SupportsIndex | Sequence[int | None] | None = None,
    shape: Sequence[int | None] | int | None = None,
    overlap: Sequence[int] | int = 0,
    target: DiskArray | None = None,
) -> Iterator[tuple[Key, NDArray[Any]]]:
    """
    Begin a loop; see `DiskArray.blocks`.

    If the caller copies the blocks to `target`, there will be memory for that, too.
    """
    choose = _chooser(array, axis, shape, overlap)
    chosen = choose(0)
    if array.size == 0:
        return iter(())

    def held(room: int) -> int:
        nonlocal chosen
        chosen = choose(room)
        return chosen.bytes_held(array)

    loop = array._core.begin_loop(held, None if target is None else target._core)
    return _iterate(array, chosen, loop)


def _chooser(
    array: DiskArray,
    axis: SupportsIndex | Sequence[int | None] | None,
    shape: Sequence[int | None] | int | None,
    overlap: Sequence[int] | int,
) -> Choose:
    ndim = array.ndim
    if axis is not None and shape is not None:
        raise UsageError("blocks() takes axis= or shape=, not both", code="bad-blocks")
    if isinstance(axis, Sequence):
        axis, shape = None, axis
    if shape is not None:
        shared = _per_axis(overlap, ndim, range(ndim))
        given = _integers(
            shape, ndim, "shape", "an integer of at least 1, or None for the whole axis"
        )
        if any(n is not None and n < 1 for n in given):
            raise UsageError(
                f"blocks: shape {shape} for {ndim} axes; give an integer of at least 1 (None: the "
                "whole axis) per axis",
                code="bad-blocks",
            )
        sizes = tuple(
            length if n is None else min(n, max(length, 1))
            for n, length in zip(given, array.shape, strict=True)
        )
        _check_overlap(array, sizes, shared)
        block = BlockShape(sizes, shared)
        return lambda room: block
    slow = 0 if array.order == "C" else ndim - 1
    if axis is not None:
        # What is no integer is no axis.
        slow = operator.index(axis) if hasattr(axis, "__index__") else ndim
    if ndim and not -ndim <= slow < ndim:
        raise UsageError(
            f"blocks: axis {axis} of {ndim} axes; give one of {-ndim}..{ndim - 1}",
            code="bad-blocks",
        )
    slow %= max(ndim, 1)
    shared = _per_axis(overlap, ndim, (slow,))
    _check_overlap(array, array.shape, shared)
    return lambda room: _slab(array, slow, shared, room)


def _check_overlap(array: DiskArray, sizes: tuple[int, ...], shared: tuple[int, ...]) -> None:
    for d, (size, both, length) in enumerate(zip(sizes, shared, array.shape, strict=True)):
        if both < 0:
            raise UsageError(
                f"blocks: an overlap of {both} on axis {d}; it is at least 0", code="bad-blocks"
            )
        if length > size and both >= size:
            raise UsageError(
                f"blocks: an overlap of {both} on axis {d} needs blocks of more than {size}; "
                "make the blocks larger or the overlap smaller",
                code="bad-blocks",
            )


def _per_axis(overlap: Sequence[int] | int, ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    given = _integers(overlap, ndim, "overlap", "an integer of at least 0")
    if not np.iterable(overlap):
        given = [n if d in axes else 0 for d, n in enumerate(given)]
    return tuple(n or 0 for n in given)


def _integers(value: Any, ndim: int, name: str, wanted: str) -> list[int | None]:
    """One integer, or one or None per axis, as a list."""
    try:
        values = tuple(value) if np.iterable(value) else (value,) * ndim
        if len(values) == ndim:
            return [None if n is None else operator.index(n) for n in values]
    except TypeError:
        pass
    raise UsageError(
        f"blocks: {name} {value!r} for {ndim} axes; give {wanted}, or one per axis",
        code="bad-blocks",
    )


def _slab(array: DiskArray, axis: int, shared: tuple[int, ...], room: int) -> BlockShape:
    """The thickest slab across `axis` that leaves a share to read with, in whole chunks if possible."""
    if not array.shape:
        return BlockShape((), ())
    length, both = array.shape[axis], shared[axis]
    row = max(1, array.nbytes // max(length, 1))
    each = room // (_ALIVE + 1)

    def slab(thickness: int) -> BlockShape:
        most = min(thickness, length)
        sizes = tuple(most if d == axis else n for d, n in enumerate(array.shape))
        return BlockShape(sizes, shared)

    most = max(1 + both, min(each, _LARGEST) // row)
    if array.chunks is not None and most < length:
        # Whole chunks, even if large: a chunk that is cut is decoded twice.
        chunk = array.chunks[axis]
        whole = (most - both) // chunk * chunk or chunk
        most = whole + both if (whole + both) * row <= each else most
    if slab(most).bytes_held(array) <= room:
        return slab(most)
    # The least: three thin slabs, or two, or all at once, as these share nothing.
    two = both + -(-(length - both) // 2)
    thin = [slab(n) for n in (1 + both, two, length) if n > both]
    return min(thin, key=lambda block: block.bytes_held(array))


def _iterate(
    array: DiskArray, block: BlockShape, loop: _core.Loop
) -> Iterator[tuple[Key, NDArray[Any]]]:
    """Yield ``(key, data)`` for all blocks, reading one ahead."""
    keys = _keys(array, block)
    # The axis that moves from one block to the next, along which the overlap is kept.
    fast = array.ndim - 1 if array.order == "C" else 0
    buffers = _Buffers(array, block.shape)
    ahead: _Block | None = None
    try:
        after = next(keys, None)
        while (key := after) is not None:
            after = next(keys, None)
            loop.step()
            current = ahead or _start(array, buffers, key, None, 0)
            ahead = None
            current.request.wait()
            if after is not None:
                ahead = _start(array, buffers, after, current, _moving_axis(key, after, fast))
            data = current.data
            del current
            yield key, data
            del data
    finally:
        if ahead is not None:
            # Its memory must not be written any more; its error is of a block nobody came to.
            ahead.request.cancel()
            ahead.request.finish(unwanted=True)
        loop.release()


@dataclass(slots=True)
class _Block:
    key: Key
    data: NDArray[Any]
    request: IORequest[NDArray[Any]]


def _keys(array: DiskArray, block: BlockShape) -> Iterator[Key]:
    """Keys of all blocks, in the order of the file."""
    starts = [block.starts(d, n) for d, n in enumerate(array.shape)]
    slowest_first = array.order != "F"
    for corner in itertools.product(*(starts if slowest_first else reversed(starts))):
        yield tuple(
            slice(at, min(at + n, length))
            for at, n, length in zip(
                corner if slowest_first else reversed(corner), block.shape, array.shape, strict=True
            )
        )


def _moving_axis(key: Key, after: Key, fast: int) -> int | None:
    """The only axis on which `after` differs from `key`, if there is one."""
    moved = [d for d, (a, b) in enumerate(zip(key, after, strict=True)) if a != b]
    return moved[0] if len(moved) == 1 else None


def _start(
    array: DiskArray, buffers: _Buffers, key: Key, last: _Block | None, axis: int | None
) -> _Block:
    """Begin to read the block `key`; take from `last` what both hold."""
    data = buffers.take(tuple(s.stop - s.start for s in key))
    if last is not None and axis is not None:
        shared = last.key[axis].stop - key[axis].start
        if shared > 0:
            head = [slice(None)] * array.ndim
            tail = list(head)
            head[axis], tail[axis] = slice(0, shared), slice(-shared, None)
            data[tuple(head)] = last.data[tuple(tail)]
            rest = list(key)
            rest[axis] = slice(key[axis].start + shared, key[axis].stop)
            head[axis] = slice(shared, None)
            request = array.iread(tuple(rest), out=data[tuple(head)])
            return _Block(key, data, request)
    return _Block(key, data, array.iread(key, out=data))


class _Buffers:
    """Memory of the blocks, used again when the caller has let go of it."""

    def __init__(self, array: DiskArray, shape: tuple[int, ...]) -> None:
        self._shape, self._dtype, self._order = shape, array.dtype, array.order
        self._owned: list[NDArray[Any]] = []

    def take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        part: tuple[Any, ...] = (*(slice(0, n) for n in shape), ...)
        for number in range(len(self._owned)):
            # Two references: the list and the argument. A view anywhere is one more.
            if sys.getrefcount(self._owned[number]) <= 2:
                return self._owned[number][part]  # type: ignore[no-any-return]
        # Somebody keeps the old ones: they are the caller's memory now, like any result.
        del self._owned[: max(0, len(self._owned) - _ALIVE + 1)]
        fresh = np.empty(self._shape, self._dtype, order="F" if self._order == "F" else "C")
        self._owned.append(fresh)
        return fresh[part]  # type: ignore[no-any-return]
