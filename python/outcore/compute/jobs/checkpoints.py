"""
Checkpoints: points from which a job can be resumed.

Problem. A job of hours must be resumable after a kill, and must not wait for the disk more often
than necessary.
Idea. Every few seconds a background thread flushes what was written, and then records it in the
journal.

Invariants. A step is recorded after a flush that began when the step had been written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from outcore.arrays.disk import DiskArray
from outcore.base.background import Background
from outcore.compute.jobs.journal import Journal

__all__ = ["Checkpoints"]

# Seconds between two checkpoints.
_CHECKPOINT = 2.0


class Checkpoints:
    """Background flushes of what steps have written, each followed by a record in the journal."""

    def __init__(self, targets: Sequence[DiskArray], journal: Journal) -> None:
        self._targets, self._journal = list(targets), journal
        self._written: list[int] = []
        self._last = time.monotonic()
        self._background = Background("outcore-flush")
        self._has_failed = False

    def watch(self, targets: Sequence[DiskArray]) -> None:
        """Add arrays that steps write from now on."""
        self._background.wait()
        self._targets += targets

    def note_written(self, step: int) -> None:
        """Note that the stores of `step` were handed to the system."""
        self._written.append(step)
        if self._background.is_busy or time.monotonic() - self._last < _CHECKPOINT:
            return
        self._background.wait()
        self._begin_flush()

    def _begin_flush(self) -> None:
        steps, self._written = self._written, []
        self._last = time.monotonic()
        self._background.start(self._save, steps)

    def _save(self, steps: list[int]) -> None:
        self._has_failed = True
        for target in self._targets:
            target.flush()
        self._journal.commit(steps)
        self._has_failed = False

    def finish(self) -> None:
        """Save what remains, also when the job was interrupted, unless a flush has failed."""
        self._background.wait()
        # After a failed flush, the system may report success although bytes are lost.
        if self._written and not self._has_failed:
            self._begin_flush()
            self._background.wait()
