"""What a collective call will do: the answer of `explain_all`."""

from __future__ import annotations

from dataclasses import dataclass

from outcore import _core
from outcore.collective.choose import Choice
from outcore.report import human

__all__ = ["CollectiveReport", "tell"]


@dataclass(frozen=True, slots=True)
class CollectiveReport:
    """
    The plan of a collective, equal on all ranks; `str` is for people.

    Parameters
    ----------
    direction
        ``"read"`` or ``"write"``.
    ranks
        How many there are.
    method, why
        Direct or two-phase, and the reason in one sentence.
    regions
        Bounding sections, as text, and how many accesses lie in each.
    domains
        For each rank that owns anything: rank, tiles, and the box that holds its part.
    rounds
        Rounds of two-phase.
    slot_bytes
        Bytes of a slot; each rank has two.
    wanted_bytes
        Bytes that all ranks ask for.
    domain_bytes
        Bytes that the owners hold in all rounds: what is read at most.
    """

    direction: str
    ranks: int
    method: str
    why: str
    regions: tuple[tuple[str, int], ...]
    domains: tuple[tuple[int, int, str], ...]
    rounds: int
    slot_bytes: int
    wanted_bytes: int
    domain_bytes: int

    def __str__(self) -> str:
        lines = [
            (self.direction, f"{self.ranks} ranks want {human(self.wanted_bytes)} together"),
            ("method", f"{self.method}: {self.why}"),
        ]
        for text, members in self.regions[:4]:
            lines.append(("region", f"{text}, {members} accesses"))
        if len(self.regions) > 4:
            lines.append(("", f"and {len(self.regions) - 4} more"))
        for rank, tiles, box in self.domains[:8]:
            lines.append(("domain", f"rank {rank}: {tiles} tile{'s' * (tiles != 1)} of {box}"))
        if len(self.domains) > 8:
            lines.append(("", f"and {len(self.domains) - 8} more"))
        slots = f"two slots of {human(self.slot_bytes)} for each rank"
        if self.method == "two-phase":
            lines.append(("rounds", f"{self.rounds}, {human(self.domain_bytes)} in all; {slots}"))
        return "\n".join(f"{name:<8} {text}" for name, text in lines)


def tell(size: int, plan: _core.Collective, choice: Choice, *, write: bool) -> CollectiveReport:
    """Describe the plan of `size` ranks."""
    domains, held = [], 0
    for rank in plan.owners():
        boxes = plan.parts(rank)
        text = " and ".join(_text(box) for _, box in boxes[:2])
        more = f" and {len(boxes) - 2} more" if len(boxes) > 2 else ""
        domains.append((rank, plan.tiles(rank), text + more))
    regions = []
    for number in range(plan.arrays):
        for box, members in plan.regions(number):
            regions.append((_text(box), members))
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
        slot_bytes=plan.slot_bytes,
        wanted_bytes=plan.wanted_bytes,
        domain_bytes=held,
    )


def _text(ranges: list[tuple[int, int, int]]) -> str:
    """
    A section for people.

    Examples
    --------
    >>> _text([(0, 4, 2), (3, 1, 1)])
    '[0:7:2, 3]'
    """

    def one(start: int, count: int, step: int) -> str:
        if count == 1:
            return str(start)
        stop = start + (count - 1) * step + 1
        return f"{start}:{stop}" + (f":{step}" if step != 1 else "")

    return "[" + ", ".join(one(*axis) for axis in ranges) + "]"
