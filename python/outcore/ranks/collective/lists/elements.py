"""
Movement of listed elements between the ranks that request them and their owners.

Problem. An owner has the elements of a step one after another, for each rank those that it requested. A
rank needs them in the order of its list. With packed messages, each element is copied three times
(packed, sent, reordered), and reordering misses the caches for each element.

Approach. Ranks of one node share the owners' memory (`SlotExchange`): a rank reads its elements from the
slots of all owners, or writes them there, in the order of its list. Its elements are stored in a slot
window by window of the file, and within a window in the order of the list. Walking the list therefore
reads (or writes) as many streams as there are windows, each of them forwards
(``crates/compute/src/regions.rs``). The owner, whose own list has the same order, fills one window after
another, and each fits the processor cache. Between nodes, elements are sent as packed messages
(`MessageExchange`).

    a list, by window of each element     1  1  0  1  0  2  ...
    what a rank has in a slot             0: third, fifth ...  1: first, second, fourth ...  2: sixth ...

Invariants. A rank accesses only its own region of a slot. The owner of a slot reads or writes it only
between the agreements that exclude accesses of the others.

Reference: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
section 3.1.1 (communication coalescing); the order is that of one pass of a radix sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError
from outcore.ranks.agreement import Failures, StopGroupOnError
from outcore.ranks.transport import Transport
from outcore.ranks.transport.sharing import Slots, get_slots, unpin_slots

__all__ = [
    "ElementExchange",
    "ElementSteps",
    "MessageExchange",
    "SlotExchange",
    "view_bytes",
    "view_rows",
]

# Bits of a position below the number of the owner (``regions.rs``).
_REGION = 40
# Bytes of a window, which fits the second-level cache of a processor; and maximum number of streams.
_WINDOW, _STREAMS = 1 << 20, 512
# Number of steps up to which each is searched in a separate pass over the list; more steps are found in
# one pass.
_FEW = 4


@dataclass(frozen=True)
class ElementSteps:
    """
    The elements of each step, and their numbers; a step is a round of the owners of one group.

    `owners` has the rank of each owner. `counts` has this rank's elements for each owner, and `before`
    those of lower ranks, of shape ``(rounds, owners)``. `theirs` has the elements of each rank for this
    one, of shape ``(ranks, rounds)``: zeros if it owns nothing.
    """

    owners: list[int]
    rounds: int
    groups: int
    counts: NDArray[np.int64]
    theirs: NDArray[np.int64]
    before: NDArray[np.int64]

    @property
    def number(self) -> int:
        """Number of steps."""
        return self.rounds * self.groups

    def get_round(self, step: int) -> int:
        """Return the round of a step."""
        return step // self.groups

    def get_owners(self, step: int) -> range:
        """Return the numbers of the owners that are active in a step."""
        group, many = step % self.groups, len(self.owners)
        return range(many * group // self.groups, many * (group + 1) // self.groups)

    def find_groups(self, owner: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the groups of owners with these numbers."""
        cuts = [len(self.owners) * (k + 1) // self.groups for k in range(self.groups)]
        found: NDArray[np.int64] = np.searchsorted(cuts, owner, side="right")
        return found

    def count_mine(self, step: int) -> int:
        """Return the number of this rank's elements in a step."""
        owners = self.get_owners(step)
        return int(self.counts[self.get_round(step), owners.start : owners.stop].sum())

    def count_owned(self, step: int, owner: int | None) -> int:
        """Return the number of elements that this rank owns in a step."""
        if owner is None or owner not in self.get_owners(step):
            return 0
        return int(self.theirs[:, self.get_round(step)].sum())


class ElementExchange(Protocol):
    """Interface: movement of elements between owners and ranks."""

    def reserve(self, row: int, failures: Failures, *, ahead: bool) -> Any:
        """Return a context that reserves memory for rows of this size; record failures."""

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """Return memory of an owner for its elements of a step."""

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send the elements that owners have read (`data`) to the ranks; store this rank's in `rows`."""

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send the values in `rows` to the owners, into their `room`."""


class SlotExchange:
    """
    Movement through slots in the shared memory of the node; all ranks are on it.

    `flat` has this rank's element numbers, `width` the elements per bin, and `own` the number of this
    rank's elements in each bin. `part` has the round and owner of each bin: ``round * owners + owner``.
    """

    def __init__(
        self,
        transport: Transport,
        steps: ElementSteps,
        flat: NDArray[np.int64],
        width: int,
        part: NDArray[np.uint32],
        own: NDArray[np.int64],
        row: int,
    ) -> None:
        self._group, self._steps = transport, steps
        owners = len(steps.owners)
        # Start of the elements of each window of the file in this rank's region of a part.
        each = max(_WINDOW // max(width * row, 1), -(-len(part) // _STREAMS), 1)
        windows = len(part) // each + 1
        #: Elements per window: the elements of a window are contiguous in a rank's region.
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
        step = its // owners * steps.groups + steps.find_groups(its % owners)
        self._each: list[tuple[NDArray[np.int64], NDArray[np.int64] | None]] = [(places, None)]
        if steps.number > 1:
            self._each = _divide_by_step(steps, flat, width, step[fine], places)
        self._most = 0
        self._slots: Slots | None = None

    def agree_on_most(self) -> None:
        """Agree on the largest number of elements that a rank owns in a step. Collective."""
        most = self._steps.theirs.sum(axis=0).max(initial=0)
        self._most = self._group.agree(int(most))

    @contextmanager
    def reserve(self, row: int, failures: Failures, *, ahead: bool) -> Iterator[None]:
        """Reserve slots: two if there are several steps. Collective: all ranks get theirs, or fail."""
        turns = min(self._steps.number, 2)
        nbytes = max(self._most * row, 1)
        try:
            with failures.catch():
                self._slots = get_slots(self._group, nbytes, turns, turns * 4 * nbytes, nbytes)
            yield
        finally:
            self._slots = None
            unpin_slots(self._group)

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the slot of this rank, of this many bytes."""
        return self._get_slots().mine(step)[:nbytes]

    def _get_slots(self) -> Slots:
        if self._slots is None:
            raise CollectiveError("a rank has no slots", code="rank-failed")
        return self._slots

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Read this rank's elements from the slots."""
        places, numbers = self._each[step]
        if places.size:
            _core.take_rows(self._view_regions(step, row), places, rows, row, numbers)

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Write this rank's values into the slots."""
        places, numbers = self._each[step]
        if places.size:
            _core.put_rows(self._view_regions(step, row), places, rows, row, numbers)

    def _view_regions(self, step: int, row: int) -> list[NDArray[np.uint8]]:
        """Return this rank's region in the slot of each owner."""
        steps, slots = self._steps, self._get_slots()
        # There is never more than one view of the same bytes: the core lends each view once.
        found = [np.empty(0, np.uint8) for _ in steps.owners]
        number = steps.get_round(step)
        for owner in steps.get_owners(step):
            low = int(steps.before[number, owner]) * row
            high = low + int(steps.counts[number, owner]) * row
            if low < high:
                found[owner] = slots.of(steps.owners[owner], step)[low:high]
        return found


def _divide_by_step(
    steps: ElementSteps,
    flat: NDArray[np.int64],
    width: int,
    of_bin: NDArray[np.int64],
    places: NDArray[np.int64],
) -> list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
    """Return per step the places of its elements and their positions in the list, from `of_bin`."""
    if steps.number <= _FEW:
        key = of_bin.astype(np.uint8)[flat // width]
        found = [np.flatnonzero(key == step) for step in range(steps.number)]
        return [(places[numbers], numbers) for numbers in found]
    number = np.array([steps.count_mine(step) for step in range(steps.number)], np.int64)
    first = np.cumsum(number) - number
    order, _ = _core.divide_elements(flat, width, of_bin.astype(np.uint32), first)
    numbers, there = np.empty_like(order), np.empty_like(order)
    numbers[order], there[order] = np.arange(len(order)), places
    cuts = np.cumsum(number)[:-1]
    return list(zip(np.split(there, cuts), np.split(numbers, cuts), strict=True))


class MessageExchange:
    """
    Movement as packed messages: one for each owner and step. Arguments as for `SlotExchange`.

    `owner` is the number of this rank among the owners, if it is one.
    """

    def __init__(
        self,
        transport: Transport,
        steps: ElementSteps,
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
    def reserve(self, row: int, failures: Failures, *, ahead: bool) -> Iterator[None]:
        """Reserve memory for the messages of a step; record a failure if it does not fit."""
        every = range(self._steps.number)
        mine = max((self._steps.count_mine(step) for step in every), default=0)
        owned = max((self._steps.count_owned(step, self._owner) for step in every), default=0)
        with ExitStack() as held:
            with failures.catch():
                # Reordered elements are a copy, too.
                nbytes = (2 * mine + (1 + ahead) * owned) * row
                held.enter_context(_core.Reservation("elements on their way between ranks", nbytes))
            yield

    def room(self, step: int, nbytes: int) -> NDArray[np.uint8]:
        """Return new memory."""
        return np.empty(nbytes, np.uint8)

    def give(self, step: int, data: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send the elements that were read, and reorder the received ones."""
        with StopGroupOnError(self._group, "gather_all"):
            mine = self._find_own(step)
            back = np.empty(len(mine) * row, np.uint8)
            to, of = self._count_from_ranks(step) * row, self._count_for_ranks(step) * row
            self._group.start_exchange(data, to, back, of).wait()
        if back.size:
            rows.reshape(-1, row)[mine] = back.reshape(-1, row)

    def bring(self, step: int, room: NDArray[np.uint8], rows: NDArray[np.uint8], row: int) -> None:
        """Send values in the order of the owners."""
        with StopGroupOnError(self._group, "scatter_all"):
            mine = self._find_own(step)
            send = rows.reshape(-1, row)[mine].reshape(-1) if rows.size else np.empty(0, np.uint8)
            to, of = self._count_for_ranks(step) * row, self._count_from_ranks(step) * row
            self._group.start_exchange(send, to, room, of).wait()

    def _find_own(self, step: int) -> NDArray[np.int64]:
        first, owners = (
            self._steps.get_round(step) * len(self._steps.owners),
            self._steps.get_owners(step),
        )
        low, high = self._starts[first + owners.start], self._starts[first + owners.stop]
        return self._order[int(low) : int(high)]

    def _count_for_ranks(self, step: int) -> NDArray[np.int64]:
        """Return the number of elements of this rank for each rank, in a step."""
        to = np.zeros(self._group.size, np.int64)
        for owner in self._steps.get_owners(step):
            to[self._steps.owners[owner]] = self._steps.counts[self._steps.get_round(step), owner]
        return to

    def _count_from_ranks(self, step: int) -> NDArray[np.int64]:
        """Return the number of elements of each rank for this one, in a step."""
        if self._owner is None or self._owner not in self._steps.get_owners(step):
            return np.zeros(self._group.size, np.int64)
        return self._steps.theirs[:, self._steps.get_round(step)].copy()


def view_rows(room: NDArray[np.uint8], like: NDArray[Any], number: int) -> NDArray[Any]:
    """Return bytes as packed rows like those of another array."""
    shape = (number, *like.shape[1:])
    return room.view(like.dtype).reshape(shape) if room.size else np.empty(shape, like.dtype)


def view_bytes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Return packed rows as bytes."""
    return rows.reshape(-1).view(np.uint8) if rows.size else np.empty(0, np.uint8)
