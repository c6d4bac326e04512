"""
The ranks that run a job together.

Problem. A job on several ranks must do some steps once (create a file, rename it), and others on every
rank. A failure on one of them must end the call on all. Approach. Three methods: `run_on_all` runs a
step on all ranks, `broadcast_from_first` runs it on the first rank and sends the result to the others,
and `run_long_step` runs a step that may take hours. Each ends with a synchronisation at which all ranks
continue or all raise (`outcore.ranks.agreement`). A single process is a group in which these steps do
nothing more.

Invariants. All ranks make the same calls in the same order, whatever fails.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open
from outcore.ranks.agreement import Failures, RaiseOnAllRanks, hash_text, run_on_all_ranks
from outcore.ranks.transport import SerialTransport, Transport, transport

__all__ = ["Ranks", "collective"]

P = ParamSpec("P")
T = TypeVar("T")


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
        with RaiseOnAllRanks(group, function.__name__):
            return function(*args, **words)

    return call


@dataclass(frozen=True)
class Ranks:
    """
    The ranks of one call.

    `name` is the operation in messages. `call` is its entry in the table of `agreement`, so that ranks
    which make different calls are noticed.
    """

    group: Transport
    name: str
    call: str = "a computation"

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
    def is_first(self) -> bool:
        """True if this rank runs the steps that are done once."""
        return self.group.rank == 0

    @property
    def ranks_on_node(self) -> int:
        """Number of ranks on this node, which share its processors."""
        nodes = self.group.nodes
        return nodes.count(nodes[self.group.rank])

    @property
    def comm(self) -> Transport | None:
        """Argument ``comm=`` for a call by these ranks."""
        return None if self.size == 1 else self.group

    def open(self, path: str, **words: Any) -> DiskArray:
        """Open a complete array for the user; several ranks open it together."""
        array: DiskArray = open(path, "r+", comm=self.comm, **words)
        return array

    def open_on_all_ranks(self, array: DiskArray) -> DiskArray:
        """Open an array together that each rank has opened separately. Collective."""
        return open(array.path, "r", comm=self.group, hints=array.hints, **array.handle.options)

    def add_up(self, values: Sequence[int]) -> list[int]:
        """Return the sums over all ranks."""
        return [int(n) for n in self.group.allgather(np.array(values, np.int64)).sum(axis=0)]

    def gather_numbers(
        self,
        work: Callable[[], list[int]],
        describe: Callable[[], str] | None = None,
        *,
        equal: int = 0,
        meaning: Callable[[], object] | None = None,
    ) -> _core.Records:
        """Run a short step; all ranks return the numbers of all, or all raise, as in `run_on_all`."""
        label = describe or (lambda: self.name)
        return run_on_all_ranks(
            self.group, self.call, work, label, equal_count=equal, label=self.name, meaning=meaning
        )

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, of any lengths."""
        with RaiseOnAllRanks(self.group, self.name):
            return self.group.allgather_bytes(data)

    def run_on_all(
        self,
        work: Callable[[], T],
        describe: Callable[[], str] | None = None,
        *,
        meaning: Callable[[T], object] | None = None,
    ) -> T:
        """
        Run a short step; all ranks return, or all raise.

        `meaning` returns what must be equal on all ranks, from the result of the step. If it differs,
        the ranks report what `describe` returns, by default the meaning.
        """
        if self.size == 1:
            return work()
        found: list[T] = []

        def do() -> list[int]:
            found.append(work())
            return []

        if meaning is None:
            self.gather_numbers(do, describe)
        else:
            self.gather_numbers(
                do,
                describe or (lambda: str(meaning(found[0]))),
                meaning=lambda: meaning(found[0]),
            )
        return found[0]

    def run_on_first(self, work: Callable[[], object]) -> None:
        """Run a short step on the first rank only; all ranks return, or all raise."""
        self.run_on_all(lambda: work() if self.is_first else None)

    def broadcast_from_first(self, work: Callable[[], Any]) -> Any:
        """Run a short step on the first rank only, and return its result (JSON values) on all ranks."""
        if self.size == 1:
            return work()
        mine = self.run_on_all(lambda: json.dumps(work()).encode() if self.is_first else b"")
        return json.loads(self.gather_bytes(mine)[0])

    def check_same_call(self, say: Callable[[], str], budget: int) -> int:
        """Return the smallest budget of any rank; raise on all ranks unless all make the same call."""
        if self.size == 1:
            return budget
        said: list[str] = []

        def speak() -> list[int]:
            said.append(say())
            return [hash_text(said[0]), budget]

        return int(min(self.gather_numbers(speak, lambda: said[0], equal=1).setting(1)))

    def run_long_step(self, work: Callable[[], object], share: Callable[[], str] = str) -> None:
        """
        Run a step that may take long and can be interrupted; all ranks return, or all raise.

        `share` describes how the work is divided. If the descriptions differ, all ranks raise: a part of
        the work might be missed.
        """
        if self.size == 1:
            work()
            return
        failures = Failures()
        with failures.catch():
            work()

        def say() -> list[int]:
            if failures.first is not None:
                raise failures.first
            return [hash_text(share())]

        self.gather_numbers(say, share, equal=1)
