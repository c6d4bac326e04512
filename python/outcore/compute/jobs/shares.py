"""
Division of the budget.

Problem. Buffers, reads and writes share one budget. Large buffers make long requests; the memory
that they leave decides how fast an operation runs, and without a minimum (a chunk, the memory of
its codec) it does not run at all.
Idea. Buffers get half of the budget if something is decoded or encoded, three quarters if the
operations only move bytes, and everything available if nothing else fits. The core knows what an
operation needs: it is asked, and if it needs more, the buffers become smaller. The remainder is
shared between the operations that run concurrently.

Invariants. Buffers and operations together stay within the budget, less a slack. A resumed job is
planned with the memory of the run that was interrupted, whatever the budget is now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from outcore.arrays.disk import DiskArray, Mode
from outcore.arrays.schedule import Load, Schedule, Store, count_elements, get_shape
from outcore.arrays.tiling import Side
from outcore.base import assumed_costs
from outcore.compute.jobs.memory import InMemory
from outcore.compute.jobs.operation import (
    DeferredPhase,
    DiskSpeed,
    InsufficientBuffersError,
    Operation,
    Phase,
    Program,
    Terms,
)
from outcore.errors import BudgetError, budget_error
from outcore.formats.layout import ArrayInfo

__all__ = ["BudgetedProgram", "Cut", "find_least_budget", "sample_steps", "settle"]

# Minimum memory of an operation on uncompressed data, unless very many run concurrently.
_LITTLE = 256 * 2**10
_LEAST = 4 * 2**10
# Additional memory of a write that casts: at least a page (crates/access/src/cast.rs).
_CAST = 4 * 2**10
# One part in 8 is for additional memory of codecs, and for tables of chunks.
_SLACK = 8
# Share of the budget for buffers: operations that decode or encode hold chunks, the others little more
# than the bytes in flight; for these, longer runs are worth more.
_CODED_SHARE, _PLAIN_SHARE = Fraction(1, 2), Fraction(3, 4)
# Memory that operations on a temporary array, which does not exist yet, can use; methods with buffers
# for data without codecs; memory of a write for the pages that it reads first.
_MUCH = 64 * 2**20
_METHODS = ("window", "list")
_FETCHED = 8 * 2**20
# Number of larger budgets that are tried before one is reported.
_TRIES = 16
# The search for a smaller one stops when it would save less than one part in 64.
_CLOSE = 64
# Number of steps of a phase that are examined.
_SAMPLES = 33


@dataclass(frozen=True, slots=True)
class Cut:
    """The terms that determine a program, in addition to the operation; recorded in the journal."""

    room: int
    gap: int
    latency_ns: int
    rate: int
    cores: int
    page: int = 0
    ranks: int = 1

    @property
    def disk(self) -> DiskSpeed:
        """Parameters of the disk."""
        return DiskSpeed(self.gap, self.latency_ns / 1e9, float(self.rate))

    def terms(self, infos: tuple[ArrayInfo | None, ...]) -> Terms:
        """Return the terms with which the algorithm plans."""
        return Terms(self.room, infos, self.disk, self.cores, self.page, self.ranks)


@dataclass(frozen=True, slots=True)
class BudgetedProgram:
    """A program that fits, and the memory that each operation on an array may use."""

    program: Program
    cut: Cut
    #: Memory for each array, including temporaries; 0 for arrays in memory.
    memory: tuple[int, ...]
    #: Maximum bytes of buffers and operations in total.
    peak: int


def settle(
    operation: Operation,
    made: Sequence[Any],
    budget: int,
    cut: Cut | None,
    beside: int,
    ranks: int,
    cores: int,
) -> BudgetedProgram:
    """
    Plan an operation, and share the budget between its buffers and operations.

    `made` are the arrays of the results, `cut` is that of an interrupted run, and `beside` the
    bytes of the user's budget that results in memory take. Raises `BudgetError` with a sufficient
    budget.
    """
    arrays = [*operation.inputs, *made]
    try:
        return _Sharing(operation, arrays, budget, cut, ranks, cores).settle()
    except _BudgetTooSmallError as error:
        first = error
    needed = find_least_budget(operation, made, budget + 1, cut, ranks, cores, first.needed)
    raise first.to_budget_error(operation, budget + beside, needed + beside, begun=cut is not None)


def find_least_budget(
    operation: Operation,
    made: Sequence[Any],
    budget: int,
    cut: Cut | None,
    ranks: int,
    cores: int,
    guess: int = 0,
) -> int:
    """
    Return about the smallest budget, at least `budget`, with which `settle` does not raise.

    It is found by trial, beginning with `guess`: the needs of operations depend on the buffers that
    belong to a budget, so they cannot be computed from what is missing in another one.
    """
    arrays = [*operation.inputs, *made]

    def short_of(much: int) -> int:
        """Return 0 if a budget is enough, otherwise one that may be."""
        try:
            _Sharing(operation, arrays, much, cut, ranks, cores, assumed=True).settle()
        except _BudgetTooSmallError as error:
            return max(error.needed, much + 1)
        except BudgetError as error:
            return 2 * much if error.needed is None else max(error.needed, much + 1)
        return 0

    needed, low = max(budget, guess), budget - 1
    for _ in range(_TRIES):
        if not (more := short_of(needed)):
            break
        low, needed = needed, max(more, needed + needed // 32)
    # A smaller budget may be enough, since a program with fewer operations needs less.
    for _ in range(_TRIES):
        if needed - low <= needed // _CLOSE:
            break
        middle = (low + needed) // 2
        if short_of(middle):
            low = middle
        else:
            needed = middle
    return needed


def sample_steps(schedule: Schedule) -> Iterator[int]:
    """Yield the numbers of some steps, evenly spaced, including the first and the last."""
    most = min(schedule.steps, _SAMPLES)
    return iter(sorted({k * (schedule.steps - 1) // max(most - 1, 1) for k in range(most)}))


class _BudgetTooSmallError(Exception):
    """A budget that is not enough, and bytes that may be."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed

    def to_budget_error(
        self, operation: Operation, budget: int, needed: int, *, begun: bool
    ) -> BudgetError:
        names = [a.path for a in operation.inputs]
        why = "buffers of the smallest steps, and memory of their kernels"
        advice = "choose smaller chunks"
        if begun:
            why = "it resumes steps that were planned with more memory"
            advice = "start again without resume="
        return budget_error(
            f"{operation.name} of {', '.join(map(repr, names))}",
            needed,
            budget,
            needed,
            reason=why,
            setting="memory= (and outcore.memory())",
            instead=advice,
            path=names[0] if names else None,
        )


