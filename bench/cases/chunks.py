"""
Question: how fast are compressed chunks read and written, beside the libraries that own them?

Expected: the codec decides; two cores code two chunks at a time, no chunk is copied twice, and
what has to be on the disk is waited for once an operation.
Held fair: the same codec and level out of the same metadata, the same threads, results compared
(what was written is read back by another library), and equal durability: rows named "durable" end
when the data is on the disk (outcore: `flush`; tensorstore: its default, a sync per file; h5py: a
flush and an fsync), the others when the page cache has it (tensorstore: `file_io_sync` off).
Each writer has its own file or folder, made beforehand and emptied by `before` where chunks are new.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, evict, interleave, save, table, warm
from peers import Key, Peer, h5py_peer, outcore_peer, tensorstore_peer, zarr_peer

NEIGHBOURS = 16
"""Columns of the row "columns one by one"."""
_READ = ("whole", "whole, cold", "window", "strided", "columns")


@dataclass(frozen=True)
class Kind:
    """One way to store the array; `codec` by its name in `_codec` or h5py's keywords."""

    name: str
    suffix: str
    chunk: int
    codec: Any
    shard: int | None = None


KINDS = (
    Kind("zstd 1MiB", ".zarr", 512, ("zstd", 3)),
    Kind("zstd 256KiB", ".zarr", 256, ("zstd", 3)),
    Kind("zstd 16KiB", ".zarr", 64, ("zstd", 3)),
    Kind("sharded zstd 256KiB in 4MiB", ".zarr", 256, ("zstd", 3), 1024),
    Kind("gzip 1MiB", ".zarr", 512, ("gzip", 1)),
    Kind("blosc-lz4 1MiB", ".zarr", 512, ("blosc", 5)),
    Kind("h5 gzip+shuffle 1MiB", ".h5", 512, "gzip"),
    Kind("h5 zstd 1MiB", ".h5", 512, "zstd"),
)


def _data(n: int) -> np.ndarray:
    """A smooth field with noise in the low digits: compresses about twofold, as real data does."""
    x = np.linspace(0, 8, n, dtype=np.float32)
    field = np.sin(x)[:, None] * np.cos(x)[None, :]
    noise = np.random.default_rng(7).integers(0, 64, (n, n), dtype=np.int32)
    return (field * 20000).astype(np.int32) + noise


def _codec(name: str, level: int) -> Any:
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    if name == "blosc":
        return BloscCodec(cname="lz4", clevel=level, shuffle="shuffle", typesize=4)
    return ZstdCodec(level=level) if name == "zstd" else GzipCodec(level=level)


def _create(kind: Kind, path: Path, n: int) -> None:
    """An empty array at `path`."""
    if kind.suffix == ".h5":
        import h5py
        import hdf5plugin

        gzip = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        how = gzip if kind.codec == "gzip" else dict(hdf5plugin.Zstd(clevel=3))
        with h5py.File(path, "w") as file:
            file.create_dataset("d", (n, n), np.int32, chunks=(kind.chunk, kind.chunk), **how)
        return
    import zarr

    zarr.create_array(
        path,
        shape=(n, n),
        chunks=(kind.chunk, kind.chunk),
        shards=kind.shard and (kind.shard, kind.shard),
        dtype=np.int32,
        compressors=_codec(*kind.codec),
    )


def _made(kind: Kind, folder: Path, data: np.ndarray, label: str = "read") -> Path:
    """The array with `data`, written by the library that owns the format."""
    name = f"{kind.name.replace(' ', '-')}-{len(data)}-{label}"
    path = folder / f"{name}{kind.suffix}"
    done = folder / f"{name}.done"
    if done.exists():
        return path
    _remove(path)
    _create(kind, path, len(data))
    peer = _owner(kind, path)
    assert peer.write is not None
    peer.write((slice(None), slice(None)), data)
    peer.close()
    done.touch()
    return path


