"""
Question: what does it cost that ranks of one node agree, at the node barrier and in the MPI library?

Expected: tens of microseconds at the barrier, whatever the number of ranks; MPI is faster where each
rank has a core of its own, and spins. Held fair: the same processes, the same records (64 words,
one code), blocks of 50 calls in random order, medians of the slowest rank; MPI with the settings of
``tests/env``, which let others run while it waits.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RANKS = (2, 3, 4, 8, 16)
CALLS = 50


def run(options: Any) -> None:
    """Print microseconds per call; append raw figures to ``results/exchange.jsonl``."""
    from harness import Row, save

    loader = importlib.machinery.SourceFileLoader("x", str(ROOT / "x"))
    x = importlib.util.module_from_spec(importlib.util.spec_from_loader("x", loader))
    loader.exec_module(x)
    rows = []
    names = ("barrier", "allgather", "agree")
    heads = [f"{name} {who}" for name in names for who in ("node_barrier", "MPI")]
    print("\n| library | ranks | " + " | ".join(heads) + " |\n|---|---:|" + "---:|" * len(heads))
    for library in x.MPI_LIBRARIES:
        folder = x.mpi_setup(library)
        for ranks in RANKS:
            result = subprocess.run(
                [folder / "bin" / "mpiexec", "-n", str(ranks), sys.executable, __file__]
                + [str(max(options.repeat, 5))],
                env=x.mpi_environment(library, folder),
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
            row = Row(f"{library}, {ranks} ranks", 0, json.loads(result.stdout))
            cells = [f"{row.median(head) * 1e6:.1f}" for head in heads]
            print(f"| {library} | {ranks} | " + " | ".join(cells) + " |", flush=True)
            rows.append(row)
    save(ROOT / "bench" / "results" / "exchange.jsonl", "exchange", rows)


def rank(repeat: int) -> None:
    """One rank: seconds per call of the slowest rank, for each block."""
    import numpy as np
    from mpi4py import MPI

    from outcore.mpi import transport

    comm = MPI.COMM_WORLD
    node_barrier = transport(comm)
    record, table = np.zeros(64, np.int64), np.zeros((comm.size, 64), np.int64)
    one, most = np.zeros(1, np.int64), np.zeros(1, np.int64)
    calls = {
        "barrier node barrier": node_barrier.barrier,
        "barrier MPI": comm.Barrier,
        "allgather node barrier": lambda: node_barrier.allgather(record),
        "allgather MPI": lambda: comm.Allgather(record, table),
        "agree node barrier": lambda: node_barrier.agree(0),
        "agree MPI": lambda: comm.Allreduce(one, most, MPI.MAX),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = [name for name in calls for _ in range(repeat)]
    random.Random(0).shuffle(order)
    for name in [*calls, *order]:
        node_barrier.barrier()
        start = time.perf_counter()
        for _ in range(CALLS):
            calls[name]()
        took = np.array([int((time.perf_counter() - start) * 1e9)])
        seconds[name].append(float(node_barrier.allgather(took).max()) / 1e9 / CALLS)
    if comm.rank == 0:
        print(json.dumps({name: blocks[1:] for name, blocks in seconds.items()}))
        assert all(statistics.median(blocks) > 0 for blocks in seconds.values())


if __name__ == "__main__":
    rank(int(sys.argv[1]))
