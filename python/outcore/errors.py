"""
Exceptions of outcore.

::

    OutcoreError(Exception)            .code  .path  .rank
    ├── SectionError(IndexError)       the section does not fit the array
    │   └── FancyIndexError            a field name; or an array where only sections are allowed
    ├── DistributionError(ValueError)  invalid distribution of an array
    ├── BudgetError(MemoryError)       the operation does not fit the memory budget  .needed
    ├── FormatError(ValueError)        the file violates its format   .offset
    │   ├── UnsupportedError           valid, but outcore does not support this feature
    │   └── NoSuchMemberError(KeyError)  a group has no array and no group of that name
    ├── StorageError(OSError)          an operating system call failed
    │   │                              .errno .filename .offset .length
    │   ├── NotFoundError(FileNotFoundError)
    │   ├── AlreadyExistsError(FileExistsError)
    │   └── PermissionDeniedError(PermissionError)
    ├── LinAlgError(numpy.linalg.LinAlgError)   the matrix cannot be factored or solved
    ├── CollectiveError                a rank failed or is missing; all ranks raise it  .ranks
    ├── UsageError(ValueError)         an invalid argument (mode, hint, option)
    │   ├── AxisError(IndexError)      there is no such axis (also NumPy's AxisError)
    │   └── PathTypeError(TypeError)   a path of an invalid type
    └── InternalError                  a bug in outcore; please report

The name in brackets is a second base class, so that code that catches `OSError`, `FileNotFoundError`,
`IndexError`, `KeyError`, `MemoryError`, `ValueError` or `numpy.linalg.LinAlgError` keeps working.
`BudgetError` is also a `ValueError`, and `FancyIndexError` an `UnsupportedError`. ``code`` is stable
and append-only: ``docs/status/error-codes.md``. A code may select a more specific class than the one
that was raised: a `StorageError` with the code ``not-found`` is always a `NotFoundError`. A message has
the failure, its object, the numbers, and the next step.
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
    Base class of all exceptions of outcore.

    Parameters
    ----------
    message
        Failure, its object, the numbers, and the next step.
    code
        Stable code such as ``"index-out-of-bounds"``.
    path
        Path of the file concerned, if any.
    rank
        MPI rank concerned, if any.
    details
        Further attributes of the class (``offset``, ``length``, ``errno``).
    """

    code: str
    path: str | None
    rank: int | None
    details: dict[str, Any]

    def __new__(cls, message: str, *, code: str, **_: Any) -> Self:
        """Create an instance of the most specific class for this code."""
        exact = _EXACT.get(code, cls)
        kind = exact if issubclass(exact, cls) else cls
        # The second base of that class creates the instance: only `OSError` can create its own.
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
        """Fill the fields of the second base class, if it has any."""

    def speak_of(self, name: str, instead_of: str) -> None:
        """Replace the temporary path of a file in the error by the path that the caller knows."""
        self.message = self.message.replace(instead_of, name)
        self.args = (self.message,)
        self.path = None if self.path is None else self.path.replace(instead_of, name)
        self._tell_system()

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {"code": self.code, "path": self.path, "rank": self.rank, **self.details}
        # Other causes may not support pickling.
        cause = self.__cause__ if isinstance(self.__cause__, OutcoreError) else None
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else None
        return (_rebuild, (type(self), self.message, keywords, cause), notes)


class StaysInProcess:
    """
    Base class of objects that belong to one process, or to ranks.

    Pickling or copying such an object raises `UsageError`.
    """

    __slots__ = ()
    #: Advice in the message.
    _elsewhere = "create it there"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise other_process_error(f"{name} cannot be pickled or copied", self._elsewhere)


def other_process_error(
    what: str, instead: str = "open it where it is needed", **details: Any
) -> UsageError:
    """Return the error for an object that cannot be passed to another process."""
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
    """The distribution of an array is invalid, or differs between ranks."""


