"""
Elements of lists larger than memory, moved by all ranks together: one range of elements after another.

Problem. The indices of a rank do not fit its memory, or those that an owner would receive do not fit the
owner's; values and results may be larger still. If each rank cut its list in its own order, an element
could be written by an early part of one rank and a late part of another, in an order that depends on
budgets.

Approach. Passes over ranges of elements, the same on all ranks. The counts of all ranks in each bin
determine the cuts (`outcore.arrays.indices.lists.stored`), so that the indices of a range fit the memory
of each rank that has them, and of the owner that receives them. In a pass each owner has one range.
Ranks collect the indices of these ranges in a scratch file once; owners store the received ones in
another. After that, only elements are sent.

    pass             0          1          2 (more indices than fit: two steps)    3
    owner 0       0..700    700..990    990..1000: ranks 0, 1                 990..1000: ranks 1, 2
    owner 1    1000..1800  1800..2000

Invariants. An element belongs to one range, and a range to one owner. If the indices of a range come in
several steps, they come in the order of ranks, and for each rank in the order of its list. The last
value and the bits of a sum therefore depend neither on budgets nor on the number of ranks or owners. A
chunk that is not cut by ranges is decoded once and encoded once. Each pass begins with an agreement, so
all ranks stop at the same one if a rank fails.

Reference: the rounds of No and Choudhary, "Techniques to provide run-time support for solving irregular
problems", section 3.1, with counts of the ranks instead of equal parts of the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.indices.lists.parts import (
    IndexedArray,
    ListMemory,
    LoadedRange,
    PointRows,
    get_values,
    stage_rows,
)
from outcore.arrays.indices.lists.stored import (
    Division,
    ElementBins,
    ListLimits,
    Range,
    cut_ranges,
    find_cuts,
    find_unit,
)
from outcore.arrays.indices.masks import INDEX, IndexWorkspace
from outcore.arrays.indices.prepared import PreparedIndices
from outcore.formats.scratch import ScratchFile
from outcore.ranks.agreement import Failures
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = ["ElementPasses", "OwnerTurns"]

List = NDArray[np.int64]

# Minimum length of the ranges in which unwritten elements are searched.
_STRETCH = 1 << 10
# Maximum bytes of the pieces in which stored lists are counted and divided. Larger pieces are not
# faster, and other ranks of the process need memory, too.
_SLAB = 64 << 20


class OwnerTurns:
    """Ranges of all owners, for one size of rows, one size of chunks, and the memory of all ranks."""

    def __init__(self, unit: int, limits: ListLimits, shares: list[list[Range]]) -> None:
        self.unit, self.limits = unit, limits
        #: All ranges, in ascending order.
        self.ranges = list(itertools.chain.from_iterable(shares))
        #: Range and step of each pass, for each owner.
        self.owners: list[list[tuple[int, int]]] = []
        first = 0
        for share in shares:
            numbers = enumerate(share, first)
            self.owners.append([(n, step) for n, one in numbers for step in range(len(one.steps))])
            first += len(share)

    def serves(self, unit: int, limits: ListLimits) -> bool:
        """Return whether the ranges match these chunks and fit this memory without wasting it."""
        return unit == self.unit and self.limits.within(limits)

    @property
    def passes(self) -> int:
        """Number of passes."""
        return max(map(len, self.owners), default=0)

    def iterate_pass(self, number: int) -> Iterator[tuple[Range, int, int]]:
        """Yield for each owner of a pass: range, step of the range, and number of indices."""
        for turn in self.owners:
            if number < len(turn):
                which, step = turn[number]
                one = self.ranges[which]
                yield one, step, int(np.diff(one.steps[step], axis=1).sum())


@dataclass
class _Plan:
    """The lists of all ranks, divided into the ranges of all owners."""

    turns: OwnerTurns
    division: Division
    #: Indices that this rank received as an owner, their start for each pass, and the number of passes
    #: received.
    file: ScratchFile
    places: list[int]
    #: Maximum number of indices that this rank has in a pass, or receives as an owner.
    most: int
    told: int = 0

    @property
    def passes(self) -> int:
        """Number of passes."""
        return self.turns.passes

    @property
    def has_steps(self) -> bool:
        """True if elements of a range stay in memory while its indices come in several steps."""
        return any(len(one.steps) > 1 for one in self.turns.ranges)


@dataclass(frozen=True)
class _Pass:
    """One pass of this rank: indices for each rank and, as an owner, from each; and its range."""

    to: NDArray[np.int64]
    of: NDArray[np.int64]
    own: Range | None = None
    step: int = 0
    place: int = 0

    @property
    def ends(self) -> bool:
        """True if this is the last step of the range."""
        return self.own is not None and self.step == len(self.own.steps) - 1


class ElementPasses:
    """
    The elements of all ranks, whose lists may not fit in memory.

    `owners` are the ranks that read and write, in ascending order. `held` are reservations for the list
    of this rank, as long as that is in memory.
    """

    def __init__(
        self,
        group: Transport,
        owners: list[int],
        prepared: PreparedIndices,
        held: list[_core.Reservation],
    ) -> None:
        self._group, self._owners, self._prepared, self._held = group, owners, prepared, held
        self._me = owners.index(group.rank) if group.rank in owners else None
        self._plan: _Plan | None = None
        self._turns: OwnerTurns | None = None
        #: Whether all calls use passes, so that lists in memory are not needed.
        self.always = False
        self._range: LoadedRange | None = None

    @property
    def passes(self) -> int:
        """Number of passes in the last call."""
        return self._plan.passes if self._plan is not None else 0

    def gather(self, ranks: Ranks, array: DiskArray, out: PointRows) -> None:
        """Read the elements of all ranks into `out` of each rank. Collective."""
        place, failures = IndexedArray(array, self._prepared.points), Failures()
        with self._start(ranks, place, stays=False) as plan:
            target = out
            with failures.catch():
                kept = self._prepared.parts.kept
                target = stage_rows(out, place, kept, max(plan.most, 1), plan.passes)
            for number in range(plan.passes):
                flat = positions = np.empty(0, np.int64)
                with ranks.stop_on_error():
                    now = self._get_pass(plan, number)
                with failures.catch():
                    flat, positions = self._read_indices(plan, number)
                told = self._receive_indices(ranks, plan, (number, now), flat, failures)
                rows = place.new(0)
                with failures.catch():
                    rows = self._read(place, now, told)
                ranks.agree(failures)
                with ranks.stop_on_error():
                    back = place.new(flat.size)
                    ranks.exchange(rows, now.of * place.row, back, now.to * place.row)
                with failures.catch():
                    target.put(positions, back)
            with failures.catch():
                if failures.first is None:
                    target.finish()
            ranks.agree(failures)

    def scatter(
        self,
        ranks: Ranks,
        array: DiskArray,
        values: PointRows,
        function: np.ufunc | None,
        fill: Any,
    ) -> None:
        """
        Write the values of all ranks, or combine the elements with them. Collective.

        Without `function`, the last value counts. Elements that no rank writes become `fill`, or keep
        their value if it is None.
        """
        place, failures = IndexedArray(array, self._prepared.points), Failures()
        with self._start(ranks, place, stays=fill is not None) as plan:
            take = None
            with failures.catch():
                most = max(plan.most, 1)
                take = get_values(values, place, plan.division, most, plan.passes)
            for number in range(plan.passes):
                flat, rows = np.empty(0, np.int64), place.new(0)
                with ranks.stop_on_error():
                    now = self._get_pass(plan, number)
                with failures.catch():
                    flat, positions = self._read_indices(plan, number)
                    if take is not None:
                        rows = self._pack_values(plan, number, place, take, positions)
                told = self._receive_indices(ranks, plan, (number, now), flat, failures)
                ranks.agree(failures)
                with ranks.stop_on_error():
                    data = place.new(told.size)
                    ranks.exchange(rows, now.to * place.row, data, now.of * place.row)
                with failures.catch():
                    self._write(place, plan, now, (told, data), function, fill)
            ranks.agree(failures)

    # Passes

    @contextmanager
    def _start(self, ranks: Ranks, place: IndexedArray, *, stays: bool) -> Iterator[_Plan]:
        """Yield the plan for an array, with its memory reserved."""
        failures = Failures()
        plan = self._get_plan(ranks, place)
        with ExitStack() as held:
            with failures.catch():
                widest = plan.turns.limits.widest if stays or plan.has_steps else 0
                nbytes = ListMemory(0, place.row).compute_bytes(plan.most, widest)
                held.enter_context(_core.Reservation("exchange", nbytes))
            ranks.agree(failures)
            try:
                yield plan
            except BaseException:
                plan.told = 0  # the files of the owners may be incomplete
                raise
            finally:
                self._range = None

    def _get_pass(self, plan: _Plan, number: int) -> _Pass:
        size, rank = self._group.size, self._group.rank
        to, of = np.zeros(size, np.int64), np.zeros(size, np.int64)
        own, step, place = None, 0, 0
        for owner, turn in enumerate(plan.turns.owners):
            if number >= len(turn):
                continue
            which, at = turn[number]
            begin, end = plan.turns.ranges[which].steps[at].T
            to[self._owners[owner]] = end[rank] - begin[rank]
            if owner == self._me:
                own, step, place = plan.turns.ranges[which], at, plan.places[number]
                of = end - begin
        return _Pass(to, of, own, step, place)

    def _iterate_parts(self, plan: _Plan, number: int) -> Iterator[tuple[int, int, int]]:
        """Yield range number, start and end of this rank's indices in a pass."""
        for turn in plan.turns.owners:
            if number < len(turn):
                which, at = turn[number]
                begin, end = plan.turns.ranges[which].steps[at, self._group.rank].tolist()
                if end > begin:
                    yield which, begin, end

    def _pack_values(
        self,
        plan: _Plan,
        number: int,
        place: IndexedArray,
        take: Callable[..., NDArray[Any]],
        positions: List,
    ) -> NDArray[Any]:
        """Return this rank's values in a pass, in the exact dtype of the array, for the owners."""
        # `numpy.concatenate` would give the machine's byte order, and structures without gaps.
        rows, at = place.new(positions.size), 0
        for which, begin, end in self._iterate_parts(plan, number):
            to = at + end - begin
            rows[at:to] = take(which, begin, end, positions[at:to])
            at = to
        return rows

    def _read_indices(self, plan: _Plan, number: int) -> tuple[List, List]:
        """Return the indices of this rank for the owners of a pass, and their positions in its list."""
        found = [plan.division.read(*one) for one in self._iterate_parts(plan, number)]
        if len(found) == 1:
            return found[0]
        none = np.empty(0, np.int64)
        flats, positions = zip(*found, strict=True) if found else ((none,), (none,))
        return np.concatenate(flats), np.concatenate(positions)

    def _receive_indices(
        self,
        ranks: Ranks,
        plan: _Plan,
        which: tuple[int, _Pass],
        flat: List,
        failures: Failures,
    ) -> List:
        """Return the indices for this rank as an owner, by messages or from its file."""
        number, now = which
        if number < plan.told:
            told = np.empty(0, np.int64)
            with failures.catch():
                told = np.empty(int(now.of.sum()), np.int64)
                plan.file.read(told, now.place)
            return told
        ranks.agree(failures)
        with ranks.stop_on_error():
            told = np.empty(int(now.of.sum()), np.int64)
            ranks.exchange(flat, now.to * INDEX, told, now.of * INDEX)
            plan.told = number + 1
        with failures.catch():
            plan.file.write(told, now.place)
        return told

    # Actions of owners

    def _read(self, place: IndexedArray, now: _Pass, told: List) -> NDArray[Any]:
        one = now.own
        if one is None:
            return place.new(0)
        if len(one.steps) == 1:
            return place.read(told)
        if now.step == 0:
            self._range = LoadedRange(place, one.low, one.high, reads=True)
        assert self._range is not None
        rows = self._range.rows(told)
        if now.ends:
            self._range = None
        return rows

    def _write(
        self,
        place: IndexedArray,
        plan: _Plan,
        now: _Pass,
        came: tuple[List, NDArray[Any]],
        function: np.ufunc | None,
        fill: Any,
    ) -> None:
        one, (told, data) = now.own, came
        if one is None:
            return
        if now.step == 0:
            # A range that is filled and fits in memory is written once, too.
            fits = fill is not None and one.high - one.low <= plan.turns.limits.widest
            if len(one.steps) > 1 or fits:
                self._range = LoadedRange(place, one.low, one.high, reads=function is not None)
        target = self._range if self._range is not None else place
        target.apply(told, data, function)
        if not now.ends:
            return
        stretch = max(plan.turns.limits.widest, _STRETCH)
        if self._range is not None:
            held, self._range = self._range, None
            if fill is not None:
                held.fill(fill)
            held.write()
        elif fill is not None:
            place.fill(one.low, one.high, np.sort(told), fill, stretch)
        if fill is not None:
            place.fill_beside(one.low, one.high, fill, stretch)

    # Plans

    def plan_turns(self, ranks: Ranks, array: DiskArray) -> OwnerTurns:
        """
        Return the ranges of elements of the owners in each pass. Collective.

        No element is moved. Indices are counted, and written to disk if they are not there yet; the
        next access uses both.
        """
        return self._find_turns(ranks, IndexedArray(array, self._prepared.points))[0]

    def _get_plan(self, ranks: Ranks, place: IndexedArray) -> _Plan:
        """Return the plan for an array: that of the last call if it fits all ranks, or a new one."""
        turns, slab = self._find_turns(ranks, place)
        plan = self._plan
        if plan is None or plan.turns is not turns:
            self._plan, failures = None, Failures()
            with ranks.raise_on_all():
                with failures.catch(), _core.Reservation("exchange", slab):
                    plan = self._divide(turns, slab)
                ranks.agree(failures)
            assert plan is not None
            self._plan = plan
        return plan

    def _find_turns(self, ranks: Ranks, place: IndexedArray) -> tuple[OwnerTurns, int]:
        """Return the ranges, cached or new, and the memory for counting and dividing."""
        failures, mine = Failures(), 0
        into = place.array.handle.core if place.array.writable else None
        with failures.catch():
            if self.always:
                self._prepared.spill()
                self._held.clear()
        with (
            failures.catch(),
            IndexWorkspace(place.array.handle.core, writes=False, into=into) as held,
        ):
            mine = min(held.room(place.array.budget), place.array.budget)
        ranks.agree(failures)
        with ranks.stop_on_error():
            rooms = ranks.allgather(np.array([mine], np.int64))[:, 0].tolist()
            each = [ListMemory(nbytes, place.row) for nbytes in rooms]
            widest = min(room.widest for room in each)
            limits = ListLimits.of([room.points for room in each], len(self._owners), widest)
            unit, turns = find_unit(self._prepared.points, place.array.info.layout), self._turns
            slab = min(each[ranks.rank].slab, _SLAB)
            serves = turns is not None and turns.serves(unit, limits)
        if turns is None or not serves:
            with ranks.raise_on_all():
                bins = max(min(room.bins for room in each) // ranks.size, 64)
                turns = self._turns = self._make_turns(ranks, unit, limits, bins, slab)
        return turns, slab

    def _make_turns(
        self, ranks: Ranks, unit: int, limits: ListLimits, bins: int, slab: int
    ) -> OwnerTurns:
        failures = Failures()
        self._turns = self._plan = None

        def count(found: ElementBins) -> NDArray[np.int64]:
            own = np.zeros(found.number, np.int64)
            with failures.catch(), _core.Reservation("exchange", slab):
                own = self._prepared.parts.kept.count(found, slab)
            ranks.agree(failures)
            return ranks.allgather(own)

        cuts = find_cuts(self._prepared.elements, unit, limits, bins, count)
        turns: OwnerTurns | None = None
        with failures.catch():
            turns = OwnerTurns(unit, limits, cut_ranges(cuts, limits, len(self._owners)))
        ranks.agree(failures)
        assert turns is not None
        return turns

    def _divide(self, turns: OwnerTurns, slab: int) -> _Plan:
        kept = self._prepared.parts.kept
        division = Division(kept, turns.ranges, self._group.rank, slab)
        own = turns.owners[self._me] if self._me is not None else []
        sizes = [int(np.diff(turns.ranges[n].steps[step], axis=1).sum()) * INDEX for n, step in own]
        file = kept.beside()
        begin = file.take(sum(sizes))
        places = list(itertools.accumulate(sizes, initial=begin))
        mine = np.zeros(turns.passes, np.int64)
        for turn in turns.owners:
            for number, (n, step) in enumerate(turn):
                begin, end = turns.ranges[n].steps[step, self._group.rank].tolist()
                mine[number] += end - begin
        most = max(int(mine.max(initial=0)), max(sizes, default=0) // INDEX)
        return _Plan(turns, division, file, places, most)
