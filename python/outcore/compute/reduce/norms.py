"""
Inner products and norms in one pass.

Problem. The terms of the sum are products or powers of elements, not elements.
Idea. Products and powers are computed part by part, where the cache holds them, and go through the
same tree as sums (`outcore.compute.reduce.reducing`). Norms of matrices that are extremes of sums
are two reductions; the second one reads the sums. Norms based on singular values get these from
`outcore.linalg.svd`.

Invariants. Each element of an input is read once, unless it is broadcast. Equal elements and shapes
give equal bits, whatever the file, the budget and the number of threads, except for norms based on
singular values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.factors.qr import svd
from outcore.compute.jobs import Source, collective, open_inputs
from outcore.compute.products.tensordot import contract
from outcore.compute.reduce import chains
from outcore.compute.reduce.kernel import Chain, KernelElements
from outcore.compute.reduce.quantities import (
    Make,
    Quantity,
    make_extreme_quantity,
    make_sum_quantity,
    reduce_arrays,
    select_quiet_options,
)
from outcore.errors import UsageError

__all__ = ["dot", "norm", "vdot", "vecdot"]

_F8 = np.dtype("f8")
Planes = Sequence[NDArray[Any]]


@collective
def dot(a: Source, b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Compute the inner product of two vectors, or sums of products of other arrays as `numpy.dot`
    does.

    Parameters
    ----------
    a, b
        Arrays of boolean, integer, floating or complex dtype: vectors of the same shape ``(n,)``;
        or ``(..., n)`` and ``(..., n, m)``, or ``(..., n)`` and ``(n,)``; or one of them is a
        number.
    out
        Destination of the result. Default: a scalar for two vectors, otherwise a temporary array on
        disk.
    how
        See `outcore.compute.jobs.complete`. For two vectors only ``memory``, ``progress``,
        ``explain`` and ``comm``.

    Returns
    -------
    scalar, array or Planned
        Result with the dtype of `numpy.dot`. Its shape consists of the axes of `a` without the last
        one, then those of `b` without the last but one (of a vector, without its only axis). For
        two matrices, it is their product.

    Raises
    ------
    UsageError
        ``bad-shape``: two vectors differ in length. ``shape-mismatch``: other axes differ in
        length.

    Notes
    -----
    Memory: at least one tile of each input, and of their products. Collective with ``comm=``: ranks
    share the tiles. For two vectors, each element is read once, and the order of additions depends
    only on indices, as in `outcore.sum`. All other products are computed as in `outcore.tensordot`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.arange(4.0))
    >>> float(outcore.dot("a.npy", np.ones(4)))
    6.0
    """
    with open_inputs(a, b) as (x, y):
        if x.ndim != 1 or y.ndim != 1:
            # If one input is a number, each element is multiplied by it.
            both = x.ndim and y.ndim
            pairs = ((x.ndim - 1,), (max(y.ndim - 2, 0),)) if both else ((), ())
            return contract("dot", (x, y), pairs, out, how, {})
    return _reduce_products("dot", a, b, out, how, conjugate=False)


@collective
def vdot(a: Source, b: Source, *, out: Any = None, **how: Any) -> Any:
    """
    Compute the inner product of all elements of two arrays, with the first one conjugated.

    Parameters
    ----------
    a, b
        Arrays of one shape ``(n0, n1, ...)`` and boolean, integer, floating or complex dtype.
    out
        Destination of the result, of shape ``()``. Default: a scalar.
    how
        See `outcore.compute.jobs.complete`. Only ``memory``, ``progress``, ``explain`` and
        ``comm``.

    Returns
    -------
    scalar, array or Planned
        Result with the dtype of `numpy.vdot`.

    Raises
    ------
    UsageError
        ``bad-shape``: the shapes of the arrays differ.

    Notes
    -----
    Memory: at least one tile of each input, and of their products. Each element is read once.
    Collective with ``comm=``: ranks share the tiles. The order of additions depends only on
    indices, as in `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.array([1j, 2.0]))
    >>> complex(outcore.vdot("a.npy", "a.npy"))
    (5+0j)
    """
    return _reduce_products("vdot", a, b, out, how, conjugate=True)


