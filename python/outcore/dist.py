"""
Arrays divided over ranks, in memory: `DistArray`.

Problem. Each rank works on its part of an array; then it needs another part: that of another
distribution, the neighbours of its own, or all of it. Idea. All three are one thing: what ranks have
meets what ranks want in regular sections, and the core knows who sends which of them to whom
(`_core.exchange_plan`). So there is one method here that packs, exchanges and unpacks; the others
say only what is wanted.

Invariants. A `DistArray` *has* an array, it is not one: ``local`` is an ordinary NumPy array. Methods
that talk to other ranks end in ``_all``, and every rank must call them. Whatever can fail on one rank
alone fails before the first element is sent, and then all ranks raise. Buffers for packing are within
the memory budget: what does not fit travels in rounds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core
from outcore.collective.agreement import brief, differ, fail_together, name_of
from outcore.collective.call import run
from outcore.collective.items import Item, reading, writing
from outcore.collective.planning import Method
from outcore.disk import DiskArray
from outcore.distribution import Align, Distribution, Ghosts, Key, ProcessGrid, slices, widths
from outcore.errors import BudgetError, CollectiveError, DistributionError, UnsupportedError
from outcore.transport import Held, Transport
from outcore.transport import transport as join

__all__ = ["Align", "DistArray", "Distribution", "ProcessGrid"]

# Larger buffers make no exchange faster, but everything else has less.
_LARGEST = 64 * 2**20
_NO_LIMIT = 2**63 - 1
_OURS = {f"DistArray.{name}" for name in ("redistribute_all", "update_ghosts_all", "gather_all")}
# What ranks tell each other before anything else.
_PRINT, _LIMIT = range(2)


class DistArray:
    """
    One rank's part of an array that is divided over ranks.

    Parameters
    ----------
    distribution
        Which rank has which elements.
    local
        The elements of this rank, ghosts included; kept, not copied. See also `empty`, `zeros` and
        `from_function`.
    transport
        How ranks talk to each other: a transport, or a communicator of mpi4py; by default there is
        only one rank.
    ghosts
        Elements of the neighbours of which a copy is kept: one width for all axes, or per axis a
        width or a pair (before, behind). Cut off at the ends of the array; 0 on CYCLIC axes.

    Raises
    ------
    DistributionError
        If the distribution is for another number of ranks, or the memory for another part.

    Examples
    --------
    >>> from outcore import DistArray, Distribution
    >>> rows = Distribution((4, 6), ["block", "*"], 1)
    >>> a = DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
    >>> a.owned[1, 2]
    np.int32(12)
    >>> columns = a.redistribute_all(Distribution((4, 6), ["*", "cyclic"], 1))
    >>> (columns.owned == a.owned).all()
    np.True_
    """

    def __init__(
        self,
        distribution: Distribution,
        local: NDArray[Any],
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
    ) -> None:
        self._transport = join(transport)
        if distribution.grid.size != self._transport.size:
            raise DistributionError(
                f"a grid of {distribution.grid.size} ranks on a transport of "
                f"{self._transport.size}; give a grid of as many ranks, or split the transport",
                code="bad-grid",
            )
        if local.dtype.hasobject or local.dtype.itemsize == 0:
            raise UnsupportedError(
                f"elements of dtype {local.dtype} cannot be sent; use a fixed-size dtype",
                code="object-dtype",
            )
        self._distribution = distribution
        self._widths = widths(ghosts, distribution.ndim)
        expected = tuple(distribution._core.local_shape(self.rank, self._widths))
        if local.shape != expected:
            raise DistributionError(
                f"memory of shape {local.shape} for the part of rank {self.rank}, which has shape "
                f"{expected}; Distribution.local_shape() tells it",
                code="bad-distribution",
            )
        self._local = local

    @classmethod
    def empty(
        cls,
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
    ) -> Self:
        """
        An array whose elements are not set.

        Parameters
        ----------
        distribution
            Which rank has which elements.
        dtype
            Type of the elements.
        transport, ghosts
            See the class.

        Returns
        -------
        DistArray
            The new array.
        """
        transport = join(transport)
        rank = transport.rank
        shape = distribution.local_shape(rank, ghosts)
        return cls(distribution, np.empty(shape, dtype), transport=transport, ghosts=ghosts)

    @classmethod
    def zeros(
        cls,
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
    ) -> Self:
        """
        An array of zeros.

        Parameters
        ----------
        distribution
            Which rank has which elements.
        dtype
            Type of the elements.
        transport, ghosts
            See the class.

        Returns
        -------
        DistArray
            The new array.
        """
        transport = join(transport)
        rank = transport.rank
        shape = distribution.local_shape(rank, ghosts)
        return cls(distribution, np.zeros(shape, dtype), transport=transport, ghosts=ghosts)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
    ) -> Self:
        """
        An array whose elements are a function of their indices, ghosts included.

        Parameters
        ----------
        function
            Gets one array of indices per axis, shaped to be broadcast as those of `numpy.ogrid`;
            once for each section of this rank.
        distribution
            Which rank has which elements.
        dtype
            Type of the elements.
        transport, ghosts
            See the class.

        Returns
        -------
        DistArray
            The new array.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> DistArray.from_function(lambda i: i**2, Distribution(5, ["block"], 1), "i8").local
        array([ 0,  1,  4,  9, 16])
        """
        made = cls.empty(distribution, dtype, transport=transport, ghosts=ghosts)
        for key, view in made.pieces(ghosts=True):
            indices = [np.arange(s.start, s.stop, s.step or 1) for s in key]
            view[...] = function(*np.ix_(*indices))
        return made

    @property
    def distribution(self) -> Distribution:
        """Which rank has which elements."""
        return self._distribution

    @property
    def transport(self) -> Transport:
        """How ranks talk to each other."""
        return self._transport

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self._transport.rank

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._distribution.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._distribution.ndim

    @property
    def size(self) -> int:
        """Number of elements of the whole array."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._local.dtype

    @property
    def ghosts(self) -> tuple[tuple[int, int], ...]:
        """Widths of the overlap, a pair (before, behind) per axis."""
        return tuple(self._widths) or ((0, 0),) * self.ndim

    @property
    def local(self) -> NDArray[Any]:
        """The elements of this rank, ghosts included."""
        return self._local

    @property
    def owned(self) -> NDArray[Any]:
        """The elements of this rank without ghosts: a view of `local`."""
        if not self._widths:
            return self._local
        core = self._distribution._core
        _, places = core.pieces(self.rank, self._widths, False)
        starts = places[:, :, 0].min(axis=0, initial=_NO_LIMIT).tolist()
        shape = core.local_shape(self.rank, [])
        starts = starts if len(places) else [0] * self.ndim
        return self._local[tuple(slice(a, a + n) for a, n in zip(starts, shape, strict=True))]

    @property
    def global_slices(self) -> tuple[Key, ...]:
        """The sections of the whole array that this rank has, without ghosts."""
        return self._distribution.sections(self.rank)

    def pieces(self, *, ghosts: bool = False) -> list[tuple[Key, NDArray[Any]]]:
        """
        The sections of this rank, each with the memory it is stored in.

        Parameters
        ----------
        ghosts
            Whether the ghosts belong to it: the views then tile `local`, else `owned`.

        Returns
        -------
        list of (tuple of slice, numpy.ndarray)
            A section of the whole array, and the view of `local` that holds it.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(5, ["block"], 1), "i4")
        >>> for key, view in a.pieces():
        ...     print(key, view.shape)
        (slice(0, 5, None),) (5,)
        """
        found, places = self._distribution._core.pieces(self.rank, self._widths, ghosts)
        return list(zip(slices(found), _views(self._local, places), strict=True))

    def read_all(self, array: DiskArray, *, ghosts: bool = False, method: Method = "auto") -> None:
        """
        Read the whole array from disk, each rank its part. Every rank must call this.

        Parameters
        ----------
        array
            An array on disk of the same shape and dtype.
        ghosts
            Whether the ghosts are read as well.
        method
            As for `CollectiveArray.read_all`.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed. What `local` holds is then undefined.
        BudgetError
            On all ranks, as for `CollectiveArray.read_all`, which also says what memory it takes.

        Notes
        -----
        PASSION_read of the PASSION runtime library, with the extended two-phase method (Thakur,
        Choudhary, section 3.1).

        Examples
        --------
        >>> import numpy as np, outcore
        >>> field = outcore.create("field.npy", data=np.arange(12.0).reshape(3, 4))
        >>> a = outcore.DistArray.empty(outcore.Distribution((3, 4), ["block", "cyclic"], (1, 1)))
        >>> a.read_all(field)
        >>> a.owned[2, 1]
        np.float64(9.0)
        """

        def bring() -> list[Item]:
            self._must_match(array)
            return [reading(array, key, view) for key, view in self.pieces(ghosts=ghosts)]

        run(self._transport, "DistArray.read_all", bring, method, lambda: array.hints)

    def write_all(self, array: DiskArray, *, method: Method = "auto") -> None:
        """
        Write the whole array to disk, each rank its part. Every rank must call this.

        Of copies that several ranks have, that of the owner is written; ghosts are not.

        Parameters
        ----------
        array
            An array on disk of the same shape and dtype, open for writing.
        method
            As for `CollectiveArray.write_all`.

        Raises
        ------
        CollectiveError
            On all ranks, if any rank failed. Each block of the file is then old or new.
        BudgetError
            On all ranks, as for `CollectiveArray.write_all`, which also says what memory it takes.

        Notes
        -----
        PASSION_write of the PASSION runtime library, with the extended two-phase method (Thakur,
        Choudhary, section 3.2).

        Examples
        --------
        >>> import outcore
        >>> rows = outcore.Distribution((3, 4), ["block", "*"], 1)
        >>> a = outcore.DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
        >>> field = outcore.create("field.zarr", (3, 4), "i4", chunks=2, compression="zstd")
        >>> a.write_all(field)
        >>> field[2, 3]
        np.int32(23)
        """

        def bring() -> list[Item]:
            self._must_match(array)
            if not self._distribution._core.is_owner(self.rank):
                return []
            return [writing(array, key, view) for key, view in self.pieces()]

        run(self._transport, "DistArray.write_all", bring, method, lambda: array.hints)

    def _must_match(self, array: DiskArray) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise DistributionError(
                f"{array.path!r} has shape {array.shape} and dtype {array.dtype}, the distributed "
                f"array {self.shape} and {self.dtype}; they must be the same",
                code="bad-distribution",
                path=array.path,
            )

    def redistribute_all(self, distribution: Distribution, *, ghosts: Ghosts = 0) -> DistArray:
        """
        The same array in another distribution. Every rank must call this.

        Parameters
        ----------
        distribution
            The new one, for an array of the same shape on as many ranks.
        ghosts
            Ghosts of the new array; they are filled as well.

        Returns
        -------
        DistArray
            A new array; this one does not change.

        Raises
        ------
        DistributionError
            On all ranks, if they disagree about what to do, or one of them cannot do its part: with
            its number and what it said (``failed-elsewhere``). That rank raises its own error.
        CollectiveError
            On all ranks, if one of them called something else than a method of a `DistArray`.
        """

        def make() -> DistArray:
            return DistArray.empty(
                distribution, self.dtype, transport=self._transport, ghosts=ghosts
            )

        made: DistArray = self._bring_all("redistribute_all", make)
        return made

    def update_ghosts_all(self) -> None:
        """
        Set the ghosts to what their owners have now. Every rank must call this.

        Raises
        ------
        DistributionError
            On all ranks, if they disagree about what to do, or one of them cannot do its part: with
            its number and what it said (``failed-elsewhere``). That rank raises its own error.
        CollectiveError
            On all ranks, if one of them called something else than a method of a `DistArray`.
        """
        self._bring_all("update_ghosts_all", lambda: self)

    def gather_all(self, root: int | None = None) -> NDArray[Any] | None:
        """
        The whole array in the memory of one rank, or of all: for tests and small arrays.

        Every rank must call this.

        Parameters
        ----------
        root
            The rank that gets it; by default all.

        Returns
        -------
        numpy.ndarray or None
            The whole array; None on ranks that do not get it.

        Raises
        ------
        DistributionError
            On all ranks, if they disagree about what to do, or one of them cannot do its part: with
            its number and what it said (``failed-elsewhere``). That rank raises its own error.
        CollectiveError
            On all ranks, if one of them called something else than a method of a `DistArray`.
        """

        def make() -> DistArray:
            grid = self._distribution.grid
            if root is not None:
                grid.coordinates(root)
            whole = Distribution.replicated(self.shape, grid)
            wanted = root is None or root == self.rank
            nothing = np.broadcast_to(np.zeros((), self.dtype), self.shape)
            memory = np.empty(self.shape, self.dtype) if wanted else nothing
            return DistArray(whole, memory, transport=self._transport)

        got: DistArray = self._bring_all("gather_all", make, root)
        return got._local if root is None or root == self.rank else None

    def _bring_all(
        self, operation: str, make: Callable[[], DistArray], only: int | None = None
    ) -> DistArray:
        """Bring the elements of this array to where that of `make` wants them."""
        group, call = self._transport, f"DistArray.{operation}"
        made: list[DistArray] = []
        moves: list[_Moves] = []

        def prepare() -> NDArray[Any]:
            made.append(make())
            moves.append(_Moves(self, made[0], only))
            wishes = [_print(operation, self, made[0], only), moves[0].limit]
            return brief(call, wishes)

        # The other ranks wait for all of it.
        with Held():
            try:
                records = _agree(group, call, prepare)
                moves[0].run(group, min(records.wish(_LIMIT)), call)
            finally:
                for one in moves:
                    one.release()
        return made[0]

    def __repr__(self) -> str:
        return (
            f"<DistArray {self.shape} {self.dtype}, {self._distribution}, rank {self.rank}: "
            f"local {self._local.shape}>"
        )


