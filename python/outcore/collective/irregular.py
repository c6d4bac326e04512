"""
Collective access by indices: schedules of all ranks together.

Problem. The elements that a rank has lie anywhere in the global array; each rank alone would read or
write single elements all over the file, and of two ranks that write one element nobody knows who is
last.

Idea. Two phases, as for sections, but what follows from the indices is found once and kept. The
elements of the array, counted in C order, are cut into *bins*; a count of the indices in each bin,
added over the ranks, cuts the bins into *file domains* with about equally many bytes asked for, one for
each I/O rank (owner), and each domain into rounds of one chunk (the buffer of an owner). Each rank
orders its indices by round and owner, sends them to the owners, and keeps the order: later only
elements travel, those for one owner in one message. An owner keeps an `IndexSchedule` for each round,
so it reads or writes its domain in the order of the file.

    step            0        1        2        3
    owner reads     0        1        2        3          (pipelined: in a thread, one step ahead)
    ranks exchange           0        1        2  ...

With ``groups`` the owners take turns: in a step those of one group read or write, while the elements of
the group before travel. Without ``pipelined`` each step ends before the next one begins.

Where the indices of any rank do not fit its memory, or those of an owner, or values or results are on
disk, ranks go through the elements in passes (`outcore.collective.passes`).

Invariants. What owners get from the ranks they take in the order of ranks, and of each rank in the
order of its indices: the last value, and each floating-point sum, is that of one process with the
ranks' lists one after another, whatever the number of owners, rounds and groups. Each step begins with
an agreement, so if a rank fails all stop at the same step.

Source: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
sections 3.1 (collective) and 3.2 (pipelined).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore import _core
from outcore.collective.agreement import Failures, Unsure, fail_together, together
from outcore.collective.passes import Passes
from outcore.errors import BudgetError, UsageError
from outcore.formats.layout import Chunked, ShardSource, share_bytes
from outcore.index_parts import check_disk_out, on_disk, rows_of
from outcore.index_schedule import (
    Combine,
    CombinedPoints,
    IndexSchedule,
    function_of,
)
from outcore.masks import INDEX
from outcore.points import check_out
from outcore.transport import DeferredInterrupt

__all__ = ["CollectiveSchedule", "Manner"]

#: How elements are moved: by each rank alone, in two phases, or these overlapped.
Manner = Literal["auto", "direct", "collective", "pipelined"]
_MANNERS = ("auto", "direct", "collective", "pipelined")
# The largest chunk that is chosen: more makes no request faster.
_CHUNK = 64 << 20
# Buffers of an owner and a rank at once, in chunks: read ahead, sent, received, and put in order.
_BUFFERS = 4
# Elements that nobody writes are looked for in stretches of so many.
_STRETCH = 1 << 22
# What ranks tell each other when a schedule is made.
_MEANING, _CHUNK_ASKED, _NUMBER, _ROOM, _ON_DISK = range(5)
#  Bytes that an index takes of its owner, while a round is made ready and for as long as the schedule
#  lives.
_MADE, _OWNED = 64, 40


class _Part(NamedTuple):
    """What an owner has of one round."""

    #: Elements of each rank.
    counts: NDArray[np.int64]
    #: Their numbers, rank after rank.
    flat: NDArray[np.int64]
    schedule: _core.IndexSchedule | None


@dataclass(frozen=True)
class _Step:
    """One exchange: a round of the owners of one group."""

    round: int
    owners: range
    #: Which of the rank's elements travel, in the order in which they are sent.
    mine: slice


class CollectiveSchedule:
    """
    Elements that ranks chose by indices, made ready to be read and written together many times.

    Made by `CollectiveArray.schedule_all`. Each rank has its own indices, in any order; the order in
    the file is that of the array, so what was written may be read by any other number of ranks.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> outcore.create("field.npy", data=np.zeros(6)).close()
    >>> def work(comm):
    ...     mine = np.array([[4, 0, 2], [5, 2, 1]][comm.rank])
    ...     with outcore.open("field.npy", "r+", comm=comm) as a:
    ...         schedule = a.schedule_all(mine)
    ...         schedule.scatter_all(mine * 1.0, combine="add")
    ...         return schedule.gather_all().tolist()
    >>> SimWorld(2).run(work)
    [[4.0, 0.0, 4.0], [5.0, 4.0, 1.0]]
    """

    def __init__(
        self,
        array: outcore.CollectiveArray,
        indices: Any,
        *,
        chunk: int | None = None,
        io_ranks: int | None = None,
        groups: int = 1,
    ) -> None:
        self._array, self._group = array, array.transport
        self._io_ranks = io_ranks or array.hints.io_ranks or self._group.size
        self._groups, self._asked = groups, chunk or 0
        self._held: list[_core.Reservation] = []
        self._combined: dict[int, CombinedPoints] = {}
        # What the ranks said when they made it; until the owners have been told what they own.
        self._records: _core.Records | None = together(
            self._group, "schedule_all", lambda: self._prepare(indices), self._told
        )
        self._order = np.zeros(0, np.int64)
        self._parts: list[_Part] = []
        owners = [owner * self._group.size // self._io_ranks for owner in range(self._io_ranks)]
        self._passes = Passes(self._group, owners, self._alone)
        #: Whether the lists of any rank, or what an owner would have of them, do not fit memory.
        self.on_disk = max(self._records.setting(_ON_DISK)) == 1

    # Made once

    def _prepare(self, indices: Any) -> list[int]:
        """What may fail on this rank alone: looks at its indices."""
        group, array = self._group, self._array
        if not 1 <= self._io_ranks <= group.size or self._groups < 1 or self._asked < 0:
            raise UsageError(
                f"io_ranks={self._io_ranks}, groups={self._groups}, chunk={self._asked}: there are 1 to "
                f"{group.size} I/O ranks, at least one group, and chunks of some bytes",
                code="bad-hint",
            )
        self._alone = IndexSchedule._made_for(array, indices)
        self._points = points = self._alone._points
        self._flat = np.empty(0, np.int64)
        kept = points.number * 3 * INDEX
        on_disk = not self._alone.in_memory or self._alone.nbytes + kept > array.budget // 2
        if not on_disk:
            try:
                self._keep(kept)
                self._flat = self._alone._flat()
            except BudgetError:
                on_disk = True
        self._rest = [word for words in points.rest for word in words]
        self._row = math.prod(points.core_shape[len(points.points) :]) * array.dtype.itemsize
        meaning = (points.shape, array.dtype.itemsize, points.axes, points.rest)
        said = repr((meaning, self._io_ranks, self._groups)).encode()
        digest = int.from_bytes(
            hashlib.blake2b(said, digest_size=8).digest(), "little", signed=True
        )
        room = _core.memory_state()[1] // (2 * _BUFFERS)
        return [digest, self._asked, points.number, room, int(on_disk)]

    def _told(self) -> str:
        points = self._points
        return (
            f"schedule_all of axes {points.axes} of shape {points.shape} with ranges {points.rest}, "
            f"io_ranks={self._io_ranks}, groups={self._groups}, chunk={self._asked}"
        )

    def _keep(self, nbytes: int) -> None:
        self._held.append(_core.Reservation("a collective schedule", nbytes))

    def _tell_owners(self, array: outcore.DiskArray) -> None:
        """Cut the file domains, and tell each owner which of its elements this rank has: once."""
        if self._records is not None and not self.on_disk:
            self._exchange_indices(self._records, array)
        if self._records is not None:
            self._records = None
            if self.on_disk:
                # What is in memory is not needed for passes.
                self._passes.always = True
                self._flat = np.empty(0, np.int64)
                self._held.clear()

    def _exchange_indices(self, records: _core.Records, array: outcore.DiskArray) -> None:
        group, flat = self._group, self._flat
        total = sum(records.setting(_NUMBER)) * self._row
        chunk = self._asked or max(min(_CHUNK, *records.setting(_ROOM)), self._row, 1)
        owners = self._io_ranks
        rounds = _core.rounds_of(total, owners, chunk)
        self._owners = [owner * group.size // owners for owner in range(owners)]
        #: Rounds, and bytes of an owner's buffer.
        self.rounds, self.chunk = rounds, chunk
        failures = Failures()
        order = counts = np.zeros(0, np.int64)
        with failures.caught():
            width, bins = self._bins(array)
            own = _core.count_bins(flat, width, bins)
        with Unsure(group, "schedule_all"):
            self._end(failures, "schedule_all")
            sums = group.allgather(own).sum(axis=0)
            self.on_disk = self._too_much(sums, records)
        if self.on_disk:
            return
        with failures.caught():
            part = _core.cut_bins(sums, owners, rounds)
            order, counts = _core.divide_elements(flat, width, part, owners * rounds)
            flat = flat[order]
        self._part, self._width = part, width
        self._order, self._counts = order, counts
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        me = self._owners.index(group.rank) if group.rank in self._owners else None
        self._me = me
        with Unsure(group, "schedule_all"):
            theirs = self._exchange_counts(failures)
        for number in range(rounds):
            step = self._step(number, range(owners))
            with Unsure(group, "schedule_all"):
                self._end(failures, "schedule_all")
                send = np.ascontiguousarray(flat[step.mine])
                receive = np.empty(int(theirs[:, number].sum()), np.int64)
                to = self._bytes_to(step, INDEX)
                of = theirs[:, number] * INDEX
                group.start_exchange(send.view(np.uint8), to, receive.view(np.uint8), of).wait()
            if me is None:
                continue
            with failures.caught():
                self._keep(receive.nbytes)
                made = None
                if receive.size:
                    core, axes = array._core, self._points.axes
                    made = _core.IndexSchedule(core, axes, (receive,), "flat", self._rest)
                self._parts.append(_Part(theirs[:, number], receive, made))
        with Unsure(group, "schedule_all"):
            self._end(failures, "schedule_all")
        del self._flat

    def _too_much(self, sums: NDArray[np.int64], records: _core.Records) -> bool:
        """Whether what some owner gets does not fit the least memory of any rank."""
        owners, rounds = self._io_ranks, self.rounds
        part = _core.cut_bins(sums, owners, rounds)
        each = np.bincount(part, weights=sums, minlength=owners * rounds).reshape(rounds, owners)
        most = each.sum(axis=0).max() * _OWNED + each.max() * (_MADE + 3 * self._row)
        return bool(most > min(records.setting(_ROOM)) * _BUFFERS)

    def _bins(self, array: outcore.DiskArray) -> tuple[int, int]:
        """Elements of a bin, and how many bins there are: they begin at borders of chunks, or
        shards.
        """
        points, layout = self._points, array.info.layout
        elements = math.prod(points.shape[d] for d in points.axes)
        unit = 1
        if isinstance(layout, Chunked):
            along = points.axes[0]
            unit = layout.chunks[along]
            if isinstance(layout.source, ShardSource):
                unit *= layout.source.per_shard[along]
            unit *= math.prod(points.shape[d] for d in points.axes[1:])
        return _core.bins_of(elements, unit, self._io_ranks, self._group.size)

    def _exchange_counts(self, failures: Failures) -> NDArray[np.int64]:
        """How many elements each rank has for this one, in each round."""
        group, owners, rounds = self._group, len(self._owners), self.rounds
        self._end(failures, "schedule_all")
        table = np.zeros((owners, rounds), np.int64)
        if self._counts.size:
            table[:] = self._counts.reshape(rounds, owners).T
        to = np.zeros(group.size, np.int64)
        to[self._owners] = rounds * INDEX
        of = np.full(group.size, rounds * INDEX if self._me is not None else 0, np.int64)
        theirs = np.zeros((group.size, rounds), np.int64)
        room = theirs if self._me is not None else theirs[:0]
        group.start_exchange(
            table.reshape(-1).view(np.uint8), to, room.reshape(-1).view(np.uint8), of
        ).wait()
        return theirs

    # Steps

    def _step(self, number: int, owners: range) -> _Step:
        first = number * len(self._owners)
        low, high = self._starts[first + owners.start], self._starts[first + owners.stop]
        return _Step(number, owners, slice(int(low), int(high)))

    def _steps(self) -> list[_Step]:
        owners = len(self._owners)
        groups = min(self._groups, owners)
        cuts = [owners * k // groups for k in range(groups + 1)]
        return [
            self._step(number, range(low, high))
            for number in range(self.rounds)
            for low, high in itertools.pairwise(cuts)
        ]

    def _bytes_to(self, step: _Step, row: int) -> NDArray[np.int64]:
        """Bytes for each rank: for the owners of a step what this rank has for them."""
        to = np.zeros(self._group.size, np.int64)
        first = step.round * len(self._owners)
        for owner in step.owners:
            to[self._owners[owner]] = self._counts[first + owner] * row
        return to

    def _part_of(self, step: _Step) -> _Part | None:
        """What this rank owns of a step, if it does."""
        return self._parts[step.round] if self._me is not None and self._me in step.owners else None

    # Public

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what `gather_all` gives on this rank."""
        return self._alone.shape

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's memory budget that it takes."""
        own = sum(part.schedule.nbytes for part in self._parts if part.schedule is not None)
        return (
            own + self._order.nbytes + self._alone.nbytes + sum(p.flat.nbytes for p in self._parts)
        )

    def gather_all(
        self,
        out: Any = None,
        *,
        of: outcore.CollectiveArray | None = None,
        method: Manner = "auto",
    ) -> Any:
        """
        Read the elements, together with the other ranks. Collective.

        Parameters
        ----------
        out
            Array to fill, of shape `shape` and the array's dtype, in memory or a `DiskArray`; each rank
            has its own, or none.
        of
            The array to read, of the shape of that for which the schedule was made, opened by the same
            ranks; by default that one.
        method
            ``"direct"``: each rank reads its elements on its own. ``"collective"``: owners read their
            file domains, chunk by chunk, and send each rank what it asked for. ``"pipelined"``: the
            same, while the next chunk is read. ``"auto"``: direct where all that is asked for is in the
            page cache and stored as it is, else pipelined. All ranks the same.

        Returns
        -------
        numpy.ndarray or DiskArray
            `out`, or a new array in memory.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else; `out` is undefined then.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(6.0))
        >>> def work(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         schedule = a.schedule_all(np.array([5 - comm.rank, 2]))
        ...         return schedule.gather_all(method="collective").tolist()
        >>> SimWorld(2).run(work)
        [[5.0, 2.0], [4.0, 2.0]]
        """
        array: outcore.DiskArray = self._array if of is None else of
        found: list[Any] = []

        def prepare() -> list[int]:
            self._alone._checked(array)
            self._known(method)
            points = self._points
            if on_disk(out):
                check_disk_out(array, out, points.result_shape)
                _apart(array, out)
                found.extend((out, None, None))
                return [_MANNERS.index(method), array.dtype.itemsize, self._cached(array), 1]
            if out is None:
                core = np.empty(points.core_shape, array.dtype)
                result = points.to_result(core)
            else:
                check_out(array, out, points.result_shape)
                core, result = points.to_core(out), out
            spare = not core.flags.c_contiguous and not self.on_disk
            packed = np.empty(core.shape, core.dtype) if spare else core
            found.extend((result, core, packed))
            cached = self._cached(array)
            return [_MANNERS.index(method), array.dtype.itemsize, cached, int(self.on_disk)]

        records = together(
            self._group,
            "CollectiveSchedule.gather_all",
            prepare,
            lambda: f"gather_all(method={method!r}) of {array.dtype}",
        )
        result, core, packed = found
        direct = method == "direct" or (method == "auto" and min(records.setting(2)) == 1)
        with DeferredInterrupt():
            failures = Failures()
            if not direct:
                self._tell_owners(array)
            if max(records.setting(3)) or self.on_disk:
                self._gather_on_disk(array, result, failures, direct=direct)
                return result
            rows = self._alone._as_list(packed)
            if direct:
                with failures.caught():
                    self._alone._read(
                        array, rows, cached=bool(records.setting(2)[self._group.rank])
                    )
            else:
                self._gather(array, rows, failures, ahead=method != "collective")
            with failures.caught():
                if packed is not core:
                    core[...] = packed
            self._end(failures, "gather_all")
        return result

    def scatter_all(
        self,
        values: ArrayLike,
        combine: Combine = "last",
        *,
        of: outcore.CollectiveArray | None = None,
        method: Manner = "auto",
        fill: Any = None,
    ) -> None:
        """
        Write values to the elements, together with the other ranks. Collective.

        Parameters
        ----------
        values
            Those of this rank: broadcast to `shape`, and cast to the array's dtype. A `DiskArray` has
            this very shape, and is read a part at a time.
        combine
            As for `IndexSchedule.scatter`. Values of several ranks are taken in the order of ranks, of
            each rank in the order of its indices: the result has the same bits on any number of ranks
            with the same lists one after another.
        of
            As for `gather_all`; it must be open for writing.
        method
            ``"collective"``, ``"pipelined"``, or ``"auto"`` (pipelined): who writes an element last is
            known to its owner only, so no rank writes alone (``"direct"`` is refused).
        fill
            What elements get that no rank writes; None: they keep their value.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else. Each element is then old or
            new.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", data=np.zeros(5)).close()
        >>> def work(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         schedule = a.schedule_all(np.array([3, comm.rank]))
        ...         schedule.scatter_all([1.0 + comm.rank, 9.0], fill=-1.0)
        ...         return schedule.gather_all().tolist()
        >>> SimWorld(2).run(work)[0]
        [2.0, 9.0]
        >>> outcore.open("field.npy")[:]
        array([ 9.,  9., -1.,  2., -1.])
        """
        array: outcore.DiskArray = self._array if of is None else of
        found: list[Any] = []

        def prepare() -> list[int]:
            self._alone._checked(array)._must_write("write to")
            self._known(method)
            if method == "direct":
                raise UsageError(
                    "scatter_all has no method 'direct': of several values for one element only its "
                    "owner knows the last. Use 'collective' or 'pipelined'",
                    code="bad-hint",
                )
            function_of(combine)
            here: Any = values
            if on_disk(here):
                here = self._alone._one_or_all(array, here)
            far = on_disk(here)
            if far:
                _apart(array, here)
            else:
                here = self._alone._broadcast(here, array)
            found.append(here)
            found.append(None if far or self.on_disk else self._alone._packed(here, array))
            said = repr((method, combine, array.dtype.itemsize, fill)).encode()
            digest = hashlib.blake2b(said, digest_size=8).digest()
            return [int.from_bytes(digest, "little", signed=True), 0, 0, int(far or self.on_disk)]

        records = together(
            self._group,
            "CollectiveSchedule.scatter_all",
            prepare,
            lambda: f"scatter_all(method={method!r}, combine={combine!r}, fill={fill!r})",
        )
        with DeferredInterrupt():
            failures = Failures()
            self._tell_owners(array)
            operand, packed = found
            function = function_of(combine)
            if max(records.setting(3)) or self.on_disk:
                rows = rows_of(self._points, operand, array.dtype)
                self._passes.scatter(array, rows, function, fill)
            else:
                if fill is not None:
                    with failures.caught():
                        self._fill(array, fill)
                    self._end(failures, "scatter_all")
                self._scatter(array, packed, function, failures, ahead=method != "collective")
            with failures.caught():
                if array.hints.sync and self._me is not None:
                    array._core.flush(True)
            self._end(failures, "scatter_all")

    def _gather_on_disk(
        self, array: outcore.DiskArray, out: Any, failures: Failures, *, direct: bool
    ) -> None:
        """Read elements whose indices, or results, do not fit memory."""
        if direct:
            with failures.caught():
                self._alone.gather(out, of=array)
        else:
            self._passes.gather(array, rows_of(self._points, out, array.dtype))
        with failures.caught():
            if on_disk(out) and out.hints.sync:
                out.flush()
        self._end(failures, "gather_all")

    # Two phases

    def _gather(
        self, array: outcore.DiskArray, rows: NDArray[Any], failures: Failures, *, ahead: bool
    ) -> None:
        group, row = self._group, self._row_of(array)

        def read(part: _Part) -> NDArray[Any]:
            data = np.empty((int(part.counts.sum()), *rows.shape[1:]), rows.dtype)
            if part.schedule is not None:
                self._serving(part, array).read(array._core, data)
            return data

        with (
            self._counted(row, failures, ahead=ahead),
            _in_order(self._steps(), self._part_of, read, ahead=ahead) as steps,
        ):
            for step, started in steps:
                data = np.empty((0, *rows.shape[1:]), rows.dtype)
                part = self._part_of(step)
                with failures.caught():
                    if part is not None and started is not None:
                        data = started.result()
                self._end(failures, "gather_all")
                with Unsure(group, "gather_all"):
                    back = np.empty((step.mine.stop - step.mine.start, *rows.shape[1:]), rows.dtype)
                    to = part.counts * row if part is not None else np.zeros(group.size, np.int64)
                    of = self._bytes_to(step, row)
                    group.start_exchange(_bytes(data), to, _bytes(back), of).wait()
                with failures.caught():
                    rows[self._order[step.mine]] = back

    @contextmanager
    def _counted(self, row: int, failures: Failures, *, ahead: bool) -> Iterator[None]:
        """Count what travels at once in the budget; if it does not fit, this rank has failed."""
        mine = max((step.mine.stop - step.mine.start for step in self._steps()), default=0)
        owned = max((int(part.counts.sum()) for part in self._parts), default=0)
        with ExitStack() as stack:
            with failures.caught():
                # What is put in order is a copy, too.
                nbytes = (2 * mine + (1 + ahead) * owned) * row
                stack.enter_context(
                    _core.Reservation("elements on their way between ranks", nbytes)
                )
            yield

    def _scatter(
        self,
        array: outcore.DiskArray,
        rows: NDArray[Any],
        function: np.ufunc | None,
        failures: Failures,
        *,
        ahead: bool,
    ) -> None:
        group, row = self._group, self._row_of(array)

        def write(part: _Part, number: int, data: NDArray[Any]) -> None:
            if part.schedule is None:
                return
            if function is None:
                self._serving(part, array).write(array._core, data)
            else:
                self._combining(array, part, number).apply(array._core, data, function)

        with (
            self._counted(row, failures, ahead=ahead),
            ThreadPoolExecutor(1, "outcore-schedule") as thread,
        ):
            last: Future[None] | None = None
            for step in self._steps():
                self._end(failures, "scatter_all")
                part = self._part_of(step)
                with Unsure(group, "scatter_all"):
                    send = rows[self._order[step.mine]]
                    number = int(part.counts.sum()) if part is not None else 0
                    data = np.empty((number, *rows.shape[1:]), rows.dtype)
                    to = self._bytes_to(step, row)
                    of = part.counts * row if part is not None else np.zeros(group.size, np.int64)
                    group.start_exchange(_bytes(send), to, _bytes(data), of).wait()
                with failures.caught():
                    before, last = last, None
                    if before is not None:
                        before.result()
                    if part is not None:
                        last = thread.submit(write, part, step.round, data)
                        if not ahead:
                            last.result()
            with failures.caught():
                if last is not None:
                    last.result()

    def _serving(self, part: _Part, array: outcore.DiskArray) -> _core.IndexSchedule:
        """The schedule of a part for the layout of an array."""
        if part.schedule is not None and part.schedule.serves(array._core):
            return part.schedule
        axes = self._points.axes
        return _core.IndexSchedule(array._core, axes, (part.flat,), "flat", self._rest)

    def _combining(self, array: outcore.DiskArray, part: _Part, number: int) -> CombinedPoints:
        combined = self._combined.get(number)
        if combined is None or not combined.serves(array._core):
            axes = self._points.axes
            combined = CombinedPoints(array._core, axes, part.flat, self._rest)
            self._combined[number] = combined
        return combined

    def _row_of(self, array: outcore.DiskArray) -> int:
        return self._row // self._array.dtype.itemsize * array.dtype.itemsize

    def _fill(self, array: outcore.DiskArray, fill: Any) -> None:
        """Write a value to the elements of this rank's domain that nobody writes."""
        if self._me is None:
            return
        points, owners = self._points, len(self._owners)
        elements = math.prod(points.shape[d] for d in points.axes)
        own = np.flatnonzero(self._part % owners == self._me)
        if not own.size:
            return
        low, high = int(own[0]) * self._width, min((int(own[-1]) + 1) * self._width, elements)
        shape = points.core_shape[len(points.points) :]
        for first in range(low, high, _STRETCH):
            end = min(first + _STRETCH, high)
            free = np.ones(end - first, np.bool)
            for part in self._parts:
                inside = part.flat[(part.flat >= first) & (part.flat < end)]
                free[inside - first] = False
            left = np.flatnonzero(free) + first
            one = np.empty((1,) * (1 + len(shape)), array.dtype)
            one[...] = fill
            value = np.broadcast_to(one, (left.size, *shape))
            if left.size:
                array._core.write_points(points.axes, (left,), "flat", self._rest, value)

    def _known(self, method: str) -> None:
        if method not in _MANNERS:
            raise UsageError(
                f"method={method!r} is not known; methods: {', '.join(_MANNERS)}", code="bad-hint"
            )

    def _cached(self, array: outcore.DiskArray) -> int:
        """Whether this rank's elements can be copied out of the page cache."""
        if isinstance(array.info.layout, Chunked):
            return 0
        key = (slice(None),) * array.ndim
        return int(array._core.price(key)[1] >= _core.CACHED)

    def _end(self, failures: Failures, what: str) -> None:
        """Agree that no rank has failed; else all raise."""
        if self._group.agree(int(failures.first is not None)):
            fail_together(self._group, failures.first, what)


