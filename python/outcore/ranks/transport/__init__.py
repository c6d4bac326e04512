"""
Transport: the only entry point to MPI.

| file | contents |
|---|---|
| `protocol.py` | interfaces: `Transport`, `Exchange`, `Shared`; `Communicator`, for types |
| `serial.py`   | a group of one rank |
| `group.py`    | a group of ranks: the calls and their steps |
| `place.py`    | nodes and processes of the ranks; numbers that ranks agree on |
| `in_flight.py` | started calls, run one after another |
| `sharing.py`, `nodememory.py` | memory that the ranks of a node share |
| `wire.py`     | messages, and collective steps made of them |
| `watchdog.py`, `timeouts.py` | waiting: warnings, timeouts, dead ranks, Ctrl-C |
| `mpi.py`      | messages through MPI; imported only for a communicator |
| `checks.py`   | checks before the first message |
| `failing.py`  | descriptions of failures, and the resulting error on all ranks |
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

# Environment variables with the number of ranks, set by mpiexec of Open MPI, and of MPICH and related
# libraries.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def world() -> Any:
    """
    Return the communicator of all ranks, if mpiexec started this process with others.

    Returns
    -------
    mpi4py.MPI.Comm or None
        None if this process is alone.

    Raises
    ------
    UnsupportedError
        ``needs-mpi4py``: there are other ranks, and mpi4py is not installed.

    Examples
    --------
    >>> from outcore.ranks.transport import world
    >>> world() is None
    True
    """
    if not any(os.environ.get(name, "1") not in ("", "0", "1") for name in _SIZES):
        return None
    from outcore.ranks.transport.mpi import get_comm_world

    try:
        return get_comm_world()
    except ImportError as error:
        from outcore.errors import UnsupportedError

        raise UnsupportedError(
            "mpiexec started this process with other ranks, but mpi4py is not installed; run pip "
            "install mpi4py",
            code="needs-mpi4py",
        ) from error


def transport(
    comm: Any = None, *, warn: float | None = None, timeout: float | None = None
) -> Transport:
    """
    Return the transport of a communicator.

    Parameters
    ----------
    comm
        None (this process alone), a `Transport` (returned unchanged), or an intracommunicator of mpi4py.
        All ranks of a communicator call this. The first call duplicates the communicator; later calls
        return the same transport.
    warn
        Seconds after which a waiting rank reports on stderr which ranks it waits for; by default 30.
    timeout
        Seconds after which a waiting rank aborts, and all ranks raise `CollectiveError`; by default
        ``OUTCORE_TIMEOUT``, or never.

    Returns
    -------
    Transport
        Transport of the communicator; the same object for each call with it.

    Raises
    ------
    UsageError
        ``bad-communicator``: `comm` is none of these.

    Examples
    --------
    >>> import numpy as np
    >>> from outcore.mpi import transport
    >>> transport(None).allgather(np.array([3, 4]))
    array([[3, 4]])
    """
    if comm is None:
        return SerialTransport()
    if not hasattr(comm, "Get_size"):
        if not hasattr(comm, "start_exchange"):
            from outcore.errors import UsageError

            raise UsageError(
                f"{comm!r} is not a communicator; pass None, a Transport, or a communicator of mpi4py",
                code="bad-communicator",
            )
        return cast(Transport, comm)
    usual = Patience.from_environment()
    patience = Patience(
        usual.warn if warn is None else warn, usual.timeout if timeout is None else timeout
    )
    from outcore.ranks.transport.mpi import get_transport

    return get_transport(comm, patience)
