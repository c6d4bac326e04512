"""
What a reduction's result is made of.

Problem. NumPy says which dtype a result has, what it is of no elements, and when there is a warning.
Idea. One pass (`outcore.ooc.reduce.reducing`) of the kernels that `outcore.ooc.reduce.chains` names.
What comes out of them becomes NumPy's result here: divided, rounded, of NumPy's dtype, with NumPy's
warnings.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file, the
budget and the number of threads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.errors import UsageError
from outcore.jobs import Operation, Result, Source, complete, opened
from outcore.ooc.reduce import chains
from outcore.ooc.reduce.kernel import Chain, Finish
from outcore.ooc.reduce.reducing import constant, reducing

__all__ = [
    "Quantity",
    "extreme",
    "mean_of",
    "name_of",
    "one_axis",
    "place_of",
    "reduced",
    "spread_of",
    "sum_of",
    "truth_of",
]

_I8, _F8, _BOOL = np.dtype("i8"), np.dtype("f8"), np.dtype("?")
Planes = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Quantity:
    """
    One result: what it is made of, and how.

    Parameters
    ----------
    chains
        The reductions that it needs.
    dtype
        Of the result.
    finish
        From the planes of its chains to the result, for some outputs.
    empty
        What it is where there are no elements; None: there is no such thing.
    """

    chains: Sequence[Chain]
    dtype: np.dtype[Any]
    finish: Callable[[Sequence[Planes], NDArray[Any]], None]
    empty: Callable[[], Any] | None


#: From dtype, lengths of the reduced axes (the last one first) and their product to what is wanted.
Make = Callable[[np.dtype[Any], Sequence[int], int], Quantity]


def reduced(
    name: str,
    sources: Sequence[Source],
    axis: Any,
    makes: Sequence[Make],
    out: Any,
    how: dict[str, Any],
    *,
    keepdims: bool = False,
    **words: Any,
) -> Any:
    """
    Reduce an array, or several that lie alike, in one pass.

    Parameters
    ----------
    name
        Of the operation.
    sources
        The inputs.
    axis
        As NumPy has it.
    makes
        What is wanted; several results share the pass.
    out, how
        See `outcore.jobs.complete`.
    keepdims
        Reduced axes stay, with length 1.
    words
        What else the user said, for whoever repeats the call.
    """
    with opened(*sources) as inputs:
        shape = tuple(inputs[0].shape)
        axes = chains.axes_of(name, axis, len(shape))
        dtypes = [chains.supported(name, one.dtype) for one in inputs]
        dtype = np.result_type(*dtypes)
        lengths = [shape[k] for k in reversed(axes)] or [1]
        count = math.prod(lengths)
        wanted = [make(dtype, lengths, count) for make in makes]
        there = tuple(
            1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
        )
        results = tuple(
            Result(there, one.dtype, source=inputs[0].path, small=True) for one in wanted
        )
        kinds_of = [one.dtype for one in wanted]
        if math.prod(shape):
            all_chains = [chain for one in wanted for chain in one.chains]
            plan = reducing(
                name,
                shape,
                axes,
                [one.dtype for one in inputs],
                all_chains,
                kinds_of,
                _finish(wanted),
                keepdims=keepdims,
            )
        else:
            # There are no results, if there would be elements for each; or they are of no elements.
            values = _empty(name, axes, wanted) if not count else lambda: [0] * len(wanted)
            plan = constant(name, there, len(inputs), kinds_of, values)
        arguments: dict[str, Any] = (
            {} if axis is None else {"axis": axes[0] if len(axes) == 1 else axes}
        )
        arguments |= {"keepdims": True} if keepdims else {}
        arguments |= {key: value for key, value in words.items() if value is not None}
        operation = Operation(name, tuple(inputs), results, plan, arguments)
        done = complete(operation, out, how)
    return _scalars(done)


def one_axis(axis: Any, name: str) -> None:
    """Refuse several axes."""
    if isinstance(axis, tuple):
        raise UsageError(
            f"{name}: axis={axis!r} are several; give one, or None for all of them", code="bad-axis"
        )


def name_of(dtype: Any) -> str | None:
    """A dtype that the user named, as text."""
    return None if dtype is None else np.dtype(dtype).str


def _scalars(done: Any) -> Any:
    if isinstance(done, tuple):
        return tuple(_scalars(one) for one in done)
    return done[()] if isinstance(done, np.ndarray) and done.ndim == 0 else done


def _finish(wanted: Sequence[Quantity]) -> Finish:
    def finish(planes: Sequence[Planes], outs: Sequence[NDArray[Any]]) -> None:
        first = 0
        for one, out in zip(wanted, outs, strict=True):
            last = first + len(one.chains)
            # NumPy's warnings are given where they belong.
            with np.errstate(all="ignore"):
                one.finish(planes[first:last], out)
            first = last

    return finish


def _empty(
    name: str, axes: Sequence[int], wanted: Sequence[Quantity]
) -> Callable[[], Sequence[Any]]:
    found: list[Callable[[], Any]] = []
    for one in wanted:
        if one.empty is None:
            raise UsageError(
                f"{name} of no elements: of axes {tuple(axes)} one has length 0, and there is nothing "
                "that it could be. Reduce axes that have elements",
                code="empty-reduction",
            )
        found.append(one.empty)
    return lambda: [one() for one in found]


def _to(out: NDArray[Any], values: NDArray[Any]) -> None:
    np.copyto(out, values, casting="unsafe")


def _total(planes: Planes, to: np.dtype[Any]) -> NDArray[Any]:
    """The values of a first plane; those of complex numbers are two each."""
    total = planes[0]
    return total.view(f"c{2 * total.dtype.itemsize}") if to.kind == "c" else total


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def sum_of(what: str, wanted: Any = None) -> Make:
    """``sum``, ``prod``, ``nansum`` or ``nanprod``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to, nan = chains.accumulated(dtype, wanted), what.startswith("nan")
        kind = chains.sums if what.endswith("sum") else chains.products
        chain = kind(dtype, to, lengths, nan=nan)

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            _to(out, _total(planes[0], to))

        return Quantity([chain], to, finish, lambda: int(what.endswith("prod")))

    return make


