"""
One rank's part of an array that is divided over ranks: `DistArrayBase`, the base of `DistArray`.

Problem. A part is memory with a distribution, perhaps with ghosts. All operations on parts need the same
few facts: which elements belong to this rank, where they are stored, and which other ranks there are.
Approach. This module provides them, and brings elements to the places where another array needs them.
`one_sided`, `whole` and `array` define the public operations.

Invariants. The memory has the shape that the distribution specifies. A closed array has no memory.
Ghosts beyond the ends of a periodic axis surround the other elements: `_local` is the memory without
them, in the layout that the core knows. All operations except those on ghosts use `_local`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore.base.distribution import (
    Distribution,
    Ghosts,
    Key,
    Periodic,
    list_keys,
    parse_periodic,
    parse_widths,
    view_sections,
)
from outcore.base.requests import StartedRequests
from outcore.errors import DistributionError, StaysInProcess, UnsupportedError, UsageError
from outcore.ranks.collective.request import CollectiveRequest, start_call
from outcore.ranks.dist.periodic import Torus
from outcore.ranks.dist.redistribution import RankPart, bring_all
from outcore.ranks.ranks import Ranks
from outcore.ranks.transport import Transport
from outcore.ranks.transport import transport as join

__all__ = ["DistArrayBase"]

T = TypeVar("T")
A = TypeVar("A", bound="DistArrayBase")


class DistArrayBase(StaysInProcess):
    """
    One rank's part of an array: the base class of `DistArray`.

    Parameters
    ----------
    distribution, local, transport, ghosts, periodic
        As for `DistArray`.

    Examples
    --------
    >>> from outcore.mpi import DistArray, Distribution
    >>> DistArray.zeros(Distribution(3, ["block"], 1)).global_slices
    ((slice(0, 3, None),),)
    """

    _elsewhere = "send the elements (`owned`, or what gather_all gives); copy_all makes a copy"

    def __init__(
        self,
        distribution: Distribution,
        local: NDArray[Any],
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
        periodic: Periodic = False,
    ) -> None:
        self._transport = join(transport)
        if distribution.grid.size != self._transport.size:
            raise DistributionError(
                f"the grid has {distribution.grid.size} ranks, but the transport has "
                f"{self._transport.size}; pass a grid of as many ranks, or split the transport",
                code="bad-grid",
            )
        if local.dtype.hasobject or local.dtype.itemsize == 0:
            raise UnsupportedError(
                f"elements of dtype {local.dtype} cannot be sent; use a fixed-size dtype",
                code="object-dtype",
            )
        self._distribution = distribution
        self._widths = parse_widths(ghosts, distribution.ndim)
        self._periodic = parse_periodic(periodic, distribution.ndim)
        expected = distribution.local_shape(self.rank, ghosts, periodic=periodic)
        if local.shape != expected:
            raise DistributionError(
                f"the memory of rank {self.rank} has shape {local.shape}, but its part has {expected}; "
                "pass memory of Distribution.local_shape()",
                code="bad-distribution",
            )
        self._torus: Torus | None = None
        self._inside: tuple[slice, ...] | None = None
        if self._widths and any(self._periodic):
            self._torus = Torus(distribution, self._widths, self._periodic)
            self._inside = self._torus.locate_inside(self.rank)
        self._memory: NDArray[Any] | None = local
        self._dtype = local.dtype
        self._started = StartedRequests()

    @classmethod
    def empty(
        cls,
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
        periodic: Periodic = False,
    ) -> Self:
        """
        Make an array whose elements are not set.

        Parameters
        ----------
        distribution
            Distribution of the elements over the ranks.
        dtype
            Type of the elements, of fixed size.
        transport, ghosts, periodic
            As for the class.

        Returns
        -------
        DistArray
            The new array, with `Distribution.local_shape` of this rank.

        Raises
        ------
        DistributionError, UnsupportedError
            As for the class.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> DistArray.empty(Distribution((4, 6), ["block", "*"], 1), "f4").local.shape
        (4, 6)
        """
        transport = join(transport)
        rank = transport.rank
        local = np.empty(distribution.local_shape(rank, ghosts, periodic=periodic), dtype)
        return cls(distribution, local, transport=transport, ghosts=ghosts, periodic=periodic)

    @classmethod
    def zeros(
        cls,
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
        periodic: Periodic = False,
    ) -> Self:
        """
        Make an array of zeros, including ghosts.

        Parameters
        ----------
        distribution, dtype, transport, ghosts, periodic
            As for `empty`.

        Returns
        -------
        DistArray
            The new array.

        Raises
        ------
        DistributionError, UnsupportedError
            As for the class.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> DistArray.zeros(Distribution(3, ["block"], 1), "i4").local
        array([0, 0, 0], dtype=int32)
        """
        transport = join(transport)
        rank = transport.rank
        local = np.zeros(distribution.local_shape(rank, ghosts, periodic=periodic), dtype)
        return cls(distribution, local, transport=transport, ghosts=ghosts, periodic=periodic)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        distribution: Distribution,
        dtype: DTypeLike = "f8",
        *,
        transport: Any = None,
        ghosts: Ghosts = 0,
        periodic: Periodic = False,
    ) -> Self:
        """
        Make an array whose elements, including ghosts, are a function of their indices.

        For ghosts beyond the ends of a periodic axis, these are the indices of the elements that they
        copy.

        Parameters
        ----------
        function
            Function of one array of indices per axis (int64), shaped for broadcasting as those of
            `numpy.ogrid`. It is called once for each section of this rank. Its result is broadcast to
            the shape of the section, and cast to `dtype` as in an assignment of NumPy.
        distribution, dtype, transport, ghosts, periodic
            As for `empty`.

        Returns
        -------
        DistArray
            The new array.

        Raises
        ------
        DistributionError, UnsupportedError
            As for the class. Errors of `function` are passed on.

        Notes
        -----
        Memory: the array, and what `function` needs for one section at a time.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> DistArray.from_function(lambda i: i**2, Distribution(5, ["block"], 1), "i8").local
        array([ 0,  1,  4,  9, 16])
        """
        made = cls.empty(distribution, dtype, transport=transport, ghosts=ghosts, periodic=periodic)
        for key, view in made.pieces(ghosts=True):
            indices = [np.arange(s.start, s.stop, s.step or 1) for s in key]
            view[...] = function(*np.ix_(*indices))
        return made

    @property
    def distribution(self) -> Distribution:
        """Distribution of the elements over the ranks: a `Distribution`."""
        return self._distribution

    @property
    def transport(self) -> Transport:
        """Transport that connects the ranks: a `Transport`."""
        return self._transport

    @property
    def rank(self) -> int:
        """Number of this rank, starting at 0."""
        return self._transport.rank

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array: a tuple of int. The part of this rank has ``local.shape``."""
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
        """Type of the elements: a `numpy.dtype`."""
        return self._dtype

    @property
    def ghosts(self) -> tuple[tuple[int, int], ...]:
        """Requested widths of the ghosts: a pair (before, after) of elements per axis."""
        return tuple(self._widths) or ((0, 0),) * self.ndim

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Axes whose ghosts wrap around at the ends: a bool per axis."""
        return self._periodic

    @property
    def local(self) -> NDArray[Any]:
        """
        Elements of this rank, including ghosts: the given `numpy.ndarray`, not a copy.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(3, ["block"], 1))
        >>> a.local[1:] = 2.5
        >>> a.gather_all()
        array([0. , 2.5, 2.5])
        """
        return self._all

    @property
    def _local(self) -> NDArray[Any]:
        """The part of `local` that is within the ends of the array."""
        return self._all if self._inside is None else self._all[self._inside]

    @property
    def _all(self) -> NDArray[Any]:
        if self._memory is None:
            raise UsageError(
                "this distributed array is closed; make a new one",
                code="closed",
            )
        return self._memory

    @property
    def owned(self) -> NDArray[Any]:
        """
        Elements of this rank without ghosts: a view of `local`, of `Distribution.local_shape`.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> rows = Distribution((8, 6), ["block", "*"], 4)
        >>> def shapes(comm):
        ...     a = DistArray.zeros(rows, transport=comm, ghosts=[1, 0])
        ...     return a.local.shape, a.owned.shape
        >>> SimWorld(4).run(shapes)
        [((3, 6), (2, 6)), ((4, 6), (2, 6)), ((4, 6), (2, 6)), ((3, 6), (2, 6))]
        """
        if not self._widths:
            return self._local
        core = self._distribution.core
        _, places = core.pieces(self.rank, self._widths, False)
        starts = places[:, :, 0].min(axis=0, initial=2**63 - 1).tolist()
        shape = core.local_shape(self.rank, [])
        starts = starts if len(places) else [0] * self.ndim
        return self._local[tuple(slice(a, a + n) for a, n in zip(starts, shape, strict=True))]

    @property
    def global_slices(self) -> tuple[Key, ...]:
        """
        Sections of the whole array that this rank has, without ghosts.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> DistArray.zeros(Distribution((4, 6), ["block", "*"], 1)).global_slices
        ((slice(0, 4, None), slice(0, 6, None)),)
        """
        return self._distribution.sections(self.rank)

    def pieces(self, *, ghosts: bool = False) -> list[tuple[Key, NDArray[Any]]]:
        """
        Return the sections of this rank, each with a view of its elements.

        Parameters
        ----------
        ghosts
            Whether to include the ghosts: the views then cover `local`, otherwise `owned`.

        Returns
        -------
        list of (tuple of slice, numpy.ndarray)
            Sections of the whole array, each with a view of `local` (not a copy). For ghosts beyond the
            ends of a periodic axis, the section that they copy.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(5, ["block"], 1), "i4")
        >>> for key, view in a.pieces():
        ...     print(key, view.shape)
        (slice(0, 5, None),) (5,)
        """
        if ghosts and self._torus is not None:
            keys, rows = self._torus.list_pieces(self.rank)
            return list(zip(keys, view_sections(self._all, rows), strict=True))
        found, places = self._distribution.core.pieces(self.rank, self._widths, ghosts)
        return list(zip(list_keys(found), view_sections(self._local, places), strict=True))

    def _bring_all(self, operation: str, make: Callable[[], A], only: int | None = None) -> A:
        """Bring the elements of this array to the places that the array from `make` needs."""
        made: list[A] = []

        def find_wanted() -> RankPart:
            made.append(make())
            return made[0].part()

        bring_all(self._transport, operation, self.part(), find_wanted, only)
        return made[0]

    def _make_ranks(self, operation: str) -> Ranks:
        """Return the ranks of the array, for a call of its method `operation`."""
        return Ranks.of_call(self._transport, f"DistArray.{operation}")

    def _start(self, what: str, call: Callable[[], T]) -> CollectiveRequest[T]:
        return start_call(self._transport, self._started, f"{what} of a DistArray", call)

    def part(self) -> RankPart:
        """Return the elements of this rank in the form that other packages of outcore use."""
        return RankPart(self._distribution, self._widths, self._local, self._periodic)

    def __repr__(self) -> str:
        local = "closed" if self._memory is None else f"local {self._memory.shape}"
        return f"<DistArray {self.shape} {self.dtype}, {self._distribution}, rank {self.rank}: {local}>"
