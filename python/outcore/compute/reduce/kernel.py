"""
Kernel of a reduction: the computation of one step with its tile.

Problem. Reduced axes are read in pieces. The state between two pieces, the intermediate results
between two axes, and scratch memory must be stored in memory that is counted.
Idea. The compiled kernels (`_core.Reduction`) take an axis in pieces of any length, in order, and
report the size of their state. All of this is stored in one work buffer, at offsets that follow
from the shape of the tiles. Reduced axes are reduced one after another: after the last tile of one
axis, its results are elements of the next one.

Invariants. All memory except for blocks is in the work buffer. Bits depend only on the elements and
the shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core

__all__ = [
    "LEAF",
    "AxisReduction",
    "Chain",
    "Finish",
    "KernelElements",
    "Layout",
    "ReductionKernel",
]

Shape = tuple[int, ...]
Range = tuple[int, int]
#: Function from the planes of each chain to the results, for some outputs: all are 1-d.
Finish = Callable[[Sequence[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]], None]

#: Number of indices of an axis that form a leaf of the tree. Segments consist of whole leaves
#: (``LEAF`` of the core).
LEAF = 128
# Number of elements converted, or finished, at a time: NumPy's temporary arrays stay in the cache.
_AT_ONCE = 2**15
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class KernelElements:
    """Elements that a kernel takes, computed from the inputs."""

    #: Dtype of these elements. A complex number is taken as two adjacent numbers.
    dtype: np.dtype[Any]
    #: Function that computes them from parts of the inputs, which are 1-d, into its last
    #: argument. None: they are the elements of the first input, as the same bytes.
    fill: Callable[..., None] | None = None

    @property
    def parts(self) -> int:
        """Count of numbers in an element."""
        return 2 if self.dtype.kind == "c" else 1

    @property
    def name(self) -> str:
        """Name of the kernel's dtype."""
        kind = self.dtype.kind if self.parts == 1 else "f"
        return f"{kind}{self.dtype.itemsize // self.parts}"

    def select(self, other: Any) -> KernelElements:
        """Return these elements where the last input is true, and `other` elsewhere."""

        def fill(x: NDArray[Any], where: NDArray[Any], out: NDArray[Any]) -> None:
            if self.fill is None:
                np.copyto(out, x, casting="unsafe")
            else:
                self.fill(x, out)
            np.copyto(out, other, where=~where)

        return KernelElements(self.dtype, fill)


class AxisReduction:
    """
    Reduction of one axis by the kernel `name` for dtype `kind`.

    `step` is the amount that the next index adds to a flat index. The kernel uses at most `threads`
    threads.
    """

    def __init__(self, name: str, kind: str, length: int, step: int, threads: int) -> None:
        self._words, self._threads = (name, kind, length, step), threads
        self.kernel = _core.Reduction(name, kind, length, step, threads)
        self.joins = False
        acc, outs = self.kernel.types
        #: Dtypes of the state, and of each plane of the result.
        self.acc, self.outs = acc, list(outs)
        #: Bytes of the state, and of each plane of the result, for one output.
        self.state_bytes = self.kernel.state(1) * int(acc[1:])
        self.plane_bytes = [int(out[1:]) for out in outs]

    def scratch_bytes(self, outputs: int) -> int:
        """Compute the size of scratch memory in bytes."""
        return self.kernel.scratch(outputs) * int(self.acc[1:])

    def make_node_reduction(self, segments: int) -> AxisReduction:
        """Return the stage that reduces the nodes of that many segments."""
        name, kind, _, step = self._words
        stage = AxisReduction(name, kind, segments * LEAF, step, self._threads)
        stage.joins = True
        return stage


class Chain:
    """
    Reduction over some axes, the last one first, as are their `lengths`.

    `first` is the kernel for the last axis, `rest` that for the others: names of `_core.Reduction`.
    """

    def __init__(
        self, first: str, rest: str, elements: KernelElements, lengths: Sequence[int]
    ) -> None:
        self.elements = elements
        self._names, self._lengths = (first, rest), tuple(lengths)
        self._made: dict[int, list[AxisReduction]] = {}

    def select(self, other: Any) -> Chain:
        """Return the chain for these elements where the last input is true, and `other` elsewhere."""
        return Chain(*self._names, self.elements.select(other), self._lengths)

    def stages(self, threads: int) -> list[AxisReduction]:
        """Return its axes, for kernels that use that many threads."""
        if threads not in self._made:
            (name, rest), kind, step = self._names, self.elements.name, 1
            stages = self._made[threads] = []
            for length in self._lengths:
                stages.append(AxisReduction(name, kind, length, step, threads))
                name, kind, step = rest, stages[-1].outs[0], step * length
        return self._made[threads]


