"""
Requests between nodes, answered by a thread of the first rank of each node.

Problem. A rank needs elements in memory of another node, where no rank makes a call. MPI windows are
meant for this. However, without special hardware MPI moves their data only while the target is inside
MPI, their atomic operations do not cover processors that write the same memory directly, and their
flushes wait where the death of a rank is not noticed.

Approach. A request to another node is a message (`Wire`). The ranks of a node share its memory, so one
thread per node answers for all of them (the *data server* of Global Arrays' ARMCI). A request names a
subject, a number that has the same meaning on all ranks, and the registered handler of the subject
answers. Requests of one rank are answered in the order in which they were made. Answers that only
confirm an arrival (a put) are awaited later, with a limit on the bytes in progress.

Invariants. A call returns when its data has left the memory of the caller. Waits do not spin, check
whether the group was stopped, and end with it. Messages are pieces whose length counts in the memory
budgets of both sides.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import UnsupportedError, UsageError
from outcore.ranks.transport.failing import describe, rebuild_error
from outcore.ranks.transport.place import TAG_ANSWER, TAG_ASK
from outcore.ranks.transport.protocol import Bytes, Transport
from outcore.ranks.transport.timeouts import DeferredInterrupt
from outcore.ranks.transport.wire import Request, wait_for_all

if TYPE_CHECKING:
    from outcore.ranks.transport.group import GroupTransport

__all__ = ["PIECE", "Handler", "OneSidedService", "get_service"]

#: Maximum number of bytes of elements in one message, unless a single element is larger.
PIECE = 1 << 18
# Maximum number of requests in progress, each with at most `PIECE` bytes.
_DEPTH = 4
# Head of a request: subject, process and number of the sender, number of following words. Head of an
# answer: whether the request failed, number of bytes.
_HEAD, _ANSWER = 4, 2
# Bytes for the reason of a failed request.
_REASON = 4096
_NAP, _LONG_NAP = 10e-6, 1e-3

#: Handler of a request: takes its words and data, and returns bytes.
Handler = Callable[[NDArray[np.int64], Bytes], Bytes]
#: Function that processes an answer.
Then = Callable[[Bytes], None]
_NOTHING: Bytes = np.empty(0, np.uint8)
# Services end before MPI ends, because their threads call MPI.
_ALL: weakref.WeakSet[OneSidedService] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for service in list(_ALL):
        service.close()


def get_service(transport: Transport) -> OneSidedService | None:
    """
    Return the service of a group; None if all its ranks share memory.

    Raises ``needs-threads`` if the MPI library was started without threads.
    """
    place = getattr(transport, "place", None)
    if place is None or not place.far:
        return None
    group: GroupTransport = transport  # type: ignore[assignment]
    if not group.wire.threads:
        raise UnsupportedError(
            "one-sided access between nodes needs an MPI library that several threads may use "
            "(MPI_THREAD_MULTIPLE); set mpi4py.rc.thread_level, or use one node",
            code="needs-threads",
        )
    if group.service is None:
        group.service = OneSidedService(group)
    return group.service


class OneSidedService:
    """Requests of one rank to other nodes and, on the first rank of a node, the answers."""

    def __init__(self, group: GroupTransport) -> None:
        self._group = group
        # Weak references: an array without handles no longer answers.
        self._subjects: dict[int, weakref.WeakMethod[Handler] | None] = {}
        self._numbers = 0
        self._server: threading.Thread | None = None
        self._ends = False
        # State of this rank as a client.
        self._turn = threading.RLock()
        self._sending: list[tuple[int, Request]] = []
        self._awaited: deque[tuple[int, Request, Bytes, Then | None]] = deque()
        self._held: _core.Reservation | None = None
        self._room = 0
        self._failure: BaseException | None = None
        self._pid = os.getpid()
        _ALL.add(self)

    # -------------------------------------------------------------------------------- subjects

    @property
    def next(self) -> int:
        """A number that no subject of this rank has; ranks agree on the largest."""
        return self._numbers + 1

    def register(self, number: int, largest: int, handler: Handler) -> None:
        """
        Start to answer requests for the subject `number`: the largest `next` of any rank.

        `largest` is the number of bytes of the largest element. `handler`, called on the first rank of
        each node, is held by a weak reference. Raises `BudgetError` if the budget has no space for
        messages: `_DEPTH` pieces, and twice that on the first rank of a node.
        """
        with self._turn:
            room = _DEPTH * max(PIECE, largest) * (2 if self._group.place.leads else 1)
            if room > self._room:
                held = _core.Reservation("exchange", room)
                if self._held is not None:
                    self._held.release()
                self._held, self._room = held, room
            self._numbers = max(self._numbers, number)
            leads = self._group.place.leads
            self._subjects[number] = weakref.WeakMethod(handler) if leads else None
            if leads and self._server is None:
                # Not `Background`: the thread answers as long as there are subjects.
                self._server = threading.Thread(
                    target=self._serve, name="outcore-requests", daemon=True
                )
                self._server.start()

    def forget(self, number: int) -> None:
        """Stop answering requests for a subject; all ranks have agreed that none will follow."""
        with self._turn:
            self._subjects.pop(number, None)
            if not self._subjects:
                self._stop()

    def close(self) -> None:
        """Stop the service; ranks that still send requests get the error that this rank left."""
        if self._pid != os.getpid():
            return
        with self._turn:
            if any(subject is not None and subject() for subject in self._subjects.values()):
                with contextlib.suppress(Exception):
                    self._group.abort_group(
                        f"rank {self._group.rank} ended while arrays were shared between nodes; "
                        "call close_all of these arrays on all ranks first"
                    )
            self._subjects.clear()
            self._stop()

    def _stop(self) -> None:
        self._ends = True
        if self._server is not None and self._server is not threading.current_thread():
            self._server.join()
        self._server, self._ends = None, False
        if self._held is not None:
            self._held.release()
        self._held, self._room = None, 0

    # ---------------------------------------------------------------------------------- asking

    def ask(
        self,
        rank: int,
        number: int,
        words: list[int],
        data: Bytes = _NOTHING,
        room: int = 0,
        then: Then | None = None,
    ) -> None:
        """
        Send a request to the node of `rank`; `then` gets the answer, at the latest in `settle`.

        `data` are elements of the request, which are copied; `room` is the maximum number of bytes of
        the answer.
        """
        head = [number, self._group.place.processes[self._group.rank], self._group.rank, len(words)]
        message = np.empty(8 * (_HEAD + len(words)) + data.size, np.uint8)
        message[: message.size - data.size] = np.array(head + words, np.int64).view(np.uint8)
        message[message.size - data.size :] = data
        place = self._group.place
        leader = place.processes[place.leaders[place.nodes[rank]]]
        buffer = np.empty(8 * _ANSWER + max(room, _REASON), np.uint8)
        if self._pid != os.getpid():
            raise UsageError(
                "a distributed array was used in a child of the process that made it; use it in that "
                "process",
                code="closed",
            )
        with self._turn:
            self._await(_DEPTH - 1)
            wire = self._group.wire
            answer = wire.receive(leader, place.get_tag(TAG_ANSWER), buffer)
            self._awaited.append((rank, answer, buffer, then))
            self._sending.append((rank, wire.send(leader, place.get_tag(TAG_ASK), message)))

    def wait_until_sent(self) -> None:
        """Wait until all requests have left this rank; the others need nothing more from it."""
        with self._turn:
            self._settle(self._sending)
            self._sending = []

    def settle(self) -> None:
        """Wait for all answers; raise the first error that has not been raised yet."""
        with self._turn:
            self._await(0)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _await(self, most: int) -> None:
        """Wait until at most `most` requests are unanswered."""
        while len(self._awaited) > most:
            rank, request, buffer, then = self._awaited[0]
            self._settle([(rank, request)])
            self._awaited.popleft()
            failed, length = buffer[: 8 * _ANSWER].view(np.int64).tolist()
            body = buffer[8 * _ANSWER : 8 * _ANSWER + length]
            if failed:
                self._failure = self._failure or rebuild_error(body.tobytes(), rank)
            elif then is not None:
                then(body)
        self._sending = [one for one in self._sending if not one[1].done()]

    def _settle(self, pending: list[tuple[int, Request]]) -> None:
        # An abandoned answer would be mistaken for that of the next request.
        with DeferredInterrupt():
            try:
                wait_for_all(pending, self._group.watchdog.watch_exchange())
            except BaseException as error:
                self._group.watchdog.stop_on_error(error)
                raise

    # --------------------------------------------------------------------------------- answering

    def _serve(self) -> None:
        group = self._group
        ask, answer = group.place.get_tag(TAG_ASK), group.place.get_tag(TAG_ANSWER)
        sending: list[Request] = []
        nap = _NAP
        try:
            while not self._ends:
                sending = [one for one in sending if not one.done()]
                # Answers that are not received occupy memory, so their number is limited to what is
                # counted.
                message = group.wire.take(ask) if len(sending) < _DEPTH else None
                if message is None:
                    time.sleep(nap)
                    nap = min(nap * 1.2, _LONG_NAP)
                    continue
                nap = _NAP
                process, said = self._answer(np.frombuffer(message, np.uint8))
                sending.append(group.wire.send(process, answer, said))
            deadline = time.monotonic() + 1.0
            while sending and time.monotonic() < deadline:
                sending = [one for one in sending if not one.done()]
                time.sleep(_NAP)
        except BaseException as error:
            group.watchdog.stop_on_error(error)
        finally:
            for one in sending:
                if not one.done():
                    one.abandon()

    def _answer(self, message: Bytes) -> tuple[int, Bytes]:
        """Return the process that sent a request, and the answer."""
        number, process, _, count = message[: 8 * _HEAD].view(np.int64).tolist()
        end = 8 * (_HEAD + count)
        failed = 0
        try:
            subject = self._subjects.get(number)
            handler = None if subject is None else subject()
            if handler is None:
                raise UsageError(
                    "an array was closed while another rank used it; call close_all when all ranks have "
                    "finished with it",
                    code="closed",
                )
            body = handler(message[8 * _HEAD : end].view(np.int64), message[end:])
        except BaseException as error:
            failed = 1
            body = np.frombuffer(describe(error, "a one-sided access")[:_REASON], np.uint8)
        said = np.empty(8 * _ANSWER + body.size, np.uint8)
        said[: 8 * _ANSWER] = np.array([failed, body.size], np.int64).view(np.uint8)
        said[8 * _ANSWER :] = body
        return process, said
