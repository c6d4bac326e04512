"""
`PlacedArray`: out-of-core arrays of many ranks, in one of three placements.

Problem: an array that does not fit in the memory of all ranks is divided over them by a distribution.
Its elements may be stored in one file, or in one file per rank; a program should work with both.
Approach: every rank has a *local array*, with an overlap area if requested. It reads and writes sections
of the local array, and iterates over it in slabs. The placement determines where the elements are
stored:

    global        one file; the local array is the pieces of a distribution in it
    local         one file per rank, with its overlap area; `shift_all` refreshes that
    partitioned   one file; all ranks read partitions of it collectively, divided over their memories

Invariants: elements are equal in every placement. All ranks agree on the outcome of methods that end in
``_all``, so a failure on one rank is raised on all. Elements of other ranks are updated by `shift_all`
(local), or read from the owner's location (global, partitioned): between a write by the owner and the
next `shift_all`, ghosts may be old or new.

Reference: PASSION report, sections 4.1.2 and 4.2 (Tables 1 and 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.arrays.pieces import intersect_pieces
from outcore.base.casting import broadcast_values
from outcore.base.closable import Closable
from outcore.base.distribution import Key
from outcore.base.distribution import parse_widths as widths_of
from outcore.errors import UsageError
from outcore.problems.placement.local import LocalArray
from outcore.problems.placement.placed import get_step_bytes
from outcore.problems.placement.shift import Shift, ShiftMethod, shift
from outcore.problems.placement.slabs import (
    Slab,
    SlabWindow,
    check_rows,
    choose_rows,
    loop,
    yield_only_slab,
)
from outcore.ranks.collective.call import CollectiveCall
from outcore.ranks.dist import DistArray

__all__ = ["PlacedArray"]


class PlacedArray(LocalArray, Closable):
    """
    One rank's view of an array on disk that is divided over ranks.

    Made by `outcore.mpi.create_placed` and `outcore.mpi.open_placed`. Each rank has a *local array* (the
    report's out-of-core local array) with the shape ``local_shape``, and reads and writes sections of
    it. Methods that end in ``_all`` are collective; so is a loop over `slabs` under partitioned
    placement.

    Notes
    -----
    The placements are the Local Placement, Global Placement and Partitioned In-core Models (PASSION
    report, section 4.1.2).

    Examples
    --------
    The same program for every placement: each rank writes its rows, then sums them.

    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> def work(comm, placement):
    ...     rows = outcore.mpi.Distribution((6, 4), ["block", "*"], comm.size)
    ...     with outcore.mpi.create_placed(f"a-{placement}", rows, "f8", placement=placement,
    ...                                format="npy", comm=comm) as a:
    ...         for slab in a.slabs(rows=2):
    ...             i, j = slab.indices
    ...             a.write_slab(slab, 10.0 * i + j)
    ...         a.flush_all()
    ...         return sum(slab.own.sum() for slab in a.slabs(rows=2))
    >>> [sum(SimWorld(2).run(lambda comm: work(comm, placement)))
    ...     for placement in ("global", "local", "partitioned")]
    [np.float64(636.0), np.float64(636.0), np.float64(636.0)]
    """

    # Slabs

    def slabs(
        self, *, halo: Any = None, axis: int | None = None, rows: int | None = None
    ) -> Iterator[Slab]:
        """
        Iterate over the local array in slabs, reading the next one in the background.

        Collective under partitioned placement: all ranks iterate over the whole array in step. Otherwise
        each rank iterates independently.

        Parameters
        ----------
        halo
            Number of elements around the own elements of a slab, in the form of `ghosts` of
            `create_placed`: at most the widths of the overlap area, except under partitioned placement.
            Must be 0 on CYCLIC axes. Default: `ghosts`.
        axis
            Axis along which slabs follow each other. Default: the axis that varies slowest in the file;
            under partitioned placement, the slowest axis that is not divided, if there is one.
        rows
            Number of rows of a slab (under partitioned placement: of a partition) along `axis`, without
            its halo. Default: as many as fit a quarter of the memory budget, and at most 16 MiB.

        Returns
        -------
        iterator of Slab
            Slabs whose ``data``, halo included, is valid until the next iteration.

        Raises
        ------
        UsageError
            ``bad-blocks``: a halo, an axis or a number of rows that is not possible.
        BudgetError
            The memory budget does not hold two slabs of one row.
        CollectiveError
            On all ranks, under partitioned placement: a rank failed.

        Notes
        -----
        Memory: two slabs and their halos, in the budget. Elements that a slab shares with the previous
        one are copied, not read again. The loop reads ahead, so write its results to another array.

        ``PASSION_read_with_reuse`` and prefetching (sections 4.5.2 and 4.5.3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(8.0))
        >>> a = outcore.mpi.open_placed("field.npy", outcore.mpi.Distribution(8, ["block"], 1), ghosts=1)
        >>> [slab.data.tolist() for slab in a.slabs(rows=4)]
        [[0.0, 1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0, 7.0]]
        """
        if self.handle.placement == "partitioned":
            from outcore.problems.placement.partitions import iterate_partitions

            return iterate_partitions(self.handle, halo, axis, rows)
        widths, along = self._find_slab_widths(halo), self.handle.choose_slab_axis(axis)
        inner = self.handle.own_shape
        if 0 in inner or not inner:
            if not inner:
                return yield_only_slab(self.handle.disk)
            return iter(())
        other = math.prod(n for d, n in enumerate(self.handle.whole_shape) if d != along)
        step = check_rows(rows) or choose_rows(
            get_step_bytes(), other * self.dtype.itemsize, sum(widths[along])
        )
        windows, boxes = [], []
        for low in range(0, inner[along], step):
            box = [slice(0, n) for n in inner]
            box[along] = slice(low, min(low + step, inner[along]))
            windows.append(self._make_window(tuple(box), widths))
            boxes.append(tuple(box))

        def make_slab(number: int, data: NDArray[Any]) -> Slab:
            box = boxes[number]
            pieces = list(intersect_pieces(*self.handle.pieces, box))
            return Slab(number, data, windows[number].inner, pieces, box)

        return loop(self.path, self.handle.part, windows, along, self.handle.disk.order, make_slab)

    def _make_window(self, box: Key, widths: list[tuple[int, int]]) -> SlabWindow:
        """Return the section, overlap area included, that a slab of own elements reads."""
        section, inner = [], []
        for part, lead, n, (before, behind) in zip(
            box, self.handle.lead, self.handle.whole_shape, widths, strict=True
        ):
            first, last = part.start + lead, part.stop + lead
            low, high = max(first - before, 0), min(last + behind, n)
            section.append(slice(low, high))
            inner.append(slice(first - low, last - low))
        return SlabWindow(tuple(section), tuple(inner))

    def _find_slab_widths(self, halo: Any) -> list[tuple[int, int]]:
        ours = list(self.ghosts)
        if halo is None:
            return ours
        asked = widths_of(halo, len(self.shape)) or [(0, 0)] * len(self.shape)
        for d, ((before, behind), (low, high)) in enumerate(zip(asked, ours, strict=True)):
            if before > low or behind > high:
                raise UsageError(
                    f"slabs: the halo ({before}, {behind}) on axis {d} is wider than the overlap area "
                    f"({low}, {high}) of {self.path!r}; create or open the array with wider ghosts=",
                    code="bad-blocks",
                    path=self.path,
                )
        return asked

    def write_slab(self, slab: Slab, value: Any) -> None:
        """
        Write the own elements of a slab, of this array or of another one with the same distribution.

        Collective under partitioned placement: every rank writes its part of each partition.

        Parameters
        ----------
        slab
            Slab from `slabs` of an array with the same shape and distribution.
        value
            Value, broadcast to the shape of ``slab.own`` and cast to `dtype` as NumPy does.

        Raises
        ------
        UsageError
            ``bad-value``: the slab is from a partitioned array, and this array has one file per rank.
        CollectiveError
            On all ranks, under partitioned placement: a rank failed.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.mpi.Distribution((4, 3), ["block", "*"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", rows, "f8", placement="global")
        >>> for slab in a.slabs(rows=3):
        ...     a.write_slab(slab, slab.indices[0])
        >>> a.read_section(np.s_[:, 1])
        array([0., 1., 2., 3.])
        """
        if self.handle.placement == "local":
            if slab.local is None:
                raise UsageError(
                    "a slab of a partitioned array also has elements of other ranks; write it to an "
                    "array with global or partitioned placement, or read slabs with global placement",
                    code="bad-value",
                    path=self.path,
                )
            self.write_section(slab.local, value)
            return
        shape = slab.own.shape
        if self.handle.placement == "partitioned":
            from outcore.ranks.collective.items import prepare_write

            def bring() -> list[Any]:
                values = broadcast_values(value, self.dtype, shape, self.path)
                return [
                    prepare_write(self.handle.disk, key, values[place])
                    for key, place in slab.pieces
                ]

            CollectiveCall(
                self.handle.group,
                "PlacedArray.write_slab",
                bring,
                "auto",
                lambda: self.handle.disk.hints,
                meaning=lambda: (self.handle.path, slab.number),
                describe=lambda: (
                    f"PlacedArray.write_slab of slab {slab.number} to {self.handle.path!r}"
                ),
            ).run()
            return
        values = broadcast_values(value, self.dtype, shape, self.path)
        for section, place in slab.pieces:
            self.handle.disk.write(section, values[place])

    # Collective methods

    def shift_all(self, method: ShiftMethod = "auto", *, explain: bool = False) -> Shift:
        """
        Copy the boundary elements of the neighbours into the overlap area. Collective.

        After the call, all ranks see elements that any rank wrote before it. Under global and
        partitioned placement ghosts are read from the owner's location, so nothing is copied.

        Parameters
        ----------
        method
            ``"direct"``: each rank reads the files of its neighbours. ``"out-of-core"``: a collective
            read, in rounds that fit the available memory. ``"in-core"``: whole local arrays are read,
            and ghosts are exchanged between memories. ``"auto"``: the method with the lowest estimated
            time.
        explain
            Whether to only report the plan.

        Returns
        -------
        Shift
            Chosen method, the reason, and the estimated time of each method.

        Raises
        ------
        UsageError
            ``bad-option``: the method does not exist or is not possible.
        CollectiveError
            On all ranks: a rank failed, or made a different call. Overlap areas are then undefined.

        Notes
        -----
        Memory: a quarter of the free budget; the whole local array for ``"in-core"``.
        ``PASSION_oc_shift`` (sections 4.2.1 and 4.3, Table 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     blocks = outcore.mpi.Distribution(6, ["block"], comm.size)
        ...     with outcore.mpi.create_placed("ranks", blocks, "i8", placement="local", ghosts=1,
        ...                                comm=comm) as a:
        ...         a.write_section(..., comm.rank)
        ...         a.shift_all()
        ...         return next(a.slabs()).data.tolist()
        >>> SimWorld(3).run(work)
        [[0, 0, 1], [0, 1, 1, 2], [1, 2, 2]]
        """
        if self.handle.placement == "local":
            return shift(self.handle, method, dry=explain)
        words = "ghosts are read from the owner's location"

        self.handle.agree(
            "shift_all",
            self.handle.requests.finish_writes,
            f"{method!r}, explain={explain}",
            meaning=(method, bool(explain)),
        )
        return Shift("none", words, {}, 0, 0)

    def read_global_all(self, key: Any = ..., *, out: NDArray[Any] | None = None) -> Any:
        """
        Read a section of the whole array on every rank, each byte once from disk. Collective.

        The ranks may request different sections. If all request the same one, the ranks that have it
        read it and send it to the others.

        Parameters
        ----------
        key
            Integers, slices and ``...`` that index the whole array.
        out
            Array to fill. Default: a new array.

        Returns
        -------
        numpy.ndarray or scalar
            Same result as NumPy indexing.

        Raises
        ------
        CollectiveError
            On all ranks: a rank failed, or made a different call.
        SectionError
            As the cause: the key is not valid for the array.

        Notes
        -----
        Memory: a new result belongs to the caller; slots as for `CollectiveArray.read_all`. With `out`
        and a key that removes or adds axes, a second copy of the section is held and counted.

        With the same section on all ranks, this is ``PASSION_oc_multicast`` of the report (section
        4.2.1, Table 2).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.mpi.Distribution((4, 3), ["block", "*"], comm.size)
        ...     with outcore.mpi.create_placed("ranks", rows, "i8", placement="local", comm=comm) as a:
        ...         a.write_section(..., comm.rank)
        ...         return a.read_global_all(np.s_[:, 1]).tolist()
        >>> SimWorld(2).run(work)
        [[0, 0, 1, 1], [0, 0, 1, 1]]
        """
        from outcore.problems.placement.whole import read_global

        return read_global(self.handle, key, out)

    def multicast_all(self, key: Any, target: DiskArray) -> None:
        """
        Copy a section of the whole array to a file of every rank. Collective.

        Parameters
        ----------
        key
            Integers, slices and ``...`` that index the whole array; the same on all ranks.
        target
            Array on disk with the shape of ``array[key]``, open for writing, used by this rank alone.

        Raises
        ------
        CollectiveError
            On all ranks: a rank failed, also because of a wrong shape, or made a different call. The
            contents of the targets are then undefined.

        Notes
        -----
        The section is copied in as many slabs as the memory budget requires; the ranks read each byte
        once from disk, collectively. Use `read_global_all` to read it into memory.
        ``PASSION_oc_multicast`` (section 4.2.1, Table 2).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.mpi.Distribution((4, 3), ["block", "*"], comm.size)
        ...     with outcore.mpi.create_placed("ranks", rows, "i8", placement="local", comm=comm) as a:
        ...         a.write_section(..., comm.rank)
        ...         with outcore.create(f"mine-{comm.rank}.npy", (2, 3), "i8") as mine:
        ...             a.multicast_all(np.s_[1:3], mine)
        ...             return mine[:, 0].tolist()
        >>> SimWorld(2).run(work)
        [[0, 1], [0, 1]]
        """
        from outcore.problems.placement.whole import multicast

        multicast(self.handle, key, target)

    def in_core_all(self, *, ghosts: bool = True) -> DistArray:
        """
        Read the whole array into the memories of the ranks. Collective.

        Parameters
        ----------
        ghosts
            Whether to include the overlap area, as stored on disk.

        Returns
        -------
        DistArray
            Array with the same distribution and the elements of this rank.

        Raises
        ------
        CollectiveError
            On all ranks: a rank failed.

        Notes
        -----
        The result needs as much memory as the local array, with its overlap area if included. It belongs
        to the caller and is not counted in the memory budget.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(4.0))
        >>> a = outcore.mpi.open_placed("field.npy", outcore.mpi.Distribution(4, ["block"], 1))
        >>> a.in_core_all().owned
        array([0., 1., 2., 3.])
        """
        made: list[DistArray] = []

        def work() -> None:
            self.handle.requests.finish_writes()
            made.append(self.handle.read_local() if ghosts else self._make_bare())

        self.handle.agree("in_core_all", work, f"ghosts={ghosts}", meaning=bool(ghosts))
        return made[0]

    def _make_bare(self) -> DistArray:
        memory = np.empty(self.handle.own_shape, self.dtype)
        self.read_section(out=memory)
        return DistArray(self.handle.distribution, memory, transport=self.handle.group)

    def flush_all(self) -> None:
        """
        Make the writes of all ranks durable. Collective.

        Raises
        ------
        CollectiveError
            On all ranks: the disk of a rank reported an error.

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.mpi.Distribution(3, ["block"], 1)
        >>> a = outcore.mpi.create_placed("field.npy", rows, "f8", placement="global")
        >>> a.write_section(0, 1.5)
        >>> a.flush_all()
        """

        def work() -> None:
            self.handle.requests.finish_writes()
            self.handle.disk.flush()

        self.handle.agree("flush_all", work)

    def close(self) -> None:
        """
        Wait for pending requests, and close the files of this rank. Closing twice does nothing.

        Not collective. Other ranks may still read the files: call `flush_all`, or any other collective
        method, before removing or replacing them.

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.mpi.Distribution(3, ["block"], 1)
        >>> outcore.mpi.create_placed("field.npy", rows, "f8", placement="global").close()
        """
        try:
            self.handle.requests.finish_writes()
        finally:
            self.handle.disk.close()
