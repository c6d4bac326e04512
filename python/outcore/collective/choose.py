"""
Which method: everybody on his own, or two-phase? Priced from what all ranks said.

| method      | what happens                                                             |
|-------------|--------------------------------------------------------------------------|
| `direct`    | each rank accesses its own section, as if alone                           |
| `sieve`     | the same, through windows (data sieving)                                  |
| `two-phase` | owners access what the ranks want together; the ranks exchange            |

Data in the page cache is cached for every rank of the node, so nothing is won by having somebody else
copy it: direct. Writes into one file exclude each other in the kernel, so few large ones are better than
many small, also there. Cold data comes from a disk that all share: what counts is the sum over all
ranks, each byte as often as it is read. Encoded blocks are decoded by each rank that wants a part of
them, or once.

Small sections are read before a plan of them is made: each rank its own, all at once.

Where memory is too short for slots that hold a block it is direct, whatever that costs.

Where sections of a write overlap each rank leaves out what a higher one gives, so all methods will do.
Only where the plan cannot say what is left (`in_order`) it has to be two-phase: owners put things in
their places in the order of the ranks.

Invariants. Only integers that all ranks have from all ranks are compared, so all choose alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from outcore import _core
from outcore.collective.communication_costs import CommunicationCosts
from outcore.collective.holes import Ranges, elements_in, has_holes, is_dense, key_of
from outcore.collective.items import Item
from outcore.collective.price import counts, of_counts, price
from outcore.disk import DiskArray
from outcore.report import human_time

__all__ = [
    "CACHED",
    "IMPOSSIBLE",
    "IN_ORDER",
    "METHODS",
    "TOO_SMALL",
    "UNDECIDED",
    "Choice",
    "Exchange",
    "Prices",
    "choose",
    "in_order",
    "own_price",
    "share_of_price",
    "sooner",
]

METHODS = ("auto", "direct", "sieve", "two-phase")
# From this share of cached pages on, in thousandths, data counts as cached.
CACHED = 950
# What each of many arrays costs a rank's processor: until it is planned, which ends with a choice, and
# then in two-phase, beyond reading a section of its own.
_PLAN_NS, _ARRAY_NS = 65_000, 50_000
# What any two-phase costs it besides: slots, threads that fill them, rounds as such.
_ROUNDS_NS = 300_000
# Of a tile that is written in pieces so many are priced. An owner writes them one after the other; a
# rank on its own has all its requests under way (measured: 3 to 7 times as long on a slow device).
_PIECES, _IN_TURN = 16, 3
# What cannot be priced (it does not fit the budget, the file is gone). The others wait for a price, so
# nothing is raised here; the access itself will say what is wrong.
IMPOSSIBLE = 1 << 50
IN_ORDER = (
    "ranks write the same elements, too entangled to be cut: the highest rank has to come last"
)
UNDECIDED = (
    "there are too many pairs of sections to find out whether ranks write the same elements: it is "
    "written in the order of the ranks, and where they do the highest one wins"
)
TOO_SMALL = "to plan so little takes longer than to read it"


class Priced(Protocol):
    """What an access costs, in nanoseconds."""

    def __call__(self, array: DiskArray, key: Any, *, write: bool) -> int: ...


@dataclass(frozen=True)
class Choice:
    """A method, and the reason in one sentence."""

    method: str
    why: str


@dataclass(frozen=True)
class Exchange:
    """
    Who exchanges, and what it takes.

    Parameters
    ----------
    nodes
        The node of each rank.
    costs
        What all ranks agreed on.
    """

    nodes: tuple[int, ...]
    costs: CommunicationCosts

    def between_nodes(self, plan: _core.Collective) -> int:
        """
        Tell how many of the wanted bytes go from node to node, as if all owners gave alike.

        Counting them would take every rank a walk over all rounds.
        """
        owners = plan.owners()
        if not owners or len(set(self.nodes)) < 2:
            return 0
        of_node, ranks_of = Counter(self.nodes[owner] for owner in owners), Counter(self.nodes)
        near = sum(number * ranks_of[node] for node, number in of_node.items())
        return plan.given_bytes - plan.given_bytes * near // (len(owners) * len(self.nodes))


def own_price(items: list[Item], *, write: bool) -> tuple[int, int]:
    """Tell what this rank's own accesses cost, and the least share that is cached, in thousandths."""
    total, cached = 0, 1000
    for item in items:
        if not item.nbytes:
            continue
        try:
            found = counts(item.array, item.key, write=write)
            total += of_counts(found, item.array, write=write)
            cached = min(cached, found.cached)
        except Exception:
            cached = 0
            total += IMPOSSIBLE
    return total, cached


