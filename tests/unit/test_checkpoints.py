"""The journal of a conversion tells of tiles that are on the disk, and of no others."""

import importlib
import threading

import numpy as np
import pytest

import outcore
from outcore.arrays.schedule import run
from outcore.base import assumed_costs
from outcore.compute.jobs.checkpoints import Checkpoints

carry = importlib.import_module("outcore.compute.jobs.checkpoints")
WAYS = ("started", "over")


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
    points = Checkpoints([target], target)
    for step in range(3):
        points.note_written(step)
        points._background.wait()
    points._last = float("inf")
    points.note_written(3)
    points.finish()
    assert target.log == ["flush", [0], "flush", [1], "flush", [2], "flush", [3]]


def test_a_tile_that_was_written_during_a_flush_waits_for_the_next_one(often):
    target, begun, go_on = Target(), threading.Event(), threading.Event()

    def slowly():
        target.log.append("flush")
        begun.set()
        assert go_on.wait(30)

    target.flush = slowly
    points = Checkpoints([target], target)
    points.note_written(0)
    assert begun.wait(30)
    points.note_written(1)
    points.note_written(2)
    go_on.set()
    points.finish()
    assert target.log == ["flush", [0], "flush", [1, 2]]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_nothing_is_recorded_if_the_flush_fails(often, at_the_end):
    target = Target()

    def fail():
        raise OSError("the disk is full")

    target.flush = fail
    points = Checkpoints([target], target)
    points._last = float("inf") if at_the_end else points._last
    with pytest.raises(OSError, match="the disk is full"):  # noqa: PT012, either may tell
        points.note_written(0)
        points.finish()
    assert target.log == []


@pytest.fixture
def requests(tmp_path, monkeypatch):
    """What becomes of the requests of a conversion of `a.npy`, in order: (what, number of the tile)."""
    log = []

    class Watched:
        def __init__(self, request, what):
            self.request, self.what = request, what
            log.append(("started", *what))

        @property
        def done(self):
            """Of a slow disk: nothing is over before somebody waits for it."""
            return False

        def wait(self):
            result = self.request.wait()
            log.append(("over", *self.what))
            return result

        def cancel(self):
            return self.request.cancel()

        def finish(self, **words):
            self.request.finish(**words)
            log.append(("over", *self.what))

    for name in ("iread", "iwrite"):
        start = getattr(outcore.DiskArray, name)

        def watched(self, *words, name=name, start=start, **options):
            number = sum(entry[:2] == ("started", name) for entry in log)
            return Watched(start(self, *words, **options), (name, number))

        monkeypatch.setattr(outcore.DiskArray, name, watched)
    monkeypatch.setattr(
        Checkpoints, "note_written", lambda _, k: log.append(("recorded", "iwrite", k))
    )
    np.save(tmp_path / "a.npy", np.zeros((1024, 1024)))
    return log


def test_a_tile_is_recorded_when_it_has_been_written(tmp_path, requests):
    outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", memory="2 MiB")
    tiles = requests[-1][2] + 1
    assert tiles > 4
    for k in range(tiles):
        over, recorded = (requests.index((what, "iwrite", k)) for what in ("over", "recorded"))
        assert over < recorded, f"tile {k} was recorded while it was being written"


def test_buffers_live_as_long_as_the_requests_that_use_them(tmp_path, monkeypatch, requests):
    """Also if the conversion ends halfway."""
    running = []
    close = run.Pages.close

    def look():
        by = {what: {entry[1:] for entry in requests if entry[0] == what} for what in WAYS}
        running.append(len(by["started"] - by["over"]))

    def closed(self):
        look()
        close(self)

    def stop(done, _):
        if done:
            look()
            raise ZeroDivisionError

    monkeypatch.setattr(run.Pages, "close", closed)
    monkeypatch.setattr(assumed_costs, "STEP_SECONDS", 0.0)
    with pytest.raises(ZeroDivisionError):
        outcore.convert(tmp_path / "a.npy", tmp_path / "b.npy", memory="8 MiB", progress=stop)
    assert running == [1, 0]
