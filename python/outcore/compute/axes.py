"""Axes that callers give as arguments of computations."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from outcore.errors import UsageError

__all__ = ["find_axes", "find_axis"]


def find_axis(name: str, axis: Any, ndim: int) -> int:
    """Return an axis of an array with `ndim` axes, counted from 0."""
    return find_axes(name, (axis,), ndim)[0]


def find_axes(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return one or several different axes of an array with `ndim` axes, counted from 0."""
    given = tuple(axes) if np.iterable(axes) else (axes,)
    try:
        found = tuple(range(ndim)[operator.index(axis)] for axis in given)
    except (IndexError, TypeError):
        found = ()
    if len(set(found)) != len(given):
        what = (
            f"axis {given[0]!r} does" if len(given) == 1 else f"axes {given!r} are repeated or do"
        )
        raise UsageError(
            f"{name}: {what} not exist in an array with {ndim} axes; choose from {-ndim} to {ndim - 1}"
            if ndim
            else f"{name}: the array has no axes; pass an array with at least one axis",
            code="bad-axis",
        )
    return found
