"""
What an access costs, in nanoseconds: integers, so that what ranks add up is equal on all of them.

Figures of the disk are those that `outcore bench` measured, where it did; those of the processor are
assumed. Only the order of methods counts.
"""

from __future__ import annotations

from typing import Any

from outcore.disk import DiskArray
from outcore.report import Report

__all__ = ["of_report", "of_requests", "price"]

# As in crates/plan/src/terms.rs.
_CACHED = 9_000_000_000
_CALL_NS = 300
_WRITE = 4_000_000_000
_WRITE_CALL_NS = 6_000
_DIRTY_NS = 5_000
_DECODE = 800_000_000


def price(array: DiskArray, key: Any, *, write: bool = False) -> int:
    """Tell what an access to a section would cost, as the page cache is now."""
    return of_report(array.explain(key, write=write), array)


def of_report(report: Report, array: DiskArray) -> int:
    """Tell what the plan of a report costs on the disk of its array."""
    _, request_ns, device, stream = array._core.disk()
    requests = report.reads + report.writes
    moved = report.read_bytes + report.written_bytes
    second = 1_000_000_000
    cold = of_requests(requests, moved, (request_ns, device, stream))
    if report.direction == "write":
        # Side by side with other ranks.
        warm = requests * _WRITE_CALL_NS + moved * second // _WRITE
        warm += report.mapped_bytes // 4096 * _DIRTY_NS + report.mapped_bytes * second // _CACHED
    else:
        warm = requests * _CALL_NS + (moved + report.mapped_bytes) * second // _CACHED
    bypass = array.hints.cache == "bypass"
    cached = 0 if bypass or report.cached is None else round(1000 * report.cached)
    coded = (report.decodes + report.encodes) and report.useful_bytes * second // _DECODE
    return (cold * (1000 - cached) + warm * cached) // 1000 + coded


def of_requests(
    requests: int, moved: int, disk: tuple[int, int, int] = (9_500, 2_600_000_000, 2_800_000_000)
) -> int:
    """
    Tell what requests cost that move so many bytes, none of them cached.

    Parameters
    ----------
    disk
        Nanoseconds a request, bytes per second of one, and of a stream; by default those that plans
        assume of a disk that nobody measured.
    """
    second = 1_000_000_000
    request_ns, device, stream = disk
    return max(requests * request_ns + moved * second // device, moved * second // stream)
