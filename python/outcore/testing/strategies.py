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

__all__ = ["arrays", "dtypes", "keys", "orders", "shapes", "values_for"]


def shapes(max_dims: int = 4, max_side: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with 0 to `max_dims` axes; axes may be empty."""
    return npst.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=max_side)


def orders() -> st.SearchStrategy[str]:
    """``"C"`` or ``"F"``."""
    return st.sampled_from("CF")


def dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Every kind of dtype that a file can hold: both byte orders, text, dates, records."""
    plain = [
        *("?", "i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", "<f4", ">f4", "<f8"),
        *(">f8", "<c8", ">c16", "S1", "S7", "<U3", ">U2", "V5"),
        *("<M8[s]", ">M8[us]", "<m8[ns]"),
    ]
    record = np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3")])
    nested = np.dtype({"names": ["x", "y"], "formats": ["u1", record], "offsets": [2, 8]})
    return st.sampled_from([*map(np.dtype, plain), record, nested])


def keys(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Keys of basic indexing, with ``...``, ``None`` and steps of both signs."""
    return npst.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)


@st.composite
def arrays(draw: st.DrawFn, max_dims: int = 4, max_side: int = 9) -> NDArray[Any]:
    """Arrays of any shape and dtype, every byte different from its neighbours, in either order."""
    shape, dtype, order = draw(shapes(max_dims, max_side)), draw(dtypes()), draw(orders())
    return filled(shape, dtype, order, draw(st.integers(0, 2**16)))


def filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C", seed: int = 0
) -> NDArray[Any]:
    """An array whose elements are pseudo-random but valid for the dtype."""
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
    """Arrays that broadcast to `shape`: axes dropped, of length 1, or in front."""
    sides = [draw(st.sampled_from([n, n, 1])) for n in shape]
    sides = sides[draw(st.integers(0, len(sides))) :] if draw(st.booleans()) else [1, *sides]
    dtype = draw(st.sampled_from(["i1", "u2", ">i4", "i8", "f4", ">f8", "?"]))
    return filled(tuple(sides), np.dtype(dtype), draw(orders()), draw(st.integers(0, 999)))
