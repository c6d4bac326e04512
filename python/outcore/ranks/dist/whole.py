"""
Operations on whole distributed arrays: fill, copy, scale, add, dot, map, matmul, transpose.

Problem. Programs compute with whole arrays between their phases, and their operands may be divided
in different ways. Idea. Elements of one index are brought to one rank (`redistribution`), and the
rest is NumPy on what a rank owns.

Invariants. Every rank calls them, with equal arguments. What fails on one rank, fails on all. What
is computed of an element does not depend on who does it: results have the same bits for every
distribution and number of ranks, those of `matmul_all` excepted. Ghosts keep what they have. When a
call returns, all ranks have written.

Reference: Nieplocha, Foster, *Disk Resident Arrays*, section 2 (Global Arrays: data-parallel
operations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core
from outcore.ranks.agreement import Announced, together
from outcore.ranks.collective.items import number_of
from outcore.ranks.dist import sums
from outcore.ranks.dist.base import Divided
from outcore.ranks.dist.one_sided import OneSided
from outcore.ranks.dist.products import multiply_all
from outcore.ranks.dist.redistribution import Part, bring_all
from outcore.base.distribution import Distribution, Periodic, ProcessGrid, like
from outcore.errors import UnsupportedError, UsageError

__all__ = ["WholeArrays"]


class WholeArrays(OneSided):
    """
    Operations on whole arrays; see `DistArray`, which has them.

    Examples
    --------
    >>> from outcore import DistArray, Distribution
    >>> a = DistArray.zeros(Distribution(3, ["block"], 1))
    >>> a.fill_all(2)
    >>> a.dot_all(a)
    np.float64(12.0)
    """

    def fill_all(self, value: Any) -> None:
        """
        Set all elements to one value. Every rank must call this.

        Parameters
        ----------
        value
            A scalar; cast as in NumPy's assignment.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: no scalar; or ranks gave different values, or called something
            else.

        Notes
        -----
        ``GA_Fill`` of Global Arrays. No memory.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(3, ["block"], 1), "i4")
        >>> a.fill_all(7)
        >>> a.local
        array([7, 7, 7], dtype=int32)
        """

        def check() -> None:
            _scalar(value, "value")
            np.empty(1, self.dtype)[...] = value

        def work() -> None:
            self.owned[...] = value

        self._alike("fill_all", lambda: value, check, work)

    def scale_all(self, factor: Any) -> None:
        """
        Multiply all elements by a number. Every rank must call this.

        Parameters
        ----------
        factor
            A scalar, of a kind that the elements can have; cast to their dtype.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: as `fill_all`; ``bad-cast`` or ``bad-dtype``: elements
            that cannot be multiplied by it.

        Notes
        -----
        ``GA_Scale`` of Global Arrays. No memory.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(3, ["block"], 1))
        >>> a.scale_all(0.5)
        >>> a.local
        array([0. , 0.5, 1. ])
        """
        scales: list[NDArray[Any]] = []

        def work() -> None:
            owned = self.owned
            np.multiply(owned, scales[0], out=owned)

        def check() -> None:
            scales.append(self._terms(0, factor)[1])

        self._alike("scale_all", lambda: factor, check, work)

    def copy_all(self, out: Self | None = None) -> Self:
        """
        The same elements in another array. Every rank must call this.

        Parameters
        ----------
        out
            An array of the same shape, in any distribution and of any dtype (cast as in NumPy's
            assignment). By default a new one in the same distribution, with the same ghosts, which
            are copied as well.

        Returns
        -------
        DistArray
            `out`, or the new array.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as `redistribute_all`.

        Notes
        -----
        Memory for messages as `redistribute_all`; if the dtype is another one, also the part of `out` in
        this dtype, counted in the budget. ``GA_Copy`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(4, ["block"], 1))
        >>> b = DistArray.shared_all(Distribution(4, ["cyclic"], 1), "i2")
        >>> a.copy_all(b).get(np.s_[::-1])
        array([3, 2, 1, 0], dtype=int16)
        """
        made: list[Self] = []

        def copy() -> None:
            local = self.local.copy()
            made.append(self._new(self._distribution, local, self._widths or 0, self._periodic))

        self._alike("copy_all", lambda: _meant(out), *([copy] if out is None else []))
        if out is None:
            return made[0]
        if out.dtype == self.dtype:
            bring_all(self._transport, "copy_all", self.part(), out._own_part)
            return out
        with out._brought("copy_all", self) as source:
            cast = partial(np.copyto, out.owned, source, casting="unsafe")
            self._alike("copy_all", lambda: None, cast)
        return out

    def add_all(self, other: Self, a: Any = 1, b: Any = 1, out: Self | None = None) -> Self:
        """
        ``a * self + b * other``, element by element. Every rank must call this.

        Parameters
        ----------
        other
            An array of the same shape, in any distribution.
        a, b
            Scalars.
        out
            Takes the sum: `self`, `other`, or any array of the same shape, in any distribution. By
            default a new array in the distribution of this one, of the dtype that NumPy gives to
            the sum.

        Returns
        -------
        DistArray
            `out`, or the new array.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as `redistribute_all`; with the cause, what NumPy refuses to add, or to
            put into `out` (casting ``same_kind``).

        Notes
        -----
        Besides the result ``b * other`` of this rank, and what is not in the distribution of the result
        is brought there: as large as the part of this rank, each counted in the budget. ``GA_Add`` of
        Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(4, ["block"], 1), "i4")
        >>> a.add_all(a, 2, 0.5).local
        array([0. , 2.5, 5. , 7.5])
        """
        home = self if out is None else out
        made: list[Self] = []

        def check() -> None:
            _scalar(a, "a")
            _scalar(b, "b")
            nothing = np.empty(0, self.dtype) * a + np.empty(0, other.dtype) * b
            made.append(home._made(nothing.dtype) if out is None else out)
            np.copyto(np.empty(0, made[0].dtype), nothing, casting="same_kind")

        self._alike("add_all", lambda: (_meant(other), a, b, _meant(out)), check)
        with (
            home._brought("add_all", self) as x,
            home._brought("add_all", other) as y,
        ):

            def work() -> None:
                dtype = (np.empty(0, x.dtype) * a + np.empty(0, y.dtype) * b).dtype
                with _core.Reservation("exchange", y.size * dtype.itemsize):
                    term, result = np.multiply(y, b), made[0].owned
                    if dtype == result.dtype:
                        np.add(np.multiply(x, a, out=result, casting="same_kind"), term, out=result)
                    else:
                        # Rounded once, to the type of the sum, and then to that of the result.
                        with _core.Reservation("exchange", y.size * dtype.itemsize):
                            np.copyto(result, np.multiply(x, a) + term, casting="same_kind")

            self._alike("add_all", lambda: None, work)
        return made[0]

    def map_all(
        self,
        function: Callable[..., Any],
        *others: Self,
        dtype: DTypeLike | None = None,
        out: Self | None = None,
    ) -> Self:
        """
        A function of the elements of one index, of this array and others. Every rank must call this.

        Parameters
        ----------
        function
            Gets what this rank owns of each array, all of one shape, perhaps empty; gives an array
            of that shape. A ufunc, or what works like one: an element of the result may depend on
            those of its index only.
        *others
            Arrays of the same shape, in any distribution.
        dtype
            Of the new array; by default that of what `function` gives, which must be the same on
            all ranks.
        out
            Takes the result; any of these arrays, or another one of the same shape, in any distribution.

        Returns
        -------
        DistArray
            `out`, or a new array in the distribution of this one.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as `redistribute_all`; with the cause, what `function` raises;
            ``bad-function``: it gave another shape, or something that does not fit `out` (casting
            ``same_kind``).

        Notes
        -----
        Besides the result what `function` takes, and the parts of arrays in other distributions, counted
        in the budget. ``GA_Elem_multiply`` and its like of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(4, ["block"], 1))
        >>> a.map_all(np.hypot, a).local.round(2)
        array([0.  , 1.41, 2.83, 4.24])
        """
        home = self if out is None else out
        made: list[Self] = []

        def run(operands: list[NDArray[Any]]) -> object:
            shape = home.owned.shape
            result = np.asarray(function(*operands))
            if result.shape != shape:
                raise UsageError(
                    f"the function gave an array of shape {result.shape} for elements of shape {shape};"
                    " it must give one element for each",
                    code="bad-function",
                )
            made.append(home._made(dtype or result.dtype) if out is None else out)
            np.copyto(made[0].owned, result, casting="unsafe" if dtype else "same_kind")
            return result.dtype

        def meaning() -> object:
            return [*map(_meant, others), _meant(out), dtype and np.dtype(dtype)]

        self._alike("map_all", meaning)
        with home._all_brought("map_all", (self, *others)) as operands:
            self._alike("map_all", lambda: None, partial(run, operands))
        return made[0]

    def dot_all(self, other: Self) -> Any:
        """
        The sum of the products of all elements of one index. Every rank must call this.

        Parameters
        ----------
        other
            An array of the same shape, in any distribution.

        Returns
        -------
        scalar
            Of the dtype that NumPy gives to products: on all ranks the same bits, for every number
            of ranks and every distribution. Integers wrap around as in NumPy; complex numbers are
            not conjugated.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as `redistribute_all`; with the cause ``bad-dtype``: elements that are no
            numbers, or more than 2**44 of them.

        Notes
        -----
        Floating-point products are added exactly above 80 bits below the largest one (`sums`), which
        takes two passes over the elements, and memory for 32768 of them at a time, a few times. An array
        in another distribution is brought into this one's: as large as the part of this rank, counted in
        the budget. ``GA_Dot`` of Global Arrays; Demmel and Nguyen, *Fast Reproducible Floating-Point
        Summation*.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     turns = Distribution(9, ["cyclic"], comm.size)
        ...     a = DistArray.from_function(lambda i: 0.1 * i, turns, transport=comm)
        ...     return float(a.dot_all(a))
        >>> set(SimWorld(1).run(work) + SimWorld(3).run(work))
        {2.0400000000000005}
        """
        self._alike("dot_all", lambda: _meant(other))
        with self._brought("dot_all", other) as y:
            return self._dot(self.owned, y, np.result_type(self.dtype, other.dtype))

    def _dot(self, x: NDArray[Any], y: NDArray[Any], dtype: np.dtype[Any]) -> Any:
        group, call = self._transport, "DistArray.dot_all"
        counts = self._distribution.core.is_owner(self.rank)
        x, y = (x, y) if counts else (x.reshape(-1)[:0], y.reshape(-1)[:0])
        found: list[Any] = []

        def begin() -> list[int]:
            if dtype.kind not in "biufc" or self.size >= 2**44:
                raise UnsupportedError(
                    f"{self.size} elements of {dtype} cannot be multiplied and added; use at most 2**44 "
                    "numbers",
                    code="bad-dtype",
                )
            numbers = [number_of(repr((self._meaning(), dtype)))]
            if dtype.kind in "fc":
                found.append(np.result_type(dtype, np.float64))
                return numbers + [n for one in sums.look(x, y, found[0]) for n in one]
            # Bits of integers do not depend on the order.
            added = np.zeros((), dtype)
            for a, b in sums.blocks(x, y, dtype):
                np.add(added, np.vdot(a, b), out=added)
            found.append(added)
            return numbers

        def tell() -> str:
            return f"{call} of {self.shape}, {dtype}"

        records = together(group, call, begin, tell, same=1)
        if dtype.kind in "fc":
            work = found[0]
            looked = []
            for k in range(sums.components(work)):
                tops, flags = records.setting(1 + 2 * k), records.setting(2 + 2 * k)
                looked.append((max(tops), int(np.bitwise_or.reduce(flags))))

            def add() -> list[int]:
                found.append(sums.fold(x, y, work, looked, self.size))
                return []

            together(group, call, add, tell, same=0)
            lengths = [len(one) for one in found[1]]
            with Announced(group, call):
                texts = group.allgather_bytes(np.concatenate(found[1]).tobytes())
            real = found[1][0].dtype
            rows = [np.split(np.frombuffer(t, real), np.cumsum(lengths)[:-1]) for t in texts]
            with np.errstate(all="ignore"):
                return sums.total(rows, work, looked, self.size).astype(dtype)
        with Announced(group, call):
            texts = group.allgather_bytes(found[0].tobytes())
        values = np.frombuffer(b"".join(texts), dtype)
        return values.any() if dtype.kind == "b" else np.add.reduce(values, dtype=dtype)

    def matmul_all(
        self, other: Self, *, distribution: Distribution | None = None, out: Self | None = None
    ) -> Self:
        """
        The matrix product ``self @ other``. Every rank must call this.

        Parameters
        ----------
        other
            Both have two axes; the second axis of this one is as long as the first of `other`.
        distribution
            Of the new array; by default blocks on a grid of ranks as square as can be.
        out
            Takes the product instead; not one of the factors, nor their memory.

        Returns
        -------
        DistArray
            `out`, or a new array of the dtype that NumPy gives to the product.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as `redistribute_all`; with the cause ``bad-shape``, ``bad-out``, what NumPy
            refuses to multiply or to put into `out` (casting ``same_kind``), or `BudgetError`: no room
            for one index of the inner axis. What `out` has when a rank failed in the middle is
            undefined.

        Notes
        -----
        SUMMA: each rank is brought the rows of this array and the columns of `other` that its part of
        the product needs, unless it has them, panel by panel of the inner axis, and adds their product.
        With ``p x q`` ranks all panels together are a ``p``-th of this array and a ``q``-th of `other`.
        Those of one time take a quarter of what is free of the memory budget and 256 MiB at most, so
        small factors come at once; with more panels, 16 MiB at most for a tile of the product.
        Factors of another dtype than the product are cast in there, and a product that `out` has in
        another dtype is summed beside it: as large as the part of this rank. All of it is counted in
        the budget. Messages as `redistribute_all`.

        Integers wrap around as in NumPy. The bits of floating-point numbers are those of the BLAS,
        which depend on the shape of the parts, and on the number of panels. ``float16`` is summed in
        ``float32`` and rounded once.

        ``GA_Dgemm`` of Global Arrays, for any dtype; larger products are those of `outcore.matmul`.
        van de Geijn and Watts, *SUMMA: Scalable Universal Matrix Multiplication Algorithm*; Nieplocha
        and Foster, *Disk Resident Arrays*, section 5.2.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i, j: i + j, Distribution((2, 3), ["block", "*"], 1))
        >>> a.matmul_all(a.transpose_all()).local
        array([[ 5.,  8.],
               [ 8., 14.]])
        """
        made: list[Self] = []
        dtypes: list[np.dtype[Any]] = []

        def check() -> None:
            if self.ndim != 2 or other.ndim != 2 or self.shape[1] != other.shape[0]:
                raise UsageError(
                    f"a product of arrays of shapes {self.shape} and {other.shape}; both need two "
                    "axes, and the second of the first is as long as the first of the second",
                    code="bad-shape",
                )
            shape = (self.shape[0], other.shape[1])
            none = np.matmul(np.empty((0, 0), self.dtype), np.empty((0, 0), other.dtype))
            dtypes.append(none.dtype)
            if out is None:
                how = distribution or Distribution(
                    shape, ["block", "block"], ProcessGrid(size=self._transport.size, ndim=2)
                )
                made.append(self._new(how, np.empty(how.local_shape(self.rank), none.dtype)))
                return
            if out.shape != shape or any(
                out is one or np.may_share_memory(out.local, one.local) for one in (self, other)
            ):
                raise UsageError(
                    f"out= of shape {out.shape} for a product of shape {shape}; give an array of that "
                    "shape, with other memory than the factors",
                    code="bad-out",
                )
            np.copyto(np.empty((0, 0), out.dtype), none, casting="same_kind")
            made.append(out)

        self._alike("matmul_all", lambda: (_meant(other), str(distribution), _meant(out)), check)
        with Announced(self._transport, "matmul_all"):
            multiply_all(self, other, made[0], dtypes[0])
        return made[0]

    def transpose_all(
        self, axes: Sequence[int] | None = None, *, distribution: Distribution | None = None
    ) -> Self:
        """
        The array with its axes in another order. Every rank must call this.

        Parameters
        ----------
        axes
            As for `numpy.transpose`; by default they are reversed.
        distribution
            Of the new array; by default each axis stays divided as it is, so nothing travels.

        Returns
        -------
        DistArray
            A new array, without ghosts.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as `redistribute_all`; with the cause ``bad-axis``: no order of the axes.

        Notes
        -----
        Memory for messages as `redistribute_all`. ``GA_Transpose`` of Global Arrays.

        Examples
        --------
        >>> from outcore import DistArray, Distribution
        >>> rows = Distribution((2, 3), ["block", "*"], 1)
        >>> a = DistArray.from_function(lambda i, j: 10 * i + j, rows, "i4")
        >>> a.transpose_all().local.tolist()
        [[0, 10], [1, 11], [2, 12]]
        """
        turned: list[Self] = []

        def turn() -> None:
            order = list(range(self.ndim))[::-1] if axes is None else [int(axis) for axis in axes]
            order = [axis + self.ndim if axis < 0 else axis for axis in order]
            if sorted(order) != list(range(self.ndim)):
                raise UsageError(
                    f"axes {axes} of an array of {self.ndim}; give each axis once", code="bad-axis"
                )
            shape = tuple(self.shape[axis] for axis in order)
            how = like(self._distribution, list(order), shape)
            turned.append(self._new(how, self.owned.transpose(order)))

        self._alike("transpose_all", lambda: axes, turn)
        how = distribution or turned[0]._distribution
        return turned[0]._bring_all("transpose_all", partial(self._empty, how))

    # ---------------------------------------------------------------------------------- parts

    def _new(
        self,
        distribution: Distribution,
        local: NDArray[Any],
        ghosts: Any = 0,
        periodic: Periodic = False,
    ) -> Self:
        how: dict[str, Any] = {"ghosts": ghosts, "periodic": periodic}
        return type(self)(distribution, local, transport=self._transport, **how)

    def _empty(self, distribution: Distribution, dtype: DTypeLike | None = None) -> Self:
        local = np.empty(distribution.local_shape(self.rank), dtype or self.dtype)
        return self._new(distribution, local)

    def _made(self, dtype: DTypeLike) -> Self:
        """A new array like this one, without ghosts."""
        return self._empty(self._distribution, dtype)

    def _own_part(self) -> Part:
        """What this array wants of another one: no ghosts."""
        return Part(self._distribution, [], self.owned)

    def _meaning(self) -> tuple[object, ...]:
        return self.shape, self.dtype, str(self._distribution)

    @contextmanager
    def _brought(self, name: str, other: Divided) -> Iterator[NDArray[Any]]:
        """What this rank owns of this array, of another one: brought here if it is elsewhere."""
        if other._distribution == self._distribution:
            yield other.owned
            return
        with other._sent_to(name, self._distribution) as owned:  # type: ignore[attr-defined]
            yield owned

    @contextmanager
    def _all_brought(self, name: str, others: Sequence[Divided]) -> Iterator[list[NDArray[Any]]]:
        if not others:
            yield []
            return
        with (
            self._brought(name, others[0]) as first,
            self._all_brought(name, others[1:]) as rest,
        ):
            yield [first, *rest]

    @contextmanager
    def _sent_to(self, name: str, distribution: Distribution) -> Iterator[NDArray[Any]]:
        """Elements of this array in another distribution, for a while."""
        if distribution == self._distribution:
            yield self.owned
            return
        held: list[_core.Reservation] = []

        def make() -> WholeArrays:
            shape = distribution.local_shape(self.rank)
            count = int(np.prod(shape, dtype=object))
            held.append(_core.Reservation("exchange", count * self.dtype.itemsize))
            return self._empty(distribution)

        try:
            yield self._bring_all(name, make).owned
        finally:
            for one in held:
                one.release()

    def _alike(
        self,
        name: str,
        meaning: Callable[[], object],
        *steps: Callable[[], object],
    ) -> None:
        """
        Do something on each rank, with equal arguments; all return, or all raise.

        After each step all ranks agree that none has failed, that all mean the same, and that what the
        step gave is equal: so the first one may check what the second one changes.
        """
        said: list[object] = []

        def tell() -> str:
            return f"DistArray.{name} of {self._meaning()} with {said[0]!r}, which gave {said[1:]!r}"

        for step in steps or (lambda: None,):

            def numbers(step: Callable[[], object] = step) -> list[int]:
                said[:] = [meaning()]
                said.append(step())
                return [number_of(repr((self._meaning(), said)))]

            together(self._transport, f"DistArray.{name}", numbers, tell, same=1)


def _meant(one: Any) -> object:
    """Of an array that is an argument what is equal on all ranks; None of None."""
    if one is None or isinstance(one, WholeArrays):
        return None if one is None else one._meaning()
    raise UsageError(
        f"{one!r} is no DistArray; make one of it, with DistArray.from_function, or pass a number where "
        "the call takes one",
        code="bad-value",
    )


def _scalar(value: Any, name: str) -> None:
    if np.ndim(value):
        raise UsageError(f"{name} of shape {np.shape(value)}; give a number", code="bad-value")
