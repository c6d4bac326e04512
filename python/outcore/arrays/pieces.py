"""
Pieces of arrays: the parts that a section touches, by arithmetic.

Problem: an array may consist of sections of other arrays: a rank's part of a whole array, or a virtual
dataset over many files. Reading a section of it requires the sections of the other arrays and their
positions in the result.
Approach: a piece is a regular section on both sides, with equally many elements along each axis. Its
intersection with a section of any steps is computed axis by axis, as the common members of two
progressions.

Invariants: if pieces do not overlap, every element occurs once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.base.distribution import Key

__all__ = ["intersect_axis", "intersect_numbered", "intersect_pieces", "view_upwards"]


def intersect_pieces(
    sections: NDArray[np.int64], places: NDArray[np.int64], key: Key
) -> Iterator[tuple[Key, Key]]:
    """
    Yield the parts of pieces that overlap a section of local memory.

    `sections` and `places` have the shape (pieces, axes, 3): start, count and step of each piece in
    the whole array, and in local memory. If they are exchanged, the result is the parts that
    overlap a section of the whole array. `key` has slices of plain integers, with a positive step
    if any. Each result is a section of the whole array, and its position in the array that `key`
    selects.

    Examples
    --------
    >>> import numpy as np
    >>> sections = np.array([[[1, 4, 3]]])  # 1, 4, 7, 10 are elements 0 to 3 of the local array
    >>> places = np.array([[[0, 4, 1]]])
    >>> list(intersect_pieces(sections, places, (slice(2, 9),)))
    [((slice(7, 11, 3),), (slice(0, 2, None),))]
    >>> list(intersect_pieces(places, sections, (slice(0, 9, 2),)))  # 0, 2, 4, 6, 8 of the whole array
    [((slice(1, 2, None),), (slice(2, 3, None),))]
    """
    for _, found, place in intersect_numbered(sections, places, key):
        yield found, place


def intersect_numbered(
    sections: NDArray[np.int64], places: NDArray[np.int64], key: Key
) -> Iterator[tuple[int, Key, Key]]:
    """Yield the number of each piece in addition to the results of `intersect_pieces`."""
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
        axes = [intersect_axis(*words) for words in zip(one, at, low, high, key, strict=True)]
        if None not in axes:
            found = tuple(axis[0] for axis in axes if axis)
            # The ellipsis makes the element of an array without axes a view.
            place: tuple[Any, ...] = tuple(axis[1] for axis in axes if axis) or (...,)
            yield number, found, place


def intersect_axis(
    section: list[int], place: list[int], low: int, high: int, key: slice
) -> tuple[slice, slice] | None:
    """Return the elements `low` to `high` of a piece that a key with a step selects, along one axis."""
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
    return _make_slice(first, number, apart), _make_slice(at, number, leap)


def _make_slice(start: int, count: int, step: int) -> slice:
    return slice(start, start + (count - 1) * step + 1, None if step == 1 or count == 1 else step)


def view_upwards(
    array: NDArray[Any], axes: Sequence[tuple[int, bool] | None], ndim: int
) -> NDArray[Any]:
    """Return a view with all axes of the array on disk, forwards, of an array with the axes of a key."""
    steps = tuple(0 if axis is None else slice(None, None, -1 if axis[1] else 1) for axis in axes)
    there = {axis[0] for axis in axes if axis is not None}
    whole = [slice(None) if axis in there else None for axis in range(ndim)]
    # The ellipsis keeps an array without axes a view.
    first: tuple[Any, ...] = (..., *steps)
    then: tuple[Any, ...] = (..., *whole)
    seen: NDArray[Any] = array[first][then]
    return seen
