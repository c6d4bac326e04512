"""Classic NetCDF: netCDF4-python and SciPy read what outcore wrote, and the other way round."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import outcore
from outcore import errors, formats
from outcore.formats.netcdf.classic import files

netCDF4 = pytest.importorskip("netCDF4")
scipy_io = pytest.importorskip("scipy.io")

MODELS = {
    "netcdf3_classic": "NETCDF3_CLASSIC",
    "netcdf3_64bit_offset": "NETCDF3_64BIT_OFFSET",
    "netcdf3_64bit_data": "NETCDF3_64BIT_DATA",
}
TYPES = ["i1", "S1", "i2", "i4", "f4", "f8"]
MORE_TYPES = ["u1", "u2", "u4", "i8", "u8"]
#: Whether the file has no record variable, one, or one of several.
KINDS = ["fixed", "only record", "among records"]
CASES = [
    (name, dtype, kind)
    for name, kind in itertools.product(MODELS, KINDS)
    for dtype in (*TYPES, *(MORE_TYPES if name.endswith("data") else ()))
]


def elements(dtype, shape=(5, 3)):
    """Elements of a type, its limits among them."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    if kind.kind == "S":
        return np.array([bytes([97 + n % 26]) for n in range(count)], "S1").reshape(shape)
    values = np.arange(count).astype(kind)
    if kind.kind in "iu":
        values[:2] = np.iinfo(kind).min, np.iinfo(kind).max
    return values.reshape(shape)


def others(kind):
    """Variables before and after the one that is tested: names, dimensions, elements."""
    if kind == "fixed":
        return [], [("z", ("x",), np.arange(3, dtype="i2"))]
    if kind == "only record":
        return [("z", ("x",), np.arange(3, dtype="i2"))], []
    return (
        [("a", ("t",), np.arange(5, dtype="i1")), ("z", ("x",), np.arange(3, dtype="i2"))],
        [("c", ("t", "x"), np.arange(15, dtype="i2").reshape(5, 3))],
    )


def write_with_netcdf4(path, model, kind, data):
    before, after = others(kind)
    with netCDF4.Dataset(path, "w", format=model) as file:
        file.set_auto_maskandscale(False)
        file.createDimension("t", 5 if kind == "fixed" else None)
        file.createDimension("x", 3)
        for name, dims, values in [*before, ("b", ("t", "x"), data), *after]:
            file.createVariable(name, values.dtype, dims)[:] = values


def write_with_outcore(path, format, kind, data):
    before, after = others(kind)
    group = outcore.open_group(path, "w", format=format)
    for name, dims, values in [*before, ("b", ("t", "x"), data), *after]:
        endless = {"unlimited": "t"} if kind != "fixed" and "t" in dims else {}
        group.create(name, data=values, dims=dims, **endless).close()


def read_with_netcdf4(path):
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        return file.data_model, {name: one[...] for name, one in file.variables.items()}


def read_with_scipy(path):
    with scipy_io.netcdf_file(path, mmap=False) as file:
        return {name: np.array(one[...]) for name, one in file.variables.items()}


def is_endless(path, name):
    with netCDF4.Dataset(path) as file:
        return file.dimensions[name].isunlimited()


@pytest.mark.parametrize(("format", "dtype", "kind"), CASES)
def test_files_of_netcdf4_read_and_change(tmp_path, format, dtype, kind):
    path, data = tmp_path / "a.nc", elements(dtype)
    write_with_netcdf4(path, MODELS[format], kind, data)
    with outcore.open(f"{path}::/b", "r+") as b:
        assert (b.format, b.shape, b.dims) == (format, (5, 3), ("t", "x"))
        assert b.dtype == data.dtype.newbyteorder(">")
        np.testing.assert_array_equal(data, b[...])
        np.testing.assert_array_equal(data[1::2, ::-1], b[1::2, ::-1])
        b[3, 1:] = data[0, :2]
    data[3, 1:] = data[0, :2]
    before, after = others(kind)
    model, found = read_with_netcdf4(path)
    assert model == MODELS[format]
    for name, _, values in [*before, ("b", (), data), *after]:
        np.testing.assert_array_equal(values, found[name], err_msg=name)
    assert outcore.verify(path) == []


