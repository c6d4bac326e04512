"""
The device model: the least time in which a disk can deliver a cold section.

The union of the 4 KiB pages that the section touches; a gap that is cheaper to read than to skip is
read; every request costs ``latency + size / rate`` at full depth, and all bytes together never less
than ``bytes / ceiling``. Figures come from ``outcore bench`` where it ran, else from defaults.

A virtual disk is not as fast now as it was when it was measured, so the same requests are also done
by the device itself in the same run (`Floor`).
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peers import compiled

PAGE = 4096


@dataclass(frozen=True)
class Device:
    """Latency per request at depth (s), rate per request (B/s), ceiling over all (B/s)."""

    latency: float = 9.5e-6
    rate: float = 2.6e9
    ceiling: float = 2.8e9
    request: int = 1 << 20

    @property
    def gap(self) -> int:
        """Bytes below which reading a gap is cheaper than another request."""
        return int(self.latency * self.rate)


def measured(folder: Path) -> Device:
    """The disk of a folder as `outcore bench` measured it last, or the default."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = cache / "outcore" / "disk.json"
    if not path.exists():
        return Device()
    here = os.stat(folder).st_dev
    for disk in json.loads(path.read_text())["disks"]:
        if Path(disk["mount"]).exists() and os.stat(disk["mount"]).st_dev == here:
            return Device(disk["latency_ns"] * 1e-9, float(disk["device"]), float(disk["stream"]))
    return Device()


Requests = tuple[np.ndarray, np.ndarray]
# Counts, byte strides, first byte and length of regular runs (`peers.file_runs`).
Runs = tuple[list[int], list[int], int, int]


