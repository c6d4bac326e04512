"""What NumPy and SciPy give at the edges, and what they raise."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import ndimage

import outcore
from outcore.public import find_public


def outcome(call):
    """Dtype, shape and elements of a result, or which of NumPy's errors it is."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = call()
        except Exception as error:
            kinds = (np.exceptions.AxisError, IndexError, TypeError, ValueError)
            return next(kind.__name__ for kind in kinds if isinstance(error, kind))
    array = np.asarray(found[...] if isinstance(found, outcore.DiskArray) else found)
    return array.dtype.str, array.shape, repr(array.tolist()), bool(told)


def same(name, *inputs, **words):
    function, numpys = find_public(name), getattr(np, name)
    wanted = outcome(lambda: numpys(*inputs, **words))
    assert outcome(lambda: function(*inputs, **words)) == wanted, (name, inputs, words)


def test_reductions_of_nothing():
    for name in ("mean", "nanmean", "std", "nanstd", "var", "nanvar", "sum", "nanprod"):
        for dtype in ("c16", "c8", "f4", "i4", "?"):
            for shape, axis in (((0,), None), ((0, 3), 0), ((0, 3), 1), ((3, 0), (0, 1))):
                same(name, np.zeros(shape, dtype), axis=axis)
    for shape, axis in (((0,), None), ((0, 3), 0), ((3, 0), 1)):
        for dtype in ("f8", "f4", "i4"):
            for keepdims in (False, True):
                same("nanquantile", np.zeros(shape, dtype), 0.3, axis=axis, keepdims=keepdims)
                same("nanpercentile", np.zeros(shape, dtype), 30, axis=axis, keepdims=keepdims)
        # With several q NumPy leaves out their axis, which its shape has where there are elements.
        found = outcore.nanquantile(np.zeros(shape), [0.3, 0.5], axis=axis)
        assert found.shape == (2, *np.nanmean(np.zeros(shape), axis=axis).shape)
        assert np.isnan(found).all()


def test_axes_of_an_array_without_axes():
    z = np.array(5.0)
    reductions = ("sum", "prod", "min", "max", "any", "all", "ptp", "argmin", "argmax")
    reductions += ("nansum", "nanprod", "nanmin", "nanmax", "nanmean", "nanstd", "nanvar")
    reductions += ("nanargmin", "nanargmax", "count_nonzero")
    for name in (*reductions, "cumsum", "cumprod", "nancumsum", "nancumprod"):
        for axis in (None, 0, -1, 1, -2):
            same(name, z, axis=axis)


def test_outer_of_arrays_that_are_no_vectors(tmp_path):
    for first, second in itertools.product(((2, 3), (), (4,), (0, 2), (2, 1, 2)), repeat=2):
        a, b = (np.arange(np.prod(s, dtype=int)).reshape(s) + 1.0 for s in (first, second))
        same("outer", a, b)
    x = outcore.create(tmp_path / "x.npy", data=np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(np.outer(x[...], [1, 2]), outcore.outer(x, [1, 2])[...])
    for budget in (100, 48 * 4):
        with pytest.raises(outcore.BudgetError, match="are flattened") as refused:
            outcore.outer(x, [1, 2], memory=budget)
        found = outcore.outer(x, [1, 2], memory=refused.value.needed)
        np.testing.assert_array_equal(np.outer(x[...], [1, 2]), found[...])


def test_axes_of_filters_in_any_order():
    data = np.random.default_rng(1).random((6, 7, 8))
    footprint = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 0], [0, 1, 1, 1, 1]], bool)
    for axes, origin in itertools.product(((1, 0), (2, 0), (0, 2), (-1, 1)), (0, (1, -1))):
        words = {"axes": axes, "origin": origin}
        for name, more in (
            ("correlate", {"weights": footprint * 1.5}),
            ("convolve", {"weights": footprint[:, :4] * 1.5}),
            ("median_filter", {"size": (3, 5)}),
            ("rank_filter", {"rank": 2, "size": (3, 5)}),
            ("percentile_filter", {"percentile": 30, "size": (3, 4)}),
            ("minimum_filter", {"size": (3, 5)}),
            ("maximum_filter", {"footprint": np.ones((3, 5), bool)}),
            ("maximum_filter", {"footprint": footprint}),
            ("uniform_filter", {"size": (3, 5)}),
        ):
            found = find_public(name)(data, **more, **words)[...]
            wanted = getattr(ndimage, name)(data, **more, **words)
            np.testing.assert_allclose(found, wanted, err_msg=f"{name} {words}", rtol=1e-13)
    plane = data[0]
    for name, origin in itertools.product(("correlate", "median_filter"), (0, (1, -1))):
        more = {"weights": footprint} if name == "correlate" else {"size": (3, 5)}
        words = {"axes": (1, 0), "origin": origin, **more}
        found = find_public(name)(plane, **words)[...]
        np.testing.assert_allclose(found, getattr(ndimage, name)(plane, **words), rtol=1e-13)


def test_a_bad_axis_is_numpys_error(tmp_path):
    a = np.ones((2, 3))
    x = outcore.create(tmp_path / "x.npy", data=a)
    calls = [
        *(lambda n=n, k=k: find_public(n)(a, axis=k) for n in FFTS for k in (2, -3)),
        *(lambda n=n: find_public(n)(a, axes=(0, 2)) for n in ("fftn", "rfftn", "irfft2")),
        *(lambda n=n: find_public(n)(a, axis=2) for n in ALONG),
        lambda: outcore.transpose(a, (0, 2)),
        lambda: outcore.tensordot(a, a, ((2,), (0,))),
        lambda: x.take([0], axis=2),
        lambda: outcore.quantile(a, 0.5, axis=2),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(np.exceptions.AxisError) as refused:
            call()
        assert isinstance(refused.value, outcore.errors.AxisError), number
        assert isinstance(refused.value, IndexError) and refused.value.code == "bad-axis"
        assert str(refused.value).startswith("[bad-axis] ")


FFTS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
ALONG = ("sum", "mean", "min", "argmax", "cumsum", "sort", "argsort", "nanmedian", "unique")
