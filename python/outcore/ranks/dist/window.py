"""
Memory of a distributed array that other ranks read and write without the owner's help: `SharedWindow`.

Problem. A rank needs elements of any part without action by their owner. Several ranks add to the same
elements concurrently, and one of them may be killed. Approach. Parts are in memory that the ranks of a
node share, so an access on the node is a copy. For other nodes a thread (`transport.service`) does the
access, in the same memory and with the same functions (`NodeParts`). Atomic operations (adding, reading
a counter) hold locks in that memory. Any process that finds that the holder of a lock has died takes
the lock over (``crates/io/src/word_locks.rs``).

A part is divided along its longest axis into `STRIPES` stripes, each with a lock. Locks are taken in
ascending order of stripes, and in the order of ranks for several parts, so no cycle of waiting ranks can
form.

Invariants. Elements are added while the locks of their stripes at the owner are held, also for copies on
other ranks. A rank that holds the lock of a patch adds only to elements of the patch, so it never waits
while others wait for it. A part, and messages, count in the budget of the rank that owns the part.
Additions are sent in pieces of `PIECE` bytes.

Reference: Nieplocha, Foster, *Disk Resident Arrays: An Array-Oriented I/O Library for Out-of-Core
Computations*, section 2 (one-sided operations of Global Arrays).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outcore import _core
from outcore.base.distribution import Distribution, list_keys
from outcore.errors import StaysInProcess, UsageError
from outcore.ranks.transport import DeferredInterrupt, Transport
from outcore.ranks.transport.service import PIECE, OneSidedService, get_service

__all__ = ["STRIPES", "IndicesByOwner", "PatchLock", "SharedWindow", "make_rows"]

Bytes = NDArray[np.uint8]
#: Position of elements in a part: a section (start, count and step per axis), or element numbers in C
#: order.
Where = NDArray[np.int64]

#: Number of locks of a part.
STRIPES = 64
# Bytes for the locks: the first page of the part's memory, with one cache line per lock.
_LOCKS = 4096
# Seconds that a server tries to take locks for another rank. All other requests wait in the meantime.
_TRY = 1e-3
# Shortest and longest interval, in seconds, at which a waiting rank checks whether the holder has died.
_SHORT, _LONG = 2e-3, 0.1


class _Ask(IntEnum):
    """Operation that a request asks for."""

    READ = 0
    WRITE = 1
    ADD = 2
    FETCH_ADD = 3
    TAKE = 4
    GIVE = 5


class NodeParts:
    """Parts and locks of the ranks of this node, with the operations for local and remote callers."""

    def __init__(
        self, group: Transport, arrays: dict[int, NDArray[Any]], locks: dict[int, _core.WordLocks]
    ) -> None:
        self.group, self.arrays, self.locks = group, arrays, locks

    def _locate(self, rank: int, where: Where) -> tuple[NDArray[Any], Any]:
        part = self.arrays[rank]
        if where.ndim == 1:
            return part.reshape(-1), where
        return part, (*list_keys(where[None])[0], ...)

    def read(self, rank: int, where: Where) -> NDArray[Any]:
        """Return the elements; a view for a section."""
        part, key = self._locate(rank, where)
        return part[key]  # type: ignore[no-any-return]

    def write(self, rank: int, where: Where, values: NDArray[Any]) -> None:
        """Set the elements; of several values for one element number, the last one counts."""
        part, key = self._locate(rank, where)
        part[key] = values

    def add(self, rank: int, where: Where, values: NDArray[Any]) -> None:
        """Add to the elements; the caller holds the locks."""
        part, key = self._locate(rank, where)
        if where.ndim == 1:
            np.add.at(part, key, values)
        else:
            view = part[key]
            np.add(view, values, out=view)

    def take(
        self,
        rank: int,
        stripes: Sequence[int],
        who: int,
        patience: float | None = None,
        gone: int = 0,
    ) -> int:
        """
        Take locks in ascending order; return 0, or the holder if a lock stays locked.

        Wait for each lock for `patience` seconds, or without `patience` until the group is stopped.
        `gone` is a holder that is known to have died. Either all locks are taken, or none.
        """
        took: list[int] = []
        holder = 0
        try:
            for at in stripes:
                holder = self._take(rank, at, who, patience, gone)
                if holder:
                    break
                took.append(at)
        except BaseException:
            self.give(rank, took, who)
            raise
        if holder:
            self.give(rank, took, who)
        return holder

    def _take(self, rank: int, at: int, who: int, patience: float | None, gone: int) -> int:
        locks = self.locks[rank]
        nap = _SHORT if patience is None else patience
        began = time.monotonic()
        while holder := locks.take(at, who, nap):
            lost = holder == gone or self.group.poll_while_waiting(
                holder - 1, time.monotonic() - began
            )
            if lost and locks.seize(at, holder, who):
                return 0
            if patience is not None:
                return holder
            if DeferredInterrupt.count_interrupts():
                raise KeyboardInterrupt
            nap = min(2 * nap, _LONG)
        return 0

    def give(self, rank: int, stripes: Sequence[int], who: int) -> None:
        """Release locks, except those that other ranks have seized in the meantime."""
        for at in reversed(stripes):
            self.locks[rank].give(at, who)


class SharedWindow:
    """
    Parts of a distributed array in memory that other ranks can access. Collective within a node.

    `number` identifies the array in requests to other nodes; it is the same on all ranks. All ranks of
    a node raise if there is not enough memory for the parts or for messages.
    """

    def __init__(
        self,
        group: Transport,
        distribution: Distribution,
        widths: list[tuple[int, int]],
        dtype: np.dtype[Any],
        number: int = 1,
    ) -> None:
        self.group, self.distribution, self.dtype = group, distribution, dtype
        self._who, self.number = group.rank + 1, number
        self._shapes = [
            tuple(distribution.core.local_shape(rank, widths)) for rank in range(group.size)
        ]
        self._widths = widths
        self._origins: dict[int, NDArray[np.int64]] = {}
        # Stripes by owner, for each thread that holds the lock of a patch.
        self._held: dict[int, dict[int, list[int]]] = {}
        size = int(np.prod(self._shapes[group.rank], dtype=object)) * dtype.itemsize
        self._shared = group.shared(_LOCKS + size)
        self._service: OneSidedService | None = None
        try:
            here = [r for r in range(group.size) if group.nodes[r] == group.nodes[group.rank]]
            arrays, locks = {}, {}
            for rank in here:
                memory, shape = self._shared.of(rank), self._shapes[rank]
                nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
                arrays[rank] = memory[_LOCKS : _LOCKS + nbytes].view(dtype).reshape(shape)
                locks[rank] = _core.WordLocks(memory[:_LOCKS])
            self.parts = NodeParts(group, arrays, locks)
            near = [arrays.get(rank) for rank in range(group.size)]
            self.core = _core.Window(distribution.core, widths, dtype, group.rank, near)
            self._service = get_service(group)
            if self._service is not None:
                self._service.register(number, dtype.itemsize, self.answer)
        except BaseException:
            self._shared.close()
            raise

    @property
    def mine(self) -> NDArray[Any]:
        """Part of this rank, including ghosts."""
        return self.parts.arrays[self.group.rank]

    def close(self) -> None:
        """Release the memory, after all ranks have agreed that no rank uses it."""
        if self._service is not None:
            self._service.forget(self.number)
        self._shared.close()

    # ---------------------------------------------------------------------------------- places

    def get_origin(self, rank: int) -> NDArray[np.int64]:
        """Return the position of the first owned element of a rank in its part with ghosts."""
        found = self._origins.get(rank)
        if found is None:
            found = np.zeros(self.distribution.ndim, np.int64)
            if self._widths:
                _, places = self.distribution.core.pieces(rank, self._widths, False)
                if len(places):
                    found = places[:, :, 0].min(axis=0)
            self._origins[rank] = found
        return found

    def number_elements(self, rank: int, rows: NDArray[np.int64]) -> Where:
        """Convert rows of positions without ghosts to element numbers in the part of their owner."""
        shape = np.array(self._shapes[rank], np.int64)
        strides = np.ones(len(shape), np.int64)
        strides[:-1] = np.cumprod(shape[:0:-1])[::-1]
        return np.asarray((rows + self.get_origin(rank)) @ strides, np.int64)

    def list_copies(self, owner: int) -> list[int]:
        """Return the ranks that have the elements of an owner, starting with the owner."""
        grid, axes = self.distribution.grid, self.distribution.replicated_axes
        at = list(grid.coordinates(owner))
        ranks = []
        for other in np.ndindex(*(grid.shape[axis] for axis in axes)):
            for axis, c in zip(axes, other, strict=True):
                at[axis] = c
            ranks.append(grid.rank_of(*at))
        return ranks

    def find_stripes(self, rank: int, where: Where) -> list[int]:
        """Return the stripes of a part that contain the elements, in ascending order."""
        shape = self._shapes[rank]
        if not shape:
            return [0]
        axis = int(np.argmax(shape))
        length = shape[axis]
        if where.ndim == 2:
            start, count, step = where[axis].tolist()
            last = start + (count - 1) * step
            return list(range(start * STRIPES // length, last * STRIPES // length + 1))
        inner = int(np.prod(shape[axis + 1 :], dtype=object))
        found: list[int] = np.unique(where // inner % length * STRIPES // length).tolist()
        return found

    # ---------------------------------------------------------------------------------- accesses

    def read(self, ranks: list[int], where: Where, into: NDArray[Any]) -> None:
        """Fill an array with elements of the nearest rank that has them."""
        near = [rank for rank in ranks if rank in self.parts.arrays]
        if near:
            rank = self.group.rank if self.group.rank in near else near[0]
            into[...] = self.parts.read(rank, where)
            return
        for piece, key in self._iterate_pieces(where, into.shape):
            target = into[key]

            def then(body: Bytes, target: NDArray[Any] = target) -> None:
                target[...] = body.view(self.dtype).reshape(target.shape)

            room = target.size * self.dtype.itemsize
            self._ask(_Ask.READ, ranks[0], piece, room=room, then=then)

    def write(self, ranks: list[int], where: Where, values: NDArray[Any]) -> None:
        """Set elements in all copies. On other nodes they are set by the end of the next `settle`."""
        for rank in ranks:
            if rank in self.parts.arrays:
                self.parts.write(rank, where, values)
                continue
            for piece, key in self._iterate_pieces(where, values.shape):
                self._ask(_Ask.WRITE, rank, piece, self._pack(values[key]))

    def add(
        self,
        ranks: list[int],
        where: Where,
        values: NDArray[Any],
        factor: NDArray[Any],
        old: NDArray[Any] | None = None,
    ) -> None:
        """Add ``factor * values`` to elements in all copies; store their previous values in `old`."""
        plain = values.dtype == self.dtype and factor == 1
        for piece, key in self._iterate_pieces(where, values.shape):
            some, before = values[key], None if old is None else old[key]
            # Ctrl-C between taking a lock and recording it would leave it locked forever.
            with DeferredInterrupt():
                if plain:
                    self._add(ranks, piece, some, before)
                    continue
                with _core.Reservation("exchange", some.size * self.dtype.itemsize):
                    term = np.empty(some.shape, self.dtype)
                    np.multiply(some, factor, out=term, casting="unsafe")
                    self._add(ranks, piece, term, before)

    def _add(
        self, ranks: list[int], where: Where, term: NDArray[Any], old: NDArray[Any] | None
    ) -> None:
        owner, stripes = ranks[0], self.find_stripes(ranks[0], where)
        if (
            len(ranks) == 1
            and owner not in self.parts.arrays
            and not self._has_locks(owner, stripes)
        ):
            self._fetch_add(owner, where, term, old)
            return
        with self._hold_locks(owner, stripes):
            if old is not None:
                self.read([owner], where, old)
            for rank in ranks:
                if rank in self.parts.arrays:
                    self.parts.add(rank, where, term)
                else:
                    self._ask(_Ask.ADD, rank, where, self._pack(term))
            # Wait for all copies before the locks are released.
            self.settle()

    def _fetch_add(
        self, owner: int, where: Where, term: NDArray[Any], old: NDArray[Any] | None
    ) -> None:
        """Send one request that takes the locks, adds, and releases the locks."""

        def then(body: Bytes) -> None:
            answer[0] = int(body[:8].view(np.int64)[0])
            if old is not None and not answer[0]:
                old[...] = body[8:].view(self.dtype).reshape(old.shape)

        def ask(gone: int) -> int:
            self._ask(
                _Ask.FETCH_ADD,
                owner,
                where,
                self._pack(term),
                [gone, int(old is not None)],
                8 + (term.size * self.dtype.itemsize if old is not None else 0),
                then,
            )
            self.settle()
            return answer[0]

        answer = [0]
        self._insist(ask)

    def settle(self) -> None:
        """Wait until all requests to other nodes have been answered."""
        if self._service is not None:
            self._service.settle()

    def wait_until_sent(self) -> None:
        """Wait until all requests have left this rank."""
        if self._service is not None:
            self._service.wait_until_sent()

    # ---------------------------------------------------------------------------------- locks

    def lock(self, wanted: list[tuple[int, Where]]) -> None:
        """Take the locks of patches, given as owners and positions."""
        if threading.get_ident() in self._held:
            raise UsageError(
                "this thread holds the lock of a patch of this array, and two ranks could wait for "
                "each other; release it first, or lock one patch that covers both",
                code="lock-order",
            )
        stripes: dict[int, set[int]] = {}
        for owner, where in wanted:
            stripes.setdefault(owner, set()).update(self.find_stripes(owner, where))
        took: dict[int, list[int]] = {}
        with DeferredInterrupt():
            try:
                for owner in sorted(stripes):
                    self._take(owner, sorted(stripes[owner]))
                    took[owner] = sorted(stripes[owner])
            except BaseException:
                for owner, some in took.items():
                    self._give(owner, some)
                raise
            self._held[threading.get_ident()] = took

    def unlock(self) -> None:
        """Release the locks of this thread after the values that this rank put have arrived."""
        with DeferredInterrupt():
            try:
                self.settle()
            finally:
                for owner, some in self._held.pop(threading.get_ident(), {}).items():
                    self._give(owner, some)

    def _has_locks(self, owner: int, stripes: list[int]) -> bool:
        """Return whether this thread holds these locks; raise if it holds others and needs more."""
        held = self._held.get(threading.get_ident())
        if held is None:
            return False
        if not set(stripes) <= set(held.get(owner, ())):
            raise UsageError(
                "the elements are outside the patch that this thread has locked, and two ranks could "
                "wait for each other; lock a patch that covers them, or release the lock first",
                code="lock-order",
            )
        return True

    @contextmanager
    def _hold_locks(self, owner: int, stripes: list[int]) -> Iterator[None]:
        if self._has_locks(owner, stripes):
            yield
            return
        self._take(owner, stripes)
        try:
            yield
        finally:
            self._give(owner, stripes)

    def _take(self, owner: int, stripes: list[int]) -> None:
        if owner in self.parts.arrays:
            self.parts.take(owner, stripes, self._who)
            return
        answer = [0]

        def then(body: Bytes) -> None:
            answer[0] = int(body.view(np.int64)[0])

        def ask(gone: int) -> int:
            where = np.array(stripes, np.int64)
            self._ask(_Ask.TAKE, owner, where, words=[gone, 0], room=8, then=then)
            self.settle()
            return answer[0]

        self._insist(ask)

    def _insist(self, ask: Any) -> None:
        """Ask for locks on another node until they are free or their holder has died."""
        began, nap, gone = time.monotonic(), _SHORT, 0
        while holder := ask(gone):
            # Only this node knows whether one of its ranks has died.
            lost = self.group.poll_while_waiting(holder - 1, time.monotonic() - began)
            gone = holder if lost else 0
            if DeferredInterrupt.count_interrupts():
                raise KeyboardInterrupt
            if not lost:
                time.sleep(nap)
                nap = min(2 * nap, _LONG)

    def _give(self, owner: int, stripes: list[int]) -> None:
        if owner in self.parts.arrays:
            self.parts.give(owner, stripes, self._who)
        else:
            self._ask(_Ask.GIVE, owner, np.array(stripes, np.int64))
            self.wait_until_sent()

    # ---------------------------------------------------------------------------------- messages

    def _iterate_pieces(
        self, where: Where, shape: tuple[int, ...]
    ) -> Iterator[tuple[Where, tuple[slice, ...]]]:
        """Yield positions in pieces of one message each, with the matching part of the values."""
        item = self.dtype.itemsize
        if where.ndim == 1:
            most = max(1, PIECE // (item + 8))
            for low in range(0, len(where), most):
                yield where[low : low + most], (slice(low, low + most),)
            return
        if int(np.prod(shape, dtype=object)) * item <= PIECE:
            yield where, tuple(slice(None) for _ in shape)
            return
        slab = _core.slab_shape(shape, list(range(len(shape)))[::-1], max(1, PIECE // item))
        for number in np.ndindex(*(-(-n // m) for n, m in zip(shape, slab, strict=True))):
            first = np.array(number, np.int64) * slab
            count = np.minimum(first + slab, shape) - first
            piece = where.copy()
            piece[:, 0] += first * where[:, 2]
            piece[:, 1] = count
            ends = zip(first.tolist(), (first + count).tolist(), strict=True)
            yield piece, tuple(slice(a, b) for a, b in ends)

    def _pack(self, values: NDArray[Any]) -> Bytes:
        return np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8)

    def _ask(
        self,
        what: _Ask,
        rank: int,
        where: Where,
        data: Bytes | None = None,
        words: Sequence[int] = (0, 0),
        room: int = 0,
        then: Any = None,
    ) -> None:
        assert self._service is not None
        axes = len(where) if where.ndim == 2 else -1
        head = [int(what), rank, self._who, *words, axes, len(where)]
        places = where.reshape(-1).view(np.uint8)
        body = places if data is None else np.concatenate([places, data])
        self._service.ask(rank, self.number, head, body, room, then)

    def answer(self, words: NDArray[np.int64], data: Bytes) -> Bytes:
        """Process a request of another node for the parts of this node."""
        what, rank, who, gone, fetch, axes, length = words.tolist()
        end = 8 * (length if axes < 0 else 3 * axes)
        where = data[:end].view(np.int64)
        where = where if axes < 0 else where.reshape(axes, 3)
        values, shape = data[end:], (length,) if axes < 0 else tuple(where[:, 1].tolist())
        if what == _Ask.READ:
            return self._pack(self.parts.read(rank, where))
        if what == _Ask.TAKE:
            return self._encode_holder(self.parts.take(rank, where.tolist(), who, _TRY, gone))
        if what == _Ask.GIVE:
            self.parts.give(rank, where.tolist(), who)
            return self._encode_holder(0)
        term = values.view(self.dtype).reshape(shape)
        if what == _Ask.WRITE:
            self.parts.write(rank, where, term)
        elif what == _Ask.ADD:
            self.parts.add(rank, where, term)
        else:
            return self._add_for(rank, where, term, who, gone, bool(fetch))
        return self._encode_holder(0)

    def _add_for(
        self, rank: int, where: Where, term: NDArray[Any], who: int, gone: int, fetch: bool
    ) -> Bytes:
        stripes = self.find_stripes(rank, where)
        holder = self.parts.take(rank, stripes, who, _TRY, gone)
        if holder:
            return self._encode_holder(holder)
        try:
            old = self._pack(self.parts.read(rank, where)).copy() if fetch else _NOTHING
            self.parts.add(rank, where, term)
        finally:
            self.parts.give(rank, stripes, who)
        return np.concatenate([self._encode_holder(0), old])

    @staticmethod
    def _encode_holder(holder: int) -> Bytes:
        return np.array([holder], np.int64).view(np.uint8)


_NOTHING: Bytes = np.empty(0, np.uint8)


def make_rows(
    distribution: Distribution, index: Any
) -> tuple[NDArray[np.int64], tuple[int, ...] | None]:
    """Return indices as rows, negative ones counted from the end, and their shape (None if single)."""
    rows, shape = distribution._rows(index)
    if rows.shape[1] == distribution.ndim:
        rows += np.where(rows < 0, np.array(distribution.shape, np.int64), 0)
    return rows, shape


class PatchLock(StaysInProcess):
    """
    Lock of a patch, made by `DistArray.lock`, for a ``with`` block.

    Parameters
    ----------
    window
        Memory of the array.
    wanted
        Owners, each with the position of the patch in its part.

    Examples
    --------
    >>> from outcore.mpi import DistArray, Distribution
    >>> a = DistArray.shared_all(Distribution(5, ["block"], 1), "i4")
    >>> with a.lock(np.s_[:]):
    ...     a.acc(np.s_[:2], 1)
    """

    _elsewhere = "enter it here, in a with block"

    def __init__(self, window: SharedWindow, wanted: list[tuple[int, Where]]) -> None:
        self._window, self._wanted = window, wanted

    def __enter__(self) -> None:
        self._window.lock(self._wanted)

    def __exit__(self, *_: object) -> None:
        self._window.unlock()


class IndicesByOwner:
    """
    A list of indices by owner; its memory counts in the budget while it is open.

    `item` is the number of bytes of an element. The elements count in the budget, too: up to two
    copies, those of an owner and those that NumPy takes from a part (or in the order of the list, after
    broadcasting).
    """

    def __init__(self, distribution: Distribution, index: Any, item: int) -> None:
        items = index if isinstance(index, tuple) else (index,)
        try:
            shape = np.broadcast_shapes(*(np.shape(item) for item in items))
        except ValueError:
            shape = ()  # raises below
        count = int(np.prod(shape, dtype=object))
        each = 16 * distribution.ndim + 48 + 2 * item
        self._held = _core.Reservation("exchange", count * each)
        try:
            self._core = distribution.core
            self._rows, self.shape = make_rows(distribution, index)
        except BaseException:
            self._held.release()
            raise

    def group_by_owner(
        self, window: SharedWindow
    ) -> list[tuple[list[int], Where, NDArray[np.int64]]]:
        """Return per owner: ranks with its elements, positions in the part, and places in the list."""
        owners = self._core.owners(self._rows)
        local = self._core.local_indices(self._rows)
        order = np.argsort(owners, kind="stable")
        found, begins = np.unique(owners[order], return_index=True)
        ends = [*begins.tolist(), len(order)][1:]
        listed = []
        for owner, low, high in zip(found.tolist(), begins.tolist(), ends, strict=True):
            at = order[low:high]
            listed.append((window.list_copies(owner), window.number_elements(owner, local[at]), at))
        return listed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()
