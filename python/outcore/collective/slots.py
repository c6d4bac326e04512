"""
Slots: where owners keep the tile of a round, for the ranks of their node to see.

Each rank of a node has two, so that it reads the next tile while the others copy out of this one.
They are kept from one collective to the next: new shared memory costs about a millisecond a MiB on
the machines this was measured on, more than reading it from a disk. They count in the budget as long as
they are kept.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.transport import Shared, Transport

__all__ = ["Slots", "slots_of"]

_PAGE = 4096


class Slots:
    """Two slots for each rank of a node."""

    def __init__(self, transport: Transport, nbytes: int) -> None:
        self.nbytes = -(-nbytes // _PAGE) * _PAGE
        self.rank = transport.rank
        self._shared: Shared = transport.shared(2 * self.nbytes)

    def of(self, rank: int, turn: int) -> NDArray[np.uint8]:
        """The slot of a rank of this node in a turn."""
        low = (turn % 2) * self.nbytes
        return self._shared.of(rank)[low : low + self.nbytes]

    def mine(self, turn: int) -> NDArray[np.uint8]:
        """The slot of this rank in a turn."""
        return self.of(self.rank, turn)

    def close(self) -> None:
        """Let go of them."""
        self._shared.close()


_kept: weakref.WeakKeyDictionary[Any, Slots] = weakref.WeakKeyDictionary()


def slots_of(transport: Transport, nbytes: int) -> Slots:
    """
    Slots of at least so many bytes: those that are kept, or new ones. Collective.

    All ranks ask for the same number, so all keep the same.
    """
    kept = _kept.get(transport)
    if kept is not None and kept.nbytes >= nbytes:
        return kept
    if kept is not None:
        del _kept[transport]
        kept.close()
    slots = Slots(transport, nbytes)
    _kept[transport] = slots
    return slots
