"""
One read of one array, or of several that lie alike: any number of reductions over the same axes.

Problem. What is reduced may be rows or columns of the file, the results may be one number or as many as
fit memory only in part; and a sum must not depend on how the array was cut.
Idea. The compiled kernels (`_core.Reduction`) take an axis in pieces of any length, in order, and keep
what they need between pieces. So any tiles will do. Reduced axes are reduced one after the other, the
last one first: what a tile has of it goes into the state of its outputs; when the tile that ends the
axis has come, they become elements of the next reduced axis. Tiles come in the order that this needs:
all of one tile of the results, and in that the last reduced axis innermost. The tiles are those that
read fastest, by the figures of the disk, among those whose states fit.

Invariants. Each element is read once, but for chunks that tiles cut. The bits of a result depend on the
elements and the shape alone: not on tiles, order, threads or the budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.jobs import Bound, Disk, Program, Terms, TooLittle
from outcore.schedule import Block, Buffer, Load, Schedule, Section, Step, Store
from outcore.tiling import Side

__all__ = ["Chain", "Elements", "Finish", "Grid", "constant", "reducing"]

Shape = tuple[int, ...]
Range = tuple[int, int]
#: From the planes of each chain to the results, for some outputs: all are 1-d.
Finish = Callable[[Sequence[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]], None]

# Tiles that are read at the same time, from files that need no decoding.
_READS = 2
# Seconds that a step takes in the interpreter, about.
_STEP = 2e-4
# Shapes of tiles that are compared, at most.
_SHAPES = 500
# Elements that are converted, or finished, at a time: what NumPy makes on the way stays in the cache.
_AT_ONCE = 2**15
_ALIGN = 64
# Buffers are pages: a tile below that saves nothing.
_PAGE = 4096
# Bytes of the largest value of a state.
_WIDEST = 8


@dataclass(frozen=True, slots=True)
class Elements:
    """
    What a kernel takes for the elements of the inputs.

    Parameters
    ----------
    dtype
        Of what it takes. A complex number is taken as two that lie side by side.
    fill
        Computes them from parts of the inputs, which are 1-d, into the last argument; None: they are the
        elements of the first input, in the same bytes.
    """

    dtype: np.dtype[Any]
    fill: Callable[..., None] | None = None

    @property
    def parts(self) -> int:
        """Numbers in an element."""
        return 2 if self.dtype.kind == "c" else 1

    @property
    def name(self) -> str:
        """Of the kernel's type."""
        kind = self.dtype.kind if self.parts == 1 else "f"
        return f"{kind}{self.dtype.itemsize // self.parts}"


class Chain:
    """
    A reduction over some axes, the last one first.

    Parameters
    ----------
    first, rest
        Of the last axis, and of the others: names that `_core.Reduction` knows.
    elements
        What it is a reduction of.
    lengths
        Of the reduced axes, the last one first.
    """

    def __init__(self, first: str, rest: str, elements: Elements, lengths: Sequence[int]) -> None:
        self.elements = elements
        self.stages: list[Any] = []
        #: Of each stage, for one output: bytes of the state, and of each plane of the result.
        self.sizes: list[tuple[int, list[int]]] = []
        name, kind, step = first, elements.name, 1
        for length in lengths:
            stage = _core.Reduction(name, kind, length, step)
            acc, outs = stage.types
            self.stages.append(stage)
            self.sizes.append((stage.state(1) * int(acc[1:]), [int(out[1:]) for out in outs]))
            name, kind, step = rest, outs[0], step * length


