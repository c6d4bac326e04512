"""
Agreement of ranks before data is moved, and errors that all ranks raise together.

Problem. In a collective call one rank fails or makes a different call, and the others wait forever.

Approach. Each rank does its independent work before the first message as far as possible. The outcome is
part of the record that every rank sends anyway (``crates/plan/src/collective/records.rs``). One
gathering of the records is then both the exchange of the accesses (the papers' *file access descriptor*)
and the agreement: if any rank failed or made a different call, all raise, and no rank has moved data.
Each round of I/O begins with an agreement, so all stop at the same round. A rank reads data from the
page cache before it sends its record, unless it has written since the ranks last synchronised. If all
ranks have read all their data, the call needs no other message.

Other steps may fail on a single rank, too: a plan that does not fit in memory, a warning that was made
an error. If a rank fails between two synchronisations (`RaiseOnAllRanks`), it aborts the next one, of
any kind, and all ranks raise. In a few lines between receiving the records and evaluating them, a rank
cannot know whether there is a next one (`StopGroupOnError`); at other points, other ranks wait for its
messages. In these cases it stops the group: all ranks raise, immediately or at their next call, and the
group stays stopped.

Invariants. Each rank makes the same calls of the transport, whatever fails on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.errors import CollectiveError, OutcoreError
from outcore.ranks.transport import Transport
from outcore.ranks.transport.checks import format_ranks
from outcore.ranks.transport.failing import describe, is_everywhere, make_error, mark

__all__ = [
    "CallEntry",
    "Failures",
    "OtherRankError",
    "RaiseOnAllRanks",
    "StopGroupOnError",
    "encode_call",
    "gather_descriptions",
    "gather_records",
    "get_call",
    "get_call_name",
    "hash_text",
    "make_brief_record",
    "make_mismatch_error",
    "raise_rank_failures",
]

# Number of bits of the call number in the word of a call; the bits above it are a hash of its arguments.
# Ranks with different arguments thus make different calls, so no other word is needed to detect that.
_NUMBER_BITS, _WORD_BITS = 16, 63
# Number of words of a record that are always sent; longer records are sent a second time, all of one
# length.
_HEAD: int = len(_core.failed_record())


class CallEntry(NamedTuple):
    """A collective call: its number in records, and whether it writes sections."""

    number: int
    writes: bool = False


_CALLS = {
    "read_all": CallEntry(2),
    "write_all": CallEntry(3, writes=True),
    "explain_all": CallEntry(4),
    "explain_all(write=True)": CallEntry(5, writes=True),
    "outcore.mpi.read_all": CallEntry(6),
    "outcore.mpi.write_all": CallEntry(7, writes=True),
    "outcore.mpi.read_all of lists": CallEntry(12),
    "outcore.mpi.write_all of lists": CallEntry(13),
    "DistArray.read_all": CallEntry(8),
    "DistArray.write_all": CallEntry(9, writes=True),
    "outcore.mpi.explain_all": CallEntry(10),
    "outcore.mpi.explain_all(write=True)": CallEntry(11, writes=True),
    # Calls without sections.
    "outcore.open": CallEntry(20),
    "outcore.open_many": CallEntry(21),
    "flush_all": CallEntry(22),
    "schedule_all": CallEntry(23),
    "CollectiveSchedule.gather_all": CallEntry(24),
    "CollectiveSchedule.scatter_all": CallEntry(25),
    "CollectiveSchedule.explain_all": CallEntry(26),
    "outcore.open_group": CallEntry(27),
    "Group": CallEntry(28),
    "a computation": CallEntry(30),
    "create_placed": CallEntry(40),
    "open_placed": CallEntry(41),
    "copy_placed": CallEntry(42),
    "PlacedArray.shift_all": CallEntry(43),
    "PlacedArray.slabs": CallEntry(44),
    "PlacedArray.write_slab": CallEntry(45, writes=True),
    "PlacedArray.read_global_all": CallEntry(46),
    "PlacedArray.multicast_all": CallEntry(47),
    "PlacedArray.in_core_all": CallEntry(48),
    "PlacedArray.flush_all": CallEntry(49),
    "disk_array": CallEntry(60),
    # First the arguments and checks of all ranks, then their sections.
    "DiskResidentArray.read": CallEntry(61),
    "DiskResidentArray.write": CallEntry(64),
    "DiskResidentArray.read_section": CallEntry(65),
    "DiskResidentArray.write_section": CallEntry(66),
    "DiskResidentArray.explain": CallEntry(67),
    "elements of DiskResidentArray.read": CallEntry(62),
    "elements of DiskResidentArray.write": CallEntry(63, writes=True),
    "DiskResidentArray.rename": CallEntry(68),
    "DiskResidentArray.delete": CallEntry(69),
    "DistArray.redistribute_all": CallEntry(101),
    "DistArray.update_ghosts_all": CallEntry(102),
    "DistArray.gather_all": CallEntry(103),
    "DistArray.accumulate_ghosts_all": CallEntry(104),
    "DistArray.shared_all": CallEntry(105),
    "DistArray.fence_all": CallEntry(106),
    "DistArray.close_all": CallEntry(107),
    "DistArray.fill_all": CallEntry(108),
    "DistArray.scale_all": CallEntry(109),
    "DistArray.copy_all": CallEntry(110),
    "DistArray.add_all": CallEntry(111),
    "DistArray.map_all": CallEntry(112),
    "DistArray.dot_all": CallEntry(113),
    "DistArray.matmul_all": CallEntry(114),
    "DistArray.transpose_all": CallEntry(115),
}
_NAMES = {call.number: name for name, call in _CALLS.items()}


class OtherRankError(Exception):
    """Another rank failed."""


class Failures:
    """Failures of this rank; the first one counts."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Record an exception raised inside, unless all ranks raise it."""
        try:
            yield
        except BaseException as error:
            if is_everywhere(error):
                raise
            self.note(error)

    def note(self, error: BaseException) -> None:
        """Record a failure, unless there was one before it."""
        if self.first is None:
            self.first = error


