"""
The smallest and largest elements, and where they are.

Problem. NumPy reduces what is in memory.
Idea. Each is one quantity (`outcore.compute.reduce.quantities`), found in one pass.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file, the
budget and the number of threads.
"""

from __future__ import annotations

from typing import Any

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantities import extreme, one_axis, place_of, reduced

__all__ = ["argmax", "argmin", "max", "min", "ptp"]

Axis = int | tuple[int, ...] | None


@collective
def min(
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
    Smallest element over axes; NaN where there is one.

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
        Of the shape and dtype that `numpy.min` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.min("grid.npy", axis=1)
    array([0., 4., 8.])
    """
    return reduced(
        "min",
        (a,),
        axis,
        [extreme("min", initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        initial=initial,
    )


@collective
def max(
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
    Largest element over axes; NaN where there is one.

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
        Of the shape and dtype that `numpy.max` gives.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.max("grid.npy", axis=1)
    array([ 3.,  7., 11.])
    """
    return reduced(
        "max",
        (a,),
        axis,
        [extreme("max", initial, chosen=where is not True)],
        out,
        how,
        keepdims=keepdims,
        where=where,
        initial=initial,
    )


@collective
def ptp(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Largest element less the smallest one, over axes.

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
        Of the shape and dtype that `numpy.ptp` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
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
    >>> float(outcore.ptp("grid.npy"))
    11.0
    """
    return reduced("ptp", (a,), axis, [extreme("ptp")], out, how, keepdims=keepdims)


@collective
def argmin(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Index of the smallest element; the first of equal ones, or of NaN.

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
        Of the shape and dtype that `numpy.argmin` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
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
    >>> outcore.argmin("grid.npy", axis=0)
    array([0, 0, 0, 0])
    """
    one_axis(axis, "argmin")
    return reduced("argmin", (a,), axis, [place_of("argmin")], out, how, keepdims=keepdims)


@collective
def argmax(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Index of the largest element; the first of equal ones, or of NaN.

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
        Of the shape and dtype that `numpy.argmax` gives.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis.
        ``empty-reduction``: there are no elements.
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
    >>> int(outcore.argmax("grid.npy"))
    11
    """
    one_axis(axis, "argmax")
    return reduced("argmax", (a,), axis, [place_of("argmax")], out, how, keepdims=keepdims)
