"""
Memory that the ranks of one node share: one segment, in which each rank has its pages.

Slots: where the owners of a collective keep the tile of a round, for the ranks of their node to
see. Each rank of a node has three: while the others copy out of one it reads into the next two, so
that the disk has always something to do. Where memory is short it has two. They are kept from one
collective to the next: new shared memory costs about a millisecond a MiB on the machines this was
measured on, more than reading it from a disk. Between collectives they are reclaimable: they stay
within the budget, but whatever needs the memory gets it.
"""

from __future__ import annotations

import mmap
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.checks import ranges
from outcore.ranks.transport.place import SHARED
from outcore.ranks.transport.protocol import Bytes, Shared, Transport

if TYPE_CHECKING:
    from outcore.ranks.transport.group import Group

__all__ = ["GroupShared", "Slots", "share", "share_alone", "slots_of", "unpin_slots"]

_NAME = 64
# What is as large begins at a multiple of this, so that the system may use huge pages.
_HUGE = 2 << 20
# Slots that have to be filled before huge pages are worth it: putting one together takes about as long
# as copying it (more where the system looks for huge pages first), and to fill it 10 to 40 % less then.
_MANY = 8


class GroupShared:
    """Memory of the ranks of one node."""

    def __init__(
        self, here: tuple[int, ...], rank: int, parts: list[Bytes], held: _core.Reservation | None
    ) -> None:
        self._parts: dict[int, Bytes] | None = dict(zip(here, parts, strict=True))
        self._rank = rank
        self._held = held

    @property
    def mine(self) -> Bytes:
        """The part of this rank."""
        return self.of(self._rank)

    def of(self, rank: int) -> Bytes:
        """The part of a rank of this node."""
        if self._parts is None:
            raise UsageError("this shared memory was closed", code="closed")
        part = self._parts.get(rank)
        if part is None:
            raise UsageError(
                f"rank {rank} shares no memory with rank {self._rank}; this node has"
                f" {ranges(tuple(self._parts))}. Send a message, or ask Transport.nodes first",
                code="not-on-node",
            )
        return part

    def unpin(self) -> None:
        """Let the part of this rank give way to whatever needs the room."""
        if self._held is not None:
            self._held.unpin()

    def pin(self) -> bool:
        """Hold it again; tells whether what was in it is still there."""
        return self._held is None or self._held.pin()

    def gather(self) -> None:
        """Have the part of this rank in huge pages, where the system does that."""
        if self._held is not None:
            self._held.gather()

    def close(self) -> None:
        """Release the memory."""
        self._parts = None
        if self._held is not None:
            self._held.release()
            self._held = None


def share_alone(nbytes: int) -> GroupShared:
    """Make what `share` makes, of a process on its own: pages that nobody else sees."""
    held = _reserve(nbytes)
    try:
        pages = np.frombuffer(_core.SharedMemory(nbytes).bytes(), np.uint8)
        if nbytes:
            held.of_pages(pages)
    except BaseException:
        held.release()
        raise
    return GroupShared((0,), 0, [pages], held)


def _reserve(nbytes: int) -> _core.Reservation:
    """Count memory that will be shared in the budget."""
    if nbytes < 0:
        raise UsageError(f"shared({nbytes}): bytes are counted from 0", code="bad-record")
    return _core.Reservation("shared", nbytes)


