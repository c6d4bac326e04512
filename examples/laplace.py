"""
Laplace's equation on a square that does not fit in memory, by Jacobi's method.

The upper edge is held at 1, the others at 0; each step replaces a point by the mean of its four
neighbours, until no point changes by more than the tolerance. Look at the number of passes over the
file, which is far smaller than the number of steps: as many steps as the memory allows are made while
the array goes by once. (PASSION, Table 3; extended two-phase, section 5.2.)

    python examples/laplace.py                            400 x 400, 1 MiB
    python examples/laplace.py --size 20000 --memory 512MiB --steps 1000 --picture laplace.png
    mpiexec -n 4 python examples/laplace.py               ranks share the work
"""

# matplotlib is an extra, and does not type all that it offers.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import outcore
from outcore.mpi import transport, world

WEIGHTS = [[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--memory", default="1MiB")
    parser.add_argument("--steps", type=int, default=30_000, help="at most")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--picture", metavar="FILE", help="draw the solution (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if comm.rank == 0:
        with outcore.create(
            "laplace-start.npy", (words.size, words.size), "f8", overwrite=True
        ) as start:
            start[0] = 1.0
    comm.barrier()
    made: list[tuple[int, float]] = []

    def tell(step: int, change: float) -> None:
        made.append((step, change))

    began = time.monotonic()
    planned: Any = outcore.stencil(
        "laplace-start.npy",
        WEIGHTS,
        steps=words.steps,
        boundary="untouched",
        until=words.tolerance,
        callback=tell,
        memory=words.memory,
        out="laplace.npy",
        overwrite=True,
        comm=comm,
        explain=True,
    )
    solution = planned.run()
    if comm.rank == 0:
        print(planned)
        step, change = made[-1]
        done = planned.report.measured
        moved, alone = done.read_bytes + done.written_bytes, 2 * step * solution.nbytes
        print(f"{step} steps, largest change {change:.2e}, {time.monotonic() - began:.1f} s")
        print(f"moved {moved / 1e6:.0f} MB; step by step it would be {alone / 1e6:.0f} MB")
        middle = solution[words.size // 10, words.size // 2]
        print(f"a tenth below the hot edge, in the middle: {middle:.4f}")
        if words.picture:
            draw(solution, words.picture)
    solution.close()


def draw(solution: outcore.DiskArray, picture: str) -> None:
    """Every so many points."""
    import matplotlib.pyplot as plt

    every = max(solution.shape[0] // 500, 1)
    plt.imshow(solution[::every, ::every], cmap="inferno")
    plt.colorbar(label="potential")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
