"""
What a computation will move, beside what it has to; and after it has run, what it did.

Problem. Whoever starts a job of hours wants to know before it what it will do, and after it whether that
was true.
Idea. Everything is counted from the schedules that would run. Where there are very many steps, some of
them are counted and stand for their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from outcore.disk import DiskArray
from outcore.errors import SectionError
from outcore.jobs.operation import Disk, Later, Phase, Program
from outcore.report import human, human_time
from outcore.schedule import Schedule, elements
from outcore.tiling import Side

__all__ = ["ComputeReport", "Measured", "Moved", "moved", "spread", "told"]

_Seen = dict[Any, tuple[int, int, int]]
# Steps of a phase that are counted one by one; of more, evenly spread ones.
_COUNTED = 10_000


@dataclass(slots=True)
class Moved:
    """What a phase loads and stores: bytes and requests to the system, and operations of its kernels."""

    loaded: int = 0
    stored: int = 0
    requests: int = 0
    work: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Measured:
    """What a run did: from outside of the schedule."""

    seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0
    peak_bytes: int = 0


@dataclass(slots=True)
class ComputeReport:
    """
    What a computation does, in numbers and in words (`str`).

    Parameters
    ----------
    name
        Of the operation.
    method
        The way that was chosen, and why.
    steps
        Of all phases.
    read_bytes, written_bytes
        What it loads and stores, temporary arrays included.
    must_move, bound
        Bytes that any way has to move with this memory, read and written together, and the name of that
        bound.
    requests
        To the system.
    operations
        Of its kernels.
    peak_bytes
        Memory that buffers and the operations on arrays need.
    seconds
        What it will take, by the figures of the disk and of the kernels.
    measured
        The same of the run, if it ran.
    """

    name: str
    method: str
    steps: int
    read_bytes: int
    written_bytes: int
    must_move: int
    bound: str
    requests: int
    operations: int
    peak_bytes: int
    seconds: float
    measured: Measured | None = field(default=None)

    def __str__(self) -> str:
        done = self.measured
        rows = [
            ("steps", f"{self.steps}", ""),
            ("read", human(self.read_bytes), human(done.read_bytes) if done else ""),
            ("written", human(self.written_bytes), human(done.written_bytes) if done else ""),
            (
                "moved",
                human(self.read_bytes + self.written_bytes),
                human(done.read_bytes + done.written_bytes) if done else "",
            ),
            ("must move", f"{human(self.must_move)} ({self.bound})", ""),
            ("requests", f"{self.requests}", f"{done.requests}" if done else ""),
            ("operations", f"{self.operations:.3g}", ""),
            ("memory", human(self.peak_bytes), human(done.peak_bytes) if done else ""),
            (
                "time",
                human_time(int(self.seconds * 1e9)),
                human_time(int(done.seconds * 1e9)) if done else "",
            ),
        ]
        width = max(len(planned) for _, planned, _ in rows)
        lines = [f"{self.name}: {self.method}"]
        if done:
            lines.append(f"{'':<12}{'planned':<{width}}  measured")
        lines += [f"{name:<12}{planned:<{width}}  {run}".rstrip() for name, planned, run in rows]
        return "\n".join(lines)


def told(
    name: str, program: Program, arrays: Sequence[Any], named: int, disk: Disk, peak_bytes: int
) -> ComputeReport:
    """The report of a program that has not run; the first `named` arrays are inputs and results."""
    phases = [moved(phase, arrays, disk) for phase in program.phases]
    coded = sum(map(_left_out, arrays[:named]))
    return ComputeReport(
        name=name,
        method=program.method,
        steps=program.steps,
        read_bytes=sum(one.loaded for one in phases),
        written_bytes=sum(one.stored for one in phases),
        must_move=max(program.bound.nbytes - coded, 0),
        bound=program.bound.name + ("; of encoded chunks what is stored" if coded else ""),
        requests=sum(one.requests for one in phases),
        operations=sum(one.work for one in phases),
        peak_bytes=peak_bytes,
        seconds=sum(one.seconds for one in phases),
    )


def _left_out(array: Any) -> int:
    """
    Bytes of the elements of an array that a codec may leave out of what is moved.

    Bounds count elements. How small those of a result become is not known before: none of them counts.
    """
    if not isinstance(array, DiskArray) or not Side.of(array.info).whole:
        return 0
    size = math.prod(array.shape) * array.dtype.itemsize
    if array.writable:
        return size
    try:
        counts = array._core.counts(tuple(slice(0, n) for n in array.shape), False)
    except SectionError:
        return size  # more chunks than one look takes: any may be missing
    return max(size - counts[1] - counts[3], 0)


def moved(phase: Phase, arrays: Sequence[Any], disk: Disk) -> Moved:
    """Count what a phase moves. Arrays that do not exist yet have requests of a step's sections."""
    if isinstance(phase, Later):
        moving = disk.seconds(phase.steps, phase.loaded + phase.stored)
        seconds = max(moving, phase.work / phase.rate if phase.rate else 0.0)
        return Moved(phase.loaded, phase.stored, 2 * phase.steps, phase.work, seconds)
    total = Moved()
    seen: _Seen = {}
    for number, times in spread(phase):
        step = phase.step(number)
        for load in step.loads:
            requests, nbytes, _ = _counted(phase, step, load, arrays, seen, write=False)
            total.requests += requests * times
            total.loaded += nbytes * times
        for store in step.stores:
            requests, nbytes, again = _counted(phase, step, store, arrays, seen, write=True)
            total.requests += requests * times
            total.stored += (nbytes + again) * times
            total.loaded += again * times
        total.work += step.work * times
    moving = disk.seconds(total.requests, total.loaded + total.stored)
    computing = total.work / phase.rate if phase.rate else 0.0
    # The first step loads, and the last one stores, while nothing else is done.
    alone = min(moving, computing) / max(phase.steps, 1)
    total.seconds = max(moving, computing) + alone
    return total


