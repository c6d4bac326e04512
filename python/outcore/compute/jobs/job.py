"""
One job, from the first step to the last rename.

Problem. Hours of work must not be lost, and must not be mixed with the work of another job.
Idea. The journal records what identifies the job, what its program depends on, and which steps are
durable. A job that resumes finds the unfinished arrays and continues with the missing steps,
planned as before. A job that does not resume starts from scratch.

Invariants. A journal is removed only when the results have their names, or when it records nothing
worth resuming; in that case the unfinished arrays are removed too. A phase begins when the results
of the phases before it are durable.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from outcore import formats
from outcore.arrays.opening import open
from outcore.base.hints import memory as promise
from outcore.base.report import format_count
from outcore.compute.jobs.carry import Carrier, Progress, count_repeated_steps
from outcore.compute.jobs.estimates import (
    check_result_sizes,
    explain,
    make_report,
    settle_task,
    shortage_error,
)
from outcore.compute.jobs.journal import (
    PATIENCE,
    Journal,
    StepRanges,
    acquire_journal,
    find_rank_journals,
    gather_steps,
    make_rank_path,
)
from outcore.compute.jobs.late_results import LateResults
from outcore.compute.jobs.left import list_removable, list_temporaries
from outcore.compute.jobs.memory import InMemory
from outcore.compute.jobs.outputs import NamedOutput
from outcore.compute.jobs.report import ComputeReport, Measured
from outcore.compute.jobs.shares import BudgetedProgram, Cut
from outcore.compute.jobs.state import JobStage, JobState, expect_flushes, open_handles, open_views
from outcore.compute.jobs.target import discard, existing_error
from outcore.compute.jobs.task import Task
from outcore.compute.jobs.turns import take_turn
from outcore.errors import (
    AlreadyExistsError,
    BudgetError,
    StorageError,
    UsageError,
    find_stack_level,
)
from outcore.formats import durable
from outcore.formats.defaults import PLAIN

__all__ = ["Job", "Progress"]


class Job:
    """A computation on one or several ranks."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def explain(self) -> ComputeReport:
        """Report what the job would do. Collective over the ranks."""
        task = self._task
        task.agree(explain=True)
        report: ComputeReport | dict[str, Any] = task.ranks.broadcast_from_first(
            lambda: explain(task)
        )
        return report if isinstance(report, ComputeReport) else ComputeReport(**report)

    def run(self, resume: bool, progress: Progress) -> ComputeReport:
        """
        Run the job. Collective over the ranks.

        With `resume`, only the steps that the journal lacks. `progress` is called with the bytes
        read so far and in total.
        """
        task = self._task
        task.agree(resume=resume)
        with contextlib.ExitStack() as stack:
            # Ranks that are threads of one process must run at the same time.
            if task.ranks.size == 1:
                touch = stack.enter_context(take_turn(task.budget, int(promise())))
                progress = partial(_touch_and_report, touch, progress)
            for one in task.named:
                stack.enter_context(one.place.rename_in_errors())
            run = _JobRun(task, resume)
            stack.callback(run.state.close)
            return run.run(progress)

    def open_results(self) -> list[Any]:
        """Return the results for the user, after `run`. Collective over the ranks."""
        return [one.open_result(self._task.ranks) for one in self._task.outputs]


