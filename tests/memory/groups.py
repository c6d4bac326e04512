"""Programs in control groups with a memory limit."""

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent


@contextlib.contextmanager
def group_of(limit):
    """A control group with this memory limit, version 1 or 2; None where that is not possible."""
    group = _make(limit)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def told_by(program, *words):
    """What one of the programs beside this file says of itself."""
    done = subprocess.run(
        [sys.executable, HERE / program, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def _make(limit):
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


def _remove(group):
    """Processes leave it a moment after they have ended."""
    for _ in range(1000):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)
    group.rmdir()
