"""
Collective access: many ranks, each byte across the disk once.

| file | holds |
|---|---|
| `array.py`     | `CollectiveArray`: what `open(..., comm=)` gives |
| `many.py`      | `read_all`, `write_all` of several arrays |
| `explain.py`   | `explain_all`, of one array and of many |
| `dry_run.py`   | the plan of any number of ranks, told by one process |
| `cached_read.py`     | a read of one array, where all have it cached |
| `request.py`   | calls that were started: `iread_all`, `iwrite_all` |
| `call.py`      | a call, from records to results |
| `agreement.py` | the synchronisations: what ranks tell each other; how all fail together |
| `planning.py`  | settings of the ranks, and the plan and the method that follow from the records |
| `items.py`     | one rank's sections and their memory |
| `price.py`     | what a rank's own accesses cost, and its part as an owner |
| `independent.py`     | each rank on its own: direct, sieve, what is cached |
| `rounds.py`    | the rounds of two-phase |
| `holes.py`     | what nobody gives of a tile that is written |
| `durable.py`   | flushes: each file once on a node |
| `packets.py`   | what goes between nodes in a round, in parts that fit |
| `traffic.py`   | messages in rounds: packed, sent, received, unpacked |
| `slots.py`     | memory that the ranks of a node share |
| `report.py`    | what `explain_all` tells |

Plan, owners and method are decided in ``crates/plan/src/collective``.
"""

from outcore.collective.array import CollectiveArray
from outcore.collective.explain import explain_all
from outcore.collective.many import read_all, write_all
from outcore.collective.report import ArrayReport, CollectiveReport, ManyReport, OwnerReport
from outcore.collective.request import CollectiveRequest

__all__ = [
    "ArrayReport",
    "CollectiveArray",
    "CollectiveReport",
    "CollectiveRequest",
    "ManyReport",
    "OwnerReport",
    "explain_all",
    "read_all",
    "write_all",
]
