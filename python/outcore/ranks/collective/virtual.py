"""
Contributions of one rank to a collective read of virtual datasets: sections of their sources.

Problem. A collective call plans for arrays that store elements in a file. A virtual dataset stores none.
Approach. A section of it consists of sections of its sources (`outcore.arrays.virtual`), so a rank
contributes an item for each of these to the one call of all ranks. Chunks that several ranks need are
read once, through whichever datasets they are reached. Each rank fills in elements without a source
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.virtual.sections import convert_elements
from outcore.ranks.collective import items as brought
from outcore.ranks.collective.items import Item

__all__ = ["SectionReading", "prepare_reports"]


class SectionReading:
    """A section of an array to read together with other ranks."""

    def __init__(self, array: DiskArray, key: Any, out: NDArray[Any] | None) -> None:
        self._finish: list[Callable[[], None]] = []
        self._scalar = False
        self._result: Any = None
        #: Items to read, in the order of the results.
        self.items: list[Item] = []
        self.virtual = array.handle.is_virtual
        if not self.virtual:
            self.items.append(brought.prepare_read(array, key, out))
            return
        core: Any = array.handle.core
        self._result, self._scalar, parts = core.brought(key, out)
        # If parts overlap, the last one counts, so they are stored in order.
        for part, contended in zip(parts, core.find_contended(parts), strict=True):
            source = _open_source(array, part.source)
            if source is not None:
                self._add(source, part.key, part.place, contended)

    def _add(self, source: DiskArray, key: Any, place: NDArray[Any], contended: bool) -> None:
        into = place
        if contended or source.dtype != place.dtype:
            held = _core.Reservation("conversion of a source", place.size * source.dtype.itemsize)
            into = np.empty(place.shape, source.dtype)

            def convert() -> None:
                with held:
                    place[...] = convert_elements(into, place.dtype)

            self._finish.append(convert)
        below = SectionReading(source, key, into)
        self.items += below.items
        # Nested sources are converted first, because their result is converted here.
        self._finish[:0] = below._finish

    def finish(self, found: list[Any]) -> Any:
        """Return the result for the caller from the results of its items."""
        if not self.virtual:
            return found[0]
        for step in self._finish:
            step()
        return self._result[()] if self._scalar else self._result


def prepare_reports(array: DiskArray, key: Any) -> list[Item]:
    """Return the sections of sources for a report; for any other array its section."""
    if not array.handle.is_virtual:
        return [brought.prepare_report(array, key)]
    core: Any = array.handle.core
    found = []
    for part in core.list_sections(key):
        source = _open_source(array, part.source)
        if source is not None:
            found += prepare_reports(source, part.key)
    return found


def _open_source(array: DiskArray, number: int) -> DiskArray | None:
    """Return a source as an open array; None if it no longer exists."""
    core: Any = array.handle.core
    handle: DiskArray | None = core.handles.get(number)
    if handle is None:
        source = core.open_source(number)
        if source is None:
            return None
        handle = DiskArray(source.info, "r", array.hints, {"format": source.info.format})
        core.handles[number] = handle
    return handle
