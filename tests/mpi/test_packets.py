"""Messages between nodes fit two slots, whatever the ranks want; what goes to whom stays as planned."""

import gc
import threading

import numpy as np
import pytest

import outcore
from outcore import _core
from ranks import UNDER_MPI, once, ranks

SLOT = 8192
N = 96


@pytest.fixture
def sent(agree_on, on_packets):
    """Of each thread (simulated ranks are threads): what each part of a round sent and held."""
    agree_on(slot=SLOT, least=1)
    here = threading.local()

    def sends(packets, part):
        here.parts.append((packets.step.k, part.to.copy(), part.send.size + part.receive.size))
        here.plan = packets.work.plan

    on_packets(sends)
    return here


def check(t, here, expected):
    """Exchanges fit two slots; those of a round send together what is `expected` of it, by rank."""
    told = t.allgather(np.array([len(here.parts)]))
    assert (told == told[0]).all()
    assert max(held for _, _, held in here.parts) <= 2 * here.plan.slot_bytes <= 2 * SLOT
    assert {k for k, _, _ in here.parts} == set(range(here.plan.rounds))
    for k in range(here.plan.rounds):
        all_parts = sum(to for round_, to, _ in here.parts if round_ == k)
        np.testing.assert_array_equal(expected(k), all_parts)


def planned(t, plan, write, times=1):
    """Bytes that this rank sends to each in round `k`; every rank wants all of every tile."""

    def of_round(k):
        to = np.zeros(t.size, np.int64)
        for owner in plan.owners():
            for n in range(*plan.batch(owner, k)):
                nbytes = 8 * int(np.prod([count for _, count, _ in plan.tile(owner, n)[1]]))
                for rank in range(t.size):
                    source, target = (rank, owner) if write else (owner, rank)
                    if source == t.rank and t.nodes[owner] != t.nodes[rank]:
                        to[target] += times * nbytes
        return to

    return of_round


@ranks(2, 4, 5, 8, per_node=(1, 2, 3))
def test_sections_of_all_ranks_travel_in_parts_of_two_slots(world, folder, sent):
    data = np.arange(N * N, dtype="f8").reshape(N, N)

    def body(t):
        sent.parts = []
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t) as a:
            np.testing.assert_array_equal(data, a.read_all(method="two-phase"))
        check(t, sent, planned(t, sent.plan, write=False))
        several = len(sent.parts) > sent.plan.rounds
        # A node of two and one more: a tile for either, which fits.
        assert several or t.size < 4

    world.run(body)


@ranks(2, 4, per_node=(1, 2))
def test_section_read_three_times_travels_in_packets(world, folder, sent):
    """A message is larger than a slot then."""
    data = np.arange(N * N, dtype="f8").reshape(N, N)

    def body(t):
        sent.parts = []
        once(t, lambda: np.save(folder / "a.npy", data))
        with outcore.open(folder / "a.npy", comm=t) as a:
            for got in outcore.mpi.read_all([(a, ...)] * 3, method="two-phase"):
                np.testing.assert_array_equal(data, got)
        check(t, sent, planned(t, sent.plan, write=False, times=3))

    world.run(body)


@ranks(2, 4, 8, per_node=(None, 1, 3))
def test_overlapping_writes_arrive_in_rank_order(world, folder, sent):
    """Rows of others' blocks cannot be cut out, so all goes by messages: the highest rank wins."""
    data = np.zeros((900, 64))

    def body(t):
        sent.parts = []
        once(t, lambda: np.save(folder / "a.npy", data))
        keys = [*(np.s_[rank:] for rank in range(t.size - 1)), np.s_[t.size :: 25]]
        expected = data.copy()
        for rank, key in enumerate(keys):
            expected[key] = rank + 1
        with outcore.open(folder / "a.npy", "r+", comm=t) as a:
            a.write_all(keys[t.rank], t.rank + 1.0, method="two-phase")
            assert sent.plan.in_order and sent.plan.rounds > 1
            assert max(held for _, _, held in sent.parts) <= 2 * sent.plan.slot_bytes
            np.testing.assert_array_equal(expected, a.read_all(method="direct"))

    world.run(body)


@ranks(4, 8, per_node=(1, 2))
def test_common_sections_of_all_nodes_fit_the_budget(world, folder):
    """Each rank has 1 MiB, all want the same 2 MiB: what is counted never goes beyond."""
    data = np.arange(512 * 512, dtype="f8").reshape(512, 512)
    here = 1 if UNDER_MPI else world.size
    # What earlier tests left goes now, or counts.
    gc.collect()
    before = _core.memory_state()[0]

    def body(t):
        once(t, lambda: np.save(folder / "a.npy", data))
        hints = {"memory": "1 MiB", "cache": "keep"}
        with outcore.open(folder / "a.npy", comm=t, hints=hints) as a:
            t.barrier()
            once(t, _core.reset_memory_peak)
            if UNDER_MPI:
                _core.reset_memory_peak()
            np.testing.assert_array_equal(data, a.read_all(method="two-phase"))
            t.barrier()
            peak = _core.memory_state()[2]
            t.barrier()
        return peak

    for peak in world.run(body):
        assert before < peak <= before + (here << 20)


def test_the_error_names_what_the_memory_is_for():
    with outcore.memory("1 MiB"), pytest.raises(outcore.BudgetError, match="collective access"):
        _core.Reservation("collective", 2 << 20)
