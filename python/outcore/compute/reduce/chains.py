"""
Choice of kernels for each reduction and dtype.

Problem. NumPy defines for every dtype in which dtype a sum is computed and returned. Kernels exist
for some dtypes only.
Idea. Dtypes without a kernel are converted, part by part, to a dtype that holds all their values.

Reference: NumPy's `numpy.add.reduce`, `numpy.mean`, `numpy.var` and `numpy.nanmean`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore.compute.reduce.kernel import Chain, KernelElements
from outcore.errors import UnsupportedError, UsageError

__all__ = [
    "check_dtype",
    "choose_sum_dtype",
    "make_extremes",
    "make_mask_count",
    "make_moments",
    "make_nonzero_count",
    "make_number_count",
    "make_places",
    "make_product",
    "make_squares",
    "make_sum",
    "make_total",
    "normalize_axes",
]

_F4, _F8 = np.dtype("f4"), np.dtype("f8")
_I4, _I8, _U1, _U8 = np.dtype("i4"), np.dtype("i8"), np.dtype("u1"), np.dtype("u8")
_C8, _C16 = np.dtype("c8"), np.dtype("c16")
# Number of elements whose sum, of integers of half the size, does not overflow.
_EXACT = 2**31


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """
    Return NumPy's ``axis=`` as sorted axes; None means all axes.

    An array without axes has axes 0 and -1.
    """
    if axis is None or (ndim == 0 and not isinstance(axis, tuple | list) and axis in (0, -1)):
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    try:
        wanted = [operator.index(one) for one in given]
    except TypeError:
        raise UsageError(
            f"{name}: axis={axis!r} is not an integer, a tuple of integers, or None; pass one of "
            "these",
            code="bad-axis",
        ) from None
    found = sorted(one % ndim for one in wanted if -ndim <= one < ndim)
    if len(found) < len(wanted) or len(set(found)) < len(found):
        raise UsageError(
            f"{name}: axis={axis!r} does not name different axes of an array with {ndim} axes; give "
            f"integers from {-ndim} to {ndim - 1}, each once",
            code="bad-axis",
        )
    return tuple(found)


def check_dtype(name: str, dtype: np.dtype[Any], kinds: str = "biufc") -> np.dtype[Any]:
    """Return the dtype, in native byte order, of an input; raise if it cannot be reduced."""
    size = 16 if dtype.kind == "c" else 8
    if dtype.kind not in kinds or dtype.itemsize > size:
        raise UnsupportedError(
            f"{name} of {dtype} is not supported; convert it to "
            f"{'float64' if 'f' in kinds else 'integers'} first (outcore.convert)",
            code="bad-dtype",
        )
    return dtype.newbyteorder("=")


def choose_sum_dtype(dtype: np.dtype[Any], wanted: DTypeLike | None) -> np.dtype[Any]:
    """Return the dtype of a sum or a product: small integers become int64 or uint64, as in NumPy."""
    if wanted is not None:
        return check_dtype("a sum", np.dtype(wanted), "iufc")
    if dtype.kind == "b":
        return _I8
    if dtype.kind in "iu" and dtype.itemsize < 8:
        return _U8 if dtype.kind == "u" else _I8
    return dtype


def _cast(x: NDArray[Any], out: NDArray[Any]) -> None:
    np.copyto(out, x, casting="unsafe")


def _convert_elements(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> KernelElements:
    """Return the elements unchanged if they have that dtype, otherwise converted."""
    return KernelElements(wanted, None if dtype == wanted else _cast)


def _without_nan(value: int) -> Any:
    def fill(x: NDArray[Any], out: NDArray[Any]) -> None:
        np.copyto(out, x, casting="unsafe")
        np.copyto(out, value, where=np.isnan(x))

    return fill


def _spread_nan(x: NDArray[Any], out: NDArray[Any]) -> None:
    """Make both parts of a complex number NaN if one of them is."""
    np.copyto(out, x)
    np.copyto(out, complex(np.nan, np.nan), where=np.isnan(x))


def _choose_accumulator(to: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the accumulation for a result of this dtype."""
    small = _C8 if to.kind == "c" else _F4
    if to.kind in "iu":
        return _U8 if to.kind == "u" else _I8
    return small if to.itemsize <= small.itemsize else (_C16 if to.kind == "c" else _F8)


def make_sum(
    dtype: np.dtype[Any], to: np.dtype[Any], lengths: Sequence[int], *, nan: bool = False
) -> Chain:
    """Make the sum for a result of dtype `to`; `nan`: skip NaN."""
    work = _choose_accumulator(to)
    if nan and dtype.kind in "fc":
        if dtype == work and dtype.kind == "f":
            return Chain("nansum", "sum", KernelElements(dtype), lengths)
        return Chain("sum", "sum", KernelElements(work, _without_nan(0)), lengths)
    if to.kind in "iu" and dtype.kind in "biu":
        # Modulo 2**64 the sum is the same whether the sign is considered before or after.
        return Chain("sum", "sum", KernelElements(_U1 if dtype.kind == "b" else dtype), lengths)
    if work == _F8 and dtype in (_F4, _I8, _U8):
        return Chain("sum in float64", "sum", KernelElements(dtype), lengths)
    return Chain("sum", "sum", _convert_elements(dtype, work), lengths)


