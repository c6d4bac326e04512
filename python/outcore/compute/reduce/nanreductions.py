"""
Reductions along axes that skip NaN.

Problem. NumPy reduces arrays in memory.
Idea. Each reduction is one quantity (`outcore.compute.reduce.quantities`), computed in one pass.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file,
the budget and the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import DTypeLike

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantities import (
    check_one_axis,
    make_extreme_quantity,
    make_mean_quantity,
    make_place_quantity,
    make_spread_quantity,
    make_sum_quantity,
    reduce_arrays,
    reduce_masked,
    resolve_ddof,
)

__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]

Axis = int | tuple[int, ...] | None


@collective
def nansum(
    a: Source,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Sum elements over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    dtype
        Dtype of the accumulation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    initial
        Start value, in the dtype of the result.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nansum`.

    Raises
    ------
    UsageError
        ``bad-option``: `initial` cannot be converted to the dtype of the result.

    Notes
    -----
    Memory, reads, the use of ranks and the order of operations are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nansum("gaps.npy", axis=0)
    array([4., 4.])
    """
    make = partial(make_sum_quantity, "nansum", dtype, initial)
    return reduce_masked(
        "nansum", make, a, axis, out, how, where, dtype, keepdims=keepdims, initial=initial
    )


@collective
def nanprod(
    a: Source,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Multiply elements over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    dtype
        Dtype of the accumulation and of the result. Default: the dtype of `a`; int64 or uint64 for
        small integers.
    initial
        Start value, in the dtype of the result.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanprod`.

    Raises
    ------
    UsageError
        ``bad-option``: `initial` cannot be converted to the dtype of the result.

    Notes
    -----
    Memory, reads, the use of ranks and the order of operations are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanprod("gaps.npy", axis=0)
    array([3., 4.])
    """
    make = partial(make_sum_quantity, "nanprod", dtype, initial)
    return reduce_masked(
        "nanprod", make, a, axis, out, how, where, dtype, keepdims=keepdims, initial=initial
    )


@collective
def nanmean(
    a: Source,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Compute the mean over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    dtype
        Dtype of the accumulation and of the result. Default: the dtype of `a`; float64 for
        integers.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanmean`.

    Notes
    -----
    Memory, reads, the use of ranks and the order of operations are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmean("gaps.npy", axis=0)
    array([2., 4.])
    """
    make = partial(make_mean_quantity, dtype, nan=True)
    return reduce_masked("nanmean", make, a, axis, out, how, where, dtype, keepdims=keepdims)


@collective
def nanvar(
    a: Source,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Source | bool = True,
    correction: float | None = None,
    **how: Any,
) -> Any:
    """
    Compute the variance over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    dtype
        Dtype of the accumulation and of the result. Default: the dtype of `a`; float64 for
        integers.
    ddof, correction
        Number subtracted from the number of elements to get the divisor of the sum of squares.
        These are two names of one parameter; give only one of them.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanvar`.

    Raises
    ------
    UsageError
        ``bad-option``: both `ddof` and `correction` are given.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`. Moments of leaves of 128 elements
    are merged pairwise (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the
    sample variance", 1983).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanvar("gaps.npy", axis=0)
    array([1., 0.])
    """
    ddof = resolve_ddof("nanvar", ddof, correction)
    make = partial(make_spread_quantity, "nanvar", ddof, dtype)
    return reduce_masked(
        "nanvar", make, a, axis, out, how, where, dtype, keepdims=keepdims, ddof=ddof
    )


@collective
def nanstd(
    a: Source,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Source | bool = True,
    correction: float | None = None,
    **how: Any,
) -> Any:
    """
    Compute the standard deviation over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    dtype
        Dtype of the accumulation and of the result. Default: the dtype of `a`; float64 for
        integers.
    ddof, correction
        Number subtracted from the number of elements to get the divisor of the sum of squares.
        These are two names of one parameter; give only one of them.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanstd`.

    Raises
    ------
    UsageError
        ``bad-option``: both `ddof` and `correction` are given.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`. Moments of leaves of 128 elements
    are merged pairwise (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the
    sample variance", 1983).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanstd("gaps.npy", axis=0)
    array([1., 0.])
    """
    ddof = resolve_ddof("nanstd", ddof, correction)
    make = partial(make_spread_quantity, "nanstd", ddof, dtype)
    return reduce_masked(
        "nanstd", make, a, axis, out, how, where, dtype, keepdims=keepdims, ddof=ddof
    )


@collective
def nanmin(
    a: Source,
    axis: Axis = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Find the smallest number over axes; NaN, with a warning, if all elements are NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    initial
        Number of the dtype of `a` that takes part in the comparison, also if there are no elements.
        Required with `where`.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanmin`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements. ``bad-option``: `initial` cannot be converted to
        that dtype, or `where` is given without it.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmin("gaps.npy", axis=0)
    array([1., 4.])
    """
    make = partial(make_extreme_quantity, "nanmin", initial)
    return reduce_masked(
        "nanmin", make, a, axis, out, how, where, keepdims=keepdims, initial=initial
    )


@collective
def nanmax(
    a: Source,
    axis: Axis = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Find the largest number over axes; NaN, with a warning, if all elements are NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    initial
        Number of the dtype of `a` that takes part in the comparison, also if there are no elements.
        Required with `where`.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanmax`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements. ``bad-option``: `initial` cannot be converted to
        that dtype, or `where` is given without it.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmax("gaps.npy", axis=0)
    array([3., 4.])
    """
    make = partial(make_extreme_quantity, "nanmax", initial)
    return reduce_masked(
        "nanmax", make, a, axis, out, how, where, keepdims=keepdims, initial=initial
    )


@collective
def nanargmin(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Find the index of the first smallest number, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis to search. None: all axes; the index is then that of the flattened array.
    out, keepdims, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanargmin`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements. ``all-nan``: all elements are NaN.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanargmin("gaps.npy", axis=0)
    array([0, 1])
    """
    check_one_axis(axis, "nanargmin")
    return reduce_arrays(
        "nanargmin", (a,), axis, [make_place_quantity("nanargmin")], out, how, keepdims=keepdims
    )


@collective
def nanargmax(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Find the index of the first largest number, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis
        Axis to search. None: all axes; the index is then that of the flattened array.
    out, keepdims, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.nanargmax`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements. ``all-nan``: all elements are NaN.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanargmax("gaps.npy", axis=0)
    array([1, 1])
    """
    check_one_axis(axis, "nanargmax")
    return reduce_arrays(
        "nanargmax", (a,), axis, [make_place_quantity("nanargmax")], out, how, keepdims=keepdims
    )
