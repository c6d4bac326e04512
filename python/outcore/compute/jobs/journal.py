"""
Journals: records of what a long job has done, so that it can be resumed after a kill.

Problem. A conversion of many hours must not start again because of one power failure, and must
never continue with the steps of another job.
Idea. A text file next to the result: the first line states which job this is and how it is cut into
steps, each further line which steps are done. A line is written only after the bytes of its steps
are durable, so a complete line is true; a torn last line was not yet true. A job that starts from
scratch adds another first line, and nothing is cut off before that line is complete.

Invariants. One process at a time locks the journal (the lock ends with the process). A resumed job
takes the cut of the first run, whatever the budget is now. The journal is removed after success.
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
from typing import Any, TypeVar

from outcore import _core
from outcore.base.closable import Closable
from outcore.errors import FormatError, UsageError
from outcore.formats import durable, locks
from outcore.formats.side_files import open_side_file

__all__ = [
    "PATIENCE",
    "SUFFIX",
    "Journal",
    "StepRanges",
    "acquire_journal",
    "find_rank_journals",
    "gather_steps",
    "make_rank_path",
]

_S = TypeVar("_S")

#: How names of journals end.
SUFFIX = ".outcore-journal"
#: Seconds for which another process that lists jobs may lock a journal.
PATIENCE = 0.5

_VERSION = 1
# Seconds between two attempts to lock.
_MOMENT = 0.005
# The steps of a line: one, or the first and the last of several.
_STEPS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_MOST_STEPS = 10**8
# Only a journal of that many steps, no two of them consecutive, would be longer.
_LARGEST = 64 << 20


class StepRanges(Set[int]):
    """Steps as ranges: a line of a journal takes the same memory, however many steps it lists."""

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
        """Yield the first and the last step of each range."""
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


class Journal(Closable):
    """
    The journal at `path`, open and locked.

    With `look` it is only read, without a lock. Without `make` it must exist (``not-found``).
    `patience` is the number of seconds to wait for its lock: a process that lists jobs locks each
    journal briefly. Errors: ``in-use`` (locked by another process), ``bad-journal`` (not a
    journal), ``untrusted-file`` (another user made it, or may write it).

    `job`, `cut` and `steps` are those of the first line: what identifies the job, how it is cut,
    into how many steps. A new journal has None, None and 0 until `begin`.
    """

    def __init__(
        self, path: str, *, look: bool = False, make: bool = True, patience: float = 0.0
    ) -> None:
        self.path, self._look = path, look
        self.job: Mapping[str, Any] | None = None
        self.cut: Any = None
        self.steps = 0
        self.done = StepRanges()
        give_up = time.monotonic() + patience
        while True:
            with durable.os_errors("opening the journal", path):
                # Its name is predictable: in a shared folder another user may have made it.
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
        """Lock the file; return False if it was removed in the meantime."""
        while True:
            if locks.lock_file(self._fd) is False:
                if time.monotonic() < give_up:
                    time.sleep(_MOMENT)
                    continue
                raise UsageError(
                    f"{self.path!r} is locked by another process that creates the same file; wait "
                    "until it ends",
                    code="in-use",
                    path=self.path,
                )
            return os.fstat(self._fd).st_nlink > 0

    def _read(self) -> None:
        with durable.os_errors("reading the journal", self.path):
            size = os.fstat(self._fd).st_size
            if size > _LARGEST:
                raise self.damaged_error()
            text = durable.read_at(self._fd, size, 0).decode("utf-8", errors="replace")
            lines = text.split("\n")[:-1]
        if size == 0:
            return
        done: list[tuple[int, int]] = []
        try:
            if not lines:
                raise ValueError("no line is complete")
            for number, line in enumerate(lines):
                if number == 0 or line.startswith("{"):
                    # A job that started from scratch: the lines above no longer count.
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
            self.done = StepRanges(done)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.damaged_error() from None
        if not self._look:
            self._cut_torn_line(size)

    def damaged_error(self) -> FormatError:
        """Return the error for a damaged journal."""
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
        self, job: Mapping[str, Any], cut: Any, steps: int, done: StepRanges | None = None
    ) -> None:
        """
        Start from scratch: the existing lines no longer count, except steps that are `done`.

        They stay in the file, so that at any moment one of the two jobs is recorded completely.
        """
        job = json.loads(json.dumps(job))
        done = StepRanges() if done is None else done
        first = json.dumps({"outcore-journal": _VERSION, "job": job, "cut": cut, "steps": steps})
        lines = [first, *(f"{low}-{high}" for low, high in done.ranges())]
        with durable.os_errors("writing the journal", self.path):
            self._append("\n".join(lines))
            _core.fsync_folder(self.path)
        self.job, self.cut, self.steps, self.done = job, cut, steps, done

    def list_differences(self, job: Mapping[str, Any]) -> list[str]:
        """List the names of the values that differ in `job`; none if it is the same job."""
        mine = self.job or {}
        theirs = json.loads(json.dumps(job))
        return sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))

    def check_same(self, job: Mapping[str, Any]) -> None:
        """Raise if the journal belongs to another job than `job`."""
        if different := self.list_differences(job):
            raise UsageError(
                f"{self.path!r} belongs to another job: different {', '.join(different)}; repeat "
                "the call that was interrupted, or start again without resume=True",
                code="other-job",
                path=self.path,
            )

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
        self.done = StepRanges([*self.done.ranges(), *((step, step) for step in fresh)])

    def _append(self, text: str) -> None:
        data = (text + "\n").encode()
        while data:
            data = data[os.write(self._fd, data) :]
        os.fdatasync(self._fd)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        """Close the file, and release its lock."""
        os.close(self._fd)


def make_rank_path(path: str, rank: int) -> str:
    """Return the path at which a rank other than the first records its steps."""
    return durable.make_sibling_path(path.removesuffix(SUFFIX), f"{SUFFIX}.{rank}")


def find_rank_journals(path: str) -> list[str]:
    """List the existing journals of other ranks."""
    folder = os.path.dirname(path) or "."
    name = re.escape(os.path.basename(make_rank_path(path, 1)).removesuffix("1"))
    with durable.os_errors("listing", folder):
        found = [one for one in os.listdir(folder) if re.fullmatch(rf"{name}[0-9]+", one)]
    return [os.path.join(folder, one) for one in found]


def acquire_journal(path: str, *, make: bool = True, patience: float = 0.0) -> Journal:
    """Open the journal of a job on which no process works, on any rank."""
    journal = Journal(path, make=make, patience=patience)
    try:
        for one in find_rank_journals(path):
            with contextlib.suppress(FormatError):
                Journal(one, patience=patience).close()
    except BaseException:
        journal.close()
        raise
    return journal


def gather_steps(journal: Journal) -> None:
    """Record the steps of other ranks of the same job, running or not: they are durable."""
    for path in find_rank_journals(journal.path):
        with contextlib.suppress(FormatError), Journal(path, look=True) as other:
            if journal.job == other.job and _read_program(journal) == _read_program(other):
                journal.commit(other.done)


def _read_program(journal: Journal) -> Any:
    return journal.cut.get("program") if isinstance(journal.cut, dict) else None
