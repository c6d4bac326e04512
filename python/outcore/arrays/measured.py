"""
Parameters of disks: measured by ``outcore bench`` or learned from reads, stored for the user.

Problem: whether a gap between two requested runs should be read or skipped depends on the disk, by a
factor of hundreds.
Approach: measure the parameters, store them in the user's cache folder, and pass those of mounted disks
to the core. A disk that was not measured is learned from reads (crates/io/src/disks.rs). If the learned
parameters differ much from the assumed ones, a process stores them in the same file when it ends,
marked as learned. Later processes start with them.

Invariants: parameters never change results. A damaged or foreign file is ignored. Learned parameters
never replace measured ones. ``OUTCORE_LEARN_DISKS=0`` disables learning: equal calls then have equal
plans, whatever the disk does.
"""

from __future__ import annotations

import os
import time
from typing import Any

from outcore import _core
from outcore.errors import StorageError, UsageError

__all__ = ["apply_parameters", "get_path", "measure", "read_parameters", "store_learned"]

_MIB = 2**20
# A smaller file does not measure a disk: most of it is in flight at once.
_LEAST = 16 * _MIB

# Parameters used by plans: the largest gap in bytes that is cheaper to read than to skip; nanoseconds
# for one additional concurrent request; bytes per second for larger requests, and for the fastest
# stream.
_USED = ("gap", "latency_ns", "device", "stream")


def get_path() -> str:
    """Return the path of the file with the parameters."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "outcore", "disk.json")


def read_parameters() -> list[dict[str, Any]]:
    """Return the parameters of all measured disks; empty if no file can be read."""
    try:
        with open(get_path(), encoding="utf-8") as stream:
            import json  # slow to import, and rarely needed

            document = json.load(stream)
        return [disk for disk in document["disks"] if all(isinstance(disk[n], int) for n in _USED)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def apply_parameters() -> None:
    """Pass the parameters of mounted disks that were measured or learned to the core."""
    measured: dict[int, tuple[int, int, int, int]] = {}
    learned: dict[int, tuple[int, int, int, int]] = {}
    for disk in read_parameters():
        try:
            device = os.stat(os.fspath(disk["mount"])).st_dev  # a number would be a descriptor
        except (OSError, KeyError, TypeError, ValueError):
            continue
        gap, latency, rate, stream = (min(max(disk[name], 0), 2**62) for name in _USED)
        if rate and stream:
            to = learned if disk.get("learned") else measured
            to[device] = (gap, latency, rate, stream)
    _core.set_disks(measured, learned)
    _core.set_learning(os.environ.get("OUTCORE_LEARN_DISKS", "1") != "0")


def store_learned() -> None:
    """
    Store the learned parameters of disks that were not measured; called when the process ends.

    If the file cannot be written, they are lost: a disk is learned again within a second of reading.
    """
    for path, gap, latency, rate, stream in _core.learned_disks():
        try:
            figures: dict[str, Any] = {"gap": gap, "latency_ns": latency, "device": rate}
            figures |= {
                "stream": stream,
                "mount": find_mount(os.path.dirname(path)),
                "learned": True,
            }
            if any(
                d.get("mount") == figures["mount"] and not d.get("learned")
                for d in read_parameters()
            ):
                continue
            _store(figures | {"date": _get_time()})
        except (OSError, StorageError):
            continue


def measure(folder: str, *, file_bytes: int = 1024 * _MIB, slice_ms: int = 250) -> dict[str, Any]:
    """
    Measure the disk of `folder`, and store and return its parameters (bytes/s, nanoseconds).

    A file of `file_bytes` (at least 16 MiB) is created there; it has no name and leaves nothing.
    There are about thirty measurements of `slice_ms` each.

    Raise `UsageError` if `folder` is not a folder (``bad-folder``) or the file is too small to
    measure with (``bad-option``), and `StorageError` if the folder is not writable or the disk is
    too full.
    """
    if file_bytes < _LEAST:
        raise UsageError(
            f"a file of {file_bytes} bytes is too small to measure a disk; use 16MiB or more",
            code="bad-option",
        )
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise UsageError(
            f"{folder!r} is not a folder; pass one on the disk to measure",
            code="bad-folder",
            path=folder,
        )
    figures = _core.measure_disk(folder, file_bytes, slice_ms)
    figures["mount"] = find_mount(folder)
    figures["date"] = _get_time()
    _store(figures)
    apply_parameters()
    return figures


def find_mount(folder: str) -> str:
    """
    Return the topmost folder on the same device.

    >>> find_mount("/")
    '/'
    """
    here = os.path.realpath(folder)
    device = os.stat(here).st_dev
    while here != "/" and os.stat(os.path.dirname(here)).st_dev == device:
        here = os.path.dirname(here)
    return here


def _get_time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _store(figures: dict[str, Any]) -> None:
    others = [disk for disk in read_parameters() if disk.get("mount") != figures["mount"]]
    import json

    from outcore.formats import durable  # it imports all that opens arrays

    text = json.dumps({"version": 1, "disks": [*others, figures]}, indent=1).encode()
    path = get_path()
    with durable.os_errors("creating the folder of", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)

    durable.create_file(path, lambda fd: durable.write_all(fd, text, 0), exclusive=False)
