"""Each family of algorithms on a disk that is full, from the beginning or in the midst."""

import importlib
import os
import re

import pytest

import outcore
from algorithm_runs import content, in_files, must_be_right, run
from algorithms import MIB
from outcore.compute import jobs

#: One of each family.
FAMILIES = [
    "transpose",
    "rechunk",
    "map_blocks",
    "stencil",
    "stencil in several passes",
    "median_filter",
    "sum",
    "cumsum",
    "quantile",
    "matmul by blocks",
    "lu",
    "cholesky",
    "fft",
    "fft of a long signal",
    "sort",
    "sort of lines",
    "argsort",
]


def coded(name):
    """How results are made that need room as they grow."""
    lines = name in ("sort", "argsort", "sum", "fft of a long signal")
    words = {"compression": "zstd", "memory": 2 * MIB}
    if name == "cholesky":
        return {**words, "chunks": 16, "memory": MIB}
    return words if name == "rechunk" else {**words, "chunks": 4096 if lines else 32}


@pytest.fixture(autouse=True)
def each_step_is_recorded(monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.checkpoints"), "_CHECKPOINT", 0.0
    )


class Disk:
    """A small disk where results go, beside another with the inputs."""

    def __init__(self, name, folder, inputs, suffix):
        self.folder = folder
        os.chdir(inputs)
        self.case = in_files(name)
        self.inputs = [content(path) for path in self.case.paths]
        self.case.paths = [os.path.abspath(path) for path in self.case.paths]
        outs = [f"out{n}{suffix or kept}" for n, kept in enumerate(self.case.outs)]
        self.case.out = tuple(str(folder / name) for name in outs)
        os.chdir(folder)

    def fill(self, left=0):
        """Let there be no room, but for so many bytes."""
        with open(self.folder / "filler", "ab", buffering=0) as file:
            disk = os.statvfs(self.folder)
            room = disk.f_bavail * disk.f_frsize - left
            os.posix_fallocate(file.fileno(), file.tell(), max(room, 1))

    def make_room(self):
        os.unlink(self.folder / "filler")

    def names(self):
        return sorted(set(os.listdir(self.folder)) - {"filler"})

    def is_refused(self, **words):
        """The error says what is the matter, and the inputs are what they were."""
        with pytest.raises(outcore.errors.StorageError) as caught:
            run(self.case, **words)
        assert caught.value.code == "disk-full"
        assert re.search("free (some )?space", str(caught.value))
        assert "outcore-partial" not in str(caught.value)
        assert [content(path) for path in self.case.paths] == self.inputs
        return caught.value

    def is_right(self, **words):
        must_be_right(self.case, run(self.case, **words))
        assert self.names() == sorted(map(os.path.basename, self.case.out))
        assert [content(path) for path in self.case.paths] == self.inputs


@pytest.mark.parametrize("small_disk", ["24m"], indirect=True)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_disk_that_is_full_from_the_beginning(name, small_disk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk = Disk(name, small_disk, tmp_path, "")
    for left in (0, 16 << 10):
        for words in ({}, {"resume": True}):
            disk.fill(left)
            disk.is_refused(**words)
            assert disk.names() == [], "nothing is left"
            disk.make_room()
    disk.is_right(resume=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("small_disk", ["24m"], indirect=True)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_disk_that_becomes_full(name, small_disk, tmp_path, monkeypatch):
    """What is done stays, if there is anything; the same call goes on when there is room."""
    monkeypatch.chdir(tmp_path)
    disk, words = Disk(name, small_disk, tmp_path, ".zarr"), coded(name)
    calls, done = [], []

    def progress(now, total):
        calls.append(now)
        if len(calls) == disk.case.begun + 1:
            disk.fill()

    error = disk.is_refused(progress=progress, **words)
    found = jobs.unfinished(small_disk)
    if found:
        (job,) = found
        assert job.done > 0
        assert any("resume=True continues" in note for note in error.__notes__)
        kept = job.done
        disk.is_refused(resume=True, **words)
        assert jobs.unfinished(small_disk)[0].done >= kept, "nothing is lost by trying"
    else:
        assert disk.names() == [], "nothing is left"
    disk.make_room()
    disk.is_right(resume=True, progress=lambda now, total: done.append(now), **words)
    assert done[0] > 0 or not found
    monkeypatch.chdir(tmp_path)
