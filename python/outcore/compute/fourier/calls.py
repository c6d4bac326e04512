"""
Arguments of Fourier transforms: a list of transforms along single axes, and NumPy's errors.

Invariants. Transforms are in NumPy's order: from the last axis to the first, and back for real
results. An operation has all arguments of the called function, defaults included, because an
interrupted job is resumed with them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, SupportsIndex

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.compute.axes import find_axis
from outcore.compute.copies.copying import plan_copy
from outcore.compute.fourier.kernels import FourierStage, transform
from outcore.compute.fourier.plan import Transform, plan_transforms
from outcore.compute.jobs import Operation, Result, Source, complete, open_inputs
from outcore.compute.rates import measure_seconds
from outcore.errors import UsageError

__all__ = ["Axes", "Lengths", "Norm", "transform_axes", "transform_axis"]

Norm = Literal["backward", "ortho", "forward"] | None
Lengths = Sequence[SupportsIndex | None] | None
Axes = Sequence[SupportsIndex] | None

_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def transform_axis(
    name: str,
    kind: str,
    a: Source,
    n: SupportsIndex | None,
    axis: SupportsIndex,
    norm: Any,
    out: Any,
    how: dict[str, Any],
    *,
    forward: bool = True,
    conj: bool = False,
) -> DiskArray:
    """
    Run a transform along one axis.

    With `conj`, transform the conjugate in the opposite direction, as `numpy.fft.hfft` does.
    """
    with open_inputs(a) as (source,):
        along = find_axis(name, axis, source.ndim)
        there = source.shape[along]
        length = (
            (2 * (there - 1) if kind == "c2r" else there) if n is None else _to_index(name, "n", n)
        )
        word = _check_norm(name, norm)
        one = Transform(kind, along, length, forward, _SWAPPED[word] if conj else word, conj)
        again = {"n": length, "axis": along, "norm": word}
        return _complete(name, source, [one], again, out, how)


def transform_axes(
    name: str,
    kind: str,
    a: Source,
    s: Lengths,
    axes: Axes,
    norm: Any,
    out: Any,
    how: dict[str, Any],
    *,
    forward: bool = True,
) -> DiskArray:
    """Run transforms along several axes, in NumPy's order."""
    sizes = None if s is None else [-1 if n is None else _to_index(name, "s", n) for n in s]
    with open_inputs(a) as (source,):
        shape, ndim = source.shape, source.ndim
        if axes is None:
            axes = range(-(ndim if sizes is None else len(sizes)), 0)
        found = [find_axis(name, axis, ndim) for axis in axes]
        none_last = s is None or not s or s[-1] is None
        if sizes is None:
            sizes = [-1] * len(found)
        if kind == "c2r" and found and none_last and len(sizes) == len(found):
            sizes[-1] = 2 * (shape[found[-1]] - 1)
        if len(sizes) != len(found):
            raise UsageError(
                f"{name}: s has {len(sizes)} lengths for {len(found)} axes; pass one length per axis",
                code="bad-value",
            )
        sizes = [shape[k] if n == -1 else n for n, k in zip(sizes, found, strict=True)]
        if not found and kind != "c2c":
            raise UsageError(
                f"{name}: axes is empty, but one axis has half of a spectrum; pass at least one axis",
                code="bad-axis",
            )
        word = _check_norm(name, norm)
        # NumPy's order: from the last axis to the first, and back. The last axis may be halved.
        ones = [Transform("c2c", k, n, forward, word) for k, n in zip(found, sizes, strict=True)]
        if kind != "c2c":
            ones[-1] = replace(ones[-1], kind=kind)
        if kind == "r2c":
            ones = [ones[-1], *ones[-2::-1]]
        elif kind == "c2c":
            ones = ones[::-1]
        again = {"s": tuple(sizes), "axes": tuple(found), "norm": word}
        return _complete(name, source, ones, again, out, how)


def _complete(
    name: str,
    source: Any,
    transforms: list[Transform],
    again: dict[str, Any],
    out: Any,
    how: dict[str, Any],
) -> DiskArray:
    """Check the input and run transforms; `again` has the keywords that repeat the call."""
    dtype = source.dtype.newbyteorder("=")
    real = any(one.kind == "r2c" for one in transforms)
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise UsageError(
            f"{name}: {source.path!r} has dtype {source.dtype}, but only numbers of at most "
            "double precision can be transformed; convert it first (outcore.convert with dtype=)",
            code="bad-dtype",
        )
    if real and dtype.kind == "c":
        raise UsageError(
            f"{name}: {source.path!r} is complex ({source.dtype}), but {name} needs real input; "
            f"call {name.replace('rfft', 'fft').replace('ihfft', 'ifft')} instead",
            code="bad-dtype",
        )
    for one in transforms:
        if one.length < 1:
            raise UsageError(
                f"{name}: invalid number of points ({one.length}) along axis {one.axis}; pass at "
                "least 1",
                code="bad-value",
            )
    single = dtype.kind in "fc" and dtype.itemsize <= (4 if dtype.kind == "f" else 8)
    between: np.dtype[Any] = np.dtype("c8" if single else "c16")
    shape = list(source.shape)
    for one in transforms:
        shape[one.axis] = one.output_length
    made = between
    if transforms and transforms[-1].kind == "c2r":
        made = np.dtype("f4" if single else "f8")
    if not transforms:
        made = source.dtype
    result = Result(tuple(shape), made, source=source.path)
    if transforms:
        dtypes = (source.dtype, between, made)
        plan = plan_transforms(name, source.shape, dtypes, transforms, _measure_rate())
    else:
        plan = plan_copy(name, source.shape, (source.dtype, made))
    operation = Operation(name, (source,), (result,), plan, again)
    return complete(operation, out, how)  # type: ignore[no-any-return]


def _to_index(name: str, argument: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(
            f"{name}: {argument}={value!r} is not an integer; pass an integer", code="bad-value"
        ) from None


def _check_norm(name: str, norm: Any) -> str:
    if norm is None:
        return "backward"
    if norm not in _SWAPPED:
        raise UsageError(
            f'{name}: invalid norm {norm!r}; use "backward", "ortho" or "forward"',
            code="bad-value",
        )
    return str(norm)


@cache
def _measure_rate() -> float:
    """Measure the floating-point operations per second of one processor, for predictions."""
    block = np.ones((64, 1024), "c8")
    stages = (FourierStage("c2c", 1, 1024),)
    seconds = measure_seconds(lambda: transform([block], stages, (0, 0), 1), 2)
    return 5 * block.size * 10 / seconds
