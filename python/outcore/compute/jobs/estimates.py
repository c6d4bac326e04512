"""
Plans of a job before it runs: whether it fits the budget, and what it will move.

Problem. The layouts of the results decide how a program is cut, and the results do not exist yet.
Idea. Empty arrays with the same layouts stand for them (`create_models`); they are removed when the
plan is made.

Invariants. The budget that an error asks for is enough for the whole job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.compute.jobs.outputs import NamedOutput, has_room_for, too_large_error
from outcore.compute.jobs.report import ComputeReport, estimate_report
from outcore.compute.jobs.shares import BudgetedProgram, Cut, find_least_budget, settle
from outcore.compute.jobs.state import expect_flushes, find_scratch_folder, open_handles, open_views
from outcore.compute.jobs.task import Task
from outcore.compute.jobs.temporaries import create_temporary
from outcore.errors import BudgetError, budget_error

__all__ = [
    "check_result_sizes",
    "create_models",
    "explain",
    "make_report",
    "settle_task",
    "shortage_error",
]


def settle_task(task: Task, results: Sequence[Any], cut: Cut | None) -> BudgetedProgram:
    """
    Plan the program, and share the budget between its buffers and operations.

    `results` are the arrays of the results, or arrays with the same layouts; `cut` is the one of an
    interrupted job.
    """
    return settle(
        task.operation,
        results,
        task.budget - task.reserved_bytes,
        cut,
        task.reserved_bytes,
        task.ranks.size,
        task.cores,
    )


@contextlib.contextmanager
def create_models(task: Task) -> Iterator[list[Any]]:
    """Create empty arrays with the layouts of the results, for the time of a `with` block."""
    with contextlib.ExitStack() as stack:
        models = []
        for output in task.outputs:
            options = output.model_options() if isinstance(output, NamedOutput) else {}
            models.append(output.create_model(options))
            if output.is_resumable and not isinstance(output, NamedOutput):
                continue  # it belongs to the user
            if isinstance(models[-1], DiskArray) and models[-1].handle.is_temporary:
                stack.callback(models[-1].close)
        yield models


def check_result_sizes(task: Task) -> None:
    """
    Raise `BudgetError` if results in memory leave too little of the budget for the work.

    The error has a budget that is enough for the whole job.
    """
    if has_room_for(task.outputs, task.budget):
        return
    largest = max(one.reserved_bytes for one in task.outputs)
    with create_models(task) as models:
        lowest = max(2 * largest - task.reserved_bytes, 1)
        needed = find_least_budget(
            task.operation, models, lowest, None, task.ranks.size, task.cores
        )
    raise too_large_error(largest, task.budget, needed + task.reserved_bytes)


def shortage_error(task: Task, refused: BudgetError) -> BudgetError:
    """Return the error for a result whose memory is in use by other arrays of the process."""
    others = _core.memory_state()[0]
    with create_models(task) as models:
        needed = find_least_budget(task.operation, models, 1, None, task.ranks.size, task.cores)
    needed = max(refused.needed or 0, needed + task.reserved_bytes + others)
    return budget_error(
        task.operation.name,
        needed - others,
        f"other arrays hold {others} bytes of the memory budget",
        needed,
        reason="with its results",
        instead="delete arrays in memory",
        code=refused.code,
    )


def make_report(task: Task, settled: BudgetedProgram, arrays: Sequence[Any]) -> ComputeReport:
    """Report what the program will move."""
    return estimate_report(
        task.operation.name,
        settled.program,
        arrays,
        task.first_result,
        settled.cut.disk,
        settled.peak + task.reserved_bytes,
    )


def explain(task: Task) -> ComputeReport | dict[str, Any]:
    """
    Plan the job, and report what it would move.

    With several ranks, the result is a dict with the fields of the report, which JSON can hold.
    """
    check_result_sizes(task)
    with create_models(task) as models:
        settled = settle_task(task, models, None)
        with contextlib.ExitStack() as stack:
            temporaries = []
            for result in settled.program.temporaries:
                temporaries.append(create_temporary(result, find_scratch_folder(task)))
                stack.callback(temporaries[-1].close)
            arrays = open_handles(task, [*task.operation.inputs, *models, *temporaries], settled)
            arrays += open_views(task, arrays, settled)
            for array in arrays:
                stack.callback(array.close)
            if task.named:
                expect_flushes(arrays)
            report = make_report(task, settled, arrays)
    return report if task.ranks.size == 1 else asdict(report)
