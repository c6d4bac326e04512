"""
Schedules: computations over arrays on disk as values, and the executor that runs them.

`value` defines a schedule, `run` executes it, and `divide` distributes it over ranks. Algorithms are
functions that return a schedule; nothing here depends on a particular algorithm.
"""

from outcore.arrays.schedule.divide import divide_steps
from outcore.arrays.schedule.run import AsyncArray, Memory, ScheduleRun, Together, iterate_pending
from outcore.arrays.schedule.value import (
    Block,
    Buffer,
    InvalidScheduleError,
    Load,
    Reuse,
    Schedule,
    ScheduleStep,
    Section,
    StepKernel,
    Store,
    count_elements,
    get_shape,
)

__all__ = [
    "AsyncArray",
    "Block",
    "Buffer",
    "InvalidScheduleError",
    "Load",
    "Memory",
    "Reuse",
    "Schedule",
    "ScheduleRun",
    "ScheduleStep",
    "Section",
    "StepKernel",
    "Store",
    "Together",
    "count_elements",
    "divide_steps",
    "get_shape",
    "iterate_pending",
]
