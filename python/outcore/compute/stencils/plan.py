"""
Plan of a stencil: steps in a pass, slabs, panels.

Problem. More steps in a pass mean fewer passes, but each step keeps rows, which reduce the memory for
slabs.
Idea. The memory of a pass is computed by arithmetic, so all combinations are compared: numbers of
panels, sizes of slabs, and for each the maximum number of steps that fit. The plan with the shortest
transfer time is used, by the measured speed of the disk.

Invariants. Equal terms give equal programs. All passes of a program except the last one have the same
number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleStep, Section, Store
from outcore.base import assumed_costs
from outcore.compute.copies.copying import plan_copy
from outcore.compute.jobs import (
    Bound,
    DeferredPhase,
    InsufficientBuffersError,
    Phase,
    Program,
    Result,
    Terms,
    find_largest,
)
from outcore.compute.rates import measure_seconds
from outcore.compute.stencils.function import FunctionPass

__all__ = ["StencilTask", "Taps", "plan_stencil"]

Shape = tuple[int, ...]
#: Offsets along each axis, and the weight.
Taps = tuple[tuple[Shape, complex], ...]
Pass = Any
#: Function from the arrays of a program to a schedule.
Make = Callable[[Sequence[Any]], Schedule]

# Bytes of the two tiles of a lane, which should stay in the processor's second-level cache.
_CACHE = 512 * 2**10
# Columns of a tile of a matrix: three rows of them stay in the first-level cache.
_COLUMNS = 512
# Bytes of a slab above which larger slabs gain nothing.
_LARGE_SLAB = 16 * 2**20
# Minimum ratio of the width of a rank's panel to the columns of its neighbours that it computes again.
_ALONE = 8
# Bytes of a run that panels do not cut: at least a page is always moved.
_SHORT_RUN = 4 * 2**10


@dataclass(frozen=True, slots=True)
class StencilTask:
    """Specification of the computation."""

    shape: Shape
    source_dtype: np.dtype[Any]
    #: Dtype of all steps, in native byte order.
    dtype: np.dtype[Any]
    #: Extension beyond the ends of each axis, with `cval`.
    boundary: tuple[str, ...]
    cval: Any
    #: Number of steps.
    steps: int
    #: Change that is small enough, and function that is called with changes.
    until: float | None
    callback: Callable[[int, float], object] | None
    #: Neighbours and their weights.
    taps: Taps = ()
    #: Function and its halo, instead of `taps`.
    function: Callable[[NDArray[Any]], Any] | None = None
    halo: Shape = ()
    #: Record of the function in the journal.
    record: str = ""

    @property
    def radius(self) -> Shape:
        """Number of neighbours needed along each axis."""
        if self.function is not None:
            return self.halo
        return tuple(
            max((abs(offset[axis]) for offset, _ in self.taps), default=0)
            for axis in range(len(self.shape))
        )


def plan_stencil(task: StencilTask) -> Callable[[Terms], Program]:
    """Return the planner of a stencil."""

    def plan(terms: Terms) -> Program:
        if task.steps == 0 or not math.prod(task.shape):
            return plan_copy("stencil", task.shape, (task.source_dtype, task.dtype))(terms)
        return _Planner(task, terms).program()

    return plan


@dataclass(frozen=True, slots=True)
class _PassDivision:
    """Division of a pass: its steps, rows of a slab, panels, and copies of the blocks that are moved."""

    levels: int
    rows: int
    panels: int
    copies: tuple[int, int]


class _Planner:
    def __init__(self, task: StencilTask, terms: Terms) -> None:
        self.task, self.terms = task, terms
        self.ndim = len(task.shape)
        self.backwards = terms.order(0) == "F"
        self.shape = self.reverse_axes(task.shape)
        self.radius = self.reverse_axes(task.radius)
        self.boundary = self.reverse_axes(task.boundary)
        width = 2 if task.dtype.kind == "c" else 1
        self.width = 1 if task.function else width
        self.number = task.dtype if task.function else np.empty(0, task.dtype).real.dtype
        self.casts = task.source_dtype.newbyteorder("=") != task.dtype
        #: Cached passes, by levels, rows of a slab and panels.
        self.known: dict[tuple[int, int, int], dict[Any, Pass]] = {}

    def reverse_axes(self, axes: Sequence[Any]) -> tuple[Any, ...]:
        """Convert axes of the array to slowest-first order, or back."""
        return tuple(reversed(axes)) if self.backwards else tuple(axes)

    # Division of a pass.

    def panels(self, count: int, levels: int) -> list[tuple[int, int, int, int]]:
        """Return the columns of each panel, and those that it reads (maybe past the ends)."""
        if self.ndim == 1:
            return [(0, 1, 0, 1)]
        n = self.shape[1]
        if count == 1:
            return [(0, n, 0, n)]
        around = levels * self.radius[1]
        ends = [n * k // count for k in range(count + 1)]
        found = []
        for low, high in pairwise(ends):
            first, last = low - around, high + around
            if self.boundary[1] != "wrap":
                first, last = max(first, 0), min(last, n)
            found.append((low, high, first, last))
        return found

    def make_pass(self, cut: _PassDivision, panel: tuple[int, int, int, int]) -> Pass:
        task = self.task
        low, high, first, last = panel
        shape, boundary = self.shape, self.boundary
        if self.ndim > 1:
            shape = (shape[0], last - first, *shape[2:])
        if self.ndim > 1 and cut.panels > 1 and boundary[1] == "wrap":
            # The elements beyond the columns of a panel are read with them.
            boundary = (boundary[0], "nearest", *boundary[2:])
        counted = (low - first, high - first) if task.until is not None else None
        if task.function is not None:
            return FunctionPass(
                shape,
                task.dtype,
                task.function,
                self.radius,
                boundary,
                task.cval,
                cut.levels,
                self.backwards,
                cut.rows,
                counted,
            )
        rows, columns = self.band(shape, boundary, cut.rows)
        return _core.StencilPass(
            shape,
            [(self.reverse_axes(offset), weight.real, weight.imag) for offset, weight in task.taps],
            boundary,
            width=self.width,
            double=self.number == np.float64,
            fill=(complex(task.cval).real, complex(task.cval).imag),
            levels=cut.levels,
            rows=rows,
            columns=columns,
            measured=counted,
        )

    def band(self, shape: Shape, boundary: Sequence[str], slab: int) -> tuple[int, int | None]:
        """Return rows of a band and columns of a tile: two tiles fit the cache, each lane has a band."""
        item = self.task.dtype.itemsize
        most = -(-slab // self.terms.cores)
        tile = _CACHE // 2 // item
        if len(shape) == 1:
            return max(min(most, tile), 1), None
        column = math.prod(shape[2:])
        whole = shape[1] * column
        if boundary[1] == "wrap" or whole * (8 + 2 * self.radius[0]) <= tile:
            return max(min(most, tile // whole), 1), None
        columns = _COLUMNS if len(shape) == 2 else max(math.isqrt(tile // column), 4)
        columns = max(columns, 4 * self.radius[1])
        return max(min(most, max(tile // (columns * column), 4)), 1), min(columns, shape[1])

    def buffers(self, cut: _PassDivision, passes: Sequence[Pass]) -> tuple[Buffer, ...]:
        """Return buffers: new, ready and kept rows; workspace of lanes; changes; new rows, cast."""
        task = self.task
        row = self.row(cut)
        order = "F" if self.backwards else "C"
        kind = task.source_dtype.newbyteorder("=") if self.casts else task.dtype
        most = cut.rows * row
        lanes = 1 if self.task.function else self.terms.cores
        buffers = [
            Buffer(most, kind, order, copies=cut.copies[0]),
            Buffer(most, task.dtype, order, copies=cut.copies[1]),
            Buffer(max(max(one.kept for one in passes), 1), self.number, kept=True),
            Buffer(max(max(one.scratch for one in passes) * lanes, 1), self.number),
            Buffer(cut.levels, np.dtype(np.float64), kept=True),
        ]
        if self.casts:
            buffers.append(Buffer(most, task.dtype, order))
        return tuple(buffers)

    def row(self, cut: _PassDivision) -> int:
        """Return the number of elements in a row of the widest panel."""
        if self.ndim == 1:
            return 1
        widest = max(last - first for _, _, first, last in self.panels(cut.panels, cut.levels))
        return int(widest * math.prod(self.shape[2:]))

    def compute_bytes(self, cut: _PassDivision) -> int:
        """Compute the size of all buffers of a pass in bytes."""
        passes = self.passes(cut)
        return sum(buffer.nbytes for buffer in self.buffers(cut, list(passes.values())))

    def passes(self, cut: _PassDivision) -> dict[Any, Pass]:
        """Return one pass for each kind of panel."""
        known = (cut.levels, cut.rows, cut.panels)
        if known in self.known:
            return self.known[known]
        found: dict[Any, Pass] = {}
        for panel in self.panels(cut.panels, cut.levels):
            key = _kind(panel)
            if key not in found:
                found[key] = self.make_pass(cut, panel)
        self.known[known] = found
        return found

    def choose(self) -> _PassDivision:
        """Choose the fastest division; with ranks, compare also one that one rank computes alone."""
        starts = {1, self.least_panels()}
        found = [self.find_division(start) for start in sorted(starts)]
        cuts = [one for one in found if isinstance(one, _PassDivision)]
        if not cuts:
            raise InsufficientBuffersError(min(one for one in found if isinstance(one, int)))
        return min(cuts, key=self.seconds_on_ranks)

    def seconds_on_ranks(self, cut: _PassDivision) -> float:
        """Estimate the time of all passes, with borders computed again, and synchronisations."""
        passes = -(-self.task.steps // cut.levels)
        panels = self.panels(cut.panels, cut.levels)
        columns = sum(last - first for _, _, first, last in panels)
        most = -(-len(panels) // self.terms.ranks) / len(panels)  # share of one rank
        rows: int = math.prod(self.shape[2:]) * self.shape[0]
        elements = self.task.steps * rows * columns * most
        computed = elements * assumed_costs.STENCIL_ELEMENT_SECONDS
        waiting = passes * assumed_costs.SYNCHRONISATION_SECONDS
        return max(self.seconds(cut), computed) + waiting

    def find_division(self, least_panels: int) -> _PassDivision | int:
        """Return the fastest division with at least that many panels, or the needed bytes."""
        room = self.terms.room
        best: tuple[float, _PassDivision] | None = None
        least = 0
        column = math.prod(self.shape[2:]) * self.task.dtype.itemsize
        for panels in _list_doublings(least_panels, 1 if self.ndim == 1 else self.shape[1]):
            if best is not None:
                break  # more panels read more borders
            if panels > self.terms.ranks and self.shape[1] // panels * column < _SHORT_RUN:
                break
            for cut in self.cuts(panels):
                needed = self.compute_bytes(cut)
                least = min(needed, least) if least else needed
                if needed > room:
                    continue
                cut = self.most_levels(cut)
                seconds = self.seconds(cut)
                if best is None or seconds < best[0]:
                    best = (seconds, cut)
        return least if best is None else best[1]

    def least_panels(self) -> int:
        """Return one panel for each rank, if panels are wide enough compared with repeated borders."""
        if self.ndim == 1:
            return 1
        around = _ALONE * max(self.radius[1], 1)
        widest: int = self.shape[1] // around
        return max(min(self.terms.ranks, widest), 1)

    def cuts(self, panels: int) -> Iterator[_PassDivision]:
        """Yield divisions with one step in a pass: large slabs first, then fewer copies of them."""
        row = max(self.row(_PassDivision(1, 1, panels, (1, 1))) * self.task.dtype.itemsize, 1)
        most = min(max(_LARGE_SLAB // row, 1), self.shape[0])
        for copies in ((2, 2), (1, 1)):
            for part in _list_doublings(1, most):
                yield _PassDivision(1, self.round_to_chunks(-(-most // part)), panels, copies)

    def round_to_chunks(self, rows: int) -> int:
        """Round slabs to whole chunks of the input."""
        side = self.terms.side(0)
        if side is None or side.chunks is None:
            return rows
        chunk = self.reverse_axes(side.chunks)[0]
        return rows // chunk * chunk if rows >= chunk else rows

    def most_levels(self, cut: _PassDivision) -> _PassDivision:
        """Return the division with most steps in a pass, shared equally between passes."""
        high, room = self.task.steps, self.terms.room
        if cut.panels > 1 and self.radius[1]:
            # Borders that are computed again are at most as wide as a panel, and a small part of it if
            # panels are for ranks: more steps would save less than they cost.
            part = 2 if cut.panels > self.terms.ranks else _ALONE
            high = min(high, max(self.shape[1] // cut.panels // (part * self.radius[1]), 1))
        most = find_largest(
            high, lambda levels: self.compute_bytes(replace(cut, levels=levels)) <= room, 1
        )
        passes = -(-self.task.steps // most)
        return replace(cut, levels=-(-self.task.steps // passes))

    def seconds(self, cut: _PassDivision) -> float:
        """Estimate the transfer time of all passes."""
        columns = self.panels(cut.panels, cut.levels)
        read = sum(last - first for _, _, first, last in columns)
        written = sum(high - low for low, high, _, _ in columns)
        row = self.shape[0] * math.prod(self.shape[2:]) * self.task.dtype.itemsize
        passes = -(-self.task.steps // cut.levels)
        slabs = len(columns) * -(-self.shape[0] // cut.rows)
        alone = 0.0
        if cut.copies == (1, 1):
            # Reading and computing do not overlap.
            elements = self.task.steps * math.prod(self.shape)
            alone = elements * assumed_costs.STENCIL_ELEMENT_SECONDS
        moving = self.terms.disk.seconds(2 * slabs, (read + written) * row)
        return passes * moving + alone

    # Program.

    def program(self) -> Program:
        task = self.task
        cut = self.choose()
        passes = -(-task.steps // cut.levels)
        size = math.prod(task.shape)
        once = {0: size * task.source_dtype.itemsize, 1: size * task.dtype.itemsize}
        bound = Bound.of(once, "input and result once")
        method = (
            f"{passes} {'passes' if passes > 1 else 'pass'} of {cut.levels} steps, in slabs of "
            f"{cut.rows} hyper-rows"
        )
        if cut.panels > self.terms.ranks:
            method += (
                f" of {cut.panels} panels, whose borders are read again: there is no memory for "
                "hyper-rows as long as the array's"
            )
        elif cut.panels > 1:
            method += f" of {cut.panels} panels, one for each rank, whose borders are read again"
        phases: tuple[Phase, ...]
        if task.until is None:
            phases, temporaries = self.plan_fixed(cut, passes)
        else:
            phases, temporaries = self.plan_converging(cut, passes)
            method += "; the pass that is close enough is repeated with fewer steps"
        return Program(phases, method, bound, temporaries)

    @property
    def between(self) -> Result:
        return Result(self.task.shape, self.task.dtype, {"order": "F" if self.backwards else "C"})

    @property
    def result_is_exact(self) -> bool:
        """Whether steps can continue from the result: it has all bits, and needs no codec."""
        info, side = self.terms.infos[1], self.terms.side(1)
        if info is None or side is None:
            return False
        return (
            info.dtype == self.task.dtype and not side.whole and info.order == self.terms.order(0)
        )

    def plan_fixed(
        self, cut: _PassDivision, passes: int
    ) -> tuple[tuple[Schedule, ...], tuple[Result, ...]]:
        between = [1, 2] if self.result_is_exact else [2, 3]
        targets = [between[(passes - 1 - k) % 2] for k in range(passes)]
        targets[-1] = 1
        count = max(0, *targets) - 1
        phases = []
        for k, target in enumerate(targets):
            levels = min(cut.levels, self.task.steps - k * cut.levels)
            source = 0 if k == 0 else targets[k - 1]
            phases.append(self.plan_pass(cut, levels, source, target, 2 + count))
        return tuple(phases), (self.between,) * count

    def plan_converging(
        self, cut: _PassDivision, passes: int
    ) -> tuple[tuple[DeferredPhase, ...], tuple[Result, ...]]:
        """Plan steps until changes are small: passes into arrays between, a last one into the result."""
        task = self.task
        count = min(passes - 1, 2)
        changes = 2 + count
        targets = [*(2 + k % 2 for k in range(passes - 1)), 1]
        sources = [0, *targets[:-1]]
        levels = [min(cut.levels, task.steps - k * cut.levels) for k in range(passes)]
        watch = _Watch(task, cut.levels, levels, changes)

        def defer(full: Schedule, make: Make, source: int, target: int, most: int) -> DeferredPhase:
            read, stored = self.count_moved(cut, source)
            return DeferredPhase(
                full.name,
                full.steps,
                full.held,
                read,
                stored,
                {source: 2, target: 2, changes: 1},
                make,
                work=read // full.buffers[0].dtype.itemsize * most,
                rate=full.rate,
            )

        def later(k: int) -> DeferredPhase:
            full = self.plan_pass(cut, levels[k], sources[k], targets[k], changes, k * cut.levels)

            def make(arrays: Sequence[Any]) -> Schedule:
                return full if watch.find_first(arrays, k) is None else _make_idle(full)

            return defer(full, make, sources[k], targets[k], levels[k])

        longest = self.plan_pass(cut, cut.levels, 0, 1, changes)

        def last(arrays: Sequence[Any]) -> Schedule:
            found = watch.find_first(arrays, passes)
            if found is None or (found[0] == passes - 1 and found[1] == levels[-1]):
                return _make_idle(longest)
            return _pad(self.plan_pass(cut, found[1], sources[found[0]], 1, changes), longest.steps)

        final = defer(longest, last, 0, 1, cut.levels)
        numbers = Result((len(self.panels(cut.panels, 1)), task.steps), np.dtype(np.float64))
        return (*map(later, range(passes)), final), (*((self.between,) * count), numbers)

    def count_moved(self, cut: _PassDivision, source: int) -> tuple[int, int]:
        """Return the bytes that a pass reads and stores."""
        task = self.task
        panels = self.panels(cut.panels, cut.levels)
        columns = sum(last - first for _, _, first, last in panels)
        row = self.shape[0] * math.prod(self.shape[2:])
        item = (task.source_dtype if source == 0 else task.dtype).itemsize
        stored = math.prod(task.shape) * task.dtype.itemsize + cut.levels * 8
        return columns * row * item, stored

    def plan_pass(
        self,
        cut: _PassDivision,
        levels: int,
        source: int,
        target: int,
        changes: int,
        first: int | None = None,
    ) -> Schedule:
        """Plan a pass from one array to another; changes are stored from number `first` on, if given."""
        cut = replace(cut, levels=levels)
        schedule = _StencilPass(self, cut, source, target, changes, first)
        names = ["source", "result", *(f"steps {n}" for n in range(1, changes - 1))]
        if self.task.until is not None:
            names.append("changes")
        return Schedule(
            name="stencil",
            arrays=tuple(names),
            buffers=schedule.buffers,
            steps=schedule.steps,
            make=schedule.step,
            restart=schedule.restart if schedule.can_restart else None,
            kernels=(schedule.kernel,),
            rate=_measure_rate(len(self.task.taps), self.number.char) * self.terms.cores
            if not self.task.function
            else 0.0,
        )


def _kind(panel: tuple[int, int, int, int]) -> Any:
    low, high, first, last = panel
    return last - first, low - first, high - first


class _StencilPass:
    """Steps of one pass."""

    def __init__(
        self,
        planner: _Planner,
        cut: _PassDivision,
        source: int,
        target: int,
        changes: int,
        first: int | None,
    ) -> None:
        self.planner, self.cut, self.source, self.target = planner, cut, source, target
        self.changes, self.first = changes, first
        self.panels = planner.panels(cut.panels, cut.levels)
        self.passes = planner.passes(cut)
        self.positions = next(iter(self.passes.values())).positions
        self.slabs = -(-self.positions // cut.rows)
        self.steps = len(self.panels) * self.slabs
        self.casts = source == 0 and planner.casts
        buffers = planner.buffers(cut, list(self.passes.values()))
        if not self.casts:
            buffers = (replace(buffers[0], dtype=planner.task.dtype), *buffers[1:5])
        self.buffers = buffers

    def step(self, number: int) -> ScheduleStep:
        planner = self.planner
        panel = self.panels[number // self.slabs]
        slab = number % self.slabs
        made = self.passes[_kind(panel)]
        n = planner.shape[0]
        start = slab * self.cut.rows
        stop = min(start + self.cut.rows, self.positions)
        low, high, first, last = panel
        rows = min(start, n), min(stop, n)
        ready = made.ready(start, stop)
        count = rows[1] - rows[0]
        inner = planner.shape[2:]
        read = (count, last - first, *inner)[: planner.ndim]
        # Completed rows have the columns that the panel reads; the surrounding columns are not stored.
        whole = (ready[1] - ready[0], last - first, *inner)[: planner.ndim]
        kept, scratch, changes = (self.flat(k) for k in (2, 3, 4))
        blocks = [self.block(0, read), self.block(1, whole), kept, scratch, changes]
        if self.casts:
            blocks.append(self.block(5, read))
        columns, stored = planner.shape[1] if planner.ndim > 1 else 1, (low - first, high - first)
        loads = [
            Load(self.source, self.section(rows, there), 0, self.section((0, count), at))
            for there, at in _split_range(first, last, columns)
            if count
        ]
        stores = [
            Store(self.target, self.section(there, (low, high)), 1, self.section(at, stored))
            for there, at in _split_range(ready[0], ready[1], n)
        ]
        if self.first is not None and slab == self.slabs - 1:
            at, levels = number // self.slabs, self.cut.levels
            section = (slice(at, at + 1), slice(self.first, self.first + levels))
            stores.append(Store(self.changes, section, 4, shape=(1, levels)))
        return ScheduleStep(
            blocks=tuple(blocks),
            loads=tuple(loads),
            stores=tuple(stores),
            kernel=0,
            arguments=(_kind(panel), start, stop, slab == 0),
            continues=slab > 0,
            work=count * (last - first) * math.prod(inner) * self.cut.levels,
        )

    @property
    def can_restart(self) -> bool:
        """Whether kept rows follow from those a few slabs before, and nothing else is kept."""
        ring = self.planner.boundary[0] == "wrap" and self.planner.radius[0] > 0
        return not ring and self.planner.task.until is None

    def restart(self, number: int) -> tuple[ScheduleStep, ...]:
        """
        Return the slabs from which the kept rows follow, and then slab `number`.

        Each level needs one radius more of the level below, and lags one radius behind it.
        """
        slab = number % self.slabs
        count = -(-2 * self.cut.levels * self.planner.radius[0] // self.cut.rows)
        first = number - min(count, slab)
        lead = [replace(self.step(k), stores=()) for k in range(first, number)]
        steps = [*lead, self.step(number)]
        panel, start, stop, _ = steps[0].arguments
        steps[0] = replace(steps[0], arguments=(panel, start, stop, True), continues=False)
        return tuple(steps)

    def block(self, buffer: int, shape: Sequence[int]) -> Block:
        return Block(buffer, self.planner.reverse_axes(shape))

    def flat(self, buffer: int) -> Block:
        return Block(buffer, (self.buffers[buffer].elements,))

    def section(self, rows: tuple[int, int], columns: tuple[int, int]) -> Section:
        """Return the section of the array, or of a block."""
        planner = self.planner
        inner = (slice(0, n) for n in planner.shape[2:])
        return planner.reverse_axes((slice(*rows), slice(*columns), *inner)[: planner.ndim])

    def kernel(self, blocks: Sequence[NDArray[Any]], *arguments: Any) -> None:
        """Advance all levels by a slab."""
        kind, start, stop, is_first = arguments
        planner = self.planner
        new, out, kept, scratch, changes = blocks[:5]
        if is_first:
            changes[:] = 0.0
            if start:
                # The rows before are missing: values computed with them are not stored.
                kept[:] = 0
        if self.casts:
            np.copyto(blocks[5], new, casting="unsafe")
            new = blocks[5]
        if planner.backwards:
            new, out = new.T, out.T
        if planner.width == 2:
            new, out = _view_pairs(new, planner.number), _view_pairs(out, planner.number)
        self.passes[kind].run(new, out, kept, scratch, changes, start, stop)


def _view_pairs(block: NDArray[Any], number: np.dtype[Any]) -> NDArray[Any]:
    """Return complex elements as pairs of numbers."""
    return block.reshape(-1).view(number)


def _split_range(
    first: int, last: int, n: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Split indices that continue past the ends of an axis: positions in the axis, and in a block."""
    at = first
    while at < last:
        there = at % n
        count = min(last - at, n - there)
        yield (there, there + count), (at - first, at - first + count)
        at += count


