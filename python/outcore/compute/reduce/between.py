"""
Quantiles computed from the two elements around them.

Problem. NumPy has thirteen methods that map a number between 0 and 1 to an element, or to a value
between two elements. The number of elements may differ between outputs if NaN is skipped.
Idea. Each method is a position in the order, a real number for each output. The caller finds the
elements before and after it by their ranks; the rest is arithmetic.

Invariants. Positions are computed in float64 for all dtypes, so the result depends only on the
elements.

Reference: R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ELEMENTS", "METHODS", "find_ranks", "interpolate"]

# Parameters of the methods with a formula: `alpha` and `beta` of Hyndman and Fan.
_FORMULAS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
#: Methods whose result is an element, in the dtype of the elements.
ELEMENTS = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
#: Names of the methods of `numpy.quantile`.
METHODS = (
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    *_FORMULAS,
    "linear",
    "lower",
    "higher",
    "midpoint",
    "nearest",
)


def find_ranks(
    counts: NDArray[np.int64], q: NDArray[np.float64], method: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """
    Compute the ranks around each quantile, of shape ``(k, m)``, and the position between them.

    The ``m`` outputs have `counts` elements; ranks begin at 0, also for no elements. A position of
    0 is the lower rank, 1 the higher one. `method` is one of `METHODS`, or ``"median"``: an
    element, or halfway between two.
    """
    n, q = np.maximum(counts, 1).astype(np.float64), q[:, np.newaxis]
    last = n - 1
    if method == "inverted_cdf":
        at = np.maximum(np.ceil(n * q - 1), 0.0)
    elif method == "closest_observation":
        index = n * q - 1 - 0.5
        before = np.floor(index)
        at = np.maximum(before + ~((index == before) & (before % 2 == 1)), 0.0)
    elif method == "averaged_inverted_cdf":
        index = n * q - 1
        at = np.where(index == np.floor(index), index + 0.5, np.ceil(index))
        at = np.where(index < 0, 0.0, at)
    elif method in _FORMULAS:
        alpha, beta = _FORMULAS[method]
        at = n * q + (alpha + q * (1 - alpha - beta)) - 1
    else:
        at = last * q
        if method == "lower":
            at = np.floor(at)
        elif method == "higher":
            at = np.ceil(at)
        elif method == "nearest":
            # Halfway rounds to the even rank.
            at = np.around(at)
        elif method in ("midpoint", "median"):
            at = 0.5 * (np.floor(at) + np.ceil(at))
    at = np.clip(at, 0.0, last)
    low = np.floor(at)
    high = np.minimum(low + 1, last)
    return low.astype(np.int64), high.astype(np.int64), at - low


def interpolate(
    pick: Callable[[NDArray[np.int64]], NDArray[Any]],
    counts: NDArray[np.int64],
    q: NDArray[np.float64],
    method: str,
    to: np.dtype[Any],
) -> NDArray[Any]:
    """Compute quantiles, of shape ``(k, m)``; `pick` returns the elements with given ranks."""
    low, high, part = find_ranks(counts, q, method)
    a = pick(low)
    if method in ELEMENTS:
        return a.astype(to)
    b = pick(high)
    if method == "median":
        with np.errstate(invalid="ignore", over="ignore"):
            both = np.mean(np.stack([a, b]), axis=0)
        middle: NDArray[Any] = np.where(part == 0, a + a.dtype.type(0), both).astype(to)
        return middle
    wide = np.result_type(a, to)
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = b - a
        found = np.where(part >= 0.5, b - apart * (1 - part), a + apart * part)
        # An infinite neighbour affects the result only if its weight is not zero.
        exact: NDArray[Any] = np.where(part == 0, a, found).astype(to)
    return exact
