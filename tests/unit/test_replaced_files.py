"""
Open arrays in one file (.npy, raw, HDF5) that was replaced, or made anew, by somebody else.

What a handle reads are the elements of the array that was opened: old ones, if it has the file open, or
none. What it writes goes nowhere else, and is not lost without a word.
"""

import os
import shutil

import h5py
import numpy as np
import pytest

import outcore
from outcore.testing.sim import SimWorld

OLD = np.arange(64, dtype="f4").reshape(8, 8)
OTHERS = {
    "dtype": np.full((8, 8), 7, "i8"),
    "order": np.asfortranarray(OLD * 3),
    "shape": np.full((4, 16), 7, "f4"),
    "same": OLD + 1,
}
RAW = {"dtype": "f4", "shape": (8, 8)}


def refused(work, *codes):
    with pytest.raises(outcore.errors.StorageError) as error:
        work()
    assert error.value.code in codes, error.value
    assert "open" in error.value.message and "again" in error.value.message


def all_refused(a):
    refused(lambda: a.write(np.s_[1, 1], 3), "file-changed")
    refused(lambda: a.write(..., 3), "file-changed")
    if a.format != "hdf5":
        refused(lambda: a.append(OLD[0]), "file-changed")


def create(path, data):
    order = "F" if data.flags.f_contiguous and path.suffix != ".h5" else "C"
    name = f"{path}::/x" if path.suffix == ".h5" else path
    outcore.create(name, data=data, order=order, overwrite=True).close()


def convert(path, data):
    np.save(path.parent / "b.npy", data)
    source = outcore.open(path.parent / "b.npy")
    name = f"{path}::/x" if path.suffix == ".h5" else path
    outcore.convert(source.path, name, overwrite=True)


def moved(path, data):
    fresh = path.with_name(f"fresh{path.suffix}")
    create(fresh, data)
    os.replace(fresh, path)


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("by", [create, convert, moved])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("suffix", [".npy", ".raw", ".h5"])
def test_a_file_that_was_replaced(tmp_path, suffix, other, by, touched):
    path = tmp_path / f"a{suffix}"
    create(path, OLD)
    known = RAW if suffix == ".raw" else {}
    with outcore.open(path, "r+", **known) as a, outcore.open(path, **known) as b:
        if touched:
            a[0, 0] = OLD[0, 0]
            a.flush()
            np.testing.assert_array_equal(b[1], OLD[1])
        by(path, OTHERS[other])
        before = path.read_bytes()
        if touched and (suffix != ".h5" or by is moved):
            # It has the old file open.
            np.testing.assert_array_equal(b[...], OLD)
        else:
            refused(lambda: b[...], "file-changed")
        all_refused(a)
        assert path.read_bytes() == before
        a.flush()  # nothing was written meanwhile
    new = OTHERS[other]
    order = "F" if other == "order" else "C"
    found = {"dtype": new.dtype, "shape": new.shape, "order": order} if suffix == ".raw" else {}
    np.testing.assert_array_equal(outcore.open(path, **found)[...], new)


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("other", ["dtype", "order", "shape"])
@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_a_file_that_was_made_anew_in_place(tmp_path, suffix, other, touched):
    """As `numpy.save` and h5py's mode "w" do: the inode stays."""
    path = tmp_path / f"a{suffix}"
    create(path, OLD)
    with outcore.open(path, "r+") as a, outcore.open(path) as b:
        if touched:
            np.testing.assert_array_equal(b[1], OLD[1])
            a[2] = OLD[2]
        inode = path.stat().st_ino
        if suffix == ".npy":
            np.save(path, OTHERS[other])
        else:
            with h5py.File(path, "w") as file:
                data = OTHERS[other].astype("f8") if other == "order" else OTHERS[other]
                file.create_dataset("x", data=data)
        assert path.stat().st_ino == inode
        before = path.read_bytes()
        refused(lambda: b[...], "file-changed")
        refused(lambda: b.read(np.s_[::2, 3]), "file-changed")
        all_refused(a)
        assert path.read_bytes() == before


def test_the_same_array_written_anew_in_place_is_read(tmp_path):
    """With the same header, the elements are what the header says."""
    path = tmp_path / "a.npy"
    np.save(path, OLD)
    with outcore.open(path) as a:
        np.testing.assert_array_equal(a[...], OLD)
        np.save(path, OLD + 1)
        np.testing.assert_array_equal(a[...], OLD + 1)


