"""
Collective calls of one group that were started and have not ended.

Problem. A step of a group has no name of its own: ranks are in step because each makes the same calls
in the same order. Two calls at once would take each other's answers.

Idea. One queue for each group, and one thread that makes its calls in the order in which they were
started, which is the same on all ranks. So each call has the steps, slots and messages to itself, and
ranks may wait for requests in any order: whatever they wait for goes on by itself. Any other use of the
group on this rank waits until the queue is empty (`InFlight.finish`), so it has its place in the same
order on all ranks, too.

Invariants. At any time one thread at most uses the group. The thread lives as long as there is something
to do; it is a daemon, and the end of the process waits for the calls themselves (``requests.py``).
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

# Seconds between two looks whether the user has given up.
_TICK = 0.2


class _Group(Protocol):
    """The part of a transport that is needed here."""

    @property
    def rank(self) -> int:
        """Number of this rank."""
        ...

    def give_up(self, text: str) -> None:
        """Tell all ranks that this one cannot go on."""
        ...


class InFlight:
    """
    The started calls of one rank in one group.

    Parameters
    ----------
    threads
        Whether another thread than the caller's may use the group. If not, a call is made where it is
        started.

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
        #: Of the call that was started last: when it has ended, all have. None: there is nothing to
        #: wait for.
        self.last: Future[Any] | None = None

    def start(self, call: Callable[[], None], ended: Future[Any]) -> None:
        """
        Make a call when those that were started before have ended.

        Parameters
        ----------
        call
            Makes it; raises nothing, and settles `ended`.
        """
        self._own()
        with self._lock:
            self._waiting.append(call)
            self.last = ended
            if self._serving:
                return
            self._serving = True
        if self._threads:
            try:
                threading.Thread(
                    target=self._serve, name="outcore-collectives", daemon=True
                ).start()
                return
            except RuntimeError:  # the system has no more of them, or Python is about to end
                pass
        self._serve()

    def finish(self, group: _Group) -> None:
        """
        Wait until all have ended, well or not; their requests tell how. Nothing to do for them itself.

        Raises
        ------
        CollectiveError
            Not here, but in all requests and at the next step, if this rank was interrupted twice while
            it waited: it gives up the group then.
        """
        last = self.last
        if last is None or self._server == threading.get_ident():
            return
        self._own()
        gave_up = False
        while (last := self.last) is not None and not last.done():
            wait([last], _TICK)
            if not gave_up and DeferredInterrupt.noted() > 1:
                gave_up = True
                group.give_up(
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
        # No thread survives a fork, and what the parent started is the parent's.
        if self._pid != os.getpid():
            self._forget()
