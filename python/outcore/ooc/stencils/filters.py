"""
Filters of SciPy (`scipy.ndimage`) for arrays on disk.

Problem. An element of the result depends on a window around it, and SciPy wants the whole array.
Idea. Blocks with what is around them (`outcore.ooc.blocks.blockwise`), which is made of elements
inside at the ends of the array, just as SciPy does. Ranks in windows (medians, minima, maxima) are
found by the core, the rest by SciPy's own functions, line by line.

Invariants. Results are SciPy's, whatever the budget: bit for bit, but for `uniform_filter` of floats,
where SciPy's running sums depend on where a line begins.

Reference: PASSION, section 4.3 (reuse of borders), and its median filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.disk import DiskArray
from outcore.jobs import Source, collective, opened
from outcore.ooc import needs
from outcore.ooc.stencils.windows import (
    bad,
    by_blocks,
    by_lines,
    each,
    origins_of,
    ranked,
    sizes_of,
    widths_of,
    window_of,
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


@collective
def median_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the median of the window around it, as `scipy.ndimage.median_filter` does.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array of real numbers.
    size
        Of the window: one number for all axes, or one for each.
    footprint
        Instead of `size`: an array of booleans, true where the window has elements.
    mode
        What lies beyond the ends of all axes: ``"reflect"``, ``"constant"`` (`cval`), ``"nearest"``,
        ``"mirror"`` or ``"wrap"``.
    cval
        The element of ``"constant"``.
    origin
        How far the window lies before the element, along all axes or along each.
    out
        Where the result goes: a path, an open array, or a NumPy array. By default a temporary array
        on disk, which goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and wishes for the new array;
        see `outcore.jobs.complete`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-stencil``: a window, mode or origin that does not fit `a`, or elements without an order.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed, and the window is no box, or has more than 128 elements.
    BudgetError
        Not even the smallest blocks fit; ``needed`` says what would do.

    Notes
    -----
    Of an even number of elements it is the upper one of the two in the middle. Where elements are not
    a number (NaN), which have no order, the result is one of the elements of the window; which one is
    not said, here as in SciPy.

    Memory: two blocks of `a` with what is around them and two of the result, within the budget.
    Elements around blocks are read again only across axes along which blocks are cut, and where the
    mode is ``"wrap"``. Collective with ``comm=``: ranks share the blocks. On all cores.

    PASSION, section 4.3; Batcher, "Sorting networks and their applications", 1968.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.median_filter(np.array([1.0, 9.0, 2.0, 3.0, 8.0]), 3)[...]
    array([1., 2., 3., 3., 8.])
    """
    return ranked(
        "median_filter", a, lambda n: n // 2, size, footprint, mode, cval, origin, out, how
    )


