"""
`DiskResidentArray`: an array on disk that ranks use as a level of memory.

Problem. Out-of-core programs move sections between arrays that are divided over the memories of ranks
and arrays on disk, compute meanwhile, and should not have to know files, offsets or requests. Idea. The
array *has* an array on disk of an ordinary format (`array`), opened by all ranks together; what it adds
is movement between any section of that and any section of a `DistArray` (`movement`), names, and an end
(`temporary`). Started movements have their turn in the thread of the communicator.

Invariants. Methods are collective where there are several ranks: all call them in the same order, and
all return or all raise.

Reference: Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations*, sections 3 and 4.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.disk.described import ArrayOnDisk
from outcore.arrays.layouts import ResidentLayout
from outcore.base.hints import Hints
from outcore.errors import OutcoreError, StaysInProcess
from outcore.formats.layout import ArrayInfo
from outcore.ranks.collective.array import CollectiveArray
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.request import CollectiveRequest, start
from outcore.ranks.dist import DistArray
from outcore.ranks.resident.movement import Movement, Wanted
from outcore.ranks.resident.naming import new_name, removed, renamed
from outcore.ranks.resident.report import ResidentReport, explained
from outcore.ranks.resident.temporary import Hold
from outcore.ranks.transport import Transport

__all__ = ["DiskResidentArray"]

Partner = DistArray | NDArray[Any]
Axes = bool | Sequence[int]


class DiskResidentArray(StaysInProcess, ArrayOnDisk):
    """
    An array on disk that a parallel program uses as a level of memory. Made by `outcore.disk_array`.

    Sections move between it and arrays in memory: a `DistArray` in any distribution, or in a process on
    its own a NumPy array. The two sections have the same shape and lie anywhere in their arrays; keys
    are those of NumPy's basic indexing: integers, slices with any step, ``...``, None. With
    ``transpose`` the axes of the source are permuted as `numpy.transpose` does. Elements are cast as in
    an assignment of NumPy.

    Notes
    -----
    Of several ranks all make the same calls in the same order, with the same arguments beside their own
    part of the array in memory. What is written is in the file when a call returns, for all who read;
    durable after `flush`, or at once with ``hints={"sync": True}``.

    Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
    Computations*, section 3.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> d = outcore.disk_array("big", (1000, 2000), "f8", typical=(100, 200))
    >>> block = np.arange(20000.0).reshape(100, 200)
    >>> request = d.iwrite_section(np.s_[201:301, 201:401], block)
    >>> request.wait()
    >>> turned = np.empty((200, 100))
    >>> d.read_section(np.s_[201:301, 201:401], turned, transpose=True)
    >>> bool((turned == block.T).all())
    True
    >>> d.delete()
    """

    _elsewhere = "send its path, and open it there with outcore.disk_array"

    def __init__(
        self,
        array: DiskArray,
        group: Transport,
        layout: ResidentLayout,
        hold: Hold | None = None,
    ) -> None:
        self._array, self._group, self._layout = array, group, layout
        self._let_go: Callable[[], object] | None = None
        self._hold = hold
        if hold is not None:
            self._let_go = weakref.finalize(self, hold.release)

    # ------------------------------------------------------------------------------------ what it is

    @property
    def array(self) -> DiskArray:
        """The array on disk: a `CollectiveArray` if ranks opened it together, else a `DiskArray`."""
        return self._array

    @property
    def info(self) -> ArrayInfo:
        """What the format knows about the array."""
        return self._array.info

    @property
    def mode(self) -> str:
        """As that of `array`."""
        return self._array.mode

    @property
    def hints(self) -> Hints:
        """The hints that hold for this array."""
        return self._array.hints

    @property
    def transport(self) -> Transport:
        """The ranks that have it: a `Transport`."""
        return self._group

    @property
    def layout(self) -> ResidentLayout:
        """How it lies on disk, and why; ``print`` it."""
        return self._layout

    @property
    def temporary(self) -> bool:
        """Whether it is gone when the last process that has it closes it or ends."""
        return self._hold is not None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._array.closed

    def __repr__(self) -> str:
        kind = "temporary " if self.temporary else ""
        state = "closed" if self.closed else f"{self._layout.format}, {self._array.mode}"
        return (
            f"<{kind}DiskResidentArray {self.path!r} {self.shape} {self.dtype}, {state}, "
            f"{self._group.size} rank{'s' * (self._group.size > 1)}>"
        )

    # -------------------------------------------------------------------------------------- movement

    def read(
        self,
        into: Partner,
        *,
        transpose: Axes = False,
        ghosts: bool = False,
        method: Method = "auto",
    ) -> None:
        """
        Read the whole array into an array in memory of its shape. Collective.

        Parameters
        ----------
        into, transpose, ghosts, method
            As for `read_section`.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As `read_section`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.npy", (3, 4), "f8")
        >>> d.write(np.arange(12.0).reshape(3, 4))
        >>> turned = np.empty((4, 3))
        >>> d.read(turned, transpose=True)
        >>> turned[3]
        array([ 3.,  7., 11.])
        """
        self._move(Wanted("read", ..., into, ..., transpose, ghosts, method))

    def write(self, source: Partner, *, transpose: Axes = False, method: Method = "auto") -> None:
        """
        Write the whole array from an array in memory of its shape. Collective.

        Parameters
        ----------
        source, transpose, method
            As for `write_section`.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As `write_section`.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.Distribution((4, 6), ["block", "*"], comm.size)
        ...     a = outcore.DistArray.from_function(lambda i, j: 10 * i + j, rows, transport=comm)
        ...     d = outcore.disk_array("d.npy", (6, 4), "i4", comm=comm)
        ...     d.write(a, transpose=True)
        ...     d.close()
        >>> _ = SimWorld(2).run(work)
        >>> outcore.open("d.npy")[5]
        array([ 5, 15, 25, 35], dtype=int32)
        """
        self._move(Wanted("write", ..., source, ..., transpose, method=method, write=True))

    def read_section(
        self,
        key: Any,
        into: Partner,
        into_key: Any = ...,
        *,
        transpose: Axes = False,
        ghosts: bool = False,
        method: Method = "auto",
    ) -> None:
        """
        Read a section into a section of an array in memory. Collective.

        ``into[into_key] = numpy.transpose(self[key], axes)``, in which each rank fills its part of
        `into`.

        Parameters
        ----------
        key
            The section on disk, as in ``a[key]``: integers, slices, ``...``, None.
        into
            A `DistArray` on the ranks that opened this array, in any distribution. In a process on its
            own also a `numpy.ndarray`.
        into_key
            The section of it, as in ``a[key]``; by default all.
        transpose
            Whether the axes of the section on disk are turned round, or their order, as
            `numpy.transpose` takes it.
        ghosts
            Whether ghosts that lie in the section are filled as well.
        method
            As for `CollectiveArray.read_all`.

        Raises
        ------
        UsageError
            In a process on its own, and as the cause of `CollectiveError`: ``shapes-differ``,
            ``bad-axis``, ``bad-partner``. Nothing has been moved.
        CollectiveError
            On all ranks, if any rank failed, meant another section, or called something else. What is in
            the section in memory is then undefined.
        BudgetError
            On all ranks, as for `CollectiveArray.read_all`.

        Notes
        -----
        Elements go into `into` itself, transposed or not. Memory besides that is for the slots of
        `CollectiveArray.read_all`; where the dtypes differ, 64 MiB at most and a quarter of what is free
        of the budget, in which elements are cast, in passes. All of it counts in the budget.

        ``DRA_Read_section`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("d.npy", np.arange(48).reshape(6, 8))
        >>> def work(comm):
        ...     columns = outcore.Distribution((4, 4), ["*", "cyclic"], comm.size)
        ...     a = outcore.DistArray.zeros(columns, "i8", transport=comm)
        ...     with outcore.disk_array("d.npy", comm=comm) as d:
        ...         d.read_section(np.s_[1:3, ::2], a, np.s_[1:3])
        ...     return a.gather_all(0)
        >>> SimWorld(2).run(work)[0]
        array([[ 0,  0,  0,  0],
               [ 8, 10, 12, 14],
               [16, 18, 20, 22],
               [ 0,  0,  0,  0]])
        """
        self._move(Wanted("read_section", key, into, into_key, transpose, ghosts, method))

    def write_section(
        self,
        key: Any,
        source: Partner,
        source_key: Any = ...,
        *,
        transpose: Axes = False,
        method: Method = "auto",
    ) -> None:
        """
        Write a section from a section of an array in memory. Collective.

        ``self[key] = numpy.transpose(source[source_key], axes)``, to which each rank gives its part of
        `source`. Of elements that several ranks have, that of the owner is written; ghosts are not.

        Parameters
        ----------
        key
            The section on disk, as for `read_section`.
        source, source_key
            The array in memory, and its section, as for `read_section`.
        transpose
            Whether the axes of the section in memory are turned round, or their order.
        method
            As for `CollectiveArray.write_all`.

        Raises
        ------
        UsageError, BudgetError
            As `read_section`.
        CollectiveError
            On all ranks, as `read_section`. Each block of the file is then old or new; of a write whose
            elements are cast in several passes some passes may be done.

        Notes
        -----
        Memory as for `read_section`. ``DRA_Write_section`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.zarr", (4, 6), "i4", typical=(2, 3))
        >>> d.write_section(np.s_[3, ::2], np.arange(9).reshape(3, 3), np.s_[::-1, 1])
        >>> d.array[3]
        array([7, 0, 4, 0, 1, 0], dtype=int32)
        """
        self._move(
            Wanted("write_section", key, source, source_key, transpose, method=method, write=True)
        )

    def iread(
        self,
        into: Partner,
        *,
        transpose: Axes = False,
        ghosts: bool = False,
        method: Method = "auto",
    ) -> CollectiveRequest[None]:
        """
        Start to read the whole array; see `read` and `iread_section`. Collective.

        Parameters
        ----------
        into, transpose, ghosts, method
            As for `read`.

        Returns
        -------
        CollectiveRequest
            Its `wait` returns when the elements are there, and raises what `read` would.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.npy", (3, 4), "f8")
        >>> got = np.ones((3, 4))
        >>> d.iread(got).wait()
        >>> got.sum()
        np.float64(0.0)
        """
        return self._start(Wanted("read", ..., into, ..., transpose, ghosts, method))

    def iwrite(
        self, source: Partner, *, transpose: Axes = False, method: Method = "auto"
    ) -> CollectiveRequest[None]:
        """
        Start to write the whole array; see `write` and `iwrite_section`. Collective.

        Parameters
        ----------
        source, transpose, method
            As for `write`.

        Returns
        -------
        CollectiveRequest
            Its `wait` returns when the elements are in the file, and raises what `write` would.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.npy", (3, 4), "f8")
        >>> d.iwrite(np.ones((3, 4))).wait()
        >>> d.array[2]
        array([1., 1., 1., 1.])
        """
        return self._start(Wanted("write", ..., source, ..., transpose, method=method, write=True))

    def iread_section(
        self,
        key: Any,
        into: Partner,
        into_key: Any = ...,
        *,
        transpose: Axes = False,
        ghosts: bool = False,
        method: Method = "auto",
    ) -> CollectiveRequest[None]:
        """
        Start to read a section into a section of an array in memory. Collective.

        Parameters
        ----------
        key, into, into_key, transpose, ghosts, method
            As for `read_section`. Leave the section in memory alone until the request is done.

        Returns
        -------
        CollectiveRequest
            Its `test` tells whether it has ended (the probe of the paper), its `wait` returns when the
            elements are there, and raises what `read_section` would.

        Notes
        -----
        Any number may be in flight. They are made one at a time, in the order in which they were
        started, by a thread of the communicator, without help of the ranks; so a read gets what a write
        that was started before it wrote. Any other collective call comes after them. As for
        `CollectiveArray.iread_all`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("d.npy", np.arange(24.0).reshape(6, 4))
        >>> d, total = outcore.disk_array("d.npy"), 0.0
        >>> now, following = np.empty(4), np.empty(4)
        >>> request = d.iread_section(0, following)
        >>> for row in range(6):
        ...     request.wait()
        ...     now, following = following, now
        ...     request = d.iread_section(min(row + 1, 5), following)
        ...     total += now.sum()  # while the next row is read
        >>> request.wait()
        >>> total
        np.float64(276.0)
        """
        return self._start(Wanted("read_section", key, into, into_key, transpose, ghosts, method))

    def iwrite_section(
        self,
        key: Any,
        source: Partner,
        source_key: Any = ...,
        *,
        transpose: Axes = False,
        method: Method = "auto",
    ) -> CollectiveRequest[None]:
        """
        Start to write a section from a section of an array in memory. Collective.

        Parameters
        ----------
        key, source, source_key, transpose, method
            As for `write_section`. Do not change the section in memory before the request is done.

        Returns
        -------
        CollectiveRequest
            Its `wait` returns when the elements are in the file, and raises what `write_section` would.

        Notes
        -----
        As for `iread_section`. `flush` and `close` wait for it, and raise its failure if nobody has seen
        it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.npy", (4, 6), "i4")
        >>> requests = [d.iwrite_section(row, np.full(6, row)) for row in range(4)]
        >>> d.flush()
        >>> all(request.test() for request in requests), d.array[:, 5].tolist()
        (True, [0, 1, 2, 3])
        """
        return self._start(
            Wanted("write_section", key, source, source_key, transpose, method=method, write=True)
        )

    def explain(
        self,
        key: Any,
        partner: Partner,
        partner_key: Any = ...,
        *,
        transpose: Axes = False,
        ghosts: bool = False,
        method: Method = "auto",
        write: bool = False,
    ) -> ResidentReport:
        """
        Tell what `read_section` (or `write_section`) would do, without doing it. Collective.

        Parameters
        ----------
        key, partner, partner_key, transpose, ghosts, method
            As for `read_section` or `write_section`.
        write
            Explain `write_section`.

        Returns
        -------
        ResidentReport
            Whether the section is aligned with the layout, what chunks it touches, who reads what and
            why. The same on all ranks.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As the call that is explained.

        Notes
        -----
        Nothing is moved, and no memory for it is taken. Nieplocha, Foster, section 4: *aligned* and
        *non-aligned* sections.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.zarr", (100, 100), "f8", chunks=(20, 50))
        >>> report = d.explain(np.s_[10:60, 0:50], np.empty((50, 50)))
        >>> report.aligned, report.section_bytes, report.aligned_bytes
        (False, 20000, 24000)
        >>> d.explain(np.s_[20:60, 0:50], np.empty((40, 50))).aligned
        True
        """
        wanted = Wanted(
            "explain", key, partner, partner_key, transpose, ghosts and not write, method, write
        )
        return explained(self._group, self._array, self._layout, wanted)

    # -------------------------------------------------------------------------------------- its life

    def flush(self) -> None:
        """
        Wait for started writes, then make everything written durable. Collective.

        Raises
        ------
        CollectiveError, StorageError
            As `CollectiveArray.flush_all`, or `DiskArray.flush` in a process on its own.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("d.npy", (3, 4), "f8")
        >>> d.write(np.ones((3, 4)))
        >>> d.flush()  # now it outlives a crash of the machine
        """
        if isinstance(self._array, CollectiveArray):
            self._array.flush_all()
        else:
            self._array.flush()

    def rename(self, name: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """
        Give the array another name, durably; a temporary one stays from then on. Collective.

        Parameters
        ----------
        name
            The new one, on the same file system; without a suffix it keeps the one it has.
        overwrite
            Replace what has that name.

        Raises
        ------
        UsageError, UnsupportedError
            ``closed``; ``bad-suffix``: the suffix is that of another format; ``cannot-change``: it lies
            in a file with other arrays.
        StorageError
            The system said no; `AlreadyExistsError`: something has that name, and `overwrite` is not
            set. The array keeps its old name.
        CollectiveError
            On all ranks, if any failed, or meant another name; of several ranks the errors above are
            its cause.

        Notes
        -----
        Waits for what is in flight, and flushes: under the new name there is never half an array. Who
        opened it by its old name elsewhere has to open it again.

        ``DRA_Terminate`` moves arrays that were not deleted to where they stay (Nieplocha, Foster,
        section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.disk_array("scratch", (3, 4), "f8", keep=False)
        >>> d.write(np.ones((3, 4)))
        >>> d.rename("result")
        >>> d.close()
        >>> outcore.open("result.npy")[0, 0]
        np.float64(1.0)
        """
        new = new_name(self._group, self._array, name, overwrite=overwrite)
        self.flush()
        self._array, failure = renamed(self._group, self._array, new, overwrite=overwrite)
        if failure is not None:
            raise failure
        if self._hold is not None:
            self._forget_end()
            self._hold.keep()
            self._hold = None

    def delete(self) -> None:
        """
        Close the array and remove it from the disk. Collective.

        Raises
        ------
        UnsupportedError
            ``cannot-change``: it lies in a file with other arrays. It is closed.
        StorageError, CollectiveError
            The system said no, on this rank or on another.

        Notes
        -----
        ``DRA_Delete`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import os, outcore
        >>> d = outcore.disk_array("d.npy", (3, 4), "f8")
        >>> d.delete()
        >>> os.path.exists("d.npy")
        False
        """
        with contextlib.suppress(OutcoreError):  # nobody wants what could not be written
            self._array.close()
        removed(self._group, self._array)
        self.close()

    def close(self) -> None:
        """
        Wait for what is in flight, and release the files; a temporary array goes with the last rank.

        Each rank closes its own; closing twice does nothing. Raises what a started write raised, if
        nobody has seen it.

        Examples
        --------
        >>> import outcore
        >>> with outcore.disk_array("d.npy", (3, 4), "f8") as d:
        ...     pass
        >>> d.closed
        True
        """
        try:
            self._array.close()
        finally:
            let_go, self._let_go = self._let_go, None
            if let_go is not None:
                let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: nobody comes for them
            self._array.handle.requests.abandon()
        self.close()

    # -------------------------------------------------------------------------------------- its parts

    def _move(self, wanted: Wanted) -> None:
        Movement(self._group, self._array, wanted).run()

    def _start(self, wanted: Wanted) -> CollectiveRequest[None]:
        call = partial(self._move, wanted)
        return start(self._group, self._array, call, writes=wanted.write)

    def _forget_end(self) -> None:
        let_go, self._let_go = self._let_go, None
        if isinstance(let_go, weakref.finalize):
            let_go.detach()
