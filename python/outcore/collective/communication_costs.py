"""
What synchronisations, copies and messages of a group take: measured while its collectives run.

Nothing is run to measure: each rank keeps what the last rounds took, and tells it where prices are told
anyway. So the figures are of these ranks on these nodes, and follow the load.

- A synchronisation: the shortest of the last ones, over all ranks. Most ranks waited for one that came
  late; the rank that came last measured what the synchronisation itself takes.
- Copies: processor time, so that ranks that share a core do not count twice. Copies into memory that a
  call made are left out: what they take is new pages, which reading alone has as well.
- Messages: what each rank received a second while it waited, summed over the ranks.
- Processors: how many ranks of a node share one, of all nodes the most. What each rank does for itself
  takes that much longer.

Until enough has been seen, and where no ranks have synchronised (`dry_run`), figures are assumed.

Invariants. `agreed` computes from what all ranks said, in integers, so it is equal on all of them.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.transport import Transport

__all__ = ["ASSUMED", "WORDS", "Clock", "CommunicationCosts", "agreed", "clock_of"]

_SECOND = 1_000_000_000
# What a rank tells.
WORDS = 6
_LAST = 32
# Fewer bytes say nothing of a rate; beyond this many, those seen earlier count half.
_LEAST, _FULL = 4 << 20, 1 << 30
# What a figure may be: a clock that was set back or a copy that took no time is not believed.
_BARRIER_NS = (1_000, _SECOND)
_RATE = (50_000_000, 1_000_000_000_000)
_ALONE, _MOST_SHARING = 1_000, 1_000_000


@dataclass(frozen=True)
class CommunicationCosts:
    """
    What an exchange costs; equal on all ranks.

    Parameters
    ----------
    barrier_ns
        A synchronisation of all ranks, in nanoseconds.
    copy
        Bytes per second that a rank copies out of (into) a slot.
    messages
        Bytes per second that go between nodes, all ranks together.
    oversubscription
        Ranks that share a processor, in thousandths: 1000 and more.
    """

    barrier_ns: int
    copy: int
    messages: int
    oversubscription: int = _ALONE


ASSUMED = CommunicationCosts(barrier_ns=60_000, copy=8 * _SECOND, messages=2 * _SECOND)


class Clock:
    """What one rank of a group saw; `oversubscription` ranks share its processor, in thousandths."""

    def __init__(self, oversubscription: int = _ALONE) -> None:
        self.oversubscription = oversubscription
        self._synchronisations: deque[int] = deque(maxlen=_LAST)
        self._copied = [0, 0]
        self._received = [0, 0]

    def synchronise(self, step: Callable[[int], int], code: int) -> int:
        """Agree on a code, and keep how long that took."""
        began = time.perf_counter_ns()
        largest = step(code)
        self._synchronisations.append(time.perf_counter_ns() - began)
        return largest

    def copy(self, work: Callable[[], int]) -> None:
        """Copy, and keep how much processor time that took; `work` tells the bytes."""
        began = time.thread_time_ns()
        nbytes = work()
        _add(self._copied, nbytes, time.thread_time_ns() - began)

    @contextmanager
    def receiving(self, nbytes: int) -> Iterator[None]:
        """Keep how long it takes until messages of so many bytes are here."""
        began = time.perf_counter_ns()
        yield
        if nbytes:
            _add(self._received, nbytes, time.perf_counter_ns() - began)

    def words(self) -> list[int]:
        """Tell the others: `WORDS` integers."""
        return [
            min(self._synchronisations, default=0),
            *self._copied,
            *self._received,
            self.oversubscription,
        ]


def _add(sums: list[int], nbytes: int, ns: int) -> None:
    if sums[0] > _FULL:
        sums[0] //= 2
        sums[1] //= 2
    sums[0] += nbytes
    sums[1] += ns


_clocks: weakref.WeakKeyDictionary[Any, Clock] = weakref.WeakKeyDictionary()


def clock_of(transport: Transport) -> Clock:
    """Give the clock of this rank in a group."""
    clock = _clocks.get(transport)
    if clock is None:
        near = transport.nodes.count(transport.nodes[transport.rank])
        clock = _clocks[transport] = Clock(max(near * _ALONE // _processors(), _ALONE))
    return clock


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def agreed(said: NDArray[np.int64]) -> CommunicationCosts:
    """
    Costs that are equal on all ranks, from what all of them said.

    Parameters
    ----------
    said
        `Clock.words` of each rank, ``(ranks, WORDS)``.

    Examples
    --------
    >>> said = [[70_000, 8 << 20, 2 << 20, 0, 0, 2000], [40_000, 8 << 20, 2 << 20, 0, 0, 2000]]
    >>> agreed(np.array(said))
    CommunicationCosts(barrier_ns=40000, copy=4000000000, messages=2000000000, oversubscription=2000)
    """
    rows = [[int(word) for word in row] for row in said]
    synchronisations = [row[0] for row in rows if row[0] > 0]
    copied, copying = sum(row[1] for row in rows), sum(row[2] for row in rows)
    received = [(row[3], row[4]) for row in rows if row[3] and row[4] > 0]
    synchronisation, copy, messages = ASSUMED.barrier_ns, ASSUMED.copy, ASSUMED.messages
    if synchronisations:
        synchronisation = _within(min(synchronisations), _BARRIER_NS)
    if copied >= _LEAST:
        copy = _within(copied * _SECOND // max(copying, 1), _RATE)
    if sum(nbytes for nbytes, _ in received) >= _LEAST:
        messages = _within(sum(nbytes * _SECOND // ns for nbytes, ns in received), _RATE)
    oversubscription = _within(max(row[5] for row in rows), (_ALONE, _MOST_SHARING))
    return CommunicationCosts(synchronisation, copy, messages, oversubscription)


def _within(figure: int, bounds: tuple[int, int]) -> int:
    return min(max(figure, bounds[0]), bounds[1])
