"""
Ranks under MPI: distributed arrays, disk resident arrays, collective calls and checkpoints.

Calls with ``comm=`` accept a communicator of mpi4py, or a `Transport`. `world` gives the communicator
of all ranks, and of one rank in a program that runs without MPI.
"""

from outcore.problems.placement import (
    PlacedArray,
    Shift,
    Slab,
    copy_placed,
    create_placed,
    disk_map,
    open_placed,
)
from outcore.ranks.collective import (
    ArrayReport,
    CollectiveArray,
    CollectiveReport,
    CollectiveRequest,
    CollectiveSchedule,
    ListPass,
    ListPrices,
    ListReport,
    ManyReport,
    OwnerReport,
    explain_all,
    read_all,
    write_all,
)
from outcore.ranks.dist import Align, DistArray, Distribution, PatchLock, ProcessGrid
from outcore.ranks.resident import (
    DiskResidentArray,
    LayoutCandidate,
    ResidentLayout,
    ResidentReport,
    disk_array,
)
from outcore.ranks.restart.calls import checkpoint, icheckpoint, restore
from outcore.ranks.transport import Communicator, Transport, transport, world

__all__ = [
    "Align",
    "ArrayReport",
    "CollectiveArray",
    "CollectiveReport",
    "CollectiveRequest",
    "CollectiveSchedule",
    "Communicator",
    "DiskResidentArray",
    "DistArray",
    "Distribution",
    "LayoutCandidate",
    "ListPass",
    "ListPrices",
    "ListReport",
    "ManyReport",
    "OwnerReport",
    "PatchLock",
    "PlacedArray",
    "ProcessGrid",
    "ResidentLayout",
    "ResidentReport",
    "Shift",
    "Slab",
    "Transport",
    "checkpoint",
    "copy_placed",
    "create_placed",
    "disk_array",
    "disk_map",
    "explain_all",
    "icheckpoint",
    "open_placed",
    "read_all",
    "restore",
    "transport",
    "world",
    "write_all",
]
