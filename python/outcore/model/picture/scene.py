"""
Numbers of a picture, counted from the plan before anything is drawn.

The panels know a collective call only as a `Scene`. They write these numbers as ``data-`` attributes, so
that tests (and scripts) can sum them again.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from outcore.base.report import format_bytes
from outcore.errors import UsageError
from outcore.model.picture.geometry import File
from outcore.ranks.collective.dry_run import DiskTransfers, DryRun, Ranges

__all__ = ["MOST_RANKS", "SHARED", "Scene", "choose_colour", "choose_ink", "format_count"]

MOST_RANKS = 64
# Colour of a section that several ranks request.
SHARED = "#777777"
# Requests of this many bytes keep a disk busy.
_LONG = 64 << 10
# Eight hues that colour-blind people can distinguish (Okabe and Ito), without black.
_HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C")


def choose_colour(rank: int) -> str:
    """Return the colour of a rank: eight hues, repeated darker and lighter."""
    red, green, blue = (int(_HUES[rank % 8][k : k + 2], 16) for k in (1, 3, 5))
    turn = rank // 8
    if turn == 0:
        return _HUES[rank]
    # 1: darker, 2: lighter, 3: darker still, ...
    part = 0.18 * ((turn + 1) // 2)
    to = 0 if turn % 2 else 255
    mixed = (round(c + (to - c) * part) for c in (red, green, blue))
    return "#" + "".join(f"{c:02X}" for c in mixed)


def choose_ink(rank: int) -> str:
    """Return the text colour for the background colour of a rank."""
    red, green, blue = (int(choose_colour(rank)[k : k + 2], 16) for k in (1, 3, 5))
    return "#000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#fff"


def format_count(number: int, what: str) -> str:
    """
    Format a number with its noun.

    Examples
    --------
    >>> format_count(1, "request"), format_count(16384, "request")
    ('1 request', '16 384 requests')
    """
    return f"{number:,} {what}".replace(",", " ") + ("" if number == 1 else "s")


class Scene:
    """
    Collective call, as numbers.

    Requests are counted for the state of the array: with ``Hints(cache="bypass")``, as if nothing were
    in the page cache. `what` describes the sections in the user's terms. Raises `UsageError` if there
    are more ranks than distinguishable colours, or nothing to draw.
    """

    def __init__(self, seen: DryRun, what: str) -> None:
        if seen.ranks > MOST_RANKS:
            raise UsageError(
                f"a picture shows at most {MOST_RANKS} ranks, not {seen.ranks}; omit --svg (the text "
                f"has no such limit), or use --ranks {MOST_RANKS}",
                code="bad-option",
            )
        if not seen.array.ndim or not seen.plan.wanted_bytes:
            raise UsageError(
                "no rank requests any element, so there is nothing to draw; use sections that are not "
                "empty, or omit --svg",
                code="bad-option",
            )
        self.seen, self.what = seen, what
        self.plan, self.report = seen.plan, seen.report
        self.ranks, self.write = seen.ranks, seen.write
        self.file = File(seen.array.handle.core.descriptor())
        self.shape = seen.array.shape
        self.sections = seen.sections
        self.verb = "write" if seen.write else "read"

    @functools.cached_property
    def owners(self) -> list[int]:
        """Ranks that own parts of the file."""
        return self.plan.owners()

    @functools.cached_property
    def rounds(self) -> int:
        """Number of rounds of two-phase."""
        return self.plan.rounds

    @functools.cached_property
    def alone(self) -> list[DiskTransfers]:
        """Cost of each rank's access if it is independent."""
        return [self.seen.count_alone(rank) for rank in range(self.ranks)]

    @functools.cached_property
    def alone_all(self) -> DiskTransfers:
        """Total cost of independent accesses of all ranks."""
        return sum(self.alone, DiskTransfers())

    @functools.cached_property
    def together(self) -> tuple[DiskTransfers, bool]:
        """Cost of the owners' accesses, and whether it is exact."""
        return self.seen.count_together()

    @functools.cached_property
    def matrix(self) -> NDArray[np.int64]:
        """``matrix[owner, rank]``: bytes of that rank that the owner reads or writes."""
        found = np.zeros((self.ranks, self.ranks), np.int64)
        for owner in self.owners:
            every = (0, self.plan.tiles(owner))
            found[owner] = self.plan.counts(owner, every, self.ranks)
        return found

    def count_given_bytes(self, owner: int, k: int) -> list[int]:
        """Return the bytes of each rank that an owner has in round `k`."""
        return self.plan.counts(owner, self.plan.batch(owner, k), self.ranks)

    @property
    def exchanged(self) -> int:
        """Bytes sent between different ranks."""
        return int(self.matrix.sum() - np.trace(self.matrix))

    @property
    def owned(self) -> list[tuple[int, Ranges, DiskTransfers]]:
        """Owner, section and cost of each tile, in the order of rounds."""
        found = []
        for owner in self.owners:
            for k in range(self.plan.tiles(owner)):
                wanted = self.plan.wanted(owner, k)
                if wanted is not None:
                    found.append((owner, wanted[0], self.seen.count_tile(owner, k)))
        return found

    @functools.cached_property
    def pieces(self) -> int:
        """Number of pieces in the file that all ranks request."""
        return sum(self.file.count(section) for section in self.sections)

    def verdict(self) -> str:
        """Describe in one sentence the chosen method and its savings."""
        alone, (both, exact) = self.alone_all, self.together
        own = f"{format_count(alone.requests, 'request')} for {format_bytes(alone.nbytes)}"
        joint = f"{format_count(both.requests, 'request')} for {format_bytes(both.nbytes)}"
        joint = joint if exact else f"about {joint}"
        if self.report.method == "two-phase":
            return f"Two-phase: {joint}, instead of {own} if each rank worked independently."
        way = self.report.method.capitalize()
        return f"{way}: {own}. Two phases would take {joint}, and an exchange."

    def reason(self) -> str:
        """Describe the reason for the choice."""
        each = format_bytes(self.report.wanted_bytes // max(self.pieces, 1))
        alone, (both, _) = self.alone_all, self.together
        if self.report.method != "two-phase":
            return f"The elements of a rank are in pieces of {each} in the file. {self._describe()}"
        verb, wanted = self.verb, self.report.wanted_bytes
        again = not self.write or self.plan.in_order
        if again and len({tuple(section) for section in self.sections}) == 1 < self.ranks:
            why = f"All ranks need the same elements, and each would {verb} them again"
        elif alone.chunks > both.chunks:
            why = f"Ranks need parts of the same chunks, and each would {verb} them again"
        elif alone.nbytes >= 1.5 * wanted:
            why = f"Pieces of {each} are so close that each rank would {verb} the gaps between them, too"
        elif again and self.plan.overlap() is not False:
            why = f"The sections of ranks overlap, and each rank would {verb} the overlap again"
        else:
            why = f"The ranks need pieces of {each}, scattered over the file"
        does = "collects and writes" if self.write else "reads and distributes"
        run = both.nbytes // max(both.requests, 1)
        if run >= _LONG and run * self.pieces >= 2 * wanted:
            return f"{why}. Together they are long runs, and one owner {does} each of them."
        return f"{why}. In two-phase, one owner {does} each part."

    def _describe(self) -> str:
        why = self.report.why
        return "" if why == "asked for" else f"{why[0].upper()}{why[1:]}."
