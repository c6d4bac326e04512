"""
Journals: what a long job has done, so that it can go on after a kill.

Problem. A conversion of many hours must not start again because of one power cut, and must never go on
with what belongs to another job.
Idea. A text file beside the result: the first line says which job this is and how it is cut into
steps, each further line which steps are done. A line is written only after the bytes of its steps
are durable, so a line that is there is true; a torn last line is one that was not yet true. Who begins
anew adds a line like the first one, and nothing is cut off before it is there.

Invariants. One process at a time holds the journal (a lock that ends with the process). Resuming takes
the cut of the first run, whatever the budget is now. The journal goes away with success.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Self, TypeVar

from outcore import _core
from outcore.errors import FormatError, UsageError
from outcore.formats import durable, locks
from outcore.formats.side_files import open_side_file

__all__ = ["SUFFIX", "Journal", "Steps", "gather", "held", "of_rank", "of_ranks"]

_S = TypeVar("_S")

#: How names of journals end.
SUFFIX = ".outcore-journal"

_VERSION = 1
# Seconds after which a lock is tried again.
_MOMENT = 0.005
# The steps of a line: one, or the first and the last of several.
_STEPS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_MOST_STEPS = 10**8
# A journal of as many steps, none beside another, would be longer; nobody has such tiles.
_LARGEST = 64 << 20


class Steps(Set[int]):
    """Steps as ranges: a line of a journal takes the same memory whatever it claims."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in sorted(ranges):
            if self._highs and low <= self._highs[-1] + 1:
                self._highs[-1] = max(self._highs[-1], high)
            else:
                self._lows.append(low)
                self._highs.append(high)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First and last step of each run of steps."""
        return zip(self._lows, self._highs, strict=True)

    def __contains__(self, step: object) -> bool:
        if not isinstance(step, int):
            return False
        at = bisect.bisect_right(self._lows, step) - 1
        return at >= 0 and step <= self._highs[at]

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(range(a, b + 1) for a, b in self.ranges())

    def __len__(self) -> int:
        return sum(b - a + 1 for a, b in self.ranges())

    def __repr__(self) -> str:
        return f"Steps({list(self.ranges())})"

    @classmethod
    def _from_iterable(cls, it: Iterable[_S]) -> Set[_S]:
        return frozenset(it)


class Journal:
    """
    The journal at `path`, held open and locked.

    Parameters
    ----------
    path
        The file; made if it does not exist.
    look
        Only read what it says now, whoever holds it.
    make
        Make it if it does not exist; else ``not-found`` is raised.
    patience
        Seconds that another process may hold it before it is refused: whoever lists jobs holds each
        journal for a moment.

    Attributes
    ----------
    job, cut, steps
        As in the first line: which job, how it is cut, into how many steps. None, None and 0 for a
        new journal, until `begin`.
    done
        Numbers of the steps that are done.

    Raises
    ------
    UsageError
        ``in-use``: another process holds it.
    FormatError
        ``bad-journal``: it is not a journal.
    StorageError
        ``untrusted-file``: somebody else made it, or may write it.
    """

    def __init__(
        self, path: str, *, look: bool = False, make: bool = True, patience: float = 0.0
    ) -> None:
        self.path, self._look = path, look
        self.job: Mapping[str, Any] | None = None
        self.cut: Any = None
        self.steps = 0
        self.done = Steps()
        give_up = time.monotonic() + patience
        while True:
            with durable.os_errors("opening the journal", path):
                # Its name can be told in advance: in a shared folder it may be somebody else's.
                flags = os.O_RDONLY if look else os.O_RDWR | os.O_APPEND
                fd = open_side_file(path, flags=flags, make=make and not look)
                if fd is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                self._fd = fd
            try:
                if look or self._lock(give_up):
                    self._read()
                    return
            except BaseException:
                os.close(self._fd)
                raise
            os.close(self._fd)

    def _lock(self, give_up: float) -> bool:
        """False if the file was removed meanwhile."""
        while True:
            if locks.lock_file(self._fd) is False:
                if time.monotonic() < give_up:
                    time.sleep(_MOMENT)
                    continue
                raise UsageError(
                    f"{self.path!r} is held by another process that makes the same file; wait for it",
                    code="in-use",
                    path=self.path,
                )
            return os.fstat(self._fd).st_nlink > 0

    def _read(self) -> None:
        with durable.os_errors("reading the journal", self.path):
            size = os.fstat(self._fd).st_size
            if size > _LARGEST:
                raise self.bad()
            text = durable.read_at(self._fd, size, 0).decode("utf-8", errors="replace")
            lines = text.split("\n")[:-1]
        if size == 0:
            return
        done: list[tuple[int, int]] = []
        try:
            if not lines:
                raise ValueError("no line is whole")
            for number, line in enumerate(lines):
                if number == 0 or line.startswith("{"):
                    # A job that began anew: what is above it does not count any more.
                    head = json.loads(line)
                    if head["outcore-journal"] != _VERSION:
                        raise ValueError(line)
                    self.job, self.cut, self.steps = head["job"], head["cut"], head["steps"]
                    if type(self.job) is not dict or type(self.steps) is not int or self.steps < 0:
                        raise ValueError(line)
                    done = []
                    continue
                ends = _STEPS.fullmatch(line)
                if ends is None:
                    raise ValueError(line)
                low, high = int(ends[1]), int(ends[2] or ends[1])
                if not low <= high < self.steps <= _MOST_STEPS:
                    raise ValueError(line)
                done.append((low, high))
            self.done = Steps(done)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.bad() from None
        if not self._look:
            self._cut_torn_line(size)

    def bad(self) -> FormatError:
        """What to raise if the journal makes no sense."""
        return FormatError(
            f"{self.path!r} is not a journal of outcore, or it is damaged; remove it and start the "
            "job again",
            code="bad-journal",
            path=self.path,
        )

    def _cut_torn_line(self, size: int) -> None:
        tail = durable.read_at(self._fd, min(size, 4096), max(0, size - 4096))
        torn = len(tail) - (tail.rfind(b"\n") + 1)
        if torn:
            os.ftruncate(self._fd, size - torn)

    def begin(
        self, job: Mapping[str, Any], cut: Any, steps: int, done: Steps | None = None
    ) -> None:
        """
        Start anew: what is there does not count any more, but for steps that are `done`.

        It stays in the file, so that at any moment one of the two jobs is told whole.
        """
        job = json.loads(json.dumps(job))
        done = Steps() if done is None else done
        first = json.dumps({"outcore-journal": _VERSION, "job": job, "cut": cut, "steps": steps})
        lines = [first, *(f"{low}-{high}" for low, high in done.ranges())]
        with durable.os_errors("writing the journal", self.path):
            self._append("\n".join(lines))
            _core.fsync_folder(self.path)
        self.job, self.cut, self.steps, self.done = job, cut, steps, done

    def differs(self, job: Mapping[str, Any]) -> list[str]:
        """Names of what is different in `job`; empty if it is the same job."""
        mine = self.job or {}
        theirs = json.loads(json.dumps(job))
        return sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))

    def commit(self, steps: Iterable[int]) -> None:
        """Record steps as done. Their bytes must be durable already."""
        fresh = sorted(set(steps) - self.done)
        if not fresh:
            return
        lines: list[str] = []
        low = high = fresh[0]
        for step in [*fresh[1:], -1]:
            if step == high + 1:
                high = step
                continue
            lines.append(f"{low}-{high}" if high > low else str(low))
            low = high = step
        with durable.os_errors("writing the journal", self.path):
            self._append("\n".join(lines))
        self.done = Steps([*self.done.ranges(), *((step, step) for step in fresh)])

    def _append(self, text: str) -> None:
        data = (text + "\n").encode()
        while data:
            data = data[os.write(self._fd, data) :]
        os.fdatasync(self._fd)

    def remove(self) -> None:
        """The job is done."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release it."""
        os.close(self._fd)