def hash_text(text: str) -> int:
    """Return a hash of a text, the same on all ranks."""
    said = text.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little", signed=True)


def encode_call(call: str, meaning: object = None) -> int:
    """
    Return the word of a call in records.

    `meaning` must be equal on all ranks, compared by its `repr`; None adds nothing.
    """
    number = _CALLS[call].number
    if meaning is None:
        return number
    word = hash_text(repr(meaning)) << _NUMBER_BITS | number
    return word & (1 << _WORD_BITS) - 1


def make_brief_record(
    call: str, settings: list[int], name: int | None = None, meaning: object = None
) -> NDArray[np.int64]:
    """Return the record of a rank that has read its data; `name` is the number of the array."""
    return _core.brief_record(encode_call(call, meaning), settings, name)


def gather_records(
    transport: Transport,
    prepare: Callable[[bool], NDArray[Any]],
    is_complete: Callable[[_core.Records], bool],
    *,
    whole: bool = False,
    heads: _core.Records | None = None,
    label: str,
    describe: Callable[[], str] | None = None,
) -> _core.Records:
    """
    Exchange records; raise on all ranks if any of them cannot continue.

    `prepare` makes this rank's record (``_core.record``); its errors are raised on all ranks. Its
    argument is True if other ranks need the whole record, with all items, which `whole` requests from
    the start. `is_complete` decides from the heads of all records whether they are enough. `heads` are
    records that the ranks have already exchanged; this rank's is brief (`make_brief_record`). `label`
    is the operation in messages, and `describe` describes this rank's call if the arguments differ.
    """
    failure: BaseException | None = None
    words = _core.failed_record()
    records = heads
    if records is None:
        try:
            words = prepare(whole)
        except BaseException as error:
            failure = error
    with StopGroupOnError(transport, label):
        if records is None:
            records = _core.Records(transport.allgather(words[:_HEAD]))
        bad, same, longest = records.verdict
        done = not bad and same and is_complete(records)
    if bad:
        raise_rank_failures(transport, failure, label)
    if not same:
        calls = records.calls()
        versions = {version for version, _ in calls}
        names = [
            get_call_name(call) + (f" (records of version {version})" if len(versions) > 1 else "")
            for version, call in calls
        ]
        if describe is not None and len(set(names)) == 1:
            names = gather_descriptions(transport, label, describe)
        raise make_mismatch_error(names)
    if done:
        return records
    with RaiseOnAllRanks(transport, label):
        unsaid = records.unsaid
        if longest > _HEAD and not unsaid:
            row = np.zeros(longest, np.int64)
            row[: len(words)] = words
            records = _core.Records(transport.allgather(row))
    if unsaid:
        return gather_records(
            transport, prepare, is_complete, whole=True, label=label, describe=describe
        )
    return records


