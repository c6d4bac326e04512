"""Zarr in zip files, as zarr-python and zip write them, read in place."""

from __future__ import annotations

import itertools
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outcore
from outcore import cli, errors

zarr = pytest.importorskip("zarr")

DATA = np.arange(35 * 22, dtype="f4").reshape(35, 22)


def store(path: Path, version: int, **how: Any) -> Path:
    """A group with an array in it, written by zarr into a zip file."""
    with zarr.storage.ZipStore(path, mode="w") as kept:
        group = zarr.open_group(kept, mode="w", zarr_format=version)
        below = group.create_group("sub")
        array = below.create_array(
            "t", shape=DATA.shape, dtype="f4", chunks=(10, 8), fill_value=-1, **how
        )
        array[...] = DATA
        array.attrs["units"] = "K"
        below.create_array("empty", shape=(4, 4), dtype="i2", chunks=(2, 2), fill_value=9)
        one = below.create_array("one", shape=(), dtype="i8")
        one[...] = 42
    return path


WAYS: dict[str, Any] = {
    "v2": (2, {}),
    "v2, plain": (2, {"compressors": None}),
    "v2, F": (2, {"order": "F"}),
    "v3": (3, {}),
    "v3, plain": (3, {"compressors": None}),
    "v3, shards": (3, {"shards": (20, 16)}),
    "v3, shards, plain": (3, {"shards": (20, 16), "compressors": None}),
}


@pytest.mark.parametrize("way", WAYS)
def test_read_in_place(tmp_path: Path, way: str, capsys: Any) -> None:
    version, how = WAYS[way]
    path = store(tmp_path / "a.zarr.zip", version, **how)
    before = path.read_bytes()
    entries = {entry.path: entry for entry in outcore.ls(path)}
    assert set(entries) == {f"{path}::/sub{name}" for name in ("", "/t", "/empty", "/one")}
    assert entries[f"{path}::/sub/t"].shape == (35, 22)
    with outcore.open(path / "sub" / "t") as array:
        assert (array.format, array.shape, array.chunks) == ("zarrzip", (35, 22), (10, 8))
        assert array.attrs["units"] == "K" and array.fill_value == -1
        for key in (..., np.s_[3:20:4, ::-1], 34, np.s_[9, 21], [5, 30, 5]):
            assert np.array_equal(array[key], DATA[key])
        assert array.explain().decodes == (0 if "plain" in way else 12)
        assert array.stats()["mapped_bytes"] + array.stats()["read_bytes"] > 0
        assert np.array_equal(np.concatenate([d.copy() for _, d in array.blocks(0)]), DATA)
        with pytest.raises(errors.UsageError):
            array[0] = 1
    assert (outcore.open(f"{path}::/sub/empty")[...] == 9).all()
    assert outcore.open(f"{path}::/sub/one")[()] == 42
    assert float(outcore.sum(f"{path}::/sub/t")) == DATA.sum(dtype="f8")
    outcore.convert(f"{path}::/sub/t", tmp_path / "t.npy")
    assert np.array_equal(np.load(tmp_path / "t.npy"), DATA)
    assert outcore.verify(path) == []
    assert cli.main(["info", f"{path}/sub/t"]) == 0
    assert "units" in capsys.readouterr().out
    for mode, words in (("r+", {}), ("w", {"shape": 3, "dtype": "f4"})):
        with pytest.raises(errors.UnsupportedError, match="unzip"):
            outcore.open(f"{path}::/sub/t", mode, **words)
    assert path.read_bytes() == before
    many = outcore.open_many([f"{path}::/sub/t", f"{path}::/sub/one"])
    assert many[0][2, 3] == DATA[2, 3] and many[1][()] == 42


@pytest.mark.parametrize("version", [2, 3])
def test_only_one_array(tmp_path: Path, version: int) -> None:
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as kept:
        zarr.create_array(kept, shape=(5,), dtype="i4", chunks=(2,), zarr_format=version)[...] = (
            range(5)
        )
    assert outcore.open(tmp_path / "a.zip")[...].tolist() == [0, 1, 2, 3, 4]
    assert [entry.path for entry in outcore.ls(tmp_path / "a.zip")] == [str(tmp_path / "a.zip")]


def zipped(folder: Path, target: Path, method: int, *, top: str = "", comment: bytes = b"") -> Path:
    """What `zip -r` makes of a folder."""
    with zipfile.ZipFile(target, "w", method) as file:
        for above, _, names in os.walk(folder):
            for name in names:
                where = Path(above) / name
                file.write(where, top + str(where.relative_to(folder)))
        file.comment = comment
    return target


