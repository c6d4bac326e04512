"""NetCDF4: files of netCDF4 and xarray read by us, ours opened by them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import outcore
from conformance import elements
from outcore import errors, formats
from outcore.formats.hdf5 import access as hdf5_access
from outcore.formats.hdf5 import attrs as hdf5_attrs
from outcore.formats.hdf5 import heaps as hdf5_heaps

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
xarray = pytest.importorskip("xarray")


def test_theirs(tmp_path):
    path = tmp_path / "a.nc"
    data = np.arange(24, dtype="f4").reshape(2, 3, 4)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in {"t": None, "y": 3, "x": 4}.items():
            file.createDimension(name, size)
        v = file.createVariable("v", "f4", ("t", "y", "x"), fill_value=-1)
        v[:2], v.units, v.range = data, "K", [1, 2]
        file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3, 4]
        packed = file.createVariable(
            "packed", "i2", ("y", "x"), zlib=True, complevel=5, fletcher32=True
        )
        packed.set_auto_maskandscale(False)
        packed.scale_factor = 0.5
        packed[:] = np.arange(12).reshape(3, 4)
        file.createVariable("char", "S1", ("y",))[:] = np.array([b"a", b"b", b"c"])
        file.createVariable("text", str, ("y",))
        file.createGroup("g").createVariable("inner", ">i4", ("x",), endian="big")[:] = [5, 6, 7, 8]
    v = formats.open_info(f"{path}::v")
    assert (v.format, v.dims, v.fill_value) == ("netcdf4", ("t", "y", "x"), np.float32(-1))
    assert v.attrs["units"] == "K" and v.attrs["range"].tolist() == [1, 2] and len(v.attrs) == 2
    assert np.array_equal(data, elements.read(v))
    x = formats.open_info(f"{path}::x")
    assert x.dims == ("x",) and not x.attrs and elements.read(x).tolist() == [1, 2, 3, 4]
    packed = formats.open_info(f"{path}::packed")
    assert packed.attrs == {"scale_factor": 0.5} and packed.fill_value == -32767
    assert np.array_equal(np.arange(12).reshape(3, 4), elements.read(packed))
    assert [c.name for c in packed.layout.codecs] == ["shuffle", "deflate", "fletcher32"] or [
        c.name for c in packed.layout.codecs
    ] == ["fletcher32", "shuffle", "deflate"]
    assert elements.read(formats.open_info(f"{path}::char")).tolist() == [b"a", b"b", b"c"]
    inner = formats.open_info(f"{path}::/g/inner")
    assert inner.dtype == ">i4" and inner.dims == ("x",)
    assert elements.read(inner).tolist() == [5, 6, 7, 8]
    names = [e.path.split("::")[1] for e in formats.ls(path) if e.kind == "array"]
    assert sorted(names) == ["/char", "/g/inner", "/packed", "/text", "/v", "/x"]


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_xarray_writes(tmp_path, engine):
    path = tmp_path / "a.nc"
    data = np.random.default_rng(1).standard_normal((5, 6))
    encoding = {"temp": {"zlib": True, "chunksizes": (2, 3)}}
    ds = xarray.Dataset({"temp": (("y", "x"), data, {"units": "K"})}, {"x": np.arange(6.0)})
    ds.to_netcdf(path, engine=engine, encoding=encoding)
    info = formats.open_info(path)  # the only variable that is no coordinate
    assert info.dims == ("y", "x") and info.attrs["units"] == "K" and info.layout.chunks == (2, 3)
    assert np.array_equal(data, elements.read(info))


@pytest.mark.parametrize(
    "options", [{}, {"chunks": 2}, {"chunks": 3, "compression": "gzip"}], ids=str
)
@pytest.mark.parametrize("dtype", ["i1", "u2", "<i4", ">i8", "f4", ">f8", "S1"])
def test_ours(tmp_path, options, dtype):
    path = tmp_path / "a.nc"
    data = np.arange(24).reshape(4, 6)
    data = (data % 9).astype("S1") if dtype == "S1" else data.astype(dtype)
    attrs = {"units": "K", "flag": True, "n": 3, "many": [1.0, 2.0], "words": ["a", "b"]}
    info = formats.create_info(
        f"{path}::temp", (4, 6), dtype, dims=["y", "x"], attrs=attrs, **options
    )
    elements.write(info, data)
    coordinate = formats.create_info(f"{path}::x", 6, "f8", dims=["x"], attrs={"units": "m"})
    elements.write(coordinate, np.arange(6) * 10.0)
    deep = formats.create_info(f"{path}::/g/h/deep", (6, 2), "f4", dims=["x", "z"], fill_value=-9)
    assert (elements.read(deep) == -9).all()

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        temp = file["temp"]
        assert (
            temp.dimensions == ("y", "x") and temp.units == "K" and temp.n == 3 and temp.flag == 1
        )
        assert temp.many.tolist() == [1.0, 2.0] and list(temp.words) == ["a", "b"]
        assert (
            temp[...].dtype.itemsize == data.dtype.itemsize and temp[...].tolist() == data.tolist()
        )
        assert {n: d.size for n, d in file.dimensions.items()} == {"y": 4, "x": 6}
        assert file["x"][:].tolist() == [0, 10, 20, 30, 40, 50] and file["x"].dimensions == ("x",)
        assert file["g/h/deep"].dimensions == ("x", "z") and list(file["g/h"].dimensions) == ["z"]
        assert file["g/h/deep"]._FillValue == -9
    for engine in ["netcdf4", "h5netcdf"]:
        with xarray.open_dataset(path, engine=engine, mask_and_scale=False) as ds:
            assert ds["temp"].dims == ("y", "x") and ds["temp"].values.tolist() == data.tolist()
            assert ds.coords["x"].values.tolist() == [0, 10, 20, 30, 40, 50]
            assert ds["temp"].attrs["units"] == "K" and list(ds.data_vars) == ["temp"]
    again = formats.open_info(f"{path}::temp")
    assert again.format == "netcdf4" and again.dims == ("y", "x")
    assert again.attrs["units"] == "K" and again.attrs["words"] == ["a", "b"]
    if sys.platform == "linux" and dtype == "f4":  # and netCDF can go on with the file
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("more", "i4", ("x",))[:] = 1
        assert np.array_equal(data, elements.read(formats.open_info(f"{path}::temp")))


def test_unlimited(tmp_path):
    path = tmp_path / "a.nc"
    info = formats.create_info(
        f"{path}::v", (2, 3), "f8", dims=["t", "x"], unlimited=["t"], fill_value=-1, chunks=(1, 3)
    )
    elements.write(info, np.arange(6).reshape(2, 3))
    info = formats.resize(info, (4, 3))
    with netCDF4.Dataset(path) as file:
        assert file.dimensions["t"].isunlimited() and not file.dimensions["x"].isunlimited()
        assert file["v"].shape == (4, 3) and len(file.dimensions["t"]) == 4
        assert file["v"][2:].mask.all() and file["v"][1].tolist() == [3, 4, 5]
    second = formats.create_info(f"{path}::w", (4, 2), "i4", dims=["t", "k"], unlimited=["t"])
    elements.write(second, np.arange(8).reshape(4, 2))
    with xarray.open_dataset(path) as ds:
        assert dict(ds.sizes) == {"t": 4, "x": 3, "k": 2} and ds.encoding["unlimited_dims"] == {"t"}


def test_replacing_variables_keeps_dimensions_sound(tmp_path):
    path = tmp_path / "a.nc"
    for value in (1, 2):
        info = formats.create_info(f"{path}::v", (2, 3), "f8", dims=["y", "x"])
        elements.write(info, np.full((2, 3), value))
        x = formats.create_info(f"{path}::x", 3, "f8", dims=["x"])
        elements.write(x, np.full(3, value))
    with netCDF4.Dataset(path) as file:
        assert file["v"][...].tolist() == [[2] * 3] * 2 and file["x"][:].tolist() == [2] * 3
        assert {n: d.size for n, d in file.dimensions.items()} == {"y": 2, "x": 3}
    with pytest.raises(errors.UsageError, match="dimension '/x' has length 3"):
        formats.create_info(f"{path}::w", 4, "f8", dims=["x"], exclusive=True)
    with pytest.raises(errors.UsageError, match="has length"):
        formats.create_info(f"{path}::x", 4, "f8", dims=["x"])
    with pytest.raises(errors.UsageError, match="is the dimension scale of other"):
        formats.create_info(f"{path}::x", 3, "f8", dims=["q"])
    with netCDF4.Dataset(path) as file:
        assert set(file.variables) == {"v", "x"} and set(file.dimensions) == {"x", "y"}


def test_default_names_and_refusals(tmp_path):
    path = tmp_path / "a.nc"
    info = formats.create_info(path, (2, 3), "f8")
    assert info.dims == ("data_dim0", "data_dim1")
    with xarray.open_dataset(path) as ds:
        assert ds["data"].shape == (2, 3)
    for dtype in ["?", "c8", "f2", "S4", "M8[ns]", [("a", "i4")]]:
        with pytest.raises(errors.UnsupportedError, match="NetCDF4 has no type"):
            formats.create_info(path, 3, dtype)
    with pytest.raises(errors.UsageError, match="give different names"):
        formats.create_info(path, (3, 3), "f8", dims=["x", "x"])
    with netCDF4.Dataset(tmp_path / "classic.nc", "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 3)
        file.createVariable("x", "f8", ("x",))
    assert formats.open_info(tmp_path / "classic.nc").format == "netcdf3_classic"
    with pytest.raises(errors.UnsupportedError, match="omit format="):
        formats.open_info(tmp_path / "classic.nc", format="netcdf4")


def test_ncdump_agrees(tmp_path):
    tool = pytest.importorskip("shutil").which("ncdump")
    if tool is None:
        pytest.skip("ncdump is not installed")
    formats.create_info(tmp_path / "a.nc::v", (2, 3), "f8", dims=["y", "x"])
    shown = subprocess.run(
        [tool, "-h", tmp_path / "a.nc"], capture_output=True, text=True, check=True
    )
    assert "double v(y, x)" in shown.stdout


def counted(call, calls):
    def count(*words, **more):
        calls.append(call.__name__)
        return call(*words, **more)

    return count


def test_verify_visits_a_file_of_many_variables_a_few_times(tmp_path, monkeypatch):
    """Each visit asks for the name of the scale, for which the library searches all of the file."""
    path, visits = tmp_path / "a.nc", []
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        for number in range(600):
            file.createVariable(f"v{number}", "f4", ("x",))[:] = [1, 2, 3]
    places = [
        (hdf5_access, "_open_file"),
        (hdf5_heaps, "_open_checked"),
        (hdf5_attrs.Scales, "__init__"),
    ]
    for owner, name in places:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name), visits))
    assert outcore.verify(path) == []
    assert len(visits) < 20, visits


def test_verify_opens_what_is_sound_beside_what_is_not(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for number in range(20):
            file[f"v{number:02d}"] = np.arange(3)
        file["v05a"] = h5py.Empty("f4")
        file.create_dataset("v07a", (3,), h5py.vlen_dtype("i4"))
        file.create_dataset("v09a", (40,), "f8", chunks=(10,), fletcher32=True)[...] = 1.5
        offset = file["v09a"].id.get_chunk_info(1).byte_offset
    with open(path, "r+b") as file:
        file.seek(offset + 3)
        file.write(b"\x55")
    found = [(one.path.rpartition("/")[2], one.code, one.section) for one in outcore.verify(path)]
    assert found == [
        ("v05a", "cannot-open", ""), ("v07a", "cannot-open", ""), ("v09a", "codec-failure", "[10:20]")
    ]  # fmt: skip
