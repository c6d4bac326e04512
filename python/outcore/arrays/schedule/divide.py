"""
The steps of a schedule, divided among ranks.

Problem. Ranks share the steps of a schedule; some steps need what others have kept in memory, and some
what others have stored.
Idea. Steps that continue each other are one chain, and belong to one rank. Chains of which none waits
for another one make a round: each rank has neighbouring chains of about the same weight, so that what
it reads and writes lies together. After a round the ranks synchronise.

Invariants. Equal schedules, numbers of ranks and weights give equal divisions, so each rank finds its
own part without a message. Each step belongs to one rank of one round. A step of a round waits only for
steps of earlier rounds and of its own chain.

Reference: PASSION, section 4.1: the local and the global placement model differ in who may read what;
here all ranks may, and the division says who does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from outcore.arrays.schedule.value import Schedule, Step

__all__ = ["divided"]


def divided(
    schedule: Schedule, ranks: int, weigh: Callable[[Step], float]
) -> Iterator[tuple[range, ...]]:
    """
    Divide a schedule.

    Parameters
    ----------
    schedule
        The schedule.
    ranks
        Among how many.
    weigh
        What a step takes, in any unit.

    Yields
    ------
    tuple of range
        For each round, the steps of each rank; empty for ranks that have none.
    """
    for begins, weights in _rounds(schedule, weigh):
        yield _parts(begins, weights, ranks)


def _rounds(
    schedule: Schedule, weigh: Callable[[Step], float]
) -> Iterator[tuple[array[int], array[float]]]:
    """Of each round: where its chains begin and where the last one ends; and what each weighs."""
    # Arrays, as there may be more chains than there is memory for objects.
    begins, weights = array("q"), array("d")
    begin, weight, waits = 0, 0.0, 0
    for number in range(schedule.steps + 1):
        step = schedule.step(number) if number < schedule.steps else None
        if number and (step is None or not step.is_chained):
            # What is in the chain itself its own rank has stored.
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


def _parts(begins: array[int], weights: array[float], ranks: int) -> tuple[range, ...]:
    """Neighbouring chains for each rank: those whose middles lie in its part of the weight."""
    ends = list(accumulate(weights))
    total = ends[-1]
    if not total > 0:
        ends, total = list(range(1, len(ends) + 1)), len(ends)
    middles = [(a + b) / 2 for a, b in pairwise([0, *ends])]
    cuts = [bisect_left(middles, total * k / ranks) for k in range(ranks)]
    cuts.append(len(middles))
    return tuple(range(begins[a], begins[b]) for a, b in pairwise(cuts))
