"""
Quantities: the results of reductions, made of kernels, with the dtypes and warnings of NumPy.

Problem. NumPy defines the dtype of a result, its value for no elements, and its warnings.
Idea. One pass (`outcore.compute.reduce.reducing`) runs the kernels that
`outcore.compute.reduce.chains` names. This module turns their output into NumPy's result: divided,
rounded, of NumPy's dtype, with NumPy's warnings.

Invariants. Each element is read once. Equal elements and shapes give equal bits, whatever the file,
the budget and the number of threads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.jobs import Operation, Result, Source, complete, open_inputs, to_scalar
from outcore.compute.reduce import chains
from outcore.compute.reduce.kernel import Chain, Finish
from outcore.compute.reduce.reducing import plan_constant, plan_reduction
from outcore.errors import UsageError

__all__ = [
    "Quantity",
    "check_one_axis",
    "make_extreme_quantity",
    "make_mean_quantity",
    "make_place_quantity",
    "make_spread_quantity",
    "make_sum_quantity",
    "make_truth_quantity",
    "reduce_arrays",
    "reduce_masked",
    "resolve_ddof",
    "select_quiet_options",
]

_I8, _F8, _BOOL = np.dtype("i8"), np.dtype("f8"), np.dtype("?")
Planes = Sequence[NDArray[Any]]
_BETTER = {"min": np.minimum, "max": np.maximum, "nanmin": np.fmin, "nanmax": np.fmax}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One result: the reductions that it needs, and how they are combined."""

    chains: Sequence[Chain]
    dtype: np.dtype[Any]
    #: Function from the planes of its chains to the result, for some outputs.
    finish: Callable[[Sequence[Planes], NDArray[Any]], None]
    #: Value for no elements. None: there is no such value.
    empty: Callable[[], Any] | None


#: Function from dtype, lengths of the reduced axes (the last one first) and their product to the
#: quantity.
Make = Callable[[np.dtype[Any], Sequence[int], int], Quantity]


def reduce_arrays(
    name: str,
    sources: Sequence[Source],
    axis: Any,
    makes: Sequence[Make],
    out: Any,
    how: dict[str, Any],
    *,
    keepdims: bool = False,
    where: Any = True,
    spread: bool = False,
    names: Sequence[str] = (),
    given: Callable[[Any], Any] | None = None,
    small: bool = True,
    repeatable: bool = True,
    **words: Any,
) -> Any:
    """
    Reduce an array, or several of one layout, in one pass.

    The results of several `makes` share the pass. With `spread`, the last input is broadcast to the
    shape of the others. `names` are keywords that repeat the call, for inputs that are not its
    first arguments; `words` are its other arguments. `given` makes of the results what the user
    gets; unless they are `small`, results without `out` are temporary arrays on disk. For the
    others see `outcore.compute.jobs.complete`.
    """
    choices = () if where is True else (where,)
    with open_inputs(*sources, *choices) as inputs:
        shape = tuple(inputs[0].shape)
        axes = chains.normalize_axes(name, axis, len(shape))
        dtypes = [chains.check_dtype(name, one.dtype) for one in inputs[: len(sources)]]
        few = tuple(inputs[-1].shape) if spread else None
        choice = _check_mask(name, inputs[-1], shape) if choices else few
        dtype = np.result_type(*dtypes)
        lengths = [shape[k] for k in reversed(axes)] or [1]
        count = math.prod(lengths)
        wanted = [make(dtype, lengths, count) for make in makes]
        there = tuple(
            1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
        )
        results = tuple(
            Result(there, one.dtype, source=inputs[0].path, small=small) for one in wanted
        )
        kinds_of = [one.dtype for one in wanted]
        if math.prod(shape):
            all_chains = [chain for one in wanted for chain in one.chains]
            plan = plan_reduction(
                name,
                shape,
                axes,
                [one.dtype for one in inputs],
                all_chains,
                kinds_of,
                _finish(wanted),
                keepdims=keepdims,
                where=choice,
            )
        else:
            # There are no results where there would be elements for each, or results of no
            # elements.
            values = _empty(name, axes, wanted) if not count else lambda: [0] * len(wanted)
            plan = plan_constant(name, there, len(inputs), kinds_of, values)
        # In arrays with different numbers of axes, only axes counted from the last one correspond.
        shown = tuple(k - len(shape) for k in axes) if spread else axes
        arguments: dict[str, Any] = (
            {} if axis is None else {"axis": shown[0] if len(shown) == 1 else shown}
        )
        arguments |= {"keepdims": True} if keepdims else {}
        arguments |= {key: value for key, value in words.items() if value is not None}
        named = ("where",) if choices else names
        operation = Operation(name, inputs, results, plan, arguments, repeatable, in_names=named)

        def finish(done: Any) -> Any:
            several = isinstance(done, tuple)
            done = tuple(to_scalar(one, out) for one in done) if several else to_scalar(done, out)
            return done if given is None else given(done)

        return complete(operation, out, how, finish)


