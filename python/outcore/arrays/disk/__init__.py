"""
Arrays on disk: `DiskArray`.

| file            | contents |
|-----------------|---|
| `array.py`      | `DiskArray`: reading and writing sections, flushing and closing, resizing |
| `selecting.py`  | selection by indices: `take`, `put`, `oindex`, ... |
| `walking.py`    | loops over an array: `blocks`, rows |
| `described.py`  | properties of arrays and groups on disk |
| `operators.py`  | the interface of an array in memory: operators, NumPy's functions |
| `growth.py`     | helpers of `resize` and `append` |
| `attributes.py` | `a.attrs`, also of groups |
"""

from outcore.arrays.disk.array import DiskArray, Mode

__all__ = ["DiskArray", "Mode"]
