"""
One rank of a call that may be killed: ``mpiexec -n N python step_rank.py FOLDER CALL VICTIM STEP``.

It says in the working folder how the call ended, in ``told-RANK``, how many steps it had, in
``steps-RANK``, and which memory MPI has given a name, in ``memory-RANK``. Step 0: nobody is killed.
"""

import os
import re
import signal
import sys
import traceback
from pathlib import Path

from mpi4py import MPI

from mpi.call_steps import Steps, constructors
from mpi.killed_calls import CALLS
from outcore.mpi import transport

#: How MPICH and Open MPI call memory that ranks of a node share.
NAMED = re.compile(r"/(mpich_shm_|sm_segment\.)")


def die(name):
    """As a process is that somebody else ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    folder, name, victim, step = sys.argv[1:]
    # Before they have synchronised, a dead rank is MPI's to notice.
    comm = transport(MPI.COMM_WORLD, warn=0.4)
    here, mine = Path.cwd(), comm.rank == int(victim)
    tell(here / f"memory-{comm.rank}", memory_of_mpi())
    constructors()
    try:
        with Steps(int(step) if mine else 0, die, together=True, started=True) as steps:
            CALLS[name].act(Path(folder), comm)
        told = "done"
    except BaseException:
        told = traceback.format_exc()
    tell(here / f"steps-{comm.rank}", str(len(steps.seen)))
    tell(here / f"told-{comm.rank}", told)
    if int(step):
        os._exit(0)  # how MPI ends without its dead ranks is not ours to say


def memory_of_mpi():
    """Files in memory that MPI leaves behind if its ranks are killed."""
    with open("/proc/self/maps") as maps:
        return "\n".join(sorted({line.split()[-1] for line in maps if NAMED.search(line)}))


def tell(path, text):
    """A file that is there when it is whole."""
    begun = Path(f"{path}.tmp")
    begun.write_text(text)
    begun.rename(path)


if __name__ == "__main__":
    main()
