"""
The device model: the least time in which a disk can deliver a cold section.

The union of the 4 KiB pages that the section touches; a gap that is cheaper to read than to skip is
read; every request costs ``latency + size / rate`` at full depth, and all bytes together never less
than ``bytes / ceiling``. Figures come from ``outcore bench`` where it ran, else from defaults.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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


def measured() -> Device:
    """The device as `outcore bench` measured it here, or the default."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = cache / "outcore" / "disk.json"
    if not path.exists():
        return Device()
    stored = json.loads(path.read_text())
    latency = stored.get("latency_ns")
    rate = stored.get("read_bytes_per_s")
    if not latency or not rate:
        return Device()
    return Device(latency * 1e-9, float(rate), float(rate) * 1.08)


def seconds(
    device: Device, count: list[int], stride: list[int], offset: int, length: int
) -> tuple[float, int, int]:
    """Least seconds, requests and bytes for runs of `length` bytes at regular distances."""
    starts = np.array([offset], dtype=np.int64)
    for n, s in zip(reversed(count), reversed(stride), strict=True):
        if abs(s) < device.gap and s <= device.gap:
            continue
        starts = (starts[None, :] + (np.arange(n, dtype=np.int64) * s)[:, None]).ravel()
    span = length
    for n, s in zip(count, stride, strict=True):
        if abs(s) < device.gap:
            span += (n - 1) * s
    first = starts // PAGE * PAGE
    last = -(-(starts + span) // PAGE) * PAGE
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    cut = np.flatnonzero(first[1:] - last[:-1] > device.gap) + 1
    begin = first[np.concatenate([[0], cut])]
    end = last[np.concatenate([cut - 1, [len(last) - 1]])]
    sizes = end - begin
    requests = int(np.sum(-(-sizes // device.request)))
    total = int(sizes.sum())
    return (
        max(requests * device.latency + total / device.rate, total / device.ceiling),
        requests,
        total,
    )
