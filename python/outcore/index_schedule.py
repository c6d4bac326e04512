"""
Schedules of accesses by indices: made once, used for every variable and time step.

Problem. Unstructured codes reach the same elements again and again: ``x[edges]`` for hundreds of arrays
and thousands of steps. To look at the indices each time (are they inside, where in the file, in which
order) takes as long as to move the elements.

Idea. `IndexSchedule` keeps what follows from the indices and the layout alone, in the core: addresses,
ordered by the windows or chunks of the file in which they lie. `gather` and `scatter` are then only
I/O, on any array of the same shape. Where several values for one element are combined, the elements are
listed once more, each of them once, with the place of each value in that list.

Invariants. Values are combined in the order of the list, beginning with what the array has, so sums of
floating-point numbers have the same bits whatever the budget or the layout.

Source: the *schedule* of No and Choudhary, "Techniques to provide run-time support for solving irregular
problems", section 3.1.1; ``PASSION_oc_gen_schedule``, ``oc_gather`` and ``oc_scatter`` of "PASSION:
Parallel and Scalable Software for Input-Output", section 4.4.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore import _core
from outcore.errors import FormatError, UsageError
from outcore.formats import durable
from outcore.indexing import Points, ResultAxis, parse
from outcore.masks import INDEX, Held
from outcore.points import check_out

__all__ = ["COMBINES", "Combine", "CombinedPoints", "IndexSchedule", "points_of"]

#: First index and length of each run of indices.
Runs = tuple[NDArray[np.int64], NDArray[np.int64]]
#: What becomes of several values for one element.
Combine = Literal["last", "add", "multiply", "min", "max"]
#: The functions that combine an element with a value.
COMBINES: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
# The file of a schedule.
_VERSION = 1
# Runs are kept instead of indices where they take at most this part of the memory.
_WORTH = 2


class IndexSchedule:
    """
    Elements of an array, chosen by indices, made ready to be read and written many times.

    Made by `DiskArray.schedule`, or by `IndexSchedule.open` of one that was saved.

    Notes
    -----
    It takes up to 16 bytes of the memory budget for each index, for each layout with which it is used;
    of neighbours that lie one behind the other in the file and in the result, 20 for each run of
    them; combining takes 16 more for each index. A list that had to be made (of a mask, or of another
    type) is kept besides, as runs where they are shorter. While it is made, it takes a quarter of the
    budget at most beside what it keeps.

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

    def __init__(
        self,
        array: outcore.DiskArray,
        points: Points,
        lists: tuple[NDArray[np.int64], ...],
        *,
        ready: bool = True,
    ):
        self._array, self._points = array, replace(points, lists=())
        self._kept = KeptLists(points, lists)
        self._rest = [word for words in points.rest for word in words]
        self._made: list[_core.IndexSchedule] = []
        self._combined: list[CombinedPoints] = []
        if ready and 8 * self._of(array).nbytes <= 4 * sum(one.size for one in lists):
            self._kept.compress()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what `gather` gives."""
        return self._points.result_shape

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that it takes."""
        made = sum(one.nbytes for one in self._made)
        return made + sum(one.nbytes for one in self._combined) + self._kept.nbytes

    def __repr__(self) -> str:
        return f"<IndexSchedule {self.shape} of {self._points.shape}, {self.nbytes} bytes>"

    def gather(
        self, out: NDArray[Any] | None = None, *, of: outcore.DiskArray | None = None
    ) -> NDArray[Any]:
        """
        Read the elements.

        Parameters
        ----------
        out
            Array to fill, of shape `shape` and the dtype of the array that is read; packed (in C order,
            points first) it is filled without a copy.
        of
            The array to read, of the shape of that for which the schedule was made; by default that one.

        Returns
        -------
        numpy.ndarray
            `out`, or a new array.

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
        """
        array = self._checked(of)
        points = self._points
        if out is not None:
            check_out(array, out, points.result_shape)
            core = points.to_core(out)
        else:
            core = np.empty(points.core_shape, array.dtype)
        schedule = self._of(array)
        if core.flags.c_contiguous:
            schedule.read(array._core, self._as_list(core))
        else:
            with _core.Reservation("elements in the order of a schedule", core.nbytes):
                packed = np.empty(core.shape, core.dtype)
                schedule.read(array._core, self._as_list(packed))
                core[...] = packed
        return points.to_result(core) if out is None else out

    def scatter(
        self, values: ArrayLike, combine: Combine = "last", *, of: outcore.DiskArray | None = None
    ) -> None:
        """
        Write values to the elements.

        Parameters
        ----------
        values
            Broadcast to `shape`, and cast to the dtype of the array, as NumPy does on assignment.
        combine
            What becomes of several values for one element, and of what the array has there: ``"last"``
            replaces it, the others (``"add"``, ``"multiply"``, ``"min"``, ``"max"``) combine it with the
            values one after another, in the order of the indices.
        of
            As for `gather`; it must be open for writing.

        Raises
        ------
        UsageError
            As for `gather`; `values` do not broadcast.

        Notes
        -----
        To combine, the elements are read, and written again: what others write to them meanwhile is
        lost. They take memory of the budget meanwhile. Values that have to be cast or put in order are
        copied whole, besides.

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
        function = function_of(combine)
        packed = self._packed(values, array)
        if function is None:
            self._of(array).write(array._core, packed)
        else:
            self._combining(array).apply(array._core, packed, function)
        if array.hints.sync:
            array.flush()

    def _broadcast(self, values: ArrayLike, array: outcore.DiskArray) -> NDArray[Any]:
        """Values for all points."""
        shape = self._points.result_shape
        try:
            return np.broadcast_to(np.asarray(values), shape)
        except ValueError:
            raise UsageError(
                f"values of shape {np.shape(values)} cannot be broadcast to a schedule of shape {shape}."
                " Trailing axes must be equal or 1",
                code="broadcast",
                path=array.path,
            ) from None

    def _packed(self, values: ArrayLike, array: outcore.DiskArray) -> NDArray[Any]:
        """Values as the core takes them: a row for each point, of the array's dtype."""
        core = self._points.to_core(self._broadcast(values, array))
        if core.dtype != array.dtype or not core.flags.c_contiguous:
            cast = np.empty(core.shape, array.dtype)
            cast[...] = core
            core = cast
        return self._as_list(core)

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
            if made.serves(array._core):
                return made
        points = self._points
        with self._kept as lists:
            made = _core.IndexSchedule(array._core, points.axes, lists, points.mode, self._rest)
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
        points = self._points
        arrays: dict[str, NDArray[Any]] = {}
        for k, one in enumerate(self._kept.shorter()):
            if isinstance(one, np.ndarray):
                arrays[f"indices{k}"] = one
            else:
                arrays[f"starts{k}"], arrays[f"lengths{k}"] = one
        said = {
            "version": _VERSION,
            "shape": points.shape,
            "axes": points.axes,
            "mode": points.mode,
            "points": points.points,
            "rest": points.rest,
            "result": [list(axis) for axis in points.result],
        }
        arrays["schedule"] = np.frombuffer(json.dumps(said).encode(), np.uint8)

        def fill(descriptor: int) -> None:
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        durable.create_file(os.fspath(path), fill, exclusive=False)

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
        try:
            with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
                said = json.loads(bytes(file["schedule"]))
                if said["version"] != _VERSION:
                    raise ValueError(f"its version is {said['version']!r}, not {_VERSION}")
                lists = tuple(_list_of(file, k) for k in range(_lists_in(file)))
            points = Points(
                array.path,
                tuple(said["shape"]),
                tuple(said["axes"]),
                (),
                said["mode"],
                tuple(said["points"]),
                tuple((start, count, step) for start, count, step in said["rest"]),
                tuple(ResultAxis(*axis) for axis in said["result"]),
            )
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise FormatError(
                f"{str(path)!r} is no schedule of indices: {error}. Make it anew with schedule().save()",
                code="bad-schedule",
                path=str(path),
            ) from None
        if array.shape != points.shape:
            raise UsageError(
                f"{array.path!r} has shape {array.shape}, the schedule in {str(path)!r} is for arrays of"
                f" shape {points.shape}",
                code="schedule-shape",
                path=array.path,
            )
        return cls(array, points, lists)


