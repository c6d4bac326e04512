"""Zarr metadata that is wrong: a `FormatError`, at once, whatever it is. Random damage: `tests/fuzz`."""

from __future__ import annotations

import json
import os
import tracemalloc

import pytest

import outcore
from fuzz import documents
from fuzz.documents import SIMPLE
from outcore import _core, errors, formats
from outcore.formats.documents import LARGE


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


#: What makes many objects of little text; about 2 MB each.
SWOLLEN = {
    "lists": "[" + "[]," * 700_000 + "0]",
    "lists of one": "[" + "[1]," * 500_000 + "0]",
    "objects": "[" + "{}," * 700_000 + "0]",
    "objects of one": "[" + '{"":1},' * 300_000 + "0]",
    "objects in objects": "[" + '{"":{"":{}}},' * 150_000 + "0]",
    "objects of six": "[" + '{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1},' * 50_000 + "0]",
    "numbers": "[" + "1000," * 400_000 + "0]",
    "fractions": "[" + "1e9," * 500_000 + "0]",
    "names": "{" + ",".join(f'"{n:x}":1' for n in range(200_000)) + "}",
    "words": "[" + ",".join(f'"{n:x}"' for n in range(200_000)) + "]",
    "wide words": "[" + ",".join(f'"{n:x}\N{GRINNING FACE}"' for n in range(150_000)) + "]",
    "one long word": '["' + "x" * 2_000_000 + '\N{GRINNING FACE}"]',
    "escapes": '["' + "\\ud83d\\ude00" * 170_000 + '"]',
}


def swollen(name: str) -> bytes:
    return _with(attributes="@").replace(b'"@"', f'{{"a": {SWOLLEN[name]}}}'.encode())


@pytest.mark.parametrize("name", SWOLLEN)
def test_a_document_is_counted_before_it_is_parsed_and_as_long_as_it_lives(tmp_path, name):
    (tmp_path / "zarr.json").write_bytes(swollen(name))
    formats.open_info(tmp_path)  # imports
    _core.reset_memory_peak()
    free = _core.memory_state()[0]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        info = formats.open_info(tmp_path)
        lives, peak = (n - before for n in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    held, _, most = _core.memory_state()
    assert most - free >= peak
    assert held - free >= lives or lives < LARGE
    assert info.attrs["a"]
    del info
    assert _core.memory_state()[0] == free


def test_a_document_that_does_not_fit_is_refused_by_name(tmp_path):
    (tmp_path / "zarr.json").write_bytes(swollen("lists"))
    before = outcore.memory()
    outcore.memory("16 MiB")
    try:
        with pytest.raises(errors.BudgetError, match=r"zarr\.json.*a metadata document") as caught:
            outcore.open(tmp_path)
        outcore.memory(caught.value.needed)
        outcore.open(tmp_path).close()
    finally:
        outcore.memory(before)


def test_a_small_array_of_a_large_group_holds_nothing(tmp_path):
    """Of consolidated metadata that were counted, only what is kept."""
    members = {f"a{n}": {**SIMPLE, "attributes": {"n": n}} for n in range(2000)}
    group = {**documents.GROUP, "consolidated_metadata": {"metadata": members}}
    (tmp_path / "zarr.json").write_text(json.dumps(group))
    free = _core.memory_state()[0]
    _core.reset_memory_peak()
    info = formats.open_info(f"{tmp_path}::/a7")
    assert (info.attrs, _core.memory_state()[0]) == ({"n": 7}, free)
    assert _core.memory_state()[2] > free


@pytest.mark.parametrize("version", [2, 3])
def test_members_are_listed_in_one_reading_of_their_group(tmp_path, monkeypatch, version):
    """Not in one for each of them: a group of 47 MB would take days."""
    names = [f"g/{n:03}" for n in range(300)]
    if version == 3:
        members = dict.fromkeys(names, SIMPLE)
        group = {**documents.GROUP, "consolidated_metadata": {"metadata": members}}
        (tmp_path / "zarr.json").write_text(json.dumps(group))
    else:
        members = {f"{name}/.zarray": documents.V2 for name in names}
        members[f"{names[5]}/.zattrs"] = {"_ARRAY_DIMENSIONS": 3}
        (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
        (tmp_path / ".zmetadata").write_text(json.dumps({"metadata": members}))
    size, read = max(p.stat().st_size for p in tmp_path.iterdir()), []
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: (read.append(real(fd).st_size), real(fd))[1])
    entries = formats.ls(tmp_path)
    assert [e.path for e in entries] == [f"{tmp_path}::/{name}" for name in names]
    assert {(e.shape, e.note) for e in entries} == {((40, 60), "")}
    assert read.count(size) <= 2  # what it is, and what is in it
