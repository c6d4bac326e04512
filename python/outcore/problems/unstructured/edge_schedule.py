"""
Inspect the edges of a mesh once, for loops over them with any variable and any step.

Problem: in a loop over edges, a node gets contributions from edges anywhere in the file. If each edge is
processed once, a node between two parts gets a partial sum from each part, and floating-point sums then
depend on how the problem was cut.
Approach: the owner of a node computes its whole sum. A block of nodes processes every edge that has one
of them, so several blocks process the edges between them, and each drops the contributions to nodes of
other blocks. Nothing is combined across blocks, and each node gets its contributions in the order of the
edges. Blocks are parts of a partition, or of the numbering, cut until they fit in memory. The inspection
then finds the edges of each block in local numbers, and the nodes that each block reads.
Invariants: each node is in one block. A block has all edges that update its nodes, in the order of their
numbers. Local numbers below `own` are those of the block's own nodes.

Reference: PASSION report, sections 4.4.2 and 4.4.3 and Table 5 (`oc_gen_pal`, `oc_localize`,
`oc_gen_schedule`). Edges computed by several owners are the overlap of unstructured meshes, as in D. J.
Mavriplis, "Three dimensional unstructured multigrid for the Euler equations", AIAA paper 91-1549.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

import outcore
from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.base.closable import Closable
from outcore.compute.jobs import Source, collective, open_inputs
from outcore.errors import FormatError, UsageError
from outcore.formats import durable
from outcore.formats.manifests import ManifestKind
from outcore.formats.paths import one_name
from outcore.problems.unstructured.groups import Groups, choose_all_owners
from outcore.problems.unstructured.partition import Partition
from outcore.problems.unstructured.share import Share
from outcore.problems.unstructured.tables import (
    Table,
    check_edges,
    describe,
    forget_manifest,
    make_budget_error,
    make_path,
    make_table,
    open_table,
    read_manifest,
    read_slabs,
)
from outcore.problems.unstructured.translation import PartOrder
from outcore.ranks.ranks import Ranks

__all__ = ["EdgeSchedule", "edge_schedule"]

_MANIFEST = "edge-schedule.json"
_KIND = ManifestKind(
    "outcore edge schedule", 1, "outcore.unstructured.edge_schedule()", "the schedule"
)
#: Bytes per element of an edge during localization: element, masks, sorted, unique, local.
_LOCALIZED = 80
#: Divisor of the memory share: one part is for the edges localized at a time.
_PIECE = 4
#: Bytes per node of a block during localization, in addition to its data: index, sorted, ranks.
_NODE = 64
#: Local numbers are int32.
_MOST = 2**31 - 1
#: Columns of the table of blocks: edges, own nodes, nodes of other blocks, space for these in the index,
#: and the rank that owns it in a hierarchical partition, else 0.
_EDGES, _OWN, _OFF, _SPACE, _RANK = range(5)


class _Order(Protocol):
    """Order of nodes in which blocks are intervals: a `PartOrder`, or the order of node numbers."""

    @property
    def begins(self) -> NDArray[np.int64]:
        """Positions at which parts begin; no block crosses them."""

    def positions(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of nodes."""

    def at(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the nodes in an interval of positions."""

    def find_elements(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes at any positions."""


class _ByNumber:
    """Order of node numbers."""

    def __init__(self, nodes: int) -> None:
        self.begins = np.array([0, nodes], np.int64)

    def positions(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        return indices.astype(np.int64, copy=False)

    def at(self, begin: int, end: int) -> NDArray[np.int64]:
        return np.arange(begin, end)

    def find_elements(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions


class EdgeTables(NamedTuple):
    """
    Arrays of an edge schedule, in memory or on disk.

    `local` has the edges by block, in local node numbers (int32), and `numbers` their numbers. `index`
    has the nodes that each block reads, its own nodes first. Columns of `blocks`: edges, own nodes,
    nodes of other blocks, space in `index`, and rank.
    """

    local: Table
    numbers: Table
    index: Table
    blocks: NDArray[np.int64]


class EdgeSchedule(Closable):
    """
    Schedule of a mesh for `outcore.unstructured.edge_loop`.

    `outcore.unstructured.edge_schedule` makes it, and `EdgeSchedule.open` opens it.

    Notes
    -----
    Its arrays, in memory or on disk, are the edges by block in local numbers (int32), their numbers, and
    the nodes that each block reads, its own nodes first (int64).

    Examples
    --------
    >>> import outcore
    >>> schedule = outcore.unstructured.edge_schedule([[0, 1], [1, 2], [2, 0]], 3)
    >>> schedule
    <EdgeSchedule: 3 edges of 3 nodes, 1 block>
    """

    def __init__(
        self,
        nodes: int,
        edges: int,
        ranks: int,
        local: Table,
        numbers: Table,
        index: Table,
        blocks: Table,
        folder: str | None = None,
    ) -> None:
        self._nodes, self._edges, self._ranks = nodes, edges, ranks
        #: Arrays of the schedule, for `outcore.unstructured.edge_loop`.
        self.tables = EdgeTables(local, numbers, index, np.asarray(blocks[...], np.int64))
        #: Folder in which the schedule was saved, or None.
        self.folder = folder

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self._nodes

    @property
    def edges(self) -> int:
        """Number of edges."""
        return self._edges

    @property
    def columns(self) -> int:
        """Number of nodes of an edge."""
        return int(self.tables.local.shape[1])

    @property
    def blocks(self) -> int:
        """Number of blocks. A kernel is called once for each block that has edges."""
        return len(self.tables.blocks)

    @property
    def ranks(self) -> int:
        """
        Number of ranks of a hierarchical partition, else 1.

        This many ranks process the same part of the first level at a time.
        """
        return self._ranks

    @property
    def edges_of_blocks(self) -> NDArray[np.int64]:
        """
        Number of edges of each block: int64, shape (blocks,).

        Their sum divided by `edges` is the average number of times that an edge is processed.
        """
        return self.tables.blocks[:, _EDGES].copy()

    @property
    def nodes_of_blocks(self) -> NDArray[np.int64]:
        """Numbers of own nodes and of other nodes that each block reads: int64, shape (blocks, 2)."""
        return self.tables.blocks[:, [_OWN, _OFF]].copy()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """
        Open a schedule that ``edge_schedule(..., out=folder)`` has saved.

        Parameters
        ----------
        folder
            Folder of the schedule.

        Returns
        -------
        EdgeSchedule
            Schedule whose arrays are in memory if they fit an eighth of the memory budget, otherwise on
            disk.

        Raises
        ------
        NotFoundError
            The folder contains no complete schedule.
        FormatError
            The saved schedule is inconsistent, or from a later version.

        Notes
        -----
        Not collective: each rank opens it.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.edge_schedule([[0, 1], [1, 2]], 3, out="loop").close()
        >>> outcore.unstructured.EdgeSchedule.open("loop").edges
        2
        """
        document, judge = read_manifest(folder, _MANIFEST, _KIND)
        names = ("nodes", "edges", "ranks", "columns", "blocks", "copies", "index")
        nodes, edges, ranks, columns, blocks, copies, index = (
            judge.integer(document.get(name), name) for name in names
        )
        with contextlib.ExitStack() as stack:
            shapes = {
                "local": (copies, columns),
                "numbers": (copies,),
                "index": (index,),
                "blocks": (blocks, 5),
            }
            tables = []
            for name, shape in shapes.items():
                tables.append(open_table(folder, name, shape))
                stack.callback(tables[-1].close)
            local, numbers, index_of, blocks_of = tables
            found = cls(nodes, edges, ranks, local, numbers, index_of, blocks_of, one_name(folder))
            each, most = found.tables.blocks, max(copies, index, ranks)
            inside = ((each >= 0) & (each <= most)).all() and (each[:, _RANK] < ranks).all()
            sums = each.sum(axis=0)
            added = (sums[_EDGES], sums[_OWN] + sums[_SPACE], sums[_OWN])
            fits = inside and added == (copies, index, nodes)
            if not fits or (each[:, _OFF] > each[:, _SPACE]).any():
                raise FormatError(
                    f"the blocks in {one_name(folder)!r} do not match its arrays, nodes or ranks; make "
                    "the schedule again",
                    code="bad-metadata",
                    path=one_name(folder),
                )
            stack.pop_all()
        return found

    def identity(self) -> dict[str, Any]:
        """Return path, time and size of the manifest, which identify a saved schedule."""
        path = os.path.realpath(os.path.join(str(self.folder), _MANIFEST))
        with durable.os_errors("looking at", path):
            found = os.stat(path)
        return {"schedule": path, "schedule time": [found.st_mtime_ns, found.st_size]}

    def close(self) -> None:
        """
        Release the arrays and delete temporary ones. Closing twice does nothing.

        Examples
        --------
        >>> import outcore
        >>> outcore.unstructured.edge_schedule([[0, 1]], 2).close()
        """
        tables = self.tables
        for table in (tables.local, tables.numbers, tables.index):
            table.close()

    def __repr__(self) -> str:
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        return f"<EdgeSchedule: {self._edges} edges of {self._nodes} nodes, {blocks}>"


@collective
def edge_schedule(
    edges: Source,
    nodes: SupportsIndex,
    *,
    partition: Partition | None = None,
    updated: Sequence[int] | None = None,
    bytes_per_node: int = 64,
    bytes_per_edge: int = 0,
    out: str | os.PathLike[str] | None = None,
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
) -> EdgeSchedule:
    """
    Make a schedule of the edges of a mesh, for `outcore.unstructured.edge_loop`.

    Collective if `comm` is given.

    Parameters
    ----------
    edges
        Nodes of each edge (k = 2) or cell: integers of shape (m, k), as a path, a `DiskArray` or an
        array in memory. They may be larger than memory.
    nodes
        Number of nodes.
    partition
        Partition of the nodes. Its parts become blocks, which are cut further if they do not fit in
        memory. If it has levels for the number of ranks that share a loop, each rank has its own part of
        every first-level part. The partition changes what is read, never a result. Default: blocks of
        consecutive numbers.
    updated
        Columns of `edges` whose nodes kernels add to; contributions to nodes of other columns are
        dropped. For a matrix in coordinates (row, column), use ``updated=[0]``: each element is then
        processed once, by the owner of its row. Default: all.
    bytes_per_node
        Bytes per node of all arrays on nodes that a loop uses together. Blocks are cut so that two of
        them fit half of the current memory budget.
    bytes_per_edge
        Bytes per edge of all arrays on edges that a loop uses together.
    out
        Folder in which the schedule is saved, for `EdgeSchedule.open`. By default, its arrays are in
        memory if they fit an eighth of the memory budget, otherwise they are temporary arrays on disk.
    comm
        Communicator of mpi4py, or a transport, whose ranks share the work; each rank opens the result.
        With several ranks, `out` is required and must be a folder that all ranks see, and each rank must
        have opened the `partition`.

    Returns
    -------
    EdgeSchedule
        Schedule for any number of loops.

    Raises
    ------
    UsageError
        ``bad-shape``, ``bad-dtype``: the edges are not a table of integers; ``bad-partition``: the
        partition has another number of elements; ``bad-value``.
    SectionError
        ``index-out-of-bounds``: an edge names a node that does not exist; the message names the edge.
    BudgetError
        All edges of a single node do not fit, or a slab of 64 edges does not.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or made a different call.

    Notes
    -----
    Equal arguments and budgets give equal schedules, on any number of ranks; with several ranks the
    smallest budget counts. With `comm`, each rank reads its share of the edges, the counts are summed,
    and each rank localizes blocks with about the same number of edges. Tables that all ranks need are
    then temporary files in ``OUTCORE_SCRATCH`` or next to `out`: 16 bytes for each node of a partition
    and 8 k for each edge of a block.

    The edges are read a few times: once or more to count, until all blocks fit, and once to distribute.
    The schedule stores 4 k + 8 bytes for each edge in each block that it touches, 8 for each node, and 8
    for each time that an edge of a block names a node of another block.

    References
    ----------
    PASSION report, section 4.4.2, Table 5: `oc_gen_pal`, `oc_localize`, `oc_gen_schedule`.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    >>> halves = outcore.unstructured.Partition.blocks(4, 2)
    >>> schedule = outcore.unstructured.edge_schedule(edges, 4, partition=halves)
    >>> schedule.edges_of_blocks, schedule.nodes_of_blocks.tolist()
    (array([3, 3]), [[2, 2], [2, 2]])
    """
    out = None if out is None else one_name(out)
    count = operator.index(nodes)
    sizes = {"nodes": count, "bytes_per_node": bytes_per_node, "bytes_per_edge": bytes_per_edge}
    for name, number in sizes.items():
        if number < 0:
            raise UsageError(f"{name}={number} is negative; pass 0 or more", code="bad-value")
    if partition is not None and partition.elements != count:
        raise UsageError(
            f"the partition has {partition.elements} elements, but there are {count} nodes; pass a "
            "partition of these nodes",
            code="bad-partition",
        )
    ranks = Ranks.of(comm, "edge_schedule")
    with contextlib.ExitStack() as stack:
        (found,) = stack.enter_context(open_inputs(edges))
        check_edges(found)
        columns = _check_columns(updated, int(found.shape[1]))
        told = f"edge_schedule: {describe(found)}, {sizes}, {partition!r}, {columns}, {out}"
        budget = ranks.check_same_call(lambda: told, int(outcore.memory()))
        near = [found.path] if isinstance(found, DiskArray) else []
        if out is not None:
            near.insert(0, out)
        share = stack.enter_context(Share(ranks, budget, near))
        share.needs(out, "an edge schedule")
        order: _Order = _ByNumber(count)
        if partition is not None:
            order = stack.enter_context(PartOrder(partition, share))
        stack.enter_context(_core.Reservation("edge schedule", share.room))
        making = _ScheduleBuilder(
            found, count, order, columns, bytes_per_node, bytes_per_edge, share
        )
        making.cut()
        levels = None if partition is None else partition.levels
        made = making.schedule(out, 1 if levels is None else levels[1])
    return ranks.run_on_all(lambda: EdgeSchedule.open(str(out))) if made is None else made


def _write_blocks(
    folder: str | os.PathLike[str], blocks: NDArray[np.int64], fields: dict[str, int]
) -> None:
    """Write the table of blocks and the manifest, after the other arrays are complete."""
    path = make_path(folder, "blocks")
    with contextlib.closing(make_table(blocks.shape, np.int64, path=path)) as kept:
        kept[...] = blocks
        kept.flush()
    _KIND.write(os.path.join(one_name(folder), _MANIFEST), fields)


def _check_columns(updated: Sequence[int] | None, columns: int) -> list[int]:
    """Return the updated columns, sorted and each once."""
    if updated is None:
        return list(range(columns))
    found = sorted({operator.index(column) for column in updated})
    if not found or not 0 <= found[0] <= found[-1] < columns:
        raise UsageError(
            f"updated={list(updated)} does not match edges with {columns} columns; list some of "
            f"0..{columns - 1}",
            code="bad-value",
        )
    return found


class _ScheduleBuilder:
    """State of one inspection."""

    def __init__(
        self,
        edges: Table,
        nodes: int,
        order: _Order,
        updated: list[int],
        node: int,
        edge: int,
        share: Share,
    ) -> None:
        self.edges, self.nodes, self.order, self.share = edges, nodes, order, share
        columns = int(edges.shape[1])
        # Two blocks of edges and their data are in memory. Updated rows of nodes are read, used, written
        # and added to at the same time, so each counts four times.
        self.edge_cost = 2 * (4 * columns + edge)
        self.node_cost = 4 * node + _NODE

        def choose(owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            return choose_all_owners(owners[:, updated])

        self.groups = Groups(edges, nodes, order.positions, self.owner, choose, share)
        #: Positions at which blocks begin, followed by the end of the last one.
        self.begins = np.unique(order.begins)
        self.counts, self.others = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def owner(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks of positions."""
        found: NDArray[np.int64] = np.searchsorted(self.begins, positions, side="right") - 1
        return found

    def cut(self) -> None:
        """Cut blocks until they fit, and count their edges."""
        limit = self.share.room - self.share.room // _PIECE
        # A first guess, to save passes: the number of edges is proportional to the number of nodes.
        share = self.edges.shape[0] / max(self.nodes, 1) * self.edge_cost + self.node_cost
        self.divide(np.diff(self.begins) * share / limit)
        while True:
            blocks = self.begins.size - 1
            self.counts, self.others = self.groups.count(blocks)
            own = np.diff(self.begins)
            cost = self.counts * self.edge_cost + (own + self.others) * self.node_cost
            heavy = (cost > limit) | (own + self.others > _MOST)
            if not heavy.any():
                return
            alone = np.flatnonzero(heavy & (own == 1))
            if alone.size:
                node = int(
                    self.order.at(int(self.begins[alone[0]]), int(self.begins[alone[0]]) + 1)[0]
                )
                what = f"a block of node {node} with {int(self.counts[alone[0]])} edges"
                raise make_budget_error(what, int(cost[alone[0]]) * _PIECE // (_PIECE - 1) + 1)
            self.divide(np.where(heavy, np.maximum(1.25 * cost / limit, 2.0), 1.0))

    def divide(self, pieces: NDArray[np.float64]) -> None:
        """Cut each block into at least `pieces` blocks."""
        own = np.diff(self.begins)
        number = np.minimum(np.ceil(pieces).astype(np.int64), own)
        total = int(np.maximum(number, 1).sum())
        if total * 256 > self.share.room // 2:
            raise make_budget_error(f"an edge schedule of {total} blocks", 512 * total)
        begins = [
            begin + np.arange(parts, dtype=np.int64) * size // parts
            for begin, size, parts in zip(self.begins, own, np.maximum(number, 1), strict=False)
        ]
        self.begins = np.concatenate([*begins, self.begins[-1:]])

    def schedule(self, out: str | os.PathLike[str] | None, levels: int) -> EdgeSchedule | None:
        """Distribute edges and localize block by block; return None if several ranks share the work."""
        share = self.share
        if out is not None:
            folder = out

            def begin() -> None:
                make_path(folder, "blocks")
                forget_manifest(folder, _MANIFEST)

            share.ranks.run_on_first(begin)
        copies, columns = int(self.counts.sum()), int(self.edges.shape[1])
        blocks = np.zeros((self.counts.size, 5), np.int64)
        part = np.searchsorted(self.order.begins, self.begins[:-1], side="right") - 1
        blocks[:, _EDGES], blocks[:, _OWN] = self.counts, np.diff(self.begins)
        blocks[:, _SPACE], blocks[:, _RANK] = self.others, part % levels
        size = int(blocks[:, _OWN].sum() + blocks[:, _SPACE].sum())

        def table(name: str, shape: tuple[int, ...], dtype: Any) -> Table:
            return share.table(shape, dtype, None if out is None else make_path(out, name))

        local = table("local", (copies, columns), np.int32)
        numbers = table("numbers", (copies,), np.int64)
        index = table("index", (size,), np.int64)
        positions = share.table((copies, columns), np.int64, counted=True)
        self.groups.distribute(positions, numbers)
        self._localize_all(positions, local, index, blocks)
        positions.close()
        words = {"nodes": self.nodes, "edges": int(self.edges.shape[0]), "columns": columns}
        words |= {"blocks": len(blocks), "copies": copies, "index": size, "ranks": levels}
        if out is not None:
            for one in (local, numbers, index):
                one.flush()
            share.barrier()
            share.ranks.run_on_first(lambda: _write_blocks(folder, blocks, words))
        if share.size > 1:
            return None
        edges = int(self.edges.shape[0])
        saved_in = None if out is None else one_name(out)
        return EdgeSchedule(self.nodes, edges, levels, local, numbers, index, blocks, saved_in)

    def _localize_all(
        self, positions: Table, local: Table, index: Table, blocks: NDArray[np.int64]
    ) -> None:
        """Localize the blocks whose middle lies in this rank's share of the edges."""
        ends = blocks[:, _EDGES].cumsum()
        places = np.r_[0, (blocks[:, _OWN] + blocks[:, _SPACE]).cumsum()]
        owner = (2 * ends - blocks[:, _EDGES]) * self.share.size // max(2 * int(ends[-1:].sum()), 1)
        owner = np.minimum(owner, self.share.size - 1)
        off, piece = np.zeros(len(blocks), np.int64), self.share.room // 32
        for number in np.flatnonzero(owner == self.share.ranks.rank).tolist():
            edges, own = blocks[number, :2].tolist()
            first, place, end = (int(of[number]) for of in (self.begins, places, ends))
            away = self._localize(positions, local, end - edges, end, first, first + own)
            for low in range(first, first + own, piece):
                high = min(low + piece, first + own)
                index[place + low - first : place + high - first] = self.order.at(low, high)
            index[place + own : place + own + away.size] = away
            off[number] = away.size
        blocks[:, _OFF] = self.share.total(off)

    def _localize(
        self, positions: Table, local: Table, begin: int, end: int, first: int, last: int
    ) -> NDArray[np.int64]:
        """
        Convert the edges of a block to local numbers, and return the nodes of other blocks, ascending.

        The work is done in pieces, because a block has as many edges as fit in memory for a loop, which
        needs less memory for each edge.
        """
        rows = max(self.share.room // _PIECE // (_LOCALIZED * int(self.edges.shape[1])), 64)
        away = np.empty(0, np.int64)
        for _, _, slab in read_slabs(positions, rows, begin, end):
            foreign = slab[(slab < first) | (slab >= last)]
            away = np.union1d(away, foreign)
        nodes = self.order.find_elements(away)
        order = np.argsort(nodes, kind="stable")
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        for low, high, slab in read_slabs(positions, rows, begin, end):
            own = (slab >= first) & (slab < last)
            found = np.empty(slab.shape, np.int32)
            found[own] = slab[own] - first
            found[~own] = last - first + rank[np.searchsorted(away, slab[~own])]
            local[low:high] = found
        found_nodes: NDArray[np.int64] = nodes[order]
        return found_nodes
