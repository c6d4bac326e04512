"""
Question: how fast are sections written, warm and cold, without and with fsync?

Expected: without fsync the page cache takes everything at copy speed, so the fewest copies and
system calls win; with fsync the device decides, and whole blocks written at depth win. Held fair:
the same value, the file allocated beforehand, the whole section compared afterwards. Each peer has
a file of its own, because the way of writing decides what becomes dirty and how the cache looks
afterwards, and because outcore writes otherwise into a file that nobody else has open; before each
run that file is clean (fsync by another descriptor than the peer's). With fsync, write and fsync
are one time; outcore has been flushed after each write before, as then, or has just been opened
(cold), with `Hints(sync=True)`: it cannot know yet. "device" is the disk alone: cold, it reads the
pages that are changed in part; with fsync, it writes all pages that are touched, directly and at
depth, and syncs, one after the other. It is no peer.
"exclusive" is outcore told that nobody else writes the file, which h5py takes for granted: both may
then read, change and write back what lies between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cases import shapes
from cases.sections import _calls, make_npy
from device import PAGE, Floor, changed, measured, requests
from harness import Row, evict, interleave, save, table, warm
from peers import Peer, file_runs, h5py_peer, memmap_peer, outcore_peer, pread_peer

Make = Callable[[], Peer]
HEADER = 128  # of a .npy file


def _device(path: Path, key: Any, shape: Any, sync: bool, cold: bool) -> Peer:
    """The disk alone, on a file of its own, which it spoils."""
    disk, runs = measured(path.parent), file_runs(shape, 4, key, HEADER)
    begin, end = changed(disk, *runs)
    floors = [Floor(path, begin, end)] if cold and len(begin) else []
    if sync:
        floors.append(Floor(path, *requests(disk, *runs, gap=PAGE), write=True))
    return Peer(
        "device",
        [path],
        lambda key, out: None,
        lambda key, value: [floor.run() for floor in floors],
        close=lambda: [floor.close() for floor in floors],
    )


def _rows(
    make: dict[str, Make],
    device: Path,
    keys: dict[str, Any],
    shape: Any,
    repeat: int,
    sync: bool,
    cold: bool,
) -> list[Row]:
    rows = []
    for case, key in keys.items():
        if sync or cold:
            make = {**make, "device": partial(_device, device, key, shape, sync, cold)}
        counts = shapes.count(key, shape)
        value = np.random.default_rng(1).random(counts, dtype=np.float32)
        back = np.empty_like(value)
        few = [name for name in make if name != "pread" or _calls(shape, key) < 200_000]
        peers = {name: make[name]() for name in few}

        def one(name: str, key: Any = key, value: np.ndarray = value, of: Any = peers) -> None:
            peer = of[name]
            assert peer.write is not None
            peer.write(key, value)
            if sync and peer.sync is not None:
                peer.sync()

        paths = {name: peer.paths[0] for name, peer in peers.items()}

        def settle(name: str, of: Any = peers, paths: Any = paths, make: Any = make) -> None:
            path = paths[name]
            if cold:
                of.pop(name).close()  # a mapping keeps its pages
                evict([path])
                of[name] = make[name]()
                return
            fd = os.open(path, os.O_RDWR)
            os.fsync(fd)
            os.close(fd)

        def check(
            name: str, key: Any = key, back: Any = back, value: Any = value, of: Any = peers
        ) -> bool:
            of[name].read(key, back)
            # The device alone gives no result.
            return name == "device" or np.array_equal(back, value)

        for first in few * 2 if sync and not cold else ():
            one(first)
        name = case + (", cold" if cold else "") + (", fsync" if sync else "")
        rows.append(
            interleave(
                Row(name, value.nbytes),
                {n: (lambda n=n, one=one: one(n)) for n in few},
                repeat=repeat,
                before=settle,
                check=check,
            )
        )
        while peers:  # no name may keep a peer, and with it a mapping, alive
            peers.popitem()[1].close()
        others = [rows[-1].median(n) for n in few if n in ("memmap", "pread", "h5py")]
        rows[-1].extra["best peer"] = min(others)
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
    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    ours = {f"outcore/{t}": t for t in options.threads}
    names = (*ours, "exclusive", "memmap", "pread")
    files = {name: folder / f"written-{n}-{name.replace('/', '-')}.npy" for name in names}
    device = folder / f"written-{n}-device.npy"
    for path in files.values():
        make_npy(path, (n, n))
    if not device.exists():  # it is no array any more once it was written
        make_npy(device, (n, n))
    if options.others:
        files["h5py"] = folder / f"written-{n}.h5"
        _make_h5(files["h5py"], files["memmap"])
    # What was just written lies in the cache otherwise than what was read.
    evict(files.values())
    warm(files.values())
    make: dict[str, Make] = {
        name: partial(outcore_peer, files[name], threads) for name, threads in ours.items()
    }
    alone = partial(outcore_peer, files["exclusive"], max(options.threads), exclusive=True)
    make["exclusive"] = alone
    make["memmap"] = partial(memmap_peer, files["memmap"])
    make["pread"] = partial(pread_peer, files["pread"])
    durable = {
        **{name: partial(make[name], sync=True) for name in ours},
        "exclusive": partial(alone, sync=True),
    }
    if options.others:
        make["h5py"] = partial(h5py_peer, files["h5py"], "plain", "h5py")
    chosen = ("T1.III", "T1.V", "T3.III", "T3.IV", "T5.II", "T5.IV")
    keys = {**shapes.common(n), **{k: v for k, v in shapes.paper(n).items() if k in chosen}}
    keys.update(_blocks(n))
    if options.only:
        keys = {k: v for k, v in keys.items() if any(o in k for o in options.only)}
    rows = []
    for cold in [c == "cold" for c in options.cache]:
        for sync in (False, True):
            peers = {**make, **durable} if sync and cold else make
            rows += _rows(peers, device, keys, (n, n), options.repeat, sync, cold)
    ours = [*(f"outcore/{t}" for t in options.threads), "exclusive"]
    print(f"\n## Writes, {options.size}, ms (ratio: to the best peer)\n")
    print(table(rows, [*make, "device"], ours, "best peer"), flush=True)
    save(Path(__file__).parents[1] / "results" / "writes.jsonl", "writes", rows)
