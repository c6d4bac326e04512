"""
Schedules of accesses by indices: created once, used for every variable and time step.

Problem: unstructured codes access the same elements repeatedly: ``x[edges]`` for hundreds of arrays and
thousands of steps. Processing the indices each time (are they in range, their position in the file,
their order) takes as long as moving the elements.

Approach: `IndexSchedule` stores everything that follows from the indices and the layout alone, in the
core: addresses, ordered by the windows or chunks of the file that contain them. `gather` and `scatter`
are then only I/O, on any array of the same shape. If several values for one element are combined, the
elements are listed once more without duplicates, with the position of each value in that list. If the
list, the values or the result do not fit memory, the access is done in parts
(`outcore.arrays.indices.lists.parts`).

Invariants: values are combined in the order of the list, starting with the element of the array, so
sums of floating-point numbers have the same bits whatever the budget or the layout.

Source: the *schedule* of No and Choudhary, "Techniques to provide run-time support for solving
irregular problems", section 3.1.1; ``PASSION_oc_gen_schedule``, ``oc_gather`` and ``oc_scatter`` of
"PASSION: Parallel and Scalable Software for Input-Output", section 4.4.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore.arrays.handle import is_on_disk
from outcore.arrays.indices import schedule_files
from outcore.arrays.indices.lists.parts import check_disk_out, open_rows
from outcore.arrays.indices.masks import IndexWorkspace
from outcore.arrays.indices.points import check_out
from outcore.arrays.indices.prepared import PreparedIndices
from outcore.errors import BudgetError, StaysInProcess, UsageError
from outcore.formats.layout import share_bytes

__all__ = ["COMBINES", "Combine", "IndexSchedule", "get_function"]

#: Treatment of several values for one element.
Combine = Literal["last", "add", "multiply", "min", "max"]
#: Functions that combine an element with a value.
COMBINES: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
# Values and results on disk are moved to memory whole if they take at most 1/_WHOLE of the budget.
_WHOLE = 4


class IndexSchedule(StaysInProcess):
    """
    Elements of an array, selected by indices, prepared for many reads and writes.

    A schedule is created by `DiskArray.schedule`, or opened from a file by `IndexSchedule.open`.

    Notes
    -----
    Memory: a schedule takes up to 16 bytes of the memory budget for each index, for each layout with
    which it is used. For neighbours that are adjacent in the file and in the result, it takes 20 bytes
    for each run of them. Combining takes 16 more for each index. A list that had to be created (from a
    mask, or from another type) is stored in addition, as runs if they are shorter. Creating a schedule
    takes at most a quarter of the budget in addition to what it stores.

    If all of that exceeds half of the budget, the indices are stored in a scratch file instead (in
    ``OUTCORE_SCRATCH``, or next to the array): 8 bytes for each, and 16 for each size of chunks with
    which it is used. `gather` and `scatter` then go through the array once, one range of elements at a
    time. The file has no name and disappears with the schedule, or with the process.

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

    def __init__(self, prepared: PreparedIndices) -> None:
        self._prepared = prepared

    @property
    def in_memory(self) -> bool:
        """True if the lists of indices are in memory."""
        return self._prepared.in_memory

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result of `gather`."""
        return self._prepared.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that the schedule uses."""
        return self._prepared.nbytes

    @property
    def stored_nbytes(self) -> int:
        """Bytes that the schedule uses on disk, in a scratch file."""
        return self._prepared.stored_nbytes or 0

    def __repr__(self) -> str:
        prepared = self._prepared
        stored = "" if prepared.stored_nbytes is None else f", {prepared.stored_nbytes} on disk"
        return (
            f"<IndexSchedule {self.shape} of {prepared.points.shape}, {self.nbytes} bytes{stored}>"
        )

    def gather(self, out: Any = None, *, of: outcore.DiskArray | None = None) -> Any:
        """
        Read the selected elements.

        Parameters
        ----------
        out
            Array to fill, with the `shape` of the schedule and the dtype of the array that is read: in
            memory (filled without a copy if it is packed, in C order, with the points first), or a
            `DiskArray` that is open for writing.
        of
            Array to read, with the shape of the array for which the schedule was created; by default
            that array.

        Returns
        -------
        numpy.ndarray or DiskArray
            `out`, or a new array in memory.

        Raises
        ------
        UsageError
            The array has another shape (``schedule-shape``), `out` does not match, or the array is
            closed.
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
        prepared = self._prepared
        array, points = prepared.check_array(of), prepared.points
        if is_on_disk(out):
            self._gather_to_disk(array, out)
            return out
        if out is not None:
            check_out(array, out, points.result_shape)
            core, result = points.to_core(out), out
        else:
            core = np.empty(points.core_shape, array.dtype)
            result = points.to_result(core)
        schedule = prepared.schedule_in_memory(array)
        with ExitStack() as held:
            packed: NDArray[Any] | None = core
            if schedule is not None and not core.flags.c_contiguous:
                packed = prepared.run_if_it_fits(lambda: prepared.allocate_packed(core, held))
            if schedule is not None and packed is not None:
                schedule.read(array.handle.core, prepared.as_rows(packed))
                if packed is not core:
                    core[...] = packed
                return result
        prepared.parts.gather(array, open_rows(points, result, array.dtype))
        return result

    def _gather_to_disk(self, array: outcore.DiskArray, out: outcore.DiskArray) -> None:
        points = self._prepared.points
        check_disk_out(array, out, points.result_shape)
        # As in NumPy, read everything before overwriting any of it.
        shares = share_bytes(array.info, out.info)
        with IndexWorkspace(array.handle.core, writes=False) as held:
            if self._is_read_whole(out, held, must=shares):
                out.write(..., self.gather(of=array))
                return
        self._prepared.parts.gather(array, open_rows(points, out, array.dtype))
        if out.hints.sync:
            out.flush()

    def _is_read_whole(self, data: outcore.DiskArray, held: IndexWorkspace, *, must: bool) -> bool:
        """Return whether values or a result on disk fit in memory whole; with `must`, raise if not."""
        if must or not self._prepared.points.axes:
            held.take(data.nbytes)
            return True
        if not self.in_memory or data.nbytes > self._prepared.array.budget // _WHOLE:
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
        Write values to the selected elements.

        Parameters
        ----------
        values
            Values, broadcast to `shape` and cast to the dtype of the array as NumPy does on assignment.
            A `DiskArray` must have exactly this shape and is read one part at a time.
        combine
            Treatment of several values for one element, and of the existing element: ``"last"``
            replaces it by the last value; ``"add"``, ``"multiply"``, ``"min"`` and ``"max"`` combine it
            with the values one after another, in the order of the indices.
        of
            As for `gather`; it must be open for writing.

        Raises
        ------
        UsageError
            As for `gather`; or `values` cannot be broadcast.

        Notes
        -----
        To combine values, the elements are read and written again: writes by others in between are
        lost. During the call the elements use memory of the budget, and so do copies of values that
        must be cast or reordered. If a copy does not fit, values are processed one part at a time.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.zeros(3))
        >>> a.schedule([2, 0, 2]).scatter([1.0, 2.0, 3.0], combine="add")
        >>> a[:]
        array([2., 0., 4.])
        """
        array = self._prepared.check_array(of)
        array.handle.check_writable("write to")
        self._scatter(array, values, get_function(combine))
        if array.hints.sync:
            array.flush()

    def _scatter(self, array: outcore.DiskArray, values: Any, function: np.ufunc | None) -> None:
        prepared = self._prepared
        if is_on_disk(values):
            values = prepared.read_single(array, values)
        if is_on_disk(values):
            shares = share_bytes(array.info, values.info)
            with IndexWorkspace(array.handle.core, writes=True) as held:
                if self._is_read_whole(values, held, must=shares):
                    self._scatter(array, values[...], function)
                    return
            prepared.parts.scatter(array, open_rows(prepared.points, values, array.dtype), function)
            return
        broadcast = prepared.broadcast(values, array)
        schedule = prepared.schedule_in_memory(array)
        with ExitStack() as held:
            packed = None
            if schedule is not None:
                packed = prepared.run_if_it_fits(lambda: prepared.pack(broadcast, array, held))
            if schedule is not None and packed is not None and function is None:
                schedule.write(array.handle.core, packed)
                return
            combined = prepared.load_combined(array) if packed is not None else None
            if combined is not None and packed is not None and function is not None:
                combined.apply(array.handle.core, packed, function)
                return
        rows = open_rows(prepared.points, broadcast, array.dtype)
        prepared.parts.scatter(array, rows, function)

    # Files

    def save(self, path: str | Path) -> None:
        """
        Save the schedule for use in another process, or on another number of ranks.

        Parameters
        ----------
        path
            Path of a file, created or replaced, in NumPy's ``.npz`` format: the indices, as runs (first
            index and length) if that is shorter, and their meaning as JSON.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> a.schedule(np.arange(3, 9)).save("some.npz")
        >>> outcore.IndexSchedule.open("some.npz", a).gather()
        array([3., 4., 5., 6., 7., 8.])
        """
        prepared = self._prepared
        schedule_files.write(path, prepared.points, prepared.get_lists_to_save())

    @classmethod
    def open(cls, path: str | Path, array: outcore.DiskArray) -> IndexSchedule:
        """
        Open a saved schedule for an array.

        Parameters
        ----------
        path
            Path of the file.
        array
            Array with the shape for which the schedule was created.

        Raises
        ------
        FormatError
            The file is not a schedule (``bad-schedule``).
        StorageError
            The file cannot be read.
        UsageError
            The array has another shape.

        Returns
        -------
        IndexSchedule
            Equal to the result of `DiskArray.schedule` for the same indices.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(10.0))
        >>> a.schedule([4, 2]).save("two.npz")
        >>> outcore.IndexSchedule.open("two.npz", a).gather()
        array([4., 2.])
        """
        with schedule_files.open_file(path, array.path) as file:
            if array.shape != file.points.shape:
                raise UsageError(
                    f"{array.path!r} has shape {array.shape}, but the schedule in {str(path)!r} is "
                    f"for arrays of shape {file.points.shape}; create one with schedule() of this array",
                    code="schedule-shape",
                    path=array.path,
                )
            try:
                prepared = PreparedIndices(array, file.points, file.in_memory())
                if prepared.has_enough_memory():
                    return cls(prepared)
                del prepared
            except BudgetError:
                pass
            with IndexWorkspace(array.handle.core, writes=False) as held:
                return cls(PreparedIndices(array, file.points, file.store_list(array, held)))


def get_function(combine: str) -> np.ufunc | None:
    """Return the function for a value of `combine`; None for ``"last"``."""
    if combine == "last":
        return None
    if combine not in COMBINES:
        raise UsageError(
            f"unknown combine={combine!r}; use last, {', '.join(COMBINES)}",
            code="bad-combine",
        )
    return COMBINES[combine]
