"""
Arrays divided over the memory of ranks.

| file | holds |
|---|---|
| `base.py`      | `Divided`: what one rank has, and where |
| `window.py`    | memory that other ranks see: parts on this node, requests to others, locks |
| `one_sided.py` | `OneSided`: `get`, `put`, `acc`, ... |
| `sums.py`      | sums of products whose bits do not depend on who adds what |
| `products.py`  | products of matrices, panel by panel: SUMMA |
| `whole.py`     | `WholeArrays`: fill, add, dot, matmul, ... |
| `array.py`     | `DistArray`: redistribution, ghosts, files |
| `redistribution.py` | elements go from ranks that have them to ranks that want them |
| `periodic.py`  | ghosts that go round |
"""

from __future__ import annotations

from outcore.ranks.dist.array import DistArray
from outcore.ranks.dist.window import PatchLock
from outcore.base.distribution import Align, Distribution, ProcessGrid

__all__ = ["Align", "DistArray", "Distribution", "PatchLock", "ProcessGrid"]
