"""Who owns which array in a collective of many: files with one writer, bytes that ranks share, hints."""

import os

import numpy as np
import pytest

import outcore
from ranks import ranks

NODES = (None, 1)


def make(t, folder, names, rows=64, columns=32, **words):
    """Arrays of 64 rows; a name may be that of an array in a file."""
    if t.rank == 0:
        for number, name in enumerate(names):
            data = np.arange(rows * columns, dtype="f8").reshape(rows, columns) + number
            outcore.create(f"{folder}{os.sep}{name}", data=data, **words).close()
    t.barrier()
    return {name: outcore.open(f"{folder}{os.sep}{name}", "r+", comm=t) for name in names}


def told(t, folder, arrays, keys, **words):
    """What is told of each array: its owners."""
    report = outcore.explain_all(
        [(arrays[name], key) for name, key in keys], comm=t, method="two-phase", **words
    )
    here = f"{folder}{os.sep}"
    owners = {a.path.removeprefix(here): [rank for rank, _ in a.owners] for a in report.arrays}
    return owners, report


@ranks(2, 4, per_node=NODES)
def test_each_file_with_one_writer_has_its_own(world, folder):
    pytest.importorskip("h5py")
    chunked = [f"{letter}.h5::/{name}" for letter in "abcd" for name in "xy"]

    def body(t):
        many = make(t, folder, chunked, chunks=(8, 8))
        plain = make(t, folder, ["p.npy"], rows=1024)
        arrays = many | plain
        keys = [(name, np.s_[:, t.rank :: t.size]) for name in arrays]
        owners, _ = told(t, folder, arrays, keys, write=True)
        outcore.write_all(
            [(arrays[name], key, float(k)) for k, (name, key) in enumerate(keys)],
            comm=t,
            method="two-phase",
        )
        for k, (name, _) in enumerate(keys):
            assert (arrays[name][...] == k).all()
        t.barrier()
        for array in arrays.values():
            array.close()
        return owners

    for owners in world.run(body):
        files = {}
        for name in chunked:
            assert len(owners[name]) == 1, "one process at a time writes a file of HDF5"
            files.setdefault(name[0], set()).update(owners[name])
        assert all(len(writers) == 1 for writers in files.values()), "both arrays of a file"
        assert len(set.union(*files.values())) > 1, "another file may have another writer"
        assert len(owners["p.npy"]) > 1, "and .npy files may have many"


@ranks(3)
def test_who_writes_a_file_alone_has_all_its_arrays(world, folder):
    """Rank 0 has one array of the file, rank 2 both: it is rank 2 that writes."""
    pytest.importorskip("h5py")

    def body(t):
        arrays = make(t, folder, ["a.h5::/x", "a.h5::/y"], chunks=(8, 8))
        keys = {
            0: [("a.h5::/x", np.s_[:10])],
            1: [],
            2: [("a.h5::/x", np.s_[10:12]), ("a.h5::/y", np.s_[:4])],
        }[t.rank]
        owners, _ = told(t, folder, arrays, keys, write=True)
        outcore.write_all(
            [(arrays[name], key, 5.0) for name, key in keys], comm=t, method="two-phase"
        )
        assert (arrays["a.h5::/x"][:12] == 5).all() and (arrays["a.h5::/y"][:4] == 5).all()
        t.barrier()
        for array in arrays.values():
            array.close()
        return owners

    for owners in world.run(body):
        assert list(owners.values()) == [[2], [2]]


@ranks(5, per_node=NODES)
def test_bytes_that_ranks_share_are_one_load(world, folder):
    """File a is wanted by four ranks, b by one; all may own either: both are one load."""

    def body(t):
        arrays = make(t, folder, ["a.npy", "b.npy"], rows=4096)
        keys = [("a.npy", np.s_[:]), ("b.npy", np.s_[0:0])]
        if t.rank == 4:
            keys = [("a.npy", np.s_[0:0]), ("b.npy", np.s_[:])]
        _, report = told(t, folder, arrays, keys)
        for array in arrays.values():
            array.close()
        return [owner.load for owner in report.owners]

    for loads in world.run(body):
        assert len(loads) == world.size
        assert sum(loads) == 2 * 4096 * 32 * 8
        assert max(loads) <= 1.1 * sum(loads) / len(loads), loads
