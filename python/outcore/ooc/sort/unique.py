"""
The different elements of an array on disk.

What is called; how it is planned is in `outcore.ooc.sort.distinct`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from outcore.errors import UnsupportedError, UsageError
from outcore.jobs import Operation, Result, Source, collective, complete, opened
from outcore.ooc.sort.distinct import Asked, distinct

__all__ = ["unique"]


@collective
def unique(
    ar: Source,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    The different elements of an array, in ascending order.

    Parameters
    ----------
    ar
        A path, an open array or a NumPy array; all its elements count as one line, in C order.
    return_index
        Also where each element is first.
    return_inverse
        Also which of them each element of the array is, in its shape.
    return_counts
        Also how often each is there.
    axis
        Only None.
    equal_nan
        All NaNs are one element; else each is one.
    sorted
        They are sorted in any case.
    out
        Where the results go: a path or an open array, a tuple of these (or None) if there are several
        results. By default temporary arrays on disk, which go away with their handles.
    how
        ``memory``, ``progress``, ``resume``, ``explain``, ``comm``, ``overwrite`` and wishes for the new
        arrays; see `outcore.jobs.complete`.

    Returns
    -------
    DiskArray or tuple
        The different elements, of one axis; then index, inverse and counts, int64, those that are asked
        for.

    Raises
    ------
    UnsupportedError
        ``bad-option``: an `axis`; ``bad-dtype``: elements without an order.
    UsageError
        ``bad-out``: `out` is no tuple for several results; ``out-mismatch``: an open array in it has not
        as many elements as differ, which is known when the array is sorted.
    BudgetError
        Not even a few elements fit; ``needed`` says what would do.

    Notes
    -----
    Memory: as much as there is. What is moved: a sort (`outcore.sort`), reading the sorted elements
    twice, and storing what differs; `return_index` costs an `outcore.argsort` more, and
    `return_inverse` that and three times its own bytes. What is sorted lies in temporary arrays. Of
    zeros of both signs, and of NaNs with other bits, one is kept. Collective with ``comm=``: ranks
    share each pass.

    Knuth, volume 3, section 6.5, on sorting to find what is equal.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("field.npy", data=np.array([[3, 1], [1, 2]]))
    >>> values, index, counts = outcore.unique(a, return_index=True, return_counts=True)
    >>> values[...], index[...], counts[...]
    (array([1, 2, 3]), array([1, 3, 0]), array([2, 1, 1]))
    """
    if axis is not None:
        raise UnsupportedError(
            f"unique: axis={axis!r} is not supported; leave it out, for all elements",
            code="bad-option",
        )
    with opened(ar) as (source,):
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
        results = [Result((source.size,), dtype, {}, source.path, at_most=True)]
        if asked.index:
            results.append(replace(results[0], dtype=place))
        if asked.inverse:
            kept = {"chunks": getattr(source, "chunks", None)}
            results.append(Result(source.shape, place, kept, source.path))
        if asked.counts:
            results.append(replace(results[0], dtype=place))
        if out is not None and len(results) > 1 and not isinstance(out, tuple):
            raise UsageError(
                f"unique: out={out!r} for {len(results)} results; give a tuple of {len(results)}",
                code="bad-out",
            )
        arguments = {
            "return_index": asked.index,
            "return_inverse": asked.inverse,
            "return_counts": asked.counts,
            "equal_nan": asked.equal_nan,
        }
        plan = distinct(source.shape, dtype, asked)
        return complete(Operation("unique", (source,), tuple(results), plan, arguments), out, how)