def make_total(
    dtype: np.dtype[Any], to: np.dtype[Any], lengths: Sequence[int], count: int
) -> Chain:
    """Make the sum for a mean: exact for integers where it cannot overflow."""
    if dtype.kind in "biu" and dtype.itemsize < 8 and count < _EXACT and to == _F8:
        return make_sum(dtype, _I8, lengths)
    return make_sum(dtype, to, lengths)


def make_product(
    dtype: np.dtype[Any], to: np.dtype[Any], lengths: Sequence[int], *, nan: bool = False
) -> Chain:
    """Make the product."""
    work = _choose_accumulator(to)
    names = ("complex prod", "complex prod of products") if to.kind == "c" else ("prod", "prod")
    if nan and dtype.kind in "fc":
        return Chain(*names, KernelElements(work, _without_nan(1)), lengths)
    return Chain(*names, _convert_elements(dtype, work), lengths)


def make_squares(dtype: np.dtype[Any], lengths: Sequence[int]) -> Chain:
    """Make the sum of absolute squares, in float64."""
    if dtype.kind == "c":
        return Chain("squares", "sum", KernelElements(dtype), lengths)
    return Chain(
        "squares", "sum", _convert_elements(dtype, dtype if dtype in (_F4, _F8) else _F8), lengths
    )


def make_moments(dtype: np.dtype[Any], lengths: Sequence[int], *, nan: bool = False) -> Chain:
    """Make the number, mean and sum of squared deviations, in float64."""
    if nan and dtype.kind != "c":
        work = _at_least(dtype, _F4) if dtype.kind == "f" else _F8
        return Chain("nanmoments", "more moments", _convert_elements(dtype, work), lengths)
    if nan and dtype.kind == "c":
        return Chain("nanmoments", "more moments", KernelElements(dtype, _spread_nan), lengths)
    if dtype.kind == "c":
        return Chain("moments", "more moments", KernelElements(dtype), lengths)
    wider: dict[str, np.dtype[Any]] = {
        "b1": _I4,
        "i1": _I4,
        "u1": _I4,
        "i2": _I4,
        "u2": _I4,
        "u4": _I8,
        "u8": _F8,
        "f2": _F4,
    }
    work = wider.get(dtype.str[1:], dtype)
    return Chain("moments", "more moments", _convert_elements(dtype, work), lengths)


def make_mask_count(lengths: Sequence[int]) -> Chain:
    """Count elements for which the last input is true."""

    def fill(x: NDArray[Any], where: NDArray[Any], out: NDArray[Any]) -> None:
        np.copyto(out.view(np.bool_), where)

    return Chain("nonzero", "sum", KernelElements(_U1, fill), lengths)


def _at_least(dtype: np.dtype[Any], least: np.dtype[Any]) -> np.dtype[Any]:
    return least if dtype.itemsize < least.itemsize else dtype


def make_extremes(name: str, dtype: np.dtype[Any], lengths: Sequence[int]) -> Chain:
    """Make ``min``, ``max``, ``nanmin`` or ``nanmax``."""
    if dtype.kind == "c":
        return Chain(f"complex {name}", f"complex {name}", KernelElements(dtype), lengths)
    if dtype.kind != "f":
        name = name.removeprefix("nan")
    work = {"b": _U1, "f": _at_least(dtype, _F4)}.get(dtype.kind, dtype)
    elements = KernelElements(work) if dtype.kind == "b" else _convert_elements(dtype, work)
    return Chain(name, name, elements, lengths)


def make_places(name: str, dtype: np.dtype[Any], lengths: Sequence[int]) -> Chain:
    """
    Make ``argmin``, ``argmax``, ``nanargmin`` or ``nanargmax``: rank and index.

    Complex numbers have both twice.
    """
    if dtype.kind == "c":
        return Chain(f"complex {name}", "more complex places", KernelElements(dtype), lengths)
    if dtype.kind != "f":
        name = name.removeprefix("nan")
    if dtype.kind == "b":
        elements = KernelElements(_U1)
    elif dtype.kind == "f":
        elements = _convert_elements(dtype, _at_least(dtype, _F4))
    elif dtype == _U1 or dtype.itemsize == 8:
        elements = KernelElements(dtype)
    else:
        elements = _convert_elements(dtype, _I8 if dtype.str[1:] == "u4" else _I4)
    return Chain(name, "more places", elements, lengths)


def make_nonzero_count(dtype: np.dtype[Any], lengths: Sequence[int]) -> Chain:
    """Count nonzero elements."""

    def fill(x: NDArray[Any], out: NDArray[Any]) -> None:
        np.not_equal(x, 0, out=out.view(np.bool_))

    if dtype.kind in "biu":
        return Chain("nonzero", "sum", KernelElements(np.dtype(f"u{dtype.itemsize}")), lengths)
    if dtype in (_F4, _F8):
        return Chain("nonzero", "sum", KernelElements(dtype), lengths)
    return Chain("nonzero", "sum", KernelElements(_U1, fill), lengths)


def make_number_count(dtype: np.dtype[Any], lengths: Sequence[int]) -> Chain:
    """Count elements that are not NaN."""
    if dtype.kind == "c":

        def fill(x: NDArray[Any], out: NDArray[Any]) -> None:
            np.logical_not(np.isnan(x), out=out.view(np.bool_))

        return Chain("nonzero", "sum", KernelElements(_U1, fill), lengths)
    return Chain("numbers", "sum", _convert_elements(dtype, _at_least(dtype, _F4)), lengths)