def gather_descriptions(group: Transport, what: str, tell: Callable[[], str]) -> list[str]:
    """Return the description of each rank's call. One synchronisation."""
    with RaiseOnAllRanks(group, what):
        said = group.allgather_bytes(tell().encode(errors="replace"))
        return [text.decode(errors="replace") for text in said]


def make_mismatch_error(called: list[str]) -> CollectiveError:
    """Return the error of ranks that made different calls; `called` has the call of each rank."""
    calls: dict[str, list[int]] = {}
    for rank, call in enumerate(called):
        calls.setdefault(call, []).append(rank)
    said = "; ".join(f"{format_ranks(ranks)} called {call}" for call, ranks in calls.items())
    # If there are two equal halves, the one without rank 0.
    odd = min(calls.values(), key=lambda ranks: (len(ranks), 0 in ranks))
    return mark(
        CollectiveError(
            f"{said}; every rank must make the same collective call, in the same order, with the "
            "same version of outcore",
            code="mismatched-call",
            ranks=tuple(odd),
        )
    )


def raise_rank_failures(transport: Transport, failure: BaseException | None, what: str) -> NoReturn:
    """
    Raise on all ranks; each reports its own failure, if it has one.

    A rank that was interrupted raises the interrupt. All others raise `CollectiveError`, whose cause is
    the failure of this rank, or otherwise that of the first rank that failed.
    """
    failure = None if isinstance(failure, OtherRankError) else failure
    with RaiseOnAllRanks(transport, what):
        said = transport.allgather_bytes(b"" if failure is None else describe(failure, what))
        error = make_error(said, what, failure)
    if failure is not None and not isinstance(failure, Exception):
        raise mark(failure)
    raise error


class _FailureWatch:
    """Context manager between two synchronisations: the other ranks must learn of errors inside."""

    __slots__ = ("group", "what")

    def __init__(self, group: Transport, what: str) -> None:
        self.group, self.what = group, what

    def __enter__(self) -> None:
        pass


class RaiseOnAllRanks(_FailureWatch):
    """
    Context manager that raises an error of this rank on all ranks, at their next step.

    All ranks must make such a step, inside or later. An error that all ranks raise in the same way,
    because of data that all have exchanged, is passed on unchanged.
    """

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if failure is None or is_everywhere(failure):
            return
        mine = describe(failure, self.what)
        try:
            texts = self.group.abort_call(mine)
        except OutcoreError as error:
            # The group was stopped in the meantime, or that is the failure.
            if isinstance(failure, Exception) and str(error) != str(failure):
                raise error from failure
            return
        alike = all(text == mine for text in texts)
        if (alike and isinstance(failure, OutcoreError)) or not isinstance(failure, Exception):
            mark(failure)
            return
        raise make_error(texts, mine=failure)


class StopGroupOnError(_FailureWatch):
    """Context manager that stops the group on an error of this rank: the others may make no step."""

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if failure is None or is_everywhere(failure) or self.group.size == 1:
            return
        rank, size = self.group.rank, self.group.size
        code, what, _, said = describe(failure, self.what).decode().split("\n", 3)
        told = (
            f"{what} failed on rank {rank} of {size} where the ranks could not agree on it: "
            f"[{code}] {said}; the group is stopped: make a new communicator"
        )
        self.group.abort_group(told)
        if isinstance(failure, Exception) and not isinstance(failure, CollectiveError):
            raise mark(CollectiveError(told, code="rank-failed", ranks=(rank,))) from failure
        mark(failure)


def get_call_name(number: int) -> str:
    """Return the name of a call from its number."""
    number &= (1 << _NUMBER_BITS) - 1
    return _NAMES.get(number, f"call {number}")


def get_call(name: str) -> CallEntry:
    """Return the entry of a call in records."""
    return _CALLS[name]
