"""Zip files that are built to mislead: names, directories, and members larger than they say."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

import outcore
from outcore import _core, errors
from outcore.formats.zarr.zip_archive import Archive

METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}
END = b"PK\x05\x06"


def zarr_members(folder: Path, version: int = 3, shape: Any = (4, 4)) -> dict[str, bytes]:
    """The files of a Zarr array of zeros whose chunks have no codecs, by name."""
    kind = "zarr" if version == 3 else "zarr2"
    outcore.create(
        folder, shape=shape, dtype="u1", chunks=(1,) * len(shape), compression=None, format=kind
    ).close()
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


@pytest.mark.parametrize("version", [2, 3])
def test_only_ascii_digits_name_a_chunk(tmp_path: Path, version: int) -> None:
    kept = zarr_members(tmp_path / "s.zarr", version)
    key = "c/{}/{}" if version == 3 else "{}.{}"
    digits = "\u0660", "\u06f0", "\uff10", "\xb2"  # zeros of other scripts; a superscript
    others = "+0", "-0", "0_0", "00", " 0", "0 ", "0\n", "", "4", "9" * 5000
    path = tmp_path / "a.zip"
    for word in (*digits, *others):
        named = {key.format(word, 3): b"\7", key.format(1, word): b"\7", key.format(1, 2): b"\5"}
        path.write_bytes(zip_of(kept | named))
        with outcore.open(path) as array:
            found = array[...]
        assert found[1, 2] == 5 and found.sum() == 5, word


def directory(path: Path) -> dict[str, tuple[int, ...]]:
    """What `zipfile` reads of the directory."""
    with zipfile.ZipFile(path) as file:
        return {
            one.filename: (
                one.header_offset,
                one.compress_size,
                one.file_size,
                one.CRC,
                0xFFFF if one.flag_bits & 1 else one.compress_type,
            )
            for one in file.infolist()
            if not one.is_dir()
        }


def test_the_directory_is_what_zipfile_reads(tmp_path: Path) -> None:
    """With comments, zip64, names of all kinds, twice the same, encrypted, behind other bytes."""
    path = tmp_path / "a.zip"
    comments = (b"", b"PK", b"a comment" * 7000)
    for comment, zip64, front, count in itertools.product(
        comments, (False, True), (b"", b"#!/bin/sh\n" * 9), (0, 1, 30)
    ):
        with warnings.catch_warnings(), path.open("wb") as raw:
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(raw, "w") as file:
                for number in range(count):
                    name = ("c/0/{}", "tmp/ü{}", "気{}", "🌊{}", "same", "folder{}/")[number % 6]
                    info = zipfile.ZipInfo(name.format(number))
                    info.compress_type = list(METHODS.values())[number % 4]
                    info.comment, info.extra = b"x" * number, struct.pack("<2Hi", 0x7777, 4, number)
                    with file.open(info, "w", force_zip64=zip64) as member:
                        member.write(b"element" * number)
                file.comment = comment
        if zip64:
            path.write_bytes(with_zip64_end(path.read_bytes(), len(comment)))
        data = bytearray(path.read_bytes())
        if count:
            data[data.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(front + data)
        case = comment[:9], zip64, front[:9], count
        assert {k: tuple(v) for k, v in Archive(str(path)).members.items()} == directory(path), case
    path.write_bytes(path.read_bytes() + b"more")
    assert {k: tuple(v) for k, v in Archive(str(path)).members.items()} == directory(path)


def with_zip64_end(raw: bytes, comment: int) -> bytes:
    """The same with an end record of zip64, to which the old one refers."""
    at = len(raw) - comment - 22
    entries, nbytes, begin = struct.unpack_from("<H2I", raw, at + 10)
    new = struct.pack(
        "<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, nbytes, begin
    )
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    old = bytearray(raw[at:])
    old[8:20] = b"\xff" * 12
    return raw[:at] + new + locator + bytes(old)


def test_an_end_record_that_contains_another(tmp_path: Path) -> None:
    """The reader took the inner one for the size of the directory, and 30 MiB beside the budget."""
    kept = zarr_members(tmp_path / "s.zarr")
    path = tmp_path / "a.zip"
    raw = zip_of(kept | {f"x/{number:0200}": b"" for number in range(9_000)})
    at = len(raw) - 22
    # In the numbers of the record, at each place; and in its comment, where nothing ends with the file.
    for place in (4, 6, 8):
        forged = bytearray(raw)
        forged[at + place : at + place + 4] = END
        path.write_bytes(forged)
        refused_under(path, 3 << 20)
    path.write_bytes(raw[:-2] + struct.pack("<H", 40) + END + b"\0" * 36)
    refused_under(path, 4 << 20)
    with outcore.memory("16 MiB"), outcore.open(path) as array:
        assert not array[...].any()


def zip_of(members: dict[str, bytes]) -> bytes:
    """A zip file with stored members; `zipfile` takes longer for many."""
    bodies, entries, at = [], [], 0
    for name, data in members.items():
        text = name.encode()
        crc, size, length = zlib.crc32(data), len(data), len(text)
        bodies += [
            struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0x800, 0, 0, 0, crc, size, size, length, 0),
            text,
            data,
        ]
        numbers = 20, 20, 0x800, 0, 0, 0, crc, size, size, length, 0, 0, 0, 0, 0, at
        entries += [struct.pack("<4s6H3I5H2I", b"PK\1\2", *numbers), text]
        at += 30 + length + size
    raw, directory = b"".join(bodies), b"".join(entries)
    count = len(members)
    return raw + directory + struct.pack("<4s4H2IH", END, 0, 0, count, count, len(directory), at, 0)


def refused_under(path: Path, budget: int) -> None:
    tracemalloc.start()
    try:
        with outcore.memory(budget), pytest.raises(errors.BudgetError) as caught:
            outcore.open(path)
        assert tracemalloc.get_traced_memory()[1] < budget
    finally:
        tracemalloc.stop()
    assert caught.value.needed


def test_memory_for_a_directory(tmp_path: Path) -> None:
    """At most 300 bytes a member with a short name, and never more than was counted."""
    # A dict that has just grown, and has most empty places.
    path, count = tmp_path / "a.zip", 2 * (1 << 14) // 3 + 1
    for name in ("t/c/{}", "\u6c17\u6e29/{}", "\U0001f30a{}", "d" * 300 + "{}"):
        raw = zip_of({name.format(number): b"" for number in range(count)})
        path.write_bytes(raw)
        Archive(str(path))  # what is imported meanwhile
        tracemalloc.start()
        try:
            before = _core.memory_state()[1]
            archive = Archive(str(path))
            used, counted = tracemalloc.get_traced_memory()[1], before - _core.memory_state()[1]
        finally:
            tracemalloc.stop()
        assert len(archive.members) == count
        piece = min(len(raw), 3 << 20)  # counted while the directory is read
        assert used < counted + piece, (name, used, counted)
        assert counted < count * (300 + 4 * len(name.encode())), (name, counted)
        del archive


@pytest.mark.parametrize("method", METHODS)
def test_members_inflate_to_what_they_claim(tmp_path: Path, method: str) -> None:
    """A member may claim 1,000 bytes and have 24 MiB: it is read that far, and refused."""
    kept = zarr_members(tmp_path / "s.zarr")
    path = tmp_path / "a.zip"
    document = kept["zarr.json"]
    with zipfile.ZipFile(path, "w", METHODS[method]) as file:
        file.writestr("zarr.json", document)
    assert outcore.open(path).shape == (4, 4)
    with zipfile.ZipFile(path, "w", METHODS[method]) as file:
        file.writestr("zarr.json", document + b" " * (24 << 20))
    raw = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = raw.rindex(mark) + place
        raw[at : at + 4] = struct.pack("<I", 1000)
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with outcore.memory("16 MiB"), pytest.raises(errors.FormatError) as caught:
            outcore.open(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.code == "bad-zip" and "1000 bytes" in str(caught.value)
    # Bytes that are no stream of the method, and a stream that is cut off.
    with zipfile.ZipFile(path, "w", METHODS[method]) as file:
        file.writestr("zarr.json", document)
    raw, at = bytearray(path.read_bytes()), 30 + len("zarr.json")
    for begin in (at + 2, at + 4, at + 9, at + 40):
        for byte in (0, 0x55, 0xFF):
            path.write_bytes(raw[:begin] + bytes([raw[begin] ^ byte ^ 0x80]) + raw[begin + 1 :])
            with pytest.raises(errors.FormatError):
                outcore.open(path)