class _Watch:
    """Search for the first step with sufficiently small changes; reports changes to the caller."""

    def __init__(self, task: StencilTask, most: int, levels: Sequence[int], changes: int) -> None:
        self.task, self.most, self.levels, self.changes = task, most, levels, changes
        self.reported = 0

    def find_first(self, arrays: Sequence[Any], passes: int) -> tuple[int, int] | None:
        """Return the first of that many passes with such a step, and the number of steps it needs."""
        assert self.task.until is not None
        for k in range(passes):
            found = self.read_changes(arrays, k)
            small = np.flatnonzero(found <= self.task.until)
            end = int(small[0]) + 1 if small.size else len(found)
            if k == self.reported:
                self.tell(k * self.most, found[:end])
                self.reported += 1
            if small.size:
                return k, end
        return None

    def read_changes(self, arrays: Sequence[Any], number: int) -> NDArray[np.float64]:
        """Return the largest change of any element, in each step of a pass."""
        first = number * self.most
        found = arrays[self.changes][:, first : first + self.levels[number]]
        largest: NDArray[np.float64] = np.asarray(found).max(axis=0)
        return largest

    def tell(self, first: int, changes: NDArray[np.float64]) -> None:
        if self.task.callback is not None:
            for k, change in enumerate(changes.tolist()):
                self.task.callback(first + k + 1, change)


