"""Sections of sources: their bounds, their overlaps, and conversion of their elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core

__all__ = [
    "Key",
    "clip_section",
    "convert_elements",
    "drop_axes",
    "find_overlaps",
    "get_range",
    "iterate_slabs",
    "shift_to_zero",
]

Key = tuple[slice | int, ...]


def convert_elements(elements: Any, dtype: np.dtype[Any]) -> Any:
    """Convert elements of a source to the array's dtype, clipping integers that are out of range."""
    given = np.asarray(elements)
    if (
        given.dtype.kind in "iu"
        and dtype.kind in "iu"
        and not np.can_cast(given.dtype, dtype, "safe")
    ):
        held = np.iinfo(dtype)
        return np.clip(given, held.min, held.max)
    return given


def get_range(part: slice) -> tuple[int, int, int]:
    """Return the start, count and step of a slice with given start and stop."""
    step = part.step or 1
    return part.start, -(-(part.stop - part.start) // step), step


def shift_to_zero(part: slice) -> slice:
    """Return a slice from 0 with the same number of elements."""
    return slice(0, get_range(part)[1])


def find_overlaps(sections: Sequence[tuple[slice, ...]]) -> NDArray[np.bool_]:
    """
    Return for each pair of sections whether they may intersect; False only if they do not.

    Examples
    --------
    >>> find_overlaps([(slice(0, 9, 2),), (slice(1, 9, 2),), (slice(3, 5),)]).tolist()
    [[True, False, True], [False, True, True], [True, True, True]]
    """
    words = [[get_range(part) for part in section] for section in sections]
    shape = len(sections), len(sections[0]), 3
    start, count, step = np.moveaxis(np.array(words, np.int64).reshape(shape), 2, 0)
    last = start + (count - 1) * step
    # If two progressions have a common member, the distance of their starts is a multiple of this.
    step = np.where(count == 1, 0, step)
    shared = np.maximum(np.gcd(step[:, None], step), 1)
    meet = (start[:, None] <= last) & (start <= last[:, None])
    found: NDArray[np.bool_] = (meet & ((start[:, None] - start) % shared == 0)).all(axis=2)
    return found


def clip_section(
    axes: tuple[tuple[int, int], ...],
    there: tuple[slice, ...],
    place: tuple[slice, ...],
    shape: tuple[int, ...],
) -> tuple[Key, tuple[slice, ...]] | None:
    """Return the part of a section inside its source's current shape, as key and position, or None."""
    key: list[slice | int] = []
    left = list(place)
    for (axis, index), length in zip(axes, shape, strict=True):
        if axis < 0:
            if index >= length:
                return None
            key.append(index)
            continue
        start, count, step = get_range(there[axis])
        number = min(count, -(-(length - start) // step))
        if number <= 0:
            return None
        key.append(slice(start, start + (number - 1) * step + 1, step))
        if number < count:
            first, _, apart = get_range(place[axis])
            left[axis] = slice(first, first + (number - 1) * apart + 1, apart)
    return tuple(key), tuple(left)


def drop_axes(
    memory: NDArray[Any], axes: tuple[tuple[int, int], ...], place: tuple[slice, ...]
) -> NDArray[Any]:
    """Return the memory of a section without the axes that its source does not have."""
    theirs = {axis for axis, _ in axes}
    # The ellipsis keeps a single element a view.
    key = (*(one if d in theirs else one.start for d, one in enumerate(place)), ...)
    seen: NDArray[Any] = memory[key]
    return seen


def iterate_slabs(
    key: Key, shape: tuple[int, ...], most: int
) -> Iterator[tuple[Key, tuple[slice, ...]]]:
    """Yield slabs of a section with at most `most` elements: the key and the position of each."""
    tile = _core.slab_shape(shape, range(len(shape))[::-1], most)
    for at in itertools.product(*(range(0, n, t) for n, t in zip(shape, tile, strict=True))):
        place = tuple(slice(a, min(a + t, n)) for a, t, n in zip(at, tile, shape, strict=True))
        left = iter(place)
        yield tuple(one if isinstance(one, int) else _cut(one, next(left)) for one in key), place


def _cut(whole: slice, part: slice) -> slice:
    start, _, step = get_range(whole)
    return slice(start + part.start * step, start + (part.stop - 1) * step + 1, step)
