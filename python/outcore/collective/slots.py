"""
Slots: where owners keep the tile of a round, for the ranks of their node to see.

Each rank of a node has three: while the others copy out of one it reads into the next two, so that the
disk has always something to do. Where memory is short it has two. They are kept from one collective to
the next: new shared memory costs about a millisecond a MiB on the machines this was measured on, more
than reading it from a disk. Between collectives they are reclaimable: they stay within the
budget, but whatever needs the memory gets it.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.transport import Shared, Transport

__all__ = ["Slots", "slots_of", "unpin_slots"]

_PAGE = 4096
# Slots that have to be filled before huge pages are worth it: putting one together takes about as long
# as copying it (more where the system looks for huge pages first), and to fill it 10 to 40 % less then.
_MANY = 8


class Slots:
    """Slots for each rank of a node, by turns."""

    def __init__(self, transport: Transport, nbytes: int, number: int) -> None:
        self.nbytes = -(-nbytes // _PAGE) * _PAGE
        self.number = number
        self.rank = transport.rank
        self._shared: Shared = transport.shared(number * self.nbytes)
        # Bytes that these pages took, and whether they were put together to huge ones.
        self._filled = 0
        self._gathered = False
        # A rank that failed since may not have them.
        self.mishaps = transport.mishaps

    def fit(self, room: int) -> bool:
        """Tell whether all slots of a rank fit so many bytes."""
        return self.number * self.nbytes <= room

    def of(self, rank: int, turn: int) -> NDArray[np.uint8]:
        """The slot of a rank of this node in a turn."""
        low = (turn % self.number) * self.nbytes
        return self._shared.of(rank)[low : low + self.nbytes]

    def mine(self, turn: int) -> NDArray[np.uint8]:
        """The slot of this rank in a turn."""
        return self.of(self.rank, turn)

    def unpin(self) -> None:
        """Let those of this rank give way."""
        self._shared.unpin()

    def pin(self) -> None:
        """Hold those of this rank again."""
        if not self._shared.pin():
            self._filled, self._gathered = 0, False

    def use(self, filled: int) -> None:
        """Count the bytes of a slot's turns; have huge pages from the time on when they are enough."""
        self._filled += filled
        if self._filled >= _MANY * self.nbytes and not self._gathered:
            self._gathered = True
            self._shared.gather()

    def close(self) -> None:
        """Release them."""
        self._shared.close()


_kept: weakref.WeakKeyDictionary[Any, Slots] = weakref.WeakKeyDictionary()


def slots_of(transport: Transport, nbytes: int, number: int, room: int, filled: int = 0) -> Slots:
    """
    At least so many slots of at least so many bytes: those that are kept, or new ones. Collective.

    All ranks ask for the same, so all keep the same, unless one of them failed. Those that are kept may
    be larger, if all of them fit the `room` that every rank has. About so many bytes will be `filled` in
    those of an owner.
    """
    kept = _kept.get(transport)
    whole = kept is not None and kept.mishaps == transport.mishaps
    if (
        kept is not None
        and whole
        and kept.nbytes >= nbytes
        and kept.number >= number
        and kept.fit(room)
    ):
        kept.pin()
        kept.use(filled)
        return kept
    if kept is not None:
        del _kept[transport]
        kept.close()
    slots = Slots(transport, nbytes, number)
    _kept[transport] = slots
    slots.use(filled)
    return slots


def unpin_slots(transport: Transport) -> None:
    """Let the slots that are kept give way until the next collective: no rank looks at them any more."""
    kept = _kept.get(transport)
    if kept is not None:
        kept.unpin()
