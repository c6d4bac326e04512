"""
Selection of elements by indices: ``a.oindex``, ``a.vindex``, `take`, `put`, `compress`, `nonzero`.

Problem: NumPy and zarr select elements in more ways than ``a[...]``.
Approach: each way is a key of `outcore.arrays.indices.keys`, or is translated to the same normal form.
NumPy's functions of the same names call these methods: ``np.take(a, indices, axis=0)`` reads only the
elements that it returns.

Invariants: results have the values, shape and dtype of NumPy's methods on the array in memory.
"""

from __future__ import annotations

import operator
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

import outcore
from outcore.arrays.handle import is_on_disk
from outcore.base.casting import convert_values
from outcore.base.report import Report
from outcore.errors import SectionError, UsageError

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray
    from outcore.arrays.indices.keys import IndexPoints, Kind

__all__ = ["Indexer", "SelectionMethods"]

#: Treatment of an index outside its axis by `take` and `put`, as in NumPy.
Beyond = Literal["raise", "wrap", "clip"]

# Error codes of the core for a key that it leaves to `outcore.arrays.indices.keys`.
_WITH_ARRAYS = ("fancy-index", "bad-index")


class Indexer:
    """
    Access by keys of another kind: ``a.oindex``, ``a.vindex``.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
    >>> a.oindex[[2, 0], [1, 3]]
    array([[ 9, 11],
           [ 1,  3]])
    >>> a.vindex[[2, 0], [1, 3]]
    array([9, 3])
    """

    def __init__(self, array: DiskArray, kind: Kind) -> None:
        self._array, self._kind = array, kind

    def __getitem__(self, key: Any) -> Any:
        from outcore.arrays.indices import points

        return points.read_key(self._array, key, None, self._kind)

    def __setitem__(self, key: Any, value: Any) -> None:
        from outcore.arrays.indices import points

        points.write_key(self._array, key, value, self._kind)
        if self._array.hints.sync:
            self._array.handle.core.flush(True)


