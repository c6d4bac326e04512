"""A collective that is stopped in its middle leaves old or new elements, nothing else."""

import threading
import time

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.collective.packets import Packets
from outcore.errors import CollectiveError
from outcore.testing.sim import SimWorld

pytestmark = pytest.mark.simulated  # the delays are made in the threads of one process

SIDE = 256


class SlowToWrite:
    """A core whose first write ends a while after the collective was stopped."""

    def __init__(self, core, stopped, written):
        self._core = core
        self._stopped = stopped
        self._written = written
        self._first = True

    def __getattr__(self, name):
        return getattr(self._core, name)

    def write(self, key, value):
        if self._first:
            self._first = False
            assert self._stopped.wait(20)
            time.sleep(0.5)  # for whoever does not wait for it to go wrong
            self._core.write(key, value)
            self._written.set()
        else:
            self._core.write(key, value)


def test_what_was_on_its_way_to_the_file_is_what_arrives(tmp_path, agree_on, monkeypatch):
    """The slots give way as soon as the call has ended: not before their writes have."""
    agree_on(slot=1 << 16, least=1)
    np.save(tmp_path / "a.npy", np.full((SIDE, SIDE), 7.0))
    stopped, written = threading.Event(), threading.Event()
    usual = Packets.make

    def late(packets):
        if packets.work.rank == 1 and packets.step.k == 1:
            packets.work.transport.give_up("enough")
            stopped.set()
        usual(packets)

    monkeypatch.setattr(Packets, "make", late)

    def body(t):
        a = outcore.open(tmp_path / "a.npy", "r+", comm=t)
        if t.rank == 0:
            a._core = SlowToWrite(a._core, stopped, written)
        with pytest.raises(CollectiveError):
            a.write_all(np.s_[:, t.rank :: 2], 9.0, method="two-phase")
        if t.rank == 0:
            with _core.Reservation("blocks", _core.memory_state()[1]):
                pass

    SimWorld(2).run(body)
    assert stopped.is_set() and written.wait(20)
    assert {7.0, 9.0} >= set(np.unique(np.load(tmp_path / "a.npy")).tolist())
