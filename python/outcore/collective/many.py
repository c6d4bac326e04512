"""
The collective calls, from records to results.

Each rank prepares its sections (`items`), all ranks exchange records and agree (`agreement`), each
makes the same plan (``crates/plan/src/collective``), all choose a method (`choose`) and run it
(`rounds`, or each its own access). How it ended is agreed on again, so that all ranks return, or all
raise.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.assignment import Assignment
from outcore.assignment import Method as Solver
from outcore.collective import items as brought
from outcore.collective import owners
from outcore.collective.agreement import differ, fail_together, gather
from outcore.collective.choose import (
    CACHED,
    METHODS,
    UNDECIDED,
    Choice,
    Exchange,
    Prices,
    choose,
    in_order,
    own_price,
    share_of_price,
)
from outcore.collective.items import Item
from outcore.collective.pace import agreed, clock_of
from outcore.collective.report import CollectiveReport, tell
from outcore.collective.rounds import Elsewhere, Work, read_rounds, write_rounds
from outcore.collective.slots import lend_slots, number_of
from outcore.disk import DiskArray
from outcore.errors import BudgetError, CollectiveError, UsageError
from outcore.hints import Hints
from outcore.report import human
from outcore.transport import Transport, transport
from outcore.transport.checks import few
from outcore.transport.watch import Held

__all__ = ["AGREED", "Method", "explain", "read_all", "run", "together", "write_all"]

Method = Literal["auto", "direct", "sieve", "two-phase"]

# Numbers of calls in records. Even ones read.
_CALLS = {
    "read_all": 2,
    "write_all": 3,
    "explain_all": 4,
    "explain_all(write=True)": 5,
    "outcore.read_all": 6,
    "outcore.write_all": 7,
    "DistArray.read_all": 8,
    "DistArray.write_all": 9,
    "outcore.explain_all": 10,
    "outcore.explain_all(write=True)": 11,
    # Without sections.
    "outcore.open": 20,
    "flush_all": 22,
    "DistArray.redistribute_all": 101,
    "DistArray.update_ghosts_all": 102,
    "DistArray.gather_all": 103,
}
_NAMES = {number: name for name, number in _CALLS.items()}
# Their wishes, by number.
_METHOD, _OFFERED, _IO_RANKS, _CUT, _REFUSES, _STRIPE = range(6)
CACHED_WISH, _GROUPS, _GAP, _ASSIGN = range(6, 10)
# Small sections that a rank reads from the disk at a time.
_LANES = 4
# Of the budget a slot is such a part: two slots or three, and what reading or writing a tile takes; with
# ranks on other nodes also two that messages need.
_SHARES = {False: 4, True: 6}
_CUTS = ("requested", "bounding", "fixed", "cyclic")
_SOLVERS: tuple[Solver, ...] = ("balanced", "greedy", "matching", "exact")


@dataclass(frozen=True)
class _Agreed:
    """What a plan is made with, where neither budget nor hint says otherwise: bytes."""

    # Long enough for a disk at full rate.
    slot: int = 8 << 20
    least: int = 256 << 10
    # Of a disk that nobody measured.
    gap: int = 24 << 10
    align: int = 4096


AGREED = _Agreed()


@dataclass
class Met:
    """What all ranks know after they have met: equal on all, but for `arrays` and `mine`."""

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


def read_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> list[Any]:
    """
    Read sections of several arrays together with the other ranks. Collective.

    Every rank of `comm` must call this, with arrays and sections of its own, or none. Arrays may
    differ in file, shape and dtype. Each byte is read from disk once; an array is read by a rank that
    has it in its list: give an empty section to lend a hand with an array.

    Parameters
    ----------
    requests
        ``(array, key)`` or ``(array, key, out)`` for each section; see `CollectiveArray.read_all`.
    comm
        Communicator of mpi4py, or transport; by default that of the first array that was opened with
        one. A rank that wants nothing passes ``comm=``: an empty list does not say whom it is with.
    method
        ``"auto"``, ``"direct"``, ``"sieve"`` or ``"two-phase"``; on all ranks the same.

    Returns
    -------
    list of numpy.ndarray or scalar
        One for each request, of the dtype of its array and of the shape that NumPy gives
        ``array[key]``; `out` where it was given.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed, or called something else. Arrays given as `out` are then
        undefined.
    BudgetError
        On all ranks, as for `CollectiveArray.read_all`.
    UsageError
        On this rank, if `requests` is empty and there is no `comm`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", data=np.arange(6).reshape(2, 3))
    >>> b = outcore.create("b.npy", data=np.arange(4.0))
    >>> outcore.read_all([(a, np.s_[1]), (b, np.s_[::2])])
    [array([3, 4, 5]), array([0., 2.])]

    Notes
    -----
    Memory as for `CollectiveArray.read_all`: the results, and slots for all arrays together.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.
    """
    group = _group(requests, comm)
    call = "outcore.read_all"

    def check() -> None:
        for request in requests:
            if len(request) not in (2, 3):
                raise UsageError(
                    "read_all takes (array, key) or (array, key, out)", code="bad-value"
                )

    early: list[Any] = []

    def prepare() -> list[Item]:
        check()
        # Where other ranks have not all at hand, what was read early is memory that is there.
        outs = [got if isinstance(got, np.ndarray) else None for got in early]
        outs += [None] * (len(requests) - len(outs))
        return [
            brought.reading(_array(r[0]), r[1], out if len(r) == 2 or r[2] is None else r[2])
            for r, out in zip(requests, outs, strict=True)
        ]

    def at_hand() -> list[Any] | None:
        got = read_early()
        early[:] = got or []
        return got

    def read_early() -> list[Any] | None:
        check()
        if method == "sieve":
            three = [(_array(array), key, *out, None)[:3] for array, key, *out in requests]
            return [read_at_hand(array, key, out, method) for array, key, out in three]
        wanted = [(_array(array)._core, key, *out, None)[:3] for array, key, *out in requests]
        turn = group.rank, group.size
        least = 0 if method == "direct" else CACHED
        return _core.read_many(wanted, least=least, lanes=_LANES, turn=turn)

    results: list[Any] = run(
        group, call, prepare, method, lambda: _hints(requests), at_hand=at_hand
    )
    return results


def write_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> None:
    """
    Write sections of several arrays together with the other ranks. Collective.

    Every rank of `comm` must call this, with arrays and sections of its own, or none. Where elements are
    given several times the highest rank wins, and of one rank its last request.

    Parameters
    ----------
    requests
        ``(array, key, value)`` for each section; values are broadcast to its shape and cast to the
        array's dtype. See `CollectiveArray.write_all`.
    comm, method
        As for `read_all`.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed, or called something else. Each block of the files then is old
        or new, as for `CollectiveArray.write_all`.
    BudgetError
        On all ranks, as for `CollectiveArray.write_all`.
    UsageError
        On this rank, if `requests` is empty and there is no `comm`.

    Notes
    -----
    Memory as for `read_all`; values that have to be cast are cast whole, besides.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", (2, 3), "i8")
    >>> outcore.write_all([(a, np.s_[0], 7), (a, np.s_[1], [1, 2, 3])])
    >>> a[...]
    array([[7, 7, 7],
           [1, 2, 3]])
    """
    group = _group(requests, comm)

    def prepare() -> list[Item]:
        for request in requests:
            if len(request) != 3:
                raise UsageError("write_all takes (array, key, value)", code="bad-value")
        return [brought.writing(_array(r[0]), r[1], r[2]) for r in requests]

    run(group, "outcore.write_all", prepare, method, lambda: _hints(requests))


def _array(given: Any) -> DiskArray:
    if not isinstance(given, DiskArray):
        raise UsageError(f"{given!r} is no array on disk; open it first", code="bad-value")
    return given


def _group(requests: Sequence[tuple[Any, ...]], comm: Any) -> Transport:
    """Find the ranks that take part. What else is wrong with `requests`, these ranks have to be told."""
    if comm is not None:
        return transport(comm)
    if not isinstance(requests, Sequence) or not requests:
        raise UsageError(
            f"{requests!r} does not say which ranks take part in this call. A rank that wants nothing "
            "passes an empty list and comm=, the communicator of the others",
            code="missing-argument",
        )
    for request in requests:
        if isinstance(request, Sequence) and request:
            group: Transport | None = getattr(request[0], "transport", None)
            if group is not None:
                return group
    return transport(None)


def _hints(requests: Sequence[tuple[Any, ...]]) -> Hints:
    for request in requests:
        if request and isinstance(request[0], DiskArray):
            return request[0].hints
    return Hints.of(None)


def run(
    group: Transport,
    call: str,
    prepare: Callable[[], list[Item]],
    method: str,
    hints: Callable[[], Hints],
    *,
    one: bool = False,
    answer: Callable[[Met], Any] | None = None,
    at_hand: Callable[[], list[Any] | None] | None = None,
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
    at_hand
        Reads what this rank wants if all of it is at hand, so that nothing has to be prepared. By
        default the items are read, if they are.
    """
    write = bool(_CALLS[call] % 2)
    far = len(set(group.nodes)) > 1
    written = _core.writes()
    # Who wrote on his own since the ranks met: the others must not have read before he comes.
    quiet = group.size == 1 or _written.get(group) == written
    # Who may not touch files does not look at them either.
    two_phase = method == "two-phase"
    # What is wrong with the requests, `record` tells all ranks.
    with contextlib.suppress(Exception):
        two_phase = two_phase or (method == "auto" and _few(hints(), group.size))
    reads = quiet and answer is None and not write and not two_phase
    mine: list[Item] = []
    results: list[Any] | None = None
    crowd: list[_core.Array] = []

    def record(whole: bool) -> NDArray[Any]:
        nonlocal results
        if method not in METHODS:
            raise UsageError(
                f"method={method!r} is not known; methods: {', '.join(METHODS)}", code="bad-hint"
            )
        if reads and not whole and at_hand is not None:
            results = at_hand()
            if results is not None:
                wishes = wishes_of(method, group.size, hints(), [], far=far)
                return _core.record(_CALLS[call], wishes, None, True)
        if not mine:
            mine.extend(prepare())
        if reads and not whole and at_hand is None and _all_at_hand(mine, method):
            results = [item.result for item in mine]
        if write and group.nodes.count(group.nodes[group.rank]) > 1:
            # For this call: what a rank writes on its own later is planned as ever.
            while len(crowd) < len(mine):
                core = mine[len(crowd)].core
                core.expect_crowd()
                crowd.append(core)
        done = results is not None
        wishes = wishes_of(method, group.size, hints(), mine, at_hand=done, far=far)
        names = brought.names_and_files(mine)
        words = [
            (name, file, item.core.ground(), item.section)
            for (name, file), item in zip(names, mine, strict=True)
        ]
        return _core.record(_CALLS[call], wishes, words, done)

    def settled(records: _core.Records) -> bool:
        return reads and records.settled(_METHOD, one)

    # The other ranks wait for all of a collective.
    with Held():
        try:
            records = gather(group, record, name_of, settled)
            _written[group] = written
            failure: BaseException | None = None
            if not settled(records):
                _compare(records, one=one)
                at_once = unplanned(records) if answer is None and not write else None
                if at_once is not None:
                    failure = _each_alone(group, mine, at_once.method, write=False)
                else:
                    met = _meet(group, records, mine, write=write)
                    if answer is not None:
                        return answer(met)
                    failure = _as_chosen(group, met, write=write)
                results = [item.result for item in mine]
            if failure is not None:
                cause = None if isinstance(failure, Elsewhere) else failure
                fail_together(group, cause, call.rsplit(".", maxsplit=1)[-1])
        finally:
            for core in crowd:
                core.lift_crowd()
    if write or results is None:
        return None
    return results[0] if one else results


