"""
A matrix product that does not fit in memory, by both papers' ways.

Slabs of rows (PASSION: each processor's share of GAXPY), and blocks with a tile of the result that
stays in memory (disk resident arrays). Look at the bytes that each moves beside those that any way
has to move, and at the time.

    python examples/products.py                           800 x 800, 2 MiB
    python examples/products.py --size 12288 --memory 512MiB --picture products.png
    mpiexec -n 4 python examples/products.py              ranks share the work
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import numpy as np

import outcore
from outcore.mpi import transport, world


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=800)
    parser.add_argument("--memory", default="2MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw bytes moved (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if comm.rank == 0:
        make(words.size)
    comm.barrier()
    moved: dict[str, float] = {}
    for method in ("slabs", "blocks"):
        planned: Any = outcore.matmul(
            "a.npy",
            "b.npy",
            method=method,
            out=f"{method}.npy",
            overwrite=True,
            memory=words.memory,
            comm=comm,
            explain=True,
        )
        planned.run().close()
        if comm.rank == 0:
            print(planned, "\n")
        done = planned.report.measured
        assert done is not None
        moved[method] = (done.read_bytes + done.written_bytes) / 1e6
        moved["must move"] = planned.report.lower_bound_bytes / 1e6
    if comm.rank == 0:
        with outcore.open("slabs.npy") as slabs, outcore.open("blocks.npy") as blocks:
            worst = max(
                float(np.abs(x - blocks[key]).max() / np.abs(x).max()) for key, x in slabs.blocks()
            )
        print(f"largest difference between both, relative: {worst:.1e}")
        if words.picture:
            draw(moved, words.picture)


def make(size: int) -> None:
    """Both matrices."""
    rng = np.random.default_rng(0)
    for name in ("a.npy", "b.npy"):
        with outcore.create(name, (size, size), "f8", overwrite=True) as matrix:
            for low in range(0, size, 256):
                matrix[low : low + 256] = rng.random((min(256, size - low), size))


def draw(moved: dict[str, float], picture: str) -> None:
    """What each has moved."""
    import matplotlib.pyplot as plt

    names = ["must move", "slabs", "blocks"]
    plt.bar(names, [moved[name] for name in names])
    plt.ylabel("MB moved")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
