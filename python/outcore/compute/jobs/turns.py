"""
Whose turn it is when several threads compute at once.

Problem. A computation is cut for a budget. If another thread has begun one with the same budget, memory
would be refused to both in their midst.
Idea. A computation begins when its budget fits beside those that are under way, first come, first
served. With `memory=` several fit side by side; without, they run one after another, each on all cores.

Invariants. A thread never waits for a computation of its own: what a function of the user's or a handler
of a signal begins goes on at once, in the memory that is left. Nobody waits any longer when none of the
others has stored a step for `PATIENCE` seconds: then it goes on, and may be refused memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["turn"]

# A thread may wait for one that waits for it; nobody can see that from here. As for loops over blocks.
PATIENCE = 60.0


class _Turn:
    """A computation that is under way, or waits."""

    def __init__(self, budget: int) -> None:
        self.budget, self.thread = budget, threading.get_ident()
        self.touch()

    def touch(self) -> None:
        """It goes on."""
        self.last = time.monotonic()


class _Turns:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.under_way: list[_Turn] = []
        self.waiting: list[_Turn] = []

    def fits(self, one: _Turn, limit: int) -> bool:
        """Whether it may begin."""
        if not self.under_way or any(other.thread == one.thread for other in self.under_way):
            return True
        taken = sum(other.budget for other in self.under_way)
        return self.waiting[0] is one and taken + one.budget <= limit

    def patience(self) -> float:
        """For how many seconds it is still to be waited."""
        return max(one.last for one in self.under_way) + PATIENCE - time.monotonic()

    def enter(self, one: _Turn, limit: int) -> None:
        with self.changed:
            self.waiting.append(one)
            try:
                while not self.fits(one, limit) and (left := self.patience()) > 0:
                    self.changed.wait(left)
                self.under_way.append(one)
            finally:
                self.waiting.remove(one)
                self.changed.notify_all()

    def leave(self, one: _Turn) -> None:
        with self.changed:
            self.under_way.remove(one)
            self.changed.notify_all()


_turns = _Turns()


def _fresh() -> None:
    """Of the other threads none is there after a fork."""
    global _turns
    _turns = _Turns()


os.register_at_fork(after_in_child=_fresh)


@contextlib.contextmanager
def turn(budget: int, limit: int) -> Iterator[Callable[[], None]]:
    """
    Wait until there is room for a computation, and hold it.

    Parameters
    ----------
    budget, limit
        Bytes that it may take, and that all of the process may.

    Yields
    ------
    callable
        To be called whenever it has gone on.
    """
    turns, one = _turns, _Turn(budget)
    turns.enter(one, limit)
    one.touch()
    try:
        yield one.touch
    finally:
        if turns is _turns:
            turns.leave(one)
