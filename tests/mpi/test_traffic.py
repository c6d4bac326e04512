"""Traffic as a value, and under way: counted before it is run, in rounds, in flight, stopped by all."""

import gc
import random
import threading

import numpy as np
import pytest

import outcore
from clock import until
from outcore import _core
from outcore.errors import DistributionError
from outcore.mpi import DistArray, Distribution
from outcore.ranks.collective import traffic
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.serial import SerialTransport
from ranks import ranks

NODES = (None, 2)
SHAPE = (24, 20)
WHOLE = np.arange(24 * 20.0).reshape(SHAPE)


@pytest.fixture
def room(monkeypatch):
    """Sets how many bytes of messages a rank holds."""
    return lambda nbytes: monkeypatch.setattr(traffic, "_LARGEST", nbytes)


@pytest.fixture
def sent(monkeypatch):
    """Of each thread (simulated ranks are threads): what each exchange sent to whom, and held."""
    here = threading.local()
    for kind in (GroupTransport, SerialTransport):
        plain = kind.start_exchange

        def start(self, send, to, recv, of, plain=plain):
            if getattr(here, "seen", None) is not None:
                here.seen.append((np.count_nonzero(to), int(np.sum(to)), len(send) + len(recv)))
            return plain(self, send, to, recv, of)

        monkeypatch.setattr(kind, "start_exchange", start)
    return here


def rows(t, **more):
    """Rows of `WHOLE`, of this rank; their ghosts are zero."""
    made = DistArray.zeros(Distribution(SHAPE, ["block", "*"], t.size), transport=t, **more)
    made.owned[...] = WHOLE[made.global_slices[0]]
    return made


def columns(t):
    return Distribution(SHAPE, ["*", ("cyclic", 3)], t.size)


def held_memory():
    """Of the memory budget; what earlier tests left goes first."""
    gc.collect()
    return _core.memory_state()[0]


