"""`sort` and `argsort`, with NumPy's meaning; `outcore.compute.sort.sorting` plans them."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

from outcore.compute.axes import find_axis
from outcore.compute.jobs import Operation, Result, Source, collective, complete, open_inputs
from outcore.compute.sort.sorting import plan_sort
from outcore.errors import UnsupportedError, UsageError

__all__ = ["argsort", "sort"]


@collective
def sort(
    a: Source,
    axis: SupportsIndex | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Return a sorted copy of an array.

    Parameters
    ----------
    a
        Array of booleans, numbers, dates or durations, of any item size and byte order. Also of
        other dtypes (text, records) if lines fit in memory.
    axis
        Axis to sort along, as in `numpy.sort`. None: all elements, as one line.
    kind, stable
        As in `numpy.sort`. They have no effect, because equal elements cannot be distinguished.
    order
        Fields of records; not supported.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Array with the dtype and shape of `a` (one axis for ``axis=None``).

    Raises
    ------
    UsageError
        ``bad-option``: invalid `kind`. Otherwise see `outcore.compute.jobs.complete`.
    UnsupportedError
        ``bad-dtype``: elements have no order, or lines of text or records do not fit in memory.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.

    Notes
    -----
    Order: NaN last, as in NumPy; complex numbers by real part, then imaginary part. -0.0 comes
    before 0.0, and NaNs are in the order of their bits, so the result depends only on the elements.

    Memory: any amount. Lines that fit are read once and written once. For longer ones, everything
    is read twice and written twice, half of that on a temporary array next to the result; with very
    little memory more often (``explain=True`` reports it). Collective with ``comm=``: ranks share
    the lines, or the parts of long ones.

    Aggarwal, Vitter, The input/output complexity of sorting and related problems, 1988, section 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([[3.0, np.nan, 1.0], [6.0, 5.0, 4.0]]))
    >>> outcore.sort(a)[...]
    array([[ 1.,  3., nan],
           [ 4.,  5.,  6.]])
    >>> outcore.sort(a, axis=None, out="all.npy")[:3]
    array([1., 3., 4.])
    """
    _check_kind("sort", kind, order, stable)
    return _run("sort", a, axis, out, how, places=False)


@collective
def argsort(
    a: Source,
    axis: SupportsIndex | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Return the indices that sort an array.

    Parameters
    ----------
    a, axis, order, out, how
        See `outcore.sort`.
    kind, stable
        As in `numpy.argsort`; the sort is always stable.

    Returns
    -------
    DiskArray
        int64 indices along the axis, of the shape of `a` (one axis for ``axis=None``).

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        See `outcore.sort`.

    Notes
    -----
    Equal elements keep their order: the result is that of
    ``numpy.argsort(a, axis, kind="stable")``. Lines that do not fit in memory are stored
    temporarily as keys with indices: 8 bytes per element for dtypes of up to 4 bytes (and lines of
    up to 2**32 elements), 16 bytes for 8, 24 bytes for complex128. Collective with ``comm=``: ranks
    share the lines, or the parts of long ones.

    Aggarwal, Vitter, The input/output complexity of sorting and related problems, 1988, section 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([3.0, 1.0, 2.0, 1.0]))
    >>> outcore.argsort(a)[...]
    array([1, 3, 2, 0])
    """
    _check_kind("argsort", kind, order, stable)
    return _run("argsort", a, axis, out, how, places=True)


def _check_kind(name: str, kind: Any, order: Any, stable: Any) -> None:
    if order is not None:
        raise UnsupportedError(
            f"{name}: order={order!r} is not supported; open one field as an array and sort that",
            code="bad-dtype",
        )
    if kind is not None and stable is not None:
        raise UsageError(f"{name}: pass kind= or stable=, not both", code="bad-option")
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise UsageError(
            f"{name}: unknown kind {kind!r}; omit it, or pass 'stable'", code="bad-option"
        )


def _run(name: str, a: Source, axis: Any, out: Any, how: Any, *, places: bool) -> Any:
    with open_inputs(a) as (source,):
        along = None if axis is None else find_axis(name, axis, source.ndim)
        flat = along is None
        dtype = np.dtype(np.int64) if places else source.dtype
        shape = (math.prod(source.shape),) if flat else source.shape
        kept = {}
        if not flat:
            kept = {"chunks": source.chunks, "dims": source.dims}
        result = Result(shape, dtype, kept, source.path)
        plan = plan_sort(name, source.shape, source.dtype, along, places=places)
        operation = Operation(name, (source,), (result,), plan, {"axis": along})
        return complete(operation, out, how)
