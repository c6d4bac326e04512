"""
Loops over an array on disk: `blocks`, and ``for row in a``.

Problem: most programs with an array larger than memory loop over it.
Approach: the loop is an iterator of blocks that suit the file and the budget (`outcore.arrays.blocks`);
this file has the methods that users call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import outcore

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray

__all__ = ["BlockMethods"]


class BlockMethods:
    """Methods of an array on disk that iterate over it."""

    def blocks(
        self,
        axis: SupportsIndex | Sequence[int | None] | None = None,
        *,
        shape: Sequence[int | None] | int | None = None,
        overlap: Sequence[int] | int = 0,
        key: Any = None,
    ) -> outcore.types.Blocks:
        """
        Iterate over the array, or a section of it, in blocks that fit the memory budget.

        Parameters
        ----------
        axis
            Axis to cut into slabs, as thick as the budget allows; a tuple is the shape of the blocks.
            By default blocks are chosen to suit the file (see Notes).
        shape
            Shape of the blocks; None for a length means the whole axis. The last blocks may be smaller.
        overlap
            Number of elements that neighbouring blocks share, per axis, or along the cut axis (by
            default the axis that varies slowest in the file). Elements shared with the previous block
            stay in memory and are not read again. A stencil of radius r needs an overlap of 2 r.
        key
            Section to iterate over, ``a[key]``: integers, slices with any step, ``...``, None. `axis`,
            `shape` and `overlap` then refer to the section, which is never read as a whole. By default
            the whole array.

        Returns
        -------
        Blocks
            Iterator of ``(key, data)``. `key` is a tuple of slices, the position of the block; `data`
            is a `numpy.ndarray` with its elements. You may change `data`; its memory is reused after
            you release it. The ``report`` of the iterator describes the loop and its cost.

            For a section, `key` is in indices of the array, with the steps, integers and new axes of
            the section: ``a[key]`` equals `data`. The ``within`` of the iterator is the position within
            the section, for use as an index into an array of its shape.

        Raises
        ------
        BudgetError
            At the start: the blocks, or the thinnest slabs, do not fit together with the buffers to
            read them; ``needed`` is a sufficient budget. A loop that has started cannot run out of
            budget later, unless the budget is lowered during the loop.
        UsageError
            The axis, shape or overlap is invalid.
        SectionError
            `key` is not basic indexing, or leaves the array.

        Notes
        -----
        A chunk with codecs must be decoded whole, so blocks consist of whole chunks. By default they
        are slabs across the axis that varies slowest in the file if slabs of whole chunks fit the
        budget, otherwise blocks cut along several axes. With `axis` or `overlap` they are always slabs
        (with an overlap the first may be smaller). If whole chunks do not fit, they are cut, and
        decoded once for each block that has a part of them; ``report.decodes`` counts this, and
        ``report.needed`` is a sufficient budget to avoid it.

        The next block is read in the background. Three blocks and the buffers to read them fit the
        budget together. While other loops use much of the budget, blocks are smaller; blocks of a given
        shape wait until the loops of other threads have ended. A thread never waits for its own open
        loops (nested loops): if the budget is too small for both, the inner loop raises `BudgetError`.

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
        """Iterate over rows, read in slabs; ``blocks(0).report`` shows the cost."""
        if not cast("DiskArray", self).shape:
            raise TypeError("iteration over an array without axes")
        return (row for _, data in self.blocks(0) for row in data)
