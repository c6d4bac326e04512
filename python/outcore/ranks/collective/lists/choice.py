"""
Method for elements of lists, independent access or access through owners, chosen by cost.

Each rank reports the properties of its list once (`BinLayout.estimate_touched`, `count_jumps`), and
at each access the cached share of its elements and the parameters of its disk. The costs of the methods
follow from that, equally on all ranks, in the core (``crates/plan/src/points/choice.rs``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.lists.stored import find_unit
from outcore.base.report import format_bytes, format_count, format_time
from outcore.formats.layout import Chunked, Strided

__all__ = [
    "MANNERS",
    "BinLayout",
    "ListPass",
    "ListPrices",
    "ListReport",
    "Manner",
    "choose_list_method",
    "count_jumps",
]

#: Methods to move elements: independently, in two phases, or in overlapped phases.
Manner = Literal["auto", "direct", "collective", "pipelined"]
MANNERS = ("auto", "direct", "collective", "pipelined")
_PAGE = 4096
# Number of samples of a list, and number of indices in each.
_LOOKS, _LOOK = 64, 1 << 10


@dataclass(frozen=True)
class BinLayout:
    """
    The elements of an array, counted in C order along the indexed axes, divided into bins.

    A bin has `width` elements and `each` blocks, and begins at a border of chunks or shards. The array
    has `all` blocks of `block` bytes: pages of `page` elements, or chunks before encoding if `encoded`.
    """

    width: int
    number: int
    block: int
    each: int
    all: int
    encoded: bool
    page: int

    @staticmethod
    def of(points: IndexPoints, layout: Chunked | Strided, row: int, owners: int) -> BinLayout:
        """Divide the elements of an array into enough bins that each owner can have some."""
        elements = math.prod(points.shape[d] for d in points.axes)
        width, number = _core.bins_of(elements, find_unit(points, layout), owners)
        rest = [(d, words[1]) for d, words in enumerate(points.rest) if d not in points.axes]
        item = row // max(math.prod(count for _, count in rest), 1)
        if isinstance(layout, Chunked):
            chunks = layout.chunks
            block = math.prod(chunks) * item
            beside = math.prod(math.ceil(count / chunks[d]) for d, count in rest)
            in_block = math.prod(chunks[d] for d in points.axes)
            every = math.prod(math.ceil(n / c) for n, c in zip(points.shape, chunks, strict=True))
            each = max(width // max(in_block, 1), 1) * max(beside, 1)
            return BinLayout(width, number, block, each, max(every, 1), True, max(in_block, 1))
        nbytes = math.prod(points.shape) * item
        # Number of contiguous pieces of the file that one index refers to.
        pieces = math.prod(count for d, count in rest if d < points.axes[-1])
        page = max(_PAGE * elements // max(nbytes, 1), 1)
        pages = max(pieces, math.ceil(row / _PAGE), 1)
        each = max(math.ceil(width / page), 1) * pages
        return BinLayout(width, number, _PAGE, each, max(math.ceil(nbytes / _PAGE), 1), False, page)

    def estimate_touched(self, counts: NDArray[np.int64]) -> int:
        """Return the approximate number of blocks that elements touch, from their number in each bin."""
        return min(_core.touched_blocks(counts, self.each), self.all)

    def estimate_touched_between(self, low: int, high: int, number: int) -> int:
        """Return the approximate number of blocks that `number` elements within a range touch."""
        along = math.ceil((high - low) / self.page)
        # Number of separate blocks, or pieces of the file, per element.
        beside = max(self.each // math.ceil(self.width / self.page), 1)
        found = _core.touched_blocks(np.array([number], np.int64), along)
        return min(found * beside, self.all)


def count_jumps(flat: NDArray[np.int64], page: int) -> int:
    """
    Return the approximate number of elements of a list on another page than the previous one.

    Examples
    --------
    >>> import numpy as np
    >>> count_jumps(np.arange(4096), 512), count_jumps(np.array([0, 900, 1, 901]), 512)
    (7, 3)
    """
    if flat.size < 2:
        return 0
    if flat.size <= _LOOKS * _LOOK:
        return int(np.count_nonzero(np.diff(flat // page)))
    firsts = np.linspace(0, flat.size - _LOOK, _LOOKS).astype(np.int64)
    some = flat[firsts[:, None] + np.arange(_LOOK)] // page
    found = int(np.count_nonzero(np.diff(some, axis=1)))
    return found * flat.size // (_LOOKS * (_LOOK - 1))


@dataclass(frozen=True)
class ListPrices:
    """
    Costs of the methods, in nanoseconds of elapsed time; equal on all ranks.

    Parameters
    ----------
    direct
        Cost of independent access; None if it is not possible.
    collective, pipelined
        Cost of access through owners, one step after another, or overlapped.
    """

    direct: int | None
    collective: int
    pipelined: int

    def __str__(self) -> str:
        told = vars(self).items()
        return ", ".join(f"{name} {format_time(ns)}" for name, ns in told if ns is not None)


@dataclass(frozen=True)
class ListPass:
    """
    One pass over elements whose indices do not fit in memory.

    Parameters
    ----------
    owners
        Number of ranks that read or write a range of elements in it.
    elements, nbytes
        Number of indices of all ranks whose elements are sent, and bytes of these elements.
    blocks
        Approximate number of pages (or chunks) that the owners read or write: the largest number of
        requests.
    """

    owners: int
    elements: int
    nbytes: int
    blocks: int


@dataclass(frozen=True)
class ListReport:
    """
    Plan of `CollectiveSchedule.gather_all` (or `scatter_all`); `str` gives human-readable text.

    The report is equal on all ranks.

    Parameters
    ----------
    direction
        ``"read"`` or ``"write"``.
    ranks
        Number of ranks.
    method, why
        ``"direct"``, ``"collective"`` or ``"pipelined"``, and the reason in one sentence.
    prices
        Cost of each method. None if elements are moved in passes, or lists are on disk: then only the
        cached share decides whether each rank reads independently.
    wanted_bytes
        Bytes that all ranks request.
    blocks, block_bytes
        Approximate number of pages (or chunks) that they touch together, and bytes of one.
    cached
        Share of them in the page cache, in thousandths: the smallest of any rank.
    owners, rounds, groups, chunk
        Ranks that read and write for all, number of rounds, number of groups that take turns, and buffer
        size in bytes. For passes: number of passes, one group, and the bytes of elements that an owner
        has at one time.
    passes
        Passes, one after another, if lists do not fit in memory; otherwise empty.
    """

    direction: str
    ranks: int
    method: str
    why: str
    prices: ListPrices | None
    wanted_bytes: int
    blocks: int
    block_bytes: int
    cached: int
    owners: tuple[int, ...]
    rounds: int
    groups: int
    chunk: int
    passes: tuple[ListPass, ...] = ()

    def __str__(self) -> str:
        many = f"{self.ranks} ranks want" if self.ranks > 1 else "1 rank wants"
        turns = f", {self.groups} groups in turn" if self.groups > 1 else ""
        lines = [
            (
                self.direction,
                f"{many} {format_bytes(self.wanted_bytes)} of listed elements together",
            ),
            (
                "touches",
                f"about {format_count(self.blocks, 'block')} of {format_bytes(self.block_bytes)}",
            ),
            ("cached", f"{self.cached / 10:g} %"),
            ("method", f"{self.method}: {self.why}"),
        ]
        if self.prices is not None:
            lines.append(("prices", str(self.prices)))
        if self.passes:
            most = max(self.passes, key=lambda one: one.nbytes)
            lines.append(
                (
                    "passes",
                    f"{len(self.passes)}, of {format_bytes(most.nbytes)} of elements in about "
                    f"{format_count(most.blocks, 'block')} at most; "
                    f"{sum(one.blocks for one in self.passes)} in all",
                )
            )
        rounds = "passes" if self.passes else "rounds"
        lines.append(
            (
                "owners",
                f"{len(self.owners)}, {self.rounds} {rounds} of {format_bytes(self.chunk)} at "
                f"most{turns}",
            )
        )
        return "\n".join(f"{name:<8} {text}" for name, text in lines)


def choose_list_method(
    prices: ListPrices, cheapest: str, asked: str, *, write: bool
) -> tuple[str, str]:
    """Return the method, and the reason in one sentence."""
    if asked != "auto":
        return asked, "asked for"
    rest = (
        " (only owners know which value is last, so ranks do not write independently)"
        if write
        else ""
    )
    return cheapest, f"it costs least{rest}"
