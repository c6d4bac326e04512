"""
Matrix products, with NumPy's meaning, of arrays that do not fit in memory.

The plan is in `outcore.compute.products.contraction`. This module labels the axes: stacks of
matrices are broadcast against each other, and vectors are matrices of one row or column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outcore.base.hints import memory
from outcore.compute.axes import find_axes
from outcore.compute.jobs import Source, collective, complete, open_inputs, to_scalar
from outcore.compute.products.contraction import METHODS, Contraction, make_contraction
from outcore.errors import BudgetError, UsageError, budget_error

__all__ = ["matmul"]


@collective
def matmul(
    a: Source,
    b: Source,
    *,
    out: Any = None,
    method: str = "auto",
    prefetch: bool = True,
    axes: Sequence[Any] | None = None,
    **how: Any,
) -> Any:
    """
    Multiply matrices: ``a @ b``.

    Parameters
    ----------
    a, b
        Arrays of shapes ``(..., m, k)`` and ``(..., k, n)``; the axes before the matrices are
        broadcast. A vector ``(k,)`` is one row as `a`, one column as `b`, and its axis is not in
        the result. Any dtypes that NumPy multiplies.
    method
        ``"slabs"``: slabs of one operand, whole along the inner axis, stay in memory, and slabs of
        the other one are read ahead. ``"blocks"``: blocks of the result stay in memory, blocks of
        both operands are read ahead, and their products are added; if the whole inner axis fits, it
        is not cut. ``"auto"``: the faster one by prediction.
    prefetch
        False: read nothing while products are computed, which leaves more memory for blocks.
    axes
        Axes of the matrices, as in `numpy.matmul`: tuples of two axes of `a`, of `b` and of the
        result, such as ``[(0, 1), (1, 0), (0, 1)]``; one axis for a vector. Default: the last ones.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray or scalar
        Array of shape ``(..., m, n)``, with the dtype of NumPy's product, open for reading and
        writing. A scalar for two vectors.

    Raises
    ------
    UsageError
        ``shape-mismatch``: the shapes do not match. ``bad-dtype``: NumPy does not multiply the
        dtypes. ``unknown-option``: invalid `method`. Otherwise see `outcore.compute.jobs.complete`.
    BudgetError
        The smallest blocks do not fit. ``needed`` is a sufficient budget.
    StorageError
        See `outcore.compute.jobs.complete`.

    Notes
    -----
    Memory: any amount; the bytes moved fall with its square root. Integers wrap around as in NumPy.
    Sums of floating-point products are made in blocks, and differ from NumPy's in their last bits.
    Half precision is summed in single precision. With SciPy products are added in place; without
    it, a second block of the result is needed. Collective with ``comm=``: ranks share the blocks of
    the result.

    Slabs: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel
    I/O", table 13. Blocks: Foster, Nieplocha, "Disk Resident Arrays", section 5.2.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.arange(6.0).reshape(2, 3))
    >>> c = outcore.matmul("a.npy", np.ones((3, 2)), out="c.npy")
    >>> c[...]
    array([[ 3.,  3.],
           [12., 12.]])
    """
    if method not in METHODS:
        raise UsageError(
            f"matmul: unknown method {method!r}; use one of {', '.join(METHODS)}",
            code="unknown-option",
        )
    arguments: dict[str, Any] = {"method": method, "prefetch": prefetch}
    with open_inputs(a, b) as (x, y):
        if axes is None:
            what = _label_axes(x.shape, y.shape)
        else:
            what = _label_moved_axes(x.shape, y.shape, axes)
            arguments["axes"] = [tuple(one) if np.iterable(one) else one for one in axes]
        operation = make_contraction("matmul", what, (x, y), arguments, method, prefetch=prefetch)
        return complete(operation, out, how, lambda done: to_scalar(done, out))


def _label_axes(a: tuple[int, ...], b: tuple[int, ...]) -> Contraction:
    """Return the labels of the axes of a product of matrices along the last axes."""
    if not a or not b:
        raise UsageError(
            f"matmul: shapes {a} and {b}: a scalar is not a matrix; use * instead",
            code="shape-mismatch",
        )
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise UsageError(
            f"matmul: shapes {a} and {b} do not match: rows of a have {a[-1]} elements, columns "
            f"of b {b[-2 if len(b) > 1 else 0]}; transpose one of them",
            code="shape-mismatch",
        )
    stacks = a[:-2], b[:-2]
    try:
        batch = np.broadcast_shapes(*stacks)
    except ValueError:
        raise UsageError(
            f"matmul: shapes {a} and {b}: the axes {stacks[0]} and {stacks[1]} before the "
            "matrices cannot be broadcast; insert axes of length 1",
            code="shape-mismatch",
        ) from None
    extents = list(batch)
    labels = list[list[int]]([[], []])
    for one, stack in zip(labels, stacks, strict=True):
        first = len(batch) - len(stack)
        one += [first + n if length == batch[first + n] else -1 for n, length in enumerate(stack)]
    result = list(range(len(batch)))
    for number, (shape, at) in enumerate(((a, -2), (b, -1))):
        if len(shape) > 1:
            result.append(len(extents))
            labels[number].append(len(extents))
            extents.append(shape[at])
    inner = len(extents)
    extents.append(a[-1])
    labels[0].append(inner)
    labels[1].insert(len(labels[1]) - (len(b) > 1), inner)
    return Contraction(tuple(extents), (tuple(labels[0]), tuple(labels[1]), tuple(result)))


def _label_moved_axes(a: tuple[int, ...], b: tuple[int, ...], axes: Sequence[Any]) -> Contraction:
    """Return the labels of the axes of a product of matrices along other axes."""
    both = len(a) > 1, len(b) > 1
    counts = min(len(a), 2), min(len(b), 2), sum(both)
    given = list(axes) if isinstance(axes, list | tuple) else []
    if len(given) != 3:
        raise UsageError(
            f"matmul: invalid axes={axes!r}; pass a list of the axes of a, of b and of the "
            "result, such as [(-2, -1), (-2, -1), (-2, -1)]",
            code="bad-axis",
        )
    first, second = (
        _move_last(len(s), one, n) for s, one, n in zip((a, b), given, counts, strict=False)
    )
    plain = _label_axes(tuple(a[k] for k in first), tuple(b[k] for k in second))
    third = _move_last(len(plain.axes[2]), given[2], counts[2])
    moved = []
    for order, labels in zip((first, second, third), plain.axes, strict=True):
        where = dict(zip(order, labels, strict=True))
        moved.append(tuple(where[k] for k in range(len(order))))
    return Contraction(plain.extents, (moved[0], moved[1], moved[2]))


def _move_last(ndim: int, given: Any, count: int) -> tuple[int, ...]:
    """Return all axes of an array, the given ones last."""
    found = find_axes("matmul", given, ndim)
    if len(found) != count:
        raise UsageError(
            f"matmul: invalid {given!r} in axes= for an array with {ndim} axes; pass {count}",
            code="bad-axis",
        )
    return (*(k for k in range(ndim) if k not in found), *found)


def multiply_in_memory(a: Any, b: Any) -> Any:
    """Return ``a @ b`` as a NumPy array, for the operator of `DiskArray`."""
    with open_inputs(a, b) as (x, y):
        what = _label_axes(x.shape, y.shape)
        arguments = {"method": "auto", "prefetch": True}
        operation = make_contraction("matmul", what, (x, y), arguments, small=True)
        (result,), limit = operation.results, int(memory())
        try:
            return complete(operation, None, {})[()]
        except BudgetError as error:
            if result.nbytes <= limit // 2:
                raise
            raise budget_error(
                f"a @ b of shapes {x.shape} and {y.shape}",
                result.nbytes,
                f"at most half of the memory budget of {limit} bytes is available for it",
                error.needed,
                instead="write the result to disk with outcore.matmul(a, b, out=...)",
                code="array-too-large",
            ) from None
