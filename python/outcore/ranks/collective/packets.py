"""
Packets: messages between owners and ranks of other nodes, in parts that fit two slots.

Problem. An owner has a tile in its slot that many ranks of other nodes need, and a rank needs parts of
the tiles of many owners. To send everything in one step, each side would need as many slots as there are
ranks on other nodes.

Approach. A value (`_core.Messages`, ``crates/plan/src/collective/messages.rs``) determines the
recipients and contents of each part. All ranks halve the amount of one exchange as often as the rank
with the largest need requires; they agree on that in the synchronisation with which each round begins.
If the order of the ranks matters (``plan.in_order``), an owner receives data in their order, part by
part.

Invariants. A rank sends and receives at most two slots at a time, for any sections. Both sides of a
message place it in the same way: from the plan and the agreed number alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.ranks.agreement import Failures
from outcore.ranks.collective.traffic import PackedExchange

if TYPE_CHECKING:
    from outcore.ranks.collective.rounds import CallState, ExchangeStep

__all__ = ["Packets"]


class Packets:
    """
    Messages of this rank to and from ranks of other nodes in a step.

    `slot` is this rank's slot, if its tiles are exchanged. With `write`, ranks send to the owners.
    """

    def __init__(
        self, work: CallState, step: ExchangeStep, slot: NDArray[np.uint8] | None, *, write: bool
    ) -> None:
        self.work, self.step, self.slot, self.write = work, step, slot, write
        # Number of parts that this rank needs; the largest number of any rank counts.
        self.need = 0
        self._buffer = np.empty(0, np.uint8)
        self._held: _core.Reservation | None = None

    def make(self) -> None:
        """Determine the messages, and allocate the buffers within the budget."""
        work, step = self.work, self.step
        self._messages = _core.Messages(
            work.plan,
            step.k,
            ranks=work.transport.size,
            me=work.rank,
            owns=step.mine,
            partners=work.far_ranks,
            owners=step.far,
            write=self.write,
        )
        self.need = self._messages.need
        nbytes = self._messages.largest(self.need)
        self._held = _core.Reservation("collective", nbytes)
        self._buffer = np.empty(nbytes, np.uint8)

    def exchange(self, need: int, meanwhile: Callable[[], None], failures: Failures) -> None:
        """
        Send and receive, part by part, and run `meanwhile` during the first part. All ranks call it.

        `need` is the largest `need` of all ranks. `failures` records failures of this rank.
        """
        todo: Callable[[], None] | None = meanwhile
        number = 0
        while (found := self._messages.part(need, number)) is not None:
            number += 1
            sent, received, packet = found
            chosen = None if packet is None else (packet, self.work.plan.slot_bytes)
            pack = partial(self._pack, sent, chosen)
            unpack = partial(self._unpack, received, chosen)
            part = PackedExchange(self.work.transport, self._buffer, sent, received, pack, unpack)
            with failures.catch():
                part.pack()
            part.start(failures, todo)
            todo = None
            part.finish(failures)
        if todo is not None:
            with failures.catch():
                todo()

    def __enter__(self) -> Packets:
        return self

    def __exit__(self, *_ended: object) -> None:
        # After an aborted exchange, messages may still be in progress: they keep the buffer.
        self._buffer = np.empty(0, np.uint8)
        if self._held is not None:
            self._held.release()

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
