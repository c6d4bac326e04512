"""
The tiles on their way: read, cast, written, made durable.

Problem. A disk that waits for the next request, and a processor that waits for the disk, are both
wasted; and what was written hours ago must not be written again after a kill.
Idea. Reads run ahead while a tile is written; their buffers take turns. Every few seconds what was
written is flushed, on a thread of its own, and then recorded in the journal.

Invariants. A buffer is touched by one of read, cast and write at a time, and outlives the requests that
use it, whatever fails. A tile is recorded after a flush that began when the tile had been written.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.convert.shares import Shares
from outcore.disk import DiskArray
from outcore.journal import Journal
from outcore.requests import IORequest

__all__ = ["Progress", "carry"]

Progress = Callable[[int, int], None]

# Seconds between two points from which the job can go on.
_CHECKPOINT = 2.0


def carry(shares: Shares, journal: Journal, progress: Progress) -> None:
    """Bring over the tiles that `journal` does not know as durable, and record them there."""
    tiles, reader, writer, reads = shares.tiles, shares.reader, shares.writer, shares.reads
    # One by one: an array may claim more tiles than there is memory for a list of them.
    todo = (k for k in range(len(tiles)) if k not in journal.done)
    item, total = reader.dtype.itemsize, reader.nbytes
    done = sum(_elements(tiles.key(k)) for k in journal.done) * item
    progress(done, total)
    first = next(todo, None)
    if first is None:
        return
    checkpoints = _Checkpoints(writer, journal)

    def read(k: int) -> tuple[int, IORequest[Any]]:
        return k, reader.iread(tiles.key(k), out=buffers.input(tiles.key(k)))

    def finish(k: int) -> None:
        nonlocal done
        if writing is not None:
            writing.wait()
        checkpoints.written(k)
        done += _elements(tiles.key(k)) * item
        progress(done, total)

    reading: deque[tuple[int, IORequest[Any]]] = deque()
    writing: IORequest[Any] | None = None
    last: int | None = None
    with _core.Reservation("convert", shares.held), _Buffers(shares) as buffers:
        try:
            reading.append(read(first))
            reading.extend(map(read, itertools.islice(todo, reads - 1)))
            while reading:
                k, request = reading[0]
                data = request.wait()
                if last is not None:
                    finish(last)
                reading.popleft()
                writing, last = writer.iwrite(tiles.key(k), buffers.output(data)), k
                reading.extend(map(read, itertools.islice(todo, 1)))
            if last is not None:
                finish(last)
        finally:
            # The buffers belong to the requests until these are over.
            for request in (*(r for _, r in reading), *([writing] if writing else ())):
                with contextlib.suppress(Exception):
                    request.wait()
            checkpoints.finish()


def _elements(key: tuple[slice, ...]) -> int:
    return math.prod(part.stop - part.start for part in key)


class _Buffers:
    """
    Memory of the tiles: a buffer for each read, and one for the write. They take turns, unless what
    is written is another dtype; then that one has its own.

    Page-aligned and outside the heap, so that it goes back to the system at once.
    """

    def __init__(self, shares: Shares) -> None:
        array, target = shares.reader, shares.writer
        elements = max(math.prod(shares.tiles.tile), 1)
        self._order: Literal["C", "F"] = "F" if target.order == "F" else "C"
        self._read_as, self._write_as = array.dtype, target.dtype
        self._same = array.dtype == target.dtype
        arrays = (target, *[array] * shares.reads)
        self._maps = [mmap.mmap(-1, elements * a.dtype.itemsize) for a in arrays]
        # Those that are read into, the next one first.
        self._inputs = deque(range(0 if self._same else 1, len(arrays)))
        for block in self._maps:
            with contextlib.suppress(AttributeError, OSError):
                block.madvise(mmap.MADV_HUGEPAGE)

    def __enter__(self) -> _Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        # A view may still be alive in a traceback; then the memory goes with it.
        for block in self._maps:
            with contextlib.suppress(BufferError):
                block.close()

    def _view(self, number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._maps[number], order=self._order)

    def input(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """Where to read the tile at `key`."""
        shape = tuple(part.stop - part.start for part in key)
        self._inputs.rotate(-1)
        return self._view(self._inputs[-1], self._read_as, shape)

    def output(self, data: NDArray[Any]) -> NDArray[Any]:
        """What to write: `data` itself, or cast."""
        if self._same:
            return data
        cast = self._view(0, self._write_as, data.shape)
        np.copyto(cast, data, casting="unsafe")
        return cast


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
