"""
Sums of products whose bits depend only on the products.

Problem. Floating-point sums depend on the order of addition, and a division of elements over ranks is an
order. A fixed order would require moving the elements. Approach. Each product is cut at the same places,
with a power of two. If it is large enough, all parts above a cut are multiples of one unit, and few
enough, so their sum is exact in any order. The parts below a cut go to the next one. Only the sums of
the few cuts are rounded, when they are put together.

Invariants. With ``count`` products below ``2**top``, a cut at ``2**(top + L)``, ``L = log2(count) + 1``,
leaves sums below ``2**(p - 1)`` units for a type of ``p`` bits. There are enough cuts for 80 bits below
the largest product; smaller parts are lost, so the error is far below that of an ordinary sum. Values
that are not finite are counted instead: NaN, or infinities of both signs, give NaN.

Reference: Rump, Ogita, Oishi, *Accurate Floating-Point Summation*, part I (2008), algorithm 3.3
(extraction); Demmel, Nguyen, *Fast Reproducible Floating-Point Summation* (2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "Looked",
    "combine_sums",
    "count_components",
    "iterate_blocks",
    "measure_products",
    "sum_above_cuts",
]

#: Number of elements whose products are in memory at one time.
BLOCK = 1 << 15
# Number of bits below the largest product that are summed.
_BITS = 80
_NAN, _PLUS, _MINUS = 1, 2, 4
# Exponent if there is no product: less than that of any product.
NONE = -(2**40)

#: Of one component of a sum: an exponent above all products, and flags of values that are not finite.
Looked = tuple[int, int]
Values = NDArray[Any]


def count_components(dtype: np.dtype[Any]) -> int:
    """Return the number of sums for a dtype: two for complex numbers, otherwise one."""
    return 2 if dtype.kind == "c" else 1


def _multiply_terms(x: Values, y: Values) -> list[list[Values]]:
    """
    Return the products of a block for each component, computed in real numbers.

    NumPy always multiplies real numbers in the same way.
    """
    if x.dtype.kind == "c":
        a, b, c, d = x.real, x.imag, y.real, y.imag
        return [[a * c, -(b * d)], [a * d, b * c]]
    return [[x * y]]


def iterate_blocks(x: Values, y: Values, dtype: np.dtype[Any]) -> Iterator[tuple[Values, Values]]:
    """Yield the factors in blocks, cast to `dtype`."""
    for low in range(0, x.size, BLOCK):
        yield (
            x.flat[low : low + BLOCK].astype(dtype, copy=False),
            y.flat[low : low + BLOCK].astype(dtype, copy=False),
        )


def measure_products(x: Values, y: Values, dtype: np.dtype[Any]) -> list[Looked]:
    """
    Return, for each component of the products, an exponent above all finite ones, and flags.

    The flags mark values that are not finite. `dtype` is that of the products: float64, longdouble or
    the complex type of one of them.

    Examples
    --------
    >>> measure_products(np.array([3.0]), np.array([2.0]), np.dtype("f8"))
    [(3, 0)]
    """
    found = [[NONE, 0] for _ in range(count_components(dtype))]
    for a, b in iterate_blocks(x, y, dtype):
        with np.errstate(all="ignore"):
            for seen, terms in zip(found, _multiply_terms(a, b), strict=True):
                for term in terms:
                    finite = np.isfinite(term)
                    if not finite.all():
                        odd = term[~finite]
                        seen[1] |= _NAN * bool(np.isnan(odd).any())
                        seen[1] |= _PLUS * bool((odd == np.inf).any())
                        seen[1] |= _MINUS * bool((odd == -np.inf).any())
                    largest = np.abs(term[finite]).max(initial=0)
                    if largest:
                        seen[0] = max(seen[0], int(np.frexp(largest)[1]))
    return [(top, flags) for top, flags in found]


def _find_cuts(top: int, count: int, dtype: np.dtype[Any]) -> tuple[int, list[int]]:
    """Return the exponent by which products are scaled down, and the exponents of the cuts."""
    info = np.finfo(dtype)
    bits = int(info.nmant) + 1
    spread = max(count, 1).bit_length() + 1
    shift = max(0, top + spread - int(info.maxexp) + 8)
    cuts, top = [], top - shift
    for _ in range(-(-_BITS // (bits - spread))):
        cuts.append(top + spread)
        # The remainder below a cut is at most half a unit.
        top = top + spread - bits
    return shift, cuts


def sum_above_cuts(
    x: Values, y: Values, dtype: np.dtype[Any], looked: list[Looked], count: int
) -> list[Values]:
    """
    Sum the products of this rank above each cut, exactly; return the sums for each component.

    `looked` has the largest exponents of all ranks, and `count` is the number of products of all ranks,
    at most 2**44.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> [float(sums.sum()) for sums in sum_above_cuts(x, x, np.dtype("f8"), [(4, 0)], 3)]
    [14.0]
    """
    real = np.zeros(0, dtype).real.dtype
    plans = [
        _find_cuts(top, count * count_components(dtype), real) if top > NONE else None
        for top, _ in looked
    ]
    sums = [np.zeros(0 if plan is None else len(plan[1]), real) for plan in plans]
    for a, b in iterate_blocks(x, y, dtype):
        with np.errstate(all="ignore"):
            for plan, added, terms in zip(plans, sums, _multiply_terms(a, b), strict=True):
                if plan is None:
                    continue
                shift, cuts = plan
                for term in terms:
                    rest = np.where(np.isfinite(term), term, 0)
                    rest = np.ldexp(rest, -shift) if shift else rest
                    for k, cut in enumerate(cuts):
                        sigma = np.ldexp(real.type(1), cut)
                        if not sigma:
                            break  # below the smallest number, so the remainder is 0
                        above = (rest + sigma) - sigma
                        added[k] += above.sum()
                        rest = rest - above
    return sums


def combine_sums(
    sums: list[list[Values]], dtype: np.dtype[Any], looked: list[Looked], count: int
) -> Any:
    """
    Combine the sums that `sum_above_cuts` returned on all ranks.

    The result has the same bits on all ranks and for any number of ranks.

    Examples
    --------
    >>> x = np.array([0.1, 0.2])
    >>> f8, looked = np.dtype("f8"), measure_products(x, x, np.dtype("f8"))
    >>> parts = [sum_above_cuts(some, some, f8, looked, 2) for some in (x[:1], x[1:])]
    >>> float(combine_sums(parts, f8, looked, 2))
    0.05000000000000001
    """
    real = np.zeros(0, dtype).real.dtype
    parts = []
    for k, (top, flags) in enumerate(looked):
        value = real.type(0)
        with np.errstate(all="ignore"):
            if flags & _NAN or flags & (_PLUS | _MINUS) == _PLUS | _MINUS:
                value = real.type(np.nan)
            elif flags:
                value = real.type(np.inf if flags & _PLUS else -np.inf)
            elif top > NONE:
                shift, cuts = _find_cuts(top, count * count_components(dtype), real)
                whole = np.zeros(len(cuts), real)
                for one in sums:
                    whole += one[k]
                for part in whole[::-1]:
                    value = value + part
                value = np.ldexp(value, shift)
        parts.append(value)
    made = np.empty((), dtype)
    made.real = parts[0]
    if len(parts) > 1:
        made.imag = parts[1]
    return made[()]
