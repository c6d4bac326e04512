"""
Sums of products over any axes of two arrays, with NumPy's meaning.

The plan is in `outcore.compute.products.contraction`; this module labels the axes. No array is
transposed on disk: blocks are permuted while they are read and written.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex, cast

import numpy as np

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.hints import memory, parse_bytes
from outcore.compute.axes import find_axes
from outcore.compute.jobs import Source, collective, complete, open_inputs, to_scalar
from outcore.compute.products.contraction import Contraction, make_contraction
from outcore.errors import BudgetError, UsageError, budget_error

__all__ = ["contract", "inner", "outer", "tensordot"]

Axes = SupportsIndex | Sequence[SupportsIndex | Sequence[SupportsIndex]]


@collective
def tensordot(a: Source, b: Source, axes: Axes = 2, *, out: Any = None, **how: Any) -> Any:
    """
    Sum products over axes of two arrays.

    Parameters
    ----------
    a, b
        Arrays of any shapes, with any dtypes that NumPy multiplies.
    axes
        An integer `n`: the last `n` axes of `a` and the first `n` of `b`. Or two sequences of equal
        length: the axes of `a`, and the axes of `b` that they are paired with.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray or scalar
        Array with the axes of `a` that are not summed over, then those of `b`. A scalar if there
        are none.

    Raises
    ------
    UsageError
        ``shape-mismatch``: paired axes differ in length. ``bad-axis``: an axis does not exist, or
        is repeated. ``bad-dtype``: NumPy does not multiply the dtypes. Otherwise see
        `outcore.compute.jobs.complete`.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.
    StorageError
        See `outcore.compute.jobs.complete`.

    Notes
    -----
    Memory, methods and sums are as in `outcore.matmul`. Collective with ``comm=``: ranks share the
    blocks of the result.

    Bound and blocks: Smith, Lowery, Langou, van de Geijn, "A tight I/O lower bound for matrix
    multiplication", 2019, applied to the arrays as matrices.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("field.npy", np.ones((4, 5, 6)))
    >>> c = outcore.tensordot("field.npy", np.arange(30.0).reshape(6, 5), axes=((2, 1), (0, 1)))
    >>> c.shape, c[0]
    ((4,), np.float64(435.0))
    """
    with open_inputs(a, b) as (x, y):
        pairs = _pair_axes(x.ndim, y.ndim, axes)
        return contract("tensordot", (x, y), pairs, out, how, {"axes": pairs})


@collective
def inner(a: Source, b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Sum products over the last axes of two arrays.

    Parameters
    ----------
    a, b
        Arrays whose last axes have equal length.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray or scalar
        Array of shape ``(*a.shape[:-1], *b.shape[:-1])``, or a scalar.

    Raises
    ------
    UsageError, BudgetError, StorageError
        See `outcore.tensordot`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.arange(6.0).reshape(2, 3))
    >>> outcore.inner("a.npy", np.ones(3))[...]
    array([ 3., 12.])
    """
    with open_inputs(a, b) as (x, y):
        pairs = ((x.ndim - 1,), (y.ndim - 1,)) if x.ndim and y.ndim else ((), ())
        return contract("inner", (x, y), pairs, out, how, {})


