"""Schedules of accesses by indices: gather, scatter, files; against NumPy."""

import numpy as np
import pytest

import outcore
from outcore.index_schedule import COMBINES
from outcore.schedule_files import runs_of

FORMATS = {
    "npy": ("a.npy", {}),
    "fortran": ("a.npy", {"order": "F"}),
    "raw": ("a.raw", {}),
    "zarr": ("a.zarr", {"chunks": (7, 5)}),
    "zstd": ("a.zarr", {"chunks": (7, 5), "compression": "zstd"}),
    "shards": ("a.zarr", {"chunks": (4, 5), "shards": (8, 10), "compression": "zstd"}),
    "hdf5": ("a.h5::/x", {"chunks": (7, 5)}),
    "gzip": ("a.h5::/x", {"chunks": (7, 5), "compression": "gzip"}),
    "contiguous": ("a.h5::/x", {}),
}
DATA = np.arange(33 * 17.0).reshape(33, 17)
KEYS = [
    np.s_[[5, 0, 32, 5, -1]],
    np.s_[:, [3, 3, 16]],
    np.s_[[1, 2, 3], [4, 5, 4]],
    np.s_[np.ix_([4, 30, 2], [1, 0])],
    np.s_[DATA % 7 == 0],
    np.s_[[[1, 2], [3, 1]], 2::3],
    np.s_[[9, 1], ::-2],
    np.s_[np.array([], int)],
]


@pytest.fixture(params=FORMATS, ids=FORMATS.keys())
def array(request, tmp_path):
    name, options = FORMATS[request.param]
    with outcore.create(str(tmp_path / name), data=DATA, **options) as a:
        yield a


def test_schedules_read_and_write_what_keys_mean(array):
    expected = DATA.copy()
    for number, key in enumerate(KEYS):
        schedule = array.schedule(key)
        assert np.array_equal(expected[key], schedule.gather())
        assert schedule.shape == expected[key].shape
        values = 1000.0 * number + np.arange(expected[key].size).reshape(expected[key].shape)
        schedule.scatter(values)
        expected[key] = values
        out = np.full(expected[key].shape, -1.0)
        assert schedule.gather(out) is out
        assert np.array_equal(expected[key], out)
        turned = np.empty(out.shape[::-1]).T
        assert np.array_equal(expected[key], schedule.gather(turned))
    assert np.array_equal(expected, array[...])


@pytest.mark.parametrize("combine", ["last", *COMBINES])
def test_values_for_one_element_are_combined_in_the_order_of_the_list(array, combine):
    expected = DATA.copy()
    rng = np.random.default_rng(3)
    for key in (np.s_[[5, 0, 5, 5, 32]], np.s_[[3, 3, 3], [4, 4, 5]], np.s_[:, [2, 2]]):
        values = rng.standard_normal(expected[key].shape) * 10.0 ** rng.integers(-9, 9)
        array.schedule(key).scatter(values, combine)
        if combine == "last":
            expected[key] = values
        else:
            COMBINES[combine].at(expected, key, values)
    # To the last bit.
    assert expected.tobytes() == array[...].tobytes()


def test_one_schedule_serves_arrays_of_other_layouts_and_types(tmp_path):
    first = outcore.create(str(tmp_path / "first.npy"), data=DATA)
    schedule = first.schedule([8, 3, 8])
    others = [
        outcore.create(str(tmp_path / f"{k}{name}"), data=(DATA + k).astype("f4"), **options)
        for k, (name, options) in enumerate(FORMATS.values())
    ]
    for k, other in enumerate(others):
        for _ in range(2):
            told = schedule.gather(of=other)
            assert told.dtype == np.float32
            assert np.array_equal((DATA + k).astype("f4")[[8, 3, 8]], told)
    # Those of one layout and type share what was made: a dense one, and one for each grid of chunks.
    assert len(schedule._made) < 2 + len(others)
    with pytest.raises(outcore.errors.UsageError, match="shape"):
        schedule.gather(of=outcore.create(str(tmp_path / "small.npy"), (3, 3), "f8"))


def test_a_schedule_is_saved_as_runs_and_opened(tmp_path):
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    ways = {
        "runs": np.s_[DATA > 100],
        "single": np.s_[[5, 9, 1], 1:],
        "none": np.s_[np.array([], int)],
    }
    for name, key in ways.items():
        path = tmp_path / f"{name}.npz"
        a.schedule(key).save(path)
        again = outcore.IndexSchedule.open(path, a)
        assert np.array_equal(DATA[key], again.gather())
        with np.load(path) as file:
            assert ("starts0" in file.files) == (name == "runs")
    assert (tmp_path / "runs.npz").stat().st_size < 2000
    a.schedule([0]).save(tmp_path / "runs.npz")  # replaced
    assert np.array_equal(DATA[[0]], outcore.IndexSchedule.open(tmp_path / "runs.npz", a).gather())
    (tmp_path / "bad.npz").write_bytes((tmp_path / "runs.npz").read_bytes()[:-40])
    with pytest.raises(outcore.errors.FormatError, match="no schedule"):
        outcore.IndexSchedule.open(tmp_path / "bad.npz", a)
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(outcore.errors.FormatError, match="no schedule"):
        outcore.IndexSchedule.open(tmp_path / "other.npz", a)


def test_what_is_wrong_is_said_and_nothing_is_written(tmp_path):
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    with pytest.raises(IndexError, match=r"33.*position 1|position 1.*33"):
        a.schedule([0, 33])
    with pytest.raises(outcore.errors.UsageError, match="arrays of indices"):
        a.schedule(np.s_[1:3])
    schedule = a.schedule([2, 3])
    with pytest.raises(outcore.errors.UsageError, match="broadcast"):
        schedule.scatter(np.zeros((3, 17)))
    with pytest.raises(outcore.errors.UsageError, match="combine"):
        schedule.scatter(0.0, "sum")
    with pytest.raises(outcore.errors.UsageError, match="mode 'r'"):
        schedule.scatter(0.0, of=outcore.open(str(tmp_path / "a.npy")))
    with pytest.raises(outcore.errors.UsageError, match="dtype"):
        schedule.gather(np.empty((2, 17), "f4"))
    assert np.array_equal(DATA, a[...])
    a.close()
    with pytest.raises(outcore.errors.UsageError, match="closed"):
        schedule.gather()


def test_what_a_schedule_takes_is_counted_in_the_budget(tmp_path):
    a = outcore.create(str(tmp_path / "a.npy"), (1000,), "f8")
    before = outcore._core.memory_state()[0]
    schedule = a.schedule(np.arange(999, -1, -1).repeat(50))
    held = outcore._core.memory_state()[0] - before
    assert held >= schedule.nbytes > 50_000 * 8
    del schedule
    assert outcore._core.memory_state()[0] - before <= 0


def test_runs_of_indices():
    starts, lengths = runs_of(np.array([3, 4, 5, 9, 8, 9]))
    assert (starts.tolist(), lengths.tolist()) == ([3, 9, 8], [3, 1, 2])
    assert runs_of(np.array([], np.int64))[1].size == 0
