"""
What a transport is: the words that everything above it speaks.

A method of `Transport` is called by all ranks of the group, in the same order. Only int64 records
and bytes travel; nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Exchange", "Shared", "Transport"]

Bytes = NDArray[np.uint8]


class Exchange(Protocol):
    """A started exchange; its buffers are not the caller's until `wait` returns."""

    def test(self) -> bool:
        """Whether it is complete. Asking moves messages on; it never waits."""
        ...

    def wait(self) -> None:
        """Wait until everything has been sent and received."""
        ...


class Shared(Protocol):
    """Memory that the ranks of one node share: each has a part of its own."""

    @property
    def mine(self) -> Bytes:
        """The part of this rank, on pages of its own, zeros at first."""
        ...

    def of(self, rank: int) -> Bytes:
        """The part of another rank of the same node."""
        ...

    def lend(self) -> None:
        """
        Let the part of this rank give way: within the budget, but nobody is refused for it.

        What is in it may be gone afterwards. Nobody may use it until `take_back`.
        """
        ...

    def take_back(self) -> bool:
        """
        Hold the part of this rank again; raises where the budget has no room for it now.

        Tells whether what was in it is still there: if not, these are other pages.
        """
        ...

    def gather(self) -> None:
        """Have the part of this rank in huge pages, where the system does that."""
        ...

    def close(self) -> None:
        """Let go; the memory goes when all ranks have, and nothing refers to it any more."""
        ...


class Transport(Protocol):
    """Moves bytes between the ranks of one group. Nothing else."""

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of ranks."""
        ...

    @property
    def nodes(self) -> tuple[int, ...]:
        """Number of the node of each rank, dense from 0."""
        ...

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """Records of all ranks, ``(size, len(record))``; of one length on all ranks."""
        ...

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """Bytes of all ranks, of any lengths. For error texts and paths, not for data."""
        ...

    def barrier(self) -> None:
        """Wait until all ranks have come."""
        ...

    def agree(self, code: int) -> int:
        """Tell the largest code of any rank."""
        ...

    def start_exchange(
        self,
        send: Any,
        send_counts: Sequence[int] | NDArray[np.integer[Any]],
        recv: Any,
        recv_counts: Sequence[int] | NDArray[np.integer[Any]],
    ) -> Exchange:
        """
        Start sending bytes to all ranks and receiving from all.

        Parameters
        ----------
        send, recv
            Packed ``uint8`` buffers, in the order of ranks.
        send_counts, recv_counts
            Bytes for and from each rank. What ``p`` sends to ``q`` is what ``q`` expects of ``p``.
        """
        ...

    def shared(self, nbytes: int) -> Shared:
        """
        Make memory that the ranks of this node share; each gives ``nbytes``, 0 too.

        Collective over the node. The part of this rank is counted in its memory budget until
        `Shared.close`.
        """
        ...

    def split(self, color: int, key: int) -> Transport | None:
        """
        Part the group: ranks of one color make a group, ordered by key, then by rank.

        With ``color < 0`` this rank takes no part, and gets None.
        """
        ...

    @property
    def mishaps(self) -> int:
        """
        How often ranks made different calls, or called off.

        The ranks of a node count alike. What they made together before that, one of them may lack.
        """
        ...

    def call_off(self, said: bytes) -> list[bytes]:
        """
        Make all ranks raise, because this one failed between two steps.

        It is called in place of the next step, whichever that is: the ranks that make that raise
        `CollectiveError` (``rank-failed``) with what this one says (`failing.describe`), and go on in
        step. It must not be called if the others may make no step. Returns what each rank said, nothing
        of those who did not fail.
        """
        ...

    def give_up(self, text: str) -> None:
        """
        Tell all ranks that this one cannot go on: they raise `CollectiveError` (``rank-failed``).

        Not collective. Every call of any rank raises from then on.
        """
        ...

    def close(self) -> None:
        """Leave the group for good; others that still wait for this rank are told so."""
        ...
