"""Sorting, beside NumPy."""

import importlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore.compute.sort import runs
from outcore.public import find_public
from schedule_check import check_schedule

SHAPES = [(), (0,), (1,), (7,), (1, 9), (9, 1), (5, 0, 3), (12, 11), (64, 3, 17), (3, 4, 5, 6)]
LONG = [(20011,), (3, 7001), (7001, 3), (2, 5003, 2), (101, 211), (70001,)]
DTYPES = ["?", "i1", "u2", ">i4", "i8", "u8", "f2", "f4", ">f8", "f8", "c8", ">c16", "M8[s]"]
FORMATS = ["a.npy", "a.zarr", "a.h5::/x"]


def content(shape, dtype, rng, few):
    """Numbers with NaN, infinities and both zeros; few different ones, or many."""
    dtype, size = np.dtype(dtype), math.prod(shape)
    bits = rng.integers(0, 256, (size, dtype.itemsize), dtype=np.uint8)
    if dtype.kind == "b":
        data = bits[:, 0] > 127
    elif dtype.kind in "fc" and not few:
        data = (rng.standard_normal(size) * 100).astype(dtype)
    else:
        data = np.ascontiguousarray(bits).view(dtype.newbyteorder("="))[:, 0].astype(dtype)
    if few and dtype.kind != "b":
        special = [0, 1, 3, 5, 7]
        if dtype.kind in "fc":
            special += [-0.0, np.nan, np.inf, -np.inf, -3]
        if dtype.kind == "c":
            special += [complex(np.nan, 1), complex(2, np.nan), complex(-0.0, -1), complex(0, -2)]
        if dtype.kind == "M":
            special = np.array([3, -3, "NaT", 0], dtype)
        data = np.array(special).astype(dtype)[rng.integers(0, len(special), size)]
    return data.reshape(shape)


