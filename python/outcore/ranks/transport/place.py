"""The place of a rank in its group: nodes, processes, and numbers that the ranks agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CALLS", "RankPlace", "make_place"]

# Names of the calls, by their number in the heads of cells.
CALLS = (
    "nothing",
    "barrier",
    "agree",
    "allgather",
    "allgather_bytes",
    "shared",
    "split",
    "start_exchange",
    "the second half of a step",
    "abort_call",
    "the reasons of an abort_call",
)
BARRIER, AGREE, ALLGATHER, ALLGATHER_BYTES, SHARED, SPLIT, EXCHANGE, SECOND = range(1, 9)
OFF, REASONS = range(9, 11)

# Maximum number of bytes of a rank in one step: within a node, and between nodes.
CELL, FAR_CELL = 16384, 1024
# Bytes of the head of a cell: call, length, length of all parts.
HEAD = 16

# Tags of messages of one group. MPI guarantees numbers up to 32767.
TAG_GATHER, TAG_DATA, TAG_STOP, TAG_ASK, TAG_ANSWER = range(5)
_TAGS, _TAGS_IN_ALL = 5, 32767


@dataclass(frozen=True)
class RankPlace:
    """Place of this rank in its group."""

    rank: int
    processes: tuple[int, ...]
    """Process number of each rank on the wire."""
    nodes: tuple[int, ...]
    """Node of each rank, consecutive from 0."""
    context: int
    """Number of the group; no two groups of a process have the same."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.nodes)

    @cached_property
    def here(self) -> tuple[int, ...]:
        """Ranks on the node of this rank."""
        return self.list_ranks([self.nodes[self.rank]])

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """First rank of each node, which communicates for the node."""
        return tuple(self.nodes.index(node) for node in range(max(self.nodes) + 1))

    @property
    def leads(self) -> bool:
        """True if this rank is the first of its node."""
        return self.here[0] == self.rank

    @cached_property
    def far(self) -> bool:
        """True if there is more than one node."""
        return len(self.leaders) > 1

    @property
    def node_barrier(self) -> tuple[int, int, int]:
        """Shape of the node barrier of this node: ranks, cell, result."""
        return len(self.here), CELL, self.size * (HEAD + FAR_CELL) if self.far else 0

    def list_ranks(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return the ranks on the given nodes."""
        wanted = set(nodes)
        return tuple(rank for rank, node in enumerate(self.nodes) if node in wanted)

    def get_tag(self, kind: int) -> int:
        """Return the tag of messages of one kind in this group."""
        # Numbers repeat after six thousand groups, few of which exist at the same time.
        return (self.context * _TAGS + kind) % (_TAGS_IN_ALL // _TAGS * _TAGS)


def make_place(
    rank: int, processes: Iterable[int], nodes: Iterable[object], context: int
) -> RankPlace:
    """Return the place of a rank; nodes may have any names."""
    names = list(nodes)
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return RankPlace(rank, tuple(processes), tuple(order[name] for name in names), context)
