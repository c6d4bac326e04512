"""
Partition graphs with METIS, through the package pymetis.

Problem: a mesh without coordinates, or with coordinates that do not reflect its edges, is best cut where
there are few edges.
Approach: METIS finds such cuts, in memory. The graph is built from the edges: symmetric, each pair once,
no loops.
Invariants: the memory of the graph and of METIS is reserved before it is used. Equal input gives equal
parts.

Reference: G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular
graphs", SIAM Journal on Scientific Computing 20 (1998); PASSION report, section 4.4.1 (any graph
partitioner may make the parts).
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import UnsupportedError
from outcore.problems.unstructured.points import Weights
from outcore.problems.unstructured.tables import (
    Table,
    check_indices,
    get_room_bytes,
    make_budget_error,
    read_slabs,
)

__all__ = ["import_pymetis", "partition_by_metis"]

#: Bytes per pair of neighbours: sorted, symmetric, in METIS and in its coarser graphs.
_PAIR = 160
#: Bytes per node.
_NODE = 64
#: METIS counts in 32 bits.
_MOST = 2**31 - 1


def import_pymetis() -> Any:
    """Import the package; raise `UnsupportedError` (``needs-pymetis``) if it is not installed."""
    try:
        return importlib.import_module("pymetis")
    except ImportError as error:
        raise UnsupportedError(
            "method='metis' needs pymetis; install it with: pip install pymetis, or use "
            "method='rcb' or 'hilbert', which need coordinates instead of edges",
            code="needs-pymetis",
        ) from error


def partition_by_metis(
    edges: Table, nodes: int, weights: Weights | None, parts: int, within: int
) -> NDArray[np.int32]:
    """
    Return the part of each node; the nodes of an edge or cell, a row of `edges`, are neighbours.

    METIS makes `parts` / `within` parts first, then `within` parts in each.
    """
    library = import_pymetis()
    pairs = edges.shape[0] * (edges.shape[1] * (edges.shape[1] - 1) // 2)
    needed = pairs * _PAIR + nodes * _NODE
    if needed > get_room_bytes():
        raise make_budget_error("the graph for METIS", needed, "use method='rcb' or 'hilbert'")
    if 2 * pairs > _MOST or nodes > _MOST:
        raise UnsupportedError(
            f"the graph has {nodes} nodes and up to {2 * pairs} neighbours, but METIS counts in 32 "
            "bits; use method='rcb' or 'hilbert'",
            code="unsupported-feature",
        )
    with _core.Reservation("partition", needed):
        begins, neighbours = _build_graph(edges, nodes)
        heavy = None if weights is None else _scale_weights(weights)
        part = _cut(library, begins, neighbours, heavy, parts // within)
        if within == 1:
            return part
        found = np.empty_like(part)
        for upper in range(parts // within):
            own = np.flatnonzero(part == upper)
            inner = _build_subgraph(begins, neighbours, own)
            mine = None if heavy is None else heavy[own]
            found[own] = upper * within + _cut(library, *inner, mine, within)
        return found


def _build_graph(edges: Table, nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the begin of the neighbours of each node, and all neighbours."""
    found: list[NDArray[np.int64]] = []
    columns = list(itertools.combinations(range(edges.shape[1]), 2))
    rows = max(get_room_bytes() // (16 * 8 * max(edges.shape[1], 1)), 1024)
    for low, _, slab in read_slabs(edges, rows):
        check_indices(slab, nodes, low, "edges")
        slab = slab.astype(np.int64)
        for a, b in columns:
            least, most = np.minimum(slab[:, a], slab[:, b]), np.maximum(slab[:, a], slab[:, b])
            found.append(np.unique((least * nodes + most)[least < most]))
    pairs = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
    del found
    both = np.concatenate([pairs, pairs % max(nodes, 1) * nodes + pairs // max(nodes, 1)])
    both.sort()
    counts = np.bincount(both // max(nodes, 1), minlength=nodes)
    return np.r_[0, counts.cumsum()], both % max(nodes, 1)


def _build_subgraph(
    begins: NDArray[np.int64], neighbours: NDArray[np.int64], own: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the graph of some nodes, numbered from 0 in their order."""
    number = np.full(begins.size - 1, -1, np.int64)
    number[own] = np.arange(own.size)
    sizes = begins[own + 1] - begins[own]
    ends = sizes.cumsum()
    places = np.arange(int(sizes.sum())) + np.repeat(begins[own] - (ends - sizes), sizes)
    inner = number[neighbours[places]]
    counts = np.bincount(np.repeat(np.arange(own.size), sizes)[inner >= 0], minlength=own.size)
    return np.r_[0, counts.cumsum()], inner[inner >= 0]


def _scale_weights(weights: Weights) -> NDArray[np.int64]:
    """Return weights whose sum fits METIS's counters, scaled and rounded if needed."""
    heavy = np.concatenate(list(weights.slabs()) or [np.empty(0, np.int64)])
    if weights.total > _MOST // 2:
        heavy = np.rint(heavy / weights.total * (_MOST // 4)).astype(np.int64)
    return heavy


def _cut(
    library: Any,
    begins: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    weights: NDArray[np.int64] | None,
    parts: int,
) -> NDArray[np.int32]:
    nodes = begins.size - 1
    if parts == 1 or not nodes:
        return np.zeros(nodes, np.int32)
    if parts >= nodes:  # METIS fails if there are fewer nodes than parts
        return np.arange(nodes, dtype=np.int32)
    graph = library.CSRAdjacency(begins.astype(np.int32), neighbours.astype(np.int32))
    heavy = None if weights is None else weights.astype(np.int32)
    options = library.Options(seed=0)
    _, part = library.part_graph(parts, adjacency=graph, vweights=heavy, options=options)
    return np.asarray(part, np.int32)
