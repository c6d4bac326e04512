"""Places of values, and different elements, beside NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sorting import FORMATS, SHAPES, content, same, stored

import outcore

DTYPES = ["?", "i1", ">i4", "u8", "f4", ">f8", "c16", "M8[s]"]


@settings(max_examples=30)
@given(
    st.sampled_from([0, 1, 7, 1000, 70_001]),
    st.sampled_from([(), (0,), (1,), (5,), (40, 301), (3, 5, 7)]),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["smallest", "4 MiB"]),
    st.booleans(),
    st.sampled_from([None, "in memory", "on disk"]),
    st.integers(0, 2**32),
)
def test_places_are_numpys(
    tmp_path_factory, length, shape, dtype, name, side, memory, on_disk, sorted_by, seed
):
    folder, rng = tmp_path_factory.mktemp("s"), np.random.default_rng(seed)
    data = np.sort(content((length,), dtype, rng, few=bool(seed % 2)))
    data, sorter = data.astype(dtype), None
    if sorted_by is not None:
        data = rng.permutation(data)
        sorter = np.argsort(data, stable=True).astype(rng.choice(["i4", "u8"]))
    values = content(shape, dtype, rng, few=True)
    if np.dtype(dtype).kind == "f" and seed % 3:
        values = np.nan_to_num(values, posinf=9, neginf=-9).astype("i4")
    expected = np.searchsorted(data, values, side, None if sorter is None else sorter.astype("i8"))
    with stored(folder, data, name, rng) as a:
        v = values
        if on_disk and shape:
            v = outcore.create(f"{folder}/v.npy", data=values)
        if sorted_by == "on disk":
            sorter = outcore.create(f"{folder}/s.npy", data=sorter)
        if memory == "smallest":
            memory = "4 MiB"
            if on_disk and shape:
                try:
                    outcore.searchsorted(a, v, side, sorter, memory=1)
                except outcore.BudgetError as error:
                    memory = error.needed
        found = outcore.searchsorted(a, v, side, sorter, memory=memory)
        assert isinstance(found, outcore.DiskArray) == bool(on_disk and shape)
        same(np.asarray(expected), np.asarray(found[...]))


def test_few_values_read_little(tmp_path):
    data = np.sort(np.random.default_rng(4).random(4_000_000))
    a = outcore.create(tmp_path / "a.npy", data=data)
    values = np.array([[data[7], 2.0, -1.0], [data[-1], 0.5, data[3_999_000]]])
    for side in ("left", "right"):
        planned = outcore.searchsorted(a, values, side, explain=True)
        assert "between them" in planned.report.method
        same(np.searchsorted(data, values, side), planned.run())
    assert planned.report.read_bytes < data.nbytes / 8


def test_an_array_with_a_sorter_stays_as_it_is():
    data = np.random.default_rng(4).random(1000)
    before, order = data.copy(), np.argsort(data)
    same(
        np.searchsorted(data, data, "right", order),
        outcore.searchsorted(data, data, "right", order),
    )
    same(before, data)


def test_what_searchsorted_refuses():
    for words, match in (
        ({"side": "middle"}, "side"),
        ({"sorter": [0]}, "sorter"),
        ({"sorter": [0.0, 1.0]}, "sorter"),
        ({"sorter": [[0, 1]]}, "sorter"),
    ):
        with pytest.raises(outcore.errors.UsageError, match=match):
            outcore.searchsorted([1.0, 2.0], 1.5, **words)
    with pytest.raises(outcore.errors.UsageError, match="axes"):
        outcore.searchsorted(np.zeros((2, 2)), 1.5)
    with pytest.raises(outcore.errors.UsageError, match="cast"):
        outcore.searchsorted(np.zeros(3, "M8[s]"), 1.5)


@settings(max_examples=30)
@given(
    st.sampled_from([*SHAPES, (90_001,), (300, 301)]),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["4 MiB", "64 MiB"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_unique_is_numpys(tmp_path_factory, shape, dtype, name, memory, few, equal_nan, seed):
    folder, rng = tmp_path_factory.mktemp("s"), np.random.default_rng(seed)
    data = content(shape, dtype, rng, few)
    if np.dtype(dtype).kind == "c":
        # NumPy finds all of them equal that have a NaN anywhere; their order tells which one it keeps.
        data[np.isnan(data)] = complex(np.nan, np.nan)
    expected = np.unique(data, True, True, True, equal_nan=equal_nan)
    with stored(folder, data, name, rng) as a:
        found = outcore.unique(a, True, True, True, equal_nan=equal_nan, memory=memory)
        for one, other in zip(expected, found, strict=True):
            same(one, other[...])
        alone = outcore.unique(a, equal_nan=equal_nan, memory=memory, out=f"{folder}/u.npy")
        same(found[0][...], alone[...])


def test_groups_that_reach_over_blocks(tmp_path):
    data = np.repeat(np.arange(5), [300_000, 1, 200_000, 3, 100_000])
    found = outcore.unique(data, return_counts=True, memory="1 MiB")
    np.testing.assert_array_equal([300_000, 1, 200_000, 3, 100_000], found[1][...])


def test_what_unique_refuses(tmp_path):
    with pytest.raises(outcore.errors.UsageError, match="tuple of 2"):
        outcore.unique(np.zeros(2), return_counts=True, out=tmp_path / "u.npy")