@collective
def vecdot(x1: Source, x2: Source, *, axis: int = -1, out: Any = None, **how: Any) -> Any:
    """
    Compute inner products of the vectors along an axis, with the first ones conjugated.

    Parameters
    ----------
    x1, x2
        Arrays of boolean, integer, floating or complex dtype. They have one shape ``(n0, n1,
        ...)``, or one of them is broadcast to the shape of the other, such as ``(n,)`` to ``(m,
        n)``. The lengths of the vectors are the same.
    axis
        Axis of the vectors. For arrays with different numbers of axes it is counted from the last
        one: -1, -2, ...
    out, how
        See `outcore.compute.jobs.complete`; the default of `out` is that of reductions.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Result with the shape and dtype of `numpy.vecdot`.

    Raises
    ------
    UsageError
        ``bad-shape``: the lengths of the vectors differ, or neither shape can be broadcast to the
        other. ``bad-axis``: `axis` does not exist, or names several axes.

    Notes
    -----
    Memory: at least one tile of each input, and of their products. Each element is read once; of an
    array that is broadcast, each tile reads what it needs. Collective with ``comm=``: ranks share
    the tiles. The order of additions depends only on indices, as in `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("a.npy", np.arange(6.0).reshape(2, 3))
    >>> outcore.vecdot("a.npy", "a.npy")
    array([ 5., 50.])
    >>> outcore.vecdot("a.npy", np.ones(3))
    array([ 3., 12.])
    """
    try:
        operator.index(axis)
    except TypeError:
        raise UsageError(
            f"vecdot: axis={axis!r} is not an integer; pass one axis", code="bad-axis"
        ) from None
    with open_inputs(x1, x2) as (left, right):
        shapes = tuple(left.shape), tuple(right.shape)
        dtypes = [one.dtype for one in (left, right)]
    if shapes[0] == shapes[1]:
        return _reduce_products("vecdot", x1, x2, out, how, conjugate=True, axis=axis)
    is_turned = _find_broadcast(shapes, axis) == 1
    # The array that is broadcast is the last input.
    sources, names = ((x2, x1), ("x2", "x1")) if is_turned else ((x1, x2), ("x1", "x2"))
    made = _make_product(dtypes, conjugate=True, is_turned=is_turned)
    return reduce_arrays("vecdot", sources, axis, [made], out, how, spread=True, names=names)


def _find_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]], axis: int) -> int:
    """Return which of two arrays of vectors the other one can be broadcast to."""
    found = [chains.normalize_axes("vecdot", axis, len(shape))[0] for shape in shapes]
    if found[0] - len(shapes[0]) != found[1] - len(shapes[1]):
        raise UsageError(
            f"vecdot: axis={axis} is ambiguous for shapes {shapes[0]} and {shapes[1]}, which differ "
            "in their number of axes; count it from the last one (-1, -2, ...), or pass arrays "
            "with equally many axes",
            code="bad-axis",
        )
    lengths = [shape[k] for shape, k in zip(shapes, found, strict=True)]
    if lengths[0] != lengths[1]:
        raise UsageError(
            f"vecdot: along axis {axis}, shapes {shapes[0]} and {shapes[1]} have vectors of "
            f"{lengths[0]} and {lengths[1]} elements; use parts of equal length",
            code="bad-shape",
        )
    try:
        return shapes.index(np.broadcast_shapes(*shapes))
    except ValueError:
        raise UsageError(
            f"vecdot: neither of the shapes {shapes[0]} and {shapes[1]} can be broadcast to the "
            "other; enlarge one array (numpy.broadcast_to, or outcore.map_blocks on disk)",
            code="bad-shape",
        ) from None


def _reduce_products(
    name: str,
    a: Source,
    b: Source,
    out: Any,
    how: dict[str, Any],
    *,
    conjugate: bool,
    axis: int | None = None,
) -> Any:
    with open_inputs(a, b) as (left, right):
        shapes = tuple(left.shape), tuple(right.shape)
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"{name}: shapes {shapes[0]} and {shapes[1]} differ; use parts of equal shape",
                code="bad-shape",
            )
        dtypes = [one.dtype for one in (left, right)]
    return reduce_arrays(name, (a, b), axis, [_make_product(dtypes, conjugate=conjugate)], out, how)


