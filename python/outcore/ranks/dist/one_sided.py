"""
One-sided operations of distributed arrays: a rank accesses any part without action by other ranks.

Problem. Often only one rank knows which elements it needs next: the next block of integrals, a tree, a
counter of tasks. Collective calls cannot express that. Approach. `DistArray.shared_all` puts the parts
into memory that other ranks can access (`window`). A patch (any regular section) or a list of indices is
divided by owner. Each portion is then a copy, a sum, or a request to another node.

Invariants. An error is raised on the calling rank only, and no rank waits for it. Concurrent additions
are never lost. The program orders reads and writes of the same elements by several ranks, with fences or
locks.

Reference: Nieplocha, Foster, *Disk Resident Arrays*, section 2; *PASSION: Parallel and Scalable Software
for Input-Output*, section 2 (global placement).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from outcore.base.casting import convert_values
from outcore.base.distribution import Distribution, Ghosts, Key, view_sections
from outcore.errors import UnsupportedError, UsageError
from outcore.ranks.dist.base import DistArrayBase
from outcore.ranks.dist.window import IndicesByOwner, PatchLock, SharedWindow, make_rows
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport.service import get_service

__all__ = ["OneSided"]


class OneSided(DistArrayBase):
    """
    One-sided operations, part of `DistArray`.

    Examples
    --------
    >>> from outcore.mpi import DistArray, Distribution
    >>> a = DistArray.shared_all(Distribution(6, ["block"], 1), "i4")
    >>> a.put(np.s_[::2], 7)
    >>> a.get(np.s_[:3])
    array([7, 0, 7], dtype=int32)
    """

    _window: SharedWindow | None = None

    @classmethod
    def shared_all(
        cls,
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
    ) -> Self:
        """
        Make an array of zeros whose parts every rank can read and write. Every rank must call this.

        Parameters
        ----------
        distribution, dtype, transport, ghosts
            As for `empty`.

        Returns
        -------
        DistArray
            The new array. `local` includes ghosts; one-sided operations do not access them.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: an error of `empty`; insufficient memory (`BudgetError`,
            `StorageError`); ``needs-threads`` with several nodes and an MPI library without threads.
            Also if the ranks request different arrays.

        Notes
        -----
        The part of a rank is shared memory of the node, and 4096 bytes of it are locks. It counts in the
        memory budget of this rank until `close_all`, or until the rank drops its last reference to the
        array. On several nodes, messages need 1 MiB more while such arrays exist, and 2 MiB on the first
        rank of each node, where a thread answers other nodes. For large elements, 4 elements instead of
        1 MiB.

        ``GA_Create`` of Global Arrays (Nieplocha and Foster, section 2); ``MPI_Win_allocate_shared`` and
        passive targets of MPI.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def tell(comm):
        ...     a = DistArray.shared_all(Distribution(4, ["block"], comm.size), "i8", transport=comm)
        ...     a.acc(np.s_[:], [1, 2, 3, 4])  # every rank
        ...     a.fence_all()
        ...     seen = a.get(np.s_[:]).tolist()
        ...     a.close_all()
        ...     return seen
        >>> SimWorld(2).run(tell)
        [[2, 4, 6, 8], [2, 4, 6, 8]]
        """
        ranks = Ranks.of_call(transport, "DistArray.shared_all")
        group = ranks.group
        made: list[Any] = []

        def check() -> list[int]:
            # An array with the shape of the part, but without its memory.
            shape = distribution.local_shape(group.rank, ghosts)
            none = np.broadcast_to(np.empty((), dtype), shape)
            array = cls(distribution, none, transport=group, ghosts=ghosts)
            made.append(array)
            service, following = get_service(group), ranks.propose_number()
            return [following if service is None else max(service.next, following)]

        def meaning() -> object:
            return made[0].shape, made[0].dtype, str(distribution), made[0].ghosts

        def tell() -> str:
            array = f"{distribution.shape}, {dtype}, {distribution}, ghosts={ghosts}"
            return f"DistArray.shared_all of {array}"

        def make() -> None:
            array = made[0]
            made.append(SharedWindow(group, distribution, array._widths, array.dtype, number))

        said = ranks.gather_numbers(check, tell, meaning=meaning)
        number = ranks.record_number(max(said.setting(0)))
        try:
            ranks.gather_numbers(make, tell)
        except BaseException:
            for window in made[1:]:
                window.close()
            raise
        array: Self = made[0]
        array._window, array._memory = made[1], made[1].mine
        return array

    def close_all(self) -> None:
        """
        Release the memory of a shared array. Every rank must call this, after its last request.

        An array that was not made by `shared_all` only becomes unusable. Closing twice does nothing.

        Raises
        ------
        CollectiveError
            On all ranks if values that one of them put did not arrive (as `flush`), or if a rank made a
            different call. The memory is released nevertheless.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(4, ["block"], 1))
        >>> a.close_all()
        >>> a.local
        Traceback (most recent call last):
            ...
        outcore.errors.UsageError: [closed] this distributed array was closed, and its memory given
        back; ...
        """
        if self._memory is None:
            return
        window, self._window, self._memory = self._window, None, None
        if window is None:
            return
        try:
            self._settle_all("close_all", window)
        finally:
            window.close()

    # ---------------------------------------------------------------------------------- locality

    def owner_of(self, index: Any) -> Any:
        """
        Return the rank that owns an element, or the ranks of many elements. Not collective.

        Parameters
        ----------
        index
            Integers (possibly negative) as for `get` of one element, or index arrays as for `gather`.

        Returns
        -------
        int or numpy.ndarray
            Lowest rank that has the element; for index arrays an array of int64.

        Raises
        ------
        SectionError
            As for `Distribution.owner`.

        Notes
        -----
        ``NGA_Locate`` of Global Arrays. `Distribution.owner` returns the same without an array.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(10, ["block"], 1))
        >>> a.owner_of(-1), a.owner_of([0, 9])
        (0, array([0, 0]))
        """
        rows, shape = make_rows(self._distribution, index)
        owners = self._distribution.core.owners(rows)
        return int(owners[0]) if shape is None else owners.reshape(shape)

    def part_of(self, rank: int) -> tuple[Key, ...]:
        """
        Return the sections of the array that a rank has, without ghosts. Not collective.

        Parameters
        ----------
        rank
            Number of the rank.

        Returns
        -------
        tuple of tuple of slice
            Keys for `get` and `put`; empty if the rank has no elements.

        Raises
        ------
        DistributionError
            ``bad-grid``: the rank does not exist.

        Notes
        -----
        ``NGA_Distribution`` of Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> DistArray.zeros(Distribution(10, ["block"], 1)).part_of(0)
        ((slice(0, 10, None),),)
        """
        return self._distribution.sections(rank)

    # ---------------------------------------------------------------------------------- patches

    def get(self, key: Any, out: NDArray[Any] | None = None) -> Any:
        """
        Return the elements of a patch, from any ranks. One-sided: the other ranks make no call.

        Parameters
        ----------
        key
            Section as in NumPy: integers, slices with any step, ``...`` and ``None``.
        out
            Array to fill, with the shape and the dtype of the result.

        Returns
        -------
        numpy.ndarray or scalar
            `out`, or a new array with the dtype of this array; a scalar if `key` has an integer for
            every axis.

        Raises
        ------
        UsageError
            ``not-shared``: the array was not made by `shared_all`. ``closed``: it is closed.
            ``out-mismatch``: `out` does not match.
        SectionError
            `key` is not a section of this array.
        CollectiveError
            The ranks cannot work together any more, or another node does not answer in time.

        Notes
        -----
        Within a node this is one copy that needs no memory besides the result. Between nodes, messages
        carry up to 256 KiB of elements each, within the memory of `shared_all`. If several ranks have
        copies, the nearest one is read. The result may contain some of the values that other ranks put
        or add at the same time.

        ``NGA_Get`` and ``NGA_Strided_get`` of Global Arrays (Nieplocha and Foster, section 2);
        ``MPI_Get`` with a passive target.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((4, 4), ["block", "*"], 1), "i4")
        >>> a.put(np.s_[1], [1, 2, 3, 4])
        >>> a.get(np.s_[1, ::-2]), a.get((1, 1))
        (array([4, 2], dtype=int32), np.int32(2))
        """
        window = self._window or self._raise_no_window()
        found = window.core.get(key, out)
        if found is not None:
            return found
        shape, back, scalar, ranks, members, stored = window.core.pieces(key)
        result = np.empty(shape, self.dtype) if out is None else self._check_out(out, shape)
        for some, where, target in zip(
            ranks, stored, view_sections(result[back], members), strict=True
        ):
            window.read(some, where, target)
        window.settle()
        return result[()] if scalar and out is None else result

    def put(self, key: Any, values: ArrayLike) -> None:
        """
        Set the elements of a patch, on any ranks. One-sided.

        Parameters
        ----------
        key
            Section, as for `get`.
        values
            Values, broadcast to the shape of the section and cast, as in an assignment of NumPy.

        Raises
        ------
        UsageError
            ``not-shared``, ``closed`` as for `get`. ``broadcast``: `values` does not match.
        SectionError, CollectiveError
            As for `get`.

        Notes
        -----
        `values` may be changed when the call returns. Elements on this node are set at that point.
        Elements on other nodes are set after `flush`, `fence_all`, or a later call of this rank that
        needs an answer of these nodes. All copies are set, ghosts are not. If several ranks put values
        into the same element, it gets any one of them.

        ``NGA_Put`` of Global Arrays; ``MPI_Put`` with a passive target.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((3, 3), ["block", "block"], (1, 1)), "i4")
        >>> a.put(np.s_[:, ::2], [[1], [2], [3]])
        >>> a.local.tolist()
        [[1, 0, 1], [2, 0, 2], [3, 0, 3]]
        """
        window = self._window or self._raise_no_window()
        if window.core.put(key, values):
            return
        shape, back, _, ranks, members, stored = window.core.pieces(key)
        box = self._broadcast(convert_values(values, self.dtype), shape)[back]
        for some, where, source in zip(ranks, stored, view_sections(box, members), strict=True):
            window.write(some, where, source)
        window.wait_until_sent()

    def acc(self, key: Any, values: ArrayLike, factor: Any = 1) -> None:
        """
        Add ``factor * values`` to the elements of a patch, on any ranks. One-sided and atomic.

        Parameters
        ----------
        key
            Section, as for `get`.
        values
            Values, broadcast to the shape of the section.
        factor
            Number by which the values are multiplied.

        Raises
        ------
        UsageError
            As for `put`. ``bad-cast``: the dtype cannot hold the kind of `values` or `factor`.
            ``lock-order``: this thread holds the lock of another patch.
        UnsupportedError
            ``bad-dtype``: the elements cannot be added.
        BudgetError
            The memory budget has no space for a piece of 256 KiB of ``factor * values``.
        SectionError, CollectiveError
            As for `get`.

        Notes
        -----
        Each element is read, increased and written in one step, so no addition by `acc`, `scatter_acc`
        or `read_inc` of any rank is lost. The order in which ranks add is undefined, and so are the last
        bits of floating-point sums; `accumulate_ghosts_all` has a defined order. The addition is
        complete when the call returns.

        ``NGA_Acc`` of Global Arrays; ``MPI_Accumulate`` with ``MPI_SUM``.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     a = DistArray.shared_all(Distribution(3, ["block"], comm.size), transport=comm)
        ...     a.acc(np.s_[1:], comm.rank + 1, factor=0.5)
        ...     a.fence_all()
        ...     total = a.get(np.s_[:])
        ...     a.close_all()
        ...     return total
        >>> SimWorld(3).run(work)[0]
        array([0., 3., 3.])
        """
        window = self._window or self._raise_no_window()
        terms, scale = self._prepare_terms(values, factor)
        shape, back, _, ranks, members, stored = window.core.pieces(key)
        box = self._broadcast(terms, shape)[back]
        for some, where, source in zip(ranks, stored, view_sections(box, members), strict=True):
            window.add(some, where, source, scale)

    # ---------------------------------------------------------------------------------- elements

    def gather(self, index: Any, out: NDArray[Any] | None = None) -> Any:
        """
        Return the elements of a list of indices, from any ranks. One-sided.

        Parameters
        ----------
        index
            Tuple of one integer array per axis, broadcast together (``a[i, j]`` in NumPy, `vindex`); for
            an array with one axis also without the tuple. Negative indices count from the end.
        out
            Array to fill, with the shape and the dtype of the result.

        Returns
        -------
        numpy.ndarray or scalar
            The elements, in the shape of the index arrays; a scalar for single integers.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``, ``bad-index``, ``bad-section``: as for `Distribution.owner`.
        UsageError, CollectiveError
            As for `get`.
        BudgetError
            The memory budget has no space for ``16 * ndim + 48`` bytes plus two elements per index.

        Notes
        -----
        Indices are sorted by owner. Between nodes, messages carry up to 256 KiB of indices and elements
        each.

        ``NGA_Gather`` of Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((3, 3), ["block", "*"], 1), "i4")
        >>> a.put(np.s_[:], np.arange(9).reshape(3, 3))
        >>> a.gather(([0, 2, -1], [1, 1, 0]))
        array([1, 7, 6], dtype=int32)
        """
        window = self._window or self._raise_no_window()
        with IndicesByOwner(self._distribution, index, self.dtype.itemsize) as listed:
            shape = listed.shape or ()
            result = np.empty(shape, self.dtype) if out is None else self._check_out(out, shape)
            # Store elements directly in `out`, whatever its strides, instead of in a copy.
            flat: Any = result.reshape(-1) if result.flags.c_contiguous else result.flat
            for ranks, where, at in listed.group_by_owner(window):
                some = np.empty(len(at), self.dtype)
                window.read(ranks, where, some)
                window.settle()
                flat[at] = some
        return result[()] if listed.shape is None and out is None else result

    def scatter(self, index: Any, values: ArrayLike) -> None:
        """
        Set the elements of a list of indices, on any ranks. One-sided.

        Parameters
        ----------
        index
            As for `gather`. Of several values for one element, the last one counts.
        values
            Values, broadcast to the shape of the index arrays and cast, as in an assignment of NumPy.

        Raises
        ------
        SectionError, UsageError, CollectiveError, BudgetError
            As for `gather` and `put`.

        Notes
        -----
        Elements are set at the same point as with `put`. Memory as for `gather`. ``NGA_Scatter`` of
        Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> a.scatter([4, 0, 4], [1, 2, 3])
        >>> a.local.tolist()
        [2, 0, 0, 0, 3]
        """
        window = self._window or self._raise_no_window()
        given = convert_values(values, self.dtype)
        with IndicesByOwner(self._distribution, index, given.itemsize) as listed:
            flat = self._broadcast(given, listed.shape or ()).reshape(-1)
            for ranks, where, at in listed.group_by_owner(window):
                window.write(ranks, where, flat[at])
            window.wait_until_sent()

    def scatter_acc(self, index: Any, values: ArrayLike, factor: Any = 1) -> None:
        """
        Add ``factor * values`` to the elements of a list of indices. One-sided and atomic.

        Parameters
        ----------
        index
            As for `gather`. An element that is listed several times is increased that many times (as in
            `numpy.add.at`).
        values, factor
            As for `acc`.

        Raises
        ------
        SectionError, UsageError, UnsupportedError, CollectiveError, BudgetError
            As for `gather` and `acc`.

        Notes
        -----
        As for `acc`. Memory as for `gather`, and pieces as for `acc`. ``NGA_Scatter_acc`` of Global
        Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> a.scatter_acc([4, 0, 4], [1, 2, 3], factor=10)
        >>> a.local.tolist()
        [20, 0, 0, 0, 40]
        """
        window = self._window or self._raise_no_window()
        terms, scale = self._prepare_terms(values, factor)
        with IndicesByOwner(self._distribution, index, terms.itemsize) as listed:
            flat = self._broadcast(terms, listed.shape or ()).reshape(-1)
            for ranks, where, at in listed.group_by_owner(window):
                window.add(ranks, where, flat[at], scale)

    def read_inc(self, index: Any, inc: int = 1) -> int:
        """
        Add to one element and return its previous value, so that a counter gives each number once.

        Parameters
        ----------
        index
            Tuple of one integer per axis; for an array with one axis also without the tuple.
        inc
            Integer to add.

        Returns
        -------
        int
            Value before the addition.

        Raises
        ------
        UnsupportedError
            ``bad-dtype``: the elements are not integers.
        SectionError, UsageError, CollectiveError, BudgetError
            As for `acc`. ``bad-cast``: `inc` is out of the range of the dtype.

        Notes
        -----
        One-sided, in one step as for `acc`. The sum wraps around as in NumPy. ``NGA_Read_inc`` of Global
        Arrays, for any integer dtype; ``MPI_Fetch_and_op``.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def tasks(comm):
        ...     one = Distribution(1, ["block"], comm.size)
        ...     counter = DistArray.shared_all(one, "i8", transport=comm)
        ...     mine = [n for _ in range(4) if (n := counter.read_inc(0)) < 6]
        ...     counter.close_all()
        ...     return mine
        >>> sorted(sum(SimWorld(3).run(tasks), []))
        [0, 1, 2, 3, 4, 5]
        """
        window = self._window or self._raise_no_window()
        if self.dtype.kind not in "iu":
            raise UnsupportedError(
                f"read_inc counts with integers, but this array has elements of {self.dtype}; use acc, "
                "or an array of integers",
                code="bad-dtype",
            )
        rows, shape = make_rows(self._distribution, index)
        if shape is not None:
            raise UsageError(
                f"read_inc has an index of {len(rows)} elements; pass one integer per axis",
                code="bad-index",
            )
        info = np.iinfo(self.dtype)
        if not info.min <= inc <= info.max:
            raise UsageError(
                f"inc={inc} is out of range for {self.dtype}; pass a smaller number",
                code="bad-cast",
            )
        core = self._distribution.core
        owner = int(core.owners(rows)[0])
        where = window.number_elements(owner, core.local_indices(rows))
        old = np.empty(1, self.dtype)
        one = np.full(1, inc, self.dtype)
        window.add(window.list_copies(owner), where, one, np.ones((), self.dtype), old)
        return int(old[0])

    # ---------------------------------------------------------------------------------- order

    def lock(self, key: Any) -> PatchLock:
        """
        Return a lock of a patch, for a ``with`` block, that excludes additions and locks of other ranks.

        Parameters
        ----------
        key
            Section, as for `get`.

        Returns
        -------
        PatchLock
            Context manager. Entering it waits until the lock is free. Leaving it waits until all values
            that were put inside have arrived.

        Raises
        ------
        UsageError
            ``lock-order``, on entering: this thread holds another lock of this array.
        SectionError, CollectiveError
            As for `get`. ``timeout``: it waited longer than ``OUTCORE_TIMEOUT``.

        Notes
        -----
        Each part has locks for up to 64 stripes along its longest axis, so patches that are close to
        each other may exclude each other, too. `get` and `put` do not check locks; a program that
        changes elements with them must do so inside the block. Inside, `acc` and similar methods can add
        only to elements of the patch.

        If a rank of this node is killed while it has a lock, the next rank that requests the lock gets
        it. The patch then holds what the killed rank had written. The death of a rank on another node is
        noticed only on that node.

        ``GA_Lock`` of Global Arrays, for patches instead of numbers.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> with a.lock(np.s_[1:3]):
        ...     a.put(np.s_[1:3], a.get(np.s_[1:3]) * 2 + 1)
        >>> a.local.tolist()
        [0, 1, 1, 0, 0]
        """
        window = self._window or self._raise_no_window()
        _, _, _, ranks, _, stored = window.core.pieces(key)
        return PatchLock(
            window, [(some[0], where) for some, where in zip(ranks, stored, strict=True)]
        )

    def flush(self) -> None:
        """
        Wait until all values that this rank put have arrived, on all nodes. Not collective.

        Raises
        ------
        UsageError
            ``not-shared``, ``closed`` as for `get`.
        OutcoreError
            Error of a put that has not been raised yet.

        Notes
        -----
        Values for this node arrive immediately. ``GA_Fence`` of Global Arrays; ``MPI_Win_flush_all``.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1))
        >>> a.put(0, 1.5)
        >>> a.flush()
        """
        (self._window or self._raise_no_window()).settle()

    def fence_all(self) -> None:
        """
        Wait until all ranks have called this and all values that they put have arrived. Collective.

        Afterwards every rank sees the values that any rank put or added before. Every rank must call
        this.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: an error of `flush` on any rank; or if a rank made a different
            call.

        Notes
        -----
        ``GA_Sync`` of Global Arrays; ``MPI_Win_fence``.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def around(comm):
        ...     each = Distribution(comm.size, ["block"], comm.size)
        ...     a = DistArray.shared_all(each, "i8", transport=comm)
        ...     a.put((comm.rank + 1) % comm.size, comm.rank)
        ...     a.fence_all()
        ...     mine = int(a.local[0])
        ...     a.close_all()
        ...     return mine
        >>> SimWorld(3).run(around)
        [2, 0, 1]
        """
        window = self._window or self._raise_no_window()
        self._settle_all("fence_all", window)

    # ---------------------------------------------------------------------------------- checks

    def _settle_all(self, name: str, window: SharedWindow) -> None:
        """Wait on each rank until its values have arrived here; all ranks return, or all raise."""
        self._make_ranks(name).gather_numbers(
            window.settle,
            lambda: f"DistArray.{name} of shared array number {window.number}",
            meaning=lambda: window.number,
        )

    def _raise_no_window(self) -> SharedWindow:
        if self._memory is None:
            _ = self._local  # raises
        raise UsageError(
            "one-sided operations need an array whose memory other ranks can access; make one "
            "with DistArray.shared_all, and copy this one to it with copy_all",
            code="not-shared",
        )

    def _check_out(self, out: NDArray[Any], shape: Any) -> NDArray[Any]:
        shape = tuple(shape)
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != self.dtype:
            raise UsageError(
                f"out= does not fit the elements; pass an array of shape {shape} and dtype "
                f"{self.dtype}",
                code="out-mismatch",
            )
        if not out.flags.writeable:
            raise UsageError("out= is read-only; pass another array", code="out-mismatch")
        return out

    def _broadcast(self, values: NDArray[Any], shape: Any) -> NDArray[Any]:
        try:
            return np.broadcast_to(values, tuple(shape))
        except ValueError as error:
            raise UsageError(
                f"values of shape {values.shape} do not fit elements of shape {tuple(shape)}; pass "
                "values that can be broadcast to it",
                code="broadcast",
            ) from error

    def _prepare_terms(self, values: ArrayLike, factor: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the values to add, and the factor as an element; raise if they cannot be added."""
        nothing = np.empty(0, self.dtype)
        try:
            np.add(nothing, np.multiply(nothing, nothing), out=nothing)
        except TypeError as error:
            raise UnsupportedError(
                f"elements of dtype {self.dtype} cannot be added to; use an array of numbers",
                code="bad-dtype",
            ) from error
        for what, one in (("values", values), ("factor", factor)):
            dtype = np.asarray(one).dtype
            if not (isinstance(one, int) or np.can_cast(dtype, self.dtype, "same_kind")):
                raise UsageError(
                    f"{what} of dtype {dtype} cannot be added to elements of {self.dtype} without loss; "
                    "cast them first",
                    code="bad-cast",
                )
        terms, scale = convert_values(values, self.dtype), convert_values(factor, self.dtype)
        if scale.ndim:
            raise UsageError(f"factor has shape {scale.shape}; pass a number", code="bad-value")
        return terms, scale.astype(self.dtype)
