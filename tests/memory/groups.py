"""Control groups with a memory limit."""

import uuid
from pathlib import Path


def make_group(limit):
    """A control group with this memory limit, version 1 or 2; None where that is not possible."""
    name = f"outcore-test-{uuid.uuid4().hex[:8]}"
    for parent, file in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(limit))
        except OSError:
            group.rmdir()
            continue
        return group
    return None
