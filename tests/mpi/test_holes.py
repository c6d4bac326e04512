"""What nobody gives of a tile: read ahead, written back as it was, or left alone."""

import errno
import threading

import numpy as np
import pytest

import outcore
import watched
from mpi.test_collective_faults import Faults
from outcore.errors import CollectiveError
from outcore.ranks.collective import rounds
from ranks import UNDER_MPI, once, ranks

PATIENCE = 30
here = threading.local()


class Counting(watched.Seen):
    """Tells how many slots have been filled with what was there, and waits for that."""

    def __init__(self, *words):
        super().__init__(*words)
        self.reads, self.tiles, self.changed = 0, 0, threading.Condition()
        here.core = self

    def batch(self, k, slot):
        found = super().batch(k, slot)
        assert set(found.ways) <= {"rewritten"}
        self.tiles += len(found.ways)
        return found

    def end(self, kind):
        with self.changed:
            self.reads += 1
            self.changed.notify_all()

    def wait_for(self, reads):
        with self.changed:
            return self.changed.wait_for(lambda: self.reads >= reads, PATIENCE)


@pytest.mark.parametrize(("budget", "slots"), [("64 MiB", 3), ("1 MiB", 2)])
@ranks(2, 4, per_node=(None, 2))
def test_holes_are_read_ahead(world, folder, budget, slots, agree_on, monkeypatch):
    """When round 1 begins, those of all slots and of the first that is free again can have been read."""
    agree_on(slot=1 << 18, least=1)
    monkeypatch.setattr(rounds, "REWRITES", True)
    meet = rounds.CallState.synchronise

    def meets(self, failures):
        here.met += 1
        if here.met == 3 and here.core is not None:
            assert here.core.wait_for(slots + 1), f"{here.core.reads} reads, not {slots + 1}"
        return meet(self, failures)

    monkeypatch.setattr(rounds.CallState, "synchronise", meets)
    watched.use(monkeypatch, Counting)
    data = np.arange(world.size * 4096 * 96, dtype="i4").reshape(-1, 96)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        mine = np.s_[:, t.rank :: t.size + 1]
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"memory": budget}) as a:
            told = a.explain_all(mine, write=True, method="two-phase")
            assert told.slots == slots and told.rounds > slots + 1
            assert [rank for rank, *_ in told.domains] == list(range(t.size))
            here.met, here.core = 0, None
            a.write_all(mine, -data[mine], method="two-phase")
            tiles, here.core = here.core.tiles, None
            # Each tile's once.
            assert tiles == told.domains[t.rank][1]
            expected = np.where(np.arange(96) % (t.size + 1) < t.size, -data, data)
            np.testing.assert_array_equal(expected, a.read_all(method="direct"))

    world.run(body)


FILES = {
    "npy": ("a.npy", {}, {}),
    "direct": ("a.npy", {}, {"cache": "bypass"}),
    "zarr": ("a.zarr", {"chunks": (50, 50), "fill_value": 7}, {}),
    "zstd": ("a.zarr", {"chunks": (9, 9), "compression": "zstd", "fill_value": 7}, {}),
    "hdf5": ("a.h5::/x", {"chunks": (9, 50), "fill_value": 7}, {}),
}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("file", FILES)
@ranks(3, 4, per_node=(None, 2))
def test_writes_next_to_holes_are_not_overwritten(
    world, folder, file, groups, agree_on, monkeypatch
):
    """Rows of 404 bytes: pages, and chunks that are not there yet, are parts of several tiles."""
    agree_on(slot=2048, least=1, align=1)
    # Always read first.
    monkeypatch.setattr(rounds, "REWRITES", True)
    name, options, hints = FILES[file]
    hints = {**hints, "io_groups": groups}

    def body(t):
        once(t, lambda: outcore.create(folder / name, (101, 101), "i4", **options).close())
        expected = np.full((101, 101), options.get("fill_value", 0), "i4")
        with outcore.open(folder / name, "r+", comm=t, hints=hints) as a:
            for turn in range(3):
                step = t.size + 1 + turn
                for rank in range(t.size):
                    expected[turn:, rank::step] = 100 * turn + rank
                a.write_all(np.s_[turn:, t.rank :: step], 100 * turn + t.rank, method="two-phase")
                np.testing.assert_array_equal(expected, a.read_all(method="direct"))
                t.barrier()

    world.run(body)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", ["batch", "write"])