class KeptLists:
    """
    The lists of a schedule, which other layouts, combining and files need once more.

    Those that nobody else has are counted in the budget; `compress` keeps them as runs where that takes
    less.
    ``with`` gives them as lists, counted as long as it lasts.

    Parameters
    ----------
    points, lists
        As of `IndexSchedule`.
    """

    def __init__(self, points: Points, lists: tuple[NDArray[np.int64], ...]) -> None:
        self._lists: list[NDArray[np.int64] | Runs] = list(lists)
        # Lists that are the caller's own are not counted.
        self._own = [not any(_shares(one, given) for given in points.lists) for one in lists]
        self._expanded: list[tuple[_core.Reservation, tuple[NDArray[np.int64], ...]]] = []
        self._held = self._counted()

    @property
    def nbytes(self) -> int:
        """Bytes of the budget that they take."""
        return sum(_bytes_of(one) for one, own in zip(self._lists, self._own, strict=True) if own)

    def _counted(self) -> _core.Reservation:
        return _core.Reservation("the indices of a schedule", self.nbytes)

    def compress(self) -> None:
        """Keep the lists that nobody else has as runs, where these are shorter."""
        for k, (one, own) in enumerate(zip(self._lists, self._own, strict=True)):
            if own and isinstance(one, np.ndarray):
                self._lists[k] = _shorter(one)
        del self._held  # what was counted holds no room for less
        self._held = self._counted()

    def shorter(self) -> Iterator[NDArray[np.int64] | Runs]:
        """Each list as it takes less: the indices, or runs of them."""
        for one in self._lists:
            yield _shorter(one) if isinstance(one, np.ndarray) else one

    def __enter__(self) -> tuple[NDArray[np.int64], ...]:
        runs = [one for one in self._lists if not isinstance(one, np.ndarray)]
        # As many once more while they are made.
        need = sum(3 * INDEX * int(lengths.sum()) for _, lengths in runs)
        held = _core.Reservation("the indices of a schedule, one by one", need)
        lists = tuple(
            one if isinstance(one, np.ndarray) else indices_of(*one) for one in self._lists
        )
        self._expanded.append((held, lists))
        return lists

    def __exit__(self, *_: object) -> None:
        self._expanded.pop()


