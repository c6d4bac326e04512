"""
Question: how fast are compressed chunks read and written, beside the libraries that own them?

Expected: the codec decides; two cores decode two chunks at a time and no chunk is copied twice.
Held fair: the same files (written by zarr-python and h5py), the same threads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, interleave, save, table, warm
from peers import Peer, h5py_peer, outcore_peer, tensorstore_peer, zarr_peer


def _data(n: int) -> np.ndarray:
    """A smooth field with noise in the low digits: compresses about twofold, as real data does."""
    x = np.linspace(0, 8, n, dtype=np.float32)
    field = np.sin(x)[:, None] * np.cos(x)[None, :]
    noise = np.random.default_rng(7).integers(0, 64, (n, n), dtype=np.int32)
    return (field * 20000).astype(np.int32) + noise


def _make(folder: Path, n: int) -> dict[str, Path]:
    import h5py
    import zarr
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    data = _data(n)
    made = {}
    for name, codec in (
        ("zstd", ZstdCodec(level=1)),
        ("gzip", GzipCodec(level=1)),
        ("blosc-lz4", BloscCodec(cname="lz4", typesize=4)),
    ):
        path = folder / f"{name}-{n}.zarr"
        made[name] = path
        if not path.exists():
            array = zarr.create_array(
                path, shape=data.shape, chunks=(512, 512), dtype=data.dtype, compressors=codec
            )
            array[...] = data
    path = folder / f"sharded-{n}.zarr"
    made["sharded zstd"] = path
    if not path.exists():
        array = zarr.create_array(
            path,
            shape=data.shape,
            chunks=(256, 256),
            shards=(1024, 1024),
            dtype=data.dtype,
            compressors=ZstdCodec(level=1),
        )
        array[...] = data
    path = folder / f"gzip-{n}.h5"
    made["h5 gzip+shuffle"] = path
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.create_dataset(
                "d",
                data=data,
                chunks=(512, 512),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
    return made


def _peers(name: str, path: Path, threads: list[int]) -> list[Peer]:
    ours = [outcore_peer(path, t) for t in threads]
    if path.suffix == ".h5":
        return [*ours, h5py_peer(path, "d", "h5py")]
    return [*ours, tensorstore_peer(path, threads=1), tensorstore_peer(path), zarr_peer(path)]


def run(options: Any) -> None:
    """Print the tables; append raw figures to ``results/chunks.jsonl``."""
    folder = Path(options.folder)
    n = {"quick": 2048, "1GiB": 8192, "4GiB": 16384}[options.size]
    expected = _data(n)
    ours = [f"outcore/{t}" for t in options.threads]
    rows = []
    for name, path in _make(folder, n).items():
        warm([path])
        peers = _peers(name, path, options.threads)
        for label, key in (
            ("whole", (slice(None), slice(None))),
            ("rows", (slice(n // 4, n // 2), slice(None))),
            ("strided", (slice(None, None, 7), slice(None, None, 5))),
            ("one column", (slice(None), slice(n // 3, n // 3 + 1))),
        ):
            out = np.empty(expected[key].shape, dtype=np.int32)
            rows.append(
                interleave(
                    Row(f"{name}: {label}", out.nbytes),
                    {p.name: (lambda p=p, key=key, out=out: p.read(key, out)) for p in peers},
                    repeat=options.repeat,
                    before=lambda _name, out=out: out.fill(0),
                    check=lambda _name, out=out, key=key: np.array_equal(out, expected[key]),
                )
            )
        for peer in peers:
            peer.close()
    columns = [*ours, "tensorstore/1", "tensorstore/2", "zarr-python", "h5py"]
    print(f"\n## Compressed chunks, warm, {options.size}, ms (ratio: to the best peer)\n")
    print(table(rows, columns, ours, "none"), flush=True)
    save(Path(__file__).parents[1] / "results" / "chunks.jsonl", "chunks", rows)
