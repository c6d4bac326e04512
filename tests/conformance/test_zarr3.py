"""Zarr v3: arrays of zarr-python and tensorstore read by us, ours read by them."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr_elements

import killed
from outcore import errors, formats
from outcore.formats.layout import Codec, FileSource, ShardSource

zarr = pytest.importorskip("zarr")
ts = pytest.importorskip("tensorstore")
codecs = pytest.importorskip("zarr.codecs")

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = [
    "?", "i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[ns]", ">M8[D]",
    "<m8[10us]", "<M8", "<U5", ">U3", "S7", "V5",
    [("a", "<i4"), ("b", "<f8")], [("a", "<i2"), ("b", [("x", "S3"), ("y", "<M8[s]")])],
]  # fmt: skip
PLAIN = ["?", "i1", "<u2", "<i4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]


def values(shape, dtype, seed=0):
    dtype = np.dtype(dtype)
    if dtype.kind in "US":
        return np.array([f"{k % 97}" for k in range(int(np.prod(shape)))], dtype).reshape(shape)
    raw = np.random.default_rng(seed).integers(0, 60, (int(np.prod(shape)), dtype.itemsize), "u1")
    if dtype.kind == "b":
        raw %= 2
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def same(expected, actual):
    assert expected.shape == actual.shape
    if expected.dtype.names:
        assert expected.dtype.names == actual.dtype.names
        for name in expected.dtype.names:
            same(expected[name], actual[name])
    elif expected.dtype.kind == "V":
        assert expected.tobytes() == actual.tobytes()
    else:
        np.testing.assert_array_equal(expected, actual)


def ours(path, **options):
    return zarr_elements.read(formats.open_info(path, **options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_of_zarr_python(tmp_path, dtype):
    data = values((7, 5), dtype)
    array = zarr.create_array(tmp_path / "a.zarr", shape=(7, 5), chunks=(3, 2), dtype=data.dtype)
    array[...] = data
    info = formats.open_info(tmp_path / "a.zarr")
    assert (info.shape, info.format, info.layout.chunks) == ((7, 5), "zarr", (3, 2))
    assert info.dtype == array[...].dtype or info.dtype == array[...].dtype.newbyteorder("<")
    same(array[...], zarr_elements.read(info))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", "CF")
def test_dtypes_for_zarr_python(tmp_path, dtype, order):
    data = values((7, 5), dtype)
    info = formats.create_info(
        tmp_path / "a.zarr", (7, 5), dtype, chunks=(3, 2), compression="zstd", order=order
    )
    assert info.order == order
    assert repr(formats.open_info(tmp_path / "a.zarr")) == repr(info)
    zarr_elements.write(info, data)
    same(data, zarr_elements.read(info))
    if dtype == "<M8":
        return  # zarr-python cannot open times without a unit, not even its own
    if np.dtype(dtype).names is None or np.dtype(dtype) == np.dtype(dtype).newbyteorder("<"):
        same(data, zarr.open_array(tmp_path / "a.zarr", mode="r")[...])


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("sharded", [False, True])
def test_tensorstore_both_ways(tmp_path, dtype, endian, sharded):
    data = values((6, 10), dtype)
    pipeline = [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": endian}},
        {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 3, "shuffle": "bitshuffle",
         "typesize": data.itemsize, "blocksize": 0}},
        {"name": "crc32c"},
    ]  # fmt: skip
    if sharded:
        inner = {"chunk_shape": [2, 5], "codecs": pipeline, "index_location": "start"}
        pipeline = [{"name": "sharding_indexed", "configuration": inner}]
    store = ts.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / "a.zarr")},
            "metadata": {
                "codecs": pipeline,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5]}},
                "chunk_key_encoding": {"name": "v2"},
            },
        },
        create=True,
        dtype=ts.dtype(np.dtype(dtype).name),
        shape=[6, 10],
    ).result()
    store[...] = data
    info = formats.open_info(tmp_path / "a.zarr")
    assert type(info.layout.source) is (ShardSource if sharded else FileSource)
    assert ((2, 5) if sharded else (4, 5)) == info.layout.chunks
    same(data, zarr_elements.read(info))
    zarr_elements.write(info, data[::-1, ::-1])
    same(data[::-1, ::-1], store.read().result())
    options = {"chunks": (2, 5), "shards": (4, 5)} if sharded else {"chunks": (4, 5)}
    byte_order = {"little": "<", "big": ">"}[endian] if data.itemsize > 1 else "|"
    made = formats.create_info(
        tmp_path / "b.zarr",
        (6, 10),
        np.dtype(dtype).newbyteorder(byte_order),
        order="F",
        compression=["blosc", "crc32c"],
        **options,
    )
    zarr_elements.write(made, data)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "b.zarr")}}
    same(data, ts.open(spec).result().read().result())


COMPRESSIONS = [
    None, "none", "gzip", "gzip:9", "deflate", "zstd:7", Codec("zstd", {"level": 1, "checksum": 1}),
    "blosc", "lz4", "lz4:9", Codec("blosc", {"cname": "zlib", "shuffle": 0}),
    Codec("blosc", {"cname": "blosclz", "shuffle": "bitshuffle", "level": 2}), "crc32c",
    ["zstd", "crc32c"], ["shuffle", "gzip"], ["fletcher32"],
]  # fmt: skip


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_compressions_for_zarr_python(tmp_path, compression, shards):
    data = values((7, 9), "<i4")
    info = formats.create_info(
        tmp_path / "a.zarr", (7, 9), "<i4", chunks=(2, 3), shards=shards, compression=compression
    )
    zarr_elements.write(info, data)
    array = zarr.open_array(tmp_path / "a.zarr", mode="r+")
    same(data, array[...])
    array[...] = data[::-1]
    same(data[::-1], ours(tmp_path / "a.zarr"))


NUMCODECS = [
    ("Zlib", {"level": 3}), ("Zlib", {"level": -1}), ("GZip", {"level": 2}), ("LZ4", {}), ("Zstd", {}),
    ("Blosc", {"cname": "zstd", "shuffle": -1}), ("Blosc", {"cname": "lz4hc", "shuffle": 2}),
    ("Shuffle", {"elementsize": 8}), ("CRC32C", {}), ("Fletcher32", {}), ("BZ2", {"level": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), NUMCODECS, ids=str)
def test_numcodecs_of_zarr_python(tmp_path, name, options):
    numcodecs3 = pytest.importorskip("zarr.codecs.numcodecs")
    step = getattr(numcodecs3, name)(**options)
    data = values((8, 8), "<f8")
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(8, 8), chunks=(4, 8), dtype="<f8", compressors=[step]
    )
    array[...] = data
    same(data, ours(tmp_path / "a.zarr"))
    zarr_elements.write(formats.open_info(tmp_path / "a.zarr"), data.T)
    same(data.T, array[...])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_transposes(tmp_path, order):
    data = values((5, 6, 7), "<i2")
    steps = [codecs.TransposeCodec(order=order), codecs.TransposeCodec(order=(1, 0, 2))]
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=data.shape, chunks=(2, 3, 4), dtype="<i2", filters=steps
    )
    array[...] = data
    same(data, ours(tmp_path / "a.zarr"))


@pytest.mark.parametrize("encoding", [("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_chunk_keys(tmp_path, encoding, shape):
    name, separator = encoding
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=shape,
        chunks=(2,) * len(shape),
        dtype="<i4",
        chunk_key_encoding={"name": name, "separator": separator},
    )
    array[...] = 7
    same(np.full(shape, 7), ours(tmp_path / "a.zarr"))


FILLS = [
    ("?", True, True), ("<i8", -(2**63), -(2**63)), ("<u8", 2**64 - 1, 2**64 - 1), ("<i2", 5.0, 5),
    ("<f4", "NaN", np.nan), ("<f8", "-Infinity", -np.inf), ("<f4", 1.5, 1.5), ("<f8", 3, 3.0),
    ("<f2", "0x3c00", 1.0), ("<f4", "0x40490fdb", np.float32(np.pi)),
    ("<c8", [1.0, "NaN"], complex(1, np.nan)), ("<c16", ["Infinity", -1], complex(np.inf, -1)),
]  # fmt: skip


def document(path: Path) -> dict:
    return json.loads((path / "zarr.json").read_text())


def edit(path: Path, **fields) -> None:
    (path / "zarr.json").write_text(json.dumps({**document(path), **fields}))


@pytest.mark.parametrize(("dtype", "spelt", "value"), FILLS, ids=str)
def test_fill_values(tmp_path, dtype, spelt, value):
    formats.create_info(tmp_path / "a.zarr", (3,), dtype)
    edit(tmp_path / "a.zarr", fill_value=spelt)
    fill = formats.open_info(tmp_path / "a.zarr").fill_value
    np.testing.assert_array_equal(np.array(value, dtype), fill)
    if not isinstance(spelt, str) or not spelt.startswith("0x"):
        made = formats.create_info(tmp_path / "b.zarr", (3,), dtype, fill_value=value)
        np.testing.assert_array_equal(np.array(value, dtype), made.fill_value)
        np.testing.assert_array_equal(fill, zarr.open_array(tmp_path / "b.zarr").fill_value)


def test_the_bits_of_a_nan_survive(tmp_path):
    odd = np.frombuffer(bytes.fromhex("7fc00123"), ">f4")[0]
    info = formats.create_info(tmp_path / "a.zarr", (3,), ">f4", fill_value=odd)
    assert document(tmp_path / "a.zarr")["fill_value"] == "0x7fc00123"
    assert np.asarray(info.fill_value, ">f4").tobytes().hex() == "7fc00123"


def test_fill_values_of_bytes_and_structures(tmp_path):
    for number, (dtype, fill) in enumerate(
        [("S4", b"ab"), ("<U4", "aé"), ("V3", b"\1\2\3"), ([("a", "<i4"), ("b", "<f8")], (3, 1.5)),
         ("<M8[s]", np.datetime64("2001-02-03")), ("<m8[s]", np.timedelta64("NaT"))]
    ):  # fmt: skip
        path = tmp_path / f"{number}.zarr"
        fill = np.array(fill, dtype)[()]
        info = formats.create_info(path, (3,), dtype, fill_value=fill)
        assert (
            np.asarray(info.fill_value, info.dtype).tobytes() == np.asarray(fill, dtype).tobytes()
        )
        same(np.array([fill] * 3), zarr.open_array(path)[...])
    raw = tmp_path / "raw.zarr"
    formats.create_info(raw, (2,), "V3")
    edit(raw, data_type="r24", fill_value=[1, 2, 3])
    assert formats.open_info(raw).fill_value.tobytes() == b"\1\2\3"
    struct = {
        "fields": [{"name": "a", "data_type": "int16"}, {"name": "b", "data_type": "float32"}]
    }
    edit(
        raw, data_type={"name": "struct", "configuration": struct}, fill_value={"a": 3, "b": "NaN"}
    )
    assert formats.open_info(raw).fill_value["a"] == 3


def test_dims_and_attributes_for_xarray(tmp_path):
    xarray = pytest.importorskip("xarray")
    data = values((4, 6), "<f8")
    attrs = {"units": "K", "range": np.array([1, 2]), "gap": np.float32(2), "odd": float("nan")}
    info = formats.create_info(
        f"{tmp_path}/a.zarr::/field", (4, 6), "<f8", dims=("y", "x"), attrs=attrs, compression="lz4"
    )
    zarr_elements.write(info, data)
    assert info.dims == ("y", "x")
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as found:
        assert found.field.dims == ("y", "x")
        assert found.field.attrs["units"] == "K" and list(found.field.attrs["range"]) == [1, 2]
        same(data, found.field.values)
    other = xarray.DataArray(data, dims=("p", "q"), name="v", attrs={"a": 1}).to_dataset()
    other.to_zarr(tmp_path / "b.zarr", zarr_format=3)
    read = formats.open_info(f"{tmp_path}/b.zarr::/v")
    assert (read.dims, read.attrs["a"]) == (("p", "q"), 1)
    same(data, zarr_elements.read(read))


def test_missing_chunks_are_fill(tmp_path):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(6, 6), chunks=(2, 2), dtype="i4", fill_value=9
    )
    array[2:4, 2:4] = 1
    same(array[...], ours(tmp_path / "a.zarr"))


def test_shards_with_missing_chunks(tmp_path):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(9, 9), chunks=(2, 2), shards=(4, 6), dtype="i4", fill_value=9
    )
    array[2:4, 2:4] = 1
    array[8, 8] = 5
    same(array[...], ours(tmp_path / "a.zarr"))


def test_chunks_that_nobody_chose(tmp_path):
    for number, (shape, dtype) in enumerate(
        [
            ((), "f8"),
            ((0, 5), "f4"),
            ((10**6, 10**4), "f4"),
            ((3, 10**9), "i1"),
            ((10**5,), "V4096"),
        ]
    ):
        info = formats.create_info(tmp_path / f"{number}.zarr", shape, dtype)
        nbytes = int(np.prod(info.layout.chunks)) * info.dtype.itemsize
        whole = int(np.prod(shape)) * info.dtype.itemsize
        assert min(whole, 2**20) <= nbytes <= 4 * 2**20, (shape, info.layout.chunks)
    info = formats.create_info(tmp_path / "s.zarr", (4096, 4096), "f8", shards=(2048, 2048))
    assert info.layout.chunks == (512, 1024) or info.layout.chunks == (1024, 512)
    with pytest.raises(errors.UsageError, match="divide"):
        formats.create_info(tmp_path / "t.zarr", (9, 9), "f8", chunks=(4, 4), shards=(6, 6))


@pytest.fixture
def tree(tmp_path):
    root = zarr.open_group(tmp_path / "g.zarr", mode="w")
    inner = root.create_group("in")
    inner.create_array("a", shape=(4,), chunks=(2,), dtype="i4")[...] = 3
    root.create_array("b", shape=(), dtype="f4")[...] = 2
    zarr.consolidate_metadata(tmp_path / "g.zarr")
    return tmp_path / "g.zarr"


def test_paths_into_groups(tree):
    for path in (f"{tree}::/in/a", f"{tree}/in/a", f"{tree}::in/a", f"{tree}/in::/a"):
        same(np.full(4, 3), ours(path))
    assert f"{tree}::/in/a" == formats.open_info(f"{tree}::in/a").path
    # The only array of a group needs no name.
    same(np.full(4, 3), ours(f"{tree}/in"))
    assert f"{tree}/in::/a" == formats.open_info(f"{tree}/in").path
    for path in (tree, f"{tree}::/", f"{tree}::/in", f"{tree}::/no", f"{tree}::/b/x"):
        with pytest.raises(errors.FormatError, match="is not a Zarr array") as caught:
            formats.open_info(path)
        assert (
            "'b', 'in/a'" in str(caught.value) or "'a'" in str(caught.value) or "b/x" in str(path)
        )
    with pytest.raises(errors.UsageError):
        formats.open_info(f"{tree}::/../g.zarr/b")
    with pytest.raises(errors.StorageError):
        formats.open_info(f"{tree}x")


def test_ls(tree):
    listed = [(e.path, e.kind, e.shape) for e in formats.ls(tree)]
    expected = [
        (f"{tree}::/b", "array", ()),
        (f"{tree}::/in", "group", None),
        (f"{tree}::/in/a", "array", (4,)),
    ]
    assert expected == listed
    assert expected[2:] == [(e.path, e.kind, e.shape) for e in formats.ls(f"{tree}::/in")]
    edit(tree / "b", data_type="bfloat16")
    assert "bfloat16" in formats.ls(tree)[0].note
    (tree / "in" / "a" / "zarr.json").write_bytes(b"\xff")
    assert "JSON" in formats.ls(tree)[2].note


def test_members_known_only_to_consolidated_metadata(tree):
    (tree / "in" / "a" / "zarr.json").unlink()
    same(np.full(4, 3), ours(f"{tree}::/in/a"))
    assert [f"{tree}::/b", f"{tree}::/in", f"{tree}::/in/a"] == [e.path for e in formats.ls(tree)]


def test_consolidated_metadata_is_kept_up_to_date(tree):
    info = formats.create_info(f"{tree}::/in/new/c", (5,), "i2", chunks=2)
    zarr_elements.write(info, np.arange(5))
    group = zarr.open_group(tree, mode="r", use_consolidated=True)
    same(np.arange(5), group["in/new/c"][...])
    info = formats.set_attrs(info, {"k": 1})
    formats.resize(info, 3)
    group = zarr.open_group(tree, mode="r", use_consolidated=True)
    assert (group["in/new/c"].shape, group["in/new/c"].attrs["k"]) == ((3,), 1)


def test_create_refuses_and_replaces(tmp_path, tree):
    path = tmp_path / "a.zarr"
    info = formats.create_info(path, (4,), "i4", chunks=2)
    zarr_elements.write(info, np.arange(4))
    for target in (path, f"{tree}::/in/a", f"{tree}::/in", tree):
        with pytest.raises(errors.StorageError) as caught:
            formats.create_info(target, (4,), "i4", exclusive=True)
        assert caught.value.code == "already-exists"
    formats.create_info(path, (4,), "i4", chunks=2, fill_value=8)
    same(np.full(4, 8), ours(path))
    formats.create_info(f"{tree}::/in/a", (2,), "i4")
    same(np.zeros(2), ours(f"{tree}::/in/a"))
    (tmp_path / "folder.zarr").mkdir()
    (tmp_path / "folder.zarr" / "letter").write_text("dear")
    with pytest.raises(errors.UsageError):
        formats.create_info(f"{tmp_path}/folder.zarr::/x", (2,), "i4")
    with pytest.raises(errors.UsageError):
        formats.create_info(f"{tree}::/b/x", (2,), "i4")
    for target in (tree, f"{tree}::/in", tmp_path / "folder.zarr"):
        with pytest.raises(errors.UsageError):
            formats.create_info(target, (2,), "i4")
    assert (tmp_path / "folder.zarr" / "letter").exists()
    with pytest.raises(errors.UsageError, match="is a file"):
        formats.create_info(tmp_path / "folder.zarr" / "letter", (2,), "i4", format="zarr")
    assert not list(tmp_path.rglob(".outcore*")) and not list(tmp_path.rglob(".*-tmp"))


def test_create_through_a_symbolic_link(tmp_path):
    (tmp_path / "real.zarr").mkdir()
    (tmp_path / "link.zarr").symlink_to(tmp_path / "real.zarr")
    formats.create_info(tmp_path / "link.zarr", (2,), "i4")
    assert (tmp_path / "link.zarr").is_symlink()
    assert (tmp_path / "real.zarr" / "zarr.json").exists()


def test_replacing(tmp_path):
    path = tmp_path / "a.zarr"
    zarr_elements.write(formats.create_info(path, (4,), "i4", chunks=2), np.arange(4))
    formats.create_info(path, (4,), "f8", chunks=2, exclusive=False)
    assert [p.name for p in path.iterdir()] == ["zarr.json"]
    assert [path] == list(tmp_path.iterdir())
    with pytest.raises(errors.StorageError):
        formats.create_info(path, (4,), "f8", exclusive=True)


def fill_with_9(room, sections):
    before = ours(room.path)
    grown = zarr_elements.read(room)
    for section in sections:
        assert grown[section].size
        grown[section] = 9
    zarr_elements.write(room, grown, padding=55)
    same(before, ours(room.path))  # nothing visible has changed


SHAPES = [((7, 5), (4, 5)), ((7, 5), (9, 9)), ((7, 5), (3, 8)), ((7, 5), (0, 5)), ((6, 4), (7, 5))]


@pytest.mark.parametrize(("old", "new"), SHAPES, ids=str)
@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_resize(tmp_path, quick, old, new, separator, shards):
    path = tmp_path / "a.zarr"
    info = formats.create_info(
        path, old, "i4", chunks=(2, 2), shards=shards, fill_value=9, separator=separator
    )
    data = np.arange(np.prod(old)).reshape(old).astype("i4")
    zarr_elements.write(info, data, padding=77)
    for shape in (new, (13, 11)):
        expected = np.full(shape, 9, "i4")
        common = tuple(slice(0, min(a, b)) for a, b in zip(data.shape, shape, strict=True))
        expected[common] = data[common]

        info = formats.resize(info, shape, fill_with_9)
        data = expected
        same(expected, ours(path))
        same(expected, zarr.open_array(path)[...])
    stale = formats.resize(info, (1, 1))
    with pytest.raises(errors.FormatError, match="resized"):
        formats.resize(info, (20, 20))
    with pytest.raises(errors.UsageError):
        formats.resize(stale, (20,))


def test_shrinking_removes_chunks(tmp_path):
    info = formats.create_info(tmp_path / "a.zarr", (8, 8), "i4", chunks=(2, 2))
    zarr_elements.write(info, np.ones((8, 8)))
    (tmp_path / "a.zarr" / "c" / "note").write_text("mine")
    info = formats.resize(info, (3, 2))
    files = sorted(str(p.relative_to(tmp_path / "a.zarr")) for p in tmp_path.rglob("c/*/*"))
    assert files == ["c/0/0", "c/1/0"]
    assert (tmp_path / "a.zarr" / "c" / "note").exists()


def test_changing_metadata_waits_for_writers_of_chunks(tmp_path):
    info = formats.create_info(tmp_path / "a.zarr", (8,), "i4", chunks=2)
    with open(info.layout.source.lock, "r+b") as other:
        one_chunk = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 3, 1, 0)
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, one_chunk)
        change = threading.Thread(target=formats.set_attrs, args=(info, {"a": 1}))
        change.start()
        change.join(0.2)
        assert change.is_alive()
        assert formats.open_info(tmp_path / "a.zarr").attrs == {}
    change.join(10)
    assert formats.open_info(tmp_path / "a.zarr").attrs == {"a": 1}


UNSUPPORTED = [
    {"storage_transformers": [{"name": "x"}]},
    {"data_type": "string"},
    {"data_type": "bfloat16"},
    {"chunk_grid": {"name": "rectilinear", "configuration": {}}},
    {"chunk_key_encoding": {"name": "fancy"}},
    {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.lzma"}]},
    {"codecs": [{"name": "vlen-utf8"}]},
    {"extension": {"must_understand": True}},
    {"extension": 3},
    {"codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "codecs": [{"name": "sharding_indexed"}]}}]},
    {"codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                                             {"name": "gzip"}], "codecs": [{"name": "bytes"}]}}]},
]  # fmt: skip


@pytest.mark.parametrize("fields", UNSUPPORTED, ids=str)
def test_unsupported(tmp_path, fields):
    formats.create_info(tmp_path / "a.zarr", (4,), "<i4")
    edit(tmp_path / "a.zarr", **fields)
    with pytest.raises(errors.UnsupportedError):
        formats.open_info(tmp_path / "a.zarr")


def test_extensions_that_may_be_ignored(tmp_path):
    formats.create_info(tmp_path / "a.zarr", (4,), "<i4")
    edit(tmp_path / "a.zarr", extension={"must_understand": False, "x": 1})
    assert formats.open_info(tmp_path / "a.zarr").shape == (4,)


def test_bad_options(tmp_path):
    for options in (
        {"compression": "lzf"}, {"compression": "zstd:99"}, {"separator": "-"},
        {"attrs": {"a": object()}}, {"compression": Codec("blosc", {"cname": "no"})},
        {"compression": Codec("blosc", {"clevel": 1})},
        {"compression": Codec("lz4", {"acceleration": 1})},
    ):  # fmt: skip
        for name in ("a.zarr", "a.zarr2"):
            with pytest.raises(errors.UsageError):
                formats.create_info(tmp_path / name, (4,), "<i4", **options)
    with pytest.raises(errors.UnsupportedError):
        formats.create_info(tmp_path / "a.zarr", (4,), [("a", "f4", 3)])
    assert not list(tmp_path.iterdir())
    with pytest.raises(errors.StorageError):
        formats.create_info(tmp_path / "no" / "a.zarr", (4,), "<i4")


@pytest.fixture
def quick(monkeypatch):
    """A killed process loses nothing that the system has, synced or not."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


