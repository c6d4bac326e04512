"""
Reports of collective calls: assignment of arrays to ranks, and its benefit.

Problem. `read_all` of many arrays assigns arrays to ranks. Users want to see the assignment, its
balance, and the alternative of one call for each array. Approach. Each rank contributes in one gathering
what only it knows (costs of its own accesses and of its parts, bytes of its tiles). The rest follows
from the plan, which all ranks have.

Reference: Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective
I/O", sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.hints import Hints
from outcore.errors import UsageError
from outcore.ranks.collective import items as brought
from outcore.ranks.collective.call import (
    CollectiveCall,
    SharedPlan,
    compute_oversubscription,
    find_cheapest_method,
    make_plan,
)
from outcore.ranks.collective.items import Item
from outcore.ranks.collective.many import check_array, find_group, find_hints
from outcore.ranks.collective.planning import Method, MethodChoice, Prices, describe_choice
from outcore.ranks.collective.report import (
    ArrayReport,
    CollectiveReport,
    ManyReport,
    OwnerReport,
    make_report,
)
from outcore.ranks.collective.rounds import make_owner
from outcore.ranks.collective.virtual import prepare_reports
from outcore.ranks.transport import Transport

__all__ = ["explain", "explain_all"]

# Words of each rank: cost of its part, number of ranks that share its processor. Then for each array:
# cost of its own accesses, cached share, cost of its part in a separate call for the array; bytes of its
# part in the plan that it holds, that it gives to itself, and that it gives to others; bytes that it
# gives to others in a separate call.
_HEAD, _EACH = 2, 7


def explain_all(
    requests: Sequence[tuple[Any, ...]],
    *,
    comm: Any = None,
    method: Method = "auto",
    write: bool = False,
) -> ManyReport:
    """
    Report how `read_all` (or `write_all`) of many arrays would work, without moving data. Collective.

    Every rank of `comm` must call this, with the arrays and sections that it would pass to `read_all`,
    or none.

    Parameters
    ----------
    requests
        ``(array, key)`` for each section. Further elements are ignored, so lists for `read_all` or
        `write_all` are accepted.
    comm, method
        As for `read_all`.
    write
        Whether to explain `write_all`.

    Returns
    -------
    ManyReport
        The same on all ranks: method and reason, owners of each array, load of each owner, bytes between
        ranks, costs in nanoseconds; `str` gives human-readable text.

    Raises
    ------
    CollectiveError
        On all ranks if any rank failed or made a different call.
    BudgetError
        On all ranks, as for `read_all` (or `write_all`).
    UsageError
        On this rank if `requests` is empty and `comm` is not given.

    Notes
    -----
    Nothing is read, and no memory is allocated for results or slots. For comparison, a separate plan is
    made for each array, so this takes longer than the planning of `read_all`.

    Memik, Kandemir, Choudhary, "Exploiting Inter-File Access Patterns Using Multi-Collective I/O",
    sections 3 and 4.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> for name in "abc":
    ...     outcore.create(f"{name}.npy", data=np.zeros((100, 100))).close()
    >>> def look(comm):
    ...     arrays = [outcore.open(f"{name}.npy", comm=comm) for name in "abc"]
    ...     wanted = [(a, np.s_[:, comm.rank :: comm.size]) for a in arrays]
    ...     return outcore.mpi.explain_all(wanted, method="two-phase")
    >>> report = SimWorld(3).run(look)[0]
    >>> [array.owners for array in report.arrays]
    [((0, 80000),), ((1, 80000),), ((2, 80000),)]
    >>> report.rounds, report.alone_rounds
    (1, 3)
    """
    group = find_group(requests, comm)

    def prepare() -> list[Item]:
        found = []
        for request in requests:
            if len(request) < 2:
                raise UsageError(
                    "a request of explain_all has the wrong length; pass (array, key)",
                    code="bad-value",
                )
            array = check_array(request[0])
            if write:
                array.handle.check_writable("write to")
            found += prepare_reports(array, request[1])
        return found

    def answer(shared: SharedPlan) -> ManyReport:
        return _ReportMaker(group, shared, write).make()

    call = "outcore.mpi.explain_all(write=True)" if write else "outcore.mpi.explain_all"
    report: ManyReport = CollectiveCall(
        group, call, prepare, method, lambda: find_hints(requests), answer=answer
    ).run()
    return report


class _ReportMaker:
    """One rank's part in making the report."""

    def __init__(self, group: Transport, shared: SharedPlan, write: bool) -> None:
        self.group, self.shared, self.write = group, shared, write
        self.size, self.rank = group.size, group.rank
        # Separate plans, one for each array.
        self.apart = [
            make_plan(shared.records.alone(number), write=write)
            for number in range(len(shared.names))
        ]

    def make(self) -> ManyReport:
        words = np.zeros(_HEAD + _EACH * len(self.shared.names), np.int64)
        self._fill_words(words)
        said = self.group.allgather(words)
        paths = self._gather_paths()
        return self._make_report(said, paths)

    def _fill_words(self, words: Any) -> None:
        shared = self.shared
        words[0] = self._price_part(shared.plan, shared.arrays)
        words[1] = compute_oversubscription(self.group)
        each = words[_HEAD:].reshape(len(shared.names), _EACH)
        named = list(zip(brought.get_array_ids(shared.left), shared.left, strict=True))
        for number, name in enumerate(shared.names):
            left = [item for its, item in named if its == name]
            accesses = [(item.core, item.key) for item in left if item.nbytes]
            each[number, :2] = _core.own_price(accesses, write=self.write)
            apart, array = self.apart[number], shared.arrays[number]
            each[number, 2] = self._price_part(apart, [array])
            each[number, 6] = _count_given(apart, self.rank, self.size)[0][2]
        for number, given in _count_given(shared.plan, self.rank, self.size).items():
            each[number, 3:6] = given

    def _price_part(self, plan: _core.Collective, arrays: list[DiskArray | None]) -> int:
        """Return the cost of this rank's part as an owner."""
        return make_owner(plan, self.rank, arrays).price(write=self.write)

    def _gather_paths(self) -> list[str]:
        """Return the paths of the arrays, each from the lowest rank that has it."""
        arrays = self.shared.arrays
        first = [self.shared.records.have(number)[0] for number in range(len(arrays))]
        mine = [
            array.path if array is not None and rank == self.rank else ""
            for rank, array in zip(first, arrays, strict=True)
        ]
        said = self.group.allgather_bytes("\0".join(mine).encode(errors="surrogateescape"))
        told = [row.decode(errors="surrogateescape").split("\0") for row in said]
        return [told[rank][number] for number, rank in enumerate(first)]

    def _make_report(self, said: Any, paths: list[str]) -> ManyReport:
        shared = self.shared
        each = said[:, _HEAD:].reshape(self.size, len(shared.names), _EACH)
        given = shared.records.assigned(self.write)
        sharing = int(said[:, 1].max())
        arrays, alone_ns = [], 0
        wanted = shared.records.requests().reshape(len(shared.names), self.size).T
        for number in range(len(shared.names)):
            choice, cost = self._choose_own_method(number, each[:, number], sharing)
            alone_ns += cost
            held = each[:, number, 3]
            arrays.append(
                ArrayReport(
                    path=paths[number],
                    wanted_bytes=int(wanted[:, number].sum()),
                    ranks=int((wanted[:, number] > 0).sum()),
                    owners=tuple((int(rank), int(held[rank])) for rank in np.flatnonzero(held)),
                    alone_method=choice.method,
                    alone_why=choice.why,
                    alone_rounds=self.apart[number].rounds if choice.method == "two-phase" else 0,
                    alone_ns=cost,
                )
            )
        alone = [(int(cost), 0) for cost in each[:, :, 0].sum(axis=1)]
        most, parts = shared.records.most_arrays(), int(said[:, 0].sum())
        prices = Prices(alone, parts, self.group.nodes, sharing, most)
        chosen = describe_choice(shared.choice, self.size)
        cost = prices.of(shared.plan, chosen.method, write=self.write)
        loads = []
        for rank in shared.plan.owners():
            held, kept, sent = (int(each[rank, :, k].sum()) for k in (3, 4, 5))
            gets = int(wanted[rank].sum()) - kept
            loads.append(OwnerReport(rank, held, int((each[rank, :, 3] > 0).sum()), sent, gets))
        own_calls = [array.alone_method == "two-phase" for array in arrays]
        return ManyReport(
            direction="write" if self.write else "read",
            ranks=self.size,
            method=chosen.method,
            why=chosen.why,
            arrays=tuple(arrays),
            owners=tuple(loads),
            assignment="" if given is None else given[5],
            assignment_why="" if given is None else given[6],
            rounds=shared.plan.rounds,
            slots=shared.slots,
            slot_bytes=shared.plan.slot_bytes,
            wanted_bytes=shared.plan.wanted_bytes,
            traffic=int(each[:, :, 5].sum()),
            ns=cost,
            alone_rounds=sum(array.alone_rounds for array in arrays),
            alone_traffic=int(each[:, own_calls, 6].sum()),
            alone_ns=alone_ns,
        )

    def _choose_own_method(self, number: int, each: Any, sharing: int) -> tuple[MethodChoice, int]:
        """Return the method of a separate call for this array, and its cost."""
        plan, records = self.apart[number], self.shared.records
        asked = records.methods[0]
        alone = [(int(cost), int(cached)) for cost, cached in each[:, :2]]
        prices = Prices(alone, int(each[:, 2].sum()), self.group.nodes, sharing)
        if asked == "auto" and records.few_touch_files() is not None:
            choice = describe_choice(self.shared.choice, self.size)
        elif asked == "auto":
            found = find_cheapest_method(plan, records, prices, write=self.write)
            choice = describe_choice(found, self.size)
        else:
            choice = MethodChoice(
                "two-phase" if self.write and plan.in_order else asked, "asked for"
            )
        return choice, prices.of(plan, choice.method, write=self.write)


