"""
Collective access by indices: schedules of all ranks together.

Problem. The elements that a rank has lie anywhere in the global array; each rank alone would read or
write single elements all over the file, and of two ranks that write one element nobody knows who is
last.

Idea. Two phases, as for sections, but what follows from the indices is found once and kept. The
elements of the array, counted in C order, are cut into *bins*; a count of the indices in each bin,
added over the ranks, cuts the bins into *file domains* with about equally many bytes asked for, one for
each I/O rank (owner), and each domain into rounds of one chunk (the buffer of an owner). Each rank
orders its indices by round and owner, tells them to the owners, and keeps the order: later only
elements travel (`elements`). An owner keeps an `IndexSchedule` for each round, so it reads or writes its
domain in the order of the file. Whether each rank alone would be faster, prices tell (`list_choice`).

    step            0        1        2        3
    owner reads     0        1        2        3          (pipelined: in a thread, one step ahead)
    ranks exchange           0        1        2  ...

With ``groups`` the owners take turns: in a step those of one group read or write, while the elements of
the group before travel. Without ``pipelined`` each step ends before the next one begins.

Invariants. What owners get from the ranks they take in the order of ranks, and of each rank in the
order of its indices: the last value, and each floating-point sum, is that of one process with the
ranks' lists one after another, whatever the number of owners, rounds and groups. Each step begins with
an agreement, so if a rank fails all stop at the same step.

Source: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
sections 3.1 (collective) and 3.2 (pipelined).
"""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore import _core
from outcore.collective.agreement import Failures, Unsure, fail_together, together
from outcore.collective.call import oversubscription
from outcore.collective.elements import bytes_of, rows_in, shares_slots
from outcore.collective.list_choice import (
    MANNERS,
    Bins,
    ListPrices,
    ListReport,
    Manner,
    choose,
    jumps_in,
)
from outcore.collective.listed_owners import Listed, Owned, Part, tell_owners
from outcore.collective.request import CollectiveRequest, start
from outcore.errors import UsageError
from outcore.formats.layout import Chunked
from outcore.index_schedule import (
    Combine,
    CombinedPoints,
    IndexSchedule,
    function_of,
    points_of,
)
from outcore.masks import INDEX, Held
from outcore.points import check_out
from outcore.transport import DeferredInterrupt, Transport

__all__ = ["CollectiveSchedule", "Manner"]

