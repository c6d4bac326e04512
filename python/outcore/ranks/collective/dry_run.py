"""
Plans of any number of ranks, made by one process.

Problem. Users want to see the plan of 64 ranks before any rank exists: on a laptop, without MPI.
Approach. The plan of a collective call is a pure function of the records of the ranks. Here one process
makes the records of all of them: it opens the array once and computes the cost of each rank's part, one
rank after another.

Invariants. The functions of `read_all` make the plan and choose the method, so the result is that of
`explain_all`, for ranks with this process's memory budget and hints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.report import Report
from outcore.errors import OutcoreError, UsageError
from outcore.ranks.collective import items as brought
from outcore.ranks.collective import planning
from outcore.ranks.collective.call import choose_method, make_plan
from outcore.ranks.collective.items import Item, Ranges, decode_ranges, make_key
from outcore.ranks.collective.planning import METHODS, Prices
from outcore.ranks.collective.report import CollectiveReport, make_report
from outcore.ranks.collective.rounds import make_owner

__all__ = ["DiskTransfers", "DryRun", "Ranges", "dry_run", "make_key"]

# Above this number of tiles, requests of whole parts are counted instead of those of each tile.
_TILES = 20_000
# Above this number of owners, the parts that no rank needs are included.
_OWNERS = 1_000


@dataclass(frozen=True)
class DiskTransfers:
    """Transfers between ranks and disk: requests, bytes, and chunks that are encoded or decoded."""

    requests: int = 0
    nbytes: int = 0
    chunks: int = 0

    def __add__(self, other: DiskTransfers) -> DiskTransfers:
        return DiskTransfers(
            self.requests + other.requests,
            self.nbytes + other.nbytes,
            self.chunks + other.chunks,
        )

    @classmethod
    def of(cls, report: Report) -> DiskTransfers:
        """Return the transfers of one rank's access."""
        return cls(
            report.reads + report.writes,
            report.read_bytes + report.written_bytes + report.mapped_bytes,
            report.decodes + report.encodes,
        )


@dataclass(frozen=True)
class DryRun:
    """
    Plan of a collective call on one array, with the report of `explain_all`.

    `keys` has the key of each rank, `sections` the keys as start, count and step of each axis.
    """

    array: DiskArray
    ranks: int
    write: bool
    keys: tuple[Any, ...]
    sections: tuple[Ranges, ...]
    plan: _core.Collective
    report: CollectiveReport

    def count_alone(self, rank: int) -> DiskTransfers:
        """Return the transfers of a rank's independent access."""
        given = self.plan.given(rank) if self.write else None
        if given is not None:
            return sum(
                (self._count_transfers(make_key(ranges)) for _, _, ranges in given), DiskTransfers()
            )
        return (
            self._count_transfers(self.keys[rank])
            if self.count_wanted_bytes(rank)
            else DiskTransfers()
        )

    def count_wanted_bytes(self, rank: int) -> int:
        """Return the bytes that a rank requests."""
        nbytes = int(self.array.dtype.itemsize)
        for _, count, _ in self.sections[rank]:
            nbytes *= count
        return nbytes

    def count_tile(self, owner: int, n: int) -> DiskTransfers:
        """Return the transfers for tile `n` of an owner."""
        wanted = self.plan.wanted(owner, n)
        return DiskTransfers() if wanted is None else self._count_transfers(make_key(wanted[0]))

    def count_round(self, owner: int, k: int) -> DiskTransfers:
        """Return the transfers of an owner in round `k`."""
        return sum(
            (self.count_tile(owner, n) for n in range(*self.plan.batch(owner, k))), DiskTransfers()
        )

    def count_together(self) -> tuple[DiskTransfers, bool]:
        """Return the transfers of all owners, and whether they were counted exactly."""
        owners = [(owner, self.plan.tiles(owner)) for owner in self.plan.owners()]
        if sum(tiles for _, tiles in owners) <= _TILES:
            numbers = ((owner, n) for owner, tiles in owners for n in range(tiles))
            return sum((self.count_tile(*number) for number in numbers), DiskTransfers()), True
        parts = (self._count_transfers(make_key(box)) for box in _iterate_boxes(self.plan))
        return sum(parts, DiskTransfers()), False

    def _count_transfers(self, key: Any) -> DiskTransfers:
        return DiskTransfers.of(self.array.explain(key, write=self.write))


