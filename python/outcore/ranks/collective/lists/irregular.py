"""
Collective access by indices: schedules that all ranks share.

Problem. The elements of a rank are anywhere in the global array. Independent ranks would read or write
single elements all over the file, and no rank would know which of two values for an element is the last.

Approach. Access takes two phases, as for sections, but the plan for the indices is computed once and
kept. The elements of the array, counted in C order, are divided into *bins*. The number of indices in
each bin, summed over the ranks (`sums`), determines *file domains* with about equally many requested
bytes, one for each I/O rank (owner). Each domain is divided into rounds of one chunk (the buffer of an
owner). Each rank sorts its indices by round and owner, sends them to the owners, and keeps the order:
later only elements are sent (`elements`). An owner keeps an `IndexSchedule` for each round, so it reads
or writes its domain in the order of the file. Cost estimates determine whether independent access is
faster (`choice`).

    step            0        1        2        3
    owner reads     0        1        2        3          (pipelined: in a thread, one step ahead)
    ranks exchange           0        1        2  ...

With ``groups`` the owners take turns: in each step one group reads or writes, while the elements of the
previous group are sent. Without ``pipelined`` each step ends before the next one begins.

Ranks process the elements in passes (`outcore.ranks.collective.lists.passes`) if the indices of any rank
or owner do not fit its memory, or if values or results are on disk.

Invariants. Owners take data in the order of ranks, and for each rank in the order of its indices. The
last value and each floating-point sum are therefore those of one process with the lists of the ranks one
after another, for any number of owners, rounds and groups. Each step begins with an agreement, so all
ranks stop at the same step if one fails.

Reference: No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
sections 3.1 (collective) and 3.2 (pipelined).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore.arrays.handle import is_on_disk
from outcore.arrays.indices.lists.parts import check_disk_out, open_rows
from outcore.arrays.indices.points import check_out
from outcore.arrays.indices.schedule import Combine, IndexSchedule, get_function
from outcore.base.casting import convert_values
from outcore.errors import UsageError
from outcore.formats.layout import share_bytes
from outcore.ranks.agreement import Failures
from outcore.ranks.collective.lists.choice import (
    ListPass,
    ListPrices,
    ListReport,
    Manner,
    choose_list_method,
)
from outcore.ranks.collective.lists.schedule import CACHED, FAR, NUMBER, ListedSchedule
from outcore.ranks.collective.request import CollectiveRequest, start
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import DeferredInterrupt

__all__ = ["CollectiveSchedule", "Manner"]


class CollectiveSchedule(ListedSchedule):
    """
    Elements that ranks selected by indices, prepared for repeated collective reads and writes.

    Made by `CollectiveArray.schedule_all`. Each rank has its own indices, in any order. Elements are
    stored in the file in the order of the array, so any other number of ranks can read them later.

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

    # Public

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result of `gather_all` on this rank."""
        return self._prepared.shape

    @property
    def nbytes(self) -> int:
        """Bytes that the schedule uses of the memory budget of this rank."""
        kept = sum(held.nbytes for held in self._held) + self._prepared.nbytes
        told = self._owned.nbytes if self._owned is not None else 0
        return kept + told + sum(one.nbytes for one in self._combined.values())

    def gather_all(
        self,
        out: Any = None,
        *,
        of: outcore.mpi.CollectiveArray | None = None,
        method: Manner = "auto",
    ) -> Any:
        """
        Read the elements together with the other ranks. Collective.

        Parameters
        ----------
        out
            Array to fill, of shape `shape` and the dtype of the array, in memory or a `DiskArray`; a
            separate one on each rank. By default a new array.
        of
            Array to read, opened by the same ranks, with the shape of the array of the schedule; by
            default that array.
        method
            Access method, the same on all ranks. ``"direct"``: each rank reads its elements
            independently. ``"collective"``: owners read their file domains, chunk by chunk, and send
            each rank its elements. ``"pipelined"``: the same, while the next chunk is read. ``"auto"``:
            the method with the lowest cost; `explain_all` reports the reason.

        Returns
        -------
        numpy.ndarray or DiskArray
            `out`, or a new array in memory.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed or made a different call; `out` is then undefined.

        Notes
        -----
        A new result belongs to the caller and does not count in the memory budget. Owners need a buffer
        of `chunk` bytes, or two if they read ahead. If ranks are on several nodes, the data sent and
        received in a step needs memory in addition. A result whose axes are in another order than its
        points is reordered through a copy, which counts in the budget. If the copy does not fit,
        elements are read in passes over ranges of the array.

        No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
        sections 3.1 and 3.2.

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
        held = ExitStack()

        def prepare() -> list[int]:
            self._prepared.check_array(array)
            self._check_method(method, write=False)
            points = self._points
            if is_on_disk(out):
                check_disk_out(array, out, points.result_shape)
                _check_disjoint(array, out)
                found.extend((out, None, None))
                return [*self._make_settings(array), 1]
            if out is None:
                core = np.empty(points.core_shape, array.dtype)
                result = points.to_result(core)
            else:
                check_out(array, out, points.result_shape)
                core, result = points.to_core(out), out
            packed: Any = core
            if not self.on_disk and not core.flags.c_contiguous:
                packed = self._prepared.run_if_it_fits(
                    lambda: self._prepared.allocate_packed(core, held)
                )
            found.extend((result, core, packed))
            return [*self._make_settings(array), int(self.on_disk or packed is None)]

        ranks = self._make_ranks("gather_all")
        records = ranks.gather_numbers(
            prepare,
            lambda: f"gather_all(method={method!r}) {self._describe_access(array)}",
            meaning=lambda: self._get_meaning(array, method),
        )
        result, core, packed = found
        with DeferredInterrupt(), held:
            failures = Failures()
            if max(records.setting(FAR)) or self.on_disk:
                direct = self._is_read_independent(records, method)
                self._gather_on_disk(ranks, array, result, failures, direct=direct)
                return result
            chosen = self._choose_method(records, array, method, write=False)
            owned = None if chosen == "direct" else self._tell_owners()
            if chosen != "direct" and owned is None:
                self._gather_on_disk(ranks, array, result, failures, direct=False)
                return result
            rows = self._prepared.as_rows(packed)
            if owned is None:
                with failures.catch():
                    self._read_independently(array, rows, records)
            else:
                self._gather(ranks, array, owned, rows, failures, ahead=chosen == "pipelined")
            with failures.catch():
                if packed is not core:
                    core[...] = packed
            ranks.agree(failures)
        return result

    def _gather_on_disk(
        self,
        ranks: Ranks,
        array: outcore.DiskArray,
        out: Any,
        failures: Failures,
        *,
        direct: bool,
    ) -> None:
        """Read elements if indices or results do not fit in memory."""
        if direct:
            with failures.catch():
                IndexSchedule(self._restore_lists()).gather(out, of=array)
        else:
            self._get_passes().gather(ranks, array, open_rows(self._points, out, array.dtype))
        with failures.catch():
            if is_on_disk(out) and out.hints.sync:
                out.flush()
        ranks.agree(failures)

    def scatter_all(
        self,
        values: ArrayLike,
        combine: Combine = "last",
        *,
        of: outcore.mpi.CollectiveArray | None = None,
        method: Manner = "auto",
        fill: Any = None,
    ) -> None:
        """
        Write values to the elements, together with the other ranks. Collective.

        Parameters
        ----------
        values
            Values of this rank, broadcast to `shape` and cast to the dtype of the array. A `DiskArray`
            must have exactly this shape, and is read in parts.
        combine
            As for `IndexSchedule.scatter`. Values are combined in the order of ranks, and for each rank
            in the order of its indices. The result has the same bits on any number of ranks whose lists,
            one after another, are the same.
        of
            As for `gather_all`; it must be open for writing.
        method
            ``"collective"``, ``"pipelined"``, or ``"auto"`` (the one with the lowest cost). ``"direct"``
            raises an error: only the owner of an element knows which rank writes it last.
        fill
            Value for elements that no rank writes; by default (None) they keep their values.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed or made a different call. Each element is then old or new.

        Notes
        -----
        Memory as for `gather_all`. Values that must be cast or reordered are copied; the copy counts in
        the budget, and if it does not fit, values are written in passes. To combine values, owners read
        their elements and keep them in memory during the call, and need 32 more bytes per index that
        they own. Values are durable after `CollectiveArray.flush_all`, or immediately with
        ``Hints(sync=True)``.

        No and Choudhary, as for `gather_all`.

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
        held = ExitStack()

        def prepare() -> list[int]:
            self._prepared.check_array(array).handle.check_writable("write to")
            self._check_method(method, write=True)
            get_function(combine)
            filled = None if fill is None else _cast_fill(fill, array)
            here: Any = values
            if is_on_disk(here):
                here = self._prepared.read_single(array, here)
            packed: Any = None
            if is_on_disk(here):
                _check_disjoint(array, here)
            else:
                here = self._prepared.broadcast(here, array)
                if not self.on_disk:
                    packed = self._prepared.run_if_it_fits(
                        lambda: self._prepared.pack(here, array, held)
                    )
            found.extend((here, packed, filled))
            return [*self._make_settings(array), int(packed is None)]

        def describe() -> object:
            filled = found[2]
            # Compare values, not bytes: the padding between the fields of a structure is undefined.
            value = None if filled is None else (filled.tolist(),)
            return self._get_meaning(array, method, combine, value)

        ranks = self._make_ranks("scatter_all")
        records = ranks.gather_numbers(
            prepare,
            lambda: (
                f"scatter_all(combine={combine!r}, method={method!r}, fill={fill!r}) "
                f"{self._describe_access(array)}"
            ),
            meaning=describe,
        )
        with DeferredInterrupt(), held:
            failures = Failures()
            operand, packed, filled = found
            function, owned = get_function(combine), None
            if not max(records.setting(FAR)) and not self.on_disk:
                chosen = self._choose_method(records, array, method, write=True)
                owned = self._tell_owners()
            if owned is None:
                rows = open_rows(self._points, operand, array.dtype)
                self._get_passes().scatter(ranks, array, rows, function, filled)
            else:
                if filled is not None:
                    with failures.catch():
                        owned.fill(array, self._listed, filled)
                    ranks.agree(failures)
                ahead = chosen == "pipelined"
                self._scatter(ranks, array, owned, packed, function, failures, ahead=ahead)
            with failures.catch():
                if array.hints.sync and self._group.rank in self._owners:
                    array.handle.core.flush(True)
            ranks.agree(failures)

    def igather_all(
        self,
        out: Any = None,
        *,
        of: outcore.mpi.CollectiveArray | None = None,
        method: Manner = "auto",
    ) -> CollectiveRequest[Any]:
        """
        Start to read the elements together with the other ranks; see `gather_all`. Collective.

        Returns immediately. Any number of requests may be in flight, also together with requests of
        `CollectiveArray.iread_all` and similar methods. All ranks start them in the same order, and may
        wait for them in any order.

        Parameters
        ----------
        out, of, method
            As for `gather_all`. Do not use `out` until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns the result of `gather_all`, or raises its errors, on all ranks.

        Notes
        -----
        A thread of the communicator processes requests one after another. Memory is allocated when the
        turn of a request comes.

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
        of: outcore.mpi.CollectiveArray | None = None,
        method: Manner = "auto",
        fill: Any = None,
    ) -> CollectiveRequest[None]:
        """
        Start to write values to the elements; see `scatter_all`. Collective.

        Returns immediately, as `igather_all`.

        Parameters
        ----------
        values, combine, of, method, fill
            As for `scatter_all`. Do not change `values` until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the elements are in the files, or raises the errors of
            `scatter_all`, on all ranks.

        Notes
        -----
        `DiskArray.flush`, `CollectiveArray.flush_all` and `DiskArray.close` wait for the request, and
        raise its error if it has not been raised yet.

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
        of: outcore.mpi.CollectiveArray | None = None,
        write: bool = False,
        method: Manner = "auto",
    ) -> ListReport:
        """
        Report how `gather_all` (or `scatter_all`) would work, without moving elements. Collective.

        Parameters
        ----------
        of, method
            As for `gather_all`.
        write
            Whether to explain `scatter_all`.

        Returns
        -------
        ListReport
            The same on all ranks: method and reason, cost of each method, owners and rounds; or the
            passes, for elements whose indices do not fit in memory. `str` gives human-readable text.

        Raises
        ------
        CollectiveError
            On *all* ranks, as for `gather_all`.

        Notes
        -----
        Needs a few kilobytes. The page cache is checked, so the answer may differ a moment later. To
        determine passes, indices are counted once from the scratch file of the schedule, which is
        written first if it does not exist yet. The passes are those of the next access, unless memory is
        allocated or released in between. The report assumes results and values in memory; those on disk
        are always moved in passes.

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
            self._prepared.check_array(array)
            self._check_method(method, write=write)
            return self._make_settings(array)

        ranks = self._make_ranks("explain_all")
        records = ranks.gather_numbers(
            prepare,
            lambda: f"explain_all(write={write}, method={method!r}) {self._describe_access(array)}",
            meaning=lambda: self._get_meaning(array, method, write),
        )
        owners, rounds, chunk = tuple(self._owners), self.rounds, self.chunk
        groups, block = min(self._groups, len(owners)), self._listed.bins.block
        prices: ListPrices | None = None
        passes: tuple[ListPass, ...] = ()
        with DeferredInterrupt():
            in_passes = self.on_disk
            if not in_passes:
                prices, cheapest, blocks = self._estimate_prices(records, array, write=write)
                chosen, why = choose_list_method(prices, cheapest, method, write=write)
                if chosen != "direct":
                    with ranks.stop_on_error():
                        in_passes = self._exceeds_memory(self._count_in_bins())
            if in_passes:
                prices, (passes, most) = None, self._plan_passes(ranks, array, write=write)
                blocks = sum(one.blocks for one in passes)
                block = self._make_bins(array, self._points).block
                if self.on_disk and not write and self._is_read_independent(records, method):
                    chosen, passes = "direct", ()
                    why = "asked for" if method == chosen else "all of the array is cached"
                else:
                    chosen, rounds, groups, chunk = "collective", len(passes), 1, most
                    why = "the elements of a rank or of an owner do not fit in memory"
        return ListReport(
            "write" if write else "read",
            self._group.size,
            chosen,
            why,
            prices,
            sum(self._records.setting(NUMBER)) * self._get_row_bytes(array),
            blocks,
            block,
            min(records.setting(CACHED)),
            owners,
            rounds,
            groups,
            chunk,
            passes,
        )

    def _make_ranks(self, name: str) -> Ranks:
        return Ranks.of_call(self._group, f"CollectiveSchedule.{name}")

    def _describe_access(self, array: outcore.DiskArray) -> str:
        """Return a description of this schedule and the accessed array, for messages."""
        return f"of {array.path!r} by schedule number {self._serial}"

    def check_values(self, values: Any) -> None:
        """
        Raise if `scatter_all` could not write values on this rank.

        Parameters
        ----------
        values
            Values, as for `scatter_all`.
        """
        array = self._prepared.check_array(None)
        array.handle.check_writable("write to")
        if is_on_disk(values):
            self._prepared.read_single(array, values)
        else:
            self._prepared.broadcast(values, array)


def _cast_fill(value: Any, array: outcore.DiskArray) -> NDArray[Any]:
    """Return the value for elements that no rank writes, as an element of the array."""
    one = convert_values(value, array.dtype)
    if one.ndim:
        raise UsageError(
            f"fill= has shape {one.shape}; pass a scalar, which all elements get that no rank "
            "writes",
            code="bad-value",
            path=array.path,
        )
    cast = np.empty((), array.dtype)
    cast[...] = one
    return cast


def _check_disjoint(array: outcore.DiskArray, other: outcore.DiskArray) -> None:
    """Raise if values or a result share bytes with the array that other ranks access in this call."""
    if share_bytes(array.info, other.info):
        raise UsageError(
            f"{other.path!r} is stored in the same bytes as {array.path!r}, which all ranks use "
            "during the call; pass another array, or memory",
            code="out-mismatch",
            path=other.path,
        )
