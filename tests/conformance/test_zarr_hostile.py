"""Zarr metadata that is wrong: a `FormatError`, at once, whatever it is. Random damage: `tests/fuzz`."""

from __future__ import annotations

import json
import os
import tracemalloc

import pytest

from fuzz import documents
from fuzz.documents import SIMPLE
from outcore import errors, formats


def accepts(folder, file: str, raw: bytes, inner: str = "") -> bool:
    """Whether the document opens; an error must be of the right kind."""
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(raw)
    try:
        info = formats.open_info(f"{folder}{inner}")
    except errors.FormatError:
        return False
    assert all(c >= 1 for c in info.layout.chunks) and info.dtype.itemsize <= 2**20
    repr(info)
    return True


def test_the_seeds_are_good(tmp_path):
    """What the fuzz lane damages."""
    for number, (files, inner) in enumerate(documents.ZARR):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file, document in files.items():
            assert accepts(folder, file, json.dumps(document).encode(), inner) or inner


def _with(**fields) -> bytes:
    return json.dumps({**SIMPLE, **fields}).encode()


BAD = {
    "empty": b"",
    "binary": bytes(range(256)),
    "latin-1": '{"zarr_format": 3, "x": "é"}'.encode("latin-1"),
    "deep lists": b"[" * 10**6,
    "deep objects": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
    "deep attributes": b'{"zarr_format":3,"node_type":"array","attributes":' + b"[" * 10**5,
    "long number": b'{"zarr_format": ' + b"9" * 10**6 + b"}",
    "many dimensions": _with(shape=[1] * 10**5),
    "lone surrogate": _with(attributes={"x": "\ud800"}),
    "not an object": b"[1]",
    "huge shape": _with(shape=[2**62, 2**62]),
    "huge chunk": _with(shape=[2**31, 2**31], chunk_grid={
        "name": "regular", "configuration": {"chunk_shape": [2**31, 2**31]}}),
    "huge item": _with(data_type={"name": "null_terminated_bytes",
                                  "configuration": {"length_bytes": 2**40}}),
    "huge raw bits": _with(data_type="r800000000"),
    "chunk of zero": _with(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 1]}}),
    "negative shape": _with(shape=[-1, 4]),
    "no codecs": _with(codecs=[]),
    "version as truth": _with(zarr_format=True),
    "no fill": _with(fill_value=None),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_documents(tmp_path, name):
    tracemalloc.start()
    try:
        assert not accepts(tmp_path / "a", "zarr.json", BAD[name])
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_files_that_are_no_files(tmp_path):
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "zarr.json")
    (tmp_path / "folder" / "zarr.json").mkdir(parents=True)
    (tmp_path / "large").mkdir()
    with open(tmp_path / "large" / "zarr.json", "wb") as file:
        file.truncate(2**40)
    for name in ("pipe", "folder", "large"):
        with pytest.raises((errors.FormatError, errors.StorageError)):
            formats.open_info(tmp_path / name)


def test_folders_that_contain_themselves(tmp_path):
    formats.create_info(f"{tmp_path}/g.zarr::/a", (3,), "i4")
    (tmp_path / "g.zarr" / "again").symlink_to(tmp_path / "g.zarr")
    assert [e.path for e in formats.ls(tmp_path / "g.zarr")] == [f"{tmp_path}/g.zarr::/a"]
