"""Arrays on disk that several ranks open together: `CollectiveArray`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray, Mode
from outcore.base.hints import Hints
from outcore.errors import StaysInProcess, UsageError
from outcore.formats.layout import ArrayInfo
from outcore.ranks.collective import items
from outcore.ranks.collective.call import CollectiveCall, Reader, has_arrays
from outcore.ranks.collective.durable import WORDS, PreparedFlush, flush_once
from outcore.ranks.collective.explain import explain, explain_all
from outcore.ranks.collective.lists.irregular import CollectiveSchedule
from outcore.ranks.collective.many import MANNERS, read_all
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.report import CollectiveReport
from outcore.ranks.collective.request import CollectiveRequest, start
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport
from outcore.ranks.transport.timeouts import DeferredInterrupt

__all__ = ["CollectiveArray"]


class CollectiveArray(StaysInProcess, DiskArray):
    """
    An array on disk that the ranks of a communicator opened together with ``outcore.open(..., comm=)``.

    The methods of `DiskArray` act on each rank independently. Methods that end in ``_all`` are
    collective: every rank calls them, in the same order.

    Notes
    -----
    Implements the *global placement model* of PASSION, one file for all ranks ("PASSION: Parallel and
    Scalable Software for Input-Output", section 4.1.2). `outcore.mpi.DistArray` holds parts of such
    an array in memory.

    Examples
    --------
    >>> import outcore
    >>> from outcore.testing.sim import SimWorld
    >>> outcore.create("field.npy", (4, 6), "i8").close()
    >>> def work(comm):
    ...     with outcore.open("field.npy", "r+", comm=comm) as a:
    ...         a.write_all(comm.rank, 10 * comm.rank)  # with the others: a row of each
    ...         return int(a[3 - comm.rank, 0])  # alone: of a row that another rank wrote
    >>> SimWorld(4).run(work)
    [30, 20, 10, 0]
    """

    _elsewhere = (
        "send its path, and open it there with outcore.open (with comm=, all ranks together)"
    )

    def __init__(
        self,
        info: ArrayInfo,
        mode: Mode,
        hints: Hints,
        options: Mapping[str, Any],
        transport: Transport,
    ) -> None:
        self._transport = transport
        #: Number of the storage place of the files, agreed on by the ranks in `open`.
        self.place = 0
        self._reader = Reader(transport)
        own_hints = hints
        # `exclusive` means that no program other than these ranks writes. A single rank is not the only
        # writer.
        if hints.exclusive and transport.size > 1:
            own_hints = replace(hints, exclusive=False)
        super().__init__(info, mode, hints, options, own_hints=own_hints)
        self.handle.phases += ("agree", "plan", "disk", "exchange", "wait")

    @property
    def transport(self) -> Transport:
        """Ranks that opened the array: a `Transport` with ``rank`` and ``size``."""
        return self._transport

    def read_all(self, key: Any = ..., *, out: Any = None, method: Method = "auto") -> Any:
        """
        Read a section together with the other ranks. Collective.

        Every rank must call this, each with its own key (or an empty one, such as ``[0:0]``). Requests
        are combined, so that each byte is read from disk once.

        Parameters
        ----------
        key
            Section for this rank: integers, slices, ``...``, None. Or a key with index arrays on all
            ranks, with the same slices on all ranks; a rank that needs no elements passes an empty index
            array. For repeated reads with the same indices, a `CollectiveSchedule` is faster.
        out
            Array to fill, with the shape of the section and the dtype of the array. Any strides are
            allowed. With index arrays also a `DiskArray`.
        method
            Access method, the same on all ranks. ``"direct"``: each rank reads independently.
            ``"sieve"``: the same, with data sieving. ``"two-phase"``: owners read the data for all
            ranks, then the ranks exchange it. ``"auto"``: the method with the lowest cost; `explain_all`
            reports the reason.

        Returns
        -------
        numpy.ndarray or scalar
            `out` if given, otherwise a new array in the order of the file, with the dtype of the array
            and the shape of NumPy's ``array[key]``; a scalar if the key has an integer for every axis.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed (including a bad key or `out`, or insufficient memory on
            one rank) or made a different call. ``ranks`` lists these ranks. ``__cause__`` is the failure
            of this rank, or otherwise that of the first rank that failed. `out` is then undefined.
        BudgetError
            On *all* ranks, with ``"two-phase"``, if the budget of any rank is too small for slots that
            hold a block of an encoded array. ``needed`` is the number of bytes that must be free on each
            rank. Nothing has been read. With ``"auto"`` each rank then reads independently.

        Notes
        -----
        All ranks see the data that any rank wrote through outcore before its call. They see data written
        by other means if they synchronised in between (``comm.barrier()``).

        In addition to the result, two-phase needs three slots of at most 8 MiB plus one page each (or
        one block of an encoded array, if that is larger). It uses two slots if three do not fit in half
        of the free memory budget (a third, if ranks are on several nodes). Slots count in the budget and
        are cached for the next call. Messages between nodes need two more slots during the call,
        independent of the number of ranks and their sections; larger messages are split.

        Thakur, Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core Arrays",
        section 3.1.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(24).reshape(4, 6))
        >>> def columns(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         return a.read_all(np.s_[:, 2 * comm.rank :: 6], method="two-phase")
        >>> SimWorld(2).run(columns)[1].tolist()
        [[2], [8], [14], [20]]
        """
        if has_arrays(key):
            if self.handle.is_virtual:
                return self._read_lists(key, out)
            schedule = CollectiveSchedule(self, key, transport=self._transport, once=True)
            return schedule.gather_all(out, method=MANNERS.get(method, method))
        began = perf_counter()
        try:
            if self.handle.is_virtual:
                return read_all([(self, key, out)], comm=self._transport, method=method)[0]
            return self._reader.read(self, key, out, method)
        finally:
            self.handle.seconds["read", get_ident()] += perf_counter() - began

    def _read_lists(self, key: Any, out: Any) -> Any:
        """Read elements of a virtual dataset by index arrays, each rank independently."""
        found: list[Any] = []

        def read_alone() -> None:
            found.append(self.read(key, out=out))

        Ranks.of_call(self._transport, "outcore.mpi.read_all of lists").gather_numbers(read_alone)
        return found[0]

    def write_all(self, key: Any, value: Any, *, method: Method = "auto") -> None:
        """
        Write a section together with the other ranks. Collective.

        Every rank must call this, each with its own key (or an empty one, such as ``[0:0]``). If ranks
        write the same element, the highest rank wins, or with `Hints(overlap="error")` all ranks raise.
        Nothing outside the sections changes, even if other programs write there at the same time. The
        exception is data between elements of different ranks in the same tile: two-phase may read it and
        write it back a few rounds later.

        Parameters
        ----------
        key
            Section for the values of this rank; may be empty. Index arrays as for `read_all`: of several
            values for one element, the last value of the highest rank wins.
        value
            Values, broadcast to the shape of the section and cast to the dtype of the array, as in an
            assignment of NumPy. With index arrays also a `DiskArray` of that shape.
        method
            As for `read_all`. Elements that must be written in the order of the ranks are always written
            with two-phase.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed or made a different call. Each block of the file is then
            old or new; if ranks write into the same block with ``method="direct"``, this holds for the
            part of each rank. With code ``overlapping-writes`` if a hint forbids overlaps; nothing has
            been written then.
        BudgetError
            As for `read_all`, also if values must be written in the order of the ranks and no other
            method can do that. Nothing has been written.

        Notes
        -----
        All readers see the values when the call returns. They are durable after `flush_all`, or
        immediately if a rank opened the array with ``Hints(sync=True)``.

        Memory as for `read_all`. In addition, a value that must be cast is cast as a whole.

        Thakur, Choudhary, section 3.2.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", (4, 3), "i8").close()
        >>> def fill(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         a.write_all(np.s_[comm.rank :: comm.size], comm.rank)
        >>> _ = SimWorld(2).run(fill)
        >>> outcore.open("field.npy")[:, 0]
        array([0, 1, 0, 1])
        """
        self._write(key, value, method)

    def _write(self, key: Any, value: Any, method: Method) -> None:
        if has_arrays(key):
            manner: Any = "auto" if method in ("direct", "sieve") else MANNERS.get(method, method)
            schedule = CollectiveSchedule(
                self, key, transport=self._transport, once=True, shares=True
            )
            schedule.scatter_all(value, method=manner)
            return

        def bring() -> list[items.Item]:
            return [items.prepare_write(self, key, value)]

        began = perf_counter()
        try:
            CollectiveCall(
                self._transport, "write_all", bring, method, lambda: self.handle.hints, one=True
            ).run()
        finally:
            self.handle.seconds["write", get_ident()] += perf_counter() - began

    def iread_all(
        self, key: Any = ..., *, out: NDArray[Any] | None = None, method: Method = "auto"
    ) -> CollectiveRequest[Any]:
        """
        Start to read a section together with the other ranks; see `read_all`. Collective.

        Returns immediately. Every rank must call this, each with its own key. Any number of requests may
        be in flight, on any number of arrays. All ranks start them in the same order, and may wait for
        them in any order.

        Parameters
        ----------
        key, out, method
            As for `read_all`. Do not use `out`, and do not change index arrays, until the request is
            done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns the result of `read_all`, or raises its errors, on all ranks.

        Notes
        -----
        A thread of the communicator reads and exchanges data while the program continues. It makes the
        calls in the order in which they were started. A read therefore returns the values of a write
        that was started before it, and a blocking collective call on the communicator waits for all
        requests in flight. `close` waits for the requests of the array; the end of the process waits for
        all requests.

        A request allocates its slots when its turn comes, as `read_all` does, and the next request uses
        the same slots. Without `out`, the result is allocated at that point. If the MPI library was
        started without ``MPI_THREAD_MULTIPLE``, the call is made before this method returns.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(24.0).reshape(4, 6))
        >>> def sums(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         total, following = 0.0, a.iread_all(np.s_[:, comm.rank])
        ...         for column in range(comm.rank, 6, 2):
        ...             values = following.wait()
        ...             following = a.iread_all(np.s_[:, min(column + 2, 5)])
        ...             total += float(values.sum())  # while the next column is read
        ...         return total
        >>> SimWorld(2).run(sums)
        [132.0, 144.0]
        """
        return start(
            self._transport,
            self,
            lambda: self.read_all(key, out=out, method=method),
            writes=False,
        )

    def iwrite_all(
        self, key: Any, value: Any, *, method: Method = "auto"
    ) -> CollectiveRequest[None]:
        """
        Start to write a section together with the other ranks; see `write_all`. Collective.

        Returns immediately. Every rank must call this in the same order, as for `iread_all`.

        Parameters
        ----------
        key, value, method
            As for `write_all`. Do not change `value` or index arrays until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the elements are in the files, or raises the errors of
            `write_all`, on all ranks.

        Notes
        -----
        As for `iread_all`. `flush`, `flush_all` and `close` wait for the request, and raise its error if
        it has not been raised yet. Until then, a rank that reads independently may get old or new
        values.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", (4, 3), "i8").close()
        >>> def work(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         written = a.iwrite_all(np.s_[comm.rank :: comm.size], comm.rank)
        ...         column = a.iread_all(np.s_[:, 0])  # begins when all have written
        ...         written.wait()
        ...         return column.wait().tolist()
        >>> SimWorld(2).run(work)[0]
        [0, 1, 0, 1]
        """
        return start(self._transport, self, lambda: self._write(key, value, method), writes=True)

    def explain_all(
        self, key: Any = ..., *, write: bool = False, method: Method = "auto"
    ) -> CollectiveReport:
        """
        Report how `read_all` (or `write_all`) would work, without moving data. Collective.

        Every rank must call this, each with the key that it would read or write.

        Parameters
        ----------
        key
            Section for this rank; may be empty. For a key with index arrays, use
            `CollectiveSchedule.explain_all`.
        write
            Whether to explain `write_all`; the array must be open for writing. The same on all ranks.
        method
            As for `read_all`.

        Returns
        -------
        CollectiveReport
            The same on all ranks: method and reason, file domains of the owners (boxes of elements),
            rounds, slots and their bytes. `str` gives human-readable text. For a virtual dataset, a
            `ManyReport` of its sources.

        Raises
        ------
        CollectiveError, BudgetError
            On *all* ranks, as for `read_all` (or `write_all`).

        Notes
        -----
        No element is read or written, and no memory is allocated for results or slots. The page cache is
        checked, so the answer may differ a moment later. The command ``outcore explain FILE SECTION
        --ranks N`` explains calls of ranks that do not exist.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.zeros((4, 6)))
        >>> def look(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         return a.explain_all(np.s_[:, comm.rank :: comm.size], method="two-phase")
        >>> report = SimWorld(3).run(look)[0]
        >>> report.method, report.rounds, report.wanted_bytes, report.domain_bytes
        ('two-phase', 1, 192, 192)
        """

        def bring() -> list[items.Item]:
            if has_arrays(key):
                raise UsageError(
                    "explain_all takes only sections, and the key has arrays; call "
                    "schedule_all(key).explain_all()",
                    code="fancy-index",
                    path=self.path,
                )
            if write:
                self.handle.check_writable("write to")
            return [items.prepare_report(self, key)]

        if self.handle.is_virtual and not has_arrays(key) and not write:
            # Only virtual datasets have another report, so ranks with other arrays need not compare it.
            found: Any = explain_all([(self, key)], comm=self._transport, method=method)
            return found  # type: ignore[no-any-return]
        return explain(self._transport, bring, method, self.hints, write=write)

    def schedule_all(
        self,
        indices: Any,
        *,
        chunk: int | None = None,
        io_ranks: int | None = None,
        groups: int = 1,
    ) -> CollectiveSchedule:
        """
        Make a schedule: an access by indices that all ranks can repeat many times. Collective.

        Parameters
        ----------
        indices
            Key with index arrays, as in ``a[indices]``, different on each rank; slices in it are the
            same on all ranks. A rank without indices passes an empty array of integers.
        chunk
            Buffer size in bytes with which an owner reads or writes its file domain, in as many rounds
            as needed. The same on all ranks; by default the largest size that fits the budget of each
            rank, at most 64 MiB.
        io_ranks
            Number of owners: ranks that read and write for all; by default `Hints.io_ranks`, or all
            ranks.
        groups
            Number of groups of owners that take turns in accessing the disk (*pipelined collective I/O*
            in the paper).

        Returns
        -------
        CollectiveSchedule
            Schedule for this array and others of the same shape. `CollectiveSchedule.gather_all` reads
            the elements, `CollectiveSchedule.scatter_all` writes and combines them.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, made a different call, or has different hints. For an
            index out of range, the error names the rank and the position.

        Notes
        -----
        File domains of the owners have about equally many requested bytes, and end at chunks or shards.
        Indices are sent once, at the first access through owners; later accesses send only elements.

        A schedule uses memory of the budget: 24 bytes per index of this rank (48 while they are sent),
        32 bytes per index that this rank owns, and 24 bytes per bin in which indices are counted (88
        while they are sent). There are 4096 bins per owner up to 64 owners, 262144 bins up to 8192
        owners, and 32 bins per owner beyond that. If this does not fit on any one rank, lists are stored
        in scratch files (24 bytes per index, plus 8 bytes at its owner), and the ranks process the array
        in passes over ranges of elements, one after another.

        No and Choudhary, "Techniques to provide run-time support for solving irregular problems",
        section 3.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(8) ** 2)
        >>> def work(comm):
        ...     mine = np.random.default_rng(0).permutation(8)[comm.rank :: comm.size]
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         return bool((a.schedule_all(mine).gather_all() == mine**2).all())
        >>> SimWorld(3).run(work)
        [True, True, True]
        """
        items.check_not_virtual(self)
        return CollectiveSchedule(
            self, indices, transport=self._transport, chunk=chunk, io_ranks=io_ranks, groups=groups
        )

    def flush_all(self) -> None:
        """
        Make all data that the ranks wrote durable, also against a crash of the machine. Collective.

        Every rank must call this. When it returns, the data of all ranks is on the disk.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed; data of that rank may be lost in a crash. Also if a rank
            flushed another array or made a different call (``mismatched-call``).

        Notes
        -----
        Needs no memory. As in `flush`, gaps between sparse writes may be written too; all ranks prepare
        this together. Then one rank of each node flushes, because a flush writes the data of all
        programs of the node. The other ranks flush after it only if ranks have their own files (chunks),
        or if several machines share the file system.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> outcore.create("field.npy", (4,), "i8").close()
        >>> def fill(comm):
        ...     with outcore.open("field.npy", "r+", comm=comm) as a:
        ...         a.write_all(comm.rank, 1 + comm.rank)
        ...         a.flush_all()
        >>> _ = SimWorld(4).run(fill)
        >>> outcore.open("field.npy")[...]
        array([1, 2, 3, 4])
        """
        ranks = Ranks.of_call(self._transport, "flush_all")
        mine: list[PreparedFlush] = []

        def prepare() -> list[int]:
            self.handle.requests.finish_writes()
            mine.append(PreparedFlush(self, asked=True))
            return [self.place, *mine[0].words]

        def tell() -> str:
            return f"flush_all of {self.path!r}"

        began = perf_counter()
        with DeferredInterrupt():
            records = ranks.gather_numbers(prepare, tell, equal=1)
            with ranks.raise_on_all():
                said = np.array([records.setting(1 + k) for k in range(WORDS)], np.int64).T
                failure = flush_once(self._transport, [self], mine, said)
            if failure is not None:
                ranks.raise_failures(failure)
        self.handle.seconds["flush", get_ident()] += perf_counter() - began
