"""
The different elements of an array on disk, or its different sub-arrays along an axis.

What is called; how it is planned is in `outcore.compute.sort.distinct`, `rows` and `columns`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from outcore.compute.jobs import Operation, Result, Source, collective, complete, opened
from outcore.compute.sort.columns import distinct_rows
from outcore.compute.sort.distinct import Asked, distinct
from outcore.compute.sort.sorting import sorting_axis
from outcore.errors import UnsupportedError, UsageError

__all__ = ["unique"]


@collective
def unique(
    ar: Source,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: SupportsIndex | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002 - NumPy's name
    out: Any = None,
    **how: Any,
) -> Any:
    """
    The different elements of an array, or its different sub-arrays, in ascending order.

    Parameters
    ----------
    ar
        A path, an open array or a NumPy array; without `axis`, all its elements count as one line, in C
        order.
    return_index
        Also where each element, or each sub-array, is first.
    return_inverse
        Also which of them each element of the array is, in its shape; or each sub-array, in one axis.
    return_counts
        Also how often each is there.
    axis
        Which sub-arrays are compared: those that an index along this axis selects, by their first
        elements in C order, then the next ones. None: elements.
    equal_nan
        All NaNs are one element; else each is one. Sub-arrays with a NaN differ from all others in any
        case, as for NumPy, unless the array has one axis.
    sorted
        They are sorted in any case.
    out
        Where the results go: a path or an open array, a tuple of these (or None) if there are several
        results. By default temporary arrays on disk, which go away with their handles.
    how
        ``memory``, ``progress``, ``resume``, ``explain``, ``comm``, ``overwrite`` and options of the new
        arrays; see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray or tuple
        The different elements, of one axis, or sub-arrays, along `axis`; then index, inverse and counts,
        int64, those that are asked for.

    Raises
    ------
    UnsupportedError
        ``bad-dtype``: elements without an order, or sub-arrays of ``longdouble``.
    UsageError
        ``bad-axis``; ``bad-out``: `out` is no tuple for several results; ``out-mismatch``: an open array
        in it has not as many elements as differ, which is known when the array is sorted.
    BudgetError
        Not even a few elements, or sub-arrays, fit; ``needed`` says what would do.

    Notes
    -----
    Memory: as much as there is. What is moved: a sort (`outcore.sort`), reading the sorted elements
    twice, and storing what differs; `return_index` costs an `outcore.argsort` more, and
    `return_inverse` that and three times its own bytes. What is sorted lies in temporary arrays. Of
    zeros of both signs, and of NaNs with other bits, one is kept. Collective with ``comm=``: ranks
    share each pass.

    With `axis`, sub-arrays are sorted as records of about their own bytes, with places if index or
    inverse is asked for. Memory for their merge grows with the bytes of one times the square root of
    how many there are. Of longer ones, some elements of all sub-arrays at a time are compared, and what
    differs is copied: then everything is read once, what differs once more, and memory grows with how
    many sub-arrays there are (a few hundred bytes for each), not with their length. Zeros keep their
    sign, NaNs their sign but no other bits; of sub-arrays that differ in the signs of zeros only, the
    first is kept.

    Karp, Miller, Rosenberg, Rapid identification of repeated patterns in strings, trees and arrays,
    1972, on names that stand for parts.

    Knuth, volume 3, section 6.5, on sorting to find what is equal.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([[3, 1], [1, 2]]))
    >>> values, index, counts = outcore.unique(a, return_index=True, return_counts=True)
    >>> values[...], index[...], counts[...]
    (array([1, 2, 3]), array([1, 3, 0]), array([2, 1, 1]))
    >>> b = outcore.create("rows.npy", data=np.array([[2, 5], [1, 7], [2, 5]]))
    >>> outcore.unique(b, axis=0)[...]
    array([[1, 7],
           [2, 5]])
    """
    with opened(ar) as (source,):
        along = sorting_axis("unique", source.ndim, axis)
        if source.ndim == 1:
            along = None  # sub-arrays of no axes are elements
        dtype = source.dtype
        if dtype.kind == "V":
            raise UnsupportedError(
                f"unique: elements of dtype {dtype} have no order; open one field as an array of its "
                "own, or view them as numbers",
                code="bad-dtype",
            )
        asked = Asked(
            bool(return_index), bool(return_inverse), bool(return_counts), bool(equal_nan)
        )
        place = np.dtype(np.int64)
        most, shape = (source.size,), source.shape
        results = [Result(most, dtype, {}, source.path, at_most=True)]
        kept = {"chunks": getattr(source, "chunks", None)}
        if along is not None:
            most = shape = (source.shape[along],)
            results, kept = [replace(results[0], shape=source.shape)], {}
        line = Result(most, place, {}, source.path, at_most=True)
        results += [line] * asked.index
        if asked.inverse:
            results.append(Result(shape, place, kept, source.path))
        results += [line] * asked.counts
        if out is not None and len(results) > 1 and not isinstance(out, tuple):
            raise UsageError(
                f"unique: out={out!r} for {len(results)} results; give a tuple of {len(results)}",
                code="bad-out",
            )
        arguments = {
            "return_index": asked.index,
            "return_inverse": asked.inverse,
            "return_counts": asked.counts,
            "axis": along,
            "equal_nan": asked.equal_nan,
        }
        if along is None:
            plan = distinct(source.shape, dtype, asked)
        else:
            plan = distinct_rows(source.shape, dtype, along, asked)
        return complete(Operation("unique", (source,), tuple(results), plan, arguments), out, how)
