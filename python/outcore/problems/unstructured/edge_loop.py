"""
Run loops over the edges of an unstructured problem whose nodes and edges do not fit in memory.

Problem: a NumPy kernel such as ``x[edges[:, 0]] += f(y[edges[:, 1]])``, written for a mesh in memory,
should work unchanged on a larger mesh and give the same result.
Approach: an `EdgeSchedule` lists the edges and nodes of each block. Each step of the loop loads these,
gathers their data, and calls the kernel, which adds to zeros. Contributions to the block's own nodes are
added to the arrays on disk. The executor of all schedules loads the next block and stores the last one
while the kernel runs.
Invariants: each node is stored once, by its owner; a kernel sees the values from before the loop. The
bits of a result do not depend on budget, blocks, partition, ranks or the location of arrays.

Reference: PASSION report, section 4.4.3, Figure 7 and Table 5 (`oc_get_partition`, `oc_gather`,
`oc_scatter`).
"""

from __future__ import annotations

import contextlib
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.schedule import (
    Block,
    Buffer,
    Load,
    Schedule,
    ScheduleRun,
    ScheduleStep,
    Section,
    Store,
    divide_steps,
)
from outcore.compute.jobs import Source, collective
from outcore.compute.jobs.journal import StepRanges
from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.problems.unstructured.edge_schedule import EdgeSchedule, edge_schedule
from outcore.problems.unstructured.indirect import THREADS, Indirect, get_scratch_bytes
from outcore.problems.unstructured.localize import COMBINE
from outcore.problems.unstructured.operands import (
    LoopArray,
    check_not_shared,
    get_neutral,
    open_to_read,
    open_to_update,
)
from outcore.problems.unstructured.partition import Partition
from outcore.problems.unstructured.share import Share, make_scratch_name
from outcore.problems.unstructured.staging import StagedRows, check_not_interrupted, put_in_place
from outcore.problems.unstructured.tables import describe, get_room_bytes, make_budget_error
from outcore.ranks.ranks import Ranks

__all__ = ["EdgeKernel", "edge_loop"]

#: Function called with the edges of a block in local numbers, and with the rows of all arrays by name.
EdgeKernel = Callable[..., None]