@pytest.mark.parametrize(("format", "dtype", "kind"), CASES)
def test_files_of_outcore_are_read_by_the_libraries(tmp_path, format, dtype, kind):
    path, data = tmp_path / "a.nc", elements(dtype)
    write_with_outcore(path, format, kind, data)
    before, after = others(kind)
    expected = {name: values for name, _, values in [*before, ("b", (), data), *after]}
    model, found = read_with_netcdf4(path)
    assert model == MODELS[format] and list(found) == list(expected)
    assert is_endless(path, "t") == (kind != "fixed")
    readers = [found] if format.endswith("data") else [found, read_with_scipy(path)]
    for one, (name, values) in itertools.product(readers, expected.items()):
        np.testing.assert_array_equal(values, one[name], err_msg=name)
    with netCDF4.Dataset(path, "a") as file:  # its library checks more before it changes a file
        file.title = "x" * 10_000
        file.createVariable("new", "f4", ("x",))[:] = 1
    for name, values in expected.items():
        with outcore.open(f"{path}::/{name}") as array:
            np.testing.assert_array_equal(values, array[...], err_msg=name)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_files_of_scipy_are_read(tmp_path, version, kind, dtype):
    path, data = str(tmp_path / "a.nc"), elements(dtype)
    before, after = others(kind)
    with scipy_io.netcdf_file(path, "w", version=version) as file:
        file.title = "of SciPy"
        file.createDimension("t", 5 if kind == "fixed" else None)
        file.createDimension("x", 3)
        for name, dims, values in [*before, ("b", ("t", "x"), data), *after]:
            stored = (
                values
                if values.dtype.kind == "S"
                else values.astype(values.dtype.newbyteorder(">"))
            )
            file.createVariable(name, "c" if dtype == "S1" and name == "b" else stored.dtype, dims)[
                :
            ] = stored
    assert dict(outcore.open_group(path).attrs) == {"title": "of SciPy"}
    for name, _, values in [*before, ("b", (), data), *after]:
        with outcore.open(f"{path}::/{name}") as array:
            np.testing.assert_array_equal(values, array[...], err_msg=name)


@pytest.mark.parametrize("format", MODELS)
def test_attributes_and_text(tmp_path, format):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=MODELS[format]) as file:
        file.setncatts(
            {"title": "Größe", "n": 3, "x": 1.5, "many": np.arange(3, dtype="i2"), "no": ""}
        )
        file.createDimension("x", 2)
        one = file.createVariable("v", "f4", ("x",), fill_value=-1)
        one.setncatts({"units": "K", "range": np.array([1, 2], "f4"), "_Encoding": "utf-8"})
    group = outcore.open_group(path)
    assert {**group.attrs, "many": [0, 1, 2]} == {
        "title": "Größe", "n": 3, "x": 1.5, "many": [0, 1, 2], "no": ""
    }  # fmt: skip
    assert group.attrs["many"].tolist() == [0, 1, 2] and group.attrs["n"].dtype.isnative
    with group["v"] as v:
        assert v.attrs["units"] == "K" and v.attrs["_Encoding"] == "utf-8"
        assert v.attrs["range"].tolist() == [1, 2] and "_FillValue" not in v.attrs
        assert (v.fill_value, v.info.declared) == (-1, -1)


@pytest.mark.parametrize("format", MODELS)
def test_fill_values(tmp_path, format):
    """`_FillValue` is declared as in NetCDF4; without one, new elements have the default of the type."""
    path = tmp_path / "a.nc"
    outcore.create(f"{path}::/v", (3,), "f4", fill_value=7, dims=("x",), format=format).close()
    outcore.create(f"{path}::/w", (3,), "f4", dims=("x",)).close()
    outcore.create(f"{path}::/s", (2,), "S1", fill_value=b"?").close()
    with netCDF4.Dataset(path) as file:
        assert file["v"]._FillValue == 7 and file["v"][:].mask.all()
        assert file["w"][:].tolist() == [0, 0, 0] and "_FillValue" not in file["w"].ncattrs()
        assert file["s"][:].tobytes() == b"??"
    with outcore.open(f"{path}::/v") as v, outcore.open(f"{path}::/w") as w:
        assert (v.fill_value, v.info.declared, v[:].tolist()) == (7, 7, [7, 7, 7])
        assert (float(w.fill_value), w.info.declared) == (netCDF4.default_fillvals["f4"], None)


def test_default_fill_values_are_those_of_the_library():
    from outcore.formats.netcdf.classic.header import FILLS, TYPES

    for number, dtype in TYPES.items():
        theirs = netCDF4.default_fillvals[dtype.str[1:]]
        ours = FILLS[number].decode() if dtype.kind == "S" else FILLS[number]
        assert ours == theirs, dtype