def reduce_masked(
    name: str,
    make: Callable[..., Make],
    a: Source,
    axis: Any,
    out: Any,
    how: dict[str, Any],
    where: Any,
    dtype: Any = None,
    **words: Any,
) -> Any:
    """Reduce the elements of an array for which `where` is true."""
    makes = [make(chosen=where is not True)]
    wanted = None if dtype is None else np.dtype(dtype).str
    return reduce_arrays(name, (a,), axis, makes, out, how, where=where, dtype=wanted, **words)


def _check_mask(name: str, where: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the mask `where` for elements of an array."""
    found = tuple(where.shape)
    if where.dtype.kind != "b":
        raise UsageError(
            f"{name}: where= has dtype {where.dtype}; pass booleans that select elements",
            code="bad-dtype",
        )
    ends = shape[len(shape) - len(found) :] if len(found) <= len(shape) else ()
    if len(ends) < len(found) or not all(
        n in (1, length) for n, length in zip(found, ends, strict=True)
    ):
        raise UsageError(
            f"{name}: where= has shape {found}, which cannot be broadcast to the shape {shape} of "
            "the array; pass a mask of that shape",
            code="bad-shape",
        )
    return found


def _convert_initial(name: str, initial: Any, to: np.dtype[Any]) -> Any:
    """Convert the start value of a reduction to the dtype of its result, as NumPy does."""
    value = np.zeros((), to)
    try:
        value[...] = initial
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{name}: initial={initial!r} is not a number of dtype {to}: {error}", code="bad-option"
        ) from None
    return value[()]


def resolve_ddof(name: str, ddof: float, correction: float | None) -> float:
    """Return `ddof`, which may be given by either of its two names."""
    if correction is None:
        return ddof
    if ddof != 0:
        raise UsageError(
            f"{name}: ddof={ddof} and correction={correction} are two names of one number; pass one "
            "of them",
            code="bad-option",
        )
    return correction


def check_one_axis(axis: Any, name: str) -> None:
    """Raise `UsageError` for several axes."""
    if isinstance(axis, tuple):
        raise UsageError(
            f"{name}: axis={axis!r} names several axes; pass one, or None for all axes",
            code="bad-axis",
        )


def select_quiet_options(how: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a call that also apply to the pass before it, which has no result."""
    return {word: how[word] for word in ("memory", "comm") if word in how}


def _finish(wanted: Sequence[Quantity]) -> Finish:
    def finish(planes: Sequence[Planes], outs: Sequence[NDArray[Any]]) -> None:
        first = 0
        for one, out in zip(wanted, outs, strict=True):
            last = first + len(one.chains)
            # `finish` gives NumPy's warnings itself.
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
                f"{name} of no elements is undefined: one of the axes {tuple(axes)} has length 0; "
                "reduce axes that have elements",
                code="empty-reduction",
            )
        found.append(one.empty)
    return lambda: [one() for one in found]


def _to(out: NDArray[Any], values: NDArray[Any]) -> None:
    np.copyto(out, values, casting="unsafe")


