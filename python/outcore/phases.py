"""
Where the time of a program goes: seconds per phase, from the live run.

Problem. Counts say what was moved, not what it took; whether ranks wait for the disk, for messages or
for each other, nobody can tell from outside. Idea. Each array has a clock for each phase (`Seconds`);
who works for it adds what he took. Two readings of the clock for a call cost less than any access.

Invariants. What several threads take counts in full, so sums may be more than the time that passed.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from time import perf_counter
from types import TracebackType

__all__ = ["Seconds", "Spent"]


class Seconds:
    """
    Seconds of each phase.

    Examples
    --------
    >>> seconds = Seconds("read")
    >>> with seconds.spent("write"):
    ...     pass
    >>> seconds.add("write", 2.0)
    >>> told = seconds.told()
    >>> told["read_seconds"], told["write_seconds"] > 2
    (0.0, True)
    """

    __slots__ = ("_lock", "_spent")

    def __init__(self, *phases: str) -> None:
        self._spent = defaultdict(float, dict.fromkeys(phases, 0.0))
        self._lock = threading.Lock()

    def add(self, phase: str, seconds: float) -> None:
        """A phase has taken so long."""
        with self._lock:
            self._spent[phase] += seconds

    def spent(self, phase: str) -> Spent:
        """A context whose time counts for a phase."""
        return Spent(self, phase)

    def told(self) -> dict[str, float]:
        """All of them, by name: ``"read_seconds"`` of ``"read"``."""
        with self._lock:
            return {f"{phase}_seconds": seconds for phase, seconds in self._spent.items()}

    def __reduce__(self) -> tuple[type[Seconds], tuple[str, ...]]:
        # Another process has spent nothing yet.
        return Seconds, tuple(self._spent)


class Spent:
    """What `Seconds.spent` gives."""

    __slots__ = ("_began", "_phase", "_seconds")

    def __init__(self, seconds: Seconds, phase: str) -> None:
        self._seconds, self._phase = seconds, phase

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._seconds.add(self._phase, perf_counter() - self._began)
