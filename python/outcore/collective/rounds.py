"""
The rounds of a two-phase collective: the only loop that alternates I/O and messages.

Reading. In round `k` each owner has a tile, or a batch of small ones, in its slot. Ranks of its node
copy what they want out of it; others are sent theirs, packed (`packets`). Meanwhile the owner reads the
next batch into another slot, and then the one after it where it has three slots.

    read 0, 1 | agree | copy 0, read 2 | agree | copy 1, read 3 | ...

Writing is the mirror: ranks copy into the slots, or send; then the owner writes its tile. What nobody
gives of a tile is read first (`holes`): as soon as the slot is free, while other rounds are exchanged.

    holes 0, 1, 2 | agree | copy 0 | agree | write 0, holes 3 | copy 1 | ...

Where several ranks give the same element the highest one
wins, as in the paper: the plan leaves it out of the others' sections, so the order does not matter.
Where it cannot, all goes by messages, which the owner unpacks in the order of the ranks.

Each round begins with an agreement, which is also the synchronisation after which ranks read the slots.
A rank that failed says so there, and all stop; until then it goes on taking part.

Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
Arrays", sections 3.1 (reading), 3.2 (writing); No and others, "Irregular Collective I/O", section
3.2 (pipelined groups).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective.agreement import Unsure
from outcore.collective.holes import Ranges, key_of, ways, within
from outcore.collective.items import Item
from outcore.collective.packets import Packets
from outcore.collective.price import price
from outcore.collective.slots import Slots, slots_of
from outcore.collective.traffic import Failures
from outcore.disk import DiskArray
from outcore.errors import InternalError
from outcore.requests import IORequest, start
from outcore.transport import Transport

__all__ = ["Work", "read_rounds", "write_rounds"]


# The tiles of a batch are accessed by so many threads at once.
_SIDE_BY_SIDE = 4
# Tiles of less than so many bytes are read in one call.
_SMALL = 256 << 10
# What a rank says that failed: more than any number that is agreed on.
_FAILED = 1 << 60
# An array, a section, and where to read it to.
Part = tuple[_core.Array, tuple[slice, ...], NDArray[Any]]


@dataclass(frozen=True)
class Step:
    """
    One exchange.

    Parameters
    ----------
    k
        The round: number of the batches.
    mine
        Whether this rank is one of the owners whose tiles are exchanged.
    near, far
        These owners, on this node and on others.
    """

    k: int
    mine: bool
    near: list[int]
    far: list[int]


@dataclass
class Work:
    """
    What one rank works with in a collective.

    Parameters
    ----------
    transport
        The ranks.
    plan
        Who owns what; equal on all ranks.
    arrays
        The arrays of the plan, by number; None where this rank has not opened one (it owns nothing
        of it then).
    items
        This rank's sections, by number.
    groups
        How many groups of owners take turns. Neighbours are in different ones, so that each group
        has ranks of all nodes.
    slots
        How many slots a rank has.
    room
        Bytes that the slots of a rank may have, all together.
    """

    transport: Transport
    plan: _core.Collective
    arrays: list[DiskArray | None]
    items: list[Item]
    groups: int = 1
    slots: int = 2
    room: int = 0

    def __post_init__(self) -> None:
        nodes = self.transport.nodes
        self.rank = self.transport.rank
        self.memory = [item.memory for item in self.items]
        owners = self.plan.owners()
        self.near = [rank for rank in owners if nodes[rank] == nodes[self.rank]]
        self.far = [rank for rank in owners if nodes[rank] != nodes[self.rank]]
        self.far_ranks = [r for r in range(len(nodes)) if nodes[r] != nodes[self.rank]]
        self.group = {rank: number % self.groups for number, rank in enumerate(owners)}
        self.steps = self.plan.rounds * self.groups

    def agree(self, failures: _Failures, number: int) -> int | None:
        """Agree on the largest number of any rank; None if a rank failed."""
        largest = self.transport.agree(_FAILED if failures.code else number)
        return None if largest == _FAILED else largest

    def synchronise(self, failures: _Failures) -> bool:
        """Agree on whether any rank failed."""
        return self.agree(failures, 0) is None

    def copy(self, step: Step, slots: Slots, *, write: bool = False) -> None:
        """Copy between this rank's sections and the slots of its node."""
        near = [(owner, slots.of(owner, step.k)) for owner in step.near]
        self.plan.copy(step.k, self.rank, near, self.memory, write)

    def awaited(self, what: str) -> AbstractContextManager[None]:
        """While ranks of other nodes wait for messages: what is raised then stops them."""
        return Unsure(self.transport, what) if self.far_ranks else nullcontext()

    def all_by_messages(self) -> None:
        """Send everything, to ranks of this node and to itself too."""
        self.near, self.far = [], self.plan.owners()
        self.far_ranks = list(range(self.transport.size))

    def step(self, number: int) -> Step:
        """Give a step: the round, and whose turn it is."""
        k, group = divmod(number, self.groups)

        def turn(ranks: list[int]) -> list[int]:
            return [r for r in ranks if self.group[r] == group and self.tiles(r, k)]

        mine = self.group.get(self.rank) == group and bool(self.tiles(self.rank, k))
        return Step(k, mine, turn(self.near), turn(self.far))

    def array(self, number: int) -> DiskArray:
        """Give an array that this rank owns a part of."""
        array = self.arrays[number]
        if array is None:
            raise InternalError(f"array {number} is not open here", code="broken-plan")
        return array

    def tiles(self, owner: int, k: int) -> range:
        """Tell which tiles an owner has in its slot in round `k`."""
        return range(*self.plan.batch(owner, k))

    def tile(self, n: int) -> tuple[int, Ranges]:
        """Give tile `n` of this rank: number of the array, and section."""
        tile = self.plan.tile(self.rank, n)
        if tile is None:
            raise InternalError(f"there is no tile {n}", code="broken-plan")
        return tile

    def filled(self) -> int:
        """Tell about how many bytes an owner's slots will take, in all rounds, without gaps."""
        plan = self.plan
        owners = max(len(plan.owners()), 1)
        return min(plan.given_bytes // owners, plan.rounds * plan.slot_bytes)

    def view(self, slot: NDArray[np.uint8], n: int) -> NDArray[Any]:
        """See in this rank's slot the array that tile `n` is, packed in the order of the file."""
        number, ranges = self.tile(n)
        slot = slot[self.plan.place(self.rank, n) :]
        array = self.array(number)
        order = _order(array)
        counts = [ranges[axis][1] for axis in order]
        nbytes = int(np.prod(counts, dtype=np.int64)) * array.dtype.itemsize
        packed = slot[:nbytes].view(array.dtype).reshape(counts)
        return packed.transpose(np.argsort(order)) if order else packed


def _order(array: DiskArray) -> list[int]:
    descriptor = array._core.descriptor()
    return descriptor[3 : 3 + descriptor[2]]


class _Failures(Failures):
    """What went wrong on this rank, also in work that was started."""

    def finish(self, requests: list[IORequest[None]]) -> None:
        """Wait for started work, and forget it; how it ended counts."""
        while requests:
            one = requests.pop()
            with self.caught():
                one.wait()
            while not one.done:  # the wait was interrupted
                with self.caught():
                    one.wait()

    @property
    def code(self) -> int:
        return int(self.first is not None)


def _in_background(work: Callable[[], None], what: str) -> IORequest[None]:
    return start(work, what)


def _shared_out(work: list[Callable[[], None]]) -> list[Callable[[], None]]:
    """Work on the tiles of a batch for so many threads, in order within a thread."""

    def run(some: list[Callable[[], None]]) -> Callable[[], None]:
        def each() -> None:
            for one in some:
                one()

        return each

    most = min(len(work), _SIDE_BY_SIDE)
    return [run(work[k::most]) for k in range(most)]


def _side_by_side(work: list[Callable[[], None]], what: str) -> list[IORequest[None]]:
    """Start work on the tiles of a batch."""
    return [_in_background(one, what) for one in _shared_out(work)]


# ------------------------------------------------------------------------------------- reading


def read_rounds(work: Work) -> BaseException | None:
    """Run the rounds of a read; returns this rank's failure, if any rank failed (else raises none)."""
    return _in_slots(work, _read_rounds)


def _in_slots(
    work: Work, rounds: Callable[[Work, Slots, list[list[IORequest[None]]], _Failures], bool]
) -> BaseException | None:
    """
    Run rounds in slots; when this returns, nothing that they started is under way.

    `rounds` puts what it starts into lists, one for each slot, and tells whether a rank failed.
    """
    failures = _Failures()
    slots = _take_slots(work, failures)
    if slots is None:
        # Memory may be short on this node alone. The others hear of it where they next agree, which they
        # do before anybody looks at the slot of another rank.
        work.synchronise(failures)
        return _outcome(failures, True)
    started: list[list[IORequest[None]]] = [[] for _ in range(slots.number)]
    try:
        failed = rounds(work, slots, started, failures)
    finally:
        # However this ends: nothing is under way in a slot that is reclaimable, or used otherwise.
        for one in started:
            failures.finish(one)
    if not failed:
        # Also the synchronisation after which slots may be used for something else.
        failed = work.synchronise(failures)
    return _outcome(failures, failed)


def _read_rounds(
    work: Work, slots: Slots, reading: list[list[IORequest[None]]], failures: _Failures
) -> bool:
    """Read and exchange, until all rounds are over or any rank failed; tells whether one did."""
    # By steps. Groups of owners take turns: a step ahead is another group's.
    ahead = slots.number - 1 if work.groups == 1 else 1
    with failures.caught():
        for number in range(ahead):
            reading[number] += _read_ahead(work, slots, number, reading[number - 1])
    for number in range(work.steps):
        started, before = reading[number % ahead], reading[(number - 1) % ahead]
        go_on = partial(_go_on_reading, work, slots, number + ahead, started, before)
        if _exchange(work, slots, work.step(number), started, failures, go_on, write=False):
            return True
    return False


def _go_on_reading(
    work: Work,
    slots: Slots,
    number: int,
    started: list[IORequest[None]],
    before: list[IORequest[None]],
) -> None:
    started += _read_ahead(work, slots, number, before)


def _exchange(
    work: Work,
    slots: Slots,
    step: Step,
    started: list[IORequest[None]],
    failures: _Failures,
    go_on: Callable[[], None] | None = None,
    *,
    write: bool,
) -> bool:
    """Exchange in a step, once what was `started` in its slot is over; tells whether a rank failed."""
    if step.mine:
        failures.finish(started)
    with Packets(work, step, slots.mine(step.k), write=write) as packets:
        with failures.caught():
            packets.make()
        need = work.agree(failures, packets.need)
        if need is None:
            return True
        if go_on is not None:
            with failures.caught():
                go_on()
        copy = partial(work.copy, step, slots, write=write)
        with work.awaited("a collective write" if write else "a collective read"):
            packets.exchange(need, copy, failures)
    return False


def _take_slots(work: Work, failures: _Failures) -> Slots | None:
    taken: list[Slots] = []
    with failures.caught():
        plan = work.plan
        taken.append(
            slots_of(work.transport, plan.slot_bytes, work.slots, work.room, work.filled())
        )
    return taken[0] if taken else None


def _outcome(failures: _Failures, failed: bool) -> BaseException | None:
    if not failed:
        return None
    return failures.first or Elsewhere()


class Elsewhere(Exception):
    """Some other rank failed."""


def _read_ahead(
    work: Work, slots: Slots, number: int, before: list[IORequest[None]]
) -> list[IORequest[None]]:
    """
    Start to read what this rank holds in a step, if anything; once it has what it reads `before`.

    Steps that are read side by side end at the same time: then the disk has nothing to do while that is
    exchanged.
    """
    step = work.step(number)
    if not step.mine:
        return []
    slot, what = slots.mine(step.k), f"round {step.k} of a collective read"
    earlier = tuple(before)
    needed = [_needed(work, slot, n) for n in work.tiles(work.rank, step.k)]
    if all(sum(part.nbytes for _, _, part in parts) < _SMALL for parts in needed):
        # One call, and threads that know nothing of Python.
        every = [part for parts in needed for part in parts]
        return [_in_background(lambda: _read_parts(every, earlier), what)]

    def reading(parts: list[Part]) -> Callable[[], None]:
        return lambda: _read_parts(parts, earlier)

    return _side_by_side([reading(parts) for parts in needed], what)


def _read_parts(parts: list[Part], earlier: tuple[IORequest[None], ...]) -> None:
    for one in earlier:
        one.finish()
    _core.read_many(parts, lanes=_SIDE_BY_SIDE)


def _needed(work: Work, slot: NDArray[np.uint8], n: int) -> list[Part]:
    """Give what is to be read of tile `n`: its wanted part as a whole, or piece by piece."""
    number, ranges = work.tile(n)
    array = work.array(number)
    view = work.view(slot, n)
    wanted = work.plan.wanted(work.rank, n)
    if wanted is None:
        return []
    held, elements, useful, pieces = wanted
    parts = [held]
    if useful < elements and 1 < pieces <= 64 and not work.plan.encoded(number):
        apart: list[Ranges] = []
        for _, _, piece in work.plan.table(work.rank, n):
            if piece not in apart:
                apart.append(piece)
        if sum(price(array, key_of(piece)) for piece in apart) < price(array, key_of(held)):
            parts = apart
    return [(array._core, key_of(part), view[within(part, ranges)]) for part in parts]


# ------------------------------------------------------------------------------------- writing


def write_rounds(work: Work) -> BaseException | None:
    """Run the rounds of a write; returns as `read_rounds`."""
    if work.plan.in_order:
        work.all_by_messages()
    return _in_slots(work, _write_rounds)


def _write_rounds(
    work: Work, slots: Slots, writing: list[list[IORequest[None]]], failures: _Failures
) -> bool:
    """Exchange and write, until all rounds are over or any rank failed; tells whether one did."""
    turns = [_Turn(started) for started in writing]
    if _fill_first(work, slots, turns, failures):
        return True
    for number in range(work.steps):
        step = work.step(number)
        turn = turns[step.k % slots.number]
        if _exchange(work, slots, step, turn.started, failures, write=True):
            return True
        if work.groups > 1:
            # The next group begins to write after this synchronisation.
            for other in turns:
                failures.finish(other.started)
        if work.synchronise(failures):
            return True
        with failures.caught():
            if step.mine:
                turn.go_on(work, slots, step.k + slots.number)
    return False


class _Turn:
    """A slot of an owner that writes: what goes on in it, and what will write what it holds."""

    def __init__(self, started: list[IORequest[None]]) -> None:
        self.started = started
        self.writes: list[Callable[[], None]] = []

    def go_on(self, work: Work, slots: Slots, k: int) -> None:
        """
        Start to write what the slot holds, and after that to read the holes of round `k` into it.

        Holes are what nobody gives in this collective, so they may be read long before their turn,
        whatever is being written elsewhere.
        """
        writes = self.writes
        tiles = [ways(work, slots.mine(k), n) for n in work.tiles(work.rank, k)]
        reads = [read for tile, _ in tiles for read in tile]
        self.writes = [write for _, tile in tiles for write in tile]
        what = f"round {k} of a collective write"
        if not writes:
            self.started += _side_by_side(reads, what)
            return
        left, lock = min(len(writes), _SIDE_BY_SIDE), threading.Lock()

        def then(write: Callable[[], None]) -> Callable[[], None]:
            def both() -> None:
                nonlocal left
                write()
                with lock:
                    left -= 1
                    last = not left
                if last:
                    self.started += _side_by_side(reads, what)

            return both

        self.started += [_in_background(then(write), what) for write in _shared_out(writes)]


def _fill_first(work: Work, slots: Slots, turns: list[_Turn], failures: _Failures) -> bool:
    """Start to read the holes of the first rounds; groups do so in turn. Tells whether a rank failed."""
    for group in range(work.groups):
        with failures.caught():
            if work.group.get(work.rank) == group:
                for k, turn in enumerate(turns):
                    turn.go_on(work, slots, k)
        if work.groups > 1:
            for turn in turns:
                failures.finish(turn.started)
            if work.synchronise(failures):
                return True
    return False
