"""
How commands end: what is said of an error, and the exit status.

Idea. An error has a stable code; the code says whether something is damaged, was asked wrongly, or could
not be looked at. Of several paths the worst counts, as with the tools of GNU.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from outcore.errors import (
    CollectiveError,
    DistributionError,
    OutcoreError,
    SectionError,
    UsageError,
)

__all__ = [
    "DAMAGE",
    "DAMAGED",
    "DONE",
    "INTERRUPTED",
    "MISUSED",
    "NOT_READ",
    "STATUS",
    "UNREAD",
    "UNSEEN",
    "each",
    "failed",
    "say",
    "worst",
]

T = TypeVar("T")

DONE, DAMAGED, MISUSED, UNSEEN = range(4)
INTERRUPTED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGPIPE
STATUS = """exit status:
  0  done; what was looked at is in order
  1  damage: stored elements, or what a file says of them, cannot be read
  2  wrong use: an option, a section or a name that makes no sense
  3  it could not be done or looked at: no such file, no permission,
     what outcore does not know, too little memory or disk
  130 interrupted
of several paths the first of 1, 2 and 3 that one of them ends with"""

#: What stored elements, and the headers and tables that say where they are, are found to be.
DAMAGE = frozenset(
    (
        "bad-header",
        "bad-metadata",
        "chunk-out-of-file",
        "chunk-overlap",
        "chunk-table-damaged",
        "codec-failure",
        "disk-failure",
        "file-too-short",
        "file-truncated",
        "hdf5-refused",
    )
)
# Another option would do.
_MISUSE = frozenset(("already-exists", "bad-compression", "cannot-keep"))
#: Of a part of an array that `verify` met: nobody knows whether it is damaged.
NOT_READ = frozenset(
    (
        "cannot-open",
        "file-changed",
        "io-failure",
        "is-a-directory",
        "locked",
        "not-found",
        "permission-denied",
    )
)

# Messages name the arguments of Python; what they are called here.
_HERE = {
    "already-exists": "--overwrite",
    "bad-cast": "--casting unsafe",
    "block-too-large": "--memory BYTES",
    "budget-too-small": "--memory BYTES",
    "raw-needs-dtype": "--set dtype=f4 --set shape=100,200",
    "unknown-format": "--format NAME, or --set format=NAME of what is read",
}
# And these by their words.
_WORDS = {"resume=True": "--resume", "skip=True": "--skip"}


def say(message: str, error: BaseException | None = None) -> None:
    """To stderr: what happened, and how to go on."""
    if sys.stderr is None:
        return
    told = []
    for line in (message, *getattr(error, "__notes__", ())):
        here = [o for words, o in _WORDS.items() if words in line and o not in line]
        told.append(f"{line} (here: {', '.join(here)})" if here else line)
    with contextlib.suppress(OSError):
        print("\n".join(f"outcore: {line}" for line in told), file=sys.stderr)


def failed(error: OutcoreError) -> int:
    """Say what went wrong; the exit status of it."""
    # Ranks raise one error together; its cause says what would help.
    cause = error.__cause__ if isinstance(error, CollectiveError) else None
    reason = cause if isinstance(cause, OutcoreError) else error
    here = f" (here: {_HERE[reason.code]})" if reason.code in _HERE else ""
    say(f"{error}{here}", error)
    return _status_of(reason)


def _status_of(error: OutcoreError) -> int:
    if isinstance(error, UsageError | SectionError | DistributionError) or error.code in _MISUSE:
        return MISUSED
    return DAMAGED if error.code in DAMAGE else UNSEEN


def worst(statuses: Iterable[int]) -> int:
    """Of several paths: damage counts most, then what was asked wrongly."""
    found = set(statuses)
    return next((status for status in (DAMAGED, MISUSED, UNSEEN) if status in found), DONE)


def each(
    paths: Sequence[str], look: Callable[[str], tuple[T, int]]
) -> tuple[list[T | dict[str, Any]], int]:
    """
    Look at several paths: one that fails does not hide the others.

    Parameters
    ----------
    paths
        Of a single one, what fails is raised.
    look
        Gives what there is to say of a path, and the exit status.

    Returns
    -------
    list, int
        What was said of each, of a path that failed its error; and the exit status of all.
    """
    told: list[T | dict[str, Any]] = []
    statuses = []
    for path in paths:
        try:
            said, status = look(path)
        except OutcoreError as error:
            if len(paths) == 1:
                raise
            if sys.stdout is not None:
                sys.stdout.flush()  # in the order of the paths, where both go to one place
            status = failed(error)
            told.append({"path": path, "error": {"code": error.code, "message": error.message}})
        else:
            told.append(said)
        statuses.append(status)
    return told, worst(statuses)
