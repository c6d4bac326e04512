"""
Checkpoints: points from which a job can be resumed.

Problem. A job of hours must be resumable after a kill, and must not wait for the disk more often
than necessary.
Idea. Every few seconds a background thread flushes what was written, and then records it in the
journal.

Invariants. A step is recorded after a flush that began when the step had been written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from outcore.arrays.disk import DiskArray
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
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def watch(self, targets: Sequence[DiskArray]) -> None:
        """Add arrays that steps write from now on."""
        self._join()
        self._targets += targets

    def note_written(self, step: int) -> None:
        """Note that the stores of `step` were handed to the system."""
        self._written.append(step)
        running = self._thread is not None and self._thread.is_alive()
        if running or time.monotonic() - self._last < _CHECKPOINT:
            return
        self._join()
        steps, self._written = self._written, []
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._save, args=(steps,), name="outcore-flush")
        self._thread.start()

    def _save(self, steps: list[int]) -> None:
        try:
            for target in self._targets:
                target.flush()
            self._journal.commit(steps)
        except BaseException as error:
            self._error = error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Save what remains, also when the job was interrupted."""
        self._join()
        if self._written:
            self._save(self._written)
            self._written = []
            self._join()
