"""Ranks read strings of HDF5 by their ends, whoever reads them from the disk."""

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

import outcore
from ranks import ranks

WORDS = b"\0d  ab  abcda\0b z\0  \0\0\0\0    xy\0\0 b  "
NAMES = ("contiguous", "gzip", "contiguous-structure", "gzip-structure")


def make(file, name):
    word = h5t.C_S1.copy()
    word.set_size(4)
    kind = word
    if "structure" in name:
        kind = h5t.create(h5t.COMPOUND, 14)
        kind.insert(b"n", 0, h5t.STD_I16LE)
        kind.insert(b"words", 3, h5t.array_create(word, (2,)))
    plist = h5p.create(h5p.DATASET_CREATE)
    if "gzip" in name:
        plist.set_chunk((2, 3))
        plist.set_deflate(1)
    dset = h5d.create(file.id, name.encode(), kind, h5s.create_simple((6, 4)), plist)
    raw = (WORDS * 12)[1 : 24 * kind.get_size() + 1]
    dset.write(h5s.ALL, h5s.ALL, np.frombuffer(raw, np.uint8), mtype=kind)


def same(found, expected, *case):
    assert repr(np.asarray(found).tolist()) == repr(expected.tolist()), case


READS = {
    "read_all": lambda a, rows: a.read_all(rows),
    "iread_all": lambda a, rows: a.iread_all(rows).wait(),
    "direct": lambda a, rows: a.schedule_all(rows).gather_all(method="direct"),
    "collective": lambda a, rows: a.schedule_all(rows).gather_all(method="collective"),
    "pipelined": lambda a, rows: a.schedule_all(rows).gather_all(method="pipelined"),
}


@ranks(1, 2, 3, most=5)
def test_ranks_read_strings_as_one_process_does(world, folder):
    path = folder / "a.h5"

    def body(t):
        if t.rank == 0:
            with h5py.File(path, "w") as file:
                for name in NAMES:
                    make(file, name)
        t.barrier()
        for name in NAMES:
            with h5py.File(path) as file:
                expected = file[name][...]
            key = np.s_[t.rank :: t.size, 1:]
            rows = np.array([5, t.rank, 3, 3])
            with outcore.open(f"{path}::/{name}", comm=t) as a:
                for method in ("two-phase", "direct"):
                    same(a.read_all(key, method=method), expected[key], name, method)
                    (found,) = outcore.mpi.read_all([(a, key)], method=method)
                    same(found, expected[key], name, method, "many")
                for way, read in READS.items():
                    same(read(a, rows), expected[rows], name, way)

    world.run(body)
