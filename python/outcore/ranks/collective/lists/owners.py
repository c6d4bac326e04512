"""
Owners of listed elements: file domains, and the elements that ranks request from them.

Problem. Ranks have lists of elements anywhere in the array. Which rank should read or write which of
them? Approach. The bins of the array (`choice.BinLayout`) are cut so that each owner, in each round,
has about equally many requested bytes. All ranks know the counts, so all cut in the same way
(``crates/plan/src/points/divide.rs``). Then each rank sends each owner, once, the elements that it
needs, and the owner makes an `IndexSchedule` of them for each round, unless they are most of its
domain.

Invariants. An owner has elements in the order of ranks, and for each rank and window of the file in the
order of its list: of several values for one element, the last value of the highest rank counts.

Reference: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.lists.parts import IndexedArray, count_elements
from outcore.arrays.indices.masks import INDEX
from outcore.ranks.agreement import Failures
from outcore.ranks.collective.call import has_several_nodes
from outcore.ranks.collective.lists.choice import BinLayout
from outcore.ranks.collective.lists.dense import DenseRange, is_dense
from outcore.ranks.collective.lists.elements import (
    ElementExchange,
    ElementSteps,
    MessageExchange,
    SlotExchange,
)
from outcore.ranks.ranks import Ranks

__all__ = ["WINDOWED", "ListRequest", "OwnerPart", "OwnerState", "send_to_owners"]

#: Bytes per bin while bins are assigned to windows: names, their order, counts and starts.
WINDOWED = 8 * INDEX
# Maximum length of the ranges in which unwritten elements are searched.
_STRETCH = 1 << 22


@dataclass(frozen=True)
class ListRequest:
    """
    Request of one rank: its points, and the ranges of all axes as words.

    `flat` has the numbers of its elements along the indexed axes, `own` their number in each bin, and
    `row` the bytes of an element. The bins are equal on all ranks.
    """

    points: IndexPoints
    rest: list[int]
    flat: NDArray[np.int64]
    own: NDArray[np.int64]
    bins: BinLayout
    row: int


class OwnerPart:
    """
    Elements of an owner in one round: their numbers, rank after rank.

    `listed` has the indexed axes and ranges of the other axes. `dense` is the range of the file of
    which the elements are the majority; None otherwise.
    """

    def __init__(
        self, flat: NDArray[np.int64], listed: ListRequest, dense: DenseRange | None
    ) -> None:
        self.flat = flat
        self._listed, self._dense = listed, dense
        self._made: _core.IndexSchedule | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that the part uses."""
        return self.flat.nbytes + (self._made.nbytes if self._made is not None else 0)

    def read(self, array: outcore.DiskArray, out: NDArray[Any]) -> None:
        """Read a row for each element."""
        if self._dense is not None and self._dense.is_suitable_for(array):
            self._dense.read(array.handle.core, out)
        elif self.flat.size:
            self._get_schedule(array).read(array.handle.core, out)

    def write(self, array: outcore.DiskArray, values: NDArray[Any]) -> None:
        """Write a row for each element; of several values for one element, the last one counts."""
        dense = (
            self._dense if self._dense is not None and self._dense.is_suitable_for(array) else None
        )
        if dense is not None and dense.is_complete():
            array.handle.core.expect_concurrent_writers()
            try:
                dense.write(array.handle.core, values)
            finally:
                array.handle.core.end_concurrent_writers()
        elif self.flat.size:
            self._get_schedule(array).write(array.handle.core, values)

    def _get_schedule(self, array: outcore.DiskArray) -> _core.IndexSchedule:
        """Return the schedule for the layout of an array; the last one is cached."""
        made = self._made
        if made is None or not made.serves(array.handle.core):
            axes, rest = self._listed.points.axes, self._listed.rest
            made = _core.IndexSchedule(array.handle.core, axes, (self.flat,), "flat", rest)
            self._made = made
        return made


@dataclass(frozen=True)
class OwnerState:
    """
    State of the owners after they have received the requests.

    `part` has the round and owner of each bin: ``round * owners + owner``. `owner` is the number of
    this rank among the owners, if it is one, and `parts` its part for each round. `held` are
    reservations of the budget for the elements of the parts.
    """

    steps: ElementSteps
    exchange: ElementExchange
    part: NDArray[np.uint32]
    owner: int | None
    parts: list[OwnerPart]
    held: list[_core.Reservation]

    def get_part(self, step: int) -> OwnerPart | None:
        """Return this rank's part of a step; None if it has none."""
        owns = self.owner is not None and self.owner in self.steps.get_owners(step)
        return self.parts[self.steps.get_round(step)] if owns else None

    def fill(self, array: outcore.DiskArray, listed: ListRequest, fill: Any) -> None:
        """Write a value to the elements of this rank's domain that no rank writes."""
        if self.owner is None:
            return
        own = np.flatnonzero(self.part % len(self.steps.owners) == self.owner)
        if not own.size:
            return
        place, width = IndexedArray(array, listed.points), listed.bins.width
        low = int(own[0]) * width
        high = min((int(own[-1]) + 1) * width, count_elements(listed.points))
        # Concurrent writes count in the budget, too.
        stretch = _core.memory_state()[1] // (16 * (2 * INDEX + listed.row))
        stretch = min(max(stretch, 1 << 10), _STRETCH)
        told = sum(part.flat.nbytes for part in self.parts)
        with _core.Reservation("elements that nobody writes", told + stretch * (1 + 2 * INDEX)):
            listed_here = np.concatenate([part.flat for part in self.parts])
            listed_here.sort()
            place.fill(low, high, listed_here, fill, stretch)
            place.fill_beside(low, high, fill, stretch)

    @property
    def nbytes(self) -> int:
        """Bytes that the parts of this rank use."""
        return sum(part.nbytes for part in self.parts)