def dry_run(
    array: DiskArray,
    keys: Sequence[Any],
    *,
    write: bool = False,
    method: str = "auto",
    cold: bool = False,
) -> DryRun:
    """
    Plan a collective access of ``len(keys)`` ranks in one process. Not collective.

    With `cold`, the method is chosen as if the page cache were empty. Requests are counted that way if
    the array was opened with ``Hints(cache="bypass")``. The `report` is the result of `explain_all` on
    these ranks. A `SectionError` names the rank whose key does not match the array.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.create("a.npy", data=np.zeros((64, 64)))
    >>> seen = dry_run(a, [np.s_[:, r::4] for r in range(4)], method="two-phase")
    >>> seen.report.method, seen.plan.owners(), seen.count_wanted_bytes(0)
    ('two-phase', [0, 1, 2, 3], 8192)
    """
    if method not in METHODS:
        raise UsageError(
            f"method={method!r} is not known; pass one of {', '.join(METHODS)}", code="bad-hint"
        )
    if not keys:
        raise UsageError(
            "no keys were given; pass a key for each of one or more ranks", code="bad-value"
        )
    all_items = [_prepare_item(array, key, rank) for rank, key in enumerate(keys)]
    size = len(keys)
    descriptor = array.handle.core.descriptor()
    rows = []
    for item in all_items:
        number = METHODS.index(method)
        settings = _core.settings(number, array.hints, size, [(item.core, item.key)])
        if cold:
            settings[planning.CACHED_SETTING] = 0 if item.nbytes else 1000
        rows.append(
            _core.record(0, settings, [(0, int(item.has_one_writer()), descriptor, item.section)])
        )
    records = _core.Records(_stack_records(rows))
    records.compare(True)
    plan = make_plan(records, write=write)
    own = [[item] for item in all_items]
    left = [brought.exclude_overwritten(o, plan, r) for r, o in enumerate(own)] if write else own

    def prices() -> Prices:
        owners = plan.owners()
        alone = [
            _core.own_price([(i.core, i.key) for i in one if i.nbytes], write=write, cold=cold)
            for one in left
        ]
        if cold and len(owners) > _OWNERS:
            boxes = [(array.handle.core, make_key(box)) for box in _iterate_boxes(plan)]
            parts = _core.own_price(boxes, write=write, cold=True)[0]
        else:
            each = [make_owner(plan, rank, [array]) for rank in owners]
            parts = sum(owner.price(write=write, cold=cold) for owner in each)
        return Prices(alone, parts, (0,) * size)

    choice = planning.describe_choice(choose_method(plan, records, prices, write=write), size)
    return DryRun(
        array=array,
        ranks=size,
        write=write,
        keys=tuple(keys),
        sections=tuple(decode_ranges(item.section) for item in all_items),
        plan=plan,
        report=make_report(
            size,
            plan,
            records.groups(len(plan.owners())),
            plan.slots(records.offered),
            choice,
            write=write,
        ),
    )


def _iterate_boxes(plan: _core.Collective) -> Iterator[Ranges]:
    """Yield the boxes that owners need; for many owners all that they own, to limit the search."""
    owners = plan.owners()
    for owner in owners:
        if len(owners) > _OWNERS:
            yield from (box for _, box in plan.parts(owner))
        else:
            yield from (box for _, box, _ in plan.needed(owner))


def _stack_records(records: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the records of all ranks, as if gathered."""
    rows = np.zeros((len(records), max(map(len, records))), np.int64)
    for row, record in zip(rows, records, strict=True):
        row[: len(record)] = record
    return rows


def _prepare_item(array: DiskArray, key: Any, rank: int) -> Item:
    try:
        return brought.prepare_report(array, key)
    except OutcoreError as error:
        said = f"rank {rank}: {error.message}"
        more = error.details
        raise type(error)(said, code=error.code, path=error.path, rank=rank, **more) from None
