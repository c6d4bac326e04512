"""
Turns of computations that several threads start concurrently.

Problem. A computation is planned for a budget. If another thread has begun one with the same
budget, both would fail partway for lack of memory.
Idea. A computation begins when its budget fits in addition to those that run, first come, first
served. With `memory=` several fit concurrently; without, they run one after another, each on all
cores.

Invariants. A thread never waits for its own computation: one that a function of the user or a
signal handler begins starts immediately, in the memory that is left. A thread stops waiting when
none of the other computations has stored a step for `PATIENCE` seconds: it then starts, and may
fail for lack of memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["take_turn"]

# Two threads may wait for each other, which cannot be detected here. As for loops over blocks.
PATIENCE = 60.0


class _Turn:
    """A computation that runs or waits."""

    def __init__(self, budget: int) -> None:
        self.budget, self.thread = budget, threading.get_ident()
        self.touch()

    def touch(self) -> None:
        """Note that the computation makes progress."""
        self.last = time.monotonic()


class _Turns:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.under_way: list[_Turn] = []
        self.waiting: list[_Turn] = []

    def can_begin(self, one: _Turn, limit: int) -> bool:
        """Return whether a computation may begin."""
        if not self.under_way or any(other.thread == one.thread for other in self.under_way):
            return True
        taken = sum(other.budget for other in self.under_way)
        return self.waiting[0] is one and taken + one.budget <= limit

    def find_wait_limit(self) -> float:
        """Return the number of seconds to continue waiting."""
        return max(one.last for one in self.under_way) + PATIENCE - time.monotonic()

    def enter(self, one: _Turn, limit: int) -> None:
        with self.changed:
            self.waiting.append(one)
            try:
                while not self.can_begin(one, limit) and (left := self.find_wait_limit()) > 0:
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


def _reset() -> None:
    """Forget all turns after a fork: the other threads do not exist in the child."""
    global _turns
    _turns = _Turns()


os.register_at_fork(after_in_child=_reset)


@contextlib.contextmanager
def take_turn(budget: int, limit: int) -> Iterator[Callable[[], None]]:
    """
    Wait until a computation fits in memory, and reserve it; yield a function that notes progress.

    `limit` is the number of bytes that all computations of the process may use together.
    """
    turns, one = _turns, _Turn(budget)
    turns.enter(one, limit)
    one.touch()
    try:
        yield one.touch
    finally:
        if turns is _turns:
            turns.leave(one)
