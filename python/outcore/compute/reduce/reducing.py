"""
One read of one array, or of several that lie alike: any number of reductions over the same axes.

Problem. What is reduced may be rows or columns of the file, the results may be one number or as many as
fit memory only in part; and a sum must not depend on how the array was cut, nor on how many ranks share
the work.
Idea. Kernels take an axis in pieces, in order, and keep what they need between pieces
(`outcore.compute.reduce.kernel`). So any tiles will do, in the order that this needs: all of one tile of
the results, and in that the last reduced axis innermost. The tiles are those that read fastest, by the
figures of the disk, among those whose states fit.
Where there are too few tiles of the results for all ranks, the pass ends earlier: at *nodes*, one for
each index of the reduced axes that come later, or for each segment of an axis. A segment is a power of
two of leaves, so its node is one of the tree that one process goes through. Nodes go into temporary
arrays, and a second pass takes them in, in the order of the tree. Which of these ways is taken, the
figures say: reading by all ranks and synchronising once more, or reading by fewer.

Invariants. Each element is read once, but for chunks that tiles or segments cut. The bits of a result
depend on the elements and the shape alone: not on tiles, order, threads, the budget or ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, Section, Step, Store
from outcore.arrays.tiling import Side, slabs
from outcore.base import assumed_costs
from outcore.base.report import counted
from outcore.compute.jobs import Bound, Disk, Program, Result, Terms, TooLittle
from outcore.compute.reduce.kernel import LEAF, Chain, Elements, Finish, Kernel, Layout, Stage
from outcore.compute.reduce.tiles import Grid, priced, share

__all__ = ["constant", "reducing"]

Shape = tuple[int, ...]

# Tiles that are read at the same time, from files that need no decoding.
_READS = 2
# Chains for each rank that segments should give: then the last ones to end keep nobody waiting long.
_CHAINS = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """
    What is read, and what it is reduced to.

    Parameters
    ----------
    shape
        Of the inputs; of nodes the segments come first.
    axes
        That are reduced, in the order of the stages. An axis of length 1 behind all others may be one.
    chains
        As `Layout` has them.
    item, out
        Bytes of an element of all inputs, and of what is stored for an output.
    segment
        Of the last stage, if nodes are stored; else 0.
    spread
        Bytes of an element of the last input if it is broadcast; else 0.
    """

    shape: Shape
    axes: Sequence[int]
    chains: Sequence[tuple[Sequence[Stage], Elements | None, int]]
    item: int
    out: int
    segment: int = 0
    spread: int = 0

    @property
    def kept(self) -> list[int]:
        """The other axes."""
        return [k for k in range(len(self.shape)) if k not in self.axes]

    @property
    def most(self) -> Shape:
        """The longest tile along each axis: segments are not read together."""
        most = list(self.shape)
        if self.segment:
            axis = self.axes[-1]
            most[axis] = min(most[axis], self.segment)
        return tuple(most)

    def layout(self, tile: Shape) -> Layout:
        """Of the work buffer."""
        more = (1,) * (max(self.axes, default=0) + 1 - len(self.shape))
        return Layout(
            self.chains,
            (*tile, *more),
            (*self.shape, *more),
            self.axes,
            self.segment,
            spread=self.spread,
        )

    def held(self, tile: Shape, reading: int) -> int:
        """Bytes of all buffers."""
        outputs = math.prod(tile[k] for k in self.kept)
        read = math.prod(tile) * self.item * (reading + 1)
        return read + self.layout(tile).nbytes + outputs * self.out

    def chains_of(self, tile: Shape) -> int:
        """How many chains of steps there are."""
        count = math.prod(-(-self.shape[k] // tile[k]) for k in self.kept)
        return count * (-(-self.shape[self.axes[-1]] // self.segment) if self.segment else 1)


@dataclass(frozen=True, slots=True)
class _Cut:
    """
    Where a pass ends at nodes.

    Parameters
    ----------
    stage
        The last one that it takes.
    segment
        Indices of that axis for each node.
    count
        Segments of the axis.
    """

    stage: int
    segment: int
    count: int


@dataclass(frozen=True, slots=True)
class _Way:
    """How many seconds it takes, the tile of the pass, and that of the second pass over nodes."""

    seconds: float
    tile: Shape
    cut: _Cut | None = None
    second: Shape = ()


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
    where: Shape | None = None,
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
    where
        Shape of the last input if it is broadcast to that of the others.
    """
    native = [dtype.newbyteorder("=") for dtype in dtypes]
    reduction = _Reduction(
        name, shape, tuple(axes), native, chains, list(results), finish, keepdims, where
    )
    return reduction.plan


