"""Accesses that meet trouble: missing chunks, other writers, Ctrl-C, budgets, damaged bytes."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core


def python(program: str, *arguments: str) -> str:
    """What a program prints that runs in a process of its own."""
    root = str(Path(outcore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_missing_chunks_are_filled_or_refused(tmp_path):
    a = outcore.create(tmp_path / "a.zarr", (9, 9), "i4", chunks=(3, 3), fill_value=4)
    a[0:3] = 1
    strict = outcore.open(a.path, hints={"missing": "error"})
    assert (strict[0:3] == 1).all()
    with pytest.raises(outcore.errors.StorageError, match="never written") as caught:
        strict[0:4]
    assert caught.value.code == "missing-chunk"
    a[6, 8] = 2
    assert strict[6, 8] == 2
    # The box of chunks holds missing ones, the section does not touch them.
    assert (strict[0:7:6, 8] == [1, 2]).all()
    assert a[5, 5] == 4


def test_waiting_for_another_writer_ends_with_a_signal(tmp_path):
    a = outcore.create(tmp_path / "a.zarr", (9, 9), "i4", chunks=(3, 3), compression="zstd")
    a[...] = 1

    def stop(*_):
        raise InterruptedError("stop")

    with open(tmp_path / "a.zarr" / "zarr.json", "rb+") as file:
        # An open-file-description lock on everything, as another process would hold it.
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
        before = signal.signal(signal.SIGALRM, stop)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            started = time.monotonic()
            with pytest.raises(InterruptedError, match="stop"):
                a[4] = 2
            assert time.monotonic() - started < 10
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert (a[...] == 1).all()
    a[4] = 2
    assert (a[4] == 2).all()


def test_two_threads_write_between_each_other_in_an_exclusive_array(tmp_path):
    """Windows that are read, changed and written back undo nothing that a thread beside writes."""
    shape = (256, 4096)
    outcore.create(tmp_path / "a.npy", shape, "i4").close()
    hints = {"exclusive": True, "method": "window"}
    with outcore.open(tmp_path / "a.npy", "r+", hints=hints) as a:
        assert a.explain((slice(None), slice(0, None, 2)), write=True).reads > 0

        def work(first):
            for value in range(1, 33):
                a[:, first::2] = value
                # Its last value may only be undone by the other thread.
                assert (a[:, first::2] == value).all()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))


def test_two_threads_write_parts_of_the_same_encoded_chunks(tmp_path):
    for path in (tmp_path / "a.zarr", f"{tmp_path / 'a.h5'}::/x"):
        a = outcore.create(path, (64, 64), "i4", chunks=(16, 16), compression="gzip")

        def work(first, a=a):
            for row in range(first, 64, 4):
                a[row] = row

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(np.repeat(np.arange(64), 64).reshape(64, 64), a[...])
        a.close()


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_budget_holds_and_too_little_is_refused(tmp_path, compression):
    data = np.arange(512 * 512, dtype="f8").reshape(512, 512)
    options = {"chunks": (64, 64), "compression": compression}
    a = outcore.create(tmp_path / "a.zarr", data=data, **options)
    with outcore.memory("1 MiB"):
        _core.reset_memory_peak()
        np.testing.assert_array_equal(data[::3, ::-5], a[::3, ::-5])
        a[1::2, 3:500] = data[1::2, 3:500]
        assert _core.memory_state()[2] <= 2**20
    np.testing.assert_array_equal(data, a[...])
    if compression:
        with outcore.memory(4096), pytest.raises(outcore.BudgetError) as caught:
            a[5, 5]
        assert caught.value.code == "budget-too-small"
        with outcore.memory(caught.value.needed):
            assert a[5, 5] == data[5, 5]


def test_a_damaged_chunk_names_file_and_chunk(tmp_path):
    a = outcore.create(tmp_path / "a.zarr", (8, 8), "i4", chunks=(4, 4), compression="zstd")
    a[...] = 1
    chunk = tmp_path / "a.zarr" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    assert (a[:4] == 1).all()
    with pytest.raises(outcore.errors.FormatError, match=r"1, 0") as caught:
        a[...]
    assert caught.value.path.endswith("c/1/0")


def test_a_full_disk_is_an_error(tmp_path):
    # A limit on file size is what a test can set without being root.
    program = """
