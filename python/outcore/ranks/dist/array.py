"""
Arrays divided over ranks, in memory: `DistArray`.

Problem. Each rank works on its part of an array. Then it needs other elements: those of another
distribution, the neighbours of its own, the whole array, or the contents of a file. Approach. A part is
a product of ranges on each axis. It therefore consists of a few regular sections, of memory
(`redistribution`) and of a file (`collective`).

Invariants. A `DistArray` *has* an array and is not an array itself: ``local`` is an ordinary NumPy
array. Methods that communicate end in ``_all``, and every rank must call them. Each rank calls one-sided
methods (`one_sided`) independently. Steps that can fail on a single rank run before the first element is
sent, and the ranks agree on the outcome of the copies: all ranks raise.

Reference: *PASSION: Parallel and Scalable Software for Input-Output*, sections 3 (files of distributed
arrays) and 4.3 (overlap areas); Thakur, Choudhary, *An Extended Two-Phase Method for Accessing Sections
of Out-of-Core Arrays*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.base.distribution import Distribution, Ghosts, Periodic
from outcore.errors import DistributionError
from outcore.ranks.collective.call import CollectiveCall
from outcore.ranks.collective.items import Item, get_array_id, prepare_read, prepare_write
from outcore.ranks.collective.planning import Method
from outcore.ranks.collective.request import CollectiveRequest, start
from outcore.ranks.dist.redistribution import (
    Combination,
    accumulate_all,
    update_periodic_ghosts_all,
)
from outcore.ranks.dist.whole import WholeArrays

__all__ = ["DistArray"]


class DistArray(WholeArrays):
    """
    One rank's part of an array that is divided over ranks.

    Parameters
    ----------
    distribution
        Distribution of the elements over the ranks.
    local
        Elements of this rank, including ghosts; used directly, not copied. See also `empty`, `zeros` and
        `from_function`.
    transport
        Transport, or communicator of mpi4py; by default a single rank.
    ghosts
        Widths of the ghosts, which are copies of elements of the neighbours: one width for all axes, or
        per axis a width or a pair (before, after). Ghosts are cut off at the ends of the array, and have
        width 0 on CYCLIC axes.
    periodic
        Whether the array is periodic, for all axes or per axis. Ghosts beyond an end are then copies of
        elements from the other end, as in ``numpy.pad(mode="wrap")``, even if they are wider than the
        part of a neighbour or than the array. Every rank then has the same number of ghosts, including
        the first and the last.

    Raises
    ------
    DistributionError
        ``bad-grid``: the distribution is for another number of ranks. ``bad-distribution``: `local` does
        not have the shape of this rank's part, or `ghosts` or `periodic` is invalid.
    UnsupportedError
        ``object-dtype``: the elements do not have a fixed size.

    Notes
    -----
    Each rank makes its own part. Nothing is compared with other ranks before the first collective call.
    Making an array is not collective, except with a communicator that has no transport yet: then all
    ranks must make their parts (see `outcore.ranks.transport.transport`). The memory of `local` belongs
    to the caller and does not count in the memory budget.

    An *in-core local array* with *overlap areas* (PASSION, sections 4.1.2 and 4.3), read and written in
    any distribution (section 3.2).

    Examples
    --------
    >>> from outcore.mpi import DistArray, Distribution
    >>> rows = Distribution((4, 6), ["block", "*"], 1)
    >>> a = DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
    >>> a.owned[1, 2]
    np.int32(12)
    >>> columns = a.redistribute_all(Distribution((4, 6), ["*", "cyclic"], 1))
    >>> (columns.owned == a.owned).all()
    np.True_
    """

    def read_all(self, array: DiskArray, *, ghosts: bool = False, method: Method = "auto") -> None:
        """
        Read the whole array from disk, each rank its part. Every rank must call this.

        Parameters
        ----------
        array
            Array on disk with the same shape and dtype, opened by this rank with or without ``comm=``.
        ghosts
            Whether to read the ghosts as well.
        method
            As for `CollectiveArray.read_all`.

        Raises
        ------
        CollectiveError
            On all ranks if any rank failed (also if the shape or the dtype differs) or made a different
            call. The contents of `local` are then undefined.
        BudgetError
            On all ranks, as for `CollectiveArray.read_all`.

        Notes
        -----
        Elements are read into `local` without another array of its size. Memory for two-phase as for
        `CollectiveArray.read_all`.

        ``PASSION_read`` (PASSION, section 3.2), with the extended two-phase method (Thakur, Choudhary,
        section 3.1).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> field = outcore.create("field.npy", data=np.arange(12.0).reshape(3, 4))
        >>> d = outcore.mpi.Distribution((3, 4), ["block", "cyclic"], (1, 1))
        >>> a = outcore.mpi.DistArray.empty(d)
        >>> a.read_all(field)
        >>> a.owned[2, 1]
        np.float64(9.0)
        """
        self._read(array, ghosts, method)

    def iread_all(
        self, array: DiskArray, *, ghosts: bool = False, method: Method = "auto"
    ) -> CollectiveRequest[None]:
        """
        Start to read the whole array from disk, each rank its part. Every rank must call this.

        Parameters
        ----------
        array, ghosts, method
            As for `read_all`. Do not use `local` until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the part of this rank has been read, or raises the errors
            of `read_all`.

        Notes
        -----
        As for `CollectiveArray.iread_all`; memory as for `read_all`.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> field = outcore.create("field.npy", data=np.arange(12.0).reshape(3, 4))
        >>> d = outcore.mpi.Distribution((3, 4), ["block", "cyclic"], (1, 1))
        >>> a = outcore.mpi.DistArray.empty(d)
        >>> request = a.iread_all(field)
        >>> request.wait()
        >>> a.owned[2, 1]
        np.float64(9.0)
        """
        call = partial(self._read, array, ghosts, method)
        return start(self._transport, array, call, writes=False)

    def _read(self, array: DiskArray, ghosts: bool, method: Method) -> None:
        def bring() -> list[Item]:
            self._check_match(array)
            return [prepare_read(array, key, view) for key, view in self.pieces(ghosts=ghosts)]

        self._access_disk("read_all", array, bring, method, ghosts=ghosts)

    def write_all(self, array: DiskArray, *, method: Method = "auto") -> None:
        """
        Write the whole array to disk, each rank its part. Every rank must call this.

        If several ranks have copies of an element, that of the owner is written. Ghosts are not written.

        Parameters
        ----------
        array
            Array on disk with the same shape and dtype, open for writing.
        method
            As for `CollectiveArray.write_all`.

        Raises
        ------
        CollectiveError
            On all ranks if any rank failed (also if the shape or the dtype differs) or made a different
            call. Each block of the file is then old or new.
        BudgetError
            On all ranks, as for `CollectiveArray.write_all`.

        Notes
        -----
        All readers see the elements when the call returns. They are durable after
        `CollectiveArray.flush_all`, after `DiskArray.flush` on every rank, or immediately with
        ``Hints(sync=True)``. Memory as for `CollectiveArray.write_all`.

        ``PASSION_write`` (PASSION, section 3.2), with the extended two-phase method (Thakur, Choudhary,
        section 3.2).

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.mpi.Distribution((3, 4), ["block", "*"], 1)
        >>> a = outcore.mpi.DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
        >>> field = outcore.create("field.zarr", (3, 4), "i4", chunks=2, compression="zstd")
        >>> a.write_all(field)
        >>> field[2, 3]
        np.int32(23)
        """
        self._write(array, method)

    def iwrite_all(self, array: DiskArray, *, method: Method = "auto") -> CollectiveRequest[None]:
        """
        Start to write the whole array to disk, each rank its part. Every rank must call this.

        Parameters
        ----------
        array, method
            As for `write_all`. Do not change `local` until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the elements are in the files, or raises the errors of
            `write_all`.

        Notes
        -----
        As for `CollectiveArray.iwrite_all`; memory as for `write_all`.

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.mpi.Distribution((3, 4), ["block", "*"], 1)
        >>> a = outcore.mpi.DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
        >>> field = outcore.create("field.npy", (3, 4), "i4")
        >>> a.iwrite_all(field).wait()
        >>> field[2, 3]
        np.int32(23)
        """
        return start(self._transport, array, lambda: self._write(array, method), writes=True)

    def _write(self, array: DiskArray, method: Method) -> None:
        def bring() -> list[Item]:
            self._check_match(array)
            if not self._distribution.core.is_owner(self.rank):
                return []
            return [prepare_write(array, key, view) for key, view in self.pieces()]

        self._access_disk("write_all", array, bring, method)

    def _access_disk(
        self,
        name: str,
        array: DiskArray,
        bring: Callable[[], list[Item]],
        method: Method,
        *,
        ghosts: bool = False,
    ) -> None:
        """Move this rank's part from or to an array on disk that must be the same on all ranks."""
        CollectiveCall(
            self._transport,
            f"DistArray.{name}",
            bring,
            method,
            lambda: array.hints,
            meaning=lambda: (get_array_id(array), str(self._distribution), ghosts),
            describe=lambda: (
                f"DistArray.{name} of an array of shape {self.shape}, {self._distribution}, ghosts="
                f"{ghosts}, on disk {array.path!r}"
            ),
        ).run()

    def _check_match(self, array: DiskArray) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise DistributionError(
                f"{array.path!r} has shape {array.shape} and dtype {array.dtype}, but the distributed "
                f"array has {self.shape} and {self.dtype}; use arrays of the same shape and dtype",
                code="bad-distribution",
                path=array.path,
            )

    def redistribute_all(
        self, distribution: Distribution, *, ghosts: Ghosts = 0, periodic: Periodic = False
    ) -> DistArray:
        """
        Return a copy of the array in another distribution. Every rank must call this.

        Parameters
        ----------
        distribution
            New distribution, of an array of the same shape over the same number of ranks.
        ghosts, periodic
            Ghosts of the new array, as for the class; they are filled as well.

        Returns
        -------
        DistArray
            A new array of the same dtype; this array does not change.

        Raises
        ------
        DistributionError
            On all ranks if they disagree about the call (``ranks-disagree``), or if one of them cannot
            do its part (``failed-elsewhere``, with its number and message). That rank raises its own
            error: of the new distribution (as the class), `MemoryError`, or `BudgetError` if the memory
            budget has no space for one element of each message.
        CollectiveError
            On all ranks if one of them called something other than a method of a `DistArray`, or could
            not send data that others wait for. The ranks cannot work together any more in that case.

        Notes
        -----
        In addition to both arrays, message buffers need at most 64 MiB and at most half of the free
        memory budget, in which they count. Larger messages are sent in rounds. Each rank receives each
        element that it needs once, and none of which it has a copy.

        The second phase of the two-phase method (PASSION, section 3.1).

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def transposed(comm):
        ...     rows = Distribution((4, 4), ["block", "*"], comm.size)
        ...     a = DistArray.from_function(lambda i, j: 10 * i + j, rows, "i8", transport=comm)
        ...     return a.redistribute_all(Distribution((4, 4), ["*", "block"], comm.size)).local
        >>> SimWorld(2).run(transposed)[1]
        array([[ 2,  3],
               [12, 13],
               [22, 23],
               [32, 33]])
        """
        make = partial(
            DistArray.empty,
            distribution,
            self.dtype,
            transport=self._transport,
            ghosts=ghosts,
            periodic=periodic,
        )
        made = self._bring_all("redistribute_all", make)
        if made._torus is not None:
            made.update_ghosts_all()
        return made

    def iredistribute_all(
        self, distribution: Distribution, *, ghosts: Ghosts = 0, periodic: Periodic = False
    ) -> CollectiveRequest[DistArray]:
        """
        Start to copy the array into another distribution. Every rank must call this.

        Parameters
        ----------
        distribution, ghosts, periodic
            As for `redistribute_all`. Do not change `local` until the request is done.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns the new array, or raises the errors of `redistribute_all`.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i * i, Distribution(4, ["block"], 1), "i8")
        >>> a.iredistribute_all(Distribution(4, ["cyclic"], 1)).wait().local
        array([0, 1, 4, 9])
        """
        call = partial(self.redistribute_all, distribution, ghosts=ghosts, periodic=periodic)
        return self._start("redistribution", call)

    def update_ghosts_all(self) -> None:
        """
        Set the ghosts to the current values of their owners. Every rank must call this.

        This includes corners, ghosts that are wider than the part of a neighbour, and ghosts beyond the
        ends of a periodic axis, which get the values from its other end.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as for `redistribute_all`. If messages did not fit in one round and a later
            round failed, some ghosts are new and others are not.

        Notes
        -----
        Memory as for `redistribute_all`, for the ghosts alone.

        The exchange of boundary data at the end of each iteration (PASSION, section 4.3), for parts in
        memory.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def ranks_around(comm):
        ...     blocks = Distribution(6, ["block"], comm.size)
        ...     a = DistArray.zeros(blocks, "i8", transport=comm, ghosts=1)
        ...     a.owned[...] = comm.rank
        ...     a.update_ghosts_all()
        ...     return a.local.tolist()
        >>> SimWorld(3).run(ranks_around)
        [[0, 0, 1], [0, 1, 1, 2], [1, 2, 2]]
        >>> def on_a_ring(comm):
        ...     blocks = Distribution(6, ["block"], comm.size)
        ...     a = DistArray.zeros(blocks, "i8", transport=comm, ghosts=1, periodic=True)
        ...     a.owned[...] = comm.rank
        ...     a.update_ghosts_all()
        ...     return a.local.tolist()
        >>> SimWorld(3).run(on_a_ring)
        [[2, 0, 0, 1], [0, 1, 1, 2], [1, 2, 2, 0]]
        """
        if self._torus is not None:
            update_periodic_ghosts_all(self._transport, self.part(), self._torus, self.local)
        else:
            self._bring_all("update_ghosts_all", lambda: self)

    def iupdate_ghosts_all(self) -> CollectiveRequest[None]:
        """
        Start to set the ghosts to the values of their owners. Every rank must call this.

        Until the request is done, do not use the ghosts, and do not change elements that are ghosts of
        other ranks.

        Returns
        -------
        CollectiveRequest
            Request whose `wait` returns when the ghosts are set, or raises the errors of
            `update_ghosts_all`.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(6, ["block"], 1), ghosts=1)
        >>> request = a.iupdate_ghosts_all()
        >>> inner = a.owned[1:-1].sum()  # while ghosts are on their way
        >>> request.wait()
        """
        return self._start("update of ghosts", self.update_ghosts_all)

    def accumulate_ghosts_all(self, operation: Combination = "add") -> None:
        """
        Combine the ghosts of all ranks with the elements of their owners. Every rank must call this.

        The reverse of `update_ghosts_all`. The ghosts keep their values.

        Parameters
        ----------
        operation
            ``"add"``, ``"minimum"`` or ``"maximum"``, as in NumPy, or ``"last"``: the ghost of the
            highest rank replaces the element.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as for `redistribute_all`. The values of the elements are then undefined.
        UsageError, UnsupportedError
            ``bad-option``: the operation does not exist. ``bad-dtype``: it is not defined for this
            dtype.

        Notes
        -----
        The ghosts of other ranks (on a periodic axis also the rank's own) are combined with the element
        in the order of ranks. Sums therefore have the same bits for any order of arrival and any memory
        budget. In an array with copies, each copy is combined with its own ghosts. Memory as for
        `update_ghosts_all`; because of the order there may be more rounds.

        Corresponds to ``MPI_Accumulate`` of all ghosts in one call, and to ``SCATTER_REVERSE`` in PETSc.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def contributions(comm):
        ...     a = DistArray.zeros(Distribution(6, ["block"], comm.size), transport=comm, ghosts=1)
        ...     a.local[...] = 1  # also to elements of the neighbours
        ...     a.accumulate_ghosts_all("add")
        ...     return a.owned.tolist()
        >>> SimWorld(3).run(contributions)
        [[1.0, 2.0], [2.0, 2.0], [2.0, 1.0]]
        """
        torus = self._torus
        memory = None if torus is None else self.local
        accumulate_all(self._transport, operation, self.part(), torus, memory)

    def gather_all(self, root: int | None = None) -> NDArray[Any] | None:
        """
        Return the whole array in the memory of one rank, or of all; for tests and small arrays.

        Every rank must call this.

        Parameters
        ----------
        root
            Rank that gets the array; by default all ranks.

        Returns
        -------
        numpy.ndarray or None
            The whole array, a new one in C order; None on ranks that do not get it.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as for `redistribute_all`; also if rank `root` does not exist.

        Notes
        -----
        Ranks that get the array need memory for all of it; it belongs to the caller and does not count
        in the memory budget. Message buffers as for `redistribute_all`.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def gathered(comm):
        ...     turns = Distribution(6, ["cyclic"], comm.size)
        ...     a = DistArray.from_function(lambda i: i, turns, "i8", transport=comm)
        ...     return a.gather_all(root=1)
        >>> SimWorld(2).run(gathered)
        [None, array([0, 1, 2, 3, 4, 5])]
        """

        def make() -> DistArray:
            grid = self._distribution.grid
            if root is not None:
                grid.coordinates(root)
            whole = Distribution.replicated(self.shape, grid)
            wanted = root is None or root == self.rank
            nothing = np.broadcast_to(np.zeros((), self.dtype), self.shape)
            memory = np.empty(self.shape, self.dtype) if wanted else nothing
            return DistArray(whole, memory, transport=self._transport)

        got = self._bring_all("gather_all", make, root)
        return got._local if root is None or root == self.rank else None
