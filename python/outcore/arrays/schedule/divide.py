"""
The steps of a schedule, divided among ranks.

Problem: ranks share the steps of a schedule; some steps need blocks that others have kept in memory,
and some need sections that others have stored.
Approach: steps that continue each other form a chain, and belong to one rank. Chains that do not wait
for each other form a round: each rank gets neighbouring chains of about the same total weight, so that
its reads and writes are contiguous. The ranks synchronise after each round.

Invariants: equal schedules, numbers of ranks and weights give equal divisions, so each rank finds its
own part without communication. Each step belongs to one rank of one round. A step of a round waits only
for steps of earlier rounds and of its own chain.

Reference: PASSION, section 4.1: the local and the global placement model differ in which ranks may read
which data; here all ranks may read all data, and the division assigns the reads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from outcore.arrays.schedule.value import Schedule, ScheduleStep

__all__ = ["divide_steps"]


def divide_steps(
    schedule: Schedule, ranks: int, weigh: Callable[[ScheduleStep], float]
) -> Iterator[tuple[range, ...]]:
    """
    Divide a schedule among ranks by the cost of each step (`weigh`, in any unit).

    Yield for each round the steps of each rank, empty for ranks that have none.
    """
    for begins, weights in _iterate_rounds(schedule, weigh):
        yield _divide_round(begins, weights, ranks)


def _iterate_rounds(
    schedule: Schedule, weigh: Callable[[ScheduleStep], float]
) -> Iterator[tuple[array[int], array[float]]]:
    """Yield for each round the starts of its chains and the end of the last one, and their weights."""
    # Arrays, because objects for very many chains may not fit in memory.
    begins, weights = array("q"), array("d")
    begin, weight, waits = 0, 0.0, 0
    for number in range(schedule.steps + 1):
        step = schedule.step(number) if number < schedule.steps else None
        if number and (step is None or not step.is_chained):
            # Sections of the chain itself are stored by its own rank.
            if begins and min(waits, begin) > begins[0]:
                begins.append(begin)
                yield begins, weights
                begins, weights = array("q"), array("d")
            begins.append(begin)
            weights.append(weight)
            begin, weight, waits = number, 0.0, 0
        if step is not None:
            weight += weigh(step)
            waits = max(waits, step.after)
    if begins:
        begins.append(begin)
        yield begins, weights


def _divide_round(begins: array[int], weights: array[float], ranks: int) -> tuple[range, ...]:
    """Return neighbouring chains for each rank: those whose middles are in its share of the weight."""
    ends = list(accumulate(weights))
    total = ends[-1]
    if not total > 0:
        ends, total = list(range(1, len(ends) + 1)), len(ends)
    middles = [(a + b) / 2 for a, b in pairwise([0, *ends])]
    cuts = [bisect_left(middles, total * k / ranks) for k in range(ranks)]
    cuts.append(len(middles))
    return tuple(range(begins[a], begins[b]) for a, b in pairwise(cuts))
