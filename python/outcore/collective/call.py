"""
A collective call, from records to results.

Each rank prepares its sections (`items`), all ranks exchange records and agree (`agreement`), each
makes the same plan, all choose a method (`planning`) and run it (`rounds`, or each its own access:
`alone`). How it ended is agreed on again, so that all ranks return, or all raise.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective import independent, planning
from outcore.collective import items as brought
from outcore.collective.agreement import (
    Announced,
    Since,
    Unsure,
    brief,
    call_of,
    fail_together,
    gather,
    name_of,
)
from outcore.collective.durable import flush_what_asks
from outcore.collective.items import Item
from outcore.collective.planning import METHODS, UNDECIDED, Choice, Prices
from outcore.collective.price import oversubscription, own_price, share_of_price
from outcore.collective.rounds import Elsewhere, Work, read_rounds, write_rounds
from outcore.collective.slots import unpin_slots
from outcore.disk import DiskArray
from outcore.errors import CollectiveError, UsageError
from outcore.hints import Hints
from outcore.transport import Transport
from outcore.transport.timeouts import DeferredInterrupt

__all__ = ["Attempt", "SharedPlan", "run"]


@dataclass(frozen=True)
class Attempt:
    """
    What came of a read before the call (`attempt`).

    The rank failed; or it exchanged records with the others (`heads`); or not all was cached.
    """

    heads: _core.Records | None = None
    failure: BaseException | None = None


@dataclass
class SharedPlan:
    """What all ranks know after they have synchronised: equal on all, but for `arrays` and `mine`."""

    plan: _core.Collective
    arrays: list[DiskArray | None]
    names: list[int]
    choice: Choice
    groups: int
    slots: int
    room: int
    records: _core.Records
    mine: list[Item]
    # The same of a write, without what higher ranks give.
    left: list[Item]


def run(
    group: Transport,
    call: str,
    prepare: Callable[[], list[Item]],
    method: str,
    hints: Callable[[], Hints],
    *,
    one: bool = False,
    answer: Callable[[SharedPlan], Any] | None = None,
    if_cached: Callable[[], list[Any] | None] | None = None,
    attempt: Attempt | None = None,
) -> Any:
    """
    Make a collective call.

    Parameters
    ----------
    prepare
        Makes this rank's items; what it raises, all ranks raise.
    hints
        Tells the hints that count on this rank; what it raises, all ranks raise.
    one
        All ranks bring one section of the same array.
    answer
        Instead of doing it: what to say of the plan.
    if_cached
        Reads what this rank wants if all of it is cached, so that nothing has to be prepared. By
        default the items are read, if they are.
    attempt
        What came of a read before the call, if there was one.
    """
    group.in_flight.finish(group)
    write = call_of(call).writes
    what = call.rsplit(".", maxsplit=1)[-1]
    far = len(set(group.nodes)) > 1
    written = _core.writes()
    since = Since.of(group)
    # Who may not touch files does not look at them either.
    two_phase = method == "two-phase"
    # What is wrong with the requests, `record` tells all ranks.
    with contextlib.suppress(Exception):
        two_phase = two_phase or (
            method == "auto" and planning.few_touch_files(hints(), group.size)
        )
    reads = since.quiet(written) and answer is None and not write and not two_phase
    # What was tried is not tried again.
    tries = reads and attempt is None
    mine: list[Item] = []
    results: list[Any] | None = None
    written_together: list[_core.Array] = []

    def record(whole: bool) -> NDArray[Any]:
        nonlocal results
        if method not in METHODS:
            raise UsageError(
                f"method={method!r} is not known; methods: {', '.join(METHODS)}", code="bad-hint"
            )
        if attempt is not None and attempt.failure is not None:
            raise attempt.failure
        if tries and not whole and if_cached is not None:
            results = if_cached()
            if results is not None:
                return brief(call, [METHODS.index(method)])
        if not mine:
            mine.extend(prepare())
        if (
            tries
            and not whole
            and if_cached is None
            and independent.read_all_if_cached(group, mine, method)
        ):
            results = [item.result for item in mine]
        if write and group.nodes.count(group.nodes[group.rank]) > 1:
            # For this call: what a rank writes on its own later is planned as ever.
            while len(written_together) < len(mine):
                core = mine[len(written_together)].core
                core.expect_concurrent_writers()
                written_together.append(core)
        done = results is not None
        settings = planning.settings_of(method, group.size, hints(), mine, if_cached=done, far=far)
        names = brought.names_and_files(mine)
        words = [
            (name, file, item.core.descriptor(), item.section)
            for (name, file), item in zip(names, mine, strict=True)
        ]
        return _core.record(call_of(call).number, settings, words, done)

    def settled(records: _core.Records) -> bool:
        return reads and records.settled(one)

    # The other ranks wait for all of a collective.
    with DeferredInterrupt():
        try:
            heads = attempt.heads if attempt is not None else None
            records = gather(group, record, name_of, settled, heads=heads, what=what)
            since.synchronised(written)
            with Unsure(group, what):
                done = settled(records)
            if not done:
                failure: BaseException | None = None
                try:
                    # Whatever the ranks make of the records, it ends with a step.
                    with Announced(group, what):
                        planning.compare(records, one=one)
                        if answer is not None:
                            told = answer(_synchronise(group, records, mine, write=write))
                            group.agree(0)
                            return told
                        at_once = None if write else planning.unplanned(records)
                        if at_once is not None:
                            failure = independent.each_independently(
                                group, mine, at_once.method, write=False
                            )
                        else:
                            shared = _synchronise(group, records, mine, write=write)
                            failure = _as_chosen(group, shared, write=write)
                finally:
                    with Unsure(group, what):
                        unpin_slots(group)
                if failure is not None:
                    fail_together(group, None if isinstance(failure, Elsewhere) else failure, what)
                results = [item.result for item in mine]
        finally:
            for core in written_together:
                core.end_concurrent_writers()
    if write or results is None:
        return None
    return results[0] if one else results


def _as_chosen(group: Transport, shared: SharedPlan, *, write: bool) -> BaseException | None:
    """Do what was planned; returns this rank's failure, if any rank failed."""
    durable = write and shared.records.durable
    if shared.choice.method == "two-phase":
        work = Work(
            group, shared.plan, shared.arrays, shared.mine, shared.groups, shared.slots, shared.room
        )
        failure = write_rounds(work) if write else read_rounds(work)
    else:
        have = [(n, a) for n, a in enumerate(shared.arrays) if durable and a is not None]
        apart = [a for n, a in have if shared.plan.apart(n)]
        failure = independent.each_independently(
            group, shared.left, shared.choice.method, write=write, send=apart
        )
    if durable and failure is None:
        return flush_what_asks(group, shared.arrays, shared.mine)
    return failure