def _as_chosen(group: Transport, met: Met, *, write: bool) -> BaseException | None:
    """Do what was planned; returns this rank's failure, if any rank failed."""
    if met.choice.method != "two-phase":
        return _each_alone(group, met.left, met.choice.method, write=write)
    work = Work(group, met.plan, met.arrays, met.mine, met.groups, met.slots, met.room)
    try:
        return write_rounds(work) if write else read_rounds(work)
    finally:
        lend_slots(group)


# `_core.writes` of this process when the ranks of a group last met.
_written: weakref.WeakKeyDictionary[Transport, int] = weakref.WeakKeyDictionary()


def read_at_hand(array: DiskArray, key: Any, out: Any, method: str) -> Any:
    """Read what nobody has to plan for: what is in the page cache, or asked for on its own; or None."""
    array._check_open()
    if method == "direct":
        return array._core.read(key, out)
    if method == "sieve":
        return _sieving(array).read(key, out)
    return array._core.read_at_hand(key, out, CACHED)


def _all_at_hand(items: list[Item], method: str) -> bool:
    return all(
        not item.nbytes or read_at_hand(item.array, item.key, item.given, method) is not None
        for item in items
    )


def wishes_of(
    method: str,
    size: int,
    hints: Hints,
    items: list[Item],
    *,
    at_hand: bool = False,
    far: bool = False,
) -> list[int]:
    """Give the wishes of a rank's record: is all known to be cached, are ranks on other nodes?"""
    cached = 1000 if at_hand else min((item.cached() for item in items), default=1000)
    return [
        METHODS.index(method),
        _offered(hints, far=far),
        hints.io_ranks or size,
        _CUTS.index(hints.domains),
        int(hints.overlap == "error"),
        hints.stripe or AGREED.align,
        cached,
        hints.io_groups or 1,
        max((item.core.disk()[0] for item in items), default=0),
        _SOLVERS.index(hints.assign),
    ]


