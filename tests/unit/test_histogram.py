"""Histograms, counts, and quantiles: NumPy's, however little memory there is."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reductions import FORMATS, content, stored

import outcore
from outcore.compute.reduce import between
from outcore.public import find_public

DTYPES = ["i1", "u2", "i4", "u8", "f2", "f4", "f8", ">f8", ">i4", "?"]
METHODS = ["linear", "lower", "higher", "nearest", "midpoint"]


@settings(max_examples=40)
@given(
    st.sampled_from([(7,), (1031,), (30, 41), (4, 5, 6)]),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from([1, 10, 57, "edges", "rising"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_histograms_are_numpys(tmp_path_factory, shape, dtype, source, bins, within, density, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype, rng)
    native = data.astype("u1" if dtype == "?" else data.dtype.newbyteorder("="))
    given_bins = {"edges": [-1.0, 0.0, 0.5, 3.0], "rising": np.arange(-3, 4)}.get(bins, bins)
    span = (0.0, 2.5) if within else None
    expected, edges = np.histogram(native, given_bins, span, density)
    with stored(folder, data, source, rng) as a:
        found, ours = outcore.histogram(a, given_bins, span, density, memory="2 MiB")
    np.testing.assert_array_equal(edges, ours)
    assert (edges.dtype, expected.dtype) == (ours.dtype, found.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-15 if density else 0)


def test_edges_that_are_none():
    for words in ({"bins": 0}, {"bins": [2, 1]}, {"bins": "auto"}, {"range": (2, 1)}):
        with pytest.raises(outcore.errors.UsageError, match="bins"):
            outcore.histogram(np.arange(3.0), **words)
    with pytest.raises(outcore.errors.UsageError, match="finite"):
        outcore.histogram(np.array([1.0, np.nan]))
    counts, _ = outcore.histogram(np.array([1.0, np.nan]), range=(0, 2))
    assert counts.sum() == 1
    np.testing.assert_array_equal(np.histogram([], 3)[0], outcore.histogram(np.zeros(0), 3)[0])


def test_each_byte_is_read_once_with_a_range(tmp_path):
    data = np.random.default_rng(1).standard_normal((256, 8192))
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        planned = outcore.histogram(a, 100, (-4, 4), memory="4 MiB", explain=True)
        assert planned.report.read_bytes == a.nbytes and planned.report.steps > 4
        np.testing.assert_array_equal(np.histogram(data, 100, (-4, 4))[0], planned.run()[0])
        assert planned.report.measured.read_bytes <= 1.1 * a.nbytes
        assert planned.report.measured.peak_bytes <= 4 * 2**20


@pytest.mark.parametrize("dtype", ["u1", "i4", ">i8", "u8", "?"])
def test_counts_of_values_are_numpys(tmp_path, dtype):
    data = content((30_000,), dtype, np.random.default_rng(2))
    data = np.abs(data) if data.dtype.kind == "i" else data
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for least in (0, 500, 20_000):
            expected = np.bincount(data.astype("i8"), minlength=least)
            np.testing.assert_array_equal(
                expected, outcore.bincount(a, minlength=least, memory="3 MiB")
            )
        for words in ({}, {"overwrite": True}):
            with outcore.bincount(a, out=tmp_path / "b.npy", **words) as b:
                np.testing.assert_array_equal(np.bincount(data.astype("i8")), b[...])
        with outcore.bincount(a, out=tmp_path / "c.npy", resume=True) as b:
            np.testing.assert_array_equal(np.bincount(data.astype("i8")), b[...])
    assert outcore.bincount(np.zeros(0, int), minlength=3).tolist() == [0, 0, 0]
    for wrong in (np.array([1, -1]), np.zeros((2, 2), int), np.ones(3)):
        with pytest.raises((outcore.errors.UsageError, outcore.errors.UnsupportedError)):
            outcore.bincount(wrong)


@pytest.mark.parametrize("length", [7, 8, 9, (2, 4)])
def test_counts_of_values_fill_open_arrays_of_their_length_only(tmp_path, length):
    data = np.arange(20_000) % 8
    with (
        outcore.create(tmp_path / "a.npy", data=data) as a,
        outcore.create(tmp_path / "b.npy", data=np.full(length, -1)) as b,
    ):
        fits = length == 8
        with pytest.raises(outcore.BudgetError if fits else outcore.OutcoreError) as refusal:
            outcore.bincount(a, out=b, memory=1)
        enough = getattr(refusal.value, "needed", None) or "3 MiB"
        if fits:
            outcore.bincount(a, out=b, memory=enough)
        else:
            with pytest.raises(outcore.errors.UsageError, match="has shape") as refusal:
                outcore.bincount(a, out=b, memory=enough)
            assert refusal.value.code == "out-mismatch"
        np.testing.assert_array_equal(b[...], np.full(length, 2500 if fits else -1))


WEIGHTS = ["i1", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16"]


@settings(max_examples=40)
@given(
    st.sampled_from([(7,), (0,), (30_011,), (30, 41), (4, 5, 6)]),
    st.sampled_from(["i2", "f4", ">f8", "?"]),
    st.sampled_from(WEIGHTS),
    st.sampled_from(FORMATS),
    st.sampled_from(FORMATS),
    st.sampled_from([1, 10, "edges"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_weighted_histograms_are_numpys(
    tmp_path_factory, shape, dtype, of, source, other, bins, density, seed
):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype, rng)
    weights = rng.integers(0, 3, shape).astype(of)  # of which no sum is rounded, nor one wraps
    if of == "i1":
        weights = weights // 2 * (rng.random(shape) < 0.001)
        weights = weights.astype(of)
    native = data.astype("u1" if dtype == "?" else data.dtype.newbyteorder("="))
    given_bins = {"edges": [-1.0, 0.0, 0.5, 3.0]}.get(bins, bins)
    with np.errstate(invalid="ignore"):
        # NumPy adds half precision in half precision, until nothing changes any more.
        wide = weights.astype("f4") if of == "f2" else weights
        expected, edges = np.histogram(native, given_bins, None, density, wide)
        with (
            stored(folder, data, source, rng) as a,
            stored(tmp_path_factory.mktemp("w"), weights, other, rng) as w,
        ):
            found, ours = outcore.histogram(a, given_bins, None, density, w, memory="6 MiB")
    np.testing.assert_array_equal(edges, ours)
    assert found.dtype == (np.result_type("f8", of) if density else np.dtype(of).newbyteorder("="))
    np.testing.assert_allclose(found, expected, rtol=1e-3 if of == "f2" else 1e-6)


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", ">f8"])
@pytest.mark.parametrize("largest", [50, 20_000])
def test_sums_of_weights_have_numpys_bits(tmp_path, dtype, largest):
    rng = np.random.default_rng(3)
    data = rng.integers(0, largest, 200_000, "u2")
    weights = (rng.standard_normal(data.shape) * 1000).astype(dtype)
    expected = np.bincount(data, weights)
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for name in ("w.npy", "w.zarr"):
            with outcore.create(tmp_path / name, data=weights) as w:
                found = outcore.bincount(a, w, memory="3 MiB")
                assert found.dtype == np.float64 and found.tobytes() == expected.tobytes()
                planned = outcore.bincount(a, w, largest + 7, memory="3 MiB", explain=True)
                assert planned.report.read_bytes == a.nbytes + w.nbytes
                np.testing.assert_array_equal(
                    np.bincount(data, weights, largest + 7), planned.run()
                )
        with outcore.bincount(a, weights, out=tmp_path / "b.npy") as b:
            np.testing.assert_array_equal(expected, b[...])
    empty = np.zeros(0, int)
    assert outcore.bincount(empty, empty, 2).dtype == np.bincount(empty, empty, 2).dtype


def test_weights_that_are_none():
    for name in ("histogram", "bincount"):
        for wrong in (np.ones(2), np.ones((3, 1)), 2.0):
            with pytest.raises(outcore.errors.UsageError, match="weights") as refused:
                find_public(name)(np.arange(3), weights=wrong)
            assert refused.value.code == "bad-shape"
        with pytest.raises(outcore.errors.UnsupportedError, match="weights"):
            find_public(name)(np.arange(3), weights=np.ones(3, "g"))
    with pytest.raises(outcore.errors.UnsupportedError, match="weights"):
        outcore.bincount(np.arange(3), weights=np.ones(3, complex))
    with pytest.raises(outcore.errors.UnsupportedError, match="weights"):
        outcore.histogram(np.arange(3), weights=np.ones(3, bool))


@settings(max_examples=60)
@given(
    st.sampled_from([(1,), (1031,), (3, 5000), (900, 3), (64, 3, 17), (5, 2100)]),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(METHODS),
    st.sampled_from([0.5, 0, 1, [0.25, 0.1, 0.999], [[0.3], [0.7]]]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_quantiles_are_numpys(tmp_path_factory, shape, dtype, source, method, q, little, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype, rng)
    if data.dtype.kind == "f" and rng.random() < 0.2:
        data.reshape(-1)[-1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    native = data.astype(data.dtype.newbyteorder("="))
    if dtype == "?" and method not in between.ELEMENTS:
        refused(np.quantile, native, q, method=method)
        return
    # NumPy's differences of int8 overflow.
    wide = native.astype("i2") if dtype == "i1" else native
    axis = None if rng.random() < 0.5 else int(rng.integers(len(shape)))
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = np.asarray(np.quantile(native, q, axis, method=method)).dtype
        expected = np.asarray(np.quantile(wide, q, axis, method=method)).astype(told)
        if native.dtype.kind == "f" and (method == "linear" or native.size == 1):
            # NumPy makes NaN of an infinite neighbour that takes no part.
            low, high = (np.quantile(wide, q, axis, method=m) for m in ("lower", "higher"))
            expected = np.where(np.isnan(expected) & (low == high), low, expected).astype(told)
        with stored(folder, data, source, rng) as a:
            # Below the first, an axis has to be so short.
            memory = "1500 KiB" if little else "16 MiB"
            found = np.asarray(outcore.quantile(a, q, axis, method=method, memory=memory))
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
    # NumPy looks for the place between two elements in their own precision.
    loss = {"f2": 2e-2, "f4": 1e-4}.get(native.dtype.str[1:], 1e-13)
    np.testing.assert_allclose(found, expected, rtol=loss, atol=loss)


def refused(function, *args, **words):
    """By NumPy, too, but for the ends: between two truth values there is nothing."""
    where = args[1] if len(args) > 1 else words.get("q", 0.5)
    if not np.isin(where, (0, 1)).all():
        with pytest.raises(TypeError, match="boolean subtract"):
            function(*args, **words)
    with pytest.raises(outcore.errors.UnsupportedError, match="which booleans do not") as told:
        find_public(function.__name__)(*args, **words)
    assert told.value.code == "bad-dtype"


@settings(max_examples=40)
@given(
    st.sampled_from([(60_001,), (300, 211), (2, 40_000), (30_000, 3)]),
    st.sampled_from(["f8", "f4", "i4", "u8", "i8", ">f8"]),
    st.sampled_from(METHODS),
    st.integers(0, 2**32),
)
def test_ranks_are_found_by_counting(tmp_path_factory, shape, dtype, method, seed):
    """Axes that do not fit: passes that count, then one that collects."""
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = (rng.standard_normal(shape) * 10 ** rng.uniform(0, 5)).astype(dtype)
    if rng.random() < 0.3:
        data[...] = rng.choice(data.reshape(-1)[:3], shape)
    native = data.astype(data.dtype.newbyteorder("="))
    axis = int(np.argmax(shape)) if rng.random() < 0.4 else None
    q = rng.random(2)
    with outcore.create(f"{folder}/a.npy", data=data, order=rng.choice(["C", "F"])) as a:
        found = outcore.quantile(a, q, axis, method=method, memory="1500 KiB")
    expected = np.quantile(native, q, axis, method=method)
    assert expected.shape == found.shape
    near = 1e-13
    if dtype == "f4":
        # Between elements only; NumPy takes q as float32, and with it other ranks.
        ranks = np.sort(native, axis=axis)
        near = float(
            np.max(np.abs(np.diff(ranks.reshape(-1) if axis is None else ranks, axis=axis or 0)))
        )
        np.testing.assert_allclose(found, expected, atol=3 * near, rtol=1e-5)
    else:
        np.testing.assert_allclose(found, expected, rtol=near)


def test_medians_and_percentiles():
    data = np.random.default_rng(5).standard_normal((50, 7)).astype("f4")
    for axis in (None, 0, (0, 1), -1):
        np.testing.assert_array_equal(np.median(data, axis), outcore.median(data, axis))
    expected = np.percentile(data, [5, 50, 95], 0, keepdims=True)
    np.testing.assert_allclose(
        outcore.percentile(data, [5, 50, 95], 0, keepdims=True), expected, 1e-5
    )
    for words in ({"q": 1.5}, {"q": np.nan}, {"q": 0.5, "method": "best"}, {"q": 0.5, "axis": 2}):
        with pytest.raises(outcore.errors.UsageError):
            outcore.quantile(data, **words)


@settings(max_examples=40)
@given(
    st.sampled_from([(1,), (1031,), (3, 5000), (900, 3), (64, 3, 17), (40_001,), (2, 30_000)]),
    st.sampled_from(["f2", "f4", "f8", ">f8", "i2", "?"]),
    st.sampled_from(["nanmedian", "nanquantile", "nanpercentile", "median", "quantile"]),
    st.sampled_from(between.METHODS),
    st.sampled_from([0.5, 0, 1, [0.25, 0.1, 0.999], [[0.3], [0.7]]]),
    st.sampled_from([0.0, 0.1, 0.7, 1.0]),
    st.integers(0, 2**32),
)
def test_of_numbers_only(tmp_path_factory, shape, dtype, name, method, q, gaps, seed):
    """NumPy's results, whether lines fit or are counted, and the same bits."""
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype, rng)
    if data.dtype.kind == "f" and (name.startswith("nan") or rng.random() < 0.2):
        data[rng.random(shape) < gaps] = np.nan
    native = data.astype(data.dtype.newbyteorder("="))
    axis = None if rng.random() < 0.5 else int(rng.integers(len(shape)))
    words = {"axis": axis, "keepdims": bool(rng.integers(2))}
    if "median" not in name:
        # An array: NumPy takes a number in the precision of the elements.
        words |= {"q": np.array(q) * (100 if "percentile" in name else 1), "method": method}
        if dtype == "?" and method not in between.ELEMENTS:
            refused(getattr(np, name), native, **words)
            return
    # NumPy's own, where halves are too short to count with.
    wide = native.astype("f8") if dtype in ("f2", "f4") else native
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(getattr(np, name)(wide, **words))
        told = np.asarray(getattr(np, name)(np.zeros_like(native[:1]), **words)).dtype
        with stored(folder, data, "a.npy", rng) as a:
            large = np.asarray(find_public(name)(a, **words, memory="16 MiB"))
            small = np.asarray(find_public(name)(a, **words, memory="1500 KiB"))
    assert (expected.shape, told) == (large.shape, large.dtype)
    assert large.tobytes() == small.tobytes()
    loss = {"f2": 2e-3, "f4": 1e-6}.get(dtype, 1e-13)
    np.testing.assert_allclose(large, expected, rtol=loss, atol=loss)


