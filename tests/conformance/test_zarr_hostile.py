"""Zarr metadata that is wrong in any way: a `FormatError`, at once, whatever it is."""

from __future__ import annotations

import json
import os
import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outcore import errors, formats

V3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [40, 60],
    "data_type": {"name": "structured", "configuration": {"fields": [
        ["a", "float32"], ["b", {"name": "numpy.datetime64",
                                 "configuration": {"unit": "s", "scale_factor": 10}}],
        ["c", {"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}}]]}},
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20, 30]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [10, 10],
        "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}},
                   {"name": "bytes", "configuration": {"endian": "little"}},
                   {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "blocksize": 0,
                                                       "shuffle": "shuffle", "typesize": 4}},
                   {"name": "gzip", "configuration": {"level": 5}},
                   {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}},
                   {"name": "zstd", "configuration": {"level": 5, "checksum": False}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                         {"name": "crc32c"}],
        "index_location": "end"}}],
    "attributes": {"units": "K"},
    "dimension_names": ["y", None],
    "storage_transformers": [],
}  # fmt: skip
SIMPLE = {
    **V3,
    "data_type": "complex64",
    "fill_value": ["0x7fc00000", "NaN"],
    "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
}
GROUP = {
    "zarr_format": 3,
    "node_type": "group",
    "attributes": {},
    "consolidated_metadata": {
        "kind": "inline",
        "must_understand": False,
        "metadata": {"in/x": SIMPLE, "in": {"zarr_format": 3, "node_type": "group"}},
    },
}
V2 = {
    "zarr_format": 2,
    "shape": [40, 60],
    "chunks": [20, 30],
    "dtype": [["a", "<f4", [2, 3]], ["b", "<M8[10s]"], ["c", [["x", "<U3"]]]],
    "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    "filters": [{"id": "shuffle", "elementsize": 4}],
    "fill_value": None,
    "order": "F",
    "dimension_separator": "/",
}
CASES = [("zarr.json", V3), ("zarr.json", SIMPLE), ("zarr.json", GROUP), (".zarray", V2)]
SEEDS = [json.dumps(document).encode() for _, document in CASES]

HURTFUL = st.sampled_from(
    [None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 10**30, 1.5, 1e308, "", "a" * 70, "r8",
     "r7", "r99999999", "float64", "NaN", "0x", "AAAA", "O", "<f8", "|O8", "<U999999999", "M8[999]",
     "i4,i4", "\0", "\ud800", "..", "../../x", [], {}, [1], [-1], [2**62] * 2, [0, 0], [1] * 65,
     [1] * 1000, {"name": "x"}, {"must_understand": False}, [[["a"]]], [["a", "<f8", 3]],
     {"name": "bytes"}, {"id": "zlib"}, [{"id": "zlib", "level": "x"}]]
)  # fmt: skip


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


def paths_of(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths_of(item, (*path, key))


def changed(value, path, new, remove):
    """A copy with one place replaced or removed."""
    if not path:
        return new
    copy = value.copy()
    if len(path) == 1 and remove:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new, remove)
    return copy


@given(data=st.data(), case=st.sampled_from(CASES))
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changed_fields(tmp_path, data, case):
    file, document = case
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(list(paths_of(document))))
        document = changed(document, place, data.draw(HURTFUL), data.draw(st.booleans()))
        if not isinstance(document, dict):
            break
    raw = json.dumps(document).encode()
    folder = tmp_path / file.replace(".", "")
    accepts(folder, file, raw)
    accepts(folder, file, raw, "::/in/x")
    for entry in _listed(folder):
        repr(entry)


def _listed(folder):
    try:
        return formats.ls(folder)
    except errors.FormatError:
        return []


@given(seed=st.sampled_from(range(len(CASES))), number=st.integers(0, 2**32))
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changed_bytes(tmp_path, seed, number):
    chance = random.Random(number)
    raw = bytearray(SEEDS[seed])
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(max(len(raw), 1))
        match chance.randrange(4):
            case 0:
                raw[at : at + 1] = [chance.randrange(256)]
            case 1:
                del raw[at : at + chance.randint(1, 20)]
            case 2:
                raw[at:at] = chance.choice([b"[", b"{", b'"', b"9" * 30, b"\\ud800", b"-", b"NaN"])
            case _:
                raw = raw[: max(at, 1)]
    file = CASES[seed][0]
    accepts(tmp_path / file.replace(".", ""), file, bytes(raw))


def test_the_seeds_are_good(tmp_path):
    good = [accepts(tmp_path / f"{k}", CASES[k][0], SEEDS[k]) for k in range(len(CASES))]
    assert good == [True, True, False, True]
    assert accepts(tmp_path / "2", "zarr.json", SEEDS[2], "::/in/x")


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
