"""
A collective call, from records to results.

Each rank prepares its sections (`items`), all ranks exchange records and agree (`agreement`), each
makes the same plan, all choose a method and run it: `rounds`, or each its own access
(`independent`). How it ended is agreed on again, so that all ranks return, or all raise. Plan,
owners, prices and method are decided in ``crates/plan/src/collective``.

A read of one array, where every rank has its section in the page cache, has a fast path (`Reader`).
A rank reads a few megabytes out of the page cache in half a millisecond; to prepare an item, hints
and a whole record takes it a tenth of that, for other ranks that need none of it. So the rank reads
first, and sends a brief record: that it has read, and of which array, the same words each time. If
all ranks send that, the call is complete. If not, they take the general path (`run`), which begins
with the records they have exchanged.

Invariants. Each rank decides by itself whether it tries the fast path. What it does after the
exchange follows from the records of all ranks.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.collective import independent, planning
from outcore.collective import items as brought
from outcore.collective.agreement import (
    Announced,
    Elsewhere,
    Unsure,
    brief,
    call_of,
    fail_together,
    gather,
    name_of,
    numbered,
)
from outcore.collective.durable import flush_what_asks
from outcore.collective.items import Item
from outcore.collective.planning import METHODS, UNDECIDED, Decided, Prices
from outcore.collective.rounds import Work, owner_of, read_rounds, write_rounds
from outcore.disk import DiskArray
from outcore.errors import CollectiveError, UsageError
from outcore.formats.layout import ArrayInfo
from outcore.hints import Hints
from outcore.report.phases import Seconds
from outcore.transport import Transport
from outcore.transport.sharing import unpin_slots
from outcore.transport.timeouts import DeferredInterrupt

__all__ = [
    "Attempt",
    "Reader",
    "SharedPlan",
    "cheapest",
    "decided",
    "early",
    "has_arrays",
    "oversubscription",
    "plan_of",
    "run",
]

_READ = "read_all"


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
    choice: Decided
    groups: int
    slots: int
    room: int
    records: _core.Records
    mine: list[Item]
    # The same of a write, without what higher ranks give.
    left: list[Item]


class Reader:
    """
    The fast path of reads of one array: what a rank says after it has read its section.

    Parameters
    ----------
    group
        The ranks that opened it.
    """

    def __init__(self, group: Transport) -> None:
        self._group = group
        self._info: ArrayInfo | None = None
        self._heads: dict[str, NDArray[np.int64]] = {}

    def read(self, array: DiskArray, key: Any, out: Any, method: Any) -> Any:
        """Read a section together with the other ranks: `CollectiveArray.read_all`."""
        group = self._group
        # What a write that was started before will change must not be read early.
        if group.in_flight.last is not None:
            group.in_flight.finish(group)
        head, got, attempt = None, None, None
        # The other ranks wait for all of a collective.
        with DeferredInterrupt():
            written = _core.writes()
            try:
                head = self._head(array, method) if _is_quiet(group, written) else None
                if head is not None:
                    got = early(group, [(array.handle.core, key, out)], method)
                    attempt = Attempt()
            except BaseException as error:
                attempt = Attempt(failure=error)
            if head is not None and got is not None:
                try:
                    heads = _core.Records(group.allgather(head))
                    done = heads.settled(True)
                except BaseException:
                    # Only now is it known whether there is another step, in which to say what failed.
                    with Unsure(group, _READ):
                        raise
                if done:
                    group.synchronised = written
                    return got[0]
                attempt = Attempt(heads)
            # What was read early is memory that is there.
            early_out = got[0] if got is not None and isinstance(got[0], np.ndarray) else None
            to = early_out if out is None else out

            def bring() -> list[Item]:
                return [brought.reading(array, key, to)]

            return run(
                group, _READ, bring, method, lambda: array.handle.hints, one=True, attempt=attempt
            )

    def _head(self, array: DiskArray, method: Any) -> NDArray[np.int64] | None:
        """Words for "I have read it"; None if not each rank is to read what it wants."""
        if self._info is not array.handle.info:
            self._info, self._heads = array.handle.info, {}
        if method not in METHODS or method == "two-phase":
            return None
        head = self._heads.get(method)
        if head is None:
            if method == "auto" and _few_touch_files(array.handle.hints, self._group):
                return None
            head = brief(_READ, [METHODS.index(method)], brought.name_of(array))
            self._heads[method] = head
        return head


def early(
    group: Transport, wanted: list[tuple[_core.Array, Any, Any]], method: str
) -> list[Any] | None:
    """Read what is cached, or takes longer to plan for than to read; None if that is not all."""
    return _core.read_early(
        wanted,
        method,
        rank=group.rank,
        ranks=group.size,
        oversubscription=oversubscription(group),
    )


def has_arrays(key: Any) -> bool:
    """Whether a key has arrays, lists or booleans."""

    def chooses(one: Any) -> bool:
        if isinstance(one, bool | np.bool):
            return True
        return hasattr(one, "__len__") and not isinstance(one, str | bytes) and np.ndim(one) > 0

    return any(chooses(one) for one in (key if isinstance(key, tuple) else (key,)))


def oversubscription(group: Transport) -> int:
    """Tell how many ranks of this node share a processor, in thousandths: 1000 and more."""
    near = group.nodes.count(group.nodes[group.rank])
    return max(near * 1000 // _processors(), 1000)


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _few_touch_files(hints: Hints, group: Transport) -> bool:
    """Whether not all ranks are to touch files."""
    return (hints.io_ranks or group.size) < group.size


def _is_quiet(group: Transport, written: int) -> bool:
    """Whether nothing was written since the ranks synchronised; `written`: `_core.writes` now."""
    # Who wrote must not have the others read before he comes: so he says that he has read nothing, and
    # nothing that was read early counts.
    return group.size == 1 or group.synchronised == written


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
    meaning: Callable[[], object] | None = None,
    tell: Callable[[], str] | None = None,
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
    meaning, tell
        What must be equal on all ranks beside the method, and what this rank called, in words, if it is
        not: as for `together`.
    """
    if group.in_flight.last is not None:
        group.in_flight.finish(group)
    write = call_of(call).writes
    what = call.rsplit(".", maxsplit=1)[-1]
    far = len(set(group.nodes)) > 1
    written = _core.writes()
    # Who may not touch files does not look at them either.
    two_phase = method == "two-phase"
    # What is wrong with the requests, `record` tells all ranks.
    with contextlib.suppress(Exception):
        two_phase = two_phase or (method == "auto" and _few_touch_files(hints(), group))
    reads = _is_quiet(group, written) and answer is None and not write and not two_phase
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
                return brief(call, [METHODS.index(method)], meaning=meant())
        if not mine:
            mine.extend(prepare())
        if (
            tries
            and not whole
            and if_cached is None
            and early(group, [(i.core, i.key, i.given) for i in mine if i.nbytes], method)
            is not None
        ):
            results = [item.result for item in mine]
        if write and group.nodes.count(group.nodes[group.rank]) > 1:
            # For this call: what a rank writes on its own later is planned as ever.
            while len(written_together) < len(mine):
                core = mine[len(written_together)].core
                core.expect_concurrent_writers()
                written_together.append(core)
        done = results is not None
        settings = _core.settings(
            METHODS.index(method),
            hints(),
            group.size,
            [(item.core, item.key) for item in mine],
            done=done,
            far=far,
        )
        names = brought.names_and_files(mine)
        words = [
            (name, file, item.core.descriptor(), item.section)
            for (name, file), item in zip(names, mine, strict=True)
        ]
        return _core.record(numbered(call, meant()), settings, words, done)

    def meant() -> object:
        return None if meaning is None else meaning()

    def settled(records: _core.Records) -> bool:
        return reads and records.settled(one)

    # The other ranks wait for all of a collective.
    with DeferredInterrupt():
        try:
            heads = attempt.heads if attempt is not None else None
            began = perf_counter()
            records = gather(group, record, name_of, settled, heads=heads, what=what, tell=tell)
            group.synchronised = written
            with Unsure(group, what):
                done = settled(records)
            if not done:
                records = _with_known_disks(
                    group,
                    records,
                    mine,
                    record,
                    what,
                    tries=answer is None and (write or group.size > 1),
                )
                seconds, me = _seconds_of(mine), get_ident()
                seconds["agree", me] += perf_counter() - began
                failure: BaseException | None = None
                try:
                    # Whatever the ranks make of the records, it ends with a step.
                    with Announced(group, what):
                        if (odd := records.compare(one)) is not None:
                            planning.refuse(records, odd)
                        if answer is not None:
                            told = answer(_synchronise(group, records, mine, write=write))
                            group.agree(0)
                            return told
                        at_once = None if write else records.unplanned()
                        with _DisksAreShared(group):
                            began = perf_counter()
                            if at_once is not None:
                                failure = independent.each_independently(
                                    group, mine, at_once[0], write=False
                                )
                                seconds["disk", me] += perf_counter() - began
                            else:
                                shared = _synchronise(group, records, mine, write=write)
                                seconds["plan", me] += perf_counter() - began
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