def _make_product(
    dtypes: Sequence[np.dtype[Any]], *, conjugate: bool, is_turned: bool = False
) -> Make:
    """Make sums of products; `is_turned`: the second factor is the first input."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        conjugated = conjugate and dtypes[0].kind == "c"
        # Products of integers wrap in their own dtype. Modulo its range, so does the sum.
        work: np.dtype[Any] = dtype
        if dtype.kind == "b" or dtype.str[1:] == "f2":
            work = np.dtype("u1" if dtype.kind == "b" else "f4")

        def fill(x: NDArray[Any], y: NDArray[Any], into: NDArray[Any]) -> None:
            if is_turned:
                x, y = y, x
            np.multiply(
                np.conjugate(x) if conjugated else x, y, out=into, casting="unsafe", dtype=work
            )

        def finish(planes: Sequence[Planes], into: NDArray[Any]) -> None:
            total = planes[0][0]
            if dtype.kind == "c":
                total = total.view(f"c{2 * total.dtype.itemsize}")
            with np.errstate(over="ignore"):
                np.copyto(into, total, casting="unsafe")

        chain = Chain("sum", "sum", KernelElements(work, fill), lengths)
        return Quantity([chain], dtype, finish, lambda: 0)

    return make


@collective
def norm(
    x: Source,
    ord: float | str | None = None,  # noqa: A002 - NumPy's name
    axis: int | tuple[int, int] | None = None,
    keepdims: bool = False,
    *,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Compute the norm of vectors or matrices.

    Parameters
    ----------
    x
        Array of boolean, integer, floating or complex dtype.
    ord
        Kind of norm, as in `numpy.linalg.norm`. For vectors: any number, ``inf`` and ``-inf``. For
        matrices: ``"fro"``, 1, -1, ``inf`` and ``-inf``. For one matrix, tall or wide, also 2, -2
        and ``"nuc"``, which are computed from its singular values. None: the 2-norm of all
        elements.
    axis
        One axis for norms of vectors, two axes for norms of matrices. None: all elements; `x` must
        then have one or two axes if `ord` is given.
    keepdims, out, how
        See `outcore.compute.jobs.complete`. Of the options only ``memory``, ``progress``,
        ``explain``, ``comm`` and options of a new array.

    Returns
    -------
    numpy.ndarray, scalar, DiskArray or Planned
        Norms, of floating dtype; float64 for integers.

    Raises
    ------
    UsageError
        ``bad-option``: there is no such norm, or singular values of more than one matrix are
        needed.
    UnsupportedError
        ``needs-scipy``: singular values need SciPy.
    LinAlgError
        ``not-finite``: singular values are needed of a matrix with NaN or infinity.
    BudgetError
        As in `outcore.compute.jobs.complete`. For norms based on singular values, also if the matrix
        is too large in both directions, as for `outcore.linalg.svd`.

    Notes
    -----
    Memory: at least one tile of `x`. Each element is read once. For 1, -1, ``inf`` and ``-inf`` of
    matrices the sums of columns or rows are read once more, from a temporary array if they are
    many. An earlier pass computes these sums, or the singular values for 2, -2 and ``"nuc"``, also
    with ``explain=True``. Collective with ``comm=``: ranks share the tiles of `x`. Squares and
    powers are added in float64, in an order that depends only on indices, as in `outcore.sum`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("grid.npy", np.array([[3.0, 4.0], [6.0, 8.0]]))
    >>> outcore.linalg.norm("grid.npy", axis=1)
    array([ 5., 10.])
    >>> float(outcore.linalg.norm("grid.npy", "fro"))
    11.180339887498949
    >>> float(outcore.linalg.norm("grid.npy", 1))
    12.0
    """
    with open_inputs(x) as (array,):
        ndim = array.ndim
    several = chains.normalize_axes("norm", axis, ndim)
    if axis is not None and len(several) > 2:
        raise UsageError(
            f"norm: axis={axis!r} names more than two axes; pass one for vectors or "
            "two for matrices",
            code="bad-axis",
        )
    if ord is None:
        return reduce_arrays(
            "norm", (x,), axis, [_make_length()], out, how, keepdims=keepdims, ord=ord
        )
    if len(several) == 2:
        if ord in ("fro", "f"):
            return reduce_arrays(
                "norm", (x,), several, [_make_length()], out, how, keepdims=keepdims, ord=ord
            )
        given: Any = several if axis is None else axis
        order = tuple(one % ndim for one in given)
        if ord in (1, -1, np.inf, -np.inf):
            return _compute_extreme_sum(x, float(ord), order, keepdims, out, how)
        if ord in (2, -2, "nuc"):
            return _compute_singular(x, ord, ndim, keepdims, out, how)
        raise UsageError(
            f"norm: ord={ord!r} is not a norm of matrices; use 'fro', 'nuc', 1, -1, 2, -2, inf or "
            "-inf",
            code="bad-option",
        )
    if len(several) != 1 or isinstance(ord, str):
        raise UsageError(
            f"norm: ord={ord!r} is not a norm of {len(several)} axes; pass axis= with one axis for "
            "vectors or two for matrices",
            code="bad-option",
        )
    return reduce_arrays(
        "norm", (x,), axis, [_make_power(float(ord))], out, how, keepdims=keepdims, ord=ord
    )


