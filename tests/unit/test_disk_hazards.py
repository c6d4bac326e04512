"""Uses of `DiskArray` that could lose data without a word."""

from __future__ import annotations

import os

import numpy as np
import pytest

import outcore
from disks import dirty_pages, pages_of_linux
from outcore import _core, formats
from outcore.arrays import blocks
from outcore.formats.hdf5.chunks import ChunkTable

DATA = np.arange(6000.0).reshape(60, 100)
KINDS = {
    "a.npy": {},
    "a.bin": {},
    "a.h5::/g/a": {"chunks": (7, 30), "compression": "gzip"},
    "b.h5::/a": {},
    "a.nc::/a": {"chunks": (7, 30)},
    "a.zarr": {"chunks": (7, 30), "compression": "zstd"},
    "s.zarr": {"chunks": (7, 30), "shards": (21, 60)},
    "a.zarr2": {"chunks": (7, 30)},
}
RAW = {"dtype": "f8", "shape": DATA.shape}


def stored(folder, name):
    outcore.create(f"{folder}/{name}", data=DATA, **KINDS[name]).close()
    return f"{folder}/{name}", RAW if name == "a.bin" else {}


@pytest.mark.parametrize("name", KINDS)
def test_an_array_copied_onto_itself_is_read_before_it_is_overwritten(tmp_path, monkeypatch, name):
    path, options = stored(tmp_path, name)
    monkeypatch.setattr(blocks, "_LARGEST", 16_000)  # else one block would hold it all
    with outcore.open(path, "r+", **options) as a, outcore.open(path, **options) as other:
        a[::-1] = a
        np.testing.assert_array_equal(DATA[::-1], a[...])
        a[:, ::-1] = other
        np.testing.assert_array_equal(DATA[::-1, ::-1], a[...])
        a[...] = a
        np.testing.assert_array_equal(DATA[::-1, ::-1], a[...])


