"""
A collective call, from records to results.

Each rank prepares its sections (`items`), and all ranks exchange records and agree (`agreement`).
Each rank makes the same plan. All choose a method and run it: `rounds`, or an access of each rank
alone (`independent`). At the end all ranks agree on the outcome, so that all return, or all raise.
``crates/plan/src/collective`` decides plan, owners, costs and method.

A read of one array, where every rank has its section in the page cache, has a fast path (`Reader`).
A rank reads a few megabytes out of the page cache in half a millisecond; to prepare an item, hints
and a whole record takes a tenth of that, for other ranks that need none of it. So the rank reads
first, and sends a brief record: that it has read, and from which array, the same numbers each time.
If all ranks send that, the call is complete. If not, they take the general path (`run`), which begins
with the records that they have exchanged.

Invariants. Each rank decides alone whether it tries the fast path. Its actions after the exchange
follow from the records of all ranks.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.hints import Hints
from outcore.base.report.phases import Seconds
from outcore.errors import CollectiveError, UsageError
from outcore.formats.layout import ArrayInfo
from outcore.ranks.agreement import (
    RaiseOnAllRanks,
    StopGroupOnError,
    encode_call,
    gather_records,
    get_call,
    make_brief_record,
    raise_rank_failures,
)
from outcore.ranks.collective import independent, planning
from outcore.ranks.collective import items as brought
from outcore.ranks.collective.durable import flush_if_requested
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.planning import METHODS, UNDECIDED, Decided, Prices
from outcore.ranks.collective.rounds import CallState, make_owner, read_rounds, write_rounds
from outcore.ranks.transport import Transport
from outcore.ranks.transport.sharing import unpin_slots
from outcore.ranks.transport.timeouts import DeferredInterrupt

__all__ = [
    "Attempt",
    "CollectiveCall",
    "Reader",
    "SharedPlan",
    "choose_method",
    "compute_oversubscription",
    "find_cheapest_method",
    "has_arrays",
    "has_several_nodes",
    "make_plan",
    "read_early",
]

_READ = "read_all"


@dataclass(frozen=True)
class Attempt:
    """
    Outcome of a read before the call.

    The rank failed; or it exchanged records with the others (`heads`); or not all was cached.
    """

    heads: _core.Records | None = None
    failure: BaseException | None = None


@dataclass
class SharedPlan:
    """State after the ranks have synchronised: equal on all ranks, except `arrays` and `mine`."""

    plan: _core.Collective
    arrays: list[DiskArray | None]
    names: list[int]
    choice: Decided
    groups: int
    slots: int
    room: int
    records: _core.Records
    mine: list[Item]
    # The same for a write, without the elements that higher ranks write.
    left: list[Item]


class Reader:
    """Fast path for reads of one array: a rank reads its section, then reports that it has read it."""

    def __init__(self, group: Transport) -> None:
        self._group = group
        self._info: ArrayInfo | None = None
        self._heads: dict[str, NDArray[np.int64]] = {}

    def read(self, array: DiskArray, key: Any, out: Any, method: Any) -> Any:
        """Read a section together with the other ranks: `CollectiveArray.read_all`."""
        group = self._group
        # A write that was started earlier may change these elements: do not read before it ends.
        if group.in_flight.last is not None:
            group.in_flight.finish(group)
        # The other ranks wait for all of a collective.
        with DeferredInterrupt():
            written = _core.writes()
            head, got, attempt = self._try_early(array, key, out, method, written)
            if head is not None and got is not None:
                heads, is_complete = self._exchange(head)
                if is_complete:
                    group.synchronised = written
                    return got[0]
                attempt = Attempt(heads)
            # The general path reads into the memory that the early read has allocated.
            early_out = got[0] if got is not None and isinstance(got[0], np.ndarray) else None
            to = early_out if out is None else out

            def prepare() -> list[Item]:
                return [brought.prepare_read(array, key, to)]

            return CollectiveCall(
                group,
                _READ,
                prepare,
                method,
                lambda: array.handle.hints,
                one=True,
                attempt=attempt,
            ).run()

    def _try_early(
        self, array: DiskArray, key: Any, out: Any, method: Any, written: int
    ) -> tuple[NDArray[np.int64] | None, list[Any] | None, Attempt | None]:
        """Read early if that is allowed: the brief record, what was read, and the outcome."""
        head, got, attempt = None, None, None
        try:
            head = (
                self._get_head(array, method) if _has_no_new_writes(self._group, written) else None
            )
            if head is not None:
                got = read_early(self._group, [(array.handle.core, key, out)], method)
                attempt = Attempt()
        except BaseException as error:
            attempt = Attempt(failure=error)
        return head, got, attempt

    def _exchange(self, head: NDArray[np.int64]) -> tuple[_core.Records, bool]:
        """Exchange brief records; also return whether they complete the call."""
        try:
            heads = _core.Records(self._group.allgather(head))
            return heads, heads.settled(True)
        except BaseException:
            # Only from here on is it known whether there is another step, in which to report a failure.
            with StopGroupOnError(self._group, _READ):
                raise

    def _get_head(self, array: DiskArray, method: Any) -> NDArray[np.int64] | None:
        """Return the record of a rank that has read; None if some ranks must not read files."""
        if self._info is not array.handle.info:
            self._info, self._heads = array.handle.info, {}
        if method not in METHODS or method == "two-phase":
            return None
        head = self._heads.get(method)
        if head is None:
            if method == "auto" and _has_io_rank_limit(array.handle.hints, self._group):
                return None
            head = make_brief_record(_READ, [METHODS.index(method)], brought.get_array_id(array))
            self._heads[method] = head
        return head


def read_early(
    group: Transport, wanted: list[tuple[_core.Array, Any, Any]], method: str
) -> list[Any] | None:
    """Read sections that are cached, or take longer to plan than to read; None if not all are."""
    return _core.read_early(
        wanted,
        method,
        rank=group.rank,
        ranks=group.size,
        oversubscription=compute_oversubscription(group),
    )


def has_arrays(key: Any) -> bool:
    """Return whether a key contains arrays, lists or booleans."""

    def chooses(one: Any) -> bool:
        if isinstance(one, bool | np.bool):
            return True
        return hasattr(one, "__len__") and not isinstance(one, str | bytes) and np.ndim(one) > 0

    return any(chooses(one) for one in (key if isinstance(key, tuple) else (key,)))


def compute_oversubscription(group: Transport) -> int:
    """Return the number of ranks of this node per processor, in thousandths: at least 1000."""
    near = group.nodes.count(group.nodes[group.rank])
    return max(near * 1000 // _count_processors(), 1000)


def _count_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _has_io_rank_limit(hints: Hints, group: Transport) -> bool:
    """Return whether a hint lets only some ranks access files."""
    return (hints.io_ranks or group.size) < group.size


def _has_no_new_writes(group: Transport, written: int) -> bool:
    """Return whether this rank wrote nothing since the ranks synchronised; `written`: `_core.writes`."""
    # A rank that has written must not let the others read before it joins the call. It therefore reports
    # that it has read nothing, and all early reads are discarded.
    return group.size == 1 or group.synchronised == written


class _State(Enum):
    """Progress of a call on this rank."""

    #: The rank has no results. It may have prepared its items.
    PREPARING = auto()
    #: The rank has read its sections out of the page cache, before the ranks agreed.
    READ_EARLY = auto()
    #: The ranks have moved all elements together.
    MOVED = auto()


@dataclass(slots=True, eq=False)
class CollectiveCall:
    """
    One collective call on this rank, from its record to its results.

    `prepare` makes this rank's items and `hints` its hints; errors of both are raised on all ranks.
    `one` states that all ranks bring one section of the same array. With `answer`, no elements are
    moved: it makes the result from the plan. `if_cached` reads this rank's sections if all of them are
    cached, so that nothing must be prepared; by default the items are read if they are cached. `attempt`
    is the outcome of a read before the call. `meaning`, which must be equal on all ranks in addition to
    the method, and `describe` are as for `Ranks.gather_numbers`.

    `items` is empty until this rank has prepared them, and `results` are valid unless `state` is
    ``PREPARING``. `shared_writers` are arrays of the core that expect other writers on this node until
    the call ends. `written` is `_core.writes` when the call began. `may_be_settled` states that the call
    is complete if all ranks have read early.
    """

    group: Transport
    call: str
    prepare: Callable[[], list[Item]]
    method: str
    hints: Callable[[], Hints]
    _: KW_ONLY
    one: bool = False
    answer: Callable[[SharedPlan], Any] | None = None
    if_cached: Callable[[], list[Any] | None] | None = None
    attempt: Attempt | None = None
    meaning: Callable[[], object] | None = None
    describe: Callable[[], str] | None = None
    state: _State = field(default=_State.PREPARING, init=False)
    items: list[Item] = field(default_factory=list, init=False)
    results: list[Any] = field(default_factory=list, init=False)
    shared_writers: list[_core.Array] = field(default_factory=list, init=False)
    is_write: bool = field(init=False)
    what: str = field(init=False)
    written: int = field(init=False)
    may_be_settled: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.group.in_flight.last is not None:
            self.group.in_flight.finish(self.group)
        self.is_write = get_call(self.call).writes
        self.what = self.call.rsplit(".", maxsplit=1)[-1]
        self.written = _core.writes()
        # A rank that must not read files does not look at them either.
        two_phase = self.method == "two-phase"
        # `record` reports errors of the hints to all ranks.
        with contextlib.suppress(Exception):
            two_phase = two_phase or (
                self.method == "auto" and _has_io_rank_limit(self.hints(), self.group)
            )
        is_read = not self.is_write and self.answer is None and not two_phase
        self.may_be_settled = is_read and _has_no_new_writes(self.group, self.written)

    def run(self) -> Any:
        """
        Make the call. All ranks return, or all raise.

        Returns the results of this rank's items for a read, the answer, or None.
        """
        # The other ranks wait for all of a collective.
        with DeferredInterrupt():
            try:
                began = perf_counter()
                records = self._exchange_records()
                with StopGroupOnError(self.group, self.what):
                    is_complete = self._is_settled(records)
                if not is_complete:
                    records = self._learn_disks(records)
                    _get_timer(self.items)["agree", get_ident()] += perf_counter() - began
                    answer = self._answer_or_move(records)
                    if self.answer is not None:
                        return answer
            finally:
                for core in self.shared_writers:
                    core.end_concurrent_writers()
        if self.is_write or self.state is _State.PREPARING:
            return None
        return self.results[0] if self.one else self.results

    def _exchange_records(self) -> _core.Records:
        """Exchange records with the other ranks, unless they have exchanged enough before the call."""
        heads = self.attempt.heads if self.attempt is not None else None
        records = gather_records(
            self.group,
            self._make_record,
            self._is_settled,
            heads=heads,
            label=self.what,
            describe=self.describe,
        )
        self.group.synchronised = self.written
        return records

    def _is_settled(self, records: _core.Records) -> bool:
        """Return whether all ranks have read early, so that the call is complete."""
        return self.may_be_settled and records.settled(self.one)

    def _make_record(self, whole: bool) -> NDArray[Any]:
        """
        Make this rank's record for `agreement.gather_records`.

        A `whole` record has all items, and nothing is read early for it.
        """
        if self.method not in METHODS:
            raise UsageError(
                f"method={self.method!r} is not known; pass one of {', '.join(METHODS)}",
                code="bad-hint",
            )
        if self.attempt is not None and self.attempt.failure is not None:
            raise self.attempt.failure
        # A rank that has tried before the call does not try again.
        tries = self.may_be_settled and self.attempt is None and not whole
        if tries and self.if_cached is not None:
            results = self.if_cached()
            if results is not None:
                self._set_results(_State.READ_EARLY, results)
                return make_brief_record(
                    self.call, [METHODS.index(self.method)], meaning=self._evaluate_meaning()
                )
        if not self.items:
            self.items.extend(self.prepare())
        if tries and self.if_cached is None:
            self._read_early()
        if self.is_write and _is_node_shared(self.group):
            self._expect_other_writers()
        return self._make_whole_record()

    def _read_early(self) -> None:
        """Read all items now, if they are cached."""
        wanted = [(i.core, i.key, i.given) for i in self.items if i.nbytes]
        if read_early(self.group, wanted, self.method) is not None:
            self._set_results(_State.READ_EARLY, [item.result for item in self.items])

    def _set_results(self, state: _State, results: list[Any]) -> None:
        """Set the results of this rank, and how it got them."""
        self.state, self.results = state, results

    def _expect_other_writers(self) -> None:
        """Let the core plan for other writers on this node: until the call ends, and no longer."""
        while len(self.shared_writers) < len(self.items):
            core = self.items[len(self.shared_writers)].core
            core.expect_concurrent_writers()
            self.shared_writers.append(core)

    def _make_whole_record(self) -> NDArray[Any]:
        """Make the record with the settings and all items of this rank."""
        is_done = self.state is _State.READ_EARLY
        settings = _core.settings(
            METHODS.index(self.method),
            self.hints(),
            self.group.size,
            [(item.core, item.key) for item in self.items],
            done=is_done,
            far=has_several_nodes(self.group),
        )
        names = brought.get_array_and_file_ids(self.items)
        accesses = [
            (name, file, item.core.descriptor(), item.section)
            for (name, file), item in zip(names, self.items, strict=True)
        ]
        return _core.record(
            encode_call(self.call, self._evaluate_meaning()), settings, accesses, is_done
        )

    def _evaluate_meaning(self) -> object:
        """Return what must be equal on all ranks in addition to the method; None if nothing must."""
        return None if self.meaning is None else self.meaning()

    def _learn_disks(self, records: _core.Records) -> _core.Records:
        """
        Use the measurements of this node's disks by other ranks; return the records that then count.

        If no rank knows a disk, and that decides how all ranks access it, one rank measures it first.
        """
        group, what = self.group, self.what
        tries = self.answer is None and (self.is_write or group.size > 1)
        with RaiseOnAllRanks(group, what):
            triers = records.agree_on_disks(group.nodes, group.rank)
            if tries and group.rank in triers:
                _core.try_disk([(item.core, item.key) for item in self.items])
        if not (tries and triers):
            return records
        records = gather_records(group, self._make_record, lambda _: False, whole=True, label=what)
        with RaiseOnAllRanks(group, what):
            records.agree_on_disks(group.nodes, group.rank)
        return records

    def _answer_or_move(self, records: _core.Records) -> Any:
        """Return the answer from the plan, or move the elements. All ranks return, or none."""
        group = self.group
        failure: BaseException | None = None
        try:
            # The evaluation of the records always ends with a step of all ranks.
            with RaiseOnAllRanks(group, self.what):
                if (odd := records.compare(self.one)) is not None:
                    planning.raise_difference(records, odd)
                if self.answer is not None:
                    shared = _share_plan(group, records, self.items, write=self.is_write)
                    answer = self.answer(shared)
                    group.agree(0)
                    return answer
                failure = self._move(records)
        finally:
            with StopGroupOnError(group, self.what):
                unpin_slots(group)
        if failure is not None:
            raise_rank_failures(group, failure, self.what)
        self._set_results(_State.MOVED, [item.result for item in self.items])
        return None

    def _move(self, records: _core.Records) -> BaseException | None:
        """Read or write all items together; return this rank's failure, if any rank failed."""
        at_once = None if self.is_write else records.unplanned()
        seconds, thread = _get_timer(self.items), get_ident()
        with _IgnoreReadTimes(self.group):
            began = perf_counter()
            if at_once is not None:
                failure = independent.access_independently(
                    self.group, self.items, at_once[0], write=False
                )
                seconds["disk", thread] += perf_counter() - began
                return failure
            shared = _share_plan(self.group, records, self.items, write=self.is_write)
            seconds["plan", thread] += perf_counter() - began
            return _run_chosen_method(self.group, shared, write=self.is_write)