import resource, signal, sys
import numpy as np, outcore
a = outcore.create(sys.argv[1], (1000, 1000), "f8", chunks=(1000, 1000), compression=None)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    a[...] = 1
except outcore.errors.StorageError as error:
    print(error.code, error.errno)
"""
    assert python(program, str(tmp_path / "a.zarr")).split()[-1] == "27"


def test_explain_tells_the_same_bytes_for_all_layouts(tmp_path):
    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)
    for name, options in {
        "a.npy": {},
        "b.zarr": {"chunks": (16, 16)},
        "c.zarr": {"chunks": (16, 16), "compression": "zstd"},
        "d.h5::/x": {"chunks": (16, 16), "compression": "gzip"},
    }.items():
        a = outcore.create(f"{tmp_path}/{name}", data=data, **options)
        report = a.explain(np.s_[8:40, ::2])
        assert report.useful_bytes == 32 * 32 * 4
        assert report.decodes == (12 if "compression" in options else 0)
        assert report.moved_bytes > 0
        empty = a.explain(np.s_[0:0])
        assert (empty.useful_bytes, empty.moved_bytes) == (0, 0)
        assert "c 0" not in str(report)
        a.prefetch(np.s_[8:40])
        a.close()


def test_resize_and_append_of_chunked_arrays(tmp_path):
    for name in ("a.zarr", "a.h5::/x"):
        options = {"chunks": (4, 4), "compression": "gzip", "fill_value": 7}
        if "h5" in name:
            options["maxshape"] = (None, None)
        a = outcore.create(f"{tmp_path}/{name}", (6, 6), "i4", **options)
        a[...] = 1
        a.resize((8, 9))
        assert (a[:6, :6] == 1).all()
        assert (a[6:] == 7).all()
        a.append(np.full((2, 9), 3))
        assert a.shape == (10, 9)
        assert (a[8:] == 3).all()
        a.close()
        assert outcore.open(a.path).shape == (10, 9)


WITHOUT_URING = """
import ctypes, struct, sys
import numpy as np
import outcore

libc = ctypes.CDLL(None, use_errno=True)
io_uring_setup, eperm = 425, 1  # of every architecture
refuse, allow = (6, 0, 0, 0x50000 | eperm), (6, 0, 0, 0x7FFF0000)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, io_uring_setup), refuse, allow]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):  # no new privileges, filter
    sys.exit(77)