@dataclass
class _Sharing:
    """Search for the largest buffers that leave enough memory for the operations."""

    operation: Operation
    arrays: list[Any]
    budget: int
    known: Cut | None
    ranks: int
    cores: int
    #: Whether the budget is only tried: the budget of the process may be smaller.
    assumed: bool = False

    def __post_init__(self) -> None:
        operation, arrays = self.operation, self.arrays
        self.usable = self.budget - self.budget // _SLACK
        first = len(operation.inputs)
        self.needs = [_find_least_memory(a, write=n >= first) for n, a in enumerate(arrays)]
        #: Results whose dtype or byte order differs from that of the operation, so that writes cast.
        made = enumerate(zip(arrays[first:], operation.results, strict=True), first)
        self.casts = {n for n, (a, r) in made if {a.dtype} != {r.dtype, r.dtype.newbyteorder("=")}}
        #: Maximum number of concurrent operations on each array.
        self.at_once = [int(not isinstance(a, InMemory)) for a in arrays]

    def settle(self) -> BudgetedProgram:
        while True:
            program, cut = self.program()
            self.at_once = [
                max(a, b)
                for a, b in zip_longest(self.at_once, self.operations(program), fillvalue=0)
            ]
            needs = self.least()
            total = program.held + self.sum_bytes(needs)
            if total > self.usable:
                fits = program.held <= self.room()
                if self.known is not None or fits or program.held > cut.room:
                    raise _BudgetTooSmallError(_add_slack(total))
                continue  # planned before the number of operations was known
            spare = (self.usable - total) // max(sum(self.at_once), 1)
            memory = [n + spare if k else 0 for n, k in zip(needs, self.at_once, strict=True)]
            if not self.wants_more(program, memory):
                # An earlier attempt may have planned with more arrays, which do not exist here.
                most = zip_longest(memory, needs, self.most(program), fillvalue=0)
                memory = [min(m, max(n, u)) for m, n, u in most]
                return BudgetedProgram(
                    program, cut, tuple(memory), program.held + self.sum_bytes(memory)
                )

    def least(self) -> list[int]:
        """Return the minimum memory of an operation on each array."""
        most = self.budget // (8 * max(sum(self.at_once), 1))
        little = max(min(_LITTLE, most), _LEAST)
        both = enumerate(zip_longest(self.needs, self.at_once, fillvalue=0))
        return [
            max(n, little) + (_CAST if m in self.casts else 0) if k else 0 for m, (n, k) in both
        ]

    def sum_bytes(self, needs: Sequence[int]) -> int:
        """Return the bytes of all operations that run concurrently."""
        return sum(n * k for n, k in zip(needs, self.at_once, strict=True))

    def room(self) -> int:
        """Return the bytes that remain for buffers."""
        return max(self.usable - self.sum_bytes(self.least()), 0)

    def program(self) -> tuple[Program, Cut]:
        infos = tuple(a.info for a in self.arrays[: self.named_count])
        if self.known is not None:
            return self.operation.plan(self.known.terms(infos)), self.known
        left = self.room()
        coded = any(info is not None and Side.of(info).whole for info in infos)
        wanted = int(self.budget * (_CODED_SHARE if coded else _PLAIN_SHARE))
        figures = self.figures()
        for room in sorted({min(left, wanted), left}):
            cut = Cut(room, *figures, self.cores, self.page(), self.ranks)
            try:
                return self.operation.plan(cut.terms(infos)), cut
            except InsufficientBuffersError as error:
                refused = error
        raise _BudgetTooSmallError(_add_slack(refused.needed + self.sum_bytes(self.least())))

    @property
    def named_count(self) -> int:
        """Number of inputs and results."""
        return len(self.operation.inputs) + len(self.operation.results)

    def figures(self) -> tuple[int, int, int]:
        """Return the gap, the latency in nanoseconds and the rate of the slowest disk."""
        disks = [a.handle.core.disk()[:3] for a in self.arrays if isinstance(a, DiskArray)]
        gap, latency, rate = min(disks, key=lambda disk: disk[2], default=assumed_costs.DISK)
        return gap, latency, rate

    def page(self) -> int:
        """Return the bytes of a page if results are written bypassing the page cache; otherwise 0."""
        made = self.arrays[len(self.operation.inputs) : self.named_count]
        return max(
            (a.handle.core.past_cache() for a in made if isinstance(a, DiskArray)), default=0
        )

    def operations(self, program: Program) -> list[int]:
        """Return the maximum number of concurrent operations on each array."""
        most = [0] * (self.named_count + len(program.temporaries) + len(program.views))
        for phase in program.phases:
            for array, count in _count_concurrent(phase).items():
                most[array] = max(most[array], count)
        # An array that is only used through a view is also open.
        most = [max(n, 1) for n in most]
        for view, n in zip(
            program.views, range(len(most) - len(program.views), len(most)), strict=True
        ):
            if view.array < self.named_count and isinstance(self.arrays[view.array], InMemory):
                most[n] = 0
        for n, array in enumerate(self.arrays[: self.named_count]):
            most[n] = 0 if isinstance(array, InMemory) else max(most[n], 1)
        return most

    def most(self, program: Program) -> list[int]:
        """Return the memory that an operation on each array can use, for reports, after `wants_more`."""
        temporaries = [min(_MUCH, one.nbytes + _LITTLE) for one in program.temporaries]
        most = [*self.used, *temporaries]
        return most + [max(most[view.array], _LITTLE) for view in program.views]

    def wants_more(self, program: Program, memory: Sequence[int]) -> bool:
        """Return whether an operation needs more memory; the next attempt then gives it that memory."""
        seen: set[tuple[int, bool, tuple[int, ...]]] = set()
        self.used = [0] * self.named_count
        for phase in program.phases:
            if isinstance(phase, DeferredPhase):
                continue
            for k in sample_steps(phase):
                step = phase.step(k)
                for load in (*step.loads, *step.stores):
                    write = isinstance(load, Store)
                    shape = get_shape(load.section)
                    array = self.arrays[load.array] if load.array < self.named_count else None
                    if not isinstance(array, DiskArray) or (load.array, write, shape) in seen:
                        continue
                    seen.add((load.array, write, shape))
                    beside = _CAST if write and load.array in self.casts else 0
                    if self.needs_more(load, array, memory[load.array] - beside, write=write):
                        return True
        return False

    def needs_more(self, load: Load, array: DiskArray, memory: int, *, write: bool) -> bool:
        with open_with_budget(array, memory, write=write, missing="fill") as handle:
            try:
                used = self.peak(handle, load, memory, write=write)
            except BudgetError as error:
                if error.needed is None or error.needed <= self.needs[load.array]:
                    raise
                self.needs[load.array] = error.needed
                return True
        # Stored chunks are then decoded too, and pages that are not cached are read first.
        self.used[load.array] = max(self.used[load.array], 2 * used + _LITTLE)
        if array.chunks is None:
            nbytes = count_elements(load.section) * array.dtype.itemsize
            for method in _METHODS:
                with (
                    contextlib.suppress(BudgetError),
                    open_with_budget(
                        array, memory, write=write, method=method, missing="fill"
                    ) as handle,
                ):
                    used = self.peak(handle, load, memory, write=write)
                self.used[load.array] = max(self.used[load.array], used, min(nbytes, _FETCHED))
        return False

    def peak(self, handle: DiskArray, load: Load, memory: int, *, write: bool) -> int:
        """Return the maximum memory of an operation; a budget that is only tried counts as free."""
        assumed = memory if self.assumed else None
        return int(handle.handle.core.explain(load.section, write, assumed)["peak_bytes"])