class _Layout:
    """Where states, intermediate results and scratch memory are in the work buffer."""

    def __init__(
        self, chains: Sequence[Chain], tile: Shape, shape: Shape, axes: Sequence[int]
    ) -> None:
        self.nbytes = 0
        elements = math.prod(tile)
        #: Of each chain and stage: the state, and the planes of the result.
        self.states: list[list[int]] = []
        self.planes: list[list[list[int]]] = []
        filled = scratch = 0
        for chain in chains:
            states, planes = [], []
            if chain.elements.fill is not None:
                filled = max(filled, elements * chain.elements.dtype.itemsize)
            outputs = elements * chain.elements.parts
            for stage, (state, sizes), axis in zip(chain.stages, chain.sizes, axes, strict=True):
                outputs = outputs // tile[axis]
                cut = tile[axis] < shape[axis]
                states.append(self._place(outputs * state if cut else 0))
                planes.append([self._place(outputs * size) for size in sizes])
                scratch = max(scratch, stage.scratch(outputs) * _WIDEST)
            self.states.append(states)
            self.planes.append(planes)
        self.filled = self._place(filled)
        self.scratch, self.scratch_bytes = self._place(scratch), scratch

    def _place(self, nbytes: int) -> int:
        place = self.nbytes
        self.nbytes += -(-nbytes // _ALIGN) * _ALIGN
        return place


class _Kernel:
    """What a step does with its tile."""

    def __init__(
        self,
        chains: Sequence[Chain],
        layout: _Layout,
        shape: Shape,
        axes: Sequence[int],
        finish: Finish,
    ) -> None:
        self.chains, self.layout, self.finish = chains, layout, finish
        self.shape, self.axes = shape, axes

    def __call__(
        self, blocks: Sequence[NDArray[Any]], ranges: Sequence[Range], inputs: int, turned: bool
    ) -> None:
        """Blocks: of the inputs, the work buffer, and the results if the outputs are complete."""
        tiles = [block.T if turned else block for block in blocks[:inputs]]
        work, outs = blocks[inputs], blocks[inputs + 1 :]
        all_planes = []
        for number, chain in enumerate(self.chains):
            planes = self._chain(chain, number, tiles, work, ranges, turned=turned)
            if planes is not None:
                all_planes.append([plane.reshape(-1) for plane in planes])
        if not outs:
            return
        flat = [out.ravel(order="K") for out in outs]
        outputs = flat[0].size
        for low in range(0, outputs, _AT_ONCE):
            high = min(low + _AT_ONCE, outputs)
            parts = [
                [plane[low * c.elements.parts : high * c.elements.parts] for plane in planes]
                for c, planes in zip(self.chains, all_planes, strict=True)
            ]
            self.finish(parts, [out[low:high] for out in flat])

    def _chain(
        self,
        chain: Chain,
        number: int,
        tiles: Sequence[NDArray[Any]],
        work: NDArray[Any],
        ranges: Sequence[Range],
        *,
        turned: bool,
    ) -> list[NDArray[Any]] | None:
        """The planes of the result; None if there is more to come."""
        values = [self._elements(chain, tiles, work)]
        # The axes of the values that are not reduced yet.
        left = list(range(tiles[0].ndim))
        if turned:
            left.reverse()
        if len(self.shape) > len(left):
            values, left = [values[0][np.newaxis]], [len(left), *left]
        scratch_size = self.layout.scratch_bytes
        for n, (stage, axis) in enumerate(zip(chain.stages, self.axes, strict=True)):
            acc, outs = stage.types
            at = left.index(axis)
            shape = values[0].shape[:at] + values[0].shape[at + 1 :]
            scratch = _view(work, self.layout.scratch, acc, scratch_size // int(acc[1:]))
            results = [
                _view(work, place, kind, math.prod(shape)).reshape(shape)
                for place, kind in zip(self.layout.planes[number][n], outs, strict=True)
            ]
            first, last = ranges[axis]
            if (first, last) == (0, self.shape[axis]):
                stage.whole(values, at, results, scratch)
            else:
                size = stage.state(math.prod(shape))
                state = _view(work, self.layout.states[number][n], acc, size)
                stage.fold(values, at, first, state, scratch)
                if last < self.shape[axis]:
                    return None
                stage.finish(state, results)
            values = results
            left.remove(axis)
        return values

    def _elements(
        self, chain: Chain, tiles: Sequence[NDArray[Any]], work: NDArray[Any]
    ) -> NDArray[Any]:
        elements, shape = chain.elements, tiles[0].shape
        if elements.fill is None:
            values = tiles[0].reshape(-1)
        else:
            size = math.prod(shape)
            values = work[self.layout.filled :][: size * elements.dtype.itemsize].view(
                elements.dtype
            )
            flat = [tile.reshape(-1) for tile in tiles]
            for low in range(0, size, _AT_ONCE):
                part = slice(low, low + _AT_ONCE)
                elements.fill(*(one[part] for one in flat), values[part])
        if elements.parts == 2:
            shape = (*shape, 2)
        return values.view(elements.name).reshape(shape)


def _view(work: NDArray[Any], place: int, kind: str, size: int) -> NDArray[Any]:
    return work[place : place + size * int(kind[1:])].view(kind)


def reducing(
    name: str,
    shape: Shape,
    axes: Sequence[int],
    dtypes: Sequence[np.dtype[Any]],
    chains: Sequence[Chain],
    results: Sequence[np.dtype[Any]],
    finish: Finish,
    *,
    keepdims: bool = False,
) -> Callable[[Terms], Program]:
    """
    How to plan reductions.

    Parameters
    ----------
    name
        Of the operation.
    shape
        Of each input. No length is 0.
    axes
        That are reduced, from first to last.
    dtypes
        Of the inputs.
    chains
        The reductions.
    results
        Dtypes of the results.
    finish
        From what the chains give to the results.
    keepdims
        Reduced axes stay, with length 1.
    """
    stages, whole = tuple(reversed(axes)), shape
    if not axes:
        # Each element is reduced along an axis of its own.
        stages, whole = (len(shape),), (*shape, 1)
    native = [dtype.newbyteorder("=") for dtype in dtypes]

    item = sum(dtype.itemsize for dtype in native)
    out_item = sum(dtype.itemsize for dtype in results)

    @cache
    def choices(sides: tuple[Side, ...], disk: Disk, reading: int) -> list[tuple[int, Shape]]:
        """Bytes that tiles need, the faster ones first; none needs more than one before it."""
        found: list[tuple[int, Shape]] = []
        for tile in _tiles(shape, sides, disk):
            layout = _Layout(chains, (*tile, *whole[len(shape) :]), whole, stages)
            outputs = math.prod(n for k, n in enumerate(tile) if k not in axes)
            held = math.prod(tile) * item * (reading + 1) + layout.nbytes + outputs * out_item
            if not found or held < found[-1][0]:
                found.append((held, tile))
        return found

    def plan(terms: Terms) -> Program:
        sides = tuple(terms.side(n) or Side(d.itemsize, "C") for n, d in enumerate(native))
        turned = terms.order(0) == "F"
        for reading in (1,) if any(side.whole for side in sides) else (_READS, 1):
            possible = choices(sides, terms.disk, reading)
            fitting = next((tile for held, tile in possible if held <= terms.room), None)
            if fitting is not None:
                tile = fitting
                break
        else:
            raise TooLittle(possible[-1][0])
        layout = _Layout(chains, (*tile, *whole[len(shape) :]), whole, stages)
        outputs = math.prod(n for k, n in enumerate(tile) if k not in axes)
        order = "F" if turned else "C"
        most = math.prod(tile)
        buffers = (
            *(Buffer(most, dtype, order, copies=reading + 1) for dtype in native),
            Buffer(layout.nbytes, np.dtype(np.uint8), kept=True),
            *(Buffer(outputs, dtype, order) for dtype in results),
        )
        kernel = _Kernel(chains, layout, whole, stages, finish)
        grid = Grid(shape, tile, axes, order, keepdims=keepdims)

        def step(number: int) -> Step:
            section, first, last = grid.tile(number)
            ranges = tuple((part.start, part.stop) for part in section)
            inner = tuple(high - low for low, high in ranges)
            there = grid.result(section)
            size = tuple(part.stop - part.start for part in there)
            count = len(native)
            blocks = [Block(n, inner) for n in range(count)]
            blocks.append(Block(count, (layout.nbytes,)))
            stores: tuple[Store, ...] = ()
            if last:
                blocks += [Block(count + 1 + n, size) for n in range(len(results))]
                stores = tuple(Store(count + n, there, count + 1 + n) for n in range(len(results)))
            return Step(
                blocks=tuple(blocks),
                loads=tuple(Load(n, section, n) for n in range(count)),
                stores=stores,
                kernel=0,
                arguments=((*ranges, (0, 1)), count, turned),
                continues=not first,
                work=math.prod(inner) * len(chains),
            )

        schedule = Schedule(
            name=name,
            arrays=(
                *(f"input {n}" for n in range(len(native))),
                *(f"result {n}" for n in range(len(results))),
            ),
            buffers=buffers,
            steps=grid.steps,
            make=step,
            kernels=(kernel,),
            reading=reading,
        )
        size = math.prod(shape)
        there = math.prod(n for k, n in enumerate(shape) if k not in axes)
        stored = sum(
            there * dtype.itemsize
            for n, dtype in enumerate(results)
            if terms.infos[len(native) + n] is not None
        )
        runs = " x ".join(map(str, tile)) or "one element"
        return Program(
            (schedule,),
            f"one pass in {grid.steps} tiles of {runs}; the order of sums depends on indices alone",
            Bound(size * item + stored, "inputs once" + (", results once" if stored else "")),
        )

    return plan


def constant(
    name: str,
    shape: Shape,
    inputs: int,
    dtypes: Sequence[np.dtype[Any]],
    values: Callable[[], Sequence[Any]],
) -> Callable[[Terms], Program]:
    """
    How to plan what no element says anything about.

    Parameters
    ----------
    name
        Of the operation.
    shape, dtypes
        Of the results.
    inputs
        How many there are.
    values
        The same for all elements of a result; called when it runs.
    """

    def plan(terms: Terms) -> Program:
        item = sum(dtype.itemsize for dtype in dtypes)
        most = max(terms.room // item, 1)
        tile = list(shape)
        for axis, n in enumerate(shape):
            tile[axis] = max(min(n, most // max(math.prod(tile[axis + 1 :]), 1)), 1)
        grid = Grid(shape, tuple(tile), (), "C", keepdims=False)

        def step(number: int) -> Step:
            section = grid.tile(number)[0]
            size = tuple(part.stop - part.start for part in section)
            return Step(
                blocks=tuple(Block(n, size) for n in range(len(dtypes))),
                stores=tuple(Store(inputs + n, section, n) for n in range(len(dtypes))),
                kernel=0,
            )

        def fill(blocks: Sequence[NDArray[Any]]) -> None:
            for block, value in zip(blocks, values(), strict=True):
                block[...] = value

        names = (
            *(f"input {n}" for n in range(inputs)),
            *(f"result {n}" for n in range(len(dtypes))),
        )
        buffers = tuple(Buffer(math.prod(tile), dtype) for dtype in dtypes)
        schedule = Schedule(name, names, buffers, grid.steps, step, (fill,))
        size = math.prod(shape) * item
        return Program((schedule,), "there is nothing to read", Bound(size, "results once"))

    return plan


class Grid:
    """
    The tiles of an array, in the order in which they are taken: those along `axes` after each other.

    Parameters
    ----------
    shape, tile
        Of the array, and of a tile.
    axes
        That are gone along, from first to last: the last one is the innermost loop.
    order
        ``"C"`` or ``"F"``: of the others, the outer loops.
    keepdims
        Of the results.
    """

    def __init__(
        self,
        shape: Shape,
        tile: Shape,
        axes: Sequence[int],
        order: str,
        *,
        keepdims: bool = False,
    ) -> None:
        self.shape, self.tile_shape, self.axes, self.keepdims = shape, tile, axes, keepdims
        kept = [k for k in range(len(shape)) if k not in axes]
        if order == "F":
            kept.reverse()
        # From the outermost loop to the innermost.
        self.loops = [*kept, *axes]
        self.counts = [-(-shape[k] // tile[k]) for k in self.loops]
        self.steps = math.prod(self.counts)
        self.pieces = math.prod(self.counts[len(kept) :])

    def tile(self, number: int) -> tuple[Section, bool, bool]:
        """A tile; whether it is the first, and the last, of its outputs."""
        section = [slice(0)] * len(self.shape)
        piece, rest = number % self.pieces, number
        for axis, count in zip(reversed(self.loops), reversed(self.counts), strict=True):
            rest, k = divmod(rest, count)
            low = k * self.tile_shape[axis]
            section[axis] = slice(low, min(low + self.tile_shape[axis], self.shape[axis]))
        return tuple(section), piece == 0, piece == self.pieces - 1

    def result(self, section: Section) -> Section:
        """The section of the results that belongs to a tile."""
        if self.keepdims:
            return tuple(slice(0, 1) if k in self.axes else p for k, p in enumerate(section))
        return tuple(part for k, part in enumerate(section) if k not in self.axes)


def _tiles(shape: Shape, sides: Sequence[Side], disk: Disk) -> list[Shape]:
    """Shapes of tiles, the one that reads fastest first; of equal ones, the smaller one."""
    units = [
        max((side.chunks[k] for side in sides if side.chunks), default=1) for k in range(len(shape))
    ]
    factor = 2
    while True:
        lengths = [_lengths(n, unit, factor) for n, unit in zip(shape, units, strict=True)]
        if math.prod(map(len, lengths)) <= _SHAPES or factor > 2**32:
            break
        factor *= factor
    item = sum(side.itemsize for side in sides)

    def price(tile: Shape) -> tuple[float, int]:
        steps = math.prod(-(-n // t) for n, t in zip(shape, tile, strict=True))
        seconds = steps * _STEP + math.prod(tile) * item / disk.rate
        for side in sides:
            seconds += disk.seconds(*_requests(shape, tile, side, disk.gap, steps))
        return seconds, math.prod(tile)

    least = min(_PAGE // item, math.prod(shape))
    return sorted((t for t in itertools.product(*lengths) if math.prod(t) >= least), key=price)


def _lengths(length: int, unit: int, factor: int) -> list[int]:
    """Lengths of a tile along an axis: the axis, chunks times powers of the factor, parts of a chunk."""
    found = {length}
    n = min(unit, length)
    while n < length:
        found.add(n)
        n *= factor
    n = min(unit, length) // factor
    while n > 1:
        found.add(n)
        n //= factor
    if length > 1:
        found.add(1)
    return sorted(found)


def _requests(shape: Shape, tile: Shape, side: Side, gap: int, steps: int) -> tuple[int, int]:
    """Requests, and bytes, of reading all tiles."""
    if side.chunks is not None:
        touched = 1
        for n, t, c in zip(shape, tile, side.chunks, strict=True):
            edges = -(-n // t) - 1
            touched *= -(-n // c) + edges - edges * t // math.lcm(t, c)
        chunk = math.prod(side.chunks) * side.itemsize
        if side.whole:
            return touched, touched * chunk
        return touched, math.prod(shape) * side.itemsize
    run, requests, nbytes = side.itemsize, 1, side.itemsize
    inside, broken = side.itemsize, False
    pairs = list(zip(shape, tile, strict=True))
    for n, t in pairs if side.order == "F" else reversed(pairs):
        if broken and (inside - run) > gap:
            requests, nbytes = requests * t, nbytes * t
        else:
            # One request goes over the gaps.
            nbytes = nbytes * t if not broken else inside * (t - 1) + nbytes
            run = nbytes
        broken = broken or t < n
        inside *= n
    return steps * requests, steps * nbytes
