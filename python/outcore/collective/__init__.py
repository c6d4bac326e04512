"""
Collective access: many ranks, each byte across the disk once.

| file | holds |
|---|---|
| `array.py`     | `CollectiveArray`: what `open(..., comm=)` gives |
| `many.py`      | `read_all`, `write_all` of several arrays |
| `irregular.py` | schedules of accesses by indices: `schedule_all` |
| `listed_schedule.py` | what ranks know of their lists, and how elements travel |
| `listed_owners.py` | who owns which elements of lists, and is told of them |
| `elements.py`  | elements of lists between owners and ranks, in slots or as messages |
| `sums.py`      | counts of bins, added up over all ranks |
| `passes.py`    | elements of lists that do not fit memory: one range after another |
| `list_choice.py` | each rank alone, or through owners: what lists are like, prices, the report |
| `explain.py`   | `explain_all`, of one array and of many |
| `dry_run.py`   | the plan of any number of ranks, told by one process |
| `request.py`   | calls that were started: `iread_all`, `iwrite_all` |
| `call.py`      | a call, from records to results; and the fast path where all have it cached |
| `agreement.py` | the synchronisations: what ranks tell each other; how all fail together |
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

from outcore.collective.array import CollectiveArray
from outcore.collective.explain import explain_all
from outcore.collective.irregular import CollectiveSchedule
from outcore.collective.list_choice import ListPass, ListPrices, ListReport
from outcore.collective.many import read_all, write_all
from outcore.collective.report import ArrayReport, CollectiveReport, ManyReport, OwnerReport
from outcore.collective.request import CollectiveRequest

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
