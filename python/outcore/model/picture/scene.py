"""
What a picture shows, as numbers: counted from the plan, before anything is drawn.

`Scene` is all that the panels know of a collective; what they draw carries these numbers as
``data-`` attributes, so that tests (and scripts) can add them up again.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from outcore.base.report import human
from outcore.errors import UsageError
from outcore.model.picture.geometry import File
from outcore.ranks.collective.dry_run import Disk, DryRun, Ranges

__all__ = ["MOST_RANKS", "SHARED", "Scene", "colour", "ink", "plural"]

MOST_RANKS = 64
# What several ranks want alike.
SHARED = "#777777"
# Requests of so many bytes keep a disk busy.
_LONG = 64 << 10
# Eight hues that colour-blind people can tell apart (Okabe and Ito), without black.
_HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C")


def colour(rank: int) -> str:
    """Give the colour of a rank: eight hues in turn, each time darker or lighter."""
    red, green, blue = (int(_HUES[rank % 8][k : k + 2], 16) for k in (1, 3, 5))
    turn = rank // 8
    if turn == 0:
        return _HUES[rank]
    # 1: darker, 2: lighter, 3: darker still, ...
    part = 0.18 * ((turn + 1) // 2)
    to = 0 if turn % 2 else 255
    mixed = (round(c + (to - c) * part) for c in (red, green, blue))
    return "#" + "".join(f"{c:02X}" for c in mixed)


def ink(rank: int) -> str:
    """Give the colour in which to write on that of a rank."""
    red, green, blue = (int(colour(rank)[k : k + 2], 16) for k in (1, 3, 5))
    return "#000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#fff"


def plural(number: int, what: str) -> str:
    """
    Count things.

    Examples
    --------
    >>> plural(1, "request"), plural(16384, "request")
    ('1 request', '16 384 requests')
    """
    return f"{number:,} {what}".replace(",", " ") + ("" if number == 1 else "s")


class Scene:
    """
    A collective, as numbers.

    Parameters
    ----------
    seen
        The plan. Requests are counted as its array is open: with ``Hints(cache="bypass")``, as if
        nothing were in the page cache.
    what
        What the ranks ask for, in the words of the user.

    Raises
    ------
    UsageError
        For more ranks than can be told apart, or if there is nothing to draw.
    """

    def __init__(self, seen: DryRun, what: str) -> None:
        if seen.ranks > MOST_RANKS:
            raise UsageError(
                f"a picture shows each rank, up to {MOST_RANKS} of them, not {seen.ranks}: leave "
                f"--svg out (the text has no such limit), or draw --ranks {MOST_RANKS}",
                code="bad-option",
            )
        if not seen.array.ndim or not seen.plan.wanted_bytes:
            raise UsageError(
                "there is nothing to draw: no rank asks for any element. Give sections that are not "
                "empty, or leave --svg out",
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
        """Ranks that own anything."""
        return self.plan.owners()

    @functools.cached_property
    def rounds(self) -> int:
        """Rounds of two-phase."""
        return self.plan.rounds

    @functools.cached_property
    def alone(self) -> list[Disk]:
        """What each rank's access costs if it makes it on its own."""
        return [self.seen.alone(rank) for rank in range(self.ranks)]

    @functools.cached_property
    def alone_all(self) -> Disk:
        """The same, of all ranks."""
        return sum(self.alone, Disk())

    @functools.cached_property
    def together(self) -> tuple[Disk, bool]:
        """What the owners' accesses cost, and whether that is exact."""
        return self.seen.together()

    @functools.cached_property
    def matrix(self) -> NDArray[np.int64]:
        """``matrix[owner, rank]``: bytes of that rank that the owner reads or writes."""
        found = np.zeros((self.ranks, self.ranks), np.int64)
        for owner in self.owners:
            every = (0, self.plan.tiles(owner))
            found[owner] = self.plan.counts(owner, every, self.ranks)
        return found

    def given(self, owner: int, k: int) -> list[int]:
        """Tell how many bytes of each rank an owner has in round `k`."""
        return self.plan.counts(owner, self.plan.batch(owner, k), self.ranks)

    @property
    def exchanged(self) -> int:
        """Bytes that go from one rank to another."""
        return int(self.matrix.sum() - np.trace(self.matrix))

    @property
    def owned(self) -> list[tuple[int, Ranges, Disk]]:
        """Owner, section and cost of each tile, in the order of rounds."""
        found = []
        for owner in self.owners:
            for k in range(self.plan.tiles(owner)):
                wanted = self.plan.wanted(owner, k)
                if wanted is not None:
                    found.append((owner, wanted[0], self.seen.tile(owner, k)))
        return found

    @functools.cached_property
    def pieces(self) -> int:
        """Pieces in the file that all ranks ask for."""
        return sum(self.file.count(section) for section in self.sections)

    def verdict(self) -> str:
        """Say in one sentence which way is taken, and what it saves."""
        alone, (both, exact) = self.alone_all, self.together
        own = f"{plural(alone.requests, 'request')} for {human(alone.nbytes)}"
        joint = f"{plural(both.requests, 'request')} for {human(both.nbytes)}"
        joint = joint if exact else f"about {joint}"
        if self.report.method == "two-phase":
            return f"Two-phase: {joint}, instead of {own} if each rank worked on its own."
        way = self.report.method.capitalize()
        return f"{way}: {own}. Two phases would take {joint}, and an exchange."

    def reason(self) -> str:
        """Say what makes it so."""
        each = human(self.report.wanted_bytes // max(self.pieces, 1))
        alone, (both, _) = self.alone_all, self.together
        if self.report.method != "two-phase":
            return f"What a rank wants is in pieces of {each} in the file. {self._told()}"
        verb, wanted = self.verb, self.report.wanted_bytes
        again = not self.write or self.plan.in_order
        if again and len({tuple(section) for section in self.sections}) == 1 < self.ranks:
            why = f"All ranks want the same, and each would {verb} it again"
        elif alone.chunks > both.chunks:
            why = f"Ranks want parts of the same chunks, and each would {verb} them again"
        elif alone.nbytes >= 1.5 * wanted:
            why = f"Pieces of {each} lie so close that each rank would {verb} what is between, too"
        elif again and self.plan.overlap() is not False:
            why = f"What ranks want overlaps, and each would {verb} it again"
        else:
            why = f"The ranks want pieces of {each}, scattered over the file"
        does = "collects and writes" if self.write else "reads and hands out"
        run = both.nbytes // max(both.requests, 1)
        if run >= _LONG and run * self.pieces >= 2 * wanted:
            return f"{why}. Together they are long runs, each of which one owner {does}."
        return f"{why}. Here one owner {does} each part."

    def _told(self) -> str:
        why = self.report.why
        return "" if why == "asked for" else f"{why[0].upper()}{why[1:]}."
