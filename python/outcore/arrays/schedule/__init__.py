"""
Schedules: computations over arrays on disk as values, and the executor that runs them.

`value` defines a schedule, `check` proves that it can be run, `run` executes it, `divide` distributes
it over ranks. Algorithms are functions that return a schedule; nothing here depends on a particular
algorithm.
"""

from outcore.arrays.schedule.check import Broken, check
from outcore.arrays.schedule.divide import divided
from outcore.arrays.schedule.run import Memory, OnDisk, Run, Together, left
from outcore.arrays.schedule.value import (
    Block,
    Buffer,
    Kernel,
    Load,
    Reuse,
    Schedule,
    Section,
    Step,
    Store,
    elements,
    lengths,
)

__all__ = [
    "Block",
    "Broken",
    "Buffer",
    "Kernel",
    "Load",
    "Memory",
    "OnDisk",
    "Reuse",
    "Run",
    "Schedule",
    "Section",
    "Step",
    "Store",
    "Together",
    "check",
    "divided",
    "elements",
    "left",
    "lengths",
]
