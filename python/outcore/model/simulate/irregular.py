"""
Simulated collectives of elements that ranks chose one by one, on the clock of a modelled machine.

| method       | what happens                                                                    |
|--------------|---------------------------------------------------------------------------------|
| `direct`     | each rank a request for each of its blocks, in the order of the file             |
| `collective` | owners read or write their file domains, chunk by chunk; then elements travel    |
| `pipelined`  | the same, while the next chunk is read, or the last one written                  |

Domains, rounds and groups are cut as those of `CollectiveArray.schedule_all`
(``plan/src/points/divide.rs``), of which many ranks have more bins than there are here, or with
`in_turn` are those of the paper. What ranks want is described and not enumerated (`Scattered`), so
10^5 of them take no memory; what goes between which ranks is counted from it exactly, up to 2^26 blocks
at the ends of domains, and from then on estimated as if these were all ranks' in equal parts.

A schedule is made before the time, as in the paper: the ranks have told the owners what they want.

Source: No, Choudhary, "Techniques to provide Run-Time Support for solving Irregular Problems",
section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import UsageError
from outcore.model.machines.machine import Machine
from outcore.model.simulate.methods import Outcome, outcome_of
from outcore.ranks.collective.planning import AGREED

__all__ = ["CASES", "CHUNK", "METHODS", "Method", "Scattered", "case", "simulate_scattered"]

Method = Literal["direct", "collective", "pipelined"]
METHODS: tuple[Method, ...] = get_args(Method)
#: The largest buffer of an owner that `schedule_all` chooses.
CHUNK = 64 << 20
#: Patterns of `outcore simulate --case`.
CASES = ("random", "clustered")
_ITEM, _RUN, _SPREAD = 8, 64, 16


@dataclass(frozen=True)
class Scattered:
    """
    Elements of made-up ranks: each element of an array belongs to one of them, as in a partitioned mesh.

    Attributes
    ----------
    ranks, blocks
        How many ranks; blocks of consecutive elements that each has.
    run, itemsize
        Elements of a block; bytes of an element.
    spread
        Ranks whose blocks lie among each other, in a part of the array that is theirs; 0, the default:
        all. Blocks are drawn: among as many as the part has ranks, each rank has one.
    write
        Whether they write.

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
        """Refuse what nobody can have."""
        if not self.spread:
            object.__setattr__(self, "spread", self.ranks)
        counts = (self.ranks, self.blocks, self.run, self.itemsize, self.spread)
        if min(counts) < 1 or self.spread > self.ranks or self.ranks >= 1 << 32:
            raise UsageError(
                f"{self}: counts are at least 1, and a spread is at most the number of ranks",
                code="bad-option",
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.ranks * self.blocks * self.run * self.itemsize

    def indices(self, rank: int) -> NDArray[np.int64]:
        """
        List the elements of a rank, in the order of the array: 8 bytes of memory for each.

        Parameters
        ----------
        rank
            From 0.

        Raises
        ------
        UsageError
            ``bad-option``: there is no such rank.
        """
        if not 0 <= rank < self.ranks:
            raise UsageError(f"rank {rank} of {self.ranks}", code="bad-option")
        blocks = _core.scattered_blocks(self, rank)
        return (blocks[:, None] + np.arange(self.run)).reshape(-1)


def case(name: str, ranks: int, nbytes: int = 16 << 20, *, write: bool = False) -> Scattered:
    """
    Make a case of `outcore simulate`: double precision numbers, of which each rank has so many bytes.

    Parameters
    ----------
    name
        ``"random"``: single elements among those of all ranks. ``"clustered"``: 64 in a row, among
        those of 16 ranks, as a partitioner leaves them.
    ranks, nbytes
        How many ranks; bytes of each, about.
    write
        Whether they write.
    """
    run, spread = (1, ranks) if name == "random" else (_RUN, min(_SPREAD, ranks))
    blocks = max(nbytes // (_ITEM * run), 1)
    return Scattered(ranks, blocks, run, _ITEM, spread, write)


def simulate_scattered(
    case: Scattered,
    machine: Machine,
    method: Method = "pipelined",
    *,
    chunk: int = CHUNK,
    groups: int = 1,
    io_ranks: int | None = None,
    in_turn: bool = False,
) -> Outcome:
    """
    Tell what an access of such elements would take on a modelled machine.

    Parameters
    ----------
    case
        What the ranks want.
    machine
        See `outcore.model.machines.machine`.
    method
        See the table above.
    chunk, groups, io_ranks
        Bytes of an owner's buffer, groups in which owners take turns, ranks that own parts (all): as
        for `CollectiveArray.schedule_all`.
    in_turn
        The paper's domains: each round is a stretch of the file of which each owner has a part, in one
        request, and one group of owners reads or writes at a time. Ours: an owner's chunks follow each
        other in the file, and the next group does not wait.

    Returns
    -------
    Outcome

    Raises
    ------
    UsageError
        ``bad-hint``: no such method, more I/O ranks than ranks, no chunk, no group.
    LayoutError
        Sizes beyond 62 bits, 2^33 blocks of servers, 2^26 chunks.

    Notes
    -----
    Memory O(ranks + chunks) and a bit for each block of the file; time O(ranks) for each step, and
    O(chunks spread) where counts are exact.

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
            f"io_ranks={owners}, groups={groups}, chunk={chunk}: there are 1 to {case.ranks} I/O ranks, "
            "at least one group, and chunks of some bytes",
            code="bad-hint",
        )
    if method == "direct":
        found = _core.simulate_scattered(case, machine, most=AGREED.slot, write=case.write)
        return outcome_of(method, found)
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
    return outcome_of(method, found)
