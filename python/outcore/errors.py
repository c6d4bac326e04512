"""
Everything outcore raises.

::

    OutcoreError(Exception)            .code  .path  .rank
    ├── SectionError(IndexError)       the section does not fit the array
    ├── DistributionError(ValueError)  no array can be distributed like that
    ├── BudgetError(ValueError)        the work cannot be done within the memory budget
    ├── FormatError(ValueError)        the file is not what its format promises   .offset
    │   └── UnsupportedError           valid, but outcore cannot read or write this feature
    ├── StorageError(OSError)          the operating system said no    .errno .offset .length
    ├── CollectiveError                some rank failed or is missing; all ranks raise it  .ranks
    ├── UsageError(ValueError)         an argument no call would accept (mode, hint, option)
    └── InternalError                  a bug in outcore; please report

The name in brackets is a second base, so that code that catches `OSError`, `IndexError` or
`ValueError` goes on working. ``code`` is stable and append-only: ``docs/status/error-codes.md``.
Messages say what failed, where, the numbers, then the next step.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetError",
    "CollectiveError",
    "DistributionError",
    "FormatError",
    "InternalError",
    "OutcoreError",
    "SectionError",
    "StorageError",
    "UnsupportedError",
    "UsageError",
]


class OutcoreError(Exception):
    """
    Base of all errors of outcore.

    Parameters
    ----------
    message
        What failed, where, the numbers, then the next step.
    code
        Stable code such as ``"index-out-of-bounds"``.
    path
        The file concerned, if any.
    rank
        The MPI rank concerned, if any.
    details
        Further attributes of the class (``offset``, ``length``, ``errno``).
    """

    code: str
    path: str | None
    rank: int | None

    def __init__(
        self,
        message: str,
        *,
        code: str,
        path: str | None = None,
        rank: int | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.path = path
        self.rank = rank
        self._details = details
        for name, value in details.items():
            # errno, filename and the like are C-level fields of the second base: assign, do not
            # rely on the instance dictionary.
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    def speak_of(self, name: str, instead_of: str) -> None:
        """Give a file the name that the caller knows, where its temporary one was told."""
        self.message = self.message.replace(instead_of, name)
        self.args = (self.message,)
        self.path = None if self.path is None else self.path.replace(instead_of, name)

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {"code": self.code, "path": self.path, "rank": self.rank, **self._details}
        return (_rebuild, (type(self), self.message, keywords))


def _rebuild(kind: type[OutcoreError], message: str, keywords: dict[str, Any]) -> OutcoreError:
    return kind(message, **keywords)


class SectionError(OutcoreError, IndexError):
    """The section does not fit the array."""


class DistributionError(OutcoreError, ValueError):
    """No array can be distributed like that, or the ranks do not agree on how it is."""


class BudgetError(OutcoreError, ValueError):
    """The work cannot be done within the memory budget; with ``needed`` bytes it could."""

    needed: int | None = None


class FormatError(OutcoreError, ValueError):
    """The file is not what its format promises."""

    offset: int | None = None


class UnsupportedError(FormatError):
    """Valid, but outcore cannot read or write this feature."""


class StorageError(OutcoreError, OSError):
    """The operating system said no, or the file ended early."""

    offset: int | None = None
    length: int | None = None


class CollectiveError(OutcoreError):
    """A rank failed, called something else, or is missing; ``ranks`` says which."""

    ranks: tuple[int, ...] = ()


class UsageError(OutcoreError, ValueError):
    """An argument that no call would accept: a mode, a hint, an option."""


class InternalError(OutcoreError):
    """A bug in outcore; please report it with the message."""
