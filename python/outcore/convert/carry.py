"""
The tiles on their way: read, cast, written, made durable.

Problem. A conversion of hours must be able to go on after a kill, and must not wait for the disk more
often than it has to.
Idea. A tile is a step of a schedule, which `outcore.schedule` runs: reads ahead, cast, written behind.
Every few seconds what was written is flushed, on a thread of its own, and then recorded in the journal.

Invariants. A tile is recorded after a flush that began when the tile had been written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.convert.shares import Shares
from outcore.disk import DiskArray
from outcore.journal import Journal
from outcore.schedule import Block, Buffer, Load, Run, Schedule, Step, Store, elements

__all__ = ["Progress", "carry", "copying"]

Progress = Callable[[int, int], None]

# Seconds between two points from which the job can go on.
_CHECKPOINT = 2.0


def carry(shares: Shares, journal: Journal, progress: Progress) -> None:
    """Bring over the tiles that `journal` does not know as durable, and record them there."""
    tiles, reader, writer = shares.tiles, shares.reader, shares.writer
    item, total = reader.dtype.itemsize, reader.nbytes
    done = sum(elements(tiles.key(k)) for k in journal.done) * item
    progress(done, total)
    if len(journal.done) == len(tiles):
        return
    checkpoints = _Checkpoints(writer, journal)

    def stored(number: int) -> None:
        nonlocal done
        checkpoints.written(number)
        done += elements(tiles.key(number)) * item
        progress(done, total)

    try:
        with Run(copying(shares), (reader, writer), done=journal.done, stored=stored) as run:
            run.finish()
    finally:
        checkpoints.finish()


def copying(shares: Shares) -> Schedule:
    """
    The schedule of a conversion: a step for each tile.

    The buffers of reads and of the write take turns, unless what is written is another dtype; then
    that one has its own.
    """
    tiles, reader, writer, reads = shares.tiles, shares.reader, shares.writer, shares.reads
    most = max(math.prod(tiles.tile), 1)
    same = reader.dtype == writer.dtype
    source = Buffer(most, reader.dtype, writer.order, copies=reads + same)
    cast = () if same else (Buffer(most, writer.dtype, writer.order),)

    def step(number: int) -> Step:
        section = tiles.key(number)
        shape = tuple(part.stop - part.start for part in section)
        return Step(
            blocks=tuple(Block(n, shape) for n in range(1 + len(cast))),
            loads=(Load(0, section, 0),),
            stores=(Store(1, section, len(cast)),),
            kernel=0 if cast else None,
        )

    return Schedule(
        name="convert",
        arrays=(reader.path, writer.path),
        buffers=(source, *cast),
        steps=len(tiles),
        make=step,
        kernels=(_cast,) if cast else (),
        reading=reads,
    )


def _cast(blocks: Sequence[NDArray[Any]]) -> None:
    source, target = blocks
    np.copyto(target, source, casting="unsafe")


class _Checkpoints:
    """Makes written tiles durable in the background, then records them."""

    def __init__(self, target: DiskArray, journal: Journal) -> None:
        self._target, self._journal = target, journal
        self._written: list[int] = []
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def written(self, step: int) -> None:
        """Tile `step` has been handed to the system."""
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
            self._target.flush()
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
        """Save what is left, also when the job was interrupted."""
        self._join()
        if self._written:
            self._save(self._written)
            self._written = []
            self._join()
