"""
Loops over the edges of an unstructured problem whose nodes and edges do not fit in memory.

Problem. ``x[edges[:, 0]] += f(y[edges[:, 1]])`` and its like: a kernel in NumPy that works on a mesh in
memory should work on one that is not, with the same result.
Idea. An `EdgeSchedule` says which edges and nodes each block has. A step of the loop loads these, the
data by gathers, and calls the kernel, which adds to zeros. What it has added to the block's own nodes is
put into the arrays on disk; the executor of all schedules loads the next block meanwhile, and stores
behind.

Invariants. Each node is stored once, by its owner; a kernel sees the values from before the loop. The
bits of a result depend neither on budget nor on blocks, partition, ranks, or on where arrays are.

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
    Run,
    Schedule,
    Section,
    Step,
    Store,
    divided,
)
from outcore.compute.jobs import Source, collective
from outcore.compute.jobs.journal import Steps
from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.problems.unstructured.edge_schedule import EdgeSchedule, edge_schedule
from outcore.problems.unstructured.indirect import THREADS, Indirect, scratch
from outcore.problems.unstructured.localize import COMBINE
from outcore.problems.unstructured.operands import (
    Operand,
    neutral,
    refuse_shared,
    to_read,
    to_update,
)
from outcore.problems.unstructured.partition import Partition
from outcore.problems.unstructured.share import Share, scratch_name
from outcore.problems.unstructured.staging import Kept, put_in_place, refuse_interrupted
from outcore.problems.unstructured.tables import describe, room, too_small
from outcore.ranks.ranks import Ranks

__all__ = ["Kernel", "edge_loop"]

#: Called with the edges of a block in local numbers, and by name with the rows of all arrays.
Kernel = Callable[..., None]


@collective
def edge_loop(
    edges: Source | EdgeSchedule,
    *,
    reads: Mapping[str, Source] | None = None,
    updates: Mapping[str, Any],
    kernel: Kernel,
    edge_data: Mapping[str, Source] | None = None,
    nodes: int | None = None,
    partition: Partition | None = None,
    updated: Sequence[int] | None = None,
    resume: bool = False,
    comm: outcore.Communicator | outcore.Transport | None = None,
) -> None:
    """
    Run a kernel on the edges of an unstructured problem, with data on nodes and edges larger than
    memory.

    Parameters
    ----------
    edges
        Integers of shape (m, k): the nodes of each edge; or an `EdgeSchedule`, for several loops over
        the same edges. What is on disk may be larger than memory.
    reads
        Arrays that the kernel reads, a row for each node, by name. Paths, `DiskArray` or arrays in
        memory.
    updates
        Arrays that it adds to, a row for each node, by name: a path, a `DiskArray` that is open for
        writing, or a NumPy array, which is changed in place. ``(array, "min")`` or ``(array, "max")``:
        the least or greatest contribution is kept, instead of the sum.
    kernel
        Called as ``kernel(edges, **arrays)``, once for each block of nodes that has edges. `edges` is
        int32 of shape (e, k), in local numbers. Of `reads` it gets the rows that these number, of
        `edge_data` a row for each edge, both read-only. Of `updates` it gets zeros (of ``"min"`` and
        ``"max"`` the greatest and the least number), as many rows, to which it adds contributions, as by
        `numpy.add.at` (`numpy.minimum.at`). It returns nothing.
    edge_data
        Arrays that the kernel reads, a row for each edge, by name.
    nodes
        How many nodes there are; by default as many as the arrays have rows.
    partition
        Of the nodes. By default blocks are neighbouring numbers. It changes what has to be read, never a
        result.
    updated
        Columns of `edges` whose nodes the kernel adds to; by default all. What it adds to others is
        lost.
    resume
        The loop can go on after a kill: the same call does so, on any number of ranks. `edges` is an
        `EdgeSchedule` that is kept in a folder, and `updates` are on disk. They do not change until all
        new rows are durable, in files beside them; so nothing is added twice.
    comm
        A communicator of mpi4py, or a transport: its ranks share the blocks. Collective then; `updates`
        are on disk, and an `EdgeSchedule` is one that each rank has opened.

    Raises
    ------
    UsageError
        ``shape-mismatch``: an array has not one row for each node (edge). ``bad-out``: an array is read
        and updated, updated twice, or cannot be written. ``bad-function``: the kernel returned
        something. ``bad-option``, ``bad-dtype``, ``bad-value``, and as `edge_schedule`. ``other-job``,
        ``half-replaced``: an interrupted loop has left new rows of what is updated, and this call is not
        the one that goes on with it.
    SectionError
        ``index-out-of-bounds``: an edge names a node that is not there. Nothing was changed.
    BudgetError
        The blocks do not fit half of the memory budget; a schedule made with more ``bytes_per_node`` has
        smaller ones.
    UnsupportedError
        ``unsupported-feature``: ranks update an array in memory, or a loop that can go on does.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or called something else.

    Notes
    -----
    The result is, bit for bit, that of the loop in memory::

        added = numpy.zeros_like(x)
        kernel(edges, x=added, **reads)  # on all edges, in their order
        x += added

    for every budget, partition and number of ranks, if the kernel works on each edge by itself and adds
    what belongs to one node in the order of the edges. `numpy.add.at` does, and so does `numpy.bincount`
    with weights; a kernel that calls either several times, once for each end of the edges, does as well.
    Every edge of a block's nodes is in that block, so one between blocks is worked on by each, and what
    it adds to nodes of others is dropped there.

    Arrays that the kernel reads are read as they were before the loop. If it raises, blocks before have
    been stored and others not: begin again with copies of `updates`, or take ``resume=True``, with which
    they have not changed. That takes one more file for each of `updates`, as large, which is written,
    and copied at the end; every few seconds what was written is flushed. A loop that has ended leaves
    nothing behind: called again, it is another one, and adds again. While rows are copied at the end
    `updates` are half old and half new, and a call that does not complete them is refused.

    What several ranks update in chunks is kept in such files, too, without a journal, and so are arrays
    with codecs if there are several blocks: a chunk has nodes of several of them, and is encoded once,
    by one.

    While a kernel runs, the next block is read and the last one written in the background. Half of the
    memory budget is taken. Edges without a schedule are inspected first (`edge_schedule`), into memory
    or temporary arrays on disk, by all ranks together. Writes are as those of `DiskArray`:
    `DiskArray.flush` makes them durable.

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
    >>> outcore.edge_loop(edges, reads={"y": y}, updates={"x": x}, kernel=sweep)
    >>> x[:]
    array([ 2.,  5., 10.,  4.])
    """
    ranks = Ranks.of(comm, "edge_loop")
    with contextlib.ExitStack() as stack:
        loop = _Loop(stack, reads or {}, updates, edge_data or {}, kernel)
        loop.refuse_memory(ranks, edges, resume=resume)
        told = f"edge_loop: {loop.told()}, {_told(edges)}, resume={resume}"
        budget = ranks.alike(lambda: told, int(outcore.memory()))
        schedule = loop.scheduled(stack, edges, nodes, partition, updated, ranks)
        loop.check(schedule)
        share = stack.enter_context(Share(ranks, budget, [one.table.path for one in loop.updates]))
        if resume:
            _kept(stack, loop, schedule, share)
        else:
            ranks.together(lambda: refuse_interrupted(loop.updates))
            # Ranks, or blocks, have rows of the same chunks.
            shared = [one.is_shared(ranks.size, schedule.blocks) for one in loop.updates]
            staged = [n for n, is_shared in enumerate(shared) if is_shared]
            into = [loop.updates[n] for n in staged]
            rows = [share.table(one.table.shape, one.dtype, counted=True) for one in into]
            for table in rows:
                stack.callback(table.close)
            plan = loop.plan(schedule, staged)
            loop.refuse_large(plan, schedule)
            mine = _share(plan, schedule, ranks)
            ranks.finished(lambda: loop.run(plan, schedule, mine, rows))
            if staged:
                ranks.finished(put_in_place(rows, into, ranks, share.room))


def _kept(stack: contextlib.ExitStack, loop: _Loop, schedule: EdgeSchedule, share: Share) -> None:
    """A loop that can go on after a kill."""
    ranks = share.ranks
    plan = loop.plan(schedule, range(len(loop.updates)))
    loop.refuse_large(plan, schedule)
    words = {"kernel": getattr(loop.kernel, "__qualname__", type(loop.kernel).__name__)}
    others = [*loop.reads, *loop.edge_data]
    kept = Kept(ranks, loop.updates, others, words | schedule.identity(), schedule.blocks)
    stack.callback(kept.release)
    try:
        kept.begin()
        if not kept.is_computed:
            mine = _share(plan, schedule, ranks)
            kept.run(partial(loop.run, plan, schedule, mine, kept.rows))
        kept.replace(share.room)
    except BaseException as error:
        kept.failed(error)
        raise


def _told(edges: Source | EdgeSchedule) -> str:
    """Edges, for a comparison between ranks: schedules whose blocks differ have different numbers."""
    if isinstance(edges, EdgeSchedule):
        return f"{edges!r} ({zlib.crc32(edges.tables.blocks.tobytes()):08x})"
    return "edges without a schedule"


def _order(schedule: EdgeSchedule) -> NDArray[np.int64]:
    """Blocks in the order of steps: those of each rank of a hierarchical partition follow each other."""
    return np.argsort(schedule.tables.blocks[:, -1], kind="stable")


def _share(plan: Schedule, schedule: EdgeSchedule, ranks: Ranks) -> range:
    """
    The steps of this rank.

    Parts of a hierarchical partition for as many ranks say whose they are, so that all ranks work on the
    same first-level part at a time, which fits in their memory together (the report's partitioned
    in-core model). Else ranks have neighbouring blocks of about equally many edges.
    """
    if schedule.ranks == ranks.size:
        owners = np.sort(schedule.tables.blocks[:, -1])
        begin, end = np.searchsorted(owners, (ranks.rank, ranks.rank + 1))
        return range(int(begin), int(end))
    mine = range(0)
    for shares in divided(plan, ranks.size, lambda step: step.work):  # once: steps do not wait
        mine = shares[ranks.rank]
    return mine


class _Loop:
    """The arguments of one call."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        reads: Mapping[str, Source],
        updates: Mapping[str, Any],
        edge_data: Mapping[str, Source],
        kernel: Kernel,
    ) -> None:
        names = [*reads, *updates, *edge_data]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or "edges" in names:
            raise UsageError(
                f"the name {(twice or ['edges'])[0]!r} is taken twice; the kernel gets each array by "
                "its name, and edges= is the edges",
                code="bad-value",
            )
        self.updates = [to_update(stack, name, what) for name, what in updates.items()]
        self.reads = to_read(stack, reads)
        self.edge_data = to_read(stack, edge_data)
        self.kernel = kernel
        if not self.updates:
            raise UsageError("updates= is empty; the loop would change nothing", code="bad-value")
        for one in [*self.updates, *self.reads, *self.edge_data]:
            if one.table.ndim < 1:
                raise UsageError(
                    f"{one.name!r} is a single number; give a row for each node (edge)",
                    code="shape-mismatch",
                )
        refuse_shared(self.updates, [*self.reads, *self.edge_data])

    @property
    def node_bytes(self) -> int:
        """Bytes of a row of all arrays on nodes."""
        return sum(one.row * one.dtype.itemsize for one in [*self.reads, *self.updates])

    def told(self) -> str:
        """The arrays, for a comparison between ranks."""
        return ", ".join(
            f"{one.name}: {describe(one.table)} {one.combine}"
            for one in [*self.updates, *self.reads, *self.edge_data]
        )

    def scheduled(
        self,
        stack: contextlib.ExitStack,
        edges: Source | EdgeSchedule,
        nodes: int | None,
        partition: Partition | None,
        updated: Sequence[int] | None,
        ranks: Ranks,
    ) -> EdgeSchedule:
        """The schedule that was given, or one of these edges, which the first rank makes."""
        if isinstance(edges, EdgeSchedule):
            if partition is not None or updated is not None or nodes not in (None, edges.nodes):
                raise UsageError(
                    "the schedule says how many nodes there are, how they are partitioned and which are "
                    "updated; leave nodes=, partition= and updated= out",
                    code="bad-value",
                )
            return edges
        count = int(self.updates[0].table.shape[0]) if nodes is None else nodes
        self._check_rows(self.updates + self.reads, count, "node")  # before edges are walked over

        def made(out: str | None) -> EdgeSchedule:
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
            return stack.enter_context(made(None))
        folder = ranks.told(lambda: scratch_name([one.table.path for one in self.updates]))
        if ranks.first:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return stack.enter_context(made(folder))

    def check(self, schedule: EdgeSchedule) -> None:
        """Refuse arrays that do not fit the schedule."""
        self._check_rows(self.updates + self.reads, schedule.nodes, "node")
        self._check_rows(self.edge_data, schedule.edges, "edge")

    def refuse_memory(self, ranks: Ranks, edges: Any, *, resume: bool) -> None:
        """Refuse what several ranks, or a loop that is to go on after a kill, would not find."""
        for one in self.updates:
            if one.in_memory and (resume or ranks.size > 1):
                who = "a loop that can go on" if resume else "ranks"
                raise UnsupportedError(
                    f"{who} cannot update {one.name!r}: it is in memory; use an array on disk",
                    code="unsupported-feature",
                )
        if resume and not (isinstance(edges, EdgeSchedule) and edges.folder):
            raise UsageError(
                "resume=True needs the schedule with which the loop began; make one with "
                "outcore.edge_schedule(..., out=folder), and open it with EdgeSchedule.open",
                code="missing-argument",
            )

    def refuse_large(self, plan: Schedule, schedule: EdgeSchedule) -> None:
        """Refuse blocks that do not fit."""
        if plan.held > room():
            raise too_small(
                f"the largest block of {schedule!r}",
                plan.held,
                f", or make a schedule with bytes_per_node={self.node_bytes}",
            )

    @staticmethod
    def _check_rows(arrays: Sequence[Operand], rows: int, what: str) -> None:
        for one in arrays:
            if one.table.shape[0] != rows:
                raise UsageError(
                    f"{one.name!r} has shape {one.table.shape}, and there are {rows} {what}s; give "
                    f"one row for each {what}",
                    code="shape-mismatch",
                )

    # The schedule

    def plan(self, schedule: EdgeSchedule, staged: Sequence[int] = ()) -> Schedule:
        """
        The loop as a schedule: a step for each block.

        New rows of the `staged` ones of `updates` go to arrays of their own, which are its last ones.

        Its arrays are the local edges, then those of `edge_data` by the numbers of edges, then `reads`
        and `updates` by the index. Blocks of a step stand in that order; behind them what the kernel
        adds to.
        """
        table = schedule.tables.blocks
        edges, own, off, space = (table[:, n] for n in range(4))
        names = [one.name for one in [*self.edge_data, *self.reads, *self.updates]]
        order = _order(schedule)
        edge_begins = np.r_[0, edges.cumsum()]
        node_begins = np.r_[0, (own + space).cumsum()]
        rows = own + off
        most_edges, most_own, most_rows = (int(one.max(initial=0)) for one in (edges, own, rows))
        columns = schedule.columns
        buffers = [Buffer(most_edges * columns, np.dtype(np.int32), copies=2)]
        buffers += [Buffer(most_edges * one.row, one.dtype, copies=2) for one in self.edge_data]
        buffers += [Buffer(most_rows * one.row, one.dtype, copies=2) for one in self.reads]
        # One is read, one is with the kernel, one is written.
        buffers += [Buffer(most_own * one.row, one.dtype, copies=3) for one in self.updates]
        buffers += [Buffer(most_rows * one.row, one.dtype) for one in self.updates]

        into = {n: 1 + len(names) + k for k, n in enumerate(staged)}

        def make(step: int) -> Step:
            number = int(order[step])
            count, mine, all_rows = int(edges[number]), int(own[number]), int(rows[number])
            at = slice(int(edge_begins[number]), int(edge_begins[number]) + count)
            begin = int(node_begins[number])
            sections: list[Section] = [(at, slice(0, columns))]
            sections += [(at, *_whole(one.tail)) for one in self.edge_data]
            needed, kept = slice(begin, begin + all_rows), slice(begin, begin + mine)
            sections += [(needed, *_whole(one.tail)) for one in self.reads]
            sections += [(kept, *_whole(one.tail)) for one in self.updates]
            shapes = [tuple(part.stop - part.start for part in section) for section in sections]
            shapes += [(all_rows, *one.tail) for one in self.updates]
            first = len(sections) - len(self.updates)
            stored = range(first, len(sections))
            # Without edges nothing is read, and what the kernel would add is nothing.
            loaded = range(len(sections)) if count else stored
            return Step(
                tuple(Block(n, shape) for n, shape in enumerate(shapes)),
                tuple(Load(n, sections[n], n) for n in loaded),
                tuple(Store(into.get(n - first, n), sections[n], n) for n in stored),
                kernel=0,
                work=count,
            )

        told = ("edges", *names, *(f"{self.updates[n].name}, new" for n in staged))
        return Schedule("edge_loop", told, tuple(buffers), schedule.blocks, make, (self.compute,))

    def arrays(self, schedule: EdgeSchedule, rows: Sequence[Any] = ()) -> list[Any]:
        """The arrays of the plan, with those for new rows."""
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
        done: Steps | None = None,
        stored: Callable[[int], object] = lambda number: None,
    ) -> None:
        """Do some steps, but for those that are done."""
        if len(steps):
            arrays, before = self.arrays(schedule, rows), Steps() if done is None else done
            with (
                _core.Reservation("gather", THREADS * scratch()),
                Run(plan, arrays, steps=steps, done=before, stored=stored) as run,
            ):
                run.finish()

    def compute(self, blocks: Sequence[NDArray[Any]], *_: Any) -> None:
        """Call the kernel on a block, and put what it has added into the rows of its own nodes."""
        edges, *data = blocks
        count = len(self.updates)
        before, added = data[-2 * count : -count], data[-count:]
        given = dict(zip(_names(self.edge_data + self.reads), data[: -2 * count], strict=True))
        for one, rows in zip(self.updates, added, strict=True):
            rows[...] = neutral(one)
            given[one.name] = rows
        for rows in [edges, *data[: -2 * count]]:
            rows.flags.writeable = False
        most = len(added[0])
        if edges.size and not (int(edges.min()) >= 0 and int(edges.max()) < most):
            raise FormatError(
                f"edges in local numbers {int(edges.min())} to {int(edges.max())}, of {most} nodes; the "
                "schedule was damaged, make it again",
                code="bad-metadata",
            )
        returned: object = self.kernel(edges, **given) if len(edges) else None
        if returned is not None:
            raise UsageError(
                f"the kernel returned a {type(returned).__name__}; it adds to the arrays of updates= in "
                "place, as by numpy.add.at, and returns nothing",
                code="bad-function",
            )
        for one, old, rows in zip(self.updates, before, added, strict=True):
            COMBINE[str(one.combine)](old, rows[: len(old)], out=old)


def _names(arrays: Sequence[Operand]) -> list[str]:
    return [one.name for one in arrays]


def _whole(tail: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in tail)
