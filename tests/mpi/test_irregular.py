"""Collective accesses by indices: against NumPy, on any number of ranks, owners, rounds and groups."""

import dataclasses
import threading
import time

import numpy as np
import pytest

import outcore
from outcore.arrays.indices.schedule import COMBINES
from outcore.ranks.collective.lists.sums import sum_steps
from ranks import UNDER_MPI, collect, ranks

WAYS = [
    {},
    {"io_ranks": 1},
    {"chunk": 64},
    {"chunk": 100, "groups": 2},
    {"chunk": 40, "groups": 3, "io_ranks": 2},
]
FORMATS = {
    "npy": ("a.npy", {}),
    "zstd": ("a.zarr", {"chunks": (7, 5), "compression": "zstd"}),
    "shards": ("a.zarr", {"chunks": (4, 5), "shards": (8, 10)}),
    "hdf5": ("a.h5::/x", {"chunks": (7, 5), "compression": "gzip"}),
    "contiguous": ("a.h5::/x", {}),
}
SHAPE = (40, 10)
DATA = np.arange(400.0).reshape(SHAPE)


class _Tampered:
    """What an owner has of a round, with something that happens before it is read or written."""

    def __init__(self, real, before):
        self._real, self._before = real, before

    def __getattr__(self, name):
        if name in ("read", "write"):
            self._before()
        return getattr(self._real, name)


def _tamper(schedule, before):
    """Let something happen before this rank reads or writes as an owner."""
    tell = schedule._tell_owners

    def told():
        owned = tell()
        return dataclasses.replace(owned, parts=[_Tampered(p, before) for p in owned.parts])

    schedule._tell_owners = told


def _mend(schedule):
    del schedule._tell_owners


def lists(size, seed, axes):
    """Indices of each rank: some have none, some the same ones."""
    rng = np.random.default_rng(seed)
    found = []
    for rank in range(size):
        number = 0 if rank == 1 and size > 2 else int(rng.integers(1, 60))
        found.append(tuple(rng.integers(-SHAPE[d], SHAPE[d], number) for d in axes))
    return found


def made(t, folder, name):
    path, options = FORMATS[name]
    path = str(folder / path)
    if t.rank == 0:
        outcore.create(path, data=DATA, **options).close()
    t.barrier()
    return path


@pytest.mark.parametrize("name", ["npy", "zstd"])
@ranks(1, 2, 3, 5, 8, per_node=(None, 2))
def test_elements_are_those_of_numpy(world, folder, name):
    elements_are_those_of_numpy(world, folder, name)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("npy", "zstd")])
@ranks(1, 3, per_node=(None, 2))
def test_elements_of_other_formats_are_those_of_numpy(world, folder, name):
    elements_are_those_of_numpy(world, folder, name)


def elements_are_those_of_numpy(world, folder, name):
    def body(t):
        path = made(t, folder, name)
        for number, how in enumerate(WAYS):
            how = {k: min(v, t.size) if k == "io_ranks" else v for k, v in how.items()}
            axes = [(0,), (0, 1), (1,)][number % 3]
            rest = [np.s_[1:9:3], None, np.s_[2:]][number % 3]
            all_lists = lists(t.size, number, axes)
            expected = DATA.copy()

            def key(rank, axes=axes, rest=rest, all_lists=all_lists):
                mine = all_lists[rank]
                if axes == (0,):
                    return (mine[0], rest)
                return (rest, mine[0]) if axes == (1,) else mine

            with outcore.open(path, "r+", comm=t) as a:
                schedule = a.schedule_all(key(t.rank), **how)
                for method in ("auto", "direct", "collective", "pipelined"):
                    got = schedule.gather_all(method=method)
                    assert np.array_equal(expected[key(t.rank)], got), (how, method)
                for method in ("auto", "collective", "pipelined"):
                    rng = np.random.default_rng(number)
                    each = [rng.standard_normal(expected[key(r)].shape) for r in range(t.size)]
                    schedule.scatter_all(each[t.rank], method=method)
                    for rank, values in enumerate(each):
                        expected[key(rank)] = values
                    assert np.array_equal(expected[key(t.rank)], schedule.gather_all())
                t.barrier()
                assert np.array_equal(expected, a[...])
                t.barrier()
                schedule.scatter_all(DATA[key(t.rank)])
                if t.rank == 0:
                    a[...] = DATA
                t.barrier()

    world.run(body)


