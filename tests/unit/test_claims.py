"""Arrays that claim far more than they store: whoever looks at them pays for what is stored."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import outcore
from clock import within
from outcore import cli, errors

EXTENSIVE = ["reads", "read_bytes", "writes", "written_bytes", "mapped_bytes", "useful_bytes",
             "decodes", "encodes", "rounds"]  # fmt: skip


def endless(folder, name, **options):
    """10^15 chunks or more, three of which are stored."""
    path = f"{folder}/{name}"
    if name.endswith(".h5"):
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (10**8, 10**8), "u1", chunks=(1, 10), compression=1)
    else:
        outcore.create(path, (10**8, 10**8), "u1", **options).close()
    with outcore.open(path, "r+") as array:
        array[5, 7], array[10**7, 3:13] = 1, 2
    return path


STORES = {
    "a.h5": {},
    "a.zarr": {"chunks": (1, 10), "compression": "zstd"},
    "b.zarr": {"chunks": (1, 10)},
    "c.zarr": {"chunks": (1, 10), "shards": (2, 20), "compression": "zstd"},
    "d.zarr": {"chunks": (1, 10), "separator": "."},
    "e.zarr": {"chunks": (1, 10), "format": "zarr2"},
}


@pytest.fixture(params=STORES)
def path(request, tmp_path):
    return endless(tmp_path, request.param, **STORES[request.param])


def test_10_to_the_15_chunks_are_looked_at_or_refused_at_once(path, capsys):
    with within(20), outcore.open(path, "r+") as array:
        for ask in (
            lambda: array.explain(),
            lambda: array.explain(write=True),
            lambda: array[...],
            lambda: array.write(..., 1),
            lambda: array.write(..., 1.0),  # through a cast
            lambda: array.prefetch(),
        ):
            with pytest.raises(errors.SectionError, match="some of its rows") as caught:
                ask()
            assert caught.value.code == "too-many-chunks"
        array.stats()
        few = array.explain(np.s_[:100, : 10**6])
        assert (few.reads, few.useful_bytes) == (1, 10**8)
        array.prefetch(np.s_[:100, : 10**6])
        lattice = array.explain(np.s_[5 :: 10**6, 7 :: 10**6])
        assert (lattice.reads, lattice.useful_bytes) == (1, 10**4)
    with within(20):
        assert cli.main(["info", path]) == 0
        assert "whole      the section touches" in capsys.readouterr().out
        assert cli.main(["info", "--json", path]) == 0
        accesses = json.loads(capsys.readouterr().out)["accesses"]
        assert accesses["whole"]["code"] == "too-many-chunks"
        assert accesses["chunk"]["useful_bytes"] == 10
        assert cli.main(["explain", path]) == 2


def test_many_batches_of_a_small_budget_are_refused(tmp_path):
    """Of one chunk each, if no two have room: 10^9 of them would be counted one by one."""
    path, before = str(tmp_path / "a.zarr"), outcore.memory()
    outcore.create(path, (10**6, 10**12), "u1", chunks=(1, 10**9), compression="zstd").close()
    outcore.memory("64 MiB")
    try:
        with within(20), outcore.open(path) as array:
            with pytest.raises(errors.SectionError, match="under a small budget") as caught:
                array.explain()
            assert caught.value.code == "too-many-chunks"
            assert array.explain(np.s_[:100]).useful_bytes == 10**14
    finally:
        outcore.memory(before)


def test_verify_reads_what_is_stored(path):
    seen = []
    with within(20):
        assert outcore.verify(path, progress=lambda done, total: seen.append((done, total))) == []
    read = 80 if path.endswith("c.zarr") else 30  # two shards, or three chunks
    assert seen[-1] == (read, read)


def test_verify_finds_the_damage_among_what_is_stored(tmp_path):
    path = endless(tmp_path, "a.zarr", **STORES["a.zarr"])
    Path(path, "c/10000000/1").write_bytes(b"no frame")
    with within(20):
        (damage,) = outcore.verify(path)
    assert (damage.section, damage.code) == ("[10000000:10000001, 10:20]", "codec-failure")


def test_a_chunk_larger_than_memory_whose_file_is_short_is_one_damage(tmp_path):
    """Bare chunks are read in pieces; the first that fails is enough."""
    path = str(tmp_path / "a.zarr")
    outcore.create(path, (2**30, 2**30), "u1", chunks=(2**29, 2**30)).close()
    file = Path(path, "c/1/0")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"short")
    with within(20):
        (damage,) = outcore.verify(path)
    assert damage.section == f"[{2**29}:{2**30}, 0:{2**30}]"


@pytest.mark.parametrize("budget", ["64 MiB", "2 MiB"])
@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (20, 30), "compression": "zstd:1"},
        {"chunks": (20, 30), "shards": (60, 60), "compression": "zstd:1"},
        {"chunks": (130, 90)},
        {"chunks": (2000, 2500)},
        {"chunks": (20, 30), "shards": (2000, 2400), "compression": "zstd:1"},
    ],
)
def test_verify_visits_every_stored_chunk_once(tmp_path, options, budget):
    """Few and many of them, smaller and larger than a tile, at edges."""
    rng = np.random.default_rng(5)
    path = str(tmp_path / "a.zarr")
    with outcore.create(path, (2010, 3020), "i2", **options) as array:
        array[:400, :1000] = rng.integers(0, 9, (400, 1000))
        array[2009, 3019] = array[1000, 2000] = 7
    before = outcore.memory()
    outcore.memory(budget)
    seen = []
    try:
        found = outcore.verify(path, progress=lambda done, total: seen.append((done, total)))
        assert found == []
        done, total = seen[-1]
        assert total >= done >= 400 * 1000 * 2
        chunks = [p for p in Path(path).rglob("*") if p.is_file() and p.name != "zarr.json"]
        for chunk in chunks:
            os.truncate(chunk, 5)
        found = outcore.verify(path)
    finally:
        outcore.memory(before)
    if "shards" not in options:
        assert len(found) == len({d.section for d in found}) == len(chunks)


@pytest.mark.parametrize("codec", ["zstd", None])
@pytest.mark.parametrize("write", [False, True])
def test_explain_of_many_chunks_is_the_sum_of_single_ones(tmp_path, codec, write):
    """The sum over rows of chunks, which are looked up one by one."""
    with outcore.create(
        tmp_path / "a.zarr", (60, 2000), "u1", chunks=(2, 3), compression=codec
    ) as array:
        array[20:24, 200:300] = 1
        array[59, 1999] = 3
        for columns in (np.s_[:], np.s_[5:-3], np.s_[::7], np.s_[1:-9:4]):
            whole = array.explain((slice(None), columns), write=write)
            rows = [slice(k, k + 2) for k in range(0, 60, 2)]
            parts = [array.explain((row, columns), write=write) for row in rows]
            for name in EXTENSIVE:
                assert getattr(whole, name) == sum(getattr(p, name) for p in parts), name
            assert whole.peak_bytes == max(p.peak_bytes for p in parts)


def test_looking_is_interrupted(tmp_path):
    """At as many chunks as one access may touch, which takes some seconds."""
    path = str(tmp_path / "a.zarr")
    outcore.create(path, (2**30,), "u1", chunks=1).close()
    with outcore.open(path) as array:
        kill = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        kill.start()
        started = time.monotonic()
        with within(20), pytest.raises(KeyboardInterrupt):
            array.explain()
        assert time.monotonic() - started < 10
        kill.join()


class EnoughError(Exception):
    """Raised by a test to stop a job."""


def test_a_conversion_of_endless_tiles_begins_at_once(tmp_path):
    """It takes as long as it takes, but not before the first tile."""
    path, told = str(tmp_path / "a.zarr"), []
    outcore.create(path, (2**28, 2**28), "u1", chunks=(2**11, 2**11), compression="zstd:1").close()

    def progress(done, total):
        told.append((done, total))
        if len(told) > 2:
            raise EnoughError

    with within(30), pytest.raises(EnoughError):
        outcore.convert(path, tmp_path / "b.zarr", progress=progress, memory="64 MiB")
    assert told[0] == (0, pytest.approx(2**56, rel=1e-3))  # by some of the tiles
    assert told[1][0] < told[2][0]


@pytest.mark.parametrize("options", [{}, {"separator": "."}, {"format": "zarr2"}], ids=str)
def test_a_resize_looks_at_the_chunks_that_are_stored(tmp_path, options):
    """Not at each of 10^9 places along the border, whose chunks it fills beyond the old end."""
    with outcore.create(tmp_path / "a.zarr", (10**9, 3), "i1", chunks=(1, 2), **options) as a:
        for row in (0, 5, 10**9 - 1):
            a[row] = [1, 2, 3]
        files = sorted((tmp_path / "a.zarr").rglob("*"))
        for file in files:
            if file.is_file() and file.name[-1] == "1":  # as other libraries pad it
                file.write_bytes(b"\3\4")
        with within(20):
            a.resize((10**9, 4))
        assert a[:: 10**9 // 10**3].sum() == 6
        for row in (0, 5, 10**9 - 1):
            assert a[row].tolist() == [1, 2, 3, 0]
        a.resize((10**9 + 2, 4))
        assert a[10**9 - 2 :].tolist() == [[0, 0, 0, 0], [1, 2, 3, 0], [0] * 4, [0] * 4]
