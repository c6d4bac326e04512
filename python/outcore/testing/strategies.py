"""
Hypothesis strategies: shapes, dtypes, keys, values, and arrays on disk.

>>> from hypothesis import given
>>> @given(keys((3, 4)))
... def test(key): ...
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

__all__ = [
    "arrays",
    "dtypes",
    "indices",
    "keys",
    "keys_with_arrays",
    "mask",
    "orders",
    "outer_keys",
    "pointwise_keys",
    "shapes",
    "values_for",
]


def shapes(max_dims: int = 4, max_side: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for shapes with 0 to `max_dims` axes, which may be empty."""
    return npst.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=max_side)


def orders() -> st.SearchStrategy[str]:
    """Return a strategy for ``"C"`` and ``"F"``."""
    return st.sampled_from("CF")


def dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Return a strategy for all kinds of dtype in files: both byte orders, text, dates, records."""
    plain = [
        *("?", "i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8"),
        *(">f8", "<c8", ">c16", "S1", "S7", "<U3", ">U2", "V5"),
        *("<M8[s]", ">M8[us]", "<m8[ns]"),
    ]
    record = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3")])
    nested = np.dtype({"names": ["x", "y"], "formats": ["u1", record], "offsets": [2, 8]})
    return st.sampled_from([*map(np.dtype, plain), record, nested])


def keys(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Return a strategy for keys of basic indexing, with ``...``, ``None`` and steps of both signs."""
    return npst.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)


@st.composite
def arrays(draw: st.DrawFn, max_dims: int = 4, max_side: int = 9) -> NDArray[Any]:
    """Draw an array of any shape, dtype and order, with every byte different from its neighbours."""
    shape, dtype, order = draw(shapes(max_dims, max_side)), draw(dtypes()), draw(orders())
    return fill(shape, dtype, order, draw(st.integers(0, 2**16)))


def fill(
    shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C", seed: int = 0
) -> NDArray[Any]:
    """Return an array of pseudo-random elements that are valid for the dtype."""
    random = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=np.int64))
    whole = np.empty(count, dtype)
    _fill(whole, random)
    return np.asarray(whole.reshape(shape, order="C"), order="F" if order == "F" else "C")


