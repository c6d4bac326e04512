"""
Heat in a plate, step by step in memory, with checkpoints that are written while the steps go on.

The plate is divided over the ranks in blocks of rows, with a ghost row on either side. Every few steps
`outcore.mpi.icheckpoint` copies the rows and starts to write them; the next steps do not wait for it.
After a crash or a kill the program goes on from the last checkpoint that is whole, on any number of
ranks and comes to the same bits. (PASSION, section 4.3, for the ghosts; Disk Resident Arrays for
checkpoints.)

    python examples/heat_steps.py                          200 x 200, 60 steps
    mpiexec -n 4 python examples/heat_steps.py --size 4000 --steps 1000 --every 100
    mpiexec -n 2 python examples/heat_steps.py --size 4000 --steps 1000 --every 100 --resume
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

STATE = "heat-state"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--stop-after", type=int, metavar="STEP", help="end there, as if killed")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--check", action="store_true", help="compare with one process")
    parser.add_argument("--picture", metavar="FILE", help="draw the plate (needs matplotlib)")
    words = parser.parse_args(arguments)
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    comm = transport(world())  # all ranks under mpiexec, else this process

    shape = words.size, words.size
    rows = outcore.mpi.Distribution(shape, ["block", "*"], comm.size)
    plate = outcore.mpi.DistArray.zeros(rows, transport=comm, ghosts=[1, 0])
    plate.local[:, 0] = 1.0  # the left edge is hot, and stays so
    first = 0
    if words.resume:
        first = outcore.mpi.restore(STATE, into={"plate": plate}, comm=comm)["step"]
    began, waited, written = time.monotonic(), 0.0, None
    for step in range(first, words.steps):
        if step == words.stop_after:
            return
        plate.update_ghosts_all()
        advance(plate.local)
        if (step + 1) % words.every == 0:
            start = time.monotonic()
            if written is not None:
                written.wait()  # one in flight at a time: its copy takes memory
            waited += time.monotonic() - start
            written = outcore.mpi.icheckpoint(STATE, {"plate": plate, "step": step + 1})
    if written is not None:
        written.wait()
    whole: Any = plate.gather_all(0)
    if comm.rank == 0:
        print(f"from step {first} to {words.steps}, {time.monotonic() - began:.1f} s")
        print(f"waited for checkpoints, {waited:.2f} s")
        print(f"mean of the plate: {whole.mean():.6f}")
        if words.check:
            alone = np.zeros(shape)
            alone[:, 0] = 1.0
            for _ in range(words.steps):
                advance(alone)
            print(f"largest difference from one process: {np.abs(whole - alone).max():.1e}")
        if words.picture:
            draw(whole, words.picture)


def advance(rows: Any) -> None:
    """One step: every point but those at the rim becomes the mean of its four neighbours."""
    around = rows[:-2, 1:-1] + rows[2:, 1:-1] + rows[1:-1, :-2] + rows[1:-1, 2:]
    rows[1:-1, 1:-1] = 0.25 * around


def draw(plate: Any, picture: str) -> None:
    """Every so many points."""
    import matplotlib.pyplot as plt

    every = max(plate.shape[0] // 500, 1)
    plt.imshow(plate[::every, ::every], cmap="inferno")
    plt.colorbar(label="temperature")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
