"""Disk resident arrays: what they refuse and wait for first, and what a removal leaves."""

import os
import threading
from concurrent.futures import Future

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.formats import durable

SHAPE = (40, 30)


@pytest.fixture
def array(tmp_path):
    with outcore.mpi.disk_array(tmp_path / "d.npy", SHAPE, "f8") as d:
        d.write(np.ones(SHAPE))
        d.flush()
        yield d


def moved(d):
    report = d.array.stats()
    return sum(report[name] for name in ("read_bytes", "written_bytes", "mapped_bytes"))


def test_a_cast_that_cannot_be_is_refused_before_anything_is_moved(array, tmp_path):
    """A read would move all elements into its buffer before the cast of the first one fails."""
    pair = np.dtype([("a", "f4"), ("b", "f4")])
    with outcore.mpi.disk_array(tmp_path / "pairs.npy", SHAPE, pair) as pairs:
        for d, call, kind in (
            (array, array.write, pair),
            (array, array.write, np.dtype("S3")),
            (pairs, pairs.read, np.dtype("f8")),
        ):
            before = moved(d)
            with pytest.raises((TypeError, ValueError)):
                call(np.zeros(SHAPE, kind))
            assert moved(d) == before, kind
    into = np.zeros(SHAPE, "f4")
    array.read(into)
    assert (into == 1).all()


def test_calls_in_flight_end_before_a_cast_reserves_memory(array):
    """A started call may hold all memory, which it releases when it ends."""
    held = _core.Reservation("a call in flight", _core.memory_state()[1])
    begun, goes_on, ended = threading.Event(), threading.Event(), Future()

    def call():
        begun.set()
        goes_on.wait(60)
        held.release()
        ended.set_result(None)

    array._group.in_flight.start(call, ended)
    assert begun.wait(60)
    timer = threading.Timer(0.3, goes_on.set)
    timer.start()
    into = np.zeros(SHAPE, "f4")
    try:
        array.read(into)
    finally:
        goes_on.set()
        timer.join()
    assert (into == 1).all()


def test_files_that_cannot_be_removed_are_removed_with_the_next_array(tmp_path, monkeypatch):
    """The lock file stays with them: it tells that they are nobody's."""

    def refuses(path):
        raise PermissionError(path)

    d = outcore.mpi.disk_array(tmp_path / "t.npy", SHAPE, "f8", keep=False)
    monkeypatch.setattr(durable, "unlink_in_background", refuses)
    d.close()
    left = os.listdir(tmp_path)
    assert len(left) == 2 and any(name.endswith(".lock") for name in left)
    monkeypatch.undo()
    outcore.mpi.disk_array(tmp_path / "u.npy", SHAPE, "f8", keep=False).close()
    assert os.listdir(tmp_path) == []
