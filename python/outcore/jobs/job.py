"""
One job, from the first step to the last rename.

Problem. Hours of work must not be lost, and must not be mixed with those of another job.
Idea. The journal keeps what makes two jobs the same, what the program follows from, and which steps are
durable. Who resumes finds the unfinished arrays and goes on with the steps that are missing, planned as
before; who does not begins anew.

Invariants. A journal is removed only when the results have their names, or when there is nothing in it
worth going on from; then what was begun is removed too. A phase begins when what the phases before it
stored is durable.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from outcore import _core, formats
from outcore.disk import DiskArray
from outcore.errors import (
    AlreadyExistsError,
    BudgetError,
    StorageError,
    UsageError,
    callers_line,
)
from outcore.formats import durable
from outcore.formats.scratch import scratch_folder
from outcore.hints import Hints
from outcore.hints import memory as promise
from outcore.jobs.calls import written
from outcore.jobs.carry import Carrier, Progress, repeated
from outcore.jobs.changed import Files, state
from outcore.jobs.journal import SUFFIX, Journal, Steps, gather, held, of_rank, of_ranks
from outcore.jobs.left import removable, temporaries, temporary_path
from outcore.jobs.memory import InMemory
from outcore.jobs.operation import Operation, Program
from outcore.jobs.outputs import Named, Output, has_room_for, too_large_error
from outcore.jobs.ranks import Ranks
from outcore.jobs.report import ComputeReport, Measured, told
from outcore.jobs.shares import Cut, Settled, least, opened, sampled, settle
from outcore.jobs.target import PARTIAL, discard
from outcore.jobs.temporaries import choose_suffix, create_temporary
from outcore.jobs.turns import turn
from outcore.jobs.views import seen
from outcore.opening import create, open
from outcore.report import counted
from outcore.schedule import Schedule

__all__ = ["Job", "Progress"]

# Seconds that somebody who lists jobs may have the journal.
_PATIENCE = 0.5


@dataclass(slots=True)
class Job:
    """
    An operation whose results have places, within so many bytes.

    Parameters
    ----------
    operation, outputs
        What is to be computed, and where each result goes.
    budget
        Bytes that it may hold.
    options
        What else the user said of the results, for the journal.
    ranks
        Who does it.
    """

    operation: Operation
    outputs: Sequence[Output]
    budget: int
    options: Mapping[str, Any]
    ranks: Ranks
    #: What `description` said, before anything was written.
    described: dict[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> list[Named]:
        """The outputs that get names."""
        return [one for one in self.outputs if isinstance(one, Named)]

    @property
    def left(self) -> int:
        """Bytes that there are beside results that stay in memory."""
        return self.budget - sum(one.reserved_bytes for one in self.outputs)

    @property
    def passing(self) -> frozenset[int]:
        """Numbers of the results that are gone with the process: in memory, or without a name."""
        first = len(self.operation.inputs)
        return frozenset(first + n for n, one in enumerate(self.outputs) if not one.is_resumable)

    def description(self) -> dict[str, Any]:
        """What makes two jobs the same."""
        if not self.described:
            self.described |= self._description()
        return self.described

    def _description(self) -> dict[str, Any]:
        written = Files().union(*(one.containers for one in self.outputs))
        told: dict[str, Any] = {"operation": self.operation.name}
        for n, array in enumerate(self.operation.inputs):
            name = "source" if n == 0 else f"source {n + 1}"
            told |= {
                name: _absolute(array.path) if isinstance(array, DiskArray) else "in memory",
                f"{name} shape": list(array.shape),
                f"{name} dtype": repr(array.dtype),
            }
            kind, value = state(array, written)
            told[f"{name} {kind}"] = value
        for n, output in enumerate(self.outputs):
            name = "target" if n == 0 else f"target {n + 1}"
            if isinstance(output, Named):
                told[name] = _absolute(output.place.final)
            result = self.operation.results[n]
            told |= {f"{name} shape": list(result.shape), f"{name} dtype": repr(result.dtype)}
        return told | {k: _said(v) for k, v in {**self.operation.arguments, **self.options}.items()}

    def announced(self) -> dict[str, Any]:
        """What the journal keeps from the very beginning: what may be left, and how to go on."""
        partial = [[_absolute(one.place.left), one.place.format] for one in self.named]
        partial += [[_absolute(path), how["format"]] for path, how in self._stand_ins().values()]
        outs = [
            _absolute(one.place.final) if isinstance(one, Named) else None for one in self.outputs
        ]
        overwrite = any(one.place.overwrite for one in self.named)
        call = written(self.operation, outs, self.budget, self.options, overwrite=overwrite)
        return {"partial": partial, "call": call}

    def begun(self, settled: Settled) -> dict[str, Any]:
        """What it keeps when all arrays are there: also what the program follows from."""
        program = {"cut": asdict(settled.cut), "program": _digest(settled.program)}
        return program | {"inodes": [_inode(one) for one in self.named]} | self.announced()

    def _agree(self, **how: bool) -> None:
        """All ranks make the same call; the smallest budget counts. Collective."""

        def say() -> str:
            overwrite = any(one.place.overwrite for one in self.named)
            return json.dumps({**self.description(), "overwrite": overwrite, **how})

        self.budget = self.ranks.alike(say, self.budget)

    def explained(self) -> ComputeReport:
        """What it would do. Collective over the ranks."""
        self._agree(explain=True)
        report: ComputeReport | dict[str, Any] = self.ranks.told(self._explained)
        return report if isinstance(report, ComputeReport) else ComputeReport(**report)

    def _explained(self) -> Any:
        self._refuse_large_results()
        with self._like_results() as made:
            settled = self._settled(made, None)
            with contextlib.ExitStack() as stack:
                beside = []
                for result in settled.program.temporaries:
                    beside.append(create_temporary(result, self._scratch()))
                    stack.callback(beside[-1].close)
                arrays = self._handles([*self.operation.inputs, *made, *beside], settled)
                arrays += self._views(arrays, settled)
                for array in arrays:
                    stack.callback(array.close)
                if self.named:
                    _expect_flush(arrays)
                report = self._report(settled, arrays)
        return report if self.ranks.size == 1 else asdict(report)

    def _refuse_large_results(self) -> None:
        """Before results in memory take too much of the budget; tells what does for all of the job."""
        if has_room_for(self.outputs, self.budget):
            return
        largest, beside = max(one.reserved_bytes for one in self.outputs), self.budget - self.left
        with self._like_results() as made:
            lowest = max(2 * largest - beside, 1)
            needed = least(self.operation, made, lowest, None, self.ranks.size, self.cores)
        raise too_large_error(largest, self.budget, needed + beside)

    def _beside_others(self, refused: BudgetError) -> BudgetError:
        """Tell what does for all of the job where others hold the memory of a result."""
        others = _core.memory_state()[0]
        with self._like_results() as made:
            needed = least(self.operation, made, 1, None, self.ranks.size, self.cores)
        needed = max(refused.needed or 0, needed + self.budget - self.left + others)
        text = f"{refused.message}. All of {self.operation.name} needs {needed} bytes then"
        return BudgetError(text, code=refused.code, needed=needed)

    @contextlib.contextmanager
    def _like_results(self) -> Iterator[list[Any]]:
        """Empty arrays as the results will be: their layouts count."""
        with contextlib.ExitStack() as stack:
            made = []
            for output in self.outputs:
                words = output.model_options() if isinstance(output, Named) else {}
                made.append(output.create_model(words))
                if output.is_resumable and not isinstance(output, Named):
                    continue  # the user's own
                if isinstance(made[-1], DiskArray) and made[-1].handle.is_temporary:
                    stack.callback(made[-1].close)
            yield made

    def _stand_ins(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Of named results that are made later: what stands for them in plans, and how it is made."""
        found = {}
        for n, (output, result) in enumerate(
            zip(self.outputs, self.operation.results, strict=True)
        ):
            if result.at_most and isinstance(output, Named):
                words = output.model_options()
                suffix, inner = choose_suffix(words)
                stem = output.place.journal.removesuffix(SUFFIX)
                found[n] = (durable.neighbour(stem, f"{PARTIAL}-like{suffix}") + inner, words)
        return found

    def _stand_in(self, number: int) -> Any:
        """
        What stands for a result that is made later.

        The journal lists it, so that it goes away whoever is killed.
        """
        output, result = self.outputs[number], self.operation.results[number]
        if not isinstance(output, Named):
            return output.begin(self.budget, resume=False)
        path, words = self._stand_ins()[number]
        discard(path, words["format"])
        hints = Hints.of(Hints(exclusive=True))
        return create(path, result.shape, result.dtype, hints=hints, **words)

    def _join_stand_in(self, number: int, path: str) -> Any:
        """The same for another rank."""
        output, result = self.outputs[number], self.operation.results[number]
        if not isinstance(output, Named):
            return output.join(self.budget, path)
        _, words = self._stand_ins()[number]
        if words["format"] == "raw":
            return open(path, "r+", shape=result.shape, dtype=result.dtype, **words)
        return open(path, "r+", format=words["format"])

    def _release_stand_ins(self) -> None:
        """Plans are made. Of what has no name, also what another rank has opened."""
        for number, result in enumerate(self.operation.results):
            output = self.outputs[number]
            if not result.at_most or isinstance(output, Named):
                continue
            if self.ranks.first:
                output.discard()
            else:
                output.release()
        if self.ranks.first:
            for path, words in self._stand_ins().values():
                discard(path, words["format"])

    def _report(self, settled: Settled, arrays: Sequence[Any]) -> ComputeReport:
        program = settled.program
        inputs = len(self.operation.inputs)
        peak = settled.peak + self.budget - self.left
        return told(self.operation.name, program, arrays, inputs, settled.cut.disk, peak)

    def run(self, resume: bool, progress: Progress) -> ComputeReport:
        """All of it; with `resume`, what the journal says is left of it. Collective over the ranks."""
        self._agree(resume=resume)
        with contextlib.ExitStack() as stack:
            # Ranks that are threads of one process have to go on together.
            if self.ranks.size == 1:
                under_way = stack.enter_context(turn(self.budget, int(promise())))
                progress = partial(_going_on, under_way, progress)
            for one in self.named:
                stack.enter_context(one.place.named())
            begun = _Begun()
            stack.callback(begun.close)
            try:
                told = self.ranks.told(lambda: self._begin(begun, resume))
                if told is None:
                    return self._nothing_left()
                self.ranks.together(lambda: self._join(begun, told))
                self.ranks.together(self._release_stand_ins)
                report = self._carry(begun, progress)
                self.ranks.together(begun.close_arrays)
            except BaseException as error:
                self._failed(error, begun)
                raise
            self.ranks.once(lambda: self._publish(begun.journal))
            return report

    def results(self) -> list[Any]:
        """What the user gets, after `run`. Collective over the ranks."""
        return [one.open_result(self.ranks) for one in self.outputs]

    def _begin(self, begun: _Begun, resume: bool) -> dict[str, Any] | None:
        """What the first rank does, and tells the others; None if all was done, and is published now."""
        ended = False
        if self.named:
            # Who was killed between the last step and the end has given results their names already.
            ended = resume and not os.path.exists(self.named[0].place.journal)
            if ended or not resume:
                self._refuse_existing(resume=ended)
            begun.journal = held(self.named[0].place.journal, patience=_PATIENCE)
        elif resume:
            raise UsageError(
                f"{self.operation.name}: resume=True needs a path in out=: what has no name is gone "
                "when the job ends",
                code="bad-out",
            )
        journal, job = begun.journal, self.description() if begun.journal else {}
        # Without steps it is of one that was interrupted before it had made all arrays.
        begun.going_on = journal is not None and resume and journal.steps > 0
        if journal is not None:
            gather(journal)
            self._compare(journal, job, going_on=begun.going_on)
            if begun.going_on and self._is_publishing(journal) and not self.passing:
                self._publish(journal)
                return None
        self._refuse_existing()
        again = begun.going_on
        if journal is not None and not again:
            self._start_anew(journal, job)
        self._refuse_large_results()
        for n, (one, result) in enumerate(zip(self.outputs, self.operation.results, strict=True)):
            try:
                begun.made.append(
                    self._stand_in(n) if result.at_most else one.begin(self.budget, resume=again)
                )
            except AlreadyExistsError:
                # Some formats look only when they create it.
                if not (isinstance(one, Named) and one.place.inside):
                    raise
                raise one.place.existing(resume=ended) from None
            except BudgetError as error:
                raise self._beside_others(error) from None
        begun.settled = self._settled(begun.made, _cut(journal) if again and journal else None)
        self._temporaries(begun)
        if journal is not None:
            self._enter(begun, journal, job)
        return {
            "cut": asdict(begun.settled.cut),
            "memory": begun.settled.memory,
            "peak": begun.settled.peak,
            "done": list(begun.done.ranges()),
            "made": [getattr(one, "path", None) for one in begun.made],
            "temporaries": [one.path for one in begun.temporaries],
        }

    def _start_anew(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Announce the job, and remove what an earlier one left: it is listed until it is gone."""
        announced = self.announced()
        ours = [os.path.dirname(formats.split_path(path)[0]) for path, _ in announced["partial"]]
        left = [one for one in removable(journal, ours) if list(one) not in announced["partial"]]
        was_begun = journal.job is not None
        journal.begin(job, {**announced, "partial": [*announced["partial"], *left]}, 0)
        for path, format in left:
            discard(path, format)
        if was_begun:
            self._remove_temporaries(journal)

    def _join(self, begun: _Begun, told: Mapping[str, Any]) -> None:
        """What each rank does when the first one has begun: it opens all arrays."""
        if not self.ranks.first:
            for n, (one, result) in enumerate(
                zip(self.outputs, self.operation.results, strict=True)
            ):
                path = told["made"][n]
                begun.made.append(
                    self._join_stand_in(n, path) if result.at_most else one.join(self.budget, path)
                )
            cut = Cut(**told["cut"])
            infos = tuple(a.info for a in (*self.operation.inputs, *begun.made))
            program = self.operation.plan(cut.terms(infos))
            begun.settled = Settled(program, cut, tuple(told["memory"]), told["peak"])
            for path in told["temporaries"]:
                begun.temporaries.append(open(path, "r+", format="npy"))
            begun.done = Steps((low, high) for low, high in told["done"])
            if self.named:
                path = of_rank(self.named[0].place.journal, self.ranks.rank)
                begun.journal = Journal(path, patience=_PATIENCE)
                job, steps = self.description(), program.steps + 1
                begun.journal.begin(job, self.begun(begun.settled), steps)
        assert begun.settled is not None
        settled = begun.settled
        begun.arrays = self._handles(
            [*self.operation.inputs, *begun.made, *begun.temporaries], settled
        )
        begun.arrays += self._views(begun.arrays, settled)
        for n, (one, output) in enumerate(zip(begun.made, self.outputs, strict=True)):
            if isinstance(output, Named):
                one.close()
            if self.operation.results[n].at_most:
                number = len(self.operation.inputs) + n
                begun.arrays[number].close()
                begun.arrays[number] = InMemory(np.empty(0), "a result that is made later")
        if begun.journal is not None:
            _expect_flush(begun.arrays)

    def _carry(self, begun: _Begun, progress: Progress) -> ComputeReport:
        """Run what is left of the program. Collective over the ranks."""
        settled, journal = begun.settled, begun.journal
        assert settled is not None
        report = self._report(settled, begun.arrays)
        carrier = Carrier(
            settled.program,
            begun.arrays,
            self.ranks,
            settled.cut.disk,
            journal,
            begun.done,
            self.passing,
            progress,
            partial(self._sized, begun),
            begun.schedules,
        )
        begun.under_way = True
        carrier.run()
        report.measured = carrier.measured_by_all()
        if journal is not None and self.ranks.first:
            if begun.going_on:
                self._refuse_lost(begun)
            journal.commit([settled.program.steps])
        return report

    def _refuse_lost(self, begun: _Begun) -> None:
        """Every chunk was written; one that an earlier run wrote may have been removed since."""
        first = len(self.operation.inputs)
        for n, output in enumerate(self.outputs):
            array = begun.arrays[first + n]
            if not isinstance(output, Named) or (found := array.handle.core.stored()) is None:
                continue
            most = math.prod(-(-n // u) for n, u in zip(array.shape, found[0], strict=True))
            if len(found[1]) < most:
                raise StorageError(
                    f"{output.place.final!r}: {most - len(found[1])} of {counted(most, 'chunk')} that "
                    "the interrupted job wrote are gone; start again without resume",
                    code="missing-chunk",
                    path=output.place.final,
                )

    def _sized(self, begun: _Begun, first: int) -> list[int]:
        """Make the results whose shapes are known by now: step `first` comes next. Collective."""
        settled = begun.settled
        assert settled is not None and settled.program.shapes is not None
        late = [n for n, result in enumerate(self.operation.results) if result.at_most]
        self.ranks.together(lambda: self._set_shapes(begun, late))
        paths = self.ranks.told(lambda: self._begin_late(begun, late, first))
        self.ranks.together(lambda: self._join_late(begun, late, paths))
        return [len(self.operation.inputs) + n for n in late]

    def _set_shapes(self, begun: _Begun, late: Sequence[int]) -> None:
        assert begun.settled is not None and begun.settled.program.shapes is not None
        shapes = begun.settled.program.shapes(begun.arrays)
        for n in late:
            self.outputs[n].set_shape(tuple(shapes[n]))

    def _begin_late(self, begun: _Begun, late: Sequence[int], first: int) -> list[Any]:
        """What the first rank does, and tells the others."""
        # Who was killed before a step that stores into them was recorded may have left anything.
        again = begun.going_on and any(high >= first for _, high in begun.done.ranges())
        for n in late:
            begun.made[n] = self.outputs[n].begin(self.budget, resume=again)
        journal = begun.journal
        if journal is not None and not again:
            assert begun.settled is not None and journal.job is not None
            journal.begin(journal.job, self.begun(begun.settled), journal.steps, journal.done)
        return [getattr(begun.made[n], "path", None) for n in late]

    def _join_late(self, begun: _Begun, late: Sequence[int], paths: Sequence[Any]) -> None:
        """What each rank does then."""
        settled, inputs = begun.settled, len(self.operation.inputs)
        assert settled is not None
        for n, path in zip(late, paths, strict=True):
            if not self.ranks.first:
                begun.made[n] = self.outputs[n].join(self.budget, path)
            array = self._handle(begun.made[n], settled.memory[inputs + n], write=True)
            begun.arrays[inputs + n] = array
            if isinstance(self.outputs[n], Named):
                begun.made[n].close()
            if begun.journal is not None and isinstance(array, DiskArray):
                array.handle.core.expect_flush()

    def _enter(self, begun: _Begun, journal: Journal, job: Mapping[str, Any]) -> None:
        """Begin the journal, or see whether what it says is what was planned now."""
        assert begun.settled is not None
        steps = begun.settled.program.steps + 1  # the last one: all is durable
        kept = self.begun(begun.settled)
        # Their steps are recorded now, or were done for arrays that are gone.
        for path in of_ranks(journal.path):
            os.unlink(path)
        if not begun.going_on:
            journal.begin(job, kept, steps)
        elif steps != journal.steps or kept["program"] != journal.cut["program"]:
            raise journal.bad()
        begun.done = journal.done

    def _settled(self, made: Sequence[Any], cut: Cut | None) -> Settled:
        return settle(
            self.operation,
            made,
            self.left,
            cut,
            self.budget - self.left,
            self.ranks.size,
            self.cores,
        )

    @property
    def cores(self) -> int:
        """Processors that this rank has."""
        return max(len(os.sched_getaffinity(0)) // self.ranks.here, 1)

    def _refuse_existing(self, *, resume: bool = False) -> None:
        for one in self.named:
            one.place.refuse_existing(resume=resume)

    def _publish(self, journal: Journal | None) -> None:
        """Give the results their names; who was killed here goes on here."""
        inodes = journal.cut.get("inodes", ()) if journal is not None else ()
        for one, inode in zip(self.named, inodes, strict=False):
            if one.place.is_published(inode):
                one.place.discard()
        for output in self.outputs:
            output.publish()
        if journal is not None:
            self._remove_temporaries(journal)
            journal.remove()

    def _remove_temporaries(self, journal: Journal) -> None:
        for path in of_ranks(journal.path):
            os.unlink(path)
        for path in temporaries(journal.path):
            durable.unlink_in_background(path)

    def _compare(self, journal: Journal, job: Mapping[str, Any], *, going_on: bool) -> None:
        if going_on and (different := journal.differs(job)):
            raise UsageError(
                f"{journal.path!r} belongs to another job: different {', '.join(different)}. Repeat the "
                "call that was interrupted, or start again without resume",
                code="other-job",
                path=journal.path,
            )
        if not going_on and journal.done:
            self._say_what_is_given_up(journal, job)

    def _handles(self, arrays: Sequence[Any], settled: Settled) -> list[Any]:
        """Each array with its part of the budget."""
        first = len(self.operation.inputs)
        return [
            self._handle(array, memory, write=n >= first)
            for n, (array, memory) in enumerate(zip(arrays, settled.memory, strict=False))
        ]

    def _handle(self, array: Any, memory: int, *, write: bool) -> Any:
        if isinstance(array, InMemory):
            return array
        # Another rank is somebody else who writes; and ranks share the processors of a node.
        shared = {} if self.ranks.size == 1 else {"exclusive": False, "threads": self.cores}
        return opened(array, memory, write=write, **shared)

    def _views(self, arrays: Sequence[Any], settled: Settled) -> list[Any]:
        """Arrays with other axes: handles of their own."""
        first, views = len(self.operation.inputs), settled.program.views
        return [
            seen(arrays[view.array], view.lengths, memory, write=view.array >= first)
            for view, memory in zip(views, settled.memory[len(arrays) :], strict=False)
        ]

    def _scratch(self) -> str:
        """Where temporary arrays without a name are."""
        if self.named:
            return scratch_folder([self.named[0].place.final])
        return scratch_folder([a.path for a in self.operation.inputs if isinstance(a, DiskArray)])

    def _temporaries(self, begun: _Begun) -> None:
        """Arrays between phases: beside the result if the job can be resumed."""
        assert begun.settled is not None
        results = begun.settled.program.temporaries
        if not self.named:
            begun.temporaries += [create_temporary(one, self._scratch()) for one in results]
            return
        ours = Hints.of(Hints(exclusive=True))
        for n, result in enumerate(results):
            path = temporary_path(self.named[0].place.journal, n)
            if begun.going_on:
                array: DiskArray = open(path, "r+", format="npy", hints=ours)
                begun.temporaries.append(array)
                if (array.shape, array.dtype) != (result.shape, result.dtype):
                    raise UsageError(
                        f"{path!r} is not what the interrupted job left; start again without resume",
                        code="other-job",
                        path=path,
                    )
            else:
                words = {k: v for k, v in result.kept.items() if k == "order"}
                durable.remove_begun(path)
                begun.temporaries.append(
                    create(
                        path,
                        result.shape,
                        result.dtype,
                        format="npy",
                        overwrite=True,
                        hints=ours,
                        **words,
                    )
                )

    def _is_publishing(self, journal: Journal) -> bool:
        return journal.steps > 0 and journal.steps - 1 in journal.done

    def _nothing_left(self) -> ComputeReport:
        name = self.operation.name
        return ComputeReport(name, "all was done", 0, 0, 0, 0, "nothing", 0, 0, 0, 0.0, Measured())

    def _failed(self, error: BaseException, begun: _Begun) -> None:
        """Say what stays, or remove what was begun. The first rank does so for all."""
        begun.close_arrays()
        for one, output in zip(begun.made, self.outputs, strict=False):
            if isinstance(output, Named):
                one.close()
        journal = begun.journal if self.ranks.first else None
        if journal is not None and begun.under_way:
            gather(journal)
        # Whoever goes on has made nothing before it is known that it is the same job.
        if journal is not None and journal.done and (begun.under_way or begun.made):
            again = 0
            if begun.settled:
                again = repeated(begun.settled.program, journal.done, begun.schedules)
            error.add_note(
                f"{len(journal.done)} of {counted(journal.steps - 1, 'step')} of "
                f"{self.named[0].place.final!r} are "
                "done and stay; the same call with resume=True goes on with the others"
                + (f", and repeats {again} for what they leave in memory" if again else "")
            )
        if not self.ranks.first:
            if begun.under_way and begun.journal is not None and begun.journal.done:
                # The first one may be dead.
                error.add_note(
                    f"what is recorded of {self.named[0].place.final!r} stays; the same call with "
                    "resume=True goes on with the other steps"
                )
            for output in self.outputs:
                output.release()
        elif journal is None and not self.named:
            for output in self.outputs:
                output.discard()
        elif journal is not None and not begun.going_on and not journal.done:
            # Nothing that would be worth going on from.
            journal.remove()
            for output in self.outputs:
                output.discard()
            self._release_stand_ins()
            self._remove_temporaries(journal)

    def _say_what_is_given_up(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Before it is removed: who makes an error of the warning loses nothing."""
        different = journal.differs(job)
        whose, advice = (
            "an interrupted job",
            "; resume=True would have gone on with the others",
        )
        if different:
            whose, advice = f"another job (different {', '.join(different)}), interrupted,", ""
        warnings.warn(
            f"{self.named[0].place.final!r}: {whose} had done {len(journal.done)} of "
            f"{counted(journal.steps - 1, 'step')}, which are given up: this call starts at the "
            f"beginning{advice}",
            stacklevel=callers_line(),
        )


@dataclass(slots=True)
class _Begun:
    """What a rank holds of a job that has begun."""

    journal: Journal | None = None
    going_on: bool = False
    under_way: bool = False
    made: list[Any] = field(default_factory=list)
    temporaries: list[DiskArray] = field(default_factory=list)
    settled: Settled | None = None
    arrays: list[Any] = field(default_factory=list)
    done: Steps = field(default_factory=Steps)
    schedules: dict[int, Schedule] = field(default_factory=dict)

    def close_arrays(self) -> None:
        """All of them; temporary ones without a name are gone then."""
        for array in (*self.arrays, *self.temporaries):
            array.close()
        self.arrays, self.temporaries = [], []

    def close(self) -> None:
        """Release the journal, too."""
        self.close_arrays()
        if self.journal is not None:
            self.journal.close()


def _expect_flush(arrays: Sequence[Any]) -> None:
    """What is written will be flushed, so that steps can be recorded."""
    for array in arrays:
        if isinstance(array, DiskArray) and array.writable:
            array.handle.core.expect_flush()


def _going_on(touch: Callable[[], None], progress: Progress, done: int, total: int) -> None:
    touch()
    progress(done, total)


def _cut(journal: Journal) -> Cut:
    """What the program of the interrupted run followed from."""
    try:
        fields = journal.cut["cut"]
        cut = Cut(**fields)
    except (TypeError, KeyError):
        raise journal.bad() from None
    if not all(type(n) is int and 0 <= n < 2**62 for n in fields.values()) or not cut.rate:
        raise journal.bad()
    return cut


def _digest(program: Program) -> str:
    """Tells programs apart that were cut differently."""
    words: list[Any] = [program.method, program.temporaries]
    for phase in program.phases:
        words += [phase.name, phase.steps, phase.held]
        if isinstance(phase, Schedule):
            words += [(s.loads, s.stores) for s in map(phase.step, sampled(phase))]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def _inode(output: Named) -> int:
    """Of what is to get the name; 0 if it is made later."""
    try:
        return output.place.begun()
    except FileNotFoundError:
        return 0


def _absolute(path: str) -> str:
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (f"::{inner}" if inner is not None else "")


def _said(value: Any) -> str:
    """An argument, as text that tells it from others."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
        return f"{value.dtype.str} array of {value.shape}, {digest}"
    return repr(value)