class Layout:
    """
    Offsets of states, intermediate results and scratch memory in the work buffer.

    `chains` are the stages of each chain, with the elements that it makes of the inputs, or None if
    it takes nodes. `tile` is the largest tile; `axes` are the reduced axes in the order of the
    stages. Nodes, if there are any, are made after `segment` indices of the last of these axes.
    `spread` is the number of bytes of an element of the last input if it is broadcast to the shape
    of the others, otherwise 0.
    """

    def __init__(
        self,
        chains: Sequence[tuple[Sequence[AxisReduction], KernelElements | None, int]],
        tile: Shape,
        shape: Shape,
        axes: Sequence[int],
        segment: int,
        *,
        spread: int = 0,
    ) -> None:
        self.nbytes = 0
        elements = math.prod(tile)
        self.spread = self._place(elements * spread) if spread else None
        #: Offsets of the state, and of the planes of the result, for each chain and stage.
        self.states: list[list[int]] = []
        self.planes: list[list[list[int]]] = []
        filled = scratch = 0
        for stages, made, parts in chains:
            states, planes = [], []
            if made is not None and made.fill is not None:
                filled = max(filled, elements * made.dtype.itemsize)
            outputs = elements * parts
            for n, (stage, axis) in enumerate(zip(stages, axes, strict=True)):
                outputs = outputs // tile[axis]
                node = segment and n == len(axes) - 1
                cut = tile[axis] < (min(segment, shape[axis]) if node else shape[axis])
                states.append(self._place(outputs * stage.state_bytes if cut else 0))
                # Nodes are computed in the buffer from which they are stored.
                sizes = [] if node else stage.plane_bytes
                planes.append([self._place(outputs * size) for size in sizes])
                scratch = max(scratch, stage.scratch_bytes(outputs))
            self.states.append(states)
            self.planes.append(planes)
        self.filled = self._place(filled)
        self.scratch, self.scratch_bytes = self._place(scratch), scratch

    def _place(self, nbytes: int) -> int:
        place = self.nbytes
        self.nbytes += -(-nbytes // _ALIGN) * _ALIGN
        return place


class ReductionKernel:
    """
    Kernel of a step, with a `Layout`; `finish` makes results of planes, and is None if nodes are
    stored.
    """

    def __init__(
        self,
        chains: Sequence[tuple[Sequence[AxisReduction], KernelElements | None, int]],
        layout: Layout,
        shape: Shape,
        axes: Sequence[int],
        segment: int,
        finish: Finish | None,
    ) -> None:
        self.chains, self.layout, self.finish = chains, layout, finish
        self.shape, self.axes, self.segment = shape, axes, segment

    def __call__(
        self, blocks: Sequence[NDArray[Any]], ranges: Sequence[Range], inputs: int, turned: bool
    ) -> None:
        """Reduce a tile. Blocks: inputs, work buffer, and the results if the outputs are complete."""
        work, outs = blocks[inputs], blocks[inputs + 1 :]
        tiles = [block.T if turned else block for block in blocks[:inputs]]
        if self.layout.spread is not None:
            # The axes of the last input are the last axes of the others.
            few = blocks[inputs - 1]
            few = few.reshape(*(1,) * (tiles[0].ndim - few.ndim), *few.shape)
            size = tiles[0].size * few.itemsize
            whole = work[self.layout.spread :][:size].view(few.dtype)
            tiles[-1] = whole.reshape(tiles[0].shape)
            np.copyto(tiles[-1], few.T if turned else few)
        all_planes = []
        for number in range(len(self.chains)):
            nodes = outs[number] if self.segment and outs else None
            planes = self._chain(number, tiles, work, ranges, nodes, turned=turned)
            if planes is not None:
                all_planes.append([plane.reshape(-1) for plane in planes])
        if not outs or self.finish is None:
            return
        flat = [out.ravel(order="K") for out in outs]
        outputs = flat[0].size
        for low in range(0, outputs, _AT_ONCE):
            high = min(low + _AT_ONCE, outputs)
            parts = [
                [plane[low * numbers : high * numbers] for plane in planes]
                for (_, _, numbers), planes in zip(self.chains, all_planes, strict=True)
            ]
            self.finish(parts, [out[low:high] for out in flat])

    def _chain(
        self,
        number: int,
        tiles: Sequence[NDArray[Any]],
        work: NDArray[Any],
        ranges: Sequence[Range],
        nodes: NDArray[Any] | None,
        *,
        turned: bool,
    ) -> list[NDArray[Any]] | None:
        """Return the planes of the result; None if more tiles follow, or if they are nodes."""
        stages, elements, parts = self.chains[number]
        if elements is None:
            values, shape = list(tiles[number]), tiles[number].shape[1:]
            left = list(range(len(shape) - (parts > 1)))
        else:
            values = [self._elements(elements, tiles, work)]
            # Axes of the values that are not reduced yet.
            left = list(range(tiles[0].ndim))
            if turned:
                left.reverse()
            if len(self.shape) > len(left):
                values, left = [values[0][np.newaxis]], [len(left), *left]
        for n, (stage, axis) in enumerate(zip(stages, self.axes, strict=True)):
            at = left.index(axis)
            shape = values[0].shape[:at] + values[0].shape[at + 1 :]
            outputs, size = math.prod(shape), int(stage.acc[1:])
            scratch = _view(work, self.layout.scratch, stage.acc, self.layout.scratch_bytes // size)
            first, last = ranges[axis]
            base, end = 0, self.shape[axis]
            if self.segment and n == len(stages) - 1:
                base = first // self.segment * self.segment
                end = min(base + self.segment, end)
                results = [] if nodes is None else [plane.reshape(shape) for plane in nodes]
            else:
                results = [
                    _view(work, place, kind, outputs).reshape(shape)
                    for place, kind in zip(self.layout.planes[number][n], stage.outs, strict=True)
                ]
            is_node = bool(self.segment) and n == len(stages) - 1
            if stage.joins:
                stage.kernel.join(tiles[number], results, scratch)
            elif (first, last) == (base, end):
                if is_node:
                    stage.kernel.whole_node(values, at, base, results, scratch)
                else:
                    stage.kernel.whole(values, at, results, scratch)
            else:
                place = self.layout.states[number][n]
                state = _view(work, place, stage.acc, stage.state_bytes * outputs // size)
                stage.kernel.fold(values, at, first, state, scratch, base)
                if last < end:
                    return None
                if is_node:
                    stage.kernel.node(state, end - base, results)
                else:
                    stage.kernel.finish(state, results)
            if is_node:
                return None
            values = results
            left.remove(axis)
        return values

    def _elements(
        self, elements: KernelElements, tiles: Sequence[NDArray[Any]], work: NDArray[Any]
    ) -> NDArray[Any]:
        shape = tiles[0].shape
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
