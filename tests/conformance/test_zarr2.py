"""Zarr v2: arrays of zarr-python, tensorstore and xarray read by us, ours read by them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr_elements
from test_zarr3 import same, values

import outcore
from outcore import errors, formats
from outcore.formats.layout import Codec
from outcore.formats.zarr import version2 as zarr2

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = [
    "?", "i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[ns]", ">M8[D]",
    "<m8[10us]", "<U5", ">U3", "S7", "V5", [("a", "<i4"), ("b", ">f8")],
]  # fmt: skip
COMPRESSORS = [
    None, numcodecs.Zlib(3), numcodecs.GZip(2), numcodecs.Zstd(5), numcodecs.LZ4(), numcodecs.BZ2(2),
    numcodecs.Blosc("lz4", 5, 1), numcodecs.Blosc("zstd", 1, 2), numcodecs.Blosc("blosclz", 9, 0),
    numcodecs.Blosc("zlib", 1, -1),
]  # fmt: skip


def ours(path):
    return zarr_elements.read(formats.open_info(path))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", "CF")
def test_dtypes_of_zarr_python(tmp_path, dtype, order):
    data = values((7, 5), dtype)
    array = zarr.create_array(
        tmp_path / "a", shape=(7, 5), chunks=(3, 2), dtype=data.dtype, zarr_format=2, order=order
    )
    array[...] = data
    info = formats.open_info(tmp_path / "a")
    assert (info.format, info.order, info.dtype) == ("zarr2", order, data.dtype)
    same(data, zarr_elements.read(info))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", "CF")
def test_dtypes_for_zarr_python(tmp_path, dtype, order):
    data = values((7, 5), dtype)
    info = formats.create_info(
        tmp_path / "a",
        (7, 5),
        dtype,
        chunks=(3, 2),
        order=order,
        format="zarr2",
        compression="zstd",
    )
    assert repr(formats.open_info(tmp_path / "a")) == repr(info)
    zarr_elements.write(info, data)
    same(data, zarr.open_array(tmp_path / "a", mode="r")[...])


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@pytest.mark.parametrize("separator", ["/", "."])
def test_compressors_of_zarr_python(tmp_path, compressor, separator):
    data = values((9, 8), "<f8")
    array = zarr.create_array(
        tmp_path / "a",
        shape=(9, 8),
        chunks=(4, 3),
        dtype="<f8",
        zarr_format=2,
        compressors=compressor,
        filters=[numcodecs.Shuffle(8)],
        chunk_key_encoding={"name": "v2", "separator": separator},
    )
    array[...] = data
    same(data, ours(tmp_path / "a"))
    zarr_elements.write(formats.open_info(tmp_path / "a"), data[::-1])
    same(data[::-1], array[...])


@pytest.mark.parametrize(
    "compression",
    [None, "gzip", "deflate:1", "zstd", "lz4", "blosc", Codec("blosc", {"cname": "lz4hc"}),
     ["shuffle", "zstd"], ["zstd", "crc32c"]],
    ids=str,
)  # fmt: skip
def test_compressions_for_zarr_python(tmp_path, compression):
    data = values((9, 8), "<f8")
    info = formats.create_info(
        tmp_path / "a", (9, 8), "<f8", chunks=(4, 3), compression=compression, format="zarr2"
    )
    zarr_elements.write(info, data)
    same(data, zarr.open_array(tmp_path / "a", mode="r")[...])


def test_tensorstore_both_ways(tmp_path):
    ts = pytest.importorskip("tensorstore")
    data = values((6, 10), ">i4")
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(tmp_path / "a")},
        "metadata": {"dtype": ">i4", "chunks": [4, 3], "shape": [6, 10], "order": "F",
                     "compressor": {"id": "zlib", "level": 1}, "dimension_separator": "/"},
    }  # fmt: skip
    store = ts.open(spec, create=True).result()
    store[...] = data
    same(data, ours(tmp_path / "a"))
    info = formats.create_info(tmp_path / "b", (6, 10), ">i4", compression="blosc", format="zarr2")
    zarr_elements.write(info, data)
    del spec["metadata"]
    spec["kvstore"]["path"] = str(tmp_path / "b")
    same(data, ts.open(spec).result().read().result())


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
@pytest.mark.parametrize(
    "compression", ["default", None, "zstd", "zstd:5", "gzip", "blosc", "bzip2"]
)
def test_tensorstore_reads_each_codec_that_it_has(tmp_path, driver, compression):
    ts = pytest.importorskip("tensorstore")
    if driver == "zarr3" and compression == "bzip2":
        pytest.skip("tensorstore has no such codec")
    data, path = values((6, 10), "<f8"), tmp_path / "a"
    words = {} if compression == "default" else {"compression": compression}
    format = "zarr2" if driver == "zarr" else "zarr"
    outcore.create(path, data=data, chunks=(4, 3), format=format, **words).close()
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
    same(data, ts.open(spec).result().read().result())


def test_xarray_and_consolidated_groups(tmp_path):
    xarray = pytest.importorskip("xarray")
    data = values((4, 6), "<f8")
    made = xarray.DataArray(data, dims=("p", "q"), name="v", attrs={"a": 1}).to_dataset()
    made.to_zarr(tmp_path / "b.zarr", zarr_format=2, consolidated=True)
    info = formats.open_info(f"{tmp_path}/b.zarr::/v")
    assert (info.dims, dict(info.attrs)["a"]) == (("p", "q"), 1)
    assert "_ARRAY_DIMENSIONS" not in info.attrs
    same(data, zarr_elements.read(info))
    info = formats.create_info(
        f"{tmp_path}/b.zarr::/w", (4, 6), "<i4", dims=("p", "q"), attrs={"k": 2}, format="zarr2"
    )
    zarr_elements.write(info, data.astype("i4"))
    formats.set_attrs(info, {"k": 3})
    with xarray.open_zarr(tmp_path / "b.zarr", consolidated=True) as found:
        same(data.astype("i4"), found.w.values)
        assert (found.w.dims, found.w.attrs["k"]) == (("p", "q"), 3)
    (tmp_path / "b.zarr" / "v" / ".zarray").unlink()
    (tmp_path / "b.zarr" / "v" / ".zattrs").unlink()
    info = formats.open_info(f"{tmp_path}/b.zarr::/v")
    assert info.dims == ("p", "q")
    assert [(e.path, e.shape) for e in formats.ls(tmp_path / "b.zarr")] == [
        (f"{tmp_path}/b.zarr::/{name}", (4, 6)) for name in "vw"
    ]


def test_groups(tmp_path):
    formats.create_info(f"{tmp_path}/g::/in/a", (5,), "f4", format="zarr2")
    assert zarr.open_group(tmp_path / "g", mode="r")["in/a"].shape == (5,)
    listed = [(e.path, e.kind) for e in formats.ls(tmp_path / "g")]
    assert listed == [(f"{tmp_path}/g::/in", "group"), (f"{tmp_path}/g::/in/a", "array")]
    assert formats.open_info(f"{tmp_path}/g").path == f"{tmp_path}/g::/in/a"  # the only one
    for path in (f"{tmp_path}/g::/", f"{tmp_path}/g::/in", f"{tmp_path}/g::/x"):
        with pytest.raises(errors.FormatError, match=r"not a Zarr array; arrays here: '(in/)?a'"):
            formats.open_info(path)
    for bad in (f"{tmp_path}/g::/in/a/x", f"{tmp_path}/g::/in"):
        with pytest.raises(errors.UsageError):
            formats.create_info(bad, (5,), "f4", format="zarr2")
    with pytest.raises(errors.UsageError):
        formats.create_info(f"{tmp_path}/g::/in/b", (5,), "f4", format="zarr")


FILLS = [
    ("<i8", -5, -5), ("<f4", "NaN", np.nan), ("<f8", "-Infinity", -np.inf), ("<i4", 0.0, 0),
    ("?", 1, True), ("<c8", [1.0, "NaN"], complex(1, np.nan)), ("S3", "YWI=", b"ab"), ("S3", 0, b""),
    ("<U3", "ab", "ab"), ("<M8[s]", "NaT", np.datetime64("NaT")), ("<M8[s]", 60, 60), ("V2", "AQI=",
     np.void(b"\1\2")), ("<i4", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "spelt", "value"), FILLS, ids=str)
def test_fill_values(tmp_path, dtype, spelt, value):
    formats.create_info(tmp_path / "a", (3,), dtype, format="zarr2")
    file = tmp_path / "a" / ".zarray"
    file.write_text(json.dumps({**json.loads(file.read_text()), "fill_value": spelt}))
    fill = formats.open_info(tmp_path / "a").fill_value
    if value is None:
        assert fill is None
    else:
        assert np.array(value, dtype).tobytes() == np.array(fill, dtype).tobytes()


def test_structures_with_arrays_and_structures(tmp_path):
    dtype = np.dtype([("a", "<i4", (2, 3)), ("b", [("x", "S3"), ("y", "<M8[s]")]), ("c", ">f8")])
    formats.create_info(tmp_path / "a", (3,), dtype, format="zarr2")
    assert formats.open_info(tmp_path / "a").dtype == dtype


def test_chunks_of_length_zero(tmp_path):
    formats.create_info(tmp_path / "a", (0, 5), "f4", format="zarr2")
    file = tmp_path / "a" / ".zarray"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps({**fields, "chunks": [0, 5]}))
    assert formats.open_info(tmp_path / "a").layout.chunks == (1, 5)
    file.write_text(json.dumps({**fields, "chunks": [0, 5], "shape": [1, 5]}))
    with pytest.raises(errors.FormatError):
        formats.open_info(tmp_path / "a")


def test_resize(tmp_path):
    info = formats.create_info(tmp_path / "a", (7, 5), "i4", chunks=(2, 2), format="zarr2")
    zarr_elements.write(info, np.ones((7, 5)))
    info = formats.resize(info, (3, 5))
    assert len(list((tmp_path / "a").glob("[0-9]*"))) == 6
    room = formats.reserve(info, (6, 5))
    boxes = list(zarr2.Zarr2().find_stale_sections(info, (6, 5)))
    assert [(slice(3, 4), slice(2 * k, min(2 * k + 2, 5))) for k in range(3)] == boxes
    assert formats.resize(room, (6, 5)).shape == (6, 5)
    assert zarr.open_array(tmp_path / "a").shape == (6, 5)


@pytest.mark.parametrize(
    "fields",
    [{"dtype": "|O"}, {"dtype": "<f16"}, {"compressor": {"id": "lzma"}}, {"filters": [{"id": "delta"}]},
     {"compressor": {"id": "blosc", "cname": "snappy"}}],
    ids=str,
)  # fmt: skip
def test_unsupported(tmp_path, fields):
    formats.create_info(tmp_path / "a", (3,), "f8", format="zarr2")
    file = tmp_path / "a" / ".zarray"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    with pytest.raises(errors.UnsupportedError):
        formats.open_info(tmp_path / "a")
