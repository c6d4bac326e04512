"""
Collective access: many ranks read and write, and each byte is read from the disk once.

| file | contents |
|---|---|
| `array.py`     | `CollectiveArray`: the result of `open(..., comm=)` |
| `many.py`      | `read_all`, `write_all` of several arrays |
| `lists/`       | accesses by lists of indices: `schedule_all` |
| `explain.py`   | `explain_all`, of one array and of many |
| `dry_run.py`   | the plan of any number of ranks, in one process |
| `request.py`   | started calls: `iread_all`, `iwrite_all` |
| `call.py`      | a call, from records to results; fast path if all data is cached |
| `planning.py`  | settings of plans; reasons as text, errors |
| `items.py`     | one rank's sections and their memory |
| `independent.py`     | independent accesses of the ranks: direct and sieve |
| `rounds.py`    | the rounds of two-phase |
| `durable.py`   | flushes: each file once per node |
| `packets.py`   | messages between nodes in a round, in parts that fit |
| `traffic.py`   | messages in rounds: packed, sent, received, unpacked |
| `report.py`    | the reports of `explain_all` |

``crates/plan/src/collective`` decides plan, owners, costs and method, holes, parts of messages, and
which ranks flush. ``crates/access/src/two_phase.rs`` determines the reads and writes of an owner in a
round. Slots are in ``transport/sharing.py``.
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
