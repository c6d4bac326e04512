"""
Words of the whole house: hints, reports, sections, requests, distributions.

| file | holds |
|---|---|
| `hints.py` | `Hints`; the memory budget of the process |
| `report/` | reports of calls, as text, as pictures and as seconds of phases |
| `sections.py` | keys of NumPy as values |
| `requests.py` | `IORequest`: started I/O |
| `distribution/` | `Distribution`, `ProcessGrid`: which rank has which elements |
| `casting.py` | values that a caller gives, cast as NumPy's assignment casts them |
| `assumed_costs.py` | rates and times by which plans are compared |
| `ranked.py` | the registry of the package that serves calls with ``comm=`` |

Nothing here opens a file. Errors are in `outcore.errors`, below all floors.
"""
