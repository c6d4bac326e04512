"""
Schedules of accesses by indices: made once, used for every variable and time step.

Problem. Unstructured codes reach the same elements again and again: ``x[edges]`` for hundreds of arrays
and thousands of steps. To look at the indices each time (are they inside, where in the file, in which
order) takes as long as to move the elements.

Idea. `IndexSchedule` keeps what follows from the indices and the layout alone, in the core: addresses,
ordered by the windows or chunks of the file in which they lie. `gather` and `scatter` are then only
I/O, on any array of the same shape. Where several values for one element are combined, the elements are
listed once more, each of them once, with the place of each value in that list. What does not fit memory
(the list, the values, or the result) is done in parts (`outcore.indices.parts`).

Invariants. Values are combined in the order of the list, beginning with what the array has, so sums of
floating-point numbers have the same bits whatever the budget or the layout.

Source: the *schedule* of No and Choudhary, "Techniques to provide run-time support for solving
irregular problems", section 3.1.1; ``PASSION_oc_gen_schedule``, ``oc_gather`` and ``oc_scatter`` of
"PASSION: Parallel and Scalable Software for Input-Output", section 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore import _core
from outcore.casting import as_values
from outcore.errors import BudgetError, StaysInProcess, UsageError
from outcore.formats.layout import share_bytes
from outcore.indices import schedule_files
from outcore.indices.kept_lists import KeptLists
from outcore.indices.keys import Points, parse
from outcore.indices.masks import Held
from outcore.indices.parts import (
    CombinedPoints,
    Parts,
    check_disk_out,
    elements_of,
    listed,
    on_disk,
    rows_of,
    stored,
)
from outcore.indices.points import check_out
from outcore.indices.stored_lists import StoredList
from outcore.virtual.schedules import outlived, schedule_of, serves

__all__ = ["COMBINES", "Combine", "CombinedPoints", "IndexSchedule", "points_of"]

T = TypeVar("T")
#: What becomes of several values for one element.
Combine = Literal["last", "add", "multiply", "min", "max"]
#: The functions that combine an element with a value.
COMBINES: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
# A schedule is in memory if it takes at most this part of the budget: the accesses need the rest.
_IN_MEMORY = 2
# Of one that takes no more than this part nobody asks what accesses need beside it.
_SMALL = 16
# Values and results on disk are brought to memory whole if they take at most this part of it.
_WHOLE = 4


class IndexSchedule(StaysInProcess):
    """
    Elements of an array, chosen by indices, made ready to be read and written many times.

    Made by `DiskArray.schedule`, or by `IndexSchedule.open` of one that was saved.

    Notes
    -----
    It takes up to 16 bytes of the memory budget for each index, for each layout with which it is used;
    of neighbours that lie one behind the other in the file and in the result, 20 for each run of them;
    combining takes 16 more for each index. A list that had to be made (of a mask, or of another type)
    is kept besides, as runs where they are shorter. While it is made, it takes a quarter of the budget
    at most beside what it keeps. Where all that is more than half of the budget, indices are kept in a
    scratch file instead (``OUTCORE_SCRATCH``, or beside the array): 8 bytes for each, and 16 for each
    size of chunks with which it is used. `gather` and `scatter` then go through the array once, a range
    of elements at a time. The file has no name: it goes away with the schedule, or with the process.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> x = outcore.create("x.npy", data=np.zeros(6))
    >>> y = outcore.create("y.npy", data=np.arange(6.0))
    >>> edges = np.array([[0, 1], [1, 5], [5, 0]])
    >>> left, right = x.schedule(edges[:, 0]), x.schedule(edges[:, 1])
    >>> left.scatter(right.gather(of=y), combine="add")  # x[left] += y[right]
    >>> x[:]
    array([1., 5., 0., 0., 0., 0.])
    """

    _elsewhere = "save it with IndexSchedule.save, and open it there with IndexSchedule.open"

    def __init__(
        self,
        array: outcore.DiskArray,
        points: Points,
        lists: tuple[NDArray[np.int64], ...] | StoredList,
        *,
        ready: bool = True,
    ):
        self._array, self._points = array, replace(points, lists=())
        self._rest = [word for words in points.rest for word in words]
        self._made: list[_core.IndexSchedule] = []
        self._combined: list[CombinedPoints] = []
        self._parts: Parts | None = None
        #: Whether the lists are in memory.
        self.in_memory = not isinstance(lists, StoredList)
        self._kept = KeptLists(points, () if isinstance(lists, StoredList) else lists)
        if isinstance(lists, StoredList):
            self._points = replace(self._points, mode="flat", mask=None)
            self._parts = Parts(self._points, lists)
        elif ready and 2 * self._of(array).nbytes <= sum(one.size for one in lists):
            # It takes half a byte for each index: neighbours, whose lists are short as runs, too.
            self._kept.compress()

    @classmethod
    def _made_for(cls, array: outcore.DiskArray, indices: Any) -> IndexSchedule:
        """Do the work of `DiskArray.schedule`: in memory if that fits, else on disk."""
        try:
            with Held(array._core, writes=False) as held:
                made = cls(array, *points_of(array, indices, held))
            if made._leaves_room():
                return made
            del made
        except BudgetError:
            pass
        with Held(array._core, writes=False) as held:
            points = _parsed(array, indices, held)
            return cls(array, points, stored(array, points, held))

    def _leaves_room(self) -> bool:
        """Whether accesses have enough memory beside it; may raise `BudgetError` as well."""
        array = self._array
        if self.nbytes <= array.budget // _SMALL:
            return True
        if self.nbytes > array.budget // _IN_MEMORY:
            return False
        with Held(array._core, writes=array.writable) as held:
            return held.room(array.budget) > 0

    def _spill(self) -> None:
        """Keep the lists on disk only, and give the memory back."""
        if not self.in_memory:
            return
        self._in_parts()
        self.in_memory = False
        self._made.clear()
        self._combined.clear()
        self._kept = KeptLists(self._points, ())
        self._points = replace(self._points, mode="flat", mask=None)

    @property
    def _elements(self) -> int:
        """How many elements the indices may name."""
        return elements_of(self._points)

    @property
    def _stored(self) -> StoredList:
        """Numbers of the elements in a scratch file, also of a schedule in memory."""
        return self._in_parts().kept

    def _flat(self) -> NDArray[np.int64]:
        """Numbers of the elements, in memory, of a schedule that is."""
        with self._kept as lists:
            return self._points.flat(lists)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what `gather` gives."""
        return self._points.result_shape

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that it takes."""
        made = sum(one.nbytes for one in self._made)
        return made + sum(one.nbytes for one in self._combined) + self._kept.nbytes

    @property
    def stored_nbytes(self) -> int:
        """Bytes that it takes on disk, in a scratch file."""
        return self._parts.nbytes if self._parts is not None else 0

    def __repr__(self) -> str:
        kept = f", {self.stored_nbytes} on disk" if self._parts is not None else ""
        return f"<IndexSchedule {self.shape} of {self._points.shape}, {self.nbytes} bytes{kept}>"

    def gather(self, out: Any = None, *, of: outcore.DiskArray | None = None) -> Any:
        """
        Read the elements.

        Parameters
        ----------
        out
            Array to fill, of shape `shape` and the dtype of the array that is read: in memory (packed,
            in C order, points first, it is filled without a copy), or a `DiskArray` that is open for
            writing.
        of
            The array to read, of the shape of that for which the schedule was made; by default that
            one.

        Returns
        -------
        numpy.ndarray or DiskArray
            `out`, or a new array in memory.

        Raises
        ------
        UsageError
            Another shape (``schedule-shape``), `out` does not match, or the array is closed.
        BudgetError
            A buffer does not fit the memory budget.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> a.schedule([7, 0, 7]).gather()
        array([7., 0., 7.])
        >>> out = outcore.create("chosen.npy", (3,), "f8")
        >>> a.schedule([2, 8, 1]).gather(out)[:]
        array([2., 8., 1.])
        """
        array = self._checked(of)
        points = self._points
        if on_disk(out):
            self._gather_to_disk(array, out)
            return out
        if out is not None:
            check_out(array, out, points.result_shape)
            core, result = points.to_core(out), out
        else:
            core = np.empty(points.core_shape, array.dtype)
            result = points.to_result(core)
        schedule = self._in_memory(array)
        with ExitStack() as held:
            packed: NDArray[Any] | None = core
            if schedule is not None and not core.flags.c_contiguous:
                packed = self._fitting(lambda: self._new_packed(core, held))
            if schedule is not None and packed is not None:
                schedule.read(array._core, self._as_list(packed))
                if packed is not core:
                    core[...] = packed
                return result
        self._in_parts().gather(array, rows_of(points, result, array.dtype))
        return result

    def _gather_to_disk(self, array: outcore.DiskArray, out: outcore.DiskArray) -> None:
        points = self._points
        check_disk_out(array, out, points.result_shape)
        # As NumPy does: all is read before any of it is overwritten.
        shares = share_bytes(array.info, out.info)
        with Held(array._core, writes=False) as held:
            if self._whole(out, held, must=shares):
                out.write(..., self.gather(of=array))
                return
        self._in_parts().gather(array, rows_of(points, out, array.dtype))
        if out.hints.sync:
            out.flush()

    def _whole(self, data: outcore.DiskArray, held: Held, *, must: bool) -> bool:
        """Whether values, or a result, on disk are brought to memory whole; `must`: or refused."""
        if must or not self._points.axes:
            held.take(data.nbytes)
            return True
        if not self.in_memory or data.nbytes > self._array.budget // _WHOLE:
            return False
        try:
            held.take(data.nbytes)
        except BudgetError:
            return False
        return True

    def scatter(
        self, values: ArrayLike, combine: Combine = "last", *, of: outcore.DiskArray | None = None
    ) -> None:
        """
        Write values to the elements.

        Parameters
        ----------
        values
            Broadcast to `shape`, and cast to the dtype of the array, as NumPy does on assignment. Those
            of a `DiskArray`, of this very shape, are read a part at a time.
        combine
            What becomes of several values for one element, and of what the array has there: ``"last"``
            replaces it, the others (``"add"``, ``"multiply"``, ``"min"``, ``"max"``) combine it with
            the values one after another, in the order of the indices.
        of
            As for `gather`; it must be open for writing.

        Raises
        ------
        UsageError
            As for `gather`; `values` do not broadcast.

        Notes
        -----
        To combine, the elements are read, and written again: what others write to them meanwhile is
        lost. They take memory of the budget meanwhile, and so do values that have to be cast or put in
        order, which are copied; where a copy does not fit, values are taken a part at a time.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.zeros(3))
        >>> a.schedule([2, 0, 2]).scatter([1.0, 2.0, 3.0], combine="add")
        >>> a[:]
        array([2., 0., 4.])
        """
        array = self._checked(of)
        array._must_write("write to")
        self._scatter(array, values, function_of(combine))
        if array.hints.sync:
            array.flush()

    def _scatter(self, array: outcore.DiskArray, values: Any, function: np.ufunc | None) -> None:
        if on_disk(values):
            values = self._one_or_all(array, values)
        if on_disk(values):
            shares = share_bytes(array.info, values.info)
            with Held(array._core, writes=True) as held:
                if self._whole(values, held, must=shares):
                    self._scatter(array, values[...], function)
                    return
            self._in_parts().scatter(array, rows_of(self._points, values, array.dtype), function)
            return
        broadcast, schedule = self._broadcast(values, array), self._in_memory(array)
        with ExitStack() as held:
            packed = None
            if schedule is not None:
                packed = self._fitting(lambda: self._packed(broadcast, array, held))
            if schedule is not None and packed is not None and function is None:
                schedule.write(array._core, packed)
                return
            combined = self._combined_in_memory(array) if packed is not None else None
            if combined is not None and packed is not None and function is not None:
                combined.apply(array._core, packed, function)
                return
        rows = rows_of(self._points, broadcast, array.dtype)
        self._in_parts().scatter(array, rows, function)

    def _one_or_all(self, array: outcore.DiskArray, values: outcore.DiskArray) -> Any:
        """Values on disk of the very shape, or the only one in memory."""
        values._check_open()
        if values.shape == self.shape:
            return values
        if values.size == 1:
            return values[...]
        raise UsageError(
            f"{values.path!r} has shape {values.shape}, the schedule for {array.path!r} {self.shape}; "
            "an array on disk is not broadcast. Read it first, values[...], if it fits in memory",
            code="broadcast",
            path=array.path,
        )

    def _in_memory(self, array: outcore.DiskArray) -> _core.IndexSchedule | None:
        """The schedule for the layout of this array; None if it does not fit memory."""
        return self._fitting(lambda: self._of(array)) if self.in_memory else None

    def _combined_in_memory(self, array: outcore.DiskArray) -> CombinedPoints | None:
        """What combines values in memory; None if that, or the elements, do not fit."""

        def combining() -> CombinedPoints:
            combined = self._combining(array)
            combined.room(array.dtype).release()
            return combined

        return self._fitting(combining)

    def _fitting(self, make: Callable[[], T]) -> T | None:
        """What `make` gives; None if it does not fit memory, and elements go in parts instead."""
        try:
            return make()
        except BudgetError:
            if not self._points.axes:  # one element has no parts
                raise
            return None

    def _in_parts(self) -> Parts:
        """The list in a scratch file, also that of a schedule in memory."""
        if self._parts is None:
            with self._kept as lists, Held(self._array._core, writes=False) as held:
                points = listed(self._points, lists)
                self._parts = Parts(self._points, stored(self._array, points, held))
        return self._parts

    def _broadcast(self, values: ArrayLike, array: outcore.DiskArray) -> NDArray[Any]:
        """Values in NumPy's shape."""
        shape = self._points.result_shape
        given = as_values(values, array.dtype)
        try:
            return np.broadcast_to(given, shape)
        except ValueError:
            raise UsageError(
                f"values of shape {given.shape} cannot be broadcast to a schedule of shape {shape}."
                " Trailing axes must be equal or 1",
                code="broadcast",
                path=array.path,
            ) from None

    def _packed(
        self, values: NDArray[Any], array: outcore.DiskArray, held: ExitStack
    ) -> NDArray[Any]:
        """
        Values as the core takes them: a row for each point, of the array's dtype.

        Parameters
        ----------
        values
            In NumPy's shape.
        array
            The array that is written.
        held
            Counts a copy, if there is one.
        """
        core = self._points.to_core(values)
        if core.dtype != array.dtype or not core.flags.c_contiguous:
            cast = self._new_packed(core, held, array.dtype)
            cast[...] = core
            core = cast
        return self._as_list(core)

    @staticmethod
    def _new_packed(core: NDArray[Any], held: ExitStack, dtype: Any = None) -> NDArray[Any]:
        """Packed memory of this shape, which `held` counts."""
        dtype = core.dtype if dtype is None else dtype
        nbytes = core.size * dtype.itemsize
        held.enter_context(_core.Reservation("elements in the order of a schedule", nbytes))
        return np.empty(core.shape, dtype)

    def _as_list(self, core: NDArray[Any]) -> NDArray[Any]:
        number = len(self._points.points)
        return core.reshape(math.prod(core.shape[:number]), *core.shape[number:])

    def _checked(self, of: outcore.DiskArray | None) -> outcore.DiskArray:
        array = self._array if of is None else of
        array._check_open()
        if array.shape != self._points.shape:
            raise UsageError(
                f"{array.path!r} has shape {array.shape}, the schedule is for arrays of shape "
                f"{self._points.shape}; make one with schedule() of this array",
                code="schedule-shape",
                path=array.path,
            )
        return array

    def _of(self, array: outcore.DiskArray) -> _core.IndexSchedule:
        """The schedule for the layout of this array."""
        for made in self._made:
            if serves(made, array._core):
                return made
        points = self._points
        self._made = [made for made in self._made if not outlived(made, array._core)]
        with self._kept as lists:
            made = schedule_of(array._core, points.axes, lists, points.mode, self._rest)
        self._made.append(made)
        return made

    def _combining(self, array: outcore.DiskArray) -> CombinedPoints:
        for combined in self._combined:
            if combined.serves(array._core):
                return combined
        points = self._points
        with self._kept as lists:
            flat = points.flat(lists)
            combined = CombinedPoints(array._core, points.axes, flat, self._rest)
        self._combined.append(combined)
        return combined

    # Files

    def save(self, path: str | Path) -> None:
        """
        Save the schedule, to be used in another process, or on another number of ranks.

        Parameters
        ----------
        path
            A new file, or one that is replaced, in NumPy's ``.npz`` format: the indices, as runs (first
            index and length) where that is shorter, and what they mean, as JSON.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> a.schedule(np.arange(3, 9)).save("some.npz")
        >>> outcore.IndexSchedule.open("some.npz", a).gather()
        array([3., 4., 5., 6., 7., 8.])
        """
        lists: tuple[Any, ...] = tuple(self._kept.shorter())
        if self._parts is not None and not self.in_memory:
            lists = (self._parts.kept,)
        schedule_files.write(path, self._points, lists)

    @classmethod
    def open(cls, path: str | Path, array: outcore.DiskArray) -> IndexSchedule:
        """
        Open a schedule that was saved, for an array.

        Parameters
        ----------
        path
            Of the file.
        array
            Of the shape for which the schedule was made.

        Raises
        ------
        FormatError
            The file is no schedule (``bad-schedule``).
        StorageError
            It cannot be read.
        UsageError
            The array has another shape.

        Returns
        -------
        IndexSchedule
            As `DiskArray.schedule` of the same indices makes it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> a.schedule([4, 2]).save("two.npz")
        >>> outcore.IndexSchedule.open("two.npz", a).gather()
        array([4., 2.])
        """
        with schedule_files.opened(path, array.path) as file:
            if array.shape != file.points.shape:
                raise UsageError(
                    f"{array.path!r} has shape {array.shape}, the schedule in {str(path)!r} is for "
                    f"arrays of shape {file.points.shape}",
                    code="schedule-shape",
                    path=array.path,
                )
            try:
                made = cls(array, file.points, file.in_memory())
                if made._leaves_room():
                    return made
                del made
            except BudgetError:
                pass
            with Held(array._core, writes=False) as held:
                return cls(array, file.points, file.stored(array, held))