def test_a_folder_that_was_zipped(tmp_path: Path) -> None:
    """With the folder's name in front, folders as members, and a comment at the end."""
    array = outcore.create(f"{tmp_path}/s.zarr::/t", data=DATA, chunks=(10, 8), compression="zstd")
    array.close()
    path = zipped(
        tmp_path / "s.zarr", tmp_path / "s.zip", zipfile.ZIP_STORED, top="s.zarr/", comment=b"PK!"
    )
    with zipfile.ZipFile(path, "a") as file:
        file.mkdir("s.zarr/t/more")
    assert np.array_equal(outcore.open(f"{path}/t")[...], DATA)
    assert [entry.path for entry in outcore.ls(path)] == [f"{path}::/t"]


def test_zip64_and_members_that_were_written_twice(tmp_path: Path) -> None:
    folder = tmp_path / "s.zarr"
    outcore.create(folder, data=DATA, chunks=(10, 8), compression="zstd").close()
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as file:
        for above, _, names in os.walk(folder):
            for name in names:
                where = Path(above) / name
                with file.open(str(where.relative_to(folder)), "w", force_zip64=True) as member:
                    member.write(where.read_bytes())
        other = outcore.create(tmp_path / "o.zarr", data=-DATA, chunks=(10, 8), compression="zstd")
        other.close()
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("c/0/0", (tmp_path / "o.zarr/c/0/0").read_bytes())
    expected = DATA.copy()
    expected[:10, :8] *= -1
    assert np.array_equal(outcore.open(path)[...], expected)


@pytest.mark.parametrize("way", ["v2", "v2, plain", "v2, F", "v3", "v3, plain"])
def test_members_that_zip_has_deflated(tmp_path: Path, way: str) -> None:
    """As zarr's own store makes them when it is told to."""
    version, how = WAYS[way]
    path = tmp_path / "a.zip"
    with zarr.storage.ZipStore(path, mode="w", compression=zipfile.ZIP_DEFLATED) as kept:
        array = zarr.create_array(
            kept, shape=DATA.shape, dtype="f4", chunks=(10, 8), zarr_format=version, **how
        )
        array[...] = DATA
        array.attrs["units"] = "K"
    with outcore.open(path) as array:
        assert array.codecs[-1] == "zip" and array.attrs["units"] == "K"
        for key in (..., np.s_[3:20:4, ::-1], 34, np.s_[9, 21], [5, 30, 5]):
            assert np.array_equal(array[key], DATA[key])
        assert array.explain().decodes == 12
        assert np.array_equal(np.concatenate([d.copy() for _, d in array.blocks(0)]), DATA)
        outcore.create(tmp_path / "like.zarr", like=array, data=DATA).close()
    assert np.array_equal(outcore.open(tmp_path / "like.zarr")[...], DATA)
    assert float(outcore.sum(path)) == DATA.sum(dtype="f8")
    outcore.convert(path, tmp_path / "t.npy")
    assert np.array_equal(np.load(tmp_path / "t.npy"), DATA)
    assert outcore.verify(path) == []


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd", ("shuffle", "gzip")])
def test_some_members_are_deflated_and_others_stored(
    tmp_path: Path, compression: Any, streamed: bool
) -> None:
    """`zip -r` stores what would not get smaller, and where it cannot go back puts the CRC behind."""
    folder = tmp_path / "s.zarr"
    outcore.create(folder, data=DATA, chunks=(10, 8), compression=compression).close()
    path, number = tmp_path / "s.zip", 0
    with path.open("wb") as raw:
        target: Any = _OneWay(raw) if streamed else raw
        with zipfile.ZipFile(target, "w") as file:
            for above, _, names in os.walk(folder):
                for name in names:
                    where, number = Path(above) / name, number + 1
                    how = zipfile.ZIP_STORED if number % 3 == 0 else zipfile.ZIP_DEFLATED
                    file.write(where, str(where.relative_to(folder)), how)
    with outcore.open(path) as array:
        assert np.array_equal(array[...], DATA)
        assert np.array_equal(array[7:13, 5], DATA[7:13, 5])
    assert outcore.verify(path) == []