@pytest.mark.parametrize("combine", COMBINES)
@ranks(1, 2, 3, 5, 8, per_node=(None, 2))
def test_sums_have_the_bits_of_one_process(world, folder, combine):
    indices = np.random.default_rng(1).integers(0, 40, 600)
    values = np.random.default_rng(2).standard_normal((600, 10)) * 10.0 ** (
        indices[:, None] % 19 - 9
    )
    expected = DATA.copy()
    COMBINES[combine].at(expected, indices, values)

    def body(t):
        path = made(t, folder, "npy")
        cuts = [600 * k // t.size for k in range(t.size + 1)]
        mine = slice(cuts[t.rank], cuts[t.rank + 1])
        for how in WAYS[:1] + WAYS[2:4]:
            with outcore.open(path, "r+", comm=t) as a:
                schedule = a.schedule_all(indices[mine], **how)
                schedule.scatter_all(values[mine], combine)
                t.barrier()
                assert expected.tobytes() == a[...].tobytes()
                t.barrier()
                if t.rank == 0:
                    a[...] = DATA
                t.barrier()

    world.run(body)


@ranks(1, 3, 4)
def test_elements_that_nobody_writes_are_filled_or_keep_their_value(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        mine = np.arange(t.rank, 40, 2 * t.size)
        for fill in (None, -5.0):
            with outcore.open(path, "r+", comm=t) as a:
                a.schedule_all(mine, chunk=100).scatter_all(7.0, fill=fill)
                t.barrier()
                expected = DATA.copy() if fill is None else np.full(SHAPE, fill)
                for rank in range(t.size):
                    expected[rank :: 2 * t.size] = 7.0
                assert np.array_equal(expected, a[...])
                t.barrier()

    world.run(body)


@ranks(1, 2, 3)
def test_a_schedule_serves_arrays_of_other_types_and_layouts(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        other = str(folder / "other.zarr")
        if t.rank == 0:
            outcore.create(other, data=DATA.astype("f4"), chunks=(3, 4), compression="zstd").close()
        t.barrier()
        mine = np.arange(t.rank, 40, t.size)[::-1]
        with outcore.open(path, comm=t) as a:
            schedule = a.schedule_all(mine)
            mine_of_a = schedule.gather_all()
        # The array of which it was made is closed.
        with outcore.open(other, "r+", comm=t) as b:
            schedule.scatter_all(mine_of_a + 1, of=b)
            t.barrier()
            assert np.array_equal((DATA + 1).astype("f4"), b[...])

    world.run(body)


@ranks(2, 3)
def test_one_rank_with_a_bad_index_fails_on_all_and_nothing_is_written(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, "r+", comm=t) as a:
            with pytest.raises(outcore.errors.CollectiveError, match=r"rank 1.*40.*position 2"):
                a.schedule_all(np.array([0, 1, 40 if t.rank == 1 else 2]))
            schedule = a.schedule_all(np.array([t.rank]))
            with pytest.raises(outcore.errors.CollectiveError, match="rank 1"):
                schedule.scatter_all(np.zeros((1, 3 if t.rank == 1 else 10)))
            with pytest.raises(outcore.errors.CollectiveError):
                schedule.scatter_all(0.0, "last" if t.rank else "add")
            with pytest.raises(outcore.errors.CollectiveError):
                a.schedule_all(np.array([0]), io_ranks=1 + t.rank)
            for bad in ({"chunk": 0}, {"io_ranks": 0}, {"groups": -1}, {"chunk": 1.5}):
                with pytest.raises(outcore.errors.CollectiveError, match="at least 1"):
                    a.schedule_all(np.array([0]), **bad)
            with pytest.raises(outcore.errors.CollectiveError):
                a.schedule_all(np.s_[[0], t.rank :])
            t.barrier()
            assert np.array_equal(DATA, a[...])
            # They go on together.
            assert np.array_equal(DATA[[t.rank]], schedule.gather_all())

    world.run(body)


@pytest.mark.simulated
@ranks(3)
def test_an_owner_that_cannot_read_fails_on_all_at_the_same_step(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, comm=t) as a:
            schedule = a.schedule_all(np.arange(40), chunk=200)
            if t.rank == 2:

                def broken():
                    raise OSError("the disk is gone")

                _tamper(schedule, broken)
            for method in ("collective", "pipelined"):
                with pytest.raises(outcore.errors.CollectiveError, match="the disk is gone"):
                    schedule.gather_all(method=method)
            if t.rank == 2:
                _mend(schedule)
            assert np.array_equal(DATA, schedule.gather_all(method="pipelined"))

    world.run(body)


@pytest.mark.simulated
@pytest.mark.parametrize("chunk", [200, 1 << 20])  # several steps, and one
@ranks(3)
def test_an_owner_that_cannot_write_fails_on_all(world, folder, chunk):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, "r+", comm=t) as a:
            schedule = a.schedule_all(np.arange(40), chunk=chunk)
            if t.rank == 2:

                def broken():
                    raise OSError("the disk is full")

                _tamper(schedule, broken)
            for method in ("collective", "pipelined"):
                with pytest.raises(outcore.errors.CollectiveError, match="the disk is full"):
                    schedule.scatter_all(1.0, method=method)

    world.run(body)


@ranks(1, 2, 4)
def test_lists_are_read_by_other_numbers_of_ranks(world, folder):
    """Checkpoint and restart: the order in the file is that of the array."""

    def body(t):
        path = str(folder / "checkpoint.npy")
        if t.rank == 0:
            outcore.create(path, (1000,), "f8").close()
        t.barrier()
        order = np.random.default_rng(5).permutation(1000)
        mine = order[t.rank :: t.size]
        with outcore.open(path, "r+", comm=t) as a:
            a.schedule_all(mine, groups=2, chunk=512).scatter_all(np.sqrt(mine))
            t.barrier()
            back = np.array_split(np.arange(1000)[::-1], t.size)[t.rank]
            assert np.array_equal(
                np.sqrt(back), a.schedule_all(back).gather_all(method="collective")
            )

    world.run(body)


@ranks(2)
def test_one_rank_alone_has_more_indices_than_memory(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, comm=t) as a:
            mine = np.full(200_000, 7) if t.rank == 1 else np.array([t.rank])
            schedule = a.schedule_all(mine)
            assert schedule.on_disk
            assert np.array_equal(DATA[mine], schedule.gather_all(method="collective"))
            assert np.array_equal(DATA[[t.rank]], a.schedule_all([t.rank]).gather_all())

    with outcore.memory("4 MiB"):
        world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_reported_method_is_the_one_that_runs(world, folder):
    def body(t):
        for name in ("npy", "zstd"):
            path = made(t, folder, name)
            with outcore.open(path, "r+", comm=t) as a:
                schedule = a.schedule_all(np.random.default_rng(t.rank).permutation(40), chunk=800)
                done = []
                told, gather, scatter = [], schedule._gather, schedule._scatter

                def gathered(*args, ahead, done=done, gather=gather):
                    done.append("pipelined" if ahead else "collective")
                    gather(*args, ahead=ahead)

                def scattered(*args, ahead, done=done, scatter=scatter):
                    done.append("pipelined" if ahead else "collective")
                    scatter(*args, ahead=ahead)

                schedule._gather, schedule._scatter = gathered, scattered
                for method in ("auto", "direct", "collective", "pipelined"):
                    report = schedule.explain_all(method=method)
                    told.append(report)
                    done.clear()
                    schedule.gather_all(method=method)
                    assert [m for m in [report.method] if m != "direct"] == done
                    if method != "auto":
                        assert report.method == method
                report = schedule.explain_all(write=True)
                told.append(report)
                done.clear()
                schedule.scatter_all(1.0)
                assert [report.method] == done
                assert report.prices.direct is None
                assert (report.wanted_bytes, report.rounds) == (t.size * 3200, 4)
                texts = t.allgather_bytes("\n".join(map(str, told)).encode())
                assert len(set(texts)) == 1
                with pytest.raises(outcore.errors.CollectiveError, match="direct"):
                    schedule.explain_all(write=True, method="direct")
                with pytest.raises(outcore.errors.CollectiveError, match="schedule_all"):
                    a.explain_all([0])

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_counts_of_all_ranks_are_added_up_in_memory_that_is_counted(world, folder):
    number = 1 << 17

    def body(t):
        path = str(folder / "many.npy")
        if t.rank == 0:
            outcore.create(path, data=np.arange(number) % 251, dtype="u1").close()
        t.barrier()
        order = np.random.default_rng(3).permutation(number)
        mine = order[t.rank :: t.size]
        with outcore.open(path, comm=t) as a:
            schedule = a.schedule_all(mine)
            width, bins = schedule._listed.bins.width, schedule._listed.bins.number
            assert 3000 * t.size < bins <= 4096 * t.size
            assert schedule.nbytes >= 24 * mine.size + 24 * bins
            sent, start = [], t.start_exchange
            t.start_exchange = lambda *words: sent.append(words[1].copy()) or start(*words)
            try:
                sums = schedule._count_in_bins()
            finally:
                t.start_exchange = start
            assert np.array_equal(np.bincount(np.arange(number) // width), sums)
            assert schedule._count_in_bins() is sums
            steps = sum_steps(t.rank, t.size, bins) if t.size > 1 else []
            lengths = [8 * (step.sent[1] - step.sent[0]) for step in steps]
            assert lengths == [int(each.sum()) for each in sent]
            # Each partner has a message with counts, and one with sums.
            if t.size in (1, 2, 4):
                assert sum(map(bool, lengths)) == {1: 0, 2: 2, 4: 4}[t.size]
                assert sum(lengths) == 2 * 8 * (bins - bins // t.size)
            for method in ("collective", "pipelined"):
                assert np.array_equal(mine % 251, schedule.gather_all(method=method))
        # The bins of a rank with little memory do not fit it: then all go in passes.
        hints = {"memory": 40 * bins} if t.rank == t.size - 1 else {}
        with outcore.open(path, comm=t, hints=hints) as a:
            few = mine[:100]
            schedule = a.schedule_all(few)
            assert schedule.on_disk
            assert np.array_equal(few % 251, schedule.gather_all(method="collective"))

    world.run(body)


@ranks(1, 3)
def test_a_list_that_is_changed_later_changes_no_schedule(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, comm=t) as a:
            mine = np.arange(t.rank, 40, 3)
            schedule = a.schedule_all(mine)
            expected = DATA[mine]
            mine[:] = 0
            for method in ("direct", "collective"):
                assert np.array_equal(expected, schedule.gather_all(method=method))

    world.run(body)


@ranks(1, 3, per_node=(None, 2))
def test_a_list_that_is_written_once_is_left_as_it_is(world, folder):
    def body(t):
        path, mine = (
            made(t, folder, "npy"),
            np.random.default_rng(6).permutation(40)[t.rank :: t.size],
        )
        with outcore.open(path, "r+", comm=t) as a:
            for number, given in enumerate(
                (mine.copy(), mine - 40, np.where(mine % 2, mine, mine - 40))
            ):
                kept, values = given.copy(), mine[:, None] * 10.0 + np.arange(10) + number
                given.setflags(write=number == 1)
                a.write_all(given, values)
                assert np.array_equal(kept, given)
                t.barrier()
                assert np.array_equal(DATA + number, a[...])
                t.barrier()

    world.run(body)


@ranks(3, per_node=(None, 2))
def test_many_windows_and_steps_keep_the_order_of_lists(world, folder, monkeypatch):
    """Windows of a few elements: each has elements of all ranks, and rows of all sizes."""
    from outcore.ranks.collective.lists import elements

    monkeypatch.setattr(elements, "_WINDOW", 16)

    def body(t):
        for dtype in ("u1", "f4", "c16", "S3"):
            path = str(folder / f"windows-{dtype}.npy")
            if t.rank == 0:
                outcore.create(path, (3000,), dtype).close()
            t.barrier()
            rng = np.random.default_rng(9)
            every = [rng.integers(0, 3000, 500) for _ in range(t.size)]
            values = [rng.integers(0, 99, 500).astype(dtype) for _ in range(t.size)]
            expected = np.zeros(3000, dtype)
            for indices, some in zip(every, values, strict=True):
                expected[indices] = some
            for how in ({}, {"chunk": 400}, {"chunk": 400, "groups": 2}, {"io_ranks": 2}):
                with outcore.open(path, "r+", comm=t) as a:
                    schedule = a.schedule_all(every[t.rank], **how)
                    schedule.scatter_all(values[t.rank])
                    for method in ("collective", "pipelined"):
                        got = schedule.gather_all(method=method)
                        assert np.array_equal(expected[every[t.rank]], got)
                    t.barrier()
                    assert np.array_equal(expected, a[...])
                    t.barrier()
                    if t.rank == 0:
                        a[...] = np.zeros(3000, dtype)
                    t.barrier()

    world.run(body)


class _Late:
    """An exchange, or a schedule, that does what it does a moment later on one rank."""

    def __init__(self, real, names):
        self._real, self._names = real, names

    def __getattr__(self, name):
        real = getattr(self._real, name)
        if name not in self._names:
            return real

        def late(*args):
            time.sleep(0.05)
            return real(*args)

        return late


def _slow(schedule, names):
    """Makes what a schedule exchanges late."""
    owned = schedule._owned
    schedule._owned = dataclasses.replace(owned, exchange=_Late(owned.exchange, names))


@pytest.mark.simulated
@ranks(3)
def test_owners_write_when_all_ranks_have_brought_theirs(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        mine = np.random.default_rng(3).permutation(40)[t.rank :: 3]
        with outcore.open(path, "r+", comm=t) as a:
            for chunk in (None, 400):
                schedule = a.schedule_all(mine, chunk=chunk)
                schedule.scatter_all(-1.0)
                if t.rank == 2:
                    _slow(schedule, {"bring"})
                for method in ("collective", "pipelined"):
                    schedule.scatter_all(DATA[mine], method=method)
                    t.barrier()
                    assert np.array_equal(DATA, a[...])
                    t.barrier()

    world.run(body)


@pytest.mark.simulated
@ranks(3)
def test_ranks_take_what_owners_have_read(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        mine = np.random.default_rng(3).permutation(40)[t.rank :: 3]
        with outcore.open(path, "r+", comm=t) as a:
            for chunk in (None, 400):
                schedule = a.schedule_all(mine, chunk=chunk)
                schedule.scatter_all(-1.0)
                schedule.gather_all(method="collective")
                t.barrier()
                if t.rank == 0:
                    a[...] = DATA
                t.barrier()
                if t.rank == 2:
                    _tamper(schedule, lambda: time.sleep(0.05))
                for method in ("collective", "pipelined"):
                    assert np.array_equal(DATA[mine], schedule.gather_all(method=method))

    world.run(body)


@pytest.mark.simulated
@ranks(3)
def test_owners_take_indices_when_all_ranks_have_told_theirs(world, folder, monkeypatch):
    from outcore.ranks.collective.lists.elements import SlotExchange

    bring = SlotExchange.bring

    def late(self, step, room, rows, row):
        if self._group.rank == 2:
            time.sleep(0.05)
        bring(self, step, room, rows, row)

    monkeypatch.setattr(SlotExchange, "bring", late)

    def body(t):
        path = made(t, folder, "npy")
        mine = np.random.default_rng(3).permutation(40)[t.rank :: 3]
        with outcore.open(path, comm=t) as a:
            for chunk in (None, 400):
                schedule = a.schedule_all(mine, chunk=chunk)
                assert np.array_equal(DATA[mine], schedule.gather_all(method="collective"))

    world.run(body)


@pytest.mark.simulated
@ranks(3)
def test_elements_are_filled_before_values_come(world, folder):
    """Where a write fails later, elements that were to be written are old or new, not filled."""

    def body(t):
        path = made(t, folder, "npy")
        mine = np.arange(t.rank, 40, 6)
        with outcore.open(path, "r+", comm=t) as a:
            schedule = a.schedule_all(mine)

            def broken():
                raise OSError("the disk is full")

            _tamper(schedule, broken)
            with pytest.raises(outcore.errors.CollectiveError, match="the disk is full"):
                schedule.scatter_all(7.0, fill=-5.0)
            t.barrier()
            expected = np.full(SHAPE, -5.0)
            for rank in range(3):
                expected[rank::6] = DATA[rank::6]
            assert np.array_equal(expected, a[...])

    world.run(body)


@ranks(1, 3, per_node=(None, 2))
def test_domains_that_are_listed_almost_wholly_are_read_and_written_in_blocks(
    world, folder, monkeypatch
):
    from outcore.ranks.collective.lists import dense, elements

    monkeypatch.setattr(elements, "_WINDOW", 80)
    monkeypatch.setattr(dense, "_BLOCK", 200)

    def body(t):
        path = made(t, folder, "npy")
        rng = np.random.default_rng(11)
        whole = rng.permutation(np.concatenate([np.arange(40), rng.integers(0, 40, 50)]))
        for every, key in (
            (whole, np.s_[:]),
            (whole, np.s_[1:9:3]),
            (whole[whole != 17], np.s_[:]),
        ):
            with outcore.open(path, "r+", comm=t) as a:
                mine = np.array_split(every, t.size)[t.rank]
                schedule = a.schedule_all((mine, key), chunk=1000)
                expected = DATA.copy()
                values = np.arange(float(every.size))[:, None] * 100 + np.arange(10)
                values = values[:, key]
                expected[every, key] = values
                schedule.scatter_all(np.array_split(values, t.size)[t.rank])
                for method in ("collective", "pipelined"):
                    got = schedule.gather_all(method=method)
                    assert np.array_equal(expected[mine, key], got)
                t.barrier()
                # What nobody names stays.
                assert np.array_equal(expected, a[...])
                t.barrier()
                if t.rank == 0:
                    a[...] = DATA
                t.barrier()

    world.run(body)


@pytest.mark.simulated
@ranks(2)
def test_a_list_in_memory_is_counted_until_passes_bring_it_to_disk(world, folder):
    def body(t):
        path = made(t, folder, "npy")
        with outcore.open(path, comm=t) as a:
            mine = np.arange(400_000 if t.rank == 1 else 20_000) % 40
            t.barrier()
            before = outcore._core.memory_state()[0]
            t.barrier()
            schedule = a.schedule_all(mine)
            t.barrier()
            assert schedule.on_disk
            assert outcore._core.memory_state()[0] - before >= 20_000 * 8
            assert schedule.nbytes >= (0 if t.rank else 20_000 * 8)
            # Who goes on brings his list to disk.
            t.barrier()
            assert np.array_equal(DATA[mine], schedule.gather_all(method="collective"))
            assert schedule.nbytes == 0

    with outcore.memory("8 MiB"):
        world.run(body)


@pytest.mark.simulated
@ranks(3, per_node=(None, 1))
def test_owners_that_were_told_in_vain_hold_no_memory(world, folder, monkeypatch):
    from outcore.ranks.collective.lists import owners as listed_owners

    whole, failing = listed_owners.OwnerPart, set()

    def part(*args):
        if threading.get_ident() in failing:
            raise OSError("the memory is gone")
        return whole(*args)

    monkeypatch.setattr(listed_owners, "OwnerPart", part)

    def body(t):
        path, mine = made(t, folder, "npy"), np.arange(t.rank, 40, 3).repeat(1000)
        with outcore.open(path, comm=t) as a:
            schedule = a.schedule_all(mine)
            kept = schedule.nbytes
            if t.rank == 2:
                failing.add(threading.get_ident())
            t.barrier()
            before = outcore._core.memory_state()[0]
            t.barrier()
            with pytest.raises(outcore.errors.CollectiveError, match="the memory is gone"):
                schedule.gather_all(method="collective")
            assert schedule.nbytes == kept
            collect(t)
            assert outcore._core.memory_state()[0] - before < mine.nbytes
            t.barrier()
            failing.discard(threading.get_ident())
            assert np.array_equal(DATA[mine], schedule.gather_all(method="collective"))

    world.run(body)


@pytest.mark.simulated
@pytest.mark.parametrize("way", ["gather", "scatter"])
@ranks(3, per_node=(1,))
def test_a_rank_that_cannot_pack_its_messages_lets_no_other_wait(world, folder, monkeypatch, way):
    from outcore.ranks.collective.lists.elements import MessageExchange

    def broken(self, step):
        if self._group.rank == 1:
            raise MemoryError("no memory for messages")
        return whole(self, step)

    def body(t):
        path, mine = made(t, folder, "npy"), np.arange(t.rank, 40, 3)
        with outcore.open(path, "r+", comm=t) as a:
            schedule = a.schedule_all(mine)
            schedule.scatter_all(1.0)
            t.barrier()
            if t.rank == 0:
                monkeypatch.setattr(MessageExchange, "_find_own", broken)
            t.barrier()
            ways = {
                "gather": lambda: schedule.gather_all(method="collective"),
                "scatter": lambda: schedule.scatter_all(2.0),
            }
            with pytest.raises(outcore.errors.CollectiveError, match="no memory for messages"):
                ways[way]()

    whole = MessageExchange._find_own
    world.run(body)


@pytest.mark.simulated
@pytest.mark.parametrize("ahead", [False, True])
@ranks(3, per_node=(1,))
def test_an_owner_without_room_fails_on_all_before_anything_is_sent(
    world, folder, monkeypatch, ahead
):
    from outcore.ranks.collective.lists.elements import MessageExchange

    whole, calls = MessageExchange.room, {}

    def room(self, step, nbytes):
        calls[self._group.rank] = calls.get(self._group.rank, 0) + 1
        if self._group.rank == 1 and failing and step == 1:
            raise MemoryError("no room")
        return whole(self, step, nbytes)

    monkeypatch.setattr(MessageExchange, "room", room)
    failing = []

    def body(t):
        path, mine = made(t, folder, "npy"), np.arange(t.rank, 40, 3)
        method = "pipelined" if ahead else "collective"
        with outcore.open(path, "r+", comm=t) as a:
            for when in ("told", "scattered"):
                schedule = a.schedule_all(mine, chunk=400)
                t.barrier()
                if when == "scattered":
                    schedule.scatter_all(1.0)
                    t.barrier()
                if t.rank == 0:
                    failing.append(1)
                t.barrier()
                with pytest.raises(outcore.errors.CollectiveError, match="no room"):
                    schedule.scatter_all(2.0, method=method)
                t.barrier()
                if t.rank == 0:
                    failing.clear()
                t.barrier()
                # The group is as it was.
                schedule.scatter_all(3.0, method=method)
                assert (schedule.gather_all(method=method) == 3.0).all()

    world.run(body)
    assert calls


@ranks(1, 2)
def test_copies_of_values_and_results_are_counted_or_come_in_passes(world, folder):
    shape = (2000, 50)
    data = np.arange(100_000.0).reshape(shape)
    limit = None

    def body(t):
        path = str(folder / "a.npy")
        if t.rank == 0:
            outcore.create(path, data=data, overwrite=True).close()
        t.barrier()
        mine = np.arange(t.rank, 2000, t.size)[::-1]
        hints = {} if limit is None else {"memory": limit}
        with outcore.open(path, "r+", comm=t, hints=hints) as a:
            schedule = a.schedule_all(mine)
            turned = np.empty((50, mine.size)).T
            for method in ("collective", "direct"):
                turned[...] = 0
                t.barrier()
                outcore._core.reset_memory_peak()
                t.barrier()
                before = outcore._core.memory_state()[0]
                assert schedule.gather_all(turned, method=method) is turned
                if world.size == 1 and limit is None:
                    assert outcore._core.memory_state()[2] - before >= turned.nbytes
                assert np.array_equal(data[mine], turned)
            schedule.scatter_all(turned.astype("f4") * 2)
            t.barrier()
            assert np.array_equal((2 * data.astype("f4")), a[...])
            t.barrier()
            schedule.scatter_all(data[mine])
            t.barrier()

    world.run(body)
    limit = 600_000
    # Threads share what they have together, twice: none knows what another one is about to take.
    together = 1 if UNDER_MPI or world.size == 1 else 2 * world.size
    with outcore.memory(limit * together):
        world.run(body)
