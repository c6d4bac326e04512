"""Writes that are durable when they return, and flushes of many ranks: each file once on a node."""

import errno

import numpy as np
import pytest

import outcore
from disks import dirty_pages, is_local, pages_of_linux
from outcore.errors import CollectiveError, UsageError
from outcore.ranks.collective import independent
from ranks import UNDER_MPI, once, ranks

NODES = (None, 1)
SHAPE = (40, 60)
FORMATS = {
    "a.npy": {},
    "a.raw": {},
    "a.zarr": {"chunks": (10, 10), "compression": "zstd"},
    "a.h5::/x": {},
}


def flushes(t, arrays):
    """How often each array was flushed, on all ranks together."""
    mine = np.array([a.handle.core.flushes() for a in arrays])
    return t.allgather(mine).sum(axis=0).tolist()


def expected(t, path):
    """By one rank of each node, where a file system is known to be this machine's alone."""
    shared = is_local(path) and path.suffix != ".zarr"
    return len(set(t.nodes)) if shared else t.size


def make(t, folder):
    def work():
        for name, more in FORMATS.items():
            outcore.create(folder / name, SHAPE, "f4", **more).close()

    once(t, work)


def opened(folder, name, **more):
    known = {"shape": SHAPE, "dtype": "f4"} if name == "a.raw" else {}
    return outcore.open(folder / name, "r+", **known, **more)


@pytest.mark.parametrize("method", ["direct", "sieve", "two-phase", "auto"])
@pytest.mark.parametrize("name", FORMATS)
@ranks(1, 2, 4, per_node=NODES)
def test_a_hint_makes_collective_writes_durable(world, folder, name, method):
    """Also if one rank alone gives it; and if no rank does, nobody flushes."""

    def body(t):
        make(t, folder)
        here = (folder / name.split("::")[0]).resolve()
        for who in (range(0), range(t.size), [t.size - 1]):
            hints = outcore.Hints(sync=t.rank in who)
            with opened(folder, name, comm=t, hints=hints) as a:
                a.write_all(np.s_[:, t.rank :: t.size], 5 + len(who), method=method)
                had = flushes(t, [a])[0]
                a.read_all()
                assert flushes(t, [a]) == [had]
            assert had == (expected(t, here) if who else 0)
            if who:
                a.flush()  # of a closed array: raises if something is owed
            t.barrier()
            with opened(folder, name) as b:
                assert (b[...] == 5 + len(who)).all()
            t.barrier()

    world.run(body)


@pages_of_linux
@pytest.mark.parametrize("flush", ["hint", "flush_all"])
@pytest.mark.parametrize("method", ["direct", "sieve", "two-phase"])
@ranks(1, 4)
def test_nothing_is_dirty_then(world, folder, method, flush):
    """Not even what was written through windows, or what is between sparse rows."""

    def body(t):
        path = folder / "a.npy"
        once(t, lambda: np.save(path, np.zeros((1024, 1024), "f4")))
        hints = outcore.Hints(sync=flush == "hint")
        each = 1024 // t.size
        for key in (np.s_[t.rank :: t.size, 3:9], np.s_[t.rank * each : (t.rank + 1) * each : 8]):
            with outcore.open(path, "r+", comm=t, hints=hints) as a:
                a.write_all(key, 1.0, method=method)
                if flush != "hint":
                    a.flush_all()
                t.barrier()
                assert dirty_pages(path) in (0, None)
                t.barrier()

    world.run(body)


