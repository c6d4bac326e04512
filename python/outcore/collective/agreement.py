"""
Agree first: what ranks tell each other before anything is moved, and how all of them fail together.

Problem. In a collective call one rank fails, or calls something else, and the others wait for ever.

Idea. Whatever can fail for a rank on its own is done before the first message; how that ended is a
word of the record that every rank sends anyway. One gathering of the records is then both the
exchange of the accesses (the papers' *file access descriptor*) and the agreement: if any rank failed,
or called something else, all of them raise, and no rank has moved a byte. Later only I/O can fail;
each round begins with an agreement, so all stop at the same round.

Invariants. Each rank makes the same calls of the transport, whatever happened to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from outcore.errors import CollectiveError, OutcoreError
from outcore.transport import Transport

__all__ = ["HEAD", "Gathered", "Record", "fail_together", "gather"]

# Words of a record that are always sent; longer ones are sent once more, all of one length.
HEAD = 64
_VERSION = 1
_PAD = [0] * HEAD
_FIXED = 16  # of them for the head and the wishes


@dataclass
class Record:
    """
    What a rank says at the start of a collective.

    Parameters
    ----------
    call
        Which call it is; all ranks must say the same.
    wishes
        Numbers in which ranks may differ: the planner takes the least, the sum, ... of all.
    items
        For each section: name of its array, words of the array, words of the section.
    """

    call: int
    wishes: list[int] = field(default_factory=list)
    items: list[tuple[int, list[int], list[int]]] = field(default_factory=list)

    def words(self) -> list[int]:
        """As 64-bit words."""
        body: list[int] = []
        for name, ground, section in self.items:
            body += [name, len(ground), *ground, len(section), *section]
        wishes = self.wishes + [0] * (_FIXED - 6 - len(self.wishes))
        head = [_VERSION, 0, self.call, len(self.items), _FIXED + len(body), len(self.wishes)]
        return [*head, *wishes, *body]

    @classmethod
    def of(cls, words: list[int]) -> Record:
        """From words."""
        call, number, wishes = words[2], words[3], words[5]
        record = cls(call, words[6 : 6 + wishes])
        at = _FIXED
        for _ in range(number):
            name, length = words[at], words[at + 1]
            ground = words[at + 2 : at + 2 + length]
            at += 2 + length
            section = words[at + 1 : at + 1 + words[at]]
            at += 1 + words[at]
            record.items.append((name, ground, section))
        return record


class Gathered:
    """What all ranks said, as words; read only as far as it is asked for."""

    def __init__(self, rows: list[list[int]]) -> None:
        self._rows = rows

    def records(self) -> list[Record]:
        """Records of all ranks."""
        return [Record.of(row) for row in self._rows]

    def one_array(self) -> list[int] | None:
        """Words of the array, if all ranks brought one section each, of the same array."""
        first = self._rows[0]
        end = _FIXED + 2 + first[_FIXED + 1]
        same = first[_FIXED:end]
        if all(row[3] == 1 and row[_FIXED:end] == same for row in self._rows):
            return same[2:]
        return None

    def wishes(self, number: int) -> list[int]:
        """One of the wishes, of all ranks."""
        return [row[6 + number] for row in self._rows]


def gather(
    transport: Transport, prepare: Callable[[], Record], describe: Callable[[int], str]
) -> Gathered:
    """
    Exchange records; raise on all ranks if any of them cannot go on.

    Parameters
    ----------
    prepare
        Makes this rank's record; whatever it raises, all ranks raise.
    describe
        What a number of `Record.call` is called in messages.
    """
    failure: BaseException | None = None
    try:
        words = prepare().words()
    except BaseException as error:
        failure = error
        words = [_VERSION, 1, 0, 0, 0, 0]
    said = transport.allgather(np.array((words + _PAD)[:HEAD], np.int64))
    rows: list[list[int]] = said.tolist()
    if any(row[1] for row in rows):
        fail_together(transport, failure, "the call")
    _same(rows, describe)
    longest = max(row[4] for row in rows)
    if longest > HEAD:
        row = np.zeros(longest, np.int64)
        row[: len(words)] = words
        rows = transport.allgather(row).tolist()
    return Gathered(rows)


def _same(rows: list[list[int]], describe: Callable[[int], str]) -> None:
    if all(row[0] == rows[0][0] and row[2] == rows[0][2] for row in rows):
        return
    calls: dict[tuple[int, int], list[int]] = {}
    for rank, row in enumerate(rows):
        calls.setdefault((row[0], row[2]), []).append(rank)
    said = "; ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {few(ranks)} called {describe(call)}"
        for (_, call), ranks in calls.items()
    )
    # Of two halves, the one without rank 0.
    odd = min(calls.values(), key=lambda ranks: (len(ranks), 0 in ranks))
    raise CollectiveError(
        f"{said}. Every rank must make the same collective call, in the same order, with the same "
        "version of outcore",
        code="mismatched-call",
        ranks=tuple(odd),
    )


def few(ranks: list[int]) -> str:
    """
    Ranks for people.

    Examples
    --------
    >>> few([0, 1, 2, 5])
    '0-2, 5'
    """
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    named = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:8]]
    return ", ".join(named) + (", ..." if len(spans) > 8 else "")


def fail_together(transport: Transport, failure: BaseException | None, what: str) -> NoReturn:
    """
    Raise on all ranks; each says what happened to it, if anything did.

    A rank that was interrupted raises what interrupted it; all others raise `CollectiveError`, with the
    failure of this rank, if there is one, as its cause.
    """
    text = b""
    if failure is not None:
        code = failure.code if isinstance(failure, OutcoreError) else type(failure).__name__
        said = failure.message if isinstance(failure, OutcoreError) else str(failure)
        text = f"{code}\n{said}"[:4000].encode(errors="replace")
    texts = [blob.decode(errors="replace") for blob in transport.allgather_bytes(text)]
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    failed = [rank for rank, said in enumerate(texts) if said]
    first = failed[0] if failed else 0
    code, _, said = (texts[first] if failed else "unknown\n").partition("\n")
    number = "rank" if len(failed) == 1 else "ranks"
    raise CollectiveError(
        f"{what} failed on {number} {few(failed)}, so it was given up on all {transport.size}. Rank "
        f"{first} said: [{code}] {said}",
        code="rank-failed",
        ranks=tuple(failed),
    ) from failure
