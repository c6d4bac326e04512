"""
Timing that can be trusted on a noisy machine.

Rules: all candidates of a row run interleaved, in a new order each
repetition; median of at least five; results are compared element by element before anything is
printed; cold runs evict every file of the candidate first and check that it worked; memory of the
size of the result is touched and freed before each timed run, because memory that has lain idle
has gone back to the host here and costs seconds to get back (see `README.md`).
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_CACHESTAT = 451


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Stat(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("cache", "dirty", "writeback", "evicted", "recent")]


def cached_bytes(path: Path) -> int:
    """Bytes of a file in the page cache (cachestat), or -1 where the kernel cannot say."""
    fd = os.open(path, os.O_RDONLY)
    try:
        span, stat = _Range(0, 0), _Stat()
        if _libc.syscall(_CACHESTAT, fd, ctypes.byref(span), ctypes.byref(stat), 0) != 0:
            return -1
        return int(stat.cache) * 4096
    finally:
        os.close(fd)


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The plain files at or below some paths."""
    found: list[Path] = []
    for path in paths:
        found += [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return found


def evict(paths: Iterable[Path], patience: float = 5.0) -> None:
    """
    Take files out of the page cache; raise if the kernel keeps more than a few pages.

    What it is reading ahead for a program that has ended cannot be dropped before it is there: on a slow
    device that takes a while (`patience`, seconds).
    """
    for path in files_of(paths):
        until = time.monotonic() + patience
        while (left := _left_after_dropping(path)) > max(1 << 20, path.stat().st_size // 1000):
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{path.name}: {left} bytes stay in the page cache; is it mapped?"
                )
            time.sleep(0.05)


def _left_after_dropping(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return cached_bytes(path)


def warm(paths: Iterable[Path]) -> None:
    """Read files into the page cache."""
    buffer = bytearray(4 << 20)
    for path in files_of(paths):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def touch(nbytes: int) -> None:
    """Touch and free memory, so that the timed run finds the host's pages in place."""
    np.ones(max(nbytes, 1 << 20), dtype=np.uint8)


@dataclass
class Row:
    """One line of a table: a case and the seconds of each candidate."""

    case: str
    nbytes: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Median seconds of a candidate; infinity if it gave wrong results or did not run."""
        if name in self.wrong or not self.seconds.get(name):
            return float("inf")
        return statistics.median(self.seconds[name])

    def rate(self, name: str) -> float | str:
        """MB/s of a candidate; infinity, which is shown as none, if it did not run."""
        if name in self.wrong:
            return "wrong"
        return self.nbytes / 1e6 / self.median(name) if self.seconds.get(name) else float("inf")


def interleave(
    row: Row,
    candidates: dict[str, Callable[[], Any]],
    *,
    repeat: int,
    before: Callable[[str], None] = lambda name: None,
    check: Callable[[str], bool] = lambda name: True,
) -> Row:
    """Run all candidates `repeat` times, each time in another order; fill `row`.

    Not in rotation: whoever follows the same neighbour each time inherits its cache contents.
    """
    names = list(candidates)
    rng = random.Random(0)
    for turn in range(repeat):
        rng.shuffle(names)
        for name in names:
            before(name)
            start = time.perf_counter()
            candidates[name]()
            row.seconds.setdefault(name, []).append(time.perf_counter() - start)
            if turn == 0 and not check(name):
                row.wrong.add(name)
    return row


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commit": commit,
    }


def table(rows: list[Row], columns: list[str], ours: list[str], target: str) -> str:
    """A markdown table in milliseconds with the ratio of ours to the best peer (or to `target`)."""
    lines = [
        "| case | MB | "
        + " | ".join(columns)
        + " | "
        + " | ".join(f"{o} ratio" for o in ours)
        + " |",
        "|---|---:|" + "---:|" * (len(columns) + len(ours)),
    ]
    for row in rows:
        cells = []
        for name in columns:
            value = row.median(name)
            if name in row.wrong:
                cells.append("wrong")
            else:
                cells.append("-" if value == float("inf") else f"{value * 1e3:.2f}")
        peers = [row.median(c) for c in columns if c not in ours]
        base = row.extra.get(target) or min(peers, default=float("inf"))
        ratios = [f"{row.median(o) / base:.2f}" for o in ours]
        lines.append(
            f"| {row.case} | {row.nbytes / 1e6:.1f} | " + " | ".join(cells + ratios) + " |"
        )
    return "\n".join(lines)


def save(path: Path, question: str, rows: list[Row]) -> None:
    """Append raw repetitions as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            record = {
                "question": question,
                "case": row.case,
                "bytes": row.nbytes,
                "seconds": row.seconds,
                "wrong": sorted(row.wrong),
                "extra": row.extra,
                "machine": machine(),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            file.write(json.dumps(record) + "\n")