STEPS = ("mkdir", "makedirs", "open", "write", "fsync", "rename", "rmdir", "unlink")


def dies_at(step: int, action) -> bool:
    """Run `action` in a child process that is killed before its step number `step`; False if it ends."""
    return killed.dies_at(step, action, STEPS)


@pytest.mark.parametrize("inner", ["", "::/in/new/a"])
def test_killed_while_creating(tmp_path, quick, inner):
    step, done = 1, False
    while not done and step < 1000:
        root = tmp_path / f"{step}.zarr"
        done = not dies_at(
            step, lambda root=root: formats.create_info(f"{root}{inner}", (4,), "i4", chunks=2)
        )
        if root.exists():
            assert formats.open_info(f"{root}{inner}").shape == (4,)
            assert [e.kind for e in formats.ls(root)] == ["group"] * 2 * bool(inner) + ["array"]
        step += 1
    assert step > 10
    assert root.exists()


def test_killed_while_replacing(tmp_path, quick):
    step, done, seen = 1, False, set()
    while not done and step < 1000:
        path = f"{tmp_path}/{step}.zarr::/a"
        info = formats.create_info(path, (4,), "i4", chunks=2, fill_value=1)
        zarr_elements.write(info, np.arange(4))
        done = not dies_at(
            step, lambda path=path: formats.create_info(path, (5,), "f8", chunks=5, fill_value=2)
        )
        found = formats.open_info(path)
        seen.add(found.shape)
        same(np.arange(4) if found.shape == (4,) else np.full(5, 2.0), zarr_elements.read(found))
        assert list(zarr.open_group(f"{tmp_path}/{step}.zarr", mode="r").array_keys()) == ["a"]
        step += 1
    assert seen == {(4,), (5,)}


@pytest.mark.parametrize("shape", [(3, 3), (9, 7)], ids=str)
def test_killed_while_resizing(tmp_path, quick, shape):
    step, done, seen = 1, False, set()
    data = np.arange(35).reshape(5, 7).astype("i4")

    while not done and step < 1000:
        path = tmp_path / f"{step}.zarr"
        info = formats.create_info(path, (5, 7), "i4", chunks=(4, 4), fill_value=9)
        zarr_elements.write(info, data, padding=77)
        done = not dies_at(step, lambda info=info: formats.resize(info, shape, fill_with_9))
        found = formats.open_info(path)
        seen.add(found.shape)
        kept = tuple(slice(0, min(a, b)) for a, b in zip((5, 7), found.shape, strict=True))
        for larger in (found.shape, (20, 20)):  # nothing old must come to light
            found = formats.resize(found, larger, fill_with_9)
            expected = np.full(larger, 9, "i4")
            expected[kept] = data[kept]
            same(expected, zarr_elements.read(found))
        step += 1
    assert seen == {(5, 7), shape}
