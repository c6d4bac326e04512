"""
Which tiles, how many at a time, and who gets which part of the budget.

Problem. The tiles, the reads and the write share one budget. Large tiles make long requests; what they
leave decides how fast an operation runs, and without a certain least (a chunk, what its codec holds) it
does not run at all.
Idea. Half of the budget is for tiles where something is decoded or encoded, and three quarters where
the operations only move bytes; all that can be had if nothing would fit then. The core knows best what
an operation needs: it is asked, and what it asks for more makes the tiles smaller. What is left over is
shared between reading and writing.

Invariants. Buffers and operations together stay within the budget, less a slack. Who resumes gets the
tiles of the run that was interrupted, whatever would be chosen today.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from outcore import tiling
from outcore.convert.target import Target
from outcore.disk import DiskArray, Mode
from outcore.errors import BudgetError
from outcore.hints import Hints
from outcore.journal import Journal
from outcore.tiling import Side, Tiling

__all__ = ["Shares", "arrange"]

# What an operation on uncompressed data is given at least.
_LITTLE = 256 * 2**10
# One part in so many is for what codecs hold besides, and for tables of chunks.
_SLACK = 8
# Of the budget, for tiles: operations that decode or encode hold chunks, the others little beyond what
# is on its way; there, longer runs are worth more.
_CODED_SHARE, _PLAIN_SHARE = Fraction(1, 2), Fraction(3, 4)
# Tiles that are read at the same time, from files that need no decoding.
_READS = 2


@dataclass(frozen=True, slots=True)
class Shares:
    """The tiles, and both arrays, each opened with its part of the budget."""

    tiles: Tiling
    #: Tiles that are read at the same time.
    reads: int
    reader: DiskArray
    writer: DiskArray

    @property
    def held(self) -> int:
        """Bytes of the buffers."""
        return _held(self.tiles, self.reader, self.writer, self.reads)


def arrange(target: Target, made: DiskArray, budget: int, journal: Journal | None) -> Shares:
    """Choose the tiles, or take those of `journal`, and share the budget."""
    return _Arranging(target, made, budget).shares(journal)


class _Arranging:
    """`made` is the new array, empty or unfinished."""

    def __init__(self, target: Target, made: DiskArray, budget: int) -> None:
        self.target, self.array, self.made, self.budget = target, target.array, made, budget
        #: Bytes without which reading, or writing, is refused.
        self.needs = [self._least(self.array, write=False), self._least(made, write=True)]

    def shares(self, journal: Journal | None) -> Shares:
        while True:
            tiles = self._same_tiles(journal) if journal else self._tiles()
            reads, spare = self._share(tiles)
            if spare < 0:
                needed = _held(tiles, self.array, self.made, 1) + sum(self.needs)
                raise self._too_small(_with_slack(needed))
            arrays = [
                DiskArray(
                    a.info,
                    "r" if a is self.array else "r+",
                    self._hints(a, n + spare),
                    a._options,
                )
                for a, n in zip((self.array, self.made), self.needs, strict=True)
            ]
            if not len(tiles):
                return Shares(tiles, reads, *arrays)
            for number, array in enumerate(arrays):
                try:
                    array.explain(tiles.key(0), write=number == 1)
                except BudgetError as error:
                    for other in arrays:
                        other.close()
                    if error.needed is None or error.needed <= self.needs[number]:
                        raise
                    self.needs[number] = error.needed
                    break
            else:
                return Shares(tiles, reads, *arrays)

    def _least(self, array: DiskArray, *, write: bool) -> int:
        """Bytes without which not even one chunk can be read or written."""
        chunk = tuple(slice(0, n) for n in array.chunks or (1,) * array.ndim)
        mode: Mode = "r+" if write else "r"
        with DiskArray(array.info, mode, self._hints(array, 1), array._options) as poor:
            try:
                poor.explain(chunk, write=write)
            except BudgetError as error:
                return max(error.needed or 0, _LITTLE)
        return _LITTLE

    def _hints(self, array: DiskArray, memory: int) -> Hints:
        """What holds for this side of the copy: the source keeps its wishes, such as ``missing``."""
        if array is self.array:
            return replace(array.hints, memory=memory)
        return self.target.hints(memory)

    def _share(self, tiles: Tiling) -> tuple[int, int]:
        """
        How many tiles are read at the same time, and what each operation has beyond its need.

        Reads that decode share the processor, not an idle disk: one is enough for them.
        """
        most = 1 if Side.of(self.array.info).whole else min(_READS, len(tiles))
        for reads in range(max(most, 1), 0, -1):
            held = _held(tiles, self.array, self.made, reads)
            spare = self._usable - held - reads * self.needs[0] - self.needs[1]
            if reads == 1 or (spare >= 0 and held <= self.budget // 2):
                break
        return reads, spare // (reads + 1)

    @property
    def _usable(self) -> int:
        return self.budget - self.budget // _SLACK

    def _tiles(self) -> Tiling:
        per_element = self.array.dtype.itemsize + self.made.dtype.itemsize
        most = max(self._usable - sum(self.needs), 0) // per_element
        sides = Side.of(self.array.info), Side.of(self.made.info)
        share = _CODED_SHARE if any(side.whole for side in sides) else _PLAIN_SHARE
        wanted = int(self.budget * share) // per_element
        tiles = tiling.choose(self.array.shape, *sides, min(most, wanted))
        if not isinstance(tiles, Tiling):
            tiles = tiling.choose(self.array.shape, *sides, most)
        if not isinstance(tiles, Tiling):
            raise self._too_small(_with_slack(sum(self.needs) + tiles * per_element))
        return tiles

    def _same_tiles(self, journal: Journal) -> Tiling:
        """The tiles of the run that was interrupted."""
        cut, shape = journal.cut, self.array.shape
        fits = isinstance(cut, list) and len(cut) == len(shape)
        if not fits or not all(
            type(n) is int and 1 <= n <= max(m, 1) for n, m in zip(cut, shape, strict=True)
        ):
            raise journal.bad()
        tiles = Tiling(shape, tuple(cut), self.made.order)
        if len(tiles) != journal.steps:
            raise journal.bad()
        return tiles

    def _too_small(self, needed: int) -> BudgetError:
        return BudgetError(
            f"converting {self.array.path!r} to {self.target.place.final!r} needs {needed} bytes "
            f"(two pieces that hold a whole chunk, and buffers), the budget is {self.budget}. Raise "
            "memory= (and outcore.memory), or choose smaller chunks",
            code="budget-too-small",
            path=self.array.path,
            needed=needed,
        )


def _held(tiles: Tiling, array: DiskArray, made: DiskArray, reads: int) -> int:
    """Bytes of the buffers: one for each read, and one for the write."""
    return math.prod(tiles.tile) * (reads * array.dtype.itemsize + made.dtype.itemsize)


def _with_slack(needed: int) -> int:
    return -(-needed * _SLACK // (_SLACK - 1)) + _SLACK
