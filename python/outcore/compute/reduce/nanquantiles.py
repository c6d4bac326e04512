"""
Exact quantiles, percentiles and medians that skip NaN.

Problem. NaN changes the ranks of the numbers.
Idea. The method is that for all elements (`outcore.compute.reduce.quantiles`): lines that fit are
sorted, with NaN last. If they do not fit, the first counting pass also counts the numbers of each
output.

Invariants. The elements with these ranks are found exactly, so the result has the same bits for
every budget.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantiles import compute_quantiles

__all__ = ["nanmedian", "nanpercentile", "nanquantile"]

Axis = int | tuple[int, ...] | None


@collective
def nanquantile(
    a: Source,
    q: ArrayLike,
    axis: Axis = None,
    out: Any = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    **how: Any,
) -> Any:
    """
    Compute exact quantiles over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    q
        One quantile or several, from 0 to 1.
    axis, out, method, keepdims, how
        See `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array whose shape is that of `q`, then that of `a` without the reduced axes. NaN, with a
        warning, where all elements are NaN.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.quantile`.

    Notes
    -----
    Memory, passes, source and the use of ranks are those of `outcore.quantile`. Another 8 bytes for
    each output are needed where the reduced axes do not fit in memory.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanquantile("gaps.npy", 0.5, axis=1)
    array([2., 7.])
    """
    return compute_quantiles("nanquantile", a, q, 1, axis, out, method, keepdims, how)


@collective
def nanpercentile(
    a: Source,
    q: ArrayLike,
    axis: Axis = None,
    out: Any = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    **how: Any,
) -> Any:
    """
    Compute exact percentiles over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    q
        One percentile or several, from 0 to 100.
    axis, out, method, keepdims, how
        See `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array whose shape is that of `q`, then that of `a` without the reduced axes. NaN, with a
        warning, where all elements are NaN.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.quantile`.

    Notes
    -----
    Memory, passes, source and the use of ranks are those of `outcore.quantile`. Another 8 bytes for
    each output are needed where the reduced axes do not fit in memory.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanpercentile("gaps.npy", 50, axis=1)
    array([2., 7.])
    """
    return compute_quantiles("nanpercentile", a, q, 100, axis, out, method, keepdims, how)


@collective
def nanmedian(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Compute the exact median over axes, skipping NaN.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    axis, out, keepdims, how
        See `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Array with the shape of `a` without the reduced axes. NaN, with a warning, where all
        elements are NaN.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As for `outcore.quantile`.

    Notes
    -----
    Memory, passes, source and the use of ranks are those of `outcore.nanquantile`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanmedian("gaps.npy", axis=1)
    array([2., 7.])
    """
    return compute_quantiles("nanmedian", a, 0.5, 1, axis, out, "median", keepdims, how)