@collective
def edge_loop(
    edges: Source | EdgeSchedule,
    *,
    reads: Mapping[str, Source] | None = None,
    updates: Mapping[str, Any],
    kernel: EdgeKernel,
    edge_data: Mapping[str, Source] | None = None,
    nodes: int | None = None,
    partition: Partition | None = None,
    updated: Sequence[int] | None = None,
    resume: bool = False,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
) -> None:
    """
    Run a kernel on the edges of an unstructured problem, with data on nodes and edges larger than
    memory.

    Collective if `comm` is given.

    Parameters
    ----------
    edges
        Nodes of each edge: integers of shape (m, k), as a path, a `DiskArray` or an array in memory. An
        `EdgeSchedule` can be used for several loops over the same edges. Arrays on disk may be larger
        than memory.
    reads
        Arrays that the kernel reads, by name, with one row for each node: paths, `DiskArray` or arrays
        in memory.
    updates
        Arrays that the kernel adds to, by name, with one row for each node: a path, a `DiskArray` open
        for writing, or a NumPy array, which is changed in place. ``(array, "min")`` or ``(array,
        "max")`` keeps the smallest or largest contribution instead of the sum.
    kernel
        Function called as ``kernel(edges, **arrays)``, once for each block of nodes that has edges.
        `edges` is int32 of shape (e, k), in local numbers. It gets the rows of `reads` that these
        numbers refer to, and one row of `edge_data` for each edge, both read-only. For `updates` it gets
        the same number of rows filled with zeros (for ``"min"`` and ``"max"``: the largest and the
        smallest number), to which it adds contributions, as with `numpy.add.at` (`numpy.minimum.at`). It
        returns nothing.
    edge_data
        Arrays that the kernel reads, by name, with one row for each edge.
    nodes
        Number of nodes. Default: the number of rows of the arrays.
    partition
        Partition of the nodes. It changes what is read, never the result. Default: blocks of consecutive
        numbers.
    updated
        Columns of `edges` whose nodes the kernel adds to; contributions to other nodes are dropped.
        Default: all.
    resume
        Whether the same call can resume the loop after a kill, on any number of ranks. Then `edges` must
        be an `EdgeSchedule` saved in a folder, and `updates` must be on disk. They do not change until
        all new rows are durable in separate files, so nothing is added twice.
    comm
        Communicator of mpi4py, or a transport, whose ranks share the blocks. Then `updates` must be on
        disk, and each rank must have opened the `EdgeSchedule`, if one is given.

    Raises
    ------
    UsageError
        ``shape-mismatch``: an array does not have one row for each node (edge). ``bad-out``: an array is
        read and updated, updated twice, or cannot be written. ``bad-function``: the kernel returned
        something. ``bad-option``, ``bad-dtype``, ``bad-value``, and the errors of `edge_schedule`.
        ``other-job``, ``half-replaced``: an interrupted loop has left new rows of an array of `updates`,
        and this call does not resume it.
    SectionError
        ``index-out-of-bounds``: an edge names a node that does not exist. Nothing was changed.
    BudgetError
        The blocks do not fit half of the memory budget; a schedule made with a larger ``bytes_per_node``
        has smaller blocks.
    UnsupportedError
        ``unsupported-feature``: `updates` holds an array in memory, and several ranks or ``resume=True``
        are used.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or made a different call.

    Notes
    -----
    The result is, bit for bit, that of the loop in memory::

        added = numpy.zeros_like(x)
        kernel(edges, x=added, **reads)  # on all edges, in their order
        x += added

    for every budget, partition and number of ranks, if the kernel processes each edge independently and
    adds the contributions to one node in the order of the edges. `numpy.add.at` does, and so does
    `numpy.bincount` with weights; a kernel may also call either several times, once for each end of the
    edges. A block contains every edge of its nodes, so each block processes the edges it shares with
    other blocks, and drops their contributions to nodes of others.

    The kernel reads arrays as they were before the loop. If it raises, earlier blocks have been stored
    and others not: start again with copies of `updates`, or use ``resume=True``, which leaves them
    unchanged. This needs another file of the same size for each of `updates`, which is written and
    copied at the end; written data is flushed every few seconds. A completed loop leaves nothing behind:
    the next call is a new loop and adds again. While rows are copied at the end, `updates` are half old
    and half new, and only a call that completes the copy is accepted.

    Chunked arrays that several ranks update also use such files, without a journal, and so do arrays
    with codecs if there are several blocks: a chunk has nodes of several blocks, and is encoded once.

    While a kernel runs, the next block is read and the previous one written in the background. The loop
    uses half of the memory budget. All ranks first inspect edges without a schedule (`edge_schedule`),
    into memory or temporary arrays on disk. Writes behave as those of `DiskArray`: `DiskArray.flush`
    makes them durable.

    References
    ----------
    PASSION report, section 4.4.3, Figure 7.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> edges = np.array([[0, 1], [1, 2], [2, 3]])
    >>> y = outcore.create("y.npy", data=np.array([1.0, 2.0, 4.0, 8.0]))
    >>> x = outcore.create("x.npy", (4,), "f8")
    >>> def sweep(edges, x, y):
    ...     a, b = edges.T
    ...     np.add.at(x, a, y[b])
    ...     np.add.at(x, b, y[a])
    >>> outcore.unstructured.edge_loop(edges, reads={"y": y}, updates={"x": x}, kernel=sweep)
    >>> x[:]
    array([ 2.,  5., 10.,  4.])
    """
    ranks = Ranks.of(comm, "edge_loop")
    with contextlib.ExitStack() as stack:
        loop = _Loop(stack, reads or {}, updates, edge_data or {}, kernel)
        loop.check_not_in_memory(ranks, edges, resume=resume)
        told = f"edge_loop: {loop.describe()}, {_describe_edges(edges)}, resume={resume}"
        budget = ranks.check_same_call(lambda: told, int(outcore.memory()))
        schedule = loop.make_schedule(stack, edges, nodes, partition, updated, ranks)
        loop.check(schedule)
        share = stack.enter_context(Share(ranks, budget, [one.table.path for one in loop.updates]))
        if resume:
            _run_resumable(stack, loop, schedule, share)
        else:
            ranks.run_on_all(lambda: check_not_interrupted(loop.updates))
            # Several ranks, or several blocks, have rows of the same chunks.
            shared = [one.is_shared(ranks.size, schedule.blocks) for one in loop.updates]
            staged = [n for n, is_shared in enumerate(shared) if is_shared]
            into = [loop.updates[n] for n in staged]
            rows = [share.table(one.table.shape, one.dtype, counted=True) for one in into]
            for table in rows:
                stack.callback(table.close)
            plan = loop.plan(schedule, staged)
            loop.check_budget(plan, schedule)
            mine = _choose_steps(plan, schedule, ranks)
            ranks.run_long_step(lambda: loop.run(plan, schedule, mine, rows))
            if staged:
                ranks.run_long_step(put_in_place(rows, into, ranks, share.room))


