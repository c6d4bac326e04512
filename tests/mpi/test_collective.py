"""Collective reads and writes, serial, on simulated ranks and under MPI."""

import pickle
import threading
import time
from collections import Counter

import numpy as np
import pytest

import outcore
import watched
from mpi.collective_cases import Case
from outcore.errors import BudgetError, CollectiveError
from outcore.ranks.collective import call, independent, rounds
from ranks import UNDER_MPI, once, ranks

SOME = 12
NODES = (None, 1, 2)


@pytest.mark.parametrize("block", range(3))
@ranks(1, 2, 3, 4, 5, 8, 16, per_node=NODES)
def test_random_collectives_equal_numpy(world, folder, block, agree_on):
    """Of few ranks many: a case of 16 takes as long as ten of 3, and shows no other rounds."""
    most = SOME if world.size <= 4 else SOME // 4 if world.size <= 8 else 2
    random_collectives(world, folder, block, most, agree_on)


@pytest.mark.parametrize("block", range(3, 6))
@ranks(4, 8, 16, per_node=NODES)
def test_more_random_collectives_equal_numpy_slow(world, folder, block, agree_on):
    random_collectives(world, folder, block, SOME, agree_on)


def random_collectives(world, folder, block, most, agree_on):
    for number in range(most):
        case = Case(1000 * block + 31 * number + world.size, world.size)
        agree_on(slot=case.slot, least=case.least)
        where = folder / f"{block}-{number}"

        def body(t, case=case, where=where):
            def make():
                where.mkdir(exist_ok=True)
                case.create(where)

            once(t, make)
            key, out = case.keys[t.rank], case.out(t.rank)
            with case.open(where, "r", t) as a:
                got = a.read_all(key, out=out, method=case.method)
                np.testing.assert_array_equal(case.data[key], got, err_msg=str(case))
            t.barrier()
            with case.open(where, "r+", t) as a:
                if case.refused:
                    with pytest.raises(CollectiveError, match="same elements"):
                        a.write_all(key, case.values[t.rank], method=case.method)
                else:
                    a.write_all(key, case.values[t.rank], method=case.method)
                whole = a.read_all(..., method=case.method)
            expected = case.data if case.refused else case.written
            np.testing.assert_array_equal(expected, whole, err_msg=str(case))

        world.run(body)


@ranks(1, 2, 4, per_node=NODES)
def test_keys_of_all_kinds(world, folder):
    data = np.arange(4 * 6 * 5).reshape(4, 6, 5)
    keys = [
        np.s_[1, ::-2, None, 2:],
        np.s_[..., 3],
        np.s_[2, 3, 4],
        np.s_[0:0],
        np.s_[-1],
        np.s_[:, None, ::-1],
    ]

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t) as a:
            for turn in range(len(keys)):
                key = keys[(turn + t.rank) % len(keys)]
                got = a.read_all(key, method="two-phase")
                np.testing.assert_array_equal(data[key], got)
                assert type(data[key]) is type(got)
                out = np.zeros(np.shape(data[key]) + (2,), data.dtype)[..., 0]
                if out.ndim:
                    assert a.read_all(key, out=out, method="two-phase") is out
                    np.testing.assert_array_equal(data[key], out)

    world.run(body)


@ranks(2, 4, 8, per_node=NODES)
def test_every_byte_is_read_once_and_as_told(world, folder):
    n = 256
    data = np.arange(n * n, dtype="i4").reshape(n, n)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        read = []
        for method in ("straight", "window"):
            for key in (np.s_[:, t.rank :: t.size], np.s_[32:64, 16:48]):
                with outcore.open(folder / "a.npy", comm=t, hints={"method": method}) as a:
                    told = a.explain_all(key, method="two-phase")
                    got = a.read_all(key, method="two-phase")
                    np.testing.assert_array_equal(data[key], got)
                    mine = a.stats()["read_bytes"] + a.stats()["mapped_bytes"]
                    read.append((told, int(t.allgather(np.array([mine]))[:, 0].sum())))
        return read

    for read in world.run(body):
        for told, columns in read[::2]:  # all of the file, once
            assert (n * n * 4, n * n * 4) == (told.domain_bytes, columns)
        for told, _ in read[1::2]:
            assert told.domain_bytes == 32 * 32 * 4
            assert world.size * 32 * 32 * 4 == told.wanted_bytes
        (_, runs), (told, windows) = read[1::2]
        assert runs == 32 * 32 * 4
        # A window has what lies between the rows of a tile, and nothing between tiles.
        tiles = sum(number for _, number, _ in told.domains)
        assert windows == (32 - tiles) * n * 4 + tiles * 32 * 4


