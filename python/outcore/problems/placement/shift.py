"""
Copy the boundary elements of neighbours into the overlap areas of local array files.

Problem: at the end of an iteration each rank needs the elements around its own, which other ranks have
changed in their own files.
Approach: there are three methods. `direct`: each rank reads the files of its neighbours (the report's
direct file access method). `out-of-core`: one collective read of all these sections, so that each file
is read by one rank, in rounds that fit the budget, and elements are sent (the two-phase method).
`in-core`: if whole local arrays fit in memory, each rank reads its own array in one request, the ranks
exchange ghosts between memories, and write them. This is faster if boundaries are single elements of
rows, for which the disk would transfer the whole file anyway. All ranks use the method whose slowest
rank has the lowest estimated time.
Invariants: no rank reads before all have written, and none returns before all have read, so a program
that continues changes nothing that others still need. Only its own rank writes an overlap area.

Reference: PASSION report, section 4.3 and Table 3 (`PASSION_oc_shift`).
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base import assumed_costs
from outcore.base.distribution import Key
from outcore.errors import UsageError
from outcore.problems.placement.overlap import Overlap
from outcore.problems.placement.placed import PlacementState, get_step_bytes
from outcore.ranks.collective.many import read_all
from outcore.ranks.dist import DistArray

__all__ = ["SHIFTS", "Shift", "ShiftMethod", "shift"]

#: Method of filling overlap areas.
ShiftMethod = Literal["auto", "direct", "out-of-core", "in-core"]
SHIFTS = ("direct", "out-of-core", "in-core")


@dataclass(frozen=True)
class Shift:
    """
    Report of a shift that was done or planned.

    Parameters
    ----------
    method, why
        Method that all ranks use, and the reason in one sentence.
    seconds
        Estimated time of each possible method on the slowest rank.
    elements
        Number of elements in the overlap area of this rank.
    rounds
        Number of rounds of reading and writing that the memory budget requires.
    """

    method: str
    why: str
    seconds: dict[str, float]
    elements: int
    rounds: int

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {took * 1e3:.3g} ms" for name, took in self.seconds.items())
        return (
            f"shift: {self.method}, because {self.why} (estimates: {costs}), {self.rounds} rounds"
        )


def shift(array: PlacementState, method: ShiftMethod, *, dry: bool) -> Shift:
    """Shift, or report the plan; see `PlacedArray.shift_all`. Collective."""
    files: dict[int, DiskArray] = {}
    mine: list[Overlap] = []
    cost: dict[str, int] = {}
    room = 0

    def look() -> list[int]:
        nonlocal room
        if method not in ("auto", *SHIFTS):
            raise UsageError(
                f"shift_all: method={method!r} is not known; use 'auto', {', '.join(map(repr, SHIFTS))}",
                code="bad-option",
            )
        array.requests.finish_writes()
        mine.extend(array.list_overlaps())
        for one in mine:
            if one.owner not in files:
                files[one.owner] = outcore.open(array.manifest.get_file(one.owner))
        room = _measure_room_bytes(array.dtype.itemsize)
        cost.update(_estimate_costs(array, mine, files, room))
        rounds = len(_split_rounds(mine, array.dtype.itemsize, room))
        return [rounds, *(cost.get(name, -1) for name in SHIFTS)]

    try:
        told = array.agree(
            "shift_all", look, f"{method!r}, explain={dry}", meaning=(method, bool(dry))
        )
        rounds = max(told.setting(0))
        slowest = {}
        for number, name in enumerate(SHIFTS):
            each = told.setting(1 + number)
            if min(each) >= 0:
                slowest[name] = max(each)
        chosen = choose(slowest, method)
        elements = sum(_count_elements(one.here) for one in mine)
        if not dry:
            _run_method(array, chosen[0], mine, files, rounds, room)
    finally:
        for file in files.values():
            file.close()
    estimates = {name: nanoseconds / 1e9 for name, nanoseconds in slowest.items()}
    return Shift(*chosen, estimates, elements, 1 if chosen[0] == "in-core" else rounds)


def _measure_room_bytes(item: int) -> int:
    """Return the bytes available for elements in transfer on this rank: at least one element."""
    return max(get_step_bytes(), item)


def choose(slowest: dict[str, int], method: str) -> tuple[str, str]:
    """
    Return the method to use, and the reason.

    `slowest` has the nanoseconds of each possible method on the slowest rank.

    Examples
    --------
    >>> choose({"direct": 30, "out-of-core": 20, "in-core": 50}, "auto")
    ('out-of-core', 'its estimated time is the lowest')
    >>> choose({"direct": 30, "out-of-core": 20}, "direct")
    ('direct', 'it was requested')
    """
    if method != "auto":
        if method not in slowest:
            raise UsageError(
                f"shift_all: method={method!r} is not possible, because a local array does not fit in "
                "the memory of its rank; raise outcore.memory(), or use 'out-of-core'",
                code="bad-option",
            )
        return method, "it was requested"
    return min(slowest, key=lambda name: (slowest[name], name)), "its estimated time is the lowest"


def _estimate_costs(
    array: PlacementState, mine: list[Overlap], files: dict[int, DiskArray], room: int
) -> dict[str, int]:
    """Return the nanoseconds of each possible method on this rank."""
    item = array.dtype.itemsize
    travels = sum(_count_elements(one.here) for one in mine) * item
    owned = array.disk
    stored = sum(_estimate_access(owned, one.here, write=True) for one in mine)
    reads = sum(_estimate_access(files[one.owner], one.there) for one in mine)
    # If several ranks read one file at the same time they wait for each other; two-phase reads it once.
    costs = {
        "direct": reads + stored,
        "out-of-core": _estimate_boundary(array)
        + stored
        + int(2 * travels / assumed_costs.MEMORY_RATE * 1e9),
    }
    whole = owned.size * item
    if whole <= room * 2:
        everything = tuple(slice(0, n) for n in owned.shape)
        moved = int((whole + 2 * travels) / assumed_costs.MEMORY_RATE * 1e9)
        costs["in-core"] = _estimate_access(owned, everything) + stored + moved
    return costs


def _estimate_boundary(array: PlacementState) -> int:
    """Return the nanoseconds to read once the elements of this rank's file that other ranks need."""
    return sum(_estimate_access(array.disk, key) for key in array.find_boundary())


