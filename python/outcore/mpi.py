"""
Ranks under MPI: the communicator of all ranks, and the transport of a communicator.

``comm=`` of a call takes a communicator of mpi4py, or a `Transport`.
"""

from outcore.ranks.transport import Communicator, Transport, transport, world

__all__ = ["Communicator", "Transport", "transport", "world"]
