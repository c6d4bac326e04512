"""
The rounds of a two-phase collective: the only loop that alternates I/O and messages.

Reading. In round `k` each owner has a tile, or a batch of small ones, in its slot. Ranks of its node
copy what they want out of it; others are sent theirs, packed. Meanwhile the owner reads the next batch
into another slot, and the one after it where it has three slots.

    read 0, 1 | agree | copy 0, read 2 | agree | copy 1, read 3 | ...

Writing is the mirror: ranks copy into the slots, or send; then the owner writes its tile. What nobody
gives of a tile is read first, but only there. Where two ranks give the same element all goes by
messages, which the owner unpacks in the order of the ranks: the highest rank wins, as in the paper.

Each round begins with an agreement, which is also the meeting after which slots may be looked at. A
rank that failed says so there, and all stop: whoever fails goes on taking part until then.

Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
Arrays", sections 3.1 (reading), 3.2 (writing); No and others, "Irregular Collective I/O", section
3.2 (pipelined groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective.items import Item
from outcore.collective.pace import clock_of
from outcore.collective.price import price
from outcore.collective.slots import Slots, slots_of
from outcore.disk import DiskArray
from outcore.errors import InternalError
from outcore.requests import IORequest, start
from outcore.transport import Transport

__all__ = ["Work", "read_rounds", "write_rounds"]

Ranges = list[tuple[int, int, int]]
# A tile of which less than this part is given is written piece by piece, not read first.
_SPARSE = 4
# The tiles of a batch are accessed by so many threads at once.
_SIDE_BY_SIDE = 4


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
    """

    transport: Transport
    plan: _core.Collective
    arrays: list[DiskArray | None]
    items: list[Item]
    groups: int = 1
    slots: int = 2

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
        self.clock = clock_of(self.transport)
        # What a copy into new memory takes is the memory's.
        self.fresh = any(item.fresh for item in self.items)

    def meet(self, failures: _Failures) -> bool:
        """Agree on whether any rank failed."""
        return bool(self.clock.meet(self.transport.agree, failures.code))

    def copy(self, step: Step, slots: Slots, *, write: bool = False) -> None:
        """Copy between this rank's sections and the slots of its node."""
        near = [(owner, slots.of(owner, step.k)) for owner in step.near]

        def work() -> int:
            return self.plan.copy(step.k, self.rank, near, self.memory, write)

        if self.fresh:
            work()
        else:
            self.clock.copy(work)

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
    ground = array._core.ground()
    return ground[3 : 3 + ground[2]]


def _key(ranges: Ranges) -> tuple[slice, ...]:
    return tuple(slice(a, a + (n - 1) * s + 1, s) if n else slice(0, 0) for a, n, s in ranges)


def _within(part: Ranges, tile: Ranges) -> tuple[slice, ...]:
    """Where a part of a tile lies in the array that the tile is."""
    places = []
    for (a, n, s), (low, _, step) in zip(part, tile, strict=True):
        first, stride = (a - low) // step, max(s // step, 1)
        places.append(slice(first, first + (n - 1) * stride + 1, stride))
    return tuple(places)


class _Failures:
    """What went wrong on this rank: the first failure counts."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self.first is None:
                self.first = error

    def finish(self, requests: list[IORequest[None]]) -> None:
        """Wait for started work, and forget it; how it ended counts."""
        while requests:
            with self.caught():
                requests.pop().wait()

    @property
    def code(self) -> int:
        return int(self.first is not None)


def _in_background(work: Callable[[], None], what: str) -> IORequest[None]:
    return start(work, what)


def _side_by_side(work: list[Callable[[], None]], what: str) -> list[IORequest[None]]:
    """Start work on the tiles of a batch, in order within a thread."""

    def run(some: list[Callable[[], None]]) -> Callable[[], None]:
        def each() -> None:
            for one in some:
                one()

        return each

    most = min(len(work), _SIDE_BY_SIDE)
    return [_in_background(run(work[k::most]), what) for k in range(most)]


# ------------------------------------------------------------------------------------- reading


def read_rounds(work: Work) -> BaseException | None:
    """Run the rounds of a read; returns this rank's failure, if any rank failed (else raises none)."""
    failures = _Failures()
    transport, plan = work.transport, work.plan
    slots = _take_slots(work, failures)
    if slots is None:
        return _outcome(failures, True)
    # By steps. Groups of owners take turns: a step ahead is another group's.
    ahead = slots.number - 1 if work.groups == 1 else 1
    reading: list[list[IORequest[None]]] = [[] for _ in range(ahead)]
    failed = False
    with failures.caught():
        for number in range(ahead):
            reading[number] = _read_ahead(work, slots, number)
    for number in range(work.steps):
        step = work.step(number)
        if step.mine:
            failures.finish(reading[number % ahead])
        letters = _Letters()
        with failures.caught():
            letters = _pack_read(work, slots, step)
        if work.meet(failures):
            failed = True
            break
        with failures.caught():
            reading[number % ahead] += _read_ahead(work, slots, number + ahead)
        exchange = letters.start(transport)
        with failures.caught():
            work.copy(step, slots)
        with work.clock.receiving(letters.recv.size):
            exchange.wait()
        with failures.caught():
            plan.unpack(step.k, work.rank, step.far, letters.recv, work.memory)
        letters.close()
    for started in reading:
        failures.finish(started)
    if not failed:
        # Also the meeting after which slots may be used for something else.
        failed = work.meet(failures)
    return _outcome(failures, failed)


