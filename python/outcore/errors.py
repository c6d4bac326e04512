"""
Everything outcore raises.

::

    OutcoreError(Exception)            .code  .path  .rank
    ├── SectionError(IndexError)       the section does not fit the array
    │   └── FancyIndexError            a field name; an array, where only sections are taken
    ├── DistributionError(ValueError)  no array can be distributed like that
    ├── BudgetError(MemoryError)       the work cannot be done within the memory budget  .needed
    ├── FormatError(ValueError)        the file is not what its format promises   .offset
    │   ├── UnsupportedError           valid, but outcore cannot read or write this feature
    │   └── NoSuchMemberError(KeyError)  a group has no array and no group of that name
    ├── StorageError(OSError)          the operating system said no
    │   │                              .errno .filename .offset .length
    │   ├── NotFoundError(FileNotFoundError)
    │   ├── AlreadyExistsError(FileExistsError)
    │   └── PermissionDeniedError(PermissionError)
    ├── LinAlgError(numpy.linalg.LinAlgError)   a matrix that cannot be factored, or solved with
    ├── CollectiveError                some rank failed or is missing; all ranks raise it  .ranks
    ├── UsageError(ValueError)         an argument no call would accept (mode, hint, option)
    │   ├── AxisError(IndexError)      there is no such axis (also NumPy's AxisError)
    │   └── PathTypeError(TypeError)   what was given as a path is none
    └── InternalError                  a bug in outcore; please report

The name in brackets is a second base, so that code that catches `OSError`, `FileNotFoundError`,
`IndexError`, `KeyError`, `MemoryError`, `ValueError` or `numpy.linalg.LinAlgError` goes on working.
`BudgetError` is a `ValueError`, and `FancyIndexError` an `UnsupportedError`, besides. ``code`` is stable
and append-only: ``docs/status/error-codes.md``. It decides the class where one is more exact than the
one that was raised: a `StorageError` with the code ``not-found`` is a `NotFoundError`, wherever it comes
from. Messages say what failed, where, the numbers, then the next step.
"""

from __future__ import annotations

import errno as numbers
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn, Self

import numpy as np

