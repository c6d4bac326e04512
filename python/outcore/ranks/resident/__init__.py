"""
Disk resident arrays: a level of memory of parallel programs.

| file | question |
|---|---|
| `making.py`    | make one from hints, or open one: `disk_array` |
| `array.py`     | what it is, and its life: `DiskResidentArray` |
| `naming.py`    | another name, or none |
| `report.py`    | what would be done: `ResidentReport` |
| `movement.py`  | how do elements go between memory and disk? |
| `partner.py`   | which part of a section in memory goes with which part of one on disk? |
| `temporary.py` | when is a temporary one gone? |

How such an array lies on disk, and why, `outcore.arrays.layouts` chooses.

Reference: Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations*.
"""

from outcore.arrays.layouts import LayoutCandidate, ResidentLayout
from outcore.ranks.resident.array import DiskResidentArray
from outcore.ranks.resident.making import disk_array
from outcore.ranks.resident.report import ResidentReport

__all__ = ["DiskResidentArray", "LayoutCandidate", "ResidentLayout", "ResidentReport", "disk_array"]
