"""
Placement of out-of-core arrays: in one file, in a file for each rank, or partitioned over memories.

    making        create, open, copy
    array         `PlacedArray`: slabs, and what ranks do together
    local         sections of the local array
    shift         boundary elements of neighbours, three ways
    whole         sections of the whole array: reading, multicast, copies
    partitions    loops of all ranks over what fits their memories together
    slabs         loops of one rank
    part          a rank's part of a global file, as an array
    overlap       which elements of which rank are whose ghosts
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
