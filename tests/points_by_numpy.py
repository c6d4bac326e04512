"""
What `_core.Array.read_points` and its like do, by NumPy: to compare with, and where the core has none.

The whole array is read, changed in memory, and written back. All that the core may rely on is checked:
lists of int64 in C order, ascending axes, memory of the right shape and dtype, results whose elements do
not share memory.
"""

from __future__ import annotations

import math

import numpy as np

from outcore import _core
from outcore.errors import SectionError


def _chosen(array, axes, lists, mode, rest, data):
    """The whole array, and the key of the points in it with the axes of points in front."""
    whole, path = np.asarray(array.read(...)), array.explain(...)["path"]
    shape, ndim = whole.shape, whole.ndim
    assert list(axes) == sorted(set(axes)) and all(0 <= d < ndim for d in axes) and axes
    assert len(lists) == (1 if mode == "flat" else len(axes))
    for one in lists:
        assert type(one) is np.ndarray and one.dtype == np.int64 and one.dtype.isnative
        assert one.ndim == 1 and one.flags.c_contiguous and one.flags.aligned
    assert len(rest) == 3 * ndim and all(type(word) is int for word in rest)
    others = [d for d in range(ndim) if d not in axes]
    lengths = [math.prod(shape[d] for d in axes)] if mode == "flat" else [shape[d] for d in axes]
    checked = []
    for axis, one, length in zip(axes, lists, lengths, strict=False):
        for position, value in enumerate(one.tolist()):
            if not -length <= value < length:
                raise SectionError(
                    f"index {value} at position {position} of the list of axis {axis}",
                    code="index-out-of-bounds",
                    path=path,
                )
        checked.append(one % max(length, 1))
    if mode == "flat":
        checked = list(np.unravel_index(checked[0], [shape[d] for d in axes]))
    elif mode == "outer":
        checked = [one.reshape(-1) for one in np.meshgrid(*checked, indexing="ij")]
    else:
        assert mode == "points" and len({one.size for one in checked}) == 1
    sections = []
    for d in others:
        start, count, step = rest[3 * d : 3 * d + 3]
        assert step >= 1 and start >= 0 and (not count or start + (count - 1) * step < shape[d])
        sections.append(slice(start, start + count * step, step))
    view = whole.transpose([*axes, *others])
    if data is not None:
        counts = [rest[3 * d + 1] for d in others]
        assert data.shape == (checked[0].size, *counts) and data.dtype == whole.dtype
    # Integer arrays in front, slices behind: NumPy's rule leaves them there.
    return whole, view, (*checked, *sections)


def _apart(out):
    """Whether no two elements share memory."""
    places = np.zeros(out.shape, np.int64)
    for axis, (length, stride) in enumerate(zip(out.shape, out.strides, strict=True)):
        places += (np.arange(length) * stride).reshape(-1, *(1,) * (out.ndim - 1 - axis))
    places = np.unique(places)
    return places.size == out.size and not (np.diff(places) < out.itemsize).any()


def read_points(self, axes, lists, mode, rest, out):
    _, view, key = _chosen(self, axes, lists, mode, rest, out)
    assert out.flags.writeable and _apart(out)
    out[...] = view[key]


def write_points(self, axes, lists, mode, rest, value):
    whole, view, key = _chosen(self, axes, lists, mode, rest, value)
    assert view.base is whole or np.shares_memory(view, whole) or not whole.size
    view[key] = value
    self.write(..., whole)


def explain_points(self, axes, lists, mode, rest, write):
    _, view, key = _chosen(self, axes, lists, mode, rest, None)
    told = self.explain(..., write)
    return told | {"useful_bytes": view[key].nbytes}


def install(patch):
    """Give the core what it does not have; `patch` is a `pytest.MonkeyPatch`."""
    for function in (read_points, write_points, explain_points):
        if not hasattr(_core.Array, function.__name__):
            patch.setattr(_core.Array, function.__name__, function, raising=False)