@pytest.mark.parametrize("nbytes", [64, 600, 1 << 20])
@ranks(1, 2, 3, 5, 8, per_node=NODES)
def test_counted_traffic_is_the_traffic_sent(world, room, sent, nbytes):
    """Bytes, messages, rounds and buffers, of each rank; the value is made by any of them."""
    room(nbytes)

    def planned(t, a, name, me):
        core, widths = a.distribution.core, a.part().widths

        def plan(limit):
            if name == "accumulate":
                return _core.accumulate_plan(core, widths, "add", me, limit)
            if name == "update":
                return _core.exchange_plan(core, widths, core, widths, me, None, limit)
            return _core.exchange_plan(core, widths, columns(t).core, [], me, None, limit)

        return plan

    def body(t):
        calls = {
            "accumulate": lambda a: a.accumulate_ghosts_all(),
            "update": lambda a: a.update_ghosts_all(),
            "redistribute": lambda a: a.redistribute_all(columns(t)),
        }
        for name, call in calls.items():
            a = rows(t, ghosts=[2, 0])
            sent.seen = []
            call(a)
            seen, sent.seen = sent.seen, None
            plans = [planned(t, a, name, me) for me in range(t.size)]
            limit = min(plan(None).limit(nbytes // 8) for plan in plans)
            several = limit < 2**63 - 1
            told = [plan(limit if several else None) for plan in plans]
            mine = told[t.rank]
            assert len(seen) == max(one.rounds for one in told), name
            assert sum(messages for messages, _, _ in seen) == mine.messages
            assert sum(out for _, out, _ in seen) == 8 * mine.elements[0]
            assert max(held for _, _, held in seen) == 8 * mine.peak
            assert 8 * mine.peak <= 8 * mine.bound(limit)
            assert 8 * mine.bound(limit) <= nbytes or limit == 1
            assert sum(one.elements[0] for one in told) == sum(one.elements[1] for one in told)
            assert several == (nbytes < 1 << 20 and t.size > 1)
            # Where each element comes from and goes to, in words.
            assert str(mine).startswith("add" if name == "accumulate" else "copy")
            assert f"rounds: {mine.rounds}" in str(mine)

    world.run(body)


@pytest.mark.parametrize("nbytes", [200, 1 << 20])
@ranks(1, 2, 4, per_node=NODES)
def test_calls_in_flight(world, room, nbytes):
    """Any number, waited for in any order; blocking calls come after them, and see what they did."""
    room(nbytes)

    def body(t):
        expected = rows(t, ghosts=[1, 0])
        expected.update_ghosts_all()
        moved = expected.redistribute_all(columns(t))
        a = rows(t, ghosts=[1, 0])
        requests = [a.iredistribute_all(columns(t)) for _ in range(3)]
        ghosts = a.iupdate_ghosts_all()
        random.Random(t.rank).shuffle(requests)
        for request in requests:
            np.testing.assert_array_equal(moved.local, request.wait().local)
            assert request.test()
        assert ghosts.wait() is None
        np.testing.assert_array_equal(expected.local, a.local)
        # What is in flight has its turn before what is called now.
        a.local[...], a.owned[...] = 0, 1
        a.iupdate_ghosts_all()
        a.accumulate_ghosts_all()
        kept = a.iredistribute_all(columns(t))
        summed = a.gather_all()
        assert kept.done
        np.testing.assert_array_equal(summed, kept.wait().gather_all())
        edges = {0, 1} if t.size > 1 else set()
        assert set((summed - 1).sum(axis=1) / SHAPE[1]) == (edges or {0})
        t.barrier()

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_call_in_flight_fails_on_all_ranks(world):
    def body(t):
        a, victim = rows(t, ghosts=[1, 0]), t.size - 1
        other = Distribution((5, 5), ["*", "block"], t.size)
        good = a.iupdate_ghosts_all()
        bad = a.iredistribute_all(other if t.rank == victim else columns(t))
        after = a.iredistribute_all(columns(t))
        with pytest.raises(DistributionError) as caught:
            bad.wait()
        expected = "bad-distribution" if t.rank == victim else "failed-elsewhere"
        assert caught.value.code == expected
        assert not bad.cancel()
        good.wait()
        np.testing.assert_array_equal(WHOLE, after.wait().gather_all())
        t.barrier()

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_call_in_flight_goes_on_if_nobody_keeps_it(world):
    def body(t):
        expected, a = rows(t, ghosts=[1, 0]), rows(t, ghosts=[1, 0])
        expected.update_ghosts_all()
        a.iupdate_ghosts_all()
        until(lambda: (a.local == expected.local).all())
        t.barrier()

    world.run(body)


@ranks(2, 3, per_node=(None, 1))
def test_steps_in_flight_are_those_of_the_blocking_call(world, steps):
    def body(t):
        a = rows(t, ghosts=[1, 0])
        pairs = [
            (a.update_ghosts_all, a.iupdate_ghosts_all),
            (lambda: a.redistribute_all(columns(t)), lambda: a.iredistribute_all(columns(t))),
        ]
        for blocking, starting in pairs:
            t.barrier()
            steps[t.rank] = []
            blocking()
            expected, steps[t.rank] = steps[t.rank], []
            starting().wait()
            assert expected == steps[t.rank] == ["allgather", "agree"]

    world.run(body)


@pytest.mark.parametrize("operation", ["add", "minimum", "maximum", "last"])
@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@ranks(1, 2, 3, 4, 8, per_node=NODES)
def test_ghosts_are_combined_in_the_order_of_ranks(world, room, operation, nbytes):
    """Wider than the parts of neighbours; in floating point, to the last bit."""
    room(nbytes)
    width, n = 7, 3 * world.size
    combine = getattr(np, operation, lambda _element, ghost: ghost)

    def part(made, rank):
        rng = np.random.default_rng(rank)
        return rng.standard_normal(made.local_shape(rank, width)) ** 7

    def body(t):
        made = Distribution(n, ["block"], t.size)
        whole = np.empty(n)
        for number in range(2):
            for rank in range(t.size):
                first, count = 3 * rank, 3
                lowest = max(first - width, 0)
                for k, value in enumerate(part(made, rank)):
                    owned = first <= lowest + k < first + count
                    if owned and number == 0:
                        whole[lowest + k] = value
                    elif not owned and number == 1:
                        whole[lowest + k] = combine(whole[lowest + k], value)
        a = DistArray(made, part(made, t.rank), transport=t, ghosts=width)
        a.accumulate_ghosts_all(operation)
        assert whole[3 * t.rank : 3 * t.rank + 3].tobytes() == a.owned.tobytes()

    world.run(body)


@ranks(2, 4, per_node=NODES)
def test_a_rank_that_cannot_combine_stops_all(world):
    def body(t):
        victim = t.size - 1
        a = rows(t, ghosts=[1, 0])
        before = a.local.copy()
        with pytest.raises(outcore.OutcoreError) as caught:
            a.accumulate_ghosts_all("median" if t.rank == victim else "add")
        expected = "bad-option" if t.rank == victim else "failed-elsewhere"
        assert caught.value.code == expected
        np.testing.assert_array_equal(before, a.local)
        np.testing.assert_array_equal(WHOLE, a.gather_all())

    world.run(body)
