"""
What ranks say when they fail, and the error that all ranks raise of it.

A failed rank says in one blob what it was doing and what went wrong; who did not fail says nothing.
All ranks make the same error of what was said, with the failure as its cause: so a program that looks
at the cause takes the same branch on all of them.
"""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from outcore import errors
from outcore.errors import CollectiveError, OutcoreError
from outcore.ranks.transport.checks import few

__all__ = ["describe", "failed", "is_everywhere", "mark", "rebuilt"]

E = TypeVar("E", bound=BaseException)

_MOST = 4000
# Of these the facts for the cause; with a path that is longer, the cause has none.
_MOST_FACTS = 1000


def describe(failure: BaseException, what: str) -> bytes:
    """Say what failed while a rank did `what`: at most 4000 bytes, without zeros."""
    try:
        code = failure.code if isinstance(failure, OutcoreError) else type(failure).__name__
        said = failure.message if isinstance(failure, OutcoreError) else str(failure)
    except Exception:
        # It does not even know how to say what it is; the others wait for a word.
        code, said = type(failure).__name__, "(no text)"
    text = f"{code}\n{what}\n{_facts(failure)}\n{said}".replace("\0", " ")
    return text.encode(errors="replace")[:_MOST].decode(errors="ignore").encode()


def _facts(failure: BaseException) -> str:
    """What the same error has to be made of on another rank, beside its code and its text."""
    facts: dict[str, Any] = {"kind": type(failure).__name__}
    if isinstance(failure, OutcoreError):
        told = {"path": failure.path, **failure.details}
        facts |= {name: value for name, value in told.items() if isinstance(value, int | str)}
    text = json.dumps(facts)
    return text if len(text) <= _MOST_FACTS else json.dumps({"kind": facts["kind"]})


def _cause(code: str, facts: str, said: str, rank: int) -> BaseException | None:
    """The failure of another rank; None if it is of a class that cannot be made of its text."""
    with contextlib.suppress(Exception):
        known = json.loads(facts)
        name = known.pop("kind")
        kind: type[BaseException] = getattr(errors, name, None) or getattr(builtins, name)
        if issubclass(kind, OutcoreError):
            return kind(said, code=code, rank=rank, **known)
        if issubclass(kind, Exception):
            return kind(said)
    return None


def failed(
    texts: Sequence[bytes], what: str = "the call", mine: BaseException | None = None
) -> CollectiveError:
    """
    Make the error that all ranks raise of what each said; `what` is told if nobody said it.

    A rank that was only told of another one's failure knows no cause, so it is not named if others
    failed. The cause of the error is what failed here (`mine`), else what the first rank said.
    """
    said = [text.decode(errors="replace") for text in texts]
    ranks = [rank for rank, text in enumerate(said) if text]
    ranks = [rank for rank in ranks if not said[rank].startswith("rank-failed\n")] or ranks
    first = ranks[0] if ranks else 0
    code, told, facts, cause = (*(said[first] or "unknown").split("\n", 3), "", "", "")[:4]
    number = "rank" if len(ranks) == 1 else "ranks"
    error = CollectiveError(
        f"{told or what} failed on {number} {few(ranks)}, so it was given up on all {len(said)}. "
        f"Rank {first} said: [{code}] {cause}",
        code="rank-failed",
        ranks=tuple(ranks),
    )
    # Who was told of it on the way to here knows less than who was not.
    told_only = isinstance(mine, CollectiveError) and mine.code == "rank-failed" != code
    known = None if told_only else mine
    error.__cause__ = _cause(code, facts, cause, first) if known is None else known
    return mark(error)


def rebuilt(said: bytes, rank: int) -> BaseException:
    """Make the failure of another rank anew, of what `describe` said there; its `rank` tells where."""
    code, what, facts, text = (*said.decode(errors="replace").split("\n", 3), "", "", "")[:4]
    cause = _cause(code, facts, text, rank)
    if isinstance(cause, OutcoreError):
        return cause
    error = CollectiveError(
        f"{what} failed at rank {rank}: [{code}] {text}", code="rank-failed", ranks=(rank,)
    )
    error.__cause__ = cause
    return error


def mark(error: E) -> E:
    """Note that all ranks raise for this reason, at the same step: nobody has to be told."""
    error.everywhere = True  # type: ignore[attr-defined]
    return error


def is_everywhere(error: BaseException) -> bool:
    """Tell whether all ranks raise for this reason."""
    return getattr(error, "everywhere", False) is True
