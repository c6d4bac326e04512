"""Reductions beside NumPy's: equal, and with the same bits however the array is cut."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore.public import find_public
from stopping import stop_after

SHAPES = [(), (1,), (7,), (1, 9), (1031,), (11, 13), (3, 5000), (900, 3), (64, 3, 17), (4, 5, 6, 7)]
DTYPES = ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", ">f8", ">i4", ">c8", "?"]
FORMATS = ["a.npy", "a.zarr", "a.h5::/x", "a.raw"]
SUMS = ["sum", "prod", "mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd"]
EXACT = ["min", "max", "ptp", "any", "all", "count_nonzero", "nanmin", "nanmax"]
PLACES = ["argmin", "argmax", "nanargmin", "nanargmax"]
# What NumPy loses itself.
TOLERANCE = {"f2": 2e-2, "f4": 1e-4, "c8": 1e-4}


def stored(folder, data, name, rng):
    words = {}
    if "npy" in name or "raw" in name:
        words["order"] = rng.choice(["C", "F"])
    elif data.ndim and data.size:
        words["chunks"] = tuple(int(rng.integers(1, n + 1)) for n in data.shape)
        words["compression"] = "zstd"
    return outcore.create(f"{folder}/{name}", data=data, **words)


def content(shape, dtype, rng, name=""):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -100, 100, shape).astype(dtype)
    numbers = rng.standard_normal(shape) + 0.5
    if "prod" in name:
        numbers = np.exp(numbers / 100)
    if kind == "c":
        # Often with equal real parts; of a product's the sizes are about 1.
        numbers = np.round(numbers, 1) + 1j * rng.standard_normal(shape)
        numbers = np.exp(1j * numbers.imag) if "prod" in name else numbers
    return numbers.astype(dtype)


def axes_of(name, ndim, rng):
    if name in PLACES:
        return int(rng.integers(-ndim, ndim)) if ndim and rng.random() < 0.7 else None
    if rng.random() < 0.3:
        return None
    chosen = tuple(int(k) - ndim * int(rng.integers(2)) for k in range(ndim) if rng.random() < 0.5)
    return chosen[0] if len(chosen) == 1 and rng.random() < 0.5 else chosen


def ours(name, a, folder, **words):
    """As a NumPy array, with the smallest budget if that is asked for."""
    words = {"out": f"{folder}/r{np.random.default_rng().integers(2**60)}.npy", **words}
    if words.get("memory") == "smallest":
        with pytest.raises(outcore.BudgetError) as refused:
            find_public(name)(a, **{**words, "memory": 1})
        words["memory"] = refused.value.needed
    with find_public(name)(a, **words) as found:
        return found[...]


def numpys(name, data, **words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(getattr(np, name)(data, **words))


@settings(max_examples=70)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from([*SUMS, *EXACT, *PLACES]),
    st.sampled_from(["smallest", "2 MiB"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, source, name, memory, keepdims, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    if dtype == "?" and name == "ptp":
        name = "max"
    data = content(shape, dtype, rng, name)
    if np.dtype(dtype).kind in "fc" and rng.random() < 0.5:
        # A minority of NaN, of which no slice is full.
        flat = data.reshape(-1)
        flat[1 :: 2 if name.startswith("nan") else 7] = np.nan
        if name in PLACES and name.startswith("nan"):
            flat[...] = np.where(np.isnan(flat) & (np.arange(flat.size) % 3 > 0), 0, flat)
    axis = axes_of(name, len(shape), rng)
    try:
        expected = numpys(
            name, data.astype(data.dtype.newbyteorder("=")), axis=axis, keepdims=keepdims
        )
    except ValueError:
        assert name.startswith("nanarg")
        with pytest.raises(outcore.errors.UsageError, match="All-NaN"):
            find_public(name)(data, axis=axis)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with stored(folder, data, source, rng) as a:
            found = ours(name, a, folder, axis=axis, keepdims=keepdims, memory=memory)
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
    if name in SUMS and expected.dtype.kind in "fc":
        # NumPy rounds after each factor.
        loss = TOLERANCE.get(data.dtype.str[1:], 1e-12) * (5 if "prod" in name else 1)
        size = float(np.nanmax(np.abs(data.astype("c16")), initial=1.0)) ** (
            2 if "var" in name else 1
        )
        size *= data.size if "sum" in name else 1
        np.testing.assert_allclose(found, expected, rtol=loss, atol=loss * size)
    else:
        np.testing.assert_array_equal(expected, found)


@settings(max_examples=6)
@given(
    st.sampled_from([(5003,), (300, 41), (41, 300), (7, 130, 33), (3, 4, 5, 60), (2000, 3)]),
    st.sampled_from(["f4", "f8", "c8", ">f8", "f2"]),
    st.sampled_from(["sum", "mean", "var", "std", "nansum", "nanvar", "prod", "nanmean"]),
    st.integers(0, 2**32),
)
def test_bits_do_not_depend_on_how_it_is_cut(tmp_path_factory, shape, dtype, name, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = (content(shape, dtype, rng, name) * 10 ** rng.uniform(-2, 2, shape)).astype(dtype)
    axis = axes_of(name, len(shape), rng)
    expected = np.asarray(find_public(name)(data, axis=axis))
    for source in FORMATS:
        with stored(folder, data, source, rng) as a:
            for memory in ("smallest", "700 KiB"):
                found = ours(name, a, folder, axis=axis, memory=memory)
                assert expected.tobytes() == found.tobytes(), (source, memory)


def test_arguments_as_numpy_takes_them():
    data = np.arange(24, dtype="i4").reshape(2, 3, 4)
    for words in (
        {"dtype": "f8"},
        {"dtype": "i1"},
        {"dtype": "c16"},
        {"keepdims": True},
        {"axis": -1},
    ):
        expected = np.sum(data, **words)
        found = outcore.sum(data, **words)
        assert expected.dtype == found.dtype and type(expected) is type(found)
        np.testing.assert_array_equal(expected, found)
    assert outcore.mean(data, dtype="f4").dtype == "f4"
    np.testing.assert_allclose(np.var(data, axis=(0, 2), ddof=2), outcore.var(data, (0, 2), ddof=2))
    np.testing.assert_array_equal(np.sum(data, 1), outcore.sum(data, 1))
    out = np.zeros((3, 4))
    assert outcore.sum(data, 0, out=out) is out
    np.testing.assert_array_equal(data.sum(0), out)
    for axis in (3, -4, (0, 0), (0, -3), 1.5, "x", [0, 0]):
        with pytest.raises(outcore.errors.UsageError, match="axis"):
            outcore.sum(data, axis)
    with pytest.raises(outcore.errors.UsageError, match="several"):
        outcore.argmax(data, (0, 1))
    with pytest.raises(outcore.errors.UnsupportedError, match="bad-dtype"):
        outcore.max(np.ones(3, "g"))


def test_nothing_is_numpys_nothing():
    for shape, axis in (((0,), None), ((3, 0), 1), ((0, 3), 0), ((3, 0), 0), ((0, 4, 0), 1)):
        data = np.zeros(shape)
        for name in (
            "sum",
            "prod",
            "any",
            "all",
            "count_nonzero",
            "nansum",
            "mean",
            "std",
            "nanvar",
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                expected = np.asarray(getattr(np, name)(data, axis=axis))
                theirs = {str(one.message).rstrip(".")[:20] for one in caught}
                caught.clear()
                found = find_public(name)(data, axis=axis)
                assert expected.dtype == found.dtype
                np.testing.assert_array_equal(expected, found)
                if expected.size:
                    # NumPy warns of the division, too.
                    assert {str(one.message).rstrip(".")[:20] for one in caught} <= theirs
                    assert bool(caught) == bool(theirs)
    for name in ("min", "max", "argmin", "nanmax", "ptp"):
        with pytest.raises(outcore.errors.UsageError, match="no elements"):
            find_public(name)(np.zeros((0, 3)), axis=0)


def test_slices_without_numbers_warn_as_numpy_does():
    data = np.array([[1.0, np.nan], [np.nan, np.nan]])
    for name, text in (
        ("nanmax", "All-NaN"),
        ("nanmean", "Mean of empty slice"),
        ("nanvar", "Degrees of freedom"),
    ):
        with pytest.warns(RuntimeWarning, match=text):
            found = find_public(name)(data, axis=0)
        np.testing.assert_array_equal(numpys(name, data, axis=0), found)
    assert outcore.nansum(data, 0).tolist() == [1.0, 0.0]


def test_signed_zeros_infinities_and_large_numbers():
    zeros = np.array([-0.0, -0.0])
    assert np.signbit(outcore.sum(zeros)) == np.signbit(np.sum(zeros))
    assert outcore.sum(np.array([1.0, np.inf])) == np.inf
    assert np.isnan(outcore.sum(np.array([-np.inf, np.inf])))
    assert outcore.mean(np.array([1.0, np.inf])) == np.inf
    high = np.full(3, 2**63 - 1)
    assert outcore.sum(high) == np.sum(high)
    far = 1e9 + np.random.default_rng(1).standard_normal(5000)
    np.testing.assert_allclose(outcore.var(far), np.var(far), rtol=1e-7)


def test_statistics_are_those_of_single_calls(tmp_path):
    data = np.random.default_rng(2).standard_normal((300, 41)).astype("f4")
    data[3] = np.nan
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        names = ("sum", "mean", "var", "std", "min", "max", "argmax", "nanmean", "any", "nanargmin")
        for axis in (0, 1, None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if axis == 1:
                    names = names[:-1]
                found = outcore.statistics(a, axis, names, memory="1 MiB")
                assert list(found) == list(names)
                for name in names:
                    single = find_public(name)(a, axis=axis)
                    assert np.asarray(single).tobytes() == np.asarray(found[name]).tobytes(), name
        planned = outcore.statistics(a, 0, ("mean", "std"), memory="1 MiB", explain=True)
        planned.run()
        assert a.nbytes == planned.report.read_bytes
        assert planned.report.measured.read_bytes <= 1.1 * a.nbytes
        for what in ("mean", ("mode",), ("argmin",)):
            with pytest.raises(outcore.errors.UsageError):
                outcore.statistics(a, (0, 1), what)
        assert outcore.statistics(a, what=()) == {}


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("order", ["C", "F"])
def test_each_byte_is_read_once_within_the_budget(tmp_path, axis, order):
    data = np.random.default_rng(3).standard_normal((512, 4096))
    with outcore.create(tmp_path / "a.npy", data=data, order=order) as a:
        planned = outcore.var(a, axis, memory="3 MiB", explain=True)
        told = planned.report
        assert told.steps > 2 and told.lower_bound_bytes == a.nbytes == told.read_bytes
        assert told.written_bytes == 0
        np.testing.assert_allclose(np.var(data, axis), planned.run(), rtol=1e-12)
        done = planned.report.measured
        assert done.read_bytes <= 1.1 * a.nbytes
        assert done.peak_bytes <= 3 * 2**20
        # Runs are long: some tiles of rows, or parts of them.
        assert told.requests <= 40 * told.steps


def test_chunks_are_decoded_once(tmp_path):
    data = np.random.default_rng(4).standard_normal((90, 700))
    with outcore.create(tmp_path / "a.zarr", data=data, chunks=(25, 60), compression="zstd") as a:
        for axis in (None, 0, 1):
            planned = outcore.sum(a, axis, memory="1500 KiB", explain=True)
            planned.run()
            assert planned.report.measured.requests <= math.prod((4, 12)) + 4


def test_a_result_that_does_not_fit_says_so(tmp_path):
    with outcore.create(tmp_path / "a.npy", (2, 100_000), "f8") as a:
        with pytest.raises(outcore.BudgetError, match="out="):
            outcore.sum(a, 0, memory="1 MiB")
        with outcore.sum(a, 0, memory="1 MiB", out=tmp_path / "s.npy") as s:
            assert s.shape == (100_000,) and not s[...].any()


@pytest.mark.parametrize("shape", [(64, 30_000), (30_000, 64)])
def test_an_interrupted_sum_goes_on(tmp_path, shape):
    """Also where all of its steps add to the same outputs."""
    data = np.random.default_rng(5).standard_normal(shape)
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        words = {"memory": "1 MiB", "out": tmp_path / "s.npy"}
        for at in range(1, 40, 7):
            progress = stop_after(at, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                outcore.sum(a, 0, progress=progress, resume=True, **words)
        with outcore.sum(a, 0, resume=True, **words) as s:
            np.testing.assert_array_equal(outcore.sum(data, 0), s[...])


@pytest.mark.parametrize("memory", [1, 4])
def test_of_nothing_with_nearly_no_memory(tmp_path, memory):
    """Its one step takes more than there is: that is refused, and was planned again without end."""
    a = outcore.create(tmp_path / "a.npy", data=np.ones((3, 0), "f4"))
    with pytest.raises(outcore.BudgetError):
        outcore.prod(a, 1, memory=memory)
    np.testing.assert_array_equal(np.ones(3), outcore.prod(a, 1, memory=8192))


@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16"])
def test_complex_numbers_have_numpys_order(dtype):
    """By real parts, then by imaginary ones; of equal ones the first, whatever the sign of a zero."""
    parts = [-1.0, -0.0, 0.0, 1.0, np.inf, -np.inf]
    values = [complex(a, b) for a in parts for b in parts]
    rng = np.random.default_rng(1)
    for none in ([], [complex(np.nan, 1)], [complex(-7, np.nan), complex(np.nan, 0)]):
        for _ in range(20):
            data = rng.permutation(np.array([*values, *none], dtype))
            if "8" in dtype and rng.random() < 0.5:
                data = data[: rng.integers(1, 9)]
            native = data.astype(data.dtype.newbyteorder("="))
            for name in (*EXACT, *PLACES):
                if name.startswith("nanarg") and np.isinf(native).any():
                    # NumPy takes an infinite number for one that is none.
                    continue
                try:
                    expected = numpys(name, native)
                except ValueError:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = np.asarray(find_public(name)(data))
                assert expected.dtype == found.dtype
                if expected.dtype.kind == "c":
                    expected, found = (
                        one.reshape(1).view(one.real.dtype) for one in (expected, found)
                    )
                    numbers = ~np.isnan(expected)
                    assert (np.signbit(expected) == np.signbit(found))[numbers].all(), name
                np.testing.assert_array_equal(expected, found, name)
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(outcore.nanmax(np.array([complex(1, np.nan)])))
    with pytest.raises(outcore.errors.UsageError, match="All-NaN"):
        outcore.nanargmin(np.array([complex(1, np.nan)]))
    assert outcore.nanargmin(np.array([complex(np.nan, 0), complex(np.inf, 1)])) == 1


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_infinities_and_zeros_in_products_of_complex_numbers(dtype):
    parts = [-1.0, -0.0, 0.0, 2.0, np.inf, np.nan]
    rng = np.random.default_rng(2)
    for _ in range(60):
        data = rng.choice(parts, (2, rng.integers(1, 6))) + 0.0j
        data.imag = rng.choice(parts, data.shape)
        data = data.astype(dtype)
        for axis in (0, 1):
            for name in ("prod", "nanprod", "cumprod"):
                expected = numpys(name, data, axis=axis)
                found = np.asarray(find_public(name)(data, axis=axis)[...])
                np.testing.assert_array_equal(expected, found)
                sides = np.isnan(expected), np.signbit(expected.real), np.signbit(expected.imag)
                theirs = np.isnan(found), np.signbit(found.real), np.signbit(found.imag)
                for ours_, one in zip(theirs[1:], sides[1:], strict=True):
                    assert (ours_ == one)[~sides[0]].all()


def test_a_planned_call_gives_what_the_call_gives(tmp_path):
    """Also where the user gets something else than the result itself: scalars, names, edges."""
    data = np.random.default_rng(9).random((5, 7))
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for name, args, words in (
            ("statistics", (), {}),
            ("statistics", (1,), {"what": ("argmax",)}),
            ("sum", (), {}),
            ("sum", (0,), {}),
            ("median", (), {}),
            ("norm", (), {}),
            ("vdot", (a,), {}),
            ("searchsorted", (0.5,), {}),
            ("histogram", (3,), {"density": True}),
            ("lstsq", (np.ones(5),), {}),
        ):
            one = data[0] if name == "searchsorted" else a
            expected = find_public(name)(one, *args, **words)
            found = find_public(name)(one, *args, **words, explain=True).run()
            assert type(found) is type(expected), name
            np.testing.assert_equal(found, expected)


def test_a_bound_counts_chunks_as_they_are_stored(tmp_path):
    """Zeros that gzip makes small have not to be moved at their full size."""
    with outcore.create(
        tmp_path / "z.zarr", data=np.zeros((600, 600)), chunks=(100, 100), compression="gzip"
    ) as a:
        planned = outcore.sum(a, memory="1 MiB", explain=True)
        assert planned.report.lower_bound_bytes < a.nbytes // 10
        planned.run()
        done = planned.report.measured
        assert planned.report.lower_bound_bytes <= done.read_bytes + done.written_bytes
        copied = outcore.transpose(
            a, out=tmp_path / "t.zarr", compression="gzip", memory="4 MiB", explain=True
        )
        copied.run()
        done = copied.report.measured
        assert copied.report.lower_bound_bytes <= done.read_bytes + done.written_bytes
