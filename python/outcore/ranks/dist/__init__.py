"""
Arrays divided over the memory of ranks.

| file | contents |
|---|---|
| `base.py`      | `Divided`: the part of one rank, and the positions of its elements |
| `window.py`    | memory shared with other ranks: parts on this node, requests to other nodes, locks |
| `one_sided.py` | `OneSided`: `get`, `put`, `acc`, ... |
| `sums.py`      | sums of products with the same bits for any order of addition |
| `products.py`  | products of matrices, panel by panel: SUMMA |
| `whole.py`     | `WholeArrays`: fill, add, dot, matmul, ... |
| `array.py`     | `DistArray`: redistribution, ghosts, files |
| `redistribution.py` | elements sent from ranks that have them to ranks that need them |
| `periodic.py`  | periodic ghosts |
"""

from __future__ import annotations

from outcore.base.distribution import Align, Distribution, ProcessGrid
from outcore.ranks.dist.array import DistArray
from outcore.ranks.dist.window import PatchLock

__all__ = ["Align", "DistArray", "Distribution", "PatchLock", "ProcessGrid"]
