"""The journal of a conversion tells of tiles that are on the disk, and of no others."""

import threading

import pytest

from outcore.convert import carry
from outcore.convert.carry import _Checkpoints


class Target:
    """An array that is flushed, and its journal: what was done, in order."""

    def __init__(self):
        self.log = []

    def flush(self):
        self.log.append("flush")

    def commit(self, steps):
        self.log.append(list(steps))


@pytest.fixture
def often(monkeypatch):
    """After each tile there is a point from which the job can go on."""
    monkeypatch.setattr(carry, "_CHECKPOINT", 0.0)


def test_tiles_are_recorded_after_the_flush_that_covers_them(often):
    target = Target()
    points = _Checkpoints(target, target)
    for step in range(3):
        points.written(step)
        points._join()
    points._last = float("inf")
    points.written(3)
    points.finish()
    assert target.log == ["flush", [0], "flush", [1], "flush", [2], "flush", [3]]


def test_a_tile_that_was_written_during_a_flush_waits_for_the_next_one(often):
    target, begun, go_on = Target(), threading.Event(), threading.Event()

    def slowly():
        target.log.append("flush")
        begun.set()
        assert go_on.wait(30)

    target.flush = slowly
    points = _Checkpoints(target, target)
    points.written(0)
    assert begun.wait(30)
    points.written(1)
    points.written(2)
    go_on.set()
    points.finish()
    assert target.log == ["flush", [0], "flush", [1, 2]]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_nothing_is_recorded_if_the_flush_fails(often, at_the_end):
    target = Target()

    def fail():
        raise OSError("the disk is full")

    target.flush = fail
    points = _Checkpoints(target, target)
    points._last = float("inf") if at_the_end else points._last
    with pytest.raises(OSError, match="the disk is full"):  # noqa: PT012, either may tell
        points.written(0)
        points.finish()
    assert target.log == []
