"""
Simulated ranks without MPI: each is a thread of this process.

They run the same code as under MPI, including the barriers. Only the messages between ranks go through
mailboxes, and shared memory is memory of the process.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from outcore import _core
from outcore.errors import CollectiveError, OutcoreError
from outcore.ranks.transport import SerialTransport, Transport
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.place import RankPlace, make_place
from outcore.ranks.transport.protocol import Bytes
from outcore.ranks.transport.timeouts import Patience

__all__ = ["SimWorld"]

T = TypeVar("T")


class SimWorld:
    """
    Group of simulated ranks.

    Parameters
    ----------
    n
        Number of ranks.
    ranks_per_node
        Number of ranks that share memory. None: all.
    timeout, warn
        Seconds after which a waiting rank aborts, and after which it prints a warning.

    Examples
    --------
    >>> from outcore.testing.sim import SimWorld
    >>> SimWorld(3).run(lambda t: t.agree(t.rank))
    [2, 2, 2]
    """

    def __init__(
        self,
        n: int,
        ranks_per_node: int | None = None,
        *,
        timeout: float = 60.0,
        warn: float = 30.0,
    ) -> None:
        self.size = n
        self.ranks_per_node = ranks_per_node or max(n, 1)
        self.patience = Patience(warn, timeout)

    def run(self, body: Callable[[Transport], T]) -> list[T]:
        """
        Run ``body(transport)`` on every rank, and return the results in the order of ranks.

        If a rank raises, the others raise `CollectiveError`. When all have ended, the first error is
        raised here, with its rank as a note.
        """
        ranks = [Rank(wire, transport) for wire, transport in self._ranks()]
        threads = [
            threading.Thread(target=rank.run, args=(body,), name=f"rank-{k}", daemon=True)
            for k, rank in enumerate(ranks)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + (self.patience.timeout or 60.0) * 2 + 10
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        failed = [rank for rank in ranks if rank.error is not None]
        if failed:
            first = min(failed, key=lambda rank: rank.ended)
            error = first.error
            assert error is not None
            error.add_note(f"on rank {ranks.index(first)} of {self.size}")
            if isinstance(error, OutcoreError) and error.rank is None:
                error.rank = ranks.index(first)
            raise error
        stuck = tuple(k for k, thread in enumerate(threads) if thread.is_alive())
        if stuck:
            raise CollectiveError(
                f"ranks {stuck} of {self.size} have neither ended nor are waiting for others",
                code="timeout",
                ranks=stuck,
            )
        return [rank.result for rank in ranks]

    def _ranks(self) -> list[tuple[SimWire | None, Transport]]:
        if self.size == 1:
            return [(None, SerialTransport())]
        mail, memory = Mail(), SimMemory()
        nodes = [rank // self.ranks_per_node for rank in range(self.size)]
        places = [make_place(rank, range(self.size), nodes, 0) for rank in range(self.size)]
        barriers = _barriers(places, memory)
        made: list[tuple[SimWire | None, Transport]] = []
        for place, node_barrier in zip(places, barriers, strict=True):
            wire = SimWire(mail, place.rank)
            made.append((wire, GroupTransport(place, node_barrier, wire, memory, self.patience)))
        return made


def _barriers(places: list[RankPlace], memory: SimMemory) -> list[_core.NodeBarrier]:
    papers: dict[int, Bytes] = {}
    barriers = []
    for place in places:
        ranks, cell, result = place.node_barrier
        node = place.nodes[place.rank]
        if node not in papers:
            nbytes = _core.NodeBarrier.nbytes(ranks, cell, result)
            papers[node] = memory.map(memory.make(nbytes), nbytes, 0, 0)
        mine = place.here.index(place.rank)
        barriers.append(_core.NodeBarrier(papers[node], mine, ranks, cell, result, place.leads))
    return barriers


class Rank:
    """Thread of one rank, with its result."""

    def __init__(self, wire: SimWire | None, transport: Transport) -> None:
        self._wire = wire
        self._transport = transport
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = 0.0

    def run(self, body: Callable[[Transport], Any]) -> None:
        """Run the body; if it fails, abort all groups of this rank, so that no rank waits for it."""
        try:
            self.result = body(self._transport)
        except BaseException as error:
            self.ended = time.monotonic()
            self.error = error
            text = f"rank {self._transport.rank} failed: {type(error).__name__}: {error}"
            for group in list(self._wire.groups) if self._wire is not None else []:
                group.abort_group(text)
        finally:
            for group in list(self._wire.groups) if self._wire is not None else [self._transport]:
                group.close()


class SimMemory:
    """Segments that are memory of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names = itertools.count()
        self._segments: dict[str, Bytes] = {}

    def make(self, nbytes: int) -> str:
        """Make a segment of zeros and return its name."""
        with self._lock:
            name = f"sim-{next(self._names)}"
            self._segments[name] = np.frombuffer(_core.SharedMemory(nbytes).bytes(), np.uint8)
        return name

    def map(self, name: str, nbytes: int, offset: int, length: int) -> Bytes:
        """Return the bytes of a segment."""
        with self._lock:
            return self._segments[name]

    def unlink(self, name: str) -> None:
        """Remove the name of a segment."""
        with self._lock:
            self._segments.pop(name, None)


class Mail:
    """Messages sent but not received, and receives that wait for a message."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: dict[tuple[int, int, int], deque[Bytes]] = {}
        self.awaited: dict[tuple[int, int, int], deque[SimRequest]] = {}


class SimRequest:
    """Message in transfer; a sent message is copied immediately."""

    def __init__(self, room: Bytes | None) -> None:
        self._room = room
        self._count = 0
        self._done = room is None
        self._abandoned = False

    def deliver(self, data: Bytes) -> None:
        """Copy the message into the receive buffer."""
        assert self._room is not None
        self._count = data.size
        if not self._abandoned and data.size <= self._room.size:
            self._room[: data.size] = data
        self._done = True

    def done(self) -> bool:
        """Return whether the message has arrived."""
        return self._done

    def count(self) -> int:
        """Return the number of bytes that arrived."""
        return self._count

    def abandon(self) -> None:
        """Discard the message when it arrives."""
        self._abandoned = True


class SimWire:
    """Messages of one simulated rank."""

    def __init__(self, mail: Mail, process: int) -> None:
        self.context = 0
        self.groups: list[Any] = []
        self.threads = True
        self._mail = mail
        self._process = process

    def send(self, peer: int, tag: int, data: Bytes) -> SimRequest:
        """Send a copy of the data."""
        key = (self._process, peer, tag)
        with self._mail.lock:
            awaited = self._mail.awaited.get(key)
            if awaited:
                awaited.popleft().deliver(data)
            else:
                self._mail.sent.setdefault(key, deque()).append(data.copy())
        return SimRequest(None)

    def receive(self, peer: int, tag: int, room: Bytes) -> SimRequest:
        """Receive a message that has been sent, or wait for one."""
        key = (peer, self._process, tag)
        request = SimRequest(room)
        with self._mail.lock:
            sent = self._mail.sent.get(key)
            if sent:
                request.deliver(sent.popleft())
            else:
                self._mail.awaited.setdefault(key, deque()).append(request)
        return request

    def take(self, tag: int) -> bytes | None:
        """Return a message with this tag, or None."""
        with self._mail.lock:
            for (_, peer, other), sent in self._mail.sent.items():
                if peer == self._process and other == tag and sent:
                    return sent.popleft().tobytes()
        return None

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
