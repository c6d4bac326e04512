"""
Quantiles out of the elements that they lie between.

Problem. NumPy knows thirteen ways from a number between 0 and 1 to an element, or to something between
two. How many elements there are may differ between outputs, where what is not a number does not count.
Idea. Each way is a place in the order, a real number for each output; the elements before and behind it
are found by their ranks, whoever knows them, and the rest is arithmetic.

Invariants. Places are found in float64, whatever the elements: the result depends on the elements alone.

Reference: R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ELEMENTS", "METHODS", "between", "places"]

# Of the methods with a formula: its two parameters, `alpha` and `beta` of Hyndman and Fan.
_FORMULAS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
#: Methods that give an element, and with it its dtype.
ELEMENTS = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
#: Names that `numpy.quantile` knows.
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


def places(
    counts: NDArray[np.int64], q: NDArray[np.float64], method: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """
    Between which ranks quantiles lie, and where.

    Parameters
    ----------
    counts
        Elements of each output, of shape ``(m,)``; of nothing the rank is 0.
    q
        Quantiles, of shape ``(k,)``.
    method
        One of `METHODS`, or ``"median"``: half way between two, or on one.

    Returns
    -------
    low, high : numpy.ndarray
        Ranks from 0, of shape ``(k, m)``.
    part : numpy.ndarray
        How far it is from the first to the second: from 0 to 1.
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
            # Half way to the even rank.
            at = np.around(at)
        elif method in ("midpoint", "median"):
            at = 0.5 * (np.floor(at) + np.ceil(at))
    at = np.clip(at, 0.0, last)
    low = np.floor(at)
    high = np.minimum(low + 1, last)
    return low.astype(np.int64), high.astype(np.int64), at - low


def between(
    pick: Callable[[NDArray[np.int64]], NDArray[Any]],
    counts: NDArray[np.int64],
    q: NDArray[np.float64],
    method: str,
    to: np.dtype[Any],
) -> NDArray[Any]:
    """
    Quantiles, of shape ``(k, m)``.

    Parameters
    ----------
    pick
        From ranks of shape ``(k, m)`` to the elements that have them.
    counts, q, method
        As of `places`.
    to
        Dtype of the result.
    """
    low, high, part = places(counts, q, method)
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
        # An infinite neighbour counts only if it takes part.
        exact: NDArray[Any] = np.where(part == 0, a, found).astype(to)
    return exact
