"""
Many ranks: messages, agreement, collective access and arrays that ranks share.

| file | holds |
|---|---|
| `transport/` | messages between ranks; the only package that imports mpi4py |
| `agreement.py` | the synchronisations before data move: all ranks go on, or all raise |
| `ranks.py` | `Ranks`: the ranks of one call, as an object |
| `collective/` | two-phase reads and writes of sections and lists; `open` with ``comm=`` |
| `dist/` | `DistArray`: an array in the memories of all ranks |
| `resident/` | disk resident arrays: sections between disk and the memories of ranks |
| `restart/` | checkpoints of distributed arrays |
"""