def share(group: Group, nbytes: int) -> GroupShared:
    """Make shared memory, or raise on all ranks of the node."""
    here, mine = group.place.here, group.place.here.index(group.rank)
    held: _core.Reservation | None = None
    failure: Exception | None = None
    name = b""
    try:
        held = _reserve(nbytes)
    except Exception as error:
        failure = error
    try:
        said = np.array([failure is not None, max(nbytes, 0)], np.int64)
        table = np.frombuffer(group.gather_here(SHARED, said.tobytes()), np.int64).reshape(-1, 2)
        _raise_failed(group, table[:, 0], failure)
        lengths = [int(n) for n in table[:, 1]]
        unit = _HUGE if max(lengths) >= _HUGE else mmap.PAGESIZE
        starts = [0]
        for length in lengths:
            starts.append(-(-(starts[-1] + length) // unit) * unit)
        if not starts[-1]:
            return GroupShared(here, group.rank, [np.empty(0, np.uint8) for _ in here], held)

        if mine == 0:
            try:
                name = group.memory.make(starts[-1]).encode()
            except Exception as error:
                failure = error
        names = bytes(group.gather_here(SHARED, name.ljust(_NAME, b"\0")))
        given = names[:_NAME].rstrip(b"\0").decode()
        whole: Bytes | None = None
        try:
            if given:
                room = -(-lengths[mine] // mmap.PAGESIZE) * mmap.PAGESIZE
                whole = group.memory.map(given, starts[-1], starts[mine], room)
        except Exception as error:
            failure = error
        said = np.array([whole is None], np.int64)
        table = np.frombuffer(group.gather_here(SHARED, said.tobytes()), np.int64)
        _raise_failed(group, table if given else np.eye(1, len(here), dtype=np.int64)[0], failure)
        assert whole is not None
        parts = [whole[at : at + length] for at, length in zip(starts, lengths, strict=False)]
        if nbytes and held is not None:
            held.of_pages(parts[mine])
        return GroupShared(here, group.rank, parts, held)
    except BaseException:
        if held is not None:
            held.release()
        raise
    finally:
        if name:
            group.memory.unlink(name.decode())


def _raise_failed(group: Group, bad: NDArray[np.int64], failure: Exception | None) -> None:
    """Raise if any rank failed: its own error where there is one."""
    ranks = tuple(rank for rank, failed in zip(group.place.here, bad, strict=True) if failed)
    if failure is not None:
        raise failure
    if ranks:
        raise CollectiveError(
            f"shared memory could not be made: {ranges(ranks)} had no room for it; what was missing"
            " is told there",
            code="rank-failed",
            ranks=ranks,
        )


class Slots:
    """Slots for each rank of a node, by turns."""

    def __init__(self, transport: Transport, nbytes: int, number: int) -> None:
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.number = number
        self.rank = transport.rank
        self._shared: Shared = transport.shared(number * self.nbytes)
        # Bytes that these pages took, and whether they were put together to huge ones.
        self._filled = 0
        self._gathered = False
        # A rank that failed since may not have them.
        self.mishaps = transport.mishaps

    def fit(self, room: int) -> bool:
        """Tell whether all slots of a rank fit so many bytes."""
        return self.number * self.nbytes <= room

    def of(self, rank: int, turn: int) -> NDArray[np.uint8]:
        """The slot of a rank of this node in a turn."""
        low = (turn % self.number) * self.nbytes
        return self._shared.of(rank)[low : low + self.nbytes]

    def mine(self, turn: int) -> NDArray[np.uint8]:
        """The slot of this rank in a turn."""
        return self.of(self.rank, turn)

    def unpin(self) -> None:
        """Let those of this rank give way."""
        self._shared.unpin()

    def pin(self) -> None:
        """Hold those of this rank again."""
        if not self._shared.pin():
            self._filled, self._gathered = 0, False

    def use(self, filled: int) -> None:
        """Count the bytes of a slot's turns; have huge pages from the time on when they are enough."""
        self._filled += filled
        if self._filled >= _MANY * self.nbytes and not self._gathered:
            self._gathered = True
            self._shared.gather()

    def close(self) -> None:
        """Release them."""
        self._shared.close()


_kept: weakref.WeakKeyDictionary[Any, Slots] = weakref.WeakKeyDictionary()


def slots_of(transport: Transport, nbytes: int, number: int, room: int, filled: int = 0) -> Slots:
    """
    At least so many slots of at least so many bytes: those that are kept, or new ones. Collective.

    All ranks ask for the same, so all keep the same, unless one of them failed. Those that are kept may
    be larger, if all of them fit the `room` that every rank has. About so many bytes will be `filled` in
    those of an owner.
    """
    kept = _kept.get(transport)
    whole = kept is not None and kept.mishaps == transport.mishaps
    if (
        kept is not None
        and whole
        and kept.nbytes >= nbytes
        and kept.number >= number
        and kept.fit(room)
    ):
        kept.pin()
        kept.use(filled)
        return kept
    if kept is not None:
        del _kept[transport]
        kept.close()
    slots = Slots(transport, nbytes, number)
    _kept[transport] = slots
    slots.use(filled)
    return slots


def unpin_slots(transport: Transport) -> None:
    """Let the slots that are kept give way until the next collective: no rank looks at them any more."""
    kept = _kept.get(transport)
    if kept is not None:
        kept.unpin()
