"""
Context manager methods of objects that have `close`.

Problem: arrays, groups, schedules and journals are closed at the end of a ``with`` block, and each class
had the same two methods for it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ["Closable"]


class Closable:
    """Object that is closed by `close`, or at the end of a ``with`` block."""

    __slots__ = ()

    def close(self) -> None:
        """Close the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
