"""
A group of ranks, on one node or on several.

Ranks of one node synchronise at a barrier in shared memory (``crates/io/src/node_barrier.rs``), which
takes tens of microseconds with any MPI library. Between nodes, the first rank of each node (its leader)
communicates for all: node barrier, messages between the leaders, node barrier. Only `start_exchange`
sends separate messages.

Each step carries the name of its call and its length from all ranks to all ranks. If ranks made
different calls, all of them raise, and are in step again afterwards. A rank that failed between two
steps therefore need not know which step the others make: it calls `GroupTransport.abort_call` instead,
and all ranks raise its error.

A group that was stopped (`watchdog.py`) stays stopped, because its ranks may be inside different calls.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError, StaysInProcess, UsageError
from outcore.ranks.transport import place as at
from outcore.ranks.transport.checks import (
    check_counts,
    check_flat,
    check_length,
    check_record,
    format_ranks,
)
from outcore.ranks.transport.failing import make_error, mark
from outcore.ranks.transport.in_flight import InFlight
from outcore.ranks.transport.nodememory import NodeMemory
from outcore.ranks.transport.place import CELL, FAR_CELL, HEAD, RankPlace, make_place
from outcore.ranks.transport.protocol import Bytes
from outcore.ranks.transport.serial import SerialTransport
from outcore.ranks.transport.service import OneSidedService
from outcore.ranks.transport.sharing import GroupShared, share
from outcore.ranks.transport.timeouts import DeferredInterrupt, Patience
from outcore.ranks.transport.watchdog import Watchdog
from outcore.ranks.transport.wire import Pending, Wire, gather_blocks, wait_for_all

__all__ = ["GroupTransport", "make_group"]

_HEAD = struct.Struct("<IIQ")
# Maximum length of a message: counts of MPI have 31 bits.
PIECE = 1 << 30
# Maximum length of the reason of an aborted call.
_REASON = 4096


class GroupTransport(StaysInProcess):
    """
    Transport of a group of ranks. One thread at a time makes its calls.

    `place` is the place of this rank, and `node_barrier` its handle on the node barrier of its node.
    `patience` has the seconds until waits warn and abort.
    """

    _elsewhere = "pass the communicator there"

    def __init__(
        self,
        place: RankPlace,
        node_barrier: _core.NodeBarrier,
        wire: Wire,
        memory: NodeMemory,
        patience: Patience,
    ) -> None:
        self.rank = place.rank
        self.size = place.size
        self.nodes = place.nodes
        self.place = place
        self.wire = wire
        self.memory = memory
        self.watchdog = Watchdog(place, node_barrier, wire, patience)
        self.abort_count = 0
        self.synchronised: int | None = None
        self.in_flight = InFlight(threads=wire.threads)
        #: Service for requests to other nodes, made on first use.
        self.service: OneSidedService | None = None
        self._node_barrier = node_barrier
        self._far = place.far
        self._watch = self.watchdog.check_barrier
        self._closed = False
        self._shares: weakref.WeakSet[GroupShared] = weakref.WeakSet()
        wire.groups.append(self)

    # ------------------------------------------------------------------------------ the calls

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gather records of all ranks on all ranks."""
        self._check()
        # Most records need no conversion.
        if type(record) is not np.ndarray or record.dtype != np.int64 or record.ndim != 1:
            record = check_record(record)
        said = record.tobytes()
        rows: bytearray | None
        if self._far or len(said) > CELL:
            rows = self._gather(at.ALLGATHER, said)
        else:
            rows = self._node_barrier.gather(at.ALLGATHER, len(said), said, self._watch)
            if rows is None:
                self._raise_mismatch()
        if not rows:
            return np.empty((self.size, 0), np.int64)
        return np.frombuffer(rows, np.int64).reshape(self.size, record.size)

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Gather bytes of all ranks, of any lengths, on all ranks."""
        self._check()
        with DeferredInterrupt():
            said = np.int64(len(blob)).tobytes()
            lengths = np.frombuffer(self._step(at.ALLGATHER_BYTES, 8, said), np.int64).tolist()
            longest = max(lengths)
            if not longest:
                return [b""] * self.size
            rows = self._gather(at.ALLGATHER_BYTES, bytes(blob).ljust(longest, b"\0"))
            return [bytes(rows[k * longest : k * longest + n]) for k, n in enumerate(lengths)]

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self._check()
        if self._far:
            self._gather(at.BARRIER, b"")
        elif self._node_barrier.gather(at.BARRIER, 0, b"", self._watch) is None:
            self._raise_mismatch()

    def agree(self, code: int) -> int:
        """Return the largest code of any rank."""
        self._check()
        if self._far:
            rows = self._gather(at.AGREE, np.int64(code).tobytes())
            return int(np.frombuffer(rows, np.int64).max())
        largest = self._node_barrier.agree(at.AGREE, code, self._watch)
        if largest is None:
            self._raise_mismatch()
        return largest

    def start_exchange(
        self,
        send: Any,
        send_counts: Sequence[int] | NDArray[np.integer[Any]],
        recv: Any,
        recv_counts: Sequence[int] | NDArray[np.integer[Any]],
    ) -> GroupExchange:
        """Start to send bytes to all ranks and to receive bytes from all."""
        self._check()
        self.watchdog.check_far()
        source, target = check_flat(send, "send"), check_flat(recv, "recv", writable=True)
        to = check_counts(send_counts, self.size, source.size)
        of = check_counts(recv_counts, self.size, target.size)
        check_length(self.rank, self.rank, int(to[self.rank]), int(of[self.rank]))
        with DeferredInterrupt():
            try:
                return GroupExchange(self, source, to, target, of)
            except BaseException as error:
                self.watchdog.stop_on_error(error)
                raise

    def shared(self, nbytes: int) -> GroupShared:
        """Allocate memory that the ranks of this node share."""
        self._check()
        with DeferredInterrupt():
            made = share(self, int(nbytes))
        self._shares.add(made)
        return made

    def split(self, color: int, key: int) -> GroupTransport | SerialTransport | None:
        """Split the group."""
        self._check()
        with DeferredInterrupt():
            mine = np.array([color, key, self.wire.context], np.int64)
            table = np.frombuffer(self._gather(at.SPLIT, mine.tobytes()), np.int64)
            table = table.reshape(self.size, 3)
            self.wire.context = context = int(table[:, 2].max()) + 1
            seats = None
            if color >= 0:
                members = np.flatnonzero(table[:, 0] == color)
                ranks = [int(r) for r in members[np.lexsort((members, table[members, 1]))]]
                seats = make_place(
                    ranks.index(self.rank),
                    [self.place.processes[rank] for rank in ranks],
                    [self.nodes[rank] for rank in ranks],
                    context,
                )
            return make_group(self, seats, self.wire, self.memory, self.watchdog.patience)

    def abort_call(self, said: bytes) -> list[bytes]:
        """Make all ranks raise at their current step; return the reasons of the ranks that failed."""
        self._check()
        with DeferredInterrupt():
            # Ranks of this node that are allocating shared memory reach a step of all ranks first.
            while self._synchronise(at.OFF, 0, b"") is None:
                pass
            self.abort_count += 1
            return self._gather_reasons(said)

    def poll_while_waiting(self, rank: int, elapsed: float) -> bool:
        """Return whether a rank of this node, for whose lock this rank waits, has died."""
        return self.watchdog.poll_while_waiting(rank, elapsed)

    def abort_group(self, text: str) -> None:
        """Stop the group on all ranks, because this rank cannot continue."""
        error = CollectiveError(text, code="rank-failed", ranks=(self.rank,))
        self.watchdog.stop(error, waiting=False)

    def close(self) -> None:
        """Leave the group permanently, and release the memory shared in it."""
        if not self._closed:
            self.in_flight.finish(self)
            self._closed = True
            if self.service is not None:
                self.service.close()
            for made in list(self._shares):
                made.close()
            self._node_barrier.leave()
            self.wire.groups.remove(self)
            if not self.wire.groups:
                self.wire.close()

    @property
    def closed(self) -> bool:
        """True if this rank has left the group."""
        return self._closed

    # For the end of the program

    @property
    def stopped(self) -> bool:
        """True if a rank has stopped the group, or has died."""
        return self._node_barrier.stopped() is not None

    def list_waiting_ranks(self) -> tuple[int, ...]:
        """Return the ranks of this node that wait in a step that this one has not made."""
        here, seen = self.place.here, self._node_barrier.seen()
        mine = seen[here.index(self.rank)][0]
        return tuple(here[k] for k, one in enumerate(seen) if one[0] > mine)

    @property
    def far_tag(self) -> int | None:
        """Tag with which leaders of other nodes notify this one of a step; None if they do not."""
        return self.place.get_tag(at.TAG_GATHER) if self._far and self.place.leads else None

    # --------------------------------------------------------------------------------- steps

    def gather_here(self, call: int, said: bytes) -> bytearray:
        """Return the concatenated data of the ranks of this node, of equal length."""
        heard = self._node_barrier.gather(call, len(said), said, self._watch)
        if heard is None:
            self._raise_mismatch()
        return heard

    def _gather(self, call: int, said: bytes) -> bytearray:
        """Gather rows of equal length, in as many steps as needed."""
        with DeferredInterrupt():
            most = FAR_CELL if self._far else CELL
            if len(said) <= most:
                return self._step(call, len(said), said)
            parts = []
            for start in range(0, len(said), most):
                part = said[start : start + most]
                rows = np.frombuffer(self._step(call, len(said), part), np.uint8)
                parts.append(rows.reshape(self.size, len(part)))
            return bytearray(np.concatenate(parts, axis=1))

    def _step(self, call: int, total: int, said: bytes) -> bytearray:
        shared = self._synchronise(call, total, said)
        if shared is None:
            self._raise_mismatch()
        heads, rows = shared
        if heads != heads[:HEAD] * self.size:
            self._raise_mismatch(heads)
        return rows

    def _synchronise(self, call: int, total: int, said: bytes) -> tuple[bytes, bytearray] | None:
        """
        Return heads and rows of all ranks; no rows if they made different calls.

        None if there are several nodes, and a rank of this node made a step of this node only: then no
        rank of the node has made the step yet.
        """
        heard = self._node_barrier.gather(call, total, said, self._watch)
        if not self._far:
            return self._node_barrier.heads(), heard or bytearray()
        if heard is None and at.SHARED in _decode_calls(self._node_barrier.heads()):
            return None
        # The leaders continue even if the ranks of their node disagree, because the others must be
        # notified.
        self.watchdog.call = call
        result = None
        if self.place.leads:
            try:
                result = self._exchange_blocks(call, self._node_barrier.heads() + (heard or b""))
            except BaseException as error:
                # The ranks of this node wait for the data of the others.
                self.watchdog.stop_on_error(error)
                raise
        answer = self._node_barrier.share(at.SECOND, result, self._watch)
        return bytes(answer[: self.size * HEAD]), answer[self.size * HEAD :]

    def _gather_reasons(self, said: bytes) -> list[bytes]:
        """Return the reason of each rank that failed; empty for the others."""
        rows = self._gather(at.REASONS, said[:_REASON].ljust(_REASON, b"\0"))
        cuts = range(0, len(rows), _REASON)
        return [bytes(rows[cut : cut + _REASON]).rstrip(b"\0") for cut in cuts]

    def _exchange_blocks(self, call: int, block: bytes) -> bytes:
        """Exchange the blocks of the nodes, as a leader; return heads and rows of all ranks in order."""
        place = self.place
        room = (HEAD + FAR_CELL) * max(map(self.nodes.count, range(len(place.leaders))))
        processes = [place.processes[rank] for rank in place.leaders]
        me, tag = self.nodes[self.rank], place.get_tag(at.TAG_GATHER)
        with self.watchdog.watch_leader(call) as look:
            look.check_stopped()
            blocks = gather_blocks(self.wire, tag, processes, me, block, room, look)
        heads: list[bytes] = [b""] * self.size
        rows: list[bytes] = [b""] * self.size
        for node, text in enumerate(blocks):
            ranks = place.list_ranks([node])
            body = text[HEAD * len(ranks) :]
            length = len(body) // len(ranks)
            for k, rank in enumerate(ranks):
                heads[rank] = text[HEAD * k : HEAD * (k + 1)]
                rows[rank] = body[length * k : length * (k + 1)]
        return b"".join(heads + rows)

    def _raise_mismatch(self, heads: bytes | None = None) -> NoReturn:
        """Raise because ranks made different calls: list them, or the reason of an aborted call."""
        self.abort_count += 1
        # If only the ranks of this node know of it, the others must be notified.
        everywhere = heads is not None or not self._far
        ranks = self.place.here if heads is None else range(self.size)
        heads = self._node_barrier.heads() if heads is None else heads
        if everywhere and at.OFF in _decode_calls(heads):
            raise make_error(self._gather_reasons(b""))
        calls: dict[str, list[int]] = {}
        for k, rank in enumerate(ranks):
            call, _, total = _HEAD.unpack_from(heads, HEAD * k)
            name = at.CALLS[call] if call < len(at.CALLS) else "an unknown call"
            length = f" of {total} bytes" if call in (at.ALLGATHER, at.ALLGATHER_BYTES) else ""
            calls.setdefault(f"{name}{length}", []).append(rank)
        told = ", ".join(f"{format_ranks(who)} called {name}" for name, who in calls.items())
        most = max(calls.values(), key=len)
        odd = tuple(sorted(rank for who in calls.values() if who is not most for rank in who))
        error = CollectiveError(
            f"{told}; make the same calls in the same order on every rank",
            code="mismatched-call",
            ranks=odd,
        )
        raise mark(error) if everywhere else error

    def _check(self) -> None:
        if self._closed:
            raise UsageError("this transport is closed; make a new one", code="closed")
        # Each step has the same position among the started calls on all ranks.
        if self.in_flight.last is not None:
            self.in_flight.finish(self)


def _decode_calls(heads: bytes) -> set[int]:
    """Return the calls that ranks made, from their heads."""
    return {call for call, _, _ in _HEAD.iter_unpack(heads)}


class GroupExchange:
    """Messages in progress."""

    def __init__(
        self,
        group: GroupTransport,
        source: Bytes,
        to: NDArray[np.int64],
        target: Bytes,
        of: NDArray[np.int64],
    ) -> None:
        self._group = group
        self._watchdog = group.watchdog
        place, tag, me = group.place, group.place.get_tag(at.TAG_DATA), group.rank
        leaving, coming = np.cumsum(to) - to, np.cumsum(of) - of
        self._pending: list[Pending] = []
        self._broken = False
        # Each rank begins with the next rank, so that not all send to rank 0 at the same time.
        peers = [(me + k) % group.size for k in range(1, group.size)]
        self._receives = []
        for peer in peers:
            for piece in _cut_pieces(target, int(coming[peer]), int(of[peer])):
                request = group.wire.receive(place.processes[peer], tag, piece)
                self._receives.append((peer, request, piece.size))
                self._pending.append((peer, request))
        for peer in peers:
            for piece in _cut_pieces(source, int(leaving[peer]), int(to[peer])):
                self._pending.append((peer, group.wire.send(place.processes[peer], tag, piece)))
        mine = int(to[me])
        target[int(coming[me]) : int(coming[me]) + mine] = source[int(leaving[me]) :][:mine]

    def test(self) -> bool:
        """Return whether the exchange is complete."""
        self._pending = [each for each in self._pending if not each[1].done()]
        if not self._pending:
            self._finish()
        return not self._pending

    def wait(self) -> None:
        """Wait until everything has been sent and received."""
        if self._pending:
            with DeferredInterrupt():
                try:
                    wait_for_all(self._pending, self._watchdog.watch_exchange())
                    self._pending = []
                except BaseException as error:
                    self._broken, self._pending = True, []
                    self._watchdog.stop_on_error(error)
                    raise
        if self._broken:
            self._watchdog.check()
        self._finish()

    def __del__(self) -> None:
        # The exchange was never awaited: MPI continues to use the buffers.
        for _, request in self._pending:
            if not request.done():
                request.abandon()

    def _finish(self) -> None:
        receives, self._receives = self._receives, []
        for peer, request, expected in receives:
            check_length(peer, self._group.rank, request.count(), expected)


def _cut_pieces(buffer: Bytes, start: int, count: int) -> list[Bytes]:
    cuts = range(start, start + count, PIECE)
    return [buffer[cut : min(cut + PIECE, start + count)] for cut in cuts]


class Parent(Protocol):
    """Interface: communication between the ranks that make a group."""

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Gather bytes of all ranks."""

    def agree(self, code: int) -> int:
        """Return the largest code of any rank."""


