"""
Placement of out-of-core arrays: in one file, in one file per rank, or partitioned over memories.

    making        create, open, copy
    array         `PlacedArray`: slabs, and collective methods
    local         sections of the local array
    shift         boundary elements of neighbours, by three methods
    whole         sections of the whole array: reading, multicast, copies
    partitions    collective loops over partitions that fit the memories of all ranks
    slabs         loops of one rank
    part          a rank's part of a global file, as an array
    overlap       elements of other ranks in a rank's overlap area
    files  keys   the manifest of local files; keys of a local array

Reference: PASSION report, sections 4.1.2 and 4.2.
"""

from outcore.problems.placement.array import PlacedArray
from outcore.problems.placement.files import disk_map
from outcore.problems.placement.making import copy_placed, create_placed, open_placed
from outcore.problems.placement.placed import Placement
from outcore.problems.placement.shift import Shift
from outcore.problems.placement.slabs import Slab

__all__ = [
    "PlacedArray",
    "Placement",
    "Shift",
    "Slab",
    "copy_placed",
    "create_placed",
    "disk_map",
    "open_placed",
]