@ranks(1, 4, per_node=(None, 1))
def test_ranks_of_a_node_do_not_write_through_mappings_together(world, folder, monkeypatch):
    """First writes to mapped pages get in each other's way: runs of 8 KiB are calls then."""
    plain, here = independent.access_independently, threading.local()

    def looked_at(group, mine, method, *, write, **more):
        if write:
            here.told = mine[0].array.explain(mine[0].key, write=True)
        return plain(group, mine, method, write=write, **more)

    monkeypatch.setattr(independent, "access_independently", looked_at)

    def body(t):
        data = np.ones((512, 2048 * t.size), "f4")
        once(t, lambda: outcore.create(folder / "a.npy", data=data).close())
        mine = np.s_[:, 2048 * t.rank : 2048 * (t.rank + 1)]
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            a.write_all(mine, np.full((512, 2048), t.rank, "f4"), method="direct")
            told, after = here.told, a.explain(mine, write=True)
            assert (a.read_all(mine) == t.rank).all()
            cached = min(told.page_cache_fraction or 0, after.page_cache_fraction or 0)
            if t.agree(int(cached < 0.96)):
                return None  # not all of it is cached, or nothing on this file system
            return told.method, after.method

    found = world.run(body)
    if None in found:
        pytest.skip("the file is not in the page cache")
    contended = world.size > 1 and world.ranks_per_node != 1
    assert set(found) == {("straight" if contended else "mapped", "mapped")}


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@ranks(4, 8, per_node=(1, 2, 3))
def test_messages_of_each_round_are_as_planned(
    world, folder, write, agree_on, on_packets, monkeypatch
):
    """Who sends how many bytes to whom, counted element by element; nothing within a node."""
    agree_on(slot=8192 if world.size < 16 else 4096, least=1)  # several rounds
    here, works = threading.local(), {}

    def sends(packets, part):
        sent = here.sent.setdefault(packets.step.k, Counter())
        sent.update({int(r): int(part.to[r]) for r in np.flatnonzero(part.to)})

    def noted(plain):
        def run(work, *more):
            works[work.rank] = work
            return plain(work, *more)

        return run

    on_packets(sends)
    for name in ("read_rounds", "write_rounds"):
        monkeypatch.setattr(call, name, noted(getattr(call, name)))
    data = np.arange(96 * 200, dtype="i4").reshape(96, 200)

    def body(t):
        here.sent = {}
        once(t, lambda: np.save(folder / "a.npy", data))
        keys = [np.s_[r % 3 : 96 - r : 2, r :: t.size + 1] for r in range(t.size)]
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            if write:
                a.write_all(keys[t.rank], t.rank, method="two-phase")
            else:
                got = a.read_all(keys[t.rank], method="two-phase")
                np.testing.assert_array_equal(data[keys[t.rank]], got)
        plan, wanted = works[t.rank].plan, []
        for key in keys:
            wanted.append(np.zeros(data.shape, bool))
            wanted[-1][key] = True
        several = len(set(t.nodes)) > 1
        assert len(here.sent) == (plan.rounds if several else 0) and plan.rounds > 1
        for k, sent in here.sent.items():
            expected = {}
            for owner in plan.owners():
                if k >= plan.tiles(owner):
                    continue
                held = tuple(slice(a, a + (n - 1) * s + 1, s) for a, n, s in plan.tile(owner, k)[1])
                for rank, want in enumerate(wanted):
                    source, target = (rank, owner) if write else (owner, rank)
                    nbytes = 4 * int(want[held].sum())
                    if source == t.rank and t.nodes[target] != t.nodes[source] and nbytes:
                        expected[target] = nbytes
            assert sent == expected
        together = int(t.allgather(np.array([sum(map(len, here.sent.values()))]))[:, 0].sum())
        assert (together > 0) == several

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_ranks_meet_once_a_round_and_at_both_ends(world, folder, steps, agree_on):
    """All that ranks wait for each other, once they have slots."""
    agree_on(slot=16384, least=1)

    def body(t):
        data = np.arange(t.size * 64 * 256, dtype="i4").reshape(-1, 256)
        once(t, lambda: np.save(folder / "a.npy", data))
        key, seen = np.s_[:, t.rank :: t.size], []
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            rounds = a.explain_all(key, method="two-phase").rounds
            for _ in range(2):
                steps[t.rank] = []
                got = a.read_all(key, method="two-phase")
                read, steps[t.rank] = steps[t.rank], []
                a.write_all(key, got, method="two-phase")
                seen = [read, steps[t.rank]]
        return rounds, seen

    for number, (read, written) in world.run(body):
        assert number > 1
        assert read == ["allgather"] + ["agree"] * (number + 1)
        # What a round wrote is on its way before the next one begins.
        assert written == ["allgather"] + ["agree"] * (2 * number + 1)


