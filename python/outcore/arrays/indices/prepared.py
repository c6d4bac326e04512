"""
Indices of one process, prepared for many accesses: `PreparedIndices`.

Problem: a schedule of one process and the schedules of many ranks
(`outcore.ranks.collective.lists.irregular`) need the same things: checked indices, addresses for each
layout, a scratch file for lists that do not fit memory, values in the order of the core.
Approach: one object provides them; `IndexSchedule` and `CollectiveSchedule` are interfaces to it.

Invariants: lists are in memory, or in a scratch file, or both; `PreparedIndices.in_memory` is True if
they are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore import _core
from outcore.arrays.indices.keys import IndexPoints, parse
from outcore.arrays.indices.lists.kept import ScheduleLists
from outcore.arrays.indices.lists.parts import (
    CombinedPoints,
    DividedList,
    count_elements,
    replace_lists,
    store_list,
)
from outcore.arrays.indices.lists.stored import StoredList
from outcore.arrays.indices.masks import IndexWorkspace
from outcore.arrays.virtual.schedules import is_stale, is_valid_for, prepare_schedule
from outcore.base.casting import convert_values
from outcore.errors import BudgetError, UsageError

__all__ = ["PreparedIndices", "parse_points"]

T = TypeVar("T")
# Lists are in memory if they take at most 1/_IN_MEMORY of the budget: accesses need the rest.
_IN_MEMORY = 2
# Below 1/_SMALL of the budget, accesses always have enough memory in addition to the lists.
_SMALL = 16


class PreparedIndices:
    """
    Elements of an array, selected by indices, prepared for many reads and writes.

    `array` is the one for which the indices were checked. With `ready` the access to it is prepared
    now; lists of neighbours are then stored as runs. `points` is kept without its lists.
    """

    def __init__(
        self,
        array: outcore.DiskArray,
        points: IndexPoints,
        lists: tuple[NDArray[np.int64], ...] | StoredList,
        *,
        ready: bool = True,
    ) -> None:
        self.array, self.points = array, replace(points, lists=())
        self._rest = [word for words in points.rest for word in words]
        self.schedules: list[_core.IndexSchedule] = []
        self._combined: list[CombinedPoints] = []
        self._parts: DividedList | None = None
        self.in_memory = not isinstance(lists, StoredList)
        self.kept = ScheduleLists(points, () if isinstance(lists, StoredList) else lists)
        if isinstance(lists, StoredList):
            self.points = replace(self.points, mode="flat", mask=None)
            self._parts = DividedList(self.points, lists)
        elif ready and 2 * self.schedule_for(array).nbytes <= sum(one.size for one in lists):
            # At half a byte per index the list consists of neighbours and is short as runs, too.
            self.kept.compress()

    @classmethod
    def prepare(cls, array: outcore.DiskArray, indices: Any) -> PreparedIndices:
        """Check indices and prepare them: in memory if they fit, otherwise in a scratch file."""
        try:
            with IndexWorkspace(array.handle.core, writes=False) as held:
                made = cls(array, *parse_points(array, indices, held))
            if made.has_enough_memory():
                return made
            del made
        except BudgetError:
            pass
        with IndexWorkspace(array.handle.core, writes=False) as held:
            points = _parse_key(array, indices, held)
            return cls(array, points, store_list(array, points, held))

    def has_enough_memory(self) -> bool:
        """Return whether accesses have enough memory besides the lists; may raise `BudgetError`."""
        array = self.array
        if self.nbytes <= array.budget // _SMALL:
            return True
        if self.nbytes > array.budget // _IN_MEMORY:
            return False
        with IndexWorkspace(array.handle.core, writes=array.writable) as held:
            return held.room(array.budget) > 0

    def spill(self) -> None:
        """Move the lists to a scratch file and release their memory."""
        if not self.in_memory:
            return
        _ = self.parts
        self.in_memory = False
        self.schedules.clear()
        self._combined.clear()
        self.kept = ScheduleLists(self.points, ())
        self.points = replace(self.points, mode="flat", mask=None)

    @property
    def parts(self) -> DividedList:
        """Accesses in parts, with the lists in a scratch file; created at first use."""
        if self._parts is None:
            with self.kept as lists, IndexWorkspace(self.array.handle.core, writes=False) as held:
                points = replace_lists(self.points, lists)
                self._parts = DividedList(self.points, store_list(self.array, points, held))
        return self._parts

    @property
    def elements(self) -> int:
        """Number of elements of the array from which the indices may select."""
        return count_elements(self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the selected elements."""
        return self.points.result_shape

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that the lists and schedules use."""
        schedules = sum(one.nbytes for one in self.schedules)
        return schedules + sum(one.nbytes for one in self._combined) + self.kept.nbytes

    @property
    def stored_nbytes(self) -> int | None:
        """Bytes of the scratch file, or None without one."""
        return None if self._parts is None else self._parts.nbytes

    def get_lists_to_save(self) -> tuple[Any, ...]:
        """Return the lists, in memory or stored, in their shortest form."""
        if self._parts is not None and not self.in_memory:
            return (self._parts.kept,)
        return tuple(self.kept.shorter())

    # For arrays of one layout

    def check_array(self, of: outcore.DiskArray | None) -> outcore.DiskArray:
        """Return the array of an access (by default that of the indices), checking state and shape."""
        array = self.array if of is None else of
        array.handle.check_open()
        if array.shape != self.points.shape:
            raise UsageError(
                f"{array.path!r} has shape {array.shape}, but the schedule is for arrays of shape "
                f"{self.points.shape}; create one with schedule() of this array",
                code="schedule-shape",
                path=array.path,
            )
        return array

    def schedule_for(self, array: outcore.DiskArray) -> _core.IndexSchedule:
        """Return the schedule of the compiled core for the layout of an array."""
        for made in self.schedules:
            if is_valid_for(made, array.handle.core):
                return made
        points, core = self.points, array.handle.core
        self.schedules = [made for made in self.schedules if not is_stale(made, core)]
        with self.kept as lists:
            made = prepare_schedule(core, points.axes, lists, points.mode, self._rest)
        self.schedules.append(made)
        return made

    def schedule_in_memory(self, array: outcore.DiskArray) -> _core.IndexSchedule | None:
        """Return the schedule for the layout of an array, or None if it does not fit memory."""
        return self.run_if_it_fits(lambda: self.schedule_for(array)) if self.in_memory else None

    def load_combined(self, array: outcore.DiskArray) -> CombinedPoints | None:
        """Return the points with which values are combined, or None if they do not fit memory."""

        def combine() -> CombinedPoints:
            combined = self._find_combined(array)
            combined.room(array.dtype).release()
            return combined

        return self.run_if_it_fits(combine)

    def _find_combined(self, array: outcore.DiskArray) -> CombinedPoints:
        for combined in self._combined:
            if combined.serves(array.handle.core):
                return combined
        points = self.points
        with self.kept as lists:
            flat = points.flat(lists)
            combined = CombinedPoints(array.handle.core, points.axes, flat, self._rest)
        self._combined.append(combined)
        return combined

    def run_if_it_fits(self, make: Callable[[], T]) -> T | None:
        """
        Return the result of a function, or None if it does not fit memory.

        Elements are then moved in parts. A single element has no parts: `BudgetError`.
        """
        try:
            return make()
        except BudgetError:
            if not self.points.axes:
                raise
            return None

    # Values

    def read_single(self, array: outcore.DiskArray, values: outcore.DiskArray) -> Any:
        """Return values on disk with the shape of the schedule; a single value is read into memory."""
        values.handle.check_open()
        if values.shape == self.shape:
            return values
        if values.size == 1:
            return values[...]
        raise UsageError(
            f"{values.path!r} has shape {values.shape}, but the schedule for {array.path!r} has "
            f"{self.shape}; an array on disk is not broadcast: read it first (values[...]) if it "
            "fits in memory",
            code="broadcast",
            path=array.path,
        )

    def broadcast(self, values: ArrayLike, array: outcore.DiskArray) -> NDArray[Any]:
        """Broadcast values to the shape of the schedule, for writing to `array`."""
        shape = self.points.result_shape
        given = convert_values(values, array.dtype)
        try:
            return np.broadcast_to(given, shape)
        except ValueError:
            raise UsageError(
                f"values of shape {given.shape} cannot be broadcast to a schedule of shape {shape}"
                "; make trailing axes equal or 1",
                code="broadcast",
                path=array.path,
            ) from None

    def pack(self, values: NDArray[Any], array: outcore.DiskArray, held: ExitStack) -> NDArray[Any]:
        """
        Return values in the order of the core: one row per point, with the array's dtype.

        If that needs a copy, `held` releases its memory.
        """
        core = self.points.to_core(values)
        if core.dtype != array.dtype or not core.flags.c_contiguous:
            cast = self.allocate_packed(core, held, array.dtype)
            cast[...] = core
            core = cast
        return self.as_rows(core)

    @staticmethod
    def allocate_packed(core: NDArray[Any], held: ExitStack, dtype: Any = None) -> NDArray[Any]:
        """Return packed memory of a shape, counted in the budget until `held` ends."""
        dtype = core.dtype if dtype is None else dtype
        nbytes = core.size * dtype.itemsize
        held.enter_context(_core.Reservation("elements in the order of a schedule", nbytes))
        return np.empty(core.shape, dtype)

    def as_rows(self, core: NDArray[Any]) -> NDArray[Any]:
        """Return an array in the order of the core with one row per point."""
        number = len(self.points.points)
        return core.reshape(math.prod(core.shape[:number]), *core.shape[number:])


def parse_points(
    array: outcore.DiskArray, key: Any, held: IndexWorkspace
) -> tuple[IndexPoints, tuple[NDArray[np.int64], ...]]:
    """
    Return the points of a key with their lists as given (none for a mask), and all lists in memory.

    Raise `UsageError` (``no-indices``) if the key has no arrays, `SectionError` if it is invalid or
    an index is out of range.
    """
    points = _parse_key(array, key, held)
    given = points.lists
    if points.mask is not None:
        points = points.replace_mask(points.mask.all(0))
    held.take(points.per_access + points.per_point * points.number)
    lists = points.get_lists(points.whole())
    points.check(1 << 16)
    return replace(points, lists=given), lists


def _parse_key(array: outcore.DiskArray, key: Any, held: IndexWorkspace) -> IndexPoints:
    points = parse(key, array.shape, array.path, held)
    if points is None:
        raise UsageError(
            "cannot create a schedule without arrays of indices; read and write sections directly",
            code="no-indices",
            path=array.path,
        )
    return points
