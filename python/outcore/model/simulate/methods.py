"""
Simulate access methods: real plans for simulated ranks, on the clock of a modelled machine.

| method      | what happens                                                                     |
|-------------|----------------------------------------------------------------------------------|
| `direct`    | each rank reads or writes each run of its section with one request, one at a time; |
|             | each rank reads shared elements; the highest rank writes them                     |
| `sieve`     | each rank transfers everything from its first to its last byte, window by window  |
| `static`    | extended two-phase, file domains of the whole array                               |
| `dynamic`   | extended two-phase, file domains of the bounding section of all requests          |
| `requested` | as in outcore: regions, domains of equal cost, tiles in slots, long gaps skipped   |
| `auto`      | `requested`, or independent access with gaps read: the faster on this machine      |

`requested` and `auto` decide which gaps and holes are read as `read_all` does with the measurements of
`outcore bench`, here from `Machine.figures`. `auto` has one advantage over `read_all`: it chooses by the
simulated time, not by an estimated cost.

`static` and `dynamic` follow the paper: one bounding section, one tile for each owner as far as its
memory allows, a column at a time if columns are not neighbours in the file, and always a read before the
write if there are holes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from outcore import _core
from outcore.base.report import format_time
from outcore.errors import UsageError
from outcore.model.machines.machine import Machine
from outcore.ranks.collective.planning import AGREED, explain_order

__all__ = ["METHODS", "Case", "Method", "Outcome", "SimulatedArray", "plan", "simulate"]

Method = Literal["direct", "sieve", "static", "dynamic", "requested", "auto"]
METHODS: tuple[Method, ...] = get_args(Method)

# Bytes that a processor of the paper sieves in one piece.
_PAPER_SLOT = 4 << 20
# One slot is exchanged while the other is read or written.
_PAPER_SLOTS = 2
# Strides within a column are sieved; the next column is a separate request, unless it is adjacent.
_PAPER_GAP = 1 << 10
_FAR = 1 << 60
_PAGE = 4096


@dataclass(frozen=True)
class SimulatedArray:
    """
    Array, with the section that each rank accesses.

    Attributes
    ----------
    shape, itemsize, order
        Lengths of the axes, bytes of an element, ``"C"`` or ``"F"``.
    sections
        Number of each rank with a section, and a slice with start, stop and step for each axis.
    offset
        Position of the first byte in the file, 128 for ``.npy``: owners begin at pages of the file. None
        if it is unknown; then they begin at any row.
    """

    shape: tuple[int, ...]
    itemsize: int
    order: str
    sections: Sequence[tuple[int, tuple[slice, ...]]]
    offset: int | None = None

    def descriptor(self) -> list[int]:
        """Return the array as a record."""
        ndim = len(self.shape)
        axes = range(ndim) if self.order == "C" else reversed(range(ndim))
        place = -1 if self.offset is None else self.offset
        return [self.itemsize, 0, ndim, *axes, *self.shape, *[1] * ndim, place]

    def accesses(self) -> list[int]:
        """Return the accesses as a record."""
        words: list[int] = []
        for rank, section in self.sections:
            words += (rank, 0)
            for part, length in zip(section, self.shape, strict=True):
                inside = range(*part.indices(length))
                words += (inside.start if inside else 0, len(inside), max(inside.step, 1))
        return words


@dataclass(frozen=True)
class Case:
    """Concurrent accesses of ranks: sections of one array or of several."""

    ranks: int
    arrays: tuple[SimulatedArray, ...]
    write: bool = False


@dataclass(frozen=True)
class Outcome:
    """
    Result of a simulated access.

    Attributes
    ----------
    method, why
        Method; with ``auto`` the chosen one, and the reason.
    ns
        Nanoseconds until the last rank is done.
    requests, bytes, useful
        Number of requests, bytes that servers transferred for them, bytes that ranks requested.
    messages, message_bytes
        Messages between ranks of different nodes, and their bytes.
    rounds
        Rounds of two-phase; 0 for independent access.
    io_ns, exchange_ns, busiest_ns
        Time in which all ranks waited for servers; time of the exchanges; work of the busiest server.
    copy_ns
        Time of copies in memory during the exchanges, on the rank that copies most.
    events
        Number of simulated bursts of requests; smaller than `requests` if a burst stands for many.
    """

    method: str
    ns: int
    requests: int
    bytes: int
    useful: int
    messages: int
    message_bytes: int
    rounds: int
    io_ns: int
    exchange_ns: int
    copy_ns: int
    busiest_ns: int
    events: int
    why: str = ""

    @property
    def seconds(self) -> float:
        """Virtual seconds."""
        return self.ns / 1e9


_Jobs = list[tuple[list[int], list[int], list[tuple[int, int]]]]


def _make_jobs(case: Case, io_ranks: int | None) -> _Jobs:
    count = case.ranks if io_ranks is None else io_ranks
    if not 1 <= count <= case.ranks:
        raise UsageError(
            f"io_ranks={count}: pass a number from 1 to {case.ranks}, the ranks of the case",
            code="bad-hint",
        )
    shares = [(rank * case.ranks // count, 1) for rank in range(count)]
    return [(array.descriptor(), array.accesses(), shares) for array in case.arrays]


def plan(
    case: Case,
    method: Method = "requested",
    *,
    io_ranks: int | None = None,
    slot: int | None = None,
    shares: Sequence[Sequence[tuple[int, int]]] | None = None,
    gap: int | None = None,
) -> _core.Collective:
    """
    Make the plan of a two-phase method with the planner of `read_all`.

    Parameters
    ----------
    io_ranks
        Number of ranks that own parts of files. Default: all.
    slot
        Bytes of one of two slots of a rank. With `requested`, a rank has three slots if these fit in the
        same memory. Default: as in `read_all` or in the paper, and three slots with `requested`.
    shares
        Pairs of rank and part for each array (`outcore.model.assign`), instead of equal parts for all
        I/O ranks.
    gap
        With `requested`: gaps below this many bytes are cheaper to read than to skip. Default: the value
        for a disk without measurements.
    """
    jobs = _make_jobs(case, io_ranks)
    if shares is not None:
        jobs = [(job[0], job[1], list(own)) for job, own in zip(jobs, shares, strict=True)]
    paper = method in ("static", "dynamic")
    # A tile without a position in its first page needs no page for that.
    free = AGREED.slot - (0 if any(array.offset is not None for array in case.arrays) else _PAGE)
    size = slot or (_PAPER_SLOT if paper else free)
    return _core.Collective(
        jobs,
        ranks=case.ranks,
        slot=size,
        gap=_FAR if paper else AGREED.gap if gap is None else gap,
        align=1 if paper else AGREED.align,
        least=size if paper else AGREED.least,
        cut={"static": "fixed", "dynamic": "bounding"}.get(method, "requested"),
        write=case.write and not paper,
    )


def simulate(
    case: Case,
    machine: Machine,
    method: Method = "auto",
    *,
    io_ranks: int | None = None,
    slot: int | None = None,
    shares: Sequence[Sequence[tuple[int, int]]] | None = None,
    leaves_out: bool = True,
) -> Outcome:
    """
    Simulate an access on a modelled machine.

    Parameters
    ----------
    case
        Sections of the ranks.
    machine
        Machine; see `outcore.model.machines.machine`.
    method
        Method in the table above.
    io_ranks, slot, shares
        As for `plan`.
    leaves_out
        Whether ranks that write independently omit elements that higher ranks write, as `write_all`
        does. The ranks of the papers did not.

    Returns
    -------
    Outcome

    Raises
    ------
    UsageError
        ``bad-hint``: the method does not exist.
    SectionError
        A section is outside its array, or sizes exceed 63 bits or 2^33 blocks of a server.

    Notes
    -----
    Memory O(ranks), plus one bit for each block of the files. Time: about one second for each million
    events; a round has at most a few million of them.

    Examples
    --------
    Two ranks read the halves of 8 KiB from one server that takes 1 ms for a request and 1 microsecond
    for each byte: the second waits for the first.

    >>> from outcore.model.machines.machine import machine
    >>> from outcore.model.simulate import Case, SimulatedArray, simulate
    >>> one = machine("delta", servers=1, request_ns=1_000_000, block_ns=0, seek_ns=0,
    ...               disk_rate=1_000_000, client_ns=0, call_ns=0)
    >>> sections = [(r, (slice(4096 * r, 4096 * r + 4096),)) for r in (0, 1)]
    >>> halves = SimulatedArray((8192,), 1, "C", sections)
    >>> simulate(Case(2, (halves,)), one, "direct").ns
    10192000
    """
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise UsageError(f"method={method!r} is not known; methods: {known}", code="bad-hint")
    if method == "auto":
        return _simulate_auto(case, machine, io_ranks, slot, shares)
    if method in ("direct", "sieve"):
        size = slot or _PAPER_SLOT
        found = _core.simulate_alone(
            _make_jobs(case, 1),
            machine,
            ranks=case.ranks,
            gap=0,
            most=size,
            extent=method == "sieve",
            leaves_out=leaves_out,
            write=case.write,
        )
        return make_outcome(method, found)
    gap = machine.figures(case.ranks).gap
    made = plan(case, method, io_ranks=io_ranks, slot=slot, shares=shares, gap=gap)
    return _simulate_two_phase(made, case, machine, method, slot)


def _simulate_two_phase(
    made: _core.Collective, case: Case, machine: Machine, method: str, slot: int | None
) -> Outcome:
    paper, disk = method in ("static", "dynamic"), machine.figures(case.ranks)
    found = _core.simulate_together(
        made,
        machine,
        ranks=case.ranks,
        gap=_PAPER_GAP if paper else disk.gap,
        most=_PAPER_SLOT if paper else AGREED.slot,
        sparse=0 if paper else _core.SPARSE,
        price=None if paper else disk[1:],
        slots=_PAPER_SLOTS if paper else _count_slots(made, slot),
        write=case.write,
    )
    return make_outcome(method, found)


def _count_slots(made: _core.Collective, slot: int | None) -> int:
    """Return the number of slots of a rank: three, unless memory is limited to two."""
    return made.slots(2 * made.slot_bytes if slot is None else slot)


def make_outcome(method: str, found: Mapping[str, Any], why: str = "") -> Outcome:
    """Convert a result of the core to an `Outcome`."""
    return Outcome(method=method, why=why, **found)


def _simulate_auto(
    case: Case,
    machine: Machine,
    io_ranks: int | None,
    slot: int | None,
    shares: Sequence[Sequence[tuple[int, int]]] | None,
) -> Outcome:
    """Choose the faster of the methods that `read_all` has if nothing is cached."""
    gap = machine.figures(case.ranks).gap
    own = _core.simulate_alone(
        _make_jobs(case, 1),
        machine,
        ranks=case.ranks,
        # Do not write back gaps that other ranks may be writing.
        gap=0 if case.write else gap,
        most=AGREED.slot,
        write=case.write,
    )
    made = plan(case, "requested", io_ranks=io_ranks, slot=slot, shares=shares, gap=gap)
    both = _simulate_two_phase(made, case, machine, "requested", slot)
    why = f"{format_time(own['ns'])} for each rank on its own, {format_time(both.ns)} together"
    direct = own["ns"] <= both.ns
    if case.ranks == 1:
        direct, why = True, "there is one rank"
    elif case.write and made.in_order:
        direct, why = False, explain_order(made)
    if direct:
        return make_outcome("auto: direct", own, why)
    return dataclasses.replace(both, method="auto: two-phase", why=why)
