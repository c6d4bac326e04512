"""
Tests of several ranks: a test body is a function of a transport.

The same body runs serially, on simulated ranks, and under mpiexec (``./x test mpi``)::

    from ranks import ranks

    @ranks(1, 2, 3, 5, 8)
    def test_something(world):
        def body(t):
            assert t.agree(t.rank) == t.size - 1
        world.run(body)

Under mpiexec the numbers are replaced by the number of ranks that run; a test for more is skipped.
`World.run` gives the results of the ranks that ran in this process: of simulated ranks all, under
mpiexec this one's. If a rank fails, `run` raises the first failure, everywhere the same.
"""

import contextlib
import gc
import os
import pickle
import time
import traceback

import pytest

from outcore.mpi import transport
from outcore.testing.sim import SimWorld

# Set by tests/mpi/launch.py.
UNDER_MPI = "OUTCORE_TESTS_UNDER_MPI" in os.environ
PATIENCE = 60.0


def communicator():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def nap_together(comm):
    """All have come; without spinning."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(2e-4)


def tell_all(value):
    """The values of all ranks under mpiexec; pickled."""
    nap_together(communicator())
    return communicator().allgather(value)


def of_all(value):
    """What tests noted in each process that has ranks."""
    return tell_all(value) if UNDER_MPI else [value]


def once(t, work):
    """Let rank 0 do something, and the others wait."""
    if t.rank == 0:
        work()
    t.barrier()


def collect(t):
    """
    What nobody refers to any more is gone from all ranks.

    Of threads one collects for all: who begins while another one collects does nothing.
    """
    t.barrier()
    if UNDER_MPI or t.rank == 0:
        gc.collect()
    t.barrier()


def ranks(*sizes, per_node=(None,), most=None):
    """
    Run a test with so many ranks, each number with all these numbers of ranks for each node.

    Under mpiexec there are as many as there are; a test whose arrays are divided over `most` ranks at
    most is not run with more.
    """
    if UNDER_MPI:
        size = communicator().Get_size()
        sizes = (size,) if min(sizes) <= size <= (most or size) else ()
    params = [
        pytest.param((n, k), id=f"{n}" if k is None else f"{n}by{k}")
        for n in sizes
        for k in per_node
        if k is None or k < n
    ]
    return pytest.mark.parametrize("world", params, indirect=True)


class World:
    """A number of ranks that run test bodies."""

    def __init__(self, size, ranks_per_node=None):
        self.size = size
        self.ranks_per_node = ranks_per_node

    def run(self, body, timeout=PATIENCE, warn=30.0):
        """Run ``body(transport)`` on every rank."""
        if not UNDER_MPI:
            world = SimWorld(self.size, self.ranks_per_node, timeout=timeout, warn=warn)
            return world.run(body)
        return self._run_under_mpi(body, timeout, warn)

    def _run_under_mpi(self, body, timeout, warn):
        comm = communicator().Dup()
        with nodes_of(self.ranks_per_node):
            made = transport(comm, timeout=timeout, warn=warn)
        failure, result = None, None
        try:
            result = body(made)
        except BaseException as error:
            text = f"on rank {made.rank} of {made.size}:\n{traceback.format_exc()}"
            failure = (time.time(), portable(error), text)
            wire = getattr(made, "wire", None)
            for group in list(wire.groups) if wire else []:
                group.abort_group(f"rank {made.rank} failed: {error!r}")
        failures = sorted((f for f in tell_all(failure) if f), key=lambda f: f[0])
        wire = getattr(made, "wire", None)
        for group in list(wire.groups) if wire else []:
            group.close()
        comm.Free()
        if failures:
            error = pickle.loads(failures[0][1])
            for _, _, text in failures[:3]:
                error.add_note(text)
            raise error
        return [result]


@contextlib.contextmanager
def nodes_of(ranks_per_node):
    name = "OUTCORE_RANKS_PER_NODE"
    before = os.environ.pop(name, None)
    if ranks_per_node is not None:
        os.environ[name] = str(ranks_per_node)
    yield
    os.environ.pop(name, None)
    if before is not None:
        os.environ[name] = before


def portable(error):
    try:
        text = pickle.dumps(error)
        pickle.loads(text)
    except Exception:
        return pickle.dumps(AssertionError(repr(error)))
    return text
