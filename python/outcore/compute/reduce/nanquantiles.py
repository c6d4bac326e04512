"""
Quantiles, percentiles and medians of what is a number, exactly.

Problem. Where an element is not a number, those that are have other ranks.
Idea. The same as of all elements (`outcore.compute.reduce.quantiles`): lines that fit are ordered, with
NaN last; where they do not fit, the pass that counts first tells also how many numbers each output has.

Invariants. The elements with these ranks are found exactly, so the result has the same bits for every
budget.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantiles import ordered

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
    Quantiles of the elements that are numbers, over axes, exactly.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    q
        One quantile or several, from 0 to 1.
    axis, out, method, keepdims, how
        As of `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `q`, then that of `a` without the reduced axes. NaN, and a warning, where there is
        no number.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As `outcore.quantile`.

    Notes
    -----
    Memory, passes and source: as of `outcore.quantile`, and 8 bytes for each output where the reduced
    axes do not fit. Collective with ``comm=``, as that is.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanquantile("gaps.npy", 0.5, axis=1)
    array([2., 7.])
    """
    return ordered("nanquantile", a, q, 1, axis, out, method, keepdims, how)


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
    Percentiles of the elements that are numbers, over axes, exactly.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    q
        One percentile or several, from 0 to 100.
    axis, out, method, keepdims, how
        As of `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `q`, then that of `a` without the reduced axes. NaN, and a warning, where there is
        no number.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As `outcore.quantile`.

    Notes
    -----
    Memory, passes and source: as of `outcore.quantile`, and 8 bytes for each output where the reduced
    axes do not fit. Collective with ``comm=``, as that is.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanpercentile("gaps.npy", 50, axis=1)
    array([2., 7.])
    """
    return ordered("nanpercentile", a, q, 100, axis, out, method, keepdims, how)


@collective
def nanmedian(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Median of the elements that are numbers, over axes, exactly.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and boolean, integer or
        floating dtype.
    axis, out, keepdims, how
        As of `outcore.quantile`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        The shape of `a` without the reduced axes. NaN, and a warning, where there is no number.

    Raises
    ------
    UsageError, UnsupportedError, BudgetError
        As `outcore.quantile`.

    Notes
    -----
    Memory, passes and source: as of `outcore.nanquantile`. Collective with ``comm=``, as that is.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan, 3.0], [5.0, 7.0, 9.0]]))
    >>> outcore.nanmedian("gaps.npy", axis=1)
    array([2., 7.])
    """
    return ordered("nanmedian", a, 0.5, 1, axis, out, "median", keepdims, how)
