"""Text and bytes of variable length: as h5py, netCDF4, zarr and xarray have written and read them."""

from __future__ import annotations

import gc
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import _core, cli, errors

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
zarr = pytest.importorskip("zarr")

WORDS = ["", "a", "Zürich", "naïve café", "日本語", "🦉" * 9, "x" * 5000, "tab\tand\nline"]
DATA = np.array([WORDS[k % 8] + str(k) * (k % 3) for k in range(60)], object).reshape(12, 5)


def in_hdf5(folder: Path, **storage: Any) -> str:
    with h5py.File(folder / "t.h5", "w") as file:
        dset = file.create_dataset("t", DATA.shape, h5py.string_dtype(), **storage)
        dset[...] = DATA
        dset.attrs["units"] = "1"
    return str(folder / "t.h5")


def in_netcdf(folder: Path) -> str:
    with netCDF4.Dataset(folder / "t.nc", "w") as file:
        file.createDimension("y", 12)
        file.createDimension("x", 5)
        file.createVariable("t", str, ("y", "x"))[...] = DATA
        file["t"].units = "1"
    return f"{folder}/t.nc::/t"


def in_zarr2(folder: Path, order: str = "C", **how: Any) -> str:
    group = zarr.open_group(folder / "t.zarr", mode="w", zarr_format=2)
    array = group.create_array("t", shape=DATA.shape, dtype=str, chunks=(5, 2), order=order, **how)
    array[...] = DATA
    array.attrs["units"] = "1"
    return f"{folder}/t.zarr::/t"


def in_zarr3(folder: Path, **how: Any) -> str:
    group = zarr.open_group(folder / "t.zarr", mode="w", zarr_format=3)
    array = group.create_array("t", shape=DATA.shape, dtype=str, chunks=(5, 2), **how)
    array[...] = DATA
    array.attrs["units"] = "1"
    return f"{folder}/t.zarr::/t"


def codec(module: str, name: str, **options: Any) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)(**options)


