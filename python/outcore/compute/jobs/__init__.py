"""
Jobs: computations over arrays on disk, from the call to the result.

An algorithm (`outcore.compute`) specifies what it reads, what it makes and how it plans
(`Operation`). This package has what all algorithms share: `inputs` (paths and arrays), `outputs`
(where results are stored), `target` (a new array under another name) and `temporaries`, `shares`
(parts of the budget), `task` (what a job is, and what its journal records of it), `state` (what a
rank holds of a job), `job` (restart, publication) with `journal` (what is durable), `estimates` and
`late_results`, `carry` (phases), `checkpoints` and `views`, and `report` (what will be moved, and
what was).
"""

from outcore.compute.jobs.complete import Planned, complete, to_scalar
from outcore.compute.jobs.inputs import Source, open_inputs, reopen
from outcore.compute.jobs.leftovers import Unfinished, clean, resume, unfinished
from outcore.compute.jobs.memory import InMemory
from outcore.compute.jobs.operation import (
    SMALLEST,
    Bound,
    DeferredPhase,
    DiskSpeed,
    InsufficientBuffersError,
    Operation,
    Phase,
    Program,
    Result,
    Terms,
    View,
    find_largest,
)
from outcore.compute.jobs.report import ComputeReport, Measured
from outcore.ranks.ranks import collective

__all__ = [
    "SMALLEST",
    "Bound",
    "ComputeReport",
    "DeferredPhase",
    "DiskSpeed",
    "InMemory",
    "InsufficientBuffersError",
    "Measured",
    "Operation",
    "Phase",
    "Planned",
    "Program",
    "Result",
    "Source",
    "Terms",
    "Unfinished",
    "View",
    "clean",
    "collective",
    "complete",
    "find_largest",
    "open_inputs",
    "reopen",
    "resume",
    "to_scalar",
    "unfinished",
]
