"""
The collective calls, from records to results.

Each rank prepares its sections (`items`), all ranks exchange records and agree (`agreement`), each
makes the same plan (``crates/plan/src/collective``), all choose a method (`choose`) and run it
(`rounds`, or each its own access). How it ended is agreed on again, so that all ranks return, or all
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from outcore import _core
from outcore.assignment import assign
from outcore.collective import items as brought
from outcore.collective.agreement import Gathered, Record, fail_together, few, gather
from outcore.collective.choose import CACHED, METHODS, Choice, choose, own_price, share_of_price
from outcore.collective.items import Item
from outcore.collective.report import CollectiveReport, tell
from outcore.collective.rounds import Elsewhere, Work, read_rounds, write_rounds
from outcore.disk import DiskArray
from outcore.errors import CollectiveError, UsageError
from outcore.hints import Hints
from outcore.transport import Transport, transport
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
}
_NAMES = {number: name for name, number in _CALLS.items()}
_CUTS = ("requested", "bounding", "fixed", "cyclic")


@dataclass(frozen=True)
class _Agreed:
    """What a plan is made with, where neither budget nor hint says otherwise: bytes."""

    # Long enough for a disk at full rate.
    slot: int = 8 << 20
    least: int = 256 << 10
    gap: int = 24 << 10
    align: int = 4096


AGREED = _Agreed()


@dataclass
class _Met:
    """What all ranks know after they have met: equal on all."""

    plan: _core.Collective
    arrays: list[DiskArray | None]
    names: list[int]
    overlap: bool
    choice: Choice


def read_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> list[Any]:
    """
    Read sections of several arrays together with the other ranks.

    Every rank of `comm` must call this, with arrays and sections of its own, or none. Arrays may
    differ in file, shape and dtype. Each byte is read from disk once; an array is read by a rank that
    has it in its list: give an empty section to lend a hand with an array.

    Parameters
    ----------
    requests
        ``(array, key)`` or ``(array, key, out)`` for each section; see `CollectiveArray.read_all`.
    comm
        Communicator of mpi4py, or transport; by default that of the first array.
    method
        ``"auto"``, ``"direct"``, ``"sieve"`` or ``"two-phase"``.

    Returns
    -------
    list of numpy.ndarray
        One for each request.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed. Arrays given as `out` are then undefined.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", data=np.arange(6).reshape(2, 3))
    >>> b = outcore.create("b.npy", data=np.arange(4.0))
    >>> outcore.read_all([(a, np.s_[1]), (b, np.s_[::2])])
    [array([3, 4, 5]), array([0., 2.])]

    Notes
    -----
    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O".
    """
    group = _group(requests, comm)

    def prepare() -> list[Item]:
        for request in requests:
            if len(request) not in (2, 3):
                raise UsageError(
                    "read_all takes (array, key) or (array, key, out)", code="bad-value"
                )
        return [brought.reading(_array(r[0]), *r[1:]) for r in requests]

    results: list[Any] = run(group, "outcore.read_all", prepare, method, _hints(requests))
    return results


def write_all(
    requests: Sequence[tuple[Any, ...]], *, comm: Any = None, method: Method = "auto"
) -> None:
    """
    Write sections of several arrays together with the other ranks.

    Parameters
    ----------
    requests
        ``(array, key, value)`` for each section; see `CollectiveArray.write_all`.
    comm, method
        As for `read_all`.

    Raises
    ------
    CollectiveError
        On all ranks, if any rank failed. Each block of the files then is old or new.

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

    run(group, "outcore.write_all", prepare, method, _hints(requests))


def _array(given: Any) -> DiskArray:
    if not isinstance(given, DiskArray):
        raise UsageError(f"{given!r} is no array on disk; open it first", code="bad-value")
    return given


