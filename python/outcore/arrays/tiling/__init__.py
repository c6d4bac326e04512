"""
Tiles: copying an array from one layout to another within a budget.

| file        | contents |
|-------------|---|
| `choice.py` | the best tiles for the source and the target of a copy: `choose` |
| `tiles.py`  | `Tiling`: the positions of tiles, and their intersections with chunks |
| `sides.py`  | `Side`: source or target of a copy, and its cost with given tiles |

A loop over one array is a copy whose target has the layout of its source.
"""

from outcore.arrays.tiling.choice import choose, estimate_seconds, find_smallest
from outcore.arrays.tiling.sides import DiskSpeed, Side
from outcore.arrays.tiling.tiles import Tiling, count_passes, count_tiles, cut_slabs

__all__ = [
    "DiskSpeed",
    "Side",
    "Tiling",
    "choose",
    "count_passes",
    "count_tiles",
    "cut_slabs",
    "estimate_seconds",
    "find_smallest",
]
