"""Filters on disk against those of SciPy."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

import outcore
from outcore.compute.blocks import blockwise
from outcore.errors import BudgetError, UnsupportedError, UsageError
from outcore.public import find_public

MODES = ("reflect", "constant", "nearest", "mirror", "wrap")


@st.composite
def arrays(draw: st.DrawFn, kinds: str) -> NDArray[Any]:
    ndim = draw(st.integers(1, 4))
    most = (900, 60, 12, 6)[ndim - 1]
    shape = draw(st.tuples(*[st.integers(1, most)] * ndim))
    dtype = draw(st.sampled_from(kinds.split()))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = (rng.random(shape) * 50).astype(dtype)
    return x.copy(order=draw(st.sampled_from("CF")))


@st.composite
def windows(draw: st.DrawFn, ndim: int) -> dict[str, Any]:
    size = draw(st.tuples(*[st.integers(1, (9, 5, 3, 3)[ndim - 1])] * ndim))
    origin = tuple(draw(st.integers(-(n // 2), (n - 1) // 2)) for n in size)
    return {"size": size, "origin": origin, "mode": draw(st.sampled_from(MODES)), "cval": 3.0}


REALS = "f4 f8 >f8 i1 >i2 i4 i8 u1 u2 u4 u8 ?"


def small(call: Any, x: NDArray[Any], tenths: int, *arguments: Any, **words: Any) -> NDArray[Any]:
    """The result with little memory, in small blocks."""
    out = np.empty(x.shape, x.dtype.newbyteorder("="))
    words |= {"out": out, "memory": 1000 + x.nbytes * tenths // 10}
    with mock.patch.object(blockwise, "SMALLEST", 64):
        try:
            found = call(x, *arguments, **words)
        except BudgetError as error:
            found = call(x, *arguments, **{**words, "memory": error.needed or 0})
    assert found is out
    return out


def fits(x: NDArray[Any], words: dict[str, Any]) -> bool:
    """What goes round an axis more than once is refused."""
    pairs = zip(words["size"], x.shape, strict=True)
    if words["mode"] == "mirror" and x.shape == (1,):
        return False  # where SciPy reads memory that does not belong to the array
    return words["mode"] != "wrap" or all(n - 1 <= m for n, m in pairs)


@settings(max_examples=80, deadline=None)
@given(st.data(), arrays(REALS), st.integers(0, 40))
def test_ranks_are_those_of_scipy(data: st.DataObject, x: NDArray[Any], tenths: int) -> None:
    words = data.draw(windows(x.ndim))
    assume(fits(x, words))
    words["cval"] = x.dtype.type(words["cval"])
    n = int(np.prod(words["size"]))
    rank = data.draw(st.integers(-n, n - 1))
    actual = small(outcore.ndimage.rank_filter, x, tenths, rank, **words)
    native = x.astype(x.dtype.newbyteorder("="))
    expected = ndimage.rank_filter(native, rank, **words)
    np.testing.assert_array_equal(expected, actual)
    median = small(outcore.ndimage.median_filter, x, tenths, **words)
    np.testing.assert_array_equal(ndimage.median_filter(native, **words), median)


@settings(max_examples=25, deadline=None)
@given(st.data(), arrays("f4 f8 i4 u1 ?"), st.integers(0, 40))
def test_footprints_minima_and_percentiles(
    data: st.DataObject, x: NDArray[Any], tenths: int
) -> None:
    words = data.draw(windows(x.ndim))
    assume(fits(x, words))
    words["cval"] = x.dtype.type(words["cval"])
    for mine, theirs in (
        (outcore.ndimage.minimum_filter, ndimage.minimum_filter),
        (outcore.ndimage.maximum_filter, ndimage.maximum_filter),
    ):
        np.testing.assert_array_equal(theirs(x, **words), small(mine, x, tenths, **words))
    if x.dtype == bool:
        return
    percentile = data.draw(st.floats(-100, 100))
    np.testing.assert_array_equal(
        ndimage.percentile_filter(x, percentile, **words),
        small(outcore.ndimage.percentile_filter, x, tenths, percentile, **words),
    )
    size = words.pop("size")
    seed = data.draw(st.integers(0, 2**32 - 1))
    footprint = np.random.default_rng(seed).random(size) < 0.5
    footprint.flat[0] = True
    np.testing.assert_array_equal(
        ndimage.median_filter(x, footprint=footprint, **words),
        small(outcore.ndimage.median_filter, x, tenths, footprint=footprint, **words),
    )


@settings(max_examples=50, deadline=None)
@given(st.data(), arrays("f4 f8 >f8 i4 u1 c8 c16"), st.integers(0, 40))
def test_gaussian_filter_has_the_bits_of_scipy(
    data: st.DataObject, x: NDArray[Any], tenths: int
) -> None:
    ndim = x.ndim
    words: dict[str, Any] = {
        "sigma": data.draw(st.tuples(*[st.sampled_from([0, 0.4, 1.1, 2])] * ndim)),
        "order": data.draw(st.tuples(*[st.integers(0, 2)] * ndim)),
        "mode": data.draw(st.sampled_from(MODES)),
        "cval": 3.0,
    }
    words |= data.draw(st.sampled_from([{}, {"truncate": 2.0}, {"radius": 2}]))
    radius = words.get("radius", int(words.get("truncate", 4.0) * max(words["sigma"]) + 0.5))
    assume(words["mode"] != "wrap" or radius <= min(x.shape))
    x = x.astype(x.dtype.newbyteorder("="), order="K") if tenths % 2 else x
    expected = ndimage.gaussian_filter(x.astype(x.dtype.newbyteorder("=")), **words)
    actual = small(outcore.ndimage.gaussian_filter, x, tenths, **words)
    np.testing.assert_array_equal(expected, actual[...])


@settings(max_examples=50, deadline=None)
@given(st.data(), arrays("f4 f8 i4 u1 i8 c16"), st.integers(0, 40))
def test_uniform_filter_is_that_of_scipy_and_the_same_for_every_budget(
    data: st.DataObject, x: NDArray[Any], tenths: int
) -> None:
    words = data.draw(windows(x.ndim))
    assume(fits(x, words))
    actual = small(outcore.ndimage.uniform_filter, x, tenths, **words)
    expected = ndimage.uniform_filter(x, **words)
    if x.dtype.kind in "iu":
        np.testing.assert_array_equal(expected, actual)
    else:
        rtol = 1e-5 if x.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * 50)
    np.testing.assert_array_equal(
        outcore.ndimage.uniform_filter(x, memory="64 MiB", **words)[...], actual
    )


@pytest.mark.parametrize("dtype", ["i8", ">u8"])
@pytest.mark.parametrize("shape", [(90, 30), (3000,), (8, 9, 20)])
def test_means_of_large_integers_are_the_same_for_every_budget(
    shape: tuple[int, ...], dtype: str
) -> None:
    low = 0 if dtype == ">u8" else -(2**62)
    x = np.random.default_rng(0).integers(low, 2**62, shape).astype(dtype)
    expected = outcore.ndimage.uniform_filter(x, 5)[...]
    np.testing.assert_allclose(expected, ndimage.uniform_filter(x.astype(dtype[-2:]), 5), atol=1e5)
    for tenths in (3, 12):
        np.testing.assert_array_equal(expected, small(outcore.ndimage.uniform_filter, x, tenths, 5))
    exact = x // 2**40
    native = exact.astype(dtype[-2:])
    np.testing.assert_array_equal(
        ndimage.uniform_filter(native, 5), outcore.ndimage.uniform_filter(exact, 5)[...]
    )


@settings(max_examples=15, deadline=None)
@given(st.data(), arrays("f4 f8 i4"), st.integers(0, 40))
def test_generic_filter_is_that_of_scipy(data: st.DataObject, x: NDArray[Any], tenths: int) -> None:
    words = data.draw(windows(x.ndim))
    # SciPy reads beside its lines where a window is longer than an axis and begins or ends far outside.
    assume(fits(x, words) and all(n <= 2 * m for n, m in zip(words["size"], x.shape, strict=True)))

    def function(window: NDArray[Any], far: float, scale: float = 1.0) -> float:
        return float(window[0] * scale + window[-1] - far)

    words |= {"extra_arguments": (2.0,), "extra_keywords": {"scale": 3.0}}
    expected = ndimage.generic_filter(x, function, **words)
    actual = small(outcore.ndimage.generic_filter, x, tenths, function, **words)
    np.testing.assert_array_equal(expected, actual[...])


@pytest.mark.parametrize("size", [(3, 3), (5, 5), (2, 64), (12, 12), (1, 1)])
def test_lines_longer_than_what_is_sorted_at_once(size: tuple[int, int]) -> None:
    x = np.random.default_rng(2).random((9, 1300)).astype("f4")
    for a in (x, x.T):
        expected = ndimage.median_filter(a, size)
        np.testing.assert_array_equal(expected, outcore.ndimage.median_filter(a, size)[...])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["b.npy", "b.zarr"])
def test_arrays_on_disk(tmp_path: Path, order: str, name: str) -> None:
    x = np.random.default_rng(2).random((300, 200))
    np.save(tmp_path / "a.npy", x.copy(order=order))
    words: dict[str, Any] = {"order": "C"} if name == "b.npy" else {"chunks": (64, 64)}
    b = outcore.ndimage.median_filter(
        tmp_path / "a.npy", 3, out=tmp_path / name, memory="500 kB", mode="wrap", **words
    )
    np.testing.assert_array_equal(ndimage.median_filter(x, 3, mode="wrap"), b[...])
    b.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", name]


def test_rows_are_read_once(tmp_path: Path) -> None:
    x = np.random.default_rng(2).random((8000, 100))
    np.save(tmp_path / "a.npy", x)
    planned = outcore.ndimage.median_filter(
        tmp_path / "a.npy", 5, out=tmp_path / "b.npy", memory="900 kB", explain=True
    )
    assert planned.report.steps > 4
    assert planned.report.read_bytes == x.nbytes == planned.report.written_bytes
    planned.run().close()


def test_what_is_no_number_is_an_element_of_the_window() -> None:
    x = np.arange(200.0)
    x[50:55] = np.nan
    found = outcore.ndimage.median_filter(x, 3)[...]
    np.testing.assert_array_equal(x[1:48], found[1:48])
    np.testing.assert_array_equal(x[58:-1], found[58:-1])
    assert all(np.isnan(a) or a in x for a in found)


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"size": 0},
        {"size": (3, 3, 3)},
        {"size": 2.5},
        {"footprint": [True]},
        {"footprint": np.zeros((3, 3))},
        {"size": 3, "mode": "edge"},
        {"size": 3, "mode": ("wrap", "nearest", "nearest")},
        {"size": 3, "mode": ("wrap", "nearest"), "axes": 1},
        {"size": 3, "mode": None},
        {"size": 3, "axes": 2},
        {"size": 3, "axes": (0, -2)},
        {"size": 3, "axes": 0.5},
        {"size": (3, 2), "axes": 1},
        {"footprint": np.ones((3, 3)), "axes": 1},
        {"size": 3, "output": "c16"},
        {"size": 3, "output": "f2"},
        {"size": 3, "output": np.empty((3, 4)), "out": np.empty((3, 4))},
        {"size": 3, "origin": 2},
        {"size": 3, "mode": "constant", "cval": 1.5},
        {"size": 3, "mode": "constant", "cval": "x"},
        {"size": 3, "mode": ("wrap", "constant"), "cval": "x"},
    ],
)
def test_what_makes_no_sense_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        outcore.ndimage.median_filter(np.ones((3, 4), int), **words)
    assert error.value.code == "bad-stencil"


def test_a_window_beside_its_element_is_refused_by_every_filter() -> None:
    x, seen = np.ones((3, 4)), []
    needed: dict[str, Any] = {
        **{"weights": np.ones(3), "size": 3, "function": np.sum},
        **{"percentile": 50.0, "rank": 1},
    }
    for name in outcore.ndimage.__all__:
        call = getattr(outcore.ndimage, name)
        asked = inspect.signature(call).parameters if inspect.isfunction(call) else {}
        if "origin" not in asked:
            continue
        words = {word: value for word, value in needed.items() if word in asked}
        if name in ("convolve", "correlate"):
            words["weights"] = np.ones((3, 3))
        for origin in (2, -2):
            with pytest.raises(UsageError, match="away from its element") as error:
                call(x, **words, origin=origin)
            assert error.value.code == "bad-stencil", name
        seen.append(name)
    assert len(seen) == 14


def test_the_element_beyond_the_ends_matters_only_where_it_is_used() -> None:
    x = np.random.default_rng(1).integers(0, 255, (9, 11), np.uint8)
    for cval in (-1, 0.5, 300):
        for name, size in (("median_filter", 3), ("uniform_filter", 3), ("gaussian_filter", 1.0)):
            expected = getattr(ndimage, name)(x, size, mode="mirror", cval=cval)
            found = find_public(name)(x, size, mode="mirror", cval=cval)
            np.testing.assert_array_equal(expected, found[...])
        with pytest.raises(UsageError, match="cval"):
            outcore.ndimage.median_filter(x, 3, mode="constant", cval=cval)


def test_other_refusals() -> None:
    for call in (
        lambda: outcore.ndimage.rank_filter([1, 2], 3, 3),
        lambda: outcore.ndimage.percentile_filter([1, 2], 101, 3),
        lambda: outcore.ndimage.median_filter([1j], 3),
        lambda: outcore.ndimage.gaussian_filter([1.0], -1),
        lambda: outcore.ndimage.gaussian_filter([1.0], 1, order=1.5),
        lambda: outcore.ndimage.uniform_filter(["a"], 3),
        lambda: outcore.ndimage.uniform_filter([1.0], 3, "i4"),
        lambda: outcore.ndimage.uniform_filter([1j], 3, "f8"),
        lambda: outcore.ndimage.median_filter(np.ones(5, "f2"), 3),
        lambda: outcore.ndimage.gaussian_filter(np.ones(5, "g"), 1),
        lambda: outcore.ndimage.correlate1d(np.ones((5, 5)), np.ones((3, 3))),
        lambda: outcore.ndimage.correlate1d(np.ones(5), [1j]),
        lambda: outcore.ndimage.correlate(np.ones(5), [1j]),
        lambda: outcore.ndimage.correlate(np.ones((5, 5)), np.ones(3)),
        lambda: outcore.ndimage.correlate(np.ones((5, 5)), np.ones(3), axes=2),
        lambda: outcore.ndimage.uniform_filter1d(np.ones((5, 5)), 3, axis=None),
        lambda: outcore.ndimage.uniform_filter1d(np.ones((5, 5)), (3, 3)),
        lambda: outcore.ndimage.gaussian_filter1d(np.ones((5, 5)), 1.0, 2),
    ):
        with pytest.raises(UsageError) as error:
            call()
        assert error.value.code == "bad-stencil"


def test_without_scipy_boxes_are_filtered_all_the_same() -> None:
    x = np.array([1.0, 5.0, 2.0])
    with mock.patch.dict(sys.modules, {"scipy": None, "scipy.ndimage": None}):
        np.testing.assert_array_equal([1.0, 2.0, 2.0], outcore.ndimage.median_filter(x, 3)[...])
        with pytest.raises(UnsupportedError) as error:
            outcore.ndimage.gaussian_filter(x, 1)
    assert error.value.code == "needs-scipy"


def test_empty_arrays() -> None:
    assert outcore.ndimage.median_filter(np.ones((0, 5)), 3).shape == (0, 5)
    assert outcore.ndimage.gaussian_filter(np.ones((0, 5)), 3).shape == (0, 5)
