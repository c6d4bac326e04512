"""What test_unstructured_peak.py runs in a process of its own: its high-water mark before and after."""

import re
import sys
from pathlib import Path

import numpy as np

import outcore

SIDE = 1400  # nodes: 2 million; edges: 6 million


def make(folder):
    """A grid with diagonals: points, edges, a value for each node; made by rows."""
    nodes, edges = SIDE * SIDE, 3 * SIDE * (SIDE - 1) - SIDE + 1
    rng, filled = np.random.default_rng(0), 0
    points = outcore.create(folder / "points.npy", (nodes, 2), "f8")
    listed = outcore.create(folder / "edges.npy", (edges, 2), "i8")
    for row in range(SIDE):
        own = np.arange(row * SIDE, (row + 1) * SIDE)
        points[own] = np.stack([np.arange(SIDE), np.full(SIDE, row)], axis=1) + rng.random(
            (SIDE, 2)
        )
        found = [np.stack([own[:-1], own[1:]], axis=1)]
        if row + 1 < SIDE:
            found.append(np.stack([own, own + SIDE], axis=1))
            found.append(np.stack([own[:-1], own[1:] + SIDE], axis=1))
        some = np.concatenate(found)
        listed[filled : filled + len(some)] = some
        filled += len(some)
    assert filled == edges
    outcore.create(folder / "y.npy", data=rng.random(nodes)).close()
    outcore.create(folder / "x.npy", (nodes,), "f8").close()
    points.close()
    listed.close()


def high():
    """The high-water mark of this program alone; `getrusage` starts with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def work(folder, budget):
    def sweep(edges, x, y):
        a, b = edges.T
        np.add.at(x, a, y[b])
        np.add.at(x, b, y[a])

    with outcore.memory(budget):
        for method in ("rcb", "hilbert"):
            with outcore.unstructured.partition(
                folder / "points.npy", 100, method=method
            ) as partition:
                outcore.unstructured.edge_schedule(
                    folder / "edges.npy",
                    SIDE * SIDE,
                    partition=partition,
                    bytes_per_node=16,
                    out=folder / "loop",
                ).close()
        with outcore.unstructured.EdgeSchedule.open(folder / "loop") as schedule:
            outcore.unstructured.edge_loop(
                schedule,
                reads={"y": folder / "y.npy"},
                updates={"x": folder / "x.npy"},
                kernel=sweep,
            )


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if sys.argv[2] == "make":
        make(where)
    else:
        before = high()
        work(where, int(sys.argv[2]))
        print(high() - before)
