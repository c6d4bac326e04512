"""One-sided operations: against NumPy, under contention, and when a rank is killed."""

import dataclasses
import gc
import os
import random
import signal
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

import outcore
from clock import until
from mpi import forked
from mpi.distribution_cases import random_distribution, random_shape, widths_of
from outcore import _core
from outcore.errors import CollectiveError, UsageError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.transport import nodememory
from ranks import UNDER_MPI, collect, ranks

SIZES = (1, 2, 3, 5, 8)
DTYPES = ["f8", "i4", "c16", "u1", "f4", ">i8"]


def a_key(rng, shape):
    """A basic key: integers, slices with steps of both signs, None and dots."""
    items = []
    for n in shape:
        kind = rng.integers(0, 4)
        if kind == 0:
            items.append(int(rng.integers(-n, n)) if n else slice(None))
        elif kind == 1:
            items.append(slice(None))
        else:
            a, b = (int(x) for x in rng.integers(-n - 1, n + 2, 2))
            items.append(slice(a, b, int(rng.choice([-3, -2, -1, 1, 1, 2, 3]))))
    if rng.random() < 0.3:
        items.insert(int(rng.integers(0, len(items) + 1)), None)
    if rng.random() < 0.3:
        items = [*items[:-1], ...] if rng.random() < 0.5 else [..., *items[1:]]
    return tuple(items)


def values_of(rng, shape, dtype):
    whole = rng.integers(0, 9, shape)
    return (
        (whole + 1j * rng.integers(0, 9, shape)).astype(dtype)
        if dtype == "c16"
        else whole.astype(dtype)
    )


@ranks(*SIZES, per_node=(None, 2))
def test_patches_and_lists_are_those_of_numpy(world):
    """Ranks take turns in random operations, each of which all can see afterwards."""

    def body(t):
        for seed in range(6):
            chance = random.Random(100 * world.size + seed)  # the same on all ranks
            rng = np.random.default_rng([world.size, seed])
            shape = random_shape(chance)
            case = random_distribution(chance, shape, t.size)
            how, dtype = case.make(), DTYPES[seed % len(DTYPES)]
            ghosts = widths_of(chance, case) if seed % 2 else 0
            a = DistArray.shared_all(how, dtype, transport=t, ghosts=ghosts)
            expected = np.zeros(shape, dtype)
            assert a.get(...).dtype == expected.dtype
            for step in range(10):
                mine = step % t.size == t.rank
                key = a_key(rng, shape)
                part = np.empty(expected[key].shape)
                values = values_of(rng, part.shape, dtype)
                some = (2, 3) if all(shape) else (0,)
                index = tuple(rng.integers(-max(n, 1), max(n, 1), some) for n in shape)
                factor = int(rng.integers(1, 4))
                listed = values_of(rng, some, dtype)
                operation = rng.integers(0, 4)
                if operation == 0:
                    expected[key] = values
                    if mine:
                        a.put(key, values)
                elif operation == 1:
                    expected[key] += factor * values
                    if mine:
                        a.acc(key, values, factor)
                elif operation == 2:
                    expected[index] = listed
                    if mine:
                        a.scatter(index, listed)
                else:
                    np.add.at(expected, index, factor * listed)
                    if mine:
                        a.scatter_acc(index, listed, factor)
                a.fence_all()
                got = a.get(key)
                assert type(got) is type(expected[key])
                np.testing.assert_array_equal(expected[key], got)
                out = np.empty_like(expected[key], order="F") if np.ndim(got) else None
                if out is not None:
                    assert a.get(key, out) is out
                    np.testing.assert_array_equal(expected[key], out)
                np.testing.assert_array_equal(expected[index], a.gather(index))
                np.testing.assert_array_equal(
                    how.owner(tuple(i % n for i, n in zip(index, shape, strict=True))),
                    a.owner_of(index),
                )
                a.fence_all()
            np.testing.assert_array_equal(expected, a.gather_all())
            for section, view in a.pieces():  # all copies are the same, where they belong
                np.testing.assert_array_equal(expected[section], view)
            a.close_all()

    world.run(body)


