"""Different sub-arrays along an axis, beside NumPy."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sorting import FORMATS, budget, content, same, stored

import outcore
from outcore import _core, cli
from outcore.compute.sort.records import PIECE, Records, cut_records, merge_records, sort_records

DTYPES = ["?", "i1", "u2", ">i4", "i8", "u8", "f2", "f4", ">f8", "f8", "c8", "c16", ">c16"]
DTYPES += ["M8[s]", "m8[s]"]
EMPTY = [(0, 3), (3, 0), (2, 0, 3), (0, 0)]
SHAPES = [(7, 3), (1, 9), (9, 1), (12, 11), (64, 3, 17), (3, 4, 5, 6)]
LONG = [(20011, 2), (3, 7001), (3001, 5, 3), (40, 2 * PIECE + 3), (2, 5003, 2)]


def drawn(shape, dtype, rng, few):
    """Content in which sub-arrays are equal: some of few of them."""
    data = content(shape, dtype, rng, few)
    axis = int(rng.integers(len(shape)))
    if data.size and rng.random() < 0.7:
        some = rng.integers(0, max(shape[axis] // 3, 1), shape[axis])
        data = np.take(data, some, axis)
    return data, axis - len(shape) * int(rng.integers(2))


@settings(max_examples=120)
@given(
    st.sampled_from(EMPTY + SHAPES + LONG),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["smallest", "2 MiB", "64 MiB"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, name, memory, few, equal_nan, seed):
    folder, rng = tmp_path_factory.mktemp("u"), np.random.default_rng(seed)
    data, axis = drawn(shape, dtype, rng, few)
    expected = np.unique(data, True, True, True, axis=axis, equal_nan=equal_nan)
    with stored(folder, data, name, rng) as a:

        def call(**words):
            words = {"axis": axis, "equal_nan": equal_nan, **words}
            return outcore.unique(a, True, True, True, **words)

        held = budget(call, memory) if data.size else "1 MiB"
        for one, other in zip(expected, call(memory=held), strict=True):
            assert one.shape == other.shape
            same(one, other[...])
        held = budget(lambda **words: outcore.unique(a, axis=axis, **words), memory)
        alone = outcore.unique(a, axis=axis, memory=held, out=f"{folder}/u.npy")
        same(expected[0], alone[...])


@pytest.mark.parametrize("name", ["index", "inverse", "counts"])
def test_each_result_alone_is_the_same(name):
    data = np.random.default_rng(3).integers(0, 3, (5000, 4))
    word = {f"return_{name}": True}
    expected = np.unique(data, axis=0, **word)
    found = outcore.unique(data, axis=0, memory="1 MiB", **word)
    for one, other in zip(expected, found, strict=True):
        same(one, other[...])


@pytest.mark.parametrize("dtype", ["S3", "U2"])
def test_text(dtype):
    rng = np.random.default_rng(5)
    data = np.array(["", "a", "ab", "b", "\x7f"], dtype)[rng.integers(0, 5, (300, 3))]
    for axis in (0, 1):
        expected = np.unique(data, True, True, True, axis=axis)
        found = outcore.unique(data, True, True, True, axis=axis, memory="1 MiB")
        for one, other in zip(expected, found, strict=True):
            same(one, other[...])


def test_an_array_of_one_axis_has_elements():
    data = np.array([np.nan, 2.0, np.nan, 1.0])
    for axis in (0, -1):
        same(np.unique(data, axis=axis), outcore.unique(data, axis=axis)[...])
        expected = np.unique(data, axis=axis, equal_nan=False)
        same(expected, outcore.unique(data, axis=axis, equal_nan=False)[...])


def test_signs_of_zeros_and_nans_stay():
    """And of equal sub-arrays the first one is kept, if places are known."""
    data = np.array([[-0.0, 1], [0.0, 1], [0.0, 0], [-np.nan, -0.0], [np.nan, 0.0]])
    values, index = outcore.unique(data, return_index=True, axis=0)
    same(np.array([2, 0, 3, 4]), index[...])
    np.testing.assert_array_equal(np.signbit(data[[2, 0, 3, 4]]), np.signbit(values[...]))


@settings(max_examples=20)
@given(st.sampled_from(LONG), st.sampled_from(["f8", "c16", "i2"]), st.integers(0, 2**32))
def test_memory_makes_no_difference_to_any_bit(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    data, axis = drawn(shape, dtype, rng, few=True)
    data = np.ascontiguousarray(data)
    if data.dtype.kind in "fc":
        # Equal numbers of other bits.
        numbers = data.reshape(-1).view("f8")
        zero, nan = numbers == 0, np.isnan(numbers)
        numbers[zero] = rng.choice([0.0, -0.0], zero.sum())
        words = numbers.view("u8")
        words[nan] = 0x7FF8 << 48
        words[nan] |= rng.choice(np.array([0, 5, 1 << 63, 5 | 1 << 63], "u8"), nan.sum())
    for places in (False, True):

        def call(places=places, **words):
            found = outcore.unique(data, places, axis=axis, **words)
            return found[0] if places and isinstance(found, tuple) else found

        first = call(memory="64 MiB")[...]
        assert first.tobytes() == call(memory=budget(call, "smallest"))[...].tobytes()


def test_it_stays_within_memory(tmp_path):
    data = np.random.default_rng(1).integers(0, 2, (60_000, 12)).astype("f8")
    with outcore.create(tmp_path / "a.npy", data=data) as a:
        before = _core.memory_state()[0]
        _core.reset_memory_peak()
        found = outcore.unique(a, True, True, True, axis=0, memory="1 MiB")
        assert _core.memory_state()[2] - before <= 2**20
        for one, other in zip(np.unique(data, True, True, True, axis=0), found, strict=True):
            same(one, other[...])


@settings(max_examples=15)
@given(
    st.sampled_from(
        [((6, 30_000), 0), ((20_001, 9), 1), ((20, 30, 10, 40), 2), ((90, 5, 999), -3)]
    ),
    st.sampled_from(["?", "i1", ">i4", "f2", "f8", ">f4", "c16", "M8[s]"]),
    st.sampled_from(FORMATS),
    st.sampled_from(["smallest", "1 MiB"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_long_sub_arrays(tmp_path_factory, of, dtype, name, memory, few, seed):
    folder, rng, (shape, axis) = tmp_path_factory.mktemp("u"), np.random.default_rng(seed), of
    data = content(shape, dtype, rng, few=True)
    if few:
        data = np.take(data, rng.integers(0, 3, shape[axis]), axis)
        # Equal but for the last element.
        last = [slice(None, 2) if d == axis % len(shape) else -1 for d in range(len(shape))]
        data[tuple(last)] = 1
    expected = np.unique(data, True, True, True, axis=axis)
    with stored(folder, data, name, rng) as a:

        def call(**words):
            return outcore.unique(a, True, True, True, axis=axis, **words)

        for one, other in zip(expected, call(memory=budget(call, memory)), strict=True):
            same(one, other[...])


def test_a_sub_array_longer_than_memory_is_compared_in_parts():
    data = np.random.default_rng(2).integers(0, 2, (5, 150_000)).astype("f8")[[0, 3, 1, 3, 0, 4]]
    planned = outcore.unique(data, True, axis=0, memory="1 MiB", explain=True)
    assert "parts" in planned.report.method
    for one, other in zip(np.unique(data, True, axis=0), planned.run(), strict=True):
        same(one, other[...])


@pytest.mark.parametrize("shape", [(50, 30_000), (200_000, 3), (3000, 400)])
def test_who_asks_for_too_little_is_told_what_does(shape):
    data = np.random.default_rng(1).integers(0, 2, shape).astype("f8")
    with pytest.raises(outcore.BudgetError, match="needs") as refused:
        outcore.unique(data, axis=0, memory="100 KiB")
    assert refused.value.needed < data.nbytes
    same(np.unique(data, axis=0), outcore.unique(data, axis=0, memory=refused.value.needed)[...])


def test_the_command_takes_an_axis(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.array([[2, 5, 2], [1, 7, 1]])
    np.save("a.npy", data)
    assert cli.main(["run", "unique", "a.npy", "u.npy", "--axis", "1", "--json"]) == 0
    same(np.unique(data, axis=1), np.load("u.npy"))
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("axis", [2, -3, 0.5, "x"])
def test_what_is_no_axis_is_refused(axis):
    with pytest.raises(outcore.errors.UsageError, match="axis"):
        outcore.unique(np.zeros((2, 2)), axis=axis)


def test_what_has_no_order_is_refused():
    with pytest.raises(outcore.errors.UsageError, match="has no axes"):
        outcore.unique(np.float64(3), axis=0)
    with pytest.raises(outcore.errors.UnsupportedError, match="no order"):
        outcore.unique(np.zeros((2, 2), "g"), axis=0)


@settings(max_examples=60)
@given(
    st.sampled_from([*DTYPES, "S3", "U2"]),
    st.sampled_from([1, 2, 7, 8, 9, PIECE - 1, PIECE + 9]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_records_have_numpys_order_and_turn_back(dtype, elements, places, seed):
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype).newbyteorder("=")
    rows = 40 if elements < 100 else 5
    data = content((rows, elements), dtype, rng, few=True) if dtype.kind not in "SU" else None
    if data is None:
        data = np.array(["", "a", "ab", "b"], dtype)[rng.integers(0, 4, (rows, elements))]
    records = Records(dtype, elements, rows if places else None)
    block = np.zeros((rows, records.nbytes), "u1")
    records.encode(data, 0, block)
    sort_records(block, records.nbytes)
    out = np.empty_like(data)
    records.decode(block, np.arange(rows), out)
    fields = np.dtype([(f"f{n}", dtype) for n in range(elements)])
    order = np.argsort(data.view(fields)[:, 0], kind="stable")
    same(data[order], out)
    if places:
        np.testing.assert_array_equal(order, records.read_places(block))
    new = records.find_different(block[1:], block[:-1])
    apart = data[order].view(fields)[:, 0]
    np.testing.assert_array_equal(apart[1:] != apart[:-1], new)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**32))
def test_merges_and_cuts_of_records(lens, seed):
    rng, nbytes = np.random.default_rng(seed), 3
    runs = [rng.integers(0, 3, (n, nbytes)).astype("u1") for n in lens]
    for run in runs:
        sort_records(run, nbytes)
    loaded = np.concatenate(runs)
    every = loaded.reshape(-1).view(f"S{nbytes}")
    expected, order = np.sort(every, kind="stable"), np.argsort(every, kind="stable")
    wanted = list(range(0, len(every) + 3))
    cuts = np.empty((len(wanted), len(lens)), np.int64)
    if len(every):
        cut_records(loaded.reshape(-1), lens, wanted, cuts, nbytes)
        of_run = np.repeat(np.arange(len(lens)), lens)[order]
        for rank, found in zip(wanted, cuts, strict=True):
            np.testing.assert_array_equal(np.bincount(of_run[:rank], minlength=len(lens)), found)
        ends = np.cumsum(lens)
        parts = [(int(end - n), n) for end, n in zip(ends, lens, strict=True)]
        skipped = int(rng.integers(len(every)))
        out = np.empty((int(rng.integers(len(every) - skipped)) + 1, nbytes), "u1")
        merge_records(loaded.reshape(-1), parts, skipped, out.reshape(-1), nbytes)
        found = out.reshape(-1).view(f"S{nbytes}")
        np.testing.assert_array_equal(expected[skipped : skipped + len(found)], found)