class _OneWay:
    """A file that cannot go back: a pipe."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: bytes) -> int:
        return int(self._raw.write(data))

    def flush(self) -> None:
        self._raw.flush()


def test_deflated_chunks_keep_to_the_budget(tmp_path: Path) -> None:
    data = np.arange(2 << 20, dtype="i4").reshape(1024, 2048)
    outcore.create(tmp_path / "s.zarr", data=data, chunks=(256, 256), compression=None).close()
    path = zipped(tmp_path / "s.zarr", tmp_path / "s.zip", zipfile.ZIP_DEFLATED)
    with outcore.memory("4 MiB"), outcore.open(path) as array:
        out = np.empty(data.shape, "i4")
        assert array.explain().peak_bytes <= 4 << 20
        array.read(..., out=out)
        assert np.array_equal(out, data)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_deflated_member_with_a_wrong_crc(tmp_path: Path, streamed: bool) -> None:
    """The core compares it whenever a chunk is decoded, the format with the directory's."""
    outcore.create(tmp_path / "s.zarr", data=DATA, chunks=(35, 22), compression=None).close()
    path = tmp_path / "s.zip"
    with path.open("wb") as raw:
        target: Any = _OneWay(raw) if streamed else raw
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
            for name in ("zarr.json", "c/0/0"):
                file.write(tmp_path / "s.zarr" / name, name)
    with zipfile.ZipFile(path) as file:
        crc = file.getinfo("c/0/0").CRC
    raw_bytes = path.read_bytes()
    old, new = crc.to_bytes(4, "little"), (crc ^ 1).to_bytes(4, "little")
    assert raw_bytes.count(old) == 2
    # In both places: only the elements tell.
    path.write_bytes(raw_bytes.replace(old, new))
    with outcore.open(path) as array, pytest.raises(errors.FormatError, match="CRC-32") as caught:
        array[0, 0]
    assert caught.value.code == "codec-failure"
    assert {damage.code for damage in outcore.verify(path)} >= {"bad-zip"}
    # In one of them: what is there is not what the directory has.
    path.write_bytes(raw_bytes.replace(old, new, 1))
    with (
        outcore.open(path) as array,
        pytest.raises(errors.FormatError, match="directory") as caught,
    ):
        array[0, 0]
    assert caught.value.code == "bad-zip"


