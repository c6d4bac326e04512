"""
What ranks tell each other of a collective call, and the plan that follows from it.

A record has the settings of its rank (method, memory, hints) and its sections. From the records of all
ranks each makes the same plan (``crates/plan/src/collective``) and the same choice of method: nothing
here looks at files, or talks to other ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from outcore import _core
from outcore.assignment import Assignment
from outcore.assignment import Method as Solver
from outcore.collective import owners
from outcore.collective.choose import CACHED, METHODS, Choice, Prices, choose, in_order
from outcore.collective.items import Item
from outcore.collective.slots import number_of
from outcore.errors import BudgetError, CollectiveError
from outcore.hints import Hints
from outcore.report import human
from outcore.transport.checks import few

__all__ = [
    "AGREED",
    "CACHED_SETTING",
    "METHOD_SETTING",
    "Method",
    "asked_method",
    "assigned",
    "compare",
    "decided",
    "durable",
    "few_touch_files",
    "forced",
    "groups_of",
    "lacking",
    "planned",
    "refused",
    "room_of",
    "settings_of",
    "slots_for",
    "unplanned",
]

Method = Literal["auto", "direct", "sieve", "two-phase"]

# Settings in records, by number.
METHOD_SETTING, _OFFERED, _IO_RANKS, _CUT, _FLAGS, _STRIPE = range(6)
CACHED_SETTING, _GROUPS, _GAP, _ASSIGN = range(6, 10)
# Flags: elements may not be given by several ranks; what is written is to be on the disk.
_REFUSES, _DURABLE = 1, 2
# Of the budget a slot is such a part: two slots or three, and what reading or writing a tile takes; with
# ranks on other nodes also two that messages need.
_SHARES = {False: 4, True: 6}
_CUTS = ("requested", "bounding", "fixed", "cyclic")
_SOLVERS: tuple[Solver, ...] = ("balanced", "greedy", "matching", "exact")


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
    return [
        METHODS.index(method),
        _offered(hints, far=far),
        hints.io_ranks or size,
        _CUTS.index(hints.domains),
        _REFUSES * (hints.overlap == "error") | _DURABLE * any(i.array.hints.sync for i in items),
        hints.stripe or AGREED.align,
        cached,
        hints.io_groups or 1,
        max((item.core.disk()[0] for item in items), default=0),
        _SOLVERS.index(hints.assign),
    ]


def settled(records: _core.Records, *, one: bool) -> bool:
    """Whether all ranks have read what they want, by the same method; if `one`, of the same array."""
    return records.settled(METHOD_SETTING, one)


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
    methods = records.setting(METHOD_SETTING)
    for rank, method in enumerate(methods):
        if method != methods[0]:
            raise CollectiveError(
                f"rank 0 asked for method={METHODS[methods[0]]!r}, rank {rank} for "
                f"{METHODS[method]!r}. Give all ranks the same",
                code="mismatched-call",
                ranks=(rank,),
            )


def planned(records: _core.Records, size: int, *, write: bool) -> _core.Collective:
    """
    Make the plan of `size` ranks with these records: a pure function.

    Slots are as large as the budgets allow, but hold a block at least: whether there is memory for that
    `lacking` tells.
    """
    offered = min(records.setting(_OFFERED))
    slot = max(min(AGREED.slot, offered), min(records.block, offered))
    shares = _shares(records, size, write=write)
    while True:
        try:
            return _core.Collective.of_records(
                records,
                shares,
                slot=slot,
                gap=max(records.setting(_GAP)),
                align=max(records.setting(_STRIPE)),
                least=AGREED.least,
                cut=_CUTS[records.first_setting(_CUT)],
                write=write,
            )
        except BudgetError as error:
            # The block of another array may be larger still; or it needs a little more than its bytes.
            if error.needed is None:
                raise
            slot = error.needed if error.needed > slot else slot + 4096


def lacking(plan: _core.Collective, records: _core.Records) -> str:
    """Tell why there is no memory for two-phase; nothing if there is."""
    offered = min(records.setting(_OFFERED))
    if plan.slot_bytes <= offered:
        return ""
    slot, room = human(plan.slot_bytes), human(offered)
    return f"two-phase needs slots of {slot}, as large as a block, and a rank has {room} for one"


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
    method, lacks = asked_method(records), lacking(plan, records)
    only = forced(records) if method == "auto" else None
    ordered = in_order(plan) if write and plan.in_order else ""
    # One rank puts its own sections in order.
    alone = len(records.setting(METHOD_SETTING)) == 1 and method == "auto"
    if lacks and (method == "two-phase" or only is not None or (ordered and not alone)):
        needed = plan.slot_bytes * _SHARES[far]
        told = f"{ordered}; " if ordered else ""
        raise BudgetError(
            f"{told}{lacks}. Raise outcore.memory() and Hints(memory=...) so that {needed} bytes are "
            f"free on every rank{'' if ordered else ', or choose another method'}",
            code="budget-too-small",
            needed=needed,
        )
    if only is not None:
        return only
    if method == "auto":
        return choose(plan, prices(), write=write, lacks=lacks)
    if ordered and method != "two-phase":
        return Choice("two-phase", f"{method} was asked for, but {ordered}")
    return Choice(method, "asked for")


def unplanned(records: _core.Records) -> Choice | None:
    """Choose how ranks read if nothing has to be planned for that."""
    method = asked_method(records)
    if method == "auto" and forced(records) is not None:
        return None
    cached = min(records.setting(CACHED_SETTING)) >= CACHED
    if method == "auto" and not records.encoded and cached:
        return Choice("direct", "what the ranks want is in the page cache")
    return Choice(method, "asked for") if method in ("direct", "sieve") else None


def forced(records: _core.Records) -> Choice | None:
    """Tell what a hint leaves of ``"auto"``; None if there is something to choose."""
    said = records.setting(_IO_RANKS)
    if min(said) >= len(said):
        return None
    return Choice("two-phase", f"a hint says that {min(said)} of {len(said)} ranks touch files")


def asked_method(records: _core.Records) -> str:
    """Tell which method all ranks asked for."""
    return METHODS[records.setting(METHOD_SETTING)[0]]


def groups_of(plan: _core.Collective, records: _core.Records) -> int:
    """Tell in how many groups owners take turns."""
    return min(records.first_setting(_GROUPS), max(len(plan.owners()), 1))


def slots_for(plan: _core.Collective, records: _core.Records) -> int:
    """Tell how many slots each rank has."""
    return number_of(plan.slot_bytes, min(records.setting(_OFFERED)))


def room_of(records: _core.Records) -> int:
    """Tell how many bytes the slots of a rank may have, all together."""
    return 2 * min(records.setting(_OFFERED))


def refused(records: _core.Records) -> bool:
    """Tell whether a hint of any rank refuses that ranks write the same elements."""
    return any(flags & _REFUSES for flags in records.setting(_FLAGS))


def durable(records: _core.Records) -> bool:
    """Tell whether a hint of any rank says that what is written is to be on the disk."""
    return any(flags & _DURABLE for flags in records.setting(_FLAGS))


def assigned(records: _core.Records, size: int, *, write: bool) -> Assignment | None:
    """Tell which arrays were given to which ranks; None if nothing was assigned."""
    return owners.assigned(records, size, _owners(records, size, write=write), _solver(records))


def _solver(records: _core.Records) -> Solver:
    return _SOLVERS[records.first_setting(_ASSIGN)]


def _owners(records: _core.Records, size: int, *, write: bool) -> owners.Owners:
    io_ranks = max(1, min(records.setting(_IO_RANKS)))
    return owners.owners_of(records, size, io_ranks, write=write)


def _shares(records: _core.Records, size: int, *, write: bool) -> list[list[tuple[int, int]]]:
    """Which ranks own how much of each array."""
    able = _owners(records, size, write=write)
    given = owners.assigned(records, size, able, _solver(records))
    return [owners.shares_of(given, able, number) for number in range(len(able.able))]
