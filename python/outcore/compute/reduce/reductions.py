"""
Sums, products, means, variances and truth values along axes, as NumPy's reductions.

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
    make_mean_quantity,
    make_spread_quantity,
    make_sum_quantity,
    make_truth_quantity,
    reduce_arrays,
    reduce_masked,
    resolve_ddof,
)

__all__ = ["all", "any", "count_nonzero", "mean", "prod", "std", "sum", "var"]

Axis = int | tuple[int, ...] | None


@collective
def sum(
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
    Sum elements over axes.

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
        Result with the shape and dtype of `numpy.sum`.

    Raises
    ------
    UsageError
        ``bad-option``: `initial` cannot be converted to the dtype of the result.

    Notes
    -----
    Memory: at least one tile of `a`, and some hundred bytes for each output of the tile between
    tiles. Each element is read once. Collective with ``comm=``: ranks share the tiles of `a`. The
    order of additions depends only on indices: pairwise, in leaves of 128 elements (N. J. Higham,
    "The accuracy of floating point summation", 1993).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.sum("grid.npy", axis=0)
    array([12., 15., 18., 21.])
    """
    make = partial(make_sum_quantity, "sum", dtype, initial)
    return reduce_masked(
        "sum", make, a, axis, out, how, where, dtype, keepdims=keepdims, initial=initial
    )


@collective
def prod(
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
    Multiply elements over axes.

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
        Result with the shape and dtype of `numpy.prod`.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.prod("grid.npy", axis=1)
    array([   0.,  840., 7920.])
    """
    make = partial(make_sum_quantity, "prod", dtype, initial)
    return reduce_masked(
        "prod", make, a, axis, out, how, where, dtype, keepdims=keepdims, initial=initial
    )


@collective
def mean(
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
    Compute the arithmetic mean over axes.

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
        Result with the shape and dtype of `numpy.mean`.

    Notes
    -----
    Memory, reads, the use of ranks and the order of operations are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.mean("grid.npy", axis=1)
    array([1.5, 5.5, 9.5])
    """
    make = partial(make_mean_quantity, dtype)
    return reduce_masked("mean", make, a, axis, out, how, where, dtype, keepdims=keepdims)


@collective
def var(
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
    Compute the variance over axes.

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
        Result with the shape and dtype of `numpy.var`.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.var("grid.npy", axis=1, ddof=1)
    array([1.66666667, 1.66666667, 1.66666667])
    """
    ddof = resolve_ddof("var", ddof, correction)
    make = partial(make_spread_quantity, "var", ddof, dtype)
    return reduce_masked("var", make, a, axis, out, how, where, dtype, keepdims=keepdims, ddof=ddof)


@collective
def std(
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
    Compute the standard deviation over axes.

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
        Result with the shape and dtype of `numpy.std`.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> float(outcore.std("grid.npy"))
    3.452052529534663
    """
    ddof = resolve_ddof("std", ddof, correction)
    make = partial(make_spread_quantity, "std", ddof, dtype)
    return reduce_masked("std", make, a, axis, out, how, where, dtype, keepdims=keepdims, ddof=ddof)


@collective
def any(
    a: Source,
    axis: Axis = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Return whether any element along axes is nonzero.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.any`.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.any("grid.npy", axis=1)
    array([ True,  True,  True])
    """
    make = partial(make_truth_quantity, "any")
    return reduce_masked("any", make, a, axis, out, how, where, keepdims=keepdims)


@collective
def all(
    a: Source,
    axis: Axis = None,
    out: Any = None,
    *,
    keepdims: bool = False,
    where: Source | bool = True,
    **how: Any,
) -> Any:
    """
    Return whether all elements along axes are nonzero.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis, out, keepdims, where, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.all`.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.all("grid.npy", axis=1)
    array([False,  True,  True])
    """
    make = partial(make_truth_quantity, "all")
    return reduce_masked("all", make, a, axis, out, how, where, keepdims=keepdims)


@collective
def count_nonzero(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Count nonzero elements over axes.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis, out, keepdims, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.count_nonzero`.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> int(outcore.count_nonzero("grid.npy"))
    11
    """
    return reduce_arrays(
        "count_nonzero",
        (a,),
        axis,
        [make_truth_quantity("count_nonzero")],
        out,
        how,
        keepdims=keepdims,
    )
