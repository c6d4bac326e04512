"""
Filters along one axis (`scipy.ndimage`) for arrays on disk; some filters of several axes use them.

Idea. A filter of SciPy runs along the lines of a block, on all cores. Elements beyond the ends of the
array are filled in before (`outcore.compute.stencils.windows`).

Invariants. Results are those of SciPy for every budget, bit for bit, except for means of floats, where
SciPy's running sums depend on the start of a line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcore.arrays.disk import DiskArray
from outcore.compute import needs
from outcore.compute.jobs import Source, collective, open_inputs
from outcore.compute.stencils.windows import (
    Filter,
    FilterArguments,
    compute_rank_filter,
    filter_error,
    filter_lines,
    find_widths,
    reverse_origin,
)

__all__ = [
    "convolve1d",
    "correlate1d",
    "filter_gaussian",
    "filter_uniform",
    "gaussian_filter1d",
    "maximum_filter1d",
    "minimum_filter1d",
    "uniform_filter1d",
]

Line = Callable[..., Any]
# Number of elements whose dtype is changed together, in place.
_TOGETHER = 2**13
# Standard deviations up to this have no effect, as in SciPy.
_NOTHING = 1e-15


def _make_mean(call: Filter, size: int, origin: int, axis: int) -> Line:
    """Return the filter that replaces elements of lines by the mean of `size` elements."""
    ndimage = needs.scipy("ndimage", call.name)
    if call.dtype.kind not in "fc" and call.source.dtype.kind in "fc":
        raise call.bad(
            f"output={call.dtype} for {call.source.dtype} would truncate means after each axis; "
            "pass a floating dtype as output=, then convert the result (outcore.convert)"
        )
    if call.dtype.kind in "fc":
        weights = np.full(size, 1.0 / size)
        return lambda x, **words: ndimage.correlate1d(x, weights, axis, origin=origin, **words)
    if call.source.dtype.itemsize < 8 or call.dtype.itemsize < 8:
        return lambda x, **words: ndimage.uniform_filter1d(x, size, axis, origin=origin, **words)
    ones = np.ones(size)

    def line(x: NDArray[Any], *, output: NDArray[Any], **words: Any) -> None:
        # Running sums of 64-bit integers are rounded, and differently where a line begins elsewhere.
        sums = output.view(np.float64)
        ndimage.correlate1d(x, ones, axis, output=sums, origin=origin, **words)
        np.divide(sums, size, out=sums)
        step = max(_TOGETHER * len(sums) // max(sums.size, 1), 1)
        for k in range(0, len(sums), step):
            output[k : k + step] = sums[k : k + step].astype(output.dtype)

    return line


def filter_uniform(
    name: str, a: Source, size: Any, origin: Any, words: FilterArguments
) -> DiskArray:
    """Replace each element by the mean of its window, along one axis after the other."""
    with open_inputs(a) as (source,):
        call = Filter(name, source, words)
        sizes = call.sizes(size)
        origins = call.origins(origin, sizes)
        lines = [
            (axis, _make_mean(call, n, begin, axis))
            for axis, n, begin in zip(call.axes, sizes, origins, strict=True)
            if n > 1 or call.one
        ]
        keywords = {"size": sizes, "origin": origins}
        widths = call.all_axes(find_widths(sizes, origins), 0)
        return filter_lines(call, lines, widths, keywords)


def _make_gaussian(
    call: Filter, sigma: float, order: int, truncate: float, radius: int | None, axis: int
) -> tuple[Line, int]:
    """Return the filter that smooths lines, and its radius."""
    ndimage = needs.scipy("ndimage", call.name)
    if sigma < 0 or order < 0 or (radius is not None and radius < 0):
        raise call.bad("sigma, order or radius is negative; pass numbers of at least 0")
    width = int(truncate * sigma + 0.5) if radius is None else radius
    width = width if sigma > _NOTHING else 0

    def line(x: NDArray[Any], **words: Any) -> Any:
        return ndimage.gaussian_filter1d(x, sigma, axis, order, radius=width, **words)

    return line, width


def filter_gaussian(
    name: str,
    a: Source,
    sigma: Any,
    order: Any,
    truncate: float,
    radius: Any,
    words: FilterArguments,
) -> DiskArray:
    """Smooth an array, or differentiate it smoothly, along one axis after the other."""
    with open_inputs(a) as (source,):
        call = Filter(name, source, words)
        sigmas = call.expand(sigma, "sigma", float)
        orders = call.expand(order, "order", int)
        radii = None if radius is None else call.expand(radius, "radius", int)
        each = zip(call.axes, sigmas, orders, radii or (None,) * len(sigmas), strict=True)
        lines, widths = [], []
        for axis, deviation, derivative, far in each:
            line, width = _make_gaussian(call, deviation, derivative, truncate, far, axis)
            widths.append(width)
            if deviation > _NOTHING:
                lines.append((axis, line))
        keywords = {"sigma": sigmas, "order": orders, "radius": tuple(widths)}
        return filter_lines(call, lines, call.all_axes(widths, 0), keywords)


def _check_axis(name: str, axis: SupportsIndex) -> int:
    try:
        return operator.index(axis)
    except TypeError:
        raise filter_error(name, f"axis={axis!r} is not an integer; pass one axis") from None


@collective
def uniform_filter1d(
    a: Source,
    size: int,
    axis: SupportsIndex = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the mean of its neighbours along an axis: `scipy.ndimage.uniform_filter1d`.

    Parameters
    ----------
    a, output, mode, cval, origin, out, how
        See `outcore.ndimage.median_filter`.
    size
        Number of elements in the mean.
    axis
        Axis to filter.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    See Also
    --------
    outcore.ndimage.uniform_filter : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.uniform_filter1d(np.array([2, 8, 0, 4, 1, 9, 9, 0]), size=3)[...]
    array([4, 3, 4, 1, 4, 6, 6, 3])
    """
    words = FilterArguments(
        output, mode, cval, None, out, how, _check_axis("uniform_filter1d", axis)
    )
    return filter_uniform("uniform_filter1d", a, size, origin, words)


