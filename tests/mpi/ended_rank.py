"""
One rank of a job that ends while the others go on: ``mpiexec -n 2 python tests/mpi/ended_rank.py CASE``.

The last rank does what the case says, between two collective calls.
"""

import multiprocessing
import sys
import threading
import time

import numpy as np

import outcore


def fail():
    raise ValueError("this rank failed")


def fail_in_thread():
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def show():
    """A program that shows an error by itself, and goes on."""
    try:
        fail()
    except ValueError:
        sys.excepthook(*sys.exc_info())


def fork():
    """MPI does not bear a child that comes to the end of Python; those of multiprocessing do not."""
    child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(5,))
    child.start()
    child.join()


#: What the last rank does, and what the others do then: make a call, wait in MPI, or nothing.
CASES = {
    "raise, others call": (fail, "call"),
    "raise, others compute": (fail, "compute"),
    "raise, others in MPI": (fail, "MPI"),
    "exit(3), others call": (lambda: sys.exit(3), "call"),
    "exit(0), others call": (lambda: sys.exit(0), "call"),
    "end, others call": (lambda: None, "call"),
    "exit(0), others end later": (lambda: sys.exit(0), "later"),
    "thread, others end later": (fail_in_thread, "later"),
    "show, others end later": (show, "later"),
    "fork, others end later": (fork, "later"),
}


def main():
    from mpi4py import MPI

    work, others = CASES[sys.argv[1]]
    comm = MPI.COMM_WORLD
    a = outcore.open("a.npy", comm=comm)
    a.read_all()
    if comm.rank == comm.size - 1:
        work()
    elif others == "call":
        a.read_all(np.s_[comm.rank :: comm.size], method="two-phase")
    elif others == "MPI":
        comm.Barrier()
    else:
        time.sleep(60 if others == "compute" else 0.7)


if __name__ == "__main__":
    main()
