"""Which files this process has open."""

import contextlib
import os
import time
from pathlib import Path


def of(path: Path) -> int:
    """How many descriptors of this process are of the file; other threads close theirs meanwhile."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found.count(str(path))


def settled(path: Path, expected: int) -> int:
    """
    The same, once it is as expected, or for long enough is not.

    The thread that sends written bytes on their way to the disk has a descriptor until it is done,
    which may be after the write.
    """
    for _ in range(600):
        if of(path) == expected:
            break
        time.sleep(0.1)
    return of(path)
