"""Every transport does what `check_transport` says; and what the protocol cannot say."""

import gc
import threading
import time

import numpy as np
import pytest

import outcore
from outcore.ranks.transport import SerialTransport, group, transport
from outcore.testing.conformance import check_transport
from outcore.testing.sim import SimWorld
from ranks import UNDER_MPI, ranks


@ranks(1, 2, 3, 5, 8, per_node=(None, 2, 1))
def test_conformance(world):
    world.run(check_transport)


@pytest.mark.simulated
@pytest.mark.parametrize(("n", "k"), [(16, None), (16, 4), (64, None)])
def test_many_ranks(n, k):
    def body(t):
        for step in range(20):
            rows = t.allgather(np.array([step, t.rank]))
            assert np.array_equal(rows[:, 1], np.arange(n))
        parts = t.allgather_bytes(b"x" * t.rank)
        assert [len(part) for part in parts] == list(range(n))
        half = t.split(t.rank % 2, 0)
        assert n // 2 == half.size
        assert half.agree(t.rank) == n - 2 + t.rank % 2

    SimWorld(n, k).run(body)


@pytest.mark.simulated
def test_so_many_nodes_that_blocks_are_passed_on():
    """Beyond 16 nodes leaders do not write to everybody."""

    def body(t):
        for length in (0, 1, 100, 300):
            rows = t.allgather(np.arange(length) + t.rank)
            assert np.array_equal(rows, np.arange(length) + np.arange(t.size)[:, None])
        return t.agree(t.rank)

    for n in (17, 23, 33):
        assert [n - 1] * n == SimWorld(n, 1).run(body)
    assert SimWorld(41, 2).run(body) == [40] * 41


@ranks(2, 3, per_node=(None, 1))
def test_long_messages_are_cut(world, monkeypatch):
    monkeypatch.setattr(group, "PIECE", 1000)

    def body(t):
        counts = np.full(t.size, 12_345)
        send = (np.arange(counts.sum()) % 251).astype(np.uint8) + np.uint8(t.rank)
        recv = np.zeros(counts.sum(), np.uint8)
        t.start_exchange(send, counts, recv, counts).wait()
        for rank in range(t.size):
            base = (np.arange(counts.sum()) % 251).astype(np.uint8) + np.uint8(rank)
            mine = slice(t.rank * 12_345, (t.rank + 1) * 12_345)
            got = recv[rank * 12_345 : (rank + 1) * 12_345]
            assert np.array_equal(base[mine], got)

    world.run(body)


@ranks(2, 4)
def test_counts_that_contradict_each_other(world):
    def body(t):
        counts = np.zeros(t.size, np.int64)
        counts[(t.rank + 1) % t.size] = 8
        expected = np.zeros(t.size, np.int64)
        expected[(t.rank - 1) % t.size] = 8 + t.rank  # only rank 0 is right
        room = np.zeros(expected.sum(), np.uint8)
        exchange = t.start_exchange(np.zeros(8, np.uint8), counts, room, expected)
        if t.rank == 0:
            exchange.wait()
        else:
            with pytest.raises(outcore.errors.CollectiveError, match="sent 8 bytes"):
                exchange.wait()
        t.barrier()

    world.run(body)


@ranks(2, 5, per_node=(None, 2))
def test_shared_memory_counts_in_the_budget(world):
    gc.collect()  # what earlier tests left

    def body(t):
        before = outcore._core.memory_state()[0]
        t.barrier()
        memory = t.shared(1 << 20)
        t.barrier()
        held = outcore._core.memory_state()[0] - before
        t.barrier()
        assert held == (1 << 20) * (1 if UNDER_MPI else t.size)
        memory.close()
        t.barrier()
        assert outcore._core.memory_state()[0] == before

    world.run(body)


@ranks(2, 3)
def test_shared_memory_over_the_budget_of_one_rank(world):
    def body(t):
        last = t.rank == t.size - 1
        kind = outcore.BudgetError if last else outcore.errors.CollectiveError
        with pytest.raises(kind) as caught:
            t.shared(1 << 50 if last else 100)
        if not last:
            assert caught.value.ranks == (t.size - 1,)
        t.barrier()

    world.run(body)


@pytest.mark.simulated
def test_an_error_of_a_rank_is_raised_with_its_rank():
    def body(t):
        if t.rank == 2:
            raise KeyError("lost")
        t.barrier()

    with pytest.raises(KeyError) as caught:
        SimWorld(4, 2).run(body)
    assert caught.value.__notes__ == ["on rank 2 of 4"]


@pytest.mark.simulated
def test_a_rank_that_returns_early_is_not_waited_for():
    # Waiting to the end would be a "timeout".
    with pytest.raises(outcore.errors.CollectiveError, match="rank 1 of 3 ended") as caught:
        SimWorld(3).run(lambda t: t.rank == 1 or t.barrier())
    assert (caught.value.code, caught.value.ranks) == ("rank-died", (1,))


@pytest.mark.simulated
def test_two_threads_on_one_transport_are_refused():
    refused = threading.Event()

    def body(t):
        if t.rank == 0:
            before = t._node_barrier.seen()[0][0]
            waiting = threading.Thread(target=t.barrier)
            waiting.start()
            while t._node_barrier.seen()[0][0] == before:  # until it has come
                time.sleep(0.001)
            with pytest.raises(outcore.errors.InternalError, match="two threads"):
                t.barrier()
            refused.set()
            waiting.join()
        else:
            assert refused.wait(60)
            t.barrier()

    SimWorld(2).run(body)


def test_transport_accepts_none_and_transports_only():
    alone = transport(None)
    assert isinstance(alone, SerialTransport)
    assert transport(alone) is alone
    with pytest.raises(outcore.errors.UsageError, match="not a communicator"):
        transport(3)


@pytest.mark.real_mpi
def test_communicators():
    from mpi4py import MPI

    first = transport(MPI.COMM_WORLD)
    assert transport(MPI.COMM_WORLD) is first
    assert isinstance(transport(MPI.COMM_SELF), SerialTransport)
    with pytest.raises(outcore.errors.UsageError, match="intracommunicator"):
        transport(MPI.COMM_NULL)
    # Messages of the owner do not meet ours.
    if first.size > 1:
        comm, n = MPI.COMM_WORLD, first.size
        room, said = np.zeros(4, np.uint8), np.full(4, first.rank, np.uint8)
        theirs = [
            comm.Irecv(room, MPI.ANY_SOURCE, MPI.ANY_TAG),
            comm.Isend(said, (first.rank + 1) % n),
        ]
        counts = np.full(n, 4)
        send, recv = np.full(4 * n, 7, np.uint8), np.zeros(4 * n, np.uint8)
        first.start_exchange(send, counts, recv, counts).wait()
        MPI.Request.Waitall(theirs)
        assert (recv == 7).all()
        assert (room == (first.rank - 1) % n).all()
    half = MPI.COMM_WORLD.Split(first.rank % 2, 0)
    part = transport(half)
    assert part.agree(first.rank) == max(range(first.rank % 2, first.size, 2))
    part.close()
    again = transport(half)
    assert again is not part
    again.barrier()
    again.close()
    half.Free()
