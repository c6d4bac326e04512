"""
One rank of a job that may be killed: ``mpiexec -n N python tests/mpi/killed_rank.py FOLDER CASE``.

It says its process in ``in-pid-RANK``, how the call ended in ``in-told-RANK``, and which memory MPI has
given a name in ``in-memory-RANK``.
"""

import os
import sys
import traceback

from mpi4py import MPI

import algorithm_runs
from mpi.step_rank import memory_of_mpi, tell
from outcore.compute.jobs import checkpoints
from outcore.mpi import transport


def main():
    folder, name = sys.argv[1:]
    os.chdir(folder)
    checkpoints._CHECKPOINT = 0.0
    # Before they have synchronised, a dead rank is MPI's to notice.
    comm = transport(MPI.COMM_WORLD)
    tell(f"in-memory-{comm.rank}", memory_of_mpi())
    tell(f"in-pid-{comm.rank}", str(os.getpid()))
    try:
        algorithm_runs.call(
            algorithm_runs.in_files(name, made=False),
            resume=True,
            comm=comm,
        )
    except BaseException:
        tell(f"in-told-{comm.rank}", traceback.format_exc())
        raise
    tell(f"in-told-{comm.rank}", "done")


if __name__ == "__main__":
    main()
