"""
Access a rank's part of a file that holds the whole array, as a separate array.

Problem: under global placement a rank's local array is not stored contiguously: its elements are in the
file of the whole array, in one section under BLOCK, in strided sections under CYCLIC, in many under
CYCLIC(k). Loops over slabs need one array with one index space.
Approach: a `LocalPart` has the shape of the local array, overlap area included. A section of it consists
of the pieces of the distribution that intersect it, each a section of the file and a position in memory.
All pieces are found in one step by arithmetic.
Invariants: pieces tile the local array, so every element of a section is read or written once. Ghosts
are read from the owner's location, and never written.

Reference: PASSION report, section 4.1.2 (Global Placement Model), Figure 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.pieces import intersect_pieces
from outcore.base.distribution import Distribution, Key
from outcore.base.requests import IORequest, start
from outcore.ranks.collective.items import Item, prepare_read

__all__ = ["LocalPart"]


class LocalPart:
    """
    Elements of one rank in the file of the whole array.

    It has the interface that a schedule needs of an array (`outcore.arrays.schedule.AsyncArray`).
    `widths` is empty without ghosts.
    """

    info = None

    def __init__(
        self, disk: DiskArray, distribution: Distribution, rank: int, widths: list[tuple[int, int]]
    ) -> None:
        self._disk = disk
        self.shape = tuple(distribution.core.local_shape(rank, widths))
        self._all = distribution.core.pieces(rank, widths, True)
        self._owned = distribution.core.pieces(rank, widths, False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the whole array."""
        return self._disk.dtype

    @property
    def path(self) -> str:
        """Path of the whole array."""
        return self._disk.path

    @property
    def order(self) -> str:
        """Order of the whole array."""
        return self._disk.order

    def read(self, key: Key, *, out: NDArray[Any]) -> None:
        """Read a section of the local array, ghosts included, piece by piece."""
        for section, place in intersect_pieces(*self._all, key):
            self._disk.read(section, out=out[place])

    def write(self, key: Key, value: NDArray[Any]) -> None:
        """Write a section of the local array, except its ghosts, piece by piece."""
        for section, place in intersect_pieces(*self._owned, key):
            self._disk.write(section, value[place])

    def iread(self, key: Key, *, out: NDArray[Any]) -> IORequest[Any]:
        """Start to read a section, ghosts included."""
        return start(lambda: self.read(key, out=out), f"read from {self.path!r}", reads=True)

    def iwrite(self, key: Key, value: NDArray[Any]) -> IORequest[None]:
        """Start to write a section, except its ghosts."""
        return start(lambda: self.write(key, value), f"write to {self.path!r}")

    def prepare_readings(self, key: Key, out: NDArray[Any]) -> list[Item]:
        """Return the items for a collective read of a section, ghosts included."""
        pieces = intersect_pieces(*self._all, key)
        return [prepare_read(self._disk, section, out[place]) for section, place in pieces]
