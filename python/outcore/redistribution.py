"""
Bring the elements of an array from where ranks have them to where ranks want them.

Problem. Another distribution, the ghosts of a part, the whole array on one rank: each time every rank
has some elements and wants others. Idea. All three are one thing: what ranks have meets what ranks want
in regular sections, and the core knows who sends which of them to whom (`_core.exchange_plan`). So there
is one function here that packs, exchanges and unpacks; `DistArray` says only what is wanted.

Invariants. Whatever can fail on one rank alone fails before the first element is sent, or is told before
the next round; then all ranks raise. Buffers for packing are within the memory budget: what does not fit
travels in rounds. Every wanted element is received once; elements that a rank has itself are copied.

Reference: the second phase of the two-phase method (*PASSION: Parallel and Scalable Software for
Input-Output*, section 3.1), and the shift of boundary data into overlap areas (section 4.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective.agreement import Unsure, brief, differ, fail_together, name_of
from outcore.distribution import Distribution, views
from outcore.errors import BudgetError, CollectiveError, DistributionError
from outcore.transport import DeferredInterrupt, Transport

__all__ = ["Part", "bring_all"]

# Larger buffers make no exchange faster, but everything else has less.
_LARGEST = 64 * 2**20
_NO_LIMIT = 2**63 - 1
_OURS = {f"DistArray.{name}" for name in ("redistribute_all", "update_ghosts_all", "gather_all")}
# What ranks tell each other before anything else.
_PRINT, _LIMIT = range(2)


@dataclass(frozen=True)
class Part:
    """
    What one rank has, or wants, of an array that is divided over ranks.

    Parameters
    ----------
    distribution
        Which rank has which elements.
    widths
        Widths of the ghosts, a pair (before, behind) per axis; empty if there are none.
    memory
        The elements of this rank, ghosts included.
    """

    distribution: Distribution
    widths: list[tuple[int, int]]
    memory: NDArray[Any]


def bring_all(
    group: Transport,
    operation: str,
    source: Part,
    make: Callable[[], Part],
    only: int | None = None,
) -> None:
    """
    Bring the elements of `source` to where `make` wants them. Collective.

    Parameters
    ----------
    group
        The ranks that have the array.
    operation
        Name of the method of `DistArray` that does this; on all ranks the same.
    source
        What this rank has. Its ghosts are not sent.
    make
        Makes what this rank wants, memory to be filled, ghosts included; what it raises, all ranks
        raise. May be `source`: its ghosts are filled then.
    only
        The only rank that wants anything; by default all.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks; see `DistArray.redistribute_all`.

    Notes
    -----
    Messages of this rank, those to it included, take 64 MiB at most and half of what is free of the
    memory budget, in which they count; what is more goes in rounds, as many as the rank with the least
    room needs. There is an agreement before each round, and one after the last.
    """
    call = f"DistArray.{operation}"
    moves: list[_Moves] = []

    def prepare() -> NDArray[Any]:
        target = make()
        moves.append(_Moves(group, source, target, only))
        settings = [_print(operation, source, target, only), moves[0].limit]
        return brief(call, settings)

    # The other ranks wait for all of it.
    with DeferredInterrupt():
        try:
            limit = _agree(group, call, prepare)
            moves[0].run(limit, call)
        finally:
            for one in moves:
                one.release()


class _Crossing(NamedTuple):
    """What goes between this rank and another: sections of its memory, in rounds."""

    peer: int
    sections: NDArray[np.int64]
    ends: list[int]

    def elements(self) -> int:
        """Number of elements."""
        return int(self.sections[:, :, 1].prod(axis=1).sum())

    def of_round(self, memory: NDArray[Any], number: int) -> list[NDArray[Any]]:
        """The parts of `memory` that travel in a round, in this order."""
        if number >= len(self.ends):
            return []
        begin = self.ends[number - 1] if number else 0
        return views(memory, self.sections[begin : self.ends[number]])


class _Packed(NamedTuple):
    """A round that can begin: bytes for and of each rank, where what comes goes, what stays."""

    to: NDArray[np.int64]
    of: NDArray[np.int64]
    parts: list[tuple[NDArray[Any], NDArray[Any]]]
    own: list[tuple[NDArray[Any], NDArray[Any]]]


class _Moves:
    """What this rank sends, receives and copies to bring one array to where another wants it."""

    def __init__(self, group: Transport, source: Part, target: Part, only: int | None) -> None:
        self.group = group
        self.source = source
        self.target = target
        self.only = only
        self.item = source.memory.dtype.itemsize
        self.plan(None)
        if (self.receives or len(self.own[1])) and not target.memory.flags.writeable:
            raise DistributionError(
                f"the memory of rank {group.rank} cannot be written to; give the array a copy of it",
                code="bad-distribution",
            )
        counts = [crossing.elements() for crossing in (*self.sends, *self.receives)]
        self.limit, self.held = self.reserve(np.array(counts, np.int64))
        with_limit = [min(count, self.limit) * self.item for count in counts]
        try:
            self.send = np.empty(sum(with_limit[: len(self.sends)]), np.uint8)
            self.receive = np.empty(sum(with_limit[len(self.sends) :]), np.uint8)
            # Most calls have one round: what can fail on one rank is done before the ranks synchronise.
            self.first = self.pack(0) if self.limit == _NO_LIMIT else None
        except BaseException:
            self.held.release()
            raise

    def plan(self, limit: int | None) -> None:
        """Ask the core; with a limit, no message of a round has more elements."""
        source, target = self.source, self.target
        sends, receives, self.own = _core.exchange_plan(
            source.distribution._core,
            source.widths,
            target.distribution._core,
            target.widths,
            self.group.rank,
            self.only,
            limit,
        )
        self.sends = [_Crossing(*crossing) for crossing in sends]
        self.receives = [_Crossing(*crossing) for crossing in receives]

    def reserve(self, counts: NDArray[np.int64]) -> tuple[int, _core.Reservation]:
        """Memory for messages, and how many elements of each it holds (no limit: all)."""
        # Half of what is free: there may be other threads, or ranks that are threads.
        room = min(_LARGEST, _core.memory_state()[1] // 2)
        limit = _NO_LIMIT
        if int(counts.sum()) * self.item > room:
            limit = max(1, room // (len(counts) * self.item))
        while True:
            needed = int(np.minimum(counts, limit).sum()) * self.item
            try:
                return limit, _core.Reservation("exchange", needed)
            except BudgetError:
                if limit == 1:
                    raise
            # Other threads took some of it.
            limit = max(1, min(limit, int(counts.max())) // 2)

    def run(self, limit: int, call: str) -> None:
        """Send, receive and copy. All ranks have agreed on the limit."""
        # What fails on one rank is told before each round, and after the last one.
        failure: BaseException | None = None
        number, rounds = 0, 1
        if limit == _NO_LIMIT and self.first is not None:
            # Before this one the ranks told each other that all can.
            failure = self.exchange(self.first, call)
            number = 1
        while number <= rounds:
            said, ready = 0, None
            try:
                if failure is None and number == 0:
                    self.plan(limit)
                    crossings = (*self.sends, *self.receives)
                    said = max((len(one.ends) for one in crossings), default=1)
                if failure is None:
                    ready = self.pack(number)
            except BaseException as error:
                failure = error
            heard = self.group.agree(_NO_LIMIT if failure is not None else said)
            if heard == _NO_LIMIT:
                _give_up(self.group, failure, call)
            rounds = heard if number == 0 else rounds
            if ready is not None and number < rounds:
                failure = self.exchange(ready, call)
            number += 1

    def pack(self, number: int) -> _Packed:
        """Pack what this rank sends in a round, and see where what it receives will go."""
        size = self.group.size
        to, of = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for here, there in self.buffered(self.sends, self.source.memory, self.send, number, to):
            there[...] = here
        parts = self.buffered(self.receives, self.target.memory, self.receive, number, of)
        own = []
        if number == 0 and self.source.memory is not self.target.memory:
            memory = self.source.memory, self.target.memory
            own = list(zip(*map(views, memory, self.own), strict=True))
        return _Packed(to, of, parts, own)

    def exchange(self, ready: _Packed, call: str) -> BaseException | None:
        """Send and receive a round, and copy what this rank has itself; returns what went wrong."""
        failure: BaseException | None = None
        # Others wait for these messages, and for no step.
        with Unsure(self.group, call):
            send, receive = self.send[: ready.to.sum()], self.receive[: ready.of.sum()]
            started = self.group.start_exchange(send, ready.to, receive, ready.of)
            try:
                _copy(ready.own)
            except BaseException as error:
                failure = error
            started.wait()
        try:
            _copy([(there, here) for here, there in ready.parts])
        except BaseException as error:
            failure = failure or error
        return failure

    def buffered(
        self,
        crossings: list[_Crossing],
        memory: NDArray[Any],
        buffer: NDArray[np.uint8],
        number: int,
        counts: NDArray[np.int64],
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Parts of an array that travel in a round, each with its part of the buffer."""
        parts = []
        at = 0
        for crossing in crossings:
            for view in crossing.of_round(memory, number):
                part = buffer[at : at + view.nbytes].view(memory.dtype).reshape(view.shape)
                parts.append((view, part))
                at += view.nbytes
                counts[crossing.peer] += view.nbytes
        return parts

    def release(self) -> None:
        """Give the memory back."""
        self.held.release()