def _bytes_of(one: NDArray[np.int64] | Runs) -> int:
    return one.nbytes if isinstance(one, np.ndarray) else sum(part.nbytes for part in one)


def _shorter(one: NDArray[np.int64]) -> NDArray[np.int64] | Runs:
    """A list, or its runs where they take at most a part of it."""
    starts, lengths = runs_of(one)
    return (starts, lengths) if _WORTH * 2 * starts.size < one.size else one


class CombinedPoints:
    """
    Points of which each element is listed once, and where each value goes in that list.

    Parameters
    ----------
    core
        An array of the layout for which it is made.
    axes, rest
        The indexed axes, and the ranges of the others.
    flat
        Numbers of the elements along `axes`, in C order, in the order of the values.
    """

    def __init__(
        self, core: _core.Array, axes: tuple[int, ...], flat: NDArray[np.int64], rest: list[int]
    ) -> None:
        self._held = _core.Reservation("combining elements", 4 * INDEX * flat.size)
        once, self._places = np.unique(flat, return_inverse=True)
        self._schedule = _core.IndexSchedule(core, axes, (once,), "flat", rest)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory budget that it takes."""
        return int(self._schedule.nbytes + self._places.nbytes)

    def serves(self, core: _core.Array) -> bool:
        """Whether it can be used for this array."""
        return self._schedule.serves(core)

    def apply(self, core: _core.Array, values: NDArray[Any], function: np.ufunc) -> None:
        """Combine the elements with values, a row for each point, and write them."""
        shape = self._schedule.shape
        nbytes = math.prod(shape) * values.itemsize
        with _core.Reservation("elements that are combined", nbytes):
            elements = np.empty(shape, values.dtype)
            self._schedule.read(core, elements)
            function.at(elements, self._places, values)
            self._schedule.write(core, elements)


def _shares(one: NDArray[Any], other: Any) -> bool:
    """Whether a list is that of the caller, perhaps in another shape."""
    return isinstance(other, np.ndarray) and np.may_share_memory(one, other)


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
    points = parse(key, array.shape, array.path, held)
    if points is None:
        raise UsageError(
            "a schedule is made of arrays of indices; sections are read and written without one",
            code="no-indices",
            path=array.path,
        )
    given = points.lists
    if points.mask is not None:
        points = points.listed(points.mask.all(0))
    held.take(points.per_access + points.per_point * points.number)
    lists = points.lists_of(points.whole())
    points.check(1 << 16)
    return replace(points, lists=given), lists


def runs_of(indices: NDArray[np.int64]) -> Runs:
    """Indices as runs: first index and length of each."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    bounds = np.concatenate(([0], breaks, [indices.size])).astype(np.int64)
    lengths = np.diff(bounds)[: max(len(bounds) - 1, 0)]
    keep = lengths > 0
    return indices[bounds[:-1][keep]] if indices.size else indices, lengths[keep]


def _lists_in(file: Any) -> int:
    return sum(name.startswith(("indices", "starts")) for name in file.files)


def _list_of(file: Any, k: int) -> NDArray[np.int64]:
    if f"indices{k}" in file:
        return np.ascontiguousarray(file[f"indices{k}"], dtype=np.int64)
    return indices_of(file[f"starts{k}"], file[f"lengths{k}"])


def indices_of(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Runs as indices: the inverse of `runs_of`."""
    ends = np.cumsum(lengths)
    inside = np.arange(ends[-1] if ends.size else 0, dtype=np.int64)
    found: NDArray[np.int64] = inside + np.repeat(starts - (ends - lengths), lengths)
    return found
