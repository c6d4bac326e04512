"""
Question: how fast are sections written, warm, without and with fsync?

Expected: without fsync the page cache takes everything at copy speed, so the fewest copies and
system calls win; with fsync the device decides, and whole blocks written at depth win. Held fair:
the same value, the file allocated beforehand, the whole section compared afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cases import shapes
from cases.sections import _calls, make_npy, make_others
from harness import Row, interleave, save, table, warm
from peers import Peer, h5py_peer, memmap_peer, outcore_peer, pread_peer


def _rows(
    peers: list[Peer], keys: dict[str, Any], shape: Any, repeat: int, sync: bool
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

        def settle(name: str, few: list[Peer] = few) -> None:
            for peer in few:
                if peer.sync is not None:
                    peer.sync()

        by_name = {p.name: p for p in few}

        def check(
            name: str, key: Any = key, back: Any = back, value: Any = value, of: Any = by_name
        ) -> bool:
            of[name].read(key, back)
            return np.array_equal(back, value)

        rows.append(
            interleave(
                Row(case + (", fsync" if sync else ""), value.nbytes),
                {p.name: (lambda p=p: one(p)) for p in few},
                repeat=repeat,
                before=settle,
                check=check,
            )
        )
    return rows


def run(options: Any) -> None:
    """Print the table; append raw figures to ``results/writes.jsonl``."""
    folder = Path(options.folder)
    n = {"quick": 4096, "1GiB": 16384, "4GiB": 32768}[options.size]
    source = folder / f"written-{n}.npy"
    make_npy(source, (n, n))
    peers = [outcore_peer(source, t) for t in options.threads]
    peers += [memmap_peer(source), pread_peer(source)]
    if options.others:
        make_others(folder, source)
        peers.append(h5py_peer(source.with_suffix(".h5"), "plain", "h5py"))
    warm([source])
    chosen = ("T1.III", "T1.V", "T3.III", "T3.IV", "T5.II", "T5.IV")
    keys = {**shapes.common(n), **{k: v for k, v in shapes.paper(n).items() if k in chosen}}
    if options.only:
        keys = {k: v for k, v in keys.items() if any(o in k for o in options.only)}
    rows = _rows(peers, keys, (n, n), options.repeat, sync=False)
    rows += _rows(peers, keys, (n, n), options.repeat, sync=True)
    ours = [f"outcore/{t}" for t in options.threads]
    print(f"\n## Writes, {options.size}, ms (ratio: to the best peer)\n")
    print(table(rows, [p.name for p in peers], ours, "none"), flush=True)
    save(Path(__file__).parents[1] / "results" / "writes.jsonl", "writes", rows)
    for peer in peers:
        peer.close()
