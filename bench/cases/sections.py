"""
Question: how fast is any section, beside every other way to it, warm and cold?

Expected: warm, a strided copy out of a mapping is at memory speed and the second core is what there
is to win; cold, queue depth and reading only the blocks that are needed decide. Held fair: the same
bytes (one array stored as `.npy`, HDF5 contiguous and chunked, Zarr uncompressed), the result
buffer is given where the peer can take one, every result compared with the array's formula.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np

from cases import shapes
from device import Floor, measured, requests, seconds
from harness import Row, evict, interleave, save, table, touch, warm
from peers import (
    Peer,
    file_runs,
    h5py_peer,
    memmap_peer,
    outcore_peer,
    pread_peer,
    tensorstore_peer,
    zarr_peer,
)


def make_npy(path: Path, shape: tuple[int, ...]) -> None:
    """An array whose element is a hash of its index, written slab by slab."""
    if path.exists() and np.load(path, mmap_mode="r").shape == shape:
        return
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    flat = mapped.reshape(-1)
    step = 1 << 24
    for at in range(0, flat.size, step):
        index = np.arange(at, min(at + step, flat.size), dtype=np.uint64)
        flat[at : at + step] = ((index * np.uint64(2654435761)) >> np.uint64(7)) & np.uint64(
            0xFFFFF
        )
    mapped.flush()


def make_others(folder: Path, source: Path, chunk: int = 512) -> None:
    """The same array as HDF5 (contiguous, chunked) and Zarr v3 (uncompressed)."""
    import h5py
    import zarr

    data = np.load(source, mmap_mode="r")
    h5 = folder / (source.stem + ".h5")
    if not h5.exists():
        with h5py.File(h5, "w") as file:
            plain = file.create_dataset("plain", data.shape, data.dtype)
            cut = tuple(min(chunk, n) for n in data.shape)
            chunked = file.create_dataset("chunked", data.shape, data.dtype, chunks=cut)
            for at in range(0, data.shape[0], chunk):
                plain[at : at + chunk] = data[at : at + chunk]
                chunked[at : at + chunk] = data[at : at + chunk]
    store = folder / (source.stem + ".zarr")
    if not store.exists():
        cut = tuple(min(chunk, n) for n in data.shape)
        array = zarr.create_array(
            store, shape=data.shape, chunks=cut, dtype=data.dtype, compressors=None
        )
        for at in range(0, data.shape[0], chunk):
            array[at : at + chunk] = data[at : at + chunk]


def _peers(folder: Path, source: Path, threads: list[int], others: bool) -> list[Peer]:
    peers = [outcore_peer(source, t) for t in threads] + [memmap_peer(source), pread_peer(source)]
    if others:
        h5 = folder / (source.stem + ".h5")
        store = folder / (source.stem + ".zarr")
        peers += [
            h5py_peer(h5, "plain", "h5py"),
            h5py_peer(h5, "chunked", "h5py chunked"),
            zarr_peer(store),
            tensorstore_peer(store),
        ]
    return peers


def _warm_rows(peers: list[Peer], keys: dict[str, Any], shape: Any, repeat: int) -> list[Row]:
    rows = []
    for peer in peers:
        warm(peer.paths)
    judge = next(p for p in peers if p.name == "memmap")
    for case, key in keys.items():
        out = np.empty(shapes.count(key, shape), dtype=np.float32)
        expected = np.empty_like(out)
        judge.read(key, expected)
        # pread per run pays one call per element on strided rows: minutes, and no news.
        few = [p for p in peers if p.name != "pread" or _calls(shape, key) < 2_000_000]
        for peer in few:  # fault in mappings, caches and code, as a second use would find them
            peer.read(key, out)

        def spoil(name: str, out: np.ndarray = out) -> None:
            out.fill(-1)

        rows.append(
            interleave(
                Row(case, out.nbytes),
                {p.name: (lambda p=p, key=key, out=out: p.read(key, out)) for p in few},
                repeat=repeat,
                before=spoil,
                check=lambda name, out=out, expected=expected: np.array_equal(out, expected),
            )
        )
    return rows


def _calls(shape: tuple[int, ...], key: Any) -> int:
    return int(np.prod(file_runs(shape, 4, key, 0)[0], dtype=np.int64))


def _cold_rows(
    folder: Path, source: Path, threads: list[int], keys: dict[str, Any], shape: Any, repeat: int
) -> list[Row]:
    """Each candidate is opened anew, so that no mapping keeps pages in the cache."""
    device = measured(folder)
    rows = []
    base = np.load(source, mmap_mode="r").offset
    for case, key in keys.items():
        expected = np.array(np.load(source, mmap_mode="r")[key])
        out = np.empty_like(expected)
        runs = file_runs(shape, 4, key, base)
        begin, end = requests(device, *runs)
        model, needed = seconds(device, begin, end), int((end - begin).sum())
        extra = {"model": model, "requests": len(begin), "needed": needed}
        row = Row(case, out.nbytes, extra=extra)
        floor = Floor(source, begin, end)
        makers = {f"outcore/{t}": (lambda t=t: outcore_peer(source, t)) for t in threads}
        makers["memmap"] = lambda: memmap_peer(source)
        if _calls(shape, key) < 100_000:
            makers["pread"] = lambda: pread_peer(source)
        opened: dict[str, Peer] = {}

        def before(name: str, makers: Any = makers, opened: Any = opened, out: Any = out) -> None:
            while opened:  # no name may keep a peer, and with it a mapping, alive
                opened.popitem()[1].close()
            gc.collect()
            evict([source])
            out.fill(-1)
            touch(64 << 20)
            opened[name] = makers[name]()

        calls: dict[str, Any] = {
            n: (lambda n=n, key=key, out=out, opened=opened: opened[n].read(key, out))
            for n in makers
        }
        makers["device"] = lambda path=source: Peer("device", [path], lambda key, out: None)
        calls["device"] = floor.run
        interleave(
            row,
            calls,
            repeat=repeat,
            before=before,
            # The device alone gives no result.
            check=lambda name, out=out, expected=expected: (
                name == "device" or np.array_equal(out, expected)
            ),
        )
        floor.close()
        row.extra["device"] = row.median("device")
        while opened:
            opened.popitem()[1].close()
        gc.collect()
        row.seconds["model"] = [model]
        rows.append(row)
    return rows


def run(options: Any) -> None:
    """Print the tables; append raw figures to ``results/sections.jsonl``."""
    folder = Path(options.folder)
    results = Path(__file__).parents[1] / "results" / "sections.jsonl"
    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    side3, side4 = {
        "quick": (256, 64),
        "256MiB": (400, 90),
        "1GiB": (640, 128),
        "4GiB": (1024, 181),
    }[options.size]
    threads = options.threads
    square = folder / f"square-{n}.npy"
    make_npy(square, (n, n))

    def wanted(keys: dict[str, Any]) -> dict[str, Any]:
        only = options.only
        return {k: v for k, v in keys.items() if not only or any(o in k for o in only)}

    keys = wanted({**shapes.common(n), **shapes.paper(n)})
    ours = [f"outcore/{t}" for t in threads]
    if "warm" in options.cache:
        if options.others:
            make_others(folder, square)
        peers = _peers(folder, square, threads, options.others)
        rows = _warm_rows(peers, keys, (n, n), options.repeat)
        names = [p.name for p in peers]
        for peer in peers:
            peer.close()
        del peers
        gc.collect()
        for path, shape, more in (
            (folder / f"cube-{side3}.npy", (side3,) * 3, wanted(shapes.cube(side3))),
            (folder / f"hyper-{side4}.npy", (side4,) * 4, wanted(shapes.hyper(side4))),
        ):
            if not more:
                continue
            make_npy(path, shape)
            extra = _peers(folder, path, threads, False)
            rows += _warm_rows(extra, more, shape, options.repeat)
            for peer in extra:
                peer.close()
        print(f"\n## Warm, {options.size}, ms (ratio: to the best peer)\n")
        print(table(rows, names, ours, "none"), flush=True)
        save(results, "sections warm", rows)
    if "cold" in options.cache:
        rows = _cold_rows(folder, square, threads, keys, (n, n), options.repeat)
        columns = [*ours, "memmap", "pread", "model", "device"]
        print(f"\n## Cold, {options.size}, ms (ratio: to the device in the same run)\n")
        print(table(rows, columns, ours, "device"), flush=True)
        save(results, "sections cold", rows)