@pytest.mark.parametrize(
    "name", ["NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
)
def test_names_of_other_libraries_are_formats(tmp_path, name):
    path = tmp_path / "a.nc"
    outcore.create(path, data=np.arange(3, dtype="i2"), format=name).close()
    with netCDF4.Dataset(path) as file:
        assert file.data_model == (f"{name}_OFFSET" if name == "NETCDF3_64BIT" else name)
    with outcore.open(path) as array:
        assert array[...].tolist() == [0, 1, 2]
        assert MODELS[array.format] == (f"{name}_OFFSET" if name == "NETCDF3_64BIT" else name)


def test_netcdf4_stays_the_default(tmp_path):
    outcore.create(tmp_path / "a.nc", (3,), "f4").close()
    assert formats.find_format_name(str(tmp_path / "a.nc")) == "netcdf4"
    outcore.create(tmp_path / "b.nc", (3,), "f4", format="netcdf3_classic").close()
    for call in (
        outcore.open,
        lambda path, format: outcore.create(f"{path}::/x", 3, "f4", format=format),
    ):
        with pytest.raises(errors.UnsupportedError, match="omit format=") as caught:
            call(tmp_path / "b.nc", format="netcdf4")
        assert caught.value.code == "netcdf-classic"


def test_scalars_many_axes_and_no_records(tmp_path):
    path = tmp_path / "a.nc"
    group = outcore.open_group(path, "w", format="netcdf3_classic")
    group.create("s", data=np.float64(2.5)).close()
    group.create("m", data=np.arange(2**7, dtype="i2").reshape((2,) * 7)).close()
    group.create("e", (0, 3), "f8", dims=("t", "x")).close()
    _, found = read_with_netcdf4(path)
    assert found["s"][...] == 2.5 and found["e"].shape == (0, 3) and is_endless(path, "t")
    np.testing.assert_array_equal(np.arange(2**7).reshape((2,) * 7), found["m"])
    with group["s"] as s, group["e"] as e:
        assert s.shape == () and s[()] == 2.5 and e.shape == (0, 3) and e[...].shape == (0, 3)


def test_streaming_files_have_the_records_that_are_there(tmp_path):
    path = tmp_path / "a.nc"
    data = elements("f8")
    write_with_netcdf4(path, "NETCDF3_64BIT_OFFSET", "among records", data)
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 4)
    with outcore.open(f"{path}::/b", "r+") as b:
        np.testing.assert_array_equal(data, b[...])
        b.append(data[:2])
    assert path.read_bytes()[4:8] == bytes([0, 0, 0, 7])
    _, found = read_with_netcdf4(path)
    np.testing.assert_array_equal(np.concatenate([data, data[:2]]), found["b"])


def test_sizes_that_do_not_fit_a_header_are_not_relied_on(tmp_path):
    """`vsize` is 2^32 - 1 for large variables; some writers leave it wrong."""
    path = tmp_path / "a.nc"
    data = elements("f8")
    write_with_netcdf4(path, "NETCDF3_CLASSIC", "fixed", data)
    raw = bytearray(path.read_bytes())
    at = raw.index((6).to_bytes(4, "big") + (120).to_bytes(4, "big")) + 4
    raw[at : at + 4] = b"\xff" * 4
    path.write_bytes(raw)
    with outcore.open(f"{path}::/b") as b:
        np.testing.assert_array_equal(data, b[...])


def test_what_a_version_cannot_hold_is_refused_with_the_next_step(tmp_path):
    path = tmp_path / "a.nc"
    cases = [
        ({"dtype": "i8"}, "bad-dtype", "netcdf3_64bit_data"),
        ({"dtype": "c16"}, "bad-dtype", "hdf5"),
        ({"dtype": "f4", "chunks": 2}, "cannot-keep", "netcdf4"),
        ({"dtype": "f4", "compression": "gzip"}, "cannot-keep", "netcdf4"),
        ({"dtype": "f4", "shape": (2, 0)}, "cannot-keep", "netcdf4"),
        ({"dtype": "f4", "shape": (2**31,)}, "cannot-keep", "netcdf3_64bit_offset"),
        ({"dtype": "f4", "attrs": {"n": 2**40}}, "bad-attribute", "netcdf3_64bit_data"),
        ({"dtype": "f4", "attrs": {"n": ["a", "b"]}}, "bad-attribute", "netcdf4"),
        ({"dtype": "f4", "unlimited": "x"}, "bad-dims", "netcdf4"),
    ]
    for words, code, step in cases:
        words = {"shape": (3, 2), **words}
        with pytest.raises((errors.UnsupportedError, errors.UsageError), match=step) as caught:
            outcore.create(path, format="netcdf3_classic", **words)
        assert caught.value.code == code and not path.exists(), words
    outcore.create(path, (3,), "f4", format="netcdf3_classic").close()
    for inner in ("g/v", "/g/h/v"):
        with pytest.raises(errors.UnsupportedError, match="no groups"):
            outcore.create(f"{path}::/{inner}", (3,), "f4")
    with pytest.raises(errors.UnsupportedError, match="no groups"):
        outcore.open_group(path, "r+").create_group("g")


