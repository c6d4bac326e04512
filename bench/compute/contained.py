"""
One piece of work in a fresh process, in a memory control group, with a time limit.

The group has the budget and 64 MiB more, page cache included. outcore enters it before anything is
imported; a peer after its imports, which therefore do not count. A process that holds more is ended by
the kernel, and that is what the table says then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from throttle import Unavailable

HERE = Path(__file__).resolve().parent
ALLOWANCE = 64 << 20
_PLACES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


class MemoryGroup:
    """A control group with a memory limit, version 1 or 2; used in a ``with`` statement."""

    _made = 0

    def __init__(self, limit: int) -> None:
        MemoryGroup._made += 1
        name = f"outcore-bench-{os.getpid()}-{MemoryGroup._made}"
        why = "no memory controller"
        for parent, file in _PLACES:
            self.folder = parent / name
            try:
                self.folder.mkdir()
            except OSError as error:
                why = error.strerror or str(error)
                continue
            try:
                (self.folder / file).write_text(str(limit))
                return
            except OSError as error:
                why = error.strerror or str(error)
                self.folder.rmdir()
        raise Unavailable(f"no memory group may be made ({why})")

    def __enter__(self) -> MemoryGroup:
        return self

    def killed(self) -> bool:
        """Whether the kernel ended a process for its memory."""
        for name in ("memory.oom_control", "memory.events"):
            path = self.folder / name
            if path.exists():
                words = dict(line.split() for line in path.read_text().splitlines())
                return int(words.get("oom_kill", 0)) > 0
        return False

    def __exit__(self, *_: object) -> None:
        until = time.monotonic() + 10
        while True:
            try:
                return self.folder.rmdir()
            except OSError:  # processes of it are still ending
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


@dataclass(frozen=True)
class Ended:
    """
    How a piece of work ended.

    Attributes
    ----------
    seconds
        From the call until its result is durable; None if there is none.
    why
        Why there is none, in a few words; `missing` if the function does not exist.
    peak, read, written
        Bytes: most memory that the process had, what it had the disk read and write.
    more
        What else it says.
    """

    seconds: float | None
    why: str = ""
    missing: bool = False
    peak: int = 0
    read: int = 0
    written: int = 0
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """
    What a process is to do.

    Attributes
    ----------
    module, task, words
        A Python file, its function, and its arguments.
    python, path
        Which Python, and what its ``PYTHONPATH`` is.
    memory
        Limit of the group; None for none.
    outside
        Whether imports happen before the process enters the group.
    results
        Files and folders to be durable at the end.
    patience
        Seconds.
    """

    module: Path
    task: str
    words: dict[str, Any]
    python: Path = Path(sys.executable)
    path: Sequence[Path] = ()
    memory: int | None = None
    outside: bool = True
    results: Sequence[Path] = ()
    patience: float = 600.0


def run(work: Work, cores: int) -> Ended:
    """Run it, and wait; `Unavailable` if there can be no group."""
    if work.memory is None:
        return _run(work, cores, None)
    with MemoryGroup(work.memory) as group:
        return _run(work, cores, group)


def _run(work: Work, cores: int, group: MemoryGroup | None) -> Ended:
    words = {
        "module": str(work.module),
        "task": work.task,
        "words": work.words,
        "group": str(group.folder) if group else None,
        "outside": work.outside,
        "results": [str(path) for path in work.results],
        "cores": cores,
    }
    threads = {f"{name}_NUM_THREADS": str(cores) for name in ("OMP", "OPENBLAS", "NUMEXPR", "MKL")}
    env = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(map(str, work.path))}
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [work.python, "-P", HERE / "worker.py", json.dumps(words)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = process.communicate(timeout=work.patience)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                return Ended(None, f"> {work.patience:.0f} s")
            raise
        complaints.seek(0)
        return _ended(process.returncode, told, complaints.read(), group)


def _ended(code: int, told: str, complaints: str, group: MemoryGroup | None) -> Ended:
    answers = [line for line in told.splitlines() if line.startswith('{"outcore-bench"')]
    if code == 0 and answers:
        return Ended(**json.loads(answers[-1])["outcore-bench"])
    if group is not None and group.killed():
        return Ended(None, "killed: out of memory")
    lines = [line for line in complaints.splitlines() if line.strip()]
    if code < 0:
        return Ended(None, f"killed: signal {-code}", more={"complaints": complaints[-2000:]})
    last = lines[-1] if lines else f"exit {code}"
    return Ended(None, last[:300], more={"complaints": complaints[-2000:]})
