"""
Arrays whose elements are sections of other arrays: HDF5 virtual datasets.

| file           | what it has |
|----------------|---|
| `core.py`      | what a `DiskArray` asks of its core, for an array over others |
| `schedules.py` | indices made ready |
| `sections.py`  | sections of sources: what lies in one, which meet, conversion of elements |

`core_of` is what `disk` opens an array with, whether it is virtual or not.
"""
