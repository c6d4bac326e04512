"""HDF5: files of h5py read by us, ours read by h5py."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import outcore
from conformance import elements
from outcore import errors, formats
from outcore.formats.layout import Chunked, Codec, Strided
from outcore.formats.texts import Texts

h5py = pytest.importorskip("h5py")

DTYPES = [
    "?", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<f2", ">f4", "<f8", ">f8", "<g",
    "<c8", ">c16", "S7", "V9", "<M8[ns]", "<m8[s]",
    [("a", "<i4"), ("b", ">f8", (2, 3)), ("c", "S3"), ("d", "?")],
    np.dtype({"names": ["x", "y"], "formats": ["<f4", "<i8"], "offsets": [4, 16], "itemsize": 40}),
]  # fmt: skip
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 4), (4, 0)]


def values(shape, dtype, seed=0):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype("?")
    if dtype.names:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            sub = dtype[name]
            base, below = sub.subdtype or (sub, ())
            out[name] = values((*shape, *below), base, seed + 1)
        return out
    if dtype.kind in "fc":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind in "SV":
        return np.frombuffer(
            rng.integers(65, 90, n * dtype.itemsize, np.uint8).tobytes(), dtype
        ).reshape(shape)
    return rng.integers(0, 100, shape).astype("i8").astype(dtype)


def store(file, name, data, **options):
    """What a user of h5py does, datetime64 included."""
    if data.dtype.kind in "Mm":
        data = data.astype(h5py.opaque_dtype(data.dtype))
    return file.create_dataset(name, data=data, **options)


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype.newbyteorder("="), a.shape) == (b.dtype.newbyteorder("="), b.shape)
    if a.dtype.names:
        for name in a.dtype.names:
            same(a[name], b[name])
    elif a.dtype.kind == "V":
        assert a.tobytes() == b.tobytes()
    else:
        assert np.array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_both_ways(tmp_path, dtype):
    theirs, mine = tmp_path / "theirs.h5", tmp_path / "mine.h5"
    with h5py.File(theirs, "w", userblock_size=512) as file:
        for number, shape in enumerate(SHAPES):
            data = values(shape, dtype, number)
            store(file, f"c{number}", data)
            if data.size and shape:
                store(file, f"k{number}", data, chunks=tuple(-(-n // 2) for n in shape))
                store(
                    file,
                    f"z{number}",
                    data,
                    chunks=True,
                    compression=3,
                    shuffle=True,
                    fletcher32=True,
                )
    for number, shape in enumerate(SHAPES):
        data = values(shape, dtype, number)
        for kind in "ckz" if data.size and shape else "c":
            info = formats.open_info(f"{theirs}::{kind}{number}")
            assert info.dtype == np.dtype(dtype) and info.shape == shape
            same(data, elements.read(info))
        for kind, options in {
            "c": {}, "k": {"chunks": 2}, "z": {"chunks": 2, "compression": ["shuffle", "gzip:3"]},
        }.items():  # fmt: skip
            if kind != "c" and not (data.size and shape):
                continue
            info = formats.create_info(f"{mine}::/{kind}{number}", shape, dtype, **options)
            with h5py.File(mine) as file:
                same(np.zeros(shape, dtype), np.asarray(file[f"{kind}{number}"][()], dtype))
            elements.write(info, data)
            same(data, elements.read(info))
    with h5py.File(mine) as file:
        for number, shape in enumerate(SHAPES):
            data = values(shape, dtype, number)
            for kind in "ckz" if data.size and shape else "c":
                assert file[f"{kind}{number}"].dtype == np.dtype(dtype)
                same(data, np.asarray(file[f"{kind}{number}"][()], dtype))


FILTERS = [
    ({"compression": "gzip", "compression_opts": 6}, [Codec("deflate", {"level": 6})]),
    ({"compression": "lzf", "shuffle": True}, [Codec("shuffle", {"itemsize": 8}), Codec("lzf")]),
    ({"fletcher32": True}, [Codec("fletcher32")]),
]


@pytest.mark.parametrize(("options", "codecs"), FILTERS)
def test_filters(tmp_path, options, codecs):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(100.0), chunks=(30,), **options)
    layout = formats.open_info(tmp_path / "a.h5").layout
    assert isinstance(layout, Chunked)
    assert list(layout.codecs) == codecs


def test_plugin_filters(tmp_path):
    plugin = pytest.importorskip("hdf5plugin")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, options in {
            "blosc": plugin.Blosc(cname="zstd", clevel=3, shuffle=2),
            "lz4": plugin.LZ4(nbytes=1024),
            "zstd": plugin.Zstd(clevel=7),
            "bits": plugin.Bitshuffle(nelems=64, cname="zstd", clevel=2),
            "bits4": plugin.Bitshuffle(),
            "bzip2": plugin.BZip2(blocksize=4),
            "blosc2": plugin.Blosc2(),
        }.items():
            file.create_dataset(name, data=np.arange(100, dtype="f4"), chunks=(30,), **options)
    expected = {
        "blosc": Codec("blosc", {"cname": "zstd", "itemsize": 4, "level": 3, "shuffle": 2}),
        "lz4": Codec("lz4hdf5", {"blocksize": 1024}),
        "zstd": Codec("zstd", {"level": 7}),
        "bits": Codec("bitshuffle", {"cname": "zstd", "itemsize": 4, "blocksize": 64, "level": 2}),
        "bits4": Codec("bitshuffle", {"cname": "lz4", "itemsize": 4}),
        "bzip2": Codec("bzip2", {"level": 4}),
    }
    for name, codec in expected.items():
        assert formats.open_info(tmp_path / "a.h5::" / name).layout.codecs == (codec,)
    (codec,) = formats.open_info(tmp_path / "a.h5::blosc2").layout.codecs
    assert (codec.name, codec.options["filter"], codec.options["name"]) == ("hdf5", 32026, "blosc2")
    names = ["zstd:5", "lz4", "blosc", ["shuffle", "lzf"], ["gzip", "fletcher32"], "bzip2:2"]
    bits = Codec("bitshuffle", {"cname": "zstd", "level": 2, "blocksize": 16})
    for name in [*names, "bitshuffle", bits, Codec("bitshuffle", {"cname": "none"})]:
        info = formats.create_info(tmp_path / "b.h5::x", 100, "f8", compression=name, chunks=10)
        again = formats.open_info(tmp_path / "b.h5::x")
        assert info.layout.codecs == again.layout.codecs
        with h5py.File(tmp_path / "b.h5") as file:
            assert file["x"][...].tolist() == [0.0] * 100
    with pytest.raises(errors.UnsupportedError, match="no filter for codec 'crc32c'"):
        formats.create_info(tmp_path / "b.h5::y", 100, "f8", compression="crc32c")
    with pytest.raises(errors.UsageError, match="levels 0 to 9"):
        formats.create_info(tmp_path / "b.h5::y", 100, "f8", compression="gzip:11")
    for codec in [
        "bzip2:10",
        Codec("bitshuffle", {"blocksize": 12}),
        Codec("bitshuffle", {"a": 1}),
    ]:
        with pytest.raises(errors.UsageError, match=r"bzip2 1 to 9|multiple of 8"):
            formats.create_info(tmp_path / "b.h5::y", 100, "f8", compression=codec)
    assert [e.path for e in formats.ls(tmp_path / "b.h5")] == [f"{tmp_path}/b.h5::/x"]


def test_which_dataset(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["g/only"] = np.arange(3)
    assert formats.open_info(path).path == f"{path}::/g/only"
    with h5py.File(path, "r+") as file:
        file["g/second"] = np.arange(4)
        file["text"] = "a string"
        file["link"] = h5py.SoftLink("/g/second")
        file["dangling"] = h5py.SoftLink("/nowhere")
    assert formats.open_info(f"{path}::link").shape == (4,)
    with pytest.raises(
        errors.FormatError, match=r"contains 3 datasets; .*: /g/only, /g/second, /text"
    ):
        formats.open_info(path)
    with pytest.raises(errors.FormatError, match="has no dataset '/nope'"):
        formats.open_info(f"{path}::nope")
    with pytest.raises(errors.FormatError, match="has no dataset '/nope'; name one as"):
        formats.ls(f"{path}::nope")
    with pytest.raises(errors.FormatError, match="a group '/g', which is not an array"):
        formats.open_info(f"{path}::g")
    assert isinstance(formats.open_info(f"{path}::text"), Texts)
    listed = formats.ls(path)
    assert [(e.path.split("::")[1], e.kind, e.shape) for e in listed] == [
        ("/dangling", "link", None), ("/g", "group", None), ("/g/only", "array", (3,)),
        ("/g/second", "array", (4,)), ("/text", "array", ()),
    ]  # fmt: skip
    assert [bool(e.note) for e in listed] == [True, False, False, False, False]


def test_external_link_and_external_storage(tmp_path):
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.arange(5)
    raw = tmp_path / "raw.bin"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["l"] = h5py.ExternalLink("b.h5", "/x")
        data = np.arange(10.0)
        file.create_dataset("e", data=data, external=[(str(raw), 16, 32), (str(raw) + "2", 0, 48)])
        virtual = h5py.VirtualLayout((5,), "i8")
        virtual[:] = h5py.VirtualSource("b.h5", "x", (5,))
        file.create_virtual_dataset("v", virtual)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, plist)
        file.create_dataset("null", dtype="f4")
    assert elements.read(formats.open_info(tmp_path / "a.h5::l")).tolist() == [0, 1, 2, 3, 4]
    same(data, elements.read(formats.open_info(tmp_path / "a.h5::e")))
    with outcore.open(tmp_path / "a.h5::v") as virtual:
        assert virtual[...].tolist() == [0, 1, 2, 3, 4]
    assert elements.read(formats.open_info(tmp_path / "a.h5::compact")).tolist() == [0, 0, 0]
    with pytest.raises(errors.UnsupportedError, match="no elements"):
        formats.open_info(tmp_path / "a.h5::null")
    raw.write_bytes(bytes(40))
    with pytest.raises(errors.FormatError, match="should have 32 bytes from byte 16, but has 24"):
        formats.open_info(tmp_path / "a.h5::e")
    raw.unlink()  # one that is gone hides none of the others
    notes = {e.path.partition("::")[2]: e.note for e in formats.ls(tmp_path / "a.h5")}
    assert {"/e", "/v", "/compact", "/null"} == set(notes)
    assert "No such file" in notes["/e"]


def test_types_whose_bytes_differ(tmp_path):
    h5t = h5py.h5t
    space = h5py.h5s.create_simple((3,))
    padded = h5t.C_S1.copy()
    padded.set_size(6)
    padded.set_strpad(h5t.STR_SPACEPAD)
    narrow = h5t.STD_I32LE.copy()
    narrow.set_precision(24)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"spaces", padded, space)
        h5py.h5d.create(file.id, b"narrow", narrow, space)
        file.create_dataset("vlen", (3,), h5py.vlen_dtype("i4"))
        file.create_dataset("ref", (3,), h5py.ref_dtype)
        file.create_dataset("enum", data=[1, 0, 1], dtype=h5py.enum_dtype({"a": 0, "b": 1}, "i2"))
        file.create_dataset("array", (3,), np.dtype(("f4", (2,))))[...] = np.ones((3, 2))
        file.create_dataset("chunks", (3,), np.dtype(("f4", (2,))), chunks=(2,))[...] = np.ones(
            (3, 2)
        )
        file.create_dataset("unset", (3,), np.dtype(("f4", (2,))))
    for name in ["narrow", "vlen", "ref"]:
        with pytest.raises(errors.UnsupportedError, match="h5py"):
            formats.open_info(tmp_path / f"a.h5::{name}")
    enum = formats.open_info(tmp_path / "a.h5::enum")
    assert enum.dtype.str == "<i2" and elements.read(enum).tolist() == [1, 0, 1]
    for name, value in {"array": 1.0, "chunks": 1.0, "unset": 0.0}.items():
        for writable in (False, True):
            array = formats.open_info(tmp_path / f"a.h5::{name}", writable=writable)
            assert array.shape == (3, 2) and elements.read(array).tolist() == [[value, value]] * 3


@pytest.mark.parametrize("fill", [None, 0, 7.5])
@pytest.mark.parametrize(
    "options", [{}, {"chunks": 100}, {"chunks": 100, "compression": "gzip"}], ids=str
)
@pytest.mark.parametrize("rows", [13, 1300])
def test_elements_never_written_read_as_fill(tmp_path, fill, options, rows):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:  # leaves free space full of old bytes
        file["old"] = np.full((1600, 300), 3.25)
        file["keep"] = 1
    with h5py.File(path, "r+") as file:
        del file["old"]
    info = formats.create_info(f"{path}::/g/x", (rows, 250), "f8", fill_value=fill, **options)
    expected = np.full((rows, 250), 0.0 if fill is None else fill)
    assert np.array_equal(expected, elements.read(info))
    with h5py.File(path) as file:
        assert np.array_equal(expected, file["g/x"][...])
        assert file["keep"][()] == 1
    assert np.array_equal(expected, elements.read(formats.open_info(f"{path}::/g/x")))


def test_space_is_recycled_within_one_session_safely(tmp_path):
    """Replacing a dataset frees old bytes and must not show them."""
    path = tmp_path / "a.h5"
    for round_ in range(4):
        info = formats.create_info(f"{path}::x", (700, 250 + round_), "f8")
        assert not elements.read(info).any()
        elements.write(info, np.full(info.shape, 9.0))


@pytest.mark.parametrize("shape", [(), (5, 6)])
@pytest.mark.parametrize("fill", [None, 4])
def test_late_allocation(tmp_path, shape, fill):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["old"] = np.full(1000, 77)
        file["keep"] = 1
        del file["old"]
        file.create_dataset("x", shape, "i4", fillvalue=fill)
        file.create_dataset("k", (5, 6), "i4", fillvalue=fill, chunks=(2, 4))
    expected = np.full(shape, fill or 0, "i4")
    info = formats.open_info(f"{path}::x")
    assert isinstance(info.layout, Chunked) and np.array_equal(expected, elements.read(info))
    info = formats.open_info(f"{path}::x", writable=True)
    assert isinstance(info.layout, Strided) and np.array_equal(expected, elements.read(info))
    elements.write(info, data := np.arange(expected.size).reshape(shape))
    with h5py.File(path) as file:
        assert np.array_equal(data, file["x"][()])
    chunked = formats.open_info(f"{path}::k", writable=True)
    assert (chunked.layout.source.fetch((0, 0), (3, 2))[:, 0] == -1).all()
    chunked.layout.source.commit([((1, 1), 0, np.arange(8, dtype="i4").tobytes())])
    now = elements.read(chunked)
    assert now[2:4, 4:].tolist() == [[0, 1], [4, 5]] and (now[:2] == (fill or 0)).all()


def test_commit_and_table_follow_other_writers(tmp_path):
    path = tmp_path / "a.h5"
    info = formats.create_info(f"{path}::x", (40, 30), "i4", chunks=(8, 7), compression="gzip")
    other = formats.open_info(f"{path}::x")
    assert not elements.read(other).any()
    data = np.random.default_rng(1).integers(0, 5, (40, 30)).astype("i4")
    elements.write(info, data)
    assert np.array_equal(data, elements.read(info))
    assert np.array_equal(data, elements.read(other))  # its table was read before the write
    with h5py.File(path, "r+") as file:
        noise = np.random.default_rng(2).integers(0, 2**31, (40, 30))
        file["x"][...] = noise
    assert np.array_equal(noise, elements.read(other))
    # A mask says that a filter was skipped.
    info.layout.source.commit([((0, 0), 1, np.full(56, 5, "i4").tobytes())])
    with h5py.File(path) as file:
        assert (file["x"][:8, :7] == 5).all()
    assert (elements.read(other)[:8, :7] == 5).all()


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
def test_every_chunk_index(tmp_path, libver):
    """B-tree, fixed array, extensible array, implicit, single chunk: the table looks the same."""
    path = tmp_path / "a.h5"
    data = np.arange(60 * 50).reshape(60, 50)
    cases = {
        "fixed": {"chunks": (7, 9)}, "one": {"chunks": (60, 50)},
        "extensible": {"chunks": (7, 9), "maxshape": (None, 50)},
        "tree2": {"chunks": (7, 9), "maxshape": (None, None)},
        "filtered": {"chunks": (7, 9), "compression": 1},
        "onefiltered": {"chunks": (60, 50), "compression": 1},
    }  # fmt: skip
    with h5py.File(path, "w", libver=libver, userblock_size=2048) as file:
        for name, options in cases.items():
            file.create_dataset(name, data=data, **options)
        file["extensible"].resize((50, 50))
    for name in cases:
        expected = data[:50] if name == "extensible" else data
        info = formats.open_info(f"{path}::{name}")
        assert np.array_equal(expected, elements.read(info)), name
        # Single look-ups answer like the whole table.
        fresh = formats.open_info(f"{path}::{name}").layout.source
        assert np.array_equal(fresh.fetch((0, 0), (1, 1)), info.layout.source.fetch((0, 0), (1, 1)))


def test_resize(tmp_path):
    path = tmp_path / "a.h5"
    for name, options in {"k": {}, "z": {"compression": "gzip"}}.items():
        info = formats.create_info(
            f"{path}::{name}", (4, 6), "f8", chunks=(3, 4), resizable=True, fill_value=2, **options
        )
        data = np.arange(24.0).reshape(4, 6)
        elements.write(info, data)
        info = formats.resize(info, (9, 7))
        expected = np.full((9, 7), 2.0)
        expected[:4, :6] = data
        assert np.array_equal(expected, elements.read(info))
        with h5py.File(path) as file:
            assert np.array_equal(expected, file[name][...])
        info = formats.resize(info, (2, 2))
        assert np.array_equal(data[:2, :2], elements.read(info))
    info = formats.create_info(f"{path}::c", (4, 6), "f8")
    with pytest.raises(errors.UnsupportedError, match="it is contiguous"):
        formats.resize(info, (5, 6))
    info = formats.create_info(f"{path}::m", (4, 6), "f8", maxshape=(8, 6))
    assert formats.resize(info, (8, 6)).shape == (8, 6)
    with pytest.raises(errors.UnsupportedError, match="its maximal shape is"):
        formats.resize(info, (9, 6))


def test_replace_add_refuse(tmp_path):
    path = tmp_path / "a.h5"
    formats.create_info(path, 3, "i4", exclusive=True)
    with pytest.raises(errors.StorageError, match="exists"):
        formats.create_info(path, 3, "i4", exclusive=True)
    formats.create_info(f"{path}::/g/x", 3, "i4", exclusive=True)
    with pytest.raises(errors.StorageError, match="already contains '/g/x'"):
        formats.create_info(f"{path}::/g/x", 5, "i4", exclusive=True)
    formats.create_info(f"{path}::/g/x", 5, "f4")
    with h5py.File(path) as file:
        assert file["data"].shape == (3,) and file["g/x"].shape == (5,) and len(file["g"]) == 1
    with pytest.raises(errors.UsageError, match="is a group"):
        formats.create_info(f"{path}::/g", 5, "f4")
    with pytest.raises(errors.UsageError, match="'/g/x' is a dataset and cannot contain"):
        formats.create_info(f"{path}::/g/x/y", 5, "f4")
    formats.create_info(path, 7, "i8")  # without a name, the file is replaced
    assert [e.path for e in formats.ls(path)] == [f"{path}::/data"]
    for wrong in [{"order": "F"}, {"shards": 4}, {"dtype": "U5"}]:
        with pytest.raises(errors.UnsupportedError):
            formats.create_info(path, (2, 3), **{"dtype": "f8", **wrong})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def test_full_disk(tmp_path):
    path = tmp_path / "a.h5"
    formats.create_info(f"{path}::x", 3, "i4")
    with pytest.raises(errors.StorageError) as caught:
        formats.create_info(f"{path}::y", 2**50, "f8")
    assert caught.value.code == "disk-full"
    assert [e.path for e in formats.ls(path)] == [f"{path}::/x"]
    with pytest.raises(errors.StorageError):
        formats.create_info(tmp_path / "b.h5", 2**50, "f8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def test_attrs_and_dims(tmp_path):
    path = tmp_path / "a.h5"
    attrs = {
        "text": "Größe", "number": 3, "real": 1.5, "flag": True, "list": [1, 2, 3], "words": ["a", "b"],
        "array": np.arange(4.0).reshape(2, 2), "small": np.float32(2),
    }  # fmt: skip
    info = formats.create_info(path, (2, 3), "f8", attrs=attrs, dims=["y", None])
    assert info.dims == ("y", None)
    with h5py.File(path) as file:
        assert file["data"].attrs["text"] == "Größe" and file["data"].dims[0].label == "y"
    for got in [info.attrs, formats.open_info(path).attrs]:
        assert set(got) == set(attrs)
        assert got["words"] == ["a", "b"] and got["text"] == "Größe" and got["flag"] == True  # noqa: E712
        assert got["small"].dtype == "f4" and got["list"].tolist() == [1, 2, 3]
    info = formats.set_attrs(info, {"new": 1})
    assert dict(info.attrs) == {"new": 1} and info.dims == ("y", None)
    for wrong in [{"a": None}, {"a": {"b": 1}}, {"DIMENSION_LIST": 3}, {"a": object()}]:
        with pytest.raises(errors.UsageError):
            formats.set_attrs(info, wrong)
    with h5py.File(path, "r+") as file:
        file["data"].attrs["ref"] = file["data"].ref
        file["data"].attrs["none"] = h5py.Empty("f4")
        file["data"].attrs["bytes"] = np.bytes_(b"fixed")
    found = dict(formats.open_info(path).attrs)
    nothing = found.pop("none")
    assert (nothing.dtype, nothing.shape) == (np.dtype("f4"), (0,))
    assert found == {"new": 1, "bytes": "fixed"}


def test_locked_by_another_process(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    formats.create_info(path, 30, "i4", chunks=10, compression="gzip")
    info = formats.open_info(path, writable=True)
    monkeypatch.setattr("outcore.formats.hdf5.access.READ_TIMEOUT", 0.05)
    monkeypatch.setattr("outcore.formats.hdf5.access.WRITE_TIMEOUT", 0.05)
    script = (
        "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print(1, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"1\n"
        with pytest.raises(errors.StorageError, match="locked by another process"):
            formats.open_info(path)
        with pytest.raises(errors.StorageError, match="locked"):
            info.layout.source.commit([((0,), 0, b"x")])
        monkeypatch.undo()
        child.stdin.close()  # ends the child while we wait
        assert formats.open_info(path).shape == (30,)
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def test_open_in_this_process(tmp_path):
    path = tmp_path / "a.h5"
    formats.create_info(path, 30, "i4", chunks=10, compression="gzip")
    with h5py.File(path, "r"), pytest.raises(errors.UsageError, match="close that h5py"):
        formats.set_attrs(formats.open_info(path), {"a": 1})


def test_missing_h5py_is_explained(tmp_path):
    formats.create_info(tmp_path / "a.h5", 3, "i4")
    script = f"""
        import sys
        sys.modules["h5py"] = None
        from outcore import errors, formats
        try:
            formats.open_info({str(tmp_path / "a.h5")!r})
        except errors.UnsupportedError as error:
            assert "pip install h5py" in str(error), error
        else:
            raise SystemExit("no error")
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


NETCDF4_FIRST = """
import sys
import netCDF4
import h5py
import numpy as np
import outcore

data = np.arange(6000.0).reshape(200, 30)
for codec in ("blosc", "zstd", "lz4", "bzip2", "bitshuffle"):
    path = f"{sys.argv[1]}/{codec}.h5"
    outcore.create(path, data=data, chunks=(64, 30), compression=codec).close()
    with h5py.File(path) as file:
        assert (next(iter(file.values()))[...] == data).all()
"""


def test_filters_are_those_of_h5pys_library_also_where_netcdf4_was_imported_first(tmp_path):
    for name in ("netCDF4", "hdf5plugin"):
        pytest.importorskip(name)
    subprocess.run([sys.executable, "-c", NETCDF4_FIRST, str(tmp_path)], check=True)