a = outcore.open(sys.argv[1])
told = a.explain(np.s_[::7])
print(told.engine, told.engine_why)
print(told)
assert (a[::7] == np.arange(100.0)[::7]).all()
"""


def test_where_io_uring_is_forbidden_explain_says_so_and_reads_go_on(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100.0))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_URING, tmp_path / "a.npy"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode == 77:
        pytest.skip("no right to forbid system calls: the fallback of io_uring is NOT tested")
    assert done.returncode == 0, done.stderr
    first, *text = done.stdout.splitlines()
    assert first.startswith("threads ") and "not permitted" in first
    assert any(line.startswith("engine   threads: ") for line in text)
    assert done.stderr == ""


def test_importing_outcore_starts_nothing():
    program = (
        "import sys, threading, outcore; "
        "heavy = {'mpi4py', 'h5py', 'zarr', 'netCDF4', 'hypothesis', 'asyncio'} & set(sys.modules); "
        "print(heavy, threading.active_count())"
    )
    assert python(program).split() == ["set()", "1"]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_threads_take_turns_at_a_small_budget(tmp_path, compression):
    data = np.arange(256 * 256, dtype="f8").reshape(256, 256)
    options = {"chunks": (64, 64), "compression": compression, "hints": {"method": "window"}}
    a = outcore.create(tmp_path / "a.zarr", data=data, **options)
    failures = []

    def work(k):
        try:
            for _ in range(3):
                np.testing.assert_array_equal(data[k::7, ::-3], a[k::7, ::-3])
                a[k::8, ::2] = data[k::8, ::2]
        except BaseException as error:
            failures.append(error)

    # Room for one of them; with a codec, for what it takes to decode and encode one chunk.
    with outcore.memory("720 KiB" if compression else "160 KiB"):
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []


@pytest.mark.parametrize("method", ["auto", "straight", "window", "mapped", "list"])
@pytest.mark.parametrize("name", ["a.npy", "b.zarr", "c.zarr", "d.h5::/x"])
@pytest.mark.parametrize("write", [False, True])
def test_accesses_match_their_explanation(tmp_path, name, method, write):
    data = np.arange(300 * 200, dtype="i4").reshape(300, 200)
    options = {"a.npy": {}, "b.zarr": {"chunks": (64, 48)}}.get(
        name, {"chunks": (64, 48), "compression": "gzip"}
    )
    outcore.create(f"{tmp_path}/{name}", data=data, **options).close()
    key = np.s_[10:290:3, 5:-5]
    with outcore.open(f"{tmp_path}/{name}", "r+", hints={"method": method}) as a:
        report = a.explain(key, write=write)
        if write:
            a[key] = data[key]
        else:
            np.testing.assert_array_equal(data[key], a[key])
        done = a.handle.core.stats()
    said = {field: getattr(report, field) for field in done}
    if name[0] in "cd" and write:
        # How small chunks become when encoded is not known before.
        said["written_bytes"] = done["written_bytes"]
    assert said == done


def test_the_budget_comes_from_the_environment(monkeypatch):
    program = "import outcore; print(int(outcore.memory()))"
    monkeypatch.setenv("OUTCORE_MEMORY", "48 MiB")
    assert int(python(program)) == 48 * 2**20
    monkeypatch.delenv("OUTCORE_MEMORY")
    assert int(python(program)) >= 64 * 2**20


def test_a_bad_budget_in_the_environment_is_said_at_the_first_use(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.arange(3))
    monkeypatch.setenv("OUTCORE_MEMORY", "lots")
    program = f"""
import outcore
for use in (outcore.memory, lambda: outcore.open({str(tmp_path / "a.npy")!r})):
    try:
        use()
    except outcore.errors.UsageError as error:
        assert "OUTCORE_MEMORY" in str(error), error
    else:
        raise AssertionError("not refused")
