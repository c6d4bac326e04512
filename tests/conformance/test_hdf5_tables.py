"""Chunk tables of HDF5 that lie about places: chunks outside the dataset, two chunks in one place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outcore
from fuzz.hdf5_checksums import lookup3
from outcore import errors
from outcore.formats.hdf5.index import check_index

h5py = pytest.importorskip("h5py")

SHAPE, CHUNKS = (20, 9), (2, 3)
DATA = np.arange(180, dtype="<i4").reshape(SHAPE)


def make(path: Path, index: str, compression: int | None) -> bytes:
    """A dataset of 30 chunks: more than are looked up one by one."""
    with h5py.File(path, "w", libver="earliest" if index == "btree1" else "latest") as file:
        free = {"compression": compression, "chunks": CHUNKS, "maxshape": (None, None)}
        file.create_dataset("x", data=DATA, **free)
    return path.read_bytes()


def key(index: str, place: tuple[int, ...]) -> bytes:
    """The place of a chunk as the index stores it: elements and the element's own, or chunks."""
    if index == "btree1":
        return b"".join(n.to_bytes(8, "little") for n in (*place, 0))
    return b"".join((n // c).to_bytes(8, "little") for n, c in zip(place, CHUNKS, strict=True))


def moved(good: bytes, index: str, place: tuple[int, ...], to: tuple[int, ...]) -> bytes:
    """The file with a chunk in another place, and no checksum that tells."""
    start = good.index(b"TREE\x01" if index == "btree1" else b"BTLF")
    old, new = key(index, place), key(index, to)
    at = good.index(old, start)
    damaged = bytearray(good[:at] + new + good[at + len(old) :])
    if index == "btree2":
        head = good.index(b"BTHD")
        record = int.from_bytes(good[head + 10 : head + 12], "little")
        end = start + 6 + 30 * record  # one leaf has all
        assert lookup3(good[start:end]).to_bytes(4, "little") == good[end : end + 4]
        damaged[end : end + 4] = lookup3(bytes(damaged[start:end])).to_bytes(4, "little")
    return bytes(damaged)


@pytest.mark.parametrize("compression", [None, 1], ids=["plain", "encoded"])
@pytest.mark.parametrize("index", ["btree1", "btree2"])
def test_a_chunk_outside_the_grid_is_damage(
    tmp_path: Path, index: str, compression: int | None
) -> None:
    path = tmp_path / "a.h5"
    good = make(path, index, compression)
    assert outcore.verify(path) == []
    # The last one, so that the order of the index stays right.
    path.write_bytes(moved(good, index, (18, 6), (18, 1200)))
    (found,) = outcore.verify(path)
    assert (found.code, found.section) == ("chunk-table-damaged", "")
    assert "lists 1 chunk outside the dataset (one at element (18, 1200))" in found.message
    with outcore.open(path) as array:  # the others can be read
        assert np.array_equal(array[:18], DATA[:18])


@pytest.mark.parametrize("compression", [None, 1], ids=["plain", "encoded"])
@pytest.mark.parametrize("index", ["btree1", "btree2"])
def test_two_chunks_for_one_place_are_damage(
    tmp_path: Path, index: str, compression: int | None
) -> None:
    path = tmp_path / "a.h5"
    good = make(path, index, compression)
    path.write_bytes(moved(good, index, (18, 6), (18, 3)))
    (found,) = outcore.verify(path)
    assert (found.code, found.section) == ("chunk-table-damaged", "")
    assert "lists two chunks for the elements from (18, 3) on" in found.message
    with outcore.open(path) as array, pytest.raises(errors.FormatError, match="two chunks for"):
        array[...]


def test_verify_lists_damaged_tables_and_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    good = make(path, "btree1", 1)
    with h5py.File(path) as file:
        address = file["x"].id.get_chunk_info_by_coord((4, 3)).byte_offset
    damaged = bytearray(moved(good, "btree1", (18, 6), (18, 1200)))
    damaged[address + 4] ^= 0xFF
    path.write_bytes(damaged)
    assert [(d.code, d.section) for d in outcore.verify(path)] == [
        ("chunk-table-damaged", ""),
        ("codec-failure", "[4:6, 3:6]"),
    ]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [(None, None), (None, 9), (64, 24)])
@pytest.mark.parametrize("early", [False, True])
def test_datasets_that_changed_their_shape_are_right(
    tmp_path: Path, libver: str, maxshape: tuple[int | None, ...], early: bool
) -> None:
    """Neither a smaller dataset, nor one that another handle makes longer, has chunks outside."""
    path = tmp_path / "a.h5"
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(CHUNKS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY if early else h5py.h5d.ALLOC_TIME_INCR)
    limits = tuple(h5py.h5s.UNLIMITED if n is None else n for n in maxshape)
    with h5py.File(path, "w", libver=libver) as file:
        space = h5py.h5s.create_simple(SHAPE, limits)
        dset = h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, plist))
        dset[...] = DATA
        dset.resize((17, 8))
    assert outcore.verify(path) == []
    with outcore.open(path) as array:
        with outcore.open(path, "r+") as other:
            other.append(np.zeros((9, 8), "i4"))
        assert np.array_equal(array[...], DATA[:17, :8])
        array.info.layout.source.check()
    assert outcore.verify(path) == []