def function_of(combine: str) -> np.ufunc | None:
    """The function of a word; None for ``"last"``."""
    if combine == "last":
        return None
    if combine not in COMBINES:
        raise UsageError(
            f"combine={combine!r} is not known; there are last, {', '.join(COMBINES)}",
            code="bad-combine",
        )
    return COMBINES[combine]


def points_of(
    array: outcore.DiskArray, key: Any, held: Held
) -> tuple[Points, tuple[NDArray[np.int64], ...]]:
    """
    The points of a key, with the lists that it has (none of a mask), and all their lists in memory.

    Raises
    ------
    UsageError
        The key has no arrays (``no-indices``).
    SectionError
        Of the key, or of the first index that is outside.
    """
    points = _parsed(array, key, held)
    given = points.lists
    if points.mask is not None:
        points = points.listed(points.mask.all(0))
    held.take(points.per_access + points.per_point * points.number)
    lists = points.lists_of(points.whole())
    points.check(1 << 16)
    return replace(points, lists=given), lists


def _parsed(array: outcore.DiskArray, key: Any, held: Held) -> Points:
    points = parse(key, array.shape, array.path, held)
    if points is None:
        raise UsageError(
            "a schedule is made of arrays of indices; sections are read and written without one",
            code="no-indices",
            path=array.path,
        )
    return points