def _apart(array: outcore.DiskArray, other: outcore.DiskArray) -> None:
    """Refuse values, or a result, in the bytes that are written, or read, meanwhile by other ranks."""
    if share_bytes(array.info, other.info):
        raise UsageError(
            f"{other.path!r} is stored in the same bytes as {array.path!r}, which all ranks use "
            "meanwhile. Give another array, or memory",
            code="out-mismatch",
            path=other.path,
        )


@contextmanager
def _in_order(
    steps: list[_Step],
    part_of: Callable[[_Step], _Part | None],
    read: Callable[[_Part], NDArray[Any]],
    *,
    ahead: bool,
) -> Iterator[Iterator[tuple[_Step, Future[NDArray[Any]] | None]]]:
    """The steps, each with what an owner reads for it; with `ahead` one step before it is used."""
    with ThreadPoolExecutor(1, "outcore-schedule") as thread:

        def start(step: _Step) -> Future[NDArray[Any]] | None:
            part = part_of(step)
            return thread.submit(read, part) if part is not None else None

        def each() -> Iterator[tuple[_Step, Future[NDArray[Any]] | None]]:
            following = start(steps[0]) if steps and ahead else None
            for number, step in enumerate(steps):
                started = following if ahead else start(step)
                if started is not None:
                    started.exception()  # wait; who uses it raises
                if ahead and number + 1 < len(steps):
                    following = start(steps[number + 1])
                yield step, started

        yield each()


def _bytes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Packed rows as bytes."""
    return rows.reshape(-1).view(np.uint8) if rows.size else np.empty(0, np.uint8)