def of_rank(path: str, rank: int) -> str:
    """Where another rank than the first one notes its steps, for the job with this journal."""
    return durable.neighbour(path.removesuffix(SUFFIX), f"{SUFFIX}.{rank}")


def of_ranks(path: str) -> list[str]:
    """The journals of other ranks that there are."""
    folder = os.path.dirname(path) or "."
    name = re.escape(os.path.basename(of_rank(path, 1)).removesuffix("1"))
    with durable.os_errors("listing", folder):
        found = [one for one in os.listdir(folder) if re.fullmatch(rf"{name}[0-9]+", one)]
    return [os.path.join(folder, one) for one in found]


def held(path: str, *, make: bool = True, patience: float = 0.0) -> Journal:
    """The journal of a job on which nobody works, no other rank either."""
    journal = Journal(path, make=make, patience=patience)
    try:
        for one in of_ranks(path):
            with contextlib.suppress(FormatError):
                Journal(one, patience=patience).close()
    except BaseException:
        journal.close()
        raise
    return journal


def gather(journal: Journal) -> None:
    """Record what other ranks have noted of the same job, at work or not: their steps are durable."""
    for path in of_ranks(journal.path):
        with contextlib.suppress(FormatError), Journal(path, look=True) as other:
            if journal.job == other.job and _program(journal) == _program(other):
                journal.commit(other.done)


def _program(journal: Journal) -> Any:
    return journal.cut.get("program") if isinstance(journal.cut, dict) else None