def open_with_budget(array: DiskArray, memory: int, *, write: bool, **more: Any) -> DiskArray:
    """Open a separate handle on an array, whose operations use at most `memory` bytes; `more` hints."""
    mode: Mode = "r+" if write else "r"
    hints = replace(array.hints, memory=memory, **more)
    return DiskArray(array.info, mode, hints, array.handle.options)


def _find_least_memory(array: Any, *, write: bool) -> int:
    """Return the bytes without which not even one chunk can be read or written."""
    if isinstance(array, InMemory):
        return 0
    chunk = tuple(slice(0, n) for n in array.chunks or (1,) * array.ndim)
    with open_with_budget(array, 1, write=write, missing="fill") as poor:
        try:
            poor.explain(chunk, write=write)
        except BudgetError as error:
            return error.needed or 0
    return 0


def _count_concurrent(phase: Phase) -> dict[int, int]:
    if isinstance(phase, DeferredPhase):
        return dict(phase.at_once)
    found: dict[int, int] = {}
    for k in sample_steps(phase):
        step = phase.step(k)
        for array in {load.array for load in (*step.loads, *step.stores)}:
            loads = sum(load.array == array for load in step.loads) * phase.reading
            stores = sum(store.array == array for store in step.stores) * phase.writing
            found[array] = max(found.get(array, 0), loads + stores)
    return found


def _add_slack(needed: int) -> int:
    return -(-needed * _SLACK // (_SLACK - 1)) + _SLACK
