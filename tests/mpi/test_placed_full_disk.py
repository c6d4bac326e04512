"""An array that cannot be made by all ranks leaves no files of any of them."""

import errno
import os

import pytest

import outcore
from outcore.errors import CollectiveError
from outcore.formats import durable
from outcore.problems.placement import making
from ranks import ranks


@pytest.mark.parametrize("before", ["nothing", "a folder", "an array"])
@pytest.mark.simulated  # each process would prepare the folder
@ranks(1, 3)
def test_a_full_disk_leaves_no_files(world, folder, before, monkeypatch):
    """The disk of the last rank is full; then that of the manifest; then nothing is wrong."""
    rows = outcore.mpi.Distribution((6, 4), ["block", "*"], world.size)
    name = folder / "a"
    if before == "a folder":
        name.mkdir()
    full = {"file": True, "manifest": True}
    create, create_file = outcore.create, durable.create_file

    def made(path, *words, **more):
        if full["file"] and f"rank-{world.size - 1:04d}" in os.path.basename(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(path, *words, **more)

    def written(path, *words, **more):
        if full["manifest"] and os.path.basename(path) == "placement.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create_file(path, *words, **more)

    def body(t):
        def attempt():
            outcore.mpi.create_placed(
                name, rows, "f8", placement="local", comm=t, overwrite=True
            ).close()

        def fails():
            with pytest.raises((CollectiveError, OSError)):
                attempt()
            t.barrier()
            found = sorted(os.listdir(folder)), name.exists() and os.listdir(name)
            there = before == "a folder"
            assert found == ((["a"], []) if there else ([], False)), found
            t.barrier()

        if before == "an array":
            full.update(file=False, manifest=False)
            t.barrier()
            attempt()
            t.barrier()
            full.update(file=True, manifest=True)
            t.barrier()
            with pytest.raises((CollectiveError, OSError)):
                attempt()
            t.barrier()
            assert os.listdir(name) == [], "the old array has made room"
            t.barrier()
            if t.rank == 0:
                name.rmdir()
            t.barrier()
        fails()
        full["file"] = False
        t.barrier()
        fails()
        full["manifest"] = False
        t.barrier()
        attempt()
        t.barrier()
        assert len(os.listdir(name)) == t.size + 1

    monkeypatch.setattr(outcore, "create", made)
    monkeypatch.setattr(durable, "create_file", written)
    assert making.durable is durable
    world.run(body)