def send_to_owners(
    ranks: Ranks,
    listed: ListRequest,
    sums: NDArray[np.int64],
    owners: list[int],
    rounds: int,
    groups: int,
) -> OwnerState:
    """
    Cut the file domains, and send each owner the elements that this rank requests. Collective.

    `sums` has the number of elements of all ranks in each bin. Each owner has `rounds` chunks, and
    `groups` of owners take turns. If any rank failed, all raise, and no memory is reserved.
    """
    number, width, flat = len(owners), listed.bins.width, listed.flat
    group = ranks.group
    failures = Failures()
    me = owners.index(group.rank) if group.rank in owners else None
    part, counts = np.zeros(0, np.uint32), np.zeros((rounds, number), np.int64)
    with failures.catch():
        part = _core.cut_bins(sums, number, rounds)
        weighed = np.bincount(part, weights=listed.own, minlength=number * rounds)
        counts = weighed.astype(np.int64).reshape(rounds, number)
    ranks.agree(failures)
    theirs = np.zeros((group.size, rounds), np.int64)
    before = np.zeros((number, rounds), np.int64)
    each, some = np.full(group.size, rounds * INDEX), np.zeros(group.size, np.int64)
    some[owners] = rounds * INDEX
    if me is None:
        each[:] = 0
    with ranks.stop_on_error():
        kept = theirs if me is not None else theirs[:0]
        ranks.exchange(np.ascontiguousarray(counts.T), some, kept, each)
    lower = np.cumsum(theirs, axis=0) - theirs
    with ranks.stop_on_error():
        ranks.exchange(lower if me is not None else lower[:0], each, before, some)
    steps = ElementSteps(
        owners, rounds, min(groups, number), counts, theirs, np.ascontiguousarray(before.T)
    )
    ways: list[SlotExchange | MessageExchange] = []
    # Number of temporary orders of the list, in addition to the one that is kept.
    beside = 3 * INDEX * flat.size + WINDOWED * part.size
    with failures.catch(), _core.Reservation("a collective schedule that is made", beside):
        if listed.row and not has_several_nodes(group):
            ways.append(SlotExchange(group, steps, flat, width, part, listed.own, listed.row))
        else:
            ways.append(MessageExchange(group, steps, flat, width, part, me))
    ranks.agree(failures)
    exchange = ways[0]
    if isinstance(exchange, SlotExchange):
        exchange.agree_on_most()
    # An owner has one step in each round, in ascending order.
    told: list[NDArray[np.int64]] = []
    held: list[_core.Reservation] = []
    with exchange.reserve(INDEX, failures, ahead=False):
        for step in range(steps.number):
            room = np.empty(0, np.uint8)
            with failures.catch():
                room = exchange.room(step, steps.count_owned(step, me) * INDEX)
            # A rank without memory could not take part in the exchange, and the others would wait.
            ranks.agree(failures)
            with failures.catch():
                exchange.bring(step, room, flat.view(np.uint8), INDEX)
            # An owner processes the requests after all have arrived.
            ranks.agree(failures)
            if me is not None and me in steps.get_owners(step):
                with failures.catch():
                    held.append(_core.Reservation("a collective schedule", room.nbytes))
                    told.append(room.copy().view(np.int64))
        ranks.agree(failures)
    parts: list[OwnerPart] = []
    with failures.catch():
        for turn, elements in enumerate(told):
            assert me is not None, "only owners are told"
            dense = None
            if isinstance(exchange, SlotExchange):
                bins = np.flatnonzero(part == turn * number + me)
                dense = _find_dense_range(listed, bins, elements, theirs[:, turn], exchange.window)
            parts.append(OwnerPart(elements, listed, dense))
    ranks.agree(failures)
    return OwnerState(steps, exchange, part, me, parts, held)


def _find_dense_range(
    listed: ListRequest,
    bins: NDArray[np.intp],
    flat: NDArray[np.int64],
    counts: NDArray[np.int64],
    window: int,
) -> DenseRange | None:
    """Return the range of the file for the bins of a part; None unless most of it is listed."""
    if listed.points.axes != (0,) or not bins.size:
        return None
    width = listed.bins.width
    low, high = int(bins[0]) * width, min((int(bins[-1]) + 1) * width, listed.points.shape[0])
    if not is_dense(len(flat), high - low, listed.row):
        return None
    return DenseRange(flat, counts, low, high, window, listed.row, listed.rest)
