"""
Sections of the whole array, wherever its files are: reading, multicast, and copies in another placement.

Problem. Under local placement a section of the whole array lies in the files of several ranks; a copy in
another placement or distribution moves all of it.
Idea. A section of the whole array is a list of sections of files, found by the distribution, and the
collective of many arrays reads them, each byte once. A copy is a loop over the slabs of its target, each
of which is such a section of the source.

Invariants. A copy has its name when it is whole and durable. Every rank makes as many collective calls
as the others, whatever its own part.

Reference: PASSION report, section 4.2.1 (`PASSION_oc_multicast`, `PASSION_oc_file_map`, Table 2).
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.collective.agreement import Announced, together
from outcore.collective.call import run
from outcore.collective.items import writing
from outcore.collective.many import read_all
from outcore.disk import DiskArray
from outcore.distribution import Key
from outcore.errors import UsageError
from outcore.placement.keys import Rows, lengths, straight
from outcore.placement.part import intersections

if TYPE_CHECKING:
    from outcore.placement.array import PlacedArray

__all__ = ["Files", "multicast", "read_global", "write_slabs"]

_MULTICAST = "PlacedArray.multicast_all"
_COPY = "copy_placed"


class Files:
    """
    The files in which elements of a placed array lie, opened when they are needed.

    Parameters
    ----------
    array
        The array.
    """

    def __init__(self, array: PlacedArray) -> None:
        self._array = array
        self._opened: dict[int, DiskArray] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def of(self, rank: int) -> DiskArray:
        """The file of a rank."""
        array = self._array
        if rank == array.transport.rank:
            return array._disk
        if rank not in self._opened:
            opened = outcore.open(array._manifest.file(rank))
            self._opened[rank] = self._stack.enter_context(opened)
        return self._opened[rank]

    def requests(self, box: Key, out: NDArray[Any]) -> list[tuple[DiskArray, Key, NDArray[Any]]]:
        """What has to be read for a box of the whole array, and where to."""
        array = self._array
        if array.placement != "local":
            return [(array._disk, box, out)]
        found = []
        core, ghosts = array.distribution._core, list(array.ghosts)
        for rank in range(array.distribution.grid.size):
            if not core.is_owner(rank):
                continue  # another rank has the same elements
            sections, places = core.pieces(rank, ghosts, False)
            for there, place in intersections(places, sections, box):
                found.append((self.of(rank), there, out[place]))
        return found


def read_global(array: PlacedArray, key: Any, out: NDArray[Any] | None) -> Any:
    """Read a section of the whole array; see `PlacedArray.read_global_all`. Collective."""
    with Files(array) as files:
        asked: list[tuple[DiskArray, Key, NDArray[Any]]] = []
        memory: list[NDArray[Any]] = []
        keys: list[tuple[Any, ...]] = []

        def work() -> list[int]:
            array._started.finish_writes()
            box, within = straight(key, array.shape)
            keys.append(within)
            memory.append(np.empty(lengths(box), array.dtype))
            _must_fit(out, memory[0][within], array)
            asked.extend(files.requests(box, memory[0]))
            return []

        together(
            array.transport, "PlacedArray.read_global_all", work, lambda: "read_global_all", same=0
        )
        _read(array, asked)
        found = memory[0][keys[0]]
        if out is None:
            return found
        out[...] = found
        return out


def _must_fit(out: NDArray[Any] | None, found: Any, array: PlacedArray) -> None:
    if out is not None and (out.shape != np.shape(found) or out.dtype != array.dtype):
        raise UsageError(
            f"out= has shape {out.shape} and dtype {out.dtype}; the section of {array.path!r} has "
            f"{np.shape(found)} and {array.dtype}",
            code="out-mismatch",
            path=array.path,
        )


def _read(array: PlacedArray, asked: list[tuple[DiskArray, Key, NDArray[Any]]]) -> None:
    nothing = tuple(slice(0, 0) for _ in array.shape)
    # A rank that has a file in its list helps the others to read it.
    helps = [(array._disk, nothing)] if array.shape else []
    read_all([*helps, *asked], comm=array.transport)


def multicast(array: PlacedArray, key: Any, target: DiskArray) -> None:
    """Bring a section to a file of every rank; see `PlacedArray.multicast_all`. Collective."""
    parts: list[Any] = []
    with Files(array) as files:

        def work() -> list[int]:
            array._started.finish_writes()
            found = Rows.of(key, array.shape)
            if target.shape != found.shape or target.dtype != array.dtype:
                raise UsageError(
                    f"the target {target.path!r} has shape {target.shape} and dtype {target.dtype}; the "
                    f"section has {found.shape} and {array.dtype}",
                    code="out-mismatch",
                    path=target.path,
                )
            parts.append(found)
            held, budget, _ = _core.memory_state()
            room = max((budget - held) // 4, 1)
            return [found.meaning, max(room // max(found.row * array.dtype.itemsize, 1), 1)]

        told = together(
            array.transport, _MULTICAST, work, lambda: f"multicast_all({key!r})", same=1
        )
        rows, step = parts[0], min(told.setting(1))
        for low in range(0, rows.length, step):
            part, place = rows.part(low, min(low + step, rows.length))
            got: list[NDArray[Any]] = []

            def begin(part: Any = part, got: list[NDArray[Any]] = got) -> list[int]:
                box, _ = straight(part, array.shape)
                got.append(np.empty(lengths(box), array.dtype))
                return []

            def store(part: Any = part, place: Any = place, got: Any = got) -> list[int]:
                target.write(place, got[0][straight(part, array.shape)[1]])
                return []

            nbytes = (min(low + step, rows.length) - low) * rows.row * array.dtype.itemsize
            with (
                Announced(array.transport, "multicast_all"),
                _core.Reservation("a multicast", nbytes),
            ):
                together(array.transport, _MULTICAST, begin, lambda: "a part of it", same=0)
                _read(array, files.requests(straight(part, array.shape)[0], got[0]))
                together(array.transport, _MULTICAST, store, lambda: "a part of it", same=0)


def write_slabs(source: PlacedArray, target: PlacedArray) -> None:
    """Fill an array, slab by slab of its own, with the elements of another one. Collective."""
    group = target.transport
    boxes: list[Key] = []

    def cut() -> list[int]:
        source._started.finish_writes()
        boxes.extend(target._boxes())
        return [len(boxes)]

    told = together(group, _COPY, cut, lambda: "copy_placed", same=0)
    with Files(source) as files:
        for number in range(max(told.setting(0))):
            box = boxes[number] if number < len(boxes) else None
            size = 0 if box is None else math.prod(lengths(box))
            asked: list[tuple[DiskArray, Key, NDArray[Any]]] = []
            memory: list[NDArray[Any]] = []

            def begin(box: Any = box, memory: Any = memory, asked: Any = asked) -> list[int]:
                if box is not None:
                    memory.append(np.empty(lengths(box), target.dtype, target._order))
                    for section, place in intersections(*target._pieces, box):
                        asked.extend(files.requests(section, memory[0][place]))
                return []

            def bring(box: Any = box, memory: Any = memory) -> list[Any]:
                if box is None:
                    return []
                pieces = intersections(*target._pieces, box)
                return [writing(target._disk, key, memory[0][place]) for key, place in pieces]

            def store(box: Any = box, memory: Any = memory) -> list[int]:
                if box is not None:
                    target.write_section(box, memory[0])
                return []

            nbytes = size * target.dtype.itemsize
            with Announced(group, _COPY), _core.Reservation("a copy", nbytes):
                together(group, _COPY, begin, lambda: "a part of it", same=0)
                _read(source, asked)
                if target.placement == "local":
                    together(group, _COPY, store, lambda: "a part of it", same=0)
                else:
                    # Ranks that share chunks write them together: each is encoded once.
                    run(group, "PlacedArray.write_slab", bring, "auto", lambda: target._disk.hints)
