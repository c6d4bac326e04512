"""
Filters of SciPy (`scipy.ndimage`) for arrays on disk.

Problem. An element of the result depends on a window around it, and SciPy needs the whole array.
Idea. The filters run on blocks with the elements around them (`outcore.compute.blocks.blockwise`). At
the ends of the array, these are made of elements inside it, as in SciPy. The core computes ranks in
windows (medians, minima, maxima); SciPy's own functions compute the rest, line by line.

Invariants. Results are those of SciPy for every budget, bit for bit, except for `uniform_filter` of
floats, where SciPy's running sums depend on the start of a line.

Reference: PASSION, section 4.3 (reuse of borders), and its median filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute import needs
from outcore.compute.jobs import Source, collective, open_inputs
from outcore.compute.stencils.lines import filter_gaussian, filter_uniform
from outcore.compute.stencils.windows import (
    Filter,
    FilterArguments,
    compute_rank_filter,
    filter_blocks,
    filter_error,
    find_widths,
)

__all__ = [
    "convolve",
    "correlate",
    "gaussian_filter",
    "generic_filter",
    "maximum_filter",
    "median_filter",
    "minimum_filter",
    "percentile_filter",
    "rank_filter",
    "uniform_filter",
]


#: One mode for all axes, or one for each.
Mode = str | Sequence[str]
Axes = int | Sequence[int] | None
#: A dtype, or an array that takes the result.
Output = Any


@collective
def median_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the median of the window around it, as `scipy.ndimage.median_filter` does.

    Parameters
    ----------
    a
        Array of real numbers.
    size
        Size of the window: one number for all axes, or one for each.
    footprint
        Elements of the window, instead of `size`: a boolean array.
    output
        Dtype of the result (default: that of `a`); or a NumPy array, or an open one, that takes the
        result instead of `out`.
    mode
        Extension beyond the ends of the axes, for all axes or for each: ``"reflect"``, ``"constant"``
        (`cval`), ``"nearest"``, ``"mirror"`` or ``"wrap"``.
    cval
        Element of ``"constant"``, in the dtype of `a`.
    origin
        Shift of the window towards lower indices, for all axes or for each.
    axes
        Axes to filter. Default: all. Arguments for each axis follow the order of these axes.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`; open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-stencil``: a window, mode, origin or axes do not fit `a`; or elements are complex, float16
        or longdouble.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed, and the window is not a box, or has more than 128
        elements.
    BudgetError
        The smallest blocks do not fit; ``needed`` is a sufficient budget.

    Notes
    -----
    For an even number of elements, the median is the upper one of the two in the middle. NaN has no
    order: for windows with NaN, the result is an unspecified element of the window, as in SciPy.

    Memory: two blocks of `a` with the elements around them, and two of the result, within the budget.
    Elements around blocks are read again only across axes along which blocks are cut. Collective with
    ``comm=``: ranks share the blocks. All cores are used.

    PASSION, section 4.3; Batcher, "Sorting networks and their applications", 1968.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.median_filter(np.array([1.0, 9.0, 2.0, 3.0, 8.0]), 3)[...]
    array([1., 2., 3., 3., 8.])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return compute_rank_filter("median_filter", a, lambda n: n // 2, size, footprint, origin, words)


@collective
def rank_filter(
    a: Source,
    rank: int,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by that of a given rank in its window, as `scipy.ndimage.rank_filter` does.

    Parameters
    ----------
    a, size, footprint, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.
    rank
        Rank in the window: 0 is the smallest element, -1 the largest.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError
        As for `outcore.ndimage.median_filter`. ``bad-stencil`` also if there is no such rank.

    Notes
    -----
    Memory and reads are those of `outcore.ndimage.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.rank_filter(np.array([1, 9, 2, 3, 8]), -1, size=3)[...]
    array([9, 9, 9, 8, 8])
    """

    def choose_rank(n: int) -> int:
        found = rank + n if rank < 0 else rank
        if not 0 <= found < n:
            raise filter_error(
                "rank_filter",
                f"rank={rank} is outside of a window of {n} elements; pass a "
                f"number from {-n} to {n - 1}",
            )
        return found

    keywords = {"rank": rank}
    words = FilterArguments(output, mode, cval, axes, out, how)
    return compute_rank_filter(
        "rank_filter", a, choose_rank, size, footprint, origin, words, keywords
    )


