"""
Ranks under MPI: the communicator of all ranks, and the transport of a communicator.

Functions with ``comm=`` accept a communicator of mpi4py, or a `Transport`.
"""

from outcore.ranks.transport import Communicator, Transport, transport, world

__all__ = ["Communicator", "Transport", "transport", "world"]
