"""
Requirements on every transport, checked by `check_transport`.

A new transport is complete when this check passes for groups of 1, 2, 3, 5 and 8 ranks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outcore.errors import CollectiveError, OutcoreError, UsageError
from outcore.ranks.transport import Transport
from outcore.ranks.transport.failing import describe, is_everywhere

__all__ = ["check_transport"]


def check_transport(transport: Transport) -> None:
    """
    Check every member of a transport on all ranks of a group; collective. Raises `AssertionError`.

    The transport is usable afterwards. Stopped groups are checked on groups split off from it.

    Examples
    --------
    >>> from outcore.testing.sim import SimWorld
    >>> from outcore.testing.conformance import check_transport
    >>> SimWorld(3, ranks_per_node=2).run(check_transport)
    [None, None, None]
    """
    checks: list[Callable[[Transport], None]] = [
        _words,
        _records,
        _blobs,
        _agreement,
        _exchanges,
        _waits,
        _overlapping,
        _check_shared,
        _check_split,
        _mismatch,
        _called_off,
        _usage,
        _given_up,
        _check_closed,
    ]
    for check in checks:
        check(transport)
        transport.barrier()


def _waits(t: Transport) -> None:
    # All ranks are present, including this one.
    _same([False] * t.size, [t.poll_while_waiting(rank, 0.0) for rank in range(t.size)])


def _same(expected: object, actual: object) -> None:
    if expected != actual:
        raise AssertionError(f"expected {expected!r}, got {actual!r}")


def _equal(expected: NDArray[np.generic], actual: NDArray[np.generic]) -> None:
    np.testing.assert_array_equal(actual, expected)


def _raises(kind: type[OutcoreError], code: str, call: Callable[[], object]) -> OutcoreError:
    try:
        call()
    except kind as error:
        _same(code, error.code)
        return error
    raise AssertionError(f"{kind.__name__} [{code}] was not raised")


def _words(t: Transport) -> None:
    assert 0 <= t.rank < t.size, (t.rank, t.size)
    _same(t.size, len(t.nodes))
    first = list(dict.fromkeys(t.nodes))
    _same(list(range(len(first))), first)


def _records(t: Transport) -> None:
    for length in (0, 1, 64, 511, 512, 513, 3000):
        record = np.arange(length, dtype=np.int64) * 1_000_003 - (t.rank << 40)
        rows = t.allgather(record)
        _same(((t.size, length), np.dtype(np.int64)), (rows.shape, rows.dtype))
        for rank in range(t.size):
            _equal(record + ((t.rank - rank) << 40), rows[rank])
        rows[...] = 0  # the caller may change it without affecting the next step
    for step in range(200):
        rows = t.allgather(np.array([step * 1000 + t.rank]))
        _equal(step * 1000 + np.arange(t.size), rows[:, 0])


def _blobs(t: Transport) -> None:
    _same([b""] * t.size, t.allgather_bytes(b""))
    texts = [f"r{rank}\0".encode() * (rank * 997 % 3001) for rank in range(t.size)]
    _same(texts, t.allgather_bytes(texts[t.rank]))
    last = [b""] * (t.size - 1) + [b"only the last\0"]
    _same(last, t.allgather_bytes(last[t.rank]))


def _agreement(t: Transport) -> None:
    limits = np.iinfo(np.int64)
    for code in (0, -3, int(limits.max), int(limits.min)):
        _same(code, t.agree(code))
    _same(-1, t.agree(-t.size + t.rank))
    _same(7, t.agree(7 if t.rank == t.size // 2 else int(limits.min)))


def _counts(t: Transport, seed: int) -> NDArray[np.int64]:
    """Return message sizes between all ranks: many zeros, uneven, equal on all ranks."""
    chance = random.Random(seed)
    sizes = (0, 0, 1, 7, 4096, 70_001)
    return np.array([[chance.choice(sizes) for _ in range(t.size)] for _ in range(t.size)])


def _message(sender: int, receiver: int, count: int) -> NDArray[np.uint8]:
    return ((np.arange(count) * 7 + sender * 31 + receiver * 3) % 256).astype(np.uint8)


def _check_packed(parts: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    return np.concatenate([np.empty(0, np.uint8), *parts])


def _exchanges(t: Transport) -> None:
    for seed in range(6):
        counts = _counts(t, seed) if seed else np.zeros((t.size, t.size), np.int64)
        send = _check_packed([_message(t.rank, q, counts[t.rank, q]) for q in range(t.size)])
        wanted = _check_packed([_message(q, t.rank, counts[q, t.rank]) for q in range(t.size)])
        room = np.full(wanted.size + 5, 99, np.uint8)
        exchange = t.start_exchange(send, counts[t.rank], room, counts[:, t.rank].tolist())
        if seed % 2:
            while not exchange.test():
                time.sleep(1e-4)
        exchange.wait()
        _same(True, exchange.test())
        _equal(wanted, room[: wanted.size])
        _equal(np.full(5, 99, np.uint8), room[wanted.size :])


def _overlapping(t: Transport) -> None:
    """Check two concurrent exchanges, with steps between; they end in the order in which they began."""
    started = []
    for seed in (11, 12):
        counts = _counts(t, seed)
        send = _check_packed([_message(t.rank, q, counts[t.rank, q]) for q in range(t.size)])
        wanted = _check_packed([_message(q, t.rank, counts[q, t.rank]) for q in range(t.size)])
        room = np.zeros(wanted.size, np.uint8)
        exchange = t.start_exchange(send, counts[t.rank], room, counts[:, t.rank])
        started.append((exchange, wanted, room, send))
        t.agree(seed)
    for exchange, wanted, room, _ in started:
        exchange.wait()
        _equal(wanted, room)


def _check_shared(t: Transport) -> None:
    here = [rank for rank in range(t.size) if t.nodes[rank] == t.nodes[t.rank]]
    for unit in (0, 1, 5000):
        memory = t.shared(unit * t.rank)
        _same(unit * t.rank, memory.mine.size)
        _equal(np.zeros(unit * t.rank, np.uint8), memory.mine)
        assert not unit * t.rank or memory.mine.ctypes.data % 4096 == 0
        memory.mine[...] = t.rank + 1
        t.barrier()
        for rank in range(t.size):
            if rank in here:
                _equal(np.full(unit * rank, rank + 1, np.uint8), memory.of(rank))
            else:
                _raises(UsageError, "not-on-node", partial(memory.of, rank))
        _raises(UsageError, "not-on-node", partial(memory.of, t.size))
        view = memory.mine[:1]
        t.barrier()
        memory.close()
        memory.close()
        _raises(UsageError, "closed", partial(memory.of, t.rank))
        _equal(np.full(view.size, t.rank + 1, np.uint8), view)  # views keep the memory
    failing = t.size - 1
    expected = UsageError if t.rank == failing else CollectiveError
    if failing in here:
        code = "bad-record" if t.rank == failing else "rank-failed"
        error = _raises(expected, code, lambda: t.shared(-1 if t.rank == failing else 10))
        if isinstance(error, CollectiveError):
            _same((failing,), error.ranks)


def _check_split(t: Transport) -> None:
    for colors in (1, 2, 3):
        color = t.rank % colors
        members = [rank for rank in range(t.size) if rank % colors == color][::-1]
        part = t.split(color, -t.rank)
        assert part is not None
        _same((members.index(t.rank), len(members)), (part.rank, part.size))
        _equal(np.array(members), part.allgather(np.array([t.rank]))[:, 0])
        nodes = [t.nodes[rank] for rank in members]
        _same([nodes.index(n) for n in nodes], [part.nodes.index(n) for n in part.nodes])
        _records(part)
        _exchanges(part)
        inner = part.split(0 if part.rank else -1, 0)
        _same(part.rank == 0, inner is None)
        if inner is not None:
            _same(part.size - 2, inner.agree(inner.rank))
            inner.close()
        _same(color, part.agree(color))
        part.close()
    _same(None, t.split(-1, 0))


def _mismatch(t: Transport) -> None:
    """Check that ranks that make different calls all raise, and can continue together."""
    if t.size == 1:
        return
    odd = t.size - 1
    calls: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: t.agree(0), t.barrier),
        (lambda: t.allgather(np.zeros(64, np.int64)), lambda: t.allgather(np.zeros(63, np.int64))),
        (lambda: t.allgather(np.zeros(2000, np.int64)), lambda: t.allgather_bytes(b"x")),
        (lambda: t.split(0, 0), lambda: t.allgather(np.zeros(3, np.int64))),
    ]
    for usual, other in calls:
        error = _raises(CollectiveError, "mismatched-call", other if t.rank == odd else usual)
        assert isinstance(error, CollectiveError)
        assert odd in error.ranks or t.size == 2, error
        _same(t.size, t.agree(t.size))


def _called_off(t: Transport) -> None:
    """Check that a failed rank makes all raise, whatever they call, and all can continue together."""
    odd = t.size - 1
    said = describe(ValueError("no way"), "a test")

    def memory() -> None:
        # Only ranks of the same node raise here; the others raise at the next step.
        try:
            t.shared(8).close()
        except CollectiveError as error:
            if is_everywhere(error):
                raise
        t.agree(0)

    room, nothing = np.zeros(0, np.uint8), np.zeros(t.size, np.int64)

    def messages() -> None:
        t.start_exchange(room, nothing, room, nothing).wait()
        t.barrier()

    calls: list[Callable[[], object]] = [
        t.barrier,
        lambda: t.agree(1),
        lambda: t.allgather(np.zeros(2000, np.int64)),
        lambda: t.allgather_bytes(b"x" * (t.rank + 1)),
        lambda: t.split(0, 0),
        memory,
        messages,
    ]
    for usual in calls:
        before = t.abort_count
        if t.rank == odd:
            _same([b""] * odd + [said], t.abort_call(said))
        else:
            error = _raises(CollectiveError, "rank-failed", usual)
            assert isinstance(error, CollectiveError)
            _same((odd,), error.ranks)
            assert "[ValueError] no way" in str(error), error
        assert t.size == 1 or t.abort_count > before
        _same(t.size, t.agree(t.size))
    _same([said] * t.size, t.abort_call(said))


def _usage(t: Transport) -> None:
    """Check that invalid arguments raise before anything is sent."""
    room, counts = np.zeros(8, np.uint8), np.zeros(t.size, np.int64)
    too_many = counts.copy()
    too_many[-1] = 9
    bad: list[Callable[[], object]] = [
        lambda: t.start_exchange(room, [0] * (t.size + 1), room, counts),
        lambda: t.start_exchange(room, too_many, room, counts),
        lambda: t.start_exchange(room, counts, room, too_many),
        lambda: t.start_exchange(room, counts - 1, room, counts),
        lambda: t.start_exchange(room.astype("i4"), counts, room, counts),
        lambda: t.start_exchange(room, counts, room[::2], counts),
        lambda: t.start_exchange(room, counts, memoryview(bytes(8)), counts),
    ]
    for call in bad:
        _raises(UsageError, "bad-exchange", call)
    _raises(UsageError, "bad-record", lambda: t.allgather(np.zeros(3)))  # type: ignore[arg-type]
    _raises(UsageError, "bad-record", lambda: t.allgather(np.zeros((2, 2), np.int64)))


def _given_up(t: Transport) -> None:
    """Check that a rank that gives up ends the waits of all, permanently, in this group only."""
    part = t.split(0, t.rank)
    assert part is not None
    if part.rank == part.size - 1:
        part.abort_group("the disk of this rank is full")
    for call in (part.barrier, lambda: part.agree(0), lambda: part.allgather_bytes(b"")):
        error = _raises(CollectiveError, "rank-failed", call)
        assert "the disk of this rank is full" in str(error), error
        assert isinstance(error, CollectiveError)
        _same((part.size - 1,), error.ranks)
    _same(3, t.agree(3))
    part.close()


def _check_closed(t: Transport) -> None:
    part = t.split(0, 0)
    assert part is not None
    part.barrier()
    part.close()
    part.close()
    _raises(UsageError, "closed", part.barrier)
    _raises(UsageError, "closed", lambda: part.allgather(np.zeros(1, np.int64)))
