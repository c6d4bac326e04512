"""
Ranks that are processes, without MPI: forked, so that a rank can be killed in a few milliseconds.

What runs is what runs under mpiexec on one node: the barrier in shared memory, memory that ranks map,
and how a rank notices that another is gone. Only how they find each other is replaced.
"""

import contextlib
import faulthandler
import mmap
import os
import signal
import time
import traceback

import numpy as np

from killed import last_words
from outcore import _core
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.nodememory import MappedMemory
from outcore.ranks.transport.place import make_place
from outcore.ranks.transport.timeouts import Patience

#: Seconds after which a rank hangs.
PATIENCE = 20


class NoWire:
    """Messages between nodes, of which there is one."""

    threads, context = True, 0

    def __init__(self):
        self.groups = []

    def close(self):
        """Nothing is open."""


def run(size, body, errors):
    """
    Run ``body(transport, pids)`` on each rank, which returns how its process ends; the exit codes.

    Killed ranks have minus their signal. What ranks write to stderr goes to the file `errors`.
    """
    places = [make_place(rank, range(size), [0] * size, 0) for rank in range(size)]
    words = places[0].node_barrier
    paper = np.frombuffer(mmap.mmap(-1, _core.NodeBarrier.nbytes(*words)), np.uint8)
    _core.NodeBarrier(paper, 0, *words, True)
    children = []
    # A child would wait for the thread of an alarm that was set here; `PATIENCE` ends before.
    faulthandler.cancel_dump_traceback_later()
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 2)
                faulthandler.dump_traceback_later(PATIENCE - 2, file=log)
                code = body(*_joined(places[rank], paper, words))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return _ended(children, errors)


def _joined(place, paper, words):
    """The transport of a rank, and the processes of all, when they have come."""
    barrier = _core.NodeBarrier(paper, place.rank, *words, False)
    while True:
        pids = [pid for _, _, pid, _ in barrier.seen()]
        if all(pid and pid != os.getppid() for pid in pids):
            break
        time.sleep(1e-4)
    group = GroupTransport(place, barrier, NoWire(), MappedMemory(), Patience(0.08, 2 * PATIENCE))
    group.barrier()  # all have seen all alive
    return group, pids


def _ended(children, errors):
    """Exit codes; who does not end in time is ended, and the test fails."""
    give_up, codes = time.monotonic() + PATIENCE, {}
    while len(codes) < len(children) and time.monotonic() < give_up:
        for child in children:
            if child not in codes:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    codes[child] = os.waitstatus_to_exitcode(status)
        time.sleep(2e-4)
    hangs = [child for child in children if child not in codes]
    for child in hangs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not hangs, f"{len(hangs)} of {len(children)} ranks hang\n{last_words(errors)}"
    return [codes[child] for child in children]
