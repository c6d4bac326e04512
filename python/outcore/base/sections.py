"""
Sections as values: the section that a key of basic indexing selects, and parts of it.

Problem: ``a[3, ::-1, None, 10:100:2]`` has other axes than `a`, another origin and another step. Code
that iterates over such a section, or copies it in tiles, counts its indices from 0; the array needs its
own indices.
Approach: a key becomes ascending ranges, and for each axis of the section the corresponding axis of the
array (`Selection`). A part of the section is again a section of the array, computed axis by axis.

Invariants: ``a[selection.within(part)]`` equals ``a[key][part]`` for every part that has only slices.
Keys of equal sections have equal selections, however they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray
    from outcore.arrays.tiling import Side
    from outcore.ranks.dist import DistArray

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """A section of an array."""

    #: Start, count and (positive) step for each axis of the array.
    ranges: tuple[tuple[int, int, int], ...]
    #: For each axis of the section, the axis of the array and whether it is reversed; None: a new
    #: axis.
    axes: tuple[tuple[int, bool] | None, ...]

    @classmethod
    def of_disk(cls, array: DiskArray, key: Any, *, write: bool = False) -> Selection:
        """Return the section of an array on disk that a key selects."""
        words, axes, _ = array.handle.core.section_of(key, write=write)
        triples = zip(words[::3], words[1::3], words[2::3], strict=True)
        return cls(tuple(triples), tuple(axes))

    @classmethod
    def of_memory(cls, array: DistArray, key: Any) -> Selection:
        """Return the section of a distributed array that a key selects."""
        ranges, axes = array.distribution.core.section_of(key, "the array in memory")
        return cls(tuple(ranges), tuple(axes))

    def __str__(self) -> str:
        """Return the key as it is written in a program: ``[3, 0:10:2]``."""

        def format_range(one: Any) -> str:
            if not isinstance(one, slice):
                return str(one)
            stop = "" if one.stop is None else one.stop
            step = "" if one.step in (None, 1) else f":{one.step}"
            return f"{one.start}:{stop}{step}"

        return f"[{', '.join(map(format_range, self.key))}]"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis of the section."""
        return tuple(1 if axis is None else self.ranges[axis[0]][1] for axis in self.axes)

    @property
    def keeps_axes(self) -> bool:
        """True if the section has the axes of the array, in any direction: no integer, no new axis."""
        return tuple(axis and axis[0] for axis in self.axes) == tuple(range(len(self.ranges)))

    @property
    def key(self) -> tuple[Any, ...]:
        """
        Key of the section, with integers, slices and None; equal for equal sections.

        Examples
        --------
        >>> Selection(((3, 1, 1), (1, 5, 2)), (None, (1, True))).key
        (None, 3, slice(9, 0, -2))
        """
        return self.within([slice(0, n) for n in self.shape])

    def within(self, part: Sequence[slice]) -> tuple[Any, ...]:
        """
        Return the key of a part of the section, in indices of the array.

        `part` has a slice without step for each axis of the section, counted from 0; for a new
        axis, the whole axis.

        Examples
        --------
        >>> Selection(((3, 1, 1), (10, 6, 2)), (None, (1, False))).within([slice(0, 1), slice(1, 3)])
        (None, 3, slice(12, 15, 2))
        """
        found: list[Any] = []
        told = 0
        for axis, one in zip(self.axes, part, strict=True):
            if axis is None:
                found.append(None)
                continue
            number, down = axis
            found += [self.ranges[n][0] for n in range(told, number)]
            found.append(_take_slice(self.ranges[number], one, down=down))
            told = number + 1
        found += [self.ranges[n][0] for n in range(told, len(self.ranges))]
        return tuple(found)

    def make_array_slices(self, part: Sequence[slice]) -> tuple[slice, ...]:
        """
        Return the key of a part with a slice for each axis of the array, of length 1 for an integer.

        Examples
        --------
        >>> Selection(((3, 1, 1), (10, 6, 2)), ((1, True),)).make_array_slices([slice(1, 3)])
        (slice(3, 4, None), slice(18, 15, -2))
        """
        found = [slice(start, start + 1) for start, _, _ in self.ranges]
        for axis, one in zip(self.axes, part, strict=True):
            if axis is not None:
                found[axis[0]] = _take_slice(self.ranges[axis[0]], one, down=axis[1])
        return tuple(found)

    def side(self, side: Side) -> Side:
        """Return the section as a side of a copy, for an array with the given `side`."""
        return side.section(self.ranges, self.axes)


def _take_slice(range_: tuple[int, int, int], part: slice, *, down: bool) -> slice:
    """Return the members `part` of a range as a slice of the axis."""
    start, count, step = range_
    first, stop = part.start, part.stop
    if first >= stop:
        return slice(start, start)
    if not down:
        low, high = start + first * step, start + (stop - 1) * step + 1
        # A single member needs no step.
        return slice(low, high, None if step == 1 or stop - first == 1 else step)
    high, low = start + (count - 1 - first) * step, start + (count - stop) * step
    if stop - first == 1:
        return slice(high, high + 1)
    return slice(high, low - 1 if low else None, -step)