class _Crossing(NamedTuple):
    """What goes between this rank and another: sections of its memory, in rounds."""

    peer: int
    sections: NDArray[np.int64]
    ends: list[int]

    def elements(self) -> int:
        """Number of elements."""
        return int(self.sections[:, :, 1].prod(axis=1).sum())

    def views(self, memory: NDArray[Any], number: int) -> list[NDArray[Any]]:
        """The parts of `memory` that travel in a round, in this order."""
        if number >= len(self.ends):
            return []
        begin = self.ends[number - 1] if number else 0
        return _views(memory, self.sections[begin : self.ends[number]])


class _Packed(NamedTuple):
    """A round that can begin: bytes for and of each rank, where what comes goes, what stays."""

    to: NDArray[np.int64]
    of: NDArray[np.int64]
    parts: list[tuple[NDArray[Any], NDArray[Any]]]
    own: list[tuple[NDArray[Any], NDArray[Any]]]


class _Moves:
    """What this rank sends, receives and copies to bring one array to where another wants it."""

    def __init__(self, source: DistArray, target: DistArray, only: int | None) -> None:
        self.source = source
        self.target = target
        self.only = only
        self.item = source.dtype.itemsize
        self.plan(None)
        if (self.receives or len(self.own[1])) and not target._local.flags.writeable:
            raise DistributionError(
                f"the memory of rank {target.rank} cannot be written to; give the array a copy of it",
                code="bad-distribution",
            )
        counts = [crossing.elements() for crossing in (*self.sends, *self.receives)]
        self.limit, self.held = self.reserve(np.array(counts, np.int64))
        with_limit = [min(count, self.limit) * self.item for count in counts]
        try:
            self.send = np.empty(sum(with_limit[: len(self.sends)]), np.uint8)
            self.receive = np.empty(sum(with_limit[len(self.sends) :]), np.uint8)
            # Of most calls the only round: what can fail on one rank is done before the ranks meet.
            self.first = self.pack(0) if self.limit == _NO_LIMIT else None
        except BaseException:
            self.held.release()
            raise

    def plan(self, limit: int | None) -> None:
        """Ask the core; with a limit, no message of a round has more elements."""
        source, target = self.source, self.target
        sends, receives, self.own = _core.exchange_plan(
            source._distribution._core,
            source._widths,
            target._distribution._core,
            target._widths,
            source.rank,
            self.only,
            limit,
        )
        self.sends = [_Crossing(*crossing) for crossing in sends]
        self.receives = [_Crossing(*crossing) for crossing in receives]

    def reserve(self, counts: NDArray[np.int64]) -> tuple[int, _core.Reservation]:
        """Memory for messages, and how many elements of each it holds (no limit: all)."""
        # Half of what is free: there may be other threads, or ranks that are threads.
        room = min(_LARGEST, _core.memory_state()[1] // 2)
        limit = _NO_LIMIT
        if int(counts.sum()) * self.item > room:
            limit = max(1, room // (len(counts) * self.item))
        while True:
            needed = int(np.minimum(counts, limit).sum()) * self.item
            try:
                return limit, _core.Reservation("exchange", needed)
            except BudgetError:
                if limit == 1:
                    raise
            # Other threads took some of it.
            limit = max(1, min(limit, int(counts.max())) // 2)

    def run(self, transport: Transport, limit: int, call: str) -> None:
        """Send, receive and copy. All ranks have agreed on the limit."""
        if limit == _NO_LIMIT and self.first is not None:
            self.exchange(transport, self.first)
            return
        # What fails on one rank is told before each round, and after the last one.
        failure: BaseException | None = None
        number, rounds = 0, 1
        while number <= rounds:
            said, ready = 0, None
            try:
                if failure is None and number == 0:
                    self.plan(limit)
                    crossings = (*self.sends, *self.receives)
                    said = max((len(one.ends) for one in crossings), default=1)
                if failure is None:
                    ready = self.pack(number)
            except BaseException as error:
                failure = error
            heard = transport.agree(_NO_LIMIT if failure is not None else said)
            if heard == _NO_LIMIT:
                _give_up(transport, failure, call)
            rounds = heard if number == 0 else rounds
            if ready is not None and number < rounds:
                try:
                    self.exchange(transport, ready)
                except BaseException as error:
                    failure = error
            number += 1

    def pack(self, number: int) -> _Packed:
        """Pack what this rank sends in a round, and see where what it receives will go."""
        size = self.source.transport.size
        to, of = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for here, there in self.buffered(self.sends, self.source, self.send, number, to):
            there[...] = here
        parts = self.buffered(self.receives, self.target, self.receive, number, of)
        own = []
        if number == 0 and self.source._local is not self.target._local:
            memory = self.source._local, self.target._local
            own = list(zip(*map(_views, memory, self.own), strict=True))
        return _Packed(to, of, parts, own)

    def exchange(self, transport: Transport, ready: _Packed) -> None:
        """Send and receive a round, and copy what this rank has itself."""
        send, receive = self.send[: ready.to.sum()], self.receive[: ready.of.sum()]
        started = transport.start_exchange(send, ready.to, receive, ready.of)
        for here, there in ready.own:
            there[...] = here
        started.wait()
        for here, there in ready.parts:
            here[...] = there

    def buffered(
        self,
        crossings: list[_Crossing],
        array: DistArray,
        buffer: NDArray[np.uint8],
        number: int,
        counts: NDArray[np.int64],
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Parts of an array that travel in a round, each with its part of the buffer."""
        parts = []
        at = 0
        for crossing in crossings:
            for view in crossing.views(array._local, number):
                part = buffer[at : at + view.nbytes].view(array.dtype).reshape(view.shape)
                parts.append((view, part))
                at += view.nbytes
                counts[crossing.peer] += view.nbytes
        return parts

    def release(self) -> None:
        """Give the memory back."""
        self.held.release()


def _views(memory: NDArray[Any], sections: NDArray[np.int64]) -> list[NDArray[Any]]:
    keys: list[tuple[Any, ...]] = [(*key, ...) for key in slices(sections)]  # ...: a view, always
    return [memory[key] for key in keys]


def _print(operation: str, source: DistArray, target: DistArray, only: int | None) -> int:
    """A number that is equal on ranks that mean the same."""
    ends = [(one.shape, one.dtype, str(one.distribution), one.ghosts) for one in (source, target)]
    digest = hashlib.blake2b(repr((operation, ends, only)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _agree(group: Transport, call: str, prepare: Callable[[], NDArray[Any]]) -> _core.Records:
    """Raise on all ranks if one has a problem, or means something else than the others."""
    failure: BaseException | None = None
    try:
        words = prepare()
    except BaseException as error:
        failure = error
        words = _core.failed_record()
    records = _core.Records(group.allgather(words))
    failed, same, _ = records.verdict
    if failed:
        _give_up(group, failure, call)
    calls = [name_of(number) for _, number in records.calls()]
    if not same and not _OURS.issuperset(calls):
        differ(calls)
    said = list(zip(calls, records.wish(_PRINT), strict=True))
    others = [rank for rank, one in enumerate(said) if one != said[0]]
    if others:
        raise DistributionError(
            f"rank {others[0]} called {calls[others[0]]}, rank 0 {calls[0]}: different methods, on "
            "different arrays or with different arguments; all ranks must make the same call",
            code="ranks-disagree",
            rank=others[0],
        )
    return records


def _give_up(group: Transport, failure: BaseException | None, call: str) -> NoReturn:
    """Raise on all ranks: their own failure, or whose it was."""
    try:
        fail_together(group, failure, call)
    except CollectiveError as error:
        told = error
    if failure is not None:
        raise failure
    raise DistributionError(told.message, code="failed-elsewhere", rank=(*told.ranks, 0)[0])
