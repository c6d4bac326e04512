"""
Movement of elements between a section in memory and a section of a disk resident array.

Problem. All ranks move one section together, each its parts. Any of them may fail, name another section,
or have another dtype than the array on disk. Approach. The ranks first agree: every rank states its
arguments and whether it can proceed. Then the parts of all ranks are one collective access
(`collective.call`). Its planner chooses between independent accesses and file domains, whose owners send
elements to the other ranks; the two phases replace a redistribution to a distribution that matches the
file. If dtypes differ, parts are cut into pieces and cast in passes through a buffer.

Invariants. Nothing is moved before all ranks have the same arguments. All ranks make the same passes.
Memory in addition to the caller's arrays counts in the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.sections import Selection
from outcore.errors import BudgetError
from outcore.ranks.collective.call import CollectiveCall
from outcore.ranks.collective.items import Item, get_array_id, make_key, prepare_read, prepare_write
from outcore.ranks.collective.planning import Method
from outcore.ranks.dist import DistArray
from outcore.ranks.ranks import Ranks
from outcore.ranks.resident.partner import Link, Part, as_partner, link_axes, list_parts
from outcore.ranks.transport import Transport
from outcore.ranks.transport.timeouts import DeferredInterrupt

__all__ = ["Movement", "MovementRequest"]

# Bytes of the buffer for casts; a larger buffer does not make passes faster.
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class MovementRequest:
    """
    Arguments of one movement between a section on disk and the section of a partner in memory.

    `transpose` is the order of the axes of the source, as for `permutation`. With `ghosts`, ghosts are
    read, too. With `write`, elements move from memory to disk.
    """

    name: str
    key: Any
    partner: Any
    partner_key: Any
    transpose: bool | Sequence[int] = False
    ghosts: bool = False
    method: Method = "auto"
    write: bool = False


@dataclass
class _Cast:
    """Memory in which the elements of one pass are cast, and a description of these elements."""

    held: _core.Reservation
    buffer: NDArray[np.uint8]
    passes: list[list[Part]]
    #: For a read: elements in the buffer, and their targets.
    ready: list[tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)


class Movement:
    """One movement on one rank. Every rank makes one, and makes the same calls on it."""

    def __init__(self, group: Transport, array: DiskArray, wanted: MovementRequest) -> None:
        self._group, self._array, self._wanted = group, array, wanted
        self._ranks = Ranks.of_call(group, f"DiskResidentArray.{wanted.name}")
        self._parts: list[Part] = []
        self._cast: _Cast | None = None
        self._casts = False
        self._told = ""
        self._linked: list[Link] = []
        # Bytes of the buffer that the parts of this pass use so far.
        self._at = 0

    def run(self) -> None:
        """Move the elements. Collective."""
        with self._ranks.raise_cause_if_alone():
            self._run()

    def _run(self) -> None:
        wanted, ranks = self._wanted, self._ranks
        ranks.finish_started()
        call = f"elements of DiskResidentArray.{'write' if wanted.write else 'read'}"
        try:
            with DeferredInterrupt():
                passes = self._agree()
                # With a cast, a synchronisation follows the last pass as well.
                with ranks.raise_on_all():
                    for number in range(passes):
                        self._run_pass(call, number)
                    if self._casts:
                        self._finish_cast()
        finally:
            if self._cast is not None:
                self._cast.held.release()
                self._cast = None

    def find_sections(self) -> list[tuple[slice, ...]]:
        """Return the sections of the disk array that this rank moves. Collective."""
        with self._ranks.raise_cause_if_alone(), DeferredInterrupt():
            self._agree(moves=False)
        return [make_key(ranges) for ranges, _ in self._parts]

    # ----------------------------------------------------------------------------------- preparation

    def _agree(self, *, moves: bool = True) -> int:
        """Prepare on this rank; return the number of passes. All ranks raise if one cannot."""

        def prepare() -> list[int]:
            self._prepare()
            passes = self._take_buffer() if moves and self._casts else 1
            return [passes]

        def describe() -> object:
            return self._told, self._linked, get_array_id(self._array)

        records = self._ranks.gather_numbers(prepare, lambda: self._told, meaning=describe)
        return max(records.setting(0))

    def _prepare(self) -> None:
        wanted, array = self._wanted, self._array
        array.handle.check_open("write to" if wanted.write else "read")
        partner = as_partner(wanted.partner, self._group)
        disk = Selection.of_disk(array, wanted.key, write=wanted.write)
        memory = Selection.of_memory(partner, wanted.partner_key)
        linked = link_axes(memory, disk, wanted.transpose, write=wanted.write)
        self._casts = partner.dtype != array.dtype
        # Arguments that must be equal on all ranks.
        ghosts = f", ghosts {partner.ghosts}" if wanted.ghosts else ""
        self._told = (
            f"DiskResidentArray.{wanted.name} of {array.path!r}, section {disk}, with section {memory} "
            f"of an array of shape {partner.shape}, {partner.distribution}, dtype {partner.dtype}"
            f"{ghosts}, transpose={wanted.transpose}"
        )
        self._linked = linked
        if wanted.write and not partner.distribution.core.is_owner(partner.rank):
            return
        self._check_cast(partner)
        self._parts = list_parts(partner, memory, disk, linked, ghosts=wanted.ghosts)

    def _check_cast(self, partner: DistArray) -> None:
        """Raise if these dtypes cannot be cast, before anything is moved."""
        here, there = np.zeros(1, partner.dtype), np.zeros(1, self._array.dtype)
        source, target = (here, there) if self._wanted.write else (there, here)
        with np.errstate(all="ignore"):
            np.copyto(target, source, casting="unsafe")

    def _take_buffer(self) -> int:
        """Allocate the buffer for the cast; return the number of passes."""
        item = self._array.dtype.itemsize
        most = max((view.size for _, view in self._parts), default=0)
        total = sum(view.size for _, view in self._parts)
        room = max(min(_LARGEST, _core.memory_state()[1] // 4), item) // item
        room = min(room, max(total, 1))
        while True:
            try:
                held = _core.Reservation("a cast", room * item)
                break
            except BudgetError:
                if room == 1:
                    raise
                room = max(room // 2, 1)
        passes: list[list[Part]] = []
        left = 0
        for part in self._parts if most <= room else self._cut(room):
            if part[1].size > left or not passes:
                passes.append([])
                left = room
            passes[-1].append(part)
            left -= part[1].size
        self._cast = _Cast(held, np.empty(room * item, np.uint8), passes)
        return len(passes)

    def _cut(self, room: int) -> Iterator[Part]:
        """Yield the parts, cut into pieces of at most `room` elements, in the order of the disk."""
        order = range(self._array.ndim)
        axes = list(order if self._array.order == "F" else reversed(order))
        for ranges, view in self._parts:
            thick = _core.slab_shape(list(view.shape), axes, room)
            starts = [range(0, n, max(t, 1)) for n, t in zip(view.shape, thick, strict=True)]
            for at in product(*starts):
                cut = [min(t, n - a) for a, t, n in zip(at, thick, view.shape, strict=True)]
                section = [
                    (start + a * step, count, step)
                    for (start, _, step), a, count in zip(ranges, at, cut, strict=True)
                ]
                here: list[Any] = [slice(a, a + n) for a, n in zip(at, cut, strict=True)]
                yield section, view[(*here, ...)]

    # -------------------------------------------------------------------------------------- each pass

    def _run_pass(self, call: str, number: int) -> None:
        array = self._array

        def bring() -> list[Item]:
            if self._cast is None:
                return [self._make_item(ranges, view) for ranges, view in self._parts]
            self._take_over()
            self._at = 0
            mine = self._cast.passes[number] if number < len(self._cast.passes) else []
            return [self._stage(ranges, view, self._cast) for ranges, view in mine]

        CollectiveCall(self._group, call, bring, self._wanted.method, lambda: array.hints).run()

    def _make_item(self, ranges: Sequence[tuple[int, int, int]], view: NDArray[Any]) -> Item:
        key = make_key(list(ranges))
        if self._wanted.write:
            return prepare_write(self._array, key, view)
        return prepare_read(self._array, key, view)

    def _stage(self, ranges: Any, view: NDArray[Any], cast: _Cast) -> Item:
        dtype = self._array.dtype
        nbytes = view.size * dtype.itemsize
        stage = cast.buffer[self._at : self._at + nbytes].view(dtype).reshape(view.shape)
        self._at += nbytes
        if self._wanted.write:
            np.copyto(stage, view, casting="unsafe")
        else:
            cast.ready.append((stage, view))
        return self._make_item(ranges, stage)

    def _take_over(self) -> None:
        """For a read: cast the elements that the previous pass read."""
        assert self._cast is not None
        ready, self._cast.ready = self._cast.ready, []
        for stage, view in ready:
            np.copyto(view, stage, casting="unsafe")

    def _finish_cast(self) -> None:
        self._ranks.run_on_all(lambda: None if self._wanted.write else self._take_over())
