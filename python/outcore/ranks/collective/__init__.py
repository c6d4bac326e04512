"""
Collective access: many ranks, each byte across the disk once.

| file | holds |
|---|---|
| `array.py`     | `CollectiveArray`: what `open(..., comm=)` gives |
| `many.py`      | `read_all`, `write_all` of several arrays |
| `lists/`       | accesses by lists of indices: `schedule_all` |
| `explain.py`   | `explain_all`, of one array and of many |
| `dry_run.py`   | the plan of any number of ranks, told by one process |
| `request.py`   | calls that were started: `iread_all`, `iwrite_all` |
| `call.py`      | a call, from records to results; and the fast path where all have it cached |
| `planning.py`  | what a plan is made with; reasons in sentences, errors |
| `items.py`     | one rank's sections and their memory |
| `independent.py`     | each rank on its own: direct and sieve |
| `rounds.py`    | the rounds of two-phase |
| `durable.py`   | flushes: each file once on a node |
| `packets.py`   | what goes between nodes in a round, in parts that fit |
| `traffic.py`   | messages in rounds: packed, sent, received, unpacked |
| `report.py`    | what `explain_all` tells |

Plan, owners, prices and method, holes, parts of messages and who flushes are decided in
``crates/plan/src/collective``; what an owner reads and writes in a round is in
``crates/access/src/two_phase.rs``; slots are in ``transport/sharing.py``.
"""

from outcore.ranks.collective.array import CollectiveArray
from outcore.ranks.collective.explain import explain_all
from outcore.ranks.collective.lists.choice import ListPass, ListPrices, ListReport
from outcore.ranks.collective.lists.irregular import CollectiveSchedule
from outcore.ranks.collective.many import read_all, write_all
from outcore.ranks.collective.report import ArrayReport, CollectiveReport, ManyReport, OwnerReport
from outcore.ranks.collective.request import CollectiveRequest

__all__ = [
    "ArrayReport",
    "CollectiveArray",
    "CollectiveReport",
    "CollectiveRequest",
    "CollectiveSchedule",
    "ListPass",
    "ListPrices",
    "ListReport",
    "ManyReport",
    "OwnerReport",
    "explain_all",
    "read_all",
    "write_all",
]