def test_an_array_copied_onto_itself_must_fit_the_budget(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=DATA)
    with outcore.memory(DATA.nbytes // 2), pytest.raises(outcore.BudgetError, match="needs 48000"):
        a[::-1] = a
    np.testing.assert_array_equal(DATA, a[...])


def test_arrays_side_by_side_in_one_file_are_copied_block_by_block(tmp_path):
    data = np.tile(DATA, (1, 10))  # half of it holds three blocks and what reading a chunk takes
    for name, options in (("a.h5", {}), ("b.h5", {"chunks": (7, 30)})):
        one = outcore.create(f"{tmp_path}/{name}::/one", data=data, **options)
        two = outcore.create(f"{tmp_path}/{name}::/two", data.shape, "f8", **options)
        with outcore.memory(data.nbytes // 2):
            two[::-1] = one
        np.testing.assert_array_equal(data[::-1], two[...])


@pytest.mark.parametrize("name", KINDS)
def test_an_array_is_not_replaced_by_a_copy_of_itself(tmp_path, name):
    path, options = stored(tmp_path, name)
    with outcore.open(path, **options) as a:
        for target in {path, path.partition("::")[0]}:
            with pytest.raises(outcore.errors.UsageError, match="another name") as caught:
                outcore.create(target, data=a)
            assert caught.value.code == "same-file"
        np.testing.assert_array_equal(DATA, a[...])


def test_a_pattern_of_raw_files_is_not_replaced_by_a_copy_of_itself(tmp_path):
    names = [f"{tmp_path}/{k}.bin" for k in range(3)]
    outcore.create(names, data=DATA).close()
    a = outcore.open(names, dtype="f8", shape=DATA.shape)
    for target in (names, names[2]):
        with pytest.raises(outcore.errors.UsageError, match="another name"):
            outcore.create(target, data=a)
    np.testing.assert_array_equal(DATA, a[...])


def test_data_that_does_not_fit_replaces_nothing(tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    source = outcore.create(tmp_path / "source.npy", data=DATA[:2])
    for shape, data in ((3, np.zeros(4)), ((60, 100), np.zeros((2, 100))), ((60, 100), source)):
        with pytest.raises(outcore.errors.UsageError, match="shape") as caught:
            outcore.create(tmp_path / "a.npy", shape, data=data)
        assert caught.value.code == "broadcast"
    np.testing.assert_array_equal(DATA, np.load(tmp_path / "a.npy"))
    for shape, data in (
        (3, 7),
        ((2, 3), [[1, 2, 3]]),
        (3, np.ones((1, 1, 3))),
        ((0, 3), np.ones(3)),
    ):
        with outcore.create(tmp_path / "a.npy", shape, data=data, overwrite=True) as a:
            want = np.zeros(shape, np.asarray(data).dtype)
            want[...] = data
            np.testing.assert_array_equal(want, a[...])


@pytest.mark.parametrize("name", KINDS)
def test_a_relative_path_means_the_same_file_after_a_chdir(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    options = {**KINDS[name], "attrs": {"units": "m"}} if name not in ("a.npy", "a.bin") else {}
    if name.startswith("a.h5"):
        options["resizable"] = True
    outcore.create(name, data=DATA, **options).close()
    a = outcore.open(name, "r+", **(RAW if name == "a.bin" else {}))
    os.mkdir("below")
    monkeypatch.chdir("below")
    np.testing.assert_array_equal(DATA, a[...])
    a[0] = 5
    assert dict(a.attrs) == ({"units": "m"} if "attrs" in options else {})
    if "attrs" in options:
        a.attrs["units"] = "km"
        assert dict(a.attrs) == {"units": "km"}
    if name not in ("b.h5::/a", "a.nc::/a"):
        a.append(DATA[:1])
        np.testing.assert_array_equal(DATA[0], a[-1])
        assert a.shape == (61, 100)
    assert (a[0] == 5).all()
    assert os.listdir(".") == []


def test_a_file_that_says_its_dtype_is_not_read_as_bare_elements(tmp_path):
    for name in ("a.npy", "b.h5::/a", "a.zarr"):
        path = stored(tmp_path, name)[0].partition("::")[0]
        with pytest.raises(outcore.errors.UsageError, match="format='raw'") as caught:
            outcore.open(path, dtype="f4")
        assert caught.value.code == "unknown-option"
    raw = outcore.open(tmp_path / "a.npy", dtype="u1", format="raw")
    assert raw[:6].tobytes() == b"\x93NUMPY"


def test_a_closed_array_stays_closed(tmp_path):
    a = outcore.create(tmp_path / "a.npy", data=DATA)
    a.close()
    for change in (lambda: a.resize((2, 100)), lambda: a.append(DATA)):
        with pytest.raises(outcore.errors.UsageError) as caught:
            change()
        assert caught.value.code == "closed"
    assert a.closed
    np.testing.assert_array_equal(DATA, np.load(tmp_path / "a.npy"))


def test_attributes_are_stored_or_refused_never_lost(tmp_path):
    for name in ("a.npy", "a.zarr", "b.h5::/a"):
        where = stored(tmp_path, name)[0]
        with outcore.open(where, "r+") as a:
            if name == "a.npy":
                with pytest.raises(outcore.errors.UnsupportedError):
                    a.attrs["units"] = "m"
            else:
                a.attrs["units"] = "m"
        with outcore.open(where) as a:
            assert a.attrs.get("units") == (None if name == "a.npy" else "m")


def test_append_takes_what_assignment_takes(tmp_path):
    a = outcore.create(tmp_path / "a.npy", 1, [("a", "i4"), ("b", ">f8")])
    a.append([(1, 2.5), (3, 4.5)])
    a.append((5, 6.5))
    assert a[...].tolist() == [(0, 0.0), (1, 2.5), (3, 4.5), (5, 6.5)]


@pages_of_linux
@pytest.mark.parametrize("name", ["a.npy", "a.bin"])
def test_a_flush_covers_a_write_that_ended_while_the_shape_changed(tmp_path, monkeypatch, name):
    """It went to what was open before: that is flushed with the rest."""
    path = tmp_path / name
    with outcore.create(path, data=DATA) as a:
        a.flush()
        if dirty_pages(path) is None:
            pytest.skip("this system does not count dirty pages")

        def resize(*words, plain=formats.resize):
            info = plain(*words)
            a[3:9] = -1.0  # another thread's, whose write ends now
            return info

        flushes = a.handle.core.flushes()
        with monkeypatch.context() as patch:
            patch.setattr(formats, "resize", resize)
            a.resize(DATA.shape)
        before = a.handle.core.flushes()
        a.flush()
        assert dirty_pages(path) == 0  # they may have been before: the system writes when it likes
        assert (before - flushes, a.handle.core.flushes() - before) == (1, 2)
        a.flush()
        assert a.handle.core.flushes() - before == 3, "what is idle and safe is released"


@pytest.mark.parametrize("dtype", ["f8", "f4"], ids=["as it is", "cast"])
def test_a_write_counts_from_its_beginning(tmp_path, monkeypatch, dtype):
    """Else ranks that synchronise while another thread writes would read what was there before."""
    seen = []
    plain = ChunkTable.commit

    def commit(self, chunks):
        seen.append(_core.writes())
        return plain(self, chunks)

    monkeypatch.setattr(ChunkTable, "commit", commit)
    with outcore.create(tmp_path / "a.h5", data=DATA, chunks=(7, 30), compression="gzip") as a:
        seen.clear()
        before = _core.writes()
        a[...] = -DATA.astype(dtype)
        assert set(seen) == {before + 1}
        assert _core.writes() == before + 2
        np.testing.assert_array_equal(-DATA.astype(dtype), a[...])
