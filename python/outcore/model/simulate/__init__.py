"""
What collective accesses would take on a machine that is only a model: ``outcore simulate``.

The plans are those that `read_all` and `write_all` run; the machine is a few numbers
(`outcore.model.machines.machine`), the clock is virtual, no data moves (``crates/plan/src/simulate``).
"""

from outcore.model.simulate.irregular import Scattered, simulate_scattered
from outcore.model.simulate.methods import METHODS, Array, Case, Outcome, plan, simulate

__all__ = [
    "METHODS",
    "Array",
    "Case",
    "Outcome",
    "Scattered",
    "plan",
    "simulate",
    "simulate_scattered",
]