@ranks(*SIZES, per_node=(None, 2))
def test_concurrent_accumulation_loses_nothing(world):
    times = 40

    def body(t):
        how = Distribution((37, 5), [("cyclic", 3), "*"], t.size)
        a = DistArray.shared_all(how, "i8", transport=t)
        for k in range(times):
            if k % 2:
                a.acc(np.s_[3:30:2, 1:4], 1, factor=t.rank + 1)
            else:
                a.scatter_acc(([7, 7, 20], [2, 2, 4]), 1)
        a.fence_all()
        expected = np.zeros((37, 5), "i8")
        expected[3:30:2, 1:4] += times // 2 * sum(range(1, t.size + 1))
        np.add.at(expected, ([7, 7, 20], [2, 2, 4]), times // 2 * t.size)
        np.testing.assert_array_equal(expected, a.get(...))
        a.close_all()

    world.run(body)


@ranks(*SIZES, per_node=(None, 2))
def test_copies_that_all_add_to_stay_equal(world):
    def body(t):
        a = DistArray.shared_all(Distribution.replicated(50, t.size), "i8", transport=t)
        for _ in range(20):
            a.acc(np.s_[10:40], np.arange(30))
            a.read_inc(45)
        a.fence_all()
        expected = np.zeros(50, "i8")
        expected[10:40] = 20 * t.size * np.arange(30)
        expected[45] = 20 * t.size
        np.testing.assert_array_equal(expected, a.local)
        a.close_all()

    world.run(body)


@ranks(*SIZES, per_node=(None, 2))
def test_a_counter_gives_each_number_once(world):
    times = 50

    def body(t):
        counters = DistArray.shared_all(
            Distribution(2 * t.size, ["block"], t.size), "i4", transport=t
        )
        last = 2 * t.size - 1
        mine = [counters.read_inc(last, 3) for _ in range(times)]
        assert mine == sorted(mine)
        counters.fence_all()
        all_of_them = np.frombuffer(
            b"".join(t.allgather_bytes(np.array(mine, "i8").tobytes())), "i8"
        )
        assert sorted(all_of_them.tolist()) == list(range(0, 3 * times * t.size, 3))
        assert counters.get(last) == 3 * times * t.size
        counters.close_all()

    world.run(body)


@ranks(*SIZES, per_node=(None, 2))
def test_locked_patch_is_changed_by_one_rank_only(world):
    """What is read inside does not change until it is written, by whatever way."""
    times = 12

    def body(t):
        a = DistArray.shared_all(Distribution((8, 8), ["block", "*"], t.size), "i8", transport=t)
        b = DistArray.shared_all(Distribution(4, ["cyclic"], t.size), "i8", transport=t)
        for k in range(times):
            if k % 3 == 2:
                a.acc(np.s_[1:7:2, 3], 1)
                continue
            with a.lock(np.s_[1:7, 2:5]):
                seen = a.get(np.s_[1:7, 2:5])
                b.acc(np.s_[:], 1)  # of another array
                a.put(np.s_[1:7, 2:5], seen + 1)
                a.acc(np.s_[1:7, 2:5], 1)
        a.fence_all()
        expected = np.zeros((8, 8), "i8")
        expected[1:7, 2:5] = 2 * (2 * times // 3) * t.size
        expected[1:7:2, 3] += times // 3 * t.size
        np.testing.assert_array_equal(expected, a.get(...))
        assert (b.get(...) == 2 * times // 3 * t.size).all()
        a.close_all()
        b.close_all()

    world.run(body)


@ranks(1, 3, per_node=(None, 2))
def test_a_lock_inside_a_lock_is_refused(world):
    def body(t):
        a = DistArray.shared_all(Distribution((200, 2), ["block", "*"], t.size), "i8", transport=t)
        if t.rank == 0:
            with a.lock(np.s_[:2]):
                for refused in (
                    lambda: a.lock(np.s_[5]).__enter__(),
                    lambda: a.acc(np.s_[150:], 1),
                ):
                    with pytest.raises(UsageError) as caught:
                        refused()
                    assert caught.value.code == "lock-order"
        a.fence_all()
        a.acc(np.s_[150:], 1)  # and it is free again
        with a.lock(...):
            pass
        a.close_all()

    world.run(body)


@ranks(*SIZES, per_node=(None, 2))
def test_large_patches_go_in_pieces(world):
    """More than a message holds, and more than may be under way."""
    shape = (700, 500)

    def body(t):
        how = Distribution(shape, ["block", ("cyclic", 100)], (t.size, 1))
        a = DistArray.shared_all(how, "f8", transport=t)
        whole = np.arange(350000.0).reshape(shape)
        if t.rank == t.size - 1:
            a.put(np.s_[::-1], whole[::-1])
        a.fence_all()
        a.acc(np.s_[1::2], whole[1::2], factor=0.5)
        a.fence_all()
        expected = whole.copy()
        expected[1::2] += t.size * 0.5 * whole[1::2]
        np.testing.assert_array_equal(expected[:, ::-2], a.get(np.s_[:, ::-2]))
        rows, columns = np.meshgrid(np.arange(0, 700, 2), np.arange(500), indexing="ij")
        np.testing.assert_array_equal(expected[rows, columns], a.gather((rows, columns)))
        a.fence_all()
        a.close_all()

    world.run(body)


@ranks(4, per_node=(None, 2))
def test_memory_is_in_the_budget_and_comes_back(world):
    gc.collect()  # what earlier tests left

    def body(t):
        before = _core.memory_state()[0]
        t.barrier()
        a = DistArray.shared_all(Distribution(t.size << 17, ["block"], t.size), transport=t)
        t.barrier()
        used = _core.memory_state()[0] - before
        mine = 1 << 20
        assert used >= (mine if UNDER_MPI else t.size * mine)
        t.barrier()
        a.close_all()
        t.barrier()
        assert _core.memory_state()[0] <= before
        t.barrier()
        # The last handle is enough.
        a = DistArray.shared_all(Distribution(t.size << 17, ["block"], t.size), transport=t)
        held = a.part_of(0)
        del a
        collect(t)
        # Room for messages stays as long as there was no close_all: 1 MiB, where answers come from 2.
        leaders = [t.nodes.index(node) for node in set(t.nodes)]
        rooms = (
            [(1 + (rank in leaders)) << 20 for rank in range(t.size)] if len(leaders) > 1 else [0]
        )
        left = _core.memory_state()[0] - before
        assert held and left == (rooms[t.rank % len(rooms)] if UNDER_MPI else sum(rooms))
        t.barrier()
        for name in ("get", "acc"):
            b = DistArray.zeros(Distribution(4, ["block"], t.size), transport=t)
            with pytest.raises(UsageError) as caught:
                getattr(b, name)(*([...] if name == "get" else [..., 1]))
            assert caught.value.code == "not-shared"

    world.run(body)


@pytest.mark.simulated
@ranks(1)
def test_elements_of_lists_are_counted(world):
    """Also where the result goes into memory of the caller that is not in one piece."""
    number = 4096

    def body(t):
        a = DistArray.shared_all(Distribution(number, ["block"], 1), "S512", transport=t)
        values = np.arange(number).astype("S512")
        index = np.arange(number)[::-1].copy()
        out = np.empty((number, 2), "S512")[:, 0]
        one = np.array(b"one", "S512")
        a.put(..., values)
        for work in (lambda: a.gather(index, out), lambda: a.scatter(index, one)):
            before = _core.memory_state()[0]
            _core.reset_memory_peak()
            tracemalloc.start()
            work()
            taken = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert taken <= _core.memory_state()[2] - before + (64 << 10)
        np.testing.assert_array_equal(values[::-1], out)
        assert (a.local == one).all()
        a.close_all()

    world.run(body)


@ranks(1, 2, 5, per_node=(None, 2))
def test_failed_allocation_on_one_rank_raises_on_all(world):
    def body(t):
        if t.size > 1:
            # Another dtype on one rank; a dtype that is none; no memory on one rank.
            how, dtype = Distribution(8, ["block"], t.size), "f4" if t.rank else "f8"
            with pytest.raises(CollectiveError) as caught:
                DistArray.shared_all(how, dtype, transport=t)
            assert caught.value.code == "mismatched-call"
        dtype = "O" if t.rank == t.size - 1 else "f8"
        with pytest.raises(CollectiveError) as caught:
            DistArray.shared_all(Distribution(8, ["block"], t.size), dtype, transport=t)
        assert caught.value.__cause__.code == "object-dtype"
        huge = [0] * (t.size - 1) + [1 << 44]
        with pytest.raises(CollectiveError) as caught:
            DistArray.shared_all(Distribution(1 << 44, [("general", huge)], t.size), transport=t)
        assert isinstance(caught.value.__cause__, outcore.BudgetError)
        # And everything works afterwards.
        a = DistArray.shared_all(Distribution(8, ["block"], t.size), transport=t)
        a.acc(..., 1)
        a.fence_all()
        assert (a.get(...) == t.size).all()
        a.close_all()
        with pytest.raises(UsageError) as caught:
            a.get(0)
        assert caught.value.code == "closed"
        a.close_all()

    world.run(body)


@ranks(3, per_node=(None, 1))
def test_invalid_arguments_raise_and_change_nothing(world):
    def body(t):
        a = DistArray.shared_all(Distribution((6, 4), ["block", "*"], t.size), "i4", transport=t)
        names = DistArray.shared_all(Distribution(6, ["block"], t.size), "S3", transport=t)
        wrong = [
            (lambda: a.get(np.s_[6, 0]), "index-out-of-bounds"),
            (lambda: a.put(np.s_[:, :2], np.zeros((3, 2))), "broadcast"),
            (lambda: a.acc(np.s_[:], 0.5), "bad-cast"),
            (lambda: a.acc(np.s_[:], 1, factor=[1, 2]), "bad-value"),
            (lambda: a.get(np.s_[:], np.empty((6, 4), "f8")), "out-mismatch"),
            (lambda: a.gather(([0, 6], [0, 0])), "index-out-of-bounds"),
            (lambda: a.gather(([0, 1], [0, 0]), np.empty(3, "i4")), "out-mismatch"),
            (lambda: a.scatter(([0.5], [0]), 1), "bad-index"),
            (lambda: a.read_inc((0, 0), 1 << 40), "bad-cast"),
            (lambda: a.read_inc(([0, 1], 0)), "bad-index"),
            (lambda: names.acc(..., b"a"), "bad-dtype"),
            (lambda: names.read_inc(0), "bad-dtype"),
        ]
        if t.rank == 1:
            for call, code in wrong:
                with pytest.raises(outcore.OutcoreError) as caught:
                    call()
                assert caught.value.code == code
            names.put(np.s_[::2], [b"abc", b"de", b"f"])
            assert names.get(...).tolist() == [b"abc", b"", b"de", b"", b"f", b""]
        a.fence_all()
        assert not a.get(...).any()
        a.close_all()
        names.close_all()

    world.run(body)


@ranks(4, per_node=(2,))
def test_requests_that_fail_elsewhere_fail_here(world):
    """A put has nobody who waits: a flush, or a fence of all, tells of it."""

    def body(t):
        a = DistArray.shared_all(Distribution(2 * t.size, ["block"], t.size), "i4", transport=t)
        if t.rank == 2:
            a._window.parts.write = a._window.parts.add = None  # of the first rank of its node
        t.barrier()
        if t.rank == 0:
            a.put(7, 1)
            with pytest.raises(CollectiveError) as caught:
                a.flush()
            assert caught.value.code == "rank-failed"
            a.put(7, 1)
        with pytest.raises(CollectiveError):
            a.fence_all()
        t.barrier()
        a.close_all()

    world.run(body)


@ranks(4, per_node=(2,), most=4)
def test_nobody_waits_for_a_rank_that_ended_with_its_array(world):
    def body(t):
        a = DistArray.shared_all(Distribution(8, ["block"], t.size), "i4", transport=t)
        t.barrier()
        if t.rank == 2:
            # Elements of its node say that the others have left the barrier.
            until(lambda: a.get(np.s_[4:7]).all())
            t.close()
            return
        a.put({0: 4, 1: 5, 3: 6}[t.rank], 1)
        if t.rank == 0:
            with pytest.raises(CollectiveError) as caught:
                until(lambda: a.get(...).sum() < 0)
            assert caught.value.code in ("rank-failed", "rank-died")

    world.run(body)


@pytest.mark.simulated
def test_the_lock_of_a_rank_that_ended_goes_to_the_next():
    from outcore.testing.sim import SimWorld

    locked = threading.Event()

    def body(t):
        a = DistArray.shared_all(Distribution(40, ["block"], t.size), "i8", transport=t)
        t.barrier()
        if t.rank == 1:
            a.lock(np.s_[5:15]).__enter__()
            locked.set()
            return None
        assert locked.wait(60)
        began = time.monotonic()
        a.acc(np.s_[:], 1)
        with a.lock(...):
            return a.get(np.s_[:]).tolist(), time.monotonic() - began < 20

    told = SimWorld(3).run(body)
    assert all(one[1] for one in (told[0], told[2]))
    assert max(told[0][0]) == 2 or max(told[2][0]) == 2


@pytest.mark.simulated
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_killed_process_keeps_no_lock_and_no_memory(tmp_path, monkeypatch):
    """Three processes of a node, of which the second one is killed while it has the lock of a patch."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(nodememory, "_get_folder", lambda: memory)

    def body(t, pids):
        a = DistArray.shared_all(Distribution((90, 3), ["block", "*"], 3), "i8", transport=t)
        a.acc(np.s_[:], 1)
        a.fence_all()
        if t.rank == 1:
            with a.lock(np.s_[20:70]):
                a.put(np.s_[20:30], 100)
                os.kill(os.getpid(), signal.SIGKILL)
        until(lambda: a.get((25, 0)) >= 100)  # what is killed has its lock, and has put
        a.acc(np.s_[:], 1)
        a.scatter_acc(([25, 65], [0, 2]), 1)
        with a.lock(np.s_[5:80]):
            a.put(np.s_[80:], 7)
            whole = a.get(...)
        assert whole[25, 1] in (101, 102) and whole[40, 1] in (4, 5), whole
        with pytest.raises(CollectiveError) as caught:
            a.fence_all()
        assert (caught.value.code, caught.value.ranks) == ("rank-died", (1,))
        return 7

    said = tmp_path / "said"
    assert forked.run(3, body, said) == [7, -signal.SIGKILL, 7], said.read_text()
    assert os.listdir(memory) == []


@ranks(2, per_node=(None, 1))
def test_an_interrupt_leaves_no_lock_behind(world):
    def body(t):
        a = DistArray.shared_all(Distribution(40, ["*"], t.size, axes=[None]), "i8", transport=t)
        t.barrier()
        if t.rank == 0:
            parts = a._window.parts
            add = parts.add

            def interrupted(*words):
                raise KeyboardInterrupt

            parts.add = interrupted
            with pytest.raises((KeyboardInterrupt, CollectiveError)):
                a.acc(np.s_[:20], 1)
            parts.add = add
        t.barrier()
        a.acc(np.s_[:], 1)
        a.fence_all()
        assert (a.get(...)[20:] == t.size).all()
        a.close_all()

    world.run(body)


@ranks(1, 2)
def test_a_part_is_copied_into_itself_as_numpy_does(world):
    """What is put may be memory of the array, and lie half on top of where it goes."""

    def body(t):
        n = 3000
        a = DistArray.shared_all(Distribution(n * t.size, ["block"], t.size), "i8", transport=t)
        a.local[...] = np.arange(n)
        expected = np.arange(n)
        low = n * t.rank
        t.barrier()
        for shift in (1, 7, -5):
            source = slice(max(-shift, 0), n - max(shift, 0))
            target = slice(low + source.start + shift, low + source.stop + shift)
            a.put(target, a.local[source])
            expected[source.start + shift : source.stop + shift] = expected[source].copy()
            np.testing.assert_array_equal(expected, a.local)
            a.get(
                slice(low + source.start, low + source.stop),
                a.local[target.start - low :][: n - abs(shift)],
            )
            expected[source.start + shift : source.stop + shift] = expected[source].copy()
            np.testing.assert_array_equal(expected, a.local)
        a.put(slice(low, low + n), a.local[::-1])
        np.testing.assert_array_equal(expected[::-1], a.local)
        a.close_all()

    world.run(body)


@ranks(4, per_node=(1, 2))
def test_copies_on_other_nodes_are_changed_before_the_lock_goes(world):
    """A node that is slow to add has done so when the call returns."""

    def body(t):
        a = DistArray.shared_all(Distribution.replicated(20, t.size), "i8", transport=t)
        parts = a._window.parts
        add = parts.add

        def slowly(*words):
            time.sleep(0.2)
            add(*words)

        if t.rank == 2:  # answers for its node
            parts.add = slowly
        t.barrier()
        if t.rank == 0:
            with a.lock(...):
                pass
            a.acc(np.s_[3:9], 1)
            assert not a._window._service._awaited
        t.barrier()
        assert a.local.sum() == 6
        a.close_all()

    world.run(body)


@ranks(2, per_node=(None, 1))
def test_threads_of_a_rank_have_locks_of_their_own(world):
    """Each of them changes what no other one changes meanwhile."""
    times = 10

    def body(t):
        a = DistArray.shared_all(Distribution(300, ["block"], t.size), "i8", transport=t)

        def work(key):
            for _ in range(times):
                with a.lock(key):
                    a.put(key, a.get(key) + 1)

        keys = [np.s_[:10], np.s_[5:20], np.s_[250:]]
        threads = [threading.Thread(target=work, args=[key]) for key in keys]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        a.fence_all()
        expected = np.zeros(300, "i8")
        for key in keys:
            expected[key] += times * t.size
        np.testing.assert_array_equal(expected, a.get(...))
        a.close_all()

    world.run(body)


@pytest.mark.simulated
def test_a_lock_that_nobody_gives_back_is_waited_for_as_long_as_was_said():
    from outcore.testing.sim import SimWorld

    gave_up = threading.Event()

    def body(t):
        a = DistArray.shared_all(Distribution(4, ["block"], t.size), "i8", transport=t)
        lock = a.lock(...)
        if t.rank == 0:
            lock.__enter__()
        t.barrier()
        told = None
        if t.rank:
            # So long for this lock alone: a busy machine may take longer for all else.
            patience = t.watchdog.patience
            t.watchdog.patience = dataclasses.replace(patience, timeout=1.0)
            with pytest.raises(CollectiveError) as caught:
                a.acc(0, 1)
            t.watchdog.patience = patience
            told = caught.value.code, caught.value.ranks
            a.put(1, t.rank)  # and nothing is stopped
            gave_up.set()
        else:
            assert gave_up.wait(60)
        t.barrier()
        if t.rank == 0:
            lock.__exit__(None, None, None)
        t.barrier()
        a.acc(0, 1)
        a.close_all()
        return told

    for per_node in (None, 1):
        gave_up.clear()
        told = SimWorld(2, per_node).run(body)
        assert told[1] == ("timeout", (0,))