def _count_given(plan: _core.Collective, owner: int, size: int) -> dict[int, list[int]]:
    """
    Return for each array the bytes that the owner holds, gives to itself, and gives to others.

    The bytes are summed over all rounds.
    """
    found: dict[int, list[int]] = {number: [0, 0, 0] for number in range(plan.arrays)}
    for k in range(plan.tiles(owner)):
        tile, wanted = plan.tile(owner, k), plan.wanted(owner, k)
        if tile is None or wanted is None:
            continue
        counts = plan.counts(owner, (k, k + 1), size)
        sums = found[tile[0]]
        sums[0] += wanted[1] * plan.item(tile[0])
        sums[1] += counts[owner]
        sums[2] += sum(counts) - counts[owner]
    return found


def explain(
    group: Transport, prepare: Callable[[], list[Item]], method: str, hints: Hints, *, write: bool
) -> CollectiveReport:
    """Return the report of a collective call. Collective."""
    call = "explain_all(write=True)" if write else "explain_all"

    def answer(shared: SharedPlan) -> CollectiveReport:
        return make_report(
            group.size,
            shared.plan,
            shared.groups,
            shared.slots,
            describe_choice(shared.choice, group.size),
            write=write,
        )

    report: CollectiveReport = CollectiveCall(
        group, call, prepare, method, lambda: hints, one=True, answer=answer
    ).run()
    return report
