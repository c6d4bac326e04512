"""Reports of `CollectiveArray.explain_all` and `explain_all`: the plan of a collective call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcore import _core
from outcore.base.report import format_bytes, format_count, format_number, format_time
from outcore.base.report.bars import Bars, DrawableReport
from outcore.ranks.collective.planning import MethodChoice

__all__ = ["ArrayReport", "CollectiveReport", "ManyReport", "OwnerReport", "make_report"]
# Maximum number of lines of one kind in the text, and of owners in the drawing.
_LINES, _DRAWN = 8, 32


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveReport(DrawableReport):
    """
    The plan of a collective call, equal on all ranks; `str` gives human-readable text.

    Parameters
    ----------
    direction
        ``"read"`` or ``"write"``.
    ranks
        Number of ranks.
    method, why
        Direct or two-phase, and the reason in one sentence.
    regions
        Bounding sections, as text, each with the number of accesses in it.
    domains
        Rank, number of tiles and box of its file domain, for each rank that owns anything.
    rounds
        Number of rounds of two-phase.
    groups
        Number of groups of owners, which take turns within a round.
    slots, slot_bytes
        Number of slots of each rank, and bytes per slot.
    wanted_bytes
        Bytes that all ranks request.
    domain_bytes
        Bytes in the file domains over all rounds: the largest number of bytes that is read.
    left_out_bytes
        Bytes of a write that ranks omit because a higher rank writes them.
    """

    direction: str
    ranks: int
    method: str
    why: str
    regions: tuple[tuple[str, int], ...]
    domains: tuple[tuple[int, int, str], ...]
    rounds: int
    groups: int
    slots: int
    slot_bytes: int
    wanted_bytes: int
    domain_bytes: int
    left_out_bytes: int = 0

    def __str__(self) -> str:
        s = "s" * (self.ranks == 1)
        lines = [
            (
                self.direction,
                f"{format_count(self.ranks, 'rank')} want{s} {format_bytes(self.wanted_bytes)} together",
            ),
            ("method", f"{self.method}: {self.why}"),
        ]
        if self.left_out_bytes:
            lines.append(("overlap", f"{format_bytes(self.left_out_bytes)} left to higher ranks"))
        for text, members in self.regions[:4]:
            lines.append(("region", f"{text}, {format_count(members, 'access')}"))
        if len(self.regions) > 4:
            lines.append(("", f"and {len(self.regions) - 4} more"))
        for rank, tiles, box in self.domains[:8]:
            lines.append(("domain", f"rank {rank}: {tiles} tile{'s' * (tiles != 1)} of {box}"))
        if len(self.domains) > 8:
            lines.append(("", f"and {len(self.domains) - 8} more"))
        slots = f"{self.slots} slots of {format_bytes(self.slot_bytes)} for each rank"
        if self.method == "two-phase":
            turns = f" of {self.groups} groups in turn" if self.groups > 1 else ""
            lines.append(
                (
                    "rounds",
                    f"{self.rounds}{turns}, {format_bytes(self.domain_bytes)} in all; {slots}",
                )
            )
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        wanted = ("all ranks want", self.wanted_bytes)
        if self.method != "two-phase":
            return (Bars("bytes", [wanted], format_bytes),)
        tiles = [(f"rank {rank}", number) for rank, number, _ in self.domains[:_DRAWN]]
        return (
            Bars("bytes", [wanted, ("owners hold", self.domain_bytes)], format_bytes),
            Bars("tiles of each owner", tiles, format_number),
            Bars("memory", [("slots of a rank", self.slots * self.slot_bytes)], format_bytes),
        )


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """
    One array of a collective call for many arrays.

    Parameters
    ----------
    path
        Path of the array.
    wanted_bytes, ranks
        Bytes requested, and number of ranks that request them.
    owners
        Ranks that read (write) the array in two-phase, each with its number of bytes; several if the
        array is divided.
    alone_method, alone_why, alone_rounds, alone_ns
        Method, reason, number of rounds and cost of a collective call for this array only. The cost is
        in nanoseconds, summed over the ranks.
    """

    path: str
    wanted_bytes: int
    ranks: int
    owners: tuple[tuple[int, int], ...]
    alone_method: str
    alone_why: str
    alone_rounds: int
    alone_ns: int


@dataclass(frozen=True, slots=True)
class OwnerReport:
    """
    Work of one rank for all ranks in two-phase.

    Parameters
    ----------
    rank
        Number of the rank.
    load
        Bytes that the rank reads or writes, of all arrays.
    arrays
        Number of these arrays.
    sends, gets
        Bytes of its file domains that other ranks request, and bytes of its own request in domains of
        other ranks.
    """

    rank: int
    load: int
    arrays: int
    sends: int
    gets: int


@dataclass(frozen=True, slots=True, repr=False)
class ManyReport(DrawableReport):
    """
    The plan of a collective call for many arrays, equal on all ranks; `str` gives human-readable text.

    Parameters
    ----------
    direction
        ``"read"`` or ``"write"``.
    ranks
        Number of ranks.
    method, why
        Direct or two-phase, for all arrays, and the reason in one sentence.
    arrays
        Each array: its owners, and the plan of a call for it alone.
    owners
        Each rank that owns anything: its load and its traffic.
    assignment, assignment_why
        Method that assigned arrays to ranks (`outcore.model.assign`), and the quantity that it
        minimised. Empty if nothing was assigned, because there is only one array, or only one rank
        that may own arrays.
    rounds, slots, slot_bytes
        Number of rounds of two-phase, number of slots of each rank, and bytes per slot.
    wanted_bytes
        Bytes that all ranks request.
    traffic
        Bytes sent between ranks in two-phase.
    ns
        Cost of the method, in nanoseconds summed over the ranks; only useful for comparisons.
    alone_rounds, alone_traffic, alone_ns
        Rounds, traffic and cost of separate collective calls, one for each array.
    """

    direction: str
    ranks: int
    method: str
    why: str
    arrays: tuple[ArrayReport, ...]
    owners: tuple[OwnerReport, ...]
    assignment: str
    assignment_why: str
    rounds: int
    slots: int
    slot_bytes: int
    wanted_bytes: int
    traffic: int
    ns: int
    alone_rounds: int
    alone_traffic: int
    alone_ns: int

    def __str__(self) -> str:
        s = "s" * (self.ranks == 1)
        wants = f"{format_count(self.ranks, 'rank')} want{s} {format_bytes(self.wanted_bytes)}"
        lines = [
            (self.direction, f"{format_count(len(self.arrays), 'array')}, {wants} together"),
            ("method", f"{self.method}: {self.why}"),
        ]
        two_phase = self.method == "two-phase"
        for array in self.arrays[:_LINES]:
            text = f"{array.path}: {format_bytes(array.wanted_bytes)} for "
            text += format_count(array.ranks, "rank")
            if two_phase and array.owners:
                text += f", owned by {_format_owners(array.owners)}"
            lines.append(("array", f"{text}; alone {array.alone_method} ({array.alone_why})"))
        if len(self.arrays) > _LINES:
            lines.append(("", f"and {len(self.arrays) - _LINES} more"))
        if two_phase:
            lines += self._list_assignment()
        ours, apart = format_time(self.ns), format_time(self.alone_ns)
        saved = f"price {ours} together, {apart} with a call for each array"
        lines.append(("instead", f"{saved}: {self._format_separate_calls()}"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)

    def _bars(self) -> Sequence[Bars]:
        prices = [("together", self.ns), ("a call for each", self.alone_ns)]
        traffic = [("wanted", self.wanted_bytes), ("between ranks", self.traffic)]
        loads = [(f"rank {owner.rank}", owner.load) for owner in self.owners[:_DRAWN]]
        return (
            Bars("price", prices, format_time),
            Bars("bytes", traffic, format_bytes),
            Bars("load of each owner", loads if self.method == "two-phase" else [], format_bytes),
        )

    def _list_assignment(self) -> list[tuple[str, str]]:
        if self.assignment:
            lines = [("assigned", f"{self.assignment}: {self.assignment_why}")]
        else:
            lines = [("assigned", "each array is divided among the ranks that may own it")]
        sends, gets = ("sends", "gets") if self.direction == "read" else ("gets", "sends")
        for owner in self.owners[:_LINES]:
            arrays = format_count(owner.arrays, "array")
            text = f"rank {owner.rank}: {format_bytes(owner.load)} of {arrays}, "
            text += f"{sends} {format_bytes(owner.sends)}, {gets} {format_bytes(owner.gets)}"
            lines.append(("load", text))
        if len(self.owners) > _LINES:
            most = max(owner.load for owner in self.owners)
            more = f"and {len(self.owners) - _LINES} more, none above {format_bytes(most)}"
            lines.append(("", more))
        lines.append(("traffic", f"{format_bytes(self.traffic)} between ranks"))
        slots = f"{self.slots} slots of {format_bytes(self.slot_bytes)} for each rank"
        return [*lines, ("rounds", f"{self.rounds}; {slots}")]

    def _format_separate_calls(self) -> str:
        methods = [array.alone_method for array in self.arrays]
        counts = ", ".join(f"{name} for {methods.count(name)}" for name in sorted(set(methods)))
        rounds = format_count(self.alone_rounds, "round")
        return f"{counts or 'nothing'}; {rounds}, {format_bytes(self.alone_traffic)} between ranks"


def _format_owners(owners: tuple[tuple[int, int], ...]) -> str:
    if len(owners) == 1:
        return f"rank {owners[0][0]}"
    told = ", ".join(f"{rank} ({format_bytes(nbytes)})" for rank, nbytes in owners[:4])
    return f"ranks {told}" + (f" and {len(owners) - 4} more" if len(owners) > 4 else "")


def make_report(
    size: int, plan: _core.Collective, groups: int, slots: int, choice: MethodChoice, *, write: bool
) -> CollectiveReport:
    """Return the report of a plan for `size` ranks with `slots` slots each."""
    domains, held = [], 0
    for rank in plan.owners():
        boxes = plan.parts(rank)
        text = " and ".join(_format_section(box) for _, box in boxes[:2])
        more = f" and {len(boxes) - 2} more" if len(boxes) > 2 else ""
        domains.append((rank, plan.tiles(rank), text + more))
    regions = []
    for number in range(plan.arrays):
        for box, members in plan.regions(number):
            regions.append((_format_section(box), members))
            elements = 1
            for _, count, _ in box:
                elements *= count
            held += elements * plan.item(number)
    return CollectiveReport(
        direction="write" if write else "read",
        ranks=size,
        method=choice.method,
        why=choice.why,
        regions=tuple(regions),
        domains=tuple(domains),
        rounds=plan.rounds,
        groups=groups,
        slots=slots,
        slot_bytes=plan.slot_bytes,
        wanted_bytes=plan.wanted_bytes,
        domain_bytes=held,
        left_out_bytes=plan.wanted_bytes - plan.given_bytes,
    )


def _format_section(ranges: list[tuple[int, int, int]]) -> str:
    """
    Format a section as text.

    Examples
    --------
    >>> _format_section([(0, 4, 2), (3, 1, 1)])
    '[0:7:2, 3]'
    """

    def one(start: int, count: int, step: int) -> str:
        if count == 1:
            return str(start)
        stop = start + (count - 1) * step + 1
        return f"{start}:{stop}" + (f":{step}" if step != 1 else "")

    return "[" + ", ".join(one(*axis) for axis in ranges) + "]"
