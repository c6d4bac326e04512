"""
A rank's part of a file that holds the whole array, seen as an array of its own.

Problem. Under global placement a rank's local array is nowhere by itself: its elements lie in the file
of the whole array, under BLOCK in one section, under CYCLIC in strided ones, under CYCLIC(k) in many.
Loops over slabs know one array with one index space.
Idea. A `LocalPart` has the shape of the local array, overlap area included. A section of it is the
pieces of the distribution that meet it, each a section of the file and a place in memory; found for all
pieces at once by arithmetic.

Invariants. Pieces tile the local array, so every element of a section is read or written once. Ghosts
are read from where their owner has them, and are never written.

Reference: PASSION report, section 4.1.2 (Global Placement Model), Figure 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.pieces import intersections
from outcore.base.distribution import Distribution, Key
from outcore.base.requests import IORequest, start
from outcore.ranks.collective.items import Item, reading, writing

__all__ = ["LocalPart", "intersections"]


class LocalPart:
    """
    The elements of one rank, in the file of the whole array.

    Parameters
    ----------
    disk
        The whole array.
    distribution, rank
        Which elements they are.
    widths
        Widths of the ghosts, a pair (before, behind) per axis; empty if there are none.

    Notes
    -----
    What a schedule needs of an array (`outcore.arrays.schedule.OnDisk`).
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
        """That of the whole array."""
        return self._disk.dtype

    @property
    def path(self) -> str:
        """That of the whole array."""
        return self._disk.path

    @property
    def order(self) -> str:
        """That of the whole array."""
        return self._disk.order

    def read(self, key: Key, *, out: NDArray[Any]) -> None:
        """Read a section of the local array, ghosts included, piece by piece."""
        for section, place in intersections(*self._all, key):
            self._disk.read(section, out=out[place])

    def write(self, key: Key, value: NDArray[Any]) -> None:
        """Write a section of the local array but for its ghosts, piece by piece."""
        for section, place in intersections(*self._owned, key):
            self._disk.write(section, value[place])

    def iread(self, key: Key, *, out: NDArray[Any]) -> IORequest[Any]:
        """Start to read a section, ghosts included."""
        return start(lambda: self.read(key, out=out), f"read from {self.path!r}", reads=True)

    def iwrite(self, key: Key, value: NDArray[Any]) -> IORequest[None]:
        """Start to write a section but for its ghosts."""
        return start(lambda: self.write(key, value), f"write to {self.path!r}")

    def readings(self, key: Key, out: NDArray[Any]) -> list[Item]:
        """What a collective read of a section brings, ghosts included."""
        pieces = intersections(*self._all, key)
        return [reading(self._disk, section, out[place]) for section, place in pieces]

    def writings(self, key: Key, value: NDArray[Any]) -> list[Item]:
        """What a collective write of a section brings, ghosts left out."""
        pieces = intersections(*self._owned, key)
        return [writing(self._disk, section, value[place]) for section, place in pieces]
