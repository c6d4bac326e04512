"""
Reductions of the elements that are numbers.

Problem. NumPy reduces what is in memory.
Idea. Each is one quantity (`outcore.compute.reduce.quantities`), found in one pass.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file, the
budget and the number of threads.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantities import (
    extreme,
    freedom,
    mean_of,
    name_of,
    one_axis,
    place_of,
    reduced,
    spread_of,
    sum_of,
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
    Sum of the elements that are numbers, over axes.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    dtype
        In which it is added up, and of the result; by default that of `a`,
        int64 or uint64 for small integers.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    initial
        What the sum begins with, in the dtype of the result.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nansum` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: `initial` is no number of that dtype.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`. The order of the additions depends on
    indices alone: pairwise, in leaves of 128 (N. J. Higham, "The accuracy of floating point summation",
    1993).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nansum("gaps.npy", axis=0)
    array([4., 4.])
    """
    return reduced(
        "nansum",
        (a,),
        axis,
        [sum_of("nansum", dtype, initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        initial=initial,
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
    Product of the elements that are numbers, over axes.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    dtype
        In which it is added up, and of the result; by default that of `a`,
        int64 or uint64 for small integers.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    initial
        What the product begins with, in the dtype of the result.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanprod` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: `initial` is no number of that dtype.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`. The order of the products depends on
    indices alone: pairwise, in leaves of 128 (N. J. Higham, "The accuracy of floating point summation",
    1993).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanprod("gaps.npy", axis=0)
    array([3., 4.])
    """
    return reduced(
        "nanprod",
        (a,),
        axis,
        [sum_of("nanprod", dtype, initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        initial=initial,
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
    Mean of the elements that are numbers, over axes.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    dtype
        In which it is added up, and of the result; by default that of `a`, float64 for integers.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanmean` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`. The order of the additions depends on
    indices alone: pairwise, in leaves of 128 (N. J. Higham, "The accuracy of floating point summation",
    1993).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmean("gaps.npy", axis=0)
    array([2., 4.])
    """
    return reduced(
        "nanmean",
        (a,),
        axis,
        [mean_of(dtype, nan=True, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
    )


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
    Variance of the elements that are numbers, over axes.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    dtype
        In which it is added up, and of the result; by default that of `a`, float64 for integers.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    ddof
        The sum of squares is divided by the number of elements less this.
    keepdims
        Reduced axes stay, with length 1.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    correction
        Another name of `ddof`; one of them can be given.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanvar` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: both `ddof` and `correction`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`. Moments of leaves of 128 are merged
    pairwise (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance",
    1983).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanvar("gaps.npy", axis=0)
    array([1., 0.])
    """
    ddof = freedom("nanvar", ddof, correction)
    return reduced(
        "nanvar",
        (a,),
        axis,
        [spread_of("nanvar", ddof, dtype, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        ddof=ddof,
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
    Standard deviation of the elements that are numbers, over axes.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    dtype
        In which it is added up, and of the result; by default that of `a`, float64 for integers.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    ddof
        The sum of squares is divided by the number of elements less this.
    keepdims
        Reduced axes stay, with length 1.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    correction
        Another name of `ddof`; one of them can be given.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanstd` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: both `ddof` and `correction`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`. Moments of leaves of 128 are merged
    pairwise (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance",
    1983).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanstd("gaps.npy", axis=0)
    array([1., 0.])
    """
    ddof = freedom("nanstd", ddof, correction)
    return reduced(
        "nanstd",
        (a,),
        axis,
        [spread_of("nanstd", ddof, dtype, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        ddof=ddof,
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
    Smallest number over axes; NaN, and a warning, where there is none.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    initial
        A number of the dtype of `a` that takes part, also where there is no element. `where` needs it.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanmin` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: `initial` is no number of that dtype, or is missing beside `where`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmin("gaps.npy", axis=0)
    array([1., 4.])
    """
    return reduced(
        "nanmin",
        (a,),
        axis,
        [extreme("nanmin", initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        initial=initial,
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
    Largest number over axes; NaN, and a warning, where there is none.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis or several; None: all of them.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    initial
        A number of the dtype of `a` that takes part, also where there is no element. `where` needs it.
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanmax` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
        ``bad-dtype``, ``bad-shape``: `where` holds no truth values, or cannot be broadcast.
        ``bad-option``: `initial` is no number of that dtype, or is missing beside `where`.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanmax("gaps.npy", axis=0)
    array([3., 4.])
    """
    return reduced(
        "nanmax",
        (a,),
        axis,
        [extreme("nanmax", initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        initial=initial,
    )


@collective
def nanargmin(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Index of the smallest number; the first of equal ones.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis; None: all of them, and the index is that of the flattened array.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanargmin` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
        ``all-nan``: there is no number.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanargmin("gaps.npy", axis=0)
    array([0, 1])
    """
    one_axis(axis, "nanargmin")
    return reduced("nanargmin", (a,), axis, [place_of("nanargmin")], out, how, keepdims=keepdims)


@collective
def nanargmax(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Index of the largest number; the first of equal ones.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array, of shape ``(n0, n1, ...)`` and
        boolean, integer, floating or complex dtype.
    axis
        One axis; None: all of them, and the index is that of the flattened array.
    out
        A path, an open array or a NumPy array that takes the result. By default it is a NumPy array
        (or a scalar), as NumPy gives it, which is counted in the budget.
    keepdims
        Reduced axes stay, with length 1.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.nanargmax` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
        ``all-nan``: there is no number.
    UnsupportedError
        ``bad-dtype``: elements of another dtype.
    BudgetError
        The result does not fit into half of the budget (name `out`), or the budget holds no tile.

    Notes
    -----
    Memory: as much as there is, and at least a tile of `a` with what its outputs need between tiles,
    some hundred bytes each. Each element is read once. Collective with ``comm=``: ranks share the
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("gaps.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> outcore.nanargmax("gaps.npy", axis=0)
    array([1, 1])
    """
    one_axis(axis, "nanargmax")
    return reduced("nanargmax", (a,), axis, [place_of("nanargmax")], out, how, keepdims=keepdims)
