"""Decoded chunks that are kept: whoever writes what when, elements are those of the file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.testing import strategies

KINDS = {
    "zarr2": ("a.zarr", {"format": "zarr2", "compression": "zstd"}),
    "zarr3": ("a.zarr", {"compression": "blosc"}),
    "shards": ("a.zarr", {"shards": (64, 64), "compression": "zstd"}),
    "h5": ("a.h5::/x", {"compression": "gzip", "maxshape": (None, None)}),
}
CHUNKS = (32, 32)
QUIET = 0.012
ACTIONS = ["read", "read", "read", "column", "column", "write", "wait", "resize", "press", "open"]


@pytest.fixture(autouse=True)
def quiet():
    _core.keep_chunks_after(QUIET)
    yield
    _core.keep_chunks_after(10**6)


class Pair:
    """Two handles on one array, and what it holds."""

    def __init__(self, path: str, kind: str) -> None:
        name, options = KINDS[kind]
        self.expected = np.arange(70 * 90, dtype="i4").reshape(70, 90)
        where = f"{path}/{name}"
        made = outcore.create(where, data=self.expected, chunks=CHUNKS, fill_value=0, **options)
        self.handles = [made, outcore.open(where, "r+")]
        self.seed = 0

    def do(self, draw, action: str) -> None:
        a = draw(st.sampled_from(self.handles))
        shape = self.expected.shape
        if action == "read":
            key = draw(strategies.keys(shape))
            np.testing.assert_array_equal(self.expected[key], a[key])
        elif action == "column":
            k = draw(st.integers(0, shape[1] - 1))
            np.testing.assert_array_equal(self.expected[:, k], a[:, k])
        elif action == "write":
            key = draw(strategies.keys(shape))
            self.seed += 1
            self.expected[key] = self.seed
            a[key] = self.seed
        elif action == "wait":
            time.sleep(QUIET + 0.012)
        elif action == "press":
            with _core.Reservation("a task", _core.memory_state()[1] - draw(st.integers(0, 9000))):
                pass
        elif action == "open":
            self.handles[1].close()
            self.handles[1] = outcore.open(self.handles[0].path, "r+")
        elif action == "resize":
            rows = draw(st.integers(40, 100))
            grown = np.zeros((rows, shape[1]), "i4")
            grown[: min(rows, shape[0])] = self.expected[:rows]
            self.expected = grown
            self.handles[1].close()
            self.handles[0].resize(grown.shape)
            self.handles[1] = outcore.open(self.handles[0].path, "r+")

    def close(self) -> None:
        for a in self.handles:
            a.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_reads_writes_and_resizes_of_two_handles_equal_numpy(kind, data):
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, kind)
        try:
            for action in data.draw(st.lists(st.sampled_from(ACTIONS), min_size=6, max_size=18)):
                pair.do(data.draw, action)
            np.testing.assert_array_equal(pair.expected, pair.handles[1][...])
        finally:
            pair.close()


DATA = np.arange(70 * 90, dtype="i4").reshape(70, 90) % 1000
TURNS = 60
ZARR = """
    import random, sys, time
    import numpy as np, zarr

    array = zarr.open_array(sys.argv[1], mode="r+")
    data = np.arange(70 * 90, dtype="i4").reshape(70, 90) % 1000
    for k in range(1, int(sys.argv[2])):
        array[:] = 1000 * k + data
        print(k, flush=True)
        time.sleep(random.choice([0, 0.001, 0.004, 0.04]))
"""
HDF5 = """
    import sys
    import numpy as np, h5py

    data = np.arange(70 * 90, dtype="i4").reshape(70, 90) % 1000
    for line in sys.stdin:
        with h5py.File(sys.argv[1], "r+") as file:
            file["x"][:] = 1000 * int(line) + data
        print(line, flush=True, end="")
"""


def _writer(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path), str(TURNS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _used(array: outcore.DiskArray) -> None:
    """The test was about something: chunks were kept, if they are on this file system at all."""
    time.sleep(QUIET + 0.012)
    np.testing.assert_array_equal(array[:, 3] % 1000, DATA[:, 3])
    if _core.kept_chunks() != (0, 0):
        assert array.stats()["cached_chunks"] > 0


@pytest.mark.parametrize("kind", ["zarr2", "zarr3", "shards"])
def test_published_chunks_of_another_process_are_read(tmp_path: Path, kind: str) -> None:
    """A second process replaces all chunks again and again while they are read."""
    pytest.importorskip("zarr")
    name, options = KINDS[kind]
    outcore.create(tmp_path / name, data=DATA, chunks=CHUNKS, **options).close()
    published = [0]
    with outcore.open(tmp_path / name) as array, _writer(ZARR, tmp_path / name) as writer:
        lines = writer.stdout or ()
        follower = threading.Thread(target=lambda: published.extend(int(line) for line in lines))
        follower.start()
        reads = 0
        while follower.is_alive():
            known, column = published[-1], reads % 90
            reads += 1
            try:
                seen = array[:, column]
            except outcore.OutcoreError:
                continue  # Where the library replaces files without a rename: half a chunk.
            assert (seen % 1000 == DATA[:, column]).all()
            assert (seen // 1000 >= known).all()
        follower.join()
        assert published[-1] == TURNS - 1
        np.testing.assert_array_equal(1000 * (TURNS - 1) + DATA[:, 3], array[:, 3])
        _used(array)


def test_changes_of_a_closed_hdf5_file_are_read(tmp_path: Path) -> None:
    """A second process changes the file by turns; others may not read while HDF5 has it open."""
    pytest.importorskip("h5py")
    name, options = KINDS["h5"]
    outcore.create(f"{tmp_path}/{name}", data=DATA, chunks=CHUNKS, **options).close()
    with outcore.open(f"{tmp_path}/{name}") as array, _writer(HDF5, tmp_path / "a.h5") as writer:
        assert writer.stdin is not None and writer.stdout is not None
        for k in range(1, 3 * TURNS):
            writer.stdin.write(f"{k}\n")
            writer.stdin.flush()
            assert int(writer.stdout.readline()) == k
            for turn in range(k % 4):
                column = (k + turn) % 90
                np.testing.assert_array_equal(1000 * k + DATA[:, column], array[:, column])
                time.sleep((0, 0.001, 0.015)[k % 3])
        writer.stdin.close()
        _used(array)
