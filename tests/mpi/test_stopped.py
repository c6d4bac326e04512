"""A collective that is stopped in its middle leaves old or new elements, nothing else."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.collective import planning
from outcore.collective.letters import Letters
from outcore.errors import CollectiveError
from outcore.testing.sim import SimWorld
from ranks import UNDER_MPI

pytestmark = pytest.mark.skipif(
    UNDER_MPI, reason="the delays are made in the threads of one process"
)

SIDE = 256


class SlowToWrite:
    """A core whose first write takes a while."""

    def __init__(self, core, written):
        self._core = core
        self._written = written
        self._first = True

    def __getattr__(self, name):
        return getattr(self._core, name)

    def write(self, key, value):
        if self._first:
            self._first = False
            threading.Event().wait(1.0)
            self._core.write(key, value)
            self._written.set()
        else:
            self._core.write(key, value)


def test_what_was_on_its_way_to_the_file_is_what_arrives(tmp_path, monkeypatch):
    """The slots give way as soon as the call has ended: not before their writes have."""
    monkeypatch.setattr(planning, "AGREED", replace(planning.AGREED, slot=1 << 16, least=1))
    np.save(tmp_path / "a.npy", np.full((SIDE, SIDE), 7.0))
    stopped, written = threading.Event(), threading.Event()
    usual = Letters.make

    def late(letters):
        if letters.work.rank == 1 and letters.step.k == 1:
            stopped.wait(20)
        usual(letters)

    monkeypatch.setattr(Letters, "make", late)

    def body(t):
        a = outcore.open(tmp_path / "a.npy", "r+", comm=t)
        if t.rank == 0:
            a._core = SlowToWrite(a._core, written)
        with pytest.raises(CollectiveError):
            a.write_all(np.s_[:, t.rank :: 2], 9.0, method="two-phase")
        if t.rank == 0:
            with _core.Reservation("blocks", _core.memory_state()[1]):
                pass
        stopped.set()

    SimWorld(2, timeout=0.3).run(body)
    assert written.wait(20)
    assert {7.0, 9.0} >= set(np.unique(np.load(tmp_path / "a.npy")).tolist())
