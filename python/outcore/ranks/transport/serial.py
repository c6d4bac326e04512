"""A group of one rank, without messages."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import CollectiveError, UsageError
from outcore.ranks.transport.checks import check_counts, check_flat, check_length, check_record
from outcore.ranks.transport.in_flight import InFlight
from outcore.ranks.transport.sharing import GroupShared, share_alone

__all__ = ["SerialTransport"]


class SerialTransport:
    """
    Transport of a single process.

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
    abort_count = 0
    synchronised: int | None = None

    def __init__(self) -> None:
        self._closed = False
        self._failed: str | None = None
        self.in_flight = InFlight()
        self._shares: weakref.WeakSet[GroupShared] = weakref.WeakSet()

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return one row: a copy of the record."""
        self._check()
        return check_record(record)[None, :].copy()

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Return the blob."""
        self._check()
        return [bytes(blob)]

    def barrier(self) -> None:
        """Return immediately."""
        self._check()

    def agree(self, code: int) -> int:
        """Return the code."""
        self._check()
        return int(code)

    def start_exchange(
        self,
        send: Any,
        send_counts: Sequence[int] | NDArray[np.integer[Any]],
        recv: Any,
        recv_counts: Sequence[int] | NDArray[np.integer[Any]],
    ) -> SerialExchange:
        """Copy the bytes that this rank sends to itself."""
        self._check()
        source, target = check_flat(send, "send"), check_flat(recv, "recv", writable=True)
        to, of = (
            check_counts(send_counts, 1, source.size),
            check_counts(recv_counts, 1, target.size),
        )
        check_length(0, 0, int(to[0]), int(of[0]))
        target[: int(of[0])] = source[: int(to[0])]
        return SerialExchange()

    def shared(self, nbytes: int) -> GroupShared:
        """Allocate memory of this process, counted in its budget."""
        self._check()
        made = share_alone(nbytes)
        self._shares.add(made)
        return made

    def split(self, color: int, key: int) -> SerialTransport | None:
        """Return another group of one rank, or None."""
        self._check()
        return SerialTransport() if color >= 0 else None

    def abort_call(self, said: bytes) -> list[bytes]:
        """Return the reason."""
        self._check()
        return [said]

    def poll_while_waiting(self, rank: int, elapsed: float) -> bool:
        """Return False: another thread of this process holds the lock."""
        self._check()
        return False

    def abort_group(self, text: str) -> None:
        """Make every later call raise."""
        self._failed = text

    def close(self) -> None:
        """Release the memory shared in the group; no call is possible afterwards."""
        self.in_flight.finish(self)
        self._closed = True
        for made in list(self._shares):
            made.close()

    @property
    def closed(self) -> bool:
        """True if the transport is closed."""
        return self._closed

    def _check(self) -> None:
        if self._closed:
            raise UsageError("this transport is closed; make a new one", code="closed")
        if self._failed is not None:
            raise CollectiveError(self._failed, code="rank-failed", ranks=(0,))
        if self.in_flight.last is not None:
            self.in_flight.finish(self)


class SerialExchange:
    """An exchange that is complete from the start."""

    def test(self) -> bool:
        """Return True."""
        return True

    def wait(self) -> None:
        """Return immediately."""
