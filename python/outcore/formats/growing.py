"""
How the length of an array on disk changes: by one at a time, old or new.

Problem. Two that append to one array, in whatever processes, must not get the same place; who reads or
is killed meanwhile must find the old array or the new one; and what was reserved for nothing must go.
Idea. `Growing` is an array whose length nobody else changes, described as it is by then. Room for the
new elements comes first, the elements next, the length last; what fails in between is given back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from outcore.formats.layout import ArrayInfo
from outcore.formats.spec import check_shape


class Growing(Protocol):
    """An array whose length the caller alone may change, until the context that gave it is left."""

    info: ArrayInfo
    """The array as it is now; others may have appended to it."""

    def reserve(self, shape: tuple[int, ...]) -> ArrayInfo:
        """Room for a longer array, which nobody sees: where the new elements are to be written."""

    def finish(self) -> ArrayInfo:
        """The elements are written and durable: make the array as long as was reserved."""


class ByMetadata:
    """Growing for formats whose metadata tell the length in one step; of raw files a record does."""

    def __init__(self, format: Any, info: ArrayInfo) -> None:
        self._format = format
        self.info = info
        self._room = info
        self.reserved = False

    def reserve(self, shape: tuple[int, ...]) -> ArrayInfo:
        """Room for a longer array."""
        full = check_shape(shape, self.info.dtype.itemsize, self.info.path, stored=False)
        self.reserved = True  # if only a part of it
        self._room = self._format.reserve(self.info, full)
        return self._room

    def finish(self) -> ArrayInfo:
        """Make the array as long as was reserved."""
        self.info = self._format.resize(self._room, self._room.shape)
        return self.info


@contextlib.contextmanager
def by_metadata(format: Any, info: ArrayInfo) -> Iterator[Growing]:
    """
    Keep others from changing the length of an array of a `Resizable` format.

    Parameters
    ----------
    format
        The format.
    info
        The array.
    """
    with format.alone(info) as now:
        array = ByMetadata(format, now)
        try:
            yield array
        except BaseException:
            if array.reserved:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    format.release(now)
            raise