def _estimate_access(disk: DiskArray, key: Key, *, write: bool = False) -> int:
    if not _count_elements(key):
        return 0
    told = disk.explain(key, write=write)
    requests, nbytes = told.reads + told.writes, told.read_bytes + told.written_bytes
    took = requests * told.disk_latency_ns + nbytes / max(told.disk_rate, 1) * 1e9
    return int(took + told.mapped_bytes / assumed_costs.MEMORY_RATE * 1e9)


def _run_method(
    array: PlacementState,
    method: str,
    mine: list[Overlap],
    files: dict[int, DiskArray],
    rounds: int,
    room: int,
) -> None:
    if method == "in-core":
        _shift_in_core(array, mine)
        return
    cut = _split_rounds(mine, array.dtype.itemsize, room)
    for number in range(rounds):
        _run_round(array, method, cut[number] if number < len(cut) else [], files)


def _shift_in_core(array: PlacementState, mine: list[Overlap]) -> None:
    """Exchange ghosts between whole local arrays in memory. Collective."""
    whole: list[DistArray] = []
    with ExitStack() as held:

        def read() -> None:
            nbytes = array.disk.size * array.dtype.itemsize
            held.enter_context(_core.Reservation("a shift", nbytes))
            whole.append(array.read_local())

        def store() -> None:
            for one in mine:
                array.disk.write(one.here, whole[0].local[one.here])

        array.agree("shift_all", read)
        whole[0].update_ghosts_all()
        array.agree("shift_all", store)


def _run_round(
    array: PlacementState, method: str, part: list[Overlap], files: dict[int, DiskArray]
) -> None:
    """Fill a part of the overlap area of each rank. Collective."""
    got: list[NDArray[Any]] = []
    with ExitStack() as held:

        def begin() -> None:
            nbytes = sum(_count_elements(one.here) for one in part) * array.dtype.itemsize
            held.enter_context(_core.Reservation("a shift", nbytes))
            if method == "direct":
                got.extend(files[one.owner].read(one.there) for one in part)

        def store() -> None:
            for one, values in zip(part, got, strict=True):
                array.disk.write(one.here, values)

        array.agree("shift_all", begin)
        if method != "direct":
            nothing = tuple(slice(0, 0) for _ in array.shape)
            asked = [(files[one.owner], one.there) for one in part]
            # A rank that lists its array helps the others to read it.
            found = read_all([(array.disk, nothing), *asked], comm=array.group)
            got.extend(found[1:])
        array.agree("shift_all", store)


def _split_rounds(mine: list[Overlap], item: int, room: int) -> list[list[Overlap]]:
    """Split the overlap area into parts of at most `room` bytes each, or one element."""
    most = max(room // item, 1)
    parts: list[list[Overlap]] = [[]]
    free = most
    todo = list(reversed(mine))
    while todo:
        one = todo.pop()
        size = _count_elements(one.here)
        if not size:
            continue
        if size > most:
            todo += reversed(_halve(one))
            continue
        if size > free:
            parts.append([])
            free = most
        parts[-1].append(one)
        free -= size
    return [part for part in parts if part]


def _halve(one: Overlap) -> tuple[Overlap, Overlap]:
    """Split an overlap into two parts across its longest axis."""
    lengths = [part.stop - part.start for part in one.here]
    axis = max(range(len(lengths)), key=lengths.__getitem__)
    half = lengths[axis] // 2

    def cut(key: Key, first: int, last: int) -> Key:
        low = key[axis].start
        return (*key[:axis], slice(low + first, low + last), *key[axis + 1 :])

    ends = ((0, half), (half, lengths[axis]))
    low, high = (replace(one, there=cut(one.there, *end), here=cut(one.here, *end)) for end in ends)
    return low, high


def _count_elements(key: Key) -> int:
    return math.prod(part.stop - part.start for part in key)
