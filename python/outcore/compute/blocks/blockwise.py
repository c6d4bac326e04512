"""
Functions on blocks with their surroundings, from one or several arrays to one or several others.

Problem. Most computations on large arrays need one block at a time, and the elements around it.
Idea. Blocks consist of whole chunks and are as large as the memory allows. A block is loaded with
its halo; at the ends of the array the halo is made of elements inside (or of a constant), as in
SciPy's filters. Elements that a block shares with the one before it are copied from there, not read
again.

Invariants. Each element of a result is computed once. If the function depends only on elements
within the halo, the value does not depend on how blocks are cut.

Reference: PASSION, sections 4.2 (prefetch) and 4.3 (reuse of what neighbouring slabs share).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays import tiling
from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Reuse,
    Schedule,
    ScheduleStep,
    Section,
    Store,
)
from outcore.arrays.tiling import Side, Tiling
from outcore.base.report import format_count
from outcore.compute.jobs import SMALLEST, Bound, InsufficientBuffersError, Program, Terms
from outcore.errors import UsageError

__all__ = ["BOUNDARIES", "Halo", "Scratch", "expand_per_axis", "fill_halo", "plan_blocks"]

Shape = tuple[int, ...]

#: SciPy's names of boundaries, and the modes of `numpy.pad` that have the same effect.
BOUNDARIES = {
    "constant": "constant",
    "nearest": "edge",
    "reflect": "symmetric",
    "mirror": "reflect",
    "wrap": "wrap",
}


@dataclass(frozen=True, slots=True)
class Halo:
    """
    Halo of the blocks.

    `widths` are the numbers of elements on either side, along each axis. `boundary` is a key of
    `BOUNDARIES` for the elements beyond the ends of the array, or one for each axis; None: blocks
    end there. `cval` is the element of ``"constant"``.
    """

    widths: Shape
    boundary: str | tuple[str, ...] | None = None
    cval: Any = 0

    def find_boundary(self, axis: int) -> str | None:
        """Return the boundary of an axis."""
        each = isinstance(self.boundary, tuple)
        return self.boundary[axis] if each else self.boundary  # type: ignore[index, return-value]

    def count_elements(self, tile: Sequence[int]) -> int:
        """Return the number of elements of a block of shape `tile` and its halo."""
        return math.prod(n + 2 * w for n, w in zip(tile, self.widths, strict=True))


@dataclass(frozen=True, slots=True)
class Scratch:
    """
    Memory that a kernel works with.

    `elements` None: as many as the block of the first source with its halo, in the same shape.
    """

    dtype: np.dtype[Any]
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class _AxisSections:
    """One axis of a block with its halo: its length, and sections of the array with their places."""

    length: int
    parts: tuple[tuple[slice, slice], ...]
    #: Elements before and after these sections that have to be filled.
    missing: tuple[int, int]


def _make_axis(low: int, high: int, width: int, length: int, boundary: str | None) -> _AxisSections:
    begin, end = low - width, high + width
    inner = slice(max(begin, 0), min(end, length))
    if boundary is None:
        return _AxisSections(
            inner.stop - inner.start, ((inner, slice(0, inner.stop - inner.start)),), (0, 0)
        )
    before, after = inner.start - begin, end - inner.stop
    place = slice(before, before + inner.stop - inner.start)
    parts = [(inner, place)]
    if boundary == "wrap" and (begin > 0 or end < length):
        # Loaded from the other end. Only a block of the whole axis is filled from itself; that includes
        # every block whose halo is longer than the axis.
        if before:
            parts.append((slice(length - before, length), slice(0, before)))
        if after:
            parts.append((slice(0, after), slice(place.stop, place.stop + after)))
        before = after = 0
    return _AxisSections(end - begin, tuple(parts), (before, after))


def fill_halo(
    block: NDArray[Any],
    missing: Sequence[tuple[int, int]],
    boundary: str | Sequence[str],
    cval: Any,
) -> None:
    """Fill the missing elements at the ends of a block from its other elements."""
    each = (boundary,) * block.ndim if isinstance(boundary, str) else boundary
    for axis, (word, (before, after)) in enumerate(zip(each, missing, strict=True)):
        if not before and not after:
            continue
        length = block.shape[axis]
        lanes = np.moveaxis(block, axis, 0)
        if word == "constant":
            lanes[:before] = lanes[length - after :] = cval
            continue
        mode: Any = BOUNDARIES[word]
        source = np.pad(np.arange(before, length - after), (before, after), mode=mode)
        for n in (*range(before), *range(length - after, length)):
            lanes[n] = lanes[source[n]]


def plan_blocks(
    name: str,
    shape: Shape,
    sources: Sequence[tuple[Shape, np.dtype[Any]]],
    results: Sequence[np.dtype[Any]],
    kernel: Callable[..., None],
    around: Halo,
    *,
    given: Shape | None = None,
    scratch: Callable[[Terms], Sequence[Scratch]] | None = None,
    work: int = 0,
    rate: float = 0.0,
) -> Callable[[Terms], Program]:
    """
    Return the planner of a function on blocks.

    `shape` is the shape of all results, to which the `sources` (shape and dtype each) can be
    broadcast. `kernel` is called as ``kernel(blocks, key)``: blocks of the sources, then of the
    results, then those of `scratch`; `key` is the section of the results. Blocks have a halo along
    the axes of sources that have the full length. `given` is the shape of blocks; None: chosen
    here. `work` is the number of operations for an element of the result, `rate` the number per
    second.
    """
    made = len(sources)
    native = [dtype.newbyteorder("=") for _, dtype in sources]

    def plan(terms: Terms) -> Program:
        # A block copies from the one before it, so only one can be loaded ahead.
        alone = any(around.widths)
        own = scratch(terms) if scratch else ()
        besides = sum(one.dtype.itemsize for one in own if one.elements is None)
        fixed = sum(one.elements * one.dtype.itemsize for one in own if one.elements is not None)
        left = replace(terms, room=max(terms.room - fixed, 0))
        sides = [terms.side(n) for n in range(made + len(results))]

        def make_tiling(ahead: int) -> Tiling:
            loaded, stored = 2 if alone else 1 + ahead, 1 + ahead
            each = loaded * sum(d.itemsize for d in native) + besides
            each += stored * sum(d.itemsize for d in results)
            return _choose_tiles(left, shape, around, each, given, made)

        try:
            tiles, ahead = make_tiling(1), 1
            if given is None and not _keeps_chunks(tiles, sides):
                # Coding chunks twice takes longer than waiting for them.
                larger = make_tiling(0)
                if _keeps_chunks(larger, sides):
                    tiles, ahead = larger, 0
        except InsufficientBuffersError as error:
            raise InsufficientBuffersError(error.needed + fixed) from None
        largest = tuple(
            min(n + 2 * w, length if around.boundary is None else n + 2 * w)
            for n, w, length in zip(tiles.largest, around.widths, shape, strict=True)
        )
        most = around.count_elements(tiles.largest)

        def memory(ahead: int) -> tuple[Buffer, ...]:
            loaded, stored = 2 if alone else 1 + ahead, 1 + ahead
            return (
                *(
                    Buffer(
                        _count_elements(one, largest, shape), dtype, terms.order(k), copies=loaded
                    )
                    for k, ((one, _), dtype) in enumerate(zip(sources, native, strict=True))
                ),
                *(
                    Buffer(math.prod(tiles.largest), dtype, terms.order(made + k), copies=stored)
                    for k, dtype in enumerate(results)
                ),
                *(
                    Buffer(
                        most if one.elements is None else one.elements, one.dtype, terms.order(0)
                    )
                    for one in own
                ),
            )

        # With two stores in progress the disk works while the kernel does. Codecs keep processors busy
        # anyway, and each of their operations needs much memory.
        coded = any(side is not None and side.whole for side in sides)
        if ahead and not coded and sum(one.nbytes for one in memory(2)) <= terms.room:
            ahead = 2
        steps = _BlockSteps(
            terms.ranks,
            shape,
            [one for one, _ in sources],
            len(results),
            tiles,
            around,
            work,
            own,
        )
        schedule = Schedule(
            name=name,
            arrays=tuple(f"array {n}" for n in range(made + len(results))),
            buffers=memory(ahead),
            steps=len(tiles),
            make=steps,
            restart=steps.restart,
            kernels=(kernel,),
            reading=1 if alone else max(ahead, 1),
            writing=max(ahead, 1),
            rate=rate,
        )
        sizes = [math.prod(one) * dtype.itemsize for one, dtype in sources]
        sizes += [math.prod(shape) * dtype.itemsize for dtype in results]
        size = " x ".join(map(str, tiles.tile)) or "one element"
        again = " with their halos" if any(around.widths) else ""
        return Program(
            (schedule,),
            f"{format_count(len(tiles), 'block')} of {size}{again}",
            Bound.of(dict(enumerate(sizes)), "inputs and results once"),
        )

    return plan


def _keeps_chunks(tiles: Tiling, sides: Sequence[Side | None]) -> bool:
    """Return whether each encoded chunk belongs to one tile only."""
    for side in sides:
        chunks = side.chunks if side is not None and side.whole else None
        if chunks is None or len(chunks) != len(tiles.shape):
            continue
        each = zip(tiles.tile, tiles.shape, chunks, strict=True)
        if any(tile < length and tile % chunk for tile, length, chunk in each):
            return False
    return True


def _count_elements(one: Shape, largest: Shape, shape: Shape) -> int:
    """Return the number of elements of the largest block of a source."""
    tail = largest[len(shape) - len(one) :]
    full = shape[len(shape) - len(one) :]
    axes = zip(one, tail, full, strict=True)
    return math.prod(1 if n == 1 and whole != 1 else most for n, most, whole in axes)


def _choose_tiles(
    terms: Terms, shape: Shape, around: Halo, per_element: int, given: Shape | None, made: int
) -> Tiling:
    """Return blocks that fit in memory with their halo."""
    if given is not None:
        tiles = Tiling(shape, tuple(map(max, given, (1,) * len(shape))), terms.order(made))
        needed = around.count_elements(tiles.largest) * per_element
        terms.require(needed)
        return tiles
    least = min(math.prod(shape), SMALLEST // max(per_element, 1)) * per_element
    terms.require(least)
    target = terms.side(made) or Side(max(per_element // 4, 1), "C")
    source = terms.side(0) if made else None
    info = terms.infos[0]
    source = source if info is not None and source and len(shape) == len(info.shape) else target
    # Each rank gets at least one tile.
    most = min(terms.room // per_element, -(-math.prod(shape) // terms.ranks))
    while True:
        found = tiling.choose(shape, source, target, max(most, 1), cut=True)
        if not isinstance(found, Tiling):
            raise InsufficientBuffersError(around.count_elements(shape) * per_element)
        needed = around.count_elements(found.largest) * per_element
        if needed <= terms.room:
            return found
        if most <= 1:
            raise InsufficientBuffersError(needed)
        most = most * 3 // 4


@dataclass(frozen=True)
class _BlockSteps:
    """
    Steps: step `k` computes tile `k` of the results, and copies what it shares with tile `k - 1`.

    The first tile of each rank copies nothing: it reads its halo from the array, which does not
    change.
    """

    ranks: int
    shape: Shape
    sources: Sequence[Shape]
    results: int
    tiles: Tiling
    around: Halo
    work: int
    scratch: Sequence[Scratch]

    def __call__(self, number: int) -> ScheduleStep:
        tiles_of_rank = max(-(-len(self.tiles) // self.ranks), 1)
        first = number % tiles_of_rank == 0
        return self.make_step(number, None if first else self.tiles.key(number - 1))

    def restart(self, number: int) -> tuple[ScheduleStep, ...]:
        """Return the step that reads its whole block."""
        return (self.make_step(number, None),)

    def make_step(self, number: int, before: Section | None) -> ScheduleStep:
        """Return step `number`, after the one that computed the tile `before`."""
        key = self.tiles.key(number)
        size = tuple(part.stop - part.start for part in key)
        blocks, loads, reuses, missing = [], [], [], []
        for n, one in enumerate(self.sources):
            axes = self.make_axes(key, one)
            blocks.append(Block(n, tuple(axis.length for axis in axes)))
            missing.append(tuple(axis.missing for axis in axes))
            shared = None if before is None else self.find_shared(self.make_axes(before, one), axes)
            if shared is None:
                loads += [Load(n, part, n, place) for part, place in _combine(axes)]
                continue
            axis, there, here, rest, place = shared
            everything = [slice(0, one.length) for one in axes]
            theirs, mine = list(everything), list(everything)
            theirs[axis], mine[axis] = there, here
            reuses.append(Reuse(n, tuple(mine), n, tuple(theirs)))
            if rest.stop > rest.start:
                parts = list(axes)
                parts[axis] = _AxisSections(axes[axis].length, ((rest, place),), axes[axis].missing)
                loads += [Load(n, part, n, at) for part, at in _combine(parts)]
        first = len(self.sources)
        blocks += [Block(first + k, size) for k in range(self.results)]
        for k, own in enumerate(self.scratch):
            whole = blocks[0].shape if own.elements is None else (own.elements,)
            blocks.append(Block(first + self.results + k, whole))
        return ScheduleStep(
            blocks=tuple(blocks),
            loads=tuple(loads),
            stores=tuple(Store(first + k, key, first + k) for k in range(self.results)),
            kernel=0,
            arguments=(key, tuple(missing)),
            reuses=tuple(reuses),
            work=self.work * math.prod(size),
        )

    def make_axes(self, key: Section, one: Shape) -> list[_AxisSections]:
        found = []
        skipped = len(self.shape) - len(one)
        for axis, length in enumerate(one):
            part = key[skipped + axis]
            if length == 1 and self.shape[skipped + axis] != 1:
                found.append(_AxisSections(1, ((slice(0, 1), slice(0, 1)),), (0, 0)))
            else:
                width = self.around.widths[skipped + axis]
                word = self.around.find_boundary(skipped + axis)
                found.append(_make_axis(part.start, part.stop, width, length, word))
        return found

    def find_shared(
        self, before: Sequence[_AxisSections], now: Sequence[_AxisSections]
    ) -> tuple[int, slice, slice, slice, slice] | None:
        """
        Return what two consecutive blocks share, if they differ along one axis only.

        The result is the axis; the shared part in the old block, and in the new one; the section
        that remains to be read, and its place.
        """
        moved = [n for n, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
        if len(moved) != 1:
            return None
        axis = moved[0]
        if self.around.find_boundary(axis + len(self.shape) - len(now)) == "wrap":
            return None
        (old, old_at), (new, new_at) = before[axis].parts[0], now[axis].parts[0]
        low, high = max(old.start, new.start), min(old.stop, new.stop)
        if low != new.start or high <= low:
            return None
        there = slice(old_at.start + low - old.start, old_at.start + high - old.start)
        here = slice(new_at.start, new_at.start + high - low)
        return axis, there, here, slice(high, new.stop), slice(here.stop, new_at.stop)


def _combine(axes: Sequence[_AxisSections]) -> list[tuple[Section, Section]]:
    """Return all sections, with their places in the block."""
    found: list[tuple[Section, Section]] = [((), ())]
    for axis in axes:
        found = [((*a, part), (*b, place)) for a, b in found for part, place in axis.parts]
    return found


def expand_per_axis(value: Any, ndim: int, what: str) -> Shape:
    """Return one integer of at least 0 for each axis."""
    try:
        given = tuple(value) if np.iterable(value) else (value,) * ndim
        found = tuple(operator.index(n) for n in given)
    except TypeError:
        found = ()
    if len(found) != ndim or any(n < 0 for n in found):
        raise UsageError(
            f"{what}={value!r} does not fit {ndim} axes; pass an integer of at least 0, or one for each",
            code="bad-blocks",
        )
    return found
