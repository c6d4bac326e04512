"""
Where the time of a program goes: seconds per phase, from the live run.

Problem. Counts say what was moved, not what it took; whether ranks wait for the disk, for messages or
for each other, nobody can tell from outside. But a read of one element takes two microseconds, and a
clock that costs as much would tell of itself.
Idea. Each array has a dictionary of seconds, by phase and thread. Who works for it reads the clock
before and after, and adds the difference: no call of ours, no lock.

Invariants. A thread changes its own entries alone, so nothing is lost. What several threads take counts
in full: sums may be more than the time that passed.
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
    >>> told = seconds.told("read", "write")
    >>> told["read_seconds"], 2 < told["write_seconds"] < 3
    (0.0, True)
    """

    __slots__ = ()

    def __missing__(self, key: tuple[str, int]) -> float:
        return 0.0

    def told(self, *phases: str) -> dict[str, float]:
        """Of these phases, by name: ``"read_seconds"`` of ``"read"``."""
        found = dict.fromkeys(phases, 0.0)
        for (phase, _), seconds in list(self.items()):
            if phase in found:
                found[phase] += seconds
        return {f"{phase}_seconds": seconds for phase, seconds in found.items()}