@ranks(4, per_node=(None, 2))
def test_a_failure_ahead_is_raised_by_all(world, folder, kind, groups, agree_on, monkeypatch):
    agree_on(slot=4096, least=1)
    faults = Faults(monkeypatch)
    monkeypatch.setattr(rounds, "REWRITES", True)
    data = np.arange(world.size * 128 * 64, dtype="i4").reshape(-1, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        mine = np.s_[:, t.rank :: t.size + 1]
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"io_groups": groups}) as a:
            tiles = a.explain_all(mine, write=True, method="two-phase").domains[-1][1]
            assert tiles > 5
            for at in (1, 2, 4, 5, tiles):
                if t.rank == t.size - 1:
                    error = (lambda: OSError(errno.EIO, "broken"), KeyboardInterrupt)[at % 2]
                    faults.arm(kind, at, error)
                with pytest.raises((CollectiveError, KeyboardInterrupt)) as caught:
                    a.write_all(mine, data[mine], method="two-phase")
                interrupted = t.rank == t.size - 1 and at % 2 == 1
                assert isinstance(caught.value, KeyboardInterrupt) == interrupted
                if at % 2 == 0:
                    assert caught.value.ranks == (t.size - 1,)
                assert faults.disarm() == (t.rank == t.size - 1)
                np.testing.assert_array_equal(data, a.read_all(method="two-phase"))

    world.run(body, timeout=120)


@ranks(2, 4, per_node=(None, 1))
def test_sparse_tiles_where_requests_take_long(world, folder, slow_disk, monkeypatch):
    """Requests of 5 ms: few large ones, but only if nobody else may write what lies between."""

    class Watched(watched.Watched):
        def batch(self, k, slot):
            found = super().batch(k, slot)
            here.found += found.ways
            return found

    watched.use(monkeypatch, Watched)
    n, step = 128, 8 * world.size
    data = np.arange(n * n, dtype="i4").reshape(n, n)

    def body(t):
        mine = np.s_[:, t.rank :: step]
        for exclusive in (False, True):
            here.found = []
            once(t, lambda: np.save(folder / "a.npy", data))
            hints = {"exclusive": exclusive, "cache": "bypass"}
            with outcore.open(folder / "a.npy", "r+", comm=t, hints=hints) as a:
                a.write_all(mine, -data[mine], method="two-phase")
                expected = np.where(np.arange(n) % step < t.size, -data, data)
                np.testing.assert_array_equal(expected, a.read_all(method="direct"))
            assert set(here.found) <= {"rewritten" if exclusive else "in parts"}
            assert t.agree(len(here.found)) > 0
            t.barrier()

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
def test_exclusive_means_nobody_but_these_ranks(world, folder):
    """A rank on its own never rewrites what is between its elements: that is other ranks'."""
    data = np.arange(200 * 64, dtype="i4").reshape(200, 64)

    def body(t):
        mine = np.s_[:, t.rank :: t.size]
        hints = {"exclusive": True, "method": "window"}
        for method in ("direct", "sieve", "two-phase"):
            once(t, lambda: np.save(folder / "a.npy", data))
            with outcore.open(folder / "a.npy", "r+", hints=hints) as alone:
                assert alone.explain(mine, write=True).read_bytes > 0
            with outcore.open(folder / "a.npy", "r+", comm=t, hints=hints) as a:
                assert a.explain(mine, write=True).read_bytes == 0
                a.write_all(mine, -data[mine], method=method)
                np.testing.assert_array_equal(-data, a.read_all(method="direct"))
            t.barrier()

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
def test_as_many_elements_as_a_tile_has_are_not_all_of_it(world, folder, monkeypatch):
    """Of ranks whose order counts, what two of them give is counted twice."""
    shape = 3 * (world.size - 1), 600
    data = np.arange(shape[0] * shape[1], dtype="i4").reshape(shape)
    # Of 576 columns the first 552, and 24 that are far apart: 23 of them are given twice.
    keys = [np.s_[3 * rank : 3 * rank + 3, :552] for rank in range(world.size - 1)]
    keys.append(np.s_[:, ::25])
    expected = data.copy()
    for rank, key in enumerate(keys):
        expected[key] = -1 - rank
    tiles = []

    class Watched(watched.Watched):
        def batch(self, k, slot):
            for n in range(*self.plan.batch(self.rank, k)):
                if (wanted := self.plan.wanted(self.rank, n)) is not None:
                    tiles.append((self.plan.in_order, wanted[1] == wanted[2]))
            return super().batch(k, slot)

    watched.use(monkeypatch, Watched)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            a.write_all(keys[t.rank], -1 - t.rank, method="two-phase")
            np.testing.assert_array_equal(expected, a.read_all(method="direct"))

    world.run(body)
    assert set(tiles) == {(True, True)} or (UNDER_MPI and not tiles)
