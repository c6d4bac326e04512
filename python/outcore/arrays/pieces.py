"""
Pieces of arrays: which part of each a section meets, by arithmetic.

Problem. An array may be made of sections of others: the part that a rank has of a whole array, or a
virtual dataset over many files. Whoever reads a section of it has to know which sections of the others
that is, and where each goes.
Idea. A piece is a regular section on both sides, with as many elements along each axis. What a section
with any steps has in common with it is found axis by axis, as the common members of two progressions.

Invariants. Of pieces that do not overlap every element is named once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.base.distribution import Key

__all__ = ["common", "intersections", "numbered", "upwards"]


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
    for _, found, place in numbered(sections, places, key):
        yield found, place


def numbered(
    sections: NDArray[np.int64], places: NDArray[np.int64], key: Key
) -> Iterator[tuple[int, Key, Key]]:
    """Do as `intersections`, and give the number of each piece as well."""
    begin = np.array([part.start for part in key], np.int64)
    end = np.array([part.stop for part in key], np.int64)
    if (end <= begin).any():
        return
    start, count, step = places[:, :, 0], places[:, :, 1], places[:, :, 2]
    first = np.maximum(-((start - begin) // step), 0)
    last = np.minimum((end - 1 - start) // step, count - 1)
    (meets,) = (last >= first).all(axis=1).nonzero()
    for number, one, at, low, high in zip(
        meets.tolist(),
        sections[meets].tolist(),
        places[meets].tolist(),
        first[meets].tolist(),
        last[meets].tolist(),
        strict=True,
    ):
        axes = [common(*words) for words in zip(one, at, low, high, key, strict=True)]
        if None not in axes:
            found = tuple(axis[0] for axis in axes if axis)
            # The dots keep a place of an array without axes a view.
            place: tuple[Any, ...] = tuple(axis[1] for axis in axes if axis) or (...,)
            yield number, found, place


def common(
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


def upwards(
    array: NDArray[Any], axes: Sequence[tuple[int, bool] | None], ndim: int
) -> NDArray[Any]:
    """See an array with the axes of a key as one with all axes of the array on disk, upwards."""
    steps = tuple(0 if axis is None else slice(None, None, -1 if axis[1] else 1) for axis in axes)
    there = {axis[0] for axis in axes if axis is not None}
    whole = [slice(None) if axis in there else None for axis in range(ndim)]
    # The dots keep an array without axes a view.
    first: tuple[Any, ...] = (..., *steps)
    then: tuple[Any, ...] = (..., *whole)
    seen: NDArray[Any] = array[first][then]
    return seen
