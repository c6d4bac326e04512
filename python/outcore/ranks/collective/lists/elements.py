"""
Elements of lists on their way between the ranks that want them and the owners that move them.

Problem. An owner has the elements of a step one after another, for each rank those that it asked for; a
rank wants them in the order of its list. Of packed messages each element is copied three times (packed,
sent, put in order), and where it is put in order each misses the caches.

Idea. Ranks of one node share the owners' memory (`InSlots`): a rank takes what is its own out of the
slots of all owners, or puts it there, in the order of its list. Its elements lie in a slot window by
window of the file, and within a window in the order of the list, so that walking the list reads (or
writes) as many streams as there are windows, each of them forwards (``crates/compute/src/regions.rs``).
The owner, whose own list has the same order, fills one window after the other, and each fits the
processor's cache. Between nodes elements go as messages, packed (`ByMessages`).

    a list, by window of each element     1  1  0  1  0  2  ...
    what a rank has in a slot             0: third, fifth ...  1: first, second, fourth ...  2: sixth ...

Invariants. A rank touches only its own region of a slot. Who owns a slot looks at it, or writes into it,
only between the agreements that say that the others do not.

Source: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
section 3.1.1 (communication coalescing); the order is that of one pass of a radix sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.agreement import Failures, Unsure
from outcore.ranks.transport import Transport
from outcore.ranks.transport.sharing import Slots, slots_of, unpin_slots

__all__ = ["ByMessages", "Exchange", "InSlots", "Steps", "bytes_of", "rows_in", "shares_slots"]

# Bits of a place below the number of the owner (``regions.rs``).
_REGION = 40
# Bytes of a window: the second cache of a processor holds it. There are at most so many streams.
_WINDOW, _STREAMS = 1 << 20, 512
_INDEX = 8
# Steps that are looked for one after another, each in a pass over the list; more are found in one.
_FEW = 4


@dataclass(frozen=True)
class Steps:
    """
    Which elements travel in which step, and how many.

    Parameters
    ----------
    owners
        The rank of each owner.
    rounds, groups
        A step is a round of the owners of one group.
    counts
        Elements that this rank has for each owner, by round: of shape ``(rounds, owners)``.
    theirs
        Elements that each rank has for this one, by round: of shape ``(ranks, rounds)``; zeros if it
        owns nothing.
    before
        Elements that lower ranks have for each owner, by round: as `counts`.
    """

    owners: list[int]
    rounds: int
    groups: int
    counts: NDArray[np.int64]
    theirs: NDArray[np.int64]
    before: NDArray[np.int64]

    @property
    def number(self) -> int:
        """How many there are."""
        return self.rounds * self.groups

    def round(self, step: int) -> int:
        """Tell the round of a step."""
        return step // self.groups

    def of(self, step: int) -> range:
        """Tell the owners whose turn it is, by number."""
        group, many = step % self.groups, len(self.owners)
        return range(many * group // self.groups, many * (group + 1) // self.groups)

    def group_of(self, owner: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tell the group of owners with these numbers."""
        cuts = [len(self.owners) * (k + 1) // self.groups for k in range(self.groups)]
        found: NDArray[np.int64] = np.searchsorted(cuts, owner, side="right")
        return found

    def mine(self, step: int) -> int:
        """Count this rank's elements of a step."""
        owners = self.of(step)
        return int(self.counts[self.round(step), owners.start : owners.stop].sum())

    def owned(self, step: int, owner: int | None) -> int:
        """Count what this rank owns of a step."""
        if owner is None or owner not in self.of(step):
            return 0
        return int(self.theirs[:, self.round(step)].sum())


class Exchange(Protocol):
    """How elements go between owners and ranks."""

    def held(self, row: int, failures: Failures, *, ahead: bool) -> Any:
        """Hold what travels at once, of rows of so many bytes: a context. What fails, it notes."""
        ...

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """Memory of an owner for its elements of a step, of so many bytes."""
        ...

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Give ranks what owners have read: `data`, in their room; this rank's are put into `rows`."""
        ...

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Bring owners what they write: out of `rows`, into their `room`."""
        ...


def shares_slots(transport: Transport) -> bool:
    """Whether all ranks share memory."""
    return len(set(transport.nodes)) == 1


class InSlots:
    """
    Through slots in the memory of the node.

    Parameters
    ----------
    transport
        The ranks, all of one node.
    steps
        What travels.
    flat, width
        This rank's elements, by number; elements of a bin.
    part
        The round and owner of each bin: ``round * owners + owner``.
    own
        How many of its elements lie in each bin.
    row
        Bytes of an element.
    """

    def __init__(
        self,
        transport: Transport,
        steps: Steps,
        flat: NDArray[np.int64],
        width: int,
        part: NDArray[np.uint32],
        own: NDArray[np.int64],
        row: int,
    ) -> None:
        self._group, self._steps = transport, steps
        owners = len(steps.owners)
        # A window of the file within a part: where its elements begin in this rank's region.
        each = max(_WINDOW // max(width * row, 1), -(-len(part) // _STREAMS), 1)
        windows = len(part) // each + 1
        #: Elements of a window: in a rank's region those of a window lie side by side.
        self.window = each * width
        by_window = part.astype(np.int64) * windows + np.arange(len(part)) // each
        names, fine = np.unique(by_window, return_inverse=True)
        counts = np.bincount(fine, weights=own, minlength=len(names)).astype(np.int64)
        its = names // windows
        starts = np.cumsum(counts) - counts
        of_part = np.concatenate(([True], its[1:] != its[:-1]))
        starts -= np.maximum.accumulate(np.where(of_part, starts, 0))
        first = (its % owners << _REGION) + starts
        places, _ = _core.divide_elements(flat, width, fine.astype(np.uint32), first)
        step = its // owners * steps.groups + steps.group_of(its % owners)
        self._each: list[tuple[NDArray[np.int64], NDArray[np.int64] | None]] = [(places, None)]
        if steps.number > 1:
            self._each = _by_step(steps, flat, width, step[fine], places)
        self._most = 0
        self._slots: Slots | None = None

    def agree_on_most(self) -> None:
        """Tell the others how much this rank owns of a step, at most. Collective."""
        most = self._steps.theirs.sum(axis=0).max(initial=0)
        self._most = self._group.agree(int(most))

    @contextmanager
    def held(self, row: int, failures: Failures, *, ahead: bool) -> Iterator[None]:
        """Hold slots: two, if there is more than one step. Collective: all have theirs, or fail."""
        turns = min(self._steps.number, 2)
        nbytes = max(self._most * row, 1)
        try:
            with failures.caught():
                self._slots = slots_of(self._group, nbytes, turns, turns * 4 * nbytes, nbytes)
            yield
        finally:
            self._slots = None
            unpin_slots(self._group)

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """The slot of this rank, of so many bytes."""
        if self._slots is None:
            raise CollectiveError("a rank has no slots", code="rank-failed")
        return self._slots.mine(step)[:nbytes]

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Take this rank's elements out of the slots."""
        places, numbers = self._each[step]
        if places.size:
            _core.take_rows(self._regions(step, row), places, rows, row, numbers)

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Put this rank's values into the slots."""
        places, numbers = self._each[step]
        if places.size:
            _core.put_rows(self._regions(step, row), places, rows, row, numbers)

    def _regions(self, step: int, row: int) -> list[NDArray[np.uint8]]:
        """What is this rank's of the slot of each owner."""
        steps = self._steps
        if self._slots is None:
            raise CollectiveError("a rank has no slots", code="rank-failed")
        # Of the same bytes there is never more than one: the core lends each once.
        found = [np.empty(0, np.uint8) for _ in steps.owners]
        number = steps.round(step)
        for owner in steps.of(step):
            low = int(steps.before[number, owner]) * row
            high = low + int(steps.counts[number, owner]) * row
            if low < high:
                found[owner] = self._slots.of(steps.owners[owner], step)[low:high]
        return found


def _by_step(
    steps: Steps,
    flat: NDArray[np.int64],
    width: int,
    of_bin: NDArray[np.int64],
    places: NDArray[np.int64],
) -> list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
    """Of each step the places of its elements, and which of the list they are: `of_bin` tells steps."""
    if steps.number <= _FEW:
        key = of_bin.astype(np.uint8)[flat // width]
        found = [np.flatnonzero(key == step) for step in range(steps.number)]
        return [(places[numbers], numbers) for numbers in found]
    number = np.array([steps.mine(step) for step in range(steps.number)], np.int64)
    first = np.cumsum(number) - number
    order, _ = _core.divide_elements(flat, width, of_bin.astype(np.uint32), first)
    numbers, there = np.empty_like(order), np.empty_like(order)
    numbers[order], there[order] = np.arange(len(order)), places
    cuts = np.cumsum(number)[:-1]
    return list(zip(np.split(there, cuts), np.split(numbers, cuts), strict=True))


class ByMessages:
    """
    As messages, packed: one for each owner and step.

    Parameters
    ----------
    transport
        The ranks.
    steps, flat, width, part
        As for `InSlots`.
    owner
        The number of this rank among the owners, if it is one.
    """

    def __init__(
        self,
        transport: Transport,
        steps: Steps,
        flat: NDArray[np.int64],
        width: int,
        part: NDArray[np.uint32],
        owner: int | None,
    ) -> None:
        self._group, self._steps, self._owner = transport, steps, owner
        counts = steps.counts.reshape(-1)
        starts = np.cumsum(counts) - counts
        places, _ = _core.divide_elements(flat, width, part, starts)
        self._order = np.empty_like(places)
        self._order[places] = np.arange(len(places))
        self._starts = np.append(starts, len(places))

    @contextmanager
    def held(self, row: int, failures: Failures, *, ahead: bool) -> Iterator[None]:
        """Count what travels at once in the budget; if it does not fit, this rank has failed."""
        every = range(self._steps.number)
        mine = max((self._steps.mine(step) for step in every), default=0)
        owned = max((self._steps.owned(step, self._owner) for step in every), default=0)
        held: _core.Reservation | None = None
        with failures.caught():
            # What is put in order is a copy, too.
            nbytes = (2 * mine + (1 + ahead) * owned) * row
            held = _core.Reservation("elements on their way between ranks", nbytes)
        try:
            yield
        finally:
            if held is not None:
                held.release()

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """New memory."""
        return np.empty(nbytes, np.uint8)

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send what was read, and put what comes in order."""
        with Unsure(self._group, "gather_all"):
            mine = self._mine(step)
            back = np.empty(len(mine) * row, np.uint8)
            to, of = self._owned(step) * row, self._given(step) * row
            self._group.start_exchange(data, to, back, of).wait()
        if back.size:
            rows.reshape(-1, row)[mine] = back.reshape(-1, row)

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send values in the order of the owners."""
        with Unsure(self._group, "scatter_all"):
            mine = self._mine(step)
            send = rows.reshape(-1, row)[mine].reshape(-1) if rows.size else np.empty(0, np.uint8)
            to, of = self._given(step) * row, self._owned(step) * row
            self._group.start_exchange(send, to, room, of).wait()

    def _mine(self, step: int) -> NDArray[np.int64]:
        first, owners = self._steps.round(step) * len(self._steps.owners), self._steps.of(step)
        low, high = self._starts[first + owners.start], self._starts[first + owners.stop]
        return self._order[int(low) : int(high)]

    def _given(self, step: int) -> NDArray[np.int64]:
        """Elements that this rank has for each, of a step."""
        to = np.zeros(self._group.size, np.int64)
        for owner in self._steps.of(step):
            to[self._steps.owners[owner]] = self._steps.counts[self._steps.round(step), owner]
        return to

    def _owned(self, step: int) -> NDArray[np.int64]:
        """Elements that each rank has for this one, of a step."""
        if self._owner is None or self._owner not in self._steps.of(step):
            return np.zeros(self._group.size, np.int64)
        return self._steps.theirs[:, self._steps.round(step)].copy()


def rows_in(room: NDArray[np.uint8], like: NDArray[Any], number: int) -> NDArray[Any]:
    """Bytes as packed rows, as those of another array."""
    shape = (number, *like.shape[1:])
    return room.view(like.dtype).reshape(shape) if room.size else np.empty(shape, like.dtype)


def bytes_of(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Packed rows as bytes."""
    return rows.reshape(-1).view(np.uint8) if rows.size else np.empty(0, np.uint8)
