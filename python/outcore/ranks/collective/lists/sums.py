"""
Sums of counts over all ranks, in memory that does not grow with their number.

Problem. Where to cut file domains follows from how many elements of all ranks lie in each bin. If each
rank gets the counts of each other one, that is as many times the bins as there are ranks.
Idea. A reduce-scatter by recursive halving, and an allgather by recursive doubling: in each step a rank
has one partner. Of the bins whose sums are its own it gives half away and adds what comes for the other
half; when all is halved it has the sums of one stretch, and the same steps backwards bring it all of
them. The first, largest messages are those of neighbours, who mostly are on one node.

    rank         0          1          2          3          4
    fold                                                     (of 5 ranks, 1 gives all to 0)
    halving    0 <-> 2 <-> 3 <-> 4, as numbers 0 1 2 3: halves with n xor 1, quarters with n xor 2
    doubling   the same backwards; then 0 gives 1 what it has

Invariants. Every rank makes the same calls of the transport: who has no partner in a step sends and
receives nothing. Both partners of a step compute its message from the ranks and the bins alone. Sums
are of integers, so they are those of any other order.

Source: the allreduce for long messages (Rabenseifner's) in Thakur, Rabenseifner and Gropp, "Optimization
of Collective Communication Operations in MPICH", International Journal of High Performance Computing
Applications 19 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outcore.ranks.transport import Transport

__all__ = ["SumStep", "sum_over_ranks", "sum_steps"]


@dataclass(frozen=True)
class SumStep:
    """
    What a rank does in one step.

    Parameters
    ----------
    peer
        With whom: itself, if nothing travels.
    sent, received
        First and end of the counts that go there, and of those that come.
    adds
        Whether what comes is added to what there is, or replaces it.
    """

    peer: int
    sent: tuple[int, int]
    received: tuple[int, int]
    adds: bool


def sum_steps(rank: int, size: int, number: int) -> list[SumStep]:
    """
    Tell what a rank does in each step; all ranks have equally many.

    Parameters
    ----------
    rank, size
        Number of the rank, and how many there are.
    number
        Counts that are added.

    Examples
    --------
    >>> [(m.peer, m.sent, m.received, m.adds) for m in sum_steps(1, 2, 10)]
    [(0, (0, 5), (5, 10), True), (0, (5, 10), (0, 5), False)]
    """
    power = 1 << (size.bit_length() - 1)
    # Ranks beyond a power of two: so many of the first ones, every second, stand behind a neighbour.
    behind = size - power
    whole, nothing = (0, number), (0, 0)
    halving: list[SumStep] = []
    doubling: list[SumStep] = []
    waits = rank < 2 * behind and rank % 2 == 1
    mine = rank // 2 if rank < 2 * behind else rank - behind
    low, high, bit = 0, number, 1
    while bit < power:
        if waits:
            halving.append(SumStep(rank, nothing, nothing, True))
            doubling.append(SumStep(rank, nothing, nothing, False))
        else:
            other, middle = mine ^ bit, (low + high) // 2
            peer = 2 * other if other < behind else other + behind
            kept, given = (low, middle), (middle, high)
            if mine & bit:
                kept, given = given, kept
            halving.append(SumStep(peer, given, kept, True))
            doubling.append(SumStep(peer, kept, given, False))
            low, high = kept
        bit *= 2
    found = [*halving, *reversed(doubling)]
    if not behind:
        return found
    if rank >= 2 * behind:
        first, last = (SumStep(rank, nothing, nothing, adds) for adds in (True, False))
    elif waits:
        first = SumStep(rank - 1, whole, nothing, True)
        last = SumStep(rank - 1, nothing, whole, False)
    else:
        first = SumStep(rank + 1, nothing, whole, True)
        last = SumStep(rank + 1, whole, nothing, False)
    return [first, *found, last]


def sum_over_ranks(group: Transport, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Add up counts, one by one, over all ranks. Collective.

    Parameters
    ----------
    group
        The ranks.
    counts
        Of this rank: flat, of one length on all ranks. They are not changed.

    Returns
    -------
    numpy.ndarray
        Of the length of `counts`, equal on all ranks.

    Notes
    -----
    Beside `counts` and the result a rank holds half as many counts that have come, at most, or as many
    if the number of ranks is no power of two. Of ``2**k`` ranks each sends ``2 k`` messages, together
    less than twice the counts; of more, up to ``2**(k + 1)``, each at most one message more, with all of
    them.

    Thakur, Rabenseifner and Gropp: recursive halving, recursive doubling.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.testing.sim import SimWorld
    >>> SimWorld(3).run(lambda t: sum_over_ranks(t, np.array([1, t.rank, 5])).tolist())
    [[3, 3, 15], [3, 3, 15], [3, 3, 15]]
    """
    if group.size == 1:
        return counts
    sums = counts.copy()
    steps = sum_steps(group.rank, group.size, counts.size)
    room = np.empty(max(m.received[1] - m.received[0] for m in steps if m.adds), np.int64)
    to, of = np.zeros(group.size, np.int64), np.zeros(group.size, np.int64)
    for step in steps:
        sent, received = sums[slice(*step.sent)], sums[slice(*step.received)]
        comes = room[: received.size] if step.adds else received
        to[step.peer], of[step.peer] = sent.nbytes, received.nbytes
        group.start_exchange(sent.view(np.uint8), to, comes.view(np.uint8), of).wait()
        to[step.peer] = of[step.peer] = 0
        if step.adds:
            received += comes
    return sums
