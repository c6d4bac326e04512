"""
State of the ranks about their lists of elements, and the movement of these elements.

Problem. A schedule of all ranks is made in several steps, each of which may fail on one rank. Data that
depends on the lists is computed only when an access needs it.
Approach. `ListedSchedule` is the base of `CollectiveSchedule`. It holds the list of this rank as element
numbers, the counts of all ranks, the requests sent to owners, and passes if something does not fit in
memory.

Invariants. All ranks decide in the same way whether a schedule uses passes, from the records of all.
Each step of an exchange begins with an agreement.

Reference: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
sections 3.1 and 3.2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.indices.keys import IndexPoints
from outcore.arrays.indices.lists.parts import CombinedPoints
from outcore.arrays.indices.masks import INDEX, IndexWorkspace
from outcore.arrays.indices.prepared import PreparedIndices, parse_points
from outcore.base.background import Background
from outcore.errors import BudgetError, StaysInProcess, UsageError
from outcore.formats.layout import Chunked
from outcore.ranks.agreement import Failures
from outcore.ranks.collective.call import compute_oversubscription, has_several_nodes
from outcore.ranks.collective.items import get_array_id
from outcore.ranks.collective.lists.choice import (
    MANNERS,
    BinLayout,
    ListPass,
    ListPrices,
    count_jumps,
)
from outcore.ranks.collective.lists.elements import view_bytes, view_rows
from outcore.ranks.collective.lists.owners import (
    WINDOWED,
    ListRequest,
    OwnerPart,
    OwnerState,
    send_to_owners,
)
from outcore.ranks.collective.lists.passes import ElementPasses
from outcore.ranks.collective.lists.sums import sum_over_ranks
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport

__all__ = ["CACHED", "DISK", "FAR", "NUMBER", "ListedSchedule"]

# Largest chunk chosen by default; larger ones do not make requests faster.
_CHUNK = 64 << 20
# Number of buffers of an owner and a rank at one time, in chunks: read ahead, sent, received, and
# reordered.
_BUFFERS = 4
# Numbers of the settings that ranks exchange when a schedule is made, and at each access.
NUMBER, _ROOM, _JUMPS, _BLOCKS, _ON_DISK, _FOLLOWING = range(6)
CACHED, _SHARING, DISK, FAR = 0, 1, 2, 6
# Bytes per index at its owner, while a round is prepared and for the lifetime of the schedule.
_MADE, _OWNED = 64, 40
# Bytes per index at the rank that has it: its number, and its target. The second number is the maximum
# that a schedule of this rank alone needs in addition.
_KEPT, _PLACED = 3 * INDEX, 16
# Bytes per bin: its count, the sum over the ranks, and received counts during the summation; later its
# part.
_BIN = 3 * INDEX


class ListedSchedule(StaysInProcess):
    """
    Elements that ranks selected by indices: base class of `CollectiveSchedule`. Collective.

    Parameters
    ----------
    array, indices, chunk, io_ranks, groups
        As for `CollectiveArray.schedule_all`.
    transport
        Transport of the ranks, which need not be those that opened `array`.
    once
        Whether there will be only one access, so that its cost includes sending the requests to owners;
        equal on all ranks.
    shares
        Whether the schedule may use the caller's list without a copy: neither the caller nor the access
        changes it.

    Raises
    ------
    CollectiveError
        On all ranks if any rank failed or has other arguments.
    """

    _elsewhere = "send the indices, and call schedule_all there"

    def __init__(
        self,
        array: outcore.DiskArray,
        indices: Any,
        *,
        transport: Transport,
        chunk: int | None = None,
        io_ranks: int | None = None,
        groups: int = 1,
        once: bool = False,
        shares: bool = False,
    ) -> None:
        self._array, self._group, self._shares = array, transport, shares
        if io_ranks is None:
            io_ranks = array.hints.io_ranks or self._group.size
        self._io_ranks, self._groups, self._once = io_ranks, groups, once
        self._chunk, self._asked = chunk, 0 if chunk is None else chunk
        self._held: list[_core.Reservation] = []
        self._combined: dict[int, CombinedPoints] = {}
        #: Ranks of the call that makes it.
        self._makers = Ranks.of_call(transport, "schedule_all")
        # Records of the ranks when they made it.
        self._records = self._makers.gather_numbers(
            lambda: self._prepare(indices),
            self._describe,
            meaning=lambda: (
                *(get_array_id(array), array.dtype),
                *(self._points.shape, self._points.axes, self._points.rest),
                *(self._io_ranks, self._groups, self._asked),
            ),
        )
        following = max(self._records.setting(_FOLLOWING))
        #: Number that distinguishes it from other schedules of the same array; equal on all ranks.
        self._serial = self._makers.record_number(following)
        self._owners = [
            owner * self._group.size // self._io_ranks for owner in range(self._io_ranks)
        ]
        total = sum(self._records.setting(NUMBER)) * self._row
        chunk = self._asked or max(min(_CHUNK, *self._records.setting(_ROOM)), self._row, 1)
        #: Number of rounds, and bytes of an owner's buffer.
        self.rounds, self.chunk = _core.rounds_of(total, self._io_ranks, chunk), chunk
        # Counts of all ranks in each bin, computed on first use; state of the owners after they have the
        # requests.
        self._sums: NDArray[np.int64] | None = None
        self._owned: OwnerState | None = None
        self._passes: ElementPasses | None = None
        #: Whether the lists of any rank, or the requests to any owner, do not fit in memory.
        self.on_disk = max(self._records.setting(_ON_DISK)) == 1
        if self.on_disk:
            self._get_passes()

    # Preparation

    def _prepare(self, indices: Any) -> list[int]:
        """Check the indices of this rank, and prepare its list."""
        group, array = self._group, self._array
        least = (self._io_ranks, self._groups, 1 if self._chunk is None else self._chunk)
        if not all(isinstance(n, int | np.integer) and n >= 1 for n in least) or (
            self._io_ranks > group.size
        ):
            raise UsageError(
                f"io_ranks={self._io_ranks}, groups={self._groups}, chunk={self._chunk} are out of "
                f"range; pass integers of at least 1, and io_ranks of at most {group.size}",
                code="bad-hint",
            )
        points, flat, bins = self._load_list(array, indices)
        stays = bins is not None
        # Whether `_prepared` has no list yet: the one in `_listed` is enough at first.
        self._lacks_list = stays
        if points is None or bins is None:
            self._prepared = PreparedIndices.prepare(array, indices)
            points = self._prepared.points
            bins = self._make_bins(array, points)
        self._points = points
        self._rest = [word for words in points.rest for word in words]
        self._row = _compute_row_bytes(array, points)
        jumps = blocks = 0
        own = np.zeros(0, np.int64)
        if stays:
            own = _core.count_bins(flat, bins.width, bins.number)
            jumps, blocks = count_jumps(flat, bins.page), bins.estimate_touched(own)
        self._listed = ListRequest(points, self._rest, flat, own, bins, self._row)
        room = _core.memory_state()[1] // (2 * _BUFFERS)
        return [points.number, room, jumps, blocks, int(not stays), self._makers.propose_number()]

    def _make_bins(self, array: outcore.DiskArray, points: IndexPoints) -> BinLayout:
        return BinLayout.of(
            points, array.info.layout, _compute_row_bytes(array, points), self._io_ranks
        )

    def _load_list(
        self, array: outcore.DiskArray, indices: Any
    ) -> tuple[IndexPoints | None, NDArray[np.int64], BinLayout | None]:
        """Return this rank's list as element numbers, and its bins; None if they do not fit memory."""
        nothing = np.empty(0, np.int64)
        try:
            with IndexWorkspace(array.handle.core, writes=False) as held:
                points, lists = parse_points(array, indices, held)
                # The caller's list is not kept, because the caller may change it, unless that is
                # excluded.
                points = replace(points, lists=())
                bins = self._make_bins(array, points)
                counts = bins.number * _BIN
                if points.number * (_KEPT + _PLACED) + counts > array.budget // 2:
                    return None, nothing, None
                nbytes = points.number * _KEPT + counts
                self._held.append(_core.Reservation("a collective schedule", nbytes))
                self._prepared = PreparedIndices(array, points, (), ready=False)
                flat = points.flat(lists, own=not self._shares)
        except BudgetError:
            self._held.clear()
            return None, nothing, None
        return points, flat, bins

    def _describe(self) -> str:
        points = self._points
        return (
            f"schedule_all of {self._array.path!r}, axes {points.axes} of shape {points.shape} with "
            f"ranges {points.rest}, io_ranks={self._io_ranks}, groups={self._groups}, "
            f"chunk={self._asked}"
        )

    def _count_in_bins(self) -> NDArray[np.int64]:
        """Return the number of elements of all ranks in each bin, computed once. Collective."""
        if self._sums is None:
            with self._makers.stop_on_error():
                self._sums = sum_over_ranks(self._group, self._listed.own)
        return self._sums

    def _exceeds_memory(self, sums: NDArray[np.int64]) -> bool:
        """Return whether the requests to any owner do not fit the smallest memory of any rank."""
        owners, rounds = self._io_ranks, self.rounds
        part = _core.cut_bins(sums, owners, rounds)
        each = np.bincount(part, weights=sums, minlength=owners * rounds).reshape(rounds, owners)
        most = each.sum(axis=0).max() * _OWNED + each.max() * (_MADE + 3 * self._row)
        most += sums.size * WINDOWED
        return bool(most > min(self._records.setting(_ROOM)) * _BUFFERS)

    def _restore_lists(self) -> PreparedIndices:
        """Return the prepared indices of this rank, including its list."""
        if self._lacks_list:
            flat, made = self._listed.flat, self._prepared.schedules
            # The list already counts in the budget; it is treated like a list of the caller.
            points = replace(self._points, mode="flat", mask=None, lists=(flat,))
            self._prepared = PreparedIndices(self._array, points, (flat,), ready=False)
            self._prepared.schedules = made
            self._lacks_list = False
        return self._prepared

    def _get_passes(self) -> ElementPasses:
        """Return the object that moves elements in passes, for data that does not fit in memory."""
        if self._passes is None:
            self._passes = ElementPasses(
                self._group, self._owners, self._restore_lists(), self._held
            )
        if self.on_disk and not self._passes.always:
            # The first pass writes the list to disk, and releases its memory.
            self._passes.always = True
            nothing = np.empty(0, np.int64)
            self._listed, self._sums = replace(self._listed, flat=nothing, own=nothing), None
        return self._passes

    def _tell_owners(self) -> OwnerState | None:
        """
        Cut the file domains, and send each owner the elements that this rank requests, once.

        None if the requests to any owner do not fit in memory: then elements are moved in passes.
        """
        if self.on_disk:
            return None
        if self._owned is None:
            sums, owners = self._count_in_bins(), self._owners
            with self._makers.stop_on_error():
                self.on_disk = self._exceeds_memory(sums)
            if self.on_disk:
                return None
            self._owned = send_to_owners(
                self._makers, self._listed, sums, owners, self.rounds, self._groups
            )
        return self._owned

    # Choice of the method

    def _make_settings(self, array: outcore.DiskArray) -> list[int]:
        """Return this rank's settings for an access, which determine the costs."""
        return [
            self._get_cached_share(array),
            compute_oversubscription(self._group),
            *array.handle.core.disk(),
        ]

    def _get_meaning(self, array: outcore.DiskArray, *more: object) -> tuple[object, ...]:
        """Return what must be equal on all ranks at an access."""
        return (self._serial, get_array_id(array), array.dtype, *more)

    def _estimate_prices(
        self, records: _core.Records, array: outcore.DiskArray, *, write: bool
    ) -> tuple[ListPrices, str, int]:
        """Return the costs, the cheapest method, and the number of blocks touched. Collective."""
        group, bins = self._group, self._listed.bins
        cached = records.setting(CACHED)
        made = [self._records.setting(k) for k in (NUMBER, _JUMPS, _BLOCKS)]
        wanted = list(zip(*made, cached, strict=True))
        blocks = max(made[2])
        if min(cached) < _core.CACHED:
            blocks = bins.estimate_touched(self._count_in_bins())
        row = self._get_row_bytes(array)
        stored = (row, bins.block * row // max(self._row, 1), blocks, bins.all, bins.encoded)
        steps = self.rounds * min(self._groups, self._io_ranks)
        untold = self._once and self._owned is None
        near = not has_several_nodes(group)
        disk = tuple(records.setting(DISK + k)[0] for k in range(4))
        direct, collective, pipelined, cheapest = _core.list_prices(
            wanted,
            stored,
            (self._io_ranks, steps, near, untold),
            oversubscription=max(records.setting(_SHARING)),
            disk=(disk[0], disk[1], disk[2], disk[3]),
            write=write,
        )
        return ListPrices(direct, collective, pipelined), cheapest, blocks

    def _choose_method(
        self, records: _core.Records, array: outcore.DiskArray, method: str, *, write: bool
    ) -> str:
        """Return the requested method, or the cheapest one."""
        if method != "auto":
            return method
        return self._estimate_prices(records, array, write=write)[1]

    def _is_read_independent(self, records: _core.Records, method: str) -> bool:
        """Return whether each rank reads independently if lists or results are on disk."""
        cached = min(records.setting(CACHED)) >= _core.CACHED
        return method == "direct" or (method == "auto" and cached)

    def _plan_passes(
        self, ranks: Ranks, array: outcore.DiskArray, *, write: bool
    ) -> tuple[tuple[ListPass, ...], int]:
        """Return the passes, and the most bytes of elements that an owner has in one. Collective."""
        with ranks.raise_on_all():
            passes = self._get_passes()
        turns = passes.plan_turns(ranks, array)
        row, bins = self._get_row_bytes(array), self._make_bins(array, self._points)
        found, most = [], 0
        for number in range(turns.passes):
            owners = elements = blocks = 0
            for one, step, indices in turns.iterate_pass(number):
                stays, last = len(one.steps) > 1, len(one.steps) - 1
                owners += indices > 0
                elements += indices
                most = max(most, indices * row)
                # If a range has several steps, all of it is read in the first, and all received values
                # are written in the last.
                if step == (last if write else 0):
                    whole = one.high - one.low if stays and not write else 0
                    counted = max(int(one.counts.sum()), whole)
                    blocks += bins.estimate_touched_between(one.low, one.high, counted)
            found.append(ListPass(owners, elements, elements * row, blocks))
        return tuple(found), most

    # Two phases

    def _read_independently(
        self, array: outcore.DiskArray, rows: NDArray[Any], records: _core.Records
    ) -> None:
        """
        Read this rank's elements independently.

        Cached elements are copied in the order of the list. Otherwise a schedule of this rank is made
        once.
        """
        axes = self._points.axes
        if records.setting(CACHED)[self._group.rank] >= _core.CACHED:
            array.handle.core.read_points(axes, (self._listed.flat,), "flat", self._rest, rows)
            return
        made = self._prepared.schedules
        schedule = next((one for one in made if one.serves(array.handle.core)), None)
        if schedule is None:
            schedule = _core.IndexSchedule(
                array.handle.core, axes, (self._listed.flat,), "flat", self._rest
            )
            made.append(schedule)
        schedule.read(array.handle.core, rows)

    def _gather(
        self,
        ranks: Ranks,
        array: outcore.DiskArray,
        owned: OwnerState,
        rows: NDArray[Any],
        failures: Failures,
        *,
        ahead: bool,
    ) -> None:
        exchange = owned.exchange
        row, end = self._get_row_bytes(array), owned.steps.number

        def read(part: OwnerPart, room: NDArray[np.uint8]) -> None:
            part.read(array, view_rows(room, rows, len(part.flat)))

        with (
            exchange.reserve(row, failures, ahead=ahead),
            Background("outcore-schedule") as background,
        ):

            def begin(step: int) -> NDArray[np.uint8]:
                room = np.empty(0, np.uint8)
                part = owned.get_part(step) if step < end else None
                with failures.catch():
                    if part is not None:
                        room = exchange.room(step, len(part.flat) * row)
                        background.start(read, part, room)
                return room

            following = begin(0)
            for step in range(end):
                data = following
                with failures.catch():
                    background.wait()
                # All owners have read, and no rank accesses the slots of the previous step any more.
                ranks.agree(failures)
                if ahead:
                    following = begin(step + 1)
                with failures.catch():
                    exchange.give(step, data, view_bytes(rows), row)
                if not ahead:
                    following = begin(step + 1)
            # Slots may be used by other calls after all ranks have taken their elements.
            ranks.agree(failures)

    def _scatter(
        self,
        ranks: Ranks,
        array: outcore.DiskArray,
        owned: OwnerState,
        rows: NDArray[Any],
        function: np.ufunc | None,
        failures: Failures,
        *,
        ahead: bool,
    ) -> None:
        exchange, row = owned.exchange, self._get_row_bytes(array)

        def write(part: OwnerPart, number: int, data: NDArray[Any]) -> None:
            if function is None:
                part.write(array, data)
            elif part.flat.size:
                self._get_combined(array, part, number).apply(array.handle.core, data, function)

        with (
            exchange.reserve(row, failures, ahead=ahead),
            Background("outcore-schedule") as background,
        ):
            for step in range(owned.steps.number):
                part, room = owned.get_part(step), np.empty(0, np.uint8)
                with failures.catch():
                    if part is not None:
                        room = exchange.room(step, len(part.flat) * row)
                # All owners have a slot, and have written its contents of two steps before.
                ranks.agree(failures)
                with failures.catch():
                    exchange.bring(step, room, view_bytes(rows), row)
                # An owner writes only after the values of all ranks have arrived.
                ranks.agree(failures)
                with failures.catch():
                    background.wait()
                    if part is not None:
                        background.start(write, part, step, view_rows(room, rows, len(part.flat)))
                        if not ahead:
                            background.wait()
            with failures.catch():
                background.wait()

    def _get_combined(
        self, array: outcore.DiskArray, part: OwnerPart, number: int
    ) -> CombinedPoints:
        combined = self._combined.get(number)
        if combined is None or not combined.serves(array.handle.core):
            axes = self._points.axes
            combined = CombinedPoints(array.handle.core, axes, part.flat, self._rest)
            self._combined[number] = combined
        return combined

    def _get_row_bytes(self, array: outcore.DiskArray) -> int:
        return self._row // self._array.dtype.itemsize * array.dtype.itemsize

    def _check_method(self, method: str, *, write: bool) -> None:
        if method not in MANNERS:
            raise UsageError(
                f"method={method!r} is not known; pass one of {', '.join(MANNERS)}", code="bad-hint"
            )
        if write and method == "direct":
            raise UsageError(
                "scatter_all cannot use method='direct': only the owner of an element knows which of "
                "several values is the last; pass 'collective' or 'pipelined'",
                code="bad-hint",
            )

    def _get_cached_share(self, array: outcore.DiskArray) -> int:
        """Return the cached share of the array, in thousandths; 0 for chunked arrays."""
        if isinstance(array.info.layout, Chunked):
            return 0
        key = (slice(None),) * array.ndim
        return array.handle.core.price(key)[1]


def _compute_row_bytes(array: outcore.DiskArray, points: IndexPoints) -> int:
    """Return the bytes of the elements that one index refers to."""
    return math.prod(points.core_shape[len(points.points) :]) * array.dtype.itemsize
