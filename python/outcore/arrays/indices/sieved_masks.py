"""
Masks that select elements of almost every page: blocks are read, and elements extracted from them.

Problem: the indices of a mask take eight bytes for each selected element and as much again for its
address, and the touched pages must be determined. If these are almost all pages, this saves nothing:
the whole array is read from disk in any case.
Approach: data sieving. Blocks of the array are read as sections, the next one while the elements of
this one are extracted according to the mask (`take_masked`).

Invariants: only masks in memory, with one byte per element in C order and the shape of the array, are
handled this way, and only if no chunk is decoded twice. The memory for blocks is that of
`DiskArray.blocks`.

Source: Thakur, Bordawekar and Choudhary, "Compiler and Runtime Support for Out-of-Core HPF Programs"
(data sieving), here for masks of NumPy's indexing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError, UsageError

if TYPE_CHECKING:
    from outcore.arrays.blocks import Blocks
    from outcore.arrays.disk import DiskArray
    from outcore.arrays.indices.keys import IndexPoints

__all__ = ["explain", "plan_blocks", "read"]

_PAGE = 4096
# Smaller arrays are read by indices at negligible cost.
_SMALL = 1 << 20
# Fraction of touched pages from which on all pages are read.
_SHARE = 0.75
_ITEMS = (1, 2, 4, 8, 16)


def plan_blocks(array: DiskArray, points: IndexPoints) -> Blocks | None:
    """Return a loop over blocks for extracting `points`; None if reading by indices is better."""
    mask = points.mask.in_memory() if points.mask is not None else None
    item = array.dtype.itemsize
    if mask is None or array.nbytes < _SMALL or item not in _ITEMS or points.others:
        return None
    if array.handle.hints.method != "auto" or (array.order != "C" and array.ndim > 1):
        return None
    unit = _PAGE // item
    pages = -(-mask.size // unit)
    # Counting the touched pages is not worth its time for few elements.
    if points.number < _SHARE * pages:
        return None
    if _core.mask_extent(mask, unit)[1] < _SHARE * pages:
        return None
    try:
        loop = array.blocks(0)
    except BudgetError:
        return None
    if loop.report.is_single_pass:
        return loop
    loop.close()
    return None


def read(array: DiskArray, points: IndexPoints, blocks: Blocks, out: NDArray[Any]) -> None:
    """
    Read the elements of `points` from the result of `plan_blocks` into contiguous memory.

    Raise `UsageError` (``bad-index``) if the number of elements that the mask selects has changed.
    """
    mask: Any = points.mask and points.mask.in_memory()
    item = array.dtype.itemsize
    row = mask.size // array.shape[0]
    lanes = array.handle.hints.threads or len(os.sched_getaffinity(0))
    left = out.view(np.uint8)
    try:
        for key, block in blocks:
            part = mask[key[0].start * row : key[0].stop * row]
            here = block.reshape(-1).view(np.uint8)
            left = left[item * _core.take_masked(here, item, part, left, lanes) :]
    finally:
        blocks.close()
    if left.size:
        raise UsageError(
            f"a mask for {array.path!r} has changed while its elements were read; do not change it "
            "during a read",
            code="bad-index",
            path=array.path,
        )


def explain(array: DiskArray, points: IndexPoints, blocks: Blocks) -> list[dict[str, Any]]:
    """Report what `read` would do, for each block, with the memory of all blocks; ends the loop."""
    report = blocks.report
    blocks.close()
    rows = report.shape[0]
    told = []
    for low in range(0, array.shape[0], rows):
        one = array.handle.core.explain((slice(low, low + rows),), False)
        one["peak_bytes"] += report.held_bytes
        one["section"] = f"{points.number} elements that a mask chooses"
        why = "because the mask chooses elements of almost every page"
        one["why"] = f"{one['method']}, blocks of all elements, {why}"
        one["useful_bytes"] = 0
        told.append(one)
    told[0]["useful_bytes"] = points.number * array.dtype.itemsize
    return told
