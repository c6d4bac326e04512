"""
Question: how fast are sections written, warm and cold, without and with fsync?

Expected: without fsync the page cache takes everything at copy speed, so the fewest copies and
system calls win; with fsync the device decides, and whole blocks written at depth win. Held fair:
the same value, the file allocated beforehand, the whole section compared afterwards. Each peer has
a file of its own, because the way of writing decides what becomes dirty and how the cache looks
afterwards; before each run that file is clean (fsync by another descriptor than the peer's). With
fsync, write and fsync are one time; outcore has been flushed after each write before, as then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from cases import shapes
from cases.sections import _calls, make_npy
from harness import Row, evict, interleave, save, table, warm
from peers import Peer, h5py_peer, memmap_peer, outcore_peer, pread_peer


def _rows(
    peers: list[Peer], keys: dict[str, Any], shape: Any, repeat: int, sync: bool, cold: bool
) -> list[Row]:
    rows = []
    for case, key in keys.items():
        counts = shapes.count(key, shape)
        value = np.random.default_rng(1).random(counts, dtype=np.float32)
        back = np.empty_like(value)
        few = [p for p in peers if p.name != "pread" or _calls(shape, key) < 200_000]

        def one(peer: Peer, key: Any = key, value: np.ndarray = value) -> None:
            assert peer.write is not None
            peer.write(key, value)
            if sync and peer.sync is not None:
                peer.sync()

        by_name = {p.name: p for p in few}

        def settle(name: str, by_name: Any = by_name) -> None:
            path = by_name[name].paths[0]
            if cold:
                # A mapping would keep its pages.
                by_name[name].extra.get("forget", lambda: None)()
                evict([path])
                return
            fd = os.open(path, os.O_RDWR)
            os.fsync(fd)
            os.close(fd)

        def check(
            name: str, key: Any = key, back: Any = back, value: Any = value, of: Any = by_name
        ) -> bool:
            of[name].read(key, back)
            return np.array_equal(back, value)

        for peer in few * 2 if sync else ():
            one(peer)
        name = case + (", cold" if cold else "") + (", fsync" if sync else "")
        rows.append(
            interleave(
                Row(name, value.nbytes),
                {p.name: (lambda p=p: one(p)) for p in few},
                repeat=repeat,
                before=settle,
                check=check,
            )
        )
    return rows


def _make_h5(path: Path, source: Path) -> None:
    import h5py

    if path.exists():
        return
    data = np.load(source, mmap_mode="r")
    with h5py.File(path, "w") as file:
        plain = file.create_dataset("plain", data.shape, data.dtype)
        for at in range(0, data.shape[0], 512):
            plain[at : at + 512] = data[at : at + 512]


def _blocks(n: int) -> dict[str, Any]:
    """Contiguous rows of 4 and 16 MB, and a square in the middle."""
    whole = slice(None)
    rows = {"4 MB of rows": (1 << 20) // n, "16 MB of rows": (4 << 20) // n}
    blocks = {name: (slice(n // 3, n // 3 + max(count, 1)), whole) for name, count in rows.items()}
    blocks["middle square"] = (slice(n // 4, n // 2), slice(n // 4, n // 2))
    return blocks


def run(options: Any) -> None:
    """Print the table; append raw figures to ``results/writes.jsonl``."""
    folder = Path(options.folder)
    n = {"quick": 4096, "1GiB": 16384, "4GiB": 32768}[options.size]
    files = {name: folder / f"written-{n}-{name}.npy" for name in ("outcore", "memmap", "pread")}
    for path in files.values():
        make_npy(path, (n, n))
    if options.others:
        files["h5py"] = folder / f"written-{n}.h5"
        _make_h5(files["h5py"], files["outcore"])
    # What was just written lies in the cache otherwise than what was read.
    evict(files.values())
    warm(files.values())
    peers = [outcore_peer(files["outcore"], t) for t in options.threads]
    peers += [memmap_peer(files["memmap"]), pread_peer(files["pread"])]
    if options.others:
        peers.append(h5py_peer(files["h5py"], "plain", "h5py"))
    chosen = ("T1.III", "T1.V", "T3.III", "T3.IV", "T5.II", "T5.IV")
    keys = {**shapes.common(n), **{k: v for k, v in shapes.paper(n).items() if k in chosen}}
    keys.update(_blocks(n))
    if options.only:
        keys = {k: v for k, v in keys.items() if any(o in k for o in options.only)}
    rows = []
    for cold in [c == "cold" for c in options.cache]:
        for sync in (False, True):
            rows += _rows(peers, keys, (n, n), options.repeat, sync, cold)
    ours = [f"outcore/{t}" for t in options.threads]
    print(f"\n## Writes, {options.size}, ms (ratio: to the best peer)\n")
    print(table(rows, [p.name for p in peers], ours, "none"), flush=True)
    save(Path(__file__).parents[1] / "results" / "writes.jsonl", "writes", rows)
    for peer in peers:
        peer.close()
