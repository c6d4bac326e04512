"""
The state of a job on one rank: its arrays, their parts of the budget, and its journal.

Problem. A job opens each array more than once: the user's handle may use any memory, an operation
of the job only its part of the budget; and an array may be seen with other axes.
Idea. `JobState` holds everything that a rank must close, and the progress of the job (`JobStage`).

Invariants. `JobState.close` releases everything that a rank holds of a job, whatever failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from typing import Any

from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import create, open
from outcore.arrays.schedule import Schedule
from outcore.base.hints import Hints
from outcore.compute.jobs.journal import Journal, StepRanges
from outcore.compute.jobs.left import make_temporary_path
from outcore.compute.jobs.memory import InMemory
from outcore.compute.jobs.operation import Result
from outcore.compute.jobs.shares import BudgetedProgram, open_with_budget
from outcore.compute.jobs.task import Task
from outcore.compute.jobs.temporaries import create_temporary
from outcore.compute.jobs.views import open_view
from outcore.errors import UsageError
from outcore.formats import durable
from outcore.formats.defaults import PLAIN
from outcore.formats.scratch import scratch_folder

__all__ = [
    "JobStage",
    "JobState",
    "expect_flushes",
    "find_scratch_folder",
    "open_handle",
    "open_handles",
    "open_views",
]


class JobStage(Enum):
    """Progress of a job on this rank."""

    #: Arrays are created or opened. No step has run in this process.
    PREPARING = auto()
    #: Steps of the program run, or have run.
    RUNNING = auto()


@dataclass(slots=True)
class JobState:
    """Everything that a rank holds of a job."""

    stage: JobStage = JobStage.PREPARING
    #: Whether the first rank resumes an interrupted job. Always False on other ranks.
    is_resumed: bool = False
    #: Journal in which this rank records steps; None if the job cannot be resumed.
    journal: Journal | None = None
    #: Arrays of the results, as the outputs have begun them.
    results: list[Any] = field(default_factory=list)
    #: Arrays between phases of the program.
    temporaries: list[DiskArray] = field(default_factory=list)
    #: The program, and the memory of each operation; None until it is planned.
    settled: BudgetedProgram | None = None
    #: All arrays of the program, each with its part of the budget: inputs, results, temporaries,
    #: views.
    arrays: list[Any] = field(default_factory=list)
    #: Steps that are durable since before.
    done: StepRanges = field(default_factory=StepRanges)
    #: Schedule of each phase that has run, by the number of its first step.
    schedules: dict[int, Schedule] = field(default_factory=dict)

    @property
    def plan(self) -> BudgetedProgram:
        """The program and the memory of each operation, after it has been planned."""
        assert self.settled is not None
        return self.settled

    @property
    def is_running(self) -> bool:
        """Whether steps run, or have run."""
        return self.stage is JobStage.RUNNING

    def share(self) -> dict[str, Any]:
        """Return what the other ranks need to make the same plan, as values that JSON can hold."""
        return {
            "cut": asdict(self.plan.cut),
            "memory": self.plan.memory,
            "peak": self.plan.peak,
            "done": list(self.done.ranges()),
            "made": [one.path for one in self.results],
            "temporaries": [one.path for one in self.temporaries],
        }

    def begin_temporaries(self, task: Task) -> None:
        """Create or open the arrays between phases, next to the result if the job can be resumed."""
        results = self.plan.program.temporaries
        if not task.named:
            folder = find_scratch_folder(task)
            self.temporaries += [create_temporary(one, folder) for one in results]
            return
        for n, result in enumerate(results):
            path = make_temporary_path(task.named[0].place.journal, n)
            if self.is_resumed:
                self._reopen_temporary(path, result)
            else:
                self._create_temporary(path, result)

    def _reopen_temporary(self, path: str, result: Result) -> None:
        array: DiskArray = open(path, "r+", format=PLAIN, hints=Hints.of(Hints(exclusive=True)))
        self.temporaries.append(array)
        if (array.shape, array.dtype) != (result.shape, result.dtype):
            raise UsageError(
                f"{path!r} is not the array that the interrupted job left; start again without "
                "resume=True",
                code="other-job",
                path=path,
            )

    def _create_temporary(self, path: str, result: Result) -> None:
        order = {k: v for k, v in result.kept.items() if k == "order"}
        durable.remove_abandoned(path)
        array: DiskArray = create(
            path,
            result.shape,
            result.dtype,
            format=PLAIN,
            overwrite=True,
            hints=Hints.of(Hints(exclusive=True)),
            **order,
        )
        self.temporaries.append(array)

    def close_arrays(self) -> None:
        """Close all arrays of the program; temporary arrays without a name are removed then."""
        for array in (*self.arrays, *self.temporaries):
            array.close()
        self.arrays, self.temporaries = [], []

    def close(self) -> None:
        """Close all arrays of the program, and release the journal."""
        self.close_arrays()
        if self.journal is not None:
            self.journal.close()


def open_handles(task: Task, arrays: Sequence[Any], settled: BudgetedProgram) -> list[Any]:
    """Open inputs, results and temporaries again, each with its part of the budget."""
    return [
        open_handle(task, array, memory, write=n >= task.first_result)
        for n, (array, memory) in enumerate(zip(arrays, settled.memory, strict=False))
    ]


def open_handle(task: Task, array: Any, memory: int, *, write: bool) -> Any:
    """Open an array again, with a part of the budget; return an array in memory unchanged."""
    if isinstance(array, InMemory):
        return array
    # Other ranks write to the same array, and share the processors of the node.
    shared = {} if task.ranks.size == 1 else {"exclusive": False, "threads": task.cores}
    return open_with_budget(array, memory, write=write, **shared)


def open_views(task: Task, arrays: Sequence[Any], settled: BudgetedProgram) -> list[Any]:
    """Open arrays with other axes, each with its part of the budget; `arrays` are all other arrays."""
    first, views = task.first_result, settled.program.views
    return [
        open_view(arrays[view.array], view.lengths, memory, write=view.array >= first)
        for view, memory in zip(views, settled.memory[len(arrays) :], strict=False)
    ]


def find_scratch_folder(task: Task) -> str:
    """Return the folder for temporary arrays without a name."""
    if task.named:
        return scratch_folder([task.named[0].place.final])
    return scratch_folder([a.path for a in task.operation.inputs if isinstance(a, DiskArray)])


def expect_flushes(arrays: Sequence[Any]) -> None:
    """Announce to arrays that the job will flush what it writes, so that steps can be recorded."""
    for array in arrays:
        if isinstance(array, DiskArray) and array.writable:
            array.handle.core.expect_flush()
