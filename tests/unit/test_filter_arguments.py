"""Every argument of the filters, as SciPy reads it."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

import outcore
from outcore.compute import jobs
from outcore.compute.blocks import blockwise
from outcore.public import find_public
from stopping import Stop

MODES = (
    "reflect",
    "constant",
    "nearest",
    "mirror",
    "wrap",
    "grid-mirror",
    "grid-constant",
    "grid-wrap",
)
RANKS = ("median_filter", "rank_filter", "percentile_filter", "minimum_filter", "maximum_filter")
#: What SciPy takes a mode for each axis for.
SEPARABLE = ("minimum_filter", "maximum_filter", "uniform_filter", "gaussian_filter")
LINES = (
    "uniform_filter1d",
    "gaussian_filter1d",
    "minimum_filter1d",
    "maximum_filter1d",
    "correlate1d",
    "convolve1d",
)
FILTERS = (*RANKS, "uniform_filter", "gaussian_filter", "generic_filter", "correlate", "convolve")


@pytest.mark.parametrize("name", [*FILTERS, *LINES])
def test_arguments_have_the_names_and_places_of_scipys(name: str) -> None:
    theirs = inspect.signature(inspect.unwrap(getattr(ndimage, name))).parameters
    mine = dict(inspect.signature(find_public(name)).parameters)
    assert {"out", "how"} == {one for one in mine if one not in theirs} - {"a"}
    places = [one for one in mine if mine[one].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    wanted = [one for one in theirs if theirs[one].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert ["a", *wanted[1:]] == places
    for one in wanted[1:]:
        assert theirs[one].default == mine[one].default


def last_less_first(window: NDArray[Any]) -> float:
    return float(window[-1] - window[0])


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    ndim = draw(st.integers(1, 4))
    shape = draw(st.tuples(*[st.integers(1, (40, 12, 7, 4)[ndim - 1])] * ndim))
    dtype = draw(st.sampled_from(["f4", "f8", ">f8", "i1", ">i2", "i4", "u1", "u2", "?"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(0, 50, shape).astype(dtype)
    return x.copy(order=draw(st.sampled_from("CF")))


def drawn(draw: Any, name: str, x: NDArray[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a filter."""
    ndim = x.ndim
    axes = draw(st.none() | st.lists(st.sampled_from(range(ndim)), unique=True))
    if axes is not None and name not in SEPARABLE:
        axes = sorted(axes)
    count = ndim if axes is None else len(axes)
    words: dict[str, Any] = {"cval": draw(st.sampled_from([0.0, 1.0]))}
    if axes is not None:
        signs = draw(st.lists(st.sampled_from([0, -ndim]), min_size=count, max_size=count))
        words["axes"] = tuple(a + b for a, b in zip(axes, signs, strict=True))
        if len(axes) == 1 and draw(st.booleans()):
            words["axes"] = axes[0]
    one = st.sampled_from(MODES)
    words["mode"] = draw(one)
    if name in SEPARABLE and draw(st.booleans()):
        words["mode"] = draw(st.tuples(*[one] * count))
    size = draw(st.tuples(*[st.integers(1, 5 if ndim < 3 else 3)] * count))
    # Windows that go several times around short axes, too.
    origin = tuple(draw(st.integers(-(n // 2), (n - 1) // 2)) for n in size)
    if name == "gaussian_filter":
        words["order"] = draw(st.sampled_from([0, 1]))
        words["truncate"] = draw(st.sampled_from([1.0, 3.0]))
        if draw(st.booleans()):
            words["radius"] = tuple(n // 2 for n in size)
        return [draw(st.tuples(*[st.sampled_from([0, 0.8, 1.5])] * count))], words
    words["origin"] = origin
    if name in ("correlate", "convolve"):
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        return [rng.integers(-3, 4, size) / 8], words
    words["size"] = size
    if name in RANKS and count and draw(st.booleans()):
        footprint = np.random.default_rng(draw(st.integers(0, 99))).random(size) < 0.6
        footprint.flat[0] = True
        if axes is None or axes == sorted(axes):
            words["footprint"] = footprint
            del words["size"]
            # SciPy takes one mode for windows that are no boxes.
            words["mode"] = words["mode"] if isinstance(words["mode"], str) else "nearest"
    given = {"rank_filter": [-1], "percentile_filter": [30], "generic_filter": [last_less_first]}
    return list(given.get(name, [])), words


def compare(
    name: str, x: NDArray[Any], args: list[Any], words: dict[str, Any], memory: int
) -> None:
    """SciPy's result beside the one in small blocks."""
    native = x.astype(x.dtype.newbyteorder("="))
    # SciPy's ranks in one dimension read past the end of lines that are shorter than the window.
    assume(not (name in RANKS and words["mode"] in ("mirror", ("mirror",)) and x.shape < (6,)))
    theirs = dict(words)
    # In one dimension they also write elements of the input's dtype as they are into the output.
    output = theirs.pop("output") if name in RANKS else None
    expected = getattr(ndimage, name)(native, *args, **theirs)
    if name in RANKS:
        expected = expected.astype(output or native.dtype)
    with mock.patch.object(blockwise, "SMALLEST", 64):
        try:
            actual = find_public(name)(x, *args, **words, memory=memory)
        except outcore.BudgetError as error:
            actual = find_public(name)(x, *args, **words, memory=error.needed)
    assert expected.dtype == actual.dtype
    if "uniform" in name and expected.dtype.kind == "f":
        np.testing.assert_allclose(actual[...], expected, rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_array_equal(expected, actual[...])


@pytest.mark.parametrize("name", FILTERS)
def test_filters_take_what_scipys_take(name: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(st.data(), arrays(), st.integers(500, 6000))
    def check(data: st.DataObject, x: NDArray[Any], memory: int) -> None:
        args, words = drawn(data.draw, name, x)
        kinds: list[Any] = [None, "f8", np.float32]
        if "uniform" not in name or x.dtype.kind in "iub":
            kinds.append("i4")
        words["output"] = data.draw(st.sampled_from(kinds))
        compare(name, x, args, words, memory)

    check()


@pytest.mark.parametrize("name", LINES)
def test_filters_of_lines_are_scipys(name: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(st.data(), arrays(), st.integers(500, 6000))
    def check(data: st.DataObject, x: NDArray[Any], memory: int) -> None:
        n = data.draw(st.integers(1, 9))
        words: dict[str, Any] = {
            "axis": data.draw(st.integers(-x.ndim, x.ndim - 1)),
            "mode": data.draw(st.sampled_from(MODES)),
            "cval": 1.0,
            "output": data.draw(st.sampled_from([None, "f8", np.float32])),
        }
        args: list[Any] = [n]
        if name == "gaussian_filter1d":
            args = [data.draw(st.sampled_from([0.7, 1.5]))]
            words["order"] = data.draw(st.integers(0, 2))
            words["radius"] = data.draw(st.sampled_from([None, 2]))
        else:
            words["origin"] = data.draw(st.integers(-(n // 2), (n - 1) // 2))
        if name == "convolve1d":
            words["origin"] = 0
        if "1d" in name and name.startswith("co"):
            rng = np.random.default_rng(data.draw(st.integers(0, 99)))
            args = [rng.integers(-3, 4, n) / 8]
        compare(name, x, args, words, memory)

    check()


@pytest.mark.parametrize("name", ["median_filter", "minimum_filter"])
def test_each_axis_can_have_its_own_mode(name: str) -> None:
    """Of windows that are no boxes too, which SciPy does not take."""
    x = np.random.default_rng(3).random((9, 11))
    footprint = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    wide = np.pad(np.pad(x, ((1, 1), (0, 0)), "wrap"), ((0, 0), (1, 1)), "edge")
    expected = getattr(ndimage, name)(wide, footprint=footprint)[1:-1, 1:-1]
    with mock.patch.object(blockwise, "SMALLEST", 64):
        actual = find_public(name)(x, footprint=footprint, mode=("wrap", "nearest"), memory=11_000)
    np.testing.assert_array_equal(expected, actual[...])


def test_a_window_may_go_many_times_around() -> None:
    x = np.arange(6.0).reshape(2, 3)
    expected = ndimage.uniform_filter(x, (31, 1), mode="wrap")
    np.testing.assert_allclose(
        outcore.ndimage.uniform_filter(x, (31, 1), mode="wrap")[...], expected
    )
    expected = ndimage.maximum_filter(x, (1, 9), mode="wrap")
    np.testing.assert_array_equal(
        expected, outcore.ndimage.maximum_filter(x, (1, 9), mode="wrap")[...]
    )


def test_what_wraps_is_read_once_if_blocks_have_all_of_the_axis(tmp_path: Any) -> None:
    x = np.random.default_rng(2).random((4000, 100))
    np.save(tmp_path / "a.npy", x)
    planned = outcore.ndimage.median_filter(
        tmp_path / "a.npy", 5, mode=("nearest", "wrap"), memory="900 kB", explain=True
    )
    assert planned.report.steps > 4
    assert x.nbytes == planned.report.read_bytes
    found = planned.run()
    expected = ndimage.median_filter(np.pad(x, 2, "edge"), 5)  # not at the columns' ends
    np.testing.assert_array_equal(expected[2:-2, 4:-4], found[:, 2:-2])


def test_output_may_be_the_array_itself(tmp_path: Any) -> None:
    x = (np.random.default_rng(2).random((30, 20)) * 200).astype("u1")
    places = np.empty(x.shape)
    assert outcore.ndimage.uniform_filter(x, 3, places) is places
    np.testing.assert_allclose(places, ndimage.uniform_filter(x, 3, float))
    with outcore.create(tmp_path / "b.npy", x.shape, ">f4") as b:
        assert outcore.ndimage.gaussian_filter(x, 1, output=b) is b
        np.testing.assert_array_equal(b[...], ndimage.gaussian_filter(x, 1, output=np.float32))
    with outcore.create(tmp_path / "c.npy", x.shape, "f4") as c:
        # Where the result goes casts what was computed.
        outcore.ndimage.uniform_filter(x, 3, out=c)
        np.testing.assert_array_equal(c[...], ndimage.uniform_filter(x, 3))


@pytest.mark.parametrize("mode", ["constant", ("constant", "wrap"), ("nearest", "constant")])
def test_beyond_an_end_is_the_constant_for_each_axis_anew(mode: Any) -> None:
    """What was derived along the axis before would be 0 there."""
    x = np.random.default_rng(3).random((9, 11))
    words = {"order": (1, 0), "mode": mode, "cval": 1.0}
    expected = ndimage.gaussian_filter(x, 1.0, **words)
    np.testing.assert_array_equal(expected, outcore.ndimage.gaussian_filter(x, 1.0, **words)[...])


@pytest.mark.parametrize("name", ["median_filter", "uniform_filter", "correlate", "generic_filter"])
def test_predictions_count_what_is_computed(name: str) -> None:
    """A user's function is not called for them."""
    x = np.random.default_rng(3).random((300, 200))
    called = []

    def function(window: NDArray[Any]) -> float:
        called.append(1)
        return 0.0

    what = {"correlate": np.ones((9, 9))}.get(name, 9)
    args = (function, what) if name == "generic_filter" else (what,)
    small = find_public(name)(x, *args, explain=True).report
    assert x.size == small.operations
    assert not called
    moving = outcore.ndimage.median_filter(x, 1, explain=True).report
    assert (small.read_bytes, small.written_bytes) == (moving.read_bytes, moving.written_bytes)
    if name == "correlate":
        assert small.seconds > moving.seconds  # 81 products of each element


#: Arguments that a journal has to know to go on.
RESUMED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "uniform_filter": ((5,), {"output": "f4", "axes": (1,), "mode": ("wrap",)}),
    "uniform_filter1d": ((5,), {"axis": 0, "output": "f4", "mode": "wrap"}),
    "gaussian_filter": ((1.5,), {"axes": (1, 0), "mode": ("wrap", "constant"), "cval": 2.0}),
    "gaussian_filter1d": ((1.5,), {"axis": 0, "order": 1}),
    "maximum_filter1d": ((4,), {"axis": 1, "origin": 1}),
    "convolve": (([1.0, 2, 4],), {"axes": 0}),
    "rank_filter": ((3,), {"footprint": np.array([[0, 1, 1], [1, 1, 0]], bool)}),
    "percentile_filter": ((30,), {"size": (2, 3), "axes": (1, 0)}),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_journal_knows_all_arguments(name: str, tmp_path: Any) -> None:
    args, words = RESUMED[name]
    source, target = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(source, np.random.default_rng(0).random((900, 500)))
    called = []

    def stop(done: int, total: int) -> None:
        called.append(done)
        if len(called) > 2:
            raise Stop

    call = find_public(name)
    with pytest.raises(Stop):
        call(source, *args, **words, out=target, memory="1 MiB", progress=stop)
    (one,) = jobs.unfinished(tmp_path)
    assert 0 < one.done < one.steps
    assert [str(target)] == jobs.resume(tmp_path)
    np.testing.assert_array_equal(call(source, *args, **words)[...], np.load(target))
