"""
The rounds of a two-phase collective call: the only loop that alternates I/O and messages.

Reading. In round `k` each owner has a tile, or a batch of small ones, in its slot. Ranks of its node
copy their elements from it; ranks of other nodes receive theirs, packed (`packets`). At the same time
the owner reads the next batch into another slot, and with three slots then the one after it.

    read 0, 1 | agree | copy 0, read 2 | agree | copy 1, read 3 | ...

Writing works in the opposite direction: ranks copy into the slots, or send; then the owner writes its
tile. Elements of a tile that no rank writes (holes) are read first: as soon as the slot is free, while
other rounds are exchanged.

    holes 0, 1, 2 | agree | copy 0 | agree | write 0, holes 3 | copy 1 | ...

If several ranks write the same element, the highest one wins, as in the paper: the plan removes it from
the others' sections, so the order does not matter. If that is not possible, everything is sent as
messages, which the owner unpacks in the order of the ranks.

Each round begins with an agreement, which is also the synchronisation after which ranks read the slots.
A rank that failed reports it there, and all stop. Until then it continues to take part.

Reference: Thakur and Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
Arrays", sections 3.1 (reading), 3.2 (writing); No and others, "Irregular Collective I/O", section 3.2
(pipelined groups).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.report.phases import Seconds
from outcore.ranks.agreement import Failures, OtherRankError, StopGroupOnError
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.packets import Packets
from outcore.ranks.transport import Transport
from outcore.ranks.transport.sharing import Slots, get_slots

__all__ = ["CallState", "make_owner", "read_rounds", "write_rounds"]

# Whether tiles with holes are read first and written as a whole; None: if that costs less.
REWRITES: bool | None = None
# Number that a failed rank sends: larger than any number to agree on.
_FAILED = 1 << 60


def make_owner(
    plan: _core.Collective, rank: int, arrays: Sequence[DiskArray | None]
) -> _core.Owner:
    """
    Return a rank in its role as an owner.

    The hint `exclusive` applies to all ranks of the call together: it allows an owner to read and write
    back holes of its tiles. It does not apply to the accesses of a single rank.
    """
    cores = [None if array is None else array.handle.core for array in arrays]
    exclusive = [n for n, a in enumerate(arrays) if a is not None and a.handle.hints.exclusive]
    return _core.Owner(plan, rank, cores, REWRITES, exclusive)


@dataclass(frozen=True)
class ExchangeStep:
    """
    One exchange: round `k` of the batches of some owners, `near` on this node and `far` on others.

    `mine` is true if this rank is one of the owners.
    """

    k: int
    mine: bool
    near: list[int]
    far: list[int]


@dataclass
class CallState:
    """
    State of a collective call on one rank.

    `arrays` are those of the plan, by number; None if this rank has not opened one (it then owns
    nothing of it). `groups` of owners take turns. Neighbours are in different groups, so that each
    group has ranks of all nodes. `room` is the maximum number of bytes for all slots of a rank.
    """

    transport: Transport
    plan: _core.Collective
    arrays: list[DiskArray | None]
    items: list[Item]
    groups: int = 1
    slots: int = 2
    room: int = 0
    seconds: Seconds = field(default_factory=Seconds)

    def __post_init__(self) -> None:
        nodes = self.transport.nodes
        self.rank = self.transport.rank
        self.memory = [item.memory for item in self.items]
        self.owner = make_owner(self.plan, self.rank, self.arrays)
        self.owners = self.plan.owners()
        self.near = {rank for rank in self.owners if nodes[rank] == nodes[self.rank]}
        self.far_ranks = [r for r in range(len(nodes)) if nodes[r] != nodes[self.rank]]
        self.steps = self.plan.rounds * self.groups

    def agree(self, failures: Failures, number: int) -> int | None:
        """Return the largest number of any rank; None if a rank failed."""
        began = perf_counter()
        largest = self.transport.agree(number if failures.first is None else _FAILED)
        self.seconds["wait", get_ident()] += perf_counter() - began
        return None if largest == _FAILED else largest

    def synchronise(self, failures: Failures) -> bool:
        """Return whether any rank failed."""
        return self.agree(failures, 0) is None

    def finish(self, place: _SlotState, failures: Failures) -> None:
        """Wait for the I/O of a slot; record its failure."""
        began = perf_counter()
        place.finish(failures)
        self.seconds["disk", get_ident()] += perf_counter() - began

    def copy(self, step: ExchangeStep, slots: Slots, *, write: bool = False) -> None:
        """Copy between this rank's sections and the slots of its node."""
        near = [(owner, slots.of(owner, step.k)) for owner in step.near]
        self.plan.copy(step.k, self.rank, near, self.memory, write)

    def send_all_as_messages(self) -> None:
        """Send everything as messages, also to ranks of this node and to this rank."""
        self.near = set()
        self.far_ranks = list(range(self.transport.size))

    def step(self, number: int) -> ExchangeStep:
        """Return a step: its round, and its owners."""
        k, group = divmod(number, self.groups)
        owners = self.owners if self.groups == 1 else self.owners[group :: self.groups]
        busy = self.plan.busy(k, owners)
        near = [rank for rank in busy if rank in self.near]
        far = busy if not self.near else [rank for rank in busy if rank not in self.near]
        return ExchangeStep(k, self.rank in busy, near, far)

    def estimate_filled_bytes(self) -> int:
        """Return the approximate bytes that an owner's slots hold in all rounds, without gaps."""
        plan = self.plan
        return min(plan.given_bytes // max(len(self.owners), 1), plan.rounds * plan.slot_bytes)


class _SlotState:
    """The I/O in progress in one of this rank's slots, and the tiles in it that will be written."""

    def __init__(self) -> None:
        self.under_way: _core.Background | None = None
        self.tiles: _core.Batch | None = None

    def finish(self, failures: Failures) -> None:
        """Wait for the I/O; record its failure."""
        under_way, self.under_way = self.under_way, None
        if under_way is not None:
            with failures.catch():
                under_way.wait()

    def write(self, work: CallState, slots: Slots, k: int) -> None:
        """
        Start to write the contents of the slot, then to read the holes of round `k` into it.

        No rank of this call writes holes, so they may be read long before their round, during any other
        writes.
        """
        holes = work.owner.batch(k, slots.mine(k))
        self.under_way = work.owner.write(self.tiles, holes)
        self.tiles = holes


def read_rounds(work: CallState) -> BaseException | None:
    """Run the rounds of a read; return this rank's failure if any rank failed, otherwise None."""
    return _run_in_slots(work, _read_rounds)


def write_rounds(work: CallState) -> BaseException | None:
    """Run the rounds of a write; return as `read_rounds`."""
    if work.plan.in_order:
        work.send_all_as_messages()
    return _run_in_slots(work, _write_rounds)


def _run_in_slots(
    work: CallState, rounds: Callable[[CallState, Slots, list[_SlotState], Failures], bool]
) -> BaseException | None:
    """
    Run rounds in slots; when this returns, no I/O in the slots is in progress.

    `rounds` returns whether a rank failed.
    """
    failures, nbytes = Failures(), work.plan.slot_bytes
    taken: list[Slots] = []
    with failures.catch():
        taken.append(
            get_slots(work.transport, nbytes, work.slots, work.room, work.estimate_filled_bytes())
        )
    if not taken:
        # Memory may be short on this node only. The others learn of it at their next agreement, before
        # any rank accesses the slot of another rank.
        work.synchronise(failures)
        return failures.first or OtherRankError()
    slots = taken[0]
    places = [_SlotState() for _ in range(slots.number)]
    try:
        failed = rounds(work, slots, places, failures)
    finally:
        # In any case, wait for I/O before a slot becomes reclaimable or is used for something else.
        for place in places:
            work.finish(place, failures)
    if not failed:
        # This is also the synchronisation after which slots may be used for something else.
        failed = work.synchronise(failures)
    return (failures.first or OtherRankError()) if failed else None


def _exchange(
    work: CallState,
    slots: Slots,
    step: ExchangeStep,
    failures: Failures,
    meanwhile: Callable[[], None] | None = None,
    *,
    write: bool,
) -> bool:
    """Exchange in a step; run `meanwhile` after the agreement. Return whether a rank failed."""

    def copy() -> None:
        work.copy(step, slots, write=write)

    if not work.far_ranks:
        if work.agree(failures, 0) is None:
            return True
        if meanwhile is not None:
            with failures.catch():
                meanwhile()
        began = perf_counter()
        with failures.catch():
            copy()
        work.seconds["exchange", get_ident()] += perf_counter() - began
        return False
    with Packets(work, step, slots.mine(step.k), write=write) as packets:
        began = perf_counter()
        with failures.catch():
            packets.make()
        work.seconds["exchange", get_ident()] += perf_counter() - began
        need = work.agree(failures, packets.need)
        if need is None:
            return True
        if meanwhile is not None:
            with failures.catch():
                meanwhile()
        what = "a collective write" if write else "a collective read"
        began = perf_counter()
        with StopGroupOnError(work.transport, what):
            packets.exchange(need, copy, failures)
        work.seconds["exchange", get_ident()] += perf_counter() - began
    return False


# ------------------------------------------------------------------------------------- reading


def _read_rounds(
    work: CallState, slots: Slots, places: list[_SlotState], failures: Failures
) -> bool:
    """Read and exchange until all rounds are done or a rank failed; return whether one did."""
    # In steps. Groups of owners take turns: the next step belongs to another group.
    ahead = slots.number - 1 if work.groups == 1 else 1

    def read(number: int) -> None:
        """
        Start to read this rank's tiles of a step, if any, after its previous read.

        Concurrent reads of several steps would end at the same time, and leave the disk idle during the
        exchange.
        """
        step = work.step(number)
        if step.mine:
            before = places[(number - 1) % ahead].under_way
            started = work.owner.read(step.k, slots.mine(step.k), before)
            places[number % ahead].under_way = started

    with failures.catch():
        for number in range(ahead):
            read(number)
    for number in range(work.steps):
        step = work.step(number)
        if step.mine:
            work.finish(places[number % ahead], failures)

        def go_on(following: int = number + ahead) -> None:
            read(following)

        if _exchange(work, slots, step, failures, go_on, write=False):
            return True
    return False


# ------------------------------------------------------------------------------------- writing


def _write_rounds(
    work: CallState, slots: Slots, places: list[_SlotState], failures: Failures
) -> bool:
    """Exchange and write until all rounds are done or a rank failed; return whether one did."""
    if _fill_first(work, slots, places, failures):
        return True
    for number in range(work.steps):
        step = work.step(number)
        place = places[step.k % slots.number]
        if step.mine:
            work.finish(place, failures)
        if _exchange(work, slots, step, failures, write=True):
            return True
        if work.groups > 1:
            # The next group starts to write after this synchronisation.
            for other in places:
                work.finish(other, failures)
        if work.synchronise(failures):
            return True
        with failures.catch():
            if step.mine:
                place.write(work, slots, step.k + slots.number)
    return False


def _fill_first(
    work: CallState, slots: Slots, places: list[_SlotState], failures: Failures
) -> bool:
    """Start to read the holes of the first rounds, by groups in turn. Return whether a rank failed."""
    for group in range(work.groups):
        with failures.catch():
            if work.rank in work.owners[group :: work.groups]:
                for k, place in enumerate(places):
                    place.write(work, slots, k)
        if work.groups > 1:
            for place in places:
                work.finish(place, failures)
            if work.synchronise(failures):
                return True
    return False
