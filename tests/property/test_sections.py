"""Sections of arrays on disk equal NumPy's, for any shape, dtype, order, key, hint and budget."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore.testing import oracle, strategies

HINTS = [
    {},
    {"engine": "threads", "threads": 1},
    {"method": "straight", "cache": "keep"},
    {"method": "window", "cache": "keep"},
    {"method": "mapped"},
    {"method": "list"},
    {"cache": "bypass"},
    {"memory": "64 KiB"},
    {"memory": "4 KiB"},
    {"exclusive": True},
    {"exclusive": True, "method": "window"},
]
hints = st.sampled_from(HINTS)
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stored(folder: str, array: np.ndarray, kind: str) -> outcore.DiskArray:
    """`array` in a file written by NumPy alone, opened for writing."""
    path = Path(folder) / f"a.{kind}"
    order = "F" if array.flags.fnc and array.ndim > 1 else "C"
    if kind == "npy":
        np.save(path, array)
        return outcore.open(path, "r+")
    path.write_bytes(b"head!" + array.tobytes(order))
    options = {"shape": array.shape, "dtype": array.dtype, "order": order, "offset": 5}
    return outcore.open(path, "r+", format="raw", **options)


def same(expected: object, actual: object) -> None:
    """Equal in type, shape, dtype and every byte, except bytes between the fields of a record."""
    assert type(expected) is type(actual)
    assert np.shape(expected) == np.shape(actual)
    assert np.asarray(expected).dtype == np.asarray(actual).dtype
    if np.asarray(expected).dtype.names:
        assert np.asarray(expected).tolist() == np.asarray(actual).tolist()
    else:
        assert np.asarray(expected).tobytes() == np.asarray(actual).tobytes()


@quick
@given(st.data(), strategies.arrays(), st.sampled_from(["npy", "raw"]), hints)
def test_reading_equals_numpy(data, array, kind, hint):
    with tempfile.TemporaryDirectory() as folder:
        with stored(folder, array, kind) as made:
            again = outcore.open(made.path, hints=hint, **made.handle.reopen_options())
        with again as a:
            for _ in range(3):
                key = data.draw(strategies.keys(array.shape))
                expected = array[key]
                same(expected, a[key])
                if isinstance(expected, np.ndarray):
                    out = np.empty(expected.shape[::-1], expected.dtype).T
                    assert a.read(key, out=out) is out
                    same(expected, out)


@quick
@given(st.data(), strategies.arrays(), st.sampled_from(["npy", "raw"]), hints)
def test_writing_equals_numpy(data, array, kind, hint):
    array = array.copy("K")
    with tempfile.TemporaryDirectory() as folder:
        with stored(folder, array, kind) as made:
            again = outcore.open(made.path, "r+", hints=hint, **made.handle.reopen_options())
        with again as a:
            for seed in range(3):
                key = data.draw(strategies.keys(array.shape))
                part = array[key]
                order = data.draw(strategies.orders())
                value = strategies.fill(np.shape(part), array.dtype, order, seed)
                before = value.copy()
                array[key] = value
                a[key] = value
                same(before, value.copy())
            same(array, a[...])
        same(array.copy("C"), oracle.read_all(a.info))


@quick
@given(
    st.data(), strategies.shapes(), st.sampled_from(["i1", "<u2", ">i8", "f4", ">f8", "?"]), hints
)
def test_writing_casts_and_broadcasts_as_numpy(data, shape, dtype, hint):
    array = strategies.fill(shape, np.dtype(dtype), data.draw(strategies.orders()))
    key = data.draw(strategies.keys(shape))
    value = data.draw(strategies.values_for(np.shape(array[key])))
    if not isinstance(array[key], np.ndarray):
        value = value.reshape(())  # one element takes no arrays, or by dtype: we never do
    with tempfile.TemporaryDirectory() as folder:
        with stored(folder, array, "npy") as made:
            again = outcore.open(made.path, "r+", hints=hint)
        with again as a:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                array[key] = value
                a[key] = value
            same(array, a[...])


SCALARS = [0, 3, -1, 300, 2**70, 1.5, float("nan"), 1 + 2j, "7", b"x", True, None, [1, 2], (1,)]
SCALARS += [np.int64(300), np.float32(2.5), np.array(3), np.bool_(True), np.array([[1.0]])]
SCALARS += [np.datetime64("2024-01-01"), [[1, 2], [3]], "text", {}]


@pytest.mark.parametrize("dtype", ["u1", "i4", "f8", "c16", "?", "S3", "U4", "M8[s]", "V3"])
@pytest.mark.filterwarnings("ignore")
def test_assigning_any_object_does_what_numpy_does(tmp_path, dtype):
    a = outcore.create(tmp_path / "a.npy", (2, 2), dtype)
    for value in SCALARS:
        expected = a[...] = np.zeros((2, 2), dtype)
        try:
            expected[:, :1] = value
        except Exception as error:
            with pytest.raises(type(error)):
                a[:, :1] = value
        else:
            a[:, :1] = value
        same(expected, a[...])


def test_one_element_takes_no_array(tmp_path):
    a = outcore.create(tmp_path / "a.npy", (4, 5), "f8")
    with pytest.raises(ValueError, match="one element"):
        a[0, 0] = np.array([1.0])


@pytest.mark.parametrize("key", [5, (0, -6), (0, 0, 0), 10**30, 1.0, (..., ...), "field", [0.5]])
def test_keys_that_numpy_refuses_raise_index_errors(tmp_path, key):
    a = outcore.create(tmp_path / "a.npy", (4, 5), "f8")
    with pytest.raises(outcore.OutcoreError) as caught:
        a[key]
    kind = outcore.errors.UnsupportedError if key == "field" else IndexError
    assert isinstance(caught.value, kind)
    assert "a.npy" in str(caught.value)