@collective
def gaussian_filter1d(
    a: Source,
    sigma: float,
    axis: SupportsIndex = -1,
    order: int = 0,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | None = None,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Smooth along an axis, or differentiate smoothly, as `scipy.ndimage.gaussian_filter1d` does.

    Parameters
    ----------
    a, sigma, order, output, mode, cval, truncate, radius, out, how
        See `outcore.ndimage.gaussian_filter`.
    axis
        Axis to filter.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    See Also
    --------
    outcore.ndimage.gaussian_filter : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.gaussian_filter1d(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 1)[...]
    array([1.42704095, 2.06782203, 3.        , 3.93217797, 4.57295905])
    """
    words = FilterArguments(
        output, mode, cval, None, out, how, _check_axis("gaussian_filter1d", axis)
    )
    return filter_gaussian("gaussian_filter1d", a, sigma, order, truncate, radius, words)


@collective
def minimum_filter1d(
    a: Source,
    size: int,
    axis: SupportsIndex = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the smallest one around it along an axis: `scipy.ndimage.minimum_filter1d`.

    Parameters
    ----------
    a, output, mode, cval, origin, out, how
        See `outcore.ndimage.median_filter`.
    size
        Number of elements that are compared.
    axis
        Axis to filter.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    See Also
    --------
    outcore.ndimage.minimum_filter : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.minimum_filter1d(np.array([2, 8, 0, 4, 1, 9, 9, 0]), size=3)[...]
    array([2, 0, 0, 0, 1, 1, 0, 0])
    """
    words = FilterArguments(
        output, mode, cval, None, out, how, _check_axis("minimum_filter1d", axis)
    )
    return compute_rank_filter("minimum_filter1d", a, lambda n: 0, size, None, origin, words)


@collective
def maximum_filter1d(
    a: Source,
    size: int,
    axis: SupportsIndex = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the largest one around it along an axis: `scipy.ndimage.maximum_filter1d`.

    Parameters
    ----------
    a, output, mode, cval, origin, out, how
        See `outcore.ndimage.median_filter`.
    size
        Number of elements that are compared.
    axis
        Axis to filter.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`.

    See Also
    --------
    outcore.ndimage.maximum_filter : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.maximum_filter1d(np.array([2, 8, 0, 4, 1, 9, 9, 0]), size=3)[...]
    array([8, 8, 8, 4, 9, 9, 9, 9])
    """
    words = FilterArguments(
        output, mode, cval, None, out, how, _check_axis("maximum_filter1d", axis)
    )
    return compute_rank_filter("maximum_filter1d", a, lambda n: n - 1, size, None, origin, words)


@collective
def correlate1d(
    a: Source,
    weights: ArrayLike,
    axis: SupportsIndex = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Replace each element by the weighted sum of those along an axis: `scipy.ndimage.correlate1d`.

    Parameters
    ----------
    a, output, mode, cval, origin, out, how
        See `outcore.ndimage.correlate`.
    weights
        Weights of the window, with one axis.
    axis
        Axis to filter.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`; integer sums are truncated.

    See Also
    --------
    outcore.ndimage.correlate : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.correlate1d(np.array([2, 8, 0, 4, 1, 9, 9, 0]), weights=[1, 3])[...]
    array([ 8, 26,  8, 12,  7, 28, 36,  9])
    """
    words = FilterArguments(output, mode, cval, None, out, how, _check_axis("correlate1d", axis))
    return _apply_weights("correlate1d", a, weights, origin, words)


@collective
def convolve1d(
    a: Source,
    weights: ArrayLike,
    axis: SupportsIndex = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Convolve along an axis with weights, as `scipy.ndimage.convolve1d` does.

    Parameters
    ----------
    a, weights, axis, output, mode, cval, origin, out, how
        See `outcore.ndimage.correlate1d`; weights are applied in reverse order.

    Returns
    -------
    DiskArray
        Array with the shape of `a`, and its dtype or `output`; integer sums are truncated.

    See Also
    --------
    outcore.ndimage.convolve : Along several axes; errors, memory and notes.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ndimage.convolve1d(np.array([2, 8, 0, 4, 1, 9, 9, 0]), weights=[1, 3])[...]
    array([14, 24,  4, 13, 12, 36, 27,  0])
    """
    words = FilterArguments(output, mode, cval, None, out, how, _check_axis("convolve1d", axis))
    return _apply_weights("convolve1d", a, weights, origin, words)


def _apply_weights(
    name: str, a: Source, weights: ArrayLike, origin: Any, words: FilterArguments
) -> DiskArray:
    ndimage = getattr(needs.scipy("ndimage", name), name)
    with open_inputs(a) as (source,):
        call = Filter(name, source, words)
        own = call.check_real(weights)
        call.spread(own, "weights")
        given = call.expand(origin, "origin", int)
        places = call.origins(
            reverse_origin(given, own.shape) if name == "convolve1d" else given, own.shape
        )
        along = call.axes[0]

        def line(x: NDArray[Any], **more: Any) -> Any:
            return ndimage(x, own, along, origin=given[0], **more)

        keywords = {"weights": own.tolist(), "origin": given}
        widths = call.all_axes(find_widths(own.shape, places), 0)
        return filter_lines(call, [(along, line)], widths, keywords)
