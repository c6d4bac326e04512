"""
Sums, products, means, variances, and whether: NumPy's reductions.

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
    freedom,
    mean_of,
    name_of,
    reduced,
    spread_of,
    sum_of,
    truth_of,
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
    Sum of elements over axes.

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
        Of the shape and dtype that `numpy.sum` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.sum("grid.npy", axis=0)
    array([12., 15., 18., 21.])
    """
    return reduced(
        "sum",
        (a,),
        axis,
        [sum_of("sum", dtype, initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        initial=initial,
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
    Product of elements over axes.

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
        Of the shape and dtype that `numpy.prod` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.prod("grid.npy", axis=1)
    array([   0.,  840., 7920.])
    """
    return reduced(
        "prod",
        (a,),
        axis,
        [sum_of("prod", dtype, initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        initial=initial,
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
    Arithmetic mean over axes.

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
        Of the shape and dtype that `numpy.mean` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.mean("grid.npy", axis=1)
    array([1.5, 5.5, 9.5])
    """
    return reduced(
        "mean",
        (a,),
        axis,
        [mean_of(dtype, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
    )


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
    Variance over axes.

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
        Of the shape and dtype that `numpy.var` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.var("grid.npy", axis=1, ddof=1)
    array([1.66666667, 1.66666667, 1.66666667])
    """
    ddof = freedom("var", ddof, correction)
    return reduced(
        "var",
        (a,),
        axis,
        [spread_of("var", ddof, dtype, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        ddof=ddof,
    )


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
    Standard deviation over axes.

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
        Of the shape and dtype that `numpy.std` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> float(outcore.std("grid.npy"))
    3.452052529534663
    """
    ddof = freedom("std", ddof, correction)
    return reduced(
        "std",
        (a,),
        axis,
        [spread_of("std", ddof, dtype, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        dtype=name_of(dtype),
        ddof=ddof,
    )


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
    Whether an element is not zero, over axes.

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
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.any` gives.

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
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.any("grid.npy", axis=1)
    array([ True,  True,  True])
    """
    return reduced(
        "any",
        (a,),
        axis,
        [truth_of("any", chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
    )


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
    Whether no element is zero, over axes.

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
    where
        Which elements count: truth values, on disk or in memory, that are broadcast to the shape of `a`.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.all` gives.

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
    tiles of `a`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.all("grid.npy", axis=1)
    array([False,  True,  True])
    """
    return reduced(
        "all",
        (a,),
        axis,
        [truth_of("all", chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
    )


@collective
def count_nonzero(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    How many elements are not zero, over axes.

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
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of a new array; see
        `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Of the shape and dtype that `numpy.count_nonzero` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> int(outcore.count_nonzero("grid.npy"))
    11
    """
    return reduced(
        "count_nonzero", (a,), axis, [truth_of("count_nonzero")], out, how, keepdims=keepdims
    )
