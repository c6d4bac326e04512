"""Chunks that share bytes: `verify` lists them wherever reading all elements refuses them."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcore
from outcore import errors
from outcore.formats.zarr.shards import crc32c

DATA = np.arange(1 << 19, dtype="<i4")
TEXT = np.array([f"word {k}" for k in range(256)], object)


def overlapping(shard: Path, chunks: int = 8) -> None:
    """The index of a shard, so that its third chunk begins within its first one."""
    raw, size = bytearray(shard.read_bytes()), 16 * chunks
    index = list(struct.unpack(f"<{2 * chunks}Q", raw[-size - 4 : -4]))
    index[4] = index[0] + 4
    index[5] = min(index[5], index[1])
    raw[-size - 4 : -4] = struct.pack(f"<{2 * chunks}Q", *index)
    raw[-4:] = struct.pack("<I", crc32c(bytes(raw[-size - 4 : -4])))
    shard.write_bytes(raw)


def zipped(folder: Path) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as file:
        for one in folder.rglob("*"):
            if one.is_file():
                file.write(one, str(one.relative_to(folder)))
    return path


@pytest.mark.parametrize("kept", ["folder", "zip"])
@pytest.mark.parametrize("values", ["numbers", "text"])
def test_shards(tmp_path: Path, kept: str, values: str) -> None:
    zarr = pytest.importorskip("zarr")
    data: Any = DATA if values == "numbers" else TEXT
    folder, size = tmp_path / "a.zarr", len(data)
    options: dict[str, Any] = {
        "chunks": (size // 16,),
        "shards": (size // 2,),
        "compressors": None,
    }
    kind = "i4" if values == "numbers" else str
    zarr.create_array(folder, shape=data.shape, dtype=kind, **options)[...] = data
    path = folder if kept == "folder" else zipped(folder)
    assert outcore.verify(path) == []
    overlapping(folder / "c" / "1")
    path = folder if kept == "folder" else zipped(folder)
    with outcore.open(path) as array, pytest.raises(errors.FormatError, match="share bytes"):
        array[:]
    # In tiles of the whole array, and of one chunk.
    for budget in ("64 MiB", "4 MiB"):
        with outcore.memory(budget):
            damages = outcore.verify(path)
        assert damages and all("share bytes" in one.message for one in damages), budget
        if values == "numbers":  # text is read in larger pieces
            assert not any(one.section.startswith("[0:") for one in damages), budget


def test_members_of_a_zip_file(tmp_path: Path) -> None:
    """As in a zip bomb: the directory leads two names to the same bytes."""
    folder = tmp_path / "a.zarr"
    outcore.create(folder, data=DATA, chunks=(1 << 17,), compression=None).close()
    path = zipped(folder)
    assert outcore.verify(path) == []
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        one, other = file.getinfo("c/1"), file.getinfo("c/2")
    at = raw.index(b"c/2", raw.index(b"PK\x01\x02")) - 46
    raw[at + 42 : at + 46] = struct.pack("<I", one.header_offset)
    raw[at + 16 : at + 20] = struct.pack("<I", one.CRC)
    assert other.file_size == one.file_size
    path.write_bytes(raw)
    damages = outcore.verify(path)
    assert damages[0].code == "bad-zip" and all("share bytes" in one.message for one in damages)