def requests(
    device: Device,
    count: list[int],
    stride: list[int],
    offset: int,
    length: int,
    gap: int | None = None,
) -> Requests:
    """First and last byte of the requests that runs of `length` bytes at regular distances need.

    Gaps below `gap` are taken with them: by default what is cheaper to read than to skip.
    """
    gap = device.gap if gap is None else gap
    starts, span = _extents(gap, count, stride, offset, length)
    return _merge(device, gap, starts // PAGE * PAGE, -(-(starts + span) // PAGE) * PAGE)


def union(device: Device, runs: list[Runs], gap: int | None = None) -> Requests:
    """`requests` for the sections of all ranks together: what several want is read once."""
    parts = [requests(device, *some, gap=gap) for some in runs if min(some[0], default=1) > 0]
    nothing = np.zeros(0, np.int64)
    begin = np.concatenate([nothing, *(part[0] for part in parts)])
    end = np.concatenate([nothing, *(part[1] for part in parts)])
    return _merge(device, device.gap if gap is None else gap, begin, end)


def touched(device: Device, index: np.ndarray, item: int, base: int) -> Requests:
    """`requests` for the items of `item` bytes at these indices, ascending; item 0 begins at `base`."""
    begins, ends = [], []
    for at in range(0, len(index), 1 << 20):
        start = index[at : at + (1 << 20)] * item + base
        begin, end = start // PAGE * PAGE, -(-(start + item) // PAGE) * PAGE
        # Of items in the same pages one is enough: there are far more items than pages.
        new = np.flatnonzero((np.diff(begin, prepend=-1) != 0) | (np.diff(end, prepend=-1) != 0))
        begins.append(begin[new])
        ends.append(end[new])
    nothing = np.zeros(0, np.int64)
    return _merge(
        device, device.gap, np.concatenate([nothing, *begins]), np.concatenate([nothing, *ends])
    )


def changed(
    device: Device, count: list[int], stride: list[int], offset: int, length: int
) -> Requests:
    """The same for the pages that a write of these runs changes only a part of."""
    starts, span = _extents(PAGE, count, stride, offset, length)
    if span != length:  # runs with small holes
        return requests(device, count, stride, offset, length)
    ends = starts + span
    pages = np.concatenate([starts[starts % PAGE != 0], ends[ends % PAGE != 0]]) // PAGE * PAGE
    return _merge(device, device.gap, pages, pages + PAGE)


def _extents(
    gap: int, count: list[int], stride: list[int], offset: int, length: int
) -> tuple[np.ndarray, int]:
    """Runs with the holes below `gap` between them: where they start, and their common length."""
    starts = np.array([offset], dtype=np.int64)
    span = length
    for n, s in zip(reversed(count), reversed(stride), strict=True):
        if abs(s) < gap:
            span += (n - 1) * s
        else:
            starts = (starts[None, :] + (np.arange(n, dtype=np.int64) * s)[:, None]).ravel()
    return starts, span


def _merge(device: Device, gap: int, first: np.ndarray, last: np.ndarray) -> Requests:
    """Pieces with small gaps as one, cut into requests."""
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    if len(first) == 0:
        return first, last
    cut = np.flatnonzero(first[1:] - last[:-1] > gap) + 1
    begin = first[np.concatenate([[0], cut])]
    end = last[np.concatenate([cut - 1, [len(last) - 1]])]
    pieces = -(-(end - begin) // device.request)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = np.repeat(begin, pieces) + number * device.request
    return begin, np.minimum(begin + device.request, np.repeat(end, pieces))


def seconds(device: Device, begin: np.ndarray, end: np.ndarray) -> float:
    """Least seconds for these requests by the model."""
    total = int((end - begin).sum())
    return max(len(begin) * device.latency + total / device.rate, total / device.ceiling)


def huge_pages(nbytes: int) -> np.ndarray:
    """Memory for direct I/O, in place already.

    Private, because shared memory has no huge pages, and direct I/O into small pages is three times
    slower.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapped = mmap.mmap(-1, nbytes + (2 << 20), flags=flags)
    mapped.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapped, np.uint8)
    memory = whole[-whole.ctypes.data % (2 << 20) :][:nbytes]
    memory.fill(1)
    return memory


@functools.cache
def load_floor() -> Any:
    """The compiled call of `peers/floor.c`."""
    call = compiled(Path(__file__).parent / "peers" / "floor.c").floor_run
    call.restype = ctypes.c_int64
    return call


def floor_run(
    fd: int,
    offset: np.ndarray,
    length: np.ndarray,
    memory: np.ndarray,
    slot: int,
    *,
    write: bool = False,
) -> None:
    """Requests of at most `slot` bytes past the page cache, as many at once as `memory` has slots."""
    result = load_floor()(
        ctypes.c_int(fd),
        ctypes.c_int(write),
        ctypes.c_int64(len(offset)),
        ctypes.c_void_p(offset.ctypes.data),
        ctypes.c_void_p(length.ctypes.data),
        ctypes.c_void_p(memory.ctypes.data),
        ctypes.c_int64(slot),
        ctypes.c_int64(memory.nbytes // slot),
    )
    if result:
        raise OSError(-result, os.strerror(-result))


class Floor:
    """The device itself doing these requests, at depth, past the page cache (`peers/floor.c`)."""

    SLOTS = 16

    def __init__(self, path: Path, begin: np.ndarray, end: np.ndarray, write: bool = False) -> None:
        self._write = write
        self._fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_DIRECT)
        self._offset = np.ascontiguousarray(begin, dtype=np.int64)
        self._length = np.ascontiguousarray(end - begin, dtype=np.int64)
        self._slot = -(-int(self._length.max()) // PAGE) * PAGE
        self._slots = min(self.SLOTS if self._slot > 65536 else 128, len(begin))
        self._memory = huge_pages(self._slot * self._slots)
        load_floor()

    def run(self) -> None:
        """All requests, once; what is written is on the disk then, whatever it is."""
        floor_run(self._fd, self._offset, self._length, self._memory, self._slot, write=self._write)
        if self._write:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Give up the descriptor; memory goes with the object."""
        os.close(self._fd)
