"""Writes past the page cache (`docs/design`, 0023): what is in the file, and who waits for whom."""

from __future__ import annotations

import importlib
import os
import threading

import numpy as np
import pytest
from test_nested_calls import runs

import outcore
from schedule_check import check_schedule

PAST = {"exclusive": True, "cache": "bypass"}


def past(array, key) -> bool:
    return "bypassing the page cache" in str(array.explain(key, write=True))


@pytest.fixture
def passes(tmp_path):
    with outcore.create(tmp_path / "asked.npy", (1 << 20,), "f8", hints=PAST) as a:
        if not a.handle.core.past_cache():
            pytest.skip(
                "the file system has no direct I/O: writes past the page cache are NOT tested"
            )


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("engine", ["auto", "threads"])
@pytest.mark.parametrize(
    ("shape", "dtype", "order", "key"),
    [
        ((60, 4096), "f8", "C", np.s_[:, 496:2544]),  # at pages of the file
        ((60, 4096), "f8", "C", np.s_[3:50, 100:2600]),
        ((61, 3003), "c16", "C", np.s_[:, 7:1033]),  # rows that begin anywhere in their pages
        ((5003, 61), ">f4", "F", np.s_[5:4900, 1:]),
        ((6, 10, 3001), "i8", "C", np.s_[3:, :, 5:2004]),
        ((7, 400_003), "i2", "C", np.s_[1:6, 3:]),  # runs longer than requests
        ((1_000_001,), "u1", "C", np.s_[17:]),
        ((600, 700), "V12", "C", np.s_[50:]),
    ],
)
def test_a_section_and_nothing_else_is_changed(tmp_path, shape, dtype, order, key, engine):
    rng = np.random.default_rng(3)

    def some(shape, order):
        raw = rng.integers(0, 100, (*shape, np.dtype(dtype).itemsize), dtype="u1")
        return np.asarray(raw.view(dtype)[..., 0], order=order)

    old = some(shape, order)
    np.save(tmp_path / "a.npy", old)
    os.sync()
    with outcore.open(tmp_path / "a.npy", "r+", hints={**PAST, "engine": engine}) as a:
        assert past(a, key)
        for other in ("C", "F"):
            # What is in the page cache, and mapped, gives way to what is written.
            seen = np.load(tmp_path / "a.npy", mmap_mode="r")
            assert seen.tobytes() == old.tobytes()
            new = some(old[key].shape, other)
            counted, before = a.explain(key, write=True), a.stats()
            a[key] = new
            old[key] = new
            assert seen.tobytes() == old.tobytes()
            assert a[key].tobytes() == new.tobytes()
            after = a.stats()
            if other == "C":  # as `explain` takes it to be
                assert after["writes"] - before["writes"] == counted.writes
            assert after["written_bytes"] - before["written_bytes"] == new.nbytes
            a.flush()
    assert np.load(tmp_path / "a.npy").tobytes() == old.tobytes()


@pytest.mark.usefixtures("passes")
def test_threads_that_share_pages_lose_nothing(tmp_path):
    """Neighbours in every row, some of them through the page cache; every flush succeeds."""
    rows, row, width = 200, 12_007, 3001
    with outcore.create(tmp_path / "a.npy", (rows, row), "f8", hints=PAST) as a:
        expected = np.zeros((rows, row))
        keys = [np.s_[:, k : k + width] for k in range(0, row, width)]
        assert past(a, keys[0])
        assert not past(a, keys[-1])
        assert not past(a, np.s_[:, 5:9])
        failed = []

        def write(n):
            try:
                for turn in range(6):
                    a[keys[n]] = 10 * n + turn
                    a.flush()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(len(keys))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        for n, key in enumerate(keys):
            expected[key] = 10 * n + 5
        a.flush()
    np.testing.assert_array_equal(expected, np.load(tmp_path / "a.npy"))


@pytest.mark.usefixtures("passes")
def test_nobody_else_writes_meanwhile(tmp_path):
    """A page that is made dirty beside a direct write could reach into what that writes."""
    runs(
        tmp_path,
        """
a = outcore.create("a.npy", (8192, 8192), "f4", hints={"exclusive": True, "cache": "bypass"})
HALF = np.s_[:, 500:5000]
new = np.ones((8192, 4500), "f4")

def write():
    a[HALF] = new

def beside():
    a[5, 6000:6004] = 2
    return "written"

assert "bypassing the page cache" in str(a.explain(HALF, write=True))
assert refusal(write, beside) == "nested-call"
assert during(write, lambda: float(a[0, 0])) == 0
a.flush()
assert (a[HALF] == 1).all()
""",
    )


