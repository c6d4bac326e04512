"""
Simulate tables 6 to 9 of the PASSION report: molecular dynamics with the pairs on disk.

Problem: the list of pairs (the indirection array) is out of core, the atoms are in memory. A loop over
the pairs is prepared (tables 6 and 7) and run once (8 and 9), with slabs of the list of 8 K to 128 K.
Approach: each processor reads its part of the list in slabs, on the clock of ``ipsc``. For each slab it
receives the atoms it needs from the other processors, and sends them their sums, in one message each
way. Arithmetic is divided evenly. The preparation makes several passes over the list.

The report does not specify some parameters, which were chosen, equal for all cells. Four of them
(`LIST`, `PASSES`, `ATOM`, `LOOP`) were fitted to the cells of 2 and 4 processors with slabs of 64 K, 8
of 80. The loop takes as long for 6 000 atoms as for 14 000, and its preparation less than half the
arithmetic, which implies that both had about the same number of pairs. A slab of 8 K is taken as 8 K
bytes: with 8 K pairs, the list would be hardly longer than one slab.

Source: Thakur, Bordawekar, Choudhary, Ponnusamy, Singh, "PASSION Runtime Library for Parallel I/O",
section 4.4.4.
"""

from __future__ import annotations

import functools
import math

from outcore.model.machines import tables
from outcore.model.machines.machine import Machine, machine
from outcore.model.simulate.methods import Case, SimulatedArray, simulate
from outcore.model.simulate.paper import Cell, compare_measurement

__all__ = ["MOLECULAR", "simulate_molecular"]

#: Bytes of the list of pairs, with two numbers of 4 bytes each.
LIST = 2_600_000
#: Number of times that it is read while the loop is prepared.
PASSES = 13
#: Seconds of arithmetic: for one atom during the preparation; for one run of the loop.
ATOM, LOOP = 0.0166, 62.0
#: Bytes of an atom's position, and of its force.
_VECTOR = 24
_PAIR = 8
_FITTED = ("64K", (2, 4))
NUMBERS = (6, 7, 8, 9)


def simulate_molecular(number: int, model: Machine | None = None) -> list[Cell]:
    """Return table 6, 7, 8 or 9 of the PASSION report; the default machine is ``ipsc``."""
    model = model or machine("ipsc")
    return [
        compare_measurement(
            "passion",
            f"{cell.operation}, {cell.case} atoms",
            cell,
            _compute_seconds(cell, model),
            fitted=cell.method == _FITTED[0] and cell.ranks in _FITTED[1],
        )
        for cell in tables.passion(number)
    ]


def _compute_seconds(cell: tables.Measurement, model: Machine) -> float:
    slab, atoms = int(cell.method.removesuffix("K")) << 10, cell.shape[0]
    one_pass = _time_read(cell.ranks, slab, model)
    if cell.operation == "pre-processing":
        return PASSES * one_pass + ATOM * atoms / cell.ranks
    return one_pass + LOOP / cell.ranks + _time_exchange(atoms, cell.ranks, slab, model)


@functools.cache
def _time_read(ranks: int, slab: int, model: Machine) -> float:
    """Return the seconds in which each processor reads its part of the list, one request per slab."""
    pairs = LIST // _PAIR
    parts = [
        (rank, (slice(pairs * rank // ranks, pairs * (rank + 1) // ranks),))
        for rank in range(ranks)
    ]
    return simulate(
        Case(ranks, (SimulatedArray((pairs,), _PAIR, "C", parts),)), model, "sieve", slot=slab
    ).seconds


def _time_exchange(atoms: int, ranks: int, slab: int, model: Machine) -> float:
    """Return the seconds of the messages of one run: for each slab, receive atoms and send forces."""
    slabs = math.ceil(LIST / ranks / slab)
    ends = 2 * LIST / ranks / slabs / _PAIR
    # For this many ends of pairs, drawn uniformly: the part that other processors have.
    needed = atoms * (1 - math.exp(-ends / atoms)) * (ranks - 1) / ranks
    bytes_moved = needed * _VECTOR / model.message_rate
    return 2 * slabs * ((ranks - 1) * 2 * model.message_ns / 1e9 + bytes_moved)


#: The tables by name.
MOLECULAR = {
    f"passion {number}": functools.partial(simulate_molecular, number) for number in NUMBERS
}
