"""
The ranks that make a call together.

Problem. A job on several ranks must do some steps once (create a file, rename it), and others on every
rank. A failure on one of them must end the call on all. Approach. One object for the ranks, the name of
the call, and what both need. `gather_numbers` and `run_on_all` run a step on all ranks,
`broadcast_from_first` runs it on the first rank and sends the result to the others, and `run_long_step`
runs a step that may take hours. Each ends with a synchronisation at which all ranks continue or all
raise (`outcore.ranks.agreement`). Between these steps, `agree`, `raise_on_all` and `stop_on_error`
determine what a failure of this rank does.

Invariants. All ranks make the same calls in the same order, whatever fails.
"""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.arrays.disk import DiskArray
from outcore.arrays.opening import open
from outcore.errors import CollectiveError
from outcore.ranks.agreement import (
    Failures,
    RaiseOnAllRanks,
    StopGroupOnError,
    gather_descriptions,
    gather_records,
    hash_text,
    make_brief_record,
    make_mismatch_error,
    raise_rank_failures,
)
from outcore.ranks.transport import DeferredInterrupt, Transport, transport

__all__ = ["Ranks", "collective"]

P = ParamSpec("P")
T = TypeVar("T")

# Number of objects that ranks have made together; their numbers identify them.
_made: weakref.WeakKeyDictionary[Transport, int] = weakref.WeakKeyDictionary()


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
        return cls(transport(comm), name)

    @classmethod
    def of_call(cls, comm: Any, call: str) -> Ranks:
        """Return the ranks of a call in the table of `agreement`; messages name its last part."""
        return cls(transport(comm), call.rsplit(".", maxsplit=1)[-1], call)

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
    def node(self) -> int:
        """Number of the node of this rank."""
        return self.group.nodes[self.group.rank]

    @property
    def ranks_on_node(self) -> int:
        """Number of ranks on this node, which share its processors."""
        return self.group.nodes.count(self.node)

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
        return [int(n) for n in self.allgather(np.array(values, np.int64)).sum(axis=0)]

    def allgather(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a row for each rank: flat arrays of the same length on all ranks."""
        return self.group.allgather(values)

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.group.barrier()

    def gather_numbers(
        self,
        work: Callable[[], list[int] | None],
        describe: Callable[[], str] | None = None,
        *,
        equal: int = 0,
        recompute: Callable[[], list[int]] | None = None,
        meaning: Callable[[], object] | None = None,
    ) -> _core.Records:
        """
        Run a short step on each rank; all return the records of all, or all raise. One synchronisation.

        `work` returns numbers for the other ranks, which are the settings of the records, or None; its
        errors are raised on all ranks. The first `equal` numbers must be equal on all ranks, and the
        `repr` of what `meaning` returns, which is called after `work`. If the numbers differ,
        `recompute` computes them more carefully, in a second synchronisation, before the ranks report
        that with the descriptions by `describe`, by default the name.
        """

        def record(numbers: Callable[[], list[int] | None]) -> Callable[[bool], NDArray[Any]]:
            # `meaning` is called after `numbers`.
            return lambda _: make_brief_record(
                self.call, numbers() or [], meaning=None if meaning is None else meaning()
            )

        described = describe or (lambda: self.name)
        with DeferredInterrupt():
            for numbers in (work, recompute) if recompute is not None else (work,):
                records = gather_records(
                    self.group,
                    record(numbers),
                    lambda _: True,
                    label=self.name,
                    describe=described,
                )
                with self.stop_on_error():
                    alike = _are_equal(records, equal)
                if alike:
                    return records
            raise make_mismatch_error(gather_descriptions(self.group, self.name, described))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, of any lengths."""
        with self.raise_on_all():
            return self.group.allgather_bytes(data)

    def exchange(
        self,
        send: NDArray[Any],
        to: NDArray[np.int64],
        receive: NDArray[Any],
        of: NDArray[np.int64],
    ) -> None:
        """Send packed elements to all ranks and receive some from all: `to` and `of` bytes each."""
        out, back = (array.reshape(-1).view(np.uint8) for array in (send, receive))
        self.group.start_exchange(out, to, back, of).wait()

    def agree(self, failures: Failures) -> None:
        """Check that no rank has failed so far; otherwise all raise. One synchronisation."""
        if self.group.agree(int(failures.first is not None)):
            self.raise_failures(failures.first)

    def raise_failures(self, failure: BaseException | None) -> NoReturn:
        """Raise on all ranks because some failed, this one by `failure`."""
        raise_rank_failures(self.group, failure, self.name)

    def raise_on_all(self) -> RaiseOnAllRanks:
        """Return a context that raises an error of this rank on all ranks, at their next step."""
        return RaiseOnAllRanks(self.group, self.name)

    def stop_on_error(self) -> StopGroupOnError:
        """Return a context that stops the group on an error of this rank: others may make no step."""
        return StopGroupOnError(self.group, self.name)

    @contextmanager
    def raise_cause_if_alone(self) -> Iterator[None]:
        """Raise the cause of a `CollectiveError` instead, in a single process."""
        try:
            yield
        except CollectiveError as error:
            if self.size > 1 or not isinstance(error.__cause__, Exception):
                raise
            raise error.__cause__ from None

    def finish_started(self) -> None:
        """Wait for collective calls that were started before: they may change what this one reads."""
        self.group.in_flight.finish(self.group)

    def propose_number(self) -> int:
        """Return this rank's number for the next object that the ranks make; the largest one counts."""
        return _made.get(self.group, 0) + 1

    def record_number(self, number: int) -> int:
        """Record and return the number that the ranks agreed on for an object."""
        _made[self.group] = max(_made.get(self.group, 0), number)
        return number

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

        def do() -> None:
            found.append(work())

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


def _are_equal(records: _core.Records, count: int) -> bool:
    """Return whether the first `count` numbers of all ranks are equal."""
    return all(len(set(records.setting(number))) == 1 for number in range(count))
