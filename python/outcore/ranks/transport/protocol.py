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

from outcore.ranks.transport.in_flight import InFlight

__all__ = ["Communicator", "Exchange", "Shared", "Transport"]

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

    def unpin(self) -> None:
        """
        Let the part of this rank give way: within the budget, but nobody is refused for it.

        What is in it may be gone afterwards. Nobody may use it until `pin`.
        """
        ...

    def pin(self) -> bool:
        """
        Hold the part of this rank again; raises where the budget has no room for it now.

        Tells whether what was in it is still there: if not, these are other pages.
        """
        ...

    def gather(self) -> None:
        """Have the part of this rank in huge pages, where the system does that."""
        ...

    def close(self) -> None:
        """Release it; the memory goes when all ranks have, and nothing refers to it any more."""
        ...


class Communicator(Protocol):
    """What a communicator of mpi4py has, as far as types go."""

    def Get_rank(self) -> int:
        """Tell the number of this rank."""
        ...

    def Get_size(self) -> int:
        """Count the ranks."""
        ...


class Transport(Protocol):
    """
    Moves bytes between the ranks of one group. Nothing else.

    `outcore.open` and all that takes ``comm=`` makes one of a communicator of mpi4py, and takes one made
    elsewhere; `CollectiveArray.transport` is that of an array.
    """

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

    @property
    def in_flight(self) -> InFlight:
        """Collective calls that were started; any other step waits until they have ended."""
        ...

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Records of all ranks.

        Parameters
        ----------
        record
            Flat int64, of one length on all ranks.

        Returns
        -------
        numpy.ndarray
            Of shape ``(size, len(record))``.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.allgather(np.array([t.rank, 7])).tolist())[1]
        [[0, 7], [1, 7]]
        """
        ...

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """
        Bytes of all ranks. For error texts and paths, not for data.

        Parameters
        ----------
        blob
            Of any length.

        Returns
        -------
        list of bytes
            In the order of ranks.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.allgather_bytes(b"x" * t.rank))[0]
        [b'', b'x']
        """
        ...

    def barrier(self) -> None:
        """
        Wait until all ranks have come.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.barrier())
        [None, None]
        """
        ...

    def agree(self, code: int) -> int:
        """
        Tell the largest code of any rank.

        Parameters
        ----------
        code
            What this rank says.

        Returns
        -------
        int
            The same on all ranks.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(3).run(lambda t: t.agree(t.rank))
        [2, 2, 2]
        """
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

        Returns
        -------
        Exchange
            The buffers are not the caller's until its `wait` returns.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore.testing.sim import SimWorld
        >>> def swap(t):
        ...     mine, theirs = np.full(2, t.rank, np.uint8), np.empty(2, np.uint8)
        ...     other = [0, 2] if t.rank == 0 else [2, 0]
        ...     t.start_exchange(mine, other, theirs, other).wait()
        ...     return theirs.tolist()
        >>> SimWorld(2).run(swap)
        [[1, 1], [0, 0]]
        """
        ...

    def shared(self, nbytes: int) -> Shared:
        """
        Make memory that the ranks of this node share; each gives ``nbytes``, 0 too.

        Collective over the node. The part of this rank is counted in its memory budget until
        `Shared.close`.

        Parameters
        ----------
        nbytes
            Of this rank's part.

        Returns
        -------
        Shared
            This rank's part (``mine``) and those of the others (``of(rank)``).

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> def tell(t):
        ...     memory = t.shared(1)
        ...     memory.mine[0] = t.rank + 5
        ...     t.barrier()
        ...     seen = int(memory.of(0)[0])
        ...     t.barrier()
        ...     memory.close()
        ...     return seen
        >>> SimWorld(2).run(tell)
        [5, 5]
        """
        ...

    def split(self, color: int, key: int) -> Transport | None:
        """
        Part the group: ranks of one color make a group, ordered by key, then by rank.

        Parameters
        ----------
        color
            Ranks of one color belong together. Below 0 this rank takes no part.
        key
            Order within the group.

        Returns
        -------
        Transport or None
            Of the group of this rank; None if it takes no part.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(4).run(lambda t: t.split(t.rank % 2, 0).size)
        [2, 2, 2, 2]
        """
        ...

    @property
    def mishaps(self) -> int:
        """
        How often ranks made different calls, or called off.

        The ranks of a node count alike. What they made together before that, one of them may lack.
        """
        ...

    #: What `_core.writes` of this process was when the ranks last synchronised in a collective
    #: call; None before they have. Who wrote since then must not have the others read before he
    #: comes.
    synchronised: int | None

    def call_off(self, said: bytes) -> list[bytes]:
        """
        Make all ranks raise, because this one failed between two steps.

        It is called in place of the next step, whichever that is: the ranks that make that raise
        `CollectiveError` (``rank-failed``) with what this one says (`failing.describe`), and go on in
        step. It must not be called if the others may make no step.

        Parameters
        ----------
        said
            Why, as `failing.describe` writes it.

        Returns
        -------
        list of bytes
            What each rank said; nothing of those who did not fail.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(t):
        ...     if t.rank == 0:
        ...         t.call_off(b"")
        ...     else:
        ...         try:
        ...             t.barrier()
        ...         except outcore.CollectiveError as error:
        ...             return error.code
        >>> SimWorld(2).run(work)[1]
        'rank-failed'
        """
        ...

    def waits_for(self, rank: int, elapsed: float) -> bool:
        """
        Look around while this rank waits for a lock that another one of its node holds.

        Not collective.

        Parameters
        ----------
        rank
            Who holds the lock.
        elapsed
            Seconds that this rank has waited.

        Returns
        -------
        bool
            Whether that rank ended, or left the group: it will not give the lock back. Of a rank of
            another node it is not known: False.

        Raises
        ------
        CollectiveError
            The group was stopped, or this is longer than the timeout of the group.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> def look(t):
        ...     gone = t.waits_for(1 - t.rank, 0.1)
        ...     t.barrier()
        ...     return gone
        >>> SimWorld(2).run(look)
        [False, False]
        """
        ...

    def give_up(self, text: str) -> None:
        """
        Tell all ranks that this one cannot go on: they raise `CollectiveError` (``rank-failed``).

        Not collective. Every call of any rank raises from then on.

        Parameters
        ----------
        text
            Why.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(t):
        ...     if t.rank == 0:
        ...         t.give_up("no more")
        ...     try:
        ...         t.barrier()
        ...     except outcore.CollectiveError as error:
        ...         return error.code
        >>> SimWorld(2).run(work)
        ['rank-failed', 'rank-failed']
        """
        ...

    def close(self) -> None:
        """
        Leave the group for good; others that still wait for this rank are told so.

        Examples
        --------
        >>> from outcore.ranks.transport import transport
        >>> transport(None).close()
        """
        ...
