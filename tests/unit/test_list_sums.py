"""Counts that ranks add up: who sends what to whom, for any number of ranks."""

import numpy as np
import pytest

from outcore.ranks.collective.lists.sums import sum_over_ranks, sum_steps
from outcore.testing.sim import SimWorld


def added(counts):
    """Run the steps of all ranks one after another, without a transport."""
    size, number = counts.shape
    have = counts.copy()
    steps = [sum_steps(rank, size, number) for rank in range(size)]
    for turn in zip(*steps, strict=True):
        before = have.copy()
        for rank, step in enumerate(turn):
            some = slice(*step.received)
            came = before[step.peer, some]
            assert turn[step.peer].sent == step.received or step.peer == rank
            have[rank, some] = have[rank, some] + came if step.adds else came
    return have


@pytest.mark.parametrize("number", [1, 2, 3, 64, 1001])
def test_all_ranks_have_the_sums(number):
    rng = np.random.default_rng(number)
    for size in range(2, 34):
        counts = rng.integers(0, 1 << 40, (size, number))
        assert (added(counts) == counts.sum(axis=0)).all()


@pytest.mark.parametrize("size", [2, 1024, 5000, 65_536, 99_999, 100_000])
def test_messages_are_few_and_bytes_do_not_grow_with_the_ranks(size):
    number = 32 * size
    power = size.bit_length() - 1
    folds = 0 if size == 1 << power else 1
    for rank in {0, 1, 2, 3, size // 2, size - 2, size - 1, *range(0, size, size // 50 or 1)}:
        steps = sum_steps(rank, size, number)
        assert len(steps) == 2 * power + 2 * folds
        for turn, step in enumerate(steps):
            # Both ends know of it.
            (other,) = sum_steps(step.peer, size, number)[turn : turn + 1]
            assert (other.peer, other.received, other.adds) == (rank, step.sent, step.adds)
            assert other.sent == step.received
        sent = sum(step.sent[1] - step.sent[0] for step in steps)
        received = sum(step.received[1] - step.received[0] for step in steps)
        assert max(sent, received) < (2 + folds) * number
        # What comes to be added: half of all, or all from a rank that stands behind.
        most = max(step.received[1] - step.received[0] for step in steps if step.adds)
        assert most <= (number + 1) // 2 or (folds and most == number)


@pytest.mark.parametrize(("size", "per_node"), [(1, None), (2, None), (5, 2), (7, None), (8, 3)])
def test_ranks_send_what_the_steps_say(size, per_node):
    counts = np.random.default_rng(size).integers(0, 1000, (size, 77))

    def body(t):
        sent, start = [], t.start_exchange

        def exchange(send, to, receive, of):
            sent.append((int(np.count_nonzero(to)), int(np.sum(to))))
            return start(send, to, receive, of)

        t.start_exchange = exchange
        mine = counts[t.rank].copy()
        sums = sum_over_ranks(t, mine)
        assert np.array_equal(counts.sum(axis=0), sums)
        assert np.array_equal(counts[t.rank], mine)
        return [tuple(map(sum, zip(*sent, strict=True))), len(sent)] if sent else []

    found = SimWorld(size, per_node).run(body)
    for rank, told in enumerate(found):
        steps = sum_steps(rank, size, 77)
        lengths = [step.sent[1] - step.sent[0] for step in steps]
        if size > 1:
            assert [(sum(map(bool, lengths)), 8 * sum(lengths)), len(steps)] == told
    # Of two ranks each sends half of its counts, and then the sums of the other half.
    if size == 2:
        assert found == [[(2, 77 * 8), 2], [(2, 77 * 8), 2]]


def test_a_rank_that_fails_meanwhile_leaves_nobody_waiting():
    import outcore

    def body(t):
        if t.rank == 2:
            start, calls = t.start_exchange, []

            def exchange(*words):
                calls.append(words)
                if len(calls) == 2:
                    t.abort_group("the memory is gone")
                return start(*words)

            t.start_exchange = exchange
        with pytest.raises(outcore.errors.CollectiveError, match="the memory is gone"):
            sum_over_ranks(t, np.arange(100))

    SimWorld(5).run(body)
