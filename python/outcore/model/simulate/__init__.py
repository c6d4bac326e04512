"""
Simulate collective accesses on a modelled machine: ``outcore simulate``.

The plans are those of `read_all` and `write_all`; the machine is a few parameters
(`outcore.model.machines.machine`), the clock is virtual, and no data is moved
(``crates/plan/src/simulate``).
"""

from outcore.model.simulate.irregular import Scattered, simulate_scattered
from outcore.model.simulate.methods import METHODS, Case, Outcome, SimulatedArray, plan, simulate

__all__ = [
    "METHODS",
    "Case",
    "Outcome",
    "Scattered",
    "SimulatedArray",
    "plan",
    "simulate",
    "simulate_scattered",
]
