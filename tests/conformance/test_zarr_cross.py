"""Zarr elements through the core: sections of others' arrays, our arrays in others' hands."""

from __future__ import annotations

import multiprocessing
import random

import numpy as np
import pytest
from test_zarr3 import same, values

import outcore
from outcore.formats.layout import Codec

zarr = pytest.importorskip("zarr")
ts = pytest.importorskip("tensorstore")
codecs = pytest.importorskip("zarr.codecs")
numcodecs3 = pytest.importorskip("zarr.codecs.numcodecs")

pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = (13, 11, 7)
CHUNKS = (4, 3, 5)
SHARDS = (8, 6, 5)
DTYPES = ["?", "i1", ">u2", "<i4", ">f4", "<f8", "<c16", "<M8[ns]", "<U3", "S5"]
PIPELINES = {
    "none": [],
    "gzip": [codecs.GzipCodec(level=1)],
    "zstd": [codecs.ZstdCodec(level=1, checksum=True)],
    "blosc-lz4-shuffle": [codecs.BloscCodec(cname="lz4", shuffle="shuffle")],
    "blosc-zstd-bits": [codecs.BloscCodec(cname="zstd", shuffle="bitshuffle", clevel=2)],
    "blosc-zlib": [codecs.BloscCodec(cname="zlib", shuffle="noshuffle")],
    "blosc-blosclz": [codecs.BloscCodec(cname="blosclz", shuffle="shuffle")],
    "crc32c": [codecs.Crc32cCodec()],
    "zstd-crc32c": [codecs.ZstdCodec(), codecs.Crc32cCodec()],
    "zlib": [numcodecs3.Zlib(level=1)],
    "shuffle-lz4": [numcodecs3.Shuffle(elementsize=4), numcodecs3.LZ4()],
    "fletcher32": [numcodecs3.Fletcher32()],
}
COMPRESSIONS = {
    "none": None,
    "gzip": "gzip:1",
    "zstd": Codec("zstd", {"level": 1, "checksum": 1}),
    "lz4": "lz4",
    "blosc-bits": Codec("blosc", {"cname": "zstd", "shuffle": "bitshuffle", "level": 2}),
    "blosc-zlib": Codec("blosc", {"cname": "zlib", "shuffle": 0}),
    "crc32c": "crc32c",
    "zstd-crc32c": ["zstd:1", "crc32c"],
    "shuffle-gzip": ["shuffle", "gzip:1"],
    "fletcher32": "fletcher32",
}


def sections(shape, count, seed):
    """Random keys: integers, slices with any step, ellipses."""
    chance = random.Random(seed)
    for _ in range(count):
        key = []
        for n in shape:
            a, b = sorted((chance.randint(0, n), chance.randint(0, n)))
            step = chance.choice([1, 1, 1, 2, 3, -1, -2])
            if step < 0:
                a, b = b - 1 if b else None, a - 1 if a else None
            key.append(chance.randrange(n) if chance.random() < 0.2 and n else slice(a, b, step))
        yield tuple(key[: chance.randint(0, len(key))]) if chance.random() < 0.2 else tuple(key)


def agree(array, expected, seed, count=12):
    """Sections of an open array equal NumPy's."""
    same(expected, array[...])
    for key in sections(expected.shape, count, seed):
        np.testing.assert_array_equal(expected[key], array[key], err_msg=str(key))


def written(array, expected, seed, count=6):
    """Write sections into an open array, and into `expected`."""
    for number, key in enumerate(sections(expected.shape, count, seed)):
        new = values(expected[key].shape, expected.dtype, seed=number)
        array[key] = new
        expected[key] = new


def by_zarr(path, data, pipeline, shards, order, fill=None):
    filters = [codecs.TransposeCodec(order=(2, 1, 0))] if order == "F" else []
    array = zarr.create_array(
        path,
        shape=data.shape,
        chunks=CHUNKS,
        shards=shards,
        dtype=data.dtype,
        filters=filters,
        compressors=pipeline or None,
        fill_value=fill,
    )
    array[...] = data
    return array


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shards", [None, SHARDS], ids=["chunks", "shards"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_arrays_of_zarr_python(tmp_path, pipeline, shards, order):
    data = values(SHAPE, "<i4")
    theirs = by_zarr(tmp_path / "a.zarr", data, PIPELINES[pipeline], shards, order)
    with outcore.open(tmp_path / "a.zarr", "r+") as array:
        agree(array, data, seed=1)
        data = data.copy()
        written(array, data, seed=2)
        agree(array, data, seed=3)
        array.flush()
        same(data, theirs[...])


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shards", [None, SHARDS], ids=["chunks", "shards"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_arrays_for_zarr_python(tmp_path, compression, shards, order):
    data = np.full(SHAPE, 5, "<i4")
    with outcore.create(
        tmp_path / "a.zarr",
        SHAPE,
        "<i4",
        chunks=CHUNKS,
        shards=shards,
        order=order,
        compression=COMPRESSIONS[compression],
        fill_value=5,
    ) as array:
        same(data, array[...])
        written(array, data, seed=4)
        agree(array, data, seed=5)
        array.flush()
        same(data, zarr.open_array(tmp_path / "a.zarr", mode="r")[...])
        data = values(SHAPE, "<i4")
        array[...] = data
    same(data, zarr.open_array(tmp_path / "a.zarr", mode="r")[...])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shards", "pipeline"), [(None, "none"), (SHARDS, "blosc-lz4-shuffle")])