@pytest.mark.parametrize("groups", [2, 3, 9])
@ranks(4, 5, per_node=(None, 2))
def test_groups_of_owners_take_turns_at_the_disk(world, folder, groups, agree_on, monkeypatch):
    """While one group reads or writes no other one does; equal results, as many bytes."""
    agree_on(slot=8192, least=1)
    monkeypatch.setattr(rounds, "REWRITES", True)
    times = []

    class Timed(watched.Seen):
        begun = threading.local()

        def begin(self, kind):
            self.begun.at = time.monotonic_ns()

        def end(self, kind):
            times.append((self.rank, self.begun.at, time.monotonic_ns()))

    watched.use(monkeypatch, Timed)
    data = np.arange(128 * 600, dtype="i4").reshape(128, 600)

    def body(t):
        once(t, lambda: outcore.create(folder / "g.npy", data=data).close())
        mine = np.s_[:, t.rank :: t.size]
        with outcore.open(folder / "g.npy", "r+", comm=t, hints={"io_groups": groups}) as a:
            report = a.explain_all(mine, method="two-phase")
            assert report.groups == min(groups, t.size)
            np.testing.assert_array_equal(data[mine], a.read_all(mine, method="two-phase"))
            assert a.stats()["read_bytes"] < 2 * data.nbytes / t.size
            a.write_all(mine, -data[mine], method="two-phase")
            np.testing.assert_array_equal(-data, a.read_all(method="direct"))
            # With holes, which are read.
            part = np.s_[:, t.rank :: t.size + 1]
            a.write_all(part, data[part], method="two-phase")
            expected = np.where(np.arange(600) % (t.size + 1) < t.size, data, -data)
            np.testing.assert_array_equal(expected, a.read_all(method="direct"))
        owners = [rank for rank, *_ in report.domains]
        assert report.rounds > 2
        seen = sorted(times)  # of all ranks in this process
        together = [
            one for blob in t.allgather_bytes(pickle.dumps(seen)) for one in pickle.loads(blob)
        ]
        together = sorted(set(together), key=lambda one: one[1:])
        assert len(together) >= 4 * report.rounds
        group = {rank: number % report.groups for number, rank in enumerate(owners)}
        for one in together:
            for other in together:
                if group[one[0]] != group[other[0]]:
                    assert one[2] <= other[1] or other[2] <= one[1]

    world.run(body)


