"""Cumulative sums and products: NumPy's bits, however the array is cut."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reductions import DTYPES, FORMATS, content, stored

import outcore
from outcore.public import find_public
from stopping import stop_after

SHAPES = [(), (0,), (7,), (1, 9), (1031,), (11, 13), (5, 0, 3), (3, 5000), (900, 3), (4, 5, 6, 7)]


@settings(max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["cumsum", "cumprod", "nancumsum", "nancumprod"]),
    st.sampled_from(["smallest", "2 MiB"]),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, source, name, memory, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data = content(shape, dtype, rng, "prod")
    if name.startswith("nan") and data.dtype.kind in "fc":
        data = np.asarray(data)  # of no axes it is a scalar
        data[rng.random(shape) < 0.3] = np.nan
    axis = int(rng.integers(-len(shape), len(shape))) if shape and rng.random() < 0.7 else None
    native = data.astype(data.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = getattr(np, name)(native, axis=axis)
    with stored(folder, data, source, rng) as a:
        words = {"memory": memory, "out": f"{folder}/r.npy"}
        if memory == "smallest":
            with pytest.raises(outcore.BudgetError) as refused:
                find_public(name)(a, axis, **{**words, "memory": 1})
            # Not that of one element: that takes as many steps.
            words["memory"] = refused.value.needed + 100 * 1024
        with find_public(name)(a, axis, **words) as found:
            assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
            found = found[...]
    if name.endswith("prod") and found.dtype.kind == "c":
        # NumPy rounds rows and columns in different ways.
        loss = 1e-4 if found.dtype == "c8" else 1e-12
        np.testing.assert_allclose(found, expected, rtol=loss)
        with find_public(name)(native, axis) as again:
            expected = again[...]
    assert expected.tobytes() == found.tobytes()


def test_dtype_and_axes_as_numpy_takes_them():
    data = np.arange(24, dtype="i2").reshape(2, 3, 4)
    for words in ({"dtype": "f4"}, {"dtype": "i1", "axis": 1}, {"axis": -1}, {"dtype": "c16"}):
        expected = np.cumsum(data, **words)
        with outcore.cumsum(data, **words) as found:
            assert expected.dtype == found.dtype
            np.testing.assert_array_equal(expected, found[...])
    with outcore.cumprod(data, dtype="c8") as found:
        assert found.dtype == "c8"
    with pytest.raises(outcore.errors.UnsupportedError, match="bad-dtype"):
        outcore.cumprod(np.ones(3, "g"))
    for axis in (3, (0, 1), "x"):
        with pytest.raises(outcore.errors.UsageError, match="axis"):
            outcore.cumsum(data, axis)


def test_each_byte_is_moved_once(tmp_path):
    data = np.random.default_rng(1).standard_normal((256, 8192))
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        for axis in (0, 1, None):
            out = tmp_path / f"s{axis}.npy"
            planned = outcore.cumsum(a, axis, out=out, memory="4 MiB", explain=True)
            told = planned.report
            assert told.steps > 4
            assert told.lower_bound_bytes == 2 * a.nbytes == told.read_bytes + told.written_bytes
            with planned.run() as b:
                np.testing.assert_array_equal(np.cumsum(data, axis), b[...])
            done = planned.report.measured
            assert done.read_bytes + done.written_bytes <= 1.1 * told.lower_bound_bytes
            assert done.peak_bytes <= 4 * 2**20


def test_an_interrupted_scan_goes_on(tmp_path):
    data = np.random.default_rng(5).standard_normal((64, 30_000))
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        words = {"memory": "1 MiB", "out": tmp_path / "s.npy"}
        for at in (1, 8, 6, 8):
            progress = stop_after(at, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                outcore.cumsum(a, 0, progress=progress, resume=True, **words)
        with outcore.cumsum(a, 0, resume=True, **words) as s:
            np.testing.assert_array_equal(np.cumsum(data, 0), s[...])
