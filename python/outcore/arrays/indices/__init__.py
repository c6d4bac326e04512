"""
Irregular access: elements chosen by arrays of indices or by masks.

| file | holds |
|---|---|
| `schedule.py`       | `IndexSchedule`: made once, used for many arrays and time steps |
| `schedule_files.py` | files of schedules |
| `lists/`            | lists of indices in memory and larger than memory |
| `points.py`         | reads and writes of the points of a key, with conversions in boxes |
| `sieved_masks.py`   | masks of almost every page: blocks are read, elements taken out of them |
| `keys.py`           | keys with arrays, lists and masks in a normal form: `Points` |
| `masks.py`          | indices of what is not zero in an array in memory or on disk |

Addresses and the order of accesses are the core's (``crates/plan/src/points``,
``crates/access/src/indexed.rs``); methods of users are in ``outcore/arrays/disk/selecting.py``. Nothing
is imported here, because a basic key needs none of it.
"""