def _get_timer(items: Sequence[Item]) -> Seconds:
    """Return the timer for this rank: that of its first array."""
    return items[0].array.handle.seconds if items else Seconds()


def _is_node_shared(group: Transport) -> bool:
    """Return whether other ranks are on this rank's node."""
    return group.nodes.count(group.nodes[group.rank]) > 1


def has_several_nodes(group: Transport) -> bool:
    """Return whether the ranks are spread over several nodes."""
    return len(set(group.nodes)) > 1


class _IgnoreReadTimes:
    """Context manager that ignores the times of reads, because other ranks of the node read too."""

    __slots__ = ("_others",)

    def __init__(self, group: Transport) -> None:
        self._others = _is_node_shared(group)

    def __enter__(self) -> None:
        if self._others:
            _core.share_disks(True)

    def __exit__(self, *_: object) -> None:
        if self._others:
            _core.share_disks(False)


def _run_chosen_method(
    group: Transport, shared: SharedPlan, *, write: bool
) -> BaseException | None:
    """Run the plan; return this rank's failure, if any rank failed."""
    durable = write and shared.records.durable
    seconds = _get_timer(shared.mine)
    if shared.choice[0] == "two-phase":
        work = CallState(
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
        failure = independent.access_independently(
            group, shared.left, shared.choice[0], write=write, send=apart
        )
        seconds["disk", get_ident()] += perf_counter() - began
    if durable and failure is None:
        return flush_if_requested(group, shared.arrays, shared.mine)
    return failure


def _share_plan(
    group: Transport, records: _core.Records, mine: list[Item], *, write: bool
) -> SharedPlan:
    """Plan from the records of all ranks, and choose the method together with them."""
    plan = make_plan(records, write=write)
    overlap = plan.overlap() if write and records.refuses_overlap else False
    if overlap is None and group.rank == 0:
        warnings.warn(UNDECIDED, stacklevel=2)
    if overlap:
        raise CollectiveError(
            "ranks write the same elements, which the hint overlap='error' forbids; give them "
            "sections that do not overlap, or omit the hint: then the highest rank wins",
            code="overlapping-writes",
            ranks=(),
        )
    arrays_by_name = dict(
        zip(brought.get_array_ids(mine), (item.array for item in mine), strict=True)
    )
    names = records.names
    arrays = [arrays_by_name.get(name) for name in names]
    left = brought.exclude_overwritten(mine, plan, group.rank) if write else mine

    def prices() -> Prices:
        own = _core.own_price([(i.core, i.key) for i in left if i.nbytes], write=write)
        part = make_owner(plan, group.rank, arrays).price(write=write)
        said = group.allgather(np.array([*own, part, compute_oversubscription(group)], np.int64))
        each = [(row[0], row[1]) for row in said[:, :2].tolist()]
        parts, sharing = int(said[:, 2].sum()), int(said[:, 3].max())
        return Prices(each, parts, group.nodes, sharing, records.most_arrays())

    choice = choose_method(plan, records, prices, write=write, far=has_several_nodes(group))
    groups, slots = records.groups(len(plan.owners())), plan.slots(records.offered)
    # For all slots of a rank together.
    room = 2 * records.offered
    return SharedPlan(plan, arrays, names, choice, groups, slots, room, records, mine, left)


def make_plan(records: _core.Records, *, write: bool) -> _core.Collective:
    """
    Make the plan of the ranks with these records: a pure function.

    Slots are as large as the budgets allow, but hold at least one block; `_core.Records.lacking` reports
    ranks without memory for that.
    """
    return records.planned(planning.AGREED.slot, planning.AGREED.least, write)


def choose_method(
    plan: _core.Collective,
    records: _core.Records,
    prices: Callable[[], Prices],
    *,
    write: bool,
    far: bool = False,
) -> Decided:
    """Choose the method; compute `prices` only if needed. Raise if no method is possible."""
    at_once = None if write else records.unplanned()
    if at_once is not None:
        return at_once
    possible, found = records.decide(plan, write=write)
    if not possible:
        planning.raise_memory_shortage(plan, records, found, far=far)
    if found is not None:
        return found
    return find_cheapest_method(plan, records, prices(), write=write)


def find_cheapest_method(
    plan: _core.Collective, records: _core.Records, prices: Prices, *, write: bool
) -> Decided:
    """Choose the method with the lowest cost, of those for which all ranks have memory."""
    return plan.cheapest(
        list(prices.own),
        prices.parts,
        list(prices.nodes),
        oversubscription=prices.oversubscription,
        arrays=prices.arrays,
        write=write,
        records=records,
    )