@collective
def outer(a: Source, b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Multiply each element of one vector by each element of another.

    Parameters
    ----------
    a, b
        Arrays. An array that does not have exactly one axis is flattened in C order, as in
        `numpy.outer`; for that, an array on disk is read whole. ``outcore.tensordot(a, b, 0)``
        keeps the axes and reads blocks.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Array of shape ``(a.size, b.size)``.

    Raises
    ------
    UsageError, BudgetError, StorageError
        See `outcore.tensordot`. Also `BudgetError` if arrays that are flattened need more than a
        quarter of the memory budget.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.outer(np.arange(3.0), np.arange(2.0) + 1)[...]
    array([[0., 0.],
           [1., 2.],
           [2., 4.]])
    """
    with contextlib.ExitStack() as stack:
        arrays = stack.enter_context(open_inputs(a, b))
        whole = [one for one in arrays if isinstance(one, DiskArray) and one.ndim != 1]
        held = sum(one.nbytes for one in whole)
        limit = min(
            int(memory()), parse_bytes(how["memory"]) if how.get("memory") else int(memory())
        )
        if held > limit // 4:
            sizes, dtypes = [one.size for one in arrays], [one.dtype for one in arrays]
            reading = max(one.handle.core.enough() for one in whole)
            needed = max(4 * held, held + _find_needed_bytes(sizes, dtypes, how), held + reading)
            raise _make_flattening_error(arrays, held, limit, needed)
        if held:
            stack.callback(_core.Reservation("vectors of outer()", held).release)
            how = {**how, "memory": limit - held}
        flat = [_flatten(one) for one in arrays]
        x, y = stack.enter_context(open_inputs(*flat))
        try:
            return contract("outer", (x, y), ((), ()), out, how, {})
        except BudgetError as error:
            if not held or error.needed is None:
                raise
            raise _make_flattening_error(
                arrays, held, limit, max(error.needed + held, 4 * held)
            ) from None


def _make_flattening_error(
    arrays: Sequence[Any], held: int, limit: int, needed: int
) -> BudgetError:
    """Return the error for arrays that are flattened, with a sufficient budget."""
    return budget_error(
        "outer",
        needed,
        limit,
        needed,
        reason=f"shapes {arrays[0].shape} and {arrays[1].shape} are flattened in memory ({held} bytes)",
        setting="memory= (and outcore.memory())",
        instead="use tensordot(a, b, 0), which keeps the axes and reads blocks",
    )


def _find_needed_bytes(sizes: Sequence[int], dtypes: Sequence[Any], how: dict[str, Any]) -> int:
    """Return a sufficient budget for the products of vectors of these sizes, without reading any."""
    kept = {word: how[word] for word in ("comm",) if word in how}
    pairs = zip(sizes, dtypes, strict=True)
    vectors = [np.broadcast_to(np.zeros((), dtype), (size,)) for size, dtype in pairs]
    with open_inputs(*vectors) as (x, y):
        try:
            contract("outer", (x, y), ((), ()), None, {**kept, "memory": 1, "explain": True}, {})
        except BudgetError as error:
            return error.needed or 0
    return 0


def _flatten(array: Any) -> Any:
    if isinstance(array, DiskArray):
        return array if array.ndim == 1 else np.ravel(np.asarray(array))
    return np.ravel(array.data)


def contract(
    name: str,
    arrays: tuple[Any, Any],
    pairs: tuple[tuple[int, ...], tuple[int, ...]],
    out: Any,
    how: dict[str, Any],
    arguments: dict[str, Any],
) -> Any:
    """Sum products of two open arrays over pairs of axes; `arguments` are for the journal."""
    what = _label_axes(name, arrays[0].shape, arrays[1].shape, pairs)
    operation = make_contraction(name, what, arrays, arguments)
    return complete(operation, out, how, lambda done: to_scalar(done, out))


def _label_axes(
    name: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    pairs: tuple[tuple[int, ...], tuple[int, ...]],
) -> Contraction:
    extents: list[int] = []
    labels = [[-1] * len(a), [-1] * len(b)]
    for here, there in zip(*pairs, strict=True):
        if a[here] != b[there]:
            raise UsageError(
                f"{name}: axis {here} of shape {a} has {a[here]} elements, but axis {there} of "
                f"shape {b} has {b[there]}; choose axes of equal length",
                code="shape-mismatch",
            )
        labels[0][here] = labels[1][there] = len(extents)
        extents.append(a[here])
    result = []
    for one, shape in zip(labels, (a, b), strict=True):
        for axis, length in enumerate(shape):
            if one[axis] < 0:
                one[axis] = len(extents)
                result.append(len(extents))
                extents.append(length)
    # The loop over two numbers without axes has one step.
    return Contraction(tuple(extents) or (1,), (tuple(labels[0]), tuple(labels[1]), tuple(result)))


def _pair_axes(first: int, second: int, axes: Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the paired axes of both arrays, counted from 0."""
    ndims = first, second
    try:
        count = operator.index(axes)  # type: ignore[arg-type]
    except TypeError:
        pass
    else:
        if not 0 <= count <= min(ndims):
            raise UsageError(
                f"tensordot: axes={count} for arrays with {first} and {second} axes; pass 0 to "
                f"{min(ndims)}",
                code="bad-axis",
            )
        return tuple(range(first - count, first)), tuple(range(count))
    try:
        here, there = cast("tuple[Any, Any]", axes)
        if np.size(here) != np.size(there):
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(
            f"tensordot: invalid axes={axes!r}; pass an integer, or two sequences of equal "
            "length: axes of a, then axes of b",
            code="bad-axis",
        ) from None
    return find_axes("tensordot", here, first), find_axes("tensordot", there, second)