def _seconds_of(items: Sequence[Item]) -> Seconds:
    """Where what this rank takes counts: the first array that it has brought."""
    return items[0].array.handle.seconds if items else Seconds()


class _DisksAreShared:
    """Where other ranks of the node read as well, what a read takes is no figure of the disk."""

    __slots__ = ("_others",)

    def __init__(self, group: Transport) -> None:
        self._others = group.nodes.count(group.nodes[group.rank]) > 1

    def __enter__(self) -> None:
        if self._others:
            _core.share_disks(True)

    def __exit__(self, *_: object) -> None:
        if self._others:
            _core.share_disks(False)


def _with_known_disks(
    group: Transport,
    records: _core.Records,
    mine: list[Item],
    record: Callable[[bool], NDArray[Any]],
    what: str,
    *,
    tries: bool,
) -> _core.Records:
    """
    Take over what other ranks of this node know of its disks.

    With `tries`, one of them tries a disk first that none knows, where that decides how all read or
    write it. Returns the records that count from then on.
    """
    with Announced(group, what):
        triers = records.agree_on_disks(group.nodes, group.rank)
        if tries and group.rank in triers:
            _core.try_disk([(item.core, item.key) for item in mine])
    if not (tries and triers):
        return records
    records = gather(group, record, name_of, lambda _: False, again=True, what=what)
    with Announced(group, what):
        records.agree_on_disks(group.nodes, group.rank)
    return records


