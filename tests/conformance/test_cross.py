"""Arrays and sections through `outcore.open` and `outcore.create`, against the owners of the formats:
numpy, h5py, netCDF4. (Zarr has its own file.)
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import errors
from outcore.testing import strategies

h5py = pytest.importorskip("h5py")

SECTIONS = [
    np.s_[...], np.s_[5], np.s_[::-1, 3:20:4], np.s_[7:30, 11], np.s_[2::5, ::-7],
    np.s_[:0], np.s_[-1, -1],
]  # fmt: skip
CODECS = {
    "plain": None, "gzip": "gzip:6", "shuffle+gzip": ["shuffle", "gzip"], "lzf": "lzf", "zstd": "zstd:4",
    "lz4": "lz4", "blosc": "blosc", "bzip2": "bzip2:2", "bitshuffle": ["bitshuffle", "fletcher32"],
    "fletcher32": ["shuffle", "gzip:1", "fletcher32"],
}  # fmt: skip
PLUGINS = {"zstd", "lz4", "blosc", "bzip2", "bitshuffle"}


def field(shape, dtype="f8", seed=0):
    """Smooth enough to compress, with noise in some chunks."""
    rng = np.random.default_rng(seed)
    data = np.add.outer(np.arange(shape[0]) // 3, np.arange(shape[1]) // 5).astype(dtype)
    data[: shape[0] // 3] += rng.integers(0, 99, (shape[0] // 3, shape[1])).astype(dtype)
    return data


def need_plugin(name):
    if name in PLUGINS:
        pytest.importorskip("hdf5plugin")


def check_sections(array, data):
    for key in SECTIONS:
        assert np.array_equal(data[key], array[key]), key


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8", "<c16"])
@pytest.mark.parametrize("name", CODECS)
def test_h5py_to_outcore(tmp_path, name, dtype):
    need_plugin(name)
    data = field((41, 53), dtype)
    options = {
        "plain": {}, "gzip": {"compression": 6}, "shuffle+gzip": {"compression": 4, "shuffle": True},
        "lzf": {"compression": "lzf"}, "zstd": {"compression": 32015}, "lz4": {"compression": 32004},
        "blosc": {"compression": 32001}, "bzip2": {"compression": 307},
        "bitshuffle": {"compression": 32008, "compression_opts": (0, 2), "fletcher32": True},
        "fletcher32": {"fletcher32": True, "compression": 1},
    }[name]  # fmt: skip
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file.create_dataset("x", data=data, chunks=(10, 16), **options)
    with outcore.open(tmp_path / "a.h5") as array:
        check_sections(array, data)


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8", "<c16"])
@pytest.mark.parametrize("name", CODECS)
def test_outcore_to_h5py(tmp_path, name, dtype):
    need_plugin(name)
    data = field((41, 53), dtype)
    path = tmp_path / "a.h5"
    options = {"compression": CODECS[name], "chunks": (10, 16)}
    with outcore.create(f"{path}::g/x", data.shape, dtype, fill_value=1, **options) as array:
        assert (array[...] == 1).all()
        array[3:30, 5:] = data[3:30, 5:]
        expected = np.ones_like(data)
        expected[3:30, 5:] = data[3:30, 5:]
        assert np.array_equal(expected, array[...])
        array[::3] = data[::3]
        expected[::3] = data[::3]
        check_sections(array, expected)
    with h5py.File(path) as file:
        assert np.array_equal(expected, file["g/x"][...])
    with outcore.open(f"{path}::g/x", "r+") as array:
        array[...] = data
    with h5py.File(path) as file:
        assert np.array_equal(data, file["g/x"][...])


def test_incompressible_chunks_skip_the_filter(tmp_path):
    pytest.importorskip("hdf5plugin")
    data = np.random.default_rng(1).integers(0, 256, (64, 64), np.uint8)
    for number, codec in enumerate(["lzf", "blosc", "lz4", "zstd", "gzip", "bitshuffle", "bzip2"]):
        path = f"{tmp_path}/a{number}.h5"
        outcore.create(path, data=data, chunks=(16, 16), compression=codec).close()
        with h5py.File(path) as file:
            assert np.array_equal(data, file["data"][...]), codec
        with h5py.File(path, "r+") as file:
            file["data"][...] = data.T
        with outcore.open(path) as array:
            assert np.array_equal(data.T, array[...]), codec


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize(
    "options", [{}, {"chunks": (7, 9)}, {"chunks": (7, 9), "compression": 1}], ids=str
)
def test_h5py_files_are_written_in_place(tmp_path, options, libver):
    """Also when nothing is allocated yet, and when h5py goes on afterwards."""
    data = field((40, 50))
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset(
            "x", data.shape, "f8", fillvalue=2, maxshape=(None, 50) if options else None, **options
        )
    with outcore.open(path, "r+") as array:
        array[5:20, ::2] = data[5:20, ::2]
    expected = np.full(data.shape, 2.0)
    expected[5:20, ::2] = data[5:20, ::2]
    with h5py.File(path, "r+") as file:
        assert np.array_equal(expected, file["x"][...])
        if options:
            file["x"].resize((60, 50))
        file["x"][-10:] = 7
    with outcore.open(path) as array:
        assert (array[-10:] == 7).all() and array[6, 2] == data[6, 2]


def test_append_and_resize_hdf5(tmp_path):
    for codec in (None, "gzip"):
        path = tmp_path / f"{codec}.h5"
        data = field((30, 20))
        with outcore.create(
            path, (0, 20), "f8", chunks=(8, 8), compression=codec, maxshape=(None, 20)
        ) as array:
            for start in range(0, 30, 7):
                array.append(data[start : start + 7])
            assert np.array_equal(data, array[...])
            array.resize((33, 20))
            assert (array[30:] == 0).all()
        with h5py.File(path) as file:
            assert np.array_equal(data, file["data"][:30]) and not file["data"][30:].any()


@pytest.mark.parametrize("order", "CF")
def test_npy_both_ways_and_append(tmp_path, order):
    data = np.asarray(field((40, 30), ">i4"), order=order)
    np.save(tmp_path / "a.npy", data)
    with outcore.open(tmp_path / "a.npy", "r+") as array:
        assert array.order == order
        check_sections(array, data)
        array[::2, 5:9] = -1
        expected = data.copy()
        expected[::2, 5:9] = -1
        more = np.full((6, 30) if order == "C" else (40, 6), 9)
        axis = 0 if order == "C" else 1
        array.append(more, axis=axis)
        assert np.array_equal(np.concatenate([expected, more], axis), array[...])
    assert np.array_equal(np.concatenate([expected, more], axis), np.load(tmp_path / "a.npy"))


def test_netcdf_both_ways(tmp_path):
    netcdf = pytest.importorskip("netCDF4")
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "a.nc"
    data = field((40, 30), "f4")
    with outcore.create(
        f"{path}::t",
        data=data,
        dims=["y", "x"],
        attrs={"units": "K"},
        chunks=(16, 16),
        compression=["shuffle", "gzip"],
    ) as array:
        check_sections(array, data)
    outcore.create(f"{path}::x", data=np.arange(30.0), dims=["x"]).close()
    with xarray.open_dataset(path) as ds:
        assert np.array_equal(data, ds["t"].values) and ds["t"].attrs == {"units": "K"}
        assert ds["t"].sel(x=4).values.tolist() == data[:, 4].tolist()
    with netcdf.Dataset(path, "a") as file:
        file["t"][3] = 5
    with outcore.open(f"{path}::t") as array:
        assert (array[3] == 5).all() and array.dims == ("y", "x") and array.attrs["units"] == "K"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_arrays_sections_and_writes(tmp_path, data):
    """Any dtype that HDF5 has, any shape, any chunks, any section; then any writes."""
    values = data.draw(strategies.arrays(3, 8))
    if "U" in str(values.dtype) or (values.dtype.names and "y" in values.dtype.names):
        values = values.astype("S4") if values.dtype.kind == "U" else values["y"]["b"].copy()
    suffix = data.draw(st.sampled_from([".npy", ".h5"]))
    options = {}
    if suffix == ".h5" and values.size and values.ndim and data.draw(st.booleans()):
        options["chunks"] = [data.draw(st.integers(1, n + 1)) for n in values.shape]
        options["compression"] = data.draw(
            st.sampled_from([None, "gzip", ["shuffle", "lzf"], ["gzip", "fletcher32"]])
        )
    elif suffix == ".npy":
        options["order"] = data.draw(strategies.orders())
    path = f"{tmp_path}/a{suffix}"
    with outcore.create(path, data=values, **options, overwrite=True) as array:
        for _ in range(3):
            key = data.draw(strategies.keys(values.shape))
            assert np.array_equal(values[key], array[key])
            key = data.draw(strategies.keys(values.shape))
            if np.asarray(values[key]).size:
                value = np.asarray(values[key]).flat[0]
                array[key] = value
                values[key] = value
    theirs = np.load(path) if suffix == ".npy" else theirs_hdf5(path, values.dtype)
    assert theirs.dtype == values.dtype and np.array_equal(values, theirs)


def theirs_hdf5(path, dtype):
    with h5py.File(path) as file:
        return np.asarray(file["data"][()], dtype)


def test_threads_share_one_compressed_array(tmp_path):
    data = field((64, 64), "i8")
    with outcore.create(
        tmp_path / "a.h5", (64, 64), "i8", chunks=(8, 64), compression="gzip"
    ) as array:
        wrong = []

        def work(number):
            try:
                for row in range(number, 64, 4):
                    array[row] = data[row]
                    if not np.array_equal(data[row], array[row]):
                        wrong.append(row)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert np.array_equal(data, array[...])


def fill_rows(path, first):
    with outcore.open(path, "r+") as array:
        for row in range(first, 64, 2):
            array[row] = row


def test_processes_share_one_compressed_array(tmp_path):
    """Rows of one chunk, written by two processes: none is lost."""
    path = f"{tmp_path}/a.h5"
    outcore.create(path, (64, 64), "i8", chunks=(8, 64), compression="gzip").close()
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=fill_rows, args=(path, k)) for k in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    with h5py.File(path) as file:
        assert np.array_equal(np.arange(64)[:, None] + np.zeros((1, 64)), file["data"][...])


def test_pickle(tmp_path):
    with outcore.create(
        f"{tmp_path}/a.h5::g/x", data=np.arange(10), chunks=3, compression="lzf"
    ) as array:
        with pickle.loads(pickle.dumps(array)) as again:
            again[2] = 77
        assert array[2] == 77


def test_damaged_chunk_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    outcore.create(
        path, data=field((40, 50)), chunks=(10, 10), compression=["gzip", "fletcher32"]
    ).close()
    with h5py.File(path) as file:
        info = file["data"].id.get_chunk_info_by_coord((10, 10))
    with path.open("r+b") as file:
        file.seek(info.byte_offset + 10)
        file.write(b"\0\1\2\3")
    with outcore.open(path) as array:
        assert array[0, 0] == field((40, 50))[0, 0]
        with pytest.raises(errors.FormatError):
            array[12, 12]


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
def test_a_fill_value_that_the_dtype_cannot_hold_is_refused(tmp_path, name):
    path = tmp_path / name
    for value, dtype in ((99999, "i2"), (-1, "u1"), (1.5, "i4"), (float("nan"), "i8")):
        with pytest.raises(outcore.errors.UsageError, match="would be stored as") as raised:
            outcore.create(path, (2,), dtype, fill_value=value)
        assert raised.value.code == "bad-fill-value"
        assert not path.exists()
    with outcore.create(path, (2,), "i2", fill_value=-7.0) as array:
        assert array[...].tolist() == [-7, -7]
    # Of another array it is cast as its elements are.
    outcore.create(tmp_path / "f.zarr", (2,), "f8", fill_value=1.5).close()
    outcore.convert(tmp_path / "f.zarr", tmp_path / "i.zarr", dtype="i4", casting="unsafe")
    with outcore.open(tmp_path / "i.zarr") as array:
        assert array[...].tolist() == [1, 1]
