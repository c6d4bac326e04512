"""
Traffic between ranks: the only module that packs, exchanges and unpacks messages.

Problem. Redistribution, ghosts in both directions, gathering and two-phase all send elements between
ranks within a memory budget. Each rank may fail independently, and then all must stop.

Approach. A value (`_core.Traffic`, ``crates/plan/src/distribution/traffic.rs``) determines all
messages, and is computed and measured before anything is sent. `TrafficRun` executes it round by round,
as an object that can be resumed: it packs a round, agrees with the others that all could, sends it, and
unpacks the received data when it has arrived. One exchange of packed buffers is a `PackedExchange`,
which two-phase (`packets`) also uses.

    agree | send 0, copy own elements, unpack 0 | pack 1, agree | send 1, unpack 1 | ... | agree

Invariants. Steps that can fail on a single rank run before the first element is sent, or their failure
is reported before the next round; then all ranks raise. Buffers are within the memory budget: larger
messages are sent in rounds. Combined elements are unpacked in the order of ranks, so the bits do not
depend on the order of arrival.

Reference: the second phase of the two-phase method (*PASSION: Parallel and Scalable Software for
Input-Output*, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution import view_sections
from outcore.errors import BudgetError, CollectiveError, DistributionError
from outcore.ranks.agreement import (
    Failures,
    StopGroupOnError,
    get_call_name,
    hash_text,
    make_brief_record,
    make_mismatch_error,
    raise_rank_failures,
)
from outcore.ranks.transport import DeferredInterrupt, Exchange, Transport

__all__ = ["COMBINE", "PackedExchange", "Traffic", "TrafficRun", "Transfer"]

Bytes = NDArray[np.uint8]
#: Operations that combine two elements; any other operation sets them.
COMBINE: dict[str, np.ufunc] = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}
# Larger buffers do not make exchanges faster, but leave less memory for everything else.
_LARGEST = 64 * 2**20
# Limit of a rank with memory for all messages; and the number that a failed rank sends, which is larger
# than any number of rounds.
_NO_LIMIT = _FAILED = 2**63 - 1
_OURS = {
    f"DistArray.{name}_all"
    for name in (
        *("redistribute", "update_ghosts", "accumulate_ghosts", "gather"),
        *("copy", "add", "map", "dot", "matmul", "transpose"),
    )
}
# Words of the first agreement.
_PRINT, _LIMIT = range(2)


class PackedExchange:
    """
    Messages of this rank in one exchange, packed into a buffer: all sent data, then all received data.

    `to` and `of` are bytes for and from each rank. `pack` fills the first part of the buffer, and
    `unpack` processes the second part, each in the order of ranks.
    """

    def __init__(
        self,
        group: Transport,
        buffer: Bytes,
        to: NDArray[np.int64],
        of: NDArray[np.int64],
        pack: Callable[[Bytes], None],
        unpack: Callable[[Bytes], None],
    ) -> None:
        self.to, self.of = to, of
        out, back = int(to.sum()), int(of.sum())
        self.send, self.receive = buffer[:out], buffer[out : out + back]
        self._group, self._pack, self._unpack = group, pack, unpack
        self._started: Exchange | None = None

    def pack(self) -> None:
        """Fill the buffer, without sending it."""
        self._pack(self.send)

    def start(self, failures: Failures, meanwhile: Callable[[], None] | None = None) -> None:
        """Start to send, and run another function. The buffer must not be used until `finish`."""
        self._started = self._group.start_exchange(self.send, self.to, self.receive, self.of)
        if meanwhile is not None:
            with failures.catch():
                meanwhile()

    def finish(self, failures: Failures) -> None:
        """Wait for all messages, and unpack the received data."""
        if self._started is not None:
            self._started.wait()
        with failures.catch():
            self._unpack(self.receive)


class Traffic(Protocol):
    """
    Interface: messages that one rank sends and receives in each round.

    Implemented by `_core.Traffic` and `outcore.ranks.dist.periodic.BoxTraffic`.
    """

    @property
    def operation(self) -> str:
        """Operation on received elements."""

    @property
    def rounds(self) -> int:
        """Number of rounds in which the rank takes part."""

    @property
    def elements(self) -> tuple[int, int]:
        """Number of elements that the rank sends and that it receives."""

    @property
    def own(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sections of memory that the rank copies itself: sources and targets."""

    def bound(self, limit: int) -> int:
        """Return the largest number of elements in buffers at one time, for rounds with this limit."""

    def limit(self, room: int) -> int:
        """Return a limit with which buffers hold at most `room` elements, or 1."""

    def sends(self, round: int, /) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the messages to each peer in a round."""

    def receives(self, round: int, /) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the messages from each peer in a round, in the order of unpacking."""


