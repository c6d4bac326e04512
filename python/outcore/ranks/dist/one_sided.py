"""
One-sided operations of distributed arrays: a rank reads, writes and adds to any part, and nobody helps.

Problem. Which elements a rank needs next, often only it knows: the next block of integrals, a tree,
a counter of tasks. Collective calls cannot say that. Idea. `DistArray.shared_all` puts the parts
where other ranks reach them (`window`); a patch (any regular section) or a list of indices is cut
into what each rank has, and each cut is a copy, a sum, or a request to another node.

Invariants. What fails, fails at the rank that called, and nobody waits for it. What is added is
never lost, whoever adds at the same time; reads and writes of the same elements by several ranks
are the program's to order, by fences or locks.

Reference: Nieplocha, Foster, *Disk Resident Arrays*, section 2; *PASSION: Parallel and Scalable
Software for Input-Output*, section 2 (global placement).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from outcore.base.casting import as_values
from outcore.ranks.agreement import count_number, next_number, together
from outcore.ranks.collective.items import number_of
from outcore.ranks.dist.base import Divided
from outcore.ranks.dist.window import Listed, PatchLock, Window, rows_of
from outcore.base.distribution import Distribution, Ghosts, Key, views
from outcore.errors import UnsupportedError, UsageError
from outcore.ranks.transport import transport as join
from outcore.ranks.transport.service import service_of

__all__ = ["OneSided"]


class OneSided(Divided):
    """
    One-sided operations; see `DistArray`, which has them.

    Examples
    --------
    >>> from outcore import DistArray, Distribution
    >>> a = DistArray.shared_all(Distribution(6, ["block"], 1), "i4")
    >>> a.put(np.s_[::2], 7)
    >>> a.get(np.s_[:3])
    array([7, 0, 7], dtype=int32)
    """

    _window: Window | None = None

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
        An array of zeros whose parts every rank can read and write. Every rank must call this.

        Parameters
        ----------
        distribution, dtype, transport, ghosts
            As for `empty`.

        Returns
        -------
        DistArray
            The new array, ghosts included in `local`; one-sided operations do not touch them.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: as for `empty`; no memory (`BudgetError`, `StorageError`);
            ``needs-threads``: several nodes, and an MPI library without threads. Or the ranks mean
            different arrays.

        Notes
        -----
        Its part is shared memory of the node, counted in the memory budget of this rank until
        `close_all`, or until the last handle of the array is gone here; 4096 bytes of it are locks. On
        several nodes messages take 1 MiB more while there are such arrays, 2 MiB on the first rank of
        each node, where a thread answers other nodes. Of large elements it is 4 elements instead of
        1 MiB.

        ``GA_Create`` of Global Arrays (Nieplocha and Foster, section 2);
        ``MPI_Win_allocate_shared`` and passive targets of MPI.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
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
        group = join(transport)
        made: list[Any] = []

        def check() -> list[int]:
            # Of the shape that its part will have, without its memory.
            shape = distribution.local_shape(group.rank, ghosts)
            none = np.broadcast_to(np.empty((), dtype), shape)
            array = cls(distribution, none, transport=group, ghosts=ghosts)
            made.append(array)
            meaning = repr((array.shape, array.dtype, str(distribution), array.ghosts))
            service = service_of(group)
            following = next_number(group)
            return [number_of(meaning), following if service is None else max(service.next, following)]

        def tell() -> str:
            return (
                f"DistArray.shared_all of {distribution.shape}, {dtype}, {distribution}, ghosts={ghosts}"
            )

        def make() -> list[int]:
            array = made[0]
            made.append(Window(group, distribution, array._widths, array.dtype, number))
            return []

        said = together(group, "DistArray.shared_all", check, tell, same=1)
        number = count_number(group, max(said.setting(1)))
        try:
            together(group, "DistArray.shared_all", make, tell, same=0)
        except BaseException:
            for window in made[1:]:
                window.close()
            raise
        array: Self = made[0]
        array._window, array._memory = made[1], made[1].mine
        return array

    def close_all(self) -> None:
        """
        Give the memory of a shared array back. Every rank must call this, when it has no more requests.

        Of an array that was not made by `shared_all` nothing happens, but that it cannot be used any
        more. Closing twice does nothing.

        Raises
        ------
        CollectiveError
            On all ranks: something that one of them put did not arrive (as `flush`), or it called
            something else. The memory goes nevertheless.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
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
            self._together("close_all", window)
        finally:
            window.close()

    # ---------------------------------------------------------------------------------- locality

    def owner_of(self, index: Any) -> Any:
        """
        The rank that owns an element, or many. Not collective.

        Parameters
        ----------
        index
            As for `get` of one element (integers, also negative ones), or arrays of them as for
            `gather`.

        Returns
        -------
        int or numpy.ndarray
            The lowest rank that has it; of arrays an array of int64.

        Raises
        ------
        SectionError
            As `Distribution.owner`.

        Notes
        -----
        ``NGA_Locate`` of Global Arrays. `Distribution.owner` tells the same without an array.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(10, ["block"], 1))
        >>> a.owner_of(-1), a.owner_of([0, 9])
        (0, array([0, 0]))
        """
        rows, shape = rows_of(self._distribution, index)
        owners = self._distribution.core.owners(rows)
        return int(owners[0]) if shape is None else owners.reshape(shape)

    def part_of(self, rank: int) -> tuple[Key, ...]:
        """
        The sections of the array that a rank has, without ghosts. Not collective.

        Parameters
        ----------
        rank
            Number of the rank.

        Returns
        -------
        tuple of tuple of slice
            Keys for `get` and `put`; none if the rank has nothing.

        Raises
        ------
        DistributionError
            ``bad-grid``: there is no such rank.

        Notes
        -----
        ``NGA_Distribution`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> DistArray.zeros(Distribution(10, ["block"], 1)).part_of(0)
        ((slice(0, 10, None),),)
        """
        return self._distribution.sections(rank)

    # ---------------------------------------------------------------------------------- patches

    def get(self, key: Any, out: NDArray[Any] | None = None) -> Any:
        """
        Elements of a patch, whoever has them. One-sided: nobody else calls anything.

        Parameters
        ----------
        key
            A section as NumPy has it: integers, slices with any step, ``...`` and ``None``.
        out
            Array to be filled, of the shape and the dtype of the result.

        Returns
        -------
        numpy.ndarray or scalar
            `out`, or a new array (a scalar if `key` is one integer per axis), of the dtype of this
            array.

        Raises
        ------
        UsageError
            ``not-shared``: not an array of `shared_all`; ``closed``; ``out-mismatch``: `out` does
            not fit.
        SectionError
            No section of this array.
        CollectiveError
            The ranks cannot work together any more, or another node does not answer in time.

        Notes
        -----
        On a node it is one copy, and takes no memory besides the result. Between nodes messages carry up
        to 256 KiB of elements each, within the memory of `shared_all`. Of copies the nearest is read.
        What other ranks put or add meanwhile may be seen in part.

        ``NGA_Get`` and ``NGA_Strided_get`` of Global Arrays (Nieplocha and Foster, section 2);
        ``MPI_Get`` with a passive target.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((4, 4), ["block", "*"], 1), "i4")
        >>> a.put(np.s_[1], [1, 2, 3, 4])
        >>> a.get(np.s_[1, ::-2]), a.get((1, 1))
        (array([4, 2], dtype=int32), np.int32(2))
        """
        window = self._window or self._no_window()
        found = window.core.get(key, out)
        if found is not None:
            return found
        shape, back, scalar, ranks, members, stored = window.core.pieces(key)
        result = np.empty(shape, self.dtype) if out is None else self._checked(out, shape)
        for some, where, target in zip(ranks, stored, views(result[back], members), strict=True):
            window.read(some, where, target)
        window.settle()
        return result[()] if scalar and out is None else result

    def put(self, key: Any, values: ArrayLike) -> None:
        """
        Set the elements of a patch, whoever has them. One-sided.

        Parameters
        ----------
        key
            A section, as for `get`.
        values
            Broadcast to the shape of the section and cast, as in NumPy's assignment.

        Raises
        ------
        UsageError
            ``not-shared``, ``closed``; ``broadcast``: `values` does not fit.
        SectionError, CollectiveError
            As `get`.

        Notes
        -----
        When it returns `values` may be changed. On this node the elements are set then; on others
        after `flush`, `fence_all`, or a later call of this rank that needs their answer. All copies are
        set, ghosts are not. Puts of several ranks to the same elements leave any of their values.

        ``NGA_Put`` of Global Arrays; ``MPI_Put`` with a passive target.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((3, 3), ["block", "block"], (1, 1)), "i4")
        >>> a.put(np.s_[:, ::2], [[1], [2], [3]])
        >>> a.local.tolist()
        [[1, 0, 1], [2, 0, 2], [3, 0, 3]]
        """
        window = self._window or self._no_window()
        if window.core.put(key, values):
            return
        shape, back, _, ranks, members, stored = window.core.pieces(key)
        box = self._broadcast(as_values(values, self.dtype), shape)[back]
        for some, where, source in zip(ranks, stored, views(box, members), strict=True):
            window.write(some, where, source)
        window.sent()

    def acc(self, key: Any, values: ArrayLike, factor: Any = 1) -> None:
        """
        Add ``factor * values`` to the elements of a patch, whoever has them. One-sided; nothing is lost.

        Parameters
        ----------
        key
            A section, as for `get`.
        values
            Broadcast to the shape of the section.
        factor
            A number.

        Raises
        ------
        UsageError
            As `put`; ``bad-cast``: `values` or `factor` is of a kind that the elements cannot have;
            ``lock-order``: this thread holds the lock of another patch.
        UnsupportedError
            ``bad-dtype``: elements that cannot be added.
        BudgetError
            No room for a piece of 256 KiB of ``factor * values``.
        SectionError, CollectiveError
            As `get`.

        Notes
        -----
        Each element is read, added to and written in one step: `acc`, `scatter_acc` and `read_inc` of
        any ranks add up. The order in which ranks add is not determined, so the last bits of sums of
        floating-point numbers are not either; `accumulate_ghosts_all` has an order. The call returns
        when it is added.

        ``NGA_Acc`` of Global Arrays; ``MPI_Accumulate`` with ``MPI_SUM``.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
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
        window = self._window or self._no_window()
        terms, scale = self._terms(values, factor)
        shape, back, _, ranks, members, stored = window.core.pieces(key)
        box = self._broadcast(terms, shape)[back]
        for some, where, source in zip(ranks, stored, views(box, members), strict=True):
            window.add(some, where, source, scale)

    # ---------------------------------------------------------------------------------- elements

    def gather(self, index: Any, out: NDArray[Any] | None = None) -> Any:
        """
        Elements of a list of indices, whoever has them. One-sided.

        Parameters
        ----------
        index
            One array of integers per axis, which are broadcast (``a[i, j]`` of NumPy, `vindex`); for an
            array of one axis also without the tuple. Negative ones count from the end.
        out
            Array to be filled, of the shape and the dtype of the result.

        Returns
        -------
        numpy.ndarray or scalar
            The elements, in the shape of the arrays of indices; of single integers a scalar.

        Raises
        ------
        SectionError
            ``index-out-of-bounds``, ``bad-index``, ``bad-section``: as `Distribution.owner`.
        UsageError, CollectiveError
            As `get`.
        BudgetError
            No room for ``16 * ndim + 48`` bytes and two elements an index, which it takes.

        Notes
        -----
        Indices are ordered by owner; between nodes messages carry up to 256 KiB of indices and elements
        each.

        ``NGA_Gather`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution((3, 3), ["block", "*"], 1), "i4")
        >>> a.put(np.s_[:], np.arange(9).reshape(3, 3))
        >>> a.gather(([0, 2, -1], [1, 1, 0]))
        array([1, 7, 6], dtype=int32)
        """
        window = self._window or self._no_window()
        with Listed(self._distribution, index, self.dtype.itemsize) as listed:
            shape = listed.shape or ()
            result = np.empty(shape, self.dtype) if out is None else self._checked(out, shape)
            # Elements go to their places in `out` however it lies in memory, not through a copy of it.
            flat: Any = result.reshape(-1) if result.flags.c_contiguous else result.flat
            for ranks, where, at in listed.owners(window):
                some = np.empty(len(at), self.dtype)
                window.read(ranks, where, some)
                window.settle()
                flat[at] = some
        return result[()] if listed.shape is None and out is None else result

    def scatter(self, index: Any, values: ArrayLike) -> None:
        """
        Set elements of a list of indices, whoever has them. One-sided.

        Parameters
        ----------
        index
            As for `gather`. Of several values for one element the last counts.
        values
            Broadcast to the shape of the arrays of indices and cast, as in NumPy's assignment.

        Raises
        ------
        SectionError, UsageError, CollectiveError, BudgetError
            As `gather` and `put`. Memory as for `gather`.

        Notes
        -----
        When the elements are set, `put` says. ``NGA_Scatter`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> a.scatter([4, 0, 4], [1, 2, 3])
        >>> a.local.tolist()
        [2, 0, 0, 0, 3]
        """
        window = self._window or self._no_window()
        given = as_values(values, self.dtype)
        with Listed(self._distribution, index, given.itemsize) as listed:
            flat = self._broadcast(given, listed.shape or ()).reshape(-1)
            for ranks, where, at in listed.owners(window):
                window.write(ranks, where, flat[at])
            window.sent()

    def scatter_acc(self, index: Any, values: ArrayLike, factor: Any = 1) -> None:
        """
        Add ``factor * values`` to elements of a list of indices. One-sided; nothing is lost.

        Parameters
        ----------
        index
            As for `gather`. What is there several times is added to as often (as `numpy.add.at`).
        values, factor
            As for `acc`.

        Raises
        ------
        SectionError, UsageError, UnsupportedError, CollectiveError, BudgetError
            As `gather` and `acc`. Memory as for `gather`, and pieces as for `acc`.

        Notes
        -----
        As `acc`. ``NGA_Scatter_acc`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> a.scatter_acc([4, 0, 4], [1, 2, 3], factor=10)
        >>> a.local.tolist()
        [20, 0, 0, 0, 40]
        """
        window = self._window or self._no_window()
        terms, scale = self._terms(values, factor)
        with Listed(self._distribution, index, terms.itemsize) as listed:
            flat = self._broadcast(terms, listed.shape or ()).reshape(-1)
            for ranks, where, at in listed.owners(window):
                window.add(ranks, where, flat[at], scale)

    def read_inc(self, index: Any, inc: int = 1) -> int:
        """
        Add to one element, and tell what it was before: a counter of which each number is given once.

        Parameters
        ----------
        index
            One integer per axis; for an array of one axis also without the tuple.
        inc
            What is added.

        Returns
        -------
        int
            The value before.

        Raises
        ------
        UnsupportedError
            ``bad-dtype``: the elements are no integers.
        SectionError, UsageError, CollectiveError, BudgetError
            As `acc`; `inc` beyond the range of the dtype is ``bad-cast``.

        Notes
        -----
        One-sided, in one step as `acc`. The sum wraps around as in NumPy. ``NGA_Read_inc`` of Global
        Arrays, for any integer dtype; ``MPI_Fetch_and_op``.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
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
        window = self._window or self._no_window()
        if self.dtype.kind not in "iu":
            raise UnsupportedError(
                f"read_inc counts with integers; this array has elements of {self.dtype}. Use "
                "acc, or an array of integers",
                code="bad-dtype",
            )
        rows, shape = rows_of(self._distribution, index)
        if shape is not None:
            raise UsageError(
                f"read_inc of {len(rows)} elements; give one integer per axis", code="bad-index"
            )
        info = np.iinfo(self.dtype)
        if not info.min <= inc <= info.max:
            raise UsageError(f"inc={inc} does not fit {self.dtype}", code="bad-cast")
        core = self._distribution.core
        owner = int(core.owners(rows)[0])
        where = window.places(owner, core.local_indices(rows))
        old = np.empty(1, self.dtype)
        one = np.full(1, inc, self.dtype)
        window.add(window.copies(owner), where, one, np.ones((), self.dtype), old)
        return int(old[0])

    # ---------------------------------------------------------------------------------- order

    def lock(self, key: Any) -> PatchLock:
        """
        A lock of a patch, for a ``with`` block: nobody else adds to its elements, or locks them,
        meanwhile.

        Parameters
        ----------
        key
            A section, as for `get`.

        Returns
        -------
        PatchLock
            Entering it waits until it is free. Leaving it, what was put inside has arrived.

        Raises
        ------
        UsageError
            ``lock-order``, when it is entered: this thread holds another lock of this array.
        SectionError, CollectiveError
            As `get`; ``timeout``: it waited longer than ``OUTCORE_TIMEOUT``.

        Notes
        -----
        Locks are those of up to 64 stripes of each part along its longest axis, so patches that lie near
        each other may exclude each other, too. `get` and `put` look at no locks: a program that changes
        elements with them does so inside. Inside, `acc` and its like add to elements of the patch only.
        If a rank of this node is killed while it has a lock, the next one who wants it gets it; what is
        in the patch then is what that rank had written. Of a rank on another node that is noticed on its
        node only.

        ``GA_Lock`` of Global Arrays, for patches instead of numbers.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
        >>> with a.lock(np.s_[1:3]):
        ...     a.put(np.s_[1:3], a.get(np.s_[1:3]) * 2 + 1)
        >>> a.local.tolist()
        [0, 1, 1, 0, 0]
        """
        window = self._window or self._no_window()
        _, _, _, ranks, _, stored = window.core.pieces(key)
        return PatchLock(
            window, [(some[0], where) for some, where in zip(ranks, stored, strict=True)]
        )

    def flush(self) -> None:
        """
        Wait until what this rank put has arrived, on all nodes. Not collective.

        Raises
        ------
        UsageError
            ``not-shared``, ``closed``.
        OutcoreError
            What a put failed with of which nobody knew yet.

        Notes
        -----
        On this node everything has arrived anyway. ``GA_Fence`` of Global Arrays; ``MPI_Win_flush_all``.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.shared_all(Distribution(5, ["block"], 1))
        >>> a.put(0, 1.5)
        >>> a.flush()
        """
        (self._window or self._no_window()).settle()

    def fence_all(self) -> None:
        """
        Wait until what all ranks put has arrived, and all are here. Every rank must call this.

        What any rank put or added before, every rank sees afterwards.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: what `flush` raises on any of them; or one called something
            else.

        Notes
        -----
        ``GA_Sync`` of Global Arrays; ``MPI_Win_fence``.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
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
        window = self._window or self._no_window()
        self._together("fence_all", window)

    # ---------------------------------------------------------------------------------- checks

    def _together(self, name: str, window: Window) -> None:
        """Wait on each rank for what it put into this array; all return, or all raise."""

        def settle() -> list[int]:
            window.settle()
            return []

        together(
            self._transport,
            f"DistArray.{name}",
            settle,
            lambda: f"DistArray.{name} of shared array number {window.number}",
            same=0,
            meaning=lambda: window.number,
        )

    def _no_window(self) -> Window:
        if self._memory is None:
            _ = self._local  # raises
        raise UsageError(
            "one-sided operations need an array whose memory other ranks reach; make it with "
            "DistArray.shared_all, and copy_all this one into it",
            code="not-shared",
        )

    def _checked(self, out: NDArray[Any], shape: Any) -> NDArray[Any]:
        shape = tuple(shape)
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != self.dtype:
            raise UsageError(
                f"out= must be an array of shape {shape} and dtype {self.dtype}",
                code="out-mismatch",
            )
        if not out.flags.writeable:
            raise UsageError("out= cannot be written; give another array", code="out-mismatch")
        return out

    def _broadcast(self, values: NDArray[Any], shape: Any) -> NDArray[Any]:
        try:
            return np.broadcast_to(values, tuple(shape))
        except ValueError as error:
            raise UsageError(
                f"values of shape {values.shape} do not fit elements of shape {tuple(shape)}",
                code="broadcast",
            ) from error

    def _terms(self, values: ArrayLike, factor: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """What is added, and the factor as an element; refused here if it cannot be."""
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
                    f"{what} of dtype {dtype} cannot be added to elements of {self.dtype} without "
                    "loss; cast them first",
                    code="bad-cast",
                )
        terms, scale = as_values(values, self.dtype), as_values(factor, self.dtype)
        if scale.ndim:
            raise UsageError(f"factor of shape {scale.shape}; give a number", code="bad-value")
        return terms, scale.astype(self.dtype)
