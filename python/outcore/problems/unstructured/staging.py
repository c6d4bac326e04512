"""
Stage new rows of arrays that a loop updates, until all of them exist.

Problem: a killed loop has changed an unknown set of rows of the arrays it updates, and would add to them
twice if it started again. Also, ranks that update an array in chunks have rows of the same chunk, which
only one of them can encode.
Approach: the rows are stored in a separate file, and the updated array stays unchanged. When all rows
exist, they are copied into their array, chunk by chunk, so each chunk is encoded once, by one rank. A
journal next to them, which lists the durable blocks, allows the loop to resume after a kill. The copy
can be repeated any number of times.
Invariants: the updated arrays do not change until a line of the journal states that all rows are
durable; from then on they are only copied to. A call can only resume the same loop of the same arrays;
others raise an error. The journal is removed when the updated arrays are durable.

Reference: PASSION report, section 4.4.3 (partial results on disk, final results scattered at the end).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import create, open
from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Schedule,
    ScheduleRun,
    ScheduleStep,
    Store,
    divide_steps,
)
from outcore.arrays.tiling import Side, Tiling, choose
from outcore.base.report import format_count
from outcore.compute.jobs.changed import Files, find_containers, fingerprint_input
from outcore.compute.jobs.checkpoints import Checkpoints
from outcore.compute.jobs.journal import (
    PATIENCE,
    SUFFIX,
    Journal,
    StepRanges,
    acquire_journal,
    find_rank_journals,
    gather_steps,
    make_rank_path,
)
from outcore.compute.jobs.left import list_removable
from outcore.compute.jobs.leftovers import is_half_replaced
from outcore.compute.jobs.target import PARTIAL, discard
from outcore.errors import OutcoreError, UsageError
from outcore.formats import durable
from outcore.formats.defaults import PLAIN, PLAIN_SUFFIX
from outcore.problems.unstructured.operands import LoopArray
from outcore.problems.unstructured.tables import make_budget_error
from outcore.ranks.ranks import Ranks

__all__ = ["StagedRows", "check_not_interrupted", "put_in_place"]


def _make_neighbour(one: LoopArray, ending: str) -> str:
    """Return the path of a file next to an updated array, named after it."""
    outer, inner = formats.split_path(str(one.table.path).rstrip("/"))
    return durable.make_sibling_path(
        os.path.realpath(outer) + (inner or "").replace("/", "."), ending
    )


def _make_rows_path(one: LoopArray) -> str:
    """Return the path of its new rows."""
    return _make_neighbour(one, PARTIAL + PLAIN_SUFFIX)


def check_not_interrupted(updates: Sequence[LoopArray]) -> None:
    """Raise `UsageError` if an interrupted loop has left new rows of one of these arrays."""
    for one in updates:
        if isinstance(one.table, DiskArray) and os.path.exists(_make_rows_path(one)):
            raise UsageError(
                f"a loop that updates {one.table.path!r} was interrupted, and its new rows are in "
                f"{_make_rows_path(one)!r}; repeat the call with resume=True to resume it, or remove it "
                "with outcore.jobs.clean",
                code="other-job",
                path=str(one.table.path),
            )


def put_in_place(
    rows: Sequence[Any], updates: Sequence[LoopArray], ranks: Ranks, room: int
) -> Callable[[], None]:
    """
    Return a function that copies new rows into their arrays, with `room` bytes of buffers.

    Each rank copies its own whole chunks.
    """

    def work() -> None:
        for source, one in zip(rows, updates, strict=True):
            plan = _plan_copy(source, one, ranks.size, room)
            for shares in divide_steps(plan, ranks.size, lambda step: 1.0):
                if len(shares[ranks.rank]):
                    with ScheduleRun(plan, [source, one.table], steps=shares[ranks.rank]) as run:
                        run.finish()

    return work


def _plan_copy(source: Any, one: LoopArray, ranks: int, room: int) -> Schedule:
    """Return the schedule of a copy, in tiles of whole chunks of the target."""
    target = Side.of(one.table.info)
    rows = Side(one.dtype.itemsize, "C") if source.info is None else Side.of(source.info)
    most = room // (2 * one.dtype.itemsize)
    tiles = choose(one.table.shape, rows, target, most, ranks=ranks)
    if not isinstance(tiles, Tiling):
        raise make_budget_error(f"a chunk of {one.table.path!r}", 2 * tiles * one.dtype.itemsize)

    def step(number: int) -> ScheduleStep:
        section = tiles.key(number)
        shape = tuple(part.stop - part.start for part in section)
        return ScheduleStep((Block(0, shape),), (Load(0, section, 0),), (Store(1, section, 0),))

    most = max(int(np.prod(tiles.tile, dtype=np.int64)), 1)
    buffers = (Buffer(most, one.dtype, one.table.order, copies=2),)
    return Schedule("edge_loop", ("rows", one.name), buffers, len(tiles), step, ())


class StagedRows:
    """
    Rows and journal of a loop that can be resumed after a kill. Collective over the ranks.

    `updates` are on disk; `inputs` are the other arrays that the loop reads. `words` are other values
    that identify the loop, and `blocks` is its number of steps.
    """

    def __init__(
        self,
        ranks: Ranks,
        updates: Sequence[LoopArray],
        inputs: Sequence[LoopArray],
        words: Mapping[str, Any],
        blocks: int,
    ) -> None:
        self.ranks, self.updates, self.blocks = ranks, updates, blocks
        self._inputs, self._words = inputs, words
        self._path = _make_neighbour(updates[0], SUFFIX)
        self._journal: Journal | None = None
        self._going_on = False
        #: New rows of each array, after `begin`.
        self.rows: list[DiskArray] = []
        #: Blocks that are already durable.
        self.done = StepRanges()

    def begin(self) -> None:
        """Find the state of an interrupted loop, or begin a new one."""
        told = self.ranks.broadcast_from_first(self._begin)
        self.done = StepRanges([(low, high) for low, high in told["done"]])
        self.ranks.run_on_all(lambda: self._join(told))

    @property
    def is_computed(self) -> bool:
        """Whether all new rows are durable; the updated arrays may contain some of them."""
        return self.blocks in self.done

    def run(self, work: Callable[[StepRanges, Callable[[int], None]], None]) -> None:
        """
        Compute the missing rows.

        `work` runs this rank's steps, except the given completed ones, and calls its second argument
        with each step that was stored.
        """
        journal = self._journal
        assert journal is not None
        checkpoints = Checkpoints(self.rows, journal)

        def run_recorded() -> None:
            try:
                work(self.done, checkpoints.note_written)
            finally:
                # Record stored steps even after a failure; the first failure is reported.
                checkpoints.finish()

        self.ranks.run_long_step(run_recorded)
        self._mark(self.blocks)

    def replace(self, room: int) -> None:
        """Copy the new rows into the updated arrays, and remove rows and journal."""
        if self.blocks + 1 not in self.done:
            copy = put_in_place(self.rows, self.updates, self.ranks, room)

            def work() -> None:
                copy()
                for one in self.updates:
                    one.table.flush()

            self.ranks.run_long_step(work)
            self._mark(self.blocks + 1)
        self.close()
        self.ranks.run_on_first(self._forget)

    def note_failure(self, error: BaseException) -> None:
        """Add a note on the completed steps to an error, or remove the files of a loop without any."""
        journal = self._journal
        if journal is None or not self.ranks.is_first:
            return
        with contextlib.suppress(OutcoreError):
            gather_steps(journal)
        if journal.done or self._going_on:
            error.add_note(
                f"{len(journal.done)} of {format_count(journal.steps - 1, 'step')} of this loop "
                f"are done, as recorded in {self._path!r}; repeat the call with resume=True to run "
                "the others"
            )
        else:
            self._forget()

    def close(self) -> None:
        """Close rows, and the journal except on the first rank."""
        for one in self.rows:
            one.close()
        self.rows.clear()
        if self._journal is not None and not self.ranks.is_first:
            self._journal.close()
            self._journal = None

    def release(self) -> None:
        """Close rows and journal at the end of the call."""
        self.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _begin(self) -> dict[str, Any]:
        """Open the journal and compare or start the loop, on the first rank; return its state."""
        self._journal = journal = acquire_journal(self._path, patience=PATIENCE)
        gather_steps(journal)
        job, before = (
            self._describe(),
            [list(fingerprint_input(one.table, Files())) for one in self.updates],
        )
        self._going_on = journal.steps > 0
        if self._going_on:
            self._compare(journal, job, before)
        else:
            self._start(journal, job, before)
        for path in find_rank_journals(self._path):
            os.unlink(path)
        assert journal.job is not None
        return {"done": list(journal.done.ranges()), "job": dict(journal.job), "cut": journal.cut}

    def _compare(self, journal: Journal, job: Mapping[str, Any], before: list[Any]) -> None:
        different = journal.list_differences(job)
        kept = journal.cut if isinstance(journal.cut, dict) else {}
        if not different and self.blocks not in journal.done and kept.get("before") != before:
            different = ["content of updated arrays"]
        if different:
            raise UsageError(
                f"{self._path!r} belongs to another job with different {', '.join(different)}; repeat "
                "the call that was interrupted, or remove it with outcore.jobs.clean",
                code="half-replaced" if is_half_replaced(journal) else "other-job",
                path=self._path,
            )
        if journal.steps != self.blocks + 2 or kept.get("program") != self.blocks:
            raise journal.damaged_error()

    def _start(self, journal: Journal, job: Mapping[str, Any], before: list[Any]) -> None:
        """Announce the loop, then make the files, so that they are listed until they are removed."""
        if journal.job is not None:
            ours = [os.path.dirname(_make_rows_path(one)) for one in self.updates]
            for path, format in list_removable(journal, ours):
                discard(path, format)
        cut = {
            "partial": [[_make_rows_path(one), PLAIN] for one in self.updates],
            "call": None,
            "before": before,
            "program": self.blocks,
            "computed": self.blocks,
        }
        journal.begin(job, cut, 0)
        for one in self.updates:
            create(_make_rows_path(one), one.table.shape, one.dtype, overwrite=True).close()
        journal.begin(job, cut, self.blocks + 2)

    def _join(self, told: Mapping[str, Any]) -> None:
        """Open the rows on each rank, and the rank's own journal."""
        if not self.ranks.is_first:
            self._journal = Journal(make_rank_path(self._path, self.ranks.rank))
            self._journal.begin(told["job"], told["cut"], self.blocks + 2)
        if self.blocks + 1 in self.done:
            return
        for one in self.updates:
            self.rows.append(open(_make_rows_path(one), "r+"))
            if self.rows[-1].shape != one.table.shape or self.rows[-1].dtype != one.dtype:
                raise UsageError(
                    f"{_make_rows_path(one)!r} is not the file that the interrupted loop left; remove "
                    "the loop with outcore.jobs.clean",
                    code="other-job",
                    path=_make_rows_path(one),
                )
            self.rows[-1].handle.core.expect_flush()

    def _mark(self, step: int) -> None:
        """Record that all previous work is durable on all ranks."""

        def mark() -> None:
            assert self._journal is not None
            if self.ranks.is_first:
                gather_steps(self._journal)
                self._journal.commit([step])

        self.ranks.run_on_all(mark)
        self.done = StepRanges([*self.done.ranges(), (step, step)])

    def _forget(self) -> None:
        """Remove the files of the loop, the journal last."""
        for one in self.updates:
            discard(_make_rows_path(one), PLAIN)
        for path in find_rank_journals(self._path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        assert self._journal is not None
        self._journal.remove()

    def _describe(self) -> dict[str, Any]:
        """Return the values that identify a loop."""
        told: dict[str, Any] = {"operation": "edge_loop", **self._words}
        written = Files().union(*(find_containers(one.table) for one in self.updates))
        for n, one in enumerate(self.updates):
            name = "target" if n == 0 else f"target {n + 1}"
            told[name] = os.path.realpath(str(one.table.path))
            told[f"{name} is"] = [one.name, list(one.table.shape), str(one.dtype), one.combine]
        for one in self._inputs:
            kind, value = fingerprint_input(one.table, written)
            told[f"{one.name} is"] = [list(one.table.shape), str(one.dtype)]
            told[f"{one.name} {kind}"] = value
        return told
