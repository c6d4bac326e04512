"""
A sparse matrix that does not fit in memory, times a vector, again and again: ranks of pages.

The matrix is on disk by rows (CSR: where rows begin, columns, values). Its elements are edges from a
column to a row, of which the row is updated; so each is worked on once, in a block of rows. Look at the
change from step to step, and at the difference from the same steps in memory, which is none. (PASSION,
section 4.4: iterative solvers are its third example of irregular problems.)

    python examples/sparse.py                             20 000 pages, 2 MiB
    python examples/sparse.py --pages 3000000 --links 30 --memory 256MiB --picture ranks.png
    mpiexec -n 4 python examples/sparse.py                ranks share the rows
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import numpy as np

import outcore
from outcore.mpi import transport, world

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[Any]]

#: Who follows links does so with this probability, and else opens any page.
FOLLOWS = 0.85
#: Rows that are made at a time.
ROWS = 10_000
#: With so many pages all is done in memory, too, and compared.
IN_MEMORY = 100_000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--links", type=int, default=12, help="to each page, about")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--memory", default="2MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw the changes (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if comm.rank == 0:
        elements = make(words.pages, words.links)
        list_places(words.pages, elements)
    comm.barrier()
    with outcore.memory(words.memory):
        outcore.unstructured.edge_schedule(
            "matrix-places.npy",
            words.pages,
            updated=[0],
            bytes_per_node=16,
            bytes_per_edge=8,
            out="matrix-loop",
            comm=comm,
        ).close()
    changes: list[float] = []
    began = time.monotonic()
    with (
        outcore.memory(words.memory),
        outcore.unstructured.EdgeSchedule.open("matrix-loop") as schedule,
    ):
        for step in range(words.steps):
            old, new = f"pages{step % 2}.npy", f"pages{(step + 1) % 2}.npy"
            if comm.rank == 0:
                outcore.create(
                    new, data=np.full(words.pages, (1 - FOLLOWS) / words.pages), overwrite=True
                ).close()
            comm.barrier()
            outcore.unstructured.edge_loop(
                schedule,
                reads={"ranks": old},
                edge_data={"values": "matrix-values.npy"},
                updates={"after": new},
                kernel=multiply,
                comm=comm,
            )
            with outcore.open(old) as a, outcore.open(new) as b:
                changes.append(largest_change(a, b))
            comm.barrier()  # before `old` is made again
    if comm.rank == 0:
        seconds, size = time.monotonic() - began, 12 * schedule.edges * words.steps
        print(f"{words.steps} products with {schedule.edges} elements, {seconds:.1f} s")
        print(f"{size / seconds / 1e6:.0f} MB/s of the matrix, in {schedule.blocks} blocks")
        after = np.load(f"pages{words.steps % 2}.npy")
        print(f"largest change {changes[0]:.1e} at first, {changes[-1]:.1e} in the end")
        print(f"sum of all ranks: {after.sum():.9f}")
        if words.pages <= IN_MEMORY:
            difference = float(np.abs(in_memory(words.pages, words.steps) - after).max())
            print(f"largest difference from products in memory: {difference:.1e}")
        if words.picture:
            draw(changes, words.picture)


def multiply(edges: Integers, ranks: Floats, values: Floats, after: Floats) -> None:
    """Elements of the matrix, times those of the vector, into those of the product."""
    rows, columns = edges.T
    np.add.at(after, rows, values * ranks[columns])


def make(pages: int, links: int) -> int:
    """The matrix, a slab of rows after the other; how many elements it has. Every page has a link."""
    rng = np.random.default_rng(0)
    leaving = np.ones(pages, np.int64)  # each page has a link to the next
    begins = np.r_[0, rng.integers(1, 2 * links, pages).cumsum()]
    total = int(begins[-1])
    outcore.create("matrix-begins.npy", data=begins, overwrite=True).close()
    with outcore.create("matrix-columns.npy", (total,), "i4", overwrite=True) as columns:
        for low in range(0, pages, ROWS):
            high = min(low + ROWS, pages)
            # Few pages have links to many others, and each page has one from the page before it.
            chosen = (pages * rng.random(int(begins[high] - begins[low])) ** 2).astype(np.int32)
            chosen[begins[low:high] - begins[low]] = (np.arange(low, high) - 1) % pages
            columns[int(begins[low]) : int(begins[high])] = chosen
            leaving += np.bincount(chosen, minlength=pages)
        leaving -= 1
        with outcore.create("matrix-values.npy", (total,), "f8", overwrite=True) as values:
            for key, chosen in columns.blocks(0):
                values[key] = FOLLOWS / leaving[chosen]
    outcore.create("pages0.npy", data=np.full(pages, 1 / pages), overwrite=True).close()
    return total


def list_places(pages: int, elements: int) -> None:
    """Row and column of each element of a matrix by rows."""
    with (
        outcore.open("matrix-begins.npy") as begins,
        outcore.open("matrix-columns.npy") as columns,
        outcore.create("matrix-places.npy", (elements, 2), "i4", overwrite=True) as places,
    ):
        for low in range(0, pages, ROWS):
            ends = begins[low : low + ROWS + 1]
            some = slice(int(ends[0]), int(ends[-1]))
            places[some, 0] = np.repeat(np.arange(low, low + len(ends) - 1), np.diff(ends))
            places[some, 1] = columns[some]


def largest_change(a: outcore.DiskArray, b: outcore.DiskArray) -> float:
    """Between two vectors on disk."""
    return max(float(np.abs(data - b[key]).max()) for key, data in a.blocks(0))


def in_memory(pages: int, steps: int) -> Floats:
    """The same products, in NumPy."""
    places, values = np.load("matrix-places.npy"), np.load("matrix-values.npy")
    found = np.full(pages, 1 / pages)
    for _ in range(steps):
        added = np.zeros(pages)
        multiply(places, found, values, added)
        found = np.full(pages, (1 - FOLLOWS) / pages) + added
    return found


def draw(changes: list[float], picture: str) -> None:
    """The largest change of each step."""
    import matplotlib.pyplot as plt

    plt.semilogy(range(1, len(changes) + 1), changes, "o-")
    plt.xlabel("product")
    plt.ylabel("largest change")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
