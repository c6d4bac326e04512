"""
The processes that do a job together.

Problem. A job on several ranks must do each thing once (create a file, give it its name), or on every
rank; and whatever fails on one of them has to end the call on all.
Idea. Three words: what all do (`together`), what the first rank does and the others are told (`told`),
and what may take hours (`finished`). Each ends with a synchronisation at which all go on or all raise
(`outcore.ranks.agreement`). One process alone is a group, for which all of this is nothing.

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
    Make a function collective that takes ``comm=``.

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
    """
    The ranks of one job.

    Parameters
    ----------
    group
        How they talk.
    name
        Of the operation, for messages.
    """

    group: Transport
    name: str

    @classmethod
    def of(cls, comm: Any, name: str) -> Ranks:
        """Those of a communicator; of None this process."""
        return cls(SerialTransport() if comm is None else transport(comm), name)

    @property
    def size(self) -> int:
        """How many there are."""
        return self.group.size

    @property
    def rank(self) -> int:
        """Which one this is."""
        return self.group.rank

    @property
    def first(self) -> bool:
        """Whether this one does what is done once."""
        return self.group.rank == 0

    @property
    def here(self) -> int:
        """How many are on this node, and share its processors."""
        nodes = self.group.nodes
        return nodes.count(nodes[self.group.rank])

    def alike(self, say: Callable[[], str], budget: int) -> int:
        """Raise, on all, unless all call the same; the smallest budget of any."""
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
        """What a call takes as ``comm=``, to be made by these ranks."""
        return None if self.size == 1 else self.group

    def open(self, path: str, **words: Any) -> DiskArray:
        """An array that is complete, for the user: of several ranks they open it together."""
        array: DiskArray = open(path, "r+", comm=self.comm, **words)
        return array

    def again(self, array: DiskArray) -> DiskArray:
        """An array that ranks have opened each for himself, opened together. Collective."""
        return open(array.path, "r", comm=self.group, hints=array.hints, **array.handle.options)

    def sums(self, values: Sequence[int]) -> list[int]:
        """The sums over all ranks."""
        return [int(n) for n in self.group.allgather(np.array(values, np.int64)).sum(axis=0)]

    def together(self, work: Callable[[], T]) -> T:
        """Do something short; all return, or all raise."""
        if self.size == 1:
            return work()
        found: list[T] = []

        def do() -> list[int]:
            found.append(work())
            return []

        together(self.group, _CALL, do, lambda: self.name, same=0, named=self.name)
        return found[0]

    def once(self, work: Callable[[], object]) -> None:
        """Do something short, the first rank alone; all return, or all raise."""
        self.together(lambda: work() if self.first else None)

    def told(self, work: Callable[[], Any]) -> Any:
        """Do something short, the first rank alone, which tells the others: what JSON can say."""
        return told(self.group, _CALL, work, self.name)

    def finished(self, work: Callable[[], object], share: Callable[[], str] = str) -> None:
        """
        Do something that may take long, and can be interrupted; all return, or all raise.

        Parameters
        ----------
        work
            What this rank does.
        share
            Says how the work was divided. If ranks say different things, all raise: a part of it may
            be done by nobody.
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
