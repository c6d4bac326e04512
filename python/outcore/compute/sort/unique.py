"""
Different elements of an array on disk, or its different sub-arrays along an axis.

`outcore.compute.sort.distinct`, `rows` and `columns` plan them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from outcore.compute.axes import find_axis
from outcore.compute.jobs import Operation, Result, Source, collective, complete, open_inputs
from outcore.compute.sort.columns import plan_distinct_rows
from outcore.compute.sort.distinct import UniqueOptions, plan_distinct
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
    Return the different elements of an array, or its different sub-arrays, in ascending order.

    Parameters
    ----------
    ar
        Array; without `axis`, all its elements count as one line, in C order.
    return_index
        Also return the index of the first occurrence of each element, or sub-array.
    return_inverse
        Also return, for each element of the array, which of the different ones it is, in the
        array's shape; or for each sub-array, with one axis.
    return_counts
        Also return how often each occurs.
    axis
        Compare sub-arrays: those that an index along this axis selects, by their first elements in
        C order, then the next ones. None: compare elements.
    equal_nan
        All NaNs are one element; False: each is different. Sub-arrays with a NaN always differ from
        all others, as in NumPy, unless the array has one axis.
    sorted
        Has no effect: the result is always sorted.
    out, how
        See `outcore.compute.jobs.complete`. An item of a tuple `out` may be None.

    Returns
    -------
    DiskArray or tuple
        The different elements, with one axis, or sub-arrays, along `axis`; then index, inverse and
        counts, int64, as far as asked for.

    Raises
    ------
    UnsupportedError
        ``bad-dtype``: elements have no order, or sub-arrays are of ``longdouble``.
    UsageError
        ``bad-out``: `out` is not a tuple for several results. ``out-mismatch``: an open array in it
        has another length than the result, which is known when the array is sorted. Otherwise see
        `outcore.compute.jobs.complete`.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.

    Notes
    -----
    Memory: any amount. Bytes moved: a sort (`outcore.sort`), reading the sorted elements twice, and
    storing the different ones; `return_index` costs an additional `outcore.argsort`, and
    `return_inverse` that and three times its own bytes. Sorted elements are in temporary arrays.
    One of the zeros with either sign is returned, and one of the NaNs with different bits.
    Collective with ``comm=``: ranks share each pass.

    With `axis`, sub-arrays are sorted as records of about their own size, with indices if index or
    inverse is asked for. Memory for their merge grows with the size of a sub-array times the square
    root of their number. Longer sub-arrays are compared some elements at a time, and the different
    ones are copied: then everything is read once, the different ones once more, and memory grows
    with the number of sub-arrays (a few hundred bytes for each), not with their length. Zeros keep
    their sign, NaNs their sign but no other bits; the first one of sub-arrays that differ only in
    the signs of zeros is returned.

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
    with open_inputs(ar) as (source,):
        along = None if axis is None else find_axis("unique", axis, source.ndim)
        if source.ndim == 1:
            along = None  # sub-arrays of no axes are elements
        dtype = source.dtype
        if dtype.kind == "V":
            raise UnsupportedError(
                f"unique: elements of dtype {dtype} have no order; open one field as an array, or "
                "view them as numbers",
                code="bad-dtype",
            )
        asked = UniqueOptions(
            bool(return_index), bool(return_inverse), bool(return_counts), bool(equal_nan)
        )
        place = np.dtype(np.int64)
        most, shape = (source.size,), source.shape
        results = [Result(most, dtype, {}, source.path, at_most=True)]
        kept = {"chunks": source.chunks}
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
                f"unique: out={out!r} for {len(results)} results; pass a tuple of {len(results)}",
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
            plan = plan_distinct(source.shape, dtype, asked)
        else:
            plan = plan_distinct_rows(source.shape, dtype, along, asked)
        return complete(Operation("unique", (source,), tuple(results), plan, arguments), out, how)
