"""
Started collective calls of one group that have not ended.

Problem. A step of a group has no identifier: ranks are in step because each makes the same calls in the
same order. Two concurrent calls would receive each other's answers.

Approach. Each group has one queue, and one thread that makes its calls in the order in which they were
started, which is the same on all ranks. Each call therefore has the steps, slots and messages to itself.
Ranks may wait for requests in any order, because all requests make progress independently. Any other use
of the group on this rank waits until the queue is empty (`InFlight.finish`), so its position in the
order is also the same on all ranks.

Invariants. At most one thread uses the group at any time. The thread exists as long as there is work. It
is a daemon thread; the end of the process waits for the calls themselves (``requests.py``).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Protocol

from outcore.ranks.transport.timeouts import DeferredInterrupt

__all__ = ["InFlight"]

# Seconds between two checks for an interrupt by the user.
_TICK = 0.2


class _Group(Protocol):
    """The part of a transport that is needed here."""

    @property
    def rank(self) -> int: ...

    def abort_group(self, text: str) -> None: ...


class InFlight:
    """
    Started calls of one rank in one group.

    Without `threads`, each call is made directly when it is started.

    Examples
    --------
    >>> from concurrent.futures import Future
    >>> calls, done = InFlight(), Future()
    >>> calls.start(lambda: done.set_result(7), done)
    >>> done.result(timeout=60)
    7
    """

    def __init__(self, *, threads: bool = True) -> None:
        self._threads = threads
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._serving = False
        self._server: int | None = None
        #: Event of the last started call: when it has ended, all have. None: there is no call to wait
        #: for.
        self.last: Future[Any] | None = None

    def start(self, call: Callable[[], None], ended: Future[Any]) -> None:
        """Run a call after all calls that were started before; it sets `ended`, and must not raise."""
        self._own()
        with self._lock:
            self._waiting.append(call)
            self.last = ended
            if self._serving:
                return
            self._serving = True
        if self._threads:
            # Not `Background`: the call that starts the thread does not wait for it.
            try:
                threading.Thread(
                    target=self._serve, name="outcore-collectives", daemon=True
                ).start()
                return
            except RuntimeError:  # the system cannot start more threads, or Python is about to end
                pass
        self._serve()

    def finish(self, group: _Group) -> None:
        """
        Wait until all calls have ended; their requests report errors. Returns if there are none.

        If this rank is interrupted twice during the wait, it stops the group: all requests and the next
        step raise `CollectiveError`, this method does not.
        """
        last = self.last
        if last is None or self._server == threading.get_ident():
            return
        self._own()
        gave_up = False
        while (last := self.last) is not None and not last.done():
            wait([last], _TICK)
            if not gave_up and DeferredInterrupt.count_interrupts() > 1:
                gave_up = True
                group.abort_group(
                    f"rank {group.rank} was interrupted twice while it waited for calls in flight"
                )
        self.last = None

    def _serve(self) -> None:
        self._server = threading.get_ident()
        while True:
            with self._lock:
                if not self._waiting:
                    self._server, self._serving = None, False
                    return
                call = self._waiting.popleft()
            call()

    def _own(self) -> None:
        # Threads do not survive a fork, and calls that the parent started belong to the parent.
        if self._pid != os.getpid():
            self._forget()
