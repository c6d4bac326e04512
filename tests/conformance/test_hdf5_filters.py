"""Filters of HDF5: those that outcore decodes (bitshuffle, bzip2), and those of the HDF5 library."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore import _core, errors
from outcore.formats.hdf5 import filters as hdf5_filters

h5py = pytest.importorskip("h5py")
plugin = pytest.importorskip("hdf5plugin")

# Made by h5py; what is lossy is compared with what h5py reads.
BY_NAME = {
    "bitshuffle none": lambda kind: plugin.Bitshuffle(cname="none"),
    "bitshuffle lz4": lambda kind: plugin.Bitshuffle(),
    "bitshuffle lz4, small blocks": lambda kind: plugin.Bitshuffle(nelems=8, cname="lz4"),
    "bitshuffle zstd": lambda kind: plugin.Bitshuffle(cname="zstd", clevel=1),
    "bzip2": lambda kind: plugin.BZip2(blocksize=2),
    "szip": lambda kind: {"compression": "szip", "shuffle": kind.itemsize == 2},
    "szip, checked": lambda kind: {"compression": "szip", "fletcher32": True},
    "scaleoffset": lambda kind: {"scaleoffset": 3 if kind.kind == "f" else 0},
    "scaleoffset, gzip": lambda kind: {
        "scaleoffset": 1 if kind.kind == "f" else 0,
        "compression": 1,
    },
    "blosc2": lambda kind: plugin.Blosc2(cname="zstd", filters=plugin.Blosc2.BITSHUFFLE),
    "zfp": lambda kind: plugin.Zfp(reversible=True) if kind.itemsize > 2 else plugin.BZip2(),
    "sz3": lambda kind: (
        plugin.SZ3(absolute=0.1) if kind == np.dtype("<f4") else plugin.Bitshuffle()
    ),
}
DTYPES = ["i1", "<u2", ">i2", "<i4", ">u4", "<f4", ">f4", "<i8", ">f8", "<f8"]


def random_case(rng):
    """A shape, and chunks that seldom divide it."""
    shape = tuple(int(n) for n in rng.integers(1, 40, rng.integers(1, 4)))
    chunks = tuple(int(rng.integers((n + 2) // 3, n + 1)) for n in shape)
    if math.prod(chunks) < 32:  # szip wants a block
        return (37, *shape[1:]), (35, *chunks[1:])
    return shape, chunks


def smooth(rng, shape, dtype):
    steps = rng.integers(-2, 4, math.prod(shape))
    return (np.abs(np.cumsum(steps)) % 120).astype(dtype).reshape(shape)


def random_key(rng, shape):
    return tuple(
        slice(int(rng.integers(0, n)), int(rng.integers(0, n + 1)), int(rng.integers(1, 4)))
        for n in shape
    )


@pytest.mark.parametrize("name", BY_NAME)
def test_filters_of_h5py_are_decoded(tmp_path, name):
    rng = np.random.default_rng(len(name))
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for dtype in DTYPES:
            shape, chunks = random_case(rng)
            data = smooth(rng, shape, dtype)
            kind = np.dtype(dtype)
            file.create_dataset(dtype, data=data, chunks=chunks, **BY_NAME[name](kind))
    with h5py.File(path) as file:
        expected = {dtype: file[dtype][...] for dtype in DTYPES}
    for dtype, data in expected.items():
        with outcore.open(f"{path}::{dtype}") as array:
            assert array.dtype == dtype
            np.testing.assert_array_equal(data, array[...], err_msg=dtype)
            for _ in range(3):
                key = random_key(rng, data.shape)
                np.testing.assert_array_equal(data[key], array[key], err_msg=f"{dtype} {key}")
        assert outcore.verify(f"{path}::{dtype}") == []


def packed_type(base, precision, offset):
    kind = base.copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    return kind


def make_nbit(file, name, kind, data, chunks, shuffle=False):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunks)
    plist.set_filter(hdf5_filters.NBIT, 0, ())
    if shuffle:
        plist.set_shuffle()
        plist.set_deflate(1)
    space = h5py.h5s.create_simple(data.shape)
    dset = h5py.h5d.create(file.id, name, kind, space, plist)
    dset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)


def make_packed(path):
    """Datasets of types that NumPy does not have, and of one that it has."""
    h5t, rng = h5py.h5t, np.random.default_rng(5)
    signed = rng.integers(-2048, 2048, (21, 9)).astype("i2")
    record = np.zeros((21, 9), [("a", "<i2"), ("b", "<f4"), ("c", ">u4", (3,))])
    record["a"], record["b"], record["c"] = (
        signed,
        signed / 3,
        np.abs(signed)[..., None] * [1, 2, 3],
    )
    compound = h5t.create(h5t.COMPOUND, record.dtype.itemsize)
    compound.insert(b"a", 0, packed_type(h5t.STD_I16LE, 12, 3))
    compound.insert(b"b", 2, h5t.IEEE_F32LE)
    compound.insert(b"c", 6, h5t.array_create(packed_type(h5t.STD_U32BE, 20, 0), (3,)))
    with h5py.File(path, "w") as file:
        make_nbit(file, b"i12", packed_type(h5t.STD_I16LE, 12, 2), signed, (8, 9))
        make_nbit(file, b"i12be", packed_type(h5t.STD_I16BE, 12, 4), signed, (8, 4), shuffle=True)
        make_nbit(
            file, b"u20", packed_type(h5t.STD_U32BE, 20, 0), np.abs(signed).astype("u4"), (5, 5)
        )
        make_nbit(file, b"f4", h5t.IEEE_F32LE, signed.astype("f4"), (5, 5))
        make_nbit(file, b"record", compound, record, (8, 4))


def test_bits_of_nbit_are_read_as_numbers_of_numpy(tmp_path):
    path = tmp_path / "a.h5"
    make_packed(path)
    with h5py.File(path) as file:
        expected = {name: file[name][...] for name in file}
    assert expected["i12"].min() < 0
    for name, data in expected.items():
        with outcore.open(f"{path}::{name}") as array:
            assert array.dtype == data.dtype
            np.testing.assert_array_equal(data, array[...], err_msg=name)
            np.testing.assert_array_equal(data[3::4, 1:5], array[3::4, 1:5], err_msg=name)


@pytest.mark.parametrize("order", ["LE", "BE"])
def test_few_bits_of_large_numbers_are_read_too(tmp_path, order):
    """HDF5 creates datasets of such types in its newer formats alone."""
    path = tmp_path / "a.h5"
    signed, large = getattr(h5py.h5t, f"STD_I64{order}"), getattr(h5py.h5t, f"STD_U32{order}")
    values = np.arange(-4, 4).repeat(5)
    with h5py.File(path, "w", libver="v110") as file:
        make_nbit(file, b"signed", packed_type(signed, 3, 40), values, (7,))
        make_nbit(file, b"unsigned", packed_type(large, 2, 12), values.astype("u4") % 4, (40,))
    with h5py.File(path) as file:
        expected = {name: file[name][...] for name in file}
    assert expected["signed"].tolist() == values.tolist()
    for name, data in expected.items():
        with outcore.open(f"{path}::{name}") as array:
            np.testing.assert_array_equal(data, array[...], err_msg=name)


def test_whole_streams_of_szip_are_read_and_cut_ones_refused():
    """Its decoder refuses some bytes behind a whole stream, and takes a part of one for a whole one."""
    rng = np.random.default_rng(8)
    for number in range(60):
        dtype = np.dtype(("u1", ">i2", "f4", "u8")[number % 4])
        data = rng.integers(0, (2, 5, 200)[number % 3], (rng.integers(1, 9), 40)).astype(dtype)
        options = {"compression": "szip", "compression_opts": (("nn", "ec")[number % 2], 4)}
        with h5py.File("a.h5", "w", driver="core", backing_store=False) as file:
            dset = file.create_dataset("x", data=data, chunks=data.shape, **options)
            mask, stored = dset.id.read_direct_chunk((0, 0))
            values = dset.id.get_create_plist().get_filter(0)[2]
        if mask:  # too short to encode
            continue
        words = {"filter": 4, "name": "szip", "values": " ".join(map(str, values))}
        assert hdf5_filters.decode(words, stored, data.nbytes).tobytes() == data.tobytes()
        for length in (len(stored) - 1, len(stored) - 5, len(stored) // 2):
            with contextlib.suppress(ValueError):  # what is left may tell all of it
                found = hdf5_filters.decode(words, stored[:length], data.nbytes)
                assert found.tobytes() == data.tobytes()


def store_with_mask(path, name, cell, mask, content):
    with h5py.File(path, "r+") as file:
        file[name].id.write_direct_chunk(cell, content, mask)


def test_chunks_without_a_filter_say_so_in_their_mask(tmp_path):
    path = tmp_path / "a.h5"
    data = np.arange(200, dtype="i4").reshape(20, 10)
    with h5py.File(path, "w") as file:
        for name in ("szip, checked", "scaleoffset, gzip", "bitshuffle lz4"):
            options = BY_NAME[name](data.dtype)
            file.create_dataset(name, data=data, chunks=(7, 10), **options)
    for name in ("szip, checked", "scaleoffset, gzip", "bitshuffle lz4"):
        chunk = np.full((7, 10), 9, "i4")
        with h5py.File(path) as file:
            mask = 2 ** file[name].id.get_create_plist().get_nfilters() - 1
        store_with_mask(path, name, (7, 0), mask, chunk.tobytes())
        with h5py.File(path) as file:
            expected = file[name][...]
        assert (expected[7:14] == 9).all()
        with outcore.open(f"{path}::{name}") as array:
            np.testing.assert_array_equal(expected, array[...], err_msg=name)


def test_bits_that_nbit_did_not_pack_are_not_taken_for_numbers(tmp_path):
    path = tmp_path / "a.h5"
    make_packed(path)
    store_with_mask(path, "i12", (8, 0), 1, bytes(2 * 8 * 9))
    with outcore.open(f"{path}::i12") as array:
        assert array[:8].shape == (8, 9)
        with pytest.raises(errors.FormatError, match="codec hdf5: it was skipped for this chunk"):
            array[8:16]
    (found,) = outcore.verify(f"{path}::i12")
    assert found.code == "codec-failure"


@pytest.mark.parametrize("name", ["szip", "scaleoffset", "blosc2"])
def test_filters_of_the_library_are_read_and_not_written(tmp_path, name):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(100), chunks=(40,), **BY_NAME[name](np.dtype("i8")))
    before = path.read_bytes()
    with pytest.raises(errors.UnsupportedError, match=f"{name}. is read-only") as raised:
        outcore.open(path, "r+")
    assert raised.value.code == "cannot-encode"
    assert path.read_bytes() == before
    outcore.convert(path, tmp_path / "b.h5", compression="bitshuffle")
    with outcore.open(tmp_path / "b.h5", "r+") as array:
        array[3] = -1
    with h5py.File(tmp_path / "b.h5") as file:
        np.testing.assert_array_equal([0, 1, 2, -1, 4], file["data"][:5])


def test_missing_filter_plugins_are_named(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    data = np.arange(100)
    with h5py.File(path, "w") as file:
        file.create_dataset("zfp", data=data, chunks=(40,), **plugin.Zfp(reversible=True))
        file.create_dataset("szip", data=data, chunks=(40,), compression="szip")
        file.create_dataset("bits", data=data, chunks=(40,), **plugin.Bitshuffle())
    monkeypatch.setattr(hdf5_filters, "register", lambda number: False)
    for name, step in {"zfp": "pip install hdf5plugin", "szip": "reinstall h5py"}.items():
        with pytest.raises(errors.UnsupportedError, match=step) as raised:
            outcore.open(f"{path}::{name}")
        assert raised.value.code == "hdf5-filter"
    assert [bool(entry.note) for entry in outcore.ls(path)] == [False, True, True]
    np.testing.assert_array_equal(data, outcore.open(f"{path}::bits")[...])


def test_a_filter_that_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(9), chunks=(9,), compression=32015)
    content = path.read_bytes()
    at = content.find(b"HDF5 zstd filter") - 8
    assert content[at : at + 2] == (32015).to_bytes(2, "little")
    path.write_bytes(content[:at] + (31999).to_bytes(2, "little") + content[at + 2 :])
    with pytest.raises(errors.UnsupportedError, match=r"filter 31999 .*HDF5_PLUGIN_PATH"):
        outcore.open(path)


def test_a_filter_behind_one_that_changes_sizes_is_refused(tmp_path):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((64,))
    plist.set_deflate(1)
    plist.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((64,)), plist)
    with pytest.raises(errors.UnsupportedError, match=r"4 \(szip\) follows another one"):
        outcore.open(tmp_path / "a.h5")


# What is stored instead, made of what was; and the words of the refusal.
DAMAGE = {
    "szip": {
        "cut off": (lambda s: s[: len(s) // 2], "cut off"),
        "no header": (lambda s: s[:2], "cut off"),
        "a length that lies": (lambda s: b"\xff\xff\xff\x7f" + s[4:], "header promises 2147483647"),
        "another length": (lambda s: b"\x08\0\0\0" + s[4:], "header promises 8"),
    },
    "scaleoffset": {
        "cut off": (lambda s: s[:40], "cut off"),
        "no header": (lambda s: s[:5], "cut off"),
        "too many bits": (lambda s: b"\x41\0\0\0" + s[4:], "65 bits"),
    },
    "bitshuffle lz4": {
        "cut off": (lambda s: s[:30], "codec bitshuffle"),
        "a length that lies": (lambda s: b"\0\0\0\x7f" + s[4:], "header specifies"),
        "blocks of nothing": (lambda s: s[:8] + b"\0\0\0\x09" + s[12:], "codec bitshuffle"),
    },
    "bzip2": {
        "cut off": (lambda s: s[:20], "damaged or cut off"),
        "no stream": (lambda s: b"no" + s[2:], "damaged or cut off"),
    },
}


@pytest.mark.parametrize(("name", "what"), [(n, w) for n in DAMAGE for w in DAMAGE[n]])
def test_damaged_chunks_are_refused_and_named(tmp_path, name, what):
    damage, words = DAMAGE[name][what]
    path, data = tmp_path / "a.h5", np.arange(2000) // 3
    with h5py.File(path, "w") as file:
        dset = file.create_dataset("x", data=data, chunks=(500,), **BY_NAME[name](data.dtype))
        mask, stored = dset.id.read_direct_chunk((500,))
        dset.id.write_direct_chunk((500,), damage(stored), mask)
    with outcore.open(path) as array:
        with pytest.raises(errors.FormatError, match=words) as raised:
            array[...]
        assert raised.value.code == "codec-failure"
        assert "chunk [1]" in str(raised.value) and "a.h5" in str(raised.value)
        np.testing.assert_array_equal(data[:500], array[:500])
        np.testing.assert_array_equal(data[1000:], array[1000:])
    assert [(d.section, d.code) for d in outcore.verify(path)] == [("[500:1000]", "codec-failure")]


VALUES = {
    "nbit of no type": (5, (8, 0, 10, 9, 2, 0, 12, 2), "kind 9 do not exist"),
    "nbit of too many bits": (5, (8, 0, 10, 1, 2, 0, 12, 6), "12 bits from bit 6"),
    "nbit of a short list": (5, (5, 0, 10, 3, 8), "do not describe"),
    "nbit of members outside": (5, (13, 0, 10, 3, 2, 1, 1, 1, 2, 0, 16, 0, 0), "ends at byte 3"),
    "nbit of more items": (5, (8, 0, 11, 1, 2, 0, 12, 2), "promise 22 bytes, 20"),
    "nbit that packs nothing": (5, (8, 1, 10, 1, 2, 0, 16, 0), "100 bytes, 20 expected"),
    "nbit of nested arrays": (5, (9003, 0, 10, *[2, 2] * 4500), "do not describe"),
    "szip of odd blocks": (4, (169, 0, 16, 20), "impossible"),
    "szip of no line": (4, (169, 8, 16, 0), "impossible"),
    "szip of few parameters": (4, (169, 8), "2 parameters"),
    "scaleoffset of more items": (6, (2, 0, 11, 0, 2, *[0] * 15), "promise 22 bytes, 20"),
    "scaleoffset of odd items": (6, (2, 0, 10, 0, 3, *[0] * 15), "items of 3 bytes"),
    "scaleoffset of few parameters": (6, (2, 0, 10), "3 parameters"),
}


@pytest.mark.parametrize("name", VALUES)
def test_parameters_that_lead_the_library_astray_are_refused(name):
    number, values, words = VALUES[name]
    options = {"filter": number, "name": "x", "values": " ".join(map(str, values))}
    with pytest.raises(ValueError, match=words):
        hdf5_filters.decode(options, bytes(100), 20)


@pytest.mark.parametrize("name", ["scaleoffset", "szip", "blosc2", "bitshuffle zstd", "bzip2"])
def test_the_budget_is_kept(tmp_path, name):
    path = tmp_path / "a.h5"
    data = np.cumsum(np.random.default_rng(1).integers(-2, 3, (512, 512)), axis=1).astype("i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(128, 128), **BY_NAME[name](data.dtype))
    with outcore.open(path) as array:
        array.explain(...)
        least = 1024
        with pytest.raises(errors.BudgetError) as raised, outcore.memory(least):
            array[...]
        least = raised.value.needed
        for limit in (least, 3 * least):
            with outcore.memory(limit):
                _core.reset_memory_peak()
                np.testing.assert_array_equal(data, array[...])
                assert _core.memory_state()[2] <= limit


def test_many_threads_read_at_once(tmp_path):
    path = tmp_path / "a.h5"
    data = np.arange(40_000, dtype="i4").reshape(200, 200) % 777
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(32, 64), scaleoffset=0)
    wrong = []
    with outcore.open(path) as array:

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(10):
                key = random_key(rng, data.shape)
                if not np.array_equal(data[key], array[key]):
                    wrong.append(key)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        request = array.iread(np.s_[5:190, ::3])
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(data[5:190, ::3], request.wait())
        lists = np.array([3, 199, 40]), np.array([7, 0, 150])
        np.testing.assert_array_equal(data[lists], array[lists])
    assert not wrong


def test_netcdf4_variables_with_filters_are_read(tmp_path):
    netcdf = pytest.importorskip("netCDF4")
    path = tmp_path / "a.nc"
    data = np.arange(600, dtype="i4").reshape(20, 30)
    with netcdf.Dataset(path, "w") as file:
        file.createDimension("y", 20)
        file.createDimension("x", 30)
    with h5py.File(path, "r+") as file:
        for name in ("scaleoffset", "szip"):
            options = BY_NAME[name](data.dtype)
            dset = file.create_dataset(name, data=data, chunks=(7, 30), **options)
            for axis, dim in enumerate("yx"):
                dset.dims[axis].attach_scale(file[dim])
    for name in ("scaleoffset", "szip"):
        with outcore.open(f"{path}::{name}") as array:
            assert array.format == "netcdf4" and array.dims == ("y", "x")
            np.testing.assert_array_equal(data, array[...])


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"shuffle": True}, {}])
def test_edges_that_are_not_filtered_are_refused(tmp_path, filters):
    """With shuffle alone nothing but the flag tells: elements would be wrong without a word."""
    path = tmp_path / "a.h5"
    data = np.arange(35.0).reshape(5, 7)
    folder = Path(h5py.__file__).parent.with_name("h5py.libs")
    library = next(iter(folder.glob("libhdf5-*")), None)
    if library is None:
        pytest.skip("h5py's own HDF5 library is elsewhere: the option was NOT set")
    with h5py.File(path, "w", libver="latest") as file:
        plain = file.create_dataset("usual", data=data, chunks=(2, 3), **filters)
        plist = plain.id.get_create_plist()
        set_options = ctypes.CDLL(str(library)).H5Pset_chunk_opts
        set_options.argtypes = [ctypes.c_int64, ctypes.c_uint]
        assert set_options(plist.id, 2) >= 0  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS
        words = (h5py.h5t.NATIVE_DOUBLE, plain.id.get_space(), plist)
        h5py.Dataset(h5py.h5d.create(file.id, b"x", *words))[...] = data
    with outcore.open(f"{path}::/usual") as usual:
        np.testing.assert_array_equal(data, usual[...])
    if not filters:
        with outcore.open(f"{path}::/x") as array:
            np.testing.assert_array_equal(data, array[...])
        return
    for mode in ("r", "r+"):
        with pytest.raises(outcore.errors.UnsupportedError, match="edges") as caught:
            outcore.open(f"{path}::/x", mode)
        assert caught.value.code == "hdf5-filter"
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(path, engine="outcore") as ds:  # read by the library
        np.testing.assert_array_equal(data, ds.x.values)
