"""
What ranks tell each other of a collective call, and the plan and the method that follow from it.

Decisions are pure functions of the records of all ranks, in the core: settings, owners and methods in
``crates/plan/src/collective/{settings,owners,choice}.rs``. Here are the words for them: settings of this
rank, reasons in sentences, errors. Nothing here looks at files, or talks to other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from outcore import _core
from outcore.collective.items import Item
from outcore.errors import BudgetError, CollectiveError
from outcore.hints import Hints
from outcore.report import human, human_time
from outcore.transport.checks import few

__all__ = [
    "AGREED",
    "CACHED_SETTING",
    "IN_ORDER",
    "METHODS",
    "TOO_SMALL",
    "UNDECIDED",
    "Choice",
    "Method",
    "Prices",
    "choose",
    "compare",
    "decided",
    "few_touch_files",
    "in_order",
    "planned",
    "settings_of",
    "unplanned",
]

Method = Literal["auto", "direct", "sieve", "two-phase"]
METHODS = ("auto", "direct", "sieve", "two-phase")

#: Number of the setting that tells the share that is in the page cache.
CACHED_SETTING = 6
# Of the budget a slot is such a part: two slots or three, and what reading or writing a tile takes; with
# ranks on other nodes also two that messages need.
_SHARES = {False: 4, True: 6}

IN_ORDER = (
    "ranks write the same elements, too entangled to be cut: the highest rank has to come last"
)
UNDECIDED = (
    "there are too many pairs of sections to find out whether ranks write the same elements: it is "
    "written in the order of the ranks, and where they do the highest one wins"
)
TOO_SMALL = "to plan so little takes longer than to read it"


@dataclass(frozen=True)
class _Agreed:
    """What a plan is made with, where neither budget nor hint says otherwise: bytes."""

    # Long enough for a disk at full rate, and a page: a tile lies in its pages as in the file, so it
    # may begin anywhere in the first one. Without that a tile of rows of a power of two lacks one.
    slot: int = (8 << 20) + 4096
    least: int = 256 << 10
    # Of a disk that nobody measured.
    gap: int = 24 << 10
    align: int = 4096


AGREED = _Agreed()


@dataclass(frozen=True)
class Choice:
    """A method, and the reason in one sentence."""

    method: str
    why: str


@dataclass(frozen=True)
class Prices:
    """
    What the ways cost, in nanoseconds; equal on all ranks.

    Parameters
    ----------
    own
        What each rank's own accesses cost, and the share of them that is cached, in thousandths.
    parts
        What all owners need for their parts, summed over the ranks.
    nodes
        The node of each rank.
    oversubscription
        Ranks that share a processor, in thousandths: 1000 and more.
    arrays
        Of how many arrays a rank has sections, at most.
    """

    own: Sequence[tuple[int, int]]
    parts: int
    nodes: Sequence[int]
    oversubscription: int = 1000
    arrays: int = 1

    def of(self, plan: _core.Collective, method: str, *, write: bool) -> int:
        """Tell what a method costs, summed over the ranks."""
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


def settings_of(
    method: str,
    size: int,
    hints: Hints,
    items: list[Item],
    *,
    if_cached: bool = False,
    far: bool = False,
) -> list[int]:
    """Give the settings of a rank's record: is all known to be cached, are ranks on other nodes?"""
    cached = 1000 if if_cached else min((item.cached() for item in items), default=1000)
    return _core.settings(
        method=METHODS.index(method),
        offered=_offered(hints, far=far),
        io_ranks=hints.io_ranks or size,
        cut=hints.domains,
        refuses_overlap=hints.overlap == "error",
        durable=any(bool(item.array.hints.sync) for item in items),
        stripe=hints.stripe or AGREED.align,
        cached=cached,
        groups=hints.io_groups or 1,
        gap=max((item.core.disk()[0] for item in items), default=0),
        solver=hints.assign,
    )


def few_touch_files(hints: Hints, size: int) -> bool:
    """Whether not all ranks are to touch files."""
    return (hints.io_ranks or size) < size


