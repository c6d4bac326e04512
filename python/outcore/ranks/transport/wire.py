"""
Messages between ranks, and waiting for them.

A `Wire` only sends and receives bytes, by process number and tag: through MPI, or through a dictionary
of mailboxes in tests. All collective steps between nodes are built on it. A group therefore needs no
separate communicator, and a wait knows which processes it waits for. Messages from one process to
another with the same tag arrive in the order in which they were sent.

Waits do not spin: after a few checks that let other threads run, they sleep for 10 us, growing to 1 ms.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Protocol

import numpy as np

from outcore.ranks.transport.protocol import Bytes

__all__ = ["Pending", "Request", "WaitMonitor", "Wire", "gather_blocks", "wait_for_all"]

_EAGER_LOOKS = 4
_NAP, _LONG_NAP = 10e-6, 1e-3
# Up to this number of nodes, every leader sends to every other: one step, and missing nodes are known.
_DIRECT = 16
_FRAME = struct.Struct("<II")


class Request(Protocol):
    """Interface: a message in progress."""

    def done(self) -> bool:
        """Return whether the message has arrived, or its buffer may be used again."""

    def count(self) -> int:
        """Return the number of bytes that arrived."""

    def abandon(self) -> None:
        """Stop waiting for the message; its buffer stays allocated."""


class Wire(Protocol):
    """Interface: point-to-point messages of one process."""

    context: int
    """Number of the last group."""
    groups: list[Any]
    """Groups that use this wire."""
    threads: bool
    """Whether several threads may use it concurrently."""

    def send(self, peer: int, tag: int, data: Bytes) -> Request:
        """Start to send."""

    def receive(self, peer: int, tag: int, room: Bytes) -> Request:
        """Start to receive at most ``len(room)`` bytes."""

    def take(self, tag: int) -> bytes | None:
        """Return a message with this tag from any process; None if there is none."""

    def close(self) -> None:
        """Close the wire, after the last group has stopped using it."""


# Rank or node that is waited for, and the message.
Pending = tuple[int, Request]


class WaitMonitor(Protocol):
    """Interface: checks during a wait."""

    @property
    def tick(self) -> float:
        """Seconds between two calls of `check_wait`."""

    def check_stopped(self) -> None:
        """Raise if the group was stopped."""

    def check_wait(self, elapsed: float, pending: list[Pending]) -> None:
        """Warn, or raise to end the wait."""


def wait_for_all(pending: list[Pending], look: WaitMonitor) -> None:
    """Wait for all messages."""
    began = time.monotonic()
    looks, nap, tick = 0, _NAP, look.tick
    following = tick
    try:
        while True:
            pending = [each for each in pending if not each[1].done()]
            if not pending:
                return
            look.check_stopped()
            elapsed = time.monotonic() - began
            if elapsed >= following:
                following = elapsed + tick
                look.check_wait(elapsed, pending)
            looks += 1
            if looks <= _EAGER_LOOKS:
                os.sched_yield()
            else:
                time.sleep(nap)
                nap = min(nap * 1.5, _LONG_NAP)
    except BaseException:
        for _, request in pending:
            request.abandon()
        raise


def gather_blocks(
    wire: Wire,
    tag: int,
    leaders: list[int],
    me: int,
    block: bytes,
    room: int,
    look: WaitMonitor,
) -> list[bytes]:
    """
    Return the blocks of all nodes; called by the first rank of each node.

    ``leaders`` are process numbers by node, ``me`` is this node, ``room`` the longest block. `look` gets
    the nodes from which this one receives directly.
    """
    count = len(leaders)
    if count <= _DIRECT:
        return _gather_direct(wire, tag, leaders, me, block, room, look)
    # Bruck: after step k each node has the blocks of 2^k nodes, its own and the following ones.
    have = {me: block}
    reach = 1
    while reach < count:
        step = min(reach, count - reach)
        mine = [(me + k) % count for k in range(step)]
        frames = b"".join(_FRAME.pack(n, len(have[n])) + have[n] for n in mine)
        source = (me + reach) % count
        buffer = np.empty(step * (room + _FRAME.size), np.uint8)
        incoming = {source: buffer}
        outgoing = {(me - reach) % count: np.frombuffer(frames, np.uint8)}
        started = _start(wire, tag, leaders, incoming, outgoing)
        wait_for_all(started, look)
        text, at = buffer[: started[0][1].count()].tobytes(), 0
        while at < len(text):
            node, length = _FRAME.unpack_from(text, at)
            at += _FRAME.size + length
            have[node] = text[at - length : at]
        reach += step
    return [have[node] for node in range(count)]


def _start(
    wire: Wire,
    tag: int,
    leaders: list[int],
    incoming: dict[int, Bytes],
    outgoing: dict[int, Bytes],
) -> list[Pending]:
    """Start to receive, then to send; on failure, started messages keep their buffers."""
    started: list[Pending] = []
    try:
        for node, room in incoming.items():
            started.append((node, wire.receive(leaders[node], tag, room)))
        for node, data in outgoing.items():
            started.append((node, wire.send(leaders[node], tag, data)))
    except BaseException:
        for _, request in started:
            request.abandon()
        raise
    return started


def _gather_direct(
    wire: Wire,
    tag: int,
    leaders: list[int],
    me: int,
    block: bytes,
    room: int,
    look: WaitMonitor,
) -> list[bytes]:
    others = [(me + k) % len(leaders) for k in range(1, len(leaders))]
    buffers = {node: np.empty(room, np.uint8) for node in others}
    data = np.frombuffer(block, np.uint8)
    started = _start(wire, tag, leaders, buffers, dict.fromkeys(others, data))
    wait_for_all(started, look)
    incoming = dict(started[: len(others)])
    heard = {node: buffers[node][: incoming[node].count()].tobytes() for node in others}
    heard[me] = block
    return [heard[node] for node in range(len(leaders))]
