"""The fill value of every dtype that a format takes, as the other libraries read it."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import tensorstore
import zarr

import outcore

SINGLE = np.array(0x7FC01234, "u4").view("f4")[()]
DOUBLE = np.array(0xFFF8000000001234, "u8").view("f8")[()]
RECORD = np.dtype([("name", "S3"), ("n", ">i4"), ("ok", "?"), ("z", "c8"), ("one", "S1")])
NESTED = np.dtype([("row", "S4", (2,)), ("in", [("name", "S2"), ("x", ">f8")])])

CASES = [
    ("S7", b"ab"), ("S7", b"abcdefg"), ("S1", b"x"), ("S16", b""), ("S9", b"12345678"),
    ("?", True), ("?", False), ("i1", -3), ("u1", 250), ("u8", 2**64 - 1), ("<i4", -5), (">i4", -5),
    (">u2", 40000), ("f2", 1.5), ("f8", -0.0), ("f4", SINGLE), (">f8", DOUBLE), ("f8", DOUBLE),
    ("c16", 1 + 2j), (">c8", 3 - 1j), ("c8", complex(np.nan, 1)),
    (RECORD, np.array((b"xy", -2, True, 1j, b"q"), RECORD)[()]),
    (NESTED, np.array(([b"a", b"bcd"], (b"z", 2.5)), NESTED)[()]),
    ("V4", np.void(b"abcd")), ("M8[s]", np.datetime64(5, "s")), (">m8[ms]", np.timedelta64(7, "ms")),
]  # fmt: skip

# What the format has no type for.
REFUSED = {
    "h5": lambda dtype: False,
    "nc": lambda dtype: (dtype.kind not in "iuf" and dtype != "S1") or dtype == "f2",
    "zarr": lambda dtype: dtype == NESTED,
    "zarr2": lambda dtype: dtype == NESTED,
}
# How it is made, and the keyword of the format that lets it grow. tensorstore does not read what zarr
# says of its own default codec in version 2.
WAYS = [
    {"compression": None},
    {"chunks": 2, "compression": None},
    {"chunks": 2, "compression": "gzip"},
    {"grows": True, "compression": None},
]
GROWS = {"h5": "resizable", "nc": "unlimited"}


def _h5py(path):
    with h5py.File(path) as file:
        return file["a"][...]


def _netcdf4(path):
    with netCDF4.Dataset(path) as file:
        variable = file["a"]
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        return variable[...]


def _zarr(path):
    return zarr.open_array(path, path="a", mode="r")[...]


def _tensorstore(driver):
    def read(path):
        store = {"driver": "file", "path": f"{Path(path).absolute()}/a"}
        return (
            tensorstore.open({"driver": driver, "kvstore": store}, read=True)
            .result()
            .read()
            .result()
        )

    return read


READERS = {"h5": [_h5py], "nc": [_h5py, _netcdf4], "zarr": [_zarr], "zarr2": [_zarr]}
DRIVERS = {"zarr": "zarr3", "zarr2": "zarr"}


def _bits(values, dtype):
    """The bytes of values, in the byte order of `dtype`; of NaN in Zarr 2, which has one, only that."""
    return np.asarray(values).astype(dtype).tobytes()


@pytest.mark.parametrize("suffix", READERS)
def test_every_fill_value_is_read_as_it_was_given(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, (kind, value) in enumerate(CASES):
        dtype = np.dtype(kind)
        if REFUSED[suffix](dtype):
            continue
        if suffix == "zarr2" and dtype.kind == "f" and np.isnan(value):
            value = np.nan  # it has no payloads
        expected = np.full(5, np.asarray(value, dtype)).tobytes()
        for way, options in enumerate(WAYS):
            path, case = f"{number}-{way}.{suffix}", f"{dtype} {value!r} {options}"
            options = dict(options)
            if options.pop("grows", False) and suffix in GROWS:
                options[GROWS[suffix]] = True
            length = 3 if GROWS.get(suffix) in options else 5
            with outcore.create(f"{path}::/a", (length,), dtype, fill_value=value, **options) as a:
                a[1] = a[0]
                if length == 3:
                    a.resize((5,))
                assert _bits(a[...], dtype) == expected, case
                assert _bits(a.fill_value, dtype) == _bits(value, dtype), case
            with outcore.open(f"{path}::/a") as a:
                assert _bits(a[...], dtype) == expected, case
            readers = list(READERS[suffix])
            if suffix in DRIVERS and dtype.kind in "biufc":
                readers.append(_tensorstore(DRIVERS[suffix]))
            for read in readers:
                assert _bits(read(path), dtype) == expected, (case, read)


def test_new_elements_of_bytes_are_empty_without_a_fill_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = np.array([b"ab", b"cd"], "S7")
    made = [{"resizable": True}, {"maxshape": (9,)}, {"maxshape": True, "compression": "gzip"}]
    for number, options in enumerate(made):
        path = f"{number}.h5"
        with outcore.create(f"{path}::/a", data=words, chunks=(2,), **options) as a:
            a.resize((5,))
            assert a[...].tolist() == [b"ab", b"cd", b"", b"", b""]
        assert _h5py(path).tolist() == [b"ab", b"cd", b"", b"", b""]
    letters = np.array([b"a", b"b"], "S1")
    with outcore.create("0.nc::/a", data=letters, dims=("x",), unlimited="x") as a:
        a.resize((4,))
        assert a[...].tolist() == [b"a", b"b", b"", b""]
    assert _netcdf4("0.nc").tolist() == [b"a", b"b", b"", b""]


def test_a_fill_value_of_bytes_survives_a_conversion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, value in [("S7", b"ab"), (RECORD, CASES[21][1])]:
        outcore.create("a.zarr", (4,), kind, fill_value=value, chunks=2, overwrite=True)[0] = value
        for source, target in [("a.zarr", "b.h5"), ("b.h5", "c.h5"), ("c.h5", "d.zarr2")]:
            outcore.convert(source, target, overwrite=True)
        expected = np.full(4, value, kind).tobytes()
        assert _bits(_h5py_of("b.h5"), kind) == _bits(_h5py_of("c.h5"), kind) == expected
        with outcore.open("d.zarr2") as a:
            assert _bits(a[...], kind) == expected
            assert a.fill_value is None  # there it would mean "missing", which nobody declared


def _h5py_of(path):
    with h5py.File(path) as file:
        return next(iter(file.values()))[...]


def test_hdf5_refuses_a_fill_value_with_a_nul_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(outcore.errors.UnsupportedError, match="NUL inside") as raised:
        outcore.create("a.h5", (2,), "S3", fill_value=b"a\0b")
    assert raised.value.code == "cannot-keep"
    assert not Path("a.h5").exists()
