"""
Ranks fill a file by rows, double it by columns, and look at it by rows: all of them together.

    mpiexec -n 4 python examples/columns.py --folder /shared     real ranks; needs mpi4py
    python examples/columns.py                                   ranks that are threads of this process

No rank wants a long run of the file when it comes to columns, and yet each byte crosses the disk once
each way, in large requests: that is what the calls that end in `_all` are for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import cast

import numpy as np

import outcore
from outcore.testing.sim import SimWorld

SHAPE = (2000, 512)


def work(
    path: Path, comm: outcore.mpi.Communicator | outcore.mpi.Transport
) -> outcore.mpi.CollectiveReport:
    """What each rank does; what the ranks agreed on for the columns."""
    with outcore.open(path, "w", comm=comm, shape=SHAPE, dtype="f8") as array:
        rank, size = array.transport.rank, array.transport.size
        first, last = SHAPE[0] * rank // size, SHAPE[0] * (rank + 1) // size
        rows, columns = np.s_[first:last], np.s_[:, rank::size]
        mine = np.arange(first * SHAPE[1], last * SHAPE[1], dtype="f8").reshape(-1, SHAPE[1])
        array.write_all(rows, mine)

        report = array.explain_all(columns, method="two-phase")
        array.write_all(columns, 2 * array.read_all(columns, method="two-phase"))
        array.flush_all()

        np.testing.assert_array_equal(array.read_all(rows), 2 * mine)
    return report


def world() -> outcore.mpi.Communicator:
    """The ranks of mpiexec."""
    from mpi4py import MPI  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    return cast(outcore.mpi.Communicator, MPI.COMM_WORLD)  # pyright: ignore[reportUnknownMemberType]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--folder", type=Path, help="that all ranks of mpiexec see; without, threads"
    )
    parser.add_argument("--ranks", type=int, default=4, help="so many threads")
    words = parser.parse_args()
    if words.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "columns.npy"
            reports = SimWorld(words.ranks).run(lambda comm: work(path, comm))
        print(reports[0])
    else:
        comm = world()
        report = work(words.folder / "columns.npy", comm)
        if comm.Get_rank():
            sys.exit()
        print(report)
    print("every element was compared")


if __name__ == "__main__":
    main()
