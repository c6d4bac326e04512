"""Strings of HDF5: they end where h5py ends them, however they are stored and read."""

import itertools

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import outcore

PADDINGS = {"nullterm": h5t.STR_NULLTERM, "nullpad": h5t.STR_NULLPAD, "spacepad": h5t.STR_SPACEPAD}
WORDS = b"\0d  ab  abcda\0b z\0  \0\0\0\0    xy\0\0 b  "
LAYOUTS = ["contiguous", "compact", "chunks", "gzip"]


def string(padding, nbytes=4):
    kind = h5t.C_S1.copy()
    kind.set_size(nbytes)
    kind.set_strpad(PADDINGS[padding])
    return kind


def kinds(padding):
    """HDF5 types with such strings: alone, in a structure, in arrays, in both."""
    one = string(padding)
    record = h5t.create(h5t.COMPOUND, 16)
    record.insert(b"n", 0, h5t.STD_I32BE)
    record.insert(b"word", 6, one)
    record.insert(b"plain", 11, string("nullpad"))
    pairs = h5t.array_create(one, (2, 2))
    nested = h5t.create(h5t.COMPOUND, 38)
    nested.insert(b"rows", 2, h5t.array_create(record, (2,)))
    nested.insert(b"last", 34, string(padding, 3))
    return {"alone": one, "structure": record, "array": pairs, "nested": nested}


def stored(kind, count):
    """Bytes of so many elements: words over and over, so that each string meets each ending."""
    nbytes = kind.get_size() * count
    return (WORDS * (nbytes // len(WORDS) + 2))[1 : nbytes + 1]


def make(file, name, kind, layout, shape=(6, 4)):
    plist = h5p.create(h5p.DATASET_CREATE)
    if layout == "compact":
        plist.set_layout(h5d.COMPACT)
    if layout in ("chunks", "gzip"):
        plist.set_chunk((4, 3))
    if layout == "gzip":
        plist.set_deflate(1)
    dset = h5d.create(file.id, name.encode(), kind, h5s.create_simple(shape), plist)
    raw = np.frombuffer(stored(kind, int(np.prod(shape))), np.uint8)
    dset.write(h5s.ALL, h5s.ALL, raw, mtype=kind)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A file with all of them, and what h5py reads."""
    path = tmp_path_factory.mktemp("strings") / "a.h5"
    with h5py.File(path, "w") as file:
        for padding, layout in itertools.product(PADDINGS, LAYOUTS):
            for word, kind in kinds(padding).items():
                make(file, f"{padding}-{layout}-{word}", kind, layout)
    with h5py.File(path) as file:
        return path, {name: dset[...] for name, dset in file.items()}


def same(found, expected, case):
    """Equal in each field; NumPy takes away NULs at the end, and nothing else."""
    found = np.asarray(found)
    assert found.shape == expected.shape, case
    if found.dtype.names is None:
        assert found.tolist() == expected.tolist(), case
    else:
        for name in found.dtype.names:
            same(found[name], expected[name], (case, name))


def test_strings_end_where_h5py_ends_them(library):
    path, known = library
    for name, expected in known.items():
        with outcore.open(f"{path}::/{name}") as a:
            same(a[...], expected, name)
            same(a[1:5:2, ::-1], expected[1:5:2, ::-1], name)
            same(a[3, 2], expected[3, 2], name)
            same(a[:, [3, 0, 3]], expected[:, [3, 0, 3]], name)
            same(a.vindex[[5, 0, 2], [1, 1, 3]], expected[[5, 0, 2], [1, 1, 3]], name)
            same(a.oindex[[4, 1], [0, 2]], expected[[4, 1]][:, [0, 2]], name)
            same(a.schedule([4, 4, 0]).gather(), expected[[4, 4, 0]], name)
            out = np.zeros((5, *expected.shape[1:]), expected.dtype)[::-2]
            a.read(np.s_[2:5], out=out)
            same(out, expected[2:5], name)
            same(a.iread(np.s_[2:4]).wait(), expected[2:4], name)
            for key, block in a.blocks(shape=[4, *expected.shape[1:]]):
                same(block, expected[key], name)


def test_strings_are_written_in_part_and_the_others_stay(tmp_path):
    for number, (layout, word) in enumerate(
        itertools.product(["contiguous", "chunks", "gzip"], kinds("nullterm"))
    ):
        path = tmp_path / f"{number}.h5"
        kind = kinds("nullterm")[word]
        with h5py.File(path, "w") as file:
            make(file, "a", kind, layout)
            expected, raw = file["a"][...], stored(kind, 24)
        with outcore.open(f"{path}::/a", "r+") as a:
            same(a[...], expected, (layout, word))
            new = a[0:2, 1].copy()
            a[4:6, 2] = expected[4:6, 2] = new
            a[[1, 3], 0] = expected[[1, 3], 0] = new
            same(a[...], expected, (layout, word))
        with h5py.File(path) as file:
            same(file["a"][...], expected, (layout, word))
            found = np.empty(len(raw), np.uint8)
            file["a"].id.read(h5s.ALL, h5s.ALL, found, mtype=kind)
        # What nobody wrote has the bytes that it had.
        size = kind.get_size()
        assert found.tobytes()[size : 2 * size] == raw[size : 2 * size], (layout, word)


def test_strings_with_spaces_are_refused_for_writing(library):
    path, known = library
    for name in known:
        if name.startswith("spacepad"):
            with pytest.raises(outcore.errors.UnsupportedError):
                outcore.open(f"{path}::/{name}", "r+")


def test_strings_are_converted_sorted_and_compared_by_their_ends(library, tmp_path, monkeypatch):
    path, known = library
    monkeypatch.chdir(tmp_path)
    for name, expected in known.items():
        if not name.endswith(("gzip-alone", "contiguous-structure")):
            continue
        for target in ["b.npy", "b.zarr", "b.zarr2", "b.h5"]:
            outcore.convert(f"{path}::/{name}", target, overwrite=True)
            with outcore.open(target) as b:
                same(b[...], expected, (name, target))
            assert outcore.verify(target) == []
        if name.endswith("alone"):
            with outcore.open(f"{path}::/{name}") as a:
                same(
                    outcore.sort(a, out="s.npy", axis=0, overwrite=True)[...],
                    np.sort(expected, axis=0),
                    name,
                )


def test_a_virtual_dataset_reads_strings_as_its_source_ends_them(library, tmp_path):
    path, known = library
    for name in ("nullterm-gzip-alone", "spacepad-contiguous-alone", "nullpad-chunks-alone"):
        with h5py.File(tmp_path / "v.h5", "w") as file:
            layout = h5py.VirtualLayout((6, 4), "S4")
            layout[...] = h5py.VirtualSource(str(path), name, (6, 4))
            file.create_virtual_dataset("v", layout)
        with h5py.File(tmp_path / "v.h5") as file:
            same(file["v"][...], known[name], name)
        with outcore.open(tmp_path / "v.h5::/v") as a:
            same(a[...], known[name], name)
