"""
Changes of the length of an array on disk: one at a time, with the old or the new length after a crash.

Problem: two processes or threads that append to one array must not get the same place. A reader, and a
process after a kill, must find the old array or the new one. Space that was reserved in vain must be
released.
Approach: `Growing` is an array whose length only its owner changes, with its current length. Space for
new elements comes first, the elements next, the length last; a failure in between releases the space.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from outcore.formats.layout import ArrayInfo
from outcore.formats.spec import check_shape


class Growing(Protocol):
    """An array whose length only the caller may change, until the context ends."""

    info: ArrayInfo
    """The array with its current length; others may have appended to it."""

    def reserve(self, shape: tuple[int, ...]) -> ArrayInfo:
        """Reserve hidden space for a longer array; return the array to write new elements to."""

    def finish(self) -> ArrayInfo:
        """Make the array as long as was reserved; its elements are durable."""


class GrowingByMetadata:
    """Growing for formats whose metadata change the length in one step; raw files use a record."""

    def __init__(self, format: Any, info: ArrayInfo) -> None:
        self._format = format
        self.info = info
        self._room = info
        self.reserved = False

    def reserve(self, shape: tuple[int, ...]) -> ArrayInfo:
        """Reserve space for a longer array."""
        full = check_shape(shape, self.info.dtype.itemsize, self.info.path, stored=False)
        self.reserved = True  # before the call, which may fail after reserving a part
        self._room = self._format.reserve(self.info, full)
        return self._room

    def finish(self) -> ArrayInfo:
        """Make the array as long as was reserved."""
        self.info = self._format.resize(self._room, self._room.shape)
        return self.info


@contextlib.contextmanager
def grow_by_metadata(format: Any, info: ArrayInfo) -> Iterator[Growing]:
    """Keep others from changing the length of an array of a `Resizable` format."""
    with format.lock_length(info) as now:
        array = GrowingByMetadata(format, now)
        try:
            yield array
        except BaseException:
            if array.reserved:
                with contextlib.suppress(Exception):  # report the first error
                    format.release(now)
            raise
