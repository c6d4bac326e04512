"""
Lists of indices, in memory and larger than memory.

| file | contents |
|---|---|
| `parts.py` | accesses by lists larger than memory: one range of elements after another |
| `kept.py` | lists in memory, as indices or as runs |
| `stored.py` | lists larger than memory, in a scratch file, and their division into ranges |
"""
