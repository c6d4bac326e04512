"""
`sort` and `argsort`, as NumPy has them.

How they are computed is in `outcore.compute.sort.sorting`.
"""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

from outcore.compute.jobs import Operation, Result, Source, collective, complete, opened
from outcore.compute.sort.sorting import sorting, sorting_axis
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
    A sorted copy of an array.

    Parameters
    ----------
    a
        A path, an open array or a NumPy array: truth values, numbers, dates and durations of any size
        and byte order. Of other dtypes (text, records), lines have to fit in memory.
    axis
        Along which to sort, as in `numpy.sort`; None: all elements, as one line.
    kind, stable
        As in `numpy.sort`; they make no difference, since equal elements cannot be told apart.
    order
        Fields of records; not supported.
    out
        Where the result goes: a path, or an open array. By default a temporary array on disk, which
        goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Of the shape of `a` (of one axis for ``axis=None``) and its dtype.

    Raises
    ------
    UsageError
        ``bad-axis``; ``bad-option``: no such `kind`; or `out` does not fit, or is `a`.
    UnsupportedError
        ``bad-dtype``: elements without an order, or lines of text or records longer than memory.
    BudgetError
        Not even a few elements fit; ``needed`` says what would do.

    Notes
    -----
    Order: NaN last, as NumPy sorts; complex numbers by real part, then imaginary part. -0.0 comes before
    0.0, and NaNs are in the order of their bits, so that the result depends on nothing but the elements.

    Memory: as much as there is. Lines that fit are read once and written once. Of longer ones,
    everything is read twice and written twice, half of that on a temporary array beside the result;
    with very little memory more often (``explain=True`` tells). Collective with ``comm=``: ranks share
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
    Places of the elements of an array in sorted order.

    Parameters
    ----------
    a, axis, order, out, how
        As for `outcore.sort`.
    kind, stable
        As in `numpy.argsort`; the sort is stable always.

    Returns
    -------
    DiskArray
        Of the shape of `a` (of one axis for ``axis=None``), int64: the places along the axis.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.sort`.

    Notes
    -----
    Equal elements stay in their order: what comes out is ``numpy.argsort(a, axis, kind="stable")``.
    Lines longer than memory are stored as keys with places in between: 8 bytes an element for dtypes of
    up to 4 bytes (and lines of up to 2**32), 16 bytes for 8, 24 bytes for complex128. Collective with
    ``comm=``: ranks share the lines, or the parts of long ones.

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
            f"{name}: order={order!r}; sort one field, opened as an array of its own",
            code="bad-dtype",
        )
    if kind is not None and stable is not None:
        raise UsageError(f"{name}: give kind= or stable=, not both", code="bad-option")
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        raise UsageError(
            f"{name}: there is no kind {kind!r}; leave it out, or say 'stable'", code="bad-option"
        )


def _run(name: str, a: Source, axis: Any, out: Any, how: Any, *, places: bool) -> Any:
    with opened(a) as (source,):
        along = sorting_axis(name, source.ndim, axis)
        flat = along is None
        dtype = np.dtype(np.int64) if places else source.dtype
        shape = (math.prod(source.shape),) if flat else source.shape
        kept = {}
        if not flat:
            kept = {k: getattr(source, k, None) for k in ("chunks", "dims")}
        result = Result(shape, dtype, kept, source.path)
        plan = sorting(name, source.shape, source.dtype, along, places=places)
        operation = Operation(name, (source,), (result,), plan, {"axis": along})
        return complete(operation, out, how)