def test_lengths_may_change_through_another_handle(tmp_path):
    path = tmp_path / "a.npy"
    with outcore.create(path, data=OLD) as a, outcore.open(path, "r+") as b:
        np.testing.assert_array_equal(b[...], OLD)
        a.append(OLD)
        np.testing.assert_array_equal(b[...], OLD)
        b[0] = 5
        assert (a[0] == 5).all() and a.shape == (16, 8)
        b.append(OLD[:1])
        assert b.shape == (17, 8)
        np.testing.assert_array_equal(a[8:16], OLD)
        a.append(OLD[:1])
        a[17] = 1
        a.resize((4, 8))
        np.testing.assert_array_equal(b[1:4], OLD[1:4])
        refused(lambda: b[...], "file-truncated")


@pytest.mark.parametrize("suffix", [".npy", ".raw"])
def test_what_is_written_into_a_file_without_a_name_is_told(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    with (
        outcore.create(path, data=OLD) as a,
        outcore.open(path, "r+", **RAW if suffix == ".raw" else {}) as b,
    ):
        a[0] = 1
        b[0, 0] = 1
        create(path, OLD)
        refused(a.flush, "file-changed")
        refused(a.flush, "file-changed")  # for good
        os.rename(path, tmp_path / "elsewhere")
        refused(lambda: b.write(np.s_[1], 1), "not-found")
        np.testing.assert_array_equal(b[1], OLD[1])
    assert not path.exists()


def test_a_link_that_leads_elsewhere_by_now(tmp_path):
    for name in ("one.npy", "two.npy"):
        np.save(tmp_path / name, OLD)
    link = tmp_path / "a.npy"
    link.symlink_to("one.npy")
    with outcore.open(link, "r+") as a, outcore.open(link) as b:
        a[0] = 7
        link.unlink()
        link.symlink_to("two.npy")
        refused(lambda: a.write(np.s_[1], 1), "file-changed")
        refused(lambda: b[...], "file-changed")
    np.testing.assert_array_equal(np.load(tmp_path / "two.npy"), OLD)


def test_one_file_of_several_that_was_replaced(tmp_path):
    names = [tmp_path / f"{k}.bin" for k in range(3)]
    outcore.create(names, data=OLD[:6]).close()
    with outcore.open(names, "r+", dtype="f4", shape=(6, 8)) as a:
        np.testing.assert_array_equal(a[:2], OLD[:2])
        shutil.copy(names[0], tmp_path / "fresh")
        os.replace(tmp_path / "fresh", names[2])
        a[2:4] = 1
        np.testing.assert_array_equal(a[:2], OLD[:2])
        refused(lambda: a[...], "file-changed")
        refused(lambda: a.write(np.s_[5], 1), "file-changed")


KINDS = {
    "chunks": ({"chunks": (4, 4)}, {"chunks": (2, 4)}),
    "filters": ({"chunks": (4, 4), "compression": "gzip"}, {"chunks": (4, 4), "shuffle": True}),
    "storage": ({"chunks": (4, 4)}, {}),
    "dtype": ({"chunks": (4, 4)}, {"chunks": (4, 4), "dtype": "i4"}),
}


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("how", ["w", "a", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_chunked_dataset_that_was_replaced(tmp_path, kind, how, touched):
    path, (old, new) = tmp_path / "a.h5", KINDS[kind]
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=OLD, **old)
    with outcore.open(path, "r+") as a:
        if touched:
            np.testing.assert_array_equal(a[...], OLD)
            a[0] = OLD[0]
        target = tmp_path / "fresh.h5" if how == "replace" else path
        with h5py.File(target, "a" if how == "a" else "w") as file:
            if how == "a":
                del file["x"]
            file.create_dataset("x", data=OLD + 100, **new)
        os.replace(target, path)
        before = path.read_bytes()
        refused(lambda: a[...], "file-changed")
        all_refused(a)
        assert path.read_bytes() == before


def test_attributes_of_a_dataset_may_change(tmp_path):
    """They are in the object header that is compared."""
    for name, version in (("old.h5", "earliest"), ("new.h5", "latest")):
        with h5py.File(tmp_path / name, "w", libver=version, userblock_size=512) as file:
            file.create_dataset("x", data=OLD)
        with outcore.open(tmp_path / name, "r+") as a, outcore.open(tmp_path / name) as b:
            np.testing.assert_array_equal(b[...], OLD)
            for turn in range(3):
                a.attrs[f"words {turn}"] = "long " * 100
                a[turn] = turn
                assert (b[turn] == turn).all()


def test_each_rank_is_told(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, OLD)

    def body(t):
        with outcore.open(path, "r+", comm=t) as a:
            t.barrier()
            if t.rank == 0:
                np.save(path, OTHERS["dtype"])
            t.barrier()
            with pytest.raises(outcore.errors.CollectiveError, match="file-changed"):
                a.read_all(np.s_[t.rank :: 2])
            with pytest.raises(outcore.errors.CollectiveError, match="file-changed"):
                a.write_all(np.s_[t.rank :: 2], 1)

    SimWorld(2).run(body)
    np.testing.assert_array_equal(np.load(path), OTHERS["dtype"])
