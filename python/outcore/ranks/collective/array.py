"""`CollectiveArray`: an array on disk that several ranks opened together."""

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
from outcore.ranks.agreement import Announced, Elsewhere, fail_together, together
from outcore.ranks.collective import items
from outcore.ranks.collective.call import Reader, has_arrays, run
from outcore.ranks.collective.durable import WORDS, Ready, flush_once
from outcore.ranks.collective.explain import explain, explain_all
from outcore.ranks.collective.lists.irregular import CollectiveSchedule
from outcore.ranks.collective.many import MANNERS, read_all
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.report import CollectiveReport
from outcore.ranks.collective.request import CollectiveRequest, start
from outcore.ranks.transport import Transport
from outcore.ranks.transport.timeouts import DeferredInterrupt

__all__ = ["CollectiveArray"]


class CollectiveArray(StaysInProcess, DiskArray):
    """
    An array on disk, opened by the ranks of a communicator. Made by ``outcore.open(..., comm=)``.

    What a `DiskArray` does, each rank does on its own. Methods that end in ``_all`` are collective:
    every rank calls them, in the same order.

    Notes
    -----
    The *global placement model* of PASSION: one file for all ranks ("PASSION: Parallel and Scalable
    Software for Input-Output", section 4.1.2); `outcore.DistArray` is what lies in memory of it.

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
        #: Number of the place of its files, on which the ranks agreed when they opened it.
        self.place = 0
        self._reader = Reader(transport)
        own_hints = hints
        # The ranks together are the only ones that write; each of them is not.
        if hints.exclusive and transport.size > 1:
            own_hints = replace(hints, exclusive=False)
        super().__init__(info, mode, hints, options, own_hints=own_hints)
        self.handle.phases += ("agree", "plan", "disk", "exchange", "wait")

    @property
    def transport(self) -> Transport:
        """The ranks that opened it: a `Transport`; its ``rank`` and ``size`` tell who this is."""
        return self._transport

    def read_all(self, key: Any = ..., *, out: Any = None, method: Method = "auto") -> Any:
        """
        Read a section together with the other ranks. Collective.

        Every rank must call this, each with its own key (or an empty one, such as ``[0:0]``).
        Requests are combined, so that each byte is read from disk once.

        Parameters
        ----------
        key
            What this rank wants: integers, slices, ``...``, None. Or, on all ranks, a key with arrays of
            indices (an empty one where a rank wants nothing), with the same slices beside them. What is
            read more than once with the same indices, a `CollectiveSchedule` reads faster.
        out
            Array to fill, of the section's shape and the array's dtype. Strided arrays are fine. With
            arrays of indices also a `DiskArray`.
        method
            ``"direct"`` (each rank on its own), ``"sieve"`` (the same, through windows),
            ``"two-phase"`` (owners read what the ranks want together, the ranks exchange), or
            ``"auto"``: the one that costs least; `explain_all` says why. All ranks the same.

        Returns
        -------
        numpy.ndarray or scalar
            `out`, or a new array in the order of the file: of the array's dtype and of the shape that
            NumPy gives ``array[key]``, so a scalar if the key is an integer for every axis.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed (also for a bad key or `out`, or for want of memory on
            one of them), or called something else; ``ranks`` names them, ``__cause__`` is a rank's own
            failure, or else that of the first that failed. `out` is then undefined.
        BudgetError
            On *all* ranks if ``"two-phase"`` was asked for and the budget of any rank is too small for
            slots that hold a block of an encoded array. ``needed`` is what must be free on each rank,
            in bytes. Nothing has been read. ``"auto"`` reads on each rank's own then.

        Notes
        -----
        What any rank wrote through outcore before it made this call, all ranks see. What it wrote
        by other means they see if they synchronised in between (``comm.barrier()``).

        Two-phase needs three slots besides the result, of at most 8 MiB and a page each (a block of an
        encoded array, if that is larger); where three do not fit half of what is free of the memory
        budget (a third, if ranks are on several nodes), two. They count in it, and are kept for the
        next call. What goes between nodes takes two slots more during the call, however many ranks
        there are and whatever they want: messages that are larger go in parts.

        Thakur, Choudhary, "An Extended Two-Phase Method for Accessing Sections of Out-of-Core
        Arrays", section 3.1.

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
        """Elements of a virtual dataset by lists of indices: each rank reads its own."""
        found: list[Any] = []

        def alone() -> list[int]:
            found.append(self.read(key, out=out))
            return []

        call = "outcore.read_all of lists"
        together(self._transport, call, alone, lambda: call, same=0)
        return found[0]

    def write_all(self, key: Any, value: Any, *, method: Method = "auto") -> None:
        """
        Write a section together with the other ranks. Collective.

        Every rank must call this, each with its own key (or an empty one, such as ``[0:0]``). Where
        ranks write the same element the highest rank wins, or with `Hints(overlap="error")` all raise.
        Nothing outside the sections changes, also if other programs write there at the same time,
        except what lies between elements of different ranks in the same tile: two-phase may read that,
        and write it back a few rounds later.

        Parameters
        ----------
        key
            Where this rank's values go; may be empty. With arrays of indices as for `read_all`: of
            several values for one element the last one of the highest rank wins.
        value
            Broadcast to the section's shape, and cast to the array's dtype, as NumPy does on
            assignment. With arrays of indices also a `DiskArray` of that shape.
        method
            As for `read_all`. What has to be put in the order of the ranks is two-phase in any case.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed, or called something else. Each block of the file is
            then old or new; where ranks write into the same block with ``method="direct"``, each
            rank's part of it is. With code ``overlapping-writes`` if a hint refuses them; nothing has
            been written then.
        BudgetError
            As for `read_all`, also if a write that is put in the order of the ranks has no other way.
            Nothing has been written.

        Notes
        -----
        What is written is in the files when the call returns, for all who read; durable after
        `flush_all`, or at once if a rank has opened the array with ``Hints(sync=True)``.

        Memory as for `read_all`; a value that has to be cast is cast whole, besides.

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
            return [items.writing(self, key, value)]

        began = perf_counter()
        try:
            run(self._transport, "write_all", bring, method, lambda: self.handle.hints, one=True)
        finally:
            self.handle.seconds["write", get_ident()] += perf_counter() - began

    def iread_all(
        self, key: Any = ..., *, out: NDArray[Any] | None = None, method: Method = "auto"
    ) -> CollectiveRequest[Any]:
        """
        Start to read a section together with the other ranks; see `read_all`. Collective.

        Returns at once. Every rank must call this, each with its own key. Any number of requests may be
        in flight, on any number of arrays; all ranks start them in the same order, and may wait for
        them in any.

        Parameters
        ----------
        key, out, method
            As for `read_all`. Leave `out`, and arrays of indices, alone until the request is done.

        Returns
        -------
        CollectiveRequest
            Its `wait` gives what `read_all` would, and raises what that would, on all ranks.

        Notes
        -----
        The disk is read, and messages are exchanged, while the program goes on: by a thread of the
        communicator, which makes the calls in the order in which they were started. So a read gets
        what was written by a write that was started before it, and a blocking collective call on the
        communicator waits for all that are in flight. `close` waits for the requests of the array; so
        does the end of the process, for all.

        A request takes memory for slots when its turn comes, as `read_all`, and the next one takes the
        same again. Its result, if there is no `out`, exists from then on. Where the MPI library was
        started without ``MPI_THREAD_MULTIPLE``, the call is made before this returns.

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

        Returns at once. Every rank must call this, as `iread_all`, in the same order.

        Parameters
        ----------
        key, value, method
            As for `write_all`. Do not change `value`, or arrays of indices, before the request is done.

        Returns
        -------
        CollectiveRequest
            Its `wait` returns when the elements are in the files, and raises what `write_all` would, on
            all ranks.

        Notes
        -----
        As for `iread_all`. `flush`, `flush_all` and `close` wait for it, and raise its failure if
        nobody has seen it yet. What a rank reads on its own meanwhile may be old or new.

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
        Tell what `read_all` (or `write_all`) would do, without doing it. Collective.

        Every rank must call this, each with the key that it would read or write.

        Parameters
        ----------
        key
            What this rank would ask for; may be empty. A section: what a key with arrays does,
            `CollectiveSchedule.explain_all` tells.
        write
            Explain `write_all`; the array must be open for writing. On all ranks the same.
        method
            As for `read_all`.

        Returns
        -------
        CollectiveReport
            Equal on all ranks: method and why, who owns what (boxes of elements), rounds, slots and
            their bytes; `str` is for people. Of a virtual dataset a `ManyReport` of its sources.

        Raises
        ------
        CollectiveError, BudgetError
            On *all* ranks, as `read_all` (or `write_all`) would.

        Notes
        -----
        No element is read or written, and no memory for results or slots is taken. What is in the page
        cache is looked at, so the answer may be another one a moment later. What ranks that there are
        not would do, the command ``outcore explain FILE SECTION --ranks N`` tells.

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
                    "explain_all takes sections; of a key with arrays schedule_all(key).explain_all() "
                    "tells what is done",
                    code="fancy-index",
                    path=self.path,
                )
            if write:
                self.handle.check_writable("write to")
            return [items.looking(self, key)]

        if self.handle.is_virtual and not has_arrays(key) and not write:
            # Only these few arrays have another report: who has none of them need not tell them apart.
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
        Make an access by indices ready to be made many times by all ranks together. Collective.

        Parameters
        ----------
        indices
            A key with arrays, as in ``a[indices]``, each rank its own; slices beside them are the same
            on all ranks. A rank without indices passes an empty array of integers.
        chunk
            Bytes of the buffer with which an owner reads or writes: its file domain is done in as many
            rounds as that takes. All ranks the same; by default what fits the budget of each, 64 MiB at
            most.
        io_ranks
            Ranks that read and write for all (owners); by default `Hints.io_ranks`, or all.
        groups
            Groups of owners that take turns at the disk (the paper's *pipelined collective I/O*).

        Returns
        -------
        CollectiveSchedule
            Its `CollectiveSchedule.gather_all` reads, its `CollectiveSchedule.scatter_all` writes and
            combines: this array, and others of the same shape.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed (an index is outside: which rank, at which position), or
            called something else, with other hints.

        Notes
        -----
        Owners have file domains with about equally many bytes of what is asked for, cut at chunks or
        shards. Indices travel once, at the first access through owners; after that only elements do. It
        takes 24 bytes of the budget for each index of this rank (48 while they travel), 32 for each that
        this rank owns, and 24 for each bin in which indices are counted (88 while they travel): 4096 of
        each owner up to 64 owners, 262144 up to 8192, then 32 of each. Where that does not fit on any
        rank, lists are kept in scratch files (24 bytes for each index, and 8 of its owner), and ranks go
        through the array in passes over ranges of elements, one after another.

        Source: No and Choudhary, "Techniques to provide run-time support for solving irregular
        problems", section 3.

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
        items.refuse_virtual(self)
        return CollectiveSchedule(
            self, indices, transport=self._transport, chunk=chunk, io_ranks=io_ranks, groups=groups
        )

    def flush_all(self) -> None:
        """
        Make durable what the ranks wrote: it outlives a crash of the machine. Collective.

        Every rank must call this. When it returns, what any of them wrote is on the disk.

        Raises
        ------
        CollectiveError
            On *all* ranks if any rank failed: what that rank wrote may be lost in a crash. Or flushed
            another array, or called something else (``mismatched-call``).

        Notes
        -----
        Takes no memory. Gaps between sparse writes may be written along, as in `flush`. The ranks
        prepare that together. Then one rank of each node flushes, as that hands to the disk what all
        programs of the node have written; only where ranks have files of their own (chunks), or several
        machines share the file system, the others do so after it.

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
        mine: list[Ready] = []

        def prepare() -> list[int]:
            self.handle.requests.finish_writes()
            mine.append(Ready(self, asked=True))
            return [self.place, *mine[0].words]

        def tell() -> str:
            return f"flush_all of {self.path!r}"

        began = perf_counter()
        with DeferredInterrupt():
            records = together(self._transport, "flush_all", prepare, tell, same=1)
            with Announced(self._transport, "flush_all"):
                said = np.array([records.setting(1 + k) for k in range(WORDS)], np.int64).T
                failure = flush_once(self._transport, [self], mine, said)
            if failure is not None:
                own = None if isinstance(failure, Elsewhere) else failure
                fail_together(self._transport, own, "flush_all")
        self.handle.seconds["flush", get_ident()] += perf_counter() - began