def test_dtypes(tmp_path, dtype, shards, pipeline):
    data = values(SHAPE, dtype)
    theirs = by_zarr(tmp_path / "a.zarr", data, PIPELINES[pipeline], shards, "C")
    with outcore.open(tmp_path / "a.zarr", "r+") as array:
        agree(array, theirs[...], seed=6, count=4)
        array[3:9] = data[:6]
        data = np.concatenate([data[:3], data[:6], data[9:]])
        same(data, array[...])
    same(data, theirs[...])
    with outcore.create(
        tmp_path / "b.zarr", data=data, chunks=CHUNKS, shards=shards, compression="zstd"
    ) as array:
        agree(array, data, seed=7, count=4)
    same(data, zarr.open_array(tmp_path / "b.zarr", mode="r")[...])


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]], ids=str)
@pytest.mark.parametrize("place", [None, "start", "end"])
def test_arrays_of_tensorstore(tmp_path, endian, order, place):
    data = values(SHAPE, "<f8")
    pipeline = [
        {"name": "transpose", "configuration": {"order": order}},
        {"name": "bytes", "configuration": {"endian": endian}},
        {"name": "zstd", "configuration": {"level": 1}},
    ]
    if place:
        inner = {"chunk_shape": list(CHUNKS), "codecs": pipeline, "index_location": place}
        pipeline = [{"name": "sharding_indexed", "configuration": inner}]
    chunk = list(SHARDS if place else CHUNKS)
    theirs = ts.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / "a.zarr")},
            "metadata": {
                "codecs": pipeline,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            },
        },
        create=True,
        dtype=ts.float64,
        shape=SHAPE,
    ).result()
    theirs[...] = data
    with outcore.open(tmp_path / "a.zarr", "r+") as array:
        agree(array, data, seed=8)
        written(array, data := data.copy(), seed=9)
    same(data, theirs.read().result())


@pytest.mark.parametrize(("order", "separator"), ["C.", "F/"])
@pytest.mark.parametrize("compression", ["none", "zlib", "zstd", "lz4", "blosc"])
def test_version_2(tmp_path, order, separator, compression):
    numcodecs = pytest.importorskip("numcodecs")
    compressor = {
        "none": None,
        "zlib": numcodecs.Zlib(1),
        "zstd": numcodecs.Zstd(1),
        "lz4": numcodecs.LZ4(),
        "blosc": numcodecs.Blosc("zstd", 3, 2),
    }[compression]
    data = values(SHAPE, ">i4")
    theirs = zarr.create_array(
        tmp_path / "a",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=">i4",
        zarr_format=2,
        order=order,
        filters=[numcodecs.Shuffle(4)] if compression == "zlib" else None,
        compressors=compressor,
        chunk_key_encoding={"name": "v2", "separator": separator},
    )
    theirs[...] = data
    with outcore.open(tmp_path / "a", "r+") as array:
        agree(array, data, seed=10)
        written(array, data := data.copy(), seed=11)
    same(data, theirs[...])
    wanted = {"lz4": "lz4", "zlib": ["shuffle", "deflate:1"]}.get(compression, compression)
    with outcore.create(
        tmp_path / "b",
        data=data,
        chunks=CHUNKS,
        format="zarr2",
        order=order,
        separator=separator,
        compression=wanted,
    ):
        pass
    same(data, zarr.open_array(tmp_path / "b", mode="r")[...])


@pytest.mark.parametrize("shards", [None, (4, 6)], ids=["chunks", "shards"])
def test_missing_chunks_are_fill(tmp_path, shards):
    theirs = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(9, 9),
        chunks=(2, 3),
        shards=shards,
        dtype="f4",
        fill_value=np.nan,
    )
    theirs[3:5, 4:7] = 1
    with outcore.open(tmp_path / "a.zarr", "r+") as array:
        agree(array, theirs[...], seed=12)
        array[8, 8] = 3
        same(theirs[...], array[...])
    with (
        outcore.open(tmp_path / "a.zarr", hints={"missing": "error"}) as array,
        pytest.raises(outcore.OutcoreError),
    ):
        array[...]


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5,)], ids=str)
@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("version", ["zarr", "zarr2"])
def test_small_shapes(tmp_path, shape, separator, version):
    data = values(shape, "i4")
    with outcore.create(
        tmp_path / "a.zarr", data=data, separator=separator, format=version
    ) as array:
        same(data, np.asarray(array[...]))
    same(data, np.asarray(zarr.open_array(tmp_path / "a.zarr", mode="r")[...]))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("shards", [None, (4, 4)], ids=["chunks", "shards"])
