"""A collective that is stopped in its middle leaves old or new elements, nothing else."""

import threading
import time

import numpy as np
import pytest

import outcore
import watched
from outcore import _core
from outcore.base import requests
from outcore.errors import CollectiveError
from outcore.ranks.collective import rounds
from outcore.testing.sim import SimWorld

pytestmark = pytest.mark.simulated  # the delays are made in the threads of one process

SIDE = 256


def test_slots_are_kept_until_their_writes_end(tmp_path, agree_on, monkeypatch):
    """The slots give way as soon as the call has ended: not before their writes have."""
    agree_on(slot=1 << 16, least=1)
    np.save(tmp_path / "a.npy", np.full((SIDE, SIDE), 7.0))
    stopped, written = threading.Event(), threading.Event()
    usual = rounds._exchange

    def late(work, slots, step, *more, **words):
        if work.rank == 1 and step.k == 1:
            work.transport.abort_group("enough")
            stopped.set()
        return usual(work, slots, step, *more, **words)

    class SlowToWrite(watched.Watched):
        """The first write of rank 0 ends a while after the collective was stopped."""

        def write(self, writes, holes):
            if self.rank != 0 or writes is None or written.is_set():
                return super().write(writes, holes)

            def work():
                assert stopped.wait(20)
                time.sleep(0.5)  # for whoever does not wait for it to go wrong
                self.owner.write(writes, holes).wait()
                written.set()

            return requests.start(work, "a slow write")

    monkeypatch.setattr(rounds, "_exchange", late)
    watched.use(monkeypatch, SlowToWrite)

    def body(t):
        a = outcore.open(tmp_path / "a.npy", "r+", comm=t)
        with pytest.raises(CollectiveError):
            a.write_all(np.s_[:, t.rank :: 2], 9.0, method="two-phase")
        if t.rank == 0:
            with _core.Reservation("blocks", _core.memory_state()[1]):
                pass

    SimWorld(2).run(body)
    assert stopped.is_set() and written.wait(20)
    assert {7.0, 9.0} >= set(np.unique(np.load(tmp_path / "a.npy")).tolist())
