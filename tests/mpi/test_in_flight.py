"""Collective calls that were started: any number in flight, waited for in any order."""

import asyncio
import random

import numpy as np
import pytest

import outcore
import watched
from clock import until
from mpi.collective_cases import Case
from mpi.test_collective import NODES
from outcore.errors import BudgetError, CollectiveError
from outcore.ranks.transport.in_flight import InFlight
from ranks import UNDER_MPI, once, ranks

SHAPE = 60, 64
DATA = np.arange(60 * 64.0).reshape(SHAPE)
METHODS = ("auto", "direct", "sieve", "two-phase")


def shuffled(requests, seed):
    """Every rank waits in an order of its own."""
    return random.Random(seed).sample(requests, len(requests))


@pytest.mark.parametrize("block", range(2 if UNDER_MPI else 4))
@ranks(1, 2, 3, 5, 8, per_node=NODES)
def test_random_requests_equal_numpy(world, folder, block, agree_on):
    """Reads, then a write, then a read of it: of several arrays, all in flight at once."""
    cases = [Case(7000 + 100 * block + 10 * n + world.size, world.size) for n in range(4)]
    agree_on(slot=cases[0].slot, least=cases[0].least)

    def body(t):
        def make():
            for number, case in enumerate(cases):
                (folder / str(number)).mkdir()
                case.create(folder / str(number))

        once(t, make)
        arrays = [case.open(folder / str(n), "r+", t) for n, case in enumerate(cases)]
        requests = []
        for a, case in zip(arrays, cases, strict=True):
            key = case.keys[t.rank]
            started = a.iread_all(key, out=case.out(t.rank), method=case.method)
            requests.append((started, case.data[key], str(case)))
        for a, case in zip(arrays, cases, strict=True):
            started = a.iwrite_all(case.keys[t.rank], case.values[t.rank], method=case.method)
            requests.append((started, "refused" if case.refused else None, str(case)))
            expected = case.data if case.refused else case.written
            requests.append((a.iread_all(method=case.method), expected, str(case)))
        for request, expected, told in shuffled(requests, 100 * block + t.rank):
            if isinstance(expected, str):
                with pytest.raises(CollectiveError, match="same elements"):
                    request.wait()
            elif expected is None:
                assert request.wait() is None
            else:
                np.testing.assert_array_equal(expected, request.wait(), err_msg=told)
            assert request.done
        for a in arrays:
            a.close()

    world.run(body)


@pytest.mark.parametrize("method", METHODS)
@ranks(1, 2, 4, per_node=NODES)
def test_blocking_calls_come_after_what_is_in_flight(world, folder, method, agree_on):
    agree_on(slot=4096, least=1)

    def body(t):
        once(t, lambda: [np.save(folder / f"{n}.npy", DATA) for n in "ab"])
        mine = np.s_[t.rank :: t.size]
        with (
            outcore.open(folder / "a.npy", "r+", comm=t) as a,
            outcore.open(folder / "b.npy", "r+", comm=t) as b,
        ):
            # So that what is cached may be read without a message.
            np.testing.assert_array_equal(DATA, a.read_all())
            for turn in range(1, 4):
                written = a.iwrite_all(mine, DATA[mine] + turn, method=method)
                np.testing.assert_array_equal(DATA + turn, a.read_all())
                assert written.test()
                other = b.iwrite_all(mine, DATA[mine] - turn, method=method)
                got = outcore.mpi.read_all([(a, ...), (b, ...)])
                np.testing.assert_array_equal([DATA + turn, DATA - turn], got)
                reads = [a.iread_all(row, method=method) for row in range(5)]
                assert t.agree(t.rank) == t.size - 1
                assert all(read.test() for read in reads)
                later = b.iwrite_all(mine, turn, method=method)
                b.flush_all()
                assert later.test()
                for row, read in enumerate(reads):
                    np.testing.assert_array_equal(DATA[row] + turn, read.wait())
                written.wait(), other.wait(), later.wait()

    world.run(body)


