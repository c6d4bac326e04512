"""
Bring the elements of an array from where ranks have them to where ranks want them.

Problem. Another distribution, the ghosts of a part, the whole array on one rank: each time every rank
has some elements and wants others. Or it has ghosts that others own, and these want what became of them.
Idea. All of it is one thing: what ranks have meets what ranks want in regular sections, and the core
knows who sends which of them to whom (`_core.exchange_plan`, `_core.accumulate_plan`). `DistArray` says
what is wanted, this file what travels, and `collective.traffic` runs it.

Invariants. Every wanted element is received once; elements that a rank has itself are copied. Each ghost
is combined with the element of its owner once, in the order of ranks.

Reference: the second phase of the two-phase method (*PASSION: Parallel and Scalable Software for
Input-Output*, section 3.1), and the shift of boundary data into overlap areas (section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.ranks.collective.traffic import COMBINE, Run, Traffic, Transfer
from outcore.ranks.dist.periodic import Torus
from outcore.base.distribution import Distribution
from outcore.errors import UnsupportedError
from outcore.ranks.transport import DeferredInterrupt, Transport

__all__ = ["Combination", "Part", "accumulate_all", "bring_all", "go_round_all"]

#: What is done with an element of the owner and a ghost of it.
Combination = Literal["add", "minimum", "maximum", "last"]


@dataclass(frozen=True)
class Part:
    """
    What one rank has, or wants, of an array that is divided over ranks.

    Parameters
    ----------
    distribution
        Which rank has which elements.
    widths
        Widths of the ghosts, a pair (before, behind) per axis; empty if there are none.
    memory
        The elements of this rank, ghosts included, those beyond the ends of the array left out.
    periodic
        Which axes have such; empty if none has.
    """

    distribution: Distribution
    widths: list[tuple[int, int]]
    memory: NDArray[Any]
    periodic: tuple[bool, ...] = ()

    @property
    def meaning(self) -> tuple[object, ...]:
        """What is equal on all ranks."""
        distribution = self.distribution
        words = distribution.shape, self.memory.dtype, str(distribution), self.widths
        return (*words, self.periodic) if any(self.periodic) else words


def bring_all(
    group: Transport,
    operation: str,
    source: Part,
    make: Callable[[], Part],
    only: int | None = None,
) -> None:
    """
    Bring the elements of `source` to where `make` wants them. Collective.

    Parameters
    ----------
    group
        The ranks that have the array.
    operation
        Name of the method of `DistArray` that does this; on all ranks the same.
    source
        What this rank has. Its ghosts are not sent.
    make
        Makes what this rank wants, memory to be filled, ghosts included; what it raises, all ranks
        raise. May be `source`: its ghosts are filled then.
    only
        The only rank that wants anything; by default all.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks; see `DistArray.redistribute_all`.

    Notes
    -----
    Memory as `collective.traffic.Run` says.
    """

    def transfer() -> Transfer:
        target = make()

        def plan(limit: int | None) -> Traffic:
            return _core.exchange_plan(
                source.distribution.core,
                source.widths,
                target.distribution.core,
                target.widths,
                group.rank,
                only,
                limit,
            )

        meaning = source.meaning, target.meaning, only
        return Transfer(plan, source.memory, target.memory, meaning)

    _run(group, operation, transfer)


def go_round_all(group: Transport, part: Part, torus: Torus, memory: NDArray[Any]) -> None:
    """
    Set all ghosts to what their owners have, those beyond the ends of periodic axes as well. Collective.

    Parameters
    ----------
    group
        The ranks that have the array.
    part
        What this rank has.
    torus, memory
        Whose ghosts are copies of what, and the memory of this rank with all of them.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks; see `DistArray.redistribute_all`.
    """

    def transfer() -> Transfer:
        def plan(limit: int | None) -> Traffic:
            return torus.update(group.rank, limit)

        # Another view of it: what a rank has itself is copied from one to the other.
        return Transfer(plan, memory, memory[...], (part.meaning, part.meaning, None))

    _run(group, "update_ghosts_all", transfer)


def accumulate_all(
    group: Transport,
    operation: Combination,
    part: Part,
    torus: Torus | None = None,
    memory: NDArray[Any] | None = None,
) -> None:
    """
    Combine the ghosts of all ranks with the elements of their owners. Collective.

    Parameters
    ----------
    group
        The ranks that have the array.
    operation
        What is done with them; on all ranks the same.
    part
        What this rank has. Its ghosts are sent, and do not change.
    torus, memory
        As for `go_round_all`, if there are periodic axes.

    Raises
    ------
    DistributionError, CollectiveError
        On all ranks; see `DistArray.accumulate_ghosts_all`.
    """

    def transfer() -> Transfer:
        combine, dtype = COMBINE.get(operation), part.memory.dtype
        nothing = np.empty(0, dtype)
        try:
            if combine is not None:
                combine(nothing, nothing, out=nothing)
        except TypeError as error:
            raise UnsupportedError(
                f"elements of dtype {dtype} cannot be combined by {operation!r}; use an array of "
                "numbers",
                code="bad-dtype",
            ) from error

        def plan(limit: int | None) -> Traffic:
            if torus is not None:
                return torus.accumulate(operation, group.rank, limit)
            distribution = part.distribution.core
            return _core.accumulate_plan(distribution, part.widths, operation, group.rank, limit)

        whole = part.memory if memory is None else memory
        return Transfer(plan, whole, whole, part.meaning)

    _run(group, "accumulate_ghosts_all", transfer)


def _run(group: Transport, name: str, transfer: Callable[[], Transfer]) -> None:
    run = Run(group, f"DistArray.{name}", transfer)
    # The other ranks wait for all of it.
    with DeferredInterrupt():
        run.start()
        run.wait()
