"""
One row of one process: candidates by turns, results checked, those that take too long said to.

Rules, besides those of `harness`: each candidate runs once before, untimed where the file is cached,
and its result is checked then (of a scatter the whole file); who takes longer than `PATIENCE` runs
once. Who may take for ever, as an unsorted gather from a cold mapping, does it in a process of its
own that is ended after `LIMIT` seconds; its row says so. Cold: every run opens its file anew, after
it was evicted. A scatter into a cached file finds it written back, and adds another fraction than the
one before. Decoded chunks that outcore keeps are forgotten before each run.
"""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Row, evict, files_of, touch, warm
from irregular.files import Stored, flat
from irregular.patterns import Pattern

PATIENCE = 3.0
LIMIT = 10.0

Opened = tuple[Callable[[Any], Any], Callable[[], Any]]
"""A call that gathers (given nothing) or scatters (given the values), and how it is closed."""


@dataclass(frozen=True)
class Candidate:
    """
    One way to gather or to scatter.

    Attributes
    ----------
    name
        Its column.
    open
        Opens the file.
    apart
        Whether it runs in a process of its own, which is ended after `LIMIT` seconds.
    checked
        Whether it has a result: the device alone has none.
    """

    name: str
    open: Callable[[], Opened]
    apart: bool = False
    checked: bool = True


class Timed:
    """
    Runs candidates on one file with one pattern.

    Parameters
    ----------
    stored
        The file that is gathered from, or that all scatter into, one after the other.
    wanted
        What.
    write
        Whether it is a scatter.
    cache
        ``"warm"`` or ``"cold"``.
    limit
        Seconds after which a candidate that runs apart is ended; by default `LIMIT`.
    """

    def __init__(
        self,
        stored: Stored,
        wanted: Pattern,
        *,
        write: bool,
        cache: str,
        limit: float | None = None,
    ) -> None:
        self._stored, self._wanted, self._write = stored, wanted, write
        self._limit = LIMIT if limit is None else limit
        self._cold = cache == "cold"
        # Two libraries that have a file open for writing keep each other from what they know of it; and
        # writing to a mapping whose pages were written back takes three times as long as to a new one.
        self._anew = self._cold or write
        self._turn = 0
        self._value = wanted.value() if write else None
        self._opened: dict[str, Opened] = {}
        self.row = Row(self._title(), wanted.nbytes)
        self.row.extra.update(cache=cache, over={})

    def _title(self) -> str:
        what = "scatter" if self._write else "gather"
        return f"{self._stored.format}: {what} {self._wanted.kind}"

    def run(self, candidates: list[Candidate], repeat: int) -> Row:
        """Time all; the row has seconds, who was wrong and who was stopped."""
        if self._write:
            self._stored.spoiled()
        names = {one.name: one for one in candidates}
        self.row.extra["order"] = list(names)
        if not self._cold:
            warm([self._stored.path])
        for one in candidates:
            self._first(one)
        order, rng = list(names), random.Random(0)
        for _ in range(repeat):
            rng.shuffle(order)
            for name in order:
                if self._again(name):
                    self._note(name, self._one(names[name])[0])
        self._close()
        if self._write:
            self._stored.restore(flat(self._wanted.where, self._wanted.rows))
        return self.row

    def _again(self, name: str) -> bool:
        extra, seconds = self.row.extra, self.row.seconds.get(name, [])
        stopped = name in extra["over"] or name in self.row.wrong
        return not stopped and not (seconds and max(seconds) > PATIENCE)

    def _note(self, name: str, seconds: float) -> None:
        self.row.seconds.setdefault(name, []).append(seconds)

    def _first(self, one: Candidate) -> None:
        """The run that is checked. It counts if it was as cold as others, or took long."""
        seconds, right = self._one(one, check=True)
        if seconds == float("inf"):
            self.row.extra["over"][one.name] = self._limit
        elif not right:
            self.row.wrong.add(one.name)
        elif self._cold or seconds > PATIENCE:
            self._note(one.name, seconds)

    def _one(self, one: Candidate, check: bool = False) -> tuple[float, bool]:
        """Seconds of a run (infinity if it was ended), and whether its result is right."""
        if self._write:
            self._turn = self._turn % 15 + 1
            assert self._value is not None
            value: Any = self._value + self._turn / 16
        else:
            value = None
        self._settle(one)
        if one.apart:
            return self._child(one, value)
        if one.name not in self._opened:
            self._opened[one.name] = one.open()
        call = self._opened[one.name][0]
        if not self._write:
            touch(min(self._wanted.nbytes, 1 << 30))
        start = time.perf_counter()
        got = call(value)
        seconds = time.perf_counter() - start
        if not (check and one.checked):
            return seconds, True
        if self._anew:
            self._close()
        return seconds, self._right(got)

    def _right(self, got: Any) -> bool:
        if not self._write:
            return self._wanted.right(got)
        where = flat(self._wanted.where, self._wanted.rows)
        return self._stored.holds(where, self._turn / 16)

    def _settle(self, one: Candidate) -> None:
        """Bring the file to the state that this run is to find."""
        if self._anew:
            self._close()
        if "chunks" in self._stored.format or "Zarr" in self._stored.format:
            _forget()
        if self._cold:
            evict([self._stored.path])
        elif self._write:
            for path in files_of([self._stored.path]):
                with path.open("r+b") as file:
                    os.fsync(file.fileno())

    def _close(self, name: str | None = None) -> None:
        for each in [name] if name else list(self._opened):
            if each in self._opened:
                self._opened.pop(each)[1]()
        gc.collect()  # no name may keep a mapping alive

    def _child(self, one: Candidate, value: Any) -> tuple[float, bool]:
        """The same in a process of its own."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                call, close = one.open()
                start = time.perf_counter()
                got = call(value)
                seconds = time.perf_counter() - start
                close()
                os.write(write, struct.pack("d?", seconds, self._right(got)))
            finally:
                os._exit(0)
        os.close(write)
        # The check comes after the time; it is given some, too.
        ready, _, _ = select.select([read], [], [], self._limit + (5.0 if self._write else 2.0))
        told = os.read(read, 16) if ready else b""
        os.close(read)
        if not told:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not told:
            return (float("inf"), False) if not ready else (0.0, False)
        seconds, right = struct.unpack("d?", told)
        return (seconds, right) if seconds <= self._limit else (float("inf"), False)


def _forget() -> None:
    """Have outcore give up the decoded chunks that it keeps: peers decode them every time."""
    import outcore

    with outcore.memory("4 KiB"):
        pass
