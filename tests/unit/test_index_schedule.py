"""Schedules of accesses by indices: gather, scatter, files; against NumPy."""

import contextlib
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

import outcore
from outcore.arrays.indices.lists.kept import expand_runs, find_runs
from outcore.arrays.indices.lists.stored import ListLimits, StoredList, cut_ranges, find_cuts
from outcore.arrays.indices.schedule import COMBINES
from outcore.arrays.indices.schedule_files import iterate_runs
from outcore.formats import scratch

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
    assert len(schedule._prepared.schedules) < 2 + len(others)
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
    with pytest.raises(outcore.errors.FormatError, match="not a valid schedule"):
        outcore.IndexSchedule.open(tmp_path / "bad.npz", a)
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(outcore.errors.FormatError, match="not a valid schedule"):
        outcore.IndexSchedule.open(tmp_path / "other.npz", a)


HOSTILE = [
    *({"axes": axes} for axes in ([5], [-1], [0, 0], ["x"], [0.0], 3, [1])),
    *({"points": points} for points in ([3, 1], [-3], [2**70], ["a"], [3.0])),
    *({"rest": [[0, 6, 1], last]} for last in ([0, 99, 1], [9, 10, 1], [0, -1, 1], [0, 2**70, 1])),
    *({"rest": rest} for rest in ([], [[0, 6, 1], [0, 4, 0]], [[0, 6, 1], [-3, 4, 1]], [[0], [0]])),
    {"result": []},
    *(
        {"result": [["point", 0, False], *more]}
        for more in (
            [],
            [["array", 7, False]],
            [["array", 0, False]],
            [["x", 1, False]],
            [["array", 1, False], ["array", 1, False]],
            [["point", 0, False], ["array", 1, False]],
        )
    ),
    *({"mode": mode} for mode in ("x", ["x"])),
    *({"shape": shape} for shape in ([33], [6.5, 8], [-33, 8], [2**70, 8])),
    *(b"[" * 100_000, b"3", b"null", b"{}", b"\xff"),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_a_schedule_file_says_is_checked_before_it_is_believed(tmp_path, number):
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    path = tmp_path / "a.npz"
    a.schedule([4, 2, 4]).save(path)
    with np.load(path) as file:
        members = dict(file)
    said, change = json.loads(members["schedule"].tobytes()), HOSTILE[number]
    text = change if isinstance(change, bytes) else json.dumps(said | change).encode()
    np.savez(path, **(members | {"schedule": np.frombuffer(text, np.uint8)}))
    with pytest.raises(outcore.OutcoreError) as caught:
        outcore.IndexSchedule.open(path, a)
    assert caught.value.code in ("bad-schedule", "schedule-shape")


def header(text):
    """A member with a header that NumPy does not write."""
    raw = text.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw


def test_damaged_lists_of_a_schedule_file_are_refused(tmp_path):
    """Lists that are longer, or shorter, than others; headers that Python's tokenizer refuses."""
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    path = tmp_path / "a.npz"
    lists = {"points": ([4, 2, 4], [1, 0, 3]), "runs": np.r_[4:24, 26:33]}
    odd = {
        "a list that is shorter": ("points", {"indices1": np.array([1, 0])}),
        "a list that is longer": ("points", {"indices1": np.array([1, 0, 3, 1])}),
        "more lengths than runs": ("runs", {"lengths0": np.array([20, 6, 1])}),
        "more runs than lengths": ("runs", {"starts0": np.array([4, 26, 5])}),
        "an open string": ("points", {"indices0": header('{\'descr\': """')}),
        "an open bracket": ("points", {"indices0": header("{'descr': (")}),
        "deep": ("points", {"indices0": header("(" * 110)}),
        "deep signs": ("points", {"indices0": header("-" * 110 + "1")}),
    }
    for name, (kind, change) in odd.items():
        a.schedule(lists[kind]).save(path)
        with zipfile.ZipFile(path) as file:
            members = {one: file.read(one) for one in file.namelist()}
        for member, data in change.items():
            assert f"{member}.npy" in members, (name, sorted(members))
            raw = io.BytesIO()
            if isinstance(data, bytes):
                raw.write(data)
            else:
                np.save(raw, data)
            members[f"{member}.npy"] = raw.getvalue()
        with zipfile.ZipFile(path, "w") as file:
            for member, stored in members.items():
                file.writestr(member, stored)
        with pytest.raises(outcore.OutcoreError) as caught:
            outcore.IndexSchedule.open(path, a)
        assert caught.value.code == "bad-schedule", name


def test_a_zip_file_of_very_many_members_is_no_schedule(tmp_path):
    """`zipfile` would take 900 bytes for each, outside of the budget."""
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    a.schedule([4, 2, 4]).save(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        for number in range(20_000):
            file.writestr(f"{number}", b"")
    tracemalloc.start()
    try:
        with (
            outcore.memory("8 MiB"),
            pytest.raises(outcore.errors.FormatError, match="20002 members"),
        ):
            outcore.IndexSchedule.open(tmp_path / "a.npz", a)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_invalid_accesses_of_a_schedule_write_nothing(tmp_path):
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


@pytest.mark.parametrize("name", ["a.npy", "a.h5::/d", "a.zarr"])
@pytest.mark.parametrize("what", ["int64", "int32", "mask", "saved"])
def test_neighbours_are_kept_as_runs(tmp_path, name, what):
    """40 runs of 1000, some of them overlapping; a mask has those of 40 blocks."""
    before = outcore._core.memory_state()[0]
    n = 100_000
    data = np.random.default_rng(1).normal(size=n)
    words = {} if name == "a.npy" else {"chunks": (7001,)}
    a = outcore.create(str(tmp_path / name), data=data, **words)
    first = np.random.default_rng(2).integers(0, n - 1000, 40)
    index = (first[:, None] + np.arange(1000)).reshape(-1)
    if what == "mask":
        index = np.flatnonzero(np.arange(n) // 1000 % 2)
        schedule = a.schedule(np.arange(n) // 1000 % 2 == 1)
    else:
        schedule = a.schedule(index.astype("i4" if what == "int32" else "i8"))
    if what == "saved":
        schedule.save(tmp_path / "s.npz")
        schedule = outcore.IndexSchedule.open(tmp_path / "s.npz", a)
    # A run across a border of windows or chunks is two of them.
    assert schedule.nbytes <= 8000 < index.size
    assert outcore._core.memory_state()[0] - before <= 3 * schedule.nbytes + 4096
    assert np.array_equal(data[index], schedule.gather())
    values = np.arange(index.size) / 8
    data[index] = values
    schedule.scatter(values)
    assert np.array_equal(data, a.read())
    np.add.at(data, index, values)
    schedule.scatter(values, "add")  # the list is made once more for it
    assert np.array_equal(data, a.read())
    schedule.save(tmp_path / "again.npz")
    again = outcore.IndexSchedule.open(tmp_path / "again.npz", a)
    assert np.array_equal(data[index], again.gather())
    other = outcore.create(str(tmp_path / "other.npy"), data=-data)
    assert np.array_equal(-data[index], schedule.gather(of=other))
    del schedule, again
    a.close()
    other.close()
    assert outcore._core.memory_state()[0] - before <= 0


# Lists larger than memory

MIB = 1 << 20
ROWS = np.random.default_rng(4).standard_normal((900, 8))
LONG = np.random.default_rng(5).integers(-900, 900, 100_000)  # 1.5 MiB as addresses
LONG[30_000:60_000] = 7  # one element with more values than fit
LARGE_KEYS = {
    "rows": np.s_[LONG, 1::3],
    "points": np.s_[LONG, LONG % 8],
    "turned": np.s_[LONG.reshape(2, -1), ::-2],
    "columns": np.s_[5, LONG % 8],
    "behind": np.s_[None, :3, LONG % 8],
    "outer": np.s_[np.ix_(np.resize(LONG[:700], 14_000), [5, 0, 5, 2, 7, 1, 1, 3])],
}
LARGE_FORMATS = {
    "npy": ("a.npy", {}),
    "zstd": ("a.zarr", {"chunks": (60, 3), "compression": "zstd"}),
    "gzip": ("a.h5::/x", {"chunks": (60, 3), "compression": "gzip"}),
    "shards": ("a.zarr", {"chunks": (30, 4), "shards": (60, 8), "compression": "zstd"}),
}


@pytest.fixture
def one_mib():
    with outcore.memory(MIB):
        yield


@pytest.mark.parametrize(
    ("name", "key"),
    [("npy", key) for key in LARGE_KEYS]
    + [(name, key) for name in list(LARGE_FORMATS)[1:] for key in ("rows", "columns")],
)
def test_lists_larger_than_memory_have_the_bits_of_numpy(tmp_path, one_mib, name, key):
    path, options = LARGE_FORMATS[name]
    key = LARGE_KEYS[key]
    a = outcore.create(str(tmp_path / path), data=ROWS, **options)
    outcore._core.reset_memory_peak()
    schedule, expected = a.schedule(key), ROWS.copy()
    assert not schedule.in_memory
    assert schedule.nbytes == 0 < schedule.stored_nbytes
    assert np.array_equal(expected[key], schedule.gather())
    rng = np.random.default_rng(6)
    for combine in ("last", "add") if name != "npy" else ("last", *COMBINES):
        values = rng.standard_normal(expected[key].shape)
        if combine == "multiply":
            values = 1 + values * 1e-3
        schedule.scatter(values, combine)
        if combine == "last":
            expected[key] = values
        else:
            COMBINES[combine].at(expected, key, values)
        assert expected.tobytes() == a[...].tobytes(), combine
    out = np.empty(schedule.shape[::-1]).T
    assert np.array_equal(expected[key], schedule.gather(out))
    schedule.scatter(3, "min")
    assert outcore._core.memory_state()[2] <= MIB
    np.minimum.at(expected, key, 3)
    assert expected.tobytes() == a[...].tobytes()


@pytest.mark.parametrize("key", LARGE_KEYS)
def test_lists_values_and_results_on_disk(tmp_path, one_mib, key):
    key = LARGE_KEYS[key]
    a = outcore.create(str(tmp_path / "a.zarr"), data=ROWS, chunks=(60, 3))
    expected, shape = ROWS.copy(), ROWS[key].shape
    listed = key
    if key[0] is LONG:
        kept = outcore.create(str(tmp_path / "list.npy"), data=LONG.astype("i4"))
        listed = (kept, *key[1:])
    schedule = a.schedule(listed)
    values = np.random.default_rng(1).standard_normal(shape).astype("f4")
    given = outcore.create(str(tmp_path / "values.zarr"), shape, "f4")
    given[...] = values
    schedule.scatter(given, "add")
    np.add.at(expected, key, values.astype("f8"))
    assert expected.tobytes() == a[...].tobytes()
    out = outcore.create(str(tmp_path / "out.npy"), shape, "f8")
    assert schedule.gather(out) is out
    assert np.array_equal(expected[key], np.load(tmp_path / "out.npy"))
    # A list that fits, and values and a result that do not.
    few = a.schedule(np.s_[np.arange(899, -1, -1)])
    with outcore.memory(64 << 10):
        large = outcore.create(str(tmp_path / "rows.npy"), few.shape, "f8")
        assert few.in_memory
        few.gather(large)
        few.scatter(large, "add")
    assert (2 * expected).tobytes() == a[...].tobytes()


def test_values_on_disk_are_checked(tmp_path):
    a = outcore.create(str(tmp_path / "a.npy"), data=DATA)
    schedule = a.schedule([2, 3])
    other = outcore.create(str(tmp_path / "b.npy"), (2, 16), "f8")
    one = outcore.create(str(tmp_path / "one.npy"), data=np.array([5.0]))
    with pytest.raises(outcore.errors.UsageError, match="not broadcast"):
        schedule.scatter(other)
    with pytest.raises(outcore.errors.UsageError, match="make them equal"):
        schedule.gather(other)
    with pytest.raises(outcore.errors.UsageError, match="mode 'r'"):
        schedule.gather(outcore.open(str(tmp_path / "b.npy")))
    schedule.scatter(one)
    assert (a[2:4] == 5).all()
    # All is read before any of it is overwritten.
    b = outcore.create(str(tmp_path / "square.npy"), data=np.arange(9.0).reshape(3, 3))
    turn = b.schedule([2, 0, 1])
    turn.scatter(b)
    assert b[:, 0].tolist() == [3, 6, 0]
    turn.gather(b)
    assert b[:, 0].tolist() == [0, 3, 6]


def test_a_mask_larger_than_memory(tmp_path, one_mib):
    data = np.random.default_rng(2).standard_normal((500, 1000))
    a = outcore.create(str(tmp_path / "a.npy"), data=data)
    mask = outcore.create(str(tmp_path / "mask.zarr"), data=data > 0, chunks=(50, 100))
    for chosen in (mask, data > 0):
        schedule = a.schedule(chosen)
        assert not schedule.in_memory
        assert np.array_equal(data[data > 0], schedule.gather())


def test_schedules_that_do_not_fit_are_saved_and_opened(tmp_path, one_mib):
    a = outcore.create(str(tmp_path / "a.npy"), data=ROWS)
    runs = np.arange(100_000) // 250 + np.arange(100_000) % 250
    for name, key in {**LARGE_KEYS, "runs": np.s_[runs]}.items():
        path = tmp_path / f"{name}.npz"
        a.schedule(key).save(path)
        outcore._core.reset_memory_peak()
        again = outcore.IndexSchedule.open(path, a)
        assert not again.in_memory
        assert outcore._core.memory_state()[2] <= MIB
        assert np.array_equal(ROWS[key], again.gather()), name
        with outcore.memory(64 * MIB):
            other = outcore.IndexSchedule.open(path, a)
            assert other.in_memory
            assert np.array_equal(ROWS[key], other.gather()), name
            other.save(tmp_path / "other.npz")
            del other
        if name in ("outer", "turned"):
            back = outcore.IndexSchedule.open(tmp_path / "other.npz", a)
            assert np.array_equal(ROWS[key], back.gather()), name
        with np.load(path) as file:
            assert ("starts0" in file.files) == (name == "runs")
    damaged = bytearray((tmp_path / "rows.npz").read_bytes())
    damaged[50_000] ^= 1
    (tmp_path / "bad.npz").write_bytes(damaged)
    small = outcore.create(str(tmp_path / "small.npy"), (899, 8), "f8")
    with pytest.raises(outcore.errors.FormatError, match="not a valid schedule"):
        outcore.IndexSchedule.open(tmp_path / "bad.npz", a)
    with pytest.raises(outcore.errors.UsageError, match="shape"):
        outcore.IndexSchedule.open(tmp_path / "rows.npz", small)


@pytest.mark.parametrize("combine", ["last", "add"])
def test_each_chunk_is_decoded_and_encoded_once_though_its_values_do_not_fit(
    tmp_path, one_mib, combine
):
    hints = {"cache": "bypass"}
    a = outcore.create(
        str(tmp_path / "a.zarr"), data=ROWS, chunks=(60, 4), compression="zstd", hints=hints
    )
    schedule = a.schedule(LONG)
    schedule.gather()
    before = a.stats()
    schedule.scatter(np.arange(8.0), combine)
    after = a.stats()
    assert after["encodes"] - before["encodes"] == 30
    assert after["decodes"] - before["decodes"] == (30 if combine == "add" else 0)
    before = after
    schedule.gather()
    assert a.stats()["decodes"] - before["decodes"] == 30


def test_a_bad_index_of_a_long_list_is_told_and_nothing_is_kept(tmp_path, one_mib):
    a = outcore.create(str(tmp_path / "a.npy"), data=ROWS)
    wrong = LONG % 900
    wrong[77_777] = 900
    with pytest.raises(IndexError, match="index 900 at position 77777"):
        a.schedule(wrong)
    assert outcore._core.memory_state()[0] == 0
    # An index that a file names is refused as well.
    larger = outcore.create(str(tmp_path / "larger.npy"), (901, 8), "f8")
    larger.schedule(wrong).save(tmp_path / "wrong.npz")
    with np.load(tmp_path / "wrong.npz") as file:
        kept = dict(file)
    kept["schedule"] = np.frombuffer(
        kept["schedule"].tobytes().replace(b"[901, 8]", b"[900, 8]"), np.uint8
    )
    np.savez(tmp_path / "wrong.npz", **kept)
    with pytest.raises(IndexError, match="index 900 at position 77777"):
        outcore.IndexSchedule.open(tmp_path / "wrong.npz", a)


def test_a_list_that_changes_while_it_is_read_is_refused(tmp_path, one_mib):
    a = outcore.create(str(tmp_path / "a.npy"), data=ROWS)
    kept = StoredList(a.path, 10, 900)
    with pytest.raises(ValueError, match="changed while it was read, after 4"):
        kept.fill(iter([np.arange(4), np.array([900])]))
    with pytest.raises(ValueError, match="after 8 of them"):
        StoredList(a.path, 10, 900).fill(iter([np.arange(8)]))


def test_scratch_files_have_no_name_and_are_gone_with_the_schedule(tmp_path, one_mib, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("OUTCORE_SCRATCH", str(folder))
    a = outcore.create(str(tmp_path / "a.npy"), data=ROWS)
    for nameless in (True, False):
        if not nameless:  # as on file systems that do not have them
            monkeypatch.setattr(scratch.os, "O_TMPFILE", os.O_DIRECTORY)
        schedule = a.schedule(LONG)
        schedule.gather()
        assert os.listdir(folder) == []
        mine = [one for one in _open_files() if str(folder) in one]
        assert len(mine) == 2
        assert schedule.stored_nbytes == 100_000 * (8 + 16)
        del schedule
        assert not [one for one in _open_files() if str(folder) in one]
    monkeypatch.setenv("OUTCORE_SCRATCH", str(tmp_path / "missing"))
    with pytest.raises(outcore.errors.StorageError, match="temporary file"):
        a.schedule(LONG)


def _open_files():
    found = []
    for one in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    return found


def test_a_schedule_made_with_much_memory_works_with_little(tmp_path):
    a = outcore.create(str(tmp_path / "a.npy"), data=ROWS)
    wide = outcore.create(str(tmp_path / "wide.npy"), data=ROWS.astype("c16"))
    with outcore.memory("2 MiB"):
        schedule = a.schedule(np.resize(LONG, 150_000))
        schedule.gather()
    with outcore.memory(MIB):
        expected = ROWS[np.resize(LONG, 150_000)]
        assert np.array_equal(expected, schedule.gather())
        assert np.array_equal(expected, schedule.gather(of=wide))


def test_runs_in_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    for _ in range(50):
        whole = np.cumsum(rng.choice([1, 1, 1, 5, -3], rng.integers(0, 40)))
        cuts = np.sort(rng.integers(0, whole.size + 1, 4))
        found = list(iterate_runs(iter(np.split(whole, cuts))))
        starts, lengths = find_runs(whole)
        assert [n for run in found for n in run[0]] == starts.tolist()
        assert [n for run in found for n in run[1]] == lengths.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_ranges_cover_all_and_fit(seed):
    """Of any counts: each index in one step, in order, no step too large, chunks with one owner."""
    rng = np.random.default_rng(seed)
    ranks, owners = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    elements, unit = int(rng.integers(1, 500)), int(rng.choice([1, 1, 7, 60]))
    lists = [
        rng.integers(0, elements, rng.integers(0, 300)) ** rng.integers(1, 3) % elements
        for _ in range(ranks)
    ]
    limits = ListLimits.of(rng.integers(1, 60, ranks).tolist(), owners, int(rng.integers(1, 30)))

    def count(bins):
        return np.stack([bins.count(one) for one in lists])

    cuts = find_cuts(elements, unit, limits, int(rng.integers(1, 40)), count)
    shares = cut_ranges(cuts, limits, owners)
    assert len(shares) == owners
    every = [one for share in shares for one in share]
    assert [0, *(one.high for one in every)] == [*(one.low for one in every), elements]
    for share in shares[1:]:
        assert not share or share[0].low % unit == 0
    for one in every:
        sizes = one.steps[:, :, 1] - one.steps[:, :, 0]
        inside = [((k >= one.low) & (k < one.high)).sum() for k in lists]
        assert inside == sizes.sum(axis=0).tolist() == one.counts.tolist()
        assert (sizes <= limits.each).all()
        assert (sizes.sum(axis=1) <= limits.owner).all()
        assert len(one.steps) == 1 or one.high - one.low <= limits.widest
        # Ranks one after another: none begins before those in front of it have ended.
        for begin, end in one.steps.transpose(0, 2, 1):
            for rank in range(1, ranks):
                if end[rank] > begin[rank]:
                    assert (end[:rank] == one.counts[:rank]).all()


def test_runs_of_indices():
    starts, lengths = find_runs(np.array([3, 4, 5, 9, 8, 9]))
    assert expand_runs(starts, lengths).tolist() == [3, 4, 5, 9, 8, 9]
    assert (starts.tolist(), lengths.tolist()) == ([3, 9, 8], [3, 1, 2])
    assert find_runs(np.array([], np.int64))[1].size == 0


def test_members_whose_header_is_no_text_of_numpy_are_damage(tmp_path):
    """NumPy parses it in ways that raise what zip files never do: TokenError, SyntaxError."""
    np.save(tmp_path / "a.npy", np.zeros((6, 5)))
    with outcore.open(tmp_path / "a.npy") as array:
        array.schedule([4, 2, 4]).save(tmp_path / "good")
        texts = (b"{(", b'"' * 3, b"{'descr': '<i8", b"\\", b"1L", b"(" * 300, b"\xff\xfe", b"")
        slow = b"{'descr': 1, } False, " + b" " * 9000 + b"$"  # for minutes, in Python's tokenizer
        for text in (
            *texts,
            slow,
            b"{'descr': '<i8', 'fortran_order': 1L, 'shape': (",
            b"    {\n  }(",
        ):
            with (
                zipfile.ZipFile(tmp_path / "good") as good,
                zipfile.ZipFile(tmp_path / "bad", "w") as bad,
            ):
                for name in good.namelist():
                    head = good.read(name)[:8] + len(text).to_bytes(2, "little")
                    bad.writestr(name, head + text)
            with pytest.raises(outcore.errors.FormatError) as caught:
                outcore.IndexSchedule.open(tmp_path / "bad", array)
            assert caught.value.code == "bad-schedule", text