def test_slices_without_a_number_are_told(tmp_path):
    data = np.full((3, 40_000), np.nan)
    data[1, ::7] = 2.0
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for memory in ("16 MiB", "1300 KiB"):
            with pytest.warns(RuntimeWarning, match="All-NaN"):
                found = outcore.nanmedian(a, 1, memory=memory)
            np.testing.assert_array_equal([np.nan, 2.0, np.nan], found)
            planned = outcore.nanquantile(a, [0.1, 0.2], None, memory=memory, explain=True)
            assert planned.run().tolist() == [2.0, 2.0]
            told = planned.report
            assert told.measured.read_bytes <= 1.1 * told.read_bytes
            assert told.read_bytes >= told.lower_bound_bytes == a.nbytes


def test_few_passes_find_a_median(tmp_path):
    """Two reads find it in numbers that spread, as is explained; so is the most that can be."""
    data = np.random.default_rng(6).standard_normal(2**20)
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        planned = outcore.median(a, memory="3 MiB", explain=True)
        report = planned.report
        assert 2 * a.nbytes < report.read_bytes and report.lower_bound_bytes == a.nbytes
        assert planned.run() == np.median(data)
        done = planned.report.measured
        # Candidates that were stored are read again.
        assert 2 * a.nbytes <= done.read_bytes <= 2.3 * a.nbytes
        assert 0.9 * report.read_bytes <= done.read_bytes <= 1.1 * report.read_bytes
        assert done.written_bytes <= 0.1 * a.nbytes
        assert done.peak_bytes <= 3 * 2**20
        # All are alike in all but their last bits: no pass but the last one tells them apart.
        data = 1 + np.arange(2.0**20) * 2.0**-52
        a[...] = data
        planned = outcore.median(a, memory="3 MiB", explain=True)
        assert planned.run() == np.median(data)
        most = int(re.search("up to ([0-9]+)", planned.report.method)[1])
        done = planned.report.measured
        # The counts of all passes before are read again before each pass.
        assert 2 * a.nbytes < done.read_bytes <= most * (a.nbytes + done.written_bytes)
        with outcore.quantile(a, [0.2, 0.7], memory="3 MiB", out=tmp_path / "q.npy") as found:
            np.testing.assert_allclose(found[...], np.quantile(data, [0.2, 0.7]), rtol=1e-15)