@collective
def rank_filter(
    a: Source,
    rank: int,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by that of a given rank in its window, as `scipy.ndimage.rank_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    rank
        0 is the smallest element of the window, -1 the largest.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: no such rank; and as for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.rank_filter(np.array([1, 9, 2, 3, 8]), -1, size=3)[...]
    array([9, 9, 9, 8, 8])
    """

    def chosen(n: int) -> int:
        found = rank + n if rank < 0 else rank
        if not 0 <= found < n:
            raise bad("rank_filter", f"rank={rank} in a window of {n} elements")
        return found

    said = {"rank": rank}
    return ranked("rank_filter", a, chosen, size, footprint, mode, cval, origin, out, how, said)


@collective
def percentile_filter(
    a: Source,
    percentile: float,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a percentile of its window, as `scipy.ndimage.percentile_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    percentile
        From -100 to 100; -20 is 80.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: no such percentile; and as for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.percentile_filter(np.array([1, 9, 2, 3, 8]), 100, size=3)[...]
    array([9, 9, 9, 8, 8])
    """
    wanted = percentile + 100.0 if percentile < 0 else percentile
    if not 0 <= wanted <= 100:
        raise bad("percentile_filter", f"percentile={percentile}; give a number from -100 to 100")

    def chosen(n: int) -> int:
        return n - 1 if wanted == 100.0 else int(float(n) * wanted / 100.0)

    said = {"percentile": percentile}
    return ranked(
        "percentile_filter", a, chosen, size, footprint, mode, cval, origin, out, how, said
    )


@collective
def minimum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the smallest of its window, as `scipy.ndimage.minimum_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.minimum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([4, 2, 2, 2, 3])
    """
    return ranked("minimum_filter", a, lambda n: 0, size, footprint, mode, cval, origin, out, how)


@collective
def maximum_filter(
    a: Source,
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the largest of its window, as `scipy.ndimage.maximum_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.

    Notes
    -----
    Memory and reads: as for `outcore.median_filter`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.maximum_filter(np.array([4, 9, 2, 3, 8]), 3)[...]
    array([9, 9, 9, 8, 8])
    """
    return ranked(
        "maximum_filter", a, lambda n: n - 1, size, footprint, mode, cval, origin, out, how
    )


@collective
def uniform_filter(
    a: Source,
    size: int | Sequence[int] = 3,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the mean of its window, as `scipy.ndimage.uniform_filter` does.

    Parameters
    ----------
    a, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    size
        Of the window: one number for all axes, or one for each.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`; means of integers are cut off after each axis, as in SciPy.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    Means of floats are sums of as many products, the same wherever blocks are cut; SciPy adds and
    subtracts along each line, so its last digits differ. Memory and reads: as for
    `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.uniform_filter(np.array([0.0, 3.0, 6.0, 9.0]), 3)[...]
    array([1., 3., 6., 8.])
    """
    ndimage = needs.scipy("ndimage", "uniform_filter")
    with opened(a) as (source,):
        sizes = sizes_of("uniform_filter", size, source)
        origins = origins_of("uniform_filter", origin, sizes)
        floats = source.dtype.kind in "fc"

        def line(axis: int) -> Callable[..., Any] | None:
            n, begin = sizes[axis], origins[axis]
            if n == 1:
                return None
            if floats:
                weights = np.full(n, 1.0 / n)
                return lambda x, **w: ndimage.correlate1d(x, weights, axis, origin=begin, **w)
            return lambda x, **w: ndimage.uniform_filter1d(x, n, axis, origin=begin, **w)

        widths = tuple(
            max(n // 2 + o, n - 1 - n // 2 - o) for n, o in zip(sizes, origins, strict=True)
        )
        said = {"size": sizes, "origin": origins}
        lines = [line(axis) for axis in range(source.ndim)]
        return by_lines("uniform_filter", source, lines, widths, mode, cval, said, out, how)


@collective
def gaussian_filter(
    a: Source,
    sigma: float | Sequence[float],
    order: int | Sequence[int] = 0,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | Sequence[int] | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Smooth an array, or differentiate it smoothly, as `scipy.ndimage.gaussian_filter` does.

    Parameters
    ----------
    a, mode, cval, out, how
        As for `outcore.median_filter`; complex numbers too.
    sigma
        Standard deviation, for all axes or for each; along axes where it is 0 nothing is done.
    order
        Of the derivative, for all axes or for each.
    truncate
        The filter ends after so many standard deviations.
    radius
        Instead of `truncate`: elements on either side, for all axes or for each.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        ``bad-stencil``: what does not fit `a`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    The bits are those of SciPy. Memory and reads: as for `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.gaussian_filter(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 0.5, radius=1)[...]
    array([0.        , 0.10650698, 0.78698604, 0.10650698, 0.        ])
    """
    ndimage = needs.scipy("ndimage", "gaussian_filter")
    with opened(a) as (source,):
        ndim = source.ndim
        sigmas = each("gaussian_filter", sigma, ndim, "sigma", float)
        orders = each("gaussian_filter", order, ndim, "order", int)
        radii = each("gaussian_filter", radius, ndim, "radius", int) if radius is not None else None
        if min(sigmas, default=0) < 0 or min(orders, default=0) < 0 or min(radii or (0,)) < 0:
            raise bad("gaussian_filter", "a sigma, order or radius that is negative")
        widths = tuple(
            0 if one <= 1e-15 else radii[k] if radii else int(truncate * one + 0.5)
            for k, one in enumerate(sigmas)
        )

        def line(axis: int) -> Callable[..., Any] | None:
            if sigmas[axis] <= 1e-15:
                return None
            return lambda x, **w: ndimage.gaussian_filter1d(
                x, sigmas[axis], axis, orders[axis], radius=widths[axis], **w
            )

        said = {"sigma": sigmas, "order": orders, "radius": widths}
        lines = [line(axis) for axis in range(ndim)]
        return by_lines("gaussian_filter", source, lines, widths, mode, cval, said, out, how)


@collective
def generic_filter(
    a: Source,
    function: Callable[..., Any],
    size: int | Sequence[int] | None = None,
    footprint: ArrayLike | None = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    extra_arguments: Sequence[Any] = (),
    extra_keywords: dict[str, Any] | None = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by a function of its window, as `scipy.ndimage.generic_filter` does.

    Parameters
    ----------
    a, size, footprint, mode, cval, origin, out, how
        As for `outcore.median_filter`.
    function
        From the elements of a window, as a 1-d array of float64, to a number; or a
        `scipy.LowLevelCallable`.
    extra_arguments, extra_keywords
        For the function.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    Notes
    -----
    The function is called for elements around blocks too, more than once, and on one core; a function
    of whole blocks (`outcore.map_blocks` with ``halo=``) is much faster. Memory and reads: as for
    `outcore.median_filter`, and one block more.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.generic_filter(np.array([1.0, 5.0, 2.0, 8.0]), np.ptp, 3)[...]
    array([4., 4., 6., 6.])
    """
    ndimage = needs.scipy("ndimage", "generic_filter")
    with opened(a) as (source,):
        shape = window_of("generic_filter", size, footprint, source)
        origins = origins_of("generic_filter", origin, shape.shape)

        def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
            ndimage.generic_filter(
                block,
                function,
                footprint=shape,
                output=work,
                mode=mode,
                cval=cval,
                origin=origins,
                extra_arguments=tuple(extra_arguments),
                extra_keywords=extra_keywords,
            )

        said = {
            "function": getattr(function, "__qualname__", repr(type(function))),
            "footprint": shape.tolist(),
            "origin": origins,
            "extra": (tuple(extra_arguments), extra_keywords),
        }
        widths = widths_of(shape.shape, origins)
        return by_blocks("generic_filter", source, whole, widths, mode, cval, said, out, how)


@collective
def correlate(
    a: Source,
    weights: ArrayLike,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the weighted sum of those around it, as `scipy.ndimage.correlate` does.

    Parameters
    ----------
    a, mode, cval, origin, out, how
        As for `outcore.median_filter`; `a` may be complex.
    weights
        Of the window, with as many axes as `a`.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`; sums of integers are cut off, as in SciPy.

    Raises
    ------
    UsageError
        As for `outcore.median_filter`; or `weights` have other axes, or are not real.
    UnsupportedError
        ``needs-scipy``: SciPy is not installed.

    See Also
    --------
    outcore.stencil : Any number of steps in one pass, in the dtype of the sums, on all cores.

    Notes
    -----
    Bit for bit SciPy's result, whatever the budget. Memory and reads: as for `outcore.median_filter`,
    and one block more. Collective with ``comm=``.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.correlate(np.array([1.0, 2.0, 4.0, 8.0]), [1, 0, -1])[...]
    array([-1., -3., -6., -4.])
    """
    return _weighted("correlate", a, weights, mode, cval, origin, out, how)


@collective
def convolve(
    a: Source,
    weights: ArrayLike,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Convolve with weights, as `scipy.ndimage.convolve` does.

    Parameters
    ----------
    a, weights, mode, cval, origin, out, how
        As for `outcore.correlate`; weights are taken from their other end.

    Returns
    -------
    DiskArray
        Of the shape and dtype of `a`.

    See Also
    --------
    outcore.correlate : Errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.convolve(np.array([1.0, 2.0, 4.0, 8.0]), [1, 0, -1])[...]
    array([1., 3., 6., 4.])
    """
    return _weighted("convolve", a, weights, mode, cval, origin, out, how)


def _weighted(
    name: str,
    a: Source,
    weights: ArrayLike,
    mode: str,
    cval: float,
    origin: Any,
    out: Any,
    how: dict[str, Any],
) -> DiskArray:
    call = getattr(needs.scipy("ndimage", name), name)
    with opened(a) as (source,):
        if source.dtype.kind not in "biufc" or source.dtype.char in "egG":
            raise bad(name, f"no sums of elements of dtype {source.dtype}")
        taps = np.asarray(weights)
        if taps.ndim != source.ndim or not taps.size or taps.dtype.kind not in "biuf":
            raise bad(
                name,
                f"weights of shape {taps.shape} and dtype {taps.dtype} for an array with {source.ndim} "
                "axes; give real numbers, with as many axes (outcore.stencil takes complex ones)",
            )
        places = given = each(name, origin, source.ndim, "origin", int)
        if name == "convolve":
            # Seen from the other end.
            places = tuple(-o - (n + 1) % 2 for o, n in zip(given, taps.shape, strict=True))
        widths = widths_of(taps.shape, origins_of(name, places, taps.shape))

        def whole(block: NDArray[Any], work: NDArray[Any], mode: str) -> None:
            call(block, taps, output=work, mode=mode, cval=cval, origin=given)

        said = {"weights": taps.tolist(), "origin": given}
        return by_blocks(name, source, whole, widths, mode, cval, said, out, how)
