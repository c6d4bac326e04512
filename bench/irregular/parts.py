"""
Where the seconds of a collective by indices go: files, messages, and the rest.

A schedule's own doors to both are timed: what an owner reads or writes; and exchanges, with the
agreements between them, so that waiting for a slower rank counts as communication (figures 13 and 14 of
No and Choudhary). The rest is computation: elements that are put in order. What goes on at
once is in both, so of a pipelined collective the parts are more than all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("I/O", "communication", "computation", "all")


class _Timed:
    """An object, some calls of which are timed."""

    def __init__(self, of: Any, calls: dict[str, Callable[..., Any]]) -> None:
        self._of, self._calls = of, calls

    def __getattr__(self, name: str) -> Any:
        return self._calls.get(name) or getattr(self._of, name)


class Parts:
    """
    Times what a `CollectiveSchedule` does with files and messages.

    Parameters
    ----------
    schedule
        The schedule of this rank.
    """

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule
        self.files = self.messages = 0.0

    def seconds(self, call: Callable[[], Any]) -> list[float]:
        """Run a call of the schedule's; the seconds of `NAMES`."""
        self.files = self.messages = 0.0
        with self._watched():
            start = time.perf_counter()
            call()
            spent = time.perf_counter() - start
        return [self.files, self.messages, max(spent - self.files - self.messages, 0.0), spent]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        schedule = self._schedule
        tell, group = schedule._tell_owners, schedule._group

        def told() -> Any:
            owned = tell()
            if owned is None:
                return None
            moved = {
                name: self._message(getattr(owned.exchange, name)) for name in ("give", "bring")
            }

            def get_part(step: int) -> Any:
                part = owned.get_part(step)
                if part is None:
                    return None
                return _Timed(part, {n: self._file(getattr(part, n)) for n in ("read", "write")})

            return _Timed(owned, {"get_part": get_part, "exchange": _Timed(owned.exchange, moved)})

        schedule._tell_owners = told
        schedule._group = _Timed(group, {"agree": self._message(group.agree)})
        try:
            yield
        finally:
            del schedule._tell_owners
            schedule._group = group

    def _message(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*words)
            finally:
                self.messages += time.perf_counter() - start

        return timed

    def _file(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*words)
            finally:
                self.files += time.perf_counter() - start

        return timed