def _as_chosen(group: Transport, shared: SharedPlan, *, write: bool) -> BaseException | None:
    """Do what was planned; returns this rank's failure, if any rank failed."""
    durable = write and shared.records.durable
    seconds = _seconds_of(shared.mine)
    if shared.choice[0] == "two-phase":
        work = Work(
            group,
            shared.plan,
            shared.arrays,
            shared.mine,
            shared.groups,
            shared.slots,
            shared.room,
            seconds,
        )
        failure = write_rounds(work) if write else read_rounds(work)
    else:
        have = [(n, a) for n, a in enumerate(shared.arrays) if durable and a is not None]
        apart = [a for n, a in have if shared.plan.apart(n)]
        began = perf_counter()
        failure = independent.each_independently(
            group, shared.left, shared.choice[0], write=write, send=apart
        )
        seconds["disk", get_ident()] += perf_counter() - began
    if durable and failure is None:
        return flush_what_asks(group, shared.arrays, shared.mine)
    return failure


def _synchronise(
    group: Transport, records: _core.Records, mine: list[Item], *, write: bool
) -> SharedPlan:
    """Plan, from the records of all ranks."""
    plan = plan_of(records, write=write)
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
        own = _core.own_price([(i.core, i.key) for i in left if i.nbytes], write=write)
        part = owner_of(plan, group.rank, arrays).price(write=write)
        said = group.allgather(np.array([*own, part, oversubscription(group)], np.int64))
        each = [(row[0], row[1]) for row in said[:, :2].tolist()]
        parts, sharing = int(said[:, 2].sum()), int(said[:, 3].max())
        return Prices(each, parts, group.nodes, sharing, records.most_arrays())

    choice = decided(plan, records, prices, write=write, far=len(set(group.nodes)) > 1)
    groups, slots = records.groups(len(plan.owners())), plan.slots(records.offered)
    # Of all slots of a rank together.
    room = 2 * records.offered
    return SharedPlan(plan, arrays, names, choice, groups, slots, room, records, mine, left)


def plan_of(records: _core.Records, *, write: bool) -> _core.Collective:
    """
    Make the plan of the ranks with these records: a pure function.

    Slots are as large as the budgets allow, but hold a block at least: whether there is memory for that
    the records tell (`_core.Records.lacking`).
    """
    return records.planned(planning.AGREED.slot, planning.AGREED.least, write)


def decided(
    plan: _core.Collective,
    records: _core.Records,
    prices: Callable[[], Prices],
    *,
    write: bool,
    far: bool = False,
) -> Decided:
    """Choose the method; `prices` are asked for only if they count. Raises if there is no way."""
    at_once = None if write else records.unplanned()
    if at_once is not None:
        return at_once
    possible, found = records.decide(plan, write=write)
    if not possible:
        planning.refuse_memory(plan, records, found, far=far)
    if found is not None:
        return found
    return cheapest(plan, records, prices(), write=write)


def cheapest(
    plan: _core.Collective, records: _core.Records, prices: Prices, *, write: bool
) -> Decided:
    """Choose what costs least, of the methods that all ranks have memory for."""
    return plan.cheapest(
        list(prices.own),
        prices.parts,
        list(prices.nodes),
        oversubscription=prices.oversubscription,
        arrays=prices.arrays,
        write=write,
        records=records,
    )
