"""Headers, metadata documents and journals: opened, and if they open, a little of them is read."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from fuzz.chance import LIES, Chance
from fuzz.lane import Files, Target
from outcore import errors, formats
from outcore.compute import jobs
from outcore.compute.jobs.journal import Journal
from outcore.formats import whole
from outcore.formats.netcdf.classic import moving, places
from outcore.formats.netcdf.classic.header import Attribute, Dimension, Header, Variable


def taste(path: str, **options: Any) -> None:
    """Open an array and read its first and last elements, if those are few."""
    with outcore.open(path, **options) as array:
        repr(array)
        dict(array.attrs)
        for key in (
            tuple(slice(0, 2) for _ in array.shape),
            tuple(slice(max(n - 2, 0), n) for n in array.shape),
        ):
            count = 1
            for n in array.shape:
                count *= min(n, 2)
            if max(count, 1) * array.dtype.itemsize <= 2**20:
                array[key]


# .npy

NPY_DTYPES = ["<f8", ">i2", "S5", "<U3", "M8[s]", "?", [("a", "<i4"), ("b", ">f8", (2,))]]


def npy(chance: Chance) -> Files:
    stream = io.BytesIO()
    shape = tuple(chance.randrange(5) for _ in range(chance.randrange(4)))
    array = np.zeros(shape, chance.choice(NPY_DTYPES), order=chance.choice("CF"))
    version = chance.choice([(1, 0), (2, 0), (3, 0)])
    np.lib.format.write_array(stream, array, version)
    good = stream.getvalue()
    if chance.one_in(3):  # another text, in a header that is well formed
        start = 10 if version == (1, 0) else 12
        text = good[start : len(good) - array.nbytes]
        text = other_words(chance, text.rstrip()) + b"\n"
        length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
        return {"a.npy": good[:8] + length + text + bytes(array.nbytes)}
    return {"a.npy": chance.damage(good, 0, len(good) - array.nbytes + 2)}


WORDS = [b"True", b"None", b"-1", b"9" * 30, b"(3,)", b"()", b"'|O'", b"'<f8'", b"{}", b"[", b"(", b"'",
         b"1e400", b"1j", b"[('a','<f8')]", b"'<U99999999'", b"'V0'", b"lambda: 0", b"x" * 500,
         b"(" * 150, b"\\ud800", b"\0", b"99999999999, 99999999999", b" " * 9000 + b"$", b"\\'" * 4000,
         b"1L " * 4000]  # fmt: skip


def other_words(chance: Chance, text: bytes) -> bytes:
    parts = text.split(b" ")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(parts))
        word = str(chance.choice(LIES)).encode() if chance.one_in(3) else chance.choice(WORDS)
        parts[at] = word + chance.choice([b"", b",", b", }"])
    return b" ".join(parts)


# Classic NetCDF


def netcdf3(chance: Chance) -> Files:
    dims = [Dimension("t", 0), Dimension("x", 3), Dimension("y", chance.randrange(1, 5))]
    attrs = (Attribute("title", 2, b"text"), Attribute("n", 4, bytes(8)))
    version = chance.choice([1, 2, 5])
    shapes = ((), (1,), (0,), (0, 1), (2, 1))
    variables = tuple(
        Variable(f"v{k}", chance.choice(shapes), attrs[: k % 3], chance.randrange(1, 7), 0)
        for k in range(chance.randrange(5))
    )
    header = places.arrange(Header(version, chance.randrange(4), tuple(dims), attrs, variables))
    good = places.to_bytes(header)
    data = bytes(moving.find_file_end(header, header.records or 0))
    bad = chance.damage(good, 4, len(good))
    files = {"a.nc": bad + data[len(bad) :]}
    if chance.one_in(4):  # the record of a change of the header, of this or another file
        record = struct.pack(
            "<8sQQQI", b"outhead1", *(chance.choice(LIES) % 2**63 for _ in "abc"), 7
        )
        files[".a.nc.outcore-header"] = chance.damage(record + 2 * good)
    return files


def taste_netcdf3(folder: Path) -> None:
    name = str(folder / "a.nc")
    dict(outcore.open_group(name).attrs)
    for entry in formats.ls(name):
        with contextlib.suppress(errors.FormatError):
            taste(entry.path)


# Raw

RAW_WORDS = {
    "dtype": ["f8", ">i2", "S0", "O", "V7", "<U9999999", "i4,i4", "M8[s]"],
    "order": ["C", "F", "K"],
    "offset": [0, 1, 8, -1, *LIES],
    "shape": [(-1,), (3, -1), (2, 3), (0,), (), (-1, -1), 5, (1,) * 70, *((n, 2) for n in LIES)],
}


def raw(chance: Chance) -> Files:
    options = {
        "dtype": "f8",
        "shape": (-1,),
        **{k: chance.choice(v) for k, v in RAW_WORDS.items() if chance.one_in(2)},
    }
    files = {"a.raw": bytes(chance.choice([0, 1, 48, 1000])), "options.json": _json(options)}
    if chance.one_in(4):  # the note of an append that was interrupted, of this or another file
        note = struct.pack(
            "<8sQQqqI", b"outgrow1", *(chance.choice(LIES) % 2**63 for _ in range(4)), 7
        )
        note += struct.pack("<I", zlib.crc32(note))
        files[".a.raw.outcore-growth"] = chance.damage(note) if chance.one_in(2) else note
    return files


def taste_raw(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    try:
        taste(str(folder / "a.raw"), **options)
    except errors.UsageError as error:
        raise errors.FormatError(str(error), code=error.code) from error


# Zarr

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
GROUP_V2 = {
    "zarr_consolidated_format": 1,
    "metadata": {".zgroup": {"zarr_format": 2}, "x/.zarray": V2, "x/.zattrs": {"units": "K"}},
}
#: Documents by file name, and what to open besides the folder itself.
ZARR = [
    ({"zarr.json": V3}, ""),
    ({"zarr.json": SIMPLE}, ""),
    ({"zarr.json": GROUP}, "::/in/x"),
    ({".zarray": V2, ".zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]}}, ""),
    ({".zgroup": {"zarr_format": 2}, ".zmetadata": GROUP_V2}, "::/x"),
]
HURTFUL: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 10**30, 1.5, 1e308, "", "a" * 70, "r8",
    "r7", "r99999999", "float64", "NaN", "0x", "AAAA", "O", "<f8", "|O8", "<U999999999", "M8[999]",
    "i4,i4", "\0", "\ud800", "..", "../../x", [], {}, [1], [-1], [2**62] * 2, [0, 0], [1] * 65,
    [1] * 1000, {"name": "x"}, {"must_understand": False}, [[["a"]]], [["a", "<f8", 3]],
    {"name": "bytes"}, {"id": "zlib"}, [{"id": "zlib", "level": "x"}],
]  # fmt: skip


def paths_of(value: Any, path: tuple = ()) -> Any:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths_of(item, (*path, key))


def changed(value: Any, path: tuple, new: Any, remove: bool) -> Any:
    """A copy with one place replaced or removed."""
    if not path:
        return new
    copy = value.copy()
    if len(path) == 1 and remove:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new, remove)
    return copy


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def zarr(chance: Chance) -> Files:
    documents, inner = chance.choice(ZARR)
    name = chance.choice(list(documents))
    document: Any = documents[name]
    data = _json(document)
    if chance.one_in(3):
        data = damaged_text(chance, data)
    else:
        for _ in range(chance.randint(1, 3)):
            where = chance.choice(list(paths_of(document)))
            document = changed(document, where, chance.choice(HURTFUL), chance.one_in(4))
            if not isinstance(document, (dict, list)):
                break
        data = _json(document)
    files = {**{other: _json(value) for other, value in documents.items()}, name: data}
    if chance.one_in(4):
        return {"a.zip": _zipped(chance, files), "inner": inner.encode()}
    return {**{f"a.zarr/{other}": text for other, text in files.items()}, "inner": inner.encode()}


def _zipped(chance: Chance, files: Files) -> bytes:
    """In a zip file, of which headers and directory may be damaged, too."""
    stream = io.BytesIO()
    methods = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA
    with zipfile.ZipFile(stream, "w", chance.choice(methods)) as file:
        for name, data in files.items():
            file.writestr(name, data)
        file.comment = chance.choice([b"", b"PK\5\6", b"PK\5\6" + bytes(18)])
    good = stream.getvalue()
    begin = chance.choice([0, good.index(b"PK\1\2"), good.index(b"PK\5\6")])
    return good if chance.one_in(4) else chance.damage(good, begin)


def damaged_text(chance: Chance, good: bytes) -> bytes:
    text = bytearray(good)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(max(len(text), 1))
        match chance.randrange(4):
            case 0:
                text[at : at + 1] = [chance.randrange(256)]
            case 1:
                del text[at : at + chance.randint(1, 20)]
            case 2:
                text[at:at] = chance.choice(
                    [
                        b"[",
                        b"{",
                        b'"',
                        b"9" * 30,
                        b"\\ud800",
                        b"-",
                        b"NaN",
                        b"[" * 5000,
                        b'{"a":' * 5000,
                    ]
                )
            case _:
                del text[max(at, 1) :]
    return bytes(text)


def taste_zarr(folder: Path) -> None:
    path = f"{folder}/a.zarr"
    if (folder / "a.zip").exists():
        path = f"{folder}/a.zip"
    try:
        for entry in formats.ls(path):
            repr(entry)
        for damage in outcore.verify(path):
            repr(damage)
    except errors.FormatError:
        pass
    taste(path + (folder / "inner").read_text())


# Arrays that claim far more than is stored

LENGTHS = [0, 1, 3, 1000, 10**6, 10**9, 2**31, 10**12, 10**15, 2**40, 2**62]
KEYS = ["/", "."]


def claims(chance: Chance) -> Files:
    """Zarr arrays of up to 2^62 chunks, with a few files of chunks, not all of them good."""
    ndim = chance.choice([1, 1, 2, 2, 3, 5])
    shape = [chance.choice(LENGTHS) for _ in range(ndim)]
    chunk = [max(1, min(n, chance.choice([1, 1, 3, 10, 1000, *LENGTHS[3:]]))) for n in shape]
    separator = chance.choice(KEYS)
    codecs: list[Any] = [{"name": "bytes"}]
    if chance.one_in(2):
        codecs.append({"name": "gzip", "configuration": {"level": 1}})
    if chance.one_in(3):
        inner = [chance.choice([1, n, max(n // 2, 1)]) for n in chunk]
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        chunk = [max(n // m, 1) * m for n, m in zip(chunk, inner, strict=True)]
        sharding = {"chunk_shape": inner, "codecs": codecs, "index_codecs": index}
        codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    document = {
        **SIMPLE,
        "shape": shape,
        "data_type": "uint8",
        "fill_value": chance.choice([0, 7]),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "codecs": codecs,
        "dimension_names": None,
        "attributes": {"a": json.loads(chance.choice(["[" + "[]," * 9000 + "0]", "3", "[1]"]))},
    }
    files = {"a.zarr/zarr.json": _json(document)}
    size = 1
    for n in chunk:
        size *= n
    good = [bytes(size)] * 3 if size <= 10**4 else []
    for _ in range(chance.randrange(5)):
        at = [
            chance.choice([0, 1, n // m, max(n // m - 1, 0)])
            for n, m in zip(shape, chunk, strict=True)
        ]
        name = f"a.zarr/c{separator}{separator.join(map(str, at))}"
        files[name] = chance.choice([b"", b"short", bytes(100), *good])
    return files


def look(folder: Path) -> None:
    """Everything that looks at an array; each may refuse, none may take long."""
    path, refused = f"{folder}/a.zarr", None
    outcore.memory("64 MiB")
    with outcore.open(path, "r+") as array:
        corner = tuple(slice(0, 10**3) for _ in array.shape)
        lattice = tuple(slice(None, None, max(n // 50, 1)) for n in array.shape)
        for ask in (
            array.explain,
            lambda: array.explain(write=True),
            lambda: array.explain(corner),
            lambda: array.explain(lattice, write=True),
            lambda: array.prefetch(corner),
            array.stats,
            lambda: formats.ls(path),
            lambda: outcore.verify(path),
            lambda: taste(path),
        ):
            try:
                ask()
            except errors.InternalError:
                raise
            except errors.OutcoreError as error:
                refused = error
    if refused is not None:
        raise refused


# Journals

JOB = {
    "operation": "transpose",
    "source": "a.npy",
    "shape": [3, 4],
    "dtype": "<f8",
    "target": "b.npy",
}
CALL = {
    "function": "transpose",
    "inputs": [{"mapping": [["path", "a.npy"], ["options", {"mapping": []}]]}],
    "out": ["b.npy"],
    "out_name": "out",
    "in_names": [],
    "arguments": {"axes": {"tuple": [1, 0]}},
    "how": {"chunks": {"array": [2, 2], "of": "<i8"}, "order": "C"},
    "memory": 10**6,
    "overwrite": False,
}


def journal(chance: Chance) -> Files:
    steps = chance.choice([200, 200, 10**6, 10**8, *LIES])
    head: Any = {"outcore-journal": 1, "job": JOB, "cut": [1, 4], "steps": steps}
    if chance.one_in(3):
        head["cut"] = {"partial": [["b.outcore-partial.npy", None]], "call": CALL}
    if chance.one_in(4):
        head = changed(head, chance.choice(list(paths_of(head))), chance.choice(HURTFUL), False)
    lines = [json.dumps(head)]
    for _ in range(chance.randrange(6)):
        low = chance.randrange(200)
        lines.append(chance.choice([str(low), f"{low}-{low + chance.randrange(50)}"]))
    if chance.one_in(2):
        lie = chance.choice([*LIES, 10**8 - 1, -1, 199, 200])
        lines.insert(
            chance.randint(1, len(lines)), chance.choice([f"{lie}", f"0-{lie}", f"{lie}-0"])
        )
    data = "\n".join(lines).encode() + b"\n" * (not chance.one_in(6))
    return {"journal": damaged_text(chance, data) if chance.one_in(3) else data}


def resume(folder: Path) -> None:
    # What lists jobs and goes on with them sees the same, and gives up nothing but the journal.
    work = folder / "jobs"
    work.mkdir(exist_ok=True)
    (work / "b.npy.outcore-journal").write_bytes((folder / "journal").read_bytes())
    with contextlib.chdir(work), contextlib.suppress(errors.OutcoreError):
        np.save("a.npy", np.zeros((3, 4)))
        for one in jobs.unfinished(work):
            repr(one)
        jobs.resume(work)
    with Journal(str(folder / "journal")) as found:
        count = 0
        for step in range(100):
            count += step in found.done
        found.commit([1, 2, 3] if found.steps > 3 else [])
    # What was accepted and added to is still a journal, of the same job.
    with Journal(str(folder / "journal")) as again:
        assert again.job == found.job and again.steps == found.steps
        assert (1 in again.done) == (1 in found.done)


# Manifests: of arrays in parts, and of checkpoints

ID = "0123456789abcdef"
PARTS = {
    "format": "outcore parts",
    "version": 1,
    "id": ID,
    "shape": [5, 3],
    "dtype": "<f8",
    "order": "C",
    "stripe": 2,
    "parts": [f"a-{ID}-0.npy", f"a-{ID}-1.npy"],
}
U = {"file": "u.npy", "kind": "array", "shape": [3, 3], "dtype": "<f8"}
KEPT = {
    "format": "outcore checkpoint",
    "version": 1,
    "generation": 1,
    "arrays": {"u": U, "v": {**U, "kind": "distributed"}},
    "values": {"step": 3, "more": {"a": [1, None]}},
}


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def damaged(chance: Chance, document: Any) -> bytes:
    if chance.one_in(3):
        return damaged_text(chance, _json(document))
    for _ in range(chance.randint(1, 3)):
        where = chance.choice(list(paths_of(document)))
        document = changed(document, where, chance.choice(HURTFUL), chance.one_in(4))
        if not isinstance(document, (dict, list)):
            break
    return _json(document)


def parts(chance: Chance) -> Files:
    """A manifest that lies, and parts that are mostly good."""
    shapes = [(3, 3), (2, 3)]
    files = {f"a-{ID}-{k}.npy": saved(np.zeros(shape)) for k, shape in enumerate(shapes)}
    if chance.one_in(4):
        name = chance.choice(list(files))
        files[name] = chance.damage(files[name])
    manifest = _json(PARTS) if chance.one_in(5) else damaged(chance, PARTS)
    return {**files, "a.parts": manifest, "secret.npy": saved(np.zeros((3, 3)))}


def taste_parts(folder: Path) -> None:
    """Open it, append to it, and remove it: no file is touched but those with names of its parts."""
    path, secret = folder / "a.parts", (folder / "secret.npy").read_bytes()
    try:
        taste(str(path))
        with outcore.open(path, "r+") as array:
            if array.ndim and array.nbytes < 2**20:
                array.append(array[-1:])
    finally:
        with contextlib.suppress(errors.OutcoreError):
            whole.remove(str(path))
        assert (folder / "secret.npy").read_bytes() == secret


def checkpoint(chance: Chance) -> Files:
    array = saved(np.zeros((3, 3)))
    return {
        "state/checkpoint.json": damaged(chance, KEPT),
        "state/arrays-1/u.npy": chance.damage(array) if chance.one_in(4) else array,
        "secret.npy": array,
    }


def go_on(folder: Path) -> None:
    refused = None
    try:
        outcore.mpi.restore(folder / "state")
    except errors.InternalError:
        raise
    except errors.OutcoreError as error:
        refused = error
    try:
        outcore.mpi.checkpoint(folder / "state", {"u": np.zeros(2)})
    except errors.InternalError:
        raise
    except errors.OutcoreError as error:
        refused = refused or error
    else:
        assert outcore.mpi.restore(folder / "state")["u"].shape == (2,)
    if refused is not None:
        raise refused


TARGETS = [
    Target("parts_manifests", parts, taste_parts, 400),
    Target("checkpoint_manifests", checkpoint, go_on, 300),
    Target("npy_headers", npy, lambda folder: taste(str(folder / "a.npy")), 1500),
    Target("netcdf3_headers", netcdf3, taste_netcdf3, 1000),
    Target("raw_options", raw, taste_raw, 500),
    Target("zarr_metadata", zarr, taste_zarr, 800),
    Target("claims", claims, look, 80),
    Target("journals", journal, resume, 800),
]
