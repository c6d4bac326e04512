"""
The rounds of a two-phase collective: the only loop that alternates I/O and messages.

Reading. In round `k` each owner has a tile, or a batch of small ones, in its slot. Ranks of its node
copy what they want out of it; others are sent theirs, packed (`packets`). Meanwhile the owner reads the
next batch into another slot, and then the one after it where it has three slots.

    read 0, 1 | agree | copy 0, read 2 | agree | copy 1, read 3 | ...

Writing is the mirror: ranks copy into the slots, or send; then the owner writes its tile. What nobody
gives of a tile is read first: as soon as the slot is free, while other rounds are exchanged.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.report.phases import Seconds
from outcore.ranks.agreement import Elsewhere, Failures, Unsure
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.packets import Packets
from outcore.ranks.transport import Transport
from outcore.ranks.transport.sharing import Slots, slots_of

__all__ = ["Work", "owner_of", "read_rounds", "write_rounds"]

# Whether tiles of which not all is given are read first and written whole; None: where that costs less.
REWRITES: bool | None = None
# What a rank says that failed: more than any number that is agreed on.
_FAILED = 1 << 60


def owner_of(plan: _core.Collective, rank: int, arrays: Sequence[DiskArray | None]) -> _core.Owner:
    """
    A rank as an owner.

    The hint `exclusive` counts for all ranks of the collective: it lets an owner read and write back
    what nobody gives of its tiles. The accesses of each rank do not have it.
    """
    cores = [None if array is None else array.handle.core for array in arrays]
    exclusive = [n for n, a in enumerate(arrays) if a is not None and a.handle.hints.exclusive]
    return _core.Owner(plan, rank, cores, REWRITES, exclusive)


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
    seconds
        Takes what each phase has taken on this rank.
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
        self.owner = owner_of(self.plan, self.rank, self.arrays)
        self.owners = self.plan.owners()
        self.near = {rank for rank in self.owners if nodes[rank] == nodes[self.rank]}
        self.far_ranks = [r for r in range(len(nodes)) if nodes[r] != nodes[self.rank]]
        self.steps = self.plan.rounds * self.groups

    def agree(self, failures: Failures, number: int) -> int | None:
        """Agree on the largest number of any rank; None if a rank failed."""
        began = perf_counter()
        largest = self.transport.agree(number if failures.first is None else _FAILED)
        self.seconds["wait", get_ident()] += perf_counter() - began
        return None if largest == _FAILED else largest

    def synchronise(self, failures: Failures) -> bool:
        """Agree on whether any rank failed."""
        return self.agree(failures, 0) is None

    def finish(self, place: _InSlot, failures: Failures) -> None:
        """Wait for what goes on in a slot; how it ended counts."""
        began = perf_counter()
        place.finish(failures)
        self.seconds["disk", get_ident()] += perf_counter() - began

    def copy(self, step: Step, slots: Slots, *, write: bool = False) -> None:
        """Copy between this rank's sections and the slots of its node."""
        near = [(owner, slots.of(owner, step.k)) for owner in step.near]
        self.plan.copy(step.k, self.rank, near, self.memory, write)

    def all_by_messages(self) -> None:
        """Send everything, to ranks of this node and to itself too."""
        self.near = set()
        self.far_ranks = list(range(self.transport.size))

    def step(self, number: int) -> Step:
        """Give a step: the round, and whose turn it is."""
        k, group = divmod(number, self.groups)
        owners = self.owners if self.groups == 1 else self.owners[group :: self.groups]
        busy = self.plan.busy(k, owners)
        near = [rank for rank in busy if rank in self.near]
        far = busy if not self.near else [rank for rank in busy if rank not in self.near]
        return Step(k, self.rank in busy, near, far)

    def filled(self) -> int:
        """Tell about how many bytes an owner's slots will take, in all rounds, without gaps."""
        plan = self.plan
        return min(plan.given_bytes // max(len(self.owners), 1), plan.rounds * plan.slot_bytes)


class _InSlot:
    """What goes on in one of this rank's slots, and the tiles that it holds to be written."""

    def __init__(self) -> None:
        self.under_way: _core.Background | None = None
        self.tiles: _core.Batch | None = None

    def finish(self, failures: Failures) -> None:
        """Wait for what goes on; how it ended counts."""
        under_way, self.under_way = self.under_way, None
        if under_way is not None:
            with failures.caught():
                under_way.wait()

    def write(self, work: Work, slots: Slots, k: int) -> None:
        """
        Start to write what the slot holds, and after that to read the holes of round `k` into it.

        Holes are what nobody gives in this collective, so they may be read long before their turn,
        whatever is being written elsewhere.
        """
        holes = work.owner.batch(k, slots.mine(k))
        self.under_way = work.owner.write(self.tiles, holes)
        self.tiles = holes


def read_rounds(work: Work) -> BaseException | None:
    """Run the rounds of a read; returns this rank's failure, if any rank failed (else raises none)."""
    return _in_slots(work, _read_rounds)


def write_rounds(work: Work) -> BaseException | None:
    """Run the rounds of a write; returns as `read_rounds`."""
    if work.plan.in_order:
        work.all_by_messages()
    return _in_slots(work, _write_rounds)


def _in_slots(
    work: Work, rounds: Callable[[Work, Slots, list[_InSlot], Failures], bool]
) -> BaseException | None:
    """
    Run rounds in slots; when this returns, nothing that they started is under way.

    `rounds` tells whether a rank failed.
    """
    failures, nbytes = Failures(), work.plan.slot_bytes
    taken: list[Slots] = []
    with failures.caught():
        taken.append(slots_of(work.transport, nbytes, work.slots, work.room, work.filled()))
    if not taken:
        # Memory may be short on this node alone. The others hear of it where they next agree, which they
        # do before anybody looks at the slot of another rank.
        work.synchronise(failures)
        return failures.first or Elsewhere()
    slots = taken[0]
    places = [_InSlot() for _ in range(slots.number)]
    try:
        failed = rounds(work, slots, places, failures)
    finally:
        # However this ends: nothing is under way in a slot that is reclaimable, or used otherwise.
        for place in places:
            work.finish(place, failures)
    if not failed:
        # Also the synchronisation after which slots may be used for something else.
        failed = work.synchronise(failures)
    return (failures.first or Elsewhere()) if failed else None


def _exchange(
    work: Work,
    slots: Slots,
    step: Step,
    failures: Failures,
    meanwhile: Callable[[], None] | None = None,
    *,
    write: bool,
) -> bool:
    """Exchange in a step, `meanwhile` once all are there; tells whether a rank failed."""

    def copy() -> None:
        work.copy(step, slots, write=write)

    if not work.far_ranks:
        if work.agree(failures, 0) is None:
            return True
        if meanwhile is not None:
            with failures.caught():
                meanwhile()
        began = perf_counter()
        with failures.caught():
            copy()
        work.seconds["exchange", get_ident()] += perf_counter() - began
        return False
    with Packets(work, step, slots.mine(step.k), write=write) as packets:
        began = perf_counter()
        with failures.caught():
            packets.make()
        work.seconds["exchange", get_ident()] += perf_counter() - began
        need = work.agree(failures, packets.need)
        if need is None:
            return True
        if meanwhile is not None:
            with failures.caught():
                meanwhile()
        what = "a collective write" if write else "a collective read"
        began = perf_counter()
        with Unsure(work.transport, what):
            packets.exchange(need, copy, failures)
        work.seconds["exchange", get_ident()] += perf_counter() - began
    return False


# ------------------------------------------------------------------------------------- reading


def _read_rounds(work: Work, slots: Slots, places: list[_InSlot], failures: Failures) -> bool:
    """Read and exchange, until all rounds are over or any rank failed; tells whether one did."""
    # By steps. Groups of owners take turns: a step ahead is another group's.
    ahead = slots.number - 1 if work.groups == 1 else 1

    def read(number: int) -> None:
        """
        Start to read what this rank holds in a step, if anything, when it has what it reads before.

        Steps that are read side by side end at the same time: then the disk has nothing to do while that
        is exchanged.
        """
        step = work.step(number)
        if step.mine:
            before = places[(number - 1) % ahead].under_way
            started = work.owner.read(step.k, slots.mine(step.k), before)
            places[number % ahead].under_way = started

    with failures.caught():
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


def _write_rounds(work: Work, slots: Slots, places: list[_InSlot], failures: Failures) -> bool:
    """Exchange and write, until all rounds are over or any rank failed; tells whether one did."""
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
            # The next group begins to write after this synchronisation.
            for other in places:
                work.finish(other, failures)
        if work.synchronise(failures):
            return True
        with failures.caught():
            if step.mine:
                place.write(work, slots, step.k + slots.number)
    return False


def _fill_first(work: Work, slots: Slots, places: list[_InSlot], failures: Failures) -> bool:
    """Start to read the holes of the first rounds; groups do so in turn. Tells whether a rank failed."""
    for group in range(work.groups):
        with failures.caught():
            if work.rank in work.owners[group :: work.groups]:
                for k, place in enumerate(places):
                    place.write(work, slots, k)
        if work.groups > 1:
            for place in places:
                work.finish(place, failures)
            if work.synchronise(failures):
                return True
    return False