class BudgetError(OutcoreError, ValueError, MemoryError):
    """The operation does not fit the memory budget; ``needed`` is a sufficient budget in bytes."""

    needed: int | None = None


def budget_error(
    subject: str,
    nbytes: int,
    limit: int | str,
    needed: int | None,
    *,
    reason: str = "",
    setting: str = "outcore.memory()",
    instead: str = "",
    code: str = "budget-too-small",
    path: str | None = None,
) -> BudgetError:
    """
    Return the error for work (`subject`) that needs `nbytes`, more than the memory budget has.

    `limit` is the budget in bytes, or a clause about it. `needed` is a sufficient value of `setting`,
    and `instead` another way to avoid the error.
    """
    why = f" ({reason})" if reason else ""
    budget = limit if isinstance(limit, str) else f"the memory budget is {limit} bytes"
    action = f"Raise {setting}" + ("" if needed is None else f" to {needed} bytes")
    other = f", or {instead}" if instead else ""
    message = f"{subject} needs {nbytes} bytes{why}, but {budget}. {action}{other}"
    return BudgetError(message, code=code, path=path, needed=needed)


class FormatError(OutcoreError, ValueError):
    """The file violates its format."""

    offset: int | None = None


class UnsupportedError(FormatError):
    """The file or option is valid, but outcore does not support the feature."""


class NoSuchMemberError(FormatError, KeyError):
    """A group has no array and no group of that name."""


class FancyIndexError(SectionError, UnsupportedError):
    """
    A field name, or an array, a list or a boolean where only sections are allowed.

    Reads and writes of an array accept arrays of indices, also collective ones; `outcore.mpi.read_all`,
    `CollectiveArray.explain_all`, `DiskArray.prefetch` and `DiskArray.explain_copy` do not.
    """


class StorageError(OutcoreError, OSError):
    """An operating system call failed, or the file ended early."""

    offset: int | None = None
    length: int | None = None
    _errno: int | None = None

    def _tell_system(self) -> None:
        self.filename = self.path
        number = self.details.setdefault("errno", self._errno)
        self.strerror = None if number is None else os.strerror(number)


class NotFoundError(StorageError, FileNotFoundError):
    """The file or folder does not exist, or a part of its path is not a folder."""

    _errno = numbers.ENOENT


class AlreadyExistsError(StorageError, FileExistsError):
    """The name already exists, and may not be replaced."""

    _errno = numbers.EEXIST


class PermissionDeniedError(StorageError, PermissionError):
    """The operating system denies access."""

    _errno = numbers.EACCES


class LinAlgError(OutcoreError, np.linalg.LinAlgError):
    """The matrix cannot be factored, or no system of equations can be solved with it."""


class CollectiveError(OutcoreError):
    """A rank failed, made a different call, or is missing; ``ranks`` has these ranks."""

    ranks: tuple[int, ...] = ()


class UsageError(OutcoreError, ValueError):
    """An argument is invalid for any call: a mode, a hint, an option."""


class AxisError(UsageError, np.exceptions.AxisError):
    """There is no such axis, or it is named twice; also NumPy's `AxisError` and an `IndexError`."""


class PathTypeError(UsageError, TypeError):
    """A path has an invalid type: an open file, bytes, a number."""


class InternalError(OutcoreError):
    """A bug in outcore; please report it with the message."""


def find_stack_level() -> int:
    """Return the ``stacklevel`` with which `warnings.warn` reports the line that called outcore."""
    here = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(1), 1  # noqa: SLF001
    while frame.f_code.co_filename.startswith(here) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def suggest_name(word: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one."""
    import difflib  # slow to import, and only needed for errors

    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


# Codes that select a more specific class than the one that is raised.
_EXACT: dict[str, type[OutcoreError]] = {
    "already-exists": AlreadyExistsError,
    "bad-axis": AxisError,
    "bad-path": PathTypeError,
    "fancy-index": FancyIndexError,
    "no-such-member": NoSuchMemberError,
    "not-found": NotFoundError,
    "permission-denied": PermissionDeniedError,
}