def _take_slots(work: Work, failures: _Failures) -> Slots | None:
    """Take slots on all nodes, or on none: memory may be short on one of them alone."""
    slots: Slots | None = None
    with failures.caught():
        slots = slots_of(work.transport, work.plan.slot_bytes, work.slots)
    return None if work.transport.agree(failures.code) else slots


def _outcome(failures: _Failures, failed: bool) -> BaseException | None:
    if not failed:
        return None
    return failures.first or Elsewhere()


class Elsewhere(Exception):
    """Some other rank failed."""


def _read_ahead(work: Work, slots: Slots, number: int) -> list[IORequest[None]]:
    """Start to read what this rank holds in a step, if anything."""
    step = work.step(number)
    if not step.mine:
        return []
    slot = slots.mine(step.k)
    reads = [_needed(work, slot, n) for n in work.tiles(work.rank, step.k)]
    return _side_by_side(reads, f"round {step.k} of a collective read")


def _needed(work: Work, slot: NDArray[np.uint8], n: int) -> Callable[[], None]:
    """Give what reads tile `n`: its wanted part as a whole, or piece by piece."""
    number, ranges = work.tile(n)
    array = work.array(number)
    view = work.view(slot, n)
    wanted = work.plan.wanted(work.rank, n)
    if wanted is None:
        return lambda: None
    held, elements, useful, pieces = wanted
    parts = [held]
    if useful < elements and 1 < pieces <= 64 and not work.plan.encoded(number):
        apart: list[Ranges] = []
        for _, _, piece in work.plan.table(work.rank, n):
            if piece not in apart:
                apart.append(piece)
        if sum(price(array, _key(piece)) for piece in apart) < price(array, _key(held)):
            parts = apart

    def read() -> None:
        for part in parts:
            array._core.read(_key(part), view[_within(part, ranges)])

    return read


# ------------------------------------------------------------------------------------- messages


class _Letters:
    """What this rank sends to ranks of other nodes in a round, and what comes from there."""

    def __init__(self, size: int = 0) -> None:
        self.to = np.zeros(size, np.int64)
        self.of = np.zeros(size, np.int64)
        self.send = np.empty(0, np.uint8)
        self.recv = np.empty(0, np.uint8)
        self.held: list[_core.Reservation] = []

    def make(self) -> None:
        """Take the buffers, within the budget."""
        out, back = int(self.to.sum()), int(self.of.sum())
        self.held.append(_core.Reservation("collective", out + back))
        self.send = np.empty(out, np.uint8)
        self.recv = np.empty(back, np.uint8)

    def start(self, transport: Transport) -> Any:
        """Send; nothing if all ranks are on one node."""
        if not len(self.to):
            return _Nothing()
        return transport.start_exchange(self.send, self.to, self.recv, self.of)

    def close(self) -> None:
        for held in self.held:
            held.release()
        self.held.clear()


class _Nothing:
    def wait(self) -> None:
        pass


def _letters(work: Work, step: Step, *, write: bool) -> _Letters:
    """Buffers for what goes between owners and ranks of other nodes in a step."""
    if not work.far_ranks:
        return _Letters()
    size, plan = work.transport.size, work.plan
    letters = _Letters(size)
    to, of = (letters.of, letters.to) if write else (letters.to, letters.of)
    if step.mine:
        counts = plan.counts(work.rank, plan.batch(work.rank, step.k), size)
        to[work.far_ranks] = np.array(counts, np.int64)[work.far_ranks]
    for owner in step.far:
        of[owner] = plan.share(owner, plan.batch(owner, step.k), work.rank)
    letters.make()
    return letters


