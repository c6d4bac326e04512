"""
Packets: what goes between owners and ranks of other nodes, in parts that fit two slots.

Problem. An owner has a tile in its slot that many ranks of other nodes want, and a rank wants parts of
many owners' tiles. Sent all at once that is as many slots on either side as there are ranks elsewhere.

Idea. Messages of a round are laid out on a circle: that between an owner and a rank has the place
``(owner + rank) % size``. A run of `width` places holds at most so many messages of any owner, and of
any rank. So a round goes in parts, one run after the other, as short as it takes for what a rank sends
and receives at once to fit its room. The ranks need not tell each other sizes: widths are halves of one
another, each rank says how often it has to halve, and the largest number counts. It is agreed on in the
synchronisation that each round begins with.

Where a rank asks for the same elements twice, one message may be larger than a slot. Then it goes in
several packets (``crates/plan/src/collective/packets.rs``), one in a part.

Where the order of the ranks counts (``plan.in_order``) places are not on a circle but on a line: what an
owner gets then comes in the order of the ranks, part by part.

Invariants. What a rank sends and receives at a time is at most two slots, whatever the ranks want. Both
ends of a message place it alike: from the plan and the agreed number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective.traffic import Failures, PackedExchange

if TYPE_CHECKING:
    from outcore.collective.rounds import Step, Work

__all__ = ["Packets"]


class Packets:
    """
    What this rank sends to ranks of other nodes in a step, and what comes from there.

    Parameters
    ----------
    work
        What the rank works with.
    step
        The step.
    slot
        This rank's slot, if its tiles are exchanged.
    write
        Whether ranks send to the owners.
    """

    def __init__(
        self, work: Work, step: Step, slot: NDArray[np.uint8] | None, *, write: bool
    ) -> None:
        self.work, self.step, self.slot, self.write = work, step, slot, write
        self.size = work.transport.size
        # How often this rank has to halve the width, and beyond that, how many more packets it needs.
        self.need = 0
        self._buffer = np.empty(0, np.uint8)
        self._held: _core.Reservation | None = None
        self._most = work.plan.slot_bytes
        line = self.size if not work.plan.in_order else 2 * self.size - 1
        self._halvings = (line - 1).bit_length()
        place = np.arange(self.size) + work.rank
        self._place = place if work.plan.in_order else place % self.size
        # By packet and rank.
        self._given = np.zeros((1, self.size), np.int64)
        self._taken = np.zeros((1, self.size), np.int64)

    def make(self) -> None:
        """Find out what goes where, and take the buffers, within the budget."""
        if not self.work.far_ranks:
            return
        self._count()
        room = 2 * self._most
        packets = max(len(self._given), len(self._taken))
        if packets > 1:
            self.need = self._halvings + packets - 1
        else:
            self.need = next(n for n in range(self._halvings + 1) if self._largest(n) <= room)
        nbytes = self._largest(self.need)
        self._held = _core.Reservation("collective", nbytes)
        self._buffer = np.empty(nbytes, np.uint8)

    def exchange(self, need: int, meanwhile: Callable[[], None], failures: Failures) -> None:
        """
        Send and receive, part by part. All ranks call it.

        Parameters
        ----------
        need
            The largest `need` of all ranks.
        meanwhile
            What is done while the first part is on its way.
        failures
            Keeps what fails on this rank for later.
        """
        todo: Callable[[], None] | None = meanwhile
        for sent, received, packet in self._parts(need):
            pack, unpack = (
                partial(self._pack, sent, packet),
                partial(self._unpack, received, packet),
            )
            part = PackedExchange(self.work.transport, self._buffer, sent, received, pack, unpack)
            with failures.caught():
                part.pack()
            part.start(failures, todo)
            todo = None
            part.finish(failures)
        if todo is not None:
            with failures.caught():
                todo()

    def __enter__(self) -> Packets:
        return self

    def __exit__(self, *_ended: object) -> None:
        # Of an exchange that was broken off, messages may be under way: they keep the buffer.
        self._buffer = np.empty(0, np.uint8)
        if self._held is not None:
            self._held.release()

    def _count(self) -> None:
        """Count the bytes of all messages of this rank, by packet."""
        work, step, plan = self.work, self.step, self.work.plan
        mine, theirs = (self._taken, self._given) if self.write else (self._given, self._taken)
        if step.mine:
            counts = plan.counts(work.rank, plan.batch(work.rank, step.k), self.size)
            mine[0, work.far_ranks] = np.array(counts, np.int64)[work.far_ranks]
            mine = self._cut(mine, [(work.rank, r) for r in self._large(mine)])
        for owner in step.far:
            theirs[0, owner] = plan.share(owner, plan.batch(owner, step.k), work.rank)
        theirs = self._cut(theirs, [(owner, work.rank) for owner in self._large(theirs)])
        self._taken, self._given = (mine, theirs) if self.write else (theirs, mine)

    def _large(self, counts: NDArray[np.int64]) -> list[int]:
        """Ranks with which this one has messages that are larger than a slot."""
        found: list[int] = np.flatnonzero(counts[0] > self._most).tolist()
        return found

    def _cut(self, counts: NDArray[np.int64], large: list[tuple[int, int]]) -> NDArray[np.int64]:
        """Cut messages between owners and ranks that are larger than a slot."""
        plan, k = self.work.plan, self.step.k
        for owner, rank in large:
            of = rank if owner == self.work.rank else owner
            packets = plan.packets(owner, plan.batch(owner, k), rank, self._most)
            more = max(len(packets) - len(counts), 0)
            counts = np.concatenate([counts, np.zeros((more, self.size), np.int64)])
            counts[:, of] = 0
            counts[: len(packets), of] = packets
        return counts

    def _widths(self, need: int) -> tuple[int, int]:
        """How wide a part is, and how many packets a message may have."""
        return 1 << max(self._halvings - need, 0), max(need - self._halvings, 0) + 1

    def _largest(self, need: int) -> int:
        """Bytes that this rank sends and receives at once, at most."""
        width, packets = self._widths(need)
        of_part = self._place // width
        largest = 0
        for packet in range(packets):
            sums = np.zeros(int(of_part.max()) + 1, np.int64)
            for counts in (self._given, self._taken):
                if packet < len(counts):
                    np.add.at(sums, of_part, counts[packet])
            largest = max(largest, int(sums.max()))
        return largest

    def _parts(
        self, need: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, int] | None]]:
        """Bytes for and from each rank, part by part, and which packet of the messages that is."""
        if not self.work.far_ranks:
            return
        width, packets = self._widths(need)
        last = 2 * self.size - 2 if self.work.plan.in_order else self.size - 1
        nothing = np.zeros(self.size, np.int64)
        for first in range(0, last + 1, width):
            inside = (self._place >= first) & (self._place < first + width)
            for packet in range(packets):
                given, taken = (
                    np.where(inside, counts[packet], 0) if packet < len(counts) else nothing
                    for counts in (self._given, self._taken)
                )
                yield given, taken, (packet, self._most) if packets > 1 else None

    def _pack(
        self, sent: NDArray[np.int64], packet: tuple[int, int] | None, buffer: NDArray[np.uint8]
    ) -> None:
        work, step = self.work, self.step
        to = np.flatnonzero(sent).tolist()
        if self.write:
            work.plan.unpack(step.k, work.rank, to, buffer, work.memory, True, packet)
        elif self.slot is not None:
            work.plan.pack(work.rank, step.k, self.slot, to, buffer, False, packet)

    def _unpack(
        self, received: NDArray[np.int64], packet: tuple[int, int] | None, buffer: NDArray[np.uint8]
    ) -> None:
        work, step = self.work, self.step
        of = np.flatnonzero(received).tolist()
        if not self.write:
            work.plan.unpack(step.k, work.rank, of, buffer, work.memory, False, packet)
        elif self.slot is not None:
            work.plan.pack(work.rank, step.k, self.slot, of, buffer, True, packet)
