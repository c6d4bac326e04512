"""
Many ranks: messages, agreement, collective access and arrays that ranks share.

| file | contents |
|---|---|
| `transport/` | messages between ranks; the only package that imports mpi4py |
| `agreement.py` | synchronisation before data is moved: all ranks continue, or all raise |
| `ranks.py` | `Ranks`: the ranks of one call, as an object |
| `collective/` | two-phase reads and writes of sections and lists; `open` with ``comm=`` |
| `dist/` | `DistArray`: an array in the memory of all ranks |
| `resident/` | disk resident arrays: sections between disk and the memory of ranks |
| `restart/` | checkpoints of distributed arrays |
"""
