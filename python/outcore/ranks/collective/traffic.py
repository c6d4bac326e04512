"""
Traffic is run here: the only code that packs, exchanges and unpacks.

Problem. Redistribution, ghosts in both directions, gathering and two-phase all send elements between
ranks within a memory budget. Each rank may fail on its own, and then all have to stop.

Idea. What goes where is a value (`_core.Traffic`, ``crates/plan/src/distribution/traffic.rs``), made and
counted before anything is sent. `Run` executes it round by round, as an object that can be resumed: it
packs a round, agrees with the others that all could, sends it, and unpacks what came while nobody waits.
One exchange of packed buffers is a `PackedExchange`; two-phase (`packets`) uses it, too.

    agree | send 0, copy what is here, unpack 0 | pack 1, agree | send 1, unpack 1 | ... | agree

Invariants. Whatever can fail on one rank alone fails before the first element is sent, or is told before
the next round; then all ranks raise. Buffers are within the memory budget: what does not fit travels in
rounds. What is combined is unpacked in the order of ranks: the bits do not depend on what comes first.

Reference: the second phase of the two-phase method (*PASSION: Parallel and Scalable Software for
Input-Output*, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution import views
from outcore.errors import BudgetError, CollectiveError, DistributionError
from outcore.ranks.agreement import Failures, Unsure, brief, differ, fail_together, name_of
from outcore.ranks.collective.items import number_of
from outcore.ranks.transport import DeferredInterrupt, Exchange, Transport

__all__ = ["COMBINE", "PackedExchange", "Run", "Traffic", "Transfer"]

Bytes = NDArray[np.uint8]
#: What combines two elements; any other operation sets them.
COMBINE: dict[str, np.ufunc] = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}
# Larger buffers make no exchange faster, but everything else has less.
_LARGEST = 64 * 2**20
# The limit of who has room for all, and what a rank says that failed: more than any number of rounds.
_NO_LIMIT = _FAILED = 2**63 - 1
_OURS = {
    f"DistArray.{name}_all"
    for name in (
        *("redistribute", "update_ghosts", "accumulate_ghosts", "gather"),
        *("copy", "add", "map", "dot", "matmul", "transpose"),
    )
}
# What ranks tell each other before anything else.
_PRINT, _LIMIT = range(2)


class PackedExchange:
    """
    Messages of this rank that travel at once, packed into a buffer.

    Parameters
    ----------
    group
        The ranks.
    buffer
        Room for all that is sent, and behind that for all that comes.
    to, of
        Bytes for and from each rank.
    pack, unpack
        Fill the first part of the buffer, and take what came out of the second, each in the order of
        ranks.
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
        """Fill the buffer. Nothing of it is sent yet."""
        self._pack(self.send)

    def start(self, failures: Failures, meanwhile: Callable[[], None] | None = None) -> None:
        """Send, and do something else meanwhile. The buffer is not the caller's until `finish`."""
        self._started = self._group.start_exchange(self.send, self.to, self.receive, self.of)
        if meanwhile is not None:
            with failures.caught():
                meanwhile()

    def test(self) -> bool:
        """Whether all messages have been sent and received; never waits."""
        return self._started is not None and self._started.test()

    def finish(self, failures: Failures) -> None:
        """Wait for all messages, and unpack what came."""
        if self._started is not None:
            self._started.wait()
        with failures.caught():
            self._unpack(self.receive)


