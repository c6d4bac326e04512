"""
Search of values in a sorted array on disk.

Problem. A binary search of each value jumps through the whole array: one request for each step of
each value. Reading everything for three values is no better.
Idea. Many values: blocks of values stay in memory while the array streams by; the position of a
value is the sum of its positions in the blocks. Few values: some elements at equal distances show
between which of them each value is, and only that part is read. The measured speed of the disk
decides.

An array that is not sorted but comes with its sorting indices need not be gathered in that order:
each block is sorted separately, since positions still add up.

Invariants. The result is NumPy's for every cut: positions in sorted blocks add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import cut_slabs
from outcore.base.report import format_count
from outcore.compute.jobs import (
    SMALLEST,
    Bound,
    DeferredPhase,
    InMemory,
    Operation,
    Program,
    Result,
    Source,
    Terms,
    collective,
    complete,
    open_inputs,
    to_scalar,
)
from outcore.errors import UsageError

__all__ = ["searchsorted"]

_NAME = "searchsorted"
# Largest number of elements at equal distances that are read for few values.
_LOOKS = 4096
# Values that are searched for together; the temporary array of their positions has this length.
_PIECE = 8192


@collective
def searchsorted(
    a: Source,
    v: Source,
    side: str = "left",
    sorter: Source | None = None,
    *,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Return the indices at which values can be inserted into a sorted array to keep it sorted.

    Parameters
    ----------
    a
        Array with one axis, sorted in ascending order unless `sorter` is given.
    v
        Values: an array of any shape.
    side
        ``"left"``: before equal elements; ``"right"``: after them.
    sorter
        Indices that sort `a`, such as the result of `outcore.argsort`. The result depends only on
        the elements of `a`, so only the number and dtype of the indices are checked.
    out, how
        See `outcore.compute.jobs.complete`. Without `out`, the result is a NumPy array if `v` is in
        memory.

    Returns
    -------
    int, numpy.ndarray or DiskArray
        int64 indices, of the shape of `v`.

    Raises
    ------
    UsageError
        ``bad-shape``: `a` does not have one axis. ``bad-option``: invalid `side`, or `sorter` is
        not one integer for each element. ``bad-dtype``: the dtypes cannot be compared. Otherwise
        see `outcore.compute.jobs.complete`.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.

    Notes
    -----
    Memory: any amount. Many values: `a` is read once for each block of values that fits in memory;
    with `sorter` each block of `a` is sorted there. Few values, without `sorter`: reads some
    thousand elements at equal distances, and for each value the elements between two of them.
    Collective with ``comm=``: ranks share the blocks of values.

    Knuth, volume 3, section 6.2.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("sorted.npy", data=np.array([1.0, 2.0, 2.0, 5.0]))
    >>> outcore.searchsorted(a, [2.0, 3.0, 9.0])
    array([1, 3, 4])
    >>> int(outcore.searchsorted(a, 2.0, side="right"))
    3
    >>> outcore.searchsorted([5.0, 1.0, 2.0], [2.0, 3.0], sorter=[1, 2, 0])
    array([1, 2])
    """
    if side not in ("left", "right"):
        raise UsageError(
            f"searchsorted: unknown side {side!r}; pass 'left' or 'right'", code="bad-option"
        )
    with open_inputs(a, v, *(() if sorter is None else (sorter,))) as inputs:
        array, values, *indices = inputs
        if array.ndim != 1:
            raise UsageError(
                f"searchsorted: the array has {array.ndim} axes; pass a sorted array with one axis",
                code="bad-shape",
            )
        if indices and (indices[0].shape != array.shape or indices[0].dtype.kind not in "iu"):
            raise UsageError(
                f"searchsorted: sorter= has shape {tuple(indices[0].shape)} and dtype "
                f"{indices[0].dtype}; pass one integer for each of {array.shape[0]} elements "
                "(outcore.argsort)",
                code="bad-option",
            )
        try:
            common = np.promote_types(array.dtype, values.dtype)
        except TypeError:
            raise UsageError(
                f"searchsorted: {values.dtype} cannot be compared with {array.dtype}; cast one of them",
                code="bad-dtype",
            ) from None
        small = isinstance(values, InMemory)
        result = Result(values.shape, np.dtype(np.int64), {}, values.path, small)
        kernel = _SearchKernel(
            array.dtype.newbyteorder("="),
            values.dtype.newbyteorder("="),
            common.newbyteorder("="),
            "left" if side == "left" else "right",
            sorts=bool(indices),
        )
        plan = _plan_search(array.shape[0], values.shape, kernel)
        named = ("sorter",)[: len(indices)]
        operation = Operation(
            "searchsorted", inputs, (result,), plan, {"side": side}, in_names=named
        )
        return complete(operation, out, how, lambda found: to_scalar(found, out))