def _few(hints: Hints, size: int) -> bool:
    """Whether not all ranks are to touch files."""
    return (hints.io_ranks or size) < size


def _offered(hints: Hints, *, far: bool) -> int:
    """Bytes that a slot of this rank may have."""
    free = _core.memory_state()[1]
    limit = min(_core.memory_limit(), hints.memory or _core.memory_limit())
    return max(min(free, limit) // _SHARES[far], 1)


def _compare(records: _core.Records, *, one: bool) -> None:
    """Find what must be equal; raise on all ranks if it is not."""
    odd = records.compare(one)
    if odd is not None and odd[0] == "ground":
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
    methods = records.wish(_METHOD)
    for rank, method in enumerate(methods):
        if method != methods[0]:
            raise CollectiveError(
                f"rank 0 asked for method={METHODS[methods[0]]!r}, rank {rank} for "
                f"{METHODS[method]!r}. Give all ranks the same",
                code="mismatched-call",
                ranks=(rank,),
            )


def _meet(group: Transport, records: _core.Records, mine: list[Item], *, write: bool) -> Met:
    """Plan, from the records of all ranks."""
    plan = planned(records, group.size, write=write)
    overlap = plan.overlap() if write and any(records.wish(_REFUSES)) else False
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
        words = [*own, part, *clock_of(group).words()]
        said = group.allgather(np.array(words, np.int64))
        alone = [(row[0], row[1]) for row in said[:, :2].tolist()]
        exchange = Exchange(group.nodes, agreed(said[:, 3:]))
        return Prices(alone, int(said[:, 2].sum()), exchange)

    far = len(set(group.nodes)) > 1
    choice = decided(plan, records, prices, write=write, far=far)
    groups, slots = groups_of(plan, records), slots_for(plan, records)
    room = 2 * min(records.wish(_OFFERED))
    return Met(plan, arrays, names, choice, groups, slots, room, records, mine, left)


def planned(records: _core.Records, size: int, *, write: bool) -> _core.Collective:
    """
    Make the plan of `size` ranks with these records: a pure function.

    Slots are as large as the budgets allow, but hold a block at least: whether there is memory for that
    `lacking` tells.
    """
    offered = min(records.wish(_OFFERED))
    slot = max(min(AGREED.slot, offered), min(records.block, offered))
    shares = _shares(records, size, write=write)
    while True:
        try:
            return _core.Collective.of_records(
                records,
                shares,
                slot=slot,
                gap=max(records.wish(_GAP)),
                align=max(records.wish(_STRIPE)),
                least=AGREED.least,
                cut=_CUTS[records.first_wish(_CUT)],
                write=write,
            )
        except BudgetError as error:
            # The block of another array may be larger still; or it needs a little more than its bytes.
            if error.needed is None:
                raise
            slot = error.needed if error.needed > slot else slot + 4096


def lacking(plan: _core.Collective, records: _core.Records) -> str:
    """Tell why there is no memory for two-phase; nothing if there is."""
    offered = min(records.wish(_OFFERED))
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
    alone = len(records.wish(_METHOD)) == 1 and method == "auto"
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
    cached = min(records.wish(CACHED_WISH)) >= CACHED
    if method == "auto" and not records.encoded and cached:
        return Choice("direct", "what the ranks want is in the page cache")
    return Choice(method, "asked for") if method in ("direct", "sieve") else None


def forced(records: _core.Records) -> Choice | None:
    """Tell what a hint leaves of ``"auto"``; None if there is something to choose."""
    said = records.wish(_IO_RANKS)
    if min(said) >= len(said):
        return None
    return Choice("two-phase", f"a hint says that {min(said)} of {len(said)} ranks touch files")


def asked_method(records: _core.Records) -> str:
    """Tell which method all ranks asked for."""
    return METHODS[records.wish(_METHOD)[0]]


def groups_of(plan: _core.Collective, records: _core.Records) -> int:
    """Tell in how many groups owners take turns."""
    return min(records.first_wish(_GROUPS), max(len(plan.owners()), 1))


def slots_for(plan: _core.Collective, records: _core.Records) -> int:
    """Tell how many slots each rank has."""
    return number_of(plan.slot_bytes, min(records.wish(_OFFERED)))


def assigned(records: _core.Records, size: int, *, write: bool) -> Assignment | None:
    """Tell which arrays were given to which ranks; None if nothing was assigned."""
    return owners.assigned(records, size, _owners(records, size, write=write), _solver(records))


def _solver(records: _core.Records) -> Solver:
    return _SOLVERS[records.first_wish(_ASSIGN)]


def _owners(records: _core.Records, size: int, *, write: bool) -> owners.Owners:
    io_ranks = max(1, min(records.wish(_IO_RANKS)))
    return owners.owners_of(records, size, io_ranks, write=write)


def _shares(records: _core.Records, size: int, *, write: bool) -> list[list[tuple[int, int]]]:
    """Which ranks own how much of each array."""
    able = _owners(records, size, write=write)
    given = owners.assigned(records, size, able, _solver(records))
    return [owners.shares_of(given, able, number) for number in range(len(able.able))]


def _each_alone(
    group: Transport, mine: list[Item], method: str, *, write: bool
) -> BaseException | None:
    """Let each rank access its own sections; returns this rank's failure, if any rank failed."""
    failure: BaseException | None = None
    some = [item for item in mine if item.nbytes]
    try:
        if write or method == "sieve":
            for item in some:
                core = _sieving(item.array) if method == "sieve" else item.core
                if write:
                    core.write(item.key, item.given)
                else:
                    core.read(item.key, item.given)
        else:
            wanted = [(item.core, item.key, item.given) for item in some]
            _core.read_many(wanted, lanes=_LANES, turn=(group.rank, group.size))
    except BaseException as error:
        failure = error
    if group.agree(int(failure is not None)):
        return failure or Elsewhere()
    return None


def _sieving(array: DiskArray) -> _core.Array:
    hints = Hints(method="window").over(array._own_hints())
    return _core.Array(array.info, array.writable, hints)


def name_of(number: int) -> str:
    """Tell what a call with this number is called."""
    return _NAMES.get(number, f"call {number}")


def call_of(name: str) -> int:
    """Tell the number of a call in records."""
    return _CALLS[name]


def together(
    group: Transport,
    call: str,
    work: Callable[[], list[int]],
    tell: Callable[[], str],
    *,
    same: int = 2,
    again: Callable[[], list[int]] | None = None,
) -> _core.Records:
    """
    Let each rank do something on its own; all return, or all raise. One meeting.

    Parameters
    ----------
    work
        What each rank does; gives numbers for the others. What it raises, all ranks raise.
    tell
        Says what this rank called, where ranks meant different things.
    same
        So many of the numbers, the first ones, must be equal on all ranks.
    again
        Makes the numbers with more care, in a second meeting, before ranks are told that they differ.

    Returns
    -------
    _core.Records
        What the ranks said; their numbers are its wishes.
    """

    def record(numbers: Callable[[], list[int]]) -> Callable[[bool], NDArray[Any]]:
        return lambda _: _core.record(_CALLS[call], numbers(), None, True)

    what = call.rsplit(".", maxsplit=1)[-1]
    with Held():
        records = gather(group, record(work), name_of, lambda _: True, what=what)
        if again is not None and not _alike(records, same):
            records = gather(group, record(again), name_of, lambda _: True, what=what)
        if not _alike(records, same):
            told = group.allgather_bytes(tell().encode(errors="replace"))
            differ([text.decode(errors="replace") for text in told])
    return records


def _alike(records: _core.Records, same: int) -> bool:
    for number in range(same):
        said = records.wish(number)
        if said.count(said[0]) != len(said):
            return False
    return True


def explain(
    group: Transport, prepare: Callable[[], list[Item]], method: str, hints: Hints, *, write: bool
) -> CollectiveReport:
    """Tell what a collective call would do. Collective."""
    call = "explain_all(write=True)" if write else "explain_all"

    def answer(met: Met) -> CollectiveReport:
        return tell(group.size, met.plan, met.groups, met.slots, met.choice, write=write)

    report: CollectiveReport = run(
        group, call, prepare, method, lambda: hints, one=True, answer=answer
    )
    return report