@ranks(2, 3, 5, per_node=NODES)
def test_the_highest_rank_wins_or_it_is_refused(world, folder):
    def body(t):
        rows = t.size + 3
        once(t, lambda: outcore.create(folder / "a.npy", (rows, 8), "i4").close())
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            for method in ("auto", "direct", "two-phase"):
                a.write_all(np.s_[t.rank : t.rank + 3], 10 + t.rank, method=method)
                got = a.read_all(np.s_[:, 0])
                expected = np.zeros(rows, "i4")
                for rank in range(t.size):
                    expected[rank : rank + 3] = 10 + rank
                np.testing.assert_array_equal(expected, got)
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"overlap": "error"}) as a:
            with pytest.raises(CollectiveError, match="same elements") as caught:
                a.write_all(np.s_[:2], 5)
            assert caught.value.code == "overlapping-writes"
            a.write_all(np.s_[t.rank], 77)
            assert (a.read_all(np.s_[: t.size]) == 77).all()

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_collective_writes_do_not_change_gaps(world, folder):
    data = np.arange(64 * 64, dtype="i4").reshape(64, 64)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        expected = data.copy()
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            # Dense with holes (read first), then sparse (piece by piece).
            for step in (t.size + 1, 9 * t.size):
                a.write_all(np.s_[3:60, t.rank :: step], -t.rank - 1, method="two-phase")
                for rank in range(t.size):
                    expected[3:60, rank::step] = -rank - 1
                np.testing.assert_array_equal(expected, a.read_all())

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_mistake_of_one_rank_is_raised_by_all(world, folder):
    odd = world.size - 1

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.arange(100.0)))
        with outcore.open(folder / "a.npy", comm=t) as a:
            wrong = {
                "index-out-of-bounds": lambda: a.read_all(500),
                "out-mismatch": lambda: a.read_all(np.s_[:3], out=np.zeros(4)),
                "bad-hint": lambda: a.read_all(method="best"),
                "read-only": lambda: a.write_all(0, 1),
            }
            for code, call in wrong.items():
                if t.rank != odd:
                    call = {"read-only": lambda: a.write_all(1, 1)}.get(code, a.read_all)
                with pytest.raises(CollectiveError) as caught:
                    call()
                assert caught.value.code == "rank-failed"
                assert code in str(caught.value)
                if code != "read-only":
                    assert (odd,) == caught.value.ranks
                    assert code == caught.value.__cause__.code  # also where nothing failed
                    assert caught.value.__cause__.rank == (None if t.rank == odd else odd)
            np.testing.assert_array_equal(np.arange(100.0), a.read_all())

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_different_calls_are_named(world, folder):
    def body(t):
        once(t, lambda: [np.save(folder / f"{n}.npy", np.zeros(9)) for n in "ab"])
        odd = t.rank == t.size - 1
        with (
            outcore.open(folder / "a.npy", "r+", comm=t) as a,
            outcore.open(folder / "b.npy", "r+", comm=t) as b,
        ):
            calls = {
                "write_all": lambda: a.write_all(0, 1) if odd else a.read_all(0),
                "another array": lambda: (b if odd else a).read_all(0),
                "method='direct'": lambda: a.read_all(method="sieve" if odd else "direct"),
            }
            for text, call in calls.items():
                with pytest.raises(CollectiveError, match=text) as caught:
                    call()
                assert ("mismatched-call", (t.size - 1,)) == (
                    caught.value.code,
                    caught.value.ranks,
                )
            assert a.read_all(0) == 0

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_file_that_cannot_be_opened_by_one_rank(world, folder):
    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.zeros(9)))
        name = "a.npy" if t.rank else "none.npy"
        with pytest.raises(CollectiveError, match="rank 0"):
            outcore.open(folder / name, comm=t)

    world.run(body)


@ranks(1, 2, 4, per_node=NODES)
def test_ranks_create_together(world, folder):
    def body(t):
        for name, more in (
            ("a.npy", {"order": "F"}),
            ("a.raw", {}),
            ("a.zarr", {"chunks": (3, 4), "compression": "zstd", "fill_value": 7}),
            ("a.h5::/x", {"chunks": (3, 4), "compression": "gzip"}),
        ):
            with outcore.open(folder / name, "w", shape=(8, 8), dtype="f4", comm=t, **more) as a:
                a.write_all(np.s_[:, t.rank :: t.size], 1 + t.rank)
                a.flush_all()
                expected = np.tile((np.arange(8) % t.size + 1).astype("f4"), (8, 1))
                np.testing.assert_array_equal(expected, a.read_all())
            with pytest.raises(CollectiveError, match="already-exists"):
                outcore.open(folder / name, "x", shape=(8, 8), dtype="f4", comm=t)

    world.run(body)


