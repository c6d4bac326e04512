"""
Interfaces of transports: `Transport`, `Exchange`, `Shared`, and `Communicator` for types.

All ranks of a group call the methods of `Transport` in the same order. Only int64 records and bytes are
sent; nothing is pickled.
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
    """A started exchange; its buffers must not be used until `wait` returns."""

    def test(self) -> bool:
        """Return whether the exchange is complete. Makes progress on messages, and never waits."""

    def wait(self) -> None:
        """Wait until everything has been sent and received."""


class Shared(Protocol):
    """Memory that the ranks of one node share, with a separate part for each rank."""

    @property
    def mine(self) -> Bytes:
        """Part of this rank, on separate pages, initially zero."""

    def of(self, rank: int) -> Bytes:
        """Return the part of another rank of the same node."""

    def unpin(self) -> None:
        """
        Make the part of this rank reclaimable: it counts in the budget, but gives way to other requests.

        Its contents may be lost afterwards. It must not be used until `pin`.
        """

    def pin(self) -> bool:
        """
        Reserve the part of this rank again; raise if it does not fit the budget now.

        Return whether the contents still exist. If not, the pages are new.
        """

    def gather(self) -> None:
        """Move the part of this rank to huge pages, if the operating system supports that."""

    def close(self) -> None:
        """Release the memory; it is freed when all ranks have done so and nothing refers to it."""


class Communicator(Protocol):
    """Type of a communicator of mpi4py."""

    def Get_rank(self) -> int:
        """Return the number of this rank."""

    def Get_size(self) -> int:
        """Return the number of ranks."""


class Transport(Protocol):
    """
    Moves bytes between the ranks of one group.

    `outcore.open` and all functions with ``comm=`` accept a communicator of mpi4py, for which they make
    a transport, or an existing transport. `CollectiveArray.transport` is that of an array.
    """

    @property
    def rank(self) -> int:
        """Number of this rank, starting at 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Number of the node of each rank, consecutive from 0."""

    @property
    def in_flight(self) -> InFlight:
        """Started collective calls; any other step waits until they have ended."""

    def allgather(self, record: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Gather records of all ranks on all ranks.

        Parameters
        ----------
        record
            Flat int64 array, of the same length on all ranks.

        Returns
        -------
        numpy.ndarray
            Array of shape ``(size, len(record))``.

        Examples
        --------
        >>> import numpy as np
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.allgather(np.array([t.rank, 7])).tolist())[1]
        [[0, 7], [1, 7]]
        """

    def allgather_bytes(self, blob: bytes) -> list[bytes]:
        """
        Gather bytes of all ranks on all ranks; for error texts and paths, not for data.

        Parameters
        ----------
        blob
            Bytes of any length.

        Returns
        -------
        list of bytes
            Bytes of each rank, in the order of ranks.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.allgather_bytes(b"x" * t.rank))[0]
        [b'', b'x']
        """

    def barrier(self) -> None:
        """
        Wait until all ranks have called this.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(2).run(lambda t: t.barrier())
        [None, None]
        """

    def agree(self, code: int) -> int:
        """
        Return the largest code of any rank.

        Parameters
        ----------
        code
            Code of this rank.

        Returns
        -------
        int
            The largest code, the same on all ranks.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(3).run(lambda t: t.agree(t.rank))
        [2, 2, 2]
        """

    def start_exchange(
        self,
        send: Any,
        send_counts: Sequence[int] | NDArray[np.integer[Any]],
        recv: Any,
        recv_counts: Sequence[int] | NDArray[np.integer[Any]],
    ) -> Exchange:
        """
        Start to send bytes to all ranks and to receive bytes from all.

        Parameters
        ----------
        send, recv
            Packed ``uint8`` buffers, in the order of ranks.
        send_counts, recv_counts
            Number of bytes for and from each rank. The count that ``p`` sends to ``q`` must equal the
            count that ``q`` receives from ``p``.

        Returns
        -------
        Exchange
            The started exchange. Do not use the buffers until its `wait` returns.

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

    def shared(self, nbytes: int) -> Shared:
        """
        Allocate memory that the ranks of this node share; each adds ``nbytes``, possibly 0.

        Collective over the node. The part of this rank counts in its memory budget until `Shared.close`.

        Parameters
        ----------
        nbytes
            Bytes of this rank's part.

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

    def split(self, color: int, key: int) -> Transport | None:
        """
        Split the group: ranks with the same color form a group, ordered by key, then by rank.

        Parameters
        ----------
        color
            Number of the new group. With a negative color this rank joins no group.
        key
            Order within the group.

        Returns
        -------
        Transport or None
            Transport of the new group of this rank; None if it joins none.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> SimWorld(4).run(lambda t: t.split(t.rank % 2, 0).size)
        [2, 2, 2, 2]
        """

    @property
    def abort_count(self) -> int:
        """
        Number of times that ranks made different calls, or aborted one.

        The ranks of a node have the same count. After such a failure, one of them may lack objects that
        they had made together before.
        """

    #: Value of `_core.writes` of this process when the ranks last synchronised in a collective call;
    #: None before that. A rank that has written since then must not let the others read before it joins.
    synchronised: int | None

    def abort_call(self, said: bytes) -> list[bytes]:
        """
        Make all ranks raise, because this one failed between two steps.

        It is called in place of the next step, of any kind. The ranks that make that step raise
        `CollectiveError` (``rank-failed``) with the reason of this rank (`failing.describe`), and stay
        in step. It must not be called if the other ranks may make no further step.

        Parameters
        ----------
        said
            Reason, as written by `failing.describe`.

        Returns
        -------
        list of bytes
            Reason of each rank; empty for ranks that did not fail.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(t):
        ...     if t.rank == 0:
        ...         t.abort_call(b"")
        ...     else:
        ...         try:
        ...             t.barrier()
        ...         except outcore.errors.CollectiveError as error:
        ...             return error.code
        >>> SimWorld(2).run(work)[1]
        'rank-failed'
        """

    def poll_while_waiting(self, rank: int, elapsed: float) -> bool:
        """
        Check for failures while this rank waits for a lock that another rank of its node holds.

        Not collective.

        Parameters
        ----------
        rank
            Rank that holds the lock.
        elapsed
            Seconds that this rank has waited.

        Returns
        -------
        bool
            Whether that rank ended or left the group, and so will not release the lock. Always False for
            a rank of another node, whose state is not known here.

        Raises
        ------
        CollectiveError
            The group was stopped, or `elapsed` is longer than the timeout of the group.

        Examples
        --------
        >>> from outcore.testing.sim import SimWorld
        >>> def look(t):
        ...     gone = t.poll_while_waiting(1 - t.rank, 0.1)
        ...     t.barrier()
        ...     return gone
        >>> SimWorld(2).run(look)
        [False, False]
        """

    def abort_group(self, text: str) -> None:
        """
        Stop the group, because this rank cannot continue.

        All ranks raise `CollectiveError` (``rank-failed``), now and at every later call. Not collective.

        Parameters
        ----------
        text
            Reason.

        Examples
        --------
        >>> import outcore
        >>> from outcore.testing.sim import SimWorld
        >>> def work(t):
        ...     if t.rank == 0:
        ...         t.abort_group("no more")
        ...     try:
        ...         t.barrier()
        ...     except outcore.errors.CollectiveError as error:
        ...         return error.code
        >>> SimWorld(2).run(work)
        ['rank-failed', 'rank-failed']
        """

    def close(self) -> None:
        """
        Leave the group permanently; ranks that still wait for this one are notified.

        Examples
        --------
        >>> from outcore.ranks.transport import transport
        >>> transport(None).close()
        """