# The largest chunk that is chosen: more makes no request faster.
_CHUNK = 64 << 20
# Buffers of an owner and a rank at once, in chunks: read ahead, sent, received, and put in order.
_BUFFERS = 4
# What ranks tell each other when a schedule is made, and at each access.
_MEANING, _CHUNK_ASKED, _NUMBER, _ROOM, _JUMPS, _BLOCKS = range(6)
_CACHED, _SHARING, _DISK = 2, 3, 4


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
        array: outcore.DiskArray,
        indices: Any,
        *,
        transport: Transport,
        chunk: int | None = None,
        io_ranks: int | None = None,
        groups: int = 1,
        once: bool = False,
    ) -> None:
        self._array, self._group = array, transport
        self._io_ranks = io_ranks or array.hints.io_ranks or self._group.size
        self._groups, self._asked, self._once = groups, chunk or 0, once
        self._held: list[_core.Reservation] = []
        self._combined: dict[int, CombinedPoints] = {}
        # What the ranks said when they made it.
        self._records = together(
            self._group, "schedule_all", lambda: self._prepare(indices), self._told
        )
        self._owners = [
            owner * self._group.size // self._io_ranks for owner in range(self._io_ranks)
        ]
        total = sum(self._records.setting(_NUMBER)) * self._row
        chunk = self._asked or max(min(_CHUNK, *self._records.setting(_ROOM)), self._row, 1)
        #: Rounds, and bytes of an owner's buffer.
        self.rounds, self.chunk = _core.rounds_of(total, self._io_ranks, chunk), chunk
        # Counts of all ranks in each bin, when somebody has asked; what owners have been told.
        self._sums: NDArray[np.int64] | None = None
        self._owned: Owned | None = None

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
        with Held(array._core, writes=False) as held:
            points, lists = points_of(array, indices, held)
            # No list of the caller's is kept: he may change it.
            self._alone = IndexSchedule(array, points, (), ready=False)
            flat = points.flat(lists)
        self._points = points
        self._rest = [word for words in points.rest for word in words]
        self._row = math.prod(points.core_shape[len(points.points) :]) * array.dtype.itemsize
        self._keep(flat.size * 3 * INDEX)
        bins = Bins.of(points, array.info.layout, self._row, self._io_ranks, group.size)
        own = _core.count_bins(flat, bins.width, bins.number)
        jumps, blocks = jumps_in(flat, bins.page), bins.touched(own)
        self._listed = Listed(points, self._rest, flat, own, bins, self._row)
        meaning = (points.shape, array.dtype.itemsize, points.axes, points.rest)
        said = repr((meaning, self._io_ranks, self._groups)).encode()
        digest = int.from_bytes(
            hashlib.blake2b(said, digest_size=8).digest(), "little", signed=True
        )
        room = _core.memory_state()[1] // (2 * _BUFFERS)
        return [digest, self._asked, flat.size, room, jumps, blocks]

    def _told(self) -> str:
        points = self._points
        return (
            f"schedule_all of axes {points.axes} of shape {points.shape} with ranges {points.rest}, "
            f"io_ranks={self._io_ranks}, groups={self._groups}, chunk={self._asked}"
        )

    def _keep(self, nbytes: int) -> None:
        self._held.append(_core.Reservation("a collective schedule", nbytes))

    def _counted(self) -> NDArray[np.int64]:
        """How many elements of all ranks lie in each bin. Collective, once."""
        if self._sums is None:
            with Unsure(self._group, "schedule_all"):
                self._sums = self._group.allgather(self._listed.own).sum(axis=0)
        return self._sums

    def _tell_owners(self, array: outcore.DiskArray) -> Owned:
        """Cut the file domains, and tell each owner which of its elements this rank has: once."""
        if self._owned is None:
            sums, owners = self._counted(), self._owners
            self._owned = tell_owners(
                self._group,
                array,
                self._listed,
                sums,
                owners,
                self.rounds,
                self._groups,
                self._keep,
            )
        return self._owned

    # Which way

    def _said(self, method: str, array: outcore.DiskArray) -> list[int]:
        """What this rank says at an access: what must be equal on all, then what ways cost."""
        return [
            MANNERS.index(method),
            array.dtype.itemsize,
            self._cached(array),
            oversubscription(self._group),
            *array._core.disk(),
        ]

    def _priced(
        self, records: _core.Records, array: outcore.DiskArray, *, write: bool
    ) -> tuple[ListPrices, str, int]:
        """What the ways cost, the cheapest, and how many blocks are touched. Collective."""
        group, bins = self._group, self._listed.bins
        cached = records.setting(_CACHED)
        made = [self._records.setting(k) for k in (_NUMBER, _JUMPS, _BLOCKS)]
        wanted = list(zip(*made, cached, strict=True))
        blocks = max(made[2])
        if min(cached) < _core.CACHED:
            blocks = bins.touched(self._counted())
        row = self._row_of(array)
        stored = (row, bins.block * row // max(self._row, 1), blocks, bins.all, bins.encoded)
        steps = self.rounds * min(self._groups, self._io_ranks)
        untold = self._once and self._owned is None
        near = shares_slots(group)
        disk = tuple(records.setting(_DISK + k)[0] for k in range(4))
        direct, collective, pipelined, cheapest = _core.list_prices(
            wanted,
            stored,
            (self._io_ranks, steps, near, untold),
            oversubscription=max(records.setting(_SHARING)),
            disk=(disk[0], disk[1], disk[2], disk[3]),
            write=write,
        )
        return ListPrices(direct, collective, pipelined), cheapest, blocks

    def _chosen(
        self, records: _core.Records, array: outcore.DiskArray, method: str, *, write: bool
    ) -> str:
        """The method: that which was asked for, or the cheapest."""
        if method != "auto":
            return method
        return self._priced(records, array, write=write)[1]

    # Public

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what `gather_all` gives on this rank."""
        return self._alone.shape

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's memory budget that it takes."""
        told = self._owned.nbytes if self._owned is not None else 0
        return told + self._listed.flat.nbytes + self._alone.nbytes

    def gather_all(
        self,
        out: NDArray[Any] | None = None,
        *,
        of: outcore.CollectiveArray | None = None,
        method: Manner = "auto",
    ) -> NDArray[Any]:
        """
        Read the elements, together with the other ranks. Collective.

        Parameters
        ----------
        out
            Array to fill, of shape `shape` and the array's dtype; each rank has its own, or none.
        of
            The array to read, of the shape of that for which the schedule was made, opened by the same
            ranks; by default that one.
        method
            ``"direct"``: each rank reads its elements on its own. ``"collective"``: owners read their
            file domains, chunk by chunk, and give each rank what it asked for. ``"pipelined"``: the
            same, while the next chunk is read. ``"auto"``: what costs least; `explain_all` says why. All
            ranks the same.

        Returns
        -------
        numpy.ndarray
            `out`, or a new array.

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
            self._known(method, write=False)
            points = self._points
            if out is None:
                core = np.empty(points.core_shape, array.dtype)
                result = points.to_result(core)
            else:
                check_out(array, out, points.result_shape)
                core, result = points.to_core(out), out
            packed = core if core.flags.c_contiguous else np.empty(core.shape, core.dtype)
            found.extend((result, core, packed))
            return self._said(method, array)

        records = together(
            self._group,
            "CollectiveSchedule.gather_all",
            prepare,
            lambda: f"gather_all(method={method!r}) of {array.dtype}",
        )
        result: NDArray[Any]
        result, core, packed = found
        rows = self._alone._as_list(packed)
        with DeferredInterrupt():
            chosen = self._chosen(records, array, method, write=False)
            failures = Failures()
            if chosen == "direct":
                with failures.caught():
                    self._read_alone(array, rows, records)
            else:
                owned = self._tell_owners(array)
                self._gather(array, owned, rows, failures, ahead=chosen == "pipelined")
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
            Those of this rank: broadcast to `shape`, and cast to the array's dtype.
        combine
            As for `IndexSchedule.scatter`. Values of several ranks are taken in the order of ranks, of
            each rank in the order of its indices: the result has the same bits on any number of ranks
            with the same lists one after another.
        of
            As for `gather_all`; it must be open for writing.
        method
            ``"collective"``, ``"pipelined"``, or ``"auto"`` (what costs less): who writes an element
            last is known to its owner only, so no rank writes alone (``"direct"`` is refused).
        fill
            What elements get that no rank writes; None: they keep their value.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else. Each element is then old or new.

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
            self._known(method, write=True)
            function_of(combine)
            found.append(self._alone._packed(values, array))
            said = repr((method, combine, array.dtype.itemsize, fill)).encode()
            digest = hashlib.blake2b(said, digest_size=8).digest()
            return [int.from_bytes(digest, "little", signed=True), *self._said(method, array)[1:]]

        records = together(
            self._group,
            "CollectiveSchedule.scatter_all",
            prepare,
            lambda: f"scatter_all(method={method!r}, combine={combine!r}, fill={fill!r})",
        )
        with DeferredInterrupt():
            chosen = self._chosen(records, array, method, write=True)
            failures = Failures()
            owned = self._tell_owners(array)
            if fill is not None:
                with failures.caught():
                    owned.fill(array, self._listed, fill)
                self._end(failures, "scatter_all")
            self._scatter(
                array, owned, found[0], function_of(combine), failures, ahead=chosen == "pipelined"
            )
            with failures.caught():
                if array.hints.sync and owned.owner is not None:
                    array._core.flush(True)
            self._end(failures, "scatter_all")

    def igather_all(
        self,
        out: NDArray[Any] | None = None,
        *,
        of: outcore.CollectiveArray | None = None,
        method: Manner = "auto",
    ) -> CollectiveRequest[NDArray[Any]]:
        """
        Start to read the elements with other ranks; see `gather_all`. Collective.

        Returns at once. Any number of requests may be in flight, with those of
        `CollectiveArray.iread_all` and its like; all ranks start them in the same order, and may wait
        for them in any.

        Parameters
        ----------
        out, of, method
            As for `gather_all`. Leave `out` alone until the request is done.

        Returns
        -------
        CollectiveRequest
            Its `wait` gives what `gather_all` would, and raises what that would, on all ranks.

        Notes
        -----
        Made, one after the other, by a thread of the communicator; memory is taken when the turn comes.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(6.0))
        >>> def work(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         schedule = a.schedule_all(np.array([5 - comm.rank, 2]))
        ...         request = schedule.igather_all()
        ...         return request.wait().tolist()  # compute something before
        >>> SimWorld(2).run(work)
        [[5.0, 2.0], [4.0, 2.0]]
        """
        array = self._array if of is None else of
        return start(
            self._group,
            array,
            lambda: self.gather_all(out, of=of, method=method),
            writes=False,
        )

    def iscatter_all(
        self,
        values: ArrayLike,
        combine: Combine = "last",
        *,
        of: outcore.CollectiveArray | None = None,
        method: Manner = "auto",
        fill: Any = None,
    ) -> CollectiveRequest[None]:
        """
        Start to write values to the elements; see `scatter_all`. Collective.

        Returns at once, as `igather_all`.

        Parameters
        ----------
        values, combine, of, method, fill
            As for `scatter_all`. Do not change `values` before the request is done.

        Returns
        -------
        CollectiveRequest
            Its `wait` returns when the elements are in the files, and raises what `scatter_all` would,
            on all ranks.

        Notes
        -----
        `DiskArray.flush`, `CollectiveArray.flush_all` and `DiskArray.close` wait for it, and raise its
        failure if nobody has seen it yet.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", data=np.zeros(4)).close()
        >>> def work(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         schedule = a.schedule_all(np.array([3, comm.rank]))
        ...         requests = [schedule.iscatter_all([1.0, 2.0], "add") for _ in range(3)]
        ...         last = schedule.igather_all()  # what all of them have written
        ...         for request in requests:
        ...             request.wait()
        ...         return last.wait().tolist()
        >>> SimWorld(2).run(work)[1]
        [6.0, 6.0]
        """
        array = self._array if of is None else of
        return start(
            self._group,
            array,
            lambda: self.scatter_all(values, combine, of=of, method=method, fill=fill),
            writes=True,
        )

    def explain_all(
        self,
        *,
        of: outcore.CollectiveArray | None = None,
        write: bool = False,
        method: Manner = "auto",
    ) -> ListReport:
        """
        Tell what `gather_all` (or `scatter_all`) would do, without doing it. Collective.

        Parameters
        ----------
        of, method
            As for `gather_all`.
        write
            Explain `scatter_all`.

        Returns
        -------
        ListReport
            Equal on all ranks: the method and why, what each way would cost, owners and rounds; `str` is
            for people.

        Raises
        ------
        CollectiveError
            On *all* ranks, as `gather_all` would.

        Notes
        -----
        No element is moved; it takes a few kilobytes. What is in the page cache is looked at, so the
        answer may be another one a moment later.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(6.0))
        >>> def work(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         return a.schedule_all(np.array([5 - comm.rank, 2])).explain_all()
        >>> report = SimWorld(2).run(work)[0]
        >>> report.method, report.wanted_bytes, report.owners
        ('direct', 32, (0, 1))
        """
        array: outcore.DiskArray = self._array if of is None else of

        def prepare() -> list[int]:
            self._alone._checked(array)
            self._known(method, write=write)
            return [MANNERS.index(method) + len(MANNERS) * write, *self._said(method, array)[1:]]

        records = together(
            self._group,
            "CollectiveSchedule.explain_all",
            prepare,
            lambda: f"explain_all(method={method!r}, write={write})",
        )
        with DeferredInterrupt():
            prices, cheapest, blocks = self._priced(records, array, write=write)
        chosen, why = choose(prices, cheapest, method, write=write)
        return ListReport(
            "write" if write else "read",
            self._group.size,
            chosen,
            why,
            prices,
            sum(self._records.setting(_NUMBER)) * self._row_of(array),
            blocks,
            self._listed.bins.block,
            min(records.setting(_CACHED)),
            tuple(self._owners),
            self.rounds,
            min(self._groups, len(self._owners)),
            self.chunk,
        )

    def _check_values(self, values: ArrayLike) -> None:
        """Raise if `scatter_all` could not write these values on this rank."""
        array = self._alone._checked(None)
        array._must_write("write to")
        self._alone._broadcast(values, array)

    # Two phases

    def _read_alone(
        self, array: outcore.DiskArray, rows: NDArray[Any], records: _core.Records
    ) -> None:
        """
        Read this rank's elements.

        What is cached is copied in the order of the list; else a schedule of this rank is made, once.
        """
        axes = self._points.axes
        if records.setting(_CACHED)[self._group.rank] >= _core.CACHED:
            array._core.read_points(axes, (self._listed.flat,), "flat", self._rest, rows)
            return
        made = self._alone._made
        schedule = next((one for one in made if one.serves(array._core)), None)
        if schedule is None:
            schedule = _core.IndexSchedule(
                array._core, axes, (self._listed.flat,), "flat", self._rest
            )
            made.append(schedule)
        schedule.read(array._core, rows)

    def _gather(
        self,
        array: outcore.DiskArray,
        owned: Owned,
        rows: NDArray[Any],
        failures: Failures,
        *,
        ahead: bool,
    ) -> None:
        exchange = owned.exchange
        row, end = self._row_of(array), owned.steps.number

        def read(part: Part, room: NDArray[np.uint8]) -> None:
            part.read(array, rows_in(room, rows, len(part.flat)))

        with (
            exchange.held(row, failures, ahead=ahead),
            ThreadPoolExecutor(1, "outcore-schedule") as thread,
        ):

            def begin(step: int) -> tuple[NDArray[np.uint8], Future[None]] | None:
                part = owned.of(step)
                with failures.caught():
                    if part is not None:
                        room = exchange.room(step, len(part.flat) * row)
                        return room, thread.submit(read, part, room)
                return None

            following = begin(0)
            for step in range(end):
                started, data = following, np.empty(0, np.uint8)
                with failures.caught():
                    if started is not None:
                        started[1].result()
                        data = started[0]
                # All owners have read, and nobody looks at the slots of the step before any more.
                self._end(failures, "gather_all")
                following = begin(step + 1) if ahead and step + 1 < end else None
                with failures.caught():
                    exchange.give(step, data, bytes_of(rows), row)
                if not ahead and step + 1 < end:
                    following = begin(step + 1)
            # Slots are somebody else's when all have taken what is theirs.
            self._end(failures, "gather_all")

    def _scatter(
        self,
        array: outcore.DiskArray,
        owned: Owned,
        rows: NDArray[Any],
        function: np.ufunc | None,
        failures: Failures,
        *,
        ahead: bool,
    ) -> None:
        exchange, row = owned.exchange, self._row_of(array)

        def write(part: Part, number: int, data: NDArray[Any]) -> None:
            if function is None:
                part.write(array, data)
            elif part.flat.size:
                self._combining(array, part, number).apply(array._core, data, function)

        with (
            exchange.held(row, failures, ahead=ahead),
            ThreadPoolExecutor(1, "outcore-schedule") as thread,
        ):
            last: Future[None] | None = None
            for step in range(owned.steps.number):
                # Who writes out of a slot two steps later has written what was in it.
                self._end(failures, "scatter_all")
                part, room = owned.of(step), np.empty(0, np.uint8)
                with failures.caught():
                    if part is not None:
                        room = exchange.room(step, len(part.flat) * row)
                    exchange.bring(step, room, bytes_of(rows), row)
                # What is not there from all ranks no owner writes.
                self._end(failures, "scatter_all")
                with failures.caught():
                    before, last = last, None
                    if before is not None:
                        before.result()
                    if part is not None:
                        data = rows_in(room, rows, len(part.flat))
                        last = thread.submit(write, part, step, data)
                        if not ahead:
                            last.result()
            with failures.caught():
                if last is not None:
                    last.result()

    def _combining(self, array: outcore.DiskArray, part: Part, number: int) -> CombinedPoints:
        combined = self._combined.get(number)
        if combined is None or not combined.serves(array._core):
            axes = self._points.axes
            combined = CombinedPoints(array._core, axes, part.flat, self._rest)
            self._combined[number] = combined
        return combined

    def _row_of(self, array: outcore.DiskArray) -> int:
        return self._row // self._array.dtype.itemsize * array.dtype.itemsize

    def _known(self, method: str, *, write: bool) -> None:
        if method not in MANNERS:
            raise UsageError(
                f"method={method!r} is not known; methods: {', '.join(MANNERS)}", code="bad-hint"
            )
        if write and method == "direct":
            raise UsageError(
                "scatter_all has no method 'direct': of several values for one element only its owner "
                "knows the last. Use 'collective' or 'pipelined'",
                code="bad-hint",
            )

    def _cached(self, array: outcore.DiskArray) -> int:
        """The share that is in the page cache, in thousandths; of chunks nobody looks."""
        if isinstance(array.info.layout, Chunked):
            return 0
        key = (slice(None),) * array.ndim
        return array._core.price(key)[1]

    def _end(self, failures: Failures, what: str) -> None:
        """Agree that no rank has failed; else all raise."""
        if self._group.agree(int(failures.first is not None)):
            fail_together(self._group, failures.first, what)