@dataclass(frozen=True)
class Transfer:
    """
    A transfer from one memory to another, on one rank.

    `plan` makes the traffic of this rank; with a limit, in rounds. `source` and `target` have one
    dtype. They may be the same memory: then nothing is copied within this rank. `meaning` must be equal
    on all ranks, compared by its `repr`.
    """

    plan: Callable[[int | None], Traffic]
    source: NDArray[Any]
    target: NDArray[Any]
    meaning: object


class _PreparedRound(NamedTuple):
    """A round that can begin: its messages, its copies within the rank, and targets of received data."""

    exchange: PackedExchange
    own: list[tuple[NDArray[Any], NDArray[Any]]]
    coming: list[NDArray[Any]]


class TrafficRun:
    """
    Traffic in progress. Every rank makes one, and makes the same calls on it.

    `make` returns the transfer; its errors are raised on all ranks by `run`, as
    `DistArray.redistribute_all` documents.

    Messages of this rank, including those to itself, need at most 64 MiB and at most half of the free
    memory budget, in which they count. Larger messages are sent in rounds, as many as the rank with the
    least memory needs. The ranks agree before each round, and after the last.
    """

    def __init__(self, group: Transport, call: str, make: Callable[[], Transfer]) -> None:
        self.group, self.call = group, call
        self._done = False
        self._make = make
        self._failures = Failures()
        self._number = 0
        self._rounds: int | None = None
        self._under_way: _PreparedRound | None = None
        self._first: _PreparedRound | None = None
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._held: _core.Reservation | None = None

    def run(self) -> None:
        """Agree with the others on the transfer, and run all rounds."""
        with self._end_on_error():
            # Calls that were started before may change the elements that are packed here.
            if self.group.in_flight.last is not None:
                self.group.in_flight.finish(self.group)
            limit = self._agree()
            if limit == _NO_LIMIT and self._first is not None:
                # All ranks have agreed that they can.
                self._rounds = 1
                self._send(self._first)
            else:
                self._advance(limit)
            while not self._done:
                self._receive()
                self._number += 1
                self._advance()

    # ------------------------------------------------------------------------- before the first round

    def _agree(self) -> int:
        """Return the limit; raise on all ranks if one has failed or has other arguments."""
        failure: BaseException | None = None
        try:
            words = self._prepare()
        except BaseException as error:
            failure = error
            words = _core.failed_record()
        with StopGroupOnError(self.group, self.call):
            records = _core.Records(self.group.allgather(words))
            failed, same, _ = records.verdict
            calls = [get_call_name(number) for _, number in records.calls()]
            said = list(zip(calls, records.setting(_PRINT), strict=True))
            others = [rank for rank, one in enumerate(said) if one != said[0]]
            limit = min(records.setting(_LIMIT))
        if failed:
            self._raise_failure(failure)
        if not same and not _OURS.issuperset(calls):
            raise make_mismatch_error(calls)
        if others:
            raise DistributionError(
                f"rank {others[0]} called {calls[others[0]]}, rank 0 {calls[0]}: different methods, or "
                "different arrays or arguments; make the same call on all ranks",
                code="ranks-disagree",
                rank=others[0],
            )
        return limit

    def _prepare(self) -> NDArray[np.int64]:
        """Run the steps that may fail on this rank: plan, allocate the buffer, pack a single round."""
        self.transfer = self._make()
        self.traffic = self.transfer.plan(None)
        target = self.transfer.target
        if not target.flags.writeable and (self.traffic.elements[1] or len(self.traffic.own[1])):
            raise DistributionError(
                f"the memory of rank {self.group.rank} is read-only; pass a copy of it to the array",
                code="bad-distribution",
            )
        limit = self._take_buffer(target.dtype.itemsize)
        # Most calls have one round. Steps that can fail on one rank run before the ranks synchronise.
        self._first = self._pack(0) if limit == _NO_LIMIT else None
        meaning = repr((self.call, self.traffic.operation, self.transfer.meaning))
        return make_brief_record(self.call, [hash_text(meaning), limit])

    def _take_buffer(self, item: int) -> int:
        """Allocate memory for messages; return the number of elements of this size that fit."""
        # Half of the free memory; other threads, possibly other ranks, may need the rest.
        room = min(_LARGEST, _core.memory_state()[1] // 2) // item
        while self._held is None:
            limit = self.traffic.limit(room)
            elements = self.traffic.bound(limit)
            try:
                self._held = _core.Reservation("exchange", elements * item)
            except BudgetError:
                if limit == 1:
                    raise
                # Other threads have taken some of it.
                room = elements // 2
        self._buffer = np.empty(elements * item, np.uint8)
        return limit

    # -------------------------------------------------------------------------------------- each round

    def _advance(self, limit: int | None = None) -> None:
        """Pack a round, agree that all ranks could, and send it; after the last round, end the run."""
        said, ready = 0, None
        with self._failures.catch():
            if self._failures.first is None and limit is not None:
                self.traffic = self.transfer.plan(limit)
                said = self.traffic.rounds
            if self._failures.first is None and self._number != self._rounds:
                ready = self._pack(self._number)
        heard = self.group.agree(_FAILED if self._failures.first is not None else said)
        if heard == _FAILED:
            self._raise_failure(self._failures.first)
        if self._rounds is None:
            self._rounds = heard
        if ready is None:
            self._end()
        else:
            self._send(ready)

    def _pack(self, number: int) -> _PreparedRound:
        """Pack this rank's messages of a round, and determine the targets of received data."""
        source, target, traffic = self.transfer.source, self.transfer.target, self.traffic
        to, of = np.zeros((2, self.group.size), np.int64)
        leaving = _locate_parts(source, traffic.sends(number), to)
        coming = _locate_parts(target, traffic.receives(number), of)
        own = []
        if number == 0 and source is not target:
            own = list(zip(*map(view_sections, (source, target), traffic.own), strict=True))
        exchange = PackedExchange(
            self.group,
            self._buffer,
            to,
            of,
            partial(_pack_parts, leaving),
            partial(_unpack_parts, coming, traffic.operation),
        )
        exchange.pack()
        return _PreparedRound(exchange, own, coming)

    def _send(self, ready: _PreparedRound) -> None:
        """Send a round, and copy the elements that this rank has itself."""
        self._under_way, self._first = ready, None
        # Others wait for these messages, not for a step.
        with StopGroupOnError(self.group, self.call):
            ready.exchange.start(self._failures, partial(_copy, ready.own))

    def _receive(self) -> None:
        """Unpack a round after it has arrived."""
        ready, self._under_way = self._under_way, None
        if ready is not None:
            with StopGroupOnError(self.group, self.call):
                ready.exchange.finish(self._failures)

    def _raise_failure(self, failure: BaseException | None) -> NoReturn:
        """Raise on all ranks: their own failure, or an error that names the failed rank."""
        try:
            raise_rank_failures(self.group, failure, self.call)
        except CollectiveError as error:
            told = error
        if failure is not None:
            raise failure
        raise DistributionError(told.message, code="failed-elsewhere", rank=(*told.ranks, 0)[0])

    @contextmanager
    def _end_on_error(self) -> Iterator[None]:
        """End the run on an exception. Defer Ctrl-C: other ranks wait for all rounds."""
        with DeferredInterrupt():
            try:
                yield
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        """Release the memory. Messages still in progress keep the buffer."""
        self._done = True
        self._under_way = self._first = None
        self._buffer = np.empty(0, np.uint8)
        if self._held is not None:
            self._held.release()


def _locate_parts(
    memory: NDArray[Any], messages: list[tuple[int, NDArray[np.int64]]], counts: NDArray[np.int64]
) -> list[NDArray[Any]]:
    """Return the parts of an array to send or receive, in order; add up the bytes for each rank."""
    found = []
    for peer, sections in messages:
        parts = view_sections(memory, sections)
        counts[peer] += sum(part.nbytes for part in parts)
        found += parts
    return found


def _iterate_packed(
    parts: list[NDArray[Any]], buffer: Bytes
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield parts of an array, each with its place in a buffer, as an array of the same shape."""
    at = 0
    for part in parts:
        yield part, buffer[at : at + part.nbytes].view(part.dtype).reshape(part.shape)
        at += part.nbytes


def _pack_parts(parts: list[NDArray[Any]], buffer: Bytes) -> None:
    for part, packed in _iterate_packed(parts, buffer):
        packed[...] = part


def _unpack_parts(parts: list[NDArray[Any]], operation: str, buffer: Bytes) -> None:
    combine = COMBINE.get(operation)
    for part, packed in _iterate_packed(parts, buffer):
        if combine is None:
            part[...] = packed
        else:
            combine(part, packed, out=part)


def _copy(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    for here, there in pairs:
        there[...] = here
