"""Conversions into a file that exists: what has the name stays until the new array is whole."""

from __future__ import annotations

import os

import numpy as np
import pytest

import outcore
from stopping import Stop, stop_after

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")

OLD = np.arange(600, dtype="i4").reshape(20, 30)
KINDS = {
    "h5": ("a.h5", {}),
    "h5-gzip": ("a.h5", {"chunks": (32, 32), "compression": "gzip"}),
    "nc": ("a.nc", {}),
    "nc-gzip": ("a.nc", {"chunks": (32, 32), "compression": "gzip"}),
}
WORDS = {"memory": "1280 KiB", "overwrite": True}


@pytest.fixture(params=KINDS)
def job(request, tmp_path):
    """A file with a dataset ``v``, what is to replace it, and how."""
    name, words = KINDS[request.param]
    source = tmp_path / "source.npy"
    data = np.random.default_rng(1).integers(0, 2**31, (700, 500)).astype("i4")
    np.save(source, data)

    def begin(folder):
        path = folder / name
        with outcore.create(f"{path}::/v", data=OLD, dims=["y", "x"], attrs={"units": "K"}):
            pass
        outcore.create(f"{path}::/other", data=OLD).close()
        return path

    return begin, source, data, {**WORDS, **words}


def names(path):
    """All datasets, whoever lists them."""
    with h5py.File(path) as file:
        found = []
        file.visititems(lambda name, item: found.append(name) if hasattr(item, "dtype") else None)
        return sorted(
            name for name in found if not name.startswith(("x", "y", "other_dim", "v_dim"))
        )


def check_old(path):
    with h5py.File(path) as file:
        assert np.array_equal(OLD, file["v"][...]) and "units" in file["v"].attrs
    with outcore.open(f"{path}::/v") as array:
        assert np.array_equal(OLD, array[...])
    listed = [e.path.split("::")[1] for e in outcore.ls(path) if e.kind == "array"]
    assert [n for n in listed if "partial" in n] == [] and {"/v", "/other"} <= set(listed)


def check_new(path, data):
    with h5py.File(path) as file:
        assert np.array_equal(data, file["v"][...]) and np.array_equal(OLD, file["other"][...])
    assert names(path) == ["other", "v"]
    assert [n for n in os.listdir(path.parent) if "outcore" in n] == []


def test_the_old_dataset_outlives_a_full_disk(job, small_disk):
    begin, source, data, words = job
    path = begin(small_disk)
    with open(small_disk / "filler", "wb", buffering=0) as file:
        disk = os.statvfs(small_disk)
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - (600 << 10))
    for resume in (False, True, False):
        with pytest.raises(outcore.errors.StorageError) as caught:
            outcore.convert(source, f"{path}::/v", resume=resume, **words)
        assert caught.value.code == "disk-full" and "partial" not in str(caught.value)
        check_old(path)
    os.unlink(small_disk / "filler")
    outcore.convert(source, f"{path}::/v", resume=True, **words)
    check_new(path, data)


def test_the_old_dataset_is_there_until_the_new_one_is_whole(job, tmp_path):
    begin, source, data, words = job
    path = begin(tmp_path)
    with pytest.raises(Stop):
        outcore.convert(source, f"{path}::/v", progress=stop_after(2), **words)
    check_old(path)
    assert names(path) == [".v.outcore-partial", "other", "v"]
    if path.suffix == ".nc":
        with netCDF4.Dataset(path) as file:
            assert np.array_equal(OLD, file["v"][...]) and file["v"].dimensions == ("y", "x")
    done = []
    outcore.convert(
        source, f"{path}::/v", resume=True, progress=lambda n, total: done.append(n), **words
    )
    assert done[0] > 0  # it went on
    check_new(path, data)


def test_new_conversion_removes_files_of_a_stopped_one(job, tmp_path):
    begin, source, data, words = job
    path = begin(tmp_path)
    for _ in range(2):
        with pytest.raises(Stop):
            outcore.convert(source, f"{path}::/v", progress=stop_after(2), **words)
    with pytest.raises(Stop):  # before anything was done that is worth going on from
        outcore.convert(source, f"{path}::/fresh", progress=stop_after(0), **words)
    assert names(path) == [".v.outcore-partial", "other", "v"]
    outcore.convert(source, f"{path}::/v", **words)
    check_new(path, data)


def test_a_name_that_is_taken_is_refused_before_and_after(job, tmp_path):
    begin, source, _, words = job
    path = begin(tmp_path)
    before = path.read_bytes()
    words = {**words, "overwrite": False}
    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.convert(source, f"{path}::/v", **words)
    assert caught.value.code == "already-exists" and before == path.read_bytes()

    def take_it(done, total):
        if done == total:
            outcore.create(f"{path}::/new", data=OLD).close()

    with pytest.raises(outcore.errors.StorageError) as caught:
        outcore.convert(source, f"{path}::/new", progress=take_it, **words)
    assert caught.value.code == "already-exists"
    with outcore.open(f"{path}::/new") as array:
        assert np.array_equal(OLD, array[...])


def test_a_conversion_within_one_file_is_resumed(tmp_path):
    """Its source changes with its target, so the time of the file says nothing."""
    path = tmp_path / "a.h5"
    data = np.arange(350_000).reshape(700, 500)
    outcore.create(f"{path}::/v", data=data).close()
    words = {"memory": "1280 KiB", "chunks": (32, 32), "compression": "gzip"}
    with pytest.raises(Stop):
        outcore.convert(f"{path}::/v", f"{path}::/w", progress=stop_after(2), **words)
    done = []
    outcore.convert(
        f"{path}::/v",
        f"{path}::/w",
        resume=True,
        progress=lambda n, total: done.append(n),
        **words,
    )
    assert done[0] > 0
    with outcore.open(f"{path}::/w") as array:
        assert np.array_equal(data, array[...])


def test_a_variable_keeps_its_part_in_the_dimensions(tmp_path):
    path, source = tmp_path / "a.nc", tmp_path / "b.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 6)
        for name in ("v", "w"):
            file.createVariable(name, "f4", ("t", "x"))[:4] = 1
        file.createVariable("t", "f8", ("t",))[:] = np.arange(4)
    data = np.arange(30, dtype="f4").reshape(5, 6)
    outcore.create(f"{source}::/v", data=data, dims=["t", "x"], fill_value=-1).close()
    outcore.create(f"{source}::/t", data=np.arange(10.0, 15), dims=["t"]).close()
    for name in ("v", "t"):
        outcore.convert(f"{source}::/{name}", f"{path}::/{name}", overwrite=True)
    with netCDF4.Dataset(path) as file:
        assert np.array_equal(data, file["v"][...]) and file["v"].dimensions == ("t", "x")
        assert file["v"]._FillValue == -1 and file.dimensions["t"].isunlimited()
        assert file["t"][:].tolist() == [10, 11, 12, 13, 14] and file["w"].shape == (5, 6)
        assert sorted(file.variables) == ["t", "v", "w"] and sorted(file.dimensions) == ["t", "x"]
    outcore.create(f"{source}::/less", data=data[:2], dims=["t_less", "x"]).close()
    before = path.read_bytes()
    with pytest.raises(outcore.errors.UsageError, match="has length 5 in the file, not 2"):
        outcore.convert(f"{source}::/less", f"{path}::/v", overwrite=True, dims=["t", "x"])
    assert before == path.read_bytes()
