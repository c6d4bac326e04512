"""
Sums of products of two arrays over the axes that they share: the plan of `matmul` and `tensordot`.

Problem. A product of two matrices reads each of them several times unless much of it is in memory.
How often depends on the shapes of the blocks, by a factor of the square root of the memory.
Idea. Axes have labels. A label is one of four kinds, depending on the arrays that it indexes: rows
(the first operand and the result), columns (the second one and the result), inner (both operands)
and batch (all). The loops are therefore a nest that the solver (`outcore.arrays.schedule.solve`)
cuts: it decides whether a block of the result stays in memory while blocks of both operands stream
by, or a slab of one operand stays while slabs of the other stream by. Loads permute the axes to the
matrices of the kernel.

Invariants. Each block of the result is stored once; it is summed in ascending order of the inner
axes. Kernels allocate nothing of the size of a block.

References: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel
I/O", section 4 and table 13 (slabs, with and without prefetch); Foster, Nieplocha, "Disk Resident
Arrays", section 5.2 (blocks, with prefetch of B). Bound: Smith, Lowery, Langou, van de Geijn, "A
tight I/O lower bound for matrix multiplication", 2019.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Schedule,
    ScheduleStep,
    Section,
    Store,
    count_elements,
    get_shape,
)
from outcore.arrays.schedule.solve import Nest, NestArray, Solution, Speed, solve
from outcore.base import assumed_costs
from outcore.base.report import format_bytes
from outcore.compute.jobs import (
    SMALLEST,
    Bound,
    InsufficientBuffersError,
    Operation,
    Program,
    Result,
    Terms,
)
from outcore.compute.products import gemm
from outcore.compute.rates import count_operations, measure_product_rate
from outcore.errors import UsageError

__all__ = ["METHODS", "Contraction", "make_contraction"]

# A block that is kept for many steps is loaded again after this many times its bytes were moved in the
# meantime: an interrupted run resumes where something is loaded again.
_RENEWED = 32
# Smallest number of steps between these loads, during which nothing is computed.
_TOGETHER = 8

METHODS = ("auto", "slabs", "blocks")


@dataclass(frozen=True, slots=True)
class Contraction:
    """
    Labels of the axes of the operands and the result.

    `extents` are those of the labels, which count from 0. `axes` has the label of each axis of the
    first operand, the second one and the result; -1 for an axis of length 1 that is broadcast.
    """

    extents: tuple[int, ...]
    axes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.extents[label] for label in self.axes[2])

    def find_labels(self, *operands: int) -> tuple[int, ...]:
        """Return the labels that index these operands and no others."""
        sets = [set(axes) for axes in self.axes]
        return tuple(
            label
            for label in range(len(self.extents))
            if all((label in one) == (n in operands) for n, one in enumerate(sets))
        )


def _find_dtype(name: str, a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a product, by NumPy's rules."""
    try:
        found: np.dtype[Any] = np.matmul.resolve_dtypes((a, b, None))[2]
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "biufc":
        raise UsageError(
            f"{name}: cannot multiply {a} and {b}; convert one of them", code="bad-dtype"
        )
    return found


def make_contraction(
    name: str,
    what: Contraction,
    arrays: tuple[Any, Any],
    arguments: Mapping[str, Any],
    method: str = "auto",
    *,
    prefetch: bool = True,
    small: bool | None = None,
) -> Operation:
    """
    Return the operation of a contraction; `arguments` are for the journal.

    Without `out`, the result is in memory if it is `small`. Default: if it has no axes.
    """
    dtype = _find_dtype(name, arrays[0].dtype, arrays[1].dtype)
    # Sums in half precision are too inaccurate; the result is rounded once.
    working = np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")
    rate = measure_product_rate(working.char)
    dtypes = tuple(array.dtype.newbyteorder("=") for array in arrays)
    same = _is_same(arrays)

    def plan(terms: Terms) -> Program:
        return _ContractionPlan(
            name, what, dtypes, working, terms, method, prefetch, same
        ).make_program(rate)

    small = not what.shape if small is None else small
    result = Result(what.shape, dtype, source=arrays[0].path, small=small)
    return Operation(name, arrays, (result,), plan, arguments)


