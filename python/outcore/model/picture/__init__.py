"""
Pictures of collectives: what many ranks want, who reads it, and why that is fast.

| file | holds |
|---|---|
| `page.py`     | `draw`: the page and what stands where |
| `array.py`    | the array, and the sections of the ranks |
| `file.py`     | the file: each rank on its own, and the owners' domains |
| `rounds.py`   | rounds in time, and who gives whom how much |
| `scene.py`    | the numbers of the plan; colours |
| `geometry.py` | where elements are, in the file and on the paper |

The writer of SVG is `outcore.base.report.svg`, which pictures of reports (`outcore.base.report.bars`)
use, too.
"""

from outcore.model.picture.page import draw

__all__ = ["draw"]
