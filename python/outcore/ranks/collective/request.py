"""
Requests for started collective calls, returned by ``iread_all``, ``iwrite_all`` and similar methods.

A separate thread (``transport/in_flight.py``) makes the calls of a communicator one after another, in
the order in which they were started. They are the calls of `read_all` and `write_all`, with the same
messages, and run while the program computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from outcore.arrays.disk import DiskArray
from outcore.base.requests import IORequest, StartedRequests, start_in_order
from outcore.ranks.transport import Transport

__all__ = ["CollectiveRequest", "start", "start_call"]

T = TypeVar("T")


class CollectiveRequest(IORequest[T]):
    """
    A started collective call, returned by `CollectiveArray.iread_all` and similar methods.

    Its buffers are in use until it is done: do not change values that are being written or sent, and do
    not use an array that is being filled. It makes progress without further calls. Ranks may wait for
    their requests in any order; `wait` raises errors on all ranks.

    Notes
    -----
    As with nonblocking collective calls of MPI, all ranks start them in the same order on a
    communicator. They run in that order, one at a time: each begins when the previous one has ended on
    this rank. Any other collective call on the communicator waits for the calls that were started before
    it. A started call cannot be cancelled, because the other ranks depend on this one.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> from outcore.testing.sim import SimWorld
    >>> np.save("field.npy", np.arange(24).reshape(4, 6))
    >>> def work(comm):
    ...     with outcore.open("field.npy", comm=comm) as a:
    ...         requests = [a.iread_all(row) for row in range(4)]
    ...         return [int(request.wait().sum()) for request in reversed(requests)]
    >>> SimWorld(2).run(work)[1]
    [123, 87, 51, 15]
    """

    def test(self) -> bool:
        """
        Return whether the call has ended, successfully or not; never waits (``MPI_Test``).

        Returns
        -------
        bool
            As `done`. True does not imply success: `wait` then returns or raises immediately.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(24).reshape(4, 6))
        >>> def work(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         request, steps = a.iread_all(comm.rank), 0
        ...         while not request.test():
        ...             steps += 1  # compute something else
        ...         return request.wait().tolist()
        >>> SimWorld(2).run(work)
        [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
        """
        return self.done

    def cancel(self) -> bool:
        """
        Do nothing, because no rank can stop a collective call.

        Returns
        -------
        bool
            False.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> from outcore.testing.sim import SimWorld
        >>> np.save("field.npy", np.arange(4))
        >>> def work(comm):
        ...     with outcore.open("field.npy", comm=comm) as a:
        ...         request = a.iread_all()
        ...         return request.cancel(), request.wait().tolist()
        >>> SimWorld(2).run(work)[0]
        (False, [0, 1, 2, 3])
        """
        return False


def start(
    group: Transport, array: DiskArray, call: Callable[[], T], *, writes: bool
) -> CollectiveRequest[T]:
    """
    Start a collective call on one array; closing the array waits for it.

    If it `writes`, `DiskArray.flush` waits for it too, and raises its error.
    """
    what = f"collective {'write' if writes else 'read'} of {array.path!r}"
    return start_call(group, array.handle.requests, what, call, writes=writes)


def start_call(
    group: Transport,
    started: StartedRequests,
    what: str,
    call: Callable[[], T],
    *,
    writes: bool = False,
) -> CollectiveRequest[T]:
    """Start a call; `started` keeps its request until its end, even if the caller drops it."""
    request = CollectiveRequest(start_in_order(call, what, group.in_flight.start))
    started.keep(request, writes=writes)
    return request
