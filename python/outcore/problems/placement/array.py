"""
Out-of-core arrays of many ranks, in one of three placements: `PlacedArray`.

Problem. An array that does not fit in the memory of all ranks is divided over them by a distribution.
Its elements may lie in one file, or in one for each rank; a program should be written once.
Idea. Every rank has a *local array*, with an overlap area if it is asked for. It reads and writes
sections of it, and walks through it in slabs. Where the elements are is the placement's affair:

    global        one file; the local array is the pieces of a distribution in it
    local         a file for each rank, with its overlap area; `shift_all` refreshes that
    partitioned   one file; all ranks read a partition of it together, divided over their memories

Invariants. Elements are equal in every placement. What one rank alone may fail at is agreed on by all
in methods that end in ``_all``. Elements of other ranks change only by `shift_all` (local), or are read
where their owner has them (global, partitioned): between a write of the owner and the next `shift_all`
ghosts may be old or new.

Reference: PASSION report, sections 4.1.2 and 4.2 (Tables 1 and 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outcore.arrays.disk import DiskArray
from outcore.base.casting import as_section
from outcore.base.distribution import Key
from outcore.base.distribution import widths as widths_of
from outcore.errors import UsageError
from outcore.problems.placement.local import LocalArray
from outcore.problems.placement.part import intersections
from outcore.problems.placement.placed import free_bytes
from outcore.problems.placement.shift import Shift, Way, shift
from outcore.problems.placement.slabs import Slab, Window, check_rows, loop, only_slab, rows_of
from outcore.ranks.collective.call import run
from outcore.ranks.dist import DistArray

__all__ = ["PlacedArray"]


class PlacedArray(LocalArray):
    """
    An array on disk that is divided over ranks: one rank's view of it.

    Made by `outcore.create_placed` and `outcore.open_placed`. Each rank has a *local array* (the
    report's out-of-core local array), which has the shape ``local_shape`` and is read and written by
    sections. Methods that end in ``_all`` are collective; so is a loop over `slabs` under partitioned
    placement.

    Notes
    -----
    The Local Placement, Global Placement and Partitioned In-core Models (PASSION report, section 4.1.2).

    Examples
    --------
    One program for every placement: each rank adds up its rows, and writes what it has found.

    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> def work(comm, placement):
    ...     rows = outcore.Distribution((6, 4), ["block", "*"], comm.size)
    ...     with outcore.create_placed(f"a-{placement}", rows, "f8", placement=placement,
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
        Walk through the local array in slabs, reading the next one meanwhile.

        Collective under partitioned placement: every rank walks through all of it, in step. Else each
        rank walks for itself.

        Parameters
        ----------
        halo
            How many elements around its own a slab has, as `ghosts` of `create_placed` says; at most
            these under local placement, which has no others. By default these. 0 on CYCLIC axes.
        axis
            Along which slabs follow each other. By default the slowest one in the file; under
            partitioned placement the slowest that is not divided, if there is one.
        rows
            Rows of a slab along `axis`, without its halo; under partitioned placement of a partition. By
            default what a quarter of the memory budget holds, and at most 16 MiB.

        Returns
        -------
        iterator of Slab
            ``data``, with its halo, is valid until the loop goes on.

        Raises
        ------
        UsageError
            ``bad-blocks``: a halo, an axis or a number of rows that is not possible.
        BudgetError
            There is no memory for two slabs of one row.
        CollectiveError
            On all ranks, under partitioned placement, if one of them failed.

        Notes
        -----
        Memory: two slabs and their halos, in the budget. Elements that a slab shares with the one before
        are copied, not read again. A loop reads ahead, so write what it computes to another array.

        ``PASSION_read_with_reuse`` and prefetching (sections 4.5.2 and 4.5.3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(8.0))
        >>> a = outcore.open_placed("field.npy", outcore.Distribution(8, ["block"], 1), ghosts=1)
        >>> [slab.data.tolist() for slab in a.slabs(rows=4)]
        [[0.0, 1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0, 7.0]]
        """
        if self.handle.placement == "partitioned":
            from outcore.problems.placement.partitions import partitions

            return partitions(self.handle, halo, axis, rows)
        widths, along = self._slab_widths(halo), self.handle.slab_axis(axis)
        inner = self.handle.own_shape
        if 0 in inner or not inner:
            if not inner:
                return only_slab(self.handle.disk)
            return iter(())
        other = math.prod(n for d, n in enumerate(self.handle.whole_shape) if d != along)
        step = check_rows(rows) or rows_of(
            free_bytes(), other * self.dtype.itemsize, sum(widths[along])
        )
        windows, boxes = [], []
        for low in range(0, inner[along], step):
            box = [slice(0, n) for n in inner]
            box[along] = slice(low, min(low + step, inner[along]))
            windows.append(self._window(tuple(box), widths))
            boxes.append(tuple(box))

        def made(number: int, data: NDArray[Any]) -> Slab:
            box = boxes[number]
            pieces = list(intersections(*self.handle.pieces, box))
            return Slab(number, data, windows[number].inner, pieces, box)

        return loop(self.path, self.handle.part, windows, along, self.handle.disk.order, made)

    def _window(self, box: Key, widths: list[tuple[int, int]]) -> Window:
        """What a slab of own elements reads of the local array with its overlap area."""
        section, inner = [], []
        for part, lead, n, (before, behind) in zip(
            box, self.handle.lead, self.handle.whole_shape, widths, strict=True
        ):
            first, last = part.start + lead, part.stop + lead
            low, high = max(first - before, 0), min(last + behind, n)
            section.append(slice(low, high))
            inner.append(slice(first - low, last - low))
        return Window(tuple(section), tuple(inner))

    def _slab_widths(self, halo: Any) -> list[tuple[int, int]]:
        ours = list(self.ghosts)
        if halo is None:
            return ours
        asked = widths_of(halo, len(self.shape)) or [(0, 0)] * len(self.shape)
        for d, ((before, behind), (low, high)) in enumerate(zip(asked, ours, strict=True)):
            if before > low or behind > high:
                raise UsageError(
                    f"slabs: a halo of ({before}, {behind}) on axis {d} of {self.path!r}, whose overlap "
                    f"area has ({low}, {high}); make or open the array with wider ghosts=",
                    code="bad-blocks",
                    path=self.path,
                )
        return asked

    def write_slab(self, slab: Slab, value: Any) -> None:
        """
        Write the own elements of a slab, of this array or of another one that is divided alike.

        Collective under partitioned placement: every rank writes its part of each partition.

        Parameters
        ----------
        slab
            Of `slabs`, of an array of the same shape and distribution.
        value
            Broadcast to the shape of ``slab.own`` and cast to `dtype` as NumPy does.

        Raises
        ------
        UsageError
            ``bad-value``: the slab is of a partitioned array, this one has a file for each rank.
        CollectiveError
            On all ranks, under partitioned placement, if one of them failed.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> rows = outcore.Distribution((4, 3), ["block", "*"], 1)
        >>> a = outcore.create_placed("field.npy", rows, "f8", placement="global")
        >>> for slab in a.slabs(rows=3):
        ...     a.write_slab(slab, slab.indices[0])
        >>> a.read_section(np.s_[:, 1])
        array([0., 1., 2., 3.])
        """
        if self.handle.placement == "local":
            if slab.local is None:
                raise UsageError(
                    "a slab of a partitioned array has elements of other ranks, too; write it to "
                    "an array with global or partitioned placement, or read it with global one",
                    code="bad-value",
                    path=self.path,
                )
            self.write_section(slab.local, value)
            return
        shape = slab.own.shape
        if self.handle.placement == "partitioned":
            from outcore.ranks.collective.items import writing

            def bring() -> list[Any]:
                values = as_section(value, self.dtype, shape, self.path)
                return [writing(self.handle.disk, key, values[place]) for key, place in slab.pieces]

            run(
                self.handle.group,
                "PlacedArray.write_slab",
                bring,
                "auto",
                lambda: self.handle.disk.hints,
                meaning=lambda: (self.handle.path, slab.number),
                tell=lambda: (
                    f"PlacedArray.write_slab of slab {slab.number} to {self.handle.path!r}"
                ),
            )
            return
        values = as_section(value, self.dtype, shape, self.path)
        for section, place in slab.pieces:
            self.handle.disk.write(section, values[place])

    # Together

    def shift_all(self, method: Way = "auto", *, explain: bool = False) -> Shift:
        """
        Bring the boundary elements of the neighbours into the overlap area. Collective.

        Elements that ranks have written before the call are seen by all after it. Under global and
        partitioned placement ghosts are read where their owner has them, so nothing has to be moved.

        Parameters
        ----------
        method
            ``"direct"``: each rank reads the files of its neighbours; ``"out-of-core"``: a collective
            read, as much at a time as there is memory for; ``"in-core"``: whole local arrays are read
            and ghosts exchanged between memories. ``"auto"``: what is estimated to take least.
        explain
            Only tell what would be done.

        Returns
        -------
        Shift
            The way that was taken, why, and what each was estimated to take.

        Raises
        ------
        UsageError
            ``bad-option``: no such method, or one that is not possible.
        CollectiveError
            On all ranks, if any rank failed, or called something else. Overlap areas are then undefined.

        Notes
        -----
        Memory: a quarter of what is free of the budget, the whole local array if ``"in-core"``.
        ``PASSION_oc_shift`` (sections 4.2.1 and 4.3, Table 3).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     blocks = outcore.Distribution(6, ["block"], comm.size)
        ...     with outcore.create_placed("ranks", blocks, "i8", placement="local", ghosts=1,
        ...                                comm=comm) as a:
        ...         a.write_section(..., comm.rank)
        ...         a.shift_all()
        ...         return next(a.slabs()).data.tolist()
        >>> SimWorld(3).run(work)
        [[0, 0, 1], [0, 1, 1, 2], [1, 2, 2]]
        """
        if self.handle.placement == "local":
            return shift(self.handle, method, dry=explain)
        words = "ghosts are read where their owner has them"

        def settle() -> list[int]:
            self.handle.requests.finish_writes()
            return []

        self.handle.agree(
            "shift_all",
            settle,
            f"{method!r}, explain={explain}",
            meaning=(method, bool(explain)),
        )
        return Shift("none", words, {}, 0, 0)

    def read_global_all(self, key: Any = ..., *, out: NDArray[Any] | None = None) -> Any:
        """
        Read a section of the whole array on every rank, each byte once from disk. Collective.

        Each rank may ask for a section of its own. If all ask for the same one it is read by the ranks
        that have it, and sent to all others.

        Parameters
        ----------
        key
            Integers, slices and ``...``: of the whole array.
        out
            Where to; by default a new array.

        Returns
        -------
        numpy.ndarray or scalar
            As NumPy gives.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed, or called something else.
        SectionError
            As the cause: the key is none for the array.

        Notes
        -----
        Memory: a new result is the caller's; slots as for `CollectiveArray.read_all`. With `out` and a
        key that drops or makes axes the section is held once more, counted.

        With the same section on all ranks the ``PASSION_oc_multicast`` of the report (section 4.2.1,
        Table 2).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.Distribution((4, 3), ["block", "*"], comm.size)
        ...     with outcore.create_placed("ranks", rows, "i8", placement="local", comm=comm) as a:
        ...         a.write_section(..., comm.rank)
        ...         return a.read_global_all(np.s_[:, 1]).tolist()
        >>> SimWorld(2).run(work)
        [[0, 0, 1, 1], [0, 0, 1, 1]]
        """
        from outcore.problems.placement.whole import read_global

        return read_global(self.handle, key, out)

    def multicast_all(self, key: Any, target: DiskArray) -> None:
        """
        Bring a section of the whole array to a file of every rank. Collective.

        Parameters
        ----------
        key
            Integers, slices and ``...``, of the whole array; on all ranks the same.
        target
            An array on disk of this rank alone, with the shape of ``array[key]``, open for writing.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed (also if the shape is another one), or called something
            else. What targets hold is then undefined.

        Notes
        -----
        In slabs, as many as the memory budget asks for; each byte is read once from disk by all ranks
        together. `read_global_all` brings it to memory. ``PASSION_oc_multicast`` (section 4.2.1, Table
        2).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     rows = outcore.Distribution((4, 3), ["block", "*"], comm.size)
        ...     with outcore.create_placed("ranks", rows, "i8", placement="local", comm=comm) as a:
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
        The whole array in the memories of the ranks. Collective.

        Parameters
        ----------
        ghosts
            Whether its overlap area comes as well, as it is on disk.

        Returns
        -------
        DistArray
            Of the same distribution, with the elements of this rank.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed.

        Notes
        -----
        The memory is the caller's, and not counted in the memory budget: as much as the local array,
        with its overlap area if that comes.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> np.save("field.npy", np.arange(4.0))
        >>> a = outcore.open_placed("field.npy", outcore.Distribution(4, ["block"], 1))
        >>> a.in_core_all().owned
        array([0., 1., 2., 3.])
        """
        made: list[DistArray] = []

        def work() -> list[int]:
            self.handle.requests.finish_writes()
            made.append(self.handle.read_local() if ghosts else self._bare())
            return []

        self.handle.agree("in_core_all", work, f"ghosts={ghosts}", meaning=bool(ghosts))
        return made[0]

    def _bare(self) -> DistArray:
        memory = np.empty(self.handle.own_shape, self.dtype)
        self.read_section(out=memory)
        return DistArray(self.handle.distribution, memory, transport=self.handle.group)

    def flush_all(self) -> None:
        """
        Make what all ranks have written durable. Collective.

        Raises
        ------
        CollectiveError
            On all ranks, if the disk of any of them refused.

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.Distribution(3, ["block"], 1)
        >>> a = outcore.create_placed("field.npy", rows, "f8", placement="global")
        >>> a.write_section(0, 1.5)
        >>> a.flush_all()
        """

        def work() -> list[int]:
            self.handle.requests.finish_writes()
            self.handle.disk.flush()
            return []

        self.handle.agree("flush_all", work)

    def close(self) -> None:
        """
        Wait for what was started, and close the files of this rank. Not collective; twice does nothing.

        Other ranks may still read them: call `flush_all`, or any other collective, before files are
        removed or replaced.

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.Distribution(3, ["block"], 1)
        >>> outcore.create_placed("field.npy", rows, "f8", placement="global").close()
        """
        try:
            self.handle.requests.finish_writes()
        finally:
            self.handle.disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
