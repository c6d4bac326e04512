"""HDF5 files that lie: addresses outside the file, chunks that overlap. Random damage: `tests/fuzz`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from outcore import errors, formats

h5py = pytest.importorskip("h5py")


def make(path, libver):
    """Datasets of every storage."""
    with h5py.File(path, "w", libver=libver) as file:
        file["c"] = np.arange(50.0)
        data = np.arange(60).reshape(10, 6)
        file.create_dataset("k", data=data, chunks=(3, 4))
        file.create_dataset("z", data=data, chunks=(3, 4), compression=1, shuffle=True)
        file["z"].attrs["text"] = "read when asked for"
        file["g/s"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize("target", ["c", "k", "z"])
@pytest.mark.parametrize("lie", ["beyond", "huge", "negative"])
def test_addresses_outside_the_file(tmp_path, target, lie):
    path = tmp_path / "a.h5"
    make(path, "earliest")
    with h5py.File(path) as file:
        dset = file[target]
        chunk = None if target == "c" else dset.id.get_chunk_info_by_coord((3, 4))
        address = dset.id.get_offset() if chunk is None else chunk.byte_offset
    # A contiguous dataset's address is followed by its size; a chunk's stands alone in the B-tree.
    tail = (400).to_bytes(8, "little") if chunk is None else b""
    found = address.to_bytes(8, "little") + tail
    data = path.read_bytes()
    assert data.count(found) == 1
    wrong = {"beyond": len(data) - 3, "huge": 2**62, "negative": 2**64 - 2**20}[lie]
    path.write_bytes(data.replace(found, wrong.to_bytes(8, "little") + tail))
    seen = [fetch_all(f"{path}::{target}", at, n) for at, n in [(1, 1), (0, 4)]]
    assert set(seen) <= {"file-too-short", "chunk-out-of-file", "hdf5-refused"}


def fetch_all(path, at, count):
    """The code of the error that opening, or asking for chunks (one look-up or a table), raises."""
    with pytest.raises(errors.FormatError) as caught:  # noqa: PT012
        info = formats.open_info(path)
        info.layout.source.fetch((at, at), (count, min(count, 2)))
    return caught.value.code


def test_chunks_that_share_bytes(tmp_path):
    path = tmp_path / "a.h5"
    data = np.arange(1000)
    with h5py.File(path, "w") as file:
        file.create_dataset("k", data=data, chunks=(50,))
        first = file["k"].id.get_chunk_info(0).byte_offset
        second = file["k"].id.get_chunk_info(1).byte_offset
    good = path.read_bytes()
    lying = good.replace(second.to_bytes(8, "little"), (first + 8).to_bytes(8, "little"))
    assert lying != good
    path.write_bytes(lying)
    info = formats.open_info(path)
    with pytest.raises(errors.FormatError, match="two chunks of dataset '/k' share bytes"):
        info.layout.source.fetch((0,), (20,))


@pytest.mark.parametrize("keep", [0, 5, 100, 1000, -500, -1])
def test_cut_files(tmp_path, keep):
    path = tmp_path / "a.h5"
    make(path, "earliest")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(errors.FormatError, match=r"cut off|damaged|cannot"):
        formats.open_info(f"{path}::c")


def test_cut_after_the_table_was_read(tmp_path):
    path = tmp_path / "a.h5"
    make(path, "earliest")
    info = formats.open_info(f"{path}::z")
    info.layout.source.fetch((0, 0), (4, 2))
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(errors.FormatError):
        info.layout.source.fetch((0, 0), (4, 2))


def test_a_class_that_is_almost_one(tmp_path):
    """`H5DSis_scale` of HDF5 2.0 frees memory twice over it, which would end the process."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["x"] = np.arange(6.0)
        file["x"].make_scale("x")
    damaged = path.read_bytes().replace(b"DIMENSION_SCALE", b"DIEENSION_SCALE")
    program = "import sys, outcore; x = sys.argv[1]; print(outcore.open(x)[2], len(outcore.ls(x)))"
    for name in ("a.h5", "a.nc"):
        (tmp_path / name).write_bytes(damaged)
        words = [sys.executable, "-c", program, str(tmp_path / name)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "2.0 1\n"), done.stderr[-500:]