def _run_resumable(
    stack: contextlib.ExitStack, loop: _Loop, schedule: EdgeSchedule, share: Share
) -> None:
    """Run a loop that can be resumed after a kill."""
    ranks = share.ranks
    plan = loop.plan(schedule, range(len(loop.updates)))
    loop.check_budget(plan, schedule)
    words = {"kernel": getattr(loop.kernel, "__qualname__", type(loop.kernel).__name__)}
    others = [*loop.reads, *loop.edge_data]
    kept = StagedRows(ranks, loop.updates, others, words | schedule.identity(), schedule.blocks)
    stack.callback(kept.release)
    try:
        kept.begin()
        if not kept.is_computed:
            mine = _choose_steps(plan, schedule, ranks)
            kept.run(partial(loop.run, plan, schedule, mine, kept.rows))
        kept.replace(share.room)
    except BaseException as error:
        kept.note_failure(error)
        raise


def _describe_edges(edges: Source | EdgeSchedule) -> str:
    """
    Describe edges for a comparison between ranks.

    Schedules with different blocks have different checksums.
    """
    if isinstance(edges, EdgeSchedule):
        return f"{edges!r} ({zlib.crc32(edges.tables.blocks.tobytes()):08x})"
    return "edges without a schedule"


def _order_blocks(schedule: EdgeSchedule) -> NDArray[np.int64]:
    """Return the blocks in the order of steps, by rank of a hierarchical partition."""
    return np.argsort(schedule.tables.blocks[:, -1], kind="stable")


def _choose_steps(plan: Schedule, schedule: EdgeSchedule, ranks: Ranks) -> range:
    """
    Return the steps of this rank.

    If a hierarchical partition is made for this number of ranks, it assigns its parts to the ranks. All
    ranks then process the same first-level part at a time, which fits in their combined memory (the
    report's partitioned in-core model). Otherwise each rank gets consecutive blocks with about the same
    number of edges.
    """
    if schedule.ranks == ranks.size:
        owners = np.sort(schedule.tables.blocks[:, -1])
        begin, end = np.searchsorted(owners, (ranks.rank, ranks.rank + 1))
        return range(int(begin), int(end))
    mine = range(0)
    # one iteration: steps do not wait
    for shares in divide_steps(plan, ranks.size, lambda step: step.work):
        mine = shares[ranks.rank]
    return mine


