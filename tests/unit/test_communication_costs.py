"""What ranks make of the times they saw: one figure each, equal on all, and never a wild one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcore.collective.communication_costs import ASSUMED, WORDS, Clock, agreed

MIB = 1 << 20


def rows(*said):
    return np.array(said, np.int64).reshape(len(said), WORDS)


def test_nothing_seen_is_assumed():
    assert agreed(rows(Clock().words(), Clock().words())) == ASSUMED
    # A few bytes say nothing of a rate.
    assert agreed(rows([0, 1000, 1, 1000, 1, 0])) == ASSUMED


def test_the_rank_that_came_last_saw_what_a_synchronisation_takes():
    costs = agreed(rows([900_000, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [31_000, 0, 0, 0, 0, 0]))
    assert costs.barrier_ns == 31_000
    assert (costs.copy, costs.messages) == (ASSUMED.copy, ASSUMED.messages)


def test_ranks_copy_side_by_side_and_share_the_wires():
    # Each copies 4 GB/s of its own processor; each gets 1 GB/s, so 3 GB/s go between the nodes.
    word = [50_000, 400 * MIB, 100 * MIB, 10 * MIB, 10 * MIB, 2500]
    costs = agreed(rows(word, word, word))
    assert costs.copy == 4_000_000_000
    assert costs.messages == 3_000_000_000
    assert costs.oversubscription == 2500


@given(
    st.lists(
        st.lists(st.integers(0, 2**62), min_size=WORDS, max_size=WORDS), min_size=1, max_size=9
    )
)
def test_whatever_a_clock_says_prices_stay_possible(said):
    costs = agreed(rows(*said))
    assert 1_000 <= costs.barrier_ns <= 1_000_000_000
    assert 50_000_000 <= costs.copy <= 10**12
    assert 50_000_000 <= costs.messages <= 10**12
    assert 1_000 <= costs.oversubscription <= 1_000_000
    assert costs == agreed(rows(*reversed(said))), "in whatever order"


def test_a_clock_forgets(monkeypatch):
    now = [0]
    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    clock = Clock()

    def synchronisation(ns):
        def step(code):
            now[0] += ns
            return code

        return step

    assert clock.synchronise(synchronisation(10), 3) == 3
    for _ in range(40):
        clock.synchronise(synchronisation(500), 0)
    assert clock.words()[0] == 500, "only the last synchronisations count"
    for _ in range(64):
        with clock.receiving(100 * MIB):
            now[0] += 1_000_000
    before = clock.words()
    for _ in range(64):
        with clock.receiving(100 * MIB):
            now[0] += 4_000_000
    after = clock.words()
    assert after[3] < 3 << 30, "sums stay small"
    assert before[3] / before[4] == pytest.approx(4 * after[3] / after[4], rel=0.01)
