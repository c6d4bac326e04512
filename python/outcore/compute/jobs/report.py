"""
Reports of computations: what they will move and must move, and what they did.

Problem. The user who starts a job of hours wants to know in advance what it will do, and afterwards
whether that was true.
Idea. Everything is counted from the schedules that would run. If there are very many steps, some of
them are counted and represent their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import Schedule, count_elements, get_shape
from outcore.arrays.tiling import Side
from outcore.base.report import format_bytes, format_count, format_number, format_time
from outcore.base.report.bars import Bars, DrawableReport
from outcore.compute.jobs.operation import Bound, DeferredPhase, DiskSpeed, Phase, Program
from outcore.compute.jobs.patches import ExtraBytes, PageCacheState

__all__ = [
    "ComputeReport",
    "Measured",
    "PhaseCosts",
    "count_moved",
    "estimate_report",
    "weigh_steps",
]

_Seen = dict[Any, tuple[int, int, int]]
# Maximum number of steps of a phase that are counted individually; otherwise evenly spaced ones.
_COUNTED = 10_000
# Maximum chunks of an input whose stored bytes are looked up; with more, the bound is 0.
_LOOKED_AT = 1 << 16


@dataclass(slots=True)
class PhaseCosts:
    """Bytes and requests of a phase, operations of its kernels, and its time."""

    loaded: int = 0
    stored: int = 0
    requests: int = 0
    work: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Measured:
    """Measured time, bytes, requests and memory of a run."""

    seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0
    peak_bytes: int = 0


@dataclass(slots=True, repr=False)
class ComputeReport(DrawableReport):
    """
    Plan of a computation, and its measured values; `str` is a table.

    Parameters
    ----------
    name
        Name of the operation.
    method
        Chosen method, and the reason.
    steps
        Number of steps in all phases, except phases that only unusual elements need (`method` names
        them).
    read_bytes, written_bytes
        Bytes that are loaded and stored, including temporary arrays.
    lower_bound_bytes, lower_bound_name
        Bytes that every algorithm must move with this memory, read and written together, and the name of
        this lower bound.
    requests
        Number of requests to the operating system.
    operations
        Number of operations of the kernels.
    peak_bytes
        Memory in bytes that buffers and operations on arrays need.
    seconds
        Estimated time in seconds, from the measured speed of the disk and of the kernels.
    measured
        Measured values of the run, or None.
    """

    name: str
    method: str
    steps: int
    read_bytes: int
    written_bytes: int
    lower_bound_bytes: int
    lower_bound_name: str
    requests: int
    operations: int
    peak_bytes: int
    seconds: float
    measured: Measured | None = field(default=None)

    def __str__(self) -> str:
        done, ran = self.measured, self.measured or Measured()

        def row(
            name: str, planned: int, measured: int, show: Callable[[int], str] = format_bytes
        ) -> tuple[str, str, str]:
            return name, show(planned), show(measured) if done else ""

        rows = [
            ("steps", f"{self.steps}", ""),
            row("read", self.read_bytes, ran.read_bytes),
            row("written", self.written_bytes, ran.written_bytes),
            row("moved", self.read_bytes + self.written_bytes, ran.read_bytes + ran.written_bytes),
            ("must move", f"{format_bytes(self.lower_bound_bytes)} ({self.lower_bound_name})", ""),
            row("requests", self.requests, ran.requests, str),
            ("operations", f"{self.operations:.3g}", ""),
            row("memory", self.peak_bytes, ran.peak_bytes),
            row("time", int(self.seconds * 1e9), int(ran.seconds * 1e9), format_time),
        ]
        width = max(len(planned) for _, planned, _ in rows)
        lines = [f"{self.name}: {self.method}"]
        if done:
            lines.append(f"{'':<12}{'planned':<{width}}  measured")
        lines += [f"{name:<12}{planned:<{width}}  {run}".rstrip() for name, planned, run in rows]
        return "\n".join(lines)

    def _summary(self) -> str:
        moved = f"{format_bytes(self.read_bytes)} read, {format_bytes(self.written_bytes)} written"
        return f"{self.name} in {format_count(self.steps, 'step')}, {moved}"

    def _bars(self) -> Sequence[Bars]:
        done = self.measured

        def both(name: str, planned: float, measured: float) -> list[tuple[str, float]]:
            run = [(f"{name}, measured", measured)] if done is not None else []
            return [(f"{name}, planned" if done is not None else name, planned), *run]

        ran = done or Measured()
        moved = [
            *both("read", self.read_bytes, ran.read_bytes),
            *both("written", self.written_bytes, ran.written_bytes),
        ]
        seconds = both("time", self.seconds * 1e9, ran.seconds * 1e9)
        return (
            Bars("bytes", [("must move", self.lower_bound_bytes), *moved], format_bytes),
            Bars("requests", both("requests", self.requests, ran.requests), format_number),
            Bars("memory", both("memory", self.peak_bytes, ran.peak_bytes), format_bytes),
            Bars("time", seconds, format_time),
        )


def estimate_report(
    name: str,
    program: Program,
    arrays: Sequence[Any],
    inputs: int,
    disk: DiskSpeed,
    peak_bytes: int,
) -> ComputeReport:
    """
    Make the report of a program that has not run.

    `arrays` are inputs, results, temporaries and views; `inputs` is the number of inputs among
    them.
    """
    patches = PageCacheState()
    usual = [one for one in program.phases if not (isinstance(one, DeferredPhase) and one.seldom)]
    phases = [count_moved(phase, arrays, disk, patches) for phase in usual]
    bound = _adjust_bound(program.bound, arrays, inputs)
    return ComputeReport(
        name=name,
        method=program.method,
        steps=sum(phase.steps for phase in usual),
        read_bytes=sum(one.loaded for one in phases),
        written_bytes=sum(one.stored for one in phases),
        lower_bound_bytes=bound.nbytes,
        lower_bound_name=bound.name,
        requests=sum(one.requests for one in phases),
        operations=sum(one.work for one in phases),
        peak_bytes=peak_bytes,
        seconds=sum(one.seconds for one in phases),
    )


def _adjust_bound(bound: Bound, arrays: Sequence[Any], inputs: int) -> Bound:
    """Return the bound for arrays as they are stored: it is lower if they are encoded, or in memory."""
    stored = {
        n: _count_stored_bytes(arrays[n], nbytes, result=n >= inputs)
        for n, nbytes in bound.once.items()
    }
    least = sum(stored.values())
    if least >= sum(bound.once.values()):
        return bound
    name = bound.name if bound.nbytes <= sum(bound.once.values()) else "inputs and results once"
    return Bound(least, f"{name}, as they are stored", stored)


def _count_stored_bytes(array: Any, nbytes: int, *, result: bool) -> int:
    """Return the bytes that must be moved of an array, if `nbytes` are wanted without encoding."""
    if not isinstance(array, DiskArray):
        return 0
    side = Side.of(array.info)
    if result or side.chunks is None:
        # The encoded size of a result is not known.
        return 0 if side.whole else min(nbytes, array.nbytes)
    if _count_chunks(array) > _LOOKED_AT:
        return 0
    counts = array.handle.core.counts(..., False)
    found = counts[1] + counts[4]
    # The other elements may need most of the stored bytes.
    return min(nbytes, max(nbytes - (array.nbytes - found), 0))


def _count_chunks(array: DiskArray) -> float:
    """Return the number of chunks of an array; infinity if it has none."""
    if array.chunks is None:
        return math.inf
    return math.prod(-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True))


def count_moved(
    phase: Phase, arrays: Sequence[Any], disk: DiskSpeed, patches: PageCacheState
) -> PhaseCosts:
    """
    Count what a phase moves after the phases before.

    An array that does not exist yet counts one request for each section.
    """
    if isinstance(phase, DeferredPhase):
        moving = disk.seconds(phase.steps, phase.loaded + phase.stored)
        seconds = max(moving, phase.work / phase.rate if phase.rate else 0.0)
        return PhaseCosts(phase.loaded, phase.stored, 2 * phase.steps, phase.work, seconds)
    total = PhaseCosts()
    seen: _Seen = {}
    for number, times in weigh_steps(phase):
        step = phase.step(number)
        for load in step.loads:
            requests, nbytes, _ = _count_transfer(phase, step, load, arrays, seen, write=False)
            total.requests += requests * times
            total.loaded += nbytes * times
        for store in step.stores:
            requests, nbytes, again = _count_transfer(phase, step, store, arrays, seen, write=True)
            array = arrays[store.array] if store.array < len(arrays) else None
            beside = ExtraBytes(again * times, again * times)
            if isinstance(array, DiskArray) and not array.handle.core.past_cache():
                beside = patches.write(array, store.section, times)
            total.requests += requests * times
            total.stored += nbytes * times + beside.written
            total.loaded += beside.read
        total.work += step.work * times
    moving = disk.seconds(total.requests, total.loaded + total.stored)
    computing = total.work / phase.rate if phase.rate else 0.0
    # While the first step loads, and the last one stores, nothing else runs.
    alone = min(moving, computing) / max(phase.steps, 1)
    total.seconds = max(moving, computing) + alone
    return total


def weigh_steps(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Yield numbers of steps, and how many steps each represents."""
    count = min(schedule.steps, _COUNTED)
    for k in range(count):
        low, high = k * schedule.steps // count, (k + 1) * schedule.steps // count
        yield (low + high) // 2, high - low


