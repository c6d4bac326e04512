"""
A slow shared device: ranks in a control group whose block I/O is limited.

What a shared parallel file system looks like to one client: so many requests a second, so many bytes,
however many ranks ask. The kernel counts what reaches the device, so the group also tells how many
requests and bytes each candidate needed; without limits it only counts.

Version 1 of control groups has ``blkio.throttle``, version 2 ``io.max`` (not tried yet); both need the
right to make a group, usually root. Under version 1 only what a rank itself sends to the device is
limited: reads, and writes by its own fsync, not what the kernel writes back later. What was saved up
while the device was idle is given at once (a slice of the throttle, a tenth of a second or less):
whoever measures lets it idle before each run, so that all find the same.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device import PAGE, Device, Requests, Runs, union


@dataclass(frozen=True)
class Limits:
    """Requests and bytes a second."""

    requests: int = 200
    rate: int = 100_000_000


class Unavailable(Exception):
    """Why there is no group, in one sentence."""


def device_of(path: Path) -> str:
    """``major:minor`` of the disk that holds a file; a partition's disk."""
    number = os.stat(path).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    block = Path("/sys/dev/block") / name
    if not block.exists():
        raise Unavailable(f"{path.name} is on no block device ({name})")
    if (block / "partition").exists():
        name = (block.resolve().parent / "dev").read_text().strip()
    return name


def _parent() -> tuple[int, Path]:
    """Version of control groups, and the folder in which a group with block I/O may be made."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path.strip("/")))
    second = None
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, words = line.split()[:4]
        if kind == "cgroup" and "blkio" in words.split(","):
            return 1, Path(place) / own.get("blkio", "")
        if kind == "cgroup2":
            second = Path(place)
    if second is None:
        raise Unavailable("no control groups are mounted")
    # A group with processes of its own hands no controllers down, so ours is made at the root.
    if "io" not in (second / "cgroup.subtree_control").read_text().split():
        raise Unavailable(
            "the io controller is not handed down (cgroup.subtree_control, version 2)"
        )
    return 2, second


class Group:
    """
    A control group for ranks; used in a ``with`` statement, which removes it at the end.

    Parameters
    ----------
    file
        A file on the disk in question.
    limits
        What the disk gives the group; without, it only counts.

    Raises
    ------
    Unavailable
        Where the machine does not let us.
    """

    def __init__(self, file: Path, limits: Limits | None) -> None:
        self._device = device_of(file)
        try:
            self.version, parent = _parent()
            self.folder = parent / f"outcore-bench-{os.getpid()}"
            self.folder.mkdir()
        except OSError as error:
            raise Unavailable(f"no control group may be made ({error.strerror})") from error
        try:
            if limits is not None:
                self._limit(limits)
        except OSError as error:
            self.folder.rmdir()
            raise Unavailable(f"block I/O may not be limited ({error.strerror})") from error

    def _limit(self, limits: Limits) -> None:
        if self.version == 2:
            words = f"rbps={limits.rate} wbps={limits.rate}"
            words += f" riops={limits.requests} wiops={limits.requests}"
            (self.folder / "io.max").write_text(f"{self._device} {words}")
            return
        for way in ("read", "write"):
            for what, value in (("bps", limits.rate), ("iops", limits.requests)):
                name = f"blkio.throttle.{way}_{what}_device"
                (self.folder / name).write_text(f"{self._device} {value}")

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        until = time.monotonic() + 5
        while True:
            try:
                return self.folder.rmdir()
            except OSError:  # processes of it are still ending
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def enter(folder: Path) -> None:
    """Move this process, with all its threads, into a group."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def counts(folder: Path, device: str) -> tuple[int, int]:
    """Requests and bytes, read and written, that a group had from a device so far."""
    found = {"requests": 0, "bytes": 0}
    if (folder / "io.stat").exists():
        for line in (folder / "io.stat").read_text().splitlines():
            name, *words = line.split()
            values = dict(word.split("=", 1) for word in words)
            if name == device:
                found["requests"] = int(values["rios"]) + int(values["wios"])
                found["bytes"] = int(values["rbytes"]) + int(values["wbytes"])
    else:
        for what, name in (("requests", "io_serviced"), ("bytes", "io_service_bytes")):
            for line in (folder / f"blkio.throttle.{name}").read_text().splitlines():
                words = line.split()
                if words[0] == device and words[1] in ("Read", "Write"):
                    found[what] += int(words[2])
    return found["requests"], found["bytes"]


def least(limits: Limits, device: Device, runs: list[Runs]) -> tuple[float, Requests]:
    """Least seconds under the limits for the union of some sections, and the requests for it.

    Gaps cost bytes, requests cost their number; both limits hold at the same time, so the best cut is
    the one whose slower limit is fastest.
    """
    best: tuple[float, Requests] | None = None
    for power in range(16):
        begin, end = union(device, runs, gap=PAGE << power)
        needed = max(len(begin) / limits.requests, int(np.sum(end - begin)) / limits.rate)
        if best is None or needed < best[0]:
            best = needed, (begin, end)
    assert best is not None
    return best
