"""
Schedules: computations over arrays on disk, as values, and the executor that runs them.

`value` is what a schedule says, `check` proves that it may be run, `run` runs it, `divide` shares it out
among ranks. Algorithms are functions that return a schedule; nothing here knows any of them.
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
