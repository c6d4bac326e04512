"""
Settings of plans, reasons as text, and errors.

The core makes decisions as pure functions of the records of all ranks: settings, owners, costs and
methods in ``crates/plan/src/collective/{settings,owners,holes,choice}.rs``. `call` uses them. This
module does not access files or communicate with other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from outcore import _core
from outcore.base.report import format_bytes, format_time
from outcore.errors import CollectiveError, budget_error
from outcore.ranks.transport.checks import format_ranks

__all__ = [
    "AGREED",
    "CACHED_SETTING",
    "IN_ORDER",
    "METHODS",
    "TOO_SMALL",
    "UNDECIDED",
    "Decided",
    "Method",
    "MethodChoice",
    "Prices",
    "describe_choice",
    "explain_order",
    "raise_difference",
    "raise_memory_shortage",
]

Method = Literal["auto", "direct", "sieve", "two-phase"]
METHODS = ("auto", "direct", "sieve", "two-phase")

#: Number of the setting with the cached share.
CACHED_SETTING = 6
IN_ORDER = (
    "ranks write the same elements in sections that cannot be divided, so that the "
    "highest rank must write last"
)
UNDECIDED = (
    "there are too many pairs of sections to check whether ranks write the same elements, "
    "so the ranks write one after another, in their order, and the highest rank wins"
)
TOO_SMALL = "planning such a small access takes longer than reading it"


@dataclass(frozen=True)
class _Agreed:
    """Settings of a plan, in bytes, unless a budget or hint specifies otherwise."""

    # Large enough for the full rate of a disk, plus one page: a tile has the same page alignment as in
    # the file, so it may begin anywhere in the first page. Without the extra page, a tile of rows whose
    # length is a power of two would hold one row less.
    slot: int = (8 << 20) + 4096
    least: int = 256 << 10
    # For a disk that has not been measured.
    gap: int = 24 << 10
    align: int = 4096


AGREED = _Agreed()


#: A method and its reason: a keyword and two numbers that belong to it.
Decided = tuple[str, tuple[str, int, int]]


@dataclass(frozen=True)
class MethodChoice:
    """A method, and the reason in one sentence."""

    method: str
    why: str


@dataclass(frozen=True)
class Prices:
    """
    Costs of the methods, in nanoseconds; equal on all ranks.

    `own` has the cost of each rank's independent accesses, and the cached share of them, in
    thousandths. `parts` is the cost of all owners for their parts, summed over the ranks.
    `oversubscription` is the number of ranks per processor, in thousandths: at least 1000. `arrays` is
    the largest number of arrays of which a rank has sections.
    """

    own: Sequence[tuple[int, int]]
    parts: int
    nodes: Sequence[int]
    oversubscription: int = 1000
    arrays: int = 1

    def of(self, plan: _core.Collective, method: str, *, write: bool) -> int:
        """Return the cost of a method, summed over the ranks."""
        if method != "two-phase":
            return sum(cost for cost, _ in self.own)
        return plan.two_phase_price(
            list(self.own),
            self.parts,
            list(self.nodes),
            oversubscription=self.oversubscription,
            arrays=self.arrays,
            write=write,
        )


def raise_difference(records: _core.Records, odd: tuple[str, list[int]]) -> NoReturn:
    """Raise on all ranks because something differs between ranks; name it and the ranks."""
    what, ranks = odd
    if what == "descriptor":
        text = (
            f"rank {ranks[0]} has another shape, dtype or chunking of an array than the ranks "
            "before it, because the array was changed; open it again on all ranks"
        )
    elif what == "array":
        text = (
            f"{format_ranks(ranks)} made this call on another array than rank 0; make it on the same "
            "array on every rank"
        )
    else:
        methods = records.methods
        text = (
            f"rank 0 passed method={methods[0]!r}, rank {ranks[0]} {methods[ranks[0]]!r}; pass the "
            "same on all ranks"
        )
    raise CollectiveError(text, code="mismatched-call", ranks=tuple(ranks))


def raise_memory_shortage(
    plan: _core.Collective, records: _core.Records, why: Decided | None, *, far: bool
) -> NoReturn:
    """Raise on all ranks because there is no memory for two-phase; `why` excludes other methods."""
    slot = plan.slot_bytes
    ordered, lacks = why and _format_reason(why[1]), records.lacking(slot)
    told = "; ".join(filter(None, (ordered, lacks and _format_reason(lacks))))
    needed = slot * _core.slot_shares(far)
    raise budget_error(
        "the two-phase method",
        needed,
        "a rank has less",
        needed,
        reason=told,
        setting="the free memory of every rank (outcore.memory(), Hints(memory=...))",
        instead="" if ordered else "choose another method",
    )


def explain_order(plan: _core.Collective) -> str:
    """Return the reason why ranks write in their order."""
    return UNDECIDED if plan.overlap() is None else IN_ORDER


def describe_choice(found: Decided, ranks: int) -> MethodChoice:
    """Return the method that was chosen, with its reason for this number of ranks."""
    method, why = found
    return MethodChoice(method, _format_reason(why, ranks))


def _format_reason(why: tuple[str, int, int], ranks: int = 0) -> str:
    """Return a reason as a sentence."""
    reason, number, other = why
    match reason:
        case "in-order" | "undecided":
            told = IN_ORDER if reason == "in-order" else UNDECIDED
            return f"{METHODS[number]} was asked for, but {told}" if number else told
        case "no-memory":
            slot, room = format_bytes(number), format_bytes(other)
            return f"two-phase needs slots of {slot}, as large as a block, and a rank has {room} for one"
        case "cheaper":
            alone, both = format_time(number), format_time(other)
            return f"{alone} for each rank on its own, {both} together"
        case "few-touch-files":
            return f"a hint specifies that {number} of {ranks} ranks access files"
    return {
        "asked": "asked for",
        "one-rank": "there is one rank",
        "cached": "what all ranks request is in the page cache",
        "shared-blocks": "several ranks change the same encoded blocks",
        "too-small": TOO_SMALL,
    }[reason]
