"""Where a rank stands in its group, and the numbers that ranks of a group have to agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CALLS", "Place", "seat"]

# The calls, as they stand in the heads of cells.
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
    "call_off",
    "the reasons of a call_off",
)
BARRIER, AGREE, ALLGATHER, ALLGATHER_BYTES, SHARED, SPLIT, EXCHANGE, SECOND = range(1, 9)
OFF, REASONS = range(9, 11)

# Most bytes that a rank says in one step: at the node barrier alone, and between nodes.
CELL, FAR_CELL = 16384, 1024
# Bytes of the head of a cell: call, length, length of all parts.
HEAD = 16

# Tags of one group on the wire. MPI promises numbers up to 32767.
TAG_GATHER, TAG_DATA, TAG_STOP, TAG_ASK, TAG_ANSWER = range(5)
_TAGS, _TAGS_IN_ALL = 5, 32767


@dataclass(frozen=True)
class Place:
    """Where this rank stands in its group."""

    rank: int
    processes: tuple[int, ...]
    """Number on the wire of each rank."""
    nodes: tuple[int, ...]
    """Node of each rank, dense from 0."""
    context: int
    """Number of the group; no two groups of a process have the same."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.nodes)

    @cached_property
    def here(self) -> tuple[int, ...]:
        """Ranks on the node of this rank."""
        return self.on([self.nodes[self.rank]])

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each node, which speaks for it."""
        return tuple(self.nodes.index(node) for node in range(max(self.nodes) + 1))

    @property
    def leads(self) -> bool:
        """Whether this rank is one of them."""
        return self.here[0] == self.rank

    @cached_property
    def far(self) -> bool:
        """Whether there is more than one node."""
        return len(self.leaders) > 1

    @property
    def node_barrier(self) -> tuple[int, int, int]:
        """Shape of the node barrier of this node: ranks, cell, result."""
        return len(self.here), CELL, self.size * (HEAD + FAR_CELL) if self.far else 0

    def on(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Ranks on some nodes."""
        wanted = set(nodes)
        return tuple(rank for rank, node in enumerate(self.nodes) if node in wanted)

    def tag(self, kind: int) -> int:
        """Tag of messages of this group."""
        # Numbers come again after six thousand groups, of which few are alive.
        return (self.context * _TAGS + kind) % (_TAGS_IN_ALL // _TAGS * _TAGS)


def seat(rank: int, processes: Iterable[int], nodes: Iterable[object], context: int) -> Place:
    """Make a place; nodes may have any names."""
    names = list(nodes)
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return Place(rank, tuple(processes), tuple(order[name] for name in names), context)
