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

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.collective.items import Item, reading, writing
from outcore.disk import DiskArray
from outcore.distribution import Distribution, Key
from outcore.requests import IORequest, start

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
    What a schedule needs of an array (`outcore.schedule.OnDisk`).
    """

    info = None

    def __init__(
        self, disk: DiskArray, distribution: Distribution, rank: int, widths: list[tuple[int, int]]
    ) -> None:
        self._disk = disk
        self.shape = tuple(distribution._core.local_shape(rank, widths))
        self._all = distribution._core.pieces(rank, widths, True)
        self._owned = distribution._core.pieces(rank, widths, False)

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


def intersections(
    sections: NDArray[np.int64], places: NDArray[np.int64], key: Key
) -> Iterator[tuple[Key, Key]]:
    """
    The parts of pieces that a section of local memory meets.

    Parameters
    ----------
    sections, places
        Of shape (pieces, axes, 3): start, count and step of each piece in the whole array, and in local
        memory. The other way round, the parts that a section of the whole array meets.
    key
        The section of local memory: slices of plain integers, with a positive step if with any.

    Yields
    ------
    (tuple of slice, tuple of slice)
        A section of the whole array; its place in the array that `key` gives.

    Examples
    --------
    >>> import numpy as np
    >>> sections = np.array([[[1, 4, 3]]])  # 1, 4, 7, 10 are elements 0 to 3 of the local array
    >>> places = np.array([[[0, 4, 1]]])
    >>> list(intersections(sections, places, (slice(2, 9),)))
    [((slice(7, 11, 3),), (slice(0, 2, None),))]
    >>> list(intersections(places, sections, (slice(0, 9, 2),)))  # 0, 2, 4, 6, 8 of the whole array
    [((slice(1, 2, None),), (slice(2, 3, None),))]
    """
    begin = np.array([part.start for part in key], np.int64)
    end = np.array([part.stop for part in key], np.int64)
    if (end <= begin).any():
        return
    start, count, step = places[:, :, 0], places[:, :, 1], places[:, :, 2]
    first = np.maximum(-((start - begin) // step), 0)
    last = np.minimum((end - 1 - start) // step, count - 1)
    meets = (last >= first).all(axis=1)
    for one, at, low, high in zip(
        sections[meets].tolist(),
        places[meets].tolist(),
        first[meets].tolist(),
        last[meets].tolist(),
        strict=True,
    ):
        axes = [_common(*words) for words in zip(one, at, low, high, key, strict=True)]
        if None not in axes:
            found = tuple(axis[0] for axis in axes if axis)
            # The dots keep a place of an array without axes a view.
            place: tuple[Any, ...] = tuple(axis[1] for axis in axes if axis) or (...,)
            yield found, place


def _common(
    section: list[int], place: list[int], low: int, high: int, key: slice
) -> tuple[slice, slice] | None:
    """Along one axis: of elements `low` to `high` of a piece those that a key with a step names."""
    stride = key.step or 1
    # Element n of the piece is element (here + n * step) / stride of the key.
    here, step = place[0] - key.start, place[2]
    if stride > 1:
        shared = math.gcd(step, stride)
        if here % shared:
            return None
        every = stride // shared
        residue = -(here // shared) * pow(step // shared, -1, every) % every
        low += (residue - low) % every
        if low > high:
            return None
    else:
        every = 1
    number = (high - low) // every + 1
    apart = section[2] * every
    at, leap = (here + low * step) // stride, step * every // stride
    first = section[0] + low * section[2]
    return _slice(first, number, apart), _slice(at, number, leap)


def _slice(start: int, count: int, step: int) -> slice:
    return slice(start, start + (count - 1) * step + 1, None if step == 1 or count == 1 else step)
