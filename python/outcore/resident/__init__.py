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
| `layout.py`    | how does it lie on disk, and why? |
| `temporary.py` | when is a temporary one gone? |

Reference: Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations*.
"""

from outcore.resident.array import DiskResidentArray
from outcore.resident.layout import Candidate, ResidentLayout
from outcore.resident.making import disk_array
from outcore.resident.report import ResidentReport

__all__ = ["Candidate", "DiskResidentArray", "ResidentLayout", "ResidentReport", "disk_array"]
