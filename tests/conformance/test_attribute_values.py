"""Values of attributes of all kinds: they come back as they were, here and by the owner's library."""

import warnings

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import outcore
from outcore import formats

LONG = np.dtype(np.longdouble).itemsize > 8
NUMBERS = {
    "zero": -0.0, "bool": True, "numpy bool": np.bool_(False), "bools": [True, False],
    "big": 2**63 - 1, "bigger": 2**63, "least": -(2**63), "list": [1, 2.5], "0-d": np.array(5),
    "0-d bool": np.array(True), "none": [], "nothing": np.zeros(0, "i4"), "one": [7],
    "swapped": np.arange(3, dtype=">i4"), "last": np.uint64(2**64 - 1),
    **{code: np.dtype(code).type(3) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")},
    "f2": np.float16(0.1), "f4": np.float32(0.1), "f8": np.float64(0.1),
    "table": np.arange(6).reshape(2, 3), "empty table": np.zeros((0, 3)),
}  # fmt: skip
ODD = {
    "nan": float("nan"), "inf": float("-inf"), "nan f4": np.float32("nan"),
    "range": [1.0, float("inf")], "nan array": np.array([np.nan, -0.0]), "nan 0-d": np.array(np.nan),
}  # fmt: skip
TEXTS = {
    "empty": "", "text": "Zürich 日本 🚀", "numpy": np.str_("é"), "0-d": np.array("é"),
    "texts": ["é", "", "日本"], "array": np.array(["é", "bc"]), "one": ["x"], "lines": "a\n\tb",
    "table": [["é", "b"], ["", "日"]],
}  # fmt: skip
NETCDF_LACKS = {"f2", "table", "empty table"}
HDF5, ZARR = ["a.h5", "a.nc"], ["a.zarr", "a.zarr2"]


@pytest.fixture(params=["array", "group"])
def member(request):
    """Makes an array or a group in a file, and opens it."""

    def use(path, mode="r"):
        if mode == "w":
            outcore.create(f"{path}::/x", (2,), "i4").close()
            outcore.open_group(f"{path}::/g", "a").close()
        return (
            outcore.open(f"{path}::/x", mode.replace("w", "r+"))
            if request.param == "array"
            else outcore.open_group(f"{path}::/g", mode.replace("w", "r+"))
        )

    use.inner = request.param[0].replace("a", "x")
    return use


def of_owner(path, inner):
    """The attributes, as the library of the format reads them."""
    if path.suffix in (".h5", ".nc"):
        with h5py.File(path) as file:
            own = ("CLASS", "NAME", "_Netcdf4Dimid", "DIMENSION_LIST")
            return {name: one for name, one in file[inner].attrs.items() if name not in own}
    return dict(
        (zarr.open_array if inner == "x" else zarr.open_group)(path / inner, mode="r").attrs
    )


def plain(value):
    return np.asarray(value).tolist()


def agree(expected, found, *, numbers):
    """Equal; of numbers also the type, the signs of zeros and the shape."""
    assert set(expected) == set(found)
    for name, value in expected.items():
        wanted, seen = np.asarray(value), np.asarray(found[name])
        if numbers and wanted.dtype.kind not in "SUO":
            same = (wanted.dtype, wanted.shape, wanted.tobytes())
            assert same == (seen.dtype, seen.shape, seen.tobytes()), name
        else:
            assert plain(value) == plain(found[name]), name


def as_netcdf_has_them(values):
    """Without types that it lacks, and with integers for truth values."""
    integers = {
        k: np.asarray(v, "i1")[()] for k, v in values.items() if np.asarray(v).dtype == bool
    }
    return {k: v for k, v in (values | integers).items() if k not in NETCDF_LACKS}


@pytest.mark.parametrize("name", HDF5)
def test_numbers_of_hdf5_keep_type_and_bits(tmp_path, member, name):
    path = tmp_path / name
    values = NUMBERS | ODD
    expected = values if name == "a.h5" else as_netcdf_has_them(values)
    with member(path, "w") as a:
        a.attrs.update(expected)
        seen = dict(a.attrs)
    one = np.asarray(expected.pop("one"))
    # As NetCDF has it, a list of one number is that number.
    assert (one if name == "a.h5" else one[0]) == seen.pop("one")
    agree(expected, seen, numbers=True)
    with member(path) as a:
        agree(seen, {k: v for k, v in a.attrs.items() if k != "one"}, numbers=True)
    found = of_owner(path, member.inner)
    assert found.pop("one").tolist() == [7]
    agree(expected, found, numbers=True)


@pytest.mark.parametrize("name", ZARR)
def test_numbers_of_zarr_keep_their_values(tmp_path, member, name):
    path = tmp_path / name
    expected = {key: plain(value) for key, value in NUMBERS.items()}
    expected |= {"digits": 10**30, "list": [1, 2.5]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with member(path, "w") as a:
            a.attrs.update(NUMBERS | {"digits": 10**30})
            assert repr(sorted(expected.items())) == repr(sorted(a.attrs.items()))
    with member(path) as a:
        assert repr(sorted(expected.items())) == repr(sorted(a.attrs.items()))
    assert repr(sorted(expected.items())) == repr(sorted(of_owner(path, member.inner).items()))


@pytest.mark.parametrize("name", HDF5 + ZARR)
def test_texts_come_back(tmp_path, member, name):
    path = tmp_path / name
    expected = {key: v for key, v in TEXTS.items() if name != "a.nc" or key != "table"}
    with member(path, "w") as a:
        a.attrs.update(expected)
    expected = {key: plain(value) for key, value in expected.items()}
    agree(expected, of_owner(path, member.inner), numbers=False)
    if name == "a.nc":
        expected["one"] = "x"
    with member(path) as a:
        assert expected == dict(a.attrs)


@pytest.mark.parametrize("name", ZARR)
def test_nan_becomes_text_in_json_and_that_is_told(tmp_path, member, name):
    path = tmp_path / name
    expected = {
        "nan": "NaN", "inf": "-Infinity", "nan f4": "NaN", "range": [1.0, "Infinity"],
        "nan array": ["NaN", -0.0], "nan 0-d": "NaN",
    }  # fmt: skip
    with member(path, "w") as a:
        with pytest.warns(UserWarning, match="JSON cannot represent NaN") as told:
            a.attrs.update({**ODD, "fine": 1.0})
        assert all(repr(key) in str(told[0].message) for key in ODD)
        assert "fine" not in str(told[0].message)
        assert expected | {"fine": 1.0} == dict(a.attrs)
    assert expected | {"fine": 1.0} == of_owner(path, member.inner)
    assert "NaN," not in "".join(
        one.read_text() for one in path.rglob("*") if one.is_file()
    ).replace('"NaN"', ""), "every reader of JSON reads the document"


@pytest.mark.parametrize("new", ["b.zarr", "b.zarr2"])
def test_a_conversion_tells_which_numbers_become_text(tmp_path, new):
    outcore.create(tmp_path / "a.h5::/g/x", data=np.arange(3.0), attrs={"missing": np.nan}).close()
    with outcore.open_group(tmp_path / "a.h5::/g", "r+") as group:
        group.attrs.update({"range": [0.0, np.inf], "fine": 1.5})
    with pytest.warns(UserWarning, match="JSON cannot represent") as told:
        outcore.convert(tmp_path / "a.h5", tmp_path / new, whole=True)
    said = " ".join(str(one.message) for one in told)
    assert "'missing'" in said and "'range'" in said
    with outcore.open_group(tmp_path / new) as group:
        assert dict(group["g"].attrs) == {"range": [0.0, "Infinity"], "fine": 1.5}
        assert group["g/x"].attrs["missing"] == "NaN"


@pytest.mark.parametrize("old", ["a.h5", "a.zarr", "a.zarr2"])
@pytest.mark.parametrize("new", ["b.h5", "b.zarr", "b.zarr2"])
def test_conversions_of_groups_keep_what_the_target_can(tmp_path, old, new):
    values = {k: v for k, v in (NUMBERS | TEXTS).items() if k not in ("empty table", "none")}
    with outcore.open_group(tmp_path / old, "w") as group:
        group.attrs.update(values)
        group.create("x", data=np.arange(3.0), attrs=values, compression=None).close()
        expected = {name: plain(value) for name, value in group.attrs.items()}
        kept = dict(group.attrs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcore.convert(tmp_path / old, tmp_path / new, whole=True)
    with outcore.open_group(tmp_path / new) as group:
        for attrs in (dict(group.attrs), dict(group["x"].attrs)):
            assert expected == {name: plain(value) for name, value in attrs.items()}
            if old == new.replace("b.", "a.") == "a.h5":
                agree(kept, attrs, numbers=True)


def test_conversion_warns_of_attributes_it_cannot_store(tmp_path):
    pair = np.array((1, 2.0), [("a", "i4"), ("b", "f8")])[()]
    lost = {"raw": b"\xff\xfe", "pair": pair, "complex": 1j}
    lost |= {"long": np.longdouble(1) / 3} if LONG else {}
    with outcore.open_group(tmp_path / "a.h5", "w") as group:
        group.attrs.update({**lost, "fine": 1})
        assert group.attrs["raw"] == b"\xff\xfe" and pair == group.attrs["pair"]
    with pytest.warns(UserWarning, match="cannot store attribute") as told:
        outcore.convert(tmp_path / "a.h5", tmp_path / "b.zarr", whole=True)
    assert all(f"attribute {name!r}" in str(told[0].message) for name in lost)
    assert dict(outcore.open_group(tmp_path / "b.zarr").attrs) == {"fine": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.h5", [2**63 + 1, -1]), ("a.h5", [2**53 + 1, 0.5]), ("a.nc", (2**53 + 1, 0.5)),
        ("a.h5", 2**64), ("a.h5", b"\xff\0"), ("a.zarr", np.datetime64(5, "ns")),
        ("a.zarr2", np.void((1, 2.0), [("a", "i4"), ("b", "f8")])),
        ("a.zarr", {"deep": [{1: 2, "1": 3}]}),
        ("a.zarr", 1j), ("a.zarr2", np.bytes_(b"ab")), ("a.zarr", np.array([b"a"])),
        *([("a.zarr", np.longdouble(1) / 3)] if LONG else []),
    ],
)  # fmt: skip
def test_attributes_that_would_change_are_refused(tmp_path, member, name, value):
    path = tmp_path / name
    with member(path, "w") as a:
        a.attrs["kept"] = 1
        with pytest.raises(outcore.errors.UsageError) as raised:
            a.attrs.update({"good": 2, "wrong": value})
        assert raised.value.code in ("bad-attribute", "bad-attributes")
        assert dict(a.attrs) == {"kept": 1}
    assert of_owner(path, member.inner) == {"kept": 1}


def test_a_name_that_hdf5_would_cut_is_refused(tmp_path, member):
    with member(tmp_path / "a.h5", "w") as a:
        a.attrs["a"] = 1
        with pytest.raises(outcore.errors.UsageError, match="zero"):
            a.attrs["a\0b"] = 2
        assert dict(a.attrs) == {"a": 1}


def test_lists_of_nothing_that_netcdf_wrote(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", 2)
        variable = file.createVariable("x", "f4", ("t",))
        variable.setncattr("nothing", np.zeros(0, "f4"))
        variable.setncattr("empty", "")
        file.setncattr("nothing", np.zeros(0, "i2"))
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        file["x"].attrs["text"] = h5py.Empty("S1")
    with outcore.open(tmp_path / "a.nc::/x", "r+") as a:
        assert "" == a.attrs["empty"] == a.attrs["text"]
        assert (np.dtype("f4"), (0,)) == (a.attrs["nothing"].dtype, a.attrs["nothing"].shape)
    outcore.convert(tmp_path / "a.nc", tmp_path / "b.nc", whole=True)
    with netCDF4.Dataset(tmp_path / "b.nc") as file:
        assert len(file["x"].nothing) == 0 and file["x"].empty == ""
        assert np.dtype("i2") == file.nothing.dtype and len(file.nothing) == 0
    assert "nothing" in formats.open_info(tmp_path / "b.nc::/x").attrs
