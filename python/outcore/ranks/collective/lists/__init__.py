"""
Collective access by lists of indices.

| file | contents |
|---|---|
| `irregular.py` | schedules of accesses by indices: `schedule_all` |
| `schedule.py` | the lists of all ranks, and the movement of their elements |
| `owners.py` | the owner of each listed element |
| `elements.py` | elements between owners and ranks, in slots or as messages |
| `sums.py` | counts of bins, summed over all ranks |
| `passes.py` | elements of lists that do not fit memory: one range after another |
| `choice.py` | independent access or access through owners: costs and the report |
| `dense.py` | lists that name most elements of their ranges |
"""
