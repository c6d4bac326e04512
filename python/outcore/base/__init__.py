"""
Common concepts: hints, reports, sections, requests, distributions.

| file | contents |
|---|---|
| `hints.py` | `Hints`; the memory budget of the process |
| `report/` | reports of calls, as text, as pictures and as seconds of phases |
| `sections.py` | keys of NumPy as values |
| `requests.py` | `IORequest`: started I/O |
| `background.py` | calls on threads that end with them |
| `closable.py` | `Closable`: objects that a ``with`` block closes |
| `distribution/` | `Distribution`, `ProcessGrid`: the elements of each rank |
| `casting.py` | conversion of given values, as in NumPy's assignment |
| `assumed_costs.py` | rates and times by which plans are compared |
| `ranked.py` | registry of the package that serves calls with ``comm=`` |

Nothing here opens a file. Errors are in `outcore.errors`, below all floors.
"""
