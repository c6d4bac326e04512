"""
Blocks: iterate over an array that does not fit in memory.

Problem: an algorithm needs to see the whole array, one block at a time, within the budget.
Approach: tiles of whole chunks (`outcore.arrays.tiling`), in the order of the file. While the caller
works on a block, the next is read in the background. Elements shared by neighbouring blocks are copied
from the previous block instead of being read again (``read_with_reuse`` of the PASSION papers). If not
even one chunk, or a slab of chunks, fits, chunks are cut and decoded repeatedly: the report of the loop
has the number of decodings and a sufficient budget. A section is treated as a separate array, in tiles
that suit the chunks that it touches; arithmetic gives their position in the array (`sections`).

Invariants: at most three blocks exist at once (the one that the caller may still use, the one being
returned, the one being read); two, if the caller releases each block before asking for the next. A loop
starts only with memory for these blocks and for reading them, whatever other loops do
(``_core.Array.begin_loop``), so a loop that starts also ends. A buffer is reused only when no other
object refers to it. The shared part is copied before the caller, who may change the block, sees it.

Reference: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel I/O".
"""

from __future__ import annotations

import math
import mmap
import operator
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays import tiling
from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Reuse,
    Schedule,
    ScheduleRun,
    ScheduleStep,
    get_shape,
)
from outcore.arrays.tiling import Side, Tiling
from outcore.base.report import BlocksReport
from outcore.base.sections import Selection
from outcore.errors import StaysInProcess, UsageError
from outcore.formats.layout import share_bytes

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = ["Blocks", "copy_blocks", "copy_section", "walk"]

#: Slices; for a section with other axes than the array, also integers and None.
Key = tuple[Any, ...]

# Blocks that exist at once: if the caller may keep one, and if it does not.
_ALIVE, _COPIED = 3, 2
# Larger blocks are not faster: a block just read should still be in the cache of the processor.
_LARGEST = 16 * 2**20
# A loop without memory for blocks of a row, or of this many bytes, raises `BudgetError`.
_SMALLEST = 64 * 2**10


class Blocks(StaysInProcess, Iterator[tuple[Key, NDArray[Any]]]):
    """
    An iterator of ``(key, data)`` over the blocks of an array, created by `DiskArray.blocks`.

    Its memory is released at its end, by `close`, or when the object is deleted.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.arange(10.0))
    >>> loop = a.blocks(shape=4)
    >>> loop.report.blocks
    3
    >>> loop.close()
    """

    _elsewhere = "send the array, and call blocks() there"

    def __init__(
        self,
        steps: Generator[tuple[Key, NDArray[Any]], None, None],
        loop: _core.Loop | None,
        report: Callable[[], BlocksReport],
        section: Selection | None = None,
    ) -> None:
        self._steps, self._loop, self._report = steps, loop, report
        self._section = section
        self._within: tuple[slice, ...] | None = None

    @property
    def within(self) -> tuple[slice, ...]:
        """
        Position of the last returned block in the section: a slice for each axis of ``a[key]``.

        In a loop over the whole array it equals the key.

        Raises
        ------
        UsageError
            ``bad-blocks``: no block has been returned yet.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> loop, half = a.blocks(shape=2, key=np.s_[::2]), np.zeros(5)
        >>> for key, data in loop:
        ...     half[loop.within] = data
        >>> key, loop.within, half
        ((slice(8, 9, None),), (slice(4, 5, None),), array([0., 2., 4., 6., 8.]))
        """
        if self._within is None:
            raise UsageError(
                "the loop has not returned a block yet; call next() first",
                code="bad-blocks",
            )
        return self._within

    @property
    def report(self) -> BlocksReport:
        """Description of the whole loop: its blocks, and how often chunks are decoded."""
        return self._report()

    def __next__(self) -> tuple[Key, NDArray[Any]]:
        part, data = next(self._steps)
        self._within = part
        return part if self._section is None else self._section.within(part), data

    def close(self) -> None:
        """
        End the loop and release its memory. Closing twice does nothing.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> loop = a.blocks(shape=4)
        >>> key, data = next(loop)
        >>> loop.close()
        >>> list(loop)
        []
        """
        self._steps.close()
        if self._loop is not None:
            self._loop.release()  # also if the loop never started


