"""
Prepared indices for virtual arrays.

Problem: a schedule of the core is for one array; a virtual array has many sources, which may appear and
disappear.
Approach: one schedule for each piece with selected elements, and the position of these elements in the
result.
Invariants: pieces are read in order, so if several have a common element, the last piece provides it. A
schedule whose sources have changed is no longer used, but created again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.virtual.core import Source, VirtualCore
from outcore.arrays.virtual.sections import convert_elements, shift_to_zero

__all__ = ["VirtualSchedule", "is_stale", "is_valid_for", "prepare_schedule"]


def prepare_schedule(
    core: Any,
    axes: tuple[int, ...],
    lists: tuple[NDArray[np.int64], ...],
    mode: str,
    rest: list[int],
) -> _core.IndexSchedule:
    """Return an index prepared for arrays of the layout of this one, virtual or not."""
    if not isinstance(core, VirtualCore):
        return _core.IndexSchedule(core, axes, lists, mode, rest)
    made: Any = VirtualSchedule(core, axes, lists, mode, rest)
    return made  # type: ignore[no-any-return]


def is_valid_for(made: Any, core: Any) -> bool:
    """Return whether a prepared index is valid for an array, virtual or not."""
    both = isinstance(made, VirtualSchedule), isinstance(core, VirtualCore)
    return both[0] == both[1] and made.serves(core)


def is_stale(made: Any, core: Any) -> bool:
    """Return whether the index was prepared for a virtual array whose sources have changed."""
    return isinstance(made, VirtualSchedule) and made.core is core and not made.serves(core)


class VirtualSchedule:
    """
    An index prepared for a virtual array: a schedule and a destination for each source.

    It has the members of the core's own `IndexSchedule`; its arguments are those of
    `VirtualCore.read_points`, with indices that were checked. It is valid as long as no source
    appears, disappears, or changes its shape or layout.
    """

    def __init__(
        self,
        core: VirtualCore,
        axes: tuple[int, ...],
        lists: tuple[NDArray[np.int64], ...],
        mode: str,
        rest: list[int],
    ) -> None:
        self.core = core
        self._looked: dict[int, tuple[int, ...] | None] = {}
        self._each: list[_PieceAccess] = []
        for one in core.choose_points(axes, lists, mode, rest, self._looked):
            source = core.open_source(one.source)
            if source is None:  # it was removed in the meantime
                self._looked[one.source] = None
                continue
            first, last = int(one.points[0]), int(one.points[-1])
            points: slice | NDArray[np.intp] = slice(first, last + 1)
            held = None
            if last - first + 1 != len(one.points):
                points = one.points
                held = _core.Reservation("places of elements of a source", points.nbytes)
            made = None
            if one.axes:
                made = prepare_schedule(source.core, one.axes, one.lists, "points", one.rest)
            into = (points, *one.place)
            self._each.append(_PieceAccess(one.source, made, one.section, one.shape, into, held))

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that the schedule uses."""
        held = sum(one.held.nbytes for one in self._each if one.held is not None)
        return held + sum(one.made.nbytes for one in self._each if one.made is not None)

    def serves(self, core: Any) -> bool:
        """Return whether the schedule is valid for this array with its current sources."""
        if core is not self.core:
            return False
        for number, shape in self._looked.items():
            source = self.core.open_source(number)
            if (None if source is None else source.info.shape) != shape:
                return False
        for one in self._each:
            source = self.core.open_source(one.source)
            if source is None or (one.made is not None and not one.made.serves(source.core)):
                return False
        return True

    def read(self, core: Any, out: NDArray[Any]) -> None:
        """Read the elements into memory with a row for each point."""
        if not out.size:
            return
        corner = (slice(0, 1),) * len(self.core.info.shape)
        out[...] = self.core.base.read(corner).reshape(())
        for one in self._each:
            source = self.core.open_source(one.source)
            if source is not None:
                self._read_one(one, source, out)

    def _read_one(self, one: _PieceAccess, source: Source, out: NDArray[Any]) -> None:
        place = out[one.into] if isinstance(one.into[0], slice) else None
        dtype = source.info.dtype
        packed = place is not None and dtype == out.dtype and place.flags.c_contiguous
        if one.made is not None and place is not None and packed:
            one.made.read(source.core, place.reshape(one.shape))
            return
        with _core.Reservation("elements of a source", math.prod(one.shape) * dtype.itemsize):
            buffer = np.empty(one.shape, dtype)
            if one.made is not None:
                one.made.read(source.core, buffer)
            else:
                # Its one index along these axes is in the section.
                buffer[...] = source.core.read(one.section)
            lengths = [part.stop - part.start for part in map(shift_to_zero, one.into[1:])]
            here = buffer.reshape(len(buffer), *lengths)
            into: Any = one.into
            out[into] = convert_elements(here, self.core.info.dtype)


class _PieceAccess(NamedTuple):
    """Prepared access to the elements of one piece."""

    source: int
    #: None if the section contains its one index along the axes of the points.
    made: _core.IndexSchedule | None
    section: tuple[slice, ...]
    #: Shape of the memory that the source is read into, and its destination.
    shape: tuple[int, ...]
    into: tuple[Any, ...]
    held: _core.Reservation | None