def test_resize_and_append(tmp_path, compression, shards):
    path = tmp_path / "a.zarr"
    theirs = zarr.create_array(
        path,
        shape=(9, 9),
        chunks=(2, 2),
        shards=shards,
        dtype="i4",
        fill_value=7,
        compressors="auto" if compression else None,
    )
    theirs[...] = data = np.arange(81).reshape(9, 9)
    with outcore.open(path, "r+") as array:
        for shape in [(5, 9), (9, 11), (3, 3), (10, 10), (10, 5), (1, 12)]:
            array.resize(shape)
            larger = np.full(shape, 7)
            common = tuple(slice(0, min(a, b)) for a, b in zip(data.shape, shape, strict=True))
            larger[common] = data[common]
            data = larger
            same(data, array[...])
            same(data, zarr.open_array(path, mode="r")[...])
        for rows in (1, 2, 5):
            new = np.full((rows, 12), rows)
            array.append(new)
            data = np.concatenate([data, new])
        array.append(np.zeros(len(data)), axis=1)
        data = np.concatenate([data, np.zeros((len(data), 1))], axis=1)
        same(data, array[...])
    same(data, zarr.open_array(path, mode="r")[...])


def test_members_of_groups(tmp_path):
    root = tmp_path / "g.zarr"
    with outcore.create(f"{root}::/in/a", data=np.arange(6), chunks=2) as array:
        assert array.path.endswith("g.zarr::/in/a")
    group = zarr.open_group(root, mode="r+")
    group.create_array("b", shape=(3,), dtype="i2")[...] = 4
    zarr.consolidate_metadata(root)
    with outcore.open(f"{root}/in/a") as array, outcore.open(f"{root}::/b") as other:
        assert array[::2].tolist() == [0, 2, 4] and other[...].tolist() == [4, 4, 4]
    assert [e.path for e in outcore.ls(root)] == [f"{root}::/{n}" for n in ("b", "in", "in/a")]


DAMAGE = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
    "noise": lambda raw: random.Random(1).randbytes(len(raw)),
    "longer": lambda raw: raw + b"x",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "compression", [["zstd"], ["lz4"], ["gzip"], ["crc32c"], ["shuffle", "gzip"]]
)
@pytest.mark.parametrize("shards", [None, (4, 4)], ids=["chunks", "shards"])
def test_damaged_chunks_are_errors_or_right(tmp_path, damage, compression, shards):
    data = np.arange(64).reshape(8, 8)
    outcore.create(
        tmp_path / "a.zarr", data=data, chunks=(2, 2), shards=shards, compression=compression
    ).close()
    file = tmp_path / "a.zarr" / "c" / "1" / "1"
    raw = file.read_bytes()
    file.write_bytes(DAMAGE[damage](raw))
    with outcore.open(tmp_path / "a.zarr") as array:
        try:
            found = array[2:8, 2:8]
        except outcore.OutcoreError as error:
            found = None
            text = str(error)
        if found is None:
            assert "a.zarr" in text
        else:  # what follows a gzip or zstd stream may be overlooked, but no element may be wrong
            assert damage == "longer"
            same(data[2:8, 2:8], found)
        same(data[:2, :2], array[:2, :2])


def test_a_short_chunk_that_is_not_encoded(tmp_path):
    outcore.create(tmp_path / "a.zarr", data=np.arange(64).reshape(8, 8), chunks=(4, 4)).close()
    file = tmp_path / "a.zarr" / "c" / "1" / "1"
    file.write_bytes(file.read_bytes()[:-8])
    with outcore.open(tmp_path / "a.zarr") as array, pytest.raises(outcore.OutcoreError):
        array[...]


def test_random_arrays(tmp_path):
    """Shapes, chunks and pipelines at random: both ways, a few sections each."""
    chance = random.Random(20)
    for number in range(40):
        ndim = chance.randint(1, 4)
        shape = tuple(chance.randint(1, 12) for _ in range(ndim))
        chunks = tuple(chance.randint(1, n + 2) for n in shape)
        shards = tuple(c * chance.randint(1, 3) for c in chunks) if chance.random() < 0.5 else None
        dtype = chance.choice(["i1", "<i4", ">f8", "<c8"])
        path = tmp_path / f"{number}.zarr"
        name = chance.choice(list(COMPRESSIONS))
        data = np.zeros(shape, dtype)
        with outcore.create(
            path,
            shape,
            dtype,
            chunks=chunks,
            shards=shards,
            order=chance.choice("CF"),
            compression=COMPRESSIONS[name],
        ) as array:
            written(array, data, seed=number, count=4)
            agree(array, data, seed=number, count=4)
        same(data, zarr.open_array(path, mode="r")[...])


def fill_rows(path, first):
    with outcore.open(path, "r+") as array:
        for row in range(first, 32, 2):
            array[row] = row


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("shards", [None, (16, 16)], ids=["chunks", "shards"])
def test_processes_share_chunks(tmp_path, compression, shards):
    """Rows of one chunk, written by two processes: none is lost."""
    path = f"{tmp_path}/a.zarr"
    outcore.create(
        path, (32, 32), "i4", chunks=(8, 8), shards=shards, compression=compression
    ).close()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=fill_rows, args=(path, k)) for k in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    same(np.repeat(np.arange(32), 32).reshape(32, 32), zarr.open_array(path, mode="r")[...])
