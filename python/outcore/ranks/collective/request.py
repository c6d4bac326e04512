"""
Collective calls that were started: what ``iread_all``, ``iwrite_all`` and their like return.

The calls of a communicator are made one after the other, in the order in which they were started, by a
thread of their own (``transport/in_flight.py``). So they are the calls that `read_all` and `write_all`
make, with the same messages, and go on while the program computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from outcore.arrays.disk import DiskArray
from outcore.base.requests import IORequest, Started, start_in_order
from outcore.ranks.transport import Transport

__all__ = ["CollectiveRequest", "start", "start_call"]

T = TypeVar("T")


class CollectiveRequest(IORequest[T]):
    """
    A collective call that was started, by `CollectiveArray.iread_all` and its like.

    Until it is done, its buffers belong to it: do not change a value that is being written or sent, do
    not look at an array that is being filled. It goes on by itself, also if nobody asks for it. Ranks
    may wait for their requests in any order; what has failed, `wait` raises on all ranks.

    Notes
    -----
    As with nonblocking collectives of MPI, all ranks start them in the same order on a communicator.
    They are made in that order, one at a time: the next one begins when the one before has ended on
    this rank. Any other collective call on the communicator comes after those that were started before
    it, and waits for them. It cannot be stopped: the other ranks count on this one.

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
        Tell whether it has ended, well or not; never waits (``MPI_Test``).

        Returns
        -------
        bool
            As `done`. True does not say that it went well: `wait` does, and returns at once then.

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
        Do nothing: what ranks do together, none of them stops.

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
    Start a collective call of one array; closing that waits for it.

    Parameters
    ----------
    call
        Makes the call, and waits for the other ranks.
    writes
        `DiskArray.flush` waits for it, too, and its failure is not lost.
    """
    what = f"collective {'write' if writes else 'read'} of {array.path!r}"
    return start_call(group, array.handle.requests, what, call, writes=writes)


def start_call(
    group: Transport, started: Started, what: str, call: Callable[[], T], *, writes: bool = False
) -> CollectiveRequest[T]:
    """
    Start a collective call.

    Parameters
    ----------
    started
        Keeps the request while it goes on, also if nobody else does.
    what
        Its name in messages.
    call, writes
        As for `start`.
    """
    request = CollectiveRequest(start_in_order(call, what, group.in_flight.start))
    started.keep(request, writes=writes)
    return request