class _JobRun:
    """
    One run of a job on this rank.

    The first rank prepares the journal and the results (`begin`), and the others join it. All ranks
    run the steps, and the first one publishes the results.
    """

    def __init__(self, task: Task, resume: bool) -> None:
        self.task, self.resume = task, resume
        self.state = JobState()
        self.late = LateResults(task, self.state)

    def run(self, progress: Progress) -> ComputeReport:
        """Run the job. Collective over the ranks."""
        ranks = self.task.ranks
        try:
            shared = ranks.broadcast_from_first(self.begin)
            if shared is None:
                return self.report_nothing_left()
            ranks.run_on_all(lambda: self.join(shared))
            ranks.run_on_all(self.late.release_stand_ins)
            report = self.carry(progress)
            ranks.run_on_all(self.state.close_arrays)
        except BaseException as error:
            self.fail(error)
            raise
        ranks.run_on_first(self.publish)
        return report

    def begin(self) -> dict[str, Any] | None:
        """Prepare the job on the first rank; publish and return None if all steps were done before."""
        task, state = self.task, self.state
        is_unlisted = self._open_journal()
        journal = state.journal
        job = task.describe() if journal is not None else {}
        # Without steps, the journal belongs to a job that was interrupted before it had all its arrays.
        state.is_resumed = journal is not None and self.resume and journal.steps > 0
        if journal is not None:
            gather_steps(journal)
            self._compare(journal, job)
            if state.is_resumed and _is_publishing(journal) and not task.lost_results:
                self.publish()
                return None
        self._check_existing()
        if journal is not None and not state.is_resumed:
            self._start_over(journal, job)
        check_result_sizes(task)
        self._begin_results(is_unlisted)
        cut = _read_cut(journal) if journal is not None and state.is_resumed else None
        state.settled = settle_task(task, state.results, cut)
        state.begin_temporaries(task)
        if journal is not None:
            self._enter(journal, job)
        return state.share()

    def _open_journal(self) -> bool:
        """Open the journal, if results have names; return whether there is none to resume from."""
        task = self.task
        if task.named:
            # A job that was killed between its last step and its end has already named the results.
            is_unlisted = self.resume and not os.path.exists(task.named[0].place.journal)
            if is_unlisted or not self.resume:
                self._check_existing(resume=is_unlisted)
            self.state.journal = acquire_journal(task.named[0].place.journal, patience=PATIENCE)
            return is_unlisted
        if self.resume:
            raise UsageError(
                f"{task.operation.name}: resume=True requires a result with a name, since others "
                "are deleted when the job ends; pass a path as out=",
                code="bad-out",
            )
        return False

    def _check_existing(self, *, resume: bool = False) -> None:
        """Raise if a result would replace an array without ``overwrite=True``."""
        for one in self.task.named:
            one.place.check_existing(resume=resume)

    def _compare(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Raise if the journal belongs to another job; warn if its steps will be discarded."""
        if self.state.is_resumed:
            journal.check_same(job)
        elif journal.done:
            self._warn_of_lost_steps(journal, job)

    def _warn_of_lost_steps(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Warn before the journal is removed; it stays if the caller turns warnings into errors."""
        different = journal.list_differences(job)
        whose, advice = (
            "an interrupted job",
            "; resume=True would have continued with the others",
        )
        if different:
            whose, advice = f"another interrupted job (different {', '.join(different)})", ""
        warnings.warn(
            f"{self.task.named[0].place.final!r}: {whose} had completed {len(journal.done)} of "
            f"{format_count(journal.steps - 1, 'step')}, which are discarded: this call starts from the "
            f"beginning{advice}",
            stacklevel=find_stack_level(),
        )

    def _start_over(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Announce the job, then remove what an earlier one left, which stays listed until then."""
        announced = self.task.announce()
        ours = [os.path.dirname(formats.split_path(path)[0]) for path, _ in announced["partial"]]
        left = [
            one for one in list_removable(journal, ours) if list(one) not in announced["partial"]
        ]
        was_begun = journal.job is not None
        journal.begin(job, {**announced, "partial": [*announced["partial"], *left]}, 0)
        for path, format in left:
            discard(path, format)
        if was_begun:
            _remove_temporaries(journal)

    def _begin_results(self, is_unlisted: bool) -> None:
        """Create the arrays of the results, or open those of an interrupted job."""
        task, state = self.task, self.state
        for n, (one, result) in enumerate(zip(task.outputs, task.operation.results, strict=True)):
            try:
                state.results.append(
                    self.late.create_stand_in(n)
                    if result.at_most
                    else one.begin(task.budget, resume=state.is_resumed)
                )
            except AlreadyExistsError:
                # Some formats check only when they create the array.
                if not (isinstance(one, NamedOutput) and one.place.inside):
                    raise
                raise existing_error(one.place.final, resume=is_unlisted) from None
            except BudgetError as error:
                raise shortage_error(task, error) from None

    def _enter(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Begin the journal, or check that it records the program that was planned now."""
        state = self.state
        steps = state.plan.program.steps + 1  # the last step means that everything is durable
        record = self.task.record(state.plan)
        # The first journal now records their steps, or they belong to arrays that no longer exist.
        for path in find_rank_journals(journal.path):
            os.unlink(path)
        if not state.is_resumed:
            journal.begin(job, record, steps)
        elif steps != journal.steps or record["program"] != journal.cut["program"]:
            raise journal.damaged_error()
        state.done = journal.done

    def join(self, shared: Mapping[str, Any]) -> None:
        """Open all arrays on this rank, from `JobState.share` of the first rank."""
        task, state = self.task, self.state
        if not task.ranks.is_first:
            self._join_first(shared)
        settled = state.plan
        state.arrays = open_handles(
            task, [*task.operation.inputs, *state.results, *state.temporaries], settled
        )
        state.arrays += open_views(task, state.arrays, settled)
        for n, (one, output) in enumerate(zip(state.results, task.outputs, strict=True)):
            if isinstance(output, NamedOutput):
                one.close()
            if task.operation.results[n].at_most:
                number = task.first_result + n
                state.arrays[number].close()
                state.arrays[number] = InMemory(np.empty(0), "a result that is made later")
        if state.journal is not None:
            expect_flushes(state.arrays)

    def _join_first(self, shared: Mapping[str, Any]) -> None:
        """Open the results, plan as the first rank did, and begin a journal of this rank."""
        task, state = self.task, self.state
        for n, (one, result) in enumerate(zip(task.outputs, task.operation.results, strict=True)):
            path = shared["made"][n]
            state.results.append(
                self.late.join_stand_in(n, path) if result.at_most else one.join(task.budget, path)
            )
        cut = Cut(**shared["cut"])
        infos = tuple(a.info for a in (*task.operation.inputs, *state.results))
        program = task.operation.plan(cut.terms(infos))
        state.settled = BudgetedProgram(program, cut, tuple(shared["memory"]), shared["peak"])
        for path in shared["temporaries"]:
            state.temporaries.append(open(path, "r+", format=PLAIN))
        state.done = StepRanges((low, high) for low, high in shared["done"])
        if task.named:
            path = make_rank_path(task.named[0].place.journal, task.ranks.rank)
            state.journal = Journal(path, patience=PATIENCE)
            state.journal.begin(task.describe(), task.record(state.plan), program.steps + 1)

    def carry(self, progress: Progress) -> ComputeReport:
        """Run the missing steps of the program. Collective over the ranks."""
        task, state = self.task, self.state
        settled, journal = state.plan, state.journal
        report = make_report(task, settled, state.arrays)
        carrier = Carrier(
            settled.program,
            state.arrays,
            task.ranks,
            settled.cut.disk,
            journal,
            state.done,
            task.lost_results,
            progress,
            self.late.begin,
            state.schedules,
        )
        state.stage = JobStage.RUNNING
        carrier.run()
        report.measured = carrier.sum_measured()
        if journal is not None and task.ranks.is_first:
            if state.is_resumed:
                self._check_chunks()
            journal.commit([settled.program.steps])
        return report

    def _check_chunks(self) -> None:
        """Raise if a chunk is missing: all were written, but one may have been removed since."""
        for n, output in enumerate(self.task.outputs):
            array = self.state.arrays[self.task.first_result + n]
            if not isinstance(output, NamedOutput) or (found := array.handle.core.stored()) is None:
                continue
            most = math.prod(-(-n // u) for n, u in zip(array.shape, found[0], strict=True))
            if len(found[1]) < most:
                raise StorageError(
                    f"{output.place.final!r}: {most - len(found[1])} of {format_count(most, 'chunk')} "
                    "that the interrupted job wrote are missing; start again without resume=True",
                    code="missing-chunk",
                    path=output.place.final,
                )

    def publish(self) -> None:
        """Give the results their names, and remove the journal; a job killed here resumes here."""
        journal = self.state.journal
        inodes = journal.cut.get("inodes", ()) if journal is not None else ()
        for one, inode in zip(self.task.named, inodes, strict=False):
            if one.place.is_published(inode):
                one.place.discard()
        for output in self.task.outputs:
            output.publish()
        if journal is not None:
            _remove_temporaries(journal)
            journal.remove()

    def report_nothing_left(self) -> ComputeReport:
        """Return the report of a job of which all steps were done before."""
        name = self.task.operation.name
        return ComputeReport(name, "all was done", 0, 0, 0, 0, "nothing", 0, 0, 0, 0.0, Measured())

    def fail(self, error: BaseException) -> None:
        """Note in the error what stays, or, on the first rank, remove the unfinished arrays."""
        task, state = self.task, self.state
        state.close_arrays()
        for one, output in zip(state.results, task.outputs, strict=False):
            if isinstance(output, NamedOutput):
                one.close()
        if not task.ranks.is_first:
            self._note_recorded_steps(error)
            for output in task.outputs:
                output.release()
            return
        journal = state.journal
        if journal is not None:
            if state.is_running:
                gather_steps(journal)
            self._note_done_steps(error, journal)
            if not state.is_resumed and not journal.done:
                self._remove_begun(journal)
        elif not task.named:
            for output in task.outputs:
                output.discard()

    def _note_done_steps(self, error: BaseException, journal: Journal) -> None:
        """Note in the error which steps stay, on the first rank."""
        state = self.state
        # Before the job has begun, the journal may belong to another job.
        if not journal.done or not (state.is_running or state.results):
            return
        repeats = 0
        if state.settled is not None:
            repeats = count_repeated_steps(state.settled.program, journal.done, state.schedules)
        error.add_note(
            f"{len(journal.done)} of {format_count(journal.steps - 1, 'step')} of "
            f"{self.task.named[0].place.final!r} are "
            "complete and preserved; the same call with resume=True continues with the others"
            + (f", and repeats {repeats} for their results in memory" if repeats else "")
        )

    def _note_recorded_steps(self, error: BaseException) -> None:
        """Note in the error that steps stay, on another rank: the first one may no longer run."""
        state = self.state
        if state.is_running and state.journal is not None and state.journal.done:
            error.add_note(
                f"the recorded steps of {self.task.named[0].place.final!r} are preserved; the same "
                "call with resume=True continues with the others"
            )

    def _remove_begun(self, journal: Journal) -> None:
        """Remove the journal and the unfinished arrays: nothing of them is worth resuming."""
        journal.remove()
        for output in self.task.outputs:
            output.discard()
        self.late.release_stand_ins()
        _remove_temporaries(journal)


def _touch_and_report(touch: Callable[[], None], progress: Progress, done: int, total: int) -> None:
    """Report progress, and notify waiting jobs that this one makes progress."""
    touch()
    progress(done, total)


def _is_publishing(journal: Journal) -> bool:
    """Return whether all steps are done, so that only names are missing."""
    return journal.steps > 0 and journal.steps - 1 in journal.done


def _remove_temporaries(journal: Journal) -> None:
    """Remove the journals of other ranks, and the temporary arrays of the job."""
    for path in find_rank_journals(journal.path):
        os.unlink(path)
    for path in list_temporaries(journal.path):
        durable.unlink_in_background(path)


def _read_cut(journal: Journal) -> Cut:
    """Read from the journal the terms with which the interrupted job was planned."""
    try:
        fields = journal.cut["cut"]
        cut = Cut(**fields)
    except (TypeError, KeyError):
        raise journal.damaged_error() from None
    if not all(type(n) is int and 0 <= n < 2**62 for n in fields.values()) or not cut.rate:
        raise journal.damaged_error()
    return cut
