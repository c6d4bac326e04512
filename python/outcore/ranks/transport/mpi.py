"""
Messages through MPI; the only module that imports mpi4py.

A communicator is duplicated once, so that messages of outcore cannot be confused with those of its
owner. All communication is by point-to-point messages on the duplicate (`wire.py`), so split groups need
no communicators. No call blocks inside MPI: operations are started and tested, with sleeps in between.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.ending import watch_end
from outcore.ranks.transport.group import GroupTransport, make_group
from outcore.ranks.transport.nodememory import MappedMemory, get_node_id
from outcore.ranks.transport.place import make_place
from outcore.ranks.transport.protocol import Bytes
from outcore.ranks.transport.serial import SerialTransport
from outcore.ranks.transport.timeouts import DeferredInterrupt, Patience

__all__ = ["get_comm_world", "get_transport"]

# Buffers of abandoned messages, which MPI may still use.
_ABANDONED: list[Any] = []
# Attribute key under which a communicator stores its transport.
_KEYVAL: list[int] = []


def get_comm_world() -> Any:
    """Return the communicator of all ranks."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def get_transport(comm: Any, patience: Patience) -> GroupTransport | SerialTransport:
    """Return the transport of an mpi4py communicator; the first call is collective over it."""
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise UsageError(
            f"{comm!r} is not an intracommunicator of mpi4py; pass one to make a transport",
            code="bad-communicator",
        )
    if not _KEYVAL:
        _KEYVAL.append(MPI.Comm.Create_keyval())
    known = comm.Get_attr(_KEYVAL[0])
    if known is not None and not known.closed:
        return known  # type: ignore[no-any-return]
    made: GroupTransport | SerialTransport
    if comm.Get_size() == 1:
        made = SerialTransport()
    else:
        with DeferredInterrupt():
            made = _make_transport(MPI, comm, patience)
    comm.Set_attr(_KEYVAL[0], made)
    return made


def _make_transport(MPI: Any, comm: Any, patience: Patience) -> GroupTransport:
    own, request = comm.Idup()
    _nap_until(request)
    own.Set_errhandler(MPI.ERRORS_RETURN)
    boot = Boot(MPI, own)
    node = get_node_id()
    pretended = os.environ.get("OUTCORE_RANKS_PER_NODE", "")
    if pretended:
        # For tests: ranks of one machine that act as if they shared no memory.
        count = int(pretended) if re.fullmatch(r"[0-9]+", pretended) else 0
        if count < 1:
            raise UsageError(
                f"OUTCORE_RANKS_PER_NODE={pretended!r} is not a positive integer; set it to 1 or more, "
                "or unset it",
                code="bad-hint",
            )
        node += f":{own.Get_rank() // count}"
    nodes = boot.allgather_bytes(node.encode())
    place = make_place(own.Get_rank(), range(own.Get_size()), nodes, 0)
    wire = MpiWire(MPI, own)
    group = make_group(boot, place, wire, MappedMemory(), patience)
    assert isinstance(group, GroupTransport)
    watch_end(wire)
    return group


def _nap_until(request: Any) -> None:
    nap = 10e-6
    while not request.Test():
        time.sleep(nap)
        nap = min(nap * 1.5, 1e-3)


class Boot:
    """Operations that the ranks need to make their first group."""

    def __init__(self, MPI: Any, comm: Any) -> None:
        self._MPI = MPI
        self._comm = comm

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gather records of all ranks."""
        table = np.empty((self._comm.Get_size(), record.size), np.int64)
        _nap_until(self._comm.Iallgather(record, table))
        return table

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Gather bytes of all ranks."""
        lengths = self.allgather(np.array([len(blob)], np.int64))[:, 0]
        longest = max(8, int(lengths.max() + 7) // 8 * 8)
        table = self.allgather(np.frombuffer(blob.ljust(longest, b"\0"), np.int64).copy())
        return [row.tobytes()[:n] for row, n in zip(table, lengths.tolist(), strict=True)]

    def agree(self, code: int) -> int:
        """Return the largest code of any rank."""
        return int(self.allgather(np.array([code], np.int64)).max())


class MpiWire:
    """Messages on a duplicated communicator."""

    def __init__(self, MPI: Any, comm: Any) -> None:
        self.context = 0
        self.groups: list[Any] = []
        self.threads = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._MPI = MPI
        self._comm = comm
        self._end: Any = None

    # The end of the program

    def begin_end(self) -> bool:
        """Announce that this rank has reached its end; return False if no rank needs to know."""
        if self._MPI.Is_finalized() or not self.groups or any(one.stopped for one in self.groups):
            return False
        self._end = self._comm.Ibarrier()
        return True

    def have_all_ended(self) -> bool:
        """Return whether all ranks have announced their end."""
        return bool(self._end.Test())

    def list_waiting_ranks(self) -> tuple[int, ...]:
        """Return the ranks that wait for this one in a call that it has not made."""
        for group in self.groups:
            if waiting := group.list_waiting_ranks():
                return tuple(group.place.processes[rank] for rank in waiting)
            tag = group.far_tag
            status = self._MPI.Status()
            if tag is not None and self._comm.Iprobe(self._MPI.ANY_SOURCE, tag, status):
                return (status.Get_source(),)
        return ()

    def abort(self) -> None:
        """End all ranks of the job."""
        self._comm.Abort(1)

    # Messages

    def send(self, peer: int, tag: int, data: Bytes) -> MpiRequest:
        """Start to send."""
        request = self._comm.Isend([data, self._MPI.BYTE], peer, tag)
        return MpiRequest(self._MPI, request, data, peer, False)

    def receive(self, peer: int, tag: int, room: Bytes) -> MpiRequest:
        """Start to receive."""
        request = self._comm.Irecv([room, self._MPI.BYTE], peer, tag)
        return MpiRequest(self._MPI, request, room, peer, True)

    def take(self, tag: int) -> bytes | None:
        """Return a message with this tag; None if there is none."""
        status = self._MPI.Status()
        # Matched probe: otherwise two threads may see one message, and one would wait for it forever.
        message = self._comm.Improbe(self._MPI.ANY_SOURCE, tag, status)
        if message is None:
            return None
        room = np.empty(status.Get_count(self._MPI.BYTE), np.uint8)
        message.Recv([room, self._MPI.BYTE])
        return room.tobytes()

    def close(self) -> None:
        """Free the communicator, unless a message of it was abandoned."""
        if not _ABANDONED and not self._MPI.Is_finalized():
            self._comm.Free()


class MpiRequest:
    """A message that MPI transfers."""

    def __init__(self, MPI: Any, request: Any, data: Bytes, peer: int, receives: bool) -> None:
        self._MPI = MPI
        self._request = request
        self._data = data
        self._peer = peer
        self._receives = receives
        self._status = MPI.Status()
        self._done = False

    def done(self) -> bool:
        """Return whether the message has arrived, or its buffer may be used again."""
        if not self._done:
            try:
                self._done = self._request.Test(self._status)
            except self._MPI.Exception as error:
                self._done = True
                raise CollectiveError(
                    f"a message from or to process {self._peer} failed: {error}; make the same call on "
                    "every rank, otherwise see the messages of MPI",
                    code="rank-failed",
                    ranks=(self._peer,),
                ) from error
        return self._done

    def count(self) -> int:
        """Return the number of bytes that arrived."""
        return int(self._status.Get_count(self._MPI.BYTE))

    def abandon(self) -> None:
        """Stop waiting for the message."""
        if not self._done:
            if self._receives:
                self._request.Cancel()
            _ABANDONED.append((self._request, self._data))