def _offered(hints: Hints, *, far: bool) -> int:
    """Bytes that a slot of this rank may have."""
    free = _core.memory_state()[1]
    limit = min(_core.memory_limit(), hints.memory or _core.memory_limit())
    return max(min(free, limit) // _SHARES[far], 1)


def compare(records: _core.Records, *, one: bool) -> None:
    """Find what must be equal; raise on all ranks if it is not."""
    odd = records.compare(one)
    if odd is not None and odd[0] == "descriptor":
        raise CollectiveError(
            f"rank {odd[1][0]} has another shape, dtype or chunking of an array than the ranks before "
            "it: it was changed meanwhile. Open it again on all ranks",
            code="mismatched-call",
            ranks=tuple(odd[1]),
        )
    if odd is not None:
        raise CollectiveError(
            f"ranks {few(odd[1])} made this call on another array than rank 0. Every rank must call "
            "it on the same array",
            code="mismatched-call",
            ranks=tuple(odd[1]),
        )
    methods = records.methods
    for rank, method in enumerate(methods):
        if method != methods[0]:
            raise CollectiveError(
                f"rank 0 asked for method={methods[0]!r}, rank {rank} for {method!r}. Give all ranks "
                "the same",
                code="mismatched-call",
                ranks=(rank,),
            )


def planned(records: _core.Records, *, write: bool) -> _core.Collective:
    """
    Make the plan of the ranks with these records: a pure function.

    Slots are as large as the budgets allow, but hold a block at least: whether there is memory for that
    the records tell (`_core.Records.lacking`).
    """
    return records.planned(AGREED.slot, AGREED.least, write)


def decided(
    plan: _core.Collective,
    records: _core.Records,
    prices: Callable[[], Prices],
    *,
    write: bool,
    far: bool = False,
) -> Choice:
    """Choose the method; `prices` are asked for only if they count. Raises if there is no way."""
    at_once = None if write else unplanned(records)
    if at_once is not None:
        return at_once
    slot = plan.slot_bytes
    possible, found = records.decide(slot, _order(plan, write=write))
    if not possible:
        ordered, lacks = found and _told(found[1]), records.lacking(slot)
        told = "; ".join(filter(None, (ordered, lacks and _told(lacks))))
        needed = slot * _SHARES[far]
        raise BudgetError(
            f"{told}. Raise outcore.memory() and Hints(memory=...) so that {needed} bytes are "
            f"free on every rank{'' if ordered else ', or choose another method'}",
            code="budget-too-small",
            needed=needed,
        )
    if found is None:
        return choose(plan, records, prices(), write=write)
    return _choice(found, len(records.methods))


def choose(
    plan: _core.Collective, records: _core.Records | None, prices: Prices, *, write: bool
) -> Choice:
    """Choose what is cheapest; equal on all ranks. Without `records` there is memory for all methods."""
    lacks = None if records is None else records.lacking(plan.slot_bytes)
    found = plan.cheapest(
        list(prices.own),
        prices.parts,
        list(prices.nodes),
        oversubscription=prices.oversubscription,
        arrays=prices.arrays,
        write=write,
        lacking=lacks and lacks[1:],
        order=_order(plan, write=write),
    )
    return _choice(found, len(prices.own))


def _order(plan: _core.Collective, *, write: bool) -> bool | None:
    """Whether it is not known if ranks have to write in their order; None if they have not."""
    return plan.overlap() is None if write and plan.in_order else None


def unplanned(records: _core.Records) -> Choice | None:
    """Choose how ranks read if nothing has to be planned for that."""
    found = records.unplanned()
    return None if found is None else _choice(found, len(records.methods))


def in_order(plan: _core.Collective) -> str:
    """Tell why ranks write in their order."""
    return UNDECIDED if plan.overlap() is None else IN_ORDER


def _choice(found: tuple[str, tuple[str, int, int]], ranks: int) -> Choice:
    method, (reason, number, other) = found
    return Choice(method, _told((reason, number, other), ranks))


def _told(why: tuple[str, int, int], ranks: int = 0) -> str:
    """Tell a reason in a sentence."""
    reason, number, other = why
    match reason:
        case "in-order" | "undecided":
            told = IN_ORDER if reason == "in-order" else UNDECIDED
            return f"{METHODS[number]} was asked for, but {told}" if number else told
        case "no-memory":
            slot, room = human(number), human(other)
            return f"two-phase needs slots of {slot}, as large as a block, and a rank has {room} for one"
        case "cheaper":
            alone, both = human_time(number), human_time(other)
            return f"{alone} for each rank on its own, {both} together"
        case "few-touch-files":
            return f"a hint says that {number} of {ranks} ranks touch files"
    return {
        "asked": "asked for",
        "one-rank": "there is one rank",
        "cached": "what the ranks want is in the page cache",
        "shared-blocks": "several ranks change the same encoded blocks",
        "too-small": TOO_SMALL,
    }[reason]