@dataclass(frozen=True)
class Prices:
    """
    What the ways cost, in nanoseconds; equal on all ranks.

    Parameters
    ----------
    alone
        What `own_price` said on each rank.
    parts
        What all owners need for their parts, summed over the ranks.
    exchange
        The ranks, and what it takes them to synchronise, copy and send.
    arrays
        Of how many arrays a rank has sections, at most.
    """

    alone: list[tuple[int, int]]
    parts: int
    exchange: Exchange
    arrays: int = 1

    def direct(self) -> int:
        """Tell what it costs if each rank goes on its own."""
        return sum(cost for cost, _ in self.alone)

    def cached(self) -> int:
        """Tell the least share that is cached on any rank, in thousandths."""
        return min(share for _, share in self.alone)

    def rounds(self, plan: _core.Collective, *, write: bool) -> int:
        """Tell what two-phase costs."""
        costs, second = self.exchange.costs, 1_000_000_000
        far = self.exchange.between_nodes(plan)
        near = plan.given_bytes - far
        copied, sent = near * second // costs.copy, far * second // costs.messages
        total = self.parts + copied + sent + plan.rounds * (1 + write) * costs.barrier_ns
        if not write and not _encoded(plan):
            # The disk is one for all, processors are several; and while a round is exchanged the disk
            # reads the next ones. What is copied out of the page cache, or decoded, takes the processors
            # that exchange: there, all that processors do is summed.
            beside = copied * costs.oversubscription // (1000 * len(self.alone))
            hidden = min(self.parts, beside + sent) * (plan.rounds - 1) // max(plan.rounds, 1)
            total -= (copied - beside + hidden) * (1000 - self.cached()) // 1000
        return total + (_ROUNDS_NS + self.arrays * _ARRAY_NS) * costs.oversubscription // 1000


def _encoded(plan: _core.Collective) -> bool:
    return any(plan.encoded(number) for number in range(plan.arrays))


def in_order(plan: _core.Collective) -> str:
    """Tell why ranks write in their order."""
    return UNDECIDED if plan.overlap() is None else IN_ORDER


def sooner(own: int, ranks: int, arrays: int, oversubscription: int) -> bool:
    """
    Tell whether a rank has read its sections sooner than a plan of them is made and exchanged by.

    Parameters
    ----------
    own
        What reading them costs this rank. Two-phase saves at most as much for each other rank: where
        all want the same.
    arrays
        Of how many arrays they are.
    oversubscription
        Of the `CommunicationCosts`.
    """
    planned = _ROUNDS_NS + arrays * _ARRAY_NS + max(arrays - 1, 0) * _PLAN_NS
    return (ranks - 1) * own <= planned * oversubscription // 1000


def choose(plan: _core.Collective, prices: Prices, *, write: bool, lacks: str = "") -> Choice:
    """Choose; equal on all ranks. `lacks`: why there is no memory for two-phase."""
    if len(prices.alone) == 1:
        return Choice("direct", "there is one rank")
    if lacks:
        return Choice("direct", lacks)
    if write and plan.in_order:
        return Choice("two-phase", in_order(plan))
    encoded = _encoded(plan)
    alone = prices.direct()
    if not encoded and not write and prices.cached() >= CACHED:
        return Choice("direct", "what the ranks want is in the page cache")
    both = prices.rounds(plan, write=write)
    if write and encoded and plan.shared_blocks:
        return Choice("two-phase", "several ranks change the same encoded blocks")
    if not write and sooner(
        max(cost for cost, _ in prices.alone),
        len(prices.alone),
        prices.arrays,
        prices.exchange.costs.oversubscription,
    ):
        return Choice("direct", TOO_SMALL)
    told = f"{human_time(alone)} for each rank on its own, {human_time(both)} together"
    if both < alone:
        return Choice("two-phase", told)
    return Choice("direct", told)


def share_of_price(
    plan: _core.Collective,
    arrays: list[DiskArray | None],
    rank: int,
    *,
    write: bool,
    priced: Priced = price,
) -> int:
    """Tell what this rank's part of the files costs as an owner; `priced`: what an access costs."""
    total = 0
    for number, held, given in plan.needed(rank):
        array = arrays[number]
        if array is not None:
            try:
                total += priced(array, key_of(held), write=write)
                if write and has_holes(held, given):
                    total += _holes(plan, rank, array, held, given, priced)
            except Exception:
                total += IMPOSSIBLE
    return total


def _holes(
    plan: _core.Collective, rank: int, array: DiskArray, held: Ranges, given: int, priced: Priced
) -> int:
    """Tell what holes add to the price of writing: they are read first, or are between pieces."""
    read = priced(array, key_of(held), write=False)
    # Pieces are those of the first tile, which may be of another array.
    if plan.arrays > 1 or plan.encoded(0) or is_dense(array, held, given):
        return read
    pieces = [piece for _, _, piece in plan.table(rank, 0)[:_PIECES]]
    cost = sum(priced(array, key_of(piece), write=True) for piece in pieces)
    apart = _IN_TURN * cost * given // max(sum(map(elements_in, pieces)), 1)
    return max(read, apart - priced(array, key_of(held), write=True))