class _Reduction:
    def __init__(
        self,
        name: str,
        shape: Shape,
        axes: Shape,
        native: Sequence[np.dtype[Any]],
        chains: Sequence[Chain],
        results: Sequence[np.dtype[Any]],
        finish: Finish,
        keepdims: bool,
        where: Shape | None,
    ) -> None:
        self.name, self.shape, self.axes, self.native = name, shape, axes, native
        self.chains, self.results, self.finish = chains, results, finish
        self.keepdims = keepdims
        self.spread = native[-1].itemsize if where is not None and where != shape else 0
        #: Of each input.
        self.shapes = [shape] * len(native)
        if where is not None:
            self.shapes[-1] = where
        # Without axes each element is reduced along an axis of its own.
        self.stages = tuple(reversed(axes)) or (len(shape),)
        self.tiles = cache(self._tiles)
        self.passes = cache(self._passes)

    def plan(self, terms: Terms) -> Program:
        alike = self.native[:-1] if self.spread else self.native
        sides = tuple(terms.side(n) or Side(d.itemsize, "C") for n, d in enumerate(alike))
        cuts = [None, *self.cuts(terms.ranks)]
        for reading in (1,) if any(side.whole for side in sides) else (_READS, 1):
            ways = [self.way(terms, sides, cut, reading) for cut in cuts]
            best = min((way for way in ways if way), key=lambda way: way.seconds, default=None)
            if best is not None:
                break
        else:
            raise TooLittle(self.tiles(None, sides, terms.disk, 1, terms.ranks, terms.cores)[-1][1])
        whole, nodes = self.passes(best.cut, terms.cores)
        first = self.first(terms, whole, best, reading)
        phases, temporaries = [first], []
        stored = {
            len(self.native) + n: self.outputs * dtype.itemsize
            for n, dtype in enumerate(self.results)
            if terms.infos[len(self.native) + n] is not None
        }
        if nodes is not None and best.cut is not None:
            phases.append(self.second(terms, nodes, best))
            temporaries = [
                Result(self.node_shape(terms, whole, best.cut, n), np.dtype(stages[-1].acc))
                for n, (stages, _, _) in enumerate(whole.chains)
            ]
        runs = " x ".join(map(str, best.tile)) or "one element"
        parts = f", whose {whole.chains_of(best.tile)} parts are put together" if nodes else ""
        once = stored | {
            n: math.prod(self.shapes[n]) * dtype.itemsize
            for n, dtype in enumerate(self.native)
            if terms.infos[n] is not None
        }
        return Program(
            tuple(phases),
            f"one pass in {counted(first.steps, 'tile')} of {runs}{parts}; the order of sums depends on "
            "indices alone",
            Bound.of(once, "inputs once" + (", results once" if stored else "")),
            tuple(temporaries),
        )

    @property
    def outputs(self) -> int:
        """Elements of a result."""
        return math.prod(n for k, n in enumerate(self.shape) if k not in self.axes)

    def cuts(self, ranks: int) -> list[_Cut]:
        """Where the pass may end at nodes, so that each rank has something to do."""
        found = []
        for stage, axis in enumerate(self.axes[::-1] if ranks > 1 else ()):
            later = math.prod(self.shape[k] for k in self.stages[stage + 1 :])
            length = self.shape[axis]
            segment = LEAF
            while segment < length and later * -(-length // (2 * segment)) >= _CHAINS * ranks:
                segment *= 2
            cut = _Cut(stage, segment, -(-length // segment))
            if later * cut.count > 1:
                found.append(cut)
        return found

    def _passes(self, cut: _Cut | None, threads: int) -> tuple[_Pass, _Pass | None]:
        """The pass over the inputs, and that over nodes if there is one."""
        item = sum(dtype.itemsize for dtype in self.native)
        out = sum(dtype.itemsize for dtype in self.results)
        stages = [chain.stages(threads) for chain in self.chains]
        elements = [chain.elements for chain in self.chains]
        if cut is None:
            all_of = [(one, made, made.parts) for one, made in zip(stages, elements, strict=True)]
            return _Pass(self.shape, self.stages, all_of, item, out, spread=self.spread), None
        n = cut.stage + 1
        some = [(one[:n], made, made.parts) for one, made in zip(stages, elements, strict=True)]
        node = sum(len(s[-1].outs) * int(s[-1].acc[1:]) * parts for s, _, parts in some)
        whole = _Pass(
            self.shape, self.stages[:n], some, item, node, cut.segment, spread=self.spread
        )
        rest: list[tuple[Sequence[Stage], Elements | None, int]] = [
            ([one[cut.stage].of_nodes(cut.count), *one[n:]], None, made.parts)
            for one, made in zip(stages, elements, strict=True)
        ]
        # Segments come first, then the axes that are left, in the order of the file.
        kept = whole.kept
        shape = (cut.count, *(self.shape[k] for k in kept))
        axes = (0, *(1 + kept.index(k) for k in self.stages[n:]))
        return whole, _Pass(shape, axes, rest, node, out)

    def _tiles(
        self,
        cut: _Cut | None,
        sides: tuple[Side, ...],
        disk: Disk,
        reading: int,
        ranks: int,
        threads: int,
    ) -> list[tuple[float, int, Shape]]:
        """Seconds, bytes and tiles, the faster ones first; none needs more than one before it."""
        whole = self.passes(cut, threads)[0]
        return _fewer(whole, priced(self.shape, sides, disk, whole.most), reading, ranks)

    def way(
        self, terms: Terms, sides: tuple[Side, ...], cut: _Cut | None, reading: int
    ) -> _Way | None:
        """The fastest way that fits and ends there; None if none does."""
        whole, nodes = self.passes(cut, terms.cores)
        possible = self.tiles(cut, sides, terms.disk, reading, terms.ranks, terms.cores)
        found = _fitting(possible, terms.room)
        if found is None or nodes is None:
            return found
        moved = math.prod(nodes.shape) * nodes.item
        if moved > math.prod(self.shape) * whole.item // 4:
            return None  # nearly as much as there was
        parts = [Side(nodes.item, "C")]
        prices = priced(nodes.shape, parts, terms.disk)
        prices = [(s, t) for s, t in prices if t[0] == nodes.shape[0]]
        again = _fitting(_fewer(nodes, prices, 1, terms.ranks), terms.room)
        if again is None:
            return None
        stored = terms.disk.seconds(whole.chains_of(found.tile), moved) / terms.ranks
        return _Way(
            found.seconds + again.seconds + stored + assumed_costs.SYNCHRONISATION_SECONDS,
            found.tile,
            cut,
            again.tile,
        )

    def names(self, way: _Way) -> tuple[str, ...]:
        return (
            *(f"input {n}" for n in range(len(self.native))),
            *(f"result {n}" for n in range(len(self.results))),
            *(f"nodes {n}" for n in range(len(self.chains) if way.cut else 0)),
        )

    def kept(self, terms: Terms, whole: _Pass) -> list[int]:
        """The axes of nodes, in the order in which the kernel has them."""
        return whole.kept[::-1] if terms.order(0) == "F" else whole.kept

    def section(self, number: int, section: Section) -> Section:
        """Of an input: the last one may have fewer axes, and axes of length 1."""
        shape = self.shapes[number]
        last = section[len(section) - len(shape) :]
        return tuple(
            part if n == self.shape[k] else slice(0, 1)
            for k, (n, part) in enumerate(zip(shape, last, strict=True), len(section) - len(shape))
        )

    def node_shape(self, terms: Terms, whole: _Pass, cut: _Cut, number: int) -> Shape:
        """Of the temporary array of a chain: planes, segments, axes, and parts of complex numbers."""
        stages, _, parts = whole.chains[number]
        lengths = (self.shape[k] for k in self.kept(terms, whole))
        return (len(stages[-1].outs), cut.count, *lengths, *(parts,) * (parts > 1))

    def first(self, terms: Terms, whole: _Pass, way: _Way, reading: int) -> Schedule:
        """The pass over the inputs."""
        turned, cut, tile = terms.order(0) == "F", way.cut, way.tile
        order = "F" if turned else "C"
        some = tuple(slice(0, n) for n in tile)
        sizes = [math.prod(_lengths(self.section(n, some))) for n in range(len(self.native))]
        layout = whole.layout(tile)
        inputs, results = len(self.native), len(self.results)
        outputs = math.prod(tile[k] for k in whole.kept)
        more = (1,) * (max(whole.axes) + 1 - len(self.shape))
        grid = Grid(
            self.shape,
            tile,
            [k for k in reversed(whole.axes) if k < len(self.shape)],
            order,
            keepdims=self.keepdims,
            segment=whole.segment,
        )
        kept = self.kept(terms, whole)
        if cut is None:
            outs = [Buffer(outputs, dtype, order) for dtype in self.results]
        else:
            outs = [
                Buffer(len(s[-1].outs) * outputs * parts, np.dtype(s[-1].acc))
                for s, _, parts in whole.chains
            ]

        def step(number: int) -> Step:
            section, begins, ends = grid.tile(number)
            ranges = tuple((part.start, part.stop) for part in section)
            sections = [self.section(n, section) for n in range(inputs)]
            blocks = [Block(n, _lengths(one)) for n, one in enumerate(sections)]
            blocks.append(Block(inputs, (layout.nbytes,)))
            stores = []
            for n in range(len(outs) if ends else 0):
                if cut is None:
                    array, there = inputs + n, grid.result(section)
                else:
                    at = section[whole.axes[-1]].start // cut.segment
                    stages, _, parts = whole.chains[n]
                    array = inputs + results + n
                    there = (
                        slice(0, len(stages[-1].outs)),
                        slice(at, at + 1),
                        *(section[k] for k in kept),
                        *(slice(0, parts),) * (parts > 1),
                    )
                size = tuple(part.stop - part.start for part in there)
                blocks.append(Block(inputs + 1 + n, size))
                stores.append(Store(array, there, inputs + 1 + n))
            return Step(
                blocks=tuple(blocks),
                loads=tuple(Load(n, one, n) for n, one in enumerate(sections)),
                stores=tuple(stores),
                kernel=0,
                arguments=((*ranges, (0, 1)), inputs, turned),
                continues=not begins,
                work=math.prod(_lengths(section)) * len(self.chains),
            )

        return Schedule(
            name=self.name,
            arrays=self.names(way),
            buffers=(
                *(
                    Buffer(size, dtype, order, copies=reading + 1)
                    for size, dtype in zip(sizes, self.native, strict=True)
                ),
                Buffer(layout.nbytes, np.dtype(np.uint8), kept=True),
                *outs,
            ),
            steps=grid.steps,
            make=step,
            kernels=(
                Kernel(
                    whole.chains,
                    layout,
                    (*self.shape, *more),
                    whole.axes,
                    whole.segment,
                    self.finish if cut is None else None,
                ),
            ),
            reading=reading,
        )

    def second(self, terms: Terms, nodes: _Pass, way: _Way) -> Schedule:
        """The pass over nodes."""
        turned, tile = terms.order(0) == "F", way.second
        order = "F" if turned else "C"
        whole = self.passes(way.cut, terms.cores)[0]
        kept = self.kept(terms, whole)
        # As the kernel has them.
        shape = (nodes.shape[0], *(self.shape[k] for k in kept))
        axes = (0, *(1 + kept.index(k) for k in self.stages[len(whole.axes) :]))
        if turned:
            tile = (tile[0], *reversed(tile[1:]))
        one = _Pass(shape, axes, nodes.chains, nodes.item, nodes.out)
        layout = one.layout(tile)
        grid = Grid(shape, tile, axes[::-1], "C")
        inputs, results = len(self.native), len(self.results)
        chains, most = len(nodes.chains), math.prod(tile)
        outputs = math.prod(tile[k] for k in one.kept)

        def step(number: int) -> Step:
            section, begins, ends = grid.tile(number)
            ranges = tuple((part.start, part.stop) for part in section)
            blocks, loads, stores = [], [], []
            for n, (stages, _, parts) in enumerate(nodes.chains):
                planes = slice(0, len(stages[0].outs))
                there = (planes, *section, *(slice(0, parts),) * (parts > 1))
                blocks.append(Block(n, tuple(part.stop - part.start for part in there)))
                loads.append(Load(inputs + results + n, there, n))
            blocks.append(Block(chains, (layout.nbytes,)))
            if ends:
                of = dict(zip(kept, section[1:], strict=True))
                there = tuple(
                    slice(0, 1) if k in self.axes else of[k]
                    for k in range(len(self.shape))
                    if self.keepdims or k not in self.axes
                )
                size = tuple(part.stop - part.start for part in there)
                blocks += [Block(chains + 1 + n, size) for n in range(results)]
                stores += [Store(inputs + n, there, chains + 1 + n) for n in range(results)]
            return Step(
                blocks=tuple(blocks),
                loads=tuple(loads),
                stores=tuple(stores),
                kernel=0,
                arguments=(ranges, chains, False),
                continues=not begins,
                work=math.prod(high - low for low, high in ranges) * chains,
            )

        return Schedule(
            name=self.name,
            arrays=self.names(way),
            buffers=(
                *(
                    Buffer(len(s[0].outs) * most * parts, np.dtype(s[0].acc), copies=2)
                    for s, _, parts in nodes.chains
                ),
                Buffer(layout.nbytes, np.dtype(np.uint8), kept=True),
                *(Buffer(outputs, dtype, order) for dtype in self.results),
            ),
            steps=grid.steps,
            make=step,
            kernels=(Kernel(nodes.chains, layout, shape, axes, 0, self.finish),),
        )


def _lengths(section: Section) -> Shape:
    """Of its axes."""
    return tuple(part.stop - part.start for part in section)


def _fewer(
    one: _Pass, prices: Sequence[tuple[float, Shape]], reading: int, ranks: int
) -> list[tuple[float, int, Shape]]:
    """Seconds, bytes and tiles, the faster ones first; none needs more than one before it."""
    found: list[tuple[float, int, Shape]] = []
    if ranks > 1:
        shared = [(s * share(one.chains_of(tile), ranks), tile) for s, tile in prices]
        prices = sorted(shared, key=lambda priced: (priced[0], math.prod(priced[1])))
    for seconds, tile in prices:
        held = one.held(tile, reading)
        if not found or held < found[-1][1]:
            found.append((seconds, held, tile))
    return found


def _fitting(possible: Sequence[tuple[float, int, Shape]], room: int) -> _Way | None:
    return next((_Way(seconds, tile) for seconds, held, tile in possible if held <= room), None)


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
        tile = slabs(shape, most).tile
        grid = Grid(shape, tile, (), "C", keepdims=False)

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
        once = {inputs + n: math.prod(shape) * one.itemsize for n, one in enumerate(dtypes)}
        bound = Bound.of(once, "results once")
        return Program((schedule,), "there is nothing to read", bound)

    return plan