class _Loop:
    """Arguments of one call."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        reads: Mapping[str, Source],
        updates: Mapping[str, Any],
        edge_data: Mapping[str, Source],
        kernel: EdgeKernel,
    ) -> None:
        names = [*reads, *updates, *edge_data]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or "edges" in names:
            raise UsageError(
                f"the name {(twice or ['edges'])[0]!r} is used twice; give each array its own name, "
                "other than 'edges', because the kernel gets arrays by name",
                code="bad-value",
            )
        self.updates = [open_to_update(stack, name, what) for name, what in updates.items()]
        self.reads = open_to_read(stack, reads)
        self.edge_data = open_to_read(stack, edge_data)
        self.kernel = kernel
        if not self.updates:
            raise UsageError("updates= is empty; pass the arrays to update", code="bad-value")
        for one in [*self.updates, *self.reads, *self.edge_data]:
            if one.table.ndim < 1:
                raise UsageError(
                    f"{one.name!r} is a single number; pass one row for each node (edge)",
                    code="shape-mismatch",
                )
        check_not_shared(self.updates, [*self.reads, *self.edge_data])

    @property
    def node_bytes(self) -> int:
        """Bytes of one row of all arrays on nodes."""
        return sum(one.row * one.dtype.itemsize for one in [*self.reads, *self.updates])

    def describe(self) -> str:
        """Describe the arrays for a comparison between ranks."""
        return ", ".join(
            f"{one.name}: {describe(one.table)} {one.combine}"
            for one in [*self.updates, *self.reads, *self.edge_data]
        )

    def make_schedule(
        self,
        stack: contextlib.ExitStack,
        edges: Source | EdgeSchedule,
        nodes: int | None,
        partition: Partition | None,
        updated: Sequence[int] | None,
        ranks: Ranks,
    ) -> EdgeSchedule:
        """Return the given schedule, or make one for these edges."""
        if isinstance(edges, EdgeSchedule):
            if partition is not None or updated is not None or nodes not in (None, edges.nodes):
                raise UsageError(
                    "an EdgeSchedule already determines the number of nodes, the partition and the "
                    "updated columns; omit nodes=, partition= and updated=",
                    code="bad-value",
                )
            return edges
        count = int(self.updates[0].table.shape[0]) if nodes is None else nodes
        self._check_rows(self.updates + self.reads, count, "node")  # before reading the edges

        def make(out: str | None) -> EdgeSchedule:
            return edge_schedule(
                edges,
                count,
                partition=partition,
                updated=updated,
                bytes_per_node=self.node_bytes,
                bytes_per_edge=sum(one.row * one.dtype.itemsize for one in self.edge_data),
                out=out,
                comm=ranks.comm,
            )

        if ranks.size == 1:
            return stack.enter_context(make(None))
        folder = ranks.broadcast_from_first(
            lambda: make_scratch_name([one.table.path for one in self.updates])
        )
        if ranks.is_first:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return stack.enter_context(make(folder))

    def check(self, schedule: EdgeSchedule) -> None:
        """Raise `UsageError` if arrays do not fit the schedule."""
        self._check_rows(self.updates + self.reads, schedule.nodes, "node")
        self._check_rows(self.edge_data, schedule.edges, "edge")

    def check_not_in_memory(self, ranks: Ranks, edges: Any, *, resume: bool) -> None:
        """Raise an error if other ranks or a resumed loop could not find the arrays."""
        for one in self.updates:
            if one.in_memory and (resume or ranks.size > 1):
                who = "a loop with resume=True" if resume else "a loop of several ranks"
                raise UnsupportedError(
                    f"{who} cannot update {one.name!r}, which is in memory; use an array on disk",
                    code="unsupported-feature",
                )
        if resume and not (isinstance(edges, EdgeSchedule) and edges.folder):
            raise UsageError(
                "resume=True needs a saved schedule; make one with "
                "outcore.unstructured.edge_schedule(..., out=folder), and open it with "
                "EdgeSchedule.open",
                code="missing-argument",
            )

    def check_budget(self, plan: Schedule, schedule: EdgeSchedule) -> None:
        """Raise `BudgetError` if blocks do not fit."""
        if plan.held > get_room_bytes():
            raise make_budget_error(
                f"the largest block of {schedule!r}",
                plan.held,
                f"make a schedule with bytes_per_node={self.node_bytes}",
            )

    @staticmethod
    def _check_rows(arrays: Sequence[LoopArray], rows: int, what: str) -> None:
        for one in arrays:
            if one.table.shape[0] != rows:
                raise UsageError(
                    f"{one.name!r} has shape {one.table.shape}, but there are {rows} {what}s; pass "
                    f"one row for each {what}",
                    code="shape-mismatch",
                )

    # The schedule

    def plan(self, schedule: EdgeSchedule, staged: Sequence[int] = ()) -> Schedule:
        """
        Build the schedule of the loop, with one step for each block.

        New rows of the `staged` ones of `updates` go to separate arrays, the last ones of the schedule.

        Its arrays are the local edges, then `edge_data` indexed by the numbers of edges, then `reads`
        and `updates` indexed by the nodes. The blocks of a step have the same order, followed by the
        arrays that the kernel adds to.
        """
        table = schedule.tables.blocks
        edges, own, off, space = (table[:, n] for n in range(4))
        names = [one.name for one in [*self.edge_data, *self.reads, *self.updates]]
        order = _order_blocks(schedule)
        edge_begins = np.r_[0, edges.cumsum()]
        node_begins = np.r_[0, (own + space).cumsum()]
        rows = own + off
        most_edges, most_own, most_rows = (int(one.max(initial=0)) for one in (edges, own, rows))
        columns = schedule.columns
        buffers = [Buffer(most_edges * columns, np.dtype(np.int32), copies=2)]
        buffers += [Buffer(most_edges * one.row, one.dtype, copies=2) for one in self.edge_data]
        buffers += [Buffer(most_rows * one.row, one.dtype, copies=2) for one in self.reads]
        # Three copies: one is read, one is used by the kernel, one is written.
        buffers += [Buffer(most_own * one.row, one.dtype, copies=3) for one in self.updates]
        buffers += [Buffer(most_rows * one.row, one.dtype) for one in self.updates]

        into = {n: 1 + len(names) + k for k, n in enumerate(staged)}

        def make(step: int) -> ScheduleStep:
            number = int(order[step])
            count, mine, all_rows = int(edges[number]), int(own[number]), int(rows[number])
            at = slice(int(edge_begins[number]), int(edge_begins[number]) + count)
            begin = int(node_begins[number])
            sections: list[Section] = [(at, slice(0, columns))]
            sections += [(at, *_slice_whole(one.tail)) for one in self.edge_data]
            needed, kept = slice(begin, begin + all_rows), slice(begin, begin + mine)
            sections += [(needed, *_slice_whole(one.tail)) for one in self.reads]
            sections += [(kept, *_slice_whole(one.tail)) for one in self.updates]
            shapes = [tuple(part.stop - part.start for part in section) for section in sections]
            shapes += [(all_rows, *one.tail) for one in self.updates]
            first = len(sections) - len(self.updates)
            stored = range(first, len(sections))
            # Without edges nothing is read, and there are no contributions.
            loaded = range(len(sections)) if count else stored
            return ScheduleStep(
                tuple(Block(n, shape) for n, shape in enumerate(shapes)),
                tuple(Load(n, sections[n], n) for n in loaded),
                tuple(Store(into.get(n - first, n), sections[n], n) for n in stored),
                kernel=0,
                work=count,
            )

        told = ("edges", *names, *(f"{self.updates[n].name}, new" for n in staged))
        return Schedule("edge_loop", told, tuple(buffers), schedule.blocks, make, (self.compute,))

    def arrays(self, schedule: EdgeSchedule, rows: Sequence[Any] = ()) -> list[Any]:
        """Return the arrays of the plan, including those for new rows."""
        return [
            schedule.tables.local,
            *(Indirect(one.table, schedule.tables.numbers) for one in self.edge_data),
            *(Indirect(one.table, schedule.tables.index) for one in [*self.reads, *self.updates]),
            *(Indirect(one, schedule.tables.index) for one in rows),
        ]

    def run(
        self,
        plan: Schedule,
        schedule: EdgeSchedule,
        steps: range,
        rows: Sequence[Any] = (),
        done: StepRanges | None = None,
        stored: Callable[[int], object] = lambda number: None,
    ) -> None:
        """Run some steps, except completed ones."""
        if len(steps):
            arrays, before = self.arrays(schedule, rows), StepRanges() if done is None else done
            with (
                _core.Reservation("gather", THREADS * get_scratch_bytes()),
                ScheduleRun(plan, arrays, steps=steps, done=before, stored=stored) as run,
            ):
                run.finish()

    def compute(self, blocks: Sequence[NDArray[Any]], *_: Any) -> None:
        """Call the kernel on a block, and combine its contributions with the rows of own nodes."""
        edges, *data = blocks
        count = len(self.updates)
        before, added = data[-2 * count : -count], data[-count:]
        given = dict(zip(_list_names(self.edge_data + self.reads), data[: -2 * count], strict=True))
        for one, rows in zip(self.updates, added, strict=True):
            rows[...] = get_neutral(one)
            given[one.name] = rows
        for rows in [edges, *data[: -2 * count]]:
            rows.flags.writeable = False
        most = len(added[0])
        if edges.size and not (int(edges.min()) >= 0 and int(edges.max()) < most):
            raise FormatError(
                f"edges refer to local nodes {int(edges.min())} to {int(edges.max())}, but there are "
                f"{most} nodes; the schedule is damaged, make it again",
                code="bad-metadata",
            )
        returned: object = self.kernel(edges, **given) if len(edges) else None
        if returned is not None:
            raise UsageError(
                f"the kernel returned a {type(returned).__name__}; it must add to the arrays of "
                "updates= in place, as with numpy.add.at, and return nothing",
                code="bad-function",
            )
        for one, old, rows in zip(self.updates, before, added, strict=True):
            COMBINE[str(one.combine)](old, rows[: len(old)], out=old)


def _list_names(arrays: Sequence[LoopArray]) -> list[str]:
    return [one.name for one in arrays]


def _slice_whole(tail: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in tail)