def _wanted(text: str, options: Any) -> bool:
    return not options.only or any(part in text for part in options.only)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _owner(kind: Kind, path: Path) -> Peer:
    """A library other than outcore that reads and writes this kind fast."""
    return h5py_peer(path, "d", "h5py") if kind.suffix == ".h5" else tensorstore_peer(path)


def _readers(kind: Kind, path: Path, options: Any) -> list[Peer]:
    ours = [outcore_peer(path, t) for t in options.threads]
    if kind.suffix == ".h5":
        return [*ours, h5py_peer(path, "d", "h5py", "r")]
    theirs = [tensorstore_peer(path, threads=1), tensorstore_peer(path)]
    return [*ours, *theirs, *([zarr_peer(path)] if options.others else [])]


def _reads(kind: Kind, folder: Path, data: np.ndarray, options: Any) -> list[Row]:
    n = len(data)
    rows: list[Row] = []
    if not any(_wanted(f"{kind.name}: read {what}", options) for what in _READ):
        return rows
    path = _made(kind, folder, data)
    keys: dict[str, Key] = {
        "whole": (slice(None), slice(None)),
        "window": (slice(n // 8 + 100, n // 2 + 100), slice(77, n - 77)),
        "strided": (slice(None, None, 7), slice(None, None, 5)),
    }
    for cache, (label, key) in itertools.product(options.cache, keys.items()):
        text = f"{kind.name}: read {label}" + (", cold" if cache == "cold" else "")
        if (cache == "warm" or label == "whole") and _wanted(text, options):
            rows.append(_read_row(kind, path, text, key, data, cache == "cold", options))
    if "warm" in options.cache and _wanted(f"{kind.name}: read columns", options):
        rows += _column_rows(kind, path, data, options)
    return rows


def _read_row(
    kind: Kind, path: Path, text: str, key: Key, data: np.ndarray, cold: bool, options: Any
) -> Row:
    out = np.empty(data[key].shape, dtype=data.dtype)
    peers = {p.name: p for p in _readers(kind, path, options)}
    warm([path])

    def before(_name: str) -> None:
        out.fill(0)
        if cold:
            evict([path])

    row = interleave(
        Row(text, out.nbytes),
        {name: (lambda p=p: p.read(key, out)) for name, p in peers.items()},
        repeat=options.repeat,
        before=before,
        check=lambda _name: np.array_equal(out, data[key]),
    )
    for peer in peers.values():
        peer.close()
    return row


def _forget(_name: str) -> None:
    """Have outcore give up the decoded chunks that it keeps; h5py comes to others each time."""
    import outcore

    with outcore.memory("4 KiB"):
        pass


def _column_rows(kind: Kind, path: Path, data: np.ndarray, options: Any) -> list[Row]:
    """A column of chunks that were not read just now, and neighbours of it one by one."""
    n = len(data)
    peers = {p.name: p for p in _readers(kind, path, options)}
    fresh = {name: itertools.cycle(range(5, n, kind.shard or kind.chunk)) for name in peers}
    column = np.empty((n, 1), dtype=data.dtype)
    block = np.empty((NEIGHBOURS, n, 1), dtype=data.dtype)
    last = {}

    def one(name: str) -> None:
        last[name] = next(fresh[name])
        peers[name].read((slice(None), slice(last[name], last[name] + 1)), column)

    def several(name: str) -> None:
        first = next(fresh[name]) + NEIGHBOURS
        last[name] = first
        for k, out in enumerate(block):
            peers[name].read((slice(None), slice(first + k, first + k + 1)), out)

    def right(name: str) -> bool:
        return np.array_equal(column[:, 0], data[:, last[name]])

    def all_right(name: str) -> bool:
        return np.array_equal(block[:, :, 0].T, data[:, last[name] : last[name] + NEIGHBOURS])

    cases: list[tuple[str, Callable[[str], None], Callable[[str], bool], int]] = [
        ("one column", one, right, column.nbytes),
        (f"{NEIGHBOURS} columns one by one", several, all_right, block.nbytes),
    ]
    rows = [
        interleave(
            Row(f"{kind.name}: read {label}", nbytes),
            {name: (lambda name=name, call=call: call(name)) for name in peers},
            repeat=options.repeat,
            before=_forget,
            check=check,
        )
        for label, call, check, nbytes in cases
    ]
    for peer in peers.values():
        peer.close()
    return rows


def _writers(kind: Kind, paths: dict[str, Path], durable: bool, options: Any) -> list[Peer]:
    ours = [outcore_peer(paths[f"outcore/{t}"], t) for t in options.threads]
    if kind.suffix == ".h5":
        return [*ours, h5py_peer(paths["h5py"], "d", "h5py")]
    theirs = paths["tensorstore/2"]
    return [*ours, tensorstore_peer(theirs, sync=durable)]


def _writes(kind: Kind, folder: Path, data: np.ndarray, options: Any) -> list[Row]:
    n = len(data)
    names = [f"outcore/{t}" for t in options.threads]
    names.append("h5py" if kind.suffix == ".h5" else "tensorstore/2")
    rows = []
    paths = {name: folder / f"written-{name.replace('/', '-')}{kind.suffix}" for name in names}
    whole = (slice(None), slice(None))
    window = (slice(n // 8 + 100, n // 2 + 100), slice(77, n - 77))
    cases = (("new", whole), ("replaced", whole), ("window", window))
    for durable, (label, key) in itertools.product((False, True), cases):
        text = f"{kind.name}: write {label}" + (", durable" if durable else "")
        if not _wanted(text, options):
            continue
        rows.append(_write_row(kind, text, paths, key, data, durable, label == "new", options))
    for path in paths.values():
        _remove(path)
    return rows


def _write_row(
    kind: Kind,
    text: str,
    paths: dict[str, Path],
    key: Key,
    data: np.ndarray,
    durable: bool,
    new: bool,
    options: Any,
) -> Row:
    value = np.ascontiguousarray(data[key])
    peers: dict[str, Peer] = {}

    def make(name: str) -> None:
        """An empty array for this writer, and the writer anew."""
        if name in peers:
            peers.pop(name).close()
        _remove(paths[name])
        _create(kind, paths[name], len(data))

    def open_all() -> None:
        for peer in _writers(kind, paths, durable, options):
            if peer.name in peers:
                peer.close()
            else:
                peers[peer.name] = peer

    for name, path in paths.items():
        if not path.exists() or new:
            make(name)
    open_all()

    def before(name: str) -> None:
        if new:
            make(name)
            open_all()
        for peer in peers.values():
            if peer.sync is not None:
                peer.sync()

    def write(name: str) -> None:
        peer = peers[name]
        assert peer.write is not None
        peer.write(key, value)
        if durable and peer.sync is not None:
            peer.sync()

    def check(name: str) -> bool:
        peers.pop(name).close()
        reader = _owner(kind, paths[name])
        back = np.empty_like(value)
        reader.read(key, back)
        reader.close()
        open_all()
        return np.array_equal(back, value)

    row = interleave(
        Row(text, value.nbytes),
        {name: (lambda name=name: write(name)) for name in list(peers)},
        repeat=options.repeat,
        before=before,
        check=check,
    )
    for peer in peers.values():
        peer.close()
    return row


def run(options: Any) -> None:
    """Print the tables; append raw figures to ``results/chunks.jsonl``."""
    folder = Path(options.folder)
    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    data = _data(n)
    ours = [f"outcore/{t}" for t in options.threads]
    results = Path(__file__).parents[1] / "results" / "chunks.jsonl"
    columns = [*ours, "tensorstore/1", "tensorstore/2", "zarr-python", "h5py"]
    print(f"\n## Compressed chunks, {options.size}, ms (ratio: to the best peer)\n", flush=True)
    head = True
    for kind in KINDS:
        rows = _reads(kind, folder, data, options) + _writes(kind, folder, data, options)
        if rows:
            lines = table(rows, columns, ours, "none").splitlines()
            print("\n".join(lines if head else lines[2:]), flush=True)
            head = False
            save(results, "chunks", rows)
