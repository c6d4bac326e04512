"""
Transport: the only door to MPI.

| file | holds |
|---|---|
| `protocol.py` | the words: `Transport`, `Exchange`, `Shared`; `Communicator`, for types |
| `serial.py`   | a group of one |
| `group.py`    | a group of ranks: the calls and their steps |
| `place.py`    | who is where; numbers that ranks agree on |
| `in_flight.py` | calls that were started, and whose turn it is |
| `sharing.py`, `nodememory.py` | memory that the ranks of a node share |
| `wire.py`     | messages, and collective steps made of them |
| `watchdog.py`, `timeouts.py` | waiting: warnings, time, dead ranks, Ctrl-C |
| `mpi.py`      | messages by MPI; imported only for a communicator |
| `checks.py`   | what is looked at before the first message |
| `failing.py`  | what ranks say when they fail, and the error of it |
"""

from __future__ import annotations

import os
from typing import Any, cast

from outcore.ranks.transport.in_flight import InFlight
from outcore.ranks.transport.protocol import Communicator, Exchange, Shared, Transport
from outcore.ranks.transport.serial import SerialTransport
from outcore.ranks.transport.timeouts import DeferredInterrupt, Patience

__all__ = [
    "Communicator",
    "DeferredInterrupt",
    "Exchange",
    "InFlight",
    "SerialTransport",
    "Shared",
    "Transport",
    "transport",
    "world",
]

# What mpiexec of Open MPI, and of MPICH and its relatives, sets: how many ranks there are.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def world() -> Any:
    """
    Tell the communicator of all ranks, if mpiexec started this process with others.

    Returns
    -------
    mpi4py.MPI.Comm or None
        None: this process is alone.

    Raises
    ------
    UnsupportedError
        ``needs-mpi4py``: there are others, and mpi4py is not installed.

    Examples
    --------
    >>> from outcore.ranks.transport import world
    >>> world() is None
    True
    """
    if not any(os.environ.get(name, "1") not in ("", "0", "1") for name in _SIZES):
        return None
    from outcore.ranks.transport.mpi import comm_world

    try:
        return comm_world()
    except ImportError as error:
        from outcore.errors import UnsupportedError

        raise UnsupportedError(
            "this process is one of several ranks, and mpi4py is not installed, without which they "
            "cannot work together; pip install mpi4py",
            code="needs-mpi4py",
        ) from error


def transport(
    comm: Any = None, *, warn: float | None = None, timeout: float | None = None
) -> Transport:
    """
    Make the transport of a communicator.

    Parameters
    ----------
    comm
        None (this process alone), a `Transport` (given back), or an intracommunicator of mpi4py.
        Of a communicator all ranks call this; it is duplicated, and remembers its transport.
    warn
        Seconds after which a waiting rank says on stderr for whom it waits: 30.
    timeout
        Seconds after which it gives up, and all ranks raise `CollectiveError`: ``OUTCORE_TIMEOUT``,
        or never.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.ranks.transport import transport
    >>> transport(None).allgather(np.array([3, 4]))
    array([[3, 4]])
    """
    if comm is None:
        return SerialTransport()
    if not hasattr(comm, "Get_size"):
        if not hasattr(comm, "start_exchange"):
            from outcore.errors import UsageError

            raise UsageError(
                f"{comm!r} is neither None, a Transport, nor a communicator of mpi4py",
                code="bad-communicator",
            )
        return cast(Transport, comm)
    usual = Patience.of_environment()
    patience = Patience(
        usual.warn if warn is None else warn, usual.timeout if timeout is None else timeout
    )
    from outcore.ranks.transport.mpi import of_communicator

    return of_communicator(comm, patience)