def _group(requests: Sequence[tuple[Any, ...]], comm: Any) -> Transport:
    if comm is None:
        for request in requests:
            group = getattr(request[0], "transport", None) if request else None
            if group is not None:
                found: Transport = group
                return found
    return transport(comm)


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
    hints: Hints,
    *,
    one: bool = False,
) -> Any:
    """
    Make a collective call.

    Parameters
    ----------
    prepare
        Makes this rank's items; what it raises, all ranks raise.
    one
        All ranks bring one section of the same array.
    """
    write = bool(_CALLS[call] % 2)
    mine: list[Item] = []

    def record() -> Record:
        if method not in METHODS:
            raise UsageError(
                f"method={method!r} is not known; methods: {', '.join(METHODS)}", code="bad-hint"
            )
        mine.extend(prepare())
        wishes = [
            METHODS.index(method),
            _offered(hints),
            hints.io_ranks or group.size,
            _CUTS.index(hints.domains),
            int(hints.overlap == "error"),
            hints.stripe or AGREED.align,
            int(any(item.one_writer() for item in mine)),
            min((item.cached() for item in mine), default=1000),
        ]
        words = [(item.name(), item.core.ground(), item.section) for item in mine]
        return Record(_CALLS[call], wishes, words)

    # The other ranks wait for all of a collective.
    with Held():
        gathered = gather(group, record, lambda number: _NAMES.get(number, f"call {number}"))
        failure: BaseException | None
        if _at_hand(gathered, method, call):
            failure = _each_alone(group, mine, method, write=False)
        else:
            records = gathered.records()
            same = _compare(records, one=one)
            if call.startswith("explain_all"):
                met = _meet(group, records, same, mine, write=write)
                return tell(group, met.plan, mine, met.choice, write=write)
            met = _meet(group, records, same, mine, write=write)
            if met.choice.method == "two-phase":
                work = Work(group, met.plan, met.arrays, mine)
                failure = write_rounds(work, met.overlap) if write else read_rounds(work)
            else:
                failure = _each_alone(group, mine, met.choice.method, write=write)
    if failure is not None:
        cause = None if isinstance(failure, Elsewhere) else failure
        fail_together(group, cause, call.rsplit(".", maxsplit=1)[-1])
    if write:
        return None
    results = [item.result[()] if item.scalar else item.result for item in mine]
    return results[0] if one else results


