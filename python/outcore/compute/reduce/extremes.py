"""
Smallest and largest elements along axes, and their indices.

Problem. NumPy reduces arrays in memory.
Idea. Each reduction is one quantity (`outcore.compute.reduce.quantities`), computed in one pass.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file,
the budget and the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from outcore.compute.jobs import Source, collective
from outcore.compute.reduce.quantities import (
    check_one_axis,
    make_extreme_quantity,
    make_place_quantity,
    reduce_arrays,
    reduce_masked,
)

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
    Find the smallest element over axes; NaN if any element is NaN.

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
        Result with the shape and dtype of `numpy.min`.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.min("grid.npy", axis=1)
    array([0., 4., 8.])
    """
    make = partial(make_extreme_quantity, "min", initial)
    return reduce_masked("min", make, a, axis, out, how, where, keepdims=keepdims, initial=initial)


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
    Find the largest element over axes; NaN if any element is NaN.

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
        Result with the shape and dtype of `numpy.max`.

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
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.max("grid.npy", axis=1)
    array([ 3.,  7., 11.])
    """
    make = partial(make_extreme_quantity, "max", initial)
    return reduce_masked("max", make, a, axis, out, how, where, keepdims=keepdims, initial=initial)


@collective
def ptp(
    a: Source, axis: Axis = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Subtract the smallest element from the largest one, over axes.

    Parameters
    ----------
    a
        Array of boolean, integer, floating or complex dtype.
    axis, out, keepdims, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.ptp`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> float(outcore.ptp("grid.npy"))
    11.0
    """
    return reduce_arrays(
        "ptp", (a,), axis, [make_extreme_quantity("ptp")], out, how, keepdims=keepdims
    )


@collective
def argmin(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Find the index of the first smallest element, or of the first NaN.

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
        Result with the shape and dtype of `numpy.argmin`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> outcore.argmin("grid.npy", axis=0)
    array([0, 0, 0, 0])
    """
    check_one_axis(axis, "argmin")
    return reduce_arrays(
        "argmin", (a,), axis, [make_place_quantity("argmin")], out, how, keepdims=keepdims
    )


@collective
def argmax(
    a: Source, axis: int | None = None, out: Any = None, *, keepdims: bool = False, **how: Any
) -> Any:
    """
    Find the index of the first largest element, or of the first NaN.

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
        Result with the shape and dtype of `numpy.argmax`.

    Raises
    ------
    UsageError
        ``empty-reduction``: there are no elements.

    Notes
    -----
    Memory, reads and the use of ranks are those of `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.arange(12.0).reshape(3, 4))
    >>> int(outcore.argmax("grid.npy"))
    11
    """
    check_one_axis(axis, "argmax")
    return reduce_arrays(
        "argmax", (a,), axis, [make_place_quantity("argmax")], out, how, keepdims=keepdims
    )
