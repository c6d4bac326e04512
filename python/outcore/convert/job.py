"""
One conversion, from the first step to the last rename.

Problem. Hours of work must not be lost, and must not be mixed with those of another job.
Idea. The journal keeps what makes two jobs the same, and which tiles are durable. Who resumes finds the
unfinished array and goes on with the tiles that are missing, cut as before; who does not begins anew.

Invariants. A journal is removed only when the array has its name, or when there is nothing in it worth
going on from; then what was begun is removed too.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass
from typing import Any

from outcore import formats
from outcore.convert.carry import Progress, carry
from outcore.convert.shares import arrange
from outcore.convert.target import Target
from outcore.errors import StorageError, UsageError
from outcore.journal import Journal

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be made, within how many bytes."""

    target: Target
    budget: int

    def description(self) -> dict[str, Any]:
        """What makes two jobs the same."""
        target, array = self.target, self.target.array
        source = formats.split_path(array.path)[0]
        # A file that holds the target too changes with every step.
        changes = os.path.realpath(source) == os.path.realpath(target.place.outer)
        return {
            "source": _absolute(array.path),
            "source time": None if changes else os.stat(source).st_mtime_ns,
            "target": _absolute(target.place.final),
            "shape": array.shape,
            "source dtype": repr(array.dtype),
            "dtype": repr(target.dtype),
            "format": target.format,
            **{name: repr(value) for name, value in target.wishes.items()},
        }

    def run(self, journal: Journal, resume: bool, progress: Progress) -> None:
        """All of it; with `resume`, what `journal` says is left of it."""
        job = self.description()
        going_on = resume and journal.job is not None
        if going_on and (different := journal.differs(job)):
            raise UsageError(
                f"{journal.path!r} belongs to another conversion: different {', '.join(different)}. "
                "Repeat the call that was interrupted, or start again without resume",
                code="other-job",
                path=journal.path,
            )
        target = self.target
        if not going_on and journal.done:
            self._say_what_is_given_up(journal, job)
        under_way = False
        try:
            with target.reopen(self.budget) if going_on else target.create(self.budget) as made:
                shares = arrange(target, made, self.budget, journal if going_on else None)
            with shares.reader, shares.writer as writer:
                writer._core.expect_flush()
                if not going_on:
                    journal.begin(job, list(shares.tiles.tile), len(shares.tiles))
                under_way = True
                carry(shares, journal, progress)
                writer.flush()
        except BaseException as error:
            if under_way and journal.done:
                error.add_note(
                    f"{len(journal.done)} of {journal.steps} tiles of {target.place.final!r} are done "
                    "and stay; the same call with resume=True goes on with the others"
                )
            if not going_on and not journal.done:
                # Nothing that would be worth going on from.
                journal.remove()
                with contextlib.suppress(StorageError):  # the first error is the one to tell
                    target.place.discard()
            raise
        target.place.publish()
        journal.remove()

    def _say_what_is_given_up(self, journal: Journal, job: dict[str, Any]) -> None:
        """Before it is removed: who makes an error of the warning loses nothing."""
        different = journal.differs(job)
        whose, advice = (
            "an interrupted conversion",
            "; resume=True would have gone on with the others",
        )
        if different:
            whose, advice = (
                f"another conversion (different {', '.join(different)}), interrupted,",
                "",
            )
        warnings.warn(
            f"{self.target.place.final!r}: {whose} had done {len(journal.done)} of {journal.steps} "
            f"tiles, which are given up: this call starts at the beginning{advice}",
            stacklevel=4,
        )


def _absolute(path: str) -> str:
    outer, inner = formats.split_path(path)
    return os.path.realpath(outer) + (f"::{inner}" if inner is not None else "")