def _fill(flat: NDArray[Any], random: np.random.Generator) -> None:
    kind = flat.dtype.kind
    if flat.dtype.names:
        flat.view(np.uint8)[...] = 0
        for name in flat.dtype.names:
            part = np.empty(flat.shape, flat.dtype[name])
            _fill(part, random)
            flat[name] = part
    elif kind == "U":
        letters = random.integers(97, 123, (flat.size, flat.dtype.itemsize // 4))
        flat[...] = ["".join(map(chr, row)) for row in letters]
    elif kind == "S":
        flat.view(np.uint8)[...] = random.integers(97, 123, flat.nbytes)
    elif kind in "fc":
        flat[...] = random.integers(-99, 99, flat.size)
    elif kind == "b":
        flat[...] = random.integers(0, 2, flat.size)
    else:
        flat.view(np.uint8)[...] = random.integers(0, 127, flat.nbytes, dtype=np.uint8)


@st.composite
def values_for(draw: st.DrawFn, shape: tuple[int, ...]) -> NDArray[Any]:
    """Draw an array that broadcasts to `shape`: axes omitted, of length 1, or added in front."""
    sides = [draw(st.sampled_from([n, n, 1])) for n in shape]
    sides = sides[draw(st.integers(0, len(sides))) :] if draw(st.booleans()) else [1, *sides]
    dtype = draw(st.sampled_from(["i1", "u2", ">i4", "i8", "f4", ">f8", "?"]))
    return fill(tuple(sides), np.dtype(dtype), draw(orders()), draw(st.integers(0, 999)))


@st.composite
def keys_with_arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """
    Draw a key of NumPy's advanced indexing: index arrays that broadcast, masks, booleans.

    Masks have one or more axes. The key also has slices of both signs, integers, ``...`` and ``None``.
    Indices may be negative and repeated.
    """
    side = draw(st.sampled_from([0, 1, 1, 2, 3, 5, 8]))
    points = (*draw(st.lists(st.integers(1, 3), max_size=2)), side)
    items: list[Any] = []
    axis, dots, flags = 0, False, 0
    while axis < len(shape):
        left = shape[axis:]
        words = ["list", "list", "list", "mask", "slice", "integer", "new", "dots", "flag"]
        word = draw(st.sampled_from(words))
        if word == "new" and len(items) < 8:
            items.append(None)
        elif word == "flag" and not flags:
            flags += 1
            items.append(draw(st.sampled_from([True, np.array(side > 0)])))
        elif word == "dots" and not dots:
            dots = True
            items.append(...)
            axis += draw(st.integers(0, len(left)))
        elif word == "integer" and left[0]:
            items.append(draw(st.integers(-left[0], left[0] - 1)))
            axis += 1
        elif word == "list" and (left[0] or not side):
            items.append(draw(indices(left[0], _broadcastable(draw, points))))
            axis += 1
        elif word == "mask":
            sides = left[: draw(st.integers(1, len(left)))]
            number = draw(st.sampled_from([side, 1]))
            size = int(np.prod(sides))
            if number <= size:
                items.append(mask(sides, number, draw(st.integers(0, 999))))
                axis += len(sides)
        else:
            items.append(draw(st.slices(left[0])))
            axis += 1
        if not dots and draw(st.integers(0, 9)) == 0:
            break  # select all of the remaining axes
    return tuple(items)


@st.composite
def outer_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw a key of ``oindex``: a list, a mask, a slice or an integer for each axis."""
    items: list[Any] = []
    for n in shape:
        word = draw(st.sampled_from(["list", "list", "mask", "slice", "integer"]))
        if word == "integer" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif word == "list":
            items.append(draw(indices(n, (draw(st.integers(0, 5)) if n else 0,))))
        elif word == "mask":
            items.append(mask((n,), draw(st.integers(0, min(n, 5))), draw(st.integers(0, 999))))
        else:
            items.append(draw(st.slices(n)))
    return tuple(items)


@st.composite
def pointwise_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draw a key of ``vindex``: for each axis a slice, an integer, or a list that broadcasts."""
    side = draw(st.integers(0, 5))
    points = (*draw(st.lists(st.integers(1, 3), max_size=1)), side)
    items: list[Any] = []
    for n in shape:
        word = draw(st.sampled_from(["list", "list", "slice", "integer"]))
        if word == "integer" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif word == "list" and (n or not side):
            items.append(draw(indices(n, _broadcastable(draw, points) if n else points)))
        else:
            items.append(draw(st.slices(n)))
    return tuple(items)


def _broadcastable(draw: st.DrawFn, points: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to `points`, without points if that has none."""
    if not points[-1]:
        return points
    sides = tuple(draw(st.sampled_from([n, n, 1])) for n in points)
    return sides[draw(st.integers(0, len(sides) - 1)) :]


@st.composite
def indices(draw: st.DrawFn, length: int, shape: tuple[int, ...]) -> Any:
    """Draw indices into an axis, of any suitable integer type, as an array or as a list."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    unsigned = draw(st.booleans())
    found = random.integers(0 if unsigned else -length, max(length, 1), shape)
    if not length:
        found = np.zeros(shape, np.int64)
    types = ["u1", "<u2", ">u4", "u8"] if unsigned else ["i1", ">i2", "i4", "i8", "i8", ">i8"]
    fits = [one for one in types if length <= np.iinfo(one).max]
    array = np.asarray(found, draw(st.sampled_from(fits)), order=draw(orders()))  # type: ignore[call-overload]
    if array.size and draw(st.integers(0, 3)) == 0:
        return array.tolist()
    return array[::-1] if array.ndim and draw(st.booleans()) else array


def mask(shape: tuple[int, ...], number: int, seed: int) -> NDArray[np.bool_]:
    """Return an array of booleans with `number` true elements."""
    found = np.zeros(int(np.prod(shape)), np.bool_)
    found[np.random.default_rng(seed).permutation(found.size)[:number]] = True
    return found.reshape(shape)
