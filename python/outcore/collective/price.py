"""
What an access costs, in nanoseconds: integers, so that what ranks add up is equal on all of them.

Figures of the disk are those that `outcore bench` measured, where it did; those of the processor are
assumed. Only the order of methods counts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from outcore.disk import DiskArray

__all__ = ["DISK", "Counts", "counts", "of_counts", "of_requests", "price"]

# As in crates/plan/src/terms.rs.
_CACHED = 9_000_000_000
_CALL_NS = 300
_WRITE = 4_000_000_000
_WRITE_CALL_NS = 6_000
_DIRTY_NS = 1_750
_DECODE = 800_000_000
# Of a disk that nobody measured: nanoseconds a request, bytes per second of one, and of a stream.
DISK = (9_500, 2_600_000_000, 2_800_000_000)


class Counts(NamedTuple):
    """
    What a price is made of.

    Parameters
    ----------
    reads, read, writes, written
        Requests to the system, and bytes that they carry.
    mapped, pages
        Bytes copied out of or into mapped files, and pages that these are in.
    coded
        Chunks that go through a codec.
    cached
        Share that is in the page cache, in thousandths; -1 if not looked at.
    """

    reads: int
    read: int
    writes: int
    written: int
    mapped: int
    pages: int
    coded: int
    cached: int


def counts(array: DiskArray, key: Any, *, write: bool = False) -> Counts:
    """Count what an access to a section would take, as the page cache is now."""
    found = Counts(*array._core.counts(key, write))
    past = array.hints.cache == "bypass"
    return found._replace(cached=0) if past or found.cached < 0 else found


def price(array: DiskArray, key: Any, *, write: bool = False) -> int:
    """Tell what an access to a section would cost, as the page cache is now."""
    return of_counts(counts(array, key, write=write), array, write=write)


def of_counts(found: Counts, array: DiskArray, *, write: bool) -> int:
    """Tell what such an access costs on the disk of its array."""
    _, request_ns, device, stream = array._core.disk()
    reads, read, writes, written, mapped, pages, coded, cached = found
    second, disk = 1_000_000_000, (request_ns, device, stream)
    requests, moved = reads + writes, read + written
    if write:
        # Side by side with other ranks.
        warm = requests * _WRITE_CALL_NS + moved * second // _WRITE
        warm += pages * _DIRTY_NS + mapped * second // _CACHED
    else:
        warm = requests * _CALL_NS + (moved + mapped) * second // _CACHED
    if write and reads and not coded:
        # What has been read is changed in the page cache. What the disk gets of that is the same in all
        # ways: pages, from all ranks together.
        cold = of_requests(reads, read, disk) + warm
    else:
        cold = of_requests(requests, moved, disk)
    # Of a chunk there is no part that could be decoded alone.
    codecs = coded * _chunk_bytes(array) * second // _DECODE
    return (cold * (1000 - cached) + warm * cached) // 1000 + codecs


def _chunk_bytes(array: DiskArray) -> int:
    return math.prod(array.chunks or ()) * array.dtype.itemsize


def of_requests(requests: int, moved: int, disk: tuple[int, int, int] = DISK) -> int:
    """
    Tell what requests cost that move so many bytes, none of them cached.

    Parameters
    ----------
    disk
        Nanoseconds a request, bytes per second of one, and of a stream.
    """
    second = 1_000_000_000
    request_ns, device, stream = disk
    return max(requests * request_ns + moved * second // device, moved * second // stream)
