"""
`kill -9` at random moments: what was flushed stays, whatever is half done opens as old or new.

A child process writes numbered generations of blocks, flushes, and reports each flushed generation
through a pipe; the parent kills it at a random moment and looks at the file.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import outcore

KILLS = 50
BLOCKS = 16
ROWS = 64

WRITER = textwrap.dedent(
    """
    import sys
    import numpy as np
    import outcore

    path, blocks, rows, start = sys.argv[1], *map(int, sys.argv[2:5])
    array = outcore.open(path, "r+")
    print("ready", flush=True)
    for generation in range(start + 1, start + 100000):
        for block in range(blocks):
            array[block * rows : (block + 1) * rows] = generation
        array.flush()
        print(generation, flush=True)
    """
)


def _create(path: str, compressed: bool) -> None:
    options = {"chunks": (ROWS, 128), "compression": "zstd"} if compressed else {}
    with outcore.create(path, (BLOCKS * ROWS, 128), "<i8", **options) as array:
        array[...] = 0


@pytest.mark.parametrize(
    ("name", "compressed"), [("a.npy", False), ("a.zarr", True)], ids=["npy", "zarr-zstd"]
)
def test_kill_at_random_moments_loses_nothing_flushed(
    tmp_path: Path, name: str, compressed: bool
) -> None:
    """Every element is of the last flushed generation or of the one being written."""
    seed = int(os.environ.get("OUTCORE_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = str(tmp_path / name)
    _create(path, compressed)
    flushed = 0
    for _ in range(KILLS // 2):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(BLOCKS), str(ROWS), str(flushed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        reported = [int(line) for line in child.stdout.read().split() if line.isdigit()]
        child.stdout.close()
        child.wait()
        flushed = max([flushed, *reported])
        with outcore.open(path) as array:
            values = np.unique(array[...])
        assert values.min() >= flushed
        assert values.max() <= flushed + 1
        # A block is one chunk: written whole or not at all where chunks are replaced by rename.
        if compressed:
            with outcore.open(path) as array:
                for block in range(BLOCKS):
                    assert len(np.unique(array[block * ROWS : (block + 1) * ROWS])) == 1
        flushed = max(flushed, int(values.min()))
