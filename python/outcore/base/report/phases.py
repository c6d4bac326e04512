"""
Time spent in each phase of a program, measured in the live run.

Problem: counts show what was moved, not how long it took, and a user cannot see whether ranks wait for
the disk, for messages or for each other. But reading one element takes two microseconds, so an
expensive clock would dominate the measurement.
Approach: each array has a dictionary of seconds by phase and thread. Code that works for the array
reads the clock before and after and adds the difference, without a function call or a lock.

Invariants: a thread changes only its own entries, so no update is lost. The time of each thread counts
in full, so sums may exceed the elapsed time.
"""

from __future__ import annotations

__all__ = ["Seconds"]


class Seconds(dict[tuple[str, int], float]):
    """
    Seconds of each phase, by its name and the thread (`threading.get_ident`) that spent them.

    Examples
    --------
    >>> from threading import get_ident
    >>> from time import perf_counter
    >>> seconds, began = Seconds(), perf_counter()
    >>> seconds["write", get_ident()] += perf_counter() - began
    >>> seconds["write", 0] += 2.0
    >>> told = seconds.sum_by_phase("read", "write")
    >>> told["read_seconds"], 2 < told["write_seconds"] < 3
    (0.0, True)
    """

    __slots__ = ()

    def __missing__(self, key: tuple[str, int]) -> float:
        return 0.0

    def sum_by_phase(self, *phases: str) -> dict[str, float]:
        """Return totals of the given phases by name: ``"read_seconds"`` for ``"read"``."""
        found = dict.fromkeys(phases, 0.0)
        for (phase, _), seconds in list(self.items()):
            if phase in found:
                found[phase] += seconds
        return {f"{phase}_seconds": seconds for phase, seconds in found.items()}