def spread(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Numbers of steps, and how many each stands for."""
    count = min(schedule.steps, _COUNTED)
    for k in range(count):
        low, high = k * schedule.steps // count, (k + 1) * schedule.steps // count
        yield (low + high) // 2, high - low


def _counted(
    schedule: Schedule, step: Any, load: Any, arrays: Sequence[Any], seen: _Seen, *, write: bool
) -> tuple[int, int, int]:
    """
    Requests and bytes of a load or store.

    Last come bytes that are read and written again where pages are written in part, because the page
    cache is too small to hold them until the rest comes.
    """
    array = arrays[load.array] if load.array < len(arrays) else None
    if array is not None and not isinstance(array, DiskArray):
        return 0, 0, 0
    if array is None:
        buffer = schedule.buffers[step.blocks[load.block].buffer]
        return 1, elements(load.section) * buffer.dtype.itemsize, 0
    shape = tuple(part.stop - part.start for part in load.section)
    starts = tuple(part.start for part in load.section)
    grid = array.chunks or (1,) * len(shape)
    # Sections that lie alike in their chunks take alike many requests.
    alike: tuple[Any, ...] = (
        load.array,
        write,
        shape,
        tuple(n % c for n, c in zip(starts, grid, strict=True)),
    )
    side = Side.of(array.info, array._core.past_cache() if write else 0)
    if side.pages is not None:
        alike += (starts,)  # where runs end in pages
    if alike not in seen:
        counts = array._core.counts(load.section, write)
        nbytes, again = counts[1] + counts[3] + counts[4], 0
        if write and not side.whole:
            # Where nothing is stored yet, nothing is read and written back between runs.
            nbytes = elements(load.section) * array.dtype.itemsize
            if side.pages is not None:
                # Half of a page at the end of a run is another run's, on average.
                again = side.shared_ends(array.shape, load.section) * side.pages[0] // 2
        seen[alike] = counts[0] + counts[2], nbytes, again
    return seen[alike]
