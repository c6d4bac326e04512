"""
Arrays in memory, where an operation expects arrays on disk.

Problem. An operand or a result may be small, and schedules should not distinguish it from an array
on disk.
Idea. The two calls that a schedule makes, executed immediately by a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from numpy.typing import NDArray

__all__ = ["InMemory"]


class _CompletedRequest:
    """A request that has already completed."""

    done = True

    def wait(self, timeout: float | None = None) -> None:
        """Return immediately."""

    def cancel(self) -> bool:
        """Do nothing and return False: the request has already completed."""
        return False

    def finish(self, *, unwanted: bool = False) -> None:
        """Return immediately."""


class InMemory:
    """An array in memory, read and written in place; messages call it `path`."""

    #: Properties of arrays on disk, which it lacks.
    info = chunks = dims = None
    attrs: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, data: NDArray[Any], path: str) -> None:
        self.data, self.path = data, path
        self.shape, self.ndim, self.size = data.shape, data.ndim, data.size
        self.dtype, self.nbytes = data.dtype, data.nbytes
        #: ``"F"`` if the first axis runs fastest.
        self.order = "F" if data.flags.fnc else "C"

    def __getitem__(self, key: Any) -> Any:
        return self.data[key].copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[key] = value

    def iread(self, key: Any, *, out: NDArray[Any]) -> Any:
        """Read a section; return a completed request."""
        out[...] = self.data[key]
        return _CompletedRequest()

    def iwrite(self, key: Any, value: NDArray[Any]) -> Any:
        """Write a section; return a completed request."""
        self.data[key] = value
        return _CompletedRequest()

    def close(self) -> None:
        """Do nothing."""
