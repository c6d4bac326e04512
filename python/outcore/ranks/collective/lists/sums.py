"""
Sums of counts over all ranks, in memory that does not grow with the number of ranks.

Problem. The cuts of file domains depend on the number of elements of all ranks in each bin. If each rank
received the counts of every other one, it would need memory for the bins times the number of ranks.
Approach. A reduce-scatter by recursive halving, and an allgather by recursive doubling: in each step a
rank has one partner. It sends half of the bins that it still sums, and adds what it receives for the
other half. After the last halving it has the sums of one range. The same steps in reverse order give it
all sums. The first, largest messages are between neighbours, which are mostly on one node.

    rank         0          1          2          3          4
    fold                                                     (of 5 ranks, 1 gives all to 0)
    halving    0 <-> 2 <-> 3 <-> 4, as numbers 0 1 2 3: halves with n xor 1, quarters with n xor 2
    doubling   the same backwards; then 0 gives 1 what it has

Invariants. Every rank makes the same calls of the transport: a rank without a partner in a step sends
and receives nothing. Both partners of a step compute its message from the ranks and the bins alone. Sums
of integers do not depend on the order.

Reference: the allreduce for long messages (Rabenseifner's) in Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH", International Journal of High Performance
Computing Applications 19 (2005).
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
    One step of a rank; its `peer` is the rank itself if nothing is sent.

    `sent` and `received` are the first and the end of the counts that travel. Received counts are added
    to the existing ones if `adds`, and otherwise replace them.
    """

    peer: int
    sent: tuple[int, int]
    received: tuple[int, int]
    adds: bool


def sum_steps(rank: int, size: int, number: int) -> list[SumStep]:
    """
    Return the steps of a rank to add `number` counts; all ranks have the same number of steps.

    Examples
    --------
    >>> [(m.peer, m.sent, m.received, m.adds) for m in sum_steps(1, 2, 10)]
    [(0, (0, 5), (5, 10), True), (0, (5, 10), (0, 5), False)]
    """
    power = 1 << (size.bit_length() - 1)
    # Number of ranks beyond a power of two: as many odd ranks at the beginning act through a neighbour.
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
    Return the sums of flat counts, element by element, over all ranks. Collective.

    In addition to `counts` and the result, a rank holds at most half as many received counts, or as
    many if the number of ranks is not a power of two. With ``2**k`` ranks, each sends ``2 k`` messages,
    together less than twice the counts. With more ranks, up to ``2**(k + 1)``, each sends at most one
    more message, with all counts. Thakur, Rabenseifner and Gropp: recursive halving, recursive
    doubling.

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