@ranks(1, 2, 3, 5, per_node=NODES)
def test_many_files_in_one_call(world, folder):
    count = 5

    def value(number):
        return np.arange(60, dtype=("f4", "i8", "u1")[number % 3]).reshape(6, 10) + number

    def body(t):
        def make():
            for k in range(count):
                outcore.create(folder / f"{k}.npy", data=value(k)).close()

        once(t, make)
        arrays = [outcore.open(folder / f"{k}.npy", "r+") for k in range(count)]
        # Each rank wants other sections of other arrays, in another order.
        mine = [(k, np.s_[t.rank :: t.size, k:]) for k in range(count) if (k + t.rank) % 3]
        if t.rank % 2:
            mine.reverse()
        got = outcore.mpi.read_all(
            [(arrays[k], key) for k, key in mine], comm=t, method="two-phase"
        )
        for (k, key), part in zip(mine, got, strict=True):
            np.testing.assert_array_equal(value(k)[key], part)
        outcore.mpi.write_all(
            [(arrays[k], key, 100 + t.rank) for k, key in mine], comm=t, method="two-phase"
        )
        t.barrier()
        for k in range(count):
            expected = value(k)
            for rank in range(t.size):
                if (k + rank) % 3:
                    expected[rank :: t.size, k:] = 100 + rank
            np.testing.assert_array_equal(expected, arrays[k][...])
        for a in arrays:
            a.close()

    world.run(body)


WAYS = [
    ["block", "*"],
    ["*", "cyclic"],
    ["block", "block"],
    [("cyclic", 3), "block"],
    ["cyclic", ("cyclic", 2)],
]


@pytest.mark.parametrize("suffix", ["a.npy", "a.zarr", "a.h5::/x"])
@ranks(1, 2, 3, 4, 8, per_node=NODES)
def test_distributed_arrays_go_to_disk_and_come_back_in_another_way(world, folder, suffix):
    data = np.arange(23 * 17, dtype="f4").reshape(23, 17)
    more = {} if suffix == "a.npy" else {"chunks": (5, 4), "compression": "gzip"}

    def grid(way):
        axes = sum(1 for kind in way if kind != "*")
        return outcore.mpi.ProcessGrid(size=world.size, ndim=axes)

    def body(t):
        for number, way in enumerate(WAYS):
            mine = outcore.mpi.DistArray.from_function(
                lambda i, j: 17 * i + j,
                outcore.mpi.Distribution(data.shape, way, grid(way)),
                "f4",
                transport=t,
            )
            name = folder / suffix
            a = outcore.open(name, "w", shape=data.shape, dtype="f4", comm=t, **more)
            mine.write_all(a, method=("auto", "two-phase")[number % 2])
            np.testing.assert_array_equal(data, a.read_all())
            other = WAYS[(number + 1) % len(WAYS)]
            ghosts = [1 if kind in ("block", "*") else 0 for kind in other]
            there = outcore.mpi.DistArray.zeros(
                outcore.mpi.Distribution(data.shape, other, grid(other)),
                "f4",
                transport=t,
                ghosts=ghosts,
            )
            there.read_all(a, ghosts=True, method="two-phase")
            for key, view in there.pieces(ghosts=True):
                np.testing.assert_array_equal(data[key], view)
            np.testing.assert_array_equal(
                mine.redistribute_all(there.distribution).owned, there.owned
            )
            a.close()

    world.run(body)


@ranks(2, 4)
def test_a_budget_that_is_too_small_for_a_block_is_told_to_all(world, folder):
    def body(t):
        def make():
            data = np.zeros((512, 512))
            outcore.create(
                folder / "a.zarr", data=data, chunks=(512, 512), compression="zstd"
            ).close()

        once(t, make)
        # Of the process: simulated ranks share it.
        with outcore.open(folder / "a.zarr", comm=t, hints={"memory": "1 MiB"}) as a:
            with pytest.raises((BudgetError, CollectiveError)) as caught:
                a.read_all(np.s_[:, t.rank :: t.size], method="two-phase")
            assert "budget" in caught.value.code or "budget" in str(caught.value)

    world.run(body)


