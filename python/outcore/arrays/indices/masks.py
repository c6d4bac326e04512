"""
Masks: the positions of nonzero elements of an array, in memory or on disk.

Problem: ``a[mask]`` needs the indices of the elements that `mask` selects. The mask may be larger than
memory, and so may its indices: eight bytes for each selected element.
Approach: the mask is read in blocks. Indices that fit a part of the budget are stored, so the mask is
read once. Otherwise they are only counted, and a second pass across the first axis returns them in
windows of limited length, in C order.

Invariants: indices are flat (they count the elements of the mask in C order), ascending, of type int64.
Their memory counts in the budget (`IndexWorkspace`). A mask on disk is read within its own budget.

Source: masks are the boolean arrays of NumPy's advanced indexing; the loop is `DiskArray.blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import BudgetError, budget_error

if TYPE_CHECKING:
    from outcore.arrays.disk import DiskArray

__all__ = ["INDEX", "IndexWorkspace", "Mask", "find_nonzero", "make_conversion_error"]

#: Bytes of an index.
INDEX = 8
# Elements of a mask that are examined in one step: their indices stay in the cache of the processor.
_STEP = 1 << 16
# Minimum number of elements in a step if memory is short.
_SMALLEST = 1 << 8
# Smaller amounts of memory are not counted: the core counts whole pages.
_PAGE = 4096
# An access uses 1/_PARTS of the free memory for indices and values; the core uses the rest.
_PARTS = 3


class IndexWorkspace:
    """
    Memory of an access by indices, outside the core, counted in the budget until `release`.

    It is counted like the memory of a loop over blocks (`crates/access/src/loops.rs`): it waits for
    accesses and loops of other threads, and leaves enough memory to read or write the array. `into`
    is another array that is written at the same time.
    """

    def __init__(self, core: _core.Array, writes: bool, into: _core.Array | None = None) -> None:
        self._core, self._into = core, core if writes else into
        self._loops: list[_core.Loop] = []
        #: Bytes that are reserved now.
        self.nbytes = 0

    def take(self, wanted: int, least: int | None = None) -> int:
        """
        Reserve `wanted` bytes, or as many as are available, and return their number.

        Raise `BudgetError` if `least` bytes (by default `wanted`) do not fit in addition to the
        access.
        """
        if wanted <= _PAGE:
            return wanted
        granted = 0

        def choose(room: int) -> int:
            nonlocal granted
            granted = wanted if least is None else max(min(wanted, room // _PARTS), least)
            return granted

        try:
            loop = self._core.begin_loop(choose, self._into)
        except BudgetError as error:
            if error.code != "block-too-large":
                raise
            raise make_conversion_error(error.path, granted, error.needed) from None
        self._loops.append(loop)
        self.nbytes += granted
        return granted

    def room(self, wanted: int) -> int:
        """Return the number of bytes, up to `wanted`, that could be reserved besides the access."""
        granted = self.take(max(wanted // _PARTS, _PAGE + 1), least=1)
        self.release()
        return granted * _PARTS

    def step(self) -> None:
        """Notify waiting threads that this access makes progress."""
        for loop in self._loops:
            loop.step()

    def release(self) -> None:
        """Release all memory."""
        while self._loops:
            self._loops.pop().release()
        self.nbytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def make_conversion_error(
    path: str | None, nbytes: int, needed: int | None, code: str = "budget-too-small"
) -> BudgetError:
    """Return the error for an access by indices that has no memory outside the core."""
    return budget_error(
        f"converting indices or values for an access to {path!r}",
        nbytes,
        "the memory budget has no room for them in addition to the access",
        needed,
        setting="outcore.memory() or Hints(memory=...)",
        instead="end loops that hold memory",
        code=code,
        path=path,
    )


class Mask:
    """The indices of the nonzero elements of an array with at least one axis."""

    def __init__(self, source: NDArray[Any] | DiskArray, held: IndexWorkspace) -> None:
        self._source, self._held = source, held
        self._kept: NDArray[np.int64] | None = None
        self._room = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis of the mask."""
        return self._source.shape

    @cached_property
    def count(self) -> int:
        """Number of selected elements; a mask on disk is read to count them."""
        if isinstance(self._source, np.ndarray):
            return int(np.count_nonzero(self._source))
        return self._count_on_disk()

    def in_memory(self) -> NDArray[np.uint8] | None:
        """Return the bytes of a mask that is in memory in C order; None for others."""
        source = self._source
        if isinstance(source, np.ndarray) and source.flags.c_contiguous and source.dtype == bool:
            return source.reshape(-1).view(np.uint8)
        return None

    def list_indices(self) -> NDArray[np.int64] | None:
        """Return all flat indices, ascending; None if they do not fit memory."""
        if not self.count:
            return np.empty(0, np.int64)
        if self._kept is None and isinstance(self._source, np.ndarray):
            self._room = self._room or self._held.take(self._estimate_bytes(), least=0)
            if self._room < self._estimate_bytes():
                return None
            self._kept = self._fill_indices()
        return self._kept

    def _estimate_bytes(self) -> int:
        """Return the memory for listing the indices of a mask in memory, including those of a step."""
        return INDEX * (self.count + min(self.count, _STEP))

    def _fill_indices(self) -> NDArray[np.int64]:
        """Return all indices of a mask in memory."""
        flat, at = np.empty(self.count, np.int64), 0
        mask = self.in_memory()
        if mask is not None:
            _core.nonzero_places(mask, flat)
            return flat
        for first, part in self._iterate_parts():
            found = np.flatnonzero(part)
            flat[at : at + found.size] = found
            flat[at : at + found.size] += first
            at += found.size
        return flat

    def all(self, axes: int) -> NDArray[np.int64]:
        """Return all indices, with memory for `axes` more such lists, or raise `BudgetError`."""
        count = self.count
        wanted = INDEX * count * axes + (self._estimate_bytes() if self._kept is None else 0)
        try:
            self._held.take(wanted)
        except BudgetError as error:
            raise budget_error(
                f"listing the {count} elements that a mask of shape {self.shape} selects",
                wanted,
                "the memory budget has less left",
                error.needed,
                reason=f"{INDEX * count} bytes for each axis",
                instead="use the mask without other index arrays",
            ) from None
        if self._kept is not None:
            return self._kept
        if isinstance(self._source, np.ndarray):
            return self._fill_indices()
        lists, found = list_nonzero(self._source, self._source.size)
        return _join(lists or [], found)

    def windows(self) -> Iterator[NDArray[np.int64]]:
        """
        Yield the flat indices, ascending, as many at a time as fit the memory reserved by `listed`.

        The next window does not change them.
        """
        # The caller may keep one window while the next one is filled with the indices of a step.
        most = max(self._room // (3 * INDEX), 1)
        window, filled = np.empty(most, np.int64), 0
        for first, part in self._iterate_parts(min(most, _STEP)):
            found = np.flatnonzero(part)
            if filled + found.size > most:
                yield window[:filled]
                window, filled = np.empty(most, np.int64), 0
            window[filled : filled + found.size] = found
            window[filled : filled + found.size] += first
            filled += found.size
        if filled:
            yield window[:filled]

    def _iterate_parts(self, step: int = _STEP) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield stretches of the mask in C order: the number of the first element, and the elements."""
        source = self._source
        if isinstance(source, np.ndarray):
            yield from _iterate_stretches(source, 0, step)
            return
        row = math.prod(source.shape[1:])
        for key, block in source.blocks(0):
            yield from _iterate_stretches(block, key[0].start * row, step)

    def _count_on_disk(self) -> int:
        """Count the indices of a mask on disk; store them if they fit."""
        source: Any = self._source
        self._room = self._held.take(2 * INDEX * source.size, least=0)
        lists, count = list_nonzero(source, self._room // (2 * INDEX))
        if lists is not None:
            self._kept = _join(lists, count)
        return count


def list_nonzero(array: DiskArray, most: int) -> tuple[list[NDArray[np.int64]] | None, int]:
    """
    Read an array once, in the order of its file, and return the indices and number of its nonzeros.

    There is one ascending list of flat indices for each stretch of the loop; None if there are more
    than `most`. Half as many more exist temporarily. The array has at least one axis.
    """
    shape, count = array.shape, 0
    lists: list[NDArray[np.int64]] | None = []
    # The indices of a step along each axis must be small compared with all stored indices.
    step = min(max(most // (4 * len(shape)), _SMALLEST), _STEP)
    for key, block in array.blocks():
        for first, part in _iterate_stretches(block, 0, step):
            number = int(np.count_nonzero(part))
            count += number
            if count > most:
                lists = None
            elif number and lists is not None:
                places = np.unravel_index(np.flatnonzero(part) + first, block.shape)
                flat = np.zeros(number, np.int64)
                for place, here, length in zip(places, key, shape, strict=True):
                    flat *= length
                    flat += place
                    flat += here.start
                lists.append(flat)
        del block
    return lists, count


def find_nonzero(array: DiskArray) -> tuple[NDArray[np.int64], ...]:
    """Return the result of `DiskArray.nonzero`."""
    if not array.size:
        return tuple(np.empty(0, np.int64) for _ in array.shape)
    each = INDEX * array.ndim
    try:
        lists, count = list_nonzero(array, array.budget // each)
    except BudgetError as error:
        # The number is unknown before the whole array has been read.
        needed = max(error.needed or 0, array.handle.compute_sufficient_budget(each * array.size))
        raise budget_error(
            f"nonzero() of {array.path!r}",
            needed,
            array.budget,
            needed,
            reason="if no element is zero",
            code=error.code,
            path=error.path,
        ) from None
    if lists is None:
        needed = array.handle.compute_sufficient_budget(each * count)
        raise budget_error(
            f"nonzero() of {array.path!r}",
            each * count,
            array.budget,
            needed,
            reason=f"indices of {count} elements along {array.ndim} axes",
            instead="iterate with blocks()",
            code="array-too-large",
            path=array.path,
        )
    flat = _join(lists, count)
    return tuple(np.unravel_index(flat, array.shape))


def _join(lists: list[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Join lists of different indices into one ascending list; `lists` is emptied on the way."""
    flat, at = np.empty(count, np.int64), 0
    for number, part in enumerate(lists):
        flat[at : at + part.size] = part
        at += part.size
        lists[number] = part[:0].copy()  # two copies of all might not fit
    if count and not bool((flat[1:] > flat[:-1]).all()):
        flat.sort()
    return flat


def _iterate_stretches(
    block: NDArray[Any], first: int, step: int
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield a block in C order, as views if its memory is in C order."""
    flat = block.reshape(-1) if block.flags.c_contiguous else block.flat
    for low in range(0, block.size, step):
        yield first + low, flat[low : low + step]