def _copy(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    for here, there in pairs:
        there[...] = here


def _print(operation: str, source: Part, target: Part, only: int | None) -> int:
    """A number that is equal on ranks that mean the same."""
    ends = [
        (one.distribution.shape, one.memory.dtype, str(one.distribution), one.widths)
        for one in (source, target)
    ]
    digest = hashlib.blake2b(repr((operation, ends, only)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _agree(group: Transport, call: str, prepare: Callable[[], NDArray[Any]]) -> int:
    """Tell the limit; raise on all ranks if one has a problem, or means something else than others."""
    failure: BaseException | None = None
    try:
        words = prepare()
    except BaseException as error:
        failure = error
        words = _core.failed_record()
    with Unsure(group, call):
        records = _core.Records(group.allgather(words))
        failed, same, _ = records.verdict
        calls = [name_of(number) for _, number in records.calls()]
        said = list(zip(calls, records.setting(_PRINT), strict=True))
        others = [rank for rank, one in enumerate(said) if one != said[0]]
        limit = min(records.setting(_LIMIT))
    if failed:
        _give_up(group, failure, call)
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


def _give_up(group: Transport, failure: BaseException | None, call: str) -> NoReturn:
    """Raise on all ranks: their own failure, or whose it was."""
    try:
        fail_together(group, failure, call)
    except CollectiveError as error:
        told = error
    if failure is not None:
        raise failure
    raise DistributionError(told.message, code="failed-elsewhere", rank=(*told.ranks, 0)[0])