@pytest.mark.parametrize("method", METHODS)
@ranks(1, 2, 4, per_node=NODES)
def test_requests_end_while_nobody_asks(world, folder, method, agree_on):
    """Disk and messages go on while the program does something else, and does not call outcore."""
    agree_on(slot=4096, least=1)

    def body(t):
        once(t, lambda: outcore.create(folder / "a.zarr", data=DATA, chunks=(7, 9)).close())
        hints = {"cache": "bypass"}
        with outcore.open(folder / "a.zarr", "r+", comm=t, hints=hints) as a:
            key = np.s_[:, t.rank :: t.size]
            before = a.stats()["read_bytes"]
            read = a.iread_all(key, method=method)
            written = a.iwrite_all(key, DATA[key] + 1, method=method)
            until(lambda: written.done)
            moved = np.array([a.stats()["read_bytes"] - before])
            assert read.test()
            np.testing.assert_array_equal(DATA[key], read.wait())
            assert t.allgather(moved).sum() >= 1
            np.testing.assert_array_equal(DATA + 1, a.read_all())

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_starting_and_testing_wait_for_nobody(world, folder):
    """One rank starts, and goes on, long before the others come."""
    signal = folder / "signal"

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        with outcore.open(folder / "a.npy", comm=t) as a:
            if t.rank:
                until(signal.exists)
            requests = [a.iread_all(row, method="two-phase") for row in range(3)]
            if t.rank == 0:
                assert not any(request.test() for request in requests)
                assert not requests[2].cancel()
                with pytest.raises(TimeoutError):
                    requests[2].wait(timeout=0.01)
                signal.touch()
            for row, request in enumerate(requests):
                np.testing.assert_array_equal(DATA[row], request.wait())

    world.run(body)


