"""
Operations on whole distributed arrays: fill, copy, scale, add, dot, map, matmul, transpose.

Problem. Programs compute with whole arrays between their phases, and the operands may have different
distributions. Approach. All elements with the same index are brought to one rank (`redistribution`). The
rest is NumPy on the elements that a rank owns.

Invariants. Every rank calls these methods with equal arguments. A failure on one rank is a failure on
all. The value of an element does not depend on the rank that computes it: results have the same bits for
every distribution and number of ranks, except those of `matmul_all`. Ghosts keep their values. When a
call returns, all ranks have written their results.

Reference: Nieplocha, Foster, *Disk Resident Arrays*, section 2 (Global Arrays: data-parallel
operations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcore import _core
from outcore.base.distribution import Distribution, Periodic, ProcessGrid, divide_like
from outcore.errors import UnsupportedError, UsageError
from outcore.ranks.dist import sums
from outcore.ranks.dist.one_sided import OneSided
from outcore.ranks.dist.products import multiply_all
from outcore.ranks.dist.redistribution import RankPart, bring_all

__all__ = ["WholeArrays"]


class WholeArrays(OneSided):
    """
    Operations on whole arrays, part of `DistArray`.

    Examples
    --------
    >>> from outcore.mpi import DistArray, Distribution
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
            Scalar, cast as in an assignment of NumPy.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause, if `value` is not a scalar; or if ranks gave different values
            or made different calls.

        Notes
        -----
        ``GA_Fill`` of Global Arrays. Needs no memory.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.zeros(Distribution(3, ["block"], 1), "i4")
        >>> a.fill_all(7)
        >>> a.local
        array([7, 7, 7], dtype=int32)
        """

        def check() -> None:
            _check_scalar(value, "value")
            np.empty(1, self.dtype)[...] = value

        def work() -> None:
            self.owned[...] = value

        self._run_steps("fill_all", lambda: value, check, work)

    def scale_all(self, factor: Any) -> None:
        """
        Multiply all elements by a number. Every rank must call this.

        Parameters
        ----------
        factor
            Scalar of a kind that the dtype can hold, cast to the dtype of the elements.

        Raises
        ------
        CollectiveError
            On all ranks, with the cause: as for `fill_all`; ``bad-cast`` or ``bad-dtype`` if the
            elements cannot be multiplied by it.

        Notes
        -----
        ``GA_Scale`` of Global Arrays. Needs no memory.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
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
            scales.append(self._prepare_terms(0, factor)[1])

        self._run_steps("scale_all", lambda: factor, check, work)

    def copy_all(self, out: Self | None = None) -> Self:
        """
        Copy the elements into another array. Every rank must call this.

        Parameters
        ----------
        out
            Array of the same shape, in any distribution and of any dtype (cast as in an assignment of
            NumPy). By default a new array with the same distribution and ghosts; the ghosts are copied
            as well.

        Returns
        -------
        DistArray
            `out`, or the new array.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as for `redistribute_all`.

        Notes
        -----
        Message buffers as for `redistribute_all`. If the dtypes differ, also the part of `out` in this
        dtype, which counts in the budget. ``GA_Copy`` of Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(4, ["block"], 1))
        >>> b = DistArray.shared_all(Distribution(4, ["cyclic"], 1), "i2")
        >>> a.copy_all(b).get(np.s_[::-1])
        array([3, 2, 1, 0], dtype=int16)
        """
        made: list[Self] = []

        def copy() -> None:
            local = self.local.copy()
            made.append(self._make(self._distribution, local, self._widths or 0, self._periodic))

        self._run_steps(
            "copy_all", lambda: _describe_argument(out), *([copy] if out is None else [])
        )
        if out is None:
            return made[0]
        if out.dtype == self.dtype:
            bring_all(
                self._transport,
                "copy_all",
                self.part(),
                lambda: RankPart(out._distribution, [], out.owned),
            )
            return out
        with self._bring_to("copy_all", out._distribution) as source:
            cast = partial(np.copyto, out.owned, source, casting="unsafe")
            self._run_steps("copy_all", lambda: None, cast)
        return out

    def add_all(self, other: Self, a: Any = 1, b: Any = 1, out: Self | None = None) -> Self:
        """
        Compute ``a * self + b * other`` element by element. Every rank must call this.

        Parameters
        ----------
        other
            Array of the same shape, in any distribution.
        a, b
            Scalar factors.
        out
            Array for the sum: `self`, `other`, or any array of the same shape, in any distribution. By
            default a new array in the distribution of this one, with NumPy's dtype of the sum.

        Returns
        -------
        DistArray
            `out`, or the new array.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as for `redistribute_all`; or with the cause, if NumPy cannot add the operands
            or cast the sum to `out` (casting ``same_kind``).

        Notes
        -----
        Memory in addition to the result: ``b * other`` of this rank, and operands that must be brought
        into the distribution of the result. Each is as large as the part of this rank and counts in the
        budget. ``GA_Add`` of Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> a = DistArray.from_function(lambda i: i, Distribution(4, ["block"], 1), "i4")
        >>> a.add_all(a, 2, 0.5).local
        array([0. , 2.5, 5. , 7.5])
        """
        home = self if out is None else out
        made: list[Self] = []

        def check() -> None:
            _check_scalar(a, "a")
            _check_scalar(b, "b")
            nothing = np.empty(0, self.dtype) * a + np.empty(0, other.dtype) * b
            made.append(home._make_empty(home._distribution, nothing.dtype) if out is None else out)
            np.copyto(np.empty(0, made[0].dtype), nothing, casting="same_kind")

        self._run_steps(
            "add_all", lambda: (_describe_argument(other), a, b, _describe_argument(out)), check
        )
        with (
            self._bring_to("add_all", home._distribution) as x,
            other._bring_to("add_all", home._distribution) as y,
        ):

            def work() -> None:
                dtype = (np.empty(0, x.dtype) * a + np.empty(0, y.dtype) * b).dtype
                with _core.Reservation("exchange", y.size * dtype.itemsize):
                    term, result = np.multiply(y, b), made[0].owned
                    if dtype == result.dtype:
                        np.add(np.multiply(x, a, out=result, casting="same_kind"), term, out=result)
                    else:
                        # Round once to the type of the sum, then to that of the result.
                        with _core.Reservation("exchange", y.size * dtype.itemsize):
                            np.copyto(result, np.multiply(x, a) + term, casting="same_kind")

            self._run_steps("add_all", lambda: None, work)
        return made[0]

    def map_all(
        self,
        function: Callable[..., Any],
        *others: Self,
        dtype: DTypeLike | None = None,
        out: Self | None = None,
    ) -> Self:
        """
        Apply a function to this array and others, element by element. Every rank must call this.

        Parameters
        ----------
        function
            Function of the elements that this rank owns of each array: arrays of one shape, possibly
            empty. It returns an array of that shape. A ufunc or equivalent: an element of the result may
            depend only on elements with the same index.
        *others
            Arrays of the same shape, in any distribution.
        dtype
            Type of the new array; by default that of the result of `function`, which must be the same on
            all ranks.
        out
            Array for the result: any of these arrays, or another one of the same shape, in any
            distribution. By default a new array.

        Returns
        -------
        DistArray
            `out`, or a new array in the distribution of this one.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as for `redistribute_all`; or with the cause: an error of `function`, or
            ``bad-function`` if its result has another shape or cannot be cast to `out` (casting
            ``same_kind``).

        Notes
        -----
        Memory in addition to the result: what `function` needs, and the parts of arrays in other
        distributions, which count in the budget. ``GA_Elem_multiply`` and similar functions of Global
        Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
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
                    f"the function returned an array of shape {result.shape} for elements of shape "
                    f"{shape}; return one element for each",
                    code="bad-function",
                )
            made.append(
                home._make_empty(home._distribution, dtype or result.dtype) if out is None else out
            )
            np.copyto(made[0].owned, result, casting="unsafe" if dtype else "same_kind")
            return result.dtype

        def meaning() -> object:
            return [
                *map(_describe_argument, others),
                _describe_argument(out),
                dtype and np.dtype(dtype),
            ]

        self._run_steps("map_all", meaning)
        with ExitStack() as stack:
            sent = (one._bring_to("map_all", home._distribution) for one in (self, *others))
            operands = [stack.enter_context(elements) for elements in sent]
            self._run_steps("map_all", lambda: None, partial(run, operands))
        return made[0]

    def dot_all(self, other: Self) -> Any:
        """
        Sum the products of all elements with the same index. Every rank must call this.

        Parameters
        ----------
        other
            Array of the same shape, in any distribution.

        Returns
        -------
        scalar
            Sum with NumPy's dtype of the product. It has the same bits on all ranks, for every number of
            ranks and every distribution. Integers wrap around as in NumPy; complex numbers are not
            conjugated.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as for `redistribute_all`; or with the cause ``bad-dtype`` if the elements are
            not numbers, or there are more than 2**44 of them.

        Notes
        -----
        Floating-point products are summed exactly down to 80 bits below the largest one (`sums`). This
        needs two passes over the elements, and memory for a few times 32768 elements. An array in
        another distribution is brought into that of this array, which needs as much memory as the part
        of this rank, counted in the budget.

        ``GA_Dot`` of Global Arrays; Demmel and Nguyen, *Fast Reproducible Floating-Point Summation*.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
        >>> from outcore.testing.sim import SimWorld
        >>> def work(comm):
        ...     turns = Distribution(9, ["cyclic"], comm.size)
        ...     a = DistArray.from_function(lambda i: 0.1 * i, turns, transport=comm)
        ...     return float(a.dot_all(a))
        >>> set(SimWorld(1).run(work) + SimWorld(3).run(work))
        {2.0400000000000005}
        """
        self._run_steps("dot_all", lambda: _describe_argument(other))
        with other._bring_to("dot_all", self._distribution) as y:
            return self._dot(self.owned, y, np.result_type(self.dtype, other.dtype))

    def _dot(self, x: NDArray[Any], y: NDArray[Any], dtype: np.dtype[Any]) -> Any:
        ranks = self._make_ranks("dot_all")
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
            if dtype.kind in "fc":
                found.append(np.result_type(dtype, np.float64))
                return [n for one in sums.measure_products(x, y, found[0]) for n in one]
            # Integer sums do not depend on the order.
            added = np.zeros((), dtype)
            for a, b in sums.iterate_blocks(x, y, dtype):
                np.add(added, np.vdot(a, b), out=added)
            found.append(added)
            return []

        def tell() -> str:
            return f"{ranks.call} of {self.shape}, {dtype}"

        records = ranks.gather_numbers(begin, tell, meaning=lambda: (self._get_meaning(), dtype))
        if dtype.kind in "fc":
            work = found[0]
            looked = []
            for k in range(sums.count_components(work)):
                tops, flags = records.setting(2 * k), records.setting(2 * k + 1)
                looked.append((max(tops), int(np.bitwise_or.reduce(flags))))

            def add() -> None:
                found.append(sums.sum_above_cuts(x, y, work, looked, self.size))

            ranks.gather_numbers(add, tell)
            lengths = [len(one) for one in found[1]]
            texts = ranks.gather_bytes(np.concatenate(found[1]).tobytes())
            real = found[1][0].dtype
            rows = [np.split(np.frombuffer(t, real), np.cumsum(lengths)[:-1]) for t in texts]
            with np.errstate(all="ignore"):
                return sums.combine_sums(rows, work, looked, self.size).astype(dtype)
        values = np.frombuffer(b"".join(ranks.gather_bytes(found[0].tobytes())), dtype)
        return values.any() if dtype.kind == "b" else np.add.reduce(values, dtype=dtype)

    def matmul_all(
        self, other: Self, *, distribution: Distribution | None = None, out: Self | None = None
    ) -> Self:
        """
        Compute the matrix product ``self @ other``. Every rank must call this.

        Parameters
        ----------
        other
            Second factor. Both have two axes; the second axis of this array is as long as the first axis
            of `other`.
        distribution
            Distribution of the new array; by default blocks on a grid of ranks that is as square as
            possible.
        out
            Array for the product, with memory other than that of the factors. By default a new array.

        Returns
        -------
        DistArray
            `out`, or a new array with NumPy's dtype of the product.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks: as for `redistribute_all`; or with the cause: ``bad-shape``, ``bad-out``, an
            error of NumPy in multiplying or in casting to `out` (casting ``same_kind``), or
            `BudgetError` if there is no space for one index of the inner axis. The contents of `out` are
            undefined if a rank failed during the computation.

        Notes
        -----
        SUMMA: for its part of the product, each rank receives the rows of this array and the columns of
        `other` that it does not have, panel by panel of the inner axis, and adds the products of the
        panels. With ``p x q`` ranks, all panels together are a ``p``-th of this array and a ``q``-th of
        `other`.

        Panels in memory use a quarter of the free memory budget, at most 256 MiB, so small factors need
        only one panel. With several panels, a tile of the product needs at most 16 MiB more. Factors
        with another dtype than the product are cast within this memory. If `out` has another dtype, the
        product is summed in a separate array as large as the part of this rank. All of this counts in
        the budget. Message buffers as for `redistribute_all`.

        Integers wrap around as in NumPy. The bits of floating-point results are those of the BLAS, which
        depend on the shapes of the parts, and on the number of panels. ``float16`` is summed in
        ``float32`` and rounded once.

        ``GA_Dgemm`` of Global Arrays, for any dtype. For larger products see `outcore.matmul`. van de
        Geijn and Watts, *SUMMA: Scalable Universal Matrix Multiplication Algorithm*; Nieplocha and
        Foster, *Disk Resident Arrays*, section 5.2.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
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
                    f"arrays of shapes {self.shape} and {other.shape} cannot be multiplied; pass two "
                    "matrices, the second with as many rows as the first has columns",
                    code="bad-shape",
                )
            shape = (self.shape[0], other.shape[1])
            none = np.matmul(np.empty((0, 0), self.dtype), np.empty((0, 0), other.dtype))
            dtypes.append(none.dtype)
            if out is None:
                how = distribution or Distribution(
                    shape, ["block", "block"], ProcessGrid(size=self._transport.size, ndim=2)
                )
                made.append(self._make(how, np.empty(how.local_shape(self.rank), none.dtype)))
                return
            if out.shape != shape or any(
                out is one or np.may_share_memory(out.local, one.local) for one in (self, other)
            ):
                raise UsageError(
                    f"out= has shape {out.shape}, but the product has {shape}; pass an array of that "
                    "shape, whose memory is not that of a factor",
                    code="bad-out",
                )
            np.copyto(np.empty((0, 0), out.dtype), none, casting="same_kind")
            made.append(out)

        self._run_steps(
            "matmul_all",
            lambda: (_describe_argument(other), str(distribution), _describe_argument(out)),
            check,
        )
        with self._make_ranks("matmul_all").raise_on_all():
            multiply_all(self, other, made[0], dtypes[0])
        return made[0]

    def transpose_all(
        self, axes: Sequence[int] | None = None, *, distribution: Distribution | None = None
    ) -> Self:
        """
        Return a copy of the array with its axes in another order. Every rank must call this.

        Parameters
        ----------
        axes
            Order of the axes, as for `numpy.transpose`; by default reversed.
        distribution
            Distribution of the new array; by default each axis keeps its distribution, so nothing is
            sent.

        Returns
        -------
        DistArray
            A new array, without ghosts.

        Raises
        ------
        DistributionError, CollectiveError
            On all ranks, as for `redistribute_all`; or with the cause ``bad-axis`` if `axes` is not a
            permutation of the axes.

        Notes
        -----
        Message buffers as for `redistribute_all`. ``GA_Transpose`` of Global Arrays.

        Examples
        --------
        >>> from outcore.mpi import DistArray, Distribution
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
                    f"axes {axes} are not a permutation of the {self.ndim} axes; pass each axis once",
                    code="bad-axis",
                )
            shape = tuple(self.shape[axis] for axis in order)
            how = divide_like(self._distribution, list(order), shape)
            turned.append(self._make(how, self.owned.transpose(order)))

        self._run_steps("transpose_all", lambda: axes, turn)
        how = distribution or turned[0]._distribution
        return turned[0]._bring_all("transpose_all", partial(self._make_empty, how))

    # ---------------------------------------------------------------------------------- parts

    def _make(
        self,
        distribution: Distribution,
        local: NDArray[Any],
        ghosts: Any = 0,
        periodic: Periodic = False,
    ) -> Self:
        group = self._transport
        return type(self)(distribution, local, transport=group, ghosts=ghosts, periodic=periodic)

    def _make_empty(self, distribution: Distribution, dtype: DTypeLike | None = None) -> Self:
        return self.empty(distribution, dtype or self.dtype, transport=self._transport)

    def _get_meaning(self) -> tuple[object, ...]:
        return self.shape, self.dtype, str(self._distribution)

    @contextmanager
    def _bring_to(self, name: str, distribution: Distribution) -> Iterator[NDArray[Any]]:
        """Yield the elements of this array in another distribution, temporarily."""
        if distribution == self._distribution:
            yield self.owned
            return
        with ExitStack() as held:

            def make() -> WholeArrays:
                shape = distribution.local_shape(self.rank)
                count = int(np.prod(shape, dtype=object))
                held.enter_context(_core.Reservation("exchange", count * self.dtype.itemsize))
                return self._make_empty(distribution)

            yield self._bring_all(name, make).owned

    def _run_steps(
        self,
        name: str,
        meaning: Callable[[], object],
        *steps: Callable[[], object],
    ) -> None:
        """
        Run the steps of an operation on each rank with equal arguments; all ranks return, or all raise.

        After each step the ranks agree that none has failed and that arguments and results are equal. A
        step may therefore check what the next one changes.
        """
        said: list[object] = []

        def tell() -> str:
            return f"DistArray.{name} of {self._get_meaning()} with {said[0]!r}, which gave {said[1:]!r}"

        for step in steps or (lambda: None,):

            def run(step: Callable[[], object] = step) -> None:
                said[:] = [meaning()]
                said.append(step())

            self._make_ranks(name).gather_numbers(
                run, tell, meaning=lambda: (self._get_meaning(), said)
            )


def _describe_argument(one: Any) -> object:
    """Return what must be equal on all ranks for an array argument; None for None."""
    if one is None or isinstance(one, WholeArrays):
        return None if one is None else one._get_meaning()
    raise UsageError(
        f"{one!r} is not a DistArray; make one with DistArray.from_function, or pass a number "
        "where the call accepts one",
        code="bad-value",
    )


def _check_scalar(value: Any, name: str) -> None:
    if np.ndim(value):
        raise UsageError(f"{name} has shape {np.shape(value)}; pass a number", code="bad-value")
