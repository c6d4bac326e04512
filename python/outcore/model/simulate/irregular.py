"""
Simulate collective accesses to elements that ranks choose one by one.

| method       | what happens                                                                    |
|--------------|---------------------------------------------------------------------------------|
| `direct`     | each rank makes one request for each of its blocks, in the order of the file     |
| `collective` | owners read or write their file domains, chunk by chunk; then elements are sent  |
| `pipelined`  | the same, while the next chunk is read, or the last one written                  |

Domains, rounds and groups are cut as in `CollectiveArray.schedule_all`
(``plan/src/points/divide.rs``), which has more bins than the simulation if there are many ranks; with
`in_turn` they are cut as in the paper.
The elements are described, not enumerated (`Scattered`), so 10^5 ranks need no memory for them. The
bytes between ranks are counted exactly for up to 2^26 blocks at the ends of domains; beyond that they
are estimated as if these belonged to all ranks in equal parts.

The schedule is made before the simulated time starts, as in the paper: the ranks have sent their
requests to the owners.

Source: No, Choudhary, "Techniques to provide Run-Time Support for solving Irregular Problems", section
3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import UsageError
from outcore.model.machines.machine import Machine
from outcore.model.simulate.methods import Outcome, make_outcome
from outcore.ranks.collective.planning import AGREED

__all__ = [
    "CASES",
    "CHUNK",
    "METHODS",
    "Scattered",
    "ScatteredMethod",
    "make_case",
    "simulate_scattered",
]

ScatteredMethod = Literal["direct", "collective", "pipelined"]
METHODS: tuple[ScatteredMethod, ...] = get_args(ScatteredMethod)
#: Largest buffer of an owner that `schedule_all` chooses.
CHUNK = 64 << 20
#: Patterns of `outcore simulate --case`.
CASES = ("random", "clustered")
_ITEM, _RUN, _SPREAD = 8, 64, 16


@dataclass(frozen=True)
class Scattered:
    """
    Elements of simulated ranks, each owned by one rank, as in a partitioned mesh.

    Attributes
    ----------
    ranks, blocks
        Number of ranks; number of blocks of consecutive elements of each rank.
    run, itemsize
        Elements of a block; bytes of an element.
    spread
        Number of ranks whose blocks are mixed in a common part of the array; 0, the default, means all.
        The order is random: among every `spread` consecutive blocks, each of these ranks has one.
    write
        Whether the ranks write.

    Examples
    --------
    >>> from outcore.model.simulate import Scattered
    >>> mesh = Scattered(ranks=4, blocks=3, spread=2)
    >>> sorted(mesh.indices(2).tolist() + mesh.indices(3).tolist())
    [6, 7, 8, 9, 10, 11]
    """

    ranks: int
    blocks: int
    run: int = 1
    itemsize: int = 8
    spread: int = 0
    write: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for impossible counts."""
        if not self.spread:
            object.__setattr__(self, "spread", self.ranks)
        counts = (self.ranks, self.blocks, self.run, self.itemsize, self.spread)
        if min(counts) < 1 or self.spread > self.ranks or self.ranks >= 1 << 32:
            raise UsageError(
                f"{self}: use counts of at least 1, and a spread of at most the number of ranks",
                code="bad-option",
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.ranks * self.blocks * self.run * self.itemsize

    def indices(self, rank: int) -> NDArray[np.int64]:
        """
        Return the elements of a rank, in the order of the array: 8 bytes of memory for each.

        Parameters
        ----------
        rank
            Number of the rank, from 0.

        Raises
        ------
        UsageError
            ``bad-option``: the rank does not exist.
        """
        if not 0 <= rank < self.ranks:
            raise UsageError(
                f"rank {rank} does not exist; pass 0 to {self.ranks - 1}", code="bad-option"
            )
        blocks = _core.scattered_blocks(self, rank)
        return (blocks[:, None] + np.arange(self.run)).reshape(-1)


def make_case(name: str, ranks: int, nbytes: int = 16 << 20, *, write: bool = False) -> Scattered:
    """
    Make a case of `outcore simulate` with double precision numbers, about `nbytes` bytes for each rank.

    ``"random"``: single elements, mixed with those of all ranks. ``"clustered"``: 64 consecutive
    elements, mixed with those of 16 ranks, as after partitioning.
    """
    run, spread = (1, ranks) if name == "random" else (_RUN, min(_SPREAD, ranks))
    blocks = max(nbytes // (_ITEM * run), 1)
    return Scattered(ranks, blocks, run, _ITEM, spread, write)


def simulate_scattered(
    case: Scattered,
    machine: Machine,
    method: ScatteredMethod = "pipelined",
    *,
    chunk: int = CHUNK,
    groups: int = 1,
    io_ranks: int | None = None,
    in_turn: bool = False,
) -> Outcome:
    """
    Simulate an access to such elements on a modelled machine.

    Parameters
    ----------
    case
        Elements of the ranks.
    machine
        Machine; see `outcore.model.machines.machine`.
    method
        Method in the table above.
    chunk, groups, io_ranks
        Bytes of an owner's buffer, number of groups of owners that take turns, number of ranks that own
        parts (default: all), as for `CollectiveArray.schedule_all`.
    in_turn
        Whether to use the paper's domains: each round is a stretch of the file of which each owner has a
        part, in one request, and one group of owners reads or writes at a time. Otherwise an owner's
        chunks follow each other in the file, and the next group does not wait.

    Returns
    -------
    Outcome

    Raises
    ------
    UsageError
        ``bad-hint``: the method does not exist, there are more I/O ranks than ranks, or no chunks or
        groups.
    LayoutError
        Sizes exceed 62 bits, 2^33 blocks of servers, or 2^26 chunks.

    Notes
    -----
    Memory O(ranks + chunks) and one bit for each block of the file; time O(ranks) for each step, and
    O(chunks spread) if counts are exact.

    Examples
    --------
    >>> from outcore.model.machines.machine import machine
    >>> from outcore.model.simulate import Scattered, simulate_scattered
    >>> mesh = Scattered(ranks=128, blocks=1 << 13)
    >>> direct = simulate_scattered(mesh, machine("paragon"), "direct")
    >>> both = simulate_scattered(mesh, machine("paragon"), "pipelined", chunk=1 << 15, groups=4)
    >>> direct.requests, both.requests, both.rounds
    (1048576, 256, 2)
    >>> both.ns < direct.ns
    True
    """
    owners = case.ranks if io_ranks is None else io_ranks
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise UsageError(f"method={method!r} is not known; methods: {known}", code="bad-hint")
    if not 1 <= owners <= case.ranks or chunk < 1 or groups < 1:
        raise UsageError(
            f"io_ranks={owners}, groups={groups}, chunk={chunk}: pass 1 to {case.ranks} I/O ranks, at "
            "least one group, and a chunk of at least 1 byte",
            code="bad-hint",
        )
    if method == "direct":
        found = _core.simulate_scattered(case, machine, most=AGREED.slot, write=case.write)
        return make_outcome(method, found)
    found = _core.simulate_scattered(
        case,
        machine,
        most=chunk if in_turn else AGREED.slot,
        owners=owners,
        chunk=chunk,
        groups=groups,
        in_turn=in_turn,
        ahead=method == "pipelined",
        write=case.write,
    )
    return make_outcome(method, found)
