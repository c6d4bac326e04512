"""
Question: what does a tiny section cost, beside memmap?

Expected: a few microseconds of Python and one system call. Held fair: the same warm file, the same
keys in the same order, a new result array from each.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from cases.sections import make_npy
from harness import Row, save, warm


def run(options: Any) -> None:
    """Print microseconds per read; append raw figures to ``results/latency.jsonl``."""
    import outcore

    n = 4096
    path = Path(options.folder) / f"square-{n}.npy"
    make_npy(path, (n, n))
    warm([path])
    mapped = np.load(path, mmap_mode="r")
    array = outcore.open(path)
    keys = {
        "one element": lambda i: (i, i),
        "1000 contiguous": lambda i: (i, slice(0, 1000)),
        "1000 strided by 4": lambda i: (i, slice(0, 4000, 4)),
        "1000 of a column": lambda i: (slice(i, i + 1000), i),
        "32 x 32": lambda i: (slice(i, i + 32), slice(i, i + 32)),
    }
    rows = []
    print("\n| case | outcore us | memmap us | difference us |\n|---|---:|---:|---:|")
    for case, key in keys.items():
        chosen = [key(i) for i in range(0, 3000, 3)]
        row = Row(case, 4000)
        for k in chosen[:50]:
            assert np.array_equal(np.array(mapped[k]), array[k])
        for _ in range(max(options.repeat, 5)):
            for name, read in (("outcore", array.__getitem__), ("memmap", mapped.__getitem__)):
                start = time.perf_counter()
                for k in chosen:
                    value = read(k)
                    if name == "memmap":  # a view so far
                        np.array(value)
                row.seconds.setdefault(name, []).append((time.perf_counter() - start) / len(chosen))
        ours, theirs = row.median("outcore") * 1e6, row.median("memmap") * 1e6
        print(f"| {case} | {ours:.2f} | {theirs:.2f} | {ours - theirs:.2f} |")
        rows.append(row)
    save(Path(__file__).parents[1] / "results" / "latency.jsonl", "latency", rows)
