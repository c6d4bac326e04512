"""
Disk resident arrays: arrays on disk as a level of memory of parallel programs.

| file | contents |
|---|---|
| `making.py`    | `disk_array`: make an array from hints, or open one |
| `array.py`     | `DiskResidentArray`: its properties, movements and life cycle |
| `naming.py`    | rename and remove |
| `report.py`    | `ResidentReport`: the plan of a movement |
| `movement.py`  | move elements between memory and disk |
| `partner.py`   | match a section in memory with a section on disk |
| `temporary.py` | remove temporary arrays after their last use |

`outcore.arrays.layouts` chooses the layout of such an array on disk.

Reference: Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations*.
"""

from outcore.arrays.layouts import LayoutCandidate, ResidentLayout
from outcore.ranks.resident.array import DiskResidentArray
from outcore.ranks.resident.making import disk_array
from outcore.ranks.resident.report import ResidentReport

__all__ = ["DiskResidentArray", "LayoutCandidate", "ResidentLayout", "ResidentReport", "disk_array"]