__all__ = [
    "AlreadyExistsError",
    "AxisError",
    "BudgetError",
    "CollectiveError",
    "DistributionError",
    "FancyIndexError",
    "FormatError",
    "InternalError",
    "LinAlgError",
    "NoSuchMemberError",
    "NotFoundError",
    "OutcoreError",
    "PathTypeError",
    "PermissionDeniedError",
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
    details: dict[str, Any]

    def __new__(cls, message: str, *, code: str, **_: Any) -> Self:
        """Make an instance of the most exact class for this code."""
        exact = _EXACT.get(code, cls)
        kind = exact if issubclass(exact, cls) else cls
        # The second base of that class makes it: only `OSError` knows how to make one.
        return super(OutcoreError, kind).__new__(kind, message)

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
        self.details = details
        self._tell_system()
        for name, value in details.items():
            # errno, filename and the like are C-level fields of the second base: assign, do not
            # rely on the instance dictionary.
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    def _tell_system(self) -> None:
        """Fill the fields of the second base, where it has any."""

    def speak_of(self, name: str, instead_of: str) -> None:
        """Give a file the name that the caller knows, where its temporary one was told."""
        self.message = self.message.replace(instead_of, name)
        self.args = (self.message,)
        self.path = None if self.path is None else self.path.replace(instead_of, name)
        self._tell_system()

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {"code": self.code, "path": self.path, "rank": self.rank, **self.details}
        # Of other causes nobody knows whether they can be pickled.
        cause = self.__cause__ if isinstance(self.__cause__, OutcoreError) else None
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else None
        return (_rebuild, (type(self), self.message, keywords, cause), notes)


class StaysInProcess:
    """Base of what belongs to its process, or to ranks: pickling and copying it raises `UsageError`."""

    __slots__ = ()
    #: What to do, in messages.
    _elsewhere = "make it there"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise stays(f"{name} cannot be pickled or copied", self._elsewhere)


def stays(what: str, instead: str = "open it where it is needed", **details: Any) -> UsageError:
    """Return the error for an object that another process cannot have."""
    return UsageError(
        f"{what}: it belongs to this process and its ranks; {instead}",
        code="other-process",
        **details,
    )


def _rebuild(
    kind: type[OutcoreError], message: str, keywords: dict[str, Any], cause: OutcoreError | None
) -> OutcoreError:
    error = kind(message, **keywords)
    if cause is not None:
        error.__cause__ = cause
    return error


class SectionError(OutcoreError, IndexError):
    """The section does not fit the array."""


class DistributionError(OutcoreError, ValueError):
    """No array can be distributed like that, or the ranks do not agree on how it is."""


class BudgetError(OutcoreError, ValueError, MemoryError):
    """The work cannot be done within the memory budget; with ``needed`` bytes it could."""

    needed: int | None = None


class FormatError(OutcoreError, ValueError):
    """The file is not what its format promises."""

    offset: int | None = None


class UnsupportedError(FormatError):
    """Valid, but outcore cannot read or write this feature."""


class NoSuchMemberError(FormatError, KeyError):
    """A group has no array and no group of that name."""


class FancyIndexError(SectionError, UnsupportedError):
    """
    A field name, or an array, a list or a boolean where only sections are taken.

    Reads and writes of an array take arrays of indices, also those of all ranks; `outcore.read_all`,
    `CollectiveArray.explain_all`, `DiskArray.prefetch` and `DiskArray.explain_copy` do not.
    """


class StorageError(OutcoreError, OSError):
    """The operating system said no, or the file ended early."""

    offset: int | None = None
    length: int | None = None
    _errno: int | None = None

    def _tell_system(self) -> None:
        self.filename = self.path
        number = self.details.setdefault("errno", self._errno)
        self.strerror = None if number is None else os.strerror(number)


class NotFoundError(StorageError, FileNotFoundError):
    """There is no such file or folder, or a part of its path is none."""

    _errno = numbers.ENOENT


class AlreadyExistsError(StorageError, FileExistsError):
    """Something has that name already, and may not be replaced."""

    _errno = numbers.EEXIST


class PermissionDeniedError(StorageError, PermissionError):
    """The system forbids it."""

    _errno = numbers.EACCES


class LinAlgError(OutcoreError, np.linalg.LinAlgError):
    """A matrix that cannot be factored, or that no system of equations can be solved with."""


class CollectiveError(OutcoreError):
    """A rank failed, called something else, or is missing; ``ranks`` says which."""

    ranks: tuple[int, ...] = ()


class UsageError(OutcoreError, ValueError):
    """An argument that no call would accept: a mode, a hint, an option."""


class AxisError(UsageError, np.exceptions.AxisError):
    """There is no such axis, or it is named twice; NumPy's error of that name, and an `IndexError`."""


class PathTypeError(UsageError, TypeError):
    """What was given as a path is no path: an open file, bytes, a number."""


class InternalError(OutcoreError):
    """A bug in outcore; please report it with the message."""


def callers_line() -> int:
    """The ``stacklevel`` with which `warnings.warn` names the line that called outcore."""
    here = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(1), 1  # noqa: SLF001
    while frame.f_code.co_filename.startswith(here) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def advice(word: object, known: Iterable[str]) -> str:
    """End of a message about a word that is not known: the nearest one that is."""
    import difflib  # long to import, and only for errors

    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


# Codes that mean a more exact class than the one that is raised.
_EXACT: dict[str, type[OutcoreError]] = {
    "already-exists": AlreadyExistsError,
    "bad-axis": AxisError,
    "bad-path": PathTypeError,
    "fancy-index": FancyIndexError,
    "no-such-member": NoSuchMemberError,
    "not-found": NotFoundError,
    "permission-denied": PermissionDeniedError,
}
