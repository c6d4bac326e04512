"""What no reduction and no scan can do, all of them refuse alike, and leave nothing behind."""

import os
import warnings

import numpy as np
import pytest

import outcore
from outcore.public import find_public

ONE_AXIS = [
    "argmin",
    "argmax",
    "nanargmin",
    "nanargmax",
    "cumsum",
    "cumprod",
    "nancumsum",
    "nancumprod",
]
NO_EMPTY = ["min", "max", "ptp", "nanmin", "nanmax", *ONE_AXIS[:4]]
ADDED = ["sum", "prod", "mean", "var", "std", "nansum", "nanprod", "nanmean", "nanvar", "nanstd"]
TRUTHS = ["any", "all", "count_nonzero"]
CHOOSES = [*ADDED, "any", "all", "min", "max", "nanmin", "nanmax"]
ALL = [*ADDED, *TRUTHS, *NO_EMPTY, "median", "nanmedian", *ONE_AXIS[4:], "norm"]
DATA = np.random.default_rng(0).random((6, 4))


@pytest.fixture(params=ALL)
def name(request, tmp_path, monkeypatch):
    """A reduction; its input is as it was afterwards, and nothing else is left in the folder."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)
    yield request.param
    np.testing.assert_array_equal(DATA, np.load("a.npy"))
    assert os.listdir(".") == ["a.npy"]


def refused(code, name, *arguments, **words):
    with pytest.raises(outcore.OutcoreError) as told:
        find_public(name)(*arguments, **words)
    assert told.value.code == code, repr(told.value)
    return told.value


def shape_of(name):
    return (6, 4) if "cum" in name else (4,)


def dtype_of(name):
    with np.errstate(all="ignore"):
        numpys = np.linalg.norm if name == "norm" else getattr(np, name)
        return np.asarray(numpys(DATA, axis=0)).dtype


def test_axes(name):
    for axis in (2, -3, 1.5, "x", (0, 0), (0, -2)):
        error = refused("bad-axis", name, "a.npy", axis=axis)
        assert isinstance(error, ValueError) and str(axis) in str(error)
    if name in ONE_AXIS:
        assert "several" in str(refused("bad-axis", name, "a.npy", axis=(0, 1)))


def test_results(name):
    shape, dtype = shape_of(name), dtype_of(name)
    for wrong in ((*shape, 1), (5,), (shape[0] + 1, *shape[1:])):
        error = refused("out-mismatch", name, "a.npy", axis=0, out=np.zeros(wrong, dtype))
        assert str(wrong) in str(error) and str(shape) in str(error)
    # To what loses: fractions, or numbers that are no truth values.
    small = np.ones(shape, "i1" if dtype.kind == "f" else "?")
    if name not in ("any", "all"):
        refused("bad-cast", name, "a.npy", axis=0, out=small)
        assert small.all()
    refused("same-file", name, "a.npy", axis=0, out="a.npy", overwrite=True)
    refused("same-file", name, "a.npy", axis=0, out=os.path.abspath("a.npy"))


def test_results_that_overlap_the_input(name):
    data = DATA.copy()
    if dtype_of(name).kind == "f":
        out = data if "cum" in name else data[2]
        refused("same-file", name, data, axis=0, out=out)
    else:
        data = data.view("?" if dtype_of(name).kind == "b" else "i8")
        refused("same-file", name, data, axis=0, out=data[1])
    np.testing.assert_array_equal(DATA.view("u1"), data.view("u1"))


def test_elements(name):
    for wrong in (np.array(["a"]), np.array(["2020"], "M8[D]"), np.ones(3, "g"), np.array([None])):
        refused("bad-dtype", name, wrong)
    if name in CHOOSES:
        more = {"initial": 0} if name.endswith(("min", "max")) else {}
        refused("bad-shape", name, "a.npy", where=[True, False], **more)
    else:
        refused("unknown-option", name, "a.npy", where=[True])


def test_no_elements(name):
    data = np.zeros((0, 3))
    if name in NO_EMPTY:
        error = refused("empty-reduction", name, data, axis=0)
        assert isinstance(error, ValueError)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = find_public(name)(data, axis=0)
        numpys = np.linalg.norm if name == "norm" else getattr(np, name)
        np.testing.assert_array_equal(numpys(data, axis=0), np.asarray(found[...]))


def test_not_a_number(name):
    """As NumPy has it: it goes into the result, or is left out; where nothing is left it says so."""
    data = DATA.copy()
    data[1, 2] = np.nan
    data[:, 3] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if name.startswith("nanarg"):
            error = refused("all-nan", name, data, axis=0)
            assert isinstance(error, ValueError)
            data[0, 3] = 1
        found = np.asarray(find_public(name)(data, axis=0)[...])
        ours = {str(one.message).rstrip(".") for one in caught}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        numpys = np.linalg.norm if name == "norm" else getattr(np, name)
        expected = np.asarray(numpys(data, axis=0))
        theirs = {str(one.message).rstrip(".") for one in caught}
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert found.dtype == expected.dtype
    assert ours == theirs
