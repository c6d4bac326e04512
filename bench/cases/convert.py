"""
Question: how near is `convert` to the slower of reading and writing, at a budget of 256 MiB?

Expected: uncompressed formats stream; the rate is the device's. Held fair: the source is cold, the
destination durable at the end; beside it a plain buffered copy of the bytes with fsync.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from cases.sections import make_npy
from harness import Row, evict, interleave, save, table, touch


def _plain_copy(source: Path, target: Path) -> None:
    with source.open("rb", buffering=0) as src, target.open("wb", buffering=0) as dst:
        buffer = memoryview(bytearray(8 << 20))
        while n := src.readinto(buffer):
            dst.write(buffer[:n])
        os.fsync(dst.fileno())


def run(options: Any) -> None:
    """Print the table; append raw figures to ``results/convert.jsonl``."""
    import outcore

    folder = Path(options.folder)
    n = {"quick": 4096, "256MiB": 8192, "1GiB": 16384, "4GiB": 32768}[options.size]
    source = folder / f"square-{n}.npy"
    make_npy(source, (n, n))
    reference = np.load(source, mmap_mode="r")[:: n // 64, :: n // 64].copy()
    targets = {
        "npy to raw copy (cp)": None,
        "npy to npy": ("to.npy", {}),
        "npy to npy, order F": ("to_f.npy", {"order": "F"}),
        "npy to h5 contiguous": ("to.h5::/a", {}),
        "npy to zarr 1024 x 1024": ("to.zarr", {"chunks": (1024, 1024), "compression": "none"}),
    }

    def clean() -> None:
        for name in ("to.npy", "to_f.npy", "to.h5", "copy"):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "to.zarr", ignore_errors=True)

    rows = []
    for case, target in targets.items():

        def one(target: Any = target) -> None:
            if target is None:
                _plain_copy(source, folder / "copy")
            else:
                outcore.convert(source, str(folder / target[0]), **target[1])

        def before(_name: str) -> None:
            clean()
            os.sync()
            evict([source])
            touch(256 << 20)

        def check(_name: str, target: Any = target) -> bool:
            if target is None:
                return True
            with outcore.open(folder / target[0]) as made:
                return np.array_equal(made[:: n // 64, :: n // 64], reference)

        with outcore.memory("256 MiB"):
            row = interleave(
                Row(case, n * n * 4),
                {"time": one},
                repeat=options.repeat,
                before=before,
                check=check,
            )
        row.extra["MB/s"] = n * n * 4 / 1e6 / row.median("time")
        rows.append(row)
        clean()
    print(f"\n## Convert, cold source, durable result, budget 256 MiB, {options.size}\n")
    print(table(rows, ["time"], [], "none"))
    for row in rows:
        print(f"{row.case}: {row.extra['MB/s']:.0f} MB/s")
    save(Path(__file__).parents[1] / "results" / "convert.jsonl", "convert", rows)
