"""Variables with the name of a dimension: HDF5 keeps those that are no coordinate under another name."""

import numpy as np
import pytest

import outcore

netCDF4 = pytest.importorskip("netCDF4")

LETTERS = np.array([[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]], "S1")
# Of each variable: its dimensions and elements.
VARIABLES = {
    "x": (("y",), np.array([10.0, 20.0])),  # as a dimension, which it has not
    "y": ((), np.array(5, "i4")),  # without axes
    "z": (("y", "z"), np.arange(8.0).reshape(2, 4)),  # not its first one
    "ship": (
        ("ship", "strlen"),
        LETTERS,
    ),  # its first one of two, as xarray writes coordinates of bytes
    "u": (("y", "x"), np.arange(6.0).reshape(2, 3)),
    "v": (("ship", "z"), np.arange(12.0).reshape(3, 4)),
    "g/x": (("y",), np.array([1.0, 2.0])),  # the dimension is in the group above
    "g/w": (("w", "x"), np.arange(6, dtype="i2").reshape(2, 3)),
    "g/y": (("x",), np.arange(3, dtype="i2")),
}
LENGTHS = {"x": 3, "y": 2, "z": 4, "ship": 3, "strlen": 2}


def make(path):
    with netCDF4.Dataset(path, "w") as file:
        for name, length in LENGTHS.items():
            file.createDimension(name, length)
        file.createGroup("g").createDimension("w", 2)
        for name, (dims, data) in VARIABLES.items():
            variable = file.createVariable(name, data.dtype, dims)
            variable.set_auto_chartostring(False)
            variable[...] = data
            variable.units = f"of {name}"
    return str(path)


def check(path):
    """That the NetCDF library finds all of it."""
    with netCDF4.Dataset(path) as file:
        assert set(file.variables) | {f"g/{name}" for name in file["g"].variables} == set(VARIABLES)
        for name, (dims, data) in VARIABLES.items():
            variable = file[name]
            variable.set_auto_chartostring(False)
            assert variable.dimensions == dims, name
            assert (np.ma.getdata(variable[...]) == data).all(), name
            assert variable.units == f"of {name}"
        for name, length in LENGTHS.items():
            assert len(file.dimensions[name]) == length


def test_open_gives_the_variable_not_the_dimension(tmp_path):
    path = make(tmp_path / "a.nc")
    check(path)
    for name, (dims, data) in VARIABLES.items():
        with outcore.open(f"{path}::/{name}") as a:
            assert a.path == f"{path}::/{name}" and a.dims == (dims or None)
            assert (a[...] == data).all(), name
            assert a.attrs["units"] == f"of {name}"
        with outcore.open(f"{path}::/{name}", "r+") as a:
            a[...] = data[::-1] if data.ndim else data + 1
            a.attrs["seen"] = 1
    with netCDF4.Dataset(path) as file:
        for name, (_, data) in VARIABLES.items():
            file[name].set_auto_chartostring(False)
            assert (file[name][...] == (data[::-1] if data.ndim else data + 1)).all(), name
            assert file[name].seen == 1


def test_lists_show_names_of_netcdf(tmp_path):
    path = make(tmp_path / "a.nc")
    names = {e.path.partition("::/")[2] for e in outcore.ls(path) if e.kind == "array"}
    assert names == set(VARIABLES)
    assert [e.path for e in outcore.ls(f"{path}::/x")] == [f"{path}::/x"]
    with outcore.open_group(path) as group:
        assert {name for name, item in group.walk() if name != "g"} == set(VARIABLES)
        assert set(group) == {n for n in VARIABLES if "/" not in n} | {"g"} and "x" in group
        assert (group["x"][...] == [10, 20]).all()


@pytest.mark.parametrize("new", ["b.nc", "b.h5", "b.zarr", "b.zarr2"])
def test_conversions_carry_names_of_netcdf(tmp_path, new, recwarn):
    path, new = make(tmp_path / "a.nc"), str(tmp_path / new)
    outcore.convert(path, new)
    assert not [w for w in recwarn if "name" in str(w.message)]  # such as: it has another name
    for name, (dims, data) in VARIABLES.items():
        with outcore.open(f"{new}::/{name}") as a:
            assert (a[...] == data).all() and a.dims == (dims or None), name
    if new.endswith("nc"):
        check(new)
    outcore.convert(new, tmp_path / "c.nc")
    check(tmp_path / "c.nc")


def test_single_variables_get_names_of_netcdf(tmp_path):
    """One by one into a file that is there, made and replaced; also by `create`."""
    path, new = make(tmp_path / "a.nc"), tmp_path / "b.nc"
    order = ["u", "v", "ship", "g/w", "y", "z", "x", "g/x", "g/y"]
    for name in order:
        outcore.convert(f"{path}::/{name}", f"{new}::/{name}")
    for name in order:
        if name in ("x", "y", "z"):
            outcore.convert(f"{path}::/{name}", f"{new}::/{name}", overwrite=True)
            with pytest.raises(outcore.errors.StorageError, match=r"already|exists"):
                outcore.convert(f"{path}::/{name}", f"{new}::/{name}")
    with netCDF4.Dataset(new) as file:
        for name, (dims, data) in VARIABLES.items():
            file[name].set_auto_chartostring(False)
            assert (file[name][...] == data).all() and file[name].dimensions == dims, name
    with outcore.create(f"{tmp_path / 'c.nc'}::/u", (2, 3), "f4", dims=("y", "x")) as u:
        u[...] = 1
    outcore.create(f"{tmp_path / 'c.nc'}::/x", data=np.arange(2.0), dims=("y",)).close()
    with netCDF4.Dataset(tmp_path / "c.nc") as file:
        assert file["x"].dimensions == ("y",) and (file["x"][...] == [0, 1]).all()
