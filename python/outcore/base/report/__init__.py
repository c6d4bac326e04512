"""
Reports: what an access will do, what the work took, and pictures of that.

| file        | holds |
|-------------|---|
| `access.py` | `Report`, `BlocksReport`: the answers of `explain`; numbers for people |
| `bars.py`   | `Drawn`: a report as a picture |
| `svg.py`    | the writer of SVG, for other pictures, too |
| `progress.py` | what `progress=` may be, and a bar |
| `phases.py` | `Seconds`: where the time goes |
"""

from outcore.base.report.access import BlocksReport, Report, counted, human, human_time, thousands

__all__ = ["BlocksReport", "Report", "counted", "human", "human_time", "thousands"]