class SelectionMethods:
    """Methods of an array on disk that select elements by arrays of indices."""

    @property
    def _disk(self) -> DiskArray:
        return cast("DiskArray", self)

    @property
    def oindex(self) -> Indexer:
        """
        Outer (orthogonal) indexing: ``a.oindex[[1, 5], [0, 2]]`` is columns 0 and 2 of rows 1 and 5.

        Each list selects along its own axis: integers, or booleans of the length of that axis, with one
        axis. The result has an axis for each list and slice, in the order of the array; an integer
        drops its axis. This is the ``oindex`` of zarr and xarray, and ``a[numpy.ix_(...)]`` of NumPy.
        The memory in addition to the result is that of ``a[...]`` with arrays.

        Raises
        ------
        SectionError
            As for `DiskArray.read`; or a list has more than one axis (``bad-index``).

        References
        ----------
        NumPy enhancement proposal 21, "Simplified and explicit advanced indexing".

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.oindex[[2, 0], [True, False, False, True]]
        array([[ 8, 11],
               [ 0,  3]])
        >>> a.oindex[:, [3, 1]] = -1
        >>> a[0]
        array([ 0, -1,  2, -1])
        """
        return Indexer(self._disk, "outer")

    @property
    def vindex(self) -> Indexer:
        """
        Pointwise (vectorised) indexing: ``a.vindex[[1, 5], [0, 2]]`` is elements (1, 0) and (5, 2).

        Index arrays are broadcast against each other. Their axes come first in the result, wherever
        they are in the key, followed by the axes of slices. This is the ``vindex`` of zarr and xarray.
        The memory in addition to the result is that of ``a[...]`` with arrays.

        Raises
        ------
        SectionError
            As for `DiskArray.read`; or the key has a new axis (``bad-index``).

        References
        ----------
        NumPy enhancement proposal 21, "Simplified and explicit advanced indexing".

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.vindex[[2, 0, 2], [0, 3, 0]]
        array([8, 3, 8])
        >>> a.vindex[:, [[0], [3]]].shape
        (2, 1, 3)
        """
        return Indexer(self._disk, "pointwise")

    def take(
        self,
        indices: Any,
        axis: SupportsIndex | None = None,
        out: NDArray[Any] | None = None,
        mode: Beyond = "raise",
    ) -> Any:
        """
        Read elements along an axis, as `numpy.take`.

        Parameters
        ----------
        indices
            Integers of any shape; a `DiskArray` of integers is read one part at a time.
        axis
            Axis to index; None indexes all elements in C order.
        out
            Array to fill, with the shape of the result and the dtype of the array; see
            `DiskArray.read`.
        mode
            Treatment of an index outside the axis: ``"raise"`` raises an error (negative indices count
            from the end), ``"wrap"`` takes it modulo the length, ``"clip"`` replaces it by the nearest
            valid index.

        Returns
        -------
        numpy.ndarray or scalar
            Elements, with the array's shape in which the axes of `indices` replace `axis`.

        Raises
        ------
        SectionError
            An index is out of range, or `indices` are not integers.
        UsageError
            There is no such axis or mode, or `out` does not match.
        BudgetError
            The indices or elements to be converted do not fit the budget.

        Notes
        -----
        ``numpy.take(a, ...)`` calls this method. Not collective.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.take([0, -1], axis=1)
        array([[ 0,  3],
               [ 4,  7],
               [ 8, 11]])
        >>> np.take(a, [[5, 100]], mode="clip")
        array([[ 5, 11]])
        """
        from outcore.arrays.indices import points
        from outcore.arrays.indices.masks import IndexWorkspace

        with IndexWorkspace(self._disk.handle.core, writes=False) as held:
            made = self._normalise_along(_convert_indices(self._disk, indices), axis, mode)
            result = points.read(self._disk, made, out, held)
        return result if out is not None or result.ndim else result[()]

    def put(self, indices: Any, values: ArrayLike, mode: Beyond = "raise") -> None:
        """
        Write elements by their positions in C order, as `numpy.put`.

        Parameters
        ----------
        indices
            Integers of any shape; 0 is the first element, -1 the last.
        values
            One value for each index, in order; repeated if there are fewer, and cast as on assignment.
            If an index occurs several times, its last value wins.
        mode
            As for `take`.

        Raises
        ------
        SectionError
            An index is out of range, or `indices` are not integers. Nothing is written.
        UsageError
            The array was opened for reading, or there is no such mode.
        BudgetError
            The indices or values to be converted do not fit the budget.

        Notes
        -----
        ``numpy.put(a, ...)`` calls this method. Not collective.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", (2, 4), "i8")
        >>> a.put([0, 3, -1], [7, 8])
        >>> a[...]
        array([[7, 0, 0, 8],
               [0, 0, 0, 7]])
        """
        from outcore.arrays.indices import points
        from outcore.arrays.indices.masks import IndexWorkspace

        array = self._disk
        array.handle.check_writable("write to")
        flat = convert_values(values, array.dtype).reshape(-1)
        with IndexWorkspace(array.handle.core, writes=True) as held:
            given = _convert_indices(array, indices)
            given = given if given.ndim == 1 else np.asarray(given).reshape(-1)
            made = self._normalise_along(given, None, mode)
            if not flat.size or not made.number:
                return
            if flat.size == 1 or flat.size >= made.number:
                points.write(array, made, flat[: made.number], held)
            else:
                points.write_repeated(array, made, flat, held)
        if array.hints.sync:
            array.handle.core.flush(True)

    def compress(
        self, condition: Any, axis: SupportsIndex | None = None, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """
        Read the slices along an axis for which a condition holds, as `numpy.compress`.

        Parameters
        ----------
        condition
            Booleans with one axis, in memory or as a `DiskArray`; if it is shorter than `axis`, the
            rest is False.
        axis
            Axis to select from; None selects from all elements in C order.
        out
            Array to fill, with the shape of the result and the dtype of the array; see
            `DiskArray.read`.

        Returns
        -------
        numpy.ndarray
            Elements, with the array's shape and one entry along `axis` for each true condition.

        Raises
        ------
        SectionError
            The condition is true past the end of the axis.
        UsageError
            The condition does not have one axis, there is no such axis, or `out` does not match.

        Notes
        -----
        ``numpy.compress(condition, a)`` calls this method. Not collective. A condition on disk is read
        in blocks (see `DiskArray.read` for the memory).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(12).reshape(3, 4))
        >>> a.compress([True, False, True], axis=0)
        array([[ 0,  1,  2,  3],
               [ 8,  9, 10, 11]])
        """
        from outcore.arrays.indices import points
        from outcore.arrays.indices.masks import IndexWorkspace, Mask

        on_disk = is_on_disk(condition)
        given = condition if on_disk else np.asarray(condition)
        if given.ndim != 1:
            raise UsageError(
                f"the condition of compress() for '{self._disk.path}' has {given.ndim} axes; pass "
                "a condition with one axis",
                code="bad-value",
                path=self._disk.path,
            )
        with IndexWorkspace(self._disk.handle.core, writes=False) as held:
            mask = Mask(given, held)
            made = self._normalise_along(None, axis, "raise", mask)
            return points.read(self._disk, made, out, held)

    def schedule(self, indices: Any) -> outcore.IndexSchedule:
        """
        Prepare an access by indices for repeated use on any array of this shape.

        Parameters
        ----------
        indices
            Key with arrays, as in ``a[indices]``: integers or masks, in memory or on disk, mixed with
            slices. Duplicates are allowed.

        Returns
        -------
        IndexSchedule
            Schedule whose `IndexSchedule.gather` reads and whose `IndexSchedule.scatter` writes and
            combines.

        Raises
        ------
        SectionError
            An index is outside its axis (the message has its value and position), or the key is
            invalid.
        UsageError
            The key has no arrays.
        BudgetError
            The lists of an outer product, or a mask combined with other arrays, do not fit the memory
            budget.
        StorageError
            The scratch file of a list that does not fit memory cannot be created (``disk-full``).

        Notes
        -----
        A schedule takes 24 bytes of the budget for each index. If that exceeds half of the budget, the
        list is stored in a scratch file (see `IndexSchedule`), whether `indices` are in memory, mapped
        or on disk.

        Source: No and Choudhary, "Techniques to provide run-time support for solving irregular
        problems", section 3.1.1. Not collective; `CollectiveArray.schedule_all` is.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("a.npy", data=np.arange(20.0).reshape(5, 4))
        >>> b = outcore.create("b.npy", data=-np.arange(20.0).reshape(5, 4))
        >>> rows = a.schedule([4, 0])
        >>> rows.gather()[:, 0], rows.gather(of=b)[:, 1]
        (array([16.,  0.]), array([-17.,  -1.]))
        """
        from outcore.arrays.indices.prepared import PreparedIndices
        from outcore.arrays.indices.schedule import IndexSchedule

        return IndexSchedule(PreparedIndices.prepare(self._disk, indices))

    def nonzero(self) -> tuple[NDArray[np.int64], ...]:
        """
        Find the indices of the elements that are not zero, as `numpy.nonzero`.

        Returns
        -------
        tuple of numpy.ndarray
            For each axis, the indices along it, int64, in C order of the elements.

        Raises
        ------
        BudgetError
            The indices are larger than the memory budget. If the array cannot be read at all with this
            budget, whatever its elements are, ``needed`` is a sufficient budget.
        UsageError
            The array has no axes.

        Notes
        -----
        The array is read once, in blocks. The result has eight bytes for each element found and axis.
        It is not counted in the budget but is at most as large as the budget. While it is built, a list
        of the positions takes one part more. ``numpy.nonzero(a)`` calls this method. Not collective.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.eye(3))
        >>> a.nonzero()
        (array([0, 1, 2]), array([0, 1, 2]))
        """
        from outcore.arrays.indices import masks

        if not self._disk.ndim:
            raise UsageError(
                f"nonzero() is not defined for '{self._disk.path}', which has no axes; compare its "
                "element: a[()] != 0",
                code="bad-axis",
                path=self._disk.path,
            )
        return masks.find_nonzero(self._disk)

    def _normalise_along(
        self,
        indices: Any,
        axis: SupportsIndex | None,
        mode: str,
        mask: Any = None,
    ) -> IndexPoints:
        """Return indices along one axis (None: all axes in C order) as the normal form of a key."""
        from outcore.arrays.indices.keys import IndexPoints, ResultAxis

        array = self._disk
        shape, ndim, path = array.shape, array.ndim, array.path
        if mode not in ("raise", "wrap", "clip"):
            raise UsageError(
                f"unknown mode {mode!r} for indices of '{path}'; use 'raise', 'wrap' or 'clip'",
                code="bad-option",
                path=path,
            )
        lists = () if mask is not None else (indices,)
        points = (mask.count,) if mask is not None else indices.shape
        new = [ResultAxis("point", k) for k in range(len(points))]
        rest = tuple((0, n, 1) for n in shape)
        if axis is None:
            axes, result = tuple(range(ndim)), new
        else:
            at = operator.index(axis)
            if not -ndim <= at < ndim:
                raise UsageError(
                    f"axis {at} is out of range for '{path}' with {ndim} axes; pass one of "
                    f"{-ndim}..{ndim - 1}",
                    code="bad-axis",
                    path=path,
                )
            at %= ndim
            axes = (at,)
            others = [ResultAxis("array", d) for d in range(ndim)]
            result = [*others[:at], *new, *others[at + 1 :]]
        return IndexPoints(
            path,
            shape,
            axes,
            lists,
            "flat",
            points,
            rest,
            tuple(result),
            mode,  # type: ignore[arg-type]
            mask,
        )

    # Keys of `DiskArray` go to the core first. A key that it rejects has moved no data.

    def _read_key(self, key: Any, out: NDArray[Any] | None) -> Any:
        began = perf_counter()
        try:
            try:
                return self._disk.handle.core.read(key, out)
            except SectionError as error:
                refused = _select_error(error)
            from outcore.arrays.indices import points

            return points.read_key(self._disk, key, out, "numpy", refused)
        finally:
            self._disk.handle.seconds["read", get_ident()] += perf_counter() - began

    def _write_key(self, key: Any, value: Any) -> None:
        began = perf_counter()
        try:
            self._write_any(key, value)
        finally:
            self._disk.handle.seconds["write", get_ident()] += perf_counter() - began

    def _write_any(self, key: Any, value: Any) -> None:
        array = self._disk
        try:
            if isinstance(value, SelectionMethods):
                from outcore.arrays import blocks

                return blocks.copy_section(cast("DiskArray", value), array, key)
            array.handle.core.write(key, value)
            return None
        except SectionError as error:
            refused = _select_error(error)
        from outcore.arrays.indices import points

        points.write_key(array, key, value, "numpy", refused)
        return None

    def _explain_key(self, key: Any, write: bool) -> Report:
        try:
            return Report(**self._disk.handle.core.explain(key, write))
        except SectionError as error:
            refused = _select_error(error)
        from outcore.arrays.indices import points

        return points.explain_key(self._disk, key, write, refused)


def _select_error(refused: SectionError) -> SectionError:
    """Return an error about a key with arrays; raise any other error."""
    if refused.code not in _WITH_ARRAYS:
        raise refused
    # The frames of the traceback keep keys and values alive.
    return refused.with_traceback(None)


def _convert_indices(array: DiskArray, indices: Any) -> Any:
    """Return indices of `take` and `put` as a NumPy array or an array on disk."""
    if not is_on_disk(indices):
        given = np.asarray(indices)
        indices = given if given.size or isinstance(indices, np.ndarray) else given.astype(np.int64)
    if indices.dtype.kind not in "biu":
        raise SectionError(
            f"indices for '{array.path}' have type {indices.dtype}; pass integers",
            code="bad-index",
            path=array.path,
        )
    return indices
