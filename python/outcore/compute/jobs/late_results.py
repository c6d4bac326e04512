"""
Results whose shapes are known only while the job runs.

Problem. The number of elements of a selection follows from its first phase, and the program of all
phases is planned before.
Idea. An empty array of the largest shape stands for such a result in the plan (`create_stand_in`),
and is removed when the plan is made. Before the phase that stores into the result, all ranks
compute its shape, the first rank creates it, and the others open it (`LateResults.begin`).

Invariants. The journal lists stand-ins, so that they are removed whichever process is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import create, open
from outcore.base.hints import Hints
from outcore.compute.jobs.outputs import NamedOutput
from outcore.compute.jobs.state import JobState, open_handle
from outcore.compute.jobs.target import discard
from outcore.compute.jobs.task import Task

__all__ = ["LateResults"]


class LateResults:
    """The results of a job whose shapes are known late: their stand-ins, and their creation."""

    def __init__(self, task: Task, state: JobState) -> None:
        self._task, self._state = task, state

    def create_stand_in(self, number: int) -> Any:
        """Create the array that stands for a result in the plan."""
        task = self._task
        output, result = task.outputs[number], task.operation.results[number]
        if not isinstance(output, NamedOutput):
            return output.begin(task.budget, resume=False)
        path, options = task.find_stand_ins()[number]
        discard(path, options["format"])
        hints = Hints.of(Hints(exclusive=True))
        return create(path, result.shape, result.dtype, hints=hints, **options)

    def join_stand_in(self, number: int, path: str) -> Any:
        """Open, on another rank, the array that the first rank has created."""
        task = self._task
        output, result = task.outputs[number], task.operation.results[number]
        if not isinstance(output, NamedOutput):
            return output.join(task.budget, path)
        _, options = task.find_stand_ins()[number]
        if formats.get_format(options["format"]).unrecorded_options:
            return open(path, "r+", shape=result.shape, dtype=result.dtype, **options)
        return open(path, "r+", format=options["format"])

    def release_stand_ins(self) -> None:
        """Remove all stand-ins after the plan is made; other ranks only close those without a name."""
        task = self._task
        for number, result in enumerate(task.operation.results):
            output = task.outputs[number]
            if not result.at_most or isinstance(output, NamedOutput):
                continue
            if task.ranks.is_first:
                output.discard()
            else:
                output.release()
        if task.ranks.is_first:
            for path, options in task.find_stand_ins().values():
                discard(path, options["format"])

    def begin(self, first: int) -> list[int]:
        """
        Create the results whose shapes are now known, before step `first`; return their array
        numbers.

        Collective over the ranks.
        """
        ranks = self._task.ranks
        late = [n for n, result in enumerate(self._task.operation.results) if result.at_most]
        ranks.run_on_all(lambda: self._set_shapes(late))
        paths = ranks.broadcast_from_first(lambda: self._create(late, first))
        ranks.run_on_all(lambda: self._open(late, paths))
        return [self._task.first_result + n for n in late]

    def _set_shapes(self, late: Sequence[int]) -> None:
        """Compute the shapes from the results of the phases before."""
        compute_shapes = self._state.plan.program.shapes
        assert compute_shapes is not None
        shapes = compute_shapes(self._state.arrays)
        for n in late:
            self._task.outputs[n].set_shape(tuple(shapes[n]))

    def _create(self, late: Sequence[int], first: int) -> list[Any]:
        """Create the results on the first rank; return their paths for the others."""
        task, state = self._task, self._state
        # A job that was killed before it recorded a step of this phase may have left any contents.
        is_left = state.is_resumed and any(high >= first for _, high in state.done.ranges())
        for n in late:
            state.results[n] = task.outputs[n].begin(task.budget, resume=is_left)
        journal = state.journal
        if journal is not None and not is_left:
            assert journal.job is not None
            journal.begin(journal.job, task.record(state.plan), journal.steps, journal.done)
        return [state.results[n].path for n in late]

    def _open(self, late: Sequence[int], paths: Sequence[Any]) -> None:
        """Open the results on every rank, each with its part of the budget."""
        task, state = self._task, self._state
        for n, path in zip(late, paths, strict=True):
            number = task.first_result + n
            if not task.ranks.is_first:
                state.results[n] = task.outputs[n].join(task.budget, path)
            memory = state.plan.memory[number]
            array = open_handle(task, state.results[n], memory, write=True)
            state.arrays[number] = array
            if isinstance(task.outputs[n], NamedOutput):
                state.results[n].close()
            if state.journal is not None and isinstance(array, DiskArray):
                array.handle.core.expect_flush()
