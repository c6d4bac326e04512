"""
The ranks that run a job together.

Problem. A job on several ranks must do some steps once (create a file, rename it), and others on every
rank. A failure on one of them must end the call on all.
Approach. Three methods: `together` runs a step on all ranks, `told` runs it on the first rank and sends
the result to the others, and `finished` runs a step that may take hours. Each ends with a
synchronisation at which all ranks continue or all raise (`outcore.ranks.agreement`). A single process is
a group in which these steps do nothing more.

Invariants. All ranks make the same calls in the same order, whatever fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open
from outcore.ranks.agreement import Announced, number_of, together, told
from outcore.ranks.transport import SerialTransport, Transport, transport
from outcore.ranks.transport.failing import is_everywhere

__all__ = ["Ranks", "collective"]

P = ParamSpec("P")
T = TypeVar("T")

_CALL = "a computation"


def collective(function: Callable[P, T]) -> Callable[P, T]:
    """
    Make a function with ``comm=`` collective.

    If one rank fails before the ranks have synchronised, all raise at their first synchronisation.
    """

    @functools.wraps(function)
    def call(*args: P.args, **words: P.kwargs) -> T:
        comm = words.get("comm")
        if comm is None:
            return function(*args, **words)
        group = transport(comm)
        words["comm"] = group
        if group.size == 1:
            return function(*args, **words)
        with Announced(group, function.__name__):
            return function(*args, **words)

    return call


@dataclass(frozen=True)
class Ranks:
    """The ranks of one job; `name` is the operation in messages."""

    group: Transport
    name: str

    @classmethod
    def of(cls, comm: Any, name: str) -> Ranks:
        """Return the ranks of a communicator; for None, this process."""
        return cls(SerialTransport() if comm is None else transport(comm), name)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.group.size

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self.group.rank

    @property
    def first(self) -> bool:
        """True if this rank runs the steps that are done once."""
        return self.group.rank == 0

    @property
    def here(self) -> int:
        """Number of ranks on this node, which share its processors."""
        nodes = self.group.nodes
        return nodes.count(nodes[self.group.rank])

    def alike(self, say: Callable[[], str], budget: int) -> int:
        """Return the smallest budget of any rank; raise on all ranks unless all make the same call."""
        if self.size == 1:
            return budget
        said: list[str] = []

        def speak() -> list[int]:
            said.append(say())
            return [number_of(said[0]), budget]

        records = together(self.group, _CALL, speak, lambda: said[0], same=1, named=self.name)
        return int(min(records.setting(1)))

    @property
    def comm(self) -> Transport | None:
        """Argument ``comm=`` for a call by these ranks."""
        return None if self.size == 1 else self.group

    def open(self, path: str, **words: Any) -> DiskArray:
        """Open a complete array for the user; several ranks open it together."""
        array: DiskArray = open(path, "r+", comm=self.comm, **words)
        return array

    def again(self, array: DiskArray) -> DiskArray:
        """Open an array together that each rank has opened separately. Collective."""
        return open(array.path, "r", comm=self.group, hints=array.hints, **array.handle.options)

    def sums(self, values: Sequence[int]) -> list[int]:
        """Return the sums over all ranks."""
        return [int(n) for n in self.group.allgather(np.array(values, np.int64)).sum(axis=0)]

    def together(self, work: Callable[[], T]) -> T:
        """Run a short step; all ranks return, or all raise."""
        if self.size == 1:
            return work()
        found: list[T] = []

        def do() -> list[int]:
            found.append(work())
            return []

        together(self.group, _CALL, do, lambda: self.name, same=0, named=self.name)
        return found[0]

    def once(self, work: Callable[[], object]) -> None:
        """Run a short step on the first rank only; all ranks return, or all raise."""
        self.together(lambda: work() if self.first else None)

    def told(self, work: Callable[[], Any]) -> Any:
        """Run a short step on the first rank only, and return its result (JSON values) on all ranks."""
        return told(self.group, _CALL, work, self.name)

    def finished(self, work: Callable[[], object], share: Callable[[], str] = str) -> None:
        """
        Run a step that may take long and can be interrupted; all ranks return, or all raise.

        `share` describes how the work is divided. If the descriptions differ, all ranks raise: a part
        of the work might be missed.
        """
        if self.size == 1:
            work()
            return
        failure: BaseException | None = None
        try:
            work()
        except BaseException as error:
            if is_everywhere(error):
                raise  # the ranks have synchronised for it
            failure = error

        def say() -> list[int]:
            if failure is not None:
                raise failure
            return [number_of(share())]

        together(self.group, _CALL, say, share, same=1, named=self.name)
