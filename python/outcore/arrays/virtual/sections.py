"""Sections of sources: what lies in one, which meet, how their elements become those of the array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core

__all__ = [
    "Key",
    "converted",
    "from_zero",
    "may_overlap",
    "slabs",
    "view_of",
    "within",
    "words_of",
]

Key = tuple[slice | int, ...]


def converted(elements: Any, dtype: np.dtype[Any]) -> Any:
    """Elements of a source as those of the array: integers that it cannot hold are the nearest."""
    given = np.asarray(elements)
    if (
        given.dtype.kind in "iu"
        and dtype.kind in "iu"
        and not np.can_cast(given.dtype, dtype, "safe")
    ):
        held = np.iinfo(dtype)
        return np.clip(given, held.min, held.max)
    return given


def words_of(part: slice) -> tuple[int, int, int]:
    """Start, count and step of a slice of which all are given but the step."""
    step = part.step or 1
    return part.start, -(-(part.stop - part.start) // step), step


def from_zero(part: slice) -> slice:
    """A slice as long as that one has elements."""
    return slice(0, words_of(part)[1])


def may_overlap(sections: Sequence[tuple[slice, ...]]) -> NDArray[np.bool_]:
    """
    Which sections may have elements in common, pair by pair: False only if they have none.

    Examples
    --------
    >>> may_overlap([(slice(0, 9, 2),), (slice(1, 9, 2),), (slice(3, 5),)]).tolist()
    [[True, False, True], [False, True, True], [True, True, True]]
    """
    words = [[words_of(part) for part in section] for section in sections]
    shape = len(sections), len(sections[0]), 3
    start, count, step = np.moveaxis(np.array(words, np.int64).reshape(shape), 2, 0)
    last = start + (count - 1) * step
    # Of progressions that have a common member the starts are apart by a multiple of this.
    step = np.where(count == 1, 0, step)
    shared = np.maximum(np.gcd(step[:, None], step), 1)
    meet = (start[:, None] <= last) & (start <= last[:, None])
    found: NDArray[np.bool_] = (meet & ((start[:, None] - start) % shared == 0)).all(axis=2)
    return found


def within(
    axes: tuple[tuple[int, int], ...],
    there: tuple[slice, ...],
    place: tuple[slice, ...],
    shape: tuple[int, ...],
) -> tuple[Key, tuple[slice, ...]] | None:
    """What of a section of a source lies in it, as it is now: key and place; None if nothing."""
    key: list[slice | int] = []
    left = list(place)
    for (axis, index), length in zip(axes, shape, strict=True):
        if axis < 0:
            if index >= length:
                return None
            key.append(index)
            continue
        start, count, step = words_of(there[axis])
        number = min(count, -(-(length - start) // step))
        if number <= 0:
            return None
        key.append(slice(start, start + (number - 1) * step + 1, step))
        if number < count:
            first, _, apart = words_of(place[axis])
            left[axis] = slice(first, first + (number - 1) * apart + 1, apart)
    return tuple(key), tuple(left)


def view_of(
    memory: NDArray[Any], axes: tuple[tuple[int, int], ...], place: tuple[slice, ...]
) -> NDArray[Any]:
    """The place of a section in memory, without the axes that its source does not have."""
    theirs = {axis for axis, _ in axes}
    # The dots keep a place of one element a view.
    key = (*(one if d in theirs else one.start for d, one in enumerate(place)), ...)
    seen: NDArray[Any] = memory[key]
    return seen


def slabs(key: Key, shape: tuple[int, ...], most: int) -> Iterator[tuple[Key, tuple[slice, ...]]]:
    """A section in slabs of at most so many elements: the key of each, and its place."""
    tile = _core.slab_shape(shape, range(len(shape))[::-1], most)
    for at in itertools.product(*(range(0, n, t) for n, t in zip(shape, tile, strict=True))):
        place = tuple(slice(a, min(a + t, n)) for a, t, n in zip(at, tile, shape, strict=True))
        left = iter(place)
        yield tuple(one if isinstance(one, int) else _cut(one, next(left)) for one in key), place


def _cut(whole: slice, part: slice) -> slice:
    start, _, step = words_of(whole)
    return slice(start + part.start * step, start + (part.stop - 1) * step + 1, step)