@pytest.mark.parametrize("index", ["btree1", "btree2"])
def test_nothing_is_stored_where_two_chunks_are(tmp_path: Path, index: str) -> None:
    """The library would store it as one of them, and readers find the other."""
    path = tmp_path / "a.h5"
    damaged = moved(make(path, index, 1), index, (18, 6), (18, 3))
    path.write_bytes(damaged)
    with outcore.open(path, "r+") as array:
        for key in ((18, 3), (slice(18, 20), slice(3, 6)), slice(0, 2), ...):
            with pytest.raises(errors.FormatError, match="two chunks for"):
                array[key] = 5
            with pytest.raises(errors.FormatError, match="two chunks for"):
                array[key]
    assert path.read_bytes() == damaged


def array_of(path: Path, claims: int | None, userblock: int = 0) -> None:
    """A dataset in an extensible array; its header claims so many entries."""
    with h5py.File(path, "w", libver="latest", userblock_size=userblock, track_order=True) as file:
        data = np.arange(60).reshape(20, 3)
        dset = file.create_dataset("x", data=data, chunks=(1, 3), maxshape=(None, 3))
        for k in range(12):  # so that its header goes on elsewhere
            dset.attrs[f"name {k}"] = f"value {k}" * 20
    if claims is None:
        return
    good = path.read_bytes()
    start = good.index(b"EAHD")
    end = start + 68
    data = bytearray(good)
    assert lookup3(good[start:end]).to_bytes(4, "little") == good[end : end + 4]
    assert int.from_bytes(data[start + 44 : start + 52], "little") == 20
    data[start + 44 : start + 52] = claims.to_bytes(8, "little")
    data[end : end + 4] = lookup3(bytes(data[start:end])).to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize("userblock", [0, 1024])
@pytest.mark.parametrize("claims", [10**8, 2**62])
def test_an_index_that_claims_more_than_the_file_can_hold(
    tmp_path: Path, claims: int, userblock: int
) -> None:
    """The library would walk through all of it, without a look at signals."""
    path = tmp_path / "a.h5"
    array_of(path, claims, userblock)
    program = (
        "import outcore, sys; print(outcore.verify(sys.argv[1]))\n"
        "with outcore.open(sys.argv[1], 'r+') as a: a[3] = 5"
    )
    words = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert "chunk-table-damaged" in done.stdout and f"claims {claims} entries" in done.stdout
    assert "FormatError: [chunk-table-damaged]" in done.stderr


@pytest.mark.parametrize("userblock", [0, 1024])
def test_an_index_of_which_one_entry_is_there(tmp_path: Path, userblock: int) -> None:
    """Valid, however far behind the others it lies."""
    path = tmp_path / "a.h5"
    array_of(path, None, userblock)
    assert outcore.verify(path) == []
    for power in range(2, 32):
        for last in (2**power // 3 + 1, 2**power - 1, 2**power):
            with h5py.File(path, "w", libver="latest", userblock_size=userblock) as file:
                dset = file.create_dataset("x", (last,), "u1", maxshape=(None,), chunks=(1,))
                dset.id.write_direct_chunk((last - 1,), b"\7")
            with h5py.File(path) as file:
                check_index(str(path), file["x"])
