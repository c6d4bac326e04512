"""Reductions of chosen elements, and with a beginning: NumPy's, however arrays are cut."""

import importlib
import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reductions import FORMATS, TOLERANCE, axes_of, content, ours, stored

import outcore
from outcore.public import find_public

ADDED = ["sum", "prod", "nansum", "nanprod"]
EXTREMES = ["min", "max", "nanmin", "nanmax"]
CENTRED = ["mean", "var", "std", "nanmean", "nanvar", "nanstd"]
TRUTHS = ["any", "all"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DTYPES = ["i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", ">f8", ">c8", "?"]
SHAPES = [(), (7,), (1, 9), (1031,), (11, 13), (3, 2000), (900, 3), (64, 3, 17), (4, 5, 6, 7)]


def chosen(shape, rng):
    """Truth values that can be broadcast, some of whose axes are missing, or have length 1."""
    few = list(shape[rng.integers(len(shape) + 1) :]) if rng.random() < 0.4 else list(shape)
    for k in range(len(few)):
        few[k] = 1 if rng.random() < 0.2 else few[k]
    return rng.random(few) < rng.choice([0.1, 0.7, 1.0])


@settings(max_examples=80)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from([*ADDED, *EXTREMES, *CENTRED, *TRUTHS]),
    st.sampled_from(FORMATS),
    st.sampled_from(["memory", *FORMATS]),
    st.sampled_from(["smallest", "2 MiB"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, name, source, place, memory, keepdims, seed):
    folder, rng = tmp_path_factory.mktemp("t"), np.random.default_rng(seed)
    data, where = np.asarray(content(shape, dtype, rng, name)), chosen(shape, rng)
    if data.dtype.kind in "fc" and rng.random() < 0.5:
        data.reshape(-1)[1 :: 2 if name.startswith("nan") else 7] = np.nan
    words = {"axis": axes_of(name, len(shape), rng), "keepdims": keepdims}
    native = np.asarray(data.astype(data.dtype.newbyteorder("=")))
    if name in EXTREMES or (name in ADDED and rng.random() < 0.5):
        words["initial"] = rng.choice([-1.0, 0.5, 3.0]) if data.dtype.kind in "fc" else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(getattr(np, name)(native, where=where, **words))
        with stored(folder, data, f"a{source}", rng) as a:
            if place == "memory":
                found = ours(name, a, folder, memory=memory, where=where, **words)
            else:
                with stored(folder, where, f"w{place}", rng) as w:
                    found = ours(name, a, folder, memory=memory, where=w, **words)
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
    if expected.dtype.kind in "fc" and name not in EXTREMES:
        loss = TOLERANCE.get(data.dtype.str[1:], 1e-12) * (5 if "prod" in name else 1)
        size = float(np.nanmax(np.abs(data.astype("c16")), initial=1.0)) ** 2
        size *= max(data.size, 1) if "sum" in name else 1
        np.testing.assert_allclose(found, expected, rtol=loss, atol=loss * size)
    else:
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", [*ADDED, *CENTRED])
def test_bits_do_not_depend_on_how_it_is_cut(tmp_path, name):
    rng = np.random.default_rng(3)
    data = rng.standard_normal((37, 1300)) * 10 ** rng.uniform(-2, 2, (37, 1300))
    for shape in (data.shape, (37, 1), (1300,)):
        where = rng.random(shape) < 0.6
        for axis in (None, 0, 1):
            expected = np.asarray(find_public(name)(data, axis=axis, where=where))
            for order in ("C", "F"):
                folder = tmp_path / f"{where.size}{axis}{order}"
                folder.mkdir()
                a = outcore.create(folder / "a.npy", data=data, order=order)
                w = outcore.create(folder / "w.zarr", data=where)
                with a, w:
                    found = find_public(name)(a, axis=axis, where=w, memory="900 KiB")
                assert expected.tobytes() == np.asarray(found).tobytes(), (axis, order)


def test_what_begins_is_of_the_dtype_of_the_result():
    data = np.array([[3, 1], [2, 5]], "i2")
    for name, initial in (("sum", 7), ("sum", 0.5), ("prod", 2), ("min", 0.5), ("max", 9)):
        for words in ({}, {"axis": 0}, {"axis": (0, 1)}):
            expected = getattr(np, name)(data, initial=initial, **words)
            found = find_public(name)(data, initial=initial, **words)
            assert expected.dtype == found.dtype
            np.testing.assert_array_equal(expected, found)
    nothing = np.zeros((0, 3), "f4")
    for name, initial in (("sum", 2), ("prod", 3), ("max", -1), ("nanmin", np.inf)):
        expected = getattr(np, name)(nothing, axis=0, initial=initial)
        np.testing.assert_array_equal(expected, find_public(name)(nothing, 0, initial=initial))
    # What does not count is not even added as a zero of the wrong sign, nor are there NaNs of it.
    assert outcore.mean(np.array([1.0, np.inf, np.nan]), where=[True, False, False]) == 1
    assert outcore.prod(np.array([0.0, 2.0]), where=[False, True]) == 2


def test_a_correction_is_what_freedom_is_less():
    data = np.random.default_rng(4).random((6, 7))
    for name in ("var", "std", "nanvar", "nanstd"):
        expected = getattr(np, name)(data, 1, correction=1.5)
        np.testing.assert_allclose(find_public(name)(data, 1, correction=1.5), expected, 1e-13)
        with pytest.raises(outcore.errors.UsageError, match="two names"):
            find_public(name)(data, ddof=1, correction=1)


def test_invalid_masks_are_refused():
    data = np.ones((6, 4))
    for where, code in (
        ([1, 0, 1, 0], "bad-dtype"),
        (np.ones((4,)), "bad-dtype"),
        (np.ones(6, bool), "bad-shape"),
        (np.ones((2, 6, 4), bool), "bad-shape"),
    ):
        with pytest.raises(outcore.OutcoreError) as told:
            outcore.sum(data, where=where)
        assert told.value.code == code
    with pytest.raises(outcore.errors.UsageError, match="initial="):
        outcore.max(data, where=[True] * 4)
    for initial in (300, np.inf, "x", 1j, [1, 2]):
        with pytest.raises(outcore.errors.UsageError, match="initial"):
            outcore.min(data.astype("u1"), initial=initial)


@pytest.mark.parametrize("shape", [(600, 4096), (4096,), (600, 1)])
def test_each_byte_is_read_once_within_the_budget(tmp_path, shape):
    """Of what is broadcast a little more, since each tile reads what it needs."""
    rng = np.random.default_rng(5)
    data, where = rng.random((600, 4096)), rng.random(shape) < 0.5
    a = outcore.create(tmp_path / "a.npy", data=data)
    w = outcore.create(tmp_path / "w.npy", data=where)
    with a, w:
        planned = outcore.var(a, 0, where=w, memory="3 MiB", explain=True)
        told = planned.report
        assert told.steps > 2 and told.lower_bound_bytes == a.nbytes + w.nbytes <= told.read_bytes
        assert told.read_bytes <= a.nbytes + max(w.nbytes, told.steps * 4096)
        np.testing.assert_allclose(planned.run(), np.var(data, 0, where=where), rtol=1e-12)
        done = planned.report.measured
        assert done.read_bytes <= 1.1 * told.read_bytes
        assert done.peak_bytes <= 3 * 2**20


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A call with ``where=`` that stopped in the middle."""
    rng = np.random.default_rng(6)
    data, where = rng.random((64, 30_000)), rng.random((64, 30_000)) < 0.5
    for name, one in (("a", data), ("w", where), ("v", ~where)):
        outcore.create(tmp_path / f"{name}.npy", data=one).close()
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.checkpoints"), "_CHECKPOINT", 0.0
    )

    def stopped(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    def call(**words):
        words = {"where": tmp_path / "w.npy", "initial": 2.5, "memory": "1 MiB", **words}
        return outcore.sum(tmp_path / "a.npy", 0, out=tmp_path / "s.npy", **words)

    with pytest.raises(KeyboardInterrupt):
        call(progress=stopped)
    return call, outcore.sum(data, 0, where=where, initial=2.5)


def test_an_interrupted_one_goes_on_from_its_journal(interrupted, tmp_path):
    """Its second array is a keyword of the call that is made again."""
    assert outcore.jobs.resume(tmp_path) == [str(tmp_path / "s.npy")]
    with outcore.open(tmp_path / "s.npy") as found:
        np.testing.assert_array_equal(interrupted[1], found[...])


def test_an_interrupted_one_does_not_go_on_with_other_elements(interrupted, tmp_path):
    call, expected = interrupted
    where = np.load(tmp_path / "w.npy")
    for words, told in (
        ({"where": tmp_path / "v.npy"}, "source 2"),
        ({"where": where}, "source 2"),
        ({"where": where[0]}, "source 2 shape"),
        ({"where": True}, "source 2"),
        ({"initial": 2.25}, "initial"),
        ({"initial": None}, "initial"),
    ):
        with pytest.raises(outcore.errors.UsageError, match=rf"different .*{told}") as refused:
            call(resume=True, **words)
        assert refused.value.code == "other-job"
    with call(resume=True) as found:
        np.testing.assert_array_equal(expected, found[...])


def test_an_interrupted_one_notices_other_truth_values(interrupted, tmp_path):
    """In the same file: what was stored before it was another one."""
    os.utime(tmp_path / "w.npy", ns=(1, 1))
    with pytest.raises(outcore.errors.UsageError, match="different source 2 time"):
        interrupted[0](resume=True)
