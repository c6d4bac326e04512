"""
Histograms and counts of values.

Problem. NumPy counts values in memory.
Idea. NumPy counts parts, with the edges that it would compute for the whole array, and the counts
are added (`outcore.compute.reduce.counting`). If the range is not given, an earlier pass finds the
smallest and the largest element.

Weights are read tile by tile with their elements.

Invariants. The counts and the edges are those of NumPy. So are sums of weights, except for the last
bits of floating-point sums, which are added in the order of the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.arrays.schedule import Section
from outcore.compute.jobs import Operation, Result, Source, collective, complete, open_inputs
from outcore.compute.reduce import chains
from outcore.compute.reduce.counting import AT_ONCE, Count, plan_count, split_tile
from outcore.compute.reduce.quantities import (
    make_extreme_quantity,
    reduce_arrays,
    select_quiet_options,
)
from outcore.errors import BudgetError, OutcoreError, UsageError

__all__ = ["bincount", "histogram"]

_I8, _F8 = np.dtype("i8"), np.dtype("f8")
# Dtypes in which weights are added, by kind of dtype.
_WIDE = {"i": "i8", "u": "u8", "f": "f8", "c": "c16"}
# If the budget is too small for finding the largest element, the number of counts is unknown. It is
# then assumed to be the number of elements, within these limits.
_FEW, _MANY = 256, 1 << 16


@collective
def histogram(
    a: Source,
    bins: int | ArrayLike = 10,
    range: tuple[float, float] | None = None,
    density: bool | None = None,
    weights: Source | None = None,
    **how: Any,
) -> Any:
    """
    Compute the histogram of all elements.

    Parameters
    ----------
    a
        Array of boolean, integer or floating dtype.
    bins
        Number of bins of equal width, or their increasing edges.
    range
        Outer edges, if `bins` is a number. Default: the smallest and the largest element, which an
        earlier pass finds, also with ``explain=True``.
    density
        Divide by the number of elements (or the sum of the weights) and by the width of the bin.
    weights
        Weights of the elements: an array with the shape of `a` and integer, floating or complex
        dtype.
    how
        See `outcore.compute.jobs.complete`. Only ``memory``, ``progress``, ``explain`` and
        ``comm``.

    Returns
    -------
    hist : numpy.ndarray
        Counts, of shape ``(bins,)`` and dtype int64, or the dtype of `weights` (float64 with
        `density`). With ``explain=True`` a `Planned` that computes the counts.
    edges : numpy.ndarray
        Edges of the bins, of shape ``(bins + 1,)``.

    Raises
    ------
    UsageError
        ``bad-option``: NumPy rejects the bins or the range. ``bad-shape``: `weights` has another
        shape.
    BudgetError
        The budget does not hold the counts and a tile.

    Notes
    -----
    Memory: at least 1 MiB (5 MiB with `weights`), 40 bytes for each bin, and a tile of each array.
    Each element is read once, or twice without `range`. Collective with ``comm=``: ranks share the
    tiles of `a`. Weights are added in float64, complex128 or 64-bit integers, in the order of the
    tiles, which affects the last bits.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.arange(10.0))
    >>> outcore.histogram("row.npy", bins=3)
    (array([3, 3, 4]), array([0., 3., 6., 9.]))
    >>> outcore.histogram("row.npy", bins=3, weights=np.full(10, 0.5))[0]
    array([1.5, 1.5, 2. ])
    """
    if isinstance(bins, str):
        raise UsageError(
            f"histogram: bins={bins!r}: rules for the number of bins need all elements in memory; "
            "pass a number, or edges",
            code="bad-option",
        )
    many = isinstance(bins, int | np.integer)
    with _open_weighted("histogram", a, weights) as inputs:
        source = inputs[0]
        dtype = chains.check_dtype("histogram", source.dtype, "biuf")
        of = _I8 if weights is None else chains.check_dtype("weights", inputs[1].dtype, "iufc")
        # Dtype of the sums; NumPy's sums in a smaller dtype would be useless.
        kind = of if of.kind == "f" and of.itemsize == 8 else np.dtype(_WIDE[of.kind])
        if dtype.kind == "b":
            dtype = np.dtype("u1")

        def between(ends: Any) -> NDArray[Any]:
            try:
                return np.histogram_bin_edges(
                    np.empty(0, dtype),
                    bins,
                    None if ends is None else ends,
                )
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"histogram: bins={bins!r} and range={ends!r} are invalid: {error}",
                    code="bad-option",
                ) from None

        def make_operation(ends: Any, edges: NDArray[Any]) -> Operation:
            given = {"bins": bins, "range": ends} if many else {"bins": edges}
            length = max(AT_ONCE, len(edges))

            def count(
                tile: NDArray[Any],
                section: Section,
                kept: NDArray[Any],
                part_of: int,
                *of_tile: NDArray[Any],
            ) -> None:
                split = [split_tile(one, length) for one in (tile.view(dtype), *of_tile)]
                for part, *more in zip(*split, strict=True):
                    weighing = more[0].astype(kind, copy=False) if more else None
                    kept += np.histogram(part, **given, weights=weighing)[0]

            beside = 80 * length + 24 * len(edges) + 64 * length * len(inputs[1:])
            return _make_counting("histogram", inputs, (len(edges) - 1, kind), count, beside, given)

        ends: Any = range
        if many and range is None and source.size:
            # The number of bins does not depend on the range.
            found = _find_ends(
                "histogram", a, None, how, lambda: make_operation((0, 1), between((0, 1)))
            )
            ends = tuple(one.astype(dtype) for one in found)
        edges = between(ends)

        def with_edges(counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            if not density:
                return counts.astype(of, copy=False), edges
            return counts / np.diff(edges).astype(np.float64) / counts.sum(), edges

        return complete(make_operation(ends, edges), None, how, with_edges)


def _find_ends(
    name: str, a: Source, out: Any, how: dict[str, Any], then: Callable[[], Operation]
) -> Any:
    """
    Find the smallest and the largest element, in a pass before that of the operation `then`.

    If the budget is too small for this pass, the error reports a budget that is enough for both
    passes. With several ranks, only the first one would know that the pass failed because of its
    budget; therefore each pass then reports its own budget.
    """
    both = [make_extreme_quantity("min"), make_extreme_quantity("max")]
    try:
        return reduce_arrays(name, (a,), None, both, None, select_quiet_options(how))
    except BudgetError as error:
        if how.get("comm") is None:
            try:
                complete(then(), out, {**how, "explain": True})
            except BudgetError as other:
                if (other.needed or 0) > (error.needed or 0):
                    raise other from None
            except OutcoreError:
                pass  # the length differs from that of `out`, and is not known yet
        raise


def _make_counting(
    name: str,
    inputs: Sequence[Any],
    kept: tuple[int, np.dtype[Any]],
    count: Count,
    beside: int,
    arguments: dict[str, Any],
) -> Operation:
    """Make the operation of the counting pass; `kept`: elements and dtype of the result."""
    source, *weights = inputs
    of_weights = weights[0].dtype if weights else None
    plan = plan_count(name, tuple(source.shape), source.dtype, kept, count, beside, of_weights)
    size, kind = kept
    result = Result((size,), kind, source=source.path, small=True)
    return Operation(
        name, tuple(inputs), (result,), plan, arguments, in_names=("weights",) * len(weights)
    )


@contextmanager
def _open_weighted(name: str, a: Source, weights: Source | None) -> Iterator[tuple[Any, ...]]:
    """Yield the array, and the weights of its elements, if there are any."""
    with open_inputs(a, *(() if weights is None else (weights,))) as inputs:
        if weights is not None and inputs[1].shape != inputs[0].shape:
            raise UsageError(
                f"{name}: weights= has shape {tuple(inputs[1].shape)}, but the array has shape "
                f"{tuple(inputs[0].shape)}; pass a weight for each element",
                code="bad-shape",
                path=inputs[1].path,
            )
        yield inputs


@collective
def bincount(
    x: Source,
    weights: Source | None = None,
    minlength: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> Any:
    """
    Count how often each value occurs in a vector of nonnegative integers, or sum its weights.

    Parameters
    ----------
    x
        Array of shape ``(n,)`` and integer or boolean dtype.
    weights
        Weights of the elements: an array with the shape of `x` and boolean, integer or floating
        dtype.
    minlength
        Minimum length of the result.
    out, how
        See `outcore.compute.jobs.complete`; without `out`, the result is a NumPy array. Of the
        options only ``memory``, ``progress``, ``explain``, ``comm`` and options of a new array.

    Returns
    -------
    numpy.ndarray, DiskArray or Planned
        Counts, of shape ``(max(x) + 1,)`` or longer and dtype int64; float64 with `weights`.

    Raises
    ------
    UsageError
        ``bad-shape``: `x` has more than one axis, or `weights` has another shape. ``bad-option``:
        elements or `minlength` are negative.
    BudgetError
        The budget does not hold the counts and a tile. If it is even too small for finding the
        largest element, ``needed`` is computed from the number of elements, up to 65536 counts.

    Notes
    -----
    Memory: at least 1 MiB, 32 bytes for each element of the result, and a tile of `x` and
    `weights`. Each element of `x` is read twice: an earlier pass finds the largest one, also with
    ``explain=True``. Collective with ``comm=``: ranks share the tiles of `x`. One process adds
    weights one after the other, with the bits of `numpy.bincount`. Ranks add the weights of their
    tiles, then the sums.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("row.npy", np.array([0, 3, 3, 1]))
    >>> outcore.bincount("row.npy")
    array([1, 1, 0, 2])
    >>> outcore.bincount("row.npy", weights=[1.0, 0.5, 0.25, 2.0])
    array([1.  , 2.  , 0.  , 0.75])
    """
    if minlength < 0:
        raise UsageError(
            f"bincount: minlength={minlength} is negative; pass 0 or more", code="bad-option"
        )
    with _open_weighted("bincount", x, weights) as inputs:
        source = inputs[0]
        dtype = chains.check_dtype("bincount", source.dtype, "biu")
        if weights is not None:
            chains.check_dtype("weights", inputs[1].dtype, "biuf")
        # No elements have no weights: NumPy returns integers.
        kind = _F8 if weights is not None and source.size else _I8
        if source.ndim != 1:
            raise UsageError(
                f"bincount: the array has {source.ndim} axes; pass a vector",
                code="bad-shape",
                path=source.path,
            )

        def make_operation(size: int) -> Operation:
            def count(
                tile: NDArray[Any],
                section: Section,
                kept: NDArray[Any],
                part_of: int,
                *of_tile: NDArray[Any],
            ) -> None:
                for part, *more in zip(*map(split_tile, (tile, *of_tile)), strict=True):
                    if more:
                        # Add one after the other, as NumPy does.
                        np.add.at(kept, part.astype(_I8), more[0].astype(_F8))
                    elif size <= AT_ONCE:
                        kept += np.bincount(part.astype(_I8), minlength=size)
                    else:
                        np.add.at(kept, part.astype(_I8), 1)

            beside = 16 * AT_ONCE * len(inputs)
            return _make_counting(
                "bincount", inputs, (size, kind), count, beside, {"minlength": minlength}
            )

        size = int(minlength)
        if source.size:
            values = 2 ** min(8 * dtype.itemsize, 63)
            likely = max(size, min(values, max(source.size, _FEW), _MANY))
            likely = out.shape[0] if len(getattr(out, "shape", ())) == 1 else likely
            low, high = _find_ends("bincount", x, out, how, lambda: make_operation(likely))
            if low < 0:
                raise UsageError(
                    f"bincount: the smallest element is {low}, but negative numbers have no bin; "
                    "replace them first",
                    code="bad-option",
                    path=source.path,
                )
            size = max(size, int(high) + 1)
        return complete(make_operation(size), out, how)
