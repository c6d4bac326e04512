"""Chunks that outcore wrote and that are gone: damage, and never the fill value."""

import importlib
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.compute import jobs
from outcore.errors import CollectiveError, StorageError
from outcore.mpi import DistArray, Distribution
from outcore.testing.sim import SimWorld


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTCORE_SCRATCH", str(tmp_path))


def lose_a_chunk(folder):
    """Remove the last chunk file below a folder."""
    marks = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
    found = [p for p in Path(folder).rglob("*") if p.is_file() and p.name not in marks]
    max(found).unlink()


def test_checkpoint_with_a_lost_chunk_is_refused():
    def body(t, state, name):
        rows = Distribution((6, 5), ["block", "*"], t.size)
        u = DistArray.from_function(lambda i, j: 1.0 + i + j, rows, transport=t)
        outcore.mpi.checkpoint(state, {name: u, "v": np.ones(3)})
        t.barrier()
        if t.rank == 0:
            lose_a_chunk(f"{state}/arrays-1/{name}")
        t.barrier()
        with pytest.raises((StorageError, CollectiveError)) as found:
            outcore.mpi.restore(state, comm=t)
        assert outcore.mpi.restore(state, names=["v"], comm=t)["v"].sum() == 3
        return str(found.value) + str(found.value.__cause__)

    for size, suffix in itertools.product((1, 2), (".zarr", ".zarr2")):
        state = f"state{size}{suffix}"
        told = SimWorld(size).run(lambda t, s=state, n=f"u{suffix}": body(t, s, n))
        assert any("is missing, although checkpoint() wrote all" in one for one in told), state
    with pytest.raises(StorageError, match="is missing, although"):
        outcore.mpi.restore("state1.zarr")


def test_returned_temporary_with_a_lost_chunk_is_refused():
    a = outcore.create("a.npy", data=np.ones((8, 8)))
    for words in ({"chunks": (4, 4)}, {"chunks": (2, 2), "shards": (4, 4)}, {"format": "zarr2"}):
        with outcore.transpose(a, **words) as b:
            assert b[...].sum() == 64
            lose_a_chunk(b.path)
            with pytest.raises(StorageError) as found:
                b[...]
            assert found.value.code == "missing-chunk", words


@pytest.mark.parametrize("suffix", [".zarr", ".zarr2"])
def test_resumed_job_with_a_lost_chunk_is_refused(monkeypatch, suffix):
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.checkpoints"), "_CHECKPOINT", 0.0
    )
    np.save("a.npy", np.arange(1e5).reshape(1000, 100))
    words = {"out": f"b{suffix}", "chunks": (50, 100), "memory": 500_000}

    def stop(done, total):
        if done >= total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcore.map_blocks(np.negative, outcore.open("a.npy"), progress=stop, **words)
    (one,) = jobs.unfinished()
    assert one.done
    partial = one.partial[0][0]
    files = sorted(p for p in Path(partial).rglob("*") if p.is_file() and "0" in p.name)
    assert len(files) > 1
    files[0].unlink()
    with pytest.raises(StorageError, match="are missing; start again") as found:
        outcore.map_blocks(np.negative, outcore.open("a.npy"), resume=True, **words)
    assert found.value.code == "missing-chunk"
    assert not os.path.exists(f"b{suffix}")


def test_plans_of_results_that_are_read_again():
    """Nothing of the result is stored yet."""
    np.save("a.npy", np.arange(120_000.0).reshape(400, 300))
    kernel = [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]
    with (
        outcore.open("a.npy") as a,
        outcore.stencil(a, kernel, steps=20, out="b.zarr", memory=1_600_000) as b,
        outcore.stencil(a, kernel, steps=20, out="b.npy", memory=1_600_000) as c,
    ):
        np.testing.assert_array_equal(b[...], c[...])
