"""
Parse keys of a local array: integers, slices, ``...`` and new axes.

Approach: a key is expanded to one item for each axis. `straighten` converts it to a section with
positive steps and a key for that section in memory; `shift_key` converts it to the key for an array with
more elements in front.
Invariants: keys that NumPy rejects raise an error with the number of the axis.
"""

from __future__ import annotations

import hashlib
import math
import operator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from outcore.base.distribution import Key
from outcore.errors import SectionError

__all__ = ["SectionRows", "measure_section", "shift_key", "straighten", "view_as_section"]


@dataclass(frozen=True)
class SectionRows:
    """
    Section that is read row by row: a key, cut along the first axis with a slice.

    `words` has one integer or range for each axis of the array, and None for a new axis.
    """

    words: tuple[range | int | None, ...]

    @classmethod
    def of(cls, key: Any, shape: tuple[int, ...]) -> SectionRows:
        """
        Return the rows of the section `key` of an array with this shape.

        Examples
        --------
        >>> rows = SectionRows.of((3, slice(None, None, 2)), (6, 8))
        >>> rows.shape, rows.length, rows.row, rows.get_part(1, 3)
        ((4,), 4, 1, ((3, slice(2, 6, 2)), (slice(1, 3, None),)))
        """
        words = _parse_key(key, shape)
        return cls(tuple(range(*w.indices(n)) if isinstance(w, slice) else w for w, n in words))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(1 if w is None else len(w) for w in self.words if not isinstance(w, int))

    @property
    def _axis(self) -> int | None:
        """Index of the item that is cut; None if there is only one element."""
        return next((k for k, w in enumerate(self.words) if isinstance(w, range)), None)

    @property
    def length(self) -> int:
        """Number of rows; 0 if there are no elements."""
        if 0 in self.shape:
            return 0
        cut = self._axis
        return 1 if cut is None else len(self.words[cut])  # type: ignore[arg-type]

    @property
    def row(self) -> int:
        """Number of elements of a row."""
        return math.prod(
            len(w) for k, w in enumerate(self.words) if isinstance(w, range) and k != self._axis
        )

    @property
    def meaning(self) -> int:
        """Number that identifies the key, the same on all ranks."""
        said = repr(self.words).encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=7).digest(), "little")

    def get_part(self, first: int, last: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the key of some rows in the array, and their position in the result."""
        key: list[Any] = []
        place: list[Any] = []
        for k, word in enumerate(self.words):
            if isinstance(word, range):
                rows = word[first:last] if k == self._axis else word
                stop = rows.stop if rows.stop >= 0 else None
                key.append(slice(rows.start, stop, rows.step))
                place.append(slice(first, last) if k == self._axis else slice(None))
            else:
                key.append(word)
                if word is None:
                    place.append(slice(None))
        return tuple(key), tuple(place)


def straighten(key: Any, shape: tuple[int, ...]) -> tuple[Key, tuple[Any, ...]]:
    """
    Convert a key to a section with positive steps, and a key for the array of that section.

    The section has slices of plain integers. The second key gives a view, except for a single element.

    Examples
    --------
    >>> straighten((slice(None, None, -2), 3), (6, 8))
    ((slice(1, 6, 2), slice(3, 4, None)), (slice(None, None, -1), 0))
    """
    box: list[slice] = []
    within: list[Any] = []
    for word, n in _parse_key(key, shape):
        if word is None:
            within.append(None)
        elif isinstance(word, int):
            box.append(slice(word, word + 1))
            within.append(0)
        else:
            indices = range(*word.indices(n))
            down = indices.step < 0
            if not indices:
                box.append(slice(0, 0))
            else:
                low, high = min(indices[0], indices[-1]), max(indices[0], indices[-1])
                step = abs(indices.step)
                box.append(slice(low, high + 1, None if step == 1 or low == high else step))
            within.append(slice(None, None, -1) if down and len(indices) > 1 else slice(None))
    return tuple(box), tuple(within)


def view_as_section(out: NDArray[Any] | None, within: tuple[Any, ...]) -> NDArray[Any] | None:
    """
    Return the view of a result in the order of its section, or None if they have different axes.

    `within` is the second key from `straighten`.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.array([1, 2, 3])
    >>> view_as_section(out, (slice(None, None, -1),)), view_as_section(out, (slice(None), 0))
    (array([3, 2, 1]), None)
    """
    if out is None or not all(isinstance(word, slice) for word in within):
        return None
    view: NDArray[Any] = out[(*within, ...)]
    return view


def measure_section(section: Key) -> tuple[int, ...]:
    """
    Return the shape of a section of slices of plain integers.

    Examples
    --------
    >>> measure_section((slice(1, 6, 2), slice(3, 4)))
    (3, 1)
    """
    return tuple(len(range(part.start, part.stop, part.step or 1)) for part in section)


def shift_key(key: Any, shape: tuple[int, ...], lead: tuple[int, ...]) -> tuple[Any, ...]:
    """
    Return the same key, for an array with `lead` more elements in front along each axis.

    Examples
    --------
    >>> shift_key((..., slice(None, None, -1)), (3, 4), (0, 2))
    (slice(0, 3, 1), slice(5, 1, -1))
    """
    found: list[Any] = []
    more = iter(lead)
    for word, n in _parse_key(key, shape):
        if word is None:
            found.append(None)
        elif isinstance(word, int):
            found.append(word + next(more))
        else:
            start, stop, step = word.indices(n)
            by = next(more)
            if not range(start, stop, step):
                found.append(slice(0, 0))
                continue
            end = stop + by
            found.append(slice(start + by, None if end < 0 else end, step))
    return tuple(found)


def _parse_key(key: Any, shape: tuple[int, ...]) -> list[tuple[slice | int | None, int]]:
    """Return one item and the length for each axis; None and 0 for a new axis."""
    items = list(key) if isinstance(key, tuple) else [key]
    rests = sum(item is Ellipsis for item in items)
    given = sum(item is not None and item is not Ellipsis for item in items)
    if rests > 1:
        raise SectionError("a key may contain '...' only once; remove one", code="bad-index")
    if given > len(shape):
        raise SectionError(
            f"{given} indices for a local array with {len(shape)} axes; pass at most {len(shape)}",
            code="too-many-indices",
        )
    if not rests:
        items.append(Ellipsis)
    words: list[tuple[slice | int | None, int]] = []
    axis = 0
    for item in items:
        if item is None:
            words.append((None, 0))
        elif item is Ellipsis:
            for _ in range(len(shape) - given):
                words.append((slice(None), shape[axis]))
                axis += 1
        else:
            words.append((_parse_index(item, axis, shape[axis]), shape[axis]))
            axis += 1
    return words


def _parse_index(item: Any, axis: int, n: int) -> slice | int:
    if isinstance(item, slice):
        try:
            item.indices(n)
        except (TypeError, ValueError) as error:
            raise SectionError(f"{item} on axis {axis}: {error}", code="bad-index") from None
        return item
    try:
        # Python treats True as an integer.
        index = operator.index(() if isinstance(item, bool) else item)  # type: ignore[arg-type]
    except TypeError:
        raise SectionError(
            f"{item!r} is not an index for axis {axis} of a local array; use integers, slices and '...'",
            code="bad-index",
        ) from None
    if not -n <= index < n:
        raise SectionError(
            f"index {index} is out of range for axis {axis} of a local array with {n} elements along it",
            code="index-out-of-bounds",
        )
    return index % n
