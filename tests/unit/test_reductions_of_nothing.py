"""Reductions of arrays without elements: NumPy says which have a result."""

import warnings

import numpy as np
import pytest

import outcore
from outcore.errors import UsageError
from outcore.public import find_public

NAMES = [
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "min",
    "max",
    "ptp",
    "argmin",
    "argmax",
    "any",
    "all",
    "count_nonzero",
    "nansum",
    "nanmean",
    "nanvar",
    "nanmin",
    "nanmax",
    "nanargmin",
    "nanargmax",
    "median",
]
SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)]


def _told(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(call())
        except (ValueError, IndexError) as error:
            return error


@pytest.mark.parametrize("name", [*NAMES, "quantile"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_there_is_a_result_where_numpy_has_one(name, keepdims):
    more = {"q": 0.5} if name == "quantile" else {}
    for shape in SHAPES:
        for axis in (None, *range(len(shape))):
            data = np.empty(shape)
            how = {"axis": axis, "keepdims": keepdims, **more}
            expected = _told(lambda: getattr(np, name)(data, **how))  # noqa: B023, called at once
            found = _told(lambda: find_public(name)(data, **how))  # noqa: B023
            if isinstance(expected, Exception):
                assert isinstance(found, UsageError), (shape, axis)
                assert found.code == "empty-reduction"
            else:
                assert not isinstance(found, Exception), (shape, axis, found)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(expected, found)


def test_the_median_of_nothing_is_told():
    with pytest.warns(RuntimeWarning, match="no elements"):
        assert np.isnan(outcore.median(np.empty((0, 3)), axis=None))