# Largest size in bytes of sums that are kept in memory between two passes.
_KEPT = 2**16


def _compute_extreme_sum(
    x: Source,
    power: float,
    axes: tuple[int, ...],
    keepdims: bool,
    out: Any,
    how: dict[str, Any],
) -> Any:
    """Compute the largest or the smallest sum of absolute values: of columns (1, -1) or of rows."""
    along = axes[0] if abs(power) == 1 else axes[1]
    with open_inputs(x) as (array,):
        many = array.size // max(array.shape[along], 1) * _F8.itemsize
    small = many <= _KEPT
    sums = reduce_arrays(
        "norm",
        (x,),
        along,
        [_make_power(1.0)],
        None,
        select_quiet_options(how),
        keepdims=True,
        small=small,
    )
    # No sum is less than 0, which NumPy also returns as the maximum of no sums.
    what = make_extreme_quantity("max", 0) if power > 0 else make_extreme_quantity("min")
    return _run_last_pass(sums, what, axes, keepdims, out, how)


def _compute_singular(
    x: Source, kind: float | str, ndim: int, keepdims: bool, out: Any, how: dict[str, Any]
) -> Any:
    """Compute the largest or the smallest singular value, or their sum."""
    if ndim != 2:
        raise UsageError(
            f"norm: ord={kind!r} does not apply to an array with {ndim} axes, since singular values "
            "are computed of one matrix at a time; call norm for each matrix",
            code="bad-option",
        )
    values = svd(x, compute_uv=False, **select_quiet_options(how))[:, np.newaxis]
    what = (
        make_extreme_quantity("max", 0)
        if kind == 2
        else make_extreme_quantity("min")
        if kind == -2
        else make_sum_quantity("sum")
    )
    return _run_last_pass(values, what, (0, 1), keepdims, out, how)


def _run_last_pass(
    found: Any, what: Make, axes: tuple[int, ...], keepdims: bool, out: Any, how: dict[str, Any]
) -> Any:
    """Run the last pass, over the results of the previous one."""

    def finish(result: Any, kept: Any = found) -> Any:
        # A temporary array is deleted with its last reference: not before a `Planned` has run.
        return result

    return reduce_arrays(
        "norm",
        (found,),
        axes,
        [what],
        out,
        how,
        keepdims=keepdims,
        repeatable=False,
        given=finish,
    )


def _float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return dtype if dtype.kind == "f" else _F8


def _make_length() -> Make:
    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            squares = planes[0][0]
            if dtype.kind == "c":
                squares = squares[::2] + squares[1::2]
            np.copyto(out, np.sqrt(squares), casting="unsafe")

        return Quantity([chains.make_squares(dtype, lengths)], _float(dtype), finish, lambda: 0.0)

    return make


def _make_power(power: float) -> Make:
    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        if power == 2:
            return _make_length()(dtype, lengths, count)
        root, exists = 1.0, True
        if power == 0:
            chain = chains.make_nonzero_count(dtype, lengths)
        elif math.isinf(power):
            name = "max" if power > 0 else "min"
            chain = Chain(name, name, KernelElements(_F8, _size), lengths)
            exists = False
        else:
            chain = Chain("sum", "sum", KernelElements(_F8, _power(power)), lengths)
            root = 1 / power

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            found = planes[0][0]
            np.copyto(out, found if root == 1 else found**root, casting="unsafe")

        return Quantity([chain], _float(dtype), finish, (lambda: 0.0) if exists else None)

    return make


def _size(x: NDArray[Any], out: NDArray[Any]) -> None:
    # The absolute value of the smallest integer does not fit in its own dtype.
    np.abs(x if x.dtype.kind == "c" else x.astype(_F8), out=out)


def _power(power: float) -> Callable[..., None]:
    def fill(x: NDArray[Any], out: NDArray[Any]) -> None:
        _size(x, out)
        if power != 1:
            with np.errstate(all="ignore"):
                np.power(out, power, out=out)

    return fill