class _ContractionPlan:
    def __init__(
        self,
        name: str,
        what: Contraction,
        dtypes: tuple[np.dtype[Any], ...],
        working: np.dtype[Any],
        terms: Terms,
        method: str,
        prefetch: bool,
        same: bool,
    ) -> None:
        self.name, self.what, self.dtypes, self.working = name, what, (*dtypes, working), working
        self.terms, self.method, self.copies, self.same = terms, method, 1 + prefetch, same
        #: Whether products are added in place, without a second array for them.
        self.adds = gemm.can_add(working)
        self.sides = [terms.side(n) for n in range(3)]
        #: Labels of each array from the axis that runs slowest to the fastest.
        self.stored = [self.order_slowest_first(n) for n in range(3)]
        self.rows, self.columns = what.find_labels(0, 2), what.find_labels(1, 2)
        self.inner, self.batch = what.find_labels(0, 1), what.find_labels(0, 1, 2)

    def order_slowest_first(self, array: int) -> tuple[int, ...]:
        axes = self.what.axes[array]
        return tuple(n for n in (axes if self.terms.order(array) == "C" else axes[::-1]) if n >= 0)

    def make_program(self, rate: float) -> Program:
        bound = self.compute_bound()
        if not math.prod(self.what.shape):
            nothing = Schedule(self.name, ("a", "b", "c"), (), 0, lambda number: ScheduleStep(()))
            return Program((nothing,), "the result is empty", bound)
        least = min(SMALLEST, self.count_whole_bytes())
        self.terms.require(least)
        found = self.solve(self.method)
        if not isinstance(found, Solution):
            raise InsufficientBuffersError(found)
        schedule = _ContractionSteps(self, found).make_schedule(rate)
        return Program((schedule,), self.describe_method(found), bound)

    def count_whole_bytes(self) -> int:
        """Return the bytes of buffers with which everything is done in one step."""
        axes = [self.make_operand(n) for n in range(3)]
        return sum(
            math.prod(max(self.what.extents[label], 1) for label in one.axes) * one.kept
            for one in axes
        )

    def solve(self, method: str) -> Solution | int:
        orders = tuple(
            self.sort_labels(self.batch, 2) + first + second + self.sort_labels(self.inner, 0)
            for first, second in (
                (self.sort_labels(self.rows, 0), self.sort_labels(self.columns, 1)),
                (self.sort_labels(self.columns, 1), self.sort_labels(self.rows, 0)),
            )
        )
        extents = tuple(max(n, 1) for n in self.what.extents)
        operands = tuple(self.make_operand(n) for n in range(3))
        uncut = self.inner if method == "slabs" else ()
        work = count_operations(1, self.working)
        rate = assumed_costs.LOOP_RATE
        if self.working.char in "fdFD":
            rate = assumed_costs.estimate_product_rate(self.working, self.terms.cores)
        disk = self.terms.disk
        packed = assumed_costs.MEMORY_RATE * self.terms.cores
        speed = Speed(disk.latency, disk.rate, rate, packed)
        found = [
            solve(Nest(extents, operands, orders, uncut, work, most), self.terms.room, speed)
            for most in self.list_longest_tiles()
        ]
        solutions = [one for one in found if isinstance(one, Solution)]
        refused = [one for one in found if isinstance(one, int)]
        return min(solutions, key=lambda one: one.seconds) if solutions else min(refused)

    def list_longest_tiles(self) -> list[tuple[int, ...]]:
        """Return, for each best grid of ranks, the extents of a tile with which every rank has one."""
        ranks, whole = self.terms.ranks, tuple(max(n, 1) for n in self.what.extents)
        sides = [
            max(labels, key=lambda n: whole[n], default=None) for labels in self.list_result_sides()
        ]
        found = set()
        for first in (n for n in range(1, ranks + 1) if ranks % n == 0):
            extents = list(whole)
            for label, parts in zip(sides, (first, ranks // first), strict=True):
                if label is not None:
                    extents[label] = -(-whole[label] // parts)
            found.add(tuple(extents))
        # Those that divide the result most evenly; if axes are short, some ranks have nothing to do.
        labels = [label for side in self.list_result_sides() for label in side]
        share = min(math.prod(one[label] for label in labels) for one in found)
        return sorted(one for one in found if math.prod(one[n] for n in labels) == share)

    def list_result_sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the labels of the rows of the result, including the batch, and of its columns."""
        return (*self.batch, *self.rows), self.columns

    def sort_labels(self, labels: tuple[int, ...], array: int) -> tuple[int, ...]:
        """Return labels in the order in which an array stores them."""
        return tuple(label for label in self.stored[array] if label in labels)

    def needs_cast(self, array: int) -> bool:
        """Return whether loaded elements have to be cast for the kernel."""
        return array < 2 and self.dtypes[array] != self.working

    def make_operand(self, array: int) -> NestArray:
        item, side = self.working.itemsize, self.sides[array]
        streamed, kept = self.copies * item, item
        if self.needs_cast(array):
            loaded = self.dtypes[array].itemsize
            streamed, kept = self.copies * loaded + item, loaded + item
        if array == 2 and not self.adds:
            streamed, kept = max(streamed, 2 * item), 2 * item
        axes, chunks = self.stored[array], None
        if side is not None and side.chunks is not None:
            of = dict(zip(self.what.axes[array], side.shards or side.chunks, strict=True))
            chunks = tuple(of[label] for label in axes)
        return NestArray(
            axes,
            0 if side is None else side.itemsize,
            streamed,
            kept,
            result=array == 2,
            chunks=chunks,
            whole=side is not None and side.whole,
        )

    def compute_bound(self) -> Bound:
        what, widths = self.what, [side.itemsize if side else 0 for side in self.sides]
        shapes = [[what.extents[n] for n in axes if n >= 0] for axes in what.axes]
        sizes = [math.prod(shape) * width for shape, width in zip(shapes, widths, strict=True)]
        if not math.prod(what.shape):
            sizes = [0, 0, 0]
        elif self.same:
            sizes[1] = 0
        once = Bound.of(dict(enumerate(sizes)), "inputs and result once")
        if self.same or not all(widths) or not self.terms.room:
            return once
        # With the smallest element size, the bound is valid for all arrays.
        words = self.terms.room / min(widths)
        again = 2 * math.prod(map(float, what.extents)) / math.sqrt(words) - 2 * words
        if again * min(widths) <= once.nbytes:
            return once
        name = "2mnk / sqrt(M) - 2M elements, Smith et al. 2019"
        return Bound(int(again * min(widths)), name, once.once)

    def describe_method(self, found: Solution) -> str:
        tile, what = found.tile, self.what

        def size(labels: Sequence[int]) -> str:
            return str(math.prod(tile[n] for n in labels))

        def cut(labels: Sequence[int]) -> bool:
            return any(tile[n] < what.extents[n] for n in labels)

        rows, columns, inner = map(size, (self.rows, self.columns, self.inner))
        if cut(self.inner):
            text = (
                f"blocks: {rows} x {columns} of the result stay in memory, {inner} of the inner axis of "
                "both operands at a time are read ahead and added"
            )
            slabs = self.solve("slabs") if self.method == "auto" else 0
            if isinstance(slabs, Solution):
                text += f"; slabs would move {format_bytes(slabs.nbytes)} instead of "
                text += format_bytes(found.nbytes)
            elif self.method == "auto":
                text += "; slabs do not fit"
            return text
        kept = "rows of a stay" if found.kept[0] else "columns of b stay" if found.kept[1] else None
        if kept is None:
            return f"blocks: {rows} x {columns} of the result at a time, with all of the inner axis"
        many, few = (rows, columns) if found.kept[0] else (columns, rows)
        return f"slabs: {many} {kept} in memory, slabs of {few} of the other operand are read ahead"


class _ContractionSteps:
    """Steps of a solution."""

    def __init__(self, plan: _ContractionPlan, found: Solution) -> None:
        self.plan, self.found = plan, found
        extents = [max(n, 1) for n in plan.what.extents]
        self.counts = [math.ceil(n / t) for n, t in zip(extents, found.tile, strict=True)]
        self.steps = math.prod(self.counts)
        self.axes = [self.permute_axes(n) for n in range(3)]
        self.load_axes = [None if one == tuple(range(len(one))) else one for one in self.axes]
        self.turned = [self.is_transposed(n) for n in range(3)]
        self.every = [self.count_steps_of_block(n) for n in range(2)]
        self.sums = math.prod(self.counts[label] for label in plan.inner)
        # Steps of a rank; the next rank starts with nothing in memory.
        self.fresh = math.ceil(self.steps / self.sums / plan.terms.ranks) * self.sums
        self.buffers, self.raw, self.scratch = self.make_buffers()

    def permute_axes(self, array: int) -> tuple[int, ...]:
        """Return the axes of an array in the order of its blocks: batch, then two sides of matrices."""
        plan, axes = self.plan, self.plan.what.axes[array]
        first, second = self.group_labels(array)
        labels = (*plan.sort_labels(plan.batch, 2), *first, *second)
        ones = [n for n, label in enumerate(axes) if label < 0]
        return (*ones, *(axes.index(label) for label in labels))

    def group_labels(self, array: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the labels of the two sides of the matrices; the side with the fastest axis is last."""
        plan = self.plan
        rows, columns = plan.sort_labels(plan.rows, 0), plan.sort_labels(plan.columns, 1)
        inner = plan.sort_labels(plan.inner, 0)
        if array == 1 and plan.working.char not in "fdFD":
            return columns, inner  # loops without BLAS take both operands along the inner axis
        pair = ((rows, inner), (inner, columns), (rows, columns))[array]
        fastest = next((n for n in reversed(plan.stored[array]) if n in (*pair[0], *pair[1])), None)
        return pair[::-1] if fastest in pair[0] else pair

    def is_transposed(self, array: int) -> bool:
        plan = self.plan
        first = (plan.rows, plan.inner, plan.rows)[array]
        groups = self.group_labels(array)
        return bool(set(groups[1]) & set(first))

    def count_steps_of_block(self, array: int) -> int:
        """Return the number of steps that use the same block of an operand."""
        steps = 1
        for label in reversed(self.found.order):
            if label in self.plan.what.axes[array] and self.counts[label] > 1:
                break
            steps *= self.counts[label]
        return steps

    def make_buffers(self) -> tuple[tuple[Buffer, ...], list[int | None], int | None]:
        """Return all buffers, and the numbers of those for operands before the cast and for products."""
        plan = self.plan
        sizes = [
            math.prod(self.found.tile[label] for label in axes if label >= 0)
            for axes in plan.what.axes
        ]
        ahead = plan.copies if self.steps > 1 else 1
        buffers, raw = [], list[int | None]([None, None])
        for n in range(2):
            kept = self.every[n] > 1
            copies = 1 if kept or plan.needs_cast(n) else ahead
            buffers.append(Buffer(sizes[n], plan.working, copies=copies, kept=kept))
        kept = self.sums > 1
        copies = 1 if kept else ahead
        buffers.append(Buffer(sizes[2], plan.working, copies=copies, kept=kept))
        for n in range(2):
            if plan.needs_cast(n):
                raw[n] = len(buffers)
                copies = 1 if self.every[n] > 1 else ahead
                buffers.append(Buffer(sizes[n], plan.dtypes[n], copies=copies))
        scratch = None
        if kept and not plan.adds:
            scratch = len(buffers)
            buffers.append(Buffer(sizes[2], plan.working))
        return tuple(buffers), raw, scratch

    def make_schedule(self, rate: float) -> Schedule:
        self.renewed = [self.find_renewal(n) for n in range(2)]
        return Schedule(
            name=self.plan.name,
            arrays=("a", "b", "c"),
            buffers=self.buffers,
            steps=self.steps,
            make=self.make_step,
            restart=self.restart,
            kernels=(_ProductKernel(tuple(self.turned), self.sums > 1 and self.plan.adds),),
            rate=rate,
            common=frozenset({0, 1}) if self.plan.terms.ranks > 1 else frozenset(),
        )

    def find_renewal(self, array: int) -> int:
        """Return the number of steps after which a kept block is loaded again."""
        if self.every[array] == 1:
            return 1
        others = sum(self.buffers[n].elements for n in range(3) if n != array)
        return max(math.ceil(_RENEWED * self.buffers[array].elements / others), _TOGETHER)

    def restart(self, number: int) -> tuple[ScheduleStep, ...]:
        """Return the steps of the same block of the result; the first one reads both operands."""
        first = number - number % self.sums
        return (
            self.make_step(first, begins=True),
            *map(self.make_step, range(first + 1, number + 1)),
        )

    def make_step(self, number: int, *, begins: bool = False) -> ScheduleStep:
        plan, section = self.plan, self.find_indices(number)
        sections = [self.find_section(section, n) for n in range(3)]
        shapes = [
            get_shape(tuple(one[axis] for axis in axes))
            for one, axes in zip(sections, self.axes, strict=True)
        ]
        blocks = [Block(n, shape) for n, shape in enumerate(shapes)]
        sizes = [
            count_elements(tuple(section[label] for label in labels))
            for labels in (plan.batch, plan.rows, plan.columns, plan.inner)
        ]
        turn = number % self.sums
        if self.scratch is not None:
            blocks.append(Block(self.scratch, shapes[2]))
        loads, where, continues = [], list[int | None]([None, None]), turn > 0
        for n in range(2):
            since = number % self.every[n]
            if since % self.renewed[n] and number % self.fresh and not begins:
                continues = True
                continue
            at, raw = n, self.raw[n]
            if raw is not None:
                at = where[n] = len(blocks)
                blocks.append(Block(raw, shapes[n]))
            if sizes[3]:
                loads.append(Load(n, sections[n], at, axes=self.load_axes[n]))
        stores: tuple[Store, ...] = ()
        if turn == self.sums - 1:
            stores = (Store(2, sections[2], 2, axes=self.load_axes[2]),)
        return ScheduleStep(
            tuple(blocks),
            tuple(loads),
            stores,
            kernel=0,
            arguments=(*sizes, turn == 0, where[0], where[1]),
            continues=continues,
            work=count_operations(math.prod(sizes), plan.working),
        )

    def find_indices(self, number: int) -> list[slice]:
        """Return the indices of a step along each label."""
        parts = [slice(0, 0)] * len(self.counts)
        for label in reversed(self.found.order):
            number, at = divmod(number, self.counts[label])
            tile, extent = self.found.tile[label], self.plan.what.extents[label]
            parts[label] = slice(at * tile, min((at + 1) * tile, extent))
        return parts

    def find_section(self, section: Sequence[slice], array: int) -> Section:
        axes = self.plan.what.axes[array]
        return tuple(section[label] if label >= 0 else slice(0, 1) for label in axes)


@dataclass(frozen=True, slots=True)
class _ProductKernel:
    """
    Kernel: ``c = a @ b``, or ``c += a @ b``, for each index of the batch.

    `turned` is true for each of a, b and c whose block has the transposed matrix. With `by_blas`,
    products are added in place.
    """

    turned: tuple[bool, ...]
    by_blas: bool

    def __call__(
        self,
        blocks: Sequence[NDArray[Any]],
        batch: int,
        rows: int,
        columns: int,
        inner: int,
        first: bool,
        raw_a: int | None,
        raw_b: int | None,
    ) -> None:
        for n, raw in enumerate((raw_a, raw_b)):
            if raw is not None:
                np.copyto(blocks[n], blocks[raw], casting="unsafe")
        a = _view_matrices(blocks[0], (batch, rows, inner), turned=self.turned[0])
        b = _view_matrices(blocks[1], (batch, inner, columns), turned=self.turned[1])
        c = _view_matrices(blocks[2], (batch, rows, columns), turned=self.turned[2])
        if self.by_blas:
            for n in range(batch):
                gemm.multiply(c[n], a[n], b[n], add=not first)
        elif first:
            _multiply(a, b, c)
        else:
            product = _view_matrices(blocks[3], (batch, rows, columns), turned=self.turned[2])
            _multiply(a, b, product)
            np.add(c, product, out=c)


def _view_matrices(
    block: NDArray[Any], shape: tuple[int, int, int], *, turned: bool
) -> NDArray[Any]:
    if turned:
        return block.reshape(shape[0], shape[2], shape[1]).transpose(0, 2, 1)
    return block.reshape(shape)


def _multiply(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> None:
    if c.flags.c_contiguous:
        np.matmul(a, b, out=c)
    else:
        np.matmul(b.transpose(0, 2, 1), a.transpose(0, 2, 1), out=c.transpose(0, 2, 1))


def _is_same(arrays: Sequence[Any]) -> bool:
    """Return whether both operands are one array."""
    return arrays[0].path == arrays[1].path and arrays[0].info is not None
