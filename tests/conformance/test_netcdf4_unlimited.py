"""Variables that share an unlimited dimension: they have its length, whatever HDF5 stores of them."""

from __future__ import annotations

import numpy as np
import pytest

import outcore
from outcore import errors

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")

LONG = 10
#: How much of each variable was written.
WRITTEN = {"long": 10, "short": 5, "never": 0, "filled": 3, "/g/deep": 1}


@pytest.fixture(params=[{}, {"zlib": True}], ids=["plain", "zlib"])
def theirs(tmp_path, request):
    """A file of the NetCDF library, chunks of 4 rows."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 6)
        file.createGroup("g")
        for name, rows in WRITTEN.items():
            fill = -5 if name == "filled" else None
            variable = file.createVariable(
                name, "f4", ("t", "x"), fill_value=fill, chunksizes=(4, 4), **request.param
            )
            variable[:rows] = np.arange(rows * 6).reshape(rows, 6)
    return path


def as_netcdf(path):
    """All variables as the NetCDF library reads them."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        deep = {f"/g/{name}": v[...] for name, v in file["g"].variables.items()}
        return {name: v[...] for name, v in file.variables.items()} | deep


def stored(path):
    with h5py.File(path) as file:
        return {name: file[name].shape[0] for name in WRITTEN}


def test_short_variables_have_the_length_of_the_dimension(theirs):
    before = theirs.read_bytes()
    for name, values in as_netcdf(theirs).items():
        with outcore.open(f"{theirs}::{name}") as array:
            assert values.shape == array.shape == (LONG, 6)
            assert np.array_equal(values, array[...])
            assert np.array_equal(values[::-3, 1::2], array[::-3, 1::2])
            assert np.array_equal(values[7], array[7])
            assert np.array_equal(values, np.concatenate([data for _, data in array.blocks(0)]))
            assert array.info.extra["unlimited"] == ("t",)
            assert array.info.extra.get("stored_shape", array.shape)[0] == WRITTEN[name]
    shapes = {e.path.split("::")[1]: e.shape for e in outcore.ls(theirs) if e.kind == "array"}
    assert dict.fromkeys(["/long", "/short", "/never", "/filled", "/g/deep"], (LONG, 6)) == shapes
    assert outcore.verify(theirs) == []
    assert before == theirs.read_bytes()


def test_writes_behind_what_is_stored_are_seen_by_all(theirs):
    wanted = as_netcdf(theirs)
    for name in WRITTEN:
        with outcore.open(f"{theirs}::{name}", "r+") as array:
            assert stored(theirs)[name] == WRITTEN[name]  # opening changes nothing
            for key in (np.s_[6, 2:], np.s_[8:10, ::3]):
                array[key] = 77
                wanted[name][key] = 77
            assert np.array_equal(wanted[name], array[...])
    found = as_netcdf(theirs)
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
    assert dict.fromkeys(WRITTEN, LONG) == stored(theirs)


def test_append_makes_the_dimension_longer_for_all(theirs):
    wanted = as_netcdf(theirs)
    with outcore.open(f"{theirs}::short", "r+") as array:
        array.append(np.full((2, 6), 3))
        assert array.shape == (LONG + 2, 6)
    more = {name: np.full((2, 6), values[-1, 0], "f4") for name, values in wanted.items()}
    more["long"] = np.full((2, 6), netCDF4.default_fillvals["f4"], "f4")
    more["short"] = np.full((2, 6), 3, "f4")
    found = as_netcdf(theirs)
    for name, values in wanted.items():
        values = np.concatenate([values, more[name]])
        assert np.array_equal(values, found[name]), name
        with outcore.open(f"{theirs}::{name}") as array:
            assert np.array_equal(values, array[...]), name
    with h5py.File(theirs) as file:  # whose dimension scale says so too
        assert file["t"].shape == (LONG + 2,)


def test_append_makes_the_coordinate_longer_too(tmp_path):
    path = tmp_path / "a.nc"
    options = {"dims": ["t"], "unlimited": ["t"]}
    outcore.create(f"{path}::t", data=np.arange(3.0), **options).close()
    with outcore.create(f"{path}::v", (3, 2), "i4", dims=["t", "x"]) as array:
        array[...] = 1
        array.append([[2, 2]])
    with outcore.open(f"{path}::t", "r+") as array:
        assert array.shape == (4,)
        array.append([9.0])
    with netCDF4.Dataset(path) as file:
        assert file.dimensions["t"].isunlimited() and len(file.dimensions["t"]) == 5
        assert file["t"][:].tolist() == [0, 1, 2, 0, 9]
        assert file["v"][:, 0].tolist() == [1, 1, 1, 2, 0]
    with h5py.File(path) as file:
        assert (file["t"].shape, file["v"].shape) == ((5,), (4, 2))


def test_a_dimension_does_not_become_shorter_than_another_variable(theirs):
    before = theirs.read_bytes()
    with outcore.open(f"{theirs}::short", "r+") as array:
        with pytest.raises(errors.UnsupportedError, match="dimension '/t' and have 10") as caught:
            array.resize((7, 6))
        assert caught.value.code == "cannot-resize" and array.shape == (LONG, 6)
    assert before == theirs.read_bytes()
    with outcore.open(f"{theirs}::long", "r+") as array:
        array.resize((6, 6))
        assert array.shape == (6, 6)
    assert {values.shape for values in as_netcdf(theirs).values()} == {(6, 6)}


def test_a_new_variable_on_a_dimension_that_is_there(theirs):
    with outcore.create(f"{theirs}::more", (12, 2), "i2", dims=["t", "k"]) as array:
        array[11] = 4
        assert array.info.extra["unlimited"] == ("t",)
    for name, values in as_netcdf(theirs).items():
        with outcore.open(f"{theirs}::{name}") as array:
            assert len(values) == 12
            assert np.array_equal(values, array[...])
    before = theirs.read_bytes()
    for options in ({}, {"unlimited": ["t"]}):
        with pytest.raises(errors.UsageError, match="has length 12 in the file, not 11"):
            outcore.create(f"{theirs}::less", (11, 2), "i2", dims=["t", "k"], **options)
    assert before == theirs.read_bytes()
    outcore.create(f"{theirs}::t", data=np.arange(12), dims=["t"]).close()
    with netCDF4.Dataset(theirs) as file:
        assert file["t"][:].tolist() == list(range(12)) and file.dimensions["t"].isunlimited()
        assert file["more"].dimensions == ("t", "k")


@pytest.mark.parametrize("lie", ["type", "axis"])
def test_users_of_a_dimension_that_make_no_sense(theirs, lie):
    with h5py.File(theirs, "r+") as file:
        rows = file["t"].attrs["REFERENCE_LIST"]
        del file["t"].attrs["REFERENCE_LIST"]
        if lie == "axis":
            rows["dimension"][1] = 2
            kind = [("dataset", h5py.ref_dtype), ("dimension", "u4")]
            file["t"].attrs.create("REFERENCE_LIST", rows, dtype=kind)
        else:
            file["t"].attrs["REFERENCE_LIST"] = ["a", "b"]
    with pytest.raises(errors.FormatError, match=r"REFERENCE_LIST|should be the scale") as caught:
        outcore.open(f"{theirs}::short")
    assert caught.value.code == "hdf5-refused"