WRITERS = {
    "hdf5": in_hdf5,
    "hdf5 in chunks": lambda folder: in_hdf5(
        folder, chunks=(4, 3), compression="gzip", shuffle=True
    ),
    "netcdf4": in_netcdf,
    "zarr2": in_zarr2,
    "zarr2, F": lambda folder: in_zarr2(folder, order="F"),
    "zarr2, zlib": lambda folder: in_zarr2(folder, compressors=codec("numcodecs", "Zlib", level=3)),
    "zarr2, plain": lambda folder: in_zarr2(folder, compressors=None),
    "zarr3": in_zarr3,
    "zarr3, blosc": lambda folder: in_zarr3(folder, compressors=codec("zarr.codecs", "BloscCodec")),
    "zarr3, gzip": lambda folder: in_zarr3(folder, compressors=codec("zarr.codecs", "GzipCodec")),
    "zarr3, checksum": lambda folder: in_zarr3(
        folder, compressors=[codec("zarr.codecs", "ZstdCodec"), codec("zarr.codecs", "Crc32cCodec")]
    ),
    "zarr3, plain": lambda folder: in_zarr3(folder, compressors=None),
    "zarr3, shards": lambda folder: in_zarr3(folder, shards=(10, 4)),
    "zarr3, shards, gzip": lambda folder: in_zarr3(
        folder, shards=(15, 2), compressors=codec("zarr.codecs", "GzipCodec")
    ),
    "zarr3, shards, plain": lambda folder: in_zarr3(folder, shards=(5, 6), compressors=None),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_read_in_every_way(tmp_path: Path, writer: str, capsys: Any) -> None:
    where = WRITERS[writer](tmp_path)
    with outcore.open(where) as array:
        assert isinstance(array, outcore.StringArray)
        assert array.shape == DATA.shape and len(array) == 12 and array.ndim == 2
        assert array.dtype == np.dtypes.StringDType()
        assert array.attrs["units"] == "1" and not array.writable
        keys = (..., 3, np.s_[2:9:3, ::-1], np.s_[-1, 2:], np.s_[5:5], np.s_[:, None, 1])
        for key in (*keys, [3, 1, 1], np.arange(12) % 3 == 0, ([1, 5], [2, 0])):
            found = array[key]
            assert found.dtype == np.dtypes.StringDType()
            assert np.array_equal(np.asarray(found, object), DATA[key])
        assert array[2, 1] == DATA[2, 1] and isinstance(array[2, 1], str)
        objects = array.read(np.s_[1:4], dtype=object)
        assert objects.dtype == object and np.array_equal(objects, DATA[1:4])
        assert array.read_bytes((6, 1)) == DATA[6, 1].encode()
        assert np.array_equal(np.asarray(array).astype(object), DATA)
        assert np.array_equal(
            np.concatenate([d for _, d in array.blocks(rows=5)]).astype(object), DATA
        )
        assert [list(row) for row in array] == DATA.tolist()
        with pytest.raises(errors.SectionError):
            array[12]
        with pytest.raises(errors.SectionError):
            array[[0, 99]]
        with pytest.raises(errors.UsageError, match="object"):
            array.read(dtype="U8")
        with pytest.raises(errors.UsageError, match="cannot write"):
            array[0] = "no"
        with pytest.raises(AttributeError, match="use NumPy"):
            _ = array.append
        again = pickle.loads(pickle.dumps(array))
        assert again[0, 2] == DATA[0, 2]
        assert "StringArray" in repr(array)
        assert array.explain(0).direction == "read"
    with pytest.raises(errors.UsageError):
        array[0]
    with pytest.raises(errors.UnsupportedError, match="cannot write"):
        outcore.open(where, "r+")
    for call in (lambda: outcore.sum(where), lambda: outcore.convert(where, tmp_path / "n.npy")):
        with pytest.raises(errors.UnsupportedError, match=r"NumPy|fixed-size"):
            call()
    assert outcore.verify(where) == []
    (entry,) = [one for one in outcore.ls(where.partition("::")[0]) if one.path.endswith("/t")]
    assert entry.dtype == np.dtypes.StringDType() and entry.note == ""
    assert cli.main(["info", where]) == 0
    assert "StringDType" in capsys.readouterr().out


def test_ascii_bytes_and_what_was_never_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("ascii", data=[b"a", b"bc"], dtype=h5py.string_dtype("ascii"))
        file.create_dataset("none", (4,), h5py.string_dtype())
        chunked = file.create_dataset(
            "some", (9,), h5py.string_dtype(), chunks=(2,), fillvalue="gap"
        )
        chunked[3] = "there"
        file.create_dataset("one", data="alone", dtype=h5py.string_dtype())
        file.create_dataset("bad", data=[b"\xff\xfe", b"ok"], dtype=h5py.string_dtype())
        expected = [one.decode() for one in chunked[...]]
    with h5py.File(tmp_path / "u.h5", "w", userblock_size=512) as file:
        file["t"] = ["behind", "a user block"]
    where = f"{tmp_path}/t.h5::/"
    assert outcore.open(where + "ascii")[...].tolist() == ["a", "bc"]
    assert outcore.open(where + "none")[...].tolist() == [""] * 4
    assert outcore.open(where + "some")[...].tolist() == expected
    assert outcore.open(where + "some").fill_value == "gap"
    assert outcore.open(where + "one")[()] == "alone"
    assert outcore.open(where + "bad").read_bytes(0) == b"\xff\xfe"
    with pytest.raises(errors.FormatError, match="read_bytes") as caught:
        outcore.open(where + "bad")[0]
    assert caught.value.code == "bad-text"
    assert outcore.open(tmp_path / "u.h5")[...].tolist() == ["behind", "a user block"]


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_zarr_that_were_never_written(tmp_path: Path, version: int) -> None:
    array = zarr.create_array(
        tmp_path / "t.zarr",
        shape=(7,),
        dtype=str,
        chunks=(3,),
        zarr_format=version,
        fill_value="gap",
    )
    array[4] = "there"
    with outcore.open(tmp_path / "t.zarr") as found:
        assert found[...].tolist() == array[...].tolist()
        assert found.fill_value == "gap"


def test_a_vlen_bytes_array(tmp_path: Path) -> None:
    import numcodecs

    group = zarr.open_group(tmp_path / "t.zarr", mode="w", zarr_format=2)
    group.create_array("x", shape=(2,), dtype="i4")  # makes the group
    folder = tmp_path / "t.zarr" / "b"
    folder.mkdir()
    (folder / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|O", "order": "C",'
        ' "fill_value": null, "filters": [{"id": "vlen-bytes"}],'
        ' "compressor": {"id": "zstd", "level": 1}}'
    )
    data = np.array([b"", b"\x00\xff", b"abc"], object)
    encoded = numcodecs.Zstd(level=1).encode(numcodecs.VLenBytes().encode(data))
    (folder / "0").write_bytes(encoded)
    with outcore.open(f"{tmp_path}/t.zarr::/b") as array:
        assert array.dtype == object
        assert array[...].tolist() == data.tolist()
        assert array[1] == b"\x00\xff"


def test_strings_written_by_xarray_are_read(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    names = np.array(["Bern", "Zürich", "Genève"], object)
    data = xarray.Dataset({"t": ("station", [1.0, 2.0, 3.0])}, {"station": names})
    data.to_netcdf(tmp_path / "n.nc", engine="netcdf4")
    data.to_netcdf(tmp_path / "h.nc", engine="h5netcdf")
    data.to_zarr(tmp_path / "z2.zarr", zarr_format=2)
    data.to_zarr(tmp_path / "z3.zarr", zarr_format=3)
    for name in ("n.nc", "h.nc", "z2.zarr", "z3.zarr"):
        with outcore.open(f"{tmp_path}/{name}::/station") as array:
            assert array[...].tolist() == names.tolist()
            assert array.dims == ("station",)


def test_the_memory_budget(tmp_path: Path) -> None:
    """What does not fit is refused before it is made, with what would do; blocks do fit."""
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["t"] = ["x" * 100_000] * 300
    array = zarr.create_array(tmp_path / "t.zarr", shape=(300,), dtype=str, chunks=(10,))
    array[...] = ["x" * 100_000] * 300
    for where in (tmp_path / "t.h5", tmp_path / "t.zarr"):
        with outcore.open(where) as found:
            with outcore.memory("16 MiB"):
                with pytest.raises(errors.BudgetError, match=r"blocks\(\)") as caught:
                    found[...]
                assert caught.value.code == "array-too-large"
                rows = [len(data) for _, data in found.blocks(rows=10)]
                assert sum(rows) == 300
            with outcore.memory(2 * (caught.value.needed or 0)):
                assert len(found[...]) == 300


def test_damaged_text(tmp_path: Path) -> None:
    in_hdf5(tmp_path)
    raw = bytearray((tmp_path / "t.h5").read_bytes())
    at = raw.find(b"GCOL")
    (tmp_path / "mark.h5").write_bytes(raw.replace(b"GCOL", b"GCOX"))
    longer = raw[: at + 8] + (1 << 40).to_bytes(8, "little") + raw[at + 16 :]
    (tmp_path / "size.h5").write_bytes(longer)
    (tmp_path / "cut.h5").write_bytes(raw[: len(raw) - 4096])
    for name in ("mark.h5", "size.h5"):
        with outcore.open(tmp_path / name) as array, pytest.raises(errors.FormatError) as caught:
            array[...]
        assert caught.value.code == "hdf5-refused"
        assert [one.code for one in outcore.verify(tmp_path / name)] == ["hdf5-refused"]
    where = in_zarr3(tmp_path, compressors=None)
    (chunk,) = [
        Path(d) / n
        for d, _, names in os.walk(tmp_path / "t.zarr")
        for n in names
        if d.endswith("c/0") and n == "0"
    ]
    whole = chunk.read_bytes()
    for damaged in (
        whole[:50],
        b"\x01\0\0\0" + whole[4:],
        whole[:4] + b"\xff" * 4 + whole[8:],
        b"",
    ):
        chunk.write_bytes(damaged)
        with outcore.open(where) as array, pytest.raises(errors.FormatError) as caught:
            array[...]
        assert caught.value.code == "bad-text"


def test_damaged_references(tmp_path: Path) -> None:
    """A reference that claims more than there is, and one to an object that is not there."""
    where = in_hdf5(tmp_path)
    with h5py.File(where) as file:
        at = file["t"].id.get_offset()
    raw = bytearray((tmp_path / "t.h5").read_bytes())
    for place, value in ((at + 16, 9000), (at + 16 + 12, 60_000)):
        damaged = raw[:place] + value.to_bytes(4, "little") + raw[place + 4 :]
        (tmp_path / "d.h5").write_bytes(damaged)
        with outcore.open(tmp_path / "d.h5") as array:
            assert array[0, 2:].tolist() == DATA[0, 2:].tolist()
            with pytest.raises(errors.FormatError) as caught:
                array[0]
            assert caught.value.code == "hdf5-refused"


def test_unsupported_types_of_text_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("vlen", (3,), h5py.vlen_dtype("i4"))
        file.create_dataset("compound", (3,), [("a", h5py.string_dtype()), ("b", "i4")])
        layout = h5py.VirtualLayout(shape=(2,), dtype=h5py.string_dtype())
        file.create_virtual_dataset("virtual", layout)
    for name in ("vlen", "compound", "virtual"):
        with pytest.raises(errors.UnsupportedError) as caught:
            outcore.open(f"{tmp_path}/t.h5::/{name}")
        assert caught.value.code == "hdf5-type"
    zarr.create_array(tmp_path / "t.zarr", shape=(8,), dtype=str, chunks=(2,), shards=(4,))
    document = json.loads((tmp_path / "t.zarr/zarr.json").read_text())
    document["codecs"].append({"name": "crc32c"})
    (tmp_path / "t.zarr/zarr.json").write_text(json.dumps(document))
    with pytest.raises(errors.UnsupportedError):
        outcore.open(tmp_path / "t.zarr")


def shards_of(folder: Path, **how: Any) -> Any:
    array = zarr.create_array(
        folder / "t.zarr", shape=(40,), dtype=str, chunks=(3,), shards=(12,), **how
    )
    array[10:20] = [f"word {k} " * k for k in range(10)]
    return array


def test_shards_of_text_as_they_change(tmp_path: Path) -> None:
    """Shards, and chunks in them, that were never written; one that is written while it is open."""
    array = shards_of(tmp_path, fill_value="gap")
    gc.collect()
    before = _core.memory_state()[0]
    with outcore.open(tmp_path / "t.zarr") as found:
        assert found.chunks == (3,) and found.fill_value == "gap"
        assert found[...].tolist() == array[...].tolist()
        array[11] = "another"
        array[39] = "the last"
        assert found[...].tolist() == array[...].tolist()
        assert found[39] == "the last"
    assert _core.memory_state()[0] > before
    # The indexes that were kept are counted, and given back.
    del found
    gc.collect()
    assert _core.memory_state()[0] == before


@pytest.mark.parametrize("place", ["start", "end"])
def test_damaged_shards_of_text(tmp_path: Path, place: str) -> None:
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(3,), codecs=[zarr.codecs.VLenUTF8Codec()], index_location=place
    )
    array = zarr.create_array(
        tmp_path / "t.zarr",
        shape=(12,),
        dtype=str,
        chunks=(12,),
        serializer=sharding,
        filters=None,
        compressors=None,
    )
    array[...] = [f"word {k}" for k in range(12)]
    assert outcore.open(tmp_path / "t.zarr")[...].tolist() == array[...].tolist()
    shard = tmp_path / "t.zarr/c/0"
    whole = shard.read_bytes()
    at = 8 if place == "start" else len(whole) - 4 - 64 + 8
    for damaged in (whole[:at] + b"\1" + whole[at + 1 :], whole[:20]):
        shard.write_bytes(damaged)
        with outcore.open(tmp_path / "t.zarr") as found:
            with pytest.raises(errors.FormatError) as caught:
                found[...]
            assert caught.value.code == "chunk-table-damaged"


def test_shards_of_text_in_a_zip_file(tmp_path: Path) -> None:
    with zarr.storage.ZipStore(tmp_path / "t.zip", mode="w") as kept:
        array = zarr.create_array(kept, shape=(40,), dtype=str, chunks=(3,), shards=(12,))
        array[...] = [f"word {k} " * k for k in range(40)]
        expected = array[...].tolist()
    assert outcore.open(tmp_path / "t.zip")[...].tolist() == expected
