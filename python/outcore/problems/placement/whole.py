"""
Read, multicast and copy sections of the whole array, independent of its placement.

Problem: under local placement a section of the whole array is stored in the files of several ranks; a
copy to another placement or distribution moves the whole array.
Approach: the distribution converts a section of the whole array to a list of sections of files, and the
collective read of many arrays reads them, each byte once. A copy is a loop over the slabs of its target,
each of which is such a section of the source.
Invariants: a copy gets its name when it is complete and durable. All ranks make the same number of
collective calls, whatever their own parts are.

Reference: PASSION report, section 4.2.1 (`PASSION_oc_multicast`, `PASSION_oc_file_map`, Table 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.indices.points import check_out
from outcore.arrays.pieces import intersect_pieces
from outcore.base.distribution import Key
from outcore.errors import UsageError
from outcore.problems.placement.keys import (
    SectionRows,
    measure_section,
    straighten,
    view_as_section,
)
from outcore.problems.placement.placed import PlacementState, get_step_bytes
from outcore.ranks.collective.call import CollectiveCall
from outcore.ranks.collective.items import prepare_write
from outcore.ranks.collective.many import read_all
from outcore.ranks.ranks import Ranks

if TYPE_CHECKING:
    from outcore.problems.placement.array import PlacedArray

__all__ = ["PlacedFiles", "multicast", "read_global", "write_slabs"]


class PlacedFiles:
    """Files that contain the elements of a placed array, opened on demand."""

    def __init__(self, array: PlacementState) -> None:
        self._array = array
        self._opened: dict[int, DiskArray] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def get_file(self, rank: int) -> DiskArray:
        """Return the file of a rank."""
        array = self._array
        if rank == array.group.rank:
            return array.disk
        if rank not in self._opened:
            opened = outcore.open(array.manifest.get_file(rank))
            self._opened[rank] = self._stack.enter_context(opened)
        return self._opened[rank]

    def list_requests(
        self, box: Key, out: NDArray[Any]
    ) -> list[tuple[DiskArray, Key, NDArray[Any]]]:
        """Return the reads for a box of the whole array, with their targets."""
        array = self._array
        if array.placement != "local":
            return [(array.disk, box, out)]
        found = []
        core, ghosts = array.distribution.core, list(array.ghosts)
        for rank in range(array.distribution.grid.size):
            if not core.is_owner(rank):
                continue  # another rank has the same elements
            sections, places = core.pieces(rank, ghosts, False)
            for there, place in intersect_pieces(places, sections, box):
                found.append((self.get_file(rank), there, out[place]))
        return found


def read_global(array: PlacementState, key: Any, out: NDArray[Any] | None) -> Any:
    """Read a section of the whole array; see `PlacedArray.read_global_all`. Collective."""
    with PlacedFiles(array) as files, ExitStack() as held:
        asked: list[tuple[DiskArray, Key, NDArray[Any]]] = []
        results: list[Callable[[], Any]] = []

        def work() -> None:
            array.requests.finish_writes()
            box, within = straighten(key, array.shape)
            if out is not None:
                check_out(array, out, SectionRows.of(key, array.shape).shape)
            memory = view_as_section(out, within)
            if memory is None:
                if out is not None:
                    nbytes = math.prod(measure_section(box)) * array.dtype.itemsize
                    held.enter_context(_core.Reservation("a section of a placed array", nbytes))
                memory = np.empty(measure_section(box), array.dtype)
            asked.extend(files.list_requests(box, memory))
            results.append(lambda: memory[within])

        array.agree("read_global_all", work)
        _read(array, asked)
        found = results[0]()
        if out is None:
            return found
        if not np.may_share_memory(found, out):
            out[...] = found
        return out


def _read(array: PlacementState, asked: list[tuple[DiskArray, Key, NDArray[Any]]]) -> None:
    nothing = tuple(slice(0, 0) for _ in array.shape)
    # A rank that lists its file helps the others to read it.
    helps = [(array.disk, nothing)] if array.shape else []
    read_all([*helps, *asked], comm=array.group)


def multicast(array: PlacementState, key: Any, target: DiskArray) -> None:
    """Copy a section to a file of every rank; see `PlacedArray.multicast_all`. Collective."""
    parts: list[Any] = []
    with PlacedFiles(array) as files:

        def work() -> list[int]:
            array.requests.finish_writes()
            found = SectionRows.of(key, array.shape)
            if target.shape != found.shape or target.dtype != array.dtype:
                raise UsageError(
                    f"the target {target.path!r} has shape {target.shape} and dtype {target.dtype}; "
                    f"pass a target with those of the section, {found.shape} and {array.dtype}",
                    code="out-mismatch",
                    path=target.path,
                )
            parts.append(found)
            return [
                found.meaning,
                max(get_step_bytes() // max(found.row * array.dtype.itemsize, 1), 1),
            ]

        told = array.agree("multicast_all", work, repr(key), equal=1)
        rows, step = parts[0], min(told.setting(1))
        for low in range(0, rows.length, step):
            part, place = rows.get_part(low, min(low + step, rows.length))
            _multicast_part(array, files, target, part, place)


def _multicast_part(
    array: PlacementState, files: PlacedFiles, target: DiskArray, part: Any, place: Any
) -> None:
    """Copy some rows of a section to the file of every rank. Collective."""
    box, within = straighten(part, array.shape)
    memory: list[NDArray[Any]] = []
    asked: list[tuple[DiskArray, Key, NDArray[Any]]] = []
    with ExitStack() as held:

        def begin() -> None:
            nbytes = math.prod(measure_section(box)) * array.dtype.itemsize
            held.enter_context(_core.Reservation("a multicast", nbytes))
            memory.append(np.empty(measure_section(box), array.dtype))
            asked.extend(files.list_requests(box, memory[0]))

        def store() -> None:
            target.write(place, memory[0][within])

        array.agree("multicast_all", begin)
        _read(array, asked)
        array.agree("multicast_all", store)


def write_slabs(source: PlacedArray, target: PlacedArray) -> None:
    """Fill an array, slab by slab, with the elements of another one. Collective."""
    ranks = Ranks.of_call(target.transport, "copy_placed")
    boxes: list[Key] = []

    def cut() -> list[int]:
        source.handle.requests.finish_writes()
        boxes.extend(target.handle.cut_boxes())
        return [len(boxes)]

    told = ranks.gather_numbers(cut)
    with PlacedFiles(source.handle) as files:
        for number in range(max(told.setting(0))):
            box = boxes[number] if number < len(boxes) else None
            _copy_slab(ranks, source, files, target, box)


def _copy_slab(
    ranks: Ranks, source: PlacedArray, files: PlacedFiles, target: PlacedArray, box: Key | None
) -> None:
    """Write one slab of each rank that has one left, with elements of another array. Collective."""
    memory: list[NDArray[Any]] = []
    asked: list[tuple[DiskArray, Key, NDArray[Any]]] = []
    with ExitStack() as held:

        def begin() -> None:
            if box is not None:
                nbytes = math.prod(measure_section(box)) * target.dtype.itemsize
                held.enter_context(_core.Reservation("a copy", nbytes))
                memory.append(np.empty(measure_section(box), target.dtype, target.handle.order))
                for section, place in intersect_pieces(*target.handle.pieces, box):
                    asked.extend(files.list_requests(section, memory[0][place]))

        def bring() -> list[Any]:
            if box is None:
                return []
            pieces = intersect_pieces(*target.handle.pieces, box)
            return [
                prepare_write(target.handle.disk, key, memory[0][place]) for key, place in pieces
            ]

        def store() -> None:
            if box is not None:
                target.write_section(box, memory[0])

        ranks.gather_numbers(begin)
        _read(source.handle, asked)
        if target.placement == "local":
            ranks.gather_numbers(store)
        else:
            # Ranks that share chunks write them collectively, so each is encoded once.
            CollectiveCall(
                ranks.group,
                "PlacedArray.write_slab",
                bring,
                "auto",
                lambda: target.handle.disk.hints,
            ).run()