def _plan_search(
    length: int, shape: tuple[int, ...], kernel: _SearchKernel
) -> Callable[[Terms], Program]:
    native, theirs, common = kernel.native, kernel.theirs, kernel.common
    size = math.prod(shape)
    place = np.dtype(np.int64)
    arrays = ("array", "values", *("sorter",) * kernel.sorts, "result")

    def plan(terms: Terms) -> Program:
        per_element = 2 * native.itemsize + kernel.casts * common.itemsize
        per_value = theirs.itemsize + kernel.casts_values * common.itemsize + place.itemsize
        least = min(max(length, 1) * per_element + max(size, 1) * per_value, SMALLEST)
        terms.require(least)
        once = {
            0: length * native.itemsize,
            1: size * theirs.itemsize,
            2: size * place.itemsize,
        }
        bound = Bound.of(once, "array, values and result once")
        # As many sampled elements as cost what they save.
        disk, nbytes = terms.disk, length * native.itemsize
        best = math.isqrt(int(size * nbytes / max(disk.rate * disk.latency, 1.0))) + 1
        distance = max(-(-length // min(best, _LOOKS)), 1)
        count = -(-length // distance)
        looks = disk.seconds(count + size, size * distance * native.itemsize)
        side = terms.side(0)
        plain = side is not None and not side.whole
        fits = size * (per_value + 64) + distance * per_element + _LOOKS * 16 <= terms.room
        if plain and not kernel.sorts and fits and size > 0 and looks < disk.seconds(1, nbytes):
            few = _SampledSearch(arrays, length, size, distance, kernel, shape)
            bound = Bound.of({n: once[n] for n in (1, 2)}, "values and result once")
            method = f"reads {count} elements, then between them for each value"
            return Program((few.make_phase(),), method, bound)
        piece = max(min(length, terms.room // 8 // per_element), 1)
        most = max((terms.room - piece * per_element) // per_value, 1)
        tiles = cut_slabs(shape, most)
        pieces = max(-(-length // piece), 1)
        values = math.prod(tiles.largest)
        buffers = [
            Buffer(piece, native, copies=2),
            Buffer(values, theirs, kept=True),
            Buffer(values, place, kept=True),
        ]
        if kernel.casts:
            buffers.append(Buffer(piece, common))
        if kernel.casts_values:
            buffers.append(Buffer(values, common, kept=True))

        def step(number: int) -> ScheduleStep:
            tile, at = divmod(number, pieces)
            key = tiles.key(tile)
            # Blocks that are kept have one shape; a part without the end of one is contiguous as well.
            box = tiles.largest
            here = tuple(slice(0, part.stop - part.start) for part in key)
            part = slice(min(at * piece, length), min((at + 1) * piece, length))
            count = part.stop - part.start
            blocks = [Block(0, (count,)), Block(1, box), Block(2, box)]
            if kernel.casts:
                blocks.append(Block(3, (count,)))
            if kernel.casts_values:
                blocks.append(Block(len(buffers) - 1, box))
            loads = [Load(0, (part,), 0)]
            return ScheduleStep(
                blocks=tuple(blocks),
                loads=(*loads, Load(1, key, 1, here)) if at == 0 else tuple(loads),
                stores=(Store(len(arrays) - 1, key, 2, here),) if at == pieces - 1 else (),
                kernel=0,
                arguments=(here, at == 0),
                continues=at > 0,
            )

        schedule = Schedule(_NAME, arrays, tuple(buffers), len(tiles) * pieces, step, (kernel,))
        method = f"reads the array once for each of {format_count(len(tiles), 'block')} of values"
        return Program((schedule,), method, bound)

    return plan


@dataclass(frozen=True)
class _SearchKernel:
    """Kernel that adds the positions in a block of the array."""

    native: np.dtype[Any]
    theirs: np.dtype[Any]
    common: np.dtype[Any]
    side: Literal["left", "right"]
    sorts: bool

    @property
    def casts(self) -> bool:
        return self.native != self.common

    @property
    def casts_values(self) -> bool:
        return self.theirs != self.common

    def __call__(self, blocks: Sequence[NDArray[Any]], here: Section, first: bool) -> None:
        block, values, places = blocks[0], blocks[1][here or ...], blocks[2][here or ...]
        if self.casts:
            np.copyto(blocks[3], block, casting="unsafe")
            block = blocks[3]
        if self.sorts:
            block.sort()
        if self.casts_values:
            cast = blocks[-1][here or ...]
            if first:
                np.copyto(cast, values, casting="unsafe")
            values = cast
        if first:
            places[...] = 0
        flat, found = values.reshape(-1), places.reshape(-1)
        for begin in range(0, len(flat), _PIECE):
            piece = slice(begin, begin + _PIECE)
            found[piece] += self.find_places(block, flat[piece])

    def find_places(self, block: NDArray[Any], values: NDArray[Any]) -> Any:
        return np.searchsorted(block, values, side=self.side)


@dataclass(frozen=True)
class _SampledSearch:
    """Plan with a step for each value, which reads between two of the sampled elements."""

    arrays: tuple[str, ...]
    length: int
    size: int
    distance: int
    search: _SearchKernel
    shape: tuple[int, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        places = Buffer(self.size, np.dtype(np.int64), kept=True)
        return Buffer(self.distance, self.search.native, copies=2), places

    def make_phase(self) -> DeferredPhase:
        nbytes = self.search.native.itemsize
        return DeferredPhase(
            name=_NAME,
            steps=self.size,
            held=sum(buffer.nbytes for buffer in self.buffers),
            loaded=self.size * self.distance * nbytes,
            stored=self.size * 8,
            at_once={0: 1, 2: 1},
            make=self.make_schedule,
        )

    def make_schedule(self, opened: Sequence[Any]) -> Schedule:
        search, common = self.search, self.search.common
        with _core.Reservation("values that are searched for", self.size * 64 + _LOOKS * 16):
            values = np.asarray(opened[1][...]).astype(common).reshape(-1)
            seen = np.asarray(opened[0][:: self.distance]).astype(common)
            # All elements before a sampled element that is before the value are before it, too.
            before = search.find_places(seen, values)
        low = np.maximum(before - 1, 0) * self.distance
        high = np.where(before > 0, np.minimum(low + self.distance, self.length), 0)

        def kernel(blocks: Sequence[NDArray[Any]], number: int) -> None:
            part, places = blocks
            at = search.find_places(part.astype(common, copy=False), values[number : number + 1])
            places.reshape(-1)[number] = low[number] + at[0]

        def step(number: int) -> ScheduleStep:
            part = slice(int(low[number]), int(max(low[number], high[number])))
            key = tuple(slice(0, n) for n in self.shape)
            return ScheduleStep(
                blocks=(Block(0, (part.stop - part.start,)), Block(1, self.shape)),
                loads=(Load(0, (part,), 0),) if part.stop > part.start else (),
                stores=(Store(2, key, 1),) if number == self.size - 1 else (),
                kernel=0,
                arguments=(number,),
                continues=number > 0,
            )

        return Schedule(_NAME, self.arrays, self.buffers, self.size, step, (kernel,))
