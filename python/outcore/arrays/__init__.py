"""
Arrays on disk, opened by one process.

| file | holds |
|---|---|
| `opening.py`, `creating.py`, `groups.py` | `open`, `open_many`, `create`, `open_group` |
| `verification.py` | `verify`: reads every chunk |
| `disk/` | `DiskArray`: keys, assignments, attributes, growth |
| `strings.py` | `StringArray`: text of variable length |
| `indices/` | accesses by lists of indices and by masks |
| `blocks.py` | slabs of an array under a limit of memory |
| `handle.py` | `Handle`: the state of an open array, for all packages |
| `virtual/` | arrays over other arrays |
| `schedule/` | computations as values, and the loop that runs them |
| `tiling/`, `pieces.py` | tiles that are good for both sides of a copy; sections of arrays in pieces |
| `layouts.py`, `likeness.py` | chunk shapes by price; properties that a new array takes from another |
| `measured.py` | measured and learned figures of disks |
"""
