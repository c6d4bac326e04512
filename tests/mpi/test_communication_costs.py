"""The method is chosen with what synchronisations and copies of these very ranks take."""

from dataclasses import replace

import numpy as np

import outcore
from outcore.collective.communication_costs import ASSUMED, agreed, clock_of
from ranks import ranks

SHAPE = (2048, 1024)  # 16 MiB


def made(t, folder):
    if t.rank == 0:
        outcore.create(folder / "a.npy", data=np.zeros(SHAPE)).close()
    t.barrier()
    return outcore.open(folder / "a.npy", "r+", comm=t)


def told(t):
    """What the ranks would agree on now."""
    return agreed(t.allgather(np.array(clock_of(t).words(), np.int64)))


@ranks(2, 4, per_node=(None, 1))
def test_rounds_are_measured_as_they_run(world, folder):
    def body(t):
        a = made(t, folder)
        key = np.s_[:, t.rank :: t.size]
        mine = np.full((SHAPE[0], len(range(t.rank, SHAPE[1], t.size))), 1.0 + t.rank)
        before = told(t)
        a.write_all(key, mine, method="two-phase")
        a.read_all(key, out=mine, method="two-phase")
        after = told(t)
        a.close()
        return before, after, clock_of(t).words(), len(set(t.nodes))

    answers = world.run(body)
    before, after, _, nodes = answers[0]
    assert all(answer[:2] == (before, after) for answer in answers), "equal on all ranks"
    assert before == replace(ASSUMED, oversubscription=before.oversubscription)
    assert all(answer[2][0] > 0 for answer in answers), "synchronisations were timed"
    if nodes == 1:
        assert after.copy != ASSUMED.copy and after.messages == ASSUMED.messages
    else:
        assert after.messages != ASSUMED.messages


@ranks(4, per_node=(None, 2))
def test_slow_synchronisations_and_copies_are_avoided(world, folder):
    def body(t):
        a = made(t, folder)
        key = np.s_[:, t.rank :: t.size]
        usual = a.explain_all(key, write=True).method
        # As on a machine where ranks are far from each other.
        clock = clock_of(t)
        clock._synchronisations.append(1_000_000_000)
        clock._copied[:] = clock._received[:] = [1 << 30, 20_000_000_000]
        slow = a.explain_all(key, write=True)
        many = outcore.explain_all([(a, key)], write=True)
        a.close()
        return usual, slow.method, many.method, slow.why == many.why

    for answer in world.run(body):
        assert answer == ("two-phase", "direct", "direct", True)
