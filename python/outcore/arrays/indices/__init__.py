"""
Irregular access: elements selected by arrays of indices or by masks.

| file | contents |
|---|---|
| `schedule.py`       | `IndexSchedule`: created once, used for many arrays and time steps |
| `schedule_files.py` | files of schedules |
| `lists/`            | lists of indices in memory and larger than memory |
| `points.py`         | reads and writes of the points of a key, with conversions in boxes |
| `sieved_masks.py`   | masks of almost every page: blocks are read, and elements extracted from them |
| `keys.py`           | keys with arrays, lists and masks in a normal form: `Points` |
| `masks.py`          | indices of the nonzero elements of an array in memory or on disk |

The core determines addresses and the order of accesses (``crates/plan/src/points``,
``crates/access/src/indexed.rs``); the methods of users are in ``outcore/arrays/disk/selecting.py``.
This file imports nothing, because a basic key needs none of the modules.
"""