@collective
def percentile_filter(
    a: Source,
    percentile: float,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a percentile of its window, as `scipy.ndimage.percentile_filter` does.

    Parameters
    ----------
    a, size, footprint, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.
    percentile
        Percentile from -100 to 100; -20 means 80.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError
        As for `outcore.ndimage.median_filter`. ``bad-stencil`` also if there is no such percentile.

    Notes
    -----
    Memory and reads are those of `outcore.ndimage.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.percentile_filter(np.array([1, 9, 2, 3, 8]), 100, size=3)[...]
    array([9, 9, 9, 8, 8])
    """
    wanted = percentile + 100.0 if percentile < 0 else percentile
    if not 0 <= wanted <= 100:
        raise filter_error(
            "percentile_filter",
            f"percentile={percentile} is out of range; pass a number from -100 to 100",
        )

    def choose_rank(n: int) -> int:
        return n - 1 if wanted == 100.0 else int(float(n) * wanted / 100.0)

    keywords = {"percentile": percentile}
    words = FilterArguments(output, mode, cval, axes, out, how)
    return compute_rank_filter(
        "percentile_filter", a, choose_rank, size, footprint, origin, words, keywords
    )


@collective
def minimum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the smallest of its window, as `scipy.ndimage.minimum_filter` does.

    Parameters
    ----------
    a, size, footprint, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError
        As for `outcore.ndimage.median_filter`.

    Notes
    -----
    Memory and reads are those of `outcore.ndimage.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.minimum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([4, 2, 2, 2, 3])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return compute_rank_filter("minimum_filter", a, lambda n: 0, size, footprint, origin, words)


@collective
def maximum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the largest of its window, as `scipy.ndimage.maximum_filter` does.

    Parameters
    ----------
    a, size, footprint, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError
        As for `outcore.ndimage.median_filter`.

    Notes
    -----
    Memory and reads are those of `outcore.ndimage.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.maximum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([9, 9, 9, 8, 8])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return compute_rank_filter("maximum_filter", a, lambda n: n - 1, size, footprint, origin, words)


@collective
def uniform_filter(
    a: Source,
    size: int | Sequence[int] = 3,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the mean of its window, as `scipy.ndimage.uniform_filter` does.

    Parameters
    ----------
    a, size, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`. Integer means are truncated after each
        axis, as in SciPy.

    Raises
    ------
    UsageError, UnsupportedError
        As for `outcore.ndimage.median_filter`; SciPy is always needed.

    Notes
    -----
    The mean of floats is a sum of one product for each element of the window, and does not depend on
    the blocks. SciPy adds and subtracts along each line, so its last digits differ. They also differ
    for integers whose sums exceed 2**53. Memory and reads are those of `outcore.ndimage.median_filter`,
    plus one block.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.uniform_filter(np.array([0.0, 3.0, 6.0, 9.0]), 3)[...]
    array([1., 3., 6., 8.])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return filter_uniform("uniform_filter", a, size, origin, words)


@collective
def gaussian_filter(
    a: Source,
    sigma: float | Sequence[float],
    order: int | Sequence[int] = 0,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | Sequence[int] | None = None,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Smooth an array, or differentiate it smoothly, as `scipy.ndimage.gaussian_filter` does.

    Parameters
    ----------
    a, output, mode, cval, axes, out, how
        See `outcore.ndimage.median_filter`; `a` may be complex.
    sigma
        Standard deviation, for all axes or for each; axes with 0 are not filtered.
    order
        Order of the derivative, for all axes or for each.
    truncate
        Number of standard deviations after which the filter ends.
    radius
        Number of elements on either side, instead of `truncate`, for all axes or for each.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError
        ``bad-stencil``: an argument does not fit `a`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    The result has the bits of SciPy. Memory and reads are those of `outcore.ndimage.median_filter`,
    plus one block.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.gaussian_filter(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 0.5, radius=1)[...]
    array([0.        , 0.10650698, 0.78698604, 0.10650698, 0.        ])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return filter_gaussian("gaussian_filter", a, sigma, order, truncate, radius, words)


@collective
def generic_filter(
    a: Source,
    function: Callable[..., Any],
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    extra_arguments: Sequence[Any] = (),
    extra_keywords: dict[str, Any] | None = None,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a function of its window, as `scipy.ndimage.generic_filter` does.

    Parameters
    ----------
    a, size, footprint, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`.
    function
        Function from the elements of a window, as a 1-d array of float64, to a number; or a
        `scipy.LowLevelCallable`.
    extra_arguments, extra_keywords
        Further arguments of the function.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    Raises
    ------
    UsageError, UnsupportedError
        As for `outcore.ndimage.median_filter`; SciPy is always needed.

    Notes
    -----
    The function is also called for elements around blocks, more than once, and on one core. A function
    of whole blocks (`outcore.map_blocks` with ``halo=``) is much faster. Memory and reads are those of
    `outcore.ndimage.median_filter`, plus one block.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.generic_filter(np.array([1.0, 5.0, 2.0, 8.0]), np.ptp, 3)[...]
    array([4., 4., 6., 6.])
    """
    ndimage = needs.scipy("ndimage", "generic_filter")
    words = FilterArguments(output, mode, cval, axes, out, how)
    with open_inputs(a) as (source,):
        call = Filter("generic_filter", source, words, "biuf")
        window = call.window(size, footprint)
        origins, _ = call.shifts(origin, window.shape)

        def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
            ndimage.generic_filter(
                block,
                function,
                footprint=window,
                output=work,
                mode=mode,
                origin=origins,
                extra_arguments=tuple(extra_arguments),
                extra_keywords=extra_keywords,
            )

        keywords = {
            "function": getattr(function, "__qualname__", repr(type(function))),
            "footprint": window.tolist(),
            "origin": origins,
            "extra": (tuple(extra_arguments), extra_keywords),
        }
        return filter_blocks(call, whole, find_widths(window.shape, origins), keywords)


@collective
def correlate(
    a: Source,
    weights: ArrayLike,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the weighted sum of those around it, as `scipy.ndimage.correlate` does.

    Parameters
    ----------
    a, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.median_filter`; `a` may be complex.
    weights
        Weights of the window, with as many axes as `a`, or as there are `axes`.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`. Integer sums are truncated, as in SciPy.

    Raises
    ------
    UsageError
        As for `outcore.ndimage.median_filter`; also if `weights` have other axes, or are not real.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    See Also
    --------
    outcore.stencil : Any number of steps in one pass, in the dtype of the sums, on all cores.

    Notes
    -----
    The result has the bits of SciPy for every budget. Memory and reads are those of
    `outcore.ndimage.median_filter`, plus one block. Collective with ``comm=``.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.correlate(np.array([1.0, 2.0, 4.0, 8.0]), [1, 0, -1])[...]
    array([-1., -3., -6., -4.])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return _apply_weights("correlate", a, weights, origin, words)


@collective
def convolve(
    a: Source,
    weights: ArrayLike,
    output: Output = None,
    mode: Mode = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: Axes = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Convolve with weights, as `scipy.ndimage.convolve` does.

    Parameters
    ----------
    a, weights, output, mode, cval, origin, axes, out, how
        See `outcore.ndimage.correlate`; weights are applied in reverse order.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    See Also
    --------
    outcore.ndimage.correlate : Errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.convolve(np.array([1.0, 2.0, 4.0, 8.0]), [1, 0, -1])[...]
    array([1., 3., 6., 4.])
    """
    words = FilterArguments(output, mode, cval, axes, out, how)
    return _apply_weights("convolve", a, weights, origin, words)


def _apply_weights(
    name: str, a: Source, weights: ArrayLike, origin: Any, words: FilterArguments
) -> DiskArray:
    ndimage = getattr(needs.scipy("ndimage", name), name)
    with open_inputs(a) as (source,):
        call = Filter(name, source, words)
        own = call.check_real(weights)
        taps = call.spread(own, "weights")
        origins, places = call.shifts(origin, taps.shape, flip=name == "convolve")

        def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
            ndimage(block, taps, output=work, mode=mode, origin=origins)

        keywords = {"weights": own.tolist(), "origin": call.expand(origin, "origin", int)}
        widths = find_widths(taps.shape, places)
        return filter_blocks(call, whole, widths, keywords)