@pytest.mark.usefixtures("passes")
def test_what_was_interrupted_can_be_written_again(tmp_path):
    """The section is old or new, block by block, nothing beside it changes."""
    with outcore.create(tmp_path / "a.npy", (2000, 8192), "f8", hints=PAST) as a:
        key = np.s_[:, 100:5000]
        new = np.ones((2000, 4900))
        request = a.iwrite(key, new)
        request.cancel()
        request.finish(unwanted=True)
        assert set(np.unique(a[:])) <= {0.0, 1.0}
        assert not a[:, :100].any()
        assert not a[:, 5000:].any()
        a[key] = new
        a.flush()
        assert (a[key] == 1).all()


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("format", ["zarr2", "zarr"])
@pytest.mark.parametrize("engine", ["auto", "threads"])
def test_chunks_in_files_of_their_own_pass_it_in_whole_pages(tmp_path, format, engine):
    """What is in the page cache, and what others have mapped, gives way to what is written."""
    hints = {**PAST, "engine": engine}
    words = {"format": format, "chunks": (512, 256), "compression": "none", "hints": hints}
    rng = np.random.default_rng(5)
    expected = rng.standard_normal((1500, 1000))
    with outcore.create(tmp_path / "a.zarr", expected.shape, "f8", **words) as a:
        a[...] = expected  # makes the chunks
        for key, passing in [
            (np.s_[:1024, :768], True),
            (np.s_[128:1024, 256:768], True),
            (np.s_[512:1024, 3:500], False),  # rows of parts of chunks
            (np.s_[512:1025, :256], False),  # a row of the last one: too little to be worth it
        ]:
            assert past(a, key) == passing, key
            for order in "CF":
                expected[key] = rng.standard_normal(expected[key].shape)
                counted, before = a.explain(key, write=True), a.stats()
                a[key] = np.asarray(expected[key], order=order)
                after = a.stats()
                if passing and order == "C":
                    assert after["writes"] - before["writes"] == counted.writes
                    assert after["written_bytes"] - before["written_bytes"] == expected[key].nbytes
                np.testing.assert_array_equal(expected, a[...])
        a.flush()
    with outcore.open(tmp_path / "a.zarr") as a:
        np.testing.assert_array_equal(expected, a[...])


@pytest.mark.usefixtures("passes")
def test_others_may_write_chunks_that_are_not_ours_alone(tmp_path):
    words = {"chunks": (512, 256), "compression": "none", "hints": {"cache": "bypass"}}
    with outcore.create(tmp_path / "a.zarr", (1024, 512), "f8", **words) as a:
        a[...] = 1.0
        assert not past(a, np.s_[...])


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("columns", [1024, 1021])
def test_a_transpose_says_what_it_writes_and_takes_one_buffer(tmp_path, monkeypatch, columns):
    """Pages that end within a run cost as much again; there are none where rows are whole pages."""
    carry, schedules = importlib.import_module("outcore.compute.jobs.carry"), []

    def run(schedule, arrays, plain=carry.ScheduleRun, **more):
        schedules.append(schedule)
        check_schedule(schedule, [a.shape for a in arrays], range(1, len(arrays)), again=True)
        return plain(schedule, arrays, **more)

    monkeypatch.setattr(carry, "ScheduleRun", run)
    data = np.random.default_rng(0).random((columns, 3000))
    np.save(tmp_path / "a.npy", data)
    with outcore.create(tmp_path / "b.npy", data.T.shape, "f8", hints=PAST) as b:
        planned = outcore.transpose(tmp_path / "a.npy", out=b, memory="4 MiB", explain=True)
        planned.run()
        np.testing.assert_array_equal(data.T, b[...])
        lead = b.info.layout.parts[0].offset
    told, (schedule,) = planned.report, schedules
    assert [buffer.copies for buffer in schedule.buffers] == [1]
    assert schedule.steps > 4
    ends = 0
    for number in range(schedule.steps):
        for store in schedule.step(number).stores:
            rows, part = store.section
            first = lead + 8 * columns * np.arange(rows.start, rows.stop)
            runs = [first + 8 * part.start, first + 8 * part.stop]
            if part == slice(0, columns):  # whole rows follow each other
                runs = [runs[0][:1], runs[1][-1:]]
            pages = [(one % 4096 > 0).sum() for one in runs]
            ends += sum(pages) if len(runs[0]) == 1 or columns == 1024 else 2 * len(first)
    assert told.written_bytes == data.nbytes + ends * 2048
    assert (ends == 0) == (columns == 1024)
    assert told.read_bytes >= data.nbytes + ends * 2048
    assert told.lower_bound_bytes == 2 * data.nbytes
