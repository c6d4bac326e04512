"""
Messages between ranks, and how they are waited for.

A `Wire` sends and receives bytes by number of process and tag, nothing more: MPI, or a dictionary of
mailboxes in tests. Everything collective between nodes is made of that, so a group needs no
communicator of its own, and a wait knows whom it waits for. Messages from one process to another
with one tag arrive in the order in which they were sent.

Waiting never spins: a few looks that let others run, then naps of 10 us that grow to 1 ms.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Protocol

import numpy as np

from outcore.ranks.transport.protocol import Bytes

__all__ = ["Look", "Pending", "Request", "Wire", "gather_blocks", "settle"]

_EAGER_LOOKS = 4
_NAP, _LONG_NAP = 10e-6, 1e-3
# Up to so many nodes every leader writes to every other: one step, and it is known who is missing.
_DIRECT = 16
_FRAME = struct.Struct("<II")


class Request(Protocol):
    """A message on its way."""

    def done(self) -> bool:
        """Whether it has arrived, or its buffer may be used again."""
        ...

    def count(self) -> int:
        """Bytes that arrived."""
        ...

    def abandon(self) -> None:
        """Nobody waits any more; buffers stay alive."""
        ...


class Wire(Protocol):
    """Point-to-point messages of one process."""

    context: int
    """Number of the last group that was made."""
    groups: list[Any]
    """Groups that use this wire."""
    threads: bool
    """Whether several threads may use it at once."""

    def send(self, peer: int, tag: int, data: Bytes) -> Request:
        """Start sending."""
        ...

    def receive(self, peer: int, tag: int, room: Bytes) -> Request:
        """Start receiving at most ``len(room)`` bytes."""
        ...

    def take(self, tag: int) -> bytes | None:
        """Tell a message with this tag, from anybody, if there is one."""
        ...

    def close(self) -> None:
        """No group uses it any more."""
        ...


# Whom we wait for (a rank or a node), and the message.
Pending = tuple[int, Request]


class Look(Protocol):
    """What a wait looks at."""

    @property
    def tick(self) -> float:
        """Seconds between two calls of `slowly`."""
        ...

    def quickly(self) -> None:
        """Raise if the group was stopped."""
        ...

    def slowly(self, elapsed: float, pending: list[Pending]) -> None:
        """Warn, or raise to end the wait."""
        ...


def settle(pending: list[Pending], look: Look) -> None:
    """Wait for all."""
    began = time.monotonic()
    looks, nap, tick = 0, _NAP, look.tick
    following = tick
    try:
        while True:
            pending = [each for each in pending if not each[1].done()]
            if not pending:
                return
            look.quickly()
            elapsed = time.monotonic() - began
            if elapsed >= following:
                following = elapsed + tick
                look.slowly(elapsed, pending)
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
    look: Look,
) -> list[bytes]:
    """
    Tell the blocks of all nodes; called by the first rank of each.

    ``leaders`` are numbers of processes by node, ``me`` is our node, ``room`` the longest block. `look`
    is told the nodes that we hear from directly.
    """
    count = len(leaders)
    if count <= _DIRECT:
        return _direct(wire, tag, leaders, me, block, room, look)
    # Bruck: after step k everybody has the blocks of 2^k nodes, its own and those that follow.
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
        settle(started, look)
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
    """Start to receive and then to send; if that fails, what was started keeps its buffers."""
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


def _direct(
    wire: Wire,
    tag: int,
    leaders: list[int],
    me: int,
    block: bytes,
    room: int,
    look: Look,
) -> list[bytes]:
    others = [(me + k) % len(leaders) for k in range(1, len(leaders))]
    buffers = {node: np.empty(room, np.uint8) for node in others}
    data = np.frombuffer(block, np.uint8)
    started = _start(wire, tag, leaders, buffers, dict.fromkeys(others, data))
    settle(started, look)
    incoming = dict(started[: len(others)])
    heard = {node: buffers[node][: incoming[node].count()].tobytes() for node in others}
    heard[me] = block
    return [heard[node] for node in range(len(leaders))]
