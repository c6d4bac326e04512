"""Whole groups and files are converted: what is kept, what is refused, and how it goes on."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import outcore
from outcore.compute import jobs
from stopping import Stop, stop_at

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

BIG = np.random.default_rng(1).integers(0, 2**31, (300, 400)).astype("i4")


def source(path, **words):
    with outcore.open_group(path, "w") as run:
        run.attrs.update(title="t", n=3)
        run.create("t", data=np.arange(300.0), dims=("t",), attrs={"units": "h"}).close()
        run.create("u", data=BIG, dims=("t", "x"), fill_value=-1, **words).close()
        run.create("grid/x", data=np.arange(3.0), dims=("x",)).close()
        run.create("grid/scalar", data=np.float64(3)).close()
        run["grid"].attrs["names"] = ["a", "b"]
        run.create_group("e/f", attrs={"level": 2})
    return path


def plain(attrs):
    return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in attrs.items()}


def check(path, fill=-1):
    run = outcore.open_group(path)
    assert [name for name, _ in run.walk()] == [
        "e", "e/f", "grid", "grid/scalar", "grid/x", "t", "u"
    ]  # fmt: skip
    assert plain(run.attrs) == {"title": "t", "n": 3}
    assert plain(run["grid"].attrs) == {"names": ["a", "b"]}
    assert plain(run["e/f"].attrs) == {"level": 2}
    with run["u"] as u, run["t"] as t:
        np.testing.assert_array_equal(BIG, u[...])
        assert (u.dims, u.fill_value, t.dims) == (("t", "x"), fill, ("t",))
        assert plain(t.attrs) == {"units": "h"}
    assert run["grid/scalar"][()] == 3
    folder = os.path.dirname(str(path))
    assert [n for n in os.listdir(folder) if "outcore" in n] == []


@pytest.mark.parametrize("old", ["a.h5", "a.nc", "a.zarr", "a.zarr2"])
@pytest.mark.parametrize("new", ["b.h5", "b.nc", "b.zarr", "b.zarr2"])
def test_everything_is_carried_over(tmp_path, old, new):
    seen = []
    source(tmp_path / old)
    words = {"chunks": (100, 100), "compression": "gzip"}
    outcore.convert(
        tmp_path / old, tmp_path / new, progress=lambda *both: seen.append(both), **words
    )
    # Of Zarr v2 a fill value means "missing", which it does not mean in HDF5 and Zarr v3.
    unsaid = new.endswith("zarr2") and not old.endswith(("nc", "zarr2"))
    check(tmp_path / new, None if unsaid else -1)
    total = 300 * 8 + 300 * 400 * 4 + 3 * 8 + 8
    assert seen[-1] == (total, total) and seen == sorted(seen)
    with outcore.open(f"{tmp_path / new}::/u") as u:
        assert u.chunks == (100, 100)


def test_the_owners_read_it(tmp_path):
    source(tmp_path / "a.zarr")
    outcore.convert(tmp_path / "a.zarr", tmp_path / "b.nc", compression="zstd")
    with netCDF4.Dataset(tmp_path / "b.nc", "r+") as file:
        assert file.title == "t" and file["grid"].names == ["a", "b"] and file["e/f"].level == 2
        assert file["u"].dimensions == ("t", "x") and "_FillValue" not in file["u"].ncattrs()
        assert file["t"].dimensions == ("t",) and list(file.dimensions) == ["t", "x"]
        file.set_auto_mask(False)
        np.testing.assert_array_equal(BIG, file["u"][...])
    outcore.convert(tmp_path / "b.nc", tmp_path / "c.zarr", chunks=(100, 100))
    found = zarr.open_group(tmp_path / "c.zarr", mode="r")
    assert found.attrs["title"] == "t" and found["u"].metadata.dimension_names == ("t", "x")
    np.testing.assert_array_equal(BIG, found["u"][...])
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(tmp_path / "c.zarr", engine="zarr", consolidated=False) as dataset:
        assert dataset.u.coords["t"].values[299] == 299 and dataset.t.attrs["units"] == "h"


def test_dimensions_that_grow_go_on_growing(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("t", "f8", ("t",))[:] = np.arange(4)
        file.createVariable("u", "f4", ("t", "x"))[:] = 1
    outcore.convert(tmp_path / "a.nc", tmp_path / "b.nc")
    outcore.convert(tmp_path / "b.nc", tmp_path / "b.h5")
    with netCDF4.Dataset(tmp_path / "b.nc", "r+") as file:
        assert file.dimensions["t"].isunlimited() and not file.dimensions["x"].isunlimited()
        file["u"][4] = 2
    with h5py.File(tmp_path / "b.h5") as file:
        assert file["u"].maxshape == (None, 3) and file["t"].maxshape == (None,)
        assert [dim.label for dim in file["u"].dims] == ["t", "x"]


def test_coordinates_become_dimension_scales(tmp_path):
    source(tmp_path / "a.zarr")
    with outcore.open_group(tmp_path / "a.zarr", "r+") as run:
        run.create("e/v", data=BIG[0], dims=("x",)).close()  # without a scale
        run.create("grid/w", data=BIG[:, :3], dims=("t", "x")).close()
    outcore.convert(tmp_path / "a.zarr", tmp_path / "b.h5", compression="gzip")
    outcore.convert(tmp_path / "b.h5", tmp_path / "c.h5")
    for name in ("b.h5", "c.h5"):
        with h5py.File(tmp_path / name) as file:
            assert [dim[0] for dim in file["grid/w"].dims] == [file["t"], file["grid/x"]]
            assert file["t"].is_scale and file["grid/x"].is_scale and not file["u"].is_scale
            assert len(file["u"].dims[0]) == 0, "all axes or none"
        for inner in ("u", "grid/w"):
            with outcore.open(f"{tmp_path / name}::/{inner}") as array:
                assert array.dims == ("t", "x")
    xarray = pytest.importorskip("xarray")
    words = {"engine": "h5netcdf", "group": "grid", "phony_dims": "sort"}
    with xarray.open_dataset(tmp_path / "c.h5", **words) as dataset:
        assert dataset.w.dims == ("t", "x") and dataset.x.values[2] == 2


def test_a_path_with_one_array_is_that_array(tmp_path):
    outcore.create(f"{tmp_path}/a.h5::/x", data=BIG).close()
    outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr")
    assert outcore.open(tmp_path / "b.zarr").shape == BIG.shape
    outcore.convert(tmp_path / "a.h5", tmp_path / "c.zarr", whole=True)
    outcore.convert(outcore.open_group(tmp_path / "a.h5"), tmp_path / "d.zarr")
    for name in ("c.zarr", "d.zarr"):
        assert list(outcore.open_group(tmp_path / name)) == ["x"]
    source(tmp_path / "e.h5")
    with pytest.raises(outcore.errors.FormatError) as caught:  # as for outcore.open
        outcore.convert(tmp_path / "e.h5", tmp_path / "f.npy")
    assert caught.value.code == "no-such-array"
    with pytest.raises(outcore.errors.FormatError):
        outcore.convert(tmp_path / "e.h5", tmp_path / "f.zarr", whole=False)
    with pytest.raises(outcore.errors.UnsupportedError) as caught:
        outcore.convert(tmp_path / "e.h5", tmp_path / "f.npy", whole=True)
    assert caught.value.code == "cannot-keep"
    with pytest.raises(outcore.errors.UsageError):
        outcore.convert(f"{tmp_path}/e.h5::/u", tmp_path / "f.zarr", whole=True)
    assert not (tmp_path / "f.zarr").exists()


@pytest.mark.parametrize("new", ["b.h5", "b.zarr"])
def test_into_a_group_of_a_file(tmp_path, new):
    source(tmp_path / "a.nc")
    outcore.create(f"{tmp_path / new}::/other", data=BIG).close()
    outcore.convert(tmp_path / "a.nc", f"{tmp_path / new}::/deep/er")
    outcore.convert(f"{tmp_path}/a.nc::/grid", f"{tmp_path / new}::/part")
    found = outcore.open_group(tmp_path / new)
    assert list(found) == ["deep", "other", "part"] and list(found["part"]) == ["scalar", "x"]
    np.testing.assert_array_equal(BIG, found["deep/er/u"][...])
    assert found["deep/er"].attrs["title"] == "t"
    with pytest.raises(FileExistsError):
        outcore.convert(tmp_path / "a.nc", f"{tmp_path / new}::/deep/er")
    with found["part/x"] as x:
        before = x[...]
    with outcore.open(f"{tmp_path}/a.nc::/grid/x", "r+") as x:
        x[...] = before + 1
    outcore.convert(f"{tmp_path}/a.nc::/grid", f"{tmp_path / new}::/part", overwrite=True)
    np.testing.assert_array_equal(before + 1, found["part/x"][...])
    # Within one file, and not into itself.
    outcore.convert(f"{tmp_path / new}::/part", f"{tmp_path / new}::/copy")
    np.testing.assert_array_equal(before + 1, found["copy/x"][...])
    for src, dst in (("::/part", "::/part/below"), ("::/deep/er", "::/deep"), ("", "::/new")):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert(f"{tmp_path / new}{src}", f"{tmp_path / new}{dst}", overwrite=True)
        assert caught.value.code == "same-file"
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / new, tmp_path / new, overwrite=True)
    assert caught.value.code == "same-file"


@pytest.mark.parametrize("new", ["b.h5", "b.nc", "b.zarr"])
def test_it_goes_on_where_it_stopped(tmp_path, new):
    source(tmp_path / "a.h5", chunks=(20, 400))
    target, words = tmp_path / new, {"memory": "512 KiB", "chunks": (20, 400)}
    with pytest.raises(Stop) as caught:
        outcore.convert(tmp_path / "a.h5", target, progress=stop_at(0.5), **words)
    assert not target.exists() and any("resume=True" in note for note in caught.value.__notes__)
    listed = [one for one in jobs.unfinished(tmp_path) if one.targets == (str(target),)]
    assert [(one.operation, one.state, one.steps) for one in listed] == [
        ("convert", "resumable", 4)
    ]
    first = []
    outcore.convert(
        tmp_path / "a.h5", target, resume=True, progress=lambda n, _: first.append(n), **words
    )
    assert first[0] > 0
    check(target)
    with pytest.raises(FileExistsError, match="no journal"):
        outcore.convert(tmp_path / "a.h5", target, resume=True, **words)
    # The old file is there until the new one is.
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(Stop):
        outcore.convert(tmp_path / "a.h5", target, overwrite=True, progress=stop_at(0.5), **words)
    np.testing.assert_array_equal(BIG, outcore.open_group(target)["u"][...])
    assert jobs.resume(tmp_path)[-1] == str(target)
    check(target)
    assert before == sorted(os.listdir(tmp_path))


def test_another_job_and_another_source_are_told(tmp_path):
    source(tmp_path / "a.h5", chunks=(20, 400))
    target, words = tmp_path / "b.zarr", {"memory": "512 KiB", "chunks": (20, 400)}
    with pytest.raises(Stop):
        outcore.convert(tmp_path / "a.h5", target, progress=stop_at(0.5), **words)
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / "a.h5", target, resume=True, memory="512 KiB", chunks=(30, 400))
    assert caught.value.code == "other-job" and "chunks" in str(caught.value)
    outcore.open_group(tmp_path / "a.h5", "r+").attrs["title"] = "another"
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / "a.h5", target, resume=True, **words)
    assert caught.value.code == "other-job" and "source" in str(caught.value)
    outcore.open_group(tmp_path / "a.h5", "r+").attrs["title"] = "t"
    with pytest.warns(UserWarning, match="discarded"):
        outcore.convert(tmp_path / "a.h5", target, **words)
    check(target)


def test_arrays_of_two_states_of_a_source_are_not_mixed(tmp_path):
    """Also if it stopped between two arrays, when no job of an array tells."""
    with outcore.open_group(tmp_path / "a.h5", "w") as run:
        for name in ("a", "b"):
            run.create(name, data=BIG[:10]).close()
    between = 0

    def progress(done, total):
        nonlocal between
        between += done == total // 2
        if between == 2:
            raise Stop

    with pytest.raises(Stop):
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", progress=progress)
    assert [one.done for one in jobs.unfinished(tmp_path)] == [1]
    with outcore.open(f"{tmp_path}/a.h5::/b", "r+") as b:
        b[...] = 1
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", resume=True)
    assert caught.value.code == "other-job" and "source state" in str(caught.value)
    assert not (tmp_path / "b.zarr").exists()


def test_clean_removes_files_of_stopped_conversions(tmp_path):
    source(tmp_path / "a.h5", chunks=(20, 400))
    for share in (-1, 0.5):
        with pytest.raises(Stop):
            outcore.convert(
                tmp_path / "a.h5", tmp_path / "b.h5", progress=stop_at(share), memory="512 KiB"
            )
        if share < 0:
            assert os.listdir(tmp_path) == ["a.h5"], "nothing was done"
    for one in jobs.unfinished(tmp_path):
        jobs.clean(one)
    assert os.listdir(tmp_path) == ["a.h5"]


def test_unreadable_members_are_reported_before_copying(tmp_path):
    source(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["e/text"] = "of variable length"
        file["complex"] = np.zeros(3, "c8")
    with pytest.raises(outcore.errors.UnsupportedError) as caught:
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr")
    assert "1 member of " in str(caught.value) and "e/text" in str(caught.value)
    assert caught.value.code == "text-elements" and os.listdir(tmp_path) == ["a.h5"]
    with pytest.warns(UserWarning, match="'.*e/text' is skipped"):
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", skip=True)
    assert "complex" in outcore.open_group(tmp_path / "b.zarr")
    # What the target has no type for is met on the way.
    with pytest.raises(outcore.errors.UnsupportedError):
        outcore.convert(tmp_path / "b.zarr", tmp_path / "c.nc")
    for one in jobs.unfinished(tmp_path):
        jobs.clean(one)
    with pytest.warns(UserWarning, match="complex' is skipped"):
        outcore.convert(tmp_path / "b.zarr", tmp_path / "c.nc", skip=True)
    check(tmp_path / "c.nc")


def test_attributes_that_are_lost_are_named(tmp_path):
    with outcore.open_group(tmp_path / "a.zarr", "w") as image:
        image.attrs.update(multiscales=[{"path": "0"}], kept=1)
        image.create("0", data=BIG).close()
        image.create("1", data=BIG[::2]).close()
    with pytest.warns(UserWarning, match="cannot store attribute 'multiscales' of"):
        outcore.convert(tmp_path / "a.zarr", tmp_path / "b.h5")
    assert plain(outcore.open_group(tmp_path / "b.h5").attrs) == {"kept": 1}
    outcore.convert(tmp_path / "a.zarr", tmp_path / "b.zarr2")
    assert outcore.open_group(tmp_path / "b.zarr2").attrs["multiscales"] == [{"path": "0"}]


def test_options_of_one_array_are_refused(tmp_path):
    source(tmp_path / "a.h5")
    for words in ({"dims": ("a",)}, {"attrs": {"a": 1}}, {"dtype": "f4"}, {"explain": True}):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert(tmp_path / "a.h5", tmp_path / "b.h5", **words)
        assert caught.value.code == "unknown-option"
    assert os.listdir(tmp_path) == ["a.h5"]


def test_a_store_of_others_is_not_replaced(tmp_path):
    source(tmp_path / "a.h5")
    outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr")
    (tmp_path / "b.zarr" / "notes.txt").write_text("mine")
    with pytest.raises(outcore.errors.UsageError, match=r"notes\.txt"):
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.zarr"], "before anything was made"
    (tmp_path / "b.zarr" / "notes.txt").unlink()
    outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", overwrite=True)
    check(tmp_path / "b.zarr")
    document = json.loads((tmp_path / "b.zarr" / "zarr.json").read_text())
    assert document["attributes"] == {"title": "t", "n": 3}