def make_group(
    parent: Parent, place: RankPlace | None, wire: Wire, memory: NodeMemory, patience: Patience
) -> GroupTransport | SerialTransport | None:
    """
    Make a group inside another one; collective over that one.

    The first rank of each node makes the node barrier, sends its name, and removes the name when all
    have mapped it. Ranks that do not join (``place`` is None) must still call this. No rank returns
    before all have checked which processes they can see: a process that ended earlier would be taken for
    one that is not visible, and waited for forever.
    """
    failure: Exception | None = None
    node_barrier: _core.NodeBarrier | None = None
    made = ""
    joins = place is not None and place.size > 1
    nbytes = _core.NodeBarrier.nbytes(*place.node_barrier) if place is not None else 0
    try:
        if place is not None and joins and place.leads:
            made = memory.make(nbytes)
            node_barrier = _attach(place, memory.map(made, nbytes, 0, nbytes))
    except Exception as error:
        failure = error
    try:
        # Barriers are identified by the process that made them.
        mine = place.processes[place.rank] if place is not None else -1
        # A segment that could not be allocated is not a node barrier yet.
        told = parent.allgather_bytes(
            f"{mine} {made}".encode() if node_barrier is not None else b""
        )
        names = dict(text.decode().split(" ") for text in told if text)
        if place is not None and joins and not place.leads:
            given = names.get(str(place.processes[place.here[0]]))
            try:
                if given is not None:
                    node_barrier = _attach(place, memory.map(given, nbytes, 0, 0))
            except Exception as error:
                failure = error
        bad = parent.agree(1 if joins and node_barrier is None else 0)
    finally:
        if made:
            memory.unlink(made)
    _raise_if(bad, failure)
    group: GroupTransport | SerialTransport | None = None
    try:
        if node_barrier is not None and place is not None:
            group = GroupTransport(place, node_barrier, wire, memory, patience)
        elif place is not None:
            group = SerialTransport()
    except Exception as error:
        failure = error
    bad = parent.agree(0 if failure is None else 1)
    _raise_if(bad, failure)
    return group


def _raise_if(bad: int, failure: Exception | None) -> None:
    """Raise the failure of this rank, or an error for a failure of another rank."""
    if failure is not None:
        raise failure
    if bad:
        raise CollectiveError(
            "the group could not be made, because a rank had too little memory; see the error of "
            "that rank",
            code="rank-failed",
        )


def _attach(place: RankPlace, memory: Bytes) -> _core.NodeBarrier:
    ranks, cell, result = place.node_barrier
    mine = place.here.index(place.rank)
    return _core.NodeBarrier(memory, mine, ranks, cell, result, place.leads)
