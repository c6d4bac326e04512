"""
Descriptions of failures, and the error that all ranks raise for them.

A failed rank sends one blob with the operation and its error; other ranks send nothing. All ranks
construct the same error, with the failure as its cause. A program that checks the cause therefore takes
the same branch on all ranks.
"""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from outcore import errors
from outcore.errors import CollectiveError, OutcoreError
from outcore.ranks.transport.checks import format_ranks

__all__ = ["describe", "is_everywhere", "make_error", "mark", "rebuild_error"]

E = TypeVar("E", bound=BaseException)

_MOST = 4000
# Of these bytes, the maximum for the facts of the cause. If a path does not fit, there is no cause.
_MOST_FACTS = 1000


def describe(failure: BaseException, what: str) -> bytes:
    """Describe an error of operation `what` in at most 4000 bytes, without zeros."""
    try:
        code = failure.code if isinstance(failure, OutcoreError) else type(failure).__name__
        said = failure.message if isinstance(failure, OutcoreError) else str(failure)
    except Exception:
        # The error cannot be converted to text, but the other ranks wait for one.
        code, said = type(failure).__name__, "(no text)"
    text = f"{code}\n{what}\n{_encode_facts(failure)}\n{said}".replace("\0", " ")
    return text.encode(errors="replace")[:_MOST].decode(errors="ignore").encode()


def _encode_facts(failure: BaseException) -> str:
    """Return what another rank needs, besides code and text, to construct the same error."""
    facts: dict[str, Any] = {"kind": type(failure).__name__}
    if isinstance(failure, OutcoreError):
        told = {"path": failure.path, **failure.details}
        facts |= {name: value for name, value in told.items() if isinstance(value, int | str)}
    text = json.dumps(facts)
    return text if len(text) <= _MOST_FACTS else json.dumps({"kind": facts["kind"]})


def _rebuild_cause(code: str, facts: str, said: str, rank: int) -> BaseException | None:
    """Return the error of another rank; None if its class cannot be constructed from text."""
    with contextlib.suppress(Exception):
        known = json.loads(facts)
        name = known.pop("kind")
        kind: type[BaseException] = getattr(errors, name, None) or getattr(builtins, name)
        if issubclass(kind, OutcoreError):
            return kind(said, code=code, rank=rank, **known)
        if issubclass(kind, Exception):
            return kind(said)
    return None


def make_error(
    texts: Sequence[bytes], what: str = "the call", mine: BaseException | None = None
) -> CollectiveError:
    """
    Return the error that all ranks raise, from the description of each; `what` if there is none.

    A rank that only received the failure of another one does not know the cause, so it is not listed if
    others failed. The cause of the error is the failure of this rank (`mine`), otherwise that of the
    first rank with a description.
    """
    said = [text.decode(errors="replace") for text in texts]
    ranks = [rank for rank, text in enumerate(said) if text]
    ranks = [rank for rank in ranks if not said[rank].startswith("rank-failed\n")] or ranks
    first = ranks[0] if ranks else 0
    code, told, facts, cause = (*(said[first] or "unknown").split("\n", 3), "", "", "")[:4]
    error = CollectiveError(
        f"{told or what} failed on {format_ranks(ranks)}, so all {len(said)} ranks aborted it; rank "
        f"{first} reported: [{code}] {cause}",
        code="rank-failed",
        ranks=tuple(ranks),
    )
    # A rank that only received a failure knows less than the rank that failed.
    told_only = isinstance(mine, CollectiveError) and mine.code == "rank-failed" != code
    known = None if told_only else mine
    error.__cause__ = _rebuild_cause(code, facts, cause, first) if known is None else known
    return mark(error)


def rebuild_error(said: bytes, rank: int) -> BaseException:
    """Construct the error of another rank from its description; its `rank` is that rank's number."""
    code, what, facts, text = (*said.decode(errors="replace").split("\n", 3), "", "", "")[:4]
    cause = _rebuild_cause(code, facts, text, rank)
    if isinstance(cause, OutcoreError):
        return cause
    error = CollectiveError(
        f"{what} failed at rank {rank}: [{code}] {text}", code="rank-failed", ranks=(rank,)
    )
    error.__cause__ = cause
    return error


def mark(error: E) -> E:
    """Mark an error that all ranks raise at the same step, so that it need not be sent."""
    error.everywhere = True  # type: ignore[attr-defined]
    return error


def is_everywhere(error: BaseException) -> bool:
    """Return whether all ranks raise this error."""
    return getattr(error, "everywhere", False) is True
