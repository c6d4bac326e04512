"""
Linear equations whose matrix does not fit in memory: LU factors with partial pivoting, then solve.

Look at the residual, which is that of LAPACK in memory, and at the bytes beside the bound.

    python examples/linear_equations.py                   600 x 600, 2 MiB
    python examples/linear_equations.py --size 12000 --memory 512MiB --picture residual.png
    mpiexec -n 4 python examples/linear_equations.py      ranks share the work
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
    parser.add_argument("--size", type=int, default=600)
    parser.add_argument("--memory", default="2MiB")
    parser.add_argument("--picture", metavar="FILE", help="draw the residual (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if comm.rank == 0:
        make(words.size)
    comm.barrier()
    how: Any = {"memory": words.memory, "comm": comm}
    wanted = np.random.default_rng(1).random(words.size)
    right = outcore.matmul("matrix.npy", wanted, out=np.empty(words.size), **how)
    planned: Any = outcore.linalg.lu_factor(
        "matrix.npy", out=("lu.npy", "pivots.npy"), overwrite=True, explain=True, **how
    )
    lu, pivots = planned.run()
    x = outcore.linalg.lu_solve((lu, pivots), right, out=np.empty(words.size), **how)
    residual = outcore.matmul("matrix.npy", x, out=np.empty(words.size), **how) - right
    if comm.rank == 0:
        print(planned)
        print(f"residual {np.abs(residual).max():.1e}, error of x {np.abs(x - wanted).max():.1e}")
        if words.picture:
            draw(residual, words.picture)
    for array in (lu, pivots):
        array.close()


def make(size: int) -> None:
    """The matrix, by columns, as it will be read."""
    rng = np.random.default_rng(0)
    with outcore.create("matrix.npy", (size, size), "f8", order="F", overwrite=True) as matrix:
        for low in range(0, size, 256):
            matrix[:, low : low + 256] = rng.random((size, min(256, size - low))) - 0.5


def draw(residual: Any, picture: str) -> None:
    """The residual of each equation."""
    import matplotlib.pyplot as plt

    plt.semilogy(np.abs(residual) + 1e-18)
    plt.xlabel("equation")
    plt.ylabel("residual")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
