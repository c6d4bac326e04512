"""
Lists of indices, in memory and larger than memory.

| file | holds |
|---|---|
| `parts.py` | accesses by lists larger than memory: one range of elements after another |
| `kept.py` | lists in memory, as they are or as runs |
| `stored.py` | lists larger than memory, in a scratch file, and where they are cut |
"""
