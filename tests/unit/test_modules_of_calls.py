"""Through how many Python modules a collective call passes, and how often it calls the core."""

import collections
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import outcore
from outcore.mpi import DistArray, Distribution
from outcore.testing.sim import SimWorld

HERE = Path(outcore.__file__).parent
SIZE = 512
# Modules at most, and calls into the core of rank 0.
MOST = {
    "cached read": (4, 5),
    "two-phase read": (8, 40),
    "two-phase write": (9, 40),  # values are cast in a module that all writes share
    "redistribution": (16, 16),
}


class Profile:
    """Files of this package that run, and calls into the compiled module, of threads that ask for it."""

    def __init__(self):
        self.here = threading.local()
        self.files = collections.defaultdict(set)
        self.calls = collections.Counter()

    def note(self, frame, event, arg):
        if event == "call":
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(HERE) and "testing" not in file.parts:
                self.files[self.here.name].add(str(file.relative_to(HERE)))
        elif event == "c_call" and self.here.rank == 0:
            of = getattr(arg, "__self__", None)
            module = type(of).__module__ if of is not None else arg.__module__
            name = getattr(of, "__name__", None) or module or ""
            # A rank that waits asks this again and again: how often, the other ranks' speed decides.
            if arg.__qualname__ != "NodeBarrier.stopped":
                self.calls[self.here.name] += "outcore._core" in (name, module)

    def run(self, rank, name, work):
        self.here.name, self.here.rank = name, rank
        sys.setprofile(self.note)
        try:
            work()
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("name", MOST)
def test_few_modules_lead_from_a_call_to_the_core(tmp_path, name):
    profile = Profile()
    outcore.create(tmp_path / "a.npy", data=np.zeros((SIZE, SIZE))).close()

    def body(t):
        rows = Distribution((SIZE, SIZE), ["block", "*"], t.size)
        columns = Distribution((SIZE, SIZE), ["*", "block"], t.size)
        with outcore.open(tmp_path / "a.npy", "r+", comm=t) as a:
            key = np.s_[:, t.rank :: t.size]
            part, mine = DistArray.zeros(rows, transport=t), a.read_all(key)
            work = {
                "cached read": lambda: a.read_all(key),
                "two-phase read": lambda: a.read_all(key, method="two-phase"),
                "two-phase write": lambda: a.write_all(key, mine, method="two-phase"),
                "redistribution": lambda: part.redistribute_all(columns),
            }[name]
            # The first time ranks meet, and names are made.
            work()
            t.barrier()
            if t.rank:
                # Rank 0, whose calls are counted, waits for the others, as on a busy machine.
                time.sleep(0.3)
            profile.run(t.rank, name, work)
            t.barrier()

    SimWorld(4).run(body)
    modules, calls = MOST[name]
    found = sorted(profile.files[name])
    assert 0 < len(found) <= modules, "\n".join(found)
    assert 0 < profile.calls[name] <= calls
