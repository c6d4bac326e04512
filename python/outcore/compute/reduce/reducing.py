"""
One read of one array, or of several of one layout, for any number of reductions over the same axes.

Problem. The reduced axes may be rows or columns of the file. The result may be one number, or an
array of which only a part fits in memory. A sum must depend neither on the cuts of the array nor on
the number of ranks that share the work.
Idea. Kernels take an axis in pieces, in order, and keep what they need between pieces
(`outcore.compute.reduce.kernel`). Any tiles can therefore be used, in this order: all tiles of one
tile of the results, with the last reduced axis innermost. The plan uses the tiles that read
fastest, by the measured speed of the disk, among those whose states fit.
If there are too few tiles of the results for all ranks, the pass ends earlier: at *nodes*, one for
each index of the reduced axes that follow, or for each segment of an axis. A segment is a power of
two of leaves, so its node is a node of the tree of one process. Nodes are stored in temporary
arrays, and a second pass reads them in the order of the tree. The choice compares the estimated
times: reading by all ranks with one more synchronisation, or reading by fewer ranks.

Invariants. Each element is read once, except for chunks that tiles or segments cut. The bits of a
result depend only on the elements and the shape: not on tiles, order, threads, the budget or ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.arrays.tiling import Side, cut_slabs
from outcore.base import assumed_costs
from outcore.base.report import format_count
from outcore.compute.jobs import Bound, DiskSpeed, InsufficientBuffersError, Program, Result, Terms
from outcore.compute.reduce.kernel import (
    LEAF,
    AxisReduction,
    Chain,
    Finish,
    KernelElements,
    Layout,
    ReductionKernel,
)
from outcore.compute.reduce.tiles import Grid, compute_share, list_tile_costs

__all__ = ["plan_constant", "plan_reduction"]

Shape = tuple[int, ...]

# Number of tiles read concurrently from files that need no decoding.
_READS = 2
# Number of chains for each rank that segments should provide, so that the wait for the last ones is
# short.
_CHAINS = 8


@dataclass(frozen=True, slots=True, eq=False)
class _ReductionPass:
    """Arrays that a pass reads, and their reductions, as in `Layout`."""

    #: Shape of the inputs. For nodes, the first axis counts segments.
    shape: Shape
    #: Reduced axes, in the order of the stages. An additional axis of length 1 after all others
    #: is allowed.
    axes: Sequence[int]
    chains: Sequence[tuple[Sequence[AxisReduction], KernelElements | None, int]]
    #: Bytes of one element of all inputs.
    item: int
    #: Bytes of the stored values of one output.
    out: int
    #: Segment of the last stage if nodes are stored, otherwise 0.
    segment: int = 0
    spread: int = 0

    @property
    def kept(self) -> list[int]:
        """Axes that are not reduced."""
        return [k for k in range(len(self.shape)) if k not in self.axes]

    @property
    def most(self) -> Shape:
        """Maximum length of a tile along each axis: several segments are not read together."""
        most = list(self.shape)
        if self.segment:
            axis = self.axes[-1]
            most[axis] = min(most[axis], self.segment)
        return tuple(most)

    def layout(self, tile: Shape) -> Layout:
        """Return the layout of the work buffer."""
        more = (1,) * (max(self.axes, default=0) + 1 - len(self.shape))
        return Layout(
            self.chains,
            (*tile, *more),
            (*self.shape, *more),
            self.axes,
            self.segment,
            spread=self.spread,
        )

    def compute_bytes(self, tile: Shape, reading: int) -> int:
        """Compute the size of all buffers in bytes."""
        outputs = math.prod(tile[k] for k in self.kept)
        read = math.prod(tile) * self.item * (reading + 1)
        return read + self.layout(tile).nbytes + outputs * self.out

    def count_chains(self, tile: Shape) -> int:
        """Count the chains of steps."""
        count = math.prod(-(-self.shape[k] // tile[k]) for k in self.kept)
        return count * (-(-self.shape[self.axes[-1]] // self.segment) if self.segment else 1)


@dataclass(frozen=True, slots=True)
class _NodeCut:
    """Position where a pass ends at nodes."""

    #: Last stage of the pass.
    stage: int
    #: Number of indices of that axis for each node.
    segment: int
    #: Number of segments of the axis.
    count: int


@dataclass(frozen=True, slots=True)
class _ReductionPlan:
    """Estimated seconds, tile of the pass, and tile of the second pass over nodes."""

    seconds: float
    tile: Shape
    cut: _NodeCut | None = None
    second: Shape = ()


def plan_reduction(
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
    Return the planner of reductions over `axes`, in ascending order.

    No length of `shape`, that of each input, is 0. `finish` makes results of the planes of the
    chains. If the last input is broadcast, `where` is its shape.
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
        #: Shapes of the inputs.
        self.shapes = [shape] * len(native)
        if where is not None:
            self.shapes[-1] = where
        # Without reduced axes, each element is reduced along an additional axis.
        self.stages = tuple(reversed(axes)) or (len(shape),)
        self.tiles = cache(self._tiles)
        self.passes = cache(self._passes)

    def plan(self, terms: Terms) -> Program:
        alike = self.native[:-1] if self.spread else self.native
        sides = tuple(terms.side(n) or Side(d.itemsize, "C") for n, d in enumerate(alike))
        cuts = [None, *self.list_cuts(terms.ranks)]
        for reading in (1,) if any(side.whole for side in sides) else (_READS, 1):
            ways = [self.find_plan(terms, sides, cut, reading) for cut in cuts]
            best = min((way for way in ways if way), key=lambda way: way.seconds, default=None)
            if best is not None:
                break
        else:
            raise InsufficientBuffersError(
                self.tiles(None, sides, terms.disk, 1, terms.ranks, terms.cores)[-1][1]
            )
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
                Result(self.find_node_shape(terms, whole, best.cut, n), np.dtype(stages[-1].acc))
                for n, (stages, _, _) in enumerate(whole.chains)
            ]
        runs = " x ".join(map(str, best.tile)) or "one element"
        parts = f", whose {whole.count_chains(best.tile)} parts are put together" if nodes else ""
        once = stored | {
            n: math.prod(self.shapes[n]) * dtype.itemsize
            for n, dtype in enumerate(self.native)
            if terms.infos[n] is not None
        }
        return Program(
            tuple(phases),
            f"one pass in {format_count(first.steps, 'tile')} of {runs}{parts}; the order of sums "
            "depends on indices alone",
            Bound.of(once, "inputs once" + (", results once" if stored else "")),
            tuple(temporaries),
        )

    @property
    def outputs(self) -> int:
        """Number of elements of a result."""
        return math.prod(n for k, n in enumerate(self.shape) if k not in self.axes)

    def list_cuts(self, ranks: int) -> list[_NodeCut]:
        """List the positions where the pass may end at nodes, so that each rank has work."""
        found = []
        for stage, axis in enumerate(self.axes[::-1] if ranks > 1 else ()):
            later = math.prod(self.shape[k] for k in self.stages[stage + 1 :])
            length = self.shape[axis]
            segment = LEAF
            while segment < length and later * -(-length // (2 * segment)) >= _CHAINS * ranks:
                segment *= 2
            cut = _NodeCut(stage, segment, -(-length // segment))
            if later * cut.count > 1:
                found.append(cut)
        return found

    def _passes(
        self, cut: _NodeCut | None, threads: int
    ) -> tuple[_ReductionPass, _ReductionPass | None]:
        """Return the pass over the inputs, and the pass over nodes if there is one."""
        item = sum(dtype.itemsize for dtype in self.native)
        out = sum(dtype.itemsize for dtype in self.results)
        stages = [chain.stages(threads) for chain in self.chains]
        elements = [chain.elements for chain in self.chains]
        if cut is None:
            all_of = [(one, made, made.parts) for one, made in zip(stages, elements, strict=True)]
            return _ReductionPass(
                self.shape, self.stages, all_of, item, out, spread=self.spread
            ), None
        n = cut.stage + 1
        some = [(one[:n], made, made.parts) for one, made in zip(stages, elements, strict=True)]
        node = sum(len(s[-1].outs) * int(s[-1].acc[1:]) * parts for s, _, parts in some)
        whole = _ReductionPass(
            self.shape, self.stages[:n], some, item, node, cut.segment, spread=self.spread
        )
        rest: list[tuple[Sequence[AxisReduction], KernelElements | None, int]] = [
            ([one[cut.stage].make_node_reduction(cut.count), *one[n:]], None, made.parts)
            for one, made in zip(stages, elements, strict=True)
        ]
        # Segments are the first axis, then the remaining axes follow in the order of the file.
        kept = whole.kept
        shape = (cut.count, *(self.shape[k] for k in kept))
        axes = (0, *(1 + kept.index(k) for k in self.stages[n:]))
        return whole, _ReductionPass(shape, axes, rest, node, out)

    def _tiles(
        self,
        cut: _NodeCut | None,
        sides: tuple[Side, ...],
        disk: DiskSpeed,
        reading: int,
        ranks: int,
        threads: int,
    ) -> list[tuple[float, int, Shape]]:
        """List seconds, bytes and tiles, fastest first; each needs less memory than those before it."""
        whole = self.passes(cut, threads)[0]
        return _filter_tiles(
            whole, list_tile_costs(self.shape, sides, disk, whole.most), reading, ranks
        )

    def find_plan(
        self, terms: Terms, sides: tuple[Side, ...], cut: _NodeCut | None, reading: int
    ) -> _ReductionPlan | None:
        """Return the fastest plan that fits and ends at this cut; None if none does."""
        whole, nodes = self.passes(cut, terms.cores)
        possible = self.tiles(cut, sides, terms.disk, reading, terms.ranks, terms.cores)
        found = _find_fitting(possible, terms.room)
        if found is None or nodes is None:
            return found
        moved = math.prod(nodes.shape) * nodes.item
        if moved > math.prod(self.shape) * whole.item // 4:
            return None  # nearly all of the available memory
        parts = [Side(nodes.item, "C")]
        prices = list_tile_costs(nodes.shape, parts, terms.disk)
        prices = [(s, t) for s, t in prices if t[0] == nodes.shape[0]]
        again = _find_fitting(_filter_tiles(nodes, prices, 1, terms.ranks), terms.room)
        if again is None:
            return None
        stored = terms.disk.seconds(whole.count_chains(found.tile), moved) / terms.ranks
        return _ReductionPlan(
            found.seconds + again.seconds + stored + assumed_costs.SYNCHRONISATION_SECONDS,
            found.tile,
            cut,
            again.tile,
        )

    def names(self, way: _ReductionPlan) -> tuple[str, ...]:
        return (
            *(f"input {n}" for n in range(len(self.native))),
            *(f"result {n}" for n in range(len(self.results))),
            *(f"nodes {n}" for n in range(len(self.chains) if way.cut else 0)),
        )

    def find_node_axes(self, terms: Terms, whole: _ReductionPass) -> list[int]:
        """Return the axes of nodes, in the order of the kernel."""
        return whole.kept[::-1] if terms.order(0) == "F" else whole.kept

    def section(self, number: int, section: Section) -> Section:
        """Return the section of an input: the last one may have fewer axes, and axes of length 1."""
        shape = self.shapes[number]
        last = section[len(section) - len(shape) :]
        return tuple(
            part if n == self.shape[k] else slice(0, 1)
            for k, (n, part) in enumerate(zip(shape, last, strict=True), len(section) - len(shape))
        )

    def find_node_shape(
        self, terms: Terms, whole: _ReductionPass, cut: _NodeCut, number: int
    ) -> Shape:
        """
        Return the shape of the nodes of a chain: planes, segments, axes, and parts of complex
        numbers.
        """
        stages, _, parts = whole.chains[number]
        lengths = (self.shape[k] for k in self.find_node_axes(terms, whole))
        return (len(stages[-1].outs), cut.count, *lengths, *(parts,) * (parts > 1))

    def first(
        self, terms: Terms, whole: _ReductionPass, way: _ReductionPlan, reading: int
    ) -> Schedule:
        """Plan the pass over the inputs."""
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
        kept = self.find_node_axes(terms, whole)
        if cut is None:
            outs = [Buffer(outputs, dtype, order) for dtype in self.results]
        else:
            outs = [
                Buffer(len(s[-1].outs) * outputs * parts, np.dtype(s[-1].acc))
                for s, _, parts in whole.chains
            ]

        def step(number: int) -> ScheduleStep:
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
            return ScheduleStep(
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
                ReductionKernel(
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

    def second(self, terms: Terms, nodes: _ReductionPass, way: _ReductionPlan) -> Schedule:
        """Plan the pass over nodes."""
        turned, tile = terms.order(0) == "F", way.second
        order = "F" if turned else "C"
        whole = self.passes(way.cut, terms.cores)[0]
        kept = self.find_node_axes(terms, whole)
        # In the order of the kernel.
        shape = (nodes.shape[0], *(self.shape[k] for k in kept))
        axes = (0, *(1 + kept.index(k) for k in self.stages[len(whole.axes) :]))
        if turned:
            tile = (tile[0], *reversed(tile[1:]))
        one = _ReductionPass(shape, axes, nodes.chains, nodes.item, nodes.out)
        layout = one.layout(tile)
        grid = Grid(shape, tile, axes[::-1], "C")
        inputs, results = len(self.native), len(self.results)
        chains, most = len(nodes.chains), math.prod(tile)
        outputs = math.prod(tile[k] for k in one.kept)

        def step(number: int) -> ScheduleStep:
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
            return ScheduleStep(
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
            kernels=(ReductionKernel(nodes.chains, layout, shape, axes, 0, self.finish),),
        )


def _lengths(section: Section) -> Shape:
    """Return the lengths of the axes of a section."""
    return tuple(part.stop - part.start for part in section)


def _filter_tiles(
    one: _ReductionPass, prices: Sequence[tuple[float, Shape]], reading: int, ranks: int
) -> list[tuple[float, int, Shape]]:
    """List seconds, bytes and tiles, fastest first; each needs less memory than the ones before it."""
    found: list[tuple[float, int, Shape]] = []
    if ranks > 1:
        shared = [(s * compute_share(one.count_chains(tile), ranks), tile) for s, tile in prices]
        prices = sorted(shared, key=lambda priced: (priced[0], math.prod(priced[1])))
    for seconds, tile in prices:
        held = one.compute_bytes(tile, reading)
        if not found or held < found[-1][1]:
            found.append((seconds, held, tile))
    return found


def _find_fitting(possible: Sequence[tuple[float, int, Shape]], room: int) -> _ReductionPlan | None:
    return next(
        (_ReductionPlan(seconds, tile) for seconds, held, tile in possible if held <= room), None
    )


def plan_constant(
    name: str,
    shape: Shape,
    inputs: int,
    dtypes: Sequence[np.dtype[Any]],
    values: Callable[[], Sequence[Any]],
) -> Callable[[Terms], Program]:
    """
    Return the planner of results that do not depend on elements.

    `shape` and `dtypes` are those of the results, `inputs` the number of inputs. `values` is called
    when the plan runs, and returns the value of all elements of each result.
    """

    def plan(terms: Terms) -> Program:
        item = sum(dtype.itemsize for dtype in dtypes)
        most = max(terms.room // item, 1)
        tile = cut_slabs(shape, most).tile
        grid = Grid(shape, tile, (), "C", keepdims=False)

        def step(number: int) -> ScheduleStep:
            section = grid.tile(number)[0]
            size = tuple(part.stop - part.start for part in section)
            return ScheduleStep(
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
