"""A group of one: nothing travels."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.checks import counted, flat, of_length, record_of
from outcore.ranks.transport.in_flight import InFlight
from outcore.ranks.transport.sharing import GroupShared, share_alone

__all__ = ["SerialTransport"]


class SerialTransport:
    """
    The transport of a process on its own.

    Examples
    --------
    >>> from outcore.ranks.transport import transport
    >>> alone = transport(None)
    >>> alone.size, alone.agree(7)
    (1, 7)
    """

    rank = 0
    size = 1
    nodes: tuple[int, ...] = (0,)
    mishaps = 0
    synchronised: int | None = None

    def __init__(self) -> None:
        self._closed = False
        self._failed: str | None = None
        self.in_flight = InFlight()
        self._shares: weakref.WeakSet[GroupShared] = weakref.WeakSet()

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """One row: the record itself, copied."""
        self._check()
        return record_of(record)[None, :].copy()

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Give the blob back."""
        self._check()
        return [bytes(blob)]

    def barrier(self) -> None:
        """Return at once."""
        self._check()

    def agree(self, code: int) -> int:
        """Give the code back."""
        self._check()
        return int(code)

    def start_exchange(
        self,
        send: Any,
        send_counts: Sequence[int] | NDArray[np.integer[Any]],
        recv: Any,
        recv_counts: Sequence[int] | NDArray[np.integer[Any]],
    ) -> SerialExchange:
        """Copy what this rank sends to itself."""
        self._check()
        source, target = flat(send, "send"), flat(recv, "recv", writable=True)
        to, of = counted(send_counts, 1, source.size), counted(recv_counts, 1, target.size)
        of_length(0, 0, int(to[0]), int(of[0]))
        target[: int(of[0])] = source[: int(to[0])]
        return SerialExchange()

    def shared(self, nbytes: int) -> GroupShared:
        """Memory of this process, counted in its budget."""
        self._check()
        made = share_alone(nbytes)
        self._shares.add(made)
        return made

    def split(self, color: int, key: int) -> SerialTransport | None:
        """Another group of one, or None."""
        self._check()
        return SerialTransport() if color >= 0 else None

    def call_off(self, said: bytes) -> list[bytes]:
        """Give back what was said."""
        self._check()
        return [said]

    def waits_for(self, rank: int, elapsed: float) -> bool:
        """Never: another thread of this process has the lock."""
        self._check()
        return False

    def give_up(self, text: str) -> None:
        """Every call raises from now on."""
        self._failed = text

    def close(self) -> None:
        """Nothing can be called any more; releases the memory shared in it."""
        self.in_flight.finish(self)
        self._closed = True
        for made in list(self._shares):
            made.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _check(self) -> None:
        if self._closed:
            raise UsageError("this transport was closed; make a new one", code="closed")
        if self._failed is not None:
            raise CollectiveError(self._failed, code="rank-failed", ranks=(0,))
        if self.in_flight.last is not None:
            self.in_flight.finish(self)


class SerialExchange:
    """Complete from the start."""

    def test(self) -> bool:
        """Always true."""
        return True

    def wait(self) -> None:
        """Return at once."""