def mean_of(wanted: Any = None, *, nan: bool = False) -> Make:
    """``mean`` or ``nanmean``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to = _F8 if dtype.kind in "biu" else dtype
        if wanted is not None:
            to = chains.supported("a mean", np.dtype(wanted), "iufc")

        def empty() -> Any:
            _warn("Mean of empty slice")
            return np.nan

        if nan and dtype.kind in "fc":
            sums, counts = chains.sums(dtype, to, lengths, nan=True), chains.numbers(dtype, lengths)

            def finish_nan(planes: Sequence[Planes], out: NDArray[Any]) -> None:
                total, found = _total(planes[0], to), planes[1][0]
                if not found.all():
                    _warn("Mean of empty slice")
                _to(out, np.true_divide(total, found.astype(total.dtype)))

            return Quantity([sums, counts], to, finish_nan, empty)
        chain = chains.totals(dtype, to, lengths, count)

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            _to(out, np.true_divide(_total(planes[0], to), count))

        return Quantity([chain], to, finish, empty)

    return make


def spread_of(what: str, ddof: float = 0, wanted: Any = None) -> Make:
    """``var``, ``std``, ``nanvar`` or ``nanstd``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to = _F8 if dtype.kind in "biu" else dtype
        if wanted is not None:
            to = chains.supported(what, np.dtype(wanted), "fc")
        if to.kind == "c":
            to = np.dtype(f"f{to.itemsize // 2}")
        nan = what.startswith("nan") and dtype.kind in "fc"
        text = "Degrees of freedom <= 0" + (" for slice." if nan else " for slice")

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            counts, _, squares = planes[0]
            if dtype.kind == "c":
                counts, squares = counts[::2], squares[::2] + squares[1::2]
            free = counts - ddof
            if (free <= 0).any():
                _warn(text)
                free = np.where(free <= 0, np.nan, free) if nan else np.maximum(free, 0)
            spread = np.true_divide(squares, free)
            _to(out, np.sqrt(spread) if what.endswith("std") else spread)

        def empty() -> Any:
            _warn(text)
            return np.nan

        return Quantity([chains.moments(dtype, lengths, nan=nan)], to, finish, empty)

    return make


def extreme(what: str) -> Make:
    """``min``, ``max``, ``nanmin``, ``nanmax`` or ``ptp``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        chains.supported(what, dtype, "iufc" if what == "ptp" else "biufc")
        if what == "ptp":
            both = [chains.extremes(one, dtype, lengths) for one in ("min", "max")]

            def finish_both(planes: Sequence[Planes], out: NDArray[Any]) -> None:
                low, high = (_total(one, dtype) for one in planes)
                _to(out, np.subtract(high, low))

            return Quantity(both, dtype, finish_both, None)

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            found = _total(planes[0], dtype)
            if what.startswith("nan") and dtype.kind in "fc" and np.isnan(found).any():
                _warn("All-NaN slice encountered")
            _to(out, found)

        return Quantity([chains.extremes(what, dtype, lengths)], dtype, finish, None)

    return make


def place_of(what: str) -> Make:
    """``argmin``, ``argmax``, ``nanargmin`` or ``nanargmax``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        nan = what.startswith("nan") and dtype.kind in "fc"
        parts = 2 if dtype.kind == "c" else 1

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            ranks, found = (plane[::parts] for plane in planes[0])
            if nan and (ranks == np.iinfo(np.int64).min).any():
                raise UsageError(
                    "All-NaN slice encountered: it has no number whose place could be told; use "
                    f"{what.removeprefix('nan')}",
                    code="all-nan",
                )
            _to(out, found)

        return Quantity([chains.places(what, dtype, lengths)], _I8, finish, None)

    return make


def truth_of(what: str) -> Make:
    """``any``, ``all`` or ``count_nonzero``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            found = planes[0][0]
            if what == "count_nonzero":
                _to(out, found)
            else:
                np.equal(found, count, out=out) if what == "all" else np.greater(found, 0, out=out)

        to = _I8 if what == "count_nonzero" else _BOOL
        return Quantity([chains.counted(dtype, lengths)], to, finish, lambda: what == "all")

    return make
