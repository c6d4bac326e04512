"""
Walking through an array on disk: `blocks`, and ``for row in a``.

Problem. Most programs that meet an array larger than memory are a loop over it. Idea. The loop is an
iterator of blocks that suit the file and the budget (`outcore.arrays.blocks`); this file is what people
call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import outcore

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray

__all__ = ["Walking"]


class Walking:
    """What an array on disk does for whoever walks through it."""

    def blocks(
        self,
        axis: SupportsIndex | Sequence[int | None] | None = None,
        *,
        shape: Sequence[int | None] | int | None = None,
        overlap: Sequence[int] | int = 0,
        key: Any = None,
    ) -> outcore.Blocks:
        """
        Walk through the array, or a section of it, in blocks that fit the memory budget.

        Parameters
        ----------
        axis
            Cut slabs across this axis, as thick as the budget allows. Or, if it is a tuple, the shape of
            the blocks. By default blocks are cut wherever it suits the file: see below.
        shape
            Blocks of this shape (None: the whole axis). The last ones may be smaller.
        overlap
            Elements that neighbouring blocks share, along the cut axis (by default the one that runs
            slowest in the file) or per axis. What a block shares with the one before is kept in memory,
            not read again. A stencil of radius r needs an overlap of 2 r.
        key
            Walk through ``a[key]`` alone: integers, slices with any step, ``...``, None. `axis`, `shape`
            and `overlap` are then those of the section, which is never read as a whole.

        Returns
        -------
        Blocks
            An iterator of ``(key, data)``: `key`, a tuple of slices, says where the block lies; `data`,
            a `numpy.ndarray`, has its elements. They are yours to change; the memory is used again
            once you release it. Its ``report`` tells what the loop does, and what it costs.

            Of a section, `key` is in the indices of the array, with the section's steps, integers and
            new axes: ``a[key]`` are the elements of `data`. Where they lie within the section, which is
            where they go in an array of its shape, the loop's ``within`` tells.

        Raises
        ------
        BudgetError
            At the start: the blocks, or the thinnest slabs, do not fit beside what reading them takes;
            ``needed`` says what would do. A loop that begins is not refused memory later, unless the
            budget is lowered meanwhile.
        UsageError
            An impossible axis, shape or overlap.
        SectionError
            `key` is none of basic indexing, or leaves the array.

        Notes
        -----
        A chunk that goes through a codec is decoded whole, so blocks are made of whole chunks. By
        default these are slabs across the axis that runs slowest in the file, if slabs of whole chunks
        fit the budget, else blocks that are cut along more axes: ``key`` says where each lies. With
        `axis` or `overlap` they are slabs in any case (with an overlap the first may be smaller).
        Where whole chunks do not fit they are cut, and decoded once for each block that has a part of
        them: ``report.decodes`` says how often, ``report.needed`` what budget would do.

        The next block is read in the background. Three blocks and the buffers to read them fit the
        budget together. While other loops hold much of it, blocks are smaller; blocks of a given shape
        wait until other threads' loops have ended. A thread never waits for a loop that it has open
        itself, as in nested loops: if there is not enough for both, the inner one is refused.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> [float(data.sum()) for key, data in a.blocks(shape=4, overlap=1)]
        [6.0, 18.0, 30.0]
        >>> a.blocks().report.blocks
        1
        >>> for key, data in a.blocks(shape=2, key=np.s_[9::-3]):
        ...     print(key, data)
        (slice(9, 5, -3),) [9. 6.]
        (slice(3, None, -3),) [3. 0.]
        """
        from outcore.arrays import blocks

        return blocks.walk(cast("DiskArray", self), axis, shape, overlap, key)

    def __iter__(self) -> Iterator[Any]:
        """Rows, read in slabs: ``blocks(0).report`` tells what that costs."""
        if not cast("DiskArray", self).shape:
            raise TypeError("iteration over an array without axes")
        return (row for _, data in self.blocks(0) for row in data)
