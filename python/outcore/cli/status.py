"""
Print errors and choose the exit status of a command.

Approach: each error has a stable code, which determines whether something is damaged, the call was
invalid, or the operation was not possible. Among several paths the worst status counts, as with the GNU
tools.
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
    "choose_worst",
    "process_each",
    "report_error",
    "say",
]

T = TypeVar("T")

DONE, DAMAGED, MISUSED, UNSEEN = range(4)
INTERRUPTED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGPIPE
STATUS = """exit status:
  0  done; no damage found
  1  damage: stored elements, or their description in a file, cannot be read
  2  invalid call: an invalid option, section or name
  3  not possible to run or to check: no such file, no permission,
     an unsupported file, too little memory or disk space
  130 interrupted
for several paths: 1 if any path ends with it, otherwise 2, otherwise 3"""

#: Codes of damaged elements, and of damaged headers and tables that locate them.
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
# Codes of errors that another option would avoid.
_MISUSE = frozenset(("already-exists", "bad-compression", "cannot-keep"))
#: Codes of parts of an array that `verify` could not read: they may be damaged or not.
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

# Messages name Python arguments; these are the options to use instead, by error code.
_HERE = {
    "bad-cast": "--casting unsafe",
    "block-too-large": "--memory BYTES",
    "budget-too-small": "--memory BYTES",
    "raw-needs-dtype": "--set dtype=f4 --set shape=100,200",
    "unknown-format": "--format NAME, or --set format=NAME for the source",
}
# Python arguments in messages, and the options that replace them.
_OPTIONS = {
    "pass overwrite=True": "use --overwrite",
    "overwrite=True": "--overwrite",
    "resume=True": "--resume",
    "skip=True": "--skip",
}


def say(message: str, error: BaseException | None = None) -> None:
    """Print a message to stderr, with notes of the error and the options of the command line."""
    if sys.stderr is None:
        return
    lines = [_replace_arguments(line) for line in (message, *getattr(error, "__notes__", ()))]
    with contextlib.suppress(OSError):
        print("\n".join(f"outcore: {line}" for line in lines), file=sys.stderr)


def _replace_arguments(line: str) -> str:
    """Replace Python arguments in a message by options, unless it names the option, too."""
    for argument, option in _OPTIONS.items():
        if option not in line:
            line = line.replace(argument, option)
    return line


def report_error(error: OutcoreError) -> int:
    """Print an error and return its exit status."""
    # All ranks raise the same `CollectiveError`; its cause determines the next step.
    cause = error.__cause__ if isinstance(error, CollectiveError) else None
    reason = cause if isinstance(cause, OutcoreError) else error
    here = f" (on the command line: {_HERE[reason.code]})" if reason.code in _HERE else ""
    say(f"{error}{here}", error)
    return _get_status(reason)


def _get_status(error: OutcoreError) -> int:
    if isinstance(error, UsageError | SectionError | DistributionError) or error.code in _MISUSE:
        return MISUSED
    return DAMAGED if error.code in DAMAGE else UNSEEN


def choose_worst(statuses: Iterable[int]) -> int:
    """Return the status of several paths: damage first, then an invalid call."""
    found = set(statuses)
    return next((status for status in (DAMAGED, MISUSED, UNSEEN) if status in found), DONE)


def process_each(
    paths: Sequence[str], look: Callable[[str], tuple[T, int]]
) -> tuple[list[T | dict[str, Any]], int]:
    """
    Process several paths; an error in one does not stop the others, but the error of a single path is
    raised.

    `look` returns the result for a path, and its exit status. Returns the result of each path, or its
    error, and the exit status of all.
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
                sys.stdout.flush()  # keep the order of the paths if both streams go to one place
            status = report_error(error)
            told.append({"path": path, "error": {"code": error.code, "message": error.message}})
        else:
            told.append(said)
        statuses.append(status)
    return told, choose_worst(statuses)