def stored(folder, data, name, rng):
    words = {}
    if "npy" in name:
        words["order"] = rng.choice(["C", "F"])
    elif data.ndim and data.size:
        words["chunks"] = tuple(int(rng.integers(max(n // 4, 1), n + 1)) for n in data.shape)
        words["compression"] = "zstd"
    return outcore.create(f"{folder}/{name}", data=data, **words)


def budget(call, memory):
    """The smallest budget that does; or a number, unless that is too small for large chunks."""
    try:
        call(memory=1 if memory == "smallest" else memory, explain=True)
    except outcore.BudgetError as refused:
        return refused.needed
    return memory


def same(expected, found):
    """Of equal value; -0.0 is 0.0, and each NaN is a NaN."""
    assert expected.dtype == found.dtype
    np.testing.assert_array_equal(expected, found)


@settings(max_examples=120)
@given(
    st.sampled_from(SHAPES + LONG),
    st.sampled_from(DTYPES),
    st.sampled_from(FORMATS),
    st.sampled_from(["b.npy", "b.zarr", None]),
    st.sampled_from(["smallest", "2 MiB", "64 MiB"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_it_is_numpys(tmp_path_factory, shape, dtype, source, target, memory, few, seed):
    folder, rng = tmp_path_factory.mktemp("s"), np.random.default_rng(seed)
    data = content(shape, dtype, rng, few)
    axis = rng.choice([None, *range(-len(shape), len(shape))])
    with stored(folder, data, source, rng) as a:
        for name, numpys in (("sort", np.sort), ("argsort", np.argsort)):

            def call(name=name, **words):
                if target is not None:
                    words["out"] = f"{folder}/{name}-{target}"
                return find_public(name)(a, axis, **words)

            held = budget(call, memory) if data.size else "1 MiB"
            with call(memory=held) as b:
                same(numpys(data, axis, kind="stable"), b[...])


@settings(max_examples=30)
@given(
    st.sampled_from(LONG),
    st.sampled_from(["f8", "c16", "f4", "i2"]),
    st.integers(0, 2**32),
)
def test_memory_makes_no_difference_to_any_bit(tmp_path_factory, shape, dtype, seed):
    folder, rng = tmp_path_factory.mktemp("s"), np.random.default_rng(seed)
    data = content(shape, dtype, rng, few=True)
    axis = int(rng.integers(len(shape)))
    with stored(folder, data, "a.npy", rng) as a:
        first = outcore.sort(a, axis, memory="64 MiB")[...]
        least = budget(lambda **words: outcore.sort(a, axis, **words), "smallest")
        again = outcore.sort(a, axis, memory=least)[...]
    assert first.tobytes() == again.tobytes()
    # Nor is any bit lost: the words are those of the source (NumPy's own sort makes one NaN of all).
    word = f"u{data.itemsize // (1 + (data.dtype.kind == 'c'))}"
    assert np.array_equal(*(np.sort(one.reshape(-1).view(word)) for one in (data, first)))


@pytest.fixture
def checked(monkeypatch):
    """Every schedule that is run is checked: its steps may be done again."""
    carry, found = importlib.import_module("outcore.compute.jobs.carry"), []

    def run(schedule, arrays, plain=carry.ScheduleRun, **more):
        stored = {one.array for k in range(schedule.steps) for one in schedule.step(k).stores}
        shapes = [a.shape for a in arrays[: len(schedule.arrays)]]
        check_schedule(schedule, shapes, stored & {1}, again=True)
        found.append(schedule.name)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    return found


def test_many_passes(tmp_path, checked):
    data = np.random.default_rng(1).integers(0, 1000, 300_000)
    planned = outcore.sort(data, memory="400 KiB", out=tmp_path / "b.npy", explain=True)
    assert "passes" in planned.report.method
    same(np.sort(data), planned.run()[...])
    same(np.argsort(data, kind="stable"), outcore.argsort(data, memory="400 KiB")[...])
    assert len(checked) > 5


@pytest.mark.parametrize("size", [1_310_721, 1_310_720])
def test_parts_of_runs_lie_in_their_pages_as_in_the_file(tmp_path, monkeypatch, size):
    """The disk puts them there, and takes from there what is stored; nothing is copied."""
    carry, phases = importlib.import_module("outcore.compute.jobs.carry"), []

    def run(schedule, arrays, plain=carry.ScheduleRun, **more):
        begins = [getattr(a, "info", a) for a in arrays]
        begins = [one.layout.parts[0].offset for one in begins]
        for n in range(schedule.steps):
            step = schedule.step(n)
            for block in {one.block for one in (*step.loads, *step.stores)}:
                if schedule.buffers[step.blocks[block].buffer].nbytes < 2**20:
                    continue  # samples
                # What lies at the beginning of the block, by each of its loads and stores.
                first = set()
                for one in (*step.loads, *step.stores):
                    if one.block == block:
                        there = begins[one.array] + 8 * one.section[-1].start
                        first.add((there - 8 * (one.at[-1].start if one.at else 0)) % 4096)
                assert len(first) == 1
                assert first.pop() % 16 == 0
                phases.append(schedule.name)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    data = np.random.default_rng(2).random(size)
    np.save(tmp_path / "a.npy", data)
    found = outcore.sort(tmp_path / "a.npy", memory="12 MiB", out=tmp_path / "b.npy")
    same(np.sort(data), found[...])
    assert {"sort: runs", "sort: merge"} == set(phases)


@settings(max_examples=60)
@given(st.data())
def test_cuts_lie_where_samples_say(data):
    distance = data.draw(st.integers(1, 9))
    lens = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=7))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    every = [np.sort(rng.integers(0, data.draw(st.integers(1, 400)), n)) for n in lens]
    total = sum(lens)
    inner = data.draw(st.lists(st.integers(0, total), max_size=6))
    ranks = [0, *sorted(inner), total]
    samples = np.concatenate([run[distance - 1 :: distance] for run in every]).astype("u8")
    words = runs.WordLayout.for_elements(np.dtype("u8"))
    least, most = runs.find_cuts(samples, lens, distance, ranks, words)
    of_run = np.repeat(np.arange(len(lens)), lens)
    order = of_run[np.lexsort((of_run, np.concatenate(every)))]
    for row, rank in enumerate(ranks):
        exact = np.bincount(order[:rank], minlength=len(lens))
        assert (least[row] <= exact).all() and (exact <= most[row]).all()
    # What is loaded beside a section is bounded.
    beside = (most[1:] - least[:-1]).sum(1) - np.diff(ranks)
    assert (beside <= runs.count_excess(distance, len(lens))).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_places_of_equal_elements_ascend(dtype):
    """Zeros of both signs are equal, and all NaNs, whatever their bits are."""
    rng = np.random.default_rng(4)
    data = np.array([0.0, -0.0, np.nan, -np.nan, 1.0], dtype)[rng.integers(0, 5, 60_000)]
    for memory in ("1 MiB", "64 MiB"):
        same(np.argsort(data, kind="stable"), outcore.argsort(data, memory=memory)[...])


@pytest.mark.parametrize("dtype", [">f8", "i2"])
@pytest.mark.parametrize(("shape", "axis"), [((601, 1031), 0), ((3, 421, 13, 37), 1)])
def test_lines_across_a_file_that_the_page_cache_does_not_hold(
    tmp_path, monkeypatch, checked, shape, axis, dtype
):
    """They go by arrays of slabs, in long runs."""
    data = content(shape, dtype, np.random.default_rng(5), few=False)
    a = outcore.create(tmp_path / "a.npy", data=data)
    shares = importlib.import_module("outcore.compute.jobs.shares")
    monkeypatch.setattr(shares._Sharing, "page", lambda self: 4096)
    for name, numpys in (("sort", np.sort), ("argsort", np.argsort)):
        words = {"memory": "1 MiB", "out": tmp_path / f"{name}.npy"}
        planned = find_public(name)(a, axis, explain=True, **words)
        assert "slabs of long runs" in planned.report.method
        with planned.run() as b:
            same(numpys(data, axis, kind="stable"), b[...])
        # Twice the array, and what is read for pages that are written in part.
        assert planned.report.read_bytes <= 4.1 * max(data.nbytes, b.nbytes)
        done = planned.report.measured
        assert done.read_bytes <= 1.1 * planned.report.read_bytes


def test_text_and_records_in_memory():
    text = np.array([["pear", "fig"], ["apple", "kiwi"]])
    for axis in (0, 1, None):
        same(np.sort(text, axis), outcore.sort(text, axis)[...])
        same(np.argsort(text, axis, kind="stable"), outcore.argsort(text, axis)[...])
    records = np.array([(2, 1.0), (1, 5.0), (1, 2.0)], [("a", "i4"), ("b", "f8")])
    same(np.sort(records), outcore.sort(records)[...])


def test_what_is_refused(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.arange(6.0).reshape(2, 3))
    for axis in (2, -3, "x", 1.5):
        with pytest.raises(outcore.errors.UsageError, match="axis") as error:
            outcore.sort(a, axis)
        assert error.value.code == "bad-axis"
    with pytest.raises(outcore.errors.UsageError, match="unknown kind"):
        outcore.argsort(a, kind="bogo")
    with pytest.raises(outcore.errors.UsageError, match="not both"):
        outcore.sort(a, kind="stable", stable=True)
    with pytest.raises(outcore.errors.UnsupportedError, match="no order"):
        outcore.sort(np.zeros(3, "V5"))
    with pytest.raises(outcore.errors.UsageError):
        outcore.sort(a, out=a)
    same(np.arange(6.0).reshape(2, 3), a[...])


def test_long_lines_are_read_twice_and_written_twice(tmp_path):
    data = np.random.default_rng(2).random(1_000_000)
    outcore.create(tmp_path / "a.npy", data=data)
    planned = outcore.sort(tmp_path / "a.npy", memory="4 MiB", out=tmp_path / "b.npy", explain=True)
    report = planned.report
    # Samples of the runs, and what a merge reads beside its section.
    assert 2 * data.nbytes <= report.read_bytes <= 2.04 * data.nbytes
    assert 2 * data.nbytes <= report.written_bytes <= 2.01 * data.nbytes
    assert data.nbytes * 2 <= report.lower_bound_bytes <= data.nbytes * 4
    same(np.sort(data), planned.run()[...])
    measured = planned.report.measured
    # What is read again of the temporary array is no write, though it may be mapped.
    assert 2 * data.nbytes <= measured.read_bytes <= report.read_bytes
    assert 2 * data.nbytes <= measured.written_bytes <= report.written_bytes
    assert measured.peak_bytes <= 4 << 20


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_an_interrupted_merge_goes_on(tmp_path, monkeypatch, name):
    data = np.random.default_rng(3).integers(0, 5000, 200_000)
    outcore.create(tmp_path / "a.npy", data=data)
    words = {"memory": "1 MiB", "out": tmp_path / "b.npy"}
    call = find_public(name)
    real, calls = runs._MergeKernel.__call__, []

    def fails(self, blocks, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, blocks, *arguments)

    monkeypatch.setattr(runs._MergeKernel, "__call__", fails)
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path / "a.npy", **words)
    with call(tmp_path / "a.npy", resume=True, **words) as b:
        same(getattr(np, name)(data, kind="stable"), b[...])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy"]