class Traffic(Protocol):
    """
    What one rank sends and receives in each round.

    These are `_core.Traffic` and `outcore.ranks.dist.periodic.BoxTraffic`.
    """

    @property
    def operation(self) -> str:
        """What is done with what comes."""

    @property
    def rounds(self) -> int:
        """How many it takes part in."""

    @property
    def elements(self) -> tuple[int, int]:
        """Elements that it sends and that it receives."""

    @property
    def own(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sections of its memory that it copies itself, from where and to where."""

    def bound(self, limit: int) -> int:
        """Elements in buffers at once, at most, if rounds are cut with a limit."""

    def limit(self, room: int) -> int:
        """A limit with which so many elements are enough, or 1."""

    def sends(self, round: int, /) -> list[tuple[int, NDArray[np.int64]]]:
        """What goes to each peer in a round."""

    def receives(self, round: int, /) -> list[tuple[int, NDArray[np.int64]]]:
        """What comes from each peer in a round, unpacked in this order."""


@dataclass(frozen=True)
class Transfer:
    """
    What travels from one memory to another, as one rank sees it.

    Parameters
    ----------
    plan
        Makes the traffic of this rank; with a limit in rounds.
    source, target
        The memory that elements are taken from, and the memory that they come to; of one dtype. May be
        the same: then nothing is copied on this rank.
    meaning
        What is equal on all ranks that mean the same; told apart by its `repr`.
    """

    plan: Callable[[int | None], Traffic]
    source: NDArray[Any]
    target: NDArray[Any]
    meaning: object


class _Ready(NamedTuple):
    """A round that can begin: what is sent, what is copied here, and where what comes will go."""

    exchange: PackedExchange
    own: list[tuple[NDArray[Any], NDArray[Any]]]
    coming: list[NDArray[Any]]


class Run:
    """
    Traffic under way. Every rank makes one, and makes the same calls of it.

    Parameters
    ----------
    group
        The ranks.
    call
        Name of the collective call, as `agreement` has it.
    make
        Says what travels; what it raises, all ranks raise.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks, by `start`, `step` or `wait`; see `DistArray.redistribute_all`.

    Notes
    -----
    Messages of this rank, those to it included, take 64 MiB at most and half of what is free of the
    memory budget, in which they count; what is more goes in rounds, as many as the rank with the least
    room needs. There is an agreement before each round, and one after the last.

    Messages go on while nobody waits, synchronisations do not: `start` and `step` wait for the others
    where ranks agree.
    """

    def __init__(self, group: Transport, call: str, make: Callable[[], Transfer]) -> None:
        self.group, self.call = group, call
        self.done = False
        self._make = make
        self._failures = Failures()
        # What it raised: it raises that again.
        self._raised: BaseException | None = None
        self._number = 0
        self._rounds: int | None = None
        self._under_way: _Ready | None = None
        self._first: _Ready | None = None
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._held: _core.Reservation | None = None

    def start(self) -> None:
        """Agree with the others on what travels, and send the first round."""
        # What was started before may change what is packed here.
        if self.group.in_flight.last is not None:
            self.group.in_flight.finish(self.group)
        with self._ending():
            limit = self._agree()
            if limit == _NO_LIMIT and self._first is not None:
                # All ranks have told that they can.
                self._rounds = 1
                self._send(self._first)
            else:
                self._next(limit)

    def step(self) -> bool:
        """End the round under way and send the next one; tells whether there is one."""
        if self._raised is not None:
            raise self._raised
        if self.done:
            return False
        with self._ending():
            self._receive()
            self._number += 1
            self._next()
        return not self.done

    def test(self) -> bool:
        """Whether it has ended, or the messages of the round under way have come; never waits."""
        return self.done or (self._under_way is not None and self._under_way.exchange.test())

    def wait(self) -> None:
        """Go on to the end."""
        with DeferredInterrupt():
            while self.step():
                pass

    def cancel(self) -> bool:
        """
        Stop it on all ranks, where they next agree; tells whether it has not ended yet.

        This rank still makes its calls: the one that stops raises `concurrent.futures.CancelledError`
        here and `DistributionError` (``failed-elsewhere``) on the others. What the target holds then is
        undefined.
        """
        if self.done:
            return False
        text = f"{self.call} was cancelled on rank {self.group.rank}"
        self._failures.note(CancelledError(text))
        return True

    # ------------------------------------------------------------------------- before the first round

    def _agree(self) -> int:
        """Tell the limit; raise on all ranks if one has a problem, or means something else."""
        failure: BaseException | None = None
        try:
            words = self._prepare()
        except BaseException as error:
            failure = error
            words = _core.failed_record()
        with Unsure(self.group, self.call):
            records = _core.Records(self.group.allgather(words))
            failed, same, _ = records.verdict
            calls = [name_of(number) for _, number in records.calls()]
            said = list(zip(calls, records.setting(_PRINT), strict=True))
            others = [rank for rank, one in enumerate(said) if one != said[0]]
            limit = min(records.setting(_LIMIT))
        if failed:
            self._give_up(failure)
        if not same and not _OURS.issuperset(calls):
            differ(calls)
        if others:
            raise DistributionError(
                f"rank {others[0]} called {calls[others[0]]}, rank 0 {calls[0]}: different methods, on "
                "different arrays or with different arguments; all ranks must make the same call",
                code="ranks-disagree",
                rank=others[0],
            )
        return limit

    def _prepare(self) -> NDArray[np.int64]:
        """Do what may fail on this rank alone: plan, take the buffer, pack what fits in one round."""
        self.transfer = self._make()
        self.traffic = self.transfer.plan(None)
        target = self.transfer.target
        if not target.flags.writeable and (self.traffic.elements[1] or len(self.traffic.own[1])):
            raise DistributionError(
                f"the memory of rank {self.group.rank} cannot be written to; give the array a copy of "
                "it",
                code="bad-distribution",
            )
        limit = self._take_buffer(target.dtype.itemsize)
        # Most calls have one round: what can fail on one rank is done before the ranks synchronise.
        self._first = self._pack(0) if limit == _NO_LIMIT else None
        meaning = repr((self.call, self.traffic.operation, self.transfer.meaning))
        return brief(self.call, [number_of(meaning), limit])

    def _take_buffer(self, item: int) -> int:
        """Memory for messages; tells how many elements of each it holds."""
        # Half of what is free: there may be other threads, or ranks that are threads.
        room = min(_LARGEST, _core.memory_state()[1] // 2) // item
        while self._held is None:
            limit = self.traffic.limit(room)
            elements = self.traffic.bound(limit)
            try:
                self._held = _core.Reservation("exchange", elements * item)
            except BudgetError:
                if limit == 1:
                    raise
                # Other threads took some of it.
                room = elements // 2
        self._buffer = np.empty(elements * item, np.uint8)
        return limit

    # -------------------------------------------------------------------------------------- each round

    def _next(self, limit: int | None = None) -> None:
        """Pack a round, agree that all ranks could, and send it; behind the last one this is the end."""
        said, ready = 0, None
        with self._failures.caught():
            if self._failures.first is None and limit is not None:
                self.traffic = self.transfer.plan(limit)
                said = self.traffic.rounds
            if self._failures.first is None and self._number != self._rounds:
                ready = self._pack(self._number)
        heard = self.group.agree(_FAILED if self._failures.first is not None else said)
        if heard == _FAILED:
            self._give_up(self._failures.first)
        if self._rounds is None:
            self._rounds = heard
        if ready is None:
            self._end()
        else:
            self._send(ready)

    def _pack(self, number: int) -> _Ready:
        """Pack what this rank sends in a round, and see where what it receives will go."""
        source, target, traffic = self.transfer.source, self.transfer.target, self.traffic
        to, of = np.zeros((2, self.group.size), np.int64)
        leaving = _places(source, traffic.sends(number), to)
        coming = _places(target, traffic.receives(number), of)
        own = []
        if number == 0 and source is not target:
            own = list(zip(*map(views, (source, target), traffic.own), strict=True))
        exchange = PackedExchange(
            self.group,
            self._buffer,
            to,
            of,
            partial(_gather, leaving),
            partial(_scatter, coming, traffic.operation),
        )
        exchange.pack()
        return _Ready(exchange, own, coming)

    def _send(self, ready: _Ready) -> None:
        """Send a round, and copy what this rank has itself."""
        self._under_way, self._first = ready, None
        # Others wait for these messages, and for no step.
        with Unsure(self.group, self.call):
            ready.exchange.start(self._failures, partial(_copy, ready.own))

    def _receive(self) -> None:
        """Unpack a round, when it has come."""
        ready, self._under_way = self._under_way, None
        if ready is not None:
            with Unsure(self.group, self.call):
                ready.exchange.finish(self._failures)

    def _give_up(self, failure: BaseException | None) -> NoReturn:
        """Raise on all ranks: their own failure, or whose it was."""
        try:
            fail_together(self.group, failure, self.call)
        except CollectiveError as error:
            told = error
        if failure is not None:
            raise failure
        raise DistributionError(told.message, code="failed-elsewhere", rank=(*told.ranks, 0)[0])

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """The other ranks wait for all of it; what is raised ends it, and is raised ever after."""
        with DeferredInterrupt():
            try:
                yield
            except BaseException as error:
                self._raised = error
                self._end()
                raise

    def _end(self) -> None:
        """Give the memory back. Messages that are under way nevertheless keep the buffer."""
        self.done = True
        self._under_way = self._first = None
        self._buffer = np.empty(0, np.uint8)
        if self._held is not None:
            self._held.release()


def _places(
    memory: NDArray[Any], messages: list[tuple[int, NDArray[np.int64]]], counts: NDArray[np.int64]
) -> list[NDArray[Any]]:
    """The parts of an array that travel, in this order; adds up the bytes for each rank."""
    found = []
    for peer, sections in messages:
        parts = views(memory, sections)
        counts[peer] += sum(part.nbytes for part in parts)
        found += parts
    return found


def _each(parts: list[NDArray[Any]], buffer: Bytes) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Parts of an array, each with its place in a buffer, as an array of the same shape."""
    at = 0
    for part in parts:
        yield part, buffer[at : at + part.nbytes].view(part.dtype).reshape(part.shape)
        at += part.nbytes


def _gather(parts: list[NDArray[Any]], buffer: Bytes) -> None:
    for part, packed in _each(parts, buffer):
        packed[...] = part


def _scatter(parts: list[NDArray[Any]], operation: str, buffer: Bytes) -> None:
    combine = COMBINE.get(operation)
    for part, packed in _each(parts, buffer):
        if combine is None:
            part[...] = packed
        else:
            combine(part, packed, out=part)


def _copy(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    for here, there in pairs:
        there[...] = here