def _make_idle(schedule: Schedule) -> Schedule:
    """Return a schedule of as many steps that do nothing."""
    return Schedule("stencil", schedule.arrays, (), schedule.steps, lambda k: ScheduleStep(()))


def _pad(schedule: Schedule, steps: int) -> Schedule:
    """Append steps that do nothing."""

    def make(k: int) -> ScheduleStep:
        return schedule.make(k) if k < schedule.steps else ScheduleStep(())

    return replace(schedule, steps=steps, make=make)


def _list_doublings(n: int, most: int) -> Iterator[int]:
    """Yield `n`, 2 `n`, 4 `n`, ... and `most`."""
    while n < most:
        yield n
        n *= 2
    yield most


@cache
def _measure_rate(taps: int, number: str) -> float:
    """Return elements that a core advances per second, measured once on a tile that fits its cache."""
    dtype = np.dtype(number)
    offsets = [((0, k), 1.0, 0.0) for k in range(max(min(taps, 32), 1))]
    made = _core.StencilPass(
        (256, 512),
        offsets,
        ("nearest", "nearest"),
        width=1,
        double=dtype == np.float64,
        fill=(0.0, 0.0),
        levels=4,
        rows=64,
        columns=None,
        measured=None,
    )
    x, out = np.zeros((256, 512), dtype), np.zeros((256, 512), dtype)
    kept, scratch = np.zeros(max(made.kept, 1), dtype), np.zeros(made.scratch, dtype)
    arguments = x, out, kept, scratch, np.zeros(4), 0, made.positions
    return 4 * x.size / measure_seconds(lambda: made.run(*arguments))
