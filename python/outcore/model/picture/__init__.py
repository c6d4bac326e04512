"""
Pictures of collective calls: the sections of the ranks, the ranks that read them, and the savings.

| file | contents |
|---|---|
| `page.py`     | `draw`: the page and its panels |
| `array.py`    | the array, and the sections of the ranks |
| `file.py`     | the file: independent accesses, and the file domains of the owners |
| `rounds.py`   | rounds in time, and the bytes exchanged between ranks |
| `scene.py`    | the numbers of the plan; colours |
| `geometry.py` | positions of elements, in the file and on the page |

The SVG writer is `outcore.base.report.svg`, which pictures of reports (`outcore.base.report.bars`) also
use.
"""

from outcore.model.picture.page import draw

__all__ = ["draw"]