@dataclass(slots=True)
class _BlockPlan:
    """A plan for cutting an array into blocks as large as memory allows, of whole chunks if possible."""

    array: DiskArray
    source: Side
    target: Side
    axis: int | None = None
    overlap: int = 0
    #: Number of blocks that exist at once.
    alive: int = _ALIVE
    #: Additional bytes for writing a block such that each chunk is encoded once.
    besides: int = 0
    #: The blocks, if the caller specified them.
    given: Tiling | None = None
    #: The section that the loop covers, if it is not the whole array.
    section: Selection | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the section that the loop covers."""
        return self.array.shape if self.section is None else self.section.shape

    @property
    def size(self) -> int:
        """Number of elements that the loop covers."""
        return math.prod(self.shape)

    def compute_held_bytes(self, tiles: Tiling) -> int:
        """Return the bytes of all blocks that exist at once."""
        return min(len(tiles), self.alive) * math.prod(tiles.largest) * self.array.dtype.itemsize

    def choose_blocks(self, room: int) -> Tiling:
        """Return blocks that take at most `room` bytes together, or otherwise as few as possible."""
        if self.given is not None:
            return self.given
        item, least = max(self.array.dtype.itemsize, 1), self._compute_least_elements()
        for spare in {self.besides: None, 0: None}:
            left = max(room - spare, 0)
            # Leave a share for reading if possible.
            share = left // (self.alive + 1)
            for most in (min(share, _LARGEST), share, left // self.alive):
                tiles = self._of(most // item, cut=False) if most // item >= least else 0
                if isinstance(tiles, Tiling) and self._is_once(tiles):
                    return tiles
            whole = self.make_whole_tiling()
            if self.compute_held_bytes(whole) <= left:
                return whole
        tiles = self._of(max(share // item, least), cut=True)
        thicker = self._of(max(left // self.alive // item, least), cut=True)
        if isinstance(tiles, Tiling) and isinstance(thicker, Tiling):
            # Decoding a third less is worth more than the memory left for reading.
            rather = 3 * sum(self.count_work(thicker)) <= 2 * sum(self.count_work(tiles))
            tiles = thicker if rather else tiles
        if isinstance(tiles, int) or self.compute_held_bytes(tiles) > room:
            tiles = self._of(least, cut=True)
        if isinstance(tiles, int) or self.compute_held_bytes(whole) < self.compute_held_bytes(
            tiles
        ):
            return whole
        return tiles

    def compute_sufficient_bytes(self) -> int:
        """Return the bytes of blocks with which each chunk is handled once."""
        source, target = self.source, self.target
        most = tiling.find_smallest(
            self.shape, source, target, axis=self.axis, overlap=self.overlap
        )
        blocks = self.alive * most * self.array.dtype.itemsize
        return min(blocks, self.compute_held_bytes(self.make_whole_tiling())) + self.besides

    def _of(self, most: int, *, cut: bool) -> Tiling | int:
        shape = self.shape
        how: dict[str, Any] = {"axis": self.axis, "overlap": self.overlap, "cut": cut}
        return tiling.choose(shape, self.source, self.target, most, **how)

    def make_whole_tiling(self) -> Tiling:
        return Tiling(self.shape, tuple(max(n, 1) for n in self.shape), self.target.order)

    def _is_once(self, tiles: Tiling) -> bool:
        return self.count_work(tiles) == self.count_work(self.make_whole_tiling())

    def count_work(self, tiles: Tiling) -> tuple[int, int, int]:
        """Return the numbers of chunks decoded, chunks encoded and shards written."""
        source, target = self.source, self.target
        decodes = tiling.count_passes(tiles, source.chunks, source) if source.whole else 0
        if target is source:
            return decodes, 0, 0
        encodes = tiling.count_passes(tiles, target.chunks, target) if target.whole else 0
        shards = tiling.count_passes(tiles, target.shards, target) if target.shards else 0
        return decodes, encodes, shards

    def _compute_least_elements(self) -> int:
        """Return the number of elements of the smallest blocks that are worth reading."""
        shape, item = self.shape, max(self.array.dtype.itemsize, 1)
        if not shape:
            return 1
        if self.axis is not None:
            length = max(shape[self.axis], 1)
            return self.size // length * min(1 + self.overlap, length)
        row = self.size // max(shape[_find_slowest(self.array, len(shape))], 1)
        side = self.target if self.target.whole else self.source
        chunk = math.prod(side.chunks) if side.chunks and side.whole else row
        return max(min(row, chunk, _SMALLEST // item), 1)


def walk(
    array: DiskArray,
    axis: SupportsIndex | Sequence[int | None] | None = None,
    shape: Sequence[int | None] | int | None = None,
    overlap: Sequence[int] | int = 0,
    key: Any = None,
) -> Blocks:
    """Start a loop; see `DiskArray.blocks`."""
    section = None if key is None else Selection.of_disk(array, key)
    return _begin(_plan_blocks(array, axis, shape, overlap, section), None)


def copy_section(array: DiskArray, target: DiskArray, key: Any) -> None:
    """Copy an array on disk into a section: ``target[key] = array``."""
    if array.size == 1:
        target.handle.core.write(key, array[...])
    elif share_bytes(target.info, array.info):
        _check_match(array, target, key)
        # As in NumPy, read everything before overwriting any of it.
        with _core.Reservation("copying an array onto itself", array.nbytes):
            target.handle.core.write(key, array[...])
    else:
        for part, data in copy_blocks(array, target, key):
            target.handle.core.write_part(key, part, data)
            del data  # the block after the next one uses its memory


def _check_match(array: DiskArray, target: DiskArray, key: Any) -> None:
    shape = target.handle.core.shape_of(key)
    if array.shape != shape:
        raise UsageError(
            f"{array.path!r} has shape {array.shape}, but the section of {target.path!r} has "
            f"{shape}; an array on disk is not broadcast: read it first (source[...]) if it fits "
            "in memory",
            code="broadcast",
            path=target.path,
        )


def copy_blocks(array: DiskArray, target: DiskArray, key: Any) -> Blocks:
    """
    Start a loop whose caller writes each block to the section `key` of `target` and then releases it.

    The blocks consist of whole chunks (or shards) of both arrays; chunks of the target take precedence.
    The loop also reserves memory for writing.
    """
    _check_match(array, target, key)
    source = _read_side(array)
    ranges, axes, _ = target.handle.core.section_of(key)
    section = list(zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True))
    there = Side.of(target.info).section(section, axes)
    cast = 0
    if array.dtype != target.dtype and there.whole:
        # Units that are stored whole are first converted to the new type.
        unit = there.shards or there.chunks or ()
        cast = -(-math.prod(unit) * target.dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    return _begin(_BlockPlan(array, source, there, alive=_COPIED, besides=cast), target)


def _begin(way: _BlockPlan, target: DiskArray | None) -> Blocks:
    array = way.array
    chosen: Tiling
    loop = None
    if way.size:

        def count_held_bytes(room: int) -> int:
            nonlocal chosen
            chosen = way.choose_blocks(room)
            return way.compute_held_bytes(chosen)

        loop = array.handle.core.begin_loop(
            count_held_bytes, None if target is None else target.handle.core
        )
    else:
        chosen = way.choose_blocks(0)
    least = 0 if loop is None else loop.least
    others = max(_core.memory_state()[0] - way.compute_held_bytes(chosen), 0)
    steps = _iterate(array, chosen, loop, way.section)

    def report() -> BlocksReport:
        return _create_report(way, chosen, least, others, target)

    return Blocks(steps, loop, report, way.section)


def _create_report(
    way: _BlockPlan, tiles: Tiling, least: int, others: int, target: DiskArray | None
) -> BlocksReport:
    array = way.array
    decodes, encodes, writes = way.count_work(tiles)
    chunks, written, shards = way.count_work(way.make_whole_tiling())
    once = (decodes, encodes, writes) == (chunks, written, shards)
    return BlocksReport(
        path=array.path,
        target=None if target is None else target.path,
        shape=tiles.largest,
        blocks=len(tiles),
        bytes=way.size * array.dtype.itemsize,
        held_bytes=way.compute_held_bytes(tiles),
        least_bytes=least,
        chunks=chunks,
        decodes=decodes,
        written_chunks=written,
        encodes=encodes,
        shards=shards,
        shard_writes=writes,
        has_given_shape=way.given is not None,
        needed=None
        if once or way.given is not None
        else way.compute_sufficient_bytes() + least + others,
        budget=array.budget,
    )


def _read_side(array: DiskArray) -> Side:
    """Return the array as a source: its chunks must be whole, its shards need not be."""
    return replace(Side.of(array.info), shards=None)


def _find_slowest(array: DiskArray, ndim: int) -> int:
    return 0 if array.order == "C" else ndim - 1


def _plan_blocks(
    array: DiskArray,
    axis: SupportsIndex | Sequence[int | None] | None,
    shape: Sequence[int | None] | int | None,
    overlap: Sequence[int] | int,
    section: Selection | None = None,
) -> _BlockPlan:
    full = array.shape if section is None else section.shape
    ndim = len(full)
    side = _read_side(array) if section is None else section.side(_read_side(array))
    if axis is not None and shape is not None:
        raise UsageError("blocks() takes axis= or shape=, not both", code="bad-blocks")
    if isinstance(axis, Sequence):
        axis, shape = None, axis
    if shape is not None:
        shared = _expand_overlap(overlap, ndim, range(ndim))
        given = _parse_integers(
            shape, ndim, "shape", "an integer of at least 1, or None for the whole axis"
        )
        if any(n is not None and n < 1 for n in given):
            raise UsageError(
                f"blocks: shape {shape} is not valid for {ndim} axes; pass an integer of at least "
                "1 (None: the whole axis) per axis",
                code="bad-blocks",
            )
        sizes = tuple(
            length if n is None else min(n, max(length, 1))
            for n, length in zip(given, full, strict=True)
        )
        _check_overlap(full, sizes, shared)
        regular = _make_regular_tiling(full, array.order, sizes, shared)
        return _BlockPlan(array, side, side, given=regular, section=section)
    slow = _find_slowest(array, ndim)
    if axis is not None:
        # A value that is not an integer is not an axis.
        slow = operator.index(axis) if hasattr(axis, "__index__") else ndim
    if ndim and not -ndim <= slow < ndim:
        raise UsageError(
            f"blocks: axis {axis} is out of range for {ndim} axes; pass one of {-ndim}..{ndim - 1}",
            code="bad-blocks",
        )
    slow %= max(ndim, 1)
    shared = _expand_overlap(overlap, ndim, (slow,))
    _check_overlap(full, full, shared)
    both = shared[slow] if ndim else 0
    # Cut slabs if requested, or if neighbours overlap; otherwise blocks may be cut anywhere.
    slabs = ndim > 0 and (axis is not None or both > 0)
    return _BlockPlan(
        array, side, side, axis=slow if slabs else None, overlap=both, section=section
    )


def _make_regular_tiling(
    shape: tuple[int, ...], order: str, sizes: tuple[int, ...], shared: tuple[int, ...]
) -> Tiling:
    """Return blocks of the given sizes and overlaps; the last blocks are smaller."""
    axes = list(zip(shape, sizes, shared, strict=True))
    both = tuple(n if length > size else 0 for length, size, n in axes)
    tile = tuple(max(size - n, 1) for size, n in zip(sizes, both, strict=True))
    return Tiling(shape, tile, order, tuple(-n for n in both), both)


def _check_overlap(shape: tuple[int, ...], sizes: tuple[int, ...], shared: tuple[int, ...]) -> None:
    for d, (size, both, length) in enumerate(zip(sizes, shared, shape, strict=True)):
        if both < 0:
            raise UsageError(
                f"blocks: an overlap of {both} on axis {d} is not valid; pass at least 0",
                code="bad-blocks",
            )
        if length > size and both >= size:
            raise UsageError(
                f"blocks: an overlap of {both} on axis {d} needs blocks longer than {size}; "
                "make the blocks larger or the overlap smaller",
                code="bad-blocks",
            )


def _expand_overlap(
    overlap: Sequence[int] | int, ndim: int, axes: Sequence[int]
) -> tuple[int, ...]:
    given = _parse_integers(overlap, ndim, "overlap", "an integer of at least 0")
    if not np.iterable(overlap):
        given = [n if d in axes else 0 for d, n in enumerate(given)]
    return tuple(n or 0 for n in given)


def _parse_integers(value: Any, ndim: int, name: str, wanted: str) -> list[int | None]:
    """Return a list of one integer per axis, from one integer or one or None per axis."""
    try:
        values = tuple(value) if np.iterable(value) else (value,) * ndim
        if len(values) == ndim:
            return [None if n is None else operator.index(n) for n in values]
    except TypeError:
        pass
    raise UsageError(
        f"blocks: {name} {value!r} does not match {ndim} axes; pass {wanted}, or one per axis",
        code="bad-blocks",
    )


def _iterate(
    array: DiskArray, tiles: Tiling, loop: _core.Loop | None, section: Selection | None
) -> Generator[tuple[Key, NDArray[Any]], None, None]:
    """Yield ``(part, data)`` for all blocks (of the section, if there is one), reading one ahead."""
    if loop is None:
        return
    memory = _Buffers(array, tiles.largest)
    try:
        with ScheduleRun(_create_schedule(array, tiles, section), (array,), memory=memory) as run:
            for number in range(len(tiles)):
                loop.step()
                blocks = run.load()
                if blocks is None:
                    return
                yield tiles.key(number), blocks.pop()
                run.store()
    finally:
        loop.release()


def _create_schedule(array: DiskArray, tiles: Tiling, section: Selection | None) -> Schedule:
    """Return the schedule of a loop: one step per block, which reuses elements of the previous block."""

    def load(part: Key, at: Key | None = None) -> Load:
        if section is None:
            return Load(0, part, 0, at)
        there = section.make_array_slices(part)
        return Load(0, there, 0, at, shape=None if section.keeps_axes else get_shape(there))

    def step(number: int) -> ScheduleStep:
        key = tiles.key(number)
        block = (Block(0, _get_shape(key)),)
        before = tiles.key(number - 1) if number else key
        axis = _find_moving_axis(before, key)
        shared = 0 if axis is None else before[axis].stop - key[axis].start
        if axis is None or shared <= 0:
            return ScheduleStep(block, (load(key),))
        there, here, rest, place = (list(_get_whole(key)) for _ in range(4))
        length = before[axis].stop - before[axis].start
        there[axis], here[axis] = slice(length - shared, length), slice(0, shared)
        place[axis] = slice(shared, key[axis].stop - key[axis].start)
        rest = list(key)
        rest[axis] = slice(key[axis].start + shared, key[axis].stop)
        return ScheduleStep(
            block,
            (load(tuple(rest), tuple(place)),),
            reuses=(Reuse(0, tuple(here), 0, tuple(there)),),
        )

    buffer = Buffer(math.prod(tiles.largest), array.dtype, array.order, copies=_COPIED)
    return Schedule("blocks", (array.path,), (buffer,), len(tiles), step)


def _find_moving_axis(key: Key, after: Key) -> int | None:
    """Return the only axis on which `after` differs from `key`, or None."""
    moved = [d for d, (a, b) in enumerate(zip(key, after, strict=True)) if a != b]
    return moved[0] if len(moved) == 1 else None


def _get_shape(key: Key) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in key)


def _get_whole(key: Key) -> Key:
    return tuple(slice(0, n) for n in _get_shape(key))


class _Buffers:
    """Memory of the blocks, reused when the caller has released it."""

    def __init__(self, array: DiskArray, shape: tuple[int, ...]) -> None:
        self._shape, self._dtype, self._order = shape, array.dtype, array.order
        self._owned: list[NDArray[Any]] = []

    def has(self, buffer: int, copies: int = 1) -> bool:
        """Return True: a buffer that the caller keeps becomes its own memory."""
        return True

    def take(self, buffer: int, lead: int = 0) -> NDArray[Any]:
        """Return a buffer that no object refers to, or a new one."""
        for number in range(len(self._owned)):
            # Two references: the list and the argument. Any view adds one.
            if sys.getrefcount(self._owned[number]) <= 2:
                return self._owned[number]
        # The caller keeps the old buffers: they are its memory now, like any result.
        del self._owned[: max(0, len(self._owned) - _ALIVE + 1)]
        fresh = np.empty(self._shape, self._dtype, order="F" if self._order == "F" else "C")
        self._owned.append(fresh)
        return fresh

    def give(self, buffer: int, copy: NDArray[Any]) -> None:
        """Do nothing: `take` counts references instead."""

    def view(self, block: Block, copy: NDArray[Any]) -> NDArray[Any]:
        """Return the corner of `copy` that a block uses."""
        part: tuple[Any, ...] = (*(slice(0, n) for n in block.shape), ...)
        return copy[part]  # type: ignore[no-any-return]

    def close(self) -> None:
        """Release all buffers."""
        self._owned.clear()