def test_integers_of_attributes_keep_their_value(tmp_path):
    values = {"a": np.uint8(200), "b": np.uint16(60_000), "c": np.int64(-5), "d": True}
    for format in MODELS:
        path = tmp_path / f"{format}.nc"
        outcore.create(path, (3,), "f4", format=format, attrs=values).close()
        with outcore.open(path) as array, netCDF4.Dataset(path) as file:
            assert dict(array.attrs) == values
            assert {name: file["data"].getncattr(name) for name in values} == values


def test_sections_of_records_read_as_they_lie(tmp_path):
    """Records of other variables between those of this one are read neither wrong nor at all."""
    path = tmp_path / "a.nc"
    rng = np.random.default_rng(1)
    data = rng.standard_normal((300, 40))
    group = outcore.open_group(path, "w", format="netcdf3_64bit_offset")
    group.create("v", data=data, dims=("t", "x"), unlimited="t").close()
    group.create("w", data=data.astype("f4"), dims=("t", "x")).close()
    with group["v"] as v, group["w"] as w:
        assert v.info.layout.strides[0] == 40 * 12
        for key in (
            np.s_[:],
            np.s_[::7, 3],
            np.s_[::-1, ::3],
            np.s_[299],
            np.s_[5:6, 1:],
            np.s_[..., 39],
        ):
            np.testing.assert_array_equal(data[key], v[key])
            np.testing.assert_array_equal(data.astype("f4")[key], w[key])
        rows = [7, 3, 299]
        np.testing.assert_array_equal(data[rows], v[rows])


def test_two_record_variables_of_a_file_share_no_bytes(tmp_path):
    path = tmp_path / "a.nc"
    data = np.arange(30, dtype="f8").reshape(10, 3)
    group = outcore.open_group(path, "w", format="netcdf3_64bit_offset")
    for name in "abc":
        group.create(name, data=data, dims=("t", "x"), unlimited="t").close()
    infos = [formats.open_info(f"{path}::/{name}") for name in "ab"]
    from outcore.formats.layout import share_bytes

    assert (
        share_bytes(infos[0], infos[0])
        and not share_bytes(*infos)
        and not share_bytes(*infos[::-1])
    )


def test_a_header_is_parsed_once_for_many_arrays(tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    group = outcore.open_group(path, "w", format="netcdf3_classic")
    for number in range(5):
        group.create(f"v{number}", data=np.arange(3, dtype="i2"), dims=("x",)).close()
    parsed = []
    parse = files.parse
    monkeypatch.setattr(files, "parse", lambda *words: parsed.append(words) or parse(*words))
    monkeypatch.setattr(files, "_known", {})
    for _, array in group.arrays():
        array.close()
    assert len(parsed) == 1
    with netCDF4.Dataset(path, "a") as file:
        file.title = "another header"
    assert outcore.open_group(path).attrs["title"] == "another header" and len(parsed) == 2


@pytest.mark.parametrize("cache", ["keep", "bypass"])
@pytest.mark.parametrize("method", ["auto", "straight", "window", "mapped", "list"])
def test_writes_change_no_other_variable(tmp_path, method, cache):
    """Records of others lie in the gaps of every section, whatever the method of a write."""
    path = tmp_path / "a.nc"
    rng = np.random.default_rng(2)
    data = rng.integers(0, 100, (500, 40)).astype("i2")
    group = outcore.open_group(path, "w", format="netcdf3_64bit_data")
    for name in ("a", "v", "z"):
        group.create(name, data=data, dims=("t", "x"), unlimited="t").close()
    expected = data.copy()
    hints = {"method": method, "cache": cache}
    keys = [
        np.s_[:],
        np.s_[::3, ::2],
        np.s_[:, 5],
        np.s_[17],
        np.s_[[3, 400, 8]],
        np.s_[:, [1, 39]],
    ]
    with outcore.open(f"{path}::/v", "r+", hints=hints) as v:
        for number, key in enumerate(keys):
            expected[key] = -number - 1
            v[key] = -number - 1
            np.testing.assert_array_equal(expected, v[...])
        v.flush()
    _, found = read_with_netcdf4(path)
    for name, values in (("a", data), ("v", expected), ("z", data)):
        np.testing.assert_array_equal(values, found[name], err_msg=name)