def _offered(hints: Hints) -> int:
    """Bytes that a slot of this rank may have."""
    free = _core.memory_state()[1]
    limit = min(_core.memory_limit(), hints.memory or _core.memory_limit())
    # Two slots, and what reading or writing a tile takes.
    return max(min(free, limit) // 4, 1)


@dataclass
class _Same:
    """What was found equal in the records of all ranks."""

    method: str
    # For each array, by its name: its words; rank, item and section of each access; who has it.
    grounds: dict[int, list[int]]
    accesses: dict[int, list[int]]
    have: dict[int, list[int]]


def _compare(records: list[Record], *, one: bool) -> _Same:
    """Find what must be equal; raise on all ranks if it is not."""
    grounds: dict[int, list[int]] = {}
    accesses: dict[int, list[int]] = {}
    have: dict[int, list[int]] = {}
    for rank, record in enumerate(records):
        for number, (name, ground, section) in enumerate(record.items):
            if grounds.setdefault(name, ground) != ground:
                raise CollectiveError(
                    f"rank {rank} has another shape, dtype or chunking of an array than the ranks "
                    "before it: it was changed meanwhile. Open it again on all ranks",
                    code="mismatched-call",
                    ranks=(rank,),
                )
            accesses.setdefault(name, []).extend([rank, number, *section])
            ranks = have.setdefault(name, [])
            if not ranks or ranks[-1] != rank:
                ranks.append(rank)
    if one and len(grounds) > 1:
        first = records[0].items[0][0]
        odd = [rank for rank, record in enumerate(records) if record.items[0][0] != first]
        raise CollectiveError(
            f"ranks {few(odd)} made this call on another array than rank 0. Every rank must call it "
            "on the same array",
            code="mismatched-call",
            ranks=tuple(odd),
        )
    method = METHODS[records[0].wishes[0]]
    for rank, record in enumerate(records):
        if record.wishes[0] != records[0].wishes[0]:
            raise CollectiveError(
                f"rank 0 asked for method={method!r}, rank {rank} for "
                f"{METHODS[record.wishes[0]]!r}. Give all ranks the same",
                code="mismatched-call",
                ranks=(rank,),
            )
    return _Same(method, grounds, accesses, have)


def _at_hand(gathered: Gathered, method: str, call: str) -> bool:
    """Whether all ranks read on their own, so that nobody has to plan for all."""
    if call != "read_all" or method == "two-phase":
        return False
    ground = gathered.one_array()
    number = METHODS.index(method)
    if ground is None or any(other != number for other in gathered.wishes(0)):
        return False  # whoever compares them says what is wrong
    cached = not ground[1] and all(share >= CACHED for share in gathered.wishes(7))
    return method != "auto" or cached


def _meet(
    group: Transport, records: list[Record], same: _Same, mine: list[Item], *, write: bool
) -> _Met:
    """Plan, from the records of all ranks."""
    grounds, accesses, have, method = same.grounds, same.accesses, same.have, same.method
    wishes = [record.wishes for record in records]
    io_ranks = max(1, min(wish[2] for wish in wishes))
    table = write and any(wish[6] for wish in wishes)
    names = list(grounds)
    shares = _shares(grounds, accesses, have, group.size, io_ranks, alone=table)
    jobs = [(grounds[name], accesses[name], shares[name]) for name in names]
    offered = min(wish[1] for wish in wishes)
    slot = min(AGREED.slot, offered)

    def planned(slot: int) -> _core.Collective:
        return _core.Collective(
            jobs,
            ranks=group.size,
            slot=slot,
            gap=AGREED.gap,
            align=max(wish[5] for wish in wishes),
            least=AGREED.least,
            cut=_CUTS[wishes[0][3]],
        )

    block = max((_block(grounds[name]) for name in names), default=0)
    plan = planned(max(slot, min(block, offered)))
    overlap = write and plan.overlap()
    if overlap and any(wish[4] for wish in wishes):
        raise CollectiveError(
            "ranks write the same elements, and a hint says overlap='error'. Give them sections that "
            "do not meet, or leave the hint out: then the highest rank wins",
            code="overlapping-writes",
            ranks=(),
        )
    arrays_by_name = {item.name(): item.array for item in mine}
    arrays = [arrays_by_name.get(name) for name in names]
    plain = not any(ground[1] for ground in grounds.values())
    if method == "auto" and plain and not overlap and all(wish[7] >= CACHED for wish in wishes):
        choice = Choice("direct", "what the ranks want is in the page cache")
    elif method == "auto":
        own = own_price(mine, write=write)
        part = share_of_price(plan, arrays, group.rank, write=write)
        said = group.allgather(np.array([*own, part], np.int64)).tolist()
        prices = [(row[0], row[1]) for row in said]
        together = sum(row[2] for row in said)
        choice = choose(plan, write=write, overlap=overlap, prices=prices, together=together)
    elif overlap and method != "two-phase":
        choice = Choice("two-phase", f"{method} was asked for, but ranks write the same elements")
    else:
        choice = Choice(method, "asked for")
    return _Met(plan, arrays, names, overlap, choice)


def _block(ground: list[int]) -> int:
    """Bytes of a block that has one owner; an element if there are none."""
    item, encoded, ndim = ground[:3]
    bytes_ = item
    for n in ground[3 + 2 * ndim :]:
        bytes_ *= n if encoded else 1
    return bytes_


def _shares(
    grounds: dict[int, list[int]],
    accesses: dict[int, list[int]],
    have: dict[int, list[int]],
    size: int,
    io_ranks: int,
    *,
    alone: bool,
) -> dict[int, list[tuple[int, int]]]:
    """
    Which ranks own how much of each array.

    One array is everybody's. Several are assigned: the largest load as small as can be, then little
    traffic. Only who has an array can own a part of it.
    """
    chosen = {rank * size // io_ranks for rank in range(io_ranks)}
    owners: dict[int, list[int]] = {}
    for name, ranks in have.items():
        owners[name] = [rank for rank in ranks if rank in chosen] or ranks
        if alone:
            owners[name] = owners[name][:1]
    several = len(grounds) > 1 and any(len(ranks) > 1 for ranks in owners.values())
    if not several:
        return {name: [(rank, 1) for rank in ranks] for name, ranks in owners.items()}
    requests = np.zeros((size, len(grounds)), np.int64)
    eligible = np.zeros((size, len(grounds)), bool)
    for column, (name, ground) in enumerate(grounds.items()):
        item, _, ndim = ground[:3]
        words = np.array(accesses[name], np.int64).reshape(-1, 2 + 3 * ndim)
        nbytes = item * words[:, 3::3].prod(axis=1)
        np.add.at(requests[:, column], words[:, 0], nbytes)
        eligible[owners[name], column] = True
    given = assign(requests, eligible=eligible)
    # An array that nobody wants anything of is nobody's; it has no tiles either.
    return {
        name: [(rank, part) for rank, part in sorted(given.shares[column]) if part > 0]
        or [(owners[name][0], 1)]
        for column, name in enumerate(grounds)
    }


def _each_alone(
    group: Transport, mine: list[Item], method: str, *, write: bool
) -> BaseException | None:
    """Let each rank access its own sections; returns this rank's failure, if any rank failed."""
    failure: BaseException | None = None
    try:
        for item in mine:
            core = _sieving(item) if method == "sieve" else item.core
            if not item.nbytes:
                continue
            low = tuple(
                slice(a, a + (n - 1) * s + 1, s)
                for a, n, s in zip(*[iter(item.section)] * 3, strict=True)
            )
            if write:
                core.write(low, item.memory)
            else:
                core.read(low, item.memory)
    except BaseException as error:
        failure = error
    if group.agree(int(failure is not None)):
        return failure or Elsewhere()
    return None


def _sieving(item: Item) -> _core.Array:
    hints = Hints(method="window").over(item.array.hints)
    return _core.Array(item.array.info, item.array.writable, hints)


def together(group: Transport, work: Callable[[], None], what: str) -> None:
    """Let each rank do something on its own; all return, or all raise."""
    failure: BaseException | None = None
    try:
        work()
    except BaseException as error:
        failure = error
    if group.agree(int(failure is not None)):
        fail_together(group, failure, what)


def explain(
    group: Transport, prepare: Callable[[], list[Item]], method: str, hints: Hints, *, write: bool
) -> CollectiveReport:
    """Tell what a collective call would do. Collective."""
    call = "explain_all(write=True)" if write else "explain_all"
    report: CollectiveReport = run(group, call, prepare, method, hints, one=True)
    return report
