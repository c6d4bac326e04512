"""
Question: does outcore choose the fastest of its own methods, also in the first access of a process?

Expected: a new process has no page tables of the file and no memory that has been used; a method that
needs them costs more there than later. So each method is forced in processes of its own, beside what
is chosen (``auto``) and beside the library whose format it is. Held fair: one access a process for
``fresh``, the median of later ones for ``used``; cold files are evicted before each access, and opened
anew. Candidates by turns in random order, medians, results of all candidates equal. The memory of
the result is in place.
Target: at most 1.2 x the best forced method, in rows of 10 ms and more.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))

METHODS = ("straight", "window", "mapped", "list")
CHUNK = (512, 1024)  # 2 MiB of float32
LATER = 3
# A method that takes so many times as long as another one, fresh and used, is not run again.
FAR = 4.0
TARGET, COUNTS = 1.2, 10.0


def keys(n: int) -> dict[str, dict[str, tuple[slice, ...]]]:
    """Sections of each format, on an n x n array."""
    whole = slice(None)
    every = {
        "a[::64]": (slice(None, None, 64), whole),
        "a[::7, ::5]": (slice(None, None, 7), slice(None, None, 5)),
    }
    column = (whole, slice(n // 3, n // 3 + 1))
    return {
        "npy": {
            "column": column,
            "ten columns": (whole, slice(n // 3, n // 3 + 10)),
            "strided window": (slice(n // 8, n // 2, 2), slice(n // 8, n // 2, 3)),
            "a[::7, ::5]": every["a[::7, ::5]"],
            "block of rows": (slice(n // 4, n // 2), whole),
        },
        "zarr": {
            **every,
            "a[:, ::512]": (whole, slice(None, None, 512)),
            "a[:, ::64]": (whole, slice(None, None, 64)),
        },
        "h5": {"a[::64]": every["a[::64]"], "column": column},
    }


def make(source: Path, kind: str) -> Path:
    """The array in another format, its chunks not compressed; made if it is not there."""
    import outcore

    path = source.with_name(f"{source.stem}-2MiB.{kind}")
    if kind == "npy" or path.exists():
        return source if kind == "npy" else path
    values, how = np.load(source, mmap_mode="r"), {"chunks": CHUNK, "compression": None}
    with outcore.create(
        path, shape=values.shape, dtype=values.dtype, overwrite=True, **how
    ) as array:
        for at in range(0, len(values), CHUNK[0]):
            array[at : at + CHUNK[0]] = values[at : at + CHUNK[0]]
    return path


# -------------------------------------------------------------------------------- one process


def opened(kind: str, path: Path, name: str) -> Any:
    """A candidate."""
    import peers

    if name == "auto" or name in METHODS:
        return peers.outcore_peer(path, 2, **({} if name == "auto" else {"method": name}))
    if kind == "npy":
        return peers.memmap_peer(path)
    if kind == "zarr":
        return peers.tensorstore_peer(path)
    import h5py

    with h5py.File(path) as file:
        dataset = next(iter(file))
    return peers.h5py_peer(path, dataset, "h5py", "r")


def process(words: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first access of this process and of a later one; what was chosen."""
    from harness import evict, touch

    kind, path, name, cold = words["kind"], Path(words["path"]), words["name"], words["cold"]
    key = tuple(slice(*axis) for axis in words["key"])
    out = np.full([len(range(n)[s]) for n, s in zip(words["shape"], key, strict=True)], -1, "f4")
    touch(64 << 20)
    if cold:
        evict([path])
    peer, found = opened(kind, path, name), []
    for turn in range(1 + (1 if cold else LATER)):
        if turn and cold:
            peer.close()
            del peer
            evict([path])
            peer = opened(kind, path, name)
        start = time.perf_counter(), time.process_time()
        peer.read(key, out)
        found.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    method = peer.extra["array"].explain(key).method if "array" in peer.extra else ""
    wall, cpu = ([one[0], statistics.median(one[1:])] for one in zip(*found, strict=True))
    return {"seconds": wall, "cpu": cpu, "method": method, "sum": zlib.crc32(out)}


# ------------------------------------------------------------------------------- all processes


def _run(words: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, __file__, json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{words['name']}, {words['kind']}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def _rows(case: str, words: dict[str, Any], peer: str, repeat: int) -> list[Any]:
    """Two rows: the first access of a process, and a later one."""
    from harness import Row, files_of, warm

    ranges = [range(n)[slice(*s)] for n, s in zip(words["shape"], words["key"], strict=True)]
    nbytes = 4 * len(ranges[0]) * len(ranges[1])
    state = "cold" if words["cold"] else "warm"
    rows = [Row(f"{case}, {when}, {state}", nbytes) for when in ("fresh", "used")]
    names, rng, sums = ["auto", *METHODS, peer], random.Random(0), set()
    if not words["cold"]:
        warm(files_of([Path(words["path"])]))
    for _ in range(repeat):
        rng.shuffle(names)
        times = {name: min(row.median(name) for row in rows) for name in names}
        for name in (n for n in names if not FAR * min(times.values()) < times[n] < np.inf):
            found = _run({**words, "name": name})
            sums.add(found["sum"])
            for row, spent, cpu in zip(rows, found["seconds"], found["cpu"], strict=True):
                row.seconds.setdefault(name, []).append(spent)
                row.extra.setdefault("cpu", {}).setdefault(name, []).append(cpu)
                if name == "auto":
                    row.extra["method"] = found["method"]
    if len(sums) > 1:
        raise SystemExit(f"{case}: candidates do not agree")
    return rows


def run(options: Any) -> None:
    """Print a table; append raw figures to ``results/forced.jsonl``."""
    from cases.sections import make_npy
    from harness import save

    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    source = Path(options.folder) / f"square-{n}.npy"
    make_npy(source, (n, n))
    heads = ["case", "chosen", "auto", *METHODS, "peer", "/ best method", "/ peer"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    lost = []
    for kind, sections in keys(n).items():
        peer = {"npy": "memmap", "zarr": "tensorstore", "h5": "h5py"}[kind]
        for name, key in sections.items():
            case = f"{kind} {name}"
            if options.only and not any(part in case for part in options.only):
                continue
            words = {"kind": kind, "path": str(make(source, kind)), "shape": (n, n)}
            words["key"] = [[s.start, s.stop, s.step] for s in key]
            for cold in (c == "cold" for c in options.cache):
                rows = _rows(case, {**words, "cold": cold}, peer, options.repeat)
                save(options.results / "forced.jsonl", "forced", rows)
                for row in rows:
                    ms = {c: row.median(c) * 1e3 for c in ("auto", *METHODS, peer)}
                    ratio = ms["auto"] / min(ms[m] for m in METHODS)
                    cells = [row.case, row.extra["method"], *(f"{v:.1f}" for v in ms.values())]
                    cells += [f"{ratio:.2f}", f"{ms['auto'] / ms[peer]:.2f}"]
                    lines.append("| " + " | ".join(cells) + " |")
                    print(lines[-1], flush=True)
                    if ratio > TARGET and ms["auto"] >= COUNTS:
                        lost.append(row.case)
    print(f"\n## Forced methods, {options.size}, ms\n\n" + "\n".join(lines))
    print(f"\nabove {TARGET} of the best method:", ", ".join(lost) or "none", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OUTCORE_LEARN_DISKS", "0")  # processes do not learn of each other
    print(json.dumps(process(json.loads(sys.argv[1]))))