def _join_parts(planes: Planes, to: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a first plane; a complex number has two values."""
    total = planes[0]
    return total.view(f"c{2 * total.dtype.itemsize}") if to.kind == "c" else total


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def make_sum_quantity(
    what: str, wanted: Any = None, initial: Any = None, *, chosen: bool = False
) -> Make:
    """Make ``sum``, ``prod``, ``nansum`` or ``nanprod``; `chosen`: the last input is a mask."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to, nan = chains.choose_sum_dtype(dtype, wanted), what.startswith("nan")
        is_sum = what.endswith("sum")
        chain = (chains.make_sum if is_sum else chains.make_product)(dtype, to, lengths, nan=nan)
        if chosen:
            chain = chain.select(0 if is_sum else 1)
        nothing = to.type(not is_sum)
        first = nothing if initial is None else _convert_initial(what, initial, to)
        join = np.add if is_sum else np.multiply

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            total = _join_parts(planes[0], to)
            _to(out, total if initial is None else join(total, first.astype(total.dtype)))

        return Quantity([chain], to, finish, lambda: first)

    return make


def make_mean_quantity(wanted: Any = None, *, nan: bool = False, chosen: bool = False) -> Make:
    """Make ``mean`` or ``nanmean``; `chosen`: the last input is a mask."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to = _F8 if dtype.kind in "biu" else dtype
        if wanted is not None:
            to = chains.check_dtype("a mean", np.dtype(wanted), "iufc")

        def empty() -> Any:
            _warn("Mean of empty slice")
            return complex(np.nan, np.nan) if to.kind == "c" else np.nan

        def finish_some(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            total, found = _join_parts(planes[0], to), planes[1][0]
            if not found.all():
                _warn("Mean of empty slice")
            _to(out, np.true_divide(total, found.astype(total.dtype)))

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            _to(out, np.true_divide(_join_parts(planes[0], to), count))

        some = nan and dtype.kind in "fc"
        chain = (
            chains.make_sum(dtype, to, lengths, nan=True)
            if some
            else chains.make_total(dtype, to, lengths, count)
        )
        if chosen:
            chain = chain.select(0)
        if not some:
            if not chosen:
                return Quantity([chain], to, finish, empty)
            return Quantity([chain, chains.make_mask_count(lengths)], to, finish_some, empty)
        counts = chains.make_number_count(dtype, lengths)
        if chosen:
            counts = counts.select(np.nan if counts.elements.dtype.kind == "f" else 0)
        return Quantity([chain, counts], to, finish_some, empty)

    return make


def make_spread_quantity(
    what: str, ddof: float = 0, wanted: Any = None, *, chosen: bool = False
) -> Make:
    """Make ``var``, ``std``, ``nanvar`` or ``nanstd``; `chosen`: the last input is a mask."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        to = _F8 if dtype.kind in "biu" else dtype
        if wanted is not None:
            to = chains.check_dtype(what, np.dtype(wanted), "fc")
        if to.kind == "c":
            to = np.dtype(f"f{to.itemsize // 2}")
        nan = what.startswith("nan") and dtype.kind in "fc"
        text = "Degrees of freedom <= 0" + (" for slice." if nan else " for slice")

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            counts, _, squares = planes[0]
            if dtype.kind == "c":
                counts, squares = counts[::2], squares[::2] + squares[1::2]
            if chosen and not nan:
                # Masked elements are NaN in the moments. A selected NaN makes the result NaN.
                squares = np.where(counts < planes[1][0], np.nan, squares)
                counts = planes[1][0]
            free = counts - ddof
            if (free <= 0).any():
                _warn(text)
                free = np.where(free <= 0, np.nan, free) if nan else np.maximum(free, 0)
            spread = np.true_divide(squares, free)
            _to(out, np.sqrt(spread) if what.endswith("std") else spread)

        def empty() -> Any:
            _warn(text)
            return np.nan

        chain = chains.make_moments(dtype, lengths, nan=nan or chosen)
        if not chosen:
            return Quantity([chain], to, finish, empty)
        none = complex(np.nan, np.nan) if dtype.kind == "c" else np.nan
        counts = [] if nan else [chains.make_mask_count(lengths)]
        return Quantity([chain.select(none), *counts], to, finish, empty)

    return make


def make_extreme_quantity(what: str, initial: Any = None, *, chosen: bool = False) -> Make:
    """Make ``min``, ``max``, ``nanmin``, ``nanmax`` or ``ptp``; `chosen`: the last input is a mask."""
    if chosen and initial is None:
        raise UsageError(
            f"{what}: where= may select no elements, which have no extreme; pass initial=, too",
            code="bad-option",
        )

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        chains.check_dtype(what, dtype, "iufc" if what == "ptp" else "biufc")
        if what == "ptp":
            both = [chains.make_extremes(one, dtype, lengths) for one in ("min", "max")]

            def finish_both(planes: Sequence[Planes], out: NDArray[Any]) -> None:
                low, high = (_join_parts(one, dtype) for one in planes)
                _to(out, np.subtract(high, low))

            return Quantity(both, dtype, finish_both, None)
        chain = chains.make_extremes(what, dtype, lengths)
        first = None if initial is None else _convert_initial(what, initial, dtype)
        if chosen:
            # The initial value always takes part.
            chain = chain.select(first)

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            found = _join_parts(planes[0], dtype)
            if first is not None:
                found = _BETTER[what](first, found)
            if what.startswith("nan") and dtype.kind in "fc" and np.isnan(found).any():
                _warn("All-NaN slice encountered")
            _to(out, found)

        return Quantity([chain], dtype, finish, None if first is None else lambda: first)

    return make


def make_place_quantity(what: str) -> Make:
    """Make ``argmin``, ``argmax``, ``nanargmin`` or ``nanargmax``."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        nan = what.startswith("nan") and dtype.kind in "fc"
        parts = 2 if dtype.kind == "c" else 1

        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            ranks, found = (plane[::parts] for plane in planes[0])
            if nan and (ranks == np.iinfo(np.int64).min).any():
                raise UsageError(
                    "All-NaN slice encountered: it has no number with an index; use "
                    f"{what.removeprefix('nan')}",
                    code="all-nan",
                )
            _to(out, found)

        return Quantity([chains.make_places(what, dtype, lengths)], _I8, finish, None)

    return make


def make_truth_quantity(what: str, *, chosen: bool = False) -> Make:
    """Make ``any``, ``all`` or ``count_nonzero``; `chosen`: the last input is a mask."""

    def make(dtype: np.dtype[Any], lengths: Sequence[int], count: int) -> Quantity:
        def finish(planes: Sequence[Planes], out: NDArray[Any]) -> None:
            found = planes[0][0]
            if what == "count_nonzero":
                _to(out, found)
            else:
                np.equal(found, count, out=out) if what == "all" else np.greater(found, 0, out=out)

        to = _I8 if what == "count_nonzero" else _BOOL
        chain = chains.make_nonzero_count(dtype, lengths)
        if chosen:
            chain = chain.select(what == "all")
        return Quantity([chain], to, finish, lambda: what == "all")

    return make
