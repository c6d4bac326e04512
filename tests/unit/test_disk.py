"""`DiskArray`: what NumPy does not tell how to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import threading
import time
import warnings

import numpy as np
import pytest

import outcore
from outcore import _core, errors


@pytest.fixture
def field(tmp_path):
    """A 100 x 80 array of distinct numbers on disk, and the same in memory."""
    data = np.arange(8000.0).reshape(100, 80)
    np.save(tmp_path / "field.npy", data)
    with outcore.open(tmp_path / "field.npy", "r+") as a:
        yield a, data


def test_it_says_what_it_is(field):
    a, data = field
    assert a.shape == (100, 80)
    assert data.dtype == a.dtype
    assert (a.ndim, a.size, a.nbytes) == (2, 8000, 64000)
    assert (a.order, a.chunks, a.dims) == ("C", None, None)
    assert (a.format, a.mode) == ("npy", "r+")
    assert len(a) == 100
    assert "field.npy" in repr(a)
    assert "float64" in repr(a)


def test_a_fortran_array_gives_fortran_results(tmp_path):
    data = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    np.save(tmp_path / "a.npy", data)
    a = outcore.open(tmp_path / "a.npy")
    assert a.order == "F"
    assert a[...].flags.f_contiguous
    np.testing.assert_array_equal(data, a[...])


def test_arrays_of_one_element_and_of_none(tmp_path):
    one = outcore.create(tmp_path / "one.npy", (), "i4")
    one[()] = 7
    assert one[()] == 7
    assert isinstance(one[()], np.int32)
    assert one[None, ..., None].shape == (1, 1)
    with pytest.raises(TypeError):
        len(one)
    with pytest.raises(TypeError):
        iter(one)
    none = outcore.create(tmp_path / "none.npy", (0, 5), "i4")
    assert none[...].shape == (0, 5)
    none[...] = 3
    assert list(none.blocks()) == []
    with pytest.raises(outcore.errors.SectionError, match="empty"):
        none[0]


def test_a_read_only_array_refuses_writes(field, tmp_path):
    a = outcore.open(tmp_path / "field.npy")
    for attempt in (lambda: a.__setitem__(0, 1), lambda: a.append([0]), lambda: a.resize((1, 80))):
        with pytest.raises(outcore.errors.UsageError, match=r"r\+") as caught:
            attempt()
        assert caught.value.code == "read-only"


def test_a_closed_array_says_so(field):
    a, _ = field
    a.close()
    a.close()
    assert a.closed
    assert "closed" in repr(a)
    with pytest.raises(outcore.errors.UsageError, match="closed"):
        a[0]


@pytest.mark.parametrize("far", [100, -101, 10**30, -(10**30), 2**63 - 1, np.uint64(2**64 - 1)])
def test_an_index_out_of_bounds_names_the_axis_of_the_array(field, far):
    a, _ = field
    keys = {0: [far, np.s_[far, 0], np.s_[None, far], np.s_[far, ...]]}
    keys[1] = [np.s_[0, far], np.s_[None, 0, None, far], np.s_[..., far], np.s_[:, None, far]]
    for axis, several in keys.items():
        for key in several:
            for use in (lambda key=key: a[key], lambda key=key: a.write(key, 0)):
                with pytest.raises(
                    outcore.errors.SectionError, match=f"index {far} on axis {axis} "
                ) as caught:
                    use()
                assert caught.value.code == "index-out-of-bounds"


@pytest.mark.parametrize("far", [0, 99, 10**30, -(2**63)])
def test_too_many_indices_are_counted_whatever_they_are(tmp_path, far):
    b = outcore.create(tmp_path / "b.npy", (3,), "i4")
    for key in (np.s_[0, far], np.s_[far, 0], np.s_[:, ..., far], np.s_[far, [1, 2]]):
        with pytest.raises(outcore.errors.SectionError, match=r"2 indices for .*b\.npy") as caught:
            b[key]
        assert caught.value.code == "too-many-indices"
    with pytest.raises(outcore.errors.UsageError, match="slice on axis 0 of"):
        b[::0]
    b.close()


def test_out_must_match(field):
    a, data = field
    out = np.zeros((2, 80))
    assert out is a.read(np.s_[3:5], out=out)
    np.testing.assert_array_equal(data[3:5], out)
    frozen = np.zeros((2, 80))
    frozen.flags.writeable = False
    for wrong in (np.zeros((80, 2)), np.zeros((2, 80), "f4"), frozen, [0.0]):
        with pytest.raises(outcore.errors.UsageError) as caught:
            a.read(np.s_[3:5], out=wrong)
        assert caught.value.code == "out-mismatch"


@pytest.mark.parametrize("chunks", [None, (1, 2)])
def test_out_must_not_share_memory_with_itself(tmp_path, chunks):
    data = np.arange(12.0).reshape(3, 4)
    name = "a.npy" if chunks is None else "a.zarr"
    a = outcore.create(tmp_path / name, data=data, **({"chunks": chunks} if chunks else {}))
    memory = np.zeros(4)
    rows = np.lib.stride_tricks.as_strided(memory, (3, 4), (0, 8))
    windows = np.lib.stride_tricks.sliding_window_view(memory, 3, writeable=True)[:, :2]
    cases = [(np.s_[...], rows), (np.s_[:, :1], rows[:, :1]), (np.s_[:2, :2], windows)]
    for key, out in cases:
        with pytest.raises(outcore.errors.UsageError, match=r"out= .* share memory") as caught:
            a.read(key, out=out)
        assert caught.value.code == "out-mismatch"
        assert str(tmp_path / name) == caught.value.path
    assert not memory.any()
    # Strides of 0 along axes of length 1, and where there is nothing, repeat nothing.
    np.testing.assert_array_equal(data[1:2], a.read(np.s_[1:2], out=rows[:1]))
    assert a.read(np.s_[:0], out=rows[:0]).shape == (0, 4)
    a.close()


def test_a_value_that_does_not_fit_is_refused(field):
    a, data = field
    with pytest.raises(ValueError, match="broadcast"):
        a[:2] = np.zeros((3, 80))
    a[:2] = np.zeros((1, 1, 1, 80))
    assert not a[:2].any()
    np.testing.assert_array_equal(data[2:], a[2:])


def test_a_cast_is_done_in_slabs_within_the_budget(tmp_path):
    value = np.arange(3 * 2**20, dtype="i4").reshape(3, 1024, 1024)
    with outcore.memory("1 MiB"):
        a = outcore.create(tmp_path / "a.npy", value.shape, ">f8")
        _core.reset_memory_peak()
        a[::-1, :, ::-1] = value
        assert _core.memory_state()[2] <= 2**20
    np.testing.assert_array_equal(value[::-1, :, ::-1], np.load(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    ("budget", "hint", "held"),
    [
        (2**20, None, 2**18),  # a quarter
        (2**20, 2**18, 2**16),  # of what one operation may hold
        (2**26, None, 2**22),  # what fits the processor's cache
    ],
)
def test_a_cast_holds_exactly_one_buffer(tmp_path, budget, hint, held):
    value = np.arange(3 * 2**20, dtype="i4").reshape(3, 1024, 1024)
    with outcore.memory(budget):
        hints = {"memory": hint, "method": "straight"}
        a = outcore.create(tmp_path / "a.npy", value.shape, ">f8", hints=hints)
        _core.reset_memory_peak()
        a[...] = value
        used, _, peak = _core.memory_state()
        assert (0, held) == (used, peak)
        # At most 1 MiB each, cut at pages, where the elements begin.
        calls = max(held // 2**20, 1)
        assert a.stats()["writes"] == value.size * 8 // held * calls
    np.testing.assert_array_equal(value, np.load(tmp_path / "a.npy"))


def test_a_cast_and_its_write_share_what_one_operation_may_hold(tmp_path):
    value = np.arange(2**19, dtype="i4").reshape(1024, 512)
    hints = {"memory": 2**18, "method": "window", "exclusive": True}
    with outcore.memory("64 MiB"):
        a = outcore.create(tmp_path / "a.npy", (1024, 1024), "f8", hints=hints)
        _core.reset_memory_peak()
        a[:, ::2] = value
        used, _, peak = _core.memory_state()
        assert used == 0
        assert 2**16 < peak <= 2**18
        np.testing.assert_array_equal(value, a[:, ::2])


def test_a_cast_goes_on_beside_memory_that_others_keep(tmp_path):
    value = np.arange(2**18, dtype="i4")
    with outcore.memory("1 MiB"):
        a = outcore.create(tmp_path / "a.npy", value.shape, "f8", hints={"method": "straight"})
        with _core.Reservation("blocks", 2**20 - 2**16):
            _core.reset_memory_peak()
            a[:] = value
            assert _core.memory_state()[2] == 2**20 - 2**16 + 2**14
        np.testing.assert_array_equal(value, a[:])


@pytest.mark.parametrize("word", ["hint", "budget"])
def test_a_cast_that_is_refused_says_what_would_do(tmp_path, word):
    value = np.arange(64 * 512, dtype="i4").reshape(64, 512)
    layout = {"chunks": (64, 512), "compression": "lz4"}
    outcore.create(tmp_path / "a.zarr", value.shape, "f8", **layout).close()

    def write(memory: int) -> int:
        hints = {"memory": memory} if word == "hint" else {}
        limit = outcore.memory(memory) if word == "budget" else contextlib.nullcontext()
        with limit, outcore.open(tmp_path / "a.zarr", "r+", hints=hints) as a:
            _core.reset_memory_peak()
            a[...] = value
            return _core.memory_state()[2]

    with pytest.raises(outcore.BudgetError, match="for the cast") as caught:
        write(100_000)
    assert write(caught.value.needed) <= caught.value.needed
    with outcore.open(tmp_path / "a.zarr") as a:
        np.testing.assert_array_equal(value, a[...])


def test_a_refused_cast_says_what_does_for_all_its_parts(tmp_path):
    """The second chunk is changed in part, which takes more than to write the first one whole."""
    path, value = f"{tmp_path}/a.h5::/x", np.arange(3, dtype=">i4")
    outcore.create(path, data=np.zeros(5), chunks=(2,), compression="gzip").close()
    refused = pytest.raises(outcore.BudgetError, match="for the cast")
    with outcore.open(path, "r+", hints={"memory": 100_000}) as a, refused as caught:
        a[:3] = value
    with outcore.open(path, "r+", hints={"memory": caught.value.needed}) as a:
        a[:3] = value
        assert a[...].tolist() == [0, 1, 2, 0, 0]


def test_a_cast_that_numpy_refuses_holds_nothing(tmp_path):
    with outcore.memory("1 MiB"):
        a = outcore.create(tmp_path / "a.npy", (4, 1000), "f8")
        with pytest.raises(ValueError, match="convert"):
            a[...] = np.full((4, 1000), "no number")
        assert _core.memory_state()[0] == 0
        a[...] = 1
        assert (a[...] == 1).all()


def test_copying_from_another_array_on_disk(field, tmp_path):
    a, data = field
    with outcore.memory("64 KiB"):
        b = outcore.create(tmp_path / "b.npy", (80, 200), ">f4", order="F")
        b[::-1, ::2] = outcore.create(tmp_path / "t.npy", data=data.T)
        np.testing.assert_array_equal(data.T[::-1], b[:, ::2])
        assert not b[:, 1::2].any()
        with pytest.raises(outcore.errors.UsageError, match="shape"):
            b[0] = a


def test_array_refuses_what_is_over_the_budget(field):
    a, data = field
    np.testing.assert_array_equal(data, np.asarray(a))
    assert np.asarray(a, "f4").dtype == np.float32
    with outcore.memory(1000), pytest.raises(outcore.BudgetError, match="blocks") as caught:
        np.asarray(a)
    assert caught.value.needed == 64000


# Requests


def test_requests_read_and_write_in_the_background(field):
    a, data = field
    write = a.iwrite(np.s_[10], np.zeros(80))
    assert write.wait() is None
    read = a.iread(np.s_[9:12])
    data[10] = 0
    np.testing.assert_array_equal(data[9:12], read.wait(timeout=10))
    assert read.done
    assert read.result is read.wait()


def test_requests_can_be_awaited(field):
    a, data = field

    async def main():
        return await asyncio.gather(*(a.iread(k) for k in range(5)))

    np.testing.assert_array_equal(data[:5], asyncio.run(main()))


def test_a_failed_request_raises_at_wait(field):
    a, _ = field
    request = a.iread(1000)
    for _ in range(2):
        with pytest.raises(outcore.errors.SectionError):
            request.wait()


def test_a_failed_request_that_nobody_waited_for_warns(field):
    a, _ = field
    request = a.iread(1000)
    while not request.done:
        time.sleep(0.001)
    with pytest.warns(UserWarning, match="no call waited"):
        request.__del__()
    request._delivered = True


def test_a_failed_write_is_raised_by_flush(field):
    a, _ = field
    a.iwrite(1000, 1)
    with pytest.raises(outcore.errors.SectionError):
        a.flush()
    a.flush()


def test_close_waits_for_requests(tmp_path):
    a = outcore.create(tmp_path / "a.npy", (500, 1000), "f8")
    requests = [a.iwrite(k, np.full(1000, k)) for k in range(500)]
    a.close()
    assert all(r.done for r in requests)
    assert (np.load(tmp_path / "a.npy") == np.arange(500)[:, None]).all()


# Blocks


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"axis": 1},
        {"axis": -2, "overlap": 3},
        {"shape": (7, 11)},
        {"shape": (7, None), "overlap": 2},
        {"shape": (9, 8), "overlap": (2, 3)},
        {"shape": 13},
        {"shape": (200, 200)},
    ],
    ids=str,
)
def test_blocks_cover_the_array(tmp_path, order, how):
    data = np.arange(60 * 50.0).reshape(60, 50)
    a = outcore.create(tmp_path / "a.npy", data=data, order=order)
    seen = np.zeros(data.shape, int)
    with outcore.memory("24 KiB" if how.get("shape") != (200, 200) else "1 MiB"):
        before = _core.memory_state()[0]
        for key, block in a.blocks(**how):
            np.testing.assert_array_equal(data[key], block)
            seen[key] += 1
            block[...] = -1
        assert before == _core.memory_state()[0]
    assert (seen >= 1).all()
    if not how.get("overlap"):
        assert (seen == 1).all()
    np.testing.assert_array_equal(data, a[...])


def test_blocks_share_what_overlap_says(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=np.arange(10.0))
    keys = [key[0] for key, _ in a.blocks(shape=4, overlap=2)]
    assert keys == [key[0] for key, _ in a.blocks((4,), overlap=2)]
    assert [slice(0, 4), slice(2, 6), slice(4, 8), slice(6, 10)] == keys


def test_overlap_is_copied_not_read(field, monkeypatch):
    a, data = field
    read = []
    start = outcore.DiskArray.iread
    monkeypatch.setattr(
        outcore.DiskArray,
        "iread",
        lambda self, key, out: read.append(key) or start(self, key, out=out),
    )
    for key, block in a.blocks(shape=(20, None), overlap=5):
        np.testing.assert_array_equal(data[key], block)
    rows = [row for key in read for row in range(100)[key[0]]]
    assert list(range(100)) == rows


def test_blocks_keep_what_the_caller_keeps(field):
    a, data = field
    kept = list(a.blocks(shape=(9, None)))
    for key, block in kept:
        np.testing.assert_array_equal(data[key], block)


def test_blocks_that_cannot_fit_are_refused(field):
    a, _ = field
    with outcore.memory(2000), pytest.raises(outcore.BudgetError) as caught:
        a.blocks()
    with outcore.memory(caught.value.needed):
        assert sum(block.shape[0] for _, block in a.blocks()) == 100
    for wrong in (
        {"axis": 2},
        {"axis": 0, "shape": (1, 1)},
        {"shape": (0, 1)},
        {"shape": (1, 2, 3)},
        {"shape": (1.5, 2)},
        {"axis": "xy"},
        {"axis": 1.5},
        {"overlap": 0.5},
        {"overlap": (1, 1, 1)},
    ):
        with pytest.raises(outcore.errors.UsageError, match="bad-blocks"):
            a.blocks(**wrong)
    with pytest.raises(outcore.errors.UsageError, match="overlap"):
        a.blocks(shape=(4, None), overlap=4)


def test_iterating_gives_rows(field):
    a, data = field
    np.testing.assert_array_equal(data, list(a))


# Growing


def test_append_makes_the_array_longer(field, tmp_path):
    a, data = field
    a[:2] = data[:2]
    a.append(data[:3] + 1)
    assert data[:5].nbytes == a.stats()["written_bytes"]
    a.append(data[0])
    expected = np.concatenate([data, data[:3] + 1, data[:1]])
    np.testing.assert_array_equal(expected, a[...])
    np.testing.assert_array_equal(expected, np.load(tmp_path / "field.npy"))
    with pytest.raises(outcore.errors.UsageError, match="append"):
        a.append(np.zeros((2, 79)))
    with pytest.raises(outcore.errors.UnsupportedError):
        a.append(np.zeros((104, 1)), axis=1)


def test_resize_shrinks_and_grows(field, tmp_path):
    a, data = field
    a.resize((10, 80))
    assert a.shape == (10, 80)
    a.resize((12, 80))
    np.testing.assert_array_equal(np.pad(data[:10], ((0, 2), (0, 0))), a[...])


# Threads, processes


def test_many_threads_read_and_write_one_array(field):
    a, data = field
    failures = []

    def work(k):
        try:
            for _ in range(50):
                a[k] = data[k]
                np.testing.assert_array_equal(data[k, ::-3], a[k, ::-3])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_child_reads_and_writes(field):
    a, data = field
    a.iread(0).wait()
    with outcore.memory("10 MiB"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        running = a.iread(np.s_[:])
        child = os.fork()
        if child == 0:
            ok = False
            try:
                ok = (a[3:50:7] == data[3:50:7]).all() and outcore.memory() == 10 * 2**20
                ok = ok and (a.iread(5).wait(10) == data[5]).all()
                a[7] = 1.5
                a.flush()
                try:
                    running.wait(1)
                    ok = False
                except outcore.errors.UsageError:
                    pass
            finally:
                os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
    running.wait()
    assert (a[7] == 1.5).all()


def test_pickling_opens_again(field, tmp_path, monkeypatch):
    a, data = field
    b = pickle.loads(pickle.dumps(a))
    assert ("r+", a.shape) == (b.mode, b.shape)
    np.testing.assert_array_equal(data[5], b[5])
    c = outcore.create(tmp_path / "c.npy", (2,), "i4", hints={"threads": 1})
    d = pickle.loads(pickle.dumps(c))
    assert (d.mode, d.hints.threads) == ("r+", 1)


def test_pickling_survives_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    a = outcore.create("x.raw", (3, 4), ">i2", order="F")
    a[...] = np.arange(12).reshape(3, 4)
    monkeypatch.chdir("elsewhere")
    b = pickle.loads(pickle.dumps(a))
    np.testing.assert_array_equal(np.arange(12).reshape(3, 4), b[...])
    assert b.order == "F"


# Explain, hints, memory


def test_explain_counts(field):
    a, _ = field
    report = a.explain(np.s_[10:20])
    assert report.useful_bytes == 10 * 80 * 8
    assert report.moved_bytes >= report.useful_bytes
    assert report.peak_bytes <= report.budget
    assert 0 < report.useful <= 1
    text = str(report)
    for word in ("method", "engine", "memory", report.method):
        assert word in text
    assert text.count(f"{report.method}: ") == 0 and "1 request," in text
    assert report.writes == 0
    assert a.explain(np.s_[10:20], write=True).direction == "write"


def test_hints_name_the_nearest():
    with pytest.raises(outcore.errors.UsageError, match="did you mean 'engine'"):
        outcore.Hints(engin="threads")
    with pytest.raises(outcore.errors.UsageError, match="did you mean 'uring'"):
        outcore.Hints(engine="urin")
    for wrong in ({"threads": 0}, {"memory": "many"}, {"memory": -1}, {"exclusive": 1}):
        with pytest.raises(outcore.errors.UsageError):
            outcore.Hints(**wrong)
    assert outcore.Hints(memory="64 KiB").memory == 65536


def test_hints_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTCORE_HINTS", "engine=threads, threads=1,memory=1MiB,exclusive=yes")
    a = outcore.create(tmp_path / "a.npy", (3,), "f8", hints={"threads": 2})
    assert (a.hints.engine, a.hints.threads) == ("threads", 2)
    assert (a.hints.memory, a.hints.exclusive) == (2**20, True)
    monkeypatch.setenv("OUTCORE_HINTS", "engine")
    with pytest.raises(outcore.errors.UsageError, match="name=value"):
        outcore.open(tmp_path / "a.npy")


def test_memory_is_a_setting_and_a_context():
    before = outcore.memory()
    with outcore.memory("64 MiB") as limit:
        assert 64 * 2**20 == limit == outcore.memory()
        with _core.Reservation("blocks", 2**20) as held:
            assert held.nbytes == 2**20
            assert _core.memory_state()[1] == 63 * 2**20
        with pytest.raises(outcore.BudgetError):
            _core.Reservation("blocks", 65 * 2**20)
    assert before == outcore.memory()
    assert before >= 2**20


def test_every_error_class_of_the_core_exists():
    for code, name in _core.error_codes().items():
        error = getattr(errors, name)("text", code=code, path="p")
        assert (code, "p") == (error.code, error.path)


def test_system_errors_keep_their_number(tmp_path):
    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.open(tmp_path / "nothing.npy")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == 2


def test_a_truncated_file_is_an_error_not_a_crash(field, tmp_path):
    a, _ = field
    os.truncate(tmp_path / "field.npy", 1000)
    for key in (np.s_[50:90], np.s_[::7, ::5], 99):
        with pytest.raises((outcore.errors.StorageError, outcore.errors.FormatError)):
            a[key]


def test_create_needs_shape_and_dtype(tmp_path):
    with pytest.raises(outcore.errors.UsageError, match="shape"):
        outcore.create(tmp_path / "a.npy")
    with pytest.raises(outcore.errors.UsageError, match="mode"):
        outcore.open(tmp_path / "a.npy", "rw")
    outcore.open(tmp_path / "a.npy", "x", shape=(2,), dtype="f8").close()
    with pytest.raises(outcore.OutcoreError):
        outcore.open(tmp_path / "a.npy", "x", shape=(2,), dtype="f8")