def test_deflated_members_of_another_size(tmp_path: Path) -> None:
    outcore.create(tmp_path / "s.zarr", data=DATA, chunks=(35, 22), compression=None).close()
    path = tmp_path / "s.zip"
    for chunk in (DATA.tobytes()[:-4], DATA.tobytes() + b"1234"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(tmp_path / "s.zarr" / "zarr.json", "zarr.json")
            file.writestr("c/0/0", chunk)
        with outcore.open(path) as array, pytest.raises(errors.FormatError):
            array[...]


def test_members_that_stay_refused(tmp_path: Path) -> None:
    """Compressed by another method, encrypted, or shards that are deflated as a whole."""
    folder = tmp_path / "s.zarr"
    outcore.create(folder, data=DATA, chunks=(10, 8)).close()
    path = zipped(folder, tmp_path / "s.zip", zipfile.ZIP_BZIP2)

    def refused(where: Path, words: str) -> None:
        with pytest.raises(errors.UnsupportedError, match=words) as caught:
            outcore.open(where)
        assert caught.value.code == "zip-member" and "zip -0 -r" in str(caught.value)
        (entry,) = outcore.ls(where)
        assert "zip -0 -r" in entry.note

    refused(path, "another method")
    # Encrypted: a flag in the directory and in the header.
    path = zipped(folder, tmp_path / "e.zip", zipfile.ZIP_STORED)
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        raw[file.getinfo("c/0/0").header_offset + 6] |= 1
    entry = raw.index(b"c/0/0", raw.index(b"PK\x01\x02")) - 46
    raw[entry + 8] |= 1
    path.write_bytes(raw)
    refused(path, "encrypted")
    with zarr.storage.ZipStore(
        tmp_path / "d.zip", mode="w", compression=zipfile.ZIP_DEFLATED
    ) as kept:
        zarr.create_array(
            kept, shape=DATA.shape, dtype="f4", chunks=(10, 8), shards=(20, 16), compressors=None
        )[...] = DATA
    refused(tmp_path / "d.zip", "shard")
    # Documents may be compressed.
    with zipfile.ZipFile(tmp_path / "j.zip", "w") as file:
        for above, _, names in os.walk(folder):
            for name in names:
                where = Path(above) / name
                how = zipfile.ZIP_DEFLATED if name == "zarr.json" else zipfile.ZIP_STORED
                file.write(where, str(where.relative_to(folder)), how)
    assert np.array_equal(outcore.open(tmp_path / "j.zip")[...], DATA)


def test_text_in_deflated_members(tmp_path: Path) -> None:
    """How much text a chunk has is told inside of what zip has deflated."""
    words = np.array([f"{k}, " * (k % 70) for k in range(40)], object)
    codecs = zarr.codecs
    for number, compressors in enumerate(
        ("auto", None, codecs.GzipCodec(), codecs.BloscCodec(), codecs.Crc32cCodec())
    ):
        path = tmp_path / f"{number}.zip"
        with zarr.storage.ZipStore(path, mode="w", compression=zipfile.ZIP_DEFLATED) as kept:
            zarr.create_array(
                kept, shape=(40,), dtype=str, chunks=(7,), compressors=compressors, zarr_format=3
            )[...] = words
        with outcore.open(path) as array:
            assert array[...].tolist() == words.tolist()
    import numcodecs

    with zarr.storage.ZipStore(
        tmp_path / "z.zip", mode="w", compression=zipfile.ZIP_DEFLATED
    ) as kept:
        zarr.create_array(
            kept,
            shape=(40,),
            dtype=str,
            chunks=(7,),
            compressors=numcodecs.Zlib(level=1),
            zarr_format=2,
        )[...] = words
    assert outcore.open(tmp_path / "z.zip")[...].tolist() == words.tolist()


def test_damaged_files(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zip", 3, compressors=None)
    raw = path.read_bytes()
    where = tmp_path / "b.zip"

    def found(data: bytes) -> Any:
        where.write_bytes(data)
        with pytest.raises(errors.FormatError) as caught:
            outcore.open(f"{where}::/sub/t")[...]
        return caught.value.code

    assert found(raw[: len(raw) // 2]) in ("bad-zip", "unknown-format")
    assert found(raw[:-10]) in ("bad-zip", "unknown-format")
    with zipfile.ZipFile(path) as file:
        document = file.getinfo("sub/t/zarr.json").header_offset
        at = raw.index(b'"zarr_format": 3', document) + 15
        assert found(raw[:at] + b"9" + raw[at + 1 :]) == "bad-zip"  # its CRC
        one = file.getinfo("sub/t/c/1/1")
    header = raw[: one.header_offset] + b"XX" + raw[one.header_offset + 2 :]
    assert found(header) == "bad-zip"
    # Of a chunk that is stored as it is only the CRC tells, and `verify` looks.
    begin = one.header_offset + 30 + len(one.filename) + 8
    where.write_bytes(raw[:begin] + bytes([raw[begin] ^ 1]) + raw[begin + 1 :])
    assert [damage.code for damage in outcore.verify(where)] == ["bad-zip"]
    where.write_bytes(b"PK\x05\x06" + b"\0" * 18)
    with pytest.raises(errors.FormatError):
        outcore.open(where)
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as file:
        file.writestr("a.txt", "no array")
    with pytest.raises(errors.FormatError, match="Zarr"):
        outcore.open(tmp_path / "text.zip")
    with pytest.raises(errors.FormatError, match="'empty', 'one', 't'"):
        outcore.open(f"{path}/sub/no")


def test_damaged_shards(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zip", 3, shards=(20, 16))
    with zipfile.ZipFile(path) as file:
        one = file.getinfo("sub/t/c/0/0")
    raw = path.read_bytes()
    end = one.header_offset + 30 + len(one.filename) + one.compress_size
    end += raw[one.header_offset + 28]  # what is between name and bytes
    (tmp_path / "b.zip").write_bytes(raw[: end - 20] + b"\1" + raw[end - 19 :])
    with pytest.raises(errors.FormatError, match=r"index of shard .* wrong checksum"):
        outcore.open(f"{tmp_path}/b.zip::/sub/t")[...]


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zip", 3)
    with outcore.open(f"{path}::/sub/t") as array:
        array[:2]
        other = store(tmp_path / "b.zip", 3, compressors=None)
        os.replace(other, path)
        with pytest.raises(errors.StorageError) as caught:
            array[...]
        assert caught.value.code == "file-changed"


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_grid_reads_as_zarr_reads_it(tmp_path_factory: Any, data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), min_size=0, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    version = data.draw(st.sampled_from([2, 3]))
    how: dict[str, Any] = {}
    if version == 3 and shape and data.draw(st.booleans()):
        how["shards"] = tuple(c * data.draw(st.integers(1, 3)) for c in chunks)
    if data.draw(st.booleans()):
        how["compressors"] = None
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    values = np.arange(int(np.prod(shape)), dtype="i4").reshape(shape)
    some = [data.draw(st.booleans()) for _ in range(4)]
    methods = [zipfile.ZIP_STORED] + [zipfile.ZIP_DEFLATED] * ("shards" not in how)
    method = data.draw(st.sampled_from(methods))
    with zarr.storage.ZipStore(path, mode="w", compression=method) as kept:
        array = zarr.create_array(
            kept, shape=shape, dtype="i4", chunks=chunks, zarr_format=version, fill_value=-3, **how
        )
        units = how.get("shards", chunks)
        for at in itertools.product(*(range(0, n, u) for n, u in zip(shape, units, strict=True))):
            if some[sum(at) % 4]:
                key = tuple(slice(a, a + u) for a, u in zip(at, units, strict=True))
                array[key] = values[key]
    with zarr.storage.ZipStore(path, mode="r") as kept:
        expected = zarr.open_array(kept, mode="r")[...]
    with outcore.open(path) as array:
        assert np.array_equal(array[...], expected)
        steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape)
        assert np.array_equal(array[steps], np.asarray(expected)[steps])
    assert outcore.verify(path) == []