@pages_of_linux
@ranks(2, 4)
def test_ranks_start_writeback_of_separate_sections_early(world, folder, slow_disk, monkeypatch):
    """While others still read; where ranks take turns in the file it would be written several times."""
    told = []
    usual = independent.access_independently

    def each_independently(group, mine, method, *, write, send=()):
        if write:
            told.append(len(send))
        return usual(group, mine, method, write=write, send=send)

    monkeypatch.setattr(independent, "access_independently", each_independently)

    def body(t):
        path = folder / "a.npy"
        once(t, lambda: np.save(path, np.zeros((1024, 1024), "f4")))
        each = 1024 // t.size
        apart = np.s_[t.rank * each : (t.rank + 1) * each : 8, 5:9]
        for hints, key, expected in (
            ({"sync": True}, apart, 1),
            ({"sync": True}, np.s_[t.rank :: 8 * t.size, 5:9], 0),
            ({}, apart, 0),
        ):
            t.barrier()
            told.clear()
            t.barrier()
            with outcore.open(path, "r+", comm=t, hints=hints) as a:
                a.write_all(key, np.float32(7), method="direct")
                t.barrier()
                assert set(told) == {expected}
                assert a.handle.core.leaves_gaps(key)
                if expected and is_local(path):
                    assert a.handle.core.gap_pages() == 7 * (len(range(each)[::8]) - 1)
            t.barrier()
            with outcore.open(path) as b:
                assert (b[key] == 7).all()

    world.run(body)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sent", [1, 40_000, 2 << 20])
@ranks(1, 2, 4)
def test_sections_written_in_parts_are_complete(world, folder, slow_disk, monkeypatch, sent, order):
    """Whatever the keys: parts are cut along the axis that runs slowest in the file."""
    monkeypatch.setattr(independent, "_SENT", sent)
    monkeypatch.setattr(independent, "_GAPS", 0)

    def body(t):
        shape, path = (64, 9, 1024), folder / "a.npy"
        key_of = {
            "steps": lambda a, b: np.s_[a:b:2, 3, 5:9],
            "backwards": lambda a, b: np.s_[b - 1 : a or None : -3, None, ::4, 1000:990:-5],
            "one row": lambda a, b: np.s_[a, 2::3, 7],
            "nothing": lambda a, b: np.s_[a:a, :, :],
            "a point": lambda a, b: np.s_[a, 0, 0],
        }
        along = slice(None, None, 1 if order == "C" else -1)
        expected = np.zeros(shape[along], "f4")
        once(t, lambda: np.save(path, np.asarray(expected, order=order)))
        size = 64 // t.size
        with outcore.open(path, "r+", comm=t, hints={"sync": True}) as a:
            for number, make_key in enumerate(key_of.values()):
                keys = [make_key(r * size, (r + 1) * size)[along] for r in range(t.size)]
                values = [
                    np.arange(expected[key].size, dtype="f4").reshape(expected[key].shape) + number
                    for key in keys
                ]
                a.write_all(keys[t.rank], values[t.rank], method="direct")
                for key, value in zip(keys, values, strict=True):
                    expected[key] = value
                np.testing.assert_array_equal(expected, np.load(path))
                t.barrier()

    world.run(body)


