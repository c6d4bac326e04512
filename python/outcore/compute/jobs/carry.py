"""
The phases of a program, run one after the other.

Problem. Steps that were completed before a kill are not repeated, new ones must be recorded when
they are durable, and the ranks of a job share all of them.
Idea. Each phase is divided (`outcore.arrays.schedule.divide`): a rank runs its part of a round,
checkpoints record stored steps in its journal, and the ranks synchronise. If the job can be
resumed, the results of a phase are durable before the next one begins.

Invariants. All ranks run through the same phases and rounds, even if one of them has nothing to do
there.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.schedule import (
    Load,
    Schedule,
    ScheduleRun,
    ScheduleStep,
    Section,
    count_elements,
    divide_steps,
    iterate_pending,
)
from outcore.compute.jobs.checkpoints import Checkpoints
from outcore.compute.jobs.journal import Journal, StepRanges
from outcore.compute.jobs.operation import DiskSpeed, Phase, Program, ProgramArray
from outcore.compute.jobs.report import Measured, weigh_steps
from outcore.ranks.collective.many import read_all
from outcore.ranks.ranks import Ranks

__all__ = ["Carrier", "Progress", "count_repeated_steps"]

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Carrier:
    """Execution of a program."""

    program: Program
    arrays: Sequence[ProgramArray]
    ranks: Ranks
    disk: DiskSpeed
    #: Journal in which this rank records steps; None if the job cannot be resumed.
    journal: Journal | None
    #: Steps of all phases that are durable since before.
    done: StepRanges
    #: Numbers of the results that ended with the process that stored them.
    lost_results: frozenset[int]
    progress: Progress
    #: Called when the shapes of all results are known (`Program.known`), with the number of the
    #: next step: adds the late results to `arrays`, and returns their numbers. Collective.
    begin_late: Callable[[int], Sequence[int]] = lambda first: ()
    #: Receives the schedule of each phase that is run, by the number of its first step.
    schedules: dict[int, Schedule] = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)
    beside: list[tuple[DiskArray, dict[str, int]]] = field(default_factory=list)

    def run(self) -> None:
        """Run all phases. Collective over the ranks."""
        clock = time.monotonic()
        before = {n: a.stats() for n, a in self.list_disk_arrays()}
        _core.reset_memory_peak()
        checkpoints = None
        if self.journal is not None:
            targets = [a for _, a in self.list_disk_arrays() if a.writable]
            checkpoints = Checkpoints(targets, self.journal)
        try:
            counts: list[_ProgressCount] = []
            self.ranks.run_long_step(lambda: counts.append(_ProgressCount(self)))
            first = 0
            for number, phase in enumerate(self.program.phases):
                if self.program.shapes is not None and number == self.program.known:
                    made = set(self.begin_late(first))
                    new = [(n, a) for n, a in self.list_disk_arrays() if n in made]
                    before |= {n: a.stats() for n, a in new}
                    if checkpoints is not None:
                        checkpoints.watch([a for _, a in new])
                if not self.is_done(phase, first):
                    self.run_phase(phase, first, checkpoints, counts[0])
                first += phase.steps
            self.ranks.run_long_step(counts[0].finish)
        except BaseException:
            # All ranks raise at the same synchronisation. Each first records what it has stored, and
            # nothing is removed before; the first failure is the one to report.
            if checkpoints is not None:
                with contextlib.suppress(Exception):
                    self.ranks.run_long_step(checkpoints.finish)
            raise
        if checkpoints is not None:
            self.ranks.run_long_step(checkpoints.finish)
        self.measured.seconds = time.monotonic() - clock
        self.measured.peak_bytes = _core.memory_state()[2]
        for n, array in self.list_disk_arrays():
            self.measure(array, before[n])

    def list_disk_arrays(self) -> Iterator[tuple[int, DiskArray]]:
        """Yield the arrays on disk, with their numbers."""
        return ((n, a) for n, a in enumerate(self.arrays) if isinstance(a, DiskArray))

    def is_done(self, phase: Phase, first: int) -> bool:
        """Return whether all steps of a phase were completed before, and their results still exist."""
        if self.journal is None or self.lost_results:
            return False
        return all(first + k in self.done for k in range(phase.steps))

    def run_phase(
        self, phase: Phase, first: int, checkpoints: Checkpoints | None, count: _ProgressCount
    ) -> None:
        """Run the remaining steps of one phase, whose first step has number `first` in the program."""
        made: list[Schedule] = []

        def describe() -> str:
            # The workspace of LAPACK determines the rows of a block, and machines may have different
            # libraries: some rows would then be computed twice.
            blocks = [one.nbytes for one in made[0].buffers]
            return f"{made[0].name} in {made[0].steps} steps with blocks of {blocks} bytes"

        self.ranks.run_long_step(
            lambda: made.append(phase if isinstance(phase, Schedule) else phase.make(self.arrays)),
            describe,
        )
        schedule = self.schedules[first] = made[0]
        if not schedule.buffers:
            return  # no steps remain, on any rank
        with self.common(schedule) as common:
            # Arrays in memory exist on each rank. Each rank has measured its own rate of kernels: all
            # use that of the first to divide the steps, or some steps would belong to no rank.
            rate = self.ranks.broadcast_from_first(partial(getattr, schedule, "rate"))
            schedule = replace(schedule, common=frozenset(common), rate=rate)
            for parts in self.divide_rounds(schedule):
                run = partial(self.run_part, schedule, parts, first, checkpoints, count, common)
                self.ranks.run_long_step(
                    run, partial("{}, divided as {}".format, schedule.name, parts)
                )
        if checkpoints is not None and len(self.program.phases) > 1:
            self.ranks.run_long_step(checkpoints.finish)

    def divide_rounds(self, schedule: Schedule) -> Iterator[tuple[range, ...]]:
        """Yield the steps of each rank; the ranks synchronise after each round."""
        if self.ranks.size == 1:
            return iter([(range(schedule.steps),)])
        return divide_steps(schedule, self.ranks.size, lambda step: self.seconds(schedule, step))

    @contextlib.contextmanager
    def common(self, schedule: Schedule) -> Iterator[Mapping[int, DiskArray]]:
        """Open collectively the arrays that ranks read together."""
        with contextlib.ExitStack() as stack:
            opened: dict[int, DiskArray] = {}
            for n in sorted(schedule.common) if self.ranks.size > 1 else ():
                array = self.arrays[n]
                if isinstance(array, DiskArray):
                    opened[n] = stack.enter_context(self.ranks.open_on_all_ranks(array))
                    self.beside.append((opened[n], opened[n].stats()))
            yield opened
            for array, before in self.beside:
                self.measure(array, before)
            self.beside.clear()

    def seconds(self, schedule: Schedule, step: ScheduleStep) -> float:
        """Estimate the time of a step: the longer one of its transfers and its kernel."""
        transfers = (*step.loads, *step.stores)
        nbytes = _sum_bytes(transfers, self.arrays)
        kernel = step.work / schedule.rate if schedule.rate else 0.0
        return max(self.disk.seconds(len(transfers), nbytes), kernel)

    def run_part(
        self,
        schedule: Schedule,
        parts: Sequence[range],
        first: int,
        checkpoints: Checkpoints | None,
        count: _ProgressCount,
        common: Mapping[int, DiskArray],
    ) -> None:
        """Run the steps of this rank in one round."""
        steps = parts[self.ranks.rank]
        recorded = _StepRecorder(schedule, first, checkpoints)
        done: Container[int] = ()
        if self.journal is not None:
            done = _PhaseSteps(self.done, first)
            if self.lost_results:
                done = _StepsWithResults(done, schedule, self.lost_results)

        def note_stored(number: int) -> None:
            recorded.note_stored(number)
            if number not in done:
                count.count_stored(schedule, number)

        turns = 0

        def together(wanted: Sequence[tuple[int, Section, NDArray[Any]]]) -> None:
            nonlocal turns
            turns += 1
            read_all([(common[n], *one) for n, *one in wanted], comm=self.ranks.group)

        with ScheduleRun(
            schedule,
            self.arrays,
            done=done,
            stored=note_stored,
            steps=steps,
            together=together if common else None,
        ) as run:
            run.finish()
        recorded.finish()
        if common:
            # Other ranks have more steps, and their collective reads need all ranks.
            for _ in range(
                max(sum(1 for _ in iterate_pending(schedule, done, one)) for one in parts) - turns
            ):
                together(())

    def sum_measured(self) -> Measured:
        """Return what all ranks moved in total. Collective."""
        if self.ranks.size == 1:
            return self.measured
        mine = self.measured
        moved = self.ranks.add_up([mine.read_bytes, mine.written_bytes, mine.requests])
        return replace(mine, read_bytes=moved[0], written_bytes=moved[1], requests=moved[2])

    def measure(self, array: DiskArray, old: dict[str, int]) -> None:
        """Add what was moved of an array since its counters were `old`."""
        new, measured = array.stats(), self.measured
        measured.read_bytes += new["read_bytes"] - old["read_bytes"]
        measured.written_bytes += new["written_bytes"] - old["written_bytes"]
        stored = new["mapped_written_bytes"] - old["mapped_written_bytes"]
        measured.written_bytes += stored
        measured.read_bytes += new["mapped_bytes"] - old["mapped_bytes"] - stored
        measured.requests += new["reads"] + new["writes"] - old["reads"] - old["writes"]


def count_repeated_steps(
    program: Program, done: StepRanges, schedules: Mapping[int, Schedule]
) -> int:
    """
    Return how many of the completed steps a resumed program repeats.

    `schedules` are those of the phases that ran, by the number of their first step.
    """
    found = first = 0
    for phase in program.phases:
        inside = _PhaseSteps(done, first)
        last = max((k - first for k in done if 0 <= k - first < phase.steps), default=None)
        schedule = phase if isinstance(phase, Schedule) else schedules.get(first)
        if schedule is not None and last is not None:
            # No step after the last completed one is repeated, and `due` may be endless.
            due = iterate_pending(schedule, inside, range(schedule.steps))
            due = itertools.takewhile(lambda one: one.number <= last, due)  # noqa: B023
            found += sum(one.number in inside for one in due)
        first += phase.steps
    return found


def _sum_bytes(transfers: Sequence[Load], arrays: Sequence[ProgramArray]) -> int:
    """Return the bytes of the sections that are loaded or stored."""
    return sum(count_elements(one.section) * arrays[one.array].dtype.itemsize for one in transfers)


class _ProgressCount:
    """Progress of this rank, in bytes that are loaded: each of several ranks has about its share."""

    def __init__(self, carrier: Carrier) -> None:
        self.arrays, self.progress = carrier.arrays, carrier.progress
        phases, ranks = carrier.program.phases, carrier.ranks

        def share(nbytes: int) -> int:
            return nbytes * (ranks.rank + 1) // ranks.size - nbytes * ranks.rank // ranks.size

        self.total = share(sum(self._bytes(phase) for phase in phases))
        done = first = 0
        for phase in phases:
            if carrier.journal is not None and isinstance(phase, Schedule):
                inside = range(first, first + phase.steps)
                done += sum(self._step(phase, k - first) for k in carrier.done if k in inside)
            first += phase.steps
        self.done = min(share(done), self.total)
        self.progress(self.done, self.total)

    def count_stored(self, schedule: Schedule, number: int) -> None:
        """Count a step of `schedule` that was stored."""
        self.done = min(self.done + self._step(schedule, number), self.total)
        self.progress(self.done, self.total)

    def finish(self) -> None:
        """Report that everything is stored."""
        if self.done < self.total:
            self.progress(self.total, self.total)

    def _bytes(self, phase: Any) -> int:
        if not isinstance(phase, Schedule):
            return 0 if phase.seldom else int(phase.loaded)
        return sum(self._step(phase, k) * times for k, times in weigh_steps(phase))

    def _step(self, schedule: Schedule, number: int) -> int:
        return _sum_bytes(schedule.step(number).loads, self.arrays)


class _StepRecorder:
    """Steps for the journal: one without stores is recorded with the next one that has some."""

    def __init__(self, schedule: Schedule, first: int, checkpoints: Checkpoints | None) -> None:
        self.schedule, self.first, self.checkpoints = schedule, first, checkpoints
        self.waiting: list[int] = []

    def note_stored(self, number: int) -> None:
        """Note a step whose stores were handed to the system."""
        self.waiting.append(self.first + number)
        if self.schedule.step(number).stores:
            self.finish()

    def finish(self) -> None:
        """Record the steps that wait."""
        for step in self.waiting:
            if self.checkpoints is not None:
                self.checkpoints.note_written(step)
        self.waiting.clear()


class _PhaseSteps(Container[int]):
    """The steps of one phase among those of the whole program."""

    def __init__(self, done: Container[int], first: int) -> None:
        self._done, self._first = done, first

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int) and self._first + step in self._done


class _StepsWithResults(Container[int]):
    """Completed steps whose results still exist."""

    def __init__(self, done: Container[int], schedule: Schedule, lost: Container[int]) -> None:
        self._done, self._schedule, self._lost = done, schedule, lost

    def __contains__(self, step: object) -> bool:
        return step in self._done and not any(
            store.array in self._lost
            for store in self._schedule.step(step).stores  # type: ignore[arg-type]
        )
