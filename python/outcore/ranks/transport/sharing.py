"""
Memory that the ranks of one node share: one segment, in which each rank has separate pages.

In a collective call, owners keep the tile of a round in slots, where the ranks of their node see it.
Each rank of a node has three slots: while the others copy from one, it reads into the next two, so the
disk is always busy. If memory is short, it has two. Slots are cached from one collective call to the
next, because new shared memory costs about 1 ms per MiB on the machines where this was measured, more
than reading it from a disk. Between calls slots are reclaimable: they count in the budget, but any other
request for memory can take them.
"""

from __future__ import annotations

import mmap
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.checks import format_ranks
from outcore.ranks.transport.place import SHARED
from outcore.ranks.transport.protocol import Bytes, Shared, Transport

if TYPE_CHECKING:
    from outcore.ranks.transport.group import GroupTransport

__all__ = ["GroupShared", "Slots", "get_slots", "share", "share_alone", "unpin_slots"]

_NAME = 64
# Parts of at least this size are aligned to it, so that the system can use huge pages.
_HUGE = 2 << 20
# Number of slots to fill before huge pages pay off. Making one takes about as long as copying it (more
# if the system searches for huge pages first); filling it then takes 10 to 40 % less time.
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
        """Part of this rank."""
        return self.of(self._rank)

    def of(self, rank: int) -> Bytes:
        """Return the part of a rank of this node."""
        if self._parts is None:
            raise UsageError("this shared memory is closed; make a new one", code="closed")
        part = self._parts.get(rank)
        if part is None:
            raise UsageError(
                f"rank {rank} does not share memory with rank {self._rank}, whose node has "
                f"{format_ranks(tuple(self._parts))}; send a message, or check Transport.nodes first",
                code="not-on-node",
            )
        return part

    def unpin(self) -> None:
        """Make the part of this rank reclaimable."""
        if self._held is not None:
            self._held.unpin()

    def pin(self) -> bool:
        """Reserve it again; return whether its contents still exist."""
        return self._held is None or self._held.pin()

    def gather(self) -> None:
        """Move the part of this rank to huge pages, if the operating system supports that."""
        if self._held is not None:
            self._held.gather()

    def close(self) -> None:
        """Release the memory."""
        self._parts = None
        if self._held is not None:
            self._held.release()
            self._held = None


def share_alone(nbytes: int) -> GroupShared:
    """Make the equivalent of `share` for a single process: private pages."""
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
    """Reserve memory of the budget for sharing."""
    if nbytes < 0:
        raise UsageError(
            f"shared({nbytes}) has a negative size; pass at least 0 bytes", code="bad-record"
        )
    return _core.Reservation("shared", nbytes)


def share(group: GroupTransport, nbytes: int) -> GroupShared:
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


def _raise_failed(group: GroupTransport, bad: NDArray[np.int64], failure: Exception | None) -> None:
    """Raise if any rank failed; a rank with its own error raises that one."""
    ranks = tuple(rank for rank, failed in zip(group.place.here, bad, strict=True) if failed)
    if failure is not None:
        raise failure
    if ranks:
        raise CollectiveError(
            f"shared memory could not be made, because {format_ranks(ranks)} had too little memory; see "
            "the error there",
            code="rank-failed",
            ranks=ranks,
        )


class Slots:
    """Slots for each rank of a node, used one after another."""

    def __init__(self, transport: Transport, nbytes: int, number: int) -> None:
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.number = number
        self.rank = transport.rank
        self._shared: Shared = transport.shared(number * self.nbytes)
        # Bytes that were read into these pages, and whether they were moved to huge pages.
        self._filled = 0
        self._gathered = False
        # A rank that has failed since then may not have them.
        self.abort_count = transport.abort_count

    def has_room(self, room: int) -> bool:
        """Return whether all slots of a rank fit in `room` bytes."""
        return self.number * self.nbytes <= room

    def of(self, rank: int, turn: int) -> NDArray[np.uint8]:
        """Return the slot of a rank of this node for a turn."""
        low = (turn % self.number) * self.nbytes
        return self._shared.of(rank)[low : low + self.nbytes]

    def mine(self, turn: int) -> NDArray[np.uint8]:
        """Return the slot of this rank for a turn."""
        return self.of(self.rank, turn)

    def unpin(self) -> None:
        """Make the slots of this rank reclaimable."""
        self._shared.unpin()

    def pin(self) -> None:
        """Reserve the slots of this rank again."""
        if not self._shared.pin():
            self._filled, self._gathered = 0, False

    def use(self, filled: int) -> None:
        """Count the bytes that the slots take; move them to huge pages when there are enough."""
        self._filled += filled
        if self._filled >= _MANY * self.nbytes and not self._gathered:
            self._gathered = True
            self._shared.gather()

    def close(self) -> None:
        """Release the slots."""
        self._shared.close()


_kept: weakref.WeakKeyDictionary[Any, Slots] = weakref.WeakKeyDictionary()


def get_slots(transport: Transport, nbytes: int, number: int, room: int, filled: int = 0) -> Slots:
    """
    Return at least `number` slots of at least `nbytes` bytes, cached or new. Collective.

    All ranks give the same arguments, so all have the same cached slots, unless one of them failed.
    Cached slots may be larger if all of them fit the `room` that every rank has. An owner will fill
    about `filled` bytes of its slots.
    """
    kept = _kept.get(transport)
    whole = kept is not None and kept.abort_count == transport.abort_count
    if (
        kept is not None
        and whole
        and kept.nbytes >= nbytes
        and kept.number >= number
        and kept.has_room(room)
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
    """Make the cached slots reclaimable until the next collective call; no rank uses them any more."""
    kept = _kept.get(transport)
    if kept is not None:
        kept.unpin()
