"""
What accesses of this rank cost, in nanoseconds: integers, so that sums are equal on all ranks.

The core prices one access by the state of the page cache and the figures of its disk
(``crates/plan/src/price.rs``). Here are the sums that ranks tell each other: of their own sections, and
of their parts as owners.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from outcore import _core
from outcore.collective.holes import Ranges, elements_in, has_holes, is_dense, key_of
from outcore.collective.items import Item
from outcore.disk import DiskArray
from outcore.transport import Transport

__all__ = ["IMPOSSIBLE", "oversubscription", "own_price", "price", "share_of_price"]

#: What cannot be priced (it does not fit the budget, the file is gone). The others wait for a price, so
#: nothing is raised; the access itself says what is wrong.
IMPOSSIBLE = 1 << 50
# Of a tile that is written in pieces so many are priced. An owner writes them one after the other; a
# rank on its own has all its requests under way (measured: 3 to 7 times as long on a slow device).
_PIECES, _IN_TURN = 16, 3


def price(array: DiskArray, key: Any, *, write: bool = False, cold: bool = False) -> int:
    """Tell what an access costs as the page cache is now; with `cold`, as if nothing were in it."""
    return _priced(array, key, write=write, cold=cold)[0]


def _priced(array: DiskArray, key: Any, *, write: bool, cold: bool) -> tuple[int, int]:
    """Give the price, and the share that is cached, in thousandths."""
    return array._core.price(key, write, cold)


def own_price(items: Iterable[Item], *, write: bool, cold: bool = False) -> tuple[int, int]:
    """Tell what these accesses cost, and the least share that is cached, in thousandths."""
    total, cached = 0, 1000
    for item in items:
        if not item.nbytes:
            continue
        try:
            cost, share = _priced(item.array, item.key, write=write, cold=cold)
        except Exception:
            cost, share = IMPOSSIBLE, 0
        total, cached = total + cost, min(cached, share)
    return total, cached


def share_of_price(
    plan: _core.Collective,
    arrays: list[DiskArray | None],
    rank: int,
    *,
    write: bool,
    cold: bool = False,
) -> int:
    """Tell what a rank's part of the files costs as an owner."""
    total = 0
    for number, held, given in plan.needed(rank):
        array = arrays[number]
        if array is not None:
            try:
                total += price(array, key_of(held), write=write, cold=cold)
                if write and has_holes(held, given):
                    total += _holes(plan, rank, array, held, given, cold=cold)
            except Exception:
                total += IMPOSSIBLE
    return total


def _holes(
    plan: _core.Collective, rank: int, array: DiskArray, held: Ranges, given: int, *, cold: bool
) -> int:
    """Tell what holes add to the price of writing: they are read first, or are between pieces."""
    read = price(array, key_of(held), cold=cold)
    # Pieces are those of the first tile, which may be of another array.
    if plan.arrays > 1 or plan.encoded(0) or is_dense(array, held, given):
        return read
    pieces = [piece for _, _, piece in plan.table(rank, 0)[:_PIECES]]
    cost = sum(price(array, key_of(piece), write=True, cold=cold) for piece in pieces)
    apart = _IN_TURN * cost * given // max(sum(map(elements_in, pieces)), 1)
    return max(read, apart - price(array, key_of(held), write=True, cold=cold))


def oversubscription(group: Transport) -> int:
    """Tell how many ranks of this node share a processor, in thousandths: 1000 and more."""
    near = group.nodes.count(group.nodes[group.rank])
    return max(near * 1000 // _processors(), 1000)


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
