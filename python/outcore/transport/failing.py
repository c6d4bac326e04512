"""
What ranks say when they fail, and the error that all ranks raise of it.

A failed rank says in one blob what it was doing and what went wrong; who did not fail says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from outcore.errors import CollectiveError, OutcoreError
from outcore.transport.checks import few

__all__ = ["describe", "failed", "is_everywhere", "mark"]

E = TypeVar("E", bound=BaseException)

_MOST = 4000


def describe(failure: BaseException, what: str) -> bytes:
    """Say what failed while a rank did `what`: at most 4000 bytes, without zeros."""
    try:
        code = failure.code if isinstance(failure, OutcoreError) else type(failure).__name__
        said = failure.message if isinstance(failure, OutcoreError) else str(failure)
    except Exception:
        # It does not even know how to say what it is; the others wait for a word.
        code, said = type(failure).__name__, "(no text)"
    text = f"{code}\n{what}\n{said}".replace("\0", " ")
    return text.encode(errors="replace")[:_MOST].decode(errors="ignore").encode()


def failed(texts: Sequence[bytes], what: str = "the call") -> CollectiveError:
    """
    Make the error that all ranks raise of what each said; `what` is told if nobody said it.

    A rank that was only told of another one's failure knows no cause, so it is not named if others
    failed.
    """
    said = [text.decode(errors="replace") for text in texts]
    ranks = [rank for rank, text in enumerate(said) if text]
    ranks = [rank for rank in ranks if not said[rank].startswith("rank-failed\n")] or ranks
    first = ranks[0] if ranks else 0
    code, _, more = (said[first] or "unknown\n").partition("\n")
    told, _, cause = more.partition("\n")
    number = "rank" if len(ranks) == 1 else "ranks"
    return mark(
        CollectiveError(
            f"{told or what} failed on {number} {few(ranks)}, so it was given up on all {len(said)}. "
            f"Rank {first} said: [{code}] {cause}",
            code="rank-failed",
            ranks=tuple(ranks),
        )
    )


def mark(error: E) -> E:
    """Note that all ranks raise for this reason, at the same step: nobody has to be told."""
    error.everywhere = True  # type: ignore[attr-defined]
    return error


def is_everywhere(error: BaseException) -> bool:
    """Tell whether all ranks raise for this reason."""
    return getattr(error, "everywhere", False) is True
