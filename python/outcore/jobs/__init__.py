"""
Jobs: computations over arrays on disk, from the call to the result.

An algorithm (`outcore.ooc`) specifies what it reads, what it makes and how it plans (`Operation`).
This package has what all algorithms share: `inputs` (paths and arrays), `outputs` (where results are
stored), `target` (a new array under another name) and `temporaries`, `shares` (parts of the budget),
`task` (what a job is, and what its journal keeps of it), `state` (what a rank holds of a job), `job`
(restart, publication) with `journal` (what is durable), `estimates` and `late_results`, `carry`
(phases), `ranks`, `checkpoints` and `views`, and `report` (what will be moved, and what was).
"""

from outcore.jobs.complete import Planned, complete, scalar
from outcore.jobs.inputs import Source, again, opened
from outcore.jobs.leftovers import Unfinished, clean, resume, unfinished
from outcore.jobs.memory import InMemory
from outcore.jobs.operation import (
    SMALLEST,
    Bound,
    Disk,
    Later,
    Operation,
    Phase,
    Program,
    Result,
    Terms,
    TooLittle,
    View,
)
from outcore.jobs.ranks import collective
from outcore.jobs.report import ComputeReport, Measured

__all__ = [
    "SMALLEST",
    "Bound",
    "ComputeReport",
    "Disk",
    "InMemory",
    "Later",
    "Measured",
    "Operation",
    "Phase",
    "Planned",
    "Program",
    "Result",
    "Source",
    "Terms",
    "TooLittle",
    "Unfinished",
    "View",
    "again",
    "clean",
    "collective",
    "complete",
    "opened",
    "resume",
    "scalar",
    "unfinished",
]
