"""Open files are a budget of their own: many threads, and low limits (`RLIMIT_NOFILE`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outcore

pytest.importorskip("resource")

# `main(limit, threads, work)` runs `work(k)` on so many threads with a limit of open files, and tells
# how many were open at most.
PRELUDE = """
import os, resource, sys, threading
import numpy as np, outcore

os.chdir(sys.argv[1])
DATA = np.arange(60 * 200).reshape(60, 200)

def files():
    return len(os.listdir("/proc/self/fd"))

def main(limit, threads, work):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    failed, most, done = [], [files()], threading.Event()

    def one(k):
        try:
            work(k)
        except BaseException as error:
            failed.append(error)

    def watch():
        while not done.wait(0.0005):
            try:
                most[0] = max(most[0], files())
            except OSError:  # no place to look into the folder
                most[0] = limit

    watcher = threading.Thread(target=watch)
    watcher.start()
    all = [threading.Thread(target=one, args=(k,)) for k in range(threads)]
    for thread in all:
        thread.start()
    for thread in all:
        thread.join()
    done.set()
    watcher.join()
    assert not failed, failed
    return most[0]
"""


def runs(folder: Path, program: str) -> None:
    root = str(Path(outcore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(folder)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_sixteen_threads_read_and_write_chunks_with_256_files(tmp_path):
    """16 threads over 2400 chunks: 204 of 320 reads failed where the limit was 1024."""
    runs(
        tmp_path,
        """
made = dict(chunks=(1, 5), compression="zstd")
outcore.create("a.zarr", data=DATA, **made).close()
outcore.create("b.zarr", DATA.shape, DATA.dtype, chunks=(1, 5)).close()
a, b = outcore.open("a.zarr", "r+"), outcore.open("b.zarr", "r+")
before = files()

def work(k):
    rows = np.s_[k * 3 : k * 3 + 12]
    np.testing.assert_array_equal(a[rows], DATA[rows])
    a[k * 3 : k * 3 + 3, 1:] = DATA[k * 3 : k * 3 + 3, 1:]
    b[k * 3 : k * 3 + 3] = DATA[k * 3 : k * 3 + 3]
    a.explain(rows)
    b.flush()
    np.testing.assert_array_equal(b[k * 3 : k * 3 + 3], DATA[k * 3 : k * 3 + 3])

# The budget is three quarters of the limit; what is open for a moment comes beside it.
assert main(256, 16, work) <= before + 192 + 40
np.testing.assert_array_equal(a[...], DATA)
""",
    )


@pytest.mark.parametrize("limit", [64, 32])
def test_one_reader_and_writer_get_along_with_a_low_limit(tmp_path, limit):
    runs(
        tmp_path,
        f"""
def work(k):
    zstd = dict(compression="zstd")
    for name, more in (
        ("a.zarr", zstd), ("b.zarr", {{}}), ("c.zarr", dict(shards=(12, 50), **zstd)),
        ("d.zarr", dict(shards=(12, 50))),
    ):
        a = outcore.create(name, DATA.shape, DATA.dtype, chunks=(6, 10), **more)
        a[...] = DATA
        np.testing.assert_array_equal(a[::2], DATA[::2])
        a[1:30, 3:20] = -1
        a.flush()
        assert (a[1:30, 3:20] == -1).all() and a[30, 20] == DATA[30, 20]
        a.append(DATA[:2])
        np.testing.assert_array_equal(a[60:], DATA[:2])
        a.close()

assert main({limit}, 1, work) <= {limit}
""",
    )


@pytest.mark.parametrize("limit", [64, 32])
@pytest.mark.parametrize("hints", [{}, {"cache": "bypass"}, {"method": "list"}])
def test_an_array_of_many_files_keeps_few_open(tmp_path, hints, limit):
    for k in range(400):
        np.full(30, k, "i4").tofile(tmp_path / f"{k:04}.raw")
    runs(
        tmp_path,
        f"""
a = outcore.open("*.raw", "r+", dtype="i4", shape=(400, 30), hints={hints!r})
expected = np.repeat(np.arange(400, dtype="i4"), 30).reshape(400, 30)

def work(k):
    np.testing.assert_array_equal(a[k::4], expected[k::4])
    np.testing.assert_array_equal(a[:, 3 + k], expected[:, 3 + k])
    a[k::4, ::2] = expected[k::4, ::2]
    a[:, k] = expected[:, k]
    a.flush()
    np.testing.assert_array_equal(a[...], expected)

assert main({limit}, 4, work) <= {limit}
""",
    )


def test_many_open_arrays_share_few_places(tmp_path):
    for k in range(120):
        np.save(tmp_path / f"{k}.npy", np.full((4, 4), k))
    runs(
        tmp_path,
        """
arrays = [outcore.open(f"{k}.npy", "r+") for k in range(120)]

def work(k):
    for n, a in enumerate(arrays):
        assert (a[...] == n).all()
        a[k] = n
        a.flush()

assert main(64, 4, work) <= 64
""",
    )


def test_an_error_names_the_limit(tmp_path):
    runs(
        tmp_path,
        """
a = outcore.create("a.zarr", data=DATA, chunks=(3, 5), compression="zstd")
outcore.open("a.zarr").close()  # its module is imported before the limit is reached
taken = []

def work(k):
    while True:
        try:
            taken.append(open("a.zarr/zarr.json"))
        except OSError:
            break
    for call in (lambda: a[...], lambda: a.write(0, 7), lambda: outcore.open("a.zarr")):
        try:
            call()
        except outcore.errors.StorageError as error:
            assert error.code == "too-many-open-files", error
            assert error.errno == 24 and "RLIMIT_NOFILE" in str(error) and "ulimit -n" in str(error)
        else:
            raise AssertionError("no error")
    taken.clear()
    np.testing.assert_array_equal(a[...], DATA)

resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
work(0)
""",
    )
