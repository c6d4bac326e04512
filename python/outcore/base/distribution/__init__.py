"""
Ownership of indices by ranks: `Align`, `Distribution`.

| file              | contents |
|-------------------|---|
| `value.py`        | `Distribution`: an array divided over ranks, as a value; its parts as slices |
| `process_grid.py` | `ProcessGrid`: ranks in a grid |

`DistArray` (`outcore.ranks.dist`) has the elements; nothing here communicates with another rank.
"""

from outcore.base.distribution.process_grid import ProcessGrid
from outcore.base.distribution.value import (
    Align,
    Distribution,
    Ghosts,
    Key,
    Periodic,
    divide_like,
    list_keys,
    parse_periodic,
    parse_widths,
    take_range,
    view_sections,
)

__all__ = [
    "Align",
    "Distribution",
    "Ghosts",
    "Key",
    "Periodic",
    "ProcessGrid",
    "divide_like",
    "list_keys",
    "parse_periodic",
    "parse_widths",
    "take_range",
    "view_sections",
]