@ranks(1, 4, per_node=NODES)
def test_many_small_arrays_share_rounds(world, folder):
    """A round costs a synchronisation: a hundred arrays take about four, whatever they are."""
    count = 100

    def value(number):
        shape = (20, 30 + number % 7)
        return (np.arange(np.prod(shape)).reshape(shape) + number).astype(
            ("f8", "i2", "u1")[number % 3]
        )

    def body(t):
        def make():
            for k in range(count):
                outcore.create(folder / f"{k}.npy", data=value(k)).close()

        once(t, make)
        arrays = [outcore.open(folder / f"{k}.npy", "r+", comm=t) for k in range(count)]
        key = np.s_[t.rank :: t.size, ::3]
        told = outcore.mpi.explain_all([(a, key) for a in arrays], method="two-phase")
        got = outcore.mpi.read_all([(a, key) for a in arrays], method="two-phase")
        for k, part in enumerate(got):
            np.testing.assert_array_equal(value(k)[key], part)
        outcore.mpi.write_all([(a, key, t.rank) for a in arrays], method="two-phase")
        t.barrier()
        for k in range(count):
            expected = value(k)
            for rank in range(t.size):
                expected[rank :: t.size, ::3] = rank
            np.testing.assert_array_equal(expected, outcore.open(folder / f"{k}.npy")[...])
        return told.rounds, told.slots

    for rounds_of_all, slots in world.run(body):
        assert 1 <= rounds_of_all <= 5 and slots == 3


@pytest.mark.parametrize(("budget", "slots"), [("64 MiB", 3), ("1 MiB", 2)])
@ranks(1, 3, per_node=NODES)
def test_two_slots_or_three(world, folder, budget, slots):
    """Two rounds are read ahead where there is room for three slots."""
    data = np.arange(1 << 19, dtype="i4").reshape(512, 1024)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        mine = np.s_[:, t.rank :: t.size]
        with outcore.open(folder / "a.npy", "r+", comm=t, hints={"memory": budget}) as a:
            told = a.explain_all(mine, method="two-phase")
            np.testing.assert_array_equal(data[mine], a.read_all(mine, method="two-phase"))
            a.write_all(mine, -data[mine], method="two-phase")
            np.testing.assert_array_equal(-data[mine], a.read_all(mine, method="two-phase"))
        return told.slots, told.slot_bytes

    for number, nbytes in world.run(body):
        assert number == slots
        if slots == 2:
            # Of half of the budget; between nodes messages have a third.
            room = (1 << 20) // (2 if world.ranks_per_node is None or world.size == 1 else 3)
            assert 2 * nbytes <= room < 3 * nbytes


@pytest.mark.parametrize("method", ["direct", "sieve", "two-phase", "auto"])
@ranks(1, 2, 4, per_node=NODES)
def test_ranks_that_are_alone_together_leave_each_other_be(world, folder, method):
    """Nobody but the ranks writes: each of them must not rewrite what the others do."""

    def body(t):
        for sync in (False, True):
            once(t, lambda: np.save(folder / "a.npy", np.zeros((600, 700), "f4")))
            hints = outcore.Hints(exclusive=True, sync=sync)
            with outcore.open(folder / "a.npy", "r+", comm=t, hints=hints) as a:
                a.write_all(np.s_[:, t.rank :: 2 * t.size], t.rank + 1, method=method)
                a[t.rank :: t.size, 2 * t.size - 1 :: 2 * t.size] = -1
            t.barrier()
            expected = np.zeros((600, 700), "f4")
            for rank in range(t.size):
                expected[:, rank :: 2 * t.size] = rank + 1
            expected[:, 2 * t.size - 1 :: 2 * t.size] = -1
            np.testing.assert_array_equal(expected, np.load(folder / "a.npy"))
            t.barrier()

    world.run(body)


@ranks(2, 4)
def test_a_rank_reads_its_rounds_one_after_the_other(world, folder, agree_on, monkeypatch):
    """Side by side they would end at the same time, and the disk would wait for the exchange."""
    agree_on(slot=16 << 10)
    under_way, most, calls = 0, 0, 0

    class Slow(watched.Seen):
        def begin(self, kind):
            nonlocal under_way, most, calls
            under_way, calls = under_way + 1, calls + 1
            most = max(most, under_way)
            time.sleep(0.005)

        def end(self, kind):
            nonlocal under_way
            under_way -= 1

    watched.use(monkeypatch, Slow)

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", np.arange(20_000.0)))
        # One owner, who has ten rounds and three slots.
        with outcore.open(folder / "a.npy", comm=t, hints={"io_ranks": 1}) as a:
            np.testing.assert_array_equal(
                a.read_all(np.s_[t.rank :: t.size]), np.arange(20_000.0)[t.rank :: t.size]
            )

    world.run(body)
    if not UNDER_MPI or calls:  # under MPI only the owner reads
        assert calls >= 10 and most == 1