def _pack_read(work: Work, slots: Slots, step: Step) -> _Letters:
    """Pack what ranks of other nodes want of this rank's tile."""
    letters = _letters(work, step, write=False)
    if work.far_ranks and step.mine:
        work.plan.pack(work.rank, step.k, slots.mine(step.k), work.far_ranks, letters.send)
    return letters


# ------------------------------------------------------------------------------------- writing


def write_rounds(work: Work, overlap: bool) -> BaseException | None:
    """Run the rounds of a write; returns as `read_rounds`."""
    failures = _Failures()
    transport, plan = work.transport, work.plan
    slots = _take_slots(work, failures)
    if slots is None:
        return _outcome(failures, True)
    writing: list[list[IORequest[None]]] = [[] for _ in range(slots.number)]
    if overlap:
        work.all_by_messages()
    failed = False
    for number in range(work.steps):
        step = work.step(number)
        turn = step.k % slots.number
        if step.mine:
            failures.finish(writing[turn])
        letters = _Letters()
        steps: list[Callable[[], None]] = []
        with failures.caught():
            letters = _pack_write(work, step)
            steps = _prepare_writes(work, slots, step, overlap)
        if work.meet(failures):
            failed = True
            break
        exchange = letters.start(transport)
        with failures.caught():
            work.copy(step, slots, write=True)
        with work.clock.receiving(letters.recv.size):
            exchange.wait()
        with failures.caught():
            if step.mine and work.far_ranks:
                mine = slots.mine(step.k)
                plan.pack(work.rank, step.k, mine, work.far_ranks, letters.recv, True)
        letters.close()
        if work.groups > 1:
            # The next group begins to write after this meeting.
            for started in writing:
                failures.finish(started)
        if work.meet(failures):
            failed = True
            break
        with failures.caught():
            writing[turn].extend(_side_by_side(steps, f"round {step.k} of a collective write"))
    for started in writing:
        failures.finish(started)
    if not failed:
        failed = work.meet(failures)
    return _outcome(failures, failed)


def _pack_write(work: Work, step: Step) -> _Letters:
    """Pack what this rank gives to owners on other nodes."""
    letters = _letters(work, step, write=True)
    if work.far_ranks:
        work.plan.unpack(step.k, work.rank, step.far, letters.send, work.memory, True)
    return letters


def _prepare_writes(
    work: Work, slots: Slots, step: Step, overlap: bool
) -> list[Callable[[], None]]:
    """Read what nobody gives of this rank's tiles, if need be; returns what will write them."""
    writes: list[Callable[[], None]] = []
    if not step.mine:
        return writes
    reads: list[Callable[[], None]] = []
    for n in work.tiles(work.rank, step.k):
        read, write = _prepare_write(work, slots.mine(step.k), n, overlap)
        reads += read
        writes += write
    if len(reads) < 2:
        for read_one in reads:
            read_one()
        return writes
    failures = _Failures()
    failures.finish(_side_by_side(reads, f"round {step.k} of a collective write"))
    if failures.first is not None:
        raise failures.first
    return writes


def _prepare_write(
    work: Work, slot: NDArray[np.uint8], n: int, overlap: bool
) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
    """What is to be read of tile `n` before ranks copy into it, and what writes it."""
    number, ranges = work.tile(n)
    array = work.array(number)
    view = work.view(slot, n)
    wanted = work.plan.wanted(work.rank, n)
    if wanted is None:
        return [], []
    held, elements, useful, _ = wanted
    place = view[_within(held, ranges)]

    def read() -> None:
        # Past the page cache, the write would read the same pages again.
        array._core.read_to_write(_key(held), place)

    def write() -> None:
        array._core.write(_key(held), place)

    table = work.plan.table(work.rank, n)
    whole = any(_count(piece) == elements for _, _, piece in table)
    if whole or (useful == elements and not overlap):
        return [], [write]
    if not work.plan.encoded(number) and useful * _SPARSE < elements:
        # In the order of the ranks; what two of them give is in the slot once.
        pieces = [piece for _, _, piece in table]

        def write_pieces() -> None:
            for piece in pieces:
                array._core.write(_key(piece), view[_within(piece, ranges)])

        return [], [write_pieces]
    return [read], [write]


def _count(ranges: Ranges) -> int:
    count = 1
    for _, n, _ in ranges:
        count *= n
    return count