def _synchronise(
    group: Transport, records: _core.Records, mine: list[Item], *, write: bool
) -> SharedPlan:
    """Plan, from the records of all ranks."""
    plan = planning.planned(records, write=write)
    overlap = plan.overlap() if write and records.refuses_overlap else False
    if overlap is None and group.rank == 0:
        warnings.warn(UNDECIDED, stacklevel=2)
    if overlap:
        raise CollectiveError(
            "ranks write the same elements, and a hint says overlap='error'. Give them sections that "
            "do not meet, or leave the hint out: then the highest rank wins",
            code="overlapping-writes",
            ranks=(),
        )
    arrays_by_name = dict(zip(brought.names(mine), (item.array for item in mine), strict=True))
    names = records.names
    arrays = [arrays_by_name.get(name) for name in names]
    left = brought.left_of(mine, plan, group.rank) if write else mine

    def prices() -> Prices:
        own = own_price(left, write=write)
        part = share_of_price(plan, arrays, group.rank, write=write)
        words = [*own, part, oversubscription(group)]
        said = group.allgather(np.array(words, np.int64))
        each = [(row[0], row[1]) for row in said[:, :2].tolist()]
        parts, sharing = int(said[:, 2].sum()), int(said[:, 3].max())
        return Prices(each, parts, group.nodes, sharing, records.most_arrays())

    far = len(set(group.nodes)) > 1
    choice = planning.decided(plan, records, prices, write=write, far=far)
    groups, slots = records.groups(len(plan.owners())), plan.slots(records.offered)
    # Of all slots of a rank together.
    room = 2 * records.offered
    return SharedPlan(plan, arrays, names, choice, groups, slots, room, records, mine, left)
