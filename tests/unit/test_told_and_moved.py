"""What a report says of bytes and memory before a run, beside what the run moves and holds."""

import numpy as np
import pytest

import outcore
import outcore.base.hints


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def ran(planned):
    """The report of a plan that has run, and what it said before it."""
    before = planned.report
    planned.run()
    return before, planned.report.measured


def moved(one):
    return one.read_bytes + one.written_bytes


@pytest.mark.parametrize("data", [np.zeros((600, 500)), numbers(600, 500)], ids=["zeros", "noise"])
@pytest.mark.parametrize("suffix", ["zarr", "h5::/x"])
def test_lower_bound_counts_stored_bytes(tmp_path, data, suffix):
    a = outcore.create(f"{tmp_path}/a.{suffix}", data=data, chunks=(60, 100), compression="gzip")
    for planned in (
        outcore.sum(a, explain=True),
        outcore.sort(a, None, memory="1 MiB", explain=True),
        outcore.transpose(a, explain=True),
    ):
        told, done = ran(planned)
        assert told.lower_bound_bytes <= moved(told)
        assert told.lower_bound_bytes <= moved(done)
        assert told.lower_bound_bytes >= outcore.sum(a, explain=True).report.read_bytes > 0


def test_lower_bound_of_a_section_is_not_above_its_reads(tmp_path):
    data = np.zeros((600, 500))
    data[:, 200:] = numbers(600, 300)
    a = outcore.create(f"{tmp_path}/a.zarr", data=data, chunks=(60, 100), compression="gzip")
    told, done = ran(outcore.fft.fft(a, 200, axis=1, explain=True))
    assert told.lower_bound_bytes <= moved(done)


def test_nothing_has_to_be_moved_of_what_is_in_memory(tmp_path):
    told, done = ran(outcore.sort(np.arange(1000.0)[::-1], explain=True))
    assert told.lower_bound_bytes == moved(told) == moved(done) == 8000
    told, done = ran(outcore.sort(np.arange(1000.0), out=np.empty(1000), explain=True))
    assert told.lower_bound_bytes == moved(told) == moved(done) == 0


def test_of_a_result_that_is_encoded_nobody_knows_what_is_left(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((600, 500)))
    how = {"chunks": (60, 100), "compression": "gzip", "explain": True}
    told, done = ran(outcore.transpose(tmp_path / "a.npy", out=f"{tmp_path}/t.zarr", **how))
    assert told.lower_bound_bytes == 600 * 500 * 8 <= moved(done) < 2 * 600 * 500 * 8


def test_chunks_that_were_never_written_are_not_moved(tmp_path):
    a = outcore.create(f"{tmp_path}/a.zarr", (600, 500), "f8", chunks=(60, 100))
    a[:60] = 1
    told, done = ran(outcore.sum(a, explain=True))
    assert told.lower_bound_bytes == moved(told) == moved(done) == 60 * 500 * 8


def test_reported_reads_count_chunks_of_different_size(tmp_path):
    data = np.zeros((600, 500))
    data[300:] = numbers(300, 500)
    a = outcore.create(f"{tmp_path}/a.zarr", data=data, chunks=(60, 100), compression="gzip")
    told, done = ran(outcore.sum(a, memory="1 MiB", explain=True))
    assert told.read_bytes == done.read_bytes


def test_the_memory_that_is_told_is_not_exceeded(tmp_path):
    outcore.create(
        f"{tmp_path}/a.zarr", data=numbers(1500, 1500), chunks=(150, 150), compression="gzip"
    )
    for memory in ("2 MiB", "4 MiB", "8 MiB"):
        how = {"order": "F", "memory": memory, "overwrite": True, "explain": True}
        told, done = ran(outcore.convert(f"{tmp_path}/a.zarr", f"{tmp_path}/o.npy", **how))
        assert done.peak_bytes <= told.peak_bytes <= outcore.base.hints.parse_bytes(memory)
    told, done = ran(outcore.sum(f"{tmp_path}/a.zarr", 0, explain=True))
    assert done.peak_bytes <= told.peak_bytes


def test_windows_of_writes_into_new_files_are_told(tmp_path):
    a = outcore.create(
        f"{tmp_path}/a.zarr", data=numbers(1500, 1500), chunks=(150, 150), compression="gzip"
    )
    np.save(tmp_path / "b.npy", numbers(700, 900))
    for planned in (
        outcore.convert(a, f"{tmp_path}/o.npy", order="F", memory="3 MiB", explain=True),
        outcore.fft.fft2(a, out=f"{tmp_path}/o.zarr", memory="15 MiB", explain=True),
        outcore.sort(tmp_path / "b.npy", 0, memory="1 MiB", explain=True),
        outcore.sort(tmp_path / "b.npy", 0, memory="5 MiB", explain=True),
    ):
        told, done = ran(planned)
        assert moved(done) <= 1.1 * moved(told)
        assert moved(done) <= 1.1 * moved(planned.report)
        assert moved(told) <= 2 * moved(done)
        assert done.peak_bytes <= told.peak_bytes
