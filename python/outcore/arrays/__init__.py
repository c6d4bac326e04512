"""
Arrays on disk, opened by one process.

| file | contents |
|---|---|
| `opening.py`, `creating.py`, `groups.py` | `open`, `open_many`, `create`, `open_group` |
| `verification.py` | `verify`: reads every chunk |
| `disk/` | `DiskArray`: keys, assignments, attributes, growth |
| `strings.py` | `StringArray`: text of variable length |
| `indices/` | accesses by lists of indices and by masks |
| `blocks.py` | blocks of an array within the memory budget |
| `handle.py` | `Handle`: the state of an open array, for all packages |
| `virtual/` | arrays over other arrays |
| `schedule/` | schedules of computations, and the loop that executes them |
| `tiling/`, `pieces.py` | tiles that suit both sides of a copy; sections of arrays in pieces |
| `layouts.py`, `likeness.py` | chunk shapes by cost; properties that a new array takes from another |
| `measured.py` | measured and learned parameters of disks |
"""
