"""
Arrays whose elements are sections of other arrays: HDF5 virtual datasets.

| file           | contents |
|----------------|---|
| `core.py`      | the interface of a core array, for an array over other arrays |
| `schedules.py` | prepared indices |
| `sections.py`  | sections of sources: bounds, overlaps, conversion of elements |

`disk` opens every array with `open_core`, virtual or not.
"""