def _count_transfer(
    schedule: Schedule, step: Any, load: Any, arrays: Sequence[Any], seen: _Seen, *, write: bool
) -> tuple[int, int, int]:
    """
    Return requests, bytes, and bytes of shared pages of a load or store.

    Such pages are written in part, then read and written again, because the page cache is too small
    to hold them until the other elements are stored.
    """
    array = arrays[load.array] if load.array < len(arrays) else None
    if array is not None and not isinstance(array, DiskArray):
        return 0, 0, 0
    if array is None:
        buffer = schedule.buffers[step.blocks[load.block].buffer]
        return 1, count_elements(load.section) * buffer.dtype.itemsize, 0
    shape = get_shape(load.section)
    starts = tuple(part.start for part in load.section)
    grid = array.chunks or (1,) * len(shape)
    # Sections at equal positions in their chunks need equally many requests.
    alike: tuple[Any, ...] = (
        load.array,
        write,
        shape,
        tuple(n % c for n, c in zip(starts, grid, strict=True)),
        tuple(part.step for part in load.section),
    )
    side = Side.of(array.info, array.handle.core.past_cache() if write else 0)
    if side.pages is not None or (not write and _count_chunks(array) <= _LOOKED_AT):
        alike += (
            starts,
        )  # it determines where runs end in pages, and how much of each chunk is stored
    if alike not in seen:
        counts = array.handle.core.counts(load.section, write)
        nbytes, again = counts[1] + counts[3] + counts[4], 0
        if write and not side.whole:
            # In an empty array, nothing between runs is read and written back.
            nbytes = count_elements(load.section) * array.dtype.itemsize
            if side.pages is not None:
                # Half of a page at the end of a run is another run's, on average.
                again = side.count_shared_ends(array.shape, load.section) * side.pages[0] // 2
        seen[alike] = counts[0] + counts[2], nbytes, again
    return seen[alike]
