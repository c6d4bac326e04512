"""
`DiskResidentArray`: an array on disk that ranks use as a level of memory.

Problem. Out-of-core programs move sections between arrays on disk and arrays that are divided over the
memories of ranks, and compute at the same time. They should not need to know files, offsets or requests.
Approach. The array *has* an array on disk of an ordinary format (`array`), opened by all ranks together.
It adds movement between any section of that array and any section of a `DistArray` (`movement`), names,
and a life cycle (`temporary`). The thread of the communicator runs started movements one after another.

Invariants. With several ranks, methods are collective: all ranks call them in the same order, and all
return or all raise.

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
from typing import Any

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
from outcore.ranks.resident.movement import Movement, MovementRequest
from outcore.ranks.resident.naming import remove_array, rename_array, resolve_new_name
from outcore.ranks.resident.report import ResidentReport, make_resident_report
from outcore.ranks.resident.temporary import TemporaryClaim
from outcore.ranks.transport import Transport

__all__ = ["DiskResidentArray"]

Partner = DistArray | NDArray[Any]
Axes = bool | Sequence[int]


class DiskResidentArray(StaysInProcess, ArrayOnDisk):
    """
    An array on disk that a parallel program uses as a level of memory. Made by `outcore.mpi.disk_array`.

    Sections move between this array and an array in memory: a `DistArray` in any distribution, or, in a
    single process, a NumPy array. The two sections have the same shape and may be anywhere in their
    arrays. Keys are those of NumPy's basic indexing: integers, slices with any step, ``...``, None. With
    ``transpose`` the axes of the source are permuted as in `numpy.transpose`. Elements are cast as in an
    assignment of NumPy.

    Notes
    -----
    All ranks make the same calls in the same order, with the same arguments except their own part of the
    array in memory. All readers see written elements when a call returns. Elements are durable after
    `flush`, or immediately with ``hints={"sync": True}``.

    Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
    Computations*, section 3.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> d = outcore.mpi.disk_array("big", (1000, 2000), "f8", typical_sections=(100, 200))
    >>> block = np.arange(20000.0).reshape(100, 200)
    >>> request = d.iwrite_section(np.s_[201:301, 201:401], block)
    >>> request.wait()
    >>> turned = np.empty((200, 100))
    >>> d.read_section(np.s_[201:301, 201:401], turned, transpose=True)
    >>> bool((turned == block.T).all())
    True
    >>> d.delete()
    """

    _elsewhere = "send its path, and open it there with outcore.mpi.disk_array"

    def __init__(
        self,
        array: DiskArray,
        group: Transport,
        layout: ResidentLayout,
        hold: TemporaryClaim | None = None,
    ) -> None:
        self._array, self._group, self._layout = array, group, layout
        self._let_go: Callable[[], object] | None = None
        self._hold = hold
        if hold is not None:
            self._let_go = weakref.finalize(self, hold.release)

    # ------------------------------------------------------------------------------------ properties

    @property
    def array(self) -> DiskArray:
        """Array on disk: a `CollectiveArray` if ranks opened it together, otherwise a `DiskArray`."""
        return self._array

    @property
    def info(self) -> ArrayInfo:
        """Metadata of the array, as read by its format."""
        return self._array.info

    @property
    def mode(self) -> str:
        """Mode of `array`."""
        return self._array.mode

    @property
    def hints(self) -> Hints:
        """Hints of this array."""
        return self._array.hints

    @property
    def transport(self) -> Transport:
        """Transport of the ranks that have the array: a `Transport`."""
        return self._group

    @property
    def layout(self) -> ResidentLayout:
        """Layout on disk and the reason for it; ``print`` it."""
        return self._layout

    @property
    def temporary(self) -> bool:
        """True if the array is removed when the last process that has it closes it or ends."""
        return self._hold is not None

    @property
    def closed(self) -> bool:
        """True if the array is closed."""
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
        Read the whole array into an array in memory of the same shape. Collective.

        Parameters
        ----------
        into, transpose, ghosts, method
            As for `read_section`.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As for `read_section`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (3, 4), "f8")
        >>> d.write(np.arange(12.0).reshape(3, 4))
        >>> turned = np.empty((4, 3))
        >>> d.read(turned, transpose=True)
        >>> turned[3]
        array([ 3.,  7., 11.])
        """
        self._move(MovementRequest("read", ..., into, ..., transpose, ghosts, method))

    def write(self, source: Partner, *, transpose: Axes = False, method: Method = "auto") -> None:
        """
        Write the whole array from an array in memory of the same shape. Collective.

        Parameters
        ----------
        source, transpose, method
            As for `write_section`.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As for `write_section`.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.mpi.Distribution((4, 6), ["block", "*"], comm.size)
        ...     a = outcore.mpi.DistArray.from_function(lambda i, j: 10 * i + j, rows, transport=comm)
        ...     d = outcore.mpi.disk_array("d.npy", (6, 4), "i4", comm=comm)
        ...     d.write(a, transpose=True)
        ...     d.close()
        >>> _ = SimWorld(2).run(work)
        >>> outcore.open("d.npy")[5]
        array([ 5, 15, 25, 35], dtype=int32)
        """
        self._move(MovementRequest("write", ..., source, ..., transpose, method=method, write=True))

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

        Computes ``into[into_key] = numpy.transpose(self[key], axes)``, where each rank fills its part of
        `into`.

        Parameters
        ----------
        key
            Section on disk, as in ``a[key]``: integers, slices, ``...``, None.
        into
            A `DistArray` on the ranks that opened this array, in any distribution. In a single process
            also a `numpy.ndarray`.
        into_key
            Section of `into`, as in ``a[key]``; by default the whole array.
        transpose
            Whether to reverse the axes of the section on disk, or their order as for `numpy.transpose`.
        ghosts
            Whether to fill ghosts in the section as well.
        method
            As for `CollectiveArray.read_all`.

        Raises
        ------
        UsageError
            ``shapes-differ``, ``bad-axis``, ``bad-partner``: the sections, the axes or `into` do not
            match. With several ranks, these are causes of `CollectiveError`. Nothing has been moved.
        CollectiveError
            On all ranks if any rank failed, named another section, or made a different call. The
            contents of the section in memory are then undefined.
        BudgetError
            On all ranks, as for `CollectiveArray.read_all`.

        Notes
        -----
        Elements are read directly into `into`, transposed or not. Memory in addition: the slots of
        `CollectiveArray.read_all`, and, if the dtypes differ, a buffer in which elements are cast in
        passes, at most 64 MiB and a quarter of the free budget. All of it counts in the budget.

        ``DRA_Read_section`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("d.npy", np.arange(48).reshape(6, 8))
        >>> def work(comm):
        ...     columns = outcore.mpi.Distribution((4, 4), ["*", "cyclic"], comm.size)
        ...     a = outcore.mpi.DistArray.zeros(columns, "i8", transport=comm)
        ...     with outcore.mpi.disk_array("d.npy", comm=comm) as d:
        ...         d.read_section(np.s_[1:3, ::2], a, np.s_[1:3])
        ...     return a.gather_all(0)
        >>> SimWorld(2).run(work)[0]
        array([[ 0,  0,  0,  0],
               [ 8, 10, 12, 14],
               [16, 18, 20, 22],
               [ 0,  0,  0,  0]])
        """
        self._move(MovementRequest("read_section", key, into, into_key, transpose, ghosts, method))

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

        Computes ``self[key] = numpy.transpose(source[source_key], axes)``, where each rank contributes
        its part of `source`. If several ranks have copies of an element, that of the owner is written.
        Ghosts are not written.

        Parameters
        ----------
        key
            Section on disk, as for `read_section`.
        source, source_key
            Array in memory and its section, as for `read_section`.
        transpose
            Whether to reverse the axes of the section in memory, or their order as for
            `numpy.transpose`.
        method
            As for `CollectiveArray.write_all`.

        Raises
        ------
        UsageError, BudgetError
            As for `read_section`.
        CollectiveError
            On all ranks, as for `read_section`. Each block of the file is then old or new. If elements
            are cast in several passes, some passes may be complete.

        Notes
        -----
        Memory as for `read_section`. ``DRA_Write_section`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.zarr", (4, 6), "i4", typical_sections=(2, 3))
        >>> d.write_section(np.s_[3, ::2], np.arange(9).reshape(3, 3), np.s_[::-1, 1])
        >>> d.array[3]
        array([7, 0, 4, 0, 1, 0], dtype=int32)
        """
        self._move(
            MovementRequest(
                "write_section", key, source, source_key, transpose, method=method, write=True
            )
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
            Request whose `wait` returns when the elements have been read, or raises the errors of
            `read`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (3, 4), "f8")
        >>> got = np.ones((3, 4))
        >>> d.iread(got).wait()
        >>> got.sum()
        np.float64(0.0)
        """
        return self._start(MovementRequest("read", ..., into, ..., transpose, ghosts, method))

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
            Request whose `wait` returns when the elements are in the file, or raises the errors of
            `write`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (3, 4), "f8")
        >>> d.iwrite(np.ones((3, 4))).wait()
        >>> d.array[2]
        array([1., 1., 1., 1.])
        """
        return self._start(
            MovementRequest("write", ..., source, ..., transpose, method=method, write=True)
        )

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
            As for `read_section`. Do not use the section in memory until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `test` returns whether it is done (the probe of the paper). Its `wait` returns
            when the elements have been read, or raises the errors of `read_section`.

        Notes
        -----
        Any number of requests may be in flight. A thread of the communicator runs them one at a time, in
        the order in which they were started, without action by the ranks. A read therefore returns the
        values of a write that was started before it. Any other collective call runs after them. See also
        `CollectiveArray.iread_all`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("d.npy", np.arange(24.0).reshape(6, 4))
        >>> d, total = outcore.mpi.disk_array("d.npy"), 0.0
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
        return self._start(
            MovementRequest("read_section", key, into, into_key, transpose, ghosts, method)
        )

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
            As for `write_section`. Do not change the section in memory until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the elements are in the file, or raises the errors of
            `write_section`.

        Notes
        -----
        As for `iread_section`. `flush` and `close` wait for the request, and raise its error if it has
        not been raised yet.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (4, 6), "i4")
        >>> requests = [d.iwrite_section(row, np.full(6, row)) for row in range(4)]
        >>> d.flush()
        >>> all(request.test() for request in requests), d.array[:, 5].tolist()
        (True, [0, 1, 2, 3])
        """
        return self._start(
            MovementRequest(
                "write_section", key, source, source_key, transpose, method=method, write=True
            )
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
        Report how `read_section` (or `write_section`) would work, without moving elements. Collective.

        Parameters
        ----------
        key, partner, partner_key, transpose, ghosts, method
            As for `read_section` or `write_section`.
        write
            Whether to explain `write_section`.

        Returns
        -------
        ResidentReport
            The same on all ranks: whether the section is aligned with the layout, which chunks it
            touches, and which ranks read which data, with the reason.

        Raises
        ------
        UsageError, CollectiveError, BudgetError
            As for the explained call.

        Notes
        -----
        Nothing is moved, and no memory is allocated for it. Nieplocha, Foster, section 4: *aligned* and
        *non-aligned* sections.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.zarr", (100, 100), "f8", chunks=(20, 50))
        >>> report = d.explain(np.s_[10:60, 0:50], np.empty((50, 50)))
        >>> report.aligned, report.section_bytes, report.aligned_bytes
        (False, 20000, 24000)
        >>> d.explain(np.s_[20:60, 0:50], np.empty((40, 50))).aligned
        True
        """
        wanted = MovementRequest(
            "explain", key, partner, partner_key, transpose, ghosts and not write, method, write
        )
        return make_resident_report(self._group, self._array, self._layout, wanted)

    # -------------------------------------------------------------------------------------- life cycle

    def flush(self) -> None:
        """
        Wait for started writes, then make all written data durable. Collective.

        Raises
        ------
        CollectiveError, StorageError
            As for `CollectiveArray.flush_all`, or for `DiskArray.flush` in a single process.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (3, 4), "f8")
        >>> d.write(np.ones((3, 4)))
        >>> d.flush()  # now it outlives a crash of the machine
        """
        if isinstance(self._array, CollectiveArray):
            self._array.flush_all()
        else:
            self._array.flush()

    def rename(self, name: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """
        Rename the array durably; a temporary array becomes permanent. Collective.

        Parameters
        ----------
        name
            New name, on the same file system. Without a suffix, the array keeps its suffix.
        overwrite
            Whether to replace an existing file or folder of that name.

        Raises
        ------
        UsageError, UnsupportedError
            ``closed``: the array is closed. ``bad-suffix``: the suffix is that of another format.
            ``cannot-change``: the array is in a file with other arrays.
        StorageError
            An operating system call failed. `AlreadyExistsError` if the name exists and `overwrite` is
            not set. The array keeps its old name.
        CollectiveError
            On all ranks if any rank failed or gave another name. With several ranks, the errors above
            are its cause.

        Notes
        -----
        Waits for requests in flight and flushes first, so the new name never shows an incomplete array.
        Other programs that opened it by its old name must open it again.

        ``DRA_Terminate`` moves arrays that were not deleted to permanent storage (Nieplocha, Foster,
        section 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> d = outcore.mpi.disk_array("scratch", (3, 4), "f8", keep=False)
        >>> d.write(np.ones((3, 4)))
        >>> d.rename("result")
        >>> d.close()
        >>> outcore.open("result.npy")[0, 0]
        np.float64(1.0)
        """
        new = resolve_new_name(self._group, self._array, name, overwrite=overwrite)
        self.flush()
        self._array, failure = rename_array(self._group, self._array, new, overwrite=overwrite)
        if failure is not None:
            raise failure
        if self._hold is not None:
            if isinstance(self._let_go, weakref.finalize):
                self._let_go.detach()
            self._let_go = None
            self._hold.keep()
            self._hold = None

    def delete(self) -> None:
        """
        Close the array and remove it from the disk. Collective.

        Raises
        ------
        UnsupportedError
            ``cannot-change``: the array is in a file with other arrays. It is closed but not removed.
        StorageError, CollectiveError
            An operating system call failed, on this rank or on another.

        Notes
        -----
        ``DRA_Delete`` (Nieplocha, Foster, section 3).

        Examples
        --------
        >>> import os, outcore
        >>> d = outcore.mpi.disk_array("d.npy", (3, 4), "f8")
        >>> d.delete()
        >>> os.path.exists("d.npy")
        False
        """
        with contextlib.suppress(OutcoreError):  # errors of writes do not matter any more
            self._array.close()
        remove_array(self._group, self._array)
        self.close()

    def close(self) -> None:
        """
        Wait for requests in flight and close the files; the last rank removes a temporary array.

        Each rank closes its own handle; closing twice does nothing. Raises the error of a started write
        if it has not been raised yet.

        Examples
        --------
        >>> import outcore
        >>> with outcore.mpi.disk_array("d.npy", (3, 4), "f8") as d:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Ctrl-C: no rank will wait for the requests
        if kind is not None and not issubclass(kind, Exception):
            self._array.handle.requests.abandon()
        self.close()

    # -------------------------------------------------------------------------------------- helpers

    def _move(self, wanted: MovementRequest) -> None:
        Movement(self._group, self._array, wanted).run()

    def _start(self, wanted: MovementRequest) -> CollectiveRequest[None]:
        call = partial(self._move, wanted)
        return start(self._group, self._array, call, writes=wanted.write)