@ranks(2, 4, per_node=(None, 2))
def test_a_rank_that_fails_fails_its_request_on_all_and_no_other(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            last = t.size - 1
            good = a.iread_all(0)
            bad_key = a.iread_all(1000 if t.rank == last else 1)
            bad_out = a.iread_all(1, out=np.empty(3 if t.rank == 0 else 64))
            bad_value = a.iwrite_all(2, np.zeros(5) if t.rank == last else 1.0)
            after = a.iwrite_all(np.s_[3 + t.rank], -1.0)
            seen = a.iread_all(np.s_[2:4])
            told = [(bad_key, last), (bad_out, 0), (bad_value, last)]
            for request, rank in shuffled(told, t.rank):
                with pytest.raises(CollectiveError) as caught:
                    request.wait()
                assert (caught.value.code, caught.value.ranks) == ("rank-failed", (rank,))
                assert isinstance(caught.value.__cause__, outcore.OutcoreError)
            np.testing.assert_array_equal(DATA[0], good.wait())
            after.wait()
            np.testing.assert_array_equal([DATA[2], np.full(64, -1.0)], seen.wait())

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_failure_in_a_round_is_raised_by_all(world, folder, agree_on, monkeypatch):
    agree_on(slot=1024, least=1)
    failing = []

    class Failing(watched.Seen):
        def begin(self, kind):
            if failing:
                raise OSError("the disk is gone")

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        with outcore.open(folder / "a.npy", comm=t) as a:
            requests = [a.iread_all(method="two-phase") for _ in range(3)]
            for request in shuffled(requests, t.rank):
                with pytest.raises(CollectiveError, match="the disk is gone"):
                    request.wait()
            t.barrier()
            failing.clear()
            np.testing.assert_array_equal(DATA, a.iread_all(method="two-phase").wait())

    # All ranks fail, so that it does not matter who owns what.
    failing.append(True)
    watched.use(monkeypatch, Failing)
    world.run(body)


@ranks(2, 4, per_node=(None, 1))
def test_any_number_in_flight_takes_the_slots_of_one(world, folder):
    n, block = 512, 8 * 256 * 256
    data = np.arange(n * n, dtype="f8").reshape(n, n)

    def body(t):
        once(t, lambda: outcore.create(folder / "a.zarr", data=data, chunks=(256, 256)).close())
        key = np.s_[:, t.rank :: t.size]
        # Two slots here and two for messages; not those of two calls.
        hints = {"memory": 7 * block}
        with outcore.open(folder / "a.zarr", "r+", comm=t, hints=hints) as a:
            reads = [a.iread_all(key, method="two-phase") for _ in range(6)]
            writes = [a.iwrite_all(key, data[key] + k, method="two-phase") for k in range(6)]
            for write in shuffled(writes, t.rank):
                write.wait()
            for read in shuffled(reads, t.rank):
                np.testing.assert_array_equal(data[key], read.wait())
            np.testing.assert_array_equal(data + 5, a.read_all())

    world.run(body)


@ranks(2, 4, per_node=(None, 1))
def test_a_budget_that_is_too_small_is_told_to_all(world, folder):
    def body(t):
        def make():
            outcore.create(
                folder / "a.zarr", data=np.zeros((512, 512)), chunks=(256, 256), compression="zstd"
            ).close()

        once(t, make)
        memory = 8 * 256 * 256 if t.rank == 0 else "64 MiB"
        with outcore.open(folder / "a.zarr", comm=t, hints={"memory": memory}) as a:
            refused = a.iread_all(method="two-phase")
            fine = a.iread_all(np.s_[t.rank])
            with pytest.raises(BudgetError, match="two-phase needs slots"):
                refused.wait()
            np.testing.assert_array_equal(np.zeros(512), fine.wait())

    world.run(body)


@ranks(1, 2, 4, per_node=NODES)
def test_closing_waits(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        mine = np.s_[t.rank :: t.size]
        a = outcore.open(folder / "a.npy", "r+", comm=t)
        for turn in range(5):
            a.iwrite_all(mine, turn)
        read = a.iread_all()
        a.iread_all()  # also one that nobody has kept
        a.close()
        np.testing.assert_array_equal(np.full(SHAPE, 4.0), np.load(folder / "a.npy"))
        assert read.done
        np.testing.assert_array_equal(np.full(SHAPE, 4.0), read.wait())
        late = a.iread_all()
        with pytest.raises(outcore.OutcoreError, match="closed"):
            late.wait()

    world.run(body)


@ranks(1, 2, 4)
def test_a_failure_that_nobody_saw_is_raised_by_flush_or_close(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        for end in ("flush_all", "flush", "close"):
            a = outcore.open(folder / "a.npy", "r+", comm=t)
            a.iwrite_all(1000, 1.0)
            with pytest.raises(outcore.OutcoreError, match="1000"):
                getattr(a, end)()
            a.close()

    world.run(body)


@ranks(2, 4, per_node=(None, 2))
def test_a_group_may_be_left_with_requests_in_flight(world, folder):
    """It is left when they have ended: what was started is written."""

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        a = outcore.open(folder / "a.npy", "r+", comm=t)
        kept = [a.iwrite_all(np.s_[t.rank :: t.size], turn) for turn in range(4)]
        t.close()
        assert all(one.done for one in kept)
        return kept

    for kept in world.run(body):
        for one in kept:
            one.wait()
    np.testing.assert_array_equal(np.full(SHAPE, 3.0), np.load(folder / "a.npy"))


@pytest.mark.simulated
@ranks(2, 4, per_node=(None, 2))
def test_a_rank_that_leaves_ends_the_requests_of_the_others(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        a = outcore.open(folder / "a.npy", comm=t)
        if t.rank == t.size - 1:
            t.close()
            return
        for request in [a.iread_all(k) for k in range(3)]:
            with pytest.raises(CollectiveError) as caught:
                request.wait()
            assert (caught.value.code, caught.value.ranks) == ("rank-died", (t.size - 1,))

    world.run(body, warn=0.4)


@ranks(2, 4, per_node=(None, 2))
def test_different_calls_are_told_apart(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            # A blocking call meets one that was started.
            if t.rank == 0:
                np.testing.assert_array_equal(DATA[3], a.read_all(3))
            else:
                np.testing.assert_array_equal(DATA[4], a.iread_all(4).wait())
            wrong = a.iread_all(0) if t.rank == 0 else a.iwrite_all(0, 1.0)
            with pytest.raises(CollectiveError) as caught:
                wrong.wait()
            assert caught.value.code == "mismatched-call"
            np.testing.assert_array_equal(DATA, a.iread_all().wait())

    world.run(body)


@ranks(2, 3, per_node=(None, 1))
def test_steps_are_those_of_the_blocking_call(world, folder, agree_on, steps):
    agree_on(slot=2048, least=1)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        key = np.s_[:, t.rank :: t.size]
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            for method in METHODS:
                pairs = (
                    (lambda m=method: a.read_all(key, method=m), a.iread_all, (key,)),
                    (lambda m=method: a.write_all(key, 1.0, method=m), a.iwrite_all, (key, 1.0)),
                )
                for blocking, starting, args in pairs:
                    starting(*args, method=method).wait()  # makes the slots
                    steps[t.rank] = []
                    blocking()
                    expected, steps[t.rank] = steps[t.rank], []
                    starting(*args, method=method).wait()
                    assert steps[t.rank] == expected, method

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_distributed_arrays(world, folder):
    def body(t):
        once(t, lambda: [np.save(folder / f"{n}.npy", DATA) for n in "ab"])
        division = outcore.mpi.Distribution(SHAPE, ["block", "*"], t.size)
        first = outcore.mpi.DistArray.empty(division, transport=t)
        second = outcore.mpi.DistArray.empty(division, transport=t)
        # A plain array, too: it is waited for when it is closed.
        with (
            outcore.open(folder / "a.npy", "r+", comm=t) as a,
            outcore.open(folder / "b.npy", "r+") as b,
        ):
            read = first.iread_all(a)
            second.iread_all(b).wait()
            read.wait()
            for array in (first, second):
                for key, view in array.pieces():
                    np.testing.assert_array_equal(DATA[key], view)
                array.owned[...] += 7
            first.iwrite_all(a)
            second.iwrite_all(b)
            wrong = outcore.mpi.DistArray.empty(
                outcore.mpi.Distribution((3,), ["block"], t.size), transport=t
            )
            with pytest.raises(CollectiveError, match="use arrays of the same shape and dtype"):
                wrong.iread_all(a).wait()
        for name in "ab":
            np.testing.assert_array_equal(DATA + 7, np.load(folder / f"{name}.npy"))
        t.barrier()

    world.run(body)


@ranks(1, 2, 4, per_node=(None, 2))
def test_several_communicators(world, folder):
    """Each has its own order; ranks start on them in different ones."""

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        other = t.split(0, t.size - t.rank)
        with (
            outcore.open(folder / "a.npy", comm=t) as a,
            outcore.open(folder / "a.npy", comm=other) as b,
        ):
            both = [(a, 5), (b, 6)]
            started = [(x.iread_all(row), row) for x, row in (both[::-1] if t.rank % 2 else both)]
            for request, row in shuffled(started, t.rank):
                np.testing.assert_array_equal(DATA[row], request.wait())

    world.run(body)


@ranks(1, 2, 3)
def test_requests_can_be_awaited(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        with outcore.open(folder / "a.npy", comm=t) as a:

            async def rows():
                return await asyncio.gather(*[_of(a.iread_all(row)) for row in (3, 1, 2)])

            np.testing.assert_array_equal(DATA[[3, 1, 2]], asyncio.run(rows()))

    world.run(body)


async def _of(request):
    return await request


@ranks(1, 2, 4, per_node=(None, 2))
def test_without_threads_a_call_is_made_where_it_is_started(world, folder):
    """Where MPI was not started with ``MPI_THREAD_MULTIPLE``; on one rank only, too."""

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", DATA))
        if t.rank == 0:
            t.in_flight = InFlight(threads=False)
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            requests = [a.iwrite_all(np.s_[t.rank :: t.size], 2.0), a.iread_all()]
            assert t.rank or all(request.done for request in requests)
            requests[0].wait()
            np.testing.assert_array_equal(np.full(SHAPE, 2.0), requests[1].wait())

    world.run(body)
