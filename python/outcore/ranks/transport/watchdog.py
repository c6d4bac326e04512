"""
Waits of one rank of a group: checks for failures, warnings, and the end of the wait on all ranks.

A rank that ends a wait stops the barrier of its node with an error. All ranks of the node raise it, now
and at every later call. The leader of the node notifies the other leaders, which stop their barriers. If
the leader has died, the rank that noticed does so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.transport.checks import format_ranks
from outcore.ranks.transport.place import CALLS, EXCHANGE, SECOND, TAG_STOP, RankPlace
from outcore.ranks.transport.timeouts import DeferredInterrupt, Patience, decode, encode, is_alive
from outcore.ranks.transport.wire import Pending, Wire

__all__ = ["Watchdog"]


@dataclass
class WarningState:
    """Warnings of one wait so far."""

    step: int = -1
    warned: bool = False
    noted: bool = False


class Watchdog:
    """Waits of one rank in one group."""

    def __init__(
        self, place: RankPlace, node_barrier: _core.NodeBarrier, wire: Wire, patience: Patience
    ) -> None:
        self.place = place
        self.node_barrier = node_barrier
        self.wire = wire
        self.patience = patience
        self.call = 0
        """Call whose step is in its second half."""
        self._said = WarningState()
        self._told = False
        # Processes of this node that are visible here; numbers of another namespace have no meaning
        # here.
        self._pids = [pid if pid and is_alive(pid) else 0 for _, _, pid, _ in node_barrier.seen()]
        node_barrier.set_tick(patience.tick)

    # --------------------------------------------------------------------------- at the node barrier

    def check_barrier(self, elapsed: float, interrupts: int) -> None:
        """Check for failures, for the node barrier: while this rank waits, and after it was stopped."""
        self.check_far()
        here, seen, steps = self.place.here, self.node_barrier.seen(), self.node_barrier.steps
        late = [k for k, rank in enumerate(seen) if rank[0] < steps]
        if not late:
            return
        self._raise_if_dead(late, waiting=True)
        missing = tuple(here[k] for k in late)
        call = seen[here.index(self.place.rank)][1]
        speaks = self.place.rank == min(set(here) - set(missing))
        nodes = self.node_barrier.noted() if call == SECOND and late == [0] else []
        if nodes:
            # The leader of this node waits for other nodes, and reports for this rank.
            missing, speaks = self.place.list_ranks(nodes), False
        if self._said.step != steps:
            self._said = WarningState(steps)
        call = self.call if call == SECOND else call
        self.check_wait(elapsed, interrupts, call, missing, self._said if speaks else None, True)

    # --------------------------------------------------------------------------- on the wire

    @contextlib.contextmanager
    def watch_leader(self, call: int) -> Iterator[WatchedWait]:
        """
        Yield the checks for waiting for other leaders; pending messages are listed by node.

        The ranks of this node see the list as long as the wait lasts, however it ends.
        """

        def missing(pending: list[Pending]) -> tuple[int, ...]:
            nodes = sorted({node for node, _ in pending})
            self.node_barrier.note(nodes)
            return self.place.list_ranks(nodes)

        try:
            yield WatchedWait(self, call, missing)
        finally:
            self.node_barrier.note([])

    def watch_exchange(self) -> WatchedWait:
        """Return the checks for waiting for messages; pending messages are listed by rank."""

        def missing(pending: list[Pending]) -> tuple[int, ...]:
            ranks = tuple(sorted({rank for rank, _ in pending}))
            gone = self._find_dead(
                [self.place.here.index(r) for r in ranks if r in self.place.here]
            )
            # Check again: messages that they sent before they left count.
            if any(rank in gone and not request.done() for rank, request in pending):
                self._raise_dead(gone, waiting=False)
            return ranks

        return WatchedWait(self, EXCHANGE, missing)

    # --------------------------------------------------------------------------- at a lock

    def poll_while_waiting(self, rank: int, elapsed: float) -> bool:
        """
        Return whether a rank whose lock this rank waits for has died; raise after the timeout.

        The state of ranks of other nodes is not known here. The group is not stopped, because no other
        rank waits.
        """
        self.check()
        here = self.place.here
        if rank in here and rank != self.place.rank and self._find_dead([here.index(rank)]):
            return True
        if self.patience.timeout is not None and elapsed >= self.patience.timeout:
            raise CollectiveError(
                f"rank {self.place.rank} waited {elapsed:.3g} s for a lock that rank {rank} holds; if "
                "it is only slow, raise OUTCORE_TIMEOUT (seconds) or unset it",
                code="timeout",
                ranks=(rank,),
            )
        return False

    # -------------------------------------------------------------------------------- the end

    def check(self) -> None:
        """Raise if the group was stopped."""
        stopped = self.node_barrier.stopped()
        if stopped is not None:
            self._notify_nodes(stopped)
            raise decode(stopped)

    def check_far(self) -> None:
        """Raise if the group was stopped, here or on another node."""
        self.check()
        if self.place.far and self.place.leads:
            text = self.wire.take(self.place.get_tag(TAG_STOP))
            if text is not None:
                self._told = True
                self.node_barrier.stop(text, False)
                self.check()

    def stop(self, error: CollectiveError, waiting: bool) -> bool:
        """
        Stop the group; return whether it is stopped.

        With ``waiting``, only if the step in which this rank waits at the node barrier is not complete.
        """
        text = encode(error)
        stopped = self.node_barrier.stop(text, waiting)
        if stopped:
            # A dead leader notifies no other node, so the rank that stops the group does.
            self._notify_nodes(
                self.node_barrier.stopped() or text, bool(self.place.far and self._find_dead([0]))
            )
        return stopped

    def stop_on_error(self, error: BaseException) -> None:
        """
        Stop the group, because messages that others wait for will not arrive.

        All ranks then raise the error, unless the group was stopped before.
        """
        if not isinstance(error, CollectiveError):
            error = CollectiveError(
                f"messages of rank {self.place.rank} failed: {type(error).__name__}: {error}; see the "
                "messages of the MPI library, and start the job again",
                code="rank-failed",
                ranks=(self.place.rank,),
            )
        self.stop(error, waiting=False)

    def _notify_nodes(self, text: bytes, leaderless: bool = False) -> None:
        """Notify the other nodes once, as a leader or in its place."""
        if self._told or not (self.place.far and (self.place.leads or leaderless)):
            return
        self._told = True
        data = np.frombuffer(text, np.uint8)
        for rank in self.place.leaders:
            if rank != self.place.rank:
                process = self.place.processes[rank]
                # If the wire is broken, a rank that cannot be notified waits until its own messages
                # fail.
                with contextlib.suppress(Exception):
                    self.wire.send(process, self.place.get_tag(TAG_STOP), data).abandon()

    def _raise_if(self, stopped: bool) -> None:
        if stopped:
            self.check()  # another rank may have been first: all raise the same error

    def _find_dead(self, late: list[int]) -> tuple[int, ...]:
        seen = self.node_barrier.seen()
        return tuple(
            self.place.here[k]
            for k in late
            if seen[k][3] or (self._pids[k] and not is_alive(self._pids[k]))
        )

    def _raise_if_dead(self, late: list[int], waiting: bool) -> None:
        gone = self._find_dead(late)
        if gone:
            self._raise_dead(gone, waiting)

    def _raise_dead(self, gone: tuple[int, ...], waiting: bool) -> None:
        error = CollectiveError(
            f"{format_ranks(gone)} of {self.place.size} ended, or left the group, while others wait; "
            "see the messages of that process, and start the job again",
            code="rank-died",
            ranks=gone,
        )
        self._raise_if(self.stop(error, waiting))

    def check_wait(
        self,
        elapsed: float,
        interrupts: int,
        call: int,
        missing: tuple[int, ...],
        said: WarningState | None,
        waiting: bool,
    ) -> None:
        """
        Warn about a wait of `elapsed` seconds for the `missing` ranks, or end it.

        `interrupts` is the number of interrupts by the user, `call` the number of the call in `CALLS`,
        `said` the warnings so far, or None. `waiting` states whether other ranks wait for this one.
        """
        rank, patience = self.place.rank, self.patience
        interrupts += DeferredInterrupt.count_interrupts()
        awaited = f"{format_ranks(missing)} of {self.place.size}"
        told = f"waited {elapsed:.3g} s in {CALLS[call]} for {awaited}"
        if interrupts > 1:
            error = CollectiveError(
                f"rank {rank} was interrupted twice; it had {told}",
                code="rank-failed",
                ranks=(rank,),
            )
            if self.stop(error, waiting):
                raise KeyboardInterrupt(error.message)
        elif patience.timeout is not None and elapsed >= patience.timeout:
            error = CollectiveError(
                f"rank {rank} {told}; check whether a rank failed or took another branch, and so never "
                "makes the call; if it is only slow, raise OUTCORE_TIMEOUT (seconds) or unset it",
                code="timeout",
                ranks=missing,
            )
            self._raise_if(self.stop(error, waiting))
        elif interrupts and not self._said.noted:
            self._said.noted = True
            _print(f"rank {rank}: Ctrl-C is deferred; {told}; press Ctrl-C again to stop the group")
        elif said is not None and elapsed >= patience.warn and not said.warned:
            said.warned = True
            _print(
                f"rank {rank} {told}, and continues to wait (set OUTCORE_TIMEOUT, in seconds, to limit "
                "the wait)"
            )


class WatchedWait:
    """One wait for messages."""

    def __init__(
        self, watchdog: Watchdog, call: int, missing: Callable[[list[Pending]], tuple[int, ...]]
    ) -> None:
        self._watchdog = watchdog
        self._call = call
        self._missing = missing
        self._said = WarningState()

    @property
    def tick(self) -> float:
        """Seconds between two calls of `check_wait`."""
        return self._watchdog.patience.tick

    def check_stopped(self) -> None:
        """Raise if the group was stopped."""
        self._watchdog.check_far()

    def check_wait(self, elapsed: float, pending: list[Pending]) -> None:
        """Warn, or end the wait."""
        missing = self._missing(pending)
        self._watchdog.check_wait(elapsed, 0, self._call, missing, self._said, False)


def _print(text: str) -> None:
    # In one call, because ranks that are threads write to the same stream.
    sys.stderr.write(f"outcore: {text}\n")
    sys.stderr.flush()
