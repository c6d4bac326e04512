"""
Collective access: many ranks, each byte across the disk once.

| file | holds |
|---|---|
| `array.py`     | `CollectiveArray`: what `open(..., comm=)` gives |
| `many.py`      | `read_all`, `write_all`: the call, from records to results |
| `agreement.py` | what ranks tell each other; how all fail together |
| `items.py`     | one rank's sections and their memory |
| `choose.py`, `price.py` | direct or two-phase |
| `rounds.py`    | the rounds of two-phase |
| `slots.py`     | memory that the ranks of a node share |
| `report.py`    | what `explain_all` tells |

The plan itself is made in ``crates/plan/src/collective``.
"""

from outcore.collective.array import CollectiveArray
from outcore.collective.many import read_all, write_all
from outcore.collective.report import CollectiveReport

__all__ = ["CollectiveArray", "CollectiveReport", "read_all", "write_all"]
