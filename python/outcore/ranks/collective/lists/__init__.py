"""
Collective access by lists of indices.

| file | holds |
|---|---|
| `irregular.py` | schedules of accesses by indices: `schedule_all` |
| `schedule.py` | the lists of all ranks, and the way of each element |
| `owners.py` | the owner of each listed element |
| `elements.py` | elements between owners and ranks, in slots or as messages |
| `sums.py` | counts of bins, added up over all ranks |
| `passes.py` | elements of lists that do not fit memory: one range after another |
| `choice.py` | each rank alone, or through owners: prices and the report |
| `dense.py` | lists that name most elements of their ranges |
"""
