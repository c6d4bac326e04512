"""
Figures of disks: measured by ``outcore bench`` or learned from reads, kept for the user.

Problem. Whether a gap between two wanted runs is read or skipped depends on the disk, by a factor of
hundreds. Idea. Measure, write the figures into the user's cache folder, and tell the core about the
disks that are mounted now. A disk that nobody measured is learned while it is read
(crates/io/src/disks.rs); where that is far from what was assumed, a process that ends keeps what it
learned in the same file, marked as learned. Later processes begin with it.

Invariants. Figures never change results. A damaged or foreign file of figures is ignored. What was
measured is never replaced by what was learned. ``OUTCORE_LEARN_DISKS=0`` switches learning off: then
equal calls have equal plans, whatever the disk does.
"""

from __future__ import annotations

import os
import time
from typing import Any

from outcore import _core
from outcore.errors import StorageError, UsageError

__all__ = ["figures_path", "keep_learned", "known", "measure", "use"]

_MIB = 2**20
# A smaller file says nothing of a disk: most of it is in flight at once.
_LEAST = 16 * _MIB

# What plans use: the gap that is cheaper to read than to skip, in bytes; the cost of one more
# request at depth, in nanoseconds; bytes per second beyond that, and of the fastest stream.
_USED = ("gap", "latency_ns", "device", "stream")


def figures_path() -> str:
    """Where the figures are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "outcore", "disk.json")


def known() -> list[dict[str, Any]]:
    """The figures of all measured disks; empty if there are none that can be read."""
    try:
        with open(figures_path(), encoding="utf-8") as stream:
            import json  # long to import, and most users have no figures

            document = json.load(stream)
        return [disk for disk in document["disks"] if all(isinstance(disk[n], int) for n in _USED)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def use() -> None:
    """Tell the core about the disks that are mounted now and were measured, or learned."""
    measured: dict[int, tuple[int, int, int, int]] = {}
    learned: dict[int, tuple[int, int, int, int]] = {}
    for disk in known():
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


def keep_learned() -> None:
    """
    Keep what this process has learned of disks that nobody measured; called when it ends.

    What cannot be written is not kept: a disk is learned again within a second of reading.
    """
    for path, gap, latency, rate, stream in _core.learned_disks():
        try:
            figures: dict[str, Any] = {"gap": gap, "latency_ns": latency, "device": rate}
            figures |= {"stream": stream, "mount": mount_of(os.path.dirname(path)), "learned": True}
            if any(d.get("mount") == figures["mount"] and not d.get("learned") for d in known()):
                continue
            _keep(figures | {"date": _now()})
        except (OSError, StorageError):
            continue


def measure(folder: str, *, file_bytes: int = 1024 * _MIB, slice_ms: int = 250) -> dict[str, Any]:
    """
    Measure the disk below `folder` and keep the figures.

    Parameters
    ----------
    folder
        Any folder on that disk in which a file may be made (it has no name and leaves nothing).
    file_bytes
        Size of that file; at least 16 MiB.
    slice_ms
        Time for each of about thirty figures.

    Returns
    -------
    dict
        Figures: rates in bytes per second, times in nanoseconds.

    Raises
    ------
    UsageError
        No folder (``bad-folder``), or a file too small to measure with (``bad-option``).
    StorageError
        The folder cannot be written, or the disk is too full.
    """
    if file_bytes < _LEAST:
        raise UsageError(
            f"a file of {file_bytes} bytes is too small to measure a disk with; use 16MiB or more",
            code="bad-option",
        )
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise UsageError(
            f"{folder!r} is not a folder; name one on the disk to measure",
            code="bad-folder",
            path=folder,
        )
    figures = _core.measure_disk(folder, file_bytes, slice_ms)
    figures["mount"] = mount_of(folder)
    figures["date"] = _now()
    _keep(figures)
    use()
    return figures


def mount_of(folder: str) -> str:
    """
    The highest folder on the same device.

    >>> mount_of("/")
    '/'
    """
    here = os.path.realpath(folder)
    device = os.stat(here).st_dev
    while here != "/" and os.stat(os.path.dirname(here)).st_dev == device:
        here = os.path.dirname(here)
    return here


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _keep(figures: dict[str, Any]) -> None:
    others = [disk for disk in known() if disk.get("mount") != figures["mount"]]
    import json

    from outcore.formats import durable  # with it would come all that opens arrays

    text = json.dumps({"version": 1, "disks": [*others, figures]}, indent=1).encode()
    path = figures_path()
    with durable.os_errors("creating the folder of", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)

    durable.create_file(path, lambda fd: durable.write_all(fd, text, 0), exclusive=False)
