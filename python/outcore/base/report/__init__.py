"""
Reports: plan of an access, cost of the work done, and pictures of both.

| file        | contents |
|-------------|---|
| `access.py` | `Report`, `BlocksReport`: results of `explain`; human-readable numbers |
| `bars.py`   | `DrawableReport`: a report as a picture |
| `svg.py`    | writer of SVG, also for other pictures |
| `progress.py` | values of `progress=`, and a progress bar |
| `phases.py` | `Seconds`: time spent in each phase |
"""

from outcore.base.report.access import (
    BlocksReport,
    Report,
    format_bytes,
    format_count,
    format_number,
    format_time,
)

__all__ = ["BlocksReport", "Report", "format_bytes", "format_count", "format_number", "format_time"]