@ranks(1, 2, 4, per_node=NODES)
def test_a_hint_makes_writes_of_many_arrays_durable(world, folder):
    """Of those arrays of which a rank asks for it; each by another rank."""

    def body(t):
        files = [folder / f"{number}.npy" for number in range(6)]
        once(t, lambda: [np.save(path, np.zeros(SHAPE)) for path in files])
        hints = [outcore.Hints(sync=number not in (1, 4)) for number in range(6)]
        arrays = [
            outcore.open(path, "r+", comm=t, hints=hint)
            for path, hint in zip(files, hints, strict=True)
        ]
        key = np.s_[t.rank :: t.size]
        outcore.mpi.write_all([(a, key, 1.0 + t.rank) for a in arrays])
        each = expected(t, files[0])
        assert flushes(t, arrays) == [each, 0, each, each, 0, each]
        mine = sum(a.handle.core.flushes() for a in arrays)
        if is_local(files[0]) and world.ranks_per_node is None:
            # Four files, assigned to the ranks of a node.
            assert mine in (4 // t.size, -(-4 // t.size))
        for a in arrays:
            a.close()

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_two_handles_of_an_array_are_both_flushed(world, folder):
    """The chunks that a handle wrote, it alone knows."""

    def body(t):
        make(t, folder)
        hints = outcore.Hints(sync=True)
        with (
            opened(folder, "a.zarr", comm=t, hints=hints) as one,
            opened(folder, "a.zarr", comm=t, hints=hints) as two,
        ):
            rows = np.s_[10 * t.rank : 10 * t.rank + 5], np.s_[10 * t.rank + 5 : 10 * t.rank + 10]
            outcore.mpi.write_all([(one, rows[0], 1.0), (two, rows[1], 2.0)], method="direct")
            assert one.handle.core.flushes() >= 1
            assert two.handle.core.flushes() >= 1

    world.run(body)


@pytest.mark.parametrize("name", FORMATS)
@ranks(1, 2, 4, per_node=NODES)
def test_each_file_is_flushed_once_on_a_node(world, folder, name):
    """All have what they wrote on the disk then: none of them owes a flush."""

    def body(t):
        make(t, folder)
        here = (folder / name.split("::")[0]).resolve()
        a = opened(folder, name, comm=t)
        for turn in range(2):
            a.write_all(np.s_[:, t.rank :: t.size], turn + 1, method="direct")
            a.flush_all()
            assert flushes(t, [a]) == [(turn + 1) * expected(t, here)]
        a.close()
        a.flush()
        # Who has not written has nothing to wait for, and nobody waits for him.
        b = opened(folder, name, comm=t)
        if t.rank == 0:
            b[3] = 4.0
        b.flush_all()
        b.close()
        b.flush()
        t.barrier()
        with opened(folder, name) as c:
            assert c[3, 5] == 4.0

    world.run(body)


@ranks(2)
def test_a_file_that_was_replaced_meanwhile_is_not_said_to_be_safe(world, folder):
    """What was written to it nobody will find; who comes later does not write at all."""

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros(SHAPE)))
        a = outcore.open(folder / "a.npy", "r+", comm=t)
        if t.rank == 0:
            a[0] = 1.0  # opens the file, which is opened when it is first used
        t.barrier()

        def replace():
            np.save(folder / "b.npy", np.zeros(SHAPE))
            (folder / "b.npy").replace(folder / "a.npy")

        once(t, replace)
        if t.rank == 1:
            with pytest.raises(outcore.errors.StorageError, match="file-changed"):
                a[1] = 2.0
        with pytest.raises(CollectiveError, match="file-changed"):
            a.flush_all()
        a.close()

    world.run(body)


class Unflushed:
    """The core of an array whose disk is gone when it is flushed."""

    def __init__(self, core):
        self.core = core

    def __getattr__(self, name):
        return getattr(self.core, name)

    def flush(self, durable):
        raise OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
@ranks(2, 4, per_node=NODES)
def test_a_flush_that_fails_on_one_rank_fails_on_all(world, folder, name):
    def body(t):
        make(t, folder)
        with opened(folder, name, comm=t) as a:
            a.write_all(np.s_[t.rank :: t.size], 1.0)
            core = a.handle.core
            # Whichever rank flushes: that of a node, or each of them.
            a.handle.core = Unflushed(core)
            with pytest.raises(CollectiveError, match="input/output error"):
                a.flush_all()
            a.handle.core = core
            a.flush_all()

    world.run(body)


class Hurried:
    """The core of an array to which is written between the two halves of a flush."""

    def __init__(self, core, write):
        self.core, self.write = core, write

    def __getattr__(self, name):
        return getattr(self.core, name)

    def before_flush(self, *words):
        told = self.core.before_flush(*words)
        self.write()
        return told


@ranks(2, 4)
def test_a_write_during_the_flush_of_another_rank_is_not_covered_by_it(world, folder):
    def body(t):
        path = folder / "a.npy"
        once(t, lambda: np.save(path, np.zeros(SHAPE)))
        a = outcore.open(path, "r+", comm=t)
        a[t.rank] = 1.0
        core = a.handle.core
        a.handle.core = Hurried(core, lambda: core.write(np.s_[t.rank], np.full(60, 2.0)))
        a.flush_all()
        a.handle.core = core
        had = core.flushes()
        a.close()
        if not had:
            with pytest.raises(UsageError, match="before its writes were flushed"):
                a.flush()
        return had

    had = world.run(body)
    assert UNDER_MPI or sum(had) == 1 or not is_local(folder)