outcore.memory("1 MiB")
print(int(outcore.memory()))
"""
    assert int(python(program)) == 2**20


def test_elements_of_megabytes_take_no_memory_until_they_are_read(tmp_path):
    """A header may claim any size of element; the fill value is one, and is counted."""
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((0, 3), "S1"))
    claim = path.read_bytes().replace(b"'|S1'", b"'|S999999999'").replace(b" " * 8 + b"\n", b"\n")
    path.write_bytes(claim)
    before, *_ = _core.memory_state()
    with outcore.memory("1 MiB"), outcore.open(path) as a:
        assert a.dtype.itemsize == 999_999_999 and a.shape == (0, 3)
        a.explain(np.s_[:, 1])
        assert _core.memory_state()[0] == before
    big = outcore.create(tmp_path / "b.zarr", (4,), "S100000", chunks=2)
    with outcore.memory("1 MiB"):
        big[:]
        assert _core.memory_state()[0] - before == 100_000
        big.close()
    with outcore.memory("64 KiB"), pytest.raises(outcore.BudgetError):
        outcore.open(tmp_path / "b.zarr")[:]


@pytest.fixture
def sixteen_mebibytes(tmp_path):
    """256 rows of 64 KiB and a bit, in the page cache."""
    data = np.arange(257 * 16384, dtype="f4").reshape(257, 16384)
    np.save(tmp_path / "rows.npy", data)
    with outcore.open(tmp_path / "rows.npy", "r+", hints={"threads": 2}) as a:
        if a.explain(np.s_[:]).page_cache_fraction != 1:
            pytest.skip("the system does not say what is cached")
        yield a, data


def test_a_large_write_goes_half_by_calls_and_half_by_the_mapping(sixteen_mebibytes):
    a, data = sixteen_mebibytes
    said = a.explain(np.s_[:], write=True)
    assert (said.method, data.nbytes) == ("straight", said.written_bytes + said.mapped_bytes)
    assert abs(said.written_bytes - said.mapped_bytes) < 65536
    before = a.handle.core.stats()
    a[...] = data + 1
    done = {name: n - before[name] for name, n in a.handle.core.stats().items()}
    assert (said.written_bytes, said.mapped_bytes) == (done["written_bytes"], done["mapped_bytes"])
    np.testing.assert_array_equal(data + 1, np.load(a.path))
    with outcore.open(a.path, "r+", hints={"threads": 1}) as alone:
        assert 0 in (
            alone.explain(np.s_[:], write=True).written_bytes,
            alone.explain(np.s_[:], write=True).mapped_bytes,
        )


def test_sparse_writes_that_are_flushed_one_by_one_go_by_calls(sixteen_mebibytes):
    a, data = sixteen_mebibytes
    column = np.s_[:, 7]

    def method() -> str:
        return a.explain(column, write=True).method

    # Nobody knows yet; a mapped write would make 16 MiB dirty, calls only 257 blocks.
    assert method() == "mapped"
    a[column] = data[:, 8]
    assert method() == "mapped"
    a.flush()
    assert method() == "straight"
    a[column] = data[:, 9]
    # Not flushed this time: the next one may not be, either.
    assert method() == "mapped"
    a[column] = data[:, 10]
    a.flush()
    assert method() == "mapped"
    np.testing.assert_array_equal(data[:, 10], np.load(a.path)[:, 7])
    with outcore.open(a.path, "r+", hints={"sync": True}) as careful:
        assert careful.explain(column, write=True).method == "straight"


def test_a_large_cold_write_leaves_nothing_for_fsync_to_complain_about(tmp_path):
    # Direct and buffered writes that met in a folio made the next fsync fail with EIO.
    path = tmp_path / "a.npy"
    data = np.zeros((1280, 16384), dtype=np.float32)
    np.save(path, data)
    value = np.random.default_rng(1).random((1100, 16384), dtype=np.float32)
    fd = os.open(path, os.O_RDWR)
    try:
        for cache in ("auto", "bypass"):
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with outcore.open(path, "r+", hints={"cache": cache}) as a:
                a[101:1201] = value
            os.fsync(fd)
            np.testing.assert_array_equal(np.load(path, mmap_mode="r")[101:1201], value)
    finally:
        os.close(fd)


@pytest.mark.parametrize("hints", [{}, {"sync": True}, {"threads": 1}, {"engine": "threads"}])
def test_a_cold_sparse_write_reads_its_pages_many_at_once(tmp_path, hints):
    path = tmp_path / "a.npy"
    data = np.random.default_rng(1).random((512, 8192), dtype=np.float32)
    np.save(path, data)
    fd = os.open(path, os.O_RDWR)
    try:
        for key in (np.s_[:, 5], np.s_[:, 100:5000], np.s_[::3, ::700], np.s_[7:200]):
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with outcore.open(path, "r+", hints=hints) as a:
                said = a.explain(key, write=True)
                data[key] = np.random.default_rng(2).random(data[key].shape, dtype=np.float32)
                a[key] = data[key]
                done = a.handle.core.stats()
            assert {field: getattr(said, field) for field in done} == done
            if key == np.s_[:, 5]:
                assert done["reads"] == 512
            np.testing.assert_array_equal(data, np.load(path, mmap_mode="r"))
    finally:
        os.close(fd)


def test_a_write_into_holes_reads_nothing(tmp_path):
    path = tmp_path / "a.npy"
    with outcore.create(path, (512, 8192), "f4") as a:
        assert a.explain(np.s_[:, 5], write=True).reads == 0
        a[:, 5] = 1
        assert a.stats()["reads"] == 0
