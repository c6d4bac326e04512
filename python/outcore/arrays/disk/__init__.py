"""
Arrays on disk: `DiskArray`.

| file            | what it has |
|-----------------|---|
| `array.py`      | `DiskArray`: sections read and written, its life, its length |
| `selecting.py`  | elements chosen by their indices: `take`, `put`, `oindex`, ... |
| `walking.py`    | loops over it: `blocks`, rows |
| `described.py`  | what arrays and groups on disk say of themselves |
| `operators.py`  | what others expect of arrays in memory: operators, NumPy's functions |
| `growth.py`     | how it becomes longer or shorter |
| `attributes.py` | `a.attrs`: of groups, too |
"""

from outcore.arrays.disk.array import DiskArray, Mode

__all__ = ["DiskArray", "Mode"]
