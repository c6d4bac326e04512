"""
Send the elements of an array from the ranks that have them to the ranks that need them.

Problem. Another distribution, the ghosts of a part, the whole array on one rank: in each case every rank
has some elements and needs others. Or it has ghosts of elements that other ranks own and update with
them.
Approach. These are the same problem. The elements that one rank has and another one needs form regular
sections, and the core computes the messages (`_core.exchange_plan`, `_core.accumulate_plan`).
`DistArray` specifies which elements are needed, this module determines the messages, and
`collective.traffic` runs them.

Invariants. Every needed element is received once; elements that a rank has itself are copied. Each ghost
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
from outcore.base.distribution import Distribution
from outcore.errors import UnsupportedError
from outcore.ranks.collective.traffic import COMBINE, Traffic, TrafficRun, Transfer
from outcore.ranks.dist.periodic import Torus
from outcore.ranks.transport import Transport

__all__ = ["Combination", "RankPart", "accumulate_all", "bring_all", "update_periodic_ghosts_all"]

#: Operation on an element of the owner and a ghost of it.
Combination = Literal["add", "minimum", "maximum", "last"]


@dataclass(frozen=True)
class RankPart:
    """
    The elements that one rank has, or needs, of an array that is divided over ranks.

    `memory` has the elements of this rank, including ghosts, except those beyond the ends of the array.
    `periodic` states for each axis whether it has ghosts beyond the ends; it is empty if none has.
    """

    distribution: Distribution
    widths: list[tuple[int, int]]
    memory: NDArray[Any]
    periodic: tuple[bool, ...] = ()

    @property
    def meaning(self) -> tuple[object, ...]:
        """Properties of the part that are equal on all ranks."""
        distribution = self.distribution
        words = distribution.shape, self.memory.dtype, str(distribution), self.widths
        return (*words, self.periodic) if any(self.periodic) else words


def bring_all(
    group: Transport,
    operation: str,
    source: RankPart,
    make: Callable[[], RankPart],
    only: int | None = None,
) -> None:
    """
    Bring the elements of `source` to the places that `make` returns. Collective.

    The ghosts of `source` are not sent. `make` returns the memory of this rank to fill, including
    ghosts; its errors are raised on all ranks. If it returns `source`, the ghosts of `source` are
    filled. Only the rank `only` needs elements, by default all. `operation` is the name of the calling
    method of `DistArray`, the same on all ranks. Errors are those of `DistArray.redistribute_all`,
    memory is as for `traffic.TrafficRun`.
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


def update_periodic_ghosts_all(
    group: Transport, part: RankPart, torus: Torus, memory: NDArray[Any]
) -> None:
    """
    Set all ghosts to the values of their owners, also beyond the ends of periodic axes. Collective.

    `memory` is that of this rank including all of its ghosts. Errors are those of
    `DistArray.redistribute_all`.
    """

    def transfer() -> Transfer:
        def plan(limit: int | None) -> Traffic:
            return torus.update(group.rank, limit)

        # A second view of the memory: a rank copies its own elements from one view to the other.
        return Transfer(plan, memory, memory[...], (part.meaning, part.meaning, None))

    _run(group, "update_ghosts_all", transfer)


def accumulate_all(
    group: Transport,
    operation: Combination,
    part: RankPart,
    torus: Torus | None = None,
    memory: NDArray[Any] | None = None,
) -> None:
    """
    Combine the ghosts of all ranks with the elements of their owners. Collective.

    The ghosts of `part` are sent, and do not change. `torus` and `memory` are as for
    `update_periodic_ghosts_all`, if there are periodic axes. Errors are those of
    `DistArray.accumulate_ghosts_all`.
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
    TrafficRun(group, f"DistArray.{name}", transfer).run()
